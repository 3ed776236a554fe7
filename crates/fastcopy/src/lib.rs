//! Copies a file by the cheapest way that the kernel has for it, and says which one it was.
//!
//! The lowest crate of bcmr, usable by itself: [`copy()`] has the contract of [`std::fs::copy`]. Beneath it lie the
//! primitives it is made of, each named as the kernel names it. This crate asks the kernel; it must not know policy,
//! progress, sessions or any wire. All `unsafe` and all `cfg(target_os)` of the program live here.

pub mod child;
pub mod clock;
pub mod close;
pub mod copy;
pub mod copy_file_range;
pub mod dir;
pub mod flow;
pub mod heritage;
mod info;
pub mod memory;
pub mod meta;
pub mod names;
pub mod page_cache;
pub mod pass;
pub mod path;
pub mod people;
pub mod poll;
pub mod process;
pub mod read_write;
pub mod reflink;
mod retry;
pub mod ring;
pub mod rungs;
pub mod scratch;
pub mod signal;
pub mod sparse;
pub mod splice;
pub mod stack;
pub mod still;
pub mod sync;
pub mod turn;
pub mod wall;
pub mod xattr;

pub use copy::{
    Copied, Dest, Failure, Observe, Options, RangeOf, Reflink, Side, Source, Sparse, copy_file, copy_range,
};
pub use path::{PathError, copy, copy_with};
pub use rungs::{Rung, Rungs};
pub use scratch::Scratch;

/// The errno values callers branch on.
pub mod errno {
    pub use libc::{
        EACCES, EAGAIN, EBADF, EBUSY, ECANCELED, ECONNABORTED, ECONNRESET, EDQUOT, EEXIST, EFBIG, EINTR,
        EINVAL, EIO, EISDIR, ELOOP, EMFILE, EMLINK, ENAMETOOLONG, ENFILE, ENODATA, ENOENT, ENOMEM, ENOSPC,
        ENOSYS, ENOTDIR, ENOTEMPTY, ENOTSUP, ENOTTY, ENXIO, EOPNOTSUPP, EPERM, EPIPE, EROFS, ESTALE,
        ETIMEDOUT, ETXTBSY, EXDEV,
    };
}
