//! The tree without a name beside the destination of a plan: made, filled by shards, given its name in the end.
//!
//! Must not know what a plan is, nor what fills the tree. What it is called follows from the directory that it is in and from a
//! hash that the caller knows, so it is not chosen by the client that names paths.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::policy::Target;
use crate::receiver::land;
use crate::verbs::operands::{self, DestLink, Place, Reach, Where};
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use fastcopy::process::effective_user;
use fastcopy::sync;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which of its names come in one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeNames {
    /// Some: other processes bring others, and nothing is ended.
    Some,
    /// All there are: what else is in it is told, and directories get what their sources have.
    All,
    /// Some, and it has its name: a directory that several processes bring up to date, or compare with the source. What its
    /// directories are like is dealt with in the end.
    Round,
}

/// Such a tree, there or not.
pub(crate) struct NamelessTree {
    place: Arc<Place>,
    /// What it becomes.
    to: NameBuf,
    /// What it is called until then.
    pub(crate) name: NameBuf,
    /// The path that it becomes.
    shown: PathBuf,
}

impl NamelessTree {
    /// The tree of the plan with this hash which becomes `path`.
    ///
    /// # Errors
    /// The directory of `path` cannot be reached, or `path` has no name.
    pub(crate) fn of(reach: &Reach, path: &Path, plan: &[u8; 32]) -> Result<NamelessTree> {
        let target = Target::Exactly(path.to_owned());
        let Where::Name { dir, name, .. } = operands::target(reach, &target, 1, DestLink::Itself)? else {
            return Err(Error::ours(Code::Usage, Op::CopyTo, path, Reason::EmptyName));
        };
        NamelessTree::beside(dir, name, plan)
    }

    /// The same where its place is known.
    ///
    /// # Errors
    /// The directory cannot be looked at.
    pub(crate) fn beside(place: Arc<Place>, to: NameBuf, plan: &[u8; 32]) -> Result<NamelessTree> {
        let shown = place.node.join(to.as_name());
        let home = land::home_of(&place.dir).map_err(|e| Error::os(Op::Stat, place.node.path(), e))?;
        let none = || Error::ours(Code::Io, Op::NameAStageFor, &shown, Reason::NoNameForStage);
        let name = home.plan(plan).ok_or_else(none)?;
        Ok(NamelessTree { place, to, name, shown })
    }

    /// Its path until it has its name.
    pub(crate) fn path(&self) -> PathBuf {
        self.place.node.join(self.name.as_name())
    }

    fn fail(&self, op: Op) -> impl Fn(io::Error) -> Error + use<> {
        let shown = self.shown.clone();
        move |e| Error::os(op, &shown, e)
    }

    fn gone(&self) -> Error {
        Error::ours(Code::NotFound, Op::Open, self.path(), Reason::StageOfPlanGone)
    }

    /// Makes it, unless it is there.
    ///
    /// # Errors
    /// It cannot be made, or another user has made it, who could put anything into it.
    pub(crate) fn make(&self) -> Result<Info> {
        let made = land::ensure_dir(&self.place.dir, self.name.as_name(), 0o700);
        let made = made.map_err(|e| Error::os(Op::MakeDirectory, self.path(), e))?;
        let found = self.find()?;
        if !made && found.uid != effective_user() {
            let why = Reason::UnfinishedOfAnotherUser;
            return Err(Error::ours(Code::Refused, Op::MakeDirectory, self.path(), why));
        }
        Ok(found)
    }

    /// What it is.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn find(&self) -> Result<Info> {
        let there = self.place.dir.look(self.name.as_name()).map_err(self.fail(Op::Stat))?;
        there.filter(|info| info.kind == Kind::Dir).ok_or_else(|| self.gone())
    }

    /// Opens it.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn open(&self) -> Result<Dir> {
        match self.place.dir.open_dir_readable(self.name.as_name()) {
            Err(e) if e.raw_os_error() == Some(errno::ENOENT) => Err(self.gone()),
            opened => opened.map_err(|e| Error::os(Op::OpenDirectory, self.path(), e)),
        }
    }

    /// Gives what has the path `first` in it the further name `path`, making the directories that lead there. Again is no
    /// error.
    ///
    /// # Errors
    /// It cannot be done.
    pub(crate) fn link(&self, top: &Dir, first: &[u8], path: &[u8]) -> Result<()> {
        let linked = (|| -> io::Result<()> {
            let ((from, of), (to, name)) = (parent(top, first, false)?, parent(top, path, true)?);
            match land::second_name(&from, of.as_name(), &to, name.as_name()) {
                Err(e) if e.raw_os_error() == Some(errno::EEXIST) => {
                    let is_same = from.stat(of.as_name())?.id() == to.stat(name.as_name())?.id();
                    if is_same { Ok(()) } else { Err(e) }
                }
                other => other,
            }
        })();
        linked.map_err(|e| Error::os(Op::MakeHardLink, self.shown.join(OsStr::from_bytes(path)), e))
    }

    /// R2: gives it its name, once all of it is on stable storage, if it has the inode `ino`. Again is no error.
    ///
    /// # Errors
    /// It is another one, or something has the name: nothing was changed.
    pub(crate) fn publish(&self, ino: u64) -> Result<Info> {
        let (dir, to) = (&self.place.dir, self.to.as_name());
        let stage = dir.look(self.name.as_name()).map_err(self.fail(Op::Stat))?;
        let there = dir.look(to).map_err(self.fail(Op::Stat))?;
        match (stage, there) {
            // An earlier run has given it its name and was stopped before it could say so.
            (None, Some(there)) if there.kind == Kind::Dir && there.ino == ino => Ok(there),
            (Some(stage), None) if stage.ino == ino => {
                sync::filesystem(&self.open()?).map_err(self.fail(Op::SyncTheFileSystemOf))?;
                land::give_name(dir, self.name.as_name(), dir, to, true)
                    .map_err(self.fail(Op::PublishDirectory))?;
                sync::all(dir).map_err(self.fail(Op::SyncDirectoryOf))?;
                Ok(stage)
            }
            (Some(_), Some(_)) => {
                let why = Reason::DestinationIsThere;
                Err(Error::ours(Code::InTheWay, Op::PublishDirectory, &self.shown, why))
            }
            _ => Err(self.gone()),
        }
    }
}

/// The directory of what has this path below `top`, through no link, and its name.
fn parent(top: &Dir, path: &[u8], makes: bool) -> io::Result<(Dir, NameBuf)> {
    let bad = || io::Error::from(io::ErrorKind::InvalidInput);
    let mut parts = path.split(|b| *b == b'/');
    let last = parts.next_back().and_then(NameBuf::new).ok_or_else(bad)?;
    let mut here = top.try_clone()?;
    for part in parts {
        let name = NameBuf::new(part).ok_or_else(bad)?;
        if makes {
            land::ensure_dir(&here, name.as_name(), 0o700)?;
        }
        here = here.open_dir(name.as_name())?;
    }
    Ok((here, last))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;

    /// What has the name of the tree by the time it is published, and is not the one that was filled, is no end of the plan.
    #[test]
    fn only_the_tree_that_was_filled_gets_the_name() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("whole");
        let tree = NamelessTree::of(&Reach::Anywhere, &path, &[7; 32]).unwrap();
        let filled = tree.make().unwrap();
        std::fs::rename(tree.path(), tmp.path().join("filled")).unwrap();
        let another = tree.make().unwrap();
        assert_eq!(tree.publish(filled.ino).unwrap_err().code, Code::NotFound);
        assert!(!path.exists() && tree.path().exists());
        // The twin: that one by its own inode, and once more.
        for _ in 0..2 {
            assert_eq!(tree.publish(another.ino).unwrap().ino, another.ino);
        }
        assert!(path.is_dir() && !tree.path().exists());
        assert_eq!(tree.publish(filled.ino).unwrap_err().code, Code::NotFound);
    }
}
