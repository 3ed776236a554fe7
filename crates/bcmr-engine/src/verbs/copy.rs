//! `copy`: both halves in one process. The walk of the sender feeds batches to the receiver's landing.
//!
//! Must not know how a phase is carried out (that is the disk's) nor what anything is called on a terminal.
//!
//! Order and bounds: workers take whole directories, newest first, so that few are open at a time; a directory's small
//! files are landed in batches while it is listed, large ones as tasks of their own. A directory is published once its
//! small files are in it, and sealed (mode, owner, times) once everything below it is done.

use crate::disk::sys::{Hand, Sys};
use crate::disk::{Attributes, Body, Dirs, Fault, Job};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Summary, Watch};
use crate::node::Node;
use crate::policy::{Collide, CopyPolicy, CopyRequest, Durability, Follow, Target};
use crate::pool::{Hands, Pool};
use crate::receiver::choose::{Candidate, Way};
use crate::receiver::claims::{Claimed, Claims, Meeting, Spot};
use crate::receiver::dest::DestDir;
use crate::receiver::devices::Devices;
use crate::receiver::dir_task::{Origin, Slot};
use crate::receiver::land::ensure_dir;
use crate::receiver::lander::{Again, Beside, Lander};
use crate::receiver::links::Claim;
use crate::sender::chain::Chain;
use crate::sender::filter::Filter;
use crate::sender::level::{Entries, Met};
use crate::sender::names::{ListedNames, Names};
use crate::sender::walk::SourceDir;
use crate::tally::Tally;
use crate::verbs::ledger::Ledger;
use crate::verbs::manifest::Manifest;
use crate::verbs::operands::{self, Dest, DestLink, Operand, Source, Where};
use crate::verbs::stream::{self, Streamed};
use fastcopy::dir::{ListBuffer, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Names handed to another worker at once.
const BATCH_NAMES: usize = 64;
/// From this size (bytes) on a file is a task of its own, staged by itself: a killed run loses at most what small
/// files of directories under way it had.
const BIG_BYTES: u64 = 4 << 20;
/// Names of a list that are under way at a time.
const LIST_CHUNK: usize = 4096;

enum Task {
    /// Go into a directory and copy what is in it.
    Dir { pair: Arc<DirPair>, name: NameBuf, to: NameBuf, operand: Option<PathBuf>, follow: bool, spot: Spot },
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

/// A source directory and the directory it becomes.
pub(crate) type DirPair = Slot<SourceDir>;

/// One run of the verb.
pub(crate) struct Run<'a> {
    pub(crate) disk: &'a Sys,
    policy: &'a CopyPolicy,
    filter: Filter,
    pub(crate) desk: Lander<'a, SourceDir, Kept>,
    /// Top directories made by this run: met again as a source, they would be copied into themselves.
    made: Mutex<Vec<(u64, u64)>>,
}

/// What is kept of what landed.
pub(crate) struct Kept {
    /// A move removes it at the source.
    pub(crate) ledger: Option<Ledger>,
    /// Where hashes go.
    pub(crate) manifest: Option<Manifest>,
}

impl Beside<SourceDir> for Kept {
    fn landed(
        &self,
        slot: &Arc<DirPair>,
        src: Name<'_>,
        info: &Info,
        devices: &Devices<'_, Sys>,
        tally: &Tally<'_>,
    ) {
        if let Some(ledger) = &self.ledger
            && ledger.landed(slot, src, info)
        {
            ledger.settle(devices, tally);
        }
    }
    fn dir_done(&self, slot: &Arc<DirPair>) {
        if let Some(ledger) = &self.ledger {
            ledger.dir_done(slot);
        }
    }
    fn takes_away(&self) -> bool {
        self.ledger.is_some()
    }
    fn hashed(&self, dst: &Path, hash: &[u8; 32]) -> Result<()> {
        self.manifest.as_ref().map_or(Ok(()), |manifest| manifest.add(dst, hash))
    }
}

impl Origin for SourceDir {
    fn info(&self) -> &Info {
        &self.info
    }
    fn node(&self) -> &Arc<Node> {
        &self.node
    }
    fn attributes(&self) -> Attributes<'_> {
        Attributes::Dir(&self.dir)
    }
    fn hash(
        &self,
        name: Name<'_>,
        go_on: &dyn Fn() -> bool,
    ) -> std::result::Result<Option<blake3::Hash>, Fault> {
        let fd = self.dir.open_file(name).map_err(|e| Fault::os(crate::disk::Side::Source, Op::Open, e))?;
        crate::disk::tee::hash(&fd, &|_| go_on()).map(Some)
    }
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

/// Copies.
///
/// # Errors
/// Only when nothing could be begun (a pattern that does not parse, a target that cannot be opened); what happens to
/// single items is told through `watch` and counted in the [`Summary`].
pub fn copy(request: CopyRequest, watch: Watch<'_>) -> Result<Summary> {
    if request.policy.dry_run {
        return crate::verbs::survey::dry_run(
            CopyRequest { policy: resuming(request.policy), ..request },
            watch,
        );
    }
    let (request, _held) = match stream::take(request, watch)? {
        Streamed::No(request) => (request, None),
        Streamed::Held(request, held) => (request, Some(held)),
        Streamed::Done(summary) => return Ok(summary),
    };
    let disk = Sys::with(request.policy.io);
    let policy = resuming(request.policy);
    let mut run = Run::new(&disk, &policy, watch, None)?;
    let manifest = request.manifest.as_deref();
    match request.names {
        None => {
            let target = operands::same_target(&request.sources, request.target, &policy);
            let count = request.sources.len();
            let to = operands::target(&operands::Reach::Anywhere, &target, count, DestLink::Through)?;
            operands::tell_new(&watch, &target, &to);
            let base = operands::base(&to, DestLink::Through)?;
            run.desk.beside.manifest = manifest.map(|file| Manifest::begin(file, Some(base))).transpose()?;
            run.operands(&request.sources, &to);
            run.desk.sync_names();
        }
        Some(mut list) => {
            let [base] = request.sources.as_slice() else {
                let note = Reason::OneSourceDirectory;
                return Err(Error::ours(Code::Usage, Op::Copy, request.target.path(), note));
            };
            let to = request.target.path().clone();
            run.desk.beside.manifest = manifest.map(|file| Manifest::begin(file, Some(to))).transpose()?;
            run.list(base, &request.target, &mut *list.reader, list.separator)?;
        }
    }
    Ok(run.end())
}

/// What going on where a run stopped needs of the rest: what is there and complete must be known again (size and mtime,
/// so times are kept), and a name must mean that its content is on the medium (R2).
pub(crate) fn resuming(policy: CopyPolicy) -> CopyPolicy {
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
    verb: Op,
    links: DestLink,
    tally: &Tally<'_>,
) -> Vec<Operand> {
    let mut operands: Vec<Operand> = Vec::new();
    for path in sources {
        let resolved = operands::source(&operands::Reach::Anywhere, path, policy.follow).and_then(|source| {
            let operand = operands::pair(path, source, to, links)?;
            if operand.info().kind == Kind::Dir && !policy.recursive {
                return Err(Error::ours(Code::IsDirectory, verb, path, Reason::IsDirectory));
            }
            if let Some(earlier) = operands::clash(&operands, &operand) {
                if operand.is_same_source(earlier) {
                    return Ok(None);
                }
                if operand.info().kind != Kind::Dir {
                    let why = Reason::EarlierSource
                        .about(earlier.path.as_path())
                        .about(operands::dest_path(&operand).as_path());
                    return Err(Error::ours(Code::Refused, verb, path, why));
                }
            }
            operands::guard_nesting(&operand, policy, verb)?;
            Ok(Some(operand))
        });
        match resolved {
            Ok(Some(operand)) => operands.push(operand),
            // The very same source once more: it is copied once.
            Ok(None) => {}
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
        let desk = Lander::new(disk, policy, Tally::new(watch), Kept { ledger, manifest: None });
        Ok(Run { disk, policy, filter: Filter::new(&policy.filter)?, desk, made: Mutex::new(Vec::new()) })
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
        self.desk.publish_group(&mut self.disk.hand());
    }

    /// Copies resolved operands. Two that become the same directory are merged one after the other.
    pub(crate) fn operands(&mut self, sources: &[PathBuf], to: &Where) {
        let mut rest = resolve(sources, to, self.policy, Op::Copy, DestLink::Through, &self.desk.tally);
        self.desk.claims = operands::claims(&mut rest);
        while !rest.is_empty() {
            let mut round: Vec<Operand> = Vec::new();
            let mut next = Vec::new();
            for operand in rest {
                if operands::meets(&round, &operand) {
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
                Err(e) => self.desk.tally.fail(e),
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
            let dir = place.dir.try_clone().map_err(|e| Error::os(Op::Open, place.node.path(), e))?;
            let mut dst = DestDir::existing(self.disk, dir, place.node.clone(), None, self.policy)?;
            dst.newcomers = place.newcomers.clone();
            Ok(dst)
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
                spot: operand.spot,
            })
        };
        match (&operand.source, &operand.dest) {
            (Source::Whole(src), Dest::Whole(place)) => {
                self.remember(place.dir.info().map_err(|e| Error::os(Op::Stat, place.node.path(), e))?.id());
                let src = src.with_ignores(&self.filter)?;
                Ok(Some(Task::Open { pair: pair(&src, open(place)?, true) }))
            }
            (Source::Whole(src), Dest::Named { dir, name }) => {
                let src = &src.with_ignores(&self.filter)?;
                let above = pair(src, open(dir)?, false);
                let dst = above.dst.enter(self.disk, name.as_name(), self.policy)?;
                self.remember(dst.info.id());
                let spot = self.desk.claims.below(&operand.spot, name.as_name());
                let inner = DirPair { above: Some(above), ..self.plain_pair(src, dst, info.dev, spot) };
                Ok(Some(Task::Open { pair: Arc::new(inner) }))
            }
            (Source::Named { dir, name, info, follow }, Dest::Named { dir: place, name: to }) => {
                if info.kind != Kind::Dir
                    && !self.filter.is_empty()
                    && dir.excludes(name.as_name(), false, &self.filter)
                {
                    self.desk.tally.item(Action::Excluded, 0, || (operand.path.clone(), PathBuf::new()));
                    return Ok(None);
                }
                let known = places.iter().find(|(p, pair)| {
                    Arc::ptr_eq(p, place)
                        && Arc::ptr_eq(&pair.src, dir)
                        && pair.spot.owner == operand.spot.owner
                });
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
                    let spot = self.desk.claims.below(&operand.spot, to.as_name());
                    Task::Dir { pair: above, name, to, operand: Some(operand.path.clone()), follow, spot }
                } else {
                    Task::One { pair: above, name, to, kind: info.kind, follow }
                }))
            }
            (Source::Named { .. }, Dest::Whole(place)) => {
                Err(Error::ours(Code::InTheWay, Op::CopyTo, place.node.path(), Reason::IsDirectory))
            }
        }
    }

    fn plain_pair(&self, src: &Arc<SourceDir>, dst: DestDir<Sys>, dev: u64, spot: Spot) -> DirPair {
        DirPair {
            src: src.clone(),
            dst,
            above: None,
            small: AtomicUsize::new(1),
            pending: AtomicUsize::new(1),
            ours: true,
            kept_some: AtomicBool::new(false),
            dev,
            spot,
        }
    }

    fn remember(&self, id: (u64, u64)) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    fn was_made(&self, id: (u64, u64)) -> bool {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    fn step(&self, hands: &Hands<'_, Task>, worker: &mut Worker, task: Task) {
        let stop = self.desk.tally.cancelled();
        match task {
            Task::Open { pair } => {
                if !stop {
                    self.list_dir(hands, worker, &pair);
                }
                self.desk.filled(&mut worker.hand, &pair);
                self.desk.release(&mut worker.hand, pair);
            }
            Task::Dir { pair, name, to, operand, follow, spot } => {
                if !stop {
                    self.enter(hands, worker, &pair, name.as_name(), to.as_name(), operand, follow, spot);
                } else {
                    pair.keep_some();
                    self.desk.passed_by(&mut worker.hand, &pair);
                }
                self.desk.release(&mut worker.hand, pair);
            }
            Task::Files { pair, names } => {
                if !stop {
                    self.batch(hands, &mut worker.hand, &pair, &names, 0..names.len());
                } else {
                    pair.keep_some();
                }
                self.desk.filled(&mut worker.hand, &pair);
                self.desk.release(&mut worker.hand, pair);
            }
            Task::One { pair, name, to, kind, follow } => {
                if !stop {
                    self.one(hands, worker, &pair, name.as_name(), to.as_name(), kind, follow);
                } else {
                    pair.keep_some();
                }
                self.desk.release(&mut worker.hand, pair);
            }
            Task::Second { pair, name, to, info } => {
                if !stop {
                    self.second_waiting(hands, worker, &pair, name.as_name(), to.as_name(), &info);
                } else {
                    pair.keep_some();
                }
                self.desk.release(&mut worker.hand, pair);
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
        spot: Spot,
    ) {
        let top = operand.is_some();
        let node = operand.map_or_else(|| pair.src.node.below(name), |path| Node::root(&path));
        let entered = pair.src.enter(name, node, follow, &self.filter).and_then(|src| {
            if self.policy.follow == Follow::Always && src.is_own_ancestor() {
                let note = Reason::LinkLoop;
                return Err(Error::ours(Code::Link, Op::Enter, src.node.path(), note));
            }
            if self.was_made(src.info.id()) {
                let note = Reason::MadeByCopyItself;
                return Err(Error::ours(Code::Refused, Op::Copy, src.node.path(), note));
            }
            Ok(src)
        });
        if entered.is_err() {
            self.desk.passed_by(&mut worker.hand, pair);
        }
        let entered = entered.and_then(|src| {
            let dst = match top {
                true => self.desk.enter_top(&pair.dst, to, &src.info)?,
                false => self.desk.enter(&mut worker.hand, pair, to, src.info.mode)?,
            };
            Ok((src, dst))
        });
        let (src, dst) = match entered {
            Ok(both) => both,
            Err(e) => {
                pair.keep_some();
                return self.desk.tally.fail(e);
            }
        };
        if top {
            self.remember(dst.info.id());
        }
        pair.pending.fetch_add(1, Ordering::Relaxed);
        let dev = if top { src.info.dev } else { pair.dev };
        let child = Arc::new(DirPair { above: Some(pair.clone()), ..self.plain_pair(&src, dst, dev, spot) });
        if self.policy.one_file_system && src.info.dev != dev {
            child.keep_some(); // made, not entered
        } else {
            self.list_dir(hands, worker, &child);
        }
        self.desk.filled(&mut worker.hand, &child);
        self.desk.release(&mut worker.hand, child);
    }

    /// Lists a source directory: directories become tasks, everything else is landed in batches on the way.
    fn list_dir(&self, hands: &Hands<'_, Task>, worker: &mut Worker, pair: &Arc<DirPair>) {
        let Worker { hand, list } = worker;
        let mut found = Entries::default();
        let listed = pair.src.list(list, self.policy.follow, &self.filter, |met| {
            if self.desk.tally.cancelled() {
                pair.keep_some();
                return false;
            }
            match met {
                Met::Entry { name, kind, ino } => {
                    if found.add(name, kind, ino) {
                        self.spread(hands, hand, pair, &mut found.names);
                    }
                }
                Met::Excluded(name) => {
                    pair.keep_some();
                    self.excluded(&pair.src, name);
                }
                Met::Failed(e) => {
                    pair.keep_some();
                    self.desk.tally.fail(e);
                }
            }
            true
        });
        if let Err(e) = listed {
            pair.keep_some();
            self.desk.tally.fail(e);
        }
        let Entries { dirs, mut names } = found;
        let follow = self.policy.follow == Follow::Always;
        pair.pending.fetch_add(dirs.len(), Ordering::Relaxed);
        pair.dst.expect(dirs.len());
        hands.push_all(dirs.into_iter().rev().map(|name| Task::Dir {
            pair: pair.clone(),
            spot: self.desk.claims.below(&pair.spot, name.as_name()),
            to: name.clone(),
            name,
            operand: None,
            follow,
        }));
        self.spread(hands, hand, pair, &mut names);
    }

    /// Lands what was listed, batch by batch, and hands batches to workers that have nothing to do. Leaves `names` empty.
    fn spread(&self, hands: &Hands<'_, Task>, hand: &mut Hand, pair: &Arc<DirPair>, names: &mut Names) {
        names.sort();
        let step = BATCH_NAMES.max(self.desk.room(pair));
        let mut start = 0;
        while start < names.len() {
            let end = (start + step).min(names.len());
            if end < names.len() && hands.hungry() {
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
        let room = self.desk.room(pair);
        let mut jobs = Vec::with_capacity(room.min(range.len()));
        for (name, kind) in range.filter_map(|index| names.get(index)) {
            if self.desk.tally.cancelled() {
                pair.keep_some();
                break;
            }
            let mut prepared = self.prepare(hands, pair, name, name, kind, follow, Way::Small);
            if let (Prepared::Later(_), false) = (&prepared, jobs.is_empty()) {
                self.land(hands, hand, pair, &mut jobs, Way::Small);
                prepared = self.prepare(hands, pair, name, name, kind, follow, Way::Small);
            }
            match prepared {
                Prepared::Job(job) => jobs.push(job),
                Prepared::Nothing => {}
                Prepared::Later(e) => {
                    pair.keep_some();
                    self.desk.tally.fail(e);
                }
            }
            if jobs.len() >= room {
                self.land(hands, hand, pair, &mut jobs, Way::Small);
            }
        }
        self.land(hands, hand, pair, &mut jobs, Way::Small);
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
            Prepared::Job(job) => self.land(hands, &mut worker.hand, pair, &mut vec![job], Way::Alone),
            Prepared::Nothing => {}
            Prepared::Later(e) => {
                pair.keep_some();
                self.desk.tally.fail(e);
            }
        }
    }

    /// Lands jobs; a source that changed while it was read gets a second chance.
    fn land(
        &self,
        hands: &Hands<'_, Task>,
        hand: &mut Hand,
        pair: &Arc<DirPair>,
        jobs: &mut Vec<Job<'_, Sys>>,
        way: Way,
    ) {
        let threads = if way == Way::Alone && hands.hungry() { self.policy.jobs } else { 1 };
        let again = self.desk.land(hand, pair, jobs, way, threads, true);
        let follow = self.follows(pair);
        for Again { src, to, kind } in again {
            match self.prepare(hands, pair, src.as_name(), to.as_name(), kind, follow, way) {
                Prepared::Job(job) => {
                    self.desk.land(hand, pair, &mut vec![job], way, threads, false);
                }
                Prepared::Nothing => {}
                Prepared::Later(e) => {
                    pair.keep_some();
                    self.desk.tally.fail(e);
                }
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
                self.desk.tally.fail(e);
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
        if kind == Kind::Dir {
            return Ok(None);
        }
        if self.desk.claim_name(pair, &pair.spot, name, to, self.source(pair, name))? == Claimed::Same {
            self.desk.came_before(pair);
            return Ok(None);
        }
        let (body, info) = match kind {
            Kind::File => {
                let (fd, info) = src.open_file(name, follow)?;
                if info.kind != Kind::File {
                    // Between listing and opening something else was put there; nothing of it was read.
                    let note = Reason::KindBecame.about(info.kind.word());
                    return Err(Error::ours(Code::SourceChanged, Op::Copy, src.node.join(name), note));
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
                (Body::Link(target.map_err(|e| Error::os(Op::ReadLink, src.node.join(name), e))?), info)
            }
            _ => {
                if !self.policy.specials {
                    let note = Reason::KindIs.about(kind.word());
                    return Err(Error::ours(Code::Special, Op::Copy, src.node.join(name), note));
                }
                (Body::Special, src.stat(name, follow)?)
            }
        };
        if info.kind != kind {
            let note = Reason::KindBecame.about(info.kind.word());
            return Err(Error::ours(Code::SourceChanged, Op::Copy, src.node.join(name), note));
        }
        let mut linked = false;
        // The last of several names: a move has taken the others away, and only the table knows of them.
        let last = || self.desk.beside.ledger.is_some() && self.desk.links.has(&info);
        if self.policy.preserve.links && (info.nlink > 1 || last()) {
            linked = info.nlink > 1 && self.desk.links.claim_first(&info);
            if !linked {
                // Links are made once their batch's own claims are settled, so that no worker waits for itself.
                pair.pending.fetch_add(1, Ordering::Relaxed);
                let (name, to) = (name.to_owned(), to.to_owned());
                hands.push_later(Task::Second { pair: pair.clone(), name, to, info });
                return Ok(None);
            }
        }
        let attributes = Attributes::At(&pair.src.dir, name);
        let job = self.desk.plan(pair, Candidate { name, to, info, body, attributes, way });
        if linked && !matches!(job, Ok(Some(_))) {
            self.desk.links.gave_up(&info);
        }
        job
    }

    /// What tells `name` of a source directory from others.
    fn source<'n>(&self, pair: &DirPair, name: Name<'n>) -> ((u64, u64), &'n [u8]) {
        (pair.src.info.id(), name.bytes())
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
        let follow = self.follows(pair);
        // It was looked at before the first name was done, maybe long ago. What it is now says whether the first's copy
        // is of the same content, and what a move may take away. Where it is something else it is landed as such.
        let now = match pair.src.stat(name, follow) {
            Ok(now) if now.id() == info.id() => now,
            Ok(_) => return self.one(hands, worker, pair, name, to, info.kind, follow),
            // Prepared again it would come back here, as long as this fails and opening does not.
            Err(e) => {
                pair.keep_some();
                return self.desk.tally.fail(e);
            }
        };
        let landed = match self.desk.links.claim_waiting(&now) {
            Claim::Second(landed) => landed,
            // The first could not be landed, or is of what this one was before: this one is the first now.
            Claim::First => {
                self.desk.links.gave_up(&now);
                return self.one(hands, worker, pair, name, to, info.kind, follow);
            }
        };
        self.desk.land_second(&mut worker.hand, pair, name, to, &now, &landed);
    }

    /// Copies names read from a list, each below `base`, with the directories that lead to it.
    fn list(
        &mut self,
        base: &std::path::Path,
        target: &Target,
        reader: &mut (dyn std::io::BufRead + Send),
        separator: u8,
    ) -> Result<()> {
        let Source::Whole(src) = self.base(base)? else {
            return Err(Error::ours(Code::NotDirectory, Op::ReadNamesBelow, base, Reason::NotADirectory));
        };
        let place = match operands::target(&operands::Reach::Anywhere, target, 1, DestLink::Through)? {
            Where::Into(place) | Where::Whole(place) => place,
            Where::Name { dir, name, .. } => {
                ensure_dir(&dir.dir, name.as_name(), 0o777)
                    .map_err(|e| Error::os(Op::MakeDirectory, dir.node.join(name.as_name()), e))?;
                match operands::target(&operands::Reach::Anywhere, target, 1, DestLink::Through)? {
                    Where::Into(place) | Where::Whole(place) => place,
                    Where::Name { dir, .. } => {
                        return Err(Error::ours(
                            Code::Io,
                            Op::Open,
                            dir.node.path(),
                            Reason::DirectoryWentAway,
                        ));
                    }
                }
            }
        };
        let dir = place.dir.try_clone().map_err(|e| Error::os(Op::Open, place.node.path(), e))?;
        let dst = DestDir::existing(self.disk, dir, place.node.clone(), None, self.policy)?.for_a_list();
        self.remember(dst.info.id());
        self.desk.claims = Claims::new(Meeting::Listed);
        let spot = self.desk.claims.operand(base, true);
        let root = Arc::new(DirPair { ours: false, ..self.plain_pair(&src, dst, src.info.dev, spot) });
        let mut names = ListedNames { reader, separator, base };
        let mut worker = self.worker();
        let mut leave = |pair| self.leave(&mut worker, pair);
        loop {
            let mut tasks = Vec::new();
            let mut chain = Chain::new(root.clone());
            let mut ended = true;
            for _ in 0..LIST_CHUNK {
                match names.next() {
                    None => break,
                    Some(Err(e)) => self.desk.tally.fail(e),
                    Some(Ok(parts)) => match self.listed(&mut leave, &mut chain, &parts) {
                        Ok(Some(task)) => tasks.push(task),
                        Ok(None) => {}
                        Err(e) => self.desk.tally.fail(e),
                    },
                }
                ended = false;
            }
            chain.end(&mut leave);
            self.work(tasks);
            if ended || self.desk.tally.cancelled() {
                self.desk.sync_names();
                return Ok(());
            }
        }
    }

    /// The directory that names of a list are relative to.
    fn base(&self, base: &std::path::Path) -> Result<Source> {
        let dir = fastcopy::dir::Dir::open(base).map_err(|e| Error::os(Op::OpenDirectory, base, e))?;
        Ok(Source::Whole(SourceDir::root(dir, Node::root(base))?.with_ignores(&self.filter)?))
    }

    /// Walks `chain` to the directory of one listed name and says what is to be done there.
    /// Nothing, when the filter leaves it out.
    fn listed(
        &self,
        leave: &mut impl FnMut(Arc<DirPair>),
        chain: &mut Chain<Arc<DirPair>>,
        parts: &[NameBuf],
    ) -> Result<Option<Task>> {
        let Some((last, dirs)) = parts.split_last() else {
            return Err(Error::ours(Code::Usage, Op::ReadNames, "", Reason::EmptyName));
        };
        let reached: Result<bool> = chain.go(dirs, leave, |pair, name| {
            if self.leaves_out(&pair.src, name, true) {
                return Ok(None);
            }
            let src = pair.src.enter(name, pair.src.node.below(name), false, &self.filter)?;
            let dst = pair.dst.enter(self.disk, name, self.policy)?;
            pair.pending.fetch_add(1, Ordering::Relaxed);
            let spot = self.desk.claims.below(&pair.spot, name);
            let inner = self.plain_pair(&src, dst, pair.dev, spot);
            Ok(Some(Arc::new(DirPair { above: Some(pair.clone()), ..inner })))
        });
        if !reached? {
            return Ok(None);
        }
        let pair = &*chain.last();
        let follow = self.policy.follow == Follow::Always;
        let info = pair.src.stat(last.as_name(), follow)?;
        if self.leaves_out(&pair.src, last.as_name(), info.kind == Kind::Dir) {
            return Ok(None);
        }
        if info.kind == Kind::Dir && !self.policy.recursive {
            return Err(Error::ours(
                Code::IsDirectory,
                Op::Copy,
                pair.src.node.join(last.as_name()),
                Reason::IsDirectory,
            ));
        }
        // Listed again, maybe spelled otherwise: it is copied once.
        let source = self.source(pair, last.as_name());
        if self.desk.claim_name(pair, &pair.spot, last.as_name(), last.as_name(), source)? != Claimed::First {
            return Ok(None);
        }
        pair.pending.fetch_add(1, Ordering::Relaxed);
        let (pair, name, to) = (pair.clone(), last.clone(), last.clone());
        let claims = &self.desk.claims;
        Ok(Some(match info.kind {
            Kind::Dir => {
                let spot = claims.another(&claims.below(&pair.spot, to.as_name()));
                Task::Dir { pair, name, to, operand: None, follow, spot }
            }
            kind => Task::One { pair, name, to, kind, follow },
        }))
    }

    /// Whether the filter leaves `name` out; it is told.
    fn leaves_out(&self, src: &SourceDir, name: Name<'_>, is_dir: bool) -> bool {
        let out = src.excludes(name, is_dir, &self.filter);
        if out {
            self.excluded(src, name);
        }
        out
    }

    fn excluded(&self, src: &SourceDir, name: Name<'_>) {
        self.desk.tally.item(Action::Excluded, 0, || (src.node.join(name), PathBuf::new()));
    }

    /// Leaves a directory of the chain: it is published, and sealed when its tasks are done.
    fn leave(&self, worker: &mut Worker, pair: Arc<DirPair>) {
        self.desk.filled(&mut worker.hand, &pair);
        self.desk.release(&mut worker.hand, pair);
    }

    /// Says what was done.
    pub(crate) fn end(mut self) -> Summary {
        if let Some(manifest) = self.desk.beside.manifest.take() {
            manifest.finish(&self.desk.tally);
        }
        self.desk.unmark();
        self.desk.end()
    }

    /// Takes away at the source what is safe at the destination.
    pub(crate) fn settle_ledger(&self) {
        if let Some(ledger) = &self.desk.beside.ledger {
            ledger.settle(self.desk.devices(), &self.desk.tally);
        }
    }
}
