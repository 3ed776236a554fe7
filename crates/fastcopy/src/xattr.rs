//! Extended attributes, and with them POSIX ACLs and file capabilities, which on Linux are attributes too.
//!
//! Must not know which of them should be kept. See xattr(7).

use crate::dir::{Dir, Name};
use crate::meta::{Kind, or_by_path, proc_path};
use crate::retry::retry;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::XattrFlags;
use std::ffi::{CStr, CString};
use std::io;

/// The access ACL's attribute.
pub const ACL_ACCESS: &CStr = c"system.posix_acl_access";
/// A directory's default ACL's attribute.
pub const ACL_DEFAULT: &CStr = c"system.posix_acl_default";

/// Whose attributes.
#[derive(Clone, Copy)]
pub enum Of<'a> {
    /// A handle's, `O_PATH` or not.
    Handle(BorrowedFd<'a>),
    /// A name's own in a directory, a link's included, by `/proc/self/fd/N/name` and the `l` calls: for what is never
    /// opened. Where there is no `/proc`, a file or directory is opened all the same, and a link or special file has none.
    At(&'a Dir, Name<'a>),
}

impl Of<'_> {
    fn path(dir: &Dir, name: Name<'_>) -> io::Result<CString> {
        let mut bytes = proc_path(dir)?.into_bytes();
        bytes.push(b'/');
        bytes.extend_from_slice(name.bytes());
        Ok(CString::new(bytes)?)
    }

    /// `fstatfs`.
    #[cfg(target_os = "linux")]
    fn file_system(self) -> io::Result<rustix::fs::StatFs> {
        let fd = match self {
            Of::Handle(fd) => fd,
            Of::At(dir, _) => dir.as_fd(),
        };
        retry(|| rustix::fs::fstatfs(fd))
    }

    #[cfg(target_os = "linux")]
    fn is_on_xfs(self) -> io::Result<bool> {
        self.file_system().map(|of| of.f_type == libc::XFS_SUPER_MAGIC as rustix::fs::FsWord)
    }

    #[cfg(not(target_os = "linux"))]
    fn is_on_xfs(self) -> io::Result<bool> {
        Ok(false)
    }

    /// `fstatfs`, after [`set`] has said ENOSPC: whether the attributes of one file may be no larger here, and the disk is not
    /// full. ext2, ext3 and ext4 have a block for them and say the same of both (xattr(7)); with `ea_inode` ext4 also where it has
    /// no inode left.
    #[cfg(target_os = "linux")]
    pub fn takes_no_more(self) -> io::Result<bool> {
        // More than all attributes of a file are.
        const ROOM_BYTES: u64 = 1 << 20;
        let of = self.file_system()?;
        let free = of.f_bavail.saturating_mul(u64::try_from(of.f_bsize).unwrap_or(0));
        let is_ext = of.f_type == libc::EXT4_SUPER_MAGIC as rustix::fs::FsWord;
        Ok(is_ext && free >= ROOM_BYTES && of.f_ffree > 0)
    }

    /// Only those of Linux do that.
    #[cfg(not(target_os = "linux"))]
    pub fn takes_no_more(self) -> io::Result<bool> {
        Ok(false)
    }
}

/// A buffer for names and one for values, reused.
#[derive(Default)]
pub struct XattrBuffer {
    names: Vec<u8>,
    value: Vec<u8>,
}

/// Calls with growing room until the answer fits (ERANGE means that it did not).
fn grown(buffer: &mut Vec<u8>, mut call: impl FnMut(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
    if buffer.is_empty() {
        buffer.resize(1024, 0);
    }
    loop {
        match call(buffer) {
            // XATTR_LIST_MAX and XATTR_SIZE_MAX are both 64 KiB (linux/limits.h).
            Err(e) if e.raw_os_error() == Some(libc::ERANGE) && buffer.len() < 1 << 20 => {
                let room = buffer.len() * 8;
                buffer.resize(room, 0);
            }
            other => return other,
        }
    }
}

/// What a call by the path of [`Of::At`] came to; where there is no `/proc` to make one of (ENOENT of a name that is there), what the
/// call by a handle comes to.
fn or_by_handle<T>(
    dir: &Dir,
    name: Name<'_>,
    by_path: io::Result<T>,
    by_handle: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
) -> io::Result<T> {
    match by_path {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => match dir.stat(name)?.kind {
            Kind::File | Kind::Dir => by_handle(dir.open_file(name)?.as_fd()),
            _ => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        },
        other => other,
    }
}

/// No attributes here at all, by this file system's word.
fn unsupported(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}

fn list(of: Of<'_>, names: &mut Vec<u8>) -> io::Result<usize> {
    match of {
        Of::Handle(fd) => {
            let listed = grown(names, |b| retry(|| rustix::fs::flistxattr(fd, &mut *b)));
            or_by_path(fd, listed, |path| grown(names, |b| retry(|| rustix::fs::listxattr(path, &mut *b))))
        }
        Of::At(dir, name) => {
            let path = Of::path(dir, name)?;
            let listed = grown(names, |b| retry(|| rustix::fs::llistxattr(&path, &mut *b)));
            or_by_handle(dir, name, listed, |fd| list(Of::Handle(fd), names))
        }
    }
}

/// `flistxattr` without room for the names: whether an open file has any attributes, ACLs among them. A file system without
/// attributes has none.
pub fn has_any(fd: impl AsFd) -> io::Result<bool> {
    match retry(|| rustix::fs::flistxattr_query(fd.as_fd())) {
        Ok(bytes) => Ok(bytes > 0),
        Err(e) if unsupported(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// `fgetxattr` into `value`; `None` when there is no such attribute or no attributes at all.
pub fn get<'b>(of: Of<'_>, attr: &CStr, value: &'b mut Vec<u8>) -> io::Result<Option<&'b [u8]>> {
    let got = match of {
        Of::Handle(fd) => {
            let got = grown(value, |b| retry(|| rustix::fs::fgetxattr(fd, attr, &mut *b)));
            or_by_path(fd, got, |path| grown(value, |b| retry(|| rustix::fs::getxattr(path, attr, &mut *b))))
        }
        Of::At(dir, name) => {
            let path = Of::path(dir, name)?;
            let got = grown(value, |b| retry(|| rustix::fs::lgetxattr(&path, attr, &mut *b)));
            or_by_handle(dir, name, got, |fd| {
                grown(value, |b| retry(|| rustix::fs::fgetxattr(fd, attr, &mut *b)))
            })
        }
    };
    match got {
        Ok(n) => Ok(value.get(..n)),
        Err(e) if e.raw_os_error() == Some(libc::ENODATA) || unsupported(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// `fsetxattr`. What [shows an ACL](shows_acl) where it is set is left alone.
pub fn set(of: Of<'_>, attr: &CStr, value: &[u8]) -> io::Result<()> {
    if shows_acl(attr.to_bytes()) && of.is_on_xfs()? {
        return Ok(());
    }
    match of {
        Of::Handle(fd) => {
            let set = retry(|| rustix::fs::fsetxattr(fd, attr, value, XattrFlags::empty()));
            or_by_path(fd, set, |path| retry(|| rustix::fs::setxattr(path, attr, value, XattrFlags::empty())))
        }
        Of::At(dir, name) => {
            let path = Of::path(dir, name)?;
            let set = retry(|| rustix::fs::lsetxattr(&path, attr, value, XattrFlags::empty()));
            or_by_handle(dir, name, set, |fd| self::set(Of::Handle(fd), attr, value))
        }
    }
}

/// `fremovexattr`; absence is no error. What [shows an ACL](shows_acl) there is left alone.
pub fn remove(of: Of<'_>, attr: &CStr) -> io::Result<()> {
    if shows_acl(attr.to_bytes()) && of.is_on_xfs()? {
        return Ok(());
    }
    let removed = match of {
        Of::Handle(fd) => {
            let removed = retry(|| rustix::fs::fremovexattr(fd, attr));
            or_by_path(fd, removed, |path| retry(|| rustix::fs::removexattr(path, attr)))
        }
        Of::At(dir, name) => {
            let path = Of::path(dir, name)?;
            let removed = retry(|| rustix::fs::lremovexattr(&path, attr));
            or_by_handle(dir, name, removed, |fd| self::remove(Of::Handle(fd), attr))
        }
    };
    match removed {
        Err(e) if e.raw_os_error() == Some(libc::ENODATA) || unsupported(&e) => Ok(()),
        other => other,
    }
}

/// Whether an attribute is one by which XFS shows an ACL, or another thing of its own, once more: to set it there or to remove it
/// would change that. On other file systems it says nothing.
#[must_use]
pub fn shows_acl(attr: &[u8]) -> bool {
    attr.starts_with(b"trusted.SGI_")
}

/// Whether an attribute is of one inode or one place alone, so that no copy has it: a signature of EVM is made of the inode, AFS says
/// by attributes where something lies. As libattr's `xattr.conf`, which cp goes by.
#[must_use]
pub fn is_of_one(attr: &[u8]) -> bool {
    attr == b"security.evm" || [&b"xfsroot."[..], b"afs."].iter().any(|family| attr.starts_with(family))
}

/// Reads the attributes' names and calls `each` with name and value of those that `wanted` takes, of which none
/// [is of one thing alone](is_of_one). A file system without attributes has none. One system call for a file without attributes.
pub fn read(
    of: Of<'_>,
    buffer: &mut XattrBuffer,
    wanted: impl Fn(&CStr) -> bool,
    mut each: impl FnMut(&CStr, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let XattrBuffer { names, value } = buffer;
    let length = match list(of, names) {
        Ok(n) => n,
        Err(e) if unsupported(&e) => return Ok(()),
        Err(e) => return Err(e),
    };
    let mut rest = names.get(..length).unwrap_or_default();
    while let Ok(name) = CStr::from_bytes_until_nul(rest) {
        rest = rest.get(name.count_bytes() + 1..).unwrap_or_default();
        if is_of_one(name.to_bytes()) || !wanted(name) {
            continue;
        }
        // An attribute that went away in between was changed under us; the caller's second fstat will say so.
        if let Some(v) = get(of, name, value)? {
            each(name, v)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{is_of_one, shows_acl};

    #[test]
    fn what_no_copy_has_and_what_xfs_shows_once_more() {
        for (attr, of_one, shows) in [
            ("trusted.SGI_ACL_FILE", false, true),
            ("trusted.SGI_ACL_DEFAULT", false, true),
            ("trusted.SGI_MAC_FILE", false, true),
            ("security.evm", true, false),
            ("xfsroot.any", true, false),
            ("afs.volume", true, false),
            ("system.posix_acl_access", false, false),
            ("system.nfs4_acl", false, false),
            ("trusted.sgi", false, false),
            ("security.capability", false, false),
            ("security.ima", false, false),
            ("security.evm2", false, false),
            ("user.trusted.SGI_ACL_FILE", false, false),
            ("user.afs.volume", false, false),
        ] {
            let got = (is_of_one(attr.as_bytes()), shows_acl(attr.as_bytes()));
            assert_eq!(got, (of_one, shows), "{attr}");
        }
    }
}
