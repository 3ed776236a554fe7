//! Every maximum of the wire in one place. Must not know what is sent, only how much.

/// Largest frame in bytes, type byte and payload together; a longer one is refused before anything is allocated.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Bytes before the payload: a 4-byte little-endian length and the type byte.
pub const HEADER_BYTES: usize = 5;

const _: () = assert!(FRAME_BYTES_MAX <= u32::MAX as usize);
