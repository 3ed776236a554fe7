//! What of the metadata could not be kept, told: owners once, in the end, and not a thousand times.
//!
//! Must not know what is landed, nor why the metadata was wanted.

use crate::disk::Fault;
use crate::error::{Code, Error, Op, Reason};
use crate::policy::{CopyPolicy, Mirror, Strictness};
use crate::tally::Tally;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Losses of one run.
pub(crate) struct MetadataLosses<'a> {
    tally: Arc<Tally<'a>>,
    strictness: Strictness,
    mirror: Mirror,
    /// Entries whose owner could not be kept.
    owners: AtomicUsize,
    /// The same, on a file system without attributes that could hold them.
    unheld: AtomicUsize,
}

impl<'a> MetadataLosses<'a> {
    pub(crate) fn new(tally: Arc<Tally<'a>>, policy: &CopyPolicy) -> MetadataLosses<'a> {
        let CopyPolicy { strictness, mirror, .. } = *policy;
        MetadataLosses { tally, strictness, mirror, owners: AtomicUsize::new(0), unheld: AtomicUsize::new(0) }
    }

    /// Tells what of one entry could not be kept. Owners that only root could have set come as one sentence in the end.
    pub(crate) fn tell(&self, lost: Vec<Fault>, src: impl Fn() -> PathBuf, dst: impl Fn() -> PathBuf) {
        for fault in lost {
            let denied = fault.source.as_ref().is_some_and(|e| Code::of(e) == Code::Denied);
            if denied && fault.op == Op::SetOwnerOf {
                self.owners.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let unsupported = fault.source.as_ref().is_some_and(|e| Code::of(e) == Code::Unsupported);
            if unsupported && fault.op == Op::HoldOwnerOf {
                self.unheld.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let error = fault.told(&src, &dst);
            // A file system that has no attributes or owners at all (vfat), or no such times, loses them for everything: worth
            // a word, and in an archive a failure.
            if self.strictness != Strictness::Archive && error.code == Code::MetadataLost {
                let unsupported = error.source.as_ref().is_some_and(|e| Code::of(e) == Code::Unsupported);
                let is_too_large = error.is_noted(Reason::AttributesDoNotFit);
                let is_too_large = is_too_large && self.strictness == Strictness::LikeMv;
                if unsupported || is_too_large || error.is_noted(Reason::TimesNotHeld) {
                    self.tally.warn(error);
                    continue;
                }
            }
            self.tally.lost(error);
        }
    }

    /// Owners that were lost so far, and will be told of as lost.
    pub(crate) fn owners(&self) -> usize {
        let owners = if self.mirror.is_on() { 0 } else { self.owners.load(Ordering::Relaxed) };
        owners + self.unheld.load(Ordering::Relaxed)
    }

    /// Tells how many owners were lost, if any were.
    pub(crate) fn tell_owners(&self) {
        let owners = self.owners.load(Ordering::Relaxed);
        if owners > 0 {
            let note = Reason::OwnersNotKept.about(owners);
            let error = Error::ours(Code::MetadataLost, Op::KeepEveryOwner, "", note);
            // What is synced every day by a user who may not give files away lacks it every day.
            if self.mirror.is_on() { self.tally.warn(error) } else { self.tally.lost(error) }
        }
        let unheld = self.unheld.load(Ordering::Relaxed);
        if unheld > 0 {
            let note = Reason::OwnersNotHeld.about(unheld);
            self.tally.lost(Error::ours(Code::MetadataLost, Op::HoldEveryOwner, "", note));
        }
    }
}
