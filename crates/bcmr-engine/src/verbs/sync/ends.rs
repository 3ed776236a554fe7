//! The two directories of a `sync`, and what must not be between them.
//!
//! Must not know what becomes of what is in them.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::node::{Node, os};
use crate::policy::{CopyPolicy, Old, Privileged, SyncRequest, Target};
use crate::receiver::claims::Spot;
use crate::sender::filter::Filter;
use crate::sender::walk::SourceDir;
use crate::verbs::keeping;
use crate::verbs::operands::{self, Dest, DestLink, Operand, Place, Reach, Source, Where};
use fastcopy::dir::Dir;
use std::io;
use std::path::{Path, PathBuf};

/// Both directories, opened once.
pub(super) struct SyncPair {
    pub(super) source: Dir,
    source_path: PathBuf,
    pub(super) dest: Dest,
}

impl SyncPair {
    /// The destination is `tree`, where that is open already.
    pub(super) fn of(request: &SyncRequest, policy: &CopyPolicy, tree: Option<Where>) -> Result<SyncPair> {
        let path = &request.source;
        let source = Dir::open(path).map_err(|e| match Code::of(&e) {
            Code::NotDirectory => {
                Error::ours(Code::NotDirectory, Op::Open, path, Reason::SourceIsNoDirectory)
            }
            _ => Error::os(Op::OpenDirectory, path, e),
        })?;
        let info = source.info().map_err(|e| Error::os(Op::Stat, path, e))?;
        let links = DestLink::Through;
        guard_kept(&source, policy)?;
        let to = match tree {
            Some(tree) => tree,
            None => {
                operands::make_path(&Reach::Anywhere, &Target::Exactly(request.dest.clone()), 1, policy)?;
                operands::contents(&Reach::Anywhere, &request.dest, links)?
            }
        };
        let dest = operands::dest(None, &info, &to, links)?;
        operands::nesting(&Reach::Anywhere, &info, true, &dest, policy, path, Op::Copy)?;
        if let (Dest::Whole(place), true) = (&dest, policy.mirror.deletes()) {
            guard_source(&source, &place.dir, (&place.node.path(), path))?;
        }
        Ok(SyncPair { source, source_path: path.clone(), dest })
    }

    /// The same, and the destination is there, if it is to be before anything comes into it.
    pub(super) fn made(self, policy: &CopyPolicy) -> Result<SyncPair> {
        let Dest::Named { dir, name } = &self.dest else { return Ok(self) };
        let made = keeping::made_first(policy, &Reach::Anywhere, (dir, name))?;
        let dest = made.map(Dest::Whole).unwrap_or(self.dest);
        Ok(SyncPair { dest, ..self })
    }

    /// The two as what a walk takes.
    pub(super) fn operand(&self, privileged: Privileged) -> Result<Operand> {
        let path = &self.source_path;
        // A handle is listed once.
        let dir = self.source.reopen().map_err(|e| Error::os(Op::OpenDirectory, path, e))?;
        let source = Source::Whole(SourceDir::top(dir, Node::root(path), privileged)?);
        let dest = match &self.dest {
            Dest::Named { dir, name } => Dest::Named { dir: dir.clone(), name: name.clone() },
            // What an earlier pass has put there is what is there.
            Dest::Whole(place) => {
                let dir = place.dir.try_clone();
                let dir = dir.map_err(|e| Error::os(Op::OpenTarget, place.node.path(), e))?;
                Dest::Whole(Place::of(dir, place.node.clone(), place.made_first))
            }
        };
        Ok(Operand { source, dest, path: path.clone(), spot: Spot::default() })
    }
}

/// Refuses to keep what is replaced in the source: it would change while it is read, and the next run would copy it. It may
/// be there where the filter leaves it out.
fn guard_kept(source: &Dir, policy: &CopyPolicy) -> Result<()> {
    let Old::Backup(path) = &policy.old else { return Ok(()) };
    let fail = |e| Error::os(Op::KeepOld, path, e);
    let (place, name) = match operands::contents(&Reach::Anywhere, path, DestLink::Through) {
        Ok(Where::Whole(place) | Where::Into(place)) => (place, None),
        Ok(Where::Name { dir, name, .. }) => (dir, Some(name)),
        // It is to be made right below a destination that is not there, or is refused as the destination is known.
        Err(_) => return Ok(()),
    };
    let is_another = || Ok(place.dir.info()?.dev != source.info()?.dev);
    if policy.one_file_system && is_another().map_err(fail)? || !lies_in(&place.dir, source).map_err(fail)? {
        return Ok(());
    }
    let filter = Filter::new(&policy.filter)?;
    let (kept, top) = (place.dir.whereabouts().map_err(fail)?, source.whereabouts().map_err(fail)?);
    let below = kept.strip_prefix(top).unwrap_or(Path::new(""));
    let below = name.map_or(below.to_owned(), |name| below.join(os(name.as_name())));
    // What files of rules say is known when they are read.
    let is_left_out = filter.asks_tree()
        || below.ancestors().any(|path| !path.as_os_str().is_empty() && filter.excludes(path, true, None));
    let refused = || Error::ours(Code::Refused, Op::KeepOld, path, Reason::KeptInSource);
    if is_left_out { Ok(()) } else { Err(refused()) }
}

/// M1: refuses to delete in a directory that the source is in.
pub(crate) fn guard_source(source: &Dir, dest: &Dir, (shown, path): (&Path, &Path)) -> Result<()> {
    match lies_in(source, dest).map_err(|e| Error::os(Op::Stat, path, e))? {
        true => Err(Error::ours(Code::Refused, Op::DeleteIn, shown, Reason::SourceBelowDestination)),
        false => Ok(()),
    }
}

/// Whether a directory is another one, or somewhere below it.
///
/// # Errors
/// What is above it cannot be found out.
pub(crate) fn lies_in(dir: &Dir, other: &Dir) -> io::Result<bool> {
    let other = other.info()?.id();
    let mut here = dir.try_clone()?;
    let mut id = here.info()?.id();
    loop {
        if id == other {
            return Ok(true);
        }
        here = match here.parent() {
            Ok(up) => up,
            // What may not be looked at cannot be deleted in either.
            Err(e) if Code::of(&e) == Code::Denied => return Ok(false),
            Err(e) => return Err(e),
        };
        let up = here.info()?.id();
        if up == id {
            return Ok(false); // the root is its own parent
        }
        id = up;
    }
}
