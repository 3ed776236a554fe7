//! A large file that arrives piece by piece, over as many streams as there are, put in order for the worker that lands it.
//!
//! Must not know what a stream is: pieces are handed in, questions are handed out through [`SenderRequests`]. What is kept waiting
//! is bounded for each stream ([`WAITING_BYTES_MAX`]); the stream that carries more waits. No two wait for each other:
//! pieces are read in rising order and every stream brings them in rising order, so the piece that is read next is
//! always the next of its stream.

use crate::blocks::{BLOCK_BYTES, Cv, WIRE_PIECE_BYTES as PIECE, blocks_of};
use crate::chunks::{ChunkSum, Span};
use crate::disk::{Bytes, Fault, Side};
use crate::error::{Code, Error, Op, Reason};
use crate::event::Cancel;
use crate::pulse::{For, Pulse, Shift};
use crate::receiver::basis::Basis;
use fastcopy::meta::Info;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of one stream that wait to be read, at most, and of all streams together; but a piece of each.
pub(crate) const WAITING_BYTES_MAX: u64 = 8 * PIECE;
const ALL_WAITING_BYTES: u64 = 4 * WAITING_BYTES_MAX;
/// So many times as much while a reader waits for a piece that was asked for once more: what the sender had on its way
/// before it heard of that.
const WHILE_ASKING: u64 = 4;
/// Chaining values asked for at a time.
const VALUES_AT_ONCE: u64 = 64;

/// How often flags are looked at while a stream waits for room.
const LOOK: Duration = Duration::from_millis(100);

/// What the large files of a transfer share: whether anything moves at all. A sender that brings pieces of a later file
/// before those of an earlier one would have all of them wait for ever, with a connection that is alive.
pub(crate) struct StallDetector<'a> {
    pulse: Arc<Pulse>,
    cancel: &'a Cancel,
    streams: usize,
    timeout: Duration,
    /// Streams that wait for room.
    waiting_for_room: AtomicUsize,
    /// Readers that wait for a piece or a word of the sender.
    waiting_readers: AtomicUsize,
    /// Pieces that came or were read.
    moved: AtomicU64,
    /// Readers that wait for a piece once more. It stands behind pieces of a later file, which is not read before.
    asking: AtomicUsize,
    /// The transfer has failed, on whichever stream.
    lost: AtomicBool,
}

impl<'a> StallDetector<'a> {
    /// `timeout`: how long all streams may wait for room while a reader waits for what only they can bring.
    pub(crate) fn new(
        cancel: &'a Cancel,
        streams: usize,
        timeout: Duration,
        pulse: Arc<Pulse>,
    ) -> StallDetector<'a> {
        let none = || AtomicUsize::new(0);
        let (waiting_for_room, waiting_readers, asking) = (none(), none(), none());
        let (moved, lost) = (AtomicU64::new(0), AtomicBool::new(false));
        StallDetector {
            pulse,
            cancel,
            streams,
            timeout,
            waiting_for_room,
            waiting_readers,
            moved,
            asking,
            lost,
        }
    }

    /// The transfer has failed: a stream does not wait for room any more, as what is read next may have been on its way
    /// over another one, which is gone.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Relaxed);
    }

    fn is_over(&self) -> bool {
        self.cancel.is_set() || self.lost.load(Relaxed)
    }

    /// Bytes of one stream that may wait.
    fn waiting_bytes(&self) -> u64 {
        (ALL_WAITING_BYTES / self.streams.max(1) as u64).clamp(PIECE, WAITING_BYTES_MAX)
    }

    fn is_deadlocked(&self) -> bool {
        self.waiting_for_room.load(Relaxed) >= self.streams && self.waiting_readers.load(Relaxed) > 0
    }
}

/// What is asked of the sender.
pub(crate) trait SenderRequests: Sync + Send {
    /// Wanted from here on; `hashes`: with chaining values; `patches`: what has a sum need not come.
    fn resume(&self, file: u64, from: u64, hashes: bool, patches: bool) -> io::Result<()>;
    /// A range again.
    fn reread(&self, file: u64, at: u64, bytes: u64) -> io::Result<()>;
    /// Chaining values of the source's blocks.
    fn compute(&self, file: u64, first: u64, count: u64) -> io::Result<()>;
    /// Chunks of what is here already, of which the first begins at `at` there.
    fn sums(&self, file: u64, at: u64, chunks: &[ChunkSum]) -> io::Result<()>;
}

/// Blocks that need not cross, because they are at hand already.
pub(crate) trait BlockCache: Sync + Send {
    /// The whole block, proved to be what the sender has; `None` when it must cross after all.
    fn block(&self, block: u64, bytes: u64) -> Option<Vec<u8>>;
}

/// The bytes of a piece.
pub(crate) enum Load {
    /// Zeros.
    Zeros,
    /// A buffer that holds them from `start` on.
    Bytes { buffer: Box<dyn AsRef<[u8]> + Send>, start: usize },
    /// What the basis has, and what it has not, one behind the other.
    Patch { spans: Vec<Span>, carried: Vec<u8> },
}

struct Piece {
    load: Load,
    bytes: u64,
    stream: usize,
}

/// How it ended at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    Changed,
    /// The code and errno of what went wrong there.
    Failed(Code, i32),
}

/// How a block gets here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockWay {
    /// The sender sends it, without being asked.
    Sent,
    /// It is at hand, and the sender was told so.
    AtHand,
    /// The sender was told that it is at hand, and it is not any more: of such a block only comes what is asked for.
    OnRequest,
}

#[derive(Default)]
struct Inner {
    /// Where the sender was told to begin; nothing is expected before.
    from: Option<u64>,
    /// It begins in the middle of a block, so that blocks come without their values (`-a`).
    unaligned: bool,
    pieces: BTreeMap<u64, Piece>,
    /// Bytes waiting, by stream.
    waiting: Vec<u64>,
    /// How far each stream has come: it may not go back.
    reached: Vec<u64>,
    /// A bit for each piece that has come: each comes once. By words, so that a piece far behind takes no memory for
    /// those before it.
    seen: HashMap<u64, u64>,
    claimed: HashMap<u64, Cv>,
    /// Pieces asked for once more.
    again: BTreeMap<u64, Piece>,
    /// Values of the source; and of which blocks they were asked for and not taken yet, as threads ask in no order.
    values: BTreeMap<u64, Cv>,
    values_asked: HashSet<u64>,
    /// Those that were taken: a reader that asks ahead stops there.
    values_taken: HashSet<u64>,
    /// Blocks whose way is decided. `None`: every block is sent.
    decided: Option<HashMap<u64, BlockWay>>,
    /// Blocks that were made from the basis, in part at least.
    patched: HashSet<u64>,
    /// The block that was taken from what is at hand, for the reads that follow.
    taken: HashMap<u64, Vec<u8>>,
    end: Option<End>,
    /// There is no reader any more: what still comes is dropped.
    closed: bool,
    /// The connection is gone.
    lost: bool,
}

/// One large file on its way.
pub(crate) struct Arriving<'a> {
    pub(crate) file: u64,
    pub(crate) info: Info,
    /// Blocks come with their chaining values.
    hashes: bool,
    ask: &'a dyn SenderRequests,
    stalls: Arc<StallDetector<'a>>,
    at_hand: Option<Box<dyn BlockCache + 'a>>,
    /// What is here of it already.
    basis: OnceLock<Basis>,
    /// It may yet get one, from the thread that lands it.
    awaits_basis: bool,
    inner: Mutex<Inner>,
    change: Condvar,
}

fn refused(note: Reason) -> Error {
    Error::ours(Code::Protocol, Op::Receive, "", note)
}

fn failed(code: Code, errno: i32) -> io::Error {
    if errno == 0 { io::Error::other(code.name()) } else { io::Error::from_raw_os_error(errno) }
}

fn gone() -> io::Error {
    // Without an errno: a disk may end with that of an aborted connection too (FUSE does).
    io::ErrorKind::ConnectionAborted.into()
}

impl<'a> Arriving<'a> {
    pub(crate) fn new(
        file: u64,
        info: Info,
        hashes: bool,
        ask: &'a dyn SenderRequests,
        stalls: Arc<StallDetector<'a>>,
    ) -> Arriving<'a> {
        let (inner, change) = (Mutex::default(), Condvar::new());
        let (at_hand, basis, awaits_basis) = (None, OnceLock::new(), false);
        Arriving { file, info, hashes, ask, stalls, at_hand, basis, awaits_basis, inner, change }
    }

    /// The same with blocks that may be at hand; the sender says which ones it has before it sends any.
    pub(crate) fn with_store(self, store: Box<dyn BlockCache + 'a>) -> Arriving<'a> {
        let inner = Inner { decided: Some(HashMap::new()), ..Inner::default() };
        Arriving { at_hand: Some(store), inner: Mutex::new(inner), ..self }
    }

    /// The same with a basis: the sender is told of its chunks before it begins. Only where blocks come with their values.
    pub(crate) fn with_basis(self, basis: Basis) -> Arriving<'a> {
        self.set_basis(basis);
        self
    }

    /// The same, where a basis may be known by the time that it is landed.
    pub(crate) fn awaiting_basis(self) -> Arriving<'a> {
        Arriving { awaits_basis: self.hashes, ..self }
    }

    /// Gives it a basis, before the sender is told to begin; a first one stays.
    pub(crate) fn set_basis(&self, basis: Basis) {
        if self.hashes {
            self.basis.get_or_init(|| basis);
        }
    }

    /// Whether it has a basis, which is looked at before the sender is told to begin, or may get one.
    pub(crate) fn has_basis(&self) -> bool {
        self.awaits_basis || self.basis.get().is_some()
    }

    /// Whether it may get a basis, and has none.
    pub(crate) fn lacks_basis(&self) -> bool {
        self.awaits_basis && self.basis.get().is_none()
    }

    /// The sender wants to know more of a part of the basis.
    ///
    /// # Errors
    /// [`Code::Protocol`] where it was told of no such part; it cannot be answered.
    pub(crate) fn finer(&self, at: u64, bytes: u64) -> Result<(), Error> {
        if self.inner().closed {
            return Ok(());
        }
        let finer = self.basis.get().and_then(|basis| basis.finer(at, bytes));
        let finer = finer.ok_or_else(|| refused(Reason::FinerThanTold))?;
        let sent = self.ask.sums(self.file, at, &finer);
        sent.map_err(|e| Error { code: Code::Lost, ..Error::os(Op::SendToTheOtherSide, "", e) })
    }

    /// What a piece consists of: of a patch, what the basis has is read now.
    fn unpatched(&self, load: Load) -> Result<(Load, bool), Error> {
        let Load::Patch { spans, carried } = load else { return Ok((load, false)) };
        let whole = self.basis.get().and_then(|basis| basis.assemble(&spans, &carried));
        let whole = whole.ok_or_else(|| refused(Reason::PatchOfNothing))?;
        Ok((Load::Bytes { buffer: Box::new(whole), start: 0 }, true))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something of the sender about a block.
    fn wait<'g>(&self, inner: MutexGuard<'g, Inner>, what: For, block: u64) -> MutexGuard<'g, Inner> {
        let _waits = self.stalls.pulse.waits_for_block(what, self.file, block);
        self.stalls.waiting_readers.fetch_add(1, Relaxed);
        let inner = self.change.wait(inner).unwrap_or_else(PoisonError::into_inner);
        self.stalls.waiting_readers.fetch_sub(1, Relaxed);
        inner
    }

    /// Waits for room for `bytes` of `stream`, or until there is no reader any more.
    fn wait_for_room<'g>(
        &'g self,
        inner: MutexGuard<'g, Inner>,
        stream: usize,
        bytes: u64,
    ) -> Result<MutexGuard<'g, Inner>, Error> {
        let stalls = &*self.stalls;
        let is_full = |inner: &Inner| {
            let most = stalls.waiting_bytes();
            let most = if stalls.asking.load(Relaxed) > 0 { WHILE_ASKING * most } else { most };
            let full = inner.waiting.get(stream).is_some_and(|w| *w > 0 && *w + bytes > most);
            full && !inner.closed && !inner.lost && !stalls.is_over()
        };
        let mut inner = inner;
        if !is_full(&inner) {
            return Ok(inner);
        }
        stalls.waiting_for_room.fetch_add(1, Relaxed);
        let (mut since, mut moved) = (Instant::now(), stalls.moved.load(Relaxed));
        let mut deadlocked = false;
        let _waits = stalls.pulse.waits_for(For::Piece);
        while is_full(&inner) && !deadlocked {
            inner = self
                .change
                .wait_timeout(inner, LOOK.min(stalls.timeout))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            let now = stalls.moved.load(Relaxed);
            if now != moved || !stalls.is_deadlocked() {
                (since, moved) = (Instant::now(), now);
            }
            deadlocked = since.elapsed() > stalls.timeout;
        }
        stalls.waiting_for_room.fetch_sub(1, Relaxed);
        if deadlocked && is_full(&inner) {
            return Err(refused(Reason::PieceWhileAllWait));
        }
        Ok(inner)
    }

    /// A piece came on `stream`. Waits while too much of that stream waits to be read.
    ///
    /// # Errors
    /// [`Code::Protocol`] for a piece that was not asked for or does not fit.
    pub(crate) fn push(
        &self,
        stream: usize,
        at: u64,
        bytes: u64,
        cv: Option<Cv>,
        asked: bool,
        load: Load,
    ) -> Result<(), Error> {
        let size = self.info.size;
        if self.inner().closed {
            return Ok(());
        }
        let (load, patched) = self.unpatched(load)?;
        let mut inner = self.inner();
        if inner.closed {
            return Ok(());
        }
        if patched && inner.unaligned {
            return Err(refused(Reason::PatchOfNothing));
        }
        let held = Piece { load, bytes, stream };
        if asked {
            if !inner.again.contains_key(&at) || bytes != PIECE.min(size.saturating_sub(at)) {
                return Err(refused(Reason::PieceNotAskedAgain));
            }
            let block = at / BLOCK_BYTES;
            // Two values for one block, both the sender's: the block has changed between them.
            if cv.is_some_and(|now| inner.claimed.get(&block).is_some_and(|before| *before != now)) {
                inner.end = Some(End::Changed);
            }
            inner.again.insert(at, held);
            drop(inner);
            self.change.notify_all();
            return Ok(());
        }
        let Some(from) = inner.from else { return Err(refused(Reason::PieceBeforeWanted)) };
        // The first one may begin anywhere (`--append`), all others at their place.
        let next = (at - at % PIECE).saturating_add(PIECE).min(size);
        let fits = at < size && at >= from && (at == from || at.is_multiple_of(PIECE)) && at + bytes == next;
        if !fits {
            return Err(refused(Reason::PieceDoesNotFit));
        }
        if inner.reached.len() <= stream {
            inner.reached.resize(stream + 1, 0);
            inner.waiting.resize(stream + 1, 0);
        }
        let reached = inner.reached.get(stream).copied().unwrap_or_default();
        if at < reached || inner.saw(at) {
            return Err(refused(Reason::PieceOutOfOrder));
        }
        let ends_block = next == size || next.is_multiple_of(BLOCK_BYTES);
        match cv {
            Some(cv) if ends_block => {
                inner.claimed.insert(at / BLOCK_BYTES, cv);
            }
            None if ends_block && self.hashes && !inner.unaligned => {
                return Err(refused(Reason::BlockWithoutValue));
            }
            None => {}
            Some(_) => return Err(refused(Reason::ValueInsideBlock)),
        }
        inner = self.wait_for_room(inner, stream, bytes)?;
        if inner.closed || inner.lost || self.stalls.is_over() {
            return Ok(());
        }
        self.stalls.moved.fetch_add(1, Relaxed);
        if let Some(w) = inner.waiting.get_mut(stream) {
            *w += bytes;
        }
        if let Some(r) = inner.reached.get_mut(stream) {
            *r = next;
        }
        inner.see(at);
        if patched {
            inner.patched.insert(at / BLOCK_BYTES);
        }
        inner.pieces.insert(at, held);
        drop(inner);
        self.change.notify_all();
        Ok(())
    }

    /// What the sender has to say at its end.
    pub(crate) fn end(&self, end: End) {
        let mut inner = self.inner();
        // What was whole may still turn out to be gone when a part of it is asked for once more.
        if inner.end.is_none() || inner.end == Some(End::Whole) {
            inner.end = Some(end);
        }
        drop(inner);
        self.change.notify_all();
    }

    /// Values that were asked for.
    pub(crate) fn values(&self, first: u64, values: &[Cv]) -> Result<(), Error> {
        let mut inner = self.inner();
        let last = first.saturating_add(values.len() as u64);
        if !(first..last).all(|block| inner.values_asked.contains(&block)) {
            return Err(refused(Reason::ValuesNotAsked));
        }
        inner.values.extend((first..last).zip(values.iter().copied()));
        drop(inner);
        self.change.notify_all();
        Ok(())
    }

    /// Which blocks from `first` on need not cross, and what the sender says their values are.
    pub(crate) fn decide(&self, first: u64, at_hand: &[bool], values: &[Cv]) {
        let mut inner = self.inner();
        for (block, (here, cv)) in (first..).zip(at_hand.iter().zip(values)) {
            if let Some(decided) = &mut inner.decided {
                decided.insert(block, if *here { BlockWay::AtHand } else { BlockWay::Sent });
            }
            inner.claimed.insert(block, *cv);
        }
        drop(inner);
        self.change.notify_all();
    }

    /// Whether the sender was told to begin.
    pub(crate) fn was_wanted(&self) -> bool {
        self.inner().from.is_some()
    }

    /// The value of a block that may be at hand.
    pub(crate) fn announce(&self, block: u64, value: Cv) {
        self.inner().claimed.insert(block, value);
    }

    /// A block is at hand, and need not cross.
    pub(crate) fn at_hand(&self, block: u64) {
        if let Some(decided) = &mut self.inner().decided {
            decided.insert(block, BlockWay::AtHand);
        }
        self.change.notify_all();
    }

    /// There is no reader any more.
    pub(crate) fn close(&self) {
        let mut inner = self.inner();
        inner.closed = true;
        inner.pieces.clear();
        inner.again.clear();
        inner.taken.clear();
        drop(inner);
        self.change.notify_all();
    }

    /// Nothing more will come.
    pub(crate) fn lose(&self) {
        self.inner().lost = true;
        self.change.notify_all();
    }

    /// The values of all blocks, when all came with one.
    pub(crate) fn all_values(&self) -> Option<Vec<Cv>> {
        let inner = self.inner();
        (0..blocks_of(self.info.size)).map(|b| inner.claimed.get(&b).copied()).collect()
    }

    /// Reads one stretch, as far as one piece or block has it.
    fn read_some(&self, at: u64, room: &mut [u8]) -> io::Result<usize> {
        if at >= self.info.size {
            return Ok(0);
        }
        let block = at / BLOCK_BYTES;
        let mut inner = self.inner();
        loop {
            if let Some((n, is_last)) = read_held(&mut inner, at, room) {
                self.stalls.moved.fetch_add(1, Relaxed);
                self.stalls.pulse.step();
                drop(inner);
                // Room for more of its stream comes with the last part of a piece.
                if is_last {
                    self.change.notify_all();
                }
                return Ok(n);
            }
            if let Some(bytes) = inner.taken.get(&block) {
                let start = (at - block * BLOCK_BYTES) as usize;
                let rest = bytes.get(start..).unwrap_or_default();
                let n = rest.len().min(room.len());
                copy(rest, room, n);
                if n == rest.len() {
                    inner.taken.remove(&block);
                }
                return Ok(n);
            }
            if inner.lost || inner.closed {
                return Err(gone());
            }
            let from = inner.from.unwrap_or(u64::MAX);
            if inner.way(block) == Some(BlockWay::AtHand) && at >= from {
                drop(inner);
                let bytes = BLOCK_BYTES.min(self.info.size - block * BLOCK_BYTES);
                let taken = self.at_hand.as_ref().and_then(|h| h.block(block, bytes));
                inner = self.inner();
                match taken {
                    Some(bytes) => {
                        inner.taken.insert(block, bytes);
                    }
                    None => {
                        if let Some(decided) = &mut inner.decided {
                            decided.insert(block, BlockWay::OnRequest);
                        }
                    }
                }
                continue;
            }
            if !inner.comes(at) {
                match self.ask_again(inner, at)? {
                    Some(asked) => inner = asked,
                    None => return Ok(0),
                }
                continue;
            }
            match inner.end {
                Some(End::Failed(code, errno)) => return Err(failed(code, errno)),
                Some(End::Changed) => return Ok(0),
                // Its last pieces may still be on their way over another stream.
                Some(End::Whole) | None => inner = self.wait(inner, For::Piece, block),
            }
        }
    }

    /// Asks for what does not come unasked of the block that `at` is in, from the piece with `at` on, and waits until
    /// that piece is there. `None`: the source has changed, and it will not come.
    fn ask_again<'g>(
        &'g self,
        mut inner: MutexGuard<'g, Inner>,
        at: u64,
    ) -> io::Result<Option<MutexGuard<'g, Inner>>> {
        let start = at - at % PIECE;
        let waiting = |inner: &Inner| inner.again.get(&start).is_some_and(|h| h.bytes == 0);
        if !inner.again.contains_key(&start) {
            let block_end = (at - at % BLOCK_BYTES).saturating_add(BLOCK_BYTES).min(self.info.size);
            let mut end = start;
            // A reader reads the block to its end, and asking for each piece would cost a round trip each.
            while end < block_end && (end == start || inner.lacks(end)) {
                inner.again.insert(end, Piece { load: Load::Zeros, bytes: 0, stream: 0 });
                end = end.saturating_add(PIECE).min(block_end);
            }
            drop(inner);
            self.ask.reread(self.file, start, end - start)?;
            inner = self.inner();
        }
        self.stalls.asking.fetch_add(1, Relaxed);
        let outcome = loop {
            if !waiting(&inner) {
                break Ok(true);
            }
            if inner.lost || inner.closed {
                break Err(gone());
            }
            match inner.end {
                Some(End::Failed(code, errno)) => break Err(failed(code, errno)),
                Some(End::Changed) => break Ok(false),
                Some(End::Whole) | None => inner = self.wait(inner, For::Piece, at / BLOCK_BYTES),
            }
        };
        self.stalls.asking.fetch_sub(1, Relaxed);
        Ok(outcome?.then_some(inner))
    }
}

impl Inner {
    fn way(&self, block: u64) -> Option<BlockWay> {
        self.decided.as_ref()?.get(&block).copied()
    }

    /// Whether the piece that `at` is in is still to come, without being asked for: not what lies before the beginning,
    /// what has come before, and what the sender holds back.
    fn comes(&self, at: u64) -> bool {
        let begun = self.from.is_some_and(|from| at >= from);
        begun && !self.saw(at) && self.way(at / BLOCK_BYTES) != Some(BlockWay::OnRequest)
    }

    /// Whether the piece that begins at `at` is not here, was not asked for, and does not come unasked.
    fn lacks(&self, at: u64) -> bool {
        !self.comes(at) && !self.pieces.contains_key(&at) && !self.again.contains_key(&at)
    }

    /// Whether the piece that `at` is in has come, whatever became of it.
    fn saw(&self, at: u64) -> bool {
        let piece = at / PIECE;
        self.seen.get(&(piece / 64)).is_some_and(|bits| bits >> (piece % 64) & 1 == 1)
    }

    fn see(&mut self, at: u64) {
        let piece = at / PIECE;
        *self.seen.entry(piece / 64).or_default() |= 1 << (piece % 64);
    }
}

fn copy(from: &[u8], room: &mut [u8], n: usize) {
    if let (Some(to), Some(from)) = (room.get_mut(..n), from.get(..n)) {
        to.copy_from_slice(from);
    }
}

/// Reads from a piece that waits, and says whether it was the last part of it: the piece is let go then.
fn read_held(inner: &mut Inner, at: u64, room: &mut [u8]) -> Option<(usize, bool)> {
    let held_at = |pieces: &BTreeMap<u64, Piece>| {
        pieces.range(..=at).next_back().filter(|(start, h)| at < *start + h.bytes).map(|(start, _)| *start)
    };
    let (start, again) = match (held_at(&inner.pieces), held_at(&inner.again)) {
        (Some(start), _) => (start, false),
        (None, Some(start)) => (start, true),
        (None, None) => return None,
    };
    let pieces = if again { &mut inner.again } else { &mut inner.pieces };
    let held = pieces.get(&start)?;
    let (skip, left) = ((at - start) as usize, (start + held.bytes - at) as usize);
    let n = left.min(room.len());
    match &held.load {
        Load::Zeros => room.get_mut(..n)?.fill(0),
        // Put together when it came.
        Load::Patch { .. } => return None,
        Load::Bytes { buffer, start } => copy((**buffer).as_ref().get(start + skip..)?, room, n),
    }
    if n == left {
        let held = pieces.remove(&start)?;
        if !again && let Some(w) = inner.waiting.get_mut(held.stream) {
            *w = w.saturating_sub(held.bytes);
        }
    }
    Some((n, n == left))
}

impl Bytes for Arriving<'_> {
    fn read_at(&self, at: u64, room: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < room.len() {
            let rest = room.get_mut(done..).unwrap_or_default();
            match self.read_some(at + done as u64, rest)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }

    /// Before anything was wanted: what was offered. After that, the sender's word at the end is waited for.
    fn info(&self) -> io::Result<Info> {
        let mut inner = self.inner();
        if inner.from.is_none() {
            return Ok(self.info);
        }
        loop {
            match inner.end {
                Some(End::Whole) => return Ok(self.info),
                // No source has this ctime: it is not what it was.
                Some(End::Changed) => {
                    let mut info = self.info;
                    info.ctime.sec = !info.ctime.sec;
                    return Ok(info);
                }
                Some(End::Failed(code, errno)) => return Err(failed(code, errno)),
                None if inner.lost || inner.closed => return Err(gone()),
                None => inner = self.wait(inner, For::Word, 0),
            }
        }
    }

    fn file(&self) -> Option<&OwnedFd> {
        None
    }

    fn works(&self) -> Shift<'_> {
        self.stalls.pulse.works()
    }

    fn stands_by(&self) -> Shift<'_> {
        self.stalls.pulse.stands_by()
    }

    fn start(&self, at: u64) -> io::Result<()> {
        let mut inner = self.inner();
        if inner.from.is_none() {
            inner.from = Some(at);
            inner.unaligned = !at.is_multiple_of(BLOCK_BYTES);
            let hashes = self.hashes && !inner.unaligned;
            drop(inner);
            let basis = self.basis.get().filter(|_| hashes);
            if let Some(basis) = basis {
                basis.tell(|at, chunks| {
                    if self.stalls.is_over() || self.inner().lost {
                        return Err(gone());
                    }
                    self.ask.sums(self.file, at, chunks)
                })?;
            }
            self.ask.resume(self.file, at, hashes, basis.is_some())?;
        }
        Ok(())
    }

    fn value(&self, block: u64, _: u64) -> Result<Cv, Fault> {
        let fail = |e| Fault::os(Side::Source, Op::Receive, e);
        let mut inner = self.inner();
        loop {
            if let Some(cv) = inner.values.remove(&block) {
                inner.values_asked.remove(&block);
                inner.values_taken.insert(block);
                return Ok(cv);
            }
            if inner.lost || inner.closed {
                return Err(fail(gone()));
            }
            match inner.end {
                Some(End::Failed(code, errno)) => return Err(fail(failed(code, errno))),
                // Who found it changed computes nothing more of it.
                Some(End::Changed) => {
                    let note = Reason::ChangedWhileCompared;
                    return Err(Fault::ours(Side::Source, Op::Read, Code::SourceChanged, note));
                }
                // Its values come all the same.
                Some(End::Whole) | None => {}
            }
            if !inner.values_asked.contains(&block) {
                let first = block;
                let end = first.saturating_add(VALUES_AT_ONCE).min(blocks_of(self.info.size)).max(first + 1);
                let known = |b: &u64| inner.values_asked.contains(b) || inner.values_taken.contains(b);
                let ahead = (first + 1..end).take_while(|b| !known(b)).count() as u64;
                let count = 1 + ahead;
                inner.values_asked.extend(first..first + count);
                drop(inner);
                self.ask.compute(self.file, first, count).map_err(fail)?;
                inner = self.inner();
                continue;
            }
            inner = self.wait(inner, For::Values, block);
        }
    }

    fn differs(&self, block: u64) -> Fault {
        // Its last piece once more, which brings the value that the block has now.
        let end = (block + 1).saturating_mul(BLOCK_BYTES).min(self.info.size);
        let last = end.saturating_sub(1) / PIECE * PIECE;
        let mut inner = self.inner();
        inner.again.remove(&last);
        match self.ask_again(inner, last) {
            Err(e) => return Fault::os(Side::Source, Op::Receive, e),
            Ok(None) => {}
            Ok(Some(inner)) if inner.end == Some(End::Changed) => {}
            Ok(Some(mut inner)) => {
                inner.again.remove(&last);
                return Fault::mismatch();
            }
        }
        let note = Reason::SourceChangedWhileRead;
        Fault::ours(Side::Source, Op::Copy, Code::SourceChanged, note)
    }

    fn again(&self, block: u64) -> bool {
        self.inner().patched.remove(&block)
    }

    fn claimed(&self, block: u64) -> Option<Cv> {
        if self.hashes { self.inner().claimed.get(&block).copied() } else { None }
    }

    fn is_claimed(&self) -> bool {
        self.hashes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastcopy::meta::{Kind, Time};

    /// Remembers which values were asked for.
    #[derive(Default)]
    struct Asked(Mutex<Vec<(u64, u64)>>);

    impl SenderRequests for Asked {
        fn resume(&self, _: u64, _: u64, _: bool, _: bool) -> io::Result<()> {
            Ok(())
        }
        fn reread(&self, _: u64, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn compute(&self, _: u64, first: u64, count: u64) -> io::Result<()> {
            self.0.lock().unwrap().push((first, count));
            Ok(())
        }
        fn sums(&self, _: u64, _: u64, _: &[ChunkSum]) -> io::Result<()> {
            Ok(())
        }
    }

    struct Nobody;

    impl SenderRequests for Nobody {
        fn resume(&self, _: u64, _: u64, _: bool, _: bool) -> io::Result<()> {
            Ok(())
        }
        fn reread(&self, _: u64, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn compute(&self, _: u64, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn sums(&self, _: u64, _: u64, _: &[ChunkSum]) -> io::Result<()> {
            Ok(())
        }
    }

    fn info(size: u64) -> Info {
        let time = Time { sec: 0, nsec: 0 };
        Info {
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            dev: 1,
            ino: 1,
            nlink: 1,
            size,
            blocks: 0,
            rdev: 0,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    fn piece() -> Load {
        Load::Zeros
    }

    /// What becomes of more pieces of the second file than may wait, while the first one is being read.
    fn second_before_first(
        cancel: &Cancel,
        streams: usize,
        timeout: Duration,
        meanwhile: impl FnOnce(&Arriving<'_>) + Send,
    ) -> Result<(), Error> {
        let stalls = Arc::new(StallDetector::new(cancel, streams, timeout, Arc::new(Pulse::new())));
        let first = Arriving::new(1, info(64 * PIECE), false, &Nobody, stalls.clone());
        let second = Arriving::new(2, info(64 * PIECE), false, &Nobody, stalls);
        first.start(0).unwrap();
        second.start(0).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut room = vec![0; 1 << 10];
                drop(first.read_at(0, &mut room));
            });
            scope.spawn(|| meanwhile(&second));
            let fits = WAITING_BYTES_MAX / PIECE;
            let pushed = (0..=fits).try_for_each(|n| second.push(0, n * PIECE, PIECE, None, false, piece()));
            first.lose();
            pushed
        })
    }

    #[test]
    fn a_knot_is_cut() {
        let quick = Duration::from_millis(30);
        let cut = second_before_first(&Cancel::new(), 1, quick, |_| ()).unwrap_err();
        assert_eq!(cut.code, Code::Protocol);
        // The twins: another stream may still bring what is waited for, until it is too much for the user who waits;
        // and who reads in the end makes room.
        let cancel = Cancel::new();
        second_before_first(&cancel, 2, quick, |_| {
            std::thread::sleep(5 * quick);
            cancel.set();
        })
        .unwrap();
        second_before_first(&Cancel::new(), 1, Duration::from_secs(60), |second| {
            let mut room = vec![0; PIECE as usize];
            assert_eq!(second.read_at(0, &mut room).unwrap(), room.len());
        })
        .unwrap();
    }

    #[test]
    fn a_piece_far_behind_takes_no_memory_for_those_before_it() {
        let size = i64::MAX as u64;
        let cancel = Cancel::new();
        let stalls = Arc::new(StallDetector::new(&cancel, 1, LOOK, Arc::new(Pulse::new())));
        let one = Arriving::new(1, info(size), false, &Nobody, stalls);
        one.start(0).unwrap();
        let at = (1 << 62) - PIECE;
        one.push(0, at, PIECE, None, false, piece()).unwrap();
        assert!(one.push(0, at, PIECE, None, false, piece()).is_err(), "twice");
        assert_eq!(one.inner().seen.len(), 1);
    }

    fn cv(block: u64) -> Cv {
        let mut cv = Cv::default();
        cv[..8].copy_from_slice(&block.to_le_bytes());
        cv
    }

    /// Remembers what was asked for once more.
    #[derive(Default)]
    struct Rereads(Mutex<Vec<(u64, u64)>>);

    impl SenderRequests for Rereads {
        fn resume(&self, _: u64, _: u64, _: bool, _: bool) -> io::Result<()> {
            Ok(())
        }
        fn reread(&self, _: u64, at: u64, bytes: u64) -> io::Result<()> {
            self.0.lock().unwrap().push((at, bytes));
            Ok(())
        }
        fn compute(&self, _: u64, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn sums(&self, _: u64, _: u64, _: &[ChunkSum]) -> io::Result<()> {
            Ok(())
        }
    }

    /// What was made of the basis is not what was sent, as another program has written to it: it is asked for once more, and
    /// that comes from the sender alone.
    #[test]
    fn a_block_that_was_made_wrong_is_asked_for_once() {
        let (cancel, asked) = (Cancel::new(), Rereads::default());
        let stalls = Arc::new(StallDetector::new(&cancel, 1, LOOK, Arc::new(Pulse::new())));
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &[3; BLOCK_BYTES as usize]).unwrap();
        let basis = Basis::of(file.into(), BLOCK_BYTES, &Arc::default()).unwrap();
        let one = Arriving::new(1, info(BLOCK_BYTES), true, &asked, stalls).with_basis(basis);
        assert!(one.has_basis());
        one.start(0).unwrap();
        let push = |at: u64, load, again| {
            let last = at + PIECE == BLOCK_BYTES;
            one.push(0, at, PIECE, last.then(|| cv(0)), again, load)
        };
        let whole = |from| Load::Patch {
            spans: vec![Span { at: 0, bytes: PIECE, from: Some(from) }],
            carried: Vec::new(),
        };
        // One that is made of what is not there is no piece at all, and one of another length neither.
        assert_eq!(push(0, whole(BLOCK_BYTES), false).unwrap_err().code, Code::Protocol);
        let mut room = vec![0; BLOCK_BYTES as usize];
        for at in (0..BLOCK_BYTES).step_by(PIECE as usize) {
            push(at, if at == 0 { whole(7) } else { piece() }, false).unwrap();
        }
        assert_eq!(one.read_at(0, &mut room).unwrap(), room.len());
        assert!(room[..PIECE as usize].iter().all(|byte| *byte == 3));
        assert!(one.again(0) && !one.again(0));
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| {
                let mut room = vec![0; BLOCK_BYTES as usize];
                one.read_at(0, &mut room).map(|n| (n, room))
            });
            while asked.0.lock().unwrap().is_empty() {
                std::thread::yield_now();
            }
            assert_eq!(*asked.0.lock().unwrap(), [(0, BLOCK_BYTES)]);
            for at in (0..BLOCK_BYTES).step_by(PIECE as usize) {
                push(at, piece(), true).unwrap();
            }
            let (n, room) = reads.join().unwrap().unwrap();
            assert!(n == room.len() && room.iter().all(|byte| *byte != 3));
        });
        // Where nothing is compared in the end nothing is made here.
        let stalls = Arc::new(StallDetector::new(&cancel, 1, LOOK, Arc::new(Pulse::new())));
        let file = tempfile::tempfile().unwrap();
        file.set_len(BLOCK_BYTES).unwrap();
        let basis = Basis::of(file.into(), BLOCK_BYTES, &Arc::default()).unwrap();
        assert!(!Arriving::new(1, info(BLOCK_BYTES), false, &asked, stalls).with_basis(basis).has_basis());
    }

    /// A store that has lost everything since it was asked.
    struct Lost;

    impl BlockCache for Lost {
        fn block(&self, _: u64, _: u64) -> Option<Vec<u8>> {
            None
        }
    }

    /// The sender holds back all of a block that it was told is at hand.
    #[test]
    fn a_block_that_is_no_longer_at_hand_is_asked_for_to_its_end() {
        let (cancel, asked) = (Cancel::new(), Rereads::default());
        let stalls = Arc::new(StallDetector::new(&cancel, 1, LOOK, Arc::new(Pulse::new())));
        let one = Arriving::new(1, info(3 * BLOCK_BYTES), true, &asked, stalls).with_store(Box::new(Lost));
        one.start(0).unwrap();
        for (block, here) in [(0, false), (1, true), (2, false)] {
            one.decide(block, &[here], &[cv(block)]);
        }
        let read = |block: u64, value: Option<Cv>| {
            std::thread::scope(|scope| {
                let reads = scope.spawn(|| {
                    let mut room = vec![1; BLOCK_BYTES as usize];
                    one.read_at(block * BLOCK_BYTES, &mut room).unwrap()
                });
                let (at, bytes) = loop {
                    if let Some(ask) = asked.0.lock().unwrap().pop() {
                        break ask;
                    }
                    std::thread::yield_now();
                };
                for at in (at..at + bytes).step_by(PIECE as usize) {
                    let last = at + PIECE == at + bytes || at + PIECE == (block + 1) * BLOCK_BYTES;
                    one.push(0, at, PIECE, value.filter(|_| last), true, piece()).unwrap();
                }
                ((at, bytes), reads.join().unwrap())
            })
        };
        let whole = BLOCK_BYTES as usize;
        assert_eq!(read(1, Some(cv(1))), ((BLOCK_BYTES, BLOCK_BYTES), whole));
        // The twin that has changed at the source meanwhile: its own two values differ, and that is what is said.
        one.decide(2, &[true], &[cv(2)]);
        let ((at, _), _) = read(2, Some(cv(9)));
        assert_eq!(at, 2 * BLOCK_BYTES);
        assert_eq!(one.differs(2).code, Code::SourceChanged);
    }

    /// Threads that prove a file take its blocks as they are free, so the first to ask may be the one behind.
    #[test]
    fn values_are_asked_for_in_any_order() {
        let cancel = Cancel::new();
        let asked = Asked::default();
        let blocks = 3 * VALUES_AT_ONCE;
        let stalls = Arc::new(StallDetector::new(&cancel, 1, LOOK, Arc::new(Pulse::new())));
        let one = Arriving::new(1, info(blocks * BLOCK_BYTES), true, &asked, stalls);
        let value = |block: u64| {
            std::thread::scope(|scope| {
                let got = scope.spawn(|| one.value(block, one.info.size).ok());
                let end = Instant::now() + Duration::from_secs(20);
                while !got.is_finished() {
                    for (first, count) in std::mem::take(&mut *asked.0.lock().unwrap()) {
                        assert!(count > 0 && first + count <= blocks);
                        one.values(first, &(first..first + count).map(cv).collect::<Vec<_>>()).unwrap();
                    }
                    if Instant::now() > end {
                        one.lose(); // it waits for what was never asked for
                    }
                    std::thread::yield_now();
                }
                got.join().unwrap()
            })
        };
        for block in [100, 99, 0, 101, 64, 1, 163, 164, blocks - 1, 98, 63, 2] {
            assert_eq!(value(block), Some(cv(block)), "{block}");
        }
        // Once more, for a reader that doubts it.
        assert_eq!(value(0), Some(cv(0)));
        // What was not asked for, or what was taken already, is an offence.
        for (first, count) in [(blocks, 1), (100, 1), (101, 64)] {
            let unasked: Vec<Cv> = (first..first + count).map(cv).collect();
            assert_eq!(one.values(first, &unasked).unwrap_err().code, Code::Protocol, "{first}");
        }
    }

    /// A sender that found the source changed sends no more values: a reader that waits for one is told.
    #[test]
    fn values_of_a_source_that_changed_never_come() {
        let cancel = Cancel::new();
        let asked = Asked::default();
        for (end, code) in
            [(End::Changed, Code::SourceChanged), (End::Failed(Code::Denied, 13), Code::Denied)]
        {
            let stalls = Arc::new(StallDetector::new(&cancel, 1, LOOK, Arc::new(Pulse::new())));
            let one = Arriving::new(1, info(8 * BLOCK_BYTES), true, &asked, stalls);
            let told = std::thread::scope(|scope| {
                let waits = scope.spawn(|| one.value(3, one.info.size).unwrap_err().code);
                while asked.0.lock().unwrap().pop().is_none() {
                    std::thread::yield_now();
                }
                one.end(end);
                waits.join().unwrap()
            });
            assert_eq!(told, code);
        }
    }
}
