//! `cargo xtask simulate`: both ends of a transfer in one process, over wires that misbehave, one seed after the other.
//!
//! What is drawn from a seed and what must hold is in `crates/bcmr-engine/src/peer/simulate_tests.rs`, and of whole commands in
//! `simulate_far_tests.rs` beside it; the ordinary tests run the first few hundred.

use crate::typed;
use clap::Parser;
use sh::Result;
use std::path::Path;

/// Both ends of transfers over wires that misbehave; every one must end.
#[derive(Parser)]
#[command(name = "cargo xtask simulate")]
struct Simulate {
    /// How many transfers; of mirrors and moves a tenth, of whole commands a hundredth.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    seeds: u64,
    /// The first.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
}

/// What is played, and which part of the seeds: a whole command takes longer than a transfer.
const PLAYS: [(&str, u64); 4] = [
    ("simulate_tests::every_transfer_ends", 1),
    ("simulate_tests::every_mirror_ends", 10),
    ("simulate_tests::every_move_ends", 10),
    ("simulate_far_tests::", 100),
];

/// A file system in memory.
const MEMORY: &str = "/dev/shm";

pub fn run(args: &[&str]) -> Result {
    let Some(Simulate { seeds, from }) = typed::parse(args)? else { return Ok(()) };
    for (plays, share) in PLAYS {
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
            plays,
        ]);
        // What lands need not outlive the run: in memory, where there is such a file system.
        if Path::new(MEMORY).is_dir() {
            command.env("TMPDIR", MEMORY);
        }
        sh::run(command.env("BCMR_SEEDS", format!("{from}..{}", from + seeds.div_ceil(share))))?;
    }
    Ok(())
}
