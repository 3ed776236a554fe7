//! The first rank makes a plan: hands out the directories of the source to all ranks, gathers what they have found, and cuts it.
//!
//! Must not know how a directory is walked, nor who gets which.

use crate::rank::{GRACE, LEAD_PAUSE, Work};
use crate::say::VOICE;
use crate::walk::{self, ToWalk};
use crate::wire::{FIRST, Stranger, Wire};
use bcmr_engine::api::{self, PlanMade, PlanVerb, Result as ApiResult, WalkedPart};
use bcmr_mpi::message::{Order, Piece, Report};
use bcmr_mpi::walkers::{WalkOrder, WalkReport, Walkers};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Instant;

/// The walk of all ranks, as the first one leads it.
struct Lead<'w, 'a> {
    work: &'w Work<'a>,
    wire: &'w Wire,
    walkers: Walkers,
    own: ToWalk,
    /// Of each rank, bytes of a path of which not all pieces have come.
    came: Vec<Vec<u8>>,
    /// Ranks that have said what they found.
    found: Vec<bool>,
    /// All is walked, and ranks were asked what they found.
    is_gathered: bool,
    /// Why nobody goes on.
    exit: Option<u8>,
}

impl Lead<'_, '_> {
    fn say(&mut self, orders: Vec<(usize, WalkOrder)>) {
        for (rank, order) in orders {
            match order {
                WalkOrder::Walk(paths) if rank == FIRST => {
                    self.own.walk_these(paths.into_iter().map(walk::path_of).collect());
                }
                WalkOrder::Walk(paths) => {
                    for piece in paths.iter().flat_map(|path| Piece::of(path)) {
                        self.wire.order(rank, &Order::Dir(piece));
                    }
                    self.wire.order(rank, &Order::Walk);
                }
                WalkOrder::Give(count) if rank == FIRST => self.work.wanted.store(count as usize, Relaxed),
                WalkOrder::Give(count) => self.wire.order(rank, &Order::Give(count)),
                WalkOrder::Stop if rank == FIRST => self.work.cancel.set(),
                WalkOrder::Stop => self.wire.order(rank, &Order::Stop),
            }
        }
    }

    fn stop(&mut self, exit: u8) {
        if self.exit.is_none() {
            self.exit = Some(exit);
            let orders = self.walkers.stop();
            self.say(orders);
            self.work.cancel.set();
        }
    }

    fn walker(&mut self, rank: usize, report: WalkReport) {
        let orders = self.walkers.hear(rank, report);
        self.say(orders);
    }

    /// What a rank says, the first one among them.
    fn hear(&mut self, rank: usize, report: &Report) {
        match report {
            Report::Ready => self.walker(rank, WalkReport::Ready),
            Report::Walked => self.walker(rank, WalkReport::Walked),
            Report::Gave(to, piece) => {
                let path = self.came.get_mut(rank).and_then(|came| piece.add(came));
                if let Some(path) = path {
                    self.walker(rank, WalkReport::Gave(*to, path));
                }
            }
            Report::Found(part) => self.part(rank, *part),
            Report::Stopped { exit } => self.stop(*exit),
            Report::Did { .. } | Report::Left(_) => {}
        }
    }

    /// What a rank has found. One that says so before it was asked could not go on.
    fn part(&mut self, rank: usize, part: WalkedPart) {
        if let (Some(code), false) = (part.ended, self.is_gathered) {
            self.stop(VOICE.exits.of(code));
            self.walker(rank, WalkReport::Walked);
        }
        if let Some(parts) = &self.own.parts {
            let _the_plan_is_not_made_any_more = parts.send(part);
        }
        if let Some(found) = self.found.get_mut(rank) {
            *found = true;
        }
    }

    /// Asks ranks what they found, once all is walked; lets the plan be made, once all have said so.
    fn gather(&mut self) {
        if !self.is_gathered && self.walkers.is_over() {
            self.is_gathered = true;
            // From those that come later nothing is to be heard.
            let mut asked = vec![false; self.found.len()];
            for rank in self.walkers.there().filter(|rank| *rank != FIRST) {
                asked.get_mut(rank).into_iter().for_each(|asked| *asked = true);
            }
            for ((rank, found), asked) in self.found.iter_mut().enumerate().zip(asked) {
                match asked && !*found {
                    true => self.wire.order(rank, &Order::Gather),
                    false => *found = true,
                }
            }
            self.own.next = None;
        }
        if self.is_gathered && self.found.iter().all(|found| *found) {
            self.own.parts = None;
        }
    }
}

impl Work<'_> {
    /// Makes a plan. Returns its shards, and the ranks that were heard of.
    pub(crate) fn plan(&self, wire: &Wire) -> Result<(Vec<u32>, Vec<usize>), u8> {
        let job = self.job;
        let appears = job.args.verb == PlanVerb::Copy && !job.args.merge;
        if appears && job.destination.symlink_metadata().is_ok() {
            let dst = crate::names::quoted(&job.destination);
            self.voice.says(&format!("{dst} is there already: --merge puts the tree into it"));
            return Err(VOICE.exits.some_failed);
        }
        let (says, reports) = channel();
        let (own, walk) = walk::ends(says, &self.wanted);
        let ranks = wire.ranks();
        let lead = Lead {
            work: self,
            wire,
            walkers: Walkers::new(ranks),
            own,
            came: vec![Vec::new(); ranks],
            found: vec![false; ranks],
            is_gathered: false,
            exit: None,
        };
        thread::scope(|scope| {
            let (tell, made) = channel();
            let request = self.plan_request(ranks);
            let makes = move || {
                let made = api::plan_together(&request, job.args.verb, &walk, self.watch());
                let _nobody_waits_any_more = tell.send(made);
            };
            if thread::Builder::new().spawn_scoped(scope, makes).is_err() {
                self.voice.says("a thread cannot be started");
                wire.abort(VOICE.exits.some_failed);
            }
            self.led(lead, &reports, &made)
        })
    }

    fn led(
        &self,
        mut lead: Lead<'_, '_>,
        reports: &Receiver<Report>,
        made: &Receiver<ApiResult<PlanMade>>,
    ) -> Result<(Vec<u32>, Vec<usize>), u8> {
        let mut stopped_at: Option<Instant> = None;
        lead.hear(FIRST, &Report::Ready);
        let made = loop {
            if let Ok(report) = reports.recv_timeout(LEAD_PAUSE) {
                lead.hear(FIRST, &report);
                reports.try_iter().for_each(|report| lead.hear(FIRST, &report));
            }
            loop {
                match lead.wire.reported() {
                    Ok(Some((rank, report))) => lead.hear(rank, &report),
                    Ok(None) => break,
                    Err(Stranger) => {
                        self.voice.says("another rank is not of this version");
                        lead.wire.abort(VOICE.exits.some_failed);
                    }
                }
            }
            if let Some(exit) = self.stopped() {
                lead.stop(exit);
                if stopped_at.get_or_insert_with(Instant::now).elapsed() > GRACE {
                    std::process::exit(i32::from(exit));
                }
            }
            lead.gather();
            match made.try_recv() {
                Ok(made) => break made,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => lead.wire.abort(VOICE.exits.some_failed),
            }
        };
        match (made, lead.exit) {
            // The rank that could not go on has said why.
            (Err(_), Some(exit)) => Err(exit),
            (Err(e), None) => {
                let exit = self.could_not(&e);
                lead.stop(exit);
                Err(exit)
            }
            (Ok(_), Some(exit)) => Err(exit),
            (Ok(made), None) => Ok(((0..made.shards).collect(), lead.walkers.there().collect())),
        }
    }
}
