//! Does one shard of a plan: copies its entries into the tree that all shards fill, and records what became of them.
//!
//! Must not publish anything: the tree has no name until the plan is finished.
//!
//! Entries come in frames. A frame's files are landed as a round of one copy of names, and every entry is compared with the
//! plan, by what it was when it was read; only then, and once it is on stable storage (R2), what became of the frame is
//! recorded. So a run that is killed costs the frames that were not recorded yet, and what is recorded needs no second look.

use super::changed::{self, LeftName, LookedIn, Tells};
use super::claim::{ClaimOf, ClaimsFolder, HeldClaim};
use super::folder::{PlanFolder, ResultFile};
use super::format::{
    Digest, LandedEntry, PlanHeader, PlannedAs, PlannedDir, PlannedEntry, ResultFrame, ShardCounts, all_fit,
    fits,
};
use super::from;
use super::part;
use super::places::{below, compared, open_stage, spot, the_planned_source};
use super::requests::{PlanVerb, ShardChoice, ShardRequest};
use super::share::{FrameStep, ShardShare};
use super::there;
use super::{take, take_there};
use crate::disk::sys::Sys;
use crate::error::{About, Code, Error, Op, Reason, Result};
use crate::event::{Event, Front, HearingFront, Summary, Watch};
use crate::node::os;
use crate::peer::planned::{LandedHashes, TreeThere};
use crate::peer::planned_source::SourceThere;
use crate::peer::with_retries;
use crate::policy::{Compare, CopyPolicy, Durability};
use crate::receiver::land;
use crate::remote::{Address, Purpose, Way};
use crate::remove;
use crate::sender::names::Names;
use crate::tally::Tally;
use crate::verbs::check::Check;
use crate::verbs::local::NamesBelow;
use crate::verbs::named_dirs::NamedDirs;
use crate::verbs::nameless::TreeNames;
use crate::verbs::operands::{self, Place, Where};
use crate::verbs::round_lacks::RoundLacks;
use crate::verbs::round_ledger::FetchedNames;
use crate::verbs::rounds::{ComparedRounds, Ground, Rounds};
use crate::verbs::survey::Survey;
use fastcopy::dir::{Dir, ListBuffer, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use fastcopy::sync;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long frames are copied before what became of them is recorded: what a kill costs.
const RECORD_EVERY: Duration = Duration::from_secs(5);

/// Counts what is told of losses, and passes on the rest but hashes, which go into the result.
fn counting_losses<'a>(front: &'a dyn Front, lost: &'a AtomicU64) -> impl Front + 'a {
    HearingFront::new(front, |front: &dyn Front, event| match event {
        Event::Hashed { .. } => {}
        event => {
            if let Event::Failed(e) = &event
                && e.code.is_of_metadata()
            {
                lost.fetch_add(lost_by(e), Relaxed);
            }
            front.event(event);
        }
    })
}

/// What one failure counts for: owners are told of once for many entries.
fn lost_by(e: &Error) -> u64 {
    let note = e.note.as_ref();
    let many = note.filter(|note| matches!(note.reason, Reason::OwnersNotKept | Reason::OwnersNotHeld));
    match many.and_then(|note| note.about.first()) {
        // It may be the word of another machine.
        Some(About::Text(number)) => number.parse().map_or(1, |many: u32| u64::from(many.max(1))),
        _ => 1,
    }
}

/// One shard at work.
struct ShardWork<'a> {
    header: &'a PlanHeader,
    policy: &'a CopyPolicy,
    /// What was lost since the last frame was recorded.
    lost: &'a AtomicU64,
    way: ShardWay<'a>,
    /// The directory that is copied, if it is here, and what is filled.
    src: Option<Dir>,
    src_path: PathBuf,
    stage: Dir,
    stage_path: PathBuf,
    watch: Watch<'a>,
    tally: &'a Tally<'a>,
}

/// What became of a name, once: attributes of what landed, and the hash of its content where it was read.
type Outcomes<'a> = dyn FnMut(&NameBuf) -> Option<(Info, Option<Digest>)> + 'a;

/// How a shard deals with its entries.
enum ShardWay<'a> {
    /// Copies them into the tree of all shards, or brings them into a destination that is there.
    Brings(Box<Rounds<'a>>),
    /// Sends them into the tree of all shards on another machine, or into a destination that is there.
    Sends(Box<TreeThere<'a>>),
    /// Reads them from another machine into the tree of all shards, or into a destination that is there.
    Fetches(Box<Fetching<'a>>),
    Compares(ComparedRounds<'a, 'a>),
    /// Compares those of another machine with what is here.
    ComparesThere(Box<Fetching<'a>>, Compare, Where),
    /// Compares them with what another machine has.
    ComparesWithThere(Box<TreeThere<'a>>, Purpose),
    TakesAway,
    /// Takes those of another machine away.
    TakesThere(Box<Fetching<'a>>),
}

/// A source on another machine, and what it is read into or compared with.
struct Fetching<'a> {
    source: SourceThere<'a>,
    disk: &'a Sys,
    tree: Arc<Place>,
    names: TreeNames,
    ledger: FetchedNames,
}

impl ShardWay<'_> {
    /// Ends it. Returns what was done in all.
    fn end(self, mut sum: Summary) -> Result<Summary> {
        match self {
            ShardWay::Brings(copies) => sum.add(Summary { dirs: 0, ..copies.end() }),
            ShardWay::Sends(tree) | ShardWay::ComparesWithThere(tree, _) => sum = tree.end(Ok(sum))?,
            ShardWay::Fetches(far) | ShardWay::ComparesThere(far, ..) | ShardWay::TakesThere(far) => {
                sum = far.source.end(Ok(sum))?;
            }
            ShardWay::Compares(compared) => compared.end(),
            ShardWay::TakesAway => {}
        }
        Ok(sum)
    }
}

/// Does a shard, or those that no other process is at.
///
/// # Errors
/// Nothing could be begun; what happens to single entries is told through `watch` and counted.
pub fn shard(request: &ShardRequest, watch: Watch<'_>) -> Result<Summary> {
    shard_shared(request, &ShardShare::whole(), watch)
}

/// The same, where other processes do those frames of the one shard that are not in `share`, or are taken out of it meanwhile.
/// That shard has its result once one process has done it whole; it reads what the others have recorded.
///
/// # Errors
/// As [`shard()`].
pub fn shard_shared(request: &ShardRequest, share: &ShardShare, watch: Watch<'_>) -> Result<Summary> {
    let folder = PlanFolder::open(&request.plan)?;
    let (header, plan) = folder.header()?;
    let (claims, results) = (folder.claims()?, folder.results()?);
    let claims = ClaimsFolder::new(&claims, &request.plan);
    let run = |shard: u32, share: &ShardShare, held: HeldClaim<'_>| -> Result<Summary> {
        let guard = held.during(|| {
            refuse_while_finishing(&claims, &folder)?;
            let once = |share: &ShardShare| {
                one(&folder, &header, &plan, &results, (shard, share), request, watch, &held)
            };
            match &request.way {
                // What is left of it is what is not recorded, whichever attempt has begun it.
                Some(way) => with_retries(way, &request.policy, watch, || once(&ShardShare::whole())),
                None => once(share),
            }
        });
        held.release().map_err(|e| Error::os(Op::Claim, &request.plan, e))?;
        guard
    };
    let all = match request.which {
        ShardChoice::Number(shard) => {
            folder.entries(&header, shard)?;
            if folder.is_done(&header, &plan, shard)? {
                return Ok(Summary::default());
            }
            let held = match claims.take(ClaimOf::Shard(shard))? {
                Ok(held) => held,
                // The user knows why; what two processes copy is the same.
                Err(_) => claims.beside(shard)?,
            };
            return run(shard, share, held);
        }
        ShardChoice::Next => false,
        ShardChoice::All => true,
    };
    let (mut sum, mut tried) = (Summary::default(), HashSet::new());
    loop {
        if watch.cancel.is_set() {
            sum.cancelled = true;
            break;
        }
        let taken = next_free(&folder, (&header, &plan), &claims, &tried)?;
        let Some((shard, held)) = taken else { break };
        tried.insert(shard);
        let done = run(shard, &ShardShare::whole(), held)?;
        sum.add(done);
        if !all {
            break;
        }
    }
    if tried.is_empty() && !all && !sum.cancelled {
        return Err(Error::ours(Code::NotFound, Op::CopyShardOf, &request.plan, Reason::NoShardLeft));
    }
    Ok(sum)
}

/// Claims a shard that has no result, that no other process is at, and that this one has not tried. Results and claims are
/// listed and not asked for one by one, and each process begins at a place of its own, so that very many of them cost
/// little more than one.
fn next_free<'c>(
    folder: &PlanFolder,
    (header, plan): (&PlanHeader, &Digest),
    claims: &ClaimsFolder<'c>,
    tried: &HashSet<u32>,
) -> Result<Option<(u32, HeldClaim<'c>)>> {
    let (done, claimed) = (folder.with_results()?, claims.claimed()?);
    for shard in order_of(header.shards.len() as u32, start_of(tried), &done, &claimed) {
        if tried.contains(&shard) || folder.has_result(header, plan, shard)? {
            continue;
        }
        let Ok(held) = claims.take(ClaimOf::Shard(shard))? else { continue };
        // Another process may have done it between the look and the claim.
        if !folder.has_result(header, plan, shard)? {
            return Ok(Some((shard, held)));
        }
        held.release().map_err(|e| Error::os(Op::Claim, &folder.path, e))?;
    }
    Ok(None)
}

/// Results of a plan of no more shards are looked at one by one before they are believed to be of this plan.
const LOOKED_AT_MAX: u32 = 1024;

/// In which order shards are tried: those that nothing is known of, from `start` on; then those of claims, whose processes
/// may be dead, and those of results, which may be another plan's. Where there are very many of these the end finds out.
fn order_of(shards: u32, start: u64, done: &HashSet<u32>, claimed: &HashSet<u32>) -> Vec<u32> {
    let start = (start % u64::from(shards.max(1))) as u32;
    let all = (start..shards).chain(0..start);
    let is_tried = |shard: &u32| shards <= LOOKED_AT_MAX || !done.contains(shard);
    let mut order: Vec<u32> = all.filter(is_tried).collect();
    // A stable sort: the order within each of the three stays.
    order.sort_by_key(|shard| (done.contains(shard), claimed.contains(shard)));
    order
}

/// Where a process begins to look: behind what it did last, else at a place that differs from process to process.
fn start_of(tried: &HashSet<u32>) -> u64 {
    match tried.iter().max() {
        Some(last) => u64::from(*last) + 1,
        None => u64::from(std::process::id()).wrapping_mul(0x9E37_79B9),
    }
}

/// Nothing is copied into a tree that is being published, or was. Asked after the shard is claimed, as the process that
/// finishes looks for claims after its own: one of the two sees the other.
fn refuse_while_finishing(claims: &ClaimsFolder<'_>, folder: &PlanFolder) -> Result<()> {
    let refused = |why: Reason| Error::ours(Code::Refused, Op::CopyShardOf, &folder.path, why);
    if folder.receipt()?.is_some() {
        return Err(refused(Reason::AlreadyFinished));
    }
    if claims.finishing()?.is_some() {
        return Err(refused(Reason::FinishAtWork));
    }
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "one call; what is shared by all shards, and the one")]
fn one(
    folder: &PlanFolder,
    header: &PlanHeader,
    plan: &Digest,
    results: &Dir,
    (shard, share): (u32, &ShardShare),
    request: &ShardRequest,
    watch: Watch<'_>,
    held: &HeldClaim<'_>,
) -> Result<Summary> {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let (mut src_path, dst_path) = (path(&header.source), path(&header.destination));
    let from = header.from();
    let src = match from {
        None => Some(Dir::open(&src_path).map_err(|e| Error::os(Op::OpenDirectory, &src_path, e))?),
        Some(_) => None,
    };
    let policy = policy_of(header, &request.policy);
    let disk = Sys::with(policy.io);
    // What is filled: a tree without a name, or what is there; nothing is where names are only looked at or taken away.
    let there = header.there();
    let (mut stage, stage_path) = match &src {
        _ if header.verb == PlanVerb::Copy && there.is_none() => {
            let (_, stage, path) = open_stage(header)?;
            (stage, path)
        }
        Some(src) => {
            the_planned_source(src, header)?;
            let here = src.try_clone().map_err(|e| Error::os(Op::Open, &src_path, e))?;
            (here, dst_path.clone())
        }
        None if matches!(header.verb, PlanVerb::Remove | PlanVerb::Check { .. }) => {
            let here = folder.dir.reopen().map_err(|e| Error::os(Op::ReadPlan, &folder.path, e))?;
            (here, if header.verb == PlanVerb::Remove { folder.path.clone() } else { dst_path.clone() })
        }
        None => (the_destination(&dst_path)?, dst_path.clone()),
    };
    // R8: while it is locked, `sessions` leaves it alone. Where another shard of this machine has it locked, it does as well.
    let locks = header.verb == PlanVerb::Copy && there.is_none();
    let _lock = locks.then(|| stage.reopen().map(|dir| (dir.try_lock(), dir)));
    let shown = folder.result_path(shard);
    let before = recorded(folder, plan, results, shard).map_err(|e| Error::os(Op::ReadPlan, shown, e))?;
    let ground = if before.names.is_empty() { Ground::Fresh } else { Ground::Trodden };
    let lost = AtomicU64::new(0);
    let listener = counting_losses(watch.front, &lost);
    let heard = Watch { front: &listener, ..watch };
    let tally = Tally::new(watch);
    let compare = match header.verb {
        PlanVerb::Check { compare, .. } => compare,
        _ => Compare::SizeAndTime,
    };
    let (root, tally, policy) = (&*dst_path, &tally, &policy);
    let mut survey = Survey::new(policy, tally, Box::new(planned_check(policy, compare, root, tally)))?;
    survey.lacks = Some(RoundLacks::default());
    let way = match header.verb {
        _ if let Some(to) = &there => to_there((folder, header), (to, request.way.as_ref()), policy, heard)?,
        verb if let Some(from) = &from => {
            let source = from::reach((folder, verb), (from, request.way.as_ref()), policy, heard)?;
            src_path = source.shown(b"");
            let top = stage.reopen().map_err(|e| Error::os(Op::Open, &stage_path, e))?;
            let (tree, disk, ledger) = (operands::place(top, &stage_path), &disk, FetchedNames::default());
            from::the_planned_source(&source, tree.clone(), policy, header)?;
            if verb == PlanVerb::Remove {
                take_there::guard(&source)?;
            }
            let names = if verb == PlanVerb::Copy { TreeNames::Some } else { TreeNames::Round };
            let far = Box::new(Fetching { source, disk, tree, names, ledger });
            match verb {
                PlanVerb::Copy | PlanVerb::Sync { .. } => ShardWay::Fetches(far),
                PlanVerb::Check { .. } => ShardWay::ComparesThere(far, compare, compared(&dst_path)?),
                PlanVerb::Remove => ShardWay::TakesThere(far),
            }
        }
        PlanVerb::Copy => {
            let tree = (&stage, &*stage_path);
            ShardWay::Brings(Box::new(Rounds::begin(&disk, policy, heard, &src_path, tree, ground)?))
        }
        PlanVerb::Sync { .. } => {
            stage = the_destination(&dst_path)?;
            ShardWay::Brings(Box::new(Rounds::live(&disk, policy, heard, &src_path, &dst_path)?))
        }
        PlanVerb::Check { .. } => ShardWay::Compares(ComparedRounds::begin(&survey, &src_path, &dst_path)?),
        PlanVerb::Remove => {
            if let Some(src) = &src {
                remove::guard(src, &src_path)?;
            }
            ShardWay::TakesAway
        }
    };
    let lost = &lost;
    let work = ShardWork { header, policy, lost, way, src, src_path, stage, stage_path, watch, tally };
    work.run(folder, plan, (results, before), (shard, share), held)
}

/// A comparison of planned names with what is below `root`. What only the destination has is the finish's to tell.
pub(super) fn planned_check<'a>(
    policy: &'a CopyPolicy,
    compare: Compare,
    root: &'a Path,
    tally: &'a Tally<'a>,
) -> Check<'a> {
    Check { policy, compare, extra: false, alike: false, root, own_name: root, tally }
}

/// How entries are dealt with where the destination is another machine's.
fn to_there<'w>(
    (folder, header): (&PlanFolder, &PlanHeader),
    (to, way): (&Address, Option<&'w Way>),
    policy: &CopyPolicy,
    watch: Watch<'w>,
) -> Result<ShardWay<'w>> {
    let way = there::the_way(folder, way)?;
    Ok(match header.verb {
        PlanVerb::Check { compare, .. } => {
            let purpose = Purpose::Check { compare, extra: false, alike: false };
            let tree = TreeThere::reach_compared((to, way), (policy, purpose), watch)?;
            ShardWay::ComparesWithThere(Box::new(tree), purpose)
        }
        PlanVerb::Copy => {
            let tree = there::reach((folder, header), (to, Some(way)), policy, watch)?;
            ShardWay::Sends(Box::new(tree))
        }
        PlanVerb::Sync { .. } | PlanVerb::Remove => {
            ShardWay::Sends(Box::new(TreeThere::reach_named((to, way), policy, watch)?))
        }
    })
}

/// The destination that is brought up to date, made where it is not there.
fn the_destination(path: &Path) -> Result<Dir> {
    let place = spot(path, Op::CopyTo)?;
    land::ensure_dir(&place.place.dir, place.name.as_name(), 0o700)
        .map_err(|e| Error::os(Op::MakeDirectory, path, e))?;
    Dir::open(path).map_err(|e| Error::os(Op::OpenDirectory, path, e))
}

/// How entries are dealt with.
fn policy_of(header: &PlanHeader, asked: &CopyPolicy) -> CopyPolicy {
    match header.verb {
        PlanVerb::Sync { by_content, .. } => {
            let policy = there::bringing(asked, by_content);
            // Here all of a frame is synced at once.
            let durability = if header.host.is_some() { policy.durability } else { Durability::Cache };
            CopyPolicy { durability, ..policy }
        }
        PlanVerb::Copy | PlanVerb::Check { .. } | PlanVerb::Remove => there::filling(asked),
    }
}

/// What runs of a shard that were stopped have left.
struct RecordedBefore {
    /// The files where that stands.
    names: Vec<NameBuf>,
    frames: BTreeMap<u32, (ShardCounts, Vec<LandedEntry>)>,
}

/// What runs of this shard that were stopped have recorded.
fn recorded(folder: &PlanFolder, plan: &Digest, results: &Dir, shard: u32) -> io::Result<RecordedBefore> {
    let mut names = Vec::new();
    results.reopen()?.list(&mut ListBuffer::new(), |entry| {
        if ResultFile::is_unfinished(entry.name, shard) {
            names.push(entry.name.to_owned());
        }
        true
    })?;
    let mut frames = BTreeMap::new();
    for name in &names {
        for (index, counts, landed) in folder.recorded(results, name.as_name(), plan, shard)? {
            frames.insert(index, (counts, landed));
        }
    }
    Ok(RecordedBefore { names, frames })
}

impl ShardWork<'_> {
    fn run(
        self,
        folder: &PlanFolder,
        plan: &Digest,
        (results, before): (&Dir, RecordedBefore),
        (shard, share): (u32, &ShardShare),
        held: &HeldClaim<'_>,
    ) -> Result<Summary> {
        let shown = folder.result_path(shard);
        let fail = |e: io::Error| Error::os(Op::WritePlan, &shown, e);
        let RecordedBefore { names: unfinished, frames: mut recorded } = before;
        let mut out = ResultFile::begin(results, shard, plan).map_err(fail)?;
        let mut entries = folder.entries(self.header, shard)?;
        let frames = self.header.shards.get(shard as usize).map_or(0, |totals| totals.frames);
        share.counted(frames);
        let mut waiting: Vec<ResultFrame> = Vec::new();
        let (mut sum, mut index, mut is_whole) = (Summary::default(), 0, true);
        let mut since = Instant::now();
        let ended = loop {
            if self.watch.cancel.is_set() {
                sum.cancelled = true;
                break Ok(());
            }
            let dirs = match entries.next() {
                Ok(Some(dirs)) => dirs,
                Ok(None) => break Ok(()),
                Err(e) => break Err(e),
            };
            match share.step(index) {
                FrameStep::PassOver => {
                    index += 1;
                    continue;
                }
                FrameStep::End if index < frames => break Ok(()),
                // Of more frames than the plan says their reader tells.
                FrameStep::Do | FrameStep::End => {}
            }
            let known =
                recorded.remove(&index).filter(|(_, landed)| all_fit(self.header.verb, &dirs, landed));
            let done = match known {
                Some((counts, landed)) => {
                    sum.kept += landed.len() as u64;
                    Ok(Some((counts, landed)))
                }
                None => self.frame(&dirs, &mut sum),
            };
            match done {
                Ok(Some((counts, landed))) => waiting.push(ResultFrame::Entries { index, counts, landed }),
                Ok(None) => is_whole = false,
                Err(e) => break Err(e),
            }
            index += 1;
            if since.elapsed() >= RECORD_EVERY {
                if let Err(e) = self.record(&mut out, &mut waiting) {
                    break Err(fail(e));
                }
                since = Instant::now();
                if !held.is_held().map_err(fail)? {
                    break Err(Error::ours(
                        Code::Refused,
                        Op::CopyShardOf,
                        &folder.path,
                        Reason::TakenAwayByOthers,
                    ));
                }
            }
        };
        self.record(&mut out, &mut waiting).map_err(fail)?;
        ended?;
        let ShardWork { header, watch, tally, way, .. } = self;
        sum = way.end(sum)?;
        sum.add(tally.summary());
        if sum.cancelled || watch.cancel.is_set() {
            sum.cancelled = true;
            return Ok(sum);
        }
        if !is_whole {
            let note = match header.verb {
                PlanVerb::Copy => Reason::NotAllCopied,
                _ => Reason::NotAllTakenAway,
            };
            watch.front.event(Event::Warning(Error::ours(Code::Io, Op::CopyShardOf, &folder.path, note)));
            return Ok(sum);
        }
        if share.is_shared(frames) {
            return Ok(sum);
        }
        let own = NameBuf::new(out.now().bytes());
        match out.end(shard) {
            // Another process was at the same shard, has ended it and taken away what this one had recorded.
            Err(e) if e.raw_os_error() == Some(errno::ENOENT) && folder.is_done(header, plan, shard)? => {}
            other => other.map_err(fail)?,
        }
        let others = unfinished.into_iter().filter(|name| Some(name) != own.as_ref());
        remove_all(results, others).map(|()| sum).map_err(fail)
    }

    /// Records what became of frames, once that is on stable storage (R2).
    fn record(&self, out: &mut ResultFile<'_>, waiting: &mut Vec<ResultFrame>) -> io::Result<()> {
        if waiting.is_empty() {
            return Ok(());
        }
        // R5: what a failed sync was for is copied again, and never synced a second time.
        let frames = std::mem::take(waiting);
        // What crossed to another machine, or from there, was synced before it was told.
        if matches!(self.way, ShardWay::Brings(_)) {
            sync::filesystem(&self.stage)?;
        }
        for frame in frames {
            out.frame(&frame)?;
        }
        out.sync()
    }

    /// Copies the entries of a frame. `None`: something of it is not there, which was told.
    fn frame(
        &self,
        dirs: &[PlannedDir],
        sum: &mut Summary,
    ) -> Result<Option<(ShardCounts, Vec<LandedEntry>)>> {
        match &self.way {
            ShardWay::Brings(copies) => self.brought(copies, dirs, sum),
            ShardWay::Sends(tree) => self.sent(tree, dirs, sum),
            ShardWay::Fetches(fetching) => self.fetched(fetching, dirs, sum),
            ShardWay::Compares(compared) => self.compared(dirs, Tells::Gone, || {
                compared.round(dirs.iter().map(all_names_of).collect());
                Ok(())
            }),
            ShardWay::ComparesThere(far, compare, to) => self.compared(dirs, Tells::All, || {
                let (names, dirs) = names_to_compare(dirs);
                if names.is_empty() {
                    return Ok(());
                }
                let (policy, tally, root) = (self.policy, self.tally, &*self.stage_path);
                let check = Box::new(planned_check(policy, *compare, root, tally));
                far.source.compare((&names, dirs), to.clone(), policy, (*compare, tally), check)
            }),
            ShardWay::ComparesWithThere(tree, purpose) => self.compared_there(tree, *purpose, dirs, sum),
            ShardWay::TakesAway => {
                let from = take::Taking { top: self.src()?, path: &self.src_path, tally: self.tally };
                let whole = from.entries(dirs) && !self.watch.cancel.is_set();
                Ok(whole.then(|| dealt_with(self.header.verb, dirs, 0)))
            }
            ShardWay::TakesThere(far) => {
                let whole = take_there::entries(&far.source, &far.tree, dirs, self.policy, self.tally)?;
                let whole = whole && !self.watch.cancel.is_set();
                if !whole {
                    self.tell_changed(&LeftName::above(dirs), Tells::OtherKinds)?;
                }
                Ok(whole.then(|| dealt_with(self.header.verb, dirs, 0)))
            }
        }
    }

    /// The same of entries that are compared.
    fn compared(
        &self,
        dirs: &[PlannedDir],
        tells: Tells,
        compare: impl FnOnce() -> Result<()>,
    ) -> Result<Option<(ShardCounts, Vec<LandedEntry>)>> {
        let before = self.tally.summary();
        compare()?;
        let after = self.tally.summary();
        let found = after.differences - before.differences;
        let whole = after.failed == before.failed && !self.watch.cancel.is_set();
        if !whole {
            self.tell_changed(&LeftName::all(dirs), tells)?;
        }
        Ok(whole.then(|| dealt_with(self.header.verb, dirs, found)))
    }

    /// The same of entries that are compared with what another machine has.
    fn compared_there(
        &self,
        tree: &TreeThere<'_>,
        purpose: Purpose,
        dirs: &[PlannedDir],
        sum: &mut Summary,
    ) -> Result<Option<(ShardCounts, Vec<LandedEntry>)>> {
        let (names, named) = names_to_compare(dirs);
        let policy = (self.policy, purpose);
        let done = there::compare(tree, &self.src_path, (&names, &named), policy)?;
        let (found, mut whole) = (done.differences, done.failed == 0 && !done.cancelled);
        sum.add(done);
        // What has become of another kind was compared as that.
        whole &= self.tell_changed(&LeftName::all(dirs), Tells::All)? && !self.watch.cancel.is_set();
        Ok(whole.then(|| dealt_with(self.header.verb, dirs, found)))
    }

    /// Tells which of these names are gone at the source by now, or of another kind. Whether none is.
    fn tell_changed(&self, names: &[LeftName], tells: Tells) -> Result<bool> {
        if self.watch.cancel.is_set() {
            return Ok(true);
        }
        let source = match &self.way {
            ShardWay::Fetches(far) | ShardWay::ComparesThere(far, ..) | ShardWay::TakesThere(far) => {
                LookedIn::There(&far.source, &far.tree, self.policy)
            }
            _ => LookedIn::Here(self.src()?),
        };
        changed::tell(&source, &self.src_path, names, tells, self.tally)
    }

    /// The same of entries that are brought to where the destination is.
    fn brought(
        &self,
        copies: &Rounds<'_>,
        dirs: &[PlannedDir],
        sum: &mut Summary,
    ) -> Result<Option<(ShardCounts, Vec<LandedEntry>)>> {
        let (mut counts, mut landed, mut left) = (ShardCounts::default(), Vec::new(), Vec::new());
        let mut done = copies.round(dirs.iter().map(names_of).collect());
        counts.lost = self.lost.swap(0, Relaxed) + done.owners_lost as u64;
        let mut whole = true;
        for (number, dir) in dirs.iter().enumerate() {
            if self.watch.cancel.is_set() {
                return Ok(None);
            }
            let mut arrived = |name: &NameBuf| done.take(number, name);
            whole &= self.settle(dir, &mut arrived, (&mut counts, &mut landed), &mut left, sum)?;
        }
        self.tell_changed(&left, Tells::All)?;
        Ok(whole.then_some((counts, landed)))
    }

    /// The same of entries that are sent to another machine.
    fn sent(
        &self,
        tree: &TreeThere<'_>,
        dirs: &[PlannedDir],
        sum: &mut Summary,
    ) -> Result<Option<(ShardCounts, Vec<LandedEntry>)>> {
        let (done, mut hashes) = match self.header.verb {
            PlanVerb::Copy => there::fill(tree, &self.src_path, dirs, self.policy)?,
            _ => (there::bring(tree, &self.src_path, dirs, self.policy)?, LandedHashes::new()),
        };
        let mut whole = !done.cancelled && done.codes.iter().all(|code| code.is_of_metadata());
        sum.add(Summary { dirs: 0, ..done });
        let (mut counts, mut landed, mut left) = (ShardCounts::default(), Vec::new(), Vec::new());
        counts.lost = self.lost.swap(0, Relaxed);
        for dir in dirs {
            if self.watch.cancel.is_set() {
                return Ok(None);
            }
            let fail = |e| Error::os(Op::OpenDirectory, self.src_path.join(OsStr::from_bytes(&dir.path)), e);
            let src = match below(self.src()?, &dir.path) {
                Ok(src) => src,
                Err(e) => {
                    self.tally.fail(fail(e));
                    left.extend(dir.entries.iter().map(|entry| LeftName::of(dir, entry)));
                    whole = false;
                    continue;
                }
            };
            // S3, S4: what the plan says it was before it was read and after, it was in between.
            let mut arrived = |name: &NameBuf| {
                let seen = src.look(name.as_name()).ok().flatten()?;
                Some((seen, there::hash_of(&mut hashes, dir, name)))
            };
            whole &= self.settle(dir, &mut arrived, (&mut counts, &mut landed), &mut left, sum)?;
        }
        self.tell_changed(&left, Tells::All)?;
        Ok(whole.then_some((counts, landed)))
    }

    /// The same of entries that are read from another machine.
    fn fetched(
        &self,
        fetching: &Fetching<'_>,
        dirs: &[PlannedDir],
        sum: &mut Summary,
    ) -> Result<Option<(ShardCounts, Vec<LandedEntry>)>> {
        let Fetching { source, disk, tree, names: which, ledger } = fetching;
        let names = there::whole_of(dirs);
        let done = match names.is_empty() {
            true => Summary::default(),
            false => source.fetch(disk, &names, (tree.clone(), *which), self.policy, ledger)?,
        };
        let mut whole = !done.cancelled && done.codes.iter().all(|code| code.is_of_metadata());
        sum.add(Summary { dirs: 0, ..done });
        let (mut counts, mut landed, mut left) = (ShardCounts::default(), Vec::new(), Vec::new());
        counts.lost = self.lost.swap(0, Relaxed);
        let mut there = ledger.take();
        for dir in dirs {
            if self.watch.cancel.is_set() {
                return Ok(None);
            }
            let mut arrived = |name: &NameBuf| there.remove(&there::path_of(&dir.path, name.bytes()));
            whole &= self.settle(dir, &mut arrived, (&mut counts, &mut landed), &mut left, sum)?;
        }
        self.tell_changed(&left, Tells::All)?;
        Ok(whole.then_some((counts, landed)))
    }

    /// The directory that is copied, where it is here.
    fn src(&self) -> Result<&Dir> {
        let damaged = || Error::ours(Code::Io, Op::ReadPlan, &self.src_path, Reason::PlanDamaged);
        self.src.as_ref().ok_or_else(damaged)
    }

    /// Copies parts of large files in a directory, and compares every entry of it with the plan. Those that are not there and were not
    /// found to have changed are `left`.
    fn settle(
        &self,
        dir: &PlannedDir,
        arrived: &mut Outcomes<'_>,
        (counts, landed): (&mut ShardCounts, &mut Vec<LandedEntry>),
        left: &mut Vec<LeftName>,
        sum: &mut Summary,
    ) -> Result<bool> {
        let has_parts = dir.entries.iter().any(|entry| matches!(entry.what, PlannedAs::Part { .. }));
        let ends = if has_parts { self.ends(&dir.path)? } else { None };
        let rel = OsStr::from_bytes(&dir.path);
        let mut whole = true;
        for entry in &dir.entries {
            let name = entry.name.as_name();
            let source = || self.src_path.join(rel).join(os(name));
            let target = || self.stage_path.join(rel).join(os(name));
            let outcome = match (&entry.what, &ends) {
                (PlannedAs::Part { of, at, bytes }, Some((src, dst))) => {
                    let observe = |bytes| {
                        self.watch.progress.bytes_done.fetch_add(bytes, Relaxed);
                        !self.watch.cancel.is_set()
                    };
                    let range = *at..*at + *bytes;
                    match part::copy((src, dst, name), of, range, self.policy.jobs, &observe) {
                        Ok(value) => {
                            sum.bytes += bytes;
                            sum.files += u64::from(*at == 0);
                            Some(LandedEntry::Part(value))
                        }
                        Err(fault) => {
                            if !matches!(fault.code, Code::Interrupted | Code::SourceChanged) {
                                left.push(LeftName::of(dir, entry));
                            }
                            if fault.code != Code::Interrupted {
                                self.tally.fail(fault.told(source, target));
                            }
                            None
                        }
                    }
                }
                (PlannedAs::Part { .. }, None) => {
                    left.push(LeftName::of(dir, entry));
                    None
                }
                (PlannedAs::Whole(of), _) => match arrived(&entry.name) {
                    Some((seen, _)) if !of.is(&seen) => {
                        let note = Reason::ChangedSincePlan;
                        self.tally.fail(Error::ours(Code::SourceChanged, Op::Copy, source(), note));
                        None
                    }
                    Some(_) if self.header.verb != PlanVerb::Copy => Some(LandedEntry::Done),
                    Some((_, hash)) if of.kind == Kind::File => hash.map(LandedEntry::File),
                    Some(_) => Some(LandedEntry::Other),
                    None => {
                        left.push(LeftName::of(dir, entry));
                        None
                    }
                },
                (PlannedAs::Directory(_) | PlannedAs::Linked { .. }, _) => Some(LandedEntry::Later),
            };
            let Some(outcome) = outcome else {
                whole = false;
                continue;
            };
            counts.files += u64::from(entry.counts());
            counts.others += others(entry, outcome);
            counts.bytes += entry.bytes();
            landed.push(outcome);
        }
        Ok(whole)
    }

    /// A directory of the source that has large files in parts, and the one they go into. `None`: the source's cannot be
    /// opened, which was told.
    fn ends(&self, path: &[u8]) -> Result<Option<(Dir, Dir)>> {
        let rel = OsStr::from_bytes(path);
        let src = match below(self.src()?, path) {
            Ok(src) => src,
            Err(e) => {
                self.tally.fail(Error::os(Op::OpenDirectory, self.src_path.join(rel), e));
                return Ok(None);
            }
        };
        self.make_dirs(path)?;
        let dst = below(&self.stage, path);
        let dst = dst.map_err(|e| Error::os(Op::OpenDirectory, self.stage_path.join(rel), e))?;
        Ok(Some((src, dst)))
    }

    /// Makes the directories that lead to `path`, each open to this user alone until the plan is finished.
    fn make_dirs(&self, path: &[u8]) -> Result<()> {
        let shown = || self.stage_path.join(OsStr::from_bytes(path));
        let fail = |e| Error::os(Op::MakeDirectory, shown(), e);
        match below(&self.stage, path) {
            Err(e) if e.raw_os_error() == Some(errno::ENOENT) => {}
            other => return other.map(drop).map_err(fail),
        }
        let mut here = self.stage.try_clone().map_err(fail)?;
        for part in path.split(|b| *b == b'/').filter(|part| !part.is_empty()) {
            let name = NameBuf::new(part).ok_or(io::ErrorKind::InvalidInput.into()).map_err(fail)?;
            land::ensure_dir(&here, name.as_name(), 0o700).map_err(fail)?;
            here = here.open_dir(name.as_name()).map_err(fail)?;
        }
        Ok(())
    }
}

/// Takes away what runs that were stopped have recorded, unless another process has.
fn remove_all(results: &Dir, names: impl Iterator<Item = NameBuf>) -> io::Result<()> {
    for name in names {
        match results.remove_file(name.as_name()) {
            Err(e) if e.raw_os_error() != Some(errno::ENOENT) => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Whether an entry counts as one that is neither a file nor a directory.
fn others(entry: &PlannedEntry, outcome: LandedEntry) -> u64 {
    u64::from(matches!(outcome, LandedEntry::Other | LandedEntry::Done) && !entry.counts())
}

/// What is recorded of a frame all of which was compared or taken away.
fn dealt_with(verb: PlanVerb, dirs: &[PlannedDir], differences: u64) -> (ShardCounts, Vec<LandedEntry>) {
    let (mut counts, mut landed) = (ShardCounts { lost: differences, ..ShardCounts::default() }, Vec::new());
    for entry in dirs.iter().flat_map(|dir| &dir.entries) {
        let outcome =
            if fits(verb, entry, LandedEntry::Done) { LandedEntry::Done } else { LandedEntry::Later };
        counts.files += u64::from(entry.counts());
        counts.others += others(entry, outcome);
        counts.bytes += entry.bytes();
        landed.push(outcome);
    }
    (counts, landed)
}

/// Everything in a directory.
fn all_names_of(dir: &PlannedDir) -> NamesBelow {
    let path = dir.path.split(|b| *b == b'/').filter_map(NameBuf::new).collect();
    let mut names = Names::claimed();
    for entry in &dir.entries {
        let of = entry.version();
        names.push(entry.name.as_name(), of.kind, of.ino);
    }
    NamesBelow { path, names }
}

/// What of these directories is asked for to be compared: everything but directories that lead to something of it, and how
/// directories are compared.
fn names_to_compare(dirs: &[PlannedDir]) -> (Vec<Vec<u8>>, NamedDirs) {
    let mut named = NamedDirs::default();
    let with_names = || dirs.iter().filter(|dir| !dir.entries.is_empty());
    with_names().for_each(|dir| named.leads(&dir.path));
    let mut names = Vec::new();
    for dir in with_names() {
        for entry in &dir.entries {
            let path = there::path_of(&dir.path, entry.name.bytes());
            if matches!(entry.what, PlannedAs::Directory(_)) {
                named.compares(&path);
                if named.leads_on(&path) {
                    continue;
                }
            }
            names.push(path);
        }
    }
    (names, named)
}

/// What of a directory is copied whole.
fn names_of(dir: &PlannedDir) -> NamesBelow {
    let path = dir.path.split(|b| *b == b'/').filter_map(NameBuf::new).collect();
    let mut names = Names::claimed();
    for entry in &dir.entries {
        if let PlannedAs::Whole(of) = &entry.what {
            names.push(entry.name.as_name(), of.kind, of.ino);
        }
    }
    NamesBelow { path, names }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_comes_first_and_each_process_begins_elsewhere() {
        let set = |shards: &[u32]| shards.iter().copied().collect::<HashSet<u32>>();
        let order = |start, done: &[u32], claimed: &[u32]| order_of(5, start, &set(done), &set(claimed));
        assert_eq!(order(0, &[], &[]), [0, 1, 2, 3, 4]);
        assert_eq!(order(7, &[], &[]), [2, 3, 4, 0, 1]);
        assert_eq!(order(3, &[4, 2], &[3, 2]), [0, 1, 3, 4, 2]);
        let many = LOOKED_AT_MAX + 1;
        assert_eq!(order_of(many, 0, &(1..many).collect(), &set(&[0])), [0]);
        assert_eq!(order_of(0, 9, &set(&[]), &set(&[])), [0; 0]);
    }
}
