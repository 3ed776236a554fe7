//! What a copy refuses, its dry run and `check` say in the same words before it.

use crate::common::remote::Far;
use crate::common::{Line, bcmr, in_slice, leftover, skipped};
use crate::table::{at, each, look, plant, scratch};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where the files are that are copied, and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Here,
    Put,
    Get,
}

const WAYS: [Way; 3] = [Way::Here, Way::Put, Way::Get];

/// A command in one of the ways: `sources` and `d`, in `dir`.
fn line(far: &Far, way: Way, dir: &Path, verb: &str, flags: &str, sources: &str) -> Line {
    let flags = flags.split_whitespace().map(OsString::from);
    let sources = sources.split_whitespace().map(|s| dir.join(s));
    let d = dir.join("d");
    let line = match way {
        Way::Here => bcmr([verb]).args(flags).args(sources).args([&d]),
        Way::Put => far.bcmr(verb).args(flags).args(sources).args([far.at(&d)]),
        Way::Get => far.bcmr(verb).args(flags).args(sources.map(|s| far.at(s))).args([&d]),
    };
    line.cwd(dir)
}

/// How it ended, and what it said of entries: done and failed.
struct Told {
    code: i32,
    items: Vec<String>,
    failed: Vec<String>,
}

fn told(line: Line) -> Told {
    let ran = line.run();
    let mut events: Vec<Value> = ran.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    // A hint is the command as it was typed, which says whether it was for show.
    events.iter_mut().filter_map(Value::as_object_mut).for_each(|event| drop(event.remove("hint")));
    let of = |kind: &str| {
        let mut all: Vec<String> =
            events.iter().filter(|e| e["event"] == kind).map(|e| e.to_string()).collect();
        all.sort();
        all
    };
    Told { code: ran.code, items: of("item"), failed: of("failed") }
}

type Also = fn(&Path);

/// A source whose name is kept for leftovers of the directory that it would be in.
fn reserved_file(dir: &Path) {
    let name = leftover(&dir.join("d"), &"7".repeat(32), ".stage");
    fs::write(dir.join("s").join(name.file_name().unwrap()), "LEFT").unwrap();
}

fn reserved_dir(dir: &Path) {
    let name = leftover(&dir.join("d/sub"), &"7".repeat(32), ".part");
    let name = dir.join("s/sub").join(name.file_name().unwrap());
    fs::create_dir(&name).unwrap();
    fs::write(name.join("f"), "LEFT").unwrap();
}

fn reserved_operand(dir: &Path) {
    let name = leftover(&dir.join("d"), &"7".repeat(32), ".session");
    fs::rename(dir.join("s/f"), dir.join(name.file_name().unwrap())).unwrap();
    fs::write(dir.join("operands"), name.file_name().unwrap().as_encoded_bytes()).unwrap();
}

fn nothing(_: &Path) {}

/// A tree, what is done to it beside, flags, sources, and how many are refused.
const ROWS: &[(&str, Also, &str, &str, usize)] = &[
    // One final name of two sources, at any depth, and the twins that are no conflict.
    ("f c1/D/img 1\nf c2/D/img 2\nf c2/D/own 3\nd d", nothing, "-r", "c1/D c2/D", 1),
    ("f c1/D/a/img 1\nf c2/D/a/img 2\nd d/D", nothing, "-r", "c1/D c2/D", 1),
    ("f c1/D/img 1\nf c2/D/img 2\nf d/D/img 0", nothing, "-r", "c1/D c2/D", 1),
    ("f c1/D/img 1\nf c2/D/img 2\nf d/D/img 0", nothing, "-r --no-clobber", "c1/D c2/D", 1),
    ("f c1/D/img 1\nf c2/D/img 2\nd d", nothing, "-r", "c1/. c2/.", 1),
    ("f c1/D/img 1\nf c2/D/img 2\nf c3/D/img 3\nd d", nothing, "-r", "c1/. c2/D c3/D", 2),
    ("f c1/img 1\nf c2/img 2\nd d", nothing, "", "c1/img c2/img", 1),
    ("f c1/img 1\nf c2/own 2\nd d", nothing, "", "c1/img c2/own", 0),
    ("f c1/D/one 1\nf c2/D/own 2\nd d", nothing, "-r", "c1/D c2/D", 0),
    // The very same source again is copied once.
    ("f c1/img 1\nd d", nothing, "", "c1/img c1/img", 0),
    ("f c1/D/img 1\nd d", nothing, "-r", "c1/D c1/D", 0),
    ("f c1/D/img 1\nd d", nothing, "-r", "c1/. c1/D", 0),
    // Names of one file are one source.
    ("f c1/D/img 1\nh c2/D/img = c1/D/img\nd d", nothing, "-r", "c1/D c2/D", 0),
    ("f c1/img 1\nh c2/img = c1/img\nd d", nothing, "", "c1/img c2/img", 0),
    ("f c1/img 1\nh c2/img = c1/img\nd d", nothing, "-r", "c1/. c2/img", 0),
    // What is not copied takes no name.
    ("p c1/D/x\nf c2/D/x 2\nd d", nothing, "-r", "c1/D c2/D", 1),
    ("p c1/D/x\nh c1/D/y = c1/D/x\np c2/D/x\nd d", nothing, "-r", "c1/D c2/D", 3),
    // What an earlier source makes stands in the way of another.
    ("f c1/D/x/f 1\nf c2/D/x 2\nd d", nothing, "-r", "c1/D c2/D", 1),
    ("f c1/D/x 1\nf c2/D/x/f 2\nd d", nothing, "-r", "c1/D c2/D", 1),
    ("f c1/D/x 1\nf c2/D/x/f 2\nd d", nothing, "-r", "c1/. c2/.", 1),
    ("f s/x 1\nf d/x/f 0", nothing, "-r", "s/.", 1),
    ("f s/x/f 1\nf d/x 0", nothing, "-r", "s/.", 1),
    // Names that are kept for what a killed run leaves.
    ("f s/f 1\nd d", reserved_file, "-r", "s/.", 1),
    ("f s/sub/f 1\nd d/sub", reserved_dir, "-r", "s/.", 1),
    ("f s/f 1\nd d", reserved_operand, "", "OPERANDS", 1),
    // In another directory than its own it is a file like any other.
    ("f s/f 1\nd d", reserved_file, "-r", "s", 0),
];

/// The failures of a dry run are the copy's, word by word, and so are its items and its exit code; `check` has the same
/// failures and the exit code that it has for trouble.
#[test]
fn what_a_copy_refuses() {
    let far = Far::pipe();
    let mut rows = Vec::new();
    for (n, row) in ROWS.iter().enumerate() {
        // An ordinary run tries each one way.
        let tried = WAYS.into_iter().enumerate().filter(|(m, _)| in_slice(n + m, 3));
        rows.extend(tried.map(|(_, way)| (row, way)));
    }
    each(&rows, |((tree, also, flags, sources, refused), way)| {
        let dir = scratch();
        plant(dir.path(), tree);
        also(dir.path());
        let operands = fs::read_to_string(at(&dir, "operands")).unwrap_or_default();
        let sources = sources.replace("OPERANDS", &operands);
        let about = format!("{way:?} {flags} {sources} of {tree:?}");
        let run = |verb, more: &str| {
            told(line(&far, *way, dir.path(), verb, &format!("--json {flags} {more}"), &sources))
        };
        let before = look(dir.path());
        let (said, checked) = (run("copy", "-n"), run("check", "--no-extra"));
        if look(dir.path()) != before {
            return Err(format!("{about}: something was changed"));
        }
        let done = run("copy", "");
        if done.failed.len() != *refused {
            return Err(format!("{about}: {refused} are to be refused: {:#?}", done.failed));
        }
        for (kind, said, done) in [("item", &said.items, &done.items), ("failed", &said.failed, &done.failed)]
        {
            if said != done {
                return Err(format!("{about}: {kind}\nsaid {said:#?}\ndone {done:#?}"));
            }
        }
        if said.code != done.code {
            return Err(format!("{about}: said {}, done {}", said.code, done.code));
        }
        // What stands in the way at the destination differs in its type.
        let differs = before.keys().any(|name| name.starts_with(b"d/x"));
        if differs && checked.code == 1 && checked.failed.is_empty() {
            return Ok(());
        }
        // What a copy does not make, `check` does not look for.
        if tree.starts_with('p') {
            return Ok(());
        }
        if checked.failed != done.failed || (*refused > 0 && checked.code != 2) {
            return Err(format!("{about}: checked {} {:#?}", checked.code, checked.failed));
        }
        Ok(())
    });
}

/// A tree, what is done to it beside, flags, sources, and how many a move refuses.
const MOVED: &[(&str, Also, &str, &str, usize)] = &[
    ("f c1/D/img 1\nf c2/D/img 2\nf c2/D/own 3\nd d", nothing, "--merge", "c1/D c2/D", 1),
    ("f c1/D/a/img 1\nf c2/D/a/img 2\nd d/D", nothing, "--merge", "c1/D c2/D", 1),
    ("f c1/D/img 1\nf c2/D/img 2\nf d/D/img 0", nothing, "--merge", "c1/D c2/D", 1),
    (
        "f c1/D/a/img 1\nf c2/D/b/img 2\nf c3/D/a/img 3\nf c3/D/b/img 4\nf d/D/x 0",
        nothing,
        "--merge",
        "c1/D c2/D c3/D",
        2,
    ),
    ("f c1/D/img 1\nf c2/D/img 2\nf c2/D/x.o 3\nd d", nothing, "--merge -e *.o", "c1/D c2/D", 1),
    ("f c1/D/one 1\nf c2/D/own 2\nd d", nothing, "--merge", "c1/D c2/D", 0),
    ("f c1/D/img 1\nd d", nothing, "--merge", "c1/D c1/D", 0),
    // What an earlier source becomes stands in the way of another.
    ("f c1/D/x/f 1\nf c2/D/x 2\nd d", nothing, "--merge", "c1/D c2/D", 1),
    ("f c1/D/x 1\nf c2/D/x/f 2\nf d/D/y 0", nothing, "--merge", "c1/D c2/D", 1),
    // Directories that are not merged.
    ("f c1/D/img 1\nf c2/D/own 2\nd d", nothing, "", "c1/D c2/D", 1),
    ("d c1/D\nf c2/D/own 2\nd d", nothing, "", "c1/D c2/D", 0),
    ("f s/f 1\nf d/s/g 0", nothing, "", "s", 1),
    ("f s/f 1\nd d/s", nothing, "", "s", 0),
    // Names that are kept for what a killed run leaves.
    ("f s/f 1\nd d", reserved_operand, "", "OPERANDS", 1),
    ("f s/sub/f 1\nd d/sub", reserved_dir, "--merge -T", "s", 1),
];

/// The failures of a move's dry run are the move's, word by word, and so is its exit code, near and across file systems.
#[test]
fn what_a_move_refuses() {
    let rows: Vec<_> = MOVED.iter().flat_map(|row| [false, true].map(|far| (row, far))).collect();
    each(&rows, |((tree, also, flags, sources, refused), far)| {
        let elsewhere = if *far { crate::table::elsewhere() } else { None };
        if *far && elsewhere.is_none() {
            return Ok(());
        }
        let dir = scratch();
        plant(dir.path(), tree);
        if let Some(elsewhere) = &elsewhere {
            // The destination is a link to where it is; names in it are kept for leftovers of the directory itself.
            tool(dir.path(), &format!("cp -a d {}", elsewhere.path().display()));
            fs::remove_dir_all(at(&dir, "d")).unwrap();
            std::os::unix::fs::symlink(elsewhere.path().join("d"), at(&dir, "d")).unwrap();
        }
        also(dir.path());
        let operands = fs::read_to_string(at(&dir, "operands")).unwrap_or_default();
        let sources = sources.replace("OPERANDS", &operands);
        let about = format!("far {far}: {flags} {sources} of {tree:?}");
        let d = at(&dir, "d").canonicalize().unwrap();
        let run = |more: &str| {
            let sources = sources.split_whitespace().map(|s| dir.path().join(s));
            let flags = format!("--json {flags} {more}");
            told(bcmr(["move"]).args(flags.split_whitespace()).args(sources).args([&d]).cwd(dir.path()))
        };
        let before = (look(dir.path()), look(&d));
        let said = run("-n");
        if (look(dir.path()), look(&d)) != before {
            return Err(format!("{about}: something was changed"));
        }
        let done = run("");
        if done.failed.len() != *refused {
            return Err(format!("{about}: {refused} are to be refused: {:#?}", done.failed));
        }
        if (&said.failed, said.code) != (&done.failed, done.code) {
            return Err(format!(
                "{about}: said {} {:#?}\ndone {} {:#?}",
                said.code, said.failed, done.code, done.failed
            ));
        }
        if !far && said.items != done.items {
            return Err(format!("{about}: said {:#?}\ndone {:#?}", said.items, done.items));
        }
        Ok(())
    });
}

/// A list that names things twice, in other words, and what is below them.
#[test]
fn what_a_list_names_twice() {
    let far = Far::pipe();
    each(&WAYS, |way| {
        for list in ["sub/f\n./sub/f\nsub//f\n", "sub/f\nsub\ng\n", "sub\nsub\nsub/f\n"] {
            let dir = scratch();
            plant(dir.path(), "f s/sub/f 1\nf s/sub/other 2\nf s/g 3\nd d");
            fs::write(at(&dir, "list"), list).unwrap();
            let flags = "--json -r --files-from list";
            let said = told(line(&far, *way, dir.path(), "copy", &format!("{flags} -n"), "s"));
            let done = told(line(&far, *way, dir.path(), "copy", flags, "s"));
            if (&said.items, &said.failed, said.code) != (&done.items, &done.failed, done.code) {
                let (said, done) = (said.items, done.items);
                return Err(format!("{way:?} {list:?}\nsaid {said:#?}\ndone {done:#?}"));
            }
        }
        Ok(())
    });
}

/// What other programs say of everything below `top`, by path: type, mode, owner, mtime, attributes and ACLs.
fn facts(top: &Path) -> BTreeMap<String, String> {
    let run = |program: &str, args: &[&str], paths: &[&str]| {
        let out = Command::new(program).args(args).args(paths).current_dir(top).output().unwrap();
        assert!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let found = run("find", &[], &["."]);
    let paths: Vec<&str> = found.lines().map(|path| path.trim_start_matches("./")).collect();
    let kinds = run("stat", &["-c", "%F %a %u %g %y"], &paths);
    let mut all: BTreeMap<String, String> =
        paths.iter().zip(kinds.lines()).map(|(path, kind)| ((*path).to_owned(), kind.to_owned())).collect();
    assert_eq!(kinds.lines().count(), all.len());
    let not_links: Vec<&str> =
        paths.iter().filter(|p| !all[**p].starts_with("symbolic link")).copied().collect();
    let attributes = run("getfattr", &["-h", "-d", "-m", "-", "-e", "hex"], &paths);
    let acls = run("getfacl", &["-p", "-n"], &not_links);
    // Each has a paragraph for a path, which names it in the first line.
    for about in attributes.split_terminator("\n\n").chain(acls.split_terminator("\n\n")) {
        let path = about.lines().next().and_then(|line| line.strip_prefix("# file: ")).unwrap();
        all.get_mut(path).unwrap_or_else(|| panic!("{path}")).push_str(about);
    }
    all
}

type Alter = fn(&Path);

fn tool(dir: &Path, line: &str) {
    let mut words = line.split(' ');
    let done = Command::new(words.next().unwrap()).args(words).current_dir(dir).status().unwrap();
    assert!(done.success(), "{line}");
}

/// What is changed at the copy (or at the source, `s`), and what is found.
const ALTERED: &[(&str, Alter, &str)] = &[
    ("nothing", |_| {}, ""),
    ("an attribute given", |d| tool(d, "setfattr -n user.x -v 1 d/sub/f"), "sub/f attributes"),
    ("an attribute taken", |d| tool(d, "setfattr -x user.was d/f"), "f attributes"),
    ("another value", |d| tool(d, "setfattr -n user.was -v other d/f"), "f attributes"),
    ("a directory's attribute", |d| tool(d, "setfattr -n user.x -v 1 d/sub"), "sub attributes"),
    ("the top's attribute", |d| tool(d, "setfattr -n user.x -v 1 d"), "d attributes"),
    ("an attribute of the source", |d| tool(d, "setfattr -n user.x -v 1 s/sub"), "sub attributes"),
    ("an ACL given", |d| tool(d, "setfacl -m u:1234:r,m::r d/sub/f"), "sub/f acl"),
    ("an ACL taken", |d| tool(d, "setfacl -b d/acl"), "acl mode"),
    ("another ACL", |d| tool(d, "setfacl -n -m u:1234:r d/acl"), "acl acl"),
    ("a default ACL", |d| tool(d, "setfacl -d -m u:1234:rwx d/sub"), "sub acl"),
    ("the ACL of the source", |d| tool(d, "setfacl -d -m u:1234:rwx s/sub"), "sub acl"),
    ("a directory's time", |d| tool(d, "touch -d @77 d/sub"), "sub mtime"),
    ("the top's time", |d| tool(d, "touch -d @77 d"), "d mtime"),
    ("a link's time", |d| tool(d, "touch -h -d @77 d/l"), "l mtime"),
    ("a directory's mode", |d| tool(d, "chmod 711 d/sub"), "sub mode"),
    ("two things", |d| tool(d, "setfattr -n user.x -v 1 d/f d/sub"), "f attributes, sub attributes"),
];

/// `check --archive` finds exactly what `copy --archive` then changes, as other programs see it.
#[test]
fn what_an_archive_would_change() {
    for program in ["getfattr", "setfattr", "getfacl", "setfacl"] {
        if !crate::table::have(program) {
            return skipped("what_an_archive_would_change", program);
        }
    }
    let far = Far::pipe();
    let mut rows = Vec::new();
    for (n, row) in ALTERED.iter().enumerate() {
        let of_row = WAYS.into_iter().flat_map(|way| ["-T|s", "|s/."].map(|form| (row, way, form)));
        // An ordinary run takes a sixth: each change one way, and some changes by each way.
        let tried = of_row.enumerate().filter(|(at, _)| in_slice(n + at, 6));
        rows.extend(tried.map(|(_, row)| row));
    }
    each(&rows, |((what, alter, want), way, form)| {
        let dir = scratch();
        plant(dir.path(), "f s/f F\nf s/acl A\nf s/sub/f F\nl s/l -> f\nd s/empty");
        tool(dir.path(), "setfattr -n user.was -v 1 s/f");
        tool(dir.path(), "setfacl -m u:1234:rw,m::rwx s/acl");
        let about = format!("{what}, {way:?} {form}");
        let (flags, sources) = form.split_once('|').unwrap();
        let run = |verb: &str, more: &str| {
            line(&far, *way, dir.path(), verb, &format!("--archive {flags} {more}"), sources).run()
        };
        if *form == "|s/." {
            fs::create_dir(at(&dir, "d")).unwrap();
        }
        run("copy", "").ok();
        alter(dir.path());
        let before = facts(&at(&dir, "d"));
        let found = run("check", "--json").one_of(&[0, 1]);
        let mut found: Vec<(String, String)> = found
            .out
            .lines()
            .map(|l| serde_json::from_str::<Value>(l).unwrap())
            .filter(|e| e["event"] == "difference")
            .map(|e| (e["path"].as_str().unwrap().trim_end_matches('/').to_owned(), e["why"].to_string()))
            .collect();
        found.sort();
        let name = |path: &str| if path.ends_with("/d") { "d".to_owned() } else { path.to_owned() };
        let said: Vec<String> =
            found.iter().map(|(path, why)| format!("{} {}", name(path), why.trim_matches('"'))).collect();
        if said.join(", ") != *want {
            return Err(format!("{about}: {said:?} is found"));
        }
        run("copy", "").ok();
        let after = facts(&at(&dir, "d"));
        let changed: Vec<String> = before
            .iter()
            .filter(|(path, was)| after.get(*path) != Some(was))
            .map(|(path, _)| if path == "." { "d".to_owned() } else { path.clone() })
            .collect();
        let mut found: Vec<String> = found.iter().map(|(path, _)| name(path)).collect();
        found.sort();
        if changed != found {
            return Err(format!("{about}: found {found:?}, changed {changed:?}"));
        }
        Ok(())
    });
}

/// A server that is confined makes no device, and says so of a copy that is only shown or compared too.
#[test]
fn a_device_behind_a_wall() {
    if !crate::common::is_root() {
        return skipped("a_device_behind_a_wall", "it needs root");
    }
    let dir = scratch();
    plant(dir.path(), "f s/f F\np s/fifo\nd root");
    let null = rustix::fs::makedev(1, 3);
    crate::common::mknod(&at(&dir, "s/null"), rustix::fs::FileType::CharacterDevice, 0o600, null);
    let far = Far::pipe().serving(&format!("--root {}", at(&dir, "root").display()));
    let run = |verb: &str, more: &[&str]| {
        let line = far.bcmr(verb).args(["--json", "--archive"]).args(more);
        told(line.args([at(&dir, "s").into_os_string(), far.at("d")]))
    };
    let (said, checked, done) = (run("copy", &["-n"]), run("check", &[]), run("copy", &[]));
    assert_eq!(done.failed.len(), 1, "{:#?}", done.failed);
    assert!(done.failed[0].contains("confined by --root"), "{:#?}", done.failed);
    assert_eq!((&said.items, &said.failed, said.code), (&done.items, &done.failed, done.code));
    assert_eq!((&checked.failed, checked.code), (&done.failed, 2));
}

/// Over a wire a dry run of `-a` proves whole blocks, and says what it has not compared; where there is nothing else, it
/// says nothing.
#[test]
fn what_is_added_to_is_proved_as_far_as_it_is_said() {
    let far = Far::pipe();
    for (there, rest) in [(9 << 20, Some(1 << 20)), (8 << 20, None)] {
        for way in [Way::Put, Way::Get] {
            let dir = scratch();
            let bytes = crate::common::noise(4, 20 << 20);
            fs::write(at(&dir, "s"), &bytes).unwrap();
            fs::write(at(&dir, "d"), &bytes[..there]).unwrap();
            let ran = line(&far, way, dir.path(), "copy", "-n -a", "s").run().ok();
            let says = ran.err.contains("are compared by the copy itself");
            assert_eq!(says, rest.is_some(), "{way:?} {there}: {}", ran.err);
            if let Some(rest) = rest {
                assert!(ran.err.contains(&rest.to_string()), "{way:?}: {}", ran.err);
            }
        }
    }
}
