//! `copy`: both halves in one process. The walk of sources here feeds batches to the receiver's landing.
//!
//! Must not know how a phase is carried out (that is the disk's) nor what anything is called on a terminal.
//!
//! A directory's small files are landed in batches while it is listed, large ones as tasks of their own. A directory is
//! published once its small files are in it, and sealed (mode, owner, times) once everything below it is done.

use crate::disk::sys::{Hand, SmallBuffer, Sys};
use crate::disk::{Attributes, Body, Dirs, Fault, Job};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Summary, Watch};
use crate::node::Node;
use crate::policy::{CopyPolicy, CopyRequest, Ends, Follow, Preserve, Target};
use crate::receiver::aside::Aside;
use crate::receiver::choose::{Candidate, Way};
use crate::receiver::claims::{Claimed, Claims, Meeting};
use crate::receiver::dest::DestDir;
use crate::receiver::devices::Devices;
use crate::receiver::dir_task::{Origin, Slot};
use crate::receiver::extraneous::Extraneous;
use crate::receiver::lander::{LandHooks, Lander, Retry, SourceSeen};
use crate::receiver::links::Claim;
use crate::receiver::partly::SparedBelow;
use crate::sender::filter::Filter;
use crate::sender::names::{ListedNames, Names};
use crate::sender::small::{Asks, Opened, SmallFiles};
use crate::sender::walk::SourceDir;
use crate::tally::Tally;
use crate::verbs::destination::{Destination, DirEntry, Entering};
use crate::verbs::keeping;
use crate::verbs::ledger::{Ledger, TakesHere};
use crate::verbs::local::{Walk, WalkDestination, WalkDropped, WalkHold, WalkWorker};
use crate::verbs::manifest::Manifest;
use crate::verbs::operands::{self, DestLink, Operand, Place, Reach, Resolved, Where};
use crate::verbs::round_ledger::{PlaceInSource, RoundLedger};
use crate::verbs::stream::{self, Streamed};
use fastcopy::dir::Name;
use fastcopy::meta::{Info, Kind};
use fastcopy::still::Since;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// From this size (bytes) on a file is a task of its own, staged by itself: a killed run loses at most what small
/// files of directories under way it had.
const BIG_BYTES: u64 = 4 << 20;

/// A source directory and the directory it becomes.
pub(crate) type DirPair = Slot<SourceDir>;

/// A worker of a copy.
type CopyWorker<'p, 'w, 'a> = WalkWorker<'p, 'w, Run<'a>>;

/// One run of the verb.
pub(crate) struct Run<'a> {
    pub(crate) disk: &'a Sys,
    policy: &'a CopyPolicy,
    pub(crate) desk: Lander<'a, SourceDir, CopyHooks>,
    /// Top directories made by this run: met again as a source, they would be copied into themselves.
    made: Mutex<Vec<(u64, u64)>>,
}

/// What is kept of what landed.
pub(crate) struct CopyHooks {
    filter: Filter,
    /// A move removes it at the source.
    pub(crate) ledger: Option<Ledger<SourceDir>>,
    /// Where hashes go.
    pub(crate) manifest: Option<Manifest>,
    /// What the source lacks, where that is deleted.
    pub(crate) extraneous: Option<Extraneous>,
    /// What of the names at hand is there, where it is copied in rounds.
    pub(crate) round: Option<RoundLedger<PlaceInSource>>,
    /// Where what is replaced is kept, if it is.
    pub(crate) aside: Option<Arc<Aside>>,
}

impl LandHooks<SourceDir> for CopyHooks {
    fn landed(
        &self,
        slot: &Arc<DirPair>,
        src: Name<'_>,
        (info, hash): SourceSeen<'_>,
        devices: &Devices<'_, Sys>,
        tally: &Tally<'_>,
    ) {
        if let Some(round) = &self.round {
            round.landed((slot.src.info.id(), src.to_owned()), info, hash);
        }
        if let Some(ledger) = &self.ledger
            && ledger.landed(slot, src, info, tally)
        {
            ledger.settle(devices, tally, &TakesHere);
        }
    }
    fn kept(&self, slot: &DirPair, src: Name<'_>, info: &Info) {
        if let Some(round) = &self.round {
            round.landed((slot.src.info.id(), src.to_owned()), info, None);
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
    fn proves(&self) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.proves)
    }
    fn in_the_way(&self, slot: &DirPair, to: Name<'_>, there: &Info) -> Result<bool> {
        let Some(extraneous) = &self.extraneous else { return Ok(false) };
        let excludes = |below: &[&[u8]], is_dir: bool| slot.src.excludes_below(below, is_dir, &self.filter);
        extraneous.in_the_way(&slot.dst, to, there, self.filter.asked::<SparedBelow<'_>>(&excludes))
    }
    fn keep_old(&self, slot: &DirPair, jobs: &mut [Job<'_, Sys>]) {
        self.aside.iter().for_each(|aside| aside.keep(&slot.dst, jobs));
    }
    fn give_back(&self, slot: &DirPair, jobs: &mut [Job<'_, Sys>]) {
        self.aside.iter().for_each(|aside| aside.give_back(&slot.dst, jobs));
    }
    fn moves_away(&self, slot: &DirPair, to: Name<'_>, there: &Info) -> Result<bool> {
        self.aside.as_ref().map_or(Ok(false), |aside| aside.clears_empty(&slot.dst, to, there))
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

/// An empty list of jobs in the same memory (the standard library collects in place where it can), for other names and bytes.
#[allow(clippy::unnecessary_filter_map)] // filtered jobs would still be of the old names
fn reused<'b>(jobs: Vec<Job<'_, Sys>>) -> Vec<Job<'b, Sys>> {
    jobs.into_iter().filter_map(|_| None).collect()
}

/// What tells a source from others that become the same name.
#[derive(Hash)]
enum SourceId<'n> {
    /// Its content: names of one file are one source.
    Inode((u64, u64)),
    /// Its name in a directory: a move takes each name away by itself.
    Name(((u64, u64), &'n [u8])),
}

/// What became of one entry that was looked at.
enum Prepared {
    /// It is one more job, or done, deferred, kept or failed: then there is nothing to land here.
    Settled,
    /// Out of descriptors: land what is open first.
    Later(Error),
}

/// Copies.
///
/// # Errors
/// Only when nothing could be begun (a pattern that does not parse, a target that cannot be opened); what happens to
/// single items is told through `watch` and counted in the [`Summary`].
pub fn copy(request: CopyRequest, watch: Watch<'_>) -> Result<Summary> {
    copy_between(request, Ends::Named, watch)
}

/// The same, of one file, where one end is an open stream: what is typed for it is only shown.
///
/// # Errors
/// As [`copy`].
pub fn copy_between(request: CopyRequest, ends: Ends, watch: Watch<'_>) -> Result<Summary> {
    if request.policy.dry_run {
        return crate::verbs::dry_run::dry_run(
            CopyRequest { policy: request.policy.resuming(), ..request },
            watch,
        );
    }
    let summary = match stream::take(request, ends, watch)? {
        Streamed::No(request) => return copy_files(request, watch),
        Streamed::Held(request, held) => {
            let front = held.front(watch.front);
            copy_files(request, Watch { front: &front, ..watch }).map_err(|e| held.error(e))?
        }
        Streamed::Done(summary) => summary,
    };
    Ok(Summary { of_stream: true, ..summary })
}

fn copy_files(request: CopyRequest, watch: Watch<'_>) -> Result<Summary> {
    let disk = Sys::of(&request.policy);
    let policy = request.policy.resuming();
    let mut run = Run::new(&disk, &policy, watch, None)?;
    let manifest = request.manifest.as_deref();
    match request.names {
        None => {
            let was_guess = matches!(request.target, Target::Guess(_));
            let target = operands::same_target(&request.sources, request.target, &policy);
            operands::tell_marked(&watch, was_guess, &target);
            let count = request.sources.len();
            operands::make_path(&operands::Reach::Anywhere, &target, count, &policy)?;
            let to = operands::target(&operands::Reach::Anywhere, &target, count, DestLink::Through)?;
            operands::tell_new(&watch, &target, &to);
            let base = operands::base(&to, DestLink::Through)?;
            watch.progress.hashes.below(&base);
            run.desk.hooks.manifest = manifest.map(|file| Manifest::begin(file, Some(base))).transpose()?;
            run.operands(&request.sources, &to);
            run.desk.sync_names();
        }
        Some(mut list) => {
            let [base] = request.sources.as_slice() else {
                let note = Reason::OneSourceDirectory;
                return Err(Error::ours(Code::Usage, Op::Copy, request.target.path(), note));
            };
            let to = request.target.path().clone();
            run.desk.hooks.manifest = manifest.map(|file| Manifest::begin(file, Some(to))).transpose()?;
            let mut names = ListedNames::new(&mut *list.reader, list.separator, base, watch.cancel);
            run.list(&mut names, &request.target)?;
        }
    }
    Ok(run.end())
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        disk: &'a Sys,
        policy: &'a CopyPolicy,
        watch: Watch<'a>,
        ledger: Option<Ledger<SourceDir>>,
    ) -> Result<Run<'a>> {
        let filter = Filter::new(&policy.filter)?;
        let hooks = CopyHooks { filter, ledger, manifest: None, extraneous: None, round: None, aside: None };
        let desk = Lander::new(disk, policy, Tally::new(watch), hooks);
        Ok(Run { disk, policy, desk, made: Mutex::new(Vec::new()) })
    }

    fn walk(&self) -> Walk<'_, Self> {
        self.walk_with(Arc::default())
    }

    /// A walk that goes on from another one, whose holds it drops.
    pub(crate) fn walk_with(&self, dropped: WalkDropped<Self>) -> Walk<'_, Self> {
        Walk {
            to: self,
            policy: self.policy,
            filter: &self.desk.hooks.filter,
            jobs: self.policy.jobs,
            dropped,
        }
    }

    /// Copies resolved operands. Two that become the same directory are merged one after the other.
    pub(crate) fn operands(&mut self, sources: &[PathBuf], to: &Where) {
        let (links, tally) = (DestLink::Through, &self.desk.tally);
        let mut operands = operands::resolve(sources, to, self.policy, Op::Copy, links, tally);
        self.desk.claims = operands::claims(&mut operands);
        self.walk().operands(operands);
    }

    /// Copies operands that have nothing to do with each other.
    pub(crate) fn round(&self, operands: &[Operand]) {
        self.walk().round(operands);
    }

    /// Copies names read from a list, each below its base, with the directories that lead to it.
    fn list(&mut self, names: &mut ListedNames<'_>, target: &Target) -> Result<()> {
        self.desk.claims = Claims::new(Meeting::Listed);
        let spot = self.desk.claims.operand(names.base, true);
        self.walk().list(names, target, spot)?;
        self.desk.sync_names();
        Ok(())
    }

    fn opened(&self, place: &Place) -> Result<DestDir<Sys>> {
        let dir = place.dir.try_clone().map_err(|e| Error::os(Op::Open, place.node.path(), e))?;
        DestDir::existing(self.disk, dir, place.node.clone(), None, self.policy)
    }

    fn remember(&self, id: (u64, u64)) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    fn was_made(&self, id: (u64, u64)) -> bool {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    /// Lands jobs; a source that changed while it was read gets a second chance.
    fn land(
        &self,
        worker: &mut CopyWorker<'_, '_, 'a>,
        pair: &Arc<DirPair>,
        jobs: &mut Vec<Job<'_, Sys>>,
        way: Way,
    ) {
        let threads = if way == Way::Alone && worker.hungry() { self.policy.jobs } else { 1 };
        let again = self.desk.land(worker.buffers, pair, jobs, way, threads, true);
        let follow = self.follows(pair);
        for Retry { src, to, kind } in again {
            let entry = DirEntry::met(src.as_name(), to.as_name(), kind, follow);
            let mut one = Vec::new();
            match self.prepare(worker, &mut one, None, pair, entry, way) {
                Prepared::Settled => {
                    self.desk.land(worker.buffers, pair, &mut one, way, threads, false);
                }
                Prepared::Later(e) => self.failed(pair, e),
            }
        }
    }

    fn claim_name(&self, pair: &DirPair, entry: DirEntry<'_>) -> Result<Claimed> {
        let DirEntry { name, to, follow, .. } = entry;
        let is_single = self.desk.claims.place_of(&pair.spot, to).is_none();
        let source = match is_single || self.desk.hooks.ledger.is_some() {
            true => SourceId::Name(pair.src.source(name)),
            false => SourceId::Inode(pair.src.stat(name, follow)?.id()),
        };
        self.desk.claim_name(pair, &pair.spot, name, to, source)
    }

    fn failed(&self, pair: &DirPair, e: Error) {
        pair.mark_incomplete();
        self.desk.tally.fail(e);
    }

    /// Looks at one entry on both sides and adds what is to be landed of it to `jobs`.
    fn prepare<'n>(
        &self,
        worker: &CopyWorker<'_, '_, 'a>,
        jobs: &mut Vec<Job<'n, Sys>>,
        small: Option<&mut SmallFiles<'n>>,
        pair: &'n Arc<DirPair>,
        entry: DirEntry<'n>,
        way: Way,
    ) -> Prepared {
        match self.try_prepare(worker, jobs, small, pair, entry, way) {
            Ok(()) => Prepared::Settled,
            Err(e) if e.code == Code::Limit => Prepared::Later(e),
            Err(e) => {
                self.failed(pair, e);
                Prepared::Settled
            }
        }
    }

    fn try_prepare<'n>(
        &self,
        worker: &CopyWorker<'_, '_, 'a>,
        jobs: &mut Vec<Job<'n, Sys>>,
        small: Option<&mut SmallFiles<'n>>,
        pair: &'n Arc<DirPair>,
        entry: DirEntry<'n>,
        way: Way,
    ) -> Result<()> {
        let DirEntry { name, to, kind, follow, is_claimed } = entry;
        let src = &pair.src;
        if kind == Kind::Dir {
            return Ok(());
        }
        if kind.is_special() && !self.policy.specials {
            let note = Reason::KindIs.about(kind.word());
            return Err(Error::ours(Code::Special, Op::Copy, src.node.join(name), note));
        }
        if !is_claimed && self.claim_name(pair, entry)? == Claimed::Same {
            self.desk.came_before(pair);
            return Ok(());
        }
        let (body, info) = match kind {
            Kind::File => {
                let (opened, info) = match small {
                    Some(small) => src.open_small(name, follow, small)?,
                    None => src.open_file(name, follow).map(|(fd, info)| (Opened::File(fd), info))?,
                };
                if info.kind != Kind::File {
                    // Between listing and opening something else was put there; nothing of it was read.
                    let note = Reason::KindBecame.about(info.kind.word());
                    return Err(Error::ours(Code::SourceChanged, Op::Copy, src.node.join(name), note));
                }
                if way == Way::Small && info.size >= BIG_BYTES {
                    worker.leave(pair, entry);
                    return Ok(());
                }
                match opened {
                    Opened::File(fd) => (Body::File(fd), info),
                    Opened::Read(bytes) => (Body::Bytes(bytes), info),
                }
            }
            Kind::Link => {
                let info = src.stat(name, false)?;
                (Body::Link(src.read_link(name)?), info)
            }
            _ => (Body::Special, src.stat(name, follow)?),
        };
        if info.kind != kind {
            let note = Reason::KindBecame.about(info.kind.word());
            return Err(Error::ours(Code::SourceChanged, Op::Copy, src.node.join(name), note));
        }
        let mut linked = false;
        // The last of several names: a move has taken the others away, and only the table knows of them.
        let last = || self.desk.hooks.ledger.is_some() && self.desk.links.has(&info);
        if self.policy.preserve.links && (info.nlink > 1 || last()) {
            linked = info.nlink > 1 && self.desk.links.claim_first(&info);
            if !linked {
                // Links are made once their batch's own claims are settled, so that no worker waits for itself.
                worker.second(pair, entry, info);
                return Ok(());
            }
        }
        // What was read whole has none, where they are wanted.
        let attributes = match body {
            Body::Bytes(_) => Attributes::Carried(&[]),
            _ => Attributes::At(&pair.src.dir, name),
        };
        let candidate = Candidate { name, to, info, body, attributes, way, is_at_hand: true };
        let planned = self.desk.plan_into(jobs, pair, candidate);
        if linked && !matches!(planned, Ok(true)) {
            self.desk.links.gave_up(&info);
        }
        planned.map(|_| ())
    }

    /// Lands the first of `rest`, as many as are open at a time.
    fn batch(
        &self,
        worker: &mut CopyWorker<'_, '_, 'a>,
        buffer: &mut SmallBuffer,
        pair: &Arc<DirPair>,
        names: &Names,
        rest: &mut Range<usize>,
    ) {
        let follow = self.policy.follow == Follow::Always;
        let room = self.desk.room(pair);
        let Preserve { xattr, acl, times, .. } = self.policy.preserve;
        let asks = Asks { only_bare: xattr || acl, atime: times };
        let mut small = SmallFiles::new(buffer, self.small_below(pair), asks, Since::now());
        let mut jobs = reused(std::mem::take(&mut worker.buffers.jobs));
        jobs.reserve(room.min(rest.len()));
        while jobs.len() < room
            && let Some((name, kind)) = rest.next().and_then(|index| names.get(index))
        {
            if self.desk.tally.cancelled() {
                pair.mark_incomplete();
                *rest = 0..0;
                break;
            }
            let is_claimed = names.are_claimed;
            let entry = DirEntry { is_claimed, ..DirEntry::met(name, name, kind, follow) };
            let mut prepared = self.prepare(worker, &mut jobs, Some(&mut small), pair, entry, Way::Small);
            if let (Prepared::Later(_), false) = (&prepared, jobs.is_empty()) {
                small.close();
                self.land(worker, pair, &mut jobs, Way::Small);
                prepared = self.prepare(worker, &mut jobs, Some(&mut small), pair, entry, Way::Small);
            }
            if let Prepared::Later(e) = prepared {
                self.failed(pair, e);
            }
        }
        small.close();
        self.land(worker, pair, &mut jobs, Way::Small);
        worker.buffers.jobs = reused(jobs);
    }

    /// Files shorter than this are read as they are opened, bytes: where one is sure to be landed, by writing what was read, and
    /// one look afterwards tells that it did not change.
    fn small_below(&self, pair: &DirPair) -> usize {
        let is_wanted = pair.dst.is_private() || pair.dst.held.is_empty();
        if !is_wanted || !pair.src.is_stamped_here {
            return 0;
        }
        let DestDir { dir, info, .. } = &pair.dst;
        let bytes = self.disk.buffered_below(self.policy.reflink, pair.src.info.dev, dir, info.dev);
        usize::try_from(bytes).unwrap_or(0)
    }

    /// Whether links in `pair`'s source are followed: all of them, or those that are operands.
    fn follows(&self, pair: &DirPair) -> bool {
        match self.policy.follow {
            Follow::Always => true,
            Follow::Operands => !pair.ours,
            Follow::Never => false,
        }
    }

    /// Says what was done.
    pub(crate) fn end(mut self) -> Summary {
        if let Some(manifest) = self.desk.hooks.manifest.take() {
            manifest.finish(&self.desk.tally);
        }
        self.desk.unmark();
        self.desk.end()
    }
}

impl Destination<SourceDir> for Run<'_> {
    type Buffers = Hand;
    type Dir = DestDir<Sys>;

    fn tally(&self) -> &Tally<'_> {
        &self.desk.tally
    }

    fn claims(&self) -> &Claims {
        &self.desk.claims
    }

    fn buffers(&self) -> Hand {
        self.disk.hand()
    }

    fn base(&self, place: &Place) -> Result<DestDir<Sys>> {
        let mut dst = self.opened(place)?;
        dst.created_names = place.created_names.clone();
        dst.made_first = place.made_first;
        Ok(dst.with_bases(keeping::bases(self.policy, &Reach::Anywhere, &place.dir)?))
    }

    fn share(&self, base: &DestDir<Sys>) -> DestDir<Sys> {
        base.share()
    }

    fn enter(
        &self,
        hand: &mut Hand,
        above: &Arc<DirPair>,
        src: &Arc<SourceDir>,
        entry: DirEntry<'_>,
        by: Entering,
    ) -> Result<Option<DestDir<Sys>>> {
        let to = entry.to;
        if matches!(by, Entering::Operand | Entering::Walk) && self.was_made(src.info.id()) {
            self.desk.passed_by(hand, above);
            let note = Reason::MadeByCopyItself;
            return Err(Error::ours(Code::Refused, Op::Copy, src.node.path(), note));
        }
        if let Some(aside) = &self.desk.hooks.aside {
            let cleared = aside.clears_for_dir(&above.dst, to);
            cleared.inspect_err(|_| self.desk.passed_by(hand, above))?;
        }
        let dst = match by {
            Entering::Operand => self.desk.enter_top(&above.dst, to, &src.info)?,
            Entering::Walk => self.desk.enter(hand, above, to, src.info.mode)?,
            Entering::Round if !self.policy.mirror.is_on() => above.dst.enter_shared(self.disk, to)?,
            Entering::Whole | Entering::ListBase | Entering::List | Entering::Round => {
                above.dst.enter(self.disk, to, self.policy)?
            }
        };
        if matches!(by, Entering::Operand | Entering::Whole) {
            self.remember(dst.info.id());
        }
        if let Some(aside) = &self.desk.hooks.aside {
            aside.enters(&dst, &src.info, self.policy)?;
        }
        self.becomes(src, &dst);
        Ok(Some(dst))
    }

    fn becomes(&self, src: &SourceDir, dst: &DestDir<Sys>) {
        self.desk.narrow(dst, &src.info);
    }

    fn expect(&self, pair: &DirPair, dirs: usize) {
        pair.dst.expect(dirs);
    }

    fn passed_by(&self, hand: &mut Hand, pair: &Arc<DirPair>) {
        self.desk.passed_by(hand, pair);
    }

    fn fills(&self, src: &SourceDir, base: &Place) -> Result<()> {
        let fail = |e| Error::os(Op::Stat, base.node.path(), e);
        self.remember(base.dir.info().map_err(fail)?.id());
        let aside = self.desk.hooks.aside.as_ref();
        aside.map_or(Ok(()), |aside| aside.fills(&base.node, &src.info, self.policy))?;
        let extraneous = self.desk.hooks.extraneous.as_ref();
        extraneous.map_or(Ok(()), |all| all.begin(&base.dir, &base.node, src.info.id())).map_err(fail)
    }

    fn met(&self, pair: &DirPair, name: Name<'_>) {
        if let Some(extraneous) = &self.desk.hooks.extraneous {
            extraneous.met(&pair.dst, name);
        }
    }

    fn left_out(&self, pair: &DirPair, name: Name<'_>) {
        if let Some(extraneous) = &self.desk.hooks.extraneous {
            extraneous.left_out(&pair.dst, name);
        }
    }

    fn listed(&self, pair: &DirPair) {
        let Some(extraneous) = &self.desk.hooks.extraneous else { return };
        let (src, filter) = (&pair.src, &self.desk.hooks.filter);
        // M2: a listing during which names were exchanged may have missed one.
        let is_there = |name: Name<'_>| {
            let there = src.dir.look(name).map_err(|e| Error::os(Op::Stat, src.node.join(name), e))?;
            // What counts as absent there was left out by what it is at the source.
            let is_out = |info: &Info| extraneous.takes_excluded() && src.excludes(name, info, filter);
            Ok(there.is_some_and(|info| !is_out(&info)))
        };
        let excludes = |below: &[&[u8]], is_dir: bool| src.excludes_below(below, is_dir, filter);
        let excludes = filter.asked::<SparedBelow<'_>>(&excludes);
        let times = self.policy.preserve.times.then_some((src.info.atime, src.info.mtime));
        if let Err(e) = extraneous.all_met(&pair.dst, times, excludes, &is_there) {
            self.failed(pair, e);
        }
    }

    fn release(&self, hand: &mut Hand, hold: WalkHold<Self>) {
        self.desk.release(hand, hold);
    }

    fn worked(&self, hand: &mut Hand) {
        self.desk.publish_group(hand);
    }
}

impl<'a> WalkDestination for Run<'a> {
    type Finding = ();

    fn claim(&self, pair: &DirPair, entry: DirEntry<'_>, _: &Info) -> Result<Claimed> {
        self.claim_name(pair, entry)
    }

    fn list_base(&self, target: &Target) -> Result<DestDir<Sys>> {
        let mut to = Resolved::of(Op::Create, &Reach::Anywhere, target, 1, DestLink::Through, self.policy)?;
        to.make()?;
        let (Where::Into(place) | Where::Whole(place)) = &to.to else {
            return Err(Error::ours(Code::Io, Op::Open, target.path(), Reason::DirectoryWentAway));
        };
        let dst = self.opened(place)?.for_a_list();
        self.remember(dst.info.id());
        Ok(dst)
    }

    fn room(&self, pair: &DirPair) -> usize {
        self.desk.room(pair)
    }

    /// Lands small entries of one directory.
    fn entries(
        &self,
        worker: &mut CopyWorker<'_, '_, 'a>,
        pair: &Arc<DirPair>,
        names: &Names,
        range: Range<usize>,
    ) {
        let mut rest = range;
        let mut buffer = std::mem::take(&mut worker.buffers.small);
        while !rest.is_empty() {
            self.batch(worker, &mut buffer, pair, names, &mut rest);
        }
        worker.buffers.small = buffer;
    }

    /// Lands one entry by itself.
    fn one(&self, worker: &mut CopyWorker<'_, '_, 'a>, pair: &Arc<DirPair>, entry: DirEntry<'_>) {
        let mut one = Vec::new();
        match self.prepare(worker, &mut one, None, pair, entry, Way::Alone) {
            Prepared::Settled => self.land(worker, pair, &mut one, Way::Alone),
            Prepared::Later(e) => self.failed(pair, e),
        }
    }

    /// A second name of an inode that another worker may still be landing.
    fn second(
        &self,
        worker: &mut CopyWorker<'_, '_, 'a>,
        pair: &Arc<DirPair>,
        entry: DirEntry<'_>,
        info: &Info,
    ) {
        let DirEntry { name, to, .. } = entry;
        let follow = self.follows(pair);
        let entry = DirEntry { follow, kind: info.kind, ..entry };
        // It was looked at before the first name was done, maybe long ago. What it is now says whether the first's copy
        // is of the same content, and what a move may take away. Where it is something else it is landed as such.
        let now = match pair.src.stat(name, follow) {
            Ok(now) if now.id() == info.id() => now,
            Ok(_) => return self.one(worker, pair, entry),
            // Prepared again it would come back here, as long as this fails and opening does not.
            Err(e) => return self.failed(pair, e),
        };
        let landed = match self.desk.links.claim_waiting(&now) {
            Claim::Second(landed) => landed,
            // The first could not be landed, or is of what this one was before: this one is the first now.
            Claim::First => {
                self.desk.links.gave_up(&now);
                return self.one(worker, pair, entry);
            }
        };
        self.desk.land_second(worker.buffers, pair, name, to, &now, &landed);
    }

    fn excluded(&self, _: &mut Hand, path: &dyn Fn() -> PathBuf) {
        if !self.desk.once_more().load(Ordering::Relaxed) {
            self.desk.tally.watch.progress.excluded.fetch_add(1, Ordering::Relaxed);
            self.desk.tally.item(Action::Excluded, 0, || (path(), PathBuf::new()));
        }
    }
}
