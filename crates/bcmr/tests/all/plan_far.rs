//! Copies in shards whose destination is on another machine: one connection for each shard and one for the end, and the same tree
//! and the same root as at home.
//!
//! Must not know how a shard is sent.

use super::common::remote::Far;
use super::common::*;
use super::plan::{Site, mixed, root_of};

/// A plan's commands, which lead to the other machine where they need to.
fn line(far: &Far, site: &Site, verb: &str, words: &str) -> Line {
    far.bcmr(verb).args(words.split_whitespace()).cwd(site.tmp.path())
}

fn planned(far: &Far, site: &Site, shards: u32) {
    let words = format!("src --out p --shards {shards}");
    line(far, site, "plan", &words).args([far.at(site.p("far"))]).run().ok();
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
    line(&far, &site, "finish", "p").run().code(1).says("0 1 2 3");
    for shard in ["3", "1", "--next", "--all"] {
        line(&far, &site, "shard", &format!("p {shard}")).run().ok();
        assert!(!site.p("far").exists(), "published before it was finished");
    }
    let ran = line(&far, &site, "finish", "p").run().ok();
    site.judge("far");
    assert_eq!(root_of(&ran), root);
    site.run("check --manifest p/manifest far").ok();
    line(&far, &site, "finish", "p").run().ok().says("the plan is finished");
}
