//! Handing open descriptors to another process of the same user, over a socket in a directory that no other user enters.
//!
//! Must not know what flows through them.

use crate::dir::{Dir, ListBuffer, Lock, Name, NameBuf};
use crate::process::secret;
use crate::retry::retry;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the directory's name begins with; 32 hexadecimal digits follow.
const PREFIX: &str = "bcmr-join-";
/// The same where commands are heard; the first 8 digits are those of the process.
const COMMANDS: &str = "bcmr-ctl-";
/// The same where a shared connection of ssh listens.
const SSH: &str = "bcmr-ssh-";
/// Digits of a process.
const PID_DIGITS: usize = 8;
/// The socket in it.
const SOCKET: &str = "socket";
/// How often a fresh directory is made where one just made was taken for a dead one's.
const TRIES: usize = 8;
/// Descriptors that one message may carry.
const FDS_MAX: usize = 2;

/// A fresh directory of mode 0700 for one socket, which is locked as long as its process lives.
pub struct SocketDir {
    base: Dir,
    dir: Dir,
    name: NameBuf,
    path: PathBuf,
}

impl SocketDir {
    /// So many bytes are behind a base in [`SocketDir::path`].
    pub const BYTES_BELOW: usize = 1 + SSH.len() + 32 + 1 + SOCKET.len();

    /// Makes one below the first of `bases` that lets us, for a socket that ssh makes itself, and removes from all of them what
    /// processes of this user that were killed have left.
    ///
    /// # Errors
    /// Of the last base tried.
    pub fn for_ssh(bases: &[PathBuf]) -> io::Result<SocketDir> {
        in_one_of(bases, |base| SocketDir::open_below(SSH, base))
    }

    fn open_below(prefix: &str, path: &Path) -> io::Result<SocketDir> {
        let base = Dir::open(path)?;
        for _ in 0..TRIES {
            let mut digits: String = secret()?.iter().take(16).map(|b| format!("{b:02x}")).collect();
            if prefix == COMMANDS {
                digits.replace_range(..PID_DIGITS, &format!("{:08x}", std::process::id()));
            }
            let text = format!("{prefix}{digits}");
            let name = NameBuf::new(text.as_bytes()).ok_or(Errno::INVAL)?;
            base.make_dir(name.as_name(), 0o700)?;
            let made = base.open_dir_readable(name.as_name()).and_then(|dir| {
                check_dir(&dir)?;
                Ok(dir)
            });
            if made.as_ref().is_ok_and(|dir| is_claimed(&base, name.as_name(), dir)) {
                return Ok(SocketDir { base, dir: made?, name, path: path.join(text).join(SOCKET) });
            }
            match base.remove_dir(name.as_name()) {
                Err(e) if e.raw_os_error() != Some(libc::ENOENT) => return Err(e),
                _ => {}
            }
            match made {
                // Another run took it for one that was left behind, before it was claimed.
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                other => drop(other?),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Where the socket is, or will be.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is there.
    #[must_use]
    pub fn has_socket(&self) -> bool {
        let name = NameBuf::new(SOCKET.as_bytes());
        name.is_some_and(|name| self.dir.stat(name.as_name()).is_ok())
    }

    /// Removes socket and directory.
    ///
    /// # Errors
    /// What the kernel says; what is gone already is none.
    pub fn remove(&self) -> io::Result<()> {
        let socket = NameBuf::new(SOCKET.as_bytes()).ok_or(Errno::INVAL)?;
        for removed in [self.dir.remove_file(socket.as_name()), self.base.remove_dir(self.name.as_name())] {
            match removed {
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// Sweeps all of `bases`, and makes something in the first that lets us.
fn in_one_of<T>(bases: &[PathBuf], make: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    for base in bases {
        // What cannot be looked at or removed does no harm.
        drop(Dir::open(base).and_then(|base| sweep(&base)));
    }
    let mut last = io::Error::from(Errno::NOENT);
    for base in bases {
        match make(base) {
            Ok(made) => return Ok(made),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// A listening socket in a directory of its own.
pub struct RendezvousSocket {
    dir: SocketDir,
    listener: UnixListener,
}

impl RendezvousSocket {
    /// Makes it below the first of `bases` that lets us, and removes from all of them what processes of this user that were
    /// killed have left.
    ///
    /// # Errors
    /// Of the last base tried.
    pub fn open(bases: &[PathBuf]) -> io::Result<RendezvousSocket> {
        RendezvousSocket::open_as(PREFIX, bases)
    }

    /// The same for commands to this process, which [`commanded`] finds.
    ///
    /// # Errors
    /// As [`RendezvousSocket::open`].
    pub fn for_commands(bases: &[PathBuf]) -> io::Result<RendezvousSocket> {
        RendezvousSocket::open_as(COMMANDS, bases)
    }

    fn open_as(prefix: &str, bases: &[PathBuf]) -> io::Result<RendezvousSocket> {
        in_one_of(bases, |base| {
            let dir = SocketDir::open_below(prefix, base)?;
            match listen(&dir.dir) {
                Ok(listener) => Ok(RendezvousSocket { dir, listener }),
                Err(e) => {
                    dir.remove()?;
                    Err(e)
                }
            }
        })
    }

    /// Where [`connect`] finds it.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Waits for the next guest of the same user; others are sent away without a word. `None` after [`RendezvousSocket::stop`].
    ///
    /// # Errors
    /// EMFILE and its like.
    pub fn accept(&self) -> io::Result<Option<UnixStream>> {
        loop {
            match self.listener.accept() {
                Ok((guest, _)) => {
                    if same_user(&guest)? {
                        return Ok(Some(guest));
                    }
                }
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::ECONNABORTED)) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// No more connections are accepted; an [`RendezvousSocket::accept`] that waits comes back.
    pub fn stop(&self) {
        crate::flow::shutdown_both(&self.listener);
    }

    /// Removes socket and directory.
    ///
    /// # Errors
    /// As [`SocketDir::remove`].
    pub fn remove(&self) -> io::Result<()> {
        self.dir.remove()
    }
}

/// Listens in a directory, on a socket of mode 0600.
fn listen(dir: &Dir) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(through(dir))?;
    rustix::fs::chmod(through(dir), rustix::fs::Mode::from_raw_mode(0o600))?;
    Ok(listener)
}

/// Processes of this user that hear commands, with their sockets; directories of processes that are gone do not count.
#[must_use]
pub fn commanded(bases: &[PathBuf]) -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    for path in bases {
        let Ok(base) = Dir::open(path).and_then(|base| base.reopen()) else { continue };
        let mut names = Vec::new();
        let listed = base.list(&mut ListBuffer::new(), |listed| {
            if is_called(COMMANDS, listed.name.bytes()) {
                names.push(listed.name.to_owned());
            }
            true
        });
        // What could not be listed may have some all the same.
        drop(listed);
        for name in names {
            let lives = base
                .open_dir_readable(name.as_name())
                .is_ok_and(|dir| check_dir(&dir).is_ok() && dir.try_lock() == Lock::Busy);
            let pid = name.bytes().get(COMMANDS.len()..COMMANDS.len() + PID_DIGITS);
            let pid = pid.and_then(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
            if let (true, Some(pid)) = (lives, pid) {
                let name = std::ffi::OsStr::from_bytes(name.bytes());
                found.push((pid, path.join(name).join(SOCKET)));
            }
        }
    }
    // One base may be named twice.
    found.sort();
    found.dedup();
    found
}

/// Connects to where another process hears commands, directly below one of `bases`.
///
/// # Errors
/// As [`connect`].
pub fn connect_to_command(path: &Path, bases: &[PathBuf]) -> io::Result<UnixStream> {
    connect_as(COMMANDS, path, bases)
}

/// Connects to another process's [`RendezvousSocket`], which must lie directly below one of `bases`: a path that came over a
/// wire leads nowhere else, and to no other user's socket.
///
/// # Errors
/// EINVAL for a path that no meeting has, EACCES for a directory or socket of another user, else the kernel's.
pub fn connect(path: &Path, bases: &[PathBuf]) -> io::Result<UnixStream> {
    connect_as(PREFIX, path, bases)
}

fn connect_as(prefix: &str, path: &Path, bases: &[PathBuf]) -> io::Result<UnixStream> {
    let refused = || io::Error::from(Errno::INVAL);
    let (base, name) =
        bases.iter().find_map(|base| Some((base, named(prefix, path, base)?))).ok_or_else(refused)?;
    let name = NameBuf::new(name).ok_or_else(refused)?;
    let dir = Dir::open(base)?.open_dir(name.as_name())?;
    check_dir(&dir)?;
    let host = UnixStream::connect(through(&dir))?;
    if same_user(&host)? { Ok(host) } else { Err(Errno::ACCESS.into()) }
}

/// Locks a directory just made, and says whether it is there still: another process may have swept it before the lock.
fn is_claimed(base: &Dir, name: Name<'_>, dir: &Dir) -> bool {
    let id = dir.info().map(|info| info.id()).ok();
    match dir.try_lock() {
        Lock::Held => base.stat(name).ok().map(|info| info.id()) == id,
        Lock::Busy => false,
        // Then no other process can lock it either, and none sweeps it.
        Lock::Unsupported => true,
    }
}

/// Removes directories of meetings whose process is gone: of this user, closed to others, called as ours are, and not
/// locked by any process.
fn sweep(base: &Dir) -> io::Result<()> {
    let mut found = Vec::new();
    base.reopen()?.list(&mut ListBuffer::new(), |listed| {
        if [PREFIX, COMMANDS, SSH].iter().any(|prefix| is_called(prefix, listed.name.bytes())) {
            found.push(listed.name.to_owned());
        }
        true
    })?;
    let socket = NameBuf::new(SOCKET.as_bytes()).ok_or(Errno::INVAL)?;
    for name in found {
        let Ok(dir) = base.open_dir_readable(name.as_name()) else { continue };
        if check_dir(&dir).is_ok() && dir.try_lock() == Lock::Held {
            // With anything else in it the directory stays, as it is none of ours then.
            drop(dir.remove_file(socket.as_name()));
            drop(base.remove_dir(name.as_name()));
        }
    }
    Ok(())
}

/// Whether a directory is called as [`RendezvousSocket::open`] calls it.
fn is_called(prefix: &str, name: &[u8]) -> bool {
    let digits = name.strip_prefix(prefix.as_bytes());
    digits.is_some_and(|digits| {
        digits.len() == 32 && digits.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The name of the directory when `path` is what [`RendezvousSocket::open`] makes below `base`, byte for byte.
fn named<'a>(prefix: &str, path: &'a Path, base: &Path) -> Option<&'a [u8]> {
    let below = path.as_os_str().as_bytes().strip_prefix(base.as_os_str().as_bytes())?.strip_prefix(b"/")?;
    let (name, socket) = below.split_at_checked(prefix.len() + 32)?;
    (is_called(prefix, name) && socket.strip_prefix(b"/") == Some(SOCKET.as_bytes())).then_some(name)
}

/// The socket by its directory's handle: short enough for any `sun_path`, and not resolved a second time.
fn through(dir: &Dir) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", dir.as_fd().as_raw_fd()))
}

/// Ours, and closed to all other users.
fn check_dir(dir: &Dir) -> io::Result<()> {
    let info = dir.info()?;
    let ours = info.uid == rustix::process::geteuid().as_raw() && info.mode & 0o077 == 0;
    if ours { Ok(()) } else { Err(Errno::ACCESS.into()) }
}

/// `getsockopt(SO_PEERCRED)`: whether the other end runs as the same user.
fn same_user(socket: &UnixStream) -> io::Result<bool> {
    Ok(rustix::net::sockopt::socket_peercred(socket)?.uid == rustix::process::geteuid())
}

/// `sendmsg(SCM_RIGHTS)`: a short message, and with it descriptors, which stay open here too.
///
/// # Errors
/// What the kernel says; a message that was not taken whole is EMSGSIZE.
pub fn send(socket: &UnixStream, bytes: &[u8], fds: [BorrowedFd<'_>; FDS_MAX]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(Errno::MSGSIZE.into());
    }
    let sent =
        retry(|| rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL))?;
    if sent == bytes.len() { Ok(()) } else { Err(Errno::MSGSIZE.into()) }
}

/// `recvmsg(MSG_CMSG_CLOEXEC)` until `bytes` is full, within `time`: the message of [`send`] and its descriptors.
///
/// # Errors
/// What the kernel says; UnexpectedEof when less came, EBADF when other than two descriptors came.
pub fn receive(socket: &UnixStream, bytes: &mut [u8], time: Duration) -> io::Result<[OwnedFd; FDS_MAX]> {
    socket.set_read_timeout(Some(time))?;
    let mut fds = Vec::new();
    let mut have = 0;
    while have < bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = retry(|| {
            let into = &mut [IoSliceMut::new(&mut bytes[have..])];
            rustix::net::recvmsg(socket, into, &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                fds.extend(more);
            }
        }
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        have += got.bytes;
    }
    <[OwnedFd; FDS_MAX]>::try_from(fds).map_err(|_| Errno::BADF.into())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // tests look at the file system the ordinary way
mod tests {
    use super::*;
    use std::io::{Read, Write};

    const SOON: Duration = Duration::from_secs(10);

    fn base() -> (tempfile::TempDir, Vec<PathBuf>) {
        let tmp = tempfile::tempdir().unwrap();
        let bases = vec![tmp.path().join("not there"), tmp.path().to_owned()];
        (tmp, bases)
    }

    #[test]
    fn descriptors_cross_and_work_and_nothing_is_left() {
        let (tmp, bases) = base();
        let meeting = RendezvousSocket::open(&bases).unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        let guest = connect(meeting.path(), &bases).unwrap();
        send(&guest, b"a secret", [read.as_fd(), write.as_fd()]).unwrap();
        drop((read, write));
        let host = meeting.accept().unwrap().unwrap();
        let mut said = [0; 8];
        let [read, write] = receive(&host, &mut said, SOON).unwrap();
        assert_eq!(&said, b"a secret");
        std::fs::File::from(write).write_all(b"through").unwrap();
        let mut came = String::new();
        std::fs::File::from(read).read_to_string(&mut came).unwrap();
        assert_eq!(came, "through");
        meeting.remove().unwrap();
        meeting.remove().unwrap();
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_path_from_a_wire_leads_to_meetings_only() {
        let (tmp, bases) = base();
        let meeting = RendezvousSocket::open(&bases).unwrap();
        let honest = meeting.path().to_str().unwrap().to_owned();
        assert!(connect(Path::new(&honest), &bases).is_ok());
        // A socket of an attacker's choice, and each way of spelling past the check.
        let other = tmp.path().join("other");
        let _listener = UnixListener::bind(&other).unwrap();
        std::fs::create_dir(tmp.path().join("deep")).unwrap();
        let name = Path::new(&honest).parent().unwrap().file_name().unwrap().to_str().unwrap();
        let wrong = [
            other.to_str().unwrap().to_owned(),
            honest.replace("/socket", "/../other"),
            honest.replace(name, &format!("deep/../{name}")),
            honest.replace("/socket", "/socket/"),
            honest.replace("/socket", ""),
            format!("/{name}/socket"),
            honest.replace(name, &format!("{}g", name.split_at(name.len() - 1).0)),
            String::new(),
        ];
        for path in wrong {
            let e = connect(Path::new(&path), &bases).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::EINVAL), "{path}");
        }
        assert!(connect(Path::new(&honest), &bases[..1]).is_err(), "below no base of ours");
        // A directory that others may enter.
        let dir = Path::new(&honest).parent().unwrap();
        let mode = |bits| std::os::unix::fs::PermissionsExt::from_mode(bits);
        std::fs::set_permissions(dir, mode(0o711)).unwrap();
        assert_eq!(connect(Path::new(&honest), &bases).unwrap_err().raw_os_error(), Some(libc::EACCES));
        std::fs::set_permissions(dir, mode(0o700)).unwrap();
        assert!(connect(Path::new(&honest), &bases).is_ok());
        // A link in its place.
        let moved = tmp.path().join("moved");
        std::fs::rename(dir, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, dir).unwrap();
        assert!(connect(Path::new(&honest), &bases).is_err());
    }

    /// What a killed process left is removed by the next one; what lives, or is not ours for certain, is left alone.
    #[test]
    fn what_killed_processes_left_is_swept() {
        let (tmp, bases) = base();
        let name = |digit: &str| format!("{PREFIX}{}", digit.repeat(32));
        let make = |name: &str, mode: u32| {
            let dir = tmp.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            dir
        };
        // As a kill leaves them: with a socket, and before there was one.
        drop(UnixListener::bind(make(&name("0"), 0o700).join(SOCKET)).unwrap());
        make(&name("1"), 0o700);
        let live = RendezvousSocket::open(&bases).unwrap();
        let kept = [
            make(&name("2"), 0o755),
            make(&format!("{PREFIX}2"), 0o700),
            make(&name("g"), 0o700),
            make("bcmr-join-", 0o700),
            make(&name("3"), 0o700),
        ];
        std::fs::write(kept[4].join("work of somebody"), "x").unwrap();
        let link = tmp.path().join(name("4"));
        std::os::unix::fs::symlink(&kept[1], &link).unwrap();
        let second = RendezvousSocket::open(&bases).unwrap();
        assert!(!tmp.path().join(name("0")).exists() && !tmp.path().join(name("1")).exists());
        assert!(kept.iter().all(|dir| dir.exists()) && link.symlink_metadata().is_ok());
        assert!(kept[4].join("work of somebody").exists());
        for meeting in [&live, &second] {
            drop(connect(meeting.path(), &bases).unwrap());
        }
        // The process ends without a word: its lock goes with it.
        let path = live.path().parent().unwrap().to_owned();
        drop(live);
        assert!(path.exists());
        drop(RendezvousSocket::open(&bases).unwrap());
        assert!(!path.exists(), "swept by the next");
        assert!(second.path().exists());
    }

    #[test]
    fn a_guest_without_descriptors_or_words_gives_nothing() {
        let (one, two) = UnixStream::pair().unwrap();
        (&one).write_all(b"12345678").unwrap();
        let mut said = [0; 8];
        assert_eq!(receive(&two, &mut said, SOON).unwrap_err().raw_os_error(), Some(libc::EBADF));
        (&one).write_all(b"123").unwrap();
        drop(one);
        assert_eq!(receive(&two, &mut said, SOON).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn stopping_brings_back_who_waits() {
        let (_tmp, bases) = base();
        let meeting = RendezvousSocket::open(&bases).unwrap();
        std::thread::scope(|s| {
            let waits = s.spawn(|| meeting.accept().unwrap().is_none());
            meeting.stop();
            assert!(waits.join().unwrap());
        });
    }
}
