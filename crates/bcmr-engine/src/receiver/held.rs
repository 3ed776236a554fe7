//! Which names a directory that was there before had when it was opened: what is not among them need not be looked for
//! one by one.
//!
//! Must not ask a disk, and must not be taken for what is there now: other programs make names at any time, and a file
//! system may take two names for one. So what is landed on the word of this list replaces nothing.

use fastcopy::dir::Name;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A directory that holds more names is looked at name by name: some 16 bytes are kept of each.
const NAMES_MAX: usize = 16_384;

/// The names of one directory; nothing is known of it at first.
#[derive(Debug, Default)]
pub(crate) struct HeldNames {
    key: RandomState,
    /// Hashes. Two names of one hash cost a look.
    names: Mutex<Option<HashSet<u64>>>,
}

impl HeldNames {
    /// Of a directory that is about to be listed.
    pub(crate) fn listing() -> HeldNames {
        HeldNames { names: Mutex::new(Some(HashSet::new())), ..HeldNames::default() }
    }

    /// Of a directory that is taken for empty: nothing was put there before, as far as is known.
    pub(crate) fn none() -> HeldNames {
        HeldNames::listing()
    }

    /// The same of another directory: nothing is known of it, or it is taken for empty.
    pub(crate) fn again(&self) -> HeldNames {
        if self.names().is_some() { HeldNames::none() } else { HeldNames::default() }
    }

    fn names(&self) -> MutexGuard<'_, Option<HashSet<u64>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It holds `name`, or does by now.
    pub(crate) fn add(&self, name: Name<'_>) {
        let hash = self.key.hash_one(name.bytes());
        let mut names = self.names();
        if let Some(known) = names.as_mut() {
            known.insert(hash);
            if known.len() > NAMES_MAX {
                *names = None;
            }
        }
    }

    /// It was not listed to its end, or what is not among its names cannot be left alone there.
    pub(crate) fn forget(&self) {
        *self.names() = None;
    }

    /// Whether it is known not to have held `name`.
    pub(crate) fn lacks(&self, name: Name<'_>) -> bool {
        self.names().as_ref().is_some_and(|known| !known.contains(&self.key.hash_one(name.bytes())))
    }

    /// Whether it is known to have held nothing at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.names().as_ref().is_some_and(HashSet::is_empty)
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
    fn only_a_listing_says_what_is_not_there() {
        let (here, other) = (name("here"), name("other"));
        let unknown = HeldNames::default();
        unknown.add(here.as_name());
        assert!(!unknown.lacks(other.as_name()) && !unknown.is_empty(), "nothing was listed");
        let held = HeldNames::listing();
        assert!(held.is_empty() && held.lacks(here.as_name()));
        held.add(here.as_name());
        assert!(!held.is_empty() && !held.lacks(here.as_name()) && held.lacks(other.as_name()));
        held.forget();
        assert!(!held.lacks(other.as_name()));
    }

    #[test]
    fn the_list_is_bounded() {
        let held = HeldNames::listing();
        for n in 0..NAMES_MAX {
            held.add(name(&n.to_string()).as_name());
        }
        assert!(held.lacks(name("other").as_name()));
        held.add(name("one more").as_name());
        assert!(!held.lacks(name("other").as_name()));
    }
}
