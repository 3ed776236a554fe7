//! The one walk over sources on this machine, parallel, into any destination: a copy lands what it finds, a dry run
//! and `check` tell of it.
//!
//! Must not know what becomes of an entry.
//!
//! Order and bounds: workers take whole directories, each the newest that it listed, so that few are open at a time; the
//! worker that lists a directory deals with its small entries in batches on the way, with its own buffers, and leaves
//! batches to other workers, one ahead of what they do. Directories are tasks of their own.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::node::Node;
use crate::policy::{CopyPolicy, Follow, Mirror, Target};
use crate::pool::{Hands, Pool};
use crate::receiver::claims::{Claimed, Spot};
use crate::receiver::dir_task::{DirTask, Dropped, Hold, PairedDirs};
use crate::sender::chain::Chain;
use crate::sender::filter::{Filter, Seen};
use crate::sender::level::{Entries, Met};
use crate::sender::names::{ListedNames, Names};
use crate::sender::walk::SourceDir;
use crate::verbs::destination::{Destination, DirEntry, Entering};
use crate::verbs::operands::{self, Dest, Operand, Place, Source};
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names handed to another worker at once.
const BATCH_NAMES: usize = 64;
/// Names of a list that are handed to a worker at once.
const LIST_BATCH_NAMES: usize = 256;
/// Names of a list that are under way at a time.
const LIST_CHUNK: usize = 4096;
/// Directories of known names that are open at a time, on either side.
const ROUND_DIRS: usize = 256;

/// A destination of the walk.
pub(crate) trait WalkDestination: Destination<SourceDir> {
    /// What is told of entries where that has to be in the order of their names, whichever worker found it.
    type Finding: Send;

    /// Whether there is such an order.
    fn is_ordered(&self) -> bool {
        false
    }
    /// Buffers of a worker whose findings wait for their turn.
    fn ordered_buffers(&self) -> Self::Buffers {
        self.buffers()
    }
    /// What waits in them.
    fn findings(_: &mut Self::Buffers) -> Vec<Self::Finding> {
        Vec::new()
    }
    /// Whether so much waits in them that it should go.
    fn is_full(_: &Self::Buffers) -> bool {
        false
    }
    /// Passes on what was found. One call at a time.
    fn tell(&self, _: Self::Finding) {}
    /// An entry, or a directory, failed.
    fn failed(&self, _: &mut Self::Buffers, e: Error) {
        self.tally().fail(e);
    }
    /// Whether names that only the destination has are told.
    fn wants_extras(&self) -> bool {
        false
    }
    /// Those of a directory, in their order, where `has` says which names its source has.
    ///
    /// # Errors
    /// They could not be found out.
    fn only_there(
        &self,
        _: &mut Self::Buffers,
        _: &WalkTask<Self>,
        _has: &dyn Fn(Name<'_>) -> bool,
    ) -> Result<Names> {
        Ok(Names::default())
    }
    /// Deals with some of those.
    fn extras(&self, _: &mut Self::Buffers, _: &WalkTask<Self>, _: &Names, _: Range<usize>) {}
    /// Whether there is something to tell behind all that is below a directory, and telling it.
    fn closes(&self, _: &WalkTask<Self>) -> bool {
        false
    }
    fn close(&self, _: &mut Self::Buffers, _: &WalkTask<Self>) {}
    /// Opens the directory that names of a list go into.
    ///
    /// # Errors
    /// As [`Destination::base`].
    fn list_base(&self, target: &Target) -> Result<Self::Dir>;
    /// Claims the name of an entry that a list says.
    ///
    /// # Errors
    /// The name is another source's.
    fn claim(&self, pair: &WalkTask<Self>, entry: DirEntry<'_>, info: &Info) -> Result<Claimed>;
    /// Files of a directory that are dealt with at a time.
    fn room(&self, pair: &WalkTask<Self>) -> usize;
    /// Deals with some of the entries of one directory that are no directories.
    fn entries(
        &self,
        worker: &mut WalkWorker<'_, '_, Self>,
        pair: &Arc<WalkTask<Self>>,
        names: &Names,
        range: Range<usize>,
    );
    /// Deals with one entry by itself: it is large, or an operand.
    fn one(&self, worker: &mut WalkWorker<'_, '_, Self>, pair: &Arc<WalkTask<Self>>, entry: DirEntry<'_>);
    /// Deals with a further name of what another worker is at ([`WalkWorker::second`]).
    fn second(&self, _: &mut WalkWorker<'_, '_, Self>, _: &Arc<WalkTask<Self>>, _: DirEntry<'_>, _: &Info) {}
    /// How many directories that wait other processes would walk.
    fn wanted_elsewhere(&self) -> usize {
        0
    }
    /// Whether what is in `pair` may be walked by any other process.
    fn may_go_elsewhere(&self, _: &WalkTask<Self>) -> bool {
        false
    }
    /// Leaves the directory `name` of `pair`, which was not entered, to another process.
    fn goes_elsewhere(&self, _: &WalkTask<Self>, _: Name<'_>) {}
    /// The filter leaves `name` out.
    fn excluded(&self, buffers: &mut Self::Buffers, path: &dyn Fn() -> PathBuf);
}

/// A source directory and what it becomes.
pub(crate) type WalkTask<D> = DirTask<SourceDir, <D as Destination<SourceDir>>::Dir>;
/// Something to be done in it.
pub(crate) type WalkHold<D> = Hold<SourceDir, <D as Destination<SourceDir>>::Dir>;
/// Things that were to be done, and an error led past them.
pub(crate) type WalkDropped<D> = Arc<Dropped<SourceDir, <D as Destination<SourceDir>>::Dir>>;

/// What a worker has at hand.
pub(crate) struct WalkWorker<'p, 'w, D: WalkDestination> {
    hands: &'w Hands<'p, Task<D>, D::Finding>,
    pub(crate) buffers: &'w mut D::Buffers,
}

impl<D: WalkDestination> WalkWorker<'_, '_, D> {
    /// Whether another worker has nothing to do.
    pub(crate) fn hungry(&self) -> bool {
        self.hands.hungry()
    }

    /// The buffers, and whether another worker has nothing to do.
    pub(crate) fn parts(&mut self) -> (&mut D::Buffers, impl Fn() -> bool) {
        let hands = self.hands;
        (self.buffers, || hands.hungry())
    }

    /// Leaves an entry as a task of its own.
    pub(crate) fn leave(&self, pair: &Arc<WalkTask<D>>, entry: DirEntry<'_>) {
        self.hands.push(Task::One { pair: pair.hold(), entry: OwnedEntry::of(entry) });
    }

    /// Leaves an entry until everything else is done that another worker may be at.
    pub(crate) fn second(&self, pair: &Arc<WalkTask<D>>, entry: DirEntry<'_>, info: Info) {
        self.hands.push_later(Task::Second { pair: pair.hold(), entry: OwnedEntry::of(entry), info });
    }
}

/// An entry that waits.
struct OwnedEntry {
    name: NameBuf,
    to: NameBuf,
    kind: Kind,
    follow: bool,
    is_claimed: bool,
}

impl OwnedEntry {
    fn of(entry: DirEntry<'_>) -> OwnedEntry {
        let DirEntry { name, to, kind, follow, is_claimed } = entry;
        OwnedEntry { name: name.to_owned(), to: to.to_owned(), kind, follow, is_claimed }
    }
    fn entry(&self) -> DirEntry<'_> {
        let OwnedEntry { name, to, kind, follow, is_claimed } = self;
        let (name, to) = (name.as_name(), to.as_name());
        DirEntry { name, to, kind: *kind, follow: *follow, is_claimed: *is_claimed }
    }
}

enum Task<D: WalkDestination> {
    /// Go into a directory, which is an operand under this path.
    Dir { pair: WalkHold<D>, entry: OwnedEntry, operand: Option<PathBuf>, spot: Spot },
    /// A pair of directories that are both open.
    Open { pair: WalkHold<D> },
    /// Small entries of one directory.
    Files { pair: WalkHold<D>, names: Arc<Names>, range: Range<usize> },
    /// Names that only the destination has in a directory.
    Extras { pair: WalkHold<D>, names: Arc<Names>, range: Range<usize> },
    /// Everything below a directory comes before this.
    Close { pair: WalkHold<D> },
    /// One entry by itself: large, or an operand.
    One { pair: WalkHold<D>, entry: OwnedEntry },
    /// A second name of something another worker is at.
    Second { pair: WalkHold<D>, entry: OwnedEntry, info: Info },
}

/// What a name of a list leads to.
enum FromList<D: WalkDestination> {
    Dir(Task<D>),
    /// Anything else, in its directory.
    Other(Arc<WalkTask<D>>, NameBuf, Info),
}

/// Some names in a directory below a base, none of which is one.
pub(crate) struct NamesBelow {
    pub(crate) path: Vec<NameBuf>,
    pub(crate) names: Names,
}

/// What a worker lists directories with, one at a time.
#[derive(Default)]
struct ListingRoom {
    buffer: ListBuffer,
    /// Empty between two directories.
    found: Entries,
}

/// Directories that are open for operands.
type Bases<D> = Vec<(Arc<Place>, WalkHold<D>)>;

/// One walk.
pub(crate) struct Walk<'w, D: WalkDestination> {
    pub(crate) to: &'w D,
    pub(crate) policy: &'w CopyPolicy,
    pub(crate) filter: &'w Filter,
    /// Workers.
    pub(crate) jobs: usize,
    pub(crate) dropped: WalkDropped<D>,
}

impl<D: WalkDestination> Walk<'_, D> {
    /// Walks resolved operands. Two that become the same directory are merged one after the other.
    pub(crate) fn operands(&self, operands: Vec<Operand>) {
        let mut rest = operands;
        while !rest.is_empty() {
            let mut round: Vec<Operand> = Vec::new();
            let mut next = Vec::new();
            for operand in rest {
                if operands::meets(&round, &operand) {
                    next.push(operand);
                } else {
                    round.push(operand);
                }
            }
            self.round(&round);
            rest = next;
        }
    }

    /// Walks operands that have nothing to do with each other.
    pub(crate) fn round(&self, operands: &[Operand]) {
        let mut bases = Vec::new();
        let mut tasks = Vec::new();
        for operand in operands {
            match self.task(operand, &mut bases) {
                Ok(Some(task)) => tasks.push(task),
                Ok(None) => {}
                Err(e) => self.to.tally().fail(e),
            }
        }
        self.work(tasks);
        for (_, base) in bases {
            self.to.release(&mut self.to.buffers(), base);
        }
    }

    fn top(&self, pair: PairedDirs<SourceDir, D::Dir>) -> WalkHold<D> {
        DirTask::top(pair, &self.dropped)
    }

    fn work(&self, tasks: Vec<Task<D>>) {
        let is_ordered = self.to.is_ordered();
        let pool = if is_ordered { Pool::in_order(self.jobs) } else { Pool::new(self.jobs) };
        // The first operand first.
        for task in tasks.into_iter().rev() {
            pool.push(task);
        }
        let buffers = || if is_ordered { self.to.ordered_buffers() } else { self.to.buffers() };
        let step = |hands: &Hands<'_, Task<D>, D::Finding>, (buffers, list): &mut (_, _), task| {
            self.step(&mut WalkWorker { hands, buffers }, list, task);
            D::findings(buffers)
        };
        pool.run_telling(|| (buffers(), ListingRoom::default()), step, |found| self.to.tell(found));
        while let Some(hold) = self.dropped.take() {
            self.to.release(&mut self.to.buffers(), hold);
        }
        self.to.worked(&mut self.to.buffers());
    }

    /// What is to be done for one operand. `bases` keeps one open destination for operands that share it.
    fn task(&self, operand: &Operand, bases: &mut Bases<D>) -> Result<Option<Task<D>>> {
        let (dev, spot) = (operand.info().dev, operand.spot);
        let surroundings =
            |src: &Arc<SourceDir>, dst| self.top(PairedDirs { ours: false, ..pair(src, dst, dev, spot) });
        match (&operand.source, &operand.dest) {
            (Source::Whole(src), Dest::Whole(place)) => {
                self.to.fills(src, place)?;
                let src = src.with_ignores(self.filter)?;
                let dst = self.to.base(place)?;
                self.to.becomes(&src, &dst);
                Ok(Some(Task::Open { pair: self.top(pair(&src, dst, dev, spot)) }))
            }
            (Source::Whole(src), Dest::Named { dir, name }) => {
                let src = &src.with_ignores(self.filter)?;
                let above = surroundings(src, self.to.base(dir)?);
                let entry = DirEntry::met(name.as_name(), name.as_name(), Kind::Dir, false);
                let Some(dst) = self.to.enter(&mut self.to.buffers(), &above, src, entry, Entering::Whole)?
                else {
                    return Ok(None);
                };
                let spot = self.to.claims().below(&spot, name.as_name());
                Ok(Some(Task::Open { pair: DirTask::below(above, pair(src, dst, dev, spot)) }))
            }
            (Source::Named { dir, name, info, follow }, Dest::Named { dir: place, name: to }) => {
                let is_dir = info.kind == Kind::Dir;
                if !is_dir && dir.excludes(name.as_name(), info, self.filter) {
                    self.to.excluded(&mut self.to.buffers(), &|| operand.path.clone());
                    return Ok(None);
                }
                let known = bases.iter().find(|(p, pair)| {
                    Arc::ptr_eq(p, place) && Arc::ptr_eq(&pair.src, dir) && pair.spot.owner == spot.owner
                });
                let above = match known {
                    Some((_, pair)) => pair.hold(),
                    None => {
                        // Operands of one command mostly go to one place: its lock is held once, so it is opened once.
                        let shared = bases.iter().find(|(p, _)| Arc::ptr_eq(p, place));
                        let dst = match shared {
                            Some((_, pair)) => self.to.share(&pair.dst),
                            None => self.to.base(place)?,
                        };
                        let made = surroundings(dir, dst);
                        let hold = made.hold();
                        bases.push((place.clone(), made));
                        hold
                    }
                };
                let entry = OwnedEntry::of(DirEntry::met(name.as_name(), to.as_name(), info.kind, *follow));
                let operand = Some(operand.path.clone());
                Ok(Some(if is_dir {
                    let spot = self.to.claims().below(&spot, to.as_name());
                    Task::Dir { pair: above, entry, operand, spot }
                } else {
                    Task::One { pair: above, entry }
                }))
            }
            (Source::Named { .. }, Dest::Whole(place)) => {
                Err(Error::ours(Code::InTheWay, Op::CopyTo, place.node.path(), Reason::IsDirectory))
            }
        }
    }

    fn step(&self, worker: &mut WalkWorker<'_, '_, D>, list: &mut ListingRoom, task: Task<D>) {
        let stop = self.to.tally().cancelled();
        let pair = match task {
            Task::Open { pair } => {
                if !stop {
                    self.list_dir(worker, list, &pair);
                }
                pair
            }
            Task::Files { pair, names, range } => {
                if !stop {
                    self.some(worker, &pair, &names, range);
                }
                pair
            }
            Task::Extras { pair, names, range } => {
                if !stop {
                    self.extras(worker, &pair, &names, range);
                }
                pair
            }
            Task::Close { pair } => {
                self.to.close(worker.buffers, &pair);
                pair
            }
            Task::Dir { pair, entry, operand, spot } => {
                if stop {
                    self.to.passed_by(worker.buffers, &pair);
                } else {
                    self.enter(worker, list, &pair, entry.entry(), operand, spot);
                }
                pair
            }
            Task::One { pair, entry } => {
                if !stop {
                    self.to.one(worker, &pair, entry.entry());
                }
                pair
            }
            Task::Second { pair, entry, info } => {
                if !stop {
                    self.to.second(worker, &pair, entry.entry(), &info);
                }
                pair
            }
        };
        if stop {
            pair.mark_incomplete();
        }
        self.to.release(worker.buffers, pair);
    }

    /// Goes into a directory.
    fn enter(
        &self,
        worker: &mut WalkWorker<'_, '_, D>,
        list: &mut ListingRoom,
        above: &Arc<WalkTask<D>>,
        entry: DirEntry<'_>,
        operand: Option<PathBuf>,
        spot: Spot,
    ) {
        let by = if operand.is_some() { Entering::Operand } else { Entering::Walk };
        let node = operand.map_or_else(|| above.src.node.below(entry.name), |path| Node::root(&path));
        let entered = above.src.enter(entry.name, node, entry.follow, self.filter).and_then(|src| {
            if self.policy.follow == Follow::Always && src.is_own_ancestor() {
                let note = Reason::LinkLoop;
                return Err(Error::ours(Code::Link, Op::Enter, src.node.path(), note));
            }
            Ok(src)
        });
        if entered.is_err() {
            self.to.passed_by(worker.buffers, above);
        }
        let entered = entered.and_then(|src| {
            let dst = self.to.enter(worker.buffers, above, &src, entry, by)?;
            Ok(dst.map(|dst| (src, dst)))
        });
        let (src, dst) = match entered {
            Ok(Some(both)) => both,
            Ok(None) => return above.mark_incomplete(),
            Err(e) => {
                above.mark_incomplete();
                return self.to.failed(worker.buffers, e);
            }
        };
        let dev = if by == Entering::Operand { src.info.dev } else { above.dev };
        let child = DirTask::below(above.hold(), pair(&src, dst, dev, spot));
        if self.policy.one_file_system && src.info.dev != dev {
            child.mark_incomplete(); // made, not entered
            if self.to.is_ordered() && self.to.closes(&child) {
                self.to.close(worker.buffers, &child);
            }
        } else {
            self.list_dir(worker, list, &child);
        }
        self.to.release(worker.buffers, child);
    }

    /// Lists a source directory: directories become tasks, everything else is dealt with in batches on the way.
    fn list_dir(&self, worker: &mut WalkWorker<'_, '_, D>, list: &mut ListingRoom, pair: &Arc<WalkTask<D>>) {
        let tally = self.to.tally();
        let is_ordered = self.to.is_ordered();
        let keeps_excluded = is_ordered && self.to.wants_extras();
        let mut found = std::mem::take(&mut list.found);
        let mut excluded = Names::default();
        let mut all_met = true;
        let listed = pair.src.list(&mut list.buffer, self.policy.follow, self.filter, |met| {
            if tally.cancelled() {
                pair.mark_incomplete();
                return false;
            }
            match met {
                Met::Entry { name, kind, ino } => {
                    if !is_ordered {
                        self.to.met(pair, name);
                    }
                    if found.add(name, kind, ino) && !is_ordered {
                        self.spread(worker, pair, &mut found.names);
                    }
                    return true;
                }
                Met::Excluded(name) => {
                    pair.mark_incomplete();
                    if keeps_excluded && self.policy.mirror != Mirror::DeleteExcluded {
                        excluded.push(name, Kind::File, 0);
                    }
                    if !is_ordered {
                        self.to.left_out(pair, name);
                    }
                    self.to.excluded(worker.buffers, &|| pair.src.node.join(name));
                }
                Met::Failed(e) => {
                    all_met = false;
                    pair.mark_incomplete();
                    self.to.failed(worker.buffers, e);
                }
            }
            self.relieve(worker);
            true
        });
        let is_listed = listed.is_ok() && !tally.cancelled() && all_met;
        if let Err(e) = listed {
            pair.mark_incomplete();
            self.to.failed(worker.buffers, e);
        }
        if is_ordered {
            let excluded = (keeps_excluded && is_listed).then_some(excluded);
            return self.leave_in_order(worker, list, pair, found, excluded);
        }
        if is_listed {
            self.to.listed(pair);
        }
        let Entries { mut dirs, mut names } = found;
        self.to.expect(pair, dirs.len());
        worker.hands.push_all(dirs.drain(..).rev().map(|name| self.dir(pair, name)));
        self.spread(worker, pair, &mut names);
        list.found = Entries { dirs, names };
    }

    /// Passes on what was found in the middle of a long task, so that not all of it is held.
    fn relieve(&self, worker: &mut WalkWorker<'_, '_, D>) {
        if D::is_full(worker.buffers) {
            worker.hands.wait_for_turn();
            D::findings(worker.buffers).into_iter().for_each(|found| self.to.tell(found));
        }
    }

    /// What is to be done for a directory that was listed in `pair`.
    fn dir(&self, pair: &Arc<WalkTask<D>>, name: NameBuf) -> Task<D> {
        let spot = self.to.claims().below(&pair.spot, name.as_name());
        let follow = self.policy.follow == Follow::Always;
        let entry = OwnedEntry { to: name.clone(), name, kind: Kind::Dir, follow, is_claimed: false };
        Task::Dir { pair: pair.hold(), entry, operand: None, spot }
    }

    /// Leaves what was listed as tasks, in the order of names, but for the first where that is a batch. `excluded` names
    /// are the source's too, where it matters.
    fn leave_in_order(
        &self,
        worker: &mut WalkWorker<'_, '_, D>,
        list: &mut ListingRoom,
        pair: &Arc<WalkTask<D>>,
        found: Entries,
        excluded: Option<Names>,
    ) {
        let Entries { mut dirs, mut names } = found;
        dirs.sort_unstable();
        names.sort_by_name();
        self.to.expect(pair, dirs.len());
        let mut tasks = Vec::new();
        if let Some(mut excluded) = excluded {
            excluded.sort_by_name();
            let has = |name: Name<'_>| {
                names.position(name).is_some()
                    || dirs.binary_search_by(|dir| dir.as_name().cmp(&name)).is_ok()
                    || excluded.position(name).is_some()
            };
            match self.to.only_there(worker.buffers, pair, &has) {
                Ok(extra) if extra.is_empty() => {}
                Ok(extra) => {
                    let range = 0..extra.len();
                    tasks.push(Task::Extras { pair: pair.hold_name(), names: Arc::new(extra), range });
                }
                Err(e) => self.to.failed(worker.buffers, e),
            }
        }
        let names = Arc::new(names);
        let mut start = 0;
        let mut leave = |tasks: &mut Vec<Task<D>>, before: Option<Name<'_>>| {
            let is_before = |name: Name<'_>| before.is_none_or(|dir| name.bytes() < dir.bytes());
            let mut end = if before.is_none() { names.len() } else { start };
            while names.get(end).is_some_and(|(name, _)| is_before(name)) {
                end += 1;
            }
            if start < end {
                tasks.push(self.files(pair, names.clone(), start..end));
            }
            start = end;
        };
        for name in dirs {
            leave(&mut tasks, Some(name.as_name()));
            tasks.push(self.dir(pair, name));
        }
        leave(&mut tasks, None);
        if self.to.closes(pair) {
            tasks.push(Task::Close { pair: pair.hold() });
        }
        let is_batch = matches!(tasks.first(), Some(Task::Files { .. } | Task::Extras { .. }));
        let mut tasks = tasks.into_iter();
        let first = if is_batch { tasks.next() } else { None };
        if tasks.len() > 0 {
            worker.hands.push_all(tasks.rev());
        }
        if let Some(batch) = first {
            self.step(worker, list, batch);
        }
    }

    /// Leaves directories that wait longest to other processes, if those have nothing to do.
    fn share_out(&self, worker: &mut WalkWorker<'_, '_, D>) {
        let wanted = self.to.wanted_elsewhere();
        if wanted == 0 {
            return;
        }
        let may_go = |task: &Task<D>| matches!(task, Task::Dir { pair, operand: None, .. } if self.to.may_go_elsewhere(pair));
        for task in worker.hands.oldest(wanted, may_go) {
            if let Task::Dir { pair, entry, .. } = task {
                self.to.goes_elsewhere(&pair, entry.name.as_name());
                self.to.release(worker.buffers, pair);
            }
        }
    }

    /// What is to be done for some of what was listed in `pair`, which waits for it.
    fn files(&self, pair: &Arc<WalkTask<D>>, names: Arc<Names>, range: Range<usize>) -> Task<D> {
        Task::Files { pair: pair.hold_name(), names, range }
    }

    /// Deals with small entries: where there is an order with a batch, and what is behind it is left to all.
    fn some(
        &self,
        worker: &mut WalkWorker<'_, '_, D>,
        pair: &Arc<WalkTask<D>>,
        names: &Arc<Names>,
        all: Range<usize>,
    ) {
        let batch = self.batch_of(worker, all, |rest| self.files(pair, names.clone(), rest));
        self.to.entries(worker, pair, names, batch);
    }

    /// The same for names that only the destination has.
    fn extras(
        &self,
        worker: &mut WalkWorker<'_, '_, D>,
        pair: &Arc<WalkTask<D>>,
        names: &Arc<Names>,
        all: Range<usize>,
    ) {
        let left = |range| Task::Extras { pair: pair.hold_name(), names: names.clone(), range };
        let batch = self.batch_of(worker, all, left);
        self.to.extras(worker.buffers, pair, names, batch);
    }

    /// The first of `all`, as many as make a batch; what is behind it is left to all workers as one task.
    fn batch_of(
        &self,
        worker: &mut WalkWorker<'_, '_, D>,
        all: Range<usize>,
        left: impl FnOnce(Range<usize>) -> Task<D>,
    ) -> Range<usize> {
        let batch = self.batch(&all);
        if batch.end < all.end {
            worker.hands.push(left(batch.end..all.end));
        }
        batch
    }

    /// As many of `range` as one task does.
    fn batch(&self, range: &Range<usize>) -> Range<usize> {
        let most = if self.to.is_ordered() { BATCH_NAMES } else { range.len() };
        range.start..range.end.min(range.start + most)
    }

    /// Deals with what was listed, batch by batch, and always has one batch waiting for a worker that is done with its own:
    /// if it had to ask for one first, it would sleep for half a batch each time. Leaves `names` empty.
    fn spread(&self, worker: &mut WalkWorker<'_, '_, D>, pair: &Arc<WalkTask<D>>, names: &mut Names) {
        self.share_out(worker);
        names.sort_by_ino();
        let step = BATCH_NAMES.max(self.to.room(pair));
        let mut start = 0;
        while start < names.len() {
            let end = (start + step).min(names.len());
            if end < names.len() && worker.hands.runs_dry() {
                worker.hands.push(self.files(pair, Arc::new(names.part(start..end)), 0..end - start));
            } else {
                self.to.entries(worker, pair, names, start..end);
            }
            start = end;
        }
        names.clear();
    }

    /// Opens the pair of directories that names of a list, or of [`Walk::named`], are below.
    ///
    /// # Errors
    /// Those of `dst`, or `base` cannot be opened.
    pub(crate) fn base(
        &self,
        base: &Path,
        dst: impl FnOnce() -> Result<D::Dir>,
        spot: Spot,
    ) -> Result<WalkHold<D>> {
        let dir = Dir::open(base).map_err(|e| Error::os(Op::OpenDirectory, base, e))?;
        let src = SourceDir::top(dir, Node::root(base), self.policy.preserve.at_source)?
            .with_ignores(self.filter)?;
        let dst = dst()?;
        Ok(self.top(PairedDirs { ours: false, ..pair(&src, dst, src.info.dev, spot) }))
    }

    /// Walks names that the caller knows, in the order of their directories, none of which is claimed, filtered or looked
    /// at before it is dealt with; nor is any directory listed or sealed. Returns what tells each source directory from
    /// others, where it could be opened.
    pub(crate) fn named(&self, root: &WalkHold<D>, dirs: Vec<NamesBelow>) -> Vec<Option<(u64, u64)>> {
        let mut buffers = self.to.buffers();
        let mut leave = |pair: WalkHold<D>| self.to.release(&mut buffers, pair);
        let mut ids = Vec::with_capacity(dirs.len());
        let mut dirs = dirs.into_iter().peekable();
        while dirs.peek().is_some() && !self.to.tally().cancelled() {
            let (mut tasks, mut chain) = (Vec::new(), Chain::new(root.hold()));
            for NamesBelow { path, names } in dirs.by_ref().take(ROUND_DIRS) {
                if names.is_empty() {
                    ids.push(None);
                    continue;
                }
                let reached: Result<bool> = chain.go(&path, &mut leave, |above, name| {
                    let (src, dst) = match self.led_through(above, name, Entering::Round)? {
                        Some(both) => both,
                        None => return Ok(None),
                    };
                    let made = PairedDirs { ours: false, ..pair(&src, dst, above.dev, above.spot) };
                    Ok(Some(DirTask::below(above.hold(), made)))
                });
                ids.push(match reached {
                    Ok(true) => {
                        let (pair, names) = (&*chain.last(), Arc::new(names));
                        for start in (0..names.len()).step_by(LIST_BATCH_NAMES) {
                            let end = names.len().min(start + LIST_BATCH_NAMES);
                            tasks.push(self.files(pair, names.clone(), start..end));
                        }
                        Some(pair.src.info.id())
                    }
                    Ok(false) => None,
                    Err(e) => {
                        self.to.tally().fail(e);
                        None
                    }
                });
            }
            let top = chain.end(&mut leave);
            leave(top);
            self.work(tasks);
        }
        ids
    }

    /// Goes into a directory that leads to names.
    fn led_through(
        &self,
        above: &WalkHold<D>,
        name: Name<'_>,
        by: Entering,
    ) -> Result<Option<(Arc<SourceDir>, D::Dir)>> {
        let src = above.src.enter(name, above.src.node.below(name), false, self.filter)?;
        let entry = DirEntry::met(name, name, Kind::Dir, false);
        let dst = self.to.enter(&mut self.to.buffers(), above, &src, entry, by)?;
        Ok(dst.map(|dst| (src, dst)))
    }

    /// Walks names read from a list, each with the directories that lead to it.
    pub(crate) fn list(&self, names: &mut ListedNames<'_>, target: &Target, spot: Spot) -> Result<()> {
        let root = self.base(names.base, || self.to.list_base(target), spot)?;
        let mut buffers = self.to.buffers();
        // A directory of the chain is left: it gets its name, and is complete when its tasks are done.
        let mut leave = |pair: WalkHold<D>| self.to.release(&mut buffers, pair);
        loop {
            let mut tasks = Vec::new();
            let mut chain = Chain::new(root.hold());
            let mut ended = true;
            for _ in 0..LIST_CHUNK {
                let Some(parts) = names.next() else { break };
                match parts.and_then(|parts| self.listed(&mut leave, &mut chain, &parts)) {
                    Ok(Some(FromList::Dir(task))) => tasks.push(task),
                    Ok(Some(FromList::Other(pair, name, info))) => {
                        self.gather(&mut tasks, &pair, name.as_name(), &info);
                    }
                    Ok(None) => {}
                    Err(e) => self.to.tally().fail(e),
                }
                ended = false;
            }
            let top = chain.end(&mut leave);
            leave(top);
            self.work(tasks);
            if ended || self.to.tally().cancelled() {
                leave(root);
                return Ok(());
            }
        }
    }

    /// Leaves a name to be dealt with together with those before it, where these are in the same directory: they land in
    /// batches, as those of a directory that is listed.
    fn gather(&self, tasks: &mut Vec<Task<D>>, pair: &Arc<WalkTask<D>>, name: Name<'_>, info: &Info) {
        if let Some(Task::Files { pair: last, names, range }) = tasks.last_mut()
            && Arc::ptr_eq(last, pair)
            && range.len() < LIST_BATCH_NAMES
            && let Some(names) = Arc::get_mut(names)
        {
            range.end += 1;
            return names.push(name, info.kind, info.ino);
        }
        let mut names = Names::claimed();
        names.push(name, info.kind, info.ino);
        tasks.push(self.files(pair, Arc::new(names), 0..1));
    }

    /// Walks `chain` to the directory of one listed name and says what is to be done there.
    /// Nothing, when the filter leaves it out.
    fn listed(
        &self,
        leave: &mut impl FnMut(WalkHold<D>),
        chain: &mut Chain<WalkHold<D>>,
        parts: &[NameBuf],
    ) -> Result<Option<FromList<D>>> {
        let Some((last, dirs)) = parts.split_last() else { return Ok(None) };
        let reached: Result<bool> = chain.go(dirs, leave, |above, name| {
            if self.leaves_out(&above.src, name, true) {
                return Ok(None);
            }
            let Some((src, dst)) = self.led_through(above, name, Entering::List)? else { return Ok(None) };
            let spot = self.to.claims().below(&above.spot, name);
            Ok(Some(DirTask::below(above.hold(), pair(&src, dst, above.dev, spot))))
        });
        if !reached? {
            return Ok(None);
        }
        let (pair, name) = (&*chain.last(), last.as_name());
        let follow = self.policy.follow == Follow::Always;
        let info = pair.src.stat(name, follow)?;
        let is_dir = info.kind == Kind::Dir;
        if self.leaves_out(&pair.src, name, &info) {
            return Ok(None);
        }
        operands::takes_kind(self.policy.recursive, info.kind, Op::Copy, || pair.src.node.join(name))?;
        // Listed again, maybe spelled otherwise: it is taken once.
        let entry = DirEntry { is_claimed: true, ..DirEntry::met(name, name, info.kind, follow) };
        if self.to.claim(pair, entry, &info)? != Claimed::First {
            return Ok(None);
        }
        Ok(Some(if is_dir {
            let (pair, entry) = (pair.hold(), OwnedEntry::of(entry));
            let claims = self.to.claims();
            let spot = claims.another(&claims.below(&pair.spot, name));
            FromList::Dir(Task::Dir { pair, entry, operand: None, spot })
        } else {
            FromList::Other(Arc::clone(pair), last.clone(), info)
        }))
    }

    /// Whether the filter leaves `name` out; it is told.
    fn leaves_out(&self, src: &SourceDir, name: Name<'_>, seen: impl Into<Seen>) -> bool {
        let out = src.excludes(name, seen, self.filter);
        if out {
            self.to.excluded(&mut self.to.buffers(), &|| src.node.join(name));
        }
        out
    }
}

/// A pair with nothing done yet.
fn pair<T>(src: &Arc<SourceDir>, dst: T, dev: u64, spot: Spot) -> PairedDirs<SourceDir, T> {
    PairedDirs { src: src.clone(), dst, ours: true, dev, spot }
}
