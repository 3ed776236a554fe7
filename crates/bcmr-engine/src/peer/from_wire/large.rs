//! Large files: those on offer, in their order, and those that are on their way.
//!
//! Must not know where a directory is, nor how a file is landed; the pieces of each are put in order by [`Arriving`].

use crate::disk::Bytes;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::Cancel;
use crate::peer::from_wire::destination::{Chosen, FarHold, Meta, WireDestination};
use crate::peer::from_wire::dirs::EntriesGoal;
use crate::peer::from_wire::handler::Head;
use crate::peer::from_wire::transfer::{WireTransfer, Worker};
use crate::peer::incoming::refused;
use crate::peer::named::NamedInWindow;
use crate::peer::reply::{Reply, not_sent};
use crate::pulse::{For, Pulse};
use crate::receiver::arriving::{Arriving, End, Load, StallDetector};
use crate::trouble::error_of;
use bcmr_wire::limits;
use bcmr_wire::message::{Entry, FileState, Kind as WireKind, Message, Trouble, data};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A large file on offer.
pub(super) struct LargeOffer<'a, D: WireDestination<'a>> {
    arriving: Arc<Arriving<'a>>,
    slot: FarHold<D>,
    meta: Meta,
    /// Absent for a further name: what becomes of it is known once its first name, which was offered before, is settled.
    verdict: Option<D::Verdict>,
    /// The sender was told to begin.
    begun: bool,
}

struct LargeOffers<'a, D: WireDestination<'a>> {
    queue: VecDeque<LargeOffer<'a, D>>,
    /// Nothing more will come.
    ended: bool,
    /// Offers that were not begun when they were queued: later ones wait for them, as the sender sends in the order in which
    /// it was told to.
    undecided: usize,
}

/// Files that came and are not settled.
struct OpenFiles<'a> {
    by_id: HashMap<u64, Arc<Arriving<'a>>>,
    named: NamedInWindow,
}

/// The large files of one transfer.
pub(super) struct WireLargeFiles<'a, D: WireDestination<'a>> {
    files: Mutex<OpenFiles<'a>>,
    offers: Mutex<LargeOffers<'a, D>>,
    offered: Condvar,
    stalls: Arc<StallDetector<'a>>,
    pulse: Arc<Pulse>,
}

impl<'a, D: WireDestination<'a>> WireLargeFiles<'a, D> {
    /// Nothing has come yet, over any of the `streams`.
    pub(super) fn new(cancel: &'a Cancel, streams: usize, reply: &Reply) -> WireLargeFiles<'a, D> {
        let timeout = Duration::from_millis(limits::DEAD_MS);
        WireLargeFiles {
            files: Mutex::new(OpenFiles { by_id: HashMap::new(), named: NamedInWindow::files() }),
            offers: Mutex::new(LargeOffers { queue: VecDeque::new(), ended: false, undecided: 0 }),
            offered: Condvar::new(),
            stalls: Arc::new(StallDetector::new(cancel, streams, timeout, reply.pulse.clone())),
            pulse: reply.pulse.clone(),
        }
    }

    fn files(&self) -> MutexGuard<'_, OpenFiles<'a>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offers(&self) -> MutexGuard<'_, LargeOffers<'a, D>> {
        // The sender is told to begin under it, and may leave no room for that.
        self.pulse.lock(&self.offers)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files().by_id.is_empty()
    }

    /// Nothing more will come.
    pub(super) fn has_ended(&self) -> bool {
        self.offers().ended
    }

    /// The connection is gone: none waits for room any more.
    pub(super) fn lose(&self) {
        self.stalls.lose();
    }

    /// A file on its way; `None` when it is settled and the sender has not heard of that yet.
    pub(super) fn arriving(&self, file: u64) -> Result<Option<Arc<Arriving<'a>>>> {
        let files = self.files();
        match files.by_id.get(&file).cloned() {
            None if files.named.has_come(file) => Ok(None),
            None => Err(refused(Reason::FileNotOffered)),
            known => Ok(known),
        }
    }

    /// A piece came.
    pub(super) fn piece(&self, stream: usize, head: &Head, load: Load) -> Result<()> {
        // A file that is settled already: what was under way is dropped.
        let Some(arriving) = self.files().by_id.get(&head.file).cloned() else { return Ok(()) };
        arriving.push(stream, head.at, head.length, head.cv, head.flags & data::ASKED != 0, load)
    }

    /// The sender is done with a file.
    pub(super) fn end_of(&self, file: u64, state: FileState, error: Option<&Trouble<'_>>) -> Result<()> {
        if let Some(arriving) = self.arriving(file)? {
            arriving.end(end_of(state, error));
        }
        Ok(())
    }

    /// A large file has come.
    ///
    /// # Errors
    /// It is none, or may not come now.
    pub(super) fn announce(&self, file: u64, entry: &Entry<'_>) -> Result<()> {
        self.files().named.take(file)?;
        if entry.kind == WireKind::File { Ok(()) } else { Err(refused(Reason::LargeThatIsNone)) }
    }

    /// Nothing is wanted of a large file.
    pub(super) fn refuse(&self, t: &WireTransfer<'a, D>, file: u64) -> Result<()> {
        t.reply.answer(&Message::Resume { file, wanted: false, from: 0, flags: 0 })?;
        self.close(t, file)
    }

    /// Takes a large file that goes to `goal`.
    pub(super) fn take(
        &self,
        t: &WireTransfer<'a, D>,
        worker: &mut Worker<D>,
        file: u64,
        goal: EntriesGoal<D::Dir>,
        entry: &Entry<'_>,
    ) -> Result<()> {
        let EntriesGoal { slot, spot, operand, .. } = goal;
        let meta = t.meta_of(entry, operand.as_ref())?;
        t.is_asked(&slot, &meta)?;
        if operand.is_none() {
            t.to.met(&slot, meta.name.as_name());
        }
        let verdict = match t.choose(&slot, &spot, &meta) {
            Chosen::Nothing => {
                t.release(worker, slot);
                return self.refuse(t, file);
            }
            Chosen::Want(verdict) => Some(verdict),
            Chosen::Further => None,
        };
        let values = t.to.wants_values();
        let arriving = Arriving::new(file, meta.info, values, t.reply, self.stalls.clone());
        let wanted = verdict.map(|verdict| (&meta, verdict));
        let arriving = Arc::new(t.to.prepare(&slot, wanted, arriving)?);
        self.queue(t, worker, LargeOffer { arriving, slot, meta, verdict, begun: false })
    }

    /// Leaves a large file to the thread that takes them. The sender begins with it at once, where it is known from where
    /// on it is wanted.
    fn queue(&self, t: &WireTransfer<'a, D>, worker: &mut Worker<D>, offer: LargeOffer<'a, D>) -> Result<()> {
        let arriving = offer.arriving.clone();
        let mut offers = self.offers();
        if offers.ended {
            drop(offers);
            t.to.settled(arriving.file);
            t.give_up(worker, offer.slot);
            return Err(refused(Reason::LargeAfterEnd));
        }
        self.files().by_id.insert(arriving.file, arriving.clone());
        let begun = offers.undecided == 0 && !is_late(t, &offer);
        if !begun {
            offers.undecided += 1;
        }
        let asked = if begun { arriving.start(0).map_err(not_sent) } else { Ok(()) };
        offers.queue.push_back(LargeOffer { begun, ..offer });
        drop(offers);
        self.offered.notify_all();
        asked
    }

    /// The next one to land, waiting for it; `None`: nothing more comes.
    pub(super) fn next(&self) -> Option<LargeOffer<'a, D>> {
        let mut offers = self.offers();
        loop {
            if let Some(offer) = offers.queue.pop_front() {
                return Some(offer);
            }
            if offers.ended {
                return None;
            }
            let _waits = self.pulse.waits_for(For::Frame);
            offers = self.offered.wait(offers).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lands one; nothing new is taken up when the transfer `is_over`.
    pub(super) fn land(
        &self,
        t: &WireTransfer<'a, D>,
        worker: &mut Worker<D>,
        offer: LargeOffer<'a, D>,
        is_over: bool,
    ) -> Result<()> {
        let LargeOffer { arriving, slot, meta, verdict, begun } = offer;
        let (file, buffers) = (arriving.file, &mut worker.of_destination);
        let verdict = if is_over {
            slot.mark_incomplete();
            None
        } else if verdict.is_some() {
            verdict
        } else {
            match t.to.choose_further(buffers, &slot, &meta) {
                Some(Chosen::Want(verdict)) => Some(verdict),
                Some(Chosen::Nothing) => None,
                None | Some(Chosen::Further) => {
                    let note = Reason::FirstNameUnsettled;
                    t.failed(&slot, Error::ours(Code::Io, Op::Link, meta.path(&slot.src.node), note));
                    None
                }
            }
        };
        if let Some(verdict) = verdict {
            t.to.land_large(buffers, &slot, (&meta, verdict), &arriving);
        }
        if !arriving.was_wanted() {
            t.reply.answer(&Message::Resume { file, wanted: false, from: 0, flags: 0 })?;
        }
        arriving.close();
        self.files().by_id.remove(&file);
        t.to.settled(file);
        t.to.release(buffers, slot);
        if !begun {
            self.begin_following(t)?;
        }
        self.close(t, file)
    }

    /// One whose beginning had to be found out has been begun and read: those behind it that need no thought begin.
    fn begin_following(&self, t: &WireTransfer<'a, D>) -> Result<()> {
        let mut offers = self.offers();
        for offer in &mut offers.queue {
            if is_late(t, offer) {
                break;
            }
            if !offer.begun {
                offer.begun = true;
                offer.arriving.start(0).map_err(not_sent)?;
            }
        }
        offers.undecided = offers.queue.iter().filter(|o| !o.begun).count();
        Ok(())
    }

    /// The sender may forget a large file.
    fn close(&self, t: &WireTransfer<'a, D>, file: u64) -> Result<()> {
        self.files().named.settle(file)?;
        t.reply.answer(&Message::Close { file })
    }

    /// Nothing more comes: what is on its way does not get here.
    pub(super) fn leave(&self) {
        self.offers().ended = true;
        let left: Vec<_> = self.files().by_id.drain().collect();
        for (_, file) in left {
            file.lose();
        }
        self.offered.notify_all();
    }
}

/// Whether only the thread that takes large files can say from where on a file is wanted.
fn is_late<'a, D: WireDestination<'a>>(t: &WireTransfer<'a, D>, offer: &LargeOffer<'a, D>) -> bool {
    let late = |verdict| t.to.is_late(&offer.meta, verdict);
    offer.arriving.has_basis() || offer.verdict.is_none_or(late)
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
