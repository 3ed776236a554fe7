//! New directories that appear together: below one that has no name yet, further ones need no stages of their own. The
//! topmost is renamed into place once small files are in all of them (docs/decisions/0010-subtrees.md).
//!
//! Must not touch any disk: it counts, and says when the topmost is to be published.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a subtree takes in directories. A kill costs the files of so long, and a long copy shows its first ones then.
const TAKES_IN: Duration = Duration::from_millis(500);
/// Levels below the topmost: what a killed run leaves is removed level by level, with a descriptor open at each.
pub(crate) const LEVELS_MAX: u32 = 64;

/// Directories that get their names by one rename.
pub(crate) struct Subtree {
    state: Mutex<SubtreeState>,
    /// Something half-done in it could not be taken back: it must never get its name.
    poisoned: AtomicBool,
    /// After that it takes in no directory.
    until: Instant,
}

struct SubtreeState {
    /// Directories of it that may still get small files.
    filling: usize,
    /// Directories that were listed below those, and are not begun yet.
    expected: usize,
    /// No further directory is taken in.
    closed: bool,
    /// It was said that the topmost is to be published.
    told: bool,
}

/// Where a directory is made that is begun below one of a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewSubdir {
    /// In the subtree, under its own name; [`Subtree::filled`] is to be called for it.
    pub(crate) inside: bool,
    /// The topmost directory is to be published, before anything else is done.
    pub(crate) publish: bool,
}

impl SubtreeState {
    /// Whether it is time to publish; said once.
    fn is_due(&mut self) -> bool {
        let due = self.filling == 0 && (self.closed || self.expected == 0) && !self.told;
        self.told |= due;
        self.closed |= due;
        due
    }
}

impl Subtree {
    /// One directory, which may get small files.
    pub(crate) fn new() -> Subtree {
        Subtree::until(Instant::now() + TAKES_IN)
    }

    fn until(until: Instant) -> Subtree {
        let state = SubtreeState { filling: 1, expected: 0, closed: false, told: false };
        Subtree { state: Mutex::new(state), poisoned: AtomicBool::new(false), until }
    }

    fn state(&self) -> MutexGuard<'_, SubtreeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many directories were listed below one that may still get small files; each is to [`Subtree::begin`].
    pub(crate) fn expect(&self, dirs: usize) {
        self.state().expected += dirs;
    }

    /// One of the expected directories is begun, so many levels below the topmost.
    pub(crate) fn begin(&self, level: u32) -> NewSubdir {
        let mut state = self.state();
        state.expected = state.expected.saturating_sub(1);
        if !state.closed && (level > LEVELS_MAX || Instant::now() >= self.until) {
            state.closed = true;
        }
        let inside = !state.closed;
        state.filling += usize::from(inside);
        NewSubdir { inside, publish: !inside && state.is_due() }
    }

    /// One of its directories gets no further small file. Returns whether the topmost is to be published.
    pub(crate) fn filled(&self) -> bool {
        let mut state = self.state();
        state.filling = state.filling.saturating_sub(1);
        state.is_due()
    }

    /// Never to be published.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Relaxed);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: NewSubdir = NewSubdir { inside: true, publish: false };

    #[test]
    fn the_topmost_is_published_once_when_nothing_more_is_to_come() {
        let subtree = Subtree::new();
        subtree.expect(2);
        assert!(!subtree.filled(), "two are to come");
        assert_eq!(subtree.begin(1), INSIDE);
        subtree.expect(1);
        assert!(!subtree.filled());
        assert_eq!(subtree.begin(1), INSIDE);
        assert_eq!(subtree.begin(2), INSIDE);
        assert!(!subtree.filled(), "one is being filled");
        assert!(subtree.filled());
        // What comes later is made beside it.
        assert_eq!(subtree.begin(1), NewSubdir { inside: false, publish: false });
    }

    #[test]
    fn one_that_is_alone_is_published_when_it_is_filled() {
        let subtree = Subtree::new();
        assert!(subtree.filled());
    }

    #[test]
    fn after_its_time_it_takes_in_nothing_and_waits_for_nothing_that_is_not_begun() {
        let subtree = Subtree::until(Instant::now());
        subtree.expect(3);
        assert_eq!(subtree.begin(1), NewSubdir { inside: false, publish: false }, "files still come");
        assert!(subtree.filled(), "two that were listed are not waited for");
        let subtree = Subtree::until(Instant::now());
        subtree.expect(3);
        assert!(!subtree.filled(), "its time is looked at when a directory is begun");
        assert_eq!(subtree.begin(1), NewSubdir { inside: false, publish: true });
        assert_eq!(subtree.begin(1), NewSubdir { inside: false, publish: false }, "said once");
    }

    #[test]
    fn it_ends_where_it_would_be_too_deep_to_be_removed() {
        let subtree = Subtree::new();
        subtree.expect(2);
        assert!(!subtree.filled());
        assert_eq!(subtree.begin(LEVELS_MAX), INSIDE);
        assert!(!subtree.filled());
        assert_eq!(subtree.begin(LEVELS_MAX + 1), NewSubdir { inside: false, publish: true });
    }
}
