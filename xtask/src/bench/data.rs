//! What is copied: made once from a fixed seed, kept, and the same on every machine. Knows no tool and no goal.

use crate::sh::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Counted up whenever what is made changes, so that kept data is never of an older kind.
const VERSION: u32 = 1;

/// One set of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Set {
    /// One file of so many bytes.
    One { bytes: u64 },
    /// Files of one size, so many to a directory.
    Even { dirs: u64, files_per_dir: u64, bytes: u64 },
    /// Like a large source tree: sizes log-normal around 4 KiB, directories of any depth, links, some executables.
    Source { files: u64, dirs: u64 },
    /// One file of lines as in source text, which packs about as well (see `text`).
    Text { bytes: u64 },
    /// One file with data here and there.
    Sparse { bytes: u64, data_bytes: u64 },
}

/// What a set holds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Size {
    pub files: u64,
    pub dirs: u64,
    pub links: u64,
    pub bytes: u64,
}

impl Set {
    /// The name it is kept under.
    fn name(self) -> String {
        match self {
            Set::One { bytes } => format!("one-{bytes}"),
            Set::Even { dirs, files_per_dir, bytes } => format!("even-{dirs}x{files_per_dir}x{bytes}"),
            Set::Source { files, dirs } => format!("source-{files}-{dirs}"),
            Set::Text { bytes } => format!("text-{bytes}"),
            Set::Sparse { bytes, data_bytes } => format!("sparse-{bytes}-{data_bytes}"),
        }
    }

    /// Makes it below `dir` unless it is there already.
    pub fn make(self, dir: &Path) -> Result<(PathBuf, Size)> {
        let path = dir.join(self.name());
        let note = dir.join(format!("{}.v{VERSION}.json", self.name()));
        if let Ok(text) = fs::read_to_string(&note) {
            return Ok((path, serde_json::from_str(&text)?));
        }
        if path.is_dir() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(dir)?;
        let size = match self {
            Set::One { bytes } => one(&path, bytes)?,
            Set::Even { dirs, files_per_dir, bytes } => even(&path, dirs, files_per_dir, bytes)?,
            Set::Source { files, dirs } => source(&path, files, dirs)?,
            Set::Text { bytes } => text(&path, bytes)?,
            Set::Sparse { bytes, data_bytes } => sparse(&path, bytes, data_bytes)?,
        };
        // Written last: its presence says that the set is whole.
        fs::write(&note, serde_json::to_string(&size)?)?;
        Ok((path, size))
    }
}

/// Reads everything once, so that it lies in the page cache.
pub fn warm(path: &Path) -> Result {
    let kind = fs::symlink_metadata(path)?;
    if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            warm(&entry?.path())?;
        }
    } else if kind.is_file() && kind.len() <= 2 << 30 {
        let mut file = File::open(path)?;
        let mut buffer = vec![0; 1 << 20];
        while file.read(&mut buffer)? > 0 {}
    }
    Ok(())
}

/// SplitMix64: small, and the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// Between 0 and 1, never 0.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
    /// Mean 0, deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
    fn fill(&mut self, buffer: &mut [u8]) {
        for eight in buffer.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            eight.copy_from_slice(&bytes[..eight.len()]);
        }
    }
}

fn one(path: &Path, bytes: u64) -> Result<Size> {
    let mut random = Random(bytes);
    let mut file = File::create(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(buffer.len() as u64) as usize;
        random.fill(&mut buffer[..now]);
        file.write_all(&buffer[..now])?;
        left -= now as u64;
    }
    Ok(Size { files: 1, bytes, ..Size::default() })
}

fn even(path: &Path, dirs: u64, files_per_dir: u64, bytes: u64) -> Result<Size> {
    let mut random = Random(dirs ^ bytes);
    let mut buffer = vec![0; bytes as usize];
    fs::create_dir(path)?;
    for d in 0..dirs {
        let dir = if dirs == 1 { path.to_path_buf() } else { path.join(format!("dir{d:04}")) };
        if dirs > 1 {
            fs::create_dir(&dir)?;
        }
        for f in 0..files_per_dir {
            random.fill(&mut buffer);
            fs::write(dir.join(format!("file{f:06}.dat")), &buffer)?;
        }
    }
    let files = dirs * files_per_dir;
    Ok(Size { files, dirs: if dirs == 1 { 1 } else { dirs + 1 }, bytes: files * bytes, links: 0 })
}

fn source(path: &Path, files: u64, dirs: u64) -> Result<Size> {
    const SUFFIXES: [&str; 8] = ["c", "h", "rs", "txt", "md", "S", "py", "json"];
    const LARGEST: f64 = 4.0 * 1024.0 * 1024.0;
    let mut random = Random(files + dirs);
    let mut all = vec![(path.to_path_buf(), 0)];
    fs::create_dir(path)?;
    while (all.len() as u64) < dirs {
        let (parent, depth) = all[random.below(all.len() as u64) as usize].clone();
        if depth < 12 {
            let dir = parent.join(format!("part{}", all.len()));
            fs::create_dir(&dir)?;
            all.push((dir, depth + 1));
        }
    }
    let mut size = Size { dirs, ..Size::default() };
    let mut buffer = vec![0; LARGEST as usize];
    // Some directories hold much, most hold little: the square of an even choice.
    let mut names: BTreeMap<usize, String> = BTreeMap::new();
    for n in 0..files {
        let at = (random.unit().powi(2) * all.len() as f64) as usize % all.len();
        let suffix = SUFFIXES[random.below(8) as usize];
        let name = format!("unit_{n}.{suffix}");
        let file = all[at].0.join(&name);
        if n % 100 == 99 && names.contains_key(&at) {
            symlink(&names[&at], &file)?;
            size.links += 1;
            continue;
        }
        // Median 4 KiB and mean about 14 KiB, as in a kernel's or a compiler's tree.
        let bytes = (8.318 + 1.58 * random.normal()).exp().min(LARGEST) as usize;
        random.fill(&mut buffer[..bytes]);
        let mode = if n % 20 == 7 { 0o755 } else { 0o644 };
        let mut out = File::options().write(true).create_new(true).mode(mode).open(&file)?;
        out.write_all(&buffer[..bytes])?;
        let when =
            Duration::new(1_600_000_000 + random.below(100_000_000), random.below(1_000_000_000) as u32);
        out.set_modified(UNIX_EPOCH + when)?;
        names.insert(at, name);
        size.files += 1;
        size.bytes += bytes as u64;
    }
    Ok(size)
}

/// Lines as of a program: few words often and many seldom, indented, numbers here and there, and now and then a line
/// much like one shortly before. The parts are so chosen that it packs as the paper's text did: to about 0.20 by Zstd at
/// level 3 (and by LZ4 to 0.33, where the paper has 0.39).
pub fn prose(bytes: usize) -> Vec<u8> {
    const SYLLABLES: [&str; 24] = [
        "al", "ber", "con", "dir", "en", "file", "get", "hash", "in", "join", "key", "len", "map", "name",
        "open", "path", "que", "read", "set", "time", "un", "val", "write", "ex",
    ];
    const SHAPES: [&str; 12] = [
        "let @ = @.@(@);",
        "if @.@() == @ {",
        "}",
        "@.@(&@, @);",
        "return Err(@);",
        "for @ in @.@() {",
        "// @ @ @ @ @",
        "@: @,",
        "fn @(@: &@, @: @) -> @ {",
        "match @ {",
        "@::@ => @,",
        "@[@] = #;",
    ];
    let mut random = Random(0x7465_7874);
    let words: Vec<String> = (0..4000)
        .map(|_| {
            let parts: Vec<&str> =
                (0..=random.below(3)).map(|_| SYLLABLES[random.below(24) as usize]).collect();
            parts.join(if random.below(2) == 0 { "_" } else { "" })
        })
        .collect();
    let mut out = Vec::with_capacity(bytes + 200);
    let mut lines: Vec<(usize, usize)> = Vec::new();
    while out.len() < bytes {
        let start = out.len();
        if lines.len() > 64 && random.below(100) < REPEATED_PERCENT {
            let (from, to) = lines[lines.len() - 1 - random.below(64) as usize];
            out.extend_from_within(from..to);
        } else {
            out.resize(start + 4 * random.below(5) as usize, b' ');
            for c in SHAPES[random.below(12) as usize].bytes() {
                match c {
                    // A high power of an even choice: few of them often.
                    b'@' => {
                        let at = (random.unit().powi(10) * words.len() as f64) as usize % words.len();
                        out.extend_from_slice(words[at].as_bytes());
                    }
                    b'#' => out.extend_from_slice(random.below(10_000).to_string().as_bytes()),
                    c => out.push(c),
                }
            }
            out.push(b'\n');
        }
        lines.push((start, out.len()));
    }
    out.truncate(bytes);
    out
}

/// Lines of [`prose`] that are like one shortly before.
const REPEATED_PERCENT: u64 = 28;

fn text(path: &Path, bytes: u64) -> Result<Size> {
    fs::write(path, prose(usize::try_from(bytes)?))?;
    Ok(Size { files: 1, bytes, ..Size::default() })
}

/// So many bytes that no codec can make shorter.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    Random(bytes as u64).fill(&mut out);
    out
}

fn sparse(path: &Path, bytes: u64, data_bytes: u64) -> Result<Size> {
    const PIECE: u64 = 256 * 1024;
    let mut random = Random(bytes ^ data_bytes);
    let mut buffer = vec![0; PIECE as usize];
    let file = File::create(path)?;
    file.set_len(bytes)?;
    let pieces = data_bytes / PIECE;
    for n in 0..pieces {
        random.fill(&mut buffer);
        file.write_all_at(&buffer, n * (bytes / pieces) / 4096 * 4096)?;
    }
    // Delayed allocation would change the number of blocks later on.
    file.sync_all()?;
    Ok(Size { files: 1, bytes, ..Size::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_the_same_each_time_and_kept() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let set = Set::Source { files: 300, dirs: 20 };
        let made: Vec<_> = dirs.iter().map(|d| set.make(d.path()).unwrap()).collect();
        let (one, two) = (made[0].1, made[1].1);
        assert_eq!((one.bytes, one.files, one.links), (two.bytes, two.files, two.links));
        assert!(one.links > 0 && one.files + one.links == 300);
        crate::sh::quiet("diff", &["-r", made[0].0.to_str().unwrap(), made[1].0.to_str().unwrap()]).unwrap();
        assert_eq!(set.make(dirs[0].path()).unwrap().1.bytes, one.bytes);
    }

    #[test]
    fn a_sparse_file_has_its_holes() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let (path, size) = Set::Sparse { bytes: 64 << 20, data_bytes: 1 << 20 }.make(dir.path()).unwrap();
        let meta = fs::metadata(path).unwrap();
        assert_eq!((meta.len(), size.bytes), (64 << 20, 64 << 20));
        assert!(meta.blocks() * 512 < 2 << 20);
    }
}
