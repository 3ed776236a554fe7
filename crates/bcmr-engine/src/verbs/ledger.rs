//! What a move has copied and still has to take away at the source.
//!
//! Must not copy anything. The order is the point: an entry leaves its source only after its copy is verified, has its
//! final name under directories that all have theirs, and a sync of the destination's file system returned 0. Until
//! then a power cut would find the only copy on its way. Of a directory that is marked nothing goes before all of it has
//! landed and its mark says so: what the source tells of times and hard links is needed until then (R8).

use crate::disk::sys::Sys;
use crate::error::{Code, Error, Op, Reason};
use crate::event::Action;
use crate::receiver::dest::MoveState;
use crate::receiver::devices::Devices;
use crate::receiver::dir_task::{Origin, Slot};
use crate::receiver::lander::{LandHooks, Lander};
use crate::receiver::tree;
use crate::sender::walk::SourceDir;
use crate::tally::Tally;
use fastcopy::dir::{Name, NameBuf};
use fastcopy::meta::{Info, Kind, Time};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Said once of a device where a sync failed.
const STAYS: Reason = Reason::KeptAtSource;
/// Entries that wait for one common sync.
const ENTRIES_MAX: usize = 4096;

/// One thing that has landed.
pub(crate) struct LedgerEntry<S> {
    /// The directory it is in.
    pub(crate) src: Arc<S>,
    /// `None`: it is that directory itself.
    pub(crate) name: Option<NameBuf>,
    pub(crate) info: Info,
    pub(crate) pair: Arc<Slot<S>>,
}

/// A directory of a source that is moved.
pub(crate) trait MovedFrom: Origin + Sized {
    /// How the directory of `pair` is named at the source. `None`: it stays.
    fn itself(pair: &Slot<Self>) -> Option<(Arc<Self>, Option<NameBuf>)>;
}

impl MovedFrom for SourceDir {
    fn itself(pair: &Slot<SourceDir>) -> Option<(Arc<SourceDir>, Option<NameBuf>)> {
        let (above, name) = (pair.src.above.clone()?, pair.src.name.clone()?);
        Some((above, Some(name)))
    }
}

/// Takes away at the source, in this order, what is on stable storage at the destination.
pub(crate) trait TakesAway<S> {
    fn take_away(&self, entries: Vec<LedgerEntry<S>>, tally: &Tally<'_>);
}

/// The source is on this machine.
pub(crate) struct TakesHere;

impl TakesAway<SourceDir> for TakesHere {
    fn take_away(&self, entries: Vec<LedgerEntry<SourceDir>>, tally: &Tally<'_>) {
        entries.iter().for_each(|entry| take_away(entry, tally));
    }
}

/// Entries of directories of which not all has landed yet.
struct HeldBack<S> {
    entries: Vec<LedgerEntry<S>>,
    /// There were more of them than are remembered.
    is_over: bool,
    /// Operands of which all has landed.
    whole: HashSet<(u64, u64)>,
    /// All of them is gone through once more.
    once_more: bool,
}

impl<S> Default for HeldBack<S> {
    fn default() -> HeldBack<S> {
        HeldBack { entries: Vec::new(), is_over: false, whole: HashSet::new(), once_more: false }
    }
}

/// The entries waiting, in the order in which they may go: what is in a directory before the directory.
pub(crate) struct Ledger<S> {
    entries: Mutex<Vec<LedgerEntry<S>>>,
    held: Mutex<HeldBack<S>>,
    /// When the run began.
    pub(crate) since: Time,
    /// What an earlier run has copied is read on both sides before it goes.
    pub(crate) proves: bool,
    /// Devices whose copies are known to be on stable storage. The settling thread holds this lock, because a directory
    /// may go only after another worker has taken away what was in it.
    settling: Mutex<Vec<u64>>,
}

impl<S: MovedFrom> Ledger<S> {
    /// Nothing has landed.
    pub(crate) fn new(proves: bool) -> Ledger<S> {
        let (entries, held, settling) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ledger { entries, held, since: tree::begins(), proves, settling }
    }

    fn held(&self) -> MutexGuard<'_, HeldBack<S>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries(&self) -> MutexGuard<'_, Vec<LedgerEntry<S>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `name` of `pair`'s source has landed. Returns whether it is time to [`Ledger::settle`].
    pub(crate) fn landed(&self, pair: &Arc<Slot<S>>, name: Name<'_>, info: &Info, tally: &Tally<'_>) -> bool {
        if matches!(pair.dst.stand, Some(MoveState::Landed { .. })) {
            let held = self.held();
            if held.once_more && held.is_torn(pair, info, tally) {
                stays(pair);
                return false;
            }
        }
        let (src, name) = (pair.src.clone(), Some(name.to_owned()));
        self.add(LedgerEntry { src, name, info: *info, pair: pair.clone() })
    }

    fn add(&self, entry: LedgerEntry<S>) -> bool {
        if entry.pair.dst.stand != Some(MoveState::Filling) {
            let mut entries = self.entries();
            entries.push(entry);
            return entries.len().is_multiple_of(ENTRIES_MAX);
        }
        let mut held = self.held();
        if entry.is_top() {
            held.whole.insert(entry.pair.src.info().id());
        }
        if held.entries.len() >= ENTRIES_MAX {
            held.is_over = true;
            held.entries = Vec::new();
        }
        if !held.is_over {
            held.entries.push(entry);
        }
        false
    }

    /// Nothing goes of what is not all there.
    pub(crate) fn forget_held(&self) {
        *self.held() = HeldBack::default();
    }

    /// All has landed that can: what was held may go. Returns whether there was more of it than is remembered, so that
    /// the directories are to be gone through once more.
    pub(crate) fn release_held(&self, tally: &Tally<'_>) -> bool {
        let mut held = self.held();
        let (mut entries, is_over) = (std::mem::take(&mut held.entries), std::mem::take(&mut held.is_over));
        held.once_more = is_over;
        let mut names: HashMap<(u64, u64), u64> = HashMap::new();
        for entry in entries.iter().filter(|entry| entry.info.nlink > 1) {
            *names.entry(entry.info.id()).or_default() += 1;
        }
        entries.retain(|LedgerEntry { pair, info, .. }| {
            let is_torn = names.get(&info.id()) < Some(&info.nlink) && held.is_torn(pair, info, tally);
            if is_torn {
                stays(pair);
            }
            !is_torn
        });
        // Directories in which something stays now.
        entries.retain(|entry| entry.info.kind != Kind::Dir || !entry.pair.is_incomplete());
        self.entries().extend(entries);
        is_over
    }

    /// Tells of devices where nothing goes.
    pub(crate) fn doubted(&self, failed: Vec<(u64, Error)>, tally: &Tally<'_>) {
        let mut told = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        for (dev, error) in failed {
            told.push(dev);
            tally.fail(Error { note: Some(STAYS.into()), ..error });
        }
    }

    /// All that was in the directory has landed.
    pub(crate) fn dir_done(&self, pair: &Arc<Slot<S>>) {
        let Some((src, name)) = S::itself(pair) else { return };
        self.add(LedgerEntry { src, name, info: *pair.src.info(), pair: pair.clone() });
    }

    /// Syncs the destination and takes away what is safe there. Entries whose copy has no name yet stay.
    pub(crate) fn settle(
        &self,
        devices: &Devices<'_, Sys>,
        tally: &Tally<'_>,
        taker: &(impl TakesAway<S> + ?Sized),
    ) {
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
        ready.retain(|entry| {
            let dst = &entry.pair.dst;
            let is_sure = devices.is_sure(dst);
            if !is_sure && !told.contains(&dst.info.dev) {
                // R5: what that sync lost may have been copied long before it, and no later one would tell.
                told.push(dst.info.dev);
                let note = Reason::SyncFailedSoKept;
                tally.fail(Error::ours(Code::Io, Op::RemoveTheSourceOf, dst.node.path(), note));
            }
            is_sure
        });
        taker.take_away(ready, tally);
        self.entries().splice(0..0, waiting);
    }
}

impl<S: MovedFrom> Ledger<S> {
    /// Takes away at the source what is safe at the destination, after all has been copied. Of a directory that the run was
    /// stopped in, or could not seal, nothing goes: the same command copies it once more, and needs all that the source says
    /// (R8). Where `stays` says so nothing goes. What was not remembered is to be gone through `once_more`, as by the same
    /// command after a kill: the operands of which all has landed.
    pub(crate) fn end<B: LandHooks<S>>(
        &self,
        desk: &Lander<'_, S, B>,
        stays: bool,
        taker: &(impl TakesAway<S> + ?Sized),
        once_more: impl FnOnce(&[(u64, u64)]),
    ) {
        let landed = if stays { None } else { desk.all_landed(self.since) };
        if let Some((landed, failed)) = landed {
            self.doubted(failed, &desk.tally);
            if self.release_held(&desk.tally) {
                once_more(&landed);
            }
        } else {
            self.forget_held();
        }
        self.settle(desk.devices(), &desk.tally, taker);
    }
}

impl<S: MovedFrom> HeldBack<S> {
    /// Whether `info` is to stay because something of its operand has failed, which may be another name of it: only as
    /// long as both are at the source it says that they are one file.
    fn is_torn(&self, pair: &Arc<Slot<S>>, info: &Info, tally: &Tally<'_>) -> bool {
        if info.kind == Kind::Dir || info.nlink < 2 || tally.failed.load(Relaxed) == 0 {
            return false;
        }
        let mut top = pair;
        while let Some(above) = top.above.as_ref().filter(|above| above.ours) {
            top = above;
        }
        !self.whole.contains(&top.src.info().id())
    }
}

impl<S> LedgerEntry<S> {
    /// The directory that an operand is.
    pub(crate) fn is_top(&self) -> bool {
        self.info.kind == Kind::Dir && self.pair.above.as_ref().is_some_and(|above| !above.ours)
    }
}

/// Something in `pair` stays, and so do the directories above it.
fn stays<S>(pair: &Arc<Slot<S>>) {
    let mut at = Some(pair);
    while let Some(pair) = at {
        pair.mark_incomplete();
        at = pair.above.as_ref();
    }
}

/// Whether what was copied is still what it was then.
pub(crate) fn is_still(now: &Info, was: &Info) -> bool {
    // Taking one name of an inode away changes its ctime, so where there are several, mtime and size must do.
    now.id() == was.id()
        && (was.kind == Kind::Dir
            || (now.size == was.size && now.mtime == was.mtime && (was.nlink > 1 || now.ctime == was.ctime)))
}

/// Removes one entry at the source, if it still is what was copied.
fn take_away(entry: &LedgerEntry<SourceDir>, tally: &Tally<'_>) {
    let (dir, Some(name)) = (&entry.src, &entry.name) else { return };
    let name = name.as_name();
    let now = match dir.stat(name, false) {
        Ok(now) => now,
        Err(e) if e.code == Code::NotFound => return,
        Err(e) => return tally.fail(e),
    };
    let was = &entry.info;
    if !is_still(&now, was) {
        let note = Reason::ChangedAfterCopy;
        return tally.fail(Error::ours(Code::SourceChanged, Op::RemoveSource, dir.node.join(name), note));
    }
    let removed = if was.kind == Kind::Dir { dir.dir.remove_dir(name) } else { dir.dir.remove_file(name) };
    if let Err(e) = removed {
        return tally.fail(Error::os(Op::RemoveSource, dir.node.join(name), e));
    }
    tally.item(Action::Removed, 0, || (PathBuf::new(), dir.node.join(name)));
    // R8: the same command has nothing to go on with any more, now and not before.
    if entry.is_top() {
        unmark(&entry.pair, tally);
    }
}

/// Takes the mark of an operand away that is gone at the source.
pub(crate) fn unmark<S>(pair: &Slot<S>, tally: &Tally<'_>) {
    if let Err(e) = tree::unmark(&Sys::new(), &pair.dst.dir) {
        tally.fail(Error::os(Op::Unmark, pair.dst.node.path(), e));
    }
}
