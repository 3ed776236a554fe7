//! `sessions`: what is unfinished below a directory, and taking it away.
//!
//! Must not touch what a running copy has locked, nor go through a link. Not the parallel walk of copies: that one brings
//! entries to a destination, and here there is none; directories are looked at one after the other, as `du` does.

use crate::disk::Dirs;
use crate::disk::sys::Sys;
use crate::error::{Code, Error, Op, Result};
use crate::event::{Cancel, Event, Summary, Unfinished, Watch, What};
use crate::node::{Node, os};
use crate::policy::Follow;
use crate::receiver::land;
use crate::receiver::resumable;
use crate::receiver::session;
use crate::receiver::tree;
use crate::sender::below::Descent;
use crate::sender::filter::Filter;
use crate::sender::level::Met;
use crate::sender::walk::SourceDir;
use crate::stage::{Home, Role};
use crate::tally::Tally;
use crate::verbs::snapshot::UnfinishedTree;
use fastcopy::dir::{Dir, ListBuffer, Lock, NameBuf, try_lock};
use fastcopy::meta::{Info, Kind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// More than the session of any file: what is longer is not read to its end.
const SESSION_BYTES_MAX: u64 = 1 << 30;

/// Tells what is unfinished below `dir` as [`Event::Unfinished`], and removes it when `clean` says so: sessions with
/// their stages, stages that a killed run left, the marks of interrupted trees, and snapshots that were not finished. What
/// a running copy has locked stays. A directory that something was taken out of keeps its times.
///
/// # Errors
/// When `dir` cannot be opened; what cannot be read or removed below it is told through `watch` and counted.
pub fn sessions(dir: &Path, clean: bool, watch: Watch<'_>) -> Result<Summary> {
    let tally = Tally::new(watch);
    let root = Dir::open(dir).map_err(|e| Error::os(Op::OpenDirectory, dir, e))?;
    let filter = Filter::all();
    let mut descent = Descent::new(false, &filter);
    let mut buffer = ListBuffer::new();
    let mut next = Some(SourceDir::root(root, Node::root(dir)));
    while let Some(opened) = next {
        if tally.cancelled() {
            break;
        }
        match opened {
            Ok(here) => directory(&here, &mut descent, &mut buffer, clean, &tally),
            // Gone meanwhile, or no directory any more.
            Err(e) if matches!(e.code, Code::NotFound | Code::NotDirectory | Code::Link) => {}
            Err(e) => tally.fail(e),
        }
        next = descent.next();
    }
    Ok(tally.summary())
}

/// Tells what is unfinished in one directory, and leaves those in it for later.
fn directory(
    here: &Arc<SourceDir>,
    descent: &mut Descent<'_>,
    buffer: &mut ListBuffer,
    clean: bool,
    tally: &Tally<'_>,
) {
    let path = here.node.path();
    let home = match land::home_of(&here.dir) {
        Ok(home) => home,
        Err(e) => return tally.fail(Error::os(Op::Stat, path, e)),
    };
    let (mut names, mut snapshot): (Vec<(NameBuf, Role)>, Option<NameBuf>) = (Vec::new(), None);
    // A handle is listed once, and the lock below must not be lost with a second one.
    let listed = here.list(buffer, Follow::Never, &Filter::all(), |met| {
        match met {
            Met::Entry { name, kind, .. } => match home.role(name) {
                Some(role) => names.push((name.to_owned(), role)),
                None if kind == Kind::Dir && UnfinishedTree::may_be(name) => snapshot = Some(name.to_owned()),
                None if kind == Kind::Dir => descent.leave(here, name),
                None => {}
            },
            Met::Failed(e) if e.code != Code::NotFound => tally.fail(e),
            Met::Failed(_) | Met::Excluded(_) => {}
        }
        !tally.cancelled()
    });
    if let Err(e) = listed {
        tally.fail(e);
    }
    let tell = |found: Result<Option<Unfinished>>| match found {
        Ok(Some(unfinished)) => {
            let removed = unfinished.removed;
            if removed {
                tally.others.fetch_add(1, Relaxed);
            }
            tally.watch.front.event(Event::Unfinished(unfinished));
            removed
        }
        Ok(None) => false,
        Err(e) => {
            tally.fail(e);
            false
        }
    };
    let was = here.dir.info();
    let mut has_changed = false;
    if let Some(name) = snapshot {
        match UnfinishedTree::found(&here.dir).map_err(failed(Op::OpenDirectory, &path, &name)) {
            Ok(None) => descent.leave(here, name.as_name()),
            Ok(Some(found)) => {
                has_changed |= tell(whole_snapshot(&found, &name, &path, clean, tally.watch.cancel));
            }
            Err(e) => tally.fail(e),
        }
    }
    for (name, role) in &names {
        has_changed |= tell(one(&here.dir, &home, name, *role, &path, clean));
    }
    // As a run that ends well does it: who looks for what has changed is not to find this.
    if has_changed && let Err(e) = was.and_then(|was| Sys::new().set_times(&here.dir, was.atime, was.mtime)) {
        tally.warn(Error::os(Op::SetTimesOf, path, e));
    }
}

/// A snapshot that no run has finished: the next one goes on with it.
fn whole_snapshot(
    found: &UnfinishedTree,
    name: &NameBuf,
    path: &Path,
    clean: bool,
    cancel: &Cancel,
) -> Result<Option<Unfinished>> {
    let removed = clean
        && !found.is_running
        && found.remove(cancel).map_err(failed(Op::RemoveUnfinished, path, name))?;
    let (last, running, path) = (found.info.mtime, found.is_running, path.join(os(name.as_name())));
    Ok(Some(Unfinished { what: What::Tree, path, recorded: 0, size: 0, last, running, removed }))
}

fn one(
    dir: &Dir,
    home: &Home,
    name: &NameBuf,
    role: Role,
    path: &Path,
    clean: bool,
) -> Result<Option<Unfinished>> {
    match role {
        Role::Tree => whole_tree(dir, name, path, clean),
        // A shard that is at work has the lock of the tree itself; between shards only the plan knows of it.
        Role::Plan => stage_of_plan(dir, name, path, clean),
        Role::Stage => stale_stage(dir, name, path, clean),
        Role::Session => one_session(dir, home, name, path, clean),
        Role::Part => orphan(dir, home, name, path, clean),
        Role::Manifest => manifest(dir, name, path, clean),
    }
}

/// Says for `name` in `path` what went wrong.
fn failed(op: Op, path: &Path, name: &NameBuf) -> impl Fn(std::io::Error) -> Error {
    let shown = path.join(os(name.as_name()));
    move |e| Error::os(op, &shown, e)
}

/// A directory that `copy -r` with sessions has not finished.
fn whole_tree(dir: &Dir, name: &NameBuf, path: &Path, clean: bool) -> Result<Option<Unfinished>> {
    let info = dir.stat(name.as_name()).map_err(failed(Op::Stat, path, name))?;
    if info.kind != Kind::File {
        return Ok(None);
    }
    // A run that fills a directory holds its lock.
    let lock = dir.reopen().map_err(failed(Op::Open, path, name))?;
    let running = lock.try_lock() == Lock::Busy;
    let removed = clean && !running;
    if removed {
        tree::unmark(&Sys::new(), dir).map_err(failed(Op::Remove, path, name))?;
    }
    let path = path.to_owned();
    Ok(Some(Unfinished { what: What::Tree, path, recorded: 0, size: 0, last: info.mtime, running, removed }))
}

/// A stage without a session: only the holder of the directory's lock makes these, so with the lock it is stale.
fn stale_stage(dir: &Dir, name: &NameBuf, path: &Path, clean: bool) -> Result<Option<Unfinished>> {
    let info = dir.stat(name.as_name()).map_err(failed(Op::Stat, path, name))?;
    let lock = dir.reopen().map_err(failed(Op::Open, path, name))?;
    let running = lock.try_lock() != Lock::Held;
    let removed = clean && !running;
    if removed {
        Sys::new().remove_tree(dir, name.as_name()).map_err(failed(Op::Remove, path, name))?;
    }
    let size = if info.kind == Kind::File { info.size } else { 0 };
    let path = path.join(os(name.as_name()));
    Ok(Some(Unfinished { what: What::Stage, path, recorded: 0, size, last: info.mtime, running, removed }))
}

/// A tree that the shards of a plan fill.
fn stage_of_plan(dir: &Dir, name: &NameBuf, path: &Path, clean: bool) -> Result<Option<Unfinished>> {
    let info = dir.stat(name.as_name()).map_err(failed(Op::Stat, path, name))?;
    if info.kind != Kind::Dir {
        return Ok(None);
    }
    let lock = dir.open_dir(name.as_name()).map_err(failed(Op::Open, path, name))?;
    let running = lock.try_lock() == Lock::Busy;
    let removed = clean && !running;
    if removed {
        Sys::new().remove_tree(dir, name.as_name()).map_err(failed(Op::Remove, path, name))?;
    }
    let path = path.join(os(name.as_name()));
    Ok(Some(Unfinished { what: What::Stage, path, recorded: 0, size: 0, last: info.mtime, running, removed }))
}

/// A stage whose session is gone: no run can go on with it. A run that makes one has made its session before.
fn orphan(dir: &Dir, home: &Home, name: &NameBuf, path: &Path, clean: bool) -> Result<Option<Unfinished>> {
    let session = home.beside(name.as_name(), Role::Session);
    let look = |name: &NameBuf| dir.look(name.as_name()).map_err(failed(Op::Stat, path, name));
    let Some(info) = look(name)? else { return Ok(None) };
    if session.map_or(Ok(None), |s| look(&s))?.is_some() {
        return Ok(None);
    }
    if clean {
        Sys::new().remove_tree(dir, name.as_name()).map_err(failed(Op::Remove, path, name))?;
    }
    let size = if info.kind == Kind::File { info.size } else { 0 };
    let path = path.join(os(name.as_name()));
    let last = info.mtime;
    Ok(Some(Unfinished { what: What::Stage, path, recorded: 0, size, last, running: false, removed: clean }))
}

/// A manifest that is not whole: the run that writes it has it locked.
fn manifest(dir: &Dir, name: &NameBuf, path: &Path, clean: bool) -> Result<Option<Unfinished>> {
    match dir.look(name.as_name()).map_err(failed(Op::Stat, path, name))? {
        Some(info) if info.kind == Kind::File => {}
        _ => return Ok(None),
    }
    let fd = dir.open_read_write(name.as_name()).map_err(failed(Op::Open, path, name))?;
    let info = Info::of(&fd).map_err(failed(Op::Stat, path, name))?;
    let running = try_lock(&fd) == Lock::Busy;
    let removed = clean && !running;
    if removed {
        dir.remove_file(name.as_name()).map_err(failed(Op::Remove, path, name))?;
    }
    let (path, size, last) = (path.join(os(name.as_name())), info.size, info.mtime);
    Ok(Some(Unfinished { what: What::Stage, path, recorded: 0, size, last, running, removed }))
}

fn one_session(
    dir: &Dir,
    home: &Home,
    name: &NameBuf,
    path: &Path,
    clean: bool,
) -> Result<Option<Unfinished>> {
    // Looked at before it is opened: a FIFO or a link is none of ours.
    match dir.look(name.as_name()).map_err(failed(Op::Stat, path, name))? {
        Some(info) if info.kind == Kind::File => {}
        _ => return Ok(None),
    }
    let fd: OwnedFd = dir.open_read_write(name.as_name()).map_err(failed(Op::Open, path, name))?;
    let info = Info::of(&fd).map_err(failed(Op::Stat, path, name))?;
    if info.kind != Kind::File {
        return Ok(None);
    }
    let mut bytes = vec![0; info.size.min(SESSION_BYTES_MAX) as usize];
    let n = fastcopy::read_write::read_full(&fd, 0, &mut bytes).map_err(failed(Op::Read, path, name))?;
    bytes.truncate(n);
    let running = try_lock(&fd) == Lock::Busy;
    let removed = clean && !running;
    if removed {
        let disk = Sys::new();
        if let Some(part) = home.beside(name.as_name(), Role::Part) {
            let shown = || path.join(os(part.as_name()));
            // Under the lock that is held here.
            resumable::abandon(&disk, dir, part.as_name(), name.as_name())
                .map_err(|f| f.told(shown, shown))?;
        }
    }
    let read = session::decode(&bytes);
    let size = read.as_ref().map_or(0, |s| s.header.source.size);
    let recorded =
        read.as_ref().map_or(0, |s| (s.blocks.len() as u64 * crate::blocks::BLOCK_BYTES).min(size));
    let target = read.and_then(|s| NameBuf::new(&s.header.name));
    let path = path.join(os(target.as_ref().unwrap_or(name).as_name()));
    Ok(Some(Unfinished { what: What::File, path, recorded, size, last: info.mtime, running, removed }))
}
