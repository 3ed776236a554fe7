//! What a move has copied and still has to take away at the source.
//!
//! Must not copy anything. The order is the point: an entry leaves its source only after its copy is verified, has its
//! final name under directories that all have theirs, and a sync of the destination's file system returned 0. Until
//! then a power cut would find the only copy on its way.

use crate::disk::sys::Sys;
use crate::error::{Code, Error, Op, Reason};
use crate::event::Action;
use crate::receiver::devices::Devices;
use crate::receiver::dir_task::Slot;
use crate::receiver::tree;
use crate::sender::walk::SourceDir;
use crate::tally::Tally;
use fastcopy::dir::{Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Said once of a device where a sync failed.
const STAYS: Reason = Reason::KeptAtSource;
/// Entries that wait for one common sync.
const ENTRIES_MAX: usize = 4096;

struct Entry {
    /// The directory it is in.
    src: Arc<SourceDir>,
    name: NameBuf,
    info: Info,
    pair: Arc<Slot<SourceDir>>,
}

/// The entries waiting, in the order in which they may go: what is in a directory before the directory.
#[derive(Default)]
pub(crate) struct Ledger {
    entries: Mutex<Vec<Entry>>,
    /// Devices of which it was told that what was copied there stays. Held by who settles: a directory may go only after
    /// another worker has taken away what was in it.
    settling: Mutex<Vec<u64>>,
}

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `name` of `pair`'s source has landed. Returns whether it is time to [`Ledger::settle`].
    pub(crate) fn landed(&self, pair: &Arc<Slot<SourceDir>>, name: Name<'_>, info: &Info) -> bool {
        let entry = Entry { src: pair.src.clone(), name: name.to_owned(), info: *info, pair: pair.clone() };
        let mut entries = self.entries();
        entries.push(entry);
        entries.len().is_multiple_of(ENTRIES_MAX)
    }

    /// All that was in the directory has landed.
    pub(crate) fn dir_done(&self, pair: &Arc<Slot<SourceDir>>) {
        let (Some(above), Some(name)) = (&pair.src.above, &pair.src.name) else { return };
        let entry = Entry { src: above.clone(), name: name.clone(), info: pair.src.info, pair: pair.clone() };
        self.entries().push(entry);
    }

    /// Syncs the destination and takes away what is safe there. Entries whose copy has no name yet stay.
    pub(crate) fn settle(&self, devices: &Devices<'_, Sys>, tally: &Tally<'_>) {
        let mut told = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = std::mem::take(&mut *self.entries());
        let (mut ready, mut waiting) = (Vec::new(), Vec::new());
        // Directories are named meanwhile. The last is asked first: if it has its name, so has what was in it.
        for entry in taken.into_iter().rev() {
            if entry.pair.has_name() { ready.push(entry) } else { waiting.push(entry) }
        }
        ready.reverse();
        waiting.reverse();
        // Those of one destination device need one sync; a move mostly has one.
        for (dev, error) in devices.sync(ready.iter().map(|entry| &entry.pair.dst)) {
            told.push(dev);
            tally.fail(Error { note: Some(STAYS.into()), ..error });
        }
        for entry in &ready {
            let dst = &entry.pair.dst;
            if devices.is_sure(dst) {
                take_away(entry, tally);
            } else if !told.contains(&dst.info.dev) {
                // R5: what that sync lost may have been copied long before it, and no later one would tell.
                told.push(dst.info.dev);
                let note = Reason::SyncFailedSoKept;
                tally.fail(Error::ours(Code::Io, Op::RemoveTheSourceOf, dst.node.path(), note));
            }
        }
        self.entries().splice(0..0, waiting);
    }
}

/// Removes one entry at the source, if it still is what was copied.
fn take_away(entry: &Entry, tally: &Tally<'_>) {
    let (dir, name) = (&entry.src, entry.name.as_name());
    let now = match dir.stat(name, false) {
        Ok(now) => now,
        Err(e) if e.code == Code::NotFound => return,
        Err(e) => return tally.fail(e),
    };
    let was = &entry.info;
    // Taking one name of an inode away changes its ctime, so where there are several, mtime and size must do.
    let same = now.id() == was.id()
        && (was.kind == Kind::Dir
            || (now.size == was.size && now.mtime == was.mtime && (was.nlink > 1 || now.ctime == was.ctime)));
    if !same {
        let note = Reason::ChangedAfterCopy;
        return tally.fail(Error::ours(Code::SourceChanged, Op::RemoveSource, dir.node.join(name), note));
    }
    let removed = if was.kind == Kind::Dir { dir.dir.remove_dir(name) } else { dir.dir.remove_file(name) };
    if let Err(e) = removed {
        return tally.fail(Error::os(Op::RemoveSource, dir.node.join(name), e));
    }
    tally.item(Action::Removed, 0, || (PathBuf::new(), dir.node.join(name)));
    // R8: the same command has nothing to go on with any more, now and not before.
    let is_top = was.kind == Kind::Dir && entry.pair.above.as_ref().is_some_and(|above| !above.ours);
    if is_top && let Err(e) = tree::unmark(&Sys::new(), &entry.pair.dst.dir) {
        tally.fail(Error::os(Op::Unmark, entry.pair.dst.node.path(), e));
    }
}
