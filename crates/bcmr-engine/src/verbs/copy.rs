//! `copy`: both halves in one process. The walk of the sender feeds batches to the receiver's landing.
//!
//! Must not know how a phase is carried out (that is the disk's) nor what anything is called on a terminal.
//!
//! Order and bounds: workers take whole directories, newest first, so that few are open at a time; a directory's small
//! files are landed in batches while it is listed, large ones as tasks of their own. A directory is published once its
//! small files are in it, and sealed (mode, owner, times) once everything below it is done.

use crate::disk::sys::{Hand, Sys};
use crate::disk::{Body, Disk, Fault, Fill, Job, Place, Side};
use crate::error::{Code, Error, Result};
use crate::event::{Action, Event, Question, Summary, Watch};
use crate::node::Node;
use crate::policy::{
    Collide, CopyPolicy, CopyRequest, Durability, Follow, Landing, Resume, Sparse, Strictness, Target, Verify,
};
use crate::pool::{Hands, Pool};
use crate::receiver::dest::DestDir;
use crate::receiver::land::{ensure_dir, land, land_resumable};
use crate::receiver::links::{Claim, Landed, Links};
use crate::receiver::plan::{Verdict, decide, same};
use crate::receiver::resumable::{self, Holes, Want};
use crate::receiver::stage;
use crate::sender::filter::Filter;
use crate::sender::walk::{SourceDir, kind_of};
use crate::tally::Tally;
use crate::verbs::ledger::Ledger;
use crate::verbs::manifest::Manifest;
use crate::verbs::operands::{self, Dest, DestLink, Operand, Source, Where};
use crate::verbs::tree;
use fastcopy::dir::{ListBuffer, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Names handed to another worker at once.
const BATCH_NAMES: usize = 64;
/// Names that are sorted before they are read.
const SORTED_NAMES: usize = 2048;
/// Files open at a time while a batch lands.
const BATCH_JOBS: usize = 16;
/// The same where names must be durable: one flush serves them all.
const BATCH_JOBS_DURABLE: usize = 256;
/// From this size (bytes) on a file is a task of its own, staged by itself: a killed run loses at most what small
/// files of directories under way it had.
const BIG_BYTES: u64 = 4 << 20;
/// Directories that wait for one common sync before they are published (`--sync`).
const GROUP_DIRS: usize = 64;
/// Names of a list that are under way at a time.
const LIST_CHUNK: usize = 4096;

/// A source directory and the directory it becomes.
pub(crate) struct DirPair {
    pub(crate) src: Arc<SourceDir>,
    pub(crate) dst: DestDir<Sys>,
    above: Option<Arc<DirPair>>,
    /// What is still to be put in before it gets its name.
    small: AtomicUsize,
    /// What is still to be done before it is sealed.
    pending: AtomicUsize,
    /// Sealed and counted in the end; an operand's surroundings are not.
    ours: bool,
    /// Something in it stays behind (excluded, skipped, failed): a move must not remove it.
    kept_some: AtomicBool,
    /// The device of the operand, for `-x`.
    dev: u64,
}

/// Names of one directory, one after the other in one buffer.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    items: Vec<Listed>,
}

/// Where a name begins in the buffer, and what the listing said of it.
#[derive(Clone, Copy)]
struct Listed {
    at: usize,
    kind: Kind,
    ino: u64,
}

impl Names {
    fn push(&mut self, name: Name<'_>, kind: Kind, ino: u64) {
        self.items.push(Listed { at: self.bytes.len(), kind, ino });
        self.bytes.extend_from_slice(name.c_str().to_bytes_with_nul());
    }
    fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
    }
    /// In the order of their inodes: on a cold disk they are then read from front to back, where a hashed directory
    /// (ext4) lists them in no order at all.
    fn sort(&mut self) {
        self.items.sort_unstable_by_key(|item| item.ino);
    }
    fn iter(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = (Name<'_>, Kind)> {
        self.items.get(range).unwrap_or_default().iter().filter_map(|item| {
            let name = CStr::from_bytes_until_nul(self.bytes.get(item.at..)?).ok()?;
            Some((Name::new(name)?, item.kind))
        })
    }
    /// Some of them, for another worker.
    fn part(&self, range: std::ops::Range<usize>) -> Names {
        let mut part = Names::default();
        for (name, kind) in self.iter(range) {
            part.push(name, kind, 0);
        }
        part
    }
}

enum Task {
    /// Go into a directory and copy what is in it.
    Dir { pair: Arc<DirPair>, name: NameBuf, to: NameBuf, operand: Option<PathBuf>, follow: bool },
    /// A pair of directories that are both open.
    Open { pair: Arc<DirPair> },
    /// Small entries of one directory.
    Files { pair: Arc<DirPair>, names: Names },
    /// One entry by itself: large, or an operand.
    One { pair: Arc<DirPair>, name: NameBuf, to: NameBuf, kind: Kind, follow: bool },
    /// A second name of something another worker is landing.
    Second { pair: Arc<DirPair>, name: NameBuf, to: NameBuf, info: Info },
}

struct Worker {
    hand: Hand,
    list: ListBuffer,
}

/// One run of the verb.
pub(crate) struct Run<'a> {
    pub(crate) disk: &'a Sys,
    policy: &'a CopyPolicy,
    filter: Filter,
    pub(crate) tally: Tally<'a>,
    links: Links<Sys>,
    /// A move removes what landed.
    ledger: Option<Ledger>,
    /// Directories that wait for a sync before they are published.
    group: Mutex<Vec<Arc<DirPair>>>,
    /// Names were made that only a sync of the file system makes durable.
    owed: AtomicBool,
    /// Top directories made by this run: met again as a source, they would be copied into themselves.
    made: Mutex<Vec<(u64, u64)>>,
    /// Directories marked as unfinished (`-C -r`).
    marked: Mutex<Vec<(Arc<fastcopy::dir::Dir>, Arc<Node>)>>,
    /// Where hashes go.
    manifest: Option<Manifest>,
    /// Entries whose owner could not be kept; told once, not a thousand times.
    owners_lost: AtomicUsize,
}

/// What became of one entry that was looked at.
#[allow(clippy::large_enum_variant)] // lives for one call; a box would be an allocation per file
enum Prepared<'n> {
    Job(Job<'n, Sys>),
    /// Done, deferred, kept or failed: nothing to land here.
    Nothing,
    /// Out of descriptors: land what is open first.
    Later(Error),
}

/// How an entry is being landed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In a batch, counted before its directory gets a name.
    Small,
    /// By itself.
    Alone,
}

/// Copies.
///
/// # Errors
/// Only when nothing could be begun (a pattern that does not parse, a target that cannot be opened); what happens to
/// single items is told through `watch` and counted in the [`Summary`].
pub fn copy(request: CopyRequest, watch: Watch<'_>) -> Result<Summary> {
    if request.policy.dry_run {
        return crate::verbs::survey::dry_run(request, watch);
    }
    let disk = Sys::new();
    let policy = resuming(request.policy);
    let mut run = Run::new(&disk, &policy, watch, None)?;
    let manifest = request.manifest.as_deref();
    match request.names {
        None => {
            let target = tree::same_target(&request.sources, request.target, &policy)?;
            let to = operands::target(&target, request.sources.len())?;
            let base = match &to {
                Where::Into(place) | Where::Whole(place) => place.node.path(),
                // A directory that a link leads to.
                Where::Name { dir, name, slash: true } => {
                    let (dir, name) = operands::through(dir, name)?;
                    dir.node.join(name.as_name())
                }
                Where::Name { dir, name, .. } => dir.node.join(name.as_name()),
            };
            run.manifest = manifest.map(|file| Manifest::begin(file, base)).transpose()?;
            run.operands(&request.sources, &to);
            let place = to.place();
            run.sync_names(&place.dir, &place.node);
        }
        Some(mut list) => {
            let [base] = request.sources.as_slice() else {
                let note = "a list of names needs exactly one source directory";
                return Err(Error::ours(Code::Usage, "copy", request.target.path(), note));
            };
            let to = request.target.path().clone();
            run.manifest = manifest.map(|file| Manifest::begin(file, to)).transpose()?;
            run.list(base, &request.target, &mut *list.reader, list.separator)?;
        }
    }
    Ok(run.end())
}

/// What going on where a run stopped needs of the rest: what is there and complete must be known again (size and mtime,
/// so times are kept), and a name must mean that its content is on the medium (R2).
fn resuming(policy: CopyPolicy) -> CopyPolicy {
    if !policy.resume.has_sessions() {
        return policy;
    }
    let collide = if policy.collide == Collide::Replace { Collide::IfDifferent } else { policy.collide };
    let preserve = crate::policy::Preserve { times: true, ..policy.preserve };
    CopyPolicy { collide, preserve, durability: Durability::Medium, ..policy }
}

/// The operands of a request, resolved and guarded; what is wrong with one is told and the others remain.
pub(crate) fn resolve(
    sources: &[PathBuf],
    to: &Where,
    policy: &CopyPolicy,
    verb: &'static str,
    links: DestLink,
    tally: &Tally<'_>,
) -> Vec<Operand> {
    let mut operands: Vec<Operand> = Vec::new();
    for path in sources {
        let resolved = operands::source(path, policy.follow).and_then(|source| {
            let operand = operands::pair(path, source, to, links)?;
            if operand.info().kind == Kind::Dir && !policy.recursive {
                return Err(Error::ours(Code::IsDirectory, verb, path, "it is a directory"));
            }
            if let Some(twin) = operands::clash(&operands, &operand)
                && operand.info().kind != Kind::Dir
            {
                let why = format!("an earlier source already becomes '{}'", crate::node::os(twin).display());
                return Err(Error::ours(Code::Refused, verb, path, why));
            }
            operands::guard_nesting(&operand, verb)?;
            Ok(operand)
        });
        match resolved {
            Ok(operand) => operands.push(operand),
            Err(e) => tally.fail(e),
        }
    }
    operands
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        disk: &'a Sys,
        policy: &'a CopyPolicy,
        watch: Watch<'a>,
        ledger: Option<Ledger>,
    ) -> Result<Run<'a>> {
        Ok(Run {
            disk,
            policy,
            filter: Filter::new(&policy.filter)?,
            tally: Tally::new(watch),
            links: Links::new(),
            ledger,
            group: Mutex::new(Vec::new()),
            owed: AtomicBool::new(false),
            made: Mutex::new(Vec::new()),
            marked: Mutex::new(Vec::new()),
            manifest: None,
            owners_lost: AtomicUsize::new(0),
        })
    }

    fn worker(&self) -> Worker {
        Worker { hand: self.disk.hand(), list: ListBuffer::new() }
    }

    fn work(&self, tasks: Vec<Task>) {
        let pool = Pool::new(self.policy.jobs);
        // The first operand first.
        for task in tasks.into_iter().rev() {
            pool.push(task);
        }
        pool.run(|| self.worker(), |hands, worker, task| self.step(hands, worker, task));
        self.publish_group(&mut self.worker());
    }

    /// Copies resolved operands. Two that become the same directory are merged one after the other.
    pub(crate) fn operands(&self, sources: &[PathBuf], to: &Where) {
        let mut rest = resolve(sources, to, self.policy, "copy", DestLink::Through, &self.tally);
        while !rest.is_empty() {
            let mut round: Vec<Operand> = Vec::new();
            let mut next = Vec::new();
            for operand in rest {
                if operands::clash(&round, &operand).is_some() {
                    next.push(operand);
                } else {
                    round.push(operand);
                }
            }
            self.round(round);
            rest = next;
        }
    }

    /// Copies operands that have nothing to do with each other.
    pub(crate) fn round(&self, operands: Vec<Operand>) {
        let mut places: Vec<(Arc<operands::Place>, Arc<DirPair>)> = Vec::new();
        let mut tasks = Vec::new();
        for operand in operands {
            match self.task(&operand, &mut places) {
                Ok(Some(task)) => tasks.push(task),
                Ok(None) => {}
                Err(e) => self.tally.fail(e),
            }
        }
        self.work(tasks);
    }

    /// What is to be done for one operand. `places` keeps one open destination for operands that share it.
    fn task(
        &self,
        operand: &Operand,
        places: &mut Vec<(Arc<operands::Place>, Arc<DirPair>)>,
    ) -> Result<Option<Task>> {
        let open = |place: &operands::Place| -> Result<DestDir<Sys>> {
            let dir = place.dir.try_clone().map_err(|e| Error::os("open", place.node.path(), e))?;
            DestDir::existing(self.disk, dir, place.node.clone(), None, self.policy)
        };
        let info = operand.info();
        let pair = |src: &Arc<SourceDir>, dst: DestDir<Sys>, ours: bool| {
            Arc::new(DirPair {
                src: src.clone(),
                dst,
                above: None,
                small: AtomicUsize::new(1),
                pending: AtomicUsize::new(1),
                ours,
                kept_some: AtomicBool::new(false),
                dev: info.dev,
            })
        };
        match (&operand.source, &operand.dest) {
            (Source::Whole(src), Dest::Whole(place)) => {
                self.remember(place.dir.info().map_err(|e| Error::os("stat", place.node.path(), e))?.id());
                let src = src.with_ignores(&self.filter)?;
                Ok(Some(Task::Open { pair: pair(&src, open(place)?, true) }))
            }
            (Source::Whole(src), Dest::Named { dir, name }) => {
                let src = &src.with_ignores(&self.filter)?;
                let above = pair(src, open(dir)?, false);
                let dst = above.dst.enter(self.disk, name.as_name(), self.policy)?;
                self.remember(dst.info.id());
                let inner = DirPair { above: Some(above), ..self.plain_pair(src, dst, info.dev) };
                Ok(Some(Task::Open { pair: Arc::new(inner) }))
            }
            (Source::Named { dir, name, info, follow }, Dest::Named { dir: place, name: to }) => {
                if info.kind != Kind::Dir
                    && !self.filter.is_empty()
                    && dir.excludes(name.as_name(), false, &self.filter)
                {
                    self.tally.item(Action::Excluded, 0, || (operand.path.clone(), PathBuf::new()));
                    return Ok(None);
                }
                let known =
                    places.iter().find(|(p, pair)| Arc::ptr_eq(p, place) && Arc::ptr_eq(&pair.src, dir));
                let above = match known {
                    Some((_, pair)) => pair.clone(),
                    None => {
                        // Operands of one command mostly go to one place: its lock is held once, so it is opened once.
                        let shared = places.iter().find(|(p, _)| Arc::ptr_eq(p, place));
                        let dst = match shared {
                            Some((_, pair)) => pair.dst.share(),
                            None => open(place)?,
                        };
                        let made = pair(dir, dst, false);
                        places.push((place.clone(), made.clone()));
                        made
                    }
                };
                above.pending.fetch_add(1, Ordering::Relaxed);
                let (name, to, follow) = (name.clone(), to.clone(), *follow);
                Ok(Some(if info.kind == Kind::Dir {
                    Task::Dir { pair: above, name, to, operand: Some(operand.path.clone()), follow }
                } else {
                    Task::One { pair: above, name, to, kind: info.kind, follow }
                }))
            }
            (Source::Named { .. }, Dest::Whole(place)) => {
                Err(Error::ours(Code::InTheWay, "copy to", place.node.path(), "it is a directory"))
            }
        }
    }

    fn plain_pair(&self, src: &Arc<SourceDir>, dst: DestDir<Sys>, dev: u64) -> DirPair {
        DirPair {
            src: src.clone(),
            dst,
            above: None,
            small: AtomicUsize::new(1),
            pending: AtomicUsize::new(1),
            ours: true,
            kept_some: AtomicBool::new(false),
            dev,
        }
    }

    fn remember(&self, id: (u64, u64)) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    fn was_made(&self, id: (u64, u64)) -> bool {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    fn step(&self, hands: &Hands<'_, Task>, worker: &mut Worker, task: Task) {
        let stop = self.tally.cancelled();
        match task {
            Task::Open { pair } => {
                if !stop {
                    self.list_dir(hands, worker, &pair);
                }
                self.filled(worker, &pair);
                self.release(worker, pair);
            }
            Task::Dir { pair, name, to, operand, follow } => {
                if !stop {
                    self.enter(hands, worker, &pair, name.as_name(), to.as_name(), operand, follow);
                } else {
                    pair.keep_some();
                }
                self.release(worker, pair);
            }
            Task::Files { pair, names } => {
                if !stop {
                    self.batch(hands, &mut worker.hand, &pair, &names, 0..names.items.len());
                } else {
                    pair.keep_some();
                }
                self.filled(worker, &pair);
                self.release(worker, pair);
            }
            Task::One { pair, name, to, kind, follow } => {
                if !stop {
                    self.one(hands, worker, &pair, name.as_name(), to.as_name(), kind, follow);
                } else {
                    pair.keep_some();
                }
                self.release(worker, pair);
            }
            Task::Second { pair, name, to, info } => {
                if !stop {
                    self.second_waiting(hands, worker, &pair, name.as_name(), to.as_name(), &info);
                } else {
                    pair.keep_some();
                }
                self.release(worker, pair);
            }
        }
    }

    /// Goes into `name` of `pair`'s source and makes `to` of it.
    #[allow(clippy::too_many_arguments)] // the two names differ for operands only
    fn enter(
        &self,
        hands: &Hands<'_, Task>,
        worker: &mut Worker,
        pair: &Arc<DirPair>,
        name: Name<'_>,
        to: Name<'_>,
        operand: Option<PathBuf>,
        follow: bool,
    ) {
        let top = operand.is_some();
        let node = operand.map_or_else(|| pair.src.node.below(name), |path| Node::root(&path));
        let entered = pair.src.enter(name, node, follow, &self.filter).and_then(|src| {
            if self.policy.follow == Follow::Always && src.is_own_ancestor() {
                let note = "symbolic links lead in a circle here";
                return Err(Error::ours(Code::Link, "enter", src.node.path(), note));
            }
            if self.was_made(src.info.id()) {
                let note = "this is what the copy itself makes";
                return Err(Error::ours(Code::Refused, "copy", src.node.path(), note));
            }
            let dst = pair.dst.enter(self.disk, to, self.policy)?;
            Ok((src, dst))
        });
        let (src, dst) = match entered {
            Ok(both) => both,
            Err(e) => {
                pair.keep_some();
                return self.tally.fail(e);
            }
        };
        if top {
            self.remember(dst.info.id());
            if self.policy.resume.has_sessions()
                && let Err(e) = self.mark(&src, &dst)
            {
                self.tally.fail(e);
            }
        }
        pair.pending.fetch_add(1, Ordering::Relaxed);
        let dev = if top { src.info.dev } else { pair.dev };
        let child = Arc::new(DirPair { above: Some(pair.clone()), ..self.plain_pair(&src, dst, dev) });
        if self.policy.one_file_system && src.info.dev != dev {
            child.keep_some(); // made, not entered
        } else {
            self.list_dir(hands, worker, &child);
        }
        self.filled(worker, &child);
        self.release(worker, child);
    }

    /// Lists a source directory: directories become tasks, everything else is landed in batches on the way.
    fn list_dir(&self, hands: &Hands<'_, Task>, worker: &mut Worker, pair: &Arc<DirPair>) {
        let Worker { hand, list } = worker;
        let mut names = Names::default();
        let mut dirs: Vec<NameBuf> = Vec::new();
        let listed = pair.src.dir.list(list, |entry| {
            if self.tally.cancelled() {
                pair.keep_some();
                return false;
            }
            let kind = match kind_of(&pair.src, entry.name, entry.kind, self.policy.follow) {
                Ok(kind) => kind,
                Err(e) => {
                    pair.keep_some();
                    self.tally.fail(e);
                    return true;
                }
            };
            if pair.src.excludes(entry.name, kind == Kind::Dir, &self.filter) {
                pair.keep_some();
                self.tally.item(Action::Excluded, 0, || (pair.src.node.join(entry.name), PathBuf::new()));
                return true;
            }
            if kind == Kind::Dir {
                dirs.push(entry.name.to_owned());
                return true;
            }
            names.push(entry.name, kind, entry.ino);
            if names.items.len() >= SORTED_NAMES {
                self.spread(hands, hand, pair, &mut names);
            }
            true
        });
        if let Err(e) = listed {
            pair.keep_some();
            self.tally.fail(Error::os("list directory", pair.src.node.path(), e));
        }
        let follow = self.policy.follow == Follow::Always;
        pair.pending.fetch_add(dirs.len(), Ordering::Relaxed);
        hands.push_all(dirs.into_iter().rev().map(|name| Task::Dir {
            pair: pair.clone(),
            to: name.clone(),
            name,
            operand: None,
            follow,
        }));
        self.spread(hands, hand, pair, &mut names);
    }

    /// Lands what was listed, batch by batch, and hands batches to whoever has nothing to do. Leaves `names` empty.
    fn spread(&self, hands: &Hands<'_, Task>, hand: &mut Hand, pair: &Arc<DirPair>, names: &mut Names) {
        names.sort();
        let step = BATCH_NAMES.max(self.room(pair));
        let mut start = 0;
        while start < names.items.len() {
            let end = (start + step).min(names.items.len());
            if end < names.items.len() && hands.hungry() {
                pair.small.fetch_add(1, Ordering::Relaxed);
                pair.pending.fetch_add(1, Ordering::Relaxed);
                hands.push(Task::Files { pair: pair.clone(), names: names.part(start..end) });
            } else {
                self.batch(hands, hand, pair, names, start..end);
            }
            start = end;
        }
        names.clear();
    }

    /// Files that are open at a time while a batch lands in `pair`.
    fn room(&self, pair: &DirPair) -> usize {
        // Where names are replaced, or must be durable, one flush serves a whole batch.
        if pair.dst.is_private() { BATCH_JOBS } else { BATCH_JOBS_DURABLE }
    }

    /// Lands small entries of one directory.
    fn batch(
        &self,
        hands: &Hands<'_, Task>,
        hand: &mut Hand,
        pair: &Arc<DirPair>,
        names: &Names,
        range: std::ops::Range<usize>,
    ) {
        let follow = self.policy.follow == Follow::Always;
        let room = self.room(pair);
        let mut jobs = Vec::with_capacity(room.min(range.len()));
        for (name, kind) in names.iter(range) {
            if self.tally.cancelled() {
                pair.keep_some();
                break;
            }
            let mut prepared = self.prepare(hands, pair, name, name, kind, follow, Way::Small);
            if let (Prepared::Later(_), false) = (&prepared, jobs.is_empty()) {
                self.land(hands, hand, pair, &mut jobs, Way::Small, true);
                prepared = self.prepare(hands, pair, name, name, kind, follow, Way::Small);
            }
            match prepared {
                Prepared::Job(job) => jobs.push(job),
                Prepared::Nothing => {}
                Prepared::Later(e) => {
                    pair.keep_some();
                    self.tally.fail(e);
                }
            }
            if jobs.len() >= room {
                self.land(hands, hand, pair, &mut jobs, Way::Small, true);
            }
        }
        self.land(hands, hand, pair, &mut jobs, Way::Small, true);
    }

    /// Lands one entry by itself.
    #[allow(clippy::too_many_arguments)] // the two names differ for operands only
    fn one(
        &self,
        hands: &Hands<'_, Task>,
        worker: &mut Worker,
        pair: &Arc<DirPair>,
        name: Name<'_>,
        to: Name<'_>,
        kind: Kind,
        follow: bool,
    ) {
        match self.prepare(hands, pair, name, to, kind, follow, Way::Alone) {
            Prepared::Job(job) => self.land(hands, &mut worker.hand, pair, &mut vec![job], Way::Alone, true),
            Prepared::Nothing => {}
            Prepared::Later(e) => {
                pair.keep_some();
                self.tally.fail(e);
            }
        }
    }

    /// Looks at one entry on both sides and says what is to be landed.
    #[allow(clippy::too_many_arguments)] // the two names differ for operands only
    fn prepare<'n>(
        &self,
        hands: &Hands<'_, Task>,
        pair: &'n Arc<DirPair>,
        name: Name<'n>,
        to: Name<'n>,
        kind: Kind,
        follow: bool,
        way: Way,
    ) -> Prepared<'n> {
        match self.try_prepare(hands, pair, name, to, kind, follow, way) {
            Ok(Some(job)) => Prepared::Job(job),
            Ok(None) => Prepared::Nothing,
            Err(e) if e.code == Code::Limit => Prepared::Later(e),
            Err(e) => {
                pair.keep_some();
                self.tally.fail(e);
                Prepared::Nothing
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // as above
    fn try_prepare<'n>(
        &self,
        hands: &Hands<'_, Task>,
        pair: &'n Arc<DirPair>,
        name: Name<'n>,
        to: Name<'n>,
        kind: Kind,
        follow: bool,
        way: Way,
    ) -> Result<Option<Job<'n, Sys>>> {
        let src = &pair.src;
        let (body, info) = match kind {
            Kind::File => {
                let (fd, info) = src.open_file(name, follow)?;
                if info.kind != Kind::File {
                    // Between listing and opening somebody put something else there; nothing of it was read.
                    let note = format!("it became a {} meanwhile", info.kind.word());
                    return Err(Error::ours(Code::SourceChanged, "copy", src.node.join(name), note));
                }
                if way == Way::Small && info.size >= BIG_BYTES {
                    pair.pending.fetch_add(1, Ordering::Relaxed);
                    let (name, to) = (name.to_owned(), to.to_owned());
                    hands.push(Task::One { pair: pair.clone(), name, to, kind, follow });
                    return Ok(None);
                }
                (Body::File(fd), info)
            }
            Kind::Link => {
                let info = src.stat(name, false)?;
                let target = src.dir.read_link(name);
                (Body::Link(target.map_err(|e| Error::os("read link", src.node.join(name), e))?), info)
            }
            Kind::Dir => return Ok(None),
            _ => {
                if !self.policy.specials {
                    let note = format!("it is a {}", kind.word());
                    return Err(Error::ours(Code::Special, "copy", src.node.join(name), note));
                }
                (Body::Special, src.stat(name, follow)?)
            }
        };
        if info.kind != kind {
            let note = format!("it became a {} meanwhile", info.kind.word());
            return Err(Error::ours(Code::SourceChanged, "copy", src.node.join(name), note));
        }
        let mut linked = false;
        if self.policy.preserve.links && info.nlink > 1 {
            linked = self.links.claim_first(&info);
            if !linked {
                // Links are made once their batch's own claims are settled, so that nobody waits for himself.
                pair.pending.fetch_add(1, Ordering::Relaxed);
                let (name, to) = (name.to_owned(), to.to_owned());
                hands.push_later(Task::Second { pair: pair.clone(), name, to, info });
                return Ok(None);
            }
        }
        let job = self.plan(pair, name, to, body, info, way);
        if linked && !matches!(job, Ok(Some(_))) {
            self.links.gave_up(&info);
        }
        job
    }

    /// Compares with what is there and makes the job, if there is to be one.
    fn plan<'n>(
        &self,
        pair: &'n Arc<DirPair>,
        name: Name<'n>,
        to: Name<'n>,
        body: Body<'n, Sys>,
        info: Info,
        way: Way,
    ) -> Result<Option<Job<'n, Sys>>> {
        let dst = &pair.dst;
        let there = if dst.fresh {
            None
        } else {
            self.disk.look(&dst.dir, to).map_err(|e| Error::os("stat", dst.node.join(to), e))?
        };
        match decide(&info, there.as_ref(), self.policy) {
            Verdict::Make | Verdict::Replace => {}
            Verdict::Keep
                if self.policy.resume == Resume::Strict && !self.same_bytes(pair, &body, name, to)? => {}
            Verdict::Keep | Verdict::Merge => {
                if self.policy.resume.has_sessions() && info.size > self.policy.checkpoint_bytes {
                    resumable::sweep(self.disk, &dst.dir, to)
                        .map_err(|f| f.told(|| pair.src.node.join(name), || dst.node.join(to)))?;
                }
                if let (Body::File(fd), Some(there)) = (&body, &there)
                    && same(&info, there)
                {
                    self.hash_again(pair, fd, name, to);
                }
                return self.keep(pair, name, to, &info);
            }
            Verdict::Ask => {
                if !self.tally.ask(Question::Replace(dst.node.join(to))) {
                    return self.keep(pair, name, to, &info);
                }
            }
            Verdict::Refuse(code, why) => {
                return Err(
                    Error::ours(code, "replace", dst.node.join(to), why).and(&pair.src.node.join(name))
                );
            }
        }
        let is_file = matches!(body, Body::File(_));
        let appends = |t: &Info| is_file && self.policy.resume == Resume::Append && t.kind == Kind::File;
        if let Some(t) = there.filter(appends) {
            if t.size > info.size {
                let why = "it is longer than the source";
                return Err(Error::ours(Code::Refused, "append to", dst.node.join(to), why));
            }
            if t.size == info.size {
                return self.keep(pair, name, to, &info);
            }
        }
        let place = if way == Way::Small && dst.is_private() {
            Place::Final
        } else if there.as_ref().is_some_and(appends)
            || self.policy.landing == Landing::InPlace
                && is_file
                && there.is_some_and(|t| !matches!(t.kind, Kind::Link | Kind::Dir))
        {
            Place::There
        } else {
            let stage = if dst.sole { stage::known(to) } else { stage::random() };
            Place::Stage(stage.ok_or_else(|| {
                Error::ours(Code::Io, "name a stage for", dst.node.join(to), "no name could be made")
            })?)
        };
        Ok(Some(Job {
            name: to,
            place,
            info,
            there,
            only_new: matches!(self.policy.collide, Collide::Keep | Collide::Ask | Collide::IfOlder)
                && there.is_none(),
            body,
            source: (&pair.src.dir, name),
            file: None,
            staged: false,
            append: there.filter(|t| appends(t)).map(|t| t.size),
            bytes: 0,
            rung: None,
            hash: None,
            fault: None,
            lost: Vec::new(),
        }))
    }

    /// `-s`: whether what is there has the source's content, byte by byte; size and mtime are not believed.
    fn same_bytes(&self, pair: &DirPair, body: &Body<'_, Sys>, name: Name<'_>, to: Name<'_>) -> Result<bool> {
        let Body::File(src) = body else { return Ok(true) };
        let there = pair.dst.dir.open_file(to).map_err(|e| Error::os("open", pair.dst.node.join(to), e))?;
        let hash = |fd: &std::os::fd::OwnedFd| {
            crate::disk::tee::hash(fd, &|_| !self.tally.cancelled())
                .map_err(|f| f.told(|| pair.src.node.join(name), || pair.dst.node.join(to)))
        };
        Ok(hash(src)? == hash(&there)?)
    }

    /// Leaves what is there alone. Its bytes count as done: they were found too, and a percentage is of those.
    fn keep<'n>(
        &self,
        pair: &DirPair,
        name: Name<'_>,
        to: Name<'_>,
        info: &Info,
    ) -> Result<Option<Job<'n, Sys>>> {
        pair.keep_some();
        if info.kind == Kind::File {
            self.tally.watch.progress.bytes_done.fetch_add(info.size, Ordering::Relaxed);
        }
        // R3: a run that was killed may have named it and not have come to its sync; exit 0 speaks for it too.
        self.owed.store(true, Ordering::Relaxed);
        self.tally.kept.fetch_add(1, Ordering::Relaxed);
        self.tally.done(1);
        self.tally.item(Action::Kept, 0, || (pair.src.node.join(name), pair.dst.node.join(to)));
        Ok(None)
    }

    /// Lands jobs and tells how it went. `again`: a source that changed while it was read gets a second chance.
    fn land(
        &self,
        hands: &Hands<'_, Task>,
        hand: &mut Hand,
        pair: &Arc<DirPair>,
        jobs: &mut Vec<Job<'_, Sys>>,
        way: Way,
        again: bool,
    ) {
        if jobs.is_empty() {
            return;
        }
        let policy = self.policy;
        let progress = self.tally.watch.progress;
        let observe = |bytes: u64| {
            progress.bytes_done.fetch_add(bytes, Ordering::Relaxed);
            !self.tally.cancelled()
        };
        let threads = if way == Way::Alone && hands.hungry() { policy.jobs } else { 1 };
        let how = Fill {
            reflink: policy.reflink,
            sparse: policy.sparse,
            verify: policy.verify,
            hash: policy.verify != Verify::Off || policy.hashes,
            threads,
            dev: pair.dst.info.dev,
            observe: &observe,
        };
        if way == Way::Alone && self.is_resumable(jobs) {
            return self.land_resumable(hands, hand, pair, jobs, threads, again);
        }
        let private = way == Way::Small && pair.dst.is_private();
        let owed = land(self.disk, hand, &pair.dst, jobs, &how, policy.durability, private);
        match owed {
            Ok(true) => self.owed.store(true, Ordering::Relaxed),
            Ok(false) => {}
            Err(e) => self.tally.fail(Error::os("sync directory", pair.dst.node.path(), e)),
        }
        let mut second_chance: Vec<(NameBuf, NameBuf, Kind)> = Vec::new();
        for job in jobs.drain(..) {
            // By itself a file needs two descriptors, in a batch it may have found none left.
            let worth_it = |f: &Fault| matches!(f.code, Code::SourceChanged | Code::Limit);
            let changed = job.fault.as_ref().is_some_and(worth_it);
            let first_name = policy.preserve.links && job.info.nlink > 1;
            if changed && again {
                if first_name {
                    self.links.gave_up(&job.info);
                }
                second_chance.push((job.source.1.to_owned(), job.name.to_owned(), job.info.kind));
                continue;
            }
            self.told(pair, job, first_name);
        }
        let follow = self.follows(pair);
        for (name, to, kind) in second_chance {
            let (name, to) = (name.as_name(), to.as_name());
            match self.prepare(hands, pair, name, to, kind, follow, way) {
                Prepared::Job(job) => self.land(hands, hand, pair, &mut vec![job], way, false),
                Prepared::Nothing => {}
                Prepared::Later(e) => {
                    pair.keep_some();
                    self.tally.fail(e);
                }
            }
        }
    }

    /// Whether this one gets a session: a large file that is staged.
    fn is_resumable(&self, jobs: &[Job<'_, Sys>]) -> bool {
        let [job] = jobs else { return false };
        self.policy.resume.has_sessions()
            && job.info.size > self.policy.checkpoint_bytes
            && matches!((&job.body, &job.place), (Body::File(_), Place::Stage(_)))
    }

    fn land_resumable(
        &self,
        hands: &Hands<'_, Task>,
        hand: &mut Hand,
        pair: &Arc<DirPair>,
        jobs: &mut Vec<Job<'_, Sys>>,
        threads: usize,
        again: bool,
    ) {
        let Some(mut job) = jobs.pop() else { return };
        let progress = self.tally.watch.progress;
        let observe = |bytes: u64| {
            progress.bytes_done.fetch_add(bytes, Ordering::Relaxed);
            !self.tally.cancelled()
        };
        let Body::File(source) = std::mem::replace(&mut job.body, Body::Special) else { return };
        let sparse = self.policy.sparse;
        let holes = sparse == Sparse::Always
            || (sparse == Sparse::Auto && job.info.blocks.saturating_mul(512) < job.info.size);
        let want = Want {
            name: job.name,
            info: job.info,
            source: &source,
            resume: self.policy.resume,
            checkpoint_bytes: self.policy.checkpoint_bytes,
            holes: if holes { Holes::Make } else { Holes::Fill },
            threads,
            me: self.policy.me,
            observe: &observe,
        };
        // Attributes are read from the open source while sealing.
        let copy = source.try_clone();
        match copy {
            Ok(fd) => job.body = Body::File(fd),
            Err(e) => job.fault = Some(Fault::os(Side::Source, "open", e)),
        }
        let went = land_resumable(self.disk, hand, &pair.dst, &mut job, &want, self.policy.verify);
        if let Some(went) = went.filter(|w| w.resumed > 0 || w.restarted.is_some() || w.repaired > 0) {
            self.tally.watch.front.event(Event::Resumed {
                dst: pair.dst.node.join(job.name),
                bytes: went.resumed,
                restarted: went.restarted,
                repaired: went.repaired,
            });
        }
        let first_name = self.policy.preserve.links && job.info.nlink > 1;
        if again && job.fault.as_ref().is_some_and(|f| f.code == Code::SourceChanged) {
            if first_name {
                self.links.gave_up(&job.info);
            }
            let (name, to) = (job.source.1, job.name);
            let follow = self.follows(pair);
            return match self.prepare(hands, pair, name, to, Kind::File, follow, Way::Alone) {
                Prepared::Job(job) => self.land(hands, hand, pair, &mut vec![job], Way::Alone, false),
                Prepared::Nothing => {}
                Prepared::Later(e) => {
                    pair.keep_some();
                    self.tally.fail(e);
                }
            };
        }
        self.told(pair, job, first_name);
    }

    /// Counts and tells one job's end.
    fn told(&self, pair: &Arc<DirPair>, job: Job<'_, Sys>, first_name: bool) {
        let (src_name, dst_name) = (job.source.1, job.name);
        let src = || pair.src.node.join(src_name);
        let dst = || pair.dst.node.join(dst_name);
        let linking = matches!(job.body, Body::HardLink(..));
        if let Some(fault) = job.fault {
            pair.keep_some();
            if first_name && !linking {
                self.links.gave_up(&job.info);
            }
            if fault.code != Code::Interrupted {
                self.tally.fail(fault.told(src, dst));
            }
        } else {
            if first_name && !linking {
                let mut info = job.info;
                if self.policy.follow != Follow::Never {
                    // Links that are followed are names too, and nobody counts them.
                    info.nlink = u64::MAX;
                }
                self.links.landed(&info, &pair.dst, dst_name);
            }
            let action = match (&job.body, job.info.kind) {
                (Body::HardLink(..), _) => Action::HardLinked,
                (_, Kind::File) => Action::Copied,
                (_, Kind::Link) => Action::MadeLink,
                _ => Action::MadeSpecial,
            };
            if action == Action::Copied {
                self.tally.files.fetch_add(1, Ordering::Relaxed);
                self.tally.bytes.fetch_add(job.bytes, Ordering::Relaxed);
            } else {
                self.tally.others.fetch_add(1, Ordering::Relaxed);
            }
            self.tally.done(1);
            self.tally.item(action, job.bytes, || (src(), dst()));
            if let Some(hash) = &job.hash {
                self.hashed(dst, hash);
            }
            if linking && job.info.kind == Kind::File && self.policy.hashes {
                match pair.src.open_file(src_name, false) {
                    Ok((fd, _)) => self.hash_again(pair, &fd, src_name, dst_name),
                    Err(e) => self.tally.lost(e),
                }
            }
            if self.ledger.as_ref().is_some_and(|ledger| ledger.landed(pair, src_name, &job.info)) {
                self.settle_ledger();
            }
        }
        self.lost(job.lost, src, dst);
    }

    /// Tells the hash of what is at `dst`, where somebody wants it.
    fn hashed(&self, dst: impl Fn() -> PathBuf, hash: &blake3::Hash) {
        if !self.policy.hashes {
            return;
        }
        let hash = *hash.as_bytes();
        if let Some(Err(e)) = self.manifest.as_ref().map(|m| m.add(&dst(), &hash)) {
            self.tally.lost(e);
        }
        self.tally.watch.front.event(Event::Hashed { dst: dst(), hash });
    }

    /// The same for what is there without having been copied: what is the same as before, and further names. The
    /// source is hashed, so that a copy that only looks the same is found out by whoever checks.
    fn hash_again(&self, pair: &DirPair, source: &std::os::fd::OwnedFd, name: Name<'_>, to: Name<'_>) {
        if !self.policy.hashes {
            return;
        }
        let dst = || pair.dst.node.join(to);
        match crate::disk::tee::hash(source, &|_| !self.tally.cancelled()) {
            Ok(hash) => self.hashed(dst, &hash),
            Err(fault) if fault.code == Code::Interrupted => {}
            Err(fault) => self.tally.fail(fault.told(|| pair.src.node.join(name), dst)),
        }
    }

    /// Tells what of the metadata could not be kept. Owners that only root could have set come as one sentence in
    /// the end.
    fn lost(&self, lost: Vec<Fault>, src: impl Fn() -> PathBuf, dst: impl Fn() -> PathBuf) {
        for fault in lost {
            let denied = fault.source.as_ref().is_some_and(|e| Code::of(e) == Code::Denied);
            if denied && fault.op == "set owner of" {
                self.owners_lost.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let error = fault.told(&src, &dst);
            // A file system that has no attributes or owners at all (vfat) loses them for everything: worth a word,
            // and in an archive a failure.
            if self.policy.strictness == Strictness::LikeCp && error.code == Code::MetadataLost {
                let unsupported = error.source.as_ref().is_some_and(|e| Code::of(e) == Code::Unsupported);
                if unsupported {
                    self.tally.warn(error);
                    continue;
                }
            }
            self.tally.lost(error);
        }
    }

    /// Whether links in `pair`'s source are followed: all of them, or those that are operands.
    fn follows(&self, pair: &DirPair) -> bool {
        match self.policy.follow {
            Follow::Always => true,
            Follow::Operands => !pair.ours,
            Follow::Never => false,
        }
    }

    /// A second name of an inode that another worker may still be landing.
    fn second_waiting(
        &self,
        hands: &Hands<'_, Task>,
        worker: &mut Worker,
        pair: &Arc<DirPair>,
        name: Name<'_>,
        to: Name<'_>,
        info: &Info,
    ) {
        let landed = match self.links.claim_waiting(info) {
            Claim::Second(landed) => landed,
            // The first could not be landed: this one is the first now.
            Claim::First => {
                self.links.gave_up(info);
                let follow = self.follows(pair);
                return self.one(hands, worker, pair, name, to, info.kind, follow);
            }
        };
        match self.second(pair, name, to, info, &landed) {
            Ok(Some(job)) => {
                let dir = job.0;
                let mut jobs = vec![Job { body: Body::HardLink(&*dir, landed.name()), ..job.1 }];
                self.land(hands, &mut worker.hand, pair, &mut jobs, Way::Alone, false);
            }
            Ok(None) => {}
            Err(e) => {
                pair.keep_some();
                self.tally.fail(e);
            }
        }
    }

    /// The job that links, with the directory to link from.
    fn second<'n>(
        &self,
        pair: &'n Arc<DirPair>,
        name: Name<'n>,
        to: Name<'n>,
        info: &Info,
        landed: &Landed<Sys>,
    ) -> Result<Option<(Arc<fastcopy::dir::Dir>, Job<'n, Sys>)>> {
        let fail = |e| Error::os("find the first name of", pair.src.node.join(name), e);
        let dir = landed.open(self.disk).map_err(fail)?;
        let first = self.disk.look(&dir, landed.name()).map_err(fail)?;
        let there =
            self.disk.look(&pair.dst.dir, to).map_err(|e| Error::os("stat", pair.dst.node.join(to), e))?;
        if let (Some(first), Some(there)) = (first, there)
            && first.id() == there.id()
        {
            // Already the same file; renaming one name of an inode over another does nothing at all (rename(2)).
            self.tally.others.fetch_add(1, Ordering::Relaxed);
            self.tally.done(1);
            if self.policy.hashes && info.kind == Kind::File {
                let (fd, _) = pair.src.open_file(name, false)?;
                self.hash_again(pair, &fd, name, to);
            }
            if let Some(ledger) = &self.ledger {
                ledger.landed(pair, name, info);
            }
            return Ok(None);
        }
        Ok(self.plan(pair, name, to, Body::Special, *info, Way::Alone)?.map(|job| (dir, job)))
    }

    /// One of the things that had to be in `pair` before it gets its name is in it.
    fn filled(&self, worker: &mut Worker, pair: &Arc<DirPair>) {
        if pair.small.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        if self.policy.durability == Durability::Medium && pair.dst.is_private() {
            // Its files must be on the medium before the name leads to them; one sync serves many directories.
            pair.pending.fetch_add(1, Ordering::Relaxed);
            let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
            group.push(pair.clone());
            let full = group.len() >= GROUP_DIRS;
            drop(group);
            if full {
                self.publish_group(worker);
            }
        } else {
            self.publish(pair);
        }
    }

    fn publish(&self, pair: &DirPair) {
        let Some(above) = &pair.above else { return };
        if let Err(e) = pair.dst.publish(self.disk, &above.dst) {
            pair.keep_some();
            self.tally.fail(e);
        }
    }

    fn publish_group(&self, worker: &mut Worker) {
        loop {
            let group = std::mem::take(&mut *self.group.lock().unwrap_or_else(PoisonError::into_inner));
            let Some(any) = group.first() else { return };
            self.owed.store(true, Ordering::Relaxed);
            let synced =
                self.disk.sync_all(&any.dst.dir).map_err(|e| Error::os("sync", any.dst.node.path(), e));
            let ok = synced.is_ok();
            if let Err(e) = synced {
                self.tally.fail(e);
            }
            for pair in group {
                if !ok {
                    // What failed to reach the medium once is thrown away, never tried again.
                    pair.dst.poison();
                }
                self.publish(&pair);
                self.release(worker, pair);
            }
        }
    }

    /// One of the things that had to be done before `pair` is sealed is done; so may be its parents.
    fn release(&self, worker: &mut Worker, pair: Arc<DirPair>) {
        let mut pair = pair;
        while pair.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            if pair.ours {
                self.seal(worker, &pair);
            }
            let Some(above) = pair.above.clone() else { return };
            if pair.kept_some.load(Ordering::Relaxed) {
                above.keep_some();
            }
            pair = above;
        }
    }

    /// Everything in it is done: owner, mode, times.
    fn seal(&self, worker: &mut Worker, pair: &Arc<DirPair>) {
        let dst = &pair.dst;
        if dst.is_poisoned() {
            if let Some(Err(e)) = pair.above.as_ref().map(|above| dst.take_back(self.disk, &above.dst)) {
                self.tally.fail(e);
            }
            return;
        }
        let settled = match &pair.above {
            Some(above) => dst.settle(self.disk, &above.dst),
            None => Ok(None),
        };
        let moved = match settled {
            Ok(moved) => moved,
            Err(e) => {
                pair.keep_some();
                return self.tally.fail(e);
            }
        };
        let preserve = &self.policy.preserve;
        // A directory that was there keeps what it has, unless it was asked otherwise: as cp does.
        if dst.fresh || dst.made || preserve.mode || preserve.owner || preserve.times || preserve.xattr {
            let dir = moved.as_ref().unwrap_or(&dst.dir);
            let lost = self.disk.seal_dir(&mut worker.hand, dir, &pair.src.dir, &pair.src.info, &dst.keep);
            self.lost(lost, || pair.src.node.path(), || dst.node.path());
        }
        if dst.fresh || dst.made {
            self.owed.store(true, Ordering::Relaxed);
            self.tally.dirs.fetch_add(1, Ordering::Relaxed);
            self.tally.item(Action::MadeDir, 0, || (pair.src.node.path(), dst.node.path()));
        }
        self.tally.done(1);
        if let (Some(ledger), false) = (&self.ledger, pair.kept_some.load(Ordering::Relaxed)) {
            ledger.dir_done(pair);
        }
    }

    /// Copies names read from a list, each below `base`, with the directories that lead to it.
    fn list(
        &self,
        base: &std::path::Path,
        target: &Target,
        reader: &mut (dyn std::io::BufRead + Send),
        separator: u8,
    ) -> Result<()> {
        let Source::Whole(src) = self.base(base)? else {
            return Err(Error::ours(Code::NotDirectory, "read names below", base, "it is not a directory"));
        };
        let place = match operands::target(target, 1)? {
            Where::Into(place) | Where::Whole(place) => place,
            Where::Name { dir, name, .. } => {
                ensure_dir(&dir.dir, name.as_name(), 0o777)
                    .map_err(|e| Error::os("make directory", dir.node.join(name.as_name()), e))?;
                match operands::target(target, 1)? {
                    Where::Into(place) | Where::Whole(place) => place,
                    Where::Name { dir, .. } => {
                        return Err(Error::ours(
                            Code::Io,
                            "open",
                            dir.node.path(),
                            "the directory went away",
                        ));
                    }
                }
            }
        };
        let dir = place.dir.try_clone().map_err(|e| Error::os("open", place.node.path(), e))?;
        let dst = DestDir::existing(self.disk, dir, place.node.clone(), None, self.policy)?;
        self.remember(dst.info.id());
        let root = Arc::new(DirPair { ours: false, ..self.plain_pair(&src, dst, src.info.dev) });
        let mut names = ListedNames { reader, separator, base };
        let mut worker = self.worker();
        loop {
            let mut tasks = Vec::new();
            let mut chain = vec![root.clone()];
            let mut ended = true;
            for _ in 0..LIST_CHUNK {
                match names.next() {
                    None => break,
                    Some(Err(e)) => self.tally.fail(e),
                    Some(Ok(parts)) => match self.listed(&mut worker, &mut chain, &parts) {
                        Ok(Some(task)) => tasks.push(task),
                        Ok(None) => {}
                        Err(e) => self.tally.fail(e),
                    },
                }
                ended = false;
            }
            while chain.len() > 1 {
                self.leave(&mut worker, &mut chain);
            }
            self.work(tasks);
            if ended || self.tally.cancelled() {
                self.sync_names(&place.dir, &place.node);
                return Ok(());
            }
        }
    }

    /// The directory that names of a list are relative to.
    fn base(&self, base: &std::path::Path) -> Result<Source> {
        let dir = fastcopy::dir::Dir::open(base).map_err(|e| Error::os("open directory", base, e))?;
        Ok(Source::Whole(SourceDir::root(dir, Node::root(base))?.with_ignores(&self.filter)?))
    }

    /// Walks `chain` to the directory of one listed name and says what is to be done there.
    /// Nothing, when the filter leaves it out.
    fn listed(
        &self,
        worker: &mut Worker,
        chain: &mut Vec<Arc<DirPair>>,
        parts: &[NameBuf],
    ) -> Result<Option<Task>> {
        let Some((last, dirs)) = parts.split_last() else {
            return Err(Error::ours(Code::Usage, "read names", "", "an empty name"));
        };
        let here: Vec<NameBuf> = match chain.last() {
            Some(pair) => pair.src.node.names().into_iter().cloned().collect(),
            None => Vec::new(),
        };
        let common = here.iter().zip(dirs).take_while(|(a, b)| a == b).count();
        while chain.len() > common + 1 {
            self.leave(worker, chain);
        }
        for name in dirs.iter().skip(common) {
            let Some(pair) = chain.last().cloned() else { break };
            let name = name.as_name();
            if self.leaves_out(&pair.src, name, true) {
                return Ok(None);
            }
            let src = pair.src.enter(name, pair.src.node.below(name), false, &self.filter)?;
            let dst = pair.dst.enter(self.disk, name, self.policy)?;
            pair.pending.fetch_add(1, Ordering::Relaxed);
            let dev = pair.dev;
            chain.push(Arc::new(DirPair { above: Some(pair), ..self.plain_pair(&src, dst, dev) }));
        }
        let Some(pair) = chain.last() else {
            return Err(Error::ours(Code::Usage, "read names", "", "an empty name"));
        };
        let follow = self.policy.follow == Follow::Always;
        let info = pair.src.stat(last.as_name(), follow)?;
        if self.leaves_out(&pair.src, last.as_name(), info.kind == Kind::Dir) {
            return Ok(None);
        }
        if info.kind == Kind::Dir && !self.policy.recursive {
            return Err(Error::ours(
                Code::IsDirectory,
                "copy",
                pair.src.node.join(last.as_name()),
                "it is a directory",
            ));
        }
        pair.pending.fetch_add(1, Ordering::Relaxed);
        let (pair, name, to) = (pair.clone(), last.clone(), last.clone());
        Ok(Some(match info.kind {
            Kind::Dir => Task::Dir { pair, name, to, operand: None, follow },
            kind => Task::One { pair, name, to, kind, follow },
        }))
    }

    /// Whether the filter leaves `name` out; it is told.
    fn leaves_out(&self, src: &SourceDir, name: Name<'_>, is_dir: bool) -> bool {
        let out = src.excludes(name, is_dir, &self.filter);
        if out {
            self.tally.item(Action::Excluded, 0, || (src.node.join(name), PathBuf::new()));
        }
        out
    }

    /// Leaves the innermost directory of the chain: it is published, and sealed when its tasks are done.
    fn leave(&self, worker: &mut Worker, chain: &mut Vec<Arc<DirPair>>) {
        if let Some(pair) = chain.pop() {
            self.filled(worker, &pair);
            self.release(worker, pair);
        }
    }

    /// Marks a directory that an operand becomes: until the run is complete, the same command means this directory.
    fn mark(&self, src: &SourceDir, dst: &DestDir<Sys>) -> Result<()> {
        if !dst.made && !tree::is_marked(&dst.dir, &src.info) {
            return Ok(());
        }
        if dst.made {
            tree::mark(&dst.dir, &src.info).map_err(|e| Error::os("mark", dst.node.path(), e))?;
        }
        self.marked.lock().unwrap_or_else(PoisonError::into_inner).push((dst.dir.clone(), dst.node.clone()));
        Ok(())
    }

    /// Says what was done.
    pub(crate) fn end(mut self) -> Summary {
        if let Some(manifest) = self.manifest.take() {
            self.end_manifest(manifest);
        }
        if self.tally.all_well() {
            for (dir, node) in self.marked.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                if let Err(e) = tree::unmark(&dir) {
                    self.tally.fail(Error::os("unmark", node.path(), e));
                }
            }
        }
        let owners = self.owners_lost.load(Ordering::Relaxed);
        if owners > 0 {
            let note = format!("the owner of {owners} entries was not kept: only root may give files away");
            self.tally.lost(Error::ours(Code::MetadataLost, "set owner in", "destination", note));
        }
        self.tally.summary()
    }

    /// Only a complete copy gets a manifest: whoever finds one may rely on it.
    fn end_manifest(&self, manifest: Manifest) {
        let absent = self.tally.absent.load(Ordering::Relaxed);
        let complete = absent == 0 && !self.tally.cancelled();
        let path = manifest.path().to_owned();
        match manifest.end(complete) {
            Err(e) => self.tally.lost(e),
            Ok(()) if complete => {}
            Ok(()) => {
                let note = "only a complete copy gets one";
                self.tally.warn(Error::ours(Code::Refused, "write manifest", path, note));
            }
        }
    }

    /// Makes the names durable that were not synced one by one: the last thing before exit 0 with `--sync`. `dir` is
    /// where the operands went.
    pub(crate) fn sync_names(&self, dir: &fastcopy::dir::Dir, node: &Node) {
        if self.policy.durability == Durability::Medium
            && self.owed.load(Ordering::Relaxed)
            && let Err(e) = self.disk.sync_all(dir)
        {
            self.tally.fail(Error::os("sync", node.path(), e));
        }
    }

    /// Takes away at the source what is safe at the destination.
    pub(crate) fn settle_ledger(&self) {
        if let Some(ledger) = &self.ledger {
            ledger.settle(self.disk, &self.tally);
        }
    }
}

impl DirPair {
    /// Whether it and everything above it that this run made have their names.
    pub(crate) fn has_name(&self) -> bool {
        let mut at = Some(self);
        while let Some(pair) = at {
            if !pair.dst.has_name() {
                return false;
            }
            at = pair.above.as_deref();
        }
        true
    }

    fn keep_some(&self) {
        self.kept_some.store(true, Ordering::Relaxed);
    }
}

/// Names from a list, one at a time, each split into its components.
pub(crate) struct ListedNames<'r> {
    pub(crate) reader: &'r mut (dyn std::io::BufRead + Send),
    pub(crate) separator: u8,
    pub(crate) base: &'r std::path::Path,
}

impl Iterator for ListedNames<'_> {
    type Item = Result<Vec<NameBuf>>;
    fn next(&mut self) -> Option<Self::Item> {
        use std::os::unix::ffi::OsStrExt;
        loop {
            let mut line = Vec::new();
            match self.reader.read_until(self.separator, &mut line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(e) => return Some(Err(Error::os("read list of names below", self.base, e))),
            }
            if line.last() == Some(&self.separator) {
                line.pop();
            }
            if self.separator == b'\n' && line.last() == Some(&b'\r') {
                line.pop();
            }
            if line.is_empty() {
                continue;
            }
            let shown = || self.base.join(std::ffi::OsStr::from_bytes(line.as_slice()));
            if line.first() == Some(&b'/') {
                let note = "names in a list are relative to the source directory";
                return Some(Err(Error::ours(Code::Refused, "copy", shown(), note)));
            }
            let parts = line.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".");
            let parts: Option<Vec<NameBuf>> = parts.map(NameBuf::new).collect();
            return Some(match parts {
                Some(parts) if !parts.is_empty() => Ok(parts),
                _ => Err(Error::ours(Code::Refused, "copy", shown(), "names in a list may not contain '..'")),
            });
        }
    }
}
