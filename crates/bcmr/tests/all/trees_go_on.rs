//! Trees whose copy was interrupted, and the same command again: names that belong together, links, and what the target
//! means. Here, there and back.

use crate::common::remote::*;
use crate::common::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

const MIB: usize = 1 << 20;

/// Which way a copy goes: nowhere, or to another machine or from it.
const WAYS: [Option<Dir>; 3] = [None, Some(Dir::Put), Some(Dir::Get)];

fn copy(way: Option<Dir>, flags: &str, src: &Path, dst: &Path) -> Ran {
    match way {
        None => bcmr(["copy"]).args(flags.split_whitespace()).args([src, dst]).run(),
        // It runs while the other machine is there: what it makes there goes with that.
        Some(dir) => dir.copy(&Far::pipe(), flags, src, dst).run(),
    }
}

/// A copy of a file with its times, but as a file of its own.
fn torn(from: &Path, to: &Path) {
    let times = fs::metadata(from).unwrap();
    fs::remove_file(to).unwrap();
    fs::copy(from, to).unwrap();
    fs::File::options().write(true).open(to).unwrap().set_modified(times.modified().unwrap()).unwrap();
}

/// An earlier run may have landed any name of a file, or each as a file of its own: in the end they are one.
#[test]
fn names_of_one_file_are_one_again() {
    let tmp = Tmp::new();
    for (name, size) in [("empty", 0), ("small", 1000), ("large", 9 * MIB)] {
        let file = tmp.file(format!("src/{name}-a"), noise(size as u64, size));
        fs::create_dir_all(tmp.p("src/sub")).unwrap();
        fs::hard_link(&file, tmp.p(format!("src/{name}-b"))).unwrap();
        fs::hard_link(&file, tmp.p(format!("src/sub/{name}-c"))).unwrap();
    }
    symlink("small-a", tmp.p("src/link-a")).unwrap();
    fs::hard_link(tmp.p("src/link-a"), tmp.p("src/link-b")).unwrap();
    fs::hard_link(tmp.p("src/link-a"), tmp.p("src/sub/link-c")).unwrap();
    let src = tmp.p("src");
    let all = ["empty", "small", "large", "link"];
    for (n, way) in WAYS.into_iter().enumerate() {
        for (m, (flags, all)) in [("-C", &all[..]), ("-s", &all), ("-u", &all[..3])].into_iter().enumerate() {
            // An ordinary run takes a third: each row of flags one way, and each that is gone with one of those.
            if !in_slice(n + m, 3) {
                continue;
            }
            let flags = format!("-r -T --archive --checkpoint-size=4M {flags}");
            let dst = tmp.p("dst");
            copy(way, &flags, &src, &dst).ok();
            assert_same(&src, &dst, EVERYTHING);
            for (k, gone) in [&["-a"][..], &["-b"], &["-b", "-a"]].into_iter().enumerate() {
                if !in_slice(m + k, 3) {
                    continue;
                }
                for file in all {
                    gone.iter().for_each(|end| fs::remove_file(dst.join(format!("{file}{end}"))).unwrap());
                }
                copy(way, &flags, &src, &dst).ok();
                assert_same(&src, &dst, EVERYTHING);
            }
            for file in ["empty", "small", "large"] {
                torn(&dst.join(format!("sub/{file}-c")), &dst.join(format!("{file}-a")));
            }
            assert!(!differences(&tree(&src), &tree(&dst), EVERYTHING).is_empty());
            copy(way, &flags, &src, &dst).ok();
            assert_same(&src, &dst, EVERYTHING);
            fs::remove_dir_all(&dst).unwrap();
        }
        // The twins: without a request for links there are none, and a run that keeps what is there keeps it.
        for (m, flags) in ["-r -T -C -p", "-r -T --no-clobber --archive"].into_iter().enumerate() {
            if !in_slice(n + m, 2) {
                continue;
            }
            let dst = tmp.p("dst");
            copy(way, "-r -T --archive", &src, &dst).ok();
            torn(&dst.join("small-a"), &dst.join("small-b"));
            let ino = |name: &str| fs::metadata(dst.join(name)).unwrap().ino();
            let before = (ino("small-a"), ino("small-b"));
            copy(way, flags, &src, &dst).ok();
            assert_eq!((ino("small-a"), ino("small-b")), before, "{way:?} {flags}");
            fs::remove_dir_all(&dst).unwrap();
        }
    }
}

/// A session under a name that becomes a link to what landed under another one goes with its stage.
#[test]
fn the_session_of_a_further_name_is_swept() {
    let tmp = Tmp::new();
    let file = tmp.file("src/a", noise(7, 12 * MIB));
    fs::hard_link(&file, tmp.p("src/b")).unwrap();
    for way in WAYS {
        let dst = tmp.dir("dst");
        // Whichever name is met first, the other one's is of no use.
        for name in ["a", "b"] {
            let words = ["copy", "-C", "--checkpoint-size=4M"];
            let stopped = bcmr_after("ulimit -c 0; ulimit -f 18000", words)
                .args([tmp.p("src").join(name), dst.clone()]);
            stopped.run().code(6);
        }
        assert_eq!(litter(&dst).len(), 4, "{:?}", litter(&dst));
        copy(way, "-r -T -C --archive --checkpoint-size=4M", &tmp.p("src"), &dst).ok();
        assert_same(&tmp.p("src"), &dst, EVERYTHING);
        assert_no_litter(&dst);
        fs::remove_dir_all(&dst).unwrap();
    }
}

/// Kind, size and time of a symbolic link say nothing about where it leads.
#[test]
fn a_link_that_leads_elsewhere_is_replaced() {
    for way in WAYS {
        for flags in ["-r -T -C", "-r -T -s", "-r -T -C --archive"] {
            let tmp = Tmp::new();
            tmp.dir("src");
            tmp.dir("dst");
            for (name, target, old) in
                [("same", "here", "here"), ("other", "here", "gone"), ("not", "a", "bcd")]
            {
                symlink(target, tmp.p("src").join(name)).unwrap();
                symlink(old, tmp.p("dst").join(name)).unwrap();
            }
            let same = fs::symlink_metadata(tmp.p("dst/same")).unwrap().ino();
            copy(way, flags, &tmp.p("src"), &tmp.p("dst")).ok();
            assert_same(&tmp.p("src"), &tmp.p("dst"), CONTENT);
            // The twin: what leads there already is left alone.
            assert_eq!(fs::symlink_metadata(tmp.p("dst/same")).unwrap().ino(), same, "{way:?} {flags}");
        }
    }
}

// ---- what the target means ----

fn plant(tmp: &Tmp) {
    tmp.file("src/large", noise(1, 5 * MIB));
    tmp.file("src/sub/small", "small");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(86400);
    fs::File::open(tmp.p("src")).unwrap().set_modified(old).unwrap();
}

/// The mark comes and goes without a trace: a tree that is complete has the times and the mode of its source.
#[test]
fn a_finished_tree_has_its_times() {
    for way in WAYS {
        for mode in [0o755, 0o555] {
            let tmp = Tmp::new();
            plant(&tmp);
            chmod(&tmp.p("src"), mode);
            copy(way, "-r -C --archive --checkpoint-size=4M", &tmp.p("src"), &tmp.p("dst")).ok();
            assert_same(&tmp.p("src"), &tmp.p("dst"), EVERYTHING);
        }
    }
}

#[test]
fn a_directory_that_nobody_may_write_to_is_finished_too() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    tmp.file("src/small", "small");
    chmod(&tmp.p("src"), 0o555);
    bcmr_as(NOBODY, &tmp, ["copy", "-r", "-C", "-p"]).args([tmp.p("src"), tmp.p("dst")]).run().ok();
    assert_same(&tmp.p("src"), &tmp.p("dst"), Exact { mode: true, times: true, ..CONTENT });
}

/// Killed at each call that changes anything, the same command means the same directory, until all of it is there.
#[test]
fn killed_anywhere_the_same_command_never_nests() {
    needs!(has_tool("strace"), "it needs strace");
    let calls = "mkdir mkdirat openat rename renameat renameat2 unlink unlinkat utimensat fchmod fsync fdatasync syncfs";
    let mut kills = 0;
    for call in calls.split(' ') {
        for when in sliced(1.., 3) {
            // The first files that are opened are libraries.
            let when = if call == "openat" { 4 * when } else { when };
            let tmp = Tmp::new();
            plant(&tmp);
            let again = || {
                let words = ["copy", "-r", "-C", "-j1", "--checkpoint-size=4M", "src", "dst"];
                bcmr(words).cwd(tmp.path())
            };
            let inject = format!("inject={call}:signal=KILL:when={when}");
            let mut strace =
                Line::new(Path::new("strace")).args(["-f", "-qq", "-o", "/dev/null", "-e", &inject]);
            strace.0.arg("-e").arg(format!("trace={call}"));
            let ran = strace
                .args(by_engine([BCMR, "copy", "-r", "-C", "-j1", "--checkpoint-size=4M", "src", "dst"]))
                .cwd(tmp.path())
                .run();
            assert!(!tmp.p("dst/src").exists());
            if ran.code == 0 {
                break;
            }
            kills += 1;
            assert_eq!(ran.code, 1009, "{}", ran.err);
            let marked = mark_of(&tmp.p("dst")).exists();
            if tmp.p("dst").exists() && !marked {
                // Complete, and killed before it could say so: from here on the command means dst/src, as with cp.
                assert_same(&tmp.p("src"), &tmp.p("dst"), CONTENT);
            } else {
                again().run().ok();
            }
            assert!(!tmp.p("dst/src").exists(), "{call} {when}: it nests");
            assert_same(&tmp.p("src"), &tmp.p("dst"), Exact { mode: true, ..CONTENT });
            assert_no_litter(tmp.path());
        }
    }
    assert!(kills > if all_cases() { 20 } else { 6 }, "{kills}");
}

/// A client that has not heard that all is done asks once more, and means the same directory.
#[test]
fn a_summary_that_is_lost_makes_no_nest() {
    let whole = Tmp::new();
    plant(&whole);
    let log = whole.p("log");
    let far = Far::relay().with("RELAY_LOG", &log);
    Dir::Put.copy(&far, "-r -C", &whole.p("src"), &whole.p("dst")).run().ok();
    let down = passed(&log)[0].1;
    let mut broken = 0;
    for (n, less) in [1, 2, 5, 10, 15, 20, 30, 40, 60].into_iter().enumerate() {
        for (m, flags) in ["-r -C", "-r -C --retries=2"].into_iter().enumerate() {
            // An ordinary run tries each place with one of the two.
            if !in_slice(n + m, 2) {
                continue;
            }
            let tmp = Tmp::new();
            plant(&tmp);
            let far = Far::relay().with("RELAY_DOWN", (down - less).to_string());
            let ran = Dir::Put.copy(&far, flags, &tmp.p("src"), &tmp.p("dst")).run().one_of(&[0, 7]);
            // Once the summary was heard, the word that it was may still be lost: then only the mark is left.
            if ran.code == 7 || mark_of(&tmp.p("dst")).exists() {
                broken += 1;
                Dir::Put.copy(&Far::pipe(), flags, &tmp.p("src"), &tmp.p("dst")).run().ok();
            }
            assert!(!tmp.p("dst/src").exists(), "{less} {flags}: it nests");
            let told = differences(&tree(&tmp.p("src")), &tree(&tmp.p("dst")), CONTENT);
            assert!(told.is_empty(), "{less} {flags}: {told:?} {ran:?}");
        }
    }
    assert!(broken > 0, "the line never broke");
}
