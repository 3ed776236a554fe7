//! A client that copies to or from another machine, once and again while the connection gets lost.
//!
//! Must not know how addresses are typed or what is told to a person.

use super::beside::{self, AskedSnapshot};
use super::connections::{bytes_over_one, open_further};
use super::events::{ClientObserver, summary_of};
use super::features::{agreed_accounts, agreed_compress, needed_of_sender, offered, offered_by_receiver};
use super::fetched::FetchedBlocks;
use super::machine::machine_number;
use super::names::{RequestNames, send_all_but_last};
use super::policy_wire::{Lists, policy_out};
use super::receiving::{ReceivingEnd, receive_all, reply_on};
use super::sending::send_all;
use super::talk::{
    await_answer, is_absent, no_stream, prefix, send, send_frames, shown_path, split_by_greeting,
};
use crate::disk::sys::Sys;
use crate::error::{Code, Error, Note, Op, Reason, Result};
use crate::event::{Cancel, Event, Progress, Summary, Watch};
use crate::node::{Node, last_name};
use crate::peer::asked::{Asked, Kinds};
use crate::peer::comparing::{comparing, survey_of, visitor};
use crate::peer::from_wire::transfer::IncomingTransfer;
use crate::peer::incoming::Incoming;
use crate::peer::landing::{LocalSide, landing};
use crate::peer::owners_here::OwnersHere;
use crate::policy::{
    Collide, Compare, CopyPolicy, Dated, DeleteWhen, Leaving, Preserve, Resume, Target, Verify,
};
use crate::pulse::For;
use crate::remote::{Address, GetRequest, Purpose, PutRequest, Way};
use crate::sender::announce::{Extent, ToSend};
use crate::sender::filter::Filter;
use crate::sender::sending::{How, Links};
use crate::sender::walk::SourceDir;
use crate::tally::Tally;
use crate::transport::ssh::LinkLoad;
use crate::transport::stream::Stream;
use crate::transport::{self, Peer, Terms};
use crate::trouble::error_of;
use crate::verbs::going::GoingSnapshots;
use crate::verbs::keeping;
use crate::verbs::look::{Ahead, ahead};
use crate::verbs::manifest::Manifest;
use crate::verbs::operands::{self, DestLink, Reach, Resolved};
use crate::verbs::snapshot::{self, SnapshotRun};
use crate::verbs::sync::mounted::{Holder, Mounted};
use bcmr_wire::handshake::{Features, caps, guarantees, wide};
use bcmr_wire::limits;
use bcmr_wire::message::{self, AtOnce, Message};
use bcmr_wire::policy::flags;
use data_encoding::HEXLOWER;
use fastcopy::dir::{Dir, NameBuf};
use std::ffi::OsStr;
use std::io::{BufRead, Cursor};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// From this much to move on (bytes) a better cipher is worth asking ssh which ones it has.
const HEAVY_BYTES: u64 = 32 << 20;

/// Names that are looked at before there is a connection, to learn how much there is, and how long a slow disk may take
/// for it.
const AHEAD_NAMES: usize = 2000;

const AHEAD_TIMEOUT: Duration = Duration::from_millis(100);

/// The pause before a lost connection is made again, and the longest of those that follow.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

const LAST_PAUSE: Duration = Duration::from_secs(30);

/// Copies to another machine.
///
/// # Errors
/// [`Code::NoPeer`] when no bcmr answers there; then nothing was changed. Else as `copy`, [`Code::Protocol`] and
/// [`Code::Lost`].
pub fn put(request: PutRequest, watch: Watch<'_>) -> Result<Summary> {
    if !goes_first(request.when, request.purpose, &request.policy) {
        return put_all(request, watch);
    }
    let look = PutRequest {
        sources: request.sources.clone(),
        names: None,
        to: request.to.clone(),
        target: request.target,
        purpose: Purpose::DeleteFirst,
        when: DeleteWhen::After,
        manifest: None,
        dated: request.dated,
        state: request.state.clone(),
        way: request.way.clone(),
        policy: request.policy.clone(),
    };
    and_the_rest(
        watch,
        &request.policy.clone(),
        |watch| put_all(look, watch),
        |policy| put_all(PutRequest { policy, ..request }, watch),
    )
}

/// The same, without anything that goes before.
fn put_all(request: PutRequest, watch: Watch<'_>) -> Result<Summary> {
    let PutRequest { sources, names, to, target, purpose, when: _, manifest, dated, state, way, policy } =
        request;
    let policy = for_purpose(policy, purpose);
    let policy = if dated.is_some() { snapshot::everything(policy) } else { policy };
    let mounted = mounted(&sources, &to, state.as_deref(), &policy)?;
    // The list of what was verified is of what landed over there. What would be kept would be read once more for it.
    let verified = watch.progress.hashes.is_wanted()
        && policy.verify != Verify::Off
        && policy.collide == Collide::Replace
        && policy.resume == Resume::Off
        && !policy.dry_run;
    let tells_hashes = policy.hashes;
    let policy = CopyPolicy { hashes: policy.hashes || verified, ..policy };
    let mut target = target(to.path.clone());
    let mut names = match names {
        Some(list) if way.retries > 0 => RequestNames::kept(list),
        Some(list) => RequestNames::Once(list),
        None => RequestNames::None,
    };
    let manifest = manifest.as_deref();
    let once_more = Arc::default();
    let transfer =
        Transfer { purpose, manifest, tells_hashes, dated, way: &way, policy: &policy, watch, once_more };
    let mut snapshot = AskedSnapshot::of(dated);
    let done = and_once_more(&transfer.once_more, || {
        with_retries(&way, &as_repeated(&policy, purpose), watch, || {
            let once = transfer.put_once(&sources, &mut names, &to, &mut target, &mut snapshot);
            once.map_err(|e| snapshot.sorted(e))
        })
    });
    let summary = done.map(|summary| names.add_refused_to(summary))?;
    if summary.failed == 0
        && !(summary.cancelled || policy.dry_run)
        && let Some(Err(e)) = mounted.map(|mounted| mounted.remember(Holder::There(&to)))
    {
        watch.front.event(Event::Warning(e));
    }
    Ok(summary)
}

/// M1: how the one source is mounted, where the destination becomes what it is.
///
/// # Errors
/// Something is to be deleted, and it is not mounted as it was.
fn mounted(
    sources: &[PathBuf],
    to: &Address,
    state: Option<&Path>,
    policy: &CopyPolicy,
) -> Result<Option<Mounted>> {
    let ([source], Some(state), true) = (sources, state, policy.mirror.is_on()) else { return Ok(None) };
    // What cannot be opened is told when it is sent.
    let Ok(dir) = Dir::open(source) else { return Ok(None) };
    let mounted = Mounted::of(&dir, Holder::There(to), Some(state));
    if policy.mirror.deletes() {
        mounted.guard(&to.path)?;
    }
    Ok(Some(mounted))
}

/// Copies from another machine.
///
/// # Errors
/// As [`put`].
pub fn get(request: GetRequest, watch: Watch<'_>) -> Result<Summary> {
    if !goes_first(request.when, request.purpose, &request.policy) {
        return get_all(request, watch);
    }
    let look = GetRequest {
        from: request.from.clone(),
        names: None,
        target: request.target.clone(),
        purpose: Purpose::DeleteFirst,
        when: DeleteWhen::After,
        manifest: None,
        dated: request.dated,
        store: None,
        way: request.way.clone(),
        policy: request.policy.clone(),
    };
    and_the_rest(
        watch,
        &request.policy.clone(),
        |watch| get_all(look, watch),
        |policy| get_all(GetRequest { policy, ..request }, watch),
    )
}

/// The same, without anything that goes before.
fn get_all(request: GetRequest, watch: Watch<'_>) -> Result<Summary> {
    let GetRequest { from, names, target, purpose, when: _, manifest, dated, store, way, policy } = request;
    let policy = for_purpose(policy, purpose);
    // A source without a path is the home directory as a whole: what is in it is copied, as of `host:.`.
    let from: Vec<Address> = from.into_iter().map(whole_home).collect();
    if from.is_empty() {
        return Err(Error::ours(Code::Usage, Op::Copy, "", Reason::NoSource));
    }
    let mut names = names.map_or(RequestNames::None, RequestNames::kept);
    let count = if matches!(names, RequestNames::None) { from.len() } else { 1 };
    // V12: once for all attempts. What an earlier one was sent decides nothing about where the next one goes.
    let links = DestLink::received(&policy);
    let reach = Reach::Anywhere;
    let shown = |dated| snapshot::compared_with(&reach, links, target.path(), dated);
    let begin = |dated| SnapshotRun::begin(&reach, links, target.path(), dated, &policy);
    let run = dated.filter(|_| !policy.dry_run).map(begin).transpose()?;
    let (target, going) = match dated.filter(|_| policy.dry_run).map(shown).transpose()? {
        Some((shown, going)) => (Target::Exactly(shown), going),
        None => (target.clone(), None),
    };
    let policy = match &run {
        Some(run) => run.policy(policy),
        None if dated.is_some() => snapshot::everything(policy),
        None => policy,
    };
    let to = match &run {
        Some(run) => Resolved::at(run.place()?, &target, links),
        // What is above is made for what goes first, as for the rest.
        None => {
            let policy = as_repeated(&policy, purpose);
            let op = if purpose == Purpose::Copy { Op::Create } else { Op::Open };
            let to = Resolved::of(op, &reach, &target, count, links, &policy)?;
            keeping::resolved_first(&policy, &reach, to)?
        }
    };
    // Of a comparison nothing lands.
    let store = store.filter(|_| purpose == Purpose::Copy && !policy.dry_run);
    let mut to =
        GetTarget { path: target.path(), to, kinds: Arc::default(), store: store.map(FetchedBlocks), going };
    let (manifest, tells_hashes, once_more) = (manifest.as_deref(), policy.hashes, Arc::default());
    let transfer =
        Transfer { purpose, manifest, tells_hashes, dated, way: &way, policy: &policy, watch, once_more };
    let done = and_once_more(&transfer.once_more, || {
        with_retries(&way, &as_repeated(&policy, purpose), watch, || {
            transfer.get_once(&from, &mut names, &mut to)
        })
    });
    let mut summary = done.map(|summary| names.add_refused_to(summary))?;
    // Not before: a later attempt would go on in what has its name by then.
    if let Some(run) = run {
        let tally = Tally::new(watch);
        let finished = run.finish(&summary, policy.jobs, &tally);
        summary.add(finished.counted(&tally));
    }
    Ok(summary)
}

/// Connects, with the terminal lent to ssh meanwhile. `behind` goes behind the greeting.
pub(super) fn connect(
    (address, way): (&Address, &Way),
    load: LinkLoad,
    terms: Terms<'_>,
    behind: &[u8],
    watch: Watch<'_>,
) -> Result<Peer> {
    watch.front.lend_terminal(true);
    let peer = transport::connect(address, way, load, terms, behind, watch.cancel)?;
    watch.front.lend_terminal(false);
    Ok(peer)
}

/// How a client sends by what both sides can.
pub(super) fn how_agreed(way: &Way, features: Features) -> How {
    How {
        origin: machine_number(),
        fast: way.fast,
        compress: agreed_compress(way.compress, features),
        frames: features.has_wide(wide::FRAMES),
        dedup: way.dedup && !way.fast && features.has_cap(caps::DEDUP),
        delta: !way.fast && features.has_wide(wide::DELTA),
        packed: features.has_wide(wide::PACKED),
        parts: !way.fast && features.has_wide(wide::PARTS),
        repeats: !way.fast && features.has_wide(wide::REPEATS),
        names_left_out: features.has_wide(wide::LEFT_OUT),
        links: Links::Sent,
        compares: false,
        accounts: agreed_accounts(features),
        expects_new: false,
    }
}

/// A comparison is a copy that is not done; contents are compared by hashes.
pub(super) fn for_purpose(policy: CopyPolicy, purpose: Purpose) -> CopyPolicy {
    match purpose {
        // A list of hashes is of what landed.
        Purpose::Copy if policy.dry_run => {
            // No attribute decides what is copied, and reading them needs files opened that need not be.
            let preserve = Preserve { xattr: false, acl: false, ..policy.preserve };
            CopyPolicy { hashes: false, preserve, ..policy }
        }
        Purpose::Copy => policy,
        Purpose::Check { compare, .. } => {
            CopyPolicy { dry_run: true, hashes: compare == Compare::Hash, ..policy }
        }
        Purpose::DeleteFirst => {
            // Names decide.
            let preserve = Preserve { xattr: false, acl: false, ..policy.preserve };
            CopyPolicy { dry_run: true, hashes: false, preserve, ..policy }
        }
    }
}

/// M10: whether what only the destination has goes before anything is sent.
pub(super) fn goes_first(when: DeleteWhen, purpose: Purpose, policy: &CopyPolicy) -> bool {
    when == DeleteWhen::Before && purpose == Purpose::Copy && policy.mirror.deletes() && !policy.dry_run
}

/// Has what only the destination has deleted by `look`, of which nothing else is told, and then the rest done.
pub(super) fn and_the_rest(
    watch: Watch<'_>,
    policy: &CopyPolicy,
    look: impl FnOnce(Watch<'_>) -> Result<Summary>,
    rest: impl FnOnce(CopyPolicy) -> Result<Summary>,
) -> Result<Summary> {
    let progress = Progress::default();
    let first = look(Watch { progress: &progress, ..watch })?;
    if first.cancelled {
        return Ok(first);
    }
    let mut summary = rest(policy.clone().after_deleting(first.differences))?;
    summary.add(Summary { differences: 0, ..first });
    Ok(summary)
}

/// The policy as far as that says whether all of it may be done once more: a look that deletes tells nothing twice.
pub(super) fn as_repeated(policy: &CopyPolicy, purpose: Purpose) -> CopyPolicy {
    CopyPolicy { dry_run: policy.dry_run && purpose != Purpose::DeleteFirst, ..policy.clone() }
}

pub(super) fn whole_home(address: Address) -> Address {
    let path = if address.path.as_os_str().is_empty() { PathBuf::from(".") } else { address.path };
    Address { path, ..address }
}

/// Does it, and goes through it once more where a move did not remember all that has landed: what is there already is only
/// taken away at the source then.
pub(super) fn and_once_more(
    once_more: &AtomicBool,
    mut attempt: impl FnMut() -> Result<Summary>,
) -> Result<Summary> {
    let mut summary = attempt()?;
    if once_more.swap(false, Ordering::Relaxed) && summary.failed == 0 && !summary.cancelled {
        let Summary { failed, codes, cancelled, .. } = attempt()?;
        summary.add(Summary { failed, codes, cancelled, ..Summary::default() });
    }
    Ok(summary)
}

/// Does it again while the connection gets lost, as often as was asked for, each time after a longer pause.
pub(crate) fn with_retries(
    way: &Way,
    policy: &CopyPolicy,
    watch: Watch<'_>,
    mut once: impl FnMut() -> Result<Summary>,
) -> Result<Summary> {
    let mut pause = FIRST_PAUSE;
    // What was asked or shown once would be asked and shown again.
    let once_only = policy.collide == Collide::Ask || policy.dry_run;
    let mut left = if once_only { 0 } else { way.retries };
    loop {
        let lost = match once() {
            Err(e) if is_worth_another(&e) && left > 0 && !watch.cancel.is_set() => e,
            other => return other,
        };
        left -= 1;
        // The ssh that holds a shared connection may not know yet that it is lost.
        way.unshare();
        let seconds = pause.as_secs();
        watch.front.event(Event::Warning(lost));
        watch.front.event(Event::Note(Reason::ConnectingAgain.about(seconds).about(u64::from(left))));
        let until = Instant::now() + pause;
        while Instant::now() < until && !watch.cancel.is_set() {
            std::thread::sleep(Duration::from_millis(100));
        }
        pause = (pause * 2).min(LAST_PAUSE);
        // What is there already is met again, and counts again.
        watch.progress.items_done.store(0, Ordering::Relaxed);
        watch.progress.bytes_done.store(0, Ordering::Relaxed);
        watch.progress.bytes_there.store(0, Ordering::Relaxed);
    }
}

/// A connection that the same command may have the next time.
fn is_worth_another(e: &Error) -> bool {
    e.code.is_of_connection() && e.code.is_retryable()
}

/// Where a copy from another machine goes, for all its attempts.
struct GetTarget<'t> {
    /// The target as it was typed.
    path: &'t Path,
    to: Resolved,
    /// What kind each operand was said to be.
    kinds: Arc<Kinds>,
    /// Blocks that came before.
    store: Option<FetchedBlocks>,
    /// Snapshots that would go in the end.
    going: Option<Arc<GoingSnapshots>>,
}

/// What a target over there is told as.
pub(super) fn own_name_of(purpose: Purpose, to: &Address, path: &Path) -> PathBuf {
    match purpose {
        Purpose::Check { alike: true, .. } => PathBuf::new(),
        _ => shown_path(to, path),
    }
}

/// What is the same for every attempt of one transfer.
struct Transfer<'a> {
    purpose: Purpose,
    manifest: Option<&'a Path>,
    /// The caller wants to be told each hash.
    tells_hashes: bool,
    /// The target holds snapshots, and gets this one.
    dated: Option<Dated>,
    way: &'a Way,
    policy: &'a CopyPolicy,
    watch: Watch<'a>,
    /// A move is to be gone through once more.
    once_more: Arc<AtomicBool>,
}

impl Transfer<'_> {
    fn policy_out<'l>(&self, lists: &Lists<'l>) -> message::Policy<'l> {
        let way = self.way;
        policy_out(self.policy, lists, way.fast, way.dedup, way.compress, self.purpose)
    }

    fn put_once(
        &self,
        sources: &[PathBuf],
        names: &mut RequestNames,
        to: &Address,
        target: &mut Target,
        snapshot: &mut AskedSnapshot,
    ) -> Result<Summary> {
        let (policy, watch) = (self.policy, self.watch);
        let lists = Lists::of(policy)?;
        let how = self.policy_out(&lists);
        // Nothing is moved where nothing is copied.
        let found = if policy.dry_run {
            Ahead::default()
        } else {
            ahead(sources, policy.recursive, AHEAD_NAMES, AHEAD_TIMEOUT)
        };
        let much = found.more || found.bytes >= HEAVY_BYTES;
        let load = if much { LinkLoad::Heavy } else { LinkLoad::Light };
        // Where the one source goes: asked with the greeting, so that the answer takes no time of its own.
        let alone = matches!(names, RequestNames::None) && sources.len() == 1 && !policy.dry_run;
        let alone = alone && self.way.parallel.is_none() && self.manifest.is_none();
        let places =
            sources.first().filter(|_| alone).map_or_else(Vec::new, |one| places_of(to, target, one));
        let (behind, later) = split_by_greeting(&places, questions(&places)?);
        let asked = if later.is_empty() { places.len() } else { 0 };
        let required = guarantees(&how).or(beside::needed(policy, self.dated));
        let terms = Terms::new(offered(self.way, policy.alter.known_by), required);
        let mut peer = connect((to, self.way), load, terms, &behind, watch)?;
        let there = (0..asked).map(|_| await_kind(&peer, watch.cancel)).collect::<Result<Vec<_>>>()?;
        names.read(watch)?;
        if self.way.retries > 0
            && !policy.dry_run
            && let Some(made) = snapshot.is_made(&peer, target.path(), watch)?
        {
            return end(peer, Ok(made), watch);
        }
        open_further(&mut peer, to, self.way, found.large, watch)?;
        // None: the directory of a list of names is not copied itself.
        let operands = if matches!(names, RequestNames::None) { sources.len() as u64 } else { 0 };
        let kind = match target {
            Target::Guess(_) => message::Target::Guess,
            Target::Into(_) => message::Target::Into,
            Target::Exactly(_) => message::Target::Exactly,
        };
        let path = target.path().clone();
        // What this attempt makes of DST must not decide what DST means in the next one.
        if self.way.retries > 0
            && kind == message::Target::Guess
            && operands == 1
            && match there.first() {
                Some(there) => *there == There::Nothing,
                None => is_absent(&peer, &path, watch.cancel)?,
            }
        {
            *target = Target::Exactly(path.clone());
        }
        let path = path.as_os_str().as_bytes();
        let manifest = self.manifest.filter(|_| !policy.dry_run);
        let manifest = manifest.map(|file| Manifest::begin(file, None)).transpose()?;
        beside::tell(&peer, policy, self.dated)?;
        send(&peer, &Message::Put { policy: how, target: kind, path, operands, items: watch.items })?;
        let observer = ClientObserver {
            watch,
            prefix: prefix(to),
            own_name: own_name_of(self.purpose, to, &to.path),
            source_prefix: String::new(),
            manifest,
            tells_hashes: self.tells_hashes,
            unwritten: AtomicU64::new(0),
            compares: self.purpose != Purpose::Copy,
            untold: self.purpose == Purpose::DeleteFirst,
            compared: Mutex::default(),
            once_more: self.once_more.clone(),
        };
        let expects_new = will_be_new(kind, &there);
        let result = self.send(&peer, sources, names, &observer, expects_new);
        let result = observer.finish_manifest(result);
        end(peer, result, watch)
    }

    /// Sends sources, or the names of a list below the one source.
    fn send(
        &self,
        peer: &Peer,
        sources: &[PathBuf],
        names: &mut RequestNames,
        observer: &ClientObserver<'_>,
        expects_new: bool,
    ) -> Result<Summary> {
        let (way, policy, cancel) = (self.way, self.policy, self.watch.cancel);
        let features = peer.agreed.features;
        let how = How { compares: observer.compares, expects_new, ..how_agreed(way, features) };
        let open =
            |path: &Path| operands::source(&Reach::Anywhere, path, policy.follow, policy.preserve.at_source);
        let mut kept;
        let (reader, separator): (&mut (dyn BufRead + Send), u8) = match names {
            RequestNames::None => {
                let what = ToSend::Operands { paths: sources, open: &open };
                return send_all(peer, policy, how, observer, cancel, what).map(|c| summary_of(&c));
            }
            RequestNames::Once(list) => (&mut *list.reader, list.separator),
            RequestNames::Kept { names, .. } => {
                kept = Cursor::new(names.join(&0));
                (&mut kept, 0)
            }
        };
        let base = sources.first().map(PathBuf::as_path).unwrap_or(Path::new("."));
        let dir = Dir::open(base).map_err(|e| Error::os(Op::OpenDirectory, base, e))?;
        let dir = SourceDir::top(dir, Node::root(base), policy.preserve.at_source)?;
        let what = ToSend::Names { base, dir, reader, separator, extent: Extent::Some };
        send_all(peer, policy, how, observer, cancel, what).map(|counted| summary_of(&counted))
    }

    fn get_once(
        &self,
        from: &[Address],
        names: &mut RequestNames,
        to: &mut GetTarget<'_>,
    ) -> Result<Summary> {
        let (way, watch) = (self.way, self.watch);
        let address = from.first().ok_or_else(|| Error::ours(Code::Usage, Op::Copy, "", Reason::NoSource))?;
        let lists = Lists::of(self.policy)?;
        let mut how = self.policy_out(&lists);
        let survey = survey_of(&how).map(|survey| survey.of_snapshot(self.dated.is_some()));
        let alone = from.len() == 1 && matches!(names, RequestNames::None) && survey.is_none();
        if alone && to.to.is_absent(own_name(&address.path).as_ref()) {
            how.flags |= flags::TARGET_ABSENT;
        }
        // [policy.first] What is deleted here, and when, is nothing to a sender.
        how.flags &= !flags::DELETE_FIRST;
        let required = guarantees(&how).or(beside::needed_to_delete(self.policy));
        let asks = way.parallel.is_none() && matches!(names, RequestNames::None) && survey.is_none();
        let paths: Vec<&[u8]> = from.iter().map(|a| a.path.as_os_str().as_bytes()).collect();
        // What is worth a second connection is asked for once that is there.
        let most = bytes_over_one(way).filter(|_| matches!(names, RequestNames::None));
        let most = most.map(|most| if asks { most } else { u64::MAX });
        let get = || Message::Get { policy: how.clone(), paths: paths.clone(), names: None };
        let digits = most.map(|_| digits_of(&get())).transpose()?.flatten();
        let at_once = most.zip(digits.as_ref()).map(|(most, digits)| AtOnce { most, get: digits.as_bytes() });
        let questions = if asks { questions(from)? } else { Vec::new() };
        let (behind, later) = match at_once {
            Some(_) => (Vec::new(), questions),
            None => split_by_greeting(from, questions),
        };
        let offered = offered_by_receiver(way, self.policy.alter.known_by, to.store.is_some());
        let terms = Terms { offered, required: needed_of_sender(required), at_once };
        let mut peer = connect((address, way), LinkLoad::Heavy, terms, &behind, watch)?;
        let begun = peer.agreed.serves_at_once();
        let list = names.read(watch)?;
        let size = if asks && !begun {
            send_frames(&peer, later)?;
            await_sizes(&peer, from.len(), watch.cancel)?
        } else {
            0
        };
        open_further(&mut peer, address, way, size, watch)?;
        let names = list.map(|names| send_all_but_last(&peer, names)).transpose()?;
        // The target is there before anything is asked for.
        if list.is_some() && survey.is_none() {
            to.to.make()?;
        }
        let disk = Sys::held(self.policy.preserve.at_dest);
        let mut policy = self.policy.clone().resuming();
        let owners = OwnersHere::of(&mut policy.alter, agreed_accounts(peer.agreed.features));
        let reply = peer.streams.first().map(reply_on).ok_or_else(|| no_stream(address))?;
        let delta = !self.way.fast && peer.agreed.features.has_wide(wide::DELTA);
        let parts = !self.way.fast && peer.agreed.features.has_wide(wide::PARTS);
        let repeats = !self.way.fast && peer.agreed.features.has_wide(wide::REPEATS);
        let dedup = peer.agreed.features.has_wide(wide::STORES);
        let store = to.store.as_ref().filter(|_| dedup).and_then(|store| store.open(address, way, watch));
        let expected = self.expected(from, list, to, owners, peer.streams.len())?;
        let what = Incoming { delta, parts, repeats, dedup, ..expected };
        let tallies = survey.map(|survey| survey.tallies(watch));
        let get = Message::Get { policy: how, paths, names };
        let ask = |peer: &Peer| if begun { Ok(()) } else { send(peer, &get) };
        let transfer = IncomingTransfer { policy: &policy, what: Arc::new(what), reply: &reply };
        // A sender that takes away what has been received does so up to its last message.
        let leaves = self.policy.leaving == Leaving::Stays && peer.streams.len() == 1;
        let at = if leaves { ReceivingEnd::ClientLeaves } else { ReceivingEnd::Client };
        let (summary, broken) = match survey.zip(tallies.as_ref()) {
            Some((survey, tallies)) => {
                let is_nameless = matches!(self.purpose, Purpose::Check { alike: true, .. });
                let own_name = if is_nameless { Path::new("") } else { to.path };
                let visit = visitor(survey, (&policy, &transfer.what), to.path, own_name, tallies)?;
                let comparing = comparing(transfer, &tallies.looked, visit)?;
                ask(&peer)?;
                receive_all(comparing, &peer.streams, &reply, None, at)
            }
            None => {
                let here = LocalSide {
                    disk: &disk,
                    manifest: self.manifest,
                    store: store.as_ref(),
                    snapshot: None,
                    fetched: None,
                };
                let landing = landing(transfer, watch, here)?;
                ask(&peer)?;
                receive_all(landing, &peer.streams, &reply, None, at)
            }
        };
        let result = match broken {
            Some(e) if !watch.cancel.is_set() => Err(e),
            _ => Ok(summary),
        };
        end_as(if leaves { Peer::leave } else { Peer::finish }, peer, result, watch)
    }

    /// What the server is to send, and where it goes.
    fn expected(
        &self,
        from: &[Address],
        list: Option<&[Vec<u8>]>,
        to: &GetTarget<'_>,
        owners: OwnersHere,
        streams: usize,
    ) -> Result<Incoming> {
        let first = from.first().ok_or_else(|| Error::ours(Code::Usage, Op::Copy, "", Reason::NoSource))?;
        let filter = Filter::new(&self.policy.filter)?;
        Ok(Incoming {
            to: to.to.clone(),
            kinds: to.kinds.clone(),
            operands: if list.is_some() { 1 } else { from.len() as u64 },
            asked: match list {
                Some(names) => Asked::listed(&first.path, names, filter),
                None => Asked::operands(from.iter().map(|a| a.path.as_path()), filter)?,
            },
            source_prefix: prefix(first),
            origin: machine_number(),
            hashes: !self.way.fast,
            echo: true,
            streams,
            listed: list.is_some(),
            tree: None,
            reach: Reach::Anywhere,
            dedup: false,
            keeping: false,
            delta: false,
            parts: false,
            repeats: false,
            once_more: self.once_more.clone(),
            going: to.going.clone(),
            owners,
        })
    }
}

/// Ends the connection, and shows what ssh had to say.
pub(super) fn end(peer: Peer, result: Result<Summary>, watch: Watch<'_>) -> Result<Summary> {
    end_as(Peer::finish, peer, result, watch)
}

fn end_as(
    finish: impl FnOnce(Peer) -> Result<Vec<Note>>,
    peer: Peer,
    result: Result<Summary>,
    watch: Watch<'_>,
) -> Result<Summary> {
    let waits = &watch.progress.waits;
    waits.threads.store(peer.streams.len() as u64 * 2, Ordering::Relaxed);
    if let Some(pulse) = peer.streams.first().map(Stream::pulse) {
        waits.room_ns.fetch_add(pulse.waited_ns(For::Room), Ordering::Relaxed);
        waits.settled_ns.fetch_add(pulse.waited_ns(For::Settled), Ordering::Relaxed);
        waits.frames_ns.fetch_add(pulse.waited_ns(For::Frame), Ordering::Relaxed);
        waits.pieces_ns.fetch_add(pulse.waited_ns(For::Piece), Ordering::Relaxed);
    }
    let notes = peer.notes();
    let ended = if result.is_ok() {
        finish(peer)
    } else {
        peer.abort();
        Ok(Vec::new())
    };
    for note in notes.into_iter().chain(ended.iter().flatten().cloned()) {
        watch.front.event(Event::Note(note));
    }
    // The transfer is complete: a connection that ends badly after its last word changes nothing.
    result
}

/// A `Get` that can go with a greeting, in digits: before that is answered the peer is not known to be a bcmr, and whatever
/// reads it there, a shell perhaps, finds nothing to do in digits. `None` for one that is too long.
fn digits_of(get: &Message<'_>) -> Result<Option<String>> {
    let digits = HEXLOWER.encode(&transport::payload_of(&transport::frames_of(get)?));
    Ok((digits.len() <= limits::GET_DIGITS_MAX).then_some(digits))
}

/// Asks what is at each of these places over there.
fn questions(from: &[Address]) -> Result<Vec<u8>> {
    let mut frames = Vec::new();
    for address in from {
        let path = address.path.as_os_str().as_bytes();
        frames.append(&mut transport::frames_of(&Message::Stat { path, follow: true })?);
    }
    Ok(frames)
}

/// How much regular files among `operands`, asked for by [`questions`], hold; one that cannot be looked at counts
/// nothing, its copy will say why.
fn await_sizes(peer: &Peer, operands: usize, cancel: &Cancel) -> Result<u64> {
    let mut sum = 0u64;
    for _ in 0..operands {
        let frame = await_answer(peer, cancel)?;
        if let Message::Info(entry) = frame.message()?
            && entry.kind == message::Kind::File
        {
            sum = sum.saturating_add(entry.size);
        }
    }
    Ok(sum)
}

/// What is at a place over there, as far as that matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    Nothing,
    Directory,
    /// Or it cannot be known.
    Other,
}

fn await_kind(peer: &Peer, cancel: &Cancel) -> Result<There> {
    let frame = await_answer(peer, cancel)?;
    Ok(match frame.message()? {
        Message::Info(entry) if entry.kind == message::Kind::Dir => There::Directory,
        Message::Error(trouble) if error_of(&trouble).code == Code::NotFound => There::Nothing,
        _ => There::Other,
    })
}

/// The name that a source gets in a directory; none where what is in it goes there.
fn own_name(source: &Path) -> Option<NameBuf> {
    let bytes = source.as_os_str().as_bytes();
    let is_whole = bytes.ends_with(b"/.") || bytes.ends_with(b"/..") || bytes == b"." || bytes == b"..";
    if is_whole { None } else { last_name(source) }
}

/// Where one source may go over there: DST, and its own name in DST.
fn places_of(to: &Address, target: &Target, source: &Path) -> Vec<Address> {
    let own = own_name(source).filter(|_| !matches!(target, Target::Exactly(_)));
    let at = |path: PathBuf| Address { path, ..to.clone() };
    let inside = own.map(|name| at(target.path().join(OsStr::from_bytes(name.bytes()))));
    std::iter::once(at(target.path().clone())).chain(inside).collect()
}

/// Whether one source will become something new, by what was at [`places_of`] it.
fn will_be_new(target: message::Target, there: &[There]) -> bool {
    match (target, there) {
        (_, [There::Nothing, ..]) => true,
        (message::Target::Guess | message::Target::Into, [There::Directory, inside]) => {
            *inside == There::Nothing
        }
        _ => false,
    }
}
