//! `bcmr sync` through generated histories, with rsync as the judge after each round; and what it deletes under faults, with its
//! own plan as the judge.

use crate::common::maker::{Maker, can};
use crate::common::remote::{Dir, Far};
use crate::common::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Which machines have the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ways {
    Near,
    Up,
    Down,
    /// Both on others.
    Relayed,
}

/// Calls that give or take a name.
const NAMING: &str = "renameat2,renameat,rename,unlinkat,mkdirat,linkat";

/// `bcmr sync`, where the program that lands is killed at its n-th call that gives or takes a name, if there are so many.
fn sync(way: Ways, killed: Option<usize>, far: Far, flags: &[&str], src: &Path, dst: &Path) -> Ran {
    let lands_here = matches!(way, Ways::Near | Ways::Down);
    let line = match killed.filter(|_| lands_here) {
        Some(at) => bcmr_killed_at(at, NAMING).args(["sync"]),
        None => bcmr(["sync"]),
    };
    let far = match killed.filter(|_| !lands_here) {
        Some(at) => {
            let kill = format!("-e trace={NAMING} -e inject={NAMING}:signal=SIGKILL:when={at}");
            far.with("FAR_RUN", format!("strace -f -qq -o /dev/null {kill}"))
        }
        None => far,
    };
    let line = line.args(flags);
    // Who is killed over there is killed at each attempt.
    let led = |line: Line| far.lead(line.args(["--retries=0"]));
    match way {
        Ways::Near => line.args([src, dst]),
        Ways::Up => Dir::Put.ends(led(line), &far, src, dst),
        Ways::Down => Dir::Get.ends(led(line), &far, src, dst),
        Ways::Relayed => led(line).args([far.at(src), far.at(dst)]),
    }
    .run()
}

/// What differs by eyes of our own. Times of access are not kept up to date.
fn by_eye(src: &Path, dst: &Path) -> Vec<String> {
    differences(&tree(src), &tree(dst), Exact { times: false, ..EVERYTHING })
}

fn history(way: Ways, seed: u64, rounds: usize, entries: usize) {
    let tmp = Tmp::new();
    let (src, dst) = (tmp.p("src"), tmp.p("dst"));
    let can = can(tmp.path(), (1, 2_000_000_000), 2000);
    let mut maker = Maker::new(seed, can, &src);
    maker.make(entries);
    let mut random = Random(seed ^ 0xF00D);
    for round in 0..rounds {
        let how = format!("BCMR_SEED={seed}, {way:?}, round {round}, {}", tmp.path().display());
        let mut flags = vec!["--delete", "--max-delete=100%"];
        if random.once_in(3) {
            flags.push("--checksum");
        }
        let once = |killed| sync(way, killed, Far::pipe(), &flags, &src, &dst);
        if round % 3 == 2 && has_tool("strace") {
            // Killed, or done before that; who hears that the other machine's was killed has lost it.
            let at = 1 + random.below(30) as usize;
            once(Some(at)).one_of(&[0, 1, 7, 1009, 137]);
        }
        let mut ran = once(None);
        // Between machines what is behind something that was in the way comes with the same command again.
        for _ in 0..2 {
            if ran.code == 1 && way != Ways::Near {
                ran = once(None);
            }
        }
        assert_eq!(ran.code, 0, "{how}: {}", ran.err);
        let told = by_eye(&src, &dst);
        assert!(told.is_empty(), "{how}:\n{}", told.join("\n"));
        if let Some(text) = rsync_would(&src, &dst) {
            assert!(text.is_empty(), "{how}: rsync would:\n{text}");
        }
        assert_no_litter(&dst);
        maker.churn(entries / 8);
    }
}

#[test]
fn after_every_round_of_a_history_rsync_has_nothing_to_do() {
    needs!(is_root(), "histories want owners and devices");
    let first = std::env::var("BCMR_SEED").ok().and_then(|seed| seed.parse().ok());
    // In each third round it is killed.
    let ways = [(Ways::Near, (1, 4)), (Ways::Up, (1, 3)), (Ways::Down, (1, 3)), (Ways::Relayed, (1, 3))];
    for (way, few) in ways {
        let (seeds, rounds) = if all_cases() { (40, 30) } else { few };
        for seed in first.map_or(1..seeds + 1, |seed: u64| seed..seed + 1) {
            history(way, seed, rounds, 120);
        }
    }
}

/// All paths below a directory.
fn paths(root: &Path) -> BTreeSet<PathBuf> {
    let path = |(path, _): (Vec<u8>, Entry)| PathBuf::from(String::from_utf8(path).unwrap());
    tree(root).into_iter().map(path).collect()
}

/// A source, and a destination that has more.
fn two_trees(tmp: &Tmp, dst: &str) {
    for name in ["a", "sub/b", "sub/deep/c", "kind"] {
        tmp.file(format!("src/{name}"), name);
    }
    for name in ["a", "x", "sub/y", "old/1", "old/deep/2", "sub/deep/z", "kind/was a directory"] {
        tmp.file(format!("{dst}/{name}"), format!("old {name}"));
    }
    tmp.dir(format!("{dst}/empty"));
}

/// Whatever call fails: nothing goes that was not planned to, nothing goes before all else is there, and a run that tells of
/// no failure has deleted all of the plan.
#[test]
fn what_goes_is_what_was_planned_whatever_call_fails() {
    needs!(has_tool("strace"), "there is no strace");
    let tmp = Tmp::new();
    two_trees(&tmp, "dst");
    let src = tmp.p("src");
    let before = paths(&tmp.p("dst"));
    let planned: BTreeSet<PathBuf> = [
        "x",
        "sub/y",
        "old",
        "old/1",
        "old/deep",
        "old/deep/2",
        "sub/deep/z",
        "empty",
        "kind/was a directory",
    ]
    .into_iter()
    .map(PathBuf::from)
    .collect();
    let flags = ["--delete", "--max-delete=100%", "-j1"];
    let calls = [
        "openat",
        "getdents64",
        "newfstatat,statx",
        "unlinkat",
        "renameat2,renameat",
        "fsync,fdatasync,syncfs",
        "mkdirat",
    ];
    let (mut runs, mut whole) = (0, 0);
    for call in calls {
        // A run that meets no fault any more ends the row.
        for at in 1..400 {
            let step = if all_cases() || at < 3 { 1 } else { 12 };
            if at % step != 0 {
                continue;
            }
            let dst = format!("run-{runs}");
            runs += 1;
            two_trees(&tmp, &dst);
            let (dst, log) = (tmp.p(&dst), tmp.p("log"));
            let ran = Line::new(Path::new("strace"))
                .args(["-f", "-qq", "-o"])
                .args([&log])
                .args([
                    "-e",
                    &format!("trace={call}"),
                    "-e",
                    &format!("inject={call}:error=EIO:when={at}"),
                    BCMR,
                    "sync",
                ])
                .args(flags)
                .args([&src, &dst])
                .run();
            let how = format!("{call} {at}: exit {}, {}", ran.code, ran.err);
            let there = paths(&dst);
            let gone: BTreeSet<PathBuf> = before.difference(&there).cloned().collect();
            // What was in the way of a file goes before that comes.
            let is_cleared = |path: &Path| path == Path::new("kind");
            let odd: Vec<_> = gone.difference(&planned).filter(|path| !is_cleared(path)).collect();
            assert!(odd.is_empty(), "{how}: not planned: {odd:?}");
            let brought = ["a", "sub/b", "sub/deep/c"]
                .iter()
                .all(|name| std::fs::read_to_string(dst.join(name)).is_ok_and(|text| text == *name));
            assert!(gone.is_empty() || brought, "{how}: {gone:?} went before all was there");
            if ran.code == 0 {
                whole += 1;
                assert_eq!(gone, planned, "{how}");
            }
            std::fs::remove_dir_all(&dst).unwrap();
            if !std::fs::read_to_string(&log).unwrap().contains("INJECTED") {
                assert_eq!(ran.code, 0, "{how}");
                break;
            }
        }
    }
    let least = if all_cases() { 5 } else { 2 };
    assert!(whole >= calls.len() && runs > least * calls.len(), "{whole} of {runs}");
}
