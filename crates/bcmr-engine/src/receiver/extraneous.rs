//! What the destination has and the source does not: found while entries land, weighed against how much may go at once, and
//! deleted once everything else is there (safety rules M1 to M6).
//!
//! Must not know how a source is listed, nor how a tree is taken away: that is the remover's. Nothing is deleted here but
//! single names below handles that were opened one name at a time from the destination's own, without links; and of those
//! nothing that is not the very thing that was planned.

use crate::disk::Dirs;
use crate::disk::sys::Sys;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Cancel, Event, Front, Progress, Question, Watch};
use crate::node::Node;
use crate::policy::{CopyPolicy, DeleteMax, Durability, Mirror};
use crate::receiver::aside::Aside;
use crate::receiver::created_names::CreatedNames;
use crate::receiver::dest::DestDir;
use crate::receiver::partly::{self, Bar, Fate, Portion, RulesBelow, SparedBelow};
use crate::receiver::unmet::Unmet;
use crate::remove::{self, NamedRemoval, open_up};
use crate::stage;
use crate::tally::Tally;
use fastcopy::dir::{Dir, Name, NameBuf};
use fastcopy::meta::{Info, Kind, Place, Time};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Names that are written down together before they are moved to where they are kept.
const KEPT_AT_ONCE: usize = 1024;

/// Why a name goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Going {
    /// The source does not have it.
    OnlyThere,
    /// It is a directory, and the source has something else of its name.
    InTheWay,
}

/// A directory of the destination in which something goes.
struct Below {
    node: Arc<Node>,
    id: (u64, u64),
    /// What it is to have once something went.
    times: Option<(Time, Time)>,
    /// What this run has put into it.
    created_names: Arc<CreatedNames>,
    names: Vec<Planned>,
    /// Files of rules have had their say.
    is_ruled: bool,
}

/// One name that goes.
struct Planned {
    name: NameBuf,
    id: (u64, u64),
    /// When it came to be: another file may get its number. 0 where that is not told.
    born: u64,
    kind: Kind,
    going: Going,
    /// Entries that go with it.
    count: u64,
    /// Where it is to be kept, once that is written down.
    promised: Option<PathBuf>,
    /// Why it stays after all, which is told then.
    bar: Option<Bar>,
}

impl Planned {
    fn of(dir: &Dir, name: Name<'_>, there: &Info, going: Going) -> Planned {
        let born = dir.btime(name).unwrap_or(0);
        Planned {
            name: name.to_owned(),
            id: there.id(),
            born,
            kind: there.kind,
            going,
            count: 0,
            promised: None,
            bar: None,
        }
    }

    /// The same, of which so much goes; `None` where a part of it does.
    fn within(self, portion: Portion) -> Option<Planned> {
        match portion {
            Portion::Whole => Some(self),
            Portion::Part => None,
            Portion::Barred(bar) => Some(Planned { bar: Some(bar), ..self }),
        }
    }

    /// Whether it is what is `there`, which was `born` then.
    fn is(&self, there: &Info, born: u64) -> bool {
        there.id() == self.id && there.kind == self.kind && (born == self.born || born.min(self.born) == 0)
    }
}

/// Whether a name stays all the same; whether it is a directory.
type SparesName<'a> = dyn Fn(Name<'_>, bool) -> Result<bool> + 'a;

/// A directory of the destination in which something may go.
pub(crate) struct At<'d> {
    pub(crate) dir: &'d Dir,
    pub(crate) node: &'d Arc<Node>,
    pub(crate) id: (u64, u64),
    /// What it is to have once something went.
    pub(crate) times: Option<(Time, Time)>,
    pub(crate) created_names: &'d Arc<CreatedNames>,
}

/// What was found in one run.
pub(crate) struct Extraneous {
    mirror: Mirror,
    most: DeleteMax,
    /// What holds that which is kept: it stays wherever it is met.
    spared: Option<(u64, u64)>,
    /// What runs that were killed have left goes at once.
    sweeps: bool,
    /// Files of rules, which leave out more than the source has: they are read at the destination, as they came.
    rules: Option<Box<RulesBelow>>,
    root: OnceLock<MirrorRoot>,
    /// Names in the directories of the destination.
    entries: AtomicU64,
    /// The source has names at all.
    has_source: AtomicBool,
    found: Mutex<Vec<Below>>,
}

/// The directory that becomes what the source is.
struct MirrorRoot {
    dir: Dir,
    node: Arc<Node>,
    /// The file system that it is on.
    device: u64,
    /// The source's own directory, which is never removed wherever it is met.
    source: (u64, u64),
}

/// What goes.
pub(crate) struct Plan {
    root: MirrorRoot,
    below: Vec<Below>,
}

impl Extraneous {
    /// Nothing was found yet; `None` where nothing is to be deleted.
    pub(crate) fn of(policy: &CopyPolicy) -> Option<Extraneous> {
        let (entries, has_source, found) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::default());
        let CopyPolicy { mirror, delete_max: most, .. } = *policy;
        let root = OnceLock::new();
        mirror.deletes().then_some(Extraneous {
            mirror,
            most,
            spared: None,
            sweeps: false,
            rules: None,
            root,
            entries,
            has_source,
            found,
        })
    }

    /// The same, and the directory `spared` stays wherever it is met.
    pub(crate) fn sparing(self, spared: Option<(u64, u64)>) -> Extraneous {
        Extraneous { spared, ..self }
    }

    /// The same; where `sweeps`, no other run is at work there, and what those that were killed have left goes at once.
    pub(crate) fn sweeping(self, sweeps: bool) -> Extraneous {
        Extraneous { sweeps, ..self }
    }

    /// `dir` becomes what the directory `source` is. Without this nothing goes.
    ///
    /// # Errors
    /// There is no handle left for it, or it cannot be looked at.
    pub(crate) fn begin(&self, dir: &Dir, node: &Arc<Node>, source: (u64, u64)) -> io::Result<()> {
        let (dir, device) = (dir.try_clone()?, dir.info()?.dev);
        self.root.get_or_init(|| MirrorRoot { dir, node: node.clone(), device, source });
        Ok(())
    }

    /// The same, and what files of rules leave out in the end stays.
    pub(crate) fn ruled_by(self, rules: Option<Box<RulesBelow>>) -> Extraneous {
        let rules = rules.filter(|_| !self.takes_excluded());
        Extraneous { rules, ..self }
    }

    /// The source has `name` in what becomes `dst`.
    pub(crate) fn met(&self, dst: &DestDir<Sys>, name: Name<'_>) {
        self.source_has_one();
        if let Some(unmet) = &dst.unmet {
            unmet.met(name);
        }
    }

    /// The same, and the filter leaves it out.
    pub(crate) fn left_out(&self, dst: &DestDir<Sys>, name: Name<'_>) {
        if self.takes_excluded() { self.source_has_one() } else { self.met(dst, name) }
    }

    /// M2: the source's listing of what becomes `dst` is complete. `excludes` says what the filter leaves out, if there is
    /// one, `is_there` whether the source has a name after all.
    ///
    /// # Errors
    /// What is there, or at the source, cannot be looked at.
    pub(crate) fn all_met(
        &self,
        dst: &DestDir<Sys>,
        times: Option<(Time, Time)>,
        excludes: Option<&SparedBelow<'_>>,
        is_there: &dyn Fn(Name<'_>) -> Result<bool>,
    ) -> Result<()> {
        let Some(unmet) = &dst.unmet else { return Ok(()) };
        let at = At {
            dir: &dst.dir,
            node: &dst.node,
            id: dst.info.id(),
            times,
            created_names: &dst.created_names,
        };
        if self.sweeps {
            dst.open_up(&Sys::new());
        }
        let excludes = excludes.filter(|_| !self.takes_excluded());
        let spares = |name: Name<'_>, is_dir: bool| match excludes {
            Some(excludes) if excludes(&[name.bytes()], is_dir) => Ok(true),
            _ => is_there(name),
        };
        self.listed(&at, unmet, &|name| dst.home.role(name).is_some(), (&spares, excludes))
    }

    /// A directory that is `there` in `dst` has the name of something else of the source. Whether it may go.
    ///
    /// # Errors
    /// The filter leaves out something in it, which stays; or it cannot be looked into.
    pub(crate) fn in_the_way(
        &self,
        dst: &DestDir<Sys>,
        name: Name<'_>,
        there: &Info,
        excludes: Option<&SparedBelow<'_>>,
    ) -> Result<bool> {
        if dst.unmet.is_none() {
            return Ok(false);
        }
        let excludes = excludes.filter(|_| !self.takes_excluded());
        let (node, created_names) = (&dst.node, &dst.created_names);
        let at = At { dir: &dst.dir, node, id: dst.info.id(), times: None, created_names };
        let planned = Planned::of(&dst.dir, name, there, Going::InTheWay);
        self.add(&at, vec![self.replaced(&at, planned, excludes)?]);
        Ok(true)
    }

    /// Whether what the filter leaves out at the source counts as absent there.
    pub(crate) fn takes_excluded(&self) -> bool {
        self.mirror == Mirror::DeleteExcluded
    }

    fn found(&self) -> MutexGuard<'_, Vec<Below>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing was found.
    fn is_empty(&self) -> bool {
        self.found().is_empty()
    }

    /// The source has a name.
    pub(crate) fn source_has_one(&self) {
        if !self.has_source.load(Relaxed) {
            self.has_source.store(true, Relaxed);
        }
    }

    /// M2: the source's listing of what becomes `at` is complete, and `unmet` is what it has not named. `spares` says of a
    /// name, and whether it is a directory, that it stays all the same, `excludes` what stays in a directory.
    ///
    /// # Errors
    /// What is there cannot be listed or looked at.
    fn listed(
        &self,
        at: &At<'_>,
        unmet: &Unmet,
        is_ours: &dyn Fn(Name<'_>) -> bool,
        (spares, excludes): (&SparesName<'_>, Option<&SparedBelow<'_>>),
    ) -> Result<()> {
        let fail = |op: Op| move |e| Error::os(op, at.node.path(), e);
        let (rest, all) = unmet.rest(&Sys::new(), at.dir).map_err(fail(Op::ListDirectory))?;
        self.counted(all);
        let mut names = Vec::new();
        for name in rest {
            // M5: what this program needs to go on, or is at right now.
            if is_ours(name.as_name()) || stage::is_random(name.as_name()) {
                if self.sweeps {
                    let gone = Sys::new().remove_tree(at.dir, name.as_name());
                    gone.map_err(fail(Op::RemoveUnfinished))?;
                }
                continue;
            }
            let looked = at.dir.look(name.as_name());
            let Some(info) = looked.map_err(|e| Error::os(Op::Stat, at.node.join(name.as_name()), e))? else {
                continue;
            };
            let is_dir = info.kind == Kind::Dir;
            if spares(name.as_name(), is_dir)? {
                continue;
            }
            let portion = if is_dir { self.some_go(at, name.as_name(), excludes)? } else { Portion::Whole };
            names.extend(Planned::of(at.dir, name.as_name(), &info, Going::OnlyThere).within(portion));
        }
        self.add(at, names);
        Ok(())
    }

    /// Whether something may stay in a directory that goes.
    fn asks(&self, excludes: Option<&SparedBelow<'_>>) -> bool {
        self.spared.is_some() || excludes.is_some()
    }

    /// What becomes of something in one, by what it is and not by its name.
    pub(crate) fn fate(&self, info: &Info) -> Fate {
        if self.spared == Some(info.id()) {
            Fate::Stays
        } else if self.root.get().is_some_and(|root| root.source == info.id()) {
            Fate::Bars(Reason::HoldsSource)
        } else {
            Fate::Goes
        }
    }

    /// The same, by what the filter leaves out as well.
    fn fates(&self, excludes: Option<&SparedBelow<'_>>) -> impl Fn(&[&[u8]], &Info) -> Fate {
        move |below, info| {
            let is_out = excludes.is_some_and(|excludes| excludes(below, info.kind == Kind::Dir));
            if is_out { Fate::Stays } else { self.fate(info) }
        }
    }

    /// A directory that is in the way of something else, as it is planned.
    ///
    /// # Errors
    /// Something stays in it; or it cannot be looked into.
    fn replaced(&self, at: &At<'_>, planned: Planned, excludes: Option<&SparedBelow<'_>>) -> Result<Planned> {
        if !self.asks(excludes) {
            return Ok(planned);
        }
        let (name, shown) = (planned.name.as_name(), at.node.join(planned.name.as_name()));
        let portion = partly::portion(at.dir, name, &self.fates(excludes));
        let portion = portion.map_err(|e| Error::os(Op::ListDirectory, &shown, e))?;
        let stays = || Error::ours(Code::InTheWay, Op::Replace, shown, Reason::HoldsKept);
        planned.within(portion).ok_or_else(stays)
    }

    /// How much goes of a directory in which something may stay. A part is added; the whole is the caller's.
    fn some_go(&self, at: &At<'_>, name: Name<'_>, excludes: Option<&SparedBelow<'_>>) -> Result<Portion> {
        if !self.asks(excludes) {
            return Ok(Portion::Whole);
        }
        let portion = partly::goes(at.dir, name, &self.fates(excludes), |part| {
            let node = part.below.iter().fold(at.node.clone(), |above, name| above.below(name.as_name()));
            let id = part.dir.info()?.id();
            let below = At { dir: part.dir, node: &node, id, times: None, created_names: at.created_names };
            self.counted(part.all);
            let mut names = Vec::new();
            for name in part.goes {
                if let Some(there) = part.dir.look(name.as_name())? {
                    names.push(Planned::of(part.dir, name.as_name(), &there, Going::OnlyThere));
                }
            }
            self.add(&below, names);
            Ok(())
        });
        portion.map_err(|e| Error::os(Op::ListDirectory, at.node.join(name), e))
    }

    /// M4: whether a directory on this device is on the destination's own file system, so that something in it may go.
    pub(crate) fn may_go_on(&self, device: u64) -> bool {
        self.root.get().is_none_or(|root| root.device == device)
    }

    /// A directory of the destination has so many names.
    pub(crate) fn counted(&self, names: u64) {
        self.entries.fetch_add(names, Relaxed);
    }

    /// What is `there` under a name goes, except for what is kept in it.
    ///
    /// # Errors
    /// It cannot be looked into.
    pub(crate) fn goes(&self, at: &At<'_>, name: Name<'_>, there: &Info, going: Going) -> Result<()> {
        let portion = match (there.kind, going) {
            (Kind::Dir, Going::OnlyThere) => self.some_go(at, name, None)?,
            _ => Portion::Whole,
        };
        self.add(at, Planned::of(at.dir, name, there, going).within(portion).into_iter().collect());
        Ok(())
    }

    fn add(&self, at: &At<'_>, names: Vec<Planned>) {
        if names.is_empty() {
            return;
        }
        let mut found = self.found();
        match found.last_mut().filter(|last| last.id == at.id) {
            Some(last) => {
                last.times = last.times.or(at.times);
                last.names.extend(names);
            }
            None => {
                let (node, created_names) = (at.node.clone(), at.created_names.clone());
                let (id, times) = (at.id, at.times);
                found.push(Below { node, id, times, created_names, names, is_ruled: false });
            }
        }
    }

    /// Says what goes. What cannot go is told, and stays; `None`: nothing goes, which was told where something would have.
    pub(crate) fn plan(self, tally: &Tally<'_>) -> Option<Plan> {
        // M2: nothing of the source failed, and nothing cut the run short.
        if self.is_empty() || !tally.all_there() {
            return None;
        }
        let planned = if tally.absent.load(Relaxed) > 0 {
            let shown = self.root.get().map(|root| root.node.path()).unwrap_or_default();
            Err(Error::ours(Code::Refused, Op::DeleteIn, shown, Reason::NotAllIsThere))
        } else {
            self.planned(tally)
        };
        planned.unwrap_or_else(|e| {
            tally.fail(e);
            None
        })
    }

    /// # Errors
    /// M1, M3: nothing goes, because the source is empty or more would go than may.
    fn planned(self, tally: &Tally<'_>) -> Result<Option<Plan>> {
        let Some(root) = self.root.get() else { return Ok(None) };
        let (mut below, mut going, mut entries) = (Vec::new(), 0, 0);
        let mut found = VecDeque::from(std::mem::take(&mut *self.found()));
        while let Some(mut at) = found.pop_front() {
            if tally.cancelled() {
                return Ok(None);
            }
            let reached = reach(&root.dir, &at).and_then(|dir| {
                self.ruled(&root.dir, &dir, &mut at, tally)?;
                Ok(dir)
            });
            // Rules keep something in directories that were to go, and the rest of these was found just now.
            found.extend(
                std::mem::take(&mut *self.found()).into_iter().map(|at| Below { is_ruled: true, ..at }),
            );
            let dir = match reached {
                Ok(dir) => dir,
                Err(e) => {
                    tally.fail(e);
                    continue;
                }
            };
            at.names.retain_mut(|planned| {
                let stays = [Some(root.source), self.spared];
                match counted(&dir, &at.node, planned, &at.created_names, stays) {
                    Ok(Some(count)) => {
                        planned.count = count;
                        going += count;
                        entries += count - 1;
                        true
                    }
                    Ok(None) => false,
                    Err(e) => {
                        tally.fail(e);
                        false
                    }
                }
            });
            if !at.names.is_empty() {
                below.push(at);
            }
        }
        let Extraneous { most, root, entries: listed, has_source, .. } = self;
        let Some(root) = root.into_inner() else { return Ok(None) };
        entries += listed.into_inner();
        let refuse = |why| Err(Error::ours(Code::Refused, Op::DeleteIn, root.node.path(), why));
        if going > 0 && !has_source.into_inner() {
            return refuse(Reason::SourceIsEmpty.into());
        }
        if most.is_exceeded(going, entries) {
            return refuse(Reason::TooMuchToDelete.about(going).about(entries));
        }
        Ok(Some(Plan { root, below }))
    }

    /// Takes back from what goes what files of rules leave out by now. What goes of a directory in which they keep something
    /// is found anew.
    ///
    /// # Errors
    /// The files cannot be read, or are not here.
    fn ruled(&self, root: &Dir, dir: &Dir, below: &mut Below, tally: &Tally<'_>) -> Result<()> {
        let Some(rules) = self.rules.as_ref().filter(|_| !below.is_ruled) else { return Ok(()) };
        let names = std::mem::take(&mut below.names);
        let Some(leaves_out) = rules(root, &below.node)? else { return Ok(()) };
        let (node, id, times) = (&below.node, below.id, below.times);
        let at = At { dir, node, id, times, created_names: &below.created_names };
        for planned in names {
            let (name, is_dir) = (planned.name.as_name(), planned.kind == Kind::Dir);
            if planned.going == Going::OnlyThere && leaves_out(&[name.bytes()], is_dir) {
                continue;
            }
            let planned = match (is_dir, planned.going) {
                (false, _) => Ok(Some(planned)),
                (true, Going::OnlyThere) => {
                    self.some_go(&at, name, Some(&*leaves_out)).map(|portion| planned.within(portion))
                }
                (true, Going::InTheWay) => self.replaced(&at, planned, Some(&*leaves_out)).map(Some),
            };
            match planned {
                Ok(planned) => below.names.extend(planned),
                Err(e) => tally.fail(e),
            }
        }
        Ok(())
    }
}

impl Plan {
    /// Whether something goes that is in the way of something else.
    pub(crate) fn clears(&self) -> bool {
        self.below.iter().flat_map(|at| &at.names).any(|planned| planned.going == Going::InTheWay)
    }

    /// Leaves what is in the way of something else to be planned anew. Returns how many entries that are.
    pub(crate) fn leave_what_is_in_the_way(&mut self) -> u64 {
        let mut left = 0;
        for at in &mut self.below {
            at.names.retain(|planned| {
                let stays = planned.going == Going::InTheWay;
                left += if stays { planned.count } else { 0 };
                !stays
            });
        }
        left
    }

    /// Each name that goes, and the directory that it is in.
    pub(crate) fn each(&self, tally: &Tally<'_>, mut tell: impl FnMut(&Dir, Name<'_>, PathBuf)) {
        for at in &self.below {
            match reach(&self.root.dir, at) {
                Ok(dir) => {
                    for planned in &at.names {
                        let name = planned.name.as_name();
                        tell(&dir, name, at.node.join(name));
                    }
                }
                Err(e) => tally.fail(e),
            }
        }
    }

    /// Deletes what was planned. Returns whether something was in the way, and is
    /// not any more.
    pub(crate) fn carry_out(self, policy: &CopyPolicy, aside: Option<&Aside>, tally: &Tally<'_>) -> bool {
        let Plan { root, below } = self;
        let Some(aside) = aside else {
            let go = |dir: &Dir, at: &Below, planned: &Planned| {
                delete(dir, &at.node, planned, root.source, policy.jobs, tally)
            };
            let until_stopped = below.iter().take_while(|_| !tally.cancelled());
            let cleared = each_goes(&root.dir, until_stopped, policy, &go, tally);
            root.sync(policy, tally);
            return cleared && !tally.cancelled();
        };
        let mut cleared = false;
        let go = |dir: &Dir, at: &Below, planned: &Planned| match &planned.promised {
            Some(promised) => keep(dir, &at.node, planned, (aside, promised), tally),
            // It was gone.
            None => Ok(true),
        };
        for mut batch in batches(below) {
            if tally.cancelled() {
                break;
            }
            // M7: all of these are written down, then brought onto stable storage by one sync, then moved.
            // Who stops the run waits for the moves: what is written down is done.
            let promised = promise(&root.dir, &mut batch, aside, tally);
            if promised.is_ok() {
                cleared |= each_goes(&root.dir, batch.iter(), policy, &go, tally);
            }
            let names = batch.iter().flat_map(|at| &at.names);
            aside.forgets(names.filter_map(|planned| planned.promised.as_deref()));
            if let Err(e) = promised {
                tally.fail(e);
                break;
            }
        }
        root.sync(policy, tally);
        cleared
    }
}

impl MirrorRoot {
    /// Exit 0 says that they are gone.
    fn sync(&self, policy: &CopyPolicy, tally: &Tally<'_>) {
        if !tally.cancelled()
            && policy.durability == Durability::Medium
            && tally.deleted.load(Relaxed) > 0
            && let Err(e) = Sys::new().sync_all(&self.dir)
        {
            tally.fail(Error::os(Op::SyncTheFileSystemOf, self.node.path(), e));
        }
    }
}

/// What goes of a directory, name by name: whether it is gone.
type Goes<'a> = dyn Fn(&Dir, &Below, &Planned) -> Result<bool> + 'a;

/// Each of these names goes. Returns whether something was in the way, and is not any more.
fn each_goes<'b>(
    root: &Dir,
    below: impl Iterator<Item = &'b Below>,
    policy: &CopyPolicy,
    go: &Goes<'_>,
    tally: &Tally<'_>,
) -> bool {
    let mut cleared = false;
    for at in below {
        let dir = match reach(root, at) {
            Ok(dir) => dir,
            Err(e) => {
                tally.fail(e);
                continue;
            }
        };
        let opened = open_up(&dir);
        // Of one in which only something in the way goes no others are known than those that it has.
        let has = || dir.info().ok().map(|info| (info.atime, info.mtime));
        let times = at.times.or_else(|| has().filter(|_| policy.preserve.times));
        for planned in &at.names {
            match go(&dir, at, planned) {
                Ok(gone) => cleared |= gone && planned.going == Going::InTheWay,
                Err(e) => tally.fail(e),
            }
        }
        close_again(&dir, (opened, times), at, tally);
    }
    cleared
}

/// The same names in the same order, so many at once.
fn batches(below: Vec<Below>) -> impl Iterator<Item = Vec<Below>> {
    let mut rest = VecDeque::from(below);
    std::iter::from_fn(move || {
        let (mut batch, mut room) = (Vec::new(), KEPT_AT_ONCE);
        while room > 0
            && let Some(mut at) = rest.pop_front()
        {
            let later = at.names.split_off(at.names.len().min(room));
            room -= at.names.len();
            if !later.is_empty() {
                let (node, created_names) = (at.node.clone(), at.created_names.clone());
                rest.push_front(Below { node, created_names, names: later, ..at });
            }
            batch.push(at);
        }
        Some(batch).filter(|batch| !batch.is_empty())
    })
}

/// Writes down where each of these names is to be kept. What cannot be is told, and stays.
///
/// # Errors
/// It is not sure that it is written down.
fn promise(root: &Dir, below: &mut Vec<Below>, aside: &Aside, tally: &Tally<'_>) -> Result<()> {
    below.retain_mut(|at| {
        let dir = reach(root, at).map_err(|e| tally.fail(e));
        let Ok(dir) = dir else { return false };
        let node = at.node.clone();
        // Before it is opened up.
        if let Err(e) = aside.deletes_in(&dir, &node) {
            tally.fail(e);
            return false;
        }
        at.names.retain_mut(|planned| {
            let promised = promised(&dir, &node, planned, aside).map_err(|e| tally.fail(e));
            promised.map(|promised| planned.promised = promised).is_ok()
        });
        true
    });
    aside.settle()
}

/// Where that is; `None`: it is gone.
///
/// # Errors
/// It is another thing, or has no place.
fn promised(dir: &Dir, node: &Node, planned: &Planned, aside: &Aside) -> Result<Option<PathBuf>> {
    if !still(dir, node, planned)? {
        return Ok(None);
    }
    let name = planned.name.as_name();
    let there = dir.stat(name).map_err(|e| Error::os(Op::Stat, node.join(name), e))?;
    aside.promises(node, name, &there).map(Some)
}

/// M4: the directory that was found, opened again from the destination's own, one name at a time and through no link.
///
/// # Errors
/// It is another one by now, or another file system is mounted on the way.
fn reach(root: &Dir, at: &Below) -> Result<Dir> {
    let fail = |op: Op| move |e| Error::os(op, at.node.path(), e);
    let names = at.node.names();
    let reached = remove::reach(root, names.into_iter().map(NameBuf::as_name));
    let dir = reached
        .map_err(fail(Op::OpenDirectory))?
        .map_err(|why| Error::ours(Code::Refused, Op::DeleteIn, at.node.path(), why))?;
    if Place::of(&dir).map_err(fail(Op::Stat))?.id() != at.id {
        return Err(Error::ours(Code::Refused, Op::DeleteIn, at.node.path(), Reason::AnotherDirectoryThere));
    }
    Ok(dir)
}

/// What is there under a name that was planned to go, if it is that very thing still.
///
/// # Errors
/// It is another thing.
fn still(dir: &Dir, node: &Node, planned: &Planned) -> Result<bool> {
    let shown = || node.join(planned.name.as_name());
    let there = dir.look(planned.name.as_name()).map_err(|e| Error::os(Op::Stat, shown(), e))?;
    let born = || dir.btime(planned.name.as_name()).unwrap_or(0);
    match there {
        None => Ok(false),
        Some(info) if planned.is(&info, born()) => Ok(true),
        Some(_) => Err(Error::ours(Code::Refused, Op::Delete, shown(), Reason::BecameAnother)),
    }
}

/// How many entries go with a name; `None`: it stays, as it is gone or is what this run has landed under a name that is
/// spelled otherwise.
///
/// # Errors
/// Not all of it can go, so that all of it stays.
fn counted(
    dir: &Dir,
    node: &Node,
    planned: &Planned,
    created_names: &CreatedNames,
    stays: [Option<(u64, u64)>; 2],
) -> Result<Option<u64>> {
    if !still(dir, node, planned)? || stays.last() == Some(&Some(planned.id)) {
        return Ok(None);
    }
    let name = planned.name.as_name();
    let shown = || node.join(name);
    let there = dir.stat(name).map_err(|e| Error::os(Op::Stat, shown(), e))?;
    let is_ours = || created_names.lock().has_under(&there, name, || dir.btime(name), Sys::new().lists(dir));
    if planned.going == Going::OnlyThere && is_ours() {
        let listed = |e| Error::os(Op::ListDirectory, node.path(), e);
        if there.nlink == 1 || !is_further_name(dir, &there, name, created_names).map_err(listed)? {
            return Ok(None);
        }
    }
    if planned.kind != Kind::Dir {
        return Ok(Some(1));
    }
    if let Some(Bar { path, why }) = &planned.bar {
        return Err(Error::ours(Code::Refused, Op::Remove, node.path().join(path), *why));
    }
    let (first, progress, cancel) = (FirstFailure::default(), Progress::default(), Cancel::new());
    let watch = Watch { front: &first, progress: &progress, cancel: &cancel, items: false };
    let summary = remove::named(dir, name, shown(), NamedRemoval { dry_run: true, jobs: 1, stays }, watch)?;
    match first.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(e) => Err(e),
        None => Ok(Some(summary.files + summary.dirs + summary.others)),
    }
}

/// Whether `name` leads to what this run has put there, and is a name of its own beside the one that that got, both spelled as
/// they are listed.
fn is_further_name(
    dir: &Dir,
    there: &Info,
    name: Name<'_>,
    created_names: &CreatedNames,
) -> io::Result<bool> {
    let listed = Sys::new().find(dir, usize::MAX, &|_| true)?;
    let is_spelled = listed.iter().any(|listed| listed.as_name() == name);
    Ok(is_spelled && created_names.lock().is_listed(there, || dir.btime(name), &listed))
}

/// Deletes one name; whether it is gone.
fn delete(
    dir: &Dir,
    node: &Node,
    planned: &Planned,
    source: (u64, u64),
    jobs: usize,
    tally: &Tally<'_>,
) -> Result<bool> {
    if !still(dir, node, planned)? {
        return Ok(true);
    }
    let name = planned.name.as_name();
    let shown = node.join(name);
    if planned.kind != Kind::Dir {
        dir.remove_file(name).map_err(|e| Error::os(Op::Delete, &shown, e))?;
        tally.deleted.fetch_add(1, Relaxed);
        tally.item(Action::Removed, 0, || (PathBuf::new(), shown));
        return Ok(true);
    }
    let progress = Progress::default();
    let watch = Watch { progress: &progress, ..tally.watch };
    let stays = [Some(source), None];
    let summary = remove::named(dir, name, shown, NamedRemoval { dry_run: false, jobs, stays }, watch)?;
    tally.deleted.fetch_add(summary.files + summary.dirs + summary.others, Relaxed);
    tally.failed_below(&summary);
    Ok(summary.failed == 0 && !summary.cancelled)
}

/// Moves one name to what is kept; whether it is gone.
fn keep(
    dir: &Dir,
    node: &Node,
    planned: &Planned,
    (aside, promised): (&Aside, &Path),
    tally: &Tally<'_>,
) -> Result<bool> {
    if !still(dir, node, planned)? {
        return Ok(true);
    }
    let name = planned.name.as_name();
    let there = dir.stat(name).map_err(|e| Error::os(Op::Stat, node.join(name), e))?;
    aside.moves((dir, node), name, &there, promised)?;
    tally.deleted.fetch_add(planned.count, Relaxed);
    tally.item(Action::Removed, 0, || (PathBuf::new(), node.join(name)));
    Ok(true)
}

/// Keeps the first failure and tells nothing.
#[derive(Default)]
struct FirstFailure(Mutex<Option<Error>>);

impl Front for FirstFailure {
    fn event(&self, event: Event) {
        if let Event::Failed(e) = event {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
        }
    }
    fn ask(&self, _: Question) -> bool {
        true
    }
}

/// What taking names out has changed of the directory is as it was.
fn close_again(dir: &Dir, (mode, times): (Option<u32>, Option<(Time, Time)>), at: &Below, tally: &Tally<'_>) {
    let lost = |op| move |e: io::Error| Error { code: Code::of_loss(&e), ..Error::os(op, at.node.path(), e) };
    if let Some(Err(e)) = mode.map(|mode| fastcopy::meta::set_mode(dir, mode)) {
        tally.lost(lost(Op::SetModeOf)(e));
    }
    if let Some(Err(e)) = times.map(|(accessed, modified)| Sys::new().set_times(dir, accessed, modified)) {
        tally.lost(lost(Op::SetTimesOf)(e));
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;

    struct Nobody;

    impl Front for Nobody {
        fn event(&self, _: Event) {}
        fn ask(&self, _: Question) -> bool {
            false
        }
    }

    /// M4: what has the name by the time it goes is what had it when it was planned, or it stays.
    #[test]
    fn what_became_another_thing_stays() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        let (dir, node) = (Dir::open(tmp.path()).unwrap(), Node::root(tmp.path()));
        let (progress, cancel) = (Progress::default(), Cancel::new());
        let watch = Watch { front: &Nobody, progress: &progress, cancel: &cancel, items: false };
        let tally = Tally::new(watch);
        let go = |name: &str, exchange: &dyn Fn()| {
            let name = NameBuf::new(name.as_bytes()).unwrap();
            let there = dir.stat(name.as_name()).unwrap();
            let planned = Planned::of(&dir, name.as_name(), &there, Going::OnlyThere);
            exchange();
            delete(&dir, &node, &planned, (0, 0), 1, &tally)
        };
        for name in ["same", "file", "dir/in", "other", "other-dir/in", "gone"] {
            std::fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            std::fs::write(at(name), "x").unwrap();
        }
        assert!(go("same", &|| ()).unwrap() && !at("same").exists());
        assert!(go("gone", &|| std::fs::remove_file(at("gone")).unwrap()).unwrap());
        let replaced = go("file", &|| std::fs::rename(at("other"), at("file")).unwrap());
        assert_eq!(replaced.unwrap_err().code, Code::Refused);
        let exchanged = go("dir", &|| {
            std::fs::rename(at("dir"), at("moved")).unwrap();
            std::fs::rename(at("other-dir"), at("dir")).unwrap();
        });
        assert_eq!(exchanged.unwrap_err().code, Code::Refused);
        assert!(at("file").exists() && at("dir/in").exists() && at("moved/in").exists());
    }
}
