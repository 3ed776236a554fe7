//! What of a file is in the page cache, and reading and writing that leaves nothing there: `cachestat(2)`,
//! `RWF_DONTCACHE`, `posix_fadvise(POSIX_FADV_DONTNEED)`.
//!
//! Must not know when that is wanted: pages of other programs' work must never be dropped, and only the caller knows
//! whose they are.

use std::io;
use std::os::fd::AsFd;

use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

/// What becomes of the pages that a read or a write goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// They stay, as the kernel likes.
    Keep,
    /// The kernel drops those that were not there before, once they are read or written out (`RWF_DONTCACHE`, Linux
    /// 6.14). A kernel or a file system that cannot keeps them; [`drops`] tells.
    Drop,
}

/// Linux 6.14; newer than libc's and rustix's names.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Asks with the flag, and without it where it is not known.
fn flagged<T>(
    cache: Cache,
    mut call: impl FnMut(ReadWriteFlags) -> Result<T, Errno>,
) -> Option<Result<T, Errno>> {
    if cache == Cache::Keep {
        return None;
    }
    match retry_on_intr(|| call(DONTCACHE)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => None,
        done => Some(done),
    }
}

/// One positioned read; `None` where the flag is not wanted or not known, and nothing was done.
pub(crate) fn pread(fd: impl AsFd, off: u64, buf: &mut [u8], cache: Cache) -> Option<Result<usize, Errno>> {
    #[cfg(target_os = "linux")]
    {
        let mut room = [io::IoSliceMut::new(buf)];
        flagged(cache, |flags| rustix::io::preadv2(&fd, &mut room, off, flags))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (fd, off, buf, cache);
        None
    }
}

/// One positioned write; `None` as in [`pread`].
pub(crate) fn pwrite(fd: impl AsFd, off: u64, buf: &[u8], cache: Cache) -> Option<Result<usize, Errno>> {
    #[cfg(target_os = "linux")]
    {
        flagged(cache, |flags| rustix::io::pwritev2(&fd, &[io::IoSlice::new(buf)], off, flags))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (fd, off, buf, cache);
        None
    }
}

/// Whether [`Cache::Drop`] works for this file, open for reading. Asked by a read far behind its end: nothing is read.
#[must_use]
pub fn drops(fd: impl AsFd) -> bool {
    #[cfg(target_os = "linux")]
    {
        const FAR: u64 = 1 << 62;
        let mut byte = [0];
        let mut read = || rustix::io::preadv2(&fd, &mut [io::IoSliceMut::new(&mut byte)], FAR, DONTCACHE);
        retry_on_intr(&mut read).is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = fd;
        false
    }
}

/// `cachestat(2)`: how many pages of a range are in the page cache (`len` 0: to the end of the file). `None` where the
/// kernel does not say: before Linux 6.5, for a file that is neither ours nor writable, on some file systems.
#[must_use]
pub fn pages(fd: impl AsFd, off: u64, len: u64) -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        /// The same on every architecture that Rust has; not in libc for all of them.
        const SYS_CACHESTAT: libc::c_long = 451;
        let range = [off, len];
        // Cached, dirty, under writeback, evicted, evicted lately (`struct cachestat`, linux/mman.h).
        let mut counts = [0u64; 5];
        // SAFETY: the descriptor lives as long as the borrow; the kernel reads two words and writes five, and the arrays
        // hold as many, aligned as its structures are.
        let done = unsafe {
            libc::syscall(SYS_CACHESTAT, fd.as_fd().as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0)
        };
        (done == 0).then_some(counts[0])
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (fd, off, len);
        None
    }
}

/// `posix_fadvise(POSIX_FADV_DONTNEED)`: takes the pages of a range (`len` 0: to the end of the file) out of the page
/// cache, whichever program brought them there. Pages that are not written out yet stay, and so do those that are being read ahead
/// just now. A hint: whether it worked, [`pages`] tells.
pub fn forget(fd: impl AsFd, off: u64, len: u64) {
    #[cfg(not(target_os = "macos"))]
    {
        let len = std::num::NonZeroU64::new(len);
        let _hint = rustix::fs::fadvise(&fd, off, len, rustix::fs::Advice::DontNeed).is_ok();
    }
    #[cfg(target_os = "macos")]
    let _ = (fd, off, len);
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // tests look at the file system the ordinary way
mod tests {
    use super::*;
    use crate::read_write::{read_full_as, write_full_as};

    const LEN: usize = 1 << 20;

    /// A file on a disk, its pages in the cache or not; `None` where the kernel does not say, or on tmpfs.
    fn file(cached: bool) -> Option<std::fs::File> {
        let file = tempfile::tempfile().unwrap();
        write_full_as(&file, 0, &[7; LEN], Cache::Keep).unwrap();
        file.sync_all().unwrap();
        if !cached {
            forget(&file, 0, 0);
        }
        if pages(&file, 0, 0) == Some(if cached { LEN as u64 / 4096 } else { 0 }) {
            return Some(file);
        }
        skips::here("needs cachestat(2), Linux 6.5, and a temporary directory on a disk");
        None
    }

    #[test]
    fn what_is_read_without_the_cache_is_not_left_there_and_what_was_there_stays() {
        for cached in [false, true] {
            for cache in [Cache::Keep, Cache::Drop] {
                let Some(file) = file(cached) else { return };
                let works = drops(&file);
                assert_eq!(pages(&file, 0, 0).unwrap() > 0, cached, "asking has read nothing");
                let mut room = vec![0; LEN];
                assert_eq!(read_full_as(&file, 0, &mut room, cache).unwrap(), LEN);
                assert!(room.iter().all(|b| *b == 7));
                let stays = cached || cache == Cache::Keep || !works;
                assert_eq!(pages(&file, 0, 0).unwrap() > 0, stays, "cached before: {cached}, {cache:?}");
            }
        }
    }

    #[test]
    fn what_is_written_without_the_cache_is_gone_from_it_when_it_is_on_the_disk() {
        for cache in [Cache::Keep, Cache::Drop] {
            let Some(file) = file(false) else { return };
            let works = drops(&file);
            write_full_as(&file, LEN as u64, &[8; LEN], cache).unwrap();
            file.sync_all().unwrap();
            let left = pages(&file, 0, 0).unwrap();
            assert_eq!(left > 0, cache == Cache::Keep || !works, "{cache:?}: {left}");
            forget(&file, 0, 0);
            assert_eq!(pages(&file, 0, 0).unwrap(), 0);
            let mut room = vec![0; LEN];
            assert_eq!(read_full_as(&file, LEN as u64, &mut room, cache).unwrap(), LEN);
            assert!(room.iter().all(|b| *b == 8));
        }
    }

    #[test]
    fn a_file_system_without_the_flag_reads_and_writes_as_ever() {
        let Ok(file) = std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(format!("/dev/shm/fastcopy-{}", std::process::id()))
        else {
            return skips::here("there is no /dev/shm");
        };
        std::fs::remove_file(format!("/dev/shm/fastcopy-{}", std::process::id())).unwrap();
        write_full_as(&file, 0, b"content", Cache::Drop).unwrap();
        let mut room = [0; 7];
        assert_eq!(read_full_as(&file, 0, &mut room, Cache::Drop).unwrap(), 7);
        assert_eq!(&room, b"content");
    }
}
