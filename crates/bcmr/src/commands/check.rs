//! `check`.

use crate::args::CheckArgs;
use crate::resolve::{self, Env, Verb};
use crate::ui::{self, Start};

/// Runs it.
pub fn run(args: &CheckArgs, env: &Env) -> u8 {
    let (request, show) = match resolve::check(args, env) {
        Ok(job) => job,
        Err(u) => return super::usage(Verb::Check, &u),
    };
    let sources = request.sources.clone();
    let destination = request.target.path().clone();
    let start = Start { sources: &sources, destination: Some(&destination), jobs: request.policy.jobs };
    ui::run(&show, &start, |watch| bcmr_engine::check(request, watch))
}
