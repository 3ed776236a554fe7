//! What this run has put into one directory: nothing of it is replaced by another source, nor taken for what a killed run
//! left there.
//!
//! Must not ask a disk. Why inodes and not names: a file system that folds case or normalises takes two names for one,
//! by rules that only it knows. Kept no longer than the directory is open, some 32 bytes an entry.

use crate::error::Reason;
use fastcopy::dir::{Name, NameBuf};
use fastcopy::meta::Info;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why something stays as it is.
pub(crate) const TAKEN: Reason = Reason::TakenByThisRun;

/// What is kept of an entry: hashes of its name and of its time of birth.
#[derive(Clone, Copy, Debug)]
struct CreatedEntry {
    name: u32,
    btime: u32,
}

fn fold(btime: u64) -> u32 {
    (btime ^ (btime >> 32)) as u32
}

/// What this run has created in one directory.
#[derive(Debug, Default)]
pub(crate) struct CreatedNames {
    key: RandomState,
    /// By device, mostly a single one: inodes, and how each came.
    created: Mutex<Vec<(u64, BTreeMap<u64, CreatedEntry>)>>,
}

/// The same, while no other worker of this run reads or changes it.
pub(crate) struct LockedNames<'a> {
    key: &'a RandomState,
    created: MutexGuard<'a, Vec<(u64, BTreeMap<u64, CreatedEntry>)>>,
}

impl CreatedNames {
    /// Keeps other workers out. A worker that gives a name in this directory holds it from the look at what is there until
    /// the name is given.
    pub(crate) fn lock(&self) -> LockedNames<'_> {
        LockedNames { key: &self.key, created: self.created.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl LockedNames<'_> {
    fn hash(&self, name: Name<'_>) -> u32 {
        self.key.hash_one(name.bytes()) as u32
    }

    /// What is kept of `there`, if it is what this run created: another process may have removed that, and its inode number
    /// may have been given again.
    fn entry(&self, there: &Info, btime: impl FnOnce() -> io::Result<u64>) -> Option<CreatedEntry> {
        let entry = *self.created.iter().find(|(dev, _)| *dev == there.dev)?.1.get(&there.ino)?;
        // Where the time cannot be told it counts as the same: nothing is lost by that.
        btime().map_or(true, |btime| fold(btime) == entry.btime).then_some(entry)
    }

    /// Whether this run has put it here, under whatever name. `btime`: asked where it seems so.
    pub(crate) fn has(&self, there: &Info, btime: impl FnOnce() -> io::Result<u64>) -> bool {
        self.entry(there, btime).is_some()
    }

    /// Whether what this run has put here stands in a listing of the directory by the very name that it got: then another name
    /// in it that leads to the same is a further one, and no other spelling.
    pub(crate) fn is_listed(
        &self,
        there: &Info,
        btime: impl FnOnce() -> io::Result<u64>,
        listed: &[NameBuf],
    ) -> bool {
        let entry = self.entry(there, btime);
        entry.is_some_and(|entry| listed.iter().any(|name| entry.name == self.hash(name.as_name())))
    }

    /// Whether this run has put here what is there under `name`, and under another name. The same name again is the
    /// same place meant twice: a list may say so, and operands that are merged.
    pub(crate) fn is_taken(
        &self,
        there: &Info,
        name: Name<'_>,
        btime: impl FnOnce() -> io::Result<u64>,
    ) -> bool {
        self.entry(there, btime).is_some_and(|entry| entry.name != self.hash(name))
    }

    /// It is here as `name`.
    pub(crate) fn add(&mut self, info: &Info, name: Name<'_>, btime: u64) {
        let entry = CreatedEntry { name: self.hash(name), btime: fold(btime) };
        match self.created.iter_mut().find(|(dev, _)| *dev == info.dev) {
            Some((_, inodes)) => drop(inodes.insert(info.ino, entry)),
            None => self.created.push((info.dev, BTreeMap::from([(info.ino, entry)]))),
        }
    }

    /// It is gone again; its inode may become anything.
    pub(crate) fn forget(&mut self, info: &Info) {
        if let Some((_, inodes)) = self.created.iter_mut().find(|(dev, _)| *dev == info.dev) {
            inodes.remove(&info.ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastcopy::dir::Dir;

    #[test]
    fn an_inode_is_taken_under_every_name_but_its_own() {
        let tmp = tempfile::tempdir().unwrap();
        let info = Dir::open(tmp.path()).unwrap().info().unwrap();
        let (upper, lower) = (NameBuf::new(b"Makefile").unwrap(), NameBuf::new(b"makefile").unwrap());
        let created_names = CreatedNames::default();
        let mut created = created_names.lock();
        let btime = || Ok(5);
        assert!(!created.has(&info, btime) && !created.is_taken(&info, lower.as_name(), btime));
        created.add(&info, upper.as_name(), 5);
        assert!(created.has(&info, btime) && created.is_taken(&info, lower.as_name(), btime));
        assert!(!created.is_taken(&info, upper.as_name(), btime), "the twin: the same place meant twice");
        assert!(created.is_listed(&info, btime, &[lower.clone(), upper.clone()]));
        assert!(!created.is_listed(&info, btime, std::slice::from_ref(&lower)), "spelled otherwise");
        // Inodes are given again, and mean nothing on another device.
        assert!(!created.is_taken(&info, lower.as_name(), || Ok(6)));
        assert!(!created.has(&Info { dev: info.dev + 1, ..info }, btime));
        assert!(created.has(&info, || Err(io::Error::other("it cannot be told"))));
        created.forget(&info);
        assert!(!created.has(&info, btime));
    }
}
