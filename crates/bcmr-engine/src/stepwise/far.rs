//! A move to another file system, by the verb that copies, proves and takes away.
//!
//! Must not know how it does that; what it tells is put into the order that `mv` tells in.

use super::options::Options;
use super::spot::{Spot, names_in};
use super::told::{Did, Teller, Trouble, What};
use crate::disk::sys::Sys;
use crate::error::{Error, Op, Reason};
use crate::event::{Action, Event, Front, Progress, Question, Watch};
use crate::policy::{CopyPolicy, MoveRequest, Target};
use crate::receiver::tree;
use fastcopy::dir::NameBuf;
use fastcopy::errno;
use fastcopy::meta::Kind;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Keeps what went wrong and, in its order, what was done.
#[derive(Default)]
struct FarEvents {
    errors: Mutex<Vec<Error>>,
    done: Mutex<Vec<FarStep>>,
}

/// What was done, with what, and where.
type FarStep = (Action, PathBuf, PathBuf);

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Front for FarEvents {
    fn event(&self, event: Event) {
        match event {
            Event::Failed(e) => lock(&self.errors).push(e),
            Event::Item { action, src, dst, .. } => lock(&self.done).push((action, src, dst)),
            _ => {}
        }
    }
    fn ask(&self, _: Question) -> bool {
        true
    }
}

/// Moves to another file system, by the verb that takes a source away only when what landed was proved to be it.
pub(super) fn far(src: &Spot, dst: &Spot, is_dir: bool, options: &Options, teller: &mut dyn Teller) -> bool {
    let (front, progress) = (FarEvents::default(), Progress::default());
    let watch = Watch { front: &front, progress: &progress, cancel: &options.cancel, items: options.verbose };
    // What is told comes in one order.
    let threads = if options.verbose { 1 } else { options.threads };
    let policy = CopyPolicy::cp(threads, options.me, options.umask);
    let request = MoveRequest {
        sources: vec![src.shown.clone()],
        target: Target::Exactly(dst.shown.clone()),
        policy,
        merge: false,
        all_or_nothing: true,
    };
    let outcome = crate::verbs::move_(request, watch);
    let (mut errors, mut done) =
        (std::mem::take(&mut *lock(&front.errors)), std::mem::take(&mut *lock(&front.done)));
    let fine = match outcome {
        Ok(summary) => {
            // What did not come whole is not gone on with by the same command, as GNU's would not.
            if is_dir
                && summary.failed > 0
                && !summary.cancelled
                && let Ok(made) = dst.open_dir(false)
                && let Err(e) = tree::unmark(&Sys::new(), &made)
            {
                errors.push(Error::os(Op::Unmark, &dst.shown, e));
            }
            summary.failed == 0 && !summary.cancelled
        }
        Err(e) => {
            errors.push(e);
            false
        }
    };
    let mut order = Order { src, dst, listed: HashMap::new() };
    errors.sort_by_cached_key(|e| order.of(e));
    // A file that could not be read was begun all the same.
    for e in errors.iter().filter(|e| options.verbose && e.op == Op::Open) {
        if let Ok(below) = e.path.strip_prefix(&src.shown) {
            done.push((Action::Copied, e.path.clone(), dst.shown.join(below)));
        }
    }
    tell_far(&done, (src, is_dir), teller);
    let removing: Vec<PathBuf> =
        errors.iter().filter(|e| e.op == Op::RemoveSource).map(|e| e.path.clone()).collect();
    for e in errors {
        // A directory stays because of what stays in it, which was told.
        let holds = |other: &PathBuf| other != &e.path && other.starts_with(&e.path);
        if !(e.op == Op::RemoveSource && removing.iter().any(holds)) {
            teller.trouble(trouble(e, src, dst));
        }
    }
    fine
}

/// What tells in which order GNU's would have come to a path: copying goes by inodes in each directory, and taking away,
/// which comes after it, as directories list them.
struct Order<'s> {
    src: &'s Spot,
    dst: &'s Spot,
    listed: HashMap<PathBuf, Vec<(NameBuf, u64)>>,
}

impl Order<'_> {
    fn of(&mut self, e: &Error) -> (bool, Vec<u64>) {
        let removing = e.op == Op::RemoveSource;
        let below = e.path.strip_prefix(&self.src.shown).or_else(|_| e.path.strip_prefix(&self.dst.shown));
        let mut at = self.src.shown.clone();
        let mut places = Vec::new();
        for name in below.map(Path::components).into_iter().flatten() {
            places.push(self.listed_at(&at, name.as_os_str().as_encoded_bytes(), removing));
            at.push(name);
        }
        (removing, places)
    }

    /// Where `dir` lists a name, or its inode there: what is in it may not be seen.
    fn listed_at(&mut self, dir: &Path, name: &[u8], removing: bool) -> u64 {
        let names = self.listed.entry(dir.to_owned()).or_insert_with(|| {
            let names = Spot::of(dir).open_dir(false).and_then(|dir| names_in(&dir));
            names.unwrap_or_default()
        });
        let found = names.iter().enumerate().find(|(_, (listed, _))| listed.bytes() == name);
        found.map_or(u64::MAX, |(at, (_, inode))| if removing { at as u64 } else { *inode })
    }
}

/// An error of the verb as what GNU's would have said.
fn trouble(e: Error, src: &Spot, dst: &Spot) -> Trouble {
    let inside = e.note.as_ref().is_some_and(|note| note.reason == Reason::DestinationInside);
    let why = (!inside).then(|| e.source.unwrap_or_else(|| io::Error::from_raw_os_error(errno::EIO)));
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
        Op::Write | Op::Copy if e.path.starts_with(&dst.shown) => What::Write,
        _ => What::Move,
    };
    let path = match what {
        What::Move if e.path == dst.shown => src.shown.clone(),
        // The new name is told.
        What::Fifo | What::Special => match e.path.strip_prefix(&src.shown) {
            Ok(below) if below.as_os_str().is_empty() => dst.shown.clone(),
            Ok(below) => dst.shown.join(below),
            Err(_) => e.path,
        },
        _ => e.path,
    };
    Trouble { what, path, other: Some(dst.shown.clone()), why }
}

/// Tells what was done: directories before what is in them, although they get their names after it.
fn tell_far(done: &[FarStep], (src, is_dir): (&Spot, bool), teller: &mut dyn Teller) {
    let made: Vec<&FarStep> = done.iter().filter(|(action, ..)| *action == Action::MadeDir).collect();
    let mut told = vec![false; made.len()];
    let mut above = |path: Option<&Path>, teller: &mut dyn Teller| {
        let mut wanted: Vec<usize> = (0..made.len())
            .filter(|at| !told[*at] && path.is_none_or(|path| path.starts_with(&made[*at].2)))
            .collect();
        wanted.sort_by_key(|at| made[*at].2.as_os_str().len());
        for at in wanted {
            told[at] = true;
            teller.did(Did::MadeDir(&made[at].2));
        }
    };
    for (action, from, to) in done {
        match action {
            // A further name of a file is made without a word.
            Action::Copied | Action::MadeLink | Action::MadeSpecial if is_dir => {
                above(Some(to), teller);
                teller.did(Did::MovedByCopying { src: from, dst: to, backup: None });
            }
            Action::Removed => {
                above(None, teller);
                let was_dir = made.iter().any(|(_, dir, _)| dir == to);
                // The operand is told as it was typed.
                let to = if *to == src.shown { &src.shown } else { to };
                teller.did(if was_dir { Did::RemovedDir(to) } else { Did::Removed(to) });
            }
            _ => {}
        }
    }
    above(None, teller);
}
