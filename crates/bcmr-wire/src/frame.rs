//! Incremental decoder of frames: bytes in, frames out. Must not know what a type byte means.

use crate::limits::{FRAME_BYTES_MAX, HEADER_BYTES};

/// One frame, borrowed from the bytes it was found in.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The type byte.
    pub kind: u8,
    /// Everything after it.
    pub payload: &'a [u8],
}

/// Why bytes are no frame. There is no way on from either: the stream has lost its footing.
#[derive(Debug, PartialEq, Eq)]
pub enum Broken {
    /// The announced length exceeds [`FRAME_BYTES_MAX`].
    TooLong(u32),
    /// The announced length leaves no room for a type byte.
    Empty,
}

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
    let length = payload.len().saturating_add(1);
    if length > FRAME_BYTES_MAX {
        return Err(Broken::TooLong(u32::try_from(length).unwrap_or(u32::MAX)));
    }
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.push(kind);
    out.extend_from_slice(payload);
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
    fn a_length_out_of_bounds_is_refused_from_the_header_alone() {
        assert_eq!(decode(&[0, 0, 0, 0]), Err(Broken::Empty));
        assert_eq!(decode(&[1, 0, 0, 1]), Err(Broken::TooLong(0x0100_0001)));
        assert_eq!(decode(&(FRAME_BYTES_MAX as u32).to_le_bytes()), Ok(None));
    }
}
