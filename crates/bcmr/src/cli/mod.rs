//! Which program was called: this one, or another whose name it goes by. Must not know any option.

pub mod bcmr;
pub mod gnu;
pub mod init;
mod symbolic;

use crate::env::{self, Build, Env};
use crate::usage::Usage;
use crate::voice::BCMR;
use crate::{commands, names, say, ui};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// Runs what was typed and returns the exit code. Another program is chosen by the name that this one was called by, or by
/// the first word.
pub fn run(env: &Env) -> u8 {
    if let Some((personality, words)) = gnu::Personality::of_line(&env.line) {
        env::raise_limits();
        return gnu::run(personality, env.line.get(words..).unwrap_or_default(), env);
    }
    if let Some(personality) = gnu::Personality::of_help(&env.line) {
        return gnu::run(personality, &["--help".into()], env);
    }
    if init::asks_for_letters(&env.line) {
        return commands::print(init::LETTERS);
    }
    let typed = bcmr::parse(&env.line);
    let (mut cli, config) = match typed.map(|mut cli| (commands::configured(&mut cli, env), cli)) {
        Err(e) => return explain(&e, env),
        Ok((Err(usage), _)) => {
            ui::writer::err(&say::usage_of(&BCMR, &usage));
            return BCMR.exits.usage;
        }
        Ok((Ok(config), cli)) => (cli, config),
    };
    let verb = env.line.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let mut env = env.clone();
    env.has_defaults_of_proof = !cli.no_defaults && config.defaults().contains_key("check");
    // What was typed, without the defaults, where there are any.
    let mut alone = None;
    // A plan has those that it was made with.
    let wants_defaults = !cli.no_defaults && !cli.command.is_planned();
    if let Some(words) = config.defaults().get(verb).filter(|_| wants_defaults) {
        if let Err(usage) = bcmr::defaults::whole(verb, words) {
            ui::writer::err(&say::usage_of(&BCMR, &usage));
            return BCMR.exits.usage;
        }
        env.defaults = words.iter().map(OsString::from).collect();
        let read = bcmr::parse(env.whole_line());
        // Every command would print the help, or none would have defaults.
        if read.as_ref().map_or_else(|e| !e.use_stderr(), |all| all.no_defaults) {
            ui::writer::err(&say::usage_of(&BCMR, &say::no_defaults_are(env.config_file.as_deref(), verb)));
            return BCMR.exits.usage;
        }
        let typed = match read {
            Ok(all) => std::mem::replace(&mut cli, all),
            Err(e) => {
                ui::writer::err(&say::bad_defaults(&BCMR, verb));
                return explain(&e, &env);
            }
        };
        bcmr::defaults::yield_to(&typed.command, &mut cli.command);
        alone = Some((typed.command, env.line.clone()));
    }
    let settle = |command: &mut bcmr::Command, line: &mut [OsString]| {
        let expanded = bcmr::places::expand(
            command,
            (config.places(), env.own_home.as_deref()),
            line,
            &commands::is_here,
        );
        expanded.and_then(|()| commands::settle(command, env.now))
    };
    let mut line = env.line.clone();
    if let Err(usage) = settle(&mut cli.command, &mut line) {
        // What was typed may make no sense by itself.
        let own = alone.map(|(mut command, mut line)| settle(&mut command, &mut line));
        if let Some(Ok(())) = own {
            ui::writer::err(&say::bad_defaults(&BCMR, verb));
        }
        let usage = own.and_then(Result::err).unwrap_or(usage);
        ui::writer::err(&say::usage_of(&BCMR, &usage));
        return BCMR.exits.usage;
    }
    env.line = line;
    env::raise_limits();
    commands::run(cli.command, &env)
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
