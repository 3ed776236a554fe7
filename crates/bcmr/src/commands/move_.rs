//! `move`.

use crate::args::MoveArgs;
use crate::resolve::{self, Env, Verb};
use crate::ui::{self, Start};
use bcmr_engine::event::{Cancel, Progress};

/// Runs it.
pub fn run(args: &MoveArgs, env: &Env) -> u8 {
    let (request, show) = match resolve::move_(args, env) {
        Ok(job) => job,
        Err(u) => return super::usage(Verb::Move, &u),
    };
    let sources = request.sources.clone();
    let destination = request.target.path().clone();
    let start = Start { sources: &sources, destination: Some(&destination), jobs: request.policy.jobs };
    let policy = request.policy.clone();
    let measure = |p: &Progress, stop: &Cancel| bcmr_engine::measure(&sources, &policy, p, stop);
    ui::run(&show, &start, Some(&measure), |watch| bcmr_engine::move_(request, watch))
}
