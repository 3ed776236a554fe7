//! `sync`.

use crate::cli::bcmr::operands::{self, Places};
use crate::cli::bcmr::sync::{self, SyncArgs};
use crate::cli::bcmr::{Command, parse};
use crate::env::Env;
use crate::show::{Show, Verb};
use crate::ui::{self, Start};
use crate::usage::Usage;
use bcmr_engine::policy::{SnapshotRequest, SyncRequest};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Runs it.
pub fn run(args: &SyncArgs, env: &Env) -> u8 {
    if let Some(file) = &args.apply {
        return apply(args, file, env);
    }
    let typed = args.operands();
    match operands::places(&typed, &args.connect, &super::verb::is_here) {
        Ok(Places::Here) => {}
        Ok(places) => return super::remote::sync(args, places, env),
        Err(u) => return super::judged::usage_with_defaults(env, Verb::Sync, &u),
    }
    carry_out(args, sync::request(args, env), &typed.paths, env)
}

/// Does what a plan says, with the options that it was made with.
fn apply(args: &SyncArgs, file: &Path, env: &Env) -> u8 {
    let words = match bcmr_engine::planned_words(file) {
        Ok(words) => words,
        Err(e) => return super::verb::failed(&e),
    };
    let planned = match as_typed(words, env) {
        Ok(planned) => planned,
        Err(u) => return super::verb::usage(Verb::Sync, &u),
    };
    let typed = planned.operands();
    match operands::places(&typed, &planned.connect, &super::verb::is_here) {
        Ok(Places::Here) => {}
        Ok(_) => return super::remote::apply(*planned, args, file, env),
        Err(u) => return super::judged::usage_with_defaults(env, Verb::Sync, &u),
    }
    let paths = typed.paths;
    carry_out(args, sync::as_planned(*planned, args, file, env), &paths, env)
}

/// What was typed for a plan, as it is settled now; globs and moments are those of then.
fn as_typed(words: Vec<OsString>, env: &Env) -> Result<Box<SyncArgs>, Usage> {
    let unknown = || Usage::new("the plan was made with options that this bcmr does not know");
    let line = ["bcmr", "sync"].into_iter().map(OsString::from).chain(words);
    let mut command = parse(line).map_err(|_| unknown())?.command;
    if let Command::Sync(planned) = &mut command {
        planned.filters.without_files();
        // What has no meaning here was among the defaults, or there would be no plan.
        planned.connect.by_default = true;
    }
    super::verb::settle(&mut command, env.now)?;
    match command {
        Command::Sync(planned) => Ok(planned),
        _ => Err(unknown()),
    }
}

fn carry_out(args: &SyncArgs, job: Result<(SyncRequest, Show), Usage>, typed: &[PathBuf], env: &Env) -> u8 {
    let (request, show) = match job {
        Ok(job) => job,
        Err(u) => return super::judged::usage_with_defaults(env, Verb::Sync, &u),
    };
    let (sources, destination) = ([request.source.clone()], request.dest.clone());
    let measure = super::verb::measure(&sources, &request.policy);
    let start = Start {
        sources: &sources,
        destination: Some(&destination),
        jobs: request.policy.jobs,
        measure: Some(measure),
        by_scp: None,
    };
    ui::run(&show, start, |watch| {
        super::verb::tell_mistakable(typed, watch);
        match sync::dated(args, env) {
            Some(dated) => bcmr_engine::snapshot(SnapshotRequest { sync: request, dated }, watch),
            None => bcmr_engine::sync(request, watch),
        }
    })
}
