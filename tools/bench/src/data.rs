//! What is copied: made once from a fixed seed, kept, and the same on every machine. Knows no tool and no goal.

use serde::{Deserialize, Serialize};
use sh::Result;
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
    /// One file of source text, see [`sources`].
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

impl Size {
    pub fn entries(self) -> u64 {
        self.files + self.dirs + self.links
    }
}

impl Set {
    /// The name it is kept under.
    fn name(self) -> String {
        match self {
            Set::One { bytes } => format!("one-{bytes}"),
            Set::Even { dirs, files_per_dir, bytes } => format!("even-{dirs}x{files_per_dir}x{bytes}"),
            Set::Source { files, dirs } => format!("source-{files}-{dirs}"),
            Set::Text { bytes } => format!("sources-{bytes}"),
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

/// Makes the directories of `src` at `dst`, and nothing in them.
pub fn directories(src: &Path, dst: &Path) -> Result {
    fs::create_dir(dst)?;
    for entry in fs::read_dir(src)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            directories(&entry.path(), &dst.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
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

/// Real text: the Rust sources of the locked dependencies, in the order of their names, again from the start where they
/// do not suffice (further apart than the window of any codec here).
pub fn sources(bytes: usize) -> Result<Vec<u8>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|h| Path::new(&h).join(".cargo")));
    let registries = home.ok_or("neither CARGO_HOME nor HOME is set")?.join("registry/src");
    let lock = fs::read_to_string(sh::root().join("Cargo.lock"))?;
    let mut out = Vec::with_capacity(bytes);
    for package in locked(&lock) {
        for registry in sorted(&registries)? {
            gather(&registry.join(&package), bytes, &mut out)?;
        }
        if out.len() >= bytes {
            break;
        }
    }
    let whole = out.len();
    if whole < bytes.min(LEAST_SOURCES) {
        return Err(format!("{}: too few sources; `cargo fetch` brings them", registries.display()).into());
    }
    while out.len() < bytes {
        out.extend_from_within(..whole.min(bytes - out.len()));
    }
    out.truncate(bytes);
    Ok(out)
}

/// More than codecs look back.
const LEAST_SOURCES: usize = 16 << 20;

/// `name-version` of every package of a lock file that comes from a registry, in its order.
fn locked(lock: &str) -> Vec<String> {
    let field = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let packages = lock.split("[[package]]").skip(1).filter(|text| field(text, "source").is_some());
    packages
        .filter_map(|text| Some(format!("{}-{}", field(text, "name")?, field(text, "version")?)))
        .collect()
}

fn sorted(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        all.push(entry?.path());
    }
    all.sort();
    Ok(all)
}

/// Adds every Rust source below `path` until there are `bytes`.
fn gather(path: &Path, bytes: usize, out: &mut Vec<u8>) -> Result {
    if path.is_dir() {
        for inner in sorted(path)? {
            gather(&inner, bytes, out)?;
        }
    } else if path.extension().is_some_and(|e| e == "rs") && out.len() < bytes {
        out.extend(fs::read(path)?);
    }
    Ok(())
}

fn text(path: &Path, bytes: u64) -> Result<Size> {
    fs::write(path, sources(usize::try_from(bytes)?)?)?;
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
        sh::quiet("diff", &["-r", made[0].0.to_str().unwrap(), made[1].0.to_str().unwrap()]).unwrap();
        assert_eq!(set.make(dirs[0].path()).unwrap().1.bytes, one.bytes);
    }

    #[test]
    fn a_lock_file_names_its_packages() {
        let lock = "version = 4\n\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"clap\"\n\
            version = \"4.6.0\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\n";
        assert_eq!(locked(lock), ["clap-4.6.0"]);
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
