//! What of the names of one round is there: what it was when it was read, and its hash.
//!
//! Must not know who asks, nor what a round is for.

use crate::blocks::Cv;
use fastcopy::dir::{Name, NameBuf};
use fastcopy::meta::Info;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// A directory of the source, by device and inode, and a name in it.
type PlaceInSource = ((u64, u64), NameBuf);

/// What names were when they were read, and their hashes.
pub(crate) type LandedNames = HashMap<PlaceInSource, (Info, Option<Cv>)>;

/// What has landed, or was there, of one round.
#[derive(Default)]
pub(crate) struct RoundLedger(Mutex<LandedNames>);

impl RoundLedger {
    /// `name` of the source's directory `dir` is there.
    pub(crate) fn landed(&self, dir: (u64, u64), name: Name<'_>, info: &Info, hash: Option<&blake3::Hash>) {
        let what = (*info, hash.map(|hash| *hash.as_bytes()));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((dir, name.to_owned()), what);
    }

    /// All of it, for the next round to begin with none.
    pub(crate) fn take(&self) -> LandedNames {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
