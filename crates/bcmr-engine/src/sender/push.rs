//! Sends operands to a receiver that decides what it wants of them: section 5 of docs/protocol.md, the sender's half,
//! the same for a client that puts and a server that is got from.
//!
//! Must not know any transport, nor what the receiver does with what it gets. One thread walks, one listens, and others
//! read, hash, pack and send: two for each stream where there are few of them, else one and one more; what is asked for is
//! answered before anything new is announced.
//!
//! Memory is bounded whatever the tree and whatever the receiver does: 64 batches of at most 256 names and 512 KiB of
//! attributes, 16 large files, 4096 directories that the receiver has not answered, the names of the directories
//! on the way down; per thread two buffers of a block (4 MiB) and one of contents. What the streams have queued comes
//! on top.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::policy::Collide;
use crate::sender::announce::{Announcer, ToSend};
use crate::sender::blocks::BlockSender;
use crate::sender::contents::ContentSender;
use crate::sender::entries::EntrySender;
use crate::sender::listen::AnswerListener;
use crate::sender::out::{Counted, Feed};
use crate::sender::schedule::{Outcome, SendJob, Standing, StopReason};
use crate::sender::sending::{self, Push, Sending, WorkerBuffers};
use crate::trouble::TroubleBuf;
use bcmr_wire::message::Message;
use std::thread::Scope;
use std::time::{Duration, Instant};

/// How often the cancel flag is looked at while nothing else happens.
const LOOK: Duration = Duration::from_millis(100);
/// How long the other side's own error is waited for once a stream has broken.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long the other side's summary is waited for once this one was told to stop.
const CANCEL_WAIT: Duration = Duration::from_secs(10);

/// Sends everything, and returns once the receiver has sent what it counted.
///
/// # Errors
/// The transfer as a whole failed: a pattern that does not parse, a lost connection, a receiver that breaks the rules or
/// gives up. What happens to single items is reported, and counted by the receiver.
pub(crate) fn push(push: &Push<'_>, what: ToSend<'_>, feed: &mut dyn Feed) -> Result<Counted> {
    let sending = Sending::new(push)?;
    let threads = sending::threads(push.outs.len());
    std::thread::scope(|scope| {
        let sending = &sending;
        // Dropping this guard early stops every worker.
        let _all = FinishOnDrop(sending);
        start(scope, sending, || AnswerListener(sending).listen(feed))?;
        if push.policy.collide == Collide::Ask {
            start(scope, sending, || answer(sending))?;
        }
        for me in 0..threads {
            let started = start(scope, sending, move || work(sending, me));
            // One is enough to come to an end.
            if me == 0 {
                started?;
            } else if started.is_err() {
                break;
            }
        }
        Announcer::new(sending).walk(what);
        finish(sending)
    })
}

fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    sending: &'scope Sending<'_>,
    work: impl FnOnce() + Send + 'scope,
) -> Result<()> {
    let work = move || {
        let _all = StopOnPanic(sending);
        let _works = sending.push.pulse.works();
        work();
    };
    match std::thread::Builder::new().spawn_scoped(scope, work) {
        Ok(_) => Ok(()),
        Err(e) => Err(Error::os(Op::StartAThreadToSend, "", e)),
    }
}

/// Dropping this makes every thread return.
struct FinishOnDrop<'s, 'a>(&'s Sending<'a>);

impl Drop for FinishOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.0.schedule.finish();
    }
}

/// Stops the transfer if the thread that it stands in panics.
struct StopOnPanic<'s, 'a>(&'s Sending<'a>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let e = Error::ours(Code::Io, Op::Send, "", Reason::ThreadStopped);
            self.0.schedule.stop(StopReason::Broken(e));
            self.0.schedule.end_input();
        }
    }
}

// ---- the workers ----

fn work(sending: &Sending<'_>, me: usize) {
    let streams = sending.push.outs.len().max(1);
    let mut buffers = WorkerBuffers { stream: me % streams, ..WorkerBuffers::default() };
    // Workers for what is new and workers for blocks; each does the other's work when its own is done.
    let blocks_first = me / streams == 1 || buffers.stream != 0;
    while let Some(job) = sending.schedule.next_job(buffers.stream, blocks_first) {
        if let Err(e) = step(sending, &mut buffers, job) {
            sending.schedule.stop(StopReason::Lost(e));
        }
        sending.schedule.job_done();
    }
}

fn step(sending: &Sending<'_>, buffers: &mut WorkerBuffers, job: SendJob) -> Result<()> {
    let schedule = &sending.schedule;
    match job {
        SendJob::End(place) => {
            let partial = place.is_incomplete();
            sending.send(&Message::DirEnd { dir: place.id, partial })
        }
        SendJob::Contents(batch, wanted) => {
            let sent = ContentSender(sending).send(buffers, &batch, &wanted);
            schedule.contents_sent(&batch);
            sent
        }
        SendJob::Names(task) => {
            let sent = EntrySender(sending).names(buffers, task);
            schedule.names_done();
            sent
        }
        SendJob::Offer(place, item) => {
            let offered = EntrySender(sending).offer(&place, item);
            schedule.release(&place);
            offered
        }
        SendJob::Large(job, turn) => BlockSender(sending).step(buffers, job, turn),
    }
}

/// Asks the user what the receiver asks.
fn answer(sending: &Sending<'_>) {
    while let Some((id, path)) = sending.schedule.next_question() {
        let yes = sending.push.pulse.asks(|| sending.push.observer.ask(&path));
        if let Err(e) = sending.send(&Message::Answer { id, yes }) {
            return sending.schedule.stop(StopReason::Lost(e));
        }
        sending.schedule.question_answered();
    }
}

// ---- the end ----

/// Everything was walked, or it was stopped: waits for the end, sends it, and waits for the receiver's last message.
fn finish(sending: &Sending<'_>) -> Result<Counted> {
    let schedule = &sending.schedule;
    if schedule.await_walked()
        && let Err(e) = sending.send_found(true).and_then(|()| all_named(sending))
    {
        schedule.stop(StopReason::Lost(e));
    }
    if schedule.await_sent()
        && !schedule.has_peer_ended()
        && let Err(e) = sending.send(&Message::AllSent)
    {
        schedule.stop(StopReason::Lost(e));
    }
    let mut ending = Ending { sending, cancel_sent: None, lost_until: None };
    loop {
        if sending.push.cancel.is_set() {
            schedule.stop(StopReason::Cancelled);
        }
        if let Some(result) = ending.look()? {
            return Ok(result);
        }
    }
}

/// Says that nothing more will be named, where that is so.
fn all_named(sending: &Sending<'_>) -> Result<()> {
    match sending.schedule.all_named() {
        Some((dirs, batches)) => sending.send(&Message::AllNamed { dirs, batches }),
        None => Ok(()),
    }
}

/// The wait for the receiver's last message.
struct Ending<'s, 'a> {
    sending: &'s Sending<'a>,
    /// When the receiver was told to stop.
    cancel_sent: Option<Instant>,
    /// How long its own error is waited for, once a stream is gone.
    lost_until: Option<Instant>,
}

impl Ending<'_, '_> {
    /// Looks how the transfer is; waits for a change where nothing is to be done.
    fn look(&mut self) -> Result<Option<Counted>> {
        let schedule = &self.sending.schedule;
        let Standing { outcome, input_ended, changes } = schedule.standing();
        let now = Instant::now();
        match outcome {
            Outcome::Counted(counted) => {
                // It is over, whether this arrives or not.
                drop(self.send_done());
                return Ok(Some(counted));
            }
            Outcome::Broken(e) => {
                // Whether it is received or not, the error that counts is this one.
                drop(self.sending.send(&Message::Error(TroubleBuf::of(&e).trouble())));
                self.await_done();
                return Err(e);
            }
            Outcome::Refused(e) => {
                drop(self.send_done());
                return Err(e);
            }
            // The other side may still have sent why; that would be the better error.
            Outcome::Lost => {
                let until = *self.lost_until.get_or_insert(now + LAST_WORDS);
                if (input_ended || now >= until)
                    && let Some(e) = schedule.take_lost()
                {
                    return Err(e);
                }
            }
            Outcome::Cancelled => {
                // A receiver whose disk stands still takes as long as that does; it cleans up by itself.
                let late = self.cancel_sent.is_some_and(|sent| sent.elapsed() > CANCEL_WAIT);
                if input_ended || late {
                    // Threads of this side may wait for room that never comes.
                    self.sending.push.outs.iter().for_each(|out| out.give_up());
                    return Err(Error::ours(Code::Interrupted, Op::Send, "", Reason::Interrupted));
                }
                if self.cancel_sent.is_none() {
                    self.cancel_sent = Some(now);
                    // If it cannot be sent any more, the feed ends too.
                    let mut frame = self.sending.room(0, 0);
                    if Message::Cancel.encode(&mut frame).is_ok() {
                        drop(self.sending.out(0)?.send_first(frame));
                    }
                    return Ok(None);
                }
            }
            Outcome::Open if input_ended => {
                let note = Reason::EndedWithoutLastWord;
                return Err(Error::ours(Code::Lost, Op::Send, "", note));
            }
            Outcome::Open => {}
        }
        schedule.wait_for_change(changes, LOOK);
        Ok(None)
    }

    /// Our last message, after theirs.
    fn send_done(&self) -> Result<()> {
        (0..self.sending.push.outs.len()).try_for_each(|stream| self.sending.send_on(stream, &Message::Done))
    }

    /// After an error of ours: waits until the other side has sent its last message on every stream.
    fn await_done(&self) {
        self.sending.schedule.await_input_end(Instant::now() + LAST_WORDS);
        if self.sending.schedule.has_peer_ended() {
            // Both have sent their last at the same time.
            drop(self.send_done());
        }
    }
}
