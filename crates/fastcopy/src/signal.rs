//! A second signal, which ends the process whatever else is stuck. Must not know what the first one asks for.

use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Signals that come within this time are one: timeout(1) signals its child and then the group that the child is in, and when a
/// terminal closes, the kernel and the shell both say so.
const TOGETHER: Duration = Duration::from_millis(300);

/// When the first of some signals came, in nanoseconds of `CLOCK_MONOTONIC`; 0 until then.
#[derive(Clone, Default)]
pub struct First(Arc<AtomicU64>);

/// `sigaction`, beside what others have for the signal: `_exit(status)` in the handler, unless it is the first signal of those that
/// share `first`, or comes together with that one.
///
/// # Errors
/// What the kernel says, or that the signal is none that can be caught.
pub fn exit_at_second(signal: i32, status: i32, first: &First) -> io::Result<()> {
    let First(first) = first.clone();
    let action = move || {
        if is_second(&first, now()) {
            // SAFETY: always sound, and async-signal-safe (signal-safety(7)); nothing of ours runs after it.
            unsafe { libc::_exit(status) }
        }
    };
    // SAFETY: the action reads a clock, exchanges an atomic and exits. All of it is async-signal-safe; nothing is allocated,
    // locked or able to panic.
    unsafe { signal_hook_registry::register(signal, action) }.map(drop)
}

fn is_second(first: &AtomicU64, now: u64) -> bool {
    match first.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => false,
        Err(then) => u128::from(now.saturating_sub(then)) >= TOGETHER.as_nanos(),
    }
}

/// `clock_gettime(CLOCK_MONOTONIC)`, never 0.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_together_is_one() {
        let first = AtomicU64::new(0);
        let began = now();
        for (after_ms, second) in
            [(0, false), (0, false), (299, false), (300, true), (5000, true), (10, false)]
        {
            assert_eq!(is_second(&first, began + after_ms * 1_000_000), second, "{after_ms}");
        }
    }
}
