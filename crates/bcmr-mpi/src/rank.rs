//! One rank: does the shards that it is told to do on a thread of its own, while its first thread talks to other ranks. The
//! first rank plans before, hands out shards meanwhile, and publishes the tree in the end.
//!
//! Must not know how ranks reach one another, nor who gets which shard.

use crate::Job;
use crate::say::{self, RankVoice, VOICE};
use crate::walk::{self, ToWalk, Walk};
use crate::wire::{FIRST, Stranger, Wire};
use bcmr_engine::api::{
    self, Cancel, Code, Error, FinishRequest, PlanRequest, PlanStatus, PlanVerb, Progress, RemoveRequest,
    ShardChoice, ShardRequest, ShardShare, ShardStatus, Shards, SplitOff, Summary, WalkedPart, Watch,
};
use bcmr_mpi::coordinate::Coordinator;
use bcmr_mpi::message::{Frames, Order, Outcome, Report};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// How often the first rank looks for reports while it does a shard itself.
pub(crate) const LEAD_PAUSE: Duration = Duration::from_micros(500);
/// How often any other looks for orders while it does one: there may be one to stop.
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// The shortest and the longest pause of a rank that waits for an order.
const IDLE_PAUSE: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(5));
/// How long a rank that a signal stopped waits for the others: they may be dead.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// Shards for each rank: what is under way in a rank that is killed is no more than this part of its share.
const SHARDS_OF_A_RANK: u32 = 32;
const SHARDS_MAX: u32 = 1 << 20;

/// What the threads of a rank share.
pub(crate) struct Work<'a> {
    pub(crate) job: &'a Job,
    pub(crate) voice: RankVoice,
    progress: Progress,
    pub(crate) cancel: Cancel,
    /// The first signal that asked to stop; 0: none.
    signal: AtomicU8,
    /// Directories of this rank's walk that others would take.
    pub(crate) wanted: AtomicUsize,
}

/// Ends the thread that hears signals, also when another one panics: the scope would wait for it for ever.
struct EndsHearing(Handle);

impl Drop for EndsHearing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Runs this rank; returns its exit code.
pub fn run(job: &Job) -> u8 {
    let Some(wire) = Wire::open() else {
        say::err(&VOICE.line("MPI cannot be begun"));
        return VOICE.exits.some_failed;
    };
    let work = Work {
        job,
        voice: RankVoice {
            who: format!("rank {} on {}", wire.rank(), wire.machine()),
            verbose: job.args.ranks.verbose,
            told_of_all: AtomicBool::new(false),
        },
        progress: Progress::default(),
        cancel: Cancel::new(),
        signal: AtomicU8::new(0),
        wanted: AtomicUsize::new(0),
    };
    let mut signals = match Signals::new([SIGHUP, SIGINT, SIGTERM]) {
        Ok(signals) => signals,
        Err(e) => {
            work.voice.says(&format!("signals cannot be heard: {e}"));
            wire.abort(VOICE.exits.some_failed);
        }
    };
    let ends = EndsHearing(signals.handle());
    thread::scope(|scope| {
        let ends = ends;
        let hear = || {
            for signal in signals.forever() {
                let _the_first_counts = work.signal.compare_exchange(
                    0,
                    u8::try_from(signal).unwrap_or(u8::MAX),
                    Relaxed,
                    Relaxed,
                );
                work.cancel.set();
            }
        };
        if thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, hear).is_err() {
            wire.abort(VOICE.exits.some_failed);
        }
        let exit = if wire.rank() == FIRST { work.lead(&wire) } else { work.follow(&wire) };
        drop(ends);
        exit
    })
}

/// What the thread that works is to do.
enum Task<'r> {
    /// Walk what is given to this rank.
    Walk(Walk<'r>),
    Shard(u32, Arc<ShardShare>),
}

/// The thread that works, as the first thread sees it.
struct Worker<'r> {
    orders: Sender<Task<'r>>,
    reports: Receiver<Report>,
    /// By which others hear of a walk.
    says: Sender<Report>,
    walk: Option<ToWalk>,
    /// Shards, or frames of one, that it has not done with.
    held: VecDeque<(u32, Arc<ShardShare>)>,
    /// It is to give up some that it has not begun.
    is_asked: bool,
}

/// The thread that works is gone.
struct NoWorker;

impl Worker<'_> {
    /// Leaves it some frames to do.
    fn does(&mut self, frames: Frames) -> Result<(), NoWorker> {
        let share = Arc::new(ShardShare::new(frames.from..frames.to));
        self.held.push_back((frames.shard, share.clone()));
        self.orders.send(Task::Shard(frames.shard, share)).map_err(|_| NoWorker)
    }

    /// Takes back some that it has not begun, what it would begin last first, if that was asked for and can be said by now.
    fn split(&mut self) -> Option<Report> {
        if !self.is_asked {
            return None;
        }
        let mut left = None;
        for (shard, share) in self.held.iter().rev() {
            match share.split() {
                SplitOff::Frames(frames) => {
                    left = Some(Frames { shard: *shard, from: frames.start, to: frames.end });
                    break;
                }
                SplitOff::Nothing => {}
                SplitOff::NotYet => return None,
            }
        }
        self.is_asked = false;
        Some(Report::Left(left))
    }

    /// It has said this.
    fn hears(&mut self, report: &Report) {
        if matches!(report, Report::Did { .. }) {
            self.held.pop_front();
        }
    }
}

impl Work<'_> {
    pub(crate) fn watch(&self) -> Watch<'_> {
        Watch {
            front: &self.voice,
            progress: &self.progress,
            cancel: &self.cancel,
            items: self.job.args.ranks.verbose,
        }
    }

    /// The exit code of a signal that asked to stop.
    pub(crate) fn stopped(&self) -> Option<u8> {
        let signal = self.signal.load(Relaxed);
        (signal > 0).then(|| VOICE.exits.signal.saturating_add(signal))
    }

    fn worker<'s>(&'s self, scope: &'s Scope<'s, '_>, wire: &Wire) -> Worker<'s> {
        let ((orders, ordered), (says, reports)) = (channel(), channel());
        let report = says.clone();
        let does = move || {
            for task in ordered {
                let done = match task {
                    Task::Walk(walk) => {
                        let (request, verb) = (self.plan_request(0), self.job.args.verb);
                        Report::Found(api::walk_part(&request, verb, &walk, self.watch()))
                    }
                    Task::Shard(shard, share) => Report::Did { shard, outcome: self.shard(shard, &share) },
                };
                if report.send(done).is_err() {
                    return;
                }
            }
        };
        if thread::Builder::new().spawn_scoped(scope, does).is_err() {
            self.voice.says("a thread cannot be started");
            wire.abort(VOICE.exits.some_failed);
        }
        Worker { orders, reports, says, walk: None, held: VecDeque::new(), is_asked: false }
    }

    /// The walk of this rank, which begins with the first directory that it gets.
    fn walk<'w, 's>(&'s self, worker: &'w mut Worker<'s>, wire: &Wire) -> &'w mut ToWalk {
        let Worker { orders, says, walk, .. } = worker;
        walk.get_or_insert_with(|| {
            let (to, walk) = walk::ends(says.clone(), &self.wanted);
            if orders.send(Task::Walk(walk)).is_err() {
                wire.abort(VOICE.exits.some_failed);
            }
            to
        })
    }

    /// Does one shard, or some of it.
    fn shard(&self, shard: u32, share: &ShardShare) -> Outcome {
        let (plan, policy) = (self.job.plan.clone(), self.job.policy.clone());
        let request = ShardRequest { plan, which: ShardChoice::Number(shard), way: None, policy };
        match api::shard_shared(&request, share, self.watch()) {
            Ok(summary) => {
                let end = say::ends_all(&summary.codes).then(|| exit_of(&summary.codes));
                Outcome { end, ..Outcome::of(&summary) }
            }
            Err(e) => {
                self.voice.failed(&e);
                let summary = Summary { failed: 1, codes: vec![e.code], ..Summary::default() };
                Outcome { end: Some(VOICE.exits.of(e.code)), ..Outcome::of(&summary) }
            }
        }
    }

    /// Any rank but the first.
    fn follow(&self, wire: &Wire) -> u8 {
        let some_failed = VOICE.exits.some_failed;
        let stranger = |Stranger| -> Option<Order> {
            self.voice.says("the first rank is not of this version");
            wire.abort(some_failed);
        };
        thread::scope(|scope| {
            let mut worker = self.worker(scope, wire);
            wire.report(&Report::Ready);
            let mut pause = IDLE_PAUSE.0;
            let mut told_at: Option<Instant> = None;
            loop {
                let is_idle = worker.held.is_empty();
                match worker.reports.recv_timeout(if is_idle { pause } else { BUSY_PAUSE }) {
                    Ok(report) => {
                        worker.hears(&report);
                        wire.report(&report);
                        // What follows at once goes at once.
                        pause = IDLE_PAUSE.0;
                    }
                    Err(RecvTimeoutError::Timeout) => pause = (pause * 3 / 2).min(IDLE_PAUSE.1),
                    Err(RecvTimeoutError::Disconnected) => wire.abort(some_failed),
                }
                while let Some(order) = wire.ordered().unwrap_or_else(stranger) {
                    pause = IDLE_PAUSE.0;
                    match order {
                        Order::Shard(frames) => {
                            if let Err(NoWorker) = worker.does(frames) {
                                wire.abort(some_failed);
                            }
                        }
                        Order::Split => worker.is_asked = true,
                        Order::Dir(piece) => self.walk(&mut worker, wire).named(&piece),
                        Order::Walk => self.walk(&mut worker, wire).walk(),
                        Order::Give(count) => self.wanted.store(count as usize, Relaxed),
                        Order::Gather => match worker.walk.as_mut() {
                            Some(walk) => drop(walk.next.take()),
                            None => wire.report(&Report::Found(WalkedPart::default())),
                        },
                        Order::Stop => self.cancel.set(),
                        Order::End { exit } => {
                            self.cancel.set();
                            return exit;
                        }
                    }
                }
                if let Some(left) = worker.split() {
                    wire.report(&left);
                }
                if let Some(exit) = self.stopped() {
                    if told_at.is_none() {
                        wire.report(&Report::Stopped { exit });
                    }
                    let since = told_at.get_or_insert_with(Instant::now);
                    if worker.held.is_empty() && since.elapsed() > GRACE {
                        std::process::exit(i32::from(exit));
                    }
                }
            }
        })
    }

    /// The first rank. Whatever happens, the others hear its end.
    fn lead(&self, wire: &Wire) -> u8 {
        let exit = match self.open_shards(wire) {
            Ok((open, there)) => match self.hand_out(wire, open, &there) {
                (Some(exit), _) => exit,
                (None, sum) if sum.failed > 0 => {
                    self.voice.says("it is not finished: not everything could be done");
                    exit_of(&sum.codes())
                }
                (None, sum) => self.finish(&sum),
            },
            Err(exit) => exit,
        };
        for rank in FIRST + 1..wire.ranks() {
            wire.order(rank, &Order::End { exit });
        }
        exit
    }

    /// Hands out these shards until all are done, or nobody goes on; the first rank does some of them.
    /// Some ranks were heard of before.
    fn hand_out(&self, wire: &Wire, open: Vec<u32>, there: &[usize]) -> (Option<u8>, Outcome) {
        let some_failed = VOICE.exits.some_failed;
        let mut coordinator = Coordinator::new(wire.ranks(), open);
        thread::scope(|scope| {
            let mut worker = self.worker(scope, wire);
            let others = there.iter().copied().filter(|rank| *rank != FIRST);
            for rank in std::iter::once(FIRST).chain(others) {
                self.tell(wire, &mut worker, coordinator.hear(rank, &Report::Ready));
            }
            let mut stopped_at: Option<Instant> = None;
            while !coordinator.is_over() {
                match worker.reports.recv_timeout(LEAD_PAUSE) {
                    Ok(report) => {
                        worker.hears(&report);
                        self.tell(wire, &mut worker, coordinator.hear(FIRST, &report));
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => wire.abort(some_failed),
                }
                loop {
                    match wire.reported() {
                        Ok(Some((rank, report))) => {
                            self.tell(wire, &mut worker, coordinator.hear(rank, &report));
                        }
                        Ok(None) => break,
                        Err(Stranger) => {
                            self.voice.says("another rank is not of this version");
                            wire.abort(some_failed);
                        }
                    }
                }
                if let Some(left) = worker.split() {
                    self.tell(wire, &mut worker, coordinator.hear(FIRST, &left));
                }
                if let Some(exit) = self.stopped() {
                    let orders = coordinator.stop(exit);
                    self.tell(wire, &mut worker, orders);
                    if stopped_at.get_or_insert_with(Instant::now).elapsed() > GRACE {
                        std::process::exit(i32::from(exit));
                    }
                }
            }
        });
        coordinator.end()
    }

    /// Tells orders to those whom they are for.
    fn tell(&self, wire: &Wire, worker: &mut Worker<'_>, orders: Vec<(usize, Order)>) {
        for (rank, order) in orders {
            match order {
                order if rank != FIRST => wire.order(rank, &order),
                Order::Shard(frames) => {
                    if let Err(NoWorker) = worker.does(frames) {
                        wire.abort(VOICE.exits.some_failed);
                    }
                }
                Order::Split => worker.is_asked = true,
                Order::Stop => self.cancel.set(),
                _ => {}
            }
        }
    }

    /// The shards that are to be done: of the plan that an earlier run has left, else of a new one; and ranks that were heard
    /// of meanwhile.
    fn open_shards(&self, wire: &Wire) -> Result<(Vec<u32>, Vec<usize>), u8> {
        match api::status(&self.job.plan) {
            Ok(status) => Ok((self.go_on(&status)?, Vec::new())),
            Err(e) if e.code == Code::NotFound => self.plan(wire),
            Err(e) => Err(self.could_not(&e)),
        }
    }

    fn go_on(&self, status: &PlanStatus) -> Result<Vec<u32>, u8> {
        let job = self.job;
        if status.source != job.source
            || status.destination != job.destination
            || status.verb != job.args.verb
        {
            let shown = |path: &std::path::Path| crate::names::quoted(path);
            self.voice.says(&format!(
                "{} is the plan of another command, about {} and {}: name another one with --plan",
                shown(&job.plan),
                shown(&status.source),
                shown(&status.destination),
            ));
            return Err(VOICE.exits.refused);
        }
        let open = (0..).zip(&status.shards).filter(|(_, (how, ..))| *how != ShardStatus::Done);
        Ok(open.map(|(shard, _)| shard).collect())
    }

    /// What is planned for so many ranks, where the number of shards was not typed.
    pub(crate) fn plan_request(&self, ranks: usize) -> PlanRequest {
        let job = self.job;
        let fair = u32::try_from(ranks).unwrap_or(u32::MAX).saturating_mul(SHARDS_OF_A_RANK);
        PlanRequest {
            source: job.source.clone(),
            destination: job.destination.clone(),
            there: None,
            out: job.plan.clone(),
            shards: Shards::Number(job.args.ranks.shards.unwrap_or(fair.min(SHARDS_MAX))),
            part_bytes: job.args.part_size,
            state: job.state.clone(),
            policy: job.policy.clone(),
        }
    }

    pub(crate) fn could_not(&self, e: &Error) -> u8 {
        self.voice.failed(e);
        self.stopped().unwrap_or(VOICE.exits.of(e.code))
    }

    /// Publishes the tree; a plan that nobody named goes.
    fn finish(&self, sum: &Outcome) -> u8 {
        let job = self.job;
        let (plan, merge, state) = (job.plan.clone(), job.args.merge, job.state.clone());
        let request = FinishRequest { plan, merge, way: None, state, policy: job.policy.clone() };
        let finished = match api::finish(&request, self.watch()) {
            Ok(finished) => finished,
            Err(e) => return self.could_not(&e),
        };
        let done = &finished.summary;
        if !job.args.ranks.quiet {
            say::out(&format!(
                "{} {} files, {} directories, {} others, {} bytes; copied {} files, {} bytes; kept {} entries",
                say::done(job.args.verb),
                done.files,
                done.dirs,
                done.others,
                done.bytes,
                sum.files,
                sum.bytes,
                sum.kept
            ));
            if job.args.verb == PlanVerb::Copy {
                let root: String = finished.root.iter().map(|byte| format!("{byte:02x}")).collect();
                say::out(&format!("root {root}"));
            }
        }
        if job.args.ranks.plan.is_none()
            && let Err(exit) = self.remove_plan()
        {
            return exit;
        }
        match (done.failed > 0, done.differences > 0) {
            (true, _) => exit_of(&done.codes),
            (false, true) => VOICE.exits.some_failed,
            (false, false) => VOICE.exits.done,
        }
    }

    fn remove_plan(&self) -> Result<(), u8> {
        let request = RemoveRequest {
            paths: vec![self.job.plan.clone()],
            recursive: true,
            empty_dirs: false,
            force: false,
            ask: false,
            one_file_system: true,
            dry_run: false,
            jobs: 1,
        };
        // The tree is published: whoever asks to stop now has got what was asked for.
        let cancel = Cancel::new();
        let removed = api::remove(request, Watch { cancel: &cancel, items: false, ..self.watch() });
        match removed {
            Ok(removed) if removed.failed == 0 => Ok(()),
            Ok(removed) => Err(exit_of(&removed.codes)),
            Err(e) => Err(self.could_not(&e)),
        }
    }
}

fn exit_of(codes: &[Code]) -> u8 {
    VOICE.exits.of_codes(codes).unwrap_or(VOICE.exits.some_failed)
}
