//! `serve`: hands the two pipes to the engine.
//!
//! Must not print to standard output, where the wire is. So the wire gets descriptors of its own, and whatever still
//! writes to standard output by accident writes to standard error.

use crate::cli::bcmr::serve::{self, ServeArgs};
use crate::env::Env;
use crate::say;
use crate::show::Verb;
use crate::ui::writer;
use crate::voice::BCMR;
use bcmr_engine::error::{Error, Op};
use bcmr_engine::peer;
use std::io;
use std::os::fd::OwnedFd;

/// Runs until the other side goes.
pub fn run(args: &ServeArgs, env: &Env) -> u8 {
    // The store is a help and never a condition: what is wrong with the file is told, and nothing is kept.
    let said = super::configuration::configuration(env).map(|config| config.store_keep());
    let kept = said.unwrap_or_else(|u| {
        writer::err(&say::usage(&BCMR, Verb::Serve, &u));
        None
    });
    let request = match serve::request(args, kept, env) {
        Ok(request) => request,
        Err(u) => return super::verb::usage(Verb::Serve, &u),
    };
    let served = pipes()
        .map_err(|e| Error::os(Op::TakeThePipes, "", e))
        .and_then(|(input, output)| peer::serve(request, input, output));
    match served {
        Ok(()) => BCMR.exits.done,
        Err(e) => {
            writer::err(&format!("{}\n", say::error(&BCMR, &e)));
            say::exit_code_of(&BCMR.exits, Verb::Serve, &e)
        }
    }
}

fn pipes() -> io::Result<(OwnedFd, OwnedFd)> {
    // Above the three standard ones, so that no child gets them by number.
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok((input, output))
}
