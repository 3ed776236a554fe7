//! What this run has put into one directory: nothing of it is replaced by another source, nor taken for what a killed run
//! left there.
//!
//! Must not ask a disk. Why inodes and not names: a file system that folds case or normalises takes two names for one,
//! by rules that only it knows. Kept no longer than the directory is open, some 32 bytes an entry.

use crate::error::Reason;
use fastcopy::dir::Name;
use fastcopy::meta::Info;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why something stays as it is.
pub(crate) const TAKEN: Reason = Reason::TakenByThisRun;

/// What is kept of an entry: hashes of its name and of when it was born.
#[derive(Clone, Copy, Debug)]
struct Came {
    name: u32,
    born: u32,
}

fn fold(born: u64) -> u32 {
    (born ^ (born >> 32)) as u32
}

/// The book of one directory.
#[derive(Debug, Default)]
pub(crate) struct Newcomers {
    key: RandomState,
    /// By device, mostly a single one: inodes, and how each came.
    book: Mutex<Vec<(u64, BTreeMap<u64, Came>)>>,
}

/// The book, while no other worker of this run reads or writes it.
pub(crate) struct Book<'a> {
    key: &'a RandomState,
    book: MutexGuard<'a, Vec<(u64, BTreeMap<u64, Came>)>>,
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

    /// How it came, if it is what came: others may have taken that away, and its number is given again.
    fn came(&self, there: &Info, born: impl FnOnce() -> io::Result<u64>) -> Option<Came> {
        let came = *self.book.iter().find(|(dev, _)| *dev == there.dev)?.1.get(&there.ino)?;
        // Who cannot tell takes it for the same: nothing is lost by that.
        born().map_or(true, |born| fold(born) == came.born).then_some(came)
    }

    /// Whether this run has put it here, under whatever name. `born`: asked where it seems so.
    pub(crate) fn has(&self, there: &Info, born: impl FnOnce() -> io::Result<u64>) -> bool {
        self.came(there, born).is_some()
    }

    /// Whether this run has put here what is there under `name`, and under another name. The same name again is the
    /// same place meant twice: a list may say so, and operands that are merged.
    pub(crate) fn is_taken(
        &self,
        there: &Info,
        name: Name<'_>,
        born: impl FnOnce() -> io::Result<u64>,
    ) -> bool {
        self.came(there, born).is_some_and(|came| came.name != self.hash(name))
    }

    /// It is here as `name`.
    pub(crate) fn add(&mut self, info: &Info, name: Name<'_>, born: u64) {
        let came = Came { name: self.hash(name), born: fold(born) };
        match self.book.iter_mut().find(|(dev, _)| *dev == info.dev) {
            Some((_, inodes)) => drop(inodes.insert(info.ino, came)),
            None => self.book.push((info.dev, BTreeMap::from([(info.ino, came)]))),
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
    fn an_inode_is_taken_under_every_name_but_its_own() {
        let tmp = tempfile::tempdir().unwrap();
        let info = Dir::open(tmp.path()).unwrap().info().unwrap();
        let (upper, lower) = (NameBuf::new(b"Makefile").unwrap(), NameBuf::new(b"makefile").unwrap());
        let newcomers = Newcomers::default();
        let mut book = newcomers.open();
        let born = || Ok(5);
        assert!(!book.has(&info, born) && !book.is_taken(&info, lower.as_name(), born));
        book.add(&info, upper.as_name(), 5);
        assert!(book.has(&info, born) && book.is_taken(&info, lower.as_name(), born));
        assert!(!book.is_taken(&info, upper.as_name(), born), "the twin: the same place meant twice");
        // Inodes are given again, and mean nothing on another device.
        assert!(!book.is_taken(&info, lower.as_name(), || Ok(6)));
        assert!(!book.has(&Info { dev: info.dev + 1, ..info }, born));
        assert!(book.has(&info, || Err(io::Error::other("nobody can tell"))));
        book.forget(&info);
        assert!(!book.has(&info, born));
    }
}
