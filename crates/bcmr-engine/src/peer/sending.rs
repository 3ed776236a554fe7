//! The streams of a connection as the sender wants them: where it sends, and the frames of all streams in one queue.
//!
//! Must not know what is sent.

use crate::error::{Error, Op, Reason, Result};
use crate::event::Cancel;
use crate::policy::CopyPolicy;
use crate::sender::announce::ToSend;
use crate::sender::out::{Counted, Fed, Feed, FilePart, Out, SendObserver};
use crate::sender::push::push;
use crate::sender::sending::{How, Push};
use crate::transport::Peer;
use crate::transport::conn::{FrameBuf, Heard, Packet};
use crate::transport::stream::{Inbox, Outbox, Stream};
use bcmr_wire::message::kind;
use bcmr_wire::state::State;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How often flags are looked at while nothing comes.
const LOOK: Duration = Duration::from_millis(100);

/// A stream as the sender wants it.
struct StreamOut<'s>(&'s Outbox);

impl Out for StreamOut<'_> {
    fn send(&self, frames: Vec<u8>) -> Result<()> {
        self.0.send(Packet::Frames(frames)).map_err(Error::from)
    }
    fn send_first(&self, frames: Vec<u8>) -> Result<()> {
        self.0.send_first(frames).map_err(Error::from)
    }
    fn give_up(&self) {
        self.0.give_up();
    }
    fn send_file(&self, part: FilePart) -> Result<()> {
        let FilePart { head, file, at, bytes, fault } = part;
        self.0.send(Packet::File { head, file, at, bytes, fault }).map_err(Error::from)
    }
    fn then(&self, call: Box<dyn FnOnce() + Send>) -> Result<()> {
        let frames = move || {
            call();
            Vec::new()
        };
        self.0.send(Packet::Then(Box::new(frames))).map_err(Error::from)
    }
    fn room(&self, bytes: usize) -> Vec<u8> {
        self.0.room(bytes)
    }
}

/// The frames of several streams, merged into one queue.
struct MergedFrames<'s> {
    from: Receiver<Result<FrameBuf>>,
    over: &'s AtomicBool,
}

/// Reads all streams into one feed while `run` goes.
fn with_merged_frames<T>(streams: &[Stream], run: impl FnOnce(&mut MergedFrames<'_>) -> T) -> T {
    let over = AtomicBool::new(false);
    for stream in streams.iter().skip(1) {
        stream.enter(State::SendsBeside);
    }
    std::thread::scope(|scope| {
        let (give, from) = sync_channel(8);
        for stream in streams {
            if let Some(first) = streams.first() {
                stream.belongs_to(first, streams.len());
            }
            let (give, over, not_started) = (give.clone(), &over, give.clone());
            let inbox = &stream.inbox;
            let started =
                std::thread::Builder::new().spawn_scoped(scope, move || forward_frames(inbox, &give, over));
            if let Err(e) = started {
                // Nothing would be received from this stream. There is room: no thread has sent anything yet.
                let told = not_started.try_send(Err(Error::os(Op::StartAThreadToSend, "", e)));
                drop(told);
            }
        }
        drop(give);
        let mut feed = MergedFrames { from, over: &over };
        let out = run(&mut feed);
        over.store(true, Ordering::Relaxed);
        // Unblocks threads that wait for room.
        while feed.from.try_recv().is_ok() {}
        out
    })
}

/// Forwards frames of one stream into the queue until the transfer ends.
fn forward_frames(inbox: &Inbox, give: &SyncSender<Result<FrameBuf>>, over: &AtomicBool) {
    let pulse = inbox.pulse();
    let _works = pulse.works();
    while !over.load(Ordering::Relaxed) {
        let said = match inbox.recv_timeout(LOOK) {
            Ok(Heard::Nothing) => continue,
            Ok(Heard::Frame(frame)) => Ok(frame),
            Ok(Heard::Ended) => Err(inbox.lost(Reason::ClosedByPeer)),
            Err(e) => Err(e),
        };
        // What follows the last message of a transfer is a request, and not for us.
        let over = |frame: &FrameBuf| matches!(frame.kind(), kind::SUMMARY | kind::ERROR | kind::DONE);
        let last = !matches!(&said, Ok(frame) if !over(frame));
        if give.send(said).is_err() || last {
            return;
        }
    }
}

impl Feed for MergedFrames<'_> {
    fn next(&mut self, wait: Duration, take: &mut dyn FnMut(u8, &[u8])) -> Result<Fed> {
        match self.from.recv_timeout(wait) {
            Ok(Ok(frame)) => {
                take(frame.kind(), frame.payload());
                Ok(Fed::Frame)
            }
            Ok(Err(e)) => Err(e),
            Err(RecvTimeoutError::Timeout) => Ok(Fed::Nothing),
            Err(RecvTimeoutError::Disconnected) => {
                self.over.store(true, Ordering::Relaxed);
                Ok(Fed::Ended)
            }
        }
    }
}

/// Sends everything over all streams.
pub(crate) fn send_all(
    peer: &Peer,
    policy: &CopyPolicy,
    how: How,
    observer: &dyn SendObserver,
    cancel: &Cancel,
    what: ToSend<'_>,
) -> Result<Counted> {
    let boxes: Vec<Outbox> = peer.streams.iter().map(|s| s.out.clone()).collect();
    let outs: Vec<StreamOut<'_>> = boxes.iter().map(StreamOut).collect();
    let outs: Vec<&dyn Out> = outs.iter().map(|o| o as &dyn Out).collect();
    let pulse = peer.streams.first().map(Stream::pulse).unwrap_or_default();
    let sender = Push { policy, how, observer, cancel, pulse: &pulse, outs: &outs };
    with_merged_frames(&peer.streams, |feed| push(&sender, what, feed)).map_err(|e| match e.op {
        // The sender knows that the receiver broke the rules, and not what it is called.
        Op::TalkTo if e.path.as_os_str().is_empty() => Error { path: PathBuf::from(&peer.name), ..e },
        _ => e,
    })
}
