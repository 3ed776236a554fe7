//! `bcmr sync --snapshot` and `--link-dest`: dated trees that share what is the same, each complete or absent.

use crate::common::remote::*;
use crate::common::*;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

fn line(tmp: &Tmp, words: &str) -> Line {
    let mut line = bcmr(std::iter::once("sync").chain(words.split(' '))).cwd(tmp.path());
    line.0.env("XDG_STATE_HOME", tmp.p("state"));
    line
}

fn sync(tmp: &Tmp, words: &str) -> Ran {
    line(tmp, words).run()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// What a person sees in a directory of snapshots.
fn snapshots(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = names(dir).into_iter().map(|name| dir.join(name)).collect();
    all.retain(|path| !path.ends_with(".bcmr-snapshots"));
    all
}

#[track_caller]
fn alike(src: &Path, dst: &Path) {
    let mut trees = [tree(src), tree(dst)];
    for tree in &mut trees {
        tree.values_mut().for_each(|entry| entry.atime = (0, 0));
    }
    let told = differences(&trees[0], &trees[1], EVERYTHING);
    assert!(told.is_empty(), "{}:\n{}", dst.display(), told.join("\n"));
    if let Some(text) = rsync_would(src, dst) {
        assert!(text.is_empty(), "rsync would: {text}");
    }
}

fn source(tmp: &Tmp) {
    for name in ["a", "b", "sub/c", "sub/deep/d"] {
        tmp.file(format!("s/{name}"), format!("first {name}"));
    }
    fs::hard_link(tmp.p("s/a"), tmp.p("s/sub/a too")).unwrap();
    symlink("nowhere", tmp.p("s/link")).unwrap();
    chmod(&tmp.p("s/sub"), 0o2750);
}

#[test]
fn snapshots_share_what_is_the_same() {
    let tmp = Tmp::new();
    source(&tmp);
    sync(&tmp, "--snapshot --at 2026-01-01 s snaps").ok();
    let first = tmp.p("snaps/2026-01-01T000000Z");
    alike(&tmp.p("s"), &first);
    fs::write(tmp.p("s/b"), "second b").unwrap();
    chmod(&tmp.p("s/sub/c"), 0o600);
    fs::remove_file(tmp.p("s/sub/deep/d")).unwrap();
    tmp.file("s/new", "new");
    let preview = sync(&tmp, "-n --snapshot s snaps").ok().out;
    assert!(preview.contains("~ b") && preview.contains("+ new") && !preview.contains("+ a"), "{preview}");
    let told = sync(&tmp, "--json --snapshot --at 2026-01-02T12:30:00Z s snaps").ok().out;
    assert!(told.contains("\"snaps/2026-01-02T123000Z/b\"") && !told.contains("unfinished"), "{told}");
    assert!(
        told.contains("\"updated\":0,"),
        "a new one had nothing that could be brought up to date: {told}"
    );
    let second = tmp.p("snaps/2026-01-02T123000Z");
    alike(&tmp.p("s"), &second);
    // What is the same is one file; what differs, if only in attributes, is not.
    assert_eq!(inode(&first.join("a")), inode(&second.join("a")));
    assert_eq!(inode(&second.join("a")), inode(&second.join("sub/a too")));
    for name in ["b", "sub/c"] {
        assert_ne!(inode(&first.join(name)), inode(&second.join(name)), "{name}");
    }
    assert_eq!((text(&first.join("b")), mode(&first.join("sub/c"))), ("first b".into(), 0o644));
    assert!(first.join("sub/deep/d").exists() && !second.join("sub/deep/d").exists());
    assert_eq!(snapshots(&tmp.p("snaps")).len(), 2);
    // Names are told as they are in SRC, and directories above are made where that is asked for.
    let told = sync(&tmp, "-i --mkpath --snapshot s some/where/else").ok().out;
    assert!(told.lines().any(|line| line == ">f????????? b"), "{told}");
    assert_eq!(snapshots(&tmp.p("some/where/else")).len(), 1);
    // A moment that is there, and one before the last.
    sync(&tmp, "--snapshot --at 2026-01-01 s snaps").code(8).says("there is one of that moment");
    sync(&tmp, "--snapshot --at 2025-12-31 s snaps").code(8).says("newer one: 2026-01-0").says("hint: ");
    // What looks the same and is not is found by its content.
    let times = fs::metadata(tmp.p("s/new")).unwrap().modified().unwrap();
    fs::write(tmp.p("s/new"), "NEW").unwrap();
    fs::File::open(tmp.p("s/new")).unwrap().set_modified(times).unwrap();
    sync(&tmp, "--snapshot --checksum --at 2026-01-03 s snaps").ok();
    assert_eq!(text(&tmp.p("snaps/2026-01-03T000000Z/new")), "NEW");
    // What would be taken away is told, with the last one too, and is there.
    let preview = sync(&tmp, "-n --snapshot --keep 1d --at 2026-01-03T12:00:00Z s snaps").ok().out;
    let goes = |day: &str| preview.lines().any(|line| line.starts_with('-') && line.contains(day));
    assert!(goes("2026-01-01T") && goes("2026-01-02T") && goes("2026-01-03T"), "{preview}");
    assert_eq!(snapshots(&tmp.p("snaps")).len(), 3);
    assert_eq!(text(&second.join("new")), "new");
}

/// Killed at any call that gives a name: what a person sees is complete, and the same command does the rest.
#[test]
fn a_snapshot_is_complete_or_absent() {
    needs!(has_tool("strace"), "there is no strace");
    let calls = "renameat2,renameat,rename,mkdirat,linkat,unlinkat";
    until_not_killed(80, 3, |at| {
        let tmp = Tmp::new();
        source(&tmp);
        sync(&tmp, "--snapshot --at 2026-01-01 s snaps").ok();
        let yesterday = tree(&tmp.p("s"));
        fs::write(tmp.p("s/b"), "second b").unwrap();
        tmp.file("s/new/x", "x");
        let ran = bcmr_killed_at(at, calls)
            .args(["sync", "-j1", "--snapshot", "--keep", "1d", "--at", "2026-01-02"])
            .args([tmp.p("s"), tmp.p("snaps")])
            .run();
        for snapshot in snapshots(&tmp.p("snaps")) {
            if snapshot.ends_with("2026-01-01T000000Z") {
                let told = differences(&yesterday, &tree(&snapshot), CONTENT);
                assert!(told.is_empty(), "{at}: {told:?}");
            } else {
                alike(&tmp.p("s"), &snapshot);
            }
        }
        tmp.file("s/later", "later");
        sync(&tmp, "--snapshot --keep 1d --at 2026-01-03 s snaps").ok();
        alike(&tmp.p("s"), &tmp.p("snaps/2026-01-03T000000Z"));
        assert_eq!(snapshots(&tmp.p("snaps")).len(), 1, "{at}");
        let left = names(&tmp.p("snaps/.bcmr-snapshots"));
        assert!(left.iter().all(|name| name == "2026-01-03T000000Z"), "{at}: {left:?}");
        ran
    });
}

/// Two at once would fill one tree.
#[test]
fn one_snapshot_is_made_at_a_time() {
    let tmp = Tmp::new();
    source(&tmp);
    sync(&tmp, "--snapshot --at 2026-01-01 s snaps").ok();
    let books = fs::File::open(tmp.p("snaps/.bcmr-snapshots")).unwrap();
    books.lock().unwrap();
    sync(&tmp, "--snapshot --at 2026-01-02 s snaps").code(8);
    // To look is allowed.
    sync(&tmp, "-n --snapshot s snaps").ok();
    drop(books);
    sync(&tmp, "--snapshot --at 2026-01-02 s snaps").ok();
    assert_eq!(snapshots(&tmp.p("snaps")).len(), 2);
}

#[test]
fn only_what_was_made_here_is_thinned_out() {
    let tmp = Tmp::new();
    source(&tmp);
    for day in 1..=9 {
        fs::write(tmp.p("s/b"), format!("day {day}")).unwrap();
        sync(&tmp, &format!("--snapshot --at 2026-03-0{day} s snaps")).ok();
    }
    // A person's own directory of such a name, and another one in the place of a snapshot.
    tmp.file("snaps/2026-02-01T000000Z/own", "own");
    fs::remove_dir_all(tmp.p("snaps/2026-03-02T000000Z")).unwrap();
    tmp.file("snaps/2026-03-02T000000Z/own", "own");
    tmp.file("snaps/notes", "notes");
    sync(&tmp, "--snapshot --keep 2d,2w --at 2026-03-10 s snaps").ok();
    let left: Vec<String> = names(&tmp.p("snaps")).iter().map(|n| n.to_string_lossy().into_owned()).collect();
    assert_eq!(
        left,
        [
            ".bcmr-snapshots",
            "2026-02-01T000000Z",
            "2026-03-02T000000Z",
            "2026-03-08T000000Z",
            "2026-03-09T000000Z",
            "2026-03-10T000000Z",
            "notes"
        ],
        "the 8th is a Sunday"
    );
    assert_eq!(text(&tmp.p("snaps/2026-03-08T000000Z/b")), "day 8");
    sync(&tmp, "--snapshot --keep 0d s snaps").code(2);
    sync(&tmp, "--snapshot --keep 3x s snaps").code(2);
    sync(&tmp, "--keep 3d s snaps").code(2);
    // What is refused leaves nothing in the source.
    for inside in ["s/snaps", "s/sub/snaps", "s"] {
        let before = tree(&tmp.p("s"));
        sync(&tmp, &format!("--snapshot s {inside}")).code(8);
        assert!(differences(&before, &tree(&tmp.p("s")), CONTENT).is_empty(), "{inside}");
    }
}

/// What is left of a snapshot that does not appear is listed, and taken away where no run is at it; one in a copy of it is not.
#[test]
fn an_unfinished_snapshot_can_be_taken_away() {
    let tmp = Tmp::new();
    source(&tmp);
    let run = |words: &str| bcmr(words.split(' ')).cwd(tmp.path()).run();
    sync(&tmp, "--snapshot --at 2026-01-01 s snaps").ok();
    assert_eq!(run("sessions snaps").ok().out, "");
    // A file that grows past what may be written is a failure, and no snapshot.
    tmp.file("s/large", noise(1, 100_000));
    let mut line =
        bcmr_after("ulimit -f 8; trap '' XFSZ", ["sync", "--snapshot", "s", "snaps"]).cwd(tmp.path());
    line.0.env("XDG_STATE_HOME", tmp.p("state"));
    line.run().code(6).says("does not appear");
    let (books, tree) = (tmp.p("snaps/.bcmr-snapshots"), tmp.p("snaps/.bcmr-snapshots/unfinished"));
    chmod(&tree.join("sub"), 0);
    // In a copy it is a directory like any other.
    run("copy --archive snaps copy").ok();
    assert_eq!(run("sessions --clean copy").ok().out, "");
    assert!(tmp.p("copy/.bcmr-snapshots/unfinished/b").exists());
    let held = fs::File::open(&books).unwrap();
    held.lock().unwrap();
    let told = run("sessions --clean --json snaps").ok().out;
    assert!(told.contains("\"running\":true") && tree.join("b").exists(), "{told}");
    drop(held);
    let told = run("sessions --json snaps").ok().out;
    assert!(told.contains("unfinished\"") && told.contains("\"removed\":false"), "{told}");
    let before = fs::metadata(&books).unwrap().modified().unwrap();
    let told = run("sessions --clean --json .").ok().out;
    assert!(told.contains("\"removed\":true") && told.contains("\"others\":1"), "{told}");
    assert_eq!(names(&books), ["2026-01-01T000000Z"]);
    assert_eq!(fs::metadata(&books).unwrap().modified().unwrap(), before);
    assert_eq!(snapshots(&tmp.p("snaps")).len(), 1);
    sync(&tmp, "--snapshot --at 2026-01-02 s snaps").ok();
    alike(&tmp.p("s"), &tmp.p("snaps/2026-01-02T000000Z"));
}

#[test]
fn an_empty_or_unreadable_source_makes_no_snapshot() {
    let tmp = Tmp::new();
    source(&tmp);
    sync(&tmp, "--snapshot --at 2026-01-01 s snaps").ok();
    tmp.dir("empty");
    let ran =
        sync(&tmp, "--snapshot --at 2026-01-02 --keep 1d empty snaps").code(8).says("the source is empty");
    // What is there is all that was kept: nothing of it is to go.
    assert!(!ran.err.contains("bcmr remove"), "{}", ran.err);
    sync(&tmp, "--snapshot --at 2026-01-02 -e * s snaps").code(8).says("or all that is in it is left out");
    assert_eq!(snapshots(&tmp.p("snaps")), [tmp.p("snaps/2026-01-01T000000Z")]);
    needs!(is_root(), "only root can act as another user");
    let tmp = Tmp::for_others();
    source(&tmp);
    for dir in [".", "s", "s/sub", "s/sub/deep", "s/sub/deep/d", "s/a", "s/b", "s/sub/c"] {
        std::os::unix::fs::chown(tmp.p(dir), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let run = |args: &[&str]| bcmr_as(NOBODY, &tmp, args).cwd(tmp.path()).run();
    chmod(&tmp.p("s/sub/c"), 0);
    run(&["sync", "--snapshot", "s", "snaps"]).code(1).says("does not appear");
    assert_eq!(snapshots(&tmp.p("snaps")).len(), 0);
    chmod(&tmp.p("s/sub/c"), 0o600);
    run(&["sync", "--snapshot", "s", "snaps"]).ok();
    assert_eq!(snapshots(&tmp.p("snaps")).len(), 1);
}

/// A clone, or a copy of what is beside: a file of its own, whatever its attributes were there.
#[test]
fn an_earlier_copy_is_cloned() {
    let tmp = Tmp::new();
    source(&tmp);
    sync(&tmp, "s one").ok();
    chmod(&tmp.p("s/b"), 0o600);
    // What looks the same is taken from there, so that it can be told where it was taken from.
    let times = fs::metadata(tmp.p("one/b")).unwrap().modified().unwrap();
    fs::write(tmp.p("one/b"), "FIRST B").unwrap();
    fs::File::open(tmp.p("one/b")).unwrap().set_modified(times).unwrap();
    sync(&tmp, "--reflink-dest one s two").ok();
    assert_eq!((text(&tmp.p("two/b")), mode(&tmp.p("two/b"))), ("FIRST B".into(), 0o600));
    assert_ne!(inode(&tmp.p("one/sub/c")), inode(&tmp.p("two/sub/c")));
    sync(&tmp, "--checksum --reflink-dest one s three").ok();
    alike(&tmp.p("s"), &tmp.p("three"));
    // On another file system it is copied, from there.
    let Some(other) = Tmp::elsewhere() else { return };
    let one = other.p("one").display().to_string();
    sync(&tmp, &format!("one {one}")).ok();
    sync(&tmp, &format!("-n --reflink-dest {one} s four")).ok();
    sync(&tmp, &format!("--reflink-dest {one} s four")).ok();
    assert_eq!((text(&tmp.p("four/b")), mode(&tmp.p("four/b"))), ("FIRST B".into(), 0o600));
    for dry in ["-n", ""] {
        sync(&tmp, format!("{dry} --link-dest {one} s five").trim_start()).code(8);
        sync(&tmp, format!("{dry} --link-dest {one} s four").trim_start()).code(8);
    }
}

#[test]
fn an_earlier_copy_is_linked_to_near_and_from_there() {
    for far in [None, Some(Far::pipe())] {
        let tmp = Tmp::new();
        source(&tmp);
        tmp.file("s/large", noise(3, 6 << 20));
        sync(&tmp, "s one").ok();
        tmp.file("s/b", "second b");
        let ran = match &far {
            None => sync(&tmp, "--link-dest one s two"),
            Some(far) => {
                let line = far.bcmr("sync").args(["--link-dest"]).args([tmp.p("one")]);
                Dir::Get.ends(line, far, &tmp.p("s"), &tmp.p("two")).run()
            }
        };
        ran.ok();
        alike(&tmp.p("s"), &tmp.p("two"));
        for (name, shared) in [("a", true), ("large", true), ("sub/deep/d", true), ("b", false)] {
            let is_one = inode(&tmp.p("one").join(name)) == inode(&tmp.p("two").join(name));
            assert_eq!(is_one, shared, "{name}, far {}", far.is_some());
        }
        // What is replaced in the one stays in the other.
        chmod(&tmp.p("s/a"), 0o640);
        sync(&tmp, "s two").ok();
        assert_eq!((mode(&tmp.p("one/a")), mode(&tmp.p("two/a"))), (0o644, 0o640));
    }
    let tmp = Tmp::new();
    source(&tmp);
    for dst in ["two", "new"] {
        sync(&tmp, &format!("-n --link-dest none s {dst}")).code(1);
        sync(&tmp, &format!("--link-dest none s {dst}")).code(1);
    }
}

/// Gives all that is below `top`, and itself, to an ordinary user.
fn given(top: &Path) {
    let chown = |path: &Path| std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    chown(top);
    tree(top).keys().for_each(|name| chown(&top.join(std::ffi::OsStr::from_bytes(name))));
}

/// What a user sealed against writing is thinned out like all else, and what cannot go keeps no new snapshot from appearing.
#[test]
fn sealed_directories_do_not_end_thinning_out() {
    needs!(is_root(), "only root can act as another user");
    let tmp = Tmp::for_others();
    tmp.file("s/ro/deep/f", "1");
    tmp.file("s/shut/f", "2");
    given(&tmp.p("s"));
    chmod(&tmp.p("s/ro/deep"), 0o500);
    chmod(&tmp.p("s/ro"), 0o555);
    let run = |day: u32| {
        let at = format!("2026-02-0{day}");
        let words = ["sync", "--snapshot", "--keep", "1d", "--at", &at, "s", "m"];
        bcmr_as(NOBODY, &tmp, words).cwd(tmp.path()).run()
    };
    let only = |day: u32| {
        assert_eq!(snapshots(&tmp.p("m")), [tmp.p(format!("m/2026-02-0{day}T000000Z"))]);
        assert_eq!(mode(&tmp.p(format!("m/2026-02-0{day}T000000Z/ro"))), 0o555);
    };
    for day in 1..=3 {
        run(day).ok();
        only(day);
    }
    let books = tmp.p("m/.bcmr-snapshots");
    assert_eq!(names(&books), ["2026-02-03T000000Z"]);
    // Of somebody else, who alone may take away what is in it; and what its owner may not even list.
    tmp.file("m/.bcmr-snapshots/going-2026-01-01T000000Z/theirs/f", "3");
    tmp.file("m/.bcmr-snapshots/going-2026-01-02T000000Z/f", "4");
    let shut = books.join("going-2026-01-02T000000Z");
    given(&shut);
    chmod(&shut, 0);
    std::os::unix::fs::chown(books.join("going-2026-01-01T000000Z"), Some(NOBODY), Some(NOBODY)).unwrap();
    let ran = run(4).code(1);
    assert!(ran.err.contains("clean up") && ran.err.contains("going-2026-01-01T000000Z"), "{}", ran.err);
    only(4);
    assert_eq!(names(&books), ["2026-02-04T000000Z", "going-2026-01-01T000000Z"]);
    fs::remove_dir_all(books.join("going-2026-01-01T000000Z")).unwrap();
    run(5).ok();
    only(5);
}

/// M8: what a full or a failing disk has cost is missing, and the same command may bring it.
#[test]
fn a_snapshot_that_lost_attributes_for_now_does_not_appear() {
    needs!(has_tool("strace"), "there is no strace");
    let tmp = Tmp::new();
    source(&tmp);
    let with = |error: &str, at: &str| {
        let line = bcmr_failing_at("1+", "utimensat", error);
        line.args(["sync", "--snapshot", "--at", at, "s", "snaps"]).cwd(tmp.path()).run()
    };
    for (error, code) in [("EIO", 1), ("ENOSPC", 6)] {
        with(error, "2026-01-01").code(code).says("does not appear");
        assert_eq!(snapshots(&tmp.p("snaps")).len(), 0, "{error}");
    }
    sync(&tmp, "--snapshot --at 2026-01-01 s snaps").ok();
    alike(&tmp.p("s"), &tmp.p("snaps/2026-01-01T000000Z"));
    // What that file system cannot hold at all is let go, and told.
    fs::write(tmp.p("s/b"), "second b").unwrap();
    with("EOPNOTSUPP", "2026-01-02").code(1);
    assert_eq!(snapshots(&tmp.p("snaps")).len(), 2);
}

/// ext4 says ENOSPC both of a full disk and of attributes that are larger than it lets those of one file be. The second lasts,
/// and would keep every snapshot from appearing.
#[test]
fn an_attribute_that_never_fits_keeps_no_snapshot_from_appearing() {
    needs!(is_root() && has_tool("mkfs.ext4"), "needs root and mkfs.ext4");
    let tmp = Tmp::new();
    let _disk = match Mount::image("ext4", 16, &tmp.dir("disk")) {
        Ok(disk) => disk,
        Err(why) => return skipped("ext4", &why),
    };
    let (empty, large) = (tmp.file("s/empty", ""), vec![b'v'; 16 << 10]);
    rustix::fs::lsetxattr(&empty, "user.large", &large, rustix::fs::XattrFlags::empty()).unwrap();
    let ran =
        sync(&tmp, "--snapshot --at 2026-01-01 s disk/snaps").code(1).says("larger than the file system");
    assert!(!ran.err.contains("does not appear"), "{}", ran.err);
    assert_eq!(snapshots(&tmp.p("disk/snaps")).len(), 1);
    // R7: it is not possible there, so a move tells it and the source goes.
    std::fs::copy(&empty, tmp.p("moved")).unwrap();
    rustix::fs::lsetxattr(tmp.p("moved"), "user.large", &large, rustix::fs::XattrFlags::empty()).unwrap();
    bcmr(["move", "moved", "disk/"]).cwd(tmp.path()).run().code(1).says("larger than the file system");
    assert!(tmp.p("disk/moved").exists() && !tmp.p("moved").exists());
    // The twin: a disk that is full of something else takes the same attribute no better, but might.
    let mut ballast = fs::File::create(tmp.p("disk/ballast")).unwrap();
    while std::io::Write::write_all(&mut ballast, &[1; 1 << 10]).is_ok() {}
    drop(ballast);
    bcmr(["copy", "--archive", "-T", "s", "disk/s"]).cwd(tmp.path()).run().code(6).says("No space left");
}

/// A run that is stopped while it takes old ones away says so, unless all of them are gone.
#[test]
fn thinning_out_that_is_stopped_is_told() {
    needs!(has_tool("strace"), "there is no strace");
    let mut stopped = 0;
    for nth in [60, 70, 100] {
        let tmp = Tmp::new();
        (0..50).for_each(|n| _ = tmp.file(format!("s/{n}"), "x"));
        for day in 1..=3 {
            sync(&tmp, &format!("--snapshot --at 2026-01-0{day} s snaps")).ok();
        }
        // The signal comes in the first tree that goes, and is heard before the second one does.
        let (stop, wait) =
            (format!("inject=unlinkat:signal=SIGTERM:when={nth}"), "inject=renameat2:delay_exit=100000");
        let strace =
            ["-f", "-qq", "-o", "/dev/null", "-e", "trace=unlinkat,renameat2", "-e", &stop, "-e", wait, BCMR];
        let words = "sync -j1 --snapshot --keep 1d --at 2026-01-04 s snaps";
        let line = Line::new(Path::new("strace")).args(strace).args(words.split(' ')).cwd(tmp.path());
        let ran = line.run().one_of(&[0, 143]);
        let is_there = tmp.p("snaps/2026-01-04T000000Z").exists();
        assert!(is_there || ran.code == 143, "{nth}: {ran:?}");
        let is_all_gone =
            snapshots(&tmp.p("snaps")).len() == 1 && names(&tmp.p("snaps/.bcmr-snapshots")).len() == 1;
        assert_eq!(ran.code == 0, is_all_gone, "{nth}: {ran:?}");
        stopped += i32::from(is_there && ran.code == 143);
        sync(&tmp, "--snapshot --keep 1d --at 2026-01-05 s snaps").ok();
        assert_eq!(names(&tmp.p("snaps/.bcmr-snapshots")), ["2026-01-05T000000Z"], "{nth}");
    }
    assert!(stopped > 0, "none of them was stopped in time");
}

/// An earlier snapshot that a disk fails to read is there all the same: no new one is made as if it were not.
#[test]
fn an_earlier_snapshot_that_cannot_be_looked_at_is_an_error() {
    needs!(has_tool("strace"), "there is no strace");
    let tmp = Tmp::new();
    source(&tmp);
    sync(&tmp, "--snapshot --at 2026-01-01 s snaps").ok();
    let book = tmp.p("snaps/.bcmr-snapshots/2026-01-01T000000Z").canonicalize().unwrap();
    let strace = ["-f", "-qq", "-o", "/dev/null", "-e", "trace=read", "-e", "inject=read:error=EIO", "-P"];
    for dry in ["", "-n "] {
        let words = format!("sync {dry}--snapshot --keep 1d --at 2026-01-02 s snaps");
        let line = Line::new(Path::new("strace")).args(strace).args([book.as_os_str()]).args([BCMR]);
        line.args(words.split(' ')).cwd(tmp.path()).run().code(1).says("2026-01-01T000000Z");
        assert_eq!(snapshots(&tmp.p("snaps")).len(), 1, "{words}");
    }
    sync(&tmp, "--snapshot --at 2026-01-02 s snaps").ok();
    let [first, second] = &snapshots(&tmp.p("snaps"))[..] else { panic!("both are there") };
    assert_eq!(inode(&first.join("a")), inode(&second.join("a")));
}

/// What a user has called as parts of a snapshot are is the user's own.
#[test]
fn a_directory_of_the_users_is_no_unfinished_snapshot() {
    let tmp = Tmp::new();
    tmp.dir("proj/unfinished/sub");
    std::os::unix::fs::symlink("/nowhere", tmp.p("proj/unfinished.book")).unwrap();
    tmp.file("more/.bcmr-snapshots/unfinished/x", "x");
    tmp.dir("more/.bcmr-snapshots/unfinished.book");
    for place in ["proj", "more", "more/.bcmr-snapshots"] {
        let ran = bcmr(["sessions", "--clean", place]).cwd(tmp.path()).run().ok();
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""), "{place}");
    }
    assert!(tmp.p("more/.bcmr-snapshots/unfinished/x").exists());
}

/// M8: a snapshot that has its name is told as one, whatever of its making stays.
#[test]
fn a_snapshot_whose_book_stays_is_there() {
    needs!(has_tool("strace"), "there is no strace");
    let tmp = Tmp::new();
    source(&tmp);
    let book = tmp.p("snaps/.bcmr-snapshots/unfinished.book");
    let traced = |inject: &str, at: &str| {
        let line = Line::new(Path::new("strace")).args(["-f", "-qq", "-o", "log", "-e", "trace=unlinkat"]);
        let line = line.args(["-e", inject, BCMR, "sync", "-j1", "--snapshot", "--at", at, "s", "snaps"]);
        let mut line = line.cwd(tmp.path());
        line.0.env("XDG_STATE_HOME", tmp.p("state"));
        line.run()
    };
    // The second one is made as the third is.
    sync(&tmp, "--snapshot --at 2026-01-01 s snaps").ok();
    traced("signal=none", "2026-01-02").ok();
    // Calls are counted for each thread.
    let log = text(&tmp.p("log"));
    let last = log.lines().rfind(|call| call.contains("unfinished.book")).unwrap();
    let thread = last.split(' ').next().unwrap();
    let calls: Vec<&str> =
        log.lines().filter(|call| call.starts_with(thread) && call.contains("unlinkat(")).collect();
    let at = calls.iter().rposition(|call| call.contains("unfinished.book")).unwrap() + 1;
    let ran = traced(&format!("inject=unlinkat:error=EIO:when={at}"), "2026-01-03");
    assert!(ran.code == 1 && !ran.err.contains("does not appear"), "{}", ran.err);
    alike(&tmp.p("s"), &tmp.p("snaps/2026-01-03T000000Z"));
    assert!(book.exists() && ran.err.contains("unfinished.book"), "{}", ran.err);
    sync(&tmp, "--snapshot --at 2026-01-04 s snaps").ok();
    assert!(!book.exists());
}
