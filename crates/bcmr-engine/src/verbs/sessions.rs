//! `sessions`: what is unfinished below a directory, and taking it away.
//!
//! Must not touch what a running copy has locked.

use crate::error::{Error, Result};
use crate::event::Watch;
use crate::node::os;
use crate::receiver::resumable;
use crate::receiver::session;
use crate::receiver::stage;
use crate::tally::Tally;
use fastcopy::dir::{Dir, ListBuffer, Lock, NameBuf};
use fastcopy::meta::{Info, Kind, Time};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// One unfinished copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The name that it is to have.
    pub path: PathBuf,
    /// Bytes recorded as being on the medium.
    pub recorded: u64,
    /// Bytes of the whole.
    pub size: u64,
    /// When something was last recorded.
    pub last: Time,
    /// A copy is at it right now.
    pub running: bool,
    /// It was removed.
    pub removed: bool,
}

/// Lists what is unfinished below `dir`, and removes it when `clean` says so: sessions with their stages, and stages
/// that a killed run left. What a running copy has locked stays.
///
/// # Errors
/// When `dir` cannot be opened; what cannot be read below it is told through `watch`.
pub fn sessions(dir: &Path, clean: bool, watch: Watch<'_>) -> Result<Vec<Unfinished>> {
    let tally = Tally::new(watch);
    let root = Dir::open(dir).map_err(|e| Error::os("open directory", dir, e))?;
    let mut found = Vec::new();
    let mut stack = vec![(root, dir.to_owned())];
    let mut buffer = ListBuffer::new();
    while let Some((here, path)) = stack.pop() {
        if tally.cancelled() {
            break;
        }
        let mut names: Vec<NameBuf> = Vec::new();
        let mut inner: Vec<NameBuf> = Vec::new();
        let listed = here.list(&mut buffer, |entry| {
            if entry.name.bytes().starts_with(b".bcmr-") {
                names.push(entry.name.to_owned());
            } else if matches!(entry.kind, Some(Kind::Dir) | None) {
                inner.push(entry.name.to_owned());
            }
            true
        });
        if let Err(e) = listed {
            tally.fail(Error::os("list directory", &path, e));
        }
        for name in &names {
            match one(&here, name, &path, clean) {
                Ok(Some(unfinished)) => found.push(unfinished),
                Ok(None) => {}
                Err(e) => tally.fail(e),
            }
        }
        for name in inner {
            // What cannot be opened is no directory after all, or none of ours: nothing unfinished is known there.
            if let Ok(dir) = here.open_dir_readable(name.as_name()) {
                stack.push((dir, path.join(os(name.as_name()))));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn one(dir: &Dir, name: &NameBuf, path: &Path, clean: bool) -> Result<Option<Unfinished>> {
    let shown = path.join(os(name.as_name()));
    let fail = |op: &'static str| {
        let shown = shown.clone();
        move |e| Error::os(op, shown, e)
    };
    if stage::is_known(name.as_name()) {
        // Only the holder of the directory's lock makes these: when we get the lock, it is stale.
        let stale = dir.reopen().map_err(fail("open"))?.try_lock() == Lock::Held;
        let info = dir.stat(name.as_name()).map_err(fail("stat"))?;
        if clean && stale {
            use crate::disk::Disk;
            crate::disk::sys::Sys::new().remove_tree(dir, name.as_name()).map_err(fail("remove"))?;
        }
        let size = if info.kind == Kind::File { info.size } else { 0 };
        let removed = clean && stale;
        return Ok(Some(Unfinished {
            path: shown,
            recorded: 0,
            size,
            last: info.mtime,
            running: !stale,
            removed,
        }));
    }
    if !name.bytes().ends_with(b".session") || name.bytes() == stage::TREE {
        return Ok(None);
    }
    let fd: OwnedFd = dir.open_read_write(name.as_name()).map_err(fail("open"))?;
    let info = Info::of(&fd).map_err(fail("stat"))?;
    const SESSION_BYTES_MAX: u64 = 1 << 30;
    let mut bytes = vec![0; info.size.min(SESSION_BYTES_MAX) as usize];
    let n = fastcopy::read_write::read_full(&fd, 0, &mut bytes).map_err(fail("read"))?;
    bytes.truncate(n);
    let running = fastcopy::dir::try_lock(&fd) == Lock::Busy;
    let Some(read) = session::decode(&bytes) else {
        return Ok(Some(Unfinished {
            path: shown,
            recorded: 0,
            size: 0,
            last: info.mtime,
            running,
            removed: false,
        }));
    };
    let size = read.header.source.size;
    let recorded = (read.blocks.len() as u64 * crate::blocks::BLOCK_BYTES).min(size);
    let target = NameBuf::new(&read.header.name);
    let mut removed = false;
    if let (true, false, Some(target)) = (clean, running, &target) {
        drop(fd);
        resumable::sweep(&crate::disk::sys::Sys::new(), dir, target.as_name())
            .map_err(|f| f.told(|| shown.clone(), || shown.clone()))?;
        removed = true;
    }
    let path = target.map_or(shown, |t| path.join(os(t.as_name())));
    Ok(Some(Unfinished { path, recorded, size, last: info.mtime, running, removed }))
}
