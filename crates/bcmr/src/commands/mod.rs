//! One module for each verb: opens what the request still lacks, runs it under the ui, returns the exit code.
//!
//! Must not decide anything that `cli` can decide, nor word anything.

mod check;
mod child;
mod completions;
mod copy;
mod deploy;
mod fallback;
mod look;
mod man;
mod move_;
mod plan;
mod remote;
mod remove;
mod serve;
mod sessions;
mod sync;
mod verb;

use crate::cli::bcmr::Command;
use crate::env::Env;
pub use verb::print;

/// Runs what was typed.
pub fn run(command: Command, env: &Env) -> u8 {
    match command {
        Command::Copy(a) => copy::run(&a, env),
        Command::Move(a) => move_::run(&a, env),
        Command::Remove(a) => remove::run(&a, env),
        Command::Check(a) => check::run(&a, env),
        Command::Sync(a) => sync::run(&a, env),
        Command::Plan(a) => plan::plan(&a, env),
        Command::Shard(a) => plan::shard(&a, env),
        Command::Finish(a) => plan::finish(&a, env),
        Command::Sessions(a) => sessions::run(&a, env),
        Command::Ls(a) => look::ls(&a, env),
        Command::Stat(a) => look::stat(&a, env),
        Command::Du(a) => look::du(&a, env),
        Command::Hash(a) => look::hash(&a, env),
        Command::Doctor(a) => look::doctor(&a, env),
        Command::Deploy(a) => look::deploy(&a, env),
        Command::Serve(a) => serve::run(&a, env),
        Command::Init(a) => print(&crate::cli::init::aliases(&a)),
        Command::Schema => print(&crate::ui::json::schema()),
        Command::Completions { shell } => completions::run(shell),
        Command::Man { dir } => man::run(dir.as_deref()),
    }
}
