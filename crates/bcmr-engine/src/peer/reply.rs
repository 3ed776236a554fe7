//! Where the side that receives answers the sender: stream 0.
//!
//! Must not know what is answered to.

use crate::chunks::ChunkSum;
use crate::error::{Code, Error, Op, Result};
use crate::pulse::Pulse;
use crate::receiver::arriving::SenderRequests;
use bcmr_wire::message::{Message, Sum, resume};
use std::io;
use std::sync::Arc;

/// Sends one message.
type Say = dyn Fn(&Message<'_>) -> io::Result<()> + Send + Sync;

/// Where answers go: stream 0, to the sender.
pub(crate) struct Reply {
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) out: Box<Say>,
    /// Whether the other side has left, wants to stop, or is given up.
    pub(crate) has_ended: Box<dyn Fn() -> bool + Send + Sync>,
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
    fn resume(&self, file: u64, from: u64, hashes: bool, patches: bool) -> io::Result<()> {
        let without = if hashes { 0 } else { resume::WITHOUT_HASHES };
        let flags = without | if patches { resume::PATCHES } else { 0 };
        self.send(&Message::Resume { file, wanted: true, from, flags })
    }
    fn reread(&self, file: u64, at: u64, bytes: u64) -> io::Result<()> {
        self.send(&Message::Reread { file, at, bytes })
    }
    fn compute(&self, file: u64, first: u64, count: u64) -> io::Result<()> {
        self.send(&Message::Compute { file, first, count })
    }
    fn sums(&self, file: u64, at: u64, chunks: &[ChunkSum]) -> io::Result<()> {
        self.send(&Message::Sums { file, at, chunks: sums_of(chunks) })
    }
}

/// Chunks as they are told of.
pub(crate) fn sums_of(chunks: &[ChunkSum]) -> Vec<Sum> {
    chunks.iter().map(|chunk| Sum { bytes: chunk.bytes, sum: chunk.sum }).collect()
}

/// An answer that could not be sent, as an error of the transfer.
pub(crate) fn not_sent(e: io::Error) -> Error {
    Error { code: Code::Lost, ..Error::os(Op::SendToTheOtherSide, "", e) }
}
