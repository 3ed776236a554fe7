//! The wire as a source: the one receiver of the protocol, over any destination.
//!
//! The same code in `bcmr serve` (PUT) and in the client (GET); `docs/protocol.md`, section 5, rules. Must not know how
//! bytes travel (frames are handed in, answers go out through [`Reply`]), nor what becomes of an entry.
//!
//! Bounds: the sender keeps to the windows of the protocol and is cut off when it does not; a batch holds the names
//! and attributes of its entries, a large file what [`arriving`] lets wait.
//!
//! [`arriving`]: crate::receiver::arriving

use crate::codec::Unpacker;
use crate::disk::{Attributes, Bytes, Fault};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Compared, Summary, Watch};
use crate::node::Node;
use crate::peer::incoming::{Incoming, refused};
use crate::peer::named::Named;
use crate::policy::{CopyPolicy, Follow};
use crate::pulse::{For, Pulse};
use crate::receiver::arriving::{Arriving, Ask, End, Line, Load};
use crate::receiver::choose::Way;
use crate::receiver::claims::{Claimed, Spot};
use crate::receiver::dir_task::{DirTask, Dropped, Hold, Origin, PairedDirs};
use crate::receiver::directories::Marks;
use crate::tally::Tally;
use crate::trouble::error_of;
use crate::verbs::destination::{Destination, DirEntry, Entering};
use crate::verbs::operands::{self, Dest, Place};
use bcmr_wire::contents::{self, Item};
use bcmr_wire::limits;
use bcmr_wire::message::{
    self, Codec, DirState, Entry, FileState, Kind as WireKind, Message, Piece, Trouble, data,
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

/// Operands that were announced and whose entry has not come.
const SINGLES_MAX: usize = limits::DIRS_OUT_MAX * 16;

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

    /// The same; the other side cannot be told that it was not heard.
    pub(crate) fn answer(&self, message: &Message<'_>) -> Result<()> {
        self.send(message).map_err(told)
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

fn told(e: io::Error) -> Error {
    Error { code: Code::Lost, ..Error::os(Op::SendToTheOtherSide, "", e) }
}

/// What a transfer is about, and where answers go.
pub(crate) struct IncomingTransfer<'a> {
    pub(crate) policy: &'a CopyPolicy,
    pub(crate) what: Arc<Incoming>,
    pub(crate) reply: &'a Reply,
}

/// Attributes as they came.
pub(crate) type CarriedAttrs = Vec<(CString, Vec<u8>)>;

/// A source directory on the other machine.
pub(crate) struct Far {
    pub(crate) info: Info,
    pub(crate) attrs: CarriedAttrs,
    pub(crate) node: Arc<Node>,
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

/// A directory over there and what it becomes.
pub(crate) type FarTask<D> = DirTask<Far, <D as Destination<Far>>::Dir>;
/// Something to be done in it.
type FarHold<D> = Hold<Far, <D as Destination<Far>>::Dir>;

/// One entry that came, kept while it waits.
pub(crate) struct Meta {
    pub(crate) name: NameBuf,
    pub(crate) to: NameBuf,
    pub(crate) info: Info,
    pub(crate) attrs: CarriedAttrs,
    pub(crate) link: CString,
    /// What it is shown as, where it is an operand.
    shown: Option<PathBuf>,
}

impl Meta {
    /// Its path in a directory over there, as it is shown.
    pub(crate) fn path(&self, above: &Node) -> PathBuf {
        self.shown.clone().unwrap_or_else(|| above.join(self.name.as_name()))
    }

    fn is_file(&self) -> bool {
        self.info.kind == Kind::File
    }
}

/// What is to be done with an entry.
#[derive(Clone, Copy)]
pub(crate) enum Chosen<V> {
    /// Nothing more.
    Nothing,
    /// It is wanted: a file's content, everything else as it is.
    Want(V),
    /// It is a further name of something that is on its way.
    Further,
}

/// An entry that was wanted and is here.
pub(crate) struct Arrived<'n, V> {
    pub(crate) meta: &'n Meta,
    pub(crate) verdict: V,
    /// The content of a file.
    pub(crate) item: Option<Item<'n>>,
}

/// A destination of what comes off the wire.
pub(crate) trait WireDestination<'a>: Destination<Far> {
    /// What was found out of an entry that is wanted.
    type Verdict: Copy + Send;

    /// Bytes of files may come: along with their entries, in pieces, as blocks of a store. Else only what tells whether two
    /// are the same.
    const TAKES_BYTES: bool;

    /// As [`Destination::base`], for names of a list.
    ///
    /// # Errors
    /// Nothing can go into it.
    fn list_base(&self, place: &Place) -> Result<Self::Dir>;
    /// The directory of an operand, held until it is listed.
    fn top(
        &self,
        pair: PairedDirs<Far, Self::Dir>,
        dropped: &Arc<Dropped<Far, Self::Dir>>,
    ) -> Hold<Far, Self::Dir> {
        DirTask::top(pair, dropped)
    }
    /// Whether this run has made it: then the sender need not ask what is in it.
    fn is_new(&self, dir: &Self::Dir) -> bool;
    /// The destination of the name `to`, as it is shown.
    fn shown(&self, dir: &Self::Dir, to: Name<'_>) -> PathBuf;
    /// An operand is to be merged with what an earlier one became.
    ///
    /// # Errors
    /// The sender has not said that the earlier one is complete.
    fn merges(&self, _: &mut Self::Buffers, _earlier: Option<&FarTask<Self>>) -> Result<()> {
        Ok(())
    }

    /// What becomes of an entry of `pair`, where `spot` is among the names that sources claim.
    fn choose(&self, pair: &Arc<FarTask<Self>>, spot: &Spot, meta: &Meta) -> Chosen<Self::Verdict>;
    /// The same for a further name. `None`: its first one is still on its way.
    fn choose_further(
        &self,
        _: &mut Self::Buffers,
        _: &Arc<FarTask<Self>>,
        _: &Meta,
    ) -> Option<Chosen<Self::Verdict>> {
        Some(Chosen::Nothing)
    }
    /// Files that are given to [`WireDestination::land`] at a time.
    fn room(&self, pair: &FarTask<Self>) -> usize;
    /// Takes entries that came.
    ///
    /// # Errors
    /// The sender broke the protocol.
    fn land(
        &self,
        buffers: &mut Self::Buffers,
        pair: &Arc<FarTask<Self>>,
        way: Way,
        came: &mut Vec<Arrived<'_, Self::Verdict>>,
    ) -> Result<()>;

    /// What is known of a large file before the first of it comes.
    ///
    /// # Errors
    /// This machine gives no random bytes.
    fn prepare(&self, arriving: Arriving<'a>) -> Result<Arriving<'a>> {
        Ok(arriving)
    }
    /// Whether the sender hashes the blocks of large files.
    fn wants_values(&self) -> bool;
    /// Whether only the thread that takes a large file can say from where on it is wanted.
    fn is_late(&self, meta: &Meta, verdict: Self::Verdict) -> bool;
    /// Takes a large file.
    fn land_large(
        &self,
        buffers: &mut Self::Buffers,
        pair: &Arc<FarTask<Self>>,
        wanted: (&Meta, Self::Verdict),
        arriving: &Arc<Arriving<'a>>,
    );
    /// Nothing more is to be done for a large file.
    fn settled(&self, _file: u64) {}
    /// The sender says which blocks of a large file it has.
    ///
    /// # Errors
    /// It was not asked to, or this cannot be answered.
    fn have_blocks(&self, _: &Arriving<'a>, _first: u64, _values: &[[u8; 32]]) -> Result<()> {
        Err(refused(Reason::BlocksNotAsked))
    }
    /// The sender's proof that it has blocks from `first` on.
    ///
    /// # Errors
    /// It proves what was not asked for.
    fn proof(&self, _: &Arriving<'a>, _first: u64, _tags: &[[u8; 32]]) -> Result<()> {
        Err(refused(Reason::ProofOfNothing))
    }

    /// Says what was done, and gives the marks that are to be cleared once that was heard.
    fn end(self) -> (Summary, Marks);
}

/// A batch with entries that wait for their content or for another name of the same file.
struct WireBatch<T, V> {
    id: u64,
    slot: Arc<DirTask<Far, T>>,
    /// Until nothing more is to be done.
    hold: Option<Hold<Far, T>>,
    metas: Vec<Meta>,
    /// Asked for, and not here yet. Contents say not whose they are: one answer at a time, or two could arrive over
    /// two streams in the wrong order.
    wanted: Vec<(usize, V)>,
    /// To be asked for when nothing else is.
    later: Vec<(usize, V)>,
    further: Vec<usize>,
    way: Way,
    /// Nothing more is to be done.
    settled: bool,
}

/// A large file on offer.
struct LargeOffer<'a, T, V> {
    arriving: Arc<Arriving<'a>>,
    slot: Hold<Far, T>,
    meta: Meta,
    /// Absent for a further name: what becomes of it is known once its first name, which was offered before, is settled.
    verdict: Option<V>,
    /// The sender was told to begin.
    begun: bool,
}

struct LargeOffers<'a, T, V> {
    queue: VecDeque<LargeOffer<'a, T, V>>,
    /// Nothing more will come.
    ended: bool,
    /// Offers that were not begun when they were queued: later ones wait for them, as the sender sends in the order in which
    /// it was told to.
    undecided: usize,
}

/// What an operand became that has a name.
struct Became<T> {
    /// A directory.
    dir: Weak<DirTask<Far, T>>,
    /// Which it is at the source.
    id: (u64, u64),
    shown: PathBuf,
    /// Which of the operands.
    owner: u32,
}

impl<T> Became<T> {
    /// Whether another operand of this name is the very same one. Directories are merged.
    ///
    /// # Errors
    /// It is another one, and no directory.
    fn is_same(&self, info: &Info, dest: &Dest, shown: &Path) -> Result<bool> {
        if self.id != info.id() && info.kind != Kind::Dir {
            let why =
                Reason::EarlierSource.about(self.shown.as_path()).about(operands::shown(dest).as_path());
            return Err(Error::ours(Code::Refused, Op::Copy, shown, why));
        }
        Ok(self.id == info.id())
    }
}

/// Where an operand that is no directory goes.
struct SingleOperand<T> {
    slot: Hold<Far, T>,
    spot: Spot,
    to: NameBuf,
    kind: WireKind,
    shown: PathBuf,
}

/// Where entries go.
struct EntriesGoal<T> {
    slot: Hold<Far, T>,
    /// Where it is among the names that sources claim.
    spot: Spot,
    /// The name of the one operand, and what it is shown as.
    operand: Option<(NameBuf, PathBuf)>,
    way: Way,
}

/// Files of one message.
struct FilesMessage<'m> {
    entries: &'m [Entry<'m>],
    inline: bool,
    codec: Codec,
    packed: &'m [u8],
}

/// What is open.
struct Open<'a, T, V> {
    dirs: HashMap<u64, Hold<Far, T>>,
    singles: HashMap<u64, SingleOperand<T>>,
    /// Each behind a lock of its own: several streams bring what concerns one.
    batches: HashMap<u64, Arc<Mutex<WireBatch<T, V>>>>,
    files: HashMap<u64, Arc<Arriving<'a>>>,
    places: Vec<(Arc<Place>, Hold<Far, T>)>,
    /// What operands become: two directories of one name are merged, the second once the first is done.
    names: HashMap<NameBuf, Became<T>>,
    named: Named,
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

/// What each thread that receives keeps for itself.
pub(crate) struct ReceiverBuffers<B> {
    pub(crate) of_destination: B,
    pub(crate) unpacker: Unpacker,
}

/// Handles what comes off the streams.
pub(crate) trait MessageHandler: Sync + Sized {
    /// What the destination keeps for each thread.
    type Buffers;
    /// Where it is told, and what may stop it.
    fn watch(&self) -> Watch<'_>;
    /// What was asked for.
    fn what(&self) -> &Incoming;
    /// What a thread that handles messages needs.
    fn buffers(&self) -> ReceiverBuffers<Self::Buffers>;
    /// One message, but no [`Message::Data`].
    ///
    /// # Errors
    /// When the sender broke the protocol, or cannot be answered: the transfer is over. What happens to single items is
    /// told to the watch.
    fn handle(&self, worker: &mut ReceiverBuffers<Self::Buffers>, message: Message<'_>) -> Result<()>;
    /// A piece of a large file.
    ///
    /// # Errors
    /// As [`MessageHandler::handle`].
    fn piece(&self, stream: usize, head: &Head, load: Load) -> Result<()>;
    /// Settles large files, one after the other, until the sender has sent everything. Runs in a thread of its own.
    ///
    /// # Errors
    /// As [`MessageHandler::handle`].
    fn land_large(&self) -> Result<()>;
    /// Whether the sender has said that it is done.
    fn is_complete(&self) -> bool;
    /// The transfer has failed: called at once, from any thread, so that none goes on waiting for what does not come.
    fn lose(&self) {}
    /// Nothing more comes, for whatever reason.
    fn leave(&self, worker: &mut ReceiverBuffers<Self::Buffers>);
    /// After [`MessageHandler::leave`] and the end of [`MessageHandler::land_large`]: says what was done, and gives the
    /// marks that are to be cleared once that was heard. `cut_short` when the connection was lost: not all that was to be
    /// done was.
    fn end(self, cut_short: bool) -> (Summary, Marks);
}

/// One transfer, at the receiver.
pub(crate) struct FromWire<'a, D: WireDestination<'a>> {
    to: D,
    policy: &'a CopyPolicy,
    what: Arc<Incoming>,
    reply: &'a Reply,
    /// The sender's number, once it has said it.
    sender_origin: AtomicU64,
    open: Mutex<Open<'a, D::Dir, D::Verdict>>,
    offers: Mutex<LargeOffers<'a, D::Dir, D::Verdict>>,
    offered: Condvar,
    all_sent: AtomicBool,
    line: Arc<Line<'a>>,
    /// The sender is told how files were compared.
    tells_how: bool,
    dropped: Arc<Dropped<Far, D::Dir>>,
}

/// What a thread keeps for itself when it brings entries to `D`.
type Worker<D> = ReceiverBuffers<<D as Destination<Far>>::Buffers>;

impl<'a, D: WireDestination<'a>> FromWire<'a, D> {
    /// Nothing has come yet.
    pub(crate) fn new(transfer: IncomingTransfer<'a>, watch: Watch<'a>, to: D) -> FromWire<'a, D> {
        let IncomingTransfer { policy, what, reply } = transfer;
        let patience = Duration::from_millis(limits::DEAD_MS);
        FromWire {
            to,
            policy,
            reply,
            sender_origin: AtomicU64::new(0),
            open: Mutex::new(Open {
                dirs: HashMap::new(),
                singles: HashMap::new(),
                batches: HashMap::new(),
                files: HashMap::new(),
                places: Vec::new(),
                names: HashMap::new(),
                named: Named::default(),
            }),
            offers: Mutex::new(LargeOffers { queue: VecDeque::new(), ended: false, undecided: 0 }),
            offered: Condvar::new(),
            all_sent: AtomicBool::new(false),
            line: Arc::new(Line::new(watch.cancel, what.streams, patience, reply.pulse.clone())),
            what,
            tells_how: false,
            dropped: Arc::default(),
        }
    }

    /// The same, telling the sender how files were compared.
    pub(crate) fn telling(self, tells_how: bool) -> FromWire<'a, D> {
        FromWire { tells_how, ..self }
    }

    /// What names of a manifest are relative to.
    pub(crate) fn base(&self) -> Result<PathBuf> {
        self.what.to.base()
    }

    fn open(&self) -> MutexGuard<'_, Open<'a, D::Dir, D::Verdict>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offers(&self) -> MutexGuard<'_, LargeOffers<'a, D::Dir, D::Verdict>> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, slot: &FarTask<D>, e: Error) {
        slot.mark_incomplete();
        self.to.tally().fail(e);
    }

    /// A file on its way; `None` when it is settled and the sender has not heard of that yet.
    fn arriving(&self, file: u64) -> Result<Option<Arc<Arriving<'a>>>> {
        let open = self.open();
        match open.files.get(&file).cloned() {
            None => open.named.was_offered(file).map(|()| None),
            known => Ok(known),
        }
    }

    /// The sender's number; one for a whole transfer.
    fn origin(&self) -> u64 {
        self.sender_origin.load(Ordering::Relaxed)
    }

    fn attrs_of(&self, entry: &Entry<'_>) -> Result<CarriedAttrs> {
        // They are not kept: then they are not even held.
        if !self.policy.preserve.xattr && !self.policy.preserve.acl {
            return Ok(CarriedAttrs::new());
        }
        let one = |(name, value): &(&[u8], &[u8])| {
            CString::new(*name).map(|n| (n, value.to_vec())).map_err(|_| refused(Reason::BadAttributeName))
        };
        entry.attrs.iter().map(one).collect()
    }

    fn meta_of(&self, entry: &Entry<'_>, operand: Option<&(NameBuf, PathBuf)>) -> Result<Meta> {
        let name = NameBuf::new(entry.name).ok_or_else(|| refused(Reason::BadName))?;
        let link = CString::new(entry.link).map_err(|_| refused(Reason::BadLinkTarget))?;
        let info = self.what.info_of(entry, self.origin());
        let (to, shown) = operand.cloned().map_or_else(|| (name.clone(), None), |(to, p)| (to, Some(p)));
        Ok(Meta { name, to, info, attrs: self.attrs_of(entry)?, link, shown })
    }

    /// V1, for names of a list.
    fn is_asked(&self, slot: &FarTask<D>, meta: &Meta) -> Result<()> {
        if self.what.asked.takes(slot.src.node(), &meta.name, &meta.info) {
            return Ok(());
        }
        Err(refused(Reason::NameNotAsked))
    }

    fn pair(src: Arc<Far>, dst: D::Dir, ours: bool, spot: Spot) -> PairedDirs<Far, D::Dir> {
        PairedDirs { dev: src.info.dev, src, dst, ours, spot }
    }

    fn operand(
        &self,
        worker: &mut Worker<D>,
        id: u64,
        (path, whole, origin): (&[u8], bool, u64),
        entry: &Entry<'_>,
    ) -> Result<()> {
        let name = if whole { None } else { NameBuf::new(entry.name) };
        self.open().named.operand(&self.what, id, origin, name.as_ref(), entry)?;
        self.what.no_link(self.policy.follow != Follow::Never, entry.kind)?;
        self.sender_origin.store(origin, Ordering::Relaxed);
        let shown = self.what.shown(Path::new(OsStr::from_bytes(path)));
        match self.place(worker, id, &shown, whole, entry) {
            Ok(Some(state)) => self.reply.answer(&Message::DirIs { dir: id, state }),
            // Nothing of it is wanted, or it is the very same source once more: it is taken once.
            Ok(None) => self.refuse(id),
            Err(e) if e.code == Code::Protocol => Err(e),
            Err(e) => {
                self.to.tally().fail(e);
                self.refuse(id)
            }
        }
    }

    /// Nothing is wanted of a directory, nor of what is below it.
    fn refuse(&self, id: u64) -> Result<()> {
        self.open().named.refuse(id);
        self.reply.answer(&Message::DirIs { dir: id, state: DirState::Refused })
    }

    /// Finds the place of an operand and enters the directory that it becomes.
    fn place(
        &self,
        worker: &mut Worker<D>,
        id: u64,
        shown: &Path,
        whole: bool,
        entry: &Entry<'_>,
    ) -> Result<Option<DirState>> {
        let meta = if whole { None } else { Some(self.meta_of(entry, None)?) };
        let info = self.what.info_of(entry, self.origin());
        // The directory of a list of names is only where they are.
        let listed = whole && self.what.listed;
        if info.kind == Kind::Dir && !self.policy.recursive && !listed {
            return Err(Error::ours(Code::IsDirectory, Op::Copy, shown, Reason::IsDirectory));
        }
        let dest = self.what.to.dest(meta.map(|meta| meta.name), &info)?;
        let fills = matches!(dest, Dest::Whole(_));
        let mut spot = self.to.claims().operand(shown, fills);
        if let Dest::Named { name, .. } = &dest {
            match self.follows(worker, (name, &dest), &info, shown, spot.owner)? {
                Claimed::Same => return Ok(None),
                Claimed::Other(earlier) => spot = spot.after(earlier),
                Claimed::First | Claimed::Again | Claimed::Unless(_) => {}
            }
        }
        if spot.owner > 0 && (fills || self.to.claims().has_whole()) {
            // What waits to be synced with others would be made a second time beside itself.
            self.to.worked(&mut worker.of_destination);
            spot = spot.after(0);
        }
        operands::nesting(&self.what.reach, &info, fills, &dest, self.policy, shown, Op::Copy)?;
        let src = Far { info, attrs: self.attrs_of(entry)?, node: Node::root(shown) };
        let (place, name) = match dest {
            Dest::Whole(place) => {
                let dst = if self.what.listed {
                    self.to.list_base(&place)?
                } else {
                    self.to.fills(&src, &place)?;
                    self.to.base(&place)?
                };
                let pair = Self::pair(Arc::new(src), dst, !self.what.listed, spot);
                return Ok(Some(self.opened(id, self.to.top(pair, &self.dropped))));
            }
            Dest::Named { dir, name } => (dir, name),
        };
        let above = self.surroundings(&place, &src, shown)?;
        if info.kind != Kind::Dir {
            let mut open = self.open();
            if open.singles.len() < SINGLES_MAX {
                let (kind, shown) = (entry.kind, shown.to_owned());
                open.singles.insert(id, SingleOperand { slot: above, spot, to: name, kind, shown });
                return Ok(Some(DirState::There));
            }
            drop(open);
            self.to.release(&mut worker.of_destination, above);
            return Err(Error::ours(Code::Limit, Op::Copy, shown, Reason::TooManyOperands));
        }
        let by = match (listed, whole) {
            (true, _) => Entering::ListBase,
            (false, true) => Entering::Whole,
            (false, false) => Entering::Operand,
        };
        let src = Arc::new(src);
        let met = DirEntry::met(name.as_name(), name.as_name(), Kind::Dir, false);
        let entered = self.to.enter(&mut worker.of_destination, &above, &src, met, by);
        let dst = match entered {
            Ok(Some(dst)) => dst,
            other => {
                above.mark_incomplete();
                self.to.release(&mut worker.of_destination, above);
                return other.map(|_| None);
            }
        };
        let below = self.to.claims().below(&spot, name.as_name());
        let slot = DirTask::below(above, Self::pair(src, dst, true, below));
        let dir = Arc::downgrade(&*slot);
        self.open().names.entry(name).and_modify(|became| became.dir = dir);
        Ok(Some(self.opened(id, slot)))
    }

    /// The directory that an operand goes into.
    fn surroundings(&self, place: &Arc<Place>, src: &Far, shown: &Path) -> Result<FarHold<D>> {
        let parent = shown.parent().unwrap_or(shown);
        let known =
            self.open().places.iter().rev().find(|(p, _)| Arc::ptr_eq(p, place)).map(|(_, slot)| slot.hold());
        let dst = match known {
            Some(slot) if slot.src.node.path() == parent => return Ok(slot),
            // Operands of one command mostly go to one place: its lock is held once, so it is opened once.
            Some(slot) => self.to.share(&slot.dst),
            None => self.to.base(place)?,
        };
        let src = Far { info: src.info, attrs: Vec::new(), node: Node::root(parent) };
        let slot = self.to.top(Self::pair(Arc::new(src), dst, false, Spot::default()), &self.dropped);
        let hold = slot.hold();
        self.open().places.push((place.clone(), slot));
        Ok(hold)
    }

    /// Files may come for a directory from now on.
    fn opened(&self, id: u64, slot: FarHold<D>) -> DirState {
        let is_new = self.to.is_new(&slot.dst);
        self.open().dirs.insert(id, slot);
        if is_new { DirState::New } else { DirState::There }
    }

    /// Whether the operand `owner` may become `name`, which an earlier one may have become: the very same one, or another
    /// that it is merged with.
    fn follows(
        &self,
        worker: &mut Worker<D>,
        (name, dest): (&NameBuf, &Dest),
        info: &Info,
        shown: &Path,
        owner: u32,
    ) -> Result<Claimed> {
        let (earlier, first) = match self.open().names.entry(name.clone()) {
            Slotted::Vacant(slot) => {
                slot.insert(Became { dir: Weak::new(), id: info.id(), shown: shown.to_owned(), owner });
                return Ok(Claimed::First);
            }
            Slotted::Occupied(slot) if slot.get().is_same(info, dest, shown)? => return Ok(Claimed::Same),
            Slotted::Occupied(slot) => (slot.get().dir.clone(), slot.get().owner),
        };
        self.to.merges(&mut worker.of_destination, earlier.upgrade().as_deref())?;
        Ok(Claimed::Other(first))
    }

    fn dir(&self, worker: &mut Worker<D>, id: u64, parent: u64, entry: &Entry<'_>) -> Result<()> {
        let above = {
            let mut open = self.open();
            let count = open.dirs.len();
            open.named.dir(id, count)?;
            match open.dirs.get(&parent) {
                Some(above) => above.hold(),
                None => {
                    open.named.was_refused(parent, Reason::DirectoryInNone)?;
                    drop(open);
                    return self.refuse(id);
                }
            }
        };
        if entry.kind != WireKind::Dir {
            return Err(refused(Reason::DirectoryThatIsNone));
        }
        let meta = self.meta_of(entry, None)?;
        self.is_asked(&above, &meta)?;
        let name = meta.name.as_name();
        self.to.met(&above, name);
        self.to.expect(&above, 1);
        let src = Arc::new(Far { info: meta.info, attrs: meta.attrs, node: above.src.node.below(name) });
        let met = DirEntry::met(name, name, Kind::Dir, false);
        let by = if self.what.listed { Entering::List } else { Entering::Walk };
        match self.to.enter(&mut worker.of_destination, &above, &src, met, by) {
            Ok(Some(dst)) => {
                let spot = self.to.claims().below(&above.spot, name);
                let slot = DirTask::below(above, Self::pair(src, dst, true, spot));
                let state = self.opened(id, slot);
                self.reply.answer(&Message::DirIs { dir: id, state })
            }
            Ok(None) => {
                above.mark_incomplete();
                self.to.release(&mut worker.of_destination, above);
                self.refuse(id)
            }
            Err(e) => {
                self.failed(&above, e);
                self.to.release(&mut worker.of_destination, above);
                self.refuse(id)
            }
        }
    }

    fn dir_end(&self, worker: &mut Worker<D>, id: u64, partial: bool) -> Result<()> {
        let slot = {
            let mut open = self.open();
            let Some(slot) = open.dirs.remove(&id) else {
                return open.named.was_refused(id, Reason::EndOfClosed);
            };
            slot
        };
        if partial {
            slot.mark_incomplete();
        } else {
            self.to.listed(&slot);
        }
        self.to.release(&mut worker.of_destination, slot);
        Ok(())
    }

    /// Where entries of `dir` go: a directory, or the name of one operand; `None`: it was refused. The slot waits for
    /// them, to be sealed and, if they are `small`, to get its name.
    fn goes_to(&self, dir: u64, entries: &[Entry<'_>], small: bool) -> Result<Option<EntriesGoal<D::Dir>>> {
        let mut open = self.open();
        if let Some(slot) = open.dirs.get(&dir) {
            let slot = if small { slot.hold_name() } else { slot.hold() };
            return Ok(Some(EntriesGoal { spot: slot.spot, slot, operand: None, way: Way::Small }));
        }
        let fits = |single: &SingleOperand<D::Dir>| matches!(entries, [one] if one.kind == single.kind);
        if open.singles.get(&dir).is_some_and(|single| !fits(single)) {
            return Err(refused(Reason::OtherOperand));
        }
        match open.singles.remove(&dir) {
            Some(SingleOperand { slot, spot, to, shown, .. }) => {
                Ok(Some(EntriesGoal { slot, spot, operand: Some((to, shown)), way: Way::Alone }))
            }
            None => open.named.was_refused(dir, Reason::EntriesOfClosed).map(|()| None),
        }
    }

    /// Nothing more is to be done for a batch.
    fn done_with(&self, worker: &mut Worker<D>, batch: &mut WireBatch<D::Dir, D::Verdict>) {
        if let Some(hold) = batch.hold.take() {
            self.to.release(&mut worker.of_destination, hold);
        }
    }

    fn files(&self, worker: &mut Worker<D>, id: u64, dir: u64, files: &FilesMessage<'_>) -> Result<()> {
        self.open().named.batch(id)?;
        if files.entries.iter().any(|e| e.kind == WireKind::Dir) {
            return Err(refused(Reason::DirectoryAmongFiles));
        }
        if files.inline && !D::TAKES_BYTES {
            return Err(refused(Reason::ContentsNotAsked));
        }
        let Some(goal) = self.goes_to(dir, files.entries, true)? else {
            self.open().named.settle_batch(id)?;
            return self.reply.answer(&Message::Wants { batch: id, entries: Vec::new() });
        };
        let EntriesGoal { slot, spot, operand, way } = goal;
        let (wanted, later, further) = (Vec::new(), Vec::new(), Vec::new());
        let (slot, hold, metas) = (slot.clone(), Some(slot), Vec::new());
        let mut batch = WireBatch { id, slot, hold, metas, wanted, later, further, way, settled: false };
        if let Err(e) = self.fill(worker, &mut batch, (&spot, operand.as_ref()), files) {
            // The sender has broken the protocol in the middle of a batch: its directory must not wait for it.
            batch.slot.mark_incomplete();
            self.done_with(worker, &mut batch);
            return Err(e);
        }
        // Known before anything is asked: an answer may come over another stream at once.
        let batch = Arc::new(Mutex::new(batch));
        self.open().batches.insert(id, batch.clone());
        self.go_on(worker, &mut locked(&batch))?;
        self.look_again(worker)
    }

    fn fill(
        &self,
        worker: &mut Worker<D>,
        batch: &mut WireBatch<D::Dir, D::Verdict>,
        (spot, operand): (&Spot, Option<&(NameBuf, PathBuf)>),
        files: &FilesMessage<'_>,
    ) -> Result<()> {
        for entry in files.entries {
            self.what.no_link(self.policy.follow == Follow::Always, entry.kind)?;
            let meta = self.meta_of(entry, operand)?;
            self.is_asked(&batch.slot, &meta)?;
            if operand.is_none() {
                self.to.met(&batch.slot, meta.name.as_name());
            }
            batch.metas.push(meta);
        }
        // What has no content lands at once.
        let mut plain = Vec::new();
        for (index, meta) in batch.metas.iter().enumerate() {
            match self.choose(&batch.slot, spot, meta) {
                Chosen::Nothing => {}
                Chosen::Want(verdict) if meta.is_file() => batch.wanted.push((index, verdict)),
                Chosen::Want(verdict) => plain.push(Arrived { meta, verdict, item: None }),
                Chosen::Further => batch.further.push(index),
            }
        }
        self.to.land(&mut worker.of_destination, &batch.slot, batch.way, &mut plain)?;
        drop(plain);
        if files.inline {
            let bytes = unpack(&mut worker.unpacker, files.codec, files.packed)?;
            let files: Vec<usize> =
                batch.metas.iter().enumerate().filter(|(_, m)| m.is_file()).map(|(index, _)| index).collect();
            self.land_contents(&mut worker.of_destination, batch, &bytes, true, &files)?;
        } else if !files.packed.is_empty() {
            return Err(refused(Reason::ContentsNotAnnounced));
        }
        batch.later = std::mem::take(&mut batch.wanted);
        Ok(())
    }

    /// What becomes of an entry.
    fn choose(&self, slot: &Arc<FarTask<D>>, spot: &Spot, meta: &Meta) -> Chosen<D::Verdict> {
        if self.policy.specials
            && let Err(e) =
                self.what.no_device(meta.info.kind, || self.to.shown(&slot.dst, meta.to.as_name()))
        {
            self.failed(slot, e);
            return Chosen::Nothing;
        }
        self.to.choose(slot, spot, meta)
    }

    /// Contents of the entries `files`, in their order; what is not wanted of them is dropped.
    fn land_contents(
        &self,
        buffers: &mut D::Buffers,
        batch: &mut WireBatch<D::Dir, D::Verdict>,
        bytes: &[u8],
        exactly: bool,
        files: &[usize],
    ) -> Result<()> {
        let wanted = std::mem::take(&mut batch.wanted);
        let room = self.to.room(&batch.slot);
        let mut items = if exactly {
            contents::items(bytes, self.what.hashes, files.len())
        } else {
            contents::items_up_to(bytes, self.what.hashes, files.len())
        };
        let mut came = Vec::new();
        let mut count = 0;
        for index in files {
            let item = match items.next() {
                Some(Ok(item)) => item,
                None if !exactly => break,
                Some(Err(_)) | None => return Err(refused(Reason::ContentsDoNotFit)),
            };
            count += 1;
            let Some(meta) = batch.metas.get(*index) else { continue };
            let Some((_, verdict)) = wanted.iter().find(|(i, _)| i == index) else { continue };
            came.push(Arrived { meta, verdict: *verdict, item: Some(item) });
            if came.len() >= room {
                self.to.land(buffers, &batch.slot, batch.way, &mut came)?;
            }
        }
        if items.next().is_some() {
            return Err(refused(Reason::MoreContentsThanEntries));
        }
        self.to.land(buffers, &batch.slot, batch.way, &mut came)?;
        drop(came);
        // What is still to come.
        let came = files.get(..count).unwrap_or_default();
        batch.wanted = wanted.into_iter().filter(|(i, _)| !came.contains(i)).collect();
        Ok(())
    }

    fn contents(&self, worker: &mut Worker<D>, id: u64, codec: Codec, packed: &[u8]) -> Result<()> {
        let known = self.open().batches.get(&id).cloned();
        let Some(known) = known else {
            return Err(refused(Reason::ContentsNotWaitedFor));
        };
        let mut guard = locked(&known);
        let batch = &mut *guard;
        if batch.wanted.is_empty() {
            return Err(refused(Reason::ContentsNotWaitedFor));
        }
        let files: Vec<usize> = batch.wanted.iter().map(|(i, _)| *i).collect();
        let bytes = unpack(&mut worker.unpacker, codec, packed)?;
        self.land_contents(&mut worker.of_destination, batch, &bytes, false, &files)?;
        if batch.wanted.len() == files.len() {
            return Err(refused(Reason::ContentsOfNothing));
        }
        self.go_on(worker, batch)?;
        drop(guard);
        self.look_again(worker)
    }

    /// Further names whose first one has landed meanwhile are linked; one whose first could not be landed is wanted
    /// itself.
    fn resolve(&self, buffers: &mut D::Buffers, batch: &mut WireBatch<D::Dir, D::Verdict>) -> Result<()> {
        for index in std::mem::take(&mut batch.further) {
            let Some(meta) = batch.metas.get(index) else { continue };
            match self.to.choose_further(buffers, &batch.slot, meta) {
                None | Some(Chosen::Further) => batch.further.push(index),
                Some(Chosen::Nothing) => {}
                Some(Chosen::Want(verdict)) if meta.is_file() => batch.later.push((index, verdict)),
                Some(Chosen::Want(verdict)) => {
                    let mut came = vec![Arrived { meta, verdict, item: None }];
                    self.to.land(buffers, &batch.slot, batch.way, &mut came)?;
                }
            }
        }
        Ok(())
    }

    /// Takes a batch as far as it goes now: links what can be linked, asks for what is wanted, and is done with it when
    /// nothing is left.
    fn go_on(&self, worker: &mut Worker<D>, batch: &mut WireBatch<D::Dir, D::Verdict>) -> Result<()> {
        if batch.settled {
            return Ok(());
        }
        self.resolve(&mut worker.of_destination, batch)?;
        if !batch.wanted.is_empty() {
            return Ok(());
        }
        if !batch.later.is_empty() {
            batch.wanted = std::mem::take(&mut batch.later);
            batch.wanted.sort_unstable_by_key(|(index, _)| *index);
            let entries = batch.wanted.iter().map(|(index, _)| *index as u64).collect();
            return self.reply.answer(&Message::Wants { batch: batch.id, entries });
        }
        if !batch.further.is_empty() {
            return Ok(());
        }
        batch.settled = true;
        {
            let mut open = self.open();
            open.batches.remove(&batch.id);
            open.named.settle_batch(batch.id)?;
        }
        self.done_with(worker, batch);
        self.reply.answer(&Message::Wants { batch: batch.id, entries: Vec::new() })
    }

    /// After something has landed or was given up: batches that wait for another name of it may go on. To be called
    /// while no batch is locked.
    fn look_again(&self, worker: &mut Worker<D>) -> Result<()> {
        if !self.policy.preserve.links {
            return Ok(());
        }
        let all: Vec<_> = self.open().batches.values().cloned().collect();
        for batch in all {
            let mut batch = locked(&batch);
            if !batch.further.is_empty() {
                self.go_on(worker, &mut batch)?;
            }
        }
        Ok(())
    }

    fn large(&self, worker: &mut Worker<D>, file: u64, dir: u64, entry: &Entry<'_>) -> Result<()> {
        self.open().named.file(file)?;
        if entry.kind != WireKind::File {
            return Err(refused(Reason::LargeThatIsNone));
        }
        let Some(goal) = self.goes_to(dir, std::slice::from_ref(entry), false)? else {
            return self.not_wanted(file);
        };
        match self.offer(worker, file, goal, entry)? {
            Some(offer) => self.queue(worker, offer)?,
            None => self.not_wanted(file)?,
        }
        self.look_again(worker)
    }

    /// What is wanted of a large file; `None`: nothing.
    fn offer(
        &self,
        worker: &mut Worker<D>,
        file: u64,
        goal: EntriesGoal<D::Dir>,
        entry: &Entry<'_>,
    ) -> Result<Option<LargeOffer<'a, D::Dir, D::Verdict>>> {
        let EntriesGoal { slot, spot, operand, .. } = goal;
        let meta = self.meta_of(entry, operand.as_ref())?;
        self.is_asked(&slot, &meta)?;
        if operand.is_none() {
            self.to.met(&slot, meta.name.as_name());
        }
        let verdict = match self.choose(&slot, &spot, &meta) {
            Chosen::Nothing => {
                self.to.release(&mut worker.of_destination, slot);
                return Ok(None);
            }
            Chosen::Want(verdict) => Some(verdict),
            Chosen::Further => None,
        };
        let values = self.to.wants_values();
        let arriving = Arriving::new(file, meta.info, values, self.reply, self.line.clone());
        let arriving = Arc::new(self.to.prepare(arriving)?);
        Ok(Some(LargeOffer { arriving, slot, meta, verdict, begun: false }))
    }

    /// Leaves a large file to the thread that takes them. The sender begins with it at once, where it is known from where
    /// on it is wanted.
    fn queue(&self, worker: &mut Worker<D>, offer: LargeOffer<'a, D::Dir, D::Verdict>) -> Result<()> {
        let arriving = offer.arriving.clone();
        let mut offers = self.offers();
        if offers.ended {
            drop(offers);
            offer.slot.mark_incomplete();
            self.to.settled(arriving.file);
            self.to.release(&mut worker.of_destination, offer.slot);
            return Err(refused(Reason::LargeAfterEnd));
        }
        self.open().files.insert(arriving.file, arriving.clone());
        let begun = offers.undecided == 0 && !self.is_late(&offer);
        if !begun {
            offers.undecided += 1;
        }
        let asked = if begun { arriving.start(0).map_err(told) } else { Ok(()) };
        offers.queue.push_back(LargeOffer { begun, ..offer });
        drop(offers);
        self.offered.notify_all();
        asked
    }

    /// Whether only the thread that takes large files can say from where on a file is wanted.
    fn is_late(&self, offer: &LargeOffer<'a, D::Dir, D::Verdict>) -> bool {
        offer.verdict.is_none_or(|verdict| self.to.is_late(&offer.meta, verdict))
    }

    fn one_large(&self, worker: &mut Worker<D>, offer: LargeOffer<'a, D::Dir, D::Verdict>) -> Result<()> {
        let LargeOffer { arriving, slot, meta, verdict, begun } = offer;
        let (file, buffers) = (arriving.file, &mut worker.of_destination);
        let verdict = if self.is_over() {
            slot.mark_incomplete();
            None
        } else if verdict.is_some() {
            verdict
        } else {
            match self.to.choose_further(buffers, &slot, &meta) {
                Some(Chosen::Want(verdict)) => Some(verdict),
                Some(Chosen::Nothing) => None,
                None | Some(Chosen::Further) => {
                    let note = Reason::FirstNameUnsettled;
                    self.failed(&slot, Error::ours(Code::Io, Op::Link, meta.path(&slot.src.node), note));
                    None
                }
            }
        };
        if let Some(verdict) = verdict {
            self.to.land_large(buffers, &slot, (&meta, verdict), &arriving);
        }
        if !arriving.was_wanted() {
            self.reply.answer(&Message::Resume { file, wanted: false, from: 0, flags: 0 })?;
        }
        arriving.close();
        self.open().files.remove(&file);
        self.to.settled(file);
        self.to.release(buffers, slot);
        if !begun {
            self.begin_following()?;
        }
        self.close(file)
    }

    /// One whose beginning had to be found out has been begun and read: those behind it that need no thought begin.
    fn begin_following(&self) -> Result<()> {
        let mut offers = self.offers();
        for offer in &mut offers.queue {
            if self.is_late(offer) {
                break;
            }
            if !offer.begun {
                offer.begun = true;
                offer.arriving.start(0).map_err(told)?;
            }
        }
        offers.undecided = offers.queue.iter().filter(|o| !o.begun).count();
        Ok(())
    }

    fn not_wanted(&self, file: u64) -> Result<()> {
        self.reply.answer(&Message::Resume { file, wanted: false, from: 0, flags: 0 })?;
        self.close(file)
    }

    /// The sender may forget a large file.
    fn close(&self, file: u64) -> Result<()> {
        self.open().named.close_file(file)?;
        self.reply.answer(&Message::Close { file })
    }

    /// The sender says it is done: every batch is settled and every file closed, or it lies.
    fn all_sent(&self) -> Result<()> {
        let left = {
            let open = self.open();
            let singles = !open.singles.is_empty();
            singles || !open.batches.is_empty() || !open.files.is_empty() || !open.dirs.is_empty()
        };
        if left && !self.to.tally().cancelled() {
            return Err(refused(Reason::EndBeforeSettled));
        }
        self.what.tell_missing(self.to.tally());
        self.all_sent.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether nothing new is to be taken up.
    fn is_over(&self) -> bool {
        self.to.tally().cancelled() || self.offers().ended && !self.is_complete()
    }
}

impl<'a, D: WireDestination<'a>> MessageHandler for FromWire<'a, D> {
    type Buffers = D::Buffers;

    fn watch(&self) -> Watch<'_> {
        self.to.tally().watch
    }

    fn what(&self) -> &Incoming {
        &self.what
    }

    fn buffers(&self) -> Worker<D> {
        ReceiverBuffers { of_destination: self.to.buffers(), unpacker: Unpacker::new() }
    }

    fn handle(&self, worker: &mut Worker<D>, message: Message<'_>) -> Result<()> {
        match message {
            Message::Operand { path, whole, origin, dir, entry } => {
                self.operand(worker, dir, (path, whole, origin), &entry)
            }
            Message::Dir { id, parent, entry } => self.dir(worker, id, parent, &entry),
            Message::Files { batch, dir, inline, codec, entries, contents } => self.files(
                worker,
                batch,
                dir,
                &FilesMessage { entries: &entries, inline, codec, packed: contents },
            ),
            Message::Contents { batch, codec, bytes } => self.contents(worker, batch, codec, bytes),
            Message::Large { file, dir, entry } => self.large(worker, file, dir, &entry),
            Message::FileEnd { file, state, error } => {
                let Some(arriving) = self.arriving(file)? else { return Ok(()) };
                arriving.end(end_of(state, error.as_ref()));
                Ok(())
            }
            Message::HaveBlocks { file, first, hashes } if D::TAKES_BYTES => {
                let Some(arriving) = self.arriving(file)? else { return Ok(()) };
                self.to.have_blocks(&arriving, first, &hashes)
            }
            Message::Proof { file, first, tags } if D::TAKES_BYTES => {
                let Some(arriving) = self.arriving(file)? else { return Ok(()) };
                self.to.proof(&arriving, first, &tags)
            }
            Message::Values { file, first, hashes } => {
                let Some(arriving) = self.arriving(file)? else { return Ok(()) };
                arriving.values(first, &hashes)
            }
            Message::DirEnd { dir, partial } => self.dir_end(worker, dir, partial),
            Message::Trouble(trouble) => {
                self.what.trouble(&trouble, self.to.tally());
                Ok(())
            }
            Message::Found { items, bytes, last } => {
                found(self.to.tally(), items, bytes, last);
                Ok(())
            }
            Message::AllSent => {
                self.all_sent()?;
                self.leave(worker);
                Ok(())
            }
            Message::Cancel => {
                self.to.tally().watch.cancel.set();
                Ok(())
            }
            other => {
                let name = bcmr_wire::state::name(other.kind()).unwrap_or("?");
                Err(refused(Reason::NotSendersMessage.about(name)))
            }
        }
    }

    fn piece(&self, stream: usize, head: &Head, load: Load) -> Result<()> {
        if !D::TAKES_BYTES {
            return Err(refused(Reason::PieceBeforeWanted));
        }
        // A file that is settled already: what was under way is dropped.
        let Some(arriving) = self.open().files.get(&head.file).cloned() else { return Ok(()) };
        arriving.push(stream, head.at, head.length, head.cv, head.flags & data::ASKED != 0, load)
    }

    fn land_large(&self) -> Result<()> {
        let mut worker = self.buffers();
        loop {
            let offer = {
                let mut offers = self.offers();
                loop {
                    if let Some(offer) = offers.queue.pop_front() {
                        break offer;
                    }
                    if offers.ended {
                        return Ok(());
                    }
                    let _waits = self.reply.pulse.waits_for(For::Frame);
                    offers = self.offered.wait(offers).unwrap_or_else(PoisonError::into_inner);
                }
            };
            self.one_large(&mut worker, offer)?;
            self.look_again(&mut worker)?;
        }
    }

    fn is_complete(&self) -> bool {
        self.all_sent.load(Ordering::Relaxed)
    }

    fn lose(&self) {
        self.line.lose();
    }

    /// What is whole keeps or gets its name, all else is taken back.
    fn leave(&self, worker: &mut Worker<D>) {
        self.offers().ended = true;
        let files: Vec<_> = self.open().files.drain().map(|(_, f)| f).collect();
        for file in files {
            file.lose();
        }
        self.offered.notify_all();
        let (batches, dirs, singles) = {
            let mut open = self.open();
            let batches: Vec<_> = open.batches.drain().map(|(_, b)| b).collect();
            let dirs: Vec<_> = open.dirs.drain().map(|(_, d)| d).collect();
            let singles: Vec<_> = open.singles.drain().map(|(_, s)| s).collect();
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
            self.done_with(worker, &mut batch);
        }
        for slot in dirs {
            slot.mark_incomplete();
            self.to.release(&mut worker.of_destination, slot);
        }
        for single in singles {
            single.slot.mark_incomplete();
            self.to.release(&mut worker.of_destination, single.slot);
        }
    }

    fn end(self, cut_short: bool) -> (Summary, Marks) {
        if cut_short {
            self.to.tally().cut_short();
        }
        let mut buffers = self.to.buffers();
        let places = std::mem::take(&mut self.open().places);
        for (_, place) in places {
            self.to.release(&mut buffers, place);
        }
        // Those that a lost connection left: what is in their directories is complete or was taken back.
        self.offers().queue.clear();
        while let Some(hold) = self.dropped.take() {
            self.to.release(&mut buffers, hold);
        }
        if self.tells_how {
            let Compared { by_time, by_content } = self.to.tally().compared();
            // A client that is gone is noticed by the thread that reads.
            let how = Message::Report(message::Event::Compared { by_time, by_content });
            let _told = self.reply.send(&how).is_ok();
        }
        self.to.end()
    }
}

/// The sender has met more.
fn found(tally: &Tally<'_>, items: u64, bytes: u64, last: bool) {
    let progress = tally.watch.progress;
    progress.items_found.fetch_max(items, Ordering::Relaxed);
    progress.bytes_found.fetch_max(bytes, Ordering::Relaxed);
    if last {
        progress.scanned.store(true, Ordering::Relaxed);
    }
}

/// How the sender ended with a large file.
fn end_of(state: FileState, error: Option<&Trouble<'_>>) -> End {
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

/// A content of another length than its entry was said to have (V13).
pub(crate) fn other_size(path: PathBuf, said: u64, came: u64) -> Error {
    let note = Reason::SaidAndCame.about(said).about(came);
    Error::ours(Code::Mismatch, Op::Receive, path, note)
}

fn locked<T, V>(batch: &Mutex<WireBatch<T, V>>) -> MutexGuard<'_, WireBatch<T, V>> {
    // A thread that panicked stops the transfer; the batch serves only to be given up then.
    batch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unpacks contents: as they are, or with their length in front.
fn unpack<'p>(unpacker: &mut Unpacker, codec: Codec, packed: &'p [u8]) -> Result<std::borrow::Cow<'p, [u8]>> {
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
