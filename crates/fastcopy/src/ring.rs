//! `io_uring(7)`: reads and writes of several files under way at once, handed to the kernel by one call.
//!
//! Must not know what is copied or why, nor when it pays. Memory that the kernel reads or writes belongs to the ring
//! and is only lent; descriptors are borrowed for longer than anything is under way. Both hold because all work is done
//! inside [`Ring::scope`], which does not return before the kernel has given everything back.

use std::fmt;
use std::io;
use std::time::Duration;

#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64"
    )
))]
#[path = "ring/linux.rs"]
mod imp;
#[cfg(not(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64"
    )
)))]
#[path = "ring/absent.rs"]
mod imp;

pub use imp::{Block, Ring, Submission};

/// How large a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks of memory, and so the most operations under way at once; 1 to [`Shape::BLOCKS_MAX`].
    pub blocks: usize,
    /// Bytes of one, a multiple of [`Shape::ALIGN`].
    pub block_bytes: usize,
    /// Whether the kernel is told of the blocks once and pins them (`IORING_REGISTER_BUFFERS`). That saves it a walk
    /// over page tables at each direct read or write, and costs locked memory (RLIMIT_MEMLOCK); where there is not
    /// enough of it, the ring goes without.
    pub registered: bool,
}

impl Shape {
    /// The most blocks of one ring.
    pub const BLOCKS_MAX: usize = 256;
    /// What a block is aligned to, bytes: enough for direct I/O on every disk of today.
    pub const ALIGN: usize = 4096;
    /// The largest block, bytes.
    pub const BLOCK_BYTES_MAX: usize = 64 << 20;
}

/// Why there is no ring. Not an error for the caller: plain calls do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// This kernel has none (ENOSYS), or this is no Linux, or no processor this crate knows the layout for.
    Missing,
    /// The system forbids it: `kernel.io_uring_disabled`, a seccomp filter (EPERM, EACCES).
    Forbidden,
    /// The kernel's is older than 5.6 and has no plain reads.
    TooOld,
    /// No memory or descriptors for it: the errno.
    Refused(i32),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unavailable::Missing => f.write_str("this kernel has no io_uring"),
            Unavailable::Forbidden => f.write_str("io_uring is forbidden here"),
            Unavailable::TooOld => f.write_str("this kernel's io_uring is too old"),
            Unavailable::Refused(errno) => write!(f, "{}", io::Error::from_raw_os_error(*errno)),
        }
    }
}

/// What became of one operation.
#[derive(Debug)]
pub struct Done<'scope> {
    /// What the operation was called when it was handed in.
    pub token: u64,
    /// Bytes; fewer than asked only when the file ended. Or what the kernel said: EINTR and EAGAIN were retried.
    pub result: io::Result<usize>,
    /// The memory it was done with, back from the kernel.
    pub block: Block<'scope>,
}

/// What waiting for an operation came to.
#[derive(Debug)]
pub enum Waited<'scope> {
    /// One is done.
    Done(Done<'scope>),
    /// None was, for so long.
    NotYet,
    /// Nothing is under way.
    Idle,
}

/// A wait without an end.
pub const FOR_EVER: Duration = Duration::MAX;

/// Whether a ring could be had here and now: makes the smallest and takes it down again.
///
/// # Errors
/// Why not.
pub fn available() -> Result<(), Unavailable> {
    Ring::new(Shape { blocks: 1, block_bytes: Shape::ALIGN, registered: false }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_write;
    use std::os::fd::{AsFd, OwnedFd};
    use std::panic::AssertUnwindSafe;

    fn ring(blocks: usize, block_bytes: usize, registered: bool) -> Option<Ring> {
        match Ring::new(Shape { blocks, block_bytes, registered }) {
            Ok(ring) => Some(ring),
            Err(why) => {
                skips::here(&why.to_string());
                None
            }
        }
    }

    fn file(bytes: &[u8]) -> OwnedFd {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        read_write::write_full(&file, 0, bytes).unwrap();
        file
    }

    fn noise(bytes: usize) -> Vec<u8> {
        (0..bytes as u64)
            .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678) >> 56) as u8)
            .collect()
    }

    /// Copies with reads and writes of the ring, as many under way as there are blocks.
    fn copy(ring: &mut Ring, from: &OwnedFd, to: &OwnedFd, bytes: u64) -> io::Result<u64> {
        let step = ring.block_bytes() as u64;
        ring.scope(|submission| {
            let (mut at, mut done) = (0, 0);
            loop {
                while at < bytes
                    && let Some(block) = submission.take()
                {
                    submission.read(from.as_fd(), at, step.min(bytes - at) as usize, block, at << 1);
                    at += step;
                }
                match submission.wait(FOR_EVER)? {
                    Waited::Done(Done { token, result, block }) if token & 1 == 0 => {
                        submission.write(to.as_fd(), token >> 1, result?, block, token | 1);
                    }
                    Waited::Done(Done { result, block, .. }) => {
                        done += result? as u64;
                        submission.give(block);
                    }
                    Waited::NotYet => {}
                    Waited::Idle => return Ok(done),
                }
            }
        })
    }

    #[test]
    fn what_is_read_is_written() {
        for (blocks, block_bytes, registered) in
            [(1, 4096, false), (3, 4096, true), (8, 65536, false), (64, 8192, true)]
        {
            let Some(mut ring) = ring(blocks, block_bytes, registered) else { return };
            for bytes in [0, 1, 4095, 4096, 4097, 70_000, 1 << 20] {
                let data = noise(bytes);
                let (from, to) = (file(&data), file(b""));
                let done = copy(&mut ring, &from, &to, bytes as u64).unwrap();
                assert_eq!(done, bytes as u64, "{blocks} blocks of {block_bytes}");
                let mut landed = vec![0; bytes + 1];
                assert_eq!(read_write::read_full(&to, 0, &mut landed).unwrap(), bytes);
                assert!(landed[..bytes] == data, "{blocks} blocks of {block_bytes}, {bytes} bytes");
            }
        }
    }

    #[test]
    fn a_read_is_short_only_at_the_end_and_an_error_is_the_kernels() {
        let Some(mut ring) = ring(4, 8192, false) else { return };
        let data = noise(10_000);
        let from = file(&data);
        let write_only = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
        ring.scope(|submission| {
            for (token, at) in [(1, 0), (2, 8192), (3, 10_000), (4, 99_999)] {
                let block = submission.take().unwrap();
                submission.read(from.as_fd(), at, 8192, block, token);
            }
            assert!(submission.take().is_none(), "all four are lent");
            let mut got = Vec::new();
            while let Waited::Done(done) = submission.wait(FOR_EVER).unwrap() {
                let n = done.result.unwrap();
                let want = data.get([0, 8192, 10_000, 99_999][done.token as usize - 1]..).unwrap_or_default();
                assert!(submission.bytes(&done.block)[..n] == want[..n]);
                got.push((done.token, n));
                submission.give(done.block);
            }
            got.sort_unstable();
            assert_eq!(got, [(1, 8192), (2, 1808), (3, 0), (4, 0)]);
            let block = submission.take().unwrap();
            submission.read(write_only.as_fd(), 0, 10, block, 5);
            let Waited::Done(done) = submission.wait(FOR_EVER).unwrap() else { panic!() };
            assert_eq!(done.result.unwrap_err().raw_os_error(), Some(libc::EBADF));
        });
    }

    /// A read of a pipe without a writer is never done by itself.
    #[test]
    fn what_is_under_way_is_called_back_before_the_scope_ends() {
        let Some(mut ring) = ring(2, 4096, false) else { return };
        let (read, write) = rustix::pipe::pipe().unwrap();
        ring.scope(|submission| {
            let block = submission.take().unwrap();
            submission.read(read.as_fd(), 0, 4096, block, 7);
            assert!(matches!(submission.wait(Duration::from_millis(1)).unwrap(), Waited::NotYet));
        });
        // Had the read outlived the scope, it would take these bytes and put them into a block.
        rustix::io::write(&write, b"late").unwrap();
        let mut room = [0; 8];
        assert_eq!(rustix::io::read(&read, &mut room).unwrap(), 4);
        // And the ring is whole again, also after a panic.
        let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
            ring.scope(|submission| {
                let block = submission.take().unwrap();
                submission.read(read.as_fd(), 0, 4096, block, 8);
                assert!(matches!(submission.wait(Duration::ZERO).unwrap(), Waited::NotYet));
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
        ring.scope(|submission| {
            assert!(
                submission.take().is_some() && submission.take().is_some() && submission.take().is_none()
            );
            assert!(matches!(submission.wait(FOR_EVER).unwrap(), Waited::Idle));
        });
        let (from, to) = (file(b"abc"), file(b""));
        assert_eq!(copy(&mut ring, &from, &to, 3).unwrap(), 3);
    }
}
