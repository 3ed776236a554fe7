//! Where a run keeps what it replaces and deletes: a directory that was named, or the user's trash.
//!
//! Must not know what is kept, nor when.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::policy::{CopyPolicy, Old, Sharing};
use crate::receiver::aside::{Aside, KeptIn, NamesDest, Trash};
use crate::receiver::land;
use crate::sender::operand::Reach;
use crate::verbs::operands::{self, DestLink, Place, Resolved, Where};
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::meta::{self, Kind};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// More levels than any path has.
const LEVELS_MAX: u32 = 1 << 16;
const STICKY: u32 = 0o1000;

/// What a run with this policy keeps of what is in `dest`; `None` where nothing is to be kept.
///
/// # Errors
/// It cannot be kept there.
pub(crate) fn aside(policy: &CopyPolicy, reach: &Reach, dest: &Place) -> Result<Option<Arc<Aside>>> {
    // A run that is refused makes nothing.
    foreseen(policy, reach, dest)?;
    let shown = dest.node.path();
    let kept_in = match &policy.old {
        Old::Goes => return Ok(None),
        Old::Backup(path) => KeptIn::Backup {
            dir: backup(reach, path)?,
            shown: path.clone(),
            names: if reach.is_confined() { NamesDest::FromReceipt } else { NamesDest::Whole },
        },
        Old::Trash { home, receipts, ahead } => {
            let trash = trash(&dest.dir, home, receipts, (*ahead, policy.me));
            let fail = |e| Error { note: Some(Reason::NoTrash.into()), ..Error::os(Op::KeepOld, &shown, e) };
            KeptIn::Trash(trash.map_err(fail)?)
        }
    };
    let aside = Aside::new(kept_in, (&dest.dir, &shown), policy.preserve.at_dest)?;
    Ok(Some(Arc::new(aside)))
}

/// Refuses a directory that [`aside`] or [`bases`] would refuse, and makes none.
///
/// # Errors
/// It cannot be kept there, or an earlier copy serves for nothing.
pub(crate) fn foreseen(policy: &CopyPolicy, reach: &Reach, dest: &Place) -> Result<()> {
    bases(policy, reach, &dest.dir)?;
    let Old::Backup(path) = &policy.old else { return Ok(()) };
    let place = match operands::contents(reach, path, DestLink::Through)? {
        Where::Whole(place) | Where::Into(place) => place,
        // It would be made in this one.
        Where::Name { dir, .. } if is_beside(&dir.dir, &dest.dir) => return Ok(()),
        Where::Name { dir, .. } => dir,
    };
    Aside::guard((&place.dir, path), (&dest.dir, &dest.node.path())).map(drop)
}

/// The same of a destination that is not there yet, and gets this name.
///
/// # Errors
/// As [`foreseen`].
pub(crate) fn foreseen_new(
    policy: &CopyPolicy,
    reach: &Reach,
    (above, name): (&Place, &NameBuf),
) -> Result<()> {
    bases(policy, reach, &above.dir)?;
    let Old::Backup(path) = &policy.old else { return Ok(()) };
    let at = |path: &Path| operands::contents(reach, path, DestLink::Through);
    let id = |dir: &Dir| dir.info().map(|info| info.id()).ok();
    let is_dest = |to: &Where| match to {
        Where::Name { dir, name: last, .. } => last == name && id(&dir.dir) == id(&above.dir),
        Where::Whole(_) | Where::Into(_) => false,
    };
    let refuse = |why| Err(Error::ours(Code::Refused, Op::KeepOld, path, why));
    match at(path) {
        Ok(to) if is_dest(&to) => refuse(Reason::KeptInDestination),
        Ok(Where::Whole(place) | Where::Into(place) | Where::Name { dir: place, .. }) => {
            if is_beside(&place.dir, &above.dir) { Ok(()) } else { refuse(Reason::KeptElsewhere) }
        }
        // It is to be made right below the destination.
        Err(_) if path.parent().and_then(|above| at(above).ok()).is_some_and(|to| is_dest(&to)) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Makes a destination that gets this name, where it is to be there before anything comes into it: it is compared with
/// earlier copies, or what a run makes in it is to be undone. `None` where it comes as a whole.
///
/// # Errors
/// It cannot be made, or nothing can be kept of it.
pub(crate) fn made_first(
    policy: &CopyPolicy,
    reach: &Reach,
    (above, name): (&Place, &NameBuf),
) -> Result<Option<Arc<Place>>> {
    if policy.dry_run || !policy.mirror.is_on() || policy.bases.is_empty() && policy.old == Old::Goes {
        return Ok(None);
    }
    foreseen_new(policy, reach, (above, name))?;
    let shown = above.node.join(name.as_name());
    land::ensure_dir(&above.dir, name.as_name(), 0o700)
        .map_err(|e| Error::os(Op::MakeDirectory, &shown, e))?;
    let made = above.dir.open_dir(name.as_name()).map_err(|e| Error::os(Op::OpenTarget, &shown, e))?;
    Ok(Some(operands::made_place(made, &shown)))
}

/// The same of a target that was resolved.
///
/// # Errors
/// As [`made_first`].
pub(crate) fn resolved_first(policy: &CopyPolicy, reach: &Reach, mut target: Resolved) -> Result<Resolved> {
    if let Where::Name { dir, name, .. } = &target.to
        && let Some(made) = made_first(policy, reach, (dir, name))?
    {
        target.to = Where::Whole(made);
    }
    Ok(target)
}

/// What would hold that which a run keeps, if it is there by now: a dry run spares it too.
pub(crate) fn spared(policy: &CopyPolicy, reach: &Reach, dest: &Place) -> Option<(u64, u64)> {
    let dir = match &policy.old {
        Old::Goes => return None,
        Old::Backup(path) => reach.dir(path).ok()?,
        Old::Trash { home, .. } => {
            let home = Dir::open(home).ok().filter(|dir| is_beside(dir, &dest.dir));
            home.or_else(|| Some(top_trash(&dest.dir, policy.me, false).ok()?.0))?
        }
    };
    Some(dir.info().ok()?.id())
}

/// The earlier copies that files may become links to.
///
/// # Errors
/// One of them cannot be opened, or hard links are wanted and it is on another file system than `dest`.
pub(crate) fn bases(policy: &CopyPolicy, reach: &Reach, dest: &Dir) -> Result<Vec<Arc<Dir>>> {
    let opened = |path: &PathBuf| {
        let dir = reach.dir(path).map_err(|e| Error::os(Op::OpenDirectory, path, e))?;
        match policy.sharing == Sharing::Blocks || is_beside(&dir, dest) {
            true => Ok(Arc::new(dir)),
            false => Err(Error::ours(Code::Refused, Op::OpenDirectory, path, Reason::BasisElsewhere)),
        }
    };
    policy.bases.iter().map(opened).collect()
}

/// The directory that was named, made where it is not there.
fn backup(reach: &Reach, path: &Path) -> Result<Dir> {
    let fail = |op| move |e| Error::os(op, path, e);
    match operands::contents(reach, path, DestLink::Through)? {
        Where::Whole(place) | Where::Into(place) => place.dir.try_clone().map_err(fail(Op::Open)),
        Where::Name { dir, name, .. } => {
            land::ensure_dir(&dir.dir, name.as_name(), 0o700).map_err(fail(Op::MakeDirectory))?;
            dir.dir.open_dir(name.as_name()).map_err(fail(Op::OpenDirectory))
        }
    }
}

/// Opens a directory of the user's own, and makes what lacks of its path.
pub(crate) fn made(path: &Path) -> io::Result<Dir> {
    match (Dir::open(path), path.parent(), path.file_name()) {
        (Err(e), Some(parent), Some(name)) if Code::of(&e) == Code::NotFound => {
            let above = made(parent)?;
            let name = NameBuf::new(name.as_bytes()).ok_or(e)?;
            land::ensure_dir(&above, name.as_name(), 0o700)?;
            above.open_dir(name.as_name())
        }
        (opened, ..) => opened,
    }
}

fn is_beside(dir: &Dir, dest: &Dir) -> bool {
    matches!((dir.info(), dest.info()), (Ok(dir), Ok(dest)) if dir.dev == dest.dev)
}

/// The user's own trash where the destination is on its file system, else the one of that file system.
fn trash(dest: &Dir, home: &Path, receipts: &Path, (ahead, me): (i64, u32)) -> io::Result<Trash> {
    let own = made(home).ok().filter(|dir| is_beside(dir, dest));
    let (dir, top) = match own {
        Some(dir) => (dir, None),
        None => top_trash(dest, me, true).map(|(dir, top)| (dir, Some(top)))?,
    };
    let part = |name: &[u8]| {
        let name = NameBuf::new(name).ok_or(io::ErrorKind::InvalidInput)?;
        land::ensure_dir(&dir, name.as_name(), 0o700)?;
        dir.open_dir(name.as_name())
    };
    let (files, info) = (part(b"files")?, part(b"info")?);
    let receipts_shown = receipts.to_owned();
    Ok(Trash { dir, files, info, top, receipts: made(receipts)?, receipts_shown, ahead })
}

/// The trash of this user at the top of a file system, and where that top is. What an administrator has made for all is
/// used only if it is what it should be: a directory, sticky, and the user's own below it.
fn top_trash(dest: &Dir, me: u32, makes: bool) -> io::Result<(Dir, PathBuf)> {
    let mut top = dest.try_clone()?;
    for _ in 0..LEVELS_MAX {
        let place = meta::Place::of(&top)?;
        let up = top.parent()?;
        let above = meta::Place::of(&up)?;
        if place.mount_root == Some(true) || above.dev != place.dev || above.id() == place.id() {
            break;
        }
        top = up;
    }
    let whole = top.whereabouts()?;
    let name = |text: String| NameBuf::new(text.as_bytes()).ok_or(io::ErrorKind::InvalidInput);
    let opened = |above: &Dir, name: &NameBuf| -> io::Result<Dir> {
        if makes {
            land::ensure_dir(above, name.as_name(), 0o700)?;
        }
        let dir = above.open_dir(name.as_name())?;
        let info = dir.info()?;
        let is_own = info.uid == me && info.mode & 0o022 == 0;
        if is_own { Ok(dir) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    };
    let of_all = name(".Trash".to_owned())?;
    if let Some(there) = top.look(of_all.as_name())?
        && there.kind == Kind::Dir
        && there.mode & STICKY != 0
        && let Ok(dir) = top.open_dir(of_all.as_name())
        && let Ok(own) = opened(&dir, &name(me.to_string())?)
    {
        return Ok((own, whole));
    }
    Ok((opened(&top, &name(format!(".Trash-{me}"))?)?, whole))
}
