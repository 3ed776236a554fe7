//! Landing a batch: the one place where names appear. A list of phases, not a tree of conditions.
//!
//! Must not know where contents come from; what is wanted stands in the jobs, how it is done in the disk.

use crate::disk::{Body, Disk, Fault, Fill, Job, OldKept, Placement, Side};
use crate::error::{Code, Op, Reason};
use crate::event::{WorkPart, WorkParts};
use crate::policy::{Durability, Verify};
use crate::receiver::created_names::TAKEN;
use crate::receiver::dest::DestDir;
use crate::receiver::resumable::{self, Want};
use crate::stage::{self, Home};
use fastcopy::dir::{Dir, Lock, Name, try_lock};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Seek};

/// From this many files on, one syncfs is cheaper than a flush for each (docs/decisions/0001-atomic-landing.md).
const SYNC_ALL_JOBS_MIN: usize = 5;

/// What a job's fault says when it was one sync for many that failed.
pub(crate) const SYNC_ALL: Op = Op::SyncTheFileSystemOf;

/// Lands `jobs` in `dest`. Every job ends with a fault and nothing left of it, or under its name (in a directory that
/// has a name or will get one). Returns whether names are owed a sync; `Err` when syncing a few of them failed.
/// `private`: the directory has no name yet, and what is landed has its own in it.
pub(crate) fn land<D: Disk>(
    disk: &D,
    hand: &mut D::Hand,
    dest: &DestDir<D>,
    jobs: &mut [Job<'_, D>],
    how: &Fill<'_>,
    private: bool,
) -> io::Result<bool> {
    let medium = how.durability == Durability::Medium && !private;
    let dir = &*dest.dir;
    let at = |part: fn(&WorkParts) -> &WorkPart| how.work.map(|work| part(work).begin());
    let copies = at(|work| &work.copying);
    let apart = dest.apart(disk, jobs);
    let turn = dest.turn_to_create();
    disk.stage(dir, apart.as_ref().map(|apart| &apart.dir), jobs, &dest.keep, how.waits);
    drop(turn);
    if private {
        told_taken(jobs);
    } else if dest.is_recorded() {
        told_folded(disk, dir, jobs);
    }
    disk.fill(hand, jobs, how);
    drop(copies);
    prove(disk, hand, jobs, how);
    let copies = at(|work| &work.copying);
    disk.seal(hand, dir, jobs, &dest.keep);
    drop(copies);
    // In a directory without a name nothing is promised yet: it is synced as a whole before it is published.
    let many = jobs.len() >= SYNC_ALL_JOBS_MIN;
    // The names of a few are made durable here; those of many, one by one too, wait for the one sync at the end.
    let is_one_of_many = |job: &Job<'_, D>| job.synced.is_some_and(|synced| synced.get().is_some());
    let waits = many || jobs.iter().all(is_one_of_many);
    let syncs = at(|work| &work.syncing);
    let synced = if medium { sync(disk, dir, jobs, many) } else { sync_replacing(disk, dir, jobs) };
    if let Some(work) = how.work {
        work.syncing.did(synced, 0);
    }
    drop(syncs);
    let copies = at(|work| &work.copying);
    commit(disk, dest, jobs);
    dest.root.apart.give_back(apart);
    drop(copies);
    let named = if medium && !waits { disk.sync_dir(dir) } else { Ok(()) };
    for job in jobs.iter_mut().filter(|j| j.fault.is_some()) {
        if is_left(dest, job) {
            job.file = None;
            continue;
        }
        if let Err(e) = disk.discard(dir, job) {
            // A half-done file under its own name must not be seen: the directory stays nameless.
            if matches!(job.place, Placement::Final) {
                dest.poison();
            }
            job.lost.push(Fault::os(Side::Dest, Op::RemoveUnfinished, e));
        }
    }
    named.map(|()| medium && waits)
}

/// Whether what was made for a job stays, half done as it is: the next run does not believe it, and by now its name may be that of a whole file
/// of another process, which must not be removed.
pub(crate) fn is_left<D: Disk>(dest: &DestDir<D>, job: &Job<'_, D>) -> bool {
    dest.is_recorded() && matches!(job.place, Placement::Final)
}

/// Reads back what landed, where that is wanted.
fn prove<D: Disk>(disk: &D, hand: &mut D::Hand, jobs: &mut [Job<'_, D>], how: &Fill<'_>) {
    let _proves = how.work.filter(|_| how.verify != Verify::Off).map(|work| work.verifying.begin());
    let observe = |bytes: u64| {
        if let Some(work) = how.work {
            work.verifying.did(0, bytes);
        }
        (how.observe)(0)
    };
    disk.verify(hand, jobs, &Fill { observe: &observe, ..*how });
    if let Some(work) = how.work.filter(|_| how.verify != Verify::Off) {
        let is_proved = |job: &&Job<'_, D>| job.fault.is_none() && job.hash.is_some();
        work.verifying.did(jobs.iter().filter(is_proved).count() as u64, 0);
    }
}

/// What became of a session.
pub(crate) struct ResumeStats {
    /// Bytes that were there already.
    pub(crate) resumed: u64,
    pub(crate) restarted: Option<Reason>,
    pub(crate) repaired: u64,
}

/// Lands one large file so that a crash costs at most a checkpoint. The job ends with a fault (and mostly with a
/// session to go on from) or under its name, on stable storage (R2, R3), without a session.
pub(crate) fn land_resumable<D: Disk>(
    disk: &D,
    hand: &mut D::Hand,
    dest: &DestDir<D>,
    job: &mut Job<'_, D>,
    want: &Want<'_>,
    verify: Verify,
) -> Option<ResumeStats> {
    let dir = &*dest.dir;
    let at = |part: fn(&WorkParts) -> &WorkPart| want.work.map(|work| part(work).begin());
    let copies = at(|work| &work.copying);
    let filled = resumable::fill(disk, dir, want);
    drop(copies);
    let filled = match filled {
        Ok(filled) => filled,
        Err(fault) => {
            job.fault = Some(fault);
            return None;
        }
    };
    let went =
        ResumeStats { resumed: filled.resumed, restarted: filled.restarted, repaired: filled.repaired };
    let proves = if verify == Verify::Off { None } else { at(|work| &work.verifying) };
    let proved = match verify {
        Verify::Off => Ok(()),
        // S8: every block is on stable storage since its record.
        Verify::Cached | Verify::Direct => resumable::read_back(disk, want, &filled),
    };
    // What could not be read back, or was not because of a stop, is recorded and proved by the next run; what differs is not.
    let stays = proved.as_ref().is_err_and(|fault| fault.code != Code::Mismatch);
    drop(proves);
    if let Some(work) = want.work.filter(|_| verify != Verify::Off && proved.is_ok()) {
        work.verifying.did(1, 0);
    }
    let (part, session_name) = (filled.part, filled.session_name);
    job.bytes = want.info.size;
    job.hash = filled.hash;
    job.fault = proved.err();
    job.file = Some(filled.file);
    job.place = Placement::Stage(part.clone());
    job.staged = true;
    let jobs = std::slice::from_mut(job);
    disk.seal(hand, dir, jobs, &dest.keep);
    let syncs = at(|work| &work.syncing);
    disk.sync(jobs);
    drop(syncs);
    if let Some(work) = want.work {
        work.syncing.did(1, 0);
    }
    if let (Some(_), Some(file)) = (want.leave, jobs.first().and_then(|job| job.file.as_ref())) {
        // What was written after the last checkpoint, or read since.
        disk.forget(file, 0, 0);
    }
    commit(disk, dest, jobs);
    let finished = if stays {
        Ok(())
    } else if job.fault.is_none() {
        // R3 before the session goes: without it, the next run would believe the final name.
        disk.sync_dir(dir)
            .and_then(|()| disk.remove_file(dir, session_name.as_name()))
            .map_err(|e| Fault::os(Side::Dest, Op::Finish, e))
    } else {
        resumable::abandon(disk, dir, part.as_name(), session_name.as_name())
    };
    job.staged = false;
    if let Err(fault) = finished {
        job.fault.get_or_insert(fault);
    }
    drop(filled.session);
    Some(went)
}

/// The final names. What this run has just put there from a source of another name is never replaced.
fn commit<D: Disk>(disk: &D, dest: &DestDir<D>, jobs: &mut [Job<'_, D>]) {
    let _turn = dest.turn_to_name(jobs);
    for job in jobs.iter_mut().filter(|j| j.fault.is_none()) {
        let named = if dest.is_fresh() {
            commit_fresh(disk, dest, job)
        } else if job.is_unlooked && !matches!(job.place, Placement::Final) {
            commit_unlooked(disk, dest, job)
        } else {
            commit_among(disk, dest, job)
        };
        if let Err(fault) = named {
            job.fault = Some(fault);
        }
    }
}

/// The final name of one job in a directory of this run's own: nothing was looked for, and no names are kept of its files.
fn commit_fresh<D: Disk>(disk: &D, dest: &DestDir<D>, job: &mut Job<'_, D>) -> Result<(), Fault> {
    let dir = &*dest.dir;
    let only_new = std::mem::replace(&mut job.only_new, true);
    disk.commit(dir, std::slice::from_mut(job));
    job.only_new = only_new;
    let again = |f: &Fault| matches!(errno_of(f), Some(errno::EEXIST | errno::EINVAL | errno::ENOSYS));
    if !job.staged || !job.fault.as_ref().is_some_and(again) {
        return Ok(());
    }
    // Something is there, or no rename here leaves alone what is, and there are no links: then a look must do. Staged
    // files come one after the other; a small one that is made between the two, on a disk without such renames that
    // folds names as well, is not seen.
    let _created = dest.created_names.lock();
    let stat = |e| Fault::os(Side::Dest, Op::Stat, e);
    if let Some(there) = disk.look(dir, job.name).map_err(stat)? {
        // Nothing was here before this run: what is spelled otherwise is of another source, and only what is spelled
        // alike may be another user's.
        if !disk.spells(dir, job.name).map_err(stat)? {
            return Err(taken());
        }
        if only_new {
            return Ok(());
        }
        // R9: what came meanwhile is replaced as well. Our file is closed by now.
        if there.kind == Kind::File {
            disk.sync_all(dir).map_err(|e| Fault::os(Side::Dest, Op::Sync, e))?;
        }
    }
    job.fault = None;
    job.only_new = false;
    disk.commit(dir, std::slice::from_mut(job));
    Ok(())
}

/// The final name of one job where nothing was looked for, as a listing of the directory did not have it. Whatever has
/// the name by now stays: what becomes of that was not decided yet ([`outdated`]).
fn commit_unlooked<D: Disk>(disk: &D, dest: &DestDir<D>, job: &mut Job<'_, D>) -> Result<(), Fault> {
    let Some(file) = &job.file else { return commit_among(disk, dest, job) };
    let (own, btime) = disk.file_identity(file).map_err(|e| Fault::os(Side::Dest, Op::Stat, e))?;
    // S15: known before it has its name, so that no other worker finds it there and takes it for another program's.
    let mut created = dest.created_names.lock();
    created.expect(&own, job.name, btime);
    // Names of one directory come one after the other in the kernel as well.
    let created = created.until_named();
    let only_new = std::mem::replace(&mut job.only_new, true);
    disk.commit(&dest.dir, std::slice::from_mut(job));
    job.only_new = only_new;
    match created {
        created if job.fault.is_some() => {
            created.unwrap_or_else(|| dest.created_names.lock()).forget(&own);
        }
        Some(mut created) => created.named(job.name),
        None => {}
    }
    Ok(())
}

/// Why what was planned by a listing could not land so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outdated {
    /// Something has the name by now.
    Taken,
    /// There are no files without a name, or they do not get one.
    NoUnnamed,
    /// No rename leaves alone what is there.
    NoNewNames,
}

/// The same of one job; `None` where another attempt would come to the same.
pub(crate) fn outdated<D: Disk>(job: &Job<'_, D>) -> Option<Outdated> {
    let fault = job.fault.as_ref().filter(|_| job.is_unlooked)?;
    match (fault.op, &job.place, errno_of(fault)?) {
        (Op::RenameIntoPlace, _, errno::EEXIST) | (Op::Create, Placement::Final, errno::EEXIST) => {
            Some(Outdated::Taken)
        }
        (Op::Create | Op::RenameIntoPlace, Placement::Unnamed, _) => {
            let lasts = matches!(fault.code, Code::NoSpace | Code::Limit | Code::ReadOnly);
            (!lasts).then_some(Outdated::NoUnnamed)
        }
        (Op::RenameIntoPlace, _, errno::EINVAL | errno::ENOSYS) => Some(Outdated::NoNewNames),
        _ => None,
    }
}

/// The final name of one job in a directory where there may be anything.
fn commit_among<D: Disk>(disk: &D, dest: &DestDir<D>, job: &mut Job<'_, D>) -> Result<(), Fault> {
    let dir = &*dest.dir;
    let Placement::Stage(stage) = &job.place else {
        disk.commit(dir, std::slice::from_mut(job));
        return Ok(());
    };
    let stat = |e| Fault::os(Side::Dest, Op::Stat, e);
    let (own, btime) = match &job.file {
        Some(file) => disk.file_identity(file).map(|(own, btime)| (Some(own), btime)).map_err(stat)?,
        None => {
            (disk.look(dir, stage.as_name()).map_err(stat)?, disk.btime(dir, stage.as_name()).map_err(stat)?)
        }
    };
    let mut created = dest.created_names.lock();
    if let Some(there) = disk.look(dir, job.name).map_err(stat)? {
        if created.is_taken(&there, job.name, || disk.btime(dir, job.name), disk.lists(dir)) {
            return Err(taken());
        }
        // Only what is kept elsewhere is replaced.
        if job.old != OldKept::Unasked && job.there.is_none_or(|kept| kept.id() != there.id()) {
            return Err(Fault::ours(Side::Dest, Op::Replace, Code::Refused, Reason::BecameAnother));
        }
        // R9: what came meanwhile is replaced as well.
        if !job.only_new && there.kind == Kind::File && !job.there.is_some_and(|t| t.kind == Kind::File) {
            sync_content(disk, dir, job).map_err(|e| Fault::os(Side::Dest, Op::Sync, e))?;
        }
    }
    disk.commit(dir, std::slice::from_mut(job));
    // A second name of what landed before is known by its first.
    let is_second = |own: &Info| matches!(job.body, Body::HardLink(..)) && created.has(own, || Ok(btime));
    if let Some(own) = own.filter(|_| job.fault.is_none() && !job.of_old) {
        if !is_second(&own) {
            created.expect(&own, job.name, btime);
        }
        created.named(job.name);
    }
    Ok(())
}

pub(crate) fn errno_of(fault: &Fault) -> Option<i32> {
    fault.source.as_ref().and_then(io::Error::raw_os_error)
}

fn taken() -> Fault {
    Fault::ours(Side::Dest, Op::Replace, Code::Refused, TAKEN)
}

/// In a directory of this run's own, a name that is taken is one of another source.
fn told_taken<D: Disk>(jobs: &mut [Job<'_, D>]) {
    for fault in jobs.iter_mut().filter_map(|j| j.fault.as_mut()) {
        if fault.side == Side::Dest && errno_of(fault) == Some(errno::EEXIST) {
            *fault = taken();
        }
    }
}

/// In a directory that several processes fill, a name that is taken is what another run of the same work has made, unless it is
/// spelled otherwise: then it is one of another source (S15).
fn told_folded<D: Disk>(disk: &D, dir: &D::Dir, jobs: &mut [Job<'_, D>]) {
    let is_taken = |job: &Job<'_, D>| {
        let fault = job.fault.as_ref().filter(|_| matches!(job.place, Placement::Final));
        fault.is_some_and(|fault| errno_of(fault) == Some(errno::EEXIST))
    };
    let there = {
        let wanted: HashSet<Name<'_>> = jobs.iter().filter(|job| is_taken(job)).map(|job| job.name).collect();
        if wanted.is_empty() {
            return;
        }
        disk.find(dir, usize::MAX, &|name| wanted.contains(&name))
    };
    // Where it cannot be listed, each is looked at once more.
    let Ok(there) = there else { return };
    for job in jobs.iter_mut().filter(|job| is_taken(job)) {
        if !there.iter().any(|name| name.as_name() == job.name) {
            job.fault = Some(taken());
        }
    }
}

/// What leftovers in a directory are known by.
pub(crate) fn home_of(dir: &Dir) -> io::Result<Home> {
    Ok(Home::of(&dir.info()?, dir.own_birth()?, dir.keeps_identities()?))
}

/// Whether something called `name` in `dir` would be taken for what a killed run left there.
pub(crate) fn is_reserved(dir: &Dir, name: Name<'_>) -> io::Result<bool> {
    Ok(stage::is_alike(name) && home_of(dir)?.role(name).is_some())
}

/// Gives `name` of one directory its new name in another: a move that stays on its file system. A file that replaces another
/// is on stable storage before (R9).
pub(crate) fn give_name(
    from: &Dir,
    name: Name<'_>,
    to_dir: &Dir,
    to: Name<'_>,
    only_new: bool,
) -> io::Result<()> {
    if only_new {
        return from.rename_new(name, to_dir, to);
    }
    let is_file =
        |dir: &Dir, name| dir.look(name).map(|info| info.is_some_and(|info| info.kind == Kind::File));
    if is_file(to_dir, to)? && is_file(from, name)? {
        from.sync_file(name)?;
    }
    from.rename(name, to_dir, to)
}

/// Gives what is called `name` in one directory a further name in another.
pub(crate) fn second_name(from: &Dir, name: Name<'_>, to_dir: &Dir, to: Name<'_>) -> io::Result<()> {
    from.hard_link(name, to_dir, to)
}

/// Gives what is called `name` in one directory a name in another that something has, which goes by a rename: at any time the name
/// has one or the other. `stage`: a free name there, for a moment. The inner error is of taking that away again.
pub(crate) fn replace_by_link(
    (from, name): (&Dir, Name<'_>),
    (to_dir, to): (&Dir, Name<'_>),
    stage: Name<'_>,
) -> io::Result<io::Result<()>> {
    second_name(from, name, to_dir, stage)?;
    let named = give_name(to_dir, stage, to_dir, to, false);
    // Where another process has given the name to the same file meanwhile, the rename leaves both (rename(2)).
    let left = match to_dir.remove_file(stage) {
        Err(e) if e.raw_os_error() == Some(errno::ENOENT) => Ok(()),
        left => left,
    };
    named.map(|()| left)
}

/// Makes a directory under its own name, for things that are each put into it whole. Returns whether it was made; one
/// that was there already does as well.
pub(crate) fn ensure_dir(dir: &Dir, name: Name<'_>, mode: u32) -> io::Result<bool> {
    match dir.make_dir(name, mode) {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(errno::EEXIST) => Ok(false),
        Err(e) => Err(e),
    }
}

/// A new file beside what a person named, to be given its name with [`give_name`].
pub(crate) fn new_file(dir: &Dir, name: Name<'_>, mode: u32) -> io::Result<std::os::fd::OwnedFd> {
    dir.create_file(name, mode)
}

/// A file in the file system of `dir` that no walk finds, and that goes with its descriptor.
pub(crate) fn scratch(dir: &Dir, mode: u32) -> io::Result<File> {
    if let Ok(file) = dir.unnamed(mode) {
        return Ok(File::from(file));
    }
    // A file system without such files: made and removed at once.
    let name = stage::random().ok_or(io::ErrorKind::InvalidInput)?;
    let file = new_file(dir, name.as_name(), mode)?;
    dir.remove_file(name.as_name())?;
    Ok(File::from(file))
}

/// Gives what was written into a file of [`scratch`] a name in `dir` that is free, to be given its own with [`give_name`].
pub(crate) fn name_scratch(dir: &Dir, mut file: File, name: Name<'_>, mode: u32) -> io::Result<File> {
    // Another run that finds the name leaves it while its file is locked.
    let lock = |file: &File| match try_lock(file) {
        Lock::Busy => Err(io::Error::from(io::ErrorKind::ResourceBusy)),
        Lock::Held | Lock::Unsupported => Ok(()),
    };
    lock(&file)?;
    match dir.name_unnamed(&file, name) {
        // It had a name, and can have none again.
        Err(e) if e.raw_os_error() == Some(errno::ENOENT) => {}
        named => return named.map(|()| file),
    }
    let mut named = File::from(new_file(dir, name, mode)?);
    lock(&named)?;
    file.rewind()?;
    io::copy(&mut file, &mut named)?;
    Ok(named)
}

/// R9: what takes the place of a file is on stable storage before it has the name. New names wait for the kernel, as with
/// cp; but where there was something, a power cut must not leave nothing.
///
/// Returns for how many files that was done.
fn sync_replacing<D: Disk>(disk: &D, dir: &D::Dir, jobs: &mut [Job<'_, D>]) -> u64 {
    let replaces = |j: &Job<'_, D>| {
        let over_file = j.there.is_some_and(|t| t.kind == Kind::File);
        j.fault.is_none() && over_file && matches!(j.place, Placement::Stage(_)) && has_content(j)
    };
    let count = jobs.iter().filter(|j| replaces(j)).count();
    if count >= SYNC_ALL_JOBS_MIN {
        return sync(disk, dir, jobs, true);
    }
    for job in jobs.iter_mut().filter(|j| replaces(j)) {
        if let Err(e) = sync_content(disk, dir, job) {
            job.fault = Some(Fault::os(Side::Dest, Op::Sync, e));
        }
    }
    count as u64
}

/// Whether a job is a further name of a file, of which nothing is open.
fn is_linked<D: Disk>(job: &Job<'_, D>) -> bool {
    job.file.is_none() && matches!(job.body, Body::HardLink(..)) && job.info.kind == Kind::File
}

/// Whether there is content that a job's name will have.
fn has_content<D: Disk>(job: &Job<'_, D>) -> bool {
    job.file.is_some() || is_linked(job)
}

/// The content that a job's name will have, onto stable storage.
pub(crate) fn sync_content<D: Disk>(disk: &D, dir: &D::Dir, job: &Job<'_, D>) -> io::Result<()> {
    match &job.file {
        Some(file) => disk.sync_data(file),
        None if is_linked(job) => sync_linked(disk, dir, job),
        None => Ok(()),
    }
}

/// The content of a further name, unless that very inode was synced for another one.
fn sync_linked<D: Disk>(disk: &D, dir: &D::Dir, job: &Job<'_, D>) -> io::Result<()> {
    let name = job.name_now();
    let Some(synced) = job.synced else { return disk.sync_named(dir, name) };
    let Some(id) = disk.look(dir, name)?.map(|info| info.id()) else { return disk.sync_named(dir, name) };
    if synced.get() == Some(&id) {
        return Ok(());
    }
    disk.sync_named(dir, name)?;
    synced.get_or_init(|| id);
    Ok(())
}

/// Returns for how many files it was done.
fn sync<D: Disk>(disk: &D, dir: &D::Dir, jobs: &mut [Job<'_, D>], many: bool) -> u64 {
    let count = jobs.iter().filter(|job| job.fault.is_none() && has_content(job)).count() as u64;
    if !many {
        disk.sync(jobs);
        // The first name may lie where nothing is synced before it is published.
        for job in jobs.iter_mut().filter(|job| job.fault.is_none() && is_linked(job)) {
            if let Err(e) = sync_linked(disk, dir, job) {
                job.fault = Some(Fault::os(Side::Dest, Op::Sync, e));
            }
        }
        return count;
    }
    if let Err(e) = disk.sync_all(dir) {
        // What failed to reach stable storage once is thrown away, never tried again.
        let code = Code::of(&e);
        for job in jobs.iter_mut().filter(|j| j.fault.is_none()) {
            let source = e.raw_os_error().map(io::Error::from_raw_os_error);
            job.fault = Some(Fault { side: Side::Dest, op: SYNC_ALL, code, note: None, source });
        }
    }
    count
}
