//! Directories for files without names, apart from those that the files get their names in: workers whose files lie in
//! different ones do not wait for each other.
//!
//! Must not know why they would, nor how such a directory is made: [`crate::disk::Files::apart`] does.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// At most one is made for so many files without names, so its calls do not matter.
const FILES_EACH: usize = 128;
/// After so many files another one is made. Where it makes a difference (xfs), the files of one lie in one allocation group,
/// and those of the next in another.
const FILES_MAX: usize = 4096;
/// So many are kept that no batch has.
const FREE_MAX: usize = 16;

/// Those of one operand.
pub(crate) struct ApartDirs<H, T>(Mutex<Aparts<H, T>>);

/// One of them, for a batch.
pub(crate) struct ApartDir<H, T> {
    pub(crate) dir: T,
    /// What it hands down: that of the directory that it was made in.
    heritage: Arc<H>,
    /// Files that batches had for it.
    files: usize,
}

struct Aparts<H, T> {
    /// Files without names so far.
    files: usize,
    /// Directories that were made for them, or tried to.
    tries: usize,
    /// Whether workers wait for each other on this device, the last that was asked for.
    waits: Option<(u64, bool)>,
    /// Those that no batch has.
    free: VecDeque<ApartDir<H, T>>,
}

impl<H, T> Default for ApartDirs<H, T> {
    fn default() -> ApartDirs<H, T> {
        ApartDirs(Mutex::new(Aparts { files: 0, tries: 0, waits: None, free: VecDeque::new() }))
    }
}

impl<H: PartialEq, T> ApartDirs<H, T> {
    fn aparts(&self) -> MutexGuard<'_, Aparts<H, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch is going to make `files` files without names on the device `dev`. Whether it should ask for a directory of its
    /// own: there are many, and workers `wait` for each other on that device.
    pub(crate) fn is_worth_it(&self, files: usize, dev: u64, wait: impl FnOnce() -> bool) -> bool {
        let mut aparts = self.aparts();
        aparts.files = aparts.files.saturating_add(files);
        if aparts.files < FILES_EACH {
            return false;
        }
        match aparts.waits {
            Some((known_dev, waits)) if known_dev == dev => waits,
            _ => {
                drop(aparts);
                let waits = wait();
                self.aparts().waits = Some((dev, waits));
                waits
            }
        }
    }

    /// One for a batch of `files` files, of those that were given back or from `make`. `None`: the files are made where they
    /// get their names.
    pub(crate) fn take(
        &self,
        files: usize,
        heritage: &Arc<H>,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<ApartDir<H, T>> {
        let mut aparts = self.aparts();
        if let Some(at) = aparts.free.iter().rposition(|apart| apart.heritage == *heritage) {
            let mut apart = aparts.free.remove(at)?;
            apart.files += files;
            return Some(apart);
        }
        if aparts.tries >= aparts.files / FILES_EACH {
            return None;
        }
        aparts.tries += 1;
        drop(aparts);
        make().map(|dir| ApartDir { dir, heritage: heritage.clone(), files })
    }

    /// The files of a batch have their names: until then another batch that makes files there would wait for this one.
    pub(crate) fn give_back(&self, apart: Option<ApartDir<H, T>>) {
        let Some(apart) = apart.filter(|apart| apart.files < FILES_MAX) else { return };
        let mut aparts = self.aparts();
        aparts.free.push_back(apart);
        if aparts.free.len() > FREE_MAX {
            aparts.free.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What two directories hand down.
    fn two() -> [Arc<u8>; 2] {
        [1, 2].map(Arc::new)
    }

    #[test]
    fn each_batch_has_one_to_itself_that_hands_down_the_same() {
        let (dirs, [here, there]) = (ApartDirs::default(), two());
        assert!(!dirs.is_worth_it(FILES_EACH - 1, 1, || true), "few files");
        assert!(
            dirs.is_worth_it(3 * FILES_EACH, 1, || true) && dirs.is_worth_it(0, 1, || false),
            "asked once"
        );
        assert!(!dirs.is_worth_it(0, 2, || false), "another device");
        let mut made = 0;
        let mut take = |heritage| {
            dirs.take(16, heritage, || {
                made += 1;
                Some(made)
            })
        };
        let (first, second) = (take(&here), take(&here));
        assert_eq!([&first, &second].map(|a| a.as_ref().map(|a| a.dir)), [Some(1), Some(2)]);
        dirs.give_back(first);
        let other = take(&there);
        assert_eq!(other.as_ref().map(|a| a.dir), Some(3), "the free one hands down something else");
        dirs.give_back(other);
        assert_eq!(take(&here).map(|a| a.dir), Some(1));
        assert!(take(&here).is_none(), "as many as were made for so few files");
    }

    #[test]
    fn it_is_given_up_after_many_files_and_when_too_many_are_free() {
        let (dirs, [here, _]) = (ApartDirs::default(), two());
        assert!(dirs.is_worth_it(FILES_EACH * FILES_MAX, 1, || true));
        let full = dirs.take(FILES_MAX, &here, || Some(0));
        dirs.give_back(full);
        let all: Vec<_> = (1..=FREE_MAX + 2).map(|n| dirs.take(1, &here, || Some(n))).collect();
        assert!(all.iter().flatten().map(|a| a.dir).eq(1..=FREE_MAX + 2), "the full one is gone");
        all.into_iter().for_each(|apart| dirs.give_back(apart));
        assert!(dirs.aparts().free.iter().map(|a| a.dir).eq(3..=FREE_MAX + 2));
    }

    #[test]
    fn what_cannot_be_made_is_tried_once_for_so_many_files() {
        let (dirs, [here, _]) = (ApartDirs::<_, ()>::default(), two());
        let mut tries = 0;
        for _ in 0..3 * FILES_EACH {
            if dirs.is_worth_it(1, 1, || true) {
                let none = dirs.take(1, &here, || {
                    tries += 1;
                    None
                });
                dirs.give_back(none);
            }
        }
        assert_eq!(tries, 3);
    }
}
