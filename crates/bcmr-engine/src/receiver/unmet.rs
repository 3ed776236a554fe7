//! Names of one directory of the destination that the source has not named.
//!
//! Must not know what becomes of them.

use crate::disk::Disk;
use fastcopy::dir::{Name, NameBuf};
use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Enough of a name to know it again: the name itself behind its length, or, where it does not fit, its hash behind a
/// byte that is no such length.
type ShortName = [u8; 16];

fn short(name: Name<'_>) -> ShortName {
    let bytes = name.bytes();
    let mut short = [0; 16];
    let (first, rest) = short.split_at_mut(1);
    if let Some(room) = rest.get_mut(..bytes.len()) {
        first.fill(bytes.len() as u8);
        room.copy_from_slice(bytes);
    } else {
        first.fill(u8::MAX);
        let hash = blake3::hash(bytes);
        rest.iter_mut().zip(hash.as_bytes()).for_each(|(to, from)| *to = *from);
    }
    short
}

/// Names of a destination's directory that the source has not named. Many are held, and they are short.
#[derive(Debug)]
pub(crate) struct Unmet(Mutex<Left>);

#[derive(Debug)]
enum Left {
    /// They were asked for.
    Taken,
    Some {
        names: HashSet<ShortName>,
        /// How many there were.
        all: u64,
    },
    /// The directory cannot be listed.
    Unknown(io::Error),
}

impl Unmet {
    /// What is in `dir` now.
    pub(crate) fn listed<D: Disk>(disk: &D, dir: &D::Dir) -> Unmet {
        Unmet(Mutex::new(Left::list(disk, dir)))
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The source has `name`.
    pub(crate) fn met(&self, name: Name<'_>) {
        if let Left::Some { names, .. } = &mut *self.left() {
            names.remove(&short(name));
        }
    }

    /// All names of the source were met: the names in `dir` that were not among them, in order, and how many names there
    /// are in all. Asked once.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn rest<D: Disk>(&self, disk: &D, dir: &D::Dir) -> io::Result<(Vec<NameBuf>, u64)> {
        let (names, all) = match std::mem::replace(&mut *self.left(), Left::Taken) {
            Left::Some { names, all } if !names.is_empty() => (names, all),
            Left::Some { all, .. } => return Ok((Vec::new(), all)),
            Left::Taken => return Ok((Vec::new(), 0)),
            Left::Unknown(e) => return Err(e),
        };
        let mut found = disk.find(dir, usize::MAX, &|name| names.contains(&short(name)))?;
        found.sort();
        Ok((found, all))
    }
}

impl Left {
    fn list<D: Disk>(disk: &D, dir: &D::Dir) -> Left {
        let names = RefCell::new(HashSet::new());
        let add = |name: Name<'_>| {
            names.borrow_mut().insert(short(name));
            false
        };
        let listed = disk.find(dir, usize::MAX, &add);
        let names = names.into_inner();
        let all = names.len() as u64;
        listed.map_or_else(Left::Unknown, |_| Left::Some { names, all })
    }
}
