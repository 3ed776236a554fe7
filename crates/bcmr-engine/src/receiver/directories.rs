//! Directories of one run: entered, published once their small files are in them, sealed once everything below them is
//! done, and their file systems synced.
//!
//! Must not know what is put into them. The order is the safety: small files, their sync (`--sync`), the name; then
//! everything else below, owner, mode and times, the sync of names, and last the marks of unfinished trees
//! (docs/durability.md).

use crate::disk::sys::Sys;
use crate::disk::{Disk, Fault, Keep};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::Action;
use crate::node::Node;
use crate::policy::{CopyPolicy, Durability, Leaving, Preserve};
use crate::receiver::dest::{Clash, DestDir, MadeBy, MoveState, not_empty};
use crate::receiver::devices::Devices;
use crate::receiver::dir_task::{Dropped, Hold, Origin, PairedDirs, Slot};
use crate::receiver::losses::MetadataLosses;
use crate::receiver::plan::stale_by;
use crate::receiver::tree;
use crate::tally::Tally;
use fastcopy::dir::Name;
use fastcopy::meta::{Info, Time};
use fastcopy::process::is_in_group;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Directories that wait for one common sync before they are published (`--sync`).
const GROUP_DIRS: usize = 64;

/// Something to be done in a directory that is landed.
pub(crate) type SlotHold<S, D = Sys> = Hold<S, DestDir<D>>;

/// What a run does when a directory is complete.
pub(crate) type WhenComplete<'f, S, D> = &'f dyn Fn(&Arc<Slot<S, D>>);

/// Sources of which all has landed, and what went wrong, by device.
pub(crate) type Landed = (Vec<(u64, u64)>, Vec<(u64, Error)>);

/// The directories of one run.
pub(crate) struct Directories<'a, S, D: Disk> {
    disk: &'a D,
    policy: &'a CopyPolicy,
    tally: Arc<Tally<'a>>,
    losses: Arc<MetadataLosses<'a>>,
    /// Directories that wait for a sync before they are published.
    group: Mutex<Vec<SlotHold<S, D>>>,
    /// Holds that nothing released.
    dropped: Arc<Dropped<S, DestDir<D>>>,
    /// The file systems that things are put on.
    devices: Devices<'a, D>,
    /// Directories marked as unfinished (`-C -r`, a move).
    marked: Mutex<Vec<Marked<D>>>,
    /// R8: all has landed, and is gone through once more to be taken away; it was counted.
    pub(crate) once_more: AtomicBool,
    /// A directory lacks metadata that another attempt could give it.
    is_unsealed: AtomicBool,
}

/// A directory that is marked, and what it becomes a copy of.
struct Marked<D: Disk> {
    dst: DestDir<D>,
    source: Info,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a, S: Origin, D: Disk> Directories<'a, S, D> {
    pub(crate) fn new(
        disk: &'a D,
        policy: &'a CopyPolicy,
        tally: Arc<Tally<'a>>,
        losses: Arc<MetadataLosses<'a>>,
    ) -> Directories<'a, S, D> {
        let (group, dropped, marked) = (Mutex::default(), Arc::default(), Mutex::default());
        let (devices, no) = (Devices::new(disk), || AtomicBool::new(false));
        let (once_more, is_unsealed) = (no(), no());
        Directories { disk, policy, tally, losses, group, dropped, devices, marked, once_more, is_unsealed }
    }

    /// The file systems that things are put on.
    pub(crate) fn devices(&self) -> &Devices<'a, D> {
        &self.devices
    }

    /// Goes into the directory that an operand becomes. With sessions, and by a move (`takes_away`), it is marked: until
    /// the run is complete, the same command means this directory.
    pub(crate) fn enter_top(
        &self,
        above: &DestDir<D>,
        to: Name<'_>,
        src: &Info,
        takes_away: bool,
    ) -> Result<DestDir<D>> {
        if !self.policy.resume.has_sessions() && !takes_away {
            return above.enter(self.disk, to, self.policy);
        }
        let mark = |dir: &D::Dir| tree::mark(self.disk, dir, src);
        let mut dst = above.enter_marked(self.disk, to, self.policy, &mark)?;
        let at = dst.node.path();
        if takes_away && dst.info.id() == src.id() {
            return Err(Error::ours(Code::Refused, Op::MoveTo, at, Reason::SameFile));
        }
        let fail = |op: Op| {
            let at = &at;
            move |e| Error::os(op, at, e)
        };
        // What was made just now is marked.
        let mut stand = match (dst.is_made(), takes_away) {
            (true, _) => Some(MoveState::Filling),
            (false, true) => tree::read_stand(self.disk, &dst.dir, src).map_err(fail(Op::Read))?,
            (false, false) => tree::stand(self.disk, &dst.dir, src),
        };
        let met = stand.filter(|_| !dst.is_made());
        if takes_away && matches!(met, Some(MoveState::Landed { .. })) {
            // R8: an earlier run has sealed it.
        } else if met.is_some() {
            dst.made_by = MadeBy::InterruptedCopy;
        } else if !dst.is_made() && takes_away {
            // An empty directory that was there already would not be empty any more when the same command is run again.
            // Where another process holds the lock, that one may be making its mark.
            let look = if dst.is_sole(self.disk) { tree::is_empty_or_torn } else { tree::is_empty };
            let is_empty = look(self.disk, &dst.dir).map_err(fail(Op::ListDirectory))?;
            if !is_empty && self.policy.leaving == Leaving::Goes {
                return Err(not_empty(&at));
            }
            if is_empty {
                mark(&dst.dir).map_err(fail(Op::Mark))?;
                stand = Some(MoveState::Filling);
            }
        }
        if takes_away {
            dst.stand = stand;
        }
        if dst.is_made() || stand.is_some() {
            locked(&self.marked).push(Marked { dst: dst.share(), source: *src });
        }
        Ok(dst)
    }

    /// R8: all that can land of the marked directories has, in a run that began at `since`. Brings it onto stable storage
    /// and says so in the marks. Returns the sources of which that could be said, and what went wrong, by device. `None`: a
    /// directory is to be sealed again, from what the source says.
    pub(crate) fn all_landed(&self, since: Time) -> Option<Landed> {
        if self.is_unsealed.load(Ordering::Relaxed) {
            return None;
        }
        let mut marked = locked(&self.marked);
        let is_filling = |dst: &DestDir<D>| dst.stand == Some(MoveState::Filling);
        let mut failed = self.devices.sync(marked.iter().map(|m| &m.dst).filter(|dst| is_filling(dst)));
        let mut landed = Vec::new();
        for Marked { dst, source } in marked.iter_mut() {
            if !is_filling(dst) || !self.devices.is_sure(dst) {
                continue;
            }
            match tree::landed(self.disk, &dst.dir, source, since) {
                Ok(()) => {
                    dst.stand = Some(MoveState::Landed { since });
                    landed.push(source.id());
                }
                Err(e) => {
                    self.devices.doubt(dst);
                    failed.push((dst.info.dev, Error::os(Op::Mark, dst.node.path(), e)));
                }
            }
        }
        Some((landed, failed))
    }

    /// `pair` or an entry of it lacks something that the same command may give it: a move takes away neither, and nothing of
    /// the marked directories.
    pub(crate) fn left_unsealed(&self, pair: &Slot<S, D>) {
        self.is_unsealed.store(true, Ordering::Relaxed);
        pair.mark_incomplete();
    }

    /// One entry is done.
    pub(crate) fn done_one(&self) {
        if !self.once_more.load(Ordering::Relaxed) {
            self.tally.done(1);
        }
    }

    /// Goes into the directory `name` of `above`, of which the source has `mode`, making it when it is not there. To be
    /// called once for each that [`DestDir::expect`] was told of, or else [`Directories::passed_by`].
    pub(crate) fn enter(
        &self,
        hand: &mut D::Hand,
        above: &Arc<Slot<S, D>>,
        (name, mode): (Name<'_>, u32),
        done: WhenComplete<'_, S, D>,
    ) -> Result<DestDir<D>> {
        let begun = above.dst.begin();
        if begun.publish {
            self.publish_top(hand, above, done);
        }
        if !begun.inside {
            return above.dst.enter(self.disk, name, self.policy);
        }
        let entered = above.dst.enter_inside(self.disk, name, self.policy, mode);
        if entered.is_err() {
            self.filled_with(hand, above, done);
        }
        entered
    }

    /// L5: what others may not do in the end in a directory that was there they may not from now on, before anything is put into
    /// it. Where its mode cannot be set, sealing says so.
    pub(crate) fn narrow(&self, dst: &DestDir<D>, src: &Info) {
        // R8: what an earlier run has sealed is not sealed again.
        if dst.is_made() || matches!(dst.stand, Some(MoveState::Landed { .. })) {
            return;
        }
        // Who may not give it another group would close it anew each time.
        let gives = dst.keep.preserve.owner && self.policy.me == 0;
        let preserve = Preserve { owner: gives, ..dst.keep.preserve };
        let narrowed = |now: &Info| Keep { preserve, ..dst.keep }.narrowed(now, src);
        if narrowed(&dst.info).is_some()
            && let Ok(now) = self.disk.info(&dst.dir)
            && let Some(mode) = narrowed(&now)
            && self.keeps_setgid(&now)
        {
            let _told_when_sealed = self.disk.set_mode(&dst.dir, mode);
        }
    }

    /// Whether a directory whose mode is set still gives its group to what is made in it: of a group that the run is not in, the
    /// kernel takes setgid away (chmod(2)).
    fn keeps_setgid(&self, now: &Info) -> bool {
        now.mode & 0o2000 == 0 || self.policy.me == 0 || is_in_group(now.gid)
    }

    /// A directory that was listed in `above` is not entered.
    pub(crate) fn passed_by(
        &self,
        hand: &mut D::Hand,
        above: &Arc<Slot<S, D>>,
        done: WhenComplete<'_, S, D>,
    ) {
        let begun = above.dst.begin();
        if begun.publish {
            self.publish_top(hand, above, done);
        }
        if begun.inside {
            self.filled_with(hand, above, done);
        }
    }

    /// One of the directories that appear together with `pair` gets no more small files.
    fn filled_with(&self, hand: &mut D::Hand, pair: &Arc<Slot<S, D>>, done: WhenComplete<'_, S, D>) {
        if pair.dst.filled() {
            self.publish_top(hand, pair, done);
        }
    }

    /// Publishes the directory that `pair` appears with.
    fn publish_top(&self, hand: &mut D::Hand, pair: &Arc<Slot<S, D>>, done: WhenComplete<'_, S, D>) {
        let mut top = pair;
        while let Some(above) = top.above.as_ref().filter(|_| !top.dst.is_staged()) {
            top = above;
        }
        if self.policy.durability != Durability::Medium {
            return self.publish(top);
        }
        // R2: its files must be on stable storage before the name leads to them; one sync serves many directories.
        let mut group = locked(&self.group);
        group.push(top.hold());
        let full = group.len() >= GROUP_DIRS;
        drop(group);
        if full {
            self.publish_group(hand, done);
        }
    }

    fn publish(&self, pair: &Slot<S, D>) {
        let Some(above) = &pair.above else { return };
        if let Err(e) = pair.dst.publish(self.disk, &above.dst) {
            pair.mark_incomplete();
            self.tally.fail(e);
        }
    }

    /// Syncs and publishes the directories that wait for it.
    pub(crate) fn publish_group(&self, hand: &mut D::Hand, done: WhenComplete<'_, S, D>) {
        while let Some(hold) = self.dropped.take() {
            self.release(hand, hold, done);
        }
        loop {
            let group = std::mem::take(&mut *locked(&self.group));
            if group.is_empty() {
                return;
            }
            // R2: where something is mounted inside the destination they are on several file systems.
            for (_, e) in self.devices.sync(group.iter().map(|pair| &pair.dst)) {
                self.tally.fail(e);
            }
            for pair in group {
                if self.devices.is_sure(&pair.dst) {
                    self.owe(&pair.dst);
                } else {
                    // R5: what failed to reach stable storage once is thrown away, never tried again.
                    pair.dst.poison();
                }
                self.publish(&pair);
                pair.release(|pair| self.seal(hand, pair, done));
            }
        }
    }

    /// The directory of an operand, held until it is listed.
    pub(crate) fn top(&self, pair: PairedDirs<S, DestDir<D>>) -> SlotHold<S, D> {
        Slot::top(pair, &self.dropped)
    }

    /// One of the things that had to be done in a directory is done: it may get its name by that, or be complete, and so
    /// may be its parents.
    pub(crate) fn release(&self, hand: &mut D::Hand, mut hold: SlotHold<S, D>, done: WhenComplete<'_, S, D>) {
        if hold.is_filled() {
            self.filled_with(hand, &hold, done);
        }
        hold.release(|pair| self.seal(hand, pair, done));
    }

    /// Everything in it is done: owner, mode, times.
    fn seal(&self, hand: &mut D::Hand, pair: &Arc<Slot<S, D>>, done: WhenComplete<'_, S, D>) {
        let dst = &pair.dst;
        // Others fill it as well; who ends that seals it.
        if dst.is_recorded() {
            return self.done_one();
        }
        if dst.is_poisoned() {
            if let Some(Err(e)) = pair.above.as_ref().map(|above| dst.take_back(self.disk, &above.dst)) {
                self.tally.fail(e);
            }
            return;
        }
        let settled = match &pair.above {
            Some(above) => dst.settle(self.disk, &above.dst, Clash::of(self.policy)),
            None => Ok(None),
        };
        let moved = match settled {
            Ok(moved) => moved,
            Err(e) => {
                self.left_unsealed(pair);
                return self.tally.fail(e);
            }
        };
        // A directory that was there keeps what it has, unless it was asked otherwise: as cp does.
        let ours = dst.made_by != MadeBy::Others;
        let times = self.policy.preserve.times && (ours || !self.policy.times_for_resuming);
        let preserve = Preserve { times, ..self.policy.preserve };
        let last = dst.is_done_with();
        if matches!(dst.stand, Some(MoveState::Landed { .. })) && !ours {
            // R8: it was sealed when the source still said all of it. What landed in it only now gave it a new time.
            if self.disk.info(&dst.dir).is_ok_and(|now| now.mtime != dst.info.mtime)
                && let Err(e) = self.disk.set_times(&dst.dir, dst.info.atime, dst.info.mtime)
            {
                self.tally.lost(Error::os(Op::SetTimesOf, dst.node.path(), e));
            }
            self.owe(dst);
        } else if ours || preserve.mode || preserve.owner || preserve.times || preserve.xattr {
            // What a list comes back to is still to be written to.
            if last {
                let was = self.was_like(pair);
                let dir = moved.as_ref().unwrap_or(&dst.dir);
                let keep = Keep { was_there: !ours, preserve, ..dst.keep };
                let (attributes, info) = (pair.src.attributes(), pair.src.info());
                let mut sealed = self.disk.seal_dir(hand, dir, attributes, info, &keep);
                // Only who may write to it may give it attributes (xattr(7)).
                if !sealed.lost.is_empty() && dst.open_up(self.disk) {
                    sealed = self.disk.seal_dir(hand, dir, attributes, info, &keep);
                }
                if sealed.lost.iter().any(Fault::may_pass) {
                    self.left_unsealed(pair);
                }
                self.losses.tell(sealed.lost, || pair.src.node().path(), || dst.node.path());
                let is_stale = |was: Info| stale_by(pair.src.info(), &was, self.policy).is_some();
                if was.is_some_and(|was| sealed.set_attributes || is_stale(was)) {
                    self.tally.updated.fetch_add(1, Ordering::Relaxed);
                    self.tally.item(Action::Updated, 0, || (pair.src.node().path(), dst.node.path()));
                }
            }
            // R3: after the last of its names.
            self.owe(dst);
        }
        if dst.is_made() {
            self.tally.dirs.fetch_add(1, Ordering::Relaxed);
            self.tally.item(Action::MadeDir, 0, || (pair.src.node().path(), dst.node.path()));
        }
        self.done_one();
        if !pair.is_incomplete() {
            done(pair);
        }
    }

    /// What a directory that was there is meant to be, before it is sealed; where it is told that it was brought up to date.
    fn was_like(&self, pair: &Slot<S, D>) -> Option<Info> {
        let dst = &pair.dst;
        let tells = self.policy.mirror.is_on() && dst.made_by == MadeBy::Others && !dst.made_first;
        // What cannot be read is told as it is sealed.
        if tells { self.disk.dir_meant(&dst.dir, dst.info).ok() } else { None }
    }

    /// Names were made in `dir`, or found, that are not known to be on stable storage.
    pub(crate) fn owe(&self, dir: &DestDir<D>) {
        if self.policy.durability == Durability::Medium {
            self.devices.owe(dir);
        }
    }

    /// Makes the names durable that were not synced one by one: the last thing before exit 0 with `--sync`.
    pub(crate) fn sync_names(&self) {
        for (_, e) in self.devices.sync_owed() {
            self.tally.fail(e);
        }
    }

    /// The marks of what is complete, to be taken away after everything else: from then on the same command means
    /// something else. What is not complete keeps them.
    pub(crate) fn marks(&self) -> Marks<D> {
        let marked = std::mem::take(&mut *locked(&self.marked));
        let of = |m: Marked<D>| (m.dst.dir.clone(), m.dst.node.clone());
        Marks(if self.tally.all_well() { marked.into_iter().map(of).collect() } else { Vec::new() })
    }
}

/// The marks in directories that are complete by now.
#[must_use]
pub(crate) struct Marks<D: Disk = Sys>(Vec<(Arc<D::Dir>, Arc<Node>)>);

impl Marks {
    /// None.
    pub(crate) const NONE: Marks = Marks(Vec::new());

    /// Takes them away, once the run and its disk are gone.
    pub(crate) fn clear(self) -> Result<()> {
        self.clear_on(&Sys::new())
    }
}

impl<D: Disk> Marks<D> {
    /// Takes them away, also from stable storage.
    pub(crate) fn clear_on(self, disk: &D) -> Result<()> {
        for (dir, node) in self.0 {
            let cleared = tree::unmark(disk, &dir).and_then(|()| disk.sync_dir(&dir));
            cleared.map_err(|e| Error::os(Op::Unmark, node.path(), e))?;
        }
        Ok(())
    }
}
