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

/// `fsync`: data and metadata of a file, or the names in a directory; on macOS `F_FULLFSYNC`.
pub fn all(fd: impl AsFd) -> io::Result<()> {
    #[cfg(target_os = "macos")]
    return retry(|| rustix::fs::fcntl_fullfsync(fd.as_fd()));
    #[cfg(not(target_os = "macos"))]
    retry(|| rustix::fs::fsync(fd.as_fd()))
}

/// `syncfs`: everything of the file system that holds `fd`, other writers' data included.
pub fn filesystem(fd: impl AsFd) -> io::Result<()> {
    retry(|| rustix::fs::syncfs(fd.as_fd()))
}

/// `sync_file_range(SYNC_FILE_RANGE_WRITE)`: starts writing a range out (a length of 0: to the end of the file) and does
/// not wait. It makes a later [`data`] shorter and proves nothing (sync_file_range(2), "extremely dangerous" when taken
/// for a guarantee). Does nothing where the kernel or the kind of file does not have it. An error is one of writing out,
/// and a later sync need not tell it again.
pub fn start_writeback(fd: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return match file_range(fd, offset, length, libc::SYNC_FILE_RANGE_WRITE) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE)) => Ok(()),
        done => done,
    };
    #[cfg(not(target_os = "linux"))]
    {
        let _ignored = (fd.as_fd(), offset, length);
        Ok(())
    }
}

/// The same, and waits until the range is written out (a length of 0: to the end of the file), so that its pages can be
/// dropped. Proves as little.
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

#[cfg(target_os = "linux")]
fn file_range(fd: impl AsFd, offset: u64, length: u64, flags: libc::c_uint) -> io::Result<()> {
    use rustix::fd::AsRawFd;
    // SAFETY: plain integers and a live descriptor; the call touches no memory of ours.
    let r = unsafe { libc::sync_file_range(fd.as_fd().as_raw_fd(), offset as i64, length as i64, flags) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
