//! One module for each verb: opens what the request still lacks, runs it under the ui, returns the exit code.
//!
//! Must not decide anything that `resolve` can decide, nor word anything.

mod check;
mod child;
mod completions;
mod copy;
mod deploy;
mod fallback;
mod look;
mod man;
mod move_;
mod remote;
mod remove;
mod serve;
mod sessions;

use crate::args::Command;
use crate::resolve::{self, Env, Usage, Verb};
use crate::say;
use crate::ui::{Measure, writer};
use bcmr_engine::event::{Event, Watch};
use bcmr_engine::policy::CopyPolicy;
use std::path::{Path, PathBuf};

/// Runs what was typed.
pub fn run(command: Command, env: &Env) -> u8 {
    match command {
        Command::Copy(a) => copy::run(&a, env),
        Command::Move(a) => move_::run(&a, env),
        Command::Remove(a) => remove::run(&a, env),
        Command::Check(a) => check::run(&a, env),
        Command::Sessions(a) => sessions::run(&a, env),
        Command::Ls(a) => look::ls(&a, env),
        Command::Stat(a) => look::stat(&a, env),
        Command::Du(a) => look::du(&a, env),
        Command::Hash(a) => look::hash(&a, env),
        Command::Doctor(a) => look::doctor(&a, env),
        Command::Deploy(a) => look::deploy(&a, env),
        Command::Serve(a) => serve::run(&a, env),
        Command::Completions { shell } => completions::run(shell),
        Command::Man { dir } => man::run(dir.as_deref()),
    }
}

/// Whether something is there under a name. Where that cannot be seen, nothing there could be opened either.
fn is_here(path: &Path) -> bool {
    bcmr_engine::verbs::look::stat(path, false).is_ok()
}

/// Tells which names were taken for ones of this machine although they look like addresses.
fn tell_mistakable<'p>(paths: impl IntoIterator<Item = &'p PathBuf>, watch: Watch<'_>) {
    for path in resolve::mistakable(paths, &is_here) {
        watch.front.event(Event::Note(say::is_here(path)));
    }
}

fn usage(verb: Verb, u: &Usage) -> u8 {
    writer::err(&say::usage(verb, u));
    say::EXIT_USAGE
}

/// Prints text that was asked for.
pub fn print(text: &str) -> u8 {
    match writer::out(text) {
        Ok(()) => say::EXIT_DONE,
        Err(e) => {
            writer::err(&format!("{}\n", say::output_error(&e)));
            say::EXIT_SOME_FAILED
        }
    }
}

fn file_failed(op: &str, path: &Path, e: &std::io::Error) -> u8 {
    writer::err(&format!("{}\n", say::file_error(op, path, e)));
    say::EXIT_SOME_FAILED
}

/// Counts what a verb with this policy has to do.
fn measure(sources: &[PathBuf], policy: &CopyPolicy) -> Measure {
    let (sources, policy) = (sources.to_vec(), policy.clone());
    Box::new(move |progress, stop| bcmr_engine::measure(&sources, &policy, progress, stop))
}
