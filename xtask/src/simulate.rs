//! `cargo xtask simulate`: both ends of a transfer in one process, over wires that misbehave, one seed after the other.
//!
//! What is drawn from a seed and what must hold is in `crates/bcmr-engine/src/peer/simulate_tests.rs`; the ordinary tests
//! run the first few hundred.

use sh::Result;
use std::path::Path;

const USAGE: &str = "cargo xtask simulate [--seeds N] [--from SEED]    N seeds (100,000), from SEED (0) on";

/// A file system in memory.
const MEMORY: &str = "/dev/shm";
/// Seeds of a run that is told no number.
const SEEDS: u64 = 100_000;

pub fn run(args: &[&str]) -> Result {
    let (mut seeds, mut from) = (SEEDS, 0);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut number = || rest.next().and_then(|n| n.parse::<u64>().ok()).ok_or(USAGE);
        match *arg {
            "--seeds" => seeds = number()?,
            "--from" => from = number()?,
            _ => return Err(USAGE.into()),
        }
    }
    let mut command = sh::cargo();
    command.args([
        "test",
        // Thousands of seeds: most of what they cost without it is bytes moved by unoptimised code.
        "--release",
        "-p",
        "bcmr-engine",
        "--lib",
        "--locked",
        "--",
        "simulate_tests::every_transfer_ends",
    ]);
    // What lands need not outlive the run: in memory, where there is such a file system.
    if Path::new(MEMORY).is_dir() {
        command.env("TMPDIR", MEMORY);
    }
    sh::run(command.env("BCMR_SEEDS", format!("{from}..{}", from + seeds)))
}
