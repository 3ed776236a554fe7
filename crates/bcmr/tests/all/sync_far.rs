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

#[test]
fn contents_and_attributes_arrive_and_what_only_the_destination_has_goes() {
    for dir in BOTH {
        for flags in ["", "--parallel=3", "--checksum", "-V"] {
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

#[test]
fn what_is_in_the_way_goes_first_and_the_same_command_brings_the_rest() {
    for dir in BOTH {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        for name in ["s/file", "s/dir/in", "d/file/full/in", "d/dir"] {
            tmp.file(name, name);
        }
        sync(dir, &far, &tmp, "").code(1).says("cannot overwrite a directory");
        assert_eq!(text(&tmp.p("d/file/full/in")), "d/file/full/in");
        sync(dir, &far, &tmp, "--delete").code(1).says("still to come");
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
        let line = Far::pipe().bcmr("sync").args(flags.split_whitespace());
        line.args([on("one", "s"), on("two", "d")]).run()
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
