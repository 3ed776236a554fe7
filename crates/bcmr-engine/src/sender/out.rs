//! What sending needs of the streams and of the observer: defined here, made by a verb, so that the sender knows no
//! transport.
//!
//! Must not know what carries the bytes.

use crate::error::{Error, Result};
use crate::trouble::error_of;
use bcmr_wire::message::{Event, Trouble};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The outgoing half of one stream. Its queue is bounded: to send waits while it is full.
pub(crate) trait Out: Sync {
    /// Queues whole frames.
    ///
    /// # Errors
    /// Nothing more can be sent.
    fn send(&self, frames: Vec<u8>) -> Result<()>;

    /// Queues whole frames before all others, without waiting for room.
    ///
    /// # Errors
    /// Nothing more can be sent.
    fn send_first(&self, frames: Vec<u8>) -> Result<()>;

    /// Nothing more is sent, and threads that wait for room return.
    fn give_up(&self);

    /// Queues the beginning of a frame and, behind it, a part of a file that is read only when its turn comes.
    ///
    /// # Errors
    /// Nothing more can be sent.
    fn send_file(&self, part: FilePart) -> Result<()>;

    /// Queues something to be called once all before it was written; when that never happens, it is dropped.
    ///
    /// # Errors
    /// Nothing more can be sent.
    fn then(&self, call: Box<dyn FnOnce() + Send>) -> Result<()>;

    /// An empty buffer for a frame of so many bytes of content, one that was sent before where one suits.
    fn room(&self, bytes: usize) -> Vec<u8>;
}

/// The end of a frame that is still in a file.
pub(crate) struct FilePart {
    /// The frame's header and what comes before the content; the length in it counts the content.
    pub(crate) head: Vec<u8>,
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// Why the content could not be read; the frame was then filled up with zeros.
    pub(crate) fault: Arc<OnceLock<io::Error>>,
}

/// What came of waiting for a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    /// One was taken.
    Frame,
    /// None within the time.
    Nothing,
    /// The other side ended the stream in an orderly way.
    Ended,
}

/// The frames that come in, of all streams.
pub(crate) trait Feed: Send {
    /// Waits for a frame and gives `take` its type and its payload.
    ///
    /// # Errors
    /// The connection was lost.
    fn next(&mut self, wait: Duration, take: &mut dyn FnMut(u8, &[u8])) -> Result<Fed>;
}

/// Observes a transfer for the user. What the other side reports too (a file whose content could not be read) does not come
/// here as well.
pub(crate) trait SendObserver: Sync {
    /// An item could not be sent; the others go on. The other side counts it.
    fn failed(&self, error: &Error);
    /// A filter left something out.
    fn excluded(&self, path: &dyn Fn() -> std::path::PathBuf);
    /// A file is read to be sent.
    fn sends(&self, _path: &dyn Fn() -> std::path::PathBuf) {}
    /// Met so far in all: a lower bound until `last`.
    fn found(&self, items: u64, bytes: u64, last: bool);
    /// Done at the other side since the last call.
    fn landed(&self, items: u64, bytes: u64);
    /// So many of the bytes that are done, or will be told as done, were there before: sending them took no time.
    fn there(&self, _bytes: u64) {}
    /// What the other side says of a whole request, its path as it is shown here.
    fn peer_error(&self, trouble: &Trouble<'_>) -> Error {
        error_of(trouble)
    }
    /// A move has taken something away.
    fn took(&self, _path: &dyn Fn() -> std::path::PathBuf) {}
    /// A move is to be gone through once more: not all that landed was remembered there.
    fn once_more(&self) {}
    /// Something worth telling, in the other side's words.
    fn report(&self, event: &Event<'_>);
    /// Whether the other side shall replace this; called by one thread at a time.
    fn ask(&self, path: &Path) -> bool;
}

/// What the receiver counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Files, directories, others, bytes, kept, failed, differences.
    pub(crate) counts: [u64; 7],
    /// Error codes, each once.
    pub(crate) codes: Vec<u64>,
    /// It stopped early.
    pub(crate) cancelled: bool,
    /// Entries that were deleted, and those whose attributes alone were brought up to date, as far as it told.
    pub(crate) gone: (u64, u64),
}
