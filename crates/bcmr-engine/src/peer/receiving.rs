//! Takes the frames of all streams to a [`MessageHandler`] until the sender has sent all, one side cancels or the connection
//! breaks; then sends the summary and waits until the sender has acknowledged it. The same at a server and at a client.
//!
//! Must not know what becomes of what arrives.

use super::deferred::{DeferredFrames, forward_answers};
use super::ending::drain_until_done;
use super::questions::RemoteQuestions;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Summary, Watch};
use crate::peer::from_wire::handler::{MessageHandler, ReceiverBuffers, unload, unload_patch};
use crate::peer::reply::Reply;
use crate::pulse::{For, Pulse};
use crate::receiver::arriving::Load;
use crate::transport::conn::{FrameBuf, Heard, Packet};
use crate::transport::stream::{Inbox, Stream};
use crate::trouble::{TroubleBuf, error_of};
use bcmr_wire::message::Message;
use bcmr_wire::state::State;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

/// How often flags are looked at while nothing comes.
const LOOK: Duration = Duration::from_millis(100);

/// Answers on stream 0.
pub(super) fn reply_on(stream: &Stream) -> Reply {
    let (out, has_ended) = (stream.out.clone(), stream.ending());
    Reply {
        pulse: stream.pulse(),
        out: Box::new(move |message| {
            let mut frame = out.room(0);
            message.encode(&mut frame).map_err(|e| io::Error::other(e.to_string()))?;
            out.send(Packet::Frames(frame)).map_err(|gone| io::Error::other(Error::from(gone)))
        }),
        has_ended: Box::new(has_ended),
    }
}

/// At which end of the connection a transfer arrives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceivingEnd {
    /// At the client, which asked for it: the streams are of no use afterwards.
    Client,
    /// The same, where the server has nothing to do any more once all was received: its last message is not waited for.
    ClientLeaves,
    /// The same, where the client asks for more afterwards.
    ClientAsksAgain,
    /// At the server, which tells how far things have come, and may be asked for more afterwards.
    Server,
}

/// Receives one transfer to its end. What broke the connection, if something did, comes back beside the summary.
pub(super) fn receive_all(
    handler: impl MessageHandler,
    streams: &[Stream],
    reply: &Reply,
    questions: Option<&RemoteQuestions>,
    end: ReceivingEnd,
) -> (Summary, Option<Error>) {
    let receiving = Receiving {
        handler: &handler,
        streams,
        reply,
        questions,
        end,
        over: AtomicBool::new(false),
        broken: Mutex::new(None),
        deferred: DeferredFrames::default(),
    };
    receiving.take_all();
    let Receiving { broken, deferred, .. } = receiving;
    let mut broken = broken.into_inner().unwrap_or_else(PoisonError::into_inner);
    let tells_gone = handler.what().keeping;
    let mut next = |take: &mut dyn FnMut(Message<'_>) -> Result<()>| {
        next_frame(&deferred, streams, reply)?.map_or(Ok(()), |frame| take(frame.message()?))
    };
    let (summary, marks, taken) = handler.end(broken.is_some(), &mut next);
    if let Err(e) = taken {
        broken.get_or_insert(e);
    }
    let ended = end_with(&summary, broken.as_ref(), streams, reply, tells_gone);
    if matches!(end, ReceivingEnd::Client | ReceivingEnd::ClientLeaves)
        && let Some(first) = streams.first()
    {
        // The server ends with its last message: a round trip less than telling it afterwards. Only the first stream: the
        // end of another could arrive before what was sent here, and would look like a loss.
        first.close();
    }
    if ended == LastMessage::SendObserver {
        let cleared = if end == ReceivingEnd::ClientLeaves && broken.is_none() {
            // The client has all of it, and does not wait for the server's last message.
            marks.clear()
        } else {
            // What the sender has no acknowledgement of it takes for unfinished, and will ask for again by the same name.
            match drain_until_done(streams) {
                Ok(done) if done.first() == Some(&true) => marks.clear(),
                // What a client was sent is there and counted, whatever came behind it.
                Err(e) if end == ReceivingEnd::Server => Err(e),
                _ => Ok(()),
            }
        };
        if let Err(e) = cleared {
            broken.get_or_insert(e);
        }
    }
    (summary, broken)
}

/// What was done, as it is told.
pub(super) fn summary_message(s: &Summary) -> Message<'static> {
    let counts = [s.files, s.dirs, s.others, s.bytes, s.kept, s.failed, s.differences];
    let codes = s.codes.iter().map(|code| u64::from(code.number())).collect();
    Message::Summary { counts, codes, cancelled: s.cancelled }
}

/// The next frame of stream 0 after all was received, those that waited first. `None`: there was none for a while.
fn next_frame(deferred: &DeferredFrames, streams: &[Stream], reply: &Reply) -> Result<Option<FrameBuf>> {
    let none = || Error::ours(Code::Io, Op::Receive, "", Reason::NoStream);
    let first = streams.first().ok_or_else(none)?;
    let heard = match deferred.waiting() {
        Some(heard) => heard?,
        None => {
            let _waits = reply.pulse.waits_for(For::Frame);
            first.inbox.recv_timeout(LOOK)?
        }
    };
    match heard {
        Heard::Nothing => Ok(None),
        Heard::Frame(frame) => Ok(Some(frame)),
        Heard::Ended => Err(first.inbox.lost(Reason::PeerLeft)),
    }
}

/// How the last message of the receiver went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastMessage {
    /// The sender has been told and will acknowledge it.
    SendObserver,
    /// The sender had ended the transfer itself, or cannot be told any more.
    NoneFollows,
}

/// Sends the summary or the error; where the sender has ended the transfer, the acknowledgement of that.
fn end_with(
    summary: &Summary,
    broken: Option<&Error>,
    streams: &[Stream],
    reply: &Reply,
    tells_gone: bool,
) -> LastMessage {
    if streams.first().is_some_and(|first| first.state() == State::PeerEnded) {
        // Nothing depends on whether the sender reads it.
        let _sent = streams.iter().try_for_each(|stream| (reply_on(stream).out)(&Message::Done)).is_ok();
        return LastMessage::NoneFollows;
    }
    let sent = match broken {
        None => {
            let s = summary;
            if tells_gone {
                let (deleted, updated) = (s.deleted, s.updated);
                // One that is gone is told nothing, the summary neither.
                let _told = reply.send(&Message::Gone { deleted, updated }).is_ok();
            }
            reply.send(&summary_message(s))
        }
        Some(e) => reply.send(&Message::Error(TroubleBuf::of(e).trouble())),
    };
    if sent.is_ok() { LastMessage::SendObserver } else { LastMessage::NoneFollows }
}

/// One transfer while it arrives: what its threads share.
struct Receiving<'a, R: MessageHandler> {
    handler: &'a R,
    streams: &'a [Stream],
    reply: &'a Reply,
    /// Where the user of the client is asked.
    questions: Option<&'a RemoteQuestions>,
    end: ReceivingEnd,
    /// Every thread returns.
    over: AtomicBool,
    /// What went wrong first.
    broken: Mutex<Option<Error>>,
    /// Frames of stream 0 that wait while the user is asked.
    deferred: DeferredFrames,
}

impl<R: MessageHandler> Receiving<'_, R> {
    fn pulse(&self) -> &Pulse {
        &self.reply.pulse
    }

    fn watch(&self) -> Watch<'_> {
        self.handler.watch()
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Ends the transfer for all threads.
    fn fail(&self, e: Error) {
        // Once this side has stopped, what was under way fits nowhere any more: that is no breach.
        if !(self.watch().cancel.is_set() && e.code == Code::Protocol) {
            self.broken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
        }
        self.over.store(true, Ordering::Relaxed);
        self.handler.lose();
    }

    /// Receives on all streams: the first in this thread, each other one in a thread of its own, beside the thread that
    /// lands large files.
    fn take_all(&self) {
        if let Some(first) = self.streams.first() {
            self.streams.iter().for_each(|stream| stream.belongs_to(first, self.streams.len()));
        }
        for stream in self.streams.iter().skip(1) {
            stream.enter(State::ReceivesBeside);
        }
        std::thread::scope(|scope| {
            self.start(scope, || {
                if let Err(e) = self.handler.land_large() {
                    self.fail(e);
                }
            });
            for (index, stream) in self.streams.iter().enumerate().skip(1) {
                self.start(scope, move || self.take_beside(index, &stream.inbox));
            }
            match self.streams.first() {
                Some(first) => self.take_first(&self.first_frames(scope, &first.inbox)),
                None => self.fail(Error::ours(Code::Io, Op::Receive, "", Reason::NoStream)),
            }
        });
    }

    fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) {
        let work = move || {
            let _all = FailOnPanic(self);
            let _works = self.pulse().works();
            work();
        };
        if let Err(e) = Builder::new().spawn_scoped(scope, work) {
            self.fail(Error::os(Op::StartAThreadToReceive, "", e));
        }
    }

    /// Another stream than the first.
    fn take_beside(&self, index: usize, inbox: &Inbox) {
        let mut worker = self.handler.buffers();
        while !self.is_over() {
            match inbox.recv_timeout(LOOK) {
                Ok(Heard::Nothing) => {}
                Ok(Heard::Frame(frame)) => {
                    if let Err(e) = self.deliver(&mut worker, index, frame) {
                        return self.fail(e);
                    }
                }
                Ok(Heard::Ended) => return,
                Err(e) => return self.fail(e),
            }
        }
    }

    /// Where the frames of stream 0 come from: where the user may be asked, through a thread that receives the answers
    /// while this one waits for them.
    fn first_frames<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        inbox: &'scope Inbox,
    ) -> FirstFrames<'scope> {
        let Some(questions) = self.questions else { return FirstFrames::Direct(inbox) };
        self.start(scope, move || forward_answers(inbox, &self.deferred, questions, &self.over));
        FirstFrames::Deferred(&self.deferred, self.pulse())
    }

    /// The first stream, until the transfer is complete, cancelled or broken.
    fn take_first(&self, frames: &FirstFrames<'_>) {
        let cancelled = || self.watch().cancel.is_set();
        let mut worker = self.handler.buffers();
        let mut ticker = ProgressTicker::new(self.watch(), self.end);
        while !self.is_over() && !self.handler.is_complete() && !cancelled() {
            match frames.next() {
                Ok(Heard::Nothing) => {}
                Ok(Heard::Frame(frame)) => {
                    if let Err(e) = self.deliver(&mut worker, 0, frame) {
                        self.fail(e);
                    }
                }
                Ok(Heard::Ended) => {
                    self.streams
                        .iter()
                        .take(1)
                        .for_each(|first| self.fail(first.inbox.lost(Reason::PeerLeft)));
                }
                Err(e) => self.fail(e),
            }
            ticker.tick(self.watch(), self.reply, false);
        }
        if cancelled() {
            // A sender that receives it stops; one that is gone needs no message.
            let _sent = self.reply.send(&Message::Cancel).is_ok();
        }
        // First of all: a thread that waits for an answer holds what is to be given up.
        if let Some(questions) = self.questions {
            questions.end();
        }
        self.handler.leave(&mut worker);
        self.over.store(true, Ordering::Relaxed);
        ticker.tick(self.watch(), self.reply, true);
    }

    /// Hands one frame to the handler.
    fn deliver(
        &self,
        worker: &mut ReceiverBuffers<R::Buffers>,
        stream: usize,
        frame: FrameBuf,
    ) -> Result<()> {
        let (head, load) = match frame.message()? {
            Message::Data(piece) => unload(&mut worker.unpacker, &piece, frame.payload())?,
            Message::Patch(patch) => {
                let (head, load) = unload_patch(&mut worker.unpacker, &patch)?;
                (head, Ok(load))
            }
            Message::Error(trouble) => {
                let e = error_of(&trouble);
                return Err(Error { path: self.handler.what().shown(&e.path), ..e });
            }
            other => return self.handler.handle(worker, other),
        };
        let load = match load {
            Ok(load) => load,
            Err(start) => Load::Bytes { buffer: Box::new(Payload(frame)), start },
        };
        self.handler.piece(stream, &head, load)
    }
}

/// Ends the transfer for all threads if the thread that it stands in panics: what that one was to do is not waited for.
struct FailOnPanic<'r, 'a, R: MessageHandler>(&'r Receiving<'a, R>);

impl<R: MessageHandler> Drop for FailOnPanic<'_, '_, R> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(Error::ours(Code::Io, Op::Receive, "", Reason::ThreadStopped));
        }
    }
}

/// A frame's payload, for a piece that stays in it.
struct Payload(FrameBuf);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.0.payload()
    }
}

/// Frames of stream 0, in their order: straight from the stream, or through a thread that receives answers meanwhile.
enum FirstFrames<'s> {
    Direct(&'s Inbox),
    Deferred(&'s DeferredFrames, &'s Pulse),
}

impl FirstFrames<'_> {
    fn next(&self) -> Result<Heard> {
        match self {
            FirstFrames::Direct(inbox) => inbox.recv_timeout(LOOK),
            FirstFrames::Deferred(frames, pulse) => frames.take(pulse),
        }
    }
}

/// Items and bytes of content that are done.
fn done(watch: Watch<'_>) -> (u64, u64) {
    let (items_done, bytes_done) = (&watch.progress.items_done, &watch.progress.bytes_done);
    (items_done.load(Ordering::Relaxed), bytes_done.load(Ordering::Relaxed))
}

/// Tells the sender how far things have come, about every tenth of a second.
struct ProgressTicker {
    last: Instant,
    items: u64,
    bytes: u64,
}

impl ProgressTicker {
    /// A server counts for one transfer; a client may have had others before.
    fn new(watch: Watch<'_>, end: ReceivingEnd) -> ProgressTicker {
        let (items, bytes) = if end == ReceivingEnd::Server { (0, 0) } else { done(watch) };
        ProgressTicker { last: Instant::now(), items, bytes }
    }

    fn tick(&mut self, watch: Watch<'_>, reply: &Reply, now: bool) {
        if !now && self.last.elapsed() < LOOK {
            return;
        }
        self.last = Instant::now();
        let (items, bytes) = done(watch);
        if (items, bytes) != (self.items, self.bytes) {
            let (di, db) = (items.saturating_sub(self.items), bytes.saturating_sub(self.bytes));
            (self.items, self.bytes) = (items, bytes);
            // That a client is gone is noticed where its frames are received.
            let _sent = reply.send(&Message::Landed { items: di, bytes: db }).is_ok();
        }
    }
}
