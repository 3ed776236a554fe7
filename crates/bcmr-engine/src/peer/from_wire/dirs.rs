//! Directories of the sender that are open, so that entries may come for them, and those of which nothing is wanted.
//!
//! Must not know how an operand comes to its directory, nor what becomes of entries.

use crate::error::{Reason, Result};
use crate::peer::from_wire::destination::{Far, FarHold, WireDestination};
use crate::peer::from_wire::transfer::{WireTransfer, Worker};
use crate::peer::incoming::{Incoming, refused};
use crate::peer::named::Named;
use crate::receiver::choose::Way;
use crate::receiver::claims::Spot;
use crate::receiver::dir_task::{DirTask, Hold};
use crate::verbs::destination::{Destination, DirEntry, Entering};
use bcmr_wire::message::{DirState, Entry, Kind as WireKind, Message};
use fastcopy::dir::NameBuf;
use fastcopy::meta::Kind;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where entries go.
pub(super) struct EntriesGoal<T> {
    pub(super) slot: Hold<Far, T>,
    /// Where it is among the names that sources claim.
    pub(super) spot: Spot,
    /// The name of the one operand, and what it is shown as.
    pub(super) operand: Option<(NameBuf, PathBuf)>,
    pub(super) way: Way,
}

/// The directories of one transfer.
pub(super) struct WireDirs<D: Destination<Far>>(Mutex<OpenDirs<D>>);

struct OpenDirs<D: Destination<Far>> {
    by_id: HashMap<u64, FarHold<D>>,
    named: Named,
}

impl<D: Destination<Far>> WireDirs<D> {
    pub(super) fn new() -> WireDirs<D> {
        WireDirs(Mutex::new(OpenDirs { by_id: HashMap::new(), named: Named::default() }))
    }

    fn open(&self) -> MutexGuard<'_, OpenDirs<D>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open().by_id.is_empty()
    }

    /// Whether so many operands and directories were named.
    pub(super) fn has_named(&self, count: u64) -> bool {
        self.open().named.has_dirs(count)
    }

    /// An operand has come, which has this path there, and this name or none of its own.
    ///
    /// # Errors
    /// It was not asked for.
    pub(super) fn name_operand(
        &self,
        what: &Incoming,
        (id, origin): (u64, u64),
        name: (&Path, Option<&NameBuf>),
        entry: &Entry<'_>,
    ) -> Result<()> {
        self.open().named.operand(what, id, origin, name, entry)
    }

    /// Where entries of `dir` go, if it is open. It waits for them, to be sealed and, if they are `small`, to get its name.
    pub(super) fn goal(&self, dir: u64, small: bool) -> Option<EntriesGoal<D::Dir>> {
        let open = self.open();
        let slot = open.by_id.get(&dir)?;
        let slot = if small { slot.hold_name() } else { slot.hold() };
        Some(EntriesGoal { spot: slot.spot, slot, operand: None, way: Way::Small })
    }

    /// What comes for a directory that is not open: dropped when it was refused.
    ///
    /// # Errors
    /// It never was there: `note`.
    pub(super) fn was_refused(&self, id: u64, note: Reason) -> Result<()> {
        self.open().named.was_refused(id, note)
    }

    /// Lets go of all that are open; what was refused is known still.
    pub(super) fn into_named(self) -> Named {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).named
    }
}

impl<'a, D: WireDestination<'a>> WireDirs<D> {
    /// Files may come for a directory from now on.
    pub(super) fn opened(&self, t: &WireTransfer<'a, D>, id: u64, slot: FarHold<D>) -> DirState {
        let is_new = t.to.is_new(&slot.dst);
        self.open().by_id.insert(id, slot);
        if is_new { DirState::New } else { DirState::There }
    }

    /// Nothing is wanted of a directory, nor of what is below it.
    pub(super) fn refuse(&self, t: &WireTransfer<'a, D>, id: u64) -> Result<()> {
        self.open().named.refuse(id);
        t.reply.answer(&Message::DirIs { dir: id, state: DirState::Refused })
    }

    /// The directory above a new one that came; `None`: it was refused.
    fn above(&self, id: u64, parent: u64) -> Result<Option<FarHold<D>>> {
        let mut open = self.open();
        let count = open.by_id.len();
        open.named.dir(id, count)?;
        match open.by_id.get(&parent) {
            Some(above) => Ok(Some(above.hold())),
            None => open.named.was_refused(parent, Reason::DirectoryInNone).map(|()| None),
        }
    }

    /// A directory came.
    pub(super) fn dir(
        &self,
        t: &WireTransfer<'a, D>,
        worker: &mut Worker<D>,
        (id, parent): (u64, u64),
        entry: &Entry<'_>,
    ) -> Result<()> {
        let Some(above) = self.above(id, parent)? else { return self.refuse(t, id) };
        if entry.kind != WireKind::Dir {
            return Err(refused(Reason::DirectoryThatIsNone));
        }
        let meta = t.meta_of(entry, None)?;
        t.is_asked(&above, &meta)?;
        let name = meta.name.as_name();
        t.to.met(&above, name);
        t.to.expect(&above, 1);
        let node = above.src.node.below(name);
        let src = Arc::new(Far { id, info: meta.info, attrs: meta.attrs, node });
        let met = DirEntry::met(name, name, Kind::Dir, false);
        let by = t.what.entering();
        match t.to.enter(&mut worker.of_destination, &above, &src, met, by) {
            Ok(Some(dst)) => {
                let spot = t.to.claims().below(&above.spot, name);
                // Those of a round are sealed when all of them are over.
                let ours = by != Entering::Round;
                let slot = DirTask::below(above, WireTransfer::<D>::pair(src, dst, ours, spot));
                let state = self.opened(t, id, slot);
                return t.reply.answer(&Message::DirIs { dir: id, state });
            }
            Ok(None) => {}
            Err(e) => t.tally().fail(e),
        }
        t.give_up(worker, above);
        self.refuse(t, id)
    }

    /// What the filter leaves out of a directory, as only the sender can tell.
    pub(super) fn left_out(&self, t: &WireTransfer<'a, D>, id: u64, names: &[&[u8]]) -> Result<()> {
        let open = self.open();
        let Some(slot) = open.by_id.get(&id) else {
            return open.named.was_refused(id, Reason::EndOfClosed);
        };
        for name in names.iter().filter_map(|name| NameBuf::new(name)) {
            t.to.left_out(slot, name.as_name());
        }
        Ok(())
    }

    /// All of a directory has come, or only a part of it.
    pub(super) fn end(
        &self,
        t: &WireTransfer<'a, D>,
        worker: &mut Worker<D>,
        id: u64,
        partial: bool,
    ) -> Result<()> {
        let slot = {
            let mut open = self.open();
            let Some(slot) = open.by_id.remove(&id) else {
                return open.named.was_refused(id, Reason::EndOfClosed);
            };
            slot
        };
        if partial {
            slot.mark_incomplete();
        } else {
            t.to.listed(&slot);
        }
        t.release(worker, slot);
        Ok(())
    }

    /// Nothing more comes.
    pub(super) fn leave(&self, t: &WireTransfer<'a, D>, worker: &mut Worker<D>) {
        let left: Vec<_> = self.open().by_id.drain().collect();
        for (_, slot) in left {
            t.give_up(worker, slot);
        }
    }
}
