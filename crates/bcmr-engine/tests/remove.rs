//! `remove`, as a table of trees and requests, and each guard beside its legitimate twin.
//!
//! What needs another current directory, user or limit runs this same binary again as a child (`as_child`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use bcmr_engine::error::{Code, Error, Op};
use bcmr_engine::event::{Action, Cancel, Event, Front, Progress, Question, Summary, Watch};
use bcmr_engine::policy::RemoveRequest;
use fastcopy::dir::{Dir, NameBuf};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Somebody who remembers what was told and answers by a rule.
struct Person {
    errors: Mutex<Vec<Error>>,
    items: Mutex<Vec<PathBuf>>,
    questions: Mutex<Vec<String>>,
    answer: fn(&Question) -> bool,
    cancel: Cancel,
    cancel_after: Option<usize>,
}

impl Person {
    fn new(answer: fn(&Question) -> bool) -> Person {
        let (errors, items, questions) = (Mutex::default(), Mutex::default(), Mutex::default());
        Person { errors, items, questions, answer, cancel: Cancel::new(), cancel_after: None }
    }
}

impl Front for Person {
    fn event(&self, event: Event) {
        match event {
            Event::Failed(error) => self.errors.lock().unwrap().push(error),
            Event::Item { action, dst, .. } => {
                assert_eq!(action, Action::Removed);
                let mut items = self.items.lock().unwrap();
                items.push(dst);
                if self.cancel_after == Some(items.len()) {
                    self.cancel.set();
                }
            }
            other => panic!("{other:?}"),
        }
    }
    fn ask(&self, question: Question) -> bool {
        let (word, path) = match &question {
            Question::Remove(path) => ("remove", path),
            Question::Descend(path) => ("descend", path),
            Question::Replace(_) => panic!("not a question of remove"),
        };
        let name = path.file_name().unwrap().to_str().unwrap();
        self.questions.lock().unwrap().push(format!("{word} {name}"));
        (self.answer)(&question)
    }
}

/// What came of one removal.
struct Outcome {
    summary: Summary,
    errors: Vec<Error>,
    items: Vec<PathBuf>,
    questions: Vec<String>,
    found: u64,
}

impl Outcome {
    fn codes(&self) -> Vec<Code> {
        self.errors.iter().map(|e| e.code).collect()
    }
    #[track_caller]
    fn clean(&self) {
        assert!(self.errors.is_empty(), "{:?}", self.errors);
        assert_eq!((self.summary.failed, self.summary.cancelled), (0, false));
    }
}

/// Letters as `rm` has them (`r d f i n`), and `x` to switch one_file_system off.
fn request(flags: &str, paths: &[&Path]) -> RemoveRequest {
    RemoveRequest {
        paths: paths.iter().map(|p| p.to_path_buf()).collect(),
        recursive: flags.contains('r'),
        empty_dirs: flags.contains('d'),
        force: flags.contains('f'),
        ask: flags.contains('i'),
        one_file_system: !flags.contains('x'),
        dry_run: flags.contains('n'),
        jobs: 2,
    }
}

/// Runs, and checks that the summary, the counters and the events tell the same story.
fn run(request: RemoveRequest, person: Person) -> Outcome {
    let progress = Progress::default();
    let watch = Watch { front: &person, progress: &progress, cancel: &person.cancel, items: true };
    let summary = bcmr_engine::remove(request, watch).unwrap();
    let outcome = Outcome {
        summary,
        errors: person.errors.into_inner().unwrap(),
        items: person.items.into_inner().unwrap(),
        questions: person.questions.into_inner().unwrap(),
        found: progress.items_found.into_inner(),
    };
    let s = &outcome.summary;
    assert_eq!(s.failed as usize, outcome.errors.len());
    assert_eq!((s.files + s.dirs + s.others) as usize, outcome.items.len());
    assert_eq!(progress.items_done.into_inner() as usize, outcome.items.len());
    let codes: BTreeSet<_> = outcome.codes().into_iter().collect();
    assert_eq!(s.codes.iter().copied().collect::<BTreeSet<_>>(), codes);
    assert_eq!(s.codes.len(), codes.len(), "each once");
    for error in &outcome.errors {
        assert!(error.op != Op::Unknown(0), "{error:?}");
    }
    outcome
}

fn remove(flags: &str, paths: &[&Path]) -> Outcome {
    run(request(flags, paths), Person::new(|_| true))
}

/// Makes directories (`a/`), files (`a/f`), links (`l->target`) and FIFOs (`p|`) below `at`.
fn tree(at: &Path, text: &str) {
    for word in text.split_whitespace() {
        if let Some((link, target)) = word.split_once("->") {
            symlink(target, at.join(link)).unwrap();
        } else if let Some(dir) = word.strip_suffix('/') {
            std::fs::create_dir_all(at.join(dir)).unwrap();
        } else if let Some(fifo) = word.strip_suffix('|') {
            assert!(Command::new("mkfifo").arg(at.join(fifo)).status().unwrap().success());
        } else {
            std::fs::write(at.join(word), word).unwrap();
        }
    }
}

/// All names below `at`, sorted; directories with a slash.
fn names(at: &Path) -> String {
    fn walk(at: &Path, prefix: &str, all: &mut Vec<String>) {
        for entry in std::fs::read_dir(at).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                all.push(format!("{name}/"));
                walk(&entry.path(), &format!("{name}/"), all);
            } else {
                all.push(name);
            }
        }
    }
    let mut all = Vec::new();
    walk(at, "", &mut all);
    all.sort();
    all.join(" ")
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Keeps the slashes and dots that `Path::join` would keep too, but nobody need remember that.
fn join(at: &Path, rest: &str) -> PathBuf {
    let mut bytes = at.as_os_str().as_bytes().to_vec();
    bytes.push(b'/');
    bytes.extend_from_slice(rest.as_bytes());
    PathBuf::from(OsString::from_vec(bytes))
}

fn name(text: &str) -> NameBuf {
    NameBuf::new(text.as_bytes()).unwrap()
}

/// Tree, flags, operands, what is left, errors.
type Row = (&'static str, &'static str, &'static [&'static str], &'static str, &'static [Code]);

#[test]
fn trees_and_requests() {
    use Code::{InTheWay, IsDirectory, NotDirectory, NotFound, Refused};
    const T: &str = "a/ a/b/ a/b/f a/g a/l->../keep a/p| keep";
    const ALL: &str = "a/ a/b/ a/b/f a/g a/l a/p keep";
    #[rustfmt::skip]
    let table: [Row; 25] = [
        (T, "r", &["a"], "keep", &[]),
        (T, "r", &["a/"], "keep", &[]),
        (T, "r", &["a//"], "keep", &[]),
        (T, "rf", &["./a/../a"], "keep", &[]),
        (T, "rn", &["a"], ALL, &[]),
        (T, "", &["a"], ALL, &[IsDirectory]),
        (T, "f", &["a"], ALL, &[IsDirectory]),
        (T, "d", &["a"], ALL, &[InTheWay]),
        (T, "dn", &["a"], ALL, &[InTheWay]),
        (T, "", &["a/g", "a/l", "a/p"], "a/ a/b/ a/b/f keep", &[]),
        (T, "", &["none", "keep"], "a/ a/b/ a/b/f a/g a/l a/p", &[NotFound]),
        (T, "f", &["none", "keep/none", "none/none", "keep/"], ALL, &[]),
        (T, "", &["keep/none"], ALL, &[NotDirectory]),
        (T, "", &["keep/"], ALL, &[NotDirectory]),
        (T, "r", &["a/.", "a/..", "a/b/../"], ALL, &[Refused, Refused, Refused]),
        ("a/ a/b/", "d", &["a/b"], "a/", &[]),
        ("a/ a/b/", "dn", &["a/b"], "a/ a/b/", &[]),
        // A link is removed itself; with a slash after it nothing is; its target never.
        ("a/ a/f l->a", "rf", &["l"], "a/ a/f", &[]),
        ("a/ a/f l->a", "rf", &["l/"], "a/ a/f l", &[NotDirectory]),
        ("a/ a/f l->a", "df", &["l/"], "a/ a/f l", &[NotDirectory]),
        ("l->none", "r", &["l"], "", &[]),
        ("l->l", "r", &["l"], "", &[]),
        ("l->/", "r", &["l"], "", &[]),
        ("l->/", "rn", &["l/"], "l", &[Refused]),
        // Through a link on the way, as everybody expects.
        ("a/ a/b/ a/b/f l->a", "r", &["l/b"], "a/ l", &[]),
    ];
    for (before, flags, operands, after, codes) in table {
        let t = scratch();
        tree(t.path(), before);
        let operands: Vec<PathBuf> = operands.iter().map(|o| join(t.path(), o)).collect();
        let operands: Vec<&Path> = operands.iter().map(PathBuf::as_path).collect();
        let outcome = remove(flags, &operands);
        let case = format!("{before:?} {flags} {operands:?}: {:?}", outcome.errors);
        assert_eq!(names(t.path()), after, "{case}");
        let mut found = outcome.codes();
        found.sort();
        assert_eq!(found, codes, "{case}");
        for error in &outcome.errors {
            assert!(operands.contains(&error.path.as_path()), "{case}");
        }
    }
}

#[test]
fn counts_and_items_tell_what_went() {
    let t = scratch();
    tree(t.path(), "a/ a/b/ a/b/f a/g a/l->none a/p|");
    let a = t.path().join("a");
    for flags in ["rn", "r"] {
        let outcome = remove(flags, &[&a]);
        outcome.clean();
        let s = &outcome.summary;
        assert_eq!((s.files, s.dirs, s.others, outcome.found), (2, 2, 2, 6), "{flags}");
        let mut items: Vec<_> =
            outcome.items.iter().map(|p| p.strip_prefix(t.path()).unwrap().to_str().unwrap()).collect();
        assert_eq!(items.last(), Some(&"a"), "a directory comes after what is in it");
        items.sort_unstable();
        assert_eq!(items, ["a", "a/b", "a/b/f", "a/g", "a/l", "a/p"]);
    }
    assert_eq!(names(t.path()), "");
}

#[test]
fn nothing_named_is_a_usage_error_unless_forced() {
    let person = Person::new(|_| true);
    let progress = Progress::default();
    let watch = Watch { front: &person, progress: &progress, cancel: &person.cancel, items: false };
    assert_eq!(bcmr_engine::remove(request("", &[]), watch).unwrap_err().code, Code::Usage);
    assert_eq!(bcmr_engine::remove(request("f", &[]), watch).unwrap(), Summary::default());
}

// ---- guards. Everything that could reach the machine's own root is a dry run: what must fail here is only a test.

#[test]
fn the_root_and_the_way_to_the_current_directory_are_refused_by_identity() {
    let t = scratch();
    let cwd = std::env::current_dir().unwrap();
    symlink("/", t.path().join("root")).unwrap();
    symlink(".", t.path().join("self")).unwrap();
    symlink(&cwd, t.path().join("cwd")).unwrap();
    let through = |rest: &str| join(t.path(), rest);
    let by_root = join(Path::new("/proc/self/root"), cwd.to_str().unwrap().trim_start_matches('/'));
    let mut refused: Vec<PathBuf> =
        ["/", "//", "/.", "/..", ".", "..", "./", "../"].map(PathBuf::from).to_vec();
    refused.extend(["root/", "cwd/", "cwd/.", "cwd/..", "self/root/"].map(through));
    refused.extend([cwd.clone(), cwd.parent().unwrap().to_path_buf(), by_root]);
    for operand in refused {
        for flags in ["rn", "rfn", "dn", "rxn"] {
            // Cancelled at the first item, should a guard fail: no walk over the whole machine.
            let mut person = Person::new(|_| true);
            person.cancel_after = Some(1);
            let outcome = run(request(flags, &[&operand]), person);
            assert_eq!(outcome.codes(), [Code::Refused], "{operand:?} {flags} {:?}", outcome.errors);
            assert!(outcome.items.is_empty());
        }
    }
    // The twins: links to all of these go, being links.
    let links = [through("root"), through("self"), through("cwd")];
    remove("r", &links.iter().map(PathBuf::as_path).collect::<Vec<_>>()).clean();
    assert_eq!(names(t.path()), "");
}

/// Runs this binary in other surroundings, as a process that removes, and returns what it answered.
fn as_child(flags: &str, paths: &[&Path], wrap: impl FnOnce(&Path) -> Command) -> String {
    let exe = std::env::current_exe().unwrap();
    let mut command = wrap(&exe);
    command.args(["--exact", "a_process_of_its_own_removes_the_same", "--nocapture", "--test-threads=1"]);
    let joined = paths.iter().map(|p| p.as_os_str().as_bytes()).collect::<Vec<_>>().join(&b'\n');
    command.env("REMOVE_FLAGS", flags).env("REMOVE_PATHS", OsString::from_vec(joined));
    command.env("RUST_MIN_STACK", "131072");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{errors}");
    eprint!("{errors}");
    let answer = text.split_once("ANSWER ").and_then(|(_, rest)| rest.split_once('\n')).map(|(line, _)| line);
    answer.unwrap_or_else(|| panic!("no answer in {text}")).to_owned()
}

/// Started by another test of this binary it is that test's child; by itself it is the first of them.
#[test]
fn a_process_of_its_own_removes_the_same() {
    match std::env::var_os("REMOVE_PATHS") {
        Some(paths) => remove_as_told(&paths),
        None => {
            let t = scratch();
            tree(t.path(), "a/ a/f a/b/ a/b/g stays");
            assert_eq!(
                as_child("r", &[&t.path().join("a")], |exe: &Path| Command::new(exe)),
                "files=2 dirs=2 failed=0 codes=[]"
            );
            assert_eq!(names(t.path()), "stays");
        }
    }
}

/// What a child does: removes, and says how it went.
fn remove_as_told(paths: &OsStr) {
    let paths: Vec<PathBuf> = paths
        .as_bytes()
        .split(|b| *b == b'\n')
        .map(|p| PathBuf::from(OsString::from_vec(p.to_vec())))
        .collect();
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let mut wanted = request(&std::env::var("REMOVE_FLAGS").unwrap(), &paths);
    wanted.jobs = 4;
    // No items: their paths would be most of the work in a deep tree.
    let person = Person::new(|_| true);
    let progress = Progress::default();
    let watch = Watch { front: &person, progress: &progress, cancel: &person.cancel, items: false };
    let s = match bcmr_engine::remove(wanted, watch) {
        Ok(summary) => summary,
        Err(error) => return println!("\nANSWER not begun: {:?}", error.code),
    };
    for error in person.errors.lock().unwrap().iter().take(5) {
        let text = error.to_string();
        eprintln!("{} ... {}", text.get(..100).unwrap_or(&text), error.code.name());
    }
    println!("\nANSWER files={} dirs={} failed={} codes={:?}", s.files, s.dirs, s.failed, s.codes);
}

#[test]
fn the_current_directory_and_what_holds_it_are_refused_from_there() {
    let t = scratch();
    tree(t.path(), "a/ a/b/ a/b/c/ a/b/f a/x/ a/x/f l->a m->a/b/c");
    let there = t.path().join("a/b/c");
    let within = |exe: &Path| {
        let mut command = Command::new(exe);
        command.current_dir(&there);
        command
    };
    let before = names(t.path());
    for operand in ["a", "a/", "l/", "m/", "a/b", "a/b/c", "l/b", "a/x/../b"] {
        let answer = as_child("rf", &[&join(t.path(), operand)], within);
        assert_eq!(answer, "files=0 dirs=0 failed=1 codes=[Refused]", "{operand}");
    }
    assert_eq!(names(t.path()), before);
    // The twin: what stands beside the way is removed from there, by relative paths too.
    let answer = as_child("r", &[Path::new("../../x"), Path::new("../f"), &t.path().join("l")], within);
    assert_eq!(answer, "files=2 dirs=1 failed=0 codes=[]");
    assert_eq!(names(t.path()), "a/ a/b/ a/b/c/ m");
}

/// Runs `script` in a mount namespace of its own and then removes; `None`, loudly, where that is not allowed.
fn with_mounts(script: &str, at: &Path, flags: &str, paths: &[&Path]) -> Option<String> {
    let probe = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !probe.is_ok_and(|o| o.status.success()) {
        skips::here("nothing can be mounted here");
        return None;
    }
    Some(as_child(flags, paths, |exe| {
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-ec"])
            .arg(format!("{script}; exec \"$0\" \"$@\""))
            .arg(exe)
            .current_dir(at);
        command
    }))
}

#[test]
fn mount_points_are_left_and_told_also_binds_of_the_same_device() {
    let t = scratch();
    tree(t.path(), "a/ a/m/ a/f a/d/ a/d/g out/ out/f");
    let a = t.path().join("a");
    let scripts = ["mount --bind out a/m", "mount -t tmpfs none a/m; touch a/m/f"];
    for script in scripts {
        let Some(answer) = with_mounts(script, t.path(), "rf", &[&a]) else { return };
        assert_eq!(answer, "files=2 dirs=1 failed=1 codes=[Refused]", "{script}");
        assert_eq!(names(t.path()), "a/ a/m/ out/ out/f", "{script}");
        // The mount point itself as an operand.
        let answer = with_mounts(script, t.path(), "rf", &[&a.join("m")]).unwrap();
        assert_eq!(answer, "files=0 dirs=0 failed=1 codes=[Refused]", "{script}");
        assert_eq!(names(t.path()), "a/ a/m/ out/ out/f", "{script}");
        tree(t.path(), "a/f a/d/ a/d/g");
    }
    // The twins: who says so gets what lies behind the mount removed; without the mount all of it goes.
    let answer = with_mounts(scripts[0], t.path(), "rxf", &[&a]).unwrap();
    assert_eq!(answer, "files=3 dirs=1 failed=1 codes=[Io]", "the mount point itself is busy");
    assert_eq!(names(t.path()), "a/ a/m/ out/");
    assert_eq!(with_mounts("true", t.path(), "rf", &[&a]).unwrap(), "files=0 dirs=2 failed=0 codes=[]");
    assert_eq!(names(t.path()), "out/");
}

#[test]
fn the_root_mounted_elsewhere_is_still_the_root() {
    let t = scratch();
    tree(t.path(), "root/ holds/ holds/root/ f");
    let (root, holds) = (t.path().join("root"), t.path().join("holds"));
    // Dry runs. A root below an operand is found even where other file systems are entered.
    for (flags, operand) in [("rn", &root), ("rxn", &root), ("rxn", &holds)] {
        let script = "mount --bind / root; mount --bind / holds/root";
        let Some(answer) = with_mounts(script, t.path(), flags, &[operand]) else { return };
        assert_eq!(answer, "files=0 dirs=0 failed=1 codes=[Refused]", "{flags} {operand:?}");
    }
    let answer = with_mounts("true", t.path(), "r", &[&root, &holds]).unwrap();
    assert_eq!(answer, "files=0 dirs=3 failed=0 codes=[]");
}

// ---- trees of unusual shape

#[test]
fn links_inside_a_tree_lead_nowhere() {
    let t = scratch();
    tree(t.path(), "out/ out/f out/d/ a/ a/b/ a/out->../out a/b/up->.. a/b/self->self a/f->../out/f");
    remove("rf", &[&t.path().join("a")]).clean();
    assert_eq!(names(t.path()), "out/ out/d/ out/f");
}

#[test]
fn twenty_thousand_files_in_one_directory() {
    let t = scratch();
    let a = t.path().join("a");
    std::fs::create_dir(&a).unwrap();
    for i in 0..20_000 {
        std::fs::write(a.join(format!("file-{i:05}")), "").unwrap();
    }
    let outcome = remove("r", &[&a]);
    outcome.clean();
    assert_eq!((outcome.summary.files, outcome.summary.dirs, outcome.found), (20_000, 1, 20_001));
    assert_eq!(names(t.path()), "");
}

/// `levels` directories inside each other, a file in each; longer than any path may be.
fn deep(at: &Path, levels: usize) {
    let (level, file) = (name("level"), name("file"));
    let mut here = Dir::open(at).unwrap();
    for _ in 0..levels {
        here.make_dir(level.as_name(), 0o755).unwrap();
        here.create_file(file.as_name(), 0o644).unwrap();
        here = here.open_dir(level.as_name()).unwrap();
    }
}

/// The program under `ulimit`s.
fn limited(limits: &str) -> impl Fn(&Path) -> Command {
    // Whatever the test's own parents left open would count as well.
    let script = format!("exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; {limits}; exec \"$0\" \"$@\"");
    move |exe| {
        let mut command = Command::new("sh");
        command.args(["-ec", &script]).arg(exe);
        command
    }
}

#[test]
fn a_tree_deeper_than_any_path() {
    let t = scratch();
    let a = t.path().join("a");
    std::fs::create_dir(&a).unwrap();
    deep(&a, 3_000);
    // Far more levels than descriptors and, were there recursion, than a stack has room for.
    let answer = as_child("r", &[&a], limited("ulimit -n 40; ulimit -s 256"));
    assert_eq!(answer, "files=3000 dirs=3001 failed=0 codes=[]");
    assert_eq!(names(t.path()), "");
}

#[test]
fn few_descriptors_are_enough() {
    let t = scratch();
    let a = t.path().join("a");
    for limit in [8, 9, 12, 20] {
        for i in 0..30 {
            let dir = a.join(format!("{}/{i}/x", i % 5));
            std::fs::create_dir_all(dir.join("y/z")).unwrap();
            std::fs::write(dir.join("f"), "").unwrap();
        }
        deep(&a, 100);
        let answer = as_child("r", &[&a], limited(&format!("ulimit -n {limit}")));
        assert_eq!(answer, "files=130 dirs=226 failed=0 codes=[]", "{limit}");
        assert_eq!(names(t.path()), "");
    }
    // With fewer than it takes to look at the current directory's parent, nothing is begun.
    tree(t.path(), "a/ a/f");
    let answer = as_child("r", &[&a], limited("ulimit -n 4"));
    assert_eq!(answer, "not begun: Limit");
    assert_eq!(names(t.path()), "a/ a/f");
}

#[test]
fn odd_names() {
    let t = scratch();
    let a = t.path().join("a");
    std::fs::create_dir(&a).unwrap();
    let long = [b'x'; 255];
    for name in [&b"new\nline"[..], b"\xff\xfe", b"-rf", b"...", b" ", b"*", &long] {
        std::fs::write(a.join(OsString::from_vec(name.to_vec())), "").unwrap();
    }
    remove("r", &[&a]).clean();
    assert_eq!(names(t.path()), "");
}

// ---- what cannot be removed

#[test]
fn what_may_not_be_removed_is_told_and_the_rest_goes() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skips::here("only root can become another user");
    }
    let t = scratch();
    // A place that another user can reach, with the test program in it.
    std::fs::set_permissions(t.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let exe = t.path().join("exe");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    tree(
        t.path(),
        "w/ w/a/ w/a/closed/ w/a/closed/f w/a/empty/ w/a/locked/ w/a/locked/f w/a/ok/ w/a/ok/f w/a/f",
    );
    tree(t.path(), "w/shut/ w/shut/f");
    let own = Command::new("chown").args(["-R", "65534:65534"]).arg(t.path().join("w")).status().unwrap();
    assert!(own.success());
    let mode = |path: &str, bits| {
        std::fs::set_permissions(t.path().join(path), PermissionsExt::from_mode(bits)).unwrap();
    };
    mode("w/a/closed", 0o300);
    mode("w/a/empty", 0o000);
    mode("w/a/locked", 0o555);
    mode("w/shut", 0o000);
    let nobody = |operand: &str| {
        as_child("rf", &[&t.path().join(operand)], |_| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&exe).current_dir("/");
            command
        })
    };
    // The unreadable directory and the file in the locked one; neither makes further errors of what is above it.
    assert_eq!(nobody("w/a"), "files=2 dirs=2 failed=2 codes=[Denied]");
    assert_eq!(nobody("w/shut"), "files=0 dirs=0 failed=1 codes=[Denied]");
    assert_eq!(names(&t.path().join("w")), "a/ a/closed/ a/closed/f a/locked/ a/locked/f shut/ shut/f");
    mode("w/a/closed", 0o700);
    mode("w/a/locked", 0o700);
    std::fs::remove_file(t.path().join("w/shut/f")).unwrap();
    assert_eq!(nobody("w/a"), "files=2 dirs=3 failed=0 codes=[]");
    assert_eq!(nobody("w/shut"), "files=0 dirs=1 failed=0 codes=[]", "an empty one need not be read");
    assert_eq!(names(&t.path().join("w")), "");
}

#[test]
fn an_immutable_file_is_told_by_its_full_path_and_its_directories_stay_silently() {
    let t = scratch();
    tree(t.path(), "a/ a/b/ a/b/fixed a/b/f a/g");
    let fixed = t.path().join("a/b/fixed");
    let chattr = |flag: &str| Command::new("chattr").arg(flag).arg(&fixed).output();
    if !chattr("+i").is_ok_and(|o| o.status.success()) {
        return skips::here("no immutable files here");
    }
    let outcome = remove("rf", &[&t.path().join("a")]);
    assert!(chattr("-i").unwrap().status.success());
    assert_eq!(outcome.codes(), [Code::Denied]);
    assert_eq!((outcome.errors[0].op, &outcome.errors[0].path), (Op::Remove, &fixed));
    assert_eq!(names(t.path()), "a/ a/b/ a/b/fixed");
    remove("rf", &[&t.path().join("a")]).clean();
    assert_eq!(names(t.path()), "");
}

// ---- asking, and stopping

#[test]
fn asks_before_descending_before_each_and_before_the_directory() {
    type Case = (fn(&Question) -> bool, &'static [&'static str], &'static str, u64);
    fn no_descend(q: &Question) -> bool {
        !matches!(q, Question::Descend(p) if p.ends_with("b"))
    }
    fn keep_file(q: &Question) -> bool {
        !matches!(q, Question::Remove(p) if p.ends_with("f"))
    }
    fn keep_top(q: &Question) -> bool {
        !matches!(q, Question::Remove(p) if p.ends_with("a"))
    }
    let cases: [Case; 5] = [
        (|_| true, &["descend a", "descend b", "remove f", "remove b", "remove a"], "", 0),
        (|_| false, &["descend a"], "a/ a/b/ a/b/f a/e/", 1),
        (no_descend, &["descend a", "descend b"], "a/ a/b/ a/b/f", 1),
        (keep_file, &["descend a", "descend b", "remove f"], "a/ a/b/ a/b/f", 1),
        (keep_top, &["descend a", "descend b", "remove f", "remove b", "remove a"], "a/", 1),
    ];
    for (answer, questions, left, kept) in cases {
        let t = scratch();
        tree(t.path(), "a/ a/b/ a/b/f a/e/");
        let outcome = run(request("ri", &[&t.path().join("a")]), Person::new(answer));
        outcome.clean();
        // `e` comes before or after `b`, as the directory has them; being empty it is asked about once.
        let (of_e, others): (Vec<String>, Vec<String>) =
            outcome.questions.into_iter().partition(|q| q.ends_with(" e"));
        assert_eq!(others, questions);
        assert!(
            of_e.is_empty() == (questions.len() == 1) && of_e.iter().all(|q| q == "remove e"),
            "{of_e:?}"
        );
        assert_eq!(names(t.path()), left);
        assert_eq!(outcome.summary.kept, kept);
    }
    let t = scratch();
    tree(t.path(), "f g d/");
    let operands = [t.path().join("f"), t.path().join("g"), t.path().join("d")];
    let operands: Vec<&Path> = operands.iter().map(PathBuf::as_path).collect();
    let not_g = Person::new(|q| !matches!(q, Question::Remove(p) if p.ends_with("g")));
    let outcome = run(request("di", &operands), not_g);
    assert_eq!(outcome.questions, ["remove f", "remove g", "remove d"]);
    assert_eq!(names(t.path()), "g");
}

#[test]
fn a_dry_run_asks_nothing() {
    let t = scratch();
    tree(t.path(), "a/ a/f");
    let outcome = run(request("rin", &[&t.path().join("a")]), Person::new(|_| false));
    assert_eq!((outcome.questions.len(), outcome.items.len()), (0, 2));
    assert_eq!(names(t.path()), "a/ a/f");
}

#[test]
fn stops_between_entries_when_told() {
    let t = scratch();
    let a = t.path().join("a");
    for i in 0..40 {
        let dir = a.join(i.to_string());
        std::fs::create_dir_all(&dir).unwrap();
        for j in 0..20 {
            std::fs::write(dir.join(j.to_string()), "").unwrap();
        }
    }
    for (after, at_most) in [(1, 5), (100, 105)] {
        let mut person = Person::new(|_| true);
        person.cancel_after = Some(after);
        let outcome = run(request("r", &[&a]), person);
        assert!(outcome.summary.cancelled);
        assert!((after..=at_most).contains(&outcome.items.len()), "{}", outcome.items.len());
        assert!(outcome.errors.is_empty(), "what was stopped is not an error: {:?}", outcome.errors);
        assert!(a.is_dir());
    }
    remove("r", &[&a]).clean();
    assert_eq!(names(t.path()), "");
}

// ---- hostile company

#[test]
fn a_directory_exchanged_for_a_link_again_and_again_never_leads_outside() {
    let t = scratch();
    let (out, work) = (t.path().join("out"), t.path().join("w"));
    tree(t.path(), "out/ out/e/ out/e/f out/e/g out/f out/f0 out/f1 w/");
    let before = names(&out);
    let hostile = format!("hostile->{}", out.display());
    let (stop, exchanges, quiet) = (AtomicBool::new(false), AtomicU32::new(0), Mutex::new(()));
    let rounds = if skips::all_cases() { 200 } else { 50 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let top = Dir::open(&work).unwrap();
            let mut turn = 0u32;
            while !stop.load(Ordering::Relaxed) {
                let undisturbed = quiet.lock().unwrap();
                turn += 1;
                let done = top.open_dir(name("src").as_name()).and_then(|src| {
                    if turn.is_multiple_of(3) {
                        let d = src.open_dir(name("d").as_name())?;
                        d.exchange(name("e").as_name(), &top, name("hostile").as_name())
                    } else {
                        src.exchange(name("d").as_name(), &top, name("hostile").as_name())
                    }
                });
                drop(undisturbed);
                if done.is_ok() {
                    exchanges.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        for round in 0..rounds {
            let building = quiet.lock().unwrap();
            tree(&work, &hostile);
            tree(&work, "src/ src/d/ src/d/e/ src/d/e/f src/d/e/g src/d/f src/top");
            for i in 0..20 {
                tree(&work, &format!("src/d/f{i} src/d/e/f{i} src/x{i}/ src/x{i}/f"));
            }
            drop(building);
            remove("rf", &[&work.join("src")]);
            let calm = quiet.lock().unwrap();
            assert_eq!(names(&out), before, "round {round}");
            // What the exchanges left, directory or link.
            remove("rf", &[&work.join("src"), &work.join("hostile")]).clean();
            assert_eq!(names(&work), "");
            assert_eq!(names(&out), before, "round {round}, cleaning up");
            drop(calm);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let exchanges = exchanges.into_inner();
    assert!(exchanges > rounds / 2, "the attacker was hardly there: {exchanges}");
}

/// Somebody who puts something into `a` as soon as `a/s`, the last thing in it, is gone.
struct Adder<'t> {
    at: &'t Path,
    times: AtomicU32,
    errors: AtomicU32,
}

impl Front for Adder<'_> {
    fn event(&self, event: Event) {
        match event {
            Event::Item { dst, .. } if dst.ends_with("s") && self.times.load(Ordering::Relaxed) > 0 => {
                self.times.fetch_sub(1, Ordering::Relaxed);
                tree(self.at, "a/late a/s/ a/s/late");
            }
            Event::Failed(error) => {
                assert_eq!((error.code, error.path.as_path()), (Code::InTheWay, self.at.join("a").as_path()));
                self.errors.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
    fn ask(&self, _: Question) -> bool {
        true
    }
}

#[test]
fn a_directory_that_was_filled_again_is_listed_again_but_not_for_ever() {
    for (times, errors, left) in [(1, 0, ""), (5, 0, ""), (u32::MAX, 1, "a/ a/late a/s/ a/s/late")] {
        let t = scratch();
        tree(t.path(), "a/ a/s/ a/s/f");
        let front = Adder { at: t.path(), times: AtomicU32::new(times), errors: AtomicU32::new(0) };
        let (progress, cancel) = (Progress::default(), Cancel::new());
        let watch = Watch { front: &front, progress: &progress, cancel: &cancel, items: true };
        let summary = bcmr_engine::remove(request("r", &[&t.path().join("a")]), watch).unwrap();
        assert_eq!((front.errors.into_inner(), summary.failed), (errors, u64::from(errors)));
        assert_eq!(names(t.path()), left);
    }
}

#[test]
fn what_others_add_meanwhile_goes_too_or_is_told() {
    let t = scratch();
    let a = t.path().join("a");
    for round in 0..20 {
        for i in 0..20 {
            std::fs::create_dir_all(a.join(i.to_string())).unwrap();
        }
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                let Ok(dir) = Dir::open(&a) else { return };
                for n in 0..2_000 {
                    if dir.create_file(name(&format!("late{n}")).as_name(), 0o600).is_err() {
                        break;
                    }
                }
            });
            remove("rf", &[&a])
        });
        assert!(outcome.codes().iter().all(|c| *c == Code::InTheWay), "{round} {:?}", outcome.errors);
        assert_eq!(a.exists(), !outcome.errors.is_empty(), "{round} {:?}", outcome.errors);
        remove("rf", &[&a]).clean();
        assert_eq!(names(t.path()), "");
    }
}
