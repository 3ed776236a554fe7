//! `move`. What is on another machine is `remote`'s.

use crate::cli::bcmr::move_::{self, MoveArgs};
use crate::cli::bcmr::operands::{self, Places};
use crate::env::Env;
use crate::show::Verb;
use crate::ui::{self, Start};

/// Runs it.
pub fn run(args: &MoveArgs, env: &Env) -> u8 {
    match operands::places(&args.operands, &args.connect, &super::verb::is_here) {
        Ok(Places::Here) => {}
        Ok(places) => return super::remote::move_(args, places, env),
        Err(u) => return super::judged::usage_with_defaults(env, Verb::Move, &u),
    }
    let (request, show) = match move_::request(args, env) {
        Ok(job) => job,
        Err(u) => return super::judged::usage_with_defaults(env, Verb::Move, &u),
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
    ui::run(&show, start, |watch| {
        super::verb::tell_mistakable(operands::all_operands(&args.operands), watch);
        bcmr_engine::move_(request, watch)
    })
}
