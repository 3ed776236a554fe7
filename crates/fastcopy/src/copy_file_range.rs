//! `copy_file_range(2)`: the kernel, or the server behind it, carries the bytes.
//!
//! Must not know what is done when it is refused.

use std::os::fd::AsFd;

use rustix::io::{Errno, retry_on_intr};

/// `copy_file_range(src, &src_off, dst, &dst_off, len)`, one call: both offsets are moved on by what was copied, and
/// that is returned. 0 is the end of the source, or a source whose bytes only `read` can give (procfs): the caller
/// has to ask `read`.
///
/// # Errors
/// EXDEV, ENOSYS, EOPNOTSUPP, EINVAL, EPERM, EBADF (append-only target), ETXTBSY: not this way. EIO, ENOSPC, EDQUOT,
/// EFBIG, ENOMEM: real failures
/// ([copy_file_range(2)](https://man7.org/linux/man-pages/man2/copy_file_range.2.html)).
pub fn copy_file_range(
    src: impl AsFd,
    src_off: &mut u64,
    dst: impl AsFd,
    dst_off: &mut u64,
    len: usize,
) -> Result<usize, Errno> {
    retry_on_intr(|| rustix::fs::copy_file_range(&src, Some(&mut *src_off), &dst, Some(&mut *dst_off), len))
}
