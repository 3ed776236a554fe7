//! What happens around a run and outside its timing: where copies lie, the page cache, and a command with its operands
//! filled in. Must not know what is compared, nor how often.

use crate::programs::installed;
use crate::rows::OURS;
use crate::{data, mount};
use sh::{Result, text};
use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Commands that take turns over one source.
pub struct Turns<'a> {
    pub src: &'a Path,
    pub copies: &'a Copies,
    pub bcmr: &'a Path,
    /// The page cache is dropped before each run, which needs root; else the source is read into it just before, and the program.
    /// A kernel may take back what was not used for some seconds (`pageout` of DAMON), and tools that clone do not read.
    pub cold: bool,
    /// Copies are left to lie, see [`Copies`].
    pub keep: bool,
    /// Where `{o}` is, on another file system than the source, if that is wanted.
    pub other: Option<&'a Path>,
}

impl Turns<'_> {
    /// A new name for the destination, whatever `more` does to it, nothing left to be written back, the page cache
    /// as it is wanted.
    pub fn prepare(&self, more: impl FnOnce(&Path) -> Result) -> Result<PathBuf> {
        let dst = self.copies.next()?;
        more(&dst)?;
        sh::quiet("sync", &["-f", text(&self.copies.dir)?])?;
        if self.cold {
            std::fs::write("/proc/sys/vm/drop_caches", "3")?;
        }
        if !self.cold {
            data::warm(self.src)?;
        }
        Ok(dst)
    }

    /// Bytes of memory that a copy needs at most: none for holes. While 10 GiB were fetched for a sparse file with 64 MiB of data,
    /// its copies differed by a factor of ten.
    pub fn memory(&self) -> Result<u64> {
        Ok(if self.src.is_file() { std::fs::metadata(self.src)?.blocks() * 512 } else { TREE_BYTES })
    }

    /// Takes the copy away, or at least out of the page cache.
    pub fn finish(&self, dst: &Path) -> Result {
        if let Some(other) = self.other {
            sh::quiet("rm", &["-rf", text(other)?])?;
        }
        if self.keep {
            return mount::forget(dst);
        }
        sh::quiet("rm", &["-rf", text(dst)?])?;
        mount::give_back(&self.copies.dir)
    }

    /// [`argv`](Self::argv) of what is about to be timed: its program is in the page cache where the source is.
    pub fn ready(&self, line: &str, dst: &Path) -> Result<Vec<String>> {
        let argv = self.argv(line, dst)?;
        if !self.cold
            && let Some(program) = argv.first().and_then(|program| sh::which(program))
        {
            data::warm(&program.canonicalize()?)?;
        }
        Ok(argv)
    }

    /// `{s}` is the source, `{d}` the destination, `{o}` the name on another file system; several commands go through a shell.
    pub fn argv(&self, line: &str, dst: &Path) -> Result<Vec<String>> {
        let (s, d) = (text(self.src)?, text(dst)?);
        let o = self.other.map_or(Ok(""), text)?;
        let mut first = true;
        let mut words = Vec::new();
        for word in line.split(' ') {
            words.push(if first && word == OURS {
                text(self.bcmr)?.to_owned()
            } else if let Some(path) = installed(word).filter(|_| first) {
                text(&path)?.to_owned()
            } else {
                word.replace("{s}", s).replace("{d}", d).replace("{o}", o)
            });
            first = matches!(word, "&&" | "--");
        }
        let several = words.iter().any(|w| w == "&&");
        Ok(if several { vec!["sh".to_owned(), "-c".to_owned(), words.join(" ")] } else { words })
    }
}

/// Things in the order of one round. The order changes, because each program finds memory as the one before has left it: in as many
/// rounds as there are things, twice as many if that is odd, each stands behind each other equally often. (E. J. Williams,
/// "Experimental designs balanced for the estimation of residual effects of treatments", 1949.)
pub fn in_turns<T>(things: &[T], round: usize) -> impl Iterator<Item = &T> {
    let count = things.len().max(1);
    let is_back = count % 2 == 1 && round / count % 2 == 1;
    (0..things.len()).filter_map(move |place| {
        let place = if is_back { things.len() - 1 - place } else { place };
        // 0, 1, -1, 2, -2 and so on.
        let step = if place % 2 == 1 { place.div_ceil(2) } else { count - place / 2 };
        things.get((round + step) % count)
    })
}

/// More than the trees here hold.
const TREE_BYTES: u64 = 1 << 30;

/// What a program makes of symbolic links: `scp -r` copies what they lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Links {
    Kept,
    Followed,
}

/// An error when the copy is not the same as its source.
pub fn same(src: &Path, dst: &Path, links: Links) -> Result {
    let (from, to) = (text(src)?, text(dst)?);
    if src.is_dir() {
        match links {
            Links::Kept => sh::quiet("diff", &["-r", "-q", "--no-dereference", from, to]),
            Links::Followed => sh::quiet("diff", &["-r", "-q", from, to]),
        }
    } else {
        sh::quiet("cmp", &[from, to])
    }
}

/// Where copies are made, each under a new name.
///
/// Large trees are not removed between runs: for a minute or more ext4 does not give out a deleted inode again, and
/// steps over every one of them for each file that it makes (`recently_deleted` in fs/ext4/ialloc.c). Measured here,
/// `cp -r` of 2,100 files took 0.09 s, and 1.36 s just after other trees had been removed.
pub struct Copies {
    pub dir: PathBuf,
    made: Cell<u32>,
}

/// Until ext4 has forgotten what was deleted.
const REST: std::time::Duration = std::time::Duration::from_secs(70);

impl Copies {
    pub fn below(dir: &Path) -> Copies {
        Copies { dir: dir.join("copies"), made: Cell::new(0) }
    }

    /// A name that is not there yet.
    pub fn next(&self) -> Result<PathBuf> {
        std::fs::create_dir_all(&self.dir)?;
        loop {
            self.made.set(self.made.get() + 1);
            let path = self.dir.join(format!("copy{}", self.made.get()));
            if std::fs::symlink_metadata(&path).is_err() {
                return Ok(path);
            }
        }
    }

    /// Removes earlier copies when so many bytes and inodes would not fit beside them, and then lets the file system rest.
    pub fn room_for(&self, bytes: u64, inodes: u64) -> Result {
        std::fs::create_dir_all(&self.dir)?;
        let free = nix::sys::statvfs::statvfs(&self.dir)?;
        let fits = free.blocks_available() * free.fragment_size() > bytes + bytes / 4;
        // A file system that has as many as it likes says that it has none at all.
        if fits && (free.files() == 0 || free.files_available() > inodes) {
            return Ok(());
        }
        self.clear()?;
        sh::quiet("sync", &["-f", text(&self.dir)?])?;
        println!("  (made room; resting {} s)", REST.as_secs());
        std::thread::sleep(REST);
        Ok(())
    }

    pub fn clear(&self) -> Result {
        sh::quiet("rm", &["-rf", text(&self.dir)?])?;
        Ok(std::fs::create_dir_all(&self.dir)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_turn_and_stands_behind_each_other_equally_often() {
        for (things, rounds, times) in [(1, 3, 0), (2, 2, 1), (5, 10, 2), (8, 8, 1)] {
            let all: Vec<usize> = (0..things).collect();
            let mut behind = std::collections::BTreeMap::new();
            for round in 0..rounds {
                let order: Vec<usize> = in_turns(&all, round).copied().collect();
                for pair in order.windows(2) {
                    *behind.entry((pair[0], pair[1])).or_insert(0) += 1;
                }
                let mut sorted = order;
                sorted.sort_unstable();
                assert_eq!(sorted, all);
            }
            assert_eq!(behind.len(), things * (things - 1), "{things}");
            assert!(behind.values().all(|found| *found == times), "{things}: {behind:?}");
        }
        assert_eq!(in_turns(&[] as &[u8], 3).count(), 0);
    }

    #[test]
    fn operands_and_programs_are_filled_in() {
        let copies = Copies::below(Path::new("/c"));
        let (src, bcmr) = (Path::new("/src"), Path::new("/bin/ours"));
        let turns = Turns { src, copies: &copies, bcmr, cold: false, keep: false, other: None };
        let argv = |line| turns.argv(line, Path::new("/dst")).unwrap();
        assert_eq!(argv("bcmr copy -r {s} {d}"), ["/bin/ours", "copy", "-r", "/src", "/dst"]);
        assert_eq!(argv("no-such-program -a {s}/ {d}"), ["no-such-program", "-a", "/src/", "/dst"]);
        let shell = argv("bcmr copy {s} {d} && no-such-program {d}");
        assert_eq!(shell, ["sh", "-c", "/bin/ours copy /src /dst && no-such-program /dst"]);
    }
}
