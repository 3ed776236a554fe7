//! blkrec: a FUSE file system of disk images, for loop devices to sit on. Every block write, flush and discard that
//! reaches one of them is appended to one log, in one order for all disks, so that any state a power cut could have
//! left can be rebuilt. It is what dm-log-writes does, without the device mapper, for several disks at once.
//!
//! Must not know what is done with the log, nor what file systems are on the disks.
//!
//! `blkrec MOUNTPOINT LOG IMAGE...` serves the images as `disk0`, `disk1`, ... (and writes into them) until it is
//! unmounted. What is written to the file `mark` becomes a mark in the log.
//!
//! One thread answers all requests: a record is in the log before the write is answered, so whatever a program saw
//! finished stands before whatever it did next. A flush counts for all writes answered before it.

#[allow(dead_code)] // the reader's half of it
mod format;

use format::{DISCARD, FLUSH, Header, MARK, WRITE};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use rustix::fs::FallocateFlags;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

/// Nothing here ever changes its size or its name.
const FOREVER: Duration = Duration::from_secs(3600);
const MARK_INO: u64 = 2;
const DISK_INO_FIRST: u64 = 3;
/// FALLOC_FL_PUNCH_HOLE; loop devices ask for it with KEEP_SIZE when a file system discards.
const PUNCH_HOLE: i32 = FallocateFlags::PUNCH_HOLE.bits() as i32;

/// What is being recorded.
struct Recorder {
    disks: Vec<Disk>,
    log: Mutex<Log>,
}

struct Disk {
    name: OsString,
    image: File,
    bytes: u64,
}

struct Log {
    to: BufWriter<File>,
    /// The log could not be written: it must not look complete.
    broken: Option<io::Error>,
}

/// What an inode number means.
#[derive(Clone, Copy)]
enum Thing<'a> {
    Root,
    Mark,
    Disk(u8, &'a Disk),
}

impl Recorder {
    fn thing(&self, ino: INodeNo) -> Option<Thing<'_>> {
        match u64::from(ino) {
            1 => Some(Thing::Root),
            MARK_INO => Some(Thing::Mark),
            other => {
                let at = u8::try_from(other.checked_sub(DISK_INO_FIRST)?).ok()?;
                Some(Thing::Disk(at, self.disks.get(usize::from(at))?))
            }
        }
    }

    /// Appends a record; after a first failure everything fails.
    fn record(&self, kind: u8, disk: u8, off: u64, payload: &[u8]) -> Result<(), Errno> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.broken.is_some() {
            return Err(Errno::EIO);
        }
        let Ok(len) = u32::try_from(payload.len()) else { return Err(Errno::EINVAL) };
        let header = Header { kind, disk, len, off }.encode();
        let written = log.to.write_all(&header).and_then(|()| log.to.write_all(payload));
        written.map_err(|e| {
            log.broken = Some(e);
            Errno::EIO
        })
    }

    fn disk(&self, ino: INodeNo) -> Result<(u8, &Disk), Errno> {
        match self.thing(ino) {
            Some(Thing::Disk(at, disk)) => Ok((at, disk)),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::ENOENT),
        }
    }

    fn read_at(&self, ino: INodeNo, off: u64, size: u32) -> Result<Vec<u8>, Errno> {
        if let Some(Thing::Mark) = self.thing(ino) {
            return Ok(Vec::new());
        }
        let (_, disk) = self.disk(ino)?;
        let len = u64::from(size).min(disk.bytes.saturating_sub(off));
        let mut data = vec![0; usize::try_from(len).map_err(|_| Errno::EINVAL)?];
        disk.image.read_exact_at(&mut data, off)?;
        Ok(data)
    }

    fn write_at(&self, ino: INodeNo, off: u64, data: &[u8]) -> Result<(), Errno> {
        if let Some(Thing::Mark) = self.thing(ino) {
            return self.record(MARK, 0, 0, data);
        }
        let (at, disk) = self.disk(ino)?;
        if off.checked_add(data.len() as u64).is_none_or(|end| end > disk.bytes) {
            return Err(Errno::ENOSPC);
        }
        disk.image.write_all_at(data, off)?;
        self.record(WRITE, at, off, data)
    }

    fn discard(&self, ino: INodeNo, off: u64, len: u64, mode: i32) -> Result<(), Errno> {
        let (at, disk) = self.disk(ino)?;
        if mode & PUNCH_HOLE == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let len = len.min(disk.bytes.saturating_sub(off));
        if len == 0 {
            return Ok(());
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&disk.image, how, off, len).map_err(io::Error::from)?;
        self.record(DISCARD, at, off, &len.to_le_bytes())
    }

    /// The log in full, or why it is not.
    fn finish(&self) -> io::Result<()> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        match log.broken.take() {
            Some(e) => Err(e),
            None => log.to.flush(),
        }
    }
}

fn attr(ino: INodeNo, thing: Thing<'_>) -> FileAttr {
    let (kind, size) = match thing {
        Thing::Root => (FileType::Directory, 0),
        Thing::Mark => (FileType::RegularFile, 0),
        Thing::Disk(_, disk) => (FileType::RegularFile, disk.bytes),
    };
    FileAttr {
        ino,
        size,
        blocks: size / 512,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: if kind == FileType::Directory { 0o700 } else { 0o600 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// The recorder, shared with `main`, which wants the last word about the log.
struct Served(std::sync::Arc<Recorder>);

impl Filesystem for Served {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ino = if name == "mark" {
            Some(MARK_INO)
        } else {
            self.0.disks.iter().zip(DISK_INO_FIRST..).find(|(disk, _)| disk.name == name).map(|found| found.1)
        };
        match ino.map(INodeNo).and_then(|ino| Some((ino, self.0.thing(ino)?))) {
            Some((ino, thing)) => reply.entry(&FOREVER, &attr(ino, thing), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.thing(ino) {
            Some(thing) => reply.attr(&FOREVER, &attr(ino, thing)),
            None => reply.error(Errno::ENOENT),
        }
    }

    // A size that is set (the driver opens `mark` as a new file) is ignored, like all attributes.
    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<fuser::TimeOrNow>,
        _: Option<fuser::TimeOrNow>,
        _: Option<std::time::SystemTime>,
        fh: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.getattr(request, ino, fh, reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Without the page cache of this file in between: what the loop device sends arrives at once and in order.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        off: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.read_at(ino, off, size) {
            Ok(data) => reply.data(&data),
            Err(e) => reply.error(e),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        off: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match (self.0.write_at(ino, off, data), u32::try_from(data.len())) {
            (Ok(()), Ok(len)) => reply.written(len),
            (Ok(()), Err(_)) => reply.error(Errno::EINVAL),
            (Err(e), _) => reply.error(e),
        }
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let done = match self.0.thing(ino) {
            Some(Thing::Disk(at, _)) => self.0.record(FLUSH, at, 0, &[]),
            _ => Ok(()),
        };
        match done {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        off: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match self.0.discard(ino, off, len, mode) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }
}

fn run(args: &[OsString]) -> Result<(), String> {
    let [mountpoint, log, images @ ..] = args else {
        return Err("usage: blkrec MOUNTPOINT LOG IMAGE...".to_owned());
    };
    let shown = |path: &OsString, e: io::Error| format!("{}: {e}", path.display());
    let mut disks = Vec::new();
    for (n, path) in images.iter().enumerate() {
        let image = File::options().read(true).write(true).open(path).map_err(|e| shown(path, e))?;
        let bytes = image.metadata().map_err(|e| shown(path, e))?.len();
        disks.push(Disk { name: format!("disk{n}").into(), image, bytes });
    }
    if disks.is_empty() || disks.len() > usize::from(u8::MAX) {
        return Err("there must be an image, and at most 255".to_owned());
    }
    let to = BufWriter::with_capacity(1 << 20, File::create_new(log).map_err(|e| shown(log, e))?);
    let recorder = std::sync::Arc::new(Recorder { disks, log: Mutex::new(Log { to, broken: None }) });
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("blkrec".to_owned()), MountOption::RW];
    let served = fuser::mount(Served(recorder.clone()), mountpoint, &config);
    // Also after a failure: what was recorded so far may say why.
    recorder.finish().map_err(|e| shown(log, e))?;
    served.map_err(|e| shown(mountpoint, e))
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("blkrec: {problem}");
            ExitCode::FAILURE
        }
    }
}
