//! How fast bytes may go between two machines, and whether they may at all: one budget for all streams of a run, in both
//! directions together, which may be changed while it runs.
//!
//! Must not know what carries the bytes, nor any clock but the one that a budget is given.

use crate::event::nanos;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How soon somebody who is held back looks again: the budget may be another one by then.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// What is owed for bytes that have gone. Times are nanoseconds of whatever clock the caller has.
#[derive(Debug, Default)]
struct Budget {
    /// Bytes a second; 0 is any number.
    rate: u64,
    paused: bool,
    /// Bytes that went before they were due, times 10^9: what a nanosecond pays off is a whole number then.
    owed: u128,
    since_ns: u64,
}

impl Budget {
    /// Pays off what the time since the last look has paid.
    fn settle(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.since_ns);
        self.owed = self.owed.saturating_sub(u128::from(passed) * u128::from(self.rate));
        self.since_ns = now_ns;
    }

    /// How long nothing may go; `None`: something may.
    fn held_back(&mut self, now_ns: u64) -> Option<Duration> {
        self.settle(now_ns);
        if self.paused {
            return Some(LOOK);
        }
        let wait = self.owed.div_ceil(u128::from(self.rate.max(1)));
        (self.rate > 0 && wait > 0).then(|| Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    /// So many bytes have gone.
    fn spent(&mut self, now_ns: u64, bytes: u64) {
        self.settle(now_ns);
        if self.rate > 0 {
            self.owed += u128::from(bytes) * 1_000_000_000;
        }
    }

    fn set_rate(&mut self, now_ns: u64, rate: u64) {
        self.settle(now_ns);
        self.rate = rate;
        if rate == 0 {
            self.owed = 0;
        }
    }
}

/// The budget of a run, shared by all that send and receive for it and by whoever changes it.
#[derive(Debug)]
pub struct Throttle {
    began: Instant,
    /// Whether there is anything to ask the budget.
    in_force: AtomicBool,
    budget: Mutex<Budget>,
}

impl Throttle {
    /// At most so many bytes a second; `None`: as many as there is room for.
    #[must_use]
    pub fn new(rate: Option<u64>) -> Throttle {
        let throttle =
            Throttle { began: Instant::now(), in_force: AtomicBool::new(false), budget: Mutex::default() };
        throttle.limit(rate);
        throttle
    }

    /// From now on at most so many bytes a second.
    pub fn limit(&self, rate: Option<u64>) {
        let now = self.now_ns();
        self.change(|budget| budget.set_rate(now, rate.unwrap_or(0)));
    }

    /// From now on nothing goes, or what the limit allows.
    pub fn pause(&self, paused: bool) {
        self.change(|budget| budget.paused = paused);
    }

    /// The limit in bytes a second, if there is one, and whether nothing may go.
    #[must_use]
    pub fn is_at(&self) -> (Option<u64>, bool) {
        let budget = self.budget();
        (Some(budget.rate).filter(|rate| *rate > 0), budget.paused)
    }

    fn change(&self, change: impl FnOnce(&mut Budget)) {
        let mut budget = self.budget();
        change(&mut budget);
        self.in_force.store(budget.rate > 0 || budget.paused, Ordering::Relaxed);
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        // Whole after each step.
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        nanos(self.began.elapsed())
    }

    /// Whether anything limits what may go.
    pub(crate) fn is_in_force(&self) -> bool {
        self.in_force.load(Ordering::Relaxed)
    }

    /// How long nothing may go; `None`: something may, of whatever length, for which [`Throttle::spent`] is told.
    pub(crate) fn held_back(&self) -> Option<Duration> {
        if !self.is_in_force() {
            return None;
        }
        let now = self.now_ns();
        self.budget().held_back(now)
    }

    /// So many bytes have gone.
    pub(crate) fn spent(&self, bytes: u64) {
        if self.is_in_force() {
            let now = self.now_ns();
            self.budget().spent(now, bytes);
        }
    }
}

/// Two are alike when they allow the same.
impl PartialEq for Throttle {
    fn eq(&self, other: &Throttle) -> bool {
        self.is_at() == other.is_at()
    }
}

impl Eq for Throttle {}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// What goes when nothing is owed may be of any length; the next waits until it is paid, whatever looks come between.
    #[test]
    fn bytes_are_paid_for_by_time() {
        let mut b = Budget::default();
        b.set_rate(0, 1000);
        assert_eq!(b.held_back(0), None);
        b.spent(0, 2500);
        assert_eq!(b.held_back(0), Some(Duration::from_millis(2500)));
        for now in 0..2_499 {
            assert!(b.held_back(now * SECOND / 1000).is_some(), "{now} ms");
        }
        assert_eq!(b.held_back(5 * SECOND / 2), None);
        // A quiet hour saves nothing up.
        b.spent(3600 * SECOND, 1000);
        assert_eq!(b.held_back(3600 * SECOND), Some(Duration::from_secs(1)));
    }

    /// Over any time no more goes than the rate and one piece, from however many streams; rates so low that a look pays
    /// less than a byte are kept too.
    #[test]
    fn no_more_goes_than_the_rate_and_a_piece_for_each_stream() {
        for (rate, piece, streams) in [(1, 1, 1), (1000, 1 << 20, 1), (1 << 20, 64 << 10, 3), (7, 100, 2)] {
            let mut b = Budget::default();
            b.set_rate(0, rate);
            let (mut gone, end) = (0_u64, 2000 * SECOND);
            let mut now = 0;
            while now < end {
                for _ in 0..streams {
                    if b.held_back(now).is_none() {
                        b.spent(now, piece);
                        gone += piece;
                    }
                }
                now += SECOND / 7;
            }
            let due = rate * 2000;
            assert!(gone <= due + piece, "{rate} {piece}: {gone}");
            // A look comes up to a seventh of a second late for each piece.
            assert!(gone > 0 && gone + piece >= due / 3, "{rate} {piece}: {gone}");
        }
    }

    #[test]
    fn a_limit_changes_what_is_owed_and_a_pause_holds_everything() {
        let mut b = Budget::default();
        b.set_rate(0, 1000);
        b.spent(0, 10_000);
        b.set_rate(0, 10_000);
        assert_eq!(b.held_back(0), Some(Duration::from_secs(1)));
        b.set_rate(0, 0);
        assert_eq!(b.held_back(0), None);
        b.spent(0, u64::MAX);
        assert_eq!(b.held_back(0), None, "without a limit nothing is owed");
        b.paused = true;
        assert_eq!(b.held_back(u64::MAX), Some(LOOK));
        b.paused = false;
        assert_eq!(b.held_back(u64::MAX), None);
    }

    #[test]
    fn what_is_said_is_what_holds() {
        let t = Throttle::new(None);
        assert!(!t.is_in_force() && t.held_back().is_none() && t == Throttle::new(None));
        t.limit(Some(5));
        assert_eq!(t.is_at(), (Some(5), false));
        t.pause(true);
        assert!(t.is_in_force() && t.held_back() == Some(LOOK));
        t.limit(None);
        assert_eq!(t.is_at(), (None, true));
        t.pause(false);
        assert!(!t.is_in_force());
    }
}
