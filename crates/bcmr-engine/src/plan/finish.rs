//! Ends a plan: proves that every entry has its result, makes what shards cannot (further names, empty directories, what
//! directories are like), and publishes the tree.
//!
//! Must not copy content. While anything is missing nothing is changed. What is changed is in a tree without a name until
//! the one rename; each step may be done again, so a run that is killed is made good by the next.

mod there;

use super::along::{Along, along};
use super::claim::{ClaimOf, ClaimsFolder};
use super::folder::PlanFolder;
use super::format::{
    Digest, LandedEntry, PlanHeader, PlannedAs, PlannedEntry, ShardCounts, Version, kind_byte,
};
use super::from::{self, FarDir, SeenSource};
use super::live::{OnlyThere, only_there};
use super::places::{below, compared, open_stage, spot, stage_place, the_planned_source};
use super::requests::{FinishRequest, Finished, PlanVerb};
use super::shard::planned_check;
use super::sums::TreeSums;
use super::there::filling;
use super::{take, take_there};
use crate::alter::OwnersAndModes;
use crate::blocks::{Cv, whole_hash_by};
use crate::disk::sys::{Hand, Sys};
use crate::disk::{Attributes, Body, Dirs, Job, Keep, Phases, Placement};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Event, Summary, Watch};
use crate::node::{Node, os};
use crate::peer::{self, planned_source::SourceThere};
use crate::policy::{Compare, CopyPolicy, DeleteMax, Mirror, Preserve, Strictness};
use crate::receiver::dest::DestDir;
use crate::receiver::extraneous::Extraneous;
use crate::receiver::land;
use crate::receiver::losses::MetadataLosses;
use crate::remove;
use crate::stage::{self, Home, Role};
use crate::tally::Tally;
use crate::verbs::check::Check;
use crate::verbs::named_dirs::NamedDirs;
use crate::verbs::operands;
use crate::verbs::round_lacks::RoundLacks;
use crate::verbs::rounds::ComparedRounds;
use crate::verbs::survey::Survey;
use crate::verbs::sync::mounted::{Holder, Mounted};
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind, Place};
use fastcopy::sync;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Shards without a result that are told of by number; more are told as "and others".
const TOLD_MAX: usize = 64;

/// What the note of a begun publication says.
const AS_WHOLE: &[u8] = b"whole ";
const BY_MERGING: &[u8] = b"merge ";

/// Ends a plan.
///
/// # Errors
/// Something is missing, or another process is at the plan: nothing was changed. Or something could not be made: the tree
/// was not published, and the same request goes on.
pub fn finish(request: &FinishRequest, watch: Watch<'_>) -> Result<Finished> {
    let folder = PlanFolder::open(&request.plan)?;
    let (header, plan) = folder.header()?;
    if let Some(finished) = finished(&folder, &header, watch)? {
        return Ok(finished);
    }
    let claims = folder.claims()?;
    let claims = ClaimsFolder::new(&claims, &request.plan);
    let refused = |note| Error::ours(Code::Refused, Op::FinishPlan, &request.plan, note);
    let Ok(held) = claims.take(ClaimOf::Finish)? else {
        return Err(refused(Reason::FinishAtWork.into()));
    };
    let done = held.during(|| {
        // Another process may have come to its end between the look and the claim.
        if let Some(finished) = finished(&folder, &header, watch)? {
            return Ok(finished);
        }
        for rival in claims.alive()? {
            if let ClaimOf::Shard(shard) = rival.claimed {
                let who = String::from_utf8_lossy(&rival.who).into_owned();
                return Err(refused(Reason::ShardAtWork.about(u64::from(shard)).about(who)));
            }
        }
        // What cannot go does no harm.
        drop(folder.sweep());
        drop(claims.sweep());
        prove(&folder, &header, &plan, watch)?;
        drop(folder.sweep_results());
        let there = header.there();
        let tally = Arc::new(Tally::new(watch));
        let run = PlanEnd::new(&folder, &header, &plan, request, tally);
        match header.verb {
            PlanVerb::Copy => match &there {
                Some(to) => run.publish_there(to),
                None => run.with_source(|run| run.publish()),
            },
            PlanVerb::Sync { by_content, delete } => match &there {
                Some(to) => run.bring_there(to, by_content, delete),
                None => run.with_source(|run| run.bring(delete)),
            },
            PlanVerb::Check { compare, extra } => match &there {
                Some(to) => run.compare_there(to, compare, extra),
                None => run.with_source(|run| run.compare(compare, extra)),
            },
            PlanVerb::Remove => run.with_source(|run| run.take_away()),
        }
    });
    held.release().map_err(|e| Error::os(Op::Claim, &request.plan, e))?;
    done
}

/// What an earlier run has published. A comparison changes nothing, so its end tells anew what a killed one may not have told.
fn finished(folder: &PlanFolder, header: &PlanHeader, watch: Watch<'_>) -> Result<Option<Finished>> {
    if matches!(header.verb, PlanVerb::Check { .. }) {
        return Ok(None);
    }
    let Some(receipt) = folder.receipt()? else { return Ok(None) };
    drop(folder.sweep());
    let told = Error::ours(Code::Refused, Op::FinishPlan, &folder.path, Reason::AlreadyFinished);
    watch.front.event(Event::Warning(told));
    let line = |of: &[u8]| receipt.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(of));
    let root = line(b"root ").and_then(|hex| blake3::Hash::from_hex(hex).ok()).map(|hash| *hash.as_bytes());
    let lost = line(LOST).and_then(|lost| std::str::from_utf8(lost).ok()?.parse().ok());
    let tally = Tally::new(watch);
    tell_lost(&tally, header, lost.unwrap_or_default());
    Ok(Some(Finished { summary: tally.summary(), root: root.unwrap_or_default() }))
}

/// What a receipt says of losses.
const LOST: &[u8] = b"lost ";

/// L6: what is there lacks something, whichever process lost it, and however often the end is asked for.
fn tell_lost(tally: &Tally<'_>, header: &PlanHeader, lost: u64) {
    let destination = PathBuf::from(OsStr::from_bytes(&header.destination));
    let dst = header.there().map_or(destination, |to| peer::shown_path(&to, &to.path));
    if lost > 0 {
        tally.lost(Error::ours(Code::MetadataLost, Op::KeepAllOf, dst, Reason::PlanLostSome.about(lost)));
    }
}

/// Whether every shard has its result.
fn prove(folder: &PlanFolder, header: &PlanHeader, plan: &Digest, watch: Watch<'_>) -> Result<()> {
    let mut missing = Vec::new();
    for shard in 0..header.shards.len() as u32 {
        if watch.cancel.is_set() {
            return Err(Error::ours(Code::Interrupted, Op::FinishPlan, &folder.path, Reason::Interrupted));
        }
        if !folder.is_done(header, plan, shard)? {
            missing.push(shard);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let mut told: Vec<String> = missing.iter().take(TOLD_MAX).map(u32::to_string).collect();
    if missing.len() > TOLD_MAX {
        told.push(format!("... ({})", missing.len()));
    }
    let note = Reason::ShardsMissing.about(told.join(" "));
    Err(Error::ours(Code::NotFound, Op::FinishPlan, &folder.path, note))
}

/// What is done to the tree while the plan is gone through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Further names and directories are made, and nothing else may be there.
    Make { seals: bool },
    /// Directories get their owners, attributes, modes and times.
    Seal,
    /// Nothing.
    Look,
}

/// What going through the plan comes to.
struct Sum {
    root: Digest,
    counts: ShardCounts,
    dirs: u64,
    further: u64,
}

/// A directory of the source.
enum LevelSource {
    Here(Dir),
    /// On another machine, with those in it that were not entered yet.
    There(Box<FarDir>, HashMap<NameBuf, FarDir>),
}

impl LevelSource {
    fn there(dir: FarDir) -> LevelSource {
        LevelSource::There(Box::new(dir), HashMap::new())
    }

    fn info(&self) -> io::Result<Info> {
        match self {
            LevelSource::Here(dir) => dir.info(),
            LevelSource::There(dir, _) => Ok(dir.info),
        }
    }

    fn attributes(&self) -> Attributes<'_> {
        match self {
            LevelSource::Here(dir) => Attributes::Dir(dir),
            LevelSource::There(dir, _) => Attributes::Carried(&dir.attrs),
        }
    }

    /// Goes down.
    fn enter(&mut self, name: Name<'_>) -> io::Result<LevelSource> {
        match self {
            LevelSource::Here(dir) => dir.open_dir(name).map(LevelSource::Here),
            LevelSource::There(_, below) => {
                let dir = below.remove(&name.to_owned());
                dir.map(LevelSource::there).ok_or_else(|| io::ErrorKind::NotFound.into())
            }
        }
    }
}

/// A directory of the destination that the tree is merged into.
struct MergedInto {
    dir: Dir,
    /// Why nothing can be moved into it from the tree, if so.
    beyond: Option<Reason>,
}

impl MergedInto {
    /// `tree` is the device of the tree.
    fn of(dir: Dir, tree: u64) -> io::Result<MergedInto> {
        let beyond = remove::beyond(&Place::of(&dir)?, tree);
        Ok(MergedInto { dir, beyond })
    }
}

/// One directory on the way.
struct Level {
    src: LevelSource,
    dst: Dir,
    /// What stands at the destination already, where the tree is merged into it.
    beside: Option<MergedInto>,
    version: Version,
    /// What the names in it come to, by [`digest_of`].
    names: u64,
    /// Names of the plan that look like those of stages.
    alike: HashSet<NameBuf>,
    /// Its lock, where something in it is replaced.
    stages: Option<DestDir<Sys>>,
}

/// What a name and its kind add to the sum of their directory, in any order. The key is this run's alone, so no user can choose
/// names that come to the same.
fn digest_of(key: &RandomState, name: Name<'_>, kind: Kind) -> u64 {
    key.hash_one((kind_byte(kind), name.bytes()))
}

struct PlanEnd<'a> {
    folder: &'a PlanFolder,
    header: &'a PlanHeader,
    plan: &'a Digest,
    request: &'a FinishRequest,
    tally: Arc<Tally<'a>>,
    losses: MetadataLosses<'a>,
    disk: Sys,
    keep: Keep,
    src_path: PathBuf,
    dst_path: PathBuf,
    /// The source, where it is on another machine.
    from: Option<SourceThere<'a>>,
}

impl<'a> PlanEnd<'a> {
    fn new(
        folder: &'a PlanFolder,
        header: &'a PlanHeader,
        plan: &'a Digest,
        request: &'a FinishRequest,
        tally: Arc<Tally<'a>>,
    ) -> PlanEnd<'a> {
        let CopyPolicy { umask, .. } = request.policy;
        let (preserve, strictness) = (Preserve::ALL, Strictness::Archive);
        let keep = Keep {
            preserve,
            alter: OwnersAndModes::NONE,
            strictness,
            umask,
            default_acl: false,
            was_there: false,
        };
        let losses = MetadataLosses::new(tally.clone(), &request.policy);
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let (src_path, dst_path) = (path(&header.source), path(&header.destination));
        let disk = Sys::new();
        let from = None;
        PlanEnd { folder, header, plan, request, tally, losses, disk, keep, src_path, dst_path, from }
    }

    /// Whether what is filled has its name: a destination that is there and is brought up to date.
    fn is_live(&self) -> bool {
        matches!(self.header.verb, PlanVerb::Sync { .. })
    }

    fn error(&self, code: Code, path: &Path, why: Reason) -> Error {
        Error::ours(code, Op::FinishPlan, path, why)
    }

    /// Ends a sync: what shards could not make, what directories are like, and what only the destination has.
    fn bring(&self, delete: Option<DeleteMax>) -> Result<Finished> {
        let shown = &self.dst_path;
        let fail = |op: Op| move |e| Error::os(op, shown, e);
        let place = spot(&self.dst_path, Op::FinishPlan)?;
        let holder = Holder::Here(shown);
        let mut mounted = None;
        match &self.from {
            None => {
                let src = Dir::open(&self.src_path);
                let src = src.map_err(|e| Error::os(Op::OpenDirectory, &self.src_path, e))?;
                the_planned_source(&src, self.header)?;
                let of_source = Mounted::of(&src, holder, self.request.state.as_deref());
                if delete.is_some() {
                    of_source.guard(shown)?;
                }
                mounted = Some(of_source);
            }
            Some(source) => {
                let policy = from::walking(&self.request.policy);
                from::the_planned_source(source, place.place.clone(), &policy, self.header)?;
            }
        }
        land::ensure_dir(&place.place.dir, place.name.as_name(), 0o700).map_err(fail(Op::MakeDirectory))?;
        let dst = Dir::open(&self.dst_path).map_err(fail(Op::OpenDirectory))?;
        let sum = self.pass(&dst, None, Pass::Make { seals: true })?;
        let mirror = if delete.is_some() { Mirror::Delete } else { Mirror::Update };
        let delete_max = delete.unwrap_or(DeleteMax::DEFAULT);
        let policy = CopyPolicy { mirror, delete_max, ..self.request.policy.clone() };
        if let Some(extraneous) = Extraneous::of(&policy) {
            let what = OnlyThere::Goes(extraneous);
            only_there(self.parts(), self.from.as_ref(), what, &policy, &self.tally)?;
        }
        sync::filesystem(&dst).map_err(fail(Op::SyncTheFileSystemOf))?;
        self.losses.tell_owners();
        let done = self.ended(&sum)?;
        if done.summary.failed == 0
            && !done.summary.cancelled
            && let Some(Err(e)) = mounted.map(|mounted| mounted.remember(holder))
        {
            self.tally.warn(e);
        }
        Ok(done)
    }

    /// Ends a comparison.
    fn compare(&self, compare: Compare, extra: bool) -> Result<Finished> {
        self.compare_top(compare)?;
        let root = &*self.dst_path;
        let policy = &self.request.policy;
        if extra {
            let (own_name, alike, tally) = (root, false, &self.tally);
            let check = Check { policy, compare, extra, alike, root, own_name, tally };
            only_there(self.parts(), self.from.as_ref(), OnlyThere::Told(check), policy, &self.tally)?;
        }
        self.compared()
    }

    /// Compares the source itself, which is no shard's.
    fn compare_top(&self, compare: Compare) -> Result<()> {
        let (policy, root, tally) = (filling(&self.request.policy), &*self.dst_path, &*self.tally);
        let check = Box::new(planned_check(&policy, compare, root, tally));
        let Some(source) = &self.from else {
            let src = Dir::open(&self.src_path);
            let src = src.map_err(|e| Error::os(Op::OpenDirectory, &self.src_path, e))?;
            the_planned_source(&src, self.header)?;
            let mut survey = Survey::new(&policy, tally, check)?;
            survey.lacks = Some(RoundLacks::default());
            let compared = ComparedRounds::begin(&survey, &self.src_path, root)?;
            compared.top()?;
            compared.end();
            return Ok(());
        };
        let here = self.folder.dir.reopen().map_err(|e| Error::os(Op::ReadPlan, &self.folder.path, e))?;
        let here = operands::place(here, &self.folder.path);
        from::the_planned_source(source, here, &from::walking(&self.request.policy), self.header)?;
        let to = compared(root)?;
        source.compare((&[], NamedDirs::only_top()), to, &policy, (compare, tally), check)
    }

    /// Says what shards have found.
    fn compared(&self) -> Result<Finished> {
        let (counts, dirs) = self.counted()?;
        self.tally.differences.fetch_add(counts.lost, Relaxed);
        let counts = ShardCounts { lost: 0, ..counts };
        self.ended(&Sum { root: Digest::default(), counts, dirs, further: 0 })
    }

    /// What the results say, and how many directories the plan has.
    fn counted(&self) -> Result<(ShardCounts, u64)> {
        let mut counting = Counting { tally: &self.tally, dirs: 0 };
        let counts = along(self.parts(), (), &mut counting)?;
        Ok((counts, counting.dirs))
    }

    /// Ends what takes names away.
    fn take_away(&self) -> Result<Finished> {
        let done = match &self.from {
            None => take::end(self.parts(), &self.tally)?,
            Some(source) => take_there::end(self.parts(), source, &self.request.policy, &self.tally)?,
        };
        let Summary { files, dirs, others, .. } = done.summary;
        let counts = ShardCounts { files, others, ..ShardCounts::default() };
        self.ended(&Sum { root: Digest::default(), counts, dirs, further: 0 })
    }

    fn parts(&self) -> (&PlanFolder, &PlanHeader, &Digest) {
        (self.folder, self.header, self.plan)
    }

    /// Says what came of it, and that it is over where nothing failed.
    fn ended(&self, sum: &Sum) -> Result<Finished> {
        let own = self.tally.summary();
        if own.failed == 0 && !own.cancelled {
            self.folder.write_receipt(self.receipt(sum).as_bytes())?;
        }
        tell_lost(&self.tally, self.header, self.lost(sum));
        let own = self.tally.summary();
        let Sum { counts: ShardCounts { files, others, bytes, .. }, dirs, further, .. } = *sum;
        let summary = Summary { files, dirs, others: others + further, bytes, ..own };
        Ok(Finished { summary, root: [0; 32] })
    }

    /// Ends it with the source at hand, where that is on another machine.
    fn with_source(mut self, ends: impl FnOnce(&Self) -> Result<Finished>) -> Result<Finished> {
        let Some(address) = self.header.from() else { return ends(&self) };
        let way = (&address, self.request.way.as_ref());
        let source =
            from::reach((self.folder, self.header.verb), way, &self.request.policy, self.tally.watch)?;
        self.src_path = source.shown(b"");
        self.from = Some(source);
        let done = ends(&self);
        let left = self.from.take().map(|source| source.end(Ok(Summary::default())));
        let finished = done?;
        left.transpose()?;
        Ok(finished)
    }

    fn publish(&self) -> Result<Finished> {
        let (parent, stage_path) = stage_place(self.header)?;
        let place = spot(&self.dst_path, Op::FinishPlan)?;
        let name = place.name.as_name();
        let fail = |op: Op| {
            let path = self.dst_path.clone();
            move |e: io::Error| Error::os(op, &path, e)
        };
        let stage = parent.look(self.header.stage.as_name()).map_err(fail(Op::Stat))?;
        let there = parent.look(name).map_err(fail(Op::Stat))?;
        let note = self.folder.finishing()?;
        let begun = note.as_deref().map(|note| note.starts_with(BY_MERGING));
        let sum = match (begun, stage, there) {
            // It has its name, and the run that gave it was stopped before it could say so.
            (Some(false), None, Some(there)) if note.as_deref() == Some(&whole_note(&there)) => {
                self.pass(&self.open(&parent, name)?, None, Pass::Look)?
            }
            (Some(true), None, Some(_)) => self.pass(&self.open(&parent, name)?, None, Pass::Seal)?,
            (Some(true), Some(_), Some(_)) => self.merge(&parent, name)?,
            (_, None, _) => {
                return Err(self.error(Code::NotFound, &stage_path, Reason::StageOfPlanGone));
            }
            (_, Some(_), None) => {
                let (_, tree, _) = open_stage(self.header)?;
                let sum = self.pass(&tree, None, Pass::Make { seals: true })?;
                let info = tree.info().map_err(fail(Op::Stat))?;
                self.folder.note_finishing(&whole_note(&info))?;
                // R2: a name means that its content is on stable storage.
                sync::filesystem(&tree).map_err(fail(Op::SyncTheFileSystemOf))?;
                land::give_name(&parent, self.header.stage.as_name(), &parent, name, true)
                    .map_err(fail(Op::PublishDirectory))?;
                sync::all(&parent).map_err(fail(Op::SyncDirectoryOf))?;
                sum
            }
            (_, Some(_), Some(there)) => {
                if !self.request.merge {
                    return Err(self.error(Code::InTheWay, &self.dst_path, Reason::DestinationIsThere));
                }
                if there.kind != Kind::Dir {
                    return Err(self.error(Code::InTheWay, &self.dst_path, Reason::DirectoryOverFile));
                }
                let (_, tree, _) = open_stage(self.header)?;
                let beside = self.open(&parent, name)?;
                self.pass(&tree, Some(beside), Pass::Make { seals: false })?;
                self.folder.note_finishing(BY_MERGING)?;
                self.merge(&parent, name)?
            }
        };
        self.losses.tell_owners();
        let receipt = self.receipt(&sum);
        self.folder.write_receipt(receipt.as_bytes())?;
        tell_lost(&self.tally, self.header, self.lost(&sum));
        let own = self.tally.summary();
        let summary = Summary {
            files: sum.counts.files,
            dirs: sum.dirs,
            others: sum.counts.others + sum.further,
            bytes: sum.counts.bytes,
            ..own
        };
        Ok(Finished { summary, root: sum.root })
    }

    fn open(&self, parent: &Dir, name: Name<'_>) -> Result<Dir> {
        parent.open_dir_readable(name).map_err(|e| Error::os(Op::OpenDirectory, &self.dst_path, e))
    }

    /// Moves the tree into the directory that is there, name by name; then all directories are sealed.
    fn merge(&self, parent: &Dir, name: Name<'_>) -> Result<Sum> {
        let fail = |op: Op| move |e| Error::os(op, &self.dst_path, e);
        let (_, tree, _) = open_stage(self.header)?;
        let into = self.open(parent, name)?;
        sync::filesystem(&tree).map_err(fail(Op::SyncTheFileSystemOf))?;
        self.disk.merge_into(&tree, &into, false).map_err(fail(Op::MergeIntoDirectory))?;
        let sum = self.pass(&into, None, Pass::Seal)?;
        sync::filesystem(&into).map_err(fail(Op::SyncTheFileSystemOf))?;
        self.disk.remove_dir(parent, self.header.stage.as_name()).map_err(fail(Op::RemoveUnfinished))?;
        sync::all(parent).map_err(fail(Op::SyncDirectoryOf))?;
        Ok(sum)
    }

    /// What shards have lost, and the end itself.
    fn lost(&self, sum: &Sum) -> u64 {
        sum.counts.lost + self.tally.lost.load(Relaxed)
    }

    fn receipt(&self, sum: &Sum) -> String {
        let hex = |digest: &Digest| blake3::Hash::from_bytes(*digest).to_hex();
        let ShardCounts { files, others, bytes, .. } = sum.counts;
        let (others, lost) = (others + sum.further, self.lost(sum));
        format!(
            "bcmr plan receipt 1\nplan {}\nroot {}\nfiles {files}\ndirectories {}\nothers {others}\nbytes {bytes}\nlost {lost}\n",
            hex(self.plan),
            hex(&sum.root),
            sum.dirs,
        )
    }

    /// Goes through everything that the plan names, in its order, in the tree `top`.
    fn pass(&self, top: &Dir, beside: Option<Dir>, pass: Pass) -> Result<Sum> {
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |e: io::Error| Error::os(Op::OpenDirectory, &path, e)
        };
        let dst = top.reopen().map_err(fail(&self.dst_path))?;
        let (src, seen) = match &self.from {
            None => {
                let src = Dir::open(&self.src_path).map_err(fail(&self.src_path))?;
                (LevelSource::Here(src), None)
            }
            Some(source) => {
                let place = top.reopen().map_err(fail(&self.dst_path))?;
                let place = operands::place(place, &self.dst_path);
                let (policy, watch) = (&self.request.policy, self.tally.watch);
                let (top, seen) = from::look(source, self.parts(), &place, policy, watch)?;
                (LevelSource::there(top), Some(seen))
            }
        };
        let last = !matches!(pass, Pass::Make { seals: false });
        let sums = TreeSums::begin(self.folder, &self.dst_path, last && !self.is_live())?;
        let device = top.info().map_err(|e| Error::os(Op::Stat, &self.dst_path, e))?.dev;
        let mut going = PlanPass {
            run: self,
            pass,
            top,
            device,
            hand: self.disk.hand(),
            list: ListBuffer::new(),
            key: RandomState::new(),
            sums,
            seen,
            parts: Vec::new(),
            sum: Sum { root: Digest::default(), counts: ShardCounts::default(), dirs: 0, further: 0 },
        };
        let beside = beside.map(|dir| MergedInto::of(dir, device)).transpose();
        let beside = beside.map_err(|e| Error::os(Op::Stat, &self.dst_path, e))?;
        let top = Level::new(src, dst, beside, self.header.top);
        let gone = along((self.folder, self.header, self.plan), top, &mut going);
        let PlanPass { sums, mut sum, .. } = going;
        let root = sums.end(gone.is_ok())?;
        sum.counts = gone?;
        if !self.is_live() {
            sum.root = root;
        }
        Ok(sum)
    }
}

/// Counts directories.
struct Counting<'a> {
    tally: &'a Tally<'a>,
    dirs: u64,
}

impl Along for Counting<'_> {
    type Level = ();

    fn is_stopped(&self) -> bool {
        self.tally.cancelled()
    }

    fn enter(&mut self, (): &mut (), _: &[u8], _: &NameBuf, _: &Version) -> Result<()> {
        self.dirs += 1;
        Ok(())
    }

    fn entry(&mut self, (): &mut (), _: &[u8], _: &PlannedEntry, _: LandedEntry) -> Result<()> {
        Ok(())
    }

    fn leave(&mut self, (): (), _: &[u8], _: Option<&mut ()>) -> Result<()> {
        Ok(())
    }
}

fn whole_note(info: &Info) -> Vec<u8> {
    [AS_WHOLE, info.ino.to_string().as_bytes()].concat()
}

impl Level {
    fn new(src: LevelSource, dst: Dir, beside: Option<MergedInto>, version: Version) -> Level {
        Level { src, dst, beside, version, names: 0, alike: HashSet::new(), stages: None }
    }
}

/// A way through the plan.
struct PlanPass<'g, 'a> {
    run: &'g PlanEnd<'a>,
    pass: Pass,
    top: &'g Dir,
    /// That holds the tree.
    device: u64,
    hand: Hand,
    list: ListBuffer,
    /// Of [`digest_of`].
    key: RandomState,
    sums: TreeSums,
    /// What the source has, where it is on another machine.
    seen: Option<SeenSource>,
    /// Of the large file that is gone through.
    parts: Vec<Cv>,
    sum: Sum,
}

impl PlanPass<'_, '_> {
    fn error_at(&self, op: Op, path: &[u8], name: Option<Name<'_>>) -> impl Fn(io::Error) -> Error + use<> {
        let path = self.target(path, name);
        move |e| Error::os(op, &path, e)
    }

    fn source(&self, path: &[u8], name: Option<Name<'_>>) -> PathBuf {
        shown(&self.run.src_path, path, name)
    }

    fn target(&self, path: &[u8], name: Option<Name<'_>>) -> PathBuf {
        shown(&self.run.dst_path, path, name)
    }
}

fn shown(top: &Path, path: &[u8], name: Option<Name<'_>>) -> PathBuf {
    let mut whole = top.join(OsStr::from_bytes(path));
    if let Some(name) = name {
        whole.push(os(name));
    }
    whole
}

impl Along for PlanPass<'_, '_> {
    type Level = Level;

    fn is_stopped(&self) -> bool {
        self.run.tally.cancelled()
    }

    fn enter(&mut self, above: &mut Level, path: &[u8], name: &NameBuf, version: &Version) -> Result<Level> {
        let name = name.as_name();
        let src = above.src.enter(name);
        let src = src.map_err(|e| Error::os(Op::OpenDirectory, self.source(path, None), e))?;
        let dst = above.dst.open_dir_readable(name);
        let dst = dst.map_err(self.error_at(Op::OpenDirectory, path, None))?;
        let beside = match &above.beside {
            None => None,
            Some(above) => self.beside(above, path, name)?,
        };
        Ok(Level::new(src, dst, beside, *version))
    }

    /// Goes through one entry of the directory.
    fn entry(
        &mut self,
        level: &mut Level,
        path: &[u8],
        entry: &PlannedEntry,
        landed: LandedEntry,
    ) -> Result<()> {
        let is_first = !matches!(entry.what, PlannedAs::Part { at, .. } if at > 0);
        let (name, kind) = (entry.name.as_name(), entry.version().kind);
        if is_first {
            self.seen(level, path, entry)?;
            self.parts.clear();
            self.expect(level, path, name, kind)?;
            self.sums.entry(kind, path, name);
        }
        match (&entry.what, landed) {
            (PlannedAs::Whole(_), LandedEntry::File(hash)) => self.hashed(path, name, &hash),
            (PlannedAs::Whole(of), _) => {
                if of.kind == Kind::Link && !self.run.is_live() {
                    let target = level.dst.read_link(name);
                    let target = target.map_err(self.error_at(Op::ReadLink, path, Some(name)))?;
                    self.sums.target(target.as_bytes());
                }
                Ok(())
            }
            (PlannedAs::Part { of, at, bytes }, LandedEntry::Part(value)) => {
                self.parts.push(value);
                if at + bytes < of.size {
                    return Ok(());
                }
                let Some(hash) = whole_hash_by(self.run.header.part_bytes, &self.parts, of.size) else {
                    return Err(self.run.error(Code::Io, &self.run.folder.path, Reason::PlanDamaged));
                };
                if self.pass != Pass::Look && self.pass != Pass::Seal {
                    self.seal_file(level, path, name, of)?;
                }
                self.hashed(path, name, hash.as_bytes())
            }
            (PlannedAs::Directory(_), _) => {
                self.sum.dirs += 1;
                if matches!(self.pass, Pass::Make { .. }) {
                    self.missing_dir(level, path, name)
                } else {
                    Ok(())
                }
            }
            (PlannedAs::Linked { of, first }, _) => {
                self.sum.further += 1;
                self.sums.first(first);
                let makes = matches!(self.pass, Pass::Make { .. });
                if makes { self.link(level, path, (name, of), first) } else { Ok(()) }
            }
            _ => Err(self.run.error(Code::Io, &self.run.folder.path, Reason::ResultDamaged)),
        }
    }

    /// Ends a directory: what is left in it of runs that were killed goes, and nothing else may be there.
    fn leave(&mut self, level: Level, path: &[u8], _: Option<&mut Level>) -> Result<()> {
        let shown = self.target(path, None);
        if matches!(self.pass, Pass::Make { .. }) && !self.run.is_live() {
            self.only_the_plan(&level, &shown)?;
        }
        if self.pass == Pass::Look || self.pass == (Pass::Make { seals: false }) {
            return Ok(());
        }
        let from = self.source(path, None);
        let source = || from.clone();
        let info = level.src.info().map_err(|e| Error::os(Op::Stat, source(), e))?;
        if !level.version.is(&info) {
            let note = Reason::ChangedSincePlan;
            self.run.tally.warn(Error::ours(Code::SourceChanged, Op::Copy, source(), note));
        }
        let sealed =
            self.run.disk.seal_dir(&mut self.hand, &level.dst, level.src.attributes(), &info, &self.run.keep);
        self.run.losses.tell(sealed.lost, source, || shown.clone());
        Ok(())
    }
}

impl PlanPass<'_, '_> {
    fn changed(&self, path: &[u8], name: Name<'_>) -> Error {
        let shown = self.source(path, Some(name));
        self.run.error(Code::SourceChanged, &shown, Reason::ChangedSincePlan)
    }

    /// What a name is on the other machine now: nothing is published while it is of another kind, or the further name of
    /// another file.
    fn seen(&mut self, level: &mut Level, path: &[u8], entry: &PlannedEntry) -> Result<()> {
        let (Some(seen), LevelSource::There(_, below)) = (&mut self.seen, &mut level.src) else {
            return Ok(());
        };
        let name = entry.name.as_name();
        let Some(now) = seen.find(path, name)? else { return Err(self.changed(path, name)) };
        let is_same = match &entry.what {
            PlannedAs::Linked { of, .. } => of.is(&now.info),
            _ => entry.version().kind == now.info.kind,
        };
        if !is_same {
            return Err(self.changed(path, name));
        }
        if now.info.kind == Kind::Dir {
            below.insert(entry.name.clone(), now);
        }
        Ok(())
    }

    /// The hash of a file.
    fn hashed(&mut self, path: &[u8], name: Name<'_>, hash: &Digest) -> Result<()> {
        let shown = || shown(&self.run.dst_path, path, Some(name));
        self.sums.file((path, name), hash, &self.run.tally, shown);
        Ok(())
    }

    /// A name that the directory is to have; where the tree is merged, nothing of another kind may stand in its way.
    fn expect(&mut self, level: &mut Level, path: &[u8], name: Name<'_>, kind: Kind) -> Result<()> {
        level.names = level.names.wrapping_add(digest_of(&self.key, name, kind));
        if stage::is_alike(name) {
            level.alike.insert(name.to_owned());
        }
        let Some(MergedInto { dir, beyond }) = &level.beside else { return Ok(()) };
        if let Some(why) = beyond {
            return Err(self.not_merged(path, None, *why));
        }
        let fail = |op| self.error_at(op, path, Some(name));
        match dir.look(name).map_err(fail(Op::Stat))? {
            Some(info) if (info.kind == Kind::Dir) != (kind == Kind::Dir) => {
                let why = match kind {
                    Kind::Dir => Reason::DirectoryOverFile,
                    _ => Reason::FileOverDirectory,
                };
                Err(self.run.error(Code::InTheWay, &self.target(path, Some(name)), why))
            }
            Some(info) if info.kind != Kind::Dir => {
                // A file can be a mount point too. Of its device overlayfs says something else than of its directory's.
                let place = dir.open_path(name).and_then(Place::of).map_err(fail(Op::Stat))?;
                match remove::beyond(&place, place.dev) {
                    Some(why) => Err(self.not_merged(path, Some(name), why)),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// What the tree's directory with this path is merged into, if that is there.
    fn beside(&self, above: &MergedInto, path: &[u8], name: Name<'_>) -> Result<Option<MergedInto>> {
        let Ok(dir) = above.dir.open_dir_readable(name) else { return Ok(None) };
        let mut beside = MergedInto::of(dir, self.device).map_err(self.error_at(Op::Stat, path, None))?;
        beside.beyond = beside.beyond.or(above.beyond);
        Ok(Some(beside))
    }

    /// A rename leads into nothing that is mounted, and replaces no mount point: so nothing is moved at all.
    fn not_merged(&self, path: &[u8], name: Option<Name<'_>>, why: Reason) -> Error {
        Error::ours(Code::Refused, Op::MergeInto, self.target(path, name), why)
    }

    /// Makes a directory that no shard had anything for.
    fn missing_dir(&self, level: &Level, path: &[u8], name: Name<'_>) -> Result<()> {
        let fail = |op| self.error_at(op, path, Some(name));
        let made = land::ensure_dir(&level.dst, name, 0o700).map_err(fail(Op::MakeDirectory))?;
        if made || !self.run.is_live() {
            return Ok(());
        }
        // The source has a directory of this name: what stands there instead goes, as with `sync`.
        if level.dst.stat(name).map_err(fail(Op::Stat))?.kind != Kind::Dir {
            level.dst.remove_file(name).map_err(fail(Op::Replace))?;
            land::ensure_dir(&level.dst, name, 0o700).map_err(fail(Op::MakeDirectory))?;
        }
        Ok(())
    }

    /// Makes a further name of a file.
    fn link(
        &self,
        level: &mut Level,
        path: &[u8],
        (name, of): (Name<'_>, &Version),
        first: &[u8],
    ) -> Result<()> {
        if let LevelSource::Here(src) = &level.src
            && src
                .look(name)
                .map_err(self.error_at(Op::Stat, path, Some(name)))?
                .is_none_or(|now| !of.is(&now))
        {
            return Err(self.changed(path, name));
        }
        let fail = self.error_at(Op::MakeHardLink, path, Some(name));
        let at = first.iter().rposition(|b| *b == b'/');
        let (dir, of) = first.split_at_checked(at.map_or(0, |at| at + 1)).unwrap_or((b"", first));
        let dir = below(self.top, dir.strip_suffix(b"/").unwrap_or(dir)).map_err(&fail)?;
        let of = NameBuf::new(of).ok_or(io::ErrorKind::InvalidInput.into()).map_err(&fail)?;
        match land::second_name(&dir, of.as_name(), &level.dst, name) {
            Err(e) if e.raw_os_error() == Some(errno::EEXIST) => {
                let one = dir.stat(of.as_name()).map_err(&fail)?;
                let two = level.dst.stat(name).map_err(&fail)?;
                if one.id() == two.id() {
                    return Ok(());
                }
                if !self.run.is_live() {
                    return Err(fail(e));
                }
                self.replace_by_link(level, path, (name, two.kind), (&dir, of.as_name()))
            }
            other => other.map_err(fail),
        }
    }

    /// Gives `of` the name of what is there: another file, or what the name was before. The name has one or the other at any
    /// time, unless it is an empty directory, which goes first as with `sync`.
    fn replace_by_link(
        &self,
        level: &mut Level,
        path: &[u8],
        (name, kind): (Name<'_>, Kind),
        (dir, of): (&Dir, Name<'_>),
    ) -> Result<()> {
        let fail = self.error_at(Op::MakeHardLink, path, Some(name));
        if kind == Kind::Dir {
            level.dst.remove_dir(name).map_err(|e| match e.raw_os_error() {
                Some(errno::ENOTEMPTY | errno::EEXIST) => {
                    let at = self.target(path, Some(name));
                    Error::ours(Code::InTheWay, Op::Replace, at, Reason::FileOverDirectory)
                }
                _ => self.error_at(Op::RemoveDirectory, path, Some(name))(e),
            })?;
        }
        let aside = self.aside(level, path)?;
        let left = land::replace_by_link((dir, of), (&level.dst, name), aside.as_name()).map_err(&fail)?;
        left.map_err(self.error_at(Op::RemoveUnfinished, path, None))
    }

    /// A name in this directory for what gets its own in a moment: the directory's own where its lock can be had, so that the
    /// next run that has it takes away what one that was killed has left (R8).
    fn aside(&self, level: &mut Level, path: &[u8]) -> Result<NameBuf> {
        let disk = &self.run.disk;
        let stages = match level.stages.take() {
            Some(stages) => stages,
            None => {
                let dir = level.dst.reopen().map_err(self.error_at(Op::OpenDirectory, path, None))?;
                let node = Node::root(&self.target(path, None));
                DestDir::existing(disk, dir, node, None, &self.run.request.policy)?
            }
        };
        let stages = level.stages.insert(stages);
        stages.open_up(disk);
        let name = if stages.is_sole(disk) { stages.home.stage() } else { stage::random() };
        let shown = self.target(path, None);
        name.ok_or_else(|| Error::ours(Code::Io, Op::NameAStageFor, shown, Reason::NoNameForStage))
    }

    /// Gives a file that came in parts what else its source has.
    fn seal_file(&mut self, level: &Level, path: &[u8], name: Name<'_>, of: &Version) -> Result<()> {
        let source = self.source(path, Some(name));
        // Only where every machine sees both sides are files in parts.
        let LevelSource::Here(src) = &level.src else {
            return Err(self.run.error(Code::Io, &self.run.folder.path, Reason::PlanDamaged));
        };
        let from = src.open_file(name).map_err(|e| Error::os(Op::Open, &source, e))?;
        let info = Info::of(&from).map_err(|e| Error::os(Op::Stat, &source, e))?;
        if !of.is(&info) {
            return Err(self.run.error(Code::SourceChanged, &source, Reason::ChangedSincePlan));
        }
        let file = level.dst.open_file(name).map_err(self.error_at(Op::Open, path, Some(name)))?;
        let attributes = Attributes::At(src, name);
        let mut job = Job::new(name, Placement::Final, info, None, Body::File(from), attributes);
        job.file = Some(file);
        let mut jobs = [job];
        self.run.disk.seal(&mut self.hand, &level.dst, &mut jobs, &self.run.keep);
        let target = || self.target(path, Some(name));
        let [job] = jobs;
        self.run.losses.tell(job.lost, || source.clone(), target);
        match job.fault {
            Some(fault) => Err(fault.told(|| source.clone(), target)),
            None => Ok(()),
        }
    }

    fn only_the_plan(&mut self, level: &Level, shown: &Path) -> Result<()> {
        let fail = |op: Op| move |e| Error::os(op, shown, e);
        let home: Home = land::home_of(&level.dst).map_err(fail(Op::Stat))?;
        let (mut names, mut stale, mut unknown) = (0u64, Vec::new(), Vec::new());
        let key = &self.key;
        // By a handle of its own: what was made since the directory was opened is not listed on every file system (btrfs).
        let dir = level.dst.reopen().map_err(fail(Op::OpenDirectory))?;
        let listed = dir.list(&mut self.list, |entry| {
            let ours = stage::is_random(entry.name) || home.role(entry.name) == Some(Role::Stage);
            if ours && !level.alike.contains(&entry.name.to_owned()) {
                stale.push(entry.name.to_owned());
            } else {
                match entry.kind {
                    Some(kind) => names = names.wrapping_add(digest_of(key, entry.name, kind)),
                    None => unknown.push(entry.name.to_owned()),
                }
            }
            true
        });
        listed.map_err(fail(Op::ListDirectory))?;
        for name in &unknown {
            let kind = level.dst.stat(name.as_name()).map_err(fail(Op::Stat))?.kind;
            names = names.wrapping_add(digest_of(key, name.as_name(), kind));
        }
        for name in &stale {
            self.run.disk.remove_tree(&level.dst, name.as_name()).map_err(fail(Op::RemoveUnfinished))?;
        }
        if names == level.names {
            return Ok(());
        }
        Err(self.run.error(Code::Refused, shown, Reason::StrangersInStage))
    }
}
