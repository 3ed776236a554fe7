//! What becomes of each entry at the destination: planned, landed, told, and its directory published and sealed.
//!
//! Must not know where entries come from: a verb walks the source here or takes them off the wire, and hands them in.

use crate::disk::sys::{Hand, Sys};
use crate::disk::{Append, Attributes, Body, Bytes, Disk, Fault, Fill, Job, Keep, Place, Side};
use crate::disk::{tee, uncached};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Event, Question, Summary};
use crate::node::Node;
use crate::policy::{Collide, CopyPolicy, Durability, Follow, Landing, Resume, Sparse, Strictness, Verify};
use crate::receiver::claims::{Claimed, Claims, Meeting, Spot};
use crate::receiver::dest::DestDir;
use crate::receiver::devices::Devices;
use crate::receiver::land::{SYNC_ALL, land, land_resumable};
use crate::receiver::links::{FirstName, LinkTable};
use crate::receiver::newcomers::TAKEN;
use crate::receiver::plan::{Proof, Verdict, decide, same};
use crate::receiver::resumable::{self, Holes, Want};
use crate::receiver::tree;
use crate::stage;
use crate::tally::Tally;
use fastcopy::dir::{Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Files open at a time while a batch lands.
const BATCH_JOBS: usize = 16;
/// The same where names must be durable: one flush serves them all.
const BATCH_JOBS_DURABLE: usize = 256;
/// Directories that wait for one common sync before they are published (`--sync`).
const GROUP_DIRS: usize = 64;

/// A source directory, as far as the receiver must know it.
pub(crate) trait Origin: Send + Sync {
    fn info(&self) -> &Info;
    fn node(&self) -> &Arc<Node>;
    fn attributes(&self) -> Attributes<'_>;
    /// The hash of a file in it whose content did not have to cross; `None` when only a crossing could tell.
    fn hash(
        &self,
        name: Name<'_>,
        go_on: &dyn Fn() -> bool,
    ) -> std::result::Result<Option<blake3::Hash>, Fault>;
}

/// What a verb does beside landing: a move's ledger, a manifest.
pub(crate) trait Beside<S>: Sync {
    /// `src` of a directory is at the destination, on one of `devices`.
    fn landed(
        &self,
        slot: &Arc<Slot<S>>,
        src: Name<'_>,
        info: &Info,
        devices: &Devices<'_, Sys>,
        tally: &Tally<'_>,
    );
    /// All of a directory is, and nothing of it stays behind.
    fn dir_done(&self, slot: &Arc<Slot<S>>);
    /// Whether what has landed is taken away at the source.
    fn takes_away(&self) -> bool {
        false
    }
    /// A file's hash, at its destination.
    fn hashed(&self, dst: &Path, hash: &[u8; 32]) -> Result<()>;
}

/// A source directory and the directory it becomes.
pub(crate) struct Slot<S> {
    pub(crate) src: Arc<S>,
    pub(crate) dst: DestDir<Sys>,
    pub(crate) above: Option<Arc<Slot<S>>>,
    /// What is still to be put in before it gets its name.
    pub(crate) small: AtomicUsize,
    /// What is still to be done before it is sealed.
    pub(crate) pending: AtomicUsize,
    /// Sealed and counted in the end; an operand's surroundings are not.
    pub(crate) ours: bool,
    /// Something in it stays behind (excluded, skipped, failed): a move must not remove it.
    pub(crate) kept_some: AtomicBool,
    /// The device of the operand, for `-x`.
    pub(crate) dev: u64,
    /// Where it is among the names that sources claim.
    pub(crate) spot: Spot,
}

/// How an entry is being landed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// In a batch, counted before its directory gets a name.
    Small,
    /// By itself.
    Alone,
}

/// What is to be done for one entry, once it was compared with what is there.
#[allow(clippy::large_enum_variant)] // lives for one call; a box would be an allocation per file
pub(crate) enum Decision {
    /// Nothing is to be landed, which was told.
    Skip,
    /// It is landed where nothing is.
    Create,
    /// It is landed in the place of this, or added to it.
    Replace(Info),
}

/// One run at the destination.
pub(crate) struct Desk<'a, S, B> {
    pub(crate) disk: &'a Sys,
    pub(crate) policy: &'a CopyPolicy,
    pub(crate) tally: Tally<'a>,
    pub(crate) links: LinkTable<Sys>,
    pub(crate) claims: Claims,
    pub(crate) beside: B,
    /// Directories that wait for a sync before they are published.
    group: Mutex<Vec<Arc<Slot<S>>>>,
    /// The file systems that things are put on.
    pub(crate) devices: Devices<'a, Sys>,
    /// Directories marked as unfinished (`-C -r`, a move).
    marked: Mutex<Vec<(Arc<fastcopy::dir::Dir>, Arc<Node>)>>,
    /// Entries whose owner could not be kept; told once, not a thousand times.
    owners_lost: AtomicUsize,
}

/// A source that changed while it was read, or found no descriptor left, and gets a second chance.
pub(crate) struct Again {
    pub(crate) src: NameBuf,
    pub(crate) to: NameBuf,
    pub(crate) kind: Kind,
}

impl Again {
    fn of(job: &Job<'_, Sys>) -> Again {
        Again { src: job.src.to_owned(), to: job.name.to_owned(), kind: job.info.kind }
    }
}

impl<'a, S: Origin, B: Beside<S>> Desk<'a, S, B> {
    /// A run with nothing done yet.
    pub(crate) fn new(disk: &'a Sys, policy: &'a CopyPolicy, tally: Tally<'a>, beside: B) -> Desk<'a, S, B> {
        Desk {
            disk,
            policy,
            tally,
            links: LinkTable::new(),
            claims: Claims::new(Meeting::Never),
            beside,
            group: Mutex::new(Vec::new()),
            devices: Devices::new(disk),
            marked: Mutex::new(Vec::new()),
            owners_lost: AtomicUsize::new(0),
        }
    }

    /// Claims the name `to`, before anything is read, for `name`, which `source` tells from other sources of that name.
    /// [`Claimed::Same`]: that very source came before, and nothing more is to be done for it.
    ///
    /// # Errors
    /// The name is another source's.
    pub(crate) fn claim_name(
        &self,
        pair: &Slot<S>,
        spot: &Spot,
        name: Name<'_>,
        to: Name<'_>,
        source: impl std::hash::Hash,
    ) -> Result<Claimed> {
        let dst = || pair.dst.node.join(to);
        let is_there = || {
            let there = self.disk.look(&pair.dst.dir, to).map_err(|e| Error::os(Op::Stat, dst(), e))?;
            Ok(there.is_some())
        };
        self.claims.take(spot, to, source, is_there, || {
            let (dst, top) = (dst(), pair.dst.root.node.path());
            let below = dst.strip_prefix(&top).unwrap_or(&dst).to_owned();
            (dst, below, pair.src.node().join(name))
        })
    }

    /// One source that came before: it stays where it is, and is done.
    pub(crate) fn came_before(&self, pair: &Slot<S>) {
        pair.keep_some();
        self.tally.done(1);
    }

    /// Compares with what is there and makes the job, if there is to be one.
    #[allow(clippy::too_many_arguments)] // what a job is made of
    pub(crate) fn plan<'n>(
        &self,
        pair: &'n Arc<Slot<S>>,
        name: Name<'n>,
        to: Name<'n>,
        body: Body<'n, Sys>,
        attributes: Attributes<'n>,
        info: Info,
        way: Way,
    ) -> Result<Option<Job<'n, Sys>>> {
        let prove = |proof: Proof, there: &Info| self.prove(pair, &body, name, to, proof, there).map(Some);
        let there = match self.choose(pair, name, to, &info, body.is_file(), &prove)? {
            Decision::Skip => return Ok(None),
            Decision::Create => None,
            Decision::Replace(there) => Some(there),
        };
        self.job(pair, name, to, body, attributes, info, there, way).map(Some)
    }

    /// Compares with what is there. `prove` reads both sides; where it cannot yet, it returns `None`, what is there is
    /// what is to be replaced for now, and this is asked again once it can.
    pub(crate) fn choose(
        &self,
        pair: &Slot<S>,
        name: Name<'_>,
        to: Name<'_>,
        info: &Info,
        is_file: bool,
        prove: &dyn Fn(Proof, &Info) -> Result<Option<bool>>,
    ) -> Result<Decision> {
        let dst = &pair.dst;
        dst.guard_name(to).map_err(|e| e.and(&pair.src.node().join(name)))?;
        let there = if dst.fresh {
            None
        } else {
            self.disk.look(&dst.dir, to).map_err(|e| Error::os(Op::Stat, dst.node.join(to), e))?
        };
        let taken = || {
            Error::ours(Code::Refused, Op::Replace, dst.node.join(to), TAKEN).and(&pair.src.node().join(name))
        };
        let verdict = decide(info, there.as_ref(), self.policy);
        if let (Verdict::Replace | Verdict::Ask, Some(t)) = (verdict, &there)
            && dst.newcomers.open().is_taken(t, to, || self.disk.born(&dst.dir, to))
        {
            return Err(taken());
        }
        let verdict = match (verdict, &there) {
            (Verdict::KeepIf(proof, _), Some(there)) => match prove(proof, there)? {
                Some(holds) => verdict.settled(holds),
                None => return Ok(Decision::Replace(*there)),
            },
            (verdict, _) => verdict,
        };
        match verdict {
            Verdict::Make | Verdict::Replace => {}
            Verdict::Append { .. } if self.policy.collide != Collide::Ask => {}
            Verdict::Keep | Verdict::Merge => {
                if let Some(t) = &there
                    && !self.claim(dst, to, t)?
                {
                    return Err(taken());
                }
                let is_same = is_file && there.is_some_and(|t| same(info, &t));
                let sessions = self.policy.resume.has_sessions() && info.size > self.policy.checkpoint_bytes;
                if sessions || is_same && dst.is_unfinished(to) {
                    resumable::sweep(self.disk, &dst.dir, &dst.home, to)
                        .map_err(|f| f.told(|| pair.src.node().join(name), || dst.node.join(to)))?;
                }
                if is_same {
                    self.hash_again(pair, name, to);
                }
                if self.is_first_name(info, there.as_ref()) {
                    self.first_landed(info, dst, to);
                }
                self.keep(pair, name, to, info);
                return Ok(Decision::Skip);
            }
            Verdict::Ask | Verdict::Append { .. } | Verdict::KeepIf(..) => {
                if !self.tally.ask(Question::Replace(dst.node.join(to))) {
                    self.keep(pair, name, to, info);
                    return Ok(Decision::Skip);
                }
            }
            Verdict::Refuse(code, why) => {
                let at = dst.node.join(to);
                return Err(if there.is_some_and(|t| self.appends(is_file, &t)) {
                    Error::ours(code, Op::AppendTo, at, why)
                } else {
                    Error::ours(code, Op::Replace, at, why).and(&pair.src.node().join(name))
                });
            }
        }
        Ok(there.map_or(Decision::Create, Decision::Replace))
    }

    /// Enters `there` into the book as what is kept, or written into, for the source that becomes `to`. `false`: it is
    /// there for another source already, and cannot be for two, or which of them came first would say what is told. With
    /// several names it is several places, as with cp.
    fn claim(&self, dst: &DestDir<Sys>, to: Name<'_>, there: &Info) -> Result<bool> {
        if there.nlink != 1 {
            return Ok(true);
        }
        let born = self.born(dst, to)?;
        let mut book = dst.newcomers.open();
        if book.is_taken(there, to, || Ok(born)) {
            return Ok(false);
        }
        book.add(there, to, born);
        Ok(true)
    }

    /// Whether what was kept is as good as landed, so that further names of its source become links to it: the same by
    /// what the run was told to compare by. Else an interrupted copy that goes on would tear names apart.
    fn is_first_name(&self, info: &Info, there: Option<&Info>) -> bool {
        self.policy.preserve.links && info.nlink > 1 && self.is_there(info, there)
    }

    /// Whether the run, which compares, finds the source's very file in `there`. Targets of symbolic links are compared
    /// only by a run that replaces what differs.
    fn is_there(&self, info: &Info, there: Option<&Info>) -> bool {
        let compared = match self.policy.collide {
            Collide::IfDifferent => true,
            Collide::IfOlder => info.kind != Kind::Link,
            Collide::Replace | Collide::Keep | Collide::Ask => false,
        };
        compared && there.is_some_and(|there| same(info, there))
    }

    /// Further names of the same source become links to `name` in `dst`.
    fn first_landed(&self, info: &Info, dst: &DestDir<Sys>, name: Name<'_>) {
        // Links that are followed are names too, and they are not counted.
        let names = if self.policy.follow == Follow::Never { info.nlink } else { u64::MAX };
        self.links.landed(info, names, dst, name);
    }

    fn appends(&self, is_file: bool, there: &Info) -> bool {
        is_file && self.policy.resume.appends() && there.kind == Kind::File
    }

    /// Since when what is there has been there.
    fn born(&self, dst: &DestDir<Sys>, to: Name<'_>) -> Result<u64> {
        self.disk.born(&dst.dir, to).map_err(|e| Error::os(Op::Stat, dst.node.join(to), e))
    }

    /// What is to be landed, once its content is at hand.
    #[allow(clippy::too_many_arguments)] // what a job is made of
    pub(crate) fn job<'n>(
        &self,
        pair: &'n Arc<Slot<S>>,
        name: Name<'n>,
        to: Name<'n>,
        body: Body<'n, Sys>,
        attributes: Attributes<'n>,
        info: Info,
        there: Option<Info>,
        way: Way,
    ) -> Result<Job<'n, Sys>> {
        let dst = &pair.dst;
        let is_file = body.is_file();
        let appends = there.is_some_and(|t| self.appends(is_file, &t));
        let in_place = self.policy.landing == Landing::InPlace
            && is_file
            && there.is_some_and(|t| !matches!(t.kind, Kind::Link | Kind::Dir));
        let place = if way == Way::Small && dst.is_private() {
            Place::Final
        } else if appends || in_place {
            // Two sources that are one name here would be written into each other.
            if let Some(t) = &there
                && !self.claim(dst, to, t)?
            {
                return Err(Error::ours(Code::Refused, Op::Replace, dst.node.join(to), TAKEN));
            }
            Place::There
        } else {
            let stage = if dst.sole { dst.home.stage() } else { stage::random() };
            Place::Stage(stage.ok_or_else(|| {
                Error::ours(Code::Io, Op::NameAStageFor, dst.node.join(to), Reason::NoNameForStage)
            })?)
        };
        Ok(Job {
            src: name,
            only_new: self.policy.collide.is_only_new() && there.is_none(),
            force: self.policy.force,
            append: there
                .filter(|_| appends)
                .map(|t| Append { at: t.size, proved: self.policy.resume == Resume::Append }),
            ..Job::new(to, place, info, there, body, attributes)
        })
    }

    /// Files that are open at a time while a batch lands in `pair`.
    pub(crate) fn room(&self, pair: &Slot<S>) -> usize {
        // Where names are replaced, or must be durable, one flush serves a whole batch.
        if pair.dst.is_private() { BATCH_JOBS } else { BATCH_JOBS_DURABLE }
    }

    /// Whether the symbolic link that is there leads where `target` says.
    pub(crate) fn leads_to(&self, pair: &Slot<S>, to: Name<'_>, target: &CStr) -> Result<bool> {
        let there = pair.dst.dir.read_link(to);
        there.map(|there| *there == *target).map_err(|e| Error::os(Op::ReadLink, pair.dst.node.join(to), e))
    }

    /// Whether what is there has what of the source is to be proved.
    fn prove(
        &self,
        pair: &Slot<S>,
        body: &Body<'_, Sys>,
        name: Name<'_>,
        to: Name<'_>,
        proof: Proof,
        there: &Info,
    ) -> Result<bool> {
        match (proof, body) {
            (Proof::Target, Body::Link(target)) => return self.leads_to(pair, to, target),
            // A beginning is proved when it is added to, on the very file that is written into.
            (Proof::Beginning, _) => return Ok(true),
            (_, Body::Link(_) | Body::Special | Body::HardLink(..)) => return Ok(true),
            (_, Body::File(_) | Body::Bytes(_) | Body::Wire(_)) => {}
        }
        let file = pair.dst.dir.open_file(to).map_err(|e| Error::os(Op::Open, pair.dst.node.join(to), e))?;
        let told = |f: Fault| f.told(|| pair.src.node().join(name), || pair.dst.node.join(to));
        let go_on = |_: u64| !self.tally.cancelled();
        let of_source = match body {
            Body::File(src) => tee::hash(src, &go_on).map_err(told)?,
            Body::Bytes(bytes) => blake3::hash(bytes),
            Body::Wire(source) => {
                return tee::same_blocks(*source, &file, there.size, &go_on).map_err(told);
            }
            Body::Link(_) | Body::Special | Body::HardLink(..) => return Ok(true),
        };
        Ok(of_source == tee::hash(&file, &go_on).map_err(told)?)
    }

    /// Leaves what is there alone. Its bytes count as done: they were found too, and a percentage is of those.
    pub(crate) fn keep(&self, pair: &Slot<S>, name: Name<'_>, to: Name<'_>, info: &Info) {
        pair.keep_some();
        if info.kind == Kind::File {
            self.tally.watch.progress.was_there(info.size);
        }
        // R3: a run that was killed may have named it and not have come to its sync; exit 0 speaks for it too.
        self.owe(&pair.dst);
        self.tally.kept.fetch_add(1, Ordering::Relaxed);
        self.tally.done(1);
        self.tally.item(Action::Kept, 0, || (pair.src.node().join(name), pair.dst.node.join(to)));
    }

    /// Lands jobs and tells how it went. With `again`, those that deserve a second chance come back instead.
    /// `threads` share a large file.
    pub(crate) fn land(
        &self,
        hand: &mut Hand,
        pair: &Arc<Slot<S>>,
        jobs: &mut Vec<Job<'_, Sys>>,
        way: Way,
        threads: usize,
        again: bool,
    ) -> Vec<Again> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let policy = self.policy;
        let progress = self.tally.watch.progress;
        let observe = |bytes: u64| {
            progress.bytes_done.fetch_add(bytes, Ordering::Relaxed);
            !self.tally.cancelled()
        };
        let how = Fill {
            reflink: policy.reflink,
            sparse: policy.sparse,
            verify: policy.verify,
            hash: policy.verify != Verify::Off || policy.hashes,
            durability: policy.durability,
            threads,
            changing: policy.io.changing,
            dev: pair.dst.info.dev,
            observe: &observe,
        };
        if way == Way::Alone && self.is_resumable(jobs) {
            return self.land_resumable(hand, pair, jobs, threads, again);
        }
        let private = way == Way::Small && pair.dst.is_private();
        let owed = land(self.disk, hand, &pair.dst, jobs, &how, policy.durability, private);
        // R5: what a sync of all of it loses may be any run's, and one of the directory loses names made before as well.
        let lost_all = |f: &Fault| f.op == SYNC_ALL;
        if owed.is_err() || jobs.iter().any(|j| j.fault.as_ref().is_some_and(lost_all)) {
            self.devices.doubt(&pair.dst);
        }
        match owed {
            Ok(true) => self.owe(&pair.dst),
            Ok(false) => {}
            Err(e) => self.tally.fail(Error::os(Op::SyncDirectory, pair.dst.node.path(), e)),
        }
        let mut second_chance = Vec::new();
        for job in jobs.drain(..) {
            // By itself a file needs two descriptors, in a batch it may have found none left.
            let worth_it = |f: &Fault| matches!(f.code, Code::SourceChanged | Code::Limit);
            let changed = job.fault.as_ref().is_some_and(worth_it);
            let first_name = policy.preserve.links && job.info.nlink > 1;
            if changed && again {
                if first_name {
                    self.links.gave_up(&job.info);
                }
                second_chance.push(Again::of(&job));
                continue;
            }
            self.told(pair, job, first_name);
        }
        second_chance
    }

    /// Whether this one gets a session: a large file that is staged.
    pub(crate) fn is_resumable(&self, jobs: &[Job<'_, Sys>]) -> bool {
        let [job] = jobs else { return false };
        self.policy.resume.has_sessions()
            && job.info.size > self.policy.checkpoint_bytes
            && job.body.is_file()
            && matches!(job.place, Place::Stage(_))
    }

    pub(crate) fn land_resumable(
        &self,
        hand: &mut Hand,
        pair: &Arc<Slot<S>>,
        jobs: &mut Vec<Job<'_, Sys>>,
        threads: usize,
        again: bool,
    ) -> Vec<Again> {
        let Some(mut job) = jobs.pop() else { return Vec::new() };
        let progress = self.tally.watch.progress;
        let observe = |bytes: u64| {
            progress.bytes_done.fetch_add(bytes, Ordering::Relaxed);
            !self.tally.cancelled()
        };
        let body = std::mem::replace(&mut job.body, Body::Special);
        let source: &dyn Bytes = match &body {
            Body::File(file) => file,
            Body::Wire(source) => *source,
            _ => return Vec::new(),
        };
        let sparse = self.policy.sparse;
        let holes = sparse == Sparse::Always
            || (sparse == Sparse::Auto && job.info.blocks.saturating_mul(512) < job.info.size);
        // With a session everything is on the medium before it is counted.
        let leave = source.file().and_then(|file| {
            uncached::leave(self.policy.io.cache, job.info.size, true, || {
                uncached::is_absent(file, job.info.size)
            })
        });
        let want = Want {
            name: job.name,
            home: pair.dst.home,
            info: job.info,
            source,
            resume: self.policy.resume,
            checkpoint_bytes: self.policy.checkpoint_bytes,
            holes: if holes { Holes::Make } else { Holes::Fill },
            threads,
            me: self.policy.me,
            leave,
            observe: &observe,
            met: &|bytes| progress.was_there(bytes),
        };
        // Attributes are read from the open source while sealing.
        match &body {
            Body::File(file) => match file.try_clone() {
                Ok(fd) => job.body = Body::File(fd),
                Err(e) => job.fault = Some(Fault::os(Side::Source, Op::Open, e)),
            },
            Body::Wire(source) => job.body = Body::Wire(*source),
            _ => {}
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
            return vec![Again::of(&job)];
        }
        self.told(pair, job, first_name);
        Vec::new()
    }

    /// Counts and tells one job's end.
    pub(crate) fn told(&self, pair: &Arc<Slot<S>>, job: Job<'_, Sys>, first_name: bool) {
        let (src_name, dst_name) = (job.src, job.name);
        let src = || pair.src.node().join(src_name);
        let dst = || pair.dst.node.join(dst_name);
        let linking = matches!(job.body, Body::HardLink(..));
        if let Some(fault) = job.fault {
            pair.keep_some();
            if first_name && !linking {
                self.links.gave_up(&job.info);
            }
            // A lost connection is told once, by the thread that lost it.
            if !matches!(fault.code, Code::Interrupted | Code::Lost) {
                self.tally.fail(fault.told(src, dst));
            }
        } else {
            if first_name && !linking {
                self.first_landed(&job.info, &pair.dst, dst_name);
            }
            let action = match (&job.body, job.info.kind) {
                (Body::HardLink(..), _) => Action::HardLinked,
                (_, Kind::File) => Action::Copied,
                (_, Kind::Link) => Action::MadeLink,
                _ => Action::MadeSpecial,
            };
            if action == Action::Copied {
                self.disk.rings.landed();
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
            if job.changed {
                let note = Reason::GrewWhileRead;
                self.tally.warn(Error::ours(Code::SourceChanged, Op::CopyAllOf, src(), note));
            }
            if linking && job.info.kind == Kind::File {
                self.hash_again(pair, src_name, dst_name);
            }
            self.beside.landed(pair, src_name, &job.info, &self.devices, &self.tally);
            // It may have been begun with a session, and was finished without one.
            if pair.dst.is_unfinished(dst_name) {
                self.finished_otherwise(pair, src_name, dst_name);
            }
        }
        self.lost(job.lost, src, dst);
    }

    /// Takes away the session that a killed run left for what is complete as `to`.
    fn finished_otherwise(&self, pair: &Slot<S>, name: Name<'_>, to: Name<'_>) {
        if let Err(fault) = resumable::sweep(self.disk, &pair.dst.dir, &pair.dst.home, to) {
            self.tally.fail(fault.told(|| pair.src.node().join(name), || pair.dst.node.join(to)));
        }
    }

    /// Tells the hash of what is at `dst`, where it is wanted.
    pub(crate) fn hashed(&self, dst: impl Fn() -> PathBuf, hash: &blake3::Hash) {
        if !self.policy.hashes {
            return;
        }
        let hash = *hash.as_bytes();
        if let Err(e) = self.beside.hashed(&dst(), &hash) {
            self.tally.lost(e);
        }
        self.tally.watch.front.event(Event::Hashed { dst: dst(), hash });
    }

    /// The same for what is there without having been copied: what is the same as before, and further names. The
    /// source is hashed, so that a copy that only looks the same is found out by a check.
    pub(crate) fn hash_again(&self, pair: &Slot<S>, name: Name<'_>, to: Name<'_>) {
        if !self.policy.hashes {
            return;
        }
        let dst = || pair.dst.node.join(to);
        let go_on = || !self.tally.cancelled();
        let hash = match pair.src.hash(name, &go_on) {
            // The source is far away: what is here is hashed, which says what is here and nothing about the source.
            Ok(None) => match pair.dst.dir.open_file(to) {
                Ok(file) => tee::hash(&file, &|_| go_on()).map(Some),
                Err(e) => Err(Fault::os(Side::Dest, Op::Open, e)),
            },
            other => other,
        };
        match hash {
            Ok(Some(hash)) => self.hashed(dst, &hash),
            Ok(None) => {}
            Err(fault) if fault.code == Code::Interrupted => {}
            Err(fault) => self.tally.fail(fault.told(|| pair.src.node().join(name), dst)),
        }
    }

    /// Tells what of the metadata could not be kept. Owners that only root could have set come as one sentence in
    /// the end.
    pub(crate) fn lost(&self, lost: Vec<Fault>, src: impl Fn() -> PathBuf, dst: impl Fn() -> PathBuf) {
        for fault in lost {
            let denied = fault.source.as_ref().is_some_and(|e| Code::of(e) == Code::Denied);
            if denied && fault.op == Op::SetOwnerOf {
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

    /// Makes a second name of what `landed`.
    pub(crate) fn land_second(
        &self,
        hand: &mut Hand,
        pair: &Arc<Slot<S>>,
        name: Name<'_>,
        to: Name<'_>,
        info: &Info,
        landed: &FirstName<Sys>,
    ) {
        if self.policy.resume.has_sessions() && info.size > self.policy.checkpoint_bytes {
            // An earlier run may have begun with this name.
            self.finished_otherwise(pair, name, to);
        }
        match self.second(pair, name, to, info, landed) {
            Ok(Some((dir, job))) => {
                let mut jobs = vec![Job { body: Body::HardLink(&*dir, landed.name()), ..job }];
                self.land(hand, pair, &mut jobs, Way::Alone, 1, false);
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
        pair: &'n Arc<Slot<S>>,
        name: Name<'n>,
        to: Name<'n>,
        info: &Info,
        landed: &FirstName<Sys>,
    ) -> Result<Option<(Arc<fastcopy::dir::Dir>, Job<'n, Sys>)>> {
        let fail = |e| Error::os(Op::FindTheFirstNameOf, pair.src.node().join(name), e);
        let mut dir = landed.open(self.disk).map_err(fail)?;
        let mut first = self.disk.look(&dir, landed.name()).map_err(fail)?;
        if first.is_none() {
            dir = landed.open_by_names(self.disk).map_err(fail)?;
            first = self.disk.look(&dir, landed.name()).map_err(fail)?;
        }
        let there =
            self.disk.look(&pair.dst.dir, to).map_err(|e| Error::os(Op::Stat, pair.dst.node.join(to), e))?;
        if let (Some(first), Some(there)) = (first, there)
            && first.id() == there.id()
        {
            // Already the same file; renaming one name of an inode over another does nothing at all (rename(2)).
            self.tally.others.fetch_add(1, Ordering::Relaxed);
            self.tally.done(1);
            if info.kind == Kind::File {
                self.hash_again(pair, name, to);
            }
            self.beside.landed(pair, name, info, &self.devices, &self.tally);
            return Ok(None);
        }
        let nothing = Attributes::Carried(&[]); // a second name shares what the first has
        if self.is_there(info, there.as_ref()) {
            // A file of its own that looks the same was landed by an earlier run, which met this name first: what is
            // wanted is one file, and the other name's is as good.
            let job = self.job(pair, name, to, Body::Special, nothing, *info, there, Way::Alone)?;
            return Ok(Some((dir, job)));
        }
        let job = self.plan(pair, name, to, Body::Special, nothing, *info, Way::Alone)?;
        Ok(job.map(|job| (dir, job)))
    }

    /// Goes into the directory `name` of `above`, of which the source has `mode`, making it when it is not there. To be
    /// called once for each that [`DestDir::expect`] was told of, or else [`Desk::passed_by`].
    pub(crate) fn enter(
        &self,
        hand: &mut Hand,
        above: &Arc<Slot<S>>,
        name: Name<'_>,
        mode: u32,
    ) -> Result<DestDir<Sys>> {
        let begun = above.dst.begin();
        if begun.publish {
            self.publish_top(hand, above);
        }
        if !begun.inside {
            return above.dst.enter(self.disk, name, self.policy);
        }
        let entered = above.dst.enter_inside(self.disk, name, self.policy, mode);
        if entered.is_err() {
            self.filled_with(hand, above);
        }
        entered
    }

    /// A directory that was listed in `above` is not entered.
    pub(crate) fn passed_by(&self, hand: &mut Hand, above: &Arc<Slot<S>>) {
        let begun = above.dst.begin();
        if begun.publish {
            self.publish_top(hand, above);
        }
        if begun.inside {
            self.filled_with(hand, above);
        }
    }

    /// One of the things that had to be in `pair` before it gets its name is in it.
    pub(crate) fn filled(&self, hand: &mut Hand, pair: &Arc<Slot<S>>) {
        if pair.small.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.filled_with(hand, pair);
        }
    }

    /// One of the directories that appear together with `pair` gets no more small files.
    fn filled_with(&self, hand: &mut Hand, pair: &Arc<Slot<S>>) {
        if pair.dst.filled() {
            self.publish_top(hand, pair);
        }
    }

    /// Publishes the directory that `pair` appears with.
    fn publish_top(&self, hand: &mut Hand, pair: &Arc<Slot<S>>) {
        let mut top = pair;
        while let Some(above) = top.above.as_ref().filter(|_| !top.dst.is_staged()) {
            top = above;
        }
        if self.policy.durability != Durability::Medium {
            return self.publish(top);
        }
        // Its files must be on the medium before the name leads to them; one sync serves many directories.
        top.pending.fetch_add(1, Ordering::Relaxed);
        let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        group.push(top.clone());
        let full = group.len() >= GROUP_DIRS;
        drop(group);
        if full {
            self.publish_group(hand);
        }
    }

    pub(crate) fn publish(&self, pair: &Slot<S>) {
        let Some(above) = &pair.above else { return };
        if let Err(e) = pair.dst.publish(self.disk, &above.dst) {
            pair.keep_some();
            self.tally.fail(e);
        }
    }

    pub(crate) fn publish_group(&self, hand: &mut Hand) {
        loop {
            let group = std::mem::take(&mut *self.group.lock().unwrap_or_else(PoisonError::into_inner));
            if group.is_empty() {
                return;
            }
            // R2: where something is mounted inside the destination they are on several file systems.
            for (_, e) in self.devices.sync(group.iter().map(|pair| &pair.dst)) {
                self.tally.fail(e);
            }
            for pair in group {
                if self.devices.is_sure(&pair.dst) {
                    self.owe(&pair.dst);
                } else {
                    // R5: what failed to reach the medium once is thrown away, never tried again.
                    pair.dst.poison();
                }
                self.publish(&pair);
                self.release(hand, pair);
            }
        }
    }

    /// One of the things that had to be done before `pair` is sealed is done; so may be its parents.
    pub(crate) fn release(&self, hand: &mut Hand, pair: Arc<Slot<S>>) {
        let mut pair = pair;
        while pair.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            if pair.ours {
                self.seal(hand, &pair);
            }
            let Some(above) = pair.above.clone() else { return };
            if pair.kept_some.load(Ordering::Relaxed) {
                above.keep_some();
            }
            pair = above;
        }
    }

    /// Everything in it is done: owner, mode, times.
    pub(crate) fn seal(&self, hand: &mut Hand, pair: &Arc<Slot<S>>) {
        let dst = &pair.dst;
        if dst.is_poisoned() {
            if let Some(Err(e)) = pair.above.as_ref().map(|above| dst.take_back(self.disk, &above.dst)) {
                self.tally.fail(e);
            }
            return;
        }
        let settled = match &pair.above {
            Some(above) => dst.settle(self.disk, &above.dst, self.policy.collide.is_only_new()),
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
        let ours = dst.fresh || dst.made || dst.again || dst.goes_on;
        let last = dst.is_done_with();
        if ours || preserve.mode || preserve.owner || preserve.times || preserve.xattr {
            // What a list comes back to is still to be written to.
            if last {
                let dir = moved.as_ref().unwrap_or(&dst.dir);
                let keep = Keep { was_there: !ours, ..dst.keep };
                let lost = self.disk.seal_dir(hand, dir, pair.src.attributes(), pair.src.info(), &keep);
                self.lost(lost, || pair.src.node().path(), || dst.node.path());
            }
            // R3: after the last of its names.
            self.owe(dst);
        }
        if dst.fresh || dst.made {
            self.tally.dirs.fetch_add(1, Ordering::Relaxed);
            self.tally.item(Action::MadeDir, 0, || (pair.src.node().path(), dst.node.path()));
        }
        self.tally.done(1);
        if !pair.kept_some.load(Ordering::Relaxed) {
            self.beside.dir_done(pair);
        }
    }

    /// Goes into the directory that an operand becomes. With sessions, and by a move, it is marked: until the run is
    /// complete, the same command means this directory.
    pub(crate) fn enter_top(&self, above: &DestDir<Sys>, to: Name<'_>, src: &Info) -> Result<DestDir<Sys>> {
        if !self.policy.resume.has_sessions() && !self.beside.takes_away() {
            return above.enter(self.disk, to, self.policy);
        }
        let mut dst = above.enter_marked(self.disk, to, self.policy, &|dir| tree::mark(dir, src))?;
        dst.goes_on = !dst.made && tree::is_marked(&dst.dir, src);
        if !dst.made && !dst.goes_on && self.beside.takes_away() {
            // An empty directory that was there already would not be empty any more when the same command is run again.
            let fail = |op: Op| {
                let path = dst.node.path();
                move |e| Error::os(op, path, e)
            };
            if dst.dir.reopen().and_then(|dir| tree::is_empty(&dir)).map_err(fail(Op::ListDirectory))? {
                tree::mark(&dst.dir, src).map_err(fail(Op::Mark))?;
            }
        }
        if dst.made || tree::is_marked(&dst.dir, src) {
            let mut marked = self.marked.lock().unwrap_or_else(PoisonError::into_inner);
            marked.push((dst.dir.clone(), dst.node.clone()));
        }
        Ok(dst)
    }

    /// Names were made in `dir`, or found, that are not known to be on the medium.
    fn owe(&self, dir: &DestDir<Sys>) {
        if self.policy.durability == Durability::Medium {
            self.devices.owe(dir);
        }
    }

    /// Makes the names durable that were not synced one by one: the last thing before exit 0 with `--sync`.
    pub(crate) fn sync_names(&self) {
        for (_, e) in self.devices.sync_owed() {
            self.tally.fail(e);
        }
    }

    /// The marks of what is complete, to be taken away after everything else: from then on the same command means
    /// something else. What is not complete keeps them.
    pub(crate) fn marks(&self) -> Marks {
        let marked = std::mem::take(&mut *self.marked.lock().unwrap_or_else(PoisonError::into_inner));
        Marks(if self.tally.all_well() { marked } else { Vec::new() })
    }

    /// Takes them away.
    pub(crate) fn unmark(&self) {
        if let Err(e) = self.marks().clear() {
            self.tally.fail(e);
        }
    }

    /// Says what was done.
    pub(crate) fn end(self) -> Summary {
        let owners = self.owners_lost.load(Ordering::Relaxed);
        if owners > 0 {
            let note = Reason::OwnersNotKept.about(owners);
            self.tally.lost(Error::ours(Code::MetadataLost, Op::KeepEveryOwner, "", note));
        }
        if let Some(engine) = self.disk.rings.said() {
            self.tally.watch.front.event(Event::Engine(engine));
        }
        self.tally.summary()
    }
}

/// The marks in directories that are complete by now.
#[must_use]
pub(crate) struct Marks(Vec<(Arc<fastcopy::dir::Dir>, Arc<Node>)>);

impl Marks {
    /// None.
    pub(crate) const NONE: Marks = Marks(Vec::new());

    /// Takes them away, also from the medium.
    pub(crate) fn clear(self) -> Result<()> {
        for (dir, node) in self.0 {
            let cleared = tree::unmark(&dir).and_then(|()| fastcopy::sync::all(&*dir));
            cleared.map_err(|e| Error::os(Op::Unmark, node.path(), e))?;
        }
        Ok(())
    }
}

impl<S> Slot<S> {
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

    pub(crate) fn keep_some(&self) {
        self.kept_some.store(true, Ordering::Relaxed);
    }
}
