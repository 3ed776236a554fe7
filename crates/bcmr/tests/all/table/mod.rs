//! Trees as text, and the real binary run over them.
//!
//! A tree is one entry a line: `d dir`, `f name content`, `l name -> target`, `h name = first`, `p fifo`, `s socket`,
//! `z name bytes` (that many bytes of noise), `o name` (1 MiB, all hole but its ends). `@seconds` behind a name sets
//! its mtime. What a tree is after a run is read back into the same words, so that two runs, or a run and a text, are
//! compared as text.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

pub const BCMR: &str = env!("CARGO_BIN_EXE_bcmr");

/// One line for each entry, by path.
pub type Tree = BTreeMap<Vec<u8>, String>;

/// Makes the entries of `text` below `root`. Times are set last, directories after what is in them.
pub fn plant(root: &Path, text: &str) {
    let mut times = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let mut words = line.splitn(3, ' ');
        let (kind, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap_or(""));
        let (name, time) = match name.split_once('@') {
            Some((name, time)) => (name, Some(time.parse::<u64>().unwrap())),
            None => (name, None),
        };
        let path = root.join(name);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above).unwrap();
        }
        match kind {
            "d" => fs::create_dir_all(&path).unwrap(),
            "f" => fs::write(&path, rest).unwrap(),
            "l" => symlink(rest.trim_start_matches("-> "), &path).unwrap(),
            "h" => fs::hard_link(root.join(rest.trim_start_matches("= ")), &path).unwrap(),
            "p" => run(Command::new("mkfifo").arg(&path)),
            "s" => drop(std::os::unix::net::UnixListener::bind(&path).unwrap()),
            "z" => fs::write(&path, noise(name, rest.parse().unwrap())).unwrap(),
            "o" => sparse(&path),
            other => panic!("no such kind: {other}"),
        }
        if let Some(time) = time {
            times.push((path, time));
        }
    }
    for (path, time) in times.iter().rev() {
        set_mtime(path, *time);
    }
}

/// Bytes without zeros and without repetition, the same for the same name; up to 8 MiB.
pub fn noise(name: &str, len: usize) -> Vec<u8> {
    use std::sync::OnceLock;
    static ALL: OnceLock<Vec<u8>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut out = crate::common::noise(1, 9 << 20);
        out.iter_mut().for_each(|byte| *byte |= 1);
        out
    });
    let from = sum(name.as_bytes()) as usize % (1 << 20);
    all[from..from + len].to_vec()
}

/// 1 MiB with 8 bytes at each end and a hole between.
pub fn sparse(path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::create(path).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(b"thebegin", 0).unwrap();
    file.write_all_at(b"the end.", (1 << 20) - 8).unwrap();
}

pub fn set_mtime(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

/// What is below `root`: kinds, link targets, contents, and which names are one file.
pub fn look(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut inodes: HashMap<(u64, u64), Vec<Vec<u8>>> = HashMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            // Only what a judge copied into itself without end is deeper than a path can be long.
            let Ok(meta) = fs::symlink_metadata(&path) else {
                tree.insert(b"too deep".to_vec(), String::new());
                continue;
            };
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            let kind = meta.file_type();
            if !kind.is_dir() && meta.nlink() > 1 {
                inodes.entry((meta.dev(), meta.ino())).or_default().push(name.clone());
            }
            let said = if kind.is_dir() {
                todo.push(path.clone());
                "dir".to_owned()
            } else if kind.is_symlink() {
                format!("link {}", fs::read_link(&path).unwrap().display())
            } else if kind.is_file() {
                content(&fs::read(&path).unwrap())
            } else if kind.is_fifo() {
                "fifo".to_owned()
            } else if kind.is_socket() {
                "socket".to_owned()
            } else {
                format!("device {:x}", meta.rdev())
            };
            tree.insert(name, said);
        }
    }
    for names in inodes.values_mut().filter(|names| names.len() > 1) {
        names.sort();
        for name in names.iter() {
            tree.get_mut(name).unwrap().push_str(&format!(" = {}", String::from_utf8_lossy(&names[0])));
        }
    }
    tree
}

/// What [`look`] says of a file with these bytes.
pub fn content(bytes: &[u8]) -> String {
    match bytes.len() {
        0..200 => format!("file {:?}", OsStr::from_bytes(bytes)),
        len => format!("file of {len} bytes, sum {:x}", sum(bytes)),
    }
}

fn sum(bytes: &[u8]) -> u64 {
    crate::common::content_hash(blake3::Hasher::new().update(bytes))
}

/// What differs between two trees, a line each; empty when they are alike.
pub fn differences(left: &Tree, right: &Tree) -> String {
    let mut out = String::new();
    for (name, l) in left {
        match right.get(name) {
            Some(r) if r == l => {}
            r => out.push_str(&format!("  {}: {l} | {}\n", show(name), r.map_or("-", String::as_str))),
        }
    }
    for (name, r) in right.iter().filter(|(name, _)| !left.contains_key(*name)) {
        out.push_str(&format!("  {}: - | {r}\n", show(name)));
    }
    out
}

fn show(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

pub fn assert_same(want: &Tree, got: &Tree, about: &str) {
    let differ = differences(want, got);
    assert!(differ.is_empty(), "{about}: wanted | got\n{differ}");
}

/// A scratch directory of a test.
pub fn scratch() -> TempDir {
    scratch_in(crate::common::places().0)
}

fn scratch_in(place: &Path) -> TempDir {
    tempfile::Builder::new().prefix("bcmr-test-").tempdir_in(place).unwrap()
}

/// A scratch directory on a file system that is not the one of [`scratch`]. `None`, said aloud, where there is none.
pub fn elsewhere() -> Option<TempDir> {
    let there = crate::common::places().1.map(scratch_in);
    if there.is_none() {
        crate::common::skipped("crossing", "/dev/shm is no file system of its own here");
    }
    there
}

/// Whether `program` can be started; said aloud where it cannot.
pub fn have(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        crate::common::skipped(program, "it is not installed");
    }
    there
}

/// A command whose messages are English and whose surroundings are known.
pub fn command<S: AsRef<OsStr>>(program: &str, args: &[S], cwd: &Path) -> Command {
    let mut c = Command::new(program);
    c.args(crate::common::by_engine(args)).current_dir(cwd).env("LC_ALL", "C").env("TERM", "dumb");
    c
}

/// Runs the binary; words are split at spaces.
pub fn bcmr(args: &str, cwd: &Path) -> Done {
    finish(command(BCMR, &words(args), cwd), "")
}

/// The same with the arguments one by one.
pub fn bcmr_os(args: &[&OsStr], cwd: &Path) -> Done {
    finish(command(BCMR, args, cwd), "")
}

pub fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

pub fn finish(mut command: Command, stdin: &str) -> Done {
    let said = format!("{command:?}");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A program that asks nothing may have ended before it is written.
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).ok();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
    Done { said, code: status.code(), out: stdout.clone(), stdout: text(stdout), stderr: text(stderr) }
}

/// How a run ended.
#[derive(Debug)]
pub struct Done {
    pub said: String,
    pub code: Option<i32>,
    pub out: Vec<u8>,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    /// Ended with this exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Done {
        assert_eq!(self.code, Some(code), "{}\nstdout: {}\nstderr: {}", self.said, self.stdout, self.stderr);
        self
    }

    /// Its standard output as JSON, a value a line.
    #[track_caller]
    pub fn json(&self) -> Vec<serde_json::Value> {
        let lines = self.out.split(|b| *b == b'\n').filter(|l| !l.is_empty());
        lines
            .map(|l| {
                serde_json::from_slice(l).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(l)))
            })
            .collect()
    }
}

/// The same tree planted twice.
pub struct Twins {
    pub ours: TempDir,
    pub theirs: TempDir,
}

impl Twins {
    pub fn plant(text: &str) -> Twins {
        let twins = Twins { ours: scratch(), theirs: scratch() };
        plant(twins.ours.path(), text);
        plant(twins.theirs.path(), text);
        twins
    }
}

/// Runs every row on its own, a few at a time, and tells all rows that fail at once.
pub fn each<T: Sync>(rows: &[T], check: impl Fn(&T) -> Result<(), String> + Sync) {
    let (next, failed) = (std::sync::atomic::AtomicUsize::new(0), std::sync::Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    if let Err(why) = check(row) {
                        failed.lock().unwrap().push(why);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort();
    assert!(failed.is_empty(), "{} of {} rows fail:\n{}", failed.len(), rows.len(), failed.join("\n"));
}

/// The path as something to hand to a command beside text.
pub fn at(dir: &TempDir, name: &str) -> PathBuf {
    dir.path().join(name)
}
