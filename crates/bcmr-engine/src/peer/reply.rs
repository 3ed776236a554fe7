//! Where the side that receives answers the sender: stream 0.
//!
//! Must not know what is answered to.

use crate::error::{Code, Error, Op, Result};
use crate::pulse::Pulse;
use crate::receiver::arriving::SenderRequests;
use bcmr_wire::message::Message;
use std::io;
use std::sync::Arc;

/// Sends one message.
type Say = dyn Fn(&Message<'_>) -> io::Result<()> + Send + Sync;

/// Where answers go: stream 0, to the sender.
pub(crate) struct Reply {
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) out: Box<Say>,
}

impl Reply {
    /// Sends one message.
    pub(crate) fn send(&self, message: &Message<'_>) -> io::Result<()> {
        (self.out)(message)
    }

    /// The same; an answer that cannot be sent ends the transfer.
    pub(crate) fn answer(&self, message: &Message<'_>) -> Result<()> {
        self.send(message).map_err(not_sent)
    }
}

impl SenderRequests for Reply {
    fn resume(&self, file: u64, from: u64, hashes: bool) -> io::Result<()> {
        self.send(&Message::Resume { file, wanted: true, from, flags: u8::from(!hashes) })
    }
    fn reread(&self, file: u64, at: u64, bytes: u64) -> io::Result<()> {
        self.send(&Message::Reread { file, at, bytes })
    }
    fn compute(&self, file: u64, first: u64, count: u64) -> io::Result<()> {
        self.send(&Message::Compute { file, first, count })
    }
}

/// An answer that could not be sent, as an error of the transfer.
pub(crate) fn not_sent(e: io::Error) -> Error {
    Error { code: Code::Lost, ..Error::os(Op::SendToTheOtherSide, "", e) }
}
