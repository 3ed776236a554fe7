//! One module for each verb: opens what the request still lacks, runs it under the ui, returns the exit code.
//!
//! Must not decide anything that `cli` can decide, nor word anything.

mod check;
mod child;
mod complete;
mod completions;
mod configuration;
mod copy;
mod ctl;
mod deploy;
mod fallback;
mod judged;
mod look;
mod man;
mod move_;
mod plan;
mod remote;
mod remove;
mod serve;
mod sessions;
mod sudo;
mod sync;
mod undo;
mod verb;
mod via_source;

use crate::cli::bcmr::places::names_places;
use crate::cli::bcmr::{Cli, Command};
use crate::config::{self, Config};
use crate::env::Env;
use crate::usage::Usage;
pub use verb::{is_here, print, settle};

/// The configuration, as far as this command wants it: for defaults of its verb, and for places among its words.
pub fn configured(cli: &mut Cli, env: &Env) -> Result<Config, Usage> {
    let verb = env.line.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let has_defaults = !cli.no_defaults && config::WITH_DEFAULTS.contains(&verb);
    let has_places = names_places(&mut cli.command);
    match (has_places, has_defaults) {
        (true, _) => configuration::configuration(env),
        (false, true) => configuration::configuration(env).or_else(|usage| {
            // What says nothing of defaults, as far as it can be read, is no reason not to copy here.
            if configuration::may_have_defaults(env) { Err(usage) } else { Ok(Config::default()) }
        }),
        (false, false) => Ok(Config::default()),
    }
}

/// Runs what was typed.
pub fn run(command: Command, env: &Env) -> u8 {
    match command {
        Command::Copy(a) => copy::run(&a, env),
        Command::Move(a) => move_::run(&a, env),
        Command::Remove(a) => remove::run(&a, env),
        Command::Check(a) => check::run(&a, env),
        Command::Sync(a) => sync::run(&a, env),
        Command::Undo(a) => undo::run(&a, env),
        Command::Plan(a) => plan::plan(&a, env),
        Command::Shard(a) => plan::shard(&a, env),
        Command::Finish(a) => plan::finish(&a, env),
        Command::Sessions(a) => sessions::run(&a, env),
        Command::Ctl(a) => ctl::run(&a, env),
        Command::Ls(a) => look::ls(&a, env),
        Command::Stat(a) => look::stat(&a, env),
        Command::Du(a) => look::du(&a, env),
        Command::Hash(a) => look::hash(&a, env),
        Command::Mkdir(a) => look::mkdir(&a, env),
        Command::Doctor(a) => look::doctor(&a, env),
        Command::Deploy(a) => look::deploy(&a, env),
        Command::Serve(a) => serve::run(&a, env),
        Command::Init(a) => print(&(crate::cli::init::aliases(&a) + completions::script(a.shell))),
        Command::Config => match configuration::configuration(env) {
            Ok(config) => print(&crate::say::configuration(env.config_file.as_deref(), &config)),
            Err(u) => {
                crate::ui::writer::err(&crate::say::usage_of(&crate::voice::BCMR, &u));
                crate::voice::BCMR.exits.usage
            }
        },
        Command::AtSource => match via_source::at_source(env) {
            Err(code) => code,
            Ok((mut command, env)) => match settle(&mut command, env.now) {
                Ok(()) => {
                    crate::env::raise_limits();
                    run(command, &env)
                }
                Err(u) => {
                    crate::ui::writer::err(&crate::say::usage_of(&crate::voice::BCMR, &u));
                    crate::voice::BCMR.exits.usage
                }
            },
        },
        Command::Schema => print(&crate::ui::json::schema()),
        Command::Completions { shell } => completions::run(shell),
        Command::Complete { index, words } => complete::run(index, words, env),
        Command::Man { dir } => man::run(dir.as_deref()),
    }
}
