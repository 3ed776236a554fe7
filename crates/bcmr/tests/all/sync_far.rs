//! `bcmr sync` with another machine, up and down: the receiver deletes, and what it is told decides as little as can be.

use crate::common::remote::*;
use crate::common::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

fn sync(dir: Dir, far: &Far, tmp: &Tmp, flags: &str) -> Ran {
    let line = far.bcmr("sync").args(flags.split_whitespace());
    dir.ends(line, far, &tmp.p("s"), &tmp.p("d")).run()
}

#[track_caller]
fn alike(tmp: &Tmp, what: &str) {
    assert_same(&tmp.p("s"), &tmp.p("d"), Exact { times: false, ..EVERYTHING });
    if let Some(text) = rsync_would(&tmp.p("s"), &tmp.p("d")) {
        assert!(text.is_empty(), "{what}: rsync would: {text}");
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// S11: the same command ends it, and nothing says any more that it was stopped.
#[test]
fn what_was_stopped_leaves_no_mark_once_it_is_complete() {
    for dir in BOTH {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        tmp.file("s/small", "small");
        tmp.file("s/large", noise(1, 20 << 20));
        let limited = far.lead(bcmr_after("ulimit -c 0; ulimit -f 18000", ["sync"]));
        let ran = dir.ends(limited, &far, &tmp.p("s"), &tmp.p("d")).run();
        assert!(ran.code != 0 && tmp.p("d").exists(), "{dir:?}: {ran:?}");
        sync(dir, &far, &tmp, "").ok();
        alike(&tmp, &format!("{dir:?}"));
        assert_no_litter(&tmp.p("d"));
    }
}

#[test]
fn contents_and_attributes_arrive_and_what_only_the_destination_has_goes() {
    for dir in BOTH {
        let all = ["", "--parallel=3", "--checksum", "-V"];
        // An ordinary run tries each one way.
        let is_tried = |n: usize| in_slice(n + dir as usize, 2);
        for (_, flags) in all.into_iter().enumerate().filter(|(n, _)| is_tried(*n)) {
            let (far, tmp) = (Far::pipe(), Tmp::new());
            let what = format!("{dir:?} {flags}");
            for name in ["a", "mode", "sub/b", "sub/deep/c", "kind/in"] {
                tmp.file(format!("s/{name}"), noise(1, 5000));
            }
            tmp.file("s/large", noise(2, 20 << 20));
            fs::hard_link(tmp.p("s/a"), tmp.p("s/sub/a")).unwrap();
            symlink("nowhere", tmp.p("s/link")).unwrap();
            sync(dir, &far, &tmp, flags).ok();
            alike(&tmp, &what);
            // A day later.
            chmod(&tmp.p("s/mode"), 0o600);
            chmod(&tmp.p("s/sub"), 0o711);
            fs::remove_file(tmp.p("s/large")).unwrap();
            fs::remove_dir_all(tmp.p("s/sub/deep")).unwrap();
            fs::remove_dir_all(tmp.p("s/kind")).unwrap();
            mkfifo(&tmp.p("s/kind-too"));
            for n in 0..300 {
                tmp.file(format!("s/many/{n}"), n.to_string());
                tmp.file(format!("d/many/old {n}"), n.to_string());
            }
            let outside = tmp.file("outside", "outside");
            symlink(&outside, tmp.p("d/escape")).unwrap();
            symlink("..", tmp.p("d/many/up")).unwrap();
            let refused = sync(dir, &far, &tmp, &format!("{flags} --delete"));
            refused.code(8).says("entries would go");
            assert!(tmp.p("d/large").exists() && tmp.p("d/many/old 7").exists(), "{what}");
            sync(dir, &far, &tmp, &format!("{flags} --delete --max-delete=100%")).ok();
            alike(&tmp, &what);
            assert_eq!(text(&outside), "outside");
            assert_no_litter(&tmp.p("d"));
        }
    }
}

#[test]
fn nothing_goes_unasked_and_filters_hold() {
    for dir in BOTH {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        for name in ["s/a", "s/b.o", "d/b.o", "d/c.o", "d/x", "d/sub/y"] {
            tmp.file(name, name);
        }
        sync(dir, &far, &tmp, "").ok();
        assert!(tmp.p("d/x").exists() && tmp.p("d/sub/y").exists());
        let plan = sync(dir, &far, &tmp, "-n --delete -e *.o").ok().out;
        assert!(plan.contains("- x") && plan.contains("- sub/") && !plan.contains(".o"), "{plan}");
        sync(dir, &far, &tmp, "--delete -e *.o").ok();
        assert_eq!(names(&tmp.p("d")), ["a", "b.o", "c.o"], "{dir:?}");
        sync(dir, &far, &tmp, "--delete-excluded -e *.o").ok();
        assert_eq!(names(&tmp.p("d")), ["a"], "{dir:?}");
    }
}

#[test]
fn an_empty_source_and_one_that_cannot_be_read_delete_nothing() {
    for dir in BOTH {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        tmp.dir("s");
        tmp.file("d/x", "x");
        sync(dir, &far, &tmp, "--delete").code(8).says("the source is empty");
        // What is longer than what a name at the destination may be is not listed as such, so that all is left.
        tmp.file("s/a", "A");
        let ran = sync(dir, &far, &tmp, "--delete");
        ran.ok();
        assert!(!tmp.p("d/x").exists());
    }
}

/// M1: a source of which a filter leaves out all is not empty, wherever it is.
#[test]
fn a_source_of_which_all_is_left_out_is_not_empty() {
    for dir in [None, Some(Dir::Put), Some(Dir::Get)] {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        let run = |flags: &str| {
            let words = flags.split_whitespace();
            match dir {
                None => bcmr(["sync"]).args(words).args([tmp.p("s"), tmp.p("d")]).run(),
                Some(dir) => sync(dir, &far, &tmp, flags),
            }
        };
        for name in ["s/a.o", "d/a.o", "d/b.o", "d/c"] {
            tmp.file(name, name);
        }
        run("--delete -e *.o").ok();
        assert_eq!(names(&tmp.p("d")), ["a.o", "b.o"], "{dir:?}");
        assert!(run("-n --delete-excluded -e *.o").ok().out.contains("a.o"), "{dir:?}");
        run("--delete-excluded -e *.o").ok();
        assert!(names(&tmp.p("d")).is_empty(), "{dir:?}");
        tmp.file("d/c", "c");
        run("--delete=before -e *").ok();
        run("--delete=before --delete-excluded -e *").ok();
        assert!(names(&tmp.p("d")).is_empty(), "{dir:?}");
    }
}

#[test]
fn what_is_in_the_way_goes_first_and_the_same_command_brings_the_rest() {
    for dir in BOTH {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        for name in ["s/file", "s/dir/in", "d/file/full/in", "d/dir"] {
            tmp.file(name, name);
        }
        sync(dir, &far, &tmp, "").code(1).says("cannot overwrite a directory");
        assert_eq!(text(&tmp.p("d/file/full/in")), "d/file/full/in");
        sync(dir, &far, &tmp, "--delete").code(1).says("still to come").says("once more");
        sync(dir, &far, &tmp, "--delete").ok();
        alike(&tmp, &format!("{dir:?}"));
    }
}

/// With `--mkpath` what is missing above DST is made where it is, and nothing is without it.
#[test]
fn directories_above_the_destination_are_made_there() {
    for dir in BOTH {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        tmp.file("s/a", "A");
        let run = |flags: &str| {
            let line = far.bcmr("sync").args(flags.split_whitespace());
            dir.ends(line, &far, &tmp.p("s"), &tmp.p("new/deep/d")).run()
        };
        assert!(run("").code != 0 && !tmp.p("new").exists());
        run("--mkpath --delete").ok();
        assert_eq!(text(&tmp.p("new/deep/d/a")), "A");
    }
    let (far, tmp) = (Far::pipe(), Tmp::new());
    tmp.dir("root");
    tmp.file("s/a", "A");
    let far = far.serving(&format!("--root {}", tmp.p("root").display()));
    let put =
        |to: &str| far.bcmr("copy").args(["--mkpath"]).args([tmp.p("s/a").as_os_str(), &far.at(to)]).run();
    put("/up/../../out/a").one_of(&[1, 8]);
    assert!(!tmp.p("out").exists() && names(&tmp.p("root")).is_empty());
    put("/x/y/a").ok();
    assert_eq!(text(&tmp.p("root/x/y/a")), "A");
}

/// What is other than at the source is so on every way, of what is new and of what was there, files, directories and links; it is
/// not brought up to date again and again, and what is not yet so is.
#[test]
fn owners_and_modes_that_are_other_stay_so() {
    type Way<'a> = (&'a str, &'a dyn Fn(&Tmp, &str) -> Ran);
    let here = |tmp: &Tmp, flags: &str| {
        bcmr(["sync"]).args(flags.split_whitespace()).args([tmp.p("s"), tmp.p("d")]).run()
    };
    let between = |tmp: &Tmp, flags: &str| {
        let on = |host: &str, path: &str| format!("{host}:{}", tmp.p(path).display());
        let far = Far::pipe();
        far.bcmr("sync").args(flags.split_whitespace()).args([on("one", "s"), on("two", "d")]).run()
    };
    let ways: [Way<'_>; 4] = [
        ("here", &here),
        ("up", &|tmp, flags| sync(Dir::Put, &Far::pipe(), tmp, flags)),
        ("down", &|tmp, flags| sync(Dir::Get, &Far::pipe(), tmp, flags)),
        ("between", &between),
    ];
    let flags = if is_root() { "--chmod F604,D711 --chown 7:8" } else { "--chmod F604,D711" };
    for (way, run) in ways {
        for is_new in [false, true] {
            let tmp = Tmp::new();
            for name in ["s/a", "s/sub/b"] {
                chmod(&tmp.file(name, name), 0o666);
            }
            tmp.file("s/large", noise(1, 2 << 20));
            symlink("a", tmp.p("s/l")).unwrap();
            if !is_new {
                run(&tmp, "").ok();
            }
            run(&tmp, flags).ok();
            for (name, want) in
                [("", 0o711), ("sub", 0o711), ("a", 0o604), ("sub/b", 0o604), ("large", 0o604), ("l", 0o777)]
            {
                let found = fs::symlink_metadata(tmp.p("d").join(name)).unwrap();
                let what = format!("{way}, new {is_new}: {name}");
                assert_eq!(found.mode() & 0o7777, want, "{what}");
                assert!(!is_root() || (found.uid(), found.gid()) == (7, 8), "{what}");
            }
            let again = run(&tmp, &format!("-n -i {flags}")).ok().out;
            assert!(again.lines().all(|line| !line.starts_with(['>', '.'])), "{way}: {again}");
        }
    }
}

/// The mode has a part of an ACL: once that is as asked for, nothing is brought up to date again, and snapshots share it.
#[test]
fn modes_that_are_other_stay_so_beside_an_acl() {
    needs!(has_tool("setfacl"), "needs setfacl");
    for way in [None, Some(Dir::Put), Some(Dir::Get)] {
        let tmp = Tmp::new();
        for name in ["s/f", "s/g", "s/sub/x"] {
            chmod(&tmp.file(name, name), 0o640);
        }
        fs::hard_link(tmp.p("s/g"), tmp.p("s/h")).unwrap();
        let set = |words: &str| {
            let status =
                std::process::Command::new("setfacl").args(words.split(' ')).current_dir(tmp.path()).status();
            assert!(status.unwrap().success(), "{words}");
        };
        set("-m u:1:rwx s/f s/g s/sub");
        set("-m d:u:1:rwx s/sub");
        let run = |flags: &str, to: &str| {
            let words = flags.split_whitespace();
            match way {
                None => bcmr(["sync"]).args(words).args([tmp.p("s"), tmp.p(to)]).run().ok(),
                Some(dir) => {
                    let far = Far::pipe();
                    dir.ends(far.bcmr("sync").args(words), &far, &tmp.p("s"), &tmp.p(to)).run().ok()
                }
            }
        };
        let stamps = |top: &str| {
            ["f", "g", "h", "sub", "sub/x"].map(|name| {
                let found = fs::symlink_metadata(tmp.p(top).join(name)).unwrap();
                (name, found.ino(), found.ctime(), found.ctime_nsec())
            })
        };
        let flags = "--chmod D755,F604";
        run(flags, "d");
        assert_eq!((mode(&tmp.p("d/f")), mode(&tmp.p("d/sub"))), (0o604, 0o755), "{way:?}");
        let before = stamps("d");
        let plan = run(&format!("-n -i {flags}"), "d").out;
        assert!(plan.lines().all(|line| !line.starts_with(['>', '.'])), "{way:?}: {plan}");
        run(flags, "d");
        assert_eq!(before, stamps("d"), "{way:?}");
        // The twin: an ACL that is another one is brought up to date.
        set("-m u:2:r s/f");
        let plan = run(&format!("-n {flags}"), "d").out;
        assert!(plan.contains("~ f  acl") && plan.matches('~').count() == 1, "{way:?}: {plan}");
        for day in ["1", "2"] {
            run(&format!("--snapshot --at 2026-01-0{day} {flags}"), "snaps");
        }
        let ino = |day: &str, name: &str| {
            fs::metadata(tmp.p(format!("snaps/2026-01-0{day}T000000Z/{name}"))).unwrap().ino()
        };
        for name in ["f", "g", "h", "sub/x"] {
            assert_eq!(ino("1", name), ino("2", name), "{way:?} {name}");
        }
    }
}

/// Each change is one line with its letters, far as near.
#[test]
fn changes_are_itemized() {
    let here = |tmp: &Tmp, flags: &str| {
        bcmr(["sync"]).args(flags.split_whitespace()).args([tmp.p("s"), tmp.p("d")]).run()
    };
    let lines = |ran: Ran| {
        let mut lines: Vec<String> = ran.ok().out.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    type Way<'a> = &'a dyn Fn(&Tmp, &str) -> Ran;
    let runs: [Way<'_>; 3] =
        [&here, &|tmp, flags| sync(Dir::Put, &Far::pipe(), tmp, flags), &|tmp, flags| {
            sync(Dir::Get, &Far::pipe(), tmp, flags)
        }];
    for (n, run) in runs.into_iter().enumerate() {
        let tmp = Tmp::new();
        for name in ["s/a", "s/sub/b", "d/a.old", "d/x"] {
            tmp.file(name, name);
        }
        symlink("a", tmp.p("s/l")).unwrap();
        let would = lines(run(&tmp, "-n -i --delete"));
        assert!(
            would.contains(&">f+++++++++ a".to_owned()) && would.contains(&"*deleting   x".to_owned()),
            "{n}: {would:?}"
        );
        let did = lines(run(&tmp, "-i --delete --stats"));
        let told = ["*deleting   a.old", "*deleting   x", ">f????????? a", "cL+++++++++ l"];
        assert!(told.iter().all(|line| did.iter().any(|l| l == line)), "{n}: {did:?}");
        // Attributes of a directory alone, once.
        chmod(&tmp.p("s/sub"), 0o700);
        assert_eq!(lines(run(&tmp, "-i")), [".?????????? sub"], "{n}");
        assert!(lines(run(&tmp, "-i")).is_empty(), "{n}");
    }
}

/// A link at DST's own name, which another machine may have put there, is neither followed nor replaced.
#[test]
fn the_destinations_own_name_is_not_followed_where_it_may_be_theirs() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    tmp.file("s/a", "A");
    tmp.file("elsewhere/kept", "kept");
    symlink("elsewhere", tmp.p("d")).unwrap();
    sync(Dir::Get, &far, &tmp, "--delete").code(8);
    assert_eq!(text(&tmp.p("elsewhere/kept")), "kept");
    assert!(fs::symlink_metadata(tmp.p("d")).unwrap().is_symlink());
}

/// Below a wall the server deletes below its root, and only there.
#[test]
fn a_confined_server_deletes_too() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    let far = far.serving(&format!("--root {}", tmp.p("root").display()));
    for name in ["s/a", "root/d/x", "root/d/old/deep/y"] {
        tmp.file(name, name);
    }
    let line = far.bcmr("sync").args(["--delete"]);
    line.args([tmp.p("s").as_os_str(), &far.at("/d")]).run().ok();
    assert_eq!(names(&tmp.p("root/d")), ["a"]);
}

/// Where SRC and DST are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Here,
    Far(Dir),
    Between,
}

const WAYS: [Way; 4] = [Way::Here, Way::Far(Dir::Put), Way::Far(Dir::Get), Way::Between];

fn sync_by(way: Way, far: &Far, tmp: &Tmp, flags: &str) -> Ran {
    let on = |host: &str, path: &str| format!("{host}:{}", tmp.p(path).display());
    let mut line = match way {
        Way::Here => bcmr(["sync"]).args(flags.split_whitespace()).args([tmp.p("s"), tmp.p("d")]),
        Way::Far(dir) => {
            let line = far.bcmr("sync").args(flags.split_whitespace());
            dir.ends(line, far, &tmp.p("s"), &tmp.p("d"))
        }
        Way::Between => {
            let line = far.bcmr("sync").args(flags.split_whitespace());
            line.args([on("one", "s"), on("two", "d")])
        }
    };
    line.0.env("XDG_STATE_HOME", tmp.p("state"));
    line.run()
}

/// What goes before anything arrives goes by the same rules wherever the two are, and the rest is done as ever.
#[test]
fn what_goes_first_goes_by_the_same_rules() {
    type Prepare = fn(&Tmp);
    let in_the_way: Prepare = |tmp| {
        tmp.file("s/file", "a file");
        tmp.file("d/file/in", "");
        tmp.file("d/file/too", "");
    };
    // The exit status, what is said, and whether what only the destination has goes.
    let table: [(&str, Prepare, i32, &str, bool); 9] = [
        ("", |_| (), 0, "", true),
        ("--mkpath --checksum -V", |_| (), 0, "", true),
        ("--max-delete=2", |_| (), 8, "entries would go", false),
        (
            "",
            |tmp| fs::rename(tmp.p("s"), tmp.p("away")).and(fs::create_dir(tmp.p("s"))).unwrap(),
            8,
            "empty",
            false,
        ),
        ("-e old", |_| (), 0, "", false),
        ("--delete-excluded -e old", |_| (), 0, "", true),
        // Only the sender can tell what this leaves out.
        (
            "--max-size=3",
            |tmp| drop((tmp.file("s/longer", "longer"), tmp.file("d/longer", "older"))),
            0,
            "",
            true,
        ),
        // A directory that is in the way goes in the end, and is counted with what went.
        ("--max-delete=6", in_the_way, 0, "", true),
        ("--max-delete=5", in_the_way, 8, "entries would go", false),
    ];
    for (n, way) in WAYS.into_iter().enumerate() {
        for (m, (flags, prepare, code, says, goes)) in table.into_iter().enumerate() {
            // An ordinary run takes a third: each row at least one way, and each way three rows.
            if !in_slice(n + m, 3) {
                continue;
            }
            let (far, tmp) = (Far::pipe(), Tmp::new());
            let about = format!("{way:?} {flags} {says}");
            for name in ["s/a", "s/sub/b", "d/old/x", "d/old/y"] {
                tmp.file(name, "abc");
            }
            prepare(&tmp);
            let plain = flags.replace("--mkpath", "");
            let dry = sync_by(way, &far, &tmp, &format!("-n --delete {plain}"));
            assert_eq!(
                dry.out,
                sync_by(way, &far, &tmp, &format!("-n --delete=before {plain}")).out,
                "{about}"
            );
            let ran = sync_by(way, &far, &tmp, &format!("--delete=before {flags}"));
            let clears = goes && tmp.p("s/file").exists();
            let code = if clears && way != Way::Here { 1 } else { code };
            // What is in the way of something keeps that from arriving.
            let stays = code == 8 && tmp.p("d/file").is_dir();
            assert!(ran.code == code || stays && ran.code != 0, "{about}: {} {}", ran.code, ran.err);
            assert!(ran.err.contains(says), "{about}: {}", ran.err);
            assert_eq!(tmp.p("d/old/x").exists(), !goes, "{about}: {}", ran.err);
            if names(&tmp.p("s")).is_empty() {
                continue;
            }
            assert_eq!(text(&tmp.p("d/sub/b")), "abc", "{about}: all else is done");
            if clears && way != Way::Here {
                ran.says("still to come");
                sync_by(way, &far, &tmp, &format!("--delete=before {flags}")).ok();
            }
            match flags {
                "--max-size=3" => assert_eq!(text(&tmp.p("d/longer")), "older", "{about}: it is spared"),
                _ if goes => alike(&tmp, &about),
                _ => {}
            }
        }
    }
}

/// Each thing that goes is told once, and counted; what failed as well; and where there is no DST yet nothing goes.
#[test]
fn what_goes_first_is_told_once() {
    for way in WAYS {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        for name in ["s/a", "d/old"] {
            tmp.file(name, name);
        }
        tmp.file("d/a", "an older one");
        let ran = sync_by(way, &far, &tmp, "-i --delete=before --stats").ok();
        assert_eq!(ran.out.matches("*deleting   old").count(), 1, "{way:?}: {}", ran.out);
        assert_eq!(ran.out.matches(" a\n").count(), 1, "{way:?}: {}", ran.out);
        alike(&tmp, &format!("{way:?}"));
        let again = sync_by(way, &far, &tmp, "-i --delete=before").ok();
        assert_eq!(again.out, "", "{way:?}");
        fs::remove_dir_all(tmp.p("d")).unwrap();
        sync_by(way, &far, &tmp, "--delete=before").ok();
        alike(&tmp, &format!("{way:?}, anew"));
    }
}

/// Where something of the source cannot be listed nothing goes, before as after, and that is said once.
#[test]
fn what_cannot_be_listed_there_keeps_what_would_go_first() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    for way in [Way::Far(Dir::Get), Way::Between] {
        let tmp = Tmp::for_others();
        for name in ["s/a", "s/closed/b", "s/sub/c", "d/old", "d/closed/old", "d/sub/old"] {
            tmp.file(name, name);
        }
        chmod(&tmp.p("s/closed"), 0o700);
        for dir in ["d", "d/closed", "d/sub"] {
            std::os::unix::fs::chown(tmp.p(dir), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let far = Far::pipe();
        chmod(&far.home(), 0o777);
        let nobody = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
        let far = far.with("FAR_RUN", nobody).program(&tmp.p("bcmr"));
        let ran = sync_by(way, &far, &tmp, "--delete=before").code(8);
        let stays = ["d/old", "d/closed/old", "d/sub/old"].iter().all(|name| tmp.p(name).exists());
        assert!(stays, "{way:?}: {}", ran.err);
        assert_eq!(ran.err.matches("/closed'").count(), 1, "{way:?}: {}", ran.err);
        ran.says("not all of the source has arrived");
        assert!(tmp.p("d/a").exists(), "{way:?}: the rest is done");
    }
}

/// Where there is no room for both, what only the destination has goes first, or nothing arrives.
#[test]
fn what_goes_first_makes_room_there() {
    needs!(is_root(), "mounting needs root");
    for way in &WAYS[1..] {
        for when in ["--delete", "--delete=before"] {
            let (far, tmp) = (Far::pipe(), Tmp::new());
            tmp.file("s/new", noise(1, 5 << 20));
            let _disk = match Mount::tmpfs("size=8m", &tmp.p("d")) {
                Ok(mount) => mount,
                Err(why) => return skipped("what_goes_first_makes_room_there", &why),
            };
            tmp.file("d/old", noise(2, 5 << 20));
            let ran = sync_by(*way, &far, &tmp, when);
            let has_room = when == "--delete=before";
            assert_eq!(ran.code == 0, has_room, "{way:?} {when}: {}", ran.err);
            assert_eq!(tmp.p("d/new").exists(), has_room, "{way:?} {when}");
            assert_eq!(tmp.p("d/old").exists(), !has_room, "{way:?} {when}");
        }
    }
}

/// What goes first is kept as well, with a receipt of its own between two machines; the last one is undone first.
#[test]
fn what_goes_first_is_kept_and_undone() {
    for way in WAYS {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        for name in ["s/a", "d/old/in"] {
            tmp.file(name, name);
        }
        tmp.file("d/a", "an older one");
        let was = tree(&tmp.p("d"));
        let flags = format!("--delete=before --backup-dir={}", tmp.p("kept").display());
        sync_by(way, &far, &tmp, &flags).ok();
        alike(&tmp, &format!("{way:?}"));
        let receipts: Vec<_> = names(&tmp.p("kept")).into_iter().rev().collect();
        assert_eq!(receipts.len(), if way == Way::Here { 1 } else { 2 }, "{way:?}");
        for run in receipts {
            bcmr(["undo"]).args([tmp.p("kept").join(run).join("receipt")]).run().ok();
        }
        let told = differences(&was, &tree(&tmp.p("d")), CONTENT);
        assert!(told.is_empty(), "{way:?}:\n{}", told.join("\n"));
    }
}

/// A connection that is lost in the look, or after it, is made again, and nothing goes that would not.
#[test]
fn what_goes_first_where_the_connection_is_lost() {
    for dir in BOTH {
        for (n, bytes) in ["300", "1000", "200000"].into_iter().enumerate() {
            // An ordinary run tries each one way.
            if !in_slice(n + dir as usize, 2) {
                continue;
            }
            let tmp = Tmp::new();
            for n in 0..200 {
                tmp.file(format!("s/{n}"), noise(n, 2000));
                tmp.file(format!("d/old/{n}"), "old");
            }
            let far = Far::relay().with("RELAY_ONCE", tmp.p("once"));
            let far = far.with(if dir == Dir::Put { "RELAY_UP" } else { "RELAY_DOWN" }, bytes);
            let ran = sync_by(Way::Far(dir), &far, &tmp, "--delete=before --max-delete=100%");
            assert_eq!(ran.code, 0, "{dir:?} {bytes}: {}", ran.err);
            alike(&tmp, &format!("{dir:?} {bytes}"));
        }
    }
}
