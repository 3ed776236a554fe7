//! Copying with a hash on the way, and reading back what landed.
//!
//! Must not know why somebody wants the hash. The bytes are read once; holes are hashed as the zeros they stand for,
//! so the hash is `b3sum`'s.

use super::{Fault, Fill, Side};
use crate::error::Code;
use crate::policy::{Sparse, Verify};
use fastcopy::copy::{self, Dest, Source};
use fastcopy::read_write::{read_full, write_full, write_stream};
use fastcopy::sparse::{Extents, is_zero};
use fastcopy::{Scratch, meta};
use std::io;
use std::os::fd::OwnedFd;

/// From this size on a chunk is hashed on several cores.
const RAYON_BYTES: usize = 128 << 10;

/// What was copied.
pub(super) struct Teed {
    pub(super) bytes: u64,
    pub(super) hash: blake3::Hash,
}

/// A failure of the ladder as a fault.
pub(super) fn fault(failure: copy::Failure) -> Fault {
    let (side, op) = match failure.side {
        copy::Side::Cancelled => return cancelled(),
        copy::Side::Read => (Side::Source, "read"),
        copy::Side::Write => (Side::Dest, "write"),
        copy::Side::Copy => (Side::Dest, "copy to"),
        copy::Side::Clone => (Side::Dest, "clone to"),
    };
    Fault::os(side, op, failure.source)
}

fn cancelled() -> Fault {
    Fault::ours(Side::Dest, "copy", Code::Interrupted, "interrupted")
}

fn update(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    if bytes.len() >= RAYON_BYTES {
        hasher.update_rayon(bytes);
    } else {
        hasher.update(bytes);
    }
}

fn update_zeros(hasher: &mut blake3::Hasher, mut bytes: u64) {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    while bytes > 0 {
        let n = bytes.min(ZEROS.len() as u64) as usize;
        hasher.update(ZEROS.get(..n).unwrap_or_default());
        bytes -= n as u64;
    }
}

/// Copies all of `from` to `to` and hashes it. `stream`: bytes go one after the other, at no offset (FIFO, device).
pub(super) fn copy(
    from: &Source<'_>,
    to: &Dest<'_>,
    sparse: Sparse,
    stream: bool,
    scratch: &mut Scratch,
    observe: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Teed, Fault> {
    let read = |e| Fault::os(Side::Source, "read", e);
    let write = |e| Fault::os(Side::Dest, "write", e);
    let mut hasher = blake3::Hasher::new();
    let mut at = 0u64;
    // A pseudo file takes no blocks either, and its size is a lie: what is read is all there is.
    let holey = sparse != Sparse::Never
        && from.blocks.saturating_mul(512) < from.size
        && !meta::is_pseudo(from.fd).unwrap_or(false);
    let mut ends_in_hole = false;
    let all = [0..from.size];
    let extents: Box<dyn Iterator<Item = _>> =
        if holey { Box::new(Extents::new(from.fd, from.size)) } else { Box::new(all.into_iter()) };
    for extent in extents {
        if extent.start > at {
            update_zeros(&mut hasher, extent.start - at);
            at = extent.start;
        }
        // The last stretch is read to the end of the file, whatever the size said: procfs says 0.
        let last = extent.end >= from.size;
        while last || at < extent.end {
            let room = scratch.buffer();
            let want = if last { room.len() } else { room.len().min((extent.end - at) as usize) };
            let room = room.get_mut(..want).unwrap_or_default();
            let n = read_full(from.fd, at, room).map_err(read)?;
            let bytes = room.get(..n).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            update(&mut hasher, bytes);
            ends_in_hole = sparse == Sparse::Always && is_zero(bytes);
            if stream {
                write_stream(to.fd, bytes).map_err(write)?;
            } else if !ends_in_hole {
                write_full(to.fd, at, bytes).map_err(write)?;
            }
            at += n as u64;
            if !observe(n as u64) {
                return Err(cancelled());
            }
            if n < want {
                break;
            }
        }
    }
    if at < from.size && holey {
        update_zeros(&mut hasher, from.size - at);
        at = from.size;
        ends_in_hole = true;
    }
    if ends_in_hole {
        meta::set_length(to.fd, at).map_err(|e: io::Error| Fault::os(Side::Dest, "set length of", e))?;
    }
    Ok(Teed { bytes: at, hash: hasher.finalize() })
}

/// Reads `bytes` of `file` back and compares with what was read from the source.
pub(super) fn read_back(
    file: &OwnedFd,
    bytes: u64,
    hash: &blake3::Hash,
    how: &Fill<'_>,
    scratch: &mut Scratch,
) -> Result<(), Fault> {
    let read = |e| Fault::os(Side::Dest, "read back", e);
    if how.verify == Verify::Direct {
        // Only clean pages can be dropped, so they are written first.
        fastcopy::sync::data(file).map_err(|e| Fault::os(Side::Dest, "sync", e))?;
        fastcopy::sync::drop_cache(file, 0, 0).map_err(read)?;
    }
    let mut hasher = blake3::Hasher::new();
    let mut at = 0u64;
    loop {
        let room = scratch.buffer();
        let n = read_full(file, at, room).map_err(read)?;
        if n == 0 {
            break;
        }
        update(&mut hasher, room.get(..n).unwrap_or_default());
        at += n as u64;
        if !(how.observe)(0) {
            return Err(cancelled());
        }
    }
    if at == bytes && hasher.finalize() == *hash {
        return Ok(());
    }
    Err(Fault::ours(Side::Dest, "verify", Code::Mismatch, "what landed differs from what was read"))
}
