//! Where entries are landed and told, whatever way they came: small files in batches, large ones with a session, second
//! names as links.
//!
//! Must not know where entries come from: a verb walks the source here or takes them off the wire, and hands them in.

use crate::disk::sys::Sys;
use crate::disk::{Attributes, Body, Bytes, Dirs, Disk, Fault, Fill, Job, Placement, Side};
use crate::disk::{tee, uncached};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Event, Question, Summary};
use crate::policy::{Collide, CopyPolicy, Durability, Follow, Old, Sharing, Sparse, Verify};
use crate::receiver::choose::{Candidate, Choice, Chooser, Offered, Way};
use crate::receiver::claims::{Claimed, Claims, Meeting, Spot};
use crate::receiver::dest::{DestDir, MoveState};
use crate::receiver::devices::Devices;
use crate::receiver::dir_task::{Origin, PairedDirs, Slot};
use crate::receiver::directories::{Directories, Landed, Marks, SlotHold};
use crate::receiver::land::{Outdated, SYNC_ALL, errno_of, is_left, land, land_resumable, outdated};
use crate::receiver::links::{FirstName, LinkTable};
use crate::receiver::losses::MetadataLosses;
use crate::receiver::plan::{Otherwise, Proof, Verdict, decide, same, stale_by};
use crate::receiver::resumable::{self, Holes, Want};
use crate::tally::Tally;
use fastcopy::Rung;
use fastcopy::dir::{Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind, Time};
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Names that one file may have: ext4 has the fewest of those that people copy to, and some are for others.
const NAMES_MAX: u64 = 60_000;
/// Files open at a time while a batch lands.
const BATCH_JOBS: usize = 16;
/// The same where names must be durable: one flush serves them all.
const BATCH_JOBS_DURABLE: usize = 256;

/// What a source was when it was read, and the hash of what was read.
pub(crate) type SourceSeen<'s> = (&'s Info, Option<&'s blake3::Hash>);

/// What a verb does beside landing: a move's ledger, a manifest.
pub(crate) trait LandHooks<S, D: Disk = Sys>: Sync {
    /// `src` of a directory is at the destination, on one of `devices`; what was read of it has this hash, where that is
    /// wanted.
    fn landed(
        &self,
        slot: &Arc<Slot<S, D>>,
        src: Name<'_>,
        of: SourceSeen<'_>,
        devices: &Devices<'_, D>,
        tally: &Tally<'_>,
    );
    /// What is there for `src`, which was `info`, stays as it is.
    fn kept(&self, _slot: &Slot<S, D>, _src: Name<'_>, _info: &Info) {}
    /// All of a directory is, and nothing of it stays behind.
    fn dir_done(&self, slot: &Arc<Slot<S, D>>);
    /// Whether what may never come is waited for: the other program, if there is one, has not left.
    fn is_attended(&self) -> bool {
        true
    }
    /// Whether what has landed is taken away at the source.
    fn takes_away(&self) -> bool {
        false
    }
    /// Whether it reads both sides of every file before it takes away what an earlier run has copied.
    fn proves(&self) -> bool {
        false
    }
    /// A directory that is not empty has the name `to`, where the source has something else. Whether it is dealt with once
    /// everything else is there.
    ///
    /// # Errors
    /// It holds something that stays.
    fn in_the_way(&self, _slot: &Slot<S, D>, _to: Name<'_>, _there: &Info) -> Result<bool> {
        Ok(false)
    }
    /// What jobs are about to replace is kept elsewhere, where that is wanted. A job whose old one cannot be kept has a fault.
    fn keep_old(&self, _: &Slot<S, D>, _jobs: &mut [Job<'_, D>]) {}
    /// What jobs with a fault have not replaced after all need not be kept.
    fn give_back(&self, _: &Slot<S, D>, _jobs: &mut [Job<'_, D>]) {}
    /// Keeps an empty directory that is `there` elsewhere, where that is wanted. Whether it is gone from here.
    ///
    /// # Errors
    /// It cannot be kept.
    fn moves_away(&self, _: &Slot<S, D>, _to: Name<'_>, _there: &Info) -> Result<bool> {
        Ok(false)
    }
    /// A file's hash, at its destination.
    fn hashed(&self, dst: &Path, hash: &[u8; 32]) -> Result<()>;
}

/// What is to be done for one entry, once it was compared with what is there and the user was asked.
#[allow(clippy::large_enum_variant)] // lives for one call; a box would be an allocation per file
pub(crate) enum Decision {
    /// Nothing is to be landed, which was told.
    Skip,
    /// It is landed where nothing is.
    Create,
    /// It is landed in the place of this, or added to it.
    Replace(Info),
    /// This has the same content already, and gets the source's attributes.
    Update(Info),
}

/// One run at the destination.
pub(crate) struct Lander<'a, S, B, D: Disk = Sys> {
    pub(crate) disk: &'a D,
    pub(crate) policy: &'a CopyPolicy,
    pub(crate) tally: Arc<Tally<'a>>,
    pub(crate) links: LinkTable<D>,
    pub(crate) claims: Claims,
    pub(crate) hooks: B,
    chooser: Chooser<'a, D>,
    dirs: Directories<'a, S, D>,
    losses: Arc<MetadataLosses<'a>>,
    /// Files can be made without names, and get them, as far as is known.
    has_unnamed: AtomicBool,
}

/// A source that changed while it was read, found no descriptor left, or whose name was taken meanwhile, and gets a second
/// chance.
pub(crate) struct Retry {
    pub(crate) src: NameBuf,
    pub(crate) to: NameBuf,
    pub(crate) kind: Kind,
}

impl Retry {
    fn of(job: &Job<'_, impl Disk>) -> Retry {
        Retry { src: job.src.to_owned(), to: job.name.to_owned(), kind: job.info.kind }
    }
}

/// So often a second name is tried. Where another process has made the same directory meanwhile, ours is merged into it level by
/// level, and the first name may move between the look and the link.
const LINK_TRIES: usize = 4;

/// Whether a job makes a second name of what this run has landed.
fn is_second_name(job: &Job<'_, impl Disk>) -> bool {
    matches!(job.body, Body::HardLink(..)) && !job.from_basis
}

/// Whether it failed because the first name was not there any more.
fn lost_first_name(job: &Job<'_, impl Disk>) -> bool {
    let is_gone = |fault: &Fault| fault.op == Op::MakeHardLink && errno_of(fault) == Some(errno::ENOENT);
    is_second_name(job) && job.fault.as_ref().is_some_and(is_gone)
}

/// A job that links, and the directory of the first name.
type LinkJob<'n, D> = (Arc<<D as Dirs>::Dir>, Job<'n, D>);

impl<'a, S: Origin, B: LandHooks<S, D>, D: Disk> Lander<'a, S, B, D> {
    /// A run with nothing done yet.
    pub(crate) fn new(
        disk: &'a D,
        policy: &'a CopyPolicy,
        tally: Tally<'a>,
        hooks: B,
    ) -> Lander<'a, S, B, D> {
        let tally = Arc::new(tally);
        let losses = Arc::new(MetadataLosses::new(tally.clone(), policy));
        Lander {
            disk,
            policy,
            links: LinkTable::new(),
            claims: Claims::new(Meeting::Never),
            hooks,
            chooser: Chooser::new(disk, policy),
            dirs: Directories::new(disk, policy, tally.clone(), losses.clone()),
            losses,
            tally,
            has_unnamed: AtomicBool::new(true),
        }
    }

    /// Claims the name `to`, before anything is read, for `name`, which `source` tells from other sources of that name.
    /// [`Claimed::Same`]: that very source came before, and nothing more is to be done for it.
    ///
    /// # Errors
    /// The name is another source's.
    pub(crate) fn claim_name(
        &self,
        pair: &Slot<S, D>,
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
    pub(crate) fn came_before(&self, pair: &Slot<S, D>) {
        pair.mark_incomplete();
        self.tally.done(1);
    }

    /// Compares with what is there and makes the job, if there is to be one.
    pub(crate) fn plan<'n>(
        &self,
        pair: &'n Arc<Slot<S, D>>,
        entry: Candidate<'n, D>,
    ) -> Result<Option<Job<'n, D>>> {
        let mut one = Vec::new();
        self.plan_into(&mut one, pair, entry)?;
        Ok(one.pop())
    }

    /// The same, behind the `jobs` of a batch: a job is large, and is made where it stays. Whether there is one.
    pub(crate) fn plan_into<'n>(
        &self,
        jobs: &mut Vec<Job<'n, D>>,
        pair: &'n Arc<Slot<S, D>>,
        entry: Candidate<'n, D>,
    ) -> Result<bool> {
        let Candidate { name, to, ref info, ref body, attributes, .. } = entry;
        let go_on = || !self.tally.cancelled();
        let prove =
            |proof: Proof, there: &Info| self.chooser.prove(pair, &entry, proof, there, &go_on).map(Some);
        let offered = Offered { name, to, info, is_file: body.is_file(), attributes };
        if self.came_before_stop(pair, &offered, &prove)? == Some(true) {
            return Ok(false);
        }
        if self.is_free(pair, &entry) {
            if let Some(dir) = self.basis(pair, &entry)? {
                jobs.push(self.like_basis(pair, entry, None, dir)?);
                return Ok(true);
            }
            pair.dst.guard_name(to).map_err(|e| e.and(&pair.src.node().join(name)))?;
            // With `--sync` what has no name is not left to what a file system makes of its first one.
            let unnamed =
                self.policy.durability == Durability::Cache && self.has_unnamed.load(Ordering::Relaxed);
            jobs.push(if pair.dst.is_recorded() {
                self.chooser.named(entry)
            } else if unnamed {
                self.chooser.unnamed(entry)
            } else {
                self.job(pair, entry, None)?
            });
            if let Some(job) = jobs.last_mut() {
                job.is_unlooked = true;
            }
            return Ok(true);
        }
        let there = match self.choose(pair, &offered, &prove)? {
            Decision::Skip => return Ok(false),
            Decision::Create => None,
            Decision::Replace(there) => Some(there),
            Decision::Update(there) => {
                jobs.push(self.job(pair, Candidate { body: Body::Kept, ..entry }, Some(there))?);
                return Ok(true);
            }
        };
        jobs.push(self.like_basis_or_new(pair, entry, there)?);
        Ok(true)
    }

    /// What lands `entry`, whose content is at hand: by an earlier copy of it, if there is one.
    pub(crate) fn like_basis_or_new<'n>(
        &self,
        pair: &'n Slot<S, D>,
        entry: Candidate<'n, D>,
        there: Option<Info>,
    ) -> Result<Job<'n, D>> {
        match self.basis(pair, &entry)? {
            Some(dir) => self.like_basis(pair, entry, there, dir),
            None => self.job(pair, entry, there),
        }
    }

    /// The earlier copy that has `entry` as it is at the source, attributes and all.
    fn basis<'n>(&self, pair: &'n Slot<S, D>, entry: &Candidate<'n, D>) -> Result<Option<&'n D::Dir>> {
        let &Candidate { name, to, ref info, ref body, attributes, .. } = entry;
        if !body.is_file() {
            return Ok(None);
        }
        for dir in pair.dst.bases() {
            // One that cannot be looked at serves for nothing, as one that is not there.
            let Ok(Some(there)) = self.disk.look(dir, to) else { continue };
            let names = self.policy.sharing == Sharing::Names;
            let is_alike = there.kind == Kind::File
                && there.size == info.size
                && there.mtime == info.mtime
                // What cannot be shared with another file system is copied from there.
                && (!names || there.dev == pair.dst.info.dev);
            let differ = || self.disk.attributes_differ(dir, to, attributes, info.kind, &pair.dst.keep);
            let is_same = || {
                let is_stale = stale_by(info, &there, self.policy).is_some();
                there.nlink < NAMES_MAX && !is_stale && matches!(differ(), Ok(None))
            };
            if !is_alike || names && !is_same() {
                continue;
            }
            let reads = self.policy.collide == Collide::IfContentDiffers;
            let go_on = || !self.tally.cancelled();
            let told = |f: Fault| f.told(|| pair.src.node().join(name), || pair.dst.node.join(to));
            if !reads || self.chooser.has_content(dir, (to, there.size), body, &go_on).map_err(told)? {
                return Ok(Some(dir));
            }
        }
        Ok(None)
    }

    /// What makes `entry` a hard link to an earlier copy of it, if there is one.
    pub(crate) fn share_with_basis<'n>(
        &self,
        pair: &'n Slot<S, D>,
        entry: Candidate<'n, D>,
        there: Option<Info>,
    ) -> Result<Option<Job<'n, D>>> {
        if self.policy.sharing == Sharing::Blocks {
            return Ok(None);
        }
        let dir = self.basis(pair, &entry)?;
        dir.map(|dir| self.like_basis(pair, entry, there, dir)).transpose()
    }

    /// What makes it a hard link to that, or a file of its own with the same blocks.
    fn like_basis<'n>(
        &self,
        pair: &'n Slot<S, D>,
        entry: Candidate<'n, D>,
        there: Option<Info>,
        dir: &'n D::Dir,
    ) -> Result<Job<'n, D>> {
        pair.dst.guard_name(entry.to).map_err(|e| e.and(&pair.src.node().join(entry.name)))?;
        if self.policy.sharing == Sharing::Blocks {
            // What cannot be opened is copied from the source.
            let like = self.disk.open_to_read(dir, entry.to).ok();
            return Ok(Job { like, ..self.job(pair, entry, there)? });
        }
        let body = Body::HardLink(dir, entry.to);
        Ok(Job { from_basis: true, ..self.job(pair, Candidate { body, ..entry }, there)? })
    }

    /// Whether nothing has the name of `entry`, as far as the listing of its directory tells. What is landed on that word
    /// may come back from [`Lander::land`] to be planned again, so only what can be had once more is.
    fn is_free(&self, pair: &Slot<S, D>, entry: &Candidate<'_, D>) -> bool {
        // Names of one file find each other by what is there.
        let is_linked = self.policy.preserve.links && entry.info.nlink > 1;
        entry.way == Way::Small
            && entry.body.is_file()
            && entry.is_at_hand
            && !is_linked
            && decide(&entry.info, None, self.policy) == Verdict::Make
            && pair.dst.held.lacks(entry.to)
    }

    /// R8: what an earlier run had landed before it began to take sources away is not landed again: where it is what the
    /// source is, the source may go. Else the source stays. `false`: there is no such run, or it is not there. `prove` reads both
    /// sides; where it cannot yet, this is asked again once it can.
    pub(crate) fn came_before_stop(
        &self,
        pair: &Arc<Slot<S, D>>,
        entry: &Offered<'_>,
        prove: &dyn Fn(Proof, &Info) -> Result<Option<bool>>,
    ) -> Result<Option<bool>> {
        let Some(MoveState::Landed { since }) = pair.dst.stand else { return Ok(Some(false)) };
        let &Offered { name, to, info, is_file, .. } = entry;
        let dst = &pair.dst;
        dst.guard_name(to).map_err(|e| e.and(&pair.src.node().join(name)))?;
        let there = self.disk.look(&dst.dir, to).map_err(|e| Error::os(Op::Stat, dst.node.join(to), e))?;
        let Some(there) = &there else { return Ok(Some(false)) };
        let is_copy = match info.kind {
            Kind::Link if there.kind == Kind::Link => prove(Proof::Target, there)?,
            Kind::File if there.kind == Kind::File && there.size == info.size => {
                // Sizes and times are believed of what was not touched since the run that copied it began. Where times are
                // kept more coarsely, or a name of it was taken away, only its content tells.
                let is_untouched = same(info, there) && info.ctime < since;
                // What was gone through once, and neither failed nor was kept unread, this very run has read back or proved.
                let is_proved = || {
                    self.once_more().load(Ordering::Relaxed)
                        && self.tally.failed.load(Ordering::Relaxed) == 0
                        && matches!(
                            decide(info, Some(there), self.policy),
                            Verdict::Replace | Verdict::KeepIf(_, Otherwise::Replace)
                        )
                };
                if is_untouched && (!self.hooks.proves() || is_proved()) {
                    Some(true)
                } else if is_file {
                    prove(Proof::Content, there)?
                } else {
                    Some(false)
                }
            }
            Kind::File | Kind::Link => Some(false),
            _ => Some(same(info, there)),
        };
        let Some(is_copy) = is_copy else { return Ok(None) };
        if !is_copy {
            return Err(Self::stays(pair, name, to));
        }
        if self.policy.preserve.links && info.nlink > 1 {
            self.first_landed(info, dst, to, (true, false));
        }
        if info.kind == Kind::File && !self.once_more().load(Ordering::Relaxed) {
            self.tally.watch.progress.was_there(info.size);
        }
        self.dirs.owe(dst);
        self.dirs.done_one();
        self.hooks.landed(pair, name, (info, None), self.devices(), &self.tally);
        Ok(Some(true))
    }

    /// What a move does not take away, as what is at the destination is something else.
    fn stays(pair: &Slot<S, D>, name: Name<'_>, to: Name<'_>) -> Error {
        let src = pair.src.node().join(name);
        Error::ours(Code::SourceChanged, Op::RemoveSource, src, Reason::NotItsCopy)
            .and(&pair.dst.node.join(to))
    }

    /// Set while all is gone through once more, to be taken away.
    pub(crate) fn once_more(&self) -> &AtomicBool {
        &self.dirs.once_more
    }

    /// R8: all that can land of the marked directories has, in a run that began at `since`. Returns the sources of which
    /// their marks say so now, and what went wrong, by device. `None`: a directory is to be sealed again.
    pub(crate) fn all_landed(&self, since: Time) -> Option<Landed> {
        self.dirs.all_landed(since)
    }

    /// Compares with what is there, and asks the user where the policy says so. What stays as it is was told. `prove`
    /// reads both sides; where it cannot yet, it returns `None`, what is there is what is to be replaced for now, and this
    /// is asked again once it can.
    pub(crate) fn choose(
        &self,
        pair: &Slot<S, D>,
        entry: &Offered<'_>,
        prove: &dyn Fn(Proof, &Info) -> Result<Option<bool>>,
    ) -> Result<Decision> {
        let &Offered { name, to, info, .. } = entry;
        let there = match self.chooser.choose(pair, entry, prove)? {
            Choice::Land(there) => there,
            Choice::Ask(there) => {
                if !self.tally.ask(Question::Replace(pair.dst.node.join(to))) {
                    self.keep(pair, name, to, info);
                    return Ok(Decision::Skip);
                }
                there
            }
            Choice::Clear(there) => return self.clear(pair, entry, &there),
            Choice::Keep(Some(there)) if self.is_stale(pair, entry, &there)? => {
                // What has several names, maybe elsewhere, is not changed under all of them; nor is what is to be kept.
                let alone = there.kind == Kind::File && there.nlink == 1 && self.policy.old == Old::Goes;
                return Ok(if alone { Decision::Update(there) } else { Decision::Replace(there) });
            }
            Choice::Keep(there) => {
                self.found(pair, entry, there.as_ref())?;
                if there.is_some() {
                    self.hooks.kept(pair, name, info);
                }
                self.keep(pair, name, to, info);
                return Ok(Decision::Skip);
            }
        };
        Ok(there.map_or(Decision::Create, Decision::Replace))
    }

    /// Takes an empty directory out of the way of an entry that is none. One that holds something may go later.
    fn clear(&self, pair: &Slot<S, D>, entry: &Offered<'_>, there: &Info) -> Result<Decision> {
        let &Offered { name, to, .. } = entry;
        let dst = &pair.dst;
        dst.open_up(self.disk);
        if self.hooks.moves_away(pair, to, there)? {
            return Ok(Decision::Create);
        }
        match self.disk.remove_dir(&dst.dir, to) {
            Ok(()) => Ok(Decision::Create),
            Err(e) if matches!(e.raw_os_error(), Some(errno::ENOTEMPTY | errno::EEXIST)) => {
                if self.hooks.in_the_way(pair, to, there)? {
                    pair.mark_incomplete();
                    return Ok(Decision::Skip);
                }
                let note = Reason::FileOverDirectory;
                let error = Error::ours(Code::InTheWay, Op::Replace, dst.node.join(to), note);
                Err(error.and(&pair.src.node().join(name)))
            }
            Err(e) => Err(Error::os(Op::RemoveDirectory, dst.node.join(to), e)),
        }
    }

    /// Whether something that stays lacks attributes of its source that it is to have.
    fn is_stale(&self, pair: &Slot<S, D>, entry: &Offered<'_>, there: &Info) -> Result<bool> {
        let &Offered { to, info, attributes, .. } = entry;
        if !self.policy.mirror.is_on() || info.kind != there.kind {
            return Ok(false);
        }
        if stale_by(info, there, self.policy).is_some() {
            return Ok(true);
        }
        let dst = &pair.dst;
        let differ = self.disk.attributes_differ(&dst.dir, to, attributes, info.kind, &dst.keep);
        Ok(differ.map_err(|e| Error::os(Op::ReadAttributesOf, dst.node.join(to), e))?.is_some())
    }

    /// What is there stays: a session that a killed run left for it goes, and where it is the source's very file it is as
    /// good as landed.
    fn found(&self, pair: &Slot<S, D>, entry: &Offered<'_>, there: Option<&Info>) -> Result<()> {
        let &Offered { name, to, info, is_file, .. } = entry;
        let dst = &pair.dst;
        let is_same = is_file && there.is_some_and(|t| same(info, t));
        let sessions = self.policy.resume.has_sessions() && info.size > self.policy.checkpoint_bytes;
        if sessions || is_same && dst.is_unfinished(to) {
            resumable::sweep(self.disk, &dst.dir, &dst.home, to)
                .map_err(|f| f.told(|| pair.src.node().join(name), || dst.node.join(to)))?;
        }
        if is_same {
            self.hash_again(pair, name, to);
        }
        // Further names of its source become links to it. Else an interrupted copy that goes on would tear names apart. Not in a
        // move, which leaves what only looks the same where it is: no other name of it goes for that.
        let stays = self.hooks.takes_away();
        if self.policy.preserve.links && info.nlink > 1 && !stays && self.chooser.is_there(info, there) {
            self.first_landed(info, dst, to, (true, false));
        }
        Ok(())
    }

    /// What is to be landed where `there` is, once its content is at hand.
    pub(crate) fn job<'n>(
        &self,
        pair: &'n Slot<S, D>,
        entry: Candidate<'n, D>,
        there: Option<Info>,
    ) -> Result<Job<'n, D>> {
        self.chooser.job(pair, entry, there)
    }

    /// Whether the symbolic link that is there leads where `target` says.
    pub(crate) fn leads_to(&self, pair: &Slot<S, D>, to: Name<'_>, target: &CStr) -> Result<bool> {
        self.chooser.leads_to(pair, to, target)
    }

    /// Further names of the same source become links to `name` in `dst`.
    fn first_landed(&self, info: &Info, dst: &DestDir<D>, name: Name<'_>, what: (bool, bool)) {
        // Links that are followed are names too, and they are not counted.
        let names = if self.policy.follow == Follow::Never { info.nlink } else { u64::MAX };
        self.links.landed(info, names, (dst, name), what);
    }

    /// Files that are open at a time while a batch lands in `pair`.
    pub(crate) fn room(&self, pair: &Slot<S, D>) -> usize {
        // Where names are replaced, or must be durable, one flush serves a whole batch.
        let is_durable = self.policy.durability == Durability::Medium;
        let replaces_none = pair.dst.is_private() || !is_durable && pair.dst.held.is_empty();
        if replaces_none { BATCH_JOBS } else { BATCH_JOBS_DURABLE }
    }

    /// Leaves what is there alone. Its bytes count as done: they were found too, and a percentage is of those.
    fn keep(&self, pair: &Slot<S, D>, name: Name<'_>, to: Name<'_>, info: &Info) {
        pair.mark_incomplete();
        if info.kind == Kind::File {
            self.tally.watch.progress.was_there(info.size);
        }
        // R3: a run that was killed may have named it and not have come to its sync; exit 0 speaks for it too.
        self.dirs.owe(&pair.dst);
        self.tally.kept.fetch_add(1, Ordering::Relaxed);
        self.tally.done(1);
        self.tally.item(Action::Kept, 0, || (pair.src.node().join(name), pair.dst.node.join(to)));
    }

    /// Lands jobs and tells how it went. With `again`, those that deserve a second chance come back instead.
    /// `threads` share a large file. What goes into a stream comes after the others, each by itself: who reads it may come late,
    /// and read the next one only after it.
    pub(crate) fn land(
        &self,
        hand: &mut D::Hand,
        pair: &Arc<Slot<S, D>>,
        jobs: &mut Vec<Job<'_, D>>,
        way: Way,
        threads: usize,
        again: bool,
    ) -> Vec<Retry> {
        if jobs.is_empty() {
            return Vec::new();
        }
        if jobs.len() > 1 && jobs.iter().any(Job::is_into_stream) {
            let (streams, others): (Vec<_>, Vec<_>) = jobs.drain(..).partition(Job::is_into_stream);
            let alone = streams.into_iter().map(|job| vec![job]);
            let parts = std::iter::once(others).chain(alone);
            return parts
                .flat_map(|mut part| self.land(hand, pair, &mut part, way, threads, again))
                .collect();
        }
        pair.dst.open_up(self.disk);
        let policy = self.policy;
        let watch = &self.tally.watch;
        if let Some(job) = jobs.iter().find(|job| job.body.is_file()) {
            watch.progress.under_way.is(|| pair.dst.node.join(job.name));
        }
        let alone = jobs.first().filter(|_| way == Way::Alone).map_or(0, |job| job.info.size);
        let observe = |bytes: u64| {
            watch.progress.bytes_done.fetch_add(bytes, Ordering::Relaxed);
            if bytes < alone {
                watch.front.goes_on();
            }
            !self.tally.cancelled()
        };
        let waits = || {
            // What is not waited for any more has not landed: the run is stopped, which a word that waits behind this says too late.
            if !self.hooks.is_attended() {
                self.tally.watch.cancel.set();
            }
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
            waits: &waits,
            work: Some(&watch.progress.work),
        };
        if way == Way::Alone && self.is_resumable(jobs) {
            return self.land_resumable(hand, pair, jobs, threads, again);
        }
        let private = way == Way::Small && pair.dst.is_private();
        let began = watch.progress.slowest.begin();
        self.hooks.keep_old(pair, jobs);
        let owed = land(self.disk, hand, &pair.dst, jobs, &how, private);
        self.hooks.give_back(pair, jobs);
        self.timed(began, pair, jobs);
        // R5: what a sync of all of it loses may be any run's, and one of the directory loses names made before as well.
        // What a further name leads to is lost under its first name too.
        let is_lost = |job: &Job<'_, D>| {
            let is_link = matches!(job.body, Body::HardLink(..));
            job.fault.as_ref().is_some_and(|f| f.op == SYNC_ALL || is_link && f.op == Op::Sync)
        };
        if owed.is_err() || jobs.iter().any(is_lost) {
            self.devices().doubt(&pair.dst);
        }
        match owed {
            Ok(true) => self.dirs.owe(&pair.dst),
            Ok(false) => {}
            Err(e) => self.tally.fail(Error::os(Op::SyncDirectory, pair.dst.node.path(), e)),
        }
        let mut second_chance = Vec::new();
        for job in jobs.iter_mut() {
            // By itself a file needs two descriptors, in a batch it may have found none left.
            let worth_it = |f: &Fault| matches!(f.code, Code::SourceChanged | Code::Limit);
            if job.fault.is_some() && is_left(&pair.dst, job) {
                pair.dst.held.add(job.name);
            }
            let outdated = self.is_outdated(&pair.dst, job);
            let changed = outdated || job.fault.as_ref().is_some_and(worth_it) || lost_first_name(job);
            let first_name = policy.preserve.links && job.info.nlink > 1;
            if changed && again {
                if first_name && !is_second_name(job) {
                    self.links.gave_up(&job.info);
                }
                second_chance.push(Retry::of(job));
                continue;
            }
            self.told(pair, job, first_name);
        }
        self.disk.end(hand, jobs);
        second_chance
    }

    /// Tells how long files took that began to land at the same time.
    fn timed(&self, began: Option<Instant>, pair: &Slot<S, D>, jobs: &[Job<'_, D>]) {
        let Some(began) = began else { return };
        let each = began.elapsed() / u32::try_from(jobs.len()).unwrap_or(u32::MAX).max(1);
        for job in jobs.iter().filter(|job| job.fault.is_none() && job.body.is_file()) {
            self.tally.watch.progress.slowest.add(each, job.bytes, || pair.dst.node.join(job.name));
        }
    }

    /// Whether a job that was planned by a listing failed for what a look, or another way to its name, may settle.
    fn is_outdated(&self, dst: &DestDir<D>, job: &Job<'_, D>) -> bool {
        let Some(why) = outdated(job) else { return false };
        match why {
            // Other processes are at the same names, or an earlier run was: the others are looked for.
            Outdated::Taken if dst.is_recorded() => dst.held.forget(),
            Outdated::Taken => {}
            Outdated::NoUnnamed => self.has_unnamed.store(false, Ordering::Relaxed),
            Outdated::NoNewNames => dst.held.forget(),
        }
        dst.held.add(job.name);
        true
    }

    /// Whether this one gets a session: a large file that is staged.
    fn is_resumable(&self, jobs: &[Job<'_, D>]) -> bool {
        let [job] = jobs else { return false };
        self.policy.resume.has_sessions()
            && job.info.size > self.policy.checkpoint_bytes
            && job.body.is_file()
            && job.like.is_none()
            && matches!(job.place, Placement::Stage(_))
    }

    fn land_resumable(
        &self,
        hand: &mut D::Hand,
        pair: &Arc<Slot<S, D>>,
        jobs: &mut Vec<Job<'_, D>>,
        threads: usize,
        again: bool,
    ) -> Vec<Retry> {
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
        // With a session everything is on stable storage before it is counted.
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
            past_cache: self.policy.verify == Verify::Direct,
            observe: &observe,
            met: &|bytes| progress.was_there(bytes),
            work: Some(&progress.work),
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
        let began = progress.slowest.begin();
        self.hooks.keep_old(pair, std::slice::from_mut(&mut job));
        let went = match job.fault {
            Some(_) => None,
            None => land_resumable(self.disk, hand, &pair.dst, &mut job, &want, self.policy.verify),
        };
        self.hooks.give_back(pair, std::slice::from_mut(&mut job));
        self.timed(began, pair, std::slice::from_ref(&job));
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
            return vec![Retry::of(&job)];
        }
        self.told(pair, &mut job, first_name);
        Vec::new()
    }

    /// Counts and tells one job's end.
    fn told(&self, pair: &Arc<Slot<S, D>>, job: &mut Job<'_, D>, first_name: bool) {
        let (src_name, dst_name) = (job.src, job.name);
        let src = || pair.src.node().join(src_name);
        let dst = || pair.dst.node.join(dst_name);
        let linking = is_second_name(job);
        if let Some(fault) = job.fault.take() {
            pair.mark_incomplete();
            if first_name && !linking {
                self.links.gave_up(&job.info);
            }
            // A lost connection is told once, by the thread that lost it.
            if !matches!(fault.code, Code::Interrupted | Code::Lost) {
                self.tally.fail(fault.told(src, dst));
            }
        } else {
            if first_name && !linking {
                let was_there = matches!(job.body, Body::Kept) || matches!(job.place, Placement::There);
                let is_lacking = job.lost.iter().any(Fault::may_pass);
                self.first_landed(&job.info, &pair.dst, dst_name, (was_there, is_lacking));
            }
            if linking {
                self.links.linked(&job.info);
            }
            let action = match (&job.body, job.info.kind) {
                (Body::HardLink(..), _) => Action::HardLinked,
                (Body::Kept, _) => Action::Updated,
                (_, Kind::File) => Action::Copied,
                (_, Kind::Link) => Action::MadeLink,
                _ => Action::MadeSpecial,
            };
            if action == Action::Copied {
                self.disk.landed();
                self.tally.files.fetch_add(1, Ordering::Relaxed);
                self.tally.bytes.fetch_add(job.bytes, Ordering::Relaxed);
            } else if action == Action::Updated {
                self.tally.updated.fetch_add(1, Ordering::Relaxed);
                self.tally.watch.progress.was_there(job.info.size);
            } else {
                self.tally.others.fetch_add(1, Ordering::Relaxed);
                if job.from_basis {
                    self.tally.watch.progress.was_there(job.info.size);
                }
            }
            self.tally.done(1);
            let progress = self.tally.watch.progress;
            if job.rung == Some(Rung::Clone) {
                progress.cloned_files.fetch_add(1, Ordering::Relaxed);
                progress.cloned_bytes.fetch_add(job.bytes, Ordering::Relaxed);
            }
            if let Some(hash) = job.hash.as_ref().filter(|_| action == Action::Copied) {
                progress.hashes.add(dst, hash.as_bytes());
            }
            self.tally.item(action, job.bytes, || (src(), dst()));
            if let Some(hash) = &job.hash {
                self.hashed(dst, hash);
            }
            if job.changed {
                let note = Reason::GrewWhileRead;
                self.tally.warn(Error::ours(Code::SourceChanged, Op::CopyAllOf, src(), note));
            }
            if (linking || job.from_basis) && job.info.kind == Kind::File {
                self.hash_again(pair, src_name, dst_name);
            }
            if self.hooks.takes_away() && (job.of_lacking || job.lost.iter().any(Fault::may_pass)) {
                // The same command may give it what it lacks, and needs the source for that.
                job.lost.iter_mut().filter(|fault| fault.may_pass()).for_each(|fault| {
                    fault.note.get_or_insert(Reason::KeptAtSource);
                });
                self.stays_at_source(pair, src_name, &job.info);
            } else {
                let seen = (&job.info, job.hash.as_ref());
                self.hooks.landed(pair, src_name, seen, self.devices(), &self.tally);
            }
            // It may have been begun with a session, and was finished without one.
            if pair.dst.is_unfinished(dst_name) {
                self.finished_otherwise(pair, src_name, dst_name);
            }
        }
        if !job.lost.is_empty() {
            self.losses.tell(std::mem::take(&mut job.lost), src, dst);
        }
    }

    /// R7: a move leaves a name whose copy lacks what the same command may give it.
    fn stays_at_source(&self, pair: &Arc<Slot<S, D>>, name: Name<'_>, info: &Info) {
        self.dirs.left_unsealed(pair);
        self.hooks.kept(pair, name, info);
    }

    /// Takes away the session that a killed run left for what is complete as `to`.
    fn finished_otherwise(&self, pair: &Slot<S, D>, name: Name<'_>, to: Name<'_>) {
        if let Err(fault) = resumable::sweep(self.disk, &pair.dst.dir, &pair.dst.home, to) {
            self.tally.fail(fault.told(|| pair.src.node().join(name), || pair.dst.node.join(to)));
        }
    }

    /// Tells the hash of what is at `dst`, where it is wanted.
    fn hashed(&self, dst: impl Fn() -> PathBuf, hash: &blake3::Hash) {
        if !self.policy.hashes {
            return;
        }
        let hash = *hash.as_bytes();
        if let Err(e) = self.hooks.hashed(&dst(), &hash) {
            self.tally.lost(e);
        }
        self.tally.watch.front.event(Event::Hashed { dst: dst(), hash });
    }

    /// The same for what is there without having been copied: what is the same as before, and further names. The
    /// source is hashed, so that a copy that only looks the same is found out by a check.
    fn hash_again(&self, pair: &Slot<S, D>, name: Name<'_>, to: Name<'_>) {
        if !self.policy.hashes {
            return;
        }
        let dst = || pair.dst.node.join(to);
        let go_on = || !self.tally.cancelled();
        let hash = match pair.src.hash(name, &go_on) {
            // The source is far away: what is here is hashed, which says what is here and nothing about the source.
            Ok(None) => match self.disk.open_to_read(&pair.dst.dir, to) {
                Ok(file) => tee::hash_on(self.disk, &file, &|_| go_on()).map(Some),
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

    /// Makes a second name of what `landed`.
    pub(crate) fn land_second(
        &self,
        hand: &mut D::Hand,
        pair: &Arc<Slot<S, D>>,
        name: Name<'_>,
        to: Name<'_>,
        info: &Info,
        landed: &FirstName<D>,
    ) {
        if self.policy.resume.has_sessions() && info.size > self.policy.checkpoint_bytes {
            // An earlier run may have begun with this name.
            self.finished_otherwise(pair, name, to);
        }
        for left in (0..LINK_TRIES).rev() {
            match self.second(pair, name, to, info, landed) {
                Ok(Some((dir, job))) => {
                    let body = Body::HardLink(&*dir, landed.name());
                    let (of_old, of_lacking) = (landed.was_there, landed.is_lacking);
                    let mut jobs =
                        vec![Job { body, of_old, of_lacking, synced: Some(&landed.synced), ..job }];
                    if self.land(hand, pair, &mut jobs, Way::Alone, 1, left > 0).is_empty() {
                        return;
                    }
                }
                Ok(None) => return self.links.linked(info),
                Err(e) => {
                    pair.mark_incomplete();
                    return self.tally.fail(e);
                }
            }
        }
    }

    /// The job that links, with the directory to link from.
    fn second<'n>(
        &self,
        pair: &'n Arc<Slot<S, D>>,
        name: Name<'n>,
        to: Name<'n>,
        info: &Info,
        landed: &FirstName<D>,
    ) -> Result<Option<LinkJob<'n, D>>> {
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
            if !self.once_more().load(Ordering::Relaxed) {
                self.tally.kept.fetch_add(1, Ordering::Relaxed);
                self.tally.item(Action::Kept, 0, || (pair.src.node().join(name), pair.dst.node.join(to)));
            }
            self.dirs.done_one();
            if info.kind == Kind::File {
                self.hash_again(pair, name, to);
            }
            if landed.is_lacking {
                self.stays_at_source(pair, name, info);
            } else {
                self.hooks.landed(pair, name, (info, None), self.devices(), &self.tally);
            }
            return Ok(None);
        }
        // A second name shares what the first has.
        let (body, attributes) = (Body::Special, Attributes::Carried(&[]));
        let entry = Candidate { name, to, info: *info, body, attributes, way: Way::Alone, is_at_hand: true };
        let came_before = matches!(pair.dst.stand, Some(MoveState::Landed { .. }));
        if came_before && there.is_some_and(|there| !same(info, &there)) {
            return Err(Self::stays(pair, name, to));
        }
        let links_over = self.policy.mirror.is_on() && there.is_some_and(|there| there.kind != Kind::Dir);
        if came_before && there.is_some() || links_over || self.chooser.is_there(info, there.as_ref()) {
            // A file of its own that looks the same was landed by an earlier run, which met this name first: what is
            // wanted is one file, and the other name's is as good.
            return Ok(Some((dir, self.job(pair, entry, there)?)));
        }
        Ok(self.plan(pair, entry)?.map(|job| (dir, job)))
    }

    /// Goes into the directory that an operand becomes. With sessions, and by a move, it is marked: until the run is
    /// complete, the same command means this directory.
    pub(crate) fn enter_top(&self, above: &DestDir<D>, to: Name<'_>, src: &Info) -> Result<DestDir<D>> {
        self.dirs.enter_top(above, to, src, self.hooks.takes_away())
    }

    /// Goes into the directory `name` of `above`, of which the source has `mode`, making it when it is not there. To be
    /// called once for each that [`DestDir::expect`] was told of, or else [`Lander::passed_by`].
    pub(crate) fn enter(
        &self,
        hand: &mut D::Hand,
        above: &Arc<Slot<S, D>>,
        name: Name<'_>,
        mode: u32,
    ) -> Result<DestDir<D>> {
        self.dirs.enter(hand, above, (name, mode), &|dir| self.hooks.dir_done(dir))
    }

    /// Before anything is put into a directory that becomes what `src` is.
    pub(crate) fn narrow(&self, dst: &DestDir<D>, src: &Info) {
        self.dirs.narrow(dst, src);
    }

    /// A directory that was listed in `above` is not entered.
    pub(crate) fn passed_by(&self, hand: &mut D::Hand, above: &Arc<Slot<S, D>>) {
        self.dirs.passed_by(hand, above, &|dir| self.hooks.dir_done(dir));
    }

    /// The directory of an operand, held until it is listed.
    pub(crate) fn top(&self, pair: PairedDirs<S, DestDir<D>>) -> SlotHold<S, D> {
        self.dirs.top(pair)
    }

    /// One of the things that had to be done in a directory is done: it may get its name by that, or be complete, and so
    /// may be its parents.
    pub(crate) fn release(&self, hand: &mut D::Hand, hold: SlotHold<S, D>) {
        self.dirs.release(hand, hold, &|dir| self.hooks.dir_done(dir));
    }

    /// Syncs and publishes the directories that wait for it.
    pub(crate) fn publish_group(&self, hand: &mut D::Hand) {
        self.dirs.publish_group(hand, &|dir| self.hooks.dir_done(dir));
    }

    /// The file systems that things are put on.
    pub(crate) fn devices(&self) -> &Devices<'a, D> {
        self.dirs.devices()
    }

    /// Makes the names durable that were not synced one by one: the last thing before exit 0 with `--sync`.
    pub(crate) fn sync_names(&self) {
        self.dirs.sync_names();
    }

    /// The marks of what is complete, to be taken away after everything else.
    pub(crate) fn marks(&self) -> Marks<D> {
        self.dirs.marks()
    }

    /// Takes them away.
    pub(crate) fn unmark(&self) {
        if let Err(e) = self.marks().clear_on(self.disk) {
            self.tally.fail(e);
        }
    }

    /// Owners that were lost so far: they are told of in the end.
    pub(crate) fn owners_lost(&self) -> usize {
        self.losses.owners()
    }

    /// Says what was done.
    pub(crate) fn end(self) -> Summary {
        self.losses.tell_owners();
        if let Some(engine) = self.disk.engine() {
            self.tally.watch.front.event(Event::Engine(engine));
        }
        self.tally.summary()
    }
}
