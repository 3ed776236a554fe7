//! What the black-box tests share: a place to work in, the program, and an attribute-exact look at a tree.
//!
//! Must not know any rule that is tested. Looks at trees by directory handle, one name at a time, so that it reaches
//! deeper than PATH_MAX and never follows a link.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests look at the file system the ordinary way

pub mod maker;
pub mod middle;
pub mod remote;
pub mod sshd;

pub use skips::{all_cases, in_slice, skipped, sliced};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The program under test.
pub const BCMR: &str = env!("CARGO_BIN_EXE_bcmr");

/// Longer than anything here takes on a slow and busy machine: what is not back by then hangs.
pub const HUNG: Duration = Duration::from_secs(300);

/// The number of the user "nobody".
pub const NOBODY: u32 = 65534;

/// Leaves the test, loudly, unless the condition holds.
#[macro_export]
macro_rules! needs {
    ($have:expr, $why:expr) => {
        if !$have {
            fn here() {}
            let name = std::any::type_name_of_val(&here);
            $crate::common::skipped(name.strip_suffix("::here").unwrap_or(name), $why);
            return;
        }
    };
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub fn has_tool(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|dir| dir.join(name).is_file())
}

/// The Python that `python3` leads to, where there is one. That may be a script that looks for it at each start.
pub fn python() -> Option<&'static str> {
    static PYTHON: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        let out = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
        let path = String::from_utf8(out.stdout).ok()?.trim_end().to_owned();
        (out.status.success() && !path.is_empty()).then_some(path)
    };
    PYTHON.get_or_init(find).as_deref()
}

/// A script that lies beside this file.
pub fn script(name: &str) -> String {
    format!("{}/tests/all/common/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The same as a command for a shell, run by [`python`]. It starts sooner with Python's own library alone.
pub fn python_script(name: &str) -> String {
    format!("'{}' -IS '{}'", python().unwrap_or("python3"), script(name))
}

// ---- a place to work in ----

/// A directory that is taken away in the end, whatever is in it.
pub struct Tmp(PathBuf);

/// A real disk, where /tmp may be memory: the build directory's.
pub fn disk() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// What the file system of `path` has free, in bytes.
pub fn free(path: &Path) -> rustix::io::Result<u64> {
    rustix::fs::statvfs(path).map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize))
}

/// A file system in memory, where there is one and it has room for what tests make at once.
fn memory() -> Option<&'static Path> {
    const ROOM: u64 = 4 << 30;
    let shm = Path::new("/dev/shm");
    let room = || free(shm).is_ok_and(|bytes| bytes >= ROOM);
    static HAS_ROOM: OnceLock<bool> = OnceLock::new();
    (dev(shm)? != dev(disk())? && *HAS_ROOM.get_or_init(room)).then_some(shm)
}

fn dev(path: &Path) -> Option<u64> {
    std::fs::create_dir_all(path).ok()?;
    std::fs::metadata(path).ok().map(|of| of.dev())
}

/// What tests work in: memory, as making and taking away files takes a disk twice as long, or the disk where there is no
/// such memory and where `BCMR_TEST_DISK` is set; and the other one of the two.
pub fn places() -> (&'static Path, Option<&'static Path>) {
    match memory() {
        Some(memory) if std::env::var_os("BCMR_TEST_DISK").is_none() => (memory, Some(disk())),
        other => (disk(), other),
    }
}

impl Tmp {
    pub fn new() -> Tmp {
        Tmp::beneath(places().0)
    }

    /// For what memory does not show: what is cached of a file, and limits of a file's size.
    pub fn on_disk() -> Tmp {
        Tmp::beneath(disk())
    }

    /// On another file system than [`Tmp::new`], where there is one.
    pub fn elsewhere() -> Option<Tmp> {
        places().1.map(Tmp::beneath)
    }

    pub fn beneath(base: &Path) -> Tmp {
        std::fs::create_dir_all(base).unwrap();
        let dir = tempfile::Builder::new().prefix("bcmr-test-").tempdir_in(base).unwrap();
        let path = dir.keep();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Tmp(path)
    }

    /// For tests that act as another user: everybody may go in, and the program is there as `bcmr`.
    pub fn for_others() -> Tmp {
        let tmp = Tmp::beneath(&std::env::temp_dir());
        std::fs::set_permissions(&tmp.0, std::fs::Permissions::from_mode(0o777)).unwrap();
        // By another program: a descriptor of ours that writes it could be handed down to what another test starts, and
        // what is open to be written cannot be run.
        let copied = Command::new("cp").arg(BCMR).arg(tmp.p("bcmr")).status().unwrap();
        assert!(copied.success());
        tmp
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn p(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Makes a file with the directories above it.
    pub fn file(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.p(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn dir(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.p(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Tmp {
    fn drop(&mut self) {
        if !is_root() {
            let _ok = Command::new("chmod").args(["-R", "u+rwX"]).arg(&self.0).stderr(Stdio::null()).status();
        }
        let _ok = Command::new("rm").args(["-rf", "--one-file-system"]).arg(&self.0).status();
    }
}

/// A file system of one's own for as long as this lives.
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts, or says why not.
    pub fn new(args: &[&OsStr], at: &Path) -> Result<Mount, String> {
        // A file can be mounted over a file.
        if !at.exists() {
            std::fs::create_dir_all(at).unwrap();
        }
        let out = Command::new("mount").args(args).arg(at).output().map_err(|e| e.to_string())?;
        if out.status.success() {
            Ok(Mount(at.to_owned()))
        } else {
            Err(String::from_utf8_lossy(&out.stderr).trim().to_owned())
        }
    }

    pub fn tmpfs(options: &str, at: &Path) -> Result<Mount, String> {
        Mount::new(&["-t", "tmpfs", "-o", options, "bcmr-test"].map(OsStr::new), at)
    }

    pub fn bind(from: &Path, at: &Path) -> Result<Mount, String> {
        Mount::new(&[OsStr::new("--bind"), from.as_os_str()], at)
    }

    /// A fresh file system in an image of `mib` MiB beside `at`.
    pub fn image(kind: &str, mib: u64, at: &Path) -> Result<Mount, String> {
        let image = at.with_extension(format!("{kind}.img"));
        let file = std::fs::File::create(&image).map_err(|e| e.to_string())?;
        file.set_len(mib << 20).map_err(|e| e.to_string())?;
        let mut mkfs = Command::new(format!("mkfs.{kind}"));
        match kind {
            "ext4" => mkfs.args(["-q", "-F", "-I", "256"]),
            _ => mkfs.args(["-q", "-f"]),
        };
        let out = mkfs.arg(&image).output().map_err(|e| format!("mkfs.{kind}: {e}"))?;
        if !out.status.success() {
            return Err(String::from_utf8_lossy(&out.stderr).trim().to_owned());
        }
        Mount::new(&[OsStr::new("-o"), OsStr::new("loop"), image.as_os_str()], at)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(&self.0).stderr(Stdio::null()).status();
        if !done.is_ok_and(|s| s.success()) {
            let _ok = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

// ---- the program ----

/// What a run of the program came to.
#[derive(Debug)]
pub struct Ran {
    /// The exit code, or 1000 plus the signal that killed it.
    pub code: i32,
    pub out: String,
    pub err: String,
    /// Whether its memory was written to a core dump.
    pub core: bool,
    line: String,
}

impl Ran {
    /// Asserts the exit code.
    #[track_caller]
    pub fn code(self, want: i32) -> Ran {
        assert_eq!(self.code, want, "exit code of {}\nstdout: {}\nstderr: {}", self.line, self.out, self.err);
        self
    }

    #[track_caller]
    pub fn ok(self) -> Ran {
        self.code(0)
    }

    /// Asserts that the exit code is one of these.
    #[track_caller]
    pub fn one_of(self, want: &[i32]) -> Ran {
        assert!(want.contains(&self.code), "exit {} of {}: {}", self.code, self.line, self.err);
        self
    }

    /// Asserts that standard error says this.
    #[track_caller]
    pub fn says(self, text: &str) -> Ran {
        assert!(self.err.contains(text), "{:?} not in stderr of {}: {}", text, self.line, self.err);
        self
    }
}

/// The words of a command line, and behind the verb of its `bcmr copy` or `bcmr move` the engine that the whole run of
/// the tests is for, which `BCMR_TEST_ENGINE` names. An engine of their own stays.
pub fn by_engine<A: AsRef<OsStr>>(words: impl IntoIterator<Item = A>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().map(|w| w.as_ref().to_owned()).collect();
    let has_own = |w: &OsString| w.as_bytes().starts_with(b"--engine") || w == "--direct-io";
    let verb = words.iter().position(|w| w == BCMR).map_or(0, |program| program + 1);
    let takes_it = words.get(verb).is_some_and(|w| w == "copy" || w == "move");
    if let (Some(flags), true) = (engine_flags(), takes_it && !words.iter().any(has_own)) {
        words.splice(verb + 1..verb + 1, flags.iter().map(OsString::from));
    }
    words
}

/// What [`by_engine`] adds. Where the engine is not to be had, nothing, and that is said.
fn engine_flags() -> Option<&'static [String]> {
    static FLAGS: OnceLock<Option<[String; 2]>> = OnceLock::new();
    let found = FLAGS.get_or_init(|| {
        let engine = std::env::var("BCMR_TEST_ENGINE").ok()?;
        let flags = [format!("--engine={engine}"), "--async-threshold=0".to_owned()];
        // The proof that the flags do something: else all of it would pass by any engine.
        let tmp = Tmp::new();
        let src = tmp.file("src", noise(1, 10_000));
        let copy = Line::new(Path::new(BCMR)).args(["copy", "--reflink=disable", "--json"]).args(&flags);
        let said = copy.args([src, tmp.p("dst")]).run().ok().out;
        if engine == "ring" && !said.contains("\"ring_files\":1") {
            let why = said.lines().find(|l| l.contains("\"missing\":"));
            let why = why.unwrap_or_else(|| panic!("there is a ring, and it was not used: {said}"));
            skipped("everything by the ring", &format!("there is none: {why}"));
            return None;
        }
        Some(flags)
    });
    found.as_ref().map(|flags| flags.as_slice())
}

/// A command line to come.
pub struct Line(pub Command);

/// `bcmr` with these arguments.
pub fn bcmr<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Line {
    Line::new(Path::new(BCMR)).args(by_engine(args))
}

/// `bcmr` started by a shell that first does `before` (`umask`, `ulimit`, redirections by `exec`).
pub fn bcmr_after<A: AsRef<OsStr>>(before: &str, args: impl IntoIterator<Item = A>) -> Line {
    Line::new(Path::new("sh"))
        .args(["-c", &format!("{before}; exec \"$0\" \"$@\""), BCMR])
        .args(by_engine(args))
}

/// `bcmr` as user and group `id` without any privilege; `tmp` is from [`Tmp::for_others`].
pub fn bcmr_as<A: AsRef<OsStr>>(id: u32, tmp: &Tmp, args: impl IntoIterator<Item = A>) -> Line {
    let (uid, gid) = (format!("--reuid={id}"), format!("--regid={id}"));
    Line::new(Path::new("setpriv"))
        .args([&uid, &gid, "--clear-groups"])
        .args([tmp.p("bcmr")])
        .args(by_engine(args))
}

/// `bcmr` to whose calls of `calls`, which commas part, something is done: to `which` of them, as strace counts (`2`, `3+`).
fn bcmr_injected(calls: &str, what: &str, which: &str) -> Line {
    Line::new(Path::new("strace"))
        .args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}")])
        .args(["-e", &format!("inject={calls}:{what}:when={which}"), BCMR])
}

/// `bcmr` that is killed at its `nth` call of `calls`.
pub fn bcmr_killed_at(nth: usize, calls: &str) -> Line {
    bcmr_injected(calls, "signal=SIGKILL", &nth.to_string())
}

/// `bcmr` whose calls of `call` fail: `which` of them.
pub fn bcmr_failing_at(which: &str, call: &str, error: &str) -> Line {
    bcmr_injected(call, &format!("error={error}"), which)
}

/// `bcmr` whose first call of `calls` takes long once it is done.
pub fn bcmr_slow_at(calls: &str) -> Line {
    bcmr_injected(calls, "delay_exit=1500000", "1")
}

/// Has a run killed at its first call, its second and so on, until one gets through; an ordinary run of the tests tries one
/// in `step`. One must get through with fewer than `most` calls.
#[track_caller]
pub fn until_not_killed(most: usize, step: usize, once: impl Fn(usize) -> Ran) {
    let tried = (1..most).filter(|nth| in_slice(nth - 1, step));
    let mut runs = tried.map(once);
    assert!(runs.any(|ran| ran.code == 0), "the last one was not killed");
}

impl Line {
    pub fn new(program: &Path) -> Line {
        let mut command = Command::new(program);
        command.env_remove("BCMR_SEED").env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Line(command)
    }

    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Line {
        self.0.args(args);
        self
    }

    pub fn cwd(mut self, dir: &Path) -> Line {
        self.0.current_dir(dir);
        self
    }

    /// What comes on its standard input.
    pub fn input(mut self, text: &str) -> Line {
        let (read, write) = std::io::pipe().unwrap();
        let text = text.to_owned();
        // A program that asks nothing may have ended before it is written.
        std::thread::spawn(move || std::fs::File::from(OwnedFd::from(write)).write_all(text.as_bytes()));
        self.0.stdin(read);
        self
    }

    pub fn start(mut self) -> Running {
        let line = format!("{:?}", self.0);
        // A group of its own, so that what is killed is all of it.
        let child = self.0.process_group(0).spawn().unwrap_or_else(|e| panic!("{line}: {e}"));
        Running { child, line, told: Vec::new() }
    }

    pub fn run(self) -> Ran {
        self.start().wait()
    }
}

/// So many lines, or all there are; not a byte more.
fn lines_of(pipe: &mut impl Read, lines: usize) -> Vec<u8> {
    let (mut all, mut left, mut one) = (Vec::new(), lines, [0]);
    while left > 0 && pipe.read(&mut one).unwrap() == 1 {
        all.push(one[0]);
        left -= usize::from(one[0] == b'\n');
    }
    all
}

/// A run under way.
pub struct Running {
    child: Child,
    line: String,
    /// What was read of its standard error already.
    told: Vec<u8>,
}

impl Running {
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        // Already gone is fine.
        let _gone = rustix::process::kill_process(pid, signal);
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Reads so many lines of its standard output, and no more: what has more to say than a pipe holds stands still
    /// somewhere behind them, until [`Running::wait`] reads the rest.
    pub fn hear(&mut self, lines: usize) -> Vec<u8> {
        let mut out = self.child.stdout.take().unwrap();
        let heard = lines_of(&mut out, lines);
        self.child.stdout = Some(out);
        heard
    }

    /// The same of its standard error.
    pub fn hear_errors(&mut self, lines: usize) {
        let mut err = self.child.stderr.take().unwrap();
        self.told.append(&mut lines_of(&mut err, lines));
        self.child.stderr = Some(err);
    }

    /// Interrupts it, and waits until it says that it stops.
    pub fn interrupt(&mut self) {
        self.signal(rustix::process::Signal::INT);
        self.hear_errors(1);
    }

    /// Waits for its end. Never for ever, and never through a panic of the program.
    pub fn wait(self) -> Ran {
        self.wait_most(HUNG)
    }

    /// The same for what may take longer.
    pub fn wait_most(mut self, most: Duration) -> Ran {
        fn drain(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
            std::thread::spawn(move || {
                let mut all = Vec::new();
                if let Some(mut pipe) = pipe {
                    let _cut = pipe.read_to_end(&mut all);
                }
                all
            })
        }
        let (out, err) = (drain(self.child.stdout.take()), drain(self.child.stderr.take()));
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > most {
                let _gone = self.child.kill();
                panic!("hangs: {}", self.line);
            }
            std::thread::sleep(Duration::from_millis(if began.elapsed().as_millis() < 50 { 1 } else { 10 }));
        };
        let code = status.code().unwrap_or_else(|| 1000 + status.signal().unwrap_or(0));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (out, err) = (text(out.join().unwrap()), text([self.told, err.join().unwrap()].concat()));
        let ran = Ran { code, out, err, core: status.core_dumped(), line: self.line };
        assert!(!ran.err.contains("panicked at"), "panic in {}: {}", ran.line, ran.err);
        if ran.line.contains("--json") {
            judge_events(&ran);
        }
        assert_ne!(ran.code, 101, "panic in {}: {}", ran.line, ran.err);
        ran
    }
}

// ---- events ----

/// What the program prints as the schema of its events; here no event may have a field that the schema has not.
pub fn event_schema() -> &'static jsonschema::Validator {
    static SCHEMA: OnceLock<jsonschema::Validator> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let out = Command::new(BCMR).arg("schema").output().unwrap();
        let mut schema: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        schema["unevaluatedProperties"] = false.into();
        jsonschema::validator_for(&schema).unwrap()
    })
}

/// Every whole line that looks like an event is one.
#[track_caller]
fn judge_events(ran: &Ran) {
    for line in
        ran.out.split_inclusive('\n').filter(|line| line.starts_with("{\"schema\"") && line.ends_with('\n'))
    {
        let event: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line} of {}", ran.line));
        if let Err(e) = event_schema().validate(&event) {
            panic!("{e}: {line} of {}", ran.line);
        }
    }
}

// ---- looking at a tree ----

/// One entry, as exactly as can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub kind: FileType,
    pub mode: u32,
    pub owner: (u32, u32),
    pub mtime: (i64, u64),
    pub atime: (i64, u64),
    pub size: u64,
    pub blocks: u64,
    pub rdev: u64,
    /// A hash of the content, or of a link's target.
    pub content: u64,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path of the same inode in this tree.
    pub first: Vec<u8>,
}

/// A tree by relative path; the root is the empty path.
pub type Tree = BTreeMap<Vec<u8>, Entry>;

/// What of two trees is compared beside names, kinds, contents and link targets.
#[derive(Clone, Copy, Default)]
pub struct Exact {
    pub mode: bool,
    pub owner: bool,
    pub times: bool,
    pub xattrs: bool,
    pub links: bool,
}

pub const CONTENT: Exact = Exact { mode: false, owner: false, times: false, xattrs: false, links: false };
pub const EVERYTHING: Exact = Exact { mode: true, owner: true, times: true, xattrs: true, links: true };

pub fn tree(root: &Path) -> Tree {
    tree_of(root, true)
}

/// All there is; where it is not `whole`, of what is below `root` without contents and attributes.
fn tree_of(root: &Path, whole: bool) -> Tree {
    let mut found = Tree::new();
    let mut seen = HashMap::new();
    let fd = open_dir(CWD, root).unwrap_or_else(|e| panic!("{}: {e}", root.display()));
    let stat = rustix::fs::fstat(&fd).unwrap();
    let xattrs = xattrs_of(&format!("/proc/self/fd/{}/.", fd.as_raw_fd()).into_bytes());
    found.insert(Vec::new(), entry(&stat, 0, xattrs, Vec::new()));
    walk(&fd, whole, &mut Vec::new(), &mut found, &mut seen);
    found
}

fn open_dir(at: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOATIME;
    let plain = flags & !OFlags::NOATIME;
    name.into_with_c_str(|name| {
        rustix::fs::openat(at, name, flags, Mode::empty())
            .or_else(|_| rustix::fs::openat(at, name, plain, Mode::empty()))
    })
}

fn entry(stat: &rustix::fs::Stat, content: u64, xattrs: BTreeMap<Vec<u8>, Vec<u8>>, first: Vec<u8>) -> Entry {
    let kind = FileType::from_raw_mode(stat.st_mode);
    Entry {
        kind,
        mode: stat.st_mode & 0o7777,
        owner: (stat.st_uid, stat.st_gid),
        mtime: (stat.st_mtime, stat.st_mtime_nsec),
        atime: (stat.st_atime, stat.st_atime_nsec),
        size: if kind == FileType::RegularFile { u64::try_from(stat.st_size).unwrap() } else { 0 },
        blocks: u64::try_from(stat.st_blocks).unwrap(),
        rdev: stat.st_rdev,
        content,
        xattrs,
        first,
    }
}

fn walk(
    dir: &OwnedFd,
    whole: bool,
    path: &mut Vec<u8>,
    found: &mut Tree,
    seen: &mut HashMap<(u64, u64), Vec<u8>>,
) {
    let mut names: Vec<CString> = rustix::fs::Dir::read_from(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_owned())
        .filter(|n| n.as_bytes() != b"." && n.as_bytes() != b"..")
        .collect();
    names.sort();
    for name in names {
        // Attackers and sockets take their names away again; a test that expects a name notices when it is missing.
        let Ok(stat) = rustix::fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let before = path.len();
        if before > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        let kind = FileType::from_raw_mode(stat.st_mode);
        let mut hasher = blake3::Hasher::new();
        match kind {
            FileType::RegularFile if whole => hash_file(dir, &name, stat.st_size, &mut hasher),
            FileType::Symlink if whole => {
                hasher.update(rustix::fs::readlinkat(dir, &name, Vec::new()).unwrap().as_bytes());
            }
            _ => {}
        }
        let by_handle = [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), name.as_bytes()].concat();
        let first = match kind {
            FileType::Directory => path.clone(),
            _ => seen.entry((stat.st_dev, stat.st_ino)).or_insert_with(|| path.clone()).clone(),
        };
        let (content, xattrs) =
            if whole { (content_hash(&hasher), xattrs_of(&by_handle)) } else { Default::default() };
        found.insert(path.clone(), entry(&stat, content, xattrs, first));
        if kind == FileType::Directory
            && let Ok(inner) = open_dir(dir.as_fd(), &name)
        {
            walk(&inner, whole, path, found, seen);
        }
        path.truncate(before);
    }
}

/// Of an optimised hash: an unoptimised one is what most of the suite's time would go into.
pub fn content_hash(hasher: &blake3::Hasher) -> u64 {
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    u64::from_le_bytes(first)
}

fn hash_file(dir: &OwnedFd, name: &CString, size: i64, hasher: &mut blake3::Hasher) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::openat(dir, name, flags, Mode::empty());
    let Ok(fd) = open(flags | OFlags::NOATIME).or_else(|_| open(flags)) else { return };
    let mut file = std::fs::File::from(fd);
    // Trees of very many small files are most of what is looked at.
    let mut buffer = vec![0; (size + 1).clamp(1 << 9, 1 << 18) as usize];
    loop {
        match file.read(&mut buffer).unwrap() {
            0 => return,
            n => {
                hasher.update(&buffer[..n]);
            }
        }
    }
}

fn xattrs_of(path: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = Vec::new();
    match rustix::fs::llistxattr(path, names.as_mut_slice()) {
        Ok(n) if n > 0 => names.resize(1 << 16, 0),
        _ => return BTreeMap::new(),
    }
    let Ok(n) = rustix::fs::llistxattr(path, names.as_mut_slice()) else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for name in names[..n].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0; 1 << 16];
        if let Ok(n) = rustix::fs::lgetxattr(path, name, value.as_mut_slice()) {
            value.truncate(n);
            found.insert(name.to_vec(), value);
        }
    }
    found
}

/// In which way two trees differ, one line for each entry.
pub fn differences(src: &Tree, dst: &Tree, exact: Exact) -> Vec<String> {
    let mut told = Vec::new();
    let show = |path: &[u8]| OsStr::from_bytes(&path[..path.len().min(120)]).to_owned();
    for (path, s) in src {
        let Some(d) = dst.get(path) else {
            told.push(format!("missing: {:?}", show(path)));
            continue;
        };
        let is_link = s.kind == FileType::Symlink;
        let same = [
            ("kind", s.kind == d.kind),
            ("size", s.size == d.size),
            ("content", s.content == d.content),
            (
                "rdev",
                s.rdev == d.rdev || !matches!(s.kind, FileType::CharacterDevice | FileType::BlockDevice),
            ),
            ("mode", !exact.mode || is_link || s.mode == d.mode),
            ("owner", !exact.owner || s.owner == d.owner),
            ("mtime", !exact.times || s.mtime == d.mtime),
            ("xattrs", !exact.xattrs || s.xattrs == d.xattrs),
            ("hard links", !exact.links || s.first == d.first),
        ];
        for (what, _) in same.iter().filter(|(_, same)| !same) {
            told.push(format!("{what} of {:?}: {s:?} became {d:?}", show(path)));
        }
    }
    told.extend(dst.keys().filter(|p| !src.contains_key(*p)).map(|p| format!("extra: {:?}", show(p))));
    told
}

#[track_caller]
pub fn assert_same(src: &Path, dst: &Path, exact: Exact) {
    let told = differences(&tree(src), &tree(dst), exact);
    assert!(
        told.is_empty(),
        "{} and {} differ:\n{}",
        src.display(),
        dst.display(),
        told[..told.len().min(20)].join("\n")
    );
}

/// Asserts that no stage is left anywhere below.
#[track_caller]
pub fn assert_no_litter(root: &Path) {
    let litter: Vec<OsString> = litter(root);
    assert!(litter.is_empty(), "litter below {}: {litter:?}", root.display());
}

pub fn litter(root: &Path) -> Vec<OsString> {
    let is_stage = |path: &&Vec<u8>| path.split(|b| *b == b'/').any(|name| name.starts_with(b".bcmr"));
    tree_of(root, false).keys().filter(is_stage).map(|p| OsString::from_vec(p.clone())).collect()
}

/// Whether directories are known again by number and birth where `dir` is (docs/session-format.md).
pub fn keeps_identities(dir: &Path) -> bool {
    const MAGICS: [i64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];
    MAGICS.contains(&{ rustix::fs::statfs(dir).unwrap().f_type })
}

/// The name that the program's own leftover has in the directory `dir`, made anew from docs/session-format.md. `which`:
/// its first 32 digits.
pub fn leftover(dir: &Path, which: &str, suffix: &str) -> PathBuf {
    use rustix::fs::{StatxFlags, statx};
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let (mut number, mut born) = (0, 0);
    if let (Ok(s), true) = (statx(CWD, dir, AtFlags::empty(), wanted), dir.exists() && keeps_identities(dir))
    {
        number = s.stx_ino;
        if s.stx_mask & StatxFlags::BTIME.bits() != 0 {
            born = s.stx_btime.tv_sec as u64 * 1_000_000_000 + u64::from(s.stx_btime.tv_nsec);
        }
    }
    let (number, born) = (number.to_le_bytes(), born.to_le_bytes());
    let all = [&b"bcmr"[..], which.as_bytes(), &number, &born, suffix.as_bytes()].concat();
    let hash = blake3::hash(&all).to_hex();
    dir.join(format!(".bcmr-{which}{}{suffix}", &hash[..16]))
}

/// The same of what belongs to the final name `name`.
pub fn leftover_of(dir: &Path, name: &[u8], suffix: &str) -> PathBuf {
    leftover(dir, &blake3::hash(name).to_hex()[..32], suffix)
}

/// The mark of a tree that is not complete.
pub fn mark_of(dir: &Path) -> PathBuf {
    leftover_of(dir, b"", ".tree")
}

/// The names in a directory.
pub fn names(dir: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names
}

/// The independent judge: what rsync would still change to make `dst` what `src` is. `None` without rsync.
pub fn rsync_would(src: &Path, dst: &Path) -> Option<String> {
    if !has_tool("rsync") {
        return None;
    }
    let mut args = vec!["-aHAXn", "--checksum", "--delete", "--itemize-changes", "--modify-window=-1"];
    if !is_root() {
        args.push("--no-devices");
    }
    let slash = |p: &Path| p.join("");
    let out = Command::new("rsync").args(args).args([slash(src), slash(dst)]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "rsync: {text}{said}");
    Some(text)
}

// ---- making things ----

/// Bytes that look like nothing else and are the same each time; by the hash, which is optimised in tests too.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Repeatable chance (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

pub fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

pub fn mkfifo(path: &Path) {
    mknod(path, FileType::Fifo, 0o644, 0);
}

pub fn mknod(path: &Path, kind: FileType, mode: u32, dev: u64) {
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(mode), dev).unwrap();
}

/// Exchanges two names in one step.
pub fn exchange(a: &Path, b: &Path) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE)
}

/// Does something again and again on a thread of its own until dropped.
pub struct Attacker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Attacker {
    pub fn new(mut act: impl FnMut() + Send + 'static) -> Attacker {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                act();
            }
        });
        Attacker { stop, thread: Some(thread) }
    }

    /// Swaps two names of a directory, over and over; by its handle, wherever others move it meanwhile.
    pub fn swapping(dir: &Path, a: &str, b: &str) -> Attacker {
        let dir = open_dir(CWD, dir).unwrap();
        let (a, b) = (a.to_owned(), b.to_owned());
        Attacker::new(move || {
            let _gone = rustix::fs::renameat_with(&dir, a.as_str(), &dir, b.as_str(), RenameFlags::EXCHANGE);
        })
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// Repeats while an attack runs: for a second (for ten where all is tried) and at least a few times, so that a slow
/// machine tests something and a fast one tests much.
pub fn for_a_while(mut once: impl FnMut(usize)) {
    let began = Instant::now();
    let time = Duration::from_secs(if all_cases() { 10 } else { 1 });
    for round in 0.. {
        if round >= 5 && began.elapsed() > time {
            return;
        }
        once(round);
    }
}
