//! `check` and `--dry-run` say what a copy would do: the same pairs, the same items, and after the copy nothing.

use crate::table::*;
use std::fs;

const TREE: &str = "
    f one ONE
    d src/void
    f src/a A
    z src/sub/big 5000000
    f src/sub/b B
    h src/sub/c = src/a
    l src/l -> a
    l src/dang -> nowhere
    f dir/own OWN
    l ldir -> dir
    l lsrc -> src
";

/// Whatever a copy of these arguments made, a check of the same arguments finds nothing to do; and before, it did.
#[test]
fn nothing_to_do_after_a_copy() {
    for (flags, args) in [
        ("", "one dir"),
        ("", "-T one new"),
        ("-r", "src dir"),
        ("-r", "src/. dir"),
        ("-r", "-T src new"),
        ("-r", "-T src/. new"),
        ("-r", "-t dir src one"),
        ("-r", "src one ldir"),
        ("-r", "lsrc dir"),
        ("-r", "lsrc/ dir"),
        ("-rL", "lsrc/sub dir"),
        ("-rH", "lsrc dir"),
        ("-rp", "src dir"),
        ("--archive", "src dir"),
        ("--archive", "-T src new"),
        ("-r -e sub", "src dir"),
        ("-r -e * --include a", "src/. dir"),
    ] {
        let dir = scratch();
        plant(dir.path(), TREE);
        for hash in ["", "--hash"] {
            let before = bcmr(&format!("check --no-extra {hash} {flags} {args}"), dir.path()).exits(1);
            assert!(before.stdout.contains("to add"), "{}: {}", before.said, before.stdout);
        }
        bcmr(&format!("copy {flags} {args}"), dir.path()).exits(0);
        for hash in ["", "--hash"] {
            let after = bcmr(&format!("check --no-extra {hash} {flags} {args}"), dir.path()).exits(0);
            assert_eq!(after.stdout, "no differences\n", "{}", after.said);
        }
    }
}

/// Each kind of change is found, has its sign, and only what can see it sees it.
#[test]
fn what_differs() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    type Change = fn(&std::path::Path);
    let changes: [(&str, Change, &str, &str); 9] = [
        ("size", |d| fs::write(d.join("sub/b"), "longer").unwrap(), "", "~ sub/b  size\n"),
        ("older", |d| set_mtime(&d.join("a"), 5), "", "~ a  mtime\n"),
        // The same length and not older: only reading it tells.
        ("content", |d| fs::write(d.join("sub/b"), "Z").unwrap(), "--hash", "~ sub/b  content\n"),
        ("missing", |d| fs::remove_file(d.join("a")).unwrap(), "", "+ a  1 B\n"),
        (
            "missing directory",
            |d| fs::remove_dir_all(d.join("sub")).unwrap(),
            "",
            "+ sub/  3 files, 4.8 MiB\n",
        ),
        ("extra", |d| plant(d, "f x/y 12\nf x/z 3"), "", "- x/  2 files, 3 B\n"),
        (
            "link",
            |d| {
                fs::remove_file(d.join("l")).unwrap();
                symlink("b", d.join("l")).unwrap();
            },
            "",
            "~ l  target\n",
        ),
        (
            "type",
            |d| {
                fs::remove_file(d.join("a")).unwrap();
                fs::create_dir(d.join("a")).unwrap();
            },
            "",
            "~ a/  type\n",
        ),
        (
            "mode",
            |d| fs::set_permissions(d.join("sub/b"), fs::Permissions::from_mode(0o600)).unwrap(),
            "--preserve=mode",
            "~ sub/b  mode\n",
        ),
    ];
    for (what, change, flags, line) in changes {
        let dir = scratch();
        plant(dir.path(), TREE);
        bcmr("copy -rpT src new", dir.path()).exits(0);
        bcmr("check -T src new", dir.path()).exits(0);
        change(&at(&dir, "new"));
        let done = bcmr(&format!("check {flags} -T src new"), dir.path()).exits(1);
        let tree = done.stdout.lines().filter(|l| l.starts_with(['+', '-', '~', ' '])).count();
        assert!(
            tree <= 2 && done.stdout.contains(line.trim_start_matches("~ a/")),
            "{what}: {}",
            done.stdout
        );
        if what == "content" {
            bcmr("check -T src new", dir.path()).exits(0);
        }
        if what == "mode" {
            bcmr("check -T src new", dir.path()).exits(0);
        }
        if what == "extra" {
            bcmr("check --no-extra -T src new", dir.path()).exits(0);
        }
        // A check changes nothing, so it finds the same again.
        let again = bcmr(&format!("check {flags} -T src new"), dir.path()).exits(1);
        assert_eq!(again.stdout, done.stdout, "{what}");
    }
}

/// The tree as it is printed: directories with one branch on one line, sides that are whole on one line.
#[test]
fn the_folded_tree() {
    let dir = scratch();
    plant(dir.path(), "f s/u/v/f 1\nf s/new/x/y 3\nf s/new/z 4\nf s/same S\nf s/ui/a 1\nf s/ui/b 1");
    plant(dir.path(), "f d/u/v/f 22\nf d/old/q 5\nf d/ui/a 22\nf d/same S");
    let done = bcmr("check -T s d", dir.path()).exits(1);
    let want = "+ new/  2 files, 2 B\n- old/  1 file, 1 B\n~ u/v/f  size\n  ui/\n~   a  size\n+   b  1 B\n\
                3 to add (3 B), 2 to replace, 1 only at the destination (1 B)\n";
    assert_eq!(done.stdout, want);
    assert!(done.stderr.is_empty(), "{}", done.stderr);
}

/// Trouble is 2 whatever else was found, and nobody is told that there are no differences.
#[test]
fn trouble() {
    let dir = scratch();
    plant(dir.path(), TREE);
    for args in [
        "none dir",
        "one none/x",
        "-t none one",
        "one src dir/x",
        "one",
        "-T one src dir",
        "--exclude-regex ( src dir",
        "none src dir",
    ] {
        let done = bcmr(&format!("check {args}"), dir.path()).exits(2);
        assert!(!done.stderr.is_empty(), "{args} says nothing");
        assert!(!done.stdout.contains("no differences"), "{args}: {}", done.stdout);
    }
}

/// A directory that is not there is a difference, also when it would be empty.
#[test]
fn an_empty_directory_counts() {
    let dir = scratch();
    plant(dir.path(), "d empty\nd d");
    for args in ["-T empty new", "empty/. new", "empty d"] {
        let done = bcmr(&format!("check {args}"), dir.path()).exits(1);
        assert!(done.stdout.starts_with("+ "), "{args}: {}", done.stdout);
    }
}

/// A dry run names exactly the items that the real run then makes, and counts them the same.
#[test]
fn a_dry_run_says_what_is_done() {
    for (tree, args) in [
        (TREE, "one dir"),
        (TREE, "one new"),
        (TREE, "-r src dir"),
        (TREE, "-r src new"),
        (TREE, "-r src/. dir"),
        (TREE, "-r src/. new"),
        (TREE, "-rT src new"),
        (TREE, "-rL lsrc dir"),
        (TREE, "-r -e sub -e /a src dir"),
        (TREE, "-r --exclude-regex b src dir"),
        (TREE, "--archive src new"),
        (TREE, "-r --preserve=links src new"),
        ("f s/a A\nf s/b B\nf d/s/a OLD\nf d/s/x X", "-r --no-clobber s d"),
        ("f s/a@9 A\nf s/b@9 B\nf d/s/a@5 OLD\nf d/s/b@10 OLD", "-ru s d"),
        ("f s/a@9 A\nf s/b@9 B\nf d/s/a@9 A\nf d/s/b@10 B", "-r --update=different s d"),
        ("f s/a A\np s/p\ns s/sock", "-r s d"),
        ("f s/a A\np s/p\ns s/sock", "--archive s d"),
        ("f s/a/x A\nf s/b B\nf d/s/a FILE\nd d/s/b", "-r s d"),
        ("f s/.gitignore *.o\nf s/x.o O\nf s/sub/y.o O\nf s/k K", "-r --gitignore s d"),
        ("f s/.gitignore *.o\nf s/x.o O\nf s/sub/y.o O\nf s/k K\nd d", "-r --gitignore s/. d"),
        ("f s/a A\nf s/sub/b B\nf s/sub/c C\nf list sub/b\nd d", "--files-from list s d"),
        ("f s/a A\nf s/sub/b B\nf s/sub/c C\nf list sub/b\nd d", "--files-from list -e b s d"),
        ("f s/a A\nf s/sub/b B\nf list sub\nd d", "-r --files-from list s d"),
    ] {
        let dir = scratch();
        plant(dir.path(), tree);
        let said = bcmr(&format!("copy -n --json {args}"), dir.path());
        let done = bcmr(&format!("copy --json {args}"), dir.path());
        // Which name of a file comes first and is copied, and which are linked to it, depends on who is faster.
        let links = args.contains("--archive") || args.contains("=links");
        let events = |done: &Done, kind: &str| {
            let mut all = Vec::new();
            for e in done.json().iter().filter(|e| e["event"] == kind) {
                if links {
                    all.push(format!("{} {}", e["action"], e["bytes"]));
                    all.push(format!("{} {}", e["src"], e["dst"]));
                } else {
                    all.push(format!(
                        "{} {} {} {} {}",
                        e["action"], e["src"], e["dst"], e["bytes"], e["path"]
                    ));
                }
            }
            all.sort();
            all
        };
        assert_eq!(events(&said, "item"), events(&done, "item"), "{args}: items");
        assert_eq!(events(&said, "failed"), events(&done, "failed"), "{args}: failures");
        assert_eq!(said.code, done.code, "{args}: exit");
        let totals = |done: &Done| {
            let s = done.json().pop().unwrap();
            ["files", "dirs", "others", "bytes", "kept", "failed"].map(|k| format!("{k} {}", s[k]))
        };
        assert_eq!(totals(&said), totals(&done), "{args}: totals");
    }
}
