//! What a handle's file is beside its bytes, and setting owner, mode and times by handle.
//!
//! Must not know which of it should be kept.

use crate::dir::{Dir, Name};
pub use crate::info::{Info, Kind, Time};
use crate::retry::retry;
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{AtFlags, Gid, Mode, StatxAttributes, StatxFlags, Timespec, Timestamps, Uid};
use std::ffi::{CStr, CString};
use std::io;

/// Where a handle stands: which object it is, and whether a mount begins there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Device holding it.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Whether it is the root of a mount, bind mounts of the same device included; `None` where the kernel (before
    /// 5.8) does not tell.
    pub mount_root: Option<bool>,
}

impl Place {
    /// `statx(AT_EMPTY_PATH)`, asking only for what is cheap; `fstat` where there is no statx.
    #[cfg(target_os = "linux")]
    pub fn of(fd: impl AsFd) -> io::Result<Place> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        match retry(|| rustix::fs::statx(fd.as_fd(), c"", flags, StatxFlags::TYPE | StatxFlags::INO)) {
            Ok(s) => {
                let told = s.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
                Ok(Place {
                    dev: rustix::fs::makedev(s.stx_dev_major, s.stx_dev_minor),
                    ino: s.stx_ino,
                    mount_root: told.then(|| s.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
                })
            }
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => Place::by_fstat(fd),
            Err(e) => Err(e),
        }
    }

    /// `fstat`.
    #[cfg(not(target_os = "linux"))]
    pub fn of(fd: impl AsFd) -> io::Result<Place> {
        Place::by_fstat(fd)
    }

    fn by_fstat(fd: impl AsFd) -> io::Result<Place> {
        Info::of(fd).map(|i| Place { dev: i.dev, ino: i.ino, mount_root: None })
    }

    /// Which object it is; comparable with [`Info::id`].
    #[must_use]
    pub fn id(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }
}

fn stamps(atime: Time, mtime: Time) -> Timestamps {
    let spec = |t: Time| Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() };
    Timestamps { last_access: spec(atime), last_modification: spec(mtime) }
}

/// The number of a device, of its two parts (makedev(3)).
#[must_use]
pub fn device(major: u32, minor: u32) -> u64 {
    rustix::fs::makedev(major, minor)
}

/// The first part of a device's number.
#[must_use]
pub fn major(device: u64) -> u32 {
    rustix::fs::major(device)
}

/// The second.
#[must_use]
pub fn minor(device: u64) -> u32 {
    rustix::fs::minor(device)
}

/// `ftruncate`.
pub fn set_length(fd: impl AsFd, bytes: u64) -> io::Result<()> {
    retry(|| rustix::fs::ftruncate(fd.as_fd(), bytes))
}

/// `fchmod`; of an `O_PATH` handle, as of a directory that may not be read, `chmod` of the name that `/proc` has for it.
pub fn set_mode(fd: impl AsFd, mode: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode);
    or_by_path(&fd, retry(|| rustix::fs::fchmod(fd.as_fd(), mode)), |path| {
        retry(|| rustix::fs::chmodat(rustix::fs::CWD, path, mode, AtFlags::empty()))
    })
}

/// `fchown`, or as [`set_mode`] does it. The kernel clears setuid and setgid with it, so the mode is set afterwards.
pub fn set_owner(fd: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    or_by_path(&fd, retry(|| rustix::fs::fchown(fd.as_fd(), uid, gid)), |path| {
        retry(|| rustix::fs::chownat(rustix::fs::CWD, path, uid, gid, AtFlags::empty()))
    })
}

/// `futimens`, or as [`set_mode`] does it. Last of all, as everything else would change the times again.
pub fn set_times(fd: impl AsFd, atime: Time, mtime: Time) -> io::Result<()> {
    let times = stamps(atime, mtime);
    or_by_path(&fd, retry(|| rustix::fs::futimens(fd.as_fd(), &times)), |path| {
        retry(|| rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::empty()))
    })
}

/// `futimens(UTIME_NOW)`: both times are what the file system itself says is now, which on a network is the server's clock.
pub fn touch(fd: impl AsFd) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    retry(|| rustix::fs::futimens(fd.as_fd(), &Timestamps { last_access: now, last_modification: now }))
}

/// The name under which `/proc` knows a handle; how calls that do not take an `O_PATH` handle can be given one.
pub(crate) fn proc_path(fd: impl AsFd) -> io::Result<CString> {
    Ok(CString::new(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))?)
}

/// What a call by a handle came to; where that is an `O_PATH` handle (EBADF), what the call by the name that `/proc` has for it
/// comes to.
pub(crate) fn or_by_path<T>(
    fd: impl AsFd,
    by_handle: io::Result<T>,
    by_path: impl FnOnce(&CStr) -> io::Result<T>,
) -> io::Result<T> {
    match by_handle {
        Err(e) if e.raw_os_error() == Some(libc::EBADF) => by_path(&proc_path(fd)?),
        other => other,
    }
}

/// `chmod` of a FIFO, socket or device, which are never opened: by an `O_PATH` handle and `/proc/self/fd`, so that a
/// link put in its place is not followed; where nothing is mounted at `/proc`, `fchmodat2(AT_EMPTY_PATH)`, which Linux has from
/// 6.6 on. A link itself has no mode and is refused with EOPNOTSUPP.
pub fn set_mode_at(dir: &Dir, name: Name<'_>, mode: u32) -> io::Result<()> {
    let fd = dir.open_path(name)?;
    if Info::of(&fd)?.kind == Kind::Link {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    // The handle must outlive the call that goes by its number.
    let path = proc_path(&fd)?;
    match retry(|| rustix::fs::chmodat(rustix::fs::CWD, &path, Mode::from_raw_mode(mode), AtFlags::empty())) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => set_mode_by_handle(&fd, mode).map_err(|_| e),
        other => other,
    }
}

/// `fchmodat2(fd, "", mode, AT_EMPTY_PATH)`: what `fchmod` does not do with an `O_PATH` handle.
#[cfg(target_os = "linux")]
fn set_mode_by_handle(fd: impl AsFd, mode: u32) -> io::Result<()> {
    // The number is the same on all machines but Alpha.
    const SYS_FCHMODAT2: libc::c_long = 452;
    // SAFETY: the descriptor is open and the path ends in a zero; nothing is written to memory.
    let done = unsafe {
        libc::syscall(SYS_FCHMODAT2, fd.as_fd().as_raw_fd(), c"".as_ptr(), mode, libc::AT_EMPTY_PATH)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
fn set_mode_by_handle(_: impl AsFd, _: u32) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// `fchownat(AT_SYMLINK_NOFOLLOW)`: owner of the name itself, a link included.
pub fn set_owner_at(dir: &Dir, name: Name<'_>, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    retry(|| rustix::fs::chownat(dir, name.c_str(), uid, gid, AtFlags::SYMLINK_NOFOLLOW))
}

/// `utimensat(AT_SYMLINK_NOFOLLOW)`: times of the name itself, a link included.
pub fn set_times_at(dir: &Dir, name: Name<'_>, atime: Time, mtime: Time) -> io::Result<()> {
    let times = stamps(atime, mtime);
    retry(|| rustix::fs::utimensat(dir, name.c_str(), &times, AtFlags::SYMLINK_NOFOLLOW))
}

/// Whether this is a file system whose files lie about their size (procfs, sysfs and their like), by `fstatfs`.
pub fn is_pseudo(fd: impl AsFd) -> io::Result<bool> {
    const MAGICS: [i64; 11] = [
        0x9fa0,      // PROC_SUPER_MAGIC
        0x6265_6572, // SYSFS_MAGIC
        0x6462_6720, // DEBUGFS_MAGIC
        0x7472_6163, // TRACEFS_MAGIC
        0x0027_e0eb, // CGROUP_SUPER_MAGIC
        0x6367_7270, // CGROUP2_SUPER_MAGIC
        0x7363_6673, // SECURITYFS_MAGIC
        0xf97c_ff8c, // SELINUX_MAGIC
        0x6265_6570, // CONFIGFS_MAGIC
        0xcafe_4a11, // BPF_FS_MAGIC
        0x6165_676c, // PSTOREFS_MAGIC
    ];
    retry(|| rustix::fs::fstatfs(fd.as_fd())).map(|s| MAGICS.contains(&{ s.f_type }))
}

/// Whether this is on a file system in user space (FUSE), by `fstatfs`.
pub fn is_fuse(fd: impl AsFd) -> io::Result<bool> {
    const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
    retry(|| rustix::fs::fstatfs(fd.as_fd())).map(|s| { s.f_type } == FUSE_SUPER_MAGIC)
}

/// `fstatfs`: bytes that may still be written, what is kept for root included.
pub fn free_bytes(fd: impl AsFd) -> io::Result<u64> {
    let fs = retry(|| rustix::fs::fstatfs(fd.as_fd()))?;
    Ok(fs.f_bfree.saturating_mul(u64::try_from(fs.f_bsize).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_place_has_the_identity_fstat_gives_and_knows_mount_roots() {
        for path in ["/", "/proc", "/tmp", "/usr"] {
            let Ok(dir) = Dir::open(Path::new(path)) else { continue };
            assert_eq!(Place::of(&dir).unwrap().id(), dir.info().unwrap().id(), "{path}");
        }
        let t = tempfile::tempdir().unwrap();
        let plain = Place::of(Dir::open(t.path()).unwrap()).unwrap();
        let proc = Place::of(Dir::open(Path::new("/proc")).unwrap()).unwrap();
        if plain.mount_root.is_some() {
            assert_eq!((plain.mount_root, proc.mount_root), (Some(false), Some(true)));
        }
    }
}
