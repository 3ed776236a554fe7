//! Copies in shards whose destination is on another machine: one connection for each shard and one for the end, and the same tree
//! and the same root as at home.
//!
//! Must not know how a shard is sent.

use super::common::remote::{Far, passed};
use super::common::*;
use super::plan::{Site, mixed, root_of};
use std::fs;

fn planned(far: &Far, site: &Site, shards: u32) {
    let words = format!("src --out p --shards {shards}");
    site.over(far, "plan", &words).args([far.at(site.p("far"))]).run().ok();
}

#[test]
fn shards_over_connections_are_the_source_and_one_root() {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    site.run("plan src here --out h --shards 1").ok();
    site.run("shard h 0").ok();
    let root = root_of(&site.run("finish h").ok());
    planned(&far, &site, 4);
    assert!(!site.p("far").exists());
    site.over(&far, "finish", "p").run().code(1).says("0 1 2 3");
    for shard in ["3", "1 -V", "--next", "--all"] {
        site.over(&far, "shard", &format!("p {shard}")).run().ok();
        assert!(!site.p("far").exists(), "published before it was finished");
    }
    let ran = site.over(&far, "finish", "p").run().ok();
    site.judge("far");
    assert_eq!(root_of(&ran), root);
    site.run("check --manifest p/manifest far").ok();
    site.over(&far, "finish", "p").run().ok().says("the plan is finished");
    // Where the end was published, and stopped before it could say so.
    fs::remove_file(site.p("p/receipt")).unwrap();
    assert_eq!(root_of(&site.over(&far, "finish", "p").run().ok()), root);
    site.judge("far");
}

/// Below the home directory there, and shut in: what is not below the root is refused, and nothing is made for a server that writes
/// nothing.
#[test]
fn a_server_that_is_shut_in_stays_so() {
    let site = Site::new();
    mixed(&site);
    let root = site.tmp.dir("jail");
    let far = Far::pipe().serving("--read-only");
    site.over(&far, "plan", "src host:dst --out r").run().code(8);
    let far = Far::pipe().serving(&format!("--root {}", root.display()));
    for out in ["../dst", "no/such/dst"] {
        let ran = site.over(&far, "plan", &format!("src host:{out} --out q")).run();
        assert_ne!(ran.code, 0, "{out}");
        assert!(!site.p("q/plan").exists(), "{out}");
    }
    site.over(&far, "plan", "src host:dst --out p --shards 2").run().ok();
    site.over(&far, "shard", "p --all").run().ok();
    site.over(&far, "finish", "p").run().ok();
    assert_eq!(names(&root), ["dst"]);
    assert_same(&site.p("src"), &root.join("dst"), EVERYTHING);
    // A directory all of whose names are left out is empty there.
    site.over(&far, "plan", "src host:some --out e --shards 2 -e /z/*").run().ok();
    site.over(&far, "shard", "e --all").run().ok();
    site.over(&far, "finish", "e").run().ok();
    assert!(names(&root.join("some/z")).is_empty() && root.join("some/d/b").exists());
}

#[test]
fn a_connection_that_is_lost_costs_what_was_not_recorded() {
    let site = Site::new();
    for n in 0..5000 {
        site.tmp.file(format!("src/{}/{n}", n % 7), noise(n, 200));
    }
    let log = site.p("log");
    let far = || Far::relay().with("RELAY_LOG", &log);
    site.over(&far(), "plan", "src --out whole --shards 1").args([far().at(site.p("other"))]).run().ok();
    site.over(&far(), "shard", "whole 0 --compress=none").run().ok();
    let all = passed(&log)[1].0;
    if all_cases() {
        site.over(&far(), "finish", "whole").run().ok();
    } else {
        // It was only to be measured.
        fs::remove_dir_all(site.stage()).unwrap();
    }
    planned(&far(), &site, 1);
    // In the second of two frames.
    let cut = far().with("RELAY_UP", (all * 9 / 10).to_string());
    site.over(&cut, "shard", "p 0 --compress=none").run().code(7);
    site.over(&far(), "finish", "p").run().code(1);
    site.over(&far(), "shard", "p 0 --compress=none").run().ok();
    let again = passed(&log).last().unwrap().0;
    assert!(again < all * 3 / 10, "{again} of {all} bytes were sent again");
    // By itself, where it is asked to.
    fs::remove_file(site.p("p/results/0")).unwrap();
    let once = far().with("RELAY_UP", (all / 9).to_string()).with("RELAY_ONCE", site.p("once"));
    site.over(&once, "shard", "p 0 --retries=1").run().ok();
    fs::remove_file(site.p("once")).unwrap();
    site.over(&far().with("RELAY_UP", "2000"), "finish", "p").run().code(7);
    assert!(!site.p("far").exists());
    site.over(&far(), "finish", "p").run().ok();
    fs::remove_file(&log).unwrap();
    site.judge("far");
}

/// R2: what was told to be there and could not be synced counts for nothing.
#[test]
fn what_cannot_be_synced_is_not_recorded() {
    needs!(has_tool("strace"), "there is no strace");
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    planned(&far, &site, 2);
    let words =
        ["-f", "-qq", "-o", "/dev/null", "-e", "inject=syncfs:error=EIO", BCMR, "shard", "p", "--all"];
    let strace = || Line::new(std::path::Path::new("strace"));
    far.lead(strace().args(words)).cwd(site.tmp.path()).run().code(1).says("sync");
    site.over(&far, "finish", "p").run().code(1).says("0 1");
    site.over(&far, "shard", "p --all").run().ok();
    // Nor has it its name before all of it is.
    let words = ["-f", "-qq", "-o", "/dev/null", "-e", "inject=syncfs:error=EIO", BCMR, "finish", "p"];
    let ran = far.lead(strace().args(words)).cwd(site.tmp.path()).run();
    assert!(ran.code != 0 && !site.p("far").exists(), "{}", ran.err);
    site.over(&far, "finish", "p").run().ok();
    site.judge("far");
}

/// What runs that were killed have left in the tree under names of their own goes in the end.
#[test]
fn what_killed_runs_have_left_is_swept() {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    planned(&far, &site, 2);
    site.over(&far, "shard", "p --all").run().ok();
    let left = ".bcmr-r-0123456789abcdef0123456789abcdef.stage";
    for dir in ["", "d", "z"] {
        fs::write(site.stage().join(dir).join(left), "half").unwrap();
    }
    site.over(&far, "finish", "p").run().ok();
    site.judge("far");
}

/// This program, or the one there: whichever makes the call.
#[test]
fn what_is_killed_at_any_call_goes_on() {
    needs!(has_tool("strace"), "there is no strace");
    const CALLS: &str = "mkdirat,linkat,renameat,renameat2,unlinkat,fchmod,fsync,fdatasync,syncfs";
    for verb in ["shard", "finish"] {
        until_not_killed(400, 23, |nth| {
            let (far, site) = (Far::pipe(), Site::new());
            mixed(&site);
            planned(&far, &site, 2);
            let ran = site.killed_and_done(&far, verb, (CALLS, nth), || {
                if site.p("far").exists() {
                    assert_same(&site.p("src"), &site.p("far"), EVERYTHING);
                }
            });
            site.drop_claims();
            site.judge("far");
            ran
        });
    }
}

#[test]
fn a_source_that_has_changed_is_not_published() {
    for (what, shard, finish) in [
        ("before", 5, 1),
        ("a file is gone", 0, 5),
        ("a file is a directory", 0, 5),
        ("a link", 0, 5),
        ("linked", 0, 5),
    ] {
        let (far, site) = (Far::pipe(), Site::new());
        mixed(&site);
        planned(&far, &site, 1);
        if what == "before" {
            site.tmp.file("src/d/b", "another");
        }
        site.over(&far, "shard", "p 0").run().code(shard);
        let path = |name: &str| site.p("src").join(name);
        match what {
            "a file is gone" => fs::remove_file(path("d/b")).unwrap(),
            "a file is a directory" => {
                fs::remove_file(path("d/b")).unwrap();
                site.tmp.dir("src/d/b");
            }
            "a link" => {
                fs::remove_file(path("z/link")).unwrap();
                fs::remove_file(path("d/link")).unwrap();
                std::os::unix::fs::symlink("elsewhere", path("d/link")).unwrap();
            }
            "linked" => chmod(&path("a"), 0o611),
            _ => {}
        }
        site.over(&far, "finish", "p").run().code(finish);
        assert!(!site.p("far").exists(), "{what}");
        assert!(site.stage().exists(), "{what}");
    }
}

/// What is in the way, in the tree or at its name, is told; nothing of it goes.
#[test]
fn what_is_not_of_the_plan_stays() {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    planned(&far, &site, 2);
    site.over(&far, "shard", "p --all").run().ok();
    let stranger = site.stage().join("d/stranger");
    fs::write(&stranger, "of someone else").unwrap();
    site.over(&far, "finish", "p").run().one_of(&[5, 8]);
    assert_eq!(fs::read(&stranger).unwrap(), b"of someone else");
    fs::remove_file(&stranger).unwrap();
    site.tmp.file("far/own", "own");
    site.over(&far, "finish", "p").run().code(1).says("is there already");
    assert_eq!(names(&site.p("far")), ["own"]);
    fs::remove_dir_all(site.p("far")).unwrap();
    site.over(&far, "finish", "p").run().ok();
    site.judge("far");
}

/// L6: the other side tells of owners once for many files, and the end counts them all, with the machine they are on.
#[test]
fn owners_that_are_lost_there_are_counted() {
    needs!(is_root() && has_tool("setpriv"), "becoming somebody else needs root and setpriv");
    let site = Site { tmp: Tmp::for_others() };
    let nobody = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
    let far = Far::pipe();
    chmod(&far.home(), 0o777);
    chmod(site.tmp.path(), 0o777);
    let far = far.with("FAR_RUN", &nobody).program(&site.p("bcmr"));
    for name in 0..5 {
        site.tmp.file(format!("src/{name}"), "x");
    }
    site.over(&far, "plan", "src").args([far.at(site.p("far"))]).args(["--out=p", "--shards=1"]).run().ok();
    site.over(&far, "shard", "p 0").run().code(1).says("entries whose owner was not kept: 5");
    for _ in 0..2 {
        let end = site.over(&far, "finish", "p").run().code(1);
        let named = format!("cannot keep all of '{}': ", far.at(site.p("far")).display());
        assert!(end.err.contains(&named) && end.err.contains("in the manifest: 5;"), "{}", end.err);
    }
    assert!(fs::read_to_string(site.p("p/receipt")).unwrap().ends_with("lost 5\n"));
}

#[test]
fn what_a_plan_to_another_machine_cannot_do_is_refused() {
    let (far, site) = (Far::pipe(), Site::new());
    mixed(&site);
    for words in [
        "host:src host:dst --out q",
        "--verb sync host:src host:dst --out q",
        "--verb check host:src host:dst --out q",
        "--verb remove host:src dst --out q",
        "src host:dst --part-size 4M --out q",
        "src dst --out q",
    ] {
        site.over(&far, "plan", words).run().code(2);
        assert!(!site.p("q").exists(), "{words}");
    }
    planned(&far, &site, 1);
    site.over(&far, "shard", "p 0 --direct").run().code(2);
    site.over(&far, "shard", "p 0 --parallel=2").run().code(2);
    site.over(&far, "shard", "p 0 --via-source").run().code(2).says("between two other machines");
    site.over(&far, "finish", "p --merge").run().code(2);
    site.run("plan src dst --out here --shards 1").ok();
    site.over(&far, "shard", "here 0").run().code(2).says("another machine");
}
