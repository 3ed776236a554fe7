//! The receiving half of a transfer over the wire: takes what comes off the streams to the desk.
//!
//! The same code in `bcmr serve` (PUT) and in the client (GET); `docs/protocol.md`, section 5, rules. Must not know how
//! bytes travel: frames are handed in, answers go out through [`Reply`].
//!
//! Bounds: the sender keeps to the windows of the protocol and is cut off when it does not; a batch holds the names
//! and attributes of its entries, a large file what [`arriving`] lets wait.
//!
//! [`arriving`]: crate::receiver::arriving

use crate::blocks::{BLOCK_BYTES, DEDUP_BYTES_MIN, blocks_of};
use crate::codec::Unpacker;
use crate::disk::sys::{Hand, Sys};
use crate::disk::{Attributes, Body, Dirs, Fault, Job};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Event, Watch};
use crate::node::Node;
use crate::policy::{CopyPolicy, Follow, Target};
use crate::pulse::{For, Pulse};
use crate::receiver::arriving::{Arriving, Ask, AtHand, End, Line, Load};
use crate::receiver::choose::{Candidate, Offered, Way};
use crate::receiver::claims::{Claimed, Claims, Spot};
use crate::receiver::dest::DestDir;
use crate::receiver::devices::Devices;
use crate::receiver::dir_task::{Origin, PairedDirs, Slot};
use crate::receiver::directories::{Marks, SlotHold};
use crate::receiver::land::ensure_dir;
use crate::receiver::lander::{Beside, Decision, Lander};
use crate::receiver::links::{Claim, LinkTable};
use crate::receiver::plan::Proof;
use crate::store::{Block, Pinned, Store, Taken};
use crate::tally::Tally;
use crate::trouble::error_of;
pub(crate) use crate::verbs::incoming::{What, kind_of, refused};
use crate::verbs::manifest::Manifest;
use crate::verbs::named::Named;
use crate::verbs::operands::{self, Dest, DestLink, Place, Reach, Where};
use bcmr_wire::contents::{self, Item};
use bcmr_wire::limits;
use bcmr_wire::message::{
    Codec, DirState, Entry, FileState, Kind as WireKind, Message, Piece, Trouble, data,
};
use fastcopy::dir::{Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::collections::hash_map::Entry as Slotted;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Blocks that are kept for the store until the end: as many as it remembers at most.
const REMEMBERED_BLOCKS_MAX: usize = limits::DEDUP_BLOCKS_MAX as usize;

/// Sends one message.
type Say = dyn Fn(&Message<'_>) -> io::Result<()> + Send + Sync;

/// Where answers go: stream 0, to the sender.
pub(crate) struct Reply {
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) out: Box<Say>,
}

impl Reply {
    /// Sends one message.
    pub(crate) fn send(&self, message: &Message<'_>) -> io::Result<()> {
        (self.out)(message)
    }
}

impl Ask for Reply {
    fn resume(&self, file: u64, from: u64, hashes: bool) -> io::Result<()> {
        self.send(&Message::Resume { file, wanted: true, from, flags: u8::from(!hashes) })
    }
    fn reread(&self, file: u64, at: u64, bytes: u64) -> io::Result<()> {
        self.send(&Message::Reread { file, at, bytes })
    }
    fn compute(&self, file: u64, first: u64, count: u64) -> io::Result<()> {
        self.send(&Message::Compute { file, first, count })
    }
}

/// Attributes as they came.
type Attrs = Vec<(CString, Vec<u8>)>;

/// A source directory on the other machine.
pub(crate) struct Far {
    info: Info,
    attrs: Attrs,
    node: Arc<Node>,
}

impl Origin for Far {
    fn info(&self) -> &Info {
        &self.info
    }
    fn node(&self) -> &Arc<Node> {
        &self.node
    }
    fn attributes(&self) -> Attributes<'_> {
        Attributes::Carried(&self.attrs)
    }
    fn hash(&self, _: Name<'_>, _: &dyn Fn() -> bool) -> std::result::Result<Option<blake3::Hash>, Fault> {
        Ok(None)
    }
}

/// Beside landing, a manifest is written (GET), and what landed by the thread of large files is counted.
pub(crate) struct Listing {
    manifest: Option<Manifest>,
    landed: AtomicU64,
}

impl Beside<Far> for Listing {
    fn landed(&self, _: &Arc<Slot<Far>>, _: Name<'_>, info: &Info, _: &Devices<'_, Sys>, _: &Tally<'_>) {
        if info.size >= DEDUP_BYTES_MIN {
            self.landed.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn dir_done(&self, _: &Arc<Slot<Far>>) {}
    fn hashed(&self, dst: &Path, hash: &[u8; 32]) -> Result<()> {
        self.manifest.as_ref().map_or(Ok(()), |manifest| manifest.add(dst, hash))
    }
}

/// One entry of a batch, kept while it waits.
struct Meta {
    name: NameBuf,
    to: NameBuf,
    info: Info,
    attrs: Attrs,
    link: CString,
}

/// What is to be done with an entry whose content is on its way.
#[derive(Clone, Copy)]
enum Verdict {
    /// Landed over this.
    Land(Option<Info>),
    /// Compared with what is there first.
    Doubt,
    /// A further name of a large file that is being landed.
    Linked,
}

/// A batch with entries that wait for their content or for another name of the same file.
struct Batch {
    id: u64,
    slot: Arc<Slot<Far>>,
    /// Until nothing more is to be done.
    hold: Option<SlotHold<Far>>,
    metas: Vec<Meta>,
    /// Asked for, and not here yet. Contents say not whose they are: one answer at a time, or two could arrive over
    /// two streams in the wrong order.
    wanted: Vec<(usize, Verdict)>,
    /// To be asked for when nothing else is.
    later: Vec<(usize, Verdict)>,
    seconds: Vec<usize>,
    way: Way,
    /// Nothing more is to be done.
    settled: bool,
}

/// Where entries go.
struct Goal {
    slot: SlotHold<Far>,
    /// Where it is among the names that sources claim.
    spot: Spot,
    to: Option<NameBuf>,
    way: Way,
}

/// A large file on offer.
struct Offer<'a> {
    arriving: Arc<Arriving<'a>>,
    slot: SlotHold<Far>,
    meta: Meta,
    verdict: Verdict,
    /// The sender was told to begin.
    begun: bool,
}

#[derive(Default)]
struct Offers<'a> {
    queue: VecDeque<Offer<'a>>,
    /// Nothing more will come.
    ended: bool,
    /// Files taken from the queue and not yet settled.
    busy: usize,
    /// An offer was queued whose beginning only the lander can say: later ones wait for it, as the sender sends in the
    /// order in which it was told to.
    undecided: usize,
}

/// A block that the store has, and the sender's proof that it has it too.
type Found = (Pinned, Option<[u8; 32]>);

/// Blocks of one file that the store has: found when the sender names them, taken when they are read.
struct AtHandBlocks<'a> {
    store: &'a Store,
    /// How many the file has.
    blocks: u64,
    nonce: [u8; 32],
    found: Mutex<HashMap<u64, Found>>,
}

impl AtHand for Arc<AtHandBlocks<'_>> {
    fn block(&self, block: u64, bytes: u64) -> Option<Vec<u8>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner).remove(&block);
        let (pinned, tag) = found?;
        let mut room = vec![0; usize::try_from(bytes).ok()?];
        match self.store.take(&pinned, &self.nonce, &tag?, &mut room) {
            Taken::Whole => Some(room),
            Taken::Missing => None,
        }
    }
}

/// A large file that landed, with the values of its blocks.
struct Remembered {
    slot: Arc<Slot<Far>>,
    name: NameBuf,
    size: u64,
    values: Vec<[u8; 32]>,
}

/// What an operand became that has a name.
pub(crate) struct Became<T> {
    /// A directory.
    pub(crate) what: T,
    /// Which it is at the source.
    pub(crate) id: (u64, u64),
    pub(crate) shown: PathBuf,
    /// Which of the operands.
    pub(crate) owner: u32,
}

impl<T> Became<T> {
    /// Whether another operand of this name is the very same one. Directories are merged.
    ///
    /// # Errors
    /// It is another one, and no directory.
    pub(crate) fn is_same(&self, info: &Info, dest: &Dest, shown: &Path) -> Result<bool> {
        if self.id != info.id() && info.kind != Kind::Dir {
            let why =
                Reason::EarlierSource.about(self.shown.as_path()).about(operands::shown(dest).as_path());
            return Err(Error::ours(Code::Refused, Op::Copy, shown, why));
        }
        Ok(self.id == info.id())
    }
}

/// Where an operand that is no directory goes.
struct Single {
    slot: SlotHold<Far>,
    spot: Spot,
    to: NameBuf,
    kind: WireKind,
}

struct State<'a> {
    dirs: HashMap<u64, SlotHold<Far>>,
    singles: HashMap<u64, Single>,
    /// Each behind a lock of its own: several streams bring what concerns one.
    batches: HashMap<u64, Arc<Mutex<Batch>>>,
    files: HashMap<u64, Arc<Arriving<'a>>>,
    places: Vec<(Arc<Place>, SlotHold<Far>)>,
    /// What operands become: two directories of one name are merged, the second once the first is done.
    names: HashMap<NameBuf, Became<Weak<Slot<Far>>>>,
    /// Blocks at hand for files on their way.
    at_hand: HashMap<u64, Arc<AtHandBlocks<'a>>>,
    /// Large files that landed, for the store: it is told once they have their names.
    to_remember: Vec<Remembered>,
    named: Named,
}

/// The sender has met more.
pub(crate) fn found(tally: &Tally<'_>, items: u64, bytes: u64, last: bool) {
    let progress = tally.watch.progress;
    progress.items_found.fetch_max(items, Ordering::Relaxed);
    progress.bytes_found.fetch_max(bytes, Ordering::Relaxed);
    if last {
        progress.scanned.store(true, Ordering::Relaxed);
    }
}

/// How the sender ended with a large file.
pub(crate) fn end_of(state: FileState, error: Option<&Trouble<'_>>) -> End {
    match (state, error) {
        (FileState::Whole, _) => End::Whole,
        (FileState::Changed, _) => End::Changed,
        (FileState::Failed, None) => End::Failed(Code::Io, 0),
        (FileState::Failed, Some(t)) => {
            let e = error_of(t);
            let errno = e.source.as_ref().and_then(io::Error::raw_os_error).unwrap_or(0);
            End::Failed(e.code, errno)
        }
    }
}

/// A message that is none of a sender's here.
pub(crate) fn not_a_senders(message: &Message<'_>) -> Error {
    let name = bcmr_wire::state::name(message.kind()).unwrap_or("?");
    refused(Reason::NotSendersMessage.about(name))
}

/// What a piece says of itself.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub(crate) file: u64,
    pub(crate) at: u64,
    pub(crate) flags: u8,
    pub(crate) cv: Option<[u8; 32]>,
    pub(crate) length: u64,
}

/// Takes a piece out of its frame: what it says of itself, and its bytes unpacked. `Err(start)`: they are in the
/// frame as they are, from `start` of its payload on.
pub(crate) fn unload(
    unpacker: &mut Unpacker,
    piece: &Piece<'_>,
    payload: &[u8],
) -> Result<(Head, std::result::Result<Load, usize>)> {
    let Piece { file, at, flags, cv, length, .. } = *piece;
    let head = Head { file, at, flags, cv, length };
    if flags & data::ZEROS != 0 {
        return Ok((head, Ok(Load::Zeros)));
    }
    if piece.codec == Codec::Raw {
        if piece.bytes.len() as u64 != length {
            return Err(refused(Reason::PieceOfOtherLength));
        }
        return Ok((head, Err(payload.len() - piece.bytes.len())));
    }
    let mut bytes = Vec::new();
    unpacker
        .unpack(piece.codec, piece.bytes, length, limits::PIECE_BYTES_MAX as usize, &mut bytes)
        .map_err(|e| refused(Reason::BadPiece.about(e.to_string())))?;
    Ok((head, Ok(Load::Bytes { buffer: Box::new(bytes), start: 0 })))
}

/// What each thread that receives keeps for itself: buffers.
pub(crate) struct Crew {
    hand: Hand,
    pub(crate) unpacker: Unpacker,
}

impl Crew {
    pub(crate) fn new(disk: &Sys) -> Crew {
        Crew { hand: disk.hand(), unpacker: Unpacker::new() }
    }
}

/// Who takes what comes off the streams: one lands it, another only looks what that would change.
pub(crate) trait Takes: Sync + Sized {
    /// Whom it is told, and who may stop it.
    fn watch(&self) -> Watch<'_>;
    /// What was asked for.
    fn what(&self) -> &What;
    /// What a thread that takes needs.
    fn crew(&self) -> Crew;
    /// One message, but no [`Message::Data`].
    ///
    /// # Errors
    /// When the sender broke the protocol, or cannot be answered: the transfer is over. What happens to single items is
    /// told to the watch.
    fn handle(&self, crew: &mut Crew, message: Message<'_>) -> Result<()>;
    /// A piece of a large file.
    ///
    /// # Errors
    /// As [`Takes::handle`].
    fn piece(&self, stream: usize, head: &Head, load: Load) -> Result<()>;
    /// Settles large files, one after the other, until the sender has sent everything. Runs in a thread of its own.
    ///
    /// # Errors
    /// As [`Takes::handle`].
    fn land_large(&self) -> Result<()>;
    /// Whether the sender has said that it is done.
    fn is_complete(&self) -> bool;
    /// The transfer has failed: called at once, from any thread, so that none goes on waiting for what does not come.
    fn lose(&self) {}
    /// Nothing more comes, for whatever reason.
    fn leave(&self, crew: &mut Crew);
    /// After [`Takes::leave`] and the end of [`Takes::land_large`]: says what was done, and gives the marks that are to be
    /// cleared once that was heard. `cut_short` when the connection was lost: not all that was to be done was.
    fn end(self, cut_short: bool) -> (crate::event::Summary, Marks);
}

/// One transfer, at the receiver.
pub(crate) struct Receive<'a> {
    pub(crate) desk: Lander<'a, Far, Listing>,
    policy: &'a CopyPolicy,
    what: What,
    reply: &'a Reply,
    store: Option<&'a Store>,
    /// The sender's number, once it has said it.
    sender_origin: AtomicU64,
    state: Mutex<State<'a>>,
    offers: Mutex<Offers<'a>>,
    offered: Condvar,
    all_sent: AtomicBool,
    line: Arc<Line<'a>>,
}

pub(crate) fn told(e: io::Error) -> Error {
    Error { code: Code::Lost, ..Error::os(Op::SendToTheOtherSide, "", e) }
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

impl<'a> Receive<'a> {
    /// Nothing is changed yet.
    pub(crate) fn begin(
        disk: &'a Sys,
        policy: &'a CopyPolicy,
        what: What,
        watch: Watch<'a>,
        manifest: Option<&Path>,
        reply: &'a Reply,
        store: Option<&'a Store>,
    ) -> Result<Receive<'a>> {
        let manifest = match manifest {
            Some(file) => Some(Manifest::begin(file, Some(what.to.base()?))?),
            None => None,
        };
        if !what.listed {
            what.to.tell_new(&watch);
        }
        let state = State {
            dirs: HashMap::new(),
            singles: HashMap::new(),
            batches: HashMap::new(),
            files: HashMap::new(),
            places: Vec::new(),
            names: HashMap::new(),
            at_hand: HashMap::new(),
            to_remember: Vec::new(),
            named: Named::default(),
        };
        let listing = Listing { manifest, landed: AtomicU64::new(0) };
        let mut desk = Lander::new(disk, policy, Tally::new(watch), listing);
        desk.claims = Claims::of_at_most(limits::CLAIMS_MAX, what.meeting());
        desk.links = LinkTable::of_at_most(limits::LINKS_MAX);
        Ok(Receive {
            line: Arc::new(Line::new(
                watch.cancel,
                what.streams,
                Duration::from_millis(limits::DEAD_MS),
                reply.pulse.clone(),
            )),
            desk,
            policy,
            what,
            reply,
            store,
            sender_origin: AtomicU64::new(0),
            state: Mutex::new(state),
            offers: Mutex::new(Offers::default()),
            offered: Condvar::new(),
            all_sent: AtomicBool::new(false),
        })
    }

    /// What names of a manifest are relative to.
    pub(crate) fn base(&self) -> Result<PathBuf> {
        self.what.to.base()
    }

    fn state(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offers(&self) -> MutexGuard<'_, Offers<'a>> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, message: &Message<'_>) -> Result<()> {
        self.reply.send(message).map_err(told)
    }

    /// A source's path as it is shown.
    fn shown(&self, path: &Path) -> PathBuf {
        self.what.shown(path)
    }

    /// A file on its way; `None` when it is settled and the sender has not heard of that yet.
    fn arriving(&self, file: u64) -> Result<Option<Arc<Arriving<'a>>>> {
        let state = self.state();
        match state.files.get(&file).cloned() {
            None => state.named.was_offered(file).map(|()| None),
            known => Ok(known),
        }
    }

    fn info_of(&self, entry: &Entry<'_>, origin: u64) -> Info {
        self.what.info_of(entry, origin)
    }

    fn attrs_of(&self, entry: &Entry<'_>) -> Result<Attrs> {
        // They are not kept: then they are not even held.
        if !self.policy.preserve.xattr && !self.policy.preserve.acl {
            return Ok(Attrs::new());
        }
        let one = |(name, value): &(&[u8], &[u8])| {
            CString::new(*name).map(|n| (n, value.to_vec())).map_err(|_| refused(Reason::BadAttributeName))
        };
        entry.attrs.iter().map(one).collect()
    }

    fn meta_of(&self, entry: &Entry<'_>, to: Option<&NameBuf>) -> Result<Meta> {
        let name = NameBuf::new(entry.name).ok_or_else(|| refused(Reason::BadName))?;
        let link = CString::new(entry.link).map_err(|_| refused(Reason::BadLinkTarget))?;
        let info = self.info_of(entry, self.origin());
        let to = to.unwrap_or(&name).clone();
        Ok(Meta { name, to, info, attrs: self.attrs_of(entry)?, link })
    }

    /// The sender's number; one for a whole transfer.
    fn origin(&self) -> u64 {
        self.sender_origin.load(Ordering::Relaxed)
    }

    fn pair(src: Far, dst: DestDir<Sys>, ours: bool, spot: Spot) -> PairedDirs<Far, DestDir<Sys>> {
        PairedDirs { dev: src.info.dev, src: Arc::new(src), dst, ours, spot }
    }

    fn operand(&self, path: &[u8], whole: bool, origin: u64, id: u64, entry: &Entry<'_>) -> Result<()> {
        let name = if whole { None } else { NameBuf::new(entry.name) };
        self.state().named.operand(&self.what, id, origin, name.as_ref(), entry)?;
        self.what.no_link(self.policy.follow != Follow::Never, entry.kind)?;
        self.sender_origin.store(origin, Ordering::Relaxed);
        let shown = self.shown(&path_of(path));
        match self.place(&shown, whole, id, entry) {
            // The very same source once more: it is copied once.
            Ok(DirState::Refused) => self.refuse(id),
            Ok(state) => self.send(&Message::DirIs { dir: id, state }),
            Err(e) if e.code == Code::Protocol => Err(e),
            Err(e) => {
                self.desk.tally.fail(e);
                self.refuse(id)
            }
        }
    }

    /// Nothing is wanted of a directory, nor of what is below it.
    fn refuse(&self, id: u64) -> Result<()> {
        self.state().named.refuse(id);
        self.send(&Message::DirIs { dir: id, state: DirState::Refused })
    }

    /// Finds the place of an operand and makes the directory that it becomes.
    fn place(&self, shown: &Path, whole: bool, id: u64, entry: &Entry<'_>) -> Result<DirState> {
        let disk = self.desk.disk;
        let meta = if whole { None } else { Some(self.meta_of(entry, None)?) };
        let info = self.info_of(entry, self.origin());
        let attrs = self.attrs_of(entry)?;
        // The directory of a list of names is only where they are.
        if info.kind == Kind::Dir && !self.policy.recursive && !(whole && self.what.listed) {
            return Err(Error::ours(Code::IsDirectory, Op::Copy, shown, Reason::IsDirectory));
        }
        let name = meta.as_ref().map(|m| m.name.clone());
        let dest = self.what.to.dest(name, &info)?;
        let whole = matches!(dest, Dest::Whole(_));
        let mut spot = self.desk.claims.operand(shown, whole);
        if let Dest::Named { name, .. } = &dest {
            match self.follows((name, &dest), &info, shown, spot.owner)? {
                Claimed::Same => return Ok(DirState::Refused),
                Claimed::Other(earlier) => spot = spot.after(earlier),
                Claimed::First | Claimed::Again | Claimed::Unless(_) => {}
            }
        }
        if spot.owner > 0 && (whole || self.desk.claims.has_whole()) {
            // What waits to be synced with others would be made a second time beside itself.
            self.desk.publish_group(&mut disk.hand());
            spot = spot.after(0);
        }
        operands::nesting(&self.what.reach, &info, whole, &dest, self.policy, shown, Op::Copy)?;
        let open = |place: &Place| -> Result<DestDir<Sys>> {
            let dir = place.dir.try_clone().map_err(|e| Error::os(Op::Open, place.node.path(), e))?;
            DestDir::existing(disk, dir, place.node.clone(), None, self.policy)
        };
        let surroundings = || Far { info, attrs: Vec::new(), node: Node::root(parent_of(shown)) };
        let slot = match (&dest, info.kind) {
            (Dest::Whole(place), _) => {
                let src = Far { info, attrs, node: Node::root(shown) };
                let dst = open(place)?;
                let dst = if self.what.listed { dst.for_a_list() } else { dst };
                self.desk.top(Self::pair(src, dst, !self.what.listed, spot))
            }
            (Dest::Named { dir: place, name }, kind) => {
                let known = {
                    let state = self.state();
                    let known = state.places.iter().rev().find(|(p, _)| Arc::ptr_eq(p, place));
                    known.map(|(_, slot)| slot.hold())
                };
                let above = match known {
                    Some(slot) if slot.src.node.path() == parent_of(shown) => slot,
                    known => {
                        // Operands of one command mostly go to one place: its lock is held once, so it is opened once.
                        let dst = known.as_ref().map_or_else(|| open(place), |slot| Ok(slot.dst.share()))?;
                        if let Some(known) = known {
                            self.desk.release(&mut disk.hand(), known);
                        }
                        let slot = self.desk.top(Self::pair(surroundings(), dst, false, Spot::default()));
                        let above = slot.hold();
                        self.state().places.push((place.clone(), slot));
                        above
                    }
                };
                if kind != Kind::Dir {
                    let single = Single { slot: above, spot, to: name.clone(), kind: entry.kind };
                    self.state().singles.insert(id, single);
                    return Ok(DirState::There);
                }
                let dst = match self.desk.enter_top(&above.dst, name.as_name(), &info) {
                    Ok(dst) => dst,
                    Err(e) => {
                        above.mark_incomplete();
                        self.desk.release(&mut disk.hand(), above);
                        return Err(e);
                    }
                };
                let src = Far { info, attrs, node: Node::root(shown) };
                let spot = self.desk.claims.below(&spot, name.as_name());
                Slot::below(above, Self::pair(src, dst, true, spot))
            }
        };
        let fresh = slot.dst.is_fresh();
        let mut state = self.state();
        if let Dest::Named { name, .. } = dest {
            let slot = Arc::downgrade(&slot);
            state.names.entry(name).and_modify(|became| became.what = slot);
        }
        state.dirs.insert(id, slot);
        drop(state);
        Ok(if fresh { DirState::New } else { DirState::There })
    }

    /// Whether the operand `owner` may become `name`, which an earlier one may have become: the very same one, or another
    /// that it is merged with.
    fn follows(
        &self,
        (name, dest): (&NameBuf, &Dest),
        info: &Info,
        shown: &Path,
        owner: u32,
    ) -> Result<Claimed> {
        let (earlier, first) = match self.state().names.entry(name.clone()) {
            Slotted::Vacant(slot) => {
                slot.insert(Became { what: Weak::new(), id: info.id(), shown: shown.to_owned(), owner });
                return Ok(Claimed::First);
            }
            Slotted::Occupied(slot) if slot.get().is_same(info, dest, shown)? => return Ok(Claimed::Same),
            Slotted::Occupied(slot) => (slot.get().what.clone(), slot.get().owner),
        };
        // It may wait for others, so as to be synced with them.
        self.desk.publish_group(&mut self.desk.disk.hand());
        // Until it has its name, a second one would be made beside it.
        if earlier.upgrade().is_some_and(|slot| !slot.is_done()) {
            return Err(refused(Reason::DirectoryTwice));
        }
        Ok(Claimed::Other(first))
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
            Err(e) => {
                slot.mark_incomplete();
                self.desk.tally.fail(e);
            }
        }
        false
    }

    fn dir(&self, id: u64, parent: u64, entry: &Entry<'_>) -> Result<()> {
        let above = {
            let mut state = self.state();
            let open = state.dirs.len();
            state.named.dir(id, open)?;
            match state.dirs.get(&parent) {
                Some(above) => above.hold(),
                None => {
                    state.named.was_refused(parent, Reason::DirectoryInNone)?;
                    drop(state);
                    return self.refuse(id);
                }
            }
        };
        if entry.kind != WireKind::Dir {
            return Err(refused(Reason::DirectoryThatIsNone));
        }
        let meta = self.meta_of(entry, None)?;
        self.is_asked(&above, &meta)?;
        above.dst.expect(1);
        let entered =
            self.desk.enter(&mut self.desk.disk.hand(), &above, meta.name.as_name(), meta.info.mode);
        let state = match entered {
            Ok(dst) => {
                let src = Far {
                    info: meta.info,
                    attrs: meta.attrs,
                    node: above.src.node().below(meta.name.as_name()),
                };
                let fresh = dst.is_fresh();
                let spot = self.desk.claims.below(&above.spot, meta.name.as_name());
                let slot = Slot::below(above, Self::pair(src, dst, true, spot));
                self.state().dirs.insert(id, slot);
                if fresh { DirState::New } else { DirState::There }
            }
            Err(e) => {
                above.mark_incomplete();
                self.desk.tally.fail(e);
                return self.refuse(id);
            }
        };
        self.send(&Message::DirIs { dir: id, state })
    }

    /// V1, for names of a list.
    fn is_asked(&self, slot: &Slot<Far>, meta: &Meta) -> Result<()> {
        if self.what.asked.takes(slot.src.node(), &meta.name, &meta.info) {
            return Ok(());
        }
        Err(refused(Reason::NameNotAsked))
    }

    /// Where entries of `dir` go: a directory, or the name of one operand; `None`: it was refused. The slot waits for
    /// them, to be sealed and, if they are `small`, to get its name.
    fn goes_to(&self, dir: u64, entries: &[Entry<'_>], small: bool) -> Result<Option<Goal>> {
        let mut state = self.state();
        if let Some(slot) = state.dirs.get(&dir) {
            let slot = if small { slot.hold_name() } else { slot.hold() };
            return Ok(Some(Goal { spot: slot.spot, slot, to: None, way: Way::Small }));
        }
        let fits = |single: &Single| matches!(entries, [one] if one.kind == single.kind);
        if state.singles.get(&dir).is_some_and(|single| !fits(single)) {
            return Err(refused(Reason::OtherOperand));
        }
        match state.singles.remove(&dir) {
            Some(Single { slot, spot, to, .. }) => {
                Ok(Some(Goal { slot, spot, to: Some(to), way: Way::Alone }))
            }
            None => state.named.was_refused(dir, Reason::EntriesOfClosed).map(|()| None),
        }
    }

    /// Nothing more is to be done for a batch.
    fn done_with(&self, crew: &mut Crew, batch: &mut Batch) {
        if let Some(hold) = batch.hold.take() {
            self.desk.release(&mut crew.hand, hold);
        }
    }

    #[allow(clippy::too_many_arguments)] // the fields of one message
    fn files(
        &self,
        crew: &mut Crew,
        id: u64,
        dir: u64,
        inline: bool,
        codec: Codec,
        entries: &[Entry<'_>],
        packed: &[u8],
    ) -> Result<()> {
        self.state().named.batch(id)?;
        if entries.iter().any(|e| e.kind == WireKind::Dir) {
            return Err(refused(Reason::DirectoryAmongFiles));
        }
        let Some(Goal { slot, spot, to, way }) = self.goes_to(dir, entries, true)? else {
            self.state().named.settle_batch(id)?;
            return self.send(&Message::Wants { batch: id, entries: Vec::new() });
        };
        let (wanted, later, seconds) = (Vec::new(), Vec::new(), Vec::new());
        let (slot, hold, metas) = (slot.clone(), Some(slot), Vec::new());
        let mut batch = Batch { id, slot, hold, metas, wanted, later, seconds, way, settled: false };
        if let Err(e) = self.fill(crew, &mut batch, &spot, to.as_ref(), (inline, codec), entries, packed) {
            // The sender has broken the protocol in the middle of a batch: its directory must not wait for it.
            batch.slot.mark_incomplete();
            self.done_with(crew, &mut batch);
            return Err(e);
        }
        // Known before anything is asked: an answer may come over another stream at once.
        let batch = Arc::new(Mutex::new(batch));
        self.state().batches.insert(id, batch.clone());
        self.go_on(crew, &mut locked(&batch))?;
        self.look_again(crew)
    }

    #[allow(clippy::too_many_arguments)] // the fields of one message, and where they go
    fn fill(
        &self,
        crew: &mut Crew,
        batch: &mut Batch,
        spot: &Spot,
        to: Option<&NameBuf>,
        (inline, codec): (bool, Codec),
        entries: &[Entry<'_>],
        packed: &[u8],
    ) -> Result<()> {
        for entry in entries {
            self.what.no_link(self.policy.follow == Follow::Always, entry.kind)?;
            let meta = self.meta_of(entry, to)?;
            self.is_asked(&batch.slot, &meta)?;
            batch.metas.push(meta);
        }
        for (index, meta) in batch.metas.iter().enumerate() {
            let linked = self.policy.preserve.links && meta.info.nlink > 1;
            if !self.gets_its_name(&batch.slot, spot, meta)
                || linked && !self.has_room_for_link(&batch.slot, meta)
            {
                continue;
            }
            if linked && !self.desk.links.claim_first(&meta.info) {
                batch.seconds.push(index);
            } else if let Some(verdict) = self.verdict(&batch.slot, meta) {
                batch.wanted.push((index, verdict));
            }
        }
        // What has no content lands at once.
        let plain: Vec<(usize, Verdict)> =
            batch.wanted.iter().copied().filter(|(i, _)| !is_file(batch, *i)).collect();
        batch.wanted.retain(|(i, _)| batch.metas.get(*i).is_some_and(|m| m.info.kind == Kind::File));
        self.land_plain(crew, batch, &plain);
        if inline {
            let bytes = unpack(&mut crew.unpacker, codec, packed)?;
            let files: Vec<usize> = (0..batch.metas.len()).filter(|i| is_file(batch, *i)).collect();
            self.land_contents(crew, batch, &bytes, true, &files)?;
        } else if !packed.is_empty() {
            return Err(refused(Reason::ContentsNotAnnounced));
        }
        batch.later = std::mem::take(&mut batch.wanted);
        Ok(())
    }

    /// Says what becomes of an entry that no other name of the same file came before; `None` when nothing does.
    fn verdict(&self, slot: &Arc<Slot<Far>>, meta: &Meta) -> Option<Verdict> {
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
            Err(Error::ours(Code::Special, Op::Copy, slot.src.node().join(name), note))
        } else if let Err(e) = self.what.no_device(meta.info.kind, || slot.dst.node.join(to)) {
            Err(e)
        } else {
            self.desk.choose(slot, &Offered { name, to, info: &meta.info, is_file }, &prove)
        };
        let verdict = match chosen {
            Ok(Decision::Skip) => None,
            Ok(_) if doubt.get() => return Some(Verdict::Doubt),
            Ok(Decision::Create) => return Some(Verdict::Land(None)),
            Ok(Decision::Replace(there)) => return Some(Verdict::Land(Some(there))),
            Err(e) => {
                slot.mark_incomplete();
                self.desk.tally.fail(e);
                None
            }
        };
        self.gave_up(&meta.info);
        verdict
    }

    /// Whether one more inode with several names can be remembered; told when not.
    fn has_room_for_link(&self, slot: &Slot<Far>, meta: &Meta) -> bool {
        if self.desk.links.has_room(&meta.info) {
            return true;
        }
        let note = Reason::TooManyLinks;
        let shown = slot.src.node().join(meta.name.as_name());
        slot.mark_incomplete();
        self.desk.tally.fail(Error::ours(Code::Refused, Op::KeepTheLinksOf, shown, note));
        false
    }

    fn gave_up(&self, info: &Info) {
        if self.policy.preserve.links && info.nlink > 1 {
            self.desk.links.gave_up(info);
        }
    }

    fn job<'n>(
        &self,
        slot: &'n Arc<Slot<Far>>,
        meta: &'n Meta,
        verdict: Verdict,
        body: Body<'n, Sys>,
        way: Way,
    ) -> Result<Option<Job<'n, Sys>>> {
        let (name, to) = (meta.name.as_name(), meta.to.as_name());
        let (info, attributes) = (meta.info, Attributes::Carried(&meta.attrs));
        let entry = Candidate { name, to, info, body, attributes, way };
        match verdict {
            Verdict::Land(there) => self.desk.job(slot, entry, there).map(Some),
            Verdict::Doubt | Verdict::Linked => {
                let job = self.desk.plan(slot, entry);
                if !matches!(job, Ok(Some(_))) {
                    self.gave_up(&meta.info);
                }
                job
            }
        }
    }

    /// Links and special files.
    fn land_plain(&self, crew: &mut Crew, batch: &Batch, plain: &[(usize, Verdict)]) {
        let mut jobs = Vec::new();
        for (index, verdict) in plain {
            let Some(meta) = batch.metas.get(*index) else { continue };
            let body =
                if meta.info.kind == Kind::Link { Body::Link(meta.link.clone()) } else { Body::Special };
            match self.job(&batch.slot, meta, *verdict, body, batch.way) {
                Ok(Some(job)) => jobs.push(job),
                Ok(None) => {}
                Err(e) => {
                    batch.slot.mark_incomplete();
                    self.desk.tally.fail(e);
                }
            }
        }
        self.desk.land(&mut crew.hand, &batch.slot, &mut jobs, batch.way, 1, false);
    }

    /// Contents of the entries `files`, in their order; what is not wanted of them is dropped.
    fn land_contents(
        &self,
        crew: &mut Crew,
        batch: &mut Batch,
        bytes: &[u8],
        exactly: bool,
        files: &[usize],
    ) -> Result<()> {
        let wanted = std::mem::take(&mut batch.wanted);
        let room = self.desk.room(&batch.slot);
        let mut jobs: Vec<Job<'_, Sys>> = Vec::new();
        let mut items = if exactly {
            contents::items(bytes, self.what.hashes, files.len())
        } else {
            contents::items_up_to(bytes, self.what.hashes, files.len())
        };
        let mut came = 0;
        for index in files {
            let item = match items.next() {
                Some(Ok(item)) => item,
                None if !exactly => break,
                Some(Err(_)) | None => return Err(refused(Reason::ContentsDoNotFit)),
            };
            came += 1;
            let Some(meta) = batch.metas.get(*index) else { continue };
            let Some((_, verdict)) = wanted.iter().find(|(i, _)| i == index) else { continue };
            let shown = || batch.slot.src.node().join(meta.name.as_name());
            let failed = |e: Error| {
                batch.slot.mark_incomplete();
                self.gave_up(&meta.info);
                self.desk.tally.fail(e);
            };
            match item {
                Item::Content { bytes, .. } if bytes.len() as u64 != meta.info.size => {
                    failed(other_size(shown(), meta.info.size, bytes.len() as u64));
                }
                Item::Content { bytes, hash } => {
                    let hash = match hash.map(|h| (blake3::Hash::from_bytes(h), blake3::hash(bytes))) {
                        Some((said, is)) if said != is => {
                            let note = Reason::NotWhatWasSent;
                            failed(Error::ours(Code::Mismatch, Op::Receive, shown(), note));
                            continue;
                        }
                        Some((said, _)) => Some(said),
                        None => None,
                    };
                    match self.job(&batch.slot, meta, *verdict, Body::Bytes(bytes), batch.way) {
                        Ok(Some(job)) => jobs.push(Job { hash, ..job }),
                        Ok(None) => {}
                        Err(e) => {
                            batch.slot.mark_incomplete();
                            self.desk.tally.fail(e);
                        }
                    }
                }
                Item::Hashed { .. } => return Err(refused(Reason::HashNotContent)),
                Item::Changed => {
                    let note = Reason::SourceChangedWhileRead;
                    failed(Error::ours(Code::SourceChanged, Op::Copy, shown(), note));
                }
                Item::Unreadable(trouble) => {
                    let e = error_of(&trouble);
                    failed(Error { path: shown(), ..e });
                }
            }
            if jobs.len() >= room {
                self.desk.land(&mut crew.hand, &batch.slot, &mut jobs, batch.way, 1, false);
            }
        }
        if items.next().is_some() {
            return Err(refused(Reason::MoreContentsThanEntries));
        }
        self.desk.land(&mut crew.hand, &batch.slot, &mut jobs, batch.way, 1, false);
        drop(jobs);
        // What is still to come.
        let came = files.get(..came).unwrap_or_default();
        batch.wanted = wanted.into_iter().filter(|(i, _)| !came.contains(i)).collect();
        Ok(())
    }

    fn contents(&self, crew: &mut Crew, id: u64, codec: Codec, packed: &[u8]) -> Result<()> {
        let known = self.state().batches.get(&id).cloned();
        let Some(known) = known else {
            return Err(refused(Reason::ContentsNotWaitedFor));
        };
        let mut guard = locked(&known);
        let batch = &mut *guard;
        if batch.wanted.is_empty() {
            return Err(refused(Reason::ContentsNotWaitedFor));
        }
        let files: Vec<usize> = batch.wanted.iter().map(|(i, _)| *i).collect();
        let bytes = unpack(&mut crew.unpacker, codec, packed)?;
        self.land_contents(crew, batch, &bytes, false, &files)?;
        if batch.wanted.len() == files.len() {
            return Err(refused(Reason::ContentsOfNothing));
        }
        self.go_on(crew, batch)?;
        drop(guard);
        self.look_again(crew)
    }

    /// Further names whose first one has landed meanwhile are linked; one whose first could not be landed is wanted
    /// itself.
    fn resolve(&self, crew: &mut Crew, batch: &mut Batch) {
        let seconds = std::mem::take(&mut batch.seconds);
        for index in seconds {
            let Some(meta) = batch.metas.get(index) else { continue };
            match self.desk.links.claim(&meta.info) {
                None => batch.seconds.push(index),
                Some(Claim::Second(landed)) => {
                    let (name, to) = (meta.name.as_name(), meta.to.as_name());
                    self.desk.land_second(&mut crew.hand, &batch.slot, name, to, &meta.info, &landed);
                }
                Some(Claim::First) => {
                    let Some(verdict) = self.verdict(&batch.slot, meta) else { continue };
                    if is_file(batch, index) {
                        batch.later.push((index, verdict));
                    } else {
                        self.land_plain(crew, batch, &[(index, verdict)]);
                    }
                }
            }
        }
    }

    /// Takes a batch as far as it goes now: links what can be linked, asks for what is wanted, and is done with it when
    /// nothing is left.
    fn go_on(&self, crew: &mut Crew, batch: &mut Batch) -> Result<()> {
        if batch.settled {
            return Ok(());
        }
        self.resolve(crew, batch);
        if !batch.wanted.is_empty() {
            return Ok(());
        }
        if !batch.later.is_empty() {
            batch.wanted = std::mem::take(&mut batch.later);
            batch.wanted.sort_unstable_by_key(|(index, _)| *index);
            let entries = batch.wanted.iter().map(|(index, _)| *index as u64).collect();
            return self.send(&Message::Wants { batch: batch.id, entries });
        }
        if !batch.seconds.is_empty() {
            return Ok(());
        }
        batch.settled = true;
        {
            let mut state = self.state();
            state.batches.remove(&batch.id);
            state.named.settle_batch(batch.id)?;
        }
        self.done_with(crew, batch);
        self.send(&Message::Wants { batch: batch.id, entries: Vec::new() })
    }

    /// After something has landed or was given up: batches that wait for another name of it may go on. To be called
    /// while no batch is locked.
    fn look_again(&self, crew: &mut Crew) -> Result<()> {
        if !self.policy.preserve.links {
            return Ok(());
        }
        let all: Vec<Arc<Mutex<Batch>>> = self.state().batches.values().cloned().collect();
        for batch in all {
            let mut batch = locked(&batch);
            if !batch.seconds.is_empty() {
                self.go_on(crew, &mut batch)?;
            }
        }
        Ok(())
    }

    fn large(&self, crew: &mut Crew, file: u64, dir: u64, entry: &Entry<'_>) -> Result<()> {
        self.state().named.file(file)?;
        if entry.kind != WireKind::File {
            return Err(refused(Reason::LargeThatIsNone));
        }
        let Some(goal) = self.goes_to(dir, std::slice::from_ref(entry), false)? else {
            self.send(&Message::Resume { file, wanted: false, from: 0, flags: 0 })?;
            return self.close(file);
        };
        self.offer(crew, file, goal, entry)?;
        self.look_again(crew)
    }

    /// Takes an offer up, or not.
    fn offer(&self, crew: &mut Crew, file: u64, goal: Goal, entry: &Entry<'_>) -> Result<()> {
        let Goal { slot, spot, to, .. } = goal;
        let meta = self.meta_of(entry, to.as_ref())?;
        self.is_asked(&slot, &meta)?;
        let linked = self.policy.preserve.links && meta.info.nlink > 1;
        let verdict =
            if !self.gets_its_name(&slot, &spot, &meta) || linked && !self.has_room_for_link(&slot, &meta) {
                None
            } else if linked && !self.desk.links.claim_first(&meta.info) {
                // What becomes of it is known once its first name, which was offered before, is settled.
                Some(Verdict::Linked)
            } else {
                self.verdict(&slot, &meta)
            };
        let Some(verdict) = verdict else {
            self.desk.release(&mut crew.hand, slot);
            self.send(&Message::Resume { file, wanted: false, from: 0, flags: 0 })?;
            return self.close(file);
        };
        let mut arriving = Arriving::new(file, meta.info, self.what.hashes, self.reply, self.line.clone());
        // What the sender does not hash it does not name either. Of more blocks than the store remembers at most, none is
        // looked for: each that is named takes memory until its file is settled.
        let blocks = blocks_of(meta.info.size);
        let named: u64 = self.state().at_hand.values().map(|at_hand| at_hand.blocks).sum();
        if let Some(store) = self.store.filter(|_| self.what.dedup && self.what.hashes)
            && meta.info.size >= DEDUP_BYTES_MIN
            && named.saturating_add(blocks) <= limits::DEDUP_BLOCKS_MAX
        {
            let blocks = Arc::new(AtHandBlocks { store, blocks, nonce: nonce()?, found: Mutex::default() });
            self.state().at_hand.insert(file, blocks.clone());
            arriving = arriving.with_store(Box::new(blocks));
        }
        let arriving = Arc::new(arriving);
        self.state().files.insert(file, arriving.clone());
        let late = self.is_late(&meta, verdict);
        let mut offers = self.offers();
        let begun = !late && offers.undecided == 0;
        if !begun {
            offers.undecided += 1;
        }
        let asked = if begun { crate::disk::Bytes::start(&*arriving, 0).map_err(told) } else { Ok(()) };
        offers.queue.push_back(Offer { arriving, slot, meta, verdict, begun });
        drop(offers);
        self.offered.notify_all();
        asked
    }

    /// Says which of the blocks that the sender has are at hand.
    fn have_blocks(&self, file: u64, first: u64, values: &[[u8; 32]]) -> Result<()> {
        let (blocks, arriving) = {
            let state = self.state();
            let Some(arriving) = state.files.get(&file).cloned() else { return Ok(()) };
            (state.at_hand.get(&file).cloned(), arriving)
        };
        let size = arriving.info.size;
        let end = first.saturating_add(values.len() as u64);
        if end > blocks_of(size) {
            return Err(refused(Reason::BlocksBehindEnd));
        }
        let Some(blocks) = blocks else {
            if !self.what.dedup {
                return Err(refused(Reason::BlocksNotAsked));
            }
            // Nothing is looked for, as without a store, and nothing kept of what was named: all of it is to cross.
            let bits: Vec<u8> = values.chunks(8).map(|some| u8::MAX >> (8 - some.len())).collect();
            return self.send(&Message::MissingBlocks { file, first, nonce: nonce()?, bits: &bits });
        };
        let mut bits = vec![0u8; values.len().div_ceil(8)];
        let mut missing = Vec::with_capacity(values.len());
        {
            let mut found = blocks.found.lock().unwrap_or_else(PoisonError::into_inner);
            for (k, cv) in values.iter().enumerate() {
                let at = (first + k as u64) * BLOCK_BYTES;
                let block = Block { cv: *cv, at, len: BLOCK_BYTES.min(size - at) };
                let pinned = blocks.store.find(&block);
                missing.push(pinned.is_none());
                match pinned {
                    Some(pinned) => {
                        found.insert(first + k as u64, (pinned, None));
                    }
                    None => {
                        if let Some(byte) = bits.get_mut(k / 8) {
                            *byte |= 1 << (k % 8);
                        }
                    }
                }
            }
        }
        // Those at hand are decided once the sender has proved that it has them.
        for (k, (missing, cv)) in missing.iter().zip(values).enumerate() {
            if *missing {
                arriving.decide(first + k as u64, &[false], &[*cv]);
            } else {
                arriving.announce(first + k as u64, *cv);
            }
        }
        self.send(&Message::MissingBlocks { file, first, nonce: blocks.nonce, bits: &bits })
    }

    /// The sender's proof that it has the blocks from `first` on that are at hand, in their order.
    fn proof(&self, file: u64, first: u64, tags: &[[u8; 32]]) -> Result<()> {
        let (blocks, arriving) = {
            let state = self.state();
            let Some(arriving) = state.files.get(&file).cloned() else { return Ok(()) };
            let blocks = state.at_hand.get(&file).cloned();
            (blocks.ok_or_else(|| refused(Reason::ProofOfNothing))?, arriving)
        };
        let mut proved = Vec::new();
        {
            let mut found = blocks.found.lock().unwrap_or_else(PoisonError::into_inner);
            let last = first.saturating_add(limits::HAVE_BLOCKS_MAX as u64);
            let mut waiting: Vec<u64> = found
                .iter()
                .filter(|(b, (_, tag))| (first..last).contains(*b) && tag.is_none())
                .map(|(b, _)| *b)
                .collect();
            waiting.sort_unstable();
            if waiting.len() < tags.len() {
                return Err(refused(Reason::MoreProofsThanBlocks));
            }
            for (block, tag) in waiting.into_iter().zip(tags) {
                if let Some((_, slot)) = found.get_mut(&block) {
                    *slot = Some(*tag);
                    proved.push(block);
                }
            }
        }
        for block in proved {
            arriving.at_hand(block);
        }
        Ok(())
    }

    /// Whether only the lander can say from where on a file is wanted.
    fn is_late(&self, meta: &Meta, verdict: Verdict) -> bool {
        let sessions = self.policy.resume.has_sessions() && meta.info.size > self.policy.checkpoint_bytes;
        sessions || !matches!(verdict, Verdict::Land(_)) || self.policy.resume.appends()
    }

    fn one_large(&self, crew: &mut Crew, offer: Offer<'a>) -> Result<()> {
        let Offer { arriving, slot, meta, verdict, begun } = offer;
        let file = arriving.file;
        let landed_before = self.desk.beside.landed.load(Ordering::Relaxed);
        let verdict = if self.is_over() {
            slot.mark_incomplete();
            None
        } else if matches!(verdict, Verdict::Linked) {
            match self.desk.links.claim(&meta.info) {
                Some(Claim::Second(landed)) => {
                    let (name, to) = (meta.name.as_name(), meta.to.as_name());
                    self.desk.land_second(&mut crew.hand, &slot, name, to, &meta.info, &landed);
                    None
                }
                Some(Claim::First) => self.verdict(&slot, &meta),
                None => {
                    let note = Reason::FirstNameUnsettled;
                    let shown = slot.src.node().join(meta.name.as_name());
                    slot.mark_incomplete();
                    self.desk.tally.fail(Error::ours(Code::Io, Op::Link, shown, note));
                    None
                }
            }
        } else {
            Some(verdict)
        };
        if let Some(verdict) = verdict {
            match self.job(&slot, &meta, verdict, Body::Wire(&*arriving), Way::Alone) {
                Ok(Some(job)) => {
                    self.desk.land(
                        &mut crew.hand,
                        &slot,
                        &mut vec![job],
                        Way::Alone,
                        self.what.streams,
                        false,
                    );
                }
                Ok(None) => {}
                Err(e) => {
                    slot.mark_incomplete();
                    self.desk.tally.fail(e);
                }
            }
        }
        if !arriving.was_wanted() {
            self.send(&Message::Resume { file, wanted: false, from: 0, flags: 0 })?;
        }
        let landed = self.desk.beside.landed.load(Ordering::Relaxed) > landed_before;
        if landed && self.store.is_some() && meta.info.size >= DEDUP_BYTES_MIN {
            self.remember(&slot, &meta, &arriving);
        }
        arriving.close();
        {
            let mut state = self.state();
            state.files.remove(&file);
            state.at_hand.remove(&file);
        }
        self.desk.release(&mut crew.hand, slot);
        if !begun {
            self.begin_following()?;
        }
        self.close(file)
    }

    /// The sender may forget a large file.
    fn close(&self, file: u64) -> Result<()> {
        self.state().named.close_file(file)?;
        self.send(&Message::Close { file })
    }

    /// Keeps what the store is to be told in the end.
    fn remember(&self, slot: &Arc<Slot<Far>>, meta: &Meta, arriving: &Arriving<'_>) {
        let Some(values) = arriving.all_values() else { return };
        let (slot, name, size) = (slot.clone(), meta.to.clone(), meta.info.size);
        let mut state = self.state();
        // No more than the store would keep: the last ones count.
        let kept: usize = state.to_remember.iter().map(|r| r.values.len()).sum();
        if kept + values.len() > REMEMBERED_BLOCKS_MAX {
            state.to_remember.clear();
        }
        state.to_remember.push(Remembered { slot, name, size, values });
    }

    /// Tells the store where blocks have landed, now that they have their names.
    fn tell_store(&self) {
        let Some(store) = self.store else { return };
        let told = std::mem::take(&mut self.state().to_remember);
        for Remembered { slot, name, size, values } in told {
            let Ok(dir) = slot.dst.dir.whereabouts() else { continue };
            let mut path = path_of(dir.to_bytes());
            path.push(OsStr::from_bytes(name.bytes()));
            let block = |(k, cv): (usize, &[u8; 32])| {
                let at = k as u64 * BLOCK_BYTES;
                Block { cv: *cv, at, len: BLOCK_BYTES.min(size - at) }
            };
            let blocks: Vec<Block> = values.iter().enumerate().map(block).collect();
            store.remember(&path, &blocks);
        }
        store.flush();
        if let bytes @ 1.. = store.taken_bytes() {
            let note = Reason::FromStore.about(bytes);
            self.desk.tally.watch.front.event(Event::Note(note));
        }
    }

    /// One whose beginning had to be found out has been begun and read: those behind it that need no thought begin.
    fn begin_following(&self) -> Result<()> {
        let mut offers = self.offers();
        offers.undecided = offers.undecided.saturating_sub(1);
        for offer in &mut offers.queue {
            if self.is_late(&offer.meta, offer.verdict) {
                break;
            }
            if !offer.begun {
                offer.begun = true;
                crate::disk::Bytes::start(&*offer.arriving, 0).map_err(told)?;
            }
        }
        offers.undecided = offers.queue.iter().filter(|o| !o.begun).count();
        Ok(())
    }

    /// The sender says it is done: every batch is settled and every file closed, or it lies.
    fn all_sent(&self, crew: &mut Crew) -> Result<()> {
        let left = {
            let state = self.state();
            let singles = !state.singles.is_empty();
            singles || !state.batches.is_empty() || !state.files.is_empty() || !state.dirs.is_empty()
        };
        if left && !self.desk.tally.cancelled() {
            return Err(refused(Reason::EndBeforeSettled));
        }
        self.what.tell_missing(&self.desk.tally);
        self.all_sent.store(true, Ordering::Relaxed);
        self.leave(crew);
        Ok(())
    }

    /// Whether nothing new is to be taken up.
    fn is_over(&self) -> bool {
        self.desk.tally.cancelled() || self.offers().ended && !self.is_complete()
    }
}

impl Takes for Receive<'_> {
    fn watch(&self) -> Watch<'_> {
        self.desk.tally.watch
    }

    fn what(&self) -> &What {
        &self.what
    }

    fn crew(&self) -> Crew {
        Crew::new(self.desk.disk)
    }

    fn handle(&self, crew: &mut Crew, message: Message<'_>) -> Result<()> {
        match message {
            Message::Operand { path, whole, origin, dir, entry } => {
                self.operand(path, whole, origin, dir, &entry)
            }
            Message::Dir { id, parent, entry } => self.dir(id, parent, &entry),
            Message::Files { batch, dir, inline, codec, entries, contents } => {
                self.files(crew, batch, dir, inline, codec, &entries, contents)
            }
            Message::Contents { batch, codec, bytes } => self.contents(crew, batch, codec, bytes),
            Message::Large { file, dir, entry } => self.large(crew, file, dir, &entry),
            Message::FileEnd { file, state, error } => {
                let Some(arriving) = self.arriving(file)? else { return Ok(()) };
                arriving.end(end_of(state, error.as_ref()));
                Ok(())
            }
            Message::HaveBlocks { file, first, hashes } => self.have_blocks(file, first, &hashes),
            Message::Proof { file, first, tags } => self.proof(file, first, &tags),
            Message::Values { file, first, hashes } => match self.arriving(file)? {
                Some(arriving) => arriving.values(first, &hashes),
                None => Ok(()),
            },
            Message::DirEnd { dir, partial } => {
                let mut state = self.state();
                let Some(slot) = state.dirs.remove(&dir) else {
                    return state.named.was_refused(dir, Reason::EndOfClosed);
                };
                drop(state);
                if partial {
                    slot.mark_incomplete();
                }
                self.desk.release(&mut crew.hand, slot);
                Ok(())
            }
            Message::Trouble(trouble) => {
                self.what.trouble(&trouble, &self.desk.tally);
                Ok(())
            }
            Message::Found { items, bytes, last } => {
                found(&self.desk.tally, items, bytes, last);
                Ok(())
            }
            Message::AllSent => self.all_sent(crew),
            Message::Cancel => {
                self.desk.tally.watch.cancel.set();
                Ok(())
            }
            other => Err(not_a_senders(&other)),
        }
    }

    fn piece(&self, stream: usize, head: &Head, load: Load) -> Result<()> {
        // A file that is settled already: what was under way is dropped.
        let Some(arriving) = self.state().files.get(&head.file).cloned() else { return Ok(()) };
        arriving.push(stream, head.at, head.length, head.cv, head.flags & data::ASKED != 0, load)
    }

    fn land_large(&self) -> Result<()> {
        let mut crew = self.crew();
        loop {
            let offer = {
                let mut offers = self.offers();
                loop {
                    if let Some(offer) = offers.queue.pop_front() {
                        offers.busy += 1;
                        break offer;
                    }
                    if offers.ended {
                        return Ok(());
                    }
                    let _waits = self.reply.pulse.waits_for(For::Frame);
                    offers = self.offered.wait(offers).unwrap_or_else(PoisonError::into_inner);
                }
            };
            let done = self.one_large(&mut crew, offer);
            self.offers().busy -= 1;
            self.offered.notify_all();
            done?;
            self.look_again(&mut crew)?;
        }
    }

    fn is_complete(&self) -> bool {
        self.all_sent.load(Ordering::Relaxed)
    }

    fn lose(&self) {
        self.line.lose();
    }

    /// What is whole keeps or gets its name, all else is taken back.
    fn leave(&self, crew: &mut Crew) {
        {
            let mut offers = self.offers();
            offers.ended = true;
        }
        let files: Vec<_> = self.state().files.drain().map(|(_, f)| f).collect();
        for file in files {
            file.lose();
        }
        self.offered.notify_all();
        let (batches, dirs, singles) = {
            let mut state = self.state();
            let batches: Vec<_> = state.batches.drain().map(|(_, b)| b).collect();
            let dirs: Vec<_> = state.dirs.drain().map(|(_, d)| d).collect();
            let singles: Vec<_> = state.singles.drain().map(|(_, s)| s).collect();
            (batches, dirs, singles)
        };
        for batch in batches {
            let mut batch = locked(&batch);
            if std::mem::replace(&mut batch.settled, true) {
                continue;
            }
            // A worker that still holds an answer to it finds that nothing is wanted.
            batch.wanted.clear();
            batch.slot.mark_incomplete();
            self.done_with(crew, &mut batch);
        }
        for slot in dirs {
            slot.mark_incomplete();
            self.desk.release(&mut crew.hand, slot);
        }
        for single in singles {
            single.slot.mark_incomplete();
            self.desk.release(&mut crew.hand, single.slot);
        }
    }

    /// Publishes and syncs what waits for it first. Marks of complete trees stay where the user is on the other side: a
    /// summary that is lost must not make the same command mean something else. They are to be cleared once it was heard.
    fn end(self, cut_short: bool) -> (crate::event::Summary, Marks) {
        if cut_short {
            self.desk.tally.cut_short();
        }
        let mut hand = self.desk.disk.hand();
        let places = std::mem::take(&mut self.state().places);
        for (_, place) in places {
            self.desk.release(&mut hand, place);
        }
        // Those that a lost connection left: what is in their directories is complete or was taken back.
        self.offers().queue.clear();
        self.desk.publish_group(&mut hand);
        self.desk.sync_names();
        self.tell_store();
        let mut desk = self.desk;
        if let Some(manifest) = desk.beside.manifest.take() {
            manifest.finish(&desk.tally);
        }
        let marks = if self.what.echo {
            desk.unmark();
            Marks::NONE
        } else {
            desk.marks()
        };
        (desk.end(), marks)
    }
}

/// What the sender's proofs for one file are keyed with.
fn nonce() -> Result<[u8; 32]> {
    let mut nonce = [0; 32];
    fastcopy::process::random(&mut nonce).map_err(|e| Error::os(Op::MakeANonce, "", e))?;
    Ok(nonce)
}

/// A content of another length than its entry was said to have (V13).
pub(crate) fn other_size(path: PathBuf, said: u64, came: u64) -> Error {
    let note = Reason::SaidAndCame.about(said).about(came);
    Error::ours(Code::Mismatch, Op::Receive, path, note)
}

fn locked(batch: &Mutex<Batch>) -> MutexGuard<'_, Batch> {
    // A thread that panicked stops the transfer; the batch serves only to be given up then.
    batch.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_file(batch: &Batch, index: usize) -> bool {
    batch.metas.get(index).is_some_and(|m| m.info.kind == Kind::File)
}

fn parent_of(shown: &Path) -> &Path {
    shown.parent().unwrap_or(shown)
}

/// Unpacks contents: as they are, or with their length in front.
pub(crate) fn unpack<'p>(
    unpacker: &mut Unpacker,
    codec: Codec,
    packed: &'p [u8],
) -> Result<std::borrow::Cow<'p, [u8]>> {
    if codec == Codec::Raw {
        return Ok(packed.into());
    }
    let (length, rest) = contents::unpacked(packed).map_err(|_| refused(Reason::PackedWithoutLength))?;
    let mut bytes = Vec::new();
    unpacker
        .unpack(codec, rest, length as u64, limits::CONTENTS_BYTES_MAX, &mut bytes)
        .map_err(|e| refused(Reason::BadContents.about(e.to_string())))?;
    Ok(bytes.into())
}

/// Makes one directory that was named.
pub(crate) fn directory(reach: &Reach, path: &Path, mode: u32) -> Result<()> {
    match operands::target(reach, &Target::Exactly(path.to_owned()), 1, DestLink::Itself)? {
        Where::Name { dir, name, .. } => {
            let made = ensure_dir(&dir.dir, name.as_name(), mode & 0o777)
                .map_err(|e| Error::os(Op::MakeDirectory, path, e))?;
            if made {
                Ok(())
            } else {
                Err(Error::ours(Code::InTheWay, Op::MakeDirectory, path, Reason::AlreadyThere))
            }
        }
        Where::Into(_) | Where::Whole(_) => {
            Err(Error::ours(Code::InTheWay, Op::MakeDirectory, path, Reason::AlreadyThere))
        }
    }
}
