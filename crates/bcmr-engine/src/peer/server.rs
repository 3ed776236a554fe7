//! `bcmr serve`: answers one client on a pair of pipes, with what its user may do or with what is below one directory.
//!
//! Must not print anything, and must not know who started it.

use super::beside::Beside;
use super::ending::{end_refused, unanswered};
use super::events::{NoObserver, ReportingFront};
use super::features::{OURS, agreed_accounts, agreed_compress};
use super::machine::machine_number;
use super::policy_wire::policy_in;
use super::questions::RemoteQuestions;
use super::receiving::{ReceivingEnd, receive_all, reply_on, summary_message};
use super::removing;
use super::sending::send_all;
use super::talk::answer;
use crate::disk::sys::Sys;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Cancel, Event, Front, Progress, Summary, Watch};
use crate::peer::asked::Asked;
use crate::peer::comparing::{SurveyKind, comparing_some, survey_of, visitor};
use crate::peer::from_wire::transfer::IncomingTransfer;
use crate::peer::incoming::Incoming;
use crate::peer::landing::{LocalSide, landing};
use crate::peer::owners_here::OwnersHere;
use crate::peer::reply::Reply;
use crate::policy::{
    Collide, CopyPolicy, Durability, FilterSpec, Follow, FollowDestination, RemoveRequest, Resume, Target,
    UndoRequest,
};
use crate::remote::{Compress, ServeRequest};
use crate::sender::announce::{Extent, ToSend};
use crate::sender::item;
use crate::sender::sending::{How, Links};
use crate::sender::walk::SourceDir;
use crate::store::Store;
use crate::transport::conn::{Packet, Timeouts};
use crate::transport::direct::{Keys, Listener};
use crate::transport::join::JoinListener;
use crate::transport::seal::{KeyLimits, Secret, Transcript};
use crate::transport::stream::{Inbox, Stream};
use crate::transport::{self, Peer};
use crate::trouble::TroubleBuf;
use crate::verbs::directory::directory;
use crate::verbs::going::GoingSnapshots;
use crate::verbs::keeping;
use crate::verbs::look::{self, Listing, Unreadable};
use crate::verbs::named_dirs::NamedDirs;
use crate::verbs::nameless::{NamelessTree, TreeNames};
use crate::verbs::operands::{self, DestLink, Place, Reach, Resolved, Source, Where};
use crate::verbs::snapshot::{self, SnapshotRun};
use crate::verbs::undo::undo_in;
use bcmr_wire::handshake::{Features, caps, wide};
use bcmr_wire::limits;
use bcmr_wire::message::{self, Message, TreeStep};
use bcmr_wire::policy::{flags, remove as remove_flags, undo as undo_flags};
use bcmr_wire::state::State;
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::meta::{Info, Kind};
use fastcopy::wall::{self, ConfineSpec};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long sealed streams are waited for: a little longer than a client tries.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(6);

/// How often the ssh connection is looked at while the first word is waited for on them.
const LOOK: Duration = Duration::from_millis(100);

/// What one server keeps while it runs.
struct Serving {
    request: ServeRequest,
    reach: Reach,
    /// Where further connections come in, once the client asked.
    door: Option<JoinListener>,
    /// What both sides can.
    ours: Features,
    /// The ssh connection while the data goes another way: its end is the end of everything.
    control_stream: Option<Stream>,
    /// Which machine this is.
    origin: u64,
    /// What the next `Get` is to begin with; or the directories that the next `Put` compares.
    list: Option<CollectedNames>,
    /// What the next `Put` has beside its target.
    beside: Option<Beside>,
    /// Into which tree of a plan it goes.
    into: Option<IntoTree>,
    /// Why there is no store of blocks, where there should be one.
    no_store: Option<String>,
}

/// Names that came before the request that they belong to, each with a 0 behind it.
#[derive(Default)]
struct CollectedNames {
    names: usize,
    bytes: Vec<u8>,
}

/// A tree of a plan that the next `Put` goes into.
#[derive(Clone, Copy)]
struct IntoTree {
    plan: [u8; 32],
    names: TreeNames,
}

/// A snapshot that a `Put` fills, or, where it only looks, those that would go after it.
type SnapshotOfPut = (Option<SnapshotRun>, Option<Arc<GoingSnapshots>>);

/// What a client wants to have sent.
struct Requested {
    paths: Vec<PathBuf>,
    /// Names below the one path, instead of all of it.
    list: Option<CollectedNames>,
    /// Which links the client asked to be followed.
    follow: Follow,
}

impl CollectedNames {
    fn and(mut self, names: &[&[u8]]) -> Result<CollectedNames> {
        self.add(names)?;
        Ok(self)
    }

    fn add(&mut self, names: &[&[u8]]) -> Result<()> {
        // [names.most]
        self.names = self.names.saturating_add(names.len());
        let more: usize = names.iter().map(|name| name.len() + 1).sum();
        if self.names > limits::NAMES_MAX || self.bytes.len().saturating_add(more) > limits::NAMES_BYTES_MAX {
            return Err(Error::ours(Code::Protocol, Op::Serve, "", Reason::TooManyNames));
        }
        self.bytes.reserve_exact(more);
        for name in names {
            self.bytes.extend_from_slice(name);
            self.bytes.push(0);
        }
        Ok(())
    }

    /// The directories of a round, which only a comparison of a list of names is. [put.round]
    fn round(&self, peer: &Peer, survey: Option<SurveyKind>, is_list_alone: bool) -> Result<NamedDirs> {
        let compares = matches!(survey, Some(SurveyKind::Check { .. })) && is_list_alone;
        if !compares || !peer.agreed.features.has_wide(wide::ROUNDS) {
            return Err(Error::ours(Code::Protocol, Op::Serve, "", Reason::NamesWithoutRequest));
        }
        Ok(NamedDirs::heard(self.bytes.split(|b| *b == 0).filter(|path| !path.is_empty())))
    }
}

/// Serves one peer on a pair of pipes until it goes.
///
/// With a root, this thread and those that it starts are shut into it for good, where the kernel can do that.
///
/// # Errors
/// The peer broke the protocol, or the root cannot be opened or not be shut.
pub fn serve(request: ServeRequest, input: OwnedFd, output: OwnedFd) -> Result<()> {
    let reach = match &request.root {
        Some(root) => {
            let dir = Dir::open(root).map_err(|e| Error::os(Op::OpenRoot, root.as_path(), e))?;
            // V11: every handle that is opened through this one opens nothing special and makes no device.
            Reach::Below(dir.confined())
        }
        None => Reach::Anywhere,
    };
    // Read while the file that says it can be.
    let origin = machine_number();
    let mut no_store = None;
    let request = match &reach {
        Reach::Below(root) => shut_in(request, root, &mut no_store)?,
        Reach::Anywhere => request,
    };
    let mut ours = OURS;
    if request.store.is_some() && !request.read_only {
        ours.caps |= caps::DEDUP;
    }
    // Whom this machine knows is nothing that is below the root, and a server that is shut in could not even ask.
    if reach.is_confined() {
        ours.wide &= !wide::NAMES;
    }
    if request.arrived_at.is_none() {
        ours.caps &= !(caps::DIRECT | caps::AEAD);
    }
    let begins = |get: &Message<'_>, most: u64| begins_at_once(&reach, &request.home, get, most);
    let answered = transport::answer(input, output, ours, &begins, &request.meeting, Timeouts::WIRE)?;
    let Some(mut peer) = answered else { return Ok(()) };
    let list = None;
    let mut serving = Serving {
        request,
        reach,
        door: None,
        ours,
        control_stream: None,
        origin,
        list,
        beside: None,
        into: None,
        no_store,
    };
    let served = serving.all(&mut peer);
    if let Err(e) = &served
        && let Some(stream) = peer.streams.first()
        && !stream.state().has_ended()
    {
        // The client is told why, if it still listens.
        let _told = answer(stream, &Message::Error(TroubleBuf::of(e).trouble())).is_ok();
    }
    if let Some(control_stream) = &serving.control_stream {
        control_stream.close();
    }
    let ended = peer.finish().map(drop);
    if let Some(control_stream) = serving.control_stream {
        // Whatever became of it: the client is done.
        let _ended = control_stream.finish().is_ok();
    }
    if let Some(door) = serving.door {
        door.close()?;
    }
    match served {
        // A client that is gone has nothing to be told.
        Err(e) if e.code == Code::Lost => Ok(()),
        Err(e) => Err(e),
        Ok(()) => match ended {
            Err(e) if e.code != Code::Lost => Err(e),
            _ => Ok(()),
        },
    }
}

/// Raises the second wall around what is served. Directories that are made later could not be reached.
fn shut_in(request: ServeRequest, root: &Dir, no_store: &mut Option<String>) -> Result<ServeRequest> {
    let ours = |dir: &Path| crate::store::settle_in(dir).is_ok();
    // Without a store everything works as well, and without a place to meet all goes over one connection.
    let store = request.store.filter(|(dir, ..)| {
        *no_store = crate::store::settle_in(dir).err().map(|e| e.to_string());
        no_store.is_none()
    });
    let me = request.me;
    let bases = request.meeting.iter().filter(|base| Dir::open(base).is_ok());
    let below = bases.map(|base| base.join(format!("bcmr-{me}")));
    let meeting: Vec<PathBuf> = below.filter(|dir| ours(dir)).collect();
    let request = ServeRequest { store, meeting, ..request };
    let store = request.store.as_ref().map(|(dir, ..)| dir.as_path());
    let grounds = ConfineSpec { root, read_only: request.read_only, store, meeting: &request.meeting };
    let shown = request.root.as_deref().unwrap_or(Path::new(""));
    // Where the kernel has no such wall, the first one stands alone.
    wall::raise(&grounds).map_err(|e| Error::os(Op::ConfineTo, shown, e))?;
    Ok(request)
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// A path as a client means it: relative to the home directory, or to the root.
fn path_in(reach: &Reach, home: &Path, bytes: &[u8]) -> PathBuf {
    let path = path_of(bytes);
    match reach.is_confined() {
        true if path.as_os_str().is_empty() => ".".into(),
        true => path,
        false => home.join(path),
    }
}

/// Whether a `Get` that came with the greeting is served at once: the regular files among its paths hold no more than
/// `most` bytes. What cannot be looked at counts nothing, its copy will say why.
fn begins_at_once(reach: &Reach, home: &Path, get: &Message<'_>, most: u64) -> bool {
    let Message::Get { paths, names: None, .. } = get else { return false };
    let bytes =
        paths.iter().fold(0u64, |sum, path| match look::stat_in(reach, &path_in(reach, home, path), true) {
            Ok((listing, _)) if listing.kind == Kind::File => sum.saturating_add(listing.size),
            _ => sum,
        });
    bytes <= most
}

impl Serving {
    fn all(&mut self, peer: &mut Peer) -> Result<()> {
        loop {
            let Some(first) = peer.streams.first() else { return Ok(()) };
            let Some(frame) = first.inbox.recv()? else { return Ok(()) };
            let message = frame.message()?;
            let done = match message {
                Message::Get { .. } if self.beside.is_some() || self.into.is_some() => {
                    Err(Error::ours(Code::Protocol, Op::Serve, "", Reason::KeepingUnasked))
                }
                Message::Put { .. } | Message::Get { .. } => {
                    self.join(peer);
                    let list = std::mem::take(&mut self.list);
                    let (beside, into) = (self.beside.take(), self.into.take());
                    self.transfer(peer, message, list, (beside, into))
                }
                Message::Keeping(keeping) => self.keep(peer, &keeping),
                Message::IntoTree { plan, all } => self.next_tree(peer, plan, all),
                Message::Names { names } => self.list.get_or_insert_default().add(&names),
                Message::Direct { count } => {
                    drop(frame);
                    self.direct(peer, count)
                }
                other => self.answer(peer, &other),
            };
            match done {
                Ok(()) if peer.streams.first().is_some_and(|first| first.state().has_ended()) => {
                    return Err(unanswered(&peer.streams));
                }
                Ok(()) => {}
                Err(e) if matches!(e.code, Code::Protocol | Code::Lost) => return Err(e),
                Err(e) => {
                    let Some(first) = peer.streams.first() else { return Ok(()) };
                    answer(first, &Message::Error(TroubleBuf::of(&e).trouble()))?;
                    // A transfer that was refused ends as any other: with the client's last message on every stream.
                    if first.state().has_ended() {
                        end_refused(&peer.streams)?;
                    }
                }
            }
        }
    }

    /// What the next `Put` has beside its target.
    fn keep(&mut self, peer: &Peer, keeping: &message::Keeping<'_>) -> Result<()> {
        if self.beside.is_some() || !peer.agreed.features.has_wide(wide::KEEPING) {
            return Err(Error::ours(Code::Protocol, Op::Serve, "", Reason::KeepingUnasked));
        }
        self.beside = Some(Beside::of(keeping, &|bytes| self.path(bytes)));
        Ok(())
    }

    /// The next `Put` goes into the tree of a plan.
    fn next_tree(&mut self, peer: &Peer, plan: [u8; 32], all: bool) -> Result<()> {
        if self.into.is_some() || !peer.agreed.features.has_wide(wide::PLANS) {
            return Err(Error::ours(Code::Protocol, Op::Serve, "", Reason::TreeUnasked));
        }
        let names = if all { TreeNames::All } else { TreeNames::Some };
        self.into = Some(IntoTree { plan, names });
        Ok(())
    }

    /// Where a `Put` goes: what is made for a list of names is there then.
    fn place_of_put(
        &self,
        (snapshot, into): (Option<&SnapshotRun>, Option<IntoTree>),
        policy: &mut CopyPolicy,
        target: &Target,
        links: DestLink,
        (operands, is_survey): (u64, bool),
    ) -> Result<Resolved> {
        let listed = operands == 0;
        let count = usize::try_from(operands.max(1)).unwrap_or(usize::MAX);
        let mut to = match (snapshot, into) {
            (Some(run), _) => Resolved::at(run.place()?, target, links),
            (None, Some(into)) => {
                let tree = self.tree_of_put(into, policy, target, (listed, is_survey))?;
                Resolved::at(Where::Whole(tree), target, links)
            }
            (None, None) => {
                let op = if is_survey { Op::Open } else { Op::Create };
                let to = Resolved::of(op, &self.reach, target, count, links, policy)?;
                keeping::resolved_first(policy, &self.reach, to)?
            }
        };
        if listed && !is_survey {
            to.make()?;
        }
        Ok(to)
    }

    /// The tree that a `Put` goes into, and what of its policy follows from that.
    fn tree_of_put(
        &self,
        into: IntoTree,
        policy: &mut CopyPolicy,
        target: &Target,
        (listed, is_survey): (bool, bool),
    ) -> Result<Arc<Place>> {
        let (Target::Exactly(path), true, false) = (target, listed, is_survey) else {
            return Err(Error::ours(Code::Protocol, Op::Serve, "", Reason::TreeUnasked));
        };
        // R2: what is put into the tree is synced as a whole.
        (policy.durability, policy.resume) = (Durability::Cache, Resume::Off);
        let tree = NamelessTree::of(&self.reach, path, &into.plan)?;
        Ok(operands::place(tree.open()?, &tree.path()))
    }

    /// What is done with the tree of a plan.
    fn tree(&self, path: &[u8], plan: &[u8; 32], step: &TreeStep<'_>) -> Result<(NameBuf, Info)> {
        self.writable(path)?;
        let tree = NamelessTree::of(&self.reach, &self.path(path), plan)?;
        let info = match step {
            TreeStep::Make => tree.make()?,
            TreeStep::Find => tree.find()?,
            TreeStep::Publish { ino } => tree.publish(*ino)?,
            TreeStep::Link(links) => {
                let top = tree.open()?;
                links.iter().try_for_each(|(first, name)| tree.link(&top, first, name))?;
                tree.find()?
            }
        };
        Ok((tree.name, info))
    }

    fn path(&self, bytes: &[u8]) -> PathBuf {
        path_in(&self.reach, &self.request.home, bytes)
    }

    /// The paths in an error as the client knows them.
    fn answer(&mut self, peer: &mut Peer, message: &Message<'_>) -> Result<()> {
        let partial = peer.agreed.features.has_wide(wide::PARTIAL);
        let Some(stream) = peer.streams.first() else { return Ok(()) };
        // What takes long ends with the client.
        let go_on = || !stream.inbox.has_ended();
        match message {
            Message::Stat { path, follow } => {
                let (listing, (dev, ino)) = look::stat_in(&self.reach, &self.path(path), *follow)?;
                let name = NameBuf::new(&listing.name).map_or(&b"-"[..], |_| &listing.name);
                answer(stream, &Message::Info(message::Entry { dev, ino, ..entry(name, &listing) }))
            }
            Message::List { path } => {
                let mut page: Vec<Listing> = Vec::new();
                let mut bytes = 0;
                let mut failed = None;
                let flush = |page: &mut Vec<Listing>| {
                    let entries = page.iter().map(|l| entry(&l.name, l)).collect();
                    let sent = answer(stream, &Message::Page { entries });
                    page.clear();
                    sent
                };
                look::list_in(&self.reach, &self.path(path), &mut |listing| {
                    // An entry is its name and some numbers of ten bytes at most.
                    bytes += listing.name.len() + listing.link.len() + 160;
                    page.push(listing);
                    if bytes > limits::PAGE_BYTES / 2 {
                        bytes = 0;
                        failed = flush(&mut page).err();
                    }
                    failed.is_none() && go_on()
                })?;
                if let Some(e) = failed {
                    return Err(e);
                }
                flush(&mut page)?;
                answer(stream, &Message::Done)
            }
            Message::Hash { path } => {
                let hash = look::hash_in(&self.reach, &self.path(path), &go_on)?;
                answer(stream, &Message::Ok { hash: Some(hash) })
            }
            Message::Usage { path, numbers } => {
                let mut filter = FilterSpec::everything();
                // [policy.strict]
                if !filter.set_numbers(numbers) {
                    return Err(Error::ours(Code::Protocol, Op::ReadPolicy, "", Reason::NumberUnknown));
                }
                let mut unreadable = if partial { Unreadable::Kept(Vec::new()) } else { Unreadable::Ends };
                let u = look::usage_in(&self.reach, &self.path(path), &filter, &mut unreadable, &go_on)?;
                let (files, dirs, bytes, allocated) = (u.files, u.dirs, u.bytes, u.allocated);
                let unreadable: Vec<_> = unreadable.kept().iter().map(TroubleBuf::of).collect();
                let unreadable = unreadable.iter().map(TroubleBuf::trouble).collect();
                answer(stream, &Message::Used { files, dirs, bytes, allocated, unreadable })
            }
            Message::Mkdir { path, mode } => {
                self.writable(path)?;
                directory(&self.reach, &self.path(path), *mode)?;
                answer(stream, &Message::Ok { hash: None })
            }
            Message::Tree { path, plan, step } if peer.agreed.features.has_wide(wide::PLANS) => {
                let (name, info) = self.tree(path, plan, step)?;
                answer(stream, &Message::Info(item::entry(name.bytes(), &info, info.size, b"", &[])))
            }
            Message::Remove { path, flags } => {
                self.writable(path)?;
                let (summary, failed) = self.removed(path, *flags, &go_on)?;
                let failed: Vec<_> = failed.iter().map(TroubleBuf::of).collect();
                let unreadable = failed.iter().map(TroubleBuf::trouble).collect();
                let files = summary.files + summary.others;
                let (dirs, bytes, allocated) = (summary.dirs, 0, 0);
                answer(stream, &Message::Used { files, dirs, bytes, allocated, unreadable })
            }
            Message::Undo { path, flags } => self.undo(peer, path, *flags),
            Message::Streams { count } => {
                let further = (peer.streams.len(), *count);
                let door = JoinListener::open(&self.request.meeting, further, &peer.name, Timeouts::WIRE)?;
                let path = door.path().as_os_str().as_bytes().to_vec();
                let token = Message::Token { secret: *door.secret(), path: &path };
                let answered = answer(stream, &token);
                self.door = Some(door);
                answered
            }
            _ => Err(Error::ours(Code::Protocol, Op::Serve, "", Reason::NoRequest)),
        }
    }

    fn writable(&self, path: &[u8]) -> Result<()> {
        if self.request.read_only {
            let note = Reason::ServerOnlyReads;
            return Err(Error::ours(Code::Refused, Op::Change, path_of(path), note));
        }
        Ok(())
    }

    /// Removes what a client names. Below a root it does not: what is typed for the remover is resolved by itself.
    fn removed(
        &self,
        path: &[u8],
        flags: u8,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Summary, Vec<Error>)> {
        if self.reach.is_confined() {
            return Err(Error::ours(Code::Refused, Op::Remove, path_of(path), Reason::ServerRemovesNothing));
        }
        let has = |one: u8| flags & one != 0;
        let request = RemoveRequest {
            paths: vec![self.path(path)],
            recursive: has(remove_flags::RECURSIVE),
            empty_dirs: has(remove_flags::EMPTY_DIRS),
            force: has(remove_flags::FORCE),
            ask: false,
            one_file_system: !has(remove_flags::CROSS_FILE_SYSTEMS),
            dry_run: false,
            jobs: self.request.jobs,
        };
        removing::remove_while(request, go_on)
    }

    /// Undoes what a receipt says, and tells what comes of it.
    fn undo(&self, peer: &Peer, path: &[u8], flags: u8) -> Result<()> {
        let Some(stream) = peer.streams.first() else { return Ok(()) };
        let go_on = || !stream.inbox.has_ended();
        let dry_run = flags & undo_flags::DRY_RUN != 0;
        if !dry_run {
            self.writable(path)?;
        }
        let request = UndoRequest { receipt: self.path(path), dry_run };
        with_reports(peer, flags & undo_flags::ITEMS != 0, |watch, reply, _| {
            let undone = || undo_in(&self.reach, &request, watch);
            let summary = removing::while_there(&go_on, watch.cancel, undone)?;
            let (deleted, updated) = (summary.deleted, summary.updated);
            reply.answer(&Message::Gone { deleted, updated })?;
            reply.answer(&summary_message(&summary))?;
            Ok(None)
        })
    }

    /// The streams that have joined; the client asks for a transfer only when all are there that will be.
    fn join(&mut self, peer: &mut Peer) {
        let Some(door) = &self.door else { return };
        let mut joined: Vec<_> = std::iter::from_fn(|| door.next(Duration::ZERO)).collect();
        joined.sort_by_key(|one| one.index);
        peer.streams.extend(joined.into_iter().map(|one| one.stream));
    }

    fn transfer(
        &self,
        peer: &Peer,
        message: Message<'_>,
        list: Option<CollectedNames>,
        (beside, into): (Option<Beside>, Option<IntoTree>),
    ) -> Result<()> {
        let request = &self.request;
        match message {
            Message::Get { names: None, .. } if list.is_some() => {
                Err(Error::ours(Code::Protocol, Op::Serve, "", Reason::NamesWithoutRequest))
            }
            Message::Put { policy, target, path, operands, items } => {
                let is_dated = beside.as_ref().is_some_and(|beside| beside.dated.is_some());
                let survey = survey_of(&policy).map(|survey| survey.of_snapshot(is_dated));
                let is_alone = beside.is_none() && into.is_none();
                let round =
                    list.map(|list| list.round(peer, survey, operands == 0 && is_alone)).transpose()?;
                let deletes = survey.is_some_and(SurveyKind::deletes);
                if survey.is_none() || deletes {
                    self.writable(path)?;
                }
                let hashes = !policy.has(flags::FAST);
                let agreed = peer.agreed.features.has_cap(caps::DEDUP);
                let wants_dedup = policy.has(flags::DEDUP) && hashes;
                let dedup = wants_dedup && agreed;
                let (policy, _) = policy_in(&policy, request.jobs, request.me, request.umask)?;
                let mut policy = policy.resuming();
                let owners = OwnersHere::of(&mut policy.alter, agreed_accounts(peer.agreed.features));
                let target = target_of(target, self.path(path));
                // Through a link only where it may lead anywhere: a confined receiver does not even say whether it leads somewhere.
                // Nor in a move, which gives a name and touches nothing that another one leads to.
                let is_itself = self.reach.is_confined() || policy.leaving.goes();
                let links = if is_itself { DestLink::Itself } else { DestLink::Through };
                if self.reach.is_confined() && policy.follow_destination == FollowDestination::Always {
                    let note = Reason::ServerFollowsNoLink;
                    return Err(Error::ours(Code::Unsupported, Op::CopyTo, target.path(), note));
                }
                let (mut policy, target, (snapshot, going)) =
                    self.beside(beside, (policy, target), operands, links, survey.is_some())?;
                if deletes {
                    // What is above is there, as for the rest.
                    let makes = CopyPolicy { dry_run: false, ..policy.clone() };
                    operands::make_path(&self.reach, &target, 1, &makes)?;
                }
                let at = (snapshot.as_ref(), into);
                let to = self.place_of_put(at, &mut policy, &target, links, (operands, survey.is_some()))?;
                let what = Incoming {
                    to,
                    kinds: Arc::default(),
                    operands: operands.max(1),
                    asked: Asked::anything(),
                    source_prefix: String::new(),
                    origin: self.origin,
                    hashes,
                    echo: false,
                    streams: peer.streams.len(),
                    listed: operands == 0,
                    tree: round.as_ref().map(|_| TreeNames::Round).or(into.map(|into| into.names)),
                    reach: self.again()?,
                    dedup,
                    keeping: peer.agreed.features.has_wide(wide::KEEPING),
                    delta: peer.agreed.features.has_wide(wide::DELTA),
                    parts: peer.agreed.features.has_wide(wide::PARTS),
                    repeats: peer.agreed.features.has_wide(wide::REPEATS),
                    once_more: Arc::default(),
                    going,
                    owners,
                };
                if let Some(survey) = survey {
                    return self.survey(peer, &policy, (what, round), (survey, target.path()), items);
                }
                let store = if wants_dedup { self.store(dedup) } else { Ok(None) };
                self.put(peer, &policy, what, items, (store, snapshot))
            }
            Message::Get { policy, paths, names } => {
                let fast = policy.has(flags::FAST);
                let compares = policy.has(flags::COMPARE);
                let expects_new = policy.has(flags::TARGET_ABSENT) && !policy.has(flags::DRY_RUN);
                let (policy, compress) = policy_in(&policy, request.jobs, request.me, request.umask)?;
                // Where a link leads is not told, so behind --root none is followed: one that was to be is refused.
                let asked = policy.follow;
                let follow = if self.reach.is_confined() { Follow::Never } else { asked };
                let links =
                    if follow != asked && asked == Follow::Always { Links::Refused } else { Links::Sent };
                let policy = CopyPolicy { follow, ..policy };
                let compress = agreed_compress(compress, peer.agreed.features);
                let sent = (fast, compress, links, compares, expects_new);
                let how = self.how(peer.agreed.features, sent);
                if policy.leaving.goes() {
                    paths.iter().try_for_each(|path| self.writable(path))?;
                }
                let paths: Vec<PathBuf> = paths.iter().map(|p| self.path(p)).collect();
                let list = names.map(|names| list.unwrap_or_default().and(&names)).transpose()?;
                self.get(peer, &policy, how, Requested { paths, list, follow: asked })
            }
            _ => Err(Error::ours(Code::Protocol, Op::Serve, "", Reason::NoTransfer)),
        }
    }

    /// How something is sent to a client: without hashes, packed, what of links, compared, to a new name.
    fn how(
        &self,
        agreed: Features,
        (fast, compress, links, compares, expects_new): (bool, Compress, Links, bool, bool),
    ) -> How {
        How {
            origin: self.origin,
            fast,
            compress,
            frames: agreed.has_wide(wide::FRAMES),
            dedup: !fast && agreed.has_wide(wide::STORES),
            delta: !fast && agreed.has_wide(wide::DELTA),
            packed: agreed.has_wide(wide::PACKED),
            parts: !fast && agreed.has_wide(wide::PARTS),
            repeats: !fast && agreed.has_wide(wide::REPEATS),
            names_left_out: agreed.has_wide(wide::LEFT_OUT),
            links,
            compares,
            accounts: agreed_accounts(agreed),
            expects_new,
        }
    }

    /// What a `Put` becomes by what was said before it. With a snapshot its target is a directory that holds some, in which this
    /// side alone names anything.
    fn beside(
        &self,
        beside: Option<Beside>,
        (policy, target): (CopyPolicy, Target),
        operands: u64,
        links: DestLink,
        is_survey: bool,
    ) -> Result<(CopyPolicy, Target, SnapshotOfPut)> {
        let Some(beside) = beside else { return Ok((policy, target, (None, None))) };
        let (Target::Exactly(path), 1, true) = (&target, operands, policy.mirror.is_on()) else {
            return Err(Error::ours(Code::Protocol, Op::Serve, "", Reason::KeepingUnasked));
        };
        let dated = beside.dated;
        let trash = self.request.trash.clone().filter(|_| !self.reach.is_confined());
        let policy = beside.policy(policy, trash)?;
        let Some(dated) = dated else { return Ok((policy, target, (None, None))) };
        if is_survey {
            let (shown, going) = snapshot::compared_with(&self.reach, links, path, dated)?;
            return Ok((policy, Target::Exactly(shown), (None, going)));
        }
        let run = SnapshotRun::begin(&self.reach, links, path, dated, &policy)?;
        Ok((run.policy(policy), target, (Some(run), None)))
    }

    /// Listens for sealed streams, which take the place of those over ssh. When they do not come, all goes on as before.
    fn direct(&mut self, peer: &mut Peer, count: u64) -> Result<()> {
        let Some(stream) = peer.streams.first() else { return Ok(()) };
        let refused = |note: Reason| Error::ours(Code::Unsupported, Op::Listen, "", note);
        let address = self.request.arrived_at.ok_or_else(|| refused(Reason::NotOverSsh))?;
        if !self.ours.has_cap(caps::DIRECT | caps::AEAD) || !peer.agreed.features.has_cap(caps::DIRECT) {
            return Err(refused(Reason::NotAgreedOn));
        }
        let told = |e| Error::os(Op::Listen, "", e);
        let count = u8::try_from(count).map_err(|_| refused(Reason::TooManyStreams))?;
        // Keys must not end in a core dump.
        fastcopy::process::never_dump().map_err(told)?;
        let listener = Listener::bind(address, count).map_err(told)?;
        let secret = Secret::random().map_err(told)?;
        let (ip, port) = (listener.address().ip().to_string(), listener.address().port());
        let rendezvous = Message::Rendezvous { address: ip.as_bytes(), port, secret: *secret.expose() };
        let frame = transport::frames_of(&rendezvous)?;
        let payload = frame.get(limits::HEADER_BYTES..).unwrap_or_default();
        let transcript = Transcript::of(&peer.agreed.hello, &peer.agreed.welcome, payload);
        let keys = Keys { secret, transcript, limits: KeyLimits::WIRE };
        stream.out.send(Packet::Frames(frame)).map_err(Error::from)?;
        let proved = match listener.accept(&keys, ACCEPT_TIMEOUT, &|| stream.inbox.has_input()) {
            Ok(proved) => proved,
            // The client has given up too, and asks over ssh; or it is gone.
            Err(_) => return Ok(()),
        };
        let mut streams = Vec::new();
        for one in proved {
            let stream = one.stream(peer.name.clone(), Timeouts::WIRE, State::ServerIdle);
            streams.push(stream.map_err(told)?);
        }
        if let Some(first) = streams.first()
            && !client_moved_to(&first.inbox, &stream.inbox)
        {
            return Ok(());
        }
        let control_stream = peer.streams.swap_remove(0);
        control_stream.settle(State::Quiet);
        self.control_stream = Some(control_stream);
        peer.streams = streams;
        Ok(())
    }

    /// The store of blocks, for one transfer; or why there is none, which costs time only.
    fn store(&self, agreed: bool) -> std::result::Result<Option<Store>, String> {
        if let Some(why) = &self.no_store {
            return Err(why.clone());
        }
        let Some((dir, cap_bytes, keep_bytes)) = self.request.store.as_ref().filter(|_| agreed) else {
            return Ok(None);
        };
        let root = match &self.reach {
            Reach::Below(root) => root.try_clone(),
            Reach::Anywhere => Dir::open(Path::new("/")),
        };
        let scope = self.request.root.as_ref().map_or(&b""[..], |r| r.as_os_str().as_bytes());
        let opened = root.and_then(|root| Store::open(dir, *cap_bytes, *keep_bytes, scope, root));
        opened.map(Some).map_err(|e| e.to_string())
    }

    fn again(&self) -> Result<Reach> {
        match &self.reach {
            Reach::Anywhere => Ok(Reach::Anywhere),
            Reach::Below(root) => {
                root.try_clone().map(Reach::Below).map_err(|e| Error::os(Op::OpenRoot, "", e))
            }
        }
    }

    /// Says what a copy to here would do, or would change; or deletes what only this side has before one.
    fn survey(
        &self,
        peer: &Peer,
        policy: &CopyPolicy,
        (what, round): (Incoming, Option<NamedDirs>),
        (survey, root): (SurveyKind, &Path),
        items: bool,
    ) -> Result<()> {
        with_reports(peer, items, |watch, reply, questions| {
            let tallies = survey.tallies(watch);
            // What the target itself is called, the client knows better.
            let visit = visitor(survey, (policy, &what), root, Path::new(""), &tallies)?;
            let transfer = IncomingTransfer { policy, what: Arc::new(what), reply };
            let comparing = comparing_some(transfer, &tallies.looked, visit, round)?;
            let compares = matches!(survey, SurveyKind::Check { .. });
            let tells_how = compares && peer.agreed.features.has_wide(wide::COMPARED);
            let comparing = comparing.telling(tells_how);
            let questions = (policy.collide == Collide::Ask).then_some(questions);
            Ok(receive_all(comparing, &peer.streams, reply, questions, ReceivingEnd::Server).1)
        })
    }

    fn put(
        &self,
        peer: &Peer,
        policy: &CopyPolicy,
        what: Incoming,
        items: bool,
        (store, snapshot): (std::result::Result<Option<Store>, String>, Option<SnapshotRun>),
    ) -> Result<()> {
        with_reports(peer, items, |watch, reply, questions| {
            let disk = Sys::held(policy.preserve.at_dest);
            let store = store.unwrap_or_else(|why| {
                let note = Reason::StoreUnusable.about(why.to_string());
                watch.front.event(Event::Note(note));
                None
            });
            let transfer = IncomingTransfer { policy, what: Arc::new(what), reply };
            let here =
                LocalSide { disk: &disk, manifest: None, store: store.as_ref(), snapshot, fetched: None };
            let landing = landing(transfer, watch, here)?;
            if policy.hashes
                && let Ok(base) = landing.base()
            {
                // A client that is gone is noticed by the reader.
                let at = base.as_os_str().as_bytes();
                let _told = reply.send(&Message::Report(message::Event::Base(at))).is_ok();
            }
            let questions = (policy.collide == Collide::Ask).then_some(questions);
            Ok(receive_all(landing, &peer.streams, reply, questions, ReceivingEnd::Server).1)
        })
    }

    fn get(&self, peer: &Peer, policy: &CopyPolicy, how: How, wanted: Requested) -> Result<()> {
        let cancel = Cancel::new();
        let open = |path: &Path| {
            let source = operands::source(&self.reach, path, policy.follow, policy.preserve.at_source)?;
            match &source {
                Source::Named { info, .. } if info.kind == Kind::Link && wanted.follow != policy.follow => {
                    Err(Error::ours(Code::Refused, Op::Follow, path, Links::NOTE))
                }
                _ => Ok(source),
            }
        };
        let sent = match wanted.list {
            None => {
                let what = ToSend::Operands { paths: &wanted.paths, open: &open };
                send_all(peer, policy, how, &NoObserver, &cancel, what)
            }
            Some(list) => {
                let [base] = wanted.paths.as_slice() else {
                    return Err(Error::ours(Code::Protocol, Op::Serve, "", Reason::ListNeedsOneDirectory));
                };
                let dir: Arc<SourceDir> = SourceDir::top(
                    self.reach.open(base)?,
                    crate::node::Node::root(base),
                    policy.preserve.at_source,
                )?;
                let mut reader = std::io::Cursor::new(list.bytes);
                let what =
                    ToSend::Names { base, dir, reader: &mut reader, separator: 0, extent: Extent::Some };
                send_all(peer, policy, how, &NoObserver, &cancel, what)
            }
        };
        sent.map(drop).map_err(ended_by)
    }
}

/// How a client means the target's path.
fn target_of(target: message::Target, path: PathBuf) -> Target {
    match target {
        message::Target::Guess => Target::Guess(path),
        message::Target::Into => Target::Into(path),
        message::Target::Exactly => Target::Exactly(path),
    }
}

/// Whether the client goes on over the sealed stream, and not over ssh: where our proof was lost on the way it has not
/// seen what we have. A stream that has ended says nothing about that, for a client that dials again closes it first;
/// one with corrupt input was used.
fn client_moved_to(sealed: &Inbox, ssh: &Inbox) -> bool {
    let mut ended = None;
    while !sealed.waits(LOOK) && !sealed.is_corrupt() {
        if ssh.has_input() {
            return false;
        }
        let since = sealed.has_input().then(|| *ended.get_or_insert_with(Instant::now));
        if since.is_some_and(|since| since.elapsed() > ACCEPT_TIMEOUT) {
            break;
        }
    }
    true
}

/// Takes what the client sends, and tells the client what comes of it and asks its user. `take` says what broke the
/// connection, if something did: the client has been told then, and nothing more is to be said.
pub(super) fn with_reports(
    peer: &Peer,
    items: bool,
    take: impl FnOnce(Watch<'_>, &Reply, &RemoteQuestions) -> Result<Option<Error>>,
) -> Result<()> {
    let Some(stream) = peer.streams.first() else { return Ok(()) };
    let reply = reply_on(stream);
    let questions = RemoteQuestions::default();
    let newer = peer.agreed.features.has_wide(wide::COMPARED);
    let front = ReportingFront { reply: &reply, questions: &questions, newer };
    let (progress, cancel) = (Progress::default(), Cancel::new());
    let watch = Watch { front: &front as &dyn Front, progress: &progress, cancel: &cancel, items };
    match take(watch, &reply, &questions)? {
        Some(e) => Err(ended_by(e)),
        None => Ok(()),
    }
}

/// A transfer that failed is the end of the connection; one that broke the protocol is an error of this program too.
fn ended_by(e: Error) -> Error {
    if e.code == Code::Protocol { e } else { Error { code: Code::Lost, ..e } }
}

/// A listing as it travels.
fn entry<'a>(name: &'a [u8], l: &'a Listing) -> message::Entry<'a> {
    let info = Info {
        kind: l.kind,
        mode: l.mode,
        uid: l.uid,
        gid: l.gid,
        dev: 0,
        ino: 0,
        nlink: 1,
        size: l.size,
        blocks: 0,
        rdev: 0,
        atime: l.mtime,
        mtime: l.mtime,
        ctime: l.mtime,
    };
    item::entry(name, &info, l.size, &l.link, &[])
}
