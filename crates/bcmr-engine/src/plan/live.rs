//! What only the destination of a plan has: deleted where the plan says so (M1 to M6), or told.
//!
//! Must not delete by itself: names are found here, by the plan's listing and by asking the source once more, and weighed
//! and deleted by what deletes for `sync`.

use super::along::{Along, along};
use super::folder::PlanFolder;
use super::format::{Digest, LandedEntry, PlanHeader, PlannedAs, PlannedEntry, Version};
use super::places::the_planned_source;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::node::Node;
use crate::policy::{CopyPolicy, Mirror};
use crate::receiver::created_names::CreatedNames;
use crate::receiver::extraneous::{At, Extraneous, Going};
use crate::receiver::land;
use crate::stage;
use crate::tally::Tally;
use crate::verbs::check::Check;
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::Info;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// What becomes of a name that only the destination has.
pub(super) enum OnlyThere<'t> {
    /// It goes, if not too much would.
    Goes(Extraneous),
    /// It is told.
    Told(Check<'t>),
}

/// Looks for such names.
struct Looking<'l, 't> {
    what: &'l OnlyThere<'t>,
    tally: &'l Tally<'t>,
    list: ListBuffer,
    key: RandomState,
    src_path: PathBuf,
    created: Arc<CreatedNames>,
}

/// A directory on both sides.
struct Sides {
    src: Dir,
    /// Absent where it is no directory there, or nothing in it may go.
    dst: Option<Dir>,
    node: Arc<Node>,
    /// Hashes of the names that the plan has in it: two names of one hash cost a name that stays.
    names: Vec<u64>,
}

fn is_other(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(errno::ENOENT | errno::ENOTDIR | errno::ELOOP))
}

impl Looking<'_, '_> {
    fn source(&self, path: &[u8]) -> PathBuf {
        self.src_path.join(OsStr::from_bytes(path))
    }

    /// Names of the directory that the plan does not have and that no unfinished copy needs to go on with (M5).
    fn not_planned(&mut self, sides: &mut Sides, dst: &Dir) -> Result<Vec<NameBuf>> {
        let fail = |op: Op| {
            let path = sides.node.path();
            move |e| Error::os(op, path, e)
        };
        sides.names.sort_unstable();
        let home = land::home_of(dst).map_err(fail(Op::Stat))?;
        let (mut found, mut all) = (Vec::new(), 0);
        let (names, key) = (&sides.names, &self.key);
        let listed = dst.list(&mut self.list, |entry| {
            all += 1;
            let is_ours = stage::is_random(entry.name) || home.role(entry.name).is_some();
            if !is_ours && names.binary_search(&key.hash_one(entry.name.bytes())).is_err() {
                found.push(entry.name.to_owned());
            }
            true
        });
        listed.map_err(fail(Op::ListDirectory))?;
        if let OnlyThere::Goes(extraneous) = self.what {
            extraneous.counted(all);
        }
        Ok(found)
    }

    fn tell(&self, sides: &Sides, dst: &Dir, name: Name<'_>, there: &Info, source: &Info) -> Result<()> {
        match self.what {
            OnlyThere::Goes(extraneous) => {
                let id = dst.info().map_err(|e| Error::os(Op::Stat, sides.node.path(), e))?.id();
                let times = Some((source.atime, source.mtime));
                let at = At { dir: dst, node: &sides.node, id, times, created_names: &self.created };
                extraneous.goes(&at, name, there, Going::OnlyThere);
            }
            OnlyThere::Told(check) => {
                let path = sides.node.join(name);
                self.tally.watch.front.event(check.only_there(dst, name, &path)?);
            }
        }
        Ok(())
    }
}

impl Along for Looking<'_, '_> {
    type Level = Sides;

    fn is_stopped(&self) -> bool {
        self.tally.cancelled()
    }

    fn enter(&mut self, above: &mut Sides, path: &[u8], name: &NameBuf, version: &Version) -> Result<Sides> {
        let name = name.as_name();
        let fail = |e| Error::os(Op::OpenDirectory, self.source(path), e);
        let src = above.src.open_dir(name).map_err(fail)?;
        // M2: nothing goes by the word of another directory than the one that was listed.
        if src.info().map_err(fail)?.ino != version.ino {
            return Err(Error::ours(
                Code::SourceChanged,
                Op::OpenDirectory,
                self.source(path),
                Reason::SourceIsAnother,
            ));
        }
        let node = above.node.below(name);
        let dst = match above.dst.as_ref().map(|dir| dir.open_dir_readable(name)) {
            Some(Ok(dst)) => {
                let info = dst.info().map_err(|e| Error::os(Op::Stat, node.path(), e))?;
                // M4: nothing goes on another file system than the destination's own.
                let may = match self.what {
                    OnlyThere::Goes(extraneous) => extraneous.may_go_on(info.dev),
                    OnlyThere::Told(_) => true,
                };
                may.then_some(dst)
            }
            Some(Err(e)) if !is_other(&e) => return Err(Error::os(Op::OpenDirectory, node.path(), e)),
            _ => None,
        };
        Ok(Sides { src, dst, node, names: Vec::new() })
    }

    fn entry(&mut self, at: &mut Sides, _: &[u8], entry: &PlannedEntry, _: LandedEntry) -> Result<()> {
        if !matches!(entry.what, PlannedAs::Part { at, .. } if at > 0) {
            at.names.push(self.key.hash_one(entry.name.bytes()));
        }
        if let OnlyThere::Goes(extraneous) = self.what {
            extraneous.source_has_one();
        }
        Ok(())
    }

    fn leave(&mut self, mut sides: Sides, path: &[u8], _: Option<&mut Sides>) -> Result<()> {
        let Some(dst) = sides.dst.take() else { return Ok(()) };
        let source = sides.src.info().map_err(|e| Error::os(Op::Stat, self.source(path), e))?;
        for name in self.not_planned(&mut sides, &dst)? {
            let name = name.as_name();
            // M2: what has come to be at the source since the plan was made is not deleted either.
            let has = sides.src.look(name).map_err(|e| Error::os(Op::Stat, self.source(path), e))?;
            let there = dst.look(name).map_err(|e| Error::os(Op::Stat, sides.node.join(name), e))?;
            if let (None, Some(there)) = (has, there) {
                self.tell(&sides, &dst, name, &there, &source)?;
            }
        }
        Ok(())
    }
}

/// Goes through a plan once more and deals with what only the destination has.
///
/// # Errors
/// One of both sides cannot be looked at: nothing goes.
pub(super) fn only_there<'t>(
    (folder, header, plan): (&PlanFolder, &PlanHeader, &Digest),
    what: OnlyThere<'t>,
    policy: &CopyPolicy,
    tally: &Tally<'t>,
) -> Result<()> {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let (src_path, dst_path) = (path(&header.source), path(&header.destination));
    let src = Dir::open(&src_path).map_err(|e| Error::os(Op::OpenDirectory, &src_path, e))?;
    the_planned_source(&src, header)?;
    let dst = match Dir::open(&dst_path) {
        Ok(dst) => Some(dst),
        Err(e) if is_other(&e) => None,
        Err(e) => return Err(Error::os(Op::OpenDirectory, &dst_path, e)),
    };
    let node = Node::root(&dst_path);
    if let (OnlyThere::Goes(extraneous), Some(dst)) = (&what, &dst) {
        let id = src.info().map_err(|e| Error::os(Op::Stat, &src_path, e))?.id();
        extraneous.begin(dst, &node, id).map_err(|e| Error::os(Op::OpenDirectory, &dst_path, e))?;
    }
    let (list, key, created) = (ListBuffer::new(), RandomState::new(), Arc::default());
    let mut looking = Looking { what: &what, tally, list, key, src_path, created };
    let dst = dst.map(|dst| dst.reopen()).transpose();
    let dst = dst.map_err(|e| Error::os(Op::OpenDirectory, &dst_path, e))?;
    along((folder, header, plan), Sides { src, dst, node, names: Vec::new() }, &mut looking)?;
    if let OnlyThere::Goes(extraneous) = what
        && let Some(going) = extraneous.plan(tally)
    {
        let policy = CopyPolicy { mirror: Mirror::Delete, ..policy.clone() };
        let _nothing_was_in_the_way = going.carry_out(&policy, None, tally);
    }
    Ok(())
}
