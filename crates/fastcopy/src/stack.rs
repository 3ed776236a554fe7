//! A stack that is deep enough for what calls itself once a level of a tree, and how much of it is left.
//!
//! Must not know what goes down into a tree. Where the stack ends, the entry there is to be an error and not a signal (L11).

use rustix::process::{Resource, getrlimit};
use std::thread;

/// What is tried, the largest first: only what is used of it takes memory, but all of it takes address space.
const STACKS: [usize; 4] = [1 << 30, 256 << 20, 64 << 20, 8 << 20];
/// What one step takes below the frames of its level, with everything that it calls.
const STEP_BYTES: usize = 256 << 10;
/// What is taken for the size of the caller's stack where that has no limit, as Linux begins with.
const USUAL_BYTES: usize = 8 << 20;

/// How far down it may go.
#[derive(Clone, Copy, Debug)]
pub struct StackRoom {
    /// An address near the stack's upper end.
    top: usize,
    /// How much may be used below it.
    bytes: usize,
}

impl StackRoom {
    #[inline(never)]
    fn of(stack: usize) -> StackRoom {
        // Half of a small one.
        StackRoom { top: address(), bytes: stack.saturating_sub(STEP_BYTES).max(stack / 2) }
    }

    /// On the stack of the caller, of which much may be in use.
    #[must_use]
    pub fn here() -> StackRoom {
        let limit = getrlimit(Resource::Stack).current.and_then(|bytes| usize::try_from(bytes).ok());
        StackRoom::of(limit.unwrap_or(USUAL_BYTES).min(USUAL_BYTES) / 2)
    }

    /// Whether one more level has room.
    #[inline(never)]
    #[must_use]
    pub fn is_left(self) -> bool {
        self.top.abs_diff(address()) < self.bytes
    }
}

/// Where the stack has come to.
#[inline(never)]
fn address() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

/// Runs `work` on a thread with a large stack; where none can be started, on that of the caller.
pub fn deep<T: Send>(work: impl FnOnce(StackRoom) -> T + Send) -> T {
    let limit = getrlimit(Resource::As).current.and_then(|bytes| usize::try_from(bytes).ok());
    let fits = |bytes: &usize| limit.is_none_or(|limit| *bytes <= limit / 4);
    let mut work = Some(work);
    for bytes in STACKS.into_iter().filter(fits) {
        let run = || work.take().map(|work| work(StackRoom::of(bytes)));
        let done = thread::scope(|scope| {
            let started = thread::Builder::new().stack_size(bytes).spawn_scoped(scope, run);
            started
                .ok()
                .and_then(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        if let Some(done) = done {
            return done;
        }
    }
    match work {
        Some(work) => work(StackRoom::here()),
        None => unreachable!("a thread that ran it has given what came of it, or its panic"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down(room: StackRoom, level: usize) -> usize {
        let frame = std::hint::black_box([0_u8; 1 << 10]);
        let deepest = if room.is_left() { down(room, level + 1) } else { level };
        std::hint::black_box(frame);
        deepest
    }

    #[test]
    fn it_ends_before_the_stack_does() {
        let level = deep(|room| down(room, 0));
        assert!(level > 4 << 10, "{level}");
        let here = thread::scope(|scope| {
            let thread = thread::Builder::new().stack_size(USUAL_BYTES);
            thread.spawn_scoped(scope, || down(StackRoom::here(), 0)).unwrap().join().unwrap()
        });
        assert!(here > 100, "{here}");
    }
}
