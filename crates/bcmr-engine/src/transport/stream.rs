//! A stream as verbs see it: every frame that comes or goes passes the protocol's state machine here, and one that has no
//! place ends with an error before anything in it is decoded.
//!
//! Must not know what a message holds, nor what carries it.

use super::conn::{self, FrameBuf, Gone, Heard, Packet, Timeouts};
use crate::error::{Code, Error, Note, Op, Reason};
use crate::pulse::Pulse;
use bcmr_wire::dialogue::{Breach, Dialogue};
use bcmr_wire::frame;
use bcmr_wire::message::kind;
use bcmr_wire::state::{self, Answer, State};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

fn lock(dialogue: &Mutex<Dialogue>) -> MutexGuard<'_, Dialogue> {
    // Whole after each step, whatever panicked.
    dialogue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream with the protocol's state of it. Dropped without [`Stream::finish`], it is aborted.
pub(crate) struct Stream {
    /// Where packets are put.
    pub(crate) out: Outbox,
    /// Where frames come out.
    pub(crate) inbox: Inbox,
    raw: conn::RawStream,
}

impl Stream {
    /// What says whether nothing more will come, or the other side wants to stop, for a thread that receives nothing.
    pub(crate) fn ending(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let raw = self.inbox.raw.clone();
        move || raw.has_ended() || raw.holds(kind::CANCEL)
    }

    /// `dialogue` is what has been said over it so far.
    pub(super) fn over(raw: conn::RawStream, dialogue: Dialogue) -> Stream {
        let dialogue = Arc::new(Mutex::new(dialogue));
        let out = Outbox { raw: raw.out.clone(), dialogue: Arc::clone(&dialogue) };
        Stream { out, inbox: Inbox { raw: raw.inbox.clone(), dialogue }, raw }
    }

    /// What the stream is at.
    pub(crate) fn state(&self) -> State {
        lock(&self.inbox.dialogue).state()
    }

    /// Another stream than the first becomes part of a transfer.
    pub(crate) fn enter(&self, state: State) {
        lock(&self.inbox.dialogue).enter(state);
    }

    /// From now on it is at `rest` between transfers.
    pub(crate) fn settle(&self, rest: State) {
        lock(&self.inbox.dialogue).settle(rest);
    }

    /// A request of this `kind` went with the greeting.
    pub(super) fn was_asked(&self, kind: u8) {
        lock(&self.inbox.dialogue).leaves(kind);
    }

    /// As [`conn::RawStream::pulse`].
    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        self.raw.pulse()
    }

    /// As [`conn::RawStream::belongs_to`].
    pub(crate) fn belongs_to(&self, first: &Stream, streams: usize) {
        self.raw.belongs_to(&first.raw, streams);
    }

    /// As [`conn::RawStream::set_timeouts`].
    pub(crate) fn set_timeouts(&self, timeouts: Timeouts) {
        self.raw.set_timeouts(timeouts);
    }

    /// As [`conn::RawStream::close`].
    pub(crate) fn close(&self) {
        self.raw.close();
    }

    /// As [`conn::RawStream::other_goes_on`].
    pub(super) fn other_goes_on(&self, until: Instant) -> bool {
        self.raw.other_goes_on(until)
    }

    /// As [`conn::RawStream::finish`].
    ///
    /// # Errors
    /// Something was not written, or the other side did not end in an orderly way.
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.raw.finish()
    }
}

/// Where packets are put for the writer thread.
#[derive(Clone)]
pub(crate) struct Outbox {
    raw: conn::RawOutbox,
    dialogue: Arc<Mutex<Dialogue>>,
}

impl Outbox {
    /// As [`conn::RawOutbox::send`].
    ///
    /// # Errors
    /// When nothing more can be sent.
    pub(crate) fn send(&self, packet: Packet) -> Result<(), Gone> {
        // Before it goes: the answer may come at once. What is made or read when its turn comes is content.
        if let Packet::Frames(frames) = &packet {
            self.notes(frames);
        }
        self.raw.send(packet)
    }

    /// As [`conn::RawOutbox::send_first`].
    ///
    /// # Errors
    /// When nothing more can be sent.
    pub(crate) fn send_first(&self, frames: Vec<u8>) -> Result<(), Gone> {
        self.notes(&frames);
        self.raw.send_first(frames)
    }

    fn notes(&self, mut frames: &[u8]) {
        let mut dialogue = lock(&self.dialogue);
        while let Ok(Some((frame, bytes))) = frame::decode(frames) {
            dialogue.leaves(frame.kind);
            frames = frames.get(bytes..).unwrap_or_default();
        }
    }

    /// As [`conn::RawOutbox::give_up`].
    pub(crate) fn give_up(&self) {
        self.raw.give_up();
    }

    /// As [`conn::RawOutbox::room`].
    pub(crate) fn room(&self, bytes: usize) -> Vec<u8> {
        self.raw.room(bytes)
    }
}

/// Where frames come out.
pub(crate) struct Inbox {
    raw: conn::RawInbox,
    dialogue: Arc<Mutex<Dialogue>>,
}

impl Inbox {
    /// The next frame; `None` once the other side has ended its byte stream in an orderly way. What came before an
    /// error comes out before it.
    ///
    /// # Errors
    /// The connection was lost, what came is no frame, or it has no place now ([`Code::Protocol`]).
    pub(crate) fn recv(&self) -> Result<Option<FrameBuf>, Error> {
        self.raw.recv()?.map(|frame| self.lawful(frame)).transpose()
    }

    /// Like [`Inbox::recv`], for at most `time`; zero takes what is there.
    ///
    /// # Errors
    /// As [`Inbox::recv`].
    pub(crate) fn recv_timeout(&self, time: Duration) -> Result<Heard, Error> {
        match self.raw.recv_timeout(time)? {
            Heard::Frame(frame) => self.lawful(frame).map(Heard::Frame),
            other => Ok(other),
        }
    }

    /// [frame.state]
    fn lawful(&self, frame: FrameBuf) -> Result<FrameBuf, Error> {
        match lock(&self.dialogue).arrives(frame.kind()) {
            Ok(()) => Ok(frame),
            Err(breach) => {
                Err(Error::ours(Code::Protocol, Op::TalkTo, self.raw.name(), out_of_place(breach)))
            }
        }
    }

    /// The other side is gone, whose name this knows.
    pub(crate) fn lost(&self, why: Reason) -> Error {
        Error::ours(Code::Lost, Op::TalkTo, self.raw.name(), why)
    }

    /// As [`conn::RawInbox::pulse`].
    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        self.raw.pulse()
    }

    /// As [`conn::RawInbox::waits`].
    pub(crate) fn waits(&self, time: Duration) -> bool {
        self.raw.waits(time)
    }

    /// As [`conn::RawInbox::is_corrupt`].
    pub(crate) fn is_corrupt(&self) -> bool {
        self.raw.is_corrupt()
    }

    /// As [`conn::RawInbox::has_heard`].
    pub(crate) fn has_heard(&self) -> bool {
        self.raw.has_heard()
    }

    /// As [`conn::RawInbox::has_ended`].
    pub(crate) fn has_ended(&self) -> bool {
        self.raw.has_ended()
    }

    /// As [`conn::RawInbox::has_input`].
    pub(crate) fn has_input(&self) -> bool {
        self.raw.has_input()
    }
}

/// Which message came, and what the stream was at.
pub(super) fn out_of_place(breach: Breach) -> Note {
    let Breach { kind, state } = breach;
    let message = match state::name(kind) {
        Some(name) => format!("{name} ({kind:#04x})"),
        None => format!("{kind:#04x}"),
    };
    let at = match state {
        State::ServerNew => Reason::AwaitsGreeting,
        State::ServerGreeted => Reason::AwaitsFirstRequest,
        State::ClientNew => Reason::AwaitsWelcome,
        State::ServerIdle => Reason::AwaitsRequest,
        State::ClientIdle => Reason::WithoutRequest,
        State::Waits(Answer::Info) => Reason::AwaitsInfo,
        State::Waits(Answer::Pages) => Reason::AwaitsPages,
        State::Waits(Answer::Ok) => Reason::AwaitsOk,
        State::Waits(Answer::Used) => Reason::AwaitsUsed,
        State::Waits(Answer::Undone) => Reason::AwaitsUndone,
        State::Waits(Answer::Token) => Reason::AwaitsToken,
        State::Waits(Answer::Rendezvous) => Reason::AwaitsRendezvous,
        State::Sends => Reason::Sending,
        State::Receives => Reason::Receiving,
        State::SendsBeside => Reason::SendingBeside,
        State::ReceivesBeside => Reason::ReceivingBeside,
        State::SendEnded => Reason::SenderHasEnded,
        State::ReceiveEnded => Reason::ReceiverHasEnded,
        State::PeerEnded => Reason::PeerHasEnded,
        State::Quiet => Reason::WithoutTransfer,
    };
    Reason::OutOfPlace.about(message).about(at)
}
