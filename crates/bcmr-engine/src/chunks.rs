//! Files in chunks whose borders follow from their content (FastCDC v2020), and which parts of a file a basis has.
//!
//! Pure: bytes are handed in. Must not know what a chunk travels as. A byte that is put in moves the borders near it and no
//! others, so that what is behind it is found again. Sums are short: who goes by one compares the whole block in the end.

use crate::blocks::hash_key;
use bcmr_wire::limits::{
    CHUNK_BYTES_MAX, DELTA_BYTES_MIN as WIRE_DELTA_BYTES_MIN, REST_BYTES_MIN as WIRE_REST_BYTES_MIN,
};
use fastcdc::v2020::FastCDC;
use std::collections::HashMap;
use std::ops::Range;

/// From how many bytes on a file, and its basis, is compared by chunks. As much smaller in tests as blocks are.
pub(crate) const DELTA_BYTES_MIN: u64 =
    if cfg!(test) { WIRE_DELTA_BYTES_MIN >> 10 } else { WIRE_DELTA_BYTES_MIN };

/// The same of a small file, which is cut into the finest chunks at once.
pub(crate) const REST_BYTES_MIN: u64 =
    if cfg!(test) { WIRE_REST_BYTES_MIN >> 8 } else { WIRE_REST_BYTES_MIN };

/// How long chunks are: at least, on average, and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunking {
    min: usize,
    average: usize,
    max: usize,
}

/// Files up to so many bytes have the shortest chunks, up to so many those of the middle.
const SHORT_UP_TO: u64 = 16 << 20;
const MIDDLE_UP_TO: u64 = 128 << 20;

impl Chunking {
    const fn around(average: usize) -> Chunking {
        // As short as the algorithm goes: in tests a block has several.
        let average = if cfg!(test) { 256 } else { average };
        Chunking { min: average / 4, average, max: average * 4 }
    }

    /// What is between two chunks that were found again is looked at in these.
    pub(crate) const FINE: Chunking = Chunking::around(2 << 10);

    /// For a file of `size` bytes and its basis: the fewer sums a long one has, the better.
    pub(crate) fn of(size: u64) -> Chunking {
        Chunking::around(if size <= SHORT_UP_TO {
            16 << 10
        } else if size <= MIDDLE_UP_TO {
            32 << 10
        } else {
            64 << 10
        })
    }

    /// Cuts the bytes that a range of a file consists of, as far as a border is certain: `last` where nothing follows.
    /// Calls `each` for every chunk, and returns how many bytes they have.
    pub(crate) fn cut(self, bytes: &[u8], last: bool, mut each: impl FnMut(&[u8])) -> usize {
        let cutter = FastCDC::new(bytes, self.min, self.average, self.max);
        let mut at = 0;
        while at < bytes.len() && (last || bytes.len() - at >= self.max) {
            let end = self.end(&cutter, bytes, at);
            each(bytes.get(at..end).unwrap_or_default());
            at = end;
        }
        at
    }

    /// Where the chunk ends that begins at `at`. There is always one byte at least.
    fn end(self, cutter: &FastCDC<'_>, bytes: &[u8], at: usize) -> usize {
        let left = (bytes.len() - at).min(self.max);
        cutter.cut(at, left).1.clamp(at + 1, at + left)
    }
}

/// What is said of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkSum {
    pub(crate) bytes: u64,
    pub(crate) sum: u64,
}

fn sum_of(chunk: &[u8]) -> u64 {
    hash_key(blake3::hash(chunk).as_bytes())
}

/// What is said of `chunk`: how long it is, and the beginning of its BLAKE3.
pub(crate) fn chunk_of(chunk: &[u8]) -> ChunkSum {
    ChunkSum { bytes: chunk.len() as u64, sum: sum_of(chunk) }
}

/// The chunks of a basis, or of a part of it, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkIndex {
    chunks: Vec<BasisChunk>,
    by_sum: HashMap<u64, usize>,
    end: u64,
}

#[derive(Clone, Copy, Debug)]
struct BasisChunk {
    at: u64,
    bytes: usize,
    sum: u64,
}

impl ChunkIndex {
    /// Without chunks yet; the first begins at `at`.
    pub(crate) fn from(at: u64) -> ChunkIndex {
        ChunkIndex { end: at, ..ChunkIndex::default() }
    }

    /// Takes the next chunks.
    pub(crate) fn extend(&mut self, chunks: &[ChunkSum]) {
        for ChunkSum { bytes, sum } in chunks {
            self.by_sum.entry(*sum).or_insert(self.chunks.len());
            let at = self.end;
            self.end = self.end.saturating_add(*bytes);
            self.chunks.push(BasisChunk {
                at,
                bytes: usize::try_from(*bytes).unwrap_or(usize::MAX),
                sum: *sum,
            });
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Where the last one ends.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }
}

/// A part of a file: where the basis has it, or that it has it nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) from: Option<u64>,
}

impl Span {
    fn end(&self) -> u64 {
        self.at + self.bytes
    }

    /// The part of it that lies in `range`.
    pub(crate) fn within(&self, range: &Range<u64>) -> Option<Span> {
        let (at, end) = (self.at.max(range.start), self.end().min(range.end));
        let from = self.from.map(|from| from + at.saturating_sub(self.at));
        (at < end).then(|| Span { at, bytes: end - at, from })
    }
}

/// Adds a span; one that goes on where the last one ends, here and in the basis, becomes part of that.
pub(crate) fn push_span(spans: &mut Vec<Span>, span: Span) {
    if let Some(last) = spans.last_mut()
        && last.end() == span.at
        && match (last.from, span.from) {
            (Some(before), Some(from)) => before + last.bytes == from,
            (None, None) => true,
            _ => false,
        }
    {
        last.bytes += span.bytes;
        return;
    }
    if span.bytes > 0 {
        spans.push(span);
    }
}

/// How far a file was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatchPlace {
    /// Bytes from its start.
    pub(crate) at: u64,
    /// The chunk of the basis that is expected next: the one behind the last that was found.
    next: Option<usize>,
}

impl MatchPlace {
    /// At the beginning of what the index is about; where a file goes on in the middle, nothing is expected.
    pub(crate) fn at(at: u64) -> MatchPlace {
        MatchPlace { at, next: (at == 0).then_some(0) }
    }

    /// At `at`, where the basis is expected to be at the first chunk of the index.
    pub(crate) fn expecting(at: u64) -> MatchPlace {
        MatchPlace { at, next: Some(0) }
    }
}

/// Bytes of a file beyond a range that must be at hand to look for the range: a chunk may reach so far.
pub(crate) const AHEAD_BYTES: u64 = CHUNK_BYTES_MAX;

/// Says of a file's bytes, which begin at `place`, where the basis has them: at least up to `stop`, and beyond it to the end
/// of the last chunk. Of the bytes behind `stop` there are [`AHEAD_BYTES`] at least, or all there are.
pub(crate) fn find(
    index: &ChunkIndex,
    chunking: Chunking,
    place: &mut MatchPlace,
    bytes: &[u8],
    stop: u64,
) -> Vec<Span> {
    let start = place.at;
    let cutter = FastCDC::new(bytes, chunking.min, chunking.average, chunking.max);
    let mut spans = Vec::new();
    while place.at < stop {
        let at = usize::try_from(place.at - start).unwrap_or(usize::MAX);
        if at >= bytes.len() {
            break;
        }
        let (end, found) = match expected(index, place.next, bytes, at) {
            Some(found) => found,
            None => {
                let end = chunking.end(&cutter, bytes, at);
                (end, known(index, bytes.get(at..end).unwrap_or_default()))
            }
        };
        let from = found.and_then(|k| index.chunks.get(k)).map(|known| known.at);
        let length = (end - at) as u64;
        push_span(&mut spans, Span { at: place.at, bytes: length, from });
        place.at += length;
        place.next = found.map(|k| k + 1);
    }
    spans
}

/// The chunk that comes next if all goes on as it did: no border need be looked for then.
fn expected(
    index: &ChunkIndex,
    next: Option<usize>,
    bytes: &[u8],
    at: usize,
) -> Option<(usize, Option<usize>)> {
    let next = next?;
    let chunk = index.chunks.get(next)?;
    let end = at.checked_add(chunk.bytes)?;
    (sum_of(bytes.get(at..end)?) == chunk.sum).then_some((end, Some(next)))
}

fn known(index: &ChunkIndex, chunk: &[u8]) -> Option<usize> {
    let found = index.by_sum.get(&sum_of(chunk)).copied()?;
    index.chunks.get(found).is_some_and(|known| known.bytes == chunk.len()).then_some(found)
}

/// A part of a file that was not found, and where the basis probably has something like it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) run: Range<u64>,
    pub(crate) basis: Range<u64>,
}

/// So much more than the part itself is looked at where only one of its ends is known.
const AROUND_BYTES: u64 = if cfg!(test) { 256 } else { 16 << 10 };

/// Which parts of a block are worth a second look, at finer chunks. `before`: where the basis would go on if the block went
/// on as the last one ended. `most` is the longest part that is asked about: what is new altogether is not.
pub(crate) fn gaps(spans: &[Span], before: Option<u64>, basis_end: u64, most: u64) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for (k, span) in spans.iter().enumerate() {
        if span.from.is_some() || span.bytes > most {
            continue;
        }
        let previous = k.checked_sub(1).and_then(|k| spans.get(k));
        let low = previous.and_then(|span| Some(span.from? + span.bytes));
        let high = spans.get(k + 1).and_then(|span| span.from);
        let wide = span.bytes + AROUND_BYTES;
        let basis = match (low, high) {
            (Some(low), Some(high)) if low < high && high - low <= most => low..high,
            (Some(low), _) => low..low.saturating_add(wide),
            (None, Some(high)) => high.saturating_sub(wide)..high,
            (None, None) => {
                let low = before.unwrap_or(span.at);
                low.saturating_sub(AROUND_BYTES)..low.saturating_add(wide)
            }
        };
        let basis = basis.start.min(basis_end)..basis.end.min(basis_end);
        let basis = basis.start..basis.end.min(basis.start.saturating_add(most));
        if !basis.is_empty() {
            gaps.push(Gap { run: span.at..span.end(), basis });
        }
    }
    gaps
}

/// Entrance for the fuzzer: a basis and a file made from any bytes, sums of the basis and of nothing, and what is found by them.
#[cfg(fuzzing)]
pub fn fuzz(data: &[u8]) {
    let Some(([cut, lies, most], rest)) = data.split_first_chunk::<3>() else { return };
    let (basis, new) = rest.split_at(usize::from(*cut).min(rest.len()));
    let (basis, new) = (basis.repeat(64), new.repeat(64));
    let mut index = ChunkIndex::from(0);
    let mut told = Vec::new();
    Chunking::FINE.cut(&basis, true, |chunk| told.push(chunk_of(chunk)));
    for (k, sum) in told.iter_mut().enumerate().filter(|(k, _)| lies >> (k % 8) & 1 == 1) {
        *sum = ChunkSum { bytes: sum.bytes.wrapping_mul(k as u64) % CHUNK_BYTES_MAX + 1, ..*sum };
    }
    index.extend(&told);
    let (mut place, mut all) = (MatchPlace::at(0), Vec::new());
    for span in find(&index, Chunking::FINE, &mut place, &new, new.len() as u64) {
        push_span(&mut all, span);
    }
    let mut at = 0;
    for span in &all {
        assert!(span.at == at && span.bytes > 0);
        assert!(span.from.is_none_or(|from| from + span.bytes <= index.end()));
        at = span.end();
    }
    assert_eq!(at, new.len() as u64);
    for gap in gaps(&all, Some(u64::from(*most)), index.end(), u64::from(*most) * 64) {
        assert!(!gap.basis.is_empty() && gap.basis.end <= index.end());
        assert!(gap.basis.end - gap.basis.start <= u64::from(*most) * 64);
    }
}

/// Bytes that nothing is found in again, always the same for a seed.
#[cfg(test)]
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn index_of(bytes: &[u8], at: u64, chunking: Chunking) -> ChunkIndex {
        let mut index = ChunkIndex::from(at);
        let cut = chunking.cut(bytes, true, |chunk| index.extend(&[chunk_of(chunk)]));
        assert_eq!((cut, index.end()), (bytes.len(), at + bytes.len() as u64));
        index
    }

    /// Looks a whole file up in steps of `step` bytes, as blocks are; what is found is compared with the basis.
    fn find_all(index: &ChunkIndex, basis: &[u8], new: &[u8], step: usize) -> Vec<Span> {
        let mut place = MatchPlace::at(0);
        let mut all = Vec::new();
        while (place.at as usize) < new.len() {
            let at = place.at as usize;
            let stop = (at / step + 1) * step;
            let end = (stop + AHEAD_BYTES as usize).min(new.len());
            let spans = find(index, Chunking::of(0), &mut place, &new[at..end], stop as u64);
            assert!(place.at as usize >= stop.min(new.len()));
            spans.into_iter().for_each(|span| push_span(&mut all, span));
        }
        let mut at = 0;
        for span in &all {
            assert_eq!(span.at, at);
            if let Some(from) = span.from {
                let (here, there) = (span.at as usize, from as usize);
                let n = span.bytes as usize;
                assert!(new[here..here + n] == basis[there..there + n]);
            }
            at = span.end();
        }
        assert_eq!(at, new.len() as u64);
        all
    }

    fn lacking(spans: &[Span]) -> u64 {
        spans.iter().filter(|span| span.from.is_none()).map(|span| span.bytes).sum()
    }

    #[test]
    fn a_change_costs_the_chunks_around_it() {
        let basis = noise(1, 100_000);
        let index = index_of(&basis, 0, Chunking::of(0));
        let near = 4 * Chunking::of(0).max as u64;
        let mut put_in = basis.clone();
        put_in.insert(30_000, 7);
        let mut taken_out = basis.clone();
        taken_out.drain(40_000..40_100);
        let mut changed = basis.clone();
        changed[50_000] ^= 1;
        let moved = [&basis[60_000..], &basis[..60_000]].concat();
        let table = [
            ("the same", basis.clone(), 0),
            ("a byte put in", put_in, near),
            ("some taken out", taken_out, near),
            ("a byte changed", changed, near),
            ("its halves exchanged", moved, 2 * near),
            ("cut off", basis[..70_001].to_vec(), near),
            ("longer", [basis.clone(), noise(2, 5_000)].concat(), near + 5_000),
            ("nothing of it", noise(3, 100_000), 100_000),
        ];
        for (what, new, most) in table {
            for step in [512, 4096, 1 << 20] {
                let lacks = lacking(&find_all(&index, &basis, &new, step));
                assert!(lacks <= most, "{what}, in steps of {step}: {lacks} bytes of {most}");
            }
        }
    }

    #[test]
    fn what_is_asked_about_at_finer_chunks() {
        let span = |at, bytes, from| Span { at, bytes, from };
        let gap = |run: Range<u64>, basis: Range<u64>| Gap { run, basis };
        let around = AROUND_BYTES;
        let table = [
            (vec![span(0, 100, Some(0))], None, vec![]),
            (
                vec![span(0, 100, Some(0)), span(100, 50, None), span(150, 10, Some(170))],
                None,
                vec![gap(100..150, 100..170)],
            ),
            // Put in between two that follow on one another: what is around it may have a part.
            (
                vec![span(0, 100, Some(0)), span(100, 50, None), span(150, 10, Some(100))],
                None,
                vec![gap(100..150, 100..150 + around)],
            ),
            (vec![span(0, 50, None), span(50, 10, Some(500))], None, vec![gap(0..50, 450 - around..500)]),
            (vec![span(5_000, 50, None)], None, vec![gap(5_000..5_050, 5_000 - around..5_050 + around)]),
            (vec![span(5_000, 50, None)], Some(300), vec![gap(5_000..5_050, 300 - around..350 + around)]),
            (vec![span(5_000, 1_001, None)], None, vec![]),
            // Behind the end of the basis there is nothing.
            (vec![span(9_000, 100, Some(9_900)), span(9_100, 60, None)], None, vec![]),
        ];
        for (spans, before, expected) in table {
            assert_eq!(gaps(&spans, before, 10_000, 1_000), expected, "{spans:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_the_basis_has(
            seed: u64, bytes in 0usize..20_000, edits in proptest::collection::vec((0usize..20_000, 0usize..600, any::<bool>()), 0..6),
            step in 1usize..9_000,
        ) {
            let basis = noise(seed, bytes);
            let mut new = basis.clone();
            for (at, length, puts) in edits {
                let at = at.min(new.len());
                if puts {
                    new.splice(at..at, noise(at as u64, length));
                } else {
                    new.drain(at..(at + length).min(new.len()));
                }
            }
            find_all(&index_of(&basis, 0, Chunking::of(0)), &basis, &new, step);
        }
    }
}
