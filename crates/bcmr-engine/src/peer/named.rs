//! What a sender has named so far, held against what it may name: operands, directories, batches and large files, each
//! number once and in its order.
//!
//! Must not know what becomes of any of it, nor keep what a sender could make grow without end.

use crate::error::{Error, Reason, Result};
use crate::peer::incoming::{Incoming, refused};
use bcmr_wire::limits;
use bcmr_wire::message::Entry;
use bcmr_wire::window::{Stray, Taker};
use fastcopy::dir::NameBuf;
use std::collections::BTreeSet;

/// Numbers that were given out.
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
    /// Batches that have come, and those whose last `Wants` is still owed.
    batches: Taker,
    /// Large files that have come, and those whose `Close` is still owed.
    files: Taker,
}

impl Default for Named {
    fn default() -> Named {
        Named {
            operands: 0,
            next_asked: 0,
            origin: None,
            dir_id: 0,
            refused: BTreeSet::new(),
            batches: Taker::new(limits::BATCHES_OUT_MAX),
            files: Taker::new(limits::OFFERS_OUT_MAX),
        }
    }
}

impl Named {
    /// An operand that has this name, or none of its own.
    pub(crate) fn operand(
        &mut self,
        what: &Incoming,
        id: u64,
        origin: u64,
        name: Option<&NameBuf>,
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

    /// A batch has come.
    ///
    /// # Errors
    /// It came before, or more are under way than may be.
    pub(crate) fn batch(&mut self, id: u64) -> Result<()> {
        self.batches.take(id).map_err(|stray| strays(stray, Reason::BatchTwice, Reason::TooManyBatches))
    }

    /// Its last `Wants` is about to be sent.
    pub(crate) fn settle_batch(&mut self, id: u64) -> Result<()> {
        self.batches.settle(id).map_err(|stray| strays(stray, Reason::BatchTwice, Reason::TooManyBatches))
    }

    /// A large file is on offer.
    ///
    /// # Errors
    /// As [`Named::batch`].
    pub(crate) fn file(&mut self, id: u64) -> Result<()> {
        self.files.take(id).map_err(|stray| strays(stray, Reason::FileTwice, Reason::TooManyOffers))
    }

    /// Its `Close` is about to be sent.
    pub(crate) fn close_file(&mut self, id: u64) -> Result<()> {
        self.files.settle(id).map_err(|stray| strays(stray, Reason::FileTwice, Reason::TooManyOffers))
    }

    /// What comes for a large file that is not on its way: dropped when it was settled before the sender heard of it.
    pub(crate) fn was_offered(&self, id: u64) -> Result<()> {
        if self.files.has_come(id) { Ok(()) } else { Err(refused(Reason::FileNotOffered)) }
    }
}

/// An id that may not be, as an error.
fn strays(stray: Stray, twice: Reason, too_many: Reason) -> Error {
    match stray {
        Stray::Unknown(_) | Stray::Twice(_) => refused(twice),
        Stray::Full(_) => refused(too_many),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_under_way_than_the_windows_hold() {
        let mut named = Named::default();
        let batches = limits::BATCHES_OUT_MAX as u64;
        assert!((1..=batches).all(|id| named.batch(id).is_ok()) && named.batch(batches + 1).is_err());
        assert!(named.settle_batch(7).is_ok() && named.settle_batch(7).is_err());
        assert!(named.batch(batches + 1).is_ok() && named.batch(7).is_err());
        let files = limits::OFFERS_OUT_MAX as u64;
        assert!((1..=files).all(|id| named.file(id).is_ok()) && named.file(files + 1).is_err());
        assert!(named.was_offered(files).is_ok() && named.was_offered(files + 1).is_err());
        assert!(named.close_file(1).is_ok() && named.was_offered(1).is_ok() && named.file(files + 1).is_ok());
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
