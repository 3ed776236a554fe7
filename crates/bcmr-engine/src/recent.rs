//! Handles of directories that were used last, so many at a time.
//!
//! Must not know where a directory is, nor how one is opened again that was given up.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Open handles by the number of what they are of; the one that was not used for longest is given up first.
pub(crate) struct Recent<T> {
    held: Mutex<HandleQueue<T>>,
}

struct HandleQueue<T> {
    /// The one used last is at the end.
    handles: VecDeque<(u64, Arc<T>)>,
    max: usize,
}

impl<T> Recent<T> {
    pub(crate) fn of_at_most(max: usize) -> Recent<T> {
        Recent { held: Mutex::new(HandleQueue { handles: VecDeque::new(), max }) }
    }

    fn held(&self) -> MutexGuard<'_, HandleQueue<T>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a handle, in the place of one that was kept under this number.
    pub(crate) fn keep(&self, number: u64, handle: &Arc<T>) {
        let mut held = self.held();
        let before = held.take(number);
        held.handles.push_back((number, handle.clone()));
        let given_up = held.shrink();
        drop(held);
        // Closed without the lock.
        drop((before, given_up));
    }

    /// The handle that is kept under this number, which is used now.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        let mut held = self.held();
        let found = held.take(number)?;
        held.handles.push_back((number, found.clone()));
        Some(found)
    }

    /// Takes it out.
    pub(crate) fn take(&self, number: u64) -> Option<Arc<T>> {
        self.held().take(number)
    }

    /// Keeps no more than `max` from now on.
    pub(crate) fn limit(&self, max: usize) {
        let mut held = self.held();
        held.max = max;
        let given_up = held.shrink();
        drop(held);
        drop(given_up);
    }

    /// Gives up all: descriptors have run out.
    pub(crate) fn clear(&self) {
        let given_up = std::mem::take(&mut self.held().handles);
        drop(given_up);
    }
}

impl<T> HandleQueue<T> {
    fn take(&mut self, number: u64) -> Option<Arc<T>> {
        // The one that is looked for mostly was used a moment ago.
        let at = self.handles.iter().rposition(|(of, _)| *of == number)?;
        self.handles.remove(at).map(|(_, handle)| handle)
    }

    fn shrink(&mut self) -> Vec<(u64, Arc<T>)> {
        let over = self.handles.len().saturating_sub(self.max);
        self.handles.drain(..over).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_is_kept() {
        let recent = Recent::of_at_most(2);
        let handles = [0u64, 1, 2, 3].map(Arc::new);
        let kept = |of: [bool; 4]| {
            for (number, kept) in of.into_iter().enumerate() {
                let open = Arc::strong_count(&handles[number]) > 1;
                assert_eq!(open, kept, "{number}");
            }
        };
        recent.keep(0, &handles[0]);
        recent.keep(1, &handles[1]);
        assert_eq!(recent.get(0).as_deref(), Some(&0));
        recent.keep(2, &handles[2]);
        kept([true, false, true, false]);
        assert_eq!(recent.get(1), None);
        recent.keep(0, &handles[3]);
        kept([false, false, true, true]);
        assert_eq!(recent.take(2).as_deref(), Some(&2));
        assert_eq!(recent.take(2), None);
        recent.keep(2, &handles[2]);
        recent.limit(1);
        kept([false, false, true, false]);
        recent.limit(0);
        recent.keep(1, &handles[1]);
        kept([false; 4]);
        recent.limit(2);
        recent.keep(1, &handles[1]);
        recent.clear();
        kept([false; 4]);
    }
}
