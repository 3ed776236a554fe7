//! Operands of a transfer: what each becomes, and the directories that they go into.
//!
//! Must not know what becomes of what is below an operand.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::Event;
use crate::node::Node;
use crate::peer::from_wire::destination::{Far, FarHold, WireDestination};
use crate::peer::from_wire::dirs::{EntriesGoal, WireDirs};
use crate::peer::from_wire::transfer::{WireTransfer, Worker};
use crate::peer::incoming::refused;
use crate::policy::Follow;
use crate::receiver::choose::Way;
use crate::receiver::claims::{Claimed, Spot};
use crate::receiver::dir_task::{DirTask, Hold};
use crate::verbs::destination::{Destination, DirEntry, Entering};
use crate::verbs::operands::{self, Dest, Place, SameDest, SecondSource};
use bcmr_wire::limits;
use bcmr_wire::message::{DirState, Entry, Kind as WireKind, Message};
use fastcopy::dir::NameBuf;
use fastcopy::meta::{Info, Kind};
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slotted;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Operands that were announced and whose entry has not come.
const SINGLES_MAX: usize = limits::DIRS_OUT_MAX * 16;

/// What the sender says of an operand.
pub(super) struct OperandMessage<'m> {
    pub(super) id: u64,
    pub(super) path: &'m [u8],
    /// It has no name of its own: its contents are meant.
    pub(super) whole: bool,
    /// The sender's number.
    pub(super) origin: u64,
    pub(super) entry: &'m Entry<'m>,
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

/// Where an operand that is no directory goes.
struct SingleOperand<T> {
    slot: Hold<Far, T>,
    spot: Spot,
    to: NameBuf,
    kind: WireKind,
    shown: PathBuf,
}

/// The operands of one transfer.
pub(super) struct WireOperands<D: Destination<Far>>(Mutex<OpenOperands<D>>);

struct OpenOperands<D: Destination<Far>> {
    /// Those that are no directories and whose entry has not come.
    singles: HashMap<u64, SingleOperand<D::Dir>>,
    places: Vec<(Arc<Place>, FarHold<D>)>,
    /// What operands become: two directories of one name are merged, the second once the first is done.
    names: HashMap<NameBuf, Became<D::Dir>>,
}

impl<D: Destination<Far>> WireOperands<D> {
    pub(super) fn new() -> WireOperands<D> {
        let (singles, places, names) = (HashMap::new(), Vec::new(), HashMap::new());
        WireOperands(Mutex::new(OpenOperands { singles, places, names }))
    }

    fn open(&self) -> MutexGuard<'_, OpenOperands<D>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the entry of each has come.
    pub(super) fn have_come(&self) -> bool {
        self.open().singles.is_empty()
    }

    /// Where the entry of an operand goes that is no directory and was announced.
    ///
    /// # Errors
    /// `entries` are something else.
    pub(super) fn goal(&self, id: u64, entries: &[Entry<'_>]) -> Result<Option<EntriesGoal<D::Dir>>> {
        let mut open = self.open();
        let fits = |single: &SingleOperand<D::Dir>| matches!(entries, [one] if one.kind == single.kind);
        if open.singles.get(&id).is_some_and(|single| !fits(single)) {
            return Err(refused(Reason::OtherOperand));
        }
        Ok(open.singles.remove(&id).map(|single| {
            let SingleOperand { slot, spot, to, shown, .. } = single;
            EntriesGoal { slot, spot, operand: Some((to, shown)), way: Way::Alone }
        }))
    }
}

impl<'a, D: WireDestination<'a>> WireOperands<D> {
    /// An operand came.
    pub(super) fn operand(
        &self,
        t: &WireTransfer<'a, D>,
        dirs: &WireDirs<D>,
        worker: &mut Worker<D>,
        message: &OperandMessage<'_>,
    ) -> Result<()> {
        let OperandMessage { id, path, whole, origin, entry } = *message;
        let name = if whole { None } else { NameBuf::new(entry.name) };
        let path = Path::new(OsStr::from_bytes(path));
        dirs.name_operand(&t.what, (id, origin), (path, name.as_ref()), entry)?;
        t.what.no_link(t.policy.follow != Follow::Never, entry.kind)?;
        t.set_sender_origin(origin);
        let shown = t.what.shown(path);
        match self.place(t, dirs, worker, message, &shown) {
            Ok(Some(state)) => t.reply.answer(&Message::DirIs { dir: id, state }),
            // Nothing of it is wanted, or it is the very same source once more: it is taken once.
            Ok(None) => dirs.refuse(t, id),
            Err(e) if e.code == Code::Protocol => Err(e),
            Err(e) => {
                t.tally().fail(e);
                dirs.refuse(t, id)
            }
        }
    }

    /// Finds the place of an operand and enters the directory that it becomes.
    fn place(
        &self,
        t: &WireTransfer<'a, D>,
        dirs: &WireDirs<D>,
        worker: &mut Worker<D>,
        message: &OperandMessage<'_>,
        shown: &Path,
    ) -> Result<Option<DirState>> {
        let OperandMessage { id, whole, entry, .. } = *message;
        let meta = if whole { None } else { Some(t.meta_of(entry, None)?) };
        let info = t.info_of(entry);
        // The directory of a list of names is only where they are.
        let listed = whole && t.what.listed;
        operands::takes_kind(t.policy.recursive || listed, info.kind, Op::Copy, || shown.to_owned())?;
        let dest = t.what.to.dest(meta.map(|meta| meta.name), &info)?;
        if t.what.to.goes_on(&info) {
            t.tally().watch.front.event(Event::NewTarget);
        }
        let Some(spot) = self.spot(t, worker, (&dest, shown), &info)? else { return Ok(None) };
        let fills = matches!(dest, Dest::Whole(_));
        if D::HOLDS_COPY {
            operands::nesting(&t.what.reach, &info, fills, &dest, t.policy, shown, Op::Copy)?;
        }
        let src = t.far(id, entry, Node::root(shown))?;
        let (place, name) = match dest {
            Dest::Whole(place) => {
                if t.what.is_whole() {
                    t.to.fills(&src, &place)?;
                }
                let dst = if t.what.listed { t.to.list_base(&src, &place)? } else { t.to.base(&place)? };
                // That of a round is sealed when all of them are over.
                if t.what.is_whole() || t.what.entering() == Entering::Round {
                    t.to.becomes(&src, &dst);
                }
                let pair = WireTransfer::<D>::pair(Arc::new(src), dst, t.what.is_whole(), spot);
                return Ok(Some(dirs.opened(t, id, t.to.top(pair, &t.dropped))));
            }
            Dest::Named { dir, name } => (dir, name),
        };
        let above = self.surroundings(t, &place, &src, shown)?;
        if info.kind != Kind::Dir {
            let (kind, shown) = (entry.kind, shown.to_owned());
            return self.announce(t, worker, id, SingleOperand { slot: above, spot, to: name, kind, shown });
        }
        let by = match (listed, whole) {
            (true, _) => Entering::ListBase,
            (false, true) => Entering::Whole,
            (false, false) => Entering::Operand,
        };
        let src = Arc::new(src);
        let met = DirEntry::met(name.as_name(), name.as_name(), Kind::Dir, false);
        let entered = t.to.enter(&mut worker.of_destination, &above, &src, met, by);
        let dst = match entered {
            Ok(Some(dst)) => dst,
            other => {
                t.give_up(worker, above);
                return other.map(|_| None);
            }
        };
        let below = t.to.claims().below(&spot, name.as_name());
        let slot = DirTask::below(above, WireTransfer::<D>::pair(src, dst, true, below));
        let dir = Arc::downgrade(&*slot);
        self.open().names.entry(name).and_modify(|became| became.dir = dir);
        Ok(Some(dirs.opened(t, id, slot)))
    }

    /// Where an operand is among the names that sources claim; `None`: it is the very same source as an earlier one.
    fn spot(
        &self,
        t: &WireTransfer<'a, D>,
        worker: &mut Worker<D>,
        (dest, shown): (&Dest, &Path),
        info: &Info,
    ) -> Result<Option<Spot>> {
        let fills = matches!(dest, Dest::Whole(_));
        let mut spot = t.to.claims().operand(shown, fills);
        if let Dest::Named { name, .. } = dest {
            match self.follows(t, worker, (name, dest), (info, shown), spot.owner)? {
                Claimed::Same => return Ok(None),
                Claimed::Other(earlier) => spot = spot.after(earlier),
                Claimed::First | Claimed::Again | Claimed::Unless(_) => {}
            }
        }
        if spot.owner > 0 && (fills || t.to.claims().has_whole()) {
            // What waits to be synced with others would be made a second time beside itself.
            t.to.worked(&mut worker.of_destination);
            spot = spot.after(0);
        }
        Ok(Some(spot))
    }

    /// Whether the operand `owner` may become `name`, which an earlier one may have become: the very same one, or another
    /// that it is merged with.
    fn follows(
        &self,
        t: &WireTransfer<'a, D>,
        worker: &mut Worker<D>,
        (name, dest): (&NameBuf, &Dest),
        (info, shown): (&Info, &Path),
        owner: u32,
    ) -> Result<Claimed> {
        let (earlier, first) = match self.open().names.entry(name.clone()) {
            Slotted::Vacant(slot) => {
                slot.insert(Became { dir: Weak::new(), id: info.id(), shown: shown.to_owned(), owner });
                return Ok(Claimed::First);
            }
            Slotted::Occupied(slot) => {
                let Became { dir, id, shown: earlier, owner } = slot.get();
                let sources =
                    SameDest { earlier: (*id, earlier), later: (info, shown), is_same_entry: false };
                if sources.meet(Op::Copy, dest)? == SecondSource::Once {
                    return Ok(Claimed::Same);
                }
                (dir.clone(), *owner)
            }
        };
        t.to.merges(&mut worker.of_destination, earlier.upgrade().as_deref())?;
        Ok(Claimed::Other(first))
    }

    /// The entry of an operand that is no directory is to come.
    fn announce(
        &self,
        t: &WireTransfer<'a, D>,
        worker: &mut Worker<D>,
        id: u64,
        single: SingleOperand<D::Dir>,
    ) -> Result<Option<DirState>> {
        let mut open = self.open();
        if open.singles.len() < SINGLES_MAX {
            open.singles.insert(id, single);
            return Ok(Some(DirState::There));
        }
        drop(open);
        let SingleOperand { slot, shown, .. } = single;
        t.release(worker, slot);
        Err(Error::ours(Code::Limit, Op::Copy, shown, Reason::TooManyOperands))
    }

    /// The directory that an operand goes into.
    fn surroundings(
        &self,
        t: &WireTransfer<'a, D>,
        place: &Arc<Place>,
        src: &Far,
        shown: &Path,
    ) -> Result<FarHold<D>> {
        let parent = shown.parent().unwrap_or(shown);
        let known = {
            let open = self.open();
            let mut places = open.places.iter().rev();
            places.find(|(p, _)| Arc::ptr_eq(p, place)).map(|(_, slot)| Arc::clone(slot))
        };
        let dst = match known {
            // What is taken away is named by its operand.
            Some(slot) if slot.src.node.path() == parent && !t.policy.leaving.goes() => {
                return Ok(slot.hold());
            }
            // Operands of one command mostly go to one place: its lock is held once, so it is opened once.
            Some(slot) => t.to.share(&slot.dst),
            None => t.to.base(place)?,
        };
        let src = Far { id: src.id, info: src.info, attrs: Vec::new(), node: Node::root(parent) };
        let pair = WireTransfer::<D>::pair(Arc::new(src), dst, false, Spot::default());
        let slot = t.to.top(pair, &t.dropped);
        let hold = slot.hold();
        self.open().places.push((place.clone(), slot));
        Ok(hold)
    }

    /// Nothing more comes.
    pub(super) fn leave(&self, t: &WireTransfer<'a, D>, worker: &mut Worker<D>) {
        let left: Vec<_> = self.open().singles.drain().collect();
        for (_, single) in left {
            t.give_up(worker, single.slot);
        }
    }

    /// After everything: the directories that operands went into are let go.
    pub(super) fn end(self, t: &WireTransfer<'a, D>, buffers: &mut D::Buffers) {
        let open = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (_, place) in open.places {
            t.to.release(buffers, place);
        }
    }
}
