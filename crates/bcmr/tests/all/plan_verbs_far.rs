//! Syncs in shards from and to another machine, comparisons with one and removals there: what they leave, delete and tell is what
//! those of one machine do.
//!
//! Must not know how a shard is read or sent.

use super::common::remote::{BOTH, Dir, Far, passed};
use super::common::sshd::HOST;
use super::common::*;
use super::plan::{Site, mixed};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// Plans something of `src` and `dst`, one of which is over there.
fn planned(far: &Far, site: &Site, way: Dir, words: &str) -> Ran {
    way.ends(site.over(far, "plan", words), far, &site.p("src"), &site.p("dst")).run()
}

/// Some of everything that a sync has to do with what is there.
fn worn(site: &Site) {
    mixed(site);
    site.run("sync -q src dst").ok();
    site.tmp.file("dst/d/b", "older");
    fs::remove_file(site.p("dst/a")).unwrap();
    fs::remove_dir_all(site.p("dst/z")).unwrap();
    site.tmp.file("dst/zz/empty/own", "only there");
    site.tmp.file("dst/own dir/deep/own", "only there");
    fs::remove_dir(site.p("dst/0empty")).unwrap();
    site.tmp.file("dst/0empty", "a file where the source has a directory");
    fs::remove_file(site.p("dst/d/link")).unwrap();
    symlink("elsewhere", site.p("dst/d/link")).unwrap();
    chmod(&site.p("dst/d/e"), 0o700);
    chmod(&site.p("dst/d-x"), 0o600);
    site.tmp.file("dst/d/e/own", "only there");
}

#[test]
fn a_sync_in_shards_with_another_machine_is_a_sync() {
    // An ordinary run takes a half: each way and each flag once.
    let rows = [(Dir::Get, ""), (Dir::Get, "--checksum"), (Dir::Put, "--checksum"), (Dir::Put, "")];
    for (way, flags) in sliced(rows, 2) {
        let (far, site) = (Far::pipe(), Site::new());
        worn(&site);
        let same = fs::metadata(site.p("dst/sparse")).unwrap();
        planned(&far, &site, way, &format!("--verb sync --delete {flags} --out p --shards 4")).ok();
        site.over(&far, "finish", "p").run().code(1).says("shards 0 1 2 3");
        for shard in ["2", "0 -V", "--next", "--all"] {
            site.over(&far, "shard", &format!("p {shard}")).run().ok();
        }
        let own = ["dst/own dir/deep/own", "dst/zz/empty/own", "dst/d/e/own"];
        assert!(own.iter().all(|name| site.p(name).exists()), "deleted before everything is there");
        // All of the content is there before the end.
        assert_eq!(fs::read(site.p("dst/d/b")).unwrap(), b"two", "{way:?}");
        assert_eq!(fs::read(site.p("dst/z/big")).unwrap(), fs::read(site.p("src/z/big")).unwrap());
        site.over(&far, "finish", "p").run().ok();
        site.judge("dst");
        let now = fs::metadata(site.p("dst/sparse")).unwrap();
        assert_eq!((now.ino(), now.ctime()), (same.ino(), same.ctime()), "written again");
        site.over(&far, "finish", "p").run().ok().says("is finished");
    }
}

/// Into nothing, and without deleting; what the end would not know of is refused.
#[test]
fn a_sync_to_another_machine_that_has_nothing() {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    for words in ["-e x", "-x", "--delete -e x"] {
        planned(&far, &site, Dir::Put, &format!("--verb sync {words} --out q")).code(2).says("filters");
        assert!(!site.p("q").exists(), "{words}");
    }
    planned(&far, &site, Dir::Put, "--verb sync --out p --shards 3").ok();
    assert!(!site.p("dst").exists());
    site.over(&far, "shard", "p --all").run().ok();
    site.tmp.file("dst/d/own", "only there");
    site.over(&far, "finish", "p").run().ok();
    assert_eq!(fs::read(site.p("dst/d/own")).unwrap(), b"only there");
    fs::remove_file(site.p("dst/d/own")).unwrap();
    site.run("sync -q src dst").ok();
    site.judge("dst");
    // A server that only reads gets nothing.
    let reads = Far::pipe().serving("--read-only");
    planned(&reads, &site, Dir::Put, "--verb sync --out r --shards 1").one_of(&[0, 8]);
    if site.p("r/plan").exists() {
        site.over(&reads, "shard", "r 0").run().code(8);
    }
}

/// Into nothing, without deleting, from a server that writes nothing and is shut in; and names that are left out.
#[test]
fn a_sync_from_a_server_that_only_reads() {
    let site = Site::new();
    mixed(&site);
    let root = site.tmp.path().display().to_string();
    let far = Far::pipe().serving(&format!("--read-only --root {root}"));
    site.over(&far, "plan", "--verb sync host:../src dst --out q").run().code(8);
    assert!(!site.p("q").exists());
    site.over(&far, "plan", "--verb sync host:src dst --out p --shards 3").run().ok();
    site.over(&far, "shard", "p --all").run().ok();
    site.tmp.file("dst/d/own", "only there");
    site.over(&far, "finish", "p").run().ok();
    assert_eq!(fs::read(site.p("dst/d/own")).unwrap(), b"only there");
    fs::remove_file(site.p("dst/d/own")).unwrap();
    site.run("sync -q src dst").ok();
    site.judge("dst");
    site.over(&far, "plan", "--verb sync -e /z/* -e fifo host:src some --out e --shards 2").run().ok();
    site.over(&far, "shard", "e --all").run().ok();
    site.over(&far, "finish", "e").run().ok();
    assert!(names(&site.p("some/z")).is_empty() && site.p("some/d/b").exists());
    assert!(!site.p("some/d/fifo").exists());
    site.over(&far, "plan", "--verb sync --delete -e x host:src dst --out r").run().code(2).says("filters");
    assert!(!site.p("r").exists());
}

/// M1, M2, M3: what only the destination has stays where the source is another one, has the name by now, or too much would go.
#[test]
fn a_sync_with_another_machine_deletes_within_bounds() {
    for way in BOTH {
        deletes_within_bounds(way);
    }
}

fn deletes_within_bounds(way: Dir) {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    site.tmp.file("src/plain/f", "f");
    site.run("sync -q src dst").ok();
    for n in 0..9 {
        site.tmp.file(format!("dst/plain/own {n}"), "only there");
    }
    let own = || (0..9).filter(|n| site.p(&format!("dst/plain/own {n}")).exists()).count();
    let plan = |name: &str, flags: &str| {
        planned(&far, &site, way, &format!("--verb sync --delete {flags} --out {name} --shards 2")).ok();
        site.over(&far, "shard", &format!("{name} --all")).run().ok();
    };
    plan("few", "--max-delete 8");
    site.over(&far, "finish", "few").run().code(8).says("9 of");
    assert_eq!(own(), 9);
    // Names that have come to be at the source since the plan was made, of any kind.
    plan("late", "--max-delete 7");
    site.tmp.file("src/plain/own 3", "late");
    site.tmp.file("src/plain/own 4/with", "late");
    let ran = site.over(&far, "finish", "late").run().ok();
    assert!(!ran.err.contains("own"), "that they are not there was told: {}", ran.err);
    assert!(own() == 2 && site.p("dst/plain/own 3").exists() && site.p("dst/plain/own 4").exists());
    fs::remove_file(site.p("src/plain/own 3")).unwrap();
    fs::remove_dir_all(site.p("src/plain/own 4")).unwrap();
    // Another directory in the place of the source, as when it is not mounted; or of one below it.
    plan("other", "");
    fs::rename(site.p("src"), site.p("away")).unwrap();
    site.tmp.dir("src");
    site.over(&far, "finish", "other").run().code(8);
    fs::remove_dir(site.p("src")).unwrap();
    fs::rename(site.p("away"), site.p("src")).unwrap();
    assert_eq!(own(), 2);
    // The end of a sync to there goes by what the source has now.
    if way == Dir::Get {
        fs::rename(site.p("src/plain"), site.p("away")).unwrap();
        site.tmp.dir("src/plain");
        site.over(&far, "finish", "other").run().code(5);
        fs::rename(site.p("away/f"), site.p("src/plain/f")).unwrap();
        site.over(&far, "finish", "other").run().code(5).says("src/plain");
        assert_eq!(own(), 2);
    }
    // Another plan is of what is there now.
    plan("again", "");
    site.over(&far, "finish", "again").run().ok();
    assert_eq!(own(), 0);
    // An empty source deletes nothing; nor does one in the destination itself.
    site.tmp.dir("none");
    let words = |name: &str| format!("--verb sync --delete --max-delete 1000 --shards 1 --out {name}");
    let plan_of = |name: &str, source: &Path| {
        way.ends(site.over(&far, "plan", &words(name)), &far, source, &site.p("dst")).run()
    };
    plan_of("q", &site.p("none")).ok();
    site.over(&far, "shard", "q 0").run().ok();
    site.over(&far, "finish", "q").run().code(8).says("the source is empty");
    assert!(site.p("dst/d").exists());
    plan_of("in", &site.p("dst/d")).ok();
    site.over(&far, "shard", "in 0").run().ok();
    assert_ne!(site.over(&far, "finish", "in").run().code, 0);
    assert!(site.p("dst/d/b").exists(), "the source was deleted");
}

/// So many names that the source is asked more than once: more than 65 536, or in an ordinary run more than 4 MiB of them.
#[test]
fn very_many_names_that_only_the_destination_has() {
    let (far, site) = (Far::pipe(), Site::new());
    for name in ["a", "many/b", "z/c"] {
        site.tmp.file(format!("src/{name}"), name);
    }
    site.run("sync -q src dst").ok();
    let (only_there, end) = if all_cases() { (65_900, String::new()) } else { (17_000, "x".repeat(250)) };
    let name = |n: usize| format!("{n}{end}");
    let many = site.p("dst/many");
    for n in 0..only_there {
        fs::File::create(many.join(name(n))).unwrap();
    }
    site.tmp.file("dst/z/own", "only there");
    planned(&far, &site, Dir::Get, "--verb sync --delete --max-delete 70000 --out p --shards 1").ok();
    site.over(&far, "shard", "p --all").run().ok();
    let late = [0, only_there - 1, 9_999].map(name);
    for late in &late {
        fs::File::create(site.p("src/many").join(late)).unwrap();
    }
    site.over(&far, "finish", "p").run().ok();
    let [first, last, between] = &late;
    assert_eq!(names(&many), [first.as_str(), last.as_str(), between.as_str(), "b"]);
    assert_eq!(names(&site.p("dst/z")), ["c"]);
}

#[test]
fn a_sync_whose_connection_is_lost_goes_on() {
    for (n, way) in BOTH.into_iter().enumerate() {
        // An ordinary run cuts a shard one way, as copies in shards are cut both ways; the end is cut both ways here.
        let is_cut = in_slice(n, 2);
        let site = Site::new();
        for n in 0..5000 {
            site.tmp.file(format!("src/{}/{n}", n % 7), noise(n, 200));
        }
        let log = site.p("log");
        let far = || Far::relay().with("RELAY_LOG", &log);
        let cut = |bytes: u64| {
            let which = if way == Dir::Get { "RELAY_DOWN" } else { "RELAY_UP" };
            far().with(which, bytes.to_string())
        };
        let last = || {
            let (up, down) = *passed(&log).last().unwrap();
            if way == Dir::Get { down } else { up }
        };
        let whole = is_cut.then(|| {
            planned(&far(), &site, way, "--verb sync --out whole --shards 1").ok();
            site.over(&far(), "shard", "whole 0 --compress=none").run().ok();
            fs::remove_dir_all(site.p("dst")).unwrap();
            last()
        });
        site.tmp.file("dst/3/own", "only there");
        planned(&far(), &site, way, "--verb sync --delete --out p --shards 1").ok();
        if let Some(all) = whole {
            // In the second of two frames.
            site.over(&cut(all * 9 / 10), "shard", "p 0 --compress=none").run().code(7);
            site.over(&far(), "finish", "p").run().code(1);
        }
        site.over(&far(), "shard", "p 0 --compress=none").run().ok();
        if let Some(all) = whole {
            assert!(last() < all * 3 / 10, "{way:?}: {} of {all} bytes were sent again", last());
        }
        // In the end, wherever it is cut: nothing goes before all was asked.
        for bytes in sliced(if way == Dir::Get { [9000, 2000] } else { [2000, 1000] }, 2) {
            site.over(&cut(bytes), "finish", "p").run().code(7);
            assert!(site.p("dst/3/own").exists(), "{way:?}: {bytes}");
        }
        site.over(&far(), "finish", "p").run().ok();
        fs::remove_file(&log).unwrap();
        site.judge("dst");
    }
}

/// This program, or the one there: whichever makes the call.
#[test]
fn a_sync_that_is_killed_at_any_call_goes_on() {
    needs!(has_tool("strace"), "there is no strace");
    const CALLS: &str =
        "mkdirat,linkat,symlinkat,renameat,renameat2,unlinkat,pwrite64,write,fchmod,fsync,fdatasync,syncfs";
    // An ordinary run takes a half: each way and each verb once.
    let rows = [(Dir::Get, "shard"), (Dir::Get, "finish"), (Dir::Put, "finish"), (Dir::Put, "shard")];
    for (way, verb) in sliced(rows, 2) {
        until_not_killed(900, 89, |nth| {
            let (far, site) = (Far::pipe(), Site::new());
            worn(&site);
            planned(&far, &site, way, "--verb sync --delete --out p --shards 2").ok();
            let ran = site.killed_and_done(&far, verb, (CALLS, nth), || ());
            site.drop_claims();
            site.judge("dst");
            ran
        });
    }
}

/// R2: what was brought and could not be synced counts for nothing.
#[test]
fn a_sync_that_cannot_be_synced_is_not_recorded() {
    needs!(has_tool("strace"), "there is no strace");
    let (far, site) = (Far::pipe(), Site::new());
    worn(&site);
    planned(&far, &site, Dir::Get, "--verb sync --out p --shards 2").ok();
    let words =
        ["-f", "-qq", "-o", "/dev/null", "-e", "inject=syncfs:error=EIO", BCMR, "shard", "p", "--all"];
    let strace = || Line::new(Path::new("strace"));
    far.lead(strace().args(words)).cwd(site.tmp.path()).run().code(1).says("sync");
    site.over(&far, "finish", "p").run().code(1).says("0 1");
}

/// R2: what a server has told to be there of a sync is on stable storage, as nothing syncs it there afterwards.
#[test]
fn a_sync_to_another_machine_is_synced_there() {
    needs!(has_tool("strace"), "there is no strace");
    let (far, site) = (Far::pipe(), Site::new());
    // What takes the place of something is synced in any case.
    mixed(&site);
    planned(&far, &site, Dir::Put, "--verb sync --out p --shards 1").ok();
    let log = site.p("log");
    // With the paths that calls are about.
    let words = ["-f", "-qq", "-y", "-e", "trace=fsync,fdatasync,syncfs", "-o"];
    let strace = Line::new(Path::new("strace")).args(words).args([log.as_os_str()]);
    far.lead(strace.args([BCMR, "shard", "p", "0"])).cwd(site.tmp.path()).run().ok();
    let dst = format!("<{}", site.p("dst").display());
    assert!(fs::read_to_string(&log).unwrap().contains(&dst), "nothing was synced");
}

/// Several processes at one shard, several ends at once, and a result that is damaged.
#[test]
fn a_sync_in_several_places_at_once() {
    for way in BOTH {
        in_several_places(way);
    }
}

fn in_several_places(way: Dir) {
    let (far, site) = (Far::pipe(), Site::new());
    worn(&site);
    planned(&far, &site, way, "--verb sync --delete --out p --shards 2").ok();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for shard in ["0", "1"] {
                    site.over(&far, "shard", &format!("p {shard}")).run().ok();
                }
            });
        }
    });
    let result = site.p("p/results/1");
    let mut bytes = fs::read(&result).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&result, &bytes).unwrap();
    site.over(&far, "finish", "p").run().code(1).says("1");
    site.over(&far, "shard", "p 1").run().ok();
    let ends: Vec<i32> = std::thread::scope(|scope| {
        let end = || site.over(&far, "finish", "p").run().code;
        let runs: Vec<_> = (0..2).map(|_| scope.spawn(end)).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    // The later one finds it finished, or the other one at work.
    assert!(ends.contains(&0) && ends.iter().all(|code| [0, 8].contains(code)), "{ends:?}");
    site.judge("dst");
}

/// A source that is something else than what was planned is not brought, and then nothing is deleted.
#[test]
fn a_sync_of_a_source_that_has_changed() {
    let cases = [
        (Dir::Get, "before", 5, 1),
        (Dir::Get, "gone before", 5, 1),
        (Dir::Get, "in the way", 1, 1),
        (Dir::Get, "a file is gone", 0, 5),
        (Dir::Get, "linked", 0, 5),
        (Dir::Put, "before", 5, 1),
        (Dir::Put, "gone before", 5, 1),
        (Dir::Put, "in the way", 1, 1),
    ];
    for (n, (way, what, shard, finish)) in cases.into_iter().enumerate() {
        // What is tried both ways an ordinary run tries one way.
        if shard != 0 && !in_slice(n % 5 + way as usize, 2) {
            continue;
        }
        let (far, site) = (Far::pipe(), Site::new());
        worn(&site);
        planned(&far, &site, way, "--verb sync --delete --out p --shards 1").ok();
        let path = |name: &str| site.p("src").join(name);
        match what {
            "before" => drop(site.tmp.file("src/d/b", "another")),
            "gone before" => fs::remove_file(path("d/b")).unwrap(),
            "in the way" => drop(site.tmp.file("dst/a/full", "a directory that is not empty")),
            _ => {}
        }
        site.over(&far, "shard", "p 0").run().code(shard);
        match what {
            "a file is gone" => fs::remove_file(path("d/b")).unwrap(),
            "linked" => chmod(&path("a"), 0o611),
            _ => {}
        }
        site.over(&far, "finish", "p").run().code(finish);
        assert!(site.p("dst/own dir/deep/own").exists(), "{way:?}: {what}");
    }
}

/// What differs in the destination, in every way there is.
fn differing(site: &Site) {
    let as_old = |name: &str, change: &dyn Fn(&Path)| {
        let path = site.p(name);
        let mtime = fs::metadata(&path).unwrap().modified().unwrap();
        change(&path);
        fs::File::options().write(true).open(&path).unwrap().set_modified(mtime).unwrap();
    };
    as_old("dst/d/b", &|path| fs::write(path, "TWO").unwrap());
    as_old("dst/z/big", &|path| {
        let mut bytes = fs::read(path).unwrap();
        bytes[7 << 20] ^= 1;
        fs::write(path, bytes).unwrap();
    });
    // The same content at another time, and another one.
    fs::write(site.p("dst/d-x"), "four").unwrap();
    fs::write(site.p("dst/sparse"), "short").unwrap();
    fs::remove_file(site.p("dst/z/y")).unwrap();
    fs::remove_dir_all(site.p("dst/zz")).unwrap();
    fs::remove_dir_all(site.p("dst/d/m")).unwrap();
    site.tmp.file("dst/d/m", "a file where the source has a directory");
    fs::remove_dir(site.p("dst/0empty")).unwrap();
    site.tmp.file("dst/0empty", "another");
    fs::remove_file(site.p("dst/c again")).unwrap();
    site.tmp.file("dst/c again/in it", "a directory where the source has a file");
    fs::remove_file(site.p("dst/d/link")).unwrap();
    symlink("elsewhere", site.p("dst/d/link")).unwrap();
    chmod(&site.p("dst/d/e"), 0o700);
    site.tmp.file("dst/d/own", "only there");
    site.tmp.file("dst/own dir/own", "only there");
}

/// What was told, in an order that is nobody's; of JSON without what tells machines and moments apart.
fn told(ran: &Ran) -> Vec<String> {
    let kept = |line: &&str| {
        !["start", "progress"].iter().any(|event| line.contains(&format!("\"event\":\"{event}\"")))
    };
    let told = ran.out.lines().filter(kept).map(|line| match line.split_once("\"seconds\":") {
        Some((before, _)) => before.to_owned(),
        None => line.to_owned(),
    });
    // The destination itself is told by its whole name, and with its machine where it is on another one.
    let mut lines: Vec<String> = told.map(|line| line.replace(&format!("{HOST}:"), "")).collect();
    lines.sort();
    lines
}

/// Every shard and the end tell what those of a plan at home do, and change nothing.
#[test]
fn a_check_in_shards_with_another_machine_is_that_at_home() {
    let rows = BOTH
        .into_iter()
        .flat_map(|way| ["", "--hash", "--quick", "--no-extra", "-e /d/e -e big"].map(|flags| (way, flags)));
    for (n, (way, flags)) in sliced(rows, 2).enumerate() {
        let (far, site) = (Far::pipe(), Site::new());
        mixed(&site);
        site.run("copy -q -r --archive src dst").ok();
        let words = |plan: &str| format!("--verb check {flags} --out {plan} --shards 3");
        for (plan, code) in [("same", 0), ("other", 1)] {
            // An ordinary run compares what is the same with each second row.
            if code == 0 && !in_slice(n, 2) {
                continue;
            }
            let what = format!("{way:?} {flags}: {plan}");
            if code == 1 {
                differing(&site);
                // What an unfinished copy needs is nothing that only the destination has.
                site.run("plan -q src dst/d/copy --out unfinished --shards 1").ok();
            }
            let before = tree(&site.p("dst"));
            let (near, there) = (format!("{plan}-near"), format!("{plan}-there"));
            site.line("plan").args(words(&near).split_whitespace()).args(["src", "dst"]).run().ok();
            planned(&far, &site, way, &words(&there)).ok();
            let json = |at: usize| if at.is_multiple_of(2) { " --json" } else { "" };
            for shard in 0..3 {
                let home = site.run(&format!("shard {near} {shard}{}", json(shard))).ok();
                let ran = site.over(&far, "shard", &format!("{there} {shard}{}", json(shard))).run().ok();
                assert_eq!(told(&ran), told(&home), "{what}, shard {shard}");
            }
            let time = |d: PathBuf| (d.clone(), fs::metadata(d).unwrap().modified().unwrap());
            let times = ["src/d", "dst/d"].map(|d| time(site.p(d)));
            // What has come to be on both sides since is nothing that only one of them has.
            site.tmp.file("src/d/late", "late");
            site.tmp.file("dst/d/late", "late");
            for (m, json) in ["", " --json"].into_iter().enumerate() {
                if !in_slice(n + m + usize::from(code == 1), 2) {
                    continue;
                }
                let home = site.run(&format!("finish {near}{json}")).code(code);
                let ran = site.over(&far, "finish", &format!("{there}{json}")).run().code(code);
                assert_eq!(told(&ran), told(&home), "{what}, the end");
                assert!(!ran.out.contains("late") && !ran.out.contains(".bcmr-"), "{what}: {}", ran.out);
                let tells_extra = code == 1 && flags != "--no-extra";
                assert_eq!(ran.out.contains("own"), tells_extra, "{what}: {}", ran.out);
                let again = site.over(&far, "finish", &format!("{there}{json}")).run().code(code);
                assert_eq!(told(&again), told(&ran), "{what}: asked a second time, it says the same");
            }
            fs::remove_file(site.p("src/d/late")).unwrap();
            fs::remove_file(site.p("dst/d/late")).unwrap();
            for (d, time) in &times {
                fs::File::open(d).unwrap().set_modified(*time).unwrap();
            }
            assert_eq!(differences(&before, &tree(&site.p("dst")), EVERYTHING), [""; 0], "{what}");
        }
    }
}

/// Nothing there, or something that is no directory; and a source whose directories are files by now, and the other way round.
#[test]
fn a_check_of_another_kind_of_thing_is_that_at_home() {
    type Change = fn(&Site);
    let cases: [(&str, Change, Change); 5] = [
        ("absent", |site| fs::remove_dir_all(site.p("dst")).unwrap(), |_| {}),
        (
            "a file",
            |site| {
                fs::remove_dir_all(site.p("dst")).unwrap();
                site.tmp.file("dst", "file");
            },
            |_| {},
        ),
        (
            "a directory that is a file by now",
            |_| {},
            |site| {
                fs::remove_dir_all(site.p("src/zz")).unwrap();
                site.tmp.file("src/zz", "a file");
            },
        ),
        (
            "a file that is a directory by now",
            |_| {},
            |site| {
                fs::remove_file(site.p("src/a")).unwrap();
                site.tmp.file("src/a/in", "it");
            },
        ),
        ("gone", |_| {}, |site| fs::remove_file(site.p("src/d/b")).unwrap()),
    ];
    for (what, before, after) in cases {
        let (far, site) = (Far::pipe(), Site::new());
        mixed(&site);
        site.run("copy -q -r --archive src dst").ok();
        before(&site);
        let home = site.run("plan --verb check --out near --shards 1 src dst");
        planned(&far, &site, Dir::Put, "--verb check --out there --shards 1").code(home.code);
        if what == "a file" {
            assert_eq!((home.code, site.p("there").exists()), (1, false));
            continue;
        }
        after(&site);
        let home = site.run("shard near 0");
        let ran = site.over(&far, "shard", "there 0").run().code(home.code);
        if home.code == 0 {
            assert_eq!(told(&ran), told(&home), "{what}");
        }
        let home = site.run("finish near");
        let ran = site.over(&far, "finish", "there").run().code(home.code);
        assert_eq!(told(&ran), told(&home), "{what}");
    }
}

/// How many differences a comparison has counted, and what is missing: files and bytes.
fn counted(ran: &[Ran]) -> (u64, u64, u64) {
    let (mut differences, mut files, mut bytes) = (0, 0, 0);
    for line in ran.iter().flat_map(|ran| ran.out.lines()) {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = |field: &str| event[field].as_u64().unwrap();
        match (event["event"].as_str(), event["change"].as_str()) {
            (Some("summary"), _) => differences = number("differences"),
            (_, Some("add")) => (files, bytes) = (files + number("files"), bytes + number("bytes")),
            _ => {}
        }
    }
    (differences, files, bytes)
}

/// The end and the shards together count what one comparison does, the two directories themselves among that; so they do where
/// the destination is not there, or is no directory any more.
#[test]
fn a_check_in_shards_counts_as_one_does() {
    for what in ["differs", "the top differs", "absent", "a file by now"] {
        let (far, site) = (Far::pipe(), Site::new());
        mixed(&site);
        for name in ["m/1", "m/2", "m/n/3", "m/n/o/4", "m/n/o/5"] {
            site.tmp.file(format!("src/{name}"), name);
        }
        site.run("copy -q -r --archive src dst").ok();
        let (top, z) = (stamps(&site.p("dst")), stamps(&site.p("dst/z")));
        let plans = [("near", None), ("put", Some(Dir::Put)), ("get", Some(Dir::Get))];
        let plan = |plan: &str, way: Option<Dir>, shards: u32| {
            let words = format!("--verb check --out {plan}{shards} --shards {shards}");
            match way {
                None => site.run(&format!("plan {words} src dst")).ok(),
                Some(way) => planned(&far, &site, way, &words).ok(),
            };
        };
        let plan_all = || {
            plans
                .iter()
                .for_each(|(name, way)| [1, 7].into_iter().for_each(|shards| plan(name, *way, shards)));
        };
        match what {
            "differs" => {
                std::fs::remove_dir_all(site.p("dst/m")).unwrap();
                std::fs::remove_file(site.p("dst/z/y")).unwrap();
                std::fs::remove_dir_all(site.p("dst/zz")).unwrap();
                std::fs::remove_dir_all(site.p("dst/d")).unwrap();
                site.tmp.file("dst/d", "a file where the source has a directory");
                restamp(&site.p("dst"), &top);
                restamp(&site.p("dst/z"), &z);
            }
            "the top differs" => chmod(&site.p("dst"), 0o700),
            "absent" => std::fs::remove_dir_all(site.p("dst")).unwrap(),
            _ => {}
        }
        plan_all();
        if what == "a file by now" {
            std::fs::remove_dir_all(site.p("dst")).unwrap();
            site.tmp.file("dst", "a file");
        }
        let one = counted(&[site.run("check --archive -T --json src dst").code(1)]);
        if what == "the top differs" {
            assert_eq!(one, (1, 0, 0));
        }
        for (name, way) in plans {
            for shards in [1, 7] {
                let plan = format!("{name}{shards}");
                let line = |verb: &str, words: &str| match way {
                    None => site.run(&format!("{verb} {words}")),
                    Some(_) => site.over(&far, verb, words).run(),
                };
                let mut all: Vec<Ran> =
                    (0..shards).map(|n| line("shard", &format!("{plan} {n} --json")).ok()).collect();
                all.push(line("finish", &format!("{plan} --json")).code(1));
                assert_eq!(counted(&all), one, "{what}: {plan}");
            }
        }
    }
}

fn stamps(path: &Path) -> fs::Metadata {
    fs::metadata(path).unwrap()
}

fn restamp(path: &Path, was: &fs::Metadata) {
    fs::File::open(path).unwrap().set_modified(was.modified().unwrap()).unwrap();
}

/// What cannot be compared is told, and its shard is to be done again; so is one whose connection was lost.
#[test]
fn a_check_with_another_machine_that_is_not_whole() {
    for way in BOTH {
        let site = Site::new();
        mixed(&site);
        site.run("copy -q -r --archive src dst").ok();
        let root = site.tmp.path().display().to_string();
        let far = Far::pipe().serving(&format!("--read-only --root {root}"));
        let ends = |up: &str| match way {
            Dir::Get => format!("host:{up}src dst"),
            Dir::Put => format!("src host:{up}dst"),
        };
        let words =
            |up: &str, plan: &str| format!("--verb check --hash {} --out {plan} --shards 2", ends(up));
        site.over(&far, "plan", &words("../", "q")).run().code(8);
        assert!(!site.p("q").exists(), "{way:?}");
        site.over(&far, "plan", &words("", "p")).run().ok();
        let mtime = fs::metadata(site.p("src/d")).unwrap().modified().unwrap();
        let renamed = |from: &str, to: &str| {
            fs::rename(site.p(from), site.p(to)).unwrap();
            fs::File::open(site.p("src/d")).unwrap().set_modified(mtime).unwrap();
        };
        renamed("src/d/b", "b");
        site.over(&far, "shard", "p --all").run().code(5).says("d/b");
        site.over(&far, "finish", "p").run().code(1).says("without a result");
        renamed("b", "src/d/b");
        let cut =
            |bytes: &str| Far::relay().with(if way == Dir::Get { "RELAY_DOWN" } else { "RELAY_UP" }, bytes);
        planned(&Far::relay(), &site, way, "--verb check --out lost --shards 1").ok();
        site.over(&cut("1000"), "shard", "lost 0").run().code(7);
        site.over(&Far::relay(), "finish", "lost").run().code(1).says("without a result");
        site.over(&far, "shard", "p --all").run().ok();
        // The end asks for nothing where all that one side has is at hand.
        if way == Dir::Put {
            let top = stamps(&site.p("src"));
            site.over(&cut("500"), "finish", "p").run().code(7);
            renamed("src/d/b", "b");
            site.over(&far, "finish", "p").run().code(1).says("d/b");
            renamed("b", "src/d/b");
            // All that the plan names, in another directory.
            fs::rename(site.p("src/d"), site.p("away")).unwrap();
            site.run("copy -q -r --archive -T away src/d").ok();
            site.over(&far, "finish", "p").run().code(5).says("src/d");
            fs::remove_dir_all(site.p("src/d")).unwrap();
            fs::rename(site.p("away"), site.p("src/d")).unwrap();
            fs::rename(site.p("src"), site.p("away")).unwrap();
            site.tmp.dir("src");
            site.over(&far, "shard", "p 0").run().one_of(&[0, 8]);
            site.over(&far, "finish", "p").run().code(8);
            fs::remove_dir(site.p("src")).unwrap();
            fs::rename(site.p("away"), site.p("src")).unwrap();
            restamp(&site.p("src"), &top);
        }
        site.over(&far, "finish", "p").run().ok();
        site.over(&Far::relay(), "shard", "lost 0").run().ok();
        site.over(&Far::relay(), "finish", "lost").run().ok();
        assert_no_litter(&site.p("dst"));
    }
}

/// This program, or the one there: what was found is counted in the end all the same.
#[test]
fn a_check_with_another_machine_that_is_killed_goes_on() {
    needs!(has_tool("strace"), "there is no strace");
    const CALLS: &str = "write,writev,renameat,linkat,fsync,fdatasync,openat";
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    site.run("copy -q -r --archive src dst").ok();
    let plan = |name: &str| {
        planned(&far, &site, Dir::Put, &format!("--verb check --hash --out {name} --shards 2")).ok();
    };
    plan("same");
    site.over(&far, "shard", "same --all").run().ok();
    until_not_killed(900, 37, |at| {
        let ran = far.lead(bcmr_killed_at(at, CALLS).args(["finish", "same"])).cwd(site.tmp.path()).run();
        site.over(&far, "finish", "same").run().ok();
        ran
    });
    differing(&site);
    let before = tree(&site.p("dst"));
    let ended = |name: &str| {
        let told = told(&site.over(&far, "finish", &format!("{name} --json")).run().code(1));
        told.last().unwrap().clone()
    };
    plan("whole");
    site.over(&far, "shard", "whole --all").run().ok();
    let whole = ended("whole");
    until_not_killed(900, 37, |at| {
        plan("killed");
        let words = ["shard", "killed", "--all", "-j1"];
        let ran = far.lead(bcmr_killed_at(at, CALLS).args(words)).cwd(site.tmp.path()).run();
        site.over(&far, "shard", "killed --all").run().ok();
        assert_eq!(ended("killed"), whole, "{at}");
        fs::remove_dir_all(site.p("killed")).unwrap();
        ran
    });
    assert_eq!(differences(&before, &tree(&site.p("dst")), EVERYTHING), [""; 0]);
}

/// Plans the removal of the source.
fn removal(far: &Far, site: &Site, shards: u32) -> Ran {
    let words = format!("--verb remove --out p --shards {shards}");
    site.over(far, "plan", &words).args([far.at(site.p("src"))]).run()
}

#[test]
fn a_removal_in_shards_on_another_machine_takes_what_was_planned() {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    for n in 0..300 {
        site.tmp.file(format!("src/d{}/{n}", n % 3), n.to_string());
    }
    site.tmp.file("beside", "stays");
    symlink("../../beside", site.p("src/d/out")).unwrap();
    removal(&far, &site, 4).ok();
    site.tmp.file("src/d/b", "another content");
    site.tmp.file("src/z/late", "late");
    for shard in [3, 1, 0, 2] {
        site.over(&far, "shard", &format!("p {shard}")).run().one_of(&[0, 5]);
    }
    assert!(site.p("src/d/b").exists() && site.p("beside").exists());
    site.over(&far, "finish", "p").run().code(1).says("without a result");
    fs::remove_file(site.p("src/d/b")).unwrap();
    site.over(&far, "shard", "p --all").run().ok();
    assert!(!site.p("src/a").exists() && site.p("src/z/late").exists(), "names go, directories in the end");
    assert!(site.p("src/d/m/empty").exists());
    site.over(&far, "finish", "p").run().code(1).says("src/z");
    assert!(site.p("src/z/late").exists() && !site.p("src/d").exists());
    fs::remove_file(site.p("src/z/late")).unwrap();
    site.over(&far, "finish", "p").run().ok();
    assert!(!site.p("src").exists() && site.p("beside").exists());
    site.over(&far, "finish", "p").run().ok().says("is finished");
    // Where the end had done all of it, and was stopped before it could say so.
    fs::remove_file(site.p("p/receipt")).unwrap();
    site.over(&far, "finish", "p").run().ok();
    assert_no_litter(site.tmp.path());
}

/// What is mounted below what is removed stays there as well.
#[test]
fn a_removal_on_another_machine_goes_through_no_mount() {
    needs!(is_root(), "mounting needs root");
    let (far, site) = (Far::pipe(), Site::new());
    site.tmp.file("src/a", "goes");
    site.tmp.file("other/sub/precious", "stays");
    site.tmp.dir("src/m");
    let Ok(mounted) = Mount::bind(&site.p("other"), &site.p("src/m")) else {
        return skipped("a removal on another machine that goes through no mount", "there are no mounts");
    };
    removal(&far, &site, 1).ok();
    site.over(&far, "shard", "p --all").run().code(8).says("src/m': it is a mount point");
    assert!(site.p("other/sub/precious").exists() && !site.p("src/a").exists());
    drop(mounted);
}

/// What is never removed, however it is called; and a source that is another one by now.
#[test]
fn a_removal_on_another_machine_is_guarded() {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    symlink("/", site.p("root")).unwrap();
    let home = far.home();
    let above = home.parent().unwrap().to_owned();
    let never = ["/".into(), "/.".into(), "".into(), ".".into(), "..".into(), home.clone(), above];
    for path in never.into_iter().chain([site.p("root"), home.join(".")]) {
        let words = "--verb remove --out q --shards 1";
        let ran = site.over(&far, "plan", words).args([far.at(&path)]).run();
        assert_ne!(ran.code, 0, "{path:?}");
        assert!(!site.p("q").exists(), "{path:?}: {}", ran.err);
        let why = match path.to_str().unwrap() {
            "/" | "/." => "it is the root directory",
            "" => "it is the current directory",
            _ => "",
        };
        assert!(ran.err.contains(why), "{path:?}: {}", ran.err);
    }
    removal(&far, &site, 1).ok();
    fs::rename(site.p("src"), site.p("was")).unwrap();
    site.tmp.file("src/a", "one");
    site.over(&far, "shard", "p 0").run().code(8);
    fs::remove_dir_all(site.p("src")).unwrap();
    fs::rename(site.p("was"), site.p("src")).unwrap();
    let reads = Far::pipe().serving("--read-only");
    site.over(&reads, "shard", "p 0").run().code(8);
    assert!(site.p("src/a").exists());
    site.over(&far, "shard", "p 0").run().ok();
    fs::rename(site.p("src"), site.p("was")).unwrap();
    site.tmp.dir("src/z");
    site.over(&far, "finish", "p").run().code(8);
    assert!(site.p("src/z").exists());
}

/// M1: nothing is deleted over there for a source that is not mounted here as it was.
#[test]
fn a_plan_to_there_for_a_source_that_is_not_mounted_as_it_was_deletes_nothing() {
    needs!(is_root(), "only root can mount");
    let (far, site) = (Far::pipe(), Site::new());
    site.tmp.file("src/below", "what the disk is mounted over");
    let Ok(mount) = Mount::tmpfs("size=1m", &site.p("src")) else {
        return skipped("a plan to there for a source that is not mounted as it was", "there are no mounts");
    };
    site.tmp.file("src/on the disk", "kept");
    let run = |mut line: Line| {
        line.0.env("XDG_STATE_HOME", site.p("state"));
        line.run()
    };
    let plan = |name: &str| {
        let words = format!("--verb sync --delete --shards 1 --out {name}");
        let line = site.over(&far, "plan", &words);
        run(Dir::Put.ends(line, &far, &site.p("src"), &site.p("dst")))
    };
    plan("p").ok();
    run(site.over(&far, "shard", "p 0")).ok();
    run(site.over(&far, "finish", "p")).ok();
    plan("mounted").ok();
    run(site.over(&far, "shard", "mounted 0")).ok();
    drop(mount);
    plan("q").code(8).says("file system of its own");
    assert!(!site.p("q").exists());
    assert_ne!(run(site.over(&far, "finish", "mounted")).code, 0);
    assert_eq!(names(&site.p("dst")), ["on the disk"]);
}

/// What a link leads to is not what was named.
#[test]
fn a_link_to_a_directory_is_not_removed_as_one_there() {
    let (far, site) = (Far::pipe(), Site::new());
    site.tmp.file("real/sub/1", "one");
    symlink("real", site.p("link")).unwrap();
    for link in ["link", "link/", "link/."] {
        let words = "--verb remove --out q --shards 1";
        let ran = site.over(&far, "plan", words).args([far.at(site.p("").join(link))]).run();
        assert_eq!((ran.code, site.p("q").exists()), (1, false), "{link}: {}", ran.err);
        ran.says("Not a directory");
    }
    assert!(site.p("real/sub/1").exists());
    // The twin, with what may stand behind a name.
    let words = "--verb remove --out q --shards 1";
    site.over(&far, "plan", words).args([far.at(site.p("real/"))]).run().ok();
    site.over(&far, "shard", "q 0").run().ok();
    site.over(&far, "finish", "q").run().ok();
    assert!(!site.p("real").exists());
}

/// Shut in, and below the home directory there.
#[test]
fn a_removal_by_a_server_that_is_shut_in() {
    let site = Site::new();
    mixed(&site);
    let far = Far::pipe().serving(&format!("--root {}", site.tmp.path().display()));
    site.over(&far, "plan", "--verb remove host:../src --out q").run().code(8);
    site.over(&far, "plan", "--verb remove host:/ --out q").run().code(8);
    assert!(!site.p("q").exists());
    site.over(&far, "plan", "--verb remove host:src --out p --shards 2").run().ok();
    site.over(&far, "shard", "p --all").run().ok();
    site.over(&far, "finish", "p").run().ok();
    assert!(!site.p("src").exists());
    let far = Far::pipe();
    fs::create_dir_all(far.home().join("old/in/it")).unwrap();
    site.over(&far, "plan", "--verb remove host:old --out o --shards 1").run().ok();
    site.over(&far, "shard", "o 0").run().ok();
    site.over(&far, "finish", "o").run().ok();
    assert!(!far.home().join("old").exists());
}

#[test]
fn a_removal_whose_connection_is_lost_or_that_is_killed_goes_on() {
    let site = Site::new();
    mixed(&site);
    removal(&Far::relay(), &site, 1).ok();
    site.over(&Far::relay().with("RELAY_DOWN", "700"), "shard", "p 0").run().code(7);
    site.over(&Far::relay(), "shard", "p 0").run().ok();
    site.over(&Far::relay().with("RELAY_DOWN", "700"), "finish", "p").run().code(7);
    site.over(&Far::relay(), "finish", "p").run().ok();
    assert!(!site.p("src").exists());
    needs!(has_tool("strace"), "there is no strace");
    for verb in ["shard", "finish"] {
        until_not_killed(900, 17, |nth| {
            let (far, site) = (Far::pipe(), Site::new());
            mixed(&site);
            site.tmp.file("beside", "stays");
            removal(&far, &site, 2).ok();
            let calls = "unlinkat,write,renameat,linkat,fsync,fdatasync";
            let ran = site.killed_and_done(&far, verb, (calls, nth), || ());
            assert!(!site.p("src").exists() && site.p("beside").exists());
            ran
        });
    }
}

/// Every command of docs/many-machines.md that names another machine does what it says.
#[test]
fn the_commands_of_the_document_between_machines_work() {
    needs!(has_tool("xargs"), "there is no xargs");
    let text = include_str!("../../../../docs/many-machines.md");
    let blocks: Vec<&str> =
        text.split("```sh hosts\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 3, "{blocks:?}");
    for block in blocks {
        let site = Site::new();
        mixed(&site);
        let far = Far::pipe().serving(&format!("--root {}", site.tmp.path().display()));
        let bin = site.tmp.dir("bin");
        far.shim(&bin);
        let line = Line::new(Path::new("sh")).args(["-ec", block]).cwd(site.tmp.path());
        let mut line = far.around(line);
        line.0.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
        line.run().ok();
        if block.contains("--verb remove") {
            assert!(!site.p("src").exists());
        } else {
            site.judge("dst");
        }
    }
}
