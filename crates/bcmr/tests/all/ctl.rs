//! `--bwlimit` and `bcmr ctl`: a run that would take hours goes on as it is told.

use crate::common::remote::*;
use crate::common::*;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than any of it takes: who waits that long hangs.
const HUNG: Duration = Duration::from_secs(60);

/// `bcmr ctl` where runs of `tmp` are, and no others.
fn ctl(tmp: &Tmp, words: &str) -> Ran {
    let line = bcmr(["ctl"]).args(words.split_whitespace());
    meeting(line, tmp).run()
}

fn meeting(mut line: Line, tmp: &Tmp) -> Line {
    line.0.env("XDG_RUNTIME_DIR", tmp.p("run")).env("TMPDIR", tmp.p("run"));
    line
}

/// Asks until the answer has `text`.
fn until(tmp: &Tmp, words: &str, text: &str) -> String {
    let end = Instant::now() + HUNG;
    loop {
        let ran = ctl(tmp, words);
        if ran.out.contains(text) {
            return ran.out;
        }
        assert!(Instant::now() < end, "{words}: {ran:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_run_goes_as_it_is_told() {
    // The last way is between two other machines, through here.
    for (n, dir) in [Some(Dir::Put), Some(Dir::Get), None].into_iter().enumerate() {
        // An ordinary run tries each way with one verb.
        for (_, verb) in ["copy", "sync"].into_iter().enumerate().filter(|(m, _)| in_slice(n + m, 2)) {
            let (far, tmp) = (Far::pipe(), Tmp::new());
            let run = tmp.dir("run");
            chmod(&run, 0o700);
            // At a byte a second it would take weeks, whichever way.
            for name in ["s/a", "s/b", "s/c"] {
                tmp.file(name, noise(1, 2 << 20));
            }
            let line = far.bcmr(verb).args(flags_of(verb)).args(["--bwlimit=1", "--compress=none"]);
            let mut line = meeting(ends(line, &far, dir, &tmp, "d"), &tmp);
            let mut child = line.0.stdin(std::process::Stdio::null()).spawn().unwrap();
            let pid = child.id();
            // Where others of this user run, they are listed too.
            until(&tmp, "", &format!("{pid}  running, limit 1 B/s"));
            until(&tmp, &format!("pause --pid {pid}"), "paused, limit 1 B/s");
            until(&tmp, &format!("limit none --pid {pid}"), "paused, no limit");
            // As long as another takes for all of it.
            let line = far.bcmr(verb).args(flags_of(verb)).args(["--compress=none"]);
            ends(line, &far, dir, &tmp, "other").run().ok();
            assert!(child.try_wait().unwrap().is_none(), "{dir:?} {verb}: paused runs do not end");
            let done = (0..3).filter(|n| tmp.p(format!("d/{}", ["a", "b", "c"][*n])).exists()).count();
            assert!(done < 3, "{dir:?} {verb}: all went at a byte a second");
            until(&tmp, &format!("limit 1G --pid {pid}"), "paused, limit 1.0 GiB/s");
            until(&tmp, &format!("resume --pid {pid}"), "running, limit 1.0 GiB/s");
            assert!(child.wait().unwrap().success(), "{dir:?} {verb}");
            assert_same(&tmp.p("s"), &tmp.p("d"), Exact { times: false, ..EVERYTHING });
            assert_eq!(fs::read_dir(&run).unwrap().count(), 0, "nothing is left where commands are heard");
        }
    }
}

#[test]
fn several_runs_are_told_apart_and_nonsense_is_refused() {
    let tmp = Tmp::new();
    tmp.dir("run");
    ctl(&tmp, "limit").code(2);
    ctl(&tmp, "limit 0").code(2).says("nothing would ever arrive");
    ctl(&tmp, "pause 5M").code(2).says("only limit takes a rate");
    ctl(&tmp, "status --pid 1").code(1).says("no such run");
    tmp.file("s/a", noise(1, 3 << 20));
    tmp.file("s/b", noise(1, 3 << 20));
    let far = Far::pipe();
    let mut runs: Vec<_> = ["d1", "d2"]
        .map(|to| {
            let line = far.bcmr("copy").args(["-rT", "--bwlimit=1"]);
            let mut line = meeting(Dir::Put.ends(line, &far, &tmp.p("s"), &tmp.p(to)), &tmp);
            line.0.stdin(std::process::Stdio::null()).spawn().unwrap()
        })
        .into();
    for run in &runs {
        until(&tmp, &format!("status --pid {}", run.id()), "limit 1 B/s");
    }
    let told = ctl(&tmp, "--json").ok().out;
    // Where others of this user run, they are listed too.
    assert!(told.lines().count() >= runs.len() + 2 && told.contains("\"limit\":1,\"items_done\":"), "{told}");
    let one = ctl(&tmp, &format!("pause --json --pid {}", runs[0].id())).ok().out;
    assert!(one.contains(&format!("\"pid\":{},\"paused\":true", runs[0].id())), "{one}");
    ctl(&tmp, &format!("resume --pid {}", runs[0].id())).ok();
    ctl(&tmp, "limit none").code(1).says("several runs");
    for run in &runs {
        ctl(&tmp, &format!("limit none --pid {}", run.id())).ok();
    }
    assert!(runs.iter_mut().all(|run| run.wait().unwrap().success()));
}

/// A run that ends while runs are asked one after the other is one of which only the locked directory is there any more.
#[test]
fn a_run_that_ends_meanwhile_is_no_error_of_the_list() {
    use rustix::fs::{FlockOperation, flock};
    let tmp = Tmp::new();
    let ending = tmp.dir(format!("run/bcmr-ctl-{:0>8x}{:0>24}", 4711, 0));
    chmod(&ending, 0o700);
    let held = fs::File::open(&ending).unwrap();
    flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
    let told = ctl(&tmp, "").ok();
    assert!(!told.out.contains("4711") && told.err.is_empty(), "{told:?}");
    for words in ["status --pid 4711", "pause --pid 4711"] {
        ctl(&tmp, words).code(1).says("No such file");
    }
}

/// Where nothing is sent anywhere there is nothing to slow down.
#[test]
fn a_limit_has_a_meaning_between_machines_only() {
    let tmp = Tmp::new();
    tmp.file("s/a", "A");
    for line in ["copy -r", "sync"] {
        let words = line.split_whitespace().chain(["--bwlimit=1M"]);
        bcmr(words).args([tmp.p("s"), tmp.p("d")]).run().code(2).says("only with another machine");
    }
}

/// Whichever way bytes go, over however many streams: no more of them than the limit and a piece. Time can only be too long.
#[test]
fn a_limit_holds_whichever_way_bytes_go() {
    const BYTES: usize = 4 << 20;
    const LIMIT: usize = 2 << 20;
    let ways = [Some(Dir::Put), Some(Dir::Get), None];
    let mut rows: Vec<_> = ways.into_iter().map(|way| (Far::pipe(), way, "")).collect();
    rows.extend(BOTH.map(|dir| (Far::pipe(), Some(dir), "--parallel=2")));
    for dir in BOTH {
        rows.extend(Far::ssh("a_limit_holds", Path::new(BCMR), &[]).map(|far| (far, Some(dir), "--direct")));
    }
    let row = |(far, way, flag): (Far, Option<Dir>, &str)| {
        let tmp = Tmp::new();
        tmp.file("s/a", noise(1, BYTES));
        let line = far.bcmr("copy").args(["-rT", "--compress=none", "--bwlimit=2M"]);
        let line = line.args(Some(flag).filter(|flag| !flag.is_empty()));
        let line = ends(line, &far, way, &tmp, "d");
        let began = Instant::now();
        let ran = line.run().ok();
        let took = began.elapsed();
        assert_same(&tmp.p("s"), &tmp.p("d"), CONTENT);
        // The first piece is free, and what the last one owes nobody waits for.
        let least = Duration::from_secs((BYTES / LIMIT) as u64) / 2;
        assert!(took >= least, "{way:?} {flag}: {took:?}: {}", ran.err);
    };
    std::thread::scope(|scope| rows.into_iter().for_each(|one| drop(scope.spawn(move || row(one)))));
}

/// The two ends; no way is from one other machine to another, through here.
fn ends(line: Line, far: &Far, way: Option<Dir>, tmp: &Tmp, to: &str) -> Line {
    match way {
        Some(dir) => dir.ends(line, far, &tmp.p("s"), &tmp.p(to)),
        None => {
            let on = |host: &str, path: &str| format!("{host}:{}", tmp.p(path).display());
            line.args([on("one", "s"), on("two", to)])
        }
    }
}

/// The contents of the one become those of the other.
fn flags_of(verb: &str) -> &'static [&'static str] {
    if verb == "copy" { &["-rT"] } else { &[] }
}
