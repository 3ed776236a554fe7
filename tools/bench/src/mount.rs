//! File systems in an image, and what files take on them. Needs root.

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use sh::Result;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A mounted image, unmounted and removed with this value.
pub struct Loop {
    image: PathBuf,
    dir: PathBuf,
}

impl Loop {
    /// Makes a sparse image of `bytes` below `scratch`, a file system of type `fs` in it, and mounts it.
    pub fn new(fs: &str, bytes: u64, scratch: &Path) -> Result<Loop> {
        let image = scratch.join(format!("{fs}.img"));
        let dir = scratch.join(format!("{fs}.mnt"));
        // One that a killed run may have left.
        drop(sh::quiet("umount", &[&dir.to_string_lossy()]));
        std::fs::create_dir_all(&dir)?;
        std::fs::File::create(&image)?.set_len(bytes)?;
        let (image_name, dir_name) = (image.to_string_lossy(), dir.to_string_lossy());
        let made = Loop { image: image.clone(), dir: dir.clone() };
        // ext4 would otherwise go on making itself in the background. It decides now how many files it can hold: twice as many
        // as it would by itself, as the trees of several rows are small files for the most part.
        let more: &[&str] = match fs {
            "ext4" => &["-i", "8192", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            _ => &[],
        };
        sh::quiet(&format!("mkfs.{fs}"), &[&["-q"], more, &[&image_name]].concat())?;
        sh::quiet("mount", &["-o", "loop", &image_name, &dir_name])?;
        // Else everything is cached twice, and what the host does with its own half is measured too. Where the host
        // cannot do without, so be it.
        let device = sh::output("losetup", &["-n", "-O", "NAME", "-j", &image_name])?;
        drop(sh::quiet("losetup", &["--direct-io=on", device.trim()]));
        Ok(made)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(problem) = sh::quiet("umount", &[&self.dir.to_string_lossy()]) {
            eprintln!("xtask: {problem}");
        }
        drop(std::fs::remove_file(&self.image));
        drop(std::fs::remove_dir(&self.dir));
    }
}

/// Drops a tree's contents from the page cache, where it would crowd out what the next run reads.
pub fn forget(path: &Path) -> Result {
    sh::quiet("sync", &["-f", &path.to_string_lossy()])?;
    fn walk(path: &Path) -> Result {
        let kind = std::fs::symlink_metadata(path)?;
        if kind.is_dir() {
            for entry in std::fs::read_dir(path)? {
                walk(&entry?.path())?;
            }
        } else if kind.is_file() {
            let file = std::fs::File::open(path)?;
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
        Ok(())
    }
    walk(path)
}

/// Gives the blocks of removed files back to whatever the image lies on: it would else grow with every copy until its
/// host is full. Where there is nothing to give back (tmpfs) or this user may not, nothing happens.
pub fn give_back(dir: &Path) -> Result {
    let dir = dir.to_string_lossy();
    sh::quiet("sync", &["-f", &dir])?;
    drop(sh::quiet("fstrim", &[&dir]));
    Ok(())
}

/// Bytes that a file or a tree takes on the medium. Writes out what is pending first, as until then the number of
/// blocks is a guess.
pub fn allocated(path: &Path) -> Result<u64> {
    sh::quiet("sync", &["-f", &path.to_string_lossy()])?;
    fn sum(path: &Path) -> std::io::Result<u64> {
        let meta = std::fs::symlink_metadata(path)?;
        let mut bytes = if meta.is_dir() { 0 } else { meta.blocks() * 512 };
        if meta.is_dir() {
            for entry in std::fs::read_dir(path)? {
                bytes += sum(&entry?.path())?;
            }
        }
        Ok(bytes)
    }
    Ok(sum(path)?)
}
