//! A plan that takes a tree away: shards remove names, the end removes directories.
//!
//! Must not remove what is not what the plan names: each name is looked at below the handle of its directory, which was
//! reached from the top without links.

use super::along::{Along, along};
use super::folder::PlanFolder;
use super::format::{Digest, LandedEntry, PlanHeader, PlannedAs, PlannedDir, PlannedEntry, Version};
use super::places::{is_other, the_planned_source};
use super::requests::Finished;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Summary};
use crate::node::os;
use crate::remove;
use crate::tally::Tally;
use fastcopy::dir::{Dir, Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind, Place};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

fn is_gone(e: &io::Error) -> bool {
    e.raw_os_error() == Some(errno::ENOENT)
}

/// A plan takes a directory away, and a link to one is none.
pub(super) fn no_directory(shown: &Path) -> Error {
    Error::os(Op::OpenDirectory, shown, io::Error::from_raw_os_error(errno::ENOTDIR))
}

/// Whether what is there is what was planned. Taking a further name away changes when a file was changed last, so that is
/// not compared.
pub(super) fn is_planned(of: &Version, there: &Info) -> bool {
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
            let way: Vec<NameBuf> = dir.path.split(|b| *b == b'/').filter_map(NameBuf::new).collect();
            let from = match remove::reach(self.top, way.iter().map(NameBuf::as_name)) {
                Ok(Ok(from)) => from,
                Ok(Err(why)) => {
                    self.tally.fail(Error::ours(Code::Refused, Op::Remove, shown, why));
                    whole = false;
                    continue;
                }
                // The end of an earlier plan, or another program, has taken all of it away.
                Err(e) if is_gone(&e) => continue,
                Err(e) if is_other(&e) => {
                    let why = Reason::ChangedWhileTaken;
                    self.tally.fail(Error::ours(Code::SourceChanged, Op::Remove, shown, why));
                    whole = false;
                    continue;
                }
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
    /// Something in the top stays, which was told.
    keeps_top: bool,
}

/// A directory that is to go, where it is still there.
struct EmptiedDir {
    dir: Option<Dir>,
    dev: u64,
    name: Option<NameBuf>,
    /// Something in it stays, which was told: so it does too, and that is no further failure.
    stays: bool,
}

impl Emptying<'_> {
    fn shown(&self, path: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(path))
    }

    /// Whether it is gone.
    fn remove(&self, above: &Dir, name: Name<'_>, shown: PathBuf) -> bool {
        match above.remove_dir(name) {
            Err(e) if !is_gone(&e) => {
                self.tally.fail(Error::os(Op::RemoveDirectory, shown, e));
                return false;
            }
            Err(_) => {}
            Ok(()) => {
                self.tally.dirs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                self.tally.item(Action::Removed, 0, || (PathBuf::new(), shown));
            }
        }
        true
    }

    /// Opens a directory that is to go. `None`: it is gone.
    ///
    /// # Errors
    /// It stays.
    fn open(&self, above: &EmptiedDir, path: &[u8], name: &NameBuf, of: &Version) -> Result<Option<Dir>> {
        let Some(parent) = &above.dir else { return Ok(None) };
        let opened = parent.open_dir(name.as_name()).and_then(|dir| Ok((Place::of(&dir)?, dir.info()?, dir)));
        let (place, info, dir) = match opened {
            Ok(opened) => opened,
            Err(e) if is_gone(&e) => return Ok(None),
            Err(e) => return Err(Error::os(Op::OpenDirectory, self.shown(path), e)),
        };
        let refused = |code, why: Reason| Err(Error::ours(code, Op::Remove, self.shown(path), why));
        match remove::beyond(&place, above.dev) {
            Some(why) => refused(Code::Refused, why),
            None if is_planned(of, &info) => Ok(Some(dir)),
            None => refused(Code::SourceChanged, Reason::ChangedWhileTaken),
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
        let opened = self.open(above, path, name, version);
        let (dir, stays) = match opened {
            Ok(dir) => (dir, false),
            Err(e) => {
                self.tally.fail(e);
                (None, true)
            }
        };
        Ok(EmptiedDir { dir, dev: above.dev, name: Some(name.clone()), stays })
    }

    fn entry(&mut self, _: &mut EmptiedDir, _: &[u8], _: &PlannedEntry, _: LandedEntry) -> Result<()> {
        Ok(())
    }

    fn leave(&mut self, level: EmptiedDir, path: &[u8], above: Option<&mut EmptiedDir>) -> Result<()> {
        let mut stays = level.stays;
        let Some(above) = above else {
            self.keeps_top = stays;
            return Ok(());
        };
        if let (false, Some(_), Some(parent), Some(name)) = (stays, &level.dir, &above.dir, &level.name) {
            stays = !self.remove(parent, name.as_name(), self.shown(path));
        }
        above.stays |= stays;
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
    let mut dev = 0;
    if let Some(top) = &top {
        the_planned_source(top, header)?;
        remove::guard(top, &path)?;
        dev = Place::of(top).map_err(|e| Error::os(Op::Stat, &path, e))?.dev;
    }
    let mut emptying = Emptying { path: &path, tally, keeps_top: false };
    let is_there = top.is_some();
    let top = EmptiedDir { dir: top, dev, name: None, stays: false };
    let counts = along((folder, header, plan), top, &mut emptying)?;
    if is_there && !emptying.keeps_top {
        let place = super::places::spot(&path, Op::Remove)?;
        emptying.remove(&place.place.dir, place.name.as_name(), path.clone());
    }
    let own = tally.summary();
    let (files, others) = (counts.files, counts.others);
    Ok(Finished { summary: Summary { files, others, ..own }, root: [0; 32] })
}
