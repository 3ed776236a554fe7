//! The memory of the ladder: which rungs cannot work between a source device and a target device.
//!
//! Must not know how any rung works.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;

/// One way to copy bytes, the one that touches them least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// `ioctl(FICLONE)`: blocks are shared, nothing is copied.
    Clone,
    /// `copy_file_range(2)`: the kernel or the server copies.
    CopyFileRange,
    /// `sendfile(2)`: the kernel copies, from page cache to page cache.
    Sendfile,
    /// `pread(2)` and `pwrite(2)`, which always work.
    ReadWrite,
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rung::Clone => "FICLONE",
            Rung::CopyFileRange => "copy_file_range",
            Rung::Sendfile => "sendfile",
            Rung::ReadWrite => "read/write",
        })
    }
}

/// What an errno of a rung means for the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// These two devices (or this kernel) never can: ask no more.
    Never,
    /// Not this file, perhaps others.
    NotThis,
    /// The copy failed; another rung would only hide it.
    Real,
}

/// Which errno means what. Anything not known to be harmless is real.
pub(crate) fn verdict(errno: Errno) -> Verdict {
    match errno {
        // The call does not exist, the filesystem does not have it, the two are too far apart: all three hold for
        // every file of the pair.
        Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOTTY | Errno::XDEV => Verdict::Never,
        // EINVAL: flags or alignment of one file (and a filesystem that says EINVAL for "no").
        // EPERM: one immutable or append-only file (and a sandbox that says EPERM for "no").
        // EBADF: a descriptor opened for appending. ETXTBSY: a swap file.
        // EACCES, ENOENT: network filesystems that check the two names again on the server.
        // None of them has moved a byte, and if the descriptor is truly bad then read or write will say so.
        Errno::INVAL | Errno::PERM | Errno::BADF | Errno::TXTBSY | Errno::ACCESS | Errno::NOENT => {
            Verdict::NotThis
        }
        _ => Verdict::Real,
    }
}

/// So many refusals of a kind that could be the file's own fault, with no success between, are the pair's. A sandbox
/// that answers EPERM to every call then costs 8 calls and not one per file; eight immutable files in a row
/// cost us a clone of the ninth, which is a slower copy and not a wrong one.
const REFUSALS_MAX: u8 = 8;
/// Marks a count as "never".
const NEVER: u8 = u8::MAX;

/// How the target's filesystem wants to be written to, from `fstatfs` once per pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Local, and blocks can be taken before they are written: ext4, xfs.
    Preallocate,
    /// Local, and sharing a block takes less time than writing it, however small the file: btrfs. Preallocation has a price
    /// there, too, as what is preallocated is not compressed.
    Share,
    /// Memory: each byte takes room of its own, and preallocation keeps all threads but one waiting. tmpfs.
    Memory,
    /// Local or unknown; preallocation has no known use.
    Plain,
    /// The bytes may never need to come here: `copy_file_range` is asked of the server before anything else.
    Remote,
}

/// What is known of one (source device, target device).
#[derive(Debug)]
pub(crate) struct Pair {
    src_dev: u64,
    dst_dev: u64,
    refusals: [AtomicU8; 3],
    fallocate: AtomicU8,
    target: OnceLock<Target>,
}

impl Pair {
    fn new(src_dev: u64, dst_dev: u64) -> Self {
        Pair {
            src_dev,
            dst_dev,
            refusals: [const { AtomicU8::new(0) }; 3],
            fallocate: AtomicU8::new(0),
            target: OnceLock::new(),
        }
    }

    fn count(&self, rung: Rung) -> Option<&AtomicU8> {
        // ReadWrite has no place here: it always works or the copy has failed.
        self.refusals.get(rung as usize)
    }
}

/// Pairs remembered. A program meets a handful; one that meets more pays a failed call per file for the rest.
const PAIRS_MAX: usize = 64;

/// Which rungs cannot work, per (source device, target device). One for all workers of a program: every method takes
/// `&self`, asking costs a few loads and never a lock.
///
/// Device numbers come from `fstat`; a number that is reused by another filesystem after an unmount may be told "no"
/// too often, which costs speed and never content.
#[derive(Debug)]
pub struct Rungs {
    only: Option<Rung>,
    pairs: [OnceLock<Pair>; PAIRS_MAX],
    refused: AtomicU64,
}

impl Rungs {
    /// Knows nothing yet.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Rungs { only: None, pairs: [const { OnceLock::new() }; PAIRS_MAX], refused: AtomicU64::new(0) }
    }

    /// A ladder of this rung first, whatever the size, and read/write, the last word, after it. For tests, and for a
    /// user who knows that a filesystem lies about the other rungs.
    #[must_use]
    pub const fn only(rung: Rung) -> Self {
        Rungs { only: Some(rung), pairs: [const { OnceLock::new() }; PAIRS_MAX], refused: AtomicU64::new(0) }
    }

    /// How many calls a rung refused so far, so that the ladder had to go on to the next.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Whether this rung is still worth a call between these devices.
    #[must_use]
    pub fn may(&self, rung: Rung, src_dev: u64, dst_dev: u64) -> bool {
        self.may_here(rung, self.pair(src_dev, dst_dev))
    }

    /// The one rung that was asked for, if one was.
    pub(crate) fn forced(&self) -> Option<Rung> {
        self.only
    }

    /// What is known of these two; `None` once [`PAIRS_MAX`] others are.
    pub(crate) fn pair(&self, src_dev: u64, dst_dev: u64) -> Option<&Pair> {
        self.pairs
            .iter()
            .map(|slot| slot.get_or_init(|| Pair::new(src_dev, dst_dev)))
            .find(|pair| pair.src_dev == src_dev && pair.dst_dev == dst_dev)
    }

    pub(crate) fn may_here(&self, rung: Rung, pair: Option<&Pair>) -> bool {
        if self.only.is_some_and(|only| only != rung && rung != Rung::ReadWrite) {
            return false;
        }
        pair.and_then(|pair| pair.count(rung)).is_none_or(|count| count.load(Relaxed) < REFUSALS_MAX)
    }

    /// A rung refused with this verdict: remember it as far as it is the pair's doing.
    pub(crate) fn note_refused(&self, rung: Rung, pair: Option<&Pair>, verdict: Verdict) {
        self.refused.fetch_add(1, Relaxed);
        let Some(count) = pair.and_then(|pair| pair.count(rung)) else { return };
        match verdict {
            Verdict::Never => count.store(NEVER, Relaxed),
            // Two threads may lose a count to each other, which delays the memory by a call.
            Verdict::NotThis => count.store(count.load(Relaxed).saturating_add(1), Relaxed),
            Verdict::Real => {}
        }
    }

    /// A rung worked: earlier refusals were the files' own. Written only when there is something to forget, so that
    /// workers do not pass one cache line around.
    pub(crate) fn note_worked(rung: Rung, pair: Option<&Pair>) {
        if let Some(count) = pair.and_then(|pair| pair.count(rung))
            && count.load(Relaxed) != 0
        {
            count.store(0, Relaxed);
        }
    }

    /// What kind of target this is, asked once.
    pub(crate) fn target(pair: Option<&Pair>, ask: impl FnOnce() -> Target) -> Target {
        match pair {
            Some(pair) => *pair.target.get_or_init(ask),
            None => ask(),
        }
    }

    pub(crate) fn may_fallocate(pair: Option<&Pair>) -> bool {
        pair.is_none_or(|pair| pair.fallocate.load(Relaxed) != NEVER)
    }

    pub(crate) fn note_no_fallocate(&self, pair: Option<&Pair>) {
        self.refused.fetch_add(1, Relaxed);
        if let Some(pair) = pair {
            pair.fallocate.store(NEVER, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_pairs_doing_is_remembered_at_once_and_for_the_pair_only() {
        let rungs = Rungs::new();
        rungs.note_refused(Rung::Clone, rungs.pair(1, 2), verdict(Errno::XDEV));
        assert!(!rungs.may(Rung::Clone, 1, 2));
        assert!(rungs.may(Rung::Clone, 2, 1));
        assert!(rungs.may(Rung::Clone, 1, 1));
        assert!(rungs.may(Rung::CopyFileRange, 1, 2));
        assert!(rungs.may(Rung::ReadWrite, 1, 2));
        assert_eq!(rungs.refused(), 1);
    }

    #[test]
    fn what_may_be_the_files_doing_is_believed_when_it_repeats() {
        let rungs = Rungs::new();
        let pair = rungs.pair(1, 1);
        for _ in 0..REFUSALS_MAX - 1 {
            rungs.note_refused(Rung::CopyFileRange, pair, verdict(Errno::PERM));
        }
        assert!(rungs.may(Rung::CopyFileRange, 1, 1));
        Rungs::note_worked(Rung::CopyFileRange, pair);
        for _ in 0..REFUSALS_MAX {
            assert!(rungs.may(Rung::CopyFileRange, 1, 1));
            rungs.note_refused(Rung::CopyFileRange, pair, verdict(Errno::PERM));
        }
        assert!(!rungs.may(Rung::CopyFileRange, 1, 1));
    }

    #[test]
    fn what_is_real_stays_real() {
        for errno in [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::FBIG, Errno::NOMEM, Errno::ROFS] {
            assert_eq!(verdict(errno), Verdict::Real, "{errno}");
        }
    }

    #[test]
    fn a_full_memory_forgets_and_works() {
        let rungs = Rungs::new();
        for dev in 0..PAIRS_MAX as u64 {
            assert!(rungs.pair(dev, 9).is_some());
        }
        assert!(rungs.pair(1000, 9).is_none());
        assert!(rungs.may(Rung::Clone, 1000, 9));
        rungs.note_refused(Rung::Clone, rungs.pair(1000, 9), Verdict::Never);
        assert!(rungs.may(Rung::Clone, 1000, 9));
        assert!(rungs.pair(0, 9).is_some());
    }

    #[test]
    fn only_one() {
        let rungs = Rungs::only(Rung::Sendfile);
        assert!(!rungs.may(Rung::Clone, 1, 1));
        assert!(rungs.may(Rung::Sendfile, 1, 1));
        assert!(rungs.may(Rung::ReadWrite, 1, 1));
    }

    #[test]
    fn many_threads_agree_on_one_record() {
        let rungs = Rungs::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for dev in 0..32 {
                        rungs.note_refused(Rung::Clone, rungs.pair(dev, dev), Verdict::Never);
                    }
                });
            }
        });
        assert!((0..32).all(|dev| !rungs.may(Rung::Clone, dev, dev)));
        let filled = rungs.pairs.iter().filter(|slot| slot.get().is_some()).count();
        assert_eq!(filled, 32, "one record per pair");
    }
}
