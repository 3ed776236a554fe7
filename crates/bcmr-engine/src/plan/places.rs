//! Where things of a plan are: the destination's directory, the tree that shards fill, and directories below it.
//!
//! Must not make anything.

use super::format::PlanHeader;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::policy::Target;
use crate::verbs::operands::{self, DestLink, Place, Reach, Where};
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::errno;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a directory that is to be made goes.
pub(super) struct Spot {
    pub(super) place: Arc<Place>,
    pub(super) name: NameBuf,
}

/// The place of what `path` names, there or not.
pub(super) fn spot(path: &Path, op: Op) -> Result<Spot> {
    let target = Target::Exactly(path.to_owned());
    match operands::target_for(op, &Reach::Anywhere, &target, 1, DestLink::Itself)? {
        Where::Name { dir, name, .. } => Ok(Spot { place: dir, name }),
        Where::Into(_) | Where::Whole(_) => Err(Error::ours(Code::Usage, op, path, Reason::EmptyName)),
    }
}

/// What is compared, there or not.
pub(super) fn compared(path: &Path) -> Result<Where> {
    operands::target(&Reach::Anywhere, &Target::Exactly(path.to_owned()), 1, DestLink::Through)
}

/// The directory of the destination, and the path of the tree in it that shards fill.
pub(super) fn stage_place(header: &PlanHeader) -> Result<(Dir, PathBuf)> {
    let destination = Path::new(OsStr::from_bytes(&header.destination));
    let spot = spot(destination, Op::CopyTo)?;
    let path = spot.place.node.join(header.stage.as_name());
    let dir = spot.place.dir.try_clone().map_err(|e| Error::os(Op::Open, &path, e))?;
    Ok((dir, path))
}

/// Opens the tree that shards fill.
pub(super) fn open_stage(header: &PlanHeader) -> Result<(Dir, Dir, PathBuf)> {
    let (parent, path) = stage_place(header)?;
    match parent.open_dir_readable(header.stage.as_name()) {
        Ok(stage) => Ok((parent, stage, path)),
        Err(e) if e.raw_os_error() == Some(errno::ENOENT) => {
            Err(Error::ours(Code::NotFound, Op::Open, path, Reason::StageOfPlanGone))
        }
        Err(e) => Err(Error::os(Op::OpenDirectory, path, e)),
    }
}

/// M1: the source is the very directory that was planned, and not what is there while it is not mounted.
pub(super) fn the_planned_source(src: &Dir, header: &PlanHeader) -> Result<()> {
    let path = PathBuf::from(OsStr::from_bytes(&header.source));
    let info = src.info().map_err(|e| Error::os(Op::Stat, &path, e))?;
    match info.ino == header.top.ino {
        true => Ok(()),
        false => Err(Error::ours(Code::Refused, Op::OpenDirectory, path, Reason::SourceIsAnother)),
    }
}

/// Opens a directory of a plan below `top`, through no link.
pub(super) fn below(top: &Dir, path: &[u8]) -> io::Result<Dir> {
    if path.is_empty() {
        return top.reopen();
    }
    let long = path.len() >= PATH_BYTES_MAX;
    if !long {
        return top.open_beneath(&CString::new(path)?);
    }
    // Longer than the kernel takes at once.
    let mut here = top.try_clone()?;
    for part in path.split(|b| *b == b'/') {
        let name = NameBuf::new(part).ok_or(io::ErrorKind::InvalidInput)?;
        here = here.open_dir_readable(name.as_name())?;
    }
    Ok(here)
}

/// Whether there is no such directory: nothing, or something else.
pub(super) fn is_other(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(errno::ENOENT | errno::ENOTDIR | errno::ELOOP))
}

/// Paths shorter than this are opened by one call.
const PATH_BYTES_MAX: usize = 4000;
