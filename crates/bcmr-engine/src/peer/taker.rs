//! A destination that takes in nothing, and has names taken away at the source: a source on another machine that is removed.
//!
//! Must not know which names those are. Each is looked at first; the sender takes away what still is what it has shown (V14).

use crate::error::{Reason, Result};
use crate::event::Summary;
use crate::node::Node;
use crate::peer::from_wire::destination::{Chosen, Far, Meta, WireDestination};
use crate::peer::from_wire::handler::NextMessage;
use crate::peer::incoming::{Incoming, refused};
use crate::peer::reply::Reply;
use crate::peer::taking::{taken, until_answered};
use crate::receiver::claims::{Claims, Meeting, Spot};
use crate::receiver::dir_task::{DirTask, Hold};
use crate::receiver::directories::Marks;
use crate::tally::Tally;
use crate::verbs::destination::{Destination, DirEntry, Entering};
use crate::verbs::operands::Place;
use bcmr_wire::limits::TAKEN_MAX;
use bcmr_wire::message::{Message, Taken};
use fastcopy::dir::{Name, NameBuf};
use fastcopy::meta::Info;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Says what goes. Called by several threads at once.
pub(crate) trait TakeListener: Sync {
    /// Whether this goes, in the directory `above`, which is as `info` says.
    fn goes(&self, above: &Node, name: Name<'_>, info: &Info) -> bool;
    /// What becomes of a directory that leads to names, or is one of them.
    fn dir(&self, dir: &Node, info: &Info) -> TakenDir;
}

/// What becomes of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenDir {
    /// It stays, and leads to names.
    Stays,
    /// It goes once what was named in it is gone.
    GoesAfter,
    /// It goes as it is, and nothing in it is looked at.
    Goes,
    /// It stays, and nothing in it is looked at.
    PassedOver,
}

/// Names of one directory that the sender is to be told of.
#[derive(Default)]
struct WaitingNames {
    dir: u64,
    names: Vec<(NameBuf, Info)>,
}

/// Has names taken away that `to` wants to go.
pub(crate) struct Taker<'a> {
    tally: Tally<'a>,
    claims: Claims,
    reply: &'a Reply,
    what: Arc<Incoming>,
    to: &'a dyn TakeListener,
    waiting: Mutex<WaitingNames>,
    /// Questions without an answer.
    asked: AtomicU64,
}

impl<'a> Taker<'a> {
    pub(super) fn new(
        tally: Tally<'a>,
        reply: &'a Reply,
        what: Arc<Incoming>,
        to: &'a dyn TakeListener,
    ) -> Taker<'a> {
        let (claims, waiting, asked) = (Claims::new(Meeting::Listed), Mutex::default(), AtomicU64::new(0));
        Taker { tally, claims, reply, what, to, waiting, asked }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingNames> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has these names of a directory taken away, or the directory itself.
    fn ask(&self, dir: u64, names: Vec<Taken<'_>>) {
        if self.tally.cancelled() {
            return;
        }
        self.asked.fetch_add(1, Relaxed);
        // That the sender is gone is noticed where its frames are received; what was not asked for stays there.
        let _asked = self.reply.send(&Message::TakeAway { dir, names }).is_ok();
    }

    /// Asks for all that waits.
    fn flush(&self, waiting: &mut WaitingNames) {
        let names = std::mem::take(&mut waiting.names);
        if !names.is_empty() {
            self.ask(waiting.dir, names.iter().map(|(name, info)| taken(name, info)).collect());
        }
    }

    /// Has a directory taken away, after what was in it.
    fn take_dir(&self, dir: &Far) {
        let mut waiting = self.waiting();
        self.flush(&mut waiting);
        self.ask(dir.id, Vec::new());
    }
}

impl Destination<Far> for Taker<'_> {
    type Buffers = ();
    type Dir = ();

    fn tally(&self) -> &Tally<'_> {
        &self.tally
    }

    fn claims(&self) -> &Claims {
        &self.claims
    }

    fn buffers(&self) {}

    fn base(&self, _: &Place) -> Result<()> {
        Ok(())
    }

    fn share(&self, (): &()) {}

    fn enter(
        &self,
        (): &mut (),
        _: &Arc<DirTask<Far, ()>>,
        src: &Arc<Far>,
        _: DirEntry<'_>,
        _: Entering,
    ) -> Result<Option<()>> {
        match self.to.dir(&src.node, &src.info) {
            TakenDir::Stays | TakenDir::GoesAfter => Ok(Some(())),
            TakenDir::PassedOver => Ok(None),
            TakenDir::Goes => {
                self.take_dir(src);
                Ok(None)
            }
        }
    }

    fn release(&self, (): &mut (), hold: Hold<Far, ()>) {
        hold.release(|dir| {
            if self.to.dir(&dir.src.node, &dir.src.info) == TakenDir::GoesAfter {
                self.take_dir(&dir.src);
            }
        });
    }
}

impl WireDestination<'_> for Taker<'_> {
    type Verdict = ();

    const TAKES_BYTES: bool = false;
    const HOLDS_COPY: bool = false;

    fn list_base(&self, _: &Far, _: &Place) -> Result<()> {
        Ok(())
    }

    fn shown(&self, (): &(), to: Name<'_>) -> PathBuf {
        crate::node::os(to).into()
    }

    fn choose(&self, dir: &Arc<DirTask<Far, ()>>, _: &Spot, meta: &Meta) -> Chosen<()> {
        if self.to.goes(&dir.src.node, meta.name.as_name(), &meta.info) {
            let mut waiting = self.waiting();
            if waiting.dir != dir.src.id || waiting.names.len() >= TAKEN_MAX {
                self.flush(&mut waiting);
                waiting.dir = dir.src.id;
            }
            waiting.names.push((meta.name.clone(), meta.info));
        }
        self.tally.done(1);
        Chosen::Nothing
    }

    fn took_away(&self, _: u64) -> Result<()> {
        // What is left of it was told.
        let answered = self.asked.fetch_update(Relaxed, Relaxed, |asked| asked.checked_sub(1));
        answered.map(drop).map_err(|_| refused(Reason::NotSendersMessage.about("TookAway")))
    }

    fn end(self, next: Option<&mut NextMessage<'_>>) -> (Summary, Marks, Result<()>) {
        self.flush(&mut self.waiting());
        let answered = match next {
            Some(next) if !self.tally.cancelled() => {
                let is_answered = || self.asked.load(Relaxed) == 0;
                let answered = |left| self.took_away(left);
                until_answered(next, &self.tally, &self.what, (&is_answered, &answered))
            }
            _ => Ok(()),
        };
        (self.tally.summary(), Marks::NONE, answered)
    }
}
