//! Plans of every verb whose processes are killed, at whatever call: the same commands come to the same end, and what is seen
//! meanwhile is whole. And ends of one plan that run at the same time.
//!
//! Must not know how a shard is done.

use super::common::*;
use super::plan::Site;
use rustix::process::Signal;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// Calls that change something, or make it last.
const CALLS: &str =
    "mkdirat,linkat,symlinkat,renameat,renameat2,unlinkat,pwrite64,write,fchmod,fsync,fdatasync,syncfs";
const OLD: &str = "the old content";
/// What is seen of a destination: each file's content.
type Contents = BTreeMap<PathBuf, Vec<u8>>;

/// A source with some of everything, and for all verbs but a removal a destination that differs from it.
fn prepared(verb: &str, flags: &str) -> Site {
    let site = Site::new();
    for (name, content) in [("a", "one"), ("d/b", "two"), ("d/e/c", "three"), ("z/y", "five")] {
        site.tmp.file(format!("src/{name}"), content);
    }
    for n in 0..9 {
        site.tmp.file(format!("src/many/{n}"), n.to_string());
    }
    site.tmp.file("src/z/large", noise(3, 9 << 20));
    site.tmp.dir("src/empty/in");
    fs::hard_link(site.p("src/d/e/c"), site.p("src/z/c again")).unwrap();
    symlink("../a", site.p("src/d/link")).unwrap();
    chmod(&site.p("src/d/e"), 0o1711);
    if matches!(verb, "sync" | "check") {
        site.run("copy -q -r --archive src dst").ok();
        for name in ["a", "d/b"] {
            site.tmp.file(format!("dst/{name}"), OLD);
        }
        site.tmp.file("dst/d/own/deep", "only there");
        fs::remove_dir_all(site.p("dst/many")).unwrap();
    }
    site.tmp.file("beside", "stays");
    site.run(&format!("plan --verb {verb} {flags}--out p --shards 2")).ok();
    site
}

fn contents(site: &Site, name: &str) -> Contents {
    let top = site.p(name);
    if !top.exists() {
        return Contents::new();
    }
    let files = tree(&top).into_iter().filter(|(_, entry)| entry.kind.is_file());
    let read = files.map(|(path, _)| {
        let path = top.join(OsString::from_vec(path));
        let content = fs::read(&path).unwrap();
        (path, content)
    });
    read.collect()
}

/// What must be so at any time.
fn judge_killed(site: &Site, verb: &str, at: usize) {
    assert!(site.p("beside").exists(), "killed at {at}");
    match verb {
        // It is there when it is whole.
        "copy" if !site.p("dst").exists() => {}
        "copy" => assert_same(&site.p("src"), &site.p("dst"), EVERYTHING),
        "sync" => {
            for (path, content) in contents(site, "dst") {
                let source = site.p("src").join(path.strip_prefix(site.p("dst")).unwrap());
                let is_new = fs::read(&source).is_ok_and(|new| new == content);
                let is_old = content == OLD.as_bytes() || path.ends_with("own/deep");
                let is_stage =
                    path.components().any(|part| part.as_os_str().as_bytes().starts_with(b".bcmr"));
                assert!(is_new || is_old || is_stage, "killed at {at}: {path:?} is half a file");
            }
        }
        _ => {}
    }
}

/// The same commands again, and what must be so then.
fn judge_end(site: &Site, verb: &str, before: &Contents) {
    site.run("shard p --all").ok();
    let end = site.run("finish p").one_of(&[0, i32::from(verb == "check")]);
    // A claim that was being made when its process died counts for nothing, and goes with the plan.
    for claim in fs::read_dir(site.p("p/claims")).unwrap() {
        fs::remove_file(claim.unwrap().path()).unwrap();
    }
    match verb {
        "copy" | "sync" => site.judge("dst"),
        "check" => {
            assert_eq!(end.code, 1, "{}", end.err);
            assert!(&contents(site, "dst") == before, "a comparison has changed something");
        }
        _ => assert!(!site.p("src").exists(), "{}", end.err),
    }
    assert!(site.p("beside").exists());
    if verb == "check" {
        site.run("finish p").one_of(&[1]);
    } else {
        site.run("finish p").ok().says("is finished");
    }
    assert_no_litter(site.tmp.path());
}

const VERBS: [(&str, &str); 4] = [
    ("copy", "--part-size 4M src dst "),
    ("sync", "--delete --max-delete=100% src dst "),
    ("check", "src dst "),
    ("remove", "src "),
];

fn killed_at(site: &Site, at: usize, words: &str) -> Ran {
    bcmr_killed_at(at, CALLS).args(words.split(' ')).cwd(site.tmp.path()).run()
}

#[test]
fn a_shard_of_any_verb_is_killed_at_any_call() {
    needs!(has_tool("strace"), "there is no strace");
    for (verb, flags) in VERBS {
        // An odd step, so that the records are cut at some.
        until_not_killed(400, 17, |at| {
            let site = prepared(verb, flags);
            let before = contents(&site, "dst");
            let ran = killed_at(&site, at, "shard p --all -j1");
            judge_killed(&site, verb, at);
            // A power cut may keep what was copied, and not yet the file that its record was to be written to.
            if at % 2 == 0 {
                for left in fs::read_dir(site.p("p/results")).unwrap().map(|left| left.unwrap().path()) {
                    if left.extension().is_some_and(|end| end == "part") {
                        fs::remove_file(left).unwrap();
                    }
                }
            }
            judge_end(&site, verb, &before);
            ran
        });
    }
}

#[test]
fn the_end_of_any_verb_is_killed_at_any_call() {
    needs!(has_tool("strace"), "there is no strace");
    for (verb, flags) in VERBS {
        until_not_killed(400, 11, |at| {
            let site = prepared(verb, flags);
            let before = contents(&site, "dst");
            site.run("shard p --all").ok();
            let ran = killed_at(&site, at, "finish p");
            judge_killed(&site, verb, at);
            judge_end(&site, verb, &before);
            // That of a comparison that found something is 1.
            let mut ran = ran;
            ran.code -= i32::from(verb == "check" && ran.code == 1);
            ran
        });
    }
}

/// A file that a shard was filling under its own name when the machine went down, and of which no record has stayed.
/// A run that is killed before its claim has its name, and a result that was begun, leave nothing in the plan.
#[test]
fn the_end_takes_away_what_killed_runs_have_left_in_the_plan() {
    needs!(has_tool("strace"), "there is no strace");
    let site = Site::new();
    site.tmp.file("src/a", "one");
    site.run("plan src dst --out p --shards 2").ok();
    // The first such call gives a claim its name.
    let killed = bcmr_killed_at(1, "renameat2").args(["shard", "p", "0"]).cwd(site.tmp.path());
    killed.run().code(1009);
    assert_eq!(litter(&site.p("p/claims")).len(), 1);
    site.run("shard p --all").ok();
    site.tmp.file("p/results/1.0123456789abcdef01234567.part", "begun");
    site.run("finish p").ok();
    assert_eq!(names(&site.p("p/claims")), [""; 0]);
    assert_eq!(names(&site.p("p/results")), ["0", "1"]);
    assert_same(&site.p("src"), &site.p("dst"), EVERYTHING);
}

/// What has the name of a further name of a file is replaced at its end, and nothing of that is left: neither where it cannot be, nor
/// of an end that is killed in between.
#[test]
fn the_end_of_a_sync_leaves_nothing_of_what_it_replaces() {
    needs!(has_tool("strace"), "there is no strace");
    let site = Site::new();
    site.tmp.file("src/a", "one");
    fs::hard_link(site.p("src/a"), site.p("src/b")).unwrap();
    site.tmp.file("dst/b/in it", "only there");
    site.run("plan --verb sync src dst --out p --shards 1").ok();
    site.run("shard p 0").ok();
    for _ in 0..2 {
        site.run("finish p").code(1).says("dst/b");
        assert_eq!(names(&site.p("dst")), ["a", "b"]);
    }
    fs::remove_dir_all(site.p("dst/b")).unwrap();
    site.tmp.file("dst/b", "another file");
    let was_left = Cell::new(false);
    until_not_killed(20, 1, |at| {
        let calls = "renameat";
        let ran = bcmr_killed_at(at, calls).args(["finish", "p"]).cwd(site.tmp.path()).run();
        if !litter(&site.p("dst")).is_empty() {
            was_left.set(true);
            site.run("finish p").ok();
            assert_no_litter(&site.p("dst"));
            fs::remove_file(site.p("p/receipt")).unwrap();
            fs::remove_file(site.p("dst/b")).unwrap();
            site.tmp.file("dst/b", "another file");
        }
        ran
    });
    assert!(was_left.get(), "no end was killed before the rename");
    assert_no_litter(&site.p("dst"));
    // An empty directory makes way.
    fs::remove_file(site.p("p/receipt")).unwrap();
    fs::remove_file(site.p("dst/b")).unwrap();
    fs::create_dir(site.p("dst/b")).unwrap();
    site.run("finish p").ok();
    assert_same(&site.p("src"), &site.p("dst"), EVERYTHING);
    assert_no_litter(site.tmp.path());
}

#[test]
fn half_a_file_without_a_record_is_copied_again() {
    let site = prepared("copy", "src dst ");
    site.run("shard p --all").ok();
    let stage = fs::read_dir(site.tmp.path()).unwrap().map(|entry| entry.unwrap().path());
    let stage = stage.into_iter().find(|path| path.extension().is_some_and(|end| end == "plan")).unwrap();
    fs::write(stage.join("d/b"), "t").unwrap();
    fs::write(stage.join("many/3"), "").unwrap();
    for shard in ["0", "1"] {
        fs::remove_file(site.p("p/results").join(shard)).unwrap();
    }
    judge_end(&site, "copy", &Contents::new());
}

/// So many directories that what the end says of each does not fit into a pipe: it stands still in the middle.
fn directories(site: &Site) {
    for n in 0..1000 {
        site.tmp.dir(format!("src/a name that is long enough to fill a pipe with not too many of them {n}"));
    }
    site.tmp.file("src/file", "x");
}

/// While one end stands still in the middle, no other one does anything, nor does a shard.
#[track_caller]
fn nobody_else_comes_in(site: &Site, shard: &str) {
    site.run("finish p").code(8).says("the plan is being finished");
    fs::remove_file(site.p("p/results/0")).unwrap();
    site.run(shard).code(8).says("the plan is being finished");
}

#[test]
fn a_second_end_of_a_copy_leaves_the_first_alone() {
    let site = Site::new();
    directories(&site);
    site.run("plan src dst --out p --shards 1").ok();
    site.run("shard p 0").ok();
    // Directories that are newer than the plan are told of, each when it gets what its source has.
    for dir in fs::read_dir(site.p("src")).unwrap().map(|dir| dir.unwrap().path()).filter(|dir| dir.is_dir())
    {
        fs::File::open(dir).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    let source = fs::read(site.p("p/results/0")).unwrap();
    let mut first = site.line("finish p").start();
    first.hear_errors(1);
    nobody_else_comes_in(&site, "shard p 0");
    assert!(!site.p("dst").exists());
    fs::write(site.p("p/results/0"), source).unwrap();
    first.wait().ok();
    site.judge("dst");
}

#[test]
fn a_second_end_of_a_removal_leaves_the_first_alone() {
    let site = Site::new();
    directories(&site);
    site.run("plan --verb remove src --out p --shards 1").ok();
    site.run("shard p 0").ok();
    let mut first = site.line("finish p -v").start();
    first.hear(1);
    nobody_else_comes_in(&site, "shard p 0");
    // One that is killed holds nothing any more.
    first.signal(Signal::KILL);
    first.wait().code(1009);
    assert!(site.p("src").exists());
    site.run("shard p 0").ok();
    site.run("finish p").ok();
    assert!(!site.p("src").exists());
}
