//! What this run has put into one directory: nothing of it is replaced by another source, nor taken for what a killed run
//! left there.
//!
//! Must not ask a disk. Why inodes and not names: a file system that folds case or normalises takes two names for one,
//! by rules that only it knows. Where numbers mean little (FUSE may give each spelling of a name one of its own) names are
//! kept as well, folded: what they say is a suspicion, and a listing of the directory decides. Kept no longer than the
//! directory is open, some 32 bytes an entry.

use crate::disk::PickNames;
use crate::error::Reason;
use fastcopy::dir::{Name, NameBuf};
use fastcopy::meta::Info;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// The file system keeps identities: an inode has one number, whatever name leads to it. `false` is right anywhere.
    lasting: bool,
    created: Mutex<Created>,
}

#[derive(Debug, Default)]
struct Created {
    /// By device, mostly a single one: inodes, and how each came.
    inodes: Vec<(u64, BTreeMap<u64, CreatedEntry>)>,
    /// Where numbers may differ, hashes of the names that were given: folded, and as they are spelled.
    spellings: BTreeSet<(u32, u32)>,
}

/// The same, while no other worker of this run reads or changes it.
pub(crate) struct LockedNames<'a> {
    names: &'a CreatedNames,
    created: MutexGuard<'a, Created>,
}

impl CreatedNames {
    /// In a directory of a file system that keeps identities, or that may not.
    pub(crate) fn on(lasting: bool) -> Arc<CreatedNames> {
        Arc::new(CreatedNames { lasting, ..CreatedNames::default() })
    }

    /// In another directory of the same file system.
    pub(crate) fn again(&self) -> Arc<CreatedNames> {
        CreatedNames::on(self.lasting)
    }

    /// Keeps other workers out. A worker that gives a name in this directory holds it from the look at what is there until
    /// the name is given.
    pub(crate) fn lock(&self) -> LockedNames<'_> {
        LockedNames { names: self, created: self.created.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl LockedNames<'_> {
    fn hash(&self, name: Name<'_>) -> u32 {
        self.names.key.hash_one(name.bytes()) as u32
    }

    /// The same for all names that a file system may take for this one.
    fn folded(&self, name: Name<'_>) -> u32 {
        let text = String::from_utf8_lossy(name.bytes());
        // Upper case first makes one of letters that lower case leaves two, as the two small sigmas.
        let folded = text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase);
        self.names.key.hash_one(folded.collect::<String>()) as u32
    }

    /// Whether what is there under `name` is what this run has put here under another spelling of it, where inodes cannot tell.
    /// It is another file only where the directory lists all these spellings. `list`: asked where it seems so.
    fn is_respelled(
        &self,
        name: Name<'_>,
        list: impl FnOnce(PickNames<'_>) -> io::Result<Vec<NameBuf>>,
    ) -> bool {
        if self.created.spellings.is_empty() {
            return false;
        }
        let (folded, spelled) = (self.folded(name), self.hash(name));
        let alike = self.created.spellings.range((folded, 0)..=(folded, u32::MAX));
        let mut others = alike.map(|(_, other)| *other).filter(|other| *other != spelled).peekable();
        if others.peek().is_none() {
            return false;
        }
        // Where it cannot be listed nothing is replaced.
        list(&|listed| self.folded(listed) == folded).map_or(true, |listed| {
            let is_listed = |spelled| listed.iter().any(|name| self.hash(name.as_name()) == spelled);
            !is_listed(spelled) || !others.all(is_listed)
        })
    }

    /// What is kept of `there`, if it is what this run created: another process may have removed that, and its inode number
    /// may have been given again.
    fn entry(&self, there: &Info, btime: impl FnOnce() -> io::Result<u64>) -> Option<CreatedEntry> {
        let entry = *self.created.inodes.iter().find(|(dev, _)| *dev == there.dev)?.1.get(&there.ino)?;
        // Where the time cannot be told it counts as the same: nothing is lost by that.
        btime().map_or(true, |btime| fold(btime) == entry.btime).then_some(entry)
    }

    /// Whether this inode was put here by this run, under whatever name. `btime`: asked where it seems so.
    pub(crate) fn has(&self, there: &Info, btime: impl FnOnce() -> io::Result<u64>) -> bool {
        self.entry(there, btime).is_some()
    }

    /// Whether this run has put here what is there under `name`, under whatever name.
    pub(crate) fn has_under(
        &self,
        there: &Info,
        name: Name<'_>,
        btime: impl FnOnce() -> io::Result<u64>,
        list: impl FnOnce(PickNames<'_>) -> io::Result<Vec<NameBuf>>,
    ) -> bool {
        self.has(there, btime) || self.is_respelled(name, list)
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
        list: impl FnOnce(PickNames<'_>) -> io::Result<Vec<NameBuf>>,
    ) -> bool {
        match self.entry(there, btime) {
            Some(entry) => entry.name != self.hash(name),
            None => self.is_respelled(name, list),
        }
    }

    /// It is here as `name`.
    pub(crate) fn add(&mut self, info: &Info, name: Name<'_>, btime: u64) {
        self.expect(info, name, btime);
        self.named(name);
    }

    /// Something of this run has got `name`.
    pub(crate) fn named(&mut self, name: Name<'_>) {
        if !self.names.lasting {
            let spelling = (self.folded(name), self.hash(name));
            self.created.spellings.insert(spelling);
        }
    }

    /// Still locked where a name says what was created: a worker that gives it without a look holds this until it is entered.
    pub(crate) fn until_named(self) -> Option<Self> {
        (!self.names.lasting).then_some(self)
    }

    /// It is here, and becomes `name`.
    pub(crate) fn expect(&mut self, info: &Info, name: Name<'_>, btime: u64) {
        let entry = CreatedEntry { name: self.hash(name), btime: fold(btime) };
        match self.created.inodes.iter_mut().find(|(dev, _)| *dev == info.dev) {
            Some((_, inodes)) => drop(inodes.insert(info.ino, entry)),
            None => self.created.inodes.push((info.dev, BTreeMap::from([(info.ino, entry)]))),
        }
    }

    /// It is gone again; its inode may become anything.
    pub(crate) fn forget(&mut self, info: &Info) {
        if let Some((_, inodes)) = self.created.inodes.iter_mut().find(|(dev, _)| *dev == info.dev) {
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
        let created_names = CreatedNames::on(true);
        let mut created = created_names.lock();
        let (btime, never) = (|| Ok(5), |_: PickNames<'_>| -> io::Result<Vec<NameBuf>> { unreachable!() });
        assert!(!created.has(&info, btime) && !created.is_taken(&info, lower.as_name(), btime, never));
        created.add(&info, upper.as_name(), 5);
        assert!(created.has(&info, btime) && created.is_taken(&info, lower.as_name(), btime, never));
        assert!(
            !created.is_taken(&info, upper.as_name(), btime, never),
            "the twin: the same place meant twice"
        );
        assert!(created.is_listed(&info, btime, &[lower.clone(), upper.clone()]));
        assert!(!created.is_listed(&info, btime, std::slice::from_ref(&lower)), "spelled otherwise");
        // Inodes are given again, and mean nothing on another device.
        assert!(!created.is_taken(&info, lower.as_name(), || Ok(6), never));
        assert!(!created.has(&Info { dev: info.dev + 1, ..info }, btime));
        assert!(created.has(&info, || Err(io::Error::other("it cannot be told"))));
        created.forget(&info);
        assert!(!created.has(&info, btime));
    }

    #[test]
    fn another_spelling_is_taken_unless_both_are_listed() {
        let tmp = tempfile::tempdir().unwrap();
        let info = Dir::open(tmp.path()).unwrap().info().unwrap();
        let name = |text: &str| NameBuf::new(text.as_bytes()).unwrap();
        for (given, other) in
            [("Makefile", "makefile"), ("\u{c9}t\u{e9}", "\u{e9}t\u{c9}"), ("\u{3c2}x", "\u{3c3}X")]
        {
            let (given, other) = (name(given), name(other));
            let created_names = CreatedNames::on(false);
            let mut created = created_names.lock();
            created.expect(&info, given.as_name(), 0);
            let alias = Info { ino: info.ino + 1, ..info };
            let is_taken = |created: &LockedNames<'_>, asked: &NameBuf, listed: Option<&[&NameBuf]>| {
                let list = |is_alike: PickNames<'_>| {
                    let listed = listed
                        .ok_or(io::ErrorKind::PermissionDenied)?
                        .iter()
                        .filter(|name| is_alike(name.as_name()));
                    Ok(listed.map(|name| (*name).clone()).collect())
                };
                let taken = created.is_taken(&alias, asked.as_name(), || Ok(0), list);
                assert_eq!(taken, created.has_under(&alias, asked.as_name(), || Ok(0), list));
                taken
            };
            assert!(!is_taken(&created, &other, Some(&[&other])), "it has no name yet");
            created.named(given.as_name());
            assert!(is_taken(&created, &other, Some(&[&given])));
            assert!(
                is_taken(&created, &other, Some(&[&other])),
                "what was there keeps its spelling when it is replaced"
            );
            assert!(is_taken(&created, &other, None), "it cannot be listed");
            // The twins: names that are two, the same place meant twice, and another name.
            assert!(!is_taken(&created, &other, Some(&[&other, &given])));
            assert!(!is_taken(&created, &given, Some(&[&other])));
            assert!(!is_taken(&created, &name("x"), Some(&[])));
        }
    }
}
