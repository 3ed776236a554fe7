//! What `bcmr sync` keeps of what it replaces and deletes, and how `bcmr undo` gives it back.

use crate::common::remote::*;
use crate::common::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// `bcmr` with these words in `tmp`, where its state and its trash are too.
fn line(tmp: &Tmp, words: &str) -> Line {
    let mut line = bcmr(words.split(' ')).cwd(tmp.path());
    line.0.env("XDG_STATE_HOME", tmp.p("state")).env("XDG_DATA_HOME", tmp.p("data"));
    line
}

fn run(tmp: &Tmp, words: &str) -> Ran {
    line(tmp, words).run()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// A tree without times of access, and without what a killed run left to be taken up.
fn seen(root: &Path) -> Tree {
    let is_ours = |path: &Vec<u8>| path.split(|b| *b == b'/').any(|name| name.starts_with(b".bcmr"));
    let mut all = tree(root);
    all.retain(|path, _| !is_ours(path));
    all.values_mut().for_each(|entry| entry.atime = (0, 0));
    all
}

#[track_caller]
fn same(before: &Tree, now: &Tree, what: &str) {
    let told = differences(before, now, EVERYTHING);
    assert!(told.is_empty(), "{what}:\n{}", told.join("\n"));
}

/// Where the receipts are, the oldest first.
fn receipts(place: &Path) -> Vec<PathBuf> {
    let runs = if place.exists() { names(place) } else { Vec::new() };
    let all = runs.into_iter().map(|run| place.join(run).join("receipt"));
    all.filter(|receipt| receipt.exists()).collect()
}

/// A destination, and a source that differs in every way.
fn two(tmp: &Tmp) {
    for (name, content) in [("same", "S"), ("gone", "G"), ("changed", "old"), ("sub/changed", "old too")] {
        tmp.file(format!("d/{name}"), content);
    }
    for name in ["old/deep/1", "old/2", "file-to-dir", "dir-to-file/in/it", "sub/ro/kept", "sub/ro/gone"] {
        tmp.file(format!("d/{name}"), format!("old {name}"));
    }
    tmp.dir("d/empty-to-file");
    symlink("nowhere", tmp.p("d/link")).unwrap();
    fs::hard_link(tmp.p("d/gone"), tmp.p("d/gone too")).unwrap();
    chmod(&tmp.p("d/changed"), 0o604);
    chmod(&tmp.p("d/sub"), 0o711);
    bcmr(["copy", "-r", "--archive", "-T"]).args([tmp.p("d"), tmp.p("s")]).run().ok();
    for name in ["gone", "gone too", "file-to-dir", "link", "sub/ro/gone"] {
        fs::remove_file(tmp.p("s").join(name)).unwrap();
    }
    for name in ["old", "dir-to-file", "empty-to-file"] {
        fs::remove_dir_all(tmp.p("s").join(name)).unwrap();
    }
    for name in [
        "changed",
        "sub/changed",
        "dir-to-file",
        "empty-to-file",
        "file-to-dir/in",
        "new/deep/x",
        "new/edited",
        "\ttab\n",
    ] {
        tmp.file(format!("s/{name}"), format!("new content of {name}"));
    }
    symlink("elsewhere", tmp.p("s/link")).unwrap();
    chmod(&tmp.p("s/same"), 0o600);
    chmod(&tmp.p("s/sub"), 0o750);
}

#[test]
fn what_is_replaced_or_deleted_is_kept_and_undo_gives_it_back() {
    for way in ["--backup-dir kept", "--backup-dir d/kept", "--trash"] {
        let tmp = Tmp::new();
        two(&tmp);
        let source = seen(&tmp.p("s"));
        let before = seen(&tmp.p("d"));
        run(&tmp, &format!("sync -n --delete --max-delete=100% {way} s d")).ok();
        assert!(!tmp.p("kept").exists() && !tmp.p("d/kept").exists(), "{way}: -n changes nothing");
        let ran = run(&tmp, &format!("sync --delete --max-delete=100% {way} s d")).ok();
        let place = match way {
            "--trash" => tmp.p("state/bcmr/undo"),
            way => tmp.p(way.rsplit(' ').next().unwrap()),
        };
        let [receipt] = &receipts(&place)[..] else { panic!("{way}: {:?}", receipts(&place)) };
        assert!(ran.err.contains("bcmr undo"), "{way}: {}", ran.err);
        let inside = |tree: &Tree| {
            let mut tree = tree.clone();
            tree.retain(|path, _| !path.starts_with(b"kept"));
            // Where what is kept is below the destination, that has changed once more.
            tree.get_mut(&b""[..]).unwrap().mtime = (0, 0);
            tree
        };
        same(&inside(&source), &inside(&seen(&tmp.p("d"))), way);
        // Once more: there is nothing to do, so nothing is kept.
        run(&tmp, &format!("sync --delete {way} s d")).ok();
        assert_eq!(receipts(&place).len(), 1, "{way}");
        if way == "--backup-dir kept" {
            let old = receipt.with_file_name("old");
            assert_eq!(text(&old.join("changed")), "old");
            assert_eq!(text(&old.join("old/deep/1")), "old old/deep/1");
            assert_eq!(mode(&tmp.p("kept")), 0o700, "what was private stays so");
        }
        let words = format!("undo -n {}", receipt.display());
        run(&tmp, &words).ok();
        same(&inside(&source), &inside(&seen(&tmp.p("d"))), "undo -n");
        run(&tmp, &format!("undo {}", receipt.display())).ok();
        same(&inside(&before), &inside(&seen(&tmp.p("d"))), way);
        if way != "--backup-dir d/kept" {
            same(&before, &seen(&tmp.p("d")), way);
        }
        // What was given back is kept no more, and to undo it twice does nothing.
        run(&tmp, &format!("undo {}", receipt.display())).ok();
        same(&inside(&before), &inside(&seen(&tmp.p("d"))), "twice");
        match way {
            "--trash" => assert_eq!(names(&tmp.p("data/Trash/info")).len(), 0),
            _ => assert_eq!(names(receipt.parent().unwrap()), ["receipt"], "{way}"),
        }
    }
}

#[test]
fn what_has_changed_since_stays_and_is_named() {
    let tmp = Tmp::new();
    two(&tmp);
    run(&tmp, "sync --delete --max-delete=100% --backup-dir kept s d").ok();
    let receipt = receipts(&tmp.p("kept")).pop().unwrap();
    fs::write(tmp.p("d/changed"), "by the user").unwrap();
    tmp.file("d/gone", "by the user");
    tmp.file("d/new/deep/y", "by the user");
    tmp.file("d/new/edited", "by the user");
    fs::remove_file(tmp.p("d/sub/changed")).unwrap();
    // What is behind the link is the very file that the run has made, and not at its name.
    fs::rename(tmp.p("d/file-to-dir"), tmp.p("moved away")).unwrap();
    symlink("../moved away", tmp.p("d/file-to-dir")).unwrap();
    let told = |ran: Ran| {
        let mut lines: Vec<String> =
            ran.err.lines().filter(|l| l.contains("'d/")).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let foretold = told(run(&tmp, &format!("undo -n {}", receipt.display())).code(8));
    let ran = run(&tmp, &format!("undo {}", receipt.display())).code(8);
    for name in ["d/changed", "d/gone", "d/new/deep", "d/new/edited", "d/file-to-dir"] {
        assert!(ran.err.contains(name), "{name}: {}", ran.err);
    }
    assert_eq!(foretold, told(ran), "-n refuses what the run refuses");
    for name in ["changed", "gone", "new/deep/y", "new/edited"] {
        assert_eq!(text(&tmp.p("d").join(name)), "by the user", "{name}");
    }
    assert!(tmp.p("moved away/in").exists(), "no link is followed");
    assert!(tmp.p("d/file-to-dir").is_symlink());
    // All else is given back, also where the new one is there no more.
    assert_eq!(text(&tmp.p("d/sub/changed")), "old too");
    assert_eq!(text(&tmp.p("d/old/deep/1")), "old old/deep/1");
    assert_eq!(text(&tmp.p("d/dir-to-file/in/it")), "old dir-to-file/in/it");
    assert!(!tmp.p("d/new/deep/x").exists());
    // What could not be given back is kept still.
    let old = receipt.with_file_name("old");
    assert_eq!((text(&old.join("changed")), text(&old.join("gone"))), ("old".into(), "G".into()));
    // Once the user's own is out of the way, the rest comes.
    fs::remove_file(tmp.p("d/gone")).unwrap();
    run(&tmp, &format!("undo {}", receipt.display())).code(8);
    assert_eq!(text(&tmp.p("d/gone")), "G");
}

/// Killed at any call that gives or takes a name: what was there is found by one of its two names, and undo gives it back.
#[test]
fn a_killed_run_is_undone_too() {
    needs!(has_tool("strace"), "there is no strace");
    let calls = "renameat2,renameat,rename,unlinkat,mkdirat,linkat";
    until_not_killed(80, 3, |at| killed_and_undone(at, calls));
    // And before it writes down what was done: then nothing of that is done.
    until_not_killed(120, 3, |at| killed_and_undone(at, "write"));
}

fn killed_and_undone(at: usize, calls: &str) -> Ran {
    let tmp = Tmp::new();
    two(&tmp);
    // Directories that have the source's times before and after.
    for name in ["d/alike/in/x", "d/alike/in/gone", "d/alike/emptied/gone", "d/filled/x"] {
        tmp.file(name, "old");
    }
    for name in ["s/alike/in/x", "s/alike/in/new", "s/alike/emptied/x", "s/filled/x", "s/filled/new/x"] {
        tmp.file(name, "the new one");
    }
    tmp.file("d/alike/emptied/x", "the new one");
    for name in ["alike/in", "alike/emptied", "alike", "filled"] {
        for side in ["s", "d"] {
            let dir = fs::File::open(tmp.p(side).join(name)).unwrap();
            dir.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
    }
    let before = seen(&tmp.p("d"));
    let mut line = bcmr_killed_at(at, calls);
    line.0.env("XDG_STATE_HOME", tmp.p("state"));
    let ran = line
        .args(["sync", "-j1", "--delete", "--max-delete=100%", "--backup-dir"])
        .args([tmp.p("kept"), tmp.p("s"), tmp.p("d")])
        .run();
    for receipt in receipts(&tmp.p("kept")) {
        let undo = || run(&tmp, &format!("undo {}", receipt.display())).one_of(&[0, 8]);
        // One whose beginning was not written yet is none, and nothing was done. A new directory that holds half of what
        // came into it is in the way, until that is taken away.
        let mut undone = undo();
        if undone.code == 8 {
            run(&tmp, "sessions --clean d").ok();
            undone = undo();
        }
        let old = receipt.with_file_name("old");
        let kept = if undone.code == 0 && old.exists() { tree(&old) } else { Tree::new() };
        let left = kept.values().find(|entry| !entry.kind.is_dir());
        assert!(left.is_none(), "killed at {at} of {calls}: something is kept still: {left:?}");
    }
    same(&before, &seen(&tmp.p("d")), &format!("killed at {at} of {calls}"));
    ran
}

#[test]
fn what_cannot_be_kept_is_not_replaced() {
    let tmp = Tmp::new();
    two(&tmp);
    let before = seen(&tmp.p("d"));
    run(&tmp, "sync --delete --backup-dir d s d").code(8).says("cannot be where the destination itself is");
    same(&before, &seen(&tmp.p("d")), "in itself");
    needs!(is_root(), "mounting needs root");
    let Ok(_mount) = Mount::tmpfs("size=4m", &tmp.p("elsewhere")) else {
        return skipped("what_cannot_be_kept_is_not_replaced", "there are no mounts");
    };
    run(&tmp, "sync --delete --backup-dir elsewhere/kept s d").code(8).says("file system of the destination");
    same(&before, &seen(&tmp.p("d")), "elsewhere");
    // One that begins below the destination: what is there is replaced, or deleted, only with what is kept beside it.
    let Ok(_below) = Mount::tmpfs("size=4m", &tmp.p("d/sub")) else { return };
    for name in ["d/sub/changed", "d/sub/only there"] {
        tmp.file(name, "on another file system");
    }
    let ran = run(&tmp, "sync --delete --max-delete=100% --backup-dir kept s d").code(8);
    assert!(ran.err.contains("d/sub/changed"), "{}", ran.err);
    for name in ["d/sub/changed", "d/sub/only there"] {
        assert_eq!(text(&tmp.p(name)), "on another file system", "{name}");
    }
    // The trash of a file system of its own is at its top, and stays where things are deleted.
    tmp.file("elsewhere/x", "X");
    run(&tmp, "sync --delete --max-delete=100% --trash s elsewhere").ok();
    let trash = tmp.p(format!("elsewhere/.Trash-{}", rustix::process::geteuid().as_raw()));
    assert_eq!(text(&trash.join("files/x")), "X");
    assert!(text(&trash.join("info/x.trashinfo")).contains("\nPath=x\nDeletionDate=20"));
    let receipt = receipts(&tmp.p("state/bcmr/undo")).pop().unwrap();
    run(&tmp, &format!("undo {}", receipt.display())).ok();
    assert_eq!(text(&tmp.p("elsewhere/x")), "X");
}

/// The rules of deletion hold where what goes is kept: nothing moves that would not have been deleted.
#[test]
fn no_more_is_moved_than_would_be_deleted() {
    let tmp = Tmp::new();
    for n in 0..90 {
        tmp.file(format!("s/{n}"), "");
        tmp.file(format!("d/{n}"), "");
        tmp.file(format!("d/old/{n}"), "");
    }
    run(&tmp, "sync --delete --backup-dir kept s d").code(8).says("entries would go");
    assert_eq!(names(&tmp.p("d/old")).len(), 90);
    run(&tmp, "sync --delete --max-delete=100% --backup-dir kept s d").ok();
    assert!(!tmp.p("d/old").exists());
    // What holds what is kept is not moved into itself, and what is beside that is kept.
    tmp.file("d/holds/x", "x");
    run(&tmp, "sync --delete --backup-dir d/holds/kept s d").ok();
    assert_eq!(names(&tmp.p("d/holds")), ["kept"]);
    for receipt in receipts(&tmp.p("d/holds/kept")) {
        run(&tmp, &format!("undo {}", receipt.display())).ok();
    }
    assert_eq!(text(&tmp.p("d/holds/x")), "x");
}

/// Where a filter leaves something out as well, and where what is kept holds what the filter leaves out.
#[test]
fn what_is_kept_below_the_destination_stays_with_a_filter_too() {
    for filter in ["-e old/", "-e *.o", "-e receipt", "-e files/", "-e none"] {
        for (place, way) in [("kept", "--backup-dir d/kept"), ("only/kept", "--backup-dir d/only/kept")] {
            for when in ["--delete", "--delete=before", "--delete-excluded"] {
                let tmp = Tmp::new();
                for name in ["s/a", "d/b.c", "d/only/c.o", "d/only/c.c", "d/only/deep/c"] {
                    tmp.file(name, name);
                }
                let words = format!("sync {when} --max-delete=100% {filter} {way} s d");
                run(&tmp, &words).ok();
                let first = tree(&tmp.p("d").join(place));
                tmp.file("d/later", "later");
                let told = run(&tmp, &words.replace("sync", "sync -n")).ok().out;
                assert!(told.contains("later") && !told.contains("kept"), "{words}: {told}");
                run(&tmp, &words).ok();
                let mut second = tree(&tmp.p("d").join(place));
                second.retain(|path, _| first.contains_key(path));
                for entries in [&mut second, &mut first.clone()] {
                    entries.get_mut(&b""[..]).unwrap().mtime = (0, 0);
                }
                let told = differences(&first, &second, Exact { times: false, ..EVERYTHING });
                assert!(told.is_empty(), "{words}:\n{}", told.join("\n"));
                assert_eq!(receipts(&tmp.p("d").join(place)).len(), 2, "{words}");
            }
        }
    }
    needs!(is_root(), "mounting needs root");
    let tmp = Tmp::new();
    let Ok(_mount) = Mount::tmpfs("size=4m", &tmp.p("d")) else {
        return skipped("what_is_kept_below_the_destination_stays_with_a_filter_too", "there are no mounts");
    };
    for name in ["s/a", "d/b.o", "d/c"] {
        tmp.file(name, name);
    }
    let trash = tmp.p(format!("d/.Trash-{}/files", rustix::process::geteuid().as_raw()));
    for kept in [&["c"][..], &["c", "e"]] {
        run(&tmp, "sync --delete --max-delete=100% -e *.o --trash s d").ok();
        assert_eq!(names(&trash), kept);
        tmp.file("d/e", "e");
    }
}

/// From another machine the receiver is here, and keeps as it does near.
#[test]
fn what_comes_from_another_machine_is_undone_here() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    two(&tmp);
    let before = seen(&tmp.p("d"));
    let sync = || {
        let words = ["--delete", "--max-delete=100%", "--backup-dir"];
        let line = far.bcmr("sync").args(words).args([tmp.p("kept")]);
        Dir::Get.ends(line, &far, &tmp.p("s"), &tmp.p("d")).run()
    };
    sync().one_of(&[0, 1]);
    sync().ok();
    for receipt in receipts(&tmp.p("kept")).into_iter().rev() {
        run(&tmp, &format!("undo {}", receipt.display())).ok();
    }
    same(&before, &seen(&tmp.p("d")), "from there");
}

#[test]
fn what_is_no_receipt_is_refused() {
    let tmp = Tmp::new();
    two(&tmp);
    tmp.file("f", "no receipt");
    run(&tmp, "undo f").code(8).says("no receipt");
    run(&tmp, "undo none").code(1);
    run(&tmp, "sync --delete --max-delete=100% --backup-dir kept s d").ok();
    let receipt = receipts(&tmp.p("kept")).pop().unwrap();
    // Another directory is there by now.
    fs::rename(tmp.p("d"), tmp.p("d.away")).unwrap();
    tmp.file("d/changed", "another");
    run(&tmp, &format!("undo {}", receipt.display())).code(8).says("another directory is there");
    assert_eq!(text(&tmp.p("d/changed")), "another");
    // A receipt that leads out of the destination is none.
    let written = text(&receipt);
    fs::write(&receipt, format!("{written}-\told/changed\t../f\n")).unwrap();
    run(&tmp, &format!("undo {}", receipt.display())).code(8).says("no receipt");
    assert!(fs::metadata(tmp.p("f")).unwrap().size() > 0);
}

/// What a receipt is about is known by more than its path and its inode's number, which the root of every disk has.
#[test]
fn nothing_is_undone_on_another_disk() {
    needs!(is_root(), "mounting needs root");
    let tmp = Tmp::new();
    for name in ["s/one", "s/dir/two"] {
        tmp.file(name, name);
    }
    let insert = || Mount::tmpfs("size=4m", &tmp.p("disk")).ok();
    let sync = || run(&tmp, "sync --trash s disk").ok();
    let Some(first) = insert() else {
        return skipped("nothing_is_undone_on_another_disk", "there are no mounts");
    };
    sync();
    let undos = tmp.p("state/bcmr/undo");
    let about = receipts(&undos).pop().unwrap();
    let seen = fs::metadata(tmp.p("disk")).unwrap();
    needs!(seen.created().is_ok(), "the kernel does not tell when a directory came to be");
    drop(first);
    let _other = insert();
    assert_eq!(fs::metadata(tmp.p("disk")).unwrap().ino(), seen.ino());
    sync();
    run(&tmp, &format!("undo {}", about.display())).code(8).says("another directory is there");
    for name in ["one", "dir/two"] {
        assert_eq!(text(&tmp.p("disk").join(name)), format!("s/{name}"));
    }
    let own = receipts(&undos).into_iter().find(|receipt| *receipt != about).unwrap();
    run(&tmp, &format!("undo {}", own.display())).ok();
    assert!(!tmp.p("disk/one").exists() && !tmp.p("disk/dir").exists());
}

/// `bcmr sync` of one file that is replaced, under strace with these words.
fn replaced_under_strace(tmp: &Tmp, words: &[&str]) -> Ran {
    tmp.file("s/a", "new");
    tmp.file("d/a", "what was there");
    let line = Line::new(Path::new("strace")).args(["-f", "-y", "-qq", "-o", "log"]).args(words);
    let mut line = line.args([BCMR, "sync", "-j1", "--backup-dir", "kept", "s", "d"]).cwd(tmp.path());
    line.0.env("XDG_STATE_HOME", tmp.p("state"));
    line.run()
}

/// M7, R9: what is kept has its second name, and stands in the receipt, on stable storage before it loses the first.
#[test]
fn what_is_kept_is_on_stable_storage_before_it_is_replaced() {
    needs!(has_tool("strace"), "there is no strace");
    let tmp = Tmp::new();
    let calls = "trace=linkat,renameat,renameat2,fsync,fdatasync,syncfs";
    replaced_under_strace(&tmp, &["-e", calls]).ok();
    assert_eq!(text(&tmp.p("d/a")), "new");
    let log = text(&tmp.p("log"));
    let told: Vec<&str> = log.lines().collect();
    let names = |call: &str, of: &str| call.contains(of) && call.contains("\"a\"");
    let kept = told.iter().position(|call| names(call, "linkat(") && call.contains("/old>"));
    let kept = kept.unwrap_or_else(|| panic!("no second name: {log}"));
    let behind = &told[kept..];
    let replaced = behind.iter().position(|call| names(call, "rename"));
    let between = &behind[..replaced.unwrap_or_else(|| panic!("not replaced: {log}"))];
    for (call, of) in [("fsync(", "/old>"), ("fdatasync(", "/receipt>")] {
        assert!(between.iter().any(|line| line.contains(call) && line.contains(of)), "{call} {of}: {log}");
    }
}

/// What was not replaced after all is kept nowhere.
#[test]
fn what_is_not_replaced_has_one_name_again() {
    needs!(has_tool("strace"), "there is no strace");
    let tmp = Tmp::new();
    let calls = "renameat,renameat2,rename";
    let inject = format!("inject={calls}:error=EIO");
    let ran = replaced_under_strace(&tmp, &["-e", &format!("trace={calls}"), "-e", &inject]);
    assert!(ran.code != 0 && text(&tmp.p("log")).contains("INJECTED"), "{}", ran.err);
    assert_eq!(text(&tmp.p("d/a")), "what was there");
    assert_eq!(fs::metadata(tmp.p("d/a")).unwrap().nlink(), 1);
    assert!(!receipts(&tmp.p("kept")).is_empty());
}

/// `-n` refuses a place for what is kept in the words of the run, and makes none; the command that undoes is one for a shell.
#[test]
fn where_nothing_can_be_kept_is_said_before() {
    let tmp = Tmp::new();
    tmp.file("s/f", "newer");
    tmp.file("d/f", "2");
    let elsewhere = Tmp::elsewhere();
    let other = elsewhere.as_ref().map(|other| other.p("kept"));
    let places = ["d".to_owned(), "no/such".to_owned(), "s/kept".to_owned()].into_iter();
    for place in places.chain(other.map(|other| other.display().to_string())) {
        let (told, ran) = (
            run(&tmp, &format!("sync -n --backup-dir {place} s d")),
            run(&tmp, &format!("sync --backup-dir {place} s d")),
        );
        assert_eq!((told.code, &told.err), (ran.code, &ran.err), "{place}");
        assert_ne!(told.code, 0, "{place}");
        assert_eq!(text(&tmp.p("d/f")), "2");
        assert!(place == "d" || !tmp.p(&place).exists(), "{place}: nothing is left of what was refused");
    }
    run(&tmp, "sync -n --backup-dir kept s d").ok();
    assert!(!tmp.p("kept").exists());
    for (place, begins) in [("is kept", "undo 'is kept/"), ("-kept", "undo ./-kept/")] {
        let place = format!("--backup-dir={place}");
        let ran = bcmr(["sync", &place, "s", "d"]).cwd(tmp.path()).run().ok();
        let undo = ran.err.split_once("run bcmr ").unwrap().1.trim_end();
        assert!(undo.starts_with(begins), "{undo}");
        let words = format!("exec {BCMR} {undo}");
        Line::new(Path::new("sh")).args(["-c", &words]).cwd(tmp.path()).run().ok();
        assert_eq!(text(&tmp.p("d/f")), "2");
    }
    // In the source where it is left out, though deep in it.
    tmp.dir("s/out/deep");
    run(&tmp, "sync --backup-dir s/out/deep/kept s d").code(8).says("cannot be in the source");
    run(&tmp, "sync -e /out --backup-dir s/out/deep/kept s d").ok();
    assert_eq!(receipts(&tmp.p("s/out/deep/kept")).len(), 1);
}

/// What a run makes of nothing is undone as what it makes in an empty directory, and places are refused from the first run on.
#[test]
fn a_destination_that_is_new_is_kept_of_too() {
    let elsewhere = Tmp::elsewhere();
    let other = elsewhere.as_ref().map(|other| other.p("kept").display().to_string());
    for far in [None, Some(Dir::Put), Some(Dir::Get)] {
        let (there, tmp) = (Far::pipe(), Tmp::new());
        tmp.file("s/f", "1");
        tmp.file("s/sub/g", "2");
        chmod(&tmp.p("s"), 0o750);
        let sync = |words: &str| match far {
            None => run(&tmp, &format!("sync {words} s d")),
            Some(dir) => {
                let line = there.bcmr("sync").args(words.split(' ')).cwd(tmp.path());
                dir.ends(line, &there, &tmp.p("s"), &tmp.p("d")).run()
            }
        };
        let path = |name: &str| tmp.p(name).display().to_string();
        for place in [Some(path("d")), Some(path("no/such")), other.clone()].into_iter().flatten() {
            let (told, ran) =
                (sync(&format!("-n --backup-dir {place}")), sync(&format!("--backup-dir {place}")));
            assert_eq!((told.code, ran.code == 0), (ran.code, false), "{far:?} {place}");
            assert!(!tmp.p("d").exists() && !Path::new(&place).exists(), "{far:?} {place}");
        }
        for place in ["kept", "d/kept"] {
            sync(&format!("-n --backup-dir {}", path(place))).ok();
            assert!(!tmp.p("d").exists());
            let told = sync(&format!("--json --backup-dir {}", path(place))).ok().out;
            assert!(told.contains("\"updated\":0,"), "{far:?} {place}: {told}");
            assert_eq!((text(&tmp.p("d/sub/g")), mode(&tmp.p("d"))), ("2".into(), 0o750), "{far:?}");
            let [receipt] = &receipts(&tmp.p(place))[..] else { panic!("{far:?} {place}: no receipt") };
            run(&tmp, &format!("undo {}", receipt.display())).ok();
            assert!(!tmp.p("d/f").exists() && !tmp.p("d/sub").exists(), "{far:?} {place}");
            fs::remove_dir_all(tmp.p("d")).unwrap();
        }
    }
}

/// What is in neither place is told; what an earlier undoing has given back is not.
#[test]
fn what_was_kept_and_is_there_no_more_is_told() {
    for way in ["--backup-dir kept", "--trash"] {
        let tmp = Tmp::new();
        for (name, content) in [("f", "old"), ("gone", "G"), ("stays", "old too"), ("mode", "M")] {
            tmp.file(format!("d/{name}"), content);
        }
        for (name, content) in [("f", "new"), ("stays", "new too"), ("mode", "M")] {
            tmp.file(format!("s/{name}"), content);
        }
        let time = fs::metadata(tmp.p("s/mode")).unwrap().modified().unwrap();
        fs::File::open(tmp.p("d/mode")).unwrap().set_modified(time).unwrap();
        chmod(&tmp.p("s/mode"), 0o600);
        run(&tmp, &format!("sync --delete {way} s d")).ok();
        let (place, store) = match way {
            "--trash" => (tmp.p("state/bcmr/undo"), tmp.p("data/Trash/files")),
            _ => (tmp.p("kept"), PathBuf::new()),
        };
        let receipt = receipts(&place).pop().unwrap();
        let store = if store.as_os_str().is_empty() { receipt.with_file_name("old") } else { store };
        for name in ["f", "gone"] {
            fs::remove_file(store.join(name)).unwrap();
        }
        for flag in ["-n ", "", ""] {
            let ran = run(&tmp, &format!("undo {flag}{}", receipt.display())).code(1);
            assert!(ran.err.contains("not there any more"), "{way}: {}", ran.err);
            for (name, told) in [("d/f", true), ("d/gone", true), ("d/stays", false), ("d/mode", false)] {
                assert_eq!(ran.err.contains(&format!("{name}'")), told, "{way} {name}: {}", ran.err);
            }
            assert_eq!(text(&tmp.p("d/f")), "new", "{way}: it is all that there is");
        }
        assert_eq!((text(&tmp.p("d/stays")), mode(&tmp.p("d/mode"))), ("old too".into(), 0o644), "{way}");
    }
}

/// Directories get back what options and the source have changed of them, whatever they had in common before.
#[test]
fn what_directories_were_like_is_given_back() {
    for far in [None, Some(Dir::Put), Some(Dir::Get)] {
        for (words, needs_root) in
            [("--chmod D700", false), ("", false), ("--chown 1234:1234", true), ("--usermap 0:77", true)]
        {
            if needs_root && !is_root() {
                skipped("what_directories_were_like_is_given_back", "only root can give files away");
                continue;
            }
            let (there, tmp) = (Far::pipe(), Tmp::new());
            for dir in ["s", "s/d", "s/d/e"] {
                tmp.dir(dir);
                chmod(&tmp.p(dir), 0o755);
            }
            tmp.file("s/d/e/f", "1");
            let sync = |words: &str| {
                let words = words.split_whitespace();
                match far {
                    None => bcmr(["sync"]).args(words).args(["s", "d"]).cwd(tmp.path()).run(),
                    Some(dir) => {
                        let line = there.bcmr("sync").args(words);
                        dir.ends(line, &there, &tmp.p("s"), &tmp.p("d")).run()
                    }
                }
            };
            sync("").ok();
            let before = seen(&tmp.p("d"));
            if words.is_empty() {
                // Of the destination alone.
                chmod(&tmp.p("s"), 0o700);
            }
            sync(&format!("{words} --backup-dir {}", tmp.p("kept").display())).ok();
            assert!(!differences(&before, &seen(&tmp.p("d")), EVERYTHING).is_empty(), "{far:?} {words}");
            let receipt = receipts(&tmp.p("kept")).pop().unwrap_or_else(|| panic!("{far:?} {words}"));
            for dry in ["-n ", ""] {
                let told = run(&tmp, &format!("undo --json {dry}{}", receipt.display())).ok().out;
                assert!(told.contains("\"action\":\"updated\""), "{far:?} {words}: {told}");
            }
            same(&before, &seen(&tmp.p("d")), &format!("{far:?} {words}"));
        }
    }
}

/// M7: what the source has under the name of the directory that holds what is kept does not come, and nothing in that directory is
/// moved or written over; `-n` says so before.
#[test]
fn what_is_kept_is_not_mixed_with_what_the_source_has_of_that_name() {
    for far in [None, Some(Dir::Put), Some(Dir::Get)] {
        for (source, held) in [("s/sub/bk/in", ""), ("s/sub/bk", ""), ("s/sub/bk", "held")] {
            let (there, tmp) = (Far::pipe(), Tmp::new());
            for (name, content) in [(source, "theirs"), ("s/f", "newer"), ("d/f", "old"), ("d/only", "x")] {
                tmp.file(name, content);
            }
            tmp.dir("d/sub/bk");
            if !held.is_empty() {
                tmp.file(format!("d/sub/bk/{held}"), "earlier");
            }
            let place = tmp.p("d/sub/bk");
            let sync = |words: &str| {
                let words = format!("sync --max-delete=100% --backup-dir {} {words}", place.display());
                match far {
                    None => run(&tmp, &format!("{words} s d")),
                    Some(dir) => {
                        let words: Vec<&str> = words.split(' ').skip(1).collect();
                        dir.ends(there.bcmr("sync").args(words), &there, &tmp.p("s"), &tmp.p("d")).run()
                    }
                }
            };
            let about = format!("{far:?} {source} {held}");
            for words in ["-n", "-n --delete", "--delete", "--delete=before"] {
                let ran = sync(words);
                assert_ne!(ran.code, 0, "{about} {words}");
                let told =
                    format!("{}': it holds what is kept", if far.is_none() { "d/sub/bk" } else { "sub/bk" });
                assert!(ran.err.contains(&told), "{about} {words}: {}", ran.err);
                assert!(tmp.p("d/only").exists() && !place.join("in").exists(), "{about} {words}");
                assert!(held.is_empty() || text(&place.join(held)) == "earlier", "{about} {words}");
            }
            sync("--delete -e /sub/bk").ok();
            assert!(place.is_dir() && !tmp.p("d/only").exists(), "{about}");
            let [first, .., last] = &receipts(&place)[..] else { panic!("{about}: {:?}", names(&place)) };
            for receipt in [last, first] {
                run(&tmp, &format!("undo {}", receipt.display())).ok();
            }
            assert_eq!((text(&tmp.p("d/f")), text(&tmp.p("d/only"))), ("old".into(), "x".into()), "{about}");
        }
    }
}

/// A name that was behind something in the way is replaced twice, as it is a name of what was: both are kept.
#[test]
fn what_one_run_replaces_twice_is_kept_twice() {
    for way in ["--backup-dir kept", "--trash"] {
        let tmp = Tmp::new();
        tmp.file("s/a", "new");
        tmp.dir("s/b");
        fs::hard_link(tmp.p("s/a"), tmp.p("s/b/z")).unwrap();
        tmp.file("d/a/f", "in the way");
        tmp.file("d/b/z", "older");
        let (source, before) = (seen(&tmp.p("s")), seen(&tmp.p("d")));
        run(&tmp, &format!("sync -n --delete {way} s d")).ok();
        run(&tmp, &format!("sync --delete {way} s d")).ok();
        same(&source, &seen(&tmp.p("d")), way);
        let place = if way == "--trash" { tmp.p("state/bcmr/undo") } else { tmp.p("kept") };
        let [receipt] = &receipts(&place)[..] else { panic!("{way}: {:?}", receipts(&place)) };
        run(&tmp, &format!("undo {}", receipt.display())).ok();
        same(&before, &seen(&tmp.p("d")), way);
    }
}

/// M7: what is moved away stands in the receipt, on stable storage, before it is. One sync serves many names.
#[test]
fn what_goes_is_on_record_before_it_is_moved() {
    needs!(has_tool("strace"), "there is no strace");
    const DIRS: usize = 20;
    const EACH: usize = 60;
    for (way, inject) in [
        ("--backup-dir kept", None),
        ("--trash", None),
        // Where there are no second names, what is replaced is moved away too, directory by directory.
        ("--backup-dir kept", Some("inject=linkat:error=EPERM")),
    ] {
        let tmp = Tmp::new();
        for dir in 0..DIRS {
            tmp.file(format!("s/{dir}/stays"), "new");
            tmp.file(format!("d/{dir}/stays"), if inject.is_some() { "what was there" } else { "new" });
            let gone = |n| format!("d/{dir}/gone-{dir}-{n}");
            (0..EACH).for_each(|n| _ = tmp.file(gone(n), "gone"));
        }
        let before = seen(&tmp.p("d"));
        let calls = "trace=write,linkat,renameat,renameat2,fsync,fdatasync";
        let strace = ["-f", "-y", "-qq", "-s", "400", "-e", "signal=none", "-o", "log", "-e", calls];
        let mut line = Line::new(Path::new("strace")).args(strace);
        if let Some(inject) = inject {
            line = line.args(["-e", inject]);
        }
        let words = format!("sync -j1 --delete --max-delete=100% {way} s d");
        let mut line = line.args([BCMR]).args(words.split(' ')).cwd(tmp.path());
        line.0.env("XDG_STATE_HOME", tmp.p("state")).env("XDG_DATA_HOME", tmp.p("data"));
        line.run().ok();
        let (log, mut written, mut on_disk) = (text(&tmp.p("log")), String::new(), String::new());
        let (mut syncs, mut moved) = (0, 0);
        for call in log.lines() {
            let is_moved = ["/old", "/Trash/files"].iter().any(|to| {
                call.contains("renameat") && call.split("\", ").nth(1).is_some_and(|at| at.contains(to))
            });
            if call.contains("write(") && call.contains("/receipt>") {
                written.push_str(call);
            } else if call.contains("fdatasync") && call.contains("/receipt>") {
                syncs += 1;
                on_disk.push_str(&std::mem::take(&mut written));
            } else if is_moved {
                moved += 1;
                let (from, name) = (call.split('/').rev(), call.split('"').nth(1).unwrap());
                assert!(from.count() > 1 && on_disk.contains(name), "{way}: {name} in {log}");
            }
        }
        let (also, syncs_max) = if inject.is_some() { (DIRS, 3 * DIRS) } else { (0, 8) };
        assert_eq!(moved, DIRS * EACH + also, "{way}: {log}");
        assert!(syncs <= syncs_max, "{way}: {syncs} syncs of the receipt");
        let place = if way == "--trash" { tmp.p("state/bcmr/undo") } else { tmp.p("kept") };
        let receipt = receipts(&place).pop().unwrap();
        run(&tmp, &format!("undo {}", receipt.display())).ok();
        same(&before, &seen(&tmp.p("d")), way);
    }
}

/// A receipt that a power cut has cut off within a line is undone as far as it goes, and that it was is told.
#[test]
fn a_receipt_that_is_cut_off_is_undone_as_far_as_it_goes() {
    for zeros in [false, true] {
        let tmp = Tmp::new();
        for name in ["a", "b", "c"] {
            tmp.file(format!("d/{name}"), name);
        }
        tmp.file("s/new", "new");
        run(&tmp, "sync --delete --max-delete=100% --backup-dir kept s d").ok();
        let receipt = receipts(&tmp.p("kept")).pop().unwrap();
        let undo = format!("undo {}", receipt.display());
        let whole = text(&receipt);
        let last = whole.trim_end().rfind('\n').unwrap() + 1;
        let cut = if zeros {
            format!("{}{}", &whole[..last], "\0".repeat(9))
        } else {
            whole[..last + 5].to_owned()
        };
        fs::write(&receipt, cut).unwrap();
        run(&tmp, &undo.replace("undo", "undo -n")).code(1).says("cut off");
        let ran = run(&tmp, &undo).code(1).says("cut off");
        assert!(!tmp.p("d/new").exists() && names(&tmp.p("d")).len() == 2, "{ran:?}");
        // With the record as it was the rest is given back too.
        fs::write(&receipt, whole).unwrap();
        run(&tmp, &undo).ok();
        assert_eq!(names(&tmp.p("d")), ["a", "b", "c"]);
    }
}

/// What a run has not changed of a directory is its owner's: undoing opens none that was closed since, and gives back its times.
#[test]
fn a_directory_that_was_closed_since_stays_closed() {
    for of_one_time in [true, false] {
        for words in ["-j1", "--delete --max-delete=100%", "--delete=before --max-delete=100%"] {
            let tmp = Tmp::new();
            for (name, content) in
                [("d/in/f", "old"), ("d/in/gone", "G"), ("s/in/f", "newer"), ("s/in/new", "N")]
            {
                tmp.file(name, content);
            }
            for dir in ["s", "d", "s/in", "d/in"] {
                chmod(&tmp.p(dir), 0o755);
            }
            for dir in ["s/in", "d/in"].into_iter().filter(|dir| of_one_time || dir.starts_with('d')) {
                fs::File::open(tmp.p(dir)).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
            }
            run(&tmp, &format!("sync {words} --backup-dir kept s d")).ok();
            let receipt = receipts(&tmp.p("kept")).pop().unwrap();
            let lines = text(&receipt);
            for end in ["\t", "\tin"] {
                let about = lines.lines().filter(|line| line.starts_with('=') && line.ends_with(end));
                assert_eq!(about.count(), 1, "{words} {of_one_time}: {lines}");
            }
            for dir in ["d", "d/in"] {
                chmod(&tmp.p(dir), 0o700);
            }
            run(&tmp, &format!("undo {}", receipt.display())).ok();
            assert_eq!((mode(&tmp.p("d")), mode(&tmp.p("d/in"))), (0o700, 0o700), "{words} {of_one_time}");
            assert_eq!(
                (text(&tmp.p("d/in/f")), names(&tmp.p("d/in"))),
                ("old".into(), vec!["f".into(), "gone".into()])
            );
            let modified = fs::metadata(tmp.p("d/in")).unwrap().modified().unwrap();
            assert_eq!(modified, std::time::UNIX_EPOCH, "{words} {of_one_time}");
        }
    }
}

/// `bcmr sync --trash` that deletes a name in each of many directories, under strace with these words.
fn trashed_under_strace(tmp: &Tmp, calls: &str, inject: &str) -> Ran {
    tmp.file("s/stays", "S");
    for n in 0..40 {
        tmp.file(format!("d/{n}/gone-{n}"), format!("{n}"));
        tmp.dir(format!("s/{n}"));
    }
    let strace = ["-f", "-qq", "-o", "log", "-e", calls, "-e", inject];
    let words = "sync -j1 --delete --max-delete=100% --trash s d";
    let mut line =
        Line::new(Path::new("strace")).args(strace).args([BCMR]).args(words.split(' ')).cwd(tmp.path());
    line.0.env("XDG_STATE_HOME", tmp.p("state")).env("XDG_DATA_HOME", tmp.p("data"));
    line.run()
}

/// What is written down to be moved to the trash is moved, or the trash says nothing of it.
#[test]
fn the_trash_says_nothing_of_what_is_not_in_it() {
    needs!(has_tool("strace"), "there is no strace");
    for (inject, in_trash) in [
        // The user stops the run among the moves: those that are written down are done.
        ("inject=renameat2:signal=INT:delay_exit=200000:when=3", Some(40)),
        ("inject=fdatasync:error=EIO", Some(0)),
        ("inject=renameat2:error=EIO:when=3+", None),
    ] {
        let tmp = Tmp::new();
        let ran = trashed_under_strace(&tmp, "trace=renameat2,fdatasync", inject);
        assert_ne!(ran.code, 0, "{inject}: {}", ran.err);
        let (files, info) = (names(&tmp.p("data/Trash/files")), names(&tmp.p("data/Trash/info")));
        assert_eq!(files.len(), info.len(), "{inject}: {}", ran.err);
        assert!(in_trash.is_none_or(|count| count == files.len()), "{inject}: {files:?} {}", ran.err);
        assert!(ran.err.matches("cannot write the receipt").count() <= 1, "{inject}: {}", ran.err);
        let receipt = receipts(&tmp.p("state/bcmr/undo")).pop().unwrap();
        run(&tmp, &format!("undo {}", receipt.display())).ok();
        for n in 0..40 {
            assert_eq!(text(&tmp.p(format!("d/{n}/gone-{n}"))), format!("{n}"), "{inject}");
        }
        assert_eq!(names(&tmp.p("data/Trash/info")).len(), 0, "{inject}");
    }
    // A killed run cannot take back what it said; undoing does.
    let tmp = Tmp::new();
    trashed_under_strace(&tmp, "trace=renameat2", "inject=renameat2:signal=KILL:when=3");
    assert_eq!(names(&tmp.p("data/Trash/info")).len(), 40);
    tmp.file("data/Trash/info/gone-30.trashinfo", "[Trash Info]\nPath=/elsewhere\n");
    let receipt = receipts(&tmp.p("state/bcmr/undo")).pop().unwrap();
    run(&tmp, &format!("undo {}", receipt.display())).ok();
    assert_eq!(names(&tmp.p("data/Trash/info")), ["gone-30.trashinfo"]);
}

/// Another thing may have the name in the trash by now.
#[test]
fn what_another_has_put_into_the_trash_stays_there() {
    let tmp = Tmp::new();
    tmp.file("s/f", "F");
    tmp.file("d/gone", "ours");
    run(&tmp, "sync --delete --max-delete=100% --trash s d").ok();
    let trash = tmp.p("data/Trash");
    // Beside it first, so that it gets no number that was ours.
    tmp.file("data/Trash/files/other", "theirs");
    fs::rename(trash.join("files/other"), trash.join("files/gone")).unwrap();
    let receipt = receipts(&tmp.p("state/bcmr/undo")).pop().unwrap();
    for dry in ["-n ", ""] {
        run(&tmp, &format!("undo {dry}{}", receipt.display())).code(1).says("not there any more");
    }
    assert!(!tmp.p("d/gone").exists());
    assert_eq!(text(&trash.join("files/gone")), "theirs");
    assert!(trash.join("info/gone.trashinfo").exists());
}
