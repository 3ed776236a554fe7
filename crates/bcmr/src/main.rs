//! Reads the environment, lets the program that was called run, exits.
#![forbid(unsafe_code)]

mod address;
mod ask;
mod cli;
mod commands;
mod config;
mod env;
mod input;
mod names;
mod say;
mod show;
mod ui;
mod usage;
mod values;
mod voice;

use bcmr_engine::memory::OrExit;
use std::process::ExitCode;

/// L11: what is under way is found by the next run, as after a kill.
#[global_allocator]
static MEMORY: OrExit = OrExit::new(say::OUT_OF_MEMORY, say::EXIT_OUT_OF_MEMORY);

fn main() -> ExitCode {
    MEMORY.reserve_stack();
    MEMORY.ends_threads_too();
    MEMORY.limits_arenas();
    MEMORY.gives_large_pieces_back();
    // While there is one thread: reading the umask means setting it for a moment.
    let env = env::Env::read();
    ExitCode::from(cli::run(&env))
}
