//! Where a file's data is, and where its holes are: `lseek(SEEK_DATA)` and `lseek(SEEK_HOLE)`, and runs of zeros in a
//! buffer.
//!
//! Must not know what is done with either.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The unit in which zeros become a hole, bytes: the block of nearly every filesystem. A smaller one would make no
/// hole, a larger one misses some.
pub const BLOCK: usize = 4096;

/// The extents of data of a file, from the front, none empty, in order and apart. What lies between them, and between
/// the last one and the end, is hole. Moves the descriptor's position.
///
/// When in doubt it is data: a filesystem that does not know (EINVAL and the like), or that answers with nonsense, has
/// the rest of the file as one extent. So nothing is lost by believing this, whatever changes the file meanwhile; the
/// worst is that a hole is filled, or that a read at an extent finds the end of the file.
#[derive(Debug)]
pub struct Extents<'a> {
    fd: BorrowedFd<'a>,
    at: u64,
    end: u64,
}

impl<'a> Extents<'a> {
    /// The extents of `fd` in the first `len` bytes.
    #[must_use]
    pub fn new(fd: BorrowedFd<'a>, len: u64) -> Self {
        Extents { fd, at: 0, end: len }
    }

    /// The extents of `fd` in a part of it.
    #[must_use]
    pub fn within(fd: BorrowedFd<'a>, range: Range<u64>) -> Self {
        Extents { fd, at: range.start, end: range.end }
    }
}

impl Iterator for Extents<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        if self.at >= self.end {
            return None;
        }
        let rest = self.at..self.end;
        let start = match seek(self.fd, SeekFrom::Data(self.at)) {
            // An answer before the question, or past the end we were told: the first is nonsense, the second is a
            // hole up to the end.
            Ok(off) if off < rest.start => rest.start,
            Ok(off) => off,
            // No data from here on; or the file became shorter than this, which comes to the same.
            Err(Errno::NXIO) => rest.end,
            Err(_) => {
                self.at = self.end;
                return Some(rest);
            }
        };
        if start >= self.end {
            self.at = self.end;
            return None;
        }
        let stop = match seek(self.fd, SeekFrom::Hole(start)) {
            Ok(off) if off > start => off.min(self.end),
            // A hole that starts where data starts is nonsense; ENXIO means the file was cut here just now.
            Ok(_) | Err(_) => self.end,
        };
        self.at = stop;
        Some(start..stop)
    }
}

/// Whether all of it is zero.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    // In pieces, so that the inner loop has no exit and becomes vector code while the first byte of data still ends it.
    bytes.chunks(256).all(|piece| piece.iter().fold(0, |acc, byte| acc | byte) == 0)
}

/// The runs of `buf` that are worth writing, as ranges into `buf`: what is left when every block of `block` bytes, mostly
/// [`BLOCK`] (blocks counted from the file's start; `off` is where `buf` lies in the file), that is all zero is taken out.
pub fn data_runs(buf: &[u8], off: u64, block: usize) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    let block_end = move |at: usize| {
        let into = ((off + at as u64) % block as u64) as usize;
        (at + block - into).min(buf.len())
    };
    std::iter::from_fn(move || {
        while at < buf.len() && is_zero(&buf[at..block_end(at)]) {
            at = block_end(at);
        }
        let start = at;
        while at < buf.len() && !is_zero(&buf[at..block_end(at)]) {
            at = block_end(at);
        }
        (start < at).then_some(start..at)
    })
}

/// `fstat(fd)`: the length now, bytes.
///
/// # Errors
/// What the kernel says.
pub fn length(fd: impl AsFd) -> Result<u64, Errno> {
    rustix::fs::fstat(&fd).map(|st| u64::try_from(st.st_size).unwrap_or(0))
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;
    use std::io::{Seek as _, SeekFrom as Pos, Write as _};

    #[test]
    fn zeros() {
        assert!(is_zero(&[]));
        let mut b = vec![0; 5000];
        assert!(is_zero(&b));
        for at in [0, 1, 255, 256, 4095, 4096, 4999] {
            b[at] = 1;
            assert!(!is_zero(&b), "{at}");
            b[at] = 0;
        }
    }

    #[test]
    fn runs() {
        let check = |marks: &[usize], len: usize, off: u64, expect: &[Range<usize>]| {
            let mut b = vec![0; len];
            for &m in marks {
                b[m] = 7;
            }
            assert_eq!(data_runs(&b, off, BLOCK).collect::<Vec<_>>(), expect, "{marks:?} {len} {off}");
        };
        check(&[], 0, 0, &[]);
        check(&[], 9000, 0, &[]);
        check(&[0], 1, 0, &[0..1]);
        check(&[0], 9000, 0, &[0..4096]);
        check(&[8191], 9000, 0, &[4096..8192]);
        check(&[0, 4096], 9000, 0, &[0..8192]);
        check(&[0, 8192], 9000, 0, &[0..4096, 8192..9000]);
        // A buffer that starts 96 bytes before a block of the file ends.
        check(&[0], 9000, 4000, &[0..96]);
        check(&[96], 9000, 4000, &[96..4192]);
        check(&[95, 96], 9000, 4000, &[0..4192]);
    }

    #[test]
    fn extents() {
        let mut f = tempfile::tempfile().unwrap();
        assert_eq!(Extents::new(f.as_fd(), 0).count(), 0);
        f.set_len(1 << 20).unwrap();
        f.seek(Pos::Start(128 << 10)).unwrap();
        f.write_all(&[1; 4096]).unwrap();
        f.seek(Pos::Start((1 << 20) - 10)).unwrap();
        f.write_all(&[1; 10]).unwrap();
        let got: Vec<_> = Extents::new(f.as_fd(), 1 << 20).collect();
        // Whatever the filesystem's granularity, the data is inside and the extents are in order.
        assert!(got.iter().any(|e| e.start <= 128 << 10 && e.end >= (128 << 10) + 4096), "{got:?}");
        assert!(got.last().unwrap().end == 1 << 20, "{got:?}");
        assert!(got.windows(2).all(|w| w[0].end <= w[1].start), "{got:?}");
        // Told a length beyond the file, and one inside it.
        assert!(Extents::new(f.as_fd(), 1 << 30).all(|e| e.start < e.end && e.end <= 1 << 30));
        assert!(Extents::new(f.as_fd(), 100).all(|e| e.end <= 100));
        // A part of it: the same, cut.
        let within = 200 << 10..(1 << 20) - 5;
        let part: Vec<_> = Extents::within(f.as_fd(), within.clone()).collect();
        let cut: Vec<_> = got
            .iter()
            .map(|e| e.start.max(within.start)..e.end.min(within.end))
            .filter(|e| e.start < e.end)
            .collect();
        assert_eq!(part, cut);
        // Not a file with holes at all: all of it is data.
        let (r, _w) = rustix::pipe::pipe().unwrap();
        assert_eq!(Extents::new(r.as_fd(), 10).collect::<Vec<_>>(), [0..10]);
    }
}
