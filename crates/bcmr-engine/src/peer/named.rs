//! What a sender has named so far, held against what it may name: operands and directories, each number once and in its
//! order; batches and large files, each number once and no more than a window holds.
//!
//! Must not know what becomes of any of it, nor keep what a sender could make grow without end.

use crate::error::{Error, Reason, Result};
use crate::peer::incoming::{Incoming, refused};
use bcmr_wire::limits;
use bcmr_wire::message::Entry;
use bcmr_wire::window::{Stray, Taker};
use fastcopy::dir::NameBuf;
use std::collections::BTreeSet;
use std::path::Path;

/// Operands and directories that were named; both have numbers of one sequence.
#[derive(Default)]
pub(crate) struct Named {
    operands: u64,
    /// The first of the operands asked for that may still come.
    next_asked: usize,
    /// The sender's machine, once it has said it.
    origin: Option<u64>,
    /// The highest directory.
    dir_id: u64,
    /// Directories that were refused, as far back as the sender may not have heard of it: what it has sent of them
    /// meanwhile is not wanted.
    refused: BTreeSet<u64>,
}

impl Named {
    /// An operand that has this path there, and this name, or none of its own.
    pub(crate) fn operand(
        &mut self,
        what: &Incoming,
        id: u64,
        origin: u64,
        name: (&Path, Option<&NameBuf>),
        entry: &Entry<'_>,
    ) -> Result<()> {
        self.operands += 1;
        if self.operands > what.operands || id != self.dir_id + 1 {
            return Err(refused(Reason::OperandTooMany));
        }
        if *self.origin.get_or_insert(origin) != origin {
            return Err(refused(Reason::OperandsOfTwoMachines));
        }
        self.dir_id = id;
        // V1: what has no name in common with what was asked for is not even looked at.
        let asked = what.asked.operand(self.next_asked, name, entry);
        let asked = asked.ok_or_else(|| refused(Reason::OperandNotAsked))?;
        self.next_asked = asked + 1;
        if !what.kinds.hold(asked, entry.kind) {
            return Err(refused(Reason::OperandOfOtherKind));
        }
        Ok(())
    }

    /// A directory; `open` are those whose end has not come.
    pub(crate) fn dir(&mut self, id: u64, open: usize) -> Result<()> {
        if id != self.dir_id + 1 {
            return Err(refused(Reason::DirectoryWithOwnId));
        }
        self.dir_id = id;
        if open > limits::DIRS_OUT_MAX * 16 {
            return Err(refused(Reason::TooManyDirectories));
        }
        Ok(())
    }

    /// Whether so many operands and directories were named.
    pub(crate) fn has_dirs(&self, count: u64) -> bool {
        self.dir_id == count
    }

    /// Nothing is wanted of a directory.
    pub(crate) fn refuse(&mut self, id: u64) {
        self.refused.insert(id);
        // [window] No more than so many are named while one is not answered.
        let heard = self.dir_id.saturating_sub(2 * limits::DIRS_OUT_MAX as u64);
        while self.refused.first().is_some_and(|id| *id < heard) {
            self.refused.pop_first();
        }
    }

    /// What comes for a directory that is not open: dropped when it was refused.
    ///
    /// # Errors
    /// It never was there: `note`.
    pub(crate) fn was_refused(&self, id: u64, note: Reason) -> Result<()> {
        if self.refused.contains(&id) { Ok(()) } else { Err(refused(note)) }
    }
}

/// Batches, or large files, that have come, and those whose end the sender has not been told of yet.
pub(crate) struct NamedInWindow {
    taker: Taker,
    twice: Reason,
    too_many: Reason,
}

impl NamedInWindow {
    /// Until the last `Wants` of each.
    pub(crate) fn batches() -> NamedInWindow {
        let taker = Taker::new(limits::BATCHES_OUT_MAX);
        NamedInWindow { taker, twice: Reason::BatchTwice, too_many: Reason::TooManyBatches }
    }

    /// Until the `Close` of each.
    pub(crate) fn files() -> NamedInWindow {
        let taker = Taker::new(limits::OFFERS_OUT_MAX);
        NamedInWindow { taker, twice: Reason::FileTwice, too_many: Reason::TooManyOffers }
    }

    /// One has come.
    ///
    /// # Errors
    /// It came before, or more are under way than may be.
    pub(crate) fn take(&mut self, id: u64) -> Result<()> {
        self.taker.take(id).map_err(|stray| self.refused(stray))
    }

    /// The sender is about to be told its end.
    ///
    /// # Errors
    /// It was told before.
    pub(crate) fn settle(&mut self, id: u64) -> Result<()> {
        self.taker.settle(id).map_err(|stray| self.refused(stray))
    }

    /// Whether all up to this one have come and are settled, and none beyond.
    pub(crate) fn is_settled_up_to(&self, id: u64) -> bool {
        self.taker.is_settled_up_to(id)
    }

    /// Whether it has come, settled or not.
    pub(crate) fn has_come(&self, id: u64) -> bool {
        self.taker.has_come(id)
    }

    fn refused(&self, stray: Stray) -> Error {
        match stray {
            Stray::Unknown(_) | Stray::Twice(_) => refused(self.twice),
            Stray::Full(_) => refused(self.too_many),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_under_way_than_the_windows_hold() {
        for (mut named, most) in [
            (NamedInWindow::batches(), limits::BATCHES_OUT_MAX as u64),
            (NamedInWindow::files(), limits::OFFERS_OUT_MAX as u64),
        ] {
            assert!((1..=most).all(|id| named.take(id).is_ok()) && named.take(most + 1).is_err());
            assert!(named.has_come(most) && !named.has_come(most + 1));
            assert!(named.settle(7).is_ok() && named.settle(7).is_err() && named.has_come(7));
            assert!(named.take(most + 1).is_ok() && named.take(7).is_err());
        }
    }

    #[test]
    fn what_was_refused_is_forgotten_once_the_sender_has_heard_of_it() {
        let mut named = Named::default();
        for id in 1..=50_000 {
            named.dir(id, 0).unwrap();
            named.refuse(id);
        }
        assert!(named.refused.len() <= 2 * limits::DIRS_OUT_MAX + 1, "{}", named.refused.len());
        assert!(
            named.was_refused(49_999, Reason::DirectoryInNone).is_ok()
                && named.was_refused(1, Reason::DirectoryInNone).is_err()
        );
    }
}
