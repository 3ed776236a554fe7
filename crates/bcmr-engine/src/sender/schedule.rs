//! What the threads of a sending side share: how far the transfer is, what is under way within the windows, and what is
//! to be done next. Pure: nothing is read and nothing is sent here.
//!
//! Must not know streams, nor how anything is packed.

use crate::chunks::{ChunkIndex, ChunkSum};
use crate::error::{Error, Reason};
use crate::pulse::{For, Pulse};
use crate::sender::item::Item;
use crate::sender::large::{Large, LargeFiles, LargeJob, Obeyed, OfferAnswer, breach};
use crate::sender::names::Names;
use crate::sender::out::Counted;
use crate::sender::place::{AnnouncedDir, DirReply};
use bcmr_wire::limits::{BATCHES_OUT_MAX, DIRS_OUT_MAX, OFFERS_OUT_MAX, SUMS_KEPT_MAX};
use bcmr_wire::message::{DirState, Message, Sum, Wanted, resume};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Entries of one batch.
pub(super) const BATCH_ENTRIES: usize = 256;
/// Names and large files that wait to be looked at, in tasks.
const NAMES_WAITING: usize = 8;
/// Questions of the receiver that wait for an answer: as many as can be about entries that are not settled.
const ASKS_WAITING: usize = BATCHES_OUT_MAX * BATCH_ENTRIES + OFFERS_OUT_MAX;

/// How far the transfer is.
#[derive(Default)]
enum Phase {
    /// New work is taken up.
    #[default]
    Running,
    /// No new work is taken up; what is under way comes to its end.
    Draining(StopReason),
    /// Every thread returns.
    Done,
}

/// Why a transfer stops before its end.
pub(super) enum StopReason {
    /// The user here asked to.
    Cancelled,
    /// The receiver did.
    PeerCancelled,
    /// The receiver broke the rules, or this side cannot go on; the receiver is told.
    Broken(Error),
    /// The receiver says that the transfer failed.
    Refused(Error),
    /// A stream is gone.
    Lost(Error),
}

/// How the transfer ends, as far as that is known.
pub(super) struct Standing {
    pub(super) outcome: Outcome,
    /// Nothing more comes in.
    pub(super) input_ended: bool,
    /// For [`Schedule::wait_for_change`].
    pub(super) changes: u64,
}

/// What of the end is known.
pub(super) enum Outcome {
    /// It goes on.
    Open,
    /// The receiver has sent what it counted.
    Counted(Counted),
    /// The receiver is to be told of this error; what still arrives is dropped.
    Broken(Error),
    /// The receiver has ended it with this error.
    Refused(Error),
    /// A stream is gone: [`Schedule::take_lost`] gives the error.
    Lost,
    /// The user here asked to stop.
    Cancelled,
}

/// What was agreed on that the receiver's messages must keep to.
#[derive(Clone, Copy)]
pub(super) struct MessageRules {
    /// It may ask the user.
    pub(super) asks: bool,
    /// Content goes with chaining values, unless it does not want them.
    pub(super) hashed: bool,
    /// Its store may be asked.
    pub(super) dedup: bool,
    /// It may tell of what it has of a file.
    pub(super) delta: bool,
    /// It may ask for parts of small files.
    pub(super) parts: bool,
}

/// Names of one directory that are to be looked at and sent. Its directory is held for each.
pub(super) struct NamesTask {
    pub(super) place: Arc<AnnouncedDir>,
    pub(super) names: Names,
    /// Contents do not go along even where all is wanted: only the receiver knows which of several names of one file it
    /// needs the content for.
    pub(super) plain: bool,
}

/// Entries of one directory that were sent together.
pub(super) struct SentBatch {
    pub(super) id: u64,
    pub(super) place: Arc<AnnouncedDir>,
    pub(super) items: Vec<Item>,
}

/// How much is wanted of an entry.
pub(super) enum WantedOf {
    /// Its content, or the hash of one that was sent before.
    Content,
    /// Its content, after something else was given that did not help.
    Itself,
    /// Its hash.
    Hash,
    /// What it has beside these chunks.
    Rest(ChunkIndex),
}

impl WantedOf {
    fn chunks(&self) -> usize {
        if let WantedOf::Rest(index) = self { index.len() } else { 0 }
    }
}

/// Entries of a batch, and how much of each is wanted.
type WantedEntries = Vec<(usize, WantedOf)>;

/// What was given of an entry, or is about to be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum GivenOf {
    Nothing,
    /// A part, or the hash: its content may still be wanted.
    Part,
    Content,
}

/// One thing to do, in the order in which they are picked.
pub(super) enum SendJob {
    /// Nothing more comes of a directory.
    End(Arc<AnnouncedDir>),
    Contents(Arc<SentBatch>, WantedEntries),
    /// With its turn on the stream of the worker, where it is a block.
    Large(LargeJob, u64),
    Offer(Arc<AnnouncedDir>, Item),
    Names(NamesTask),
}

/// A batch that is not settled.
struct OpenBatch {
    batch: Arc<SentBatch>,
    /// Of each entry.
    given: Vec<GivenOf>,
    /// Answers that are not sent yet.
    open: usize,
    settled: bool,
    /// It went over another stream than its directory's end will: that must wait for it.
    elsewhere: bool,
}

/// Blocks and batches go over a stream one after the other: the turn that is given out next, and the one being served.
#[derive(Clone, Copy, Default)]
struct Turns {
    next: u64,
    serving: u64,
}

#[derive(Default)]
struct Queues {
    phase: Phase,
    /// Everything was walked.
    walked: bool,
    last_dir: u64,
    last_batch: u64,
    /// Directories that the receiver has not answered.
    dirs: HashMap<u64, Arc<AnnouncedDir>>,
    batches: HashMap<u64, OpenBatch>,
    /// Batches that are not settled, and such as will be made.
    unsettled: usize,
    files: LargeFiles,
    /// Offers that will be made.
    offering: usize,
    ends: VecDeque<Arc<AnnouncedDir>>,
    answers: VecDeque<(Arc<SentBatch>, WantedEntries)>,
    /// Chunks in them.
    chunks_waiting: usize,
    names: VecDeque<NamesTask>,
    larges: VecDeque<(Arc<AnnouncedDir>, Item)>,
    asks: VecDeque<(u64, PathBuf)>,
    /// Threads at work, and those of them that look at names.
    busy: usize,
    looking: usize,
    /// By stream.
    turns: Vec<Turns>,
    all_named: bool,
    all_sent: bool,
    counted: Option<Counted>,
    /// The other side has sent a summary or an error.
    peer_ended: bool,
    /// Streams on which it has sent its last message.
    done: usize,
    /// Nothing more comes in.
    input_ended: bool,
    /// Counts what threads were woken for.
    changes: u64,
}

/// The schedule of one transfer.
pub(super) struct Schedule<'p> {
    queues: Mutex<Queues>,
    wake: Condvar,
    pulse: &'p Pulse,
    agreed: MessageRules,
}

impl<'p> Schedule<'p> {
    pub(super) fn new(streams: usize, pulse: &'p Pulse, agreed: MessageRules) -> Schedule<'p> {
        let queues = Queues { turns: vec![Turns::default(); streams], ..Queues::default() };
        Schedule { queues: Mutex::new(queues), wake: Condvar::new(), pulse, agreed }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        // A thread that panicked stops the transfer; the queues serve only to come to an end then.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, queues: MutexGuard<'g, Queues>) -> MutexGuard<'g, Queues> {
        let _waits = self.pulse.waits_for(For::Settled);
        self.wake.wait(queues).unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something, and wakes the threads that wait for that.
    fn change<T>(&self, change: impl FnOnce(&mut Queues) -> T) -> T {
        let mut queues = self.lock();
        let changed = change(&mut queues);
        queues.changes += 1;
        drop(queues);
        self.wake.notify_all();
        changed
    }

    /// Waits until `ready` holds, for as long as the transfer runs. `None`: it does not run any more.
    fn wait_until(&self, ready: impl Fn(&Queues) -> bool) -> Option<MutexGuard<'_, Queues>> {
        let mut queues = self.lock();
        while queues.is_running() && !ready(&queues) {
            queues = self.wait(queues);
        }
        queues.is_running().then_some(queues)
    }

    // ---- the phase ----

    /// The first reason to stop counts; but what the other side says is better than that nothing can be sent to it.
    pub(super) fn stop(&self, reason: StopReason) {
        self.change(|queues| match (&queues.phase, &reason) {
            (Phase::Running, _)
            | (Phase::Draining(StopReason::Lost(_)), StopReason::Refused(_) | StopReason::Broken(_)) => {
                queues.phase = Phase::Draining(reason);
            }
            _ => {}
        });
    }

    /// Makes every thread return.
    pub(super) fn finish(&self) {
        self.change(|queues| queues.phase = Phase::Done);
    }

    /// Whether new work is taken up.
    pub(super) fn is_running(&self) -> bool {
        self.lock().is_running()
    }

    /// Whether every thread is to return.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.lock().phase, Phase::Done)
    }

    /// Nothing more comes in.
    pub(super) fn end_input(&self) {
        self.change(|queues| queues.input_ended = true);
    }

    /// Waits until nothing more comes in, but not beyond `until`.
    pub(super) fn await_input_end(&self, until: Instant) {
        let mut queues = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if queues.input_ended || left.is_zero() {
                return;
            }
            queues = self.wake.wait_timeout(queues, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    // ---- numbers and windows ----

    /// The next directory's number.
    pub(super) fn dir_id(&self) -> u64 {
        let mut queues = self.lock();
        queues.last_dir += 1;
        queues.last_dir
    }

    /// Waits until another directory may be announced and takes note of this one. `false`: the transfer stops.
    pub(super) fn announce(&self, place: &Arc<AnnouncedDir>) -> bool {
        // [window]
        let Some(mut queues) = self.wait_until(|q| q.dirs.len() < DIRS_OUT_MAX) else { return false };
        queues.dirs.insert(place.id, place.clone());
        true
    }

    /// Waits until everything that was walked is settled at the receiver.
    pub(super) fn await_settled(&self) {
        drop(self.wait_until(Queues::is_settled));
    }

    /// Hands names to the workers that look at them, waiting while enough are waiting. `false`: the transfer stops.
    pub(super) fn hand_over(&self, task: NamesTask) -> bool {
        let Some(mut queues) = self.wait_until(|q| q.names.len() < NAMES_WAITING) else { return false };
        queues.names.push_back(task);
        drop(queues);
        self.wake.notify_all();
        true
    }

    /// Names that need another turn: for want of a window, or to be offered without contents.
    pub(super) fn hand_back(&self, task: NamesTask) {
        self.change(|queues| queues.names.push_front(task));
    }

    /// A large file that is to be offered.
    pub(super) fn hand_large(&self, place: &Arc<AnnouncedDir>, item: Item) {
        place.hold();
        self.change(|queues| queues.larges.push_back((place.clone(), item)));
    }

    /// Puts a large file on offer. `None`: its directory was refused.
    pub(super) fn offer(&self, place: &Arc<AnnouncedDir>, item: Item) -> Option<(u64, Arc<Item>)> {
        let mut queues = self.lock();
        queues.offering -= 1;
        (place.reply() != DirReply::Refused).then(|| queues.files.offer(place.clone(), item))
    }

    /// Room for one batch more, if there is.
    pub(super) fn reserve_batch(&self) -> bool {
        let mut queues = self.lock();
        let free = queues.unsettled < BATCHES_OUT_MAX;
        queues.unsettled += usize::from(free);
        free
    }

    /// Waits for it; `false`: the transfer stops.
    pub(super) fn await_batch(&self) -> bool {
        let Some(mut queues) = self.wait_until(|q| q.unsettled < BATCHES_OUT_MAX) else { return false };
        queues.unsettled += 1;
        true
    }

    /// It was not needed.
    pub(super) fn free_batch(&self) {
        self.change(|queues| queues.unsettled -= 1);
    }

    /// Makes a batch of what room was reserved for, before it is sent: the answer may come at once. On a stream other
    /// than 0, its directory's end waits until it is settled. The turn makes batches come in the order of their numbers. Of the
    /// entries `repeated` only the hash goes along.
    pub(super) fn batch(
        &self,
        place: &Arc<AnnouncedDir>,
        items: Vec<Item>,
        stream: usize,
        repeated: &[usize],
    ) -> (Arc<SentBatch>, u64) {
        // Also with what went inline: a further name of a file may be wanted after all when its first could not be landed.
        let mut given = vec![GivenOf::Nothing; items.len()];
        for index in repeated {
            if let Some(given) = given.get_mut(*index) {
                *given = GivenOf::Part;
            }
        }
        let elsewhere = stream != 0;
        if elsewhere {
            place.hold();
        }
        let mut queues = self.lock();
        queues.last_batch += 1;
        let batch = Arc::new(SentBatch { id: queues.last_batch, place: place.clone(), items });
        let open = OpenBatch { batch: batch.clone(), given, open: 0, settled: false, elsewhere };
        queues.batches.insert(batch.id, open);
        let turn = queues.take_turn(stream);
        (batch, turn)
    }

    /// One thing less to be sent of a directory; its end is sent after the last.
    pub(super) fn release(&self, place: &Arc<AnnouncedDir>) {
        if place.release() {
            self.change(|queues| queues.end_dir(place));
        }
    }

    /// An answer to wants was sent.
    pub(super) fn contents_sent(&self, batch: &SentBatch) {
        let mut queues = self.lock();
        if let Some(known) = queues.batches.get_mut(&batch.id) {
            known.open -= 1;
        }
        queues.settle(batch.id);
    }

    /// Only the hash of a content was given: the content may still be wanted, once.
    pub(super) fn gave_hash(&self, batch: u64, entry: usize) {
        let mut queues = self.lock();
        let known = queues.batches.get_mut(&batch);
        if let Some(given) = known.and_then(|known| known.given.get_mut(entry)) {
            *given = GivenOf::Part;
        }
    }

    /// Names were looked at.
    pub(super) fn names_done(&self) {
        self.lock().looking -= 1;
    }

    /// A large file, if the receiver has not closed it meanwhile.
    pub(super) fn large<T>(&self, file: u64, with: impl FnOnce(&mut Large) -> T) -> Option<T> {
        self.lock().files.get(file).map(with)
    }

    // ---- turns ----

    /// Whether it is this turn's time on a stream.
    pub(super) fn is_turn(&self, stream: usize, turn: u64) -> bool {
        self.lock().turns.get(stream).is_none_or(|turns| turns.serving == turn)
    }

    /// Waits for a turn. `false`: the transfer stops.
    pub(super) fn await_turn(&self, stream: usize, turn: u64) -> bool {
        self.wait_until(|q| q.turns.get(stream).is_none_or(|turns| turns.serving == turn)).is_some()
    }

    /// Lets the next turn on a stream begin.
    pub(super) fn end_turn(&self, stream: usize) {
        self.change(|queues| {
            if let Some(turns) = queues.turns.get_mut(stream) {
                turns.serving += 1;
            }
        });
    }

    // ---- work ----

    /// Waits for something to do. `None`: the transfer stops.
    pub(super) fn next_job(&self, stream: usize, blocks_first: bool) -> Option<SendJob> {
        let mut queues = self.lock();
        while queues.is_running() {
            if let Some(job) = queues.pick(stream, blocks_first) {
                self.pulse.step();
                queues.busy += 1;
                return Some(job);
            }
            queues = self.wait(queues);
        }
        None
    }

    /// What [`Schedule::next_job`] gave is done.
    pub(super) fn job_done(&self) {
        self.change(|queues| queues.busy -= 1);
    }

    /// Waits for a question of the receiver. It stays in the queue until it is answered, so that it counts.
    pub(super) fn next_question(&self) -> Option<(u64, PathBuf)> {
        self.wait_until(|q| !q.asks.is_empty())?.asks.front().cloned()
    }

    /// The first question was answered.
    pub(super) fn question_answered(&self) {
        self.lock().asks.pop_front();
    }

    // ---- the end ----

    /// Everything was walked: waits until all names were looked at. `false`: the transfer stops.
    pub(super) fn await_walked(&self) -> bool {
        self.lock().walked = true;
        self.wait_until(|q| q.looking == 0 && q.names.is_empty()).is_some()
    }

    /// How many directories and batches there are, where no more will be named and the receiver may know of them from one
    /// stream: it need not wait then until it is told that all was sent. To be called after [`Schedule::await_walked`].
    pub(super) fn all_named(&self) -> Option<(u64, u64)> {
        let mut queues = self.lock();
        let no_large = queues.larges.is_empty() && queues.offering == 0 && queues.files.is_empty();
        queues.all_named = no_large && queues.turns.len() == 1 && !self.agreed.asks;
        queues.all_named.then_some((queues.last_dir, queues.last_batch))
    }

    /// Waits until everything was sent and nothing can be asked about any more. `false`: the transfer stops.
    pub(super) fn await_sent(&self) -> bool {
        match self.wait_until(Queues::is_sent) {
            Some(mut queues) => {
                queues.all_sent = true;
                true
            }
            None => false,
        }
    }

    /// How the transfer ends. An error comes out once, and what still arrives is dropped then.
    pub(super) fn standing(&self) -> Standing {
        let mut queues = self.lock();
        let outcome = queues.outcome();
        Standing { outcome, input_ended: queues.input_ended, changes: queues.changes }
    }

    /// The error of [`Outcome::Lost`].
    pub(super) fn take_lost(&self) -> Option<Error> {
        let mut queues = self.lock();
        match std::mem::replace(&mut queues.phase, Phase::Draining(StopReason::PeerCancelled)) {
            Phase::Draining(StopReason::Lost(e)) => Some(e),
            other => {
                queues.phase = other;
                None
            }
        }
    }

    /// Waits until there were other changes than `then`, but no longer than `time`.
    pub(super) fn wait_for_change(&self, then: u64, time: Duration) {
        let queues = self.lock();
        let _waits = self.pulse.waits_for(For::Settled);
        let waited = self.wake.wait_timeout_while(queues, time, |q| q.changes == then);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    // ---- what the receiver says ----

    /// The receiver has ended the transfer with an error.
    pub(super) fn peer_failed(&self) {
        self.lock().peer_ended = true;
    }

    /// Whether the receiver has sent a summary or an error.
    pub(super) fn has_peer_ended(&self) -> bool {
        self.lock().peer_ended
    }

    /// The receiver's last message on one of so many streams. `true`: on all of them.
    pub(super) fn peer_done(&self, streams: usize) -> Obeyed<bool> {
        let mut queues = self.lock();
        if queues.is_running() {
            return Err(breach(Reason::LastMessageAnswersNothing));
        }
        queues.done += 1;
        Ok(queues.done >= streams)
    }

    /// What the receiver counted.
    pub(super) fn summary(&self, counted: Counted) -> Obeyed {
        self.change(|queues| {
            // What settles the last batch came before this.
            let settled = queues.all_named && queues.unsettled == 0 && queues.files.is_empty();
            if !queues.all_sent && !settled && queues.is_running() {
                if !counted.cancelled {
                    return Err(breach(Reason::SummaryTooEarly));
                }
                // The receiver answers nothing any more.
                queues.phase = Phase::Draining(StopReason::PeerCancelled);
            }
            queues.peer_ended = true;
            queues.counted = Some(counted);
            Ok(())
        })
    }

    /// What the receiver says of something that is under way; dropped once the transfer stops.
    pub(super) fn apply(&self, message: &Message<'_>) -> Obeyed {
        let agreed = self.agreed;
        self.change(|queues| if queues.is_running() { queues.apply(message, agreed) } else { Ok(()) })
    }
}

fn chunks_of(sums: &[Sum]) -> Vec<ChunkSum> {
    sums.iter().map(|chunk| ChunkSum { bytes: chunk.bytes, sum: chunk.sum }).collect()
}

fn wanted_of(wanted: &Wanted) -> WantedOf {
    match wanted {
        Wanted::Content => WantedOf::Content,
        Wanted::Hash => WantedOf::Hash,
        Wanted::Rest(sums) => {
            let mut index = ChunkIndex::from(0);
            index.extend(&chunks_of(sums));
            WantedOf::Rest(index)
        }
    }
}

impl Queues {
    fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    fn outcome(&mut self) -> Outcome {
        let broken = matches!(self.phase, Phase::Draining(StopReason::Broken(_) | StopReason::Refused(_)));
        if let Some(counted) = self.counted.take_if(|_| !broken) {
            return Outcome::Counted(counted);
        }
        match std::mem::replace(&mut self.phase, Phase::Draining(StopReason::PeerCancelled)) {
            Phase::Draining(StopReason::Broken(e)) => Outcome::Broken(e),
            Phase::Draining(StopReason::Refused(e)) => Outcome::Refused(e),
            other => {
                let outcome = match &other {
                    Phase::Draining(StopReason::Lost(_)) => Outcome::Lost,
                    Phase::Draining(StopReason::Cancelled) => Outcome::Cancelled,
                    _ => Outcome::Open,
                };
                self.phase = other;
                outcome
            }
        }
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

    fn apply(&mut self, message: &Message<'_>, agreed: MessageRules) -> Obeyed {
        match message {
            Message::DirIs { dir, state } => {
                let place = self.dirs.remove(dir);
                let place = place.ok_or_else(|| breach(Reason::DirectoryNotAsked.about(*dir)))?;
                place.set_reply(match state {
                    DirState::There => DirReply::There,
                    DirState::New => DirReply::New,
                    DirState::Refused => DirReply::Refused,
                });
                Ok(())
            }
            Message::Wants { batch, entries } if entries.is_empty() => self.settled(*batch),
            Message::Wants { batch, entries } => {
                self.wants(*batch, entries.iter().map(|entry| (*entry, WantedOf::Content)))
            }
            Message::WantsParts { batch, entries } if agreed.parts => {
                self.wants(*batch, entries.iter().map(|part| (part.entry, wanted_of(&part.wanted))))
            }
            Message::Resume { file, wanted, from, flags } => {
                let hashed = agreed.hashed && flags & resume::WITHOUT_HASHES == 0;
                let patches = flags & resume::PATCHES != 0;
                if patches && !agreed.delta {
                    return Err(breach(Reason::SumsNotAsked));
                }
                let (file, wanted, from, dedup) = (*file, *wanted, *from, agreed.dedup);
                self.files.resume(&OfferAnswer { file, wanted, from, hashed, dedup, patches })
            }
            Message::Sums { file, at, chunks } if agreed.delta => {
                self.files.sums(*file, *at, &chunks_of(chunks))
            }
            Message::Reread { file, at, bytes } => self.files.known(*file)?.reread(*at, *bytes),
            Message::Compute { file, first, count } => self.files.known(*file)?.compute(*first, *count),
            Message::MissingBlocks { file, first, nonce, bits } => {
                self.files.known(*file)?.missing(*first, nonce, bits)
            }
            Message::Close { file } => self.files.close(*file),
            Message::Ask { id, path } => {
                if !agreed.asks || self.asks.len() >= ASKS_WAITING {
                    return Err(breach(Reason::QuestionToNobody));
                }
                self.asks.push_back((*id, PathBuf::from(OsStr::from_bytes(path))));
                Ok(())
            }
            other => Err(breach(Reason::NotReceivers.about(format!("{:#04x}", other.kind())))),
        }
    }

    /// A batch that the receiver may speak about.
    fn waiting(&mut self, batch: u64) -> Obeyed<&mut OpenBatch> {
        let known = self.batches.get_mut(&batch).filter(|known| !known.settled);
        known.ok_or_else(|| breach(Reason::BatchNotWaiting.about(batch)))
    }

    /// Nothing more is wanted of a batch.
    fn settled(&mut self, batch: u64) -> Obeyed {
        self.waiting(batch)?.settled = true;
        self.unsettled -= 1;
        self.settle(batch);
        Ok(())
    }

    /// What is wanted of a batch.
    fn wants(&mut self, batch: u64, entries: impl Iterator<Item = (u64, WantedOf)>) -> Obeyed {
        let mut chunks = self.chunks_waiting;
        let known = self.waiting(batch)?;
        let mut wanted = Vec::new();
        for (entry, mut of) in entries {
            let index = usize::try_from(entry).unwrap_or(usize::MAX);
            let is_file = known.batch.items.get(index).is_some_and(Item::is_file);
            let now = match of {
                WantedOf::Content | WantedOf::Itself => GivenOf::Content,
                WantedOf::Hash | WantedOf::Rest(_) => GivenOf::Part,
            };
            match known.given.get_mut(index) {
                // Each content once, and a part before it once: a peer that could ask again and again could keep this side
                // busy for ever.
                Some(given) if is_file && *given < now => {
                    if *given == GivenOf::Part {
                        of = WantedOf::Itself;
                    }
                    *given = now;
                }
                _ => return Err(breach(Reason::EntryNotThere.about(entry).about(batch))),
            }
            chunks += of.chunks();
            if chunks > SUMS_KEPT_MAX {
                return Err(breach(Reason::TooManySums));
            }
            wanted.push((index, of));
        }
        known.open += 1;
        let batch = known.batch.clone();
        self.chunks_waiting = chunks;
        self.answers.push_back((batch, wanted));
        Ok(())
    }

    /// Forgets a batch once it is settled and all that was wanted of it was sent.
    fn settle(&mut self, batch: u64) {
        let Some(known) = self.batches.get(&batch) else { return };
        if !known.settled || known.open > 0 {
            return;
        }
        let place = known.batch.place.clone();
        let elsewhere = known.elsewhere;
        self.batches.remove(&batch);
        if elsewhere && place.release() {
            self.end_dir(&place);
        }
    }

    fn end_dir(&mut self, place: &Arc<AnnouncedDir>) {
        if !place.single && place.reply() != DirReply::Refused {
            self.ends.push_back(place.clone());
        }
    }

    /// The next turn on a stream.
    fn take_turn(&mut self, stream: usize) -> u64 {
        let Some(turns) = self.turns.get_mut(stream) else { return 0 };
        turns.next += 1;
        turns.next - 1
    }

    /// What is to be done next, if anything.
    fn pick(&mut self, stream: usize, blocks_first: bool) -> Option<SendJob> {
        if let Some(place) = self.ends.pop_front() {
            return Some(SendJob::End(place));
        }
        if let Some((batch, wanted)) = self.answers.pop_front() {
            let chunks: usize = wanted.iter().map(|(_, of)| of.chunks()).sum();
            self.chunks_waiting = self.chunks_waiting.saturating_sub(chunks);
            return Some(SendJob::Contents(batch, wanted));
        }
        let large = if blocks_first { self.files.pick() } else { self.files.pick_asked() };
        if let Some(job) = large {
            return Some(self.large_job(job, stream));
        }
        if let Some(job) = self.pick_new() {
            return Some(job);
        }
        if blocks_first { None } else { self.files.pick().map(|job| self.large_job(job, stream)) }
    }

    fn large_job(&mut self, job: LargeJob, stream: usize) -> SendJob {
        let turn = if matches!(job, LargeJob::Block(_)) { self.take_turn(stream) } else { 0 };
        SendJob::Large(job, turn)
    }

    /// Something new, where the window lets it through.
    fn pick_new(&mut self) -> Option<SendJob> {
        // [window]
        if self.files.len() + self.offering < OFFERS_OUT_MAX
            && let Some((place, item)) = self.larges.pop_front()
        {
            self.offering += 1;
            return Some(SendJob::Offer(place, item));
        }
        // While large files wait to be offered nothing is looked at, so that no more of them can be found.
        if self.larges.is_empty()
            && self.unsettled < BATCHES_OUT_MAX
            && let Some(task) = self.names.pop_front()
        {
            self.unsettled += 1;
            self.looking += 1;
            return Some(SendJob::Names(task));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Node;
    use crate::sender::place::AnnouncedInit;
    use crate::sender::walk::SourceDir;
    use fastcopy::dir::{Dir, NameBuf};
    use fastcopy::meta::{Info, Kind};
    use std::path::Path;

    /// A batch of so many files, by itself in the window.
    fn batch_of(files: usize) -> Queues {
        let dir = || Dir::open(Path::new("/")).unwrap();
        let info = Info { kind: Kind::File, ..dir().info().unwrap() };
        let src = SourceDir::root(dir(), Node::root(Path::new("/"))).unwrap();
        let (id, follow, single, inside_new, dev, line) = (1, false, false, false, 0, Vec::new());
        let init = AnnouncedInit { id, follow, single, inside_new, dev, line };
        let place = AnnouncedDir::new(Arc::new(dir()), &src, init);
        let name = NameBuf::new(b"a").unwrap();
        let item = Item { name, info, size: 1, link: Vec::new(), attrs: Vec::new() };
        let batch = Arc::new(SentBatch { id: 1, place, items: vec![item; files] });
        let given = vec![GivenOf::Nothing; files];
        let open = OpenBatch { batch, given, open: 0, settled: false, elsewhere: false };
        let mut queues = Queues { unsettled: 1, ..Queues::default() };
        queues.batches.insert(1, open);
        queues
    }

    fn rest(entry: u64, chunks: usize) -> impl Iterator<Item = (u64, WantedOf)> {
        let sums = vec![Sum { bytes: 1, sum: 7 }; chunks];
        std::iter::once((entry, wanted_of(&Wanted::Rest(sums))))
    }

    /// One who asks and asks before anything is answered fills no memory.
    #[test]
    fn so_many_chunks_wait_and_no_more() {
        let mut queues = batch_of(4);
        assert!(queues.wants(1, rest(0, SUMS_KEPT_MAX - 1)).is_ok());
        assert!(queues.wants(1, rest(1, 2)).is_err());
        assert!(queues.wants(1, rest(2, 1)).is_ok());
        // What was taken up makes room.
        assert!(matches!(queues.pick(0, false), Some(SendJob::Contents(..))));
        assert!(queues.wants(1, rest(3, SUMS_KEPT_MAX - 1)).is_ok());
    }

    #[test]
    fn a_part_is_given_once_and_then_the_content_once() {
        let of = |entry, of: fn() -> WantedOf| std::iter::once((entry, of()));
        let (hash, content) = (|| WantedOf::Hash, || WantedOf::Content);
        let mut queues = batch_of(2);
        assert!(queues.wants(1, of(0, hash)).is_ok() && queues.wants(1, of(0, hash)).is_err());
        assert!(queues.wants(1, of(0, content)).is_ok() && queues.wants(1, of(0, content)).is_err());
        assert!(queues.wants(1, of(1, content)).is_ok() && queues.wants(1, of(1, hash)).is_err());
        assert!(queues.wants(1, of(2, hash)).is_err() && queues.wants(2, of(0, hash)).is_err());
        // Behind a part nothing stands for the content any more.
        let wanted: Vec<_> = queues.answers.iter().filter_map(|(_, wanted)| wanted.first()).collect();
        assert!(matches!(wanted[..], [(0, WantedOf::Hash), (0, WantedOf::Itself), (1, WantedOf::Content)]));
    }
}
