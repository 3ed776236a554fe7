//! What `bcmr sync` keeps with another machine: snapshots there and from there, earlier copies, backups, and what only the source
//! can tell to be left out.

use crate::common::remote::*;
use crate::common::*;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn line(dir: Dir, far: &Far, tmp: &Tmp, flags: &str, dst: &str) -> Line {
    let mut line = dir.ends(far.bcmr("sync").args(flags.split_whitespace()), far, &tmp.p("s"), &tmp.p(dst));
    line.0.env("XDG_STATE_HOME", tmp.p("state")).env("XDG_DATA_HOME", tmp.p("data"));
    line
}

fn sync(dir: Dir, far: &Far, tmp: &Tmp, flags: &str, dst: &str) -> Ran {
    line(dir, far, tmp, flags, dst).run()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

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
}

fn source(tmp: &Tmp) {
    for name in ["a", "b", "sub/c", "sub/deep/d"] {
        tmp.file(format!("s/{name}"), format!("first {name}"));
    }
    tmp.file("s/large", noise(3, 3 << 20));
    fs::hard_link(tmp.p("s/a"), tmp.p("s/sub/a too")).unwrap();
    symlink("nowhere", tmp.p("s/link")).unwrap();
    chmod(&tmp.p("s/sub"), 0o2750);
}

#[test]
fn snapshots_share_what_is_the_same_up_and_down() {
    for dir in BOTH {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        source(&tmp);
        let run = |flags: &str| sync(dir, &far, &tmp, flags, "snaps");
        // A dry run makes nothing, and a first one would have everything.
        let preview = run("-n --snapshot").ok().out;
        assert!(preview.contains("7 to add") && !tmp.p("snaps").exists(), "{dir:?}: {preview}");
        run("--snapshot --at 2026-01-01").ok();
        let first = tmp.p("snaps/2026-01-01T000000Z");
        alike(&tmp.p("s"), &first);
        fs::write(tmp.p("s/b"), "second b").unwrap();
        chmod(&tmp.p("s/sub/c"), 0o600);
        fs::remove_file(tmp.p("s/sub/deep/d")).unwrap();
        let preview = run("-n --snapshot").ok().out;
        let told = ["~ b", "1 only at the destination"].iter().all(|told| preview.contains(told));
        assert!(told && !preview.contains("+ a"), "{dir:?}: {preview}");
        let told = run("--json --snapshot --at 2026-01-02T12:30:00Z").ok().out;
        assert!(
            told.contains("snaps/2026-01-02T123000Z/b\"") && !told.contains("unfinished"),
            "{dir:?}: {told}"
        );
        assert!(told.contains("\"updated\":0,"), "{dir:?}: {told}");
        let second = tmp.p("snaps/2026-01-02T123000Z");
        alike(&tmp.p("s"), &second);
        for (name, shared) in [("a", true), ("large", true), ("b", false), ("sub/c", false)] {
            assert_eq!(inode(&first.join(name)) == inode(&second.join(name)), shared, "{dir:?} {name}");
        }
        assert_eq!((text(&first.join("b")), mode(&first.join("sub/c"))), ("first b".into(), 0o644));
        run("--snapshot --at 2026-01-01").code(8).says("there is one of that moment");
        run("--snapshot --at 2025-12-31").code(8).says("newer");
        let preview = run("-n --snapshot --keep 1d --at 2026-01-03").ok().out;
        let goes = |day: &str| preview.lines().any(|line| line.starts_with('-') && line.contains(day));
        assert!(goes("2026-01-01T") && goes("2026-01-02T"), "{dir:?}: {preview}");
        assert_eq!(snapshots(&tmp.p("snaps")).len(), 2, "{dir:?}");
        run("--snapshot --keep 1d --at 2026-01-03").ok();
        assert_eq!(snapshots(&tmp.p("snaps")), [tmp.p("snaps/2026-01-03T000000Z")], "{dir:?}");
        // M1: nothing is no snapshot of something.
        fs::rename(tmp.p("s"), tmp.p("away")).unwrap();
        tmp.dir("s");
        run("--snapshot --at 2026-01-04").code(8).says("the source is empty");
        assert_eq!(snapshots(&tmp.p("snaps")).len(), 1, "{dir:?}");
        fs::remove_dir(tmp.p("s")).unwrap();
        fs::rename(tmp.p("away"), tmp.p("s")).unwrap();
        run("--snapshot --at 2026-01-05").ok();
        alike(&tmp.p("s"), &tmp.p("snaps/2026-01-05T000000Z"));
    }
}

/// A directory that became a file is in the way of nothing in a new tree, and `-n` says so as it does on one machine.
#[test]
fn what_became_another_kind_is_in_the_way_of_no_snapshot() {
    for dir in BOTH {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        tmp.file("s/k/x", "x");
        let run = |flags: &str| sync(dir, &far, &tmp, &format!("--snapshot {flags}"), "snaps").ok();
        run("--at 2026-01-01");
        fs::remove_dir_all(tmp.p("s/k")).unwrap();
        tmp.file("s/k", "y");
        let plan = run("-n --at 2026-01-02").out;
        assert!(plan.contains("+ k ") && plan.contains("- k/"), "{dir:?}: {plan}");
        run("--at 2026-01-02");
        alike(&tmp.p("s"), &tmp.p("snaps/2026-01-02T000000Z"));
    }
}

/// A program that runs what follows it, and has it killed at its `nth` call of `calls`; `once` runs only the first one so.
fn killer(tmp: &Tmp, nth: usize, calls: &str, once: bool) -> PathBuf {
    let flag = tmp.p("killed");
    let strace = format!(
        "strace -f -qq -o /dev/null -e trace={calls} -e inject={calls}:signal=SIGKILL:when={nth} \"$@\""
    );
    let spared = if once {
        format!("[ -e '{0}' ] && exec \"$@\"\n: > '{0}'\n", flag.display())
    } else {
        String::new()
    };
    let script = tmp.file("killer", format!("#!/bin/sh\n{spared}exec {strace}\n"));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

/// The receiver is killed at any call that gives a name: what a person sees is complete, and the same command does the rest.
#[test]
fn a_snapshot_there_is_complete_or_absent() {
    needs!(has_tool("strace"), "there is no strace");
    let calls = "renameat2,renameat,rename,mkdirat,linkat";
    until_not_killed(60, 5, |at| {
        let (plain, tmp) = (Far::pipe(), Tmp::new());
        source(&tmp);
        sync(Dir::Put, &plain, &tmp, "--snapshot --at 2026-01-01", "snaps").ok();
        let yesterday = tree(&tmp.p("s"));
        fs::write(tmp.p("s/b"), "second b").unwrap();
        tmp.file("s/new/x", "x");
        let far = Far::pipe().with("FAR_RUN", killer(&tmp, at, calls, false));
        let ran = sync(Dir::Put, &far, &tmp, "--retries=0 --snapshot --keep 1d --at 2026-01-02", "snaps");
        for snapshot in snapshots(&tmp.p("snaps")) {
            if snapshot.ends_with("2026-01-01T000000Z") {
                let told = differences(&yesterday, &tree(&snapshot), CONTENT);
                assert!(told.is_empty(), "{at}: {told:?}");
            } else {
                alike(&tmp.p("s"), &snapshot);
            }
        }
        tmp.file("s/later", "later");
        sync(Dir::Put, &plain, &tmp, "--snapshot --keep 1d --at 2026-01-03", "snaps").ok();
        alike(&tmp.p("s"), &tmp.p("snaps/2026-01-03T000000Z"));
        assert_eq!(snapshots(&tmp.p("snaps")).len(), 1, "{at}");
        let left = names(&tmp.p("snaps/.bcmr-snapshots"));
        assert!(left.iter().all(|name| name == "2026-01-03T000000Z"), "{at}: {left:?}");
        ran
    });
}

/// A connection that is lost once is made again, and what the first attempt left is gone on with.
#[test]
fn a_snapshot_outlives_a_lost_connection() {
    needs!(has_tool("strace"), "there is no strace");
    let tmp = Tmp::new();
    source(&tmp);
    sync(Dir::Put, &Far::pipe(), &tmp, "--snapshot --at 2026-01-01", "snaps").ok();
    tmp.file("s/new/x", "x");
    let far = Far::pipe().with("FAR_RUN", killer(&tmp, 1, "rmdir,unlinkat", true));
    let flags = "--retries=2 --snapshot --keep 1d --at 2026-01-02";
    sync(Dir::Put, &far, &tmp, flags, "snaps").ok();
    assert!(tmp.p("killed").exists());
    alike(&tmp.p("s"), &tmp.p("snaps/2026-01-02T000000Z"));
    let far = Far::pipe().with("FAR_RUN", {
        fs::remove_file(tmp.p("killed")).unwrap();
        killer(&tmp, 1, "renameat2,renameat,rename", true)
    });
    sync(Dir::Put, &far, &tmp, "--retries=2 --snapshot --at 2026-01-03", "snaps").ok();
    alike(&tmp.p("s"), &tmp.p("snaps/2026-01-03T000000Z"));
    // One that was there before is another's.
    sync(Dir::Put, &Far::pipe(), &tmp, "--retries=2 --snapshot --at 2026-01-03", "snaps").code(8);
}

#[test]
fn earlier_copies_there_are_linked_to() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    source(&tmp);
    sync(Dir::Put, &far, &tmp, "", "one").ok();
    fs::write(tmp.p("s/b"), "second b").unwrap();
    let base = format!("--link-dest {}", tmp.p("one").display());
    sync(Dir::Put, &far, &tmp, &base, "two").ok();
    alike(&tmp.p("s"), &tmp.p("two"));
    for (name, shared) in [("a", true), ("large", true), ("sub/deep/d", true), ("b", false)] {
        assert_eq!(inode(&tmp.p("one").join(name)) == inode(&tmp.p("two").join(name)), shared, "{name}");
    }
    sync(Dir::Put, &far, &tmp, "--link-dest none", "three").code(1);
    // A wall is one for them too.
    let walled = Far::pipe().serving(&format!("--root {}", tmp.dir("root").display()));
    let to = |flags: &str, to: &str| {
        let line = walled.bcmr("sync").args(flags.split_whitespace());
        line.args([tmp.p("s").as_os_str(), &walled.at(to)]).run()
    };
    to("", "/one").ok();
    for out in ["/../one", "/up/../../one"] {
        let ran = to(&format!("--link-dest {out}"), "/two");
        assert!(ran.code != 0, "{out}");
    }
    symlink("../one", tmp.p("root/out")).unwrap();
    assert!(to("--link-dest /out", "/two").code != 0);
    to("--link-dest /one", "/two").ok();
    assert_eq!(inode(&tmp.p("root/one/a")), inode(&tmp.p("root/two/a")));
    to("--snapshot --at 2026-01-01", "/snaps").ok();
    to("--snapshot --at 2026-01-02", "/snaps").ok();
    let of = |day: &str| inode(&tmp.p(format!("root/snaps/2026-01-{day}T000000Z/a")));
    assert_eq!(of("01"), of("02"));
    assert!(to("--snapshot", "/out/snaps").code != 0 && to("--backup-dir /out/old", "/one").code != 0);
    assert!(!tmp.p("one/snaps").exists() && !tmp.p("one/old").exists());
}

/// With `--checksum` it is content that decides, small and large: an earlier copy that only looks the same is none.
#[test]
fn earlier_copies_with_the_same_content_are_linked_to() {
    for dir in BOTH {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        source(&tmp);
        tmp.file("s/resumed", noise(5, 17 << 20));
        let base = format!("--link-dest {}", tmp.p("one").display());
        let run = |flags: &str, to: &str| sync(dir, &far, &tmp, flags, to).ok();
        run("", "one");
        for name in ["b", "large", "resumed"] {
            let (file, was) = (tmp.p("one").join(name), fs::metadata(tmp.p("s").join(name)).unwrap());
            let mut bytes = fs::read(&file).unwrap();
            bytes[0] ^= 1;
            fs::write(&file, bytes).unwrap();
            fs::File::open(&file).unwrap().set_modified(was.modified().unwrap()).unwrap();
        }
        run(&format!("-c {base}"), "two");
        alike(&tmp.p("s"), &tmp.p("two"));
        for (name, shared) in
            [("a", true), ("sub/c", true), ("b", false), ("large", false), ("resumed", false)]
        {
            let same = inode(&tmp.p("one").join(name)) == inode(&tmp.p("two").join(name));
            assert_eq!(same, shared, "{dir:?} {name}");
        }
        for day in ["1", "2"] {
            run(&format!("-c --snapshot --at 2026-01-0{day}"), "snaps");
        }
        let of = |day: &str| tmp.p(format!("snaps/2026-01-0{day}T000000Z"));
        alike(&tmp.p("s"), &of("2"));
        for name in ["a", "b", "large", "resumed", "sub/deep/d"] {
            assert_eq!(inode(&of("1").join(name)), inode(&of("2").join(name)), "{dir:?} {name}");
        }
    }
}

#[test]
fn what_is_replaced_there_is_kept_there_and_undone_there() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    source(&tmp);
    sync(Dir::Put, &far, &tmp, "", "d").ok();
    let before = tree(&tmp.p("d"));
    fs::write(tmp.p("s/b"), "second b").unwrap();
    fs::remove_file(tmp.p("s/sub/deep/d")).unwrap();
    tmp.file("s/new", "new");
    let flags = format!("--delete --stats --backup-dir {}", tmp.p("kept").display());
    let ran = sync(Dir::Put, &far, &tmp, &flags, "d").ok().says("bcmr undo");
    assert!([&ran.out, &ran.err].iter().any(|told| told.contains("1 deleted")), "{ran:?}");
    alike(&tmp.p("s"), &tmp.p("d"));
    let receipt = tmp.p("kept").join(&names(&tmp.p("kept"))[0]).join("receipt");
    assert!(ran.err.contains(&receipt.display().to_string()), "{}", ran.err);
    // What was told is typed here.
    let there = far.at(&receipt);
    assert!(ran.err.contains(&format!("bcmr undo {}", there.display())), "{}", ran.err);
    let after = tree(&tmp.p("d"));
    let would = far.bcmr("undo").args([OsStr::new("-n"), &there]).run().ok();
    assert!(["b", "new", "sub/deep/d"].iter().all(|name| would.out.contains(name)), "{}", would.out);
    for name in ["b", "sub/deep/d"] {
        // What is kept is told as what it is called there.
        let kept = would.out.lines().find_map(|line| {
            line.strip_prefix("would rename 'there:")?
                .strip_suffix(&format!("/d/{name}'"))?
                .split("' -> ")
                .next()
        });
        assert!(kept.is_some_and(|kept| Path::new(kept).is_file()), "{name}: {}", would.out);
    }
    assert!(differences(&after, &tree(&tmp.p("d")), CONTENT).is_empty());
    // What has changed since stays, and is named; the same command does the rest.
    tmp.file("d/new", "by the user, meanwhile");
    let ran = far.bcmr("undo").args([&there]).run().code(8).says("it has changed since");
    assert!(ran.err.contains("there:") && tmp.p("d/sub/deep/d").exists(), "{}", ran.err);
    fs::remove_file(tmp.p("d/new")).unwrap();
    let ran = far.bcmr("undo").args([OsStr::new("-v"), &there]).run().ok();
    let told = differences(&before, &tree(&tmp.p("d")), CONTENT);
    assert!(told.is_empty(), "{told:?} {}", ran.out);
    // The trash is that of the user there; who is shut in has none.
    fs::remove_dir_all(tmp.p("kept")).unwrap();
    sync(Dir::Put, &far, &tmp, "--delete --trash", "d").ok().says("bcmr undo");
    alike(&tmp.p("s"), &tmp.p("d"));
    let walled = Far::pipe().serving(&format!("--root {}", tmp.path().display()));
    let line = walled.bcmr("sync").args(["--trash"]);
    line.args([tmp.p("s").as_os_str(), &walled.at("/d")]).run().code(1).says("no trash");
}

/// Who is shut in undoes what is below the root, and nothing else; who may only read says what would be.
#[test]
fn a_confined_server_undoes_below_its_root() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    for name in ["s/a", "root/d/a", "root/d/gone"] {
        tmp.file(name, name);
    }
    let walled = far.serving(&format!("--root {}", tmp.p("root").display()));
    let line = walled.bcmr("sync").args(["--delete", "--backup-dir", "/kept"]);
    line.args([tmp.p("s").as_os_str(), &walled.at("/d")]).run().ok();
    let kept = tmp.p("root/kept").join(&names(&tmp.p("root/kept"))[0]);
    let receipt = Path::new("/").join(kept.strip_prefix(tmp.p("root")).unwrap()).join("receipt");
    assert_eq!(names(&tmp.p("root/d")), ["a"]);
    let reads = Far::pipe().serving(&format!("--read-only --root {}", tmp.p("root").display()));
    let run = |far: &Far, flags: &str| far.bcmr("undo").args([flags]).args([far.at(&receipt)]).run();
    let would = run(&reads, "-nv").ok();
    assert!(would.out.contains("/d/gone") && !would.out.contains("root"), "{}", would.out);
    run(&reads, "-v").code(8).says("only lets read");
    // A client may have written a receipt itself: what it is about is looked for below the root alone, and where the root lies
    // is not told by any answer.
    let written = text(&kept.join("receipt"));
    let above = tmp.path().to_string_lossy().into_owned();
    let named = written.lines().nth(1).unwrap();
    assert!(named.split('\t').nth(2) == Some("../../d") && !written.contains(&above), "{written}");
    tmp.file("out/a", "outside");
    let (own, out) = (tmp.p("root/d"), tmp.p("out"));
    let about = |to: &str, ino| {
        let forged = written.replace(named, &format!("destination\t{ino}\t{to}"));
        fs::write(kept.join("receipt"), forged).unwrap();
    };
    for (to, ino) in [
        (format!("{above}/out"), inode(&out)),
        (tmp.p("root/../out").display().to_string(), inode(&out)),
        ("../../../out".into(), inode(&out)),
        ("../../../root/d".into(), inode(&own)),
        (format!("{above}/root/e"), inode(&own)),
        (format!("{above}/root/d"), inode(&own) + 1),
        ("/no/such/d/e".into(), inode(&own)),
    ] {
        about(&to, ino);
        let ran = run(&walled, "-v").code(8);
        assert!(ran.err.contains("not below the root"), "{to}: {}", ran.err);
        assert_eq!((text(&out.join("a")).as_str(), names(&out).len(), names(&own).len()), ("outside", 1, 1));
    }
    // As older servers named it, wherever their root was.
    for top in [&above, "/elsewhere"] {
        about(&format!("{top}/root/d"), inode(&own));
        let would = run(&reads, "-nv").ok();
        assert!(would.out.contains("/d/gone") && !would.out.contains("root"), "{}", would.out);
    }
    // What has that number on another file system is another directory: what was kept was moved from where the receipt is.
    if is_root()
        && let Ok(mount) = Mount::tmpfs("size=4m", &tmp.p("root/other"))
    {
        tmp.file("root/other/d/a", "root/d/a");
        let other = mount.path().join("d");
        about("/elsewhere/root/other/d", inode(&other));
        run(&walled, "-v").code(8).says("not below the root");
        assert_eq!(names(&other), ["a"]);
    }
    fs::write(kept.join("receipt"), &written).unwrap();
    // Who may go everywhere finds it as well.
    let would = bcmr(["undo", "-nv"]).args([kept.join("receipt")]).run().ok();
    assert!(would.out.contains(&*own.join("gone").to_string_lossy()), "{}", would.out);
    assert_eq!(names(&tmp.p("root/d")), ["a"]);
    run(&walled, "-v").ok();
    assert_eq!(text(&tmp.p("root/d/a")), "root/d/a");
    assert_eq!(names(&tmp.p("root/d")), ["a", "gone"]);
}

/// What only the source can tell to be left out stays, up and down, and goes where that is asked for.
#[test]
fn what_only_the_source_leaves_out_is_spared() {
    for dir in BOTH {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        tmp.file("s/.gitignore", "*.o\n");
        for name in ["s/a", "s/x.o", "s/sub/y.o", "s/sub/b", "d/x.o", "d/sub/y.o", "d/sub/gone", "d/z.o"] {
            tmp.file(name, name);
        }
        tmp.file("s/large", noise(1, 2 << 20));
        tmp.file("d/large", "small here");
        let flags = "--gitignore --max-size=1M --max-delete=100%";
        let plan = sync(dir, &far, &tmp, &format!("-n --delete {flags}"), "d").ok().out;
        assert!(plan.contains("gone") && plan.contains("z.o"), "{dir:?}: {plan}");
        assert!(!plan.contains("x.o") && !plan.contains("y.o") && !plan.contains("large"), "{dir:?}: {plan}");
        sync(dir, &far, &tmp, &format!("--delete {flags}"), "d").ok();
        // Of what the source does not have at all the plan went by rules that were not there yet; the run has brought them.
        assert_eq!(names(&tmp.p("d")), [".gitignore", "a", "large", "sub", "x.o", "z.o"], "{dir:?}");
        let plan = sync(dir, &far, &tmp, &format!("-n --delete {flags}"), "d").ok().out;
        assert!(plan.contains("no differences"), "{dir:?}: {plan}");
        assert_eq!(names(&tmp.p("d/sub")), ["b", "y.o"], "{dir:?}");
        assert_eq!((text(&tmp.p("d/x.o")), text(&tmp.p("d/large"))), ("d/x.o".into(), "small here".into()));
        sync(dir, &far, &tmp, &format!("--delete-excluded {flags}"), "d").ok();
        assert_eq!(names(&tmp.p("d")), [".gitignore", "a", "sub"], "{dir:?}");
    }
}

/// What is left out as what it is alone, a directory or something else, is had: what has its name over there is something else, and
/// neither goes nor is an extra one.
#[test]
fn what_is_left_out_as_what_it_is_is_had() {
    for way in [None, Some(Dir::Put), Some(Dir::Get)] {
        let tmp = Tmp::new();
        for name in
            ["s/a/x", "s/b/x", "s/sub/c/x", "s/file", "s/f", "d/a", "d/b", "d/sub/c", "d/file/x", "d/f"]
        {
            tmp.file(name, "1");
        }
        for (from, to) in [("s", "d"), ("s/sub", "d/sub"), ("s/f", "d/f")] {
            let touched =
                std::process::Command::new("touch").arg("-r").args([tmp.p(from), tmp.p(to)]).status();
            assert!(touched.unwrap().success());
        }
        let run = |verb: &str, words: &str| {
            let filter = ["-e", "[abc]/", "-e", "file", "--include", "file/"];
            let words = words.split_whitespace().chain(filter);
            match way {
                None => bcmr([verb]).args(words).args([tmp.p("s"), tmp.p("d")]).run(),
                Some(dir) => {
                    let far = Far::pipe();
                    dir.ends(far.bcmr(verb).args(words), &far, &tmp.p("s"), &tmp.p("d")).run()
                }
            }
        };
        run("check", "--archive -T").ok();
        let all = ["a", "b", "f", "file", "sub"];
        for when in ["--delete=before", "--delete"] {
            let plan = run("sync", &format!("-n {when}")).ok().out;
            assert!(plan.contains("no differences"), "{way:?} {when}: {plan}");
            run("sync", when).ok();
            assert_eq!(
                (names(&tmp.p("d")), names(&tmp.p("d/sub")).len()),
                (all.map(OsString::from).to_vec(), 1),
                "{way:?}"
            );
        }
        // The twin: what the source does not have goes, and is an extra one.
        fs::remove_dir_all(tmp.p("s/b")).unwrap();
        let checked = run("check", "-T").code(1).out;
        assert!(checked.contains("- b") && checked.matches("- ").count() == 1, "{way:?}: {checked}");
        run("sync", "--delete").ok();
        assert_eq!(names(&tmp.p("d")), ["a", "f", "file", "sub"], "{way:?}");
    }
}

/// M11: where a file of rules does not come, what it keeps is not known there: nothing below it goes, whatever deletes.
#[test]
fn where_rules_do_not_come_nothing_is_deleted() {
    let left_out = [
        (".gitignore", "*\n", "--gitignore"),
        (".bcmrignore", "*\n", "--bcmrignore"),
        (".gitignore", "*.o\n", "--gitignore -e .gitignore"),
        (".gitignore", "*.o # long enough\n", "--gitignore --max-size=9"),
    ];
    for (dir, (file, rules, flags)) in BOTH.into_iter().flat_map(|dir| left_out.map(|case| (dir, case))) {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        tmp.file(format!("s/v/{file}"), rules);
        for name in ["s/a", "s/v/sub/b", "d/gone", "d/v/kept.o", "d/v/sub/kept", "d/v/only/kept"] {
            tmp.file(name, name);
        }
        let about = format!("{dir:?} {flags}");
        let run = |more: &str| sync(dir, &far, &tmp, &format!("{more} --max-delete=100% {flags}"), "d");
        let told = "is itself left out";
        let plan = run("-n --delete").code(8).says(told);
        assert!(plan.out.contains("gone") && !plan.out.contains("kept"), "{about}: {}", plan.out);
        for when in ["--delete=before", "--delete"] {
            let ran = run(when).code(8).says(told);
            assert_eq!(ran.err.matches(told).count(), 1, "{about}: {}", ran.err);
            assert!(tmp.p("d/v/kept.o").exists() && tmp.p("d/v/sub/kept").exists(), "{about}");
            assert!(tmp.p("d/v/only/kept").exists() && !tmp.p("d/gone").exists(), "{about}");
        }
        if flags != "--gitignore" {
            continue;
        }
        // Once they come they are asked.
        run("--include .gitignore --delete").ok();
        assert!(tmp.p("d/v/kept.o").exists() && tmp.p("d/v/only/kept").exists(), "{about}");
        run("--delete-excluded").ok();
        assert!(names(&tmp.p("d/v")).is_empty(), "{about}");
    }
}

/// Rules that the source does not have say nothing, and what goes first does not go by those that are about to be others.
#[test]
fn only_the_rules_of_the_source_are_asked() {
    for dir in BOTH {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        tmp.file("s/.gitignore", "*.o\n");
        tmp.file("d/.gitignore", "*.c\n# other\n");
        tmp.file("d/v/.gitignore", "!*.o\n");
        for name in ["s/v/a", "d/v/kept.o", "d/v/gone.c"] {
            tmp.file(name, name);
        }
        let run = |flags: &str| sync(dir, &far, &tmp, &format!("--gitignore {flags}"), "d");
        run("--delete=before").code(8).says("has yet to come");
        assert_eq!(names(&tmp.p("d/v")), [".gitignore", "a", "gone.c", "kept.o"], "{dir:?}");
        run("--delete=before").ok();
        assert_eq!(names(&tmp.p("d/v")), ["a", "kept.o"], "{dir:?}");
    }
}

/// M11: a directory of the destination stands where the rules of the source are to be. An empty one makes way; while one that
/// holds something does not, nothing is deleted that they may keep, and `-n` says so before.
#[test]
fn where_a_directory_is_in_the_way_of_rules_nothing_is_deleted() {
    for dir in BOTH {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        tmp.file("s/.gitignore", "kept\n");
        for name in ["d/.gitignore/in", "d/gone", "d/kept"] {
            tmp.file(name, name);
        }
        let run = |flags: &str| sync(dir, &far, &tmp, &format!("--max-delete=100% --gitignore {flags}"), "d");
        for flags in ["-n --delete", "--delete"] {
            run(flags).code(8).says("is in the way of its .gitignore").says("move that directory away");
        }
        run("--delete=before").code(8);
        assert_eq!(names(&tmp.p("d")), [".gitignore", "gone", "kept"], "{dir:?}");
        fs::remove_file(tmp.p("d/.gitignore/in")).unwrap();
        let plan = run("-n --delete").ok().out;
        assert!(plan.contains("- gone"), "{dir:?}: {plan}");
        run("--delete").ok();
        assert_eq!(names(&tmp.p("d")), [".gitignore", "kept"], "{dir:?}");
    }
}

/// M1: a source whose disk was mounted the last time, to another machine.
#[test]
fn a_source_that_is_not_mounted_as_it_was_deletes_nothing_there() {
    needs!(is_root(), "only root can mount");
    let (far, tmp) = (Far::pipe(), Tmp::new());
    let disk = tmp.file("s/below", "what the disk is mounted over");
    let mount = match Mount::tmpfs("size=1m", &tmp.p("s")) {
        Ok(mount) => mount,
        Err(why) => {
            return skipped("a_source_that_is_not_mounted_as_it_was_deletes_nothing_there", &why.to_string());
        }
    };
    tmp.file("s/on the disk", "kept");
    sync(Dir::Put, &far, &tmp, "--delete", "d").ok();
    sync(Dir::Put, &far, &tmp, "--snapshot --at 2026-01-01", "snaps").ok();
    drop(mount);
    assert!(disk.exists());
    sync(Dir::Put, &far, &tmp, "--delete", "d").code(8).says("on a file system of its own");
    sync(Dir::Put, &far, &tmp, "--snapshot --at 2026-01-02", "snaps")
        .code(8)
        .says("on a file system of its own");
    assert_eq!(names(&tmp.p("d")), ["on the disk"]);
    assert_eq!(snapshots(&tmp.p("snaps")).len(), 1);
}

/// `-n` refuses a place for what is kept there in the words of the run, and makes none.
#[test]
fn where_nothing_can_be_kept_there_is_said_before() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    tmp.file("s/f", "newer");
    tmp.file("d/f", "2");
    for place in ["d", "no/such"].map(|name| tmp.p(name)) {
        let flags = format!("--backup-dir {}", place.display());
        let told = sync(Dir::Put, &far, &tmp, &format!("-n {flags}"), "d");
        let ran = sync(Dir::Put, &far, &tmp, &flags, "d");
        assert_eq!((told.code, &told.err), (ran.code, &ran.err), "{}", place.display());
        assert_ne!(told.code, 0, "{}", place.display());
        assert_eq!(text(&tmp.p("d/f")), "2");
    }
    sync(Dir::Put, &far, &tmp, &format!("-n --backup-dir {}", tmp.p("kept").display()), "d").ok();
    assert!(!tmp.p("kept").exists());
}

/// Between two other machines it is kept where DST is.
#[test]
fn what_goes_through_here_is_kept_there() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    source(&tmp);
    let on = |host: &str, name: &str| format!("{host}:{}", tmp.p(name).display());
    let run = |flags: &str, to: &str| {
        far.bcmr("sync").args(flags.split_whitespace()).args([on("one", "s"), on("two", to)]).run()
    };
    run("--snapshot --at 2026-01-01", "snaps").ok();
    fs::write(tmp.p("s/b"), "second b").unwrap();
    run("--snapshot --at 2026-01-02", "snaps").ok();
    let of = |day: &str, name: &str| tmp.p(format!("snaps/2026-01-{day}T000000Z/{name}"));
    alike(&tmp.p("s"), &of("02", ""));
    assert_eq!(inode(&of("01", "a")), inode(&of("02", "a")));
    run("", "d").ok();
    fs::write(tmp.p("s/b"), "third b").unwrap();
    tmp.file("d/only there", "x");
    let ran = run(&format!("--delete --stats --backup-dir {}", tmp.p("old").display()), "d").ok();
    assert!([&ran.out, &ran.err].iter().any(|told| told.contains("1 deleted")), "{ran:?}");
    let old = tmp.p("old").join(&names(&tmp.p("old"))[0]).join("old");
    assert_eq!((text(&old.join("b")), text(&old.join("only there"))), ("second b".into(), "x".into()));
}
