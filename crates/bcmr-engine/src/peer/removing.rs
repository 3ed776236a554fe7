//! What a client of a server has done in one go, as long as the client is there; and removing what it names.
//!
//! Must not know how it was asked for, nor decide what may go.

use crate::error::{Error, Result};
use crate::event::{Cancel, Event, Front, Progress, Question, Summary, Watch};
use crate::policy::RemoveRequest;
use bcmr_wire::limits::UNREADABLE_MAX;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// How often it is asked whether the client is there.
const LOOK: Duration = Duration::from_millis(100);

/// Removes as far as it can be done while `go_on` says so; what could not be removed comes back, the first of many.
///
/// # Errors
/// Nothing could be begun.
pub(super) fn remove_while(
    request: RemoveRequest,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<(Summary, Vec<Error>)> {
    let (kept, progress, cancel) = (KeptErrors::default(), Progress::default(), Cancel::new());
    let removed = while_there(go_on, &cancel, || {
        let watch = Watch { front: &kept, progress: &progress, cancel: &cancel, items: false };
        crate::remove::remove(request, watch)
    });
    Ok((removed?, kept.0.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// Does it, and sets `cancel` once `go_on` says no.
pub(super) fn while_there<T>(
    go_on: &(dyn Fn() -> bool + Sync),
    cancel: &Cancel,
    done: impl FnOnce() -> T,
) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let look = || {
            while !over.load(Ordering::Relaxed) {
                if !go_on() {
                    cancel.set();
                }
                std::thread::park_timeout(LOOK);
            }
        };
        // Without the thread it goes on to its end, whoever hears of it.
        let looking = std::thread::Builder::new().spawn_scoped(scope, look);
        // The scope waits for the thread, also when a panic ends what is done.
        let _ends = EndsLooking(&over, looking.as_ref().ok().map(|looking| looking.thread()));
        done()
    })
}

/// Ends the thread that looks.
struct EndsLooking<'s>(&'s AtomicBool, Option<&'s Thread>);

impl Drop for EndsLooking<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(looking) = self.1 {
            looking.unpark();
        }
    }
}

/// The first errors of many.
#[derive(Default)]
struct KeptErrors(Mutex<Vec<Error>>);

impl Front for KeptErrors {
    fn event(&self, event: Event) {
        if let Event::Failed(e) = event {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < UNREADABLE_MAX {
                kept.push(e);
            }
        }
    }
    fn ask(&self, _: Question) -> bool {
        false
    }
}
