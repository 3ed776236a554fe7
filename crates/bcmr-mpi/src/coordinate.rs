//! Who does which shard: each rank gets another one when it has done with one, until none is left; then it gets some of what
//! another has not begun.
//!
//! Must not know how anything is said, nor how a shard is done. What is handed out is handed out once; what failed is for the
//! next run of the same command.

use crate::message::{Frames, Order, Outcome, Report};
use std::collections::{HashMap, VecDeque};

/// What is handed out, and who has what.
#[derive(Debug)]
pub struct Coordinator {
    open: VecDeque<Frames>,
    /// What each rank has; `None`: it has not been heard of yet.
    ranks: Vec<Option<Hand>>,
    /// Shards that are being done.
    shards: HashMap<u32, Pieces>,
    /// Why no rank goes on.
    stopped: Option<u8>,
    sum: Outcome,
}

/// What a rank has.
#[derive(Clone, Copy, Debug, Default)]
struct Hand {
    /// Shards, or frames of one, that it has not done with.
    held: usize,
    asked: Asked,
    /// It has begun all that it has.
    is_spent: bool,
}

/// Whether a rank was asked for what it has not begun, and has not answered yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    No,
    Yes,
    /// It may answer before it hears of what it got since.
    Before,
}

/// A shard that one rank does, or several do.
#[derive(Clone, Copy, Debug, Default)]
struct Pieces {
    /// How many are not done.
    under_way: usize,
    /// Several ranks do some of it: then one does it whole, which costs little, as it reads what they have recorded.
    is_split: bool,
    /// One of those comes to it now.
    is_joined: bool,
    failed: bool,
}

/// Shards that a rank has at most: one to do, and one for the time until it is heard. Near the end there is none in reserve:
/// a slow rank would sit on what another could do.
fn held_max(open: usize, ranks: usize) -> usize {
    if open > ranks.saturating_mul(4) { 2 } else { 1 }
}

impl Coordinator {
    /// These shards for so many ranks.
    #[must_use]
    pub fn new(ranks: usize, open: Vec<u32>) -> Coordinator {
        let open = open.into_iter().map(Frames::all).collect();
        let (shards, sum) = (HashMap::new(), Outcome::default());
        Coordinator { open, ranks: vec![None; ranks], shards, stopped: None, sum }
    }

    /// What follows from what `rank` says: orders, each with who gets it.
    pub fn hear(&mut self, rank: usize, report: &Report) -> Vec<(usize, Order)> {
        match report {
            Report::Ready => {
                if let Some(hand) = self.ranks.get_mut(rank) {
                    *hand = Some(Hand::default());
                }
            }
            Report::Did { shard, outcome } => {
                if let Some(Some(hand)) = self.ranks.get_mut(rank) {
                    hand.held = hand.held.saturating_sub(1);
                }
                self.did(*shard, outcome);
                if let Some(exit) = outcome.end {
                    return self.stop(exit);
                }
            }
            Report::Left(left) => self.left(rank, *left),
            Report::Stopped { exit } => return self.stop(*exit),
            // Of a walk that is over.
            Report::Gave(..) | Report::Walked | Report::Found(_) => return Vec::new(),
        }
        self.give()
    }

    fn did(&mut self, shard: u32, outcome: &Outcome) {
        let pieces = self.shards.entry(shard).or_default();
        pieces.under_way = pieces.under_way.saturating_sub(1);
        pieces.failed |= outcome.failed > 0;
        // What ranks of this job have recorded was counted when they did it.
        let kept = if pieces.is_joined { 0 } else { outcome.kept };
        self.sum.add(&Outcome { end: None, kept, ..*outcome });
        if pieces.under_way > 0 {
            return;
        }
        let joins = pieces.is_split && !pieces.failed;
        self.shards.remove(&shard);
        if joins {
            self.shards.insert(shard, Pieces { is_joined: true, ..Pieces::default() });
            self.open.push_back(Frames::all(shard));
        }
    }

    fn left(&mut self, rank: usize, left: Option<Frames>) {
        if let Some(Some(hand)) = self.ranks.get_mut(rank) {
            hand.is_spent |= left.is_none() && hand.asked == Asked::Yes;
            hand.asked = Asked::No;
        }
        if let Some(frames) = left {
            let pieces = self.shards.entry(frames.shard).or_default();
            pieces.is_split = true;
            pieces.under_way += 1;
            self.open.push_back(frames);
        }
    }

    /// Nobody goes on: those that are at a shard are told so. The first reason counts.
    pub fn stop(&mut self, exit: u8) -> Vec<(usize, Order)> {
        if self.stopped.is_some() {
            return Vec::new();
        }
        self.stopped = Some(exit);
        let at_work =
            self.ranks.iter().enumerate().filter(|(_, hand)| hand.is_some_and(|hand| hand.held > 0));
        at_work.map(|(rank, _)| (rank, Order::Stop)).collect()
    }

    fn give(&mut self) -> Vec<(usize, Order)> {
        let mut orders = Vec::new();
        if self.stopped.is_some() {
            return orders;
        }
        let count = self.ranks.len();
        for (rank, hand) in self.ranks.iter_mut().enumerate() {
            let Some(hand) = hand else { continue };
            while hand.held < held_max(self.open.len(), count)
                && let Some(frames) = self.open.pop_front()
            {
                let pieces = self.shards.entry(frames.shard).or_default();
                // Those of a shard that was split were counted when it was.
                pieces.under_way += usize::from(!pieces.is_split);
                hand.held += 1;
                hand.is_spent = pieces.is_joined;
                if hand.asked == Asked::Yes {
                    hand.asked = Asked::Before;
                }
                orders.push((rank, Order::Shard(frames)));
            }
        }
        if self.ranks.iter().flatten().any(|hand| hand.held == 0) {
            for (rank, hand) in self.ranks.iter_mut().enumerate() {
                if let Some(hand) = hand
                    && hand.held > 0
                    && hand.asked == Asked::No
                    && !hand.is_spent
                {
                    hand.asked = Asked::Yes;
                    orders.push((rank, Order::Split));
                }
            }
        }
        orders
    }

    /// Whether nothing is being done any more, and nothing is to be begun.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let none_at_work = self.ranks.iter().flatten().all(|hand| hand.held == 0);
        none_at_work && (self.stopped.is_some() || self.open.is_empty())
    }

    /// Why it stopped, and what it came to.
    #[must_use]
    pub fn end(&self) -> (Option<u8>, Outcome) {
        (self.stopped, self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(shard: u32) -> Report {
        Report::Did { shard, outcome: Outcome { files: 1, ..Outcome::default() } }
    }

    fn shards(orders: &[(usize, Order)]) -> Vec<u32> {
        let shard = |(_, order): &(usize, Order)| match order {
            Order::Shard(frames) => Some(frames.shard),
            _ => None,
        };
        orders.iter().filter_map(shard).collect()
    }

    #[test]
    fn each_shard_is_done_once_whoever_is_fast() {
        for (ranks, count) in [(1, 0), (1, 1), (2, 3), (3, 40), (7, 5)] {
            let mut coordinator = Coordinator::new(ranks, (0..count).collect());
            let mut queues: Vec<VecDeque<u32>> = vec![VecDeque::new(); ranks];
            let mut done = Vec::new();
            for rank in 0..ranks {
                queues[rank].extend(shards(&coordinator.hear(rank, &Report::Ready)));
            }
            // The last rank does two for one of each other.
            while !coordinator.is_over() {
                for rank in (0..ranks).chain([ranks - 1]) {
                    if let Some(shard) = queues[rank].pop_front() {
                        done.push(shard);
                        queues[rank].extend(shards(&coordinator.hear(rank, &did(shard))));
                    }
                }
            }
            done.sort_unstable();
            assert_eq!(done, (0..count).collect::<Vec<_>>(), "{ranks} ranks");
            assert_eq!(coordinator.end(), (None, Outcome { files: u64::from(count), ..Outcome::default() }));
        }
    }

    #[test]
    fn one_in_reserve_until_few_are_left() {
        for (open, ranks, most) in [(9, 2, 2), (8, 2, 1), (0, 2, 1), (5, 1, 2), (usize::MAX, usize::MAX, 1)] {
            assert_eq!(held_max(open, ranks), most, "{open} {ranks}");
        }
        let mut coordinator = Coordinator::new(2, (0..12).collect());
        assert_eq!(shards(&coordinator.hear(0, &Report::Ready)), [0, 1]);
        assert_eq!(shards(&coordinator.hear(1, &Report::Ready)), [2, 3]);
        // Eight are left.
        assert_eq!(shards(&coordinator.hear(0, &did(0))), []);
        assert_eq!(shards(&coordinator.hear(0, &did(1))), [4]);
    }

    #[test]
    fn one_that_cannot_go_on_ends_all_and_none_begins_anything() {
        let mut coordinator = Coordinator::new(3, (0..100).collect());
        for rank in 0..2 {
            coordinator.hear(rank, &Report::Ready);
        }
        let outcome = Outcome { end: Some(6), ..Outcome::default() };
        // It has a second one itself; the rank that was not heard of yet is not waited for.
        let orders = coordinator.hear(1, &Report::Did { shard: 2, outcome });
        assert_eq!(orders, [(0, Order::Stop), (1, Order::Stop)]);
        assert_eq!(coordinator.hear(2, &Report::Ready), []);
        assert!(!coordinator.is_over());
        let later = Outcome { end: Some(1), ..Outcome::default() };
        assert_eq!(coordinator.hear(1, &Report::Did { shard: 3, outcome: later }), []);
        assert_eq!(coordinator.hear(0, &did(0)), []);
        assert!(!coordinator.is_over());
        assert_eq!(coordinator.hear(0, &did(1)), []);
        assert!(coordinator.is_over());
        assert_eq!(coordinator.end().0, Some(6), "the first reason");
        assert_eq!(coordinator.end().1.files, 2);
    }

    #[test]
    fn items_that_failed_stop_nobody() {
        let mut coordinator = Coordinator::new(1, vec![5, 9]);
        assert_eq!(shards(&coordinator.hear(0, &Report::Ready)), [5]);
        let outcome = Outcome { failed: 2, codes: 8, ..Outcome::default() };
        assert_eq!(shards(&coordinator.hear(0, &Report::Did { shard: 5, outcome })), [9]);
        coordinator.hear(0, &did(9));
        assert!(coordinator.is_over());
        assert_eq!(
            coordinator.end(),
            (None, Outcome { files: 1, failed: 2, codes: 8, ..Outcome::default() })
        );
    }

    /// What a rank has not begun when others have nothing to do is done by them, once each, and then the shard is done whole.
    #[test]
    fn what_a_slow_rank_has_not_begun_goes_to_others() {
        let frames = |shard, from, to| Frames { shard, from, to };
        let did =
            |shard, kept| Report::Did { shard, outcome: Outcome { files: 1, kept, ..Outcome::default() } };
        let mut coordinator = Coordinator::new(3, vec![4]);
        assert_eq!(coordinator.hear(1, &Report::Ready), [(1, Order::Shard(Frames::all(4)))]);
        assert_eq!(coordinator.hear(0, &Report::Ready), [(1, Order::Split)]);
        assert_eq!(coordinator.hear(2, &Report::Ready), [], "it was asked already");
        let left = Report::Left(Some(frames(4, 6, 9)));
        // There is still one without work.
        let piece = (0, Order::Shard(frames(4, 6, 9)));
        assert_eq!(coordinator.hear(1, &left), [piece, (0, Order::Split), (1, Order::Split)]);
        assert_eq!(coordinator.hear(1, &Report::Left(None)), [], "it has begun all that it has");
        let piece = (2, Order::Shard(frames(4, 7, 9)));
        assert_eq!(coordinator.hear(0, &Report::Left(Some(frames(4, 7, 9)))), [piece]);
        assert_eq!(coordinator.hear(1, &did(4, 5)), [(0, Order::Split), (2, Order::Split)]);
        assert_eq!(coordinator.hear(0, &Report::Left(None)), []);
        assert_eq!(coordinator.hear(0, &did(4, 0)), []);
        assert!(!coordinator.is_over());
        // The one that is asked may be done before it hears that. Then one does the shard whole, and is not asked for it.
        assert_eq!(coordinator.hear(2, &did(4, 0)), [(0, Order::Shard(Frames::all(4)))]);
        assert_eq!(coordinator.hear(2, &Report::Left(None)), []);
        assert!(!coordinator.is_over());
        assert_eq!(coordinator.hear(0, &did(4, 99)), []);
        assert!(coordinator.is_over());
        assert_eq!(coordinator.end().1, Outcome { files: 4, kept: 5, ..Outcome::default() });
    }

    #[test]
    fn a_shard_of_which_some_failed_is_not_done_once_more() {
        let mut coordinator = Coordinator::new(2, vec![0]);
        coordinator.hear(0, &Report::Ready);
        coordinator.hear(1, &Report::Ready);
        coordinator.hear(0, &Report::Left(Some(Frames { shard: 0, from: 1, to: 2 })));
        let outcome = Outcome { failed: 1, ..Outcome::default() };
        coordinator.hear(1, &Report::Did { shard: 0, outcome });
        assert_eq!(shards(&coordinator.hear(0, &did(0))), [0; 0]);
        assert!(coordinator.is_over());
    }

    /// An answer of before does not count for what a rank got since.
    #[test]
    fn a_late_answer_is_about_what_was_before() {
        let mut coordinator = Coordinator::new(2, vec![0, 1]);
        coordinator.hear(0, &Report::Ready);
        coordinator.hear(1, &Report::Ready);
        assert_eq!(coordinator.hear(1, &did(1)), [(0, Order::Split)]);
        // Another rank gave something up meanwhile: the first one is done, and gets it.
        coordinator.left(1, Some(Frames { shard: 1, from: 3, to: 5 }));
        coordinator.left(1, Some(Frames { shard: 1, from: 5, to: 7 }));
        assert_eq!(shards(&coordinator.hear(0, &did(0))), [1, 1]);
        coordinator.hear(1, &did(1));
        assert_eq!(coordinator.hear(0, &Report::Left(None)), [(0, Order::Split)]);
    }

    #[test]
    fn a_rank_that_was_told_to_stop_stops_all() {
        let mut coordinator = Coordinator::new(2, vec![0, 1]);
        coordinator.hear(0, &Report::Ready);
        coordinator.hear(1, &Report::Ready);
        assert_eq!(coordinator.hear(1, &Report::Stopped { exit: 143 }), [(0, Order::Stop), (1, Order::Stop)]);
        assert_eq!(coordinator.stop(130), []);
        for rank in 0..2 {
            coordinator.hear(rank, &did(rank as u32));
        }
        assert!(coordinator.is_over());
        assert_eq!(coordinator.end().0, Some(143));
    }
}
