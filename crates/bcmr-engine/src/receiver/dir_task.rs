//! A source directory and the directory it becomes, with what is still to be done in it.
//!
//! Must not know what is put into it, nor when it is published or sealed: it only counts.

use crate::disk::sys::Sys;
use crate::disk::{Attributes, Disk, Fault};
use crate::node::Node;
use crate::receiver::claims::Spot;
use crate::receiver::dest::DestDir;
use fastcopy::dir::Name;
use fastcopy::meta::Info;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A source directory, as far as the receiver must know it.
pub(crate) trait Origin: Send + Sync {
    fn info(&self) -> &Info;
    fn node(&self) -> &Arc<Node>;
    fn attributes(&self) -> Attributes<'_>;
    /// The hash of a file in it whose content did not have to cross; `None` when only a crossing could tell.
    fn hash(&self, name: Name<'_>, go_on: &dyn Fn() -> bool) -> Result<Option<blake3::Hash>, Fault>;
}

/// A source directory and what it becomes.
pub(crate) struct DirTask<S, T> {
    pub(crate) src: Arc<S>,
    pub(crate) dst: T,
    pub(crate) above: Option<Arc<DirTask<S, T>>>,
    /// What is still to be put in before it gets its name.
    small: AtomicUsize,
    /// What is still to be done before it is sealed.
    pending: AtomicUsize,
    /// Sealed and counted in the end; an operand's surroundings are not.
    pub(crate) ours: bool,
    /// Something in it stays behind (excluded, skipped, failed): a move must not remove it.
    incomplete: AtomicBool,
    /// The device of the operand, for `-x`.
    pub(crate) dev: u64,
    /// Where it is among the names that sources claim.
    pub(crate) spot: Spot,
    dropped: Arc<Dropped<S, T>>,
}

/// What a [`DirTask`] is made of.
pub(crate) struct PairedDirs<S, T> {
    pub(crate) src: Arc<S>,
    pub(crate) dst: T,
    /// Sealed and counted in the end.
    pub(crate) ours: bool,
    /// The device of the operand.
    pub(crate) dev: u64,
    pub(crate) spot: Spot,
}

/// One thing that is still to be done in a directory: it is neither sealed nor, for a thing that has to be in it before it
/// gets its name, published while there is one. To be given back with [`Hold::release`]; one that is dropped marks the
/// directory as incomplete and waits among the [`Dropped`].
#[must_use]
pub(crate) struct Hold<S, T> {
    task: Arc<DirTask<S, T>>,
    /// It has to be done before the directory gets its name.
    before_name: bool,
    is_counted: bool,
}

/// Holds of one run that were dropped: an error led past the place where they are released.
pub(crate) struct Dropped<S, T>(Mutex<Vec<Hold<S, T>>>);

impl<S, T> Default for Dropped<S, T> {
    fn default() -> Dropped<S, T> {
        Dropped(Mutex::new(Vec::new()))
    }
}

impl<S, T> Dropped<S, T> {
    /// One of them, to be released.
    pub(crate) fn take(&self) -> Option<Hold<S, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

impl<S, T> Deref for Hold<S, T> {
    type Target = Arc<DirTask<S, T>>;
    fn deref(&self) -> &Arc<DirTask<S, T>> {
        &self.task
    }
}

impl<S, T> Drop for Hold<S, T> {
    fn drop(&mut self) {
        if self.is_counted {
            self.task.mark_incomplete();
            let again = Hold { task: self.task.clone(), before_name: self.before_name, is_counted: true };
            self.task.dropped.0.lock().unwrap_or_else(PoisonError::into_inner).push(again);
        }
    }
}

impl<S, T> Hold<S, T> {
    /// Whether it was the last thing that had to be in the directory before that gets its name. Asked once, before it is
    /// released.
    pub(crate) fn is_filled(&mut self) -> bool {
        std::mem::take(&mut self.before_name) && self.task.small.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The thing is done. The last one `completes` the directory, and may complete those above.
    pub(crate) fn release(mut self, mut completes: impl FnMut(&Arc<DirTask<S, T>>)) {
        self.is_filled();
        self.is_counted = false;
        let mut task = self.task.clone();
        while task.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            if task.ours {
                completes(&task);
            }
            let Some(above) = task.above.clone() else { return };
            if task.is_incomplete() {
                above.mark_incomplete();
            }
            task = above;
        }
    }
}

/// A source directory that is landed, and the directory it becomes.
pub(crate) type Slot<S, D = Sys> = DirTask<S, DestDir<D>>;

impl<S, D: Disk> DirTask<S, DestDir<D>> {
    /// Whether it and everything above it that this run made have their names.
    pub(crate) fn has_name(&self) -> bool {
        let mut at = Some(self);
        while let Some(pair) = at {
            if !pair.dst.has_name() {
                return false;
            }
            at = pair.above.as_deref();
        }
        true
    }
}

impl<S, T> DirTask<S, T> {
    /// A directory that no other is above. Held until it is listed.
    pub(crate) fn top(pair: PairedDirs<S, T>, dropped: &Arc<Dropped<S, T>>) -> Hold<S, T> {
        DirTask::with(pair, None, dropped.clone())
    }

    /// A directory in that of `above`, which is held until this one is complete. Held until it is listed.
    pub(crate) fn below(mut above: Hold<S, T>, pair: PairedDirs<S, T>) -> Hold<S, T> {
        above.is_filled();
        above.is_counted = false;
        DirTask::with(pair, Some(above.task.clone()), above.task.dropped.clone())
    }

    fn with(
        pair: PairedDirs<S, T>,
        above: Option<Arc<DirTask<S, T>>>,
        dropped: Arc<Dropped<S, T>>,
    ) -> Hold<S, T> {
        let PairedDirs { src, dst, ours, dev, spot } = pair;
        let (small, pending) = (AtomicUsize::new(1), AtomicUsize::new(1));
        let incomplete = AtomicBool::new(false);
        let task =
            Arc::new(DirTask { src, dst, above, small, pending, ours, incomplete, dev, spot, dropped });
        Hold { task, before_name: true, is_counted: true }
    }

    /// One more thing is to be done before it is sealed.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold<S, T> {
        self.pending.fetch_add(1, Ordering::Relaxed);
        Hold { task: self.clone(), before_name: false, is_counted: true }
    }

    /// One more thing is to be in it before it gets its name.
    pub(crate) fn hold_name(self: &Arc<Self>) -> Hold<S, T> {
        self.small.fetch_add(1, Ordering::Relaxed);
        let mut hold = self.hold();
        hold.before_name = true;
        hold
    }

    /// Whether everything in it is done.
    pub(crate) fn is_done(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    /// Something in it stays behind.
    pub(crate) fn mark_incomplete(&self) {
        self.incomplete.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str) -> PairedDirs<String, ()> {
        PairedDirs { src: Arc::new(name.into()), dst: (), ours: true, dev: 1, spot: Spot::default() }
    }

    /// A directory is complete when nothing in it is held any more, and after it the one above.
    #[test]
    fn a_directory_is_complete_with_its_last_hold() {
        let (dropped, mut done) = (Arc::default(), Vec::new());
        let top = DirTask::top(pair("top"), &dropped);
        let mut inner = DirTask::below(top.hold(), pair("inner"));
        let (mut early, late) = (inner.hold_name(), inner.hold());
        assert!(!inner.is_filled() && early.is_filled(), "the last of two that had to be in it");
        for hold in [top, inner, early, late] {
            assert!(done.is_empty());
            hold.release(|task| done.push(task.src.to_string()));
        }
        assert_eq!(done, ["inner", "top"]);
        assert!(dropped.take().is_none());
    }

    /// A hold that an error led past counts until it is released, and what was not done is not taken for done.
    #[test]
    fn a_hold_that_is_dropped_is_not_lost() {
        let (dropped, mut done) = (Arc::default(), Vec::new());
        let top = DirTask::top(pair("top"), &dropped);
        let task = top.clone();
        drop(top.hold_name());
        top.release(|task| done.push(task.src.to_string()));
        assert!(done.is_empty() && task.is_incomplete() && !task.is_done());
        let mut hold = dropped.take().unwrap();
        assert!(hold.is_filled(), "it had to be in it before it gets its name");
        hold.release(|task| done.push(task.src.to_string()));
        assert!(done == ["top"] && task.is_done() && dropped.take().is_none());
    }
}
