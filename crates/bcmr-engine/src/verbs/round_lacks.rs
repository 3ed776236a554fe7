//! Directories that a destination lacks, as rounds of known names meet them: what is in one may come in another round than its own
//! name, or in another process. So each round tells one once, with what of it has come in that round, and it counts as a
//! difference where its own name has come.
//!
//! Must not look at anything.

use crate::verbs::entry_pair::Lack;
use fastcopy::meta::Info;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Such directories in one round, at most: more than a plan's frame can have. What another program sends beyond is not told.
const LACKS_MAX: usize = 1 << 16;

/// Those that were not told yet, by their paths.
#[derive(Default)]
pub(crate) struct RoundLacks(Mutex<BTreeMap<PathBuf, Arc<Lack>>>);

impl RoundLacks {
    fn all(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<Lack>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one with this path, where `there` stands in its place, if anything does.
    pub(crate) fn of(&self, path: &Path, there: Option<Info>) -> Arc<Lack> {
        let mut all = self.all();
        match all.get(path) {
            Some(known) => known.clone(),
            None => {
                let lack = Lack::unnamed(path, there);
                if all.len() < LACKS_MAX {
                    all.insert(path.to_owned(), lack.clone());
                }
                lack
            }
        }
    }

    /// The round is over: those that are told, in the order of their paths. Whatever stands in the place of a directory is told
    /// with that directory's own name alone.
    pub(crate) fn end(&self) -> impl Iterator<Item = Arc<Lack>> + use<> {
        let all = std::mem::take(&mut *self.all());
        let has_some = |lack: &Lack| lack.there.is_none() && lack.files.load(Relaxed) > 0;
        all.into_values().filter(move |lack| lack.is_named() || has_some(lack))
    }
}
