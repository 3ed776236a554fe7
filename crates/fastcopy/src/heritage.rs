//! What a directory hands down to the files that are made in it.
//!
//! Must not know where files are made, nor why elsewhere than in the directory that they get their names in.

use crate::dir::Dir;
use crate::retry::retry;
use crate::xattr::{self, ACL_DEFAULT, Of, XattrBuffer};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::ioctl::{self, Getter, opcode};
use std::ffi::CString;
use std::io;

/// All that tells two directories of one process apart for a file without a name: made in either, it may get its name in the
/// other, and is as if it had been made there. See inode(7), acl(5), ioctl_xfs_fsgetxattr(2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heritage {
    dev: (u32, u32),
    /// `linkat` leads from no mount to another, not even to one of the same file system.
    mount: u64,
    /// Files get it where the directory is setgid or the file system is mounted with `grpid`, and otherwise the process's own.
    group: u32,
    is_setgid: bool,
    layout: Layout,
    /// The default ACL, and what a security module knows the directory by.
    attributes: Vec<(CString, Vec<u8>)>,
}

/// Quota project, extent sizes and flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Layout {
    flags: u32,
    extent_bytes: u32,
    project: u32,
    cow_extent_bytes: u32,
}

/// `struct fsxattr` of linux/fs.h.
#[repr(C)]
struct FsXattr {
    flags: u32,
    extent_bytes: u32,
    extents: u32,
    project: u32,
    cow_extent_bytes: u32,
    padding: [u8; 8],
}

impl Layout {
    /// `ioctl(FS_IOC_FSGETXATTR)`.
    fn of(dir: &Dir) -> io::Result<Layout> {
        /// FS_XFLAG_HASATTR: it has extended attributes.
        const HAS_ATTRIBUTES: u32 = 0x8000_0000;
        // SAFETY: the operation's number holds the size of what it writes, and any bits are a value of each field.
        let told = retry(|| unsafe {
            let get = Getter::<{ opcode::read::<FsXattr>(b'X', 31) }, FsXattr>::new();
            ioctl::ioctl(dir.as_fd(), get)
        })?;
        Ok(Layout {
            flags: told.flags & !HAS_ATTRIBUTES,
            extent_bytes: told.extent_bytes,
            project: told.project,
            cow_extent_bytes: told.cow_extent_bytes,
        })
    }
}

/// Flags that people give a file or a directory (chattr(1)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeFlags(u32);

impl InodeFlags {
    /// FS_APPEND_FL.
    const APPEND: u32 = 0x20;
    /// FS_DIRSYNC_FL and FS_PROJINHERIT_FL, which say something of directories alone.
    const OF_DIRECTORIES: u32 = 0x1_0000 | 0x2000_0000;
    /// FS_SECRM_FL, FS_UNRM_FL, FS_COMPR_FL, FS_SYNC_FL, FS_NODUMP_FL, FS_NOATIME_FL, FS_NOCOMP_FL and FS_NOCOW_FL, and those:
    /// a directory hands them down.
    const HANDED_DOWN: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x400 | 0x80_0000 | Self::OF_DIRECTORIES;

    /// `ioctl(FS_IOC_GETFLAGS)`; none where the file system has no such flags.
    #[must_use]
    pub fn of(thing: impl AsFd) -> InodeFlags {
        let told = retry(|| rustix::fs::ioctl_getflags(thing.as_fd()));
        InodeFlags(told.map_or(0, |flags| flags.bits()))
    }

    /// Whether names can be made in a directory and not removed (`chattr +a`).
    #[must_use]
    pub fn keep_names(self) -> bool {
        self.0 & Self::APPEND != 0
    }

    /// Whether a new file in a directory with flags `above` would have these.
    #[must_use]
    pub fn come_from(self, above: InodeFlags) -> bool {
        (self.0 ^ above.0 & !Self::OF_DIRECTORIES) & Self::HANDED_DOWN == 0
    }
}

impl Heritage {
    /// `statx`, `ioctl(FS_IOC_FSGETXATTR)`, `flistxattr`, and `fgetxattr` of what is handed down.
    ///
    /// # Errors
    /// EOPNOTSUPP where the kernel (before 5.8) does not tell the mount; ENOTTY where the file system has no such flags.
    pub fn of(dir: &Dir) -> io::Result<Heritage> {
        const S_ISGID: u16 = 0o2000;
        let wanted = StatxFlags::MODE | StatxFlags::GID | StatxFlags::MNT_ID;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let told = retry(|| rustix::fs::statx(dir.as_fd(), c"", flags, wanted))?;
        if !StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::MNT_ID) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let mut attributes = Vec::new();
        let is_handed_down =
            |name: &std::ffi::CStr| name == ACL_DEFAULT || name.to_bytes().starts_with(b"security.");
        xattr::read(Of::Handle(dir.as_fd()), &mut XattrBuffer::default(), is_handed_down, |name, value| {
            attributes.push((name.to_owned(), value.to_owned()));
            Ok(())
        })?;
        attributes.sort_unstable();
        Ok(Heritage {
            dev: (told.stx_dev_major, told.stx_dev_minor),
            mount: told.stx_mnt_id,
            group: told.stx_gid,
            is_setgid: told.stx_mode & S_ISGID != 0,
            layout: Layout::of(dir)?,
            attributes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::NameBuf;
    use crate::meta;

    fn below(dir: &Dir, name: &str) -> Dir {
        let name = NameBuf::new(name.as_bytes()).unwrap();
        dir.make_dir(name.as_name(), 0o700).unwrap();
        dir.open_dir(name.as_name()).unwrap()
    }

    /// Directories of one make hand down the same; a setgid one, one with a default ACL and one on another mount do not.
    #[test]
    fn directories_that_hand_down_the_same_are_told_from_others() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let (one, other) = (below(&dir, "one"), below(&dir, "other"));
        let Ok(same) = Heritage::of(&one) else {
            return skips::here("needs FS_IOC_FSGETXATTR and a kernel that tells mounts apart");
        };
        assert_eq!(same, Heritage::of(&other).unwrap());
        meta::set_mode(&other, 0o2700).unwrap();
        assert_ne!(same, Heritage::of(&other).unwrap(), "setgid");
        meta::set_mode(&other, 0o700).unwrap();
        assert_eq!(same, Heritage::of(&other).unwrap());
        xattr::set(Of::Handle(other.as_fd()), c"user.a", b"1").unwrap();
        assert_eq!(same, Heritage::of(&other).unwrap(), "nobody inherits that");
        // Version 2; owner, group and others, each with a tag, permissions and no id (linux/posix_acl_xattr.h).
        let entry = |tag: u8, perms: u8| [tag, 0, perms, 0, 255, 255, 255, 255];
        let acl = [&[2, 0, 0, 0][..], &entry(1, 7), &entry(4, 5), &entry(32, 0)].concat();
        xattr::set(Of::Handle(other.as_fd()), ACL_DEFAULT, &acl).unwrap();
        assert_ne!(same, Heritage::of(&other).unwrap(), "default ACL");
        let shm = Dir::open(std::path::Path::new("/dev/shm")).unwrap();
        assert!(Heritage::of(&shm).map_or(true, |of_shm| of_shm != same), "another file system");
    }
}
