//! Copies in shards whose source is on another machine: one connection for each shard and one for the end, and the same plan, the same
//! tree and the same root as at home.
//!
//! Must not know how a shard is read.

use super::common::maker::{self, Maker};
use super::common::remote::{Far, passed};
use super::common::*;
use super::plan::{Site, mixed, root_of};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

/// Plans the copy of the source to `dst`.
fn planned(far: &Far, site: &Site, words: &str) -> Ran {
    site.over(far, "plan", "").args([far.at(site.p("src"))]).args(words.split(' ')).run()
}

#[test]
fn shards_from_another_machine_are_the_source_and_one_root() {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    site.tmp.file("src/z/own attributes", "six");
    attributes_of(&site);
    site.run("plan src here --out h --shards 4 --part-size 1T").ok();
    site.run("shard h --all").ok();
    let root = root_of(&site.run("finish h").ok());
    planned(&far, &site, "dst --out p --shards 4").ok();
    assert!(!site.p("dst").exists());
    // The very same entries as where the source is.
    for shard in 0..4 {
        let of = |plan: &str| fs::read(site.p(plan).join(format!("shard-{shard}"))).unwrap();
        assert!(of("p") == of("h"), "shard {shard} differs from the one at home");
    }
    site.over(&far, "finish", "p").run().code(1).says("0 1 2 3");
    for shard in ["3", "1 -V", "3", "--next", "--all"] {
        site.over(&far, "shard", &format!("p {shard}")).run().ok();
        assert!(!site.p("dst").exists(), "published before it was finished");
    }
    site.run("plan --status p").ok();
    let ran = site.over(&far, "finish", "p").run().ok();
    site.judge("dst");
    assert_eq!(root_of(&ran), root);
    site.run("check --manifest p/manifest dst").ok();
    site.over(&far, "finish", "p").run().ok().says("the plan is finished");
    // Where the end was published, and stopped before it could say so.
    fs::remove_file(site.p("p/receipt")).unwrap();
    assert_eq!(root_of(&site.over(&far, "finish", "p").run().ok()), root);
    site.judge("dst");
}

/// Attributes that directories and files may have, where the file system keeps them.
fn attributes_of(site: &Site) {
    for name in ["src", "src/z", "src/0empty", "src/z/own attributes"] {
        if fs::metadata(site.p(name)).is_ok() {
            let _kept = std::process::Command::new("setfattr")
                .args(["-n", "user.colour", "-v", name])
                .arg(site.p(name))
                .status()
                .is_ok();
        }
    }
}

#[test]
fn random_trees_from_another_machine() {
    for seed in 0..if all_cases() { 40 } else { 2 } {
        let (far, site) = (Far::pipe(), Site::new());
        let can = maker::can(site.tmp.path(), (-1 << 40, 1 << 40), 1 << 14);
        let src = site.p("src");
        let mut maker = Maker::new(seed, can, &src);
        maker.make(150);
        maker.age();
        planned(&far, &site, "dst --out p --shards 6").ok();
        site.over(&far, "shard", "p --all").run().ok();
        site.over(&far, "finish", "p").run().one_of(&[0, 1]);
        maker::judge(seed, "in shards from another machine", &src, &site.p("dst"));
        assert_no_litter(site.tmp.path());
    }
}

/// A source below the home directory there, a server that writes nothing and is shut in, and names that are left out.
#[test]
fn a_server_that_only_reads_is_enough() {
    let site = Site::new();
    mixed(&site);
    let root = site.tmp.path().display().to_string();
    let far = Far::pipe().serving(&format!("--read-only --root {root}"));
    site.over(&far, "plan", "host:../src dst --out q").run().code(8);
    site.over(&far, "plan", "host:none dst --out q").run().code(1);
    assert!(!site.p("q").exists());
    site.over(&far, "plan", "host:src dst --out p --shards 2").run().ok();
    site.over(&far, "shard", "p --all").run().ok();
    site.over(&far, "finish", "p").run().ok();
    site.judge("dst");
    // A directory all of whose names are left out is empty here, and is not gone into.
    site.over(&far, "plan", "host:src some --out e --shards 2 -e /z/* -e fifo").run().ok();
    site.over(&far, "shard", "e --all").run().ok();
    site.over(&far, "finish", "e").run().ok();
    assert!(names(&site.p("some/z")).is_empty() && site.p("some/d/b").exists());
    assert!(!site.p("some/d/fifo").exists());
    let mode = |name: &str| fs::metadata(site.p(name)).unwrap().mode();
    assert_eq!(mode("some/z"), mode("src/z"));
}

/// With `--merge` the tree goes into what is there, as the destination is here.
#[test]
fn what_comes_from_another_machine_is_merged() {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    planned(&far, &site, "dst --out p --shards 2").ok();
    site.over(&far, "shard", "p --all").run().ok();
    site.tmp.file("dst/d/own", "own");
    site.over(&far, "finish", "p").run().code(1).says("is there already");
    site.over(&far, "finish", "p --merge").run().ok();
    assert_eq!(fs::read(site.p("dst/d/own")).unwrap(), b"own");
    fs::remove_file(site.p("dst/d/own")).unwrap();
    site.over(&far, "finish", "p").run().ok();
    assert_eq!(fs::read(site.p("dst/d/b")).unwrap(), b"two");
    assert_no_litter(site.tmp.path());
}

#[test]
fn a_connection_that_is_lost_costs_what_was_not_recorded() {
    let site = Site::new();
    for n in 0..5000 {
        site.tmp.file(format!("src/{}/{n}", n % 7), noise(n, 200));
    }
    let log = site.p("log");
    let far = || Far::relay().with("RELAY_LOG", &log);
    planned(&far(), &site, "other --out whole --shards 1").ok();
    site.over(&far(), "shard", "whole 0 --compress=none").run().ok();
    let all = passed(&log)[1].1;
    if all_cases() {
        site.over(&far(), "finish", "whole").run().ok();
        fs::remove_dir_all(site.p("other")).unwrap();
    } else {
        // It was only to be measured.
        fs::remove_dir_all(site.stage()).unwrap();
    }
    planned(&far(), &site, "dst --out p --shards 1").ok();
    // In the second of two frames.
    let cut = far().with("RELAY_DOWN", (all * 9 / 10).to_string());
    site.over(&cut, "shard", "p 0 --compress=none").run().code(7);
    site.over(&far(), "finish", "p").run().code(1);
    site.over(&far(), "shard", "p 0 --compress=none").run().ok();
    let again = passed(&log).last().unwrap().1;
    assert!(again < all * 3 / 10, "{again} of {all} bytes were sent again");
    // By itself, where it is asked to: in an ordinary run only to another machine, as who tries again is the same.
    if all_cases() {
        fs::remove_file(site.p("p/results/0")).unwrap();
        let once = far().with("RELAY_DOWN", (all / 9).to_string()).with("RELAY_ONCE", site.p("once"));
        site.over(&once, "shard", "p 0 --retries=1").run().ok();
        fs::remove_file(site.p("once")).unwrap();
    }
    site.over(&far().with("RELAY_DOWN", "2000"), "finish", "p").run().code(7);
    assert!(!site.p("dst").exists());
    site.over(&far(), "finish", "p").run().ok();
    fs::remove_file(&log).unwrap();
    site.judge("dst");
}

/// R2: what was told to be there and could not be synced counts for nothing.
#[test]
fn what_cannot_be_synced_is_not_recorded() {
    needs!(has_tool("strace"), "there is no strace");
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    planned(&far, &site, "dst --out p --shards 2").ok();
    let words =
        ["-f", "-qq", "-o", "/dev/null", "-e", "inject=syncfs:error=EIO", BCMR, "shard", "p", "--all"];
    let strace = || Line::new(std::path::Path::new("strace"));
    far.lead(strace().args(words)).cwd(site.tmp.path()).run().code(1).says("sync");
    site.over(&far, "finish", "p").run().code(1).says("0 1");
    site.over(&far, "shard", "p --all").run().ok();
    site.over(&far, "finish", "p").run().ok();
    site.judge("dst");
}

/// What runs that were killed have left in the tree under names of their own goes in the end.
#[test]
fn what_killed_runs_have_left_is_swept() {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    planned(&far, &site, "dst --out p --shards 2").ok();
    site.over(&far, "shard", "p --all").run().ok();
    let left = ".bcmr-r-0123456789abcdef0123456789abcdef.stage";
    for dir in ["", "d", "z"] {
        fs::write(site.stage().join(dir).join(left), "half").unwrap();
    }
    site.over(&far, "finish", "p").run().ok();
    site.judge("dst");
}

/// This program, or the one there: whichever makes the call.
#[test]
fn what_is_killed_at_any_call_goes_on() {
    needs!(has_tool("strace"), "there is no strace");
    const CALLS: &str =
        "mkdirat,linkat,symlinkat,renameat,renameat2,unlinkat,pwrite64,write,fchmod,fsync,fdatasync,syncfs";
    for verb in ["shard", "finish"] {
        until_not_killed(900, 53, |nth| {
            let (far, site) = (Far::pipe(), Site::new());
            mixed(&site);
            planned(&far, &site, "dst --out p --shards 2").ok();
            let ran = site.killed_and_done(&far, verb, (CALLS, nth), || {
                if site.p("dst").exists() {
                    assert_same(&site.p("src"), &site.p("dst"), EVERYTHING);
                }
            });
            site.drop_claims();
            site.judge("dst");
            ran
        });
    }
}

#[test]
fn a_source_that_has_changed_is_not_published() {
    for (what, shard, finish) in [
        ("before", 5, 1),
        ("touched before", 5, 1),
        ("gone before", 5, 1),
        ("of another kind before", 5, 1),
        ("another source", 8, 1),
        ("a file is gone", 0, 5),
        ("a file is a directory", 0, 5),
        ("an empty directory is gone", 0, 5),
        ("linked", 0, 5),
        ("another source in the end", 0, 8),
    ] {
        let (far, site) = (Far::pipe(), Site::new());
        mixed(&site);
        planned(&far, &site, "dst --out p --shards 1").ok();
        let path = |name: &str| site.p("src").join(name);
        let other_source = || {
            fs::rename(site.p("src"), site.p("was")).unwrap();
            site.tmp.dir("src");
        };
        match what {
            "before" => drop(site.tmp.file("src/d/b", "another")),
            // Another version with the same content.
            "touched before" => drop(site.tmp.file("src/d/b", "two")),
            "gone before" => fs::remove_file(path("d/b")).unwrap(),
            "of another kind before" => {
                fs::remove_dir_all(path("d/e")).unwrap();
                site.tmp.file("src/d/e", "a file");
            }
            "another source" => other_source(),
            _ => {}
        }
        site.over(&far, "shard", "p 0").run().code(shard);
        match what {
            "a file is gone" => fs::remove_file(path("d/b")).unwrap(),
            "a file is a directory" => {
                fs::remove_file(path("d/b")).unwrap();
                site.tmp.dir("src/d/b");
            }
            "an empty directory is gone" => fs::remove_dir(path("d/m/empty")).unwrap(),
            "linked" => chmod(&path("a"), 0o611),
            "another source in the end" => other_source(),
            _ => {}
        }
        site.over(&far, "finish", "p").run().code(finish);
        assert!(!site.p("dst").exists(), "{what}");
        assert!(site.stage().exists(), "{what}");
    }
}

/// What a shard left and no frame speaks of is not believed, and what is in the way is told; nothing of it goes.
#[test]
fn only_what_the_plan_says_is_published() {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    planned(&far, &site, "dst --out p --shards 2").ok();
    // As if a run that was killed had left them.
    let tree = site.stage();
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("d/b"), "tw").unwrap();
    symlink("/etc/hostname", tree.join("a")).unwrap();
    site.over(&far, "shard", "p --all").run().ok();
    let stranger = tree.join("d/stranger");
    fs::write(&stranger, "of someone else").unwrap();
    site.over(&far, "finish", "p").run().code(8);
    assert_eq!(fs::read(&stranger).unwrap(), b"of someone else");
    fs::remove_file(&stranger).unwrap();
    // A result that is damaged counts for none.
    let result = site.p("p/results/1");
    let mut bytes = fs::read(&result).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&result, &bytes).unwrap();
    site.over(&far, "finish", "p").run().code(1).says("1");
    site.over(&far, "shard", "p 1").run().ok();
    site.over(&far, "finish", "p").run().ok();
    site.judge("dst");
}

/// Two processes at one shard, and one that takes what the other has not begun.
#[test]
fn one_shard_in_two_places_at_once() {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    planned(&far, &site, "dst --out p --shards 2").ok();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for shard in ["0", "1"] {
                    site.over(&far, "shard", &format!("p {shard}")).run().ok();
                }
            });
        }
    });
    site.over(&far, "finish", "p").run().ok();
    site.judge("dst");
}

#[test]
fn what_a_plan_from_another_machine_cannot_do_is_refused() {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    for words in [
        "host:src host:dst --out q",
        "--verb sync host:src host:dst --out q",
        "--verb check host:src host:dst --out q",
        "--verb remove host:src dst --out q",
        "host:src dst --part-size 4M --out q",
    ] {
        site.over(&far, "plan", words).run().code(2);
        assert!(!site.p("q").exists(), "{words}");
    }
    // The same machine: neither the destination nor the plan is put into what is copied.
    planned(&far, &site, "src/in --out q").code(8);
    planned(&far, &site, "dst --out src/q").code(8);
    planned(&far, &site, "src --out q").code(8);
    assert!(!site.p("q").exists() && !site.p("src/q").exists());
    planned(&far, &site, "dst --out p --shards 1").ok();
    site.over(&far, "shard", "p 0 --direct").run().code(2);
    site.over(&far, "shard", "p 0 --parallel=2").run().code(2);
}
