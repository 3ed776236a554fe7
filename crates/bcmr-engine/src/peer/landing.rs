//! A destination that lands what comes off the wire.
//!
//! The same code in `bcmr serve` (PUT) and in the client (GET). Must not know the protocol: entries are handed in by
//! [`FromWire`], which asks the sender for what is wanted of them.

use crate::blocks::{LARGE_BYTES_MIN, REPEAT_BYTES_MIN};
use crate::chunks::{DELTA_BYTES_MIN, Span};
use crate::disk::sys::{Hand, Sys};
use crate::disk::{Attributes, Body, Dirs, Job};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Event, Summary, Watch};
use crate::peer::dedup::StoredBlocks;
use crate::peer::from_wire::FromWire;
use crate::peer::from_wire::destination::{Arrived, Chosen, Far, Meta, WireDestination, other_size};
use crate::peer::from_wire::handler::NextMessage;
use crate::peer::from_wire::transfer::IncomingTransfer;
use crate::peer::incoming::{Incoming, refused};
use crate::peer::reply::{Reply, sums_of};
use crate::peer::taking::FarSource;
use crate::policy::{Collide, CopyPolicy, Landing};
use crate::receiver::arriving::Arriving;
use crate::receiver::aside::Aside;
use crate::receiver::basis::Basis;
use crate::receiver::choose::{Candidate, Offered, Way};
use crate::receiver::claims::{Claimed, Claims, Spot};
use crate::receiver::dest::DestDir;
use crate::receiver::devices::Devices;
use crate::receiver::dir_task::{Dropped, Hold, PairedDirs, Slot};
use crate::receiver::directories::Marks;
use crate::receiver::elsewhere::Elsewhere;
use crate::receiver::extraneous::Extraneous;
use crate::receiver::held::HeldNames;
use crate::receiver::lander::{Decision, LandHooks, Lander, SourceSeen};
use crate::receiver::links::{Claim, LinkTable};
use crate::receiver::partly::SparedBelow;
use crate::receiver::plan::Proof;
use crate::receiver::run_files::RunFiles;
use crate::sender::filter::Filter;
use crate::store::{CameFrom, Store};
use crate::tally::Tally;
use crate::trouble::unreadable;
use crate::verbs::destination::{Destination, DirEntry, Entering};
use crate::verbs::keeping;
use crate::verbs::manifest::Manifest;
use crate::verbs::nameless::TreeNames;
use crate::verbs::operands::{Place, Where};
use crate::verbs::round_ledger::FetchedNames;
use crate::verbs::snapshot::SnapshotRun;
use crate::verbs::survey::Excludes;
use crate::verbs::sync::rules_there::RulesThere;
use bcmr_wire::contents::Item;
use bcmr_wire::limits;
use bcmr_wire::limits::PART_BYTES_MIN;
use bcmr_wire::message::{Run, Wanted};
use fastcopy::dir::Name;
use fastcopy::meta::{Info, Kind};
use fastcopy::read_write::read_expected;
use fastcopy::sync;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Beside landing, a manifest is written (GET), what landed by the thread of large files is counted, and what the source
/// lacks is collected, where that is deleted.
struct FarHooks<'a> {
    reply: &'a Reply,
    /// What was moved is taken away there.
    source: Option<FarSource<'a>>,
    /// What of the names that were asked for is there.
    fetched: Option<&'a FetchedNames>,
    manifest: Option<Manifest>,
    extraneous: Option<Extraneous>,
    /// What files of rules leave out of that.
    rules: Option<Arc<RulesThere>>,
    aside: Option<Arc<Aside>>,
    filter: Arc<Filter>,
    landed: AtomicU64,
}

impl FarHooks<'_> {
    /// Remembers a name that was asked for and is there.
    fn is_there(&self, slot: &Slot<Far>, src: Name<'_>, (info, hash): SourceSeen<'_>) {
        if let Some(fetched) = self.fetched {
            fetched.landed(slot.src.node.below_root(Some(src)), info, hash);
        }
    }
}

impl LandHooks<Far> for FarHooks<'_> {
    fn is_attended(&self) -> bool {
        !(self.reply.has_ended)()
    }

    fn landed(
        &self,
        slot: &Arc<Slot<Far>>,
        src: Name<'_>,
        (info, hash): SourceSeen<'_>,
        devices: &Devices<'_, Sys>,
        tally: &Tally<'_>,
    ) {
        self.is_there(slot, src, (info, hash));
        if let Some(source) = &self.source
            && source.ledger.landed(slot, src, info, tally)
        {
            source.ledger.settle(devices, tally, source);
        }
        if info.size >= LARGE_BYTES_MIN {
            self.landed.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn kept(&self, slot: &Slot<Far>, src: Name<'_>, info: &Info) {
        self.is_there(slot, src, (info, None));
    }
    fn dir_done(&self, slot: &Arc<Slot<Far>>) {
        if let Some(source) = &self.source {
            source.ledger.dir_done(slot);
        }
    }
    fn takes_away(&self) -> bool {
        self.source.is_some()
    }
    fn proves(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.ledger.proves)
    }
    fn in_the_way(&self, slot: &Slot<Far>, to: Name<'_>, there: &Info) -> Result<bool> {
        let Some(extraneous) = &self.extraneous else { return Ok(false) };
        let excludes = |below: &[&[u8]], is_dir: bool| slot.src.leaves_out(below, is_dir, &self.filter);
        let goes =
            extraneous.in_the_way(&slot.dst, to, there, self.filter.asked::<SparedBelow<'_>>(&excludes))?;
        // M11: it comes only once that is gone.
        self.rules.iter().for_each(|rules| rules.lacks(to, slot.dst.info.id(), Reason::RulesInTheWay));
        Ok(goes)
    }
    fn keep_old(&self, slot: &Slot<Far>, jobs: &mut [Job<'_, Sys>]) {
        self.aside.iter().for_each(|aside| aside.keep(&slot.dst, jobs));
    }
    fn give_back(&self, slot: &Slot<Far>, jobs: &mut [Job<'_, Sys>]) {
        self.aside.iter().for_each(|aside| aside.give_back(&slot.dst, jobs));
    }
    fn moves_away(&self, slot: &Slot<Far>, to: Name<'_>, there: &Info) -> Result<bool> {
        self.aside.as_ref().map_or(Ok(false), |aside| aside.clears_empty(&slot.dst, to, there))
    }
    fn hashed(&self, dst: &Path, hash: &[u8; 32]) -> Result<()> {
        self.manifest.as_ref().map_or(Ok(()), |manifest| manifest.add(dst, hash))
    }
}

/// What is to be done with an entry that is wanted.
#[derive(Clone, Copy)]
pub(crate) enum LandVerdict {
    /// Landed over this.
    Land(Option<Info>),
    /// Compared with what is there first.
    Doubt,
}

/// Lands what comes off the wire.
pub(crate) struct WireLanding<'a> {
    desk: Lander<'a, Far, FarHooks<'a>>,
    policy: &'a CopyPolicy,
    what: Arc<Incoming>,
    dedup: StoredBlocks<'a>,
    /// Bytes that were taken from what was there before.
    reused: Arc<AtomicU64>,
    /// What the destination has under other names, where it is made what the source is.
    elsewhere: OnceLock<Elsewhere>,
    /// What has landed in this transfer.
    run: RunFiles,
    snapshot: Option<SnapshotRun>,
}

/// What a copy from the other side needs of this one.
pub(crate) struct LocalSide<'a> {
    pub(crate) disk: &'a Sys,
    /// Where hashes are written.
    pub(crate) manifest: Option<&'a Path>,
    /// Blocks that landed before.
    pub(crate) store: Option<&'a Store>,
    /// What lands becomes a snapshot, once all of it is there.
    pub(crate) snapshot: Option<SnapshotRun>,
    /// Who is to know what of the names that were asked for is there.
    pub(crate) fetched: Option<&'a FetchedNames>,
}

/// A receiver that lands what comes. Nothing is changed yet.
///
/// # Errors
/// The manifest cannot be written, or a pattern is none.
pub(crate) fn landing<'a>(
    transfer: IncomingTransfer<'a>,
    watch: Watch<'a>,
    here: LocalSide<'a>,
) -> Result<FromWire<'a, WireLanding<'a>>> {
    let LocalSide { disk, manifest, store, snapshot, fetched } = here;
    let what = transfer.what.clone();
    let manifest = match manifest {
        Some(file) => Some(Manifest::begin(file, Some(what.to.base()?))?),
        None => None,
    };
    if !what.listed {
        what.to.tell_new(&watch);
        if let Ok(base) = what.to.base() {
            watch.progress.hashes.below(&base);
        }
    }
    let policy = transfer.policy;
    // [policy.mirror]: names of a list are never all that a directory has.
    let extraneous = Extraneous::of(policy).filter(|_| what.is_whole());
    let aside = match &what.to.to {
        Where::Whole(place) => keeping::aside(policy, &what.reach, place)?,
        // Nothing is there that could be replaced.
        Where::Into(_) | Where::Name { .. } => None,
    };
    let extraneous = extraneous.map(|found| found.sparing(aside.as_ref().map(|aside| aside.id())));
    // No other process is at work in the tree any more.
    let extraneous = extraneous.map(|found| found.sweeping(what.tree.is_some()));
    let filter = Arc::new(Filter::new(&policy.filter)?);
    let rules = extraneous.as_ref().and_then(|_| RulesThere::of(&filter));
    let extraneous = extraneous.map(|found| found.ruled_by(rules.as_ref().map(RulesThere::below)));
    let source = policy.leaving.goes().then(|| FarSource::new(transfer.reply, policy.verify));
    let (reply, landed) = (transfer.reply, AtomicU64::new(0));
    let hooks = FarHooks { reply, source, fetched, manifest, extraneous, rules, aside, filter, landed };
    let mut desk = Lander::new(disk, policy, Tally::new(watch), hooks);
    desk.claims = Claims::of_at_most(limits::CLAIMS_MAX, what.meeting());
    desk.links = LinkTable::of_at_most(limits::LINKS_MAX);
    let dedup = StoredBlocks::new(store, what.dedup, what.hashes, transfer.reply);
    Ok(FromWire::new(
        transfer,
        watch,
        WireLanding {
            desk,
            policy,
            what,
            dedup,
            reused: Arc::default(),
            elsewhere: OnceLock::new(),
            run: RunFiles::new(),
            snapshot,
        },
    ))
}

impl WireLanding<'_> {
    fn failed(&self, slot: &Slot<Far>, e: Error) {
        slot.mark_incomplete();
        self.desk.tally.fail(e);
    }

    /// Whether an entry may have the name that it would get. It may not when that is another source's, and need not when it
    /// came before.
    fn gets_its_name(&self, slot: &Arc<Slot<Far>>, spot: &Spot, meta: &Meta) -> bool {
        let (name, to) = (meta.name.as_name(), meta.to.as_name());
        match self.desk.claim_name(slot, spot, name, to, meta.info.id()) {
            // One name of a list is one source's, and all of a list is one operand.
            Ok(Claimed::Again) if self.what.listed => self.desk.came_before(slot),
            Ok(Claimed::Same) => self.desk.came_before(slot),
            Ok(_) => return true,
            Err(e) => self.failed(slot, e),
        }
        false
    }

    /// Whether it has further names which are to stay one file.
    fn is_linked(&self, info: &Info) -> bool {
        self.policy.preserve.links && info.nlink > 1
    }

    /// Says what becomes of an entry that no other name of the same file came before.
    fn decide(&self, slot: &Arc<Slot<Far>>, meta: &Meta) -> Chosen<LandVerdict> {
        let is_file = meta.info.kind == Kind::File;
        let (name, to) = (meta.name.as_name(), meta.to.as_name());
        let doubt = std::cell::Cell::new(false);
        let prove = |proof: Proof, _: &Info| {
            if proof == Proof::Target {
                return self.desk.leads_to(slot, to, &meta.link).map(Some);
            }
            doubt.set(true);
            Ok(None)
        };
        let chosen = if meta.info.kind.is_special() && !self.policy.specials {
            let note = Reason::KindIs.about(meta.info.kind.word());
            Err(Error::ours(Code::Special, Op::Copy, meta.path(&slot.src.node), note))
        } else {
            let attributes = Attributes::Carried(&meta.attrs);
            let offered = Offered { name, to, info: &meta.info, is_file, attributes };
            match self.desk.came_before_stop(slot, &offered, &prove) {
                Ok(Some(true)) => return Chosen::Nothing,
                Ok(Some(false)) => self.desk.choose(slot, &offered, &prove),
                // It is compared first.
                Ok(None) => Ok(Decision::Create),
                Err(e) => Err(e),
            }
        };
        match chosen {
            Ok(Decision::Skip) => {}
            Ok(Decision::Update(there)) => return self.update(slot, meta, there),
            Ok(_) if doubt.get() => return Chosen::Want(LandVerdict::Doubt),
            Ok(Decision::Create) => return self.want(slot, meta, None),
            Ok(Decision::Replace(there)) => return self.want(slot, meta, Some(there)),
            Err(e) => self.failed(slot, e),
        }
        self.gave_up(&meta.info);
        Chosen::Nothing
    }

    /// An entry is wanted, unless an earlier copy has it.
    fn want(&self, slot: &Arc<Slot<Far>>, meta: &Meta, there: Option<Info>) -> Chosen<LandVerdict> {
        let (name, to, info) = (meta.name.as_name(), meta.to.as_name(), meta.info);
        let attributes = Attributes::Carried(&meta.attrs);
        let (body, way) = (Body::Bytes(&[]), Way::Alone);
        let entry = Candidate { name, to, info, body, attributes, way, is_at_hand: false };
        // Contents could only be compared once they are here.
        let asks_content = self.policy.collide == Collide::IfContentDiffers;
        if meta.info.kind != Kind::File || asks_content {
            return Chosen::Want(LandVerdict::Land(there));
        }
        match self.desk.share_with_basis(slot, entry, there) {
            Ok(Some(job)) => {
                let mut hand = self.desk.disk.hand();
                self.desk.land(&mut hand, slot, &mut vec![job], Way::Alone, 1, false);
                Chosen::Nothing
            }
            // What cannot be compared comes.
            Ok(None) | Err(_) => Chosen::Want(LandVerdict::Land(there)),
        }
    }

    /// Gives what is there the attributes that came with the entry. Its content need not come.
    fn update(&self, slot: &Arc<Slot<Far>>, meta: &Meta, there: Info) -> Chosen<LandVerdict> {
        match self.job(slot, Way::Alone, (meta, LandVerdict::Land(Some(there))), Body::Kept) {
            Ok(Some(job)) => {
                let mut hand = self.desk.disk.hand();
                self.desk.land(&mut hand, slot, &mut vec![job], Way::Alone, 1, false);
            }
            Ok(None) => {}
            Err(e) => {
                self.gave_up(&meta.info);
                self.failed(slot, e);
            }
        }
        Chosen::Nothing
    }

    /// Whether one more inode with several names can be remembered; told when not.
    fn has_room_for_link(&self, slot: &Slot<Far>, meta: &Meta) -> bool {
        if self.desk.links.has_room(&meta.info) {
            return true;
        }
        let note = Reason::TooManyLinks;
        let shown = meta.path(&slot.src.node);
        self.failed(slot, Error::ours(Code::Refused, Op::KeepTheLinksOf, shown, note));
        false
    }

    fn gave_up(&self, info: &Info) {
        if self.is_linked(info) {
            self.desk.links.gave_up(info);
        }
    }

    fn job<'n>(
        &self,
        slot: &'n Arc<Slot<Far>>,
        way: Way,
        (meta, wanted): (&'n Meta, LandVerdict),
        body: Body<'n, Sys>,
    ) -> Result<Option<Job<'n, Sys>>> {
        let (name, to) = (meta.name.as_name(), meta.to.as_name());
        let (info, attributes) = (meta.info, Attributes::Carried(&meta.attrs));
        let entry = Candidate { name, to, info, body, attributes, way, is_at_hand: false };
        match wanted {
            LandVerdict::Land(there) if self.reads_bases() => {
                self.desk.like_basis_or_new(slot, entry, there).map(Some)
            }
            LandVerdict::Land(there) => self.desk.job(slot, entry, there).map(Some),
            LandVerdict::Doubt => {
                let job = self.desk.plan(slot, entry);
                if !matches!(job, Ok(Some(_))) {
                    self.gave_up(&meta.info);
                }
                job
            }
        }
    }

    /// Whether earlier copies are compared with contents, once these come.
    fn reads_bases(&self) -> bool {
        self.policy.collide == Collide::IfContentDiffers && !self.policy.bases.is_empty()
    }

    /// Whether what is there may be made use of: what is written into, or added to, is not what it was by the time that it
    /// is read.
    fn stays(&self) -> bool {
        self.what.hashes && self.policy.landing == Landing::Atomic && !self.policy.resume.appends()
    }

    /// Whether the sender is asked for parts of small files.
    fn asks_parts(&self) -> bool {
        self.what.parts && self.stays()
    }

    /// Files that may have a certain content: what is under the name, or, where nothing is, those that look like it.
    fn candidates(&self, slot: &Slot<Far>, meta: &Meta, verdict: LandVerdict) -> Vec<OwnedFd> {
        let to = meta.to.as_name();
        match verdict {
            LandVerdict::Land(None) => {
                self.elsewhere.get().map_or_else(Vec::new, |all| all.alike(&meta.info, to).collect())
            }
            LandVerdict::Land(Some(_)) | LandVerdict::Doubt => {
                slot.dst.dir.open_file(to).into_iter().collect()
            }
        }
    }

    /// What is there of a file already, where that may be a part of it.
    fn basis(&self, slot: &Slot<Far>, meta: &Meta, verdict: LandVerdict) -> Option<Basis> {
        if !(self.what.delta && self.stays()) {
            return None;
        }
        // Whatever keeps it from being read keeps it from being of use, and from nothing else.
        let file = match verdict {
            LandVerdict::Land(None) => {
                let elsewhere = self.elsewhere.get();
                let moved = elsewhere.and_then(|all| all.like(&meta.info, meta.to.as_name()));
                let is_client = self.what.echo;
                moved.or_else(|| self.dedup.earlier(&source_of(slot, meta), meta.info.size, is_client))?
            }
            LandVerdict::Land(Some(_)) | LandVerdict::Doubt => {
                slot.dst.dir.open_file(meta.to.as_name()).ok()?
            }
        };
        Basis::of(file, meta.info.size, &self.reused)
    }

    /// What came may come again.
    fn may_repeat(&self, slot: &Slot<Far>, came: &Arrived<'_, LandVerdict>) {
        let Some(hash) = came.item.as_ref().and_then(hash_of) else { return };
        if came.meta.info.size >= REPEAT_BYTES_MIN {
            self.run.landed(hash, &slot.dst, came.meta.to.as_name());
        }
    }

    /// Whether a large file that nothing there is a basis of may get one that lands in this run before it.
    fn awaits_basis(&self, slot: &Slot<Far>, wanted: Option<(&Meta, LandVerdict)>, file: u64) -> bool {
        let Some((meta, LandVerdict::Land(None))) = wanted else { return false };
        let (source, size) = (source_of(slot, meta), meta.info.size);
        // What the store knows of its source is better than what looks like it.
        let may = self.what.delta && self.what.repeats && self.stays() && !self.dedup.knows(&source, size);
        may && (self.run.expects(file, size, meta.name.as_name())
            || self.run.goes_by_names() && self.dedup.knows_like(&source, size))
    }

    /// What has landed in an earlier run from a source of nearly this name.
    fn like_basis(&self, slot: &Slot<Far>, meta: &Meta, file: u64) -> Option<Basis> {
        let size = meta.info.size;
        let may = self.run.goes_by_names();
        let found = may.then(|| self.dedup.like(&source_of(slot, meta), size, self.what.echo)).flatten()?;
        Basis::of(found, size, &self.run.goes_by_name(file))
    }

    /// What has landed by now that a large file may have much in common with.
    fn run_basis(&self, arriving: &Arriving<'_>) -> Option<Basis> {
        let found = self.run.basis(self.desk.disk, arriving.file)?;
        // A sender may not ask its client for a file: it is told of what it has sent and of nothing else.
        if self.what.echo && !found.is_what_landed() {
            return None;
        }
        Basis::of(found.file, arriving.info.size, &found.used)
    }

    /// What an entry that came is landed as.
    ///
    /// # Errors
    /// Outside, the sender broke the protocol; inside, it could not send what was wanted.
    fn body<'n>(
        &self,
        slot: &Slot<Far>,
        came: &'n Arrived<'_, LandVerdict>,
    ) -> Result<Result<Body<'n, Sys>>> {
        let Arrived { meta, item, made, .. } = came;
        let shown = || meta.path(&slot.src.node);
        if let Some(made) = made {
            // It was compared with the source's hash.
            return Ok(Ok(Body::Bytes(made)));
        }
        Ok(match item {
            None if meta.info.kind == Kind::Link => Ok(Body::Link(meta.link.clone())),
            None => Ok(Body::Special),
            Some(Item::Content { bytes, .. }) if bytes.len() as u64 != meta.info.size => {
                Err(other_size(shown(), meta.info.size, bytes.len() as u64))
            }
            Some(Item::Content { bytes, hash: Some(said) }) if blake3::hash(bytes).as_bytes() != said => {
                Err(Error::ours(Code::Mismatch, Op::Receive, shown(), Reason::NotWhatWasSent))
            }
            Some(Item::Content { bytes, .. }) => Ok(Body::Bytes(bytes)),
            Some(Item::Hashed { .. } | Item::Patched { .. }) => {
                return Err(refused(Reason::HashNotContent));
            }
            Some(Item::Changed) => {
                let note = Reason::SourceChangedWhileRead;
                Err(Error::ours(Code::SourceChanged, Op::Copy, shown(), note))
            }
            Some(Item::Unreadable(trouble)) => Err(unreadable(trouble, shown())),
        })
    }
}

/// The hash that the sender says a content has.
fn hash_of<'i>(item: &'i Item<'_>) -> Option<&'i [u8; 32]> {
    match item {
        Item::Content { hash, .. } => hash.as_ref(),
        Item::Hashed { hash, .. } | Item::Patched { hash, .. } => Some(hash),
        Item::Changed | Item::Unreadable(_) => None,
    }
}

/// Where an entry comes from, as its sender says.
fn source_of(slot: &Slot<Far>, meta: &Meta) -> CameFrom {
    CameFrom { machine: meta.machine, path: meta.path(&slot.src.node) }
}

impl Destination<Far> for WireLanding<'_> {
    type Buffers = Hand;
    type Dir = DestDir<Sys>;

    fn tally(&self) -> &Tally<'_> {
        &self.desk.tally
    }

    fn claims(&self) -> &Claims {
        &self.desk.claims
    }

    fn buffers(&self) -> Hand {
        self.desk.disk.hand()
    }

    fn base(&self, place: &Place) -> Result<DestDir<Sys>> {
        let dir = place.dir.try_clone().map_err(|e| Error::os(Op::Open, place.node.path(), e))?;
        let mut dst = DestDir::existing(self.desk.disk, dir, place.node.clone(), None, self.policy)?;
        dst.made_first = place.made_first;
        Ok(dst.with_bases(keeping::bases(self.policy, &self.what.reach, &place.dir)?))
    }

    fn share(&self, base: &DestDir<Sys>) -> DestDir<Sys> {
        base.share()
    }

    fn fills(&self, src: &Far, base: &Place) -> Result<()> {
        if self.policy.mirror.is_on()
            && let Ok(top) = base.dir.try_clone()
        {
            let least = if self.asks_parts() { PART_BYTES_MIN.min(DELTA_BYTES_MIN) } else { DELTA_BYTES_MIN };
            self.elsewhere.get_or_init(|| Elsewhere::below(top, least));
        }
        let aside = self.desk.hooks.aside.as_ref();
        aside.map_or(Ok(()), |aside| aside.fills(&base.node, &src.info, self.policy))?;
        let began = self.desk.hooks.extraneous.as_ref();
        let began = began.map_or(Ok(()), |all| all.begin(&base.dir, &base.node, src.info.id()));
        began.map_err(|e| Error::os(Op::Open, base.node.path(), e))
    }

    fn met(&self, pair: &Slot<Far>, name: Name<'_>) {
        self.desk.hooks.rules.iter().for_each(|rules| rules.met(name, pair.dst.info.id()));
        if let Some(extraneous) = &self.desk.hooks.extraneous {
            extraneous.met(&pair.dst, name);
        }
    }

    fn left_out(&self, pair: &Slot<Far>, name: Name<'_>) {
        let rules = self.desk.hooks.rules.iter();
        rules.for_each(|rules| rules.lacks(name, pair.dst.info.id(), Reason::RulesLeftOut));
        if let Some(extraneous) = &self.desk.hooks.extraneous {
            extraneous.left_out(&pair.dst, name);
        }
    }

    fn listed(&self, pair: &Slot<Far>) {
        let Some(extraneous) = &self.desk.hooks.extraneous else { return };
        let (src, filter) = (&pair.src, &self.desk.hooks.filter);
        let excludes = |below: &[&[u8]], is_dir: bool| src.leaves_out(below, is_dir, filter);
        let excludes = filter.asked::<SparedBelow<'_>>(&excludes);
        let times = self.policy.preserve.times.then_some((src.info.atime, src.info.mtime));
        // The sender has said that it has named all there is.
        if let Err(e) = extraneous.all_met(&pair.dst, times, excludes, &|_| Ok(false)) {
            self.failed(pair, e);
        }
    }

    fn enter(
        &self,
        hand: &mut Hand,
        above: &Arc<Slot<Far>>,
        src: &Arc<Far>,
        entry: DirEntry<'_>,
        by: Entering,
    ) -> Result<Option<DestDir<Sys>>> {
        let aside = self.desk.hooks.aside.as_ref();
        let cleared = aside.map_or(Ok(()), |aside| aside.clears_for_dir(&above.dst, entry.to));
        cleared.inspect_err(|_| self.desk.passed_by(hand, above))?;
        let dst = match by {
            // A mirror's directory is that very one each time, as it is for one of this machine: a mark in it would never be asked for.
            Entering::Whole if self.policy.mirror.is_on() => {
                above.dst.enter(self.desk.disk, entry.to, self.policy)?
            }
            Entering::Operand | Entering::Whole | Entering::ListBase => {
                self.desk.enter_top(&above.dst, entry.to, &src.info)?
            }
            Entering::Walk if above.dst.is_recorded() => above.dst.enter_shared(self.desk.disk, entry.to)?,
            Entering::Walk | Entering::List | Entering::Round => {
                self.desk.enter(hand, above, entry.to, src.info.mode)?
            }
        };
        aside.map_or(Ok(()), |aside| aside.enters(&dst, &src.info, self.policy))?;
        self.becomes(src, &dst);
        Ok(Some(dst))
    }

    fn becomes(&self, src: &Far, dst: &DestDir<Sys>) {
        self.desk.narrow(dst, &src.info);
    }

    fn expect(&self, pair: &Slot<Far>, dirs: usize) {
        pair.dst.expect(dirs);
    }

    fn passed_by(&self, hand: &mut Hand, pair: &Arc<Slot<Far>>) {
        self.desk.passed_by(hand, pair);
    }

    fn release(&self, hand: &mut Hand, hold: Hold<Far, DestDir<Sys>>) {
        self.desk.release(hand, hold);
    }

    fn worked(&self, hand: &mut Hand) {
        self.desk.publish_group(hand);
    }
}

impl<'a> WireDestination<'a> for WireLanding<'a> {
    type Verdict = LandVerdict;

    const TAKES_BYTES: bool = true;

    fn list_base(&self, _: &Far, place: &Place) -> Result<DestDir<Sys>> {
        if self.what.tree != Some(TreeNames::Some) {
            return self.base(place).map(DestDir::for_a_list);
        }
        let dir = place.dir.try_clone().map_err(|e| Error::os(Op::Open, place.node.path(), e))?;
        DestDir::shared(self.desk.disk, dir, place.node.clone(), HeldNames::default(), self.policy)
    }

    fn top(
        &self,
        pair: PairedDirs<Far, DestDir<Sys>>,
        _: &Arc<Dropped<Far, DestDir<Sys>>>,
    ) -> Hold<Far, DestDir<Sys>> {
        self.desk.top(pair)
    }

    fn is_new(&self, dir: &DestDir<Sys>) -> bool {
        // What was only moved need not come.
        dir.is_fresh() && !(self.asks_parts() && self.elsewhere.get().is_some_and(|all| !all.is_empty()))
    }

    fn shown(&self, dir: &DestDir<Sys>, to: Name<'_>) -> PathBuf {
        dir.node.join(to)
    }

    fn merges(&self, hand: &mut Hand, earlier: Option<&Slot<Far>>) -> Result<()> {
        // It may wait for others, so as to be synced with them.
        self.desk.publish_group(hand);
        // Until it has its name, a second one would be made beside it.
        if earlier.is_some_and(|slot| !slot.is_done()) {
            return Err(refused(Reason::DirectoryTwice));
        }
        Ok(())
    }

    fn choose(&self, slot: &Arc<Slot<Far>>, spot: &Spot, meta: &Meta) -> Chosen<LandVerdict> {
        let linked = self.is_linked(&meta.info);
        if !self.gets_its_name(slot, spot, meta) || linked && !self.has_room_for_link(slot, meta) {
            Chosen::Nothing
        } else if linked && !self.desk.links.claim_first(&meta.info) {
            Chosen::Further
        } else {
            self.decide(slot, meta)
        }
    }

    fn choose_further(
        &self,
        hand: &mut Hand,
        slot: &Arc<Slot<Far>>,
        meta: &Meta,
    ) -> Option<Chosen<LandVerdict>> {
        Some(match self.desk.links.claim(&meta.info)? {
            Claim::Second(landed) => {
                let (name, to) = (meta.name.as_name(), meta.to.as_name());
                self.desk.land_second(hand, slot, name, to, &meta.info, &landed);
                Chosen::Nothing
            }
            Claim::First => self.decide(slot, meta),
        })
    }

    fn part(&self, slot: &Slot<Far>, meta: &Meta, verdict: LandVerdict, chunks_max: usize) -> Wanted {
        let size = meta.info.size;
        if !self.asks_parts() || size < PART_BYTES_MIN {
            return Wanted::Content;
        }
        if matches!(verdict, LandVerdict::Land(None)) {
            let is_known = self.elsewhere.get().is_some_and(|all| all.knows(&meta.info));
            return if is_known { Wanted::Hash } else { Wanted::Content };
        }
        let Ok(there) = slot.dst.dir.open_file(meta.to.as_name()) else { return Wanted::Content };
        let is_as_long = Info::of(&there).is_ok_and(|info| info.kind == Kind::File && info.size == size);
        // What is only in doubt is probably the same.
        if is_as_long && matches!(verdict, LandVerdict::Doubt) {
            return Wanted::Hash;
        }
        let chunks = Basis::of_small(there, size, &self.reused).and_then(|basis| basis.chunks());
        match chunks.filter(|chunks| chunks.len() <= chunks_max) {
            Some(chunks) => Wanted::Rest(sums_of(&chunks)),
            None if is_as_long => Wanted::Hash,
            None => Wanted::Content,
        }
    }

    fn made(&self, slot: &Slot<Far>, meta: &Meta, verdict: LandVerdict, item: &Item<'_>) -> Option<Vec<u8>> {
        let size = meta.info.size;
        let mut candidates = self.candidates(slot, meta, verdict).into_iter();
        match item {
            Item::Hashed { length, hash } if *length == size => candidates.find_map(|file| {
                let mut bytes = Vec::new();
                let got = read_expected(&file, 0, usize::try_from(size).ok()?, &mut bytes).ok()?;
                (got as u64 == size && blake3::hash(&bytes).as_bytes() == hash).then(|| {
                    // What was only in doubt stays, and is not landed again.
                    if !matches!(verdict, LandVerdict::Doubt) {
                        self.reused.fetch_add(size, Ordering::Relaxed);
                    }
                    bytes
                })
            }),
            Item::Patched { runs, carried, hash } => {
                let basis = Basis::of_small(candidates.next()?, size, &self.reused)?;
                let mut at = 0;
                let span = |run: &Run| {
                    let span = Span { at, bytes: run.bytes, from: run.from };
                    at += run.bytes;
                    span
                };
                let spans: Vec<Span> = runs.iter().map(span).collect();
                if at != size {
                    return None;
                }
                basis.assemble(&spans, carried).filter(|bytes| blake3::hash(bytes).as_bytes() == hash)
            }
            _ => None,
        }
    }

    fn repeated(&self, meta: &Meta, verdict: LandVerdict, item: &Item<'_>) -> Option<Vec<u8>> {
        let size = meta.info.size;
        let Item::Hashed { length, hash } = item else { return None };
        if *length != size {
            return None;
        }
        let bytes = self.run.content(self.desk.disk, hash, size)?;
        if !matches!(verdict, LandVerdict::Doubt) {
            self.run.count(size);
        }
        Some(bytes)
    }

    fn room(&self, slot: &Slot<Far>) -> usize {
        self.desk.room(slot)
    }

    fn land(
        &self,
        hand: &mut Hand,
        slot: &Arc<Slot<Far>>,
        way: Way,
        came: &mut Vec<Arrived<'_, LandVerdict>>,
    ) -> Result<()> {
        let came = std::mem::take(came);
        let mut jobs: Vec<Job<'_, Sys>> = Vec::new();
        let mut broken = Ok(());
        for came in &came {
            let Arrived { meta, verdict, .. } = came;
            let verdict = *verdict;
            let body = match self.body(slot, came) {
                Ok(Ok(body)) => body,
                Ok(Err(e)) => {
                    self.gave_up(&meta.info);
                    self.failed(slot, e);
                    continue;
                }
                Err(e) => {
                    broken = Err(e);
                    break;
                }
            };
            let hash = came.item.as_ref().and_then(hash_of).map(|hash| blake3::Hash::from_bytes(*hash));
            match self.job(slot, way, (meta, verdict), body) {
                Ok(Some(job)) => jobs.push(Job { hash, ..job }),
                Ok(None) => {}
                Err(e) => self.failed(slot, e),
            }
        }
        self.desk.land(hand, slot, &mut jobs, way, 1, false);
        if self.what.repeats {
            came.iter().for_each(|came| self.may_repeat(slot, came));
        }
        broken
    }

    fn prepare(
        &self,
        slot: &Slot<Far>,
        wanted: Option<(&Meta, LandVerdict)>,
        arriving: Arriving<'a>,
    ) -> Result<Arriving<'a>> {
        match wanted.and_then(|(meta, verdict)| self.basis(slot, meta, verdict)) {
            // What is under this name is asked before the store, which needs a proof for every block.
            Some(basis) => Ok(arriving.with_basis(basis)),
            None if self.awaits_basis(slot, wanted, arriving.file) => {
                // It may turn out that there is none: then the store is asked as ever.
                self.dedup.prepare(arriving).map(Arriving::awaiting_basis)
            }
            None => self.dedup.prepare(arriving),
        }
    }

    fn wants_values(&self) -> bool {
        self.what.hashes
    }

    fn is_late(&self, meta: &Meta, wanted: LandVerdict) -> bool {
        let sessions = self.policy.resume.has_sessions() && meta.info.size > self.policy.checkpoint_bytes;
        let compares = !matches!(wanted, LandVerdict::Land(_)) || self.reads_bases();
        sessions || compares || self.policy.resume.appends()
    }

    fn land_large(
        &self,
        hand: &mut Hand,
        slot: &Arc<Slot<Far>>,
        (meta, wanted): (&Meta, LandVerdict),
        arriving: &Arc<Arriving<'a>>,
    ) {
        if arriving.lacks_basis()
            && let Some(basis) =
                self.run_basis(arriving).or_else(|| self.like_basis(slot, meta, arriving.file))
        {
            arriving.set_basis(basis);
        }
        let landed_before = self.desk.hooks.landed.load(Ordering::Relaxed);
        match self.job(slot, Way::Alone, (meta, wanted), Body::Wire(&**arriving)) {
            Ok(Some(job)) => {
                self.desk.land(hand, slot, &mut vec![job], Way::Alone, self.what.streams, false);
            }
            Ok(None) => {}
            Err(e) => self.failed(slot, e),
        }
        if self.desk.hooks.landed.load(Ordering::Relaxed) > landed_before {
            self.dedup.landed(slot, &meta.to, source_of(slot, meta), arriving);
            if self.what.repeats && self.what.delta {
                let (name, to) = (meta.name.as_name(), meta.to.as_name());
                self.run.landed_large(
                    meta.info.size,
                    &slot.dst,
                    (name, to),
                    arriving.all_values().as_deref(),
                );
            }
        }
    }

    fn took_away(&self, left: u64) -> Result<()> {
        match &self.desk.hooks.source {
            Some(source) => source.answered(left, &self.desk.tally),
            None => Err(refused(Reason::NotSendersMessage.about("TookAway"))),
        }
    }

    fn settled(&self, file: u64) {
        self.dedup.settled(file);
        self.reused.fetch_add(self.run.settled(file), Ordering::Relaxed);
    }

    fn have_blocks(&self, arriving: &Arriving<'a>, first: u64, values: &[[u8; 32]]) -> Result<()> {
        self.dedup.have_blocks(arriving, first, values)
    }

    fn proof(&self, arriving: &Arriving<'a>, first: u64, tags: &[[u8; 32]]) -> Result<()> {
        self.dedup.proof(arriving, first, tags)
    }

    /// Publishes and syncs what waits for it first. Marks of complete trees stay where the user is on the other side: a
    /// summary that is lost must not make the same command mean something else. They are to be cleared once it was heard.
    fn end(self, next: Option<&mut NextMessage<'_>>) -> (Summary, Marks, Result<()>) {
        let mut desk = self.desk;
        desk.publish_group(&mut desk.disk.hand());
        desk.sync_names();
        // R2: what a summary tells of a tree that others fill too is on stable storage.
        if let (Some(TreeNames::Some | TreeNames::Round), Where::Whole(place)) =
            (self.what.tree, &self.what.to.to)
            && let Err(e) = sync::filesystem(&place.dir)
        {
            desk.tally.fail(Error::os(Op::SyncTheFileSystemOf, place.node.path(), e));
        }
        let taken = match (&desk.hooks.source, next) {
            (Some(source), Some(next)) => source.end(&desk, &self.what, next),
            _ => Ok(()),
        };
        let plan = desk.hooks.extraneous.take().and_then(|found| found.plan(&desk.tally));
        let aside = desk.hooks.aside.take();
        if plan.is_some_and(|plan| plan.carry_out(self.policy, aside.as_deref(), &desk.tally)) {
            let note = Reason::OutOfTheWay;
            let shown = self.what.to.base().unwrap_or_default();
            desk.tally.fail(Error::ours(Code::InTheWay, Op::CopyAllOf, shown, note));
        }
        aside.iter().for_each(|aside| aside.finish(&desk.tally));
        self.dedup.tell_store(&desk.tally);
        if let bytes @ 1.. = self.reused.load(Ordering::Relaxed) {
            desk.tally.watch.front.event(Event::Note(Reason::FromBasis.about(bytes)));
        }
        if let bytes @ 1.. = self.run.reused() {
            desk.tally.watch.front.event(Event::Note(Reason::FromRun.about(bytes)));
        }
        if let Some(manifest) = desk.hooks.manifest.take() {
            manifest.finish(&desk.tally);
        }
        // What has a name of its own by the end is not asked for again by the same name.
        let marks = if taken.is_err() || self.what.once_more.load(Ordering::Relaxed) {
            Marks::NONE
        } else if self.what.echo || self.snapshot.is_some() {
            desk.unmark();
            Marks::NONE
        } else {
            desk.marks()
        };
        if let Some(run) = &self.snapshot {
            let filled = Summary { cancelled: !desk.tally.all_there(), ..desk.tally.summary() };
            run.finish(&filled, self.policy.jobs, &desk.tally);
        }
        (desk.end(), marks, taken)
    }
}
