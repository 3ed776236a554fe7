//! The mark in a directory that an interrupted `copy -C -r SRC DST`, or a move to another file system, made: the same
//! command again means the same DST, and not DST/SRC, although DST is there now.
//!
//! Must not hold anything but which source it was: what is complete is seen from the files themselves.

use crate::disk::Disk;
use crate::receiver::land;
use crate::stage::Home;
use fastcopy::dir::NameBuf;
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
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

fn name<D: Disk>(disk: &D, dir: &D::Dir) -> io::Result<NameBuf> {
    let (info, born) = disk.identity(dir)?;
    let home = Home::of(&info, born, disk.keeps_identities(dir)?);
    home.tree().ok_or_else(|| io::Error::from_raw_os_error(errno::EINVAL))
}

/// Marks `dir` as what `source` becomes.
pub(crate) fn mark<D: Disk>(disk: &D, dir: &D::Dir, source: &Info) -> io::Result<()> {
    let name = name(disk, dir)?;
    let make = || land::small_private(disk, dir, name.as_name(), &encode(source));
    match make() {
        // Left by a run of another source.
        Err(e) if e.raw_os_error() == Some(errno::EEXIST) => {
            disk.remove_file(dir, name.as_name())?;
            make()?;
        }
        made => made?,
    }
    // After a power cut a directory without its mark would be taken for any other.
    disk.sync_dir(dir)
}

/// Whether nothing is in `dir`, of which this is the first look at its entries.
pub(crate) fn is_empty<D: Disk>(disk: &D, dir: &D::Dir) -> io::Result<bool> {
    Ok(disk.find(dir, 1, &|_| true)?.is_empty())
}

/// Whether `dir` is marked as what `source` becomes.
pub(crate) fn is_marked<D: Disk>(disk: &D, dir: &D::Dir, source: &Info) -> bool {
    let read = || -> io::Result<bool> {
        let file = disk.open_to_read(dir, name(disk, dir)?.as_name())?;
        let mut bytes = [0; BYTES + 1];
        let n = disk.read_at(&file, 0, &mut bytes)?;
        Ok(disk.file_info(&file)?.kind == Kind::File && bytes.get(..n) == Some(&encode(source)[..]))
    };
    // Whatever cannot be read is no mark: then the target means what it always means.
    read().unwrap_or(false)
}

/// Takes the mark away, and leaves the directory as it was otherwise: its times, and a mode in which its owner may not
/// write.
pub(crate) fn unmark<D: Disk>(disk: &D, dir: &D::Dir) -> io::Result<()> {
    let name = name(disk, dir)?;
    let was = disk.info(dir)?;
    if disk.look(dir, name.as_name())?.is_none() {
        return Ok(());
    }
    match disk.remove_file(dir, name.as_name()) {
        Err(e) if e.raw_os_error() == Some(errno::EACCES) => {
            disk.set_mode(dir, was.mode | 0o700)?;
            let removed = disk.remove_file(dir, name.as_name());
            disk.set_mode(dir, was.mode)?;
            removed
        }
        other => other,
    }?;
    disk.set_times(dir, was.atime, was.mtime)
}
