//! The safety rules by their names, each with its legitimate use.
//!
//! docs/safety-rules.md names the tests of every rule; most stand beside what they are about.

use crate::common::remote::{Dir, Far};
use crate::common::*;
use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

fn o(text: &str) -> &OsStr {
    OsStr::new(text)
}

#[test]
fn l3_a_host_and_a_path_never_become_a_local_directory() {
    let tmp = Tmp::new();
    tmp.file("big", "x");
    let ran = bcmr(["copy", "big", "h:/path"]).cwd(tmp.path()).run();
    assert_ne!(ran.code, 0, "{}", ran.err);
    assert_eq!(names(tmp.path()), [o("big")]);
    // The twin: a name with a colon that is meant as a name.
    bcmr(["copy", "big", "./h:x"]).cwd(tmp.path()).run().ok();
    assert_eq!(std::fs::read(tmp.p("h:x")).unwrap(), b"x");
}

#[test]
fn l4_setuid_is_kept_only_with_its_owner() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    let src = tmp.file("tool", "#!");
    std::os::unix::fs::chown(&src, Some(1000), Some(1000)).unwrap();
    chmod(&src, 0o6755);
    let ids = |path: &Path| {
        let m = std::fs::metadata(path).unwrap();
        (m.uid(), m.gid(), mode(path))
    };
    let dst = |name: &str| tmp.p(name);
    bcmr(["copy"]).args([&src, &dst("plain")]).run().ok();
    assert_eq!(ids(&dst("plain")), (0, 0, 0o755));
    bcmr(["copy", "-p"]).args([&src, &dst("p")]).run().ok();
    assert_eq!(ids(&dst("p")), (1000, 1000, 0o6755));
    bcmr(["copy", "--preserve=mode"]).args([&src, &dst("mode")]).run();
    assert_eq!(ids(&dst("mode")).2 & 0o6000, 0, "root's own setuid file was made of somebody else's");
    bcmr(["copy", "--archive"]).args([&src, &dst("archive")]).run().ok();
    assert_eq!(ids(&dst("archive")), (1000, 1000, 0o6755));
    let args = [o("copy"), o("-p"), src.as_os_str()];
    let others = dst("others");
    bcmr_as(NOBODY, &tmp, args).args([&others]).run();
    assert_eq!(ids(&others), (NOBODY, NOBODY, 0o755));
    // The twin: one's own setuid file stays one's own.
    let own = dst("own");
    bcmr_as(1000, &tmp, args).args([&own]).run().ok();
    assert_eq!(ids(&own), (1000, 1000, 0o6755));
    // Over what is there, whose mode stays: no setuid that was not looked at.
    let there = tmp.file("there", "old");
    chmod(&there, 0o4755);
    bcmr(["copy"]).args([&src, &there]).run().ok();
    assert_eq!(ids(&there), (0, 0, 0o755));
}

/// What was set for one owner is not handed to another one, unless that is asked for by name.
#[test]
fn l4_what_is_given_away_lends_nothing() {
    needs!(is_root(), "owners are given by root");
    let rows = [
        ("--chown 0:0", 0o755),
        ("--usermap 1000:0", 0o2755),
        ("--groupmap 1001:0", 0o4755),
        ("--usermap *:0 --chmod o-r", 0o2751),
        // The twins: whose it is stays, and what is asked for is done.
        ("--chown 1000:1001", 0o6755),
        ("--usermap 7:0", 0o6755),
        ("--chown 0:0 --chmod u+s", 0o4755),
        ("--chown 0:0 --chmod 6711", 0o6711),
    ];
    let ends = |dir: Option<Dir>, flags: &str, tmp: &Tmp| {
        let words = flags.split(' ');
        match dir {
            None => bcmr(["sync"]).args(words).args([tmp.p("s"), tmp.p("d")]).run(),
            Some(dir) => {
                let far = Far::pipe();
                dir.ends(far.bcmr("sync").args(words), &far, &tmp.p("s"), &tmp.p("d")).run()
            }
        }
    };
    let between = |flags: &str, tmp: &Tmp| {
        let on = |host: &str, path: &str| format!("{host}:{}", tmp.p(path).display());
        Far::pipe().bcmr("sync").args(flags.split(' ')).args([on("one", "s"), on("two", "d")]).run()
    };
    type Way<'w> = (&'w str, &'w dyn Fn(&str, &Tmp) -> Ran);
    let ways: [Way<'_>; 5] = [
        ("here", &|flags, tmp| ends(None, flags, tmp)),
        ("up", &|flags, tmp| ends(Some(Dir::Put), flags, tmp)),
        ("down", &|flags, tmp| ends(Some(Dir::Get), flags, tmp)),
        ("between", &between),
        ("held", &|flags, tmp| {
            let held = bcmr(["sync", "--fake-super"]).args(flags.split(' '));
            held.args([tmp.p("s"), tmp.p("held")]).run().ok();
            bcmr(["sync", "--fake-super=src"]).args([tmp.p("held"), tmp.p("d")]).run()
        }),
    ];
    for (way, run) in ways {
        for (flags, want) in rows {
            let tmp = Tmp::new();
            let file = tmp.file("s/tool", "#!");
            tmp.dir("s/group");
            for (path, bits) in [(&file, 0o6755), (&tmp.p("s/group"), 0o2755)] {
                std::os::unix::fs::chown(path, Some(1000), Some(1001)).unwrap();
                chmod(path, bits);
            }
            run(flags, &tmp).ok();
            assert_eq!(mode(&tmp.p("d/tool")), want, "{way} {flags}");
            // A directory's lends nothing.
            let is_kept = flags.contains("chmod 6711") || mode(&tmp.p("d/group")) & 0o2000 != 0;
            assert!(is_kept, "{way} {flags}");
            let again = ends(None, &format!("-n {flags}"), &tmp).ok().out;
            assert!(way != "here" || again.starts_with("no differences"), "{flags}: {again}");
        }
    }
}

#[test]
fn l5_nothing_is_ever_more_open_than_in_the_end() {
    let tmp = Tmp::new();
    for n in 0..300 {
        chmod(&tmp.file(format!("src/d{}/{n}", n % 3), noise(n, 20_000)), 0o600);
    }
    chmod(&tmp.file("src/large", vec![7; 32 << 20]), 0o600);
    for n in 0..3 {
        chmod(&tmp.p(format!("src/d{n}")), 0o700);
    }
    chmod(&tmp.p("src"), 0o700);
    let dst = tmp.dir("dst");
    let seen = Arc::new(AtomicU32::new(0));
    let widest = seen.clone();
    let looks = Arc::new(AtomicBool::new(false));
    let (looked, watched) = (looks.clone(), dst.clone());
    for args in [&["-r"][..], &["--archive"], &["-rp", "-j4"]] {
        {
            let (widest, looked, watched) = (widest.clone(), looked.clone(), watched.clone());
            let _watcher = Attacker::new(move || {
                for entry in std::fs::read_dir(&watched).into_iter().flatten().flatten() {
                    if let Ok(m) = std::fs::symlink_metadata(entry.path()) {
                        widest.fetch_or(m.mode() & 0o077, Ordering::Relaxed);
                        looked.store(true, Ordering::Relaxed);
                    }
                }
            });
            bcmr(["copy", "--reflink=disable"]).args(args).args([&tmp.p("src"), &dst]).run().ok();
            bcmr(["copy", "--reflink=disable"]).args(args).args([&tmp.p("src/large"), &dst]).run().ok();
        }
        assert_same(&tmp.p("src"), &dst.join("src"), Exact { mode: true, ..CONTENT });
        std::fs::remove_dir_all(dst.join("src")).unwrap();
        std::fs::remove_file(dst.join("large")).unwrap();
    }
    assert!(looks.load(Ordering::Relaxed), "the watcher saw nothing");
    assert_eq!(seen.load(Ordering::Relaxed), 0, "open to others for a moment");
}

/// In a directory that has its name, an archive's files are open to their owner alone until they have theirs. Where no
/// other user reaches them they are born as they end, which is a call less for each.
#[test]
fn l5_what_nobody_reaches_is_born_as_it_ends() {
    needs!(has_tool("strace"), "needs strace");
    let tmp = Tmp::new();
    for n in 0..8 {
        chmod(&tmp.file(format!("src/f{n}"), "x"), 0o644);
    }
    tmp.dir("there");
    let traced = |from: &str, to: &str| {
        let out = Command::new("strace")
            .args(["-f", "-qq", "-o", "log", "-e", "signal=none", "-e", "trace=openat,fchmod"])
            .arg(env!("CARGO_BIN_EXE_bcmr"))
            .args(["copy", "--archive", from, to])
            .current_dir(tmp.path())
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(0), "{out:?}");
        assert_same(&tmp.p("src"), &tmp.p(to), EVERYTHING);
        let log = std::fs::read_to_string(tmp.p("log")).unwrap();
        let is_birth = |line: &&str| line.contains("O_CREAT") || line.contains("O_TMPFILE");
        let births = log.lines().filter(is_birth).filter(|line| line.contains("0600")).count();
        (births, log.matches("fchmod(").count())
    };
    let (private, set) = traced("src", "new");
    assert!(private == 0 && set < 8, "{private} {set}");
    let (private, set) = traced("src/.", "there");
    assert!(private == 8 && set >= 8, "{private} {set}");
}

/// A program whose calls are written down, with what each descriptor leads to.
fn traced(log: &Path) -> Line {
    let calls = "trace=openat,fchmod,fchown,ftruncate,fsetxattr,setxattr,lsetxattr";
    Line::new(Path::new("strace"))
        .args(["-f", "-y", "-s64", "-qq", "-e", "signal=none", "-e", calls, "-o"])
        .args([log.as_os_str(), o(BCMR)])
}

#[test]
fn l5_a_directory_that_is_there_is_closed_before_anything_is_put_into_it() {
    needs!(has_tool("strace"), "needs strace");
    type Way<'w> = (&'w str, &'w dyn Fn(&Tmp) -> Ran);
    let far = |dir: Dir, tmp: &Tmp| {
        let far = Far::pipe();
        let line = far.lead(traced(&tmp.p("log")).args(["sync"]));
        dir.ends(line, &far, &tmp.p("s"), &tmp.p("d")).run()
    };
    let here = |words: &str, tmp: &Tmp| {
        traced(&tmp.p("log")).args(words.split(' ')).args([tmp.p("s"), tmp.p("d")]).run()
    };
    let ways: [Way<'_>; 6] = [
        ("an archive", &|tmp| here("copy --archive -T", tmp)),
        ("an archive of what is in it", &|tmp| {
            traced(&tmp.p("log")).args(["copy", "--archive", "s/.", "d"]).cwd(tmp.path()).run()
        }),
        ("sync", &|tmp| here("sync", tmp)),
        ("up", &|tmp| far(Dir::Put, tmp)),
        ("down", &|tmp| far(Dir::Get, tmp)),
        ("a plan", &|tmp| {
            bcmr("plan --verb sync s d --out p --shards 1".split(' ')).cwd(tmp.path()).run().ok();
            traced(&tmp.p("log")).args(["shard", "p", "0"]).cwd(tmp.path()).run().ok();
            bcmr(["finish", "p"]).cwd(tmp.path()).run()
        }),
    ];
    for (way, run) in ways {
        let tmp = Tmp::new();
        for dir in ["", "/sub"] {
            tmp.file(format!("s{dir}/new"), "x");
            tmp.dir(format!("d{dir}"));
        }
        for dir in ["s", "s/sub"] {
            chmod(&tmp.p(dir), 0o700);
        }
        chmod(&tmp.p("d"), 0o755);
        chmod(&tmp.p("d/sub"), 0o2777);
        run(&tmp).ok();
        assert_eq!((mode(&tmp.p("d")), mode(&tmp.p("d/sub"))), (0o700, 0o700), "{way}");
        let log = std::fs::read_to_string(tmp.p("log")).unwrap();
        for dir in ["d", "d/sub"] {
            let handle = format!("<{}>", tmp.p(dir).canonicalize().unwrap().display());
            let first = |what: &[&str]| {
                let is_one = |line: &str| line.contains(&handle) && what.iter().any(|w| line.contains(w));
                log.lines().position(is_one)
            };
            let (closed, made) = (first(&["fchmod("]), first(&["O_CREAT", "O_TMPFILE"]));
            assert!(closed.is_some() && made.is_some() && closed < made, "{way}, {dir}: {log}");
        }
    }
    // The twin: what is to be open is not closed meanwhile, and a mode that is not taken from the source stays.
    for (words, wanted) in [("copy --archive -T", 0o755), ("copy -r --no-preserve=mode -T", 0o711)] {
        let tmp = Tmp::new();
        tmp.file("s/new", "x");
        tmp.dir("d");
        chmod(&tmp.p("s"), 0o755);
        chmod(&tmp.p("d"), 0o711);
        here(words, &tmp).ok();
        let log = std::fs::read_to_string(tmp.p("log")).unwrap();
        let handle = format!("<{}>", tmp.p("d").canonicalize().unwrap().display());
        let set = log.lines().filter(|line| line.contains("fchmod(") && line.contains(&handle)).count();
        assert_eq!((mode(&tmp.p("d")), set), (wanted, usize::from(wanted == 0o755)), "{words}: {log}");
    }
}

/// What is made in a directory goes to its group also where who copies is not in it: setting the mode would end that.
#[test]
fn l5_a_directory_of_another_group_still_hands_its_group_down() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    tmp.file("s/a", "x");
    tmp.file("s/sub/b", "x");
    tmp.dir("d");
    for dir in ["s", "s/sub"] {
        chmod(&tmp.p(dir), 0o2755);
    }
    std::os::unix::fs::chown(tmp.p("d"), Some(NOBODY), Some(2000)).unwrap();
    chmod(&tmp.p("d"), 0o2777);
    let (s, d) = (tmp.p("s"), tmp.p("d"));
    let words = ["copy", "-r", "--preserve=mode", "-T"].map(o);
    bcmr_as(NOBODY, &tmp, words.into_iter().chain([s.as_os_str(), d.as_os_str()])).run();
    for path in ["a", "sub"] {
        assert_eq!(std::fs::metadata(d.join(path)).unwrap().gid(), 2000, "{path}");
    }
}

#[test]
fn l5_a_file_that_is_there_is_closed_before_it_is_written_into_or_given_away() {
    needs!(has_tool("strace"), "needs strace");
    let tmp = Tmp::new();
    let calls = |words: &str, wanted: &[&str]| {
        traced(&tmp.p("log")).args(words.split(' ')).cwd(tmp.path()).run().ok();
        let log = std::fs::read_to_string(tmp.p("log")).unwrap();
        let places: Vec<_> = wanted.iter().map(|call| log.lines().position(|l| l.contains(call))).collect();
        assert!(places.is_sorted() && places.iter().all(Option::is_some), "{words}: {places:?}\n{log}");
        log
    };
    chmod(&tmp.file("new", "new"), 0o600);
    for old in ["old", "more"] {
        chmod(&tmp.file(old, "old"), 0o4644);
    }
    calls("copy -p --inplace new old", &["/old>, 0600)", "/old>, 0)"]);
    assert_eq!((mode(&tmp.p("old")), std::fs::read(tmp.p("old")).unwrap()), (0o600, b"new".to_vec()));
    // An append that is refused changes nothing.
    chmod(&tmp.file("longer", "longer"), 0o600);
    chmod(&tmp.file("other", "XXXX"), 0o666);
    bcmr("copy -a -p longer other".split(' ')).cwd(tmp.path()).run().code(8);
    assert_eq!((mode(&tmp.p("other")), std::fs::read(tmp.p("other")).unwrap()), (0o666, b"XXXX".to_vec()));
    for (dir, file) in [(Dir::Put, "up"), (Dir::Get, "down")] {
        let far = Far::pipe();
        let there = tmp.file(file, "XXXX");
        chmod(&there, 0o666);
        dir.copy(&far, "-a -p", &tmp.p("longer"), &there).run().code(8);
        assert_eq!((mode(&there), std::fs::read(&there).unwrap()), (0o666, b"XXXX".to_vec()), "{file}");
        std::fs::write(&there, "long").unwrap();
        dir.copy(&far, "-a -p", &tmp.p("longer"), &there).run().ok();
        assert_eq!((mode(&there), std::fs::read(&there).unwrap()), (0o600, b"longer".to_vec()), "{file}");
    }
    // The twin: what keeps its mode is written into as it is.
    let log = calls("copy --inplace new more", &["/more>, 0)"]);
    assert!(!log.contains("fchmod(") && mode(&tmp.p("more")) & 0o777 == 0o644, "{log}");

    if is_root() {
        for (dir, bits) in [("s", 0o600), ("d", 0o640)] {
            let file = tmp.file(format!("{dir}/same"), "same");
            chmod(&file, bits);
            let of_then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
            std::fs::File::options().write(true).open(&file).unwrap().set_modified(of_then).unwrap();
        }
        calls("sync --chown 7:8 s d", &["/same>, 0600)", "/same>, 7, 8)"]);
        assert_eq!(mode(&tmp.p("d/same")), 0o600);
    }
    // What replaces a file that others could read by an ACL is not theirs to read under its first name.
    if has_tool("setfacl") {
        let there = tmp.file("acl", "old");
        let given = Command::new("setfacl").args(["-m", "u:7:rw"]).arg(&there).status().unwrap();
        if !given.success() {
            return skipped("l5_a_file_that_is_there", "no ACLs here");
        }
        let log = calls("copy --chmod F600 new acl", &["system.posix_acl_access"]);
        assert!(!log.contains(r"\20\0\6\0") && log.contains(r"\20\0\0\0"), "{log}");
        assert_eq!(mode(&there), 0o600);
    }
}

#[test]
fn l5_umask_holds_without_preserving_and_does_not_with_it() {
    let tmp = Tmp::new();
    chmod(&tmp.file("src/d/f", "x"), 0o775);
    chmod(&tmp.p("src/d"), 0o777);
    let src = tmp.p("src");
    bcmr_after("umask 077", ["copy", "-r"]).args([&src, &tmp.p("plain")]).run().ok();
    assert_eq!((mode(&tmp.p("plain/d")), mode(&tmp.p("plain/d/f"))), (0o700, 0o700));
    bcmr_after("umask 077", ["copy", "-r"]).args([tmp.p("src/d/f"), tmp.p("one")]).run().ok();
    assert_eq!(mode(&tmp.p("one")), 0o700);
    bcmr_after("umask 077", ["copy", "--archive"]).args([&src, &tmp.p("archive")]).run().ok();
    assert_same(&src, &tmp.p("archive"), EVERYTHING);
    bcmr_after("umask 000", ["copy", "-r"]).args([&src, &tmp.p("open")]).run().ok();
    assert_eq!((mode(&tmp.p("open/d")), mode(&tmp.p("open/d/f"))), (0o777, 0o775));
}

#[test]
fn l6_what_an_archive_cannot_keep_is_told() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    let src = tmp.file("src/f", "x");
    std::os::unix::fs::chown(&src, Some(1000), Some(1000)).unwrap();
    let (src, dst) = (tmp.p("src"), tmp.p("dst"));
    let args = [o("copy"), o("--archive"), src.as_os_str(), dst.as_os_str()];
    bcmr_as(NOBODY, &tmp, args).run().code(1).says("owner");
    assert_eq!(std::fs::read(tmp.p("dst/f")).unwrap(), b"x");
    // The twin: what is one's own is kept whole.
    let args = [o("copy"), o("--archive"), dst.as_os_str(), o("/dev/null/none")];
    bcmr_as(NOBODY, &tmp, args).run().code(1);
    let again = tmp.p("again");
    bcmr_as(NOBODY, &tmp, [o("copy"), o("--archive"), dst.as_os_str(), again.as_os_str()]).run().ok();
    assert_same(&dst, &again, EVERYTHING);
}

#[test]
fn l8_files_whose_size_is_a_lie_are_copied_whole() {
    let tmp = Tmp::new();
    for path in ["/proc/version", "/proc/filesystems", "/sys/kernel/mm/transparent_hugepage/enabled"] {
        let Ok(want) = std::fs::read(path) else {
            skipped("L8", path);
            continue;
        };
        assert!(!want.is_empty());
        for args in [&["copy"][..], &["copy", "--verify"], &["copy", "--sparse=always"]] {
            bcmr(args).args([path.as_ref(), tmp.p("x").as_path()]).run().ok();
            assert_eq!(std::fs::read(tmp.p("x")).unwrap(), want, "{path} {args:?}");
        }
    }
    bcmr(["copy".as_ref(), "/proc/cpuinfo".as_ref(), tmp.p("cpuinfo").as_path()]).run().ok();
    let processors = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().filter(|line| line.starts_with("processor")).count()
    };
    assert_eq!(processors(&tmp.p("cpuinfo")), processors(Path::new("/proc/cpuinfo")));
    // Nor is it where two are compared by all that they have, here and with another machine.
    bcmr(["copy", "/proc/version"]).args([tmp.p("version")]).run().ok();
    let (src, dst) = (Path::new("/proc/version"), tmp.p("version"));
    let check = |code| {
        bcmr(["check", "--hash", "-T"]).args([src, &dst]).run().code(code);
        let far = crate::common::remote::Far::pipe();
        for way in crate::common::remote::BOTH {
            let line = far.bcmr("check").args(["--hash", "-T"]);
            way.ends(line, &far, src, &dst).run().code(code);
        }
    };
    check(0);
    tmp.file("version", "another");
    check(1);
    // The twin: an empty file is empty.
    bcmr(["copy"]).args([tmp.file("empty", ""), tmp.p("still-empty")]).run().ok();
    bcmr(["check", "--hash", "-T"]).args([tmp.p("empty"), tmp.p("version")]).run().code(1);
    bcmr(["check", "--hash", "-T"]).args([tmp.p("empty"), tmp.p("still-empty")]).run().ok();
    assert_eq!(std::fs::metadata(tmp.p("still-empty")).unwrap().len(), 0);
}

/// Where not even the version can be printed, the loader has no room, or what Rust's library does before the program begins.
fn starts(limit: &str) -> bool {
    let mut line = bcmr_after(limit, ["--version"]).0;
    line.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

/// Whether the program ended for want of memory, which it says: never by a signal.
fn out_of_memory(ran: &Ran) -> bool {
    assert!(ran.code != 12 || ran.err.contains("no memory left"), "exit 12: {}", ran.err);
    ran.code == 12
}

/// Beside `out_of_memory`, 127 is an answer: not even the loader had room.
fn within(limits: &[String]) {
    let tmp = Tmp::new();
    for n in 0..200 {
        tmp.file(format!("src/{}/{}/{n}", n % 4, n % 7), noise(n, 3000));
    }
    let src = tmp.p("src");
    for limit in limits.iter().filter(|limit| starts(limit)) {
        for args in [&["copy", "-r", "-j4"][..], &["copy", "--archive"]] {
            let dst = tmp.p("dst");
            let ran = bcmr_after(limit, args).args([&src, &dst]).run();
            let no_memory = out_of_memory(&ran);
            assert!(no_memory || matches!(ran.code, 0 | 1 | 127), "{limit}: exit {}: {}", ran.code, ran.err);
            if no_memory {
                // It could not clean up: the next run does.
                bcmr(args).args(["-T".as_ref(), src.as_os_str(), dst.as_os_str()]).run().ok();
            }
            if no_memory || ran.code == 0 {
                assert_same(&src, &dst, CONTENT);
            } else {
                assert!(!ran.err.is_empty(), "{limit}: silent");
            }
            assert_no_litter(tmp.path());
            if dst.exists() {
                std::fs::remove_dir_all(&dst).unwrap();
            }
        }
    }
    // The twin: sixteen descriptors are enough for one worker.
    bcmr_after("ulimit -n 16", ["copy", "-r", "-j1"]).args([&src, &tmp.p("dst")]).run().ok();
    assert_same(&src, &tmp.p("dst"), CONTENT);
    bcmr_after("ulimit -n 16", ["remove", "-r"]).args([&tmp.p("dst")]).run().ok();
}

#[test]
fn l11_few_descriptors_or_processes_end_in_a_clean_error_or_a_right_copy() {
    within(&[5, 6, 8, 10, 12, 16, 24, 40].map(|n| format!("ulimit -n {n}")));
    within(&["ulimit -u 1", "ulimit -s 512"].map(String::from));
}

/// However wide or deep a tree is: what only looks at it holds few directories open at a time.
#[test]
fn l11_what_only_looks_needs_few_descriptors() {
    let tmp = Tmp::new();
    for n in 0..100 {
        tmp.file(format!("d/wide/{n}/f"), "x");
    }
    tmp.file(format!("d/{}f", "deep/".repeat(100)), "x");
    tmp.dir("s");
    let few = |verb: &[&str]| bcmr_after("ulimit -n 24", verb);
    let ran = few(&["sessions"]).args([tmp.p("d")]).run().ok();
    assert!(ran.err.is_empty(), "{ran:?}");
    let ran = few(&["du"]).args([tmp.p("d")]).run().ok();
    assert!(ran.out.contains("101 files") && ran.err.is_empty(), "{ran:?}");
    let ran = few(&["check", "-r"]).args([tmp.p("s/."), tmp.p("d")]).run();
    assert!(ran.out.contains("wide") && ran.out.contains("100 files") && ran.err.is_empty(), "{ran:?}");
}

/// From the least in which the program starts at all.
#[test]
fn l11_little_memory_ends_in_a_clean_error_or_a_right_copy() {
    let limit = |kib: u64| format!("ulimit -v {kib}");
    // Roughly first, as each question is a start of the program.
    let enough = |kib: &u64| starts(&limit(*kib));
    let about = (4 << 10..1 << 20).step_by(4 << 10).find(enough).unwrap();
    let least = ((about - (4 << 10)).max(4 << 10)..about).step_by(512).find(enough).unwrap_or(about);
    let more = [0, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 10_240, 40_960, 106_496];
    within(&sliced(more, 2).map(|kib| limit(least + kib)).collect::<Vec<_>>());
    // Where it hardly starts, it is told that there was no memory.
    let tmp = Tmp::new();
    tmp.file("f", noise(1, 9 << 20));
    let told = more.iter().filter(|kib| {
        let ran = bcmr_after(&limit(least + **kib), ["copy", "-V"]).args([tmp.p("f"), tmp.p("g")]).run();
        let no_memory = out_of_memory(&ran);
        assert!(no_memory || ran.code == 0, "{kib}: exit {}: {}", ran.code, ran.err);
        match std::fs::remove_file(tmp.p("g")) {
            Ok(()) => {}
            Err(e) => assert_eq!((no_memory, e.kind()), (true, std::io::ErrorKind::NotFound), "{kib}"),
        }
        no_memory
    });
    assert!(told.count() > 0, "it never ran out of memory");
}

#[test]
fn l12_the_root_and_what_holds_us_are_never_removed() {
    let tmp = Tmp::new();
    let here = tmp.dir("a/here");
    tmp.file("a/here/f", "x");
    symlink("/", tmp.p("to-root")).unwrap();
    symlink(&here, tmp.p("to-here")).unwrap();
    let me = here.join("../here");
    // Only said, never done: should the guard fail, this test is no disaster.
    for path in ["/", "//", "/.", "/usr/..", "/proc/self/root/", "/./"] {
        for args in [&["remove", "-rfn"][..], &["remove", "-rfn", "--cross-file-systems"]] {
            bcmr(args).args([path]).cwd(&here).run().code(8);
        }
    }
    bcmr(["remove", "-rfn"]).args([tmp.p("to-root/")]).cwd(&here).run().one_of(&[1, 8]);
    for path in [".", "..", "./", "../.", "../../a", "../here/../here"] {
        bcmr(["remove", "-rf"]).args([path]).cwd(&here).run().code(8);
    }
    for path in [me.as_path(), &tmp.p("a"), tmp.path(), &tmp.p("to-here/")] {
        bcmr(["remove", "-rf"]).args([path]).cwd(&here).run().one_of(&[1, 8]);
    }
    assert_eq!(std::fs::read(here.join("f")).unwrap(), b"x");
    if is_root() {
        match Mount::bind(&here, &tmp.p("bound")) {
            Ok(mount) => {
                bcmr(["remove", "-rf"]).args([mount.path()]).cwd(&here).run().one_of(&[1, 8]);
                assert_eq!(std::fs::read(here.join("f")).unwrap(), b"x");
            }
            Err(why) => skipped("L12 by bind mount", &why),
        }
    } else {
        skipped("L12 by bind mount", "needs root");
    }
    // The twins: beside us, below us, and the link alone.
    tmp.file("a/beside/f", "x");
    tmp.file("a/here/below/f", "x");
    bcmr(["remove", "-r", "../beside", "below"]).cwd(&here).run().ok();
    bcmr(["remove"]).args([tmp.p("to-root"), tmp.p("to-here")]).cwd(&here).run().ok();
    assert_eq!(names(tmp.path()), [o("a"), o("bound")].split_at(if is_root() { 2 } else { 1 }).0);
    assert_eq!(names(&tmp.p("a")), [o("here")]);
}

#[test]
fn l12_other_file_systems_are_left_alone_unless_asked() {
    needs!(is_root(), "mounting needs root");
    let tmp = Tmp::new();
    tmp.file("victim/f", "x");
    let mount = match Mount::tmpfs("size=1m", &tmp.p("victim/mounted")) {
        Ok(mount) => mount,
        Err(why) => return skipped("tmpfs", &why),
    };
    std::fs::write(mount.path().join("kept"), "x").unwrap();
    bcmr(["remove", "-rf"]).args([tmp.p("victim")]).run().one_of(&[1, 8]);
    assert_eq!(std::fs::read(mount.path().join("kept")).unwrap(), b"x");
    // The twin: asked to, it goes in; the mount point itself stays while it is mounted.
    bcmr(["remove", "-rf", "--cross-file-systems"]).args([tmp.p("victim")]).run().one_of(&[1, 8]);
    assert!(!mount.path().join("kept").exists());
}

#[test]
fn a_closed_or_full_standard_output_breaks_nothing() {
    let tmp = Tmp::new();
    for n in 0..2000 {
        tmp.file(format!("src/{n}"), "x");
    }
    let src = tmp.p("src");
    let want = tree(&src);
    let landed = |dst: &Path| {
        let told = differences(&want, &tree(dst), CONTENT);
        assert!(told.is_empty(), "{}: {:?}", dst.display(), &told[..told.len().min(20)]);
    };
    bcmr_after("exec >&-", ["copy", "-rv"]).args([&src, &tmp.p("closed")]).run().ok();
    landed(&tmp.p("closed"));
    bcmr_after("exec 2>&- >&- <&-", ["copy", "-rv"]).args([&src, &tmp.p("all-closed")]).run().ok();
    landed(&tmp.p("all-closed"));
    // A reader that goes away after the first line.
    for json in ["-v", "--json"] {
        let dst = tmp.p(format!("read{json}"));
        let mut run = Command::new(BCMR)
            .args(by_engine(["copy", "-r", json]))
            .args([&src, &dst])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(run.stdout.take());
        let out = run.wait_with_output().unwrap();
        assert!(out.status.success(), "{json}: {}", String::from_utf8_lossy(&out.stderr));
        landed(&dst);
    }
    // The twin: what could not be written for another reason is an error.
    bcmr_after("exec >/dev/full", ["copy", "-rv"]).args([&src, &tmp.p("full")]).run().code(1);
    landed(&tmp.p("full"));
    landed(&src);
}

#[test]
fn s3_a_source_changed_within_the_second_is_noticed() {
    let tmp = Tmp::new();
    let src = tmp.file("src", "one version");
    let dst = tmp.p("dst");
    bcmr(["copy", "-p"]).args([&src, &dst]).run().ok();
    // The same length and the same second.
    let before = std::fs::metadata(&src).unwrap();
    std::fs::write(&src, "two version").unwrap();
    let later = std::time::SystemTime::UNIX_EPOCH
        + std::time::Duration::new(
            before.mtime().try_into().unwrap(),
            (before.mtime_nsec() as u32 + 1).min(999_999_999),
        );
    std::fs::File::options().write(true).open(&src).unwrap().set_modified(later).unwrap();
    bcmr(["check"]).args([&src, &dst]).run().code(1);
    bcmr(["copy", "-p", "--update=different"]).args([&src, &dst]).run().ok();
    assert_eq!(std::fs::read(&dst).unwrap(), b"two version");
    // The twin: what has not changed is left alone.
    let ino = std::fs::metadata(&dst).unwrap().ino();
    bcmr(["copy", "-p", "--update=different"]).args([&src, &dst]).run().ok();
    assert_eq!(std::fs::metadata(&dst).unwrap().ino(), ino);
    bcmr(["check"]).args([&src, &dst]).run().ok();
}

#[test]
fn s12_a_reader_sees_the_old_content_or_the_new_one() {
    let tmp = Tmp::new();
    let (old, new) = (vec![1u8; 3 << 20], vec![2u8; 3 << 20]);
    let sources = [tmp.file("old", &old), tmp.file("new", &new)];
    let dst = tmp.file("dst", &old);
    let torn = Arc::new(AtomicBool::new(false));
    {
        let (torn, dst) = (torn.clone(), dst.clone());
        let _reader = Attacker::new(move || {
            let got = std::fs::read(&dst);
            let whole = got.is_ok_and(|g| g == old || g == new);
            torn.fetch_or(!whole, Ordering::Relaxed);
        });
        for round in 0..60 {
            bcmr(["copy"]).args([&sources[round % 2], &tmp.p("dst")]).run().ok();
        }
    }
    assert!(!torn.load(Ordering::Relaxed), "a reader saw half of it, or nothing");
    // The twin: --inplace keeps the inode, which is what it is for.
    let ino = std::fs::metadata(&dst).unwrap().ino();
    bcmr(["copy", "--inplace"]).args([&sources[0], &dst]).run().ok();
    assert_eq!(std::fs::metadata(&dst).unwrap().ino(), ino);
    bcmr(["copy"]).args([&sources[0], &dst]).run().ok();
    assert_ne!(std::fs::metadata(&dst).unwrap().ino(), ino);
    assert_no_litter(tmp.path());
}

#[test]
fn l13_a_link_of_another_user_in_a_shared_directory_is_not_followed() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    const OTHER: u32 = 1000;
    // Who has the directory, its mode, whose the link is, who follows it, and whether that is allowed.
    let rows = [
        (0, 0o1777, NOBODY, 0, false),
        (0, 0o1777, OTHER, NOBODY, false),
        (0, 0o1777, NOBODY, NOBODY, true),
        (0, 0o1777, 0, NOBODY, true),
        (OTHER, 0o1777, OTHER, 0, true),
        (0, 0o0777, OTHER, 0, true),
        (0, 0o1775, OTHER, 0, true),
    ];
    for (holder, bits, owner, user, follows) in rows {
        for words in [&["copy", "-T"][..], &["copy", "-T", "--inplace"], &["copy", "-rT"]] {
            let tmp = Tmp::for_others();
            let is_dir = words[1] == "-rT";
            let (src, own) = (tmp.p("src"), tmp.p("own"));
            if is_dir {
                tmp.file("src/in", "new")
            } else {
                tmp.file("src", "new")
            };
            if is_dir {
                tmp.file("own/in", "old")
            } else {
                tmp.file("own", "old")
            };
            for path in [&own, &own.join("in")] {
                let _no_file = std::os::unix::fs::chown(path, Some(user), Some(user));
            }
            let (shared, slash) = (tmp.dir("shared"), if is_dir { "/" } else { "" });
            let link = shared.join("link");
            symlink(&own, &link).unwrap();
            std::os::unix::fs::lchown(&link, Some(owner), Some(owner)).unwrap();
            std::os::unix::fs::chown(&shared, Some(holder), Some(holder)).unwrap();
            chmod(&shared, bits);
            let target = format!("{}{slash}", link.display());
            let args = words.iter().map(|w| o(w)).chain([src.as_os_str(), o(&target)]);
            let ran = bcmr_as(user, &tmp, args).run();
            let content = std::fs::read(if is_dir { own.join("in") } else { own.clone() }).unwrap();
            let about = format!("{holder} {bits:o} {owner} {user} {words:?}: {}", ran.err);
            if follows {
                assert_eq!((ran.code, &content[..]), (0, &b"new"[..]), "{about}");
            } else {
                assert_eq!((ran.code, &content[..]), (1, &b"old"[..]), "{about}");
                // Some of them the kernel itself does not follow.
                let is_told = ran.err.contains("another user's symbolic link");
                assert!(is_told || ran.err.contains("Permission denied"), "{about}");
            }
            assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink(), "{about}");
        }
    }
    // Nor where it leads to a directory that is copied into, or to a FIFO; one's own link to a link neither.
    let tmp = Tmp::for_others();
    tmp.file("src", "new");
    tmp.file("tree/src", "new");
    let (own, shared) = (tmp.dir("own"), tmp.dir("shared"));
    mkfifo(&tmp.p("fifo"));
    let _reader = std::fs::File::options().read(true).write(true).open(tmp.p("fifo")).unwrap();
    chmod(&shared, 0o1777);
    for (link, to) in [("dir", &own), ("pipe", &tmp.p("fifo"))] {
        for (name, owner) in [(link.to_owned(), NOBODY), (format!("my-{link}"), 0)] {
            symlink(to, shared.join(&name)).unwrap();
            std::os::unix::fs::lchown(shared.join(&name), Some(owner), Some(owner)).unwrap();
        }
        symlink(shared.join(link), tmp.p(format!("to-{link}"))).unwrap();
    }
    for (words, may) in [
        ("copy src shared/dir", false),
        ("copy src shared/dir/", false),
        ("copy -t shared/dir src", false),
        ("move src shared/dir", false),
        ("sync tree shared/dir/", false),
        ("copy src to-dir", false),
        ("copy src shared/pipe", false),
        ("copy src to-pipe", false),
        ("copy src shared/my-pipe", true),
        ("copy src shared/my-dir", true),
        ("copy -t shared/my-dir src", true),
    ] {
        let ran = bcmr(words.split(' ')).cwd(tmp.path()).run();
        assert_eq!(ran.code == 0, may, "{words}: {ran:?}");
        assert!(may || !own.join("src").exists(), "{words}");
    }
}
