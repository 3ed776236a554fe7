//! Frames: found in bytes however they were cut, and written around a payload. Must not know what a type byte means.

use crate::limits::{FRAME_BYTES_MAX, HEADER_BYTES};

/// One frame, borrowed from the bytes it was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The type byte.
    pub kind: u8,
    /// Everything after it.
    pub payload: &'a [u8],
}

/// Why bytes are no frame. There is no way on from either: the stream has lost its footing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The length, announced or about to be, exceeds [`FRAME_BYTES_MAX`].
    TooLong(u32),
    /// The length leaves no room for a type byte; when finishing, no frame was begun at the mark.
    Empty,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::TooLong(length) => write!(f, "a frame of {length} bytes"),
            Broken::Empty => f.write_str("a frame without a type"),
        }
    }
}

impl std::error::Error for Broken {}

/// Looks for one frame at the start of `bytes`: `Ok(None)` when more bytes are needed, else the frame and how many
/// bytes it took. Nothing is allocated, so a length cannot make us ask for memory.
pub fn decode(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Broken> {
    let Some((header, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*header);
    if length == 0 {
        return Err(Broken::Empty);
    }
    if length as usize > FRAME_BYTES_MAX {
        return Err(Broken::TooLong(length));
    }
    let Some(body) = rest.get(..length as usize) else { return Ok(None) };
    let Some((kind, payload)) = body.split_first() else { return Ok(None) };
    Ok(Some((Frame { kind: *kind, payload }, HEADER_BYTES - 1 + body.len())))
}

/// Appends one frame to `out`.
pub fn encode(kind: u8, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
    let mark = begin(out, kind);
    out.extend_from_slice(payload);
    finish(out, mark)
}

/// Begins a frame in `out`, whose payload the caller appends, and returns the mark that [`finish`] wants.
#[must_use]
pub fn begin(out: &mut Vec<u8>, kind: u8) -> usize {
    let mark = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind]);
    mark
}

/// Writes the length of the frame begun at `mark`, which ends where `out` ends. A frame that would be too long is taken
/// out again.
pub fn finish(out: &mut Vec<u8>, mark: usize) -> Result<(), Broken> {
    finish_with(out, mark, 0)
}

/// As [`finish`], for a frame that goes on with `extra` bytes from elsewhere: the caller owes the wire exactly so many
/// behind `out`, and puts no other frame between.
pub fn finish_with(out: &mut Vec<u8>, mark: usize, extra: u64) -> Result<(), Broken> {
    let body = mark.checked_add(HEADER_BYTES - 1).filter(|body| *body < out.len());
    let Some(body) = body else { return Err(Broken::Empty) };
    let length = ((out.len() - body) as u64).saturating_add(extra);
    if length > FRAME_BYTES_MAX as u64 {
        out.truncate(mark);
        return Err(Broken::TooLong(u32::try_from(length).unwrap_or(u32::MAX)));
    }
    if let Some(header) = out.get_mut(mark..body) {
        header.copy_from_slice(&(length as u32).to_le_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_at_every_cut() {
        let mut bytes = Vec::new();
        encode(7, b"abc", &mut bytes).unwrap();
        encode(9, b"", &mut bytes).unwrap();
        for cut in 0..8 {
            assert_eq!(decode(&bytes[..cut]), Ok(None), "cut at {cut}");
        }
        let (first, used) = decode(&bytes).unwrap().unwrap();
        assert_eq!((first.kind, first.payload, used), (7, &b"abc"[..], 8));
        let (second, used) = decode(&bytes[8..]).unwrap().unwrap();
        assert_eq!((second.kind, second.payload, used), (9, &b""[..], 5));
    }

    #[test]
    fn a_frame_may_be_filled_after_it_was_begun() {
        let mut out = b"before".to_vec();
        let mark = begin(&mut out, 7);
        out.extend_from_slice(b"abc");
        finish(&mut out, mark).unwrap();
        assert_eq!(&out[6..], b"\x04\0\0\0\x07abc");
        let mark = begin(&mut out, 8);
        finish_with(&mut out, mark, 258).unwrap();
        assert_eq!(&out[14..], b"\x03\x01\0\0\x08", "the bytes that follow from elsewhere count");
    }

    #[test]
    fn a_frame_too_long_leaves_nothing_behind() {
        let mut out = b"before".to_vec();
        let mark = begin(&mut out, 7);
        assert_eq!(finish_with(&mut out, mark, FRAME_BYTES_MAX as u64), Err(Broken::TooLong(0x0100_0001)));
        assert_eq!(out, b"before");
        let mark = begin(&mut out, 7);
        assert_eq!(finish_with(&mut out, mark, u64::MAX), Err(Broken::TooLong(u32::MAX)));
        let mark = begin(&mut out, 7);
        assert_eq!(finish_with(&mut out, mark, FRAME_BYTES_MAX as u64 - 1), Ok(()));
        assert_eq!(finish(&mut Vec::new(), 0), Err(Broken::Empty));
        assert_eq!(finish(&mut out, usize::MAX), Err(Broken::Empty));
        assert_eq!(finish(&mut vec![0; 4], 0), Err(Broken::Empty), "room for a length is no frame");
    }

    #[test]
    fn a_length_out_of_bounds_is_refused_from_the_header_alone() {
        assert_eq!(decode(&[0, 0, 0, 0]), Err(Broken::Empty));
        assert_eq!(decode(&[1, 0, 0, 1]), Err(Broken::TooLong(0x0100_0001)));
        assert_eq!(decode(&(FRAME_BYTES_MAX as u32).to_le_bytes()), Ok(None));
    }
}
