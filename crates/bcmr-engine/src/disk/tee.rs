//! Copying with a hash on the way, and reading back what landed.
//!
//! Must not know why the hash is wanted. The bytes are read once; holes are hashed as the zeros they stand for,
//! so the hash is `b3sum`'s.

use super::compare::{ReadAt, is_same};
use super::on_blocks_of;
use super::{Bytes, Fault, Files, Fill, Side};
use crate::blocks::{
    BLOCK_BYTES, Cv, aligned, aligned_cv, around_zeros, block_bytes, block_cv, blocks_of, fill_block,
    hash_zeros, in_pieces, on_blocks, on_blocks_with, whole_hash,
};
use crate::error::{Code, Op, Reason};
use crate::policy::{Sparse, Verify};
use fastcopy::copy::{self, Dest, Source};
use fastcopy::meta::Kind;
use fastcopy::page_cache::Cache;
use fastcopy::read_write::{
    fallocate_keep_size, read_direct, read_full, read_full_as, reopen_direct, write_full, write_full_as,
    write_stream,
};
use fastcopy::sparse::{Extents, is_zero};
use fastcopy::{Scratch, errno, meta};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// From this size (bytes) on a file is hashed block by block.
const BLOCKS_BYTES_MIN: u64 = 2 * BLOCK_BYTES;
/// Room is reserved so far ahead of content whose size is only the sender's word.
const RESERVE_BYTES: u64 = 64 * BLOCK_BYTES;
/// So much of a hole is hashed before it is asked whether to stop.
const HOLE_BYTES: u64 = 16 * BLOCK_BYTES;

/// What was copied.
pub(super) struct Hashed {
    pub(super) bytes: u64,
    pub(super) hash: blake3::Hash,
    /// All of it was read back on the way.
    pub(super) read_back: bool,
}

/// A failure of the ladder as a fault.
pub(super) fn fault(failure: copy::Failure) -> Fault {
    let (side, op) = match failure.side {
        copy::Side::Cancelled => return Fault::interrupted(),
        copy::Side::Read => (Side::Source, Op::Read),
        copy::Side::Write => (Side::Dest, Op::Write),
        copy::Side::Copy => (Side::Dest, Op::CopyTo),
        copy::Side::Clone => (Side::Dest, Op::CloneTo),
    };
    Fault::os(side, op, failure.source)
}

/// Gives a file its length before anything is written into it: xfs reserves room behind the end of a file that grows by
/// writing, and what is reserved there stays as blocks where holes should be.
fn lengthen(file: impl AsFd, bytes: u64) -> Result<(), Fault> {
    let there = meta::Info::of(&file).map_err(|e| Fault::os(Side::Dest, Op::Stat, e))?;
    if there.size < bytes {
        meta::set_length(file, bytes).map_err(|e| Fault::os(Side::Dest, Op::SetLengthOf, e))?;
    }
    Ok(())
}

/// Room for a range of a file whose bytes before it are written or reserved, the visible length unchanged: writing then finds its
/// blocks allocated (docs/decisions/0002-copy-ladder.md). Only a full disk is an error; where it is not faster it is not done,
/// as btrfs compresses nothing that is written into reserved room.
pub(super) fn reserve(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    has_room(&file, range.end)?;
    if !copy::pays_to_preallocate(file.as_fd()) {
        return Ok(());
    }
    match fallocate_keep_size(&file, range.start, range.end - range.start).map_err(io::Error::from) {
        Err(e) if Code::of(&e) == Code::NoSpace => Err(e),
        // A file system that cannot do it does without.
        _ => Ok(()),
    }
}

/// Refuses a length for which there is no room, before any of it is taken or crosses a wire. Not where it may take less room than
/// it has bytes.
fn has_room(file: impl AsFd, bytes: u64) -> io::Result<()> {
    if !copy::stores_every_byte(file.as_fd()) {
        return Ok(());
    }
    // What is free comes first: what another worker writes into this file in between then counts once and not twice.
    let free = meta::free_bytes(&file)?;
    let there = meta::Info::of(&file)?.blocks.saturating_mul(512);
    if free < bytes.saturating_sub(there) {
        return Err(io::Error::from_raw_os_error(errno::ENOSPC));
    }
    Ok(())
}

/// How a file is copied.
#[derive(Clone, Copy)]
pub(super) struct Teeing {
    pub(super) sparse: Sparse,
    /// Bytes go one after the other, at no offset (FIFO, device).
    pub(super) stream: bool,
    /// So many share a dense file of several blocks.
    pub(super) threads: usize,
    /// Room is reserved first.
    pub(super) preallocate: bool,
    /// Where it can be, what is written is read back at once and compared, while it is in the processor's cache.
    pub(super) read_back: bool,
    /// What becomes of the pages.
    pub(super) cache: Cache,
}

/// A dense file of several blocks, copied and hashed on several threads, each block by a thread that is free.
fn copy_blocks(
    from: &Source<'_>,
    to: &Dest<'_>,
    how: Teeing,
    observe: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Hashed, Fault> {
    let done: Mutex<Vec<Cv>> = Mutex::new(vec![Cv::default(); blocks_of(from.size) as usize]);
    if how.preallocate {
        reserve(to.fd, 0..from.size).map_err(|e| Fault::os(Side::Dest, Op::ReserveRoomFor, e))?;
    }
    let rooms = || (aligned(), how.read_back.then(aligned));
    on_blocks_with(0..blocks_of(from.size), how.threads, rooms, |block, (room, landed)| {
        let start = block * BLOCK_BYTES;
        let end = (start + BLOCK_BYTES).min(from.size);
        let read = |at, room: &mut [u8]| {
            read_full_as(from.fd, at, room, how.cache).map_err(|e| Fault::os(Side::Source, Op::Read, e))
        };
        let write = |at, piece: &[u8]| {
            write_full_as(to.fd, at, piece, how.cache).map_err(|e| Fault::os(Side::Dest, Op::Write, e))?;
            landed
                .as_mut()
                .map_or(Ok(()), |room| same_again(to.fd, at, piece, room.piece(piece.len()), how.cache))
        };
        let (cv, _) = fill_block(start..end, true, room, read, write, observe)?;
        if let Some(slot) = done.lock().unwrap_or_else(PoisonError::into_inner).get_mut(block as usize) {
            *slot = cv;
        }
        Ok(true)
    })?;
    let cvs = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    match whole_hash(&cvs, from.size) {
        Some(hash) => Ok(Hashed { bytes: from.size, hash, read_back: how.read_back }),
        None => Err(Fault::ours(Side::Source, Op::Hash, Code::Io, Reason::NoBlocksToMerge)),
    }
}

/// Reads back what was written just now, into `room` that is at least as long, and compares.
fn same_again(to: impl AsFd, at: u64, piece: &[u8], room: &mut [u8], cache: Cache) -> Result<(), Fault> {
    let room = room.get_mut(..piece.len()).unwrap_or_default();
    let n = read_full_as(to, at, room, cache).map_err(|e| Fault::os(Side::Dest, Op::ReadBack, e))?;
    if room.get(..n) == Some(piece) { Ok(()) } else { Err(not_what_was_read()) }
}

fn not_what_was_read() -> Fault {
    Fault::ours(Side::Dest, Op::Verify, Code::Mismatch, Reason::NotWhatWasRead)
}

/// What is left to prove of a file that was read back while it was written: that there is no more of it, and no less.
pub(super) fn ends_at(file: &OwnedFd, bytes: u64, how: &Fill<'_>) -> Result<(), Fault> {
    if !is_as_long(file, bytes)? {
        return Err(not_what_was_read());
    }
    if (how.observe)(bytes) { Ok(()) } else { Err(Fault::interrupted()) }
}

/// Whether what was written into is as long as what was written. Only a file has a length that says so: a device is as long as
/// ever, and its `st_size` is 0.
fn is_as_long(file: &OwnedFd, bytes: u64) -> Result<bool, Fault> {
    let landed = meta::Info::of(file).map_err(|e| Fault::os(Side::Dest, Op::ReadBack, e))?;
    Ok(landed.kind != Kind::File || landed.size == bytes)
}

/// The hash of `size` bytes that landed, on several threads.
fn hash_blocks(
    file: &OwnedFd,
    size: u64,
    how: &Fill<'_>,
    cache: Cache,
) -> Result<Option<blake3::Hash>, Fault> {
    let read = |e| Fault::os(Side::Dest, Op::ReadBack, e);
    let done: Mutex<Vec<Cv>> = Mutex::new(vec![Cv::default(); blocks_of(size) as usize]);
    on_blocks(0..blocks_of(size), how.threads, |block| {
        let cv = block_cv(block, size, |at, room| read_full_as(file, at, room, cache).map_err(read))?;
        if let Some(slot) = done.lock().unwrap_or_else(PoisonError::into_inner).get_mut(block as usize) {
            *slot = cv;
        }
        if (how.observe)(block_bytes(block, size)) { Ok(true) } else { Err(Fault::interrupted()) }
    })?;
    Ok(whole_hash(&done.into_inner().unwrap_or_else(PoisonError::into_inner), size))
}

/// Hashes a hole as the zeros that it stands for, which may take as long as reading a disk does.
fn hash_hole(
    hasher: &mut blake3::Hasher,
    bytes: u64,
    observe: &(dyn Fn(u64) -> bool + Sync),
) -> Result<(), Fault> {
    let mut left = bytes;
    while left > 0 {
        let step = left.min(HOLE_BYTES);
        hash_zeros(hasher, step);
        left -= step;
        if !observe(0) {
            return Err(Fault::interrupted());
        }
    }
    Ok(())
}

/// Writes into what takes bytes one after the other; where it has no room for more, `waits` says whether to wait for it.
fn in_order(to: impl AsFd, bytes: &[u8], waits: &dyn Fn() -> bool) -> Result<(), Fault> {
    match write_stream(to, bytes, waits) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Fault::interrupted()),
        Err(e) => Err(Fault::os(Side::Dest, Op::Write, e)),
    }
}

/// Copies all of `from` to `to` and hashes it.
pub(super) fn copy(
    from: &Source<'_>,
    to: &Dest<'_>,
    how: Teeing,
    scratch: &mut Scratch,
    observe: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Hashed, Fault> {
    let Teeing { sparse, stream, cache, .. } = how;
    let dense = from.blocks.saturating_mul(512) >= from.size && sparse != Sparse::Always;
    if !stream && dense && from.size >= BLOCKS_BYTES_MIN {
        return copy_blocks(from, to, how, observe);
    }
    let read = |e| Fault::os(Side::Source, Op::Read, e);
    let write = |e| Fault::os(Side::Dest, Op::Write, e);
    let mut hasher = blake3::Hasher::new();
    let mut at = 0u64;
    // A pseudo file takes no blocks either, and its size is a lie: what is read is all there is.
    let holey = sparse != Sparse::Never
        && from.blocks.saturating_mul(512) < from.size
        && !meta::is_pseudo(from.fd).unwrap_or(false);
    if holey && !stream {
        lengthen(to.fd, from.size)?;
    }
    let (mut ends_in_hole, mut is_short) = (false, false);
    let all = std::iter::once(0..from.size);
    // What is written whole is read back piece by piece; what has holes, once it has its length.
    let read_back = how.read_back && !stream && !holey && sparse != Sparse::Always;
    let room = scratch.buffer();
    let half = room.len() / if read_back { 2 } else { 1 };
    let (room, landed) = room.split_at_mut(half);
    let extents: Box<dyn Iterator<Item = _>> =
        if holey { Box::new(Extents::new(from.fd, from.size)) } else { Box::new(all) };
    for extent in extents {
        if extent.start > at {
            hash_hole(&mut hasher, extent.start - at, observe)?;
            at = extent.start;
        }
        // The last stretch is read to the end of the file, whatever the size said: procfs says 0.
        let end = if extent.end >= from.size { u64::MAX } else { extent.end };
        let piece = |at, room: &mut [u8]| read_full_as(from.fd, at, room, cache).map_err(read);
        at = in_pieces(at..end, room, piece, |at, bytes| {
            hasher.update(bytes);
            ends_in_hole = sparse == Sparse::Always && is_zero(bytes);
            if stream {
                in_order(to.fd, bytes, &|| observe(0))?;
            } else if !ends_in_hole {
                write_full_as(to.fd, at, bytes, cache).map_err(write)?;
            }
            if read_back {
                same_again(to.fd, at, bytes, landed, cache)?;
            }
            if observe(bytes.len() as u64) { Ok(()) } else { Err(Fault::interrupted()) }
        })?;
        // The end of the file within its data: what is missing is no hole, and who compares the lengths sees it.
        is_short = at < extent.end.min(from.size);
        if is_short {
            break;
        }
    }
    if at < from.size && holey && !is_short {
        hash_hole(&mut hasher, from.size - at, observe)?;
        at = from.size;
        ends_in_hole = true;
    }
    if ends_in_hole || (holey && is_short) {
        meta::set_length(to.fd, at).map_err(|e: io::Error| Fault::os(Side::Dest, Op::SetLengthOf, e))?;
    }
    Ok(Hashed { bytes: at, hash: hasher.finalize(), read_back })
}

/// Writes what comes piece by piece. The hash comes back when `how` wants it or the sender has one to compare with;
/// `stream`: bytes go one after the other, at no offset; `preallocate`: room is reserved as they come.
pub(super) fn receive(
    source: &dyn Bytes,
    info: &meta::Info,
    to: &OwnedFd,
    how: &Fill<'_>,
    stream: bool,
    preallocate: bool,
) -> Result<(u64, Option<blake3::Hash>), Fault> {
    let size = info.size;
    let hashing = how.hash || source.is_claimed();
    let holes = !stream
        && (how.sparse == Sparse::Always
            || (how.sparse == Sparse::Auto && info.blocks.saturating_mul(512) < size));
    let room = |e| Fault::os(Side::Dest, Op::ReserveRoomFor, e);
    if !stream && !holes {
        has_room(to, size).map_err(room)?;
    }
    if holes {
        lengthen(to, size)?;
    }
    source.start(0).map_err(|e| Fault::os(Side::Source, Op::Receive, e))?;
    // A size is what the other side says: memory and room on the disk are taken as the content comes.
    let done: Mutex<Vec<Cv>> = Mutex::new(Vec::new());
    // A file of one block has no blocks to merge: its hash is another finish of the same state.
    let whole: Mutex<Option<blake3::Hash>> = Mutex::new(None);
    on_blocks_of(source, 0..blocks_of(size), if stream { 1 } else { how.threads }, |block| {
        let start = block * BLOCK_BYTES;
        if preallocate && !stream && !holes && start.is_multiple_of(RESERVE_BYTES) {
            reserve(to, start..size.min(start + RESERVE_BYTES)).map_err(room)?;
        }
        let end = (start + BLOCK_BYTES).min(size);
        let read = |at, room: &mut [u8]| {
            source.read_at(at, room).map_err(|e| Fault::os(Side::Source, Op::Receive, e))
        };
        let write = |holes: bool, at, piece: &[u8]| {
            if stream {
                return in_order(to, piece, how.waits);
            }
            let written = if holes {
                around_zeros(at, piece, |at, run| write_full(to, at, run))
            } else {
                write_full(to, at, piece)
            };
            written.map_err(|e| Fault::os(Side::Dest, Op::Write, e))
        };
        let fill = |holes| {
            let write = |at, piece: &[u8]| write(holes, at, piece);
            fill_block(start..end, hashing, &mut aligned(), read, write, how.observe)
        };
        let differs = |cv| hashing && source.claimed(block).is_some_and(|claimed| claimed != cv);
        let (mut cv, mut alone) = fill(holes)?;
        if differs(cv) && !stream && source.again(block) {
            // Zeros are written too: what they replace is wrong.
            (cv, alone) = fill(false)?;
        }
        if size <= BLOCK_BYTES {
            *whole.lock().unwrap_or_else(PoisonError::into_inner) = alone;
        }
        if differs(cv) {
            return Err(source.differs(block));
        }
        keep(&done, block, cv);
        Ok(true)
    })?;
    if holes {
        meta::set_length(to, size).map_err(|e| Fault::os(Side::Dest, Op::SetLengthOf, e))?;
    }
    let whole = whole.into_inner().unwrap_or_else(PoisonError::into_inner);
    let blocks = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let hash = if hashing { whole.or_else(|| whole_hash(&blocks, size)) } else { None };
    Ok((size, hash))
}

/// Keeps a block's value, making room for those before it.
fn keep(done: &Mutex<Vec<Cv>>, block: u64, cv: Cv) {
    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
    let block = block as usize;
    if done.len() <= block {
        done.resize(block + 1, Cv::default());
    }
    if let Some(slot) = done.get_mut(block) {
        *slot = cv;
    }
}

/// Writes a small file whole.
pub(super) fn write_whole(
    bytes: &[u8],
    info: &meta::Info,
    to: &OwnedFd,
    how: &Fill<'_>,
    stream: bool,
) -> Result<(), Fault> {
    let write = |e| Fault::os(Side::Dest, Op::Write, e);
    let size = bytes.len() as u64;
    let holes = !stream
        && (how.sparse == Sparse::Always
            || (how.sparse == Sparse::Auto && info.blocks.saturating_mul(512) < size));
    if stream {
        in_order(to, bytes, how.waits)?;
    } else if holes {
        lengthen(to, size)?;
        around_zeros(0, bytes, |at, run| write_full(to, at, run)).map_err(write)?;
        meta::set_length(to, size).map_err(|e| Fault::os(Side::Dest, Op::SetLengthOf, e))?;
    } else {
        write_full(to, 0, bytes).map_err(write)?;
    }
    if (how.observe)(size) { Ok(()) } else { Err(Fault::interrupted()) }
}

/// What is there is another one than the source begins with.
pub(super) fn not_its_beginning() -> Fault {
    Fault::ours(Side::Dest, Op::AppendTo, Code::Refused, Reason::NotItsBeginning)
}

/// Proves that the first `bytes` of `there` are how the source begins, whose bytes `source` reads.
pub(super) fn begins_with(
    there: &OwnedFd,
    bytes: u64,
    source: &ReadAt<'_>,
    go_on: &dyn Fn() -> bool,
) -> Result<(), Fault> {
    begins_with_from(there, 0, bytes, source, go_on)
}

/// The same for what stands from `at` to `end`.
pub(super) fn begins_with_from(
    there: &OwnedFd,
    at: u64,
    end: u64,
    source: &ReadAt<'_>,
    go_on: &dyn Fn() -> bool,
) -> Result<(), Fault> {
    if is_same(there, at, end, source, go_on)? { Ok(()) } else { Err(not_its_beginning()) }
}

/// Whether two files of `size` bytes, one of them far away, have the same content; `go_on` is told of bytes compared and
/// says whether to.
pub(crate) fn same_blocks<D: Files>(
    disk: &D,
    source: &dyn Bytes,
    there: &D::File,
    size: u64,
    go_on: &dyn Fn(u64) -> bool,
) -> Result<bool, Fault> {
    same_blocks_read(source, |at, room| disk.read_at(there, at, room), 0..blocks_of(size), size, go_on)
}

/// The same for some of their blocks.
pub(crate) fn same_blocks_among(
    source: &dyn Bytes,
    there: &OwnedFd,
    blocks: Range<u64>,
    size: u64,
    go_on: &dyn Fn(u64) -> bool,
) -> Result<bool, Fault> {
    same_blocks_read(source, |at, room| read_full(there, at, room), blocks, size, go_on)
}

fn same_blocks_read(
    source: &dyn Bytes,
    there: impl Fn(u64, &mut [u8]) -> io::Result<usize>,
    blocks: Range<u64>,
    size: u64,
    go_on: &dyn Fn(u64) -> bool,
) -> Result<bool, Fault> {
    let read = |e| Fault::os(Side::Dest, Op::Read, e);
    for block in blocks {
        let ours = block_cv(block, size, |at, room| there(at, room).map_err(read))?;
        if source.value(block, size)? != ours {
            return Ok(false);
        }
        if !go_on(BLOCK_BYTES.min(size - block * BLOCK_BYTES)) {
            return Err(Fault::interrupted());
        }
    }
    Ok(true)
}

/// The hash of a whole file; `go_on` is told of bytes read and says whether to.
pub(crate) fn hash(file: &OwnedFd, go_on: &dyn Fn(u64) -> bool) -> Result<blake3::Hash, Fault> {
    hash_first(file, u64::MAX, go_on)
}

/// The same of a file on `disk`.
pub(crate) fn hash_on<D: Files>(
    disk: &D,
    file: &D::File,
    go_on: &dyn Fn(u64) -> bool,
) -> Result<blake3::Hash, Fault> {
    hash_read(|at, room| disk.read_at(file, at, room), u64::MAX, go_on)
}

/// The same of its first `bytes`, or of all where there are fewer.
pub(crate) fn hash_first(
    file: &OwnedFd,
    bytes: u64,
    go_on: &dyn Fn(u64) -> bool,
) -> Result<blake3::Hash, Fault> {
    hash_read(|at, room| read_full(file, at, room), bytes, go_on)
}

fn hash_read(
    file: impl Fn(u64, &mut [u8]) -> io::Result<usize>,
    bytes: u64,
    go_on: &dyn Fn(u64) -> bool,
) -> Result<blake3::Hash, Fault> {
    let (mut scratch, mut hasher) = (Scratch::new(), blake3::Hasher::new());
    let read = |at, room: &mut [u8]| file(at, room).map_err(|e| Fault::os(Side::Source, Op::Read, e));
    in_pieces(0..bytes, scratch.buffer(), read, |_, piece| {
        hasher.update(piece);
        if go_on(piece.len() as u64) { Ok(()) } else { Err(Fault::interrupted()) }
    })?;
    Ok(hasher.finalize())
}

/// The hash of `size` bytes as the medium has them.
fn device_hash(file: &OwnedFd, size: u64, how: &Fill<'_>) -> Result<blake3::Hash, Fault> {
    let direct = reopen_direct(file).map_err(no_direct)?;
    let read = |e| Fault::os(Side::Dest, Op::ReadBack, e);
    let done: Mutex<Vec<Cv>> = Mutex::new(vec![Cv::default(); blocks_of(size) as usize]);
    let whole: Mutex<blake3::Hash> = Mutex::new(blake3::hash(b""));
    on_blocks(0..blocks_of(size), how.threads, |block| {
        let (cv, alone) = aligned_cv(block, size, |at, room| read_direct(&direct, at, room).map_err(read))?;
        if let Some(slot) = done.lock().unwrap_or_else(PoisonError::into_inner).get_mut(block as usize) {
            *slot = cv;
        }
        if let Some(hash) = alone {
            *whole.lock().unwrap_or_else(PoisonError::into_inner) = hash;
        }
        if (how.observe)(block_bytes(block, size)) { Ok(true) } else { Err(Fault::interrupted()) }
    })?;
    let whole = whole.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(whole_hash(&done.into_inner().unwrap_or_else(PoisonError::into_inner), size).unwrap_or(whole))
}

/// Reads `bytes` of `file` back and compares with what was read from the source; `how.observe` is told of what was read.
pub(super) fn read_back(
    file: &OwnedFd,
    bytes: u64,
    hash: &blake3::Hash,
    how: &Fill<'_>,
    cache: Cache,
    scratch: &mut Scratch,
) -> Result<(), Fault> {
    if how.verify == Verify::Direct {
        // S8: what is on stable storage, past the cache; so it must be there first.
        fastcopy::sync::data(file).map_err(|e| Fault::os(Side::Dest, Op::Sync, e))?;
    }
    let landed = match is_as_long(file, bytes)? {
        false => None,
        true if how.verify == Verify::Direct => Some(device_hash(file, bytes, how)?),
        true if bytes >= BLOCKS_BYTES_MIN => hash_blocks(file, bytes, how, cache)?,
        true => {
            let mut hasher = blake3::Hasher::new();
            let read = |at, room: &mut [u8]| {
                read_full(file, at, room).map_err(|e| Fault::os(Side::Dest, Op::ReadBack, e))
            };
            in_pieces(0..bytes, scratch.buffer(), read, |_, piece| {
                hasher.update(piece);
                if (how.observe)(piece.len() as u64) { Ok(()) } else { Err(Fault::interrupted()) }
            })?;
            Some(hasher.finalize())
        }
    };
    if landed.as_ref() == Some(hash) { Ok(()) } else { Err(not_what_was_read()) }
}

/// The same for a file of which all `bytes` are at hand: they are compared, not hashed again.
pub(super) fn read_back_whole(
    file: &OwnedFd,
    bytes: &[u8],
    how: &Fill<'_>,
    cache: Cache,
    scratch: &mut Scratch,
) -> Result<(), Fault> {
    let (room, mut at) = (scratch.buffer(), 0);
    for piece in bytes.chunks(room.len().max(1)) {
        same_again(file, at, piece, room, cache)?;
        at += piece.len() as u64;
    }
    ends_at(file, at, how)
}

/// What `-V=direct` asks for and the file system does not have is no proof.
pub(crate) fn no_direct(e: io::Error) -> Fault {
    let note = Reason::NoDirectReads;
    match e.raw_os_error() {
        Some(errno::EINVAL | errno::EOPNOTSUPP) => {
            Fault { code: Code::Unsupported, note: Some(note), ..Fault::os(Side::Dest, Op::ReadBack, e) }
        }
        _ => Fault::os(Side::Dest, Op::ReadBack, e),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use crate::policy::{Durability, Reflink};
    use std::path::Path;

    /// S8: what a device under the page cache does is no part of `-V`; that a write did nothing is. In one piece, in several,
    /// and by blocks.
    #[test]
    fn what_is_read_back_on_the_way_is_what_was_written() {
        for bytes in [100, BLOCK_BYTES - 1, 3 * BLOCK_BYTES + 100] {
            let dir = tempfile::tempdir().unwrap();
            let data: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8 + 1).collect();
            std::fs::write(dir.path().join("source"), &data).unwrap();
            let source = OwnedFd::from(std::fs::File::open(dir.path().join("source")).unwrap());
            let landed = std::fs::File::create_new(dir.path().join("landed")).unwrap();
            let both =
                |file| OwnedFd::from(std::fs::File::options().read(true).write(true).open(file).unwrap());
            let info = meta::Info::of(&source).unwrap();
            let from = Source { fd: source.as_fd(), dev: info.dev, size: info.size, blocks: bytes };
            let copied = |to: &OwnedFd, read_back| {
                let cache = Cache::Keep;
                let (sparse, threads, preallocate) = (Sparse::Auto, 2, false);
                let how = Teeing { sparse, stream: false, threads, preallocate, read_back, cache };
                let to = Dest { fd: to.as_fd(), dev: 0 };
                copy(&from, &to, how, &mut Scratch::new(), &|_| true).map(|done| (done.hash, done.read_back))
            };
            let good = both(dir.path().join("landed"));
            for read_back in [false, true] {
                assert_eq!(copied(&good, read_back).unwrap(), (blake3::hash(&data), read_back));
            }
            let how = Fill { verify: Verify::Cached, ..crate::disk::model::PLAIN };
            let whole = |file| {
                read_back_whole(file, &data, &how, Cache::Keep, &mut Scratch::new()).map_err(|e| e.code)
            };
            ends_at(&good, bytes, &how).unwrap();
            whole(&good).unwrap();
            landed.set_len(bytes + 1).unwrap();
            assert_eq!(ends_at(&good, bytes, &how).unwrap_err().op, Op::Verify);
            assert_eq!(whole(&good), Err(Code::Mismatch));
            landed.set_len(bytes - 1).unwrap();
            assert_eq!(whole(&good), Err(Code::Mismatch));
            // What takes every byte and has none of them.
            let null = both(Path::new("/dev/null").to_path_buf());
            assert!(copied(&null, false).is_ok());
            assert_eq!(copied(&null, true).err().map(|fault| fault.code), Some(Code::Mismatch));
            assert_eq!(whole(&null), Err(Code::Mismatch));
        }
    }

    /// What a read does not give of a stretch of data is missing, and is not hashed as a hole.
    #[test]
    fn the_end_of_a_file_within_its_data_is_no_hole() {
        let dir = tempfile::tempdir().unwrap();
        let (hole, data) = (1_u64 << 20, 3 * Scratch::new().buffer().len() as u64);
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(dir.path().join("source"))
            .unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; data as usize], hole).unwrap();
        let source = OwnedFd::from(file.try_clone().unwrap());
        let info = meta::Info::of(&source).unwrap();
        let landed = std::fs::File::create_new(dir.path().join("landed")).unwrap();
        // Fewer blocks than its length needs, also on a file system without holes.
        let from = Source { fd: source.as_fd(), dev: info.dev, size: info.size, blocks: data / 512 };
        let how = Teeing {
            sparse: Sparse::Auto,
            stream: false,
            threads: 1,
            preallocate: false,
            read_back: false,
            cache: Cache::Keep,
        };
        let cut = hole + data / 3;
        let cut_at_first_piece = |_| file.set_len(cut).is_ok();
        let to = Dest { fd: landed.as_fd(), dev: 0 };
        let done = copy(&from, &to, how, &mut Scratch::new(), &cut_at_first_piece).map_err(|e| e.op).unwrap();
        let read = std::fs::read(dir.path().join("source")).unwrap();
        assert_eq!((done.bytes, done.hash), (cut, blake3::hash(&read)));
        assert_eq!(std::fs::read(dir.path().join("landed")).unwrap(), read);
    }

    #[test]
    fn who_says_stop_need_not_wait_for_a_hole() {
        let dir = tempfile::tempdir().unwrap();
        let holes = std::fs::File::create_new(dir.path().join("source")).unwrap();
        holes.set_len(4 * HOLE_BYTES).unwrap();
        let source = OwnedFd::from(std::fs::File::open(dir.path().join("source")).unwrap());
        let landed = std::fs::File::create_new(dir.path().join("landed")).unwrap();
        let from = Source { fd: source.as_fd(), dev: 0, size: 4 * HOLE_BYTES, blocks: 0 };
        let (sparse, stream, read_back, cache) = (Sparse::Auto, false, false, Cache::Keep);
        let how = Teeing { sparse, stream, threads: 1, preallocate: false, read_back, cache };
        let to = Dest { fd: landed.as_fd(), dev: 0 };
        let asked = std::sync::atomic::AtomicU64::new(0);
        let stop = |_| asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0;
        let done = copy(&from, &to, how, &mut Scratch::new(), &stop);
        assert_eq!(done.err().map(|fault| fault.code), Some(Code::Interrupted));
        assert_eq!(asked.into_inner(), 1);
    }

    /// A file that comes over a wire, which the sender did not hash on the way.
    struct Wire(Vec<u8>, meta::Info);

    impl Bytes for Wire {
        fn read_at(&self, at: u64, room: &mut [u8]) -> io::Result<usize> {
            let left = self.0.get(at as usize..).unwrap_or_default();
            let n = left.len().min(room.len());
            room[..n].copy_from_slice(&left[..n]);
            Ok(n)
        }
        fn info(&self) -> io::Result<meta::Info> {
            Ok(self.1)
        }
        fn file(&self) -> Option<&OwnedFd> {
            None
        }
    }

    #[test]
    fn what_nobody_hashes_arrives_as_well() {
        let dir = tempfile::tempdir().unwrap();
        for (bytes, hash) in [1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES]
            .into_iter()
            .flat_map(|bytes| [(bytes, false), (bytes, true)])
        {
            let data: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8 + 1).collect();
            let path = dir.path().join("source");
            std::fs::write(&path, &data).unwrap();
            let info = meta::Info::of(OwnedFd::from(std::fs::File::open(&path).unwrap())).unwrap();
            let landed = std::fs::File::create(dir.path().join("landed")).unwrap();
            let how = Fill {
                reflink: Reflink::Never,
                sparse: Sparse::Auto,
                verify: Verify::Off,
                hash,
                durability: Durability::Cache,
                threads: 2,
                changing: crate::policy::Changing::Refused,
                dev: 0,
                observe: &|_| true,
                waits: &|| true,
                work: None,
            };
            let got = receive(&Wire(data.clone(), info), &info, &OwnedFd::from(landed), &how, false, true);
            let (length, value) = got.unwrap_or_else(|e| panic!("{bytes} bytes: {e:?}"));
            assert_eq!((length, std::fs::read(dir.path().join("landed")).unwrap()), (bytes, data.clone()));
            assert_eq!(value, hash.then(|| blake3::hash(&data)), "{bytes} bytes");
        }
    }
}
