//! Which source inode landed where, so that its second name becomes a hard link (`--preserve=links`).
//!
//! Must not make any link itself. Entries go away once all names of an inode were met, so the table holds what is
//! shared with places not yet visited.

use crate::disk::{Disk, SyncedInode};
use crate::node::Node;
use crate::receiver::dest::{DestDir, Root};
use fastcopy::dir::{Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::Info;
use std::collections::HashMap;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// Where something landed in this run.
pub(crate) struct LandedName<D: Disk> {
    dir: Weak<D::Dir>,
    node: Arc<Node>,
    root: Arc<Root<D>>,
    name: NameBuf,
}

/// Where the first name of an inode landed.
pub(crate) struct FirstName<D: Disk> {
    at: LandedName<D>,
    /// The source's, when what landed was read.
    info: Info,
    /// It was there before this run, perhaps under more names.
    pub(crate) was_there: bool,
    /// It lacks metadata that the same command may give it: a move takes no name of its source away.
    pub(crate) is_lacking: bool,
    /// R9: its content is synced before the first name that is replaced by one of its own, and not once more for each.
    pub(crate) synced: SyncedInode,
}

impl<D: Disk> FirstName<D> {
    /// Whether the inode, of which `info` is newer, still is what landed. A move takes names away that are done, which
    /// changes the ctime of the others; that shows in the number of names. Where that is the same the ctime must be too,
    /// as it cannot be set back.
    fn is_of(&self, info: &Info) -> bool {
        let was = &self.info;
        (was.kind, was.size, was.mtime) == (info.kind, info.size, info.mtime)
            && (was.ctime == info.ctime || was.nlink != info.nlink)
    }
}

impl<D: Disk> Deref for FirstName<D> {
    type Target = LandedName<D>;
    fn deref(&self) -> &LandedName<D> {
        &self.at
    }
}

impl<D: Disk> LandedName<D> {
    pub(crate) fn new(dir: &DestDir<D>, name: Name<'_>) -> LandedName<D> {
        let (weak, name) = (Arc::downgrade(&dir.dir), name.to_owned());
        LandedName { dir: weak, node: dir.node.clone(), root: dir.root.clone(), name }
    }

    /// The directory it is in: the open handle while there is one, else down from the root, step by step.
    pub(crate) fn open(&self, disk: &D) -> io::Result<Arc<D::Dir>> {
        if let Some(dir) = self.dir.upgrade() {
            return Ok(dir);
        }
        self.open_by_names(disk)
    }

    /// As [`LandedName::open`], whatever handle there is: what was in that directory may have been merged into another one,
    /// which another process had made meanwhile.
    pub(crate) fn open_by_names(&self, disk: &D) -> io::Result<Arc<D::Dir>> {
        let names = self.node.names();
        let below = names.len() - self.root.node.names().len().min(names.len());
        down(disk, &self.root, &self.root.dir, names.get(names.len() - below..).unwrap_or_default())
    }

    /// The file itself, for reading: wherever its directory is by now.
    pub(crate) fn open_file(&self, disk: &D) -> io::Result<D::File> {
        let at = |dir: Arc<D::Dir>| disk.open_to_read(&dir, self.name());
        self.open(disk).and_then(at).or_else(|_| self.open_by_names(disk).and_then(at))
    }

    pub(crate) fn name(&self) -> Name<'_> {
        self.name.as_name()
    }
}

/// Follows `names` down from `dir`. A directory may be complete while one above it is not yet published: that one is
/// met under its stage's name, and under its own after all if it was published between the two looks.
fn down<D: Disk>(disk: &D, root: &Root<D>, dir: &Arc<D::Dir>, names: &[&NameBuf]) -> io::Result<Arc<D::Dir>> {
    let Some((name, rest)) = names.split_first() else { return Ok(dir.clone()) };
    let step = |name: Name<'_>| disk.open_dir(dir, name).and_then(|d| down(disk, root, &Arc::new(d), rest));
    let absent = |e: &io::Error| e.raw_os_error() == Some(errno::ENOENT);
    match step(name.as_name()) {
        Err(e) if absent(&e) => {
            let staged = match root.stage_of(disk.info(dir)?.id(), name.as_name()) {
                Some(stage) => step(stage.as_name()),
                None => Err(e),
            };
            match staged {
                Err(e) if absent(&e) => step(name.as_name()),
                other => other,
            }
        }
        other => other,
    }
}

enum InodeState<D: Disk> {
    /// A worker is landing it.
    Busy,
    /// It is there; so many names are still to come.
    There { at: Arc<FirstName<D>>, left: u64 },
}

/// What a worker that met an inode is to do.
pub(crate) enum Claim<D: Disk> {
    /// Land it; then say so with [`LinkTable::landed`] or [`LinkTable::gave_up`].
    First,
    /// Link to this: it has the same content. Then say so with [`LinkTable::linked`].
    Second(Arc<FirstName<D>>),
}

/// The table.
pub(crate) struct LinkTable<D: Disk> {
    inodes: Mutex<HashMap<(u64, u64), InodeState<D>>>,
    change: Condvar,
    inodes_max: usize,
    /// An inode stays once all its names are there: what fails later may come again.
    keeps_all: bool,
}

impl<D: Disk> LinkTable<D> {
    pub(crate) fn new() -> LinkTable<D> {
        LinkTable::of_at_most(usize::MAX)
    }

    /// A table for what another machine names, which must not make it grow without end.
    pub(crate) fn of_at_most(inodes_max: usize) -> LinkTable<D> {
        LinkTable { inodes: Mutex::new(HashMap::new()), change: Condvar::new(), inodes_max, keeps_all: false }
    }

    /// A table that says in the end where all of them landed.
    pub(crate) fn keeping_all() -> LinkTable<D> {
        LinkTable { keeps_all: true, ..LinkTable::new() }
    }

    /// Whether the inode of `info` is in the table, or can be put in.
    pub(crate) fn has_room(&self, info: &Info) -> bool {
        let inodes = self.inodes();
        inodes.len() < self.inodes_max || inodes.contains_key(&info.id())
    }

    fn inodes(&self) -> MutexGuard<'_, HashMap<(u64, u64), InodeState<D>>> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the caller is the first to meet the inode of `info`, and lands it. If not, it comes back with
    /// [`LinkTable::claim_waiting`].
    pub(crate) fn claim_first(&self, info: &Info) -> bool {
        let mut inodes = self.inodes();
        let first = !inodes.contains_key(&info.id());
        if first {
            inodes.insert(info.id(), InodeState::Busy);
        }
        first
    }

    fn claim_in(inodes: &mut HashMap<(u64, u64), InodeState<D>>, info: &Info) -> Option<Claim<D>> {
        match inodes.get_mut(&info.id()) {
            None => {
                inodes.insert(info.id(), InodeState::Busy);
                Some(Claim::First)
            }
            Some(InodeState::Busy) => None,
            Some(InodeState::There { at, .. }) if !at.is_of(info) => {
                // It was written to since: a link would lead to what it was, and a move would take the rest away.
                inodes.insert(info.id(), InodeState::Busy);
                Some(Claim::First)
            }
            Some(InodeState::There { at, .. }) => Some(Claim::Second(at.clone())),
        }
    }

    /// Waits for who is at it. Only to be called with nothing claimed.
    pub(crate) fn claim_waiting(&self, info: &Info) -> Claim<D> {
        let mut inodes = self.inodes();
        loop {
            if let Some(claim) = Self::claim_in(&mut inodes, info) {
                return claim;
            }
            inodes = self.change.wait(inodes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`LinkTable::claim_waiting`], but `None` while another worker is landing it.
    pub(crate) fn claim(&self, info: &Info) -> Option<Claim<D>> {
        Self::claim_in(&mut self.inodes(), info)
    }

    /// Whether the content of `info` is there, however many names its inode still has.
    pub(crate) fn has(&self, info: &Info) -> bool {
        matches!(self.inodes().get(&info.id()), Some(InodeState::There { at, .. }) if at.is_of(info))
    }

    /// The first of `names` is there; whether it was before this run, and whether it lacks metadata.
    pub(crate) fn landed(
        &self,
        info: &Info,
        names: u64,
        (dir, name): (&DestDir<D>, Name<'_>),
        (was_there, is_lacking): (bool, bool),
    ) {
        let synced = SyncedInode::new();
        let at = FirstName { at: LandedName::new(dir, name), info: *info, was_there, is_lacking, synced };
        let left = names.saturating_sub(1);
        self.inodes().insert(info.id(), InodeState::There { at: Arc::new(at), left });
        self.change.notify_all();
    }

    /// A further name is there as well, or stays what it is. One that could not be made is still to come.
    pub(crate) fn linked(&self, info: &Info) {
        let mut inodes = self.inodes();
        // What was written to meanwhile is another content, with names of its own.
        if let Some(InodeState::There { at, left }) = inodes.get_mut(&info.id())
            && at.is_of(info)
        {
            *left = left.saturating_sub(1);
            if *left == 0 && !self.keeps_all {
                inodes.remove(&info.id());
            }
        }
    }

    /// Where the inodes landed that are kept: those that have names still to come, or all.
    pub(crate) fn landed_at(&self) -> Vec<((u64, u64), PathBuf)> {
        let there = |(id, state): (&(u64, u64), &InodeState<D>)| match state {
            InodeState::There { at, .. } => Some((*id, at.node.join(at.name()))),
            InodeState::Busy => None,
        };
        self.inodes().iter().filter_map(there).collect()
    }

    /// It could not be landed, or was left alone; the next name may try, unless what was left alone counts as landed.
    pub(crate) fn gave_up(&self, info: &Info) {
        let mut inodes = self.inodes();
        if matches!(inodes.get(&info.id()), Some(InodeState::Busy)) {
            inodes.remove(&info.id());
        }
        drop(inodes);
        self.change.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sys::Sys;
    use crate::receiver::plan::tests::policy;
    use fastcopy::dir::Dir;

    /// A worker that plans an entry and lands nothing gives its claim up, also where what was kept counts as landed.
    #[test]
    fn giving_up_forgets_a_claim_and_nothing_that_is_there() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        let info = Info { nlink: 3, ..dir.info().unwrap() };
        let dest = DestDir::existing(&Sys::new(), dir, Node::root(tmp.path()), None, &policy()).unwrap();
        let name = NameBuf::new(b"first").unwrap();
        let links: LinkTable<Sys> = LinkTable::new();
        assert!(links.claim_first(&info) && !links.claim_first(&info));
        links.gave_up(&info);
        assert!(links.claim_first(&info), "the next name may try");
        links.landed(&info, info.nlink, (&dest, name.as_name()), (false, false));
        links.gave_up(&info);
        for _ in 1..info.nlink {
            // The first attempt fails: the name is still to come.
            for _ in 0..2 {
                match links.claim(&info) {
                    Some(Claim::Second(at)) => assert_eq!(at.name(), name.as_name()),
                    _ => panic!("it is forgotten that it is there"),
                }
            }
            assert_eq!(links.landed_at(), [(info.id(), tmp.path().join("first"))]);
            links.linked(&info);
        }
        assert_eq!(links.landed_at(), []);
        assert!(links.claim_first(&info), "all names were met");
    }

    /// The table takes no more inodes than it may, and those that it has lose nothing by it.
    #[test]
    fn a_full_table_takes_no_further_inode_and_keeps_those_it_has() {
        let tmp = tempfile::tempdir().unwrap();
        let info = Info { nlink: 3, ..Dir::open(tmp.path()).unwrap().info().unwrap() };
        let inode = |ino: u64| Info { ino, ..info };
        let links: LinkTable<Sys> = LinkTable::of_at_most(2);
        for ino in [1, 2] {
            assert!(links.has_room(&inode(ino)) && links.claim_first(&inode(ino)));
        }
        assert!(!links.has_room(&inode(3)) && links.has_room(&inode(1)) && links.has_room(&inode(2)));
        links.gave_up(&inode(1));
        assert!(links.has_room(&inode(3)), "what is given up makes room");
    }

    /// A table that a peer has filled takes some hundred MiB at most, with names as long as names may be: the bytes of an
    /// inode are added up here, and a larger one meets this sum.
    #[test]
    fn a_full_table_fits_in_memory() {
        use bcmr_wire::limits::{LINKS_MAX, NAME_BYTES_MAX};
        // A hash table is at least seven sixteenths full, with a byte beside each place.
        let place = (size_of::<((u64, u64), InodeState<Sys>)>() + 1) * 16 / 7;
        let landed = size_of::<FirstName<Sys>>() + 2 * size_of::<usize>() + NAME_BYTES_MAX + 1;
        let most = (place + landed) * LINKS_MAX;
        assert!(most <= 768 << 20, "{} MiB", most >> 20);
        assert!(most >= 128 << 20, "{} MiB: this judges nothing", most >> 20);
    }

    /// What was written through a second name after the first had landed is not in the copy of the first.
    #[test]
    fn a_name_that_was_written_to_meanwhile_is_no_second_one() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        let info = Info { nlink: 3, ..dir.info().unwrap() };
        let dest = DestDir::existing(&Sys::new(), dir, Node::root(tmp.path()), None, &policy()).unwrap();
        let name = NameBuf::new(b"first").unwrap();
        let later = fastcopy::meta::Time { sec: info.ctime.sec + 1, nsec: 0 };
        for (what, now, is_second) in [
            ("nothing happened", info, true),
            ("the first was taken away", Info { nlink: 2, ctime: later, ..info }, true),
            ("written", Info { mtime: later, ctime: later, ..info }, false),
            ("written, mtime set back", Info { ctime: later, ..info }, false),
            ("taken away, then written", Info { nlink: 2, mtime: later, ctime: later, ..info }, false),
            ("taken away, then cut", Info { nlink: 2, size: info.size + 1, ctime: later, ..info }, false),
        ] {
            let links: LinkTable<Sys> = LinkTable::new();
            assert!(links.claim_first(&info));
            links.landed(&info, info.nlink, (&dest, name.as_name()), (false, false));
            assert_eq!(links.has(&now), is_second, "{what}");
            assert!(!links.claim_first(&now), "{what}: whether it is the first is to be asked later");
            assert_eq!(matches!(links.claim(&now), Some(Claim::Second(_))), is_second, "{what}");
            if !is_second {
                // It lands itself, and further names are links to it.
                assert!(links.claim(&now).is_none(), "{what}: nobody else lands it meanwhile");
                links.landed(&now, now.nlink, (&dest, name.as_name()), (false, false));
                assert!(matches!(links.claim(&now), Some(Claim::Second(_))), "{what}");
            }
        }
    }
}
