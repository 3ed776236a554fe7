//! A large file of which the receiver has a basis: which parts of each block it has, and what comes next to find that out.
//! Pure: the file's bytes are handed in, and nothing is sent here.
//!
//! Must not know what the basis is, nor how a block is sent. Blocks are looked at one after the other, a few ahead of those
//! that are sent. Between chunks that the receiver has it may have most of what is there as well: of such a gap finer sums
//! are asked for, and the block waits for them.

use crate::blocks::{BLOCK_BYTES, blocks_of};
use crate::chunks::{
    AHEAD_BYTES, ChunkIndex, ChunkSum, Chunking, Gap, MatchPlace, Span, find, gaps, push_span,
};
use bcmr_wire::limits::FINER_BYTES_MAX;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Blocks that are looked at before they are sent.
const LOOKED_AHEAD: usize = 8;
/// So many times as many bytes as the file and its basis have may be asked about: less than what the receiver gives.
const ASKED_TIMES: u64 = 2;

/// What the receiver has of one file.
pub(super) struct Delta {
    index: Arc<ChunkIndex>,
    size: u64,
    /// Where to look next; `None` while a thread looks.
    place: Option<LookPlace>,
    /// Those that were looked at, in their order.
    blocks: VecDeque<LookedBlock>,
    /// Parts of the basis that were asked about and are not answered. Several threads ask, so in no order.
    asked: Vec<AskedRange>,
    asked_bytes: u64,
}

/// How far a file was looked at.
#[derive(Clone, Debug)]
struct LookPlace {
    block: u64,
    found: MatchPlace,
    /// What the last chunk has in the block that comes next.
    over: Vec<Span>,
    /// Where the basis goes on, if it does as before.
    basis_at: Option<u64>,
}

/// A part of the basis that was asked about, for which gap of which block.
#[derive(Clone)]
struct AskedRange {
    block: u64,
    gap: usize,
    basis: Range<u64>,
}

struct LookedBlock {
    block: u64,
    state: LookState,
}

enum LookState {
    /// With what came of finer sums, in the order of the gaps.
    Asked {
        spans: Vec<Span>,
        gaps: Vec<Gap>,
        finer: Vec<Option<ChunkIndex>>,
    },
    /// A thread looks at it again.
    Refined,
    Known(Arc<[Span]>),
}

/// A look at one block.
pub(super) struct BlockLook {
    index: Arc<ChunkIndex>,
    size: u64,
    place: LookPlace,
    /// How many bytes of the basis may still be asked about.
    may_ask: u64,
}

/// What a look at a block has shown.
pub(super) struct Looked {
    spans: Vec<Span>,
    gaps: Vec<Gap>,
    next: LookPlace,
}

/// A second look at the gaps of a block.
pub(super) struct Refine {
    pub(super) block: u64,
    spans: Vec<Span>,
    gaps: Vec<Gap>,
    finer: Vec<Option<ChunkIndex>>,
}

/// The receiver has said something else than it was asked.
pub(super) struct OtherThanAsked;

impl Delta {
    /// Of a file of `size` bytes, which is to be sent from `from` on, where a block begins.
    pub(super) fn new(index: ChunkIndex, size: u64, from: u64) -> Delta {
        let place = LookPlace {
            block: from / BLOCK_BYTES,
            found: MatchPlace::at(from),
            over: Vec::new(),
            basis_at: None,
        };
        let (blocks, asked) = (VecDeque::new(), Vec::new());
        Delta { index: Arc::new(index), size, place: Some(place), blocks, asked, asked_bytes: 0 }
    }

    /// How many sums are kept for it.
    pub(super) fn sums(&self) -> usize {
        self.index.len()
    }

    /// The next block to be sent, if it is known what the receiver has of it.
    pub(super) fn take_known(&mut self) -> Option<(u64, Arc<[Span]>)> {
        let LookedBlock { block, state: LookState::Known(spans) } = self.blocks.front()? else { return None };
        let known = (*block, spans.clone());
        self.blocks.pop_front();
        Some(known)
    }

    /// A block whose gaps are to be looked at again.
    pub(super) fn take_refine(&mut self) -> Option<Refine> {
        let is_answered = |looked: &&mut LookedBlock| matches!(&looked.state, LookState::Asked { finer, .. } if finer.iter().all(Option::is_some));
        let looked = self.blocks.iter_mut().find(is_answered)?;
        let block = looked.block;
        match std::mem::replace(&mut looked.state, LookState::Refined) {
            LookState::Asked { spans, gaps, finer } => Some(Refine { block, spans, gaps, finer }),
            _ => None,
        }
    }

    /// The next block to be looked at.
    pub(super) fn take_look(&mut self) -> Option<BlockLook> {
        let next = self.place.as_ref()?.block;
        if next >= blocks_of(self.size) || self.blocks.len() >= LOOKED_AHEAD {
            return None;
        }
        let may_ask = self.size.saturating_add(self.index.end()).saturating_mul(ASKED_TIMES);
        let may_ask = may_ask.saturating_sub(self.asked_bytes);
        Some(BlockLook { index: self.index.clone(), size: self.size, place: self.place.take()?, may_ask })
    }

    /// Whether every block was looked at and sent.
    pub(super) fn is_done(&self) -> bool {
        self.blocks.is_empty() && self.place.as_ref().is_some_and(|place| place.block >= blocks_of(self.size))
    }

    /// A block was looked at. Returns the parts of the basis that are to be asked about.
    pub(super) fn looked(&mut self, looked: Looked) -> Vec<Range<u64>> {
        let Looked { spans, gaps, next } = looked;
        let block = next.block - 1;
        let ask: Vec<Range<u64>> = gaps.iter().map(|gap| gap.basis.clone()).collect();
        self.asked_bytes += ask.iter().map(|basis| basis.end - basis.start).sum::<u64>();
        let asked = |(gap, basis): (usize, &Range<u64>)| AskedRange { block, gap, basis: basis.clone() };
        self.asked.extend(ask.iter().enumerate().map(asked));
        let state = if gaps.is_empty() {
            LookState::Known(spans.into())
        } else {
            let finer = vec![None; gaps.len()];
            LookState::Asked { spans, gaps, finer }
        };
        self.blocks.push_back(LookedBlock { block, state });
        self.place = Some(next);
        ask
    }

    /// A block was looked at again.
    pub(super) fn refined(&mut self, block: u64, spans: Vec<Span>) {
        if let Some(looked) = self.blocks.iter_mut().find(|looked| looked.block == block) {
            looked.state = LookState::Known(spans.into());
        }
    }

    /// Finer sums came.
    pub(super) fn answer(&mut self, at: u64, chunks: &[ChunkSum]) -> Result<(), OtherThanAsked> {
        let mut index = ChunkIndex::from(at);
        index.extend(chunks);
        let told = at..index.end();
        let place = self.asked.iter().position(|asked| asked.basis == told).ok_or(OtherThanAsked)?;
        let AskedRange { block, gap, .. } = self.asked.swap_remove(place);
        if let Some(looked) = self.blocks.iter_mut().find(|looked| looked.block == block)
            && let LookState::Asked { finer, .. } = &mut looked.state
            && let Some(slot) = finer.get_mut(gap)
        {
            *slot = Some(index);
        }
        Ok(())
    }
}

impl BlockLook {
    /// Looks, where `read` gives the bytes of a range of the file, all of them.
    pub(super) fn run<E>(self, read: impl FnOnce(Range<u64>) -> Result<Vec<u8>, E>) -> Result<Looked, E> {
        let BlockLook { index, size, place, may_ask } = self;
        let LookPlace { block, mut found, over, basis_at } = place;
        let range = block * BLOCK_BYTES..size.min((block + 1).saturating_mul(BLOCK_BYTES));
        let bytes = read(found.at..size.min(range.end.saturating_add(AHEAD_BYTES)))?;
        let mut spans = over;
        for span in find(&index, Chunking::of(size), &mut found, &bytes, range.end) {
            push_span(&mut spans, span);
        }
        let over = spans.iter().filter_map(|span| span.within(&(range.end..u64::MAX))).collect();
        let spans: Vec<Span> = spans.iter().filter_map(|span| span.within(&range)).collect();
        // As many bytes behind the last part that the basis has as there are here.
        let goes_on = spans.iter().rev().find_map(|span| Some(span.from? + (range.end - span.at)));
        let moved = basis_at.map(|at| at.saturating_add(range.end - range.start));
        let mut left = may_ask;
        let mut gaps = gaps(&spans, basis_at, index.end(), FINER_BYTES_MAX);
        gaps.retain(|gap| {
            let bytes = gap.basis.end - gap.basis.start;
            let may = bytes <= left;
            left = if may { left - bytes } else { left };
            may
        });
        let next = LookPlace { block: block + 1, found, over, basis_at: goes_on.or(moved) };
        Ok(Looked { spans, gaps, next })
    }
}

impl Refine {
    /// Looks again, as [`BlockLook::run`] does.
    pub(super) fn run<E>(
        self,
        mut read: impl FnMut(Range<u64>) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<Span>, E> {
        let mut all = Vec::with_capacity(self.spans.len());
        let mut gaps = self.gaps.into_iter().zip(&self.finer).peekable();
        for span in self.spans {
            let Some((gap, Some(finer))) = gaps.next_if(|(gap, _)| gap.run.start == span.at) else {
                push_span(&mut all, span);
                continue;
            };
            let bytes = read(gap.run.clone())?;
            let mut place = MatchPlace::expecting(gap.run.start);
            for found in find(finer, Chunking::FINE, &mut place, &bytes, gap.run.end) {
                push_span(&mut all, found);
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::{chunk_of, noise};

    fn sums(bytes: &[u8], chunking: Chunking) -> Vec<ChunkSum> {
        let mut sums = Vec::new();
        chunking.cut(bytes, true, |chunk| sums.push(chunk_of(chunk)));
        sums
    }

    /// Everything of a file that is sent from `from` on, answered as a receiver does; the file that comes of it, and how many
    /// bytes of it cross.
    fn sent(basis: &[u8], new: &[u8], from: u64) -> (Vec<u8>, u64) {
        let mut index = ChunkIndex::from(0);
        index.extend(&sums(basis, Chunking::of(new.len() as u64)));
        let mut delta = Delta::new(index, new.len() as u64, from);
        let read = |range: Range<u64>| Ok::<_, ()>(new[range.start as usize..range.end as usize].to_vec());
        let (mut made, mut crossed) = (new[..from as usize].to_vec(), 0);
        let mut questions: VecDeque<Range<u64>> = VecDeque::new();
        while !delta.is_done() {
            if let Some((block, spans)) = delta.take_known() {
                assert_eq!(made.len() as u64, block * BLOCK_BYTES, "blocks come in their order");
                for span in spans.iter() {
                    assert_eq!(span.at, made.len() as u64);
                    let (start, bytes) = (span.from.unwrap_or(span.at) as usize, span.bytes as usize);
                    let whose = if span.from.is_some() { basis } else { new };
                    made.extend_from_slice(&whose[start..start + bytes]);
                    crossed += if span.from.is_some() { 0 } else { span.bytes };
                }
            } else if let Some(refine) = delta.take_refine() {
                let block = refine.block;
                let spans = refine.run(read).unwrap();
                delta.refined(block, spans);
            } else if let Some(look) = delta.take_look() {
                let looked = look.run(read).unwrap();
                questions.extend(delta.looked(looked));
            } else {
                // Answers come in no order.
                let asked = questions.pop_back().expect("it waits for nothing");
                let part = &basis[asked.start as usize..asked.end as usize];
                assert!(delta.answer(asked.start, &sums(part, Chunking::FINE)).is_ok());
            }
        }
        (made, crossed)
    }

    #[test]
    fn what_comes_of_it_is_the_file() {
        let basis = noise(1, 20 * BLOCK_BYTES as usize + 77);
        let mut put_in = basis.clone();
        put_in.insert(10_000, 1);
        let mut pages = basis.clone();
        for at in (0..pages.len()).step_by(7 * 1024) {
            pages[at] ^= 1;
        }
        let moved = [&basis[30_000..], &basis[..30_000]].concat();
        let table = [
            (basis.clone(), 0),
            (put_in, 4 * 1024),
            (pages, 12 * 4 * 1024),
            (moved, 8 * 1024),
            (noise(2, basis.len()), basis.len() as u64),
            (basis[..5_000].to_vec(), 2 * 1024),
            ([noise(3, 3_000), basis.clone()].concat(), 3_000 + 4 * 1024),
        ];
        for (k, (new, most)) in table.into_iter().enumerate() {
            let (made, crossed) = sent(&basis, &new, 0);
            assert!(made == new && crossed <= most, "row {k}: {crossed} bytes of {most}");
            assert!(sent(&basis, &new, BLOCK_BYTES).0 == new, "row {k}");
        }
    }

    #[test]
    fn what_was_not_asked_is_no_answer() {
        let basis = noise(1, 3 * BLOCK_BYTES as usize);
        let mut index = ChunkIndex::from(0);
        index.extend(&sums(&basis, Chunking::of(0)));
        let mut delta = Delta::new(index, basis.len() as u64, 0);
        assert!(delta.answer(0, &[ChunkSum { bytes: 1, sum: 0 }]).is_err());
        let mut new = basis.clone();
        new[2_000] ^= 1;
        let read = |range: Range<u64>| Ok::<_, ()>(new[range.start as usize..range.end as usize].to_vec());
        let looked = delta.take_look().unwrap().run(read).unwrap();
        let asked = delta.looked(looked).remove(0);
        let fits = sums(&basis[asked.start as usize..asked.end as usize], Chunking::FINE);
        for (at, chunks) in [(asked.start + 1, fits.clone()), (asked.start, fits[1..].to_vec())] {
            let before = delta.asked.clone();
            assert!(delta.answer(at, &chunks).is_err());
            delta.asked = before;
        }
        assert!(delta.answer(asked.start, &fits).is_ok());
        assert!(delta.take_refine().is_some() && delta.take_refine().is_none());
    }
}
