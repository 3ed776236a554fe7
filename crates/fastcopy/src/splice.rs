//! `sendfile(2)`: the source's pages go to the target without a buffer of ours between them. (The kernel does it as a
//! splice through a pipe that it keeps for the thread.)
//!
//! Must not know what is done when it is refused.

use std::os::fd::AsFd;

use rustix::io::{Errno, retry_on_intr};

/// `sendfile(dst, src, &src_off, len)`, one call, at `dst`'s own position; `src_off` is moved on by what was copied,
/// and that is returned. 0 is the end of the source, or a source that does not say: the caller has to ask `read`.
///
/// # Errors
/// EINVAL, ENOSYS, EOPNOTSUPP: not this way (EINVAL also for an append-only target). Others are real
/// ([sendfile(2)](https://man7.org/linux/man-pages/man2/sendfile.2.html)).
pub fn sendfile(dst: impl AsFd, src: impl AsFd, src_off: &mut u64, len: usize) -> Result<usize, Errno> {
    retry_on_intr(|| rustix::fs::sendfile(&dst, &src, Some(&mut *src_off), len))
}

/// `lseek(dst, off, SEEK_SET)`: where the next [`sendfile`] into `dst` goes.
///
/// # Errors
/// ESPIPE for a target without positions.
pub fn seek_to(dst: impl AsFd, off: u64) -> Result<(), Errno> {
    rustix::fs::seek(&dst, rustix::fs::SeekFrom::Start(off)).map(|_| ())
}
