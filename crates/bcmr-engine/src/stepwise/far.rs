//! A move to another file system, by the verb that copies, proves and takes away.
//!
//! Must not know how it does that; what it tells is put into the order that `mv` tells in.

use super::options::Options;
use super::spot::Spot;
use super::told::{Did, Teller, Trouble, What};
use crate::event::{Action, Event, Front, Progress, Question, Watch};
use crate::policy::{CopyPolicy, MoveRequest, Target};
use fastcopy::errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Keeps what went wrong and, in its order, what was done.
#[derive(Default)]
struct FarEvents {
    errors: Mutex<Vec<crate::error::Error>>,
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
    };
    let outcome = crate::verbs::move_(request, watch);
    let (mut errors, done) =
        (std::mem::take(&mut *lock(&front.errors)), std::mem::take(&mut *lock(&front.done)));
    tell_far(&done, is_dir, teller);
    let fine = match outcome {
        Ok(summary) => summary.failed == 0 && !summary.cancelled,
        Err(e) => {
            errors.push(e);
            false
        }
    };
    for e in errors {
        let path = if e.path == dst.shown { src.shown.clone() } else { e.path };
        let why = e.source.unwrap_or_else(|| io::Error::from_raw_os_error(errno::EIO));
        let other = Some(dst.shown.clone());
        teller.trouble(Trouble { what: What::Move, path, other, why: Some(why) });
    }
    fine
}

/// Tells what was done: directories before what is in them, although they get their names after it.
fn tell_far(done: &[FarStep], is_dir: bool, teller: &mut dyn Teller) {
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
            Action::Copied | Action::MadeLink | Action::MadeSpecial | Action::HardLinked if is_dir => {
                above(Some(to), teller);
                teller.did(Did::MovedByCopying { src: from, dst: to, backup: None });
            }
            Action::Removed => {
                above(None, teller);
                let was_dir = made.iter().any(|(_, dir, _)| dir == to);
                teller.did(if was_dir { Did::RemovedDir(to) } else { Did::Removed(to) });
            }
            _ => {}
        }
    }
    above(None, teller);
}
