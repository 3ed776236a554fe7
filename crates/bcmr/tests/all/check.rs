//! `check` and `--dry-run` say what a copy would do: the same pairs, the same items, and after the copy nothing.

use crate::common::{all_cases, in_slice};
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
            // What is compared at all is compared by content: without -p everything has another time.
            let kept = flags.contains("-rp") || flags.contains("--archive");
            let by = if kept && hash.is_empty() { " by size and time\n" } else { " by content\n" };
            let found = after.stdout.strip_prefix("no differences");
            // A symbolic link alone is compared by where it leads.
            let line = found.and_then(|l| if l == "\n" { Some(by) } else { l.strip_prefix("; ") });
            assert!(
                line.is_some_and(|l| l.ends_with(by) && !l.contains(',')),
                "{}: {}",
                after.said,
                after.stdout
            );
        }
    }
}

/// Each kind of change is found, has its sign, and only what can see it sees it.
#[test]
fn what_differs() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    type Change = fn(&std::path::Path);
    let changes: [(&str, Change, &str, &str); 11] = [
        ("size", |d| fs::write(d.join("sub/b"), "longer").unwrap(), "", "~ sub/b  size\n"),
        ("older", |d| set_mtime(&d.join("a"), 5), "-p", "~ a  mtime\n"),
        ("another time", |d| set_mtime(&d.join("a"), 5), "--quick", "~ a  mtime\n"),
        // The same length: only reading it tells.
        ("newer", |d| fs::write(d.join("sub/b"), "Z").unwrap(), "", "~ sub/b  content\n"),
        ("content", same_time_other_content, "--hash", "~ sub/b  content\n"),
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
        if matches!(what, "content" | "older" | "another time" | "mode") {
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

fn same_time_other_content(d: &std::path::Path) {
    let mtime = fs::metadata(d.join("sub/b")).unwrap().modified().unwrap();
    fs::write(d.join("sub/b"), "Z").unwrap();
    fs::File::open(d.join("sub/b")).unwrap().set_modified(mtime).unwrap();
}

/// How it was compared is the end of the last line, and stands in the summary.
#[test]
fn how_it_was_compared() {
    let dir = scratch();
    plant(dir.path(), "f s/a@5 A\nf s/b@5 B\nf s/c@5 C\nf d/a@5 A\nf d/b@5 B\nf d/c@6 C\nf s/k K\nf d/k KK");
    for (flags, code, end) in [
        ("-e k", 0, "no differences; 2 by size and time, 1 by content\n"),
        ("-e k --hash", 0, "no differences; 3 by content\n"),
        ("-e k --quick", 1, "1 to replace; 3 by size and time\n"),
        ("-e k -u", 0, "no differences; 2 by size and time, 1 left alone unread\n"),
        ("-e k --no-clobber", 0, "no differences; 2 by size and time, 1 left alone unread\n"),
        ("", 1, "1 to replace; 3 by size and time, 1 by content\n"),
    ] {
        let done = bcmr(&format!("check {flags} -T s d"), dir.path()).exits(code);
        assert!(done.stdout.ends_with(end), "{flags}: {}", done.stdout);
    }
    let done = bcmr("check --json -T s d", dir.path()).exits(1);
    let summary = done.json().pop().unwrap();
    assert_eq!(summary["compared"].to_string(), r#"{"content":1,"size_and_time":3}"#);
}

/// Kinds of a source times what is there: a name each. `@5` is a time; the source's is 50.
const MEETINGS: &str = "
    f s/new@50 NEW
    f s/same@50 SAME
    f d/same@50 SAME
    f s/sly@50 SLY1
    f d/sly@50 SLY2
    f s/newer@50 NEWER
    f d/newer@90 NEWER
    f s/newer-other@50 NEWER
    f d/newer-other@90 OTHER
    f s/older@50 OLDER
    f d/older@5 OLDER
    f s/older-other@50 OLDER
    f d/older-other@5 OTHER
    f s/longer@50 LONG
    f d/longer@90 LONGER
    f s/begun@50 BEGUN
    f d/begun@5 BEG
    f s/begun-newer@50 BEGUN
    f d/begun-newer@90 BEG
    f s/not-begun@50 BEGUN
    f d/not-begun@5 XXX
    f s/empty@50 BEGUN
    f d/empty@5
    f s/mode@50 MODE
    f d/mode@50 MODE
    f s/file-link@50 FILE
    l d/file-link -> same
    f s/file-dir@50 FILE
    d d/file-dir
    f s/file-fifo@50 FILE
    p d/file-fifo
    l s/link-new -> same
    l s/link-same -> same
    l d/link-same -> same
    l s/link-other -> same
    l d/link-other -> older
    l s/link-file -> same
    f d/link-file@5 FILE
    l s/link-dir -> same
    d d/link-dir
    d s/dir-new
    f s/dir-new/x@50 X
    d s/dir-dir
    d d/dir-dir
    f s/dir-dir/x@50 X
    f d/dir-dir/x@5 Y
    d s/dir-file
    f d/dir-file@5 FILE
    d s/dir-link
    l d/dir-link -> dir-dir
    p s/fifo-new
    p s/fifo-fifo
    p d/fifo-fifo
    p s/fifo-file
    f d/fifo-file FILE
";

/// What is at each name, as far as a copy with `flags` promises it.
fn snapshot(root: &std::path::Path, flags: &str) -> std::collections::BTreeMap<String, String> {
    use std::os::unix::fs::MetadataExt;
    let keeps = |words: &[&str]| flags.split(' ').any(|f| words.contains(&f));
    let (times, modes) = (keeps(&["-p", "--archive", "-C", "-s"]), keeps(&["-p", "--archive"]));
    let tree = look(root);
    let one = |(name, what): (&Vec<u8>, &String)| {
        let name = String::from_utf8(name.clone()).unwrap();
        let meta = fs::symlink_metadata(root.join(&name)).unwrap();
        let mut what = what.clone();
        if times {
            what += &format!(" {}.{}", meta.mtime(), meta.mtime_nsec());
        }
        if modes && !meta.is_symlink() {
            what += &format!(" {:o}", meta.mode());
        }
        (name, what)
    };
    tree.iter().map(one).collect()
}

/// Copy, dry run and check, here and in both directions over a wire, of every kind of source over everything that can be
/// there: the dry run names what the copy does, and check finds what the copy changes or could not.
#[test]
fn one_decision_for_all_three() {
    use crate::common::remote::Far;
    use std::os::unix::fs::PermissionsExt;
    let far = Far::pipe();
    let mut rows = Vec::new();
    let all = [
        "",
        "-u",
        "--update=different",
        "--no-clobber",
        "-a",
        "--append=size",
        "-a -u",
        "-C",
        "-s",
        "-C -V",
        "-C -u",
        "-p",
        "-p --update=different",
        "--archive",
        "--archive --update=different",
        "--inplace",
    ];
    for (n, flags) in all.into_iter().enumerate() {
        // An ordinary run tries each one way.
        for (_, way) in ["here", "put", "get"].into_iter().enumerate().filter(|(m, _)| in_slice(n + m, 3)) {
            // A FIFO that is written into waits for its reader.
            let tree = if flags == "--inplace" {
                MEETINGS.replace("p d/file-fifo", "d d/x")
            } else {
                MEETINGS.into()
            };
            rows.push((flags, way, tree));
        }
    }
    each(&rows, |(flags, way, tree)| {
        let dir = scratch();
        plant(dir.path(), tree);
        // Where hard links are kept, one name more is another tree.
        if !flags.contains("--archive") {
            fs::hard_link(at(&dir, "s/mode"), at(&dir, "d/one")).unwrap();
            fs::hard_link(at(&dir, "s/mode"), at(&dir, "s/one")).unwrap();
        }
        fs::set_permissions(at(&dir, "d/mode"), fs::Permissions::from_mode(0o600)).unwrap();
        let about = format!("{way} [{flags}]");
        let run = |verb: &str, more: &str| {
            let line = format!("--json {flags} {more}");
            let (s, d) = (at(&dir, "s/."), at(&dir, "d"));
            let mut words = crate::table::words(verb);
            words.extend(crate::table::words(&line));
            match *way {
                "here" => words.extend([s.into(), d.into()]),
                "put" => words.extend([s.into(), far.at(&d)]),
                _ => words.extend([far.at(&s), d.into()]),
            }
            let ran = if *way == "here" {
                crate::common::bcmr(words).cwd(dir.path()).run()
            } else {
                let verb = words.remove(0);
                far.bcmr(verb.to_str().unwrap()).args(words).cwd(dir.path()).run()
            };
            let events: Vec<serde_json::Value> =
                ran.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
            (ran.code, events)
        };
        let before = snapshot(&at(&dir, "d"), flags);
        let (check_code, check) = run("check", "--no-extra");
        let (_, exact) = run("check", "--no-extra --hash");
        let (said_code, said) = run("copy", "-r -n");
        if snapshot(&at(&dir, "d"), flags) != before {
            return Err(format!("{about}: something was changed by saying what would be"));
        }
        let (copy_code, copy) = run("copy", "-r");
        let after = snapshot(&at(&dir, "d"), flags);
        let items = |events: &[serde_json::Value], kind: &str| {
            let mut all: Vec<String> = events
                .iter()
                .filter(|e| e["event"] == kind)
                .map(|e| format!("{} {} {} {}", e["action"], e["src"], e["dst"], e["path"]))
                .collect();
            all.sort();
            all
        };
        for kind in ["item", "failed"] {
            let (said, copy) = (items(&said, kind), items(&copy, kind));
            // Which of several names is the first depends on who is faster.
            let links = flags.contains("--archive");
            if said != copy && !(links && kind == "item" && said.len() == copy.len()) {
                return Err(format!("{about}: {kind}\nsaid {said:#?}\ndone {copy:#?}"));
            }
        }
        if said_code != copy_code {
            return Err(format!("{about}: the dry run ends with {said_code}, the copy with {copy_code}"));
        }
        let failed: Vec<String> =
            copy.iter().filter(|e| e["event"] == "failed").map(|e| e["path"].to_string()).collect();
        let found = |events: &[serde_json::Value]| -> Vec<String> {
            let all = events.iter().filter(|e| e["event"] == "difference");
            all.map(|e| e["path"].as_str().unwrap().trim_end_matches('/').to_owned()).collect()
        };
        let (found, exact) = (found(&check), found(&exact));
        let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            let under = |name: &str| format!("/d/{name}\"");
            let refused = failed.iter().any(|path| path.ends_with(&under(name)));
            let changed = before.get(name) != after.get(name);
            // One file under both names is alike, though a copy of it is refused.
            let want = (changed || refused) && name != "one";
            for (found, hashes) in [(&found, false), (&exact, true)] {
                let listed = found.iter().any(|f| f == name || name.starts_with(&format!("{f}/")));
                // Size and time are believed, which the last line says; only with --hash they are not.
                let believed = name == "sly" && !hashes && !listed;
                if listed != want && !believed {
                    return Err(format!(
                        "{about}: {name}: changed {changed}, refused {refused}, found {listed}, by hash {hashes}"
                    ));
                }
            }
        }
        if check_code != i32::from(!found.is_empty()) {
            return Err(format!("{about}: check ends with {check_code}"));
        }
        Ok(())
    });
}

/// The tree as it is printed: directories with one branch on one line, sides that are whole on one line.
#[test]
fn the_folded_tree() {
    let dir = scratch();
    plant(dir.path(), "f s/u/v/f 1\nf s/new/x/y 3\nf s/new/z 4\nf s/same S\nf s/ui/a 1\nf s/ui/b 1");
    plant(dir.path(), "f d/u/v/f 22\nf d/old/q 5\nf d/ui/a 22\nf d/same S");
    let done = bcmr("check -T s d", dir.path()).exits(1);
    let want = "+ new/  2 files, 2 B\n- old/  1 file, 1 B\n~ u/v/f  size\n  ui/\n~   a  size\n+   b  1 B\n\
                3 to add (3 B), 2 to replace, 1 only at the destination (1 B); \
                2 by size and time, 1 by content\n";
    assert_eq!(done.stdout, want);
    assert!(done.stderr.is_empty(), "{}", done.stderr);
}

/// Trouble is 2 whatever else was found, and `check` does not say that there are no differences.
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

/// Numbers that look random and are the same for the same seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Two trees as text, below `s` and `d`, which have much in common. Directories of one entry, and of several batches.
fn two_trees(seed: u64) -> String {
    const NAMES: [&str; 10] = ["a", "a-b", "a.b", "B", "b", "c1", "c10", "zz", "_", "o.o"];
    let mut draws = Draws(seed);
    let mut text = String::from("d s\nd d\n");
    let mut dirs = vec![(String::new(), 0)];
    let mut first: Option<String> = None;
    let mut taken = std::collections::HashSet::new();
    while let Some((dir, depth)) = dirs.pop() {
        let many = draws.below(9) == 0;
        let count = if many { 60 + draws.below(140) } else { draws.below(9) };
        for n in 0..count {
            let name = NAMES[draws.below(10) as usize];
            let path = format!("{dir}/{name}{}", if many { n.to_string() } else { String::new() });
            if !taken.insert(path.clone()) {
                continue;
            }
            // Only here, only there, on both sides alike or not.
            let side = draws.below(8);
            let (here, there) = (side != 0, side > 1);
            match draws.below(8) {
                0 | 1 if depth < 4 && !many => {
                    for (is, root) in [(here, 's'), (there, 'd')] {
                        if is {
                            text.push_str(&format!("d {root}{path}\n"));
                        }
                    }
                    dirs.push((path, depth + 1));
                }
                2 => {
                    for (is, root) in [(here, 's'), (there, 'd')] {
                        if is {
                            text.push_str(&format!("l {root}{path} -> {}\n", draws.below(2)));
                        }
                    }
                }
                3 if here && first.is_some() => {
                    text.push_str(&format!("h s{path} = s{}\n", first.as_deref().unwrap_or_default()));
                }
                _ => {
                    for (is, root) in [(here, 's'), (there, 'd')] {
                        if is {
                            let (time, content) = (draws.below(2), draws.below(3));
                            text.push_str(&format!(
                                "f {root}{path}@{time} {}\n",
                                "x".repeat(content as usize + 1)
                            ));
                        }
                    }
                    if here {
                        first.get_or_insert(path);
                    }
                }
            }
        }
    }
    text
}

/// What a run says in JSON, but for how long it took and with how many workers.
fn said(line: &str, cwd: &std::path::Path) -> (Option<i32>, Vec<serde_json::Value>) {
    let done = bcmr(line, cwd);
    let mut events = done.json();
    events.retain(|e| e["event"] != "progress");
    for event in events.iter_mut().filter_map(serde_json::Value::as_object_mut) {
        for key in ["seconds", "jobs"] {
            event.remove(key);
        }
    }
    (done.code, events)
}

/// Several workers find what one does, and tell it in the same order.
#[test]
fn many_workers_say_what_one_says() {
    let rows = [
        "check -T s d",
        "check -v -T s d",
        "check --hash -T s d",
        "check --quick --no-extra -T s d",
        "check --archive -T s d",
        "check -v -e *1 -e B -T s d",
        "copy -n -r -T s d",
        "copy -n -v -r --archive -T s d",
        "copy -n -v -r --update=different -e a* -T s d",
        "copy -n -v -r -C -V -T s d",
        "copy -n -v -r --no-clobber s d",
    ];
    let mut findings = 0;
    for seed in 0..8 {
        let dir = scratch();
        plant(dir.path(), &two_trees(seed));
        for (n, row) in rows.into_iter().enumerate() {
            // An ordinary run takes half of the rows, one of the numbers for each, and compares the words of some.
            let turn = n + seed as usize;
            if !in_slice(turn, 2) {
                continue;
            }
            let one = said(&format!("{row} --json -j 1"), dir.path());
            findings += one.1.len();
            let some = &[2, 5][turn / 2 % 2..][..1];
            for jobs in if all_cases() { &[2, 5][..] } else { some } {
                let many = said(&format!("{row} --json -j {jobs}"), dir.path());
                assert_eq!(one, many, "seed {seed}: {row} -j {jobs}");
            }
            let text = |jobs| {
                let done = bcmr(&format!("{row} -j {jobs}"), dir.path());
                (done.code, done.stdout, done.stderr)
            };
            if in_slice(turn, 3) {
                assert_eq!(text(1), text(4), "seed {seed}: {row}");
            }
        }
    }
    assert!(findings > if all_cases() { 2_000 } else { 700 }, "{findings}");
}

/// What is found below a directory that has very many names stays in its order, with the tasks that it is cut into.
#[test]
fn a_directory_of_many_names_is_told_in_their_order() {
    let dir = scratch();
    for name in ["s", "d"] {
        fs::create_dir(at(&dir, name)).unwrap();
    }
    for n in 0..3_000 {
        let side = if n % 3 == 0 { "d" } else { "s" };
        fs::write(at(&dir, &format!("{side}/{n:05}")), "x").unwrap();
    }
    for jobs in [1, 4] {
        let (code, events) = said(&format!("check --json -j {jobs} -T s d"), dir.path());
        assert_eq!(code, Some(1));
        let of = |change: &str| -> Vec<String> {
            let found = events.iter().filter(|e| e["change"] == change);
            found.map(|e| e["path"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let (add, extra) = (of("add"), of("extra"));
        assert_eq!((add.len(), extra.len()), (2_000, 1_000), "{jobs} jobs");
        assert!(add.is_sorted() && extra.is_sorted(), "{jobs} jobs");
    }
}

/// A date is one of the time zone that `TZ` names; of one that is not known, it says no moment.
#[test]
fn a_date_is_of_the_time_zone_that_is_named() {
    use crate::common::{Line, Ran, Tmp};
    let tmp = Tmp::new();
    tmp.dir("d");
    tmp.file("s/f", "F");
    rustix::fs::utimensat(
        rustix::fs::CWD,
        tmp.p("s/f"),
        &rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 },
            last_modification: rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 },
        },
        rustix::fs::AtFlags::empty(),
    )
    .unwrap();
    // It was made on 2001-09-09 at 01:46:40 UTC.
    let newer = |zone: &str, when: &str| -> Ran {
        let mut line: Line = crate::common::bcmr(["check", "-T", "--newer", when, "s", "d"]).cwd(tmp.path());
        line.0.env("TZ", zone);
        line.run()
    };
    let rows = [("UTC0", "01:00", 1), ("UTC0", "02:00", 0), ("XYZ-9", "10:00", 1), ("XYZ-9", "11:00", 0)];
    for (zone, clock, code) in rows {
        newer(zone, &format!("2001-09-09T{clock}")).code(code);
    }
    // Where the time itself says its zone, this machine's does not count.
    for (when, code) in [("01:00Z", 1), ("02:00Z", 0), ("10:00+09:00", 1), ("11:00:00+09:00", 0)] {
        newer("XYZ-3", &format!("2001-09-09T{when}")).code(code);
    }
    for bad in ["1.5d", "2026-02-30", "2026-01-01T25:00"] {
        newer("UTC0", bad).code(2).says("is neither a time, an age nor a file").says("hint: a time is ");
    }
    newer("No/Such", "2001-09-09").code(2).says("TZ names no time zone").says("@SECONDS");
    newer("No/Such", "@1000000000").code(0);
    crate::needs!(std::path::Path::new("/usr/share/zoneinfo/Asia/Tokyo").exists(), "there are no time zones");
    newer("Asia/Tokyo", "2001-09-09T10:00").code(1);
    newer("Asia/Tokyo", "2001-09-09T11:00").code(0);
}
