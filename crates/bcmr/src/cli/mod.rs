//! Which program was called: this one, or another whose name it goes by. Must not know any option.

pub mod bcmr;

use crate::env::{self, Env};
use crate::voice::BCMR;
use crate::{commands, say, ui};

/// Runs what was typed and returns the exit code. A further personality is one more arm here, chosen by the name that
/// the program was called by or by the first word.
pub fn run(env: &Env) -> u8 {
    match bcmr::parse(&env.line) {
        Ok(cli) => {
            env::raise_limits();
            commands::run(cli.command, env)
        }
        Err(e) => explain(&e),
    }
}

/// Help and version were asked for and go to standard output; everything else was a mistake.
fn explain(e: &clap::Error) -> u8 {
    let text = e.render().to_string();
    if e.use_stderr() {
        ui::writer::err(&say::clap_error(&BCMR, &text));
        BCMR.exits.usage
    } else {
        commands::print(&text)
    }
}
