//! What becomes of a large file's pages behind its copy: dropped, so that the page cache is left as it was found
//! (`--no-cache`), or only written out, so that the sync at the end finds little left.
//!
//! Must not know how the bytes are copied. Rule S9: dropped are pages of the file that this run has made, once they are
//! written out, and pages of the source only where none of it was in the page cache before.

use crate::policy::DropCache;
use fastcopy::page_cache::{self, Cache};
use fastcopy::sync;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Smaller files (bytes) push nothing worth mentioning out of the page cache.
pub(crate) const BYTES_MIN: u64 = 16 << 20;
/// Where the kernel does not drop pages by itself, so many bytes are dropped at a time, and as many are being written
/// out meanwhile.
const STEP_BYTES: u64 = 32 << 20;

/// Pages are dropped behind this copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leave {
    /// Those of the source as well: none was there before.
    pub(crate) source: bool,
}

/// Whether pages are dropped behind a copy of `size` bytes that ends on stable storage (`syncs`) or in the page cache.
/// `absent`: none of the source is in the page cache; asked only where it matters.
pub(crate) fn leave(
    choice: DropCache,
    size: u64,
    syncs: bool,
    absent: impl FnOnce() -> bool,
) -> Option<Leave> {
    if choice == DropCache::Never || size < BYTES_MIN || (choice == DropCache::Auto && !syncs) {
        return None;
    }
    let source = absent();
    (source || choice == DropCache::Always).then_some(Leave { source })
}

/// Whether the page cache is known to have nothing of a file of `size` bytes.
///
/// Counting takes the kernel tens of milliseconds where 4 GiB are cached. So a few places are looked at first: a file
/// that is cached is seen at once, and counting one that is not costs nothing.
pub(crate) fn is_absent(file: &OwnedFd, size: u64) -> bool {
    const PROBES: u64 = 16;
    const PROBE_BYTES: u64 = 1 << 20;
    let nothing = |off, len| page_cache::pages(file, off, len) == Some(0);
    (0..PROBES).all(|i| nothing(size / PROBES * i, PROBE_BYTES)) && nothing(0, 0)
}

/// How to read and write so that the kernel drops the pages, where it can; else [`Trail`] does.
pub(crate) fn cache_of(file: &OwnedFd) -> Cache {
    if page_cache::drops(file) { Cache::Drop } else { Cache::Keep }
}

/// Drops pages behind one copy.
pub(crate) struct Trail {
    leave: Leave,
    src: OwnedFd,
    dst: OwnedFd,
    cache: Cache,
    state: Mutex<DropState>,
}

struct DropState {
    copied: u64,
    dropped: u64,
    failed: Option<io::Error>,
}

impl Trail {
    pub(crate) fn new(leave: Leave, src: &OwnedFd, dst: &OwnedFd) -> io::Result<Trail> {
        let both = cache_of(src) == Cache::Drop && cache_of(dst) == Cache::Drop;
        let cache = if both { Cache::Drop } else { Cache::Keep };
        let state = Mutex::new(DropState { copied: 0, dropped: 0, failed: None });
        Ok(Trail { leave, src: src.try_clone()?, dst: dst.try_clone()?, cache, state })
    }

    /// How to read and write.
    pub(crate) fn cache(&self) -> Cache {
        self.cache
    }

    /// So many bytes more are copied; `false` when writing out failed, which [`Trail::finish`] tells.
    pub(crate) fn advance(&self, bytes: u64) -> bool {
        if self.cache == Cache::Drop {
            return true;
        }
        let mut state = self.state();
        state.copied += bytes;
        let at = state.dropped;
        if state.copied < at + 2 * STEP_BYTES {
            return state.failed.is_none();
        }
        state.dropped += STEP_BYTES;
        // Other threads go on copying.
        drop(state);
        let started = sync::start_writeback(&self.dst, at + STEP_BYTES, STEP_BYTES);
        match started.and_then(|()| self.drop_range(at, STEP_BYTES)) {
            Ok(()) => true,
            Err(e) => {
                self.state().failed = Some(e);
                false
            }
        }
    }

    /// What is still there of both.
    ///
    /// An error means that contents may be lost: the kernel tells of it once, and no later sync would (R5).
    pub(crate) fn finish(self) -> io::Result<()> {
        if let Some(e) = self.state().failed.take() {
            return Err(e);
        }
        self.drop_range(0, 0)
    }

    fn drop_range(&self, at: u64, bytes: u64) -> io::Result<()> {
        // Pages that are not written out cannot be dropped, by the kernel no more than by us.
        sync::wait_writeback(&self.dst, at, bytes)?;
        page_cache::forget(&self.dst, at, bytes);
        if self.leave.source {
            page_cache::forget(&self.src, at, bytes);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, DropState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts to write out what one copy has written while it goes on, so that the sync at its end finds little left.
pub(crate) struct WriteOut {
    dst: OwnedFd,
    copied: AtomicU64,
    failed: Mutex<Option<io::Error>>,
}

impl WriteOut {
    pub(crate) fn new(dst: OwnedFd) -> WriteOut {
        WriteOut { dst, copied: AtomicU64::new(0), failed: Mutex::new(None) }
    }

    /// So many bytes more are copied, by any thread and anywhere in the file; `false` when writing out failed, which
    /// [`WriteOut::finish`] tells.
    pub(crate) fn advance(&self, bytes: u64) -> bool {
        let before = self.copied.fetch_add(bytes, Ordering::Relaxed);
        if before / STEP_BYTES == (before + bytes) / STEP_BYTES {
            return true;
        }
        match sync::start_writeback(&self.dst, 0, 0) {
            Ok(()) => true,
            Err(e) => {
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
                false
            }
        }
    }

    /// An error means that contents may be lost (R5).
    pub(crate) fn finish(self) -> io::Result<()> {
        self.failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::DropCache::{Always, Auto, Never};

    #[test]
    fn when_pages_are_dropped() {
        let both = Some(Leave { source: true });
        let own = Some(Leave { source: false });
        let large = BYTES_MIN;
        // choice, bytes, ends on stable storage, source was not in the page cache
        let table = [
            (Auto, large, true, true, both),
            // Another program has use for what is there: a source that was cached stays, and its copy may be wanted as well.
            (Auto, large, true, false, None),
            (Auto, large, false, true, None),
            (Auto, large - 1, true, true, None),
            (Always, large, false, true, both),
            (Always, large, true, false, own),
            (Always, large - 1, true, true, None),
            (Never, large, true, true, None),
        ];
        for (choice, size, syncs, absent, found) in table {
            assert_eq!(leave(choice, size, syncs, || absent), found, "{choice:?} {size} {syncs} {absent}");
        }
    }

    /// Without the kernel's help, and in steps; the source's pages only where none was there before.
    #[test]
    fn a_trail_drops_what_is_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let content = vec![5; 3 * STEP_BYTES as usize];
        let file = |name: &str| {
            let path = dir.path().join(name);
            let file = std::fs::File::create_new(&path).unwrap();
            fastcopy::read_write::write_full(&file, 0, &content).unwrap();
            OwnedFd::from(std::fs::File::options().read(true).write(true).open(&path).unwrap())
        };
        let (src, dst, bystander) = (file("src"), file("dst"), file("bystander"));
        sync::all(&src).unwrap();
        sync::all(&bystander).unwrap();
        if page_cache::pages(&dst, 0, 0).is_none() || rustix_is_tmpfs(&dst) {
            return skips::here("needs cachestat(2), Linux 6.5, and a temporary directory on a disk");
        }
        // In steps: the kernel takes a few pages for others at any time.
        let steps =
            |file: &OwnedFd| (page_cache::pages(file, 0, 0).unwrap() * 4096 + STEP_BYTES / 2) / STEP_BYTES;
        let of_both = || (steps(&dst), steps(&src));
        let mut room = vec![0; content.len()];
        for source in [false, true] {
            let mut at_once = || {
                for file in [&src, &dst, &bystander] {
                    fastcopy::read_write::read_full(file, 0, &mut room).unwrap();
                    assert!(room == content);
                }
                let trail = Trail { cache: Cache::Keep, ..Trail::new(Leave { source }, &src, &dst).unwrap() };
                assert!(trail.advance(2 * STEP_BYTES - 1));
                let near = of_both();
                assert!(trail.advance(1));
                let behind = of_both();
                trail.finish().unwrap();
                [near, behind, of_both()]
            };
            let expected = if source { [(3, 3), (2, 2), (0, 0)] } else { [(3, 3), (2, 3), (0, 3)] };
            // A busy kernel takes many pages for others: then the bystander, which no trail touches, has lost some as well.
            let disturbed = |found| found != expected && steps(&bystander) < 3;
            let found = (0..20).map(|_| at_once()).find(|found| !disturbed(*found));
            let Some(found) = found else {
                return skips::here("the kernel takes pages faster than they can be counted");
            };
            assert_eq!(found, expected, "after nothing is far enough behind, one step is, and the end");
        }
    }

    /// One page anywhere is enough to be present, also between the places that are looked at first.
    #[test]
    fn a_file_is_absent_only_without_any_page() {
        let file = tempfile::tempfile().unwrap();
        let size: u64 = 64 << 20;
        fastcopy::read_write::write_full(&file, 0, &vec![5; 1 << 20]).unwrap();
        file.set_len(size).unwrap();
        let file = OwnedFd::from(file);
        if page_cache::pages(&file, 0, 0).is_none() || rustix_is_tmpfs(&file) {
            return skips::here("needs cachestat(2), Linux 6.5, and a temporary directory on a disk");
        }
        let forget = || {
            sync::all(&file).unwrap();
            page_cache::forget(&file, 0, 0);
        };
        forget();
        assert!(is_absent(&file, size));
        for at in [0, (size / 16) + (2 << 20), size - 4096] {
            fastcopy::read_write::write_full(&file, at, &[6; 4096]).unwrap();
            assert!(!is_absent(&file, size), "the page at {at} is there");
            forget();
            assert!(is_absent(&file, size));
        }
    }

    fn rustix_is_tmpfs(file: &OwnedFd) -> bool {
        // What tmpfs holds is nowhere else: its pages never go.
        page_cache::forget(file, 0, 0);
        sync::all(file).unwrap();
        page_cache::forget(file, 0, 0);
        let stays = page_cache::pages(file, 0, 0) != Some(0);
        let mut room = vec![0; 3 * STEP_BYTES as usize];
        fastcopy::read_write::read_full(file, 0, &mut room).unwrap();
        stays
    }
}
