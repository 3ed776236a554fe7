//! Files in blocks of 4 MiB: on several threads, each block with its BLAKE3 chaining value, and the file's hash from
//! those.
//!
//! Must not know what a block is read from or written to. Chaining values of subtrees, in whatever order they were
//! made, merge to the hash that `b3sum` gives (BLAKE3 paper, section 2.1): so ranges copied by several threads, or in
//! several runs, need no second read.

use crate::fault::Fault;
use bcmr_wire::limits;
use blake3::hazmat::{HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root};
use fastcopy::meta::Info;
use fastcopy::read_write::read_full;
use fastcopy::sparse::{self, data_runs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What the session format says a block is.
pub(crate) const FORMAT_BLOCK_BYTES: u64 = 4 << 20;
/// Bytes of a block; the last one of a file may be shorter. A power of two of BLAKE3's chunks, so that the chaining
/// values of blocks merge to the file's hash. Unit tests look at a hundred thousand crashes of files of several
/// blocks, so theirs are small.
pub(crate) const BLOCK_BYTES: u64 = scaled(FORMAT_BLOCK_BYTES);
/// Bytes read, hashed and written at a time: they stay in the second-level cache.
pub(crate) const PIECE_BYTES: usize = if cfg!(test) { 1 << 10 } else { 256 << 10 };
/// Bytes of one message with content of a large file, at most; from how many on a file is one, and from how many on its
/// blocks may come from a store. In tests as much smaller as blocks are, so that a transfer of many blocks takes a moment.
pub(crate) const WIRE_PIECE_BYTES: u64 = scaled(limits::PIECE_BYTES_MAX);
pub(crate) const LARGE_BYTES_MIN: u64 = scaled(limits::SMALL_FILE_BYTES);
pub(crate) const DEDUP_BYTES_MIN: u64 = scaled(limits::DEDUP_BYTES_MIN);
/// From how many bytes on a content that came before need not come again. In tests small files are that small.
pub(crate) const REPEAT_BYTES_MIN: u64 = if cfg!(test) { 16 } else { limits::REPEAT_BYTES_MIN };
/// Runs of zeros of this length (bytes) become holes in files that have any.
const HOLE_BYTES: usize = if cfg!(test) { 256 } else { sparse::BLOCK };

const fn scaled(bytes: u64) -> u64 {
    if cfg!(test) { bytes >> 10 } else { bytes }
}

/// A block's chaining value.
pub(crate) type Cv = [u8; 32];

/// How many blocks a file of `size` bytes has.
pub(crate) fn blocks_of(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES)
}

/// Bytes of one block of a file of `size` bytes.
pub(crate) fn block_bytes(block: u64, size: u64) -> u64 {
    size.saturating_sub(block.saturating_mul(BLOCK_BYTES)).min(BLOCK_BYTES)
}

/// The chaining value of what `feed` feeds, at its place in the file; zeros when that is nothing.
pub(crate) fn cv_at(
    at: u64,
    feed: impl FnOnce(&mut blake3::Hasher) -> Result<(), Fault>,
) -> Result<Cv, Fault> {
    let mut hasher = hasher_at(at);
    feed(&mut hasher)?;
    // Nothing has no value; a caller that fed nothing wants none.
    Ok(if hasher.count() == 0 { Cv::default() } else { hasher.finalize_non_root() })
}

/// A hasher for a block that begins at `at`. It must be fed something before it is asked for a value.
pub(crate) fn hasher_at(at: u64) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(at);
    hasher
}

/// Feeds as many zeros to a hasher: a hole is hashed as what it stands for.
pub(crate) fn hash_zeros(hasher: &mut blake3::Hasher, mut bytes: u64) {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    while bytes > 0 {
        let n = bytes.min(ZEROS.len() as u64) as usize;
        hasher.update(ZEROS.get(..n).unwrap_or_default());
        bytes -= n as u64;
    }
}

/// The chaining values of all blocks of a file; `None` where it cannot be read.
pub(crate) fn values_of(file: &OwnedFd) -> Option<Vec<Cv>> {
    let size = Info::of(file).ok()?.size;
    let mut room = aligned();
    let starts = (0..size).step_by(BLOCK_BYTES as usize);
    let values = starts.map(|start| {
        let end = size.min(start + BLOCK_BYTES);
        let mut value = hasher_at(start);
        let read = |at, piece: &mut [u8]| read_full(file, at, piece);
        let behind = in_pieces(start..end, room.all(), read, |_, bytes| {
            value.update(bytes);
            Ok(())
        });
        (behind.ok()? == end).then(|| value.finalize_non_root())
    });
    values.collect()
}

/// The beginning of a hash as a number, for a caller that compares the whole content in the end.
pub(crate) fn hash_key(hash: &[u8; 32]) -> u64 {
    hash.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

/// Reads `range` of anything into `room`, piece by piece, until it ends or is short: `each` gets the offset and the bytes
/// of each piece. Returns the offset behind the last one.
pub(crate) fn in_pieces<E>(
    range: std::ops::Range<u64>,
    room: &mut [u8],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<u64, E> {
    let mut at = range.start;
    while at < range.end {
        let want = room.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        let piece = room.get_mut(..want).unwrap_or_default();
        let n = read(at, piece)?;
        if n > 0 {
            each(at, piece.get(..n).unwrap_or_default())?;
        }
        at += n as u64;
        if n < want {
            break;
        }
    }
    Ok(at)
}

/// Reads one block, which is `range` of its file, hashes it where `hash` says so while it is in the processor's cache, and
/// writes it; `observe` is told of the bytes and says whether to go on. `room` is what the bytes go through. Returns the
/// block's chaining value, and its hash as a file of its own where it begins one.
///
/// # Errors
/// Those of reading and writing; the source is shorter than the block; `observe` said no.
pub(crate) fn fill_block(
    range: std::ops::Range<u64>,
    hash: bool,
    room: &mut Aligned,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, Fault>,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), Fault>,
    observe: &dyn Fn(u64) -> bool,
) -> Result<(Cv, Option<blake3::Hash>), Fault> {
    let start = range.start;
    let mut alone = None;
    let cv = cv_at(start, |hasher| {
        let read = |at: u64, piece: &mut [u8]| match read(at, piece)? {
            n if n < piece.len() => Err(Fault::changed()),
            n => Ok(n),
        };
        in_pieces(range, room.all(), read, |at, piece| {
            if hash {
                hasher.update(piece);
            }
            write(at, piece)?;
            if observe(piece.len() as u64) { Ok(()) } else { Err(Fault::interrupted()) }
        })?;
        alone = (hash && start == 0).then(|| hasher.finalize());
        Ok(())
    })?;
    Ok((cv, alone))
}

/// Reads one block of anything, piece by piece.
pub(crate) fn block_cv(
    block: u64,
    size: u64,
    read: impl FnMut(u64, &mut [u8]) -> Result<usize, Fault>,
) -> Result<Cv, Fault> {
    let start = block * BLOCK_BYTES;
    let end = (start + BLOCK_BYTES).min(size);
    let mut room = aligned();
    cv_at(start, |hasher| {
        in_pieces(start..end, room.all(), read, |_, piece| {
            hasher.update(piece);
            Ok(())
        })
        .map(drop)
    })
}

/// As [`block_cv`] for a reader that takes whole aligned pieces only (direct I/O): it is given room beyond the end too.
/// With it comes the hash of the whole file when this block is all of it.
pub(crate) fn aligned_cv(
    block: u64,
    size: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, Fault>,
) -> Result<(Cv, Option<blake3::Hash>), Fault> {
    let start = block * BLOCK_BYTES;
    let end = (start + BLOCK_BYTES).min(size);
    let mut room = aligned();
    let mut whole = None;
    let cv = cv_at(start, |hasher| {
        let mut at = start;
        while at < end {
            let piece = room.piece(PIECE_BYTES);
            let n = read(at, piece)?.min((end - at) as usize);
            hasher.update(piece.get(..n).unwrap_or_default());
            at += n as u64;
            if n < PIECE_BYTES {
                break;
            }
        }
        whole = (size <= BLOCK_BYTES).then(|| hasher.finalize());
        Ok(())
    })?;
    Ok((cv, whole))
}

/// Writes `bytes`, which belong at `at`, but no page of zeros: a hole stays where there was one. One call for a run.
pub(crate) fn around_zeros<E>(
    at: u64,
    bytes: &[u8],
    mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    for run in data_runs(bytes, at, HOLE_BYTES) {
        write(at + run.start as u64, bytes.get(run).unwrap_or_default())?;
    }
    Ok(())
}

/// Runs `each` for every block of a range on several threads, until one says stop or fails.
pub(crate) fn on_blocks(
    blocks: std::ops::Range<u64>,
    threads: usize,
    each: impl Fn(u64) -> Result<bool, Fault> + Sync,
) -> Result<(), Fault> {
    on_blocks_with(blocks, threads, || (), |block, ()| each(block))
}

/// The same, where each thread keeps something from block to block: memory that is taken anew for each block is fetched
/// from the kernel page by page, and cleared, each time.
pub(crate) fn on_blocks_with<W>(
    blocks: std::ops::Range<u64>,
    threads: usize,
    own: impl Fn() -> W + Sync,
    each: impl Fn(u64, &mut W) -> Result<bool, Fault> + Sync,
) -> Result<(), Fault> {
    let next = AtomicU64::new(blocks.start);
    let stop = AtomicBool::new(false);
    let failed: Mutex<Option<Fault>> = Mutex::new(None);
    let work = || {
        let mut own = own();
        while !stop.load(Ordering::Relaxed) {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= blocks.end {
                return;
            }
            match each(block, &mut own) {
                Ok(true) => {}
                Ok(false) => stop.store(true, Ordering::Relaxed),
                Err(fault) => {
                    stop.store(true, Ordering::Relaxed);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let helpers = threads.min((blocks.end - blocks.start) as usize).saturating_sub(1);
        for _ in 0..helpers {
            // A thread that cannot be had is no error: this one does the work.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(fault) => Err(fault),
        None => Ok(()),
    }
}

/// A buffer on a page boundary: a copy from one that is not takes 1.6 times as long on some processors
/// (docs/decisions/0002-copy-ladder.md).
pub(crate) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
}

pub(crate) fn aligned() -> Aligned {
    let bytes = vec![0u8; PIECE_BYTES + 4096];
    let start = bytes.as_ptr().align_offset(4096).min(4096);
    Aligned { bytes, start }
}

impl Aligned {
    /// All of it.
    pub(crate) fn all(&mut self) -> &mut [u8] {
        self.piece(PIECE_BYTES)
    }

    pub(crate) fn piece(&mut self, bytes: usize) -> &mut [u8] {
        self.bytes.get_mut(self.start..self.start + bytes).unwrap_or_default()
    }
}

/// The file's BLAKE3 from its blocks' chaining values; `None` for a file of one block, whose value is of another kind.
pub(crate) fn whole_hash(blocks: &[Cv], size: u64) -> Option<blake3::Hash> {
    whole_hash_by(BLOCK_BYTES, blocks, size)
}

/// The same from the values of parts of `part_bytes` each, a power of two of blocks.
pub(crate) fn whole_hash_by(part_bytes: u64, parts: &[Cv], size: u64) -> Option<blake3::Hash> {
    if size <= part_bytes {
        return None;
    }
    let left = left_subtree_len(size);
    let (l, r) = (merged_by(part_bytes, parts, 0, left)?, merged_by(part_bytes, parts, left, size - left)?);
    Some(merge_subtrees_root(&l, &r, Mode::Hash))
}

pub(crate) fn merged(blocks: &[Cv], at: u64, bytes: u64) -> Option<Cv> {
    merged_by(BLOCK_BYTES, blocks, at, bytes)
}

fn merged_by(part_bytes: u64, parts: &[Cv], at: u64, bytes: u64) -> Option<Cv> {
    if bytes <= part_bytes {
        return parts.get((at / part_bytes) as usize).copied();
    }
    let left = left_subtree_len(bytes);
    let l = merged_by(part_bytes, parts, at, left)?;
    let r = merged_by(part_bytes, parts, at + left, bytes - left)?;
    Some(merge_subtrees_non_root(&l, &r, Mode::Hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_the_file_follows_from_its_blocks() {
        for size in
            [BLOCK_BYTES + 1, 2 * BLOCK_BYTES, 3 * BLOCK_BYTES - 5, 5 * BLOCK_BYTES, 7 * BLOCK_BYTES + 100]
        {
            let data: Vec<u8> = (0..size).map(|i| (i * 7 + i / 4096) as u8).collect();
            let cvs: Vec<Cv> = (0..blocks_of(size))
                .map(|b| {
                    block_cv(b, size, |at, room| {
                        let part = &data[at as usize..][..room.len()];
                        room.copy_from_slice(part);
                        Ok(room.len())
                    })
                    .unwrap()
                })
                .collect();
            assert_eq!(whole_hash(&cvs, size), Some(blake3::hash(&data)), "{size}");
        }
    }

    /// What a thread keeps is made once for it, and not for each block.
    #[test]
    fn a_thread_keeps_what_it_has_from_block_to_block() {
        for threads in [1, 2, 5] {
            let (made, done) = (AtomicU64::new(0), AtomicU64::new(0));
            let own = || made.fetch_add(1, Ordering::Relaxed);
            let each = |_: u64, _: &mut u64| {
                done.fetch_add(1, Ordering::Relaxed);
                Ok(true)
            };
            on_blocks_with(0..100, threads, own, each).unwrap();
            assert_eq!(done.into_inner(), 100);
            assert!(made.into_inner() <= threads as u64, "{threads} threads");
        }
    }
}
