//! What one stream is at, kept up to date by every message that goes over it in either direction: what may arrive is
//! asked of the table in [`crate::state`], and a message that may not is a breach.
//!
//! Must not know what a message holds beyond its type, nor what carries it.

use crate::message::kind;
use crate::state::{Answer, State};
use std::collections::VecDeque;

/// A message that may not come now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Its type byte.
    pub kind: u8,
    /// What the stream was at.
    pub state: State,
}

/// One side's view of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialogue {
    state: State,
    /// What it is at between requests.
    rest: State,
    /// Answers that are waited for after the one that is next.
    asked: VecDeque<Answer>,
}

impl Dialogue {
    /// A client about to greet.
    #[must_use]
    pub fn client() -> Dialogue {
        Dialogue { state: State::ClientNew, rest: State::ClientIdle, asked: VecDeque::new() }
    }

    /// A server that has not been greeted.
    #[must_use]
    pub fn server() -> Dialogue {
        Dialogue { state: State::ServerNew, rest: State::ServerIdle, asked: VecDeque::new() }
    }

    /// A stream that needs no greeting of its own: it is at `rest`, one of [`State::ServerIdle`], [`State::ClientIdle`]
    /// and [`State::Quiet`], and comes back to it after each transfer.
    #[must_use]
    pub fn resting(rest: State) -> Dialogue {
        Dialogue { state: rest, rest, asked: VecDeque::new() }
    }

    /// What the stream is at.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// A further stream becomes part of a transfer that was asked for on another one.
    pub fn enter(&mut self, state: State) {
        self.state = state;
    }

    /// From now on it is at `rest` between transfers.
    pub fn settle(&mut self, rest: State) {
        (self.state, self.rest) = (rest, rest);
    }

    /// A message of type `kind` has arrived.
    ///
    /// # Errors
    /// It may not arrive now: nothing of it is to be looked at, and the connection ends.
    pub fn arrives(&mut self, kind: u8) -> Result<(), Breach> {
        let state = self.state;
        if !state.allows(kind) {
            return Err(Breach { kind, state });
        }
        self.state = match (state, kind) {
            (_, kind::PING | kind::PONG) => state,
            (State::ServerNew, _) => State::ServerGreeted,
            (State::ServerGreeted | State::ServerIdle, kind::PUT) => State::Receives,
            (State::ServerGreeted | State::ServerIdle, kind::GET) => State::Sends,
            (State::ServerGreeted, _) => State::ServerIdle,
            (State::Waits(Answer::Pages), kind::PAGE)
            | (State::Waits(Answer::Undone), kind::REPORT | kind::GONE) => state,
            (State::ClientNew | State::Waits(_), _) => self.asked.pop_front().map_or(self.rest, State::Waits),
            (State::Sends, kind::SUMMARY | kind::ERROR) | (State::Receives, kind::ERROR) => State::PeerEnded,
            (State::SendsBeside | State::ReceivesBeside, kind::DONE) => self.rest,
            (State::SendEnded | State::ReceiveEnded, kind::DONE) => self.rest,
            _ => state,
        };
        Ok(())
    }

    /// A message of type `kind` is about to be sent.
    pub fn leaves(&mut self, kind: u8) {
        if let Some(answer) = answer_to(kind) {
            match self.state {
                State::ClientIdle => self.state = State::Waits(answer),
                // Requests may follow the greeting, and each other, before anything is answered.
                State::ClientNew | State::Waits(_) => self.asked.push_back(answer),
                _ => {}
            }
            return;
        }
        self.state = match (self.state, kind) {
            (State::ClientIdle, kind::PUT) => State::Sends,
            (State::ClientIdle, kind::GET) => State::Receives,
            (State::Sends, kind::ERROR) => State::SendEnded,
            (State::Receives, kind::SUMMARY | kind::ERROR) => State::ReceiveEnded,
            (State::PeerEnded | State::SendsBeside | State::ReceivesBeside, kind::DONE) => self.rest,
            (state, _) => state,
        };
    }
}

/// What a request that is no transfer is answered with; `None` for every other message.
fn answer_to(kind: u8) -> Option<Answer> {
    Some(match kind {
        kind::STAT | kind::TREE => Answer::Info,
        kind::LIST => Answer::Pages,
        kind::HASH | kind::MKDIR | kind::JOIN => Answer::Ok,
        kind::USAGE | kind::REMOVE => Answer::Used,
        kind::UNDO => Answer::Undone,
        kind::STREAMS => Answer::Token,
        kind::DIRECT => Answer::Rendezvous,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One side of a stream with what goes over it: `<` arrives and is allowed, `!` arrives and is not, `>` leaves; behind
    /// each, what the stream is at then.
    fn played(mut one: Dialogue, steps: &[(char, u8, State)]) -> Dialogue {
        for (n, (way, kind, then)) in steps.iter().enumerate() {
            match way {
                '<' => assert_eq!(one.arrives(*kind), Ok(()), "step {n}"),
                '!' => assert_eq!(one.arrives(*kind), Err(Breach { kind: *kind, state: *then }), "step {n}"),
                _ => one.leaves(*kind),
            }
            assert_eq!(one.state(), *then, "step {n}: {way} {kind:#04x}");
        }
        one
    }

    use State::*;

    #[test]
    fn requests_are_answered_in_their_order() {
        let steps = [
            ('>', kind::HELLO, ClientNew),
            ('>', kind::STAT, ClientNew),
            ('>', kind::LIST, ClientNew),
            ('!', kind::INFO, ClientNew),
            ('<', kind::WELCOME, Waits(Answer::Info)),
            ('!', kind::PAGE, Waits(Answer::Info)),
            ('<', kind::ERROR, Waits(Answer::Pages)),
            ('<', kind::PAGE, Waits(Answer::Pages)),
            ('<', kind::PING, Waits(Answer::Pages)),
            ('>', kind::USAGE, Waits(Answer::Pages)),
            ('<', kind::DONE, Waits(Answer::Used)),
            ('<', kind::USED, ClientIdle),
            ('!', kind::USED, ClientIdle),
            ('>', kind::JOIN, Waits(Answer::Ok)),
            ('<', kind::OK, ClientIdle),
        ];
        played(Dialogue::client(), &steps);
        let steps = [
            ('!', kind::STAT, ServerNew),
            ('<', kind::HELLO, ServerGreeted),
            ('>', kind::WELCOME, ServerGreeted),
            ('<', kind::PING, ServerGreeted),
            ('!', kind::HELLO, ServerGreeted),
            ('<', kind::STAT, ServerIdle),
            ('>', kind::INFO, ServerIdle),
            ('<', kind::HASH, ServerIdle),
            ('>', kind::ERROR, ServerIdle),
            ('!', kind::JOIN, ServerIdle),
        ];
        played(Dialogue::server(), &steps);
    }

    #[test]
    fn a_put_from_both_sides() {
        let client = [
            ('>', kind::PUT, Sends),
            ('>', kind::OPERAND, Sends),
            ('<', kind::DIR_IS, Sends),
            ('!', kind::OPERAND, Sends),
            ('>', kind::ALL_SENT, Sends),
            ('<', kind::SUMMARY, PeerEnded),
            ('!', kind::LANDED, PeerEnded),
            ('>', kind::DONE, ClientIdle),
            ('>', kind::GET, Receives),
        ];
        played(Dialogue::resting(ClientIdle), &client);
        let server = [
            ('<', kind::PUT, Receives),
            ('!', kind::PUT, Receives),
            ('<', kind::OPERAND, Receives),
            ('>', kind::DIR_IS, Receives),
            ('<', kind::ALL_SENT, Receives),
            ('>', kind::SUMMARY, ReceiveEnded),
            ('<', kind::CANCEL, ReceiveEnded),
            ('<', kind::DONE, ServerIdle),
            ('!', kind::DONE, ServerIdle),
        ];
        played(Dialogue::resting(ServerIdle), &server);
        let further = |state| {
            let mut one = Dialogue::resting(Quiet);
            assert!(one.arrives(kind::DATA).is_err());
            one.enter(state);
            one
        };
        played(further(ReceivesBeside), &[('<', kind::DATA, ReceivesBeside), ('<', kind::DONE, Quiet)]);
        played(further(SendsBeside), &[('!', kind::DATA, SendsBeside), ('>', kind::DONE, Quiet)]);
    }

    /// By whichever side it ends: what was under way is dropped up to `Done`, and the next request is heard.
    #[test]
    fn a_transfer_that_fails() {
        let refused_put = [
            ('<', kind::PUT, Receives),
            ('>', kind::ERROR, ReceiveEnded),
            ('<', kind::FILES, ReceiveEnded),
            ('!', kind::STAT, ReceiveEnded),
            ('<', kind::DONE, ServerIdle),
            ('<', kind::STAT, ServerIdle),
        ];
        played(Dialogue::resting(ServerIdle), &refused_put);
        let refused_get = [
            ('<', kind::GET, Sends),
            ('>', kind::ERROR, SendEnded),
            ('<', kind::WANTS, SendEnded),
            ('<', kind::SUMMARY, SendEnded),
            ('>', kind::DONE, SendEnded),
            ('<', kind::DONE, ServerIdle),
        ];
        played(Dialogue::resting(ServerIdle), &refused_get);
        let told = [
            ('>', kind::GET, Receives),
            ('<', kind::ERROR, PeerEnded),
            ('!', kind::FILES, PeerEnded),
            ('>', kind::DONE, ClientIdle),
        ];
        played(Dialogue::resting(ClientIdle), &told);
    }
}
