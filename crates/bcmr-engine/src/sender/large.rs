//! Large files: block by block, from where the receiver wants them, on all streams at once.
//!
//! Must not know what the receiver has of them already; it says where to begin, and its store says which blocks it has.

use crate::blocks::{
    BLOCK_BYTES, Cv, DEDUP_BYTES_MIN, PIECE_BYTES, WIRE_PIECE_BYTES, aligned, hash_zeros, in_pieces,
};
use crate::error::{Error, Op, Reason, Result};
use crate::pulse::For;
use crate::sender::contents::unsayable;
use crate::sender::item::Item;
use crate::sender::out::FilePart;
use crate::sender::place::Place;
use crate::sender::push::{Hand, Job, LOOK, Sending, State, Stop, broken, take_turn};
use crate::trouble::TroubleBuf;
use bcmr_wire::limits::{HAVE_BLOCKS_MAX, OFFERS_OUT_MAX, VALUES_MAX};
use bcmr_wire::message::{Codec, FileState, Hash, Message, Piece, data};
use bcmr_wire::{codec, frame};
use blake3::hazmat::HasherExt;
use fastcopy::meta::{Info, Kind};
use fastcopy::read_write::{read_append, read_full};
use fastcopy::sparse::{Extents, is_zero};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

/// Ranges of one file that may wait to be sent again: more than any receiver needs that asks for blocks.
const ASKS_WAITING: usize = 4096;
/// Requests for chaining values of one file that may wait.
const COMPUTES_WAITING: usize = 64;
/// Blocks whose values are told in one message: some time's work, so that others get their turn.
const VALUES_AT_ONCE: u64 = 64;
/// Questions to the store that are under way for one file.
const GROUPS_OUT: usize = 2;

const _: () = assert!(VALUES_AT_ONCE as usize <= VALUES_MAX);

/// One large file, from its offer until the receiver has settled it.
pub(crate) struct Large {
    pub(super) place: Arc<Place>,
    pub(super) item: Arc<Item>,
    phase: Phase,
    handle: Handle,
    /// The receiver has said whether it wants it.
    answered: bool,
    /// With chaining values.
    hashed: bool,
    /// Where the next block begins, or the first part of one.
    next: u64,
    /// Threads at work on it.
    going: usize,
    /// It is not whole, and whether that was told.
    failed: Option<(Failed, bool)>,
    /// What went wrong while the kernel sent it.
    fault: Arc<OnceLock<io::Error>>,
    computes: VecDeque<Range<u64>>,
    /// Values are told in order, so by one thread at a time.
    computing: bool,
    asks: VecDeque<Range<u64>>,
    dedup: Option<Dedup>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Offered,
    Going,
    /// All pieces were sent, and that.
    Ended,
}

enum Handle {
    Closed,
    Opening,
    Open(Arc<OwnedFd>),
}

#[derive(Clone)]
enum Failed {
    Changed,
    Error(Arc<Error>),
}

/// Blocks that the receiver may have already. It reads them in rising order, and what comes over one stream waits for
/// what came before: so groups are asked about one after the other, and proofs go before the blocks of their group.
struct Dedup {
    /// The next block to ask about.
    next: u64,
    /// Groups asked about, or about to be, and not answered or not yet dealt with.
    out: usize,
    /// A thread hashes for a question or a proof.
    hashing: bool,
    /// By their first block, the values that were told.
    asked: BTreeMap<u64, Vec<Cv>>,
    answers: VecDeque<Answered>,
    missing: VecDeque<(u64, Cv)>,
}

/// What the receiver's store says of a group of blocks.
pub(super) struct Answered {
    first: u64,
    nonce: Hash,
    /// Those it says it has.
    there: Vec<u64>,
    missing: Vec<(u64, Cv)>,
}

/// A part of one block to send.
pub(super) struct BlockJob {
    file: u64,
    fd: Arc<OwnedFd>,
    range: Range<u64>,
    size: u64,
    /// Holes are looked for.
    sparse: bool,
    hashed: bool,
    /// Its chaining value, where it is known.
    cv: Option<Cv>,
    asked: bool,
    /// Its turn on the stream of the worker that sends it.
    turn: u64,
    fault: Arc<OnceLock<io::Error>>,
}

impl Large {
    /// On offer.
    pub(super) fn new(place: Arc<Place>, item: Item) -> Large {
        Large {
            place,
            item: Arc::new(item),
            phase: Phase::Offered,
            handle: Handle::Closed,
            answered: false,
            hashed: true,
            next: 0,
            going: 0,
            failed: None,
            fault: Arc::new(OnceLock::new()),
            computes: VecDeque::new(),
            computing: false,
            asks: VecDeque::new(),
            dedup: None,
        }
    }

    fn size(&self) -> u64 {
        self.item.size
    }

    fn blocks(&self) -> u64 {
        self.size().div_ceil(BLOCK_BYTES)
    }

    /// The receiver wants a range again.
    pub(super) fn reread(&mut self, at: u64, bytes: u64) -> std::result::Result<(), Stop> {
        let end = at.checked_add(bytes).filter(|end| bytes > 0 && *end <= self.size());
        let Some(end) = end else { return Err(broken(Reason::RangeBeyondEnd)) };
        let wanted = self.answered && (self.phase != Phase::Ended || !matches!(self.handle, Handle::Closed));
        if !wanted && self.failed.is_none() || self.asks.len() >= ASKS_WAITING {
            return Err(broken(Reason::RangeNotSent));
        }
        self.asks.push_back(at..end);
        Ok(())
    }

    /// The receiver wants chaining values.
    pub(super) fn compute(&mut self, first: u64, count: u64) -> std::result::Result<(), Stop> {
        let end = first.checked_add(count).filter(|end| count > 0 && *end <= self.blocks());
        let Some(end) = end else { return Err(broken(Reason::BlocksBeyondEnd)) };
        if self.computes.len() >= COMPUTES_WAITING {
            return Err(broken(Reason::TooManyValues));
        }
        self.computes.push_back(first..end);
        Ok(())
    }

    /// The receiver says which blocks it lacks.
    pub(super) fn missing(&mut self, first: u64, nonce: &Hash, bits: &[u8]) -> std::result::Result<(), Stop> {
        let dedup = self.dedup.as_mut();
        let Some((dedup, cvs)) = dedup.and_then(|d| d.asked.remove(&first).map(|cvs| (d, cvs))) else {
            return Err(broken(Reason::AnswerAboutNoBlocks));
        };
        let bit = |k: usize| bits.get(k / 8).is_some_and(|byte| byte >> (k % 8) & 1 == 1);
        if bits.len() != cvs.len().div_ceil(8) || (cvs.len()..bits.len() * 8).any(bit) {
            return Err(broken(Reason::AnswerAboutOtherBlocks));
        }
        let mut answer = Answered { first, nonce: *nonce, there: Vec::new(), missing: Vec::new() };
        for (block, cv) in (first..).zip(&cvs) {
            if bit((block - first) as usize) {
                answer.missing.push((block, *cv));
            } else {
                answer.there.push(block);
            }
        }
        dedup.answers.push_back(answer);
        Ok(())
    }

    fn fail(&mut self, failed: Failed) {
        if self.failed.is_none() {
            self.failed = Some((failed, false));
        }
    }

    /// The range cut to one block, and what that leaves.
    fn job(&self, file: u64, range: Range<u64>, fd: &Arc<OwnedFd>, turn: u64) -> BlockJob {
        BlockJob {
            file,
            fd: fd.clone(),
            range,
            size: self.size(),
            sparse: self.item.info.blocks.saturating_mul(512) < self.size(),
            hashed: self.hashed,
            cv: None,
            asked: false,
            turn,
            fault: self.fault.clone(),
        }
    }
}

/// The end of the block that `at` is in.
fn block_end(at: u64, size: u64) -> u64 {
    (at - at % BLOCK_BYTES).saturating_add(BLOCK_BYTES).min(size)
}

/// What the receiver has asked about large files, and what they need before anything else.
pub(super) fn pick_asked(state: &mut State, stream: usize) -> Option<Job> {
    for (id, large) in &mut state.files {
        let file = *id;
        if let Some((_, told)) = &mut large.failed {
            if !*told && large.going == 0 {
                *told = true;
                large.phase = Phase::Ended;
                large.going += 1;
                return Some(Job::Finish { file });
            }
            continue;
        }
        let fd = match &large.handle {
            Handle::Open(fd) => fd.clone(),
            Handle::Closed if large.phase == Phase::Going || !large.computes.is_empty() => {
                large.handle = Handle::Opening;
                large.going += 1;
                return Some(Job::Open { file });
            }
            _ => continue,
        };
        if !large.computing
            && let Some(blocks) = large.computes.front_mut()
        {
            let first = blocks.start;
            let count = (blocks.end - first).min(VALUES_AT_ONCE);
            blocks.start += count;
            if blocks.is_empty() {
                large.computes.pop_front();
            }
            large.computing = true;
            large.going += 1;
            return Some(Job::Values { file, first, count });
        }
        if let Some(dedup) = large.dedup.as_mut().filter(|d| !d.hashing)
            && let Some(answer) = dedup.answers.pop_front()
        {
            dedup.hashing = true;
            large.going += 1;
            return Some(Job::Prove { file, answer });
        }
        if let Some(range) = large.asks.front_mut() {
            let part = range.start..block_end(range.start, large.item.size).min(range.end);
            range.start = part.end;
            if range.is_empty() {
                large.asks.pop_front();
            }
            large.going += 1;
            let turn = take_turn(&mut state.turns, stream);
            return Some(Job::Block(BlockJob { asked: true, ..large.job(file, part, &fd, turn) }));
        }
    }
    None
}

/// The next thing to do for large files: for the one whose turn it is. Nothing of the next one is sent before the end of
/// this one was told.
pub(super) fn pick(state: &mut State, stream: usize) -> Option<Job> {
    if let Some(job) = pick_asked(state, stream) {
        return Some(job);
    }
    while let Some(file) = state.line.front().copied() {
        let large = match state.files.get_mut(&file) {
            Some(large) if large.phase != Phase::Ended || large.going > 0 => large,
            _ => {
                state.line.pop_front();
                continue;
            }
        };
        if large.phase != Phase::Going || large.failed.is_some() {
            return None;
        }
        let Handle::Open(fd) = &large.handle else { return None };
        let fd = fd.clone();
        let (size, blocks) = (large.size(), large.blocks());
        let all = match &mut large.dedup {
            Some(dedup) => {
                if let Some((block, cv)) = dedup.missing.pop_front() {
                    large.going += 1;
                    let start = block * BLOCK_BYTES;
                    let turn = take_turn(&mut state.turns, stream);
                    let job = large.job(file, start..block_end(start, size), &fd, turn);
                    return Some(Job::Block(BlockJob { cv: Some(cv), ..job }));
                }
                if dedup.next < blocks && dedup.out < GROUPS_OUT && !dedup.hashing {
                    dedup.hashing = true;
                    let first = dedup.next;
                    let count = (blocks - first).min(HAVE_BLOCKS_MAX as u64);
                    dedup.next += count;
                    dedup.out += 1;
                    large.going += 1;
                    return Some(Job::Have { file, first, count });
                }
                dedup.next >= blocks && dedup.out == 0
            }
            None if large.next < size => {
                let range = large.next..block_end(large.next, size);
                large.next = range.end;
                large.going += 1;
                let turn = take_turn(&mut state.turns, stream);
                return Some(Job::Block(large.job(file, range, &fd, turn)));
            }
            None => true,
        };
        if all && large.going == 0 {
            large.phase = Phase::Ended;
            large.going += 1;
            return Some(Job::Finish { file });
        }
        return None;
    }
    None
}

/// Something on its way to a stream.
pub(super) enum Outgoing {
    Frame { frame: Vec<u8>, raw: usize, pack_ns: u64 },
    Part(FilePart),
}

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

impl Sending<'_> {
    /// The receiver says whether it wants a large file, and from where.
    pub(super) fn resume(
        &self,
        state: &mut State,
        file: u64,
        wanted: bool,
        from: u64,
        flags: u8,
    ) -> std::result::Result<(), Stop> {
        let how = &self.push.how;
        let large = state.large(file)?;
        if large.answered {
            return Err(broken(Reason::AnsweredBefore.about(file)));
        }
        if from > large.size() {
            return Err(broken(Reason::FromBeyondEnd.about(file)));
        }
        large.answered = true;
        if !wanted {
            // Nothing may be asked about it any more; it stays in the window until it is closed.
            large.phase = Phase::Ended;
            large.handle = Handle::Closed;
            return Ok(());
        }
        large.hashed = !how.fast && flags & 1 == 0;
        large.next = from;
        if how.dedup && large.hashed && large.size() >= DEDUP_BYTES_MIN && from.is_multiple_of(BLOCK_BYTES) {
            large.dedup = Some(Dedup {
                next: from / BLOCK_BYTES,
                out: 0,
                hashing: false,
                asked: BTreeMap::new(),
                answers: VecDeque::new(),
                missing: VecDeque::new(),
            });
        }
        // It may have been found changed while values were computed; then it has ended already.
        if large.phase == Phase::Offered && large.failed.is_none() {
            large.phase = Phase::Going;
            state.line.push_back(file);
        }
        Ok(())
    }

    /// A thread is done with something of a file; `failed`: it is not whole.
    fn done(&self, file: u64, failed: Option<Failed>) {
        let mut state = self.state();
        let Some(large) = state.files.get_mut(&file) else { return };
        large.going -= 1;
        if let Some(failed) = failed {
            large.fail(failed);
        }
    }

    /// The file and what it is, if the receiver has not forgotten it meanwhile.
    fn open_large(&self, file: u64) -> Option<(Arc<OwnedFd>, Arc<Item>, Arc<Place>)> {
        let state = self.state();
        let large = state.files.get(&file)?;
        let Handle::Open(fd) = &large.handle else { return None };
        Some((fd.clone(), large.item.clone(), large.place.clone()))
    }

    /// Opens an offered file, if it is still the one that was offered.
    pub(super) fn open(&self, file: u64) -> Result<()> {
        let known = {
            let state = self.state();
            state.files.get(&file).map(|large| (large.item.clone(), large.place.clone()))
        };
        let Some((item, place)) = known else { return Ok(()) };
        let opened = self.handles.get(&place).and_then(|dir| self.open_file(&dir, &item.name, place.follow));
        let mut failed = None;
        let mut state = self.state();
        if let Some(large) = state.files.get_mut(&file) {
            large.handle = Handle::Closed;
            match opened {
                Ok((fd, info)) if info.kind == Kind::File && item.info.same_content(&info) => {
                    large.handle = Handle::Open(Arc::new(fd));
                }
                Ok(_) => failed = Some(Failed::Changed),
                Err(e) => failed = Some(Failed::Error(Arc::new(e))),
            }
        }
        drop(state);
        self.done(file, failed);
        Ok(())
    }

    /// Tells that all of a file was sent, or that it was in vain.
    pub(super) fn finish_file(&self, file: u64) -> Result<()> {
        let known = {
            let state = self.state();
            state.files.get(&file).map(|large| {
                let fd = match &large.handle {
                    Handle::Open(fd) => Some(fd.clone()),
                    _ => None,
                };
                let failed = large.failed.as_ref().map(|f| f.0.clone());
                (fd, failed, large.fault.clone(), large.item.clone(), large.place.clone())
            })
        };
        // The receiver has settled it before its end: it knows.
        let Some((fd, mut failed, fault, item, place)) = known else { return Ok(()) };
        if failed.is_none()
            && let Some(fd) = fd
        {
            if self.push.how.fast {
                self.drain()?;
            }
            let path = || place.node.join(item.name.as_name());
            failed = match (fault.get(), Info::of(&*fd)) {
                (Some(e), _) if e.kind() == io::ErrorKind::UnexpectedEof => Some(Failed::Changed),
                (Some(e), _) => Some(read_failed(path(), e)),
                // Nothing of it changed, so all that was read and hashed is one version.
                (None, Ok(now)) if item.info.same_content(&now) => None,
                (None, Ok(_)) => Some(Failed::Changed),
                (None, Err(e)) => Some(Failed::Error(Arc::new(Error::os(Op::Stat, path(), e)))),
            };
        }
        let trouble = match &failed {
            Some(Failed::Error(e)) => Some(TroubleBuf::of(e)),
            _ => None,
        };
        let state = match &failed {
            None => FileState::Whole,
            Some(Failed::Changed) => FileState::Changed,
            Some(Failed::Error(_)) => FileState::Failed,
        };
        let said =
            self.say(&Message::FileEnd { file, state, error: trouble.as_ref().map(TroubleBuf::trouble) });
        let mut shared = self.state();
        if let Some(large) = shared.files.get_mut(&file) {
            large.going -= 1;
            if let Some(failed) = failed {
                large.failed = Some((failed, true));
            }
        }
        said
    }

    /// Waits until everything that was handed to the streams was read from its file.
    fn drain(&self) -> Result<()> {
        let latch = Arc::new(Latch { left: Mutex::new(self.push.outs.len()), wake: Condvar::new() });
        let ticks: Vec<Tick> = self.push.outs.iter().map(|_| Tick(latch.clone())).collect();
        for (out, tick) in self.push.outs.iter().zip(ticks) {
            out.then(Box::new(move || drop(tick)))?;
        }
        let mut left = latch.left.lock().unwrap_or_else(PoisonError::into_inner);
        // A stream that is stuck in a write keeps what it writes, also when it was given up.
        while *left > 0 && !self.stopped() {
            let _waits = self.push.pulse.waits_for(For::Room);
            left = latch.wake.wait_timeout(left, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    // ---- values of blocks ----

    /// Tells chaining values that the receiver asked for.
    pub(super) fn values(&self, file: u64, first: u64, count: u64) -> Result<()> {
        let mut failed = None;
        if let Some((fd, item, place)) = self.open_large(file) {
            match self.block_values(&fd, &item, &place, first..first + count) {
                Ok(hashes) => self.say(&Message::Values { file, first, hashes })?,
                Err(e) => failed = Some(e),
            }
        }
        if let Some(large) = self.state().files.get_mut(&file) {
            large.computing = false;
        }
        self.done(file, failed);
        Ok(())
    }

    /// Asks whether the receiver's store has blocks.
    pub(super) fn have(&self, file: u64, first: u64, count: u64) -> Result<()> {
        let mut failed = None;
        if let Some((fd, item, place)) = self.open_large(file) {
            match self.block_values(&fd, &item, &place, first..first + count) {
                Ok(hashes) => {
                    let mut state = self.state();
                    if let Some(dedup) = state.files.get_mut(&file).and_then(|f| f.dedup.as_mut()) {
                        dedup.asked.insert(first, hashes.clone());
                    }
                    drop(state);
                    self.say(&Message::HaveBlocks { file, first, hashes })?;
                }
                Err(e) => failed = Some(e),
            }
        }
        self.hashed(file, Vec::new());
        self.done(file, failed);
        Ok(())
    }

    /// No worker hashes for a file's questions and proofs any more; blocks that are to be sent now.
    fn hashed(&self, file: u64, missing: Vec<(u64, Cv)>) {
        if let Some(dedup) = self.state().files.get_mut(&file).and_then(|f| f.dedup.as_mut()) {
            dedup.hashing = false;
            dedup.missing.extend(missing);
        }
    }

    /// Proves that blocks are really here, to a store that has them.
    pub(super) fn prove(&self, file: u64, answer: Answered) -> Result<()> {
        let mut failed = None;
        if let Some((fd, item, place)) = self.open_large(file) {
            let mut tags = Vec::with_capacity(answer.there.len());
            for block in &answer.there {
                let start = block * BLOCK_BYTES;
                // [proof.keyed]
                let mut hasher = blake3::Hasher::new_keyed(&answer.nonce);
                let range = start..block_end(start, item.size);
                match self.hash_range(&fd, &item, &place, range, &mut hasher) {
                    Ok(()) => tags.push(*hasher.finalize().as_bytes()),
                    Err(e) => {
                        failed = Some(e);
                        break;
                    }
                }
            }
            if failed.is_none() && !tags.is_empty() {
                self.say(&Message::Proof { file, first: answer.first, tags })?;
            }
        }
        if let Some(dedup) = self.state().files.get_mut(&file).and_then(|f| f.dedup.as_mut()) {
            dedup.out -= 1;
        }
        self.hashed(file, answer.missing);
        self.done(file, failed);
        Ok(())
    }

    fn block_values(
        &self,
        fd: &OwnedFd,
        item: &Item,
        place: &Place,
        blocks: Range<u64>,
    ) -> std::result::Result<Vec<Cv>, Failed> {
        blocks
            .map(|block| {
                let start = block * BLOCK_BYTES;
                let mut hasher = blake3::Hasher::new();
                hasher.set_input_offset(start);
                self.hash_range(fd, item, place, start..block_end(start, item.size), &mut hasher)?;
                Ok(hasher.finalize_non_root())
            })
            .collect()
    }

    fn hash_range(
        &self,
        fd: &OwnedFd,
        item: &Item,
        place: &Place,
        range: Range<u64>,
        hasher: &mut blake3::Hasher,
    ) -> std::result::Result<(), Failed> {
        let read = |at, piece: &mut [u8]| match read_full(fd, at, piece) {
            Ok(n) if n == piece.len() => Ok(n),
            Ok(_) => Err(Failed::Changed),
            Err(e) => Err(read_failed(place.node.join(item.name.as_name()), &e)),
        };
        in_pieces(range, aligned().all(), read, |_, piece| {
            hasher.update(piece);
            Ok(())
        })
        .map(drop)
    }

    // ---- blocks ----

    /// Sends a part of one block.
    pub(super) fn block(&self, hand: &mut Hand, job: BlockJob) -> Result<()> {
        let mut held = Vec::new();
        let went = self.pieces(hand, &job, &mut held);
        let went = self.end_turn(hand.stream, job.turn, held).and(went);
        let failed = went?;
        self.done(job.file, failed);
        Ok(())
    }

    /// Reads, hashes, packs and sends the pieces of a job, and keeps back what has to wait for the block before.
    fn pieces(&self, hand: &mut Hand, job: &BlockJob, held: &mut Vec<Outgoing>) -> Result<Option<Failed>> {
        let start = job.range.start - job.range.start % BLOCK_BYTES;
        let ends = job.range.end == block_end(job.range.start, job.size);
        let known = self.open_large(job.file);
        // The receiver may have settled it meanwhile.
        let Some((_, item, place)) = known else { return Ok(None) };
        let mut hasher = None;
        if job.hashed && ends && job.cv.is_none() {
            let mut new = blake3::Hasher::new();
            new.set_input_offset(start);
            // The receiver has the first part already; the value is of the whole block.
            if let Err(failed) = self.hash_range(&job.fd, &item, &place, start..job.range.start, &mut new) {
                return Ok(Some(failed));
            }
            hasher = Some(new);
        }
        let extents: Option<Vec<Range<u64>>> =
            job.sparse.then(|| Extents::within(job.fd.as_fd(), job.range.clone()).collect());
        let mut at = job.range.start;
        while at < job.range.end {
            if self.stopped() {
                return Ok(None);
            }
            let stop = (at - at % WIRE_PIECE_BYTES + WIRE_PIECE_BYTES).min(job.range.end);
            let hole = extents.as_ref().is_some_and(|e| e.iter().all(|e| e.end <= at || e.start >= stop));
            let last = (stop == job.range.end && ends && job.hashed).then_some(());
            let made = self.piece(hand, job, at..stop, hole, last.is_some(), hasher.as_mut());
            match made? {
                Ok(outgoing) => self.pass(hand.stream, job.turn, held, outgoing)?,
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(Failed::Changed)),
                Err(e) => return Ok(Some(read_failed(place.node.join(item.name.as_name()), &e))),
            }
            at = stop;
        }
        Ok(None)
    }

    /// Makes one piece.
    fn piece(
        &self,
        hand: &mut Hand,
        job: &BlockJob,
        range: Range<u64>,
        hole: bool,
        ends: bool,
        mut hasher: Option<&mut blake3::Hasher>,
    ) -> Result<io::Result<Outgoing>> {
        let bytes = (range.end - range.start) as usize;
        let mut piece = Piece {
            file: job.file,
            at: range.start,
            flags: if job.asked { data::ASKED } else { 0 } | if ends { data::ENDS_BLOCK } else { 0 },
            cv: ends.then_some([0; 32]),
            codec: Codec::Raw,
            length: bytes as u64,
            bytes: &[],
        };
        let value = |hasher: Option<&mut blake3::Hasher>| {
            let made = || hasher.map(|h| h.finalize_non_root());
            ends.then(|| job.cv.or_else(made).unwrap_or_default())
        };
        if hole {
            if let Some(hasher) = &mut hasher {
                hash_zeros(hasher, bytes as u64);
            }
            piece.cv = value(hasher);
            return self.zeros(hand, piece).map(Ok);
        }
        let (codec, effort) = self.codec();
        if codec == Codec::Raw && !job.hashed {
            let mut head = self.room(hand.stream);
            let mark = codec::encode_data_header(&piece, &mut head).map_err(|e| unsayable(&e))?;
            frame::finish_with(&mut head, mark, bytes as u64).map_err(|e| unsayable(&e))?;
            let (file, fault) = (job.fd.clone(), job.fault.clone());
            let part = FilePart { head, file, at: range.start, bytes: bytes as u64, fault };
            return Ok(Ok(Outgoing::Part(part)));
        }
        if codec == Codec::Raw {
            // Straight behind the header, which is as long whatever the value in it.
            let mut frame = self.room(hand.stream);
            let mark = codec::encode_data_header(&piece, &mut frame).map_err(|e| unsayable(&e))?;
            let body = frame.len();
            if let Err(e) = read_hashed(&job.fd, range.start, bytes, &mut frame, hasher.as_deref_mut()) {
                return Ok(Err(e));
            }
            piece.cv = value(hasher);
            if is_zero(frame.get(body..).unwrap_or_default()) {
                return self.zeros(hand, piece).map(Ok);
            }
            if ends {
                let mut head = Vec::with_capacity(body);
                codec::encode_data_header(&piece, &mut head).map_err(|e| unsayable(&e))?;
                if let Some(room) = frame.get_mut(mark..mark + head.len()) {
                    room.copy_from_slice(&head);
                }
            }
            frame::finish(&mut frame, mark).map_err(|e| unsayable(&e))?;
            return Ok(Ok(Outgoing::Frame { frame, raw: bytes, pack_ns: 0 }));
        }
        let mut raw = std::mem::take(&mut hand.raw);
        raw.clear();
        if let Err(e) = read_hashed(&job.fd, range.start, bytes, &mut raw, hasher.as_deref_mut()) {
            hand.raw = raw;
            return Ok(Err(e));
        }
        piece.cv = value(hasher);
        if is_zero(&raw) {
            hand.raw = raw;
            return self.zeros(hand, piece).map(Ok);
        }
        let mut frame = self.room(hand.stream);
        let before = self.now_ns();
        piece.codec = codec;
        let mut mark = codec::encode_data_header(&piece, &mut frame).map_err(|e| unsayable(&e))?;
        let packed = hand.packer.pack(codec, effort, &raw, &mut frame);
        let pack_ns = self.now_ns().saturating_sub(before);
        if !packed {
            frame.truncate(mark);
            piece.codec = Codec::Raw;
            mark = codec::encode_data_header(&piece, &mut frame).map_err(|e| unsayable(&e))?;
            frame.extend_from_slice(&raw);
        }
        hand.raw = raw;
        frame::finish(&mut frame, mark).map_err(|e| unsayable(&e))?;
        Ok(Ok(Outgoing::Frame { frame, raw: bytes, pack_ns }))
    }

    /// A piece of which only the length travels.
    fn zeros(&self, hand: &Hand, mut piece: Piece<'_>) -> Result<Outgoing> {
        piece.flags |= data::ZEROS;
        piece.codec = Codec::Raw;
        let mut frame = self.room(hand.stream);
        Message::Data(piece).encode(&mut frame).map_err(|e| unsayable(&e))?;
        // It says nothing about what packing is worth.
        Ok(Outgoing::Frame { frame, raw: 0, pack_ns: 0 })
    }

    fn pass(&self, stream: usize, turn: u64, held: &mut Vec<Outgoing>, outgoing: Outgoing) -> Result<()> {
        let mine = self.state().turns.get(stream).is_none_or(|turns| turns.serving == turn);
        if !mine {
            held.push(outgoing);
            return Ok(());
        }
        for outgoing in held.drain(..).chain([outgoing]) {
            self.send_outgoing(stream, outgoing)?;
        }
        Ok(())
    }

    /// Waits for the turn, sends what was kept back, and lets the next one.
    pub(super) fn end_turn(&self, stream: usize, turn: u64, held: Vec<Outgoing>) -> Result<()> {
        let mut state = self.state();
        while state.turns.get(stream).is_some_and(|turns| turns.serving != turn) {
            if state.stop.is_some() || state.over {
                return Ok(());
            }
            state = self.wait(state);
        }
        drop(state);
        let sent = held.into_iter().try_for_each(|outgoing| self.send_outgoing(stream, outgoing));
        if let Some(turns) = self.state().turns.get_mut(stream) {
            turns.serving += 1;
        }
        self.wake();
        sent
    }

    fn send_outgoing(&self, stream: usize, outgoing: Outgoing) -> Result<()> {
        match outgoing {
            Outgoing::Frame { frame, raw, pack_ns } => self.send_content(stream, frame, raw, pack_ns),
            Outgoing::Part(part) => self.send_part(stream, part),
        }
    }
}

fn read_failed(path: std::path::PathBuf, e: &io::Error) -> Failed {
    let e = match e.raw_os_error() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::from(e.kind()),
    };
    Failed::Error(Arc::new(Error::os(Op::Read, path, e)))
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

const _: () = assert!(OFFERS_OUT_MAX * ASKS_WAITING <= 1 << 20);
const _: () = assert!(crate::blocks::FORMAT_BLOCK_BYTES == bcmr_wire::limits::BLOCK_BYTES);
