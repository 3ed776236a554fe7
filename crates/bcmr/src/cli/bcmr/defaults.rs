//! What the configuration has as defaults of a verb, beside what was typed: that counts more, wherever in the line it stands.
//!
//! Must not know where defaults are written down, nor what any option does.

use super::Command;
use super::collide::TypedCollide;
use super::connection::{ConnectArgs, RemoteArgs};
use super::words::wants_next;
use crate::names;
use crate::usage::Usage;
use std::ffi::OsStr;
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
            // Defaults are about trees that are copied; a manifest that is named is about all that it says.
            if typed.manifest.is_some() {
                all.filters = typed.filters.clone();
            }
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
