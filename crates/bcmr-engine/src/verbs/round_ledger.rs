//! What of the names of one round is there: what it was when it was read, and its hash.
//!
//! Must not know who asks, nor what a round is for.

use crate::blocks::Cv;
use fastcopy::dir::NameBuf;
use fastcopy::meta::Info;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// A directory of the source, by device and inode, and a name in it.
pub(crate) type PlaceInSource = ((u64, u64), NameBuf);

/// What names were when they were read, and their hashes.
pub(crate) type LandedNames<K> = HashMap<K, (Info, Option<Cv>)>;

/// What of names below a source on another machine has landed, by path.
pub(crate) type FetchedNames = RoundLedger<Vec<u8>>;

/// What has landed, or was there, of one round, by what tells a name of the source from all others.
pub(crate) struct RoundLedger<K>(Mutex<LandedNames<K>>);

impl<K> Default for RoundLedger<K> {
    fn default() -> RoundLedger<K> {
        RoundLedger(Mutex::default())
    }
}

impl<K: Eq + Hash> RoundLedger<K> {
    /// This is there.
    pub(crate) fn landed(&self, which: K, info: &Info, hash: Option<&blake3::Hash>) {
        let what = (*info, hash.map(|hash| *hash.as_bytes()));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(which, what);
    }

    /// All of it, for the next round to begin with none.
    pub(crate) fn take(&self) -> LandedNames<K> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
