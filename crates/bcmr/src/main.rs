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

use std::process::ExitCode;

fn main() -> ExitCode {
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
        ui::writer::err(&say::clap_error(&text));
        say::EXIT_USAGE
    } else {
        commands::print(&text)
    }
}
