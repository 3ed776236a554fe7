//! Does one shard of a plan: copies its entries into the tree that all shards fill, and records what became of them.
//!
//! Must not publish anything: the tree has no name until the plan is finished.
//!
//! Entries come in frames. A frame's files are landed by the verb that copies names of a list, then every entry is compared
//! with the plan on both sides; only then, and once it is on stable storage (R2), what became of the frame is recorded. So a
//! run that is killed costs the frames that were not recorded yet, and what is recorded needs no second look.

use super::claim::{ClaimOf, ClaimsFolder, HeldClaim};
use super::folder::{PlanFolder, ResultFile};
use super::format::{
    Digest, LandedEntry, PlanHeader, PlannedAs, PlannedDir, PlannedEntry, ResultFrame, ShardCounts,
};
use super::part;
use super::places::{below, open_stage};
use super::requests::{ShardChoice, ShardRequest};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Event, Front, Question, Summary, Watch};
use crate::node::os;
use crate::policy::{
    Collide, CopyPolicy, CopyRequest, Durability, FilterSpec, Follow, NameList, Preserve, Resume, Target,
};
use crate::receiver::land;
use crate::tally::Tally;
use crate::verbs::copy;
use fastcopy::dir::{Dir, ListBuffer, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use fastcopy::sync;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io::{self, Cursor};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long frames are copied before what became of them is recorded: what a kill costs.
const RECORD_EVERY: Duration = Duration::from_secs(5);

/// Hears what the copy of a frame tells: keeps hashes, counts losses, and passes on the rest.
struct FrameListener<'a> {
    front: &'a dyn Front,
    hashes: Mutex<HashMap<PathBuf, Digest>>,
    lost: AtomicU64,
}

impl Front for FrameListener<'_> {
    fn event(&self, event: Event) {
        match event {
            Event::Hashed { dst, hash } => {
                self.hashes.lock().unwrap_or_else(PoisonError::into_inner).insert(dst, hash);
            }
            // Told by each copy in its end, and there is one for each frame.
            Event::Engine(_) => {}
            event => {
                if matches!(&event, Event::Failed(e) if e.code == Code::MetadataLost) {
                    self.lost.fetch_add(1, Relaxed);
                }
                self.front.event(event);
            }
        }
    }

    fn ask(&self, question: Question) -> bool {
        self.front.ask(question)
    }

    fn lend_terminal(&self, lent: bool) {
        self.front.lend_terminal(lent);
    }
}

/// One shard at work.
struct ShardWork<'a> {
    header: &'a PlanHeader,
    policy: CopyPolicy,
    /// The directory that is copied, and what is filled.
    src: Dir,
    src_path: PathBuf,
    stage: Dir,
    stage_path: PathBuf,
    watch: Watch<'a>,
    tally: Tally<'a>,
}

/// Does a shard, or those that no other process is at.
///
/// # Errors
/// Nothing could be begun; what happens to single entries is told through `watch` and counted.
pub fn shard(request: &ShardRequest, watch: Watch<'_>) -> Result<Summary> {
    let folder = PlanFolder::open(&request.plan)?;
    let (header, plan) = folder.header()?;
    let (claims, results) = (folder.claims()?, folder.results()?);
    let claims = ClaimsFolder::new(&claims, &request.plan);
    let run = |shard: u32, held: HeldClaim<'_>| -> Result<Summary> {
        let guard = held.during(|| {
            refuse_while_finishing(&claims, &folder)?;
            one(&folder, &header, &plan, &results, shard, request, watch, &held)
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
            return run(shard, held);
        }
        ShardChoice::Next => false,
        ShardChoice::All => true,
    };
    let mut sum = Summary::default();
    let mut any = false;
    for shard in 0..header.shards.len() as u32 {
        if watch.cancel.is_set() {
            sum.cancelled = true;
            break;
        }
        if folder.has_result(&plan, shard)? {
            continue;
        }
        let Ok(held) = claims.take(ClaimOf::Shard(shard))? else { continue };
        // Another process may have done it between the look and the claim.
        if folder.has_result(&plan, shard)? {
            held.release().map_err(|e| Error::os(Op::Claim, &request.plan, e))?;
            continue;
        }
        let done = run(shard, held)?;
        sum.add(done);
        any = true;
        if !all {
            break;
        }
    }
    if !any && !all && !sum.cancelled {
        return Err(Error::ours(Code::NotFound, Op::CopyShardOf, &request.plan, Reason::NoShardLeft));
    }
    Ok(sum)
}

/// Nothing is copied into a tree that is being published, or was. Asked after the shard is claimed, as the process that
/// finishes looks for claims after its own: one of the two sees the other.
fn refuse_while_finishing(claims: &ClaimsFolder<'_>, folder: &PlanFolder) -> Result<()> {
    let refused = |why: Reason| Error::ours(Code::Refused, Op::CopyShardOf, &folder.path, why);
    if folder.receipt()?.is_some() {
        return Err(refused(Reason::AlreadyFinished));
    }
    if claims.alive()?.iter().any(|rival| rival.claimed == ClaimOf::Finish) {
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
    shard: u32,
    request: &ShardRequest,
    watch: Watch<'_>,
    held: &HeldClaim<'_>,
) -> Result<Summary> {
    let (_, stage, stage_path) = open_stage(header)?;
    // R8: while it is locked, `sessions` leaves it alone. Where another shard of this machine has it locked, it does as well.
    let _lock = stage.reopen().map(|dir| (dir.try_lock(), dir));
    let src_path = PathBuf::from(OsStr::from_bytes(&header.source));
    let src = Dir::open(&src_path).map_err(|e| Error::os(Op::OpenDirectory, &src_path, e))?;
    let policy = CopyPolicy {
        recursive: false,
        follow: Follow::Never,
        // Further names are made in the end, when all first ones are there.
        preserve: Preserve { links: false, ..Preserve::ALL },
        // Nothing that an earlier run has left is believed, unless it was recorded.
        collide: Collide::Replace,
        durability: Durability::Cache,
        resume: Resume::Off,
        hashes: true,
        filter: FilterSpec::everything(),
        dry_run: false,
        ..request.policy.clone()
    };
    let tally = Tally::new(watch);
    let work = ShardWork { header, policy, src, src_path, stage, stage_path, watch, tally };
    work.run(folder, plan, results, shard, held)
}

impl ShardWork<'_> {
    fn run(
        &self,
        folder: &PlanFolder,
        plan: &Digest,
        results: &Dir,
        shard: u32,
        held: &HeldClaim<'_>,
    ) -> Result<Summary> {
        let shown = folder.result_path(shard);
        let fail = |e: io::Error| Error::os(Op::WritePlan, &shown, e);
        let (unfinished, mut recorded) = self.recorded(folder, plan, results, shard).map_err(fail)?;
        let mut out = ResultFile::begin(results, shard, plan).map_err(fail)?;
        let mut entries = folder.entries(self.header, shard)?;
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
            let known = recorded.remove(&index).filter(|(_, landed)| {
                let mut each = landed.iter();
                let fits = |e| each.next().is_some_and(|l| super::format::fits(e, *l));
                dirs.iter().flat_map(|dir| &dir.entries).all(fits) && each.next().is_none()
            });
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
        let Summary { failed, codes, .. } = self.tally.summary();
        sum.add(Summary { failed, codes, ..Summary::default() });
        if sum.cancelled || self.watch.cancel.is_set() {
            sum.cancelled = true;
            return Ok(sum);
        }
        if !is_whole {
            let note = Reason::NotAllCopied;
            self.watch.front.event(Event::Warning(Error::ours(
                Code::Io,
                Op::CopyShardOf,
                &folder.path,
                note,
            )));
            return Ok(sum);
        }
        let own = NameBuf::new(out.now().bytes());
        match out.end(shard) {
            // Another process was at the same shard, has ended it and taken away what this one had recorded.
            Err(e)
                if e.raw_os_error() == Some(errno::ENOENT) && folder.is_done(self.header, plan, shard)? => {}
            other => other.map_err(fail)?,
        }
        for name in unfinished.into_iter().filter(|name| Some(name) != own.as_ref()) {
            match results.remove_file(name.as_name()) {
                Err(e) if e.raw_os_error() != Some(errno::ENOENT) => return Err(fail(e)),
                _ => {}
            }
        }
        Ok(sum)
    }

    /// What runs of this shard that were stopped have recorded, and the files where that stands.
    #[allow(clippy::type_complexity, reason = "read once, by the one caller")]
    fn recorded(
        &self,
        folder: &PlanFolder,
        plan: &Digest,
        results: &Dir,
        shard: u32,
    ) -> io::Result<(Vec<NameBuf>, BTreeMap<u32, (ShardCounts, Vec<LandedEntry>)>)> {
        let mut names = Vec::new();
        results.reopen()?.list(&mut ListBuffer::new(), |entry| {
            if ResultFile::is_unfinished(entry.name, shard) {
                names.push(entry.name.to_owned());
            }
            true
        })?;
        let mut recorded = BTreeMap::new();
        for name in &names {
            for (index, counts, landed) in folder.recorded(results, name.as_name(), plan, shard)? {
                recorded.insert(index, (counts, landed));
            }
        }
        Ok((names, recorded))
    }

    /// Records what became of frames, once that is on stable storage (R2).
    fn record(&self, out: &mut ResultFile<'_>, waiting: &mut Vec<ResultFrame>) -> io::Result<()> {
        if waiting.is_empty() {
            return Ok(());
        }
        // R5: what a failed sync was for is copied again, and never synced a second time.
        let frames = std::mem::take(waiting);
        sync::filesystem(&self.stage)?;
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
        for dir in dirs.iter().filter(|dir| dir.entries.iter().any(lands)) {
            self.make_dirs(&dir.path)?;
        }
        let mut counts = ShardCounts::default();
        let listener =
            FrameListener { front: self.watch.front, hashes: Mutex::default(), lost: AtomicU64::new(0) };
        let list = list_of(dirs);
        if !list.is_empty() {
            let request = CopyRequest {
                sources: vec![self.src_path.clone()],
                names: Some(NameList { reader: Box::new(Cursor::new(list)), separator: 0 }),
                target: Target::Into(self.stage_path.clone()),
                manifest: None,
                policy: self.policy.clone(),
            };
            let done = copy(request, Watch { front: &listener, ..self.watch })?;
            sum.add(Summary { dirs: 0, ..done });
        }
        let hashes = listener.hashes.into_inner().unwrap_or_else(PoisonError::into_inner);
        counts.lost = listener.lost.load(Relaxed);
        let mut landed = Vec::new();
        let mut whole = true;
        for dir in dirs {
            if self.watch.cancel.is_set() {
                return Ok(None);
            }
            whole &= self.settle(dir, &hashes, &mut counts, &mut landed, sum)?;
        }
        Ok(whole.then_some((counts, landed)))
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

    /// Copies parts of large files in a directory, and compares every entry of it with the plan on both sides.
    fn settle(
        &self,
        dir: &PlannedDir,
        hashes: &HashMap<PathBuf, Digest>,
        counts: &mut ShardCounts,
        landed: &mut Vec<LandedEntry>,
        sum: &mut Summary,
    ) -> Result<bool> {
        let needed = dir.entries.iter().any(lands);
        let rel = OsStr::from_bytes(&dir.path);
        let src =
            below(&self.src, &dir.path).map_err(|e| Error::os(Op::OpenDirectory, self.src_path.join(rel), e));
        let src = match src {
            Ok(src) => src,
            Err(_) if !needed => {
                landed.extend(dir.entries.iter().map(|_| LandedEntry::Later));
                return Ok(true);
            }
            Err(e) => {
                self.tally.fail(e);
                return Ok(false);
            }
        };
        let dst_path = self.stage_path.join(rel);
        let dst = match needed {
            true => {
                Some(below(&self.stage, &dir.path).map_err(|e| Error::os(Op::OpenDirectory, &dst_path, e))?)
            }
            false => None,
        };
        let mut whole = true;
        for entry in &dir.entries {
            let name = entry.name.as_name();
            let source = || self.src_path.join(rel).join(os(name));
            let target = || dst_path.join(os(name));
            let outcome = match (&entry.what, &dst) {
                (PlannedAs::Part { of, at, bytes }, Some(dst)) => {
                    let observe = |bytes| {
                        self.watch.progress.bytes_done.fetch_add(bytes, Relaxed);
                        !self.watch.cancel.is_set()
                    };
                    let range = *at..*at + *bytes;
                    match part::copy((&src, dst, name), of, range, self.policy.jobs, &observe) {
                        Ok(value) => {
                            sum.bytes += bytes;
                            sum.files += u64::from(*at == 0);
                            Some(LandedEntry::Part(value))
                        }
                        Err(fault) => {
                            if fault.code != Code::Interrupted {
                                self.tally.fail(fault.told(source, target));
                            }
                            None
                        }
                    }
                }
                (PlannedAs::Whole(of), Some(dst)) => {
                    let now = src.look(name).map_err(|e| Error::os(Op::Stat, source(), e))?;
                    if now.is_none_or(|now| !of.is(&now)) {
                        let note = Reason::ChangedSincePlan;
                        self.tally.fail(Error::ours(Code::SourceChanged, Op::Copy, source(), note));
                        None
                    } else {
                        let there = dst.look(name).map_err(|e| Error::os(Op::Stat, target(), e))?;
                        self.arrived(of.kind, of, there.as_ref(), || hashes.get(&target()).copied())
                    }
                }
                _ => Some(LandedEntry::Later),
            };
            let Some(outcome) = outcome else {
                whole = false;
                continue;
            };
            counts.files += u64::from(entry.counts());
            counts.others += u64::from(outcome == LandedEntry::Other);
            counts.bytes += entry.bytes();
            landed.push(outcome);
        }
        Ok(whole)
    }

    /// What became of an entry that was copied whole; `None`: it is not there as it is in the source, and the copy has told
    /// why.
    fn arrived(
        &self,
        kind: Kind,
        of: &super::format::Version,
        there: Option<&Info>,
        hash: impl Fn() -> Option<Digest>,
    ) -> Option<LandedEntry> {
        let there = there.filter(|there| there.kind == kind)?;
        if kind != Kind::File {
            return Some(LandedEntry::Other);
        }
        (there.size == of.size).then(hash).flatten().map(LandedEntry::File)
    }
}

/// Whether something of an entry is copied by its shard.
fn lands(entry: &PlannedEntry) -> bool {
    matches!(entry.what, PlannedAs::Whole(_) | PlannedAs::Part { .. })
}

/// What is copied whole, as names of a list.
fn list_of(dirs: &[PlannedDir]) -> Vec<u8> {
    let mut list = Vec::new();
    for dir in dirs {
        for entry in dir.entries.iter().filter(|entry| matches!(entry.what, PlannedAs::Whole(_))) {
            if !dir.path.is_empty() {
                list.extend_from_slice(&dir.path);
                list.push(b'/');
            }
            list.extend_from_slice(entry.name.bytes());
            list.push(0);
        }
    }
    list
}
