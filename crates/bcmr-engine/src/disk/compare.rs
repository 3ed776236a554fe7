//! Whether two files have the same bytes. Must not know why that is asked.
//!
//! Both are read once, piece by piece, and reading ends at the first piece that differs. What a size says is where reading
//! may end early, never that nothing is behind it.

use super::{Fault, Side};
use crate::blocks::{BLOCK_BYTES, PIECE_BYTES, aligned, on_blocks};
use crate::error::Op;
use fastcopy::read_write::{read_expected, read_full};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads at an offset until the room is full or the source ends.
pub(super) type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> Result<usize, Fault> + 'a;

/// What two small files are read into.
#[derive(Default)]
pub(crate) struct CompareRooms {
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

/// Whether the source has from `at` to `end` what is there.
pub(crate) fn is_same(
    there: &OwnedFd,
    at: u64,
    end: u64,
    source: &ReadAt<'_>,
    go_on: &dyn Fn() -> bool,
) -> Result<bool, Fault> {
    Ok(same_until(there, at..end, source, &|_| go_on())? == Some(end))
}

/// Whether two files have the same content, to the end of both; `ours` says that it has `size` bytes. From two blocks on
/// as many threads share it as `threads` says. `go_on` is told of bytes compared and says whether to.
pub(crate) fn same_content(
    ours: &OwnedFd,
    theirs: &OwnedFd,
    size: u64,
    rooms: &mut CompareRooms,
    threads: impl FnOnce() -> usize,
    go_on: &(dyn Fn(u64) -> bool + Sync),
) -> Result<bool, Fault> {
    let source = |at: u64, room: &mut [u8]| read_full(ours, at, room).map_err(of(Side::Source));
    if size < PIECE_BYTES as u64 {
        let len = size as usize;
        let read = |fd: &OwnedFd, side, room: &mut Vec<u8>| {
            room.clear();
            read_expected(fd, 0, len, room).map_err(of(side))
        };
        let counts =
            [read(ours, Side::Source, &mut rooms.ours)?, read(theirs, Side::Dest, &mut rooms.theirs)?];
        // A file that has more than it said is read to its end below.
        if counts.iter().all(|n| *n <= len) {
            let goes = go_on(rooms.ours.len() as u64);
            let same = rooms.ours == rooms.theirs;
            return if goes || !same { Ok(same) } else { Err(Fault::interrupted()) };
        }
    }
    let mut at = 0;
    let blocks = size / BLOCK_BYTES;
    let threads = if blocks < 2 { 1 } else { threads() };
    if threads > 1 {
        let differs = AtomicBool::new(false);
        on_blocks(0..blocks, threads, |block| {
            let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
            let end = range.end;
            let same = same_until(theirs, range, &source, go_on)? == Some(end);
            if !same {
                differs.store(true, Ordering::Relaxed);
            }
            Ok(same)
        })?;
        if differs.into_inner() {
            return Ok(false);
        }
        at = blocks * BLOCK_BYTES;
    }
    Ok(same_until(theirs, at..u64::MAX, &source, go_on)?.is_some())
}

fn of(side: Side) -> impl Fn(std::io::Error) -> Fault {
    move |e| Fault::os(side, Op::Read, e)
}

/// Compares a range as far as both files have it: the offset where that ends, or nothing where they differ.
fn same_until(
    there: &OwnedFd,
    range: Range<u64>,
    source: &ReadAt<'_>,
    go_on: &dyn Fn(u64) -> bool,
) -> Result<Option<u64>, Fault> {
    let (mut ours, mut theirs) = (aligned(), aligned());
    let Range { start: mut at, end } = range;
    while at < end {
        let bytes = (end - at).min(PIECE_BYTES as u64 - at % PIECE_BYTES as u64) as usize;
        let (one, other) = (ours.piece(bytes), theirs.piece(bytes));
        let n = read_full(there, at, one).map_err(of(Side::Dest))?;
        if source(at, other)? != n || one.get(..n) != other.get(..n) {
            return Ok(None);
        }
        at += n as u64;
        if !go_on(n as u64) {
            return Err(Fault::interrupted());
        }
        if n < bytes {
            break;
        }
    }
    Ok(Some(at))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Two files, and what the first says of its size.
    fn compared(ours: &[u8], theirs: &[u8], size: u64, threads: usize) -> (bool, u64) {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            std::fs::write(dir.path().join(name), bytes).unwrap();
            OwnedFd::from(std::fs::File::open(dir.path().join(name)).unwrap())
        };
        let (ours, theirs) = (file("ours", ours), file("theirs", theirs));
        let done = AtomicU64::new(0);
        let go_on = |bytes| {
            done.fetch_add(bytes, Ordering::Relaxed);
            true
        };
        let same =
            same_content(&ours, &theirs, size, &mut CompareRooms::default(), || threads, &go_on).unwrap();
        (same, done.into_inner())
    }

    #[test]
    fn one_byte_anywhere_makes_two_files_differ() {
        let (piece, block) = (PIECE_BYTES as u64, BLOCK_BYTES);
        for size in [0, 1, piece - 1, piece, piece + 1, block, 2 * block, 3 * block + piece + 7] {
            let ours: Vec<u8> = (0..size).map(|n| (n * 7 % 251) as u8).collect();
            for threads in [1, 3] {
                assert_eq!(compared(&ours, &ours, size, threads), (true, size), "{size}");
                for at in [0, size / 2, size.saturating_sub(1)].into_iter().filter(|at| *at < size) {
                    let mut theirs = ours.clone();
                    theirs[at as usize] ^= 1;
                    assert!(!compared(&ours, &theirs, size, threads).0, "{size}, byte {at}");
                }
                for theirs in [&ours[..ours.len().saturating_sub(1)], &[&ours[..], b"x"].concat()] {
                    let same = theirs.len() == ours.len();
                    assert_eq!(compared(&ours, theirs, size, threads).0, same, "{size}, {}", theirs.len());
                }
            }
        }
    }

    /// A size that is a lie, as procfs tells it, or that was true before both files grew.
    #[test]
    fn what_is_behind_the_size_is_compared_too() {
        for (size, length) in [(0, 5), (0, 2 * PIECE_BYTES), (PIECE_BYTES, 2 * PIECE_BYTES), (9, 3)] {
            let ours = vec![7; length];
            assert!(compared(&ours, &ours, size as u64, 1).0, "{size} of {length}");
            let mut theirs = ours.clone();
            *theirs.last_mut().unwrap() = 8;
            assert!(!compared(&ours, &theirs, size as u64, 1).0, "{size} of {length}");
        }
    }
}
