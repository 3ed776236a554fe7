//! `ioctl(FICLONE)`: the target shares the source's blocks until one of them is written to.
//!
//! Must not know what is done when it is refused.

use std::os::fd::AsFd;

use rustix::io::{Errno, retry_on_intr};

/// `ioctl(dst, FICLONE, src)`: the whole of `src`, holes and all, becomes the content of `dst`.
///
/// # Errors
/// EOPNOTSUPP, ENOTTY, EINVAL: not this filesystem or not this file. EXDEV: not between these two. EPERM: the target
/// is append-only or immutable. ETXTBSY: a swap file. EIO, ENOSPC, EDQUOT: real failures
/// ([FICLONE(2const)](https://man7.org/linux/man-pages/man2/FICLONE.2const.html)).
pub fn ficlone(dst: impl AsFd, src: impl AsFd) -> Result<(), Errno> {
    retry_on_intr(|| rustix::fs::ioctl_ficlone(&dst, &src))
}
