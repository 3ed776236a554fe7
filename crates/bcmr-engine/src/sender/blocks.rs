//! Large files, block by block, on all streams at once: opened, read, hashed, packed and sent as [`large`] says.
//!
//! Must not know which step comes next.
//!
//! [`large`]: crate::sender::large

use crate::blocks::{BLOCK_BYTES, Cv, PIECE_BYTES, WIRE_PIECE_BYTES, aligned, hash_zeros, in_pieces};
use crate::chunks::Span;
use crate::codec::Effort;
use crate::error::{Error, Op, Result};
use crate::pulse::For;
use crate::sender::asking::FoundInStore;
use crate::sender::contents::ContentSender;
use crate::sender::delta::{BlockLook, Refine};
use crate::sender::item::Item;
use crate::sender::large::{BlockPart, FileFailed, LargeJob, OpenLarge, block_end};
use crate::sender::out::FilePart;
use crate::sender::pace::PackTime;
use crate::sender::packers::{FramePacking, Loan, PieceLoan};
use crate::sender::place::AnnouncedDir;
use crate::sender::sending::{PreparedFrame, Sending, WorkerBuffers, not_encoded, timed};
use crate::trouble::TroubleBuf;
use bcmr_wire::limits::RUNS_MAX;
use bcmr_wire::message::{Codec, FileState, Message, Patch, Piece, Run, data};
use bcmr_wire::{codec, frame};
use blake3::hazmat::HasherExt;
use fastcopy::meta::{Info, Kind};
use fastcopy::read_write::{read_append, read_full};
use fastcopy::sparse::{Extents, is_zero};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often the cancel flag is looked at while nothing else happens.
const LOOK: Duration = Duration::from_millis(100);

/// Counts calls that are yet to come; one that never comes counts when it is dropped.
struct Latch {
    left: Mutex<usize>,
    wake: Condvar,
}

struct Tick(Arc<Latch>);

impl Drop for Tick {
    fn drop(&mut self) {
        *self.0.left.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.wake.notify_all();
    }
}

/// Sends large files of one transfer.
pub(super) struct BlockSender<'s, 'a>(pub(super) &'s Sending<'a>);

/// What is sent of a block: a range of it as one piece.
struct PieceRange {
    range: Range<u64>,
    /// No content is stored there.
    hole: bool,
    /// The chaining value of the block goes with it.
    ends: bool,
}

impl BlockSender<'_, '_> {
    /// One step of one file.
    pub(super) fn step(&self, buffers: &mut WorkerBuffers, job: LargeJob, turn: u64) -> Result<()> {
        match job {
            LargeJob::Open { file } => self.open(file),
            LargeJob::Values { file, first, count } => self.values(file, first, count),
            LargeJob::Have { file, first, count } => self.have(file, first, count),
            LargeJob::Prove { file, found } => self.prove(file, &found),
            LargeJob::Look { file, look } => self.look(file, *look),
            LargeJob::Refine { file, refine } => self.refine(file, *refine),
            LargeJob::Finish { file } => self.finish(file),
            LargeJob::Block(part) => self.block(buffers, &part, turn),
        }
    }

    /// A thread is done with something of a file; `failed`: it is not whole.
    fn done(&self, file: u64, failed: Option<FileFailed>) {
        self.0.schedule.large(file, |large| large.done(failed));
    }

    /// The file and what it is, if the receiver has not closed it meanwhile.
    fn open_large(&self, file: u64) -> Option<OpenLarge> {
        self.0.schedule.large(file, |large| large.open()).flatten()
    }

    /// Opens an offered file, if it is still the one that was offered.
    fn open(&self, file: u64) -> Result<()> {
        let schedule = &self.0.schedule;
        let Some((item, place)) = schedule.large(file, |large| large.offered()) else { return Ok(()) };
        let contents = ContentSender(self.0);
        let opened = self.0.handles.get(&place).and_then(|dir| contents.open(&dir, &item.name, place.follow));
        let (fd, failed) = match opened {
            Ok((fd, info)) if info.kind == Kind::File && item.info.same_content(&info) => (Some(fd), None),
            Ok(_) => (None, Some(FileFailed::Changed)),
            Err(e) => (None, Some(FileFailed::Error(Arc::new(e)))),
        };
        schedule.large(file, |large| {
            large.opened(fd);
            large.done(failed);
        });
        Ok(())
    }

    /// Sends that all of a file was sent, or that it was in vain.
    fn finish(&self, file: u64) -> Result<()> {
        let known = self.0.schedule.large(file, |large| large.finishing());
        // The receiver has closed it before its end: it knows.
        let Some(known) = known else { return Ok(()) };
        let mut failed = known.failed;
        if failed.is_none()
            && let Some(fd) = known.fd
        {
            if self.0.push.how.fast {
                self.drain()?;
            }
            let path = || known.place.node.join(known.item.name.as_name());
            failed = match (known.fault.get(), Info::of(&*fd)) {
                (Some(e), _) if e.kind() == io::ErrorKind::UnexpectedEof => Some(FileFailed::Changed),
                (Some(e), _) => Some(read_failed(path(), e)),
                // Nothing of it changed, so all that was read and hashed is one version.
                (None, Ok(now)) if known.item.info.same_content(&now) => None,
                (None, Ok(_)) => Some(FileFailed::Changed),
                (None, Err(e)) => Some(FileFailed::Error(Arc::new(Error::os(Op::Stat, path(), e)))),
            };
        }
        let trouble = match &failed {
            Some(FileFailed::Error(e)) => Some(TroubleBuf::of(e)),
            _ => None,
        };
        let state = match &failed {
            None => FileState::Whole,
            Some(FileFailed::Changed) => FileState::Changed,
            Some(FileFailed::Error(_)) => FileState::Failed,
        };
        let error = trouble.as_ref().map(TroubleBuf::trouble);
        let sent = self.0.send(&Message::FileEnd { file, state, error });
        self.0.schedule.large(file, |large| large.finished(failed));
        sent
    }

    /// Waits until everything that was handed to the streams was read from its file.
    fn drain(&self) -> Result<()> {
        let push = self.0.push;
        let latch = Arc::new(Latch { left: Mutex::new(push.outs.len()), wake: Condvar::new() });
        let ticks: Vec<Tick> = push.outs.iter().map(|_| Tick(latch.clone())).collect();
        for (out, tick) in push.outs.iter().zip(ticks) {
            out.then(Box::new(move || drop(tick)))?;
        }
        let mut left = latch.left.lock().unwrap_or_else(PoisonError::into_inner);
        // A stream that is stuck in a write keeps what it writes, also when it was given up.
        while *left > 0 && !self.0.stopped() {
            let _waits = push.pulse.waits_for(For::Room);
            left = latch.wake.wait_timeout(left, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    // ---- values of blocks ----

    /// Sends chaining values that the receiver asked for.
    fn values(&self, file: u64, first: u64, count: u64) -> Result<()> {
        let mut failed = None;
        if let Some(open) = self.open_large(file) {
            match block_values(&open, first..first + count) {
                Ok(hashes) => self.0.send(&Message::Values { file, first, hashes })?,
                Err(e) => failed = Some(e),
            }
        }
        self.0.schedule.large(file, |large| {
            large.values_sent();
            large.done(failed);
        });
        Ok(())
    }

    /// Asks whether the receiver's store has blocks.
    fn have(&self, file: u64, first: u64, count: u64) -> Result<()> {
        let mut failed = None;
        if let Some(open) = self.open_large(file) {
            match block_values(&open, first..first + count) {
                Ok(hashes) => {
                    self.0.schedule.large(file, |large| large.asking(first, hashes.clone()));
                    self.0.send(&Message::HaveBlocks { file, first, hashes })?;
                }
                Err(e) => failed = Some(e),
            }
        }
        self.0.schedule.large(file, |large| {
            large.store_asked();
            large.done(failed);
        });
        Ok(())
    }

    /// Proves that blocks are really here, to a store that has them.
    fn prove(&self, file: u64, found: &FoundInStore) -> Result<()> {
        let mut failed = None;
        if let Some(open) = self.open_large(file) {
            let mut tags = Vec::with_capacity(found.there.len());
            for block in &found.there {
                let start = block * BLOCK_BYTES;
                // [proof.keyed]
                let mut hasher = blake3::Hasher::new_keyed(&found.nonce);
                match hash_range(&open, start..block_end(start, open.item.size), &mut hasher) {
                    Ok(()) => tags.push(*hasher.finalize().as_bytes()),
                    Err(e) => {
                        failed = Some(e);
                        break;
                    }
                }
            }
            if failed.is_none() && !tags.is_empty() {
                self.0.send(&Message::Proof { file, first: found.first, tags })?;
            }
        }
        self.0.schedule.large(file, |large| {
            large.proved();
            large.done(failed);
        });
        Ok(())
    }

    // ---- what the receiver has ----

    /// Looks which parts of a block the receiver has, and asks about what is between them.
    fn look(&self, file: u64, look: BlockLook) -> Result<()> {
        let (mut failed, mut ask) = (None, Vec::new());
        if let Some(open) = self.open_large(file) {
            match look.run(|range| read_range(&open, range)) {
                Ok(looked) => {
                    ask = self.0.schedule.large(file, |large| large.looked(looked)).unwrap_or_default();
                }
                Err(e) => failed = Some(e),
            }
        }
        for basis in ask {
            let (at, bytes) = (basis.start, basis.end - basis.start);
            self.0.send(&Message::Finer { file, at, bytes })?;
        }
        self.done(file, failed);
        Ok(())
    }

    /// Looks again, with what the receiver has answered.
    fn refine(&self, file: u64, refine: Refine) -> Result<()> {
        let (mut failed, block) = (None, refine.block);
        if let Some(open) = self.open_large(file) {
            match refine.run(|range| read_range(&open, range)) {
                Ok(spans) => drop(self.0.schedule.large(file, |large| large.refined(block, spans))),
                Err(e) => failed = Some(e),
            }
        }
        self.done(file, failed);
        Ok(())
    }

    // ---- blocks ----

    /// Sends a part of one block.
    fn block(&self, buffers: &mut WorkerBuffers, part: &BlockPart, turn: u64) -> Result<()> {
        let mut held = Vec::new();
        let sent = self.pieces(buffers, part, turn, &mut held);
        let sent = self.0.end_turn(buffers.stream, turn, held).and(sent);
        let failed = sent?;
        self.done(part.file, failed);
        Ok(())
    }

    /// Reads, hashes, packs and sends the pieces of a part, and keeps back what has to wait for the block before.
    fn pieces(
        &self,
        buffers: &mut WorkerBuffers,
        part: &BlockPart,
        turn: u64,
        held: &mut Vec<PreparedFrame>,
    ) -> Result<Option<FileFailed>> {
        let start = part.range.start - part.range.start % BLOCK_BYTES;
        let ends = part.range.end == block_end(part.range.start, part.size);
        // The receiver may have closed it meanwhile.
        let Some(open) = self.open_large(part.file) else { return Ok(None) };
        let open = OpenLarge { fd: part.fd.clone(), ..open };
        let mut hasher = None;
        if part.hashed && ends && part.cv.is_none() {
            let mut new = blake3::Hasher::new();
            new.set_input_offset(start);
            // The receiver has the first part already; the value is of the whole block.
            if let Err(failed) = hash_range(&open, start..part.range.start, &mut new) {
                return Ok(Some(failed));
            }
            hasher = Some(new);
        }
        let extents: Option<Vec<Range<u64>>> =
            part.sparse.then(|| Extents::within(part.fd.as_fd(), part.range.clone()).collect());
        let mut frame = None;
        let mut at = part.range.start;
        while at < part.range.end {
            if self.0.stopped() {
                return Ok(None);
            }
            let stop = (at - at % WIRE_PIECE_BYTES + WIRE_PIECE_BYTES).min(part.range.end);
            let hole = extents.as_ref().is_some_and(|e| e.iter().all(|e| e.end <= at || e.start >= stop));
            let last = stop == part.range.end && ends && part.hashed;
            let range = PieceRange { range: at..stop, hole, ends: last };
            match self.piece(buffers, part, &range, hasher.as_mut(), &mut frame)? {
                Ok(prepared) => self.pass(buffers.stream, turn, held, prepared)?,
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(FileFailed::Changed)),
                Err(e) => return Ok(Some(read_failed(path_of(&open.place, &open.item), &e))),
            }
            at = stop;
        }
        Ok(None)
    }

    /// Prepares one piece. `frame` is what those of this part are packed with, once one of them was.
    fn piece<'p>(
        &'p self,
        buffers: &mut WorkerBuffers,
        part: &BlockPart,
        of: &PieceRange,
        mut hasher: Option<&mut blake3::Hasher>,
        frame: &mut Option<Loan<'p, FramePacking>>,
    ) -> Result<io::Result<PreparedFrame>> {
        let PieceRange { range, ends, .. } = of;
        let ends = *ends;
        let bytes = (range.end - range.start) as usize;
        let mut piece = Piece {
            file: part.file,
            at: range.start,
            flags: if part.asked { data::ASKED } else { 0 } | if ends { data::ENDS_BLOCK } else { 0 },
            cv: ends.then_some([0; 32]),
            codec: Codec::Raw,
            length: bytes as u64,
            bytes: &[],
        };
        let value = |hasher: Option<&mut blake3::Hasher>| {
            let made = || hasher.map(|h| h.finalize_non_root());
            ends.then(|| part.cv.or_else(made).unwrap_or_default())
        };
        if of.hole {
            if let Some(hasher) = &mut hasher {
                hash_zeros(hasher, bytes as u64);
            }
            piece.cv = value(hasher);
            return self.zeros(buffers, piece).map(Ok);
        }
        let runs = part.spans.as_deref().and_then(|spans| runs_of(spans, range));
        if let Some(runs) = runs {
            let mut raw = std::mem::take(&mut buffers.raw);
            raw.clear();
            let read = read_hashed(&part.fd, range.start, bytes, &mut raw, hasher.as_deref_mut());
            let prepared = read.map(|()| {
                piece.cv = value(hasher);
                if is_zero(&raw) {
                    self.zeros(buffers, piece)
                } else {
                    self.patch(buffers, &piece, &runs, &raw)
                }
            });
            buffers.raw = raw;
            return prepared.map_or_else(|e| Ok(Err(e)), |prepared| prepared.map(Ok));
        }
        let (codec, effort) = self.0.codec();
        if codec == Codec::Raw && !part.hashed {
            return self.unread(buffers, part, &piece).map(Ok);
        }
        if codec == Codec::Raw {
            // Straight behind the header, which is as long whatever the value in it.
            let mut frame = self.0.room(buffers.stream, bytes);
            let mark = codec::encode_data_header(&piece, &mut frame).map_err(|e| not_encoded(&e))?;
            let body = frame.len();
            if let Err(e) = read_hashed(&part.fd, range.start, bytes, &mut frame, hasher.as_deref_mut()) {
                return Ok(Err(e));
            }
            piece.cv = value(hasher);
            if is_zero(frame.get(body..).unwrap_or_default()) {
                return self.zeros(buffers, piece).map(Ok);
            }
            if ends {
                let mut head = Vec::with_capacity(body);
                codec::encode_data_header(&piece, &mut head).map_err(|e| not_encoded(&e))?;
                if let Some(room) = frame.get_mut(mark..mark + head.len()) {
                    room.copy_from_slice(&head);
                }
            }
            frame::finish(&mut frame, mark).map_err(|e| not_encoded(&e))?;
            return Ok(Ok(PreparedFrame::Frame { frame, raw: bytes, packed: PackTime::default() }));
        }
        piece.codec = codec;
        let mut lent = self.0.packers.lend_for(codec, self.0.push.how.frames, frame);
        let raw = lent.raw();
        raw.clear();
        if let Err(e) = read_hashed(&part.fd, range.start, bytes, raw, hasher.as_deref_mut()) {
            return Ok(Err(e));
        }
        piece.cv = value(hasher);
        if is_zero(raw) {
            return self.zeros(buffers, piece).map(Ok);
        }
        self.packed(buffers.stream, &mut lent, piece, effort).map(Ok)
    }

    /// A piece that the kernel reads when its turn comes.
    fn unread(&self, buffers: &WorkerBuffers, part: &BlockPart, piece: &Piece<'_>) -> Result<PreparedFrame> {
        let mut head = self.0.room(buffers.stream, 0);
        let mark = codec::encode_data_header(piece, &mut head).map_err(|e| not_encoded(&e))?;
        frame::finish_with(&mut head, mark, piece.length).map_err(|e| not_encoded(&e))?;
        let (file, fault) = (part.fd.clone(), part.fault.clone());
        Ok(PreparedFrame::Part(FilePart { head, file, at: piece.at, bytes: piece.length, fault }))
    }

    /// A piece that is packed with its codec, where that is worth it.
    fn packed(
        &self,
        stream: usize,
        lent: &mut PieceLoan<'_, '_>,
        mut piece: Piece<'_>,
        effort: Effort,
    ) -> Result<PreparedFrame> {
        let mut frame = self.0.room(stream, lent.raw().len());
        let flags = piece.flags;
        piece.flags |= lent.flag(piece.at);
        let mut mark = codec::encode_data_header(&piece, &mut frame).map_err(|e| not_encoded(&e))?;
        let (is_packed, packed) = timed(effort, || lent.pack(piece.codec, effort, piece.at, &mut frame));
        let raw = lent.raw();
        if !is_packed {
            frame.truncate(mark);
            (piece.codec, piece.flags) = (Codec::Raw, flags);
            mark = codec::encode_data_header(&piece, &mut frame).map_err(|e| not_encoded(&e))?;
            frame.extend_from_slice(raw);
        }
        frame::finish(&mut frame, mark).map_err(|e| not_encoded(&e))?;
        Ok(PreparedFrame::Frame { frame, raw: raw.len(), packed })
    }

    /// A piece of which the receiver has a part: what it has not goes with it, packed where that is worth it.
    fn patch(
        &self,
        buffers: &mut WorkerBuffers,
        piece: &Piece<'_>,
        runs: &[Span],
        raw: &[u8],
    ) -> Result<PreparedFrame> {
        let mut carried = Vec::new();
        for run in runs.iter().filter(|run| run.from.is_none()) {
            let start = (run.at - piece.at) as usize;
            carried.extend_from_slice(raw.get(start..start + run.bytes as usize).unwrap_or_default());
        }
        let (codec, effort) = self.0.codec();
        let mut packed = Vec::new();
        let (is_packed, took) = if codec == Codec::Raw {
            (false, PackTime::default())
        } else {
            let mut lent = self.0.packers.pieces.lend();
            timed(effort, || lent.packer.pack(codec, effort, &carried, &mut packed))
        };
        let patch = Patch {
            file: piece.file,
            at: piece.at,
            cv: piece.cv,
            runs: runs.iter().map(|run| Run { bytes: run.bytes, from: run.from }).collect(),
            codec: if is_packed { codec } else { Codec::Raw },
            bytes: if is_packed { &packed } else { &carried },
        };
        let mut frame = self.0.room(buffers.stream, patch.bytes.len());
        Message::Patch(patch).encode(&mut frame).map_err(|e| not_encoded(&e))?;
        Ok(PreparedFrame::Frame { frame, raw: carried.len(), packed: took })
    }

    /// A piece of which only the length travels.
    fn zeros(&self, buffers: &WorkerBuffers, mut piece: Piece<'_>) -> Result<PreparedFrame> {
        piece.flags |= data::ZEROS;
        piece.codec = Codec::Raw;
        let mut frame = self.0.room(buffers.stream, 0);
        Message::Data(piece).encode(&mut frame).map_err(|e| not_encoded(&e))?;
        // It says nothing about what packing is worth.
        Ok(PreparedFrame::Frame { frame, raw: 0, packed: PackTime::default() })
    }

    /// Sends what was prepared, or keeps it back until its turn.
    fn pass(
        &self,
        stream: usize,
        turn: u64,
        held: &mut Vec<PreparedFrame>,
        prepared: PreparedFrame,
    ) -> Result<()> {
        if !self.0.schedule.is_turn(stream, turn) {
            held.push(prepared);
            return Ok(());
        }
        held.drain(..).chain([prepared]).try_for_each(|prepared| self.0.send_prepared(stream, prepared))
    }
}

fn block_values(open: &OpenLarge, blocks: Range<u64>) -> std::result::Result<Vec<Cv>, FileFailed> {
    let value = |block| {
        let start = block * BLOCK_BYTES;
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(start);
        hash_range(open, start..block_end(start, open.item.size), &mut hasher)?;
        Ok(hasher.finalize_non_root())
    };
    blocks.map(value).collect()
}

/// What a piece consists of, where that is worth saying: the receiver has a part of it.
fn runs_of(spans: &[Span], range: &Range<u64>) -> Option<Vec<Span>> {
    let runs: Vec<Span> = spans.iter().filter_map(|span| span.within(range)).collect();
    (runs.len() <= RUNS_MAX && runs.iter().any(|run| run.from.is_some())).then_some(runs)
}

fn read_range(open: &OpenLarge, range: Range<u64>) -> std::result::Result<Vec<u8>, FileFailed> {
    let (mut bytes, want) = (Vec::new(), (range.end - range.start) as usize);
    match read_append(&*open.fd, range.start, want, &mut bytes) {
        Ok(n) if n == want => Ok(bytes),
        Ok(_) => Err(FileFailed::Changed),
        Err(e) => Err(read_failed(path_of(&open.place, &open.item), &e)),
    }
}

fn hash_range(
    open: &OpenLarge,
    range: Range<u64>,
    hasher: &mut blake3::Hasher,
) -> std::result::Result<(), FileFailed> {
    let read = |at, piece: &mut [u8]| match read_full(&*open.fd, at, piece) {
        Ok(n) if n == piece.len() => Ok(n),
        Ok(_) => Err(FileFailed::Changed),
        Err(e) => Err(read_failed(path_of(&open.place, &open.item), &e)),
    };
    in_pieces(range, aligned().all(), read, |_, piece| {
        hasher.update(piece);
        Ok(())
    })
    .map(drop)
}

fn path_of(place: &AnnouncedDir, item: &Item) -> std::path::PathBuf {
    place.node.join(item.name.as_name())
}

fn read_failed(path: std::path::PathBuf, e: &io::Error) -> FileFailed {
    let e = match e.raw_os_error() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::from(e.kind()),
    };
    FileFailed::Error(Arc::new(Error::os(Op::Read, path, e)))
}

/// Reads behind what is in `out`, and hashes while it is in the cache. Less than `bytes` is an unexpected end.
fn read_hashed(
    fd: &OwnedFd,
    at: u64,
    bytes: usize,
    out: &mut Vec<u8>,
    mut hasher: Option<&mut blake3::Hasher>,
) -> io::Result<()> {
    out.reserve(bytes);
    let mut done = 0;
    while done < bytes {
        let before = out.len();
        let part = (bytes - done).min(PIECE_BYTES);
        if read_append(fd, at + done as u64, part, out)? < part {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(hasher) = &mut hasher {
            hasher.update(out.get(before..).unwrap_or_default());
        }
        done += part;
    }
    Ok(())
}

const _: () = assert!(crate::blocks::FORMAT_BLOCK_BYTES == bcmr_wire::limits::BLOCK_BYTES);
