//! `copy --manifest` and `check --manifest`, judged by the blake3 crate, and by `b3sum` where it is installed.

use crate::common::by_engine;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(dir: &Path, words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bcmr"))
        .args(by_engine(words.split(' ')))
        .current_dir(dir)
        .output()
        .unwrap()
}

fn text(out: &Output) -> String {
    let of = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    format!("{}\n{}{}", out.status, of(&out.stdout), of(&out.stderr))
}

#[track_caller]
fn exits(out: &Output, code: i32) {
    assert_eq!(out.status.code(), Some(code), "{}", text(out));
}

/// Files with all that makes names and sizes hard, hard links among them.
fn plant(root: &Path) {
    fs::create_dir_all(root.join("sub dir/deep")).unwrap();
    for (name, len) in [
        ("empty", 0usize),
        ("one", 1),
        ("sub dir/back\\slash", 1000),
        ("sub dir/new\nline", 70_000),
        ("sub dir/deep/é", 300_000),
        ("sub dir/deep/cr\r", 5),
        ("large", 9 << 20),
    ] {
        let data: Vec<u8> = (0..len).map(|i| (i / 7 + len) as u8).collect();
        fs::write(root.join(name), data).unwrap();
    }
    fs::hard_link(root.join("one"), root.join("two")).unwrap();
    symlink("one", root.join("link")).unwrap();
}

/// What a manifest says, read by rules of its own: path to hash.
fn read(file: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for line in fs::read_to_string(file).unwrap().split_terminator('\n') {
        let (line, escaped) = line.strip_prefix('\\').map_or((line, false), |l| (l, true));
        let (hash, name) = line.split_once("  ").unwrap();
        let name = if escaped {
            name.replace("\\\\", "\0").replace("\\n", "\n").replace('\0', "\\")
        } else {
            name.to_owned()
        };
        assert!(found.insert(name.into(), hash.to_owned()).is_none(), "{line} twice");
    }
    found
}

fn truth(root: &Path, below: &Path, into: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            truth(root, &path, into);
        } else if kind.is_file() {
            let hash = blake3::hash(&fs::read(entry.path()).unwrap());
            into.insert(path, hash.to_hex().to_string());
        }
    }
}

#[track_caller]
fn holds(file: &Path, dst: &Path) {
    let mut want = BTreeMap::new();
    truth(dst, Path::new(""), &mut want);
    assert_eq!(read(file), want);
    if let Ok(out) = Command::new("b3sum").arg("-c").arg(file).current_dir(dst).output() {
        assert!(out.status.success(), "{}", text(&out));
    }
}

#[test]
fn says_what_was_copied() {
    for flags in
        ["", "-V ", "-C --checkpoint-size 4M ", "-s --checkpoint-size 4M ", "--preserve=links ", "--sync "]
    {
        let t = tempfile::tempdir().unwrap();
        plant(&t.path().join("src"));
        let copy = format!("copy {flags}-r --manifest sums src/. dst");
        exits(&run(t.path(), &copy), 0);
        holds(&t.path().join("sums"), &t.path().join("dst"));
        exits(&run(t.path(), "check --manifest sums dst"), 0);
        let left: Vec<_> = fs::read_dir(t.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 3, "{left:?}");
    }
}

#[test]
fn names_are_relative_to_where_it_went() {
    let t = tempfile::tempdir().unwrap();
    let here = |p: &str| t.path().join(p);
    plant(&here("src"));
    fs::create_dir_all(here("into")).unwrap();
    symlink("into", here("way")).unwrap();
    fs::write(here("list"), "one\nsub dir/deep/é\n").unwrap();
    for (words, dst) in [
        ("-r src new", "new"),
        ("-r src/ into/", "into"),
        ("-r -T src into/exact", "into/exact"),
        ("--files-from list src listed", "listed"),
        ("-T -r src way/", "into"),
        ("-r src way", "into"),
    ] {
        exits(&run(t.path(), &format!("copy --manifest sums {words}")), 0);
        let said = read(&here("sums"));
        assert!(!said.is_empty());
        for (path, hash) in said {
            let got = blake3::hash(&fs::read(here(dst).join(&path)).unwrap());
            assert_eq!(got.to_hex().as_str(), hash, "{words}: {path:?}");
        }
    }
    symlink("into/file", here("to-file")).unwrap();
    fs::write(here("into/file"), "old").unwrap();
    for (words, dst, name) in [
        ("src/one to-file", "", "to-file"),
        ("src/one single", "", "single"),
        ("src/one ./dotted", "", "dotted"),
        ("src/one into", "into", "one"),
        ("src/one .", "", "one"),
        ("-t into src/two", "into", "two"),
    ] {
        exits(&run(t.path(), &format!("copy --manifest sums {words}")), 0);
        assert_eq!(read(&here("sums")).into_keys().collect::<Vec<_>>(), [PathBuf::from(name)], "{words}");
        exits(
            &Command::new(env!("CARGO_BIN_EXE_bcmr"))
                .args(["check", "--manifest", "sums"])
                .arg(here(dst))
                .current_dir(t.path())
                .output()
                .unwrap(),
            // Copying goes through a link whose name is typed; checking goes through none.
            i32::from(name == "to-file"),
        );
    }
}

#[test]
fn what_is_the_same_is_in_it_too() {
    let t = tempfile::tempdir().unwrap();
    let here = |p: &str| t.path().join(p);
    plant(&here("src"));
    exits(&run(t.path(), "copy -r -p src/. dst"), 0);
    fs::remove_file(here("dst/empty")).unwrap();
    exits(&run(t.path(), "copy -C -r -p --manifest sums src/. dst"), 0);
    holds(&here("sums"), &here("dst"));
    // The source is what is hashed: a copy that only looks the same is found out.
    let times = fs::FileTimes::new().set_modified(fs::metadata(here("dst/one")).unwrap().modified().unwrap());
    fs::write(here("dst/one"), "x").unwrap();
    fs::File::options().write(true).open(here("dst/one")).unwrap().set_times(times).unwrap();
    exits(&run(t.path(), "copy -C -r -p --manifest sums src/. dst"), 0);
    let out = run(t.path(), "check --manifest sums dst");
    exits(&out, 1);
    assert!(text(&out).contains("one"), "{}", text(&out));
}

#[test]
fn appears_whole_or_not_at_all() {
    let t = tempfile::tempdir().unwrap();
    let here = |p: &str| t.path().join(p);
    plant(&here("src"));
    let old = format!("{}  old\n", blake3::hash(b"old"));
    fs::write(here("sums"), &old).unwrap();
    // An item fails: no manifest that a user could take for that of the whole.
    fs::create_dir_all(here("dst/one")).unwrap();
    let out = run(t.path(), "copy -r --manifest sums src/. dst");
    exits(&out, 1);
    assert!(text(&out).contains("only a complete copy gets one"), "{}", text(&out));
    assert_eq!(fs::read(here("sums")).unwrap(), old.as_bytes());
    assert_eq!(fs::read_dir(t.path()).unwrap().count(), 3);
    fs::remove_dir(here("dst/one")).unwrap();
    // What a killed run left is taken away by the next one.
    fs::write(crate::common::leftover_of(t.path(), b"sums", ".manifest"), "half").unwrap();
    exits(&run(t.path(), "copy -r --manifest sums src/. dst"), 0);
    holds(&here("sums"), &here("dst"));
    assert_eq!(fs::read_dir(t.path()).unwrap().count(), 3);
    // What cannot be begun is said before anything is copied.
    fs::remove_dir_all(here("dst")).unwrap();
    fs::create_dir(here("sums.d")).unwrap();
    for file in ["sums.d", "nowhere/sums", "/dev/null"] {
        exits(&run(t.path(), &format!("copy -r --manifest {file} src/. dst")), 1);
        assert!(!here("dst/one").exists(), "{file}");
    }
    for flags in ["-C --fast", "-n", "-a"] {
        exits(&run(t.path(), &format!("copy {flags} --manifest sums src/one dst")), 2);
    }
}

/// What is being written has no name while sources are looked for, so it may lie in one of them.
#[test]
fn it_may_lie_in_what_is_copied() {
    let t = tempfile::tempdir().unwrap();
    let here = |p: &str| t.path().join(p);
    let names = |p: &str| -> Vec<_> {
        let mut names: Vec<_> = fs::read_dir(here(p)).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    fs::create_dir(here("src")).unwrap();
    fs::write(here("src/f"), "f").unwrap();
    exits(&run(t.path(), "copy -r --manifest src/sums --report src/page.html src/. dst"), 0);
    assert_eq!(names("dst"), ["f"]);
    assert_eq!(names("src"), ["f", "page.html", "sums"]);
    holds(&here("src/sums"), &here("dst"));
    // The next run copies what the first has written, and says so.
    let first = fs::read(here("src/sums")).unwrap();
    exits(&run(t.path(), "copy -r --manifest src/sums src/. again"), 0);
    assert_eq!(fs::read(here("again/sums")).unwrap(), first);
    holds(&here("src/sums"), &here("again"));
    exits(&run(t.path(), "sync --report src/second.html src synced"), 0);
    assert_eq!(names("synced"), ["f", "page.html", "sums"]);
}

/// What the run has just copied is not replaced by its manifest.
#[test]
fn it_replaces_nothing_that_was_copied() {
    let t = tempfile::tempdir().unwrap();
    let here = |p: &str| t.path().join(p);
    fs::create_dir_all(here("src")).unwrap();
    fs::create_dir_all(here("dst")).unwrap();
    fs::write(here("src/o"), "new").unwrap();
    let of_earlier_run = format!("{}  o\n", blake3::hash(b"old"));
    for old in [None, Some(&of_earlier_run)] {
        match old {
            Some(old) => fs::write(here("dst/o"), old).unwrap(),
            None => assert!(!here("dst/o").exists()),
        }
        let out = run(t.path(), "copy -T -r --manifest dst/o src dst");
        exits(&out, 8);
        assert!(text(&out).contains("it became another one meanwhile"), "{}", text(&out));
        assert_eq!(fs::read(here("dst/o")).unwrap(), b"new");
        assert_eq!(fs::read_dir(here("dst")).unwrap().count(), 1);
    }
}

/// A file that bcmr did not write may be a source, or anything else: a manifest, a report and a plan replace only their like.
#[test]
fn it_replaces_only_what_bcmr_wrote() {
    let t = tempfile::tempdir().unwrap();
    let here = |p: &str| t.path().join(p);
    fs::create_dir(here("src")).unwrap();
    let names = ["copy --manifest F src/f new", "copy --report F src/f new", "sync -n --plan F src new"];
    for command in names {
        for (name, content) in [("src/f", "precious"), ("other", "precious\n")] {
            fs::write(here(name), content).unwrap();
            let out = run(t.path(), &command.replace('F', name));
            exits(&out, 8);
            assert!(text(&out).contains("stays; name a new one"), "{}", text(&out));
            assert_eq!(fs::read_to_string(here(name)).unwrap(), content, "{command}");
            assert!(!here("new").exists(), "{command}");
        }
        // What is empty, and what an earlier run wrote, gives way.
        fs::write(here("empty"), "").unwrap();
        for _ in 0..2 {
            exits(&run(t.path(), &command.replace('F', "empty")), 0);
            assert!(fs::metadata(here("empty")).unwrap().len() > 0, "{command}");
            let _there = fs::remove_file(here("new"));
        }
        fs::remove_file(here("empty")).unwrap();
    }
    for of_another in ["copy --manifest empty src/f new", "copy --report empty src/f new"] {
        exits(&run(t.path(), "sync -n --plan empty src new"), 0);
        exits(&run(t.path(), of_another), 8);
    }
}

#[test]
fn names_that_cannot_be_said_are_told() {
    let t = tempfile::tempdir().unwrap();
    fs::create_dir(t.path().join("src")).unwrap();
    fs::write(t.path().join("src").join(OsStr::from_bytes(b"bad\xff")), "b").unwrap();
    fs::write(t.path().join("src/good"), "g").unwrap();
    let out = run(t.path(), "copy -r --manifest sums src/. dst");
    exits(&out, 1);
    assert!(text(&out).contains("is not UTF-8, which a manifest cannot say"), "{}", text(&out));
    assert_eq!(read(&t.path().join("sums")).into_keys().collect::<Vec<_>>(), [PathBuf::from("good")]);
    assert_eq!(fs::read_dir(t.path().join("dst")).unwrap().count(), 2, "it was copied all the same");
}

#[test]
fn checking_finds_what_differs() {
    let t = tempfile::tempdir().unwrap();
    let here = |p: &str| t.path().join(p);
    plant(&here("src"));
    exits(&run(t.path(), "copy -r --manifest sums src/. dst"), 0);
    type Spoil = fn(&Path);
    let spoil: [(&str, Spoil, &str); 6] = [
        ("one", |p| fs::remove_file(p).unwrap(), "1 missing"),
        ("one", |p| fs::write(p, "1").unwrap(), "1 different"),
        ("empty", |p| fs::write(p, "1").unwrap(), "1 different"),
        (
            "one",
            |p| {
                fs::remove_file(p).unwrap();
                symlink("two", p).unwrap()
            },
            "1 different",
        ),
        (
            "one",
            |p| {
                fs::remove_file(p).unwrap();
                assert!(Command::new("mkfifo").arg(p).status().unwrap().success());
            },
            "1 different",
        ),
        (
            "sub dir",
            |p| {
                fs::rename(p, p.with_file_name("moved")).unwrap();
                symlink("moved", p).unwrap();
            },
            "4 different",
        ),
    ];
    for (name, spoil, want) in spoil {
        fs::remove_dir_all(here("dst")).unwrap();
        exits(&run(t.path(), "copy -r src/. dst"), 0);
        exits(&run(t.path(), "check --manifest sums dst"), 0);
        spoil(&here("dst").join(name));
        let out = run(t.path(), "check --manifest sums dst");
        exits(&out, 1);
        assert!(text(&out).contains(want), "{name}: {}", text(&out));
    }
    let out = run(t.path(), "check --json --manifest sums dst");
    exits(&out, 1);
    assert!(text(&out).contains(r#""event":"difference","change":"differ""#), "{}", text(&out));
}

/// What a filter leaves out by its name is not looked at; what is about files of a source is refused, as there is none.
#[test]
fn checking_goes_by_the_filter() {
    let t = tempfile::tempdir().unwrap();
    let here = |p: &str| t.path().join(p);
    for name in ["a", "b.log", "deep/c", "deep/er/d.log"] {
        fs::create_dir_all(here("src").join(name).parent().unwrap()).unwrap();
        fs::write(here("src").join(name), name).unwrap();
    }
    exits(&run(t.path(), "copy -r --manifest sums src/. dst"), 0);
    fs::remove_file(here("dst/b.log")).unwrap();
    fs::write(here("dst/deep/er/d.log"), "other").unwrap();
    fs::write(here("globs"), "*.log\n").unwrap();
    for (flags, code) in [
        ("", 1),
        ("-e *.log", 0),
        ("--exclude-from globs", 0),
        ("--exclude-regex \\.log$", 0),
        ("-e /b.log", 1),
        ("-e /b.log -e deep", 0),
        ("-e /b.log -e er/", 0),
        ("-e *.log --include b.log", 1),
        ("--exclude-regex (", 2),
    ] {
        exits(&run(t.path(), format!("check {flags} --manifest sums dst").replace("  ", " ").as_str()), code);
    }
    for (flags, said) in [
        ("-e *.log", "2 names left out by filters; everything else is as the manifest says"),
        ("-e /b.log", "1 name left out by filters; 1 different"),
    ] {
        let told = text(&run(t.path(), &format!("check {flags} --manifest sums dst")));
        assert!(told.contains(said), "{told}");
        let told = text(&run(t.path(), &format!("check {flags} --json --manifest sums dst")));
        assert!(told.contains(&format!("\"kept\":{}", &said[..1])), "{told}");
    }
    for flag in ["--gitignore", "--bcmrignore", "--max-size 1", "--min-size 1", "--newer @1", "--older @1"] {
        let out = run(t.path(), &format!("check {flag} --manifest sums dst"));
        exits(&out, 2);
        let name = flag.split(' ').next().unwrap();
        assert!(text(&out).contains(&format!("{name} is about files of a source")), "{}", text(&out));
    }
}

#[test]
fn checking_never_leaves_the_directory() {
    let t = tempfile::tempdir().unwrap();
    let here = |p: &str| t.path().join(p);
    fs::create_dir(here("dst")).unwrap();
    fs::write(here("outside"), "x").unwrap();
    let hash = blake3::hash(b"x").to_hex();
    symlink("../outside", here("dst/way")).unwrap();
    for (name, code) in
        [("../outside".to_owned(), 2), (here("outside").display().to_string(), 2), ("way".to_owned(), 1)]
    {
        fs::write(here("sums"), format!("{hash}  {name}\n")).unwrap();
        exits(&run(t.path(), "check --manifest sums dst"), code);
    }
    for junk in ["nonsense\n", "\n", "\\"] {
        fs::write(here("sums"), junk).unwrap();
        exits(&run(t.path(), "check --manifest sums dst"), 2);
    }
    // The twin: an honest line, also without a newline at its end, also with `./` before it.
    fs::copy(here("outside"), here("dst/inside")).unwrap();
    for line in [format!("{hash}  inside\n"), format!("{hash}  ./inside")] {
        fs::write(here("sums"), line).unwrap();
        exits(&run(t.path(), "check --manifest sums dst"), 0);
    }
    exits(&run(t.path(), "check --manifest nowhere dst"), 2);
    exits(&run(t.path(), "check --manifest sums a b"), 2);
    exits(&run(t.path(), "check --manifest sums nowhere"), 2);
}
