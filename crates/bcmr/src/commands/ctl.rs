//! `ctl`: finds the runs of this user that hear commands, and tells one.

use super::look::Told;
use crate::cli::bcmr::ctl::{self, CtlArgs, What};
use crate::env::Env;
use crate::say;
use crate::show::Verb;
use crate::ui::writer;
use crate::usage::Usage;
use crate::voice::BCMR;
use bcmr_engine::control;
use bcmr_engine::error::Code;

/// Runs it.
pub fn run(args: &CtlArgs, env: &Env) -> u8 {
    let command = match ctl::request(args) {
        Ok(command) => command,
        Err(u) => return super::verb::usage(Verb::Ctl, &u),
    };
    let mut runs = control::runs(&env.meeting);
    if let Some(pid) = args.pid {
        runs.retain(|(run, _)| *run == pid);
    }
    let lists = args.what == What::Status && args.pid.is_none();
    if runs.is_empty() && !lists {
        return nothing(
            Usage::new("no such run of yours goes to or from another machine").or("bcmr ctl lists them"),
        );
    }
    if runs.len() > 1 && args.what != What::Status {
        return nothing(
            Usage::new("there are several runs").or("bcmr ctl lists them, and --pid N says which"),
        );
    }
    let mut told = Told::new(Verb::Ctl, args.json, env);
    told.start(&[]);
    for (pid, socket) in runs {
        match control::tell(&socket, &env.meeting, command) {
            Ok(status) => told.run(pid, &status),
            // Of a list those are left out that have ended since it was made.
            Err(e) if e.code == Code::NotFound && lists => {}
            Err(e) => told.failed(e),
        }
    }
    told.end()
}

fn nothing(usage: Usage) -> u8 {
    writer::err(&say::usage(&BCMR, Verb::Ctl, &usage));
    BCMR.exits.some_failed
}
