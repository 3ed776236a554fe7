//! Filling through a ring: files of a batch read at once, large files past the page cache.
//!
//! Must not decide what lands: it takes jobs that [`super::sys::Sys`] has staged and leaves those alone that plain calls
//! do as well or better. When it pays, and what was tried and lost: docs/decisions/0006-ring.md.

use super::{Body, Fault, Fill, Job, Kernel, Placement, Side, changed, tee};
use crate::error::{Code, Op, Reason};
use crate::event::Engine;
use crate::policy::{Io, Pick, Reflink, Sparse};
use fastcopy::copy;
use fastcopy::meta;
use fastcopy::read_write::{is_cached, reopen_direct, reopen_direct_write, will_need, write_full};
use fastcopy::ring::{Block, Done, Ring, Shape, Submission, Unavailable, Waited};
use fastcopy::{Rung, Rungs, errno};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// From this size (bytes) on `--direct-io` goes past the page cache: below it the ends of a file, which cannot, and the
/// two further opens weigh too much.
const DIRECT_BYTES_MIN: u64 = 1 << 20;
/// From this size (bytes) on room is reserved first, as plain calls do (docs/decisions/0002-copy-ladder.md).
const PREALLOCATE_BYTES_MIN: u64 = 1 << 20;
/// Blocks of a batch's ring: with a few small files to a batch, all of it is asked for at once.
const BATCH_BLOCKS: usize = 64;
/// The most memory of one worker's ring, bytes.
const RING_BYTES_MAX: usize = 16 << 20;

/// Whether and how a run uses rings; all its workers share it.
pub(crate) struct Rings {
    io: Io,
    /// Why there is none, once that is known.
    missing: OnceLock<Unavailable>,
    /// Files with content that got their names, whichever way it came.
    landed: AtomicU64,
    files: AtomicU64,
    direct_files: AtomicU64,
    not_direct_files: AtomicU64,
}

/// One worker's rings, made when they are first needed.
#[derive(Default)]
pub(crate) struct WorkerRings {
    batch: Option<Ring>,
    direct: Option<Ring>,
}

/// The two kinds of work there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Through the page cache.
    Cached,
    /// Past it.
    Direct,
}

/// A file on its way.
struct Filling<'f, 'b> {
    job: usize,
    src: BorrowedFd<'f>,
    dst: BorrowedFd<'f>,
    size: u64,
    /// Where the next read begins.
    at: u64,
    /// Blocks that the kernel has, or that wait for their turn to be hashed.
    blocks: usize,
    hasher: Option<blake3::Hasher>,
    /// So much is hashed.
    hashed: u64,
    waiting: Vec<(u64, Block<'b>)>,
    /// What is behind the last whole block of the disk: it cannot be written past the cache.
    tail: Vec<u8>,
    fault: Option<Fault>,
    /// The file system will not have it direct.
    refused: bool,
    /// The kernel could start no thread for it.
    unserved: bool,
}

impl Rings {
    pub(crate) fn new(io: Io) -> Rings {
        Rings {
            io,
            missing: OnceLock::new(),
            landed: AtomicU64::new(0),
            files: AtomicU64::new(0),
            direct_files: AtomicU64::new(0),
            not_direct_files: AtomicU64::new(0),
        }
    }

    /// When pages are dropped behind a copy.
    pub(super) fn drop_cache(&self) -> crate::policy::DropCache {
        // Direct operations go past it.
        if self.io.direct { crate::policy::DropCache::Never } else { self.io.cache }
    }

    pub(super) fn preallocates(&self) -> bool {
        self.io.preallocate
    }

    /// Whether open files are wanted, however small: a ring reads them, or the kernel is told of them first.
    pub(super) fn wants_files(&self) -> bool {
        self.io.pick == Pick::Ring || self.io.readahead
    }

    /// A file with content got its name.
    pub(crate) fn landed(&self) {
        self.landed.fetch_add(1, Ordering::Relaxed);
    }

    /// What is to be told of it in the end; nothing when there was no choice.
    pub(crate) fn said(&self) -> Option<Engine> {
        let files = self.landed.load(Ordering::Relaxed);
        let ring_files = self.files.load(Ordering::Relaxed);
        let had_choice = (self.io.pick != Pick::Sys || self.io.direct) && files > 0;
        had_choice.then(|| Engine {
            asked: self.io.pick == Pick::Ring || self.io.direct,
            ring_files,
            sys_files: files.saturating_sub(ring_files),
            direct_files: self.direct_files.load(Ordering::Relaxed),
            not_direct_files: self.not_direct_files.load(Ordering::Relaxed),
            missing: self.missing.get().copied(),
        })
    }

    /// `--readahead`: the kernel begins to read every source of a batch before the first is waited for.
    pub(super) fn advise(&self, jobs: &[Job<'_, impl Kernel>]) {
        if !self.io.readahead {
            return;
        }
        for job in jobs.iter().filter(|j| j.fault.is_none() && j.append.is_none()) {
            if let Body::File(src) = &job.body {
                // A hint; what is wrong with the file, reading it will tell.
                let _hint = will_need(src, job.info.size).is_ok();
            }
        }
    }

    /// Fills what a ring does better, and says which those were; their faults stand in the jobs. `None`: nothing.
    pub(super) fn fill(
        &self,
        kept: &mut WorkerRings,
        rungs: &Rungs,
        jobs: &mut [Job<'_, impl Kernel>],
        how: &Fill<'_>,
    ) -> Option<Vec<bool>> {
        if self.missing.get().is_some() {
            return None;
        }
        let reads_at_once = match self.io.pick {
            Pick::Ring => true,
            Pick::Auto => self.is_slow_to_read(jobs, how),
            Pick::Sys => false,
        };
        if !reads_at_once && !self.io.direct {
            return None;
        }
        let kinds: Vec<Option<Kind>> = jobs.iter().map(|job| self.takes(job, how)).collect();
        let mut done = None;
        for kind in [Kind::Direct, Kind::Cached] {
            let mut mine: Vec<usize> =
                (0..kinds.len()).filter(|i| kinds.get(*i) == Some(&Some(kind))).collect();
            if mine.is_empty() || (kind == Kind::Cached && !reads_at_once) {
                continue;
            }
            mine.retain(|at| jobs.get(*at).is_some_and(|job| self.may_use_ring(job, kind)));
            // Sharing blocks beats any reading.
            mine.retain(|at| {
                let cloned = jobs.get_mut(*at).is_some_and(|job| clone(rungs, job, how));
                if cloned
                    && let Some(done) = done.get_or_insert_with(|| vec![false; kinds.len()]).get_mut(*at)
                {
                    *done = true;
                }
                !cloned
            });
            if mine.is_empty() {
                continue;
            }
            let ring = match kind {
                Kind::Cached => &mut kept.batch,
                Kind::Direct => &mut kept.direct,
            };
            if ring.is_none() {
                match Ring::new(self.shape(kind)) {
                    Ok(made) => *ring = Some(made),
                    Err(why) => {
                        // The worker that comes second knows the same; both are right.
                        let _first = self.missing.set(why).is_ok();
                        return done;
                    }
                }
            }
            let Some(flying) = ring else { continue };
            let filled = done.get_or_insert_with(|| vec![false; jobs.len()]);
            self.submit_all(flying, (kind, &mine), jobs, filled, how);
            if let Some(errno) = flying.lost() {
                // What it still owes may come at any time: no other run must take it for its own.
                *ring = None;
                let _first = self.missing.set(Unavailable::Refused(errno)).is_ok();
                return done;
            }
        }
        done
    }

    fn shape(&self, kind: Kind) -> Shape {
        let block_bytes = self.io.block_bytes.unwrap_or(match kind {
            Kind::Cached => Io::BLOCK_BYTES,
            Kind::Direct => Io::DIRECT_BLOCK_BYTES,
        });
        let fit = (RING_BYTES_MAX / block_bytes.max(1)).max(1);
        let blocks = match kind {
            Kind::Cached => BATCH_BLOCKS.max(self.io.queue_depth).min(fit),
            Kind::Direct => self.io.queue_depth.min(fit),
        };
        // Pinned memory saves direct I/O a walk over the page tables each time, and reads through the cache nothing.
        Shape { blocks, block_bytes, registered: kind == Kind::Direct }
    }

    /// Whether a job is one for a ring, and of which kind.
    fn takes(&self, job: &Job<'_, impl Kernel>, how: &Fill<'_>) -> Option<Kind> {
        let (Body::File(_), Some(_), None, None) = (&job.body, &job.file, &job.fault, job.append) else {
            return None;
        };
        if job.like.is_some() {
            return None;
        }
        let into_special =
            matches!(job.place, Placement::There) && job.there.is_some_and(|t| t.kind.is_special());
        // Fewer blocks than bytes: holes, or compressed, or no real file at all. The ladder knows each of them.
        let dense = job.info.blocks.saturating_mul(512) >= job.info.size && job.info.size > 0;
        if into_special || !dense || how.sparse == Sparse::Always || how.reflink == Reflink::Always {
            return None;
        }
        if self.io.direct && job.info.size >= DIRECT_BYTES_MIN {
            return Some(Kind::Direct);
        }
        (self.io.pick != Pick::Sys && job.info.size >= self.io.async_min_bytes).then_some(Kind::Cached)
    }

    /// Whether there are several files that are better read at once, as they are not in the page cache. One is asked about, and
    /// the others are taken to be like it: not one whose content is part of its inode (btrfs, below 2 KiB), which came with
    /// that, whatever the page cache holds.
    fn is_slow_to_read(&self, jobs: &[Job<'_, impl Kernel>], how: &Fill<'_>) -> bool {
        let cached = || jobs.iter().rev().filter(|job| self.takes(job, how) == Some(Kind::Cached));
        match cached().find(|job| has_blocks(&job.info)).map(|job| &job.body) {
            Some(Body::File(src)) => cached().nth(1).is_some() && is_cached(src, 0) == Some(false),
            _ => false,
        }
    }

    /// Not what the ring would read from FUSE, or write to it: where such a file system reads or writes less than it was
    /// asked for, or fails in the middle, the kernel goes on by itself, from the wrong place, and tells of success
    /// (docs/decisions/0006-ring.md).
    fn may_use_ring(&self, job: &Job<'_, impl Kernel>, kind: Kind) -> bool {
        let (Body::File(src), Some(dst)) = (&job.body, &job.file) else { return false };
        // Who cannot say what it is, is not trusted.
        let is_fuse = |file: &OwnedFd| meta::is_fuse(file).unwrap_or(true);
        let may = !is_fuse(src) && (kind == Kind::Cached || !is_fuse(dst));
        if !may && kind == Kind::Direct {
            self.not_direct_files.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// Fills `mine` of the jobs and marks in `done` what is filled or has a fault.
    fn submit_all(
        &self,
        ring: &mut Ring,
        (kind, mine): (Kind, &[usize]),
        jobs: &mut [Job<'_, impl Kernel>],
        done: &mut [bool],
        how: &Fill<'_>,
    ) {
        // Handles past the cache beside the ordinary ones; a file that has none goes the ordinary way.
        let mut handles: Vec<(usize, Option<(OwnedFd, OwnedFd)>)> = Vec::with_capacity(mine.len());
        for &at in mine {
            let Some(job) = jobs.get_mut(at) else { continue };
            if let Err(fault) = self.reserve(job) {
                job.fault = Some(fault);
                continue;
            }
            let direct = match (kind, &job.body, &job.file) {
                (Kind::Direct, Body::File(src), Some(dst)) => {
                    let both = reopen_direct(src).and_then(|src| Ok((src, reopen_direct_write(dst)?)));
                    if both.is_err() {
                        self.not_direct_files.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    if let Err(e) = lengthen(job) {
                        job.fault = Some(Fault::os(Side::Dest, Op::SetLengthOf, e));
                        continue;
                    }
                    both.ok()
                }
                _ => None,
            };
            handles.push((at, direct));
        }
        let ended: Vec<(usize, Ended)> = {
            let files = handles.iter().filter_map(|(at, direct)| {
                let job = jobs.get(*at)?;
                let (src, dst) = match (direct, &job.body, &job.file) {
                    (Some((src, dst)), ..) => (src.as_fd(), dst.as_fd()),
                    (None, Body::File(src), Some(dst)) => (src.as_fd(), dst.as_fd()),
                    _ => return None,
                };
                Some((*at, src, dst, job.info.size))
            });
            let files: Vec<_> = files.collect();
            ring.scope(|flight| self.run(flight, kind, &files, how))
        };
        for (at, ended) in ended {
            let Some(job) = jobs.get_mut(at) else { continue };
            match ended {
                Ended::Refused | Ended::Aborted | Ended::Unserved => {
                    if matches!(ended, Ended::Unserved) {
                        // What clone(2) says there.
                        let _first = self.missing.set(Unavailable::Refused(errno::EAGAIN)).is_ok();
                    } else if kind == Kind::Direct {
                        self.not_direct_files.fetch_add(1, Ordering::Relaxed);
                    }
                    // What came through stands at its place, but the ladder begins with an empty file.
                    match job.file.as_ref().map(|dst| meta::set_length(dst, 0)) {
                        Some(Err(e)) => job.fault = Some(Fault::os(Side::Dest, Op::Truncate, e)),
                        _ => continue,
                    }
                }
                Ended::Fault(fault) => job.fault = Some(fault),
                Ended::Filled { tail, hash } => {
                    job.bytes = job.info.size;
                    job.rung = Some(Rung::ReadWrite);
                    job.hash = hash;
                    if let Err(fault) = finish(job, &tail, how) {
                        job.fault = Some(fault);
                    } else {
                        self.files.fetch_add(1, Ordering::Relaxed);
                        if kind == Kind::Direct {
                            self.direct_files.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            }
            if let Some(done) = done.get_mut(at) {
                *done = true;
            }
        }
    }

    fn reserve(&self, job: &Job<'_, impl Kernel>) -> Result<(), Fault> {
        let Some(dst) = &job.file else { return Ok(()) };
        if !self.io.preallocate
            || job.info.size < PREALLOCATE_BYTES_MIN
            || matches!(job.place, Placement::There)
        {
            return Ok(());
        }
        tee::reserve(dst, 0..job.info.size).map_err(|e| Fault::os(Side::Dest, Op::ReserveRoomFor, e))
    }

    /// The flight itself: keeps as many reads under way as there are blocks, and writes what has come.
    fn run<'b, 'f>(
        &self,
        flight: &mut Submission<'b, 'f>,
        kind: Kind,
        files: &[(usize, BorrowedFd<'f>, BorrowedFd<'f>, u64)],
        how: &Fill<'_>,
    ) -> Vec<(usize, Ended)> {
        let mut files: Vec<Filling<'f, 'b>> = files
            .iter()
            .map(|&(job, src, dst, size)| Filling {
                job,
                src,
                dst,
                size,
                at: 0,
                blocks: 0,
                hasher: how.hash.then(blake3::Hasher::new),
                hashed: 0,
                waiting: Vec::new(),
                tail: Vec::new(),
                fault: None,
                refused: false,
                unserved: false,
            })
            .collect();
        let step = flight.block_bytes() as u64;
        let depth = self.io.queue_depth.max(1);
        // Everything of the files before this one is asked for.
        let mut first = 0;
        let mut stranded = false;
        let failed = loop {
            let mut index = first;
            'ask: while let Some(file) = files.get_mut(index) {
                while file.wants(depth) {
                    let Some(block) = flight.take() else { break 'ask };
                    let len = step.min(file.size - file.at);
                    let len =
                        if kind == Kind::Direct { len.next_multiple_of(Shape::ALIGN as u64) } else { len };
                    let token = token(index, file.at / step, false);
                    flight.read(file.src, file.at, len as usize, block, token);
                    file.at = (file.at + step).min(file.size);
                    file.blocks += 1;
                }
                if index == first && !file.is_wanting() {
                    first += 1;
                }
                index += 1;
            }
            let moved = match flight.wait(self.io.wait) {
                Ok(Waited::Done(done)) => self.came(flight, kind, &mut files, done, step),
                Ok(Waited::NotYet) => 0,
                Ok(Waited::Idle) => break None,
                // Reads leave nothing behind, and plain calls can begin anew. A write past the cache may still be done at
                // any time: nothing else may be written there.
                Err(_) if kind == Kind::Cached => {
                    stranded = true;
                    break None;
                }
                Err(e) => break Some(Fault::os(Side::Dest, Op::Write, e)),
            };
            // Also without anything done: the caller may have said stop.
            if !(how.observe)(moved) {
                break Some(Fault::interrupted());
            }
        };
        let failed = failed.map(|fault| {
            let errno = fault.source.and_then(|e| e.raw_os_error());
            (fault.side, fault.code, fault.op, fault.note, errno)
        });
        files
            .into_iter()
            .map(|file| {
                let whole = file.at == file.size && file.blocks == 0;
                let ended = match (file.fault, file.refused, failed) {
                    _ if file.unserved => Ended::Unserved,
                    (_, true, _) => Ended::Refused,
                    (Some(fault), ..) => Ended::Fault(fault),
                    (None, false, None) if stranded && !whole => Ended::Aborted,
                    (None, false, Some((side, code, op, note, errno))) if !whole => Ended::Fault(Fault {
                        side,
                        op,
                        code,
                        note,
                        source: errno.map(io::Error::from_raw_os_error),
                    }),
                    _ => Ended::Filled { tail: file.tail, hash: file.hasher.map(|h| h.finalize()) },
                };
                (file.job, ended)
            })
            .collect()
    }

    /// Takes in what is done. Returns how many bytes have landed by it.
    fn came<'b, 'f>(
        &self,
        flight: &mut Submission<'b, 'f>,
        kind: Kind,
        files: &mut [Filling<'f, 'b>],
        done: Done<'b>,
        step: u64,
    ) -> u64 {
        let (index, at, is_write) = of_token(done.token, step);
        let Some(file) = files.get_mut(index) else { return 0 };
        let want = step.min(file.size - at.min(file.size));
        let side = if is_write { Side::Dest } else { Side::Source };
        let op = if is_write { Op::Write } else { Op::Read };
        match done.result {
            Err(e) if kind == Kind::Direct && e.raw_os_error() == Some(errno::EINVAL) => file.refused = true,
            // Nothing is cancelled from here while files are under way: the kernel does that where it may start no thread
            // for what would wait (RLIMIT_NPROC).
            Err(e) if e.raw_os_error() == Some(errno::ECANCELED) => file.unserved = true,
            Err(e) => file.fail(Fault::os(side, op, e)),
            Ok(n) if !is_write && (n as u64) < want => {
                let note = Reason::SourceEndedEarly;
                file.fail(Fault::ours(Side::Source, Op::Copy, Code::SourceChanged, note));
            }
            Ok(_) => {}
        }
        if !file.goes_on() {
            file.blocks -= 1;
            flight.give(done.block);
            for (_, block) in file.waiting.drain(..) {
                file.blocks -= 1;
                flight.give(block);
            }
            return 0;
        }
        if is_write {
            file.blocks -= 1;
            flight.give(done.block);
            return want;
        }
        file.waiting.push((at, done.block));
        let mut moved = 0;
        // Without a hash in any order; with one, as the bytes follow each other.
        while let Some(next) =
            file.waiting.iter().position(|(at, _)| file.hasher.is_none() || *at == file.hashed)
        {
            let (at, block) = file.waiting.swap_remove(next);
            let want = step.min(file.size - at) as usize;
            let bytes = flight.bytes(&block).get(..want).unwrap_or_default();
            if let Some(hasher) = &mut file.hasher {
                hasher.update(bytes);
                file.hashed += want as u64;
            }
            if kind == Kind::Direct {
                let whole = want - want % Shape::ALIGN;
                file.tail.extend_from_slice(bytes.get(whole..).unwrap_or_default());
                if whole > 0 {
                    flight.write(file.dst, at, whole, block, token(index, at / step, true));
                    continue;
                }
            } else if let Err(e) = write_full(file.dst, at, bytes) {
                // A plain call: through the cache it is a copy in memory, which a ring's worker does no faster.
                file.fail(Fault::os(Side::Dest, Op::Write, e));
            }
            moved += want as u64;
            file.blocks -= 1;
            flight.give(block);
        }
        moved
    }
}

/// Shares the source's blocks, where that is wanted and can be. `true`: the job is filled, or has a fault.
fn clone(rungs: &Rungs, job: &mut Job<'_, impl Kernel>, how: &Fill<'_>) -> bool {
    let (Body::File(src), Some(dst), false) = (&job.body, &job.file, how.hash) else { return false };
    let from =
        copy::Source { fd: src.as_fd(), dev: job.info.dev, size: job.info.size, blocks: job.info.blocks };
    let to = copy::Dest { fd: dst.as_fd(), dev: how.dev };
    let options = copy::Options {
        reflink: how.reflink.into(),
        sparse: how.sparse.into(),
        threads: 1,
        preallocate: false,
        lengthen: false,
        cache: fastcopy::page_cache::Cache::Keep,
    };
    match copy::clone_file(&from, &to, rungs, &options, how.observe) {
        Ok(None) => return false,
        Ok(Some(copied)) => {
            job.bytes = copied.bytes;
            job.rung = Some(copied.rung);
            job.fault = changed::still(job, how).err();
        }
        Err(failure) => job.fault = Some(tee::fault(failure)),
    }
    true
}

/// Gives a stage the length that its whole blocks come to. A write past the cache that makes a file longer is done by the
/// kernel alone, while no other may be under way; those within its length go side by side.
fn lengthen(job: &Job<'_, impl Kernel>) -> io::Result<()> {
    match (&job.file, &job.place) {
        // A file that is there is seen meanwhile: its length must not say that it is complete.
        (Some(_), Placement::There) | (None, _) => Ok(()),
        (Some(dst), _) => meta::set_length(dst, job.info.size - job.info.size % Shape::ALIGN as u64),
    }
}

/// How a file ended.
enum Ended {
    Filled {
        tail: Vec<u8>,
        hash: Option<blake3::Hash>,
    },
    Fault(Fault),
    /// The file system will not have it direct.
    Refused,
    /// The ring failed under it.
    Aborted,
    /// The kernel could start no thread for it.
    Unserved,
}

impl Filling<'_, '_> {
    fn is_wanting(&self) -> bool {
        self.at < self.size && self.goes_on()
    }
    fn goes_on(&self) -> bool {
        self.fault.is_none() && !self.refused && !self.unserved
    }
    fn wants(&self, depth: usize) -> bool {
        self.is_wanting() && self.blocks < depth
    }
    fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }
}

/// Whether a file's content lies in blocks of its own. What is part of an inode takes less than the smallest of those.
fn has_blocks(info: &meta::Info) -> bool {
    const BLOCK_BYTES_MIN: u64 = 4096;
    info.blocks.saturating_mul(512) >= BLOCK_BYTES_MIN
}

/// What an operation is called: its file, its block, and whether it writes.
fn token(file: usize, block: u64, is_write: bool) -> u64 {
    (file as u64) << 48 | block << 1 | u64::from(is_write)
}

fn of_token(token: u64, step: u64) -> (usize, u64, bool) {
    ((token >> 48) as usize, ((token << 16) >> 17) * step, token & 1 == 1)
}

/// What is left of a file once all its blocks are there.
fn finish(job: &mut Job<'_, impl Kernel>, tail: &[u8], how: &Fill<'_>) -> Result<(), Fault> {
    let (Body::File(_), Some(dst)) = (&job.body, &job.file) else { return Ok(()) };
    if !tail.is_empty() {
        let at = job.info.size - tail.len() as u64;
        write_full(dst, at, tail).map_err(|e| Fault::os(Side::Dest, Op::Write, e))?;
    }
    changed::still(job, how)
}
