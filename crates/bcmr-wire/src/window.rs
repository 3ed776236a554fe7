//! How much may be under way, and which ids may come: arithmetic only. Must not know what the ids stand for.
//!
//! The side that names things gives ids 1, 2, 3, ... and stops when its window is full; the taker sees them come over several
//! streams, so not always in order, and refuses one that is used twice or that an honest giver could not have given yet.

use std::collections::BTreeSet;
use std::fmt;

/// An id that may not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// Not given out, or settled already.
    Unknown(u64),
    /// Taken before.
    Twice(u64),
    /// More is under way than the window holds.
    Full(u64),
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stray::Unknown(id) => write!(f, "id {id} was not given out or is settled"),
            Stray::Twice(id) => write!(f, "id {id} is used twice"),
            Stray::Full(id) => write!(f, "id {id} is more than the window holds"),
        }
    }
}

impl std::error::Error for Stray {}

/// The side that ids come to. Remembers no more than two windows of them, however many have come.
#[derive(Debug)]
pub struct Taker {
    max: usize,
    highest: u64,
    /// Below `highest`, and still on their way over another stream.
    late: BTreeSet<u64>,
    /// Come, and not settled.
    open: BTreeSet<u64>,
}

impl Taker {
    /// Nothing come yet; the giver's window is `max`.
    #[must_use]
    pub fn new(max: usize) -> Taker {
        Taker { max, highest: 0, late: BTreeSet::new(), open: BTreeSet::new() }
    }

    /// How many have come and are not settled.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether `id` has come, settled or not.
    #[must_use]
    pub fn has_come(&self, id: u64) -> bool {
        id != 0 && id <= self.highest && !self.late.contains(&id)
    }

    /// Whether every id up to this one has come and is settled, and none beyond it has come.
    #[must_use]
    pub fn is_settled_up_to(&self, id: u64) -> bool {
        self.highest == id && self.late.is_empty() && self.open.is_empty()
    }

    /// `id` has come.
    pub fn take(&mut self, id: u64) -> Result<(), Stray> {
        if id == 0 {
            return Err(Stray::Unknown(id));
        }
        if id <= self.highest {
            // Late ones are among those that are under way, so their coming changes no count.
            if !self.late.remove(&id) {
                return Err(Stray::Twice(id));
            }
            self.open.insert(id);
            return Ok(());
        }
        // [window] All ids up to this one were given: those that have not come are under way as well.
        let fresh = id - self.highest;
        let known = (self.open.len() + self.late.len()) as u64;
        if fresh.saturating_add(known) > self.max as u64 {
            return Err(Stray::Full(id));
        }
        self.late.extend(self.highest + 1..id);
        self.highest = id;
        self.open.insert(id);
        Ok(())
    }

    /// Whether `id` has come and is not settled: what the other side says about any other is a stray.
    pub fn check(&self, id: u64) -> Result<(), Stray> {
        if self.open.contains(&id) { Ok(()) } else { Err(Stray::Unknown(id)) }
    }

    /// `id` is settled, and the giver about to be told.
    pub fn settle(&mut self, id: u64) -> Result<(), Stray> {
        if self.open.remove(&id) { Ok(()) } else { Err(Stray::Unknown(id)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An honest side that gives ids out.
    struct Giver {
        max: usize,
        last: u64,
        out: BTreeSet<u64>,
    }

    impl Giver {
        fn give(&mut self) -> Option<u64> {
            if self.out.len() >= self.max {
                return None;
            }
            self.last += 1;
            self.out.insert(self.last);
            Some(self.last)
        }
    }

    #[test]
    fn a_taker_refuses_what_no_honest_giver_gives() {
        let mut taker = Taker::new(3);
        assert_eq!(taker.take(0), Err(Stray::Unknown(0)));
        assert_eq!(taker.take(4), Err(Stray::Full(4)));
        assert_eq!(taker.take(u64::MAX), Err(Stray::Full(u64::MAX)));
        assert_eq!(taker.take(3), Ok(()));
        assert_eq!(taker.take(3), Err(Stray::Twice(3)));
        assert_eq!(taker.settle(2), Err(Stray::Unknown(2)), "given, but not come");
        assert_eq!((taker.take(1), taker.take(1)), (Ok(()), Err(Stray::Twice(1))));
        assert_eq!(taker.take(4), Err(Stray::Full(4)));
        assert_eq!((taker.settle(1), taker.take(1)), (Ok(()), Err(Stray::Twice(1))));
        assert_eq!((taker.take(4), taker.take(2), taker.open()), (Ok(()), Ok(()), 3));
    }

    proptest! {
        /// An honest giver over several streams that lag as they like is never refused, and neither side remembers more
        /// than its window.
        #[test]
        fn honest_work_is_never_refused(max in 1..9_usize, steps in proptest::collection::vec(any::<(u8, u8)>(), 0..400)) {
            let mut giver = Giver { max, last: 0, out: BTreeSet::new() };
            let mut taker = Taker::new(max);
            let mut streams: [Vec<u64>; 3] = Default::default();
            let mut told: Vec<u64> = Vec::new();
            for (what, which) in steps {
                let which = usize::from(which);
                match what % 4 {
                    0 => if let Some(id) = giver.give() { streams[which % 3].push(id) },
                    1 => if !streams[which % 3].is_empty() {
                        prop_assert_eq!(taker.take(streams[which % 3].remove(0)), Ok(()));
                    },
                    2 => if let Some(id) = taker.open.iter().copied().nth(which % max) {
                        prop_assert_eq!(taker.settle(id), Ok(()));
                        told.push(id);
                    },
                    _ => if !told.is_empty() { prop_assert!(giver.out.remove(&told.remove(0))) },
                }
                prop_assert!(giver.out.len() <= max && taker.open.len() + taker.late.len() <= max);
            }
        }
    }
}
