//! What the tests of the ladder share: files with a known shape, and a copy of one of them.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use skips::skipped;

use fastcopy::{Copied, Dest, Failure, Options, Rung, Rungs, Scratch, Source, copy_file};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

pub const OPTIONS: Options = Options { threads: 1, ..Options::AUTO };
pub const RUNGS: [Option<Rung>; 5] =
    [None, Some(Rung::Clone), Some(Rung::CopyFileRange), Some(Rung::Sendfile), Some(Rung::ReadWrite)];

/// The memory for a ladder with this rung first, or the usual one.
pub fn rungs(first: Option<Rung>) -> Rungs {
    first.map_or(Rungs::new(), Rungs::only)
}

/// Bytes that differ from their neighbours at every scale, so that a block in the wrong place is seen. Never zero.
pub fn pattern(off: u64, len: usize) -> Vec<u8> {
    // Repeats after a prime, so never in step with blocks; made once, because unoptimised tests are slow at it.
    const PERIOD: usize = 1_048_573;
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut x = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8 | 1
        };
        (0..PERIOD).map(|_| next()).collect()
    });
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = ((off + bytes.len() as u64) % PERIOD as u64) as usize;
        bytes.extend_from_slice(&table[at..PERIOD.min(at + len - bytes.len())]);
    }
    bytes
}

/// A file of this length with the pattern at these places, and holes between.
pub fn make(path: &Path, len: u64, data: &[(u64, u64)]) -> File {
    let f = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    f.set_len(len).unwrap();
    for &(off, n) in data {
        f.write_all_at(&pattern(off, usize::try_from(n).unwrap()), off).unwrap();
    }
    f
}

pub fn source(f: &File) -> Source<'_> {
    let meta = f.metadata().unwrap();
    Source { fd: f.as_fd(), dev: meta.dev(), size: meta.len(), blocks: meta.blocks() }
}

pub fn create(path: &Path) -> File {
    OpenOptions::new().write(true).create(true).truncate(true).open(path).unwrap()
}

pub fn dest(f: &File) -> Dest<'_> {
    Dest { fd: f.as_fd(), dev: f.metadata().unwrap().dev() }
}

/// Copies; checks that what was observed adds up to what was returned.
pub fn copy(src: &Source<'_>, to: &Path, rungs: &Rungs, opts: &Options) -> Result<Copied, Failure> {
    let dst = create(to);
    let seen = AtomicU64::new(0);
    let observe = |n: u64| {
        seen.fetch_add(n, Relaxed);
        true
    };
    let copied = copy_file(src, &dest(&dst), rungs, opts, &mut Scratch::new(), &observe)?;
    assert_eq!(seen.into_inner(), copied.bytes, "observed");
    assert_eq!(dst.metadata().unwrap().len(), copied.bytes, "length of the copy");
    Ok(copied)
}

/// Allocated bytes. (ext4, xfs and tmpfs count what is not placed yet; btrfs has to be synced first.)
pub fn allocated(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

/// A directory on another device than the temporary one, if there is any.
pub fn elsewhere(here: &Path) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in("/dev/shm").ok()?;
    (dir.path().metadata().unwrap().dev() != here.metadata().unwrap().dev()).then_some(dir)
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A filesystem mounted for one test.
pub struct Mount {
    pub at: PathBuf,
    _dir: tempfile::TempDir,
}

impl Mount {
    /// `None` where this machine cannot: not root, no such filesystem, no program to make it.
    pub fn tmpfs(size: &str) -> Option<Mount> {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("mnt");
        Self::attach(dir, at, &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
    }

    /// A fresh `mkfs.<kind>` in a file of so many MiB.
    pub fn image(kind: &str, mib: u64) -> Option<Mount> {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        File::create(&image).unwrap().set_len(mib * MIB).unwrap();
        let made = Command::new(format!("mkfs.{kind}")).arg(&image).output().ok()?;
        let at = dir.path().join("mnt");
        made.status.success().then_some(())?;
        Self::attach(dir, at, &["-o", "loop", image.to_str()?])
    }

    fn attach(dir: tempfile::TempDir, at: PathBuf, args: &[&str]) -> Option<Mount> {
        if !is_root() {
            return None;
        }
        std::fs::create_dir(&at).unwrap();
        let done = Command::new("mount").args(args).arg(&at).output().ok()?;
        done.status.success().then(|| Mount { at, _dir: dir })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(&self.at).status();
        if !done.is_ok_and(|s| s.success()) {
            eprintln!("{} stays mounted", self.at.display());
        }
    }
}
