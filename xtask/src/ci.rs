//! `cargo xtask ci`: every check, in two lanes beside each other; `--deep` takes all of what is otherwise a slice.
//!
//! One target directory and the dev profile throughout, and the fuzzer's own. A step that could not run is named as such at
//! the end and never counts as passed. Must not know what a step looks for.

use crate::bench;
use crate::crash;
use crate::deny;
use crate::fuzz;
use crate::mpi;
use crate::simulate;
use crate::slurm;
use crate::tidy;
use crate::torture;
use crate::typed;
use crate::wheel;
use clap::Parser;
use clap::builder::PossibleValuesParser;
use sh::Result;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The cargo-deny whose words `cargo xtask ci deny` knows, and that `.ci/run --deep` installs.
const DENY_VERSION: &str = "0.20.2";

enum Done {
    Passed,
    /// Passed as far as it went, and what was left out; it does not fail the run, and it is always said.
    PassedBut(String),
    /// Could not be carried out here, and why; in CI that is a failure.
    Skipped(String),
    Failed(String),
}

/// How much of what a step could try.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Slice,
    All,
}

/// The steps of one lane begin one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// What everything else waits for, and the tests, which wait for the kernel much of their time.
    Front,
    /// What keeps a processor busy meanwhile.
    Back,
}

struct Step {
    name: &'static str,
    lane: Lane,
    /// The step that makes what this one uses, and that would hold cargo's lock.
    after: Option<&'static str>,
    /// No part of a run that takes slices: it cannot be less than all of it, or a test does the same.
    only_deep: bool,
    run: fn(Depth) -> Done,
}

const fn step(name: &'static str, lane: Lane, after: Option<&'static str>, run: fn(Depth) -> Done) -> Step {
    Step { name, lane, after, only_deep: false, run }
}

const STEPS: [Step; 15] = [
    step("fmt", Lane::Front, None, |_| cargo(&["fmt", "--all", "--check"])),
    step("deny", Lane::Front, None, denied),
    step("build", Lane::Front, None, |_| done(build())),
    step("test", Lane::Front, None, tests),
    step("clippy", Lane::Back, Some("build"), |_| lints()),
    step("fuzz", Lane::Back, Some("build"), fuzzing),
    Step { only_deep: true, ..step("tidy", Lane::Back, Some("build"), |_| done(tidy::run(&[]))) },
    step("doc", Lane::Back, Some("build"), doc),
    Step { only_deep: true, ..step("msrv", Lane::Back, Some("build"), |_| oldest_compiler()) },
    step("judges", Lane::Back, Some("build"), judges),
    step("crash", Lane::Back, Some("build"), power_cuts),
    step("experiment", Lane::Back, Some("build"), |_| experiments()),
    step("ring", Lane::Back, Some("build"), by_ring),
    Step { only_deep: true, ..step("simulate", Lane::Front, None, |_| done(simulate::run(&[]))) },
    Step { only_deep: true, ..step("faces", Lane::Front, None, |_| faces()) },
];

/// What builds all programs, tests and examples. No step builds a part of that by itself: alone it has dependencies with
/// other features, and would be built once more, under the tests that run it.
const BUILD: &[&str] = &["build", "--workspace", "--all-targets", "--locked"];

/// What a step came to, as its own process says it: the first word of its verdict, and the rest.
const VERDICTS: [&str; 4] = ["passed", "but", "skipped", "failed"];

/// Every check, in two lanes.
#[derive(Parser)]
#[command(name = "cargo xtask ci")]
struct Ci {
    /// Only these, one after the other.
    #[arg(value_name = "STEP", value_parser = PossibleValuesParser::new(STEPS.map(|step| step.name)))]
    steps: Vec<String>,
    /// All of what is otherwise a slice.
    #[arg(long)]
    deep: bool,
    /// Runs one step in this very process.
    #[arg(long, value_name = "STEP", hide = true)]
    inside: Option<String>,
}

/// Runs the named steps one after the other, or all of them in their lanes. Every step runs even after one has failed: one
/// look shows everything.
pub fn run(args: &[&str]) -> Result {
    let Some(Ci { steps: wanted, deep, inside: one }) = typed::parse(args)? else { return Ok(()) };
    if let Some(name) = one {
        return inside(&name, if deep { Depth::All } else { Depth::Slice });
    }
    std::fs::create_dir_all(said(""))?;
    let takes = |step: &&Step| {
        if wanted.is_empty() { deep || !step.only_deep } else { wanted.iter().any(|name| name == step.name) }
    };
    let steps: Vec<&Step> = STEPS.iter().filter(takes).collect();
    let begun = Instant::now();
    let ended = if wanted.is_empty() { in_lanes(&steps, deep) } else { one_by_one(&steps, deep) };
    println!("\n=== summary");
    let mut bad = 0;
    for step in &steps {
        let Some(end) = ended.iter().find(|end| end.name == step.name) else { continue };
        println!(
            "{:10} {:>7.1} s  {:>7.1} s of processor  {}",
            end.name,
            end.took.as_secs_f64(),
            end.worked_s,
            word(&end.done)
        );
        bad += usize::from(matches!(end.done, Done::Skipped(_) | Done::Failed(_)));
    }
    println!("{:10} {:>7.1} s", "all", begun.elapsed().as_secs_f64());
    if bad > 0 { Err(format!("{bad} of {} steps did not pass", steps.len()).into()) } else { Ok(()) }
}

/// How a step ended.
struct StepEnd {
    name: &'static str,
    done: Done,
    took: Duration,
    worked_s: f64,
}

/// In this terminal, as it comes.
fn one_by_one(steps: &[&Step], deep: bool) -> Vec<StepEnd> {
    let run = |step: &&Step| {
        println!("\n=== {}", step.name);
        let end = child(step, deep, None);
        println!("=== {}: {} ({:.1} s)", end.name, word(&end.done), end.took.as_secs_f64());
        end
    };
    steps.iter().map(run).collect()
}

/// Both lanes at once; one that has come to its end takes what the other has not begun. What a step says is kept back until
/// it ends, so that it stands together.
fn in_lanes(steps: &[&Step], deep: bool) -> Vec<StepEnd> {
    let left: Mutex<Vec<&Step>> = Mutex::new(steps.to_vec());
    let next = |lane: Lane| {
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        let at = left.iter().position(|step| step.lane == lane).unwrap_or(0);
        (!left.is_empty()).then(|| left.remove(at))
    };
    let finished: Mutex<BTreeSet<&str>> = Mutex::default();
    let changed = Condvar::new();
    let printing = Mutex::new(());
    let lane = |lane: Lane| -> Vec<StepEnd> {
        let mut all = Vec::new();
        while let Some(step) = next(lane) {
            let mut held = finished.lock().unwrap_or_else(PoisonError::into_inner);
            while step.after.is_some_and(|after| !held.contains(after)) {
                held = changed.wait(held).unwrap_or_else(PoisonError::into_inner);
            }
            drop(held);
            println!("=== {} begins", step.name);
            let log = said(&format!("{}.log", step.name));
            let end = child(step, deep, Some(log.clone()));
            let alone = printing.lock();
            println!("\n=== {}", step.name);
            match std::fs::read(&log) {
                Ok(text) => print!("{}", String::from_utf8_lossy(&text)),
                Err(e) => println!("{}: {e}", log.display()),
            }
            println!("=== {}: {} ({:.1} s)\n", end.name, word(&end.done), end.took.as_secs_f64());
            drop(alone);
            all.push(end);
            finished.lock().unwrap_or_else(PoisonError::into_inner).insert(step.name);
            changed.notify_all();
        }
        all
    };
    std::thread::scope(|scope| {
        let lanes = [Lane::Front, Lane::Back].map(|which| scope.spawn(move || lane(which)));
        lanes.into_iter().flat_map(|lane| lane.join().unwrap_or_default()).collect()
    })
}

/// Runs a step as a process of its own, so that what it prints and what it uses is its own.
fn child(step: &Step, deep: bool, log: Option<PathBuf>) -> StepEnd {
    let begun = Instant::now();
    let verdict = said(&format!("{}.verdict", step.name));
    let run = || -> Result<(Done, f64)> {
        if verdict.exists() {
            std::fs::remove_file(&verdict)?;
        }
        let mut command = Command::new("/proc/self/exe");
        command.args(["ci", "--inside", step.name]).args(deep.then_some("--deep")).stdin(Stdio::null());
        if let Some(log) = log {
            let log = File::create(log)?;
            command.stdout(log.try_clone()?).stderr(log);
        }
        let status = command.status()?;
        let text = std::fs::read_to_string(&verdict)
            .map_err(|e| format!("it ended without a word, {status}: {e}"))?;
        let (head, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let (kind, worked_s) = head.split_once(' ').ok_or("no verdict")?;
        let rest = rest.to_owned();
        let done = match VERDICTS.iter().position(|word| *word == kind) {
            Some(0) => Done::Passed,
            Some(1) => Done::PassedBut(rest),
            Some(2) => Done::Skipped(rest),
            _ => Done::Failed(rest),
        };
        Ok((done, worked_s.parse()?))
    };
    let (done, worked_s) = run().unwrap_or_else(|e| (Done::Failed(e.to_string()), 0.0));
    StepEnd { name: step.name, done, took: begun.elapsed(), worked_s }
}

/// The process's side of [`child`].
fn inside(name: &str, depth: Depth) -> Result {
    let step = STEPS.iter().find(|step| step.name == name).ok_or("no such step")?;
    let done = (step.run)(depth);
    let (kind, rest) = match done {
        Done::Passed => (0, String::new()),
        Done::PassedBut(what) => (1, what),
        Done::Skipped(why) => (2, why),
        Done::Failed(why) => (3, why),
    };
    Ok(std::fs::write(
        said(&format!("{name}.verdict")),
        format!("{} {}\n{rest}", VERDICTS[kind], worked_s()?),
    )?)
}

/// Where steps leave their words.
fn said(file: &str) -> PathBuf {
    sh::root().join("target/ci").join(file)
}

/// Seconds of processor that this process and the children it has waited for have used.
fn worked_s() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(") ").ok_or("no /proc/self/stat")?;
    // utime, stime, cutime and cstime, in hundredths.
    let ticks =
        fields.split(' ').skip(11).take(4).map(str::parse::<u64>).sum::<std::result::Result<u64, _>>()?;
    Ok(ticks as f64 / 100.0)
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

/// The compiler that is rustc and looks for lints as well, where it is installed.
fn clippy_driver() -> Option<PathBuf> {
    let sysroot = sh::output("rustc", &["--print", "sysroot"]).ok()?;
    Some(PathBuf::from(sysroot).join("bin/clippy-driver")).filter(|driver| driver.is_file())
}

/// The cargo that builds what all steps share. By itself `cargo clippy` reads all dependencies once more and compiles
/// everything here once more; as the compiler of this workspace clippy takes a fifth of what the compiler takes.
fn linting_cargo() -> Command {
    let mut command = sh::cargo();
    if let Some(driver) = clippy_driver() {
        command.env("RUSTC_WORKSPACE_WRAPPER", driver);
    }
    command
}

fn build() -> Result {
    sh::run(linting_cargo().args(BUILD))
}

/// What was found while all was compiled, which cargo says again of what is up to date; each is a failure.
fn lints() -> Done {
    if clippy_driver().is_none() {
        return Done::Skipped("there is no clippy (`rustup component add clippy`)".to_owned());
    }
    done((|| {
        let out = linting_cargo()
            .args(BUILD)
            .args(["--message-format", "json"])
            .stderr(Stdio::inherit())
            .output()?;
        let mut found = 0;
        for line in String::from_utf8_lossy(&out.stdout).lines() {
            let said: serde_json::Value = serde_json::from_str(line)?;
            if let Some(lint) = said["message"]["rendered"].as_str() {
                println!("{lint}");
                found += 1;
            }
        }
        match (found, out.status.success()) {
            (0, true) => Ok(()),
            (0, false) => Err(format!("the build: {}", out.status).into()),
            _ => Err(format!("the compiler and its lints found {found} faults").into()),
        }
    })())
}

/// Tells tests to take all of what they otherwise take a slice of.
const DEEP: &str = "BCMR_ALL";

/// Every test.
fn tests(depth: Depth) -> Done {
    let mut command = linting_cargo();
    // Half of their time tests wait: for other processes, for the kernel, and for what must not happen.
    command.args(["test", "--workspace", "--locked", "--no-fail-fast"]).env("RUST_TEST_THREADS", "4");
    if depth == Depth::All {
        command.env(DEEP, "1");
    }
    tested("test", &mut command)
}

/// The suites whose contents and limits may meet the ring, once more by it. Not those about names (`operands`), nor those
/// about large files with sessions (`resume`, `trees_go_on`), which go by plain calls.
const BY_RING: [&str; 7] =
    ["bad_input::", "manifest::", "metadata::", "move_::", "races::", "rules::", "sync::"];

/// The same tests as before, with the engine named on every copy and move that names none.
fn by_ring(depth: Depth) -> Done {
    let mut command = linting_cargo();
    command.args(["test", "--workspace", "--locked", "--no-fail-fast", "--test", "all", "--"]).args(BY_RING);
    match depth {
        // Of the random trees fewer, and what goes by plain calls for the most part not at all: the step is to take a
        // minute.
        Depth::Slice => {
            let skipped =
                ["move_::", "a_move_", "a_removal_", "a_killed_move_", "standard_output", "twenty_thousand"];
            command.env("BCMR_TREES", "4").args(skipped.iter().flat_map(|name| ["--skip", name]))
        }
        Depth::All => command.env(DEEP, "1"),
    };
    // On a disk, where the other tests are in memory.
    tested("ring", command.env("BCMR_TEST_ENGINE", "ring").env("BCMR_TEST_DISK", "1"))
}

/// Runs tests. Those that could not run here write down why, so that a run that leaves some out does not look like one
/// that does not.
fn tested(name: &str, command: &mut Command) -> Done {
    let list = said(&format!("{name}.skipped"));
    if let Err(why) = std::fs::write(&list, "") {
        return Done::Failed(format!("{}: {why}", list.display()));
    }
    match (done(sh::run(command.env(skips::LIST, &list))), std::fs::read_to_string(&list)) {
        (Done::Passed, Ok(skips)) if skips.is_empty() => Done::Passed,
        (Done::Passed, Ok(skips)) => {
            let count = skips.lines().count();
            Done::PassedBut(format!("NOT EVERYTHING WAS TESTED, {count} SKIPPED:\n{}", skips.trim_end()))
        }
        (Done::Passed, Err(why)) => Done::Failed(format!("{}: {why}", list.display())),
        (failed, _) => failed,
    }
}

/// The crates in workspaces of their own, which a change of the engine may break unseen: Python's and MPI's.
fn faces() -> Done {
    done((|| {
        wheel::run(&[])?;
        mpi::run(&[])?;
        slurm::run(&[])
    })())
}

/// Documentation without a broken link: of the libraries, from what the build has left; or of all.
fn doc(depth: Depth) -> Done {
    let mut command = match depth {
        Depth::Slice => linting_cargo(),
        Depth::All => sh::cargo(),
    };
    match depth {
        Depth::Slice => command
            .args(["test", "--doc", "--workspace", "--locked"])
            .env("RUSTDOC", sh::root().join("xtask/rustdoc.sh"))
            .env("OUT", sh::target_dir().join("doc")),
        Depth::All => command
            .args(["doc", "--workspace", "--no-deps", "--locked", "--document-private-items"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    };
    done(sh::run(&mut command))
}

/// The program with the oldest compiler that Cargo.toml promises.
fn oldest_compiler() -> Done {
    let manifest = match std::fs::read_to_string(sh::root().join("Cargo.toml")) {
        Ok(manifest) => manifest,
        Err(why) => return Done::Failed(why.to_string()),
    };
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let Some(version) = version.map(|version| version.trim_matches('"')) else {
        return Done::Failed("Cargo.toml names no rust-version".to_owned());
    };
    let there = Command::new("rustup").args(["run", version, "rustc", "--version"]).output();
    if !there.is_ok_and(|out| out.status.success()) {
        let why =
            format!("there is no Rust {version} (`rustup toolchain install {version} --profile minimal`)");
        return Done::Skipped(why);
    }
    let mut check = Command::new("rustup");
    check.args([
        "run",
        version,
        "cargo",
        "check",
        "--locked",
        "--package",
        "bcmr",
        "--target-dir",
        "target/msrv",
    ]);
    done(sh::run(check.current_dir(sh::root())))
}

/// A slice of every judge of `cargo xtask torture`; all of each is `cargo xtask torture`.
const SLICES: [&[&str]; 6] = [
    // Some seventy times `kill -9`, on each kind of copy and move, each followed by the same command again.
    &["kill", "--runs", "4"],
    &["inject", "--max", "6"],
    &["tree", "--quick", "--trees", "1"],
    &["race", "--quick"],
    &["perm", "--quick"],
    &["space", "--quick"],
];

/// Where the program is that is under test; built, where that has not been done yet.
fn program() -> Result<String> {
    build()?;
    Ok(sh::debug_dir().join("bcmr").to_string_lossy().into_owned())
}

fn judges(depth: Depth) -> Done {
    for tool in ["python3", "cc"] {
        if sh::which(tool).is_none() {
            return Done::Skipped(format!("there is no {tool}"));
        }
    }
    let bcmr = match program() {
        Ok(bcmr) => bcmr,
        Err(why) => return Done::Failed(why.to_string()),
    };
    let (mut not_run, mut failed) = (Vec::new(), Vec::new());
    let all: [&[&str]; 1] = [&[]];
    for slice in if depth == Depth::All { &all[..] } else { &SLICES[..] } {
        match torture::judge_all(&[slice, &["--bcmr", &bcmr][..]].concat()) {
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
    let few =
        ["experiment", "local-10,checkpoint-6,library-4,wire-15", "--quick", "--out", &out.to_string_lossy()];
    done(program().and_then(|bcmr| bench::run(&[&few[..], &["--bcmr", &bcmr]].concat())))
}

/// Every decoder under the fuzzer for a thousand inputs: that the targets build, and that nothing is found at once.
fn fuzzing(depth: Depth) -> Done {
    if sh::which("c++").or_else(|| sh::which("g++")).is_none() {
        return Done::Skipped("there is no C++ compiler".to_owned());
    }
    done(fuzz::run(if depth == Depth::All { &[] } else { &["--quick"] }))
}

/// Power cuts for some twenty seconds, after the proof that what is faulty would be found.
fn power_cuts(depth: Depth) -> Done {
    if let Some(why) = crash::missing(&crash::FS) {
        return Done::PassedBut(format!("POWER CUTS WERE NOT TRIED: {why}"));
    }
    let minutes = if depth == Depth::All { "20" } else { "0.35" };
    done(program().and_then(|bcmr| {
        let built = ["--built", "--bcmr", &bcmr];
        crash::run(&[&built[..], &["--prove-judge"]].concat())?;
        crash::run(&[&built[..], &["--minutes", minutes]].concat())
    }))
}

/// Licences, bans and sources always; advisories where cargo-deny is installed and their database can be fetched.
fn denied(depth: Depth) -> Done {
    if let Err(why) = deny::run() {
        return Done::Failed(why.to_string());
    }
    let local = sh::root().join("target/tools/bin/cargo-deny");
    let Some(program) = local.is_file().then_some(local).or_else(|| sh::which("cargo-deny")) else {
        let why = format!(
            "ADVISORIES WERE NOT CHECKED: there is no cargo-deny; `.ci/run --deep` installs it, or `cargo install \
             cargo-deny --version {DENY_VERSION} --locked --debug --root target/tools`"
        );
        return if depth == Depth::All { Done::Skipped(why) } else { Done::PassedBut(why) };
    };
    let fetched = Command::new(&program)
        .current_dir(sh::root())
        .args(["fetch", "db"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .output();
    if fetched.is_ok_and(|out| out.status.success()) {
        let mut advisories = Command::new(&program);
        advisories.current_dir(sh::root()).args(["--locked", "--all-features", "check", "advisories"]);
        return done(sh::run(&mut advisories));
    }
    Done::PassedBut("ADVISORIES WERE NOT CHECKED: their database could not be fetched from here".to_owned())
}
