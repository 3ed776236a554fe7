//! Which source goes to which name: GNU cp and mv are the judges.
//!
//! Every row is run by the judge in one copy of a tree and by bcmr in another; then the trees must be alike, and both
//! must have succeeded or both failed. Where bcmr differs on purpose, the row carries its own expectation and the
//! reason.
use crate::common::sliced;
use crate::table::*;

/// What every row starts from.
const BASE: &str = "
    f w/one ONE
    f w/two TWO
    d w/dir
    f w/dir/x DIR-X
    d w/src
    f w/src/a A
    d w/src/sub
    f w/src/sub/b B
    l w/src/in -> a
    l w/src/out -> nowhere
    l w/lf -> one
    l w/ld -> src
    l w/ldir -> dir
    l w/dang -> nowhere
";

/// The judge's words for ours.
fn judges_words(args: &str) -> String {
    let word = |w: &str| match w {
        "--no-clobber" | "--update=none" => "-n".to_owned(),
        "--update=older" => "-u".to_owned(),
        "--archive" => "-a".to_owned(),
        other => other.to_owned(),
    };
    args.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// Why bcmr does not do what the judge does, and what it does instead.
struct Own {
    reason: &'static str,
    code: i32,
    /// What the tree is afterwards; `None` is: as before.
    tree: Option<&'static str>,
}

struct Row {
    tree: &'static str,
    args: String,
    stdin: &'static str,
    own: Option<Own>,
}

/// Runs one row, in `w` below a scratch directory so that `..` is ours too.
fn judge(verb: &str, judge: &str, row: &Row) -> Result<(), String> {
    let twins = Twins::plant(row.tree);
    let ours = command(BCMR, &words(&format!("{verb} {}", row.args)), &at(&twins.ours, "w"));
    let before = look(twins.ours.path());
    let ours = finish(ours, row.stdin);
    let after = look(twins.ours.path());
    let tell = |why: &str, differ: &str| {
        let (args, stderr) = (&row.args, ours.stderr.trim_end());
        Err(format!("{verb} {args}: {why}\n{differ}  bcmr: {:?} {stderr}", ours.code))
    };
    if let Some(own) = &row.own {
        let want = match own.tree {
            None => before,
            Some(text) => {
                let dir = scratch();
                plant(dir.path(), text);
                look(dir.path())
            }
        };
        let differ = differences(&want, &after);
        if !differ.is_empty() || ours.code != Some(own.code) {
            return tell(&format!("wanted exit {} | got, because {}", own.code, own.reason), &differ);
        }
        return Ok(());
    }
    let theirs = command(judge, &words(&judges_words(&row.args)), &at(&twins.theirs, "w"));
    let theirs = finish(theirs, row.stdin);
    let differ = differences(&look(twins.theirs.path()), &after);
    // What skipping says differs between releases of coreutils.
    let skips = row.args.contains("--no-clobber") || row.args.contains("--update=none");
    let alike = skips || (ours.code == Some(0)) == (theirs.code == Some(0));
    if !alike || !differ.is_empty() {
        return tell(&format!("{judge}: {:?} {} | bcmr", theirs.code, theirs.stderr.trim_end()), &differ);
    }
    Ok(())
}

fn product(
    flags: &[&str],
    sources: &[&str],
    targets: &[&str],
    own: impl Fn(&str, &str, &str) -> Option<Own>,
    step: usize,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for f in flags {
        for s in sources {
            for t in targets {
                rows.push(Row { tree: BASE, args: format!("{f} {s} {t}"), stdin: "", own: own(f, s, t) });
            }
        }
    }
    // An ordinary run takes one in `step`: with each source and each row of flags other targets.
    sliced(rows, step).collect()
}

const SOURCES: [&str; 11] =
    ["one", "src", "src/.", ".", "lf", "ld", "ld/", "ld/.", "dang", "none", "one two"];
const TARGETS: [&str; 10] = ["two", "dir", "dir/.", "new", "new/", "lf", "ldir", "dang", "src", "src/new"];

/// A copy into itself is refused as a whole; cp makes a part of it first and then fails.
fn into_itself(flags: &str, source: &str, target: &str) -> Option<Own> {
    let follows = flags.contains('L') || flags.contains('H');
    let is_src = matches!(source, "src" | "src/" | "src/." | "ld/" | "ld/.") || (source == "ld" && follows);
    let above = matches!(source, "." | "..");
    let whole = source.ends_with('.');
    let inside = match target {
        "src/new" => is_src || above,
        "src" if flags.contains('T') => above,
        "src" => (is_src && !whole) || above,
        // What cannot be written to has another reason to fail.
        "dir" | "dir/." | "new" | "new/" | "ldir" | "ldir/" => above,
        _ => false,
    };
    let reason = "nothing is made of a copy into itself; cp makes a part of it";
    (flags.contains('r') && inside).then_some(Own { reason, code: 8, tree: None })
}

#[test]
fn copy_goes_where_cp_goes() {
    let flags = ["", "-r", "-rL", "-T", "-rT"];
    each(&product(&flags, &SOURCES, &TARGETS, into_itself, 7), |row| judge("copy", "cp", row));
}

#[test]
fn move_goes_where_mv_goes() {
    // mv leaves alone whatever has its name taken before it looks at what it was given.
    let own = |flags: &str, source: &str, target: &str| {
        let taken = !matches!(target, "new" | "new/" | "src/new");
        let (whole, slash) = (source.ends_with('.'), source.ends_with('/'));
        let code = if whole || target == "src" { 8 } else { 1 };
        let reason = "an operand that cannot be moved is told, also when the name is taken";
        (flags == "--no-clobber" && taken && (whole || slash)).then_some(Own { reason, code, tree: None })
    };
    each(&product(&["", "-T", "--no-clobber"], &SOURCES, &TARGETS, own, 3), |row| judge("move", "mv", row));
}

fn row(args: &str) -> Row {
    Row { tree: BASE, args: args.to_owned(), stdin: "", own: None }
}

fn row_of(tree: &'static str, args: &str) -> Row {
    Row { tree, ..row(args) }
}

/// What the products above leave out.
#[test]
fn copies_of_other_kinds() {
    const SLASHED: [&str; 24] = [
        "-P one lf",
        "-P lf new",
        "-P lf two",
        "-P dang lf",
        "-P lf dang",
        "-P lf lf",
        "-P dang dang",
        "-rH ld new",
        "-rH ld dir",
        "-rH lf new",
        "-rH dang new",
        "-rP ld/ new",
        "-rP ld/. new",
        "-r src/ dir",
        "-r src/ new",
        "-r src/ new/",
        "lf/ new",
        "one/ new",
        "-rT src ldir/",
        "-r src ldir/",
        "one none/x",
        "-r src none/x",
        "-r src src/sub",
        "-rL ld dang",
    ];
    let mut rows: Vec<Row> = SLASHED.iter().filter(|a| **a != "-r src src/sub").map(|a| row(a)).collect();
    // Several sources and -t.
    for args in [
        "one two dir",
        "one two new",
        "one two two",
        "-r src one dir",
        "one none dir",
        "-r src none two dir",
        "-t dir one two",
        "-t dir",
        "-t new one",
        "-t two one",
        "-t ldir one",
        "-t lf one",
        "-t dang one",
        "-rt dir src/. one",
        "-T one two dir",
        "-t dir -T one",
        "one",
        "-r src dir/x",
        "-f one two",
        "dir/x one dir",
        "-r src/. dir/. new",
        "-r src/. dir/. dir",
    ] {
        rows.push(row(args));
    }
    // A directory over a file and a file over a directory, one level down.
    let tree = "
        f w/s/a FILE
        d w/s/b
        f w/s/c C
        d w/d/s/a
        f w/d/s/b FILE
        f w/d/s/c OLD
        f w/d/s/own OWN";
    rows.extend([row_of(tree, "-r s d"), row_of(tree, "-rT s d/s"), row_of(tree, "-r s/. d/s")]);
    // Destination links inside a tree: to a directory, and dangling.
    rows.push(row_of(
        "
        d w/s/a
        f w/s/a/x X
        d w/real
        l w/d/s/a -> ../../real",
        "-r s d",
    ));
    // Which of the two is newer.
    let ages = "
        f w/s/newer@2000 SRC
        f w/s/older@1000 SRC
        f w/s/same@1500 SRC
        f w/s/absent@1 SRC
        f w/d/newer@1500 DST
        f w/d/older@1500 DST
        f w/d/same@1500 DST";
    for flags in ["-r", "-ru", "-r --update=older", "-r --no-clobber", "-r --update=none", "-rf"] {
        rows.push(row_of(ages, &format!("{flags} s/. d")));
    }
    for name in ["newer", "older", "same", "absent"] {
        rows.extend(["-u", "--no-clobber"].map(|f| row_of(ages, &format!("{f} s/{name} d/{name}"))));
    }
    rows.extend(
        ["--no-clobber one two", "--no-clobber one new", "--no-clobber one lf", "--no-clobber one ldir"]
            .map(row),
    );
    // Answers.
    let one = |stdin| Row { stdin, ..row_of(ages, "-i s/newer d/newer") };
    rows.extend(["y\n", "Y\n", "n\n", "", "\n", "yes\n", "no"].map(one));
    rows.push(Row { stdin: "y\nn\ny\n", ..row_of(ages, "-i s/newer s/older s/same d") });
    rows.push(Row { stdin: "n\n", ..row_of(ages, "-i s/absent d") });
    // Hard links, in one directory, across two, and across two operands.
    let hard = "
        f w/s/a A
        h w/s/b = w/s/a
        h w/s/sub/c = w/s/a
        f w/s/lone LONE
        l w/s/l -> a
        h w/s/l2 = w/s/l";
    for flags in [
        "-r",
        "-r --preserve=links",
        "--archive",
        "-rp",
        "-rL --preserve=links",
        "-r --no-preserve=links --preserve=links",
    ] {
        rows.push(row_of(hard, &format!("{flags} s d")));
    }
    rows.push(row_of(hard, "--preserve=links s/a s/b new"));
    rows.push(row_of(hard, "-r --preserve=links s/a s/sub .."));
    rows.push(row_of(hard, "-r --preserve=links s/a s/sub -t w2"));
    each(&rows, |row| judge("copy", "cp", row));
}

/// Where bcmr is not cp, and why.
#[test]
fn copy_differs_from_cp_on_purpose() {
    let own = |tree, args: &str, code, reason, after| Row {
        tree,
        args: args.to_owned(),
        stdin: "",
        own: Some(Own { reason, code, tree: after }),
    };
    let rows = [
        own(
            "f w/s/x X\np w/s/p",
            "-r s d",
            1,
            "without --archive special files are named and skipped, never opened",
            Some("f w/s/x X\np w/s/p\nf w/d/x X"),
        ),
        own(
            "f w/s/x NEW\nf w/real OLD\nl w/d/x -> ../real",
            "-r s/. d",
            0,
            "inside a recursive copy no destination link is written through: the name is replaced",
            Some("f w/s/x NEW\nf w/real OLD\nf w/d/x NEW"),
        ),
        own(
            "f w/one NEW\nf w/a OLD\nh w/b = w/a",
            "one a",
            0,
            "a file is replaced, not written into, so its other names keep what they had",
            Some("f w/one NEW\nf w/a NEW\nf w/b OLD"),
        ),
        own(
            "f w/one NEW\nf w/a OLD\nh w/b = w/a",
            "--inplace one a",
            0,
            "--inplace is what cp does",
            Some("f w/one NEW\nf w/a NEW\nh w/b = w/a"),
        ),
        own(
            "f w/a/x ONE\nf w/b/x TWO\nd w/d",
            "a/x b/x d",
            8,
            "the second of two sources with one name is refused, as in cp, but with a guard's code",
            Some("f w/a/x ONE\nf w/b/x TWO\nf w/d/x ONE"),
        ),
        own("f w/one ONE", "one one", 8, "source and destination are the same file", None),
        own("f w/one ONE\nl w/l -> one", "one l", 8, "source and destination are the same file", None),
        own("f w/one ONE\nh w/two = w/one", "one two", 8, "source and destination are the same file", None),
        own("f w/one ONE\nl w/dang -> nowhere", "one dang", 8, "cp does not write through it either", None),
        own("d w/d", "-r d d/e", 8, "a copy into itself", None),
    ];
    each(&rows, |row| judge("copy", "cp", row));
}

/// The same two names from two operands: directories are merged, as with cp.
#[test]
fn two_directories_of_one_name_are_merged() {
    let tree = "f w/a/s/x X\nf w/b/s/y Y\nd w/d";
    let row = Row {
        tree,
        args: "-r a/s b/s d".into(),
        stdin: "",
        own: Some(Own {
            reason: "cp merges them too, but overwrites nothing it has just made",
            code: 0,
            tree: Some("f w/a/s/x X\nf w/b/s/y Y\nf w/d/s/x X\nf w/d/s/y Y"),
        }),
    };
    each(&[row], |row| judge("copy", "cp", row));
}

#[test]
fn moves_of_other_kinds() {
    let mut rows: Vec<Row> = [
        "one two dir",
        "one two new",
        "one two two",
        "src one dir",
        "one none dir",
        "-t dir one two src",
        "-t new one",
        "-t two one",
        "-t ldir one",
        "-T src dir",
        "-T src new",
        "-T one new",
        "one/ new",
        "lf/ new",
        "src/ dir",
        "src/ new",
        "src new/",
        "src src",
        "src src/sub",
        "src dir/x",
        "one dir/x",
        "-T one dir",
        "one ldir/",
        "lf dir",
        "dang dir",
        "one none/x",
        "-f one two",
        "dir/x one",
    ]
    .map(row)
    .into();
    let tree = "f w/s/a A\nf w/d/s/b B\nd w/e/s\nl w/f/s -> ../d\np w/s/p\ns w/s/sock";
    rows.extend(
        ["s d", "s e", "s f", "-T s e/s", "-T s d", "s/p new", "s/sock d", "s/p s/a"]
            .map(|a| row_of(tree, a)),
    );
    let ages = "f w/new@2000 SRC\nf w/old@1000 SRC\nf w/d@1500 DST\nf w/e/new@1500 DST\nf w/e/old@1500 DST";
    rows.extend(
        [
            "-u new d",
            "-u old d",
            "--update=none new d",
            "--no-clobber new d",
            "-u new old e",
            "--no-clobber new old e",
        ]
        .map(|a| row_of(ages, a)),
    );
    rows.extend(["y\n", "n\n", "", "\n"].map(|stdin| Row { stdin, ..row_of(ages, "-i new d") }));
    let hard = "f w/a A\nh w/b = w/a\nd w/d\nh w/d/b = w/a";
    rows.extend(["a c", "a b d", "-T a c"].map(|a| row_of(hard, a)));
    each(&rows, |row| judge("move", "mv", row));
}

/// mv as the judge where the target is on another file system: `T` in the arguments is a directory there.
#[test]
fn moves_across_file_systems() {
    let (Some(there), Some(judges_there)) = (elsewhere(), elsewhere()) else { return };
    const FAR: &str = "
        f w/one ONE
        d w/s/empty
        f w/s/a A
        h w/s/b = w/s/a
        l w/s/l -> a
        l w/s/dang -> nowhere
        p w/s/p
        l w/ls -> s
        l w/lf -> one";
    let theirs_has =
        "f two TWO\nd empty\nd full/s\nf full/s/x X\nd void/s\nl lf -> two\nl ld -> empty\nl dang -> no";
    for (n, args) in [
        "one T/new",
        "one T/two",
        "one T/empty",
        "one T/lf",
        "one T/ld",
        "one T/dang",
        "s T/new",
        "s T/new/",
        "s T/empty",
        "s T/full",
        "s T/void",
        "s T/two",
        "s T/lf",
        "-T s T/empty",
        "-T s T/full",
        "-T one T/empty",
        "one s T/empty",
        "one none s T/empty",
        "ls T/new",
        "lf T/new",
        "lf T/lf",
        "lf T/empty",
        "s/p T/new",
        "s/a T/new",
        "s/a s/b T/empty",
        "--no-clobber one T/two",
        "--no-clobber one T/new",
        "-T ls T/ld",
        "s/dang T/two",
        "one T/none/x",
    ]
    .iter()
    .enumerate()
    {
        let twins = Twins::plant(FAR);
        let (ours, theirs) = (at(&there, &n.to_string()), at(&judges_there, &n.to_string()));
        plant(&ours, theirs_has);
        plant(&theirs, theirs_has);
        let with = |dir: &std::path::Path, line: &str| line.replace("T/", &format!("{}/", dir.display()));
        let mv = with(&theirs, &judges_words(args));
        let mv = finish(command("mv", &words(&mv), &at(&twins.theirs, "w")), "");
        let bcmr = bcmr(&format!("move {}", with(&ours, args)), &at(&twins.ours, "w"));
        let about =
            format!("move {args}\n mv: {:?} {}\n bcmr: {:?} {}", mv.code, mv.stderr, bcmr.code, bcmr.stderr);
        assert_same(&look(twins.theirs.path()), &look(twins.ours.path()), &about);
        assert_same(&look(&theirs), &look(&ours), &about);
        assert_eq!(mv.code == Some(0), bcmr.code == Some(0), "{about}");
    }
}

/// `-x` stays on the file system of its source: the mount point is made, nothing below it is copied.
#[test]
fn one_file_system() {
    let dir = scratch();
    plant(dir.path(), "f s/a A\nd s/mnt\nf s/z Z");
    let mount = command("mount", &["-t", "tmpfs", "none", "s/mnt"], dir.path()).output();
    if !mount.is_ok_and(|o| o.status.success()) {
        return crate::common::skipped("one_file_system", "mounting needs root");
    }
    plant(dir.path(), "f s/mnt/far FAR");
    let with = bcmr("copy -rx s with", dir.path());
    let without = bcmr("copy -r s without", dir.path());
    assert!(command("umount", &["s/mnt"], dir.path()).status().unwrap().success());
    with.exits(0);
    without.exits(0);
    let want = scratch();
    plant(want.path(), "f a A\nd mnt\nf z Z");
    assert_same(&look(want.path()), &look(&at(&dir, "with")), "-rx");
    plant(want.path(), "f mnt/far FAR");
    assert_same(&look(want.path()), &look(&at(&dir, "without")), "-r");
}
