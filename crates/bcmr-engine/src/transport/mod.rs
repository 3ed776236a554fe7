//! Carrying frames between two processes: streams, and how one gets to the other machine.
//!
//! Must not know what is copied, nor what any message but the handshake's and the keepalive's means. Only verbs know it.

pub(crate) mod conn;
pub(crate) mod fds;
#[cfg(test)]
pub(crate) mod memory;

use conn::Stream;

/// The other side, with all its streams. Stream 0 carries control.
pub(crate) struct Peer {
    /// At least one.
    pub(crate) streams: Vec<Stream>,
    /// Who it is, for people.
    pub(crate) name: String,
}
