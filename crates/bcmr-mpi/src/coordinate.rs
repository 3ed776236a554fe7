//! Who does which shard: each rank gets another one when it has done with one, until none is left.
//!
//! Must not know how anything is said, nor how a shard is done. A shard is handed out once; one that failed is for the next
//! run of the same command.

use crate::message::{Order, Outcome, Report};
use std::collections::VecDeque;

/// What is handed out, and who has what.
#[derive(Debug)]
pub struct Coordinator {
    open: VecDeque<u32>,
    /// Shards that each rank has and has not done with; `None`: it has not been heard of yet.
    held: Vec<Option<usize>>,
    /// Why no rank goes on.
    stopped: Option<u8>,
    sum: Outcome,
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
        Coordinator { open: open.into(), held: vec![None; ranks], stopped: None, sum: Outcome::default() }
    }

    /// What follows from what `rank` says: orders, each with who gets it.
    pub fn hear(&mut self, rank: usize, report: &Report) -> Vec<(usize, Order)> {
        match report {
            Report::Ready => self.hold(rank, |_| 0),
            Report::Did { outcome, .. } => {
                self.hold(rank, |held| held.saturating_sub(1));
                self.sum.add(&Outcome { end: None, ..*outcome });
                if let Some(exit) = outcome.end {
                    return self.stop(exit);
                }
            }
            Report::Stopped { exit } => return self.stop(*exit),
            // Of a walk that is over.
            Report::Gave(..) | Report::Walked | Report::Found(_) => return Vec::new(),
        }
        self.give(rank)
    }

    fn hold(&mut self, rank: usize, now: impl Fn(usize) -> usize) {
        if let Some(held) = self.held.get_mut(rank) {
            *held = Some(now(held.unwrap_or(0)));
        }
    }

    /// Nobody goes on: those that are at a shard are told so. The first reason counts.
    pub fn stop(&mut self, exit: u8) -> Vec<(usize, Order)> {
        if self.stopped.is_some() {
            return Vec::new();
        }
        self.stopped = Some(exit);
        let at_work = self.held.iter().enumerate().filter(|(_, held)| held.is_some_and(|held| held > 0));
        at_work.map(|(rank, _)| (rank, Order::Stop)).collect()
    }

    fn give(&mut self, rank: usize) -> Vec<(usize, Order)> {
        let mut orders = Vec::new();
        let ranks = self.held.len();
        while self.stopped.is_none()
            && let Some(Some(held)) = self.held.get_mut(rank)
            && *held < held_max(self.open.len(), ranks)
            && let Some(shard) = self.open.pop_front()
        {
            *held += 1;
            orders.push((rank, Order::Shard(shard)));
        }
        orders
    }

    /// Whether nothing is being done any more, and nothing is to be begun.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let none_at_work = self.held.iter().all(|held| held.is_none_or(|held| held == 0));
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
            Order::Shard(shard) => Some(*shard),
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
