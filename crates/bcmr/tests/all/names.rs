//! Names that this program makes for itself meet the same names in a source: nothing lands under the name of a stage that
//! is in use, nothing is swept that belongs to another program or user, and what a killed run left is taken away.
//!
//! Names are made anew here from docs/session-format.md.

use crate::common::remote::*;
use crate::common::*;
use std::path::{Path, PathBuf};

const SUFFIXES: [&str; 5] = [".stage", ".part", ".session", ".manifest", ".tree"];

fn digits(random: &mut Random) -> String {
    format!("{:016x}{:016x}", random.next(), random.next())
}

/// A name drawn from the patterns of this program, present and past ones, as `dir` or no directory at all would have it.
fn drawn(random: &mut Random, dir: &Path) -> String {
    let suffix = *random.of(&SUFFIXES);
    let (which, x) = (digits(random), blake3::hash(b"x").to_hex()[..32].to_owned());
    let of_dir = |which: &str| {
        let path = leftover(dir, which, suffix);
        path.file_name().unwrap().to_str().unwrap().to_owned()
    };
    match random.below(7) {
        0 => of_dir(&which),
        1 => of_dir(&x),
        2 => format!(".bcmr-{x}{suffix}"),
        3 => format!(".bcmr-{which}{suffix}"),
        4 => format!(".bcmr-r-{which}.stage"),
        5 => ".bcmr-tree.session".to_owned(),
        _ => format!(".bcmr-{which}{:016x}{suffix}", random.next()),
    }
}

/// Every way of copying that lands files in its own manner.
const FLAGS: [&str; 6] = ["-r", "-r -V", "-r --sync", "-r -C", "--archive", "-r --parallel 2"];

fn lasting() -> bool {
    keeps_identities(Tmp::new().path())
}

/// A leftover of the source's directory is a file like any other where it is copied to, and never what `x` becomes.
#[test]
fn a_leftover_in_a_source_is_a_file_like_any_other() {
    needs!(lasting(), "directories are not known again on this file system");
    for (round, flags) in FLAGS.iter().enumerate() {
        for far in [None, Some(Dir::Put), Some(Dir::Get)] {
            if far.is_none() == flags.contains("parallel") {
                continue;
            }
            let tmp = Tmp::new();
            let (src, dst) = (tmp.dir("src"), tmp.dir("dst"));
            tmp.file("dst/x", "old");
            tmp.file("src/x", noise(1, 30_000));
            tmp.dir("src/sub");
            tmp.dir("dst/sub");
            let mut random = Random(round as u64 + 1);
            for n in 0..40 {
                for dir in [&src, &src.join("sub")] {
                    let name = drawn(&mut random, dir);
                    std::fs::write(dir.join(name), noise(n, 3000)).unwrap();
                }
            }
            match far {
                None => {
                    let line = bcmr(["copy", "-T"]).args(flags.split(' ').filter(|f| *f != "-T"));
                    line.args([&src, &dst]).run().ok();
                }
                Some(way) => {
                    let flags = format!("-T {flags}");
                    way.copy(&Far::pipe(), &flags, &src, &dst).run().ok();
                }
            }
            assert_same(&src, &dst, CONTENT);
        }
    }
}

/// The same of a move, whether it is one of names or of contents.
#[test]
fn a_leftover_moves_like_any_other_file() {
    needs!(lasting(), "directories are not known again on this file system");
    let other = Tmp::elsewhere().filter(|other| keeps_identities(other.path()));
    needs!(other.is_some(), "it needs a second file system");
    for base in [Some(Tmp::new()), other].into_iter().flatten() {
        let tmp = Tmp::new();
        let (src, dst) = (tmp.dir("src"), base.dir("dst"));
        base.file("dst/x", "old");
        tmp.file("src/x", noise(1, 30_000));
        let mut random = Random(7);
        for n in 0..40 {
            let name = drawn(&mut random, &src);
            std::fs::write(src.join(name), noise(n, 3000)).unwrap();
        }
        let before = tree(&src);
        bcmr(["move", "--merge", "-T"]).args([&src, &dst]).run().ok();
        assert!(!src.exists());
        let told = differences(&before, &tree(&dst), CONTENT);
        assert!(told.is_empty(), "{told:?}");
    }
}

/// A name that the destination's own leftovers have is refused, and nothing is lost: not the source, not what is there.
#[test]
fn a_name_that_is_the_destinations_own_is_refused() {
    for verb in
        ["copy -r", "copy -rC", "copy --archive --sync", "move --merge", "move --merge, far", "put", "get"]
    {
        for suffix in SUFFIXES {
            let tmp = Tmp::new();
            let base = if verb.contains("far") { Tmp::elsewhere() } else { Some(Tmp::new()) };
            needs!(base.is_some(), "it needs a second file system");
            let Some(base) = base else { return };
            let (src, dst) = (tmp.dir("src"), base.dir("dst"));
            base.dir("dst/sub");
            tmp.file("src/x", "x");
            tmp.file("src/sub/y", "y");
            let mut theirs = Vec::new();
            for dir in ["", "sub"] {
                let name = leftover(&dst.join(dir), &"5".repeat(32), suffix);
                let at = src.join(dir).join(name.file_name().unwrap());
                std::fs::write(&at, "mine").unwrap();
                theirs.push((at, name));
                // A directory of such a name.
                let name = leftover(&dst.join(dir), &"6".repeat(32), suffix);
                let at = src.join(dir).join(name.file_name().unwrap());
                std::fs::create_dir(&at).unwrap();
                std::fs::write(at.join("inner"), "mine too").unwrap();
                theirs.push((at, name));
            }
            let run = || match verb {
                "put" => Dir::Put.copy(&Far::pipe(), "-rT", &src, &dst).run(),
                "get" => Dir::Get.copy(&Far::pipe(), "-rT", &src, &dst).run(),
                _ => {
                    let words = verb.trim_end_matches(", far").split(' ');
                    bcmr(words).args(["-T"]).args([&src, &dst]).run()
                }
            };
            for _ in 0..2 {
                let ran = run().code(8);
                for (at, name) in &theirs {
                    assert!(
                        ran.err.contains(at.file_name().unwrap().to_str().unwrap()),
                        "{verb}: {}",
                        ran.err
                    );
                    assert!(!name.exists() && at.exists(), "{verb} {suffix}");
                }
                assert!(ran.err.contains("interrupted copy"), "{}", ran.err);
                assert_eq!(std::fs::read(dst.join("x")).unwrap(), b"x", "{verb}");
                assert_eq!(std::fs::read(dst.join("sub/y")).unwrap(), b"y", "{verb}");
                if verb.starts_with("move") {
                    break;
                }
            }
        }
    }
}

/// What a killed run left is swept in every directory that is merged into, and beside single files; what only looks like
/// it stays.
#[test]
fn leftovers_are_swept_and_lookalikes_stay() {
    type Run = fn(&Tmp) -> Ran;
    let runs: [(&str, Run); 6] = [
        ("a tree", |t| bcmr(["copy", "-rT"]).args([t.p("src"), t.p("dst")]).run()),
        ("a file", |t| bcmr(["copy"]).args([t.p("src/x"), t.p("dst")]).run()),
        ("a list", |t| {
            let line = bcmr(["copy", "--files-from", "-"]).args([t.p("src"), t.p("dst")]);
            line.input("x\nsub/y\n").run()
        }),
        ("put", |t| Dir::Put.copy(&Far::pipe(), "-rT", &t.p("src"), &t.p("dst")).run()),
        ("get", |t| Dir::Get.copy(&Far::pipe(), "-rT", &t.p("src"), &t.p("dst")).run()),
        ("resumable", |t| bcmr(["copy", "-rCT"]).args([t.p("src"), t.p("dst")]).run()),
    ];
    for (what, run) in runs {
        let tmp = Tmp::new();
        tmp.file("src/x", "x");
        tmp.file("src/sub/y", "y");
        let dst = tmp.dir("dst");
        let (mut stale, mut others) = (Vec::new(), Vec::new());
        let mut random = Random(3);
        for dir in [dst.clone(), tmp.dir("dst/sub")] {
            let file = leftover(&dir, &digits(&mut random), ".stage");
            std::fs::write(&file, "half").unwrap();
            let tree = leftover(&dir, &digits(&mut random), ".stage");
            std::fs::create_dir(&tree).unwrap();
            std::fs::write(tree.join("half"), "half").unwrap();
            if what != "a file" || dir == dst {
                stale.extend([file, tree]);
            }
            if lasting() {
                let name = leftover(&tmp.p("src"), &digits(&mut random), ".stage");
                others.push(dir.join(name.file_name().unwrap()));
            }
            others.push(dir.join(format!(".bcmr-r-{}.stage", digits(&mut random))));
            others.push(dir.join(format!(".bcmr-{}.stage", digits(&mut random))));
        }
        for other in &others {
            std::fs::write(other, "theirs").unwrap();
        }
        run(&tmp).ok();
        let left: Vec<&PathBuf> = stale.iter().filter(|p| p.exists()).collect();
        assert!(left.is_empty(), "{what}: {left:?}");
        let gone: Vec<&PathBuf> = others.iter().filter(|p| !p.exists()).collect();
        assert!(gone.is_empty(), "{what}: {gone:?}");
    }
}

/// An update that is killed leaves a stage; a backup of that directory, and a move of it, are right all the same, and the
/// next update takes the stage away.
#[test]
fn a_stage_that_a_killed_run_left_harms_no_copy_of_its_directory() {
    needs!(has_tool("strace"), "it needs strace");
    needs!(lasting(), "directories are not known again on this file system");
    let mut left = 0;
    for call in
        ["fsync", "fdatasync", "renameat", "rename", "renameat2", "fchmod", "copy_file_range", "ioctl"]
    {
        let tmp = Tmp::new();
        let good = noise(1, 65_000);
        tmp.file("a/f", &good);
        tmp.file("new/f", noise(2, 65_000));
        let inject = format!("inject={call}:signal=KILL:when=1");
        let strace = Line::new(Path::new("strace")).args(["-f", "-qq", "-o", "/dev/null", "-e", &inject]);
        let killed = strace.args(by_engine([BCMR, "copy", "-q", "new/f", "a/"])).cwd(tmp.path()).run();
        if killed.code == 0 || litter(&tmp.p("a")).is_empty() {
            continue;
        }
        left += 1;
        assert_eq!(std::fs::read(tmp.p("a/f")).unwrap(), good, "{call}");
        tmp.dir("bak");
        tmp.file("bak/f", "older");
        bcmr(["copy", "--archive", "-V", "-T", "a", "bak"]).cwd(tmp.path()).run().ok();
        assert_same(&tmp.p("a"), &tmp.p("bak"), CONTENT);
        // The next run there sweeps what is its own, and nothing that was copied elsewhere.
        bcmr(["copy", "-q", "new/f", "a/"]).cwd(tmp.path()).run().ok();
        assert_no_litter(&tmp.p("a"));
        bcmr(["copy", "-q", "new/f", "bak/"]).cwd(tmp.path()).run().ok();
        assert_eq!(litter(&tmp.p("bak")).len(), 1, "{call}");
        // Back where it came from it is refused.
        let ran = bcmr(["copy", "-rT", "bak", "a"]).cwd(tmp.path()).run().code(8);
        assert!(ran.err.contains("interrupted copy"), "{}", ran.err);
        assert_no_litter(&tmp.p("a"));
        bcmr(["move", "--merge", "-T", "bak", "moved"]).cwd(tmp.path()).run().ok();
        assert_eq!(std::fs::read(tmp.p("moved/f")).unwrap(), noise(2, 65_000));
    }
    assert!(left >= 2, "no run was killed with a stage: {left}");
}

/// A file that was begun with a session and then finished without one, or became small, leaves neither session nor stage.
#[test]
fn a_file_that_is_finished_another_way_leaves_no_session() {
    let again: [(&str, &str, usize); 5] = [
        ("without -C", "copy src out/", 20 << 20),
        ("without -C, a tree", "copy -rT . ../out", 20 << 20),
        ("smaller than a checkpoint", "copy -C --checkpoint-size 4M src out/", 1000),
        ("empty", "copy -C --checkpoint-size 4M src out/", 0),
        ("linked", "copy --archive -C --checkpoint-size 4M src also out/", 20 << 20),
    ];
    for (what, words, size) in again {
        let tmp = Tmp::on_disk();
        tmp.file("in/src", noise(1, 20 << 20));
        tmp.dir("in/out");
        let stop = "ulimit -c 0; ulimit -f 24576";
        let begun = bcmr_after(stop, ["copy", "-C", "--checkpoint-size", "4M", "src", "out/"]);
        begun.cwd(&tmp.p("in")).run().code(6);
        assert_eq!(litter(&tmp.p("in/out")).len(), 2, "{what}");
        // A session that belongs to another file stays whatever is done: it says that it is of another name.
        let other = leftover_of(&tmp.p("in/out"), b"other", ".session");
        std::fs::copy(leftover_of(&tmp.p("in/out"), b"src", ".session"), &other).unwrap();
        tmp.file("in/other", "other");
        std::fs::write(tmp.p("in/src"), noise(2, size)).unwrap();
        if what == "linked" {
            std::fs::hard_link(tmp.p("in/src"), tmp.p("in/also")).unwrap();
        }
        if words.contains("../out") {
            std::fs::rename(tmp.p("in/out"), tmp.p("out")).unwrap();
        }
        bcmr(words.split(' ')).cwd(&tmp.p("in")).run().ok();
        let out = if words.contains("../out") { tmp.p("out") } else { tmp.p("in/out") };
        assert_eq!(std::fs::read(out.join("src")).unwrap(), noise(2, size), "{what}");
        let left: Vec<_> = litter(&out);
        let other = other.file_name().unwrap().to_owned();
        assert_eq!(left, [other], "{what}");
    }
}

// ---- one name from two sources ----

/// How two directories of one name are put into one.
const MERGES: [&str; 9] = [
    "copy -r",
    "copy -r -C",
    "copy --archive --sync",
    "copy -r --inplace",
    "copy -r --update=older",
    "move --merge",
    "move --merge, far",
    "put",
    "get",
];

fn merged(verb: &str, sources: &[PathBuf], dst: &Path) -> Ran {
    let far = Far::pipe();
    match verb {
        "put" => far.bcmr("copy").args(["-r"]).args(sources).args([far.at(dst)]).run(),
        "get" => {
            let sources = sources.iter().map(|s| far.at(s));
            far.bcmr("copy").args(["-r"]).args(sources).args([dst]).run()
        }
        _ => bcmr(verb.trim_end_matches(", far").split(' ')).args(sources).args([dst]).run(),
    }
}

/// Of two sources that become one name the first has it, at any depth; the second is refused by both their names, and what
/// is moved stays.
#[test]
fn no_file_replaces_what_the_same_run_has_put_there() {
    for (n, verb) in MERGES.into_iter().enumerate() {
        for there in [false, true] {
            // An ordinary run tries each verb with one of the two; `--update=older` where something is there.
            if !in_slice(n + usize::from(there) + 1, 2) {
                continue;
            }
            let tmp = Tmp::new();
            let base = if verb.contains("far") { Tmp::elsewhere() } else { Some(Tmp::new()) };
            needs!(base.is_some(), "it needs a second file system");
            let Some(base) = base else { return };
            let dst = base.dir("b");
            if there {
                let old =
                    std::fs::File::options().write(true).open(base.file("b/D/sub/deep", "old")).unwrap();
                old.set_modified(std::time::UNIX_EPOCH).unwrap();
            }
            for card in ["c1", "c2"] {
                for (name, len) in [("img", 3000), ("sub/deep", 5000), ("sub/big", 5 << 20)] {
                    tmp.file(
                        format!("{card}/D/{name}"),
                        noise(card.len() as u64 + u64::from(card == "c2"), len),
                    );
                }
                tmp.file(format!("{card}/D/only-{card}"), card);
                std::os::unix::fs::symlink(card, tmp.p(format!("{card}/D/link"))).unwrap();
            }
            let (one, two) = (tree(&tmp.p("c1/D")), tree(&tmp.p("c2/D")));
            let ran = merged(verb, &[tmp.p("c1/D"), tmp.p("c2/D")], &dst).code(8);
            for name in ["img", "sub/deep", "sub/big", "link"] {
                let said = |card: &str| ran.err.contains(tmp.p(card).join("D").join(name).to_str().unwrap());
                assert!(said("c1") && said("c2"), "{verb} {there}: {name}: {}", ran.err);
            }
            let mut got = tree(&dst.join("D"));
            assert!(got.remove(&b"only-c2"[..]).is_some(), "{verb} {there}: what is in one of them is there");
            // The tree is not complete, so it stays marked.
            got.retain(|name, _| !verb.contains("-C") || !name.ends_with(b".tree"));
            let told = differences(&one, &got, CONTENT);
            assert!(told.is_empty(), "{verb} {there}: {told:?}");
            if verb.starts_with("move") {
                assert!(!tmp.p("c1/D").exists(), "{verb} {there}");
                let (mut want, left) = (two, tree(&tmp.p("c2/D")));
                want.remove(&b"only-c2"[..]);
                let told = differences(&want, &left, CONTENT);
                assert!(told.is_empty(), "{verb} {there}: {told:?}");
            }
        }
        // The twin: nothing in common, nothing refused.
        let tmp = Tmp::new();
        let base = if verb.contains("far") { Tmp::elsewhere() } else { Some(Tmp::new()) };
        needs!(base.is_some(), "it needs a second file system");
        let Some(base) = base else { return };
        tmp.file("c1/D/sub/a", "a");
        tmp.file("c2/D/sub/b", "b");
        merged(verb, &[tmp.p("c1/D"), tmp.p("c2/D")], &base.dir("b")).ok();
        assert!(base.p("b/D/sub/a").exists() && base.p("b/D/sub/b").exists(), "{verb}");
    }
}

fn files_of(ran: &Ran) -> u64 {
    let last = ran.out.lines().last().unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_str(last).unwrap();
    summary["files"].as_u64().unwrap_or_else(|| panic!("{last}"))
}

/// The very same source is copied once, however often and in whatever spelling it is named, and nothing is said.
#[test]
fn the_very_same_source_is_copied_once() {
    let tmp = Tmp::new();
    tmp.file("src/f", noise(1, 6 << 20));
    tmp.file("src/sub/g", noise(2, 100));
    tmp.file("src/sub/deep/h", noise(3, 100));
    let src = tmp.p("src");
    let list = "f\n./f\nsub//g\nsub/g\nsub\nsub/./deep/h\nsub/deep\nsub/\n".to_owned() + &"f\n".repeat(40);
    for way in [None, Some(Dir::Put), Some(Dir::Get)] {
        for flags in ["-r", "-r --archive", "-r -C", "-r -j8"] {
            if way.is_some() && flags.contains("-j") {
                continue;
            }
            let dst = tmp.p(format!("out{way:?}{flags}"));
            let flags = format!("{flags} --json --files-from -");
            // The other machine is there until the line has run.
            let far = Far::pipe();
            let line = match way {
                None => bcmr(["copy"]).args(flags.split(' ')).args([&src, &dst]),
                Some(way) => way.copy(&far, &flags, &src, &dst),
            };
            let ran = line.input(&list).run().ok();
            assert_eq!((files_of(&ran), ran.err.as_str()), (3, ""), "{way:?} {flags}");
            assert_same(&src, &dst, CONTENT);
            assert_no_litter(&dst);
        }
    }
    // Operands, files and directories.
    for verb in MERGES {
        if verb.contains("far") {
            continue;
        }
        let dst = tmp.dir(format!("operands{verb}"));
        tmp.file("again/D/x", "x");
        tmp.file("again/y", "y");
        let [d, y] = [tmp.p("again/D"), tmp.p("again/y")];
        let same = tmp.p("again/./D/");
        merged(verb, &[d.clone(), y.clone(), same, y], &dst).ok();
        assert_eq!(std::fs::read(dst.join("D/x")).unwrap(), b"x", "{verb}");
        assert_eq!(std::fs::read(dst.join("y")).unwrap(), b"y", "{verb}");
    }
}

/// Operands that are the same file's name are told by both names.
#[test]
fn two_files_of_one_name_are_told_by_both_names() {
    for verb in ["copy -r", "move", "put", "get"] {
        let tmp = Tmp::new();
        let (one, two, dst) = (tmp.file("c1/f", "1"), tmp.file("c2/f", "2"), tmp.dir("b"));
        let ran = merged(verb, &[one.clone(), two.clone()], &dst).code(8);
        for path in [&one, &two] {
            assert!(ran.err.contains(path.to_str().unwrap()), "{verb}: {}", ran.err);
        }
        assert_eq!(std::fs::read(dst.join("f")).unwrap(), b"1", "{verb}");
        assert!(two.exists());
        // Met as a name in a directory as well.
        let ran = bcmr(["copy", "-r"]).args([tmp.p("c2/."), two]).args([tmp.dir("w")]).run().ok();
        assert_eq!(ran.err, "");
        tmp.file("c3/f", "3");
        let ran =
            bcmr(["copy", "-r"]).args([tmp.p("c2/."), tmp.p("c3/.")]).args([tmp.dir("v")]).run().code(8);
        assert!(ran.err.contains("c2/./f") && ran.err.contains("c3/./f"), "{}", ran.err);
    }
}
