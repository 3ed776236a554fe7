//! Who walks which directory: each rank gets some that others have left, and leaves some itself when others have none.
//!
//! Must not know how anything is said, nor what a directory is: paths are bytes here. A directory is handed out once.

use bcmr_engine::api::GivenTo;
use std::collections::VecDeque;

/// Directories that a rank is asked for at once; together with the number of ranks it bounds how many wait here.
const GIVE: usize = 8;
/// Directories that a rank gets at once.
const BATCH: usize = 64;

/// What a rank says of its walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkReport {
    /// It is there.
    Ready,
    /// It leaves a directory to others.
    Gave(GivenTo, Vec<u8>),
    /// It has walked what it got.
    Walked,
}

/// What a rank is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkOrder {
    /// Walk these.
    Walk(Vec<Vec<u8>>),
    /// Give away so many.
    Give(u32),
    /// Leave off.
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walker {
    /// It was not heard of yet.
    Away,
    Idle,
    /// It walks, and was asked for so many directories that have not come.
    Walks {
        owes: usize,
    },
}

/// Who walks what.
#[derive(Debug)]
pub struct Walkers {
    ranks: Vec<Walker>,
    /// Directories that no rank walks yet.
    open: VecDeque<Vec<u8>>,
    /// Those that only the first rank may walk.
    of_first: VecDeque<Vec<u8>>,
    is_stopped: bool,
}

impl Walkers {
    /// The whole source, for so many ranks.
    #[must_use]
    pub fn new(ranks: usize) -> Walkers {
        let of_first = VecDeque::from([Vec::new()]);
        Walkers { ranks: vec![Walker::Away; ranks], open: VecDeque::new(), of_first, is_stopped: false }
    }

    /// What follows from what `rank` says: orders, each with who gets it.
    pub fn hear(&mut self, rank: usize, report: WalkReport) -> Vec<(usize, WalkOrder)> {
        match (report, self.ranks.get_mut(rank)) {
            (WalkReport::Ready | WalkReport::Walked, Some(walker)) => *walker = Walker::Idle,
            (WalkReport::Gave(to, path), walker) => {
                if let Some(Walker::Walks { owes }) = walker {
                    *owes = owes.saturating_sub(1);
                }
                match to {
                    GivenTo::Any => self.open.push_back(path),
                    GivenTo::First => self.of_first.push_back(path),
                }
            }
            (_, None) => {}
        }
        if self.is_stopped { Vec::new() } else { self.deal() }
    }

    fn deal(&mut self) -> Vec<(usize, WalkOrder)> {
        let mut orders = Vec::new();
        let mut idle = self.ranks.iter().filter(|walker| **walker == Walker::Idle).count();
        for (rank, walker) in self.ranks.iter_mut().enumerate() {
            if *walker != Walker::Idle {
                continue;
            }
            let from =
                if rank == 0 && !self.of_first.is_empty() { &mut self.of_first } else { &mut self.open };
            // The rest is for those that become idle next.
            let count = (from.len() / (2 * idle)).clamp(1, BATCH).min(from.len());
            idle -= 1;
            if count > 0 {
                *walker = Walker::Walks { owes: 0 };
                orders.push((rank, WalkOrder::Walk(from.drain(..count).collect())));
            }
        }
        if self.open.len() < self.ranks.len() {
            for (rank, walker) in self.ranks.iter_mut().enumerate() {
                if let Walker::Walks { owes: owes @ 0 } = walker {
                    *owes = GIVE;
                    orders.push((rank, WalkOrder::Give(GIVE as u32)));
                }
            }
        }
        orders
    }

    /// Nobody goes on: those that walk are told so.
    pub fn stop(&mut self) -> Vec<(usize, WalkOrder)> {
        self.is_stopped = true;
        let walks =
            self.ranks.iter().enumerate().filter(|(_, walker)| matches!(walker, Walker::Walks { .. }));
        walks.map(|(rank, _)| (rank, WalkOrder::Stop)).collect()
    }

    /// Whether nothing is being walked any more, and nothing is to be.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let rests = self.ranks.iter().all(|walker| !matches!(walker, Walker::Walks { .. }));
        let is_there = self.ranks.first().is_some_and(|first| *first != Walker::Away);
        let is_empty = self.open.is_empty() && self.of_first.is_empty();
        rests && is_there && (self.is_stopped || is_empty)
    }

    /// Ranks that were heard of.
    pub fn there(&self) -> impl Iterator<Item = usize> {
        self.ranks.iter().enumerate().filter(|(_, walker)| **walker != Walker::Away).map(|(rank, _)| rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Ranks that walk a tree of directories, each with so many below it until some depth, as ranks do: what waits longest is
    /// given away, half of it at most.
    struct Model {
        walkers: Walkers,
        waits: Vec<VecDeque<Vec<u8>>>,
        wanted: Vec<usize>,
        seen: BTreeMap<Vec<u8>, usize>,
        gave: usize,
        most_open: usize,
    }

    impl Model {
        fn new(ranks: usize) -> Model {
            let (waits, wanted) = (vec![VecDeque::new(); ranks], vec![0; ranks]);
            Model {
                walkers: Walkers::new(ranks),
                waits,
                wanted,
                seen: BTreeMap::new(),
                gave: 0,
                most_open: 0,
            }
        }

        fn hear(&mut self, rank: usize, report: WalkReport) {
            for (rank, order) in self.walkers.hear(rank, report) {
                match order {
                    WalkOrder::Walk(paths) => self.waits[rank].extend(paths),
                    WalkOrder::Give(count) => self.wanted[rank] = count as usize,
                    WalkOrder::Stop => panic!("nothing stops"),
                }
            }
            self.most_open = self.most_open.max(self.walkers.open.len());
        }

        fn step(&mut self, rank: usize, each: u8, depth: usize) {
            let Some(path) = self.waits[rank].pop_back() else { return };
            if path.len() < depth {
                self.waits[rank].extend((0..each).map(|n| [path.as_slice(), &[n]].concat()));
            }
            assert_eq!(self.seen.insert(path, rank), None, "walked twice");
            let most = self.wanted[rank].min(self.waits[rank].len() / 2);
            self.wanted[rank] -= most;
            for _ in 0..most {
                let given = self.waits[rank].pop_front().unwrap();
                self.gave += 1;
                self.hear(rank, WalkReport::Gave(GivenTo::Any, given));
            }
            if self.waits[rank].is_empty() {
                self.hear(rank, WalkReport::Walked);
            }
        }
    }

    #[test]
    fn every_directory_is_walked_once_and_no_rank_is_left_without() {
        for (ranks, each, depth) in [(1, 3, 4), (2, 2, 9), (5, 9, 4), (4, 1, 30), (8, 200, 2)] {
            let mut model = Model::new(ranks);
            for rank in (0..ranks).rev() {
                model.hear(rank, WalkReport::Ready);
            }
            while !model.walkers.is_over() {
                // The last rank does two for one of each other.
                for rank in (0..ranks).chain([ranks - 1]) {
                    model.step(rank, each, depth);
                }
            }
            let all: usize = (0..=depth as u32).map(|n| usize::from(each).pow(n)).sum();
            assert_eq!(model.seen.len(), all, "{ranks} ranks, {each} in each");
            assert!(model.most_open <= ranks * (GIVE + 1), "{} waited", model.most_open);
            assert_eq!(model.walkers.there().count(), ranks);
            if each > 1 {
                for rank in 0..ranks {
                    let own = model.seen.values().filter(|by| **by == rank).count();
                    assert!(own * ranks * 3 >= all, "rank {rank} of {ranks} walked {own} of {all}");
                }
                assert!(ranks == 1 || model.gave * 3 <= all, "{} of {all} were given", model.gave);
            }
        }
    }

    #[test]
    fn what_is_for_the_first_rank_waits_for_it() {
        let mut walkers = Walkers::new(3);
        assert_eq!(walkers.hear(1, WalkReport::Ready), []);
        assert!(!walkers.is_over(), "the first rank was not heard of");
        let root = |rank| (rank, WalkOrder::Walk(vec![Vec::new()]));
        assert_eq!(walkers.hear(0, WalkReport::Ready), [root(0), (0, WalkOrder::Give(GIVE as u32))]);
        let given = walkers.hear(0, WalkReport::Gave(GivenTo::Any, b"a".to_vec()));
        let a = WalkOrder::Walk(vec![b"a".to_vec()]);
        assert_eq!(given, [(1, a), (1, WalkOrder::Give(GIVE as u32))]);
        assert_eq!(walkers.hear(1, WalkReport::Gave(GivenTo::First, b"a/mount".to_vec())), []);
        assert_eq!(walkers.hear(1, WalkReport::Walked), []);
        assert!(!walkers.is_over());
        let mount = WalkOrder::Walk(vec![b"a/mount".to_vec()]);
        assert_eq!(walkers.hear(0, WalkReport::Walked), [(0, mount), (0, WalkOrder::Give(GIVE as u32))]);
        assert_eq!(walkers.hear(0, WalkReport::Walked), []);
        assert!(walkers.is_over() && walkers.there().eq([0, 1]));
    }

    #[test]
    fn a_stop_ends_the_walk_of_those_that_walk() {
        let mut walkers = Walkers::new(3);
        for rank in 0..2 {
            walkers.hear(rank, WalkReport::Ready);
        }
        assert_eq!(walkers.stop(), [(0, WalkOrder::Stop)]);
        assert_eq!(walkers.hear(0, WalkReport::Gave(GivenTo::Any, b"a".to_vec())), []);
        assert!(!walkers.is_over());
        assert_eq!(walkers.hear(0, WalkReport::Walked), []);
        assert!(walkers.is_over());
    }
}
