//! `bcmr sync` on one machine: what becomes of what, and what is never deleted.

use crate::common::remote::*;
use crate::common::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// `bcmr sync` with these words in `tmp`, which also remembers.
fn sync(tmp: &Tmp, words: &str) -> Ran {
    let mut line = bcmr(std::iter::once("sync").chain(words.split(' '))).cwd(tmp.path());
    line.0.env("XDG_STATE_HOME", tmp.p("state"));
    line.run()
}

#[track_caller]
fn alike(tmp: &Tmp) {
    assert_same(&tmp.p("s"), &tmp.p("d"), Exact { times: false, ..EVERYTHING });
    if let Some(text) = rsync_would(&tmp.p("s"), &tmp.p("d")) {
        assert!(text.is_empty(), "rsync would: {text}");
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn contents_go_to_contents_whatever_slashes_are_typed() {
    for src in ["s", "s/", "s/.", "./s//"] {
        for (dst, there) in [("d", false), ("d/", false), ("d", true), ("d/", true), ("d/.", true)] {
            let tmp = Tmp::new();
            tmp.file("s/sub/a", "A");
            symlink("nowhere", tmp.p("s/link")).unwrap();
            if there {
                tmp.file("d/sub/b", "B");
            }
            sync(&tmp, &format!("{src} {dst}")).ok();
            assert_eq!(text(&tmp.p("d/sub/a")), "A", "{src} {dst}");
            assert_eq!(fs::read_link(tmp.p("d/link")).unwrap(), Path::new("nowhere"));
            assert_eq!(tmp.p("d/sub/b").exists(), there, "nothing is deleted unasked");
        }
    }
}

#[test]
fn what_is_the_same_is_not_read_and_attributes_follow() {
    let tmp = Tmp::new();
    for name in ["kept", "mode", "time", "xattr", "link"] {
        tmp.file(format!("s/{name}"), name);
    }
    sync(&tmp, "s d").ok();
    let inode = |name: &str| fs::metadata(tmp.p("d").join(name)).unwrap().ino();
    let before = ["kept", "mode", "time", "xattr"].map(inode);
    chmod(&tmp.p("s/mode"), 0o4711);
    let _none = rustix::fs::lsetxattr(tmp.p("s/xattr"), "user.x", b"y", rustix::fs::XattrFlags::empty());
    let json = sync(&tmp, "--json s d").ok().out;
    assert!(json.contains("\"updated\":2") || json.contains("\"updated\":1"), "{json}");
    assert_eq!(before, ["kept", "mode", "time", "xattr"].map(inode), "contents stay where they are");
    alike(&tmp);
    // Another time and the same content: with --checksum the time alone is brought up to date.
    fs::File::open(tmp.p("s/time")).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    sync(&tmp, "--checksum s d").ok();
    assert_eq!(before[2], inode("time"));
    alike(&tmp);
    // The same size and time and another content is only found by reading.
    let times = fs::metadata(tmp.p("d/kept")).unwrap().modified().unwrap();
    fs::write(tmp.p("d/kept"), "KEPT").unwrap();
    fs::File::open(tmp.p("d/kept")).unwrap().set_modified(times).unwrap();
    sync(&tmp, "s d").ok();
    assert_eq!(text(&tmp.p("d/kept")), "KEPT");
    sync(&tmp, "-c s d").ok();
    assert_eq!(text(&tmp.p("d/kept")), "kept");
}

/// What is told and counted is what -n says: directories too, and each name of a file that stays.
#[test]
fn attributes_of_directories_and_names_that_stay_are_told() {
    let tmp = Tmp::new();
    tmp.file("s/d/a", "1");
    fs::hard_link(tmp.p("s/d/a"), tmp.p("s/d/b")).unwrap();
    sync(&tmp, "s d").ok();
    let counted = |updated: u32| {
        let told = sync(&tmp, "--json s d").ok().out;
        assert!(told.contains(&format!("\"updated\":{updated},")), "{updated}: {told}");
        assert_eq!(told.matches("\"action\":\"updated\"").count(), updated as usize, "{told}");
        assert_eq!(told.matches("\"action\":\"kept\"").count(), 2, "{told}");
    };
    counted(0);
    chmod(&tmp.p("s/d"), 0o700);
    counted(1);
    chmod(&tmp.p("s"), 0o700);
    counted(1);
    if rustix::fs::lsetxattr(tmp.p("s/d"), "user.x", b"y", rustix::fs::XattrFlags::empty()).is_ok() {
        counted(1);
    }
    counted(0);
    alike(&tmp);
}

/// What has further names at the destination, as copies by hard links have, changes under one of them only.
#[test]
fn a_further_name_of_what_is_at_the_destination_keeps_its_attributes() {
    let tmp = Tmp::new();
    let file = tmp.file("s/f", "F");
    chmod(&file, 0o644);
    sync(&tmp, "s d").ok();
    fs::hard_link(tmp.p("d/f"), tmp.p("snapshot")).unwrap();
    chmod(&file, 0o600);
    sync(&tmp, "s d").ok();
    assert_eq!((mode(&tmp.p("d/f")), mode(&tmp.p("snapshot"))), (0o600, 0o644));
    alike(&tmp);
}

/// A run that finds nothing to do changes nothing, not even the ctime of directories.
#[test]
fn what_is_the_same_is_not_touched() {
    let tmp = Tmp::new();
    tmp.file("s/sub/deep/f", "1");
    sync(&tmp, "s d").ok();
    let ctimes = || {
        ["", "sub", "sub/deep", "sub/deep/f"]
            .map(|n| fs::metadata(tmp.p("d").join(n)).unwrap())
            .map(|m| (m.ctime(), m.ctime_nsec()))
    };
    let before = ctimes();
    sync(&tmp, "--delete s d").ok();
    assert_eq!(before, ctimes());
}

#[test]
fn kinds_follow_the_source() {
    let tmp = Tmp::new();
    for name in ["s/file", "s/dir/in", "s/empty", "d/file/full/in", "d/dir"] {
        tmp.file(name, name);
    }
    tmp.dir("d/empty");
    // What is empty goes; what holds something goes only where things may be deleted.
    sync(&tmp, "s d").code(1).says("cannot overwrite a directory").says("--delete");
    assert_eq!((text(&tmp.p("d/empty")), text(&tmp.p("d/dir/in"))), ("s/empty".into(), "s/dir/in".into()));
    assert_eq!(text(&tmp.p("d/file/full/in")), "d/file/full/in");
    let plan = sync(&tmp, "-n --delete s d").ok().out;
    assert!(plan.contains("- file/") && plan.contains("+ file"), "{plan}");
    sync(&tmp, "--delete s d").ok();
    alike(&tmp);
    // And back.
    fs::remove_file(tmp.p("s/file")).unwrap();
    symlink("nowhere", tmp.p("s/file")).unwrap();
    fs::remove_dir_all(tmp.p("s/dir")).unwrap();
    mkfifo(&tmp.p("s/dir"));
    sync(&tmp, "--delete s d").ok();
    alike(&tmp);
}

/// An empty directory that gives way goes as a link does in its place, and `check` says the same. One that holds something is told by
/// itself.
#[test]
fn what_gives_way_is_told_by_a_preview() {
    let shown = |ran: Ran| {
        ran.out.lines().filter(|line| line.starts_with(['+', '-', '~'])).collect::<Vec<_>>().join(", ")
    };
    for far in [false, true] {
        let tmp = Tmp::new();
        tmp.file("s/n", "n");
        tmp.dir("d/n");
        let run = |flags: &str| {
            let pipe = Far::pipe();
            let line =
                if far { pipe.bcmr("sync") } else { bcmr(["sync"]) }.args(flags.split(' ')).args(["s"]);
            let mut line =
                if far { line.args([pipe.at(tmp.p("d"))]) } else { line.args(["d"]) }.cwd(tmp.path());
            line.0.env("XDG_STATE_HOME", tmp.p("state"));
            line.run()
        };
        let alike = |said: String| assert_eq!(said.replace("~ ./  mtime, ", ""), "~ n  type", "far {far}");
        alike(shown(run("-n").ok()));
        alike(shown(run("-n --delete").ok()));
        alike(shown(bcmr(["check", "s/.", "d"]).cwd(tmp.path()).run()));
        tmp.file("d/n/in", "in");
        let said = shown(run("-n --delete"));
        assert!(said.contains("+ n") && said.contains("- n/"), "{said}");
        fs::remove_file(tmp.p("d/n/in")).unwrap();
        run("--delete").ok();
        assert_eq!(text(&tmp.p("d/n")), "n");
    }
}

#[test]
fn what_only_the_destination_has_goes_where_that_is_asked_for() {
    let tmp = Tmp::new();
    for name in ["s/a", "s/sub/b", "d/a", "d/x", "d/sub/y", "d/old/deep/z"] {
        tmp.file(name, name);
    }
    // Another size: a clock that is coarse gives both one time.
    fs::write(tmp.p("d/a"), "old content").unwrap();
    fs::write(tmp.p("outside"), "outside").unwrap();
    symlink("../outside", tmp.p("d/link")).unwrap();
    symlink("..", tmp.p("d/up")).unwrap();
    sync(&tmp, "s d").ok();
    assert!(tmp.p("d/old/deep/z").exists() && tmp.p("d/x").exists());
    let plan = sync(&tmp, "-n --delete s d").ok().out;
    for line in ["- x", "- old/  1 file", "- link", "- up", "- sub/y"] {
        assert!(plan.contains(line), "{line} in {plan}");
    }
    assert!(tmp.p("d/old/deep/z").exists(), "-n changes nothing");
    let said = sync(&tmp, "--delete --json s d").ok().out;
    assert!(said.contains("\"deleted\":7"), "{said}");
    alike(&tmp);
    assert_eq!(text(&tmp.p("outside")), "outside");
    assert!(sync(&tmp, "-n --delete s d").ok().out.contains("no differences"));
}

/// A name goes although what it leads to stays under another one that has just been made.
#[test]
fn a_further_name_of_what_stays_goes() {
    let tmp = Tmp::new();
    tmp.file("s/x", "X");
    fs::hard_link(tmp.p("s/x"), tmp.p("s/z")).unwrap();
    sync(&tmp, "s d").ok();
    fs::rename(tmp.p("s/z"), tmp.p("s/y")).unwrap();
    sync(&tmp, "--delete s d").ok();
    assert_eq!(names(&tmp.p("d")), ["x", "y"]);
    alike(&tmp);
}

#[test]
fn what_the_filter_leaves_out_stays_unless_it_is_to_go() {
    let tmp = Tmp::new();
    for name in ["s/a", "s/b.o", "d/b.o", "d/c.o", "d/x", "d/sub/d.o", "d/sub/y"] {
        tmp.file(name, name);
    }
    sync(&tmp, "--delete -e *.o s d").ok();
    assert!(tmp.p("d/b.o").exists() && tmp.p("d/c.o").exists() && !tmp.p("d/x").exists());
    let plan = sync(&tmp, "-n --delete-excluded -e *.o s d").ok().out;
    assert!(plan.contains("- b.o") && plan.contains("- c.o"), "{plan}");
    sync(&tmp, "--delete-excluded -e *.o s d").ok();
    assert_eq!(names(&tmp.p("d")), ["a"]);
    assert_eq!(text(&tmp.p("s/b.o")), "s/b.o");
}

/// M11: also below a directory that only the destination has, here and seen from another machine; `-n` says the same.
#[test]
fn what_the_filter_leaves_out_keeps_the_directories_that_lead_to_it() {
    for far in [false, true] {
        for (flags, stays) in [
            ("--delete -e *.o", &["gone/sub/work.o"][..]),
            ("--delete=before -e *.o", &["gone/sub/work.o"]),
            ("--delete -e /gone/sub/", &["gone/sub/more", "gone/sub/work.o"]),
            ("--delete --backup-dir ../kept -e *.o", &["gone/sub/work.o"]),
            ("--delete", &[]),
            ("--delete-excluded -e *.o", &[]),
            ("--delete --gitignore", &["gone/sub/work.o"]),
            ("--delete=before --gitignore", &["gone/sub/work.o"]),
            ("--delete-excluded --gitignore", &[]),
        ] {
            let tmp = Tmp::new();
            tmp.file("s/keep", "k");
            for name in ["gone/sub/work.o", "gone/sub/more", "gone/other/deep/a", "gone/b"] {
                tmp.file(format!("d/{name}"), name);
            }
            if flags.contains("gitignore") {
                // Of what only the destination has another machine knows by the copies of these files.
                fs::write(tmp.p("s/.gitignore"), "*.o\n").unwrap();
                fs::write(tmp.p("d/.gitignore"), "*.o\n").unwrap();
            }
            let run = |words: &str| {
                let words = format!("{flags} {words}s");
                let pipe = Far::pipe();
                let line = if far {
                    pipe.bcmr("sync").args(words.split(' ')).args([pipe.at(tmp.p("d"))])
                } else {
                    bcmr(["sync"]).args(words.split(' ')).args(["d"])
                };
                let mut line = line.cwd(tmp.path());
                line.0.env("XDG_STATE_HOME", tmp.p("state"));
                line.run()
            };
            let about = format!("far {far}, {flags}");
            let said = run("-n ").ok().out;
            assert_eq!(said.contains("4 only at"), stays.is_empty(), "{about}: {said}");
            run("").ok();
            let left = |name: &&str| tmp.p("d").join(name).exists();
            let all = ["gone/b", "gone/other", "gone/sub/more", "gone/sub/work.o", "gone/sub", "gone"];
            let there: Vec<&str> = all.into_iter().filter(left).collect();
            let above: &[&str] = if stays.is_empty() { &[] } else { &["gone/sub", "gone"] };
            assert_eq!(there, [stays, above].concat(), "{about}");
            let again = run("-n ").ok().out;
            assert!(again.contains("no differences"), "{about}: {again}");
        }
    }
}

/// What is kept below DST is left alone there, and what is beside it goes.
#[test]
fn what_is_kept_below_the_destination_stays_there() {
    let tmp = Tmp::new();
    tmp.file("s/f", "1");
    tmp.file("d/sub/old", "x");
    tmp.file("d/sub/deep/old", "x");
    for _ in 0..2 {
        let said = sync(&tmp, "-n --delete --backup-dir d/sub/bk s d").ok().out;
        assert_eq!(said.contains("only at"), tmp.p("d/sub/old").exists(), "{said}");
        sync(&tmp, "--delete --backup-dir d/sub/bk s d").ok();
        assert_eq!(names(&tmp.p("d/sub")), ["bk"]);
    }
    assert_eq!(text(&tmp.p("s/f")), "1");
}

/// A directory in which something stays does not make way.
#[test]
fn what_the_filter_leaves_out_is_not_replaced_with_the_directory_that_it_is_in() {
    let tmp = Tmp::new();
    tmp.file("s/k", "new");
    tmp.file("d/k/work.o", "work");
    let ran = sync(&tmp, "--delete -e *.o s d");
    assert_ne!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("--delete-excluded") && !ran.err.contains("run: "), "{}", ran.err);
    assert_eq!(text(&tmp.p("d/k/work.o")), "work");
    sync(&tmp, "--delete-excluded -e *.o s d").ok();
    assert_eq!(text(&tmp.p("d/k")), "new");
}

/// What is left out for its size, or for what it is at the source, goes as well.
#[test]
fn what_is_left_out_for_what_it_is_goes_where_that_is_asked_for() {
    let tmp = Tmp::new();
    tmp.file("s/small", "1");
    tmp.file("s/big", [b'x'; 100]);
    tmp.file("s/dir/f", "1");
    sync(&tmp, "s d").ok();
    fs::remove_dir_all(tmp.p("d/dir")).unwrap();
    tmp.file("d/dir", "no directory here");
    let words = "--delete-excluded --max-size 50 -e dir/ s d";
    let said = sync(&tmp, &format!("-n {words}")).ok().out;
    assert!(said.contains("2 only at"), "{said}");
    sync(&tmp, words).ok();
    assert_eq!(names(&tmp.p("d")), ["small"]);
}

/// Names of one file at the destination that are names of several at the source, in every order.
#[test]
fn names_of_one_file_become_names_of_others() {
    for [a, b, c] in
        [["a", "b", "c"], ["a", "c", "b"], ["b", "a", "c"], ["b", "c", "a"], ["c", "a", "b"], ["c", "b", "a"]]
    {
        let tmp = Tmp::new();
        let at = |side: &str, name: &str| tmp.p(side).join(name);
        tmp.file(format!("s/{a}"), "same");
        fs::hard_link(at("s", a), at("s", b)).unwrap();
        tmp.file(format!("s/{c}"), "other content");
        fs::create_dir(tmp.p("d")).unwrap();
        let copied = std::process::Command::new("cp").arg("-p").args([at("s", a), at("d", a)]).status();
        assert!(copied.unwrap().success());
        fs::hard_link(at("d", a), at("d", c)).unwrap();
        tmp.file(format!("d/{b}"), "x");
        sync(&tmp, "--delete s d").ok();
        alike(&tmp);
        let said = sync(&tmp, "--json --delete s d").ok().out;
        assert!(said.contains("\"others\":0"), "nothing was done: {said}");
    }
}

#[test]
fn no_more_goes_than_may() {
    let fill = |tmp: &Tmp, kept: usize, old: usize| {
        for n in 0..kept {
            tmp.file(format!("s/{n}"), "");
            tmp.file(format!("d/{n}"), "");
        }
        for n in 0..old {
            tmp.file(format!("d/old/{n}"), "");
        }
    };
    // Entries that are deleted, with the directory that they are in, of all that the destination has.
    for (kept, old, flags, goes) in [
        (90, 29, "", true),
        (90, 30, "", false),
        (10, 50, "", true),
        (90, 30, "--max-delete=31", true),
        (90, 31, "--max-delete=31", false),
        (90, 90, "--max-delete=100%", true),
        (90, 90, "--max-delete=50%", false),
        (3, 1, "--max-delete=1", false),
        (3, 0, "--max-delete=0", true),
    ] {
        let tmp = Tmp::new();
        fill(&tmp, kept, old);
        tmp.file("s/new", "new");
        let flags = if flags.is_empty() { String::new() } else { format!("{flags} ") };
        for dry in ["-n ", ""] {
            let ran = sync(&tmp, &format!("{dry}--delete {flags}s d"));
            if goes {
                ran.ok();
            } else {
                ran.code(8).says("entries would go").says("--max-delete=100%");
            }
        }
        assert_eq!(tmp.p("d/old").exists(), !goes && old > 0, "{kept} {old} {flags}");
        assert_eq!(text(&tmp.p("d/new")), "new", "all else is done");
    }
}

#[test]
fn an_empty_source_deletes_nothing() {
    let tmp = Tmp::new();
    tmp.dir("s");
    tmp.file("d/a", "A");
    for dry in ["-n ", ""] {
        sync(&tmp, &format!("{dry}--delete s d")).code(8).says("the source is empty");
        sync(&tmp, &format!("{dry}--delete-excluded s d")).code(8);
    }
    assert_eq!(text(&tmp.p("d/a")), "A");
    // The twin: directories of the source may be empty, and both may be.
    tmp.dir("s/empty");
    sync(&tmp, "--delete s d").ok();
    assert_eq!(names(&tmp.p("d")), ["empty"]);
    fs::remove_dir(tmp.p("s/empty")).unwrap();
    fs::remove_dir(tmp.p("d/empty")).unwrap();
    sync(&tmp, "--delete s d").ok();
}

/// As a user to whom something is closed.
#[test]
fn where_something_cannot_be_read_nothing_is_deleted() {
    needs!(is_root(), "only root can act as another user");
    for (closed, mode) in [("s/sub", 0o300), ("s/sub", 0o000), ("s/a", 0o000), ("d/sub", 0o300)] {
        let tmp = Tmp::for_others();
        for name in ["s/a", "s/sub/b", "d/sub/b", "d/sub/y", "d/x"] {
            tmp.file(name, name);
        }
        let run = |args: &[&str]| bcmr_as(NOBODY, &tmp, args).cwd(tmp.path()).run();
        run(&["remove", "-rf", "none"]).ok();
        for dir in ["s", "d", "s/sub", "d/sub"] {
            std::os::unix::fs::chown(tmp.p(dir), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let owner = if closed.starts_with("d/") { Some(1) } else { Some(NOBODY) };
        std::os::unix::fs::chown(tmp.p(closed), owner, None).unwrap();
        chmod(&tmp.p(closed), mode);
        // That a file cannot be read is not known where only names are.
        let whens = if closed == "s/a" { &["--delete"][..] } else { &["--delete", "--delete=before"] };
        for when in whens {
            let ran = run(&["sync", when, "s", "d"]);
            assert!([1, 8].contains(&ran.code), "{when} {closed} {mode:o}: {} {}", ran.code, ran.err);
            assert!(
                tmp.p("d/x").exists() && fs::symlink_metadata(tmp.p("d/sub/y")).is_ok(),
                "{when} {closed} {mode:o}: {}",
                ran.err
            );
        }
        let dry = run(&["sync", "-n", "--delete", "s", "d"]);
        // A file that cannot be read is only met when it is read.
        assert!(closed == "s/a" || dry.code != 0, "{closed} {mode:o}: {}", dry.err);
    }
}

/// What goes is told by `-n` also where its owner may list it, and not look into it.
#[test]
fn what_goes_is_told_where_it_cannot_be_counted() {
    needs!(is_root(), "only root can act as another user");
    let tmp = Tmp::for_others();
    fs::set_permissions(tmp.path(), fs::Permissions::from_mode(0o777)).unwrap();
    tmp.file("s/a", "A");
    let run = |words: &str| bcmr_as(NOBODY, &tmp, words.split(' ')).cwd(tmp.path()).run();
    run("sync s d").ok();
    tmp.file("s/x/f", "F");
    run("sync s d").ok();
    fs::remove_dir_all(tmp.p("s/x")).unwrap();
    chmod(&tmp.p("d/x"), 0o400);
    let ran = run("sync -n --delete s d").ok();
    assert!(ran.out.contains("- x/") && ran.err.contains("cannot count"), "{ran:?}");
    // A comparison that is not of what goes has failed.
    run("check --archive -T s d").code(2).says("cannot count");
    run("sync --delete s d").ok();
    assert_eq!(names(&tmp.p("d")), ["a"]);
}

#[test]
fn a_snapshot_has_nothing_that_could_go_first() {
    let tmp = Tmp::new();
    tmp.file("s/a", "A");
    sync(&tmp, "--delete=before --snapshot s d").code(2);
    assert!(!tmp.p("d").exists());
}

/// Where there is no room for both, what only the destination has goes first, or nothing goes.
#[test]
fn what_goes_first_makes_room() {
    needs!(is_root(), "mounting needs root");
    for (when, kept) in
        [("--delete", ""), ("--delete=before", ""), ("--delete=before", "--backup-dir d/kept ")]
    {
        let tmp = Tmp::new();
        tmp.file("s/new", noise(1, 5 << 20));
        let _disk = match Mount::tmpfs("size=8m", &tmp.p("d")) {
            Ok(mount) => mount,
            Err(why) => return skipped("what_goes_first_makes_room", &why),
        };
        tmp.file("d/old", noise(2, 5 << 20));
        let ran = sync(&tmp, &format!("{when} {kept}s d"));
        if kept.is_empty() && when == "--delete=before" {
            ran.ok();
            assert_eq!(names(&tmp.p("d")), ["new"]);
            continue;
        }
        // What is kept takes its room still.
        assert!(ran.code != 0 && !tmp.p("d/new").exists(), "{when} {kept}");
        let whole = fs::metadata(tmp.p("d/old")).map_or(0, |old| old.len());
        assert_eq!(whole == 5 << 20, kept.is_empty(), "{when} {kept}");
        if !kept.is_empty() {
            let run = tmp.p("d/kept").join(&names(&tmp.p("d/kept"))[0]);
            assert_eq!(fs::read(run.join("old/old")).unwrap(), noise(2, 5 << 20));
        }
    }
}

#[test]
fn nothing_is_deleted_where_something_is_mounted() {
    needs!(is_root(), "mounting needs root");
    let tmp = Tmp::new();
    for name in ["s/a", "s/merged/b", "d/a", "d/merged/b", "elsewhere/kept"] {
        tmp.file(name, name);
    }
    for name in ["d/old/a.o", "d/old/before/b", "d/old/zzz/b.o", "d/old/zzz/c"] {
        tmp.file(name, name);
    }
    let inside = [tmp.p("d/merged"), tmp.p("d/old/deep"), tmp.p("d/top")];
    let mut mounts = Vec::new();
    for at in &inside[..2] {
        match Mount::tmpfs("size=1m", at) {
            Ok(mount) => mounts.push(mount),
            Err(why) => return skipped("nothing_is_deleted_where_something_is_mounted", &why),
        }
        fs::write(at.join("kept"), "kept").unwrap();
    }
    // A directory of the same file system that is mounted a second time.
    mounts.push(Mount::bind(&tmp.p("elsewhere"), &inside[2]).unwrap());
    // Whatever else stays there, a directory that holds a mount point goes neither as a whole nor in part.
    for what in ["", "-e *.o ", "--backup-dir kept ", "--backup-dir d/old/kept ", "-e *.o --backup-dir kept "]
    {
        for when in ["-n --delete", "--delete=before", "--delete"] {
            tmp.file("d/x", "x");
            let ran = sync(&tmp, &format!("{when} --max-delete=100% {what}s d")).code(8);
            for at in ["d/old/deep", "d/top"] {
                let told = format!("cannot remove '{at}': it is a mount point");
                assert!(ran.err.contains(&told), "{when} {what}: {}", ran.err);
            }
            for at in &inside {
                assert!(at.join("kept").exists(), "{at:?}");
            }
            let rest: Vec<_> = names(&tmp.p("d/old")).into_iter().filter(|name| name != "kept").collect();
            assert_eq!(rest, ["a.o", "before", "deep", "zzz"], "{when} {what}");
            assert_eq!(names(&tmp.p("d/old/zzz")), ["b.o", "c"], "{when} {what}");
            assert_eq!(tmp.p("d/x").exists(), when.starts_with("-n"), "the twin is deleted");
        }
        fs::remove_dir_all(tmp.p("d/old/kept")).ok();
    }
    // Where the filter leaves out what is mounted, the rest goes.
    sync(&tmp, "--delete --max-delete=100% -e deep -e top s d").ok();
    assert_eq!(names(&tmp.p("d/old")), ["deep"]);
    // What the source has as well is merged, and what only the mounted file system has is left without a word.
    mounts.truncate(1);
    fs::remove_dir_all(tmp.p("d/old")).unwrap();
    fs::remove_dir_all(tmp.p("d/top")).unwrap();
    for dry in ["-n ", ""] {
        sync(&tmp, &format!("{dry}--delete s d")).ok();
        assert!(inside[0].join("kept").exists());
    }
    assert_eq!(text(&tmp.p("d/merged/b")), "s/merged/b", "what the source has arrives there");
}

/// A bind mount of what is in the destination: to delete there would delete the source.
#[test]
fn the_source_is_not_deleted_under_another_name() {
    let tmp = Tmp::new();
    for name in ["d/s/a", "d/b", "d/a"] {
        tmp.file(name, name);
    }
    sync(&tmp, "--delete d/s d").code(8).says("inside the destination");
    sync(&tmp, "--delete d d/s").code(8);
    sync(&tmp, "--delete d d").code(8);
    assert!(tmp.p("d/s/a").exists() && tmp.p("d/b").exists());
    needs!(is_root(), "mounting needs root");
    let Ok(_mount) = Mount::bind(&tmp.p("d/s"), &tmp.dir("s")) else {
        return skipped("the_source_is_not_deleted_under_another_name", "there are no mounts");
    };
    tmp.file("d/s/x.o", "x");
    for what in ["", "-e *.o ", "--backup-dir kept "] {
        for when in ["-n --delete", "--delete=before", "--delete"] {
            sync(&tmp, &format!("{when} {what}s d")).code(8).says("holds the source");
        }
    }
    assert_eq!(text(&tmp.p("d/s/a")), "d/s/a");
}

/// The disk of the source is not there: what stands below its mount point is not the source.
#[test]
fn a_source_that_is_not_mounted_as_it_was_deletes_nothing() {
    needs!(is_root(), "mounting needs root");
    let tmp = Tmp::new();
    tmp.file("s/sub/below", "the mount point");
    tmp.dir("d");
    {
        let Ok(_mount) = Mount::tmpfs("size=1m", &tmp.p("s")) else {
            return skipped("a_source_that_is_not_mounted_as_it_was_deletes_nothing", "there are no mounts");
        };
        tmp.file("s/sub/a", "A");
        sync(&tmp, "s/sub d").ok();
    }
    for dry in ["-n ", ""] {
        sync(&tmp, &format!("{dry}--delete s/sub d"))
            .code(8)
            .says("file system of its own")
            .says("hint: mount it");
    }
    assert_eq!(names(&tmp.p("d")), ["a"]);
    // The way on that the hint tells.
    sync(&tmp, "s/sub d").ok();
    sync(&tmp, "--delete s/sub d").ok();
    assert_eq!(names(&tmp.p("d")), ["below"]);
}

/// A killed run of another source has left something in a directory that is synced now.
#[test]
fn unfinished_copies_are_not_deleted() {
    let tmp = Tmp::new();
    tmp.file("s/a", "A");
    let dir = tmp.dir("d");
    for suffix in [".part", ".session"] {
        fs::write(leftover_of(&dir, b"film", suffix), "unfinished").unwrap();
    }
    let work = ".bcmr-r-0123456789abcdef0123456789abcdef.stage";
    tmp.file(format!("d/{work}"), "another copy is at it");
    tmp.file("d/x", "x");
    let plan = sync(&tmp, "-n --delete s d").ok().out;
    assert!(plan.contains("- x") && !plan.contains("bcmr"), "{plan}");
    sync(&tmp, "--delete s d").ok();
    assert_eq!(names(&dir).len(), 4, "{:?}", names(&dir));
    assert!(!dir.join("x").exists());
}

/// A directory that its owner may not write to is opened only for what changes in it.
#[test]
fn what_is_closed_to_its_owner_stays_closed_where_nothing_changes() {
    needs!(is_root() && has_tool("setpriv"), "only root can act as another user");
    use rustix::fs::{XattrFlags, lsetxattr};
    let tmp = Tmp::for_others();
    let own = |path: &Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    tmp.file("s/closed/in/f", "F");
    tmp.file("s/closed/g", "G");
    ["s", "s/closed", "s/closed/in", "s/closed/in/f", "s/closed/g"].iter().for_each(|name| own(&tmp.p(name)));
    ["s/closed", "s/closed/in"].iter().for_each(|name| chmod(&tmp.p(name), 0o555));
    chmod(tmp.path(), 0o777);
    let run = |flags: &str| {
        let line = bcmr_as(NOBODY, &tmp, ["sync", "--delete"]).args(flags.split_whitespace());
        line.args(["s", "d"]).cwd(tmp.path()).run().ok().out
    };
    let closed = ["d/closed", "d/closed/in"].map(|name| tmp.p(name));
    let like = || {
        closed.each_ref().map(|dir| fs::metadata(dir).map(|m| (m.mode(), m.ctime(), m.ctime_nsec())).unwrap())
    };
    run("");
    let before = like();
    for _ in 0..2 {
        run("");
        assert_eq!(like(), before);
    }
    // One that something changes in is opened, and that alone.
    tmp.file("s/closed/g", "changed");
    tmp.file("s/closed/new", "N");
    own(&tmp.p("s/closed/new"));
    run("");
    assert_eq!((like()[0].0, like()[1]), (before[0].0, before[1]));
    assert_eq!(names(&closed[0]), ["g", "in", "new"]);
    // So is one that only gets an attribute, which needs leave to write.
    if lsetxattr(tmp.p("s/closed/in"), "user.x", b"1", XattrFlags::empty()).is_ok() {
        run("");
        assert_eq!(like()[1].0, before[1].0);
        assert!(run("-n").contains("no differences"));
    }
    // What a directory takes the place of, and the other way round.
    fs::remove_file(tmp.p("s/closed/g")).unwrap();
    tmp.file("s/closed/g/h", "H");
    fs::remove_dir_all(tmp.p("s/closed/in")).unwrap();
    tmp.file("s/closed/in", "I");
    ["s/closed/g", "s/closed/g/h", "s/closed/in"].iter().for_each(|name| own(&tmp.p(name)));
    run("");
    assert_eq!((mode(&closed[0]), fs::read(&closed[1]).unwrap()), (0o555, b"I".into()));
    assert_eq!(names(&tmp.p("d/closed/g")), ["h"]);
}

#[test]
fn a_user_who_may_not_give_files_away_is_not_told_of_an_error() {
    needs!(is_root(), "only root can act as another user");
    let tmp = Tmp::for_others();
    tmp.file("s/of root", "A");
    tmp.file("s/closed/a", "A");
    fs::set_permissions(tmp.p("s/closed"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(tmp.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let run = || bcmr_as(NOBODY, &tmp, ["sync", "--delete", "s", "d"]).cwd(tmp.path()).run();
    run().ok();
    assert_eq!(mode(&tmp.p("d/closed")), 0o555);
    // What a run has closed to its owner is written into, and deleted in, by the next.
    tmp.file("s/closed/b", "B");
    fs::remove_file(tmp.p("s/closed/a")).unwrap();
    run().ok();
    assert_eq!(names(&tmp.p("d/closed")), ["b"]);
    assert_eq!(mode(&tmp.p("d/closed")), 0o555);
    // And it goes with all that is in it, but not where somebody else's is: then it stays closed.
    tmp.file("s/kept", "K");
    tmp.file("s/closed/in/c", "C");
    chmod(&tmp.p("s/closed/in"), 0o500);
    std::os::unix::fs::chown(tmp.p("s/closed/in"), Some(NOBODY), None).unwrap();
    run().ok();
    fs::remove_dir_all(tmp.p("s/closed")).unwrap();
    std::os::unix::fs::chown(tmp.p("d/closed/in"), Some(0), None).unwrap();
    chmod(&tmp.p("d/closed/in"), 0o555);
    run().code(1);
    assert_eq!((mode(&tmp.p("d/closed")), names(&tmp.p("d/closed/in"))), (0o555, vec!["c".into()]));
    std::os::unix::fs::chown(tmp.p("d/closed/in"), Some(NOBODY), None).unwrap();
    // rm leaves it, as ever.
    bcmr_as(NOBODY, &tmp, ["remove", "-r", "d/closed"]).cwd(tmp.path()).run().code(1);
    assert_eq!(names(&tmp.p("d/closed")), ["in"]);
    run().ok();
    assert_eq!(names(&tmp.p("d")), ["kept", "of root"]);
}

#[test]
fn what_makes_no_sense_is_said() {
    let tmp = Tmp::new();
    tmp.file("s/a", "A");
    tmp.file("f", "F");
    sync(&tmp, "--both-ways s d").code(2).says("one way").says("unison");
    sync(&tmp, "f d").code(1).says("no directory").says("bcmr copy");
    sync(&tmp, "s f").code(1);
    sync(&tmp, "none d").code(1);
    symlink("nowhere", tmp.p("dangling")).unwrap();
    sync(&tmp, "s dangling").code(1);
    assert!(!tmp.p("nowhere").exists() && !tmp.p("d").exists());
    sync(&tmp, "--max-delete=x s d").code(2);
}

/// What failed in the look of `--delete=before` may go well when the run comes to it: that nothing was deleted is told.
#[test]
fn a_look_that_fails_is_told_where_it_deletes_first() {
    needs!(has_tool("strace"), "there is no strace");
    for when in ["1", "2"] {
        let tmp = Tmp::new();
        tmp.file("s/a", "a");
        tmp.file("d/x", "x");
        let words = ["sync", "-j1", "--delete=before", "s", "d"];
        let ran = bcmr_failing_at(when, "getdents64", "EIO").args(words).cwd(tmp.path()).run();
        assert_ne!((ran.code, tmp.p("d/x").exists()), (0, true), "{when}: {ran:?}");
        bcmr(words).cwd(tmp.path()).run().ok();
        assert!(!tmp.p("d/x").exists(), "{when}");
    }
}

/// What stands behind the end of what is read of a file of rules may be the line that keeps something, so that such a file is an
/// error; M2.
#[test]
fn rules_that_are_too_long_delete_nothing() {
    let tmp = Tmp::new();
    let padding = "#pad\n".repeat(900_000);
    tmp.file("s/.gitignore", format!("{padding}kept\n"));
    for (name, content) in [("s/f", "1"), ("s/kept", "private"), ("d/kept", "theirs"), ("d/gone", "x")] {
        tmp.file(name, content);
    }
    let ran = sync(&tmp, "--gitignore --delete s d");
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("file too large") && !ran.err.contains("ulimit"), "{}", ran.err);
    assert_eq!(text(&tmp.p("d/kept")), "theirs");
    assert!(tmp.p("d/gone").exists());
    // The twin: what is as large as may be.
    tmp.file("s/.gitignore", format!("kept\n{}", &padding[..(4 << 20) - 5]));
    sync(&tmp, "--gitignore --delete s d").ok();
    assert_eq!((text(&tmp.p("d/kept")), tmp.p("d/gone").exists()), ("theirs".into(), false));
}

/// What is no file says nothing, and nobody knows what it was to keep.
#[test]
fn where_rules_are_in_no_file_nothing_is_deleted() {
    let far = Far::pipe();
    for (flag, file) in [("--gitignore", ".gitignore"), ("--bcmrignore", ".bcmrignore")] {
        for kind in ["link", "link to nothing", "fifo", "device"] {
            if kind == "device" && !is_root() {
                continue;
            }
            for place in ["s", "s/sub"] {
                let tmp = Tmp::new();
                for name in ["s/f", "s/sub/g", "rules"] {
                    tmp.file(name, "kept");
                }
                let at = tmp.p(place).join(file);
                match kind {
                    "fifo" => mkfifo(&at),
                    "device" => mknod(&at, rustix::fs::FileType::CharacterDevice, 0o600, 0x103),
                    "link" => symlink(tmp.p("rules"), &at).unwrap(),
                    _ => symlink("nowhere", &at).unwrap(),
                }
                for (to, dir) in [("near", None), ("put", Some(Dir::Put)), ("get", Some(Dir::Get))] {
                    tmp.file(format!("{to}/sub/kept"), "theirs");
                    tmp.file(format!("{to}/gone"), "x");
                    for when in ["-n --delete", "--delete=before", "--delete"] {
                        let words = format!("{when} {flag}");
                        let ran = match dir {
                            None => sync(&tmp, &format!("{words} s {to}")),
                            Some(dir) => {
                                let line = far.bcmr("sync").args(words.split(' '));
                                dir.ends(line, &far, &tmp.p("s"), &tmp.p(to)).run()
                            }
                        };
                        let ran = ran.code(8);
                        let named = format!("{place}/{file}'");
                        // As a whole operand it is named with a dot, there.
                        let told = ran.err.replace("/./", "/");
                        assert!(told.contains(&named), "{kind} {words} {to}: {}", ran.err);
                        assert!(ran.err.contains("no regular file"), "{kind} {words} {to}: {}", ran.err);
                        assert!(tmp.p(to).join("sub/kept").exists(), "{kind} {words} {to}");
                        assert!(tmp.p(to).join("gone").exists(), "{kind} {words} {to}");
                    }
                }
                // The twin: nobody asks for it.
                sync(&tmp, "--delete --max-delete=100% s near").ok();
                assert!(!tmp.p("near/sub/kept").exists());
            }
        }
    }
}

/// M2: whatever cannot be looked at, exit 0 says that what only the destination had is gone.
#[test]
fn what_cannot_be_looked_at_is_not_taken_for_another_file_system() {
    needs!(has_tool("strace"), "there is no strace");
    let mut failed = 0;
    for when in ["--delete=before", "--delete"] {
        for nth in 1..=60 {
            if !in_slice(nth, 3) {
                continue;
            }
            let tmp = Tmp::new();
            for name in ["s/a", "s/sub/b", "d/a", "d/sub/b", "d/sub/gone", "d/gone"] {
                tmp.file(name, "x");
            }
            let mut line = bcmr_failing_at(&nth.to_string(), "fstat,statx,newfstatat", "EIO");
            line.0.env("XDG_STATE_HOME", tmp.p("state"));
            let ran = line.args(["sync", "-j1", "--max-delete=100%", when, "s", "d"]).cwd(tmp.path()).run();
            failed += i32::from(ran.code != 0);
            let there = tmp.p("d/gone").exists() || tmp.p("d/sub/gone").exists();
            assert!(ran.code != 0 || !there, "{when} {nth}: {}", ran.err);
        }
    }
    assert!(failed > 0, "nothing has failed");
}

/// As git does: a directory that is called as a file of rules is one like any other.
#[test]
fn a_directory_that_is_called_as_a_file_of_rules_has_none() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    tmp.file("s/.gitignore/in", "*");
    tmp.file("s/sub/.gitignore", "kept\n");
    tmp.file("s/f", "1");
    for (to, dir) in [("near", None), ("put", Some(Dir::Put)), ("get", Some(Dir::Get))] {
        tmp.file(format!("{to}/sub/kept"), "theirs");
        tmp.file(format!("{to}/gone"), "x");
        let flags = ["--gitignore", "--delete"];
        match dir {
            None => sync(&tmp, &format!("{} s {to}", flags.join(" "))),
            Some(dir) => dir.ends(far.bcmr("sync").args(flags), &far, &tmp.p("s"), &tmp.p(to)).run(),
        }
        .ok();
        assert_eq!(names(&tmp.p(to)), [".gitignore", "f", "sub"], "{to}");
        assert_eq!(names(&tmp.p(to).join("sub")), [".gitignore", "kept"], "{to}");
    }
}
