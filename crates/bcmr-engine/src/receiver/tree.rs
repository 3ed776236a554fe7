//! The mark in a directory that an interrupted `copy -C -r SRC DST`, or a move to another file system, made: the same
//! command again means the same DST, and not DST/SRC, although DST is there now.
//!
//! Must not hold anything but which source it was: what is complete is seen from the files themselves.

use crate::receiver::land;
use fastcopy::dir::{Dir, ListBuffer, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{self, Info, Kind};
use fastcopy::sync;
use std::io;

const MAGIC: &[u8; 8] = b"bcmrTRE1";
const BYTES: usize = 24;

fn encode(source: &Info) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    let fields = MAGIC.iter().copied().chain(source.dev.to_le_bytes()).chain(source.ino.to_le_bytes());
    for (slot, byte) in out.iter_mut().zip(fields) {
        *slot = byte;
    }
    out
}

fn name(dir: &Dir) -> io::Result<NameBuf> {
    land::home_of(dir)?.tree().ok_or_else(|| io::Error::from_raw_os_error(errno::EINVAL))
}

/// Marks `dir` as what `source` becomes.
pub(crate) fn mark(dir: &Dir, source: &Info) -> io::Result<()> {
    let name = name(dir)?;
    match dir.remove_file(name.as_name()) {
        Err(e) if e.raw_os_error() != Some(errno::ENOENT) => return Err(e),
        _ => {}
    }
    land::small_private(dir, name.as_name(), &encode(source))?;
    // After a power cut a directory without its mark would be taken for any other.
    sync::all(dir)
}

/// Whether nothing is in `dir`, which is listed to that end.
pub(crate) fn is_empty(dir: &Dir) -> io::Result<bool> {
    let mut empty = true;
    dir.list(&mut ListBuffer::new(), |_| {
        empty = false;
        false
    })?;
    Ok(empty)
}

/// Whether `dir` is marked as what `source` becomes.
pub(crate) fn is_marked(dir: &Dir, source: &Info) -> bool {
    let read = || -> io::Result<bool> {
        let fd = dir.open_file(name(dir)?.as_name())?;
        let mut bytes = [0; BYTES + 1];
        let n = fastcopy::read_write::read_full(&fd, 0, &mut bytes)?;
        Ok(Info::of(&fd)?.kind == Kind::File && bytes.get(..n) == Some(&encode(source)[..]))
    };
    // Whatever cannot be read is no mark: then the target means what it always means.
    read().unwrap_or(false)
}

/// Takes the mark away, and leaves the directory as it was otherwise: its times, and a mode in which its owner may not
/// write.
pub(crate) fn unmark(dir: &Dir) -> io::Result<()> {
    let name = name(dir)?;
    let was = dir.info()?;
    let removed = match dir.remove_file(name.as_name()) {
        Err(e) if e.raw_os_error() == Some(errno::EACCES) => {
            meta::set_mode(dir, was.mode | 0o700)?;
            let removed = dir.remove_file(name.as_name());
            meta::set_mode(dir, was.mode)?;
            removed
        }
        other => other,
    };
    match removed {
        Err(e) if e.raw_os_error() == Some(errno::ENOENT) => Ok(()),
        Err(e) => Err(e),
        Ok(()) => meta::set_times(dir, was.atime, was.mtime),
    }
}
