//! Where the directories of a move are that the receiver may have taken away.
//!
//! Must not know when, nor how that is done.

use crate::sender::place::AnnouncedDir;
use crate::sender::walk::SourceDir;
use fastcopy::dir::NameBuf;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Where a directory that was announced is.
#[derive(Clone)]
pub(super) enum MovedIn {
    /// In another one.
    Dir(Arc<AnnouncedDir>, NameBuf),
    /// It is an operand.
    Operand(Arc<SourceDir>, NameBuf),
    /// It is the directory of the one operand that has this name, and stays.
    Alone(NameBuf),
    /// It is what names of a list are below, and stays.
    Nothing,
}

impl MovedIn {
    /// Whether what has this name in the directory may have been sent: beside an operand nothing was.
    pub(super) fn was_sent(&self, name: &[u8]) -> bool {
        !matches!(self, MovedIn::Alone(operand) if operand.bytes() != name)
    }
}

/// Directories that were announced in a move, by their numbers, until they are taken away.
#[derive(Default)]
pub(super) struct MovedDirs(Mutex<HashMap<u64, (Arc<AnnouncedDir>, MovedIn)>>);

impl MovedDirs {
    pub(super) fn announced(&self, place: &Arc<AnnouncedDir>, above: MovedIn) {
        let mut dirs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        dirs.insert(place.id, (place.clone(), above));
    }

    pub(super) fn get(&self, dir: u64) -> Option<(Arc<AnnouncedDir>, MovedIn)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&dir).cloned()
    }

    pub(super) fn gone(&self, dir: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&dir);
    }
}
