//! `move`.

use crate::cli::bcmr::move_::{self, MoveArgs};
use crate::env::Env;
use crate::show::Verb;
use crate::ui::{self, Start};

/// Runs it.
pub fn run(args: &MoveArgs, env: &Env) -> u8 {
    let (request, show) = match move_::request(args, env) {
        Ok(job) => job,
        Err(u) => return super::verb::usage(Verb::Move, &u),
    };
    let sources = request.sources.clone();
    let destination = request.target.path().clone();
    let measure = super::verb::measure(&sources, &request.policy);
    let start = Start {
        sources: &sources,
        destination: Some(&destination),
        jobs: request.policy.jobs,
        measure: Some(measure),
        by_scp: None,
    };
    ui::run(&show, start, |watch| bcmr_engine::move_(request, watch))
}
