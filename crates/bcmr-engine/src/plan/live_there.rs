//! The end of a comparison with a destination on another machine: the two themselves, and what only it has. The bcmr there is given
//! every name of the plan and tells what else it has, and of that the source is asked once more.
//!
//! Must not know messages, nor delete anything. Nothing below the two is compared here: the shards have done that.

use super::folder::PlanFolder;
use super::format::{Digest, PlanHeader, Version};
use super::from;
use super::places::{below, is_other, the_planned_source};
use super::there::{filling, with_all_names};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Change, Event, Front, HearingFront, Summary, Watch};
use crate::peer::{self, planned::TreeThere};
use crate::policy::{Compare, CopyPolicy};
use crate::remote::{Address, Purpose, Way};
use crate::sender::announce::Extent;
use crate::tally::Tally;
use crate::verbs::named_dirs::NamedDirs;
use fastcopy::dir::{Dir, NameBuf};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What only it has, and nothing is read for that.
const EXTRA: Purpose = Purpose::Check { compare: Compare::SizeAndTime, extra: true, alike: false };

/// Whether the source has it by now. What the plan does not name may have come since.
fn source_has((src, src_path): (&Dir, &Path), path: &Path) -> Result<bool> {
    let fail = |e| Error::os(Op::Stat, src_path.join(path), e);
    let path = path.as_os_str().as_bytes();
    let (above, name) = match path.iter().rposition(|b| *b == b'/').and_then(|at| path.split_at_checked(at)) {
        Some((above, name)) => (above, name.strip_prefix(b"/").unwrap_or(name)),
        None => (&b""[..], path),
    };
    // What is no name can be nothing's.
    let Some(name) = NameBuf::new(name) else { return Ok(false) };
    match below(src, above) {
        Ok(dir) => dir.look(name.as_name()).map(|has| has.is_some()).map_err(fail),
        Err(e) if is_other(&e) => Ok(false),
        Err(e) => Err(fail(e)),
    }
}

/// Ends a comparison with a destination that is at `to`: compares the source itself, and tells what only the destination has if
/// that is wanted.
///
/// # Errors
/// The source is another one, or lacks what the plan names; or the connection was lost. Then not all of it was told.
pub(super) fn end(
    plan: (&PlanFolder, &PlanHeader, &Digest),
    (to, way): (&Address, &Way),
    asked: &CopyPolicy,
    (compare, extra): (Compare, bool),
    tally: &Tally<'_>,
) -> Result<()> {
    let (folder, header, _) = plan;
    let src_path = PathBuf::from(OsStr::from_bytes(&header.source));
    let src = Dir::open(&src_path).map_err(|e| Error::os(Op::OpenDirectory, &src_path, e))?;
    the_planned_source(&src, header)?;
    let enters = |path: &[u8], version: &Version| -> Result<()> {
        let shown = || src_path.join(OsStr::from_bytes(path));
        let now = below(&src, path).and_then(|dir| dir.info());
        if now.map_err(|e| Error::os(Op::OpenDirectory, shown(), e))?.ino == version.ino {
            return Ok(());
        }
        Err(Error::ours(Code::SourceChanged, Op::OpenDirectory, shown(), Reason::SourceIsAnother))
    };
    let own_name = peer::shown_path(to, &to.path);
    let (is_of_top, is_told) = (AtomicBool::new(true), AtomicBool::new(false));
    // Of what the bcmr there tells of the two themselves one difference is passed on, whatever it says that it is of; of what is in
    // them only what the source does not have either.
    let listener = HearingFront::new(tally.watch.front, |front: &dyn Front, event| {
        let Event::Difference { change, mut path, directory, files, bytes, why, alike } = event else {
            return front.event(event);
        };
        let is_passed_on = match (is_of_top.load(Relaxed), change) {
            (true, Change::Extra) => false,
            (true, _) => {
                path.clone_from(&own_name);
                !is_told.swap(true, Relaxed)
            }
            (false, Change::Extra) => {
                let has = source_has((&src, &src_path), &path);
                has.map(|has| !has).unwrap_or_else(|e| {
                    tally.fail(e);
                    false
                })
            }
            (false, _) => false,
        };
        if is_passed_on {
            tally.differences.fetch_add(1, Relaxed);
            front.event(Event::Difference { change, path, directory, files, bytes, why, alike });
        }
    });
    let watch = Watch { front: &listener, items: false, ..tally.watch };
    let (filling, purpose) = (filling(asked), Purpose::Check { compare, extra: false, alike: false });
    let tree = TreeThere::reach_compared((to, way), (&filling, purpose), watch)?;
    let compares = || -> Result<Summary> {
        let (top, policy) = (NamedDirs::only_top(), (&filling, purpose));
        let mut done = tree.compare(&src_path, (&mut io::empty(), &top), Extent::Alone, policy)?;
        if extra && !done.cancelled {
            is_of_top.store(false, Relaxed);
            let policy = from::walking(asked);
            done.add(with_all_names(plan, watch.cancel, &enters, |names| {
                tree.compare(&src_path, (names, &NamedDirs::default()), Extent::All, (&policy, EXTRA))
            })?);
        }
        Ok(done)
    };
    let told = compares();
    let Summary { failed, codes, cancelled, .. } = tree.end(told)?;
    if cancelled {
        return Err(Error::ours(Code::Interrupted, Op::FinishPlan, &folder.path, Reason::Interrupted));
    }
    tally.failed_below(&Summary { failed, codes, ..Summary::default() });
    Ok(())
}
