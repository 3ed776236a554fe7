//! A plan that takes a tree away: shards remove names, the end removes directories.
//!
//! Must not remove what is not what the plan names: each name is looked at below the handle of its directory, which was
//! reached from the top without links.

use super::along::{Along, along};
use super::folder::PlanFolder;
use super::from::{self, NAMES_MAX, path_in};
use super::format::{Digest, LandedEntry, PlanHeader, PlannedAs, PlannedDir, PlannedEntry, Version};
use super::places::{below, the_planned_source};
use super::requests::Finished;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Summary};
use crate::node::{Node, os};
use crate::peer::planned_source::SourceThere;
use crate::peer::taker::{TakeListener, TakenDir};
use crate::policy::CopyPolicy;
use crate::remove;
use crate::tally::Tally;
use crate::verbs::operands::{self, Place};
use fastcopy::dir::{Dir, Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

fn is_gone(e: &io::Error) -> bool {
    e.raw_os_error() == Some(errno::ENOENT)
}

/// Whether what is there is what was planned. Taking a further name away changes when a file was changed last, so that is
/// not compared.
fn is_planned(of: &Version, there: &Info) -> bool {
    of.kind == there.kind
        && of.ino == there.ino
        && (of.kind == Kind::Dir || (of.size, of.mtime) == (there.size, there.mtime))
}

/// Takes names below a directory away.
pub(super) struct Taking<'t> {
    pub(super) top: &'t Dir,
    pub(super) path: &'t Path,
    pub(super) tally: &'t Tally<'t>,
}

impl Taking<'_> {
    /// Takes the names of these directories away that are none themselves. Whether none of them is there any more.
    pub(super) fn entries(&self, dirs: &[PlannedDir]) -> bool {
        let mut whole = true;
        for dir in dirs {
            if self.tally.cancelled() {
                return false;
            }
            let shown = self.path.join(OsStr::from_bytes(&dir.path));
            let is_name = |entry: &&PlannedEntry| !matches!(entry.what, PlannedAs::Directory(_));
            let mut names = dir.entries.iter().filter(is_name).peekable();
            if names.peek().is_none() {
                continue;
            }
            let from = match below(self.top, &dir.path) {
                Ok(from) => from,
                // The end of an earlier plan, or another program, has taken all of it away.
                Err(e) if is_gone(&e) => continue,
                Err(e) => {
                    self.tally.fail(Error::os(Op::OpenDirectory, shown, e));
                    whole = false;
                    continue;
                }
            };
            for entry in names {
                if let Err(e) = self.name(&from, entry, &shown) {
                    self.tally.fail(e);
                    whole = false;
                }
            }
        }
        whole
    }

    fn name(&self, dir: &Dir, entry: &PlannedEntry, above: &Path) -> Result<()> {
        let name = entry.name.as_name();
        let shown = || above.join(os(name));
        let Some(there) = dir.look(name).map_err(|e| Error::os(Op::Stat, shown(), e))? else { return Ok(()) };
        if !is_planned(entry.version(), &there) {
            return Err(Error::ours(Code::SourceChanged, Op::Remove, shown(), Reason::ChangedWhileTaken));
        }
        match dir.remove_file(name) {
            Err(e) if !is_gone(&e) => return Err(Error::os(Op::Remove, shown(), e)),
            _ => {}
        }
        let count = if there.kind == Kind::File { &self.tally.files } else { &self.tally.others };
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.tally.done(1);
        self.tally.item(Action::Removed, 0, || (PathBuf::new(), shown()));
        Ok(())
    }
}

/// Removes the directories of a plan all of whose names are gone.
struct Emptying<'t> {
    path: &'t Path,
    tally: &'t Tally<'t>,
}

/// A directory that is to go, where it is still there.
struct EmptiedDir {
    dir: Option<Dir>,
    name: Option<NameBuf>,
}

impl Emptying<'_> {
    fn shown(&self, path: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(path))
    }

    fn remove(&self, above: &Dir, name: Name<'_>, shown: PathBuf) {
        match above.remove_dir(name) {
            Err(e) if !is_gone(&e) => self.tally.fail(Error::os(Op::RemoveDirectory, shown, e)),
            Err(_) => {}
            Ok(()) => {
                self.tally.dirs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                self.tally.item(Action::Removed, 0, || (PathBuf::new(), shown));
            }
        }
    }
}

impl Along for Emptying<'_> {
    type Level = EmptiedDir;

    fn is_stopped(&self) -> bool {
        self.tally.cancelled()
    }

    fn enter(
        &mut self,
        above: &mut EmptiedDir,
        path: &[u8],
        name: &NameBuf,
        version: &Version,
    ) -> Result<EmptiedDir> {
        let opened = above.dir.as_ref().map(|dir| {
            let dir = dir.open_dir(name.as_name())?;
            Ok((dir.info()?, dir))
        });
        let dir = match opened {
            None => None,
            Some(Ok((info, dir))) if is_planned(version, &info) => Some(dir),
            Some(Ok(_)) => {
                let why = Reason::ChangedWhileTaken;
                self.tally.fail(Error::ours(Code::SourceChanged, Op::Remove, self.shown(path), why));
                None
            }
            Some(Err(e)) if is_gone(&e) => None,
            Some(Err(e)) => {
                self.tally.fail(Error::os(Op::OpenDirectory, self.shown(path), e));
                None
            }
        };
        Ok(EmptiedDir { dir, name: Some(name.clone()) })
    }

    fn entry(&mut self, _: &mut EmptiedDir, _: &[u8], _: &PlannedEntry, _: LandedEntry) -> Result<()> {
        Ok(())
    }

    fn leave(&mut self, level: EmptiedDir, path: &[u8], above: Option<&mut EmptiedDir>) -> Result<()> {
        let above = above.and_then(|above| above.dir.as_ref());
        if let (Some(_), Some(above), Some(name)) = (&level.dir, above, &level.name) {
            self.remove(above, name.as_name(), self.shown(path));
        }
        Ok(())
    }
}

/// Ends such a plan: every directory goes that has nothing in it any more, and the top with them.
///
/// # Errors
/// The plan cannot be read, or another directory is there by now. What stays is told.
pub(super) fn end(
    (folder, header, plan): (&PlanFolder, &PlanHeader, &Digest),
    tally: &Tally<'_>,
) -> Result<Finished> {
    let path = PathBuf::from(OsStr::from_bytes(&header.source));
    let top = match Dir::open(&path) {
        Ok(top) => Some(top),
        Err(e) if is_gone(&e) => None,
        Err(e) => return Err(Error::os(Op::OpenDirectory, &path, e)),
    };
    if let Some(top) = &top {
        the_planned_source(top, header)?;
        remove::guard(top, &path)?;
    }
    let mut emptying = Emptying { path: &path, tally };
    let is_there = top.is_some();
    let counts = along((folder, header, plan), EmptiedDir { dir: top, name: None }, &mut emptying)?;
    if is_there {
        let place = super::places::spot(&path, Op::Remove)?;
        emptying.remove(&place.place.dir, place.name.as_name(), path.clone());
    }
    let own = tally.summary();
    let (files, others) = (counts.files, counts.others);
    Ok(Finished { summary: Summary { files, others, ..own }, root: [0; 32] })
}

/// Names of a plan that are to go on another machine.
struct NamesThere<'t> {
    planned: HashMap<Vec<u8>, Version>,
    source: &'t SourceThere<'t>,
    tally: &'t Tally<'t>,
}

impl NamesThere<'_> {
    /// Whether what is there is what was planned; told where it is not. `None`: it is not of the plan.
    fn is_planned(&self, path: &[u8], there: &Info) -> Option<bool> {
        let is_same = is_planned(self.planned.get(path)?, there);
        if !is_same {
            let (shown, why) = (self.source.shown(path), Reason::ChangedWhileTaken);
            self.tally.fail(Error::ours(Code::SourceChanged, Op::Remove, shown, why));
        }
        Some(is_same)
    }
}

impl TakeListener for NamesThere<'_> {
    fn goes(&self, above: &Node, name: Name<'_>, info: &Info) -> bool {
        let path = path_in(above, name);
        if self.is_planned(&path, info) != Some(true) {
            return false;
        }
        let count = if info.kind == Kind::File { &self.tally.files } else { &self.tally.others };
        count.fetch_add(1, Relaxed);
        self.tally.item(Action::Removed, 0, || (PathBuf::new(), self.source.shown(&path)));
        true
    }

    fn dir(&self, dir: &Node, info: &Info) -> TakenDir {
        // A name that has become a directory is not what was planned.
        match self.is_planned(&path_to(dir), info) {
            None => TakenDir::Stays,
            Some(_) => TakenDir::PassedOver,
        }
    }
}

/// The path of a node below its root.
fn path_to(node: &Node) -> Vec<u8> {
    let names = node.names();
    let parts: Vec<&[u8]> = names.iter().map(NameBuf::bytes).collect();
    parts.join(&b'/')
}

/// What of `done` is no answer that something was gone already.
fn failures_of(done: &Summary) -> Summary {
    let codes: Vec<Code> = done.codes.iter().copied().filter(|code| *code != Code::NotFound).collect();
    let failed = if codes.is_empty() { 0 } else { done.failed };
    Summary { failed, codes, cancelled: done.cancelled, ..Summary::default() }
}

/// Takes the names of these directories away on another machine that are none themselves. Whether none of them is there any
/// more.
///
/// # Errors
/// The connection was lost.
pub(super) fn entries_there(
    source: &SourceThere<'_>,
    place: &Arc<Place>,
    dirs: &[PlannedDir],
    policy: &CopyPolicy,
    tally: &Tally<'_>,
) -> Result<bool> {
    let (mut names, mut planned) = (Vec::new(), HashMap::new());
    for dir in dirs {
        for entry in dir.entries.iter().filter(|entry| !matches!(entry.what, PlannedAs::Directory(_))) {
            let path = super::there::path_of(&dir.path, entry.name.bytes());
            planned.insert(path.clone(), *entry.version());
            names.push(path);
        }
    }
    if names.is_empty() {
        return Ok(true);
    }
    let before = tally.failed.load(Relaxed);
    let listener = NamesThere { planned, source, tally };
    let done = source.take((source.path(), &names), place.clone(), policy, &listener)?;
    tally.failed_below(&failures_of(&done));
    Ok(tally.failed.load(Relaxed) == before && !done.cancelled)
}

/// How far up the home directory's parents are looked at.
const PARENTS_MAX: usize = 64;

/// Refuses what is never removed over there: the root, the directory that the bcmr there is in, and what holds that.
///
/// # Errors
/// It is one of those, has no name, or that cannot be found out.
pub(super) fn guard_there(
    source: &SourceThere<'_>,
    place: &Arc<Place>,
    policy: &CopyPolicy,
    id: (u64, u64),
) -> Result<()> {
    let refused = |why: Reason| Err(Error::ours(Code::Refused, Op::Remove, source.shown(b""), why));
    let look = |path: &Path| source.directory(path, place.clone(), policy);
    if source.path().file_name().is_none() {
        return refused(Reason::EmptyName);
    }
    match look(Path::new("/"))? {
        Some(root) if root.id() != id => {}
        Some(_) => return refused(Reason::IsRoot),
        None => return refused(Reason::NotListedWhole),
    }
    let (mut path, mut below, mut why) = (PathBuf::from("."), None, Reason::IsCurrentDirectory);
    for _ in 0..PARENTS_MAX {
        // What may not be looked at, or is beyond the server's root, cannot be emptied from there either.
        let Some(here) = look(&path)? else { return Ok(()) };
        if here.id() == id {
            return refused(why);
        }
        // At the root, `..` is the root again.
        if below.replace(here.id()) == Some(here.id()) {
            return Ok(());
        }
        path.push("..");
        why = Reason::HoldsCurrentDirectory;
    }
    Ok(())
}

/// Has directories of a plan removed on another machine, in lists of bounded length.
struct EmptyingThere<'t> {
    source: &'t SourceThere<'t>,
    place: &'t Arc<Place>,
    policy: &'t CopyPolicy,
    tally: &'t Tally<'t>,
    /// The directory of the top, and what the top is called in it.
    base: PathBuf,
    name: Vec<u8>,
    /// Directories all of whose names were gone through, by path below the base.
    left: HashMap<Vec<u8>, Version>,
    /// Of those, what is asked for by name: all others lead to these.
    names: Vec<Vec<u8>>,
    /// Which list it is.
    number: u64,
}

/// A directory on the way.
struct LevelThere {
    version: Version,
    /// The last list that has a name below it.
    named_in: Option<u64>,
}

impl EmptyingThere<'_> {
    fn ask(&mut self) -> Result<()> {
        self.number += 1;
        let (names, left) = (std::mem::take(&mut self.names), std::mem::take(&mut self.left));
        if names.is_empty() {
            return Ok(());
        }
        let count = left.len() as u64;
        let listener = DirsThere { left, names: names.iter().map(Vec::as_slice).collect(), of: self };
        let done = self.source.take((&self.base, &names), self.place.clone(), self.policy, &listener)?;
        let failures = failures_of(&done);
        self.tally.dirs.fetch_add(count.saturating_sub(failures.failed), Relaxed);
        self.tally.failed_below(&failures);
        Ok(())
    }
}

/// Which directories go with one list.
struct DirsThere<'t> {
    left: HashMap<Vec<u8>, Version>,
    names: HashSet<&'t [u8]>,
    of: &'t EmptyingThere<'t>,
}

impl TakeListener for DirsThere<'_> {
    fn goes(&self, _: &Node, _: Name<'_>, _: &Info) -> bool {
        false
    }

    fn dir(&self, dir: &Node, info: &Info) -> TakenDir {
        let path = path_to(dir);
        let is_named = self.names.contains(path.as_slice());
        match self.left.get(&path) {
            Some(of) if is_planned(of, info) => {
                if is_named { TakenDir::Goes } else { TakenDir::GoesAfter }
            }
            Some(_) if is_named => {
                let shown = self.of.base.join(OsStr::from_bytes(&path));
                let why = Reason::ChangedWhileTaken;
                self.of.tally.fail(Error::ours(Code::SourceChanged, Op::Remove, shown, why));
                TakenDir::PassedOver
            }
            _ if is_named => TakenDir::PassedOver,
            _ => TakenDir::Stays,
        }
    }
}

impl Along for EmptyingThere<'_> {
    type Level = LevelThere;

    fn is_stopped(&self) -> bool {
        self.tally.cancelled()
    }

    fn enter(
        &mut self,
        _: &mut LevelThere,
        _: &[u8],
        _: &NameBuf,
        version: &Version,
    ) -> Result<LevelThere> {
        Ok(LevelThere { version: *version, named_in: None })
    }

    fn entry(&mut self, _: &mut LevelThere, _: &[u8], _: &PlannedEntry, _: LandedEntry) -> Result<()> {
        Ok(())
    }

    fn leave(&mut self, level: LevelThere, path: &[u8], above: Option<&mut LevelThere>) -> Result<()> {
        let path = if path.is_empty() { self.name.clone() } else { [&*self.name, path].join(&b'/') };
        if level.named_in != Some(self.number) {
            self.names.push(path.clone());
        }
        self.left.insert(path, level.version);
        if let Some(above) = above {
            above.named_in = Some(self.number);
        }
        if self.names.len() >= NAMES_MAX || self.left.len() >= NAMES_MAX { self.ask() } else { Ok(()) }
    }
}

/// Ends such a plan on another machine, as [`end`] does here.
///
/// # Errors
/// As [`end`], and the connection was lost.
pub(super) fn end_there(
    (folder, header, plan): (&PlanFolder, &PlanHeader, &Digest),
    source: &SourceThere<'_>,
    policy: &CopyPolicy,
    tally: &Tally<'_>,
) -> Result<Finished> {
    let dir = folder.dir.reopen().map_err(|e| Error::os(Op::ReadPlan, &folder.path, e))?;
    let place = operands::place(dir, &folder.path);
    let policy = from::walking(policy);
    let top = source.directory(source.path(), place.clone(), &policy)?;
    if let Some(top) = &top {
        if top.ino != header.top.ino {
            let (shown, why) = (source.shown(b""), Reason::SourceIsAnother);
            return Err(Error::ours(Code::Refused, Op::OpenDirectory, shown, why));
        }
        guard_there(source, &place, &policy, top.id())?;
    }
    let base = source.path().parent().filter(|base| !base.as_os_str().is_empty());
    let base = base.unwrap_or(Path::new(".")).to_owned();
    let name = source.path().file_name().unwrap_or_default().as_bytes().to_vec();
    let mut emptying = EmptyingThere {
        source,
        place: &place,
        policy: &policy,
        tally,
        base,
        name,
        left: HashMap::new(),
        names: Vec::new(),
        number: 0,
    };
    let level = LevelThere { version: header.top, named_in: None };
    let counts = along((folder, header, plan), level, &mut emptying)?;
    emptying.ask()?;
    let own = tally.summary();
    let (files, others) = (counts.files, counts.others);
    Ok(Finished { summary: Summary { files, others, ..own }, root: [0; 32] })
}
