//! Sets aside what a run replaces or deletes at the destination, in a directory of the user's or in the trash, and writes down
//! all that the run changes, so that it can be undone.
//!
//! Must not decide what is replaced or deleted, nor put anything back. What is set aside keeps its inode: a file that is to be
//! replaced gets a second name and loses the first only when the new one takes it, so that the name always has one of the two.

use crate::calendar::Stamp;
use crate::disk::sys::Sys;
use crate::disk::{Dirs, Fault, Job, OldKept, Side};
use crate::error::{Code, Error, Note, Op, Reason, Result};
use crate::event::Event;
use crate::held_stat;
use crate::node::{Node, last_name};
use crate::policy::{CopyPolicy, Privileged};
use crate::receiver::dest::DestDir;
use crate::receiver::kept::{self, DirId, Done, KeptLine, KeptThing, KnownBy, ReceiptHead, WasLike};
use crate::receiver::{land, plan, tree};
use crate::tally::Tally;
use fastcopy::dir::{Dir, Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{self, Info, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the receipt is called, and what holds the rest beside it.
const RECEIPT: &[u8] = b"receipt";
const OLD: &[u8] = b"old";
/// How often another name is tried where one is taken.
const TRIES_MAX: u64 = 10_000;
/// Bytes of a name of what is kept before a number that tells it from others.
const NUMBERED_BYTES_MAX: usize = 200;
/// Directories whose names are brought onto stable storage together.
const OWED_MAX: usize = 64;
/// Directories of which is remembered that they stand in the receipt.
const STAYED_MAX: usize = 1 << 16;

/// Where things are kept.
pub(crate) enum KeptIn {
    /// In a new directory of this one for each run, by the names that they had.
    Backup { dir: Dir, shown: PathBuf, names: NamesDest },
    /// In the user's trash, each by a name of its own; receipts are elsewhere.
    Trash(Trash),
}

/// How a receipt names the destination.
pub(crate) enum NamesDest {
    /// By where it is in the whole machine.
    Whole,
    /// By the way from the receipt: a client that reads it is not to be told what is above both.
    FromReceipt,
}

/// A trash, as freedesktop.org's specification has it.
pub(crate) struct Trash {
    /// The trash itself.
    pub(crate) dir: Dir,
    pub(crate) files: Dir,
    pub(crate) info: Dir,
    /// Paths in it are relative to this; without, they are whole.
    pub(crate) top: Option<PathBuf>,
    pub(crate) receipts: Dir,
    pub(crate) receipts_shown: PathBuf,
    /// Seconds by which local time is ahead.
    pub(crate) ahead: i64,
}

/// What a run sets aside, and what it writes down.
pub(crate) struct Aside {
    kept_in: KeptIn,
    /// What is spared wherever it is met.
    id: (u64, u64),
    dest: PathBuf,
    dest_id: DirId,
    /// As what it is meant to be.
    dest_info: Info,
    /// Where the destination has what only root can set.
    privileged: Privileged,
    run: Mutex<Option<KeptRun>>,
    /// Bytes of the receipt that are on stable storage, as far as who waited for lines alone has seen to it. Locked before `run`.
    synced_bytes: Mutex<u64>,
}

/// What there is once something was changed.
struct KeptRun {
    receipt: File,
    /// Bytes of whole lines in it, and whether half a line is behind them.
    receipt_bytes: u64,
    is_half: bool,
    receipt_shown: PathBuf,
    /// Where things are kept by their names.
    old: Option<Dir>,
    /// The directory in it that was last used.
    last: Option<(Vec<NameBuf>, Dir)>,
    /// Something is kept whose name is not on stable storage yet.
    owes: Vec<((u64, u64), Dir)>,
    /// Among these are directories that things are to be moved into.
    owes_places: bool,
    /// A line that says where something is kept is not on stable storage yet.
    owes_lines: bool,
    /// What a sync failed with: it may have lost lines, and is not tried again.
    unsynced: Option<io::Error>,
    /// And that was told.
    is_told: bool,
    /// What is written down to be kept as, and is not there yet.
    promised: BTreeSet<PathBuf>,
    /// Directories that stayed and stand in the receipt, and whether with owner and mode.
    stayed: BTreeMap<(u64, u64), bool>,
    /// Counts names in the trash.
    serial: u64,
    now: Stamp,
}

impl Aside {
    /// # Errors
    /// What is kept would be on another file system, or is where the destination itself is.
    pub(crate) fn new(
        kept_in: KeptIn,
        (dest, shown): (&Dir, &Path),
        privileged: Privileged,
    ) -> Result<Aside> {
        let (dir, at) = match &kept_in {
            KeptIn::Backup { dir, shown, .. } => (dir, shown.clone()),
            KeptIn::Trash(trash) => (&trash.dir, trash.receipts_shown.clone()),
        };
        let own = Aside::guard((dir, &at), (dest, shown))?;
        let dest_info = held_stat::dir_as(privileged, dest).map_err(|e| Error::os(Op::Stat, shown, e))?;
        let whole = dest.whereabouts().map_err(|e| Error::os(Op::Stat, shown, e))?;
        let dest_id = dir_id(dest).map_err(|e| Error::os(Op::Stat, shown, e))?;
        let (run, synced_bytes) = (Mutex::default(), Mutex::default());
        Ok(Aside { id: own.id(), kept_in, dest: whole, dest_id, dest_info, privileged, run, synced_bytes })
    }

    /// Refuses what is no place for what is kept of `dest`: one on another file system, and the destination itself.
    ///
    /// # Errors
    /// It is refused, or cannot be looked at.
    pub(crate) fn guard((dir, at): (&Dir, &Path), (dest, shown): (&Dir, &Path)) -> Result<Info> {
        let info = |dir: &Dir, path: &Path| dir.info().map_err(|e| Error::os(Op::Stat, path, e));
        let (own, dest) = (info(dir, at)?, info(dest, shown)?);
        let refuse = |why| Err(Error::ours(Code::Refused, Op::KeepOld, at, why));
        if own.dev != dest.dev {
            return refuse(Reason::KeptElsewhere);
        }
        if own.id() == dest.id() {
            return refuse(Reason::KeptInDestination);
        }
        Ok(own)
    }

    /// The directory that holds what is kept.
    pub(crate) fn id(&self) -> (u64, u64) {
        self.id
    }

    fn run(&self) -> MutexGuard<'_, Option<KeptRun>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what `jobs` are about to replace in `dst`, and writes down what becomes of their names. A job whose old one cannot
    /// be kept has a fault, and replaces nothing.
    pub(crate) fn keep(&self, dst: &DestDir<Sys>, jobs: &mut [Job<'_, Sys>]) {
        let mut run = self.run();
        let mut to_rename = Vec::new();
        for (nth, job) in jobs.iter_mut().enumerate().filter(|(_, job)| job.fault.is_none()) {
            job.old = OldKept::Nothing;
            let replaced = job.there.filter(|there| there.kind != Kind::Dir);
            let known = KnownBy::of(&match self.privileged {
                Privileged::Real => job.info,
                Privileged::Held => held_stat::holding(&job.info),
            });
            let kept = self.begun(&mut run).and_then(|run| {
                self.changes_in(run, dst)?;
                let Some(there) = replaced else {
                    return run.write(Done::Made(known), &dst.node, Some(job.name));
                };
                let (at_dir, at_name, at) = self.place(run, &dst.node, job.name, &there)?;
                let kept = KeptThing { at: at.clone(), ino: Some(there.ino) };
                let written = run.write(Done::Replaced(known, kept), &dst.node, Some(job.name));
                let to = at_name.as_name();
                match written.and_then(|()| second(&dst.dir, job.name, &there, &at_dir, to)) {
                    Ok(true) => {
                        run.promised.remove(&at);
                        job.old = OldKept::At(at);
                        run.owe(at_dir)
                    }
                    Ok(false) => {
                        to_rename.push((nth, there, Promised { at, at_dir, at_name }));
                        Ok(())
                    }
                    Err(e) => {
                        self.forget(run, &at);
                        Err(e)
                    }
                }
            });
            if let Err(e) = kept {
                job.fault = Some(Fault::os(Side::Dest, Op::KeepOld, e));
            }
        }
        let Some(run) = &mut *run else { return };
        let renamed = run.keep_by_renames(&dst.dir, jobs, to_rename);
        // R9: what is kept must not be lost by a power cut that finds its first name gone.
        let synced = renamed.and_then(|()| run.settle());
        if let Err(e) = synced {
            let code = Code::of(&e);
            for job in jobs.iter_mut().filter(|job| matches!(job.old, OldKept::At(_)) && job.fault.is_none())
            {
                let source = e.raw_os_error().map(io::Error::from_raw_os_error);
                job.fault = Some(Fault { side: Side::Dest, op: Op::KeepOld, code, note: None, source });
                run.is_told = true;
            }
        }
    }

    /// What jobs with a fault have not replaced after all has its one name again.
    pub(crate) fn give_back(&self, dst: &DestDir<Sys>, jobs: &mut [Job<'_, Sys>]) {
        let mut run = self.run();
        let Some(run) = &mut *run else { return };
        for job in jobs.iter_mut().filter(|job| job.fault.is_some()) {
            let OldKept::At(at) = std::mem::replace(&mut job.old, OldKept::Nothing) else { continue };
            if let Err(e) = self.undo_one(run, dst, job.name, &at) {
                job.lost.push(Fault::os(Side::Dest, Op::KeepOld, e));
            }
        }
    }

    fn undo_one(&self, run: &mut KeptRun, dst: &DestDir<Sys>, name: Name<'_>, at: &Path) -> io::Result<()> {
        let (dir, kept) = match (&self.kept_in, last_name(at)) {
            (KeptIn::Trash(trash), Some(name)) => (trash.files.try_clone()?, name),
            (KeptIn::Backup { .. }, Some(name)) => {
                let mut dir = run.old.as_ref().ok_or(io::ErrorKind::NotFound)?.try_clone()?;
                for part in at.parent().into_iter().flat_map(Path::components).skip(1) {
                    let part =
                        NameBuf::new(part.as_os_str().as_bytes()).ok_or(io::ErrorKind::InvalidInput)?;
                    dir = dir.open_dir(part.as_name())?;
                }
                (dir, name)
            }
            (_, None) => return Ok(()),
        };
        match (dir.look(kept.as_name())?, dst.dir.look(name)?) {
            // It has not come to being moved.
            (None, _) => {}
            (Some(_), None) => land::give_name(&dir, kept.as_name(), &dst.dir, name, true)?,
            (Some(old), Some(there)) if there.id() == old.id() => dir.remove_file(kept.as_name())?,
            (Some(_), Some(_)) => return Ok(()),
        }
        run.promised.remove(at);
        self.forget_trashed(&kept);
        Ok(())
    }

    /// What was promised, and has not come to where it was to be kept, stays after all.
    pub(crate) fn forgets<'p>(&self, promised: impl Iterator<Item = &'p Path>) {
        let mut run = self.run();
        let Some(run) = &mut *run else { return };
        promised.for_each(|at| self.forget(run, at));
    }

    fn forget(&self, run: &mut KeptRun, at: &Path) {
        if run.promised.remove(at)
            && let Some(name) = last_name(at)
        {
            self.forget_trashed(&name);
        }
    }

    /// What the trash says of something that is not in it.
    fn forget_trashed(&self, name: &NameBuf) {
        if let (KeptIn::Trash(trash), Some(info)) = (&self.kept_in, info_name(name.bytes()))
            && matches!(trash.files.look(name.as_name()), Ok(None))
        {
            // What says something of nothing is passed over by all who read a trash.
            trash.info.remove_file(info.as_name()).ok();
        }
    }

    /// Writes down, once, what `dst` is like before something in it changes, and its time with that: a run that is killed does
    /// not come to giving it back. What a run has made stands in the receipt as that.
    fn changes_in(&self, run: &mut KeptRun, dst: &DestDir<Sys>) -> io::Result<()> {
        // The destination itself stands first in every receipt.
        let is_dest = matches!(*dst.node, Node::Root(_));
        if dst.is_made() || is_dest || dst.is_in_receipt.load(Relaxed) {
            return Ok(());
        }
        run.stayed(&self.was(dst)?, &dst.node, GivenBack::Times)?;
        dst.is_in_receipt.store(true, Relaxed);
        Ok(())
    }

    /// What `dst` was like before this run.
    fn was(&self, dst: &DestDir<Sys>) -> io::Result<Info> {
        match self.privileged {
            Privileged::Real => Ok(dst.info),
            Privileged::Held => held_stat::dir_as(self.privileged, &dst.dir),
        }
    }

    /// Writes down what `dir` is like before something in it is deleted, and before it is opened up for that.
    ///
    /// # Errors
    /// It cannot be written, and nothing may be deleted there.
    pub(crate) fn deletes_in(&self, dir: &Dir, node: &Node) -> Result<()> {
        let was = held_stat::dir_as(self.privileged, dir).map_err(|e| Error::os(Op::Stat, node.path(), e))?;
        let written = self.begun(&mut self.run()).and_then(|run| run.stayed(&was, node, GivenBack::Times));
        written.map_err(|e| Error::os(Op::WriteReceipt, node.path(), e))
    }

    /// Writes down that `name`, which is `there` below `node`, is moved away, and as what. M7: it may be once
    /// [`settle`](Aside::settle) has said so.
    ///
    /// # Errors
    /// It cannot be written down, or has no place.
    pub(crate) fn promises(&self, node: &Node, name: Name<'_>, there: &Info) -> Result<PathBuf> {
        let promised = || {
            let mut run = self.run();
            let run = self.begun(&mut run)?;
            let (_, _, at) = self.place(run, node, name, there)?;
            let deleted = Done::Deleted(KeptThing { at: at.clone(), ino: Some(there.ino) });
            let written = run.write(deleted, node, Some(name));
            if written.is_err() {
                self.forget(run, &at);
            }
            written.map(|()| at)
        };
        promised().map_err(|e| Error::os(Op::KeepOld, node.join(name), e))
    }

    /// What was written down is on stable storage, and so is every name that was given to what is kept.
    ///
    /// # Errors
    /// It may not be, then and from then on: nothing may be moved away for it.
    pub(crate) fn settle(&self) -> Result<()> {
        let mut run = self.run();
        run.as_mut().map_or(Ok(()), KeptRun::settle_or_tell)
    }

    /// What was written down by now is on stable storage, and so is every directory that it names. One sync serves all who
    /// wait for it: while it runs, others write their lines, and the next one has these.
    ///
    /// # Errors
    /// As [`settle`](Aside::settle).
    fn settle_lines(&self) -> Result<()> {
        let Some(wanted) = self.run().as_ref().map(|run| run.receipt_bytes) else { return Ok(()) };
        let mut synced_bytes = self.synced_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let (receipt, bytes) = {
            let mut run = self.run();
            let Some(run) = &mut *run else { return Ok(()) };
            if run.unsynced.is_some() || run.owes_places {
                return run.settle_or_tell();
            }
            if *synced_bytes >= wanted {
                return Ok(());
            }
            let receipt = run.receipt.try_clone();
            let receipt = receipt.map_err(|e| Error::os(Op::WriteReceipt, &run.receipt_shown, e))?;
            (receipt, run.receipt_bytes)
        };
        let synced = receipt.sync_data();
        if let Err(e) = &synced
            && let Some(run) = &mut *self.run()
        {
            // R5: as where all is settled.
            run.unsynced.get_or_insert(again(e));
            run.is_told = true;
            return Err(Error::os(Op::WriteReceipt, &run.receipt_shown, again(e)));
        }
        *synced_bytes = bytes;
        Ok(())
    }

    /// Moves `name`, which is `there` in `dir`, away, with all that is in it, to where it was promised.
    ///
    /// # Errors
    /// It stays where it is.
    pub(crate) fn moves(
        &self,
        (dir, node): (&Dir, &Node),
        name: Name<'_>,
        there: &Info,
        promised: &Path,
    ) -> Result<()> {
        let moved = || {
            let mut run = self.run();
            let run = self.begun(&mut run)?;
            let at_name = last_name(promised).ok_or(io::ErrorKind::InvalidInput)?;
            let at_dir = self.kept_dir(run, node)?;
            move_whole(dir, name, there, &at_dir, at_name.as_name())?;
            run.promised.remove(promised);
            let owed = run.owe(at_dir);
            run.is_told |= owed.is_err();
            owed
        };
        moved().map_err(|e| Error::os(Op::KeepOld, node.join(name), e))
    }

    /// Moves one name away.
    ///
    /// # Errors
    /// It stays where it is.
    fn takes(&self, dir: &Dir, node: &Node, name: Name<'_>, there: &Info) -> Result<()> {
        let promised = self.promises(node, name, there)?;
        let moved = self.settle_lines().and_then(|()| self.moves((dir, node), name, there, &promised));
        if moved.is_err() {
            self.forgets(std::iter::once(&*promised));
        }
        moved
    }

    /// The same of something in `dst`, which things come into.
    fn takes_from(&self, dst: &DestDir<Sys>, name: Name<'_>, there: &Info) -> Result<()> {
        let written = self.begun(&mut self.run()).and_then(|run| self.changes_in(run, dst));
        written.map_err(|e| Error::os(Op::WriteReceipt, dst.node.path(), e))?;
        dst.open_up(&Sys::new());
        self.takes(&dst.dir, &dst.node, name, there)
    }

    /// What the source has under the name of the directory that holds what is kept, does not come: kept things would be mixed
    /// with the source's, and moved into themselves.
    ///
    /// # Errors
    /// It is that directory that is `there`.
    fn guard_own(&self, there: &Info, shown: impl FnOnce() -> PathBuf) -> Result<()> {
        if there.id() == self.id { Err(own_in_the_way(&shown())) } else { Ok(()) }
    }

    /// What is no directory, and has the name that a directory gets in `dst`, is moved away. That a directory is made there is
    /// written down before it is made: a run that is killed right then has no other chance.
    ///
    /// # Errors
    /// It stays where it is, and no directory may be made; or it is where things are kept.
    pub(crate) fn clears_for_dir(&self, dst: &DestDir<Sys>, name: Name<'_>) -> Result<()> {
        let there = if dst.is_fresh() { Ok(None) } else { dst.dir.look(name) };
        let there = there.map_err(|e| Error::os(Op::Stat, dst.node.join(name), e))?;
        if let Some(there) = there.filter(|there| there.kind == Kind::Dir) {
            return self.guard_own(&there, || dst.node.join(name));
        }
        if let Some(there) = there {
            let (btime, disk) = (|| dst.dir.btime(name), Sys::new());
            if dst.created_names.lock().has_under(&there, name, btime, disk.lists(&dst.dir)) {
                return Ok(());
            }
            self.takes_from(dst, name, &there)?;
        }
        let mut run = self.run();
        let made = Done::Made(KnownBy::a_dir());
        let written = self.begun(&mut run).and_then(|run| {
            self.changes_in(run, dst)?;
            run.write(made, &dst.node, Some(name))
        });
        written.map_err(|e| Error::os(Op::WriteReceipt, dst.node.join(name), e))
    }

    /// An empty directory that has the name of something else in `dst` is moved away. Whether it was.
    ///
    /// # Errors
    /// It cannot be; or it is where things are kept, empty or not.
    pub(crate) fn clears_empty(&self, dst: &DestDir<Sys>, name: Name<'_>, there: &Info) -> Result<bool> {
        self.guard_own(there, || dst.node.join(name))?;
        let fail = |e| Error::os(Op::ListDirectory, dst.node.join(name), e);
        let is_empty = dst.dir.open_dir(name).and_then(|dir| tree::is_empty(&Sys::new(), &dir));
        if !is_empty.map_err(fail)? {
            return Ok(false);
        }
        self.takes_from(dst, name, there).map(|()| true)
    }

    /// Begins the receipt, which says first what the destination itself was like, if that becomes what `source` is and was not.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn fills(&self, node: &Node, source: &Info, policy: &CopyPolicy) -> Result<()> {
        let Some(gives) = changes(&self.dest_info, source, policy) else { return Ok(()) };
        let begun =
            self.begun_as(&mut self.run(), gives).and_then(|run| run.stayed_root(&self.dest_info, gives));
        begun.map_err(|e| Error::os(Op::WriteReceipt, node.path(), e))
    }

    /// Writes down that the directory `dst` becomes what `source` is.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn enters(&self, dst: &DestDir<Sys>, source: &Info, policy: &CopyPolicy) -> Result<()> {
        let was = self.was(dst).map_err(|e| Error::os(Op::Stat, dst.node.path(), e))?;
        let Some(gives) = changes(&was, source, policy) else { return Ok(()) };
        let written = self.begun(&mut self.run()).and_then(|run| match gives {
            GivenBack::All if !dst.is_made() => run.stayed(&was, &dst.node, gives),
            GivenBack::All | GivenBack::Times => self.changes_in(run, dst),
        });
        written.map_err(|e| Error::os(Op::WriteReceipt, dst.node.path(), e))
    }

    /// Brings what was written down onto stable storage, and tells where it is.
    pub(crate) fn finish(&self, tally: &Tally<'_>) {
        let mut run = self.run();
        let Some(run) = &mut *run else { return };
        // Half a line that a full disk has left says nothing, and would make it look cut off.
        let synced = run.whole_lines().and_then(|()| run.settle()).and_then(|()| run.receipt.sync_all());
        if let Some(e) = synced.err().filter(|_| !run.is_told) {
            tally.fail(Error::os(Op::WriteReceipt, &run.receipt_shown, e));
        }
        let note: Note = Reason::OldKept.about(run.receipt_shown.as_path());
        tally.watch.front.event(Event::Note(note));
    }

    /// The directory and the receipt of this run, made when they are first needed.
    fn begun<'r>(&self, run: &'r mut Option<KeptRun>) -> io::Result<&'r mut KeptRun> {
        self.begun_as(run, GivenBack::Times)
    }

    /// The same; a receipt that begins with that says so much of the destination itself.
    fn begun_as<'r>(&self, run: &'r mut Option<KeptRun>, gives: GivenBack) -> io::Result<&'r mut KeptRun> {
        if run.is_none() {
            *run = Some(self.begin(gives)?);
        }
        run.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn begin(&self, gives: GivenBack) -> io::Result<KeptRun> {
        let now = Stamp::at(std::time::SystemTime::now());
        let receipts = match &self.kept_in {
            KeptIn::Backup { dir, .. } => dir,
            KeptIn::Trash(trash) => &trash.receipts,
        };
        let (dir, name) = new_dir(receipts, &now.to_string())?;
        let old = named(OLD)?;
        let (shown, trash, store) = match &self.kept_in {
            KeptIn::Backup { shown, .. } => {
                land::ensure_dir(&dir, old.as_name(), 0o700)?;
                (shown, false, PathBuf::from(OsStr::from_bytes(b".")))
            }
            KeptIn::Trash(trash) => (&trash.receipts_shown, true, trash.dir.whereabouts()?),
        };
        let dest = match &self.kept_in {
            KeptIn::Backup { names: NamesDest::FromReceipt, .. } => {
                kept::way(&dir.whereabouts()?, &self.dest)
            }
            _ => self.dest.clone(),
        };
        let receipt = named(RECEIPT)?;
        let mut run = KeptRun {
            receipt: File::from(land::new_file(&dir, receipt.as_name(), 0o600)?),
            receipt_bytes: 0,
            is_half: false,
            receipt_shown: shown.join(OsStr::from_bytes(name.bytes())).join(OsStr::from_bytes(RECEIPT)),
            old: if trash { None } else { Some(dir.open_dir(old.as_name())?) },
            last: None,
            owes: vec![(receipts.info()?.id(), receipts.try_clone()?), (dir.info()?.id(), dir)],
            owes_places: true,
            owes_lines: false,
            unsynced: None,
            is_told: false,
            promised: BTreeSet::new(),
            serial: 1,
            stayed: BTreeMap::new(),
            now,
        };
        let (id, privileged) = (self.dest_id, self.privileged);
        let head = ReceiptHead { dest, id, store, trash, privileged };
        run.write_lines(&head.lines())?;
        run.stayed_root(&self.dest_info, gives)?;
        Ok(run)
    }

    /// Where what is `there` as `name` of `node` is to be kept: a directory, a name that is free in it, and both below the store.
    fn place(
        &self,
        run: &mut KeptRun,
        node: &Node,
        name: Name<'_>,
        there: &Info,
    ) -> io::Result<(Dir, NameBuf, PathBuf)> {
        let dir = self.kept_dir(run, node)?;
        let (kept_as, at) = match &self.kept_in {
            KeptIn::Backup { .. } => {
                let at = |name: Name<'_>| Path::new(OsStr::from_bytes(OLD)).join(relative(node, Some(name)));
                let is_promised = |name: Name<'_>| run.promised.contains(&at(name));
                let kept_as = free_name(&dir, name, there, &is_promised)?;
                let at = at(kept_as.as_name());
                (kept_as, at)
            }
            KeptIn::Trash(trash) => {
                let whole = self.dest.join(relative(node, Some(name)));
                let name = trash.reserve(name, &whole, run)?;
                let at = Path::new("files").join(OsStr::from_bytes(name.bytes()));
                (name, at)
            }
        };
        run.promised.insert(at.clone());
        Ok((dir, kept_as, at))
    }

    /// The directory in which what is kept of `node` lies.
    fn kept_dir(&self, run: &mut KeptRun, node: &Node) -> io::Result<Dir> {
        match &self.kept_in {
            KeptIn::Backup { .. } => run.by_names(&node.names()),
            KeptIn::Trash(trash) => trash.files.try_clone(),
        }
    }
}

/// What an open directory is known by in a later run.
pub(crate) fn dir_id(dir: &Dir) -> io::Result<DirId> {
    let (info, birth) = dir.info_and_birth()?;
    let born = if dir.keeps_identities()? { birth } else { 0 };
    Ok(DirId { ino: info.ino, born, file_system: dir.file_system_id()? })
}

/// Something at the source has the name of the directory that holds what is kept.
pub(crate) fn own_in_the_way(dst: &Path) -> Error {
    Error::ours(Code::Refused, Op::CopyTo, dst, Reason::HoldsKept)
}

/// What undoing gives back of a directory that stayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivenBack {
    /// Owner and mode too, which the run changes.
    All,
    /// What comes or goes in it changes no more: who gives back a mode then opens what its owner has closed since.
    Times,
}

/// What a directory that `was` like this is to be given back after it became what `source` is; `None`: it is that.
fn changes(was: &Info, source: &Info, policy: &CopyPolicy) -> Option<GivenBack> {
    // Who may not give things to other users may still give them to a group.
    let regroups = policy.preserve.owner && policy.alter.of(source).gid != was.gid;
    let of_that_time = Info { mtime: was.mtime, ..*source };
    if regroups || plan::stale_by(&of_that_time, was, policy).is_some() {
        return Some(GivenBack::All);
    }
    plan::stale_by(source, was, policy).map(|_| GivenBack::Times)
}

/// A path below the destination.
fn relative(node: &Node, name: Option<Name<'_>>) -> PathBuf {
    let names = node.names();
    let parts = names.iter().map(|name| name.bytes()).chain(name.as_ref().map(|name| name.bytes()));
    parts.map(OsStr::from_bytes).collect()
}

fn named(bytes: &[u8]) -> io::Result<NameBuf> {
    NameBuf::new(bytes).ok_or_else(|| io::Error::from_raw_os_error(errno::EINVAL))
}

/// A new directory that is called so, or so with a number behind it.
fn new_dir(above: &Dir, wanted: &str) -> io::Result<(Dir, NameBuf)> {
    for serial in 1..TRIES_MAX {
        let name = if serial == 1 { wanted.to_owned() } else { format!("{wanted}.{serial}") };
        let name = named(name.as_bytes())?;
        if land::ensure_dir(above, name.as_name(), 0o700)? {
            return Ok((above.open_dir(name.as_name())?, name));
        }
    }
    Err(io::Error::from_raw_os_error(errno::EEXIST))
}

/// A name with something behind it that tells it from others.
fn numbered(name: Name<'_>, behind: String) -> io::Result<NameBuf> {
    let bytes = name.bytes();
    let short = bytes.get(..NUMBERED_BYTES_MAX).unwrap_or(bytes);
    named(&[short, behind.as_bytes()].concat())
}

/// The name itself, or one with a number behind it: a name that the run replaces twice has something kept by then. What is `there`
/// may have it already, from an attempt before.
fn free_name(
    dir: &Dir,
    name: Name<'_>,
    there: &Info,
    is_promised: &dyn Fn(Name<'_>) -> bool,
) -> io::Result<NameBuf> {
    for serial in 1..TRIES_MAX {
        let name = if serial == 1 { name.to_owned() } else { numbered(name, format!(".{serial}"))? };
        if is_promised(name.as_name()) {
            continue;
        }
        if dir.look(name.as_name())?.is_none_or(|kept| kept.id() == there.id()) {
            return Ok(name);
        }
    }
    Err(io::Error::from_raw_os_error(errno::EEXIST))
}

/// Where something is to be kept that has a line by now.
struct Promised {
    at: PathBuf,
    at_dir: Dir,
    at_name: NameBuf,
}

/// Gives what is `there` as `name` a second name. Whether there are second names.
fn second(dir: &Dir, name: Name<'_>, there: &Info, at: &Dir, to: Name<'_>) -> io::Result<bool> {
    match land::second_name(dir, name, at, to) {
        // A second attempt of this run.
        Err(e) if e.raw_os_error() == Some(errno::EEXIST) && has(at, to, there)? => {}
        Err(e) if matches!(e.raw_os_error(), Some(errno::EPERM | errno::EMLINK | errno::EOPNOTSUPP)) => {
            return Ok(false);
        }
        other => other?,
    }
    is_kept(at, to, there).map(|()| true)
}

/// Whether what was `there` is what has that name.
fn has(dir: &Dir, name: Name<'_>, there: &Info) -> io::Result<bool> {
    Ok(dir.look(name)?.is_some_and(|now| now.id() == there.id()))
}

/// What was looked at is what is kept, or else nothing is replaced.
fn is_kept(at: &Dir, to: Name<'_>, there: &Info) -> io::Result<()> {
    if has(at, to, there)? { Ok(()) } else { Err(io::Error::from_raw_os_error(errno::ESTALE)) }
}

/// Moves a name from one directory to another. A directory whose owner may not write in it cannot get another place, and is
/// opened up for that.
pub(crate) fn move_whole(
    from: &Dir,
    name: Name<'_>,
    there: &Info,
    to_dir: &Dir,
    to: Name<'_>,
) -> io::Result<()> {
    match land::give_name(from, name, to_dir, to, true) {
        Err(e) if e.raw_os_error() == Some(errno::EACCES) && there.kind == Kind::Dir => {
            let dir = from.open_dir(name)?;
            if dir.info()?.id() != there.id() {
                return Err(e);
            }
            meta::set_mode(&dir, there.mode | 0o700)?;
            let moved = land::give_name(from, name, to_dir, to, true);
            meta::set_mode(&dir, there.mode)?;
            moved
        }
        other => other,
    }
}

impl KeptRun {
    /// Writes one line down, before what it says is done.
    fn write(&mut self, done: Done, node: &Node, name: Option<Name<'_>>) -> io::Result<()> {
        let is_of_kept = matches!(done, Done::Replaced(..) | Done::Deleted(_));
        self.write_lines(&KeptLine { done, path: relative(node, name) }.line())?;
        self.owes_lines |= is_of_kept;
        Ok(())
    }

    /// Writes down what a directory that stays is like, unless that stands there.
    fn stayed(&mut self, was: &Info, node: &Node, gives: GivenBack) -> io::Result<()> {
        // The run opens up what its owner may not write in, and may be killed then.
        let all = gives == GivenBack::All || was.mode & 0o700 != 0o700;
        if self.stayed.get(&was.id()).is_some_and(|has_all| *has_all || !all) {
            return Ok(());
        }
        let like = if all { WasLike::of(was) } else { WasLike::times_of(was) };
        self.write(Done::Stayed(like), node, None)?;
        // What stands there twice does no harm.
        if self.stayed.len() >= STAYED_MAX {
            self.stayed.clear();
        }
        self.stayed.insert(was.id(), all);
        Ok(())
    }

    /// The same of the destination itself.
    fn stayed_root(&mut self, was: &Info, gives: GivenBack) -> io::Result<()> {
        self.stayed(was, &Node::Root(PathBuf::new()), gives)
    }

    /// Whole lines or nothing: on a full disk half a line may be written, and what came behind it would make it no receipt.
    fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        self.whole_lines()?;
        self.is_half = true;
        self.receipt.write_all(lines)?;
        self.is_half = false;
        self.receipt_bytes += lines.len() as u64;
        Ok(())
    }

    /// Takes half a line back.
    fn whole_lines(&mut self) -> io::Result<()> {
        if self.is_half {
            self.receipt.set_len(self.receipt_bytes)?;
            self.receipt.seek(SeekFrom::Start(self.receipt_bytes))?;
            self.is_half = false;
        }
        Ok(())
    }

    /// Where there are no second names, what `jobs` replace gets another name for its first, once that is written down (M7).
    ///
    /// # Errors
    /// It may not be written down; then nothing is moved.
    fn keep_by_renames(
        &mut self,
        dir: &Dir,
        jobs: &mut [Job<'_, Sys>],
        to_rename: Vec<(usize, Info, Promised)>,
    ) -> io::Result<()> {
        if to_rename.is_empty() {
            return Ok(());
        }
        let synced = self.settle();
        for (nth, there, Promised { at, at_dir, at_name }) in to_rename {
            let Some(job) = jobs.get_mut(nth) else { continue };
            // With what the sync has met each of them has a fault.
            job.old = OldKept::At(at.clone());
            if synced.is_err() {
                continue;
            }
            let to = at_name.as_name();
            let renamed = land::give_name(dir, job.name, &at_dir, to, true);
            match renamed.and_then(|()| is_kept(&at_dir, to, &there)).and_then(|()| self.owe(at_dir)) {
                Ok(()) => _ = self.promised.remove(&at),
                // Where it was moved, it gets its name again.
                Err(e) => job.fault = Some(Fault::os(Side::Dest, Op::KeepOld, e)),
            }
        }
        synced
    }

    /// The directory that stands for those names below what is kept.
    fn by_names(&mut self, names: &[&NameBuf]) -> io::Result<Dir> {
        if let Some((last, dir)) = &self.last
            && last.iter().eq(names.iter().copied())
        {
            return dir.try_clone();
        }
        let mut dir = self.old.as_ref().ok_or(io::ErrorKind::NotFound)?.try_clone()?;
        for name in names {
            if land::ensure_dir(&dir, name.as_name(), 0o700)? {
                self.owes_places = true;
                self.owe(dir.try_clone()?)?;
            }
            dir = dir.open_dir(name.as_name())?;
        }
        self.last = Some((names.iter().map(|name| (*name).clone()).collect(), dir.try_clone()?));
        Ok(dir)
    }

    /// Names in `dir` are to be brought onto stable storage.
    fn owe(&mut self, dir: Dir) -> io::Result<()> {
        let id = dir.info()?.id();
        if self.owes.iter().all(|(owed, _)| *owed != id) {
            self.owes.push((id, dir));
        }
        if self.owes.len() < OWED_MAX { Ok(()) } else { self.settle() }
    }

    /// What is kept, and what was written down, is on stable storage.
    fn settle(&mut self) -> io::Result<()> {
        // R5: what a failed sync may have lost stays lost, whatever a later one says.
        if let Some(e) = &self.unsynced {
            return Err(again(e));
        }
        if self.owes.is_empty() && !self.owes_lines {
            return Ok(());
        }
        let disk = Sys::new();
        let mut sync = || {
            self.receipt.sync_data()?;
            self.owes.drain(..).try_for_each(|(_, dir)| disk.sync_dir(&dir))
        };
        let synced = sync();
        (self.owes_lines, self.owes_places) = (false, false);
        self.unsynced = synced.as_ref().err().map(again);
        synced
    }

    /// As [`settle`](Self::settle), with an error that is told, and so need not be at the end.
    fn settle_or_tell(&mut self) -> Result<()> {
        let settled = self.settle();
        self.is_told |= settled.is_err();
        settled.map_err(|e| Error::os(Op::WriteReceipt, &self.receipt_shown, e))
    }
}

/// The same error once more.
fn again(e: &io::Error) -> io::Error {
    e.raw_os_error().map_or_else(|| e.kind().into(), io::Error::from_raw_os_error)
}

/// What the trash calls the file that says where something was.
pub(crate) fn info_name(name: &[u8]) -> Option<NameBuf> {
    NameBuf::new(&[name, b".trashinfo"].concat())
}

/// How what a trash says of `path` begins.
fn said_of(path: &Path) -> Vec<u8> {
    let mut out = b"[Trash Info]\nPath=".to_vec();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => out.push(*byte),
            byte => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    out
}

/// Whether a file of the trash that is at `trash` says where something was that had this path, whole or below the top of its
/// file system.
pub(crate) fn says_of(said: &[u8], whole: &Path, trash: &Path) -> bool {
    let tops = trash.ancestors().skip(1).take(2).filter_map(|top| whole.strip_prefix(top).ok());
    let is_it = |path: &Path| said.strip_prefix(&*said_of(path)).is_some_and(|rest| rest.starts_with(b"\n"));
    std::iter::once(whole).chain(tops).any(is_it)
}

impl Trash {
    /// A name that nothing in the trash has, with what is said of `whole` under it.
    fn reserve(&self, name: Name<'_>, whole: &Path, run: &mut KeptRun) -> io::Result<NameBuf> {
        let said = self.said(whole, run.now);
        for attempt in 0..TRIES_MAX {
            let name = match attempt {
                0 => numbered(name, String::new())?,
                _ => {
                    run.serial += 1;
                    numbered(name, format!(".{}.{}", run.now, run.serial))?
                }
            };
            let info = info_name(name.bytes()).ok_or(io::ErrorKind::InvalidInput)?;
            let mut file = match land::new_file(&self.info, info.as_name(), 0o600) {
                Err(e) if e.raw_os_error() == Some(errno::EEXIST) => continue,
                made => File::from(made?),
            };
            if self.files.look(name.as_name())?.is_some() {
                self.info.remove_file(info.as_name())?;
                continue;
            }
            file.write_all(&said)?;
            return Ok(name);
        }
        Err(io::Error::from_raw_os_error(errno::EEXIST))
    }

    fn said(&self, whole: &Path, now: Stamp) -> Vec<u8> {
        let path = self.top.as_ref().and_then(|top| whole.strip_prefix(top).ok()).unwrap_or(whole);
        let mut out = said_of(path);
        let local = Stamp::of(now.seconds().saturating_add(self.ahead)).to_string();
        let (date, rest) = local.split_at_checked(11).unwrap_or((&local, ""));
        let (hour, rest) = rest.split_at_checked(2).unwrap_or((rest, ""));
        let (minute, second) = rest.split_at_checked(2).unwrap_or((rest, ""));
        let second = second.trim_end_matches('Z');
        out.extend_from_slice(format!("\nDeletionDate={date}{hour}:{minute}:{second}\n").as_bytes());
        out
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use std::io::Read;

    fn run_on(receipt: File) -> KeptRun {
        let now = Stamp::of(0);
        let (receipt_shown, old, last, owes) = (PathBuf::new(), None, None, Vec::new());
        let promised = BTreeSet::new();
        KeptRun {
            receipt,
            receipt_bytes: 0,
            is_half: false,
            receipt_shown,
            old,
            last,
            owes,
            owes_places: false,
            owes_lines: false,
            unsynced: None,
            is_told: false,
            promised,
            stayed: BTreeMap::new(),
            serial: 1,
            now,
        }
    }

    /// A socket takes half a line when it is full, and cannot be made shorter.
    #[test]
    fn nothing_is_written_behind_half_a_line() {
        let (mut read, write) = std::os::unix::net::UnixStream::pair().unwrap();
        write.set_nonblocking(true).unwrap();
        let mut run = run_on(File::from(std::os::fd::OwnedFd::from(write)));
        run.write_lines(b"whole\n").unwrap();
        assert!(run.write_lines(&vec![b'x'; 16 << 20]).is_err());
        read.set_nonblocking(true).unwrap();
        let mut held = Vec::new();
        assert!(read.read_to_end(&mut held).is_err() && held.len() > 6, "half of it is there");
        assert!(run.write_lines(b"more\n").is_err(), "there is room again, behind half a line");
        drop(run);
        held.clear();
        // A process that another test starts right now has the other end until it is another program.
        read.set_nonblocking(false).unwrap();
        assert_eq!(read.read_to_end(&mut held).unwrap(), 0);
    }

    #[test]
    fn half_a_line_is_taken_back() {
        let mut file = tempfile::tempfile().unwrap();
        let mut run = run_on(file.try_clone().unwrap());
        run.write_lines(b"whole\n").unwrap();
        // As a full disk leaves it.
        run.receipt.write_all(b"ha").unwrap();
        run.is_half = true;
        run.write_lines(b"more\n").unwrap();
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "whole\nmore\n");
    }
}
