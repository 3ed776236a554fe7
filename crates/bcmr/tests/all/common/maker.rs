//! Random trees of every kind of entry with all metadata, and the judge of their copies.
//!
//! Must not know how they are copied.

use super::*;
use rustix::fs::{AtFlags, CWD, FileType, Timespec, Timestamps, XattrFlags};
use std::os::unix::fs::{FileExt, symlink};

/// What a file system can hold.
#[derive(Clone, Copy)]
pub struct Can {
    pub root: bool,
    /// Devices, which only root makes.
    pub devices: bool,
    pub acl: bool,
    /// Attributes in the `user.` family.
    pub user_xattr: bool,
    /// Bytes of all attributes of one inode.
    pub xattr_max: u64,
    /// Seconds since 1970 that a time may have.
    pub times: (i64, i64),
}

/// One random tree, made so that the same seed makes the same one.
pub struct Maker<'a> {
    random: Random,
    can: Can,
    root: &'a Path,
    pub dirs: Vec<PathBuf>,
    /// Everything but directories.
    others: Vec<PathBuf>,
    entries: usize,
}

const NAMES: [&[u8]; 10] =
    [b"a", b"caf\xe9", b"new\nline", b"-rf", b" ", b"*", b"\x1b[2J", b"~", b"x.stage", b".hidden"];

impl<'m> Maker<'m> {
    /// Nothing yet; [`Maker::make`] makes `root` and what is in it.
    pub fn new(seed: u64, can: Can, root: &'m Path) -> Maker<'m> {
        Maker { random: Random(seed), can, root, dirs: Vec::new(), others: Vec::new(), entries: 0 }
    }

    fn name(&mut self) -> Vec<u8> {
        let mut name = self.random.of(&NAMES).to_vec();
        self.entries += 1;
        name.extend_from_slice(self.entries.to_string().as_bytes());
        if self.random.once_in(20) {
            name.resize(255, b'n');
        }
        name
    }

    /// `entries` of every kind, and their metadata.
    pub fn make(&mut self, entries: usize) {
        std::fs::create_dir(self.root).unwrap();
        self.dirs.push(self.root.to_owned());
        for _ in 0..entries {
            let name = self.name();
            let path = self.random.of(&self.dirs).join(OsStr::from_bytes(&name));
            match self.random.below(16) {
                0..4 => {
                    std::fs::create_dir(&path).unwrap();
                    self.dirs.push(path);
                }
                4..6 => {
                    let target = match self.random.below(4) {
                        0 => b"/nowhere/at/all".to_vec(),
                        1 => b"..".to_vec(),
                        2 => noise(self.random.next(), 300).iter().map(|b| b | 1).collect(),
                        _ => b"a1".to_vec(),
                    };
                    symlink(OsStr::from_bytes(&target), &path).unwrap();
                    self.others.push(path);
                }
                6..8 if !self.others.is_empty() => {
                    let first = self.random.of(&self.others).clone();
                    if rustix::fs::linkat(CWD, &first, CWD, &path, AtFlags::empty()).is_ok() {
                        self.others.push(path);
                    }
                }
                8 => {
                    let kinds = if self.can.devices {
                        &[FileType::Fifo, FileType::Socket, FileType::CharacterDevice, FileType::BlockDevice]
                            [..]
                    } else {
                        &[FileType::Fifo, FileType::Socket][..]
                    };
                    let kind = *self.random.of(kinds);
                    let dev = if matches!(kind, FileType::Fifo | FileType::Socket) { 0 } else { 0x1_0307 };
                    mknod(&path, kind, 0o640, dev);
                    self.others.push(path);
                }
                9 => {
                    let file = std::fs::File::create(&path).unwrap();
                    for _ in 0..self.random.below(4) {
                        let at = self.random.below(16) * 65536;
                        file.write_all_at(&noise(self.random.next(), 5000), at).unwrap();
                    }
                    file.set_len(self.random.below(32) * 65536 + self.random.below(2)).unwrap();
                    self.others.push(path);
                }
                _ => {
                    let sizes = [0, 1, 4095, 4096, 70_000, 300_000];
                    let len = *self.random.of(&sizes);
                    std::fs::write(&path, noise(self.random.next(), len)).unwrap();
                    self.others.push(path);
                }
            }
        }
        self.adorn_all();
    }

    /// Metadata, the innermost first, so that what is closed is closed last.
    fn adorn_all(&mut self) {
        for path in self.others.clone() {
            self.adorn(&path);
        }
        let mut dirs = self.dirs.clone();
        dirs.sort_by_key(|d| std::cmp::Reverse(d.as_os_str().len()));
        for path in dirs {
            self.adorn(&path);
        }
    }

    fn adorn(&mut self, path: &Path) {
        let kind = FileType::from_raw_mode(rustix::fs::lstat(path).unwrap().st_mode);
        let (is_link, is_dir) = (kind == FileType::Symlink, kind == FileType::Directory);
        let plain = is_dir || kind == FileType::RegularFile;
        if self.can.root && self.random.once_in(2) {
            let ids = [0, 1, 1000, 65534, 3_000_000_000];
            let (uid, gid) = (*self.random.of(&ids), *self.random.of(&ids));
            let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
            rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
        if !is_link {
            let modes = if self.can.root {
                &[0o000, 0o644, 0o755, 0o4755, 0o2755, 0o6711, 0o1777, 0o400, 0o7777, 0o222][..]
            } else if is_dir {
                &[0o755, 0o500, 0o700, 0o1777, 0o2755][..]
            } else {
                &[0o644, 0o400, 0o755, 0o600, 0o444][..]
            };
            chmod(path, *self.random.of(modes));
        }
        let writable = self.can.root || mode(path) & 0o200 != 0;
        if plain && self.can.acl && writable && self.random.once_in(4) {
            let acl = *self.random.of(&["u:1:rw-", "g:1000:r-x,u:2:---", "m::r--,u:77:rwx"]);
            let mut setfacl = Command::new("setfacl");
            if is_dir && self.random.once_in(2) {
                setfacl.arg("-d");
            }
            assert!(setfacl.args(["-m", acl, "--"]).arg(path).status().unwrap().success());
        }
        let mut room = self.can.xattr_max;
        if plain && self.can.user_xattr && writable && self.random.once_in(3) {
            for n in 0..self.random.below(4) {
                let len = self.random.below(room / 3);
                room -= len;
                let value = noise(self.random.next(), usize::try_from(len).unwrap());
                let name = format!("user.caf\u{e9}.{n}");
                // Aged trees may have less room: what does not fit is not there.
                match rustix::fs::lsetxattr(path, name.as_str(), &value, XattrFlags::empty()) {
                    Err(rustix::io::Errno::NOSPC) => break,
                    other => other.unwrap(),
                }
            }
        }
        if kind == FileType::RegularFile && self.can.root && self.random.once_in(6) {
            // cap_net_raw+ep as of version 2.
            let value = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            match rustix::fs::lsetxattr(path, "security.capability", &value, XattrFlags::empty()) {
                Err(rustix::io::Errno::NOSPC) => {}
                other => other.unwrap(),
            }
        }
        if self.random.once_in(3) {
            let (lo, hi) = self.can.times;
            let moments = [lo, -86_400, -1, 0, 1, 951_782_400, i64::from(i32::MAX) + 5, hi];
            let times = Timestamps {
                last_access: Timespec { tv_sec: *self.random.of(&moments), tv_nsec: 5 },
                last_modification: Timespec {
                    tv_sec: *self.random.of(&moments),
                    tv_nsec: i64::try_from(self.random.below(1_000_000_000)).unwrap(),
                },
            };
            rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    }

    /// Changes some of it, as a tree changes between two backups: contents, links and metadata, no name taken away.
    pub fn age(&mut self) {
        for path in self.others.clone() {
            match self.random.below(4) {
                0 => {
                    let new = path.with_file_name("new");
                    if self.random.once_in(2) {
                        symlink("changed", &new).unwrap();
                    } else {
                        std::fs::write(&new, noise(self.random.next(), 3000)).unwrap();
                    }
                    std::fs::rename(&new, &path).unwrap();
                }
                1 => self.adorn(&path),
                _ => {}
            }
        }
        for dir in self.dirs.clone() {
            if self.random.once_in(3) {
                self.strip(&dir);
            }
            if self.can.root && self.random.once_in(4) {
                // New things in directories that hand down ACLs to what is made in them.
                let (file, inner) = (dir.join("born later"), dir.join("born later too"));
                std::fs::write(&file, "x").unwrap();
                std::fs::create_dir(&inner).unwrap();
                mkfifo(&inner.join("fifo"));
                for path in [&file, &inner] {
                    self.strip(path);
                }
            }
            if self.random.once_in(2) {
                self.adorn(&dir);
            }
        }
    }

    /// Changes names too, as between two runs of a backup: things come, go and move, become another kind of thing, get and
    /// lose further names. For root, to whom no directory is closed.
    pub fn churn(&mut self, changes: usize) {
        for _ in 0..changes {
            self.rescan();
            let name = self.name();
            let new = self.random.of(&self.dirs).join(OsStr::from_bytes(&name));
            let inner: Vec<PathBuf> = self.dirs.iter().filter(|d| *d != self.root).cloned().collect();
            let (other, dir) = (self.others.is_empty(), inner.is_empty());
            match self.random.below(11) {
                0 if !other => std::fs::remove_file(self.random.of(&self.others)).unwrap(),
                1 if !dir && self.random.once_in(2) => {
                    std::fs::remove_dir_all(self.random.of(&inner)).unwrap()
                }
                2 if !other => std::fs::rename(self.random.of(&self.others), &new).unwrap(),
                3 if !dir => {
                    let moved = self.random.of(&inner).clone();
                    if !new.starts_with(&moved) {
                        std::fs::rename(moved, &new).unwrap();
                    }
                }
                4 if !other => {
                    let path = self.random.of(&self.others).clone();
                    std::fs::remove_file(&path).unwrap();
                    std::fs::create_dir(&path).unwrap();
                    std::fs::write(path.join("in it"), noise(self.random.next(), 100)).unwrap();
                }
                5 if !dir => {
                    let path = self.random.of(&inner).clone();
                    std::fs::remove_dir_all(&path).unwrap();
                    if self.random.once_in(2) {
                        symlink("was a directory", &path).unwrap();
                    } else {
                        std::fs::write(&path, noise(self.random.next(), 5000)).unwrap();
                    }
                }
                6 if !other => {
                    let first = self.random.of(&self.others).clone();
                    let _too_many = rustix::fs::linkat(CWD, &first, CWD, &new, AtFlags::empty());
                }
                7 if !other => {
                    // One name of what may have several gets a content of its own.
                    let path = self.random.of(&self.others).clone();
                    let fresh = path.with_file_name("fresh");
                    std::fs::write(&fresh, noise(self.random.next(), 2000)).unwrap();
                    std::fs::rename(fresh, path).unwrap();
                }
                8 if !other => {
                    let path = self.random.of(&self.others).clone();
                    self.adorn(&path);
                }
                9 if !dir => {
                    let path = self.random.of(&inner).clone();
                    self.strip(&path);
                    self.adorn(&path);
                }
                _ => std::fs::write(&new, noise(self.random.next(), 10_000)).unwrap(),
            }
        }
        self.rescan();
    }

    /// What there is by now, in an order that is the same each time.
    fn rescan(&mut self) {
        self.dirs = vec![self.root.to_owned()];
        self.others.clear();
        let mut at = 0;
        while let Some(dir) = self.dirs.get(at).cloned() {
            for name in names(&dir) {
                let path = dir.join(name);
                let is_dir = std::fs::symlink_metadata(&path).unwrap().is_dir();
                if is_dir { &mut self.dirs } else { &mut self.others }.push(path);
            }
            at += 1;
        }
    }

    /// Takes attributes and ACLs away.
    fn strip(&mut self, path: &Path) {
        if self.can.acl {
            assert!(Command::new("setfacl").args(["-b", "-k", "--"]).arg(path).status().unwrap().success());
        }
        for n in 0..4 {
            let name = format!("user.caf\u{e9}.{n}");
            let _none = rustix::fs::lremovexattr(path, name.as_str());
        }
    }
}

/// What the file system of `place` takes, found by trying.
pub fn can(place: &Path, times: (i64, i64), xattr_max: u64) -> Can {
    let probe = Tmp::beneath(place);
    let file = probe.file("f", "");
    let acl = has_tool("setfacl")
        && Command::new("setfacl").args(["-m", "u:1:r"]).arg(&file).output().unwrap().status.success();
    if !acl {
        skipped("ACLs", "setfacl is missing or the file system has none");
    }
    let user_xattr = rustix::fs::lsetxattr(&file, "user.x", b"1", XattrFlags::empty()).is_ok();
    Can { root: is_root(), devices: is_root(), acl, user_xattr, xattr_max, times }
}

/// Looks for any difference, by eyes of our own and by rsync.
pub fn judge(seed: u64, what: &str, src: &Path, dst: &Path) {
    let how = format!("BCMR_SEED={seed}, {what}, {}", dst.display());
    let (before, after) = (tree(src), tree(dst));
    let told = differences(&before, &after, EVERYTHING);
    assert!(told.is_empty(), "{how}:\n{}", told.join("\n"));
    for (path, entry) in &before {
        let (here, there) = (entry.blocks, after[path].blocks);
        // Attributes and extents cost file systems differently; a filled hole costs at least 64 KiB.
        assert!(
            there < here + 128,
            "{how}: holes of {:?} were filled: {here} {there}",
            OsStr::from_bytes(path)
        );
    }
    if let Some(text) = rsync_would(src, dst) {
        assert!(text.is_empty(), "{how}: rsync would:\n{text}");
    }
    assert_no_litter(dst);
}
