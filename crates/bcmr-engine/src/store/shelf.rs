//! The store's directory and the three files in it: key, lock and index (`docs/store-format.md`).
//!
//! Must not know which block is good for whom. All of it is a hint: whatever is damaged, foreign or too open here is
//! replaced or refused, and costs time only. Nothing is synced, for the same reason.

use super::index::{HEADER_BYTES, LOG_BYTES_MAX, RECORD_BYTES_MAX, Record, SumKey, View};
use fastcopy::copy_file_range::copy_file_range;
use fastcopy::dir::{Dir, ListBuffer, Lock, Name, NameBuf, try_lock, unlock};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use fastcopy::process::{effective_user, random};
use fastcopy::read_write::{read_full, write_full};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

const KEY_MAGIC: &[u8; 8] = b"bcmrKEY1";
const KEY_BYTES: usize = 8 + 32 + 8;
const KEY: &CStr = c"key";
const KEY_NEW: &CStr = c"key.new";
const LOCK: &CStr = c"lock";
const INDEX: &CStr = c"index";
const INDEX_NEW: &CStr = c"index.new";

/// Bytes of the index read at a time.
const READ_BYTES: usize = 64 << 10;
const _: () = assert!(READ_BYTES >= 2 * RECORD_BYTES_MAX);

fn name(name: &CStr) -> io::Result<Name<'_>> {
    Name::new(name).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn is(e: &io::Error, errno: i32) -> bool {
    e.raw_os_error() == Some(errno)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned())
}

/// A directory below that may have to be made; everything above the last name is the user's own way of writing it.
fn open_or_make(path: &Path) -> io::Result<Dir> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    match Dir::open(path) {
        Err(e) if is(&e, errno::ENOENT) => {
            let (Some(above), Some(last)) = (path.parent(), path.file_name()) else { return Err(e) };
            let above = open_or_make(above)?;
            let last = NameBuf::new(last.as_bytes()).ok_or(e)?;
            make(&above, last.as_name())?;
            above.open_dir(last.as_name())
        }
        other => other,
    }
}

fn make(above: &Dir, name: Name<'_>) -> io::Result<()> {
    match above.make_dir(name, 0o700) {
        Err(e) if is(&e, errno::EEXIST) => Ok(()),
        other => other,
    }
}

/// The store's directory: ours, and closed to all other users.
pub(super) fn private_dir(path: &Path) -> io::Result<Dir> {
    let bad = || io::Error::from(io::ErrorKind::InvalidInput);
    let (above, last) = (path.parent().ok_or_else(bad)?, path.file_name().ok_or_else(bad)?);
    let above = open_or_make(above)?;
    let last = NameBuf::new(last.as_bytes()).ok_or_else(bad)?;
    make(&above, last.as_name())?;
    let dir = above.open_dir_readable(last.as_name())?;
    let info = dir.info()?;
    if info.uid != effective_user() {
        return Err(refused("the store's directory belongs to another user"));
    }
    if info.mode & 0o077 != 0 {
        return Err(refused("the store's directory is open to other users"));
    }
    Ok(dir)
}

/// Whether a file in the directory is one that we have made.
fn is_ours(info: &Info) -> bool {
    info.kind == Kind::File && info.uid == effective_user() && info.mode & 0o077 == 0
}

/// Opens a file of ours; `None` when there is none, or something that we have not made.
fn open_ours(dir: &Dir, name: Name<'_>) -> io::Result<Option<(OwnedFd, Info)>> {
    let fd = match dir.open_read_write(name) {
        Ok(fd) => fd,
        // A link, a FIFO without a reader, a socket, a directory, a file without rights: not what we have made.
        Err(e)
            if [errno::ENOENT, errno::ELOOP, errno::ENXIO, errno::EISDIR, errno::EACCES]
                .iter()
                .any(|n| is(&e, *n)) =>
        {
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    let info = Info::of(&fd)?;
    Ok(is_ours(&info).then_some((fd, info)))
}

/// Writes a file under a name of its own and then puts it in the place of `name`: a reader sees the old one or the
/// new one.
fn replace(dir: &Dir, new: Name<'_>, name: Name<'_>, bytes: &[u8]) -> io::Result<OwnedFd> {
    // What a killed run left; only who holds the lock comes here.
    match dir.remove_file(new) {
        Err(e) if !is(&e, errno::ENOENT) => return Err(e),
        _ => {}
    }
    let fd = dir.create_file(new, 0o600)?;
    write_full(&fd, 0, bytes)?;
    dir.rename(new, dir, name)?;
    Ok(fd)
}

/// Blocks that the store has itself: a file for each, called by its key, in a directory of their own.
#[derive(Debug)]
pub(super) struct Blobs {
    dir: Dir,
}

impl Blobs {
    /// Opens the directory in the store's, and makes it where it is `wanted`; `None`: it is neither there nor wanted.
    pub(super) fn open(store: &Path, wanted: bool) -> io::Result<Option<Blobs>> {
        let path = store.join("kept");
        if !wanted && matches!(Dir::open(&path), Err(e) if is(&e, errno::ENOENT)) {
            return Ok(None);
        }
        private_dir(&path).map(|dir| Some(Blobs { dir }))
    }

    fn names(key: &[u8; 32]) -> io::Result<(NameBuf, NameBuf)> {
        let hex = blake3::Hash::from_bytes(*key).to_hex();
        let name = |text: &str| NameBuf::new(text.as_bytes()).ok_or(io::ErrorKind::InvalidInput);
        Ok((name(&hex)?, name(&format!("{hex}.new"))?))
    }

    /// Opens a block to be read; an error when it is not there whole, or not as we have made it.
    pub(super) fn find(&self, key: &[u8; 32], len: u64) -> io::Result<OwnedFd> {
        let (name, _) = Blobs::names(key)?;
        let fd = self.dir.open_file(name.as_name())?;
        let info = Info::of(&fd)?;
        if is_ours(&info) && info.size == len { Ok(fd) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Copies a block out of `from`, sharing its extents where the file system can. It has no name to be found by yet.
    pub(super) fn copy(&self, key: &[u8; 32], from: &OwnedFd, at: u64, len: u64) -> io::Result<()> {
        let (_, new) = Blobs::names(key)?;
        let to = match self.dir.create_file(new.as_name(), 0o600) {
            Err(e) if is(&e, errno::EEXIST) => {
                // Another process is at it, or one was killed at it: the lock tells.
                let there = open_ours(&self.dir, new.as_name())?.ok_or(io::ErrorKind::InvalidData)?.0;
                if try_lock(&there) != Lock::Held {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                fastcopy::meta::set_length(&there, 0)?;
                there
            }
            made => {
                let made = made?;
                if try_lock(&made) == Lock::Busy {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                made
            }
        };
        let (mut src_off, mut dst_off) = (at, 0);
        while dst_off < len {
            let left = usize::try_from(len - dst_off).unwrap_or(usize::MAX);
            match copy_file_range(from, &mut src_off, &to, &mut dst_off, left) {
                Ok(1..) => {}
                Ok(0) | Err(_) => break,
            }
        }
        let mut room = vec![0; READ_BYTES];
        while dst_off < len {
            let want = room.len().min(usize::try_from(len - dst_off).unwrap_or(usize::MAX));
            let piece = room.get_mut(..want).unwrap_or_default();
            if read_full(from, at + dst_off, piece)? < want {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            write_full(&to, dst_off, piece)?;
            dst_off += want as u64;
        }
        Ok(())
    }

    /// Gives a block its name; only while the store's lock is held, and the index says that it is kept.
    pub(super) fn publish(&self, key: &[u8; 32]) -> io::Result<()> {
        let (name, new) = Blobs::names(key)?;
        self.dir.rename(new.as_name(), &self.dir, name.as_name())
    }

    /// Removes a block, and what was to become it. What cannot be removed now is removed when its key is next.
    pub(super) fn remove(&self, key: &[u8; 32]) {
        if let Ok((name, new)) = Blobs::names(key) {
            drop(self.dir.remove_file(name.as_name()));
            drop(self.dir.remove_file(new.as_name()));
        }
    }

    /// Removes every block of which `knows` says that the index does not know it.
    pub(super) fn sweep(&self, knows: impl Fn(&[u8; 32]) -> bool) -> io::Result<()> {
        let mut strange = Vec::new();
        self.dir.reopen()?.list(&mut ListBuffer::new(), |listed| {
            let name = listed.name.bytes();
            let hex = name.strip_suffix(b".new").unwrap_or(name);
            let key = blake3::Hash::from_hex(hex).ok().map(|hash| *hash.as_bytes());
            if key.is_some_and(|key| !knows(&key)) {
                strange.push(listed.name.to_owned());
            }
            true
        })?;
        strange.iter().try_for_each(|name| self.dir.remove_file(name.as_name()))
    }
}

fn key_sum(secret: &[u8]) -> [u8; 8] {
    let mut out = [0; 8];
    out.copy_from_slice(blake3::hash(secret).as_bytes().split_at(8).0);
    out
}

/// The secret inside the key file, or a new one when it is not as we left it. Under a new secret the old index is
/// not valid.
fn secret(dir: &Dir) -> io::Result<[u8; 32]> {
    if let Some((fd, _)) = open_ours(dir, name(KEY)?)? {
        let mut bytes = [0; KEY_BYTES];
        let n = read_full(&fd, 0, &mut bytes)?;
        let (magic, rest) = bytes.split_at(8);
        let (secret, sum) = rest.split_at(32);
        if n == KEY_BYTES
            && magic == KEY_MAGIC
            && sum == key_sum(secret)
            && let Ok(secret) = secret.try_into()
        {
            return Ok(secret);
        }
    }
    let mut secret = [0; 32];
    random(&mut secret)?;
    let mut bytes = KEY_MAGIC.to_vec();
    bytes.extend_from_slice(&secret);
    bytes.extend_from_slice(&key_sum(&secret));
    replace(dir, name(KEY_NEW)?, name(KEY)?, &bytes)?;
    Ok(secret)
}

/// `flock` with patience that ends: who holds the lock may have been stopped, and a copy must not wait for it.
fn lock(fd: impl AsFd, patience: Duration) -> io::Result<()> {
    let begun = Instant::now();
    let mut pause = Duration::from_micros(50);
    loop {
        match try_lock(fd.as_fd()) {
            Lock::Held => return Ok(()),
            Lock::Unsupported => return Err(io::ErrorKind::Unsupported.into()),
            Lock::Busy if begun.elapsed() >= patience => return Err(io::ErrorKind::WouldBlock.into()),
            Lock::Busy => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}

/// The index as this process has it.
#[derive(Debug)]
struct OpenLog {
    fd: OwnedFd,
    /// Which file it is.
    id: (u64, u64),
    /// So far it was read or written.
    end: u64,
}

/// The directory and its files. One thread at a time; other processes are kept out by the lock.
#[derive(Debug)]
pub(crate) struct Shelf {
    dir: Dir,
    lock: OwnedFd,
    sums: SumKey,
    log: Option<OpenLog>,
    view: View,
}

/// What may be done to the index while the lock is held.
pub(crate) struct Writer<'s> {
    shelf: &'s mut Shelf,
    end: u64,
    bytes: Vec<u8>,
}

impl Writer<'_> {
    pub(crate) fn view(&mut self) -> &mut View {
        &mut self.shelf.view
    }
    pub(crate) fn push(&mut self, record: &Record<'_>) {
        let base = self.end;
        let sums = self.shelf.sums;
        self.shelf.view.push(&sums, base, record, &mut self.bytes);
    }
}

impl Shelf {
    /// Opens or makes all that is missing; gives the secret too.
    ///
    /// # Errors
    /// The directory is not ours alone; something other than our files stands in their places; the file system cannot
    /// lock; another process has held the lock for the whole of `patience`.
    pub(crate) fn open(path: &Path, patience: Duration) -> io::Result<(Shelf, [u8; 32])> {
        let dir = private_dir(path)?;
        let lock_name = name(LOCK)?;
        let made = dir.create_file(lock_name, 0o600).err();
        let lock_fd = match (open_ours(&dir, lock_name)?, made) {
            (Some((fd, _)), _) => fd,
            (None, Some(e)) if !is(&e, errno::EEXIST) => return Err(e),
            (None, _) => return Err(refused("the store's lock is not a file of ours")),
        };
        lock(&lock_fd, patience)?;
        let secret = secret(&dir);
        unlock(&lock_fd)?;
        let secret = secret?;
        let sums = blake3::derive_key("bcmr 1 store checksums", &secret);
        Ok((Shelf { dir, lock: lock_fd, sums, log: None, view: View::default() }, secret))
    }

    /// What is known; [`Shelf::is_fresh`] tells whether that is all.
    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Whether no process has written since: one stat, no lock.
    pub(crate) fn is_fresh(&self) -> bool {
        let Some(log) = &self.log else { return false };
        let Ok(index) = name(INDEX) else { return false };
        self.dir.stat(index).is_ok_and(|info| info.id() == log.id && info.size == log.end)
    }

    /// Takes the lock, reads what others wrote, lets `write` add records, and writes them.
    ///
    /// # Errors
    /// WouldBlock: another process had the lock for the whole of `patience`. Anything else: the disk's answer; what was
    /// added is not remembered then.
    pub(crate) fn update(
        &mut self,
        patience: Duration,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> io::Result<()> {
        lock(&self.lock, patience)?;
        let done = self.is_locked_for_all().and_then(|()| self.update_locked(write));
        if done.is_err() {
            // What memory knows and what the file says may differ now: the file counts.
            self.log = None;
            self.view = View::default();
        }
        unlock(&self.lock)?;
        done
    }

    /// A user may have cleared the cache under us: then other processes lock another file, and this one keeps none out.
    fn is_locked_for_all(&self) -> io::Result<()> {
        let here = self.dir.stat(name(LOCK)?)?;
        if here.id() == Info::of(&self.lock)?.id() { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn update_locked(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> io::Result<()> {
        let mut end = self.catch_up()?;
        let mut writer = Writer { shelf: self, end, bytes: Vec::new() };
        write(&mut writer);
        let bytes = writer.bytes;
        if !bytes.is_empty() {
            if end + bytes.len() as u64 > LOG_BYTES_MAX {
                return self.rewrite().map(drop);
            }
            let log = self.log.as_mut().ok_or(io::ErrorKind::NotFound)?;
            write_full(&log.fd, end, &bytes)?;
            end += bytes.len() as u64;
            log.end = end;
        }
        if self.view.is_stale(end) {
            self.rewrite()?;
        }
        Ok(())
    }

    /// Reads what was appended since; all of it when the index is another one. An index that is torn, too long or not
    /// ours is written anew at once, under the same name and as another file: so no process ever takes what it knows
    /// of one for a part of the other.
    fn catch_up(&mut self) -> io::Result<u64> {
        let index = name(INDEX)?;
        if let Some(log) = &self.log {
            let same = self.dir.look(index)?.is_some_and(|now| now.id() == log.id && now.size >= log.end);
            if !same {
                self.log = None;
            }
        }
        if self.log.is_none() {
            self.view = View::default();
            let Some((fd, info)) = open_ours(&self.dir, index)? else { return self.rewrite() };
            let mut head = [0; HEADER_BYTES];
            let n = read_full(&fd, 0, &mut head)?;
            if n < HEADER_BYTES || !View::is_header(&self.sums, &head) {
                return self.rewrite();
            }
            self.log = Some(OpenLog { fd, id: info.id(), end: HEADER_BYTES as u64 });
        }
        let Some(log) = self.log.as_mut() else { return Err(io::ErrorKind::NotFound.into()) };
        let mut room = Vec::new();
        loop {
            // A record that is cut off at the end of the room is read again at the front of the next.
            let want =
                Info::of(&log.fd)?.size.min(LOG_BYTES_MAX).saturating_sub(log.end).min(READ_BYTES as u64);
            if want == 0 {
                break;
            }
            room.resize(want as usize, 0);
            let n = read_full(&log.fd, log.end, &mut room)?;
            let got = room.get(..n).unwrap_or_default();
            let understood = self.view.replay(&self.sums, log.end, got);
            log.end += understood as u64;
            if understood == 0 {
                return self.rewrite();
            }
        }
        Ok(log.end)
    }

    /// A new index with what counts of the present one.
    fn rewrite(&mut self) -> io::Result<u64> {
        let bytes = self.view.compact(&self.sums);
        let fd = replace(&self.dir, name(INDEX_NEW)?, name(INDEX)?, &bytes)?;
        let mut view = View::default();
        let all = bytes.get(HEADER_BYTES..).unwrap_or_default();
        view.replay(&self.sums, HEADER_BYTES as u64, all);
        self.view = view;
        let end = bytes.len() as u64;
        self.log = Some(OpenLog { id: Info::of(&fd)?.id(), fd, end });
        Ok(end)
    }
}
