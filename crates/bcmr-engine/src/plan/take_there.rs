//! A plan that takes a tree away on another machine: the same, by what the sender of a move obeys there.
//!
//! Must not know messages. A name goes only if what is told of it is what the plan says, and the other side takes it away only
//! while it still is what it has told.

use super::along::{Along, along};
use super::folder::PlanFolder;
use super::format::{Digest, LandedEntry, PlanHeader, PlannedAs, PlannedDir, PlannedEntry, Version};
use super::from::{self, NAMES_MAX};
use super::requests::Finished;
use super::take::{self, is_planned};
use super::there::path_of;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Summary};
use crate::node::Node;
use crate::peer::planned_source::SourceThere;
use crate::peer::taker::{TakeListener, TakenDir};
use crate::policy::CopyPolicy;
use crate::tally::Tally;
use crate::verbs::operands::{self, Place};
use fastcopy::dir::{Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Names of a plan that are to go on another machine.
struct NamesThere<'t> {
    planned: HashMap<Vec<u8>, Version>,
    /// The source, as it is shown.
    shown: PathBuf,
    tally: &'t Tally<'t>,
}

impl NamesThere<'_> {
    fn shown(&self, path: &[u8]) -> PathBuf {
        self.shown.join(OsStr::from_bytes(path))
    }

    /// Whether what is there is what was planned; told where it is not. `None`: it is not of the plan.
    fn is_planned(&self, path: &[u8], there: &Info) -> Option<bool> {
        let is_same = is_planned(self.planned.get(path)?, there);
        if !is_same {
            let why = Reason::ChangedWhileTaken;
            self.tally.fail(Error::ours(Code::SourceChanged, Op::Remove, self.shown(path), why));
        }
        Some(is_same)
    }
}

impl TakeListener for NamesThere<'_> {
    fn goes(&self, above: &Node, name: Name<'_>, info: &Info) -> bool {
        let path = above.below_root(Some(name));
        if self.is_planned(&path, info) != Some(true) {
            return false;
        }
        let count = if info.kind == Kind::File { &self.tally.files } else { &self.tally.others };
        count.fetch_add(1, Relaxed);
        self.tally.item(Action::Removed, 0, || (PathBuf::new(), self.shown(&path)));
        true
    }

    fn dir(&self, dir: &Node, info: &Info) -> TakenDir {
        // A name that has become a directory is not what was planned.
        match self.is_planned(&dir.below_root(None), info) {
            None => TakenDir::Stays,
            Some(_) => TakenDir::PassedOver,
        }
    }
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
pub(super) fn entries(
    source: &SourceThere<'_>,
    place: &Arc<Place>,
    dirs: &[PlannedDir],
    policy: &CopyPolicy,
    tally: &Tally<'_>,
) -> Result<bool> {
    let (mut names, mut planned) = (Vec::new(), HashMap::new());
    for dir in dirs {
        for entry in dir.entries.iter().filter(|entry| !matches!(entry.what, PlannedAs::Directory(_))) {
            let path = path_of(&dir.path, entry.name.bytes());
            planned.insert(path.clone(), *entry.version());
            names.push(path);
        }
    }
    if names.is_empty() {
        return Ok(true);
    }
    let before = tally.failed.load(Relaxed);
    let listener = NamesThere { planned, shown: source.shown(b""), tally };
    let done = source.take((source.path(), &names), place.clone(), policy, &listener)?;
    tally.failed_below(&failures_of(&done));
    Ok(tally.failed.load(Relaxed) == before && !done.cancelled)
}

/// How far up the home directory's parents are looked at.
const PARENTS_MAX: usize = 64;

/// Refuses a symbolic link to a directory over there.
///
/// # Errors
/// It is one, or cannot be looked at.
pub(super) fn is_itself_a_directory(source: &SourceThere<'_>) -> Result<()> {
    // Without slashes behind it, which would lead through the link.
    let itself: PathBuf = source.path().components().collect();
    match source.kind(&itself)? {
        Kind::Dir => Ok(()),
        _ => Err(take::no_directory(&source.shown(b""))),
    }
}

/// Refuses what is never removed over there: the root, the directory that the bcmr there is in, and what holds that.
///
/// # Errors
/// It is one of those, has no name, or that cannot be found out.
pub(super) fn guard(source: &SourceThere<'_>) -> Result<()> {
    let refused = |why: Reason| Err(Error::ours(Code::Refused, Op::Remove, source.shown(b""), why));
    match source.path() {
        path if path == Path::new("/") => return refused(Reason::IsRoot),
        // A path without a name leads to where the server is.
        path if path.as_os_str().is_empty() => return refused(Reason::IsCurrentDirectory),
        path if path.file_name().is_none() => return refused(Reason::EmptyName),
        _ => {}
    }
    let id = source.identity(source.path())?;
    if source.identity(Path::new("/"))? == id {
        return refused(Reason::IsRoot);
    }
    let (mut path, mut below, mut why) = (PathBuf::from("."), None, Reason::IsCurrentDirectory);
    for _ in 0..PARENTS_MAX {
        let here = match source.identity(&path) {
            // What may not be looked at, or is beyond the server's root, cannot be emptied from there either.
            Err(e) if below.is_some() && !e.code.is_of_connection() => return Ok(()),
            here => here?,
        };
        if here == id {
            return refused(why);
        }
        // At the root, `..` is the root again.
        if below.replace(here) == Some(here) {
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
        let listener = DirsThere {
            left,
            names: names.iter().map(Vec::as_slice).collect(),
            top: &self.name,
            shown: self.source.shown(b""),
            tally: self.tally,
        };
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
    /// What the source is called.
    top: &'t [u8],
    /// And how it is shown.
    shown: PathBuf,
    tally: &'t Tally<'t>,
}

impl TakeListener for DirsThere<'_> {
    fn goes(&self, _: &Node, _: Name<'_>, _: &Info) -> bool {
        false
    }

    fn dir(&self, dir: &Node, info: &Info) -> TakenDir {
        let path = dir.below_root(None);
        let is_named = self.names.contains(path.as_slice());
        match self.left.get(&path) {
            Some(of) if is_planned(of, info) => {
                if is_named {
                    TakenDir::Goes
                } else {
                    TakenDir::GoesAfter
                }
            }
            Some(_) if is_named => {
                let below = path.strip_prefix(self.top).and_then(|rest| rest.strip_prefix(b"/"));
                let shown = below.map(|below| self.shown.join(OsStr::from_bytes(below)));
                let (shown, why) = (shown.unwrap_or_else(|| self.shown.clone()), Reason::ChangedWhileTaken);
                self.tally.fail(Error::ours(Code::SourceChanged, Op::Remove, shown, why));
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

    fn enter(&mut self, _: &mut LevelThere, _: &[u8], _: &NameBuf, version: &Version) -> Result<LevelThere> {
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

/// Ends such a plan on another machine, as [`super::take::end`] does here.
///
/// # Errors
/// As [`super::take::end`], and the connection was lost.
pub(super) fn end(
    (folder, header, plan): (&PlanFolder, &PlanHeader, &Digest),
    source: &SourceThere<'_>,
    policy: &CopyPolicy,
    tally: &Tally<'_>,
) -> Result<Finished> {
    let dir = folder.dir.reopen().map_err(|e| Error::os(Op::ReadPlan, &folder.path, e))?;
    let place = operands::place(dir, &folder.path);
    let policy = from::walking(policy);
    match source.identity(source.path()) {
        // An earlier run has come to its end, and could not say so.
        Err(e) if e.code == Code::NotFound => {}
        top if top.as_ref().is_ok_and(|(_, ino)| *ino != header.top.ino) => {
            let (shown, why) = (source.shown(b""), Reason::SourceIsAnother);
            return Err(Error::ours(Code::Refused, Op::OpenDirectory, shown, why));
        }
        top => {
            top?;
            guard(source)?;
        }
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
