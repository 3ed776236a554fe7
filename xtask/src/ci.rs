//! `cargo xtask ci`: every check, the quick ones first.
//!
//! One target directory and the dev profile throughout. A step that could not run is named as such at the end and
//! never counts as passed.

use crate::bench;
use crate::crash;
use crate::fuzz;
use crate::tidy;
use crate::torture;
use sh::Result;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The cargo-deny that `cargo xtask ci deny` was written for, and that `.ci/run` installs.
const DENY_VERSION: &str = "0.20.2";

enum Done {
    Passed,
    /// Passed as far as it went, and what was left out; it does not fail the run, and it is always said.
    PassedBut(String),
    /// Could not be carried out here, and why; in CI that is a failure.
    Skipped(String),
    Failed(String),
}

type Step = (&'static str, fn() -> Done);

const STEPS: [Step; 11] = [
    ("fmt", || cargo(&["fmt", "--all", "--check"])),
    ("tidy", || done(tidy::run())),
    ("clippy", || cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])),
    ("doc", doc),
    ("deny", deny),
    ("test", tests),
    ("ring", by_ring),
    ("experiment", experiments),
    ("fuzz", fuzzing),
    ("judges", judges),
    ("crash", power_cuts),
];

/// Runs the named steps, or all of them. Every step runs even after one has failed: one look shows everything.
pub fn run(wanted: &[&str]) -> Result {
    let names: Vec<&str> = STEPS.iter().map(|s| s.0).collect();
    if let Some(stranger) = wanted.iter().find(|w| !names.contains(w)) {
        return Err(format!("ci has no step {stranger:?}; there are: {}", names.join(" ")).into());
    }
    let mut summary: Vec<(&str, Done, Duration)> = Vec::new();
    for (name, step) in STEPS {
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        println!("\n=== {name}");
        let begun = Instant::now();
        let done = step();
        println!("=== {name}: {} ({:.1} s)", word(&done), begun.elapsed().as_secs_f64());
        summary.push((name, done, begun.elapsed()));
    }
    println!("\n=== summary");
    let mut bad = 0;
    for (name, done, took) in &summary {
        println!("{:8} {:>7.1} s  {}", name, took.as_secs_f64(), word(done));
        bad += usize::from(matches!(done, Done::Skipped(_) | Done::Failed(_)));
    }
    if bad > 0 { Err(format!("{bad} of {} steps did not pass", summary.len()).into()) } else { Ok(()) }
}

fn word(done: &Done) -> String {
    match done {
        Done::Passed => "passed".to_owned(),
        Done::PassedBut(what) => format!("passed, but {what}"),
        Done::Skipped(why) => format!("NOT RUN: {why}"),
        Done::Failed(why) => format!("FAILED: {why}"),
    }
}

fn done(result: Result) -> Done {
    match result {
        Ok(()) => Done::Passed,
        Err(why) => Done::Failed(why.to_string()),
    }
}

fn cargo(args: &[&str]) -> Done {
    done(sh::run(sh::cargo().args(args)))
}

/// Every test.
fn tests() -> Done {
    tested(sh::cargo().args(["test", "--workspace", "--locked", "--no-fail-fast"]))
}

/// The suites whose contents and limits may meet the ring, once more by it. Not those about names (`operands`), nor those
/// about large files with sessions (`resume`, `trees_go_on`), which go by plain calls.
const BY_RING: [&str; 7] =
    ["bad_input::", "manifest::", "metadata::", "move_::", "races::", "rules::", "sync::"];

/// The same tests as before, with the engine named on every copy and move that names none.
fn by_ring() -> Done {
    let mut command = sh::cargo();
    command.args(["test", "-p", "bcmr", "--locked", "--no-fail-fast", "--test", "all", "--"]).args(BY_RING);
    // Of the random trees fewer: the step is to take two minutes.
    tested(command.env("BCMR_TEST_ENGINE", "ring").env("BCMR_TREES", "6"))
}

/// Runs tests. Those that could not run here write down why, so that a run that leaves some out does not look like one
/// that does not.
fn tested(command: &mut Command) -> Done {
    let list = sh::root().join("target/ci-skipped");
    if let Err(why) =
        std::fs::create_dir_all(sh::root().join("target")).and_then(|()| std::fs::write(&list, ""))
    {
        return Done::Failed(format!("{}: {why}", list.display()));
    }
    match (done(sh::run(command.env(SKIPS, &list))), std::fs::read_to_string(&list)) {
        (Done::Passed, Ok(skips)) if skips.is_empty() => Done::Passed,
        (Done::Passed, Ok(skips)) => {
            let count = skips.lines().count();
            Done::PassedBut(format!("NOT EVERYTHING WAS TESTED, {count} SKIPPED:\n{}", skips.trim_end()))
        }
        (Done::Passed, Err(why)) => Done::Failed(format!("{}: {why}", list.display())),
        (failed, _) => failed,
    }
}

/// Names the file in which tests write down that they could not run.
const SKIPS: &str = "BCMR_SKIPS";

fn doc() -> Done {
    let mut command = sh::cargo();
    command.args(["doc", "--workspace", "--no-deps", "--locked", "--document-private-items"]);
    done(sh::run(command.env("RUSTDOCFLAGS", "-D warnings")))
}

/// A slice of every judge of `cargo xtask torture`; all of each is `cargo xtask torture`.
const SLICES: [&[&str]; 6] = [
    // 200 times `kill -9`, on four kinds of copies, each followed by the same command again.
    &["kill", "--runs", "65"],
    &["inject", "--max", "15"],
    &["tree", "--quick", "--trees", "1"],
    &["race", "--quick"],
    &["perm", "--quick"],
    &["space", "--quick"],
];

fn judges() -> Done {
    for tool in ["python3", "cc"] {
        if sh::which(tool).is_none() {
            return Done::Skipped(format!("there is no {tool}"));
        }
    }
    if let Err(why) = sh::run(sh::cargo().args(["build", "--locked", "-p", "bcmr"])) {
        return Done::Failed(why.to_string());
    }
    let bcmr = sh::release_dir().with_file_name("debug").join("bcmr");
    let bcmr = bcmr.to_string_lossy();
    let (mut not_run, mut failed) = (Vec::new(), Vec::new());
    for slice in SLICES {
        match torture::judge_all(&[slice, &["--bcmr", &bcmr]].concat()) {
            Ok(skipped) => not_run.extend(skipped),
            Err(why) => failed.push(format!("{}: {why}", slice.first().unwrap_or(&""))),
        }
    }
    match (failed.is_empty(), not_run.is_empty()) {
        (false, _) => Done::Failed(failed.join("; ")),
        (true, false) => {
            Done::PassedBut(format!("{} JUDGES DID NOT RUN: {}", not_run.len(), not_run.join(" ")))
        }
        (true, true) => Done::Passed,
    }
}

/// A few experiments on little data, one of each kind of measurement: that the command runs to its end, and that the
/// program takes the words of all the others.
fn experiments() -> Done {
    let out = sh::root().join("target/ci-experiments");
    let bcmr = sh::release_dir().with_file_name("debug").join("bcmr");
    let (out, bcmr) = (out.to_string_lossy(), bcmr.to_string_lossy());
    let built = sh::run(sh::cargo().args(["build", "--locked", "-p", "bcmr"]));
    let few =
        ["experiment", "local-10,checkpoint-6,library-4,wire-15", "--quick", "--bcmr", &bcmr, "--out", &out];
    done(built.and_then(|()| bench::run(&few)))
}

/// Every decoder under the fuzzer for a moment: that the targets build, and that nothing is found at once.
fn fuzzing() -> Done {
    if sh::which("c++").or_else(|| sh::which("g++")).is_none() {
        return Done::Skipped("there is no C++ compiler".to_owned());
    }
    done(fuzz::run(&["--seconds", "3"]))
}

/// Power cuts for a minute, after the proof that what is faulty would be found.
fn power_cuts() -> Done {
    if let Some(why) = crash::missing(&crash::FS) {
        return Done::PassedBut(format!("POWER CUTS WERE NOT TRIED: {why}"));
    }
    done(crash::run(&["--prove-judge"]).and_then(|()| crash::run(&["--minutes", "1"])))
}

/// Licences, bans and sources always; advisories where the database can be fetched, which is not everywhere.
fn deny() -> Done {
    let local = sh::root().join("target/tools/bin/cargo-deny");
    let Some(program) = local.is_file().then_some(local).or_else(|| sh::which("cargo-deny")) else {
        return Done::Skipped(format!(
            "cargo-deny is not installed; `cargo install cargo-deny --version {DENY_VERSION} --locked --debug --root \
             target/tools` takes a minute or two"
        ));
    };
    let deny = |what: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(sh::root()).args(["--locked", "--all-features", "check"]).args(what);
        command
    };
    let here = done(sh::run(&mut deny(&["bans", "licenses", "sources"])));
    if !matches!(here, Done::Passed) {
        return here;
    }
    let fetched = Command::new(&program)
        .current_dir(sh::root())
        .args(["fetch", "db"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .output();
    if fetched.is_ok_and(|out| out.status.success()) {
        return done(sh::run(&mut deny(&["advisories"])));
    }
    Done::PassedBut("ADVISORIES WERE NOT CHECKED: their database could not be fetched from here".to_owned())
}
