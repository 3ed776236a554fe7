//! `remove`.

use crate::cli::bcmr::remove::{self, RemoveArgs};
use crate::env::Env;
use crate::show::Verb;
use crate::ui::{self, Start};

/// Runs it. Without operands `-f` makes even that no error, so that `bcmr remove -f $files` holds for none.
pub fn run(args: &RemoveArgs, env: &Env) -> u8 {
    let (request, show) = match remove::request(args, env) {
        Ok(job) => job,
        Err(u) => return super::verb::usage(Verb::Remove, &u),
    };
    let sources = request.paths.clone();
    let start =
        Start { sources: &sources, destination: None, jobs: request.jobs, measure: None, by_scp: None };
    ui::run(&show, start, |watch| {
        if request.paths.is_empty() {
            return Ok(bcmr_engine::event::Summary::default());
        }
        bcmr_engine::remove(request, watch)
    })
}
