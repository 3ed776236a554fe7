//! What a copy over the wire would do, or would change: entries are taken off the streams as for landing, compared with
//! what is there, and nothing is made.
//!
//! Must not create, write or remove; must not decide what is told, which is the visitor's that a survey here has too.
//! Of files whose content counts, small ones come as hashes and large ones as the values of their blocks.

use crate::blocks::{BLOCK_BYTES, blocks_of};
use crate::disk::seal::AttributeList;
use crate::disk::sys::Sys;
use crate::disk::tee;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Compared, Summary, Watch};
use crate::node::Node;
use crate::policy::{Compare, CopyPolicy, Follow};
use crate::receiver::arriving::{Arriving, Line, Load};
use crate::receiver::claims::{self, Claims};
use crate::receiver::directories::Marks;
use crate::receiver::plan::Proof;
use crate::sender::filter::{Filter, relative};
use crate::tally::Tally;
use crate::verbs::check::Check;
use crate::verbs::named::Named;
use crate::verbs::operands::{self, Dest, Place};
use crate::verbs::receive::{
    Became, Crew, Head, Reply, Takes, What, end_of, found, not_a_senders, other_size, refused, told, unpack,
};
use crate::verbs::rivals::{self, Rivals, Turn};
use crate::verbs::survey::{At, Both, DryRun, Lack, Tops, Visit, change, hash};
use bcmr_wire::contents::{self, Item};
use bcmr_wire::limits;
use bcmr_wire::message::{self, Codec, DirState, Entry, Kind as WireKind, Message};
use bcmr_wire::policy::flags;
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use fastcopy::xattr::Of;
use std::collections::hash_map::Entry as Slotted;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Operands that were announced and whose entry has not come.
const SINGLES_MAX: usize = limits::DIRS_OUT_MAX * 16;
/// Directories on the way to listed names that are remembered.
const PASSED_MAX: usize = 1 << 16;

/// What is asked for that changes nothing.
#[derive(Clone, Copy)]
pub(crate) enum Survey {
    /// What a copy would do.
    DryRun,
    /// What differs.
    Check { compare: Compare, extra: bool },
}

/// What a policy that arrived asks for, when it is no copy.
pub(crate) fn survey_of(policy: &message::Policy<'_>) -> Option<Survey> {
    let compare = match (policy.has(flags::HASHES), policy.has(flags::QUICK)) {
        (true, _) => Compare::Hash,
        (false, true) => Compare::SizeAndTime,
        (false, false) => Compare::ContentInDoubt,
    };
    match (policy.has(flags::DRY_RUN), policy.has(flags::COMPARE)) {
        (false, _) => None,
        (true, false) => Some(Survey::DryRun),
        (true, true) => Some(Survey::Check { compare, extra: policy.has(flags::EXTRA) }),
    }
}

/// Who tells what is found below `root`.
pub(crate) fn visitor<'a>(
    survey: Survey,
    policy: &'a CopyPolicy,
    root: &'a Path,
    own_name: &'a Path,
    tally: &'a Tally<'a>,
) -> Box<dyn Visit + Send + 'a> {
    match survey {
        Survey::DryRun => Box::new(DryRun::new(policy, tally)),
        Survey::Check { compare, extra } => Box::new(Check { policy, compare, extra, root, own_name, tally }),
    }
}

/// A directory over there and what it would become.
struct Pair {
    src: Arc<Node>,
    /// Absent when it is.
    dst: Option<Arc<Dir>>,
    node: Arc<Node>,
    /// The directory at or above it that the destination lacks, and how many such are still open.
    lack: Option<Arc<(Arc<Lack>, AtomicUsize)>>,
    /// Names that the destination has in it and the source has not named, as hashes: only where they are told.
    extra: Mutex<Option<HashSet<[u8; 16]>>>,
    /// Where it is among the names that sources become, and what the target is called.
    claim: (claims::Spot, Arc<Node>),
}

/// An operand that is no directory.
struct Single {
    place: Arc<Place>,
    to: NameBuf,
    shown: PathBuf,
    kind: WireKind,
    claim: claims::Spot,
}

/// What becomes of an operand.
#[allow(clippy::large_enum_variant)] // lives for one call
enum Becomes {
    Pair(Pair),
    /// No directory: its entry is to come.
    Single,
    /// Nothing is wanted of it.
    Nothing,
}

/// A path, put together only when it is told: a peer may nest directories deep for little.
#[derive(Clone)]
enum Shown {
    Path(PathBuf),
    Below(Arc<Node>, NameBuf),
}

impl Shown {
    fn path(&self) -> PathBuf {
        match self {
            Shown::Path(path) => path.clone(),
            Shown::Below(node, name) => node.join(name.as_name()),
        }
    }
}

/// Where an entry goes.
#[derive(Clone)]
struct Spot {
    name: NameBuf,
    info: Info,
    there: Option<Info>,
    link: Vec<u8>,
    attrs: AttributeList,
    src: Shown,
    shown: Shown,
    dst: Option<(Arc<Dir>, NameBuf)>,
    lack: Option<Arc<Lack>>,
    /// An earlier source makes a directory of this name.
    merges: bool,
}

/// What is known of the two sides of one entry.
struct Known<'s> {
    spot: &'s Spot,
    /// The answer to what was asked about its content.
    content: Mutex<Option<Result<bool>>>,
}

impl Both for Known<'_> {
    fn same_content(&self) -> Result<bool> {
        let said = self.content.lock().unwrap_or_else(PoisonError::into_inner).take();
        said.unwrap_or_else(|| {
            Err(Error::ours(Code::Io, Op::Compare, self.spot.src.path(), Reason::NothingCame))
        })
    }
    fn same_beginning(&self) -> Result<bool> {
        self.same_content()
    }
    fn attributes(&self, kind: Kind, policy: &CopyPolicy) -> Result<Option<Reason>> {
        let Spot { dst, attrs, shown, .. } = self.spot;
        let Some((dir, to)) = dst else { return Ok(None) };
        change(Of::At(dir, to.as_name()), &shown.path(), kind, policy, attrs)
    }
    fn same_target(&self) -> Result<bool> {
        let Some((dir, to)) = &self.spot.dst else { return Ok(true) };
        let theirs = dir.read_link(to.as_name());
        let theirs = theirs.map_err(|e| Error::os(Op::ReadLink, self.spot.shown.path(), e))?;
        Ok(self.spot.link == theirs.to_bytes())
    }
}

/// A large file whose content is compared.
struct Offer<'a> {
    arriving: Arc<Arriving<'a>>,
    spot: Spot,
    proof: Proof,
}

#[derive(Default)]
struct Offers<'a> {
    queue: VecDeque<Offer<'a>>,
    /// Nothing more will come.
    ended: bool,
}

#[derive(Default)]
struct State<'a> {
    named: Named,
    dirs: HashMap<u64, Arc<Pair>>,
    singles: HashMap<u64, Single>,
    /// Small files whose hashes are waited for.
    batches: HashMap<u64, Vec<(Spot, Proof)>>,
    files: HashMap<u64, Arc<Arriving<'a>>>,
    /// What operands become.
    names: HashMap<NameBuf, Became<()>>,
    origin: u64,
    /// Directories on the way to listed names that were told: the next name may lead through one again.
    passed: HashSet<(u64, u64)>,
}

/// One survey, at the receiver.
pub(crate) struct Surveying<'a> {
    policy: &'a CopyPolicy,
    what: What,
    reply: &'a Reply,
    tally: &'a Tally<'a>,
    filter: Filter,
    extra: bool,
    visit: Mutex<Box<dyn Visit + Send + 'a>>,
    state: Mutex<State<'a>>,
    offers: Mutex<Offers<'a>>,
    offered: Condvar,
    rivals: Rivals,
    all_sent: AtomicBool,
    line: Arc<Line<'a>>,
    /// The sender is told how files were compared.
    tells_how: bool,
}

impl<'a> Surveying<'a> {
    /// Nothing was compared yet.
    ///
    /// # Errors
    /// A pattern that is none.
    pub(crate) fn begin(
        policy: &'a CopyPolicy,
        what: What,
        reply: &'a Reply,
        tally: &'a Tally<'a>,
        visit: Box<dyn Visit + Send + 'a>,
    ) -> Result<Surveying<'a>> {
        let patience = Duration::from_millis(limits::DEAD_MS);
        let claims = Claims::of_at_most(limits::CLAIMS_MAX, what.meeting());
        Ok(Surveying {
            line: Arc::new(Line::new(tally.watch.cancel, what.streams, patience, reply.pulse.clone())),
            extra: visit.wants_extra(),
            filter: Filter::new(&policy.filter)?,
            policy,
            what,
            reply,
            tally,
            visit: Mutex::new(visit),
            state: Mutex::default(),
            offers: Mutex::default(),
            offered: Condvar::new(),
            rivals: Rivals::new(claims, limits::CLAIMS_MAX),
            all_sent: AtomicBool::new(false),
            tells_how: false,
        })
    }

    /// The same, telling the sender how files were compared.
    pub(crate) fn telling(self, tells_how: bool) -> Surveying<'a> {
        Surveying { tells_how, ..self }
    }

    fn state(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offers(&self) -> MutexGuard<'_, Offers<'a>> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn visit(&self) -> MutexGuard<'_, Box<dyn Visit + Send + 'a>> {
        self.visit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, message: &Message<'_>) -> Result<()> {
        self.reply.send(message).map_err(told)
    }

    fn refuse(&self, id: u64) -> Result<()> {
        self.state().named.refuse(id);
        self.send(&Message::DirIs { dir: id, state: DirState::Refused })
    }

    /// Nothing is ever new here: then nothing is sent unasked.
    fn open(&self, id: u64, pair: Pair) -> Result<()> {
        if let Some(lack) = &pair.lack {
            lack.1.fetch_add(1, Relaxed);
        }
        self.state().dirs.insert(id, Arc::new(pair));
        self.send(&Message::DirIs { dir: id, state: DirState::There })
    }

    fn operand(&self, path: &[u8], whole: bool, origin: u64, id: u64, entry: &Entry<'_>) -> Result<()> {
        let name = if whole { None } else { NameBuf::new(entry.name) };
        {
            let mut state = self.state();
            state.named.operand(&self.what, id, origin, name.as_ref(), entry)?;
            self.what.no_link(self.policy.follow != Follow::Never, entry.kind)?;
            state.origin = origin;
        }
        let shown = self.what.shown(Path::new(OsStr::from_bytes(path)));
        match self.place(&shown, name, id, entry) {
            Ok(Becomes::Pair(pair)) => self.open(id, pair),
            Ok(Becomes::Single) => self.send(&Message::DirIs { dir: id, state: DirState::There }),
            Ok(Becomes::Nothing) => self.refuse(id),
            Err(e) => {
                self.tally.fail(e);
                self.refuse(id)
            }
        }
    }

    /// Finds the place of an operand.
    fn place(&self, shown: &Path, name: Option<NameBuf>, id: u64, entry: &Entry<'_>) -> Result<Becomes> {
        let whole = name.is_none();
        let info = self.what.info_of(entry, self.state().origin);
        if info.kind == Kind::Dir && !self.policy.recursive && !(whole && self.what.listed) {
            return Err(Error::ours(Code::IsDirectory, Op::Copy, shown, Reason::IsDirectory));
        }
        let dest = self.what.to.dest(name, &info)?;
        let mut claim = self.rivals.claims.operand(shown, matches!(dest, Dest::Whole(_)));
        if let Dest::Named { name, .. } = &dest {
            match self.state().names.entry(name.clone()) {
                Slotted::Vacant(slot) => {
                    slot.insert(Became {
                        what: (),
                        id: info.id(),
                        shown: shown.to_owned(),
                        owner: claim.owner,
                    });
                }
                Slotted::Occupied(slot) if slot.get().is_same(&info, &dest, shown)? => {
                    return Ok(Becomes::Nothing);
                }
                Slotted::Occupied(slot) => claim = claim.after(slot.get().owner),
            }
        }
        operands::nesting(&self.what.reach, &info, whole, &dest, self.policy, shown, Op::Copy)?;
        let src = Node::root(shown);
        match &dest {
            Dest::Whole(place) => {
                let dst = place.dir.reopen();
                let dst = dst.map_err(|e| Error::os(Op::OpenDirectory, place.node.path(), e))?;
                self.top(shown, info, entry, &dst, &place.node.path())?;
                let (dst, node, extra) = (Some(Arc::new(dst)), place.node.clone(), Mutex::default());
                let claim = (claim, place.node.clone());
                Ok(Becomes::Pair(Pair { src, dst, node, lack: None, extra, claim }))
            }
            Dest::Named { dir, name } if info.kind != Kind::Dir => {
                let (place, to, shown) = (dir.clone(), name.clone(), shown.to_owned());
                let single = Single { place, to, shown, kind: entry.kind, claim };
                let mut state = self.state();
                if state.singles.len() >= SINGLES_MAX {
                    return Err(Error::ours(Code::Limit, Op::Copy, single.shown, Reason::TooManyOperands));
                }
                state.singles.insert(id, single);
                Ok(Becomes::Single)
            }
            Dest::Named { dir: place, name } => {
                let node = place.node.below(name.as_name());
                let dir = place.dir.try_clone().map_err(|e| Error::os(Op::Open, place.node.path(), e))?;
                let paths = (Shown::Path(shown.to_owned()), Shown::Below(place.node.clone(), name.clone()));
                let claim = (claim, place.node.clone());
                let dst = Some((Arc::new(dir), name.clone()));
                let Some(spot) = self.spot(info, entry, name, paths, dst, &claim)? else {
                    return Ok(Becomes::Nothing);
                };
                if whole {
                    match (&spot.there, &spot.dst) {
                        (None, _) if !self.what.listed && !spot.merges => {
                            self.visit().absent(spot.src.path(), spot.shown.path());
                        }
                        // No directory: that is what a copy would stumble over too.
                        (Some(there), Some((dir, to))) if there.kind != Kind::Dir => {
                            let opened = dir.open_dir_readable(to.as_name());
                            opened.map_err(|e| Error::os(Op::OpenDirectory, spot.shown.path(), e))?;
                        }
                        (Some(_), Some((dir, to))) => {
                            let dst_path = spot.shown.path();
                            let opened = dir.open_dir_readable(to.as_name());
                            let opened = opened.map_err(|e| Error::os(Op::OpenDirectory, &dst_path, e))?;
                            self.top(shown, info, entry, &opened, &dst_path)?;
                        }
                        _ => {}
                    }
                } else if !self.told(&spot, None) {
                    return Ok(Becomes::Nothing);
                }
                let below = (self.rivals.claims.below(&claim.0, name.as_name()), claim.1);
                self.pair(src, node, &spot, None, below).map(Becomes::Pair)
            }
        }
    }

    /// An entry beside what has its name; nothing where the very same source came before.
    fn spot(
        &self,
        info: Info,
        entry: &Entry<'_>,
        name: &NameBuf,
        (src, shown): (Shown, Shown),
        dst: Option<(Arc<Dir>, NameBuf)>,
        (claim, top): &(claims::Spot, Arc<Node>),
    ) -> Result<Option<Spot>> {
        let there = match &dst {
            Some((dir, to)) => dir.look(to.as_name()).map_err(|e| Error::os(Op::Stat, shown.path(), e))?,
            None => None,
        };
        let (src_path, dst_path) = (src.path(), shown.path());
        let turn = self.rivals.turn(
            &rivals::RivalName {
                spot: claim,
                dir: dst.as_ref().map(|(dir, _)| &**dir),
                to: dst.as_ref().map_or(name, |(_, to)| to).as_name(),
                kind: info.kind,
                is_there: there.is_some(),
                is_left_out: info.kind.is_special() && !self.policy.specials,
                src_path: &src_path,
                dst_path: &dst_path,
                top,
            },
            info.id(),
        )?;
        if self.policy.specials {
            self.what.no_device(info.kind, || dst_path.clone())?;
        }
        let (name, link, attrs) = (name.clone(), entry.link.to_vec(), self.attrs_of(entry));
        let merges = turn == Turn::Merges;
        let spot = Spot { name, info, there, link, attrs, src, shown, dst, lack: None, merges };
        Ok((turn != Turn::Came).then_some(spot))
    }

    /// The attributes that the policy keeps; others are not even held.
    fn attrs_of(&self, entry: &Entry<'_>) -> AttributeList {
        let wanted = self.policy.preserve.xattr || self.policy.preserve.acl;
        let one = |(name, value): &(&[u8], &[u8])| (name.to_vec(), value.to_vec());
        entry.attrs.iter().filter(|_| wanted).map(one).collect()
    }

    /// Both sides of an operand that is the contents of a directory.
    fn top(&self, shown: &Path, info: Info, entry: &Entry<'_>, dst: &Dir, dst_path: &Path) -> Result<()> {
        // The directory of a list of names is only where they are.
        if self.what.listed {
            return Ok(());
        }
        let there = Some(dst.info().map_err(|e| Error::os(Op::Stat, dst_path, e))?);
        let both = Tops { attrs: self.attrs_of(entry), dst, shown: dst_path };
        let at = At { info, there, src_path: shown, dst_path, lack: None, merges: false, both: &both };
        self.visit().top(&at);
        Ok(())
    }

    /// The pair below `spot`, which is a directory that was told.
    fn pair(
        &self,
        src: Arc<Node>,
        node: Arc<Node>,
        spot: &Spot,
        above: Option<&Pair>,
        claim: (claims::Spot, Arc<Node>),
    ) -> Result<Pair> {
        let dst = match (&spot.dst, &spot.there) {
            (Some((dir, to)), Some(there)) if there.kind == Kind::Dir => {
                let opened = dir.open_dir_readable(to.as_name());
                Some(Arc::new(opened.map_err(|e| Error::os(Op::OpenDirectory, spot.shown.path(), e))?))
            }
            _ => None,
        };
        let lack = match above.and_then(|pair| pair.lack.clone()) {
            Some(lack) => Some(lack),
            None if spot.there.is_none() => {
                Some(Arc::new((Lack::new(&spot.shown.path()), AtomicUsize::new(0))))
            }
            None => None,
        };
        Ok(Pair { src, dst, node, lack, extra: Mutex::default(), claim })
    }

    /// Tells of one entry. For a directory: whether to go in.
    fn told(&self, spot: &Spot, content: Option<Result<bool>>) -> bool {
        let both = Known { spot, content: Mutex::new(content) };
        let (src, dst) = (spot.src.path(), spot.shown.path());
        self.visit().entry(&at(spot, &src, &dst, &both))
    }

    /// What must be known about the content of an entry.
    fn wants_content(&self, spot: &Spot) -> Option<Proof> {
        let both = Known { spot, content: Mutex::default() };
        let (src, dst) = (spot.src.path(), spot.shown.path());
        self.visit().wants_content(&at(spot, &src, &dst, &both))
    }

    fn dir(&self, id: u64, parent: u64, entry: &Entry<'_>) -> Result<()> {
        let above = {
            let mut state = self.state();
            let open = state.dirs.len();
            state.named.dir(id, open)?;
            match state.dirs.get(&parent).cloned() {
                Some(above) => above,
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
        let name = self.name_in(&above, entry)?;
        let node = above.node.below(name.as_name());
        let src = above.src.below(name.as_name());
        let below = self.below(&above, entry, &name).and_then(|spot| {
            let Some(spot) = spot else { return Ok(None) };
            let passed = self.what.listed && self.passes(&spot.info);
            let told = passed && spot.there.is_none() || self.told(&spot, None);
            // Without `-r` a directory comes only as the way to a listed name.
            let on_the_way = self.what.listed && !self.policy.recursive;
            let go_in = told || on_the_way && spot.there.is_none_or(|there| there.kind == Kind::Dir);
            let (claim, top) = &above.claim;
            let below = (self.rivals.claims.below(claim, name.as_name()), top.clone());
            if go_in { self.pair(src, node, &spot, Some(&above), below).map(Some) } else { Ok(None) }
        });
        match below {
            Ok(Some(pair)) => self.open(id, pair),
            Ok(None) => self.refuse(id),
            Err(e) => {
                self.tally.fail(e);
                self.refuse(id)
            }
        }
    }

    /// Whether a directory on the way to listed names was met before.
    fn passes(&self, info: &Info) -> bool {
        let mut state = self.state();
        // Who forgets tells one of them twice.
        if state.passed.len() >= PASSED_MAX {
            state.passed.clear();
        }
        !state.passed.insert(info.id())
    }

    /// A name in a directory; the source is known to have it from now on.
    fn name_in(&self, above: &Pair, entry: &Entry<'_>) -> Result<NameBuf> {
        let name = NameBuf::new(entry.name).ok_or_else(|| refused(Reason::BadName))?;
        // V1, for names of a list.
        if !self.what.asked.takes(&above.src, &name, entry) {
            return Err(refused(Reason::NameNotAsked));
        }
        if let (true, Some(dst)) = (self.extra, &above.dst) {
            let mut extra = above.extra.lock().unwrap_or_else(PoisonError::into_inner);
            // One that cannot be listed says so at its end.
            extra.get_or_insert_with(|| there(dst).unwrap_or_default()).remove(&short(name.as_name()));
        }
        Ok(name)
    }

    /// An entry of a directory that is open.
    fn below(&self, above: &Pair, entry: &Entry<'_>, name: &NameBuf) -> Result<Option<Spot>> {
        let info = self.what.info_of(entry, self.state().origin);
        let dst = above.dst.as_ref().map(|dir| (dir.clone(), name.clone()));
        let paths =
            (Shown::Below(above.src.clone(), name.clone()), Shown::Below(above.node.clone(), name.clone()));
        let lack = above.lack.as_ref().map(|lack| lack.0.clone());
        let spot = self.spot(info, entry, name, paths, dst, &above.claim)?;
        Ok(spot.map(|spot| Spot { lack, ..spot }))
    }

    /// Entries of a directory, or the one of an operand; `None`: it was refused, and nothing of it counts.
    fn spots(&self, dir: u64, entries: &[Entry<'_>]) -> Result<Option<Vec<Spot>>> {
        let single = {
            let mut state = self.state();
            match (state.dirs.get(&dir).cloned(), state.singles.remove(&dir)) {
                (Some(pair), _) => Ok(pair),
                (None, Some(single)) => Err(single),
                (None, None) => {
                    let note = Reason::EntriesOfClosed;
                    return state.named.was_refused(dir, note).map(|()| None);
                }
            }
        };
        let mut spots = Vec::new();
        let mut take = |spot: Result<Option<Spot>>| match spot {
            Ok(spot) => spots.extend(spot),
            Err(e) => self.tally.fail(e),
        };
        match (single, entries) {
            (Ok(pair), _) => {
                for entry in entries {
                    let name = self.name_in(&pair, entry)?;
                    take(self.below(&pair, entry, &name));
                }
            }
            (Err(single), [entry]) if entry.kind == single.kind => {
                let info = self.what.info_of(entry, self.state().origin);
                let Single { place, to, shown, claim, .. } = single;
                let dir = place.dir.try_clone().map_err(|e| Error::os(Op::Open, place.node.path(), e));
                let name = NameBuf::new(entry.name).unwrap_or_else(|| to.clone());
                let paths = (Shown::Path(shown), Shown::Below(place.node.clone(), to.clone()));
                let claim = (claim, place.node.clone());
                let dst = dir.map(|dir| Some((Arc::new(dir), to)));
                take(dst.and_then(|dst| self.spot(info, entry, &name, paths, dst, &claim)));
            }
            (Err(_), _) => return Err(refused(Reason::OtherOperand)),
        }
        Ok(Some(spots))
    }

    fn files(&self, id: u64, dir: u64, inline: bool, entries: &[Entry<'_>]) -> Result<()> {
        self.state().named.batch(id)?;
        if inline || entries.iter().any(|e| e.kind == WireKind::Dir) {
            return Err(refused(Reason::ContentsNotAsked));
        }
        for entry in entries {
            self.what.no_link(self.policy.follow == Follow::Always, entry.kind)?;
        }
        let Some(spots) = self.spots(dir, entries)? else { return self.settled(id) };
        let mut wanted = Vec::new();
        let mut waiting = Vec::new();
        // An entry that could not be looked at was told, and is not among them.
        let mut index = entries.iter().enumerate();
        for spot in spots {
            let name = spot.name.bytes();
            let at = index.find(|(_, e)| e.name == name || entries.len() == 1).map(|(at, _)| at as u64);
            if let (Some(at), Some(proof)) = (at, self.wants_content(&spot)) {
                wanted.push(at);
                waiting.push((spot, proof));
            } else {
                self.told(&spot, None);
            }
        }
        if wanted.is_empty() {
            return self.settled(id);
        }
        self.state().batches.insert(id, waiting);
        self.send(&Message::Wants { batch: id, entries: wanted })
    }

    fn contents(&self, crew: &mut Crew, id: u64, codec: Codec, packed: &[u8]) -> Result<()> {
        let none = || refused(Reason::ContentsNotWaitedFor);
        let mut waiting = self.state().batches.remove(&id).ok_or_else(none)?;
        let bytes = unpack(&mut crew.unpacker, codec, packed)?;
        let mut came = 0;
        for item in contents::items_up_to(&bytes, self.what.hashes, waiting.len()) {
            let item = item.map_err(|_| refused(Reason::ContentsDoNotFit))?;
            let Some((spot, proof)) = waiting.get(came) else { return Err(none()) };
            came += 1;
            let shown = || spot.src.path();
            let observe = |bytes| self.compared(bytes);
            let same = match item {
                Item::Hashed { length, .. } if length != spot.info.size => {
                    Err(other_size(shown(), spot.info.size, length))
                }
                Item::Content { bytes, .. } if bytes.len() as u64 != spot.info.size => {
                    Err(other_size(shown(), spot.info.size, bytes.len() as u64))
                }
                // [policy.append]
                Item::Content { bytes, .. } if *proof == Proof::Beginning => begins(spot, bytes, &observe),
                Item::Hashed { .. } if *proof == Proof::Beginning => {
                    return Err(refused(Reason::HashNotContent));
                }
                Item::Hashed { length, hash } => same(spot, length, &hash, &observe),
                Item::Content { bytes, .. } => {
                    same(spot, bytes.len() as u64, blake3::hash(bytes).as_bytes(), &observe)
                }
                Item::Changed => {
                    let note = Reason::SourceChangedWhileRead;
                    Err(Error::ours(Code::SourceChanged, Op::Compare, shown(), note))
                }
                Item::Unreadable(trouble) => {
                    Err(Error { path: shown(), ..crate::trouble::error_of(&trouble) })
                }
            };
            self.told(spot, Some(same));
        }
        if came == 0 {
            return Err(refused(Reason::ContentsOfNothing));
        }
        waiting.drain(..came);
        if !waiting.is_empty() {
            self.state().batches.insert(id, waiting);
            return Ok(());
        }
        self.settled(id)
    }

    /// Nothing more is wanted of a batch.
    fn settled(&self, batch: u64) -> Result<()> {
        self.state().named.settle_batch(batch)?;
        self.send(&Message::Wants { batch, entries: Vec::new() })
    }

    fn large(&self, file: u64, dir: u64, entry: &Entry<'_>) -> Result<()> {
        self.state().named.file(file)?;
        if entry.kind != WireKind::File {
            return Err(refused(Reason::LargeThatIsNone));
        }
        let spot = self.spots(dir, std::slice::from_ref(entry))?.and_then(|mut spots| spots.pop());
        let proof = spot.as_ref().and_then(|spot| self.wants_content(spot));
        let (spot, proof) = match (spot, proof) {
            (Some(spot), Some(proof)) => (spot, proof),
            (spot, _) => {
                if let Some(spot) = spot {
                    self.told(&spot, None);
                }
                return self.not_wanted(file);
            }
        };
        let arriving = Arc::new(Arriving::new(file, spot.info, true, self.reply, self.line.clone()));
        let mut offers = self.offers();
        if offers.ended {
            return Err(refused(Reason::LargeAfterEnd));
        }
        self.state().files.insert(file, arriving.clone());
        offers.queue.push_back(Offer { arriving, spot, proof });
        drop(offers);
        self.offered.notify_all();
        Ok(())
    }

    fn not_wanted(&self, file: u64) -> Result<()> {
        self.send(&Message::Resume { file, wanted: false, from: 0, flags: 0 })?;
        self.state().named.close_file(file)?;
        self.send(&Message::Close { file })
    }

    fn one_large(&self, offer: Offer<'a>) -> Result<()> {
        let Offer { arriving, spot, proof } = offer;
        if !self.tally.cancelled() {
            let same = self.same_blocks(&arriving, &spot, proof);
            if let (Ok(true), Proof::Beginning, Some(there)) = (&same, proof, &spot.there) {
                self.tell_unproved(&spot, there.size);
            }
            // A lost connection is told once, by the thread that lost it.
            let elsewhere = |e: &Error| matches!(e.code, Code::Interrupted | Code::Lost);
            if !same.as_ref().is_err_and(elsewhere) {
                self.told(&spot, Some(same));
            }
        }
        arriving.close();
        self.state().files.remove(&arriving.file);
        self.not_wanted(arriving.file)
    }

    /// So many bytes were compared; whether to go on.
    fn compared(&self, bytes: u64) -> bool {
        self.tally.watch.progress.bytes_done.fetch_add(bytes, Relaxed);
        !self.tally.cancelled()
    }

    /// Of a beginning that was compared by blocks, how much of it was not.
    fn tell_unproved(&self, spot: &Spot, size: u64) {
        let rest = size % BLOCK_BYTES;
        if rest > 0 {
            let note = Reason::RestNotCompared.about(size - rest).about(rest);
            self.tally.warn(Error::ours(Code::Unsupported, Op::Compare, spot.shown.path(), note));
        }
    }

    /// Of a beginning its whole blocks: for the rest of it the source would have to send bytes that are not kept.
    fn same_blocks(&self, arriving: &Arriving<'_>, spot: &Spot, proof: Proof) -> Result<bool> {
        let fd = opened(spot)?;
        let observe = |bytes| self.compared(bytes);
        let blocks = match proof {
            Proof::Beginning => spot.there.map_or(0, |there| there.size) / BLOCK_BYTES,
            Proof::Content | Proof::Target => blocks_of(spot.info.size),
        };
        let same = tee::same_blocks_among(arriving, &fd, 0..blocks, spot.info.size, &observe);
        same.map_err(|f| f.told(|| spot.src.path(), || spot.shown.path()))
    }

    /// `partial`: the sender has not named everything that is in it.
    fn dir_end(&self, id: u64, partial: bool) -> Result<()> {
        let pair = {
            let mut state = self.state();
            let Some(pair) = state.dirs.remove(&id) else {
                return state.named.was_refused(id, Reason::EndOfClosed);
            };
            pair
        };
        if let (true, false, Some(dst)) = (self.extra, partial, &pair.dst)
            && let Err(e) = self.extras(&pair, dst)
        {
            self.tally.fail(e);
        }
        // What is below it was named before.
        if let Some(lack) = &pair.lack
            && lack.1.fetch_sub(1, Relaxed) == 1
        {
            self.visit().lacks(&lack.0);
        }
        Ok(())
    }

    /// What only the destination has in a directory.
    fn extras(&self, pair: &Pair, dst: &Dir) -> Result<()> {
        let lack = pair.extra.lock().unwrap_or_else(PoisonError::into_inner).take();
        let below = pair.src.names();
        let mut extra: Vec<NameBuf> = Vec::new();
        let listed = dst.list(&mut ListBuffer::new(), |entry| {
            let path = || relative(below.iter().map(|n| n.bytes()).chain([entry.name.bytes()]));
            let is_dir = entry.kind == Some(Kind::Dir);
            let out = || !self.filter.is_empty() && self.filter.excludes(&path(), is_dir, None);
            if lack.as_ref().is_none_or(|lack| lack.contains(&short(entry.name))) && !out() {
                extra.push(entry.name.to_owned());
            }
            !self.tally.cancelled()
        });
        listed.map_err(|e| Error::os(Op::ListDirectory, pair.node.path(), e))?;
        extra.sort();
        for name in extra {
            self.visit().extra(dst, name.as_name(), pair.node.join(name.as_name()));
        }
        Ok(())
    }

    fn all_sent(&self) -> Result<()> {
        let left = {
            let state = self.state();
            let singles = !state.singles.is_empty();
            singles || !state.batches.is_empty() || !state.files.is_empty() || !state.dirs.is_empty()
        };
        if left && !self.tally.cancelled() {
            return Err(refused(Reason::EndBeforeSettled));
        }
        self.what.tell_missing(self.tally);
        self.all_sent.store(true, Relaxed);
        Ok(())
    }
}

fn at<'s>(spot: &'s Spot, src_path: &'s Path, dst_path: &'s Path, both: &'s dyn Both) -> At<'s> {
    let Spot { info, there, lack, merges, .. } = spot;
    At { info: *info, there: *there, src_path, dst_path, lack: lack.as_deref(), merges: *merges, both }
}

/// Enough of a name to know it again: many names are held, and short.
fn short(name: Name<'_>) -> [u8; 16] {
    blake3::hash(name.bytes()).as_bytes().first_chunk().copied().unwrap_or_default()
}

/// The names in a directory, as hashes.
fn there(dst: &Dir) -> std::io::Result<HashSet<[u8; 16]>> {
    let mut names = HashSet::new();
    // A handle is listed once: it stays at its end.
    dst.reopen()?.list(&mut ListBuffer::new(), |entry| {
        names.insert(short(entry.name));
        true
    })?;
    Ok(names)
}

fn opened(spot: &Spot) -> Result<std::os::fd::OwnedFd> {
    let gone = || Error::ours(Code::NotFound, Op::Open, spot.shown.path(), Reason::DirectoryWentAway);
    let (dir, to) = spot.dst.as_ref().ok_or_else(gone)?;
    dir.open_file(to.as_name()).map_err(|e| Error::os(Op::Open, spot.shown.path(), e))
}

/// Whether what is there is how these bytes begin.
fn begins(spot: &Spot, bytes: &[u8], observe: &dyn Fn(u64) -> bool) -> Result<bool> {
    let fd = opened(spot)?;
    let shown = spot.shown.path();
    let info = Info::of(&fd).map_err(|e| Error::os(Op::Stat, &shown, e))?;
    let size = usize::try_from(info.size).unwrap_or(usize::MAX);
    let Some(first) = bytes.get(..size) else { return Ok(false) };
    Ok(hash(&fd, &shown, observe)? == blake3::hash(first))
}

/// Whether what is there is so long and has this hash.
fn same(spot: &Spot, length: u64, theirs: &[u8; 32], observe: &dyn Fn(u64) -> bool) -> Result<bool> {
    let fd = opened(spot)?;
    let shown = spot.shown.path();
    let info = Info::of(&fd).map_err(|e| Error::os(Op::Stat, &shown, e))?;
    Ok(info.size == length && hash(&fd, &shown, observe)? == blake3::Hash::from_bytes(*theirs))
}

impl Takes for Surveying<'_> {
    fn watch(&self) -> Watch<'_> {
        self.tally.watch
    }

    fn what(&self) -> &What {
        &self.what
    }

    fn crew(&self) -> Crew {
        Crew::new(&Sys::new())
    }

    fn handle(&self, crew: &mut Crew, message: Message<'_>) -> Result<()> {
        match message {
            Message::Operand { path, whole, origin, dir, entry } => {
                self.operand(path, whole, origin, dir, &entry)
            }
            Message::Dir { id, parent, entry } => self.dir(id, parent, &entry),
            Message::Files { batch, dir, inline, entries, .. } => self.files(batch, dir, inline, &entries),
            Message::Contents { batch, codec, bytes } => self.contents(crew, batch, codec, bytes),
            Message::Large { file, dir, entry } => self.large(file, dir, &entry),
            Message::FileEnd { file, state: how, error } => {
                let state = self.state();
                match state.files.get(&file) {
                    Some(arriving) => arriving.end(end_of(how, error.as_ref())),
                    None => state.named.was_offered(file)?,
                }
                Ok(())
            }
            Message::Values { file, first, hashes } => {
                let arriving = self.state().files.get(&file).cloned();
                match arriving {
                    Some(arriving) => arriving.values(first, &hashes),
                    None => self.state().named.was_offered(file),
                }
            }
            Message::DirEnd { dir, partial } => self.dir_end(dir, partial),
            Message::Trouble(trouble) => {
                self.what.trouble(&trouble, self.tally);
                Ok(())
            }
            Message::Found { items, bytes, last } => {
                found(self.tally, items, bytes, last);
                Ok(())
            }
            Message::AllSent => {
                self.all_sent()?;
                self.leave(crew);
                Ok(())
            }
            Message::Cancel => {
                self.tally.watch.cancel.set();
                Ok(())
            }
            other => Err(not_a_senders(&other)),
        }
    }

    fn piece(&self, _: usize, _: &Head, _: Load) -> Result<()> {
        Err(refused(Reason::PieceBeforeWanted))
    }

    fn land_large(&self) -> Result<()> {
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
                    let _waits = self.reply.pulse.waits_for(crate::pulse::For::Frame);
                    offers = self.offered.wait(offers).unwrap_or_else(PoisonError::into_inner);
                }
            };
            self.one_large(offer)?;
        }
    }

    fn is_complete(&self) -> bool {
        self.all_sent.load(Relaxed)
    }

    fn leave(&self, _: &mut Crew) {
        self.offers().ended = true;
        let files: Vec<_> = self.state().files.drain().map(|(_, f)| f).collect();
        for file in files {
            file.lose();
        }
        self.offered.notify_all();
    }

    fn end(self, cut_short: bool) -> (Summary, Marks) {
        if cut_short {
            self.tally.cut_short();
        }
        if self.tells_how {
            let Compared { by_time, by_content } = self.tally.compared();
            // A client that is gone is noticed by the thread that reads.
            let how = Message::Report(message::Event::Compared { by_time, by_content });
            let _told = self.reply.send(&how).is_ok();
        }
        (self.tally.summary(), Marks::NONE)
    }
}
