//! What the configuration has as defaults of a verb, beside what was typed: that counts more, wherever in the line it stands.
//!
//! Must not know where defaults are written down, nor what any option does.

use super::collide::TypedCollide;
use super::connection::{ConnectArgs, RemoteArgs};
use super::words::wants_next;
use super::{Cli, Command, parse};
use crate::env::Env;
use crate::names;
use crate::usage::Usage;
use clap::error::ErrorKind;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Refuses an option without its value, which would take the first word that is typed for it.
///
/// # Errors
/// There is one.
pub fn whole(verb: &str, words: &[String]) -> Result<(), Usage> {
    let mut all = super::command();
    all.build();
    let Some(definitions) = all.find_subcommand(verb) else { return Ok(()) };
    let Some(word) = words.iter().find(|word| wants_next(definitions, OsStr::new(word)).is_some()) else {
        return Ok(());
    };
    let said = format!("{} among the defaults of {verb} lacks its value", names::quoted(Path::new(word)));
    Err(Usage::new(said).or("a value stands in the same word as its option: --jobs=4"))
}

/// Reads what was typed with defaults before it. Those that clap says do not go with what was typed, or want what neither says,
/// are left out, and are none of `env` any more. `-n` is none of these.
///
/// # Errors
/// As [`parse`].
pub fn read(env: &mut Env, words: &[String]) -> Result<Cli, clap::Error> {
    env.defaults = words.iter().map(OsString::from).collect();
    loop {
        let e = match parse(env.whole_line()) {
            Err(e)
                if matches!(e.kind(), ErrorKind::ArgumentConflict | ErrorKind::MissingRequiredArgument) =>
            {
                e
            }
            done => return done,
        };
        let is_at_fault = |word: &OsString| {
            let alone = Env { defaults: vec![word.clone()], ..env.clone() };
            parse(alone.whole_line()).is_err_and(|own| own.kind() == e.kind())
        };
        // A dry run does not become a run.
        let is_dry = |word: &OsString| {
            let verb = env.line.iter().take(2).cloned();
            let alone = parse(verb.chain([word.clone(), "a".into(), "b".into()]));
            alone.is_ok_and(|it| it.command.is_dry_run())
        };
        let holds = |word: &&OsString| !is_at_fault(word) || is_dry(word);
        let kept: Vec<OsString> = env.defaults.iter().filter(holds).cloned().collect();
        // Among themselves they make no sense.
        if kept.len() == env.defaults.len() {
            return Err(e);
        }
        env.defaults = kept;
    }
}

/// Takes back from a command with defaults what its words as they were `typed` are against, and what has a meaning only
/// elsewhere.
pub fn yield_to(typed: &Command, command: &mut Command) {
    match (typed, command) {
        (Command::Copy(typed), Command::Copy(all)) => {
            connection((&typed.connect, Some(&typed.remote)), &mut all.connect);
            let (typed, all) = (&typed.collide, &mut all.collide);
            let said = TypedCollide::new(typed.force, typed.interactive, typed.no_clobber, &typed.update);
            said.holds(&mut all.interactive, &mut all.no_clobber, &mut all.update);
        }
        (Command::Move(typed), Command::Move(all)) => {
            connection((&typed.connect, Some(&typed.remote)), &mut all.connect);
            let (typed, all) = (&typed.collide, &mut all.collide);
            let said = TypedCollide::new(typed.force, typed.interactive, typed.no_clobber, &typed.update);
            said.holds(&mut all.interactive, &mut all.no_clobber, &mut all.update);
        }
        (Command::Check(typed), Command::Check(all)) => {
            connection((&typed.connect, None), &mut all.connect);
            let (typed, all) = (&typed.as_copy, &mut all.as_copy);
            let said = TypedCollide::new(false, false, typed.no_clobber, &typed.update);
            said.holds(&mut false, &mut all.no_clobber, &mut all.update);
        }
        (Command::Sync(typed), Command::Sync(all)) => {
            connection((&typed.connect, Some(&typed.remote)), &mut all.connect);
        }
        (Command::Remove(typed), Command::Remove(all)) => {
            connection((&typed.connect, None), &mut all.connect);
        }
        (Command::Ls(typed), Command::Ls(all)) => {
            connection((&typed.look.connect, None), &mut all.look.connect);
        }
        (Command::Du(typed), Command::Du(all)) => {
            connection((&typed.look.connect, None), &mut all.look.connect);
        }
        _ => {}
    }
}

/// What defaults alone say of connections holds where there is one.
fn connection((connect, remote): (&ConnectArgs, Option<&RemoteArgs>), all: &mut ConnectArgs) {
    all.by_default = super::connection::no_connection(connect, remote).is_ok();
}
