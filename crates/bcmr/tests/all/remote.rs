//! Copies to and from another machine with the real thing: what arrives is judged by rsync, by eyes of our own, and by
//! what the same command does when everything is here.
//!
//! The other machine is this one, behind two pipes mostly, and behind true ssh where that matters. What happens when a
//! connection is lost is in `remote_lost.rs`.

use crate::common::maker::{Can, Maker, can, judge};
use crate::common::remote::*;
use crate::common::*;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

// ---- trees ----

const TIMES: (i64, i64) = (-2_000_000_000, 4_260_000_000);

/// What random trees hold seldom or never: large files, several names of them in several directories, very many small
/// ones, a file that is nearly all hole, names of every byte.
fn nasty(root: &Path, can: Can, seed: u64) {
    Maker::new(seed, can, root).make(60);
    let dir = |name: &str| {
        let dir = root.join(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    };
    let (many, large, deep) = (dir("many"), dir("large"), dir("one/two/three/four/five"));
    for n in 0..700u64 {
        fs::write(many.join(format!("{n}")), noise(n, (n as usize * 37) % 5000)).unwrap();
    }
    for byte in (1..=255u8).filter(|b| *b != b'/' && *b != b'.') {
        fs::write(many.join(OsStr::from_bytes(&[byte])), [byte]).unwrap();
    }
    fs::write(deep.join("inner"), noise(1, 100_000)).unwrap();
    for (n, bytes) in [(1, 1 << 20), (2, (1 << 20) - 1), (3, (4 << 20) + 1), (4, 9 << 20)] {
        fs::write(large.join(format!("l{n}")), noise(n, bytes)).unwrap();
    }
    // The further names come before the first and after it, in other directories, in the order of any walk.
    for (first, second) in [
        ("large/l4", "a large link"),
        ("large/l4", "one/large link"),
        ("large/l4", "zz/large link"),
        ("large/l1", "large/l1 too"),
        ("many/5", "many/5 too"),
        ("many/699", "a small link"),
        ("many/6", "zz/small link"),
    ] {
        let second = root.join(second);
        fs::create_dir_all(second.parent().unwrap()).unwrap();
        fs::hard_link(root.join(first), second).unwrap();
    }
    let holes = fs::File::create(large.join("holes")).unwrap();
    // Several blocks of nothing before the one with something in it, and behind it.
    let (bytes, middle) = if all_cases() { (40 << 20, 21 << 20) } else { (20 << 20, 11 << 20) };
    holes.set_len(bytes).unwrap();
    holes.write_all_at(b"in the middle", middle).unwrap();
    symlink("l1", large.join("link")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("empty file"), "").unwrap();
}

/// Ready-made directories in which ACLs are handed down are a trap for a program that makes things with the wrong mode.
fn can_here(place: &Path) -> Can {
    can(place, TIMES, 1500)
}

/// What has which inode: a copy that replaces a file, even by the same, changes this.
fn inodes(root: &Path) -> Vec<(PathBuf, u64, (i64, i64))> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                todo.push(path);
            } else {
                found.push((path, meta.ino(), (meta.mtime(), meta.mtime_nsec())));
            }
        }
    }
    found.sort();
    found
}

fn summary(ran: &Ran) -> serde_json::Value {
    serde_json::from_str(ran.out.lines().last().unwrap_or_default())
        .unwrap_or_else(|e| panic!("{e}: {ran:?}"))
}

/// There, back, over an older copy, and once more for nothing: in an ordinary run in the direction of `turn`.
fn there_and_back(far: &Far, seed: u64, turn: usize, flags: &str) {
    let here = Tmp::new();
    let (src, there, back) = (here.p("src"), here.p("there"), here.p("back"));
    let can = can_here(here.path());
    nasty(&src, can, seed);
    let flags = format!("--archive -T {flags}");
    let go = |dir: Dir, more: &str, from: &Path, to: &Path| {
        let ran = dir.copy(far, &format!("{flags} {more}"), from, to).run();
        assert_eq!(ran.code, 0, "BCMR_SEED={seed}, {dir:?} {flags} {more}: {}", ran.err);
        ran
    };
    go(Dir::Put, "", &src, &there);
    judge(seed, "put", &src, &there);
    go(Dir::Get, "", &there, &back);
    judge(seed, "got", &src, &back);
    let (a, b) = (inodes(&there), inodes(&back));
    let all = ["-u --json", "-C --update=different --json"];
    // An ordinary run tries one of them, with the next seed the other.
    for more in if all_cases() { &all[..] } else { &all[seed as usize % 2..][..1] } {
        let is_tried = |dir: Dir| in_slice(turn + dir as usize, 2);
        for (dir, from, to) in [(Dir::Put, &src, &there), (Dir::Get, &there, &back)] {
            if is_tried(dir) {
                let ran = go(dir, more, from, to);
                assert_eq!(summary(&ran)["bytes"], 0, "{more}: {}", summary(&ran));
            }
        }
        let files = |now: Vec<(PathBuf, u64, (i64, i64))>, before: &[(PathBuf, u64, (i64, i64))]| {
            let regular = |p: &Path| fs::symlink_metadata(p).unwrap().is_file();
            let changed: Vec<_> =
                now.iter().filter(|i| regular(&i.0) && !before.contains(i)).cloned().collect();
            assert!(changed.is_empty(), "BCMR_SEED={seed}: {more} replaced {changed:?}");
        };
        files(inodes(&there), &a);
        files(inodes(&back), &b);
        for (_, made) in [(Dir::Put, &there), (Dir::Get, &back)].iter().filter(|(dir, _)| is_tried(*dir)) {
            judge(seed, more, &src, made);
        }
    }
}

#[test]
fn a_tree_of_everything_there_and_back() {
    let seed = std::env::var("BCMR_SEED")
        .map_or(u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()), |s| s.parse().unwrap());
    for (n, flags) in ["--parallel 1", "--parallel 3 --compress=zstd"].iter().enumerate() {
        there_and_back(&Far::pipe(), seed + n as u64, n, flags);
    }
}

/// The same random trees that local copies are tried with, and what becomes of them when they age.
#[test]
fn random_trees_there_and_back() {
    let chosen = std::env::var("BCMR_SEED").ok().map(|s| s.parse::<u64>().unwrap());
    let start = u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    let ways = ["", "--parallel 3", "--compress=none", "--compress=lz4 --parallel 2", "--fast", "--sync -V"];
    for (n, how) in ways.iter().enumerate() {
        let far = Far::pipe();
        let seed = chosen.unwrap_or(start + n as u64);
        let here = Tmp::new();
        let (src, there, back) = (here.p("src"), here.p("there"), here.p("back"));
        let mut maker = Maker::new(seed, can_here(here.path()), &src);
        maker.make(40);
        for round in ["new", "aged"] {
            let flags = format!("--archive -T {how}");
            let put = Dir::Put.copy(&far, &flags, &src, &there).run();
            assert_eq!(put.code, 0, "BCMR_SEED={seed}, {round}, put {how}: {}", put.err);
            judge(seed, &format!("{round}, put {how}"), &src, &there);
            let got = Dir::Get.copy(&far, &flags, &there, &back).run();
            assert_eq!(got.code, 0, "BCMR_SEED={seed}, {round}, get {how}: {}", got.err);
            judge(seed, &format!("{round}, got {how}"), &src, &back);
            // An ordinary run ages every third tree.
            if round == "aged" || !in_slice(n, 3) {
                break;
            }
            maker.age();
        }
    }
}

/// The same to and from a server that is confined, by itself and by the kernel: all that a copy needs is there still.
#[test]
fn random_trees_behind_both_walls() {
    let start = std::env::var("BCMR_SEED")
        .map_or(u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()), |s| s.parse().unwrap());
    for (n, how) in ["", "--parallel 3", "-C --sync -V"].iter().enumerate() {
        let here = Tmp::new();
        let (src, back, root) = (here.p("src"), here.p("back"), here.dir("root"));
        let far = Far::pipe().serving(&format!("--root {}", root.display()));
        let seed = start + n as u64;
        // Devices are refused there: hostile/walls.rs.
        let can = Can { devices: false, ..can_here(here.path()) };
        let mut maker = Maker::new(seed, can, &src);
        maker.make(40);
        // Names of one file in two directories: the one thing that Landlock has a right of its own for.
        for dir in ["one", "other"] {
            fs::create_dir_all(src.join(dir)).unwrap();
        }
        fs::write(src.join("one/a"), "a").unwrap();
        fs::hard_link(src.join("one/a"), src.join("other/b")).unwrap();
        let copy = || far.bcmr("copy").args(["--archive", "-T"]).args(how.split_whitespace());
        for round in ["new", "aged"] {
            let put = copy().args([src.as_os_str(), &far.at("there")]).run();
            assert_eq!(put.code, 0, "BCMR_SEED={seed}, {round}, put {how}: {}", put.err);
            judge(seed, &format!("{round}, put {how}"), &src, &root.join("there"));
            let got = copy().args([&far.at("there"), back.as_os_str()]).run();
            assert_eq!(got.code, 0, "BCMR_SEED={seed}, {round}, get {how}: {}", got.err);
            judge(seed, &format!("{round}, got {how}"), &src, &back);
            // What goes on leaves alone what has only new attributes.
            if round == "aged" || how.contains("-C") {
                break;
            }
            maker.age();
        }
        let left: Vec<_> = names(&root);
        assert_eq!(left, [OsStr::new("there")], "nothing else is left there");
    }
}

/// A list that comes back to a directory that may not be written to once it is done, and has a name that no file can have.
#[test]
fn a_list_comes_back() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    for (name, mode) in [("a", 0o555), ("b", 0o755), ("c", 0o500)] {
        for n in 0..50 {
            tmp.file(format!("s/{name}/{n}"), format!("{name}{n}"));
        }
        fs::set_permissions(tmp.p("s").join(name), std::os::unix::fs::PermissionsExt::from_mode(mode))
            .unwrap();
    }
    std::os::unix::fs::chown(tmp.p("s/c"), Some(NOBODY), None).unwrap();
    let mut list: Vec<u8> = (0..50).flat_map(|n| format!("a/{n}\nb/{n}\nc/{n}\n").into_bytes()).collect();
    tmp.file("list", &list);
    list.extend_from_slice(b"a/\0x\n");
    list.extend_from_slice(&[b'y'; 70_000]);
    tmp.file("more", &list);
    let ssh = tmp
        .file("ssh", "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift 2\nexec sh -c \"exec $1\"\n");
    fs::set_permissions(&ssh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (n, (list, code)) in [("list", 0), ("more", 8)].into_iter().enumerate() {
        let ways = ["local", "up", "down"].into_iter().flat_map(|way| [(way, ""), (way, "-p")]);
        for (m, (way, p)) in ways.enumerate() {
            // An ordinary run takes a quarter: each way once, and each list, with it and without it.
            if !in_slice(2 * n + m / 2 + m % 2, 4) {
                continue;
            }
            let out = tmp.p(format!("out {list} {way} {p}"));
            let place = |far: bool, path: PathBuf| {
                if far { format!("h:{}", path.display()) } else { path.display().to_string() }
            };
            let mut words = vec!["copy".to_owned(), format!("--files-from={}", tmp.p(list).display())];
            words.extend((!p.is_empty()).then(|| p.to_owned()));
            if way != "local" {
                words.extend([
                    format!("--ssh={}", ssh.display()),
                    format!("--remote-program={}", tmp.p("bcmr").display()),
                ]);
            }
            words.extend([place(way == "down", tmp.p("s")), place(way == "up", out.clone())]);
            let mut line = bcmr_as(NOBODY, &tmp, words);
            line.0.env("HOME", tmp.path());
            let ran = line.run();
            assert_eq!(ran.code, code, "{list} {way} {p}: {}", ran.err);
            assert_eq!(
                ran.err.lines().filter(|l| l.starts_with("bcmr: cannot ")).count(),
                if code == 0 { 0 } else { 2 }
            );
            let said =
                |root: PathBuf| tree(&root).into_iter().skip(1).map(|(path, e)| (path, (e.content, e.mode)));
            let want: BTreeMap<_, _> = said(tmp.p("s")).collect();
            assert!(want == said(out).collect(), "{list} {way} {p}");
        }
    }
}

/// Deeper than any path can be long.
#[test]
fn deeper_than_a_path_can_be() {
    let here = Tmp::new();
    let far = Far::pipe();
    let src = here.dir("src");
    let name = "d".repeat(200);
    let mut at = rustix::fs::open(&src, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    for level in 0..40 {
        rustix::fs::mkdirat(&at, name.as_str(), Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, name.as_str(), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())
            .unwrap();
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = rustix::fs::openat(&at, "f", flags, Mode::from_raw_mode(0o644)).unwrap();
        let bytes = if level == 39 { 2 << 20 } else { 10 };
        fs::File::from(file).write_all(&noise(level, bytes)).unwrap();
    }
    Dir::Put.copy(&far, "--archive -T", &src, &here.p("there")).run().ok();
    assert_same(&src, &here.p("there"), EVERYTHING);
    Dir::Get.copy(&far, "--archive -T --parallel 2", &here.p("there"), &here.p("back")).run().ok();
    assert_same(&src, &here.p("back"), EVERYTHING);
}

// ---- the same as at home ----

/// One world: `s` and what is beside it, `d` as it was before.
struct World {
    name: &'static str,
    /// `S` is the source directory, `D` the destination, `L` a list of names.
    args: &'static str,
    /// Of the file `s/f`: bytes. Or a hole.
    bytes: usize,
    there: &'static str,
}

const SMALL: usize = 70_000;
const BIG: usize = 5 << 20;
const HOLE: usize = 0;
const OLD: &str = "d d\nf d/f@500000000 OLD\nd d/sub\nf d/sub/g@2000000000 NEWER\nf d/other there";

const fn world(name: &'static str, args: &'static str, bytes: usize, there: &'static str) -> World {
    World { name, args, bytes, there }
}

const WORLDS: [World; 12] = [
    world("operand", "S/f D/f", SMALL, "d d"),
    world("operand, replacing", "S/f D", SMALL, OLD),
    world("big operand, replacing", "S/f D", BIG, OLD),
    world("new directory", "-rT S D", SMALL, ""),
    world("existing directory", "-rT S D", SMALL, "d d"),
    world("replacing", "-r S/. D", SMALL, OLD),
    world("into", "-r S D", SMALL, OLD),
    world("big in a new directory", "-rT S D", BIG, ""),
    world("big, replacing", "-rT S D", BIG, OLD),
    world("hole", "-rT S D", HOLE, OLD),
    world("list", "--files-from L S D", SMALL, OLD),
    world("list into a new directory", "--files-from L S D", BIG, ""),
];

impl World {
    fn make(&self, root: &Path) {
        crate::table::plant(
            root,
            "f s/skip.o@1000000001 OBJECT\nf s/f.log LOG\nf s/.gitignore *.log\nf s/.bcmrignore h.log\nl s/l -> f\nl s/up -> sub\nd s/sub\n\
             f s/sub/skip.o O\nf s/sub/g@1000000003 G\nf s/sub/h.log LOG\nh s/sub/second = s/skip.o\nd s/hollow",
        );
        let f = root.join("s/f");
        match self.bytes {
            HOLE => crate::table::sparse(&f),
            // Zeros in the middle, so that there is something to make holes of.
            bytes => {
                let mut content = noise(7, bytes);
                content[bytes / 4..bytes / 2].fill(0);
                fs::write(&f, content).unwrap();
            }
        }
        chmod(&f, 0o604);
        rustix::fs::setxattr(&f, "user.t", b"kept", rustix::fs::XattrFlags::empty()).ok();
        crate::table::plant(root, self.there);
        // One time for all of the source, so that worlds are alike; `f` is newer than any `d/f`, `g` older than `d/sub/g`.
        set_times(&root.join("s"), 1_000_000_000);
        for name in ["d/other", "d/sub", "d"] {
            if root.join(name).exists() {
                crate::table::set_mtime(&root.join(name), 700_000_000);
            }
        }
        fs::write(root.join("list"), "f\nskip.o\nl\nsub/g\nsub/second\nhollow\n").unwrap();
    }

    /// `None`: here, without any other machine.
    fn line(&self, root: &Path, flags: &str, way: Option<(Dir, &Far)>) -> Line {
        let (verb, flags) = flags.strip_prefix("check").map_or(("copy", flags), |flags| ("check", flags));
        let mut line = match way {
            Some((_, far)) => far.bcmr(verb),
            None => bcmr([verb]),
        };
        for word in self.args.split(' ').chain(flags.split_whitespace()) {
            let path = |below: &str| match below {
                "" => word.to_owned(),
                name => format!("{}{}", root.join(name).display(), &word[1..]),
            };
            let below = match word.as_bytes() {
                [b'S'] | [b'S', b'/', ..] => "s",
                [b'D'] | [b'D', b'/', ..] => "d",
                b"L" => "list",
                _ => "",
            };
            let far_side = match way {
                Some((Dir::Put, _)) => "d",
                Some((Dir::Get, _)) => "s",
                None => "-",
            };
            line = line.args(match way {
                Some((_, far)) if below == far_side => [far.at(path(below))],
                _ => [OsString::from(path(below))],
            });
        }
        line.cwd(root)
    }
}

/// The times of everything there, the innermost first; not by programs, as worlds are many.
fn set_times(path: &Path, seconds: i64) {
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            set_times(&entry.unwrap().path(), seconds);
        }
    }
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// A run as what can be compared: its exit, what it says (in any order, with the same names), and what is there then.
struct Outcome {
    code: i32,
    out: Vec<String>,
    err: Vec<String>,
    tree: Tree,
    root: PathBuf,
}

/// `below`: what of the root is looked at afterwards.
fn outcome(root: PathBuf, line: Line, stdin: &str, below: &str) -> Outcome {
    let ran = line.input(stdin).run();
    // An error from over there names one path: the protocol has no room for a second one.
    let one_path = |line: &str| match (line.split_once("' with '"), line.split_once("': ")) {
        (Some((one, _)), Some((_, why))) if line.starts_with("bcmr: cannot ") => format!("{one}': {why}"),
        _ => line.to_owned(),
    };
    let strip = |text: &str| {
        let text = text.replace(&format!("{}", root.display()), "").replace("there:", "");
        // The last line says how fast it went.
        let line = |line: &str| match line.rsplit_once(" in ") {
            Some((what, time)) if time.starts_with(|c: char| c.is_ascii_digit()) => what.to_owned(),
            _ => line.to_owned(),
        };
        // Which engine read it is told only where there was a choice: on one machine.
        // What limited it is each run's own, its proof names the other machine, and what a filter left out over there is
        // counted there.
        let own = ["bcmr: engine ", "bcmr: limited by: ", "bcmr: proof: ", "bcmr: root hash: "];
        let both = |line: &&str| {
            !own.iter().any(|of_one| line.starts_with(of_one))
                && !line.ends_with("left out by filters")
                && !line.contains("sealed, past ssh")
        };
        // A hint's command is what was typed, and that is another one.
        let hint = |line: &str| match line.split_once("run: ") {
            Some((words, _)) if line.starts_with("hint: ") => words.to_owned(),
            _ => line.to_owned(),
        };
        let lines = text.lines().filter(both).map(line).map(|l| hint(&one_path(&l)));
        let mut lines: Vec<String> = lines.collect();
        lines.sort();
        lines
    };
    let top = root.join(below);
    let tree = if top.exists() { tree(&top) } else { Tree::new() };
    Outcome { code: ran.code, out: strip(&ran.out), err: strip(&ran.err), tree, root }
}

/// What a run has in common with every other of the same command: no times, no paces, no directions.
fn events(lines: &[String]) -> Vec<String> {
    let mut told = Vec::new();
    for line in lines {
        let mut value: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let object = value.as_object_mut().unwrap();
        if ["progress", "start", "engine"].iter().any(|event| object["event"] == *event) {
            continue;
        }
        object.retain(|key, _| {
            let own = ["elapsed", "rate", "limited_by", "proof", "excluded", "root"];
            !key.contains("seconds") && !own.contains(&key.as_str()) && !key.contains("_ms")
        });
        // A hint's command is what was typed, and that is another one.
        if let Some((words, _)) = object.get("hint").and_then(|hint| hint.as_str()?.split_once("run: ")) {
            let words = words.to_owned();
            object.insert("hint".into(), words.into());
        }
        // Which name of a file the walk meets first is not promised.
        let of_links = |v: &serde_json::Value| {
            v.as_str().is_some_and(|d| d.ends_with("skip.o") || d.ends_with("sub/second"))
        };
        if object.get("dst").is_some_and(of_links) {
            object.insert("action".into(), "landed".into());
            object.remove("bytes");
        }
        told.push(value.to_string());
    }
    told.sort();
    told
}

fn flags_hold(rows: &[(&str, &str)]) {
    let failed = Mutex::new(Vec::new());
    let mut cells = Vec::new();
    for (row, (flags, stdin)) in rows.iter().enumerate() {
        for (column, world) in WORLDS.iter().enumerate() {
            if flags.starts_with("check") && world.args.contains("--files-from") {
                continue;
            }
            // An ordinary run takes an eleventh: of each row a world or two, and some rows of each world.
            // Comparing does not take all worlds, and so takes a seventh.
            if in_slice(row + 2 * column, if flags.starts_with("check") { 7 } else { 11 }) {
                // Of the few cells of a slice each eleventh goes over ssh, whatever world it is of.
                let turn = if all_cases() { row + column } else { cells.len() };
                cells.push((row + column, turn, *flags, *stdin, world));
            }
        }
    }
    let next = AtomicUsize::new(0);
    let ssh = Far::ssh("flags over ssh", Path::new(BCMR), &[]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let pipe = Far::pipe();
                while let Some((n, turn, flags, stdin, world)) =
                    cells.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    // Some of them over true ssh: pipes are faster, and that it is the same there is to be seen too.
                    let (far, is_ssh) = match &ssh {
                        Some(ssh) if turn % 11 == 5 => (ssh, true),
                        _ => (&pipe, false),
                    };
                    let tmp = Tmp::new();
                    let root = |name: &str| {
                        let root = tmp.dir(name);
                        world.make(&root);
                        root
                    };
                    // `--fast` alone has a meaning only where something travels.
                    let here = flags.replace("--fast", "");
                    let want = root("here");
                    let want = outcome(want.clone(), world.line(&want, &here, None), stdin, "d");
                    let all = all_cases();
                    for dir in BOTH.into_iter().filter(|d| all || (n + *d as usize).is_multiple_of(2)) {
                        let how = [
                            "--parallel=1 --compress=none",
                            "--parallel=3",
                            "--compress=zstd",
                            "--compress=lz4 --parallel=2",
                        ][n / 2 % 4];
                        let how = match (flags.starts_with("check"), is_ssh) {
                            (true, _) => "",
                            (false, false) => how,
                            (false, true) => {
                                ["--direct=direct", "", "--direct=direct --parallel=2"][turn / 11 % 3]
                            }
                        };
                        let flags = format!("{flags} {how}");
                        let got = root(&format!("{dir:?}"));
                        let got =
                            outcome(got.clone(), world.line(&got, &flags, Some((dir, far))), stdin, "d");
                        if let Some(why) = differ(&want, &got, &flags, dir) {
                            failed.lock().unwrap().push(format!("{dir:?} {} [{flags}]: {why}", world.name));
                        }
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort();
    let (some, all) = (failed.len().min(40), failed.len());
    assert!(failed.is_empty(), "{all} of {} cells fail:\n{}", cells.len() * 2, failed[..some].join("\n"));
}

fn differ(want: &Outcome, got: &Outcome, flags: &str, dir: Dir) -> Option<String> {
    let mut told = Vec::new();
    // What is left out over there is not named here: the protocol has no word for it.
    let heard = |lines: &[String]| -> Vec<String> {
        let untold = |l: &String| {
            dir == Dir::Get && (l.contains("exclude '") || l.contains("\"action\":\"excluded\""))
        };
        lines.iter().filter(|l| !untold(l)).cloned().collect()
    };
    let want_out = heard(&want.out);
    if want.code != got.code {
        told.push(format!("exit {} and not {}: {:?}", got.code, want.code, got.err));
    }
    if flags.contains("--json") {
        let (want, got) = (events(&want_out), events(&got.out));
        told.extend(lists(&want, &got));
    } else {
        told.extend(lists(&want_out, &got.out));
    }
    told.extend(lists(&want.err, &got.err));
    let keeps = ["-p", "--archive", "--preserve=timestamps,links", "--preserve=all"];
    let times = flags.split(' ').any(|f| keeps.contains(&f));
    // When the directory around it all was last written into is not promised.
    let (mut want_tree, mut got_tree) = (want.tree.clone(), got.tree.clone());
    for top in [&mut want_tree, &mut got_tree].into_iter().filter_map(|t| t.get_mut(&b""[..])) {
        top.mtime = if top.mtime.0 == 1_000_000_000 { top.mtime } else { (0, 0) };
    }
    let short = |line: String| line.split_once(": Entry").map_or(line.clone(), |(what, _)| what.to_owned());
    let exact = Exact { times, ..EVERYTHING };
    told.extend(differences(&want_tree, &got_tree, exact).into_iter().map(short));
    for (path, w) in &want.tree {
        let Some(g) = got.tree.get(path) else { continue };
        let name = String::from_utf8_lossy(path);
        if w.blocks.abs_diff(g.blocks) > 64 {
            told.push(format!("{name}: {} blocks and not {}", g.blocks, w.blocks));
        }
        // A file that was left alone has the time it had.
        if !times && (w.mtime.0 < 1_500_000_000) != (g.mtime.0 < 1_500_000_000) {
            told.push(format!("{name}: mtime {:?} and not {:?}", g.mtime, w.mtime));
        }
    }
    let _kept_for_looking = &got.root;
    (!told.is_empty()).then(|| told.join("\n    "))
}

fn lists(want: &[String], got: &[String]) -> Vec<String> {
    let less = |a: &[String], b: &[String], sign: char| -> Vec<String> {
        let mut b = b.to_vec();
        let mut told = Vec::new();
        for line in a {
            match b.iter().position(|l| l == line) {
                Some(at) => drop(b.swap_remove(at)),
                None => told.push(format!("{sign} {line}")),
            }
        }
        told
    };
    let mut told = less(want, got, '-');
    told.extend(less(got, want, '+'));
    told
}

/// Every flag that docs/remote.md says holds, over every way a file can take: what it comes to is what it comes to at
/// home, seen from outside.
#[test]
fn what_is_kept_and_how_it_lands_is_as_at_home() {
    flags_hold(&[
        ("", ""),
        ("-v", ""),
        ("--json", ""),
        ("-q", ""),
        ("-p", ""),
        ("--preserve=mode", ""),
        ("--preserve=timestamps,links", ""),
        ("--archive", ""),
        ("--archive --no-preserve=mode", ""),
        ("--archive --chown 7:8 --chmod D711,F640", ""),
        ("--usermap 0:5 --groupmap *:9 --chmod go-w", ""),
        ("--preserve=all --json", ""),
        ("-V", ""),
        ("-V=direct --sync", ""),
        ("--sync", ""),
        ("--fast", ""),
        ("-C", ""),
        ("-C --fast", ""),
        ("-s", ""),
        ("-a", ""),
        ("-C --checkpoint-size=4M --json", ""),
        ("--inplace", ""),
        ("--inplace -V", ""),
        ("--sparse=always", ""),
        ("--sparse=disable", ""),
        ("--sparse=always --inplace", ""),
        ("--reflink=disable", ""),
        ("-x", ""),
        ("-j1", ""),
        ("-f", ""),
    ]);
}

#[test]
fn what_takes_part_is_as_at_home() {
    flags_hold(&[
        ("-e *.o", ""),
        ("-e sub/ -v", ""),
        ("-e *.o --include /skip.o --json", ""),
        ("--exclude-regex skip", ""),
        ("--exclude-regex ^sub/ --exclude-regex f$", ""),
        ("--gitignore -v", ""),
        ("--bcmrignore --json", ""),
        ("--newer=@1000000002 -v", ""),
        ("--older 2001-09-09T12:00 --json", ""),
        ("-e f", ""),
        ("--max-size 5 -v", ""),
        ("--min-size=3 --json", ""),
        ("-L --max-size=9 --min-size 2", ""),
        ("-L", ""),
        ("-P", ""),
        ("-H", ""),
        ("-L --archive", ""),
        ("-u", ""),
        ("-u -v", ""),
        ("--update=none --json", ""),
        ("--update=different", ""),
        ("--update=all", ""),
        ("--no-clobber", ""),
        ("--no-clobber -v", ""),
        ("-i", "y\ny\ny\n"),
        ("-i", "n\n"),
        ("-i -v", "n\nn\nn\nn\nn\n"),
    ]);
}

/// What would be done is told in the same words, and nothing is done on either side.
#[test]
fn what_would_be_done_is_as_at_home() {
    flags_hold(&[
        ("-n", ""),
        ("-n -v", ""),
        ("-n --json", ""),
        ("-n --json --archive", ""),
        ("-n --json -u", ""),
        ("-n -v --no-clobber", ""),
        ("-n -i -v", "n\nn\nn\nn\nn\n"),
        ("-n -C --json", ""),
        ("-n -v -e *.o", ""),
        ("-n -v --max-size=5", ""),
        ("-n -v -L", ""),
    ]);
}

/// What a copy would change, seen from here.
#[test]
fn comparing_is_as_at_home() {
    flags_hold(&[
        ("check", ""),
        ("check --hash", ""),
        ("check --json", ""),
        ("check --json --hash --archive", ""),
        ("check --no-extra", ""),
        ("check -e *.o", ""),
        ("check --max-size=5 --no-extra", ""),
        ("check --gitignore --no-extra", ""),
        ("check -L -p --hash", ""),
    ]);
}

/// `du` counts what a copy with the same sizes would take, here and there; directories and links always.
#[test]
fn du_takes_sizes() {
    let far = Far::pipe();
    let tmp = Tmp::new();
    for (name, bytes) in [("s/a", 1), ("s/b", 10), ("s/sub/c", 100), ("s/sub/d", 900)] {
        tmp.file(name, noise(1, bytes));
    }
    std::os::unix::fs::symlink("a", tmp.p("s/link")).unwrap();
    for (flags, counted) in [
        ("", "5 files, 1012 B in 2 directories"),
        ("--max-size=100", "4 files, 112 B in 2 directories"),
        ("--min-size 10", "4 files, 1011 B in 2 directories"),
        ("--older 2002-01-01", "1 file, 1 B in 2 directories"),
        ("--newer 2002-01-01", "5 files, 1012 B in 2 directories"),
        ("--min-size 11 --max-size 99", "1 file, 1 B in 2 directories"),
    ] {
        let words: Vec<&str> = flags.split_whitespace().collect();
        let here = bcmr(["du"]).args(&words).args([tmp.p("s")]).run().ok().out;
        let there = far.bcmr("du").args(&words).args([far.at(tmp.p("s"))]).run().ok().out;
        assert!(here.contains(counted) && there.contains(counted), "{flags}: {here}{there}");
    }
}

/// Times that a number of nanoseconds has no room for are told apart as others are, here and over there.
#[test]
fn files_of_far_off_times() {
    let far = Far::pipe();
    let tmp = Tmp::new();
    let times = [
        ("1600", -11_676_096_000),
        ("2026", 1_770_000_000),
        ("2300", 10_413_792_000),
        ("2400", 13_569_465_600),
    ];
    for (name, tv_sec) in times {
        let file = tmp.file(format!("s/{name}"), name);
        let time = rustix::fs::Timespec { tv_sec, tv_nsec: 7 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, &file, &times, rustix::fs::AtFlags::empty()).unwrap();
        let got = rustix::fs::stat(&file).unwrap().st_mtime;
        needs!(got == tv_sec, "the file system has no such times");
    }
    let of_file = format!("--newer={}", tmp.p("s/2300").display());
    let rows = [
        ("--newer=2270-01-01", &["2300", "2400"][..]),
        ("--newer=2350-01-01T00:00+01:00", &["2400"]),
        (of_file.as_str(), &["2400"]),
        ("--older=1650-01-01", &["1600"]),
        ("--older=2350-01-01", &["1600", "2026", "2300"]),
        ("--older=9999-12-31", &["1600", "2026", "2300", "2400"]),
        ("--newer=9999-12-31", &[]),
        ("--newer=2000-01-01", &["2026", "2300", "2400"]),
    ];
    for (row, (flag, want)) in rows.into_iter().enumerate() {
        for way in ["here", "up", "down"] {
            let (src, dst) = (tmp.p("s"), tmp.p(format!("{way}{row}")));
            let line = match way {
                "here" => bcmr(["copy", "-rT", flag]).args([&src, &dst]),
                "up" => far.bcmr("copy").args(["-rT", flag]).args([src.into_os_string(), far.at(&dst)]),
                _ => far.bcmr("copy").args(["-rT", flag]).args([far.at(&src), dst.clone().into_os_string()]),
            };
            line.run().ok();
            assert_eq!(names(&dst), want, "{way} {flag}");
        }
    }
}

/// A directory is made where it is named, with those above it where that is asked for, and never over anything.
#[test]
fn directories_are_made_here_and_there() {
    let far = Far::pipe();
    let tmp = Tmp::new();
    tmp.file("file", "x");
    for (n, way) in ["here", "there"].into_iter().enumerate() {
        let mkdir = |flags: &str, path: &str| {
            let words = flags.split_whitespace().collect::<Vec<_>>();
            let path = tmp.p(path.replace('N', &n.to_string()));
            match way {
                "here" => bcmr(["mkdir"]).args(words).args([path]).run(),
                _ => far.bcmr("mkdir").args(words).args([far.at(path)]).run(),
            }
        };
        mkdir("", "N").ok();
        mkdir("", "N").code(1);
        mkdir("-p", "N").ok();
        mkdir("", "N/a/b").code(1);
        assert!(!tmp.p(format!("{n}/a")).exists(), "{way}");
        mkdir("-p", "N/a/b/c").ok();
        assert!(tmp.p(format!("{n}/a/b/c")).is_dir(), "{way}");
        mkdir("-p", "file").code(1);
        mkdir("-p", "file/in").code(1);
    }
    let made = far.bcmr("mkdir").args(["--json"]).args([far.at("new"), far.at("new")]).run().code(1).out;
    assert!(made.contains("made-dir") && made.contains("in-the-way"), "{made}");
    assert!(far.home().join("new").is_dir());
}

/// What is named goes, as it would at home; what is in the way of that is told with its machine.
#[test]
fn names_on_another_machine_are_removed() {
    let far = Far::pipe();
    let tmp = Tmp::new();
    for name in ["d/a", "d/sub/b", "file", "kept", "e/x"] {
        tmp.file(name, name);
    }
    std::os::unix::fs::symlink("kept", tmp.p("link")).unwrap();
    let remove = |far: &Far, flags: &str, names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| far.at(tmp.p(name))).collect();
        far.bcmr("remove").args(flags.split_whitespace()).args(names).run()
    };
    remove(&far, "", &["d"]).code(1).says("-r");
    remove(&far, "-d", &["d"]).code(1);
    assert!(tmp.p("d/sub/b").exists());
    let told = remove(&far, "-rv", &["d", "link"]).ok();
    assert!(told.out.contains("removed") && !tmp.p("d").exists() && tmp.p("kept").exists(), "{told:?}");
    remove(&far, "", &["absent", "file"]).code(1).says("absent");
    assert!(!tmp.p("file").exists());
    remove(&far, "-f", &["absent"]).ok();
    let summary = remove(&far, "-r --json", &["e"]).ok().out;
    assert!(summary.contains("\"files\":1") && summary.contains("\"dirs\":1"), "{summary}");
    if is_root()
        && let Ok(_mount) = Mount::tmpfs("size=1m", &tmp.p("holds/mounted"))
    {
        tmp.file("holds/mounted/x", "x");
        remove(&far, "-r", &["holds"]).code(8);
        assert!(tmp.p("holds/mounted/x").exists(), "no other file system is entered");
    }
    for flags in ["-i", "-n"] {
        remove(&far, flags, &["kept"]).code(2).says("on this machine");
    }
    far.bcmr("remove").args([far.at(tmp.p("kept")).as_os_str(), tmp.p("kept").as_os_str()]).run().code(2);
    remove(&far.serving("--read-only"), "", &["kept"]).code(8);
    let far = Far::pipe().serving(&format!("--root {}", tmp.p("").display()));
    far.bcmr("remove").args([far.at("/kept")]).run().code(8).says("--root");
    assert!(tmp.p("kept").exists());
}

/// `--remote-sudo` runs the program there by sudo, which is asked for no password; one that needs one is told of.
#[test]
fn another_user_there() {
    let tmp = Tmp::new();
    tmp.file("s", "content");
    let sudo = tmp.file("bin/sudo", "#!/bin/sh\nprintf '%s\\n' \"$*\" >> \"$SUDO_LOG\"\n[ -e \"$SUDO_LOG.ask\" ] && { echo 'sudo: a password is required' >&2; exit 1; }\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n");
    chmod(&sudo, 0o755);
    let path = format!("{}:{}", tmp.p("bin").display(), std::env::var("PATH").unwrap());
    let far = Far::pipe().with("PATH", path).with("SUDO_LOG", tmp.p("log"));
    let copy = |flag: &str, to: &str| {
        far.bcmr("copy").args([flag]).args([tmp.p("s").as_os_str(), &far.at(tmp.p(to))]).run()
    };
    copy("--remote-sudo", "d").ok();
    copy("--remote-sudo=backup", "e").ok();
    assert_eq!(fs::read_to_string(tmp.p("e")).unwrap(), "content");
    let log = fs::read_to_string(tmp.p("log")).unwrap();
    let program = format!("-- {} serve", BCMR);
    assert_eq!(log, format!("-n -H -u root {program}\n-n -H -u backup {program}\n"));
    copy("--remote-sudo=a b", "f").code(8);
    tmp.file("log.ask", "");
    let asked = copy("--remote-sudo", "f");
    assert!(
        asked.code != 0 && asked.err.contains("a password is required") && !tmp.p("f").exists(),
        "{asked:?}"
    );
}

/// Where sudo there wants a password one is asked for, by ssh's rules; sudo reads it from its standard input, and nothing else of
/// what is said. A wrong one ends it before anything is begun.
#[test]
fn a_password_for_another_user_there() {
    let tmp = Tmp::new();
    tmp.file("s", "content");
    // Reads as sudo does: one line, byte by byte, and up to three times. What it sees of itself goes to the log.
    let sudo = "#!/bin/sh
printf '%s\\n' \"$*\" >> \"$SUDO_LOG\"
tr '\\0' '\\n' < /proc/$$/environ >> \"$SUDO_LOG\"
case \" $* \" in *' -n '*) echo 'sudo: a password is required' >&2; exit 1;; esac
for attempt in 1 2 3; do
  IFS= read -r line || { echo 'sudo: no password was provided' >&2; exit 1; }
  [ \"$line\" = 'the word' ] && break
  echo 'Sorry, try again.' >&2
done
[ \"$line\" = 'the word' ] || exit 1
while [ \"$1\" != -- ]; do shift; done
shift
exec \"$@\"
";
    chmod(&tmp.file("bin/sudo", sudo), 0o755);
    let asks = |name: &str, body: &str| {
        let program = tmp.file(name, format!("#!/bin/sh\necho asked \"$1\" >> \"$ASKED\"\n{body}\n"));
        chmod(&program, 0o755);
        program
    };
    let (right, wrong) = (asks("right", "echo 'the word'"), asks("wrong", "echo 'another word'"));
    let none = asks("none", "exit 1");
    let path = format!("{}:{}", tmp.p("bin").display(), std::env::var("PATH").unwrap());
    let run = |askpass: &Path, verb: &str, flags: &[&str], ends: [OsString; 2]| {
        let far =
            Far::pipe().with("PATH", &path).with("SUDO_LOG", tmp.p("log")).with("ASKED", tmp.p("asked"));
        let far = far.with("SSH_ASKPASS", askpass).with("SSH_ASKPASS_REQUIRE", "force");
        let ends = ends.map(|end| if end == "far" { far.at(tmp.p("d")) } else { end });
        far.bcmr(verb).args(["--remote-sudo"]).args(flags).args(ends).run()
    };
    let up = || [tmp.p("s").into_os_string(), "far".into()];
    run(&right, "copy", &[], up()).ok();
    assert_eq!(fs::read_to_string(tmp.p("d")).unwrap(), "content");
    let asked = || fs::read_to_string(tmp.p("asked")).unwrap_or_default().lines().count();
    assert_eq!(asked(), 1, "one question");
    // Further connections, and the other direction.
    run(&right, "copy", &["--parallel=3"], ["far".into(), tmp.p("back").into()]).ok();
    assert_eq!(fs::read_to_string(tmp.p("back")).unwrap(), "content");
    assert_eq!(asked(), 2);
    fs::remove_file(tmp.p("d")).unwrap();
    for (askpass, says) in [(&wrong, "Sorry"), (&none, "a password is required")] {
        let ran = run(askpass, "copy", &[], up());
        assert!(ran.code != 0 && ran.err.contains(says), "{ran:?}");
        assert!(!tmp.p("d").exists());
    }
    let log = fs::read_to_string(tmp.p("log")).unwrap();
    assert!(log.contains("-k -S -p") && !log.contains("the word"), "{log}");
}

/// The list of hashes is the same wherever the destination is, and there is one only of what is complete.
/// A copy that is not done stumbles where one that is would, and it does not report something as missing that was
/// only not looked at.
#[test]
fn what_a_survey_does_not_see_it_says_nothing_about() {
    let far = Far::pipe();
    let tmp = Tmp::new();
    tmp.file("s/a", "A");
    tmp.file("file", "in the way");
    for dir in BOTH {
        for flags in ["-n -rT", "-n -r -T --json"] {
            let ran = dir.copy(&far, flags, &tmp.p("s"), &tmp.p("file")).run();
            assert_ne!(ran.code, 0, "{dir:?} {flags}: {ran:?}");
        }
    }
    needs!(is_root(), "mounting needs root");
    tmp.dir("s/mounted");
    tmp.file("d/a", "A");
    tmp.file("d/mounted/below", "not compared");
    let mount = match Mount::tmpfs("size=1m", &tmp.p("s/mounted")) {
        Ok(mount) => mount,
        Err(why) => return skipped("tmpfs", &why),
    };
    tmp.file("s/mounted/other", "not looked at");
    let (s, d) = (tmp.p("s"), tmp.p("d"));
    let here = bcmr(["check", "-x", "--hash", "-T"]).args([&s, &d]).run();
    assert!(!here.out.contains("below") && !here.out.contains("other"), "{here:?}");
    for dir in BOTH {
        let line = far.bcmr("check").args(["-x", "--hash", "-T"]);
        let there = match dir {
            Dir::Put => line.args([s.as_os_str(), &far.at(&d)]),
            Dir::Get => line.args([far.at(&s).as_os_str(), d.as_os_str()]),
        };
        let there = there.run();
        assert_eq!((there.code, &there.out), (here.code, &here.out), "{dir:?}");
    }
    drop(mount);
}

/// A list that is longer than any message, and leads through the same directories again and again.
#[test]
fn a_list_in_parts() {
    let tmp = Tmp::new();
    let far = Far::pipe();
    let count = if all_cases() { 3000 } else { 2300 };
    let long = "./".repeat(1900);
    for n in 0..7 {
        tmp.dir(format!("s/{n}"));
    }
    for n in 0..count {
        fs::write(tmp.p(format!("s/{}/f{n}", n % 7)), n.to_string()).unwrap();
    }
    tmp.file("s/not on it", "x");
    let said = |root: PathBuf| tree(&root).into_iter().map(|(path, e)| (path, e.content));
    let mut want: BTreeMap<_, _> = said(tmp.p("s")).collect();
    assert!(want.remove(&b"not on it"[..]).is_some());
    for dir in BOTH {
        // A list that stays here is in no message: in an ordinary run a tenth of its names are long.
        let step = if dir == Dir::Get { 1 } else { 10 };
        let mut list = Vec::new();
        for n in 0..count {
            // The same name, longer.
            let before = if in_slice(n, step) { long.as_str() } else { "" };
            list.extend_from_slice(format!("{before}{}/f{n}\n", n % 7).as_bytes());
        }
        // A message has less than 8 MiB of names.
        assert!(step > 1 || list.len() > if all_cases() { 10 << 20 } else { 8 << 20 });
        fs::write(tmp.p("list"), &list).unwrap();
        let list = format!("--files-from {}", tmp.p("list").display());
        let d = tmp.p(format!("{dir:?}"));
        dir.copy(&far, &list, &tmp.p("s"), &d).run().ok();
        assert!(want == said(d).collect(), "{dir:?}");
    }
}

#[test]
fn a_manifest_is_as_at_home() {
    let tmp = Tmp::new();
    let far = Far::pipe();
    crate::table::plant(
        tmp.path(),
        "f s/a A\nf s/sub/b B\nf s/sub/with\\backslash C\nz s/large 3000000\nz s/larger 8500000\n\
         h s/sub/second = s/a\nd s/empty\nl s/l -> a",
    );
    fs::write(tmp.p("list"), "a\nsub/b\nlarger\n").unwrap();
    let list = format!("--files-from {}", tmp.p("list").display());
    let rows = [
        ("-rT", "s", "d"),
        ("-rT --archive --parallel=3", "s", "d"),
        ("-r", "s", "."),
        ("-r", "s/.", "."),
        ("", "s/a", "x"),
        ("", "s/larger", "."),
        (&list, "s", "d"),
    ];
    for (n, (flags, src, dst)) in rows.iter().enumerate() {
        // An ordinary run tries each one way.
        let is_tried = |dir: Dir| in_slice(n + dir as usize, 2);
        let run = |way: Option<Dir>, again: &str| {
            let root = tmp.p(format!("{n}{way:?}"));
            fs::create_dir_all(&root).unwrap();
            let manifest = root.join("hashes");
            let (src, dst) = (tmp.p(src), root.join(dst));
            let flags = format!("{flags} {again} --manifest {}", manifest.display());
            let line = match way {
                Some(dir) => dir.copy(&far, &flags, &src, &dst),
                None => {
                    let flags = flags.replace("--parallel=3", "");
                    bcmr(["copy"]).args(flags.split_whitespace()).args([&src, &dst])
                }
            };
            line.run().ok();
            let text = fs::read_to_string(&manifest).unwrap();
            fs::remove_file(&manifest).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let want = run(None, "");
        assert!(!want.is_empty());
        for dir in BOTH.into_iter().filter(|dir| is_tried(*dir)) {
            assert_eq!(run(Some(dir), ""), want, "{dir:?} {flags} {src} {dst}");
        }
        // What is there already is spoken of too; in an ordinary run by a tree and by a list.
        if is_tried(Dir::Put) && in_slice(n, 6) {
            let again = run(None, "--update=different -p");
            assert_eq!(run(Some(Dir::Put), "--update=different -p"), again, "{flags} {src} {dst}");
        }
    }
    // Something is missing: then there is none, and none is left over.
    for dir in BOTH {
        let manifest = tmp.p(format!("m/{dir:?}"));
        fs::create_dir_all(tmp.p("m")).unwrap();
        fs::create_dir_all(tmp.p(format!("blocked{dir:?}/a"))).unwrap();
        let flags = format!("-rT --manifest {}", manifest.display());
        let ran = dir.copy(&far, &flags, &tmp.p("s"), &tmp.p(format!("blocked{dir:?}"))).run().code(1);
        assert!(ran.err.contains("only a complete copy gets one"), "{}", ran.err);
    }
    assert!(names(&tmp.p("m")).is_empty());
}

// ---- where it goes ----

/// cp's rules for destinations, and names that are in the way: the same as at home, wherever the two sides are.
#[test]
fn destinations_are_as_at_home() {
    const TREE: &str = "f a/f A\nf a/sub/deep/er/x X\nf a/sub/y Y\nl a/l -> nowhere\nf b B\nf c C\nl link -> a\nl flink -> b\n\
        d dir\nf dir/b OLD\nf file FILE\nd blocked\nf blocked/sub IN THE WAY\nf turned/l/z Z\nl dlink -> dir\nl dangling -> gone";
    // `<` and `>` stand before what is there when it is a source or a destination.
    let rows = [
        "<b >new",
        "<b >dir",
        "<b >dir/",
        "<b >new/",
        "<b >file",
        "<b >dlink/",
        "<b >dlink --follow-destination",
        "<b >dangling --follow-destination",
        "-T <b >dir",
        "-T <b >file",
        "-T <b >dlink --follow-destination",
        "-t >dir <b <c",
        "-t >new <b <c",
        "-t >file <b",
        "<b <c >dir",
        "<b <c >new",
        "<b <c >file",
        "<a >new",
        "-r <a >new",
        "-r <a/ >new",
        "-r <a/. >new",
        "-r <a >dir",
        "-r <a/ >dir",
        "-r <a/. >dir",
        "-r <a >file",
        "-rT <a >dir",
        "-rT <a >blocked",
        "-rT <a >blocked --parallel=3",
        "-rT <a >turned",
        "-rT --preserve=mode,links <a >blocked",
        "-r <a <b <c >dir",
        "-r <link >new",
        "-r <link/ >new",
        "-rL <link >new",
        "-rH <link >new",
        "<flink >new",
        "-r <flink >new",
        "<missing >new",
        "<b <missing <c >dir",
        "<b <b >dir",
        "-r <a >missing/new",
        "<b >missing/new",
        "<b >b",
        "-r <a >a/sub/new",
        "-r <a >a",
        "<b >a/f --no-clobber",
        "-f <b >dir/b",
        "<b >dir/b --inplace",
    ];
    let far = Far::pipe();
    let failed: Vec<String> = rows
        .iter()
        .enumerate()
        .flat_map(|(n, row)| {
            let tmp = Tmp::new();
            let run = |name: &str, way: Option<Dir>| {
                let root = tmp.dir(name);
                crate::table::plant(&root, TREE);
                let mut line = if way.is_some() { far.bcmr("copy") } else { bcmr(["copy"]) };
                for word in row.split(' ') {
                    let there = match (word.as_bytes()[0], way) {
                        (b'<', Some(Dir::Get)) | (b'>', Some(Dir::Put)) => true,
                        (b'<' | b'>', _) => false,
                        _ => {
                            // How it travels has a meaning only where it does.
                            if way.is_some() || !word.starts_with("--parallel") {
                                line = line.args([word]);
                            }
                            continue;
                        }
                    };
                    let path = format!("{}/{}", root.display(), &word[1..]);
                    line = line.args([if there { far.at(path) } else { path.into() }]);
                }
                outcome(root.clone(), line.cwd(&root), "", "")
            };
            let want = run("here", None);
            // An ordinary run tries each one way.
            let tried = BOTH.into_iter().filter(|dir| in_slice(n + *dir as usize, 2));
            let judged = tried.map(|dir| {
                differ(&want, &run(&format!("{dir:?}"), Some(dir)), row, dir)
                    .map(|why| format!("{dir:?} [{row}]: {why}"))
            });
            judged.collect::<Vec<_>>()
        })
        .flatten()
        .collect();
    assert!(failed.is_empty(), "{} fail:\n{}", failed.len(), failed.join("\n"));
}

/// Sources of one name: directories are merged one after the other, as at home, however much of the first is under way.
#[test]
fn sources_of_one_name() {
    let tmp = Tmp::new();
    let far = Far::pipe();
    crate::table::plant(
        tmp.path(),
        "f one/a/x 1\nf one/a/s/x 1\nz one/a/large 8000000\nf two/a/x 2\nf two/a/s/y 2\nz two/a/large 5000000\n\
         f three/a 3\nd three/b\nf four/b 4\nd four/a\nf five/h 5\nh six/h = five/h\nl five/l -> ../two/a\n\
         l six/l -> ../two/a\nf seven/h 5",
    );
    for n in 0..300 {
        fs::write(tmp.p(format!("one/a/s/{n}")), noise(n, 3000)).unwrap();
        fs::write(tmp.p(format!("two/a/s/{n}")), noise(n + 1, if n % 2 == 0 { 3000 } else { 10 })).unwrap();
    }
    let rows = [
        (&["one/a", "two/a"][..], "-r"),
        (&["one/a", "two/a", "one/a"], "-r --archive"),
        (&["one/a", "two/a"], "-r --sync"),
        (&["one/a", "two/a"], "-rC --checkpoint-size=4M"),
        (&["one/a", "two/a"], "-rn -v"),
        (&["one/a", "three/a"], "-r"),
        (&["three/a", "one/a"], "-r"),
        (&["three/b", "four/b", "four/a", "two/a"], "-r -u"),
        // The very same source under another name is taken once, be it a file or a directory.
        (&["five/h", "six/h", "five/h"], "-r"),
        (&["five/h", "seven/h"], "-r"),
        (&["five/l", "six/l"], "-rH"),
        // What is no directory, or is one, where the other is meant.
        (&["two/a", "three/a"], "-H"),
        (&["three/a"], "-T"),
        (&["two/a"], "-rT"),
        (&["three/a", "four/b"], "-T"),
    ];
    for (n, (sources, flags)) in rows.iter().enumerate() {
        let run = |name: &str, way: Option<Dir>, flags: &str| {
            let root = tmp.dir(format!("{n}{name}"));
            let mut line = if way.is_some() { far.bcmr("copy") } else { bcmr(["copy"]) };
            line = line.args(flags.split(' '));
            for source in *sources {
                let source = tmp.p(source);
                line = line.args([if way == Some(Dir::Get) { far.at(source) } else { source.into() }]);
            }
            line = line.args([if way == Some(Dir::Put) { far.at(&root) } else { root.clone().into() }]);
            outcome(root, line, "", "")
        };
        let mut want = run("here", None, flags);
        for dir in BOTH {
            for streams in [1, 3] {
                // An ordinary run takes one of these for each row.
                if !in_slice(n + 2 * dir as usize + streams / 2, 4) {
                    continue;
                }
                let flags = format!("{flags} --parallel={streams}");
                let got = run(&format!("{dir:?}{streams}"), Some(dir), &flags);
                let (mut got, mut want_err) = (got, want.err.clone());
                for line in got.err.iter_mut().chain(&mut want_err) {
                    *line = line.replace(&format!("{}", tmp.path().display()), "");
                }
                assert_eq!((got.code, &got.err), (want.code, &want_err), "{dir:?} {sources:?} {flags}");
                let exact = Exact { times: flags.contains("--archive"), ..CONTENT };
                // With a session, what was refused leaves the tree's mark, whose name is the directory's own. When the
                // directory around it all was last written into is not promised.
                let marked = |path: &[u8]| flags.contains("-rC") && got.code != 0 && path.ends_with(b".tree");
                for tree in [&mut want.tree, &mut got.tree] {
                    tree.retain(|path, _| !path.is_empty() && !marked(path));
                }
                assert_eq!(differences(&want.tree, &got.tree, exact), Vec::<String>::new(), "{flags}");
                let left: Vec<OsString> =
                    litter(&got.root).into_iter().filter(|path| !marked(path.as_bytes())).collect();
                assert!(left.is_empty(), "{flags}: {left:?}");
            }
        }
    }
}

// ---- large files, and sources that do not hold still ----

const MIB: usize = 1 << 20;

#[test]
fn files_of_every_size() {
    let far = Far::pipe();
    let sizes = [0, 1, MIB - 1, MIB, MIB + 1, 4 * MIB, 4 * MIB + 1, 9 * MIB];
    for (n, flags) in
        ["--parallel=1", "--parallel=3 --compress=none", "--fast --parallel=3"].iter().enumerate()
    {
        let tmp = Tmp::new();
        let src = tmp.dir("src");
        for size in sizes {
            fs::write(src.join(format!("{size}")), noise(size as u64 + n as u64, size)).unwrap();
        }
        // An ordinary run tries each one way.
        for dir in BOTH.into_iter().filter(|dir| in_slice(n + *dir as usize, 2)) {
            let dst = tmp.p(format!("{dir:?}"));
            dir.copy(&far, &format!("-rT {flags}"), &src, &dst).run().ok();
            assert_same(&src, &dst, CONTENT);
            // Each on its own, over what is there; in an ordinary run every second one.
            for (_, size) in sizes.into_iter().enumerate().filter(|(m, _)| in_slice(n + m, 2)) {
                let name = format!("{size}");
                fs::write(dst.join(&name), "other").unwrap();
                dir.copy(&far, &format!("-T {flags}"), &src.join(&name), &dst.join(&name)).run().ok();
            }
            assert_same(&src, &dst, CONTENT);
            assert_no_litter(&dst);
        }
    }
}

/// 300 MiB, or 100, with something at the beginning, in the middle and at the end: neither filled nor sent.
#[test]
fn a_large_file_that_is_all_holes() {
    let tmp = Tmp::new();
    let src = tmp.p("src");
    let file = fs::File::create(&src).unwrap();
    let bytes = if all_cases() { 300 << 20 } else { 100 << 20 };
    file.set_len(bytes).unwrap();
    for at in [0, bytes / 2, bytes - 5] {
        file.write_all_at(b"data!", at).unwrap();
    }
    let far = Far::relay().with("RELAY_LOG", tmp.p("log"));
    for (dir, flags) in [(Dir::Put, "--parallel=3"), (Dir::Get, "--parallel=1 -C")] {
        let dst = tmp.p(format!("{dir:?}"));
        dir.copy(&far, flags, &src, &dst).run().ok();
        let (want, got) = (fs::metadata(&src).unwrap(), fs::metadata(&dst).unwrap());
        assert_eq!(got.len(), want.len());
        assert!(
            got.blocks() <= want.blocks() + 64,
            "{dir:?}: {} blocks and not {}",
            got.blocks(),
            want.blocks()
        );
        let same = std::process::Command::new("cmp").args([&src, &dst]).status().unwrap();
        assert!(same.success());
    }
    let passed: u64 = passed(&tmp.p("log")).iter().map(|(up, down)| up + down).sum();
    assert!(passed < 4 << 20, "{passed} bytes were sent for three words");
}

/// Every page of the file says which version it is of; a writer goes over it again and again from the beginning to the
/// end, so what ever was there is one version up to somewhere, and the one before it from there on. A copy that ends
/// well is such a file.
fn what_was_there(file: &Path) -> Result<(), String> {
    let bytes = fs::read(file).unwrap();
    let versions: Vec<u32> =
        bytes.chunks(4096).map(|p| u32::from_le_bytes(p[..4].try_into().unwrap())).collect();
    let steps = versions.windows(2).filter(|w| w[0] != w[1]).count();
    let (first, last) = (versions[0], *versions.last().unwrap());
    if steps == 0 || (steps == 1 && first == last + 1) {
        return Ok(());
    }
    Err(format!("{steps} borders between versions {first} and {last}"))
}

#[test]
fn a_source_that_is_written_into_never_becomes_a_mixture() {
    for dir in BOTH {
        let rows = [
            (6 * MIB, "--parallel=1"),
            (6 * MIB, "--parallel=3 -V"),
            (600 << 10, "--compress=none"),
            (9 * MIB, "-C --checkpoint-size=4M"),
        ];
        for (n, (bytes, flags)) in rows.into_iter().enumerate() {
            // An ordinary run tries each one way.
            if !in_slice(n + dir as usize, 2) {
                continue;
            }
            let tmp = Tmp::new();
            let far = Far::pipe();
            let src = tmp.file("src/f", vec![0; bytes]);
            let (file, pages) = (fs::OpenOptions::new().write(true).open(&src).unwrap(), bytes / 4096);
            let mut at = (0, 1u32);
            let writer = Attacker::new(move || {
                let (page, version) = at;
                file.write_all_at(&version.to_le_bytes(), page as u64 * 4096).unwrap();
                at = if page + 1 == pages { (0, version + 1) } else { (page + 1, version) };
                // A whole version takes about as long as a copy.
                if page % 64 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            for round in 0..4 {
                let dst = tmp.p(format!("d{round}"));
                let ran = dir.copy(&far, &format!("-rT {flags}"), &tmp.p("src"), &dst).run().one_of(&[0, 5]);
                match (ran.code, dst.join("f").exists()) {
                    (0, true) => {
                        what_was_there(&dst.join("f")).unwrap_or_else(|e| panic!("{dir:?} {flags}: {e}"))
                    }
                    (0, false) => panic!("{dir:?} {flags}: nothing was copied: {}", ran.err),
                    (_, there) => assert!(!there, "{dir:?} {flags}: published, though {}", ran.err),
                }
            }
            drop(writer);
            // A source that does not change is copied.
            dir.copy(&far, &format!("-rT {flags}"), &tmp.p("src"), &tmp.p("d9")).run().ok();
            assert_same(&tmp.p("src"), &tmp.p("d9"), CONTENT);
        }
    }
}

#[test]
fn a_source_that_gets_shorter_or_goes_away() {
    for dir in BOTH {
        let changes = [("shorter", &[5][..]), ("replaced", &[0, 5]), ("gone", &[0, 1, 5])];
        for (n, (change, codes)) in changes.into_iter().enumerate() {
            // An ordinary run tries each one way.
            if !in_slice(n + dir as usize, 2) {
                continue;
            }
            let tmp = Tmp::new();
            // 8 MiB at 4 MiB a second: it is under way for long enough to be met there.
            let far = Far::relay().with("RELAY_RATE", "4000000").with("RELAY_LOG", tmp.p("log"));
            let src = tmp.file("src", noise(1, 8 * MIB));
            let running = dir.copy(&far, "--compress=none", &src, &tmp.p("dst")).start();
            assert!(
                within(20, || litter(tmp.path())
                    .iter()
                    .any(|l| tmp.p(l).metadata().is_ok_and(|m| m.blocks() > 1024))),
                "{dir:?}: it never began"
            );
            match change {
                "shorter" => {
                    fs::OpenOptions::new().write(true).open(&src).unwrap().set_len(3 * MIB as u64).unwrap()
                }
                "replaced" => fs::rename(tmp.file("other", noise(2, 8 * MIB)), &src).unwrap(),
                _ => fs::remove_file(&src).unwrap(),
            }
            let ran = running.wait().one_of(codes);
            if ran.code == 0 {
                assert!(fs::read(tmp.p("dst")).unwrap() == noise(1, 8 * MIB), "{dir:?} {change}");
            } else {
                assert!(!tmp.p("dst").exists(), "{dir:?} {change}: {}", ran.err);
            }
            assert_no_litter(tmp.path());
        }
    }
}

#[test]
fn what_cannot_be_read_or_written_is_named_and_the_rest_goes_on() {
    needs!(is_root() && has_tool("setpriv"), "becoming somebody else needs root and setpriv");
    let tmp = Tmp::for_others();
    let nobody = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
    let far = Far::pipe();
    chmod(&far.home(), 0o777);
    let far = far.with("FAR_RUN", &nobody).program(&tmp.p("bcmr"));
    crate::table::plant(
        tmp.path(),
        "f s/a A\nf s/secret S\nf s/closed/c C\nf s/z Z\nz s/large 2000000\nf s/open/o O",
    );
    chmod(&tmp.p("s/secret"), 0o600);
    chmod(&tmp.p("s/large"), 0o600);
    chmod(&tmp.p("s/closed"), 0o700);
    // They cannot read it.
    let got = Dir::Get.copy(&far, "-rT --parallel=2", &tmp.p("s"), &tmp.p("got")).run().code(1);
    for name in ["secret", "large", "closed"] {
        assert!(got.err.contains(&format!("s/{name}': Permission denied")), "{name}: {}", got.err);
    }
    assert_eq!(names(&tmp.p("got")), ["a", "open", "z"]);
    // They cannot write it.
    crate::table::plant(tmp.path(), "d d/closed\nf d/open/o OLD");
    chmod(&tmp.p("d"), 0o777);
    chmod(&tmp.p("d/open"), 0o777);
    chmod(&tmp.p("d/closed"), 0o755);
    let put = Dir::Put.copy(&far, "-rT --parallel=2", &tmp.p("s"), &tmp.p("d")).run().code(1);
    assert!(put.err.contains("d/closed/c': Permission denied"), "{}", put.err);
    assert_eq!(names(&tmp.p("d")), ["a", "closed", "large", "open", "secret", "z"]);
    assert!(names(&tmp.p("d/closed")).is_empty());
    assert_eq!(fs::read(tmp.p("d/open/o")).unwrap(), b"O");
    assert_no_litter(&tmp.p("d"));
}

#[test]
fn no_room() {
    needs!(is_root(), "mounting needs root");
    let tmp = Tmp::new();
    let mount = match Mount::tmpfs("size=8m", &tmp.p("m")) {
        Ok(mount) => mount,
        Err(why) => return skipped("no_room", &why),
    };
    let far = Far::pipe();
    let m = mount.path();
    for (n, flags) in ["", "--parallel=3", "-C --checkpoint-size=4M", "--inplace"].iter().enumerate() {
        // An ordinary run tries each one way.
        for dir in BOTH.into_iter().filter(|dir| in_slice(n + *dir as usize, 2)) {
            let src = tmp.dir(format!("s{n}{dir:?}"));
            fs::write(src.join("large"), noise(n as u64, 9 * MIB)).unwrap();
            for file in 0..20 {
                fs::write(src.join(format!("{file}")), noise(file, 60_000)).unwrap();
            }
            let dst = m.join("d");
            dir.copy(&far, &format!("-rT {flags}"), &src, &dst).run().code(6);
            assert!(*flags == "--inplace" || !dst.join("large").exists(), "{dir:?} {flags}");
            // What fits then is copied, and nothing else is left.
            fs::write(src.join("large"), noise(n as u64, 5 * MIB)).unwrap();
            dir.copy(&far, &format!("-rT {flags}"), &src, &dst).run().ok();
            assert_same(&src, &dst, CONTENT);
            assert_no_litter(m);
            fs::remove_dir_all(&dst).unwrap();
        }
    }
}
