//! A directory that is copied to a name that is free: by the verb that copies in parallel, as only the time can show it.
//!
//! Must not word anything. What could not be copied that way is gone through once more, one thing after the other, which
//! fails in GNU's order and is told in GNU's words.

use super::copier::{Copier, Id, StepEnd};
use super::named::operand;
use super::options::{Backup, Content, Over, Program, Update};
use super::spot::{Spot, join, names_in};
use super::step::{Ancestors, CopyStep};
use crate::disk::sys::Sys;
use crate::disk::{Fault, Side};
use crate::error::{Error, Op, Reason};
use crate::event::{Event, Front, Progress, Question, Summary, Watch};
use crate::policy::{Changing, Collide, CopyPolicy, Follow, Io};
use crate::receiver::links::LinkTable;
use crate::receiver::single::Folder;
use crate::verbs::copy::Run;
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{self, Kind};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Failures that are remembered one by one; after more the whole tree is gone through once more.
const FAILURES_MAX: usize = 1 << 16;

/// Copies the directory of `pair` with everything below it. `None`: nothing is there, and nothing was told.
pub(super) fn copy(copier: &mut Copier<'_>, pair: &CopyStep<'_>) -> Option<StepEnd> {
    if !applies(copier, pair) {
        return None;
    }
    let options = copier.options;
    let policy = CopyPolicy {
        recursive: true,
        preserve: options.preserve,
        specials: true,
        one_file_system: options.one_file_system,
        reflink: options.reflink,
        sparse: options.sparse,
        io: Io { changing: Changing::AsRead, ..Io::PLAIN },
        // Nothing is there, unless another process makes it meanwhile.
        collide: if options.replaces() { Collide::Replace } else { Collide::Keep },
        ..CopyPolicy::cp(options.threads, options.me, options.umask)
    };
    if !is_plain(pair).unwrap_or(false) {
        return None;
    }
    // They may not be two names apart.
    let operand = operand(pair.src, pair.dst, &pair.info, &policy, Op::Copy).ok()?;
    let (failures, progress) = (Failures::default(), Progress::default());
    let watch = Watch { front: &failures, progress: &progress, cancel: &options.cancel, items: false };
    let disk = Sys::with(policy.io);
    let mut run = Run::new(&disk, &policy, watch, None).ok()?;
    // As GNU's keeps them: a directory that fails after what was in it is gone through once more.
    run.desk.links = LinkTable::keeping_all();
    run.round(&[operand]);
    let linked = run.desk.links.landed_at();
    let Summary { cancelled, kept, .. } = run.end();
    if cancelled {
        return Some(StepEnd::Failed);
    }
    let made = pair.dst.look(false).ok().filter(|made| made.kind == Kind::Dir)?;
    if !copier.below_made {
        copier.below_made = true;
        copier.copied.insert(made.id(), pair.dst.shown.clone());
    }
    let failures = failures.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    let is_theirs = kept > 0 || failures.iter().any(|e| e.op == Op::MergeIntoDirectory);
    let is_theirs = is_theirs && !options.replaces();
    Some(StepEnd::of(
        failures.is_empty() && !is_theirs || once_more(copier, pair, failures, (linked, is_theirs)),
    ))
}

/// Whether what the verb does is what would be done one by one: nothing is told, asked, followed or looked up on the way.
fn applies(copier: &Copier<'_>, pair: &CopyStep<'_>) -> bool {
    let o = copier.options;
    let kept = o.preserve;
    o.purpose == Program::Copy
        && o.content == Content::Copied
        // A link that is an operand is followed by `-H`; that this one is none is seen below.
        && o.follow != Follow::Always
        && !(o.verbose || o.plain_mode || o.require_xattr || o.copy_contents)
        && kept.mode == kept.owner
        // Names of one file may be in several operands, and an operand in another one.
        && !(kept.links && copier.sources.is_some())
        && !copier.above.contains(&pair.info.id())
        && pair.operand
        && pair.there.is_none()
        && pair.backup.is_none()
}

/// Whether the name is that of the directory, and free where it goes. What hands its group down is not for the verb.
fn is_plain(pair: &CopyStep<'_>) -> io::Result<bool> {
    let (from, name) = pair.src.place(errno::EINVAL)?;
    let (to, to_name) = pair.dst.place(errno::EINVAL)?;
    let own = from.dir.stat(name)?;
    let is_itself = own.kind == Kind::Dir && own.id() == pair.info.id();
    let hands_down_its_group = to.dir.info()?.mode & 0o2000 != 0;
    // Where names stay its stage could not become it.
    let names_stay = to.flags().keep_names();
    Ok(is_itself && !hands_down_its_group && !names_stay && to.dir.look(to_name)?.is_none())
}

/// Keeps what went wrong, for the end.
#[derive(Default)]
struct Failures(Mutex<Vec<Error>>);

impl Front for Failures {
    fn event(&self, event: Event) {
        let e = match event {
            Event::Failed(e) => e,
            // GNU's believes that the times which it set are there.
            Event::Warning(e) if e.code.is_of_metadata() && !e.is_noted(Reason::TimesNotHeld) => e,
            _ => return,
        };
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() <= FAILURES_MAX {
            failures.push(e);
        }
    }
    fn ask(&self, _: Question) -> bool {
        false
    }
}

/// Names that are missing below a directory.
#[derive(Default)]
struct MissingBelow {
    /// It itself is.
    whole: bool,
    below: BTreeMap<NameBuf, MissingBelow>,
}

impl MissingBelow {
    fn add(&mut self, path: &Path) {
        let mut at = self;
        for name in path.components() {
            let Some(name) = NameBuf::new(name.as_os_str().as_encoded_bytes()) else {
                at.whole = true;
                return;
            };
            at = at.below.entry(name).or_default();
        }
        at.whole = true;
    }
}

/// One level after the other, and not each within the one above: they may be many.
impl Drop for MissingBelow {
    fn drop(&mut self) {
        let mut levels = vec![std::mem::take(&mut self.below)];
        while let Some(level) = levels.pop() {
            levels.extend(level.into_values().map(|mut missing| std::mem::take(&mut missing.below)));
        }
    }
}

/// Goes through what failed once more, one thing after the other. Whether that went well. `linked`: where files landed that
/// have further names, which become names of those. `is_theirs`: another process has made the directory meanwhile, and all of it
/// counts as having been there from the beginning.
fn once_more(
    copier: &mut Copier<'_>,
    pair: &CopyStep<'_>,
    failures: Vec<Error>,
    (linked, is_theirs): (Vec<(Id, PathBuf)>, bool),
) -> bool {
    let (src, dst) = (pair.src, pair.dst);
    let mut missing = MissingBelow::default();
    missing.whole = failures.len() > FAILURES_MAX || is_theirs;
    let mut fine = true;
    for e in failures {
        let below = e.path.strip_prefix(&src.shown).or_else(|_| e.path.strip_prefix(&dst.shown));
        if e.code.is_of_metadata() {
            let side = if e.path.starts_with(&dst.shown) { Side::Dest } else { Side::Source };
            let note = e.note.map(|note| note.reason);
            let fault = Fault { side, op: e.op, code: e.code, note, source: e.source };
            fine &= copier.tell_lost_of(&e.path, &e.path, vec![fault]);
        } else {
            missing.add(below.unwrap_or(Path::new("")));
        }
    }
    if !missing.whole && missing.below.is_empty() {
        return fine;
    }
    let mut options = copier.options.clone();
    if !is_theirs {
        // All that is there was made by this run.
        (options.over, options.update, options.backup) = (Over::Always, Update::All, Backup::None);
        options.unlink_first = false;
    }
    let mut again = Copier::new(&options, &mut *copier.teller, 1, copier.room);
    (again.copied, again.top, again.below_made) = (copier.copied.clone(), copier.top.clone(), true);
    again.copied.extend(linked.into_iter().filter(|(_, at)| Spot::of(at).look(false).is_ok()));
    // It is the operand itself that comes again, and not another one of its name.
    again.copied.remove(&pair.info.id());
    fine & !add_missing(&mut again, (src, dst), &missing, None, pair.info.dev).is_failed()
}

fn add_missing(
    copier: &mut Copier<'_>,
    (src, dst): (&Spot, &Spot),
    missing: &MissingBelow,
    up: Option<&Ancestors<'_>>,
    device: u64,
) -> StepEnd {
    if let Some(done) = copier.too_deep(src) {
        return done;
    }
    if missing.whole {
        return copier.item(src, dst, up, false, device);
    }
    let opened = src.look(false).and_then(|info| Ok((info, src.open_dir(false)?, dst.open_dir(false)?)));
    let Ok((info, from, into)) = opened else { return copier.item(src, dst, up, false, device) };
    make_room(&into);
    // In the order of inodes as the directory lists them: what is in it may not be seen.
    let inodes: HashMap<NameBuf, u64> = names_in(&from).unwrap_or_default().into_iter().collect();
    let (from, into) = (Arc::new(Folder::new(from)), Arc::new(Folder::new(into)));
    let up = Ancestors { id: info.id(), above: up };
    let mut below: Vec<_> = missing
        .below
        .iter()
        .map(|(name, missing)| {
            let src = Spot::child(&from, name.as_name(), join(&src.shown, name.bytes()));
            let dst = Spot::child(&into, name.as_name(), join(&dst.shown, name.bytes()));
            (inodes.get(name).copied().unwrap_or(0), src, dst, missing)
        })
        .collect();
    below.sort_by_key(|(ino, ..)| *ino);
    let mut all = StepEnd::Fine;
    for (_, src, dst, missing) in &below {
        let done = add_missing(copier, (src, dst), missing, Some(&up), device);
        if done.is_failed() {
            all = done;
        }
    }
    let pair = CopyStep::on_the_way(src, dst, info, false);
    let sealed = copier.seal_made(&pair, &from, &into);
    if all == StepEnd::Fine { StepEnd::of(sealed) } else { all }
}

/// A directory that was sealed may not let its owner add to it. Where it cannot be opened up, what is to be added says why.
fn make_room(dir: &Dir) {
    if let Ok(info) = dir.info()
        && info.mode & 0o700 != 0o700
    {
        let _opened = meta::set_mode(dir, info.mode | 0o700).is_ok();
    }
}
