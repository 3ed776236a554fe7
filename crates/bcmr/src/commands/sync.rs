//! `sync`.

use crate::cli::bcmr::operands::{self, Places};
use crate::cli::bcmr::sync::{self, SyncArgs};
use crate::env::Env;
use crate::show::Verb;
use crate::ui::{self, Start};

/// Runs it.
pub fn run(args: &SyncArgs, env: &Env) -> u8 {
    let typed = args.operands();
    match operands::places(&typed, &args.connect, &super::verb::is_here) {
        Ok(Places::Here) => {}
        Ok(places) => return super::remote::sync(args, places, env),
        Err(u) => return super::verb::usage(Verb::Sync, &u),
    }
    let (request, show) = match sync::request(args, env) {
        Ok(job) => job,
        Err(u) => return super::verb::usage(Verb::Sync, &u),
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
        super::verb::tell_mistakable(&typed.paths, watch);
        bcmr_engine::sync(request, watch)
    })
}
