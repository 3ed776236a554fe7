//! A move's receiver: tells the sender what is here for good, to be taken away there, and hears what became of that.
//!
//! Must not know when something is here for good: that is the ledger's.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::peer::from_wire::destination::Far;
use crate::peer::from_wire::handler::NextMessage;
use crate::peer::incoming::{Incoming, refused};
use crate::peer::reply::{Reply, not_sent};
use crate::policy::Verify;
use crate::receiver::dir_task::Slot;
use crate::receiver::lander::{LandHooks, Lander};
use crate::tally::Tally;
use crate::trouble::error_of;
use crate::verbs::ledger::{Ledger, LedgerEntry, MovedFrom, TakesAway, unmark};
use bcmr_wire::limits::TAKEN_MAX;
use bcmr_wire::message::{Message, Taken, Time};
use fastcopy::dir::NameBuf;
use fastcopy::meta::Info;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

impl MovedFrom for Far {
    fn itself(pair: &Slot<Far>) -> Option<(Arc<Far>, Option<NameBuf>)> {
        Some((pair.src.clone(), None))
    }
}

/// What is asked of the sender, in the order in which it answers; with the operand that one is about as a whole.
type AskedAway = VecDeque<Option<Arc<Slot<Far>>>>;

/// The source of a move on another machine.
pub(crate) struct FarSource<'a> {
    pub(crate) ledger: Ledger<Far>,
    reply: &'a Reply,
    asked: Mutex<AskedAway>,
}

impl<'a> FarSource<'a> {
    pub(crate) fn new(reply: &'a Reply, verify: Verify) -> FarSource<'a> {
        FarSource { ledger: Ledger::new(verify != Verify::Off), reply, asked: Mutex::default() }
    }

    fn asked(&self) -> MutexGuard<'_, AskedAway> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sender has answered the oldest of the questions: so much of it is still there.
    pub(crate) fn answered(&self, left: u64, tally: &Tally<'_>) -> Result<()> {
        let asked =
            self.asked().pop_front().ok_or_else(|| refused(Reason::NotSendersMessage.about("TookAway")))?;
        // R8: the same command has nothing to go on with any more, now and not before.
        if let (Some(top), 0) = (asked, left) {
            unmark(&top, tally);
        }
        Ok(())
    }

    /// Has taken away what is left of it, and waits until all of that was answered.
    pub(crate) fn end<B: LandHooks<Far>>(
        &self,
        desk: &Lander<'_, Far, B>,
        what: &Incoming,
        next: &mut NextMessage<'_>,
    ) -> Result<()> {
        let tally = &*desk.tally;
        if tally.cancelled() {
            return Ok(());
        }
        let mut is_over = false;
        self.ledger.end(desk, false, self, |_| is_over = true);
        let (is_answered, answered) = (|| self.asked().is_empty(), |left| self.answered(left, tally));
        until_answered(next, tally, what, (&is_answered, &answered))?;
        if is_over {
            what.once_more.store(true, Ordering::Relaxed);
            return self.reply.answer(&Message::TakeAway { dir: 0, names: Vec::new() });
        }
        Ok(())
    }

    fn ask(&self, top: Option<Arc<Slot<Far>>>, dir: u64, names: Vec<Taken<'_>>) -> Result<()> {
        // Both at once: answers come in the order of the questions.
        let mut asked = self.asked();
        self.reply.send(&Message::TakeAway { dir, names }).map_err(not_sent)?;
        asked.push_back(top);
        Ok(())
    }

    fn ask_all(&self, entries: &[LedgerEntry<Far>]) -> Result<()> {
        let of_one = |a: &LedgerEntry<Far>, b: &LedgerEntry<Far>| {
            a.src.id == b.src.id && a.name.is_some() && b.name.is_some()
        };
        for group in entries.chunk_by(of_one).flat_map(|group| group.chunks(TAKEN_MAX)) {
            let Some(first) = group.first() else { continue };
            let names = group.iter().filter_map(|entry| Some(taken(entry.name.as_ref()?, &entry.info)));
            let names = names.collect();
            let top = (first.name.is_none() && first.is_top()).then(|| first.pair.clone());
            self.ask(top, first.src.id, names)?;
        }
        Ok(())
    }
}

/// Waits until the sender has answered all that it was asked; `answered` hears of each answer.
pub(super) fn until_answered(
    next: &mut NextMessage<'_>,
    tally: &Tally<'_>,
    what: &Incoming,
    (is_answered, answered): (&dyn Fn() -> bool, &dyn Fn(u64) -> Result<()>),
) -> Result<()> {
    while !is_answered() {
        if tally.cancelled() {
            return Err(Error::ours(Code::Interrupted, Op::Receive, "", Reason::Interrupted));
        }
        next(&mut |message| match message {
            Message::TookAway { left } => answered(left),
            Message::Trouble(trouble) => {
                what.trouble(&trouble, tally);
                Ok(())
            }
            Message::Error(trouble) => Err(error_of(&trouble)),
            Message::Cancel => {
                tally.watch.cancel.set();
                Ok(())
            }
            // What it says of its own end is known by now.
            Message::AllSent | Message::AllNamed { .. } | Message::Found { .. } => Ok(()),
            other => {
                let name = bcmr_wire::state::name(other.kind()).unwrap_or("?");
                Err(refused(Reason::NotSendersMessage.about(name)))
            }
        })?;
    }
    Ok(())
}

impl TakesAway<Far> for FarSource<'_> {
    fn take_away(&self, entries: Vec<LedgerEntry<Far>>, _: &Tally<'_>) {
        // That it is gone is noticed where its frames are received; what was not asked for stays there.
        let _asked: std::result::Result<(), Error> = self.ask_all(&entries);
    }
}

/// What the sender said of an entry.
pub(super) fn taken<'n>(name: &'n NameBuf, info: &Info) -> Taken<'n> {
    let time = |t: fastcopy::meta::Time| Time { sec: t.sec, nsec: t.nsec };
    let (mtime, ctime) = (time(info.mtime), time(info.ctime));
    Taken { name: name.bytes(), ino: info.ino, nlink: info.nlink, size: info.size, mtime, ctime }
}
