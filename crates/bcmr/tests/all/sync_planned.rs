//! `bcmr sync -n`, plans and what is done by them: the same near, up, down and between two other machines.

use crate::common::remote::*;
use crate::common::*;
use std::fs;

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
        let on = |host: &str, path: &std::path::Path| format!("{host}:{}", path.display());
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
        line
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
