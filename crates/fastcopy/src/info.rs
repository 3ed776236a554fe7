//! [`Info`]: what a file is, beside its bytes, as the kernel says it.
//!
//! Must not know directories.

use crate::retry::retry;
use rustix::fd::AsFd;
use rustix::fs::{FileType, Stat};
use std::io;

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl Kind {
    pub(crate) fn from_file_type(t: FileType) -> Option<Kind> {
        Some(match t {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Link,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::CharDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::Unknown => return None,
        })
    }
    pub(crate) fn file_type(self) -> FileType {
        match self {
            Kind::File => FileType::RegularFile,
            Kind::Dir => FileType::Directory,
            Kind::Link => FileType::Symlink,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::CharDevice => FileType::CharacterDevice,
            Kind::BlockDevice => FileType::BlockDevice,
        }
    }
    /// Neither file, directory nor link.
    #[must_use]
    pub fn is_special(self) -> bool {
        !matches!(self, Kind::File | Kind::Dir | Kind::Link)
    }
    /// What is read or written as it comes, and keeps nothing: a FIFO or a character device.
    #[must_use]
    pub fn is_stream(self) -> bool {
        matches!(self, Kind::Fifo | Kind::CharDevice)
    }
    /// A character or block device.
    #[must_use]
    pub fn is_device(self) -> bool {
        matches!(self, Kind::CharDevice | Kind::BlockDevice)
    }
    /// In words.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Dir => "directory",
            Kind::Link => "symbolic link",
            Kind::Fifo => "FIFO",
            Kind::Socket => "socket",
            Kind::CharDevice => "character device",
            Kind::BlockDevice => "block device",
        }
    }
}

/// A point in time: seconds since 1970 and nanoseconds below one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds since the epoch; negative before it.
    pub sec: i64,
    /// 0 to 999,999,999.
    pub nsec: u32,
}

/// The answer of `fstat` (stat(2)), with what a copier needs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The type.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky (07777).
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device holding it.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Hard links.
    pub nlink: u64,
    /// Bytes.
    pub size: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    /// The device it stands for, when it is one.
    pub rdev: u64,
    /// Last read.
    pub atime: Time,
    /// Last written.
    pub mtime: Time,
    /// Last change of anything; cannot be set, so it is the witness that counts.
    pub ctime: Time,
}

fn time(sec: i64, nsec: u64) -> Time {
    Time { sec, nsec: nsec as u32 }
}

impl Info {
    pub(crate) fn from_stat(s: &Stat) -> Info {
        let kind = Kind::from_file_type(FileType::from_raw_mode(s.st_mode)).unwrap_or(Kind::CharDevice);
        Info {
            kind,
            mode: s.st_mode & 0o7777,
            uid: s.st_uid,
            gid: s.st_gid,
            dev: s.st_dev,
            ino: s.st_ino,
            // u32 on arm64.
            #[allow(clippy::useless_conversion)]
            nlink: u64::from(s.st_nlink),
            size: s.st_size as u64,
            blocks: s.st_blocks as u64,
            rdev: s.st_rdev,
            atime: time(s.st_atime, s.st_atime_nsec),
            mtime: time(s.st_mtime, s.st_mtime_nsec),
            ctime: time(s.st_ctime, s.st_ctime_nsec),
        }
    }

    /// The same, from `statx` with its basic fields.
    #[cfg(target_os = "linux")]
    pub(crate) fn from_statx(s: &rustix::fs::Statx) -> Info {
        let time = |t: rustix::fs::StatxTimestamp| time(t.tv_sec, t.tv_nsec.into());
        let raw = u32::from(s.stx_mode);
        Info {
            kind: Kind::from_file_type(FileType::from_raw_mode(raw)).unwrap_or(Kind::CharDevice),
            mode: raw & 0o7777,
            uid: s.stx_uid,
            gid: s.stx_gid,
            dev: rustix::fs::makedev(s.stx_dev_major, s.stx_dev_minor),
            ino: s.stx_ino,
            nlink: s.stx_nlink.into(),
            size: s.stx_size,
            blocks: s.stx_blocks,
            rdev: rustix::fs::makedev(s.stx_rdev_major, s.stx_rdev_minor),
            atime: time(s.stx_atime),
            mtime: time(s.stx_mtime),
            ctime: time(s.stx_ctime),
        }
    }

    /// `fstat`.
    pub fn of(fd: impl AsFd) -> io::Result<Info> {
        retry(|| rustix::fs::fstat(fd.as_fd())).map(|s| Info::from_stat(&s))
    }

    /// Which object it is, on this machine, as long as it exists.
    #[must_use]
    pub fn id(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }

    /// Whether two answers for the same handle tell of the same content: size, mtime and ctime in nanoseconds.
    #[must_use]
    pub fn same_content(&self, later: &Info) -> bool {
        self.id() == later.id()
            && self.size == later.size
            && self.mtime == later.mtime
            && self.ctime == later.ctime
    }
}
