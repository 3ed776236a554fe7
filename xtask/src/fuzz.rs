//! `cargo xtask fuzz`: every decoder under libFuzzer, each for a while.
//!
//! Needs no nightly: coverage comes from flags that stable has, and there is no `unsafe` to watch with a sanitizer.

use crate::typed;
use clap::Parser;
use clap::builder::PossibleValuesParser;
use sh::Result;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A target, and the longest input that makes sense for it.
const TARGETS: [(&str, u32); 20] = [
    ("frames", 4096),
    ("message", 4096),
    ("handshake", 256),
    ("contents", 4096),
    ("columns", 4096),
    ("store", 4096),
    ("session", 4096),
    ("delta", 4096),
    ("codec", 4096),
    ("seal", 2048),
    ("manifest", 512),
    ("plan", 4096),
    ("receipt", 1024),
    ("held", 256),
    ("changes", 1024),
    ("ctl", 128),
    ("state", 64),
    ("filter", 512),
    ("address", 256),
    ("config", 512),
];

/// What cargo-fuzz passes too, without a sanitizer: every edge counted, every comparison seen.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing";

/// An overflow is a find, and an optimised target finds it sooner.
const OPTIMISED: [&str; 2] = ["debug-assertions=true", "overflow-checks=true"];

/// Every decoder under libFuzzer. What was found before is kept in target/fuzz/corpus and gone on from, beside fuzz/seeds; an
/// input that fails is named and kept.
#[derive(Parser)]
#[command(name = "cargo xtask fuzz")]
struct Fuzz {
    /// Which; all when none is named.
    #[arg(value_name = "TARGET", value_parser = PossibleValuesParser::new(TARGETS.map(|target| target.0)))]
    targets: Vec<String>,
    /// How long each.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
    /// A thousand inputs each, without optimisation and with the libraries of an ordinary build, whose edges do not count.
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,
}

/// Runs the named targets, or all; every one runs even when one before it has failed.
pub fn run(args: &[&str]) -> Result {
    let Some(Fuzz { targets, seconds, quick }) = typed::parse(args)? else { return Ok(()) };
    if sh::which("c++").or_else(|| sh::which("g++")).is_none() {
        return Err("NOTHING WAS FUZZED: libFuzzer is C++, and there is no c++ here (Debian: g++)".into());
    }
    let home = sh::target_dir().join("fuzz");
    let programs = build(&home, quick)?;
    let mut failed = Vec::new();
    let wanted = |name: &str| targets.is_empty() || targets.iter().any(|named| named == name);
    for (name, bytes_max) in TARGETS.iter().filter(|target| wanted(target.0)) {
        let (said, limits) = if quick {
            let runs = format!("-runs={RUNS_QUICK}");
            (format!("{RUNS_QUICK} inputs"), vec![runs, format!("-max_total_time={SECONDS_MAX}")])
        } else {
            (format!("{seconds} s"), vec![format!("-max_total_time={seconds}")])
        };
        println!("\n=== fuzz {name}, {said}");
        let program = programs.join(name);
        let mut how = one(&home, &program, name, *bytes_max, &limits)?;
        if matches!(how, Fuzzed::TooFew) && !quick {
            // On a slow or busy machine: what counts is how many, not how fast.
            let most = seconds.max(SECONDS_MAX);
            let limits = [format!("-runs={RUNS_MIN}"), format!("-max_total_time={most}")];
            how = one(&home, &program, name, *bytes_max, &limits)?;
        }
        if !matches!(how, Fuzzed::Clean) {
            failed.push(*name);
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("fuzz: {} failed, see above", failed.join(", ")).into())
    }
}

/// What there is to build, and nothing else.
const BUILD: [&str; 6] = ["build", "--locked", "--package", "bcmr-fuzz", "--features", "libfuzzer"];

/// Builds all targets and returns where they are.
fn build(home: &Path, quick: bool) -> Result<PathBuf> {
    let mut command = sh::cargo();
    command.args(BUILD);
    if quick {
        command.args(["--features", "as-built"]);
        // A compiler for this workspace's crates alone: all others are those of an ordinary build, which is there already
        // or is used again.
        command.env("RUSTC_WORKSPACE_WRAPPER", sh::root().join("fuzz/rustc.sh")).env("COVERAGE", COVERAGE);
        sh::run(&mut command)?;
        return Ok(sh::debug_dir());
    }
    // With a target named, the flags are for what runs there, and not for build scripts.
    let verbose = sh::output("rustc", &["-vV"])?;
    let host = verbose.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    command.args(["--release", "--target", host, "--target-dir"]).arg(home);
    for setting in OPTIMISED {
        command.args(["--config", &format!("profile.release.{setting}")]);
    }
    sh::run(command.env("RUSTFLAGS", COVERAGE))?;
    Ok(home.join(host).join("release"))
}

/// A target that has run fewer inputs than this was not fuzzed.
const RUNS_MIN: u64 = 300;

/// As many as a quick look tries.
const RUNS_QUICK: u64 = 1000;

/// A target that takes longer for its inputs than this is too slow, in seconds.
const SECONDS_MAX: u32 = 120;

/// What became of one target.
enum Fuzzed {
    /// Enough inputs, and nothing was found.
    Clean,
    /// Nothing was found, of fewer inputs than would say something.
    TooFew,
    /// An input failed, or the target sees no coverage.
    Bad,
}

/// Runs one target until one of `limits`, in libFuzzer's words.
fn one(home: &Path, program: &Path, name: &str, bytes_max: u32, limits: &[String]) -> Result<Fuzzed> {
    let (corpus, found) = (home.join("corpus").join(name), home.join("found").join(name));
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&found)?;
    plant_seeds(&corpus, name)?;
    // Through a shell that forks: a program that is started directly inherits the peak of our own memory, and libFuzzer
    // would take it for its own.
    let mut command = Command::new("sh");
    command.args(["-c", "\"$@\"; exit $?", "sh"]).arg(program);
    command.arg(&corpus);
    command.arg(format!("-artifact_prefix={}/", found.display()));
    command.args(limits).arg(format!("-max_len={bytes_max}"));
    // A decoder of small messages has no business with more memory or time than this.
    command.args(["-rss_limit_mb=256", "-timeout=5", "-print_final_stats=1", "-use_value_profile=1"]);
    let done = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() {
        let lines: Vec<&str> = said.lines().collect();
        println!("{}", lines[lines.len().saturating_sub(30)..].join("\n"));
        println!("again with: {} FILE, where FILE is the one named above", program.display());
        return Ok(Fuzzed::Bad);
    }
    let stat = |name: &str| -> u64 {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    let runs = stat("stat::number_of_executed_units:");
    // `#1234 DONE cov: 56 ft: ...`: places that were reached, of all that there are.
    let after = |mark: &str| -> Option<u64> {
        let (_, rest) = said.rsplit_once(mark)?;
        rest.trim_start_matches(['(', ' ']).split(' ').next()?.parse().ok()
    };
    let (reached, all) = (after("DONE   cov:").unwrap_or(0), after("modules ").unwrap_or(0));
    println!("{runs} inputs, {reached} of {all} places, {} MB at most", stat("stat::peak_rss_mb:"));
    // A target that sees no coverage, or does next to nothing, would pass for ever.
    if reached < 10 {
        println!("THIS IS NO FUZZING: code that is not instrumented");
        return Ok(Fuzzed::Bad);
    }
    if runs < RUNS_MIN {
        println!("too few inputs: {RUNS_MIN} are wanted");
        return Ok(Fuzzed::TooFew);
    }
    Ok(Fuzzed::Clean)
}

/// Puts what fuzz/seeds has for a target into its corpus: an input on each line, in hex.
fn plant_seeds(corpus: &Path, name: &str) -> Result {
    let path = sh::root().join(format!("fuzz/seeds/{name}.hex"));
    if !path.exists() {
        return Ok(());
    }
    for (n, line) in std::fs::read_to_string(&path)?.lines().enumerate() {
        let pairs = line.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or_default());
        let bytes: std::result::Result<Vec<u8>, _> = pairs.map(|pair| u8::from_str_radix(pair, 16)).collect();
        std::fs::write(corpus.join(format!("seed-{n}")), bytes?)?;
    }
    Ok(())
}
