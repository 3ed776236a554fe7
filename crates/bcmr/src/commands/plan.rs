//! `plan`, `shard` and `finish`.

use crate::cli::bcmr::plan::{self, FinishArgs, PlanArgs, ShardArgs};
use crate::env::Env;
use crate::say::{plan as words, slurm};
use crate::show::{Show, Verb};
use crate::ui::{self, Start};
use bcmr_engine::event::Summary;
use bcmr_engine::plan::PlanVerb;
use bcmr_engine::verbs::WholeFile;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

fn start<'a>(sources: &'a [PathBuf], destination: Option<&'a Path>, jobs: usize) -> Start<'a> {
    Start { sources, destination, jobs, measure: None, by_scp: None }
}

/// Prints what was asked for behind a run that went well.
fn told(show: &Show, exit: u8, text: Option<String>) -> u8 {
    match text {
        Some(text) if exit == 0 && !show.json && !show.quiet => super::verb::print(&text),
        _ => exit,
    }
}

/// Runs `plan`.
pub fn plan(args: &PlanArgs, env: &Env) -> u8 {
    if let Some(path) = &args.status {
        return status(path);
    }
    let from = crate::env::started_in();
    let typed = plan::plan(args, &from, env).and_then(|job| Ok((job, plan::slurm(args, &from)?)));
    let ((request, verb, show), slurm) = match typed {
        Ok(job) => job,
        Err(u) => return super::verb::usage(Verb::Plan, &u),
    };
    let sources = [request.source.clone()];
    let mut made = None;
    let destination = (verb != PlanVerb::Remove).then_some(&*request.destination);
    let start = start(&sources, destination, request.policy.jobs);
    let exit = ui::run(&show, start, |watch| {
        let plan = bcmr_engine::plan::plan_for(&request, verb, watch)?;
        // The counts are of what is to be done: the line about what was done would be wrong.
        let summary = Summary { cancelled: plan.summary.cancelled, ..Summary::default() };
        made = Some(plan);
        Ok(summary)
    });
    let mut text = made.as_ref().map(|made| words::planned(&request.out, made));
    if let (Some(dir), Some(made), Some(text), 0) = (&slurm, &made, &mut text, exit) {
        if let Err(exit) = write_scripts(&request.out, dir, made.shards) {
            return exit;
        }
        text.push_str(&slurm::submit(dir));
    }
    told(&show, exit, text)
}

/// Writes what Slurm runs into `dir`, which is made if it is not there.
fn write_scripts(plan: &Path, dir: &Path, shards: u32) -> Result<(), u8> {
    match std::fs::create_dir(dir) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            return Err(super::verb::file_failed("make directory", dir, &e));
        }
        _ => {}
    }
    for (name, text) in slurm::scripts(plan, dir, shards) {
        let written = WholeFile::begin(&dir.join(name)).and_then(|file| file.end(text.as_bytes()));
        written.map_err(|e| super::verb::failed(&e))?;
    }
    Ok(())
}

/// Runs `shard`.
pub fn shard(args: &ShardArgs, env: &Env) -> u8 {
    let (request, show) = plan::shard(args, env);
    let sources = [request.plan.clone()];
    ui::run(&show, start(&sources, None, request.policy.jobs), |watch| {
        bcmr_engine::plan::shard(&request, watch)
    })
}

/// Runs `finish`.
pub fn finish(args: &FinishArgs, env: &Env) -> u8 {
    let (request, show) = plan::finish(args, env);
    let sources = [request.plan.clone()];
    let mut root = None;
    let exit = ui::run(&show, start(&sources, None, 1), |watch| {
        let finished = bcmr_engine::plan::finish(&request, watch)?;
        // Only a copy has one.
        root = Some(finished.root).filter(|root| *root != [0; 32]);
        Ok(finished.summary)
    });
    told(&show, exit, root.map(|root| words::finished(&root)))
}

fn status(path: &Path) -> u8 {
    match bcmr_engine::plan::status(path) {
        Ok(status) => super::verb::print(&words::status(&status)),
        Err(e) => super::verb::failed(&e),
    }
}
