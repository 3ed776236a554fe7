//! Copying by name: [`copy`], with the contract of [`std::fs::copy`], and [`copy_with`], which takes options and keeps
//! more of what went wrong.
//!
//! Follows links and resolves names as the system does; a program that copies below directories it does not trust
//! opens its files itself and calls [`copy_file`].

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::retry_on_intr;

use crate::copy::{Copied, Dest, Options, Source, copy_file};
use crate::read_write::{pread, write_stream};
use crate::rungs::{Rung, Rungs};
use crate::scratch::Scratch;

/// The one global of this crate: what [`copy`] and [`copy_with`] have learnt about devices in this process. It is
/// never needed for a right copy, only for one without failed calls.
static RUNGS: Rungs = Rungs::new();

/// A copy by name that failed.
#[derive(Debug)]
pub struct PathError {
    /// What was being done, as in "cannot {op}".
    pub op: &'static str,
    /// The source as it was given.
    pub from: PathBuf,
    /// The target as it was given.
    pub to: PathBuf,
    /// What the kernel said, its errno kept ([`io::Error::raw_os_error`]).
    pub source: io::Error,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathError { op, from, to, source } = self;
        write!(f, "copying {} to {}: cannot {op}: {source}", from.display(), to.display())
    }
}

impl std::error::Error for PathError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Copies the content and the permission bits of one file to another, which is truncated or created; returns the
/// bytes copied. [`std::fs::copy`] in all but these: it keeps holes, shares blocks where it can, does not wait for a
/// writer when the source is a FIFO, and refuses to copy a file onto itself instead of emptying it.
///
/// # Errors
/// The kind of what went wrong, with both paths in the text. The errno is in the [`PathError`] inside
/// ([`io::Error::get_ref`], then `downcast_ref`). A source that is not a regular file is
/// [`io::ErrorKind::InvalidInput`].
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    match copy_with(from, to, &Options::AUTO) {
        Ok(copied) => Ok(copied.bytes),
        Err(e) => Err(io::Error::new(e.source.kind(), e)),
    }
}

/// [`copy`] with options, telling which rung did it.
///
/// # Errors
/// As [`copy`], with the errno at hand.
pub fn copy_with(from: impl AsRef<Path>, to: impl AsRef<Path>, opts: &Options) -> Result<Copied, PathError> {
    let (from, to) = (from.as_ref(), to.as_ref());
    by_path(from, to, opts).map_err(|(op, source)| PathError {
        op,
        from: from.to_path_buf(),
        to: to.to_path_buf(),
        source,
    })
}

type Failed = (&'static str, io::Error);

fn failed<E: Into<io::Error>>(op: &'static str) -> impl Fn(E) -> Failed {
    move |e| (op, e.into())
}

fn refuse<T>(op: &'static str, why: &'static str) -> Result<T, Failed> {
    Err((op, io::Error::new(io::ErrorKind::InvalidInput, why)))
}

fn by_path(from: &Path, to: &Path, opts: &Options) -> Result<Copied, Failed> {
    // NONBLOCK is for FIFOs, which are refused below, and nothing to regular files.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let src =
        retry_on_intr(|| rustix::fs::open(from, flags, Mode::empty())).map_err(failed("open source"))?;
    let src_stat = rustix::fs::fstat(&src).map_err(failed("stat source"))?;
    if FileType::from_raw_mode(src_stat.st_mode) != FileType::RegularFile {
        return refuse(
            "open source",
            "the source path is neither a regular file nor a symlink to a regular file",
        );
    }
    let mode = Mode::from_raw_mode(src_stat.st_mode);
    // Truncated only once it is known not to be the source.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    let dst = retry_on_intr(|| rustix::fs::open(to, flags, mode)).map_err(failed("create target"))?;
    let dst_stat = rustix::fs::fstat(&dst).map_err(failed("stat target"))?;
    let mut scratch = Scratch::new();
    if FileType::from_raw_mode(dst_stat.st_mode) != FileType::RegularFile {
        // A device or a FIFO takes a stream, and keeps its own mode.
        return stream(&src, &dst, &mut scratch);
    }
    if (src_stat.st_dev, src_stat.st_ino) == (dst_stat.st_dev, dst_stat.st_ino) {
        return refuse("create target", "source and target are the same file");
    }
    if dst_stat.st_size != 0 {
        retry_on_intr(|| rustix::fs::ftruncate(&dst, 0)).map_err(failed("truncate target"))?;
    }
    if mode != Mode::from_raw_mode(dst_stat.st_mode) {
        // As std: the bits are the source's whatever the umask took, and before the content is there to be read.
        rustix::fs::fchmod(&dst, mode).map_err(failed("set mode of target"))?;
    }
    let source = source_of(&src, &src_stat);
    let dest = Dest { fd: dst.as_fd(), dev: dst_stat.st_dev };
    copy_file(&source, &dest, &RUNGS, opts, &mut scratch, &|_| true).map_err(|f| {
        let op = match f.side {
            crate::copy::Side::Clone => "clone",
            crate::copy::Side::Read => "read source",
            crate::copy::Side::Write => "write target",
            _ => "copy",
        };
        (op, f.source)
    })
}

fn source_of<'a>(fd: &'a OwnedFd, stat: &Stat) -> Source<'a> {
    Source {
        fd: fd.as_fd(),
        dev: stat.st_dev,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
    }
}

fn stream(src: &OwnedFd, dst: &OwnedFd, scratch: &mut Scratch) -> Result<Copied, Failed> {
    let buf = scratch.buffer();
    let mut bytes = 0;
    loop {
        let n = pread(src, bytes, buf).map_err(failed("read source"))?;
        if n == 0 {
            return Ok(Copied { bytes, holes: 0, rung: Rung::ReadWrite });
        }
        write_stream(dst, &buf[..n], &|| true).map_err(failed("write target"))?;
        bytes += n as u64;
    }
}
