//! What this run has put into one directory: nothing of it is taken for what a killed run left there.
//!
//! Must not ask a disk. Kept no longer than the directory is open, some 24 bytes an entry.

use fastcopy::dir::Name;
use fastcopy::meta::Info;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The book of one directory.
#[derive(Debug, Default)]
pub(crate) struct Newcomers {
    key: RandomState,
    /// By device, mostly a single one: inodes, and the hash of the name under which each came.
    book: Mutex<Vec<(u64, BTreeMap<u64, u32>)>>,
}

/// The book, while nobody else of this run reads or writes it.
pub(crate) struct Book<'a> {
    key: &'a RandomState,
    book: MutexGuard<'a, Vec<(u64, BTreeMap<u64, u32>)>>,
}

impl Newcomers {
    /// Opens the book. Who gives a name in this directory holds it from the look at what is there until the name is
    /// given.
    pub(crate) fn open(&self) -> Book<'_> {
        Book { key: &self.key, book: self.book.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl Book<'_> {
    fn hash(&self, name: Name<'_>) -> u32 {
        self.key.hash_one(name.bytes()) as u32
    }

    fn came_as(&self, there: &Info) -> Option<u32> {
        self.book.iter().find(|(dev, _)| *dev == there.dev)?.1.get(&there.ino).copied()
    }

    /// Whether this run has put it here, under whatever name.
    pub(crate) fn has(&self, there: &Info) -> bool {
        self.came_as(there).is_some()
    }

    /// It is here as `name`.
    pub(crate) fn add(&mut self, info: &Info, name: Name<'_>) {
        let hash = self.hash(name);
        match self.book.iter_mut().find(|(dev, _)| *dev == info.dev) {
            Some((_, inodes)) => drop(inodes.insert(info.ino, hash)),
            None => self.book.push((info.dev, BTreeMap::from([(info.ino, hash)]))),
        }
    }

    /// It is gone again; its inode may become anything.
    pub(crate) fn forget(&mut self, info: &Info) {
        if let Some((_, inodes)) = self.book.iter_mut().find(|(dev, _)| *dev == info.dev) {
            inodes.remove(&info.ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastcopy::dir::{Dir, NameBuf};

    #[test]
    fn what_came_is_known_until_it_goes() {
        let tmp = tempfile::tempdir().unwrap();
        let info = Dir::open(tmp.path()).unwrap().info().unwrap();
        let name = NameBuf::new(b"d").unwrap();
        let newcomers = Newcomers::default();
        let mut book = newcomers.open();
        assert!(!book.has(&info));
        book.add(&info, name.as_name());
        assert!(book.has(&info));
        // Inodes are given again, and mean nothing on another device.
        assert!(!book.has(&Info { dev: info.dev + 1, ..info }));
        book.forget(&info);
        assert!(!book.has(&info));
    }
}
