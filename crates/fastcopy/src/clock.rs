//! Time that a thread has worked. Must not know at what.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// `clock_gettime(CLOCK_THREAD_CPUTIME_ID)`: the processor's time of this thread, which stands still while other threads have
/// the processors.
#[must_use]
pub fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_while_the_thread_works_and_not_while_it_sleeps() {
        let began = thread_time();
        let mut sum = 0_u64;
        while thread_time() - began < Duration::from_millis(5) {
            sum = std::hint::black_box(sum + 1);
        }
        let worked = thread_time();
        std::thread::sleep(Duration::from_millis(500));
        assert!(thread_time() - worked < Duration::from_millis(400));
    }
}
