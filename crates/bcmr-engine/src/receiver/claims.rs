//! S15: whose a final name is, within one run: the first source's that claims it. No other source replaces what it
//! becomes.
//!
//! Must not look at any disk. Names are known by their place below the target, so two that a file system takes for one
//! are two here (`created_names` judges those). A claim takes some 20 bytes, and none is made where two sources cannot
//! meet.

use crate::error::{Code, Error, Note, Op, Reason, Result};
use fastcopy::dir::Name;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Who meets in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// Not at all: one operand, or several that become different names.
    Never,
    /// Operands, of which several may become one name.
    Operands,
    /// Names of a list: one final name is of one source, which may be listed again and again.
    Listed,
}

/// A directory's place below the target, and for which source it is being filled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spot {
    key: u64,
    /// The operand, or what a list has named.
    pub(crate) owner: u32,
    /// An operand before this one that may have put names here.
    earlier: Option<u32>,
    /// The operand that brought all of it in one piece (a renamed directory), whose names were not claimed singly.
    brought: Option<u32>,
}

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// The name is this source's from now on.
    First,
    /// It was already.
    Again,
    /// The very same source came this way before.
    Same,
    /// It is of this other operand.
    Other(u32),
    /// It is this source's unless something is there, which then is of the other operand.
    Unless(u32),
}

/// Who has it, and a digest of the source.
type Held = (u32, u32);

/// The claims of one run.
pub(crate) struct Claims {
    meeting: Meeting,
    /// Claims that are kept. Where they are not, what is there already is an earlier operand's, if there was one.
    most: usize,
    key: RandomState,
    held: Mutex<HashMap<u64, Held>>,
    /// Directories that were renamed into place, and by which operand.
    brought: Mutex<HashMap<u64, u32>>,
    /// Operands as typed, and whether one is the contents of a directory.
    operands: Mutex<Vec<(PathBuf, bool)>>,
}

fn open<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Claims {
    pub(crate) fn new(meeting: Meeting) -> Claims {
        Claims::of_at_most(usize::MAX, meeting)
    }

    /// The same for names that a peer gives.
    pub(crate) fn of_at_most(most: usize, meeting: Meeting) -> Claims {
        Claims {
            meeting,
            most,
            key: RandomState::new(),
            held: Mutex::default(),
            brought: Mutex::default(),
            operands: Mutex::default(),
        }
    }

    /// The place of one more operand: in the target, which it may fill as a `whole`.
    pub(crate) fn operand(&self, path: &Path, whole: bool) -> Spot {
        if self.meeting == Meeting::Never {
            return Spot::default();
        }
        let mut operands = open(&self.operands);
        operands.push((path.to_owned(), whole));
        Spot { owner: operands.len() as u32 - 1, ..Spot::default() }
    }

    /// Whether an operand before the last is the contents of a directory.
    pub(crate) fn has_whole(&self) -> bool {
        open(&self.operands).iter().rev().skip(1).any(|(_, whole)| *whole)
    }

    /// The same place for something else that a list names.
    pub(crate) fn another(&self, spot: &Spot) -> Spot {
        if self.meeting == Meeting::Never { *spot } else { self.operand(Path::new(""), true).at(spot) }
    }

    /// The place of the directory `name`.
    pub(crate) fn below(&self, spot: &Spot, name: Name<'_>) -> Spot {
        if self.meeting == Meeting::Never {
            return *spot;
        }
        let key = self.key_of(spot, name);
        let brought = spot.brought.or_else(|| open(&self.brought).get(&key).copied());
        Spot { key, brought, ..*spot }
    }

    fn key_of(&self, spot: &Spot, name: Name<'_>) -> u64 {
        self.key.hash_one((spot.key, name.bytes()))
    }

    /// Claims `name` in `spot`, before anything is filled that gets it. `source` tells the source from others of that
    /// name.
    pub(crate) fn claim(&self, spot: &Spot, name: Name<'_>, source: impl std::hash::Hash) -> Claimed {
        if self.meeting == Meeting::Never {
            return Claimed::First;
        }
        let digest = self.key.hash_one(source) as u32;
        let mut held = open(&self.held);
        let is_full = held.len() >= self.most;
        match held.entry(self.key_of(spot, name)) {
            Entry::Vacant(_) if is_full => spot.earlier.map_or(Claimed::First, Claimed::Unless),
            Entry::Vacant(slot) => {
                slot.insert((spot.owner, digest));
                match spot.brought {
                    Some(other) if other != spot.owner => Claimed::Unless(other),
                    _ => Claimed::First,
                }
            }
            Entry::Occupied(slot) => match *slot.get() {
                (owner, _) if owner == spot.owner => Claimed::Again,
                (_, was) if was == digest || self.meeting == Meeting::Listed => Claimed::Same,
                (owner, _) => Claimed::Other(owner),
            },
        }
    }

    /// [`Claims::claim`], refused where the name is another source's. `is_there` looks whether something has the name;
    /// `ends` is asked for the destination as it is shown, the same below the target, and the source.
    ///
    /// # Errors
    /// The name is another source's, or the look failed.
    pub(crate) fn take(
        &self,
        spot: &Spot,
        name: Name<'_>,
        source: impl std::hash::Hash,
        is_there: impl FnOnce() -> Result<bool>,
        ends: impl FnOnce() -> (PathBuf, PathBuf, PathBuf),
    ) -> Result<Claimed> {
        let other = match self.claim(spot, name, source) {
            Claimed::Other(other) => other,
            Claimed::Unless(other) if is_there()? => other,
            Claimed::Unless(_) => return Ok(Claimed::First),
            claimed => return Ok(claimed),
        };
        let (shown, below, second) = ends();
        Err(Error::ours(Code::Refused, Op::Replace, shown, self.refusal(other, &below, &second)))
    }

    /// The place of a name, where two sources can meet.
    pub(crate) fn place_of(&self, spot: &Spot, name: Name<'_>) -> Option<u64> {
        (self.meeting != Meeting::Never).then(|| self.key_of(spot, name))
    }

    /// Whether all sources are named by one list.
    pub(crate) fn is_listed(&self) -> bool {
        self.meeting == Meeting::Listed
    }

    /// The directory `name` is there as a whole.
    pub(crate) fn brought(&self, spot: &Spot, name: Name<'_>) {
        if self.meeting != Meeting::Never {
            open(&self.brought).insert(self.key_of(spot, name), spot.owner);
        }
    }

    /// What the operand `owner` has under `below`, a path relative to the target.
    pub(crate) fn source_of(&self, owner: u32, below: &Path) -> PathBuf {
        let operands = open(&self.operands);
        let Some((path, whole)) = operands.get(owner as usize) else { return PathBuf::new() };
        let mut rest = below.components();
        if !*whole {
            rest.next();
        }
        let rest = rest.as_path();
        if rest.as_os_str().is_empty() { path.clone() } else { path.join(rest) }
    }

    /// Why `second` is refused.
    fn refusal(&self, owner: u32, below: &Path, second: &Path) -> Note {
        let first = self.source_of(owner, below);
        Reason::ThereForAnother.about(first.as_path()).about(second)
    }
}

impl Spot {
    /// The same place, where `earlier` may have put names.
    pub(crate) fn after(self, earlier: u32) -> Spot {
        Spot { earlier: Some(earlier), ..self }
    }

    fn at(self, spot: &Spot) -> Spot {
        Spot { owner: self.owner, ..*spot }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastcopy::dir::NameBuf;

    fn name(text: &str) -> NameBuf {
        NameBuf::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_name_is_the_first_operands_that_claims_it() {
        let claims = Claims::new(Meeting::Operands);
        let (one, two) = (claims.operand(Path::new("c1/D"), false), claims.operand(Path::new("c2/D"), false));
        let (d, img, other) = (name("D"), name("img"), name("other"));
        let (in1, in2) = (claims.below(&one, d.as_name()), claims.below(&two, d.as_name()));
        assert_eq!(claims.claim(&in1, img.as_name(), 1), Claimed::First);
        assert_eq!(claims.claim(&in1, img.as_name(), 1), Claimed::Again);
        assert_eq!(claims.claim(&in2, img.as_name(), 2), Claimed::Other(0));
        assert_eq!(claims.claim(&in2, img.as_name(), 1), Claimed::Same);
        // The twins: another name, and the same one in another directory.
        assert_eq!(claims.claim(&in2, other.as_name(), 2), Claimed::First);
        assert_eq!(claims.claim(&two, img.as_name(), 2), Claimed::First);
        assert_eq!(claims.source_of(0, Path::new("D/sub/img")), Path::new("c1/D/sub/img"));
        let whole = claims.operand(Path::new("c3/."), true);
        assert_eq!(claims.source_of(whole.owner, Path::new("D/img")), Path::new("c3/./D/img"));
    }

    #[test]
    fn what_was_brought_as_a_whole_is_claimed_as_a_whole() {
        let claims = Claims::new(Meeting::Operands);
        let (one, two) = (claims.operand(Path::new("c1/D"), false), claims.operand(Path::new("c2/D"), false));
        let (d, sub, img) = (name("D"), name("sub"), name("img"));
        claims.brought(&one, d.as_name());
        let deep = |spot: &Spot| claims.below(&claims.below(spot, d.as_name()), sub.as_name());
        assert_eq!(claims.claim(&deep(&two), img.as_name(), 2), Claimed::Unless(0));
        assert_eq!(claims.claim(&deep(&two), img.as_name(), 2), Claimed::Again);
        assert_eq!(claims.claim(&deep(&one), name("x").as_name(), 1), Claimed::First);
    }

    #[test]
    fn where_no_more_claims_are_kept_nothing_that_is_there_is_replaced() {
        let claims = Claims::of_at_most(1, Meeting::Operands);
        let (one, two) = (claims.operand(Path::new("c1/D"), false), claims.operand(Path::new("c2/D"), false));
        let two = two.after(one.owner);
        assert_eq!(claims.claim(&one, name("kept").as_name(), 1), Claimed::First);
        assert_eq!(claims.claim(&one, name("img").as_name(), 1), Claimed::First);
        assert_eq!(claims.claim(&two, name("kept").as_name(), 2), Claimed::Other(0));
        assert_eq!(claims.claim(&two, name("img").as_name(), 2), Claimed::Unless(0));
        assert_eq!(claims.held.lock().unwrap().len(), 1);
    }

    #[test]
    fn names_of_a_list_are_of_one_source() {
        let claims = Claims::new(Meeting::Listed);
        let root = claims.operand(Path::new("base"), true);
        let f = name("f");
        assert_eq!(claims.claim(&root, f.as_name(), 1), Claimed::First);
        assert_eq!(claims.claim(&root, f.as_name(), 1), Claimed::Again);
        assert_eq!(claims.claim(&claims.another(&root), f.as_name(), 2), Claimed::Same);
    }

    #[test]
    fn where_nobody_meets_nothing_is_kept() {
        let claims = Claims::new(Meeting::Never);
        let root = claims.operand(Path::new("a"), false);
        for _ in 0..2 {
            assert_eq!(claims.claim(&root, name("f").as_name(), 1), Claimed::First);
        }
        assert!(open(&claims.held).is_empty() && open(&claims.operands).is_empty());
    }
}
