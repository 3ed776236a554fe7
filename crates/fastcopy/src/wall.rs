//! The kernel's wall around a process that is confined to one directory: Landlock
//! ([landlock(7)](https://man7.org/linux/man-pages/man7/landlock.7.html)).
//!
//! A second wall: the first is that paths are resolved below a handle of that directory. Had that one a hole, nothing
//! outside could be opened, made, removed or renamed through it, no device node made anywhere, no connection made and no
//! other process signalled. It needs Linux 5.19, as one before refuses every rename from one directory into another, and
//! knows nothing of modes, owners, times and sockets in the file system; a newer kernel that has a part of the rest raises
//! that part.
//!
//! Must not know what is served.

use crate::dir::Dir;
use std::io;
use std::path::{Path, PathBuf};

/// What is left to a process behind the wall.
pub struct ConfineSpec<'a> {
    /// The directory that all is about.
    pub root: &'a Dir,
    /// Nothing may be changed there.
    pub read_only: bool,
    /// A directory of its own elsewhere, in which it may do anything too; it exists.
    pub store: Option<&'a Path>,
    /// Directories of this user alone, with nothing else in them, in which a socket may be made in a directory of its own.
    pub meeting: &'a [PathBuf],
}

/// Shuts this thread, and every thread that it starts from now on, into `spec`, for good. `false`: this system has no
/// such walls, or has them switched off.
///
/// # Errors
/// It has them and did not raise this one; nothing is shut then.
#[cfg(target_os = "linux")]
pub fn raise(spec: &ConfineSpec<'_>) -> io::Result<bool> {
    use landlock::{
        ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
        RulesetCreatedAttr, RulesetStatus, Scope,
    };
    use std::os::fd::AsFd;
    /// The newest there is when this is written; older kernels do as much of it as they know.
    const NEWEST: ABI = ABI::V6;
    // Programs are never run from behind it, and devices neither made nor spoken to: a node that names the disk leads
    // out of every directory.
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    let change = AccessFs::from_all(NEWEST) & !(devices | AccessFs::Execute);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let meet = AccessFs::ReadDir
        | AccessFs::MakeDir
        | AccessFs::MakeSock
        | AccessFs::RemoveDir
        | AccessFs::RemoveFile;
    let refused = |e: landlock::RulesetError| io::Error::new(io::ErrorKind::PermissionDenied, e.to_string());
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::SoftRequirement)
        .handle_access(AccessFs::Refer)
        .map(|rules| rules.set_compatibility(CompatLevel::BestEffort))
        .and_then(|rules| rules.handle_access(AccessFs::from_all(NEWEST)))
        .and_then(|rules| rules.handle_access(AccessNet::ConnectTcp))
        .and_then(|rules| rules.scope(Scope::AbstractUnixSocket | Scope::Signal))
        .and_then(Ruleset::create)
        .and_then(|rules| {
            let all = if spec.read_only { read } else { change };
            rules.add_rule(PathBeneath::new(spec.root.as_fd(), all))
        })
        .map_err(refused)?;
    let others = [
        (spec.store, change),
        // How large a pipe may be made.
        (Some(Path::new("/proc/sys/fs/pipe-max-size")), AccessFs::ReadFile.into()),
    ];
    let meetings = spec.meeting.iter().map(|dir| (Some(dir.as_path()), meet));
    for (path, access) in others.into_iter().chain(meetings) {
        // What is not there needs no way to it.
        if let Some(Ok(fd)) = path.map(PathFd::new) {
            rules = rules.add_rule(PathBeneath::new(fd, access)).map_err(refused)?;
        }
    }
    let raised = rules.restrict_self().map_err(refused)?;
    Ok(raised.ruleset != RulesetStatus::NotEnforced)
}

/// No such walls here.
#[cfg(not(target_os = "linux"))]
pub fn raise(_: &ConfineSpec<'_>) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
#[allow(clippy::disallowed_methods)] // the wall is tried the ordinary way, as a hole in the first would be
mod tests {
    use super::*;
    use crate::meta::Kind;
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::os::unix::net::UnixListener;

    /// Does something behind a wall of its own; `None` where there are none.
    fn behind<T: Send>(spec: &ConfineSpec<'_>, work: impl FnOnce() -> T + Send) -> Option<T> {
        // A thread that is shut in stays so: it must not be one that tests share.
        std::thread::scope(|scope| scope.spawn(|| raise(spec).unwrap().then(work)).join().unwrap())
    }

    #[test]
    fn what_is_outside_stays_there() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        for dir in ["root", "root/sub", "cache", "cache/cas", "meet"] {
            fs::create_dir(at(dir)).unwrap();
        }
        fs::write(at("root/in"), "in").unwrap();
        fs::write(at("out"), "out").unwrap();
        fs::write(at("cache/program"), "program").unwrap();
        symlink(at("out"), at("root/leads out")).unwrap();
        let root = Dir::open(&at("root")).unwrap();
        let (store, meeting) = (at("cache/cas"), [at("meet"), at("is not there")]);
        let all = ConfineSpec { root: &root, read_only: false, store: Some(&store), meeting: &meeting };
        let ran = behind(&all, || {
            let denied = |done: io::Result<()>| {
                assert_eq!(done.unwrap_err().raw_os_error(), Some(crate::errno::EACCES))
            };
            denied(fs::read(at("out")).map(drop));
            denied(fs::read(at("root/leads out")).map(drop));
            denied(fs::write(at("out"), "x"));
            denied(fs::write(at("new"), "x"));
            denied(fs::remove_file(at("out")));
            denied(fs::read_dir(tmp.path()).map(drop));
            denied(fs::create_dir(at("new")));
            denied(fs::write(at("cache/program"), "worse"));
            denied(fs::write(at("meet/file"), "x"));
            // Out of the root and into it are other ways than within.
            assert!(fs::rename(at("root/in"), at("taken")).is_err());
            assert!(fs::hard_link(at("out"), at("root/link")).is_err());
            // What a server does.
            assert_eq!(fs::read(at("root/in")).unwrap(), b"in");
            fs::write(at("root/new"), "new").unwrap();
            fs::rename(at("root/new"), at("root/sub/new")).unwrap();
            fs::hard_link(at("root/sub/new"), at("root/again")).unwrap();
            fs::File::options().write(true).open(at("root/again")).unwrap().set_len(1).unwrap();
            symlink("anywhere", at("root/link")).unwrap();
            // Of special files the harmless ones; a device by its number would be a way out. Only root is told apart
            // from what the kernel forbids all others.
            let node = |name: &str, kind| {
                let name = crate::dir::NameBuf::new(name.as_bytes()).unwrap();
                root.make_special(name.as_name(), kind, 0o600, 0x103)
            };
            node("fifo", Kind::Fifo).unwrap();
            node("socket", Kind::Socket).unwrap();
            if rustix::process::geteuid().is_root() {
                denied(node("character", Kind::CharDevice));
                denied(node("block", Kind::BlockDevice));
            }
            fs::remove_file(at("root/sub/new")).unwrap();
            fs::remove_dir(at("root/sub")).unwrap();
            fs::write(store.join("index"), "index").unwrap();
            fs::create_dir(at("meet/here")).unwrap();
            drop(UnixListener::bind(at("meet/here/socket")).unwrap());
            assert!(fs::symlink_metadata(at("meet/here/socket")).unwrap().file_type().is_socket());
            fs::remove_file(at("meet/here/socket")).unwrap();
            fs::remove_dir(at("meet/here")).unwrap();
            // A thread that is started behind the wall is behind it.
            std::thread::scope(|s| s.spawn(|| denied(fs::read(at("out")).map(drop))).join().unwrap());
        });
        // TCP came with Landlock's fourth version, in Linux 6.7.
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(['.', '-', '\n']).map(|n| n.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap(), numbers.next().unwrap());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || std::net::TcpStream::connect(listener.local_addr().unwrap()).map(drop);
        connect().unwrap();
        match behind(&all, || (connect(), std::net::TcpListener::bind("127.0.0.1:0"))) {
            Some((connected, listens)) if version >= (6, 7) => {
                assert_eq!(connected.unwrap_err().raw_os_error(), Some(crate::errno::EACCES));
                listens.unwrap();
            }
            _ => skips::here("this kernel lets every process connect"),
        }
        let reads = ConfineSpec { root: &root, read_only: true, store: None, meeting: &[] };
        behind(&reads, || {
            assert_eq!(fs::read(at("root/in")).unwrap(), b"in");
            assert!(fs::write(at("root/in"), "x").is_err() && fs::write(at("root/new"), "x").is_err());
            assert!(fs::remove_file(at("root/in")).is_err());
        });
        if rustix::process::geteuid().is_root() {
            // The twin: without a wall they are made.
            let name = crate::dir::NameBuf::new(b"node").unwrap();
            root.make_special(name.as_name(), Kind::CharDevice, 0o600, 0x103).unwrap();
        }
        if ran.is_none() {
            skips::here("this kernel has no Landlock");
        }
        assert_eq!(fs::read(at("out")).unwrap(), b"out");
    }
}
