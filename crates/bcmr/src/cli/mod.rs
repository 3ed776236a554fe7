//! Which program was called: this one, or another whose name it goes by. Must not know any option.

pub mod bcmr;
mod gnu;
pub mod init;

use crate::env::{self, Build, Env};
use crate::usage::Usage;
use crate::voice::BCMR;
use crate::{commands, names, say, ui};
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Runs what was typed and returns the exit code. Another program is chosen by the name that this one was called by, or by
/// the first word.
pub fn run(env: &Env) -> u8 {
    if let Some((personality, words)) = gnu::Personality::of_line(&env.line) {
        env::raise_limits();
        return gnu::run(personality, env.line.get(words..).unwrap_or_default(), env);
    }
    if init::asks_for_letters(&env.line) {
        return commands::print(init::LETTERS);
    }
    match bcmr::parse(&env.line) {
        Ok(cli) => {
            env::raise_limits();
            commands::run(cli.command, env)
        }
        Err(e) => explain(&e, env),
    }
}

/// Help and version were asked for and go to standard output; everything else was a mistake.
fn explain(e: &clap::Error, env: &Env) -> u8 {
    let text = e.render().to_string();
    let words = || env.line.iter().skip(1).filter_map(|word| word.to_str());
    if e.kind() == ErrorKind::DisplayVersion && words().any(|word| matches!(word, "--verbose" | "-v")) {
        commands::print(&say::version(&Build::this()))
    } else if let (ErrorKind::UnknownArgument, Some(ContextValue::String(typed))) =
        (e.kind(), e.get(ContextKind::InvalidArg))
        && let Some(answer) = words().next().and_then(|verb| bcmr::foreign::answer(verb, typed))
    {
        let usage = Usage::new(format!("there is no option {}", names::text(typed))).or(answer);
        ui::writer::err(&say::usage_of(&BCMR, &usage));
        BCMR.exits.usage
    } else if e.use_stderr() {
        ui::writer::err(&say::clap_error(&BCMR, &text));
        BCMR.exits.usage
    } else {
        commands::print(&text)
    }
}
