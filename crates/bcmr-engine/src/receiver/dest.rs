//! Directories that things land in: made under a stage's name, filled, published with one rename.
//!
//! Must not know what is put into them or where it came from. Why so: files in a directory that cannot be seen need no
//! stage of their own, so an atomic landing costs one rename per directory instead of one per file
//! (docs/decisions/0001-atomic-landing.md).

use crate::disk::{Dirs, Disk, Job, Keep, Placement};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::node::Node;
use crate::policy::{CopyPolicy, Leaving};
use crate::receiver::apart::{ApartDir, ApartDirs};
use crate::receiver::created_names::{CreatedNames, LockedNames, TAKEN};
use crate::receiver::held::HeldNames;
use crate::receiver::subtree::{NewSubdir, Subtree};
use crate::receiver::unmet::Unmet;
use crate::stage::{self, Home, RESERVED, Role};
use fastcopy::dir::{Lock, Name, NameBuf};
use fastcopy::errno;
use fastcopy::heritage::Heritage;
use fastcopy::meta::{Info, Kind, Time};
use fastcopy::turn::Turn;
use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The directory a whole operand lands in; stays open as long as anything may be looked up below it.
pub(crate) struct Root<D: Disk> {
    pub(crate) dir: Arc<D::Dir>,
    pub(crate) node: Arc<Node>,
    /// Names of a list land in it: they may lead through one directory again and again, so each has its name at once.
    listed: Option<Mutex<ListedDirs>>,
    /// It has no name yet, and other processes fill it as well. Each keeps a record of what it has filled whole, so what is half
    /// full under its own name is not believed by the next run.
    is_recorded: bool,
    /// What directories are called that do not have their names yet.
    unnamed: Mutex<Unnamed>,
    /// Where files are made that have none.
    pub(crate) apart: ApartDirs<Heritage, D::Dir>,
}

/// What is remembered of the directories that names of a list have led through.
#[derive(Default)]
struct ListedDirs {
    /// Those that this run has made.
    made: HashSet<(u64, u64)>,
    /// Those that are open, and how often.
    open: HashMap<(u64, u64), usize>,
    /// Sessions in those that were listed: none is listed twice.
    unfinished_in: HashMap<(u64, u64), Arc<HashSet<NameBuf>>>,
    /// What is in the last of them, and in which order they came.
    known: HashMap<(u64, u64), KnownNames>,
    order: VecDeque<(u64, u64)>,
}

/// What is known of the names in one directory.
struct KnownNames {
    /// What this run has put into it.
    created: Arc<CreatedNames>,
    /// What was in it before.
    held: Arc<HeldNames>,
}

/// A list that is in no order comes back to so many directories and knows what is in them; memory has an end.
const KNOWN_DIRS_MAX: usize = 64;

impl ListedDirs {
    /// One handle more of a directory; what is known of it.
    fn opened(&mut self, id: (u64, u64), lasting: bool) -> Arc<CreatedNames> {
        *self.open.entry(id).or_default() += 1;
        self.known(id, lasting).created.clone()
    }

    fn known(&mut self, id: (u64, u64), lasting: bool) -> &mut KnownNames {
        if !self.known.contains_key(&id) {
            if self.order.len() >= KNOWN_DIRS_MAX
                && let Some(first) = self.order.pop_front()
            {
                self.known.remove(&first);
            }
            self.order.push_back(id);
        }
        let new = || KnownNames { created: CreatedNames::on(lasting), held: Arc::default() };
        self.known.entry(id).or_insert_with(new)
    }

    /// What the listing of a directory has said, where there was one.
    fn swept(&mut self, id: (u64, u64), lasting: bool) -> Option<SweptDir> {
        let unfinished = self.unfinished_in.get(&id)?.clone();
        Some(SweptDir { unfinished, held: self.known(id, lasting).held.clone() })
    }

    /// A directory was listed.
    fn sweeps(&mut self, id: (u64, u64), lasting: bool, swept: &SweptDir) {
        self.unfinished_in.insert(id, swept.unfinished.clone());
        self.known(id, lasting).held = swept.held.clone();
    }
}

/// What the listing of a directory says.
struct SweptDir {
    /// Sessions that are in it.
    unfinished: Arc<HashSet<NameBuf>>,
    held: Arc<HeldNames>,
}

/// By the directory they are in and the name they get: the stages of directories.
type Unnamed = HashMap<((u64, u64), NameBuf), NameBuf>;

/// Entries of a directory that a person named which are looked at for what a killed run left; one that holds more may
/// keep some of it.
pub(crate) const BASE_ENTRIES_MAX: usize = 16_384;

impl<D: Disk> Root<D> {
    fn new(dir: Arc<D::Dir>, node: Arc<Node>, listed: Option<Mutex<ListedDirs>>) -> Arc<Root<D>> {
        let (unnamed, apart) = (Mutex::default(), ApartDirs::default());
        Arc::new(Root { dir, node, listed, is_recorded: false, unnamed, apart })
    }

    fn unnamed(&self) -> MutexGuard<'_, Unnamed> {
        self.unnamed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the directory is called now that becomes `name` in the directory `above`; `None` once it is called so.
    pub(crate) fn stage_of(&self, above: (u64, u64), name: Name<'_>) -> Option<NameBuf> {
        self.unnamed().get(&(above, name.to_owned())).cloned()
    }

    fn listed(&self) -> Option<MutexGuard<'_, ListedDirs>> {
        self.listed.as_ref().map(|listed| listed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Puts something into a directory that has just been made.
type Mark<'m, D> = &'m dyn Fn(&<D as Dirs>::Dir) -> io::Result<()>;

/// Who made a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MadeBy {
    /// Another program, or an earlier run.
    Others,
    /// An earlier run of the copy that goes on, below its mark: sealed as if this run had made it.
    InterruptedCopy,
    /// This run, for an earlier name of a list: sealed once more.
    EarlierName,
    /// This run, maybe with other processes putting things in at the same time.
    ThisRun,
    /// This run, and no other process puts anything in: no name in it can be taken.
    ThisRunAlone,
}

/// How far a move has come with a directory that is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveState {
    /// It is being filled.
    Filling,
    /// What can land of the source is there, on stable storage and with its metadata, and some of it may have been taken
    /// away at the source by now. What was touched there since that time may be something else.
    Landed { since: Time },
}

/// A directory is not moved into the place of one that holds something.
pub(crate) fn not_empty(shown: &Path) -> Error {
    let e = std::io::Error::from_raw_os_error(errno::ENOTEMPTY);
    Error { note: Some(Reason::NotEmpty.into()), ..Error::os(Op::MoveTo, shown, e) }
}

/// What becomes of a new directory whose name another process has taken meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clash {
    /// What is in it goes into the one that is there, and replaces files there.
    Merges,
    /// The same, but what is there stays, and is in the way.
    MergesNew,
    /// A move does not merge unasked: it is in the way.
    Refused,
}

impl Clash {
    pub(crate) fn of(policy: &CopyPolicy) -> Clash {
        if policy.leaving == Leaving::Goes {
            Clash::Refused
        } else if policy.collide.is_only_new() {
            Clash::MergesNew
        } else {
            Clash::Merges
        }
    }
}

/// What a directory is called.
enum Naming {
    /// Its own name, or it appears with the directory that it is in.
    Own,
    /// A stage's name, until it is published.
    Staged { stage: NameBuf, state: Mutex<StageState> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StageState {
    Unnamed,
    /// It got its name.
    Named,
    /// It could not get its name because another process took it meanwhile; merged in the end.
    Clashed,
}

impl Naming {
    fn staged(stage: NameBuf) -> Naming {
        Naming::Staged { stage, state: Mutex::new(StageState::Unnamed) }
    }

    fn stage(&self) -> Option<&NameBuf> {
        match self {
            Naming::Own => None,
            Naming::Staged { stage, .. } => Some(stage),
        }
    }

    fn state(&self) -> StageState {
        match self {
            Naming::Own => StageState::Named,
            Naming::Staged { state, .. } => *state.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn becomes(&self, now: StageState) {
        if let Naming::Staged { state, .. } = self {
            *state.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
    }
}

/// A destination directory, open.
pub(crate) struct DestDir<D: Disk> {
    pub(crate) dir: Arc<D::Dir>,
    pub(crate) node: Arc<Node>,
    pub(crate) root: Arc<Root<D>>,
    pub(crate) info: Info,
    pub(crate) made_by: MadeBy,
    /// It was made for this run before the run began, and had nothing of its own.
    pub(crate) made_first: bool,
    /// Below the mark of a move: how far that has come (R8).
    pub(crate) stand: Option<MoveState>,
    /// Whether we hold its lock: the stages that it knows as its own are ours or stale. Locked when it is first asked.
    sole: OnceLock<bool>,
    /// What this run has put into it.
    pub(crate) created_names: Arc<CreatedNames>,
    /// When it came to be.
    btime: u64,
    /// What leftovers in it are known by.
    pub(crate) home: Home,
    /// Its file system keeps from mount to mount what a home is known by.
    lasting: bool,
    /// Sessions that were in it when it was opened.
    unfinished: Arc<HashSet<NameBuf>>,
    /// What was in it before this run put anything there and the source has not named, where that may be deleted.
    pub(crate) unmet: Option<Arc<Unmet>>,
    /// Names that were in it then, where it was listed.
    pub(crate) held: Arc<HeldNames>,
    /// The same directory in earlier copies.
    bases: Vec<Arc<D::Dir>>,
    naming: Naming,
    /// What it gets its name with, when it was made without one; and its level below the topmost directory of that.
    subtree: Option<(Arc<Subtree>, u32)>,
    /// What it hands down to files, where that is asked for and can be told.
    heritage: OnceLock<Option<Arc<Heritage>>>,
    /// Whether what has a name in it keeps that for ever, where that was asked.
    names_stay: OnceLock<bool>,
    /// The turn to give names in it.
    turn: Turn,
    pub(crate) keep: Keep,
    /// The receipt says what it was like before this run.
    pub(crate) is_in_receipt: AtomicBool,
    /// Its owner, who is at work here, may not write to it yet.
    is_closed: Mutex<bool>,
}

fn fail<'a>(op: Op, node: &'a Node, name: Option<Name<'a>>) -> impl FnOnce(io::Error) -> Error + 'a {
    move |e| Error::os(op, name.map_or_else(|| node.path(), |n| node.join(n)), e)
}

fn keep_for(policy: &CopyPolicy, default_acl: bool) -> Keep {
    let CopyPolicy { preserve, strictness, umask, .. } = *policy;
    Keep { preserve, alter: policy.alter, strictness, umask, default_acl, was_there: false }
}

impl<D: Disk> DestDir<D> {
    /// A directory that was there before; `above`: the one it was found in, unless a person named it. What a killed run
    /// left in it is taken away.
    pub(crate) fn existing(
        disk: &D,
        dir: D::Dir,
        node: Arc<Node>,
        above: Option<&DestDir<D>>,
        policy: &CopyPolicy,
    ) -> Result<DestDir<D>> {
        let most = if above.is_some() { usize::MAX } else { BASE_ENTRIES_MAX };
        let dest = DestDir::opened(disk, dir, node, above, policy)?;
        // What is in a huge directory is asked for once, however often a list comes back to it.
        let known = dest.root.listed().and_then(|mut listed| listed.swept(dest.info.id(), dest.lasting));
        let SweptDir { unfinished, held } = match known {
            Some(swept) => swept,
            None => {
                let held = HeldNames::listing();
                let unfinished = Arc::new(dest.sweep(disk, most, &held)?);
                let swept = SweptDir { unfinished, held: Arc::new(held) };
                if let Some(mut listed) = dest.root.listed() {
                    listed.sweeps(dest.info.id(), dest.lasting, &swept);
                }
                swept
            }
        };
        // M4: nothing is deleted on another file system than the destination's own, nor below one.
        let is_own = above.is_none_or(|above| above.unmet.is_some() && above.info.dev == dest.info.dev);
        let listed = policy.mirror.deletes() && is_own;
        let unmet = listed.then(|| Arc::new(Unmet::listed(disk, &dest.dir)));
        Ok(DestDir { unfinished, held, unmet, ..dest })
    }

    fn opened(
        disk: &D,
        dir: D::Dir,
        node: Arc<Node>,
        above: Option<&DestDir<D>>,
        policy: &CopyPolicy,
    ) -> Result<DestDir<D>> {
        let (info, btime) = disk.identity(&dir).map_err(fail(Op::Stat, &node, None))?;
        let lasting = match above {
            Some(above) if above.info.dev == info.dev => above.lasting,
            _ => disk.keeps_identities(&dir).map_err(fail(Op::StatFileSystemOf, &node, None))?,
        };
        let sole = OnceLock::from(disk.lock(&dir) == Lock::Held);
        let keep = keep_for(policy, disk.has_default_acl(&dir));
        let dir = Arc::new(dir);
        let root = above.map_or_else(|| Root::new(dir.clone(), node.clone(), None), |a| a.root.clone());
        let bases = match (above, &*node) {
            (Some(above), Node::Below(_, name)) => above.bases_of(disk, name.as_name()),
            _ => Vec::new(),
        };
        let (again, created_names) = match root.listed() {
            Some(mut listed) => (listed.made.contains(&info.id()), listed.opened(info.id(), lasting)),
            None => (false, CreatedNames::on(lasting)),
        };
        // What an earlier run has given the source's mode is written into all the same by its owner, once something changes.
        let is_mirrored = policy.mirror.is_on() && policy.me != 0 && info.uid == policy.me;
        let is_closed = (again || is_mirrored) && info.mode & 0o700 != 0o700;
        let dest = DestDir {
            dir,
            node,
            root,
            info,
            made_by: match above {
                _ if again => MadeBy::EarlierName,
                Some(above) if above.made_by == MadeBy::InterruptedCopy => MadeBy::InterruptedCopy,
                _ => MadeBy::Others,
            },
            made_first: false,
            stand: above.and_then(|above| above.stand),
            sole,
            created_names,
            home: Home::of(&info, btime, lasting),
            btime,
            lasting,
            unfinished: Arc::default(),
            unmet: None,
            held: Arc::default(),
            bases,
            naming: Naming::Own,
            subtree: None,
            heritage: OnceLock::new(),
            names_stay: OnceLock::new(),
            turn: Turn::default(),
            keep,
            is_in_receipt: AtomicBool::new(false),
            is_closed: Mutex::new(is_closed),
        };
        // What cannot be listed or entered is not even compared.
        if again || info.mode & 0o500 != 0o500 {
            dest.open_up(disk);
        }
        Ok(dest)
    }

    /// Something is about to change in it: its owner may write to it from now on, until it is sealed. Whether that was not so before.
    /// Where it cannot be opened up, what is to land there says why.
    pub(crate) fn open_up(&self, disk: &D) -> bool {
        let mut is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        let was_closed = std::mem::take(&mut *is_closed);
        was_closed && disk.info(&self.dir).and_then(|now| disk.set_mode(&self.dir, now.mode | 0o700)).is_ok()
    }

    /// R8: takes away what a killed run left under names that only a holder of this directory's lock gives, and that is
    /// us by now. Returns the sessions there are, and fills `held`. Not being able to look is no reason to stop: leftovers
    /// are harmless.
    fn sweep(&self, disk: &D, most: usize, held: &HeldNames) -> Result<HashSet<NameBuf>> {
        if !self.is_sole(disk) {
            held.forget();
            return Ok(HashSet::new());
        }
        let listed = Cell::new(0);
        let ours = |name: Name<'_>| {
            listed.set(listed.get() + 1);
            held.add(name);
            matches!(self.home.role(name), Some(Role::Stage | Role::Session))
        };
        let found = disk.find(&self.dir, most, &ours);
        if found.is_err() || listed.get() >= most {
            held.forget();
        }
        let is_harmless =
            |e: &std::io::Error| Code::of(e) == Code::Denied || e.raw_os_error() == Some(errno::EBADF);
        let swept = found.and_then(|found| {
            let (stale, sessions): (Vec<NameBuf>, Vec<NameBuf>) =
                found.into_iter().partition(|name| self.home.role(name.as_name()) == Some(Role::Stage));
            if !stale.is_empty() || !sessions.is_empty() {
                self.open_up(disk);
            }
            for name in &stale {
                // Another user's, in a sticky directory: the sessions beside it are gone on with all the same.
                disk.remove_tree(&self.dir, name.as_name())
                    .or_else(|e| if is_harmless(&e) { Ok(()) } else { Err(e) })?;
            }
            Ok(sessions.into_iter().collect())
        });
        match swept {
            Err(e) if is_harmless(&e) => Ok(HashSet::new()),
            other => other.map_err(fail(Op::CleanUp, &self.node, None)),
        }
    }

    /// Whether a killed run left a session for `name`.
    pub(crate) fn is_unfinished(&self, name: Name<'_>) -> bool {
        !self.unfinished.is_empty()
            && self.home.session(name).is_some_and(|session| self.unfinished.contains(&session))
    }

    /// Refuses to give something a name here that a later run would take for what a killed one left.
    pub(crate) fn guard_name(&self, name: Name<'_>) -> Result<()> {
        match self.home.role(name) {
            None => Ok(()),
            Some(_) => Err(Error::ours(Code::Refused, Op::CopyTo, self.node.join(name), RESERVED)),
        }
    }

    /// The same, with earlier copies of it.
    pub(crate) fn with_bases(self, bases: Vec<Arc<D::Dir>>) -> DestDir<D> {
        DestDir { bases, ..self }
    }

    /// The same directory in earlier copies.
    pub(crate) fn bases(&self) -> impl Iterator<Item = &D::Dir> {
        self.bases.iter().map(|dir| &**dir)
    }

    /// The directory `name` of each of them that has one. One that cannot be opened now serves for nothing, as one that is not
    /// there.
    fn bases_of(&self, disk: &D, name: Name<'_>) -> Vec<Arc<D::Dir>> {
        self.bases.iter().filter_map(|dir| disk.open_dir(dir, name).ok()).map(Arc::new).collect()
    }

    /// The same, for names of a list.
    pub(crate) fn for_a_list(self) -> DestDir<D> {
        DestDir { root: Root::new(self.dir.clone(), self.node.clone(), Some(Mutex::default())), ..self }
    }

    /// The top of a tree without a name that several processes fill at the same time: nothing in it is listed, locked or
    /// taken away, and no directory in it is changed. `held` is what it holds at most, as far as is known.
    pub(crate) fn shared(
        disk: &D,
        dir: D::Dir,
        node: Arc<Node>,
        held: HeldNames,
        policy: &CopyPolicy,
    ) -> Result<DestDir<D>> {
        let dest = DestDir::opened(disk, dir, node, None, policy)?;
        let root = Root {
            dir: dest.dir.clone(),
            node: dest.node.clone(),
            listed: Some(Mutex::default()),
            is_recorded: true,
            unnamed: Mutex::default(),
            apart: ApartDirs::default(),
        };
        Ok(DestDir { held: Arc::new(held), root: Arc::new(root), ..dest })
    }

    /// Goes into the directory `name` of such a tree, making it when it is not there: open to its owner alone until the
    /// tree is complete.
    pub(crate) fn enter_shared(&self, disk: &D, name: Name<'_>) -> Result<DestDir<D>> {
        let node = self.node.below(name);
        let mut opened = disk.open_dir(&self.dir, name);
        if opened.as_ref().is_err_and(|e| e.raw_os_error() == Some(errno::ENOENT)) {
            match disk.make_dir(&self.dir, name, 0o700) {
                Err(e) if e.raw_os_error() != Some(errno::EEXIST) => {
                    return Err(fail(Op::MakeDirectory, &node, None)(e));
                }
                _ => opened = disk.open_dir(&self.dir, name),
            }
        }
        let dir = opened.map_err(fail(Op::OpenDirectory, &node, None))?;
        let (info, btime) = disk.identity(&dir).map_err(fail(Op::Stat, &node, None))?;
        let created_names = match self.root.listed() {
            Some(mut listed) => listed.known(info.id(), self.lasting).created.clone(),
            None => self.created_names.again(),
        };
        let (unfinished, unmet, naming, subtree) = (Arc::default(), None, Naming::Own, None);
        // Names in it are random ones until they are its own: other processes are here as well.
        let (sole, root) = (OnceLock::from(false), self.root.clone());
        let (made_by, stand, lasting, keep) = (MadeBy::Others, None, self.lasting, self.keep);
        let home = Home::of(&info, btime, lasting);
        let held = Arc::new(self.held.again());
        let dir = Arc::new(dir);
        Ok(DestDir {
            dir,
            node,
            root,
            info,
            made_by,
            made_first: false,
            stand,
            sole,
            created_names,
            btime,
            home,
            lasting,
            unfinished,
            unmet,
            held,
            bases: Vec::new(),
            naming,
            subtree,
            heritage: OnceLock::new(),
            names_stay: OnceLock::new(),
            turn: Turn::default(),
            keep,
            is_in_receipt: AtomicBool::new(false),
            is_closed: Mutex::new(false),
        })
    }

    /// Goes into the directory `name` of this one, making it when it is not there.
    pub(crate) fn enter(&self, disk: &D, name: Name<'_>, policy: &CopyPolicy) -> Result<DestDir<D>> {
        self.enter_with(disk, name, policy, None)
    }

    /// The same; when it is made, `mark` puts something into it before it has its name.
    pub(crate) fn enter_marked(
        &self,
        disk: &D,
        name: Name<'_>,
        policy: &CopyPolicy,
        mark: Mark<'_, D>,
    ) -> Result<DestDir<D>> {
        self.enter_with(disk, name, policy, Some(mark))
    }

    fn enter_with(
        &self,
        disk: &D,
        name: Name<'_>,
        policy: &CopyPolicy,
        mark: Option<Mark<'_, D>>,
    ) -> Result<DestDir<D>> {
        self.guard_name(name)?;
        let there = if self.is_fresh() {
            None // only this run puts anything in here, and no directory has one name twice
        } else {
            disk.look(&self.dir, name).map_err(fail(Op::Stat, &self.node, Some(name)))?
        };
        match there {
            Some(info) if info.kind == Kind::Dir => self.merge(disk, name, policy),
            Some(info) if !policy.mirror.is_on() || self.is_from_here(disk, name, &info) => {
                let note = Reason::DirectoryOverFile;
                Err(Error::ours(Code::InTheWay, Op::MakeDirectory, self.node.join(name), note))
            }
            Some(_) => {
                self.open_up(disk);
                let removed = disk.remove_file(&self.dir, name);
                removed.map_err(fail(Op::Replace, &self.node, Some(name)))?;
                self.make(disk, name, policy, mark)
            }
            // What is filled under a stage's name has its mark before it has its own in any case.
            None => match mark {
                Some(mark) if !self.stages_dirs(disk, policy) && !self.keeps_names(disk) => {
                    self.make_marked(disk, name, policy, mark)
                }
                mark => self.make(disk, name, policy, mark),
            },
        }
    }

    /// Whether this run has put what is there under `name`, whatever it called it.
    fn is_from_here(&self, disk: &D, name: Name<'_>, there: &Info) -> bool {
        let (btime, list) = (|| disk.btime(&self.dir, name), disk.lists(&self.dir));
        self.created_names.lock().has_under(there, name, btime, list)
    }

    fn merge(&self, disk: &D, name: Name<'_>, policy: &CopyPolicy) -> Result<DestDir<D>> {
        let node = self.node.below(name);
        let dir = disk.open_dir(&self.dir, name).map_err(fail(Op::OpenDirectory, &node, None))?;
        let merged = DestDir::existing(disk, dir, node, Some(self), policy)?;
        let mut created = self.created_names.lock();
        if created.is_taken(&merged.info, name, || Ok(merged.btime), disk.lists(&self.dir)) {
            return Err(Error::ours(Code::Refused, Op::MergeInto, merged.node.path(), TAKEN));
        }
        created.add(&merged.info, name, merged.btime);
        drop(created);
        Ok(merged)
    }

    /// Whether directories are made in it under stages' names.
    ///
    /// Without the lock another process may be making the same directory: then it is made under its own name, and files in
    /// it are staged one by one. A directory that holds unfinished files must be where the next run looks for them, so it
    /// has no stage either.
    fn stages_dirs(&self, disk: &D, policy: &CopyPolicy) -> bool {
        let wanted = !policy.resume.has_sessions() && self.root.listed.is_none();
        wanted && self.is_sole(disk) && !self.keeps_names(disk)
    }

    /// Whether what has a name in it keeps that for ever (`chattr +a`): then nothing is staged there by a name.
    pub(crate) fn keeps_names(&self, disk: &D) -> bool {
        *self.names_stay.get_or_init(|| disk.keeps_names(&self.dir))
    }

    /// Whether we hold its lock, which is taken before anything gets a name in it that only a holder gives.
    pub(crate) fn is_sole(&self, disk: &D) -> bool {
        *self.sole.get_or_init(|| disk.lock(&self.dir) == Lock::Held)
    }

    fn make(
        &self,
        disk: &D,
        name: Name<'_>,
        policy: &CopyPolicy,
        mark: Option<Mark<'_, D>>,
    ) -> Result<DestDir<D>> {
        let node = self.node.below(name);
        let stage = if self.stages_dirs(disk, policy) { self.home.stage() } else { None };
        if let Some(stage) = &stage {
            self.announce(name, stage)?;
        }
        // Held until it stands there: before that, another worker could not tell it from what another process made.
        let created = self.created_names.lock();
        let borne =
            self.bear(disk, stage.as_ref().map_or(name, NameBuf::as_name), name, 0o700, Some(created));
        if stage.is_some() && borne.is_err() {
            self.has_its_name(name);
        }
        let Some((dir, info, btime)) = borne? else {
            return self.merge(disk, name, policy);
        };
        if let Some(mark) = mark
            && let Err(e) = mark(&dir)
        {
            let made = stage.as_ref().map_or(name, NameBuf::as_name);
            disk.remove_tree(&self.dir, made).map_err(fail(Op::RemoveUnfinished, &node, None))?;
            self.created_names.lock().forget(&info);
            self.has_its_name(name);
            return Err(fail(Op::Mark, &node, None)(e));
        }
        let sole = OnceLock::from(disk.lock(&dir) == Lock::Held);
        // mkdir(2) hands a default ACL down.
        let keep = keep_for(policy, self.keep.default_acl);
        let created_names = match self.root.listed() {
            Some(mut listed) => {
                listed.made.insert(info.id());
                listed.opened(info.id(), self.lasting)
            }
            None => self.created_names.again(),
        };
        let subtree = stage.is_some().then(|| (Arc::new(Subtree::new()), 0));
        Ok(DestDir {
            dir: Arc::new(dir),
            node,
            root: self.root.clone(),
            info,
            made_by: if stage.is_some() { MadeBy::ThisRunAlone } else { MadeBy::ThisRun },
            made_first: false,
            stand: self.stand,
            sole,
            created_names,
            home: Home::of(&info, btime, self.lasting),
            btime,
            lasting: self.lasting,
            unfinished: Arc::default(),
            unmet: None,
            held: Arc::default(),
            bases: self.bases_of(disk, name),
            naming: stage.map_or(Naming::Own, Naming::staged),
            subtree,
            heritage: OnceLock::new(),
            names_stay: OnceLock::new(),
            turn: Turn::default(),
            keep,
            is_in_receipt: AtomicBool::new(false),
            is_closed: Mutex::new(false),
        })
    }

    /// So many directories were listed below it while it may still get small files; each is to [`DestDir::begin`].
    pub(crate) fn expect(&self, dirs: usize) {
        if let Some((subtree, _)) = &self.subtree {
            subtree.expect(dirs);
        }
    }

    /// A directory below it is begun.
    pub(crate) fn begin(&self) -> NewSubdir {
        match &self.subtree {
            Some((subtree, level)) => subtree.begin(level + 1),
            None => NewSubdir { inside: false, publish: false },
        }
    }

    /// It gets no further small file. Returns whether the topmost directory that has no name yet, it or one above it, is
    /// to be published.
    pub(crate) fn filled(&self) -> bool {
        self.subtree.as_ref().is_some_and(|(subtree, _)| subtree.filled())
    }

    /// Makes the directory `name` in this one, with which it will appear. It gets `mode` at once where nothing about it
    /// is to change later: no other user comes here until then.
    pub(crate) fn enter_inside(
        &self,
        disk: &D,
        name: Name<'_>,
        policy: &CopyPolicy,
        mode: u32,
    ) -> Result<DestDir<D>> {
        self.guard_name(name)?;
        let node = self.node.below(name);
        let Some((subtree, level)) = &self.subtree else { return self.enter(disk, name, policy) };
        let mode = self.keep.born_as(mode);
        // No other process looks in here, so workers need not wait for one another while one makes a directory; and it is locked
        // only where something in it is to have a stage.
        let Some((dir, info, btime)) = self.bear(disk, name, name, mode, None)? else {
            // Nothing but this run puts anything in here, and no directory has one name twice.
            return Err(Error::ours(Code::Refused, Op::MergeInto, node.path(), TAKEN));
        };
        Ok(DestDir {
            dir: Arc::new(dir),
            node,
            root: self.root.clone(),
            info,
            made_by: MadeBy::ThisRunAlone,
            made_first: false,
            stand: self.stand,
            sole: OnceLock::new(),
            created_names: self.created_names.again(),
            home: Home::of(&info, btime, self.lasting),
            btime,
            lasting: self.lasting,
            // As in this one, which this run has made: nothing was there before.
            unfinished: self.unfinished.clone(),
            unmet: None,
            held: self.held.clone(),
            bases: self.bases_of(disk, name),
            naming: Naming::Own,
            subtree: Some((subtree.clone(), level + 1)),
            heritage: OnceLock::new(),
            names_stay: OnceLock::new(),
            turn: Turn::default(),
            keep: self.keep,
            is_in_receipt: AtomicBool::new(false),
            is_closed: Mutex::new(false),
        })
    }

    /// Says that what becomes `name` is called `stage` for now.
    fn announce(&self, name: Name<'_>, stage: &NameBuf) -> Result<()> {
        match self.root.unnamed().entry((self.info.id(), name.to_owned())) {
            Entry::Vacant(slot) => {
                slot.insert(stage.clone());
                Ok(())
            }
            Entry::Occupied(_) => {
                let note = Reason::MadeByThisRun;
                Err(Error::ours(Code::Refused, Op::MakeDirectory, self.node.join(name), note))
            }
        }
    }

    /// What becomes `name` is called so by now, or never will be.
    fn has_its_name(&self, name: Name<'_>) {
        self.root.unnamed().remove(&(self.info.id(), name.to_owned()));
    }

    /// Makes the directory `made`, which is or becomes `name`, and opens it; `None` when something has that very name.
    /// It is entered into `book`, or into the one of this directory when that has been opened by then.
    fn bear<'b>(
        &'b self,
        disk: &D,
        made: Name<'_>,
        name: Name<'_>,
        mode: u32,
        created: Option<LockedNames<'b>>,
    ) -> Result<Option<(D::Dir, Info, u64)>> {
        let failed = |op| fail(op, &self.node, Some(name));
        self.open_up(disk);
        match disk.make_dir(&self.dir, made, mode) {
            Err(e) if e.raw_os_error() == Some(errno::EEXIST) && made == name => return Ok(None),
            other => other.map_err(failed(Op::MakeDirectory))?,
        }
        let may_lack = self.keep.umask & mode & 0o700 != 0 || self.keep.default_acl;
        let opened = disk.open_dir(&self.dir, made).and_then(|mut dir| {
            // Until it is sealed its owner works in it, whatever the umask takes or a default ACL does not give.
            if may_lack {
                let now = disk.info(&dir)?.mode;
                if now & mode & 0o700 != mode & 0o700 {
                    disk.set_mode(&dir, now & 0o7777 | mode & 0o700)?;
                    // A handle on what its owner may not read is good for nothing else.
                    dir = disk.open_dir(&self.dir, made)?;
                }
            }
            Ok((disk.identity(&dir)?, dir))
        });
        match opened {
            Ok(((info, btime), dir)) => {
                let mut created = created.unwrap_or_else(|| self.created_names.lock());
                created.expect(&info, name, btime);
                if made == name {
                    created.named(name);
                }
                Ok(Some((dir, info, btime)))
            }
            Err(e) => {
                // Empty and ours; if even this fails the next run meets it.
                let kept = disk.remove_dir(&self.dir, made).err();
                let error = failed(Op::OpenDirectory)(e);
                Err(match kept {
                    Some(k) => Error { note: Some(Reason::NotRemovedAgain.about(k.to_string())), ..error },
                    None => error,
                })
            }
        }
    }

    /// Makes a directory that is marked as unfinished from the moment on in which it has its name: a run that is killed
    /// in between must not leave one that is taken for any other. It gets its name at once, as what is unfinished in it
    /// must be where the next run looks for it.
    fn make_marked(
        &self,
        disk: &D,
        name: Name<'_>,
        policy: &CopyPolicy,
        mark: Mark<'_, D>,
    ) -> Result<DestDir<D>> {
        let node = self.node.below(name);
        let failed = |op| fail(op, &node, None);
        let Some(stage) = (if self.is_sole(disk) { self.home.stage() } else { stage::random() }) else {
            return Err(Error::ours(Code::Io, Op::NameAStageFor, node.path(), Reason::NoNameForStage));
        };
        let stage = stage.as_name();
        let created = Some(self.created_names.lock());
        let Some((dir, info, _)) = self.bear(disk, stage, name, 0o700, created)? else {
            let e = io::Error::from_raw_os_error(errno::EEXIST);
            return Err(failed(Op::MakeDirectory)(e));
        };
        let named = mark(&dir).and_then(|()| {
            let made = DestDir::opened(disk, dir, node.clone(), Some(self), policy);
            self.give_name(disk, stage, name).map(|()| made)
        });
        match named {
            Ok(made) => made.map(|made| DestDir { made_by: MadeBy::ThisRun, ..made }),
            Err(e) => {
                disk.remove_tree(&self.dir, stage).map_err(failed(Op::RemoveUnfinished))?;
                self.created_names.lock().forget(&info);
                match e.raw_os_error() {
                    // Another process made it meanwhile.
                    Some(errno::EEXIST) => self.merge(disk, name, policy),
                    _ => Err(failed(Op::MakeDirectory)(e)),
                }
            }
        }
    }

    /// The same directory for another operand; handle and lock are shared.
    pub(crate) fn share(&self) -> DestDir<D> {
        DestDir {
            dir: self.dir.clone(),
            node: self.node.clone(),
            root: self.root.clone(),
            info: self.info,
            made_by: self.made_by,
            made_first: self.made_first,
            stand: self.stand,
            sole: self.sole.clone(),
            created_names: self.created_names.clone(),
            home: self.home,
            btime: self.btime,
            lasting: self.lasting,
            unfinished: self.unfinished.clone(),
            unmet: self.unmet.clone(),
            held: self.held.clone(),
            bases: self.bases.clone(),
            naming: Naming::Own,
            subtree: None,
            heritage: self.heritage.clone(),
            names_stay: self.names_stay.clone(),
            turn: Turn::default(),
            keep: self.keep,
            is_in_receipt: AtomicBool::new(false),
            is_closed: Mutex::new(false),
        }
    }

    /// Everything in it is done, as far as this handle goes; whether that was the last one that this run has of it.
    /// Asked once.
    pub(crate) fn is_done_with(&self) -> bool {
        let Some(mut listed) = self.root.listed() else { return true };
        let Some(open) = listed.open.get_mut(&self.info.id()) else { return true };
        *open -= 1;
        let last = *open == 0;
        if last {
            listed.open.remove(&self.info.id());
        }
        last
    }

    /// Whether only this run puts anything in: no name in it can be taken.
    pub(crate) fn is_fresh(&self) -> bool {
        self.made_by == MadeBy::ThisRunAlone
    }

    /// The turn to create files in it: `None` where other programs may do so too, and a FIFO may be waited for.
    pub(crate) fn turn_to_create(&self) -> Option<MutexGuard<'_, ()>> {
        self.is_fresh().then(|| self.turn.take())
    }

    /// The turn to give names in it to files that have none: `None` where one of `jobs` is staged, which may wait for the disk.
    pub(crate) fn turn_to_name(&self, jobs: &[Job<'_, D>]) -> Option<MutexGuard<'_, ()>> {
        let is_unnamed = |job: &Job<'_, D>| matches!(job.place, Placement::Unnamed);
        jobs.iter().all(is_unnamed).then(|| self.turn.take())
    }

    /// Whether this run has made it just now.
    pub(crate) fn is_made(&self) -> bool {
        matches!(self.made_by, MadeBy::ThisRun | MadeBy::ThisRunAlone)
    }

    /// Whether its small files are made under their own names: it does not appear before they are in it.
    pub(crate) fn is_private(&self) -> bool {
        self.subtree.is_some()
    }

    /// Whether new small files in it are made under their own names although other processes put things in as well: whoever
    /// fills it keeps a record of what is whole.
    pub(crate) fn is_recorded(&self) -> bool {
        self.root.is_recorded
    }

    /// Where a batch makes its files without names, when not in it. To be given back. Who does not hold its lock has no name
    /// for such a directory that another run would know as left behind.
    pub(crate) fn apart(&self, disk: &D, jobs: &[Job<'_, D>]) -> Option<ApartDir<Heritage, D::Dir>> {
        let files = jobs.iter().filter(|job| matches!(job.place, Placement::Unnamed)).count();
        let aparts = &self.root.apart;
        if files == 0
            || !aparts.is_worth_it(files, self.info.dev, || disk.unnamed_files_wait(&self.dir))
            || !self.is_sole(disk)
            || self.keeps_names(disk)
        {
            return None;
        }
        let heritage = self.heritage.get_or_init(|| disk.heritage(&self.dir).map(Arc::new)).as_ref()?;
        aparts.take(files, heritage, || {
            let apart = disk.apart(&self.dir, self.home.stage()?.as_name()).ok()?;
            (disk.heritage(&apart)? == **heritage).then_some(apart)
        })
    }

    /// Whether it was made under a stage's name.
    pub(crate) fn is_staged(&self) -> bool {
        self.naming.stage().is_some()
    }

    /// Whether it has its final name, in the directory above it.
    pub(crate) fn has_name(&self) -> bool {
        self.naming.state() == StageState::Named
    }

    /// Never to be published, nor what would appear with it: something half-done in it could not be taken back.
    pub(crate) fn poison(&self) {
        if let Some((subtree, _)) = &self.subtree {
            subtree.poison();
        }
    }

    /// Gives the directory `stage` in it its name.
    fn give_name(&self, disk: &D, stage: Name<'_>, name: Name<'_>) -> io::Result<()> {
        let created = self.created_names.lock().until_named();
        disk.publish_dir(&self.dir, stage, name)?;
        if let Some(mut created) = created {
            created.named(name);
        }
        Ok(())
    }

    /// Gives it its name, in the directory `above`.
    pub(crate) fn publish(&self, disk: &D, above: &DestDir<D>) -> Result<()> {
        let (Some(stage), Node::Below(_, name)) = (self.naming.stage(), &*self.node) else { return Ok(()) };
        if self.is_poisoned() {
            return Ok(()); // taken back once no worker is in it any more
        }
        let named = match self.is_stage(disk, above, stage) {
            Ok(true) => above.give_name(disk, stage.as_name(), name.as_name()),
            // Whatever took it away: only what was filled gets the name.
            Ok(false) => {
                self.poison();
                let note = Reason::FilledIsGone;
                return Err(Error::ours(Code::Io, Op::PublishDirectory, self.node.path(), note));
            }
            Err(e) => Err(e),
        };
        match named {
            Ok(()) => {
                self.naming.becomes(StageState::Named);
                above.has_its_name(name.as_name());
                Ok(())
            }
            Err(e) if e.raw_os_error() == Some(errno::EEXIST) => {
                let there = disk.look(&above.dir, name.as_name());
                let there = there.inspect_err(|_| self.poison()).map_err(fail(Op::Stat, &self.node, None))?;
                let btime = || disk.btime(&above.dir, name.as_name());
                let is_taken = |there| {
                    let created = above.created_names.lock();
                    created.is_taken(&there, name.as_name(), btime, disk.lists(&above.dir))
                };
                if there.is_some_and(is_taken) {
                    self.poison();
                    return Err(Error::ours(Code::Refused, Op::MergeInto, self.node.path(), TAKEN));
                }
                // Another process made it meanwhile. What is ours goes in there once it is complete.
                self.naming.becomes(StageState::Clashed);
                Ok(())
            }
            Err(e) => {
                self.poison();
                Err(fail(Op::PublishDirectory, &self.node, None)(e))
            }
        }
    }

    /// Whether what is called `stage` is this very directory.
    fn is_stage(&self, disk: &D, above: &DestDir<D>, stage: &NameBuf) -> io::Result<bool> {
        Ok(disk.look(&above.dir, stage.as_name())?.is_some_and(|there| there.id() == self.info.id()))
    }

    /// Takes away what is called `stage`, if that is this directory still.
    fn remove_stage(&self, disk: &D, above: &DestDir<D>, stage: &NameBuf) -> io::Result<()> {
        if self.is_stage(disk, above, stage)? {
            disk.remove_tree(&above.dir, stage.as_name())?;
            above.created_names.lock().forget(&self.info);
        }
        if let Node::Below(_, name) = &*self.node {
            above.has_its_name(name.as_name());
        }
        Ok(())
    }

    /// Removes what never got its name, with all that is in it, when no worker is in it any more: nothing is left that
    /// was not asked for.
    pub(crate) fn take_back(&self, disk: &D, above: &DestDir<D>) -> Result<()> {
        let Some(stage) = self.naming.stage() else { return Ok(()) };
        self.remove_stage(disk, above, stage).map_err(fail(Op::RemoveUnfinished, &self.node, None))?;
        let note = Reason::NothingPublished;
        Err(Error::ours(Code::Io, Op::PublishDirectory, self.node.path(), note))
    }

    /// Whether it was made under a stage's name and never got its own.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.is_staged() && self.subtree.as_ref().is_some_and(|(subtree, _)| subtree.is_poisoned())
    }

    /// After everything in it is done: where the name was taken meanwhile, what is ours moves in there. Returns the
    /// directory that has the name now, when it is not this one.
    pub(crate) fn settle(&self, disk: &D, above: &DestDir<D>, clash: Clash) -> Result<Option<D::Dir>> {
        let (Some(stage), Node::Below(_, name)) = (self.naming.stage(), &*self.node) else { return Ok(None) };
        if self.naming.state() != StageState::Clashed {
            return Ok(None);
        }
        if clash == Clash::Refused {
            let refused = not_empty(&self.node.path());
            return Err(self.not_merged(disk, above, stage, refused));
        }
        let only_new = clash == Clash::MergesNew;
        let merged = disk.open_dir(&above.dir, name.as_name()).and_then(|there| {
            // R8: its mark is known in this directory and nowhere else; there it would be a file that no run knows.
            if let Some(mark) = self.home.tree() {
                disk.remove_file(&self.dir, mark.as_name())?;
            }
            disk.merge_into(&self.dir, &there, only_new)?;
            disk.remove_dir(&above.dir, stage.as_name())?;
            above.created_names.lock().forget(&self.info);
            Ok(there)
        });
        match merged {
            Ok(there) => {
                self.naming.becomes(StageState::Named);
                above.has_its_name(name.as_name());
                Ok(Some(there))
            }
            Err(e) => {
                let error = fail(Op::MergeIntoDirectory, &self.node, None)(e);
                Err(self.not_merged(disk, above, stage, error))
            }
        }
    }

    /// What has the name now is no directory, or holds something in the way: what could not be merged goes, so that nothing is left
    /// under a name that was not asked for.
    fn not_merged(&self, disk: &D, above: &DestDir<D>, stage: &NameBuf, error: Error) -> Error {
        match self.remove_stage(disk, above, stage) {
            Err(k) => Error { note: Some(Reason::NotRemovedAgain.about(k.to_string())), ..error },
            Ok(()) => error,
        }
    }
}
