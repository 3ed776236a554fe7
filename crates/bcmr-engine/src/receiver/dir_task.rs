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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
    pub(crate) small: AtomicUsize,
    /// What is still to be done before it is sealed.
    pub(crate) pending: AtomicUsize,
    /// Sealed and counted in the end; an operand's surroundings are not.
    pub(crate) ours: bool,
    /// Something in it stays behind (excluded, skipped, failed): a move must not remove it.
    pub(crate) kept_some: AtomicBool,
    /// The device of the operand, for `-x`.
    pub(crate) dev: u64,
    /// Where it is among the names that sources claim.
    pub(crate) spot: Spot,
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
    /// One of the things that had to be done in it is done. The last one `completes` it, and may complete those above.
    pub(crate) fn release(self: Arc<Self>, mut completes: impl FnMut(&Arc<Self>)) {
        let mut pair = self;
        while pair.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            completes(&pair);
            let Some(above) = pair.above.clone() else { return };
            if pair.kept_some.load(Ordering::Relaxed) {
                above.keep_some();
            }
            pair = above;
        }
    }

    pub(crate) fn keep_some(&self) {
        self.kept_some.store(true, Ordering::Relaxed);
    }
}
