//! From the page cache to the medium. Must not know when that is owed.
//!
//! Only a completed call that returned 0 is evidence. A call that failed once may succeed the second time with the
//! data lost (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020): what failed is thrown away.

use crate::retry::retry;
use rustix::fd::AsFd;
use std::io;

/// `fdatasync`; on macOS `fcntl(F_FULLFSYNC)`, as fsync there stops at the drive's cache.
pub fn data(fd: impl AsFd) -> io::Result<()> {
    #[cfg(target_os = "macos")]
    return retry(|| rustix::fs::fcntl_fullfsync(fd.as_fd()));
    #[cfg(not(target_os = "macos"))]
    retry(|| rustix::fs::fdatasync(fd.as_fd()))
}

/// `msync(MS_SYNC)` over a mapping of a range: what [`data`] does, for that range. What others are having written out
/// elsewhere in the file is not waited for, as it would be there. Where the file cannot be mapped it is [`data`].
///
/// `fd` is open for reading and writing, `offset` is a multiple of a page, and `length` is not 0.
pub fn range(fd: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if let Some(synced) = mapped(&fd, offset, length) {
        return synced;
    }
    // msync on macOS stops at the drive's cache, as fsync does.
    let _whole = (offset, length);
    data(fd)
}

/// The one call that the kernel has for a range; `None` where there is no mapping. It must be a writable one: msync looks
/// at no other.
#[cfg(target_os = "linux")]
fn mapped(fd: impl AsFd, offset: u64, length: u64) -> Option<io::Result<()>> {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    let length = usize::try_from(length).ok().filter(|length| *length > 0)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place that the kernel chooses. Nothing here reads or writes it, so that a file that is cut
    // meanwhile does no harm.
    let at = unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, fd, offset) }.ok()?;
    // SAFETY: the mapping made above, whole; MS_SYNC changes nothing in it.
    let synced = retry(|| unsafe { msync(at, length, MsyncFlags::SYNC) });
    // SAFETY: the mapping made above, whole; nothing refers to it any more.
    let unmapped = unsafe { munmap(at, length) };
    Some(synced.and(unmapped.map_err(io::Error::from)))
}

/// `fsync`: data and metadata of a file, or the names in a directory; on macOS `F_FULLFSYNC`. Of an `O_PATH` handle, as of a
/// directory that may be written but not read, [`filesystem`].
pub fn all(fd: impl AsFd) -> io::Result<()> {
    #[cfg(target_os = "macos")]
    return retry(|| rustix::fs::fcntl_fullfsync(fd.as_fd()));
    #[cfg(not(target_os = "macos"))]
    or_by_new_file(&fd, retry(|| rustix::fs::fsync(fd.as_fd())))
}

/// `syncfs`: everything of the file system that holds `fd`, other writers' data included.
pub fn filesystem(fd: impl AsFd) -> io::Result<()> {
    or_by_new_file(&fd, retry(|| rustix::fs::syncfs(fd.as_fd())))
}

/// What a sync came to; where that is an `O_PATH` handle of a directory (EBADF: nothing was synced), what `syncfs` of a file comes
/// to that is made in it without a name, for which the rights to write and to pass are enough.
fn or_by_new_file(dir: impl AsFd, synced: io::Result<()>) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, openat, syncfs};
    match synced {
        Err(e) if e.raw_os_error() == Some(libc::EBADF) => {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let mode = Mode::RUSR | Mode::WUSR;
            match retry(|| openat(dir.as_fd(), c".", flags, mode)) {
                Ok(file) => retry(|| syncfs(&file)),
                Err(_) => Err(e),
            }
        }
        other => other,
    }
}

/// `sync_file_range(SYNC_FILE_RANGE_WRITE)`: starts writing a range out (a length of 0: to the end of the file) and does
/// not wait. It makes a later [`data`] shorter and proves nothing (sync_file_range(2), "extremely dangerous" when taken
/// for a guarantee). Does nothing where the kernel or the kind of file does not have it. An error is one of writing out,
/// and a later sync need not tell it again.
pub fn start_writeback(fd: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return file_range(fd, offset, length, libc::SYNC_FILE_RANGE_WRITE);
    #[cfg(not(target_os = "linux"))]
    {
        let _ignored = (fd.as_fd(), offset, length);
        Ok(())
    }
}

/// The same, and waits until the range is written out (a length of 0: to the end of the file), so that its pages can be
/// dropped. Proves as little, and does as little where it is not there.
pub fn wait_writeback(fd: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        file_range(fd, offset, length, libc::SYNC_FILE_RANGE_WRITE | wait)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ignored = (fd.as_fd(), offset, length);
        Ok(())
    }
}

/// Where the kernel, a sandbox or the kind of file does not have the call, nothing is done.
#[cfg(target_os = "linux")]
fn file_range(fd: impl AsFd, offset: u64, length: u64, flags: libc::c_uint) -> io::Result<()> {
    use rustix::fd::AsRawFd;
    const ABSENT: [i32; 4] = [libc::ENOSYS, libc::EINVAL, libc::ESPIPE, libc::EOPNOTSUPP];
    // SAFETY: plain integers and a live descriptor; the call touches no memory of ours.
    let r = unsafe { libc::sync_file_range(fd.as_fd().as_raw_fd(), offset as i64, length as i64, flags) };
    let e = io::Error::last_os_error();
    if r == 0 || e.raw_os_error().is_some_and(|errno| ABSENT.contains(&errno)) { Ok(()) } else { Err(e) }
}
