//! A copy in shards: whatever the order, the number of processes and what was killed, the published tree is the source, and
//! until then nothing of it is seen.
//!
//! Must not know how a shard is copied.

use super::common::maker::{self, Maker};
use super::common::remote::Far;
use super::common::*;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A place with a source, a plan and a destination.
pub struct Site {
    pub tmp: Tmp,
}

impl Site {
    pub fn new() -> Site {
        Site { tmp: Tmp::new() }
    }

    pub fn p(&self, name: &str) -> PathBuf {
        self.tmp.p(name)
    }

    pub fn line(&self, words: &str) -> Line {
        bcmr(words.split(' ')).cwd(self.tmp.path())
    }

    pub fn run(&self, words: &str) -> Ran {
        self.line(words).run()
    }

    /// All shards of the plan `p`, and its end.
    pub fn shards(&self, plan: &str, order: impl IntoIterator<Item = u32>) {
        for shard in order {
            self.run(&format!("shard {plan} {shard}")).ok();
        }
    }

    /// A plan's command, with what leads to the other machine.
    pub fn over(&self, far: &Far, verb: &str, words: &str) -> Line {
        far.bcmr(verb).args(words.split_whitespace()).cwd(self.tmp.path())
    }

    /// The tree that shards fill.
    pub fn stage(&self) -> PathBuf {
        let mut all = std::fs::read_dir(self.tmp.path()).unwrap().map(|entry| entry.unwrap().path());
        all.find(|path| path.extension().is_some_and(|end| end == "plan")).unwrap()
    }

    /// Kills the shards of the plan `p`, or its end, at the `nth` of `calls`, wherever that is made; looks at what is there
    /// then, and does all of it once more.
    pub fn killed_and_done(
        &self,
        far: &Far,
        verb: &str,
        (calls, nth): (&str, usize),
        look: impl FnOnce(),
    ) -> Ran {
        let words: &[&str] = if verb == "shard" { &["shard", "p", "--all", "-j1"] } else { &[verb, "p"] };
        if verb == "finish" {
            self.over(far, "shard", "p --all").run().ok();
        }
        let ran = far.lead(bcmr_killed_at(nth, calls).args(words)).cwd(self.tmp.path()).run();
        look();
        self.over(far, "shard", "p --all").run().ok();
        self.over(far, "finish", "p").run().ok();
        ran
    }

    /// What killed processes hold at the shards of the plan `p` is no litter.
    pub fn drop_claims(&self) {
        for claim in std::fs::read_dir(self.p("p/claims")).unwrap() {
            std::fs::remove_file(claim.unwrap().path()).unwrap();
        }
    }

    #[track_caller]
    pub fn judge(&self, dst: &str) {
        assert_same(&self.p("src"), &self.p(dst), EVERYTHING);
        match rsync_would(&self.p("src"), &self.p(dst)) {
            Some(said) => assert_eq!(said, "", "rsync would change something"),
            None => skipped("the judge of plans", "there is no rsync"),
        }
        assert_no_litter(self.tmp.path());
    }
}

pub fn root_of(ran: &Ran) -> String {
    let root = ran.out.lines().find_map(|line| line.strip_prefix("root "));
    root.unwrap_or_else(|| panic!("no root: {}", ran.out)).to_owned()
}

/// A little of everything, in a few directories: two names of one file far apart, empty directories first and last, a file
/// that is cut into parts with a hole in it.
pub fn mixed(site: &Site) {
    let src = site.tmp.dir("src");
    for (name, content) in
        [("a", "one"), ("d/b", "two"), ("d/e/c", "three"), ("d-x", "four"), ("z/y", "five")]
    {
        site.tmp.file(format!("src/{name}"), content);
    }
    for dir in ["src/0empty", "src/d/m/empty", "src/zz/empty", "src/d/e/q"] {
        site.tmp.dir(dir);
    }
    std::fs::hard_link(src.join("a"), src.join("z/name of a")).unwrap();
    std::fs::hard_link(src.join("d/e/c"), src.join("c again")).unwrap();
    symlink("../nowhere", src.join("d/link")).unwrap();
    std::fs::hard_link(src.join("d/link"), src.join("z/link")).unwrap();
    mkfifo(&src.join("d/fifo"));
    let mut big = noise(4, 13 << 20);
    big[5 << 20..10 << 20].fill(0);
    site.tmp.file("src/z/big", &big);
    chmod(&src.join("z/big"), 0o4551);
    let sparse = std::fs::File::create(src.join("sparse")).unwrap();
    sparse.set_len(21 << 20).unwrap();
    chmod(&src.join("d/e"), 0o1711);
    chmod(&src.join("z"), 0o2755);
    chmod(&src, 0o750);
}

#[test]
fn shards_in_any_order_are_the_source_and_one_root() {
    let site = Site::new();
    mixed(&site);
    let ran = site.run("plan src one --out p1 --shards 1").ok();
    assert!(ran.out.contains("1 shard: 7 files"), "{}", ran.out);
    site.shards("p1", [0]);
    let root = root_of(&site.run("finish p1").ok());
    site.judge("one");
    site.run("plan src many --out p --shards 5 --part-size 4M").ok();
    assert!(!site.p("many").exists());
    site.shards("p", [3, 0, 4, 2, 1]);
    assert!(!site.p("many").exists(), "published before it was finished");
    // Once more is harmless.
    site.shards("p", [2]);
    let ran = site.run("finish p").ok();
    site.judge("many");
    assert_eq!(root_of(&ran), root, "the hash of everything depends on the shards");
    let receipt = std::fs::read_to_string(site.p("p/receipt")).unwrap();
    assert!(
        receipt.contains(&format!("root {root}\nfiles 7\n")) && receipt.ends_with("lost 0\n"),
        "{receipt}"
    );
    site.run("check --manifest p/manifest many").ok();
    let manifest = std::fs::read_to_string(site.p("p/manifest")).unwrap();
    assert_eq!(manifest.lines().count(), 7, "{manifest}");
    // Asked again, it says so and changes nothing.
    site.run("finish p").ok().says("the plan is finished");
    site.run("shard p 1").ok();
    site.judge("many");
}

#[test]
fn random_trees_in_shards() {
    for seed in 0..if all_cases() { 40 } else { 2 } {
        let site = Site::new();
        let can = maker::can(site.tmp.path(), (-1 << 40, 1 << 40), 1 << 14);
        let src = site.p("src");
        let mut maker = Maker::new(seed, can, &src);
        maker.make(150);
        maker.age();
        site.run("plan src dst --out p --shards 6").ok();
        site.shards("p", 0..6);
        site.run("finish p").one_of(&[0, 1]);
        maker::judge(seed, "in shards", &src, &site.p("dst"));
        assert_no_litter(site.tmp.path());
    }
}

/// The files of a plan that say what its shards do.
fn shards_of(dir: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let files = names(dir).into_iter().filter(|name| name.as_bytes().starts_with(b"shard-"));
    files.map(|name| (name.clone(), std::fs::read(dir.join(name)).unwrap())).collect()
}

#[test]
fn the_same_tree_gives_the_same_plan() {
    let site = Site::new();
    mixed(&site);
    for n in 0..3000 {
        site.tmp.file(format!("src/many/{}/{n}", n % 7), "");
    }
    site.run("plan src dst --out p1 --shards 9 -j 1").ok();
    site.run("plan src dst --out p2 --shards 9 -j 8").ok();
    let one = shards_of(&site.p("p1"));
    assert_eq!(one.len(), 9);
    assert_eq!(one, shards_of(&site.p("p2")));
    site.run("plan src dst --out p3 --shards 8").ok();
    assert_ne!(one, shards_of(&site.p("p3")));
    site.run("plan src dst --out p1").code(1).says("a plan is there already");
    // No two plans are one, but a `plan` that was killed before its end and is run again makes the one that it was making.
    let number = std::fs::read(site.p("p1/number")).unwrap();
    assert_ne!(number, std::fs::read(site.p("p2/number")).unwrap());
    let plan = std::fs::read(site.p("p1/plan")).unwrap();
    std::fs::remove_file(site.p("p1/plan")).unwrap();
    let trees = names(site.tmp.path());
    site.run("plan src dst --out p1 --shards 9").ok();
    assert!(std::fs::read(site.p("p1/plan")).unwrap() == plan);
    assert_eq!(
        names(site.tmp.path()),
        trees,
        "the tree of the plan that was killed is the one that is filled"
    );
}

/// Two plans of one tree, cut alike: each has a tree of its own, so that none is published half full, and none is written into
/// once it has its name.
#[test]
fn two_plans_of_one_tree_fill_two_trees() {
    let site = Site::new();
    site.tmp.file("src/big", noise(3, 9 << 20));
    site.tmp.file("src/small", "one");
    for plan in ["p1", "p2"] {
        site.run(&format!("plan src dst --out {plan} --shards 4 --part-size 4M")).ok();
    }
    site.run("shard p1 --all").ok();
    site.run("finish p1").ok();
    let before = tree(&site.p("dst"));
    site.run("shard p2 --all").ok();
    assert_eq!(differences(&before, &tree(&site.p("dst")), EVERYTHING), [""; 0]);
    site.run("finish p2").code(1).says("it is there already");
    site.run("sessions --clean .").ok();
    site.judge("dst");
    // The tree of a plan is gone, and the same plan is made again: the results of the first one are not of what is there.
    std::fs::remove_dir_all(site.p("dst")).unwrap();
    for plan in ["q1", "q2"] {
        site.run(&format!("plan src dst --out {plan} --shards 4 --part-size 4M")).ok();
        let which = if plan == "q1" { "--all" } else { "0" };
        site.run(&format!("shard {plan} {which}")).ok();
        if plan == "q1" {
            site.run("sessions --clean .").ok();
        }
    }
    site.run("finish q1").code(1).says("gone");
    assert!(!site.p("dst").exists());
    site.run("shard q2 --all").ok();
    site.run("finish q2").ok();
    site.judge("dst");
}

#[test]
fn without_every_result_nothing_is_changed() {
    let site = Site::new();
    mixed(&site);
    site.run("plan src dst --out p --shards 4").ok();
    site.run("finish p").code(1).says("0 1 2 3");
    site.shards("p", [0, 2]);
    let before = tree(site.tmp.path());
    site.run("finish p").code(1).says("1 3");
    // But for the time at which it claimed the plan.
    let exact = Exact { times: false, ..EVERYTHING };
    assert_eq!(differences(&before, &tree(site.tmp.path()), exact), [""; 0]);
    let status = site.run("plan --status p").ok().out;
    assert!(status.contains("2 of 4 shards are done, 0 at work"), "{status}");
    site.run("shard p 4").code(2).says("the last one is 3");
    site.shards("p", [1, 3]);
    site.run("finish p").ok();
    assert!(
        site.run("plan --status p")
            .ok()
            .out
            .contains("4 of 4 shards are done, 0 at work; the plan is finished")
    );
    site.judge("dst");
}

/// So many files that their names do not fit into a pipe: a shard that tells of each stands still in the middle.
fn very_many(site: &Site, files: usize) {
    for n in 0..files {
        let name =
            format!("src/d{}/a name that is long enough to fill a pipe with not too many of them {n}", n % 3);
        site.tmp.file(name, n.to_string());
    }
}

#[test]
fn a_killed_shard_goes_on_and_its_claim_is_free() {
    let site = Site::new();
    very_many(&site, 2500);
    site.run("plan src dst --out p --shards 2").ok();
    let mut stuck = site.line("shard p --next -v").start();
    stuck.hear(1);
    let status = site.run("plan --status p").ok().out;
    assert!(status.contains("0 of 2 shards are done, 1 at work"), "{status}");
    // Another process does the other one, and then there is none that it could do.
    site.run("shard p --next").ok();
    site.run("shard p --next").code(1).says("every shard is done or is being worked at");
    let said = site.run("finish p").code(8).err;
    let at = [0, 1].into_iter().find(|n| said.contains(&format!("shard {n} is being worked at")));
    stuck.signal(Signal::KILL);
    stuck.wait().code(1009);
    site.run("finish p").code(1).says(&format!("shards {}", at.unwrap_or_else(|| panic!("{said}"))));
    site.run("shard p --all").ok();
    site.run("finish p").ok();
    site.judge("dst");
}

/// What was recorded before a stop is not copied again.
#[test]
fn an_interrupted_shard_keeps_what_it_recorded() {
    let site = Site::new();
    very_many(&site, 6000);
    site.run("plan src dst --out p --shards 1").ok();
    let mut stuck = site.line("shard p 0 -v").start();
    // Behind the first frame, which is recorded as soon as the stop is seen.
    stuck.hear(4200);
    stuck.interrupt();
    stuck.wait().code(130);
    site.run("finish p").code(1);
    let again = site.run("shard p 0 --json").ok().out;
    let summary = again.lines().last().unwrap();
    let number = |name: &str| -> u64 {
        let rest = summary.split(&format!("\"{name}\":")).nth(1).unwrap();
        rest.split([',', '}']).next().unwrap().parse().unwrap()
    };
    // Three directories are in it as well.
    let (kept, copied) = (number("kept"), number("files"));
    assert!(kept > 1000 && kept + copied == 6003, "{summary}");
    site.run("finish p").ok();
    site.judge("dst");
}

/// How often a directory is read while a command runs.
fn listings(site: &Site, words: &str) -> usize {
    let strace =
        ["-f", "--seccomp-bpf", "-qq", "-o", "calls", "-e", "signal=none", "-e", "trace=getdents64", BCMR];
    let args = strace.into_iter().chain(words.split(' '));
    Line::new(Path::new("strace")).args(args).cwd(site.tmp.path()).run().ok();
    let calls = std::fs::read_to_string(site.p("calls")).unwrap();
    std::fs::remove_file(site.p("calls")).unwrap();
    calls.matches("getdents64(").count()
}

/// A list that comes back to a directory, and a shard of a directory of which much is there already.
#[test]
fn a_huge_directory_is_not_listed_again_for_each_chunk() {
    needs!(has_tool("strace"), "there is no strace");
    let site = Site::new();
    let mut list = String::new();
    let dir = site.tmp.dir("src/d");
    // More names than are under way at a time.
    for n in 0..8300 {
        std::fs::File::create(dir.join(n.to_string())).unwrap();
        list += &format!("d/{n}\n");
    }
    site.tmp.file("list", &list);
    site.tmp.file("to/d/other", "y");
    let calls = listings(&site, "copy -r --files-from list src to");
    assert_eq!(std::fs::read_dir(site.p("to/d")).unwrap().count(), 8301);
    assert_eq!(names(&site.p("to")), ["d"]);
    std::fs::remove_dir_all(site.p("to")).unwrap();
    // The target and its directory, each to its end, which takes two calls.
    assert!(calls <= 2 * 2, "{calls} for two directories");
    // The same for shards: of the first half of a tree and of the second, of which the directory is half full.
    site.run("plan src dst --out p --shards 2").ok();
    let calls = [listings(&site, "shard p 0"), listings(&site, "shard p 1")];
    // The plan's own directories of claims and results, and nothing that is copied.
    assert!(calls.iter().all(|calls| *calls <= 8), "{calls:?}");
    site.run("finish p").ok();
    site.judge("dst");
}

/// A directory whose owner may not write in it, with more names than one frame has, in several shards.
#[test]
fn a_directory_without_rights_is_filled_by_frames_and_shards() {
    needs!(is_root(), "only root acts as another user");
    let tmp = Tmp::for_others();
    // So many files take a disk far longer than memory.
    let memory = if all_cases() { None } else { Mount::tmpfs("mode=777", &tmp.p("memory")).ok() };
    let top = memory.as_ref().map_or(tmp.path(), Mount::path);
    let (src, dst) = (top.join("src"), top.join("dst"));
    std::fs::create_dir_all(src.join("d")).unwrap();
    for n in 0..4200 {
        std::fs::File::create(src.join("d").join(n.to_string())).unwrap();
    }
    chmod(&src.join("d"), 0o555);
    let done = Command::new("chown").args(["-R", &format!("{NOBODY}:{NOBODY}")]).arg(&src).status();
    assert!(done.unwrap().success());
    for words in ["plan src dst --out p --shards 3", "shard p --all", "finish p"] {
        bcmr_as(NOBODY, &tmp, words.split(' ')).cwd(top).run().ok();
    }
    assert_same(&src, &dst, EVERYTHING);
    assert_no_litter(top);
}

#[test]
fn one_shard_in_two_places_at_once() {
    let site = Site::new();
    very_many(&site, 2500);
    site.tmp.file("src/big", noise(1, 9 << 20));
    site.run("plan src dst --out p --shards 2 --part-size 4M").ok();
    for shard in 0..2 {
        let mut both = [0, 1].map(|_| site.line(&format!("shard p {shard} -v")).start());
        for one in &mut both {
            one.hear(1);
        }
        for one in both {
            one.wait().ok();
        }
    }
    site.run("finish p").ok();
    site.judge("dst");
}

#[test]
fn workers_that_take_the_next_shard_do_each_once() {
    let site = Site::new();
    very_many(&site, 300);
    site.run("plan src dst --out p --shards 20").ok();
    let loops = "n=0; while \"$0\" shard p --next; do n=$((n+1)); done 2>/dev/null; echo $n";
    let worker = || Line::new(Path::new("sh")).args(["-c", loops, BCMR]).cwd(site.tmp.path()).start();
    let workers = [worker(), worker(), worker()];
    let done: Vec<u32> = workers.into_iter().map(|w| w.wait().ok().out.trim().parse().unwrap()).collect();
    assert_eq!(done.iter().sum::<u32>(), 20, "{done:?}");
    site.run("finish p").ok();
    site.judge("dst");
}

#[test]
fn a_changed_source_is_noticed() {
    let site = Site::new();
    mixed(&site);
    site.tmp.file("src/z/late", "as planned");
    site.run("plan src dst --out p --shards 1 --part-size 4M").ok();
    let times = std::fs::metadata(site.p("src/z/late")).unwrap().modified().unwrap();
    // The same length and time: only ctime knows.
    site.tmp.file("src/z/late", "as patched");
    std::fs::File::options().write(true).open(site.p("src/z/late")).unwrap().set_modified(times).unwrap();
    site.run("shard p 0").code(5).says("late").says("it has changed since the plan was made");
    site.run("finish p").code(1).says("shards 0");
    assert!(!site.p("dst").exists());
    // The stage stays for the next plan's user to remove.
    let listed = site.run("sessions .").ok().out;
    assert!(listed.contains(".plan"), "{listed}");
    site.run("sessions --clean .").ok();
    assert_no_litter(site.tmp.path());
    site.run("shard p 0").code(1).says("make another plan");
}

/// What is gone, or has become something else, is a source that has changed, whatever was tried with it; here and between
/// machines. What merely cannot be read is not.
#[test]
fn what_is_gone_or_of_another_kind_has_changed() {
    use super::common::remote::Dir;
    type Becomes = fn(&Path);
    let replaced = |path: &Path, by: Becomes| {
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
        by(path);
    };
    let cases: [(&str, Becomes); 6] = [
        ("d/b", |_| {}),
        ("d/e", |_| {}),
        ("d/b", |path| std::fs::create_dir(path).unwrap()),
        ("d/e", |path| std::fs::write(path, "a file").unwrap()),
        ("d/link", |path| std::fs::write(path, "a file").unwrap()),
        ("z/big", |_| {}),
    ];
    let far = Far::pipe();
    let verbs = ["copy", "sync", "check", "remove"];
    let ways = [None, Some(Dir::Put), Some(Dir::Get)];
    let rows = verbs.into_iter().flat_map(|verb| ways.map(|way| (verb, way)));
    for (row, (verb, way)) in rows.enumerate() {
        for (n, (name, by)) in cases.iter().enumerate() {
            let there_is_none = verb == "remove" && way == Some(Dir::Put);
            if there_is_none || !in_slice(row + n, 3) {
                continue;
            }
            let site = Site::new();
            mixed(&site);
            if verb == "check" {
                site.run("copy -q -r --archive src dst").ok();
            }
            let words = format!("--verb {verb} --out p --shards 1");
            let dst = if verb == "remove" { "" } else { "dst" };
            let (src_there, dst_there) = (far.at(site.p("src")), far.at(site.p("dst")));
            let ends = match way {
                None => [OsStr::new("src"), OsStr::new(dst)],
                Some(Dir::Put) => [OsStr::new("src"), &*dst_there],
                Some(Dir::Get) => [&*src_there, OsStr::new(dst)],
            };
            let ends = ends.into_iter().filter(|end| !end.is_empty());
            let over = |verb: &str, words: &str| match way {
                None => site.line(&format!("{verb} {words}")),
                Some(_) => site.over(&far, verb, words),
            };
            over("plan", &words).args(ends).run().ok();
            let is_gone = {
                replaced(&site.p("src").join(name), *by);
                !site.p("src").join(name).exists()
            };
            let ran = over("shard", "p 0").run();
            let what = format!("{verb} {way:?} {n}: {name}: {}{}", ran.out, ran.err);
            // What is to go may be gone. A comparison with another machine's files tells what another kind has come as a difference.
            let is_fine = (verb == "remove" && is_gone)
                || (verb == "check" && way == Some(Dir::Get) && *name == "d/link");
            assert_eq!(ran.code, if is_fine { 0 } else { 5 }, "{what}");
        }
    }
}

#[test]
fn a_part_of_a_changed_file_is_noticed() {
    let site = Site::new();
    site.tmp.file("src/big", noise(1, 13 << 20));
    site.run("plan src dst --out p --shards 2 --part-size 4M").ok();
    site.shards("p", [0]);
    let file = std::fs::File::options().write(true).open(site.p("src/big")).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"x", 12 << 20).unwrap();
    site.run("shard p 1").code(5).says("big");
    site.run("finish p").code(1);
    assert!(!site.p("dst").exists());
}

#[test]
fn a_destination_that_is_there_is_merged_when_asked() {
    let site = Site::new();
    mixed(&site);
    site.tmp.file("dst/d/b", "older");
    site.tmp.file("dst/d/own", "stays");
    site.tmp.file("dst/own", "stays");
    site.run("plan src dst --out p --shards 3 --part-size 4M").ok();
    site.shards("p", 0..3);
    site.run("finish p").code(1).says("it is there already");
    assert_eq!(std::fs::read(site.p("dst/d/b")).unwrap(), b"older");
    site.run("finish p --merge").ok();
    let mut got = tree(&site.p("dst"));
    for own in [&b"own"[..], b"d/own"] {
        assert!(got.remove(own).is_some());
    }
    assert_eq!(differences(&tree(&site.p("src")), &got, EVERYTHING), [""; 0]);
    assert_no_litter(site.tmp.path());
}

#[test]
fn a_merge_over_another_kind_is_refused_before_anything_moves() {
    let site = Site::new();
    mixed(&site);
    site.tmp.dir("dst/z/big");
    site.tmp.file("dst/d/b", "older");
    site.run("plan src dst --out p --shards 1").ok();
    site.shards("p", [0]);
    let before = tree(&site.p("dst"));
    site.run("finish p --merge").code(1).says("big");
    assert_eq!(differences(&before, &tree(&site.p("dst")), EVERYTHING), [""; 0]);
    std::fs::remove_dir(site.p("dst/z/big")).unwrap();
    site.run("finish p --merge").ok();
}

/// No rename leads into what is mounted in the destination, so that is known before anything is moved.
#[test]
fn a_merge_into_something_mounted_is_refused_before_anything_moves() {
    needs!(is_root(), "mounting needs root");
    let site = Site::new();
    for name in ["1", "a/f", "m/sub/x", "m/y", "z/q"] {
        site.tmp.file(format!("src/{name}"), "new");
    }
    site.tmp.dir("src/e");
    let other = site.tmp.file("other/sub/f", "stays");
    let at: [(&str, PathBuf); 3] = [("", site.p("other")), ("m", site.p("other")), ("z/q", other)];
    for (below, from) in at {
        let dst = site.tmp.dir("dst");
        site.tmp.dir("dst/e");
        site.tmp.file("dst/z/q", "older");
        site.tmp.dir("dst/m");
        // What is mounted where nothing is moved to is in nobody's way.
        let Ok(aside) = Mount::bind(&site.p("other"), &site.p("dst/e")) else {
            return skipped("a merge into something mounted", "there are no mounts");
        };
        site.run("plan src dst --out p --shards 2").ok();
        site.shards("p", 0..2);
        let mounted = Mount::bind(&from, &dst.join(below)).unwrap();
        let before = tree(&dst);
        let said = format!(
            "cannot merge into '{}': it is a mount point",
            dst.components().as_path().join(below).display()
        );
        site.run("finish p --merge").code(8).says(said.trim_end_matches('/'));
        assert_eq!(differences(&before, &tree(&dst), EVERYTHING), [""; 0], "{below}");
        drop(mounted);
        site.run("finish p --merge").ok();
        assert_eq!(std::fs::read(site.p("dst/z/q")).unwrap(), b"new");
        assert!(site.p("dst/m/sub/x").exists() && site.p("dst/1").exists() && site.p("dst/e/sub/f").exists());
        drop(aside);
        std::fs::remove_dir_all(site.p("p")).unwrap();
        std::fs::remove_dir_all(&dst).unwrap();
    }
    assert_eq!(std::fs::read(site.p("other/sub/f")).unwrap(), b"stays");
    assert_no_litter(site.tmp.path());
}

/// btrfs lists of a directory what there was when it was opened, so what the end makes in it shows only in a later handle.
#[test]
fn what_the_end_makes_is_of_the_plan_on_btrfs() {
    const NAME: &str = "what_the_end_makes_is_of_the_plan_on_btrfs";
    needs!(is_root() && has_tool("mkfs.btrfs"), "needs root and mkfs.btrfs");
    let tmp = Tmp::new();
    let mounted = match Mount::image("btrfs", 128, &tmp.p("m")) {
        Ok(mounted) => mounted,
        Err(why) => return skipped(NAME, &why),
    };
    let site = Site { tmp: Tmp::beneath(mounted.path()) };
    mixed(&site);
    site.run("plan src dst --out p --shards 2").ok();
    site.shards("p", 0..2);
    site.run("finish p").ok();
    site.judge("dst");
}

#[test]
fn what_does_not_belong_into_the_tree_is_not_published() {
    let site = Site::new();
    mixed(&site);
    site.run("plan src dst --out p --shards 1").ok();
    site.shards("p", [0]);
    let stage = names(site.tmp.path()).into_iter().find(|n| n.as_bytes().starts_with(b".bcmr-")).unwrap();
    let stranger = site.p(&format!("{}/d/stranger", stage.to_str().unwrap()));
    std::fs::write(&stranger, "x").unwrap();
    site.run("finish p").code(8).says("not what the plan says");
    assert!(!site.p("dst").exists());
    std::fs::remove_file(&stranger).unwrap();
    // What a killed run of a shard without the lock would leave.
    let left = stranger.with_file_name(".bcmr-r-0123456789abcdef0123456789abcdef.stage");
    std::fs::write(left, "half").unwrap();
    site.run("finish p").ok();
    site.judge("dst");
}

#[test]
fn two_finishes_at_once() {
    let site = Site::new();
    very_many(&site, 2000);
    for round in 0..if all_cases() { 4 } else { 1 } {
        let (plan, dst) = (format!("p{round}"), format!("dst{round}"));
        site.run(&format!("plan src {dst} --out {plan} --shards 2")).ok();
        site.shards(&plan, 0..2);
        let both = [0, 1].map(|_| site.line(&format!("finish {plan}")).start());
        let codes = both.map(|one| one.wait().one_of(&[0, 8]).code);
        assert!(codes.contains(&0), "{codes:?}");
        site.judge(&dst);
    }
}

/// Every byte of a small plan and of its result, changed: it is refused, and what is published then is right.
#[test]
fn a_damaged_plan_or_result_is_refused() {
    let site = Site::new();
    site.tmp.file("src/a", "one");
    site.tmp.file("src/d/b", "two");
    site.run("plan src dst --out p --shards 1").ok();
    site.shards("p", [0]);
    let step = if all_cases() { 1 } else { 7 };
    for file in ["p/plan", "p/shard-0", "p/results/0"] {
        let path = site.p(file);
        let good = std::fs::read(&path).unwrap();
        for at in (0..good.len()).step_by(step) {
            let mut bad = good.clone();
            bad[at] ^= 0x41;
            std::fs::write(&path, &bad).unwrap();
            let ran = site.run("finish p");
            assert!(ran.code != 0, "byte {at} of {file}: {}", ran.err);
            assert!(!site.p("dst").exists(), "byte {at} of {file}");
            if file != "p/results/0" {
                site.run("shard p 0").one_of(&[1, 8]);
            }
        }
        std::fs::write(&path, &good[..good.len() - 1]).unwrap();
        assert!(site.run("finish p").code != 0, "{file} cut short");
        std::fs::write(&path, &good).unwrap();
    }
    // A damaged result is as none: the shard makes it anew.
    std::fs::write(site.p("p/results/0"), "nonsense").unwrap();
    site.run("finish p").code(1).says("shards 0");
    site.shards("p", [0]);
    site.run("finish p").ok();
    site.judge("dst");
}

/// Results count for the plan that they are of, wherever they are put.
#[test]
fn a_result_of_another_plan_counts_for_nothing() {
    let site = Site::new();
    mixed(&site);
    for plan in ["one", "two"] {
        site.run(&format!("plan src to-{plan} --out {plan} --shards 2")).ok();
    }
    site.shards("one", 0..2);
    for shard in ["0", "1"] {
        std::fs::copy(site.p("one/results").join(shard), site.p("two/results").join(shard)).unwrap();
    }
    site.run("finish two").code(1).says("shards 0 1");
    assert!(site.run("plan --status two").ok().out.contains("0 of 2 shards are done"));
    site.run("shard two --all").ok();
    for plan in ["one", "two"] {
        site.run(&format!("finish {plan}")).ok();
    }
    for plan in ["one", "two"] {
        site.judge(&format!("to-{plan}"));
    }
}

#[test]
fn a_full_disk_and_a_read_only_one() {
    needs!(is_root(), "only root mounts");
    let site = Site::new();
    very_many(&site, 50);
    site.tmp.file("src/big", noise(1, 3 << 20));
    let at = site.p("disk");
    let mount = match Mount::tmpfs("size=1m", &at) {
        Ok(mount) => mount,
        Err(why) => return skipped("a full disk", &why),
    };
    let remount = |options: &str| {
        let done =
            Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(mount.path()).status();
        assert!(done.unwrap().success());
    };
    site.run("plan src disk/dst --out p --shards 2").ok();
    let codes = [0, 1].map(|shard| site.run(&format!("shard p {shard}")).one_of(&[0, 6]).code);
    assert!(codes.contains(&6), "{codes:?}");
    site.run("finish p").code(1);
    remount("size=16m");
    remount("ro");
    site.run("shard p --all").one_of(&[1, 8]);
    site.run("finish p").code(1);
    remount("rw");
    site.run("shard p --all").ok();
    site.run("finish p").ok();
    assert_same(&site.p("src"), &site.p("disk/dst"), EVERYTHING);
    assert_no_litter(&at);
}

#[test]
fn a_plan_leaves_out_what_is_excluded_and_never_copies_itself() {
    let site = Site::new();
    mixed(&site);
    site.run("plan src dst --out p --shards 2 -e *.o -e /d -e big").ok();
    site.shards("p", 0..2);
    site.run("finish p").ok();
    assert!(!site.p("dst/d").exists() && !site.p("dst/z/big").exists() && site.p("dst/d-x").exists());
    for (line, why) in [
        ("plan src src/in --out q", "the destination '"),
        ("plan src x --out src/q", "src/q' would be inside it"),
        ("plan src src --out q", ""),
    ] {
        site.run(line).code(8).says(why);
    }
    assert!(!site.p("q").exists() && !site.p("src/q").exists());
    for verb in ["copy", "sync", "check"] {
        let ran = site.run(&format!("plan --verb {verb} a:src b:dst --out q")).code(2);
        ran.says("only one of SRC and DST may be on another machine");
    }
    site.run("plan nowhere dst --out q").code(1);
    // What is not there has no other machine either, whatever is said of how to get to one.
    for line in ["shard q 0 --retries 1", "shard q 0", "finish q -F x", "finish q"] {
        site.run(line).code(1).says("no plan is there");
    }
}

#[test]
fn another_user_without_rights_keeps_what_he_can() {
    needs!(is_root(), "only root acts as another user");
    let tmp = Tmp::for_others();
    tmp.file("src/d/e/f", "one");
    tmp.file("src/d/g", "two");
    tmp.dir("src/closed/in");
    chmod(&tmp.p("src/d/e"), 0o555);
    chmod(&tmp.p("src/d"), 0o555);
    let own = |path: &Path| {
        let done = Command::new("chown").args(["-R", &format!("{NOBODY}:{NOBODY}")]).arg(path).status();
        assert!(done.unwrap().success());
    };
    own(&tmp.p("src"));
    for words in ["plan src dst --out p --shards 3", "shard p 2", "shard p 0", "shard p 1", "finish p"] {
        bcmr_as(NOBODY, &tmp, words.split(' ')).cwd(tmp.path()).run().ok();
    }
    assert_same(&tmp.p("src"), &tmp.p("dst"), EVERYTHING);
    assert_no_litter(tmp.path());
}

/// L6: what was lost stays lost, however often a shard or the end is asked for.
#[test]
fn what_a_shard_has_lost_is_told_by_every_end() {
    needs!(is_root(), "only root mounts");
    let site = Site::new();
    site.tmp.file("src/1", "one");
    site.tmp.file("src/2", "two");
    let done = Command::new("setfattr").args(["-n", "user.a", "-v", "b"]).arg(site.p("src/1")).status();
    if !done.is_ok_and(|done| done.success()) {
        return skipped("what a shard has lost", "there are no attributes here");
    }
    let mounted = Mount::new(&["-t", "ramfs", "none"].map(OsStr::new), &site.p("fs"));
    let Ok(_mount) = mounted else { return skipped("what a shard has lost", "there is no ramfs") };
    for verb in ["copy", "sync"] {
        site.run(&format!("plan --verb {verb} src fs/{verb} --out {verb} --shards 1")).ok();
        site.run(&format!("shard {verb} 0")).code(1).says("set attributes");
        site.run(&format!("shard {verb} 0")).ok();
        for _ in 0..2 {
            site.run(&format!("finish {verb}")).code(1).says("names in the manifest: 1;");
        }
        assert!(std::fs::read_to_string(site.p(verb).join("receipt")).unwrap().ends_with("lost 1\n"));
        assert_eq!(std::fs::read(site.p("fs").join(verb).join("1")).unwrap(), b"one");
    }
}

/// The manifest is text: what it cannot have is told by every end.
#[test]
fn a_name_that_the_manifest_cannot_have_is_told_by_every_end() {
    let site = Site::new();
    site.tmp.file("src/1", "one");
    site.tmp.file(Path::new("src").join(OsStr::from_bytes(b"\xff")), "two");
    site.run("plan src dst --out p --shards 1").ok();
    site.run("shard p 0").ok();
    for _ in 0..2 {
        site.run("finish p").code(1).says("names in the manifest");
    }
    site.judge("dst");
    assert_eq!(std::fs::read_to_string(site.p("p/manifest")).unwrap().lines().count(), 1);
}

/// What differs arrives, what is the same is not written again, and what only the destination has goes in the end.
#[test]
fn a_sync_in_shards_is_a_sync() {
    let site = Site::new();
    mixed(&site);
    very_many(&site, 300);
    site.run("sync -q src dst").ok();
    // Some of everything that a sync has to do with what is there.
    site.tmp.file("dst/d/b", "older");
    std::fs::remove_file(site.p("dst/a")).unwrap();
    std::fs::remove_dir_all(site.p("dst/z")).unwrap();
    site.tmp.file("dst/zz/empty/own", "only there");
    site.tmp.file("dst/own dir/deep/own", "only there");
    std::fs::remove_dir(site.p("dst/0empty")).unwrap();
    site.tmp.file("dst/0empty", "a file where the source has a directory");
    site.tmp.file("dst/d0/own", "only there");
    chmod(&site.p("dst/d/e"), 0o700);
    let same = std::fs::metadata(site.p("dst/sparse")).unwrap();
    site.run("plan --verb sync --delete src dst --out p --shards 4").ok();
    site.run("finish p").code(1).says("shards 0 1 2 3");
    site.shards("p", [2, 0, 3, 1]);
    assert!(
        site.p("dst/d0/own").exists() && site.p("dst/own dir").exists(),
        "deleted before everything is there"
    );
    site.run("finish p").ok();
    site.judge("dst");
    let now = std::fs::metadata(site.p("dst/sparse")).unwrap();
    assert_eq!((now.ino(), now.ctime()), (same.ino(), same.ctime()), "written again");
    site.run("finish p").ok().says("is finished");
}

/// M1, M2, M3: what only the destination has stays where the source is another one, has the name by now, or too much would go.
#[test]
fn a_sync_in_shards_deletes_within_bounds() {
    let site = Site::new();
    very_many(&site, 30);
    site.run("sync -q src dst").ok();
    for n in 0..9 {
        site.tmp.file(format!("dst/d1/own {n}"), "only there");
    }
    let own = || (0..9).filter(|n| site.p(&format!("dst/d1/own {n}")).exists()).count();
    let plan = |name: &str, flags: &str| {
        site.run(&format!("plan --verb sync --delete {flags}src dst --out {name} --shards 2")).ok();
        site.shards(name, 0..2);
    };
    plan("few", "--max-delete 8 ");
    let few = site.run("finish few").code(8).says("9 of");
    assert!(!few.err.contains("lost"), "what was refused is no lost attribute: {}", few.err);
    assert_eq!(own(), 9);
    // A name that has come to be at the source since the plan was made.
    plan("late", "--max-delete 8 ");
    site.tmp.file("src/d1/own 3", "late");
    site.run("finish late").ok();
    assert!(own() == 1 && site.p("dst/d1/own 3").exists());
    // Another directory in the place of the source, as when it is not mounted.
    std::fs::remove_file(site.p("src/d1/own 3")).unwrap();
    plan("other", "");
    std::fs::rename(site.p("src"), site.p("away")).unwrap();
    site.tmp.dir("src");
    for words in ["finish other", "shard other 0 -q"] {
        let ran = site.run(words);
        assert!(ran.code == 8 || ran.code == 0 && words.starts_with("shard"), "{words}: {}", ran.err);
    }
    assert_eq!(own(), 1);
    std::fs::remove_dir(site.p("src")).unwrap();
    std::fs::rename(site.p("away"), site.p("src")).unwrap();
    site.run("finish other").ok();
    assert_eq!(own(), 0);
    // An empty source deletes nothing, and what deletes leaves nothing out.
    site.tmp.dir("none");
    site.run("plan --verb sync --delete none dst --out q --shards 1").ok();
    site.run("shard q 0").ok();
    site.run("finish q").code(8).says("the source is empty");
    assert!(site.p("dst/d1").exists());
    site.run("plan --verb sync --delete -e x src dst --out r").code(2).says("filters do not go together");
    site.run("plan --verb sync --delete dst/d1 dst --out r").code(8);
    site.run("plan --delete src dst --out r").code(2);
}

/// M1 holds for plans as for `sync`, whichever of the two remembers how the source was mounted.
#[test]
fn a_plan_for_a_source_that_is_not_mounted_as_it_was_deletes_nothing() {
    needs!(is_root(), "mounting needs root");
    for first in ["sync", "plan"] {
        let site = Site::new();
        site.tmp.file("src/below", "what the disk is mounted over");
        site.tmp.dir("dst");
        let run = |words: &str| {
            let mut line = site.line(words);
            line.0.env("XDG_STATE_HOME", site.p("state"));
            line.run()
        };
        let Ok(mount) = Mount::tmpfs("size=1m", &site.p("src")) else {
            return skipped("a plan for a source that is not mounted as it was", "there are no mounts");
        };
        site.tmp.file("src/on the disk", "kept");
        let plan = |name: &str, flags: &str| run(&format!("plan --verb sync {flags}src dst --out {name}"));
        if first == "sync" {
            run("sync -q src dst").ok();
        } else {
            plan("p", "").ok();
            run("shard p --all").ok();
            run("finish p").ok();
        }
        // The twin: it is mounted as it was.
        plan("mounted", "--delete ").ok();
        drop(mount);
        plan("q", "--delete ").code(8).says("file system of its own").says("hint: mount it");
        assert!(!site.p("q").exists());
        assert_eq!(names(&site.p("dst")), ["on the disk"]);
        // What deletes nothing may go on, and is what is remembered then.
        plan("r", "").ok();
        run("shard r --all").ok();
        run("finish r").ok();
        plan("s", "--delete ").ok();
    }
}

/// A plan that is in what its end deletes in would go itself.
#[test]
fn a_plan_in_its_own_destination_deletes_nothing() {
    let site = Site::new();
    site.tmp.file("src/1", "one");
    site.tmp.dir("dst/below");
    symlink("dst/below", site.p("way")).unwrap();
    for out in ["dst", "dst/p", "dst/below/p", "way/p"] {
        let words = format!("plan --verb sync --delete src dst --out {out} --shards 1");
        site.run(&words).code(8).says("it is in the destination");
        assert_eq!(names(&site.p("dst")), ["below"], "{out}");
    }
    site.run("plan --verb sync --delete src new --out new").code(8).says("it is in the destination");
    assert!(!site.p("new").exists());
    // What deletes nothing leaves it alone.
    site.run("plan --verb sync src dst --out dst/p --shards 1").ok();
    site.run("shard dst/p 0").ok();
    site.run("finish dst/p").ok();
    assert!(site.p("dst/1").exists() && site.p("dst/p/receipt").exists());
}

#[test]
fn a_check_in_shards_finds_what_differs() {
    let site = Site::new();
    mixed(&site);
    site.run("copy -q -r --archive src dst").ok();
    let check = |plan: &str| {
        site.run(&format!("plan --verb check src dst --out {plan} --shards 3")).ok();
        let told: String = (0..3).map(|k| site.run(&format!("shard {plan} {k}")).ok().out).collect();
        let end = site.run(&format!("finish {plan}"));
        (told, end)
    };
    let (told, end) = check("same");
    assert_eq!((told.as_str(), end.code), ("", 0), "{}", end.err);
    site.tmp.file("dst/d/b", "TWO");
    let (_, end) = check("one");
    assert_eq!((end.code, end.out.as_str()), (1, "1 difference, with those that the shards have told\n"));
    std::fs::remove_file(site.p("dst/z/y")).unwrap();
    std::fs::remove_dir_all(site.p("dst/zz")).unwrap();
    chmod(&site.p("dst/d/e"), 0o700);
    site.tmp.file("dst/d/own", "only there");
    let before = tree(&site.p("dst"));
    let (told, end) = check("other");
    for (name, found) in [("b", &told), ("y", &told), ("zz", &told), ("own", &end.out)] {
        assert!(found.contains(name), "{name}: {told}{}", end.out);
    }
    assert_eq!(end.code, 1, "{}", end.err);
    assert_eq!(differences(&before, &tree(&site.p("dst")), EVERYTHING), [""; 0]);
    let again = site.run("finish other").code(1);
    assert_eq!(again.out, end.out, "asked a second time, it says the same");
    assert_no_litter(site.tmp.path());
}

/// A directory that DST lacks is told by each shard that has something in it, not only by the one that has its name.
#[test]
fn each_shard_of_a_check_tells_what_is_lacking() {
    let site = Site::new();
    for n in 1..5 {
        site.tmp.file(format!("src/a/f{n}"), "x");
        site.tmp.file(format!("src/a/b/g{n}"), "x");
    }
    site.tmp.dir("src/e");
    site.tmp.dir("dst");
    site.run("plan --verb check src dst --out p --shards 3").ok();
    let mut files = 0;
    for shard in 0..3 {
        let ran = site.run(&format!("shard p {shard}")).ok();
        assert!(ran.out.contains("+ a/") && ran.out.contains(" to add"), "{shard}: {}", ran.out);
        let told = ran.out.lines().find_map(|line| line.split("+ a/").nth(1)).unwrap();
        files += told.split_whitespace().next().unwrap().parse::<u32>().unwrap();
    }
    assert_eq!(files, 8);
}

#[test]
fn a_removal_in_shards_takes_what_was_planned() {
    let site = Site::new();
    mixed(&site);
    very_many(&site, 300);
    site.tmp.file("beside", "stays");
    symlink("../beside", site.p("src/d/out")).unwrap();
    site.run("plan --verb remove src --out p --shards 4").ok();
    site.tmp.file("src/d/b", "another content");
    site.tmp.file("src/z/late", "late");
    for (shard, code) in [(3, 0), (1, 0), (0, 5), (2, 0)] {
        site.run(&format!("shard p {shard}")).one_of(&[code, 0, 5]);
    }
    assert!(site.p("src/d/b").exists() && site.p("beside").exists());
    site.run("finish p").code(1).says("without a result");
    std::fs::remove_file(site.p("src/d/b")).unwrap();
    site.run("shard p --all").ok();
    assert!(!site.p("src/a").exists() && site.p("src/z/late").exists(), "names go, directories in the end");
    site.run("finish p").code(1).says("src/z");
    assert!(site.p("src/z/late").exists() && !site.p("src/d").exists());
    std::fs::remove_file(site.p("src/z/late")).unwrap();
    let end = site.run("finish -v p").ok();
    assert!(end.err.starts_with("bcmr: finished "), "{}", end.err);
    assert!(site.run("plan --status p").ok().out.ends_with("; the plan is finished\n"));
    assert!(!site.p("src").exists() && site.p("beside").exists());
    assert_no_litter(site.tmp.path());
    for line in ["plan --verb remove / --out q", "plan --verb remove . --out /dev/shm/bcmr-no-such-plan"] {
        site.run(line).code(8);
    }
    assert!(!site.p("q").exists());
    // A link to a directory is none.
    site.tmp.file("real/sub/1", "one");
    symlink("real", site.p("link")).unwrap();
    for link in ["link", "link/"] {
        site.run(&format!("plan --verb remove {link} --out q")).code(1).says("Not a directory");
        assert!(!site.p("q").exists() && site.p("real/sub/1").exists());
    }
}

/// What is mounted below what is removed stays, as for `remove -r`: whether it was there when the plan was made, or came later.
#[test]
fn a_removal_in_shards_goes_through_no_mount() {
    needs!(is_root(), "mounting needs root");
    let site = Site::new();
    for (shards, late) in [(1, false), (2, true)] {
        site.tmp.file("other/precious", "stays");
        for name in ["src/a", "src/d/b", "src/d/m/sub/precious", "src/d/e/c"] {
            site.tmp.file(name, "goes");
        }
        std::fs::hard_link(site.p("src/d/m/sub/precious"), site.tmp.dir("other/sub").join("precious"))
            .unwrap();
        let mount = || Mount::bind(&site.p("other"), &site.p("src/d/m"));
        let early = if late { None } else { Some(mount()) };
        site.run(&format!("plan --verb remove src --out p --shards {shards}")).ok();
        let Ok(mounted) = early.unwrap_or_else(mount) else {
            return skipped("a removal that goes through no mount", "there are no mounts");
        };
        let shard = site.run("shard p --all");
        let said = "src/d/m': it is a mount point";
        if late {
            shard.code(8).says("src/d/m/sub': it is a mount point");
            site.run("finish p").code(1);
        } else {
            shard.ok();
            let end = site.run("finish p").code(8).says(said);
            assert!(!end.err.contains("not empty") && !end.err.contains("busy"), "{}", end.err);
        }
        assert!(site.p("other/precious").exists() && site.p("other/sub/precious").exists(), "late: {late}");
        assert!(!site.p("src/a").exists() && !site.p("src/d/e/c").exists());
        site.run("plan --verb remove src/d/m --out q").code(8).says(said);
        drop(mounted);
        for name in ["p", "src", "other"] {
            std::fs::remove_dir_all(site.p(name)).unwrap();
        }
    }
}

/// Every command of docs/many-machines.md does what it says: each block of them is run in a place of its own.
#[test]
fn the_commands_of_the_document_work() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/many-machines.md")).unwrap();
    let blocks: Vec<&str> =
        text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 5, "{blocks:?}");
    for block in blocks {
        if let Some(tool) =
            ["xargs", "parallel"].into_iter().find(|t| block.contains(&format!("| {t} ")) && !has_tool(t))
        {
            skipped("a block of docs/many-machines.md", &format!("there is no {tool}"));
            continue;
        }
        let site = Site::new();
        very_many(&site, 200);
        mixed(&site);
        symlink(BCMR, site.tmp.dir("bin").join("bcmr")).unwrap();
        let path = format!("{}:{}", site.p("bin").display(), std::env::var("PATH").unwrap());
        let mut line = Line::new(Path::new("sh")).args(["-ec", block]).cwd(site.tmp.path());
        line.0.env("PATH", path);
        line.run().ok();
        if block.contains("--verb remove") {
            assert!(!site.p("src").exists() && !site.p("dst").exists());
            assert_no_litter(site.tmp.path());
        } else if block.contains("finish") {
            site.judge("dst");
        } else {
            assert!(!site.p("dst").exists() && !site.p("plan").exists(), "{block}");
            assert_no_litter(site.tmp.path());
        }
    }
}

/// The pods of the document's Kubernetes job, each with its number, in another place than /data.
#[test]
fn the_pods_of_the_document_do_the_shards() {
    let text = include_str!("../../../../docs/many-machines.md");
    let command = text.lines().find_map(|line| line.trim().strip_prefix("command: ")).unwrap();
    let words: Vec<String> = serde_json::from_str(command).unwrap();
    let pods = text.lines().find_map(|line| line.trim().strip_prefix("completions: ")).unwrap();
    let site = Site::new();
    mixed(&site);
    symlink(BCMR, site.tmp.dir("bin").join("bcmr")).unwrap();
    site.run(&format!("plan src dst --out plan --shards {pods}")).ok();
    for index in 0..pods.parse::<u32>().unwrap() {
        let [shell, flag, script] = words.as_slice() else { panic!("{words:?}") };
        let script = script.replace("/data/", &format!("{}/", site.tmp.path().display()));
        let mut pod = Line::new(Path::new(shell)).args([flag.as_str(), &script]);
        pod.0.env("JOB_COMPLETION_INDEX", index.to_string());
        pod.0.env("PATH", format!("{}:{}", site.p("bin").display(), std::env::var("PATH").unwrap()));
        pod.run().ok();
    }
    site.run("finish plan").ok();
    site.judge("dst");
}

/// Names are relative to where the command was typed. Where that is gone, no other directory is taken for it.
#[test]
fn a_plan_is_made_where_there_is_a_directory() {
    let site = Site::new();
    let words = format!("mkdir gone && cd gone && rmdir ../gone && exec {BCMR} plan src dst --out plan");
    let ran = Line::new(Path::new("sh")).args(["-c", &words]).cwd(site.tmp.path()).run();
    ran.code(1).says("find the directory '.'");
    assert_eq!(names(site.tmp.path()), [""; 0]);
}

/// What is typed is a name however it is spelled, as for `sync`.
#[test]
fn the_current_directory_may_be_a_destination() {
    for typed in [".", "./", "../dst/.", "./../dst//"] {
        let site = Site::new();
        site.tmp.file("src/a", "one");
        site.tmp.dir("dst");
        let run = |words: &str| bcmr(words.split(' ')).cwd(&site.p("dst")).run();
        for verb in ["sync", "check"] {
            run(&format!("plan --verb {verb} ../src/ {typed} --out ../{verb} --shards 1")).ok();
            run(&format!("shard ../{verb} 0")).ok();
            run(&format!("finish ../{verb}")).ok();
        }
        site.judge("dst");
    }
}

/// What Slurm would do with the scripts, done by an sbatch that runs each job at once.
#[test]
fn the_scripts_for_slurm_do_the_plan() {
    slurm_does("jobs");
    // A name is any bytes, and the shell any POSIX one.
    slurm_does("it's\n100% \u{e4}");
}

fn slurm_does(name: &str) {
    let site = Site::new();
    mixed(&site);
    let plan = format!("plan of {name}");
    let bin = site.tmp.dir("bin");
    symlink(BCMR, bin.join("bcmr")).unwrap();
    let sbatch = r#"#!/bin/sh
echo "$@" >> calls
for script; do :; done
last=$(sed -n 's/^#SBATCH --array=0-//p' "$script")
if [ -n "$last" ]; then
    for k in $(seq 0 "$last"); do SLURM_ARRAY_TASK_ID=$k sh "$script" >&2 || exit 1; done
else
    sh "$script" >&2 || exit 1
fi
echo "17;cluster"
"#;
    std::fs::write(bin.join("sbatch"), sbatch).unwrap();
    chmod(&bin.join("sbatch"), 0o755);
    let words = ["plan", "src", "dst", "--out", &plan, "--shards", "3", "--slurm", name];
    let ran = bcmr(words).cwd(site.tmp.path()).run().ok();
    if name == "jobs" {
        let said = format!("or all of it by Slurm with: sh {}\n", site.p("jobs/submit").display());
        assert!(ran.out.ends_with(&said), "{}", ran.out);
    }
    let mut submit = Line::new(Path::new("sh"))
        .args([&*format!("{name}/submit"), "--partition=long"])
        .cwd(site.tmp.path());
    submit.0.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let ran = submit.run().ok();
    assert_eq!(ran.out, "shards: job 17;cluster, finish: job 17;cluster\n");
    let calls = std::fs::read_to_string(site.p("calls")).unwrap();
    assert_eq!(calls.matches("--partition=long").count(), 2, "{calls}");
    assert!(calls.contains("--dependency=afterany:17 --partition"), "{calls}");
    site.judge("dst");
    // Nothing is written where the plan could not be made, nor into what is no directory.
    site.run("plan nowhere dst2 --out q --slurm j").code(1);
    assert!(!site.p("j").exists());
    site.run("plan src dst2 --out q --slurm bin/bcmr").code(1).says("bin/bcmr");
}

/// A name with a colon that is there is a name on this machine, as it is to `copy` and `sync`.
#[test]
fn a_name_with_a_colon_that_is_here() {
    let tmp = Tmp::new();
    tmp.file("a:b/f", "F");
    tmp.file("c:d/own", "OWN");
    let run = |line: &str| bcmr(line.split(' ')).cwd(tmp.path()).run();
    run("plan -v a:b new --out p").ok().says("a:b");
    run("shard p --all").ok();
    run("finish p").ok();
    assert_eq!(names(&tmp.p("new")), ["f"]);
    run("plan --verb sync a:b c:d --out q").ok();
    run("shard q --all").ok();
    run("finish q").ok();
    assert_eq!(names(&tmp.p("c:d")), ["f", "own"]);
    // What is not there is an address, and a plan is no address.
    run("plan a:b new2 --out e:f").code(2).says("put ./ before it");
}
