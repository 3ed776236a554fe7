//! `-j`: how many threads work. Must not know what they do.

use crate::env::Env;
use bcmr_engine::policy::Collide;
use clap::Args;

#[derive(Debug, Args)]
pub struct JobsArg {
    /// Work on N things at once [default: number of cores, at most 8]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// Worker threads unless `-j` says otherwise: more than this has not paid on any machine measured.
const JOBS_DEFAULT_MAX: usize = 8;

pub(super) fn jobs(arg: &JobsArg, env: &Env) -> usize {
    arg.jobs.map_or_else(|| env.cores.clamp(1, JOBS_DEFAULT_MAX), usize::from)
}

/// Questions come in the order of what was typed, so that answers can be written down before: one worker asks.
pub(super) fn jobs_for(collide: Collide, arg: &JobsArg, env: &Env) -> usize {
    if collide == Collide::Ask { 1 } else { jobs(arg, env) }
}
