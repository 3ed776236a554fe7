//! Parse, resolve, run, exit.
#![forbid(unsafe_code)]

mod address;
mod args;
mod ask;
mod commands;
mod config;
mod names;
mod resolve;
mod say;
mod ui;
mod usage;
mod voice;
mod words;

use bcmr_engine::memory::OrExit;
use std::process::ExitCode;

/// L11: what is under way is found by the next run, as after a kill.
#[global_allocator]
static MEMORY: OrExit = OrExit::new(say::OUT_OF_MEMORY, say::EXIT_OUT_OF_MEMORY);

fn main() -> ExitCode {
    MEMORY.ends_threads_too();
    // While there is one thread: reading the umask means setting it for a moment.
    let env = resolve::Env::read();
    let code = match args::parse(std::env::args_os()) {
        Ok(cli) => {
            resolve::raise_limits();
            commands::run(cli.command, &env)
        }
        Err(e) => explain(&e),
    };
    ExitCode::from(code)
}

/// Help and version were asked for and go to standard output; everything else was a mistake.
fn explain(e: &clap::Error) -> u8 {
    let text = e.render().to_string();
    if e.use_stderr() {
        ui::writer::err(&say::clap_error(&voice::BCMR, &text));
        voice::BCMR.exits.usage
    } else {
        commands::print(&text)
    }
}
