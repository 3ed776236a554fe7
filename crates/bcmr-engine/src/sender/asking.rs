//! Which blocks of a large file the receiver's store is asked about, in which order, and which are to be sent. Pure: nothing is
//! read here, hashed or sent.
//!
//! Must not know how a block is hashed, nor what the store is. To ask about a block its content is read once more than to send it.
//! So a store that has nothing is asked less and less: about the last block of a group, and only where it has that about all of
//! them. As it is the last one, no more than a part of one group is missed where content begins that the store has.

use crate::blocks::Cv;
use crate::error::Reason;
use bcmr_wire::limits::HAVE_BLOCKS_MAX;
use bcmr_wire::message::Hash;
use std::collections::VecDeque;
use std::ops::Range;

/// Groups that are asked about and not dealt with, at most.
const GROUPS_OUT: usize = 2;
/// Blocks of a group before the store has answered for the first time.
const FIRST_BLOCKS: u64 = 4;
const GROUP_BLOCKS: u64 = HAVE_BLOCKS_MAX as u64;

const _: () = assert!(FIRST_BLOCKS <= GROUP_BLOCKS);

/// What the store is asked about one file. The receiver reads blocks in rising order, and what comes over one stream waits for
/// what came before: so groups are dealt with one after the other.
pub(super) struct StoreQuestions {
    /// Blocks of no group yet.
    left: Range<u64>,
    /// Those that are not dealt with, in their order.
    groups: VecDeque<Group>,
    /// A thread hashes for a question or a proof.
    is_hashing: bool,
    /// Blocks to send, with their values where they were asked about.
    to_send: VecDeque<(u64, Option<Cv>)>,
    /// The store has answered about a group.
    has_answered: bool,
    /// So many groups in a row it had nothing of.
    quiet: u32,
}

struct Group {
    blocks: Range<u64>,
    /// All of them, or the last one.
    asked: Range<u64>,
    state: GroupState,
}

enum GroupState {
    ToAsk,
    /// A thread hashes what is asked about.
    Hashing,
    /// With the values that were sent.
    Asked(Vec<Cv>),
    /// The store says that it has some, which are to be proved.
    Found {
        nonce: Hash,
        there: Vec<u64>,
        missing: Vec<(u64, Option<Cv>)>,
    },
    /// A thread proves what the store has; these are to be sent then.
    Proving(Vec<(u64, Option<Cv>)>),
    /// It has nothing of it.
    Missing(Vec<(u64, Option<Cv>)>),
}

/// One thing to do for a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StoreStep {
    /// Hash so many blocks and ask about them.
    Ask { first: u64, count: u64 },
    /// Send a block, which has this value where that is known.
    Send { block: u64, cv: Option<Cv> },
}

/// Blocks which the store says it has.
pub(super) struct FoundInStore {
    pub(super) first: u64,
    pub(super) nonce: Hash,
    pub(super) there: Vec<u64>,
}

impl StoreQuestions {
    /// About these blocks of a file.
    pub(super) fn about(blocks: Range<u64>) -> StoreQuestions {
        let (groups, to_send) = (VecDeque::new(), VecDeque::new());
        StoreQuestions { left: blocks, groups, is_hashing: false, to_send, has_answered: false, quiet: 0 }
    }

    /// Whether all that is to be sent was taken.
    pub(super) fn is_done(&self) -> bool {
        self.left.is_empty() && self.groups.is_empty() && self.to_send.is_empty()
    }

    /// What is to be done next. A question comes before the blocks that are to be sent: while these are under way its answer comes, and
    /// no stream waits for it.
    pub(super) fn take_step(&mut self) -> Option<StoreStep> {
        let question = self.take_question().map(|(first, count)| StoreStep::Ask { first, count });
        question.or_else(|| self.to_send.pop_front().map(|(block, cv)| StoreStep::Send { block, cv }))
    }

    /// Blocks that are to be proved next.
    pub(super) fn take_found(&mut self) -> Option<FoundInStore> {
        let group = self.groups.front_mut().filter(|_| !self.is_hashing)?;
        let GroupState::Found { nonce, there, missing } = &mut group.state else { return None };
        let found = FoundInStore { first: group.asked.start, nonce: *nonce, there: std::mem::take(there) };
        group.state = GroupState::Proving(std::mem::take(missing));
        self.is_hashing = true;
        Some(found)
    }

    fn take_question(&mut self) -> Option<(u64, u64)> {
        if self.is_hashing {
            return None;
        }
        if !self.groups.iter().any(|group| matches!(group.state, GroupState::ToAsk)) {
            self.begin_group()?;
        }
        let group = self.groups.iter_mut().find(|group| matches!(group.state, GroupState::ToAsk))?;
        group.state = GroupState::Hashing;
        self.is_hashing = true;
        Some((group.asked.start, group.asked.end - group.asked.start))
    }

    fn begin_group(&mut self) -> Option<()> {
        let is_far_ahead = self.to_send.len() as u64 >= GROUP_BLOCKS;
        if self.left.is_empty() || self.groups.len() >= GROUPS_OUT || is_far_ahead {
            return None;
        }
        let most = match (self.has_answered, self.quiet) {
            (false, _) => FIRST_BLOCKS,
            (true, 0) => GROUP_BLOCKS,
            (true, quiet) => FIRST_BLOCKS.checked_shl(quiet).unwrap_or(GROUP_BLOCKS).min(GROUP_BLOCKS),
        };
        let end = self.left.start.saturating_add(most).min(self.left.end);
        let blocks = self.left.start..end;
        let asked = if self.quiet == 0 { blocks.clone() } else { end - 1..end };
        self.left.start = end;
        self.groups.push_back(Group { blocks, asked, state: GroupState::ToAsk });
        Some(())
    }

    /// The store is about to be asked about blocks from `first` on, which have these values.
    pub(super) fn asking(&mut self, first: u64, values: Vec<Cv>) {
        let is_it =
            |group: &&mut Group| group.asked.start == first && matches!(group.state, GroupState::Hashing);
        if let Some(group) = self.groups.iter_mut().find(is_it) {
            group.state = GroupState::Asked(values);
        }
    }

    /// No thread hashes for a question any more.
    pub(super) fn asked(&mut self) {
        self.is_hashing = false;
    }

    /// The store says which of the blocks from `first` on it lacks.
    ///
    /// # Errors
    /// Nothing was asked about these, or something else.
    pub(super) fn answer(&mut self, first: u64, nonce: &Hash, bits: &[u8]) -> Result<(), Reason> {
        let asked = self.groups.iter_mut().find_map(|group| match &group.state {
            GroupState::Asked(values) if group.asked.start == first => {
                let values = values.clone();
                Some((group, values))
            }
            _ => None,
        });
        let (group, values) = asked.ok_or(Reason::AnswerAboutNoBlocks)?;
        let bit = |k: usize| bits.get(k / 8).is_some_and(|byte| byte >> (k % 8) & 1 == 1);
        if bits.len() != values.len().div_ceil(8) || (values.len()..bits.len() * 8).any(bit) {
            return Err(Reason::AnswerAboutOtherBlocks);
        }
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        // Nothing is known of those that were not asked about, which come before the others.
        missing.extend((group.blocks.start..first).map(|block| (block, None)));
        for ((k, cv), block) in values.iter().enumerate().zip(first..) {
            if bit(k) { missing.push((block, Some(*cv))) } else { there.push(block) }
        }
        group.state = if there.is_empty() {
            GroupState::Missing(missing)
        } else if group.asked != group.blocks {
            group.asked = group.blocks.clone();
            GroupState::ToAsk
        } else {
            GroupState::Found { nonce: *nonce, there, missing }
        };
        self.settle();
        Ok(())
    }

    /// What the store has of the first group was proved.
    pub(super) fn proved(&mut self) {
        self.is_hashing = false;
        if let Some(Group { state: GroupState::Proving(missing), .. }) = self.groups.front_mut() {
            self.to_send.extend(std::mem::take(missing));
            self.groups.pop_front();
            self.quiet = 0;
            self.has_answered = true;
        }
        self.settle();
    }

    /// Deals with the first groups, as long as the store has nothing of them.
    fn settle(&mut self) {
        while let Some(Group { state: GroupState::Missing(missing), .. }) = self.groups.front_mut() {
            self.to_send.extend(std::mem::take(missing));
            self.groups.pop_front();
            self.quiet = self.quiet.saturating_add(1);
            self.has_answered = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a store that has some blocks answers about these.
    fn bits(blocks: Range<u64>, has: impl Fn(u64) -> bool) -> Vec<u8> {
        let mut bits = vec![0; (blocks.end - blocks.start).div_ceil(8) as usize];
        for (k, _) in blocks.enumerate().filter(|(_, block)| !has(*block)) {
            bits[k / 8] |= 1 << (k % 8);
        }
        bits
    }

    /// Asks a store about a file of so many blocks, of which it has some. Returns which blocks were asked about, in their order, and which were sent.
    fn play(blocks: u64, has: impl Fn(u64) -> bool) -> (Vec<u64>, Vec<u64>) {
        let mut questions = StoreQuestions::about(0..blocks);
        let (mut asked, mut sent, mut under_way) = (Vec::new(), Vec::new(), VecDeque::new());
        let mut proved = Vec::new();
        while !questions.is_done() {
            if let Some(FoundInStore { there, .. }) = questions.take_found() {
                assert!(there.iter().all(|block| has(*block)));
                proved.extend(there);
                questions.proved();
                continue;
            }
            match questions.take_step() {
                Some(StoreStep::Ask { first, count }) => {
                    assert!(questions.take_question().is_none(), "one thread hashes at a time");
                    asked.extend(first..first + count);
                    let values = (first..first + count).map(|block| [block as u8; 32]).collect();
                    questions.asking(first, values);
                    questions.asked();
                    under_way.push_back((first, count));
                }
                Some(StoreStep::Send { block, cv }) => {
                    assert!(cv.is_none_or(|cv| cv == [block as u8; 32]));
                    assert!(questions.to_send.len() < 3 * GROUP_BLOCKS as usize);
                    sent.push(block);
                }
                None => {
                    // Answers may come in another order than questions were asked in.
                    let (first, count) = under_way.pop_back().expect("it waits for nothing");
                    questions.answer(first, &[9; 32], &bits(first..first + count, &has)).unwrap();
                }
            }
        }
        assert!(sent.is_sorted() && proved.is_sorted());
        let mut all = [sent.as_slice(), &proved].concat();
        all.sort_unstable();
        assert_eq!(all, (0..blocks).collect::<Vec<_>>(), "each block crosses or is proved, once");
        (asked, sent)
    }

    #[test]
    fn a_store_is_asked_as_much_as_it_is_worth() {
        // A store that has nothing: a tenth of the file is read twice.
        let (asked, sent) = play(256, |_| false);
        assert!(asked.len() <= 24 && sent.len() == 256, "{asked:?}");
        // One that has all of it, or all but the beginning, a part in the middle, each third block.
        assert_eq!(play(256, |_| true).1, []);
        assert_eq!(play(256, |block| block >= 6).1, [0, 1, 2, 3, 4, 5]);
        assert_eq!(play(256, |block| !(77..80).contains(&block)).1, [77, 78, 79]);
        assert_eq!(play(100, |block| block % 3 == 2).1.len(), 67);
        // What begins after much that is new is missed only as far as the group goes that is sent by then.
        assert_eq!(play(256, |block| block >= 130).1.len(), 130);
        // What was found once is asked about again in full, though no further group ends with a block that is there.
        let sent = play(256, |block| block >= 130 && (block % 8 != 7 || block < 144)).1;
        assert!(sent.len() <= 130 + 16 + 14, "{sent:?}");
        // Short files, of one block or none.
        for blocks in 0..10 {
            assert_eq!(play(blocks, |_| true), ((0..blocks).collect(), vec![]));
            assert_eq!(play(blocks, |_| false).1.len() as u64, blocks);
        }
    }

    /// Whatever there is to send, what comes after it is asked about meanwhile.
    #[test]
    fn questions_are_ahead_of_blocks() {
        let mut questions = StoreQuestions::about(0..1000);
        let mut under_way = VecDeque::new();
        let mut sent = 0_u32;
        while !questions.left.is_empty() {
            match questions.take_step() {
                Some(StoreStep::Ask { first, count }) => {
                    questions.asking(first, vec![[0; 32]; count as usize]);
                    questions.asked();
                    under_way.push_back((first, count));
                    continue;
                }
                Some(StoreStep::Send { .. }) => {
                    let is_far_ahead = questions.to_send.len() as u64 + 1 >= GROUP_BLOCKS;
                    assert!(is_far_ahead || !under_way.is_empty(), "after {sent} blocks nothing is asked");
                    sent += 1;
                }
                None => assert!(sent == 0, "after {sent} blocks a stream waits"),
            }
            // An answer takes as long as three blocks.
            if sent.is_multiple_of(3)
                && let Some((first, count)) = under_way.pop_front()
            {
                questions.answer(first, &[0; 32], &bits(first..first + count, |_| false)).unwrap();
            }
        }
    }

    #[test]
    fn what_was_not_asked_is_no_answer() {
        let mut questions = StoreQuestions::about(0..3);
        assert_eq!(questions.answer(0, &[0; 32], &[0]), Err(Reason::AnswerAboutNoBlocks));
        assert_eq!(questions.take_question(), Some((0, 3)));
        assert_eq!(questions.answer(0, &[0; 32], &[0]), Err(Reason::AnswerAboutNoBlocks), "not sent yet");
        questions.asking(0, vec![[1; 32]; 3]);
        for (first, bits, why) in [
            (1, &[0_u8][..], Reason::AnswerAboutNoBlocks),
            (0, &[], Reason::AnswerAboutOtherBlocks),
            (0, &[0, 0], Reason::AnswerAboutOtherBlocks),
            (0, &[0b1000], Reason::AnswerAboutOtherBlocks),
        ] {
            assert_eq!(questions.answer(first, &[0; 32], bits), Err(why));
        }
        assert_eq!(questions.answer(0, &[0; 32], &[0b101]), Ok(()));
        assert_eq!(questions.answer(0, &[0; 32], &[0b101]), Err(Reason::AnswerAboutNoBlocks), "twice");
    }
}
