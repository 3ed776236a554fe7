//! The ladder: clone, `copy_file_range`, `sendfile`, read/write. Which goes first for which file, which errno means
//! the next one, and which one did it. The order and every size below were measured: `docs/decisions/0002-copy-ladder.md`.
//!
//! Must not know names, permissions, or why a copy is wanted.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use crate::copy_file_range::copy_file_range;
use crate::page_cache::Cache;
use crate::read_write::{fallocate_keep_size, pread, pread_as, write_full_as};
use crate::reflink::ficlone;
use crate::rungs::{Pair, Rung, Rungs, Target, Verdict, verdict};
use crate::scratch::Scratch;
use crate::sparse::{BLOCK, Extents, data_runs, length};
use crate::splice::{seek_to, sendfile};
use crate::turn::Turn;

/// Files (and ranges) shorter than this are read and written through a buffer, bytes: a call that copies inside the kernel
/// copies the bytes once instead of twice, and has a pipe to fill and empty for it.
const KERNEL_MIN: u64 = 16 << 10;
/// Files shorter than this are written from a buffer when they are in one already, bytes: who read a file before knowing its
/// length needs one look at it instead of two, and no call more.
const WHOLE_MAX: u64 = 64 << 10;
/// Files shorter than this are written rather than cloned with [`Reflink::Auto`], bytes: a clone costs a transaction of
/// the file system, which takes longer than writing a block or two. Not so where the target is [`Target::Share`].
const CLONE_MIN: u64 = 8 << 10;
/// From this length on blocks are taken before they are written, bytes.
const PREALLOCATE_MIN: u64 = 1 << 20;
/// From this length on a second thread pays for its start, bytes: it has to be quicker than one that has the kernel copy.
const THREADS_MIN: u64 = 24 << 20;
/// More threads than this do not help one file: its inode lock lets one write at a time, the others read meanwhile.
const THREADS_MAX: usize = 4;
/// The most asked of one `copy_file_range` or `sendfile`, bytes: how long a cancel may wait.
const KERNEL_CHUNK: usize = 8 << 20;

/// A regular file to copy from, with what the caller's `fstat` said of it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Open for reading. Its position is not used, and may be moved.
    pub fd: BorrowedFd<'a>,
    /// `st_dev`.
    pub dev: u64,
    /// `st_size`, bytes. 0 may mean that the kernel does not know (procfs): such a file is read to its end.
    pub size: u64,
    /// `st_blocks`, units of 512 bytes. Fewer than `size` needs means: look for holes.
    pub blocks: u64,
}

/// A file to copy into.
#[derive(Clone, Copy, Debug)]
pub struct Dest<'a> {
    /// Open for writing, not for appending if holes are to be kept. Empty for [`copy_file`]: what is a hole in the
    /// source is left alone here. Its position may be moved.
    pub fd: BorrowedFd<'a>,
    /// `st_dev`.
    pub dev: u64,
}

/// Whether blocks may be shared with the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reflink {
    /// Where it works, from 8 KiB on, and on btrfs from 1 byte on.
    Auto,
    /// Or fail.
    Always,
    /// Never: `copy_file_range` is left out too, because it shares blocks where it can.
    Never,
}

/// What becomes of holes and of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparse {
    /// Holes stay holes.
    Auto,
    /// Whole blocks of zeros become holes as well. Not together with a clone, which takes the source as it is.
    Always,
    /// Every byte is written. Not together with a clone, which would keep the holes.
    Never,
}

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether blocks may be shared. [`Reflink::Always`] outranks `sparse`.
    pub reflink: Reflink,
    /// What becomes of holes.
    pub sparse: Sparse,
    /// The most threads for one large file, this one included; 0 and 1 both mean this one alone.
    pub threads: usize,
    /// Whether blocks may be taken before they are written (`fallocate`, the length unchanged) where that is faster.
    pub preallocate: bool,
    /// Whether a copy with holes may have its length before its data, as in a file that only this program sees: xfs takes room behind the end of a
    /// file that grows by writing, and what it took stays as blocks in the hole that follows.
    pub lengthen: bool,
    /// What becomes of the pages that the bytes go through. [`Cache::Drop`] leaves out the calls that copy inside the
    /// kernel, which cannot be asked for it.
    pub cache: Cache,
}

impl Options {
    /// What [`crate::copy()`] uses.
    pub const AUTO: Options = Options {
        reflink: Reflink::Auto,
        sparse: Sparse::Auto,
        threads: 2,
        preallocate: true,
        lengthen: false,
        cache: Cache::Keep,
    };
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The length of the copy, bytes, holes included. Other than `Source::size` when the source has changed, or
    /// when its size was not its length (procfs). A clone does not look: it says `Source::size`, and what it made has the
    /// length of the source by then.
    pub bytes: u64,
    /// How much of `bytes` was left as holes. A clone does not say: 0.
    pub holes: u64,
    /// The lowest rung that was needed.
    pub rung: Rung,
}

/// Which call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Sharing blocks.
    Clone,
    /// A call that reads and writes in one; the kernel does not say which failed, and the source can be read there.
    Copy,
    /// Reading the source.
    Read,
    /// Writing the target.
    Write,
    /// Nothing failed: `observe` said stop.
    Cancelled,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Clone => "clone",
            Side::Copy => "copy",
            Side::Read => "read",
            Side::Write => "write",
            Side::Cancelled => "cancelled",
        })
    }
}

/// Why it was not done.
#[derive(Debug)]
pub struct Failure {
    /// Which call failed.
    pub side: Side,
    /// So many bytes from the start of the file (or range) are in the target; more may be, behind them.
    pub done: u64,
    /// What the kernel said; [`io::ErrorKind::Interrupted`] for [`Side::Cancelled`].
    pub source: io::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.side {
            Side::Cancelled => f.write_str("cancelled"),
            side => write!(f, "{side}: {}", self.source),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Called with the bytes just done (data or hole, at most 8 MiB at a time unless cloned or hole), from the threads
/// that did them. `false` stops the copy.
pub type Observe<'a> = &'a (dyn Fn(u64) -> bool + Sync);

/// Copies a whole file into an empty one.
///
/// What is copied is what the source holds while it is read. A source that grows is copied to `src.size` (to its end
/// when it is small); one that shrinks, to its new end: `bytes` says how far. That a source has changed is
/// for the caller to see, by `fstat` before and after. Metadata is not touched; nothing is synced. No call
/// allocates once `scratch` has its buffers, except for the threads of a large file.
///
/// # Errors
/// The first real error. EXDEV, EOPNOTSUPP and their like lead to the next rung and are not errors, but for
/// [`Reflink::Always`]. EIO, ENOSPC, EDQUOT, EFBIG of any rung end the copy. The target is then undefined beyond
/// `done` bytes, and no block is left taken beyond its length.
pub fn copy_file(
    src: &Source<'_>,
    dst: &Dest<'_>,
    rungs: &Rungs,
    opts: &Options,
    scratch: &mut Scratch,
    observe: Observe<'_>,
) -> Result<Copied, Failure> {
    let job = Job::new(src, dst, rungs, opts, observe);
    if let Some(copied) = job.clone(src.size)? {
        return Ok(copied);
    }
    // Delayed allocation, inline data and compression also take fewer blocks than bytes; they have no holes, and the
    // walk over the extents will find that out with two seeks.
    let holes = src.blocks.saturating_mul(512) < src.size;
    match opts.sparse {
        Sparse::Auto if holes && !job.appends() => job.keep_holes(src.size, scratch),
        Sparse::Always if !job.appends() => job.make_holes(src.size, holes, scratch),
        _ => job.dense(src.size, scratch),
    }
}

/// The first rung alone: shares all blocks of a file with an empty one, where `opts` want that and the devices may.
/// `None`: nothing was done, and nothing speaks against reading and writing. For callers that have rungs of their own below.
///
/// # Errors
/// As [`copy_file`].
pub fn clone_file(
    src: &Source<'_>,
    dst: &Dest<'_>,
    rungs: &Rungs,
    opts: &Options,
    observe: Observe<'_>,
) -> Result<Option<Copied>, Failure> {
    Job::new(src, dst, rungs, opts, observe).clone(src.size)
}

/// Files between these devices that are shorter than this are best read whole before anything else is asked, and written from
/// there, bytes.
#[must_use]
pub fn buffered_below(rungs: &Rungs, reflink: Reflink, src_dev: u64, dst: &Dest<'_>) -> u64 {
    let pair = rungs.pair(src_dev, dst.dev);
    match (rungs.forced(), reflink) {
        (Some(_), _) | (None, Reflink::Always) => 0,
        (None, Reflink::Auto) if rungs.may_here(Rung::Clone, pair) => {
            if Rungs::target(pair, || ask_target(dst.fd)) == Target::Share { 0 } else { CLONE_MIN }
        }
        (None, Reflink::Auto | Reflink::Never) => WHOLE_MAX,
    }
}

/// Which range of a file goes where.
#[derive(Clone, Copy)]
pub struct RangeOf<'a> {
    /// The file that is read.
    pub src: &'a Source<'a>,
    /// Where the range begins in it.
    pub src_off: u64,
    /// The file that is written.
    pub dst: &'a Dest<'a>,
    /// Where the range goes in it.
    pub dst_off: u64,
    /// Bytes.
    pub len: u64,
}

/// Copies `len` bytes at `src_off` to `dst_off`: for a copy that is taken up again, or spread over several workers.
///
/// Writes every byte (never clones, makes no holes, preallocates nothing, does not touch the target's length beyond
/// the range), so ranges of one target may be copied at the same time. A source that ends early gives a short
/// `bytes`; what the target then holds between that and the end of the range is undefined.
///
/// # Errors
/// As [`copy_file`].
pub fn copy_range(
    of: &RangeOf<'_>,
    rungs: &Rungs,
    opts: &Options,
    scratch: &mut Scratch,
    observe: Observe<'_>,
) -> Result<Copied, Failure> {
    let RangeOf { src, src_off, dst, dst_off, len } = *of;
    let job = Job::new(src, dst, rungs, opts, observe);
    let (bytes, rung) = job.range(Range { src_off, dst_off, len }, false, scratch)?;
    Ok(Copied { bytes, holes: 0, rung })
}

#[derive(Clone, Copy)]
struct Range {
    src_off: u64,
    dst_off: u64,
    len: u64,
}

impl Range {
    fn after(self, done: u64) -> Range {
        Range { src_off: self.src_off + done, dst_off: self.dst_off + done, len: self.len - done }
    }
}

/// One copy, and all it must know.
#[derive(Clone, Copy)]
struct Job<'a> {
    src: BorrowedFd<'a>,
    dst: BorrowedFd<'a>,
    rungs: &'a Rungs,
    pair: Option<&'a Pair>,
    opts: &'a Options,
    observe: Observe<'a>,
}

/// How a rung of the kernel's left a range.
enum Left {
    /// Whole.
    Done,
    /// After so many bytes there is something only the next rung can tell.
    At(u64),
}

impl<'a> Job<'a> {
    fn new(
        src: &Source<'a>,
        dst: &Dest<'a>,
        rungs: &'a Rungs,
        opts: &'a Options,
        observe: Observe<'a>,
    ) -> Self {
        Job { src: src.fd, dst: dst.fd, rungs, pair: rungs.pair(src.dev, dst.dev), opts, observe }
    }

    fn fail<T>(side: Side, done: u64, source: impl Into<io::Error>) -> Result<T, Failure> {
        Err(Failure { side, done, source: source.into() })
    }

    /// Tells of `bytes`, of which all up to `done` are there.
    fn tell(&self, bytes: u64, done: u64) -> Result<(), Failure> {
        if bytes == 0 || (self.observe)(bytes) {
            return Ok(());
        }
        Self::fail(Side::Cancelled, done, io::ErrorKind::Interrupted)
    }

    /// Whether the target is open for appending: then nothing can be put anywhere but at its end, in order.
    fn appends(&self) -> bool {
        rustix::fs::fcntl_getfl(self.dst).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::APPEND))
    }

    fn clone(&self, size: u64) -> Result<Option<Copied>, Failure> {
        let try_it = match self.opts.reflink {
            Reflink::Never => false,
            Reflink::Always => true,
            // A size of 0 may be a lie, and a clone of nothing saves nothing.
            Reflink::Auto => {
                let forced = self.rungs.forced() == Some(Rung::Clone);
                self.opts.sparse == Sparse::Auto
                    && size > 0
                    && self.rungs.may_here(Rung::Clone, self.pair)
                    && (size >= CLONE_MIN || forced || self.target() == Target::Share)
            }
        };
        if !try_it {
            return Ok(None);
        }
        let errno = match ficlone(self.dst, self.src) {
            Ok(()) => {
                Rungs::note_worked(Rung::Clone, self.pair);
                self.tell(size, size)?;
                return Ok(Some(Copied { bytes: size, holes: 0, rung: Rung::Clone }));
            }
            Err(errno) => errno,
        };
        let verdict = verdict(errno);
        self.rungs.note_refused(Rung::Clone, self.pair, verdict);
        if verdict == Verdict::Real || self.opts.reflink == Reflink::Always {
            return Self::fail(Side::Clone, 0, errno);
        }
        Ok(None)
    }

    fn target(&self) -> Target {
        Rungs::target(self.pair, || ask_target(self.dst))
    }

    /// All bytes from 0 on, none left out.
    fn dense(&self, size: u64, scratch: &mut Scratch) -> Result<Copied, Failure> {
        let least = match self.rungs.forced() {
            None => KERNEL_MIN,
            Some(Rung::ReadWrite) => Scratch::SIZE as u64,
            Some(_) => 0,
        };
        if size < least || size == 0 {
            // The buffer is longer than the file, so a read that returns less than was asked, at or after the size,
            // has seen the end: one read and one write, and no second read to be told 0.
            let whole = Range { src_off: 0, dst_off: 0, len: u64::MAX };
            let enough = if size == 0 { u64::MAX } else { size };
            let bytes = self.read_write(whole, enough, scratch.buffer(), None)?;
            return Ok(Copied { bytes, holes: 0, rung: Rung::ReadWrite });
        }
        let whole = Range { src_off: 0, dst_off: 0, len: size };
        let (bytes, rung) = self.range(whole, true, scratch)?;
        if bytes < size {
            // Threads may have written behind the end that one of them saw.
            self.set_length(bytes, bytes)?;
        }
        Ok(Copied { bytes, holes: 0, rung })
    }

    /// The data where it is, and nothing where nothing is.
    fn keep_holes(&self, size: u64, scratch: &mut Scratch) -> Result<Copied, Failure> {
        let (mut at, mut holes, mut short) = (0, 0, None);
        let mut rung = None;
        self.lengthen(size)?;
        for extent in Extents::new(self.src, size) {
            let hole = extent.start - at;
            holes += hole;
            self.tell(hole, at)?;
            let len = extent.end - extent.start;
            let range = Range { src_off: extent.start, dst_off: extent.start, len };
            let (bytes, by) =
                self.range(range, true, scratch).map_err(|f| Failure { done: extent.start + f.done, ..f })?;
            rung = rung.max(Some(by));
            if bytes < len {
                short = Some((at, hole, extent.start + bytes));
                break;
            }
            at = extent.end;
        }
        if let Some((before, hole, end)) = short {
            // The source was cut while we read it. When it was cut inside a hole, only its length tells where.
            let now = length(self.src).or_else(|errno| Self::fail(Side::Read, before, errno))?;
            at = now.clamp(before, end);
            holes -= hole - hole.min(at - before);
            self.set_length(at, before)?;
        } else if at < size {
            // A hole at the end; or, for a source that was cut in a hole just now, less of one.
            let now = length(self.src).or_else(|errno| Self::fail(Side::Read, at, errno))?;
            let end = now.clamp(at, size);
            self.set_length(end, at)?;
            self.tell(end - at, end)?;
            holes += end - at;
            at = end;
        }
        Ok(Copied { bytes: at, holes, rung: rung.unwrap_or(Rung::ReadWrite) })
    }

    /// Only blocks that hold something else than zeros.
    fn make_holes(&self, size: u64, holes: bool, scratch: &mut Scratch) -> Result<Copied, Failure> {
        let buf = scratch.buffer();
        let all = if size == 0 { u64::MAX } else { size };
        let long = self.lengthen(size)?;
        // What is a hole already need not be read to know that it is zero.
        let mut extents = Extents::new(self.src, all);
        let mut next = |at| if holes { extents.next() } else { (at < all).then_some(at..all) };
        let (mut at, mut wrote, mut written_to) = (0, 0, 0);
        // Where the hole before the place that was found to be the end begins.
        let mut ended = None;
        'file: while let Some(extent) = next(at) {
            let hole = at;
            self.tell(extent.start - at, at)?;
            at = extent.start;
            while at < extent.end {
                let want = buf.len().min(usize::try_from(extent.end - at).unwrap_or(usize::MAX));
                let n = match pread_as(self.src, at, &mut buf[..want], self.opts.cache) {
                    Ok(0) => {
                        ended = Some(if at == extent.start { hole } else { at });
                        break 'file;
                    }
                    Ok(n) => n,
                    Err(e) => return Self::fail(Side::Read, at, e),
                };
                for run in data_runs(&buf[..n], at, BLOCK) {
                    let off = at + run.start as u64;
                    write_full_as(self.dst, off, &buf[run.clone()], self.opts.cache)
                        .or_else(|e| Self::fail(Side::Write, at, e))?;
                    written_to = off + run.len() as u64;
                    wrote += run.len() as u64;
                }
                at += n as u64;
                self.tell(n as u64, at)?;
            }
        }
        // A hole at the end, or an end within a hole: only the length tells where. (An end that was read says so.)
        let (least, most) = ended.map_or((at, size.max(at)), |hole| (hole, at));
        if least < most {
            let now = length(self.src).or_else(|errno| Self::fail(Side::Read, least, errno))?;
            let end = now.clamp(least, most);
            self.tell(end.saturating_sub(at), end)?;
            at = end;
        }
        if written_to.max(long) != at {
            self.set_length(at, written_to)?;
        }
        Ok(Copied { bytes: at, holes: at - wrote, rung: Rung::ReadWrite })
    }

    /// One range without holes in it, or with holes that need not be kept: by the best rung, and what it leaves by
    /// the next.
    fn range(&self, range: Range, whole: bool, scratch: &mut Scratch) -> Result<(u64, Rung), Failure> {
        let forced = self.rungs.forced();
        if range.len < KERNEL_MIN && forced.is_none() {
            let bytes = self.read_write(range, u64::MAX, scratch.buffer(), None)?;
            return Ok((bytes, Rung::ReadWrite));
        }
        let target = self.target();
        let threads = if range.len < THREADS_MIN || self.appends() {
            1
        } else {
            self.opts.threads.clamp(1, THREADS_MAX)
        };
        let took = whole && self.preallocate(range, target);
        let done = self.climb(range, target, threads, scratch);
        if took && done.as_ref().map_or(true, |(bytes, _)| *bytes < range.len) {
            // What was taken beyond the end goes back. A failure here wastes blocks until the file is written
            // or removed; the copy's own outcome matters more.
            if let Ok(now) = length(self.dst) {
                rustix::fs::ftruncate(self.dst, now).ok();
            }
        }
        done
    }

    fn climb(
        &self,
        range: Range,
        target: Target,
        threads: usize,
        scratch: &mut Scratch,
    ) -> Result<(u64, Rung), Failure> {
        let mut done = 0;
        let mut asked = None;
        let forced = self.rungs.forced();
        // Two threads beat one call of the kernel's, except where the bytes need not come here at all.
        let inside = self.opts.cache == Cache::Keep;
        let kernel_first = inside && (threads == 1 || target == Target::Remote);
        let may_share = self.opts.reflink != Reflink::Never && self.opts.sparse != Sparse::Never;
        for (rung, first) in
            [(Rung::CopyFileRange, kernel_first && may_share), (Rung::Sendfile, inside && threads == 1)]
        {
            // Where one stopped half-way, something is odd about the file, and read has the last word.
            let wanted = forced.map_or(first, |forced| forced == rung) && done == 0;
            if wanted && self.rungs.may_here(rung, self.pair) {
                match self.kernel(rung, range)? {
                    Left::Done => return Ok((range.len, rung)),
                    Left::At(bytes) => (done, asked) = (bytes, Some(rung)),
                }
            }
        }
        let rest = range.after(done);
        let bytes = if threads > 1 {
            self.read_write_threads(rest, threads, scratch)
        } else {
            self.read_write(rest, u64::MAX, scratch.buffer(), None)
        }
        .map_err(|f| Failure { done: done + f.done, ..f })?;
        // A rung that stopped at the true end of the file did all there was.
        let rung = asked.filter(|_| bytes == 0 && done > 0).unwrap_or(Rung::ReadWrite);
        Ok((done + bytes, rung))
    }

    /// One of the two rungs that copy inside the kernel.
    fn kernel(&self, rung: Rung, range: Range) -> Result<Left, Failure> {
        let mut src_off = range.src_off;
        let mut dst_off = range.dst_off;
        if rung == Rung::Sendfile && seek_to(self.dst, dst_off).is_err() {
            return Ok(Left::At(0));
        }
        loop {
            let done = src_off - range.src_off;
            if done == range.len {
                Rungs::note_worked(rung, self.pair);
                return Ok(Left::Done);
            }
            let len = KERNEL_CHUNK.min(usize::try_from(range.len - done).unwrap_or(KERNEL_CHUNK));
            let got = match rung {
                Rung::CopyFileRange => copy_file_range(self.src, &mut src_off, self.dst, &mut dst_off, len),
                _ => sendfile(self.dst, self.src, &mut src_off, len),
            };
            match got {
                // The end, or a file whose bytes only `read` gives: it has the last word.
                Ok(0) => return Ok(Left::At(done)),
                Ok(n) => self.tell(n as u64, done + n as u64)?,
                Err(errno) => {
                    let verdict = verdict(errno);
                    if verdict == Verdict::Real {
                        // One call does both and does not say which of them failed; the source is to blame where it
                        // cannot be read there.
                        return match pread(self.src, src_off, &mut [0]) {
                            Err(e) => Self::fail(Side::Read, done, e),
                            Ok(_) => Self::fail(Side::Copy, done, errno),
                        };
                    }
                    self.rungs.note_refused(rung, self.pair, verdict);
                    return Ok(Left::At(done));
                }
            }
        }
    }

    /// Reads and writes until the range is done or the file ends. A short read at or after `enough` bytes is taken
    /// for the end.
    /// `turn` is held while writing.
    fn read_write(
        &self,
        range: Range,
        enough: u64,
        buf: &mut [u8],
        turn: Option<&Turn>,
    ) -> Result<u64, Failure> {
        let mut done = 0;
        while done < range.len {
            let want = buf.len().min(usize::try_from(range.len - done).unwrap_or(usize::MAX));
            let n = match pread_as(self.src, range.src_off + done, &mut buf[..want], self.opts.cache) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) => return Self::fail(Side::Read, done, e),
            };
            let turn = turn.map(Turn::take);
            write_full_as(self.dst, range.dst_off + done, &buf[..n], self.opts.cache)
                .or_else(|e| Self::fail(Side::Write, done, e))?;
            drop(turn);
            done += n as u64;
            self.tell(n as u64, done)?;
            if n < want && done >= enough {
                break;
            }
        }
        Ok(done)
    }

    /// The same by several threads, each taking the next buffer's length of the file: one reads while another holds
    /// the target's inode lock. In order as near as may be, so that readahead and the block allocator see one stream.
    fn read_write_threads(
        &self,
        range: Range,
        threads: usize,
        scratch: &mut Scratch,
    ) -> Result<u64, Failure> {
        let next = AtomicU64::new(0);
        // Where the source was seen to end.
        let end = AtomicU64::new(range.len);
        let stop = AtomicBool::new(false);
        let failure = Mutex::new(None::<Failure>);
        let chunk = Scratch::SIZE as u64;
        // A thread that waits for the inode's lock in the kernel spins, and takes the processor from the thread that holds it.
        let turn = Turn::default();
        let work = |buf: &mut [u8]| {
            while !stop.load(Relaxed) {
                let at = next.fetch_add(chunk, Relaxed);
                if at >= end.load(Relaxed) {
                    break;
                }
                let part = Range { len: chunk.min(range.len - at), ..range.after(at) };
                match self.read_write(part, u64::MAX, buf, Some(&turn)) {
                    Ok(bytes) if bytes < part.len => {
                        end.fetch_min(at + bytes, Relaxed);
                    }
                    Ok(_) => {}
                    Err(f) => {
                        stop.store(true, Relaxed);
                        let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                        let done = at + f.done;
                        match first.as_mut() {
                            None => *first = Some(Failure { done, ..f }),
                            // The lowest gap is where the unbroken part ends.
                            Some(first) => first.done = first.done.min(done),
                        }
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            let work = &work;
            let mut buffers = scratch.several(threads);
            let own = buffers.next();
            for buf in buffers {
                // No thread to be had: then fewer do it.
                if std::thread::Builder::new().spawn_scoped(scope, move || work(buf)).is_err() {
                    break;
                }
            }
            if let Some(buf) = own {
                work(buf);
            }
        });
        let end = end.into_inner();
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(f) => Err(Failure { done: f.done.min(end), ..f }),
            None => Ok(end),
        }
    }

    /// Takes the blocks of a range, the length unchanged; whether any were taken. Never fails: what the space is
    /// worth, the write will say, and a filesystem may find room for a write where it found none for a promise.
    fn preallocate(&self, range: Range, target: Target) -> bool {
        if !self.opts.preallocate
            || range.len < PREALLOCATE_MIN
            || target != Target::Preallocate
            || !Rungs::may_fallocate(self.pair)
        {
            return false;
        }
        match fallocate_keep_size(self.dst, range.dst_off, range.len) {
            Ok(()) => true,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.rungs.note_no_fallocate(self.pair);
                false
            }
            // ENOSPC may have taken a part.
            Err(_) => true,
        }
    }

    /// Gives the target its length before its data, where that is wanted, and returns the length that it has.
    fn lengthen(&self, size: u64) -> Result<u64, Failure> {
        if !self.opts.lengthen {
            return Ok(0);
        }
        self.set_length(size, 0)?;
        Ok(size)
    }

    fn set_length(&self, len: u64, done: u64) -> Result<(), Failure> {
        rustix::io::retry_on_intr(|| rustix::fs::ftruncate(self.dst, len))
            .or_else(|errno| Self::fail(Side::Write, done, errno))
    }
}

/// `fstatfs(fd)`: whether taking blocks before they are written is faster on the file system of `dst`, as [`copy_file`]
/// does it.
#[must_use]
pub fn pays_to_preallocate(dst: BorrowedFd<'_>) -> bool {
    ask_target(dst) == Target::Preallocate
}

/// `fstatfs(fd)`: whether every byte that is written takes room of its own on the file system of `dst`, so that what is free
/// says what fits: it does not where blocks may be compressed, or where we do not know.
#[must_use]
pub fn stores_every_byte(dst: BorrowedFd<'_>) -> bool {
    matches!(ask_target(dst), Target::Preallocate | Target::Memory)
}

/// `fstatfs(fd)`: what kind of filesystem the target is on.
fn ask_target(dst: BorrowedFd<'_>) -> Target {
    let Ok(fs) = rustix::fs::fstatfs(dst) else { return Target::Plain };
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation, clippy::unnecessary_cast)]
    match fs.f_type as u32 {
        // ext2/3/4, XFS: an unwritten block is written in place, and taking all at once is cheaper.
        0xEF53 | 0x5846_5342 => Target::Preallocate,
        0x9123_683E => Target::Share,
        // NFS, SMB (three of its names), Ceph, FUSE, AFS, 9P, Lustre.
        0x6969 | 0x517B | 0xFE53_4D42 | 0xFF53_4D42 | 0x00C3_6400 | 0x6573_5546 | 0x5346_414F
        | 0x0102_1997 | 0x0BD0_0BD0 => Target::Remote,
        // tmpfs: taking memory first saves the writes nothing.
        0x0102_1994 => Target::Memory,
        _ => Target::Plain,
    }
}
