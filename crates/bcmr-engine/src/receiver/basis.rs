//! The basis of a file that arrives: what the destination has of it already, looked at in chunks and put together with what
//! comes.
//!
//! Must not know what is done with it, nor whether it is an older version or another file. It is the sender's word where
//! which part belongs, and other programs may write to it meanwhile: what is made of it is compared as every block is.

use crate::chunks::{ChunkSum, Chunking, DELTA_BYTES_MIN, REST_BYTES_MIN, Span, chunk_of};
use bcmr_wire::limits::SMALL_FILE_BYTES;
use fastcopy::meta::{Info, Kind};
use fastcopy::read_write::read_append;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes read at a time when a basis is cut into chunks.
const READ_BYTES: usize = if cfg!(test) { 8 << 10 } else { 1 << 20 };
/// Chunks that are told at a time.
const TOLD_AT_ONCE: usize = 1024;

const _: () = assert!(TOLD_AT_ONCE <= bcmr_wire::limits::SUMS_MAX);

/// An open file that what arrives has something in common with.
pub(crate) struct Basis {
    file: OwnedFd,
    bytes: u64,
    /// Of the file that arrives.
    size: u64,
    /// Of how many bytes finer sums were asked for.
    asked_bytes: AtomicU64,
    /// Bytes that were taken from here, and need not cross.
    used: Arc<AtomicU64>,
}

impl Basis {
    /// `None`: it is no use for a file of `size` bytes.
    pub(crate) fn of(file: OwnedFd, size: u64, used: &Arc<AtomicU64>) -> Option<Basis> {
        let info = Info::of(&file).ok()?;
        let is_worth = info.kind == Kind::File && info.size >= DELTA_BYTES_MIN && size >= DELTA_BYTES_MIN;
        let (asked_bytes, used) = (AtomicU64::new(0), used.clone());
        is_worth.then_some(Basis { file, bytes: info.size, size, asked_bytes, used })
    }

    /// The same for a small file, where both are small.
    pub(crate) fn of_small(file: OwnedFd, size: u64, used: &Arc<AtomicU64>) -> Option<Basis> {
        let info = Info::of(&file).ok()?;
        let small = REST_BYTES_MIN..SMALL_FILE_BYTES;
        let is_worth = info.kind == Kind::File && small.contains(&info.size) && small.contains(&size);
        let (asked_bytes, used) = (AtomicU64::new(0), used.clone());
        is_worth.then_some(Basis { file, bytes: info.size, size, asked_bytes, used })
    }

    /// All the chunks of a small one.
    pub(crate) fn chunks(&self) -> Option<Vec<ChunkSum>> {
        self.finer(0, self.bytes)
    }

    /// Tells all of its chunks, `each` with where the first of them begins; no more than a sender keeps.
    ///
    /// # Errors
    /// Those of `each`. What cannot be read has no chunks.
    pub(crate) fn tell(&self, mut each: impl FnMut(u64, &[ChunkSum]) -> io::Result<()>) -> io::Result<()> {
        let chunking = Chunking::of(self.size);
        let mut room = Vec::new();
        let (mut at, mut told) = (0, 0);
        let mut some = Vec::with_capacity(TOLD_AT_ONCE);
        // The first byte in `room`, and the first byte that was not told of.
        let (mut read_to, mut first) = (0_u64, 0_u64);
        while at < self.bytes && told < bcmr_wire::limits::SUMS_KEPT_MAX {
            let want = READ_BYTES.min(usize::try_from(self.bytes - read_to).unwrap_or(READ_BYTES));
            match read_append(&self.file, read_to, want, &mut room) {
                Ok(n) if n == want => {}
                // It became shorter, or cannot be read: what is known of it will do.
                _ => break,
            }
            read_to += want as u64;
            let mut cut = Vec::new();
            let done = chunking.cut(&room, read_to == self.bytes, |chunk| cut.push(chunk_of(chunk)));
            room.drain(..done);
            at += done as u64;
            for chunk in cut.into_iter().take(bcmr_wire::limits::SUMS_KEPT_MAX - told) {
                told += 1;
                some.push(chunk);
                if some.len() == TOLD_AT_ONCE {
                    each(first, &some)?;
                    first += some.iter().map(|chunk| chunk.bytes).sum::<u64>();
                    some.clear();
                }
            }
        }
        if some.is_empty() { Ok(()) } else { each(first, &some) }
    }

    /// The finer chunks of a range. `None`: it has no such range, or more was asked for than there can be to ask.
    pub(crate) fn finer(&self, at: u64, bytes: u64) -> Option<Vec<ChunkSum>> {
        at.checked_add(bytes).filter(|end| *end <= self.bytes)?;
        // Each part of the file is asked about once, with what is around it; so much is less than that.
        let most = self.size.saturating_add(self.bytes).saturating_mul(4);
        let asked = self.asked_bytes.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if asked > most {
            return None;
        }
        let mut room = Vec::new();
        self.read(at, usize::try_from(bytes).ok()?, &mut room);
        let mut sums = Vec::new();
        Chunking::FINE.cut(&room, true, |chunk| sums.push(chunk_of(chunk)));
        Some(sums)
    }

    /// Puts together what `spans` say, `carried` being what they do not have from here. `None`: they speak of what is not
    /// there, or of more or less than was carried.
    pub(crate) fn assemble(&self, spans: &[Span], carried: &[u8]) -> Option<Vec<u8>> {
        let length: u64 = spans.iter().map(|span| span.bytes).sum();
        let mut out = Vec::with_capacity(usize::try_from(length).ok()?);
        let mut rest = carried;
        for span in spans {
            let bytes = usize::try_from(span.bytes).ok()?;
            match span.from {
                None => {
                    let (these, behind) = rest.split_at_checked(bytes)?;
                    out.extend_from_slice(these);
                    rest = behind;
                }
                Some(from) => {
                    from.checked_add(span.bytes).filter(|end| *end <= self.bytes)?;
                    self.read(from, bytes, &mut out);
                    self.used.fetch_add(span.bytes, Relaxed);
                }
            }
        }
        rest.is_empty().then_some(out)
    }

    /// Adds a range of it to `out`. What cannot be read is zeros there: the block will not have the value that it should have,
    /// and comes whole.
    fn read(&self, at: u64, bytes: usize, out: &mut Vec<u8>) {
        let whole = out.len() + bytes;
        let _read = read_append(&self.file, at, bytes, out).is_ok();
        out.resize(whole, 0);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use crate::chunks::{ChunkIndex, noise};

    fn basis_of(bytes: &[u8], size: u64) -> (Option<Basis>, Arc<AtomicU64>) {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
        let used = Arc::default();
        (Basis::of(file.into(), size, &used), used)
    }

    #[test]
    fn its_chunks_are_those_of_its_content_however_it_is_read() {
        for bytes in [DELTA_BYTES_MIN as usize, READ_BYTES, READ_BYTES + 1, 40 * READ_BYTES + 77] {
            let content = noise(1, bytes);
            let (basis, _) = basis_of(&content, bytes as u64);
            let (mut told, mut end) = (Vec::new(), 0);
            let tell = |at, some: &[ChunkSum]| {
                assert_eq!(at, end);
                end += some.iter().map(|chunk| chunk.bytes).sum::<u64>();
                told.extend_from_slice(some);
                Ok(())
            };
            basis.unwrap().tell(tell).unwrap();
            let mut expected = Vec::new();
            Chunking::of(bytes as u64).cut(&content, true, |chunk| expected.push(chunk_of(chunk)));
            assert_eq!((told, end), (expected, bytes as u64));
        }
    }

    #[test]
    fn only_what_is_there_is_asked_about_and_taken() {
        let content = noise(1, 10_000);
        let (basis, used) = basis_of(&content, 10_000);
        let basis = basis.unwrap();
        let mut index = ChunkIndex::from(5_000);
        index.extend(&basis.finer(5_000, 5_000).unwrap());
        assert_eq!(index.end(), 10_000);
        assert!(basis.finer(5_000, 5_001).is_none() && basis.finer(u64::MAX, 2).is_none());
        let span = |at, bytes, from| Span { at, bytes, from };
        let made = basis.assemble(&[span(0, 3, Some(9_997)), span(3, 2, None), span(5, 1, Some(0))], b"ab");
        assert_eq!(made, Some([&content[9_997..], b"ab", &content[..1]].concat()));
        assert_eq!(used.load(Relaxed), 4);
        for (spans, carried) in [
            (vec![span(0, 1, Some(10_000))], b"".as_slice()),
            (vec![span(0, 4, Some(u64::MAX - 2))], b""),
            (vec![span(0, 3, None)], b"ab"),
            (vec![span(0, 1, None)], b"ab"),
        ] {
            assert_eq!(basis.assemble(&spans, carried), None, "{spans:?}");
        }
    }

    /// One who asks for ever would have this side read for ever.
    #[test]
    fn finer_sums_are_given_so_many_times() {
        let (basis, _) = basis_of(&noise(1, 1_000), 1_000);
        let basis = basis.unwrap();
        let given = (0..100).take_while(|_| basis.finer(0, 1_000).is_some()).count();
        assert_eq!(given, 8);
    }

    #[test]
    fn a_small_one_is_neither_short_nor_large() {
        let used = Arc::default();
        let of = |bytes: u64, size| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(bytes).unwrap();
            Basis::of_small(file.into(), size, &used).is_some()
        };
        let (least, most) = (REST_BYTES_MIN, SMALL_FILE_BYTES - 1);
        assert!(of(least, most) && of(most, least));
        assert!(!of(least - 1, most) && !of(most + 1, least) && !of(least, most + 1) && !of(most, least - 1));
    }

    #[test]
    fn what_is_short_is_no_basis() {
        let least = DELTA_BYTES_MIN as usize;
        assert!(basis_of(&noise(1, least - 1), 10_000).0.is_none());
        assert!(basis_of(&noise(1, least), DELTA_BYTES_MIN - 1).0.is_none());
        assert!(basis_of(&noise(1, least), DELTA_BYTES_MIN).0.is_some());
    }
}
