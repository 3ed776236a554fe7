//! Two threads and two bounded queues around anything that reads and writes: whole frames go out, whole frames come
//! in, and silence is noticed.
//!
//! Must not know who is at the other end, how one got there, or what any frame means but Ping and Pong, and of others
//! only whether they hold a secret.

use crate::error::{Code, Error, Note, Op, Reason};
use crate::event::nanos;
use crate::pulse::{For, Limits, Pulse};
use crate::throttle::{LOOK, Throttle};
use bcmr_wire::frame;
use bcmr_wire::limits::{DEAD_MS, FRAME_BYTES_MAX, HEADER_BYTES, PING_MS, STALL_MS, WORKS_MS};
use bcmr_wire::message::Message;
use bcmr_wire::message::kind::{PING, PONG, holds_secret};
use fastcopy::Scratch;
use fastcopy::read_write::pread;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zeroize::Zeroize;

/// Bytes that wait to be sent before the sending thread has to wait. One packet may stand over it, so that any fits.
const OUT_BYTES_MAX: usize = 2 << 20;
/// Bytes that wait to be taken, with the frame that is being read. One frame may stand over it.
const IN_BYTES_MAX: usize = 3 << 20;
/// The same in packets or frames: many small ones cost more than their bytes.
const QUEUE_LENGTH_MAX: usize = 64;
/// Bytes of empty buffers kept for reuse in each direction: all that a stream has under way at a time, whose content comes in
/// pieces of a little more than 1 MiB. Together with the queues a stream holds about 12 MiB.
const SPARE_BYTES_MAX: usize = 8 << 20;
/// The same of all streams of a connection together, of each of the three: what is many streams' is less for each.
const ALL_OUT_BYTES: usize = 16 << 20;
const ALL_IN_BYTES: usize = 24 << 20;
const ALL_SPARE_BYTES: usize = 16 << 20;
/// Bytes read beyond the frame at hand, so that small frames do not cost two calls each.
const AHEAD_BYTES: usize = 8 << 10;
/// A frame's buffer grows by at most so much before more of the frame has come: a length alone buys no memory. A piece of
/// content with what stands before it fits.
const GROWTH_BYTES: usize = (1 << 20) + SMALL_BYTES;
/// Pieces of memory given to one `writev`.
const GATHER_MAX: usize = 32;

/// How long the other side may take to end its byte stream after we have ended ours.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Bytes of a frame's length.
const LENGTH_BYTES: usize = HEADER_BYTES - 1;
/// Empty buffers kept for reuse at most, whatever their size.
const SPARE_COUNT_MAX: usize = 16;
/// The same of all streams of a connection together.
const ALL_SPARE_COUNT: usize = 64;
/// A frame shorter than this does not take a buffer that is much larger: it might wait long, and hold it.
const SMALL_BYTES: usize = 64 << 10;
/// What stands before the content of a large frame takes mostly less than this.
const HEAD_BYTES: usize = 16 << 10;

/// Keep-alive and idle timeouts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// After so long without a byte from the other side it is asked whether it lives.
    pub(crate) ping: Duration,
    /// After so long it is given up.
    pub(crate) dead: Duration,
    /// After so long without anything moving it is given up while each side waits for the other.
    pub(crate) stall: Duration,
    /// The same while the other side works, or says nothing of itself.
    pub(crate) works: Duration,
}

impl Timeouts {
    /// `[ping.dead]`
    pub(crate) const WIRE: Timeouts = Timeouts {
        ping: Duration::from_millis(PING_MS),
        dead: Duration::from_millis(DEAD_MS),
        stall: Duration::from_millis(STALL_MS),
        works: Duration::from_millis(WORKS_MS),
    };
    /// No Ping is sent, and the peer is not given up, for a year: while a person types a password.
    pub(crate) const ENDLESS: Timeouts = Timeouts {
        ping: Duration::from_secs(366 * 86_400),
        dead: Duration::from_secs(365 * 86_400),
        stall: Duration::from_secs(365 * 86_400),
        works: Duration::from_secs(365 * 86_400),
    };

    fn limits(self) -> Limits {
        Limits { stall: self.stall, works: self.works, tick: self.ping.saturating_mul(2) }
    }

    /// How long until a Ping is due: when nothing was heard, or when nothing was sent, for so long, and none was sent
    /// meanwhile. The second because the other side hears us only by what we send: on a slow link its Ping stands
    /// behind megabytes, and our answer would come too late. Times are nanoseconds since the stream began.
    pub(super) fn due(self, now_ns: u64, heard_ns: u64, sent_ns: u64, asked_ns: u64) -> Duration {
        let quiet_ns = now_ns.saturating_sub(heard_ns.min(sent_ns).max(asked_ns));
        self.ping.saturating_sub(Duration::from_nanos(quiet_ns))
    }
}

/// What is handed to the writer thread.
pub(crate) enum Packet {
    /// Whole frames, headers included.
    Frames(Vec<u8>),
    /// Frame header and what of the payload comes before the content, then `bytes` bytes of the file from `at`, which
    /// go from the page cache to the wire without a buffer of ours where both ends allow it.
    File {
        /// The beginning; its frame's length counts the content.
        head: Vec<u8>,
        /// Open for reading; its position is not used.
        file: Arc<OwnedFd>,
        /// Where the content begins.
        at: u64,
        /// Its length.
        bytes: u64,
        /// Set to what went wrong when the content could not be read or ended early: the frame's length was promised
        /// by then, so zeros went out instead, and the sender must say that they are not to be used.
        fault: Arc<OnceLock<io::Error>>,
    },
    /// Made by the writer when its turn comes, after all packets before it were written: whole frames, or none. For
    /// what is known only then, such as whether a file changed while its content went out.
    Then(Box<dyn FnOnce() -> Vec<u8> + Send>),
}

impl Packet {
    fn bytes(&self) -> usize {
        match self {
            Packet::Frames(frames) => frames.len(),
            // The content is no memory of ours; it counts so that the queue stands for time on the wire.
            Packet::File { head, bytes, .. } => {
                head.len().saturating_add(usize::try_from(*bytes).unwrap_or(usize::MAX))
            }
            Packet::Then(_) => 0,
        }
    }
}

/// The half that writes, as the writer thread sees it.
pub(crate) trait WriteHalf: Write + Send + 'static {
    /// Sends up to `len` bytes of `file` from `at` without copying them, moves `at` on, and says how many; 0 is the
    /// end of the file. `None`: not this way, and nothing was sent.
    fn send_file(&mut self, file: BorrowedFd<'_>, at: &mut u64, len: usize) -> io::Result<Option<usize>> {
        let _unused = (file, at, len);
        Ok(None)
    }

    /// Writes whole buffers. What is in them afterwards is of no use: what seals may seal it where it is.
    fn write_buffers(&mut self, buffers: &mut [Vec<u8>]) -> io::Result<()> {
        write_gathered(self, buffers)
    }

    /// Ends the byte stream in an orderly way, after the last byte. Called once, after `flush`.
    fn close(&mut self) -> io::Result<()>;
}

/// What a stream needs to know beside its two halves.
pub(crate) struct Setup {
    /// Who is at the other end, for error messages.
    pub(crate) name: String,
    /// Keep-alive and idle timeouts, until [`RawStream::set_timeouts`] gives others.
    pub(crate) timeouts: Timeouts,
    /// Breaks the wire in both directions, so that threads stuck in a read or a write come back where that is
    /// possible. May be called more than once, from any thread.
    pub(crate) cut: Box<dyn Fn() + Send + Sync>,
}

/// Why nothing more goes in a direction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    /// The other side ended its byte stream between two frames.
    Ended,
    /// Between the bytes of a frame.
    CutShort,
    /// Nothing was received for longer than the timeout.
    Silent(Duration),
    /// Nothing has moved for too long, and what each side waits for.
    Stalled(Note),
    /// What the system said.
    Io(Option<i32>, io::ErrorKind, String),
    /// What came is no frame.
    NoFrame(Note),
    /// We let go.
    Aborted,
    /// A thread could not be started, or has panicked.
    Ours(Reason),
}

impl Why {
    fn io(e: &io::Error) -> Why {
        Why::Io(e.raw_os_error(), e.kind(), e.to_string())
    }

    fn error(&self, name: &str) -> Error {
        let op = Op::TalkTo;
        match self {
            Why::Ended => Error::ours(Code::Lost, op, name, Reason::ClosedByPeer),
            Why::CutShort => Error::ours(Code::Lost, op, name, Reason::EndedInMessage),
            Why::Silent(time) => Error::ours(Code::Lost, op, name, Reason::Silence.about(time.as_secs())),
            Why::Stalled(note) => Error::ours(Code::Lost, op, name, note.clone()),
            Why::Io(errno, kind, text) => {
                let source = match errno {
                    Some(errno) => io::Error::from_raw_os_error(*errno),
                    None => io::Error::new(*kind, text.clone()),
                };
                Error { code: Code::Lost, ..Error::os(op, name, source) }
            }
            Why::NoFrame(note) => Error::ours(Code::Protocol, op, name, note.clone()),
            Why::Aborted => Error::ours(Code::Interrupted, op, name, Reason::Interrupted),
            Why::Ours(note) => Error::ours(Code::Limit, op, name, *note),
        }
    }
}

/// Nothing more can be sent. What the other side said last may still wait in the [`RawInbox`].
pub(crate) struct Gone {
    why: Why,
    name: String,
}

impl fmt::Debug for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gone({:?})", self.why)
    }
}

impl From<Gone> for Error {
    fn from(gone: Gone) -> Error {
        gone.why.error(&gone.name)
    }
}

/// What [`RawInbox::recv_timeout`] came back with.
pub(crate) enum Heard {
    /// A frame.
    Frame(FrameBuf),
    /// The other side has ended its byte stream in an orderly way.
    Ended,
    /// Nothing within the time.
    Nothing,
}

// ---- what both threads and all callers share ----

struct Shared {
    setup: Setup,
    began: Instant,
    /// The timeouts that hold now, in nanoseconds.
    ping_ns: AtomicU64,
    dead_ns: AtomicU64,
    stall_ns: AtomicU64,
    works_ns: AtomicU64,
    /// Of the whole connection, with all its streams.
    pulse: Mutex<Arc<Pulse>>,
    /// Of the whole connection too.
    spares: Mutex<Arc<Spares>>,
    /// Nanoseconds after `began` at which bytes came in last.
    heard_ns: AtomicU64,
    /// Since when the reader waits for bytes, likewise; [`NOT_READING`] while it does not.
    reading_ns: AtomicU64,
    /// When the reader has ended, likewise; [`NOT_READING`] before.
    ended_ns: AtomicU64,
    state: Mutex<ConnState>,
    /// For the writer: there is something to do.
    work: Condvar,
    /// For senders: the outgoing queue has room.
    room: Condvar,
    /// For receivers: a frame, or the end.
    arrived: Condvar,
    /// For the reader: the incoming queue has room.
    taken: Condvar,
    /// For `finish`: a thread has ended.
    ended: Condvar,
}

const NOT_READING: u64 = u64::MAX;

/// How much a stream may hold.
#[derive(Clone, Copy)]
struct Share {
    out_bytes: usize,
    in_bytes: usize,
}

impl Share {
    /// Of a connection of so many streams.
    fn of(streams: usize) -> Share {
        let each = |most: usize, all: usize| most.min(all / streams.max(1));
        Share { out_bytes: each(OUT_BYTES_MAX, ALL_OUT_BYTES), in_bytes: each(IN_BYTES_MAX, ALL_IN_BYTES) }
    }
}

struct ConnState {
    share: Share,
    out: VecDeque<Packet>,
    /// Bytes and number of what waits in `out` or is being written.
    out_bytes: usize,
    out_count: usize,
    /// Nothing more will be sent.
    closing: bool,
    /// What a Ping asked to be sent back. Only the last one: a flood of Pings is answered once.
    pong: Option<[u8; 8]>,
    /// When a Ping was sent last, nanoseconds after the beginning.
    asked_ns: u64,
    /// Why nothing more can be sent.
    out_end: Option<Why>,
    /// The write half was closed after all was written.
    closed: bool,
    inbox: VecDeque<Filled>,
    in_bytes: usize,
    /// Frames are not taken any more: they are read and dropped.
    discard_input: bool,
    /// Why no more frames come.
    in_end: Option<Why>,
}

impl ConnState {
    /// Of a stream over which nothing has gone yet.
    fn new(share: Share) -> ConnState {
        ConnState {
            share,
            out: VecDeque::new(),
            out_bytes: 0,
            out_count: 0,
            closing: false,
            pong: None,
            asked_ns: 0,
            out_end: None,
            closed: false,
            inbox: VecDeque::new(),
            in_bytes: 0,
            discard_input: false,
            in_end: None,
        }
    }

    /// Whether a frame of so many bytes may wait beside those that do. Any may, where none does.
    fn has_room_in(&self, bytes: usize) -> bool {
        self.inbox.is_empty() || self.in_bytes + bytes <= self.share.in_bytes
    }
}

/// The empty buffers of a connection, for all its streams. Each stream's share of ALL_SPARE_BYTES would be less than one frame
/// where there are many.
struct Spares {
    received: Mutex<Spare>,
    sent: Mutex<Spare>,
}

impl Spares {
    /// Of a connection of so many streams.
    fn of(streams: usize) -> Spares {
        let spare = || Mutex::new(Spare::of(streams));
        Spares { received: spare(), sent: spare() }
    }

    /// Those of frames that were received.
    fn received(&self) -> MutexGuard<'_, Spare> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of frames that were sent.
    fn sent(&self) -> MutexGuard<'_, Spare> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Buffers for reuse. What lies in them is left of earlier frames, but never a secret.
#[derive(Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    bytes_max: usize,
    count_max: usize,
}

impl Spare {
    fn of(streams: usize) -> Spare {
        let mut spare = Spare::default();
        spare.serves(streams);
        spare
    }

    /// From now on so many streams take from it.
    fn serves(&mut self, streams: usize) {
        self.bytes_max = SPARE_BYTES_MAX.saturating_mul(streams).min(ALL_SPARE_BYTES);
        self.count_max = SPARE_COUNT_MAX.saturating_mul(streams).min(ALL_SPARE_COUNT);
        while self.bytes > self.bytes_max || self.buffers.len() > self.count_max {
            let Some(buffer) = self.buffers.pop() else { break };
            self.bytes -= buffer.capacity();
        }
    }

    /// One that suits `wanted` bytes: the smallest that is large enough, else for a large frame the largest, which
    /// then grows.
    fn take_for(&mut self, wanted: usize) -> Vec<u8> {
        let sizes = || self.buffers.iter().map(Vec::capacity).enumerate();
        let suits = sizes().filter(|(_, size)| *size >= wanted).min_by_key(|(_, size)| *size);
        let chosen = match suits {
            Some((_, size)) if wanted < SMALL_BYTES && size > 2 * SMALL_BYTES => None,
            Some((n, _)) => Some(n),
            None if wanted < SMALL_BYTES => None,
            None => sizes().max_by_key(|(_, size)| *size).map(|(n, _)| n),
        };
        let buffer = chosen.map(|n| self.buffers.swap_remove(n)).unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// A received frame's.
    fn put_received(&mut self, mut filled: Filled) {
        filled.wipe();
        self.put(filled.buffer);
    }

    /// One whose frames were sent.
    fn put_sent(&mut self, mut frames: Vec<u8>) {
        let mut at = 0;
        // The last may go on outside: then it is a file's content and no secret.
        while let Ok(Some((frame, bytes))) = frame::decode(&frames[at..]) {
            if holds_secret(frame.kind) {
                frames[at..at + bytes].zeroize();
            }
            at += bytes;
        }
        self.put(frames);
    }

    fn put(&mut self, buffer: Vec<u8>) {
        let fits = self.bytes + buffer.capacity() <= self.bytes_max && self.buffers.len() < self.count_max;
        if fits && buffer.capacity() > 0 {
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }
}

/// A frame's body in its buffer: the type byte, then the payload.
struct Filled {
    /// At least `length` long. What lies behind is left of earlier frames: clearing it would cost a pass over memory.
    buffer: Vec<u8>,
    length: usize,
}

impl Filled {
    /// Overwrites the frame if it holds a secret.
    fn wipe(&mut self) {
        let body = self.buffer.get_mut(..self.length).unwrap_or_default();
        if body.first().is_some_and(|kind| holds_secret(*kind)) {
            body.zeroize();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, ConnState> {
        // No foreign code runs while it is held, so a panic elsewhere has left it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(NOT_READING - 1)
    }

    fn timeouts(&self) -> Timeouts {
        let load = |ns: &AtomicU64| Duration::from_nanos(ns.load(Relaxed));
        Timeouts {
            ping: load(&self.ping_ns),
            dead: load(&self.dead_ns),
            stall: load(&self.stall_ns),
            works: load(&self.works_ns),
        }
    }

    fn pulse(&self) -> Arc<Pulse> {
        Arc::clone(&self.pulse.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn spares(&self) -> Arc<Spares> {
        Arc::clone(&self.spares.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives the connection up when nothing has moved for too long.
    fn expire_if_stalled(&self) -> bool {
        let stalled = self.pulse().judge(Instant::now(), self.timeouts().limits());
        let is_stalled = stalled.is_some();
        if let Some(why) = stalled {
            self.kill(Why::Stalled(why));
        }
        is_stalled
    }

    fn set_timeouts(&self, timeouts: Timeouts) {
        self.ping_ns.store(nanos(timeouts.ping), Relaxed);
        self.dead_ns.store(nanos(timeouts.dead), Relaxed);
        self.stall_ns.store(nanos(timeouts.stall), Relaxed);
        self.works_ns.store(nanos(timeouts.works), Relaxed);
    }

    fn gone(&self, why: &Why) -> Gone {
        Gone { why: why.clone(), name: self.setup.name.clone() }
    }

    /// Ends both directions at once and breaks the wire.
    fn kill(&self, why: Why) {
        let mut state = self.state();
        state.in_end.get_or_insert_with(|| why.clone());
        state.out_end.get_or_insert(why);
        drop_queue(&mut state);
        drop(state);
        self.wake_all();
        (self.setup.cut)();
    }

    fn wake_all(&self) {
        for condvar in [&self.work, &self.room, &self.arrived, &self.taken, &self.ended] {
            condvar.notify_all();
        }
    }

    /// How much longer the silence may last; zero when it has been too long. Only time in which the reader was
    /// waiting for bytes counts: while it waits for room in the queue, it is we who do not listen.
    fn life_left(&self) -> Duration {
        self.life_left_since(self.reading_ns.load(Relaxed))
    }

    /// The same for who waits for room to send: behind the other side's end nothing is heard either.
    fn life_left_to_send(&self) -> Duration {
        // A thread that has ended does not read any more.
        self.life_left_since(self.reading_ns.load(Relaxed).min(self.ended_ns.load(Relaxed)))
    }

    fn life_left_since(&self, since: u64) -> Duration {
        let dead = self.timeouts().dead;
        if since == NOT_READING {
            return dead;
        }
        dead.saturating_sub(Duration::from_nanos(self.now_ns().saturating_sub(since)))
    }

    /// Gives the other side up when it has been silent for too long.
    fn expire_if_idle(&self) -> bool {
        let dead = self.life_left().is_zero();
        if dead {
            self.kill(Why::Silent(self.timeouts().dead));
        }
        dead
    }
}

fn drop_queue(state: &mut ConnState) {
    for packet in std::mem::take(&mut state.out) {
        state.out_bytes = state.out_bytes.saturating_sub(packet.bytes());
        state.out_count = state.out_count.saturating_sub(1);
    }
}

// ---- what is sent ----

/// Where packets are put for the writer thread.
#[derive(Clone)]
pub(super) struct RawOutbox {
    shared: Arc<Shared>,
}

impl RawOutbox {
    /// Queues a packet, waiting while the queue is full.
    ///
    /// # Errors
    /// When nothing more can be sent. The other side may have said why: look into the [`RawInbox`] first.
    pub(crate) fn send(&self, packet: Packet) -> Result<(), Gone> {
        let shared = &*self.shared;
        let mut state = shared.state();
        let (pulse, mut waits) = (shared.pulse(), None);
        loop {
            if let Some(why) = &state.out_end {
                return Err(shared.gone(why));
            }
            if state.closing {
                return Err(shared.gone(&Why::Aborted));
            }
            if state.out_bytes < state.share.out_bytes && state.out_count < QUEUE_LENGTH_MAX {
                break;
            }
            let left = shared.life_left_to_send();
            if left.is_zero() {
                drop(state);
                shared.kill(Why::Silent(shared.timeouts().dead));
                state = shared.state();
                continue;
            }
            waits.get_or_insert_with(|| pulse.waits_for(For::Room));
            let look = left.min(shared.timeouts().ping);
            let (guard, late) = shared.room.wait_timeout(state, look).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            // The writer may be stuck in the wire and the reader for want of room: then only this thread looks.
            if late.timed_out() {
                drop(state);
                shared.expire_if_stalled();
                state = shared.state();
            }
        }
        state.out_bytes += packet.bytes();
        state.out_count += 1;
        state.out.push_back(packet);
        drop(state);
        shared.work.notify_one();
        Ok(())
    }

    /// Puts frames before all that waits, and waits for nothing: a receiver that reads nothing more is told to stop as soon
    /// as it does.
    ///
    /// # Errors
    /// As [`RawOutbox::send`].
    pub(crate) fn send_first(&self, frames: Vec<u8>) -> Result<(), Gone> {
        let shared = &*self.shared;
        let mut state = shared.state();
        if let Some(why) = &state.out_end {
            return Err(shared.gone(why));
        }
        state.out_bytes += frames.len();
        state.out_count += 1;
        state.out.push_front(Packet::Frames(frames));
        drop(state);
        shared.work.notify_one();
        Ok(())
    }

    /// Breaks the stream in both directions: no thread waits in it any more.
    pub(crate) fn give_up(&self) {
        self.shared.kill(Why::Aborted);
    }

    /// An empty buffer with room for a frame of so many bytes of content, one that was sent before where one suits.
    pub(crate) fn room(&self, bytes: usize) -> Vec<u8> {
        let wanted = rounded(if bytes < SMALL_BYTES { bytes } else { bytes + HEAD_BYTES });
        let mut buffer = self.shared.spares().sent().take_for(wanted);
        buffer.clear();
        if buffer.capacity() < wanted { Vec::with_capacity(wanted) } else { buffer }
    }

    #[cfg(test)]
    /// Packets that are not wholly written yet: 0 while the wire waits for us.
    pub(crate) fn queued(&self) -> usize {
        self.shared.state().out_count
    }
}

// ---- what is received ----

/// Where frames come out.
#[derive(Clone)]
pub(super) struct RawInbox {
    shared: Arc<Shared>,
}

impl RawInbox {
    /// The next frame; `None` once the other side has ended its byte stream in an orderly way. What came before an
    /// error comes out before it.
    ///
    /// # Errors
    /// The connection was lost, or what came is no frame.
    pub(crate) fn recv(&self) -> Result<Option<FrameBuf>, Error> {
        loop {
            match self.recv_until(None)? {
                Heard::Frame(frame) => return Ok(Some(frame)),
                Heard::Ended => return Ok(None),
                Heard::Nothing => {}
            }
        }
    }

    /// Like [`RawInbox::recv`], for at most `time`; zero takes what is there.
    ///
    /// # Errors
    /// As [`RawInbox::recv`].
    pub(crate) fn recv_timeout(&self, time: Duration) -> Result<Heard, Error> {
        self.recv_until(Some(Instant::now() + time))
    }

    /// Of the connection.
    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        self.shared.pulse()
    }

    /// Who is at the other end, for error messages.
    pub(crate) fn name(&self) -> &str {
        &self.shared.setup.name
    }

    /// Waits at most `time` for a frame, which stays where it is. `false` when there is none, whatever the reason.
    pub(crate) fn waits(&self, time: Duration) -> bool {
        let shared = &*self.shared;
        let end = Instant::now() + time;
        let mut state = shared.state();
        while state.inbox.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                shared.expire_if_idle();
                return false;
            }
            state = shared.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Whether what came, and broke it, was no end but something wrong.
    pub(crate) fn is_corrupt(&self) -> bool {
        let state = self.shared.state();
        matches!(state.in_end, Some(Why::Io(_, io::ErrorKind::InvalidData, _) | Why::NoFrame(_)))
    }

    /// Whether anything came, if only a part of a frame.
    pub(crate) fn has_heard(&self) -> bool {
        self.shared.heard_ns.load(Relaxed) > 0
    }

    /// Whether nothing more will come: the other side has ended, or was given up.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.expire_if_idle() || self.shared.state().in_end.is_some()
    }

    /// Whether a frame of this kind waits to be taken.
    pub(crate) fn holds(&self, kind: u8) -> bool {
        self.shared.state().inbox.iter().any(|filled| filled.buffer.first() == Some(&kind))
    }

    /// Whether a frame or the end waits to be taken.
    pub(crate) fn has_input(&self) -> bool {
        let state = self.shared.state();
        !state.inbox.is_empty() || state.in_end.is_some()
    }

    fn recv_until(&self, end: Option<Instant>) -> Result<Heard, Error> {
        let shared = &*self.shared;
        let pulse = shared.pulse();
        let mut state = shared.state();
        loop {
            if let Some(filled) = state.inbox.pop_front() {
                pulse.step();
                state.in_bytes -= filled.length;
                drop(state);
                shared.taken.notify_one();
                return Ok(Heard::Frame(FrameBuf { filled, home: Arc::clone(&self.shared) }));
            }
            match &state.in_end {
                Some(Why::Ended) => return Ok(Heard::Ended),
                Some(why) => return Err(why.error(&shared.setup.name)),
                None => {}
            }
            let mut wait = shared.life_left();
            if wait.is_zero() {
                drop(state);
                shared.expire_if_idle();
                state = shared.state();
                continue;
            }
            if let Some(end) = end {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(Heard::Nothing);
                }
                wait = wait.min(left);
            }
            let waits = pulse.waits_for(For::Frame);
            state = shared.arrived.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
            drop(waits);
        }
    }
}

/// One frame, in a buffer that goes back to its stream when this is dropped.
pub(crate) struct FrameBuf {
    filled: Filled,
    home: Arc<Shared>,
}

impl FrameBuf {
    /// The type byte.
    pub(crate) fn kind(&self) -> u8 {
        self.filled.buffer[0]
    }

    /// Everything after it.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.filled.buffer[1..self.filled.length]
    }

    /// What it means.
    ///
    /// # Errors
    /// [`Code::Protocol`] when the payload is not what the type byte says.
    pub(crate) fn message(&self) -> Result<Message<'_>, Error> {
        Message::decode(self.kind(), self.payload()).map_err(|e| {
            Error::ours(
                Code::Protocol,
                Op::TalkTo,
                &self.home.setup.name,
                super::frame::bad_message(self.kind(), &e),
            )
        })
    }
}

impl Drop for FrameBuf {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.filled.buffer);
        let filled = Filled { buffer, length: self.filled.length };
        self.home.spares().received().put_received(filled);
    }
}

impl fmt::Debug for FrameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameBuf({:#04x}, {} bytes)", self.kind(), self.payload().len())
    }
}

// ---- a stream ----

/// One pair of byte pipes with its two threads. Dropped without [`RawStream::finish`], it is aborted.
pub(super) struct RawStream {
    /// Where packets are put.
    pub(crate) out: RawOutbox,
    /// Where frames come out.
    pub(crate) inbox: RawInbox,
    threads: Threads,
}

/// The threads, let go of when dropped: a stream that is given up on an error path must not keep any thread waiting.
struct Threads {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        if !self.handles.is_empty() {
            self.shared.kill(Why::Aborted);
        }
    }
}

impl RawStream {
    /// Starts both threads. When one cannot be had, the stream is dead from the start and says so.
    pub(crate) fn over(read: impl Read + Send + 'static, write: impl WriteHalf, setup: Setup) -> RawStream {
        let shared = Arc::new(Shared {
            began: Instant::now(),
            ping_ns: AtomicU64::new(0),
            dead_ns: AtomicU64::new(0),
            stall_ns: AtomicU64::new(0),
            works_ns: AtomicU64::new(0),
            pulse: Mutex::new(Arc::new(Pulse::new())),
            spares: Mutex::new(Arc::new(Spares::of(1))),
            heard_ns: AtomicU64::new(0),
            reading_ns: AtomicU64::new(NOT_READING),
            ended_ns: AtomicU64::new(NOT_READING),
            state: Mutex::new(ConnState::new(Share::of(1))),
            work: Condvar::new(),
            room: Condvar::new(),
            arrived: Condvar::new(),
            taken: Condvar::new(),
            ended: Condvar::new(),
            setup,
        });
        shared.set_timeouts(shared.setup.timeouts);
        let mut handles = Vec::with_capacity(2);
        let reads = Arc::clone(&shared);
        let writes = Arc::clone(&shared);
        let started = std::thread::Builder::new()
            .name("wire-read".to_owned())
            .spawn(move || {
                let _end = Last { shared: &reads, side: Direction::In };
                read_loop(&reads, read);
            })
            .and_then(|reader| {
                handles.push(reader);
                std::thread::Builder::new().name("wire-write".to_owned()).spawn(move || {
                    let _end = Last { shared: &writes, side: Direction::Out };
                    write_loop(&writes, write);
                })
            });
        match started {
            Ok(writer) => handles.push(writer),
            Err(e) => shared.kill(Why::io(&e)),
        }
        RawStream {
            out: RawOutbox { shared: Arc::clone(&shared) },
            inbox: RawInbox { shared: Arc::clone(&shared) },
            threads: Threads { shared, handles },
        }
    }

    /// What the threads of this side wait for, and what moves.
    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        self.threads.shared.pulse()
    }

    /// From now on this stream is one of so many of a connection, of which `first` is the first.
    pub(crate) fn belongs_to(&self, first: &RawStream, streams: usize) {
        let shared = &*self.threads.shared;
        let (pulse, spares) = (first.pulse(), first.threads.shared.spares());
        spares.received().serves(streams);
        spares.sent().serves(streams);
        *shared.pulse.lock().unwrap_or_else(PoisonError::into_inner) = pulse;
        *shared.spares.lock().unwrap_or_else(PoisonError::into_inner) = spares;
        shared.state().share = Share::of(streams);
        // It may have been less before.
        shared.wake_all();
    }

    /// Sets the keep-alive and idle timeouts from now on.
    pub(crate) fn set_timeouts(&self, timeouts: Timeouts) {
        let shared = &*self.threads.shared;
        shared.set_timeouts(timeouts);
        // A thread that waits has counted with the old one.
        drop(shared.state());
        shared.wake_all();
    }

    /// A frame's body that was read before the stream began: the first that comes out.
    pub(crate) fn put_back(&self, body: Vec<u8>) {
        let shared = &*self.threads.shared;
        let mut state = shared.state();
        state.in_bytes += body.len();
        state.inbox.push_front(Filled { length: body.len(), buffer: body });
        drop(state);
        shared.arrived.notify_one();
    }

    /// Nothing more will be sent: the byte stream ends once what is queued is written. Waits for nothing.
    pub(crate) fn close(&self) {
        self.threads.shared.state().closing = true;
        self.threads.shared.work.notify_all();
    }

    /// Waits until both byte streams have ended, or until then. Whether all was written by then, and the other side goes on.
    pub(crate) fn other_goes_on(&self, until: Instant) -> bool {
        let shared = &*self.threads.shared;
        let mut state = shared.state();
        loop {
            let ours_ended = state.closed || state.out_end.is_some();
            let other_ended = state.in_end.is_some();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || ours_ended && other_ended {
                return ours_ended && !other_ended;
            }
            state = shared.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes what is queued, ends our byte stream, and waits for the other side to end its own; frames that come
    /// meanwhile are dropped. Takes at most as long as silence is borne, and once all is written no longer than
    /// [`LAST_WORDS`]: nothing that would still come is of any use.
    ///
    /// # Errors
    /// Something was not written, or the other side did not end in an orderly way.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let shared = &*self.threads.shared;
        let mut end = Instant::now() + shared.timeouts().dead;
        let mut state = shared.state();
        state.closing = true;
        state.discard_input = true;
        state.inbox.clear();
        state.in_bytes = 0;
        shared.work.notify_all();
        shared.taken.notify_all();
        let (mut late, mut written) = (false, false);
        while state.in_end.is_none() || !(state.closed || state.out_end.is_some()) {
            if state.closed && !written {
                written = true;
                end = end.min(Instant::now() + LAST_WORDS);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                late = true;
                break;
            }
            state = shared.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let broken = match (&state.out_end, &state.in_end) {
            (Some(why), _) => Some(why.clone()),
            (None, Some(Why::Ended)) => None,
            (None, Some(why)) => Some(why.clone()),
            (None, None) => None,
        };
        drop(state);
        if late {
            let why = Why::Silent(shared.timeouts().dead);
            shared.kill(why.clone());
            self.threads.handles.clear();
            return Err(why.error(&self.threads.shared.setup.name));
        }
        // What was given up may still have a thread in a read or a write that does not end: pipes whose other end is held by
        // a process that does not know yet. It is left behind.
        let given_up = matches!(broken, Some(Why::Silent(_) | Why::Stalled(_) | Why::Aborted));
        for handle in self.threads.handles.drain(..) {
            if !given_up || handle.is_finished() {
                // A panic was told as the direction's end by `Last` already.
                drop(handle.join());
            }
        }
        match broken {
            None => Ok(()),
            Some(why) => Err(why.error(&self.threads.shared.setup.name)),
        }
    }

    /// Bytes that wait in the incoming queue, and bytes of spare buffers.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        let state = self.threads.shared.state();
        (state.in_bytes, self.threads.shared.spares().received().bytes)
    }

    /// Whether these bytes are in a spare buffer of either direction.
    #[cfg(test)]
    pub(super) fn spares_hold(&self, bytes: &[u8]) -> bool {
        let spares = self.threads.shared.spares();
        let hold = |spare: &Spare| spare.buffers.iter().any(|b| b.windows(bytes.len()).any(|w| w == bytes));
        hold(&spares.received()) || hold(&spares.sent())
    }

    /// How much longer the silence may last.
    #[cfg(test)]
    pub(super) fn life_left(&self) -> Duration {
        self.threads.shared.life_left()
    }

    #[cfg(test)]
    /// Gives up at once: what is queued is dropped, the wire is cut, and no thread is waited for.
    pub(crate) fn abort(self) {
        drop(self);
    }
}

enum Direction {
    In,
    Out,
}

/// Says that a thread has ended, also when it panicked: no thread must wait for it for ever.
struct Last<'a> {
    shared: &'a Shared,
    side: Direction,
}

impl Drop for Last<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let panicked = Why::Ours(Reason::ConnectionThreadStopped);
        match self.side {
            Direction::In => {
                state.in_end.get_or_insert(panicked);
            }
            Direction::Out if !state.closed => {
                state.out_end.get_or_insert(panicked);
                drop_queue(&mut state);
            }
            Direction::Out => {}
        }
        drop(state);
        self.shared.wake_all();
    }
}

/// The body of the next frame, type byte first, read without a byte too many and without a stream; `None` at an orderly
/// end. `name` is who is at the other end.
///
/// # Errors
/// As [`RawInbox::recv`].
pub(crate) fn read_exactly(read: &mut impl Read, name: &str) -> Result<Option<Vec<u8>>, Error> {
    let mut ahead = ReadAhead::of(LENGTH_BYTES);
    match next_frame(read, &mut ahead, |_| Vec::new()) {
        Ok(Some(mut filled)) => {
            filled.buffer.truncate(filled.length);
            Ok(Some(filled.buffer))
        }
        Ok(None) => Ok(None),
        Err(why) => Err(why.error(name)),
    }
}

/// The bodies of the first two frames, and the memory that was read ahead after them.
#[cfg(test)]
pub(super) fn two_read_ahead(mut bytes: &[u8]) -> (Vec<u8>, Vec<u8>, Box<[u8]>) {
    let mut ahead = ReadAhead::of(AHEAD_BYTES);
    let mut next = || {
        let filled = next_frame(&mut bytes, &mut ahead, |_| Vec::new()).ok().flatten();
        filled.map(|filled| filled.buffer).unwrap_or_default()
    };
    let (first, second) = (next(), next());
    (first, second, ahead.buffer)
}

// ---- the reader thread ----

fn read_loop(shared: &Shared, mut read: impl Read) {
    let mut ahead = ReadAhead::of(AHEAD_BYTES);
    let why = loop {
        let buffer = |wanted| buffer_for(shared, wanted);
        let filled = match next_frame(&mut Timed { shared, read: &mut read }, &mut ahead, buffer) {
            Ok(Some(filled)) => filled,
            Ok(None) => break Why::Ended,
            Err(why) => break why,
        };
        match filled.buffer[0] {
            kind @ (PING | PONG) => {
                let Ok(token) = <[u8; 8]>::try_from(&filled.buffer[1..filled.length]) else {
                    break Why::NoFrame(
                        Reason::MessageOfLength.about(format!("{kind:#04x}")).about(filled.length as u64),
                    );
                };
                let mut state = shared.state();
                if kind == PING {
                    state.pong = Some(token);
                }
                drop(state);
                shared.spares().received().put_received(filled);
                if kind == PING {
                    shared.work.notify_one();
                    shared.pulse().hears(u64::from_le_bytes(token));
                    shared.expire_if_stalled();
                }
            }
            _ => {
                if !deliver(shared, filled) {
                    return;
                }
            }
        }
    };
    shared.ended_ns.store(shared.now_ns(), Relaxed);
    shared.state().in_end.get_or_insert(why);
    // `Last` wakes all threads.
}

/// A buffer for a frame that comes. A large one waits until it may stand beside those that wait to be taken.
fn buffer_for(shared: &Shared, wanted: usize) -> Vec<u8> {
    let mut state = shared.state();
    while wanted >= SMALL_BYTES
        && !state.has_room_in(wanted)
        && state.in_end.is_none()
        && !state.discard_input
    {
        state = shared.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    drop(state);
    shared.spares().received().take_for(wanted)
}

/// Queues a frame, waiting for room. `false`: the stream was given up.
fn deliver(shared: &Shared, filled: Filled) -> bool {
    let mut state = shared.state();
    loop {
        if state.in_end.is_some() {
            return false;
        }
        if state.discard_input {
            drop(state);
            shared.spares().received().put_received(filled);
            return true;
        }
        if state.has_room_in(filled.length) && state.inbox.len() < QUEUE_LENGTH_MAX {
            break;
        }
        state = shared.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    state.in_bytes += filled.length;
    state.inbox.push_back(filled);
    drop(state);
    shared.arrived.notify_one();
    true
}

/// A reader that notes when it waits and when it hears something.
struct Timed<'a, R> {
    shared: &'a Shared,
    read: &'a mut R,
}

impl<R: Read> Read for Timed<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buf)])
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let pulse = self.shared.pulse();
        // What is not read yet waits at the other side, which sends no more than there is room for. Once nothing can be
        // said to it any more there is no run to slow down, and its last words may say why.
        while let Some(wait) = pulse.throttle().and_then(Throttle::held_back) {
            let state = self.shared.state();
            if state.in_end.is_some() || state.out_end.is_some() || state.discard_input {
                break;
            }
            drop(state);
            std::thread::sleep(wait.min(LOOK));
        }
        self.shared.reading_ns.store(self.shared.now_ns(), Relaxed);
        let got = self.read.read_vectored(bufs);
        self.shared.reading_ns.store(NOT_READING, Relaxed);
        self.shared.heard_ns.store(self.shared.now_ns(), Relaxed);
        if let Ok(bytes) = &got {
            pulse.came(*bytes as u64);
            if let Some(throttle) = pulse.throttle() {
                throttle.spent(*bytes as u64);
            }
        }
        got
    }
}

/// Bytes that came with the frame before.
struct ReadAhead {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl ReadAhead {
    /// With room for so many bytes; room for a length alone never holds more than is asked for.
    fn of(bytes: usize) -> ReadAhead {
        ReadAhead { buffer: vec![0; bytes.max(LENGTH_BYTES)].into_boxed_slice(), start: 0, end: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads until `count` bytes are here, or the byte stream has ended before.
    fn fill(&mut self, read: &mut impl Read, count: usize) -> io::Result<bool> {
        if self.bytes().len() < count && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.bytes().len() < count {
            match read.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(n) => self.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Moves bytes to the front of `into`, and says how many.
    fn give(&mut self, into: &mut [u8]) -> usize {
        let n = self.bytes().len().min(into.len());
        into[..n].copy_from_slice(&self.buffer[self.start..self.start + n]);
        self.start += n;
        n
    }
}

/// The next frame: its body straight into a buffer that `buffer` gives for so many bytes, and what comes with the same
/// call into `ahead`.
fn next_frame(
    read: &mut impl Read,
    ahead: &mut ReadAhead,
    buffer: impl FnOnce(usize) -> Vec<u8>,
) -> Result<Option<Filled>, Why> {
    if !ahead.fill(read, LENGTH_BYTES).map_err(|e| Why::io(&e))? {
        return if ahead.bytes().is_empty() { Ok(None) } else { Err(Why::CutShort) };
    }
    let mut header = [0; LENGTH_BYTES];
    header.copy_from_slice(&ahead.bytes()[..LENGTH_BYTES]);
    let length = u32::from_le_bytes(header) as usize;
    // [frame.length] Checked before the buffer grows.
    if length == 0 || length > FRAME_BYTES_MAX {
        return Err(Why::NoFrame(
            Reason::NoMessage.about(ahead.bytes()[..ahead.bytes().len().min(64)].escape_ascii().to_string()),
        ));
    }
    ahead.start += LENGTH_BYTES;
    let mut filled = Filled { buffer: buffer(length), length };
    grow(&mut filled.buffer, rounded(length.min(GROWTH_BYTES)));
    let reach = filled.buffer.len().min(length);
    let mut have = ahead.give(&mut filled.buffer[..reach]);
    while have < length {
        if have == filled.buffer.len() {
            grow(&mut filled.buffer, rounded(length.min(have + GROWTH_BYTES)));
        }
        let reach = filled.buffer.len().min(length);
        let body = &mut filled.buffer[have..reach];
        let wanted = body.len();
        let got = if reach == length && ahead.buffer.len() > LENGTH_BYTES {
            // `ahead` is empty here: it gave all it had.
            ahead.start = 0;
            ahead.end = 0;
            read.read_vectored(&mut [IoSliceMut::new(body), IoSliceMut::new(&mut ahead.buffer)])
        } else {
            read.read(body)
        };
        match got {
            Ok(0) => return Err(Why::CutShort),
            Ok(n) => {
                have += n.min(wanted);
                if n > wanted {
                    ahead.end = n - wanted;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Why::io(&e)),
        }
    }
    if holds_secret(filled.buffer[0]) {
        // What of it came ahead of its turn.
        ahead.buffer[..ahead.start].zeroize();
    }
    Ok(Some(filled))
}

/// The size of a buffer for so many bytes. Those of large frames are of few sizes, so that one that held a frame fits the
/// next, whose header may be longer.
fn rounded(bytes: usize) -> usize {
    if bytes < SMALL_BYTES { bytes } else { bytes.next_multiple_of(SMALL_BYTES) }
}

/// Makes a buffer at least `length` long; one that was longer before stays as it is.
fn grow(buffer: &mut Vec<u8>, length: usize) {
    if buffer.capacity() < length {
        // The allocator may hand out memory that is zero already; `resize` would write it all. To the byte: a buffer of
        // twice the size would be one that is not kept.
        let mut larger = vec![0; length];
        if let Some(same) = larger.get_mut(..buffer.len()) {
            same.copy_from_slice(buffer);
        }
        *buffer = larger;
    } else if buffer.len() < length {
        buffer.resize(length, 0);
    }
}

// ---- the writer thread ----

/// What the writer does next.
enum WriterJob {
    Packets(Vec<Packet>),
    Control(u8, [u8; 8]),
    Flush,
    Close,
    Stop,
}

fn write_loop<W: WriteHalf>(shared: &Shared, mut write: W) {
    let mut scratch = Scratch::new();
    let mut sent_ns = 0;
    let mut flushed = true;
    loop {
        let job = next_job(shared, sent_ns, flushed);
        let control = matches!(job, WriterJob::Control(..));
        let done = match job {
            WriterJob::Packets(packets) => {
                flushed = false;
                write_packets(shared, &mut write, packets, &mut scratch)
            }
            WriterJob::Control(kind, token) => {
                flushed = false;
                let silent = kind == PING && shared.expire_if_stalled();
                let mut frame = Vec::with_capacity(LENGTH_BYTES + 9);
                frame.extend_from_slice(&9u32.to_le_bytes());
                frame.push(kind);
                frame.extend_from_slice(&token);
                if silent { Ok(()) } else { write.write_all(&frame) }
            }
            WriterJob::Flush => {
                flushed = true;
                write.flush()
            }
            WriterJob::Close => {
                let closed = write.flush().and_then(|()| write.close());
                if closed.is_ok() {
                    shared.state().closed = true;
                    return;
                }
                closed
            }
            WriterJob::Stop => return,
        };
        // What only answers does not say that this side has said anything: it tells of itself in its own Pings.
        if !control {
            sent_ns = shared.now_ns();
        }
        if let Err(e) = done {
            let mut state = shared.state();
            state.out_end.get_or_insert(Why::io(&e));
            drop_queue(&mut state);
            return;
        }
    }
}

/// Waits for something to do. `sent_ns` is when something was written last.
fn next_job(shared: &Shared, sent_ns: u64, flushed: bool) -> WriterJob {
    let pulse = shared.pulse();
    let mut state = shared.state();
    let mut asked_ns = state.asked_ns;
    loop {
        if state.out_end.is_some() {
            return WriterJob::Stop;
        }
        if let Some(token) = state.pong.take() {
            return WriterJob::Control(PONG, token);
        }
        let now = shared.now_ns();
        let due = shared.timeouts().due(now, shared.heard_ns.load(Relaxed), sent_ns, asked_ns);
        // After the other side's end there is no peer to ask. A Ping goes before what is queued: while much is sent,
        // silence from the other side must still find out whether it lives.
        if due.is_zero() && state.in_end.is_none() {
            state.asked_ns = now;
            return WriterJob::Control(PING, shared.pulse().tells().to_le_bytes());
        }
        // Where a limit is, one packet at a time, each when it is due. What asks and answers waits for nothing.
        let throttle = pulse.throttle().filter(|_| !state.out.is_empty());
        let held_back = throttle.and_then(Throttle::held_back);
        if held_back.is_none() && !state.out.is_empty() {
            let count = if throttle.is_some() { 1 } else { state.out.len() };
            return WriterJob::Packets(state.out.drain(..count).collect());
        }
        if !flushed {
            return WriterJob::Flush;
        }
        if state.closing && held_back.is_none() {
            return WriterJob::Close;
        }
        let life = shared.life_left();
        if life.is_zero() {
            drop(state);
            shared.expire_if_idle();
            state = shared.state();
            continue;
        }
        let wait = if state.in_end.is_some() { life } else { life.min(due) };
        let wait = held_back.map_or(wait, |held_back| wait.min(held_back).min(LOOK));
        state = shared.work.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        asked_ns = state.asked_ns;
    }
}

fn write_packets<W: WriteHalf>(
    shared: &Shared,
    write: &mut W,
    packets: Vec<Packet>,
    scratch: &mut Scratch,
) -> io::Result<()> {
    let mut packets = packets.into_iter().peekable();
    let mut together = Vec::new();
    while let Some(packet) = packets.next() {
        let (count, bytes) = match packet {
            Packet::Frames(frames) => {
                together.push(frames);
                while together.len() < GATHER_MAX
                    && let Some(Packet::Frames(frames)) = packets.next_if(|p| matches!(p, Packet::Frames(_)))
                {
                    together.push(frames);
                }
                let bytes = together.iter().map(Vec::len).sum();
                write.write_buffers(&mut together)?;
                (together.len(), bytes)
            }
            Packet::File { head, file, at, bytes, fault } => {
                let counted = head.len().saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
                let short = write_file(write, &head, file.as_fd(), at, bytes, scratch)?;
                if let Some(e) = short {
                    // Only the first fault is kept; any of them condemns the file.
                    drop(fault.set(e));
                }
                together.push(head);
                (1, counted)
            }
            Packet::Then(make) => {
                let frames = make();
                write.write_all(&frames)?;
                together.push(frames);
                (1, 0)
            }
        };
        let pulse = shared.pulse();
        pulse.step();
        if let Some(throttle) = pulse.throttle() {
            throttle.spent(bytes as u64);
        }
        let spares = shared.spares();
        for frames in together.drain(..) {
            spares.sent().put_sent(frames);
        }
        let mut state = shared.state();
        state.out_count = state.out_count.saturating_sub(count);
        state.out_bytes = state.out_bytes.saturating_sub(bytes);
        drop(state);
        shared.room.notify_all();
    }
    Ok(())
}

pub(super) fn write_gathered(write: &mut (impl Write + ?Sized), buffers: &[Vec<u8>]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = buffers.iter().map(|b| IoSlice::new(b)).collect();
    let mut rest = slices.as_mut_slice();
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match write.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut rest, n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes `head` and then the content. What cannot be read goes out as zeros, and is returned.
fn write_file<W: WriteHalf>(
    write: &mut W,
    head: &[u8],
    file: BorrowedFd<'_>,
    mut at: u64,
    bytes: u64,
    scratch: &mut Scratch,
) -> io::Result<Option<io::Error>> {
    write.write_all(head)?;
    let end = at.saturating_add(bytes);
    let mut spliced = true;
    let mut short = None;
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        if spliced {
            match write.send_file(file, &mut at, left)? {
                Some(n) if n > 0 => continue,
                // Whether that was the end of the file, only `read` says.
                _ => spliced = false,
            }
        }
        let buffer = scratch.buffer();
        let size = left.min(buffer.len());
        let piece = &mut buffer[..size];
        let got = match short {
            Some(_) => 0,
            None => match pread(file, at, piece) {
                Ok(0) => {
                    short = Some(io::ErrorKind::UnexpectedEof.into());
                    0
                }
                Ok(n) => n,
                Err(e) => {
                    short = Some(e);
                    0
                }
            },
        };
        let piece = if short.is_some() {
            piece.fill(0);
            &*piece
        } else {
            &piece[..got]
        };
        write.write_all(piece)?;
        at += piece.len() as u64;
    }
    Ok(short)
}
