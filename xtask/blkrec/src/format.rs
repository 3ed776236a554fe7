//! The log of a recorder, as bytes. Both ends use this file; it knows neither FUSE nor what is made of a log.
//!
//! A log is a row of records, each a header and a payload, numbers little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind |
//! | 1 | 1 | disk |
//! | 2 | 2 | zero |
//! | 4 | 4 | length of the payload |
//! | 8 | 8 | offset on the disk |
//! | 16 | | payload: of a write its data, of a discard its length (8 bytes), of a mark its words |

/// Bytes of a header.
pub const HEADER: usize = 16;
/// Data sent to the disk; on the medium for certain only after the next flush.
pub const WRITE: u8 = 1;
/// Everything written to this disk before is on the medium.
pub const FLUSH: u8 = 2;
/// A range that reads as zeros from now on.
pub const DISCARD: u8 = 3;
/// A word from the driver; of no disk.
pub const MARK: u8 = 4;

/// The header of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`WRITE`], [`FLUSH`], [`DISCARD`] or [`MARK`].
    pub kind: u8,
    /// Which disk, from 0.
    pub disk: u8,
    /// Bytes of payload.
    pub len: u32,
    /// Where on the disk, in bytes.
    pub off: u64,
}

impl Header {
    /// As bytes.
    pub fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.kind;
        bytes[1] = self.disk;
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.off.to_le_bytes());
        bytes
    }

    /// From bytes; `None` when they are no header.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let [kind, disk, 0, 0, l0, l1, l2, l3, rest @ ..] = bytes.first_chunk::<HEADER>()? else {
            return None;
        };
        if !(WRITE..=MARK).contains(kind) {
            return None;
        }
        let len = u32::from_le_bytes([*l0, *l1, *l2, *l3]);
        Some(Header { kind: *kind, disk: *disk, len, off: u64::from_le_bytes(*rest) })
    }
}
