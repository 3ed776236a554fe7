//! The mark in a directory that an interrupted `copy -C -r SRC DST`, or a move to another file system, made: the same
//! command again means the same DST, and not DST/SRC, although DST is there now.
//!
//! Must not hold anything but which source it was, and whether a move has begun to take it away (R8): what is complete is
//! seen from the files themselves.

use crate::disk::Disk;
use crate::error::Code;
use crate::receiver::dest::MoveState;
use crate::stage::Home;
use fastcopy::dir::NameBuf;
use fastcopy::errno;
use fastcopy::meta::{Info, Kind, Time};
use std::io;
use std::time::{Duration, SystemTime};

const MAGIC: &[u8; 8] = b"bcmrTRE1";
const BYTES: usize = 24;
/// What a move adds: when it began, and a checksum of all before it.
const LANDED_BYTES: usize = BYTES + 12 + 8;
/// A file that is touched gets the time of the kernel's last tick, or of a server's clock.
const CLOCK_SLACK: Duration = Duration::from_secs(2);

fn encode(source: &Info) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    let fields = MAGIC.iter().copied().chain(source.dev.to_le_bytes()).chain(source.ino.to_le_bytes());
    for (slot, byte) in out.iter_mut().zip(fields) {
        *slot = byte;
    }
    out
}

fn name<D: Disk>(disk: &D, dir: &D::Dir) -> io::Result<NameBuf> {
    let (info, btime) = disk.identity(dir)?;
    let home = Home::of(&info, btime, disk.keeps_identities(dir)?);
    home.tree().ok_or_else(|| io::Error::from_raw_os_error(errno::EINVAL))
}

/// Marks `dir` as what `source` becomes.
pub(crate) fn mark<D: Disk>(disk: &D, dir: &D::Dir, source: &Info) -> io::Result<()> {
    let name = name(disk, dir)?;
    let make = || disk.small_private(dir, name.as_name(), &encode(source));
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

/// Whether nothing is in `dir` but what a run left of a mark that was killed while it made it: then nothing else came into it.
pub(crate) fn is_empty_or_torn<D: Disk>(disk: &D, dir: &D::Dir) -> io::Result<bool> {
    let found = disk.find(dir, 2, &|_| true)?;
    let [only] = found.as_slice() else { return Ok(found.is_empty()) };
    if *only != name(disk, dir)? {
        return Ok(false);
    }
    // A power cut may leave its length and zeros.
    let is_torn = |mark: Vec<u8>| mark.len() < BYTES || mark.iter().all(|byte| *byte == 0);
    Ok(content(disk, dir)?.is_some_and(is_torn))
}

/// Whether `dir` is marked as what `source` becomes.
pub(crate) fn is_marked<D: Disk>(disk: &D, dir: &D::Dir, source: &Info) -> bool {
    stand(disk, dir, source).is_some()
}

/// How far `dir` has come, if it is marked as what `source` becomes. Whatever cannot be read is no mark: then the target
/// means what it always means.
pub(crate) fn stand<D: Disk>(disk: &D, dir: &D::Dir, source: &Info) -> Option<MoveState> {
    read_stand(disk, dir, source).unwrap_or(None)
}

/// The same for a move, which takes sources away by it: a disk that fails to read is an error.
///
/// # Errors
/// EIO and what else the disk itself fails with.
pub(crate) fn read_stand<D: Disk>(disk: &D, dir: &D::Dir, source: &Info) -> io::Result<Option<MoveState>> {
    Ok(content(disk, dir)?.and_then(|mark| decode(&mark, source)))
}

/// What the mark of `dir` holds; `None` where there is no such file, or it cannot be read.
///
/// # Errors
/// EIO and what else the disk itself fails with.
fn content<D: Disk>(disk: &D, dir: &D::Dir) -> io::Result<Option<Vec<u8>>> {
    let read = || {
        let file = disk.open_to_read(dir, name(disk, dir)?.as_name())?;
        let mut bytes = vec![0; LANDED_BYTES];
        let n = disk.read_at(&file, 0, &mut bytes)?;
        bytes.truncate(n);
        Ok((disk.file_info(&file)?.kind == Kind::File).then_some(bytes))
    };
    match read() {
        Err(e) if Code::of(&e) != Code::Io => Ok(None),
        read => read,
    }
}

/// A power cut may leave a part of what a move adds: then nothing was taken away yet.
fn decode(bytes: &[u8], source: &Info) -> Option<MoveState> {
    let added = bytes.strip_prefix(&encode(source)[..])?;
    let Some((sec, rest)) = added.split_first_chunk() else { return Some(MoveState::Filling) };
    let Some((nsec, sum)) = rest.split_first_chunk() else { return Some(MoveState::Filling) };
    let since = Time { sec: i64::from_le_bytes(*sec), nsec: u32::from_le_bytes(*nsec) };
    Some(if sum == checksum(source, since) { MoveState::Landed { since } } else { MoveState::Filling })
}

fn checksum(source: &Info, since: Time) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&encode(source)).update(&since.sec.to_le_bytes()).update(&since.nsec.to_le_bytes());
    let mut sum = [0; 8];
    hasher.finalize_xof().fill(&mut sum);
    sum
}

/// The time that a run which begins now enters as its own.
pub(crate) fn begins() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let since = since.saturating_sub(CLOCK_SLACK);
    Time { sec: since.as_secs().try_into().unwrap_or(i64::MAX), nsec: since.subsec_nanos() }
}

/// R8: says in the mark of `dir`, durably, that all that can land of `source` has, for a run that began at `since`. Only
/// then something of it is taken away.
pub(crate) fn landed<D: Disk>(disk: &D, dir: &D::Dir, source: &Info, since: Time) -> io::Result<()> {
    let name = name(disk, dir)?;
    // Its owner may not enter it by now.
    let file = with_access(disk, dir, || disk.open_file(dir, name.as_name()))?;
    let file = file.ok_or_else(|| io::Error::from_raw_os_error(errno::ENOENT))?;
    let mut added = [0; LANDED_BYTES - BYTES];
    let time = since.sec.to_le_bytes().into_iter().chain(since.nsec.to_le_bytes());
    for (slot, byte) in added.iter_mut().zip(time.chain(checksum(source, since))) {
        *slot = byte;
    }
    disk.write_at(&file, BYTES as u64, &added)?;
    disk.sync_file(&file)
}

/// Does something in `dir`, where need be with a mode that lets its owner do it.
fn with_access<D: Disk, T>(disk: &D, dir: &D::Dir, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match act() {
        Err(e) if e.raw_os_error() == Some(errno::EACCES) => {
            let was = disk.info(dir)?;
            disk.set_mode(dir, was.mode | 0o700)?;
            let done = act();
            disk.set_mode(dir, was.mode)?;
            done
        }
        other => other,
    }
}

/// Takes the mark away, and leaves the directory as it was otherwise: its times, and a mode in which its owner may not
/// write.
pub(crate) fn unmark<D: Disk>(disk: &D, dir: &D::Dir) -> io::Result<()> {
    let name = name(disk, dir)?;
    let was = disk.info(dir)?;
    if with_access(disk, dir, || disk.look(dir, name.as_name()))?.is_none() {
        return Ok(());
    }
    with_access(disk, dir, || disk.remove_file(dir, name.as_name()))?;
    disk.set_times(dir, was.atime, was.mtime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sys::Sys;
    use fastcopy::dir::Dir;

    /// A mark says that taking away has begun only when all of that is there; any part of it, as a power cut leaves it,
    /// says that it has not, and a mark of another source says nothing.
    #[test]
    fn only_a_whole_mark_says_that_all_has_landed() {
        let (tmp, disk) = (tempfile::tempdir().unwrap(), Sys::new());
        let dir = Dir::open(tmp.path()).unwrap();
        let source = Info { ino: 77, ..dir.info().unwrap() };
        let other = Info { ino: 78, ..source };
        let stands = || (stand(&disk, &dir, &source), stand(&disk, &dir, &other));
        assert_eq!(stands(), (None, None));
        mark(&disk, &dir, &source).unwrap();
        assert_eq!(stands(), (Some(MoveState::Filling), None));
        let since = begins();
        landed(&disk, &dir, &source, since).unwrap();
        assert_eq!(stands(), (Some(MoveState::Landed { since }), None));
        let path = tmp.path().join(std::str::from_utf8(name(&disk, &dir).unwrap().bytes()).unwrap());
        let whole = std::fs::read(&path).unwrap();
        for len in BYTES..whole.len() {
            let mut torn = whole[..len].to_vec();
            assert_eq!(decode(&torn, &source), Some(MoveState::Filling), "{len} bytes");
            torn.resize(whole.len(), 0);
            let is_torn = torn != whole;
            assert!(
                !is_torn || decode(&torn, &source) == Some(MoveState::Filling),
                "{len} bytes, then zeros"
            );
        }
        assert_eq!(decode(&whole[..BYTES - 1], &source), None);
        let (mark, other) = (name(&disk, &dir).unwrap(), NameBuf::new(b"f").unwrap());
        let remove = |name: &NameBuf| dir.remove_file(name.as_name()).unwrap();
        for (content, is_torn) in [
            (&b""[..], true),
            (&whole[..BYTES - 1], true),
            (&[0; BYTES], true),
            (&whole[..BYTES], false),
            (&whole[..], false),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(is_empty_or_torn(&disk, &dir).unwrap(), is_torn, "{content:?}");
            std::fs::write(tmp.path().join("f"), content).unwrap();
            assert!(!is_empty_or_torn(&disk, &dir).unwrap(), "another file beside it");
            remove(&mark);
            assert!(!is_empty_or_torn(&disk, &dir).unwrap(), "another file");
            remove(&other);
            assert!(is_empty_or_torn(&disk, &dir).unwrap());
        }
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert!(!is_empty_or_torn(&disk, &dir).unwrap(), "a link");
        remove(&mark);
        std::fs::create_dir(&path).unwrap();
        assert!(!is_empty_or_torn(&disk, &dir).unwrap(), "a directory");
        dir.remove_dir(mark.as_name()).unwrap();
        unmark(&disk, &dir).unwrap();
        assert_eq!(stands(), (None, None));
    }
}
