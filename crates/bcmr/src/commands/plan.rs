//! `plan`, `shard` and `finish`.

use super::remote::{self, Absent, with_peer};
use crate::cli::bcmr::connection::{ConnectArgs, Reach, RemoteArgs, no_connection};
use crate::cli::bcmr::plan::{self, FinishArgs, PlanArgs, ShardArgs};
use crate::env::Env;
use crate::say::{self, plan as words, slurm};
use crate::show::Verb;
use crate::ui::{self, Drawing, Start};
use crate::usage::Usage;
use bcmr_engine::control;
use bcmr_engine::error::Error;
use bcmr_engine::event::{Event, Summary, Watch};
use bcmr_engine::plan::{FarEnd, PlanVerb, elsewhere};
use bcmr_engine::remote::{Address, Way};
use bcmr_engine::verbs::WholeFile;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

fn start<'a>(sources: &'a [PathBuf], destination: Option<&'a Path>, jobs: usize) -> Start<'a> {
    Start { sources, destination, jobs, measure: None, by_scp: None }
}

/// How to get to the other machine of a plan, where there is one.
fn reached(
    to: Option<&Address>,
    (connect, remote): (&ConnectArgs, Option<&RemoteArgs>),
    env: &Env,
) -> Result<Option<Reach>, Usage> {
    let Some(to) = to else { return no_connection(connect, remote).map(|()| None) };
    let config = super::configuration::configuration(env)?;
    plan::reached(connect, remote, to, &config).map(Some)
}

/// Does something with the bcmr of the other machine, where there is one.
fn with_machine<T>(
    to: Option<(&Address, &Reach)>,
    watch: Watch<'_>,
    mut ask: impl FnMut(Option<Way>) -> Result<T, Error>,
) -> Result<T, Error> {
    let Some((to, reach)) = to else { return ask(None) };
    let note = |text: String| watch.front.event(Event::Note(text.into()));
    watch.front.lend_terminal(true);
    let done = with_peer(to, reach, watch.cancel, &note, |way| ask(Some(way.clone())));
    watch.front.lend_terminal(false);
    done.map_err(Absent::error)
}

/// Runs `plan`.
pub fn plan(args: &PlanArgs, env: &Env) -> u8 {
    if let Some(path) = &args.status {
        return status(path);
    }
    let from = match crate::env::started_in() {
        Ok(from) => from,
        Err(e) => return super::verb::file_failed("find the directory", Path::new("."), &e),
    };
    let typed = plan::plan(args, &from, &super::verb::is_here, env).and_then(|job| {
        let reach = reached(job.1.as_ref().map(FarEnd::address), (&args.connect.0, None), env)?;
        Ok((job, reach, plan::slurm(args, &from, &super::verb::is_here)?))
    });
    let ((mut request, there, verb, show), reach, slurm) = match typed {
        Ok(job) => job,
        Err(u) => return super::verb::usage(Verb::Plan, &u),
    };
    let (mut sources, mut shown) = ([request.source.clone()], request.destination.clone());
    match &there {
        Some(FarEnd::Source(from)) => sources = [remote::written(from)],
        Some(FarEnd::Destination(to)) => shown = remote::written(to),
        None => {}
    }
    let out = request.out.clone();
    let destination = (verb != PlanVerb::Remove).then_some(&*shown);
    let start = start(&sources, destination, request.policy.jobs);
    let run = |watch: Watch<'_>| {
        super::verb::tell_mistakable(args.source.iter().chain(&args.destination), watch);
        let plan = with_machine(there.as_ref().map(FarEnd::address).zip(reach.as_ref()), watch, |way| {
            request.there = there.clone().zip(way);
            bcmr_engine::plan::plan_for(&request, verb, watch)
        })?;
        // The counts are of what is to be done: the line about what was done would be wrong.
        let summary = Summary { cancelled: plan.summary.cancelled, ..Summary::default() };
        Ok((summary, plan))
    };
    ui::run_then(Drawing::AtOnce, &show, start, run, |made| {
        let mut text = words::planned(&out, &made);
        if let Some(dir) = &slurm {
            write_scripts(&out, dir, made.shards)?;
            text.push_str(&slurm::submit(dir));
        }
        Ok(text)
    })
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
        let written = WholeFile::begin(&dir.join(name), &|_| true).and_then(|file| file.end(&text));
        written.map_err(|e| super::verb::failed(&e))?;
    }
    Ok(())
}

/// Runs `shard`.
pub fn shard(args: &ShardArgs, env: &Env) -> u8 {
    let (mut request, show) = plan::shard(args, env);
    let sources = [request.plan.clone()];
    let to = match elsewhere(&request.plan) {
        Ok(end) => end.map(|end| end.address().clone()),
        // Without its plan no option of the connection has a meaning: that it is not there says more.
        Err(e) => return ui::run(&show, start(&sources, None, request.policy.jobs), |_| Err(e)),
    };
    let reach = match reached(to.as_ref(), (&args.connect, Some(&args.remote)), env) {
        Ok(reach) => reach,
        Err(u) => return super::verb::usage(Verb::Shard, &u),
    };
    ui::run(&show, start(&sources, None, request.policy.jobs), |watch| {
        let Some(reach) = &reach else { return bcmr_engine::plan::shard(&request, watch) };
        let deaf = |e: Error| watch.front.event(Event::Note(say::deaf(&e).into()));
        control::hearing(&env.meeting, &reach.way.throttle, watch.progress, deaf, || {
            with_machine(to.as_ref().zip(Some(reach)), watch, |way| {
                request.way = way;
                bcmr_engine::plan::shard(&request, watch)
            })
        })
    })
}

/// Runs `finish`.
pub fn finish(args: &FinishArgs, env: &Env) -> u8 {
    let (mut request, show) = plan::finish(args, env);
    let sources = [request.plan.clone()];
    let far = match elsewhere(&request.plan) {
        Ok(far) => far,
        Err(e) => return ui::run(&show, start(&sources, None, 1), |_| Err(e)),
    };
    let to = far.as_ref().map(FarEnd::address);
    let reach = match reached(to, (&args.connect, None), env) {
        Ok(_) if matches!(far, Some(FarEnd::Destination(_))) && args.merge => {
            let usage = Usage::new("--merge puts a tree into a destination on this machine");
            return super::verb::usage(Verb::Finish, &usage);
        }
        Ok(reach) => reach,
        Err(u) => return super::verb::usage(Verb::Finish, &u),
    };
    let run = |watch: Watch<'_>| {
        let finished = with_machine(to.zip(reach.as_ref()), watch, |way| {
            request.way = way;
            bcmr_engine::plan::finish(&request, watch)
        })?;
        // Only a copy has one.
        let root = Some(finished.root).filter(|root| *root != [0; 32]);
        Ok((finished.summary, root))
    };
    ui::run_then(Drawing::AtOnce, &show, start(&sources, None, 1), run, |root| {
        Ok(root.map(|root| words::finished(&root)).unwrap_or_default())
    })
}

fn status(path: &Path) -> u8 {
    match bcmr_engine::plan::status(path) {
        Ok(status) => super::verb::print(&words::status(&status)),
        Err(e) => super::verb::failed(&e),
    }
}
