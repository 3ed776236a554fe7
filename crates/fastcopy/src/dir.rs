//! A directory handle as authority: open, create, list, rename and remove one *name* below it, never following a
//! link it was not told to follow.
//!
//! Must not know what is copied or why. Every function is one system call unless it says otherwise; errors are the
//! kernel's.

use crate::info::{Info, Kind};
use crate::retry::retry;
use crate::sync;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RawDir, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// So many times in a row a name would have to be replaced just then.
const LINK_ATTEMPTS: usize = 8;

/// One component of a path: not empty, not `.` or `..`, without `/`. What can only be made by checking need not be
/// checked again below.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name<'a>(&'a CStr);

impl<'a> Name<'a> {
    /// Checks.
    #[must_use]
    pub fn new(name: &'a CStr) -> Option<Name<'a>> {
        let bytes = name.to_bytes();
        let fine = !matches!(bytes, b"" | b"." | b"..") && !has_slash(bytes);
        fine.then_some(Name(name))
    }
    /// As the kernel wants it.
    #[must_use]
    pub fn c_str(self) -> &'a CStr {
        self.0
    }
    /// Without the final NUL.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0.to_bytes()
    }
    /// For keeping.
    #[must_use]
    pub fn to_owned(self) -> NameBuf {
        NameBuf(self.0.to_owned())
    }
}

/// `memchr`: every name that is listed is looked at, and the C library's takes a sixth of the instructions of a loop.
fn has_slash(bytes: &[u8]) -> bool {
    // SAFETY: that many bytes are there to be read, and nothing keeps the pointer.
    unsafe { !libc::memchr(bytes.as_ptr().cast(), i32::from(b'/'), bytes.len()).is_null() }
}

/// What is known to be a name.
///
/// # Safety
/// `with_nul` are the bytes of a [`Name`], and the NUL behind them.
pub(crate) unsafe fn unchecked(with_nul: &[u8]) -> Name<'_> {
    // SAFETY: the bytes of a `Name` have no NUL inside, and there is one behind them, as the caller says.
    Name(unsafe { CStr::from_bytes_with_nul_unchecked(with_nul) })
}

impl std::fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// An owned [`Name`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NameBuf(CString);

impl NameBuf {
    /// Checks; `None` also when there is a NUL inside.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<NameBuf> {
        let owned = CString::new(bytes).ok()?;
        Name::new(&owned)?;
        Some(NameBuf(owned))
    }
    /// Borrowed.
    #[must_use]
    pub fn as_name(&self) -> Name<'_> {
        Name(&self.0)
    }
    /// Without the final NUL.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.to_bytes()
    }
}

/// What a listing says about one name. `kind` is `None` where the file system does not tell.
#[derive(Debug)]
pub struct Listed<'a> {
    /// The name.
    pub name: Name<'a>,
    /// Its type, as d_type.
    pub kind: Option<Kind>,
    /// Its inode number.
    pub ino: u64,
}

/// Room for one getdents64 answer, reused from directory to directory.
pub struct ListBuffer(Vec<MaybeUninit<u8>>);

impl ListBuffer {
    /// 64 KiB: some two thousand names a call.
    #[must_use]
    pub fn new() -> ListBuffer {
        ListBuffer(vec![MaybeUninit::uninit(); 64 << 10])
    }
}

impl Default for ListBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// What a lock attempt found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// It is ours until the handle is closed.
    Held,
    /// Another process has it.
    Busy,
    /// This file system or this handle cannot be locked.
    Unsupported,
}

/// Why a special file was left alone below a [`Dir::confined`] handle.
#[derive(Debug)]
pub struct SpecialRefused(Kind);

impl std::fmt::Display for SpecialRefused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it is a {}, which a confined program neither opens nor makes", self.0.word())
    }
}

impl std::error::Error for SpecialRefused {}

impl SpecialRefused {
    /// Whether this is why a call failed.
    #[must_use]
    pub fn is(e: &io::Error) -> bool {
        e.get_ref().is_some_and(|inner| inner.is::<SpecialRefused>())
    }

    fn error(kind: Kind) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, SpecialRefused(kind))
    }
}

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// Below it no special file is opened and no device node is made; every handle opened through this one inherits it.
    confined: bool,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits & 0o7777)
}

/// `open(O_WRONLY | O_NOCTTY)`: what is there, which is of this kind, to write into; makes no name. A FIFO with
/// `O_NONBLOCK`: without a reader it is ENXIO. A device is waited for, as the kernel does.
pub fn open_to_write(path: &Path, kind: Kind) -> io::Result<OwnedFd> {
    let block = if kind == Kind::Fifo { OFlags::NONBLOCK } else { OFlags::empty() };
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC | block;
    retry(|| rustix::fs::openat(CWD, path, flags, Mode::empty()))
}

/// `statx(AT_EMPTY_PATH)`: what something open is, and when it came to be as [`Dir::btime`] says it; where there is no
/// statx, `fstat` and 0.
pub fn info_and_birth(fd: impl AsFd) -> io::Result<(Info, u64)> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::StatxFlags;
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        match retry(|| rustix::fs::statx(fd.as_fd(), c"", AtFlags::EMPTY_PATH, wanted)) {
            Ok(s) => return Ok((Info::from_statx(&s), birth(&s))),
            Err(e) if e.raw_os_error() != Some(libc::ENOSYS) => return Err(e),
            Err(_) => {}
        }
    }
    Ok((Info::of(fd)?, 0))
}

impl Dir {
    fn opened(fd: OwnedFd, confined: bool) -> Dir {
        Dir { fd, confined }
    }

    /// The same directory as the top of what a program is confined to: from it and from every handle that is opened
    /// through it, no FIFO, socket or device is opened, no symbolic link is followed to a file, and no device node is
    /// made.
    #[must_use]
    pub fn confined(self) -> Dir {
        Dir { confined: true, ..self }
    }

    /// `open(path, O_DIRECTORY)`: the one way in from a path that a person typed, following links as they expect.
    ///
    /// A directory that may be searched but not read (mode 0711 of another user) is opened as `O_PATH`: enough to
    /// work below it.
    pub fn open(path: &Path) -> io::Result<Dir> {
        Dir::open_flags(CWD, path, OFlags::empty(), false)
    }

    fn open_flags<P: rustix::path::Arg + Copy>(
        at: BorrowedFd<'_>,
        path: P,
        extra: OFlags,
        confined: bool,
    ) -> io::Result<Dir> {
        match retry(|| rustix::fs::openat(at, path, DIR_FLAGS | extra, Mode::empty())) {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | extra;
                retry(|| rustix::fs::openat(at, path, flags, Mode::empty()))
                    .map(|fd| Dir::opened(fd, confined))
                    .map_err(|_| e)
            }
            other => other.map(|fd| Dir::opened(fd, confined)),
        }
    }

    /// `openat(O_DIRECTORY | O_NOFOLLOW)`; a link there is ENOTDIR or ELOOP. Falls back to `O_PATH` as [`Dir::open`].
    pub fn open_dir(&self, name: Name<'_>) -> io::Result<Dir> {
        Dir::open_flags(self.fd.as_fd(), name.0, OFlags::NOFOLLOW, self.confined)
    }

    /// `openat(O_DIRECTORY)` through a link, for callers that were told to follow links.
    pub fn open_dir_following(&self, name: Name<'_>) -> io::Result<Dir> {
        Dir::open_flags(self.fd.as_fd(), name.0, OFlags::empty(), self.confined)
    }

    /// `openat(O_DIRECTORY | O_NOFOLLOW)` that must be readable: no `O_PATH` fallback, for listing.
    pub fn open_dir_readable(&self, name: Name<'_>) -> io::Result<Dir> {
        let flags = DIR_FLAGS | OFlags::NOFOLLOW;
        let fd = retry(|| rustix::fs::openat(&self.fd, name.0, flags, Mode::empty()))?;
        Ok(Dir::opened(fd, self.confined))
    }

    /// `openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)`: a directory several components
    /// down; where the kernel or a sandbox has no openat2, step by step with O_NOFOLLOW. `path` must be relative.
    pub fn open_beneath(&self, path: &CStr) -> io::Result<Dir> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match retry(|| rustix::fs::openat2(&self.fd, path, DIR_FLAGS, Mode::empty(), how)) {
            Ok(fd) => Ok(Dir::opened(fd, self.confined)),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EAGAIN)) => {
                let mut here = self.try_clone()?;
                for part in path.to_bytes().split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".") {
                    let name = NameBuf::new(part).ok_or_else(|| io::Error::from_raw_os_error(libc::EXDEV))?;
                    here = here.open_dir(name.as_name())?;
                }
                Ok(here)
            }
            Err(e) => Err(e),
        }
    }

    /// `openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)`: a directory that a person named, relative to this one; links
    /// are followed as long as they lead nowhere else. Where the kernel or a sandbox has no openat2, step by step and
    /// through no link. `path` must be relative.
    pub fn open_within(&self, path: &CStr) -> io::Result<Dir> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match retry(|| rustix::fs::openat2(&self.fd, path, DIR_FLAGS, Mode::empty(), how)) {
            Ok(fd) => Ok(Dir::opened(fd, self.confined)),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EAGAIN)) => {
                self.open_beneath(path)
            }
            Err(e) => Err(e),
        }
    }

    /// `openat(fd, ".")`: the same directory with an offset of its own.
    pub fn reopen(&self) -> io::Result<Dir> {
        let fd = retry(|| rustix::fs::openat(&self.fd, c".", DIR_FLAGS, Mode::empty()))?;
        Ok(Dir::opened(fd, self.confined))
    }

    /// `fcntl(F_DUPFD_CLOEXEC)`.
    pub fn try_clone(&self) -> io::Result<Dir> {
        Ok(Dir::opened(self.fd.try_clone()?, self.confined))
    }

    /// `openat(".." )`: the parent, wherever it is now.
    pub fn parent(&self) -> io::Result<Dir> {
        Dir::open_flags(self.fd.as_fd(), c"..", OFlags::empty(), self.confined)
    }

    /// `openat(O_RDONLY | O_NOFOLLOW | O_NONBLOCK)`: a file to read. Without blocking, so that a FIFO put in the
    /// file's place cannot hang us; the caller looks at what it got with [`Info::of`].
    pub fn open_file(&self, name: Name<'_>) -> io::Result<OwnedFd> {
        self.open_leaf(name, OFlags::RDONLY | OFlags::NOFOLLOW)
    }

    /// [`sync::all`] of the file `name`, through no link; of the whole file system where it may not be read.
    pub fn sync_file(&self, name: Name<'_>) -> io::Result<()> {
        match self.open_file(name) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => sync::filesystem(self),
            opened => sync::all(opened?),
        }
    }

    /// As [`Dir::open_file`], through a link.
    pub fn open_file_following(&self, name: Name<'_>) -> io::Result<OwnedFd> {
        self.open_leaf(name, OFlags::RDONLY)
    }

    /// `openat(O_WRONLY | O_NOFOLLOW | O_NONBLOCK)` of what is there, for writing in place.
    pub fn open_existing(&self, name: Name<'_>) -> io::Result<OwnedFd> {
        self.open_leaf(name, OFlags::WRONLY | OFlags::NOFOLLOW)
    }

    /// As [`Dir::open_existing`], through a link.
    pub fn open_existing_following(&self, name: Name<'_>) -> io::Result<OwnedFd> {
        self.open_leaf(name, OFlags::WRONLY)
    }

    /// `openat(O_RDWR | O_NOFOLLOW | O_NONBLOCK)` of what is there.
    pub fn open_read_write(&self, name: Name<'_>) -> io::Result<OwnedFd> {
        self.open_leaf(name, OFlags::RDWR | OFlags::NOFOLLOW)
    }

    /// `openat(O_TMPFILE | O_RDWR)`: a file in this directory's file system that has no name, and goes with its
    /// descriptor.
    pub fn unnamed(&self, mode: u32) -> io::Result<OwnedFd> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_bits_truncate(mode);
        retry(|| rustix::fs::openat(&self.fd, c".", flags, mode))
    }

    /// `linkat(AT_EMPTY_PATH)`: gives a file of [`Dir::unnamed`] its first name; EEXIST when something is there. Where that
    /// is not allowed (before Linux 6.10, to any user but root) `linkat(/proc/self/fd/N, AT_SYMLINK_FOLLOW)` does the same.
    pub fn name_unnamed(&self, file: impl AsFd, name: Name<'_>) -> io::Result<()> {
        use rustix::fd::AsRawFd;
        let file = file.as_fd();
        match retry(|| rustix::fs::linkat(file, c"", &self.fd, name.0, AtFlags::EMPTY_PATH)) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EPERM | libc::EACCES)) => {
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                retry(|| rustix::fs::linkat(CWD, path.as_str(), &self.fd, name.0, AtFlags::SYMLINK_FOLLOW))
            }
            other => other,
        }
    }

    /// `fstatfs`: whether workers who make files without names wait for each other where their directories lie in one allocation
    /// group. On xfs they do: such files are on a list of that group, which one lock guards until each transaction is over.
    pub fn unnamed_files_wait(&self) -> bool {
        const XFS: rustix::fs::FsWord = libc::XFS_SUPER_MAGIC as _;
        retry(|| rustix::fs::fstatfs(&self.fd)).is_ok_and(|fs| { fs.f_type } == XFS)
    }

    /// `openat(O_PATH | O_NOFOLLOW)`: a handle on whatever the name is, a link itself included.
    pub fn open_path(&self, name: Name<'_>) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        retry(|| rustix::fs::openat(&self.fd, name.0, flags, Mode::empty()))
    }

    fn open_leaf(&self, name: Name<'_>, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        if self.confined {
            return self.open_ordinary(name, flags);
        }
        retry(|| rustix::fs::openat(&self.fd, name.0, flags, Mode::empty()))
    }

    /// `openat(O_PATH | O_NOFOLLOW)`, `fstat`, `open(/proc/self/fd/N)`: merely opening a device or a FIFO may do
    /// something, so it is known what the name is before it is opened, and the very inode that was looked at is opened.
    fn open_ordinary(&self, name: Name<'_>, flags: OFlags) -> io::Result<OwnedFd> {
        use rustix::fd::AsRawFd;
        let handle = self.open_path(name)?;
        let info = Info::of(&handle)?;
        match info.kind {
            Kind::Link => return Err(Errno::LOOP.into()),
            kind if kind.is_special() => return Err(SpecialRefused::error(kind)),
            _ => {}
        }
        let flags = flags - OFlags::NOFOLLOW;
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        match retry(|| rustix::fs::open(path.as_str(), flags, Mode::empty())) {
            // Without procfs the name is opened again, and must still be what was looked at.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
                let flags = flags | OFlags::NOFOLLOW;
                let fd = retry(|| rustix::fs::openat(&self.fd, name.0, flags, Mode::empty()))?;
                let now = Info::of(&fd)?;
                if now.id() == info.id() { Ok(fd) } else { Err(SpecialRefused::error(now.kind)) }
            }
            other => other,
        }
    }

    /// `openat(O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW)`: a new file, readable as well so that what landed can be
    /// read back. `mode_bits` go through the umask or the directory's default ACL, as the kernel does it.
    pub fn create_file(&self, name: Name<'_>, mode_bits: u32) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        retry(|| rustix::fs::openat(&self.fd, name.0, flags, mode(mode_bits)))
    }

    /// `mkdirat`.
    pub fn make_dir(&self, name: Name<'_>, mode_bits: u32) -> io::Result<()> {
        retry(|| rustix::fs::mkdirat(&self.fd, name.0, mode(mode_bits)))
    }

    /// `symlinkat`.
    pub fn make_link(&self, target: &CStr, name: Name<'_>) -> io::Result<()> {
        retry(|| rustix::fs::symlinkat(target, &self.fd, name.0))
    }

    /// `mknodat`: a FIFO, socket, or device with `rdev`.
    pub fn make_special(&self, name: Name<'_>, kind: Kind, mode_bits: u32, rdev: u64) -> io::Result<()> {
        if self.confined && kind.is_device() {
            return Err(SpecialRefused::error(kind));
        }
        retry(|| rustix::fs::mknodat(&self.fd, name.0, kind.file_type(), mode(mode_bits), rdev))
    }

    /// `linkat` without following: a second name for whatever `from` is.
    ///
    /// The kernel says ENOENT of a name that another program replaces just then: the file that it had found has lost its
    /// last name before it got the next. So while `from` is there, a few attempts are made.
    pub fn hard_link(&self, from: Name<'_>, to_dir: &Dir, to: Name<'_>) -> io::Result<()> {
        let link = || retry(|| rustix::fs::linkat(&self.fd, from.0, &to_dir.fd, to.0, AtFlags::empty()));
        for _ in 1..LINK_ATTEMPTS {
            match link() {
                Err(e) if Errno::from_io_error(&e) == Some(Errno::NOENT) && self.stat(from).is_ok() => {}
                other => return other,
            }
        }
        link()
    }

    /// `readlinkat`.
    pub fn read_link(&self, name: Name<'_>) -> io::Result<CString> {
        retry(|| rustix::fs::readlinkat(&self.fd, name.0, Vec::new()))
    }

    /// `unlinkat`.
    pub fn remove_file(&self, name: Name<'_>) -> io::Result<()> {
        retry(|| rustix::fs::unlinkat(&self.fd, name.0, AtFlags::empty()))
    }

    /// `unlinkat(AT_REMOVEDIR)`.
    pub fn remove_dir(&self, name: Name<'_>) -> io::Result<()> {
        retry(|| rustix::fs::unlinkat(&self.fd, name.0, AtFlags::REMOVEDIR))
    }

    /// `renameat`: replaces what is there.
    pub fn rename(&self, from: Name<'_>, to_dir: &Dir, to: Name<'_>) -> io::Result<()> {
        retry(|| rustix::fs::renameat(&self.fd, from.0, &to_dir.fd, to.0))
    }

    /// `renameat2(RENAME_NOREPLACE)`: EEXIST when something is there. Where the file system lacks it (EINVAL), a hard
    /// link and an unlink do the same for files, and a directory is renamed after a look: `renameat` gives it the place
    /// of an empty directory and of nothing else. A file is refused with EINVAL where there are no links either.
    pub fn rename_new(&self, from: Name<'_>, to_dir: &Dir, to: Name<'_>) -> io::Result<()> {
        let flags = RenameFlags::NOREPLACE;
        match retry(|| rustix::fs::renameat_with(&self.fd, from.0, &to_dir.fd, to.0, flags)) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
                match self.hard_link(from, to_dir, to) {
                    Ok(()) => self.remove_file(from),
                    Err(l) if l.raw_os_error() == Some(libc::EEXIST) => Err(l),
                    Err(_) if self.stat(from)?.kind == Kind::Dir => self.rename_dir_new(from, to_dir, to),
                    Err(_) => Err(e),
                }
            }
            other => other,
        }
    }

    /// `fstatat` and `renameat`: a directory whose new name was free a moment ago.
    fn rename_dir_new(&self, from: Name<'_>, to_dir: &Dir, to: Name<'_>) -> io::Result<()> {
        if to_dir.look(to)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        match self.rename(from, to_dir, to) {
            // Another process was faster.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTEMPTY | libc::ENOTDIR)) => {
                Err(Errno::EXIST.into())
            }
            other => other,
        }
    }

    /// `renameat2(RENAME_EXCHANGE)`.
    pub fn exchange(&self, from: Name<'_>, to_dir: &Dir, to: Name<'_>) -> io::Result<()> {
        retry(|| rustix::fs::renameat_with(&self.fd, from.0, &to_dir.fd, to.0, RenameFlags::EXCHANGE))
    }

    /// `fstatat(AT_SYMLINK_NOFOLLOW)`.
    pub fn stat(&self, name: Name<'_>) -> io::Result<Info> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        retry(|| rustix::fs::statat(&self.fd, name.0, flags)).map(|s| Info::from_stat(&s))
    }

    /// `fstatat`, through a link.
    pub fn stat_following(&self, name: Name<'_>) -> io::Result<Info> {
        retry(|| rustix::fs::statat(&self.fd, name.0, AtFlags::empty())).map(|s| Info::from_stat(&s))
    }

    /// [`Dir::stat`], with absence as `None`: the one errno that is an answer.
    pub fn look(&self, name: Name<'_>) -> io::Result<Option<Info>> {
        match self.stat(name) {
            Ok(info) => Ok(Some(info)),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// `statx(STATX_BTIME)`, in nanoseconds: what tells an inode from the one that had its number before. 0 where the
    /// file system does not keep it.
    pub fn btime(&self, name: Name<'_>) -> io::Result<u64> {
        self.born_at(name.0, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
    }

    /// The same, of the directory itself.
    pub fn own_birth(&self) -> io::Result<u64> {
        self.born_at(c"", AtFlags::EMPTY_PATH)
    }

    #[cfg(target_os = "linux")]
    fn born_at(&self, path: &CStr, flags: AtFlags) -> io::Result<u64> {
        match retry(|| rustix::fs::statx(&self.fd, path, flags, rustix::fs::StatxFlags::BTIME)) {
            Ok(s) => Ok(birth(&s)),
            Err(e) if e.raw_os_error() != Some(libc::ENOSYS) => Err(e),
            _ => Ok(0),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn born_at(&self, path: &CStr, flags: AtFlags) -> io::Result<u64> {
        let empty = path.is_empty();
        if empty { Ok(0) } else { retry(|| rustix::fs::statat(&self.fd, path, flags)).map(|_| 0) }
    }

    /// `statx(AT_EMPTY_PATH)`: [`Dir::info`] and [`Dir::own_birth`] by one call, where there is statx.
    pub fn info_and_birth(&self) -> io::Result<(Info, u64)> {
        info_and_birth(&self.fd)
    }

    /// `fstatfs`: whether this file system is known to keep inode numbers and times of birth from mount to mount. Not
    /// so vfat, exfat and many a FUSE file system (numbers are made up), the root of exfat (born when it is mounted)
    /// and overlayfs (a directory of a lower layer is born once more when it is first written to).
    pub fn keeps_identities(&self) -> io::Result<bool> {
        #[cfg(target_os = "linux")]
        {
            const MAGICS: [rustix::fs::FsWord; 5] = [
                libc::EXT4_SUPER_MAGIC as _,
                libc::XFS_SUPER_MAGIC as _,
                libc::BTRFS_SUPER_MAGIC as _,
                libc::F2FS_SUPER_MAGIC as _,
                libc::TMPFS_MAGIC as _,
            ];
            retry(|| rustix::fs::fstatfs(&self.fd)).map(|s| MAGICS.contains(&{ s.f_type }))
        }
        #[cfg(not(target_os = "linux"))]
        Ok(false)
    }

    /// `fstatvfs`: the id of the file system, where it is made of the UUID that stands on the disk (ext4, btrfs); 0 elsewhere.
    /// Most others make it of the number of their device, which may be another one from mount to mount.
    pub fn file_system_id(&self) -> io::Result<u64> {
        #[cfg(target_os = "linux")]
        {
            const MAGICS: [rustix::fs::FsWord; 2] =
                [libc::EXT4_SUPER_MAGIC as _, libc::BTRFS_SUPER_MAGIC as _];
            if MAGICS.contains(&retry(|| rustix::fs::fstatfs(&self.fd))?.f_type) {
                return retry(|| rustix::fs::fstatvfs(&self.fd)).map(|of| of.f_fsid);
            }
        }
        Ok(0)
    }

    /// `faccessat(W_OK, AT_EACCESS)`: whether what is there may be written, through a link; else why not.
    pub fn check_write(&self, name: Name<'_>) -> io::Result<()> {
        let (access, flags) = (rustix::fs::Access::WRITE_OK, AtFlags::EACCESS);
        retry(|| rustix::fs::accessat(&self.fd, name.0, access, flags))
    }

    /// The same of the directory itself, with the right to pass; else why not.
    pub fn check_write_here(&self) -> io::Result<()> {
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        retry(|| rustix::fs::accessat(&self.fd, c".", access, AtFlags::EACCESS))
    }

    /// `fstat` of the directory itself.
    pub fn info(&self) -> io::Result<Info> {
        Info::of(&self.fd)
    }

    /// `getdents64` until the end: calls `each` for every name but `.` and `..`. A handle is listed once; use
    /// [`Dir::reopen`] for a second time. `each` returns `false` to stop early.
    pub fn list(&self, buffer: &mut ListBuffer, mut each: impl FnMut(Listed<'_>) -> bool) -> io::Result<()> {
        let mut entries = RawDir::new(&self.fd, &mut buffer.0);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                // The descriptor is ours and open, so it is one that was opened as `O_PATH` because reading is not
                // permitted.
                Err(Errno::BADF) => return Err(Errno::ACCESS.into()),
                Err(e) => return Err(e.into()),
            };
            // The kernel refuses names with a slash itself; what `Name` leaves out here is `.` and `..`.
            let Some(name) = Name::new(entry.file_name()) else { continue };
            let kind = Kind::from_file_type(entry.file_type());
            if !each(Listed { name, kind, ino: entry.ino() }) {
                break;
            }
        }
        Ok(())
    }

    /// `readlink(/proc/self/fd/N)`, on macOS `fcntl(F_GETPATH)`: where the directory is now, without links. For finding
    /// it again, never as proof: it may be moved the moment after. A directory that was removed has a name that is
    /// not one.
    pub fn whereabouts(&self) -> io::Result<PathBuf> {
        #[cfg(target_os = "macos")]
        let path = retry(|| rustix::fs::getpath(&self.fd))?;
        #[cfg(not(target_os = "macos"))]
        let path = {
            use rustix::fd::AsRawFd;
            let link = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
            retry(|| rustix::fs::readlinkat(CWD, link.as_str(), Vec::new()))?
        };
        Ok(OsString::from_vec(path.into_bytes()).into())
    }

    /// [`try_lock`] of the directory.
    #[must_use]
    pub fn try_lock(&self) -> Lock {
        try_lock(&self.fd)
    }
}

/// When an inode came to be, in nanoseconds; 0 where the file system does not keep it.
#[cfg(target_os = "linux")]
fn birth(s: &rustix::fs::Statx) -> u64 {
    if s.stx_mask & rustix::fs::StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    let (sec, nsec) = (s.stx_btime.tv_sec as u64, u64::from(s.stx_btime.tv_nsec));
    sec.wrapping_mul(1_000_000_000).wrapping_add(nsec)
}

/// `flock(LOCK_EX | LOCK_NB)`: held until every copy of this handle is closed.
#[must_use]
pub fn try_lock(fd: impl AsFd) -> Lock {
    match retry(|| rustix::fs::flock(fd.as_fd(), FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Lock::Held,
        Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Lock::Busy,
        Err(_) => Lock::Unsupported,
    }
}

/// `flock(LOCK_UN)`: gives back what [`try_lock`] took, for a caller that keeps the handle.
pub fn unlock(fd: impl AsFd) -> io::Result<()> {
    retry(|| rustix::fs::flock(fd.as_fd(), FlockOperation::Unlock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_single_components() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
            assert!(NameBuf::new(bad).is_none(), "{bad:?}");
        }
        for good in [&b"..."[..], b".a", b"\xff", b"a\nb", b"-"] {
            assert!(NameBuf::new(good).is_some(), "{good:?}");
        }
    }

    #[test]
    fn a_link_in_a_directorys_place_is_not_followed_and_twins_work() {
        let t = tempfile::tempdir().unwrap();
        std::fs::create_dir(t.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", t.path().join("link")).unwrap();
        let d = Dir::open(t.path()).unwrap();
        let real = NameBuf::new(b"real").unwrap();
        let link = NameBuf::new(b"link").unwrap();
        assert!(d.open_dir(real.as_name()).is_ok());
        assert!(d.open_dir(link.as_name()).is_err());
        assert!(d.open_dir_following(link.as_name()).is_ok());
        assert!(d.open_beneath(c"real").is_ok());
        assert!(d.open_beneath(c"link").is_err());
        assert!(d.open_beneath(c"real/..").is_ok(), "beneath means not above the handle");
        assert!(d.open_beneath(c"..").is_err());
    }

    /// The handle's own wall, asked alone: no other one is up in a test of this crate.
    #[test]
    fn a_confined_handle_opens_nothing_special_and_makes_no_device() {
        let t = tempfile::tempdir().unwrap();
        let name = |text: &str| NameBuf::new(text.as_bytes()).unwrap();
        std::fs::create_dir(t.path().join("sub")).unwrap();
        std::fs::write(t.path().join("sub/file"), "x").unwrap();
        std::os::unix::fs::symlink("file", t.path().join("sub/link")).unwrap();
        let plain = Dir::open(t.path()).unwrap();
        let sub = plain.open_dir(name("sub").as_name()).unwrap();
        sub.make_special(name("fifo").as_name(), Kind::Fifo, 0o600, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(t.path().join("sub/socket")).unwrap();
        let top = Dir::open(t.path()).unwrap().confined();
        // However a handle was come by, it is confined.
        let ways = [
            top.open_dir(name("sub").as_name()).unwrap(),
            top.open_dir_readable(name("sub").as_name()).unwrap(),
            top.open_dir_following(name("sub").as_name()).unwrap(),
            top.open_beneath(c"sub").unwrap(),
            top.open_within(c"sub").unwrap(),
            top.try_clone().unwrap().reopen().unwrap().open_within(c"sub").unwrap(),
            top.open_beneath(c"sub").unwrap().parent().unwrap().open_dir(name("sub").as_name()).unwrap(),
        ];
        type Opens = fn(&Dir, Name<'_>) -> io::Result<OwnedFd>;
        let opens: [Opens; 4] =
            [Dir::open_file, Dir::open_file_following, Dir::open_existing, Dir::open_read_write];
        for (way, dir) in ways.iter().enumerate() {
            for (how, open) in opens.iter().enumerate() {
                for special in ["fifo", "socket"] {
                    let e = open(dir, name(special).as_name()).unwrap_err();
                    assert!(SpecialRefused::is(&e), "{way} {how} {special}: {e}");
                }
                let e = open(dir, name("link").as_name()).unwrap_err();
                assert_eq!(e.raw_os_error(), Some(libc::ELOOP), "{way} {how}");
                let fd = open(dir, name("file").as_name()).unwrap();
                assert_eq!(Info::of(&fd).unwrap().size, 1, "{way} {how}");
            }
            for device in [Kind::CharDevice, Kind::BlockDevice] {
                let e = dir.make_special(name("node").as_name(), device, 0o600, 0x103).unwrap_err();
                assert!(SpecialRefused::is(&e), "{way}: {e}");
            }
            dir.make_special(name(&format!("fifo {way}")).as_name(), Kind::Fifo, 0o600, 0).unwrap();
            assert_eq!(dir.look(name("node").as_name()).unwrap(), None, "{way}");
        }
        // The twin: a directory that is not confined opens what is there.
        assert!(sub.open_read_write(name("fifo").as_name()).is_ok());
        assert!(sub.open_file_following(name("link").as_name()).is_ok());
        if rustix::process::geteuid().is_root() {
            sub.make_special(name("node").as_name(), Kind::CharDevice, 0o600, 0x103).unwrap();
        }
    }

    #[test]
    fn rename_new_never_replaces() {
        let t = tempfile::tempdir().unwrap();
        std::fs::write(t.path().join("a"), "a").unwrap();
        std::fs::write(t.path().join("b"), "b").unwrap();
        let d = Dir::open(t.path()).unwrap();
        let (a, b, c) =
            (NameBuf::new(b"a").unwrap(), NameBuf::new(b"b").unwrap(), NameBuf::new(b"c").unwrap());
        let e = d.rename_new(a.as_name(), &d, b.as_name()).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EEXIST));
        d.rename_new(a.as_name(), &d, c.as_name()).unwrap();
        assert_eq!(std::fs::read_to_string(t.path().join("c")).unwrap(), "a");
    }

    #[test]
    fn a_directory_is_renamed_to_no_name_that_is_taken() {
        let t = tempfile::tempdir().unwrap();
        let d = Dir::open(t.path()).unwrap();
        let name = |text: &[u8]| NameBuf::new(text).unwrap();
        for dir in [&b"ours"[..], b"full", b"empty"] {
            d.make_dir(name(dir).as_name(), 0o700).unwrap();
        }
        for (dir, file) in [(&b"ours"[..], &b"x"[..]), (b"full", b"y")] {
            d.open_dir(name(dir).as_name()).unwrap().create_file(name(file).as_name(), 0o600).unwrap();
        }
        d.create_file(name(b"file").as_name(), 0o600).unwrap();
        let ours = name(b"ours");
        for taken in [&b"full"[..], b"empty", b"file", b"ours"] {
            let e = d.rename_dir_new(ours.as_name(), &d, name(taken).as_name()).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::EEXIST), "{taken:?}");
        }
        assert!(d.open_beneath(c"full").unwrap().stat(name(b"y").as_name()).is_ok());
        // The twin: one that is free.
        d.rename_dir_new(ours.as_name(), &d, name(b"free").as_name()).unwrap();
        assert!(d.open_beneath(c"free").unwrap().stat(name(b"x").as_name()).is_ok());
        assert_eq!(d.look(ours.as_name()).unwrap(), None);
    }
}
