//! What a sender has named so far, held against what it may name: operands, directories, batches and large files, each
//! number once and in its order.
//!
//! Must not know what becomes of any of it, nor keep what a sender could make grow without end.

use crate::error::{Reason, Result};
use crate::verbs::incoming::{What, refused};
use bcmr_wire::limits;
use bcmr_wire::message::Kind;
use fastcopy::dir::NameBuf;
use std::collections::BTreeSet;

/// Numbers that were given out.
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
    batches: Ids,
    files: Ids,
}

/// Ids that are given in order from 1 and may arrive in another, each once.
#[derive(Default)]
struct Ids {
    /// All up to here have come.
    upto: u64,
    early: BTreeSet<u64>,
}

impl Ids {
    /// Whether an id was given.
    fn came(&self, id: u64) -> bool {
        id <= self.upto || self.early.contains(&id)
    }

    fn take(&mut self, id: u64) -> bool {
        // No more can be early than may be under way.
        if id <= self.upto || id > self.upto + 4 * limits::BATCHES_OUT_MAX as u64 || !self.early.insert(id) {
            return false;
        }
        while self.early.remove(&(self.upto + 1)) {
            self.upto += 1;
        }
        true
    }
}

impl Named {
    /// An operand that has this name, or none of its own.
    pub(crate) fn operand(
        &mut self,
        what: &What,
        id: u64,
        origin: u64,
        name: Option<&NameBuf>,
        kind: Kind,
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
        let asked = what.asked.operand(self.next_asked, name, kind == Kind::Dir);
        let asked = asked.ok_or_else(|| refused(Reason::OperandNotAsked))?;
        self.next_asked = asked + 1;
        if !what.kinds.hold(asked, kind) {
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

    /// A batch, while `open` others are.
    pub(crate) fn batch(&mut self, id: u64, open: usize) -> Result<()> {
        if !self.batches.take(id) {
            return Err(refused(Reason::BatchTwice));
        }
        if open >= limits::BATCHES_OUT_MAX {
            return Err(refused(Reason::TooManyBatches));
        }
        Ok(())
    }

    /// A large file on offer.
    pub(crate) fn file(&mut self, id: u64) -> Result<()> {
        if self.files.take(id) { Ok(()) } else { Err(refused(Reason::FileTwice)) }
    }

    /// What comes for a large file that is not on its way: dropped when it was settled before the sender heard of it.
    pub(crate) fn was_offered(&self, id: u64) -> Result<()> {
        if self.files.came(id) { Ok(()) } else { Err(refused(Reason::FileNotOffered)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_once_and_none_far_ahead() {
        let mut ids = Ids::default();
        assert!(ids.take(2) && !ids.take(2) && ids.take(1) && !ids.take(1) && ids.take(3));
        assert_eq!((ids.upto, ids.early.len()), (3, 0));
        assert!(!ids.take(4 + 4 * limits::BATCHES_OUT_MAX as u64) && !ids.came(4) && ids.came(3));
    }

    #[test]
    fn what_was_refused_is_forgotten_once_everybody_has_heard_of_it() {
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
