//! `bcmr sync -n`, and `--plan` and `--apply`: what was looked at is done, or nothing is. The same near, up, down and between two other machines.

use crate::common::remote::*;
use crate::common::*;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where the two directories are, seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Here,
    Up,
    Down,
    Between,
}

const WAYS: [Ends; 4] = [Ends::Here, Ends::Up, Ends::Down, Ends::Between];

/// A pair of directories, `s` and `d`.
struct Pair {
    way: Ends,
    far: Far,
    tmp: Tmp,
}

impl Pair {
    fn new(way: Ends) -> Pair {
        Pair { way, far: Far::pipe(), tmp: Tmp::new() }
    }

    fn fill(&self, files: &[&str]) -> &Pair {
        files.iter().for_each(|name| drop(self.tmp.file(name, name)));
        self
    }

    /// `bcmr sync FLAGS`, and both directories where they are.
    fn sync(&self, flags: &str) -> Ran {
        let (s, d) = (self.tmp.p("s"), self.tmp.p("d"));
        let line = self.line(flags);
        let on = |host: &str, path: &Path| format!("{host}:{}", path.display());
        let line = match self.way {
            Ends::Here => line.args([s, d]),
            Ends::Up => Dir::Put.ends(line, &self.far, &s, &d),
            Ends::Down => Dir::Get.ends(line, &self.far, &s, &d),
            Ends::Between => line.args([on("one", &s), on("two", &d)]),
        };
        line.run()
    }

    fn line(&self, flags: &str) -> Line {
        let line = match self.way {
            Ends::Here => bcmr(["sync"]),
            _ => self.far.bcmr("sync"),
        };
        let mut line = line.args(flags.split_whitespace());
        line.0.env("XDG_STATE_HOME", self.tmp.p("state"));
        line.cwd(self.tmp.path())
    }

    /// Does what `plan` says; it knows itself how one gets there.
    fn apply(&self) -> Ran {
        let mut line = self.far.around(bcmr(["sync", "--apply", "plan"])).cwd(self.tmp.path());
        line.0.env("XDG_STATE_HOME", self.tmp.p("state"));
        line.run()
    }

    fn is_far(&self) -> bool {
        self.way != Ends::Here
    }
}

/// What a run says that it has refused: reason and counts, without paths.
fn refusals(ran: &Ran) -> Vec<String> {
    let lines = ran.err.lines().filter(|line| line.contains("refused"));
    lines.map(|line| line.rsplit(": ").next().unwrap_or(line).to_owned()).collect()
}

/// The lines of a preview that say what goes.
fn going(ran: &Ran) -> Vec<String> {
    let words = ran.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    words.filter(|line| line.starts_with("- ")).collect()
}

#[test]
fn a_dry_run_ends_as_the_run_would() {
    for way in WAYS {
        // Kept, old, flags, and whether what is old goes.
        for (kept, old, flags, code) in
            [(90, 29, "", 0), (90, 30, "", 8), (10, 11, "--max-delete=11", 8), (0, 3, "", 8)]
        {
            let pair = Pair::new(way);
            let tmp = &pair.tmp;
            tmp.dir("s");
            (0..kept).for_each(|n| drop((tmp.file(format!("s/{n}"), ""), tmp.file(format!("d/{n}"), ""))));
            (0..old).for_each(|n| drop(tmp.file(format!("d/old/{n}"), "12345")));
            let what = format!("{way:?} {kept} {old} {flags}");
            let dry = pair.sync(&format!("-n --delete {flags}")).code(code);
            assert!(tmp.p("d/old/0").exists(), "{what}");
            let lines = going(&dry);
            if code == 0 {
                let bytes = format!("{}", 5 * old);
                assert!(
                    lines.len() == 1 && lines[0].starts_with("- old/") && lines[0].contains(&bytes),
                    "{what}: {dry:?}"
                );
            } else {
                assert!(lines.is_empty(), "nothing goes, and nothing is told to go: {what}: {dry:?}");
            }
            let real = pair.sync(&format!("--delete {flags}")).code(code);
            assert_eq!(tmp.p("d/old").exists(), code != 0, "{what}");
            assert_eq!(refusals(&dry), refusals(&real), "{what}: {dry:?} {real:?}");
        }
    }
}

/// What a filter leaves out, what unfinished copies need and what is kept does not go, and is not told to.
#[test]
fn what_a_dry_run_tells_is_what_goes() {
    for way in WAYS {
        let pair = Pair::new(way);
        pair.fill(&["s/a", "s/sub/b", "d/a.o", "d/x", "d/sub/y", "d/sub/deep/z", "d/old/2020/x"]);
        fs::write(pair.tmp.p("d/sub/deep/z"), "1234567").unwrap();
        let backup = format!("--backup-dir={}", pair.tmp.p("d/old").display());
        let flags = format!("--delete -e *.o {backup}");
        let dry = pair.sync(&format!("-n {flags}")).ok();
        let told = going(&dry).join("\n");
        assert!(
            told.contains("- x 3 B") && told.contains("- y 7 B") && told.contains("- deep/ 1 file, 7 B"),
            "{way:?}: {}",
            dry.out
        );
        assert!(!dry.out.contains(".o") && !dry.out.contains("old"), "{way:?}: {}", dry.out);
        pair.sync(&flags).ok();
        assert_eq!(names(&pair.tmp.p("d")), ["a", "a.o", "old", "sub"], "{way:?}");
        assert_eq!(names(&pair.tmp.p("d/sub")), ["b"], "{way:?}");
    }
}

/// A directory that holds something and is in the way of a file.
#[test]
fn what_is_in_the_way_is_told_before() {
    for way in WAYS {
        let pair = Pair::new(way);
        pair.fill(&["s/file", "s/a", "d/file/full/in", "d/a"]);
        for dry in ["-n", ""] {
            pair.sync(dry).code(1).says("cannot overwrite a directory");
        }
        // A receiver goes through the source once.
        let code = i32::from(pair.is_far());
        for dry in ["-n", ""] {
            let ran = pair.sync(&format!("{dry} --delete")).code(code);
            assert_eq!(ran.err.contains("still to come"), pair.is_far(), "{way:?}: {}", ran.err);
            assert_eq!(pair.tmp.p("d/file/full").exists(), dry == "-n", "{way:?}");
        }
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// A source and a destination, and what makes one of the other.
fn two(tmp: &Tmp) {
    for name in ["s/a", "s/d", "s/sub/b", "s/new/deep/x", "s/new/y", "d/gone", "d/old/deep/z"] {
        tmp.file(name, name);
    }
    // A directory that takes the place of a file.
    tmp.file("s/kind/x", "12345");
    tmp.file("d/kind", "was a file");
    tmp.file("d/a", "another a");
    tmp.file("d/sub/b", "another b");
    tmp.file("d/d", "another d");
}

#[test]
fn a_plan_is_done_as_it_was_looked_at() {
    for way in WAYS {
        let pair = Pair::new(way);
        let tmp = &pair.tmp;
        two(tmp);
        let shown = pair.sync("-n --delete").ok().out;
        let before = tree(&tmp.p("d"));
        let planned = pair.sync("-n --delete --plan plan").ok().out;
        assert_eq!(shown, planned, "{way:?}: the tree is the same");
        for line in ["+ new/", "~ a", "~ kind/", "- gone", "- old/"] {
            assert!(planned.contains(line), "{way:?}: {line} in {planned}");
        }
        let told = differences(&before, &tree(&tmp.p("d")), Exact { times: false, ..EVERYTHING });
        assert!(told.is_empty(), "{way:?}: {told:?}");
        let plan = text(&tmp.p("plan"));
        let is_one = plan.starts_with("bcmr sync plan 2\n") && plan.ends_with("\tsub/b\n");
        assert!(is_one && plan.contains("\n-\t6\t"), "{way:?}: {plan}");
        pair.apply().ok();
        assert_same(&tmp.p("s"), &tmp.p("d"), CONTENT);
        // Done once, it is not to be done again.
        pair.apply().code(8).says("not to be done any more");
    }
}

/// A destination that is made as a whole has its own path where that is what has changed.
#[test]
fn the_destination_itself_is_named() {
    for way in WAYS {
        let pair = Pair::new(way);
        pair.fill(&["s/n"]);
        pair.sync("-n --plan plan").ok();
        pair.apply().ok();
        pair.apply().code(8).says(&format!("{}'", pair.tmp.p("d").display()));
    }
}

/// Whatever changes on either side after the plan was made: it is named, and nothing is done.
#[test]
fn what_has_changed_since_the_plan_is_named_and_nothing_is_done() {
    type Change = fn(&Tmp);
    let changes: [(&str, &str, Change); 16] = [
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
        // In the place of something else.
        ("kind", "s/kind/x", |tmp| drop(tmp.file("s/kind/x", "longer than it was"))),
        ("kind", "s/kind/later", |tmp| drop(tmp.file("s/kind/later", ""))),
        ("later", "s/later", |tmp| drop(tmp.file("s/later", "later"))),
        ("later", "d/later", |tmp| drop(tmp.file("d/later", "later"))),
    ];
    for (n, (named, what, change)) in changes.into_iter().enumerate() {
        // Where the two are decides nothing of it, so far each is tried one way.
        let both = [Ends::Here, WAYS[1 + n % 3]];
        // An ordinary run tries each near or far.
        for way in if all_cases() { &both[..] } else { &both[n / 2 % 2..][..1] } {
            let pair = Pair::new(*way);
            let (tmp, what) = (&pair.tmp, format!("{way:?} {what}"));
            two(tmp);
            pair.sync("-n --delete --plan plan").ok();
            change(tmp);
            let before = tree(&tmp.p("d"));
            let ran = pair.apply().code(8);
            assert!(ran.err.lines().any(|line| line.contains(named)), "{what}: {}", ran.err);
            let told = differences(&before, &tree(&tmp.p("d")), Exact { times: false, ..EVERYTHING });
            assert!(told.is_empty(), "{what}: {told:?}");
            // The way on is a new plan.
            pair.sync("-n --delete --plan plan").ok();
            pair.apply().ok();
            assert_same(&tmp.p("s"), &tmp.p("d"), CONTENT);
        }
    }
}

/// What would not be done as a whole is not planned, and no file is left that says so.
#[test]
fn what_would_be_refused_is_no_plan() {
    for way in WAYS {
        let pair = Pair::new(way);
        pair.tmp.dir("s");
        pair.fill(&["d/x"]);
        pair.sync("-n --delete --plan plan").code(8).says("the source is empty");
        assert!(!pair.tmp.p("plan").exists(), "{way:?}");
    }
}

#[test]
fn what_is_no_plan_is_refused() {
    let tmp = Tmp::new();
    let sync = |tmp: &Tmp, words: &str| {
        let mut line = bcmr(std::iter::once("sync").chain(words.split(' '))).cwd(tmp.path());
        line.0.env("XDG_STATE_HOME", tmp.p("state"));
        line.run()
    };
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

/// What files, the clock and accounts say of a plan is what they said when it was made.
#[test]
fn a_plan_is_done_with_what_its_options_came_to() {
    for way in WAYS {
        let pair = Pair::new(way);
        let tmp = &pair.tmp;
        pair.fill(&["s/a", "s/b.o", "s/keep.o", "s/old", "s/newest"]);
        let modified = |name: &str, secs| {
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(secs);
            fs::File::open(tmp.p(name)).unwrap().set_modified(at).unwrap();
        };
        modified("s/old", 1);
        let bound = tmp.file("bound", "");
        modified("bound", 4_000_000_000);
        modified("s/newest", 4_000_000_001);
        tmp.file("globs", "*.o\n!keep.o\n");
        let owners = if is_root() { "--usermap root:4242" } else { "" };
        let flags =
            format!("-n --exclude-from globs --newer 7d --older {} {owners} --plan plan --", bound.display());
        pair.sync(&flags).ok();
        // None of them is asked again.
        tmp.file("globs", "a\n");
        modified("bound", 5_000_000_000);
        pair.apply().ok();
        assert_eq!(names(&tmp.p("d")), ["a", "keep.o"], "{way:?}");
        if is_root() {
            assert_eq!(fs::metadata(tmp.p("d/a")).unwrap().uid(), 4242, "{way:?}");
        }
    }
}

/// Defaults of the configuration are part of a plan, and none are added to what it says.
#[test]
fn a_plan_has_the_defaults_that_it_was_made_with() {
    let tmp = Tmp::new();
    two(&tmp);
    let config = tmp.file(
        "config/bcmr/config.toml",
        "[defaults]\nsync = ['--backup-dir=kept', '--delete', '--compress=none']\n",
    );
    let sync = |words: &str| {
        let mut line = bcmr(std::iter::once("sync").chain(words.split(' '))).cwd(tmp.path());
        line.0.env("XDG_STATE_HOME", tmp.p("state")).env("XDG_CONFIG_HOME", tmp.p("config"));
        line.run()
    };
    sync("-n --plan plan s d").ok();
    sync("-n --no-defaults --plan plain s d").ok();
    fs::write(config, "[defaults]\nsync = ['--exclude=*', '--trash']\n").unwrap();
    sync("--apply plan").ok();
    assert_same(&tmp.p("s"), &tmp.p("d"), CONTENT);
    let kept = tmp.p("kept").join(&names(&tmp.p("kept"))[0]);
    assert_eq!(text(&kept.join("old/gone")), "d/gone");
    assert!(!text(&tmp.p("plain")).contains("kept"));
}
