//! Sends operands to a receiver that decides what it wants of them: section 5 of docs/protocol.md, the sender's half,
//! the same for a client that puts and a server that is got from.
//!
//! Must not know any transport, nor what the receiver does with what it gets. One thread walks, one listens, and two per
//! stream read, hash, pack and send; what is asked for is answered before anything new is told.
//!
//! Memory is bounded whatever the tree and whatever the receiver does: 64 batches of at most 256 names and 512 KiB of
//! attributes, 16 large files, 4096 directories that the receiver has not spoken about, the names of the directories
//! on the way down; per thread two buffers of a block (4 MiB) and one of contents. What the streams have queued comes
//! on top.

use crate::codec::Effort;
use crate::error::{Code, Error, Note, Op, Reason, Result};
use crate::event::Cancel;
use crate::policy::{Collide, CopyPolicy};
use crate::pulse::{For, Pulse};
use crate::remote::Compress;
use crate::sender::contents::Batch;
use crate::sender::filter::Filter;
use crate::sender::item::Item;
use crate::sender::large::{Answered, BlockJob, Large};
use crate::sender::offer::BATCH_ENTRIES;
use crate::sender::offer::{NamesTask, What};
use crate::sender::out::{Counted, Fed, Feed, FilePart, Out, Told};
use crate::sender::pace::{Pace, Sent};
use crate::sender::place::{Fate, Handles, Place};
use crate::trouble::TroubleBuf;
use bcmr_wire::limits::{BATCHES_OUT_MAX, DIRS_OUT_MAX, OFFERS_OUT_MAX};
use bcmr_wire::message::{Codec, DirState, Message};
use fastcopy::xattr::XattrBuffer;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Names and larges that wait to be looked at, in tasks.
const NAMES_WAITING: usize = 8;
/// Questions of the receiver that wait for an answer: as many as can be about entries that are not settled.
const ASKS_WAITING: usize = BATCHES_OUT_MAX * BATCH_ENTRIES + OFFERS_OUT_MAX;
/// How often the cancel flag is looked at while nothing else happens.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// How long the other side's own words are waited for once a stream has broken.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How long the other side's summary is waited for once this one was told to stop.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);

/// How it is sent.
pub(crate) struct How {
    /// Tells this machine apart from others.
    pub(crate) origin: u64,
    /// Without hashes.
    pub(crate) fast: bool,
    /// Packing; only what both sides have.
    pub(crate) compress: Compress,
    /// The receiver's store may be asked; only when both sides have it.
    pub(crate) dedup: bool,
    /// The two sides are compared: the side that compares says itself what a copy would not make.
    pub(crate) compares: bool,
    /// Whether symbolic links that are not followed are sent.
    pub(crate) links: Links,
}

/// What becomes of symbolic links that are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// They are sent as what they are.
    Sent,
    /// Each is refused by name: they were to be followed, and nothing is followed here.
    Refused,
}

impl Links {
    /// Why a link is refused.
    pub(crate) const NOTE: Reason = Reason::LinkAtConfinedServer;
}

/// Everything that sending needs.
pub(crate) struct Push<'a> {
    pub(crate) policy: &'a CopyPolicy,
    pub(crate) how: How,
    pub(crate) told: &'a dyn Told,
    pub(crate) cancel: &'a Cancel,
    pub(crate) pulse: &'a Pulse,
    /// Stream 0 first, and at least that one.
    pub(crate) outs: &'a [&'a dyn Out],
}

/// Why it stops before its end.
pub(super) enum Stop {
    /// The user here asked to.
    Cancelled,
    /// The receiver did.
    TheyCancelled,
    /// The receiver broke the rules, or we cannot go on; it is told.
    Broken(Error),
    /// The receiver says that the transfer failed.
    Refused(Error),
    /// A stream is gone.
    Lost(Error),
}

/// One thing to do, in the order in which they are picked.
pub(super) enum Job {
    End(Arc<Place>),
    Contents(Arc<Batch>, Vec<usize>),
    Open { file: u64 },
    Values { file: u64, first: u64, count: u64 },
    Prove { file: u64, answer: Answered },
    Have { file: u64, first: u64, count: u64 },
    Finish { file: u64 },
    Block(BlockJob),
    Offer(Arc<Place>, Item),
    Names(NamesTask),
}

/// A batch that is not settled.
pub(super) struct BatchState {
    batch: Arc<Batch>,
    /// Whose contents were sent, or are about to be.
    given: Vec<bool>,
    /// Answers that are not sent yet.
    open: usize,
    settled: bool,
    /// It went over another stream than its directory's end will: that must wait for it.
    elsewhere: bool,
}

/// Blocks go over a stream one after the other: who comes next, and who is at it.
#[derive(Clone, Copy, Default)]
pub(super) struct Turns {
    pub(super) next: u64,
    pub(super) serving: u64,
}

/// The next turn on a stream.
pub(super) fn take_turn(turns: &mut [Turns], stream: usize) -> u64 {
    let Some(turns) = turns.get_mut(stream) else { return 0 };
    turns.next += 1;
    turns.next - 1
}

/// What all threads share.
#[derive(Default)]
pub(super) struct State {
    pub(super) stop: Option<Stop>,
    /// There is nothing more to do.
    pub(super) over: bool,
    /// Everything was walked.
    pub(super) walked: bool,
    last_dir: u64,
    last_batch: u64,
    pub(super) last_file: u64,
    /// Directories the receiver has not spoken about.
    dirs: HashMap<u64, Arc<Place>>,
    batches: HashMap<u64, BatchState>,
    /// Batches that are not settled, and such as will be made.
    unsettled: usize,
    pub(super) files: BTreeMap<u64, Large>,
    /// Those that are wanted, in the order in which the receiver said so: it reads them in that order, and lets a stream
    /// wait that brings something of a later one.
    pub(super) line: VecDeque<u64>,
    /// Offers that will be made.
    pub(super) offering: usize,
    ends: VecDeque<Arc<Place>>,
    answers: VecDeque<(Arc<Batch>, Vec<usize>)>,
    names: VecDeque<NamesTask>,
    larges: VecDeque<(Arc<Place>, Item)>,
    asks: VecDeque<(u64, PathBuf)>,
    /// Threads at work, and those of them that look at names.
    busy: usize,
    looking: usize,
    /// By stream.
    pub(super) turns: Vec<Turns>,
    all_sent: bool,
    counted: Option<Counted>,
    /// The other side has sent a summary or an error.
    their_end: bool,
    /// Streams on which it has said its last message.
    done: usize,
    /// The feed has ended.
    deaf: bool,
}

/// One transfer.
pub(super) struct Sending<'a> {
    pub(super) push: &'a Push<'a>,
    pub(super) filter: Filter,
    state: Mutex<State>,
    wake: Condvar,
    pub(super) handles: Handles,
    pace: Option<Mutex<Pace>>,
    /// Offers go out in the order of their numbers.
    pub(super) offers: Mutex<()>,
    began: Instant,
    pub(super) found_items: AtomicU64,
    pub(super) found_bytes: AtomicU64,
}

/// What a thread keeps for itself.
#[derive(Default)]
pub(super) struct Hand {
    pub(super) attrs: XattrBuffer,
    pub(super) packer: crate::codec::Packer,
    /// Content before it is packed.
    pub(super) raw: Vec<u8>,
    /// The stream it sends on, where it may choose.
    pub(super) stream: usize,
}

/// Sends everything, and returns once the receiver has said what it counted.
///
/// # Errors
/// The transfer as a whole failed: a pattern that does not parse, a lost connection, a receiver that breaks the rules or
/// gives up. What happens to single items is told, and counted by the receiver.
pub(crate) fn push(push: &Push<'_>, what: What<'_>, feed: &mut dyn Feed) -> Result<Counted> {
    let sending = Sending::new(push)?;
    let threads = push.outs.len() * 2;
    std::thread::scope(|scope| {
        let sending = &sending;
        // Dropping this guard early stops every worker.
        let _all = Everybody(sending);
        start(scope, sending, || sending.listen(feed))?;
        if push.policy.collide == Collide::Ask {
            start(scope, sending, || sending.answer())?;
        }
        for me in 0..threads {
            let started = start(scope, sending, move || sending.work(me));
            // One is enough to come to an end.
            if me == 0 {
                started?;
            } else if started.is_err() {
                break;
            }
        }
        sending.walk(what);
        sending.finish()
    })
}

fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    sending: &'scope Sending<'_>,
    work: impl FnOnce() + Send + 'scope,
) -> Result<()> {
    let work = move || {
        let _all = Panicking(sending);
        let _works = sending.push.pulse.works();
        work();
    };
    match std::thread::Builder::new().spawn_scoped(scope, work) {
        Ok(_) => Ok(()),
        Err(e) => Err(Error::os(Op::StartAThreadToSend, "", e)),
    }
}

/// Ends the transfer for all threads.
struct Everybody<'s>(&'s Sending<'s>);

impl Drop for Everybody<'_> {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.wake.notify_all();
    }
}

/// The same, if the thread it stands in panics.
struct Panicking<'s>(&'s Sending<'s>);

impl Drop for Panicking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(Stop::Broken(Error::ours(Code::Io, Op::Send, "", Reason::ThreadStopped)));
            self.0.state().deaf = true;
        }
    }
}

impl<'a> Sending<'a> {
    pub(super) fn new(push: &'a Push<'a>) -> Result<Sending<'a>> {
        let threads = push.outs.len() * 2;
        let auto = push.how.compress == Compress::Auto;
        Ok(Sending {
            push,
            filter: Filter::new(&push.policy.filter)?,
            state: Mutex::new(State { turns: vec![Turns::default(); push.outs.len()], ..State::default() }),
            wake: Condvar::new(),
            handles: Handles::new(),
            pace: auto.then(|| Mutex::new(Pace::new(threads, push.outs.len(), 0))),
            offers: Mutex::new(()),
            began: Instant::now(),
            found_items: AtomicU64::new(0),
            found_bytes: AtomicU64::new(0),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked stops the transfer; the state serves only to come to an end then.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait<'g>(&self, state: MutexGuard<'g, State>) -> MutexGuard<'g, State> {
        let _waits = self.push.pulse.waits_for(For::Settled);
        self.wake.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        self.wake.notify_all();
    }

    /// The first reason to stop counts; but what the other side says is better than that nothing can be said to it.
    pub(super) fn stop(&self, stop: Stop) {
        let mut state = self.state();
        match (&state.stop, &stop) {
            (None, _) | (Some(Stop::Lost(_)), Stop::Refused(_) | Stop::Broken(_)) => state.stop = Some(stop),
            _ => {}
        }
        drop(state);
        self.wake.notify_all();
    }

    /// Whether no new work is to be taken up.
    pub(super) fn stopped(&self) -> bool {
        if self.push.cancel.is_set() {
            self.stop(Stop::Cancelled);
            return true;
        }
        let state = self.state();
        state.stop.is_some() || state.over
    }

    // ---- sending ----

    /// One message on a stream. Not being able to say it at all is a fault of ours, and the end.
    pub(super) fn say_on(&self, stream: usize, message: &Message<'_>) -> Result<()> {
        let mut frame = self.room(stream);
        message.encode(&mut frame).map_err(|e| Error::ours(Code::Io, Op::Send, "", e.to_string()))?;
        self.send(stream, frame)
    }

    /// On stream 0, where order matters.
    pub(super) fn say(&self, message: &Message<'_>) -> Result<()> {
        self.say_on(0, message)
    }

    pub(super) fn out(&self, stream: usize) -> Result<&'a dyn Out> {
        let out = self.push.outs.get(stream).or(self.push.outs.first()).copied();
        out.ok_or_else(|| Error::ours(Code::Io, Op::Send, "", Reason::NoStream))
    }

    pub(super) fn room(&self, stream: usize) -> Vec<u8> {
        self.out(stream).map(|out| out.room()).unwrap_or_default()
    }

    pub(super) fn send(&self, stream: usize, frames: Vec<u8>) -> Result<()> {
        self.out(stream)?.send(frames)
    }

    /// As [`Sending::send`], taking notice of what it cost. `raw` bytes of content were packed in `pack_ns`.
    pub(super) fn send_content(&self, stream: usize, frame: Vec<u8>, raw: usize, pack_ns: u64) -> Result<()> {
        let Some(pace) = &self.pace else { return self.send(stream, frame) };
        let wire = frame.len() as u64;
        let before = self.now_ns();
        let sent = self.send(stream, frame);
        let now = self.now_ns();
        let sample = Sent { raw: raw as u64, wire, pack_ns, wait_ns: now.saturating_sub(before) };
        pace.lock().unwrap_or_else(PoisonError::into_inner).sent(sample, now);
        sent
    }

    /// As [`Sending::send_content`], for content that the kernel reads.
    pub(super) fn send_part(&self, stream: usize, part: FilePart) -> Result<()> {
        let out = self.out(stream)?;
        let Some(pace) = &self.pace else { return out.send_file(part) };
        let (raw, before) = (part.bytes, self.now_ns());
        let sent = out.send_file(part);
        let now = self.now_ns();
        let sample = Sent { raw, wire: raw, pack_ns: 0, wait_ns: now.saturating_sub(before) };
        pace.lock().unwrap_or_else(PoisonError::into_inner).sent(sample, now);
        sent
    }

    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// How content is packed right now.
    pub(super) fn codec(&self) -> (Codec, Effort) {
        let now = |pace: &Mutex<Pace>| pace.lock().unwrap_or_else(PoisonError::into_inner).packs();
        match self.push.how.compress {
            Compress::Lz4 => (Codec::Lz4, Effort::Quick),
            Compress::Zstd => (Codec::Zstd, Effort::Quick),
            Compress::None => (Codec::Raw, Effort::Quick),
            Compress::Auto => match self.pace.as_ref().and_then(now) {
                Some(effort) => (Codec::Zstd, effort),
                None => (Codec::Raw, Effort::Quick),
            },
        }
    }

    /// An item failed here; the others go on.
    pub(super) fn fail(&self, place: Option<&Place>, error: Error) -> Result<()> {
        if let Some(place) = place {
            place.leave_some();
        }
        self.push.told.failed(&error);
        self.say(&Message::Trouble(TroubleBuf::of(&error).trouble()))
    }

    // ---- numbers and windows ----

    /// The next directory's number.
    pub(super) fn dir_id(&self) -> u64 {
        let mut state = self.state();
        state.last_dir += 1;
        state.last_dir
    }

    /// Waits until another directory may be announced and takes note of this one. `false`: stopped.
    pub(super) fn announce(&self, place: &Arc<Place>) -> bool {
        let mut state = self.state();
        // [window]
        while state.dirs.len() >= DIRS_OUT_MAX && state.stop.is_none() && !state.over {
            state = self.wait(state);
        }
        if state.stop.is_some() || state.over {
            return false;
        }
        state.dirs.insert(place.id, place.clone());
        true
    }

    /// Waits until everything that was walked is settled at the receiver.
    pub(super) fn settle_down(&self) {
        let mut state = self.state();
        while !state.is_settled() && state.stop.is_none() && !state.over {
            state = self.wait(state);
        }
    }

    /// Hands names to the workers that look at them, waiting while enough are waiting. `false`: stopped.
    pub(super) fn hand_over(&self, task: NamesTask) -> bool {
        let mut state = self.state();
        while state.names.len() >= NAMES_WAITING && state.stop.is_none() && !state.over {
            state = self.wait(state);
        }
        if state.stop.is_some() || state.over {
            return false;
        }
        state.names.push_back(task);
        drop(state);
        self.wake();
        true
    }

    /// Names that need another turn: for want of a window, or to be offered without contents.
    pub(super) fn hand_back(&self, task: NamesTask) {
        self.state().names.push_front(task);
        self.wake();
    }

    pub(super) fn hand_large(&self, place: &Arc<Place>, item: Item) {
        place.hold();
        self.state().larges.push_back((place.clone(), item));
        self.wake();
    }

    /// Room for one batch more, if there is.
    pub(super) fn reserve_batch(&self) -> bool {
        let mut state = self.state();
        let free = state.unsettled < BATCHES_OUT_MAX;
        state.unsettled += usize::from(free);
        free
    }

    /// Waits for it; `false`: stopped.
    pub(super) fn await_batch(&self) -> bool {
        let mut state = self.state();
        while state.unsettled >= BATCHES_OUT_MAX && state.stop.is_none() && !state.over {
            state = self.wait(state);
        }
        if state.stop.is_some() || state.over {
            return false;
        }
        state.unsettled += 1;
        true
    }

    /// It was not needed.
    pub(super) fn free_batch(&self) {
        self.state().unsettled -= 1;
        self.wake();
    }

    /// Makes a batch of what room was reserved for, before it is sent: the answer may come at once. On a stream other
    /// than 0, its directory's end waits until it is settled. The turn makes batches come in the order of their numbers.
    pub(super) fn batch(&self, place: &Arc<Place>, items: Vec<Item>, stream: usize) -> (Arc<Batch>, u64) {
        // Also with what went inline: a further name of a file may be wanted after all when its first could not be landed.
        let given = vec![false; items.len()];
        let elsewhere = stream != 0;
        if elsewhere {
            place.hold();
        }
        let mut state = self.state();
        state.last_batch += 1;
        let batch = Arc::new(Batch { id: state.last_batch, place: place.clone(), items });
        let known = BatchState { batch: batch.clone(), given, open: 0, settled: false, elsewhere };
        state.batches.insert(batch.id, known);
        let turn = take_turn(&mut state.turns, stream);
        (batch, turn)
    }

    /// One thing less to be sent of a directory; its end is told after the last.
    pub(super) fn release(&self, place: &Arc<Place>) {
        if place.release() {
            let mut state = self.state();
            end_of(&mut state, place);
            drop(state);
            self.wake();
        }
    }

    // ---- working ----

    fn work(&self, me: usize) {
        let streams = self.push.outs.len().max(1);
        let mut hand = Hand { stream: me % streams, ..Hand::default() };
        // Workers for what is new and workers for blocks; each does the other's work when its own is done.
        let blocks_first = me / streams == 1 || hand.stream != 0;
        loop {
            let mut state = self.state();
            let job = loop {
                if state.over || state.stop.is_some() {
                    return;
                }
                if let Some(job) = pick(&mut state, &hand, blocks_first) {
                    self.push.pulse.step();
                    state.busy += 1;
                    break job;
                }
                state = self.wait(state);
            };
            drop(state);
            let done = self.step(&mut hand, job);
            if let Err(e) = done {
                self.stop(Stop::Lost(e));
            }
            self.state().busy -= 1;
            self.wake();
        }
    }

    fn step(&self, hand: &mut Hand, job: Job) -> Result<()> {
        match job {
            Job::End(place) => {
                let partial = place.is_partial();
                self.say(&Message::DirEnd { dir: place.id, partial })
            }
            Job::Contents(batch, wanted) => {
                let sent = self.contents(hand, &batch, &wanted);
                self.answered(&batch);
                sent
            }
            Job::Names(task) => {
                let sent = self.names(hand, task);
                self.state().looking -= 1;
                sent
            }
            Job::Offer(place, item) => {
                let offered = self.offer(&place, item);
                self.release(&place);
                offered
            }
            Job::Open { file } => self.open(file),
            Job::Values { file, first, count } => self.values(file, first, count),
            Job::Have { file, first, count } => self.have(file, first, count),
            Job::Prove { file, answer } => self.prove(file, answer),
            Job::Finish { file } => self.finish_file(file),
            Job::Block(job) => self.block(hand, job),
        }
    }

    /// An answer to wants was sent.
    fn answered(&self, batch: &Arc<Batch>) {
        let mut state = self.state();
        if let Some(known) = state.batches.get_mut(&batch.id) {
            known.open -= 1;
        }
        settle(&mut state, batch.id);
    }

    /// Asks a person what the receiver asks.
    fn answer(&self) {
        loop {
            let mut state = self.state();
            let (id, path) = loop {
                if state.over || state.stop.is_some() {
                    return;
                }
                // It stays in the queue until it is answered, so that it counts.
                if let Some(ask) = state.asks.front() {
                    break ask.clone();
                }
                state = self.wait(state);
            };
            drop(state);
            let yes = self.push.pulse.asks(|| self.push.told.ask(&path));
            if let Err(e) = self.say(&Message::Answer { id, yes }) {
                return self.stop(Stop::Lost(e));
            }
            self.state().asks.pop_front();
        }
    }

    // ---- the end ----

    /// Everything was walked, or it was stopped: waits for the end, says so, and waits for the receiver's last word.
    fn finish(&self) -> Result<Counted> {
        let mut state = self.state();
        state.walked = true;
        while state.stop.is_none() && (state.looking > 0 || !state.names.is_empty()) {
            state = self.wait(state);
        }
        if state.stop.is_none() {
            drop(state);
            if let Err(e) = self.say_found(true) {
                self.stop(Stop::Lost(e));
            }
            state = self.state();
        }
        while state.stop.is_none() && !state.is_sent() {
            state = self.wait(state);
        }
        let whole = state.stop.is_none();
        state.all_sent = whole;
        drop(state);
        let mut said_cancel = None;
        if whole && let Err(e) = self.say(&Message::AllSent) {
            self.stop(Stop::Lost(e));
        }
        let mut until = None;
        loop {
            if self.push.cancel.is_set() {
                self.stop(Stop::Cancelled);
            }
            let mut state = self.state();
            let broken = matches!(state.stop, Some(Stop::Broken(_) | Stop::Refused(_)));
            if let Some(counted) = state.counted.take_if(|_| !broken) {
                drop(state);
                // It is over, whether this arrives or not.
                drop(self.say_done());
                return Ok(counted);
            }
            let deaf = state.deaf;
            match state.stop.take() {
                Some(Stop::Broken(e)) => {
                    // What still arrives is dropped.
                    state.stop = Some(Stop::TheyCancelled);
                    drop(state);
                    // Whether they hear it or not, the error that counts is this one.
                    drop(self.say(&Message::Error(TroubleBuf::of(&e).trouble())));
                    self.await_done();
                    return Err(e);
                }
                Some(Stop::Refused(e)) => {
                    state.stop = Some(Stop::TheyCancelled);
                    drop(state);
                    drop(self.say_done());
                    return Err(e);
                }
                // The other side may still have said why; that would be the better error.
                Some(Stop::Lost(e)) => {
                    let now = Instant::now();
                    if deaf || now >= *until.get_or_insert(now + LAST_WORDS) {
                        return Err(e);
                    }
                    state.stop = Some(Stop::Lost(e));
                }
                Some(Stop::Cancelled) => {
                    state.stop = Some(Stop::Cancelled);
                    // A receiver whose disk stands still takes as long as that does; it cleans up by itself.
                    let late = said_cancel.is_some_and(|said: Instant| said.elapsed() > CANCEL_PATIENCE);
                    if deaf || late {
                        drop(state);
                        // Threads of ours may wait for room that never comes.
                        self.push.outs.iter().for_each(|out| out.give_up());
                        return Err(Error::ours(Code::Interrupted, Op::Send, "", Reason::Interrupted));
                    }
                    if said_cancel.is_none() {
                        said_cancel = Some(Instant::now());
                        drop(state);
                        // If it cannot be said any more, the feed ends too.
                        let mut frame = self.room(0);
                        if Message::Cancel.encode(&mut frame).is_ok() {
                            drop(self.out(0)?.send_first(frame));
                        }
                        continue;
                    }
                }
                other => {
                    state.stop = other;
                    if deaf {
                        let note = Reason::EndedWithoutLastWord;
                        return Err(Error::ours(Code::Lost, Op::Send, "", note));
                    }
                }
            }
            let _waits = self.push.pulse.waits_for(For::Settled);
            drop(self.wake.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Our last message, after theirs.
    fn say_done(&self) -> Result<()> {
        (0..self.push.outs.len()).try_for_each(|stream| self.say_on(stream, &Message::Done))
    }

    /// After an error of ours: waits until the other side has said its last message on every stream.
    fn await_done(&self) {
        let until = Instant::now() + LAST_WORDS;
        let mut state = self.state();
        while !state.deaf && Instant::now() < until {
            state = self.wake.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.their_end {
            // Both have said their last at the same time.
            drop(state);
            drop(self.say_done());
        }
    }

    // ---- listening ----

    fn listen(&self, feed: &mut dyn Feed) {
        loop {
            if self.state().over {
                return;
            }
            let mut heard = Ok(false);
            let waits = self.push.pulse.waits_for(For::Frame);
            let fed = feed.next(LOOK, &mut |kind, payload| heard = self.hear(kind, payload));
            drop(waits);
            match (fed, heard) {
                (Ok(Fed::Frame), Ok(false)) => {}
                (Ok(Fed::Frame), Ok(true)) => break,
                (Ok(Fed::Frame), Err(stop)) => {
                    let last = matches!(stop, Stop::Refused(_)) && self.state().stop.is_none();
                    self.stop(stop);
                    if last {
                        break;
                    }
                }
                (Ok(Fed::Nothing), _) => {
                    if self.push.cancel.is_set() {
                        self.stop(Stop::Cancelled);
                    }
                }
                (Ok(Fed::Ended), _) => {
                    let note = Reason::ClosedByPeer;
                    self.stop(Stop::Lost(Error::ours(Code::Lost, Op::Send, "", note)));
                    break;
                }
                (Err(e), _) => {
                    self.stop(Stop::Lost(e));
                    break;
                }
            }
        }
        self.state().deaf = true;
        self.wake();
    }

    /// Takes one message to heart. `true`: it was the last.
    fn hear(&self, kind: u8, payload: &[u8]) -> std::result::Result<bool, Stop> {
        let message = Message::decode(kind, payload).map_err(|e| broken(e.to_string()))?;
        let told = self.push.told;
        match &message {
            Message::Landed { items, bytes } => told.landed(*items, *bytes),
            Message::Report(event) => told.report(event),
            Message::Error(trouble) => {
                self.state().their_end = true;
                return Err(Stop::Refused(told.theirs(trouble)));
            }
            Message::Done => {
                let mut state = self.state();
                if state.stop.is_none() {
                    return Err(broken(Reason::LastMessageAnswersNothing));
                }
                state.done += 1;
                return Ok(state.done >= self.push.outs.len());
            }
            Message::Cancel => {
                self.stop(Stop::TheyCancelled);
            }
            Message::Summary { counts, codes, cancelled } => {
                let mut state = self.state();
                if !state.all_sent && state.stop.is_none() && !cancelled {
                    return Err(broken(Reason::SummaryTooEarly));
                }
                state.their_end = true;
                state.counted =
                    Some(Counted { counts: *counts, codes: codes.clone(), cancelled: *cancelled });
                return Ok(true);
            }
            other => {
                let mut state = self.state();
                if state.stop.is_none() {
                    self.take(&mut state, other)?;
                }
                drop(state);
                self.wake();
            }
        }
        Ok(false)
    }

    fn take(&self, state: &mut State, message: &Message<'_>) -> std::result::Result<(), Stop> {
        match message {
            Message::DirIs { dir, state: is } => {
                let place = state.dirs.remove(dir);
                let place = place.ok_or_else(|| broken(Reason::DirectoryNotAsked.about(*dir)))?;
                place.set_fate(match is {
                    DirState::There => Fate::There,
                    DirState::New => Fate::New,
                    DirState::Refused => Fate::Refused,
                });
                Ok(())
            }
            Message::Wants { batch, entries } => wants(state, *batch, entries),
            Message::Resume { file, wanted, from, flags } => {
                self.resume(state, *file, *wanted, *from, *flags)
            }
            Message::Reread { file, at, bytes } => state.large(*file)?.reread(*at, *bytes),
            Message::Compute { file, first, count } => state.large(*file)?.compute(*first, *count),
            Message::MissingBlocks { file, first, nonce, bits } => {
                state.large(*file)?.missing(*first, nonce, bits)
            }
            Message::Close { file } => {
                state.large(*file)?;
                state.files.remove(file);
                Ok(())
            }
            Message::Ask { id, path } => {
                if self.push.policy.collide != Collide::Ask || state.asks.len() >= ASKS_WAITING {
                    return Err(broken(Reason::QuestionToNobody));
                }
                use std::os::unix::ffi::OsStrExt;
                state.asks.push_back((*id, PathBuf::from(std::ffi::OsStr::from_bytes(path))));
                Ok(())
            }
            other => Err(broken(Reason::NotReceivers.about(format!("{:#04x}", other.kind())))),
        }
    }
}

impl State {
    pub(super) fn large(&mut self, file: u64) -> std::result::Result<&mut Large, Stop> {
        self.files.get_mut(&file).ok_or_else(|| broken(Reason::FileNotOnOffer.about(file)))
    }

    /// Whether every operand was sent whole, and nothing can be asked about any more.
    fn is_sent(&self) -> bool {
        self.walked && self.is_settled()
    }

    /// Whether nothing can be asked any more about what was walked.
    fn is_settled(&self) -> bool {
        self.busy == 0
            && self.unsettled == 0
            && self.offering == 0
            && self.names.is_empty()
            && self.larges.is_empty()
            && self.ends.is_empty()
            && self.answers.is_empty()
            && self.files.is_empty()
    }
}

/// What is wanted of a batch, or that nothing more is.
fn wants(state: &mut State, batch: u64, entries: &[u64]) -> std::result::Result<(), Stop> {
    let known = state.batches.get_mut(&batch).filter(|known| !known.settled);
    let known = known.ok_or_else(|| broken(Reason::BatchNotWaiting.about(batch)))?;
    if entries.is_empty() {
        known.settled = true;
        state.unsettled -= 1;
        settle(state, batch);
        return Ok(());
    }
    let mut wanted = Vec::with_capacity(entries.len());
    for entry in entries {
        let index = usize::try_from(*entry).unwrap_or(usize::MAX);
        let is_file = known.batch.items.get(index).is_some_and(Item::is_file);
        match known.given.get_mut(index) {
            // Each content once: a peer that could ask again and again could keep us busy for ever.
            Some(given) if is_file && !*given => *given = true,
            _ => return Err(broken(Reason::EntryNotThere.about(*entry).about(batch))),
        }
        wanted.push(index);
    }
    known.open += 1;
    let batch = known.batch.clone();
    state.answers.push_back((batch, wanted));
    Ok(())
}

/// Forgets a batch once it is settled and all that was wanted of it was sent.
fn settle(state: &mut State, batch: u64) {
    let Some(known) = state.batches.get(&batch) else { return };
    if !known.settled || known.open > 0 {
        return;
    }
    let place = known.batch.place.clone();
    let elsewhere = known.elsewhere;
    state.batches.remove(&batch);
    if elsewhere && place.release() {
        end_of(state, &place);
    }
}

fn end_of(state: &mut State, place: &Arc<Place>) {
    if !place.single && place.fate() != Fate::Refused {
        state.ends.push_back(place.clone());
    }
}

/// What is to be done next, if anything.
fn pick(state: &mut State, hand: &Hand, blocks_first: bool) -> Option<Job> {
    if let Some(place) = state.ends.pop_front() {
        return Some(Job::End(place));
    }
    if let Some((batch, wanted)) = state.answers.pop_front() {
        return Some(Job::Contents(batch, wanted));
    }
    if blocks_first {
        crate::sender::large::pick(state, hand.stream).or_else(|| pick_new(state))
    } else {
        crate::sender::large::pick_asked(state, hand.stream)
            .or_else(|| pick_new(state))
            .or_else(|| crate::sender::large::pick(state, hand.stream))
    }
}

/// Something new, where the window lets it through.
fn pick_new(state: &mut State) -> Option<Job> {
    // [window]
    if state.files.len() + state.offering < OFFERS_OUT_MAX
        && let Some((place, item)) = state.larges.pop_front()
    {
        state.offering += 1;
        return Some(Job::Offer(place, item));
    }
    // While large files wait to be offered nothing is looked at, so that no more of them can be found.
    if state.larges.is_empty()
        && state.unsettled < BATCHES_OUT_MAX
        && let Some(task) = state.names.pop_front()
    {
        state.unsettled += 1;
        state.looking += 1;
        return Some(Job::Names(task));
    }
    None
}

/// The receiver has broken the rules.
pub(super) fn broken(note: impl Into<Note>) -> Stop {
    Stop::Broken(Error::ours(Code::Protocol, Op::Understand, "receiver", note))
}
