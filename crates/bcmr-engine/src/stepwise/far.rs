//! A move to another file system, by the verb that copies, proves and takes away.
//!
//! Must not know how it does that; what it tells is put into the order that `mv` tells in.

use super::copier::StepEnd;
use super::named::operand;
use super::options::Options;
use super::spot::{Spot, join, names_in};
use super::told::{Did, Noted, Teller, Trouble, What};
use crate::disk::sys::Sys;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Event, Front, Progress, Question, Summary, Watch};
use crate::policy::{Collide, CopyPolicy, Strictness};
use crate::receiver::tree;
use crate::verbs::move_named;
use fastcopy::dir::NameBuf;
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Keeps what went wrong and what was done, each with its place in the order that `mv` tells in.
struct FarEvents {
    kept: Mutex<Kept>,
    /// The operand, as it was typed, and where it goes.
    src: PathBuf,
    dst: PathBuf,
}

#[derive(Default)]
struct Kept {
    errors: Vec<(FarTurn, Error)>,
    done: Vec<(FarTurn, FarStep)>,
    listed: FarLists,
    /// Failures that are of metadata which is not allowed or not possible there, and will not be.
    lost_for_good: u64,
}

/// What was done, with what, and where.
type FarStep = (Action, PathBuf, PathBuf);

impl Front for FarEvents {
    fn event(&self, event: Event) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // At once, while the source still lists what is taken away in the end.
        match event {
            Event::Failed(e) => {
                let lasts = |e: &io::Error| matches!(Code::of(e), Code::Denied | Code::Unsupported);
                kept.lost_for_good += u64::from(lost(e.op).is_some() && e.source.as_ref().is_some_and(lasts));
                let turn = self.turn_of(&mut kept.listed, &e);
                kept.errors.push((turn, e));
            }
            // GNU's believes that the times which it set are there.
            Event::Warning(e) if e.is_noted(Reason::TimesNotHeld) => {}
            // A file system that does not know modes, times, owners or ACLs loses them: that is told, and no failure (R7). Of other
            // attributes mv says nothing there, unless it has some and no room for these.
            Event::Warning(e)
                if matches!(lost(e.op), Some(What::Times | What::Mode | What::Owner))
                    || e.is_noted(Reason::AttributesDoNotFit) =>
            {
                let turn = self.turn_of(&mut kept.listed, &e);
                kept.errors.push((turn, e));
            }
            Event::Item { action, src, dst, .. } => {
                let removing = action == Action::Removed;
                let turn = self.turn(&mut kept.listed, if removing { &dst } else { &src }, removing);
                kept.done.push((turn, (action, src, dst)));
            }
            _ => {}
        }
    }
    fn ask(&self, _: Question) -> bool {
        true
    }
}

impl FarEvents {
    /// When GNU's would have told of an error. What a directory has gets it after what was in it.
    fn turn_of(&self, listed: &mut FarLists, e: &Error) -> FarTurn {
        let mut turn = self.turn(listed, &e.path, e.op == Op::RemoveSource);
        if lost(e.op).is_some() {
            turn.1.push((u64::MAX, 0));
        }
        turn
    }

    /// When GNU's would have come to a path below the source, or to what it becomes.
    fn turn(&self, listed: &mut FarLists, path: &Path, removing: bool) -> FarTurn {
        let below = path.strip_prefix(&self.src).or_else(|_| path.strip_prefix(&self.dst));
        let mut at = self.src.clone();
        let mut places = Vec::new();
        for name in below.map(Path::components).into_iter().flatten() {
            places.push(listed.at(&at, name.as_os_str().as_encoded_bytes(), removing));
            at.push(name);
        }
        if removing {
            // A directory goes after what was in it.
            places.push((u64::MAX, 0));
        }
        (removing, places)
    }
}

/// Moves to another file system, by the verb that takes a source away only when what landed was proved to be it. With
/// `only_new` a name that another process takes meanwhile is not replaced, and nothing was done or told then.
pub(super) fn far(
    (src, dst, info): (&Spot, &Spot, &Info),
    only_new: bool,
    options: &Options,
    teller: &mut dyn Teller,
) -> StepEnd {
    let is_dir = info.kind == Kind::Dir;
    let front = FarEvents { kept: Mutex::default(), src: src.shown.clone(), dst: dst.shown.clone() };
    let progress = Progress::default();
    let watch = Watch { front: &front, progress: &progress, cancel: &options.cancel, items: options.verbose };
    let policy = CopyPolicy::cp(options.threads, options.me, options.umask);
    let collide = if only_new { Collide::Keep } else { policy.collide };
    let policy = CopyPolicy { strictness: Strictness::LikeMv, collide, ..policy };
    let moved =
        operand(src, dst, info, &policy, Op::Move).and_then(|operand| move_named(operand, policy, watch));
    let mut kept = front.kept.into_inner().unwrap_or_else(PoisonError::into_inner);
    if only_new && is_taken(&moved, &kept.errors, &dst.shown) {
        return StepEnd::Taken;
    }
    let fine = match moved {
        Ok(summary) => {
            // What did not come whole is not gone on with by the same command, as GNU's would not.
            if is_dir
                && summary.failed > 0
                && !summary.cancelled
                && let Ok(made) = dst.open_dir(false)
                && let Err(e) = tree::unmark(&Sys::new(), &made)
            {
                kept.errors.push(((true, vec![]), Error::os(Op::Unmark, &dst.shown, e)));
            }
            // As with GNU's, what can never be kept there is told, and no failure where the source has gone all the same (R7).
            let has_gone = || src.look(false).is_err_and(|e| Code::of(&e) == Code::NotFound);
            let is_well = summary.failed == 0 || summary.failed == kept.lost_for_good && has_gone();
            is_well && !summary.cancelled
        }
        Err(e) => {
            kept.errors.push(((false, vec![]), e));
            false
        }
    };
    kept.errors.sort_by(|(a, _), (b, _)| a.cmp(b));
    // What could not be read, or made as a special file or a link, was begun all the same; but not what could not even be seen.
    let begun = kept
        .errors
        .iter()
        .filter(|(_, e)| matches!(e.op, Op::Open | Op::MakeSpecialFile | Op::MakeSymbolicLink));
    for (turn, e) in begun.filter(|_| options.verbose) {
        let below = e.path.strip_prefix(&src.shown).or_else(|_| e.path.strip_prefix(&dst.shown));
        let Ok(below) = below else { continue };
        let from = src.shown.join(below);
        if Spot::of(&from).look(false).is_ok() {
            kept.done.push((turn.clone(), (Action::Copied, from, dst.shown.join(below))));
        }
    }
    kept.done.sort_by(|(a, _), (b, _)| a.cmp(b));
    tell_far(&kept.done, (src, is_dir), &dst.shown, teller);
    let removing = |e: &Error| (e.op == Op::RemoveSource).then(|| e.path.clone());
    let removing: Vec<PathBuf> = kept.errors.iter().filter_map(|(_, e)| removing(e)).collect();
    for (_, e) in kept.errors {
        // A directory stays because of what stays in it, which was told.
        let holds = |other: &PathBuf| other != &e.path && other.starts_with(&e.path);
        // Nor is it told that the run was stopped.
        let is_stop = e.code == Code::Interrupted;
        if !(is_stop || e.op == Op::RemoveSource && removing.iter().any(holds)) {
            teller.trouble(trouble(e, src, dst));
        }
    }
    if fine { StepEnd::InPlace } else { StepEnd::Failed }
}

/// Whether a file did not land because `dst` was taken meanwhile.
fn is_taken(moved: &Result<Summary>, errors: &[(FarTurn, Error)], dst: &Path) -> bool {
    let exists = |e: &Error| e.source.as_ref().and_then(io::Error::raw_os_error) == Some(errno::EEXIST);
    moved.as_ref().is_ok_and(|summary| summary.kept > 0)
        || errors.iter().any(|(_, e)| e.path == dst && exists(e))
}

/// Whether it is about taking away, which comes after all copying; then where each name stands in its directory: copying goes
/// by inodes, and by places where names have the same, and taking away as directories list them.
type FarTurn = (bool, Vec<(u64, u64)>);

/// What directories of the source have listed.
#[derive(Default)]
struct FarLists(HashMap<PathBuf, Vec<(NameBuf, u64)>>);

impl FarLists {
    /// The inode that `dir` lists for a name, and where: what is in it may not be seen. Only where, for what is taken away.
    fn at(&mut self, dir: &Path, name: &[u8], removing: bool) -> (u64, u64) {
        let names = self.0.entry(dir.to_owned()).or_insert_with(|| {
            let names = Spot::of(dir).open_dir(false).and_then(|dir| names_in(&dir));
            names.unwrap_or_default()
        });
        let found = names.iter().enumerate().find(|(_, (listed, _))| listed.bytes() == name);
        let (inode, at) = found.map_or((u64::MAX, u64::MAX), |(at, (_, inode))| (*inode, at as u64));
        if removing { (at, 0) } else { (inode, at) }
    }
}

/// What of a thing's metadata could not be kept, if it is that.
fn lost(op: Op) -> Option<What> {
    match op {
        Op::SetTimesOf => Some(What::Times),
        Op::SetModeOf | Op::SetAclOf => Some(What::Mode),
        Op::SetOwnerOf => Some(What::Owner),
        Op::ReadAttributesOf => Some(What::GetAttributes),
        Op::SetAttributesOf | Op::RemoveAttributesOf => Some(What::Attributes),
        _ => None,
    }
}

/// An error of the verb as what GNU's would have said.
fn trouble(e: Error, src: &Spot, dst: &Spot) -> Trouble {
    let inside = e.is_noted(Reason::DestinationInside);
    let why = (!inside).then(|| Noted::why(e.source, e.note, e.code));
    // A file in a directory that may not be passed is not even seen.
    if matches!(e.op, Op::Open | Op::OpenDirectory)
        && let Err(unseen) = Spot::of(&e.path).look(false)
    {
        return Trouble { what: What::Stat, path: e.path, other: None, why: Some(unseen) };
    }
    let what = match e.op {
        _ if inside => What::IntoItself,
        Op::RemoveSource => What::Remove,
        Op::Open => What::OpenForReading,
        Op::OpenDirectory | Op::ListDirectory => What::Access,
        Op::MakeDirectory => What::MakeDir,
        Op::Create => What::Create,
        Op::MakeSpecialFile if Spot::of(&e.path).look(false).is_ok_and(|own| own.kind == Kind::Fifo) => {
            What::Fifo
        }
        Op::MakeSpecialFile => What::Special,
        Op::MakeSymbolicLink => What::BareSymbolicLink,
        Op::Write | Op::Copy if e.path.starts_with(&dst.shown) => What::Write,
        op => lost(op).unwrap_or(What::Move),
    };
    let below = e.path.strip_prefix(&src.shown).or_else(|_| e.path.strip_prefix(&dst.shown));
    // The operands are told as they were typed.
    let at = |top: &Path, below: &Path| match below.as_os_str().is_empty() {
        true => top.to_owned(),
        false => top.join(below),
    };
    let (path, other) = match (what, below) {
        (What::Move, Ok(below)) => (at(&src.shown, below), at(&dst.shown, below)),
        // The new name is told.
        (What::Fifo | What::Special | What::BareSymbolicLink, Ok(below)) => {
            (at(&dst.shown, below), dst.shown.clone())
        }
        (_, Ok(below)) if e.path.starts_with(&src.shown) => (at(&src.shown, below), dst.shown.clone()),
        _ => (e.path, dst.shown.clone()),
    };
    Trouble { what, path, other: Some(other), why }
}

/// Tells what was done, in order. Of the names of one file only the first is told: further ones are made without a word.
fn tell_far(done: &[(FarTurn, FarStep)], (src, is_dir): (&Spot, bool), dst: &Path, teller: &mut dyn Teller) {
    // Of several slashes behind it one is left.
    let typed = join(&src.shown, b"");
    let typed = if src.has_slash() { &typed } else { &src.shown };
    let made = done.iter().filter(|(_, (action, ..))| *action == Action::MadeDir);
    let made: HashSet<&Path> = made.map(|(_, (_, from, _))| from.as_path()).collect();
    let inode = |places: &[(u64, u64)]| places.last().map(|(inode, _)| *inode);
    let linked = done.iter().filter(|(_, (action, ..))| *action == Action::HardLinked);
    let mut linked: HashMap<Option<u64>, bool> =
        linked.map(|((_, places), _)| (inode(places), false)).collect();
    for ((_, places), (action, from, to)) in done {
        match action {
            // The operands are told as they were typed.
            Action::MadeDir if to == dst => teller.did(Did::MadeDir(dst)),
            Action::MadeDir => teller.did(Did::MadeDir(to)),
            Action::Copied | Action::HardLinked | Action::MadeLink | Action::MadeSpecial if is_dir => {
                let is_told =
                    linked.get_mut(&inode(places)).is_some_and(|told| std::mem::replace(told, true));
                if !is_told {
                    teller.did(Did::MovedByCopying { src: from, dst: to, backup: None });
                }
            }
            Action::Removed => {
                let was_dir = made.contains(to.as_path());
                let to = if *to == src.shown { typed } else { to };
                teller.did(if was_dir { Did::RemovedDir(to) } else { Did::Removed(to) });
            }
            _ => {}
        }
    }
}
