//! `bcmr sync -n --plan` and `--apply`: what was looked at is done, or nothing is.

use crate::common::*;
use std::fs;
use std::path::Path;

fn sync(tmp: &Tmp, words: &str) -> Ran {
    let mut line = bcmr(std::iter::once("sync").chain(words.split(' '))).cwd(tmp.path());
    line.0.env("XDG_STATE_HOME", tmp.p("state"));
    line.run()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// A source and a destination, and what makes one of the other.
fn two(tmp: &Tmp) {
    for name in ["s/a", "s/d", "s/sub/b", "s/new/deep/x", "s/new/y", "d/gone", "d/old/deep/z"] {
        tmp.file(name, name);
    }
    tmp.file("d/a", "another a");
    tmp.file("d/sub/b", "another b");
    tmp.file("d/d", "another d");
}

#[test]
fn a_plan_is_done_as_it_was_looked_at() {
    let tmp = Tmp::new();
    two(&tmp);
    let shown = sync(&tmp, "-n --delete s d").ok().out;
    let planned = sync(&tmp, "-n --delete --plan plan s d").ok().out;
    assert_eq!(shown, planned, "the tree is the same");
    for line in ["+ new/", "~ a", "- gone", "- old/"] {
        assert!(planned.contains(line), "{line} in {planned}");
    }
    let before = tree(&tmp.p("d"));
    assert!(differences(&before, &tree(&tmp.p("d")), EVERYTHING).is_empty());
    let plan = text(&tmp.p("plan"));
    assert!(
        plan.starts_with("bcmr sync plan 1\n") && plan.contains("\n-\t6\t") && plan.ends_with("\tsub/b\n")
    );
    sync(&tmp, "--apply plan").ok();
    assert_same(&tmp.p("s"), &tmp.p("d"), CONTENT);
    // Done once, it is not to be done again.
    sync(&tmp, "--apply plan").code(8).says("not to be done any more");
}

/// Whatever changes on either side after the plan was made: it is named, and nothing is done.
#[test]
fn what_has_changed_since_the_plan_is_named_and_nothing_is_done() {
    type Change = fn(&Tmp);
    let changes: [(&str, &str, Change); 14] = [
        // As long as it was, or the same but for its mode.
        ("b", "s/sub/b", |tmp| drop(tmp.file("s/sub/b", "s/SUB/b"))),
        ("b", "d/sub/b", |tmp| drop(tmp.file("d/sub/b", "ANOTHER b"))),
        ("a", "mode of s/a", |tmp| chmod(&tmp.p("s/a"), 0o600)),
        ("gone", "mode of d/gone", |tmp| chmod(&tmp.p("d/gone"), 0o600)),
        // Called as the destination is.
        ("d", "s/d", |tmp| drop(tmp.file("s/d", "S/D"))),
        ("a", "s/a", |tmp| drop(tmp.file("s/a", "longer than it was"))),
        ("a", "d/a", |tmp| drop(tmp.file("d/a", "by the user, meanwhile"))),
        ("new", "s/new/deep/x", |tmp| drop(tmp.file("s/new/deep/x", "longer than it was"))),
        ("new", "s/new/deep/later", |tmp| drop(tmp.file("s/new/deep/later", ""))),
        ("old", "d/old/deep/z", |tmp| drop(tmp.file("d/old/deep/z", "by the user, meanwhile"))),
        ("old", "d/old/later", |tmp| drop(tmp.file("d/old/later", ""))),
        ("gone", "d/gone", |tmp| fs::remove_file(tmp.p("d/gone")).unwrap()),
        ("later", "s/later", |tmp| drop(tmp.file("s/later", "later"))),
        ("later", "d/later", |tmp| drop(tmp.file("d/later", "later"))),
    ];
    for (named, what, change) in changes {
        let tmp = Tmp::new();
        two(&tmp);
        sync(&tmp, "-n --delete --plan plan s d").ok();
        change(&tmp);
        let before = tree(&tmp.p("d"));
        let ran = sync(&tmp, "--apply plan").code(8);
        assert!(ran.err.lines().any(|line| line.contains(named)), "{what}: {}", ran.err);
        let told = differences(&before, &tree(&tmp.p("d")), Exact { times: false, ..EVERYTHING });
        assert!(told.is_empty(), "{what}: {told:?}");
        // The way on is a new plan.
        sync(&tmp, "-n --delete --plan plan s d").ok();
        sync(&tmp, "--apply plan").ok();
        assert_same(&tmp.p("s"), &tmp.p("d"), CONTENT);
    }
}

#[test]
fn what_is_no_plan_is_refused() {
    let tmp = Tmp::new();
    two(&tmp);
    sync(&tmp, "--plan plan s d").code(2);
    sync(&tmp, "--apply none").code(1);
    tmp.file("plan", "no plan");
    sync(&tmp, "--apply plan").code(1).says("no plan of a sync");
    sync(&tmp, "--apply plan s d").code(2);
    // The options are those of the plan: no other is passed over in silence.
    for flag in [
        "-x",
        "--max-delete=5",
        "--backup-dir=kept",
        "--link-dest=s",
        "-e=*.o",
        "--max-size=5",
        "--chmod=600",
        "-V",
        "-j2",
        "--ssh=ssh",
    ] {
        sync(&tmp, &format!("--apply plan {flag}")).code(2).says("cannot be used with");
    }
    sync(&tmp, "s").code(2);
    // What could not be looked at is not planned.
    sync(&tmp, "-n --plan made none d").code(1);
    assert!(!tmp.p("made").exists());
    assert_eq!(text(&tmp.p("d/gone")), "d/gone");
}
