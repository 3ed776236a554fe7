//! `read(2)`, `write(2)` and their positioned forms, repeated until the job is done: EINTR is retried, short counts
//! are completed.
//!
//! Must not know whether another rung was tried before.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::page_cache::{self, Cache};
use crate::poll;

/// How often it is asked whether to go on while there is no room.
const LOOK: Duration = Duration::from_millis(100);

/// `pread(fd, buf, off)`, one call: some bytes at `off`, 0 at the end of the file. EINTR is retried.
///
/// # Errors
/// What the kernel says ([pread(2)](https://man7.org/linux/man-pages/man2/pread.2.html)).
pub fn pread(fd: impl AsFd, off: u64, buf: &mut [u8]) -> io::Result<usize> {
    pread_as(fd, off, buf, Cache::Keep)
}

/// As [`pread`]; `cache` says what becomes of the pages.
///
/// # Errors
/// As there.
pub fn pread_as(fd: impl AsFd, off: u64, buf: &mut [u8], cache: Cache) -> io::Result<usize> {
    match page_cache::pread(&fd, off, buf, cache) {
        Some(read) => Ok(read?),
        None => Ok(retry_on_intr(|| rustix::io::pread(&fd, &mut *buf, off))?),
    }
}

/// `pread(fd, buf, off)` until `buf` is full or the file ends; the count is short only at the end of the file.
///
/// # Errors
/// What the kernel says; bytes read before the error are in `buf` but not counted.
pub fn read_full(fd: impl AsFd, off: u64, buf: &mut [u8]) -> io::Result<usize> {
    read_full_as(fd, off, buf, Cache::Keep)
}

/// As [`read_full`]; `cache` says what becomes of the pages.
///
/// # Errors
/// As there.
pub fn read_full_as(fd: impl AsFd, off: u64, buf: &mut [u8], cache: Cache) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match pread_as(&fd, off + done as u64, &mut buf[done..], cache)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

/// What [`read_direct`] wants buffers, offsets and lengths to be multiples of, in bytes: enough for every disk of today.
pub const DIRECT_ALIGN: usize = 4096;

/// `open(/proc/self/fd/N, O_RDONLY | O_DIRECT)`: the same file past the page cache.
///
/// # Errors
/// EINVAL where the file system has no direct reads.
pub fn reopen_direct(fd: impl AsFd) -> io::Result<std::os::fd::OwnedFd> {
    direct(fd.as_fd(), rustix::fs::OFlags::RDONLY)
}

/// As [`reopen_direct`], for writing (`O_WRONLY`).
///
/// # Errors
/// As there.
pub fn reopen_direct_write(fd: impl AsFd) -> io::Result<std::os::fd::OwnedFd> {
    direct(fd.as_fd(), rustix::fs::OFlags::WRONLY)
}

#[cfg(target_os = "linux")]
fn direct(fd: std::os::fd::BorrowedFd<'_>, access: rustix::fs::OFlags) -> io::Result<std::os::fd::OwnedFd> {
    use rustix::fs::{CWD, Mode, OFlags};
    let path = crate::meta::proc_path(fd)?;
    let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
    crate::retry::retry(|| rustix::fs::openat(CWD, &path, flags, Mode::empty()))
}

#[cfg(not(target_os = "linux"))]
fn direct(_: std::os::fd::BorrowedFd<'_>, _: rustix::fs::OFlags) -> io::Result<std::os::fd::OwnedFd> {
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}

/// Whether a read at `off` would find it in the page cache: `cachestat(2)`, and where that is missing or refused (a
/// kernel before 6.5, another user's file) `preadv2(RWF_NOWAIT)` of one byte. `None` where neither can tell.
///
/// The second begins to read, so it is good once, and says "there" too often on a busy disk: beginning may have to wait
/// for room in the disk's queue, and by then the byte has come.
pub fn is_cached(fd: impl AsFd, off: u64) -> Option<bool> {
    #[cfg(target_os = "linux")]
    {
        if let Some(pages) = page_cache::pages(&fd, off, 1) {
            return Some(pages > 0);
        }
        let mut byte = [0];
        let mut room = [io::IoSliceMut::new(&mut byte)];
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        match rustix::io::preadv2(&fd, &mut room, off, flags) {
            Ok(_) => Some(true),
            Err(Errno::AGAIN) => Some(false),
            Err(_) => None,
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (fd, off);
        None
    }
}

/// `posix_fadvise(POSIX_FADV_WILLNEED)`: the kernel begins to read the first `len` bytes and this call does not wait for
/// them. A hint; a length of 0 is the whole file.
///
/// # Errors
/// What the kernel says; ESPIPE for what has no positions.
pub fn will_need(fd: impl AsFd, len: u64) -> io::Result<()> {
    #[cfg(not(target_os = "macos"))]
    {
        let len = std::num::NonZeroU64::new(len);
        Ok(rustix::fs::fadvise(&fd, 0, len, rustix::fs::Advice::WillNeed)?)
    }
    #[cfg(target_os = "macos")]
    {
        let _ = (fd, len);
        Ok(())
    }
}

/// `pread` of a handle from [`reopen_direct`], until `buf` is full or the file ends. `off`, the address and the length
/// of `buf` are multiples of [`DIRECT_ALIGN`]; what the file has behind its end is cut off.
///
/// # Errors
/// What the kernel says; EINVAL when something is not aligned.
pub fn read_direct(fd: impl AsFd, off: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match pread(&fd, off + done as u64, &mut buf[done..])? {
            0 => break,
            n => done += n,
        }
        // Only the end of a file cuts a direct read short of a block.
        if done % DIRECT_ALIGN != 0 {
            break;
        }
    }
    Ok(done)
}

/// `pread` behind what is in `buf`, until `len` bytes were added or the file ends, and how many were added. Room that
/// is new is not cleared first, as it would be for [`read_full`].
///
/// # Errors
/// What the kernel says; bytes read before the error stay in `buf`.
pub fn read_append(fd: impl AsFd, off: u64, len: usize, buf: &mut Vec<u8>) -> io::Result<usize> {
    append(fd, off, len, len, buf)
}

/// As [`read_append`] for what should be `len` bytes to the end of the file: with room for one byte more, so that a
/// longer file shows, and without the call that would find nothing behind them. What comes is more than `len` only if
/// the file was longer.
///
/// # Errors
/// As [`read_append`].
pub fn read_expected(fd: impl AsFd, off: u64, len: usize, buf: &mut Vec<u8>) -> io::Result<usize> {
    // Nothing is what files say that are made while they are read.
    append(fd, off, len.max(1), len + 1, buf)
}

/// Until `enough` bytes were added, at most `most` of them.
fn append(fd: impl AsFd, off: u64, enough: usize, most: usize, buf: &mut Vec<u8>) -> io::Result<usize> {
    if buf.capacity() - buf.len() < most {
        buf.reserve(most + ASIDE_BYTES);
    }
    let mut done = 0;
    while done < enough {
        let at = off + done as u64;
        let spare = buf.spare_capacity_mut();
        let wanted = most - done;
        let aside = if wanted >= PAGE && is_slow(spare.as_ptr().addr(), at) { ASIDE_BYTES } else { 0 };
        // Where there is no more room than that, the end of it comes with the next call.
        let room = wanted.min(spare.len() - aside);
        let n = retry_on_intr(|| {
            rustix::io::pread(&fd, &mut spare[aside..aside + room], at).map(|(read, _)| read.len())
        })?;
        if n == 0 {
            break;
        }
        if aside > 0 {
            spare.copy_within(aside..aside + n, 0);
        }
        // SAFETY: these `n` bytes behind the length, within the capacity, are what the kernel has just written.
        unsafe { buf.set_len(buf.len() + n) };
        done += n;
    }
    Ok(done)
}

/// So much further on is read where the place itself is a slow one.
const ASIDE_BYTES: usize = 32;
const PAGE: usize = 4096;

/// Whether the kernel would copy out of the page cache to an address that lies, within its page, 1 to 31 bytes behind what is
/// copied. AMD processors take five times as long for that (docs/decisions/0002-copy-ladder.md); to read elsewhere and to move it
/// here costs little. An allocation of many pages begins 16 bytes behind the first, so this is no rare thing.
fn is_slow(address: usize, off: u64) -> bool {
    (1..ASIDE_BYTES as u64).contains(&((address as u64).wrapping_sub(off) % PAGE as u64))
}

/// `pwrite(fd, buf, off)` until all of `buf` is written.
///
/// # Errors
/// What the kernel says ([pwrite(2)](https://man7.org/linux/man-pages/man2/pwrite.2.html)); ENOSPC may come after a
/// part was written. A kernel that takes nothing and says nothing is [`io::ErrorKind::WriteZero`].
pub fn write_full(fd: impl AsFd, off: u64, buf: &[u8]) -> io::Result<()> {
    write_full_as(fd, off, buf, Cache::Keep)
}

/// As [`write_full`]; `cache` says what becomes of the pages.
///
/// # Errors
/// As there.
pub fn write_full_as(fd: impl AsFd, off: u64, buf: &[u8], cache: Cache) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        let (rest, at) = (&buf[done..], off + done as u64);
        let written = match page_cache::pwrite(&fd, at, rest, cache) {
            Some(written) => written?,
            None => retry_on_intr(|| rustix::io::pwrite(&fd, rest, at))?,
        };
        match written {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => done += n,
        }
    }
    Ok(())
}

/// `write(fd, buf)` at the descriptor's own position until all of `buf` is written: for targets without positions,
/// such as a pipe or a terminal.
///
/// Where there is no room, it is waited for as long as `go_on` says so: where the descriptor does not block (EAGAIN), and in a
/// pipe or a socket that does, as a blocked call does not ask `go_on`. Returns whether all was written.
///
/// # Errors
/// As [`write_full`].
pub fn write_stream(fd: impl AsFd, buf: &[u8], go_on: &dyn Fn() -> bool) -> io::Result<bool> {
    let asks = waits_for_a_reader(&fd)?;
    write_in_order(fd, buf, asks, go_on)
}

/// As [`write_stream`] into a descriptor that is known not to block, as that of [`open_unblocked`] is: without the two calls that
/// find out.
///
/// # Errors
/// As there.
pub fn write_unblocked(fd: impl AsFd, buf: &[u8], go_on: &dyn Fn() -> bool) -> io::Result<bool> {
    write_in_order(fd, buf, false, go_on)
}

/// `asks`: writing may block, so room is asked for before.
fn write_in_order(fd: impl AsFd, mut buf: &[u8], asks: bool, go_on: &dyn Fn() -> bool) -> io::Result<bool> {
    while !buf.is_empty() {
        let room = if asks { room(&fd)? } else { buf.len() };
        if room == 0 {
            if go_on() {
                continue;
            }
            return Ok(false);
        }
        match rustix::io::write(&fd, buf.get(..room).unwrap_or(buf)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => buf = &buf[n..],
            Err(Errno::INTR | Errno::AGAIN) if !go_on() => return Ok(false),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => drop(poll::writable(fd.as_fd(), LOOK)?),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(true)
}

/// `fstat`, `open(/proc/self/fd/N, O_WRONLY | O_NONBLOCK)`: a pipe opened once more, so that it does not block here while it
/// still blocks, or not, for all who share `fd`. [`write_unblocked`] need not ask such a one for room. `None`: it is no pipe, or
/// cannot be opened: it is another user's, there is no /proc, or it is a FIFO without a reader.
///
/// # Errors
/// What `fstat` says ([proc_pid_fd(5)](https://man7.org/linux/man-pages/man5/proc_pid_fd.5.html)).
pub fn open_unblocked(fd: impl AsFd) -> io::Result<Option<OwnedFd>> {
    if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::Fifo {
        return Ok(None);
    }
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| rustix::fs::open(path.as_str(), flags, Mode::empty())).ok())
}

/// `fstat` and `fcntl(F_GETFL)`: whether writing may block until another process reads.
fn waits_for_a_reader(fd: impl AsFd) -> io::Result<bool> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    let waits = matches!(kind, FileType::Fifo | FileType::Socket);
    Ok(waits && !rustix::fs::fcntl_getfl(&fd)?.contains(OFlags::NONBLOCK))
}

/// `poll`, `ioctl(FIONREAD)` and `fcntl(F_GETPIPE_SZ)`: how many bytes one `write` takes now without blocking, if no other
/// process writes; 0 after a while without room. A pipe with nothing in it takes as many as it holds. Of another is known that it
/// takes the least that one writes at once ([pipe(7)](https://man7.org/linux/man-pages/man7/pipe.7.html)), once poll says so.
fn room(fd: impl AsFd) -> io::Result<usize> {
    if !poll::writable(fd.as_fd(), LOOK)? {
        return Ok(0);
    }
    #[cfg(target_os = "linux")]
    if let Ok(0) = rustix::io::ioctl_fionread(&fd)
        && let Ok(bytes) = rustix::pipe::fcntl_getpipe_size(&fd)
    {
        return Ok(bytes);
    }
    Ok(rustix::pipe::PIPE_BUF)
}

/// `fallocate(fd, FALLOC_FL_KEEP_SIZE, off, len)`: blocks for a range, the visible length unchanged.
///
/// # Errors
/// EOPNOTSUPP where the filesystem has no such thing; ENOSPC, EDQUOT where the space lacks
/// ([fallocate(2)](https://man7.org/linux/man-pages/man2/fallocate.2.html)).
pub fn fallocate_keep_size(fd: impl AsFd, off: u64, len: u64) -> Result<(), Errno> {
    // EINTR is not retried: a filesystem may start again from nothing each time, and the blocks are only a help.
    rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::KEEP_SIZE, off, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn read_full_is_short_only_at_the_end() {
        let mut f = tempfile::tempfile().unwrap();
        f.write_all(b"0123456789").unwrap();
        let mut buf = [0; 8];
        assert_eq!(read_full(&f, 0, &mut buf).unwrap(), 8);
        assert_eq!(&buf, b"01234567");
        assert_eq!(read_full(&f, 7, &mut buf).unwrap(), 3);
        assert_eq!(&buf[..3], b"789");
        assert_eq!(read_full(&f, 10, &mut buf).unwrap(), 0);
        assert_eq!(read_full(&f, 99, &mut buf).unwrap(), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn cached_is_what_the_kernel_has() {
        let mut f = tempfile::tempfile().unwrap();
        f.write_all(&[7; 1 << 20]).unwrap();
        assert_ne!(is_cached(&f, 0), Some(false));
        f.sync_all().unwrap();
        if page_cache::pages(&f, 0, 1 << 20).is_none()
            || rustix::fs::fstatfs(&f).unwrap().f_type == 0x0102_1994
        {
            return skips::here("needs cachestat(2), Linux 6.5, and a temporary directory on a disk");
        }
        rustix::fs::fadvise(&f, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        for _ in 0..2 {
            assert_eq!(is_cached(&f, 0), Some(false), "asking does not read");
        }
        let mut byte = [0];
        read_full(&f, 0, &mut byte).unwrap();
        assert_eq!((is_cached(&f, 0), is_cached(&f, 9 << 20)), (Some(true), Some(false)));
    }

    #[test]
    fn read_append_is_right_wherever_it_reads_to() {
        let content: Vec<u8> = (0..10_000u32).map(|n| (n % 251) as u8).collect();
        let mut f = tempfile::tempfile().unwrap();
        f.write_all(&content).unwrap();
        for (off, spare) in [(0, 0), (0, ASIDE_BYTES - 1), (0, ASIDE_BYTES), (17, 4096)] {
            let wanted = &content[off..off + 9000];
            let mut was_slow = 0;
            for before in 0..4096 {
                let mut buf = Vec::with_capacity(before + wanted.len() + spare);
                buf.resize(before, 1);
                was_slow += usize::from(is_slow(buf.spare_capacity_mut().as_ptr().addr(), off as u64));
                assert_eq!(read_append(&f, off as u64, wanted.len(), &mut buf).unwrap(), wanted.len());
                assert!(buf[..before].iter().all(|b| *b == 1) && &buf[before..] == wanted, "{off} {before}");
            }
            assert!(was_slow > 0);
        }
    }

    #[test]
    fn read_append_adds_and_no_more() {
        let mut f = tempfile::tempfile().unwrap();
        f.write_all(b"0123456789").unwrap();
        let mut buf = Vec::with_capacity(100);
        buf.extend_from_slice(b"ab");
        assert_eq!(read_append(&f, 2, 3, &mut buf).unwrap(), 3, "although there was room for more");
        assert_eq!(buf, b"ab234");
        assert_eq!(read_append(&f, 8, 5, &mut buf).unwrap(), 2);
        assert_eq!(read_append(&f, 10, 5, &mut buf).unwrap(), 0);
        assert_eq!(buf, b"ab23489");
        let (_r, w) = rustix::pipe::pipe().unwrap();
        assert!(read_append(&w, 0, 5, &mut buf).is_err());
        assert_eq!(buf, b"ab23489");
    }

    #[test]
    fn read_expected_shows_a_longer_file_and_a_shorter_one() {
        let mut f = tempfile::tempfile().unwrap();
        f.write_all(b"0123456789").unwrap();
        let read = |off, len| {
            let mut buf = b"ab".to_vec();
            let n = read_expected(&f, off, len, &mut buf).unwrap();
            (n, buf)
        };
        assert_eq!(read(2, 8), (8, b"ab23456789".to_vec()));
        assert_eq!(read(2, 7), (8, b"ab23456789".to_vec()), "longer");
        assert_eq!(read(2, 3), (4, b"ab2345".to_vec()), "longer, and no more than a byte of it");
        assert_eq!(read(2, 9), (8, b"ab23456789".to_vec()), "shorter");
        assert_eq!(read(2, 0), (1, b"ab2".to_vec()), "not empty");
        assert_eq!(read(10, 0), (0, b"ab".to_vec()));
    }

    #[test]
    fn write_full_writes_where_it_is_told() {
        let f = tempfile::tempfile().unwrap();
        write_full(&f, 5, b"abc").unwrap();
        write_full(&f, 0, b"").unwrap();
        let mut buf = [9; 16];
        assert_eq!(read_full(&f, 0, &mut buf).unwrap(), 8);
        assert_eq!(&buf[..8], b"\0\0\0\0\0abc");
    }

    #[test]
    fn stdout_of_a_pipe_takes_a_stream() {
        let (r, w) = rustix::pipe::pipe().unwrap();
        assert!(write_stream(&w, b"xyz", &|| false).unwrap());
        let mut buf = [0; 8];
        assert_eq!(rustix::io::read(&r, &mut buf).unwrap(), 3);
        assert!(write_full(&w, 0, b"xyz").is_err(), "a pipe has no positions");
    }

    #[test]
    fn a_pipe_that_is_full_is_waited_for_as_long_as_one_wants() {
        let (r, w) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        given_up_or_taken(&r, &w);
    }

    #[test]
    fn a_pipe_that_blocks_is_waited_for_no_longer() {
        let (r, w) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        // Each end has flags of its own.
        rustix::fs::fcntl_setfl(&w, OFlags::empty()).unwrap();
        given_up_or_taken(&r, &w);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pipe_is_opened_once_more_and_does_not_block_there() {
        let (r, w) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        rustix::fs::fcntl_setfl(&w, OFlags::empty()).unwrap();
        let own = open_unblocked(&w).unwrap().unwrap();
        assert!(!write_unblocked(&own, &[0; 1_000_000], &|| false).unwrap(), "more than a pipe takes");
        assert!(!rustix::fs::fcntl_getfl(&w).unwrap().contains(OFlags::NONBLOCK), "it blocks for others");
        while let Ok(1..) = rustix::io::read(&r, &mut [0; 1 << 16]) {}
        given_up_or_taken(&r, &own);
        assert!(open_unblocked(tempfile::tempfile().unwrap()).unwrap().is_none());
    }

    fn given_up_or_taken(r: &impl AsFd, w: &impl AsFd) {
        let content: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
        assert!(!write_stream(w, &content, &|| false).unwrap(), "more than a pipe takes");
        let (mut got, mut buf) = (Vec::new(), vec![0; 1 << 16]);
        let drain = |got: &mut Vec<u8>, buf: &mut [u8]| {
            while let Ok(n @ 1..) = rustix::io::read(r, &mut *buf) {
                got.extend_from_slice(&buf[..n]);
            }
        };
        drain(&mut got, &mut buf);
        assert_eq!(content[..got.len()], got);
        got.clear();
        let got = std::sync::Mutex::new((got, buf));
        let reads = || {
            let (got, buf) = &mut *got.lock().unwrap();
            drain(got, buf);
            true
        };
        assert!(write_stream(w, &content, &reads).unwrap());
        reads();
        assert!(got.into_inner().unwrap().0 == content);
    }
}
