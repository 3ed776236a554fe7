//! Says what makes no sense, in what was typed or in what the configuration has as defaults of its verb.
//!
//! Must not run anything.

use super::configuration::configuration;
use super::verb::{is_here, settle, usage};
use crate::cli::bcmr::operands::{Places, places};
use crate::cli::bcmr::remote::RemoteJob;
use crate::cli::bcmr::{Cli, Command, check, copy, move_, parse, remove, sync, via_source};
use crate::env::Env;
use crate::say;
use crate::show::Verb;
use crate::ui::writer;
use crate::usage::Usage;
use crate::voice::BCMR;

/// Says what makes no sense in a command that may have defaults, and returns its exit code. What makes no sense need not have
/// been typed: the defaults are named where what was typed makes sense without them. Else its own error is told.
pub fn usage_with_defaults(env: &Env, verb: Verb, u: &Usage) -> u8 {
    if env.defaults.is_empty() {
        return usage(verb, u);
    }
    match typed_alone(env) {
        Ok(()) => {
            writer::err(&say::bad_defaults(&BCMR, verb.name()));
            usage(verb, u)
        }
        Err(own) => usage(verb, &own),
    }
}

/// What is wrong with what was typed.
fn typed_alone(env: &Env) -> Result<(), Usage> {
    let env = &Env { defaults: Vec::new(), ..env.clone() };
    let Ok(Cli { mut command, .. }) = parse(&env.line) else { return Ok(()) };
    settle(&mut command, env.now)?;
    match &command {
        Command::Copy(a) => match places(&a.operands, &a.connect, &is_here)? {
            Places::Here => copy::request(a, env).map(drop),
            far => {
                let job = copy::remote(a, far, &configuration(env)?, env)?;
                of_source(&job, a.remote.via_source, copy::about_here(a), env)
            }
        },
        Command::Move(a) => match places(&a.operands, &a.connect, &is_here)? {
            Places::Here => move_::request(a, env).map(drop),
            far => {
                let job = move_::remote(a, far, &configuration(env)?, env)?;
                of_source(&job, a.remote.via_source, a.about_here(), env)
            }
        },
        Command::Check(a) => match check::manifest(a, env, &is_here) {
            Some(job) => job.map(drop),
            None => match places(&a.operands, &a.connect, &is_here)? {
                Places::Here => check::request(a, env).map(drop),
                far => check::remote(a, far, &configuration(env)?, env).map(drop),
            },
        },
        Command::Sync(a) => match places(&a.operands(), &a.connect, &is_here)? {
            Places::Here => sync::request(a, env).map(drop),
            far => {
                let job = sync::remote(a, far, &configuration(env)?, env)?;
                of_source(&job, a.remote.via_source, sync::about_here(a), env)
            }
        },
        Command::Remove(a) => {
            remove::named(a, &is_here)?;
            remove::request(a, env).map(drop)
        }
        _ => Ok(()),
    }
}

/// What is wrong with it as something that the source's machine is to do.
fn of_source(job: &RemoteJob, asked: bool, about_here: Option<&str>, env: &Env) -> Result<(), Usage> {
    if asked { via_source::told(&job.places, &env.line, about_here).map(drop) } else { Ok(()) }
}
