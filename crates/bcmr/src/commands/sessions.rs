//! `sessions`.

use crate::cli::bcmr::sessions::{self, SessionsArgs};
use crate::env::Env;
use crate::show::Verb;
use crate::ui::{self, Start};

/// Runs it.
pub fn run(args: &SessionsArgs, env: &Env) -> u8 {
    let show = match sessions::shown(args, env) {
        Ok(show) => show,
        Err(u) => return super::verb::usage(Verb::Sessions, &u),
    };
    let start = Start {
        sources: std::slice::from_ref(&args.dir),
        destination: None,
        jobs: 1,
        measure: None,
        by_scp: None,
    };
    ui::run(&show, start, |watch| bcmr_engine::sessions(&args.dir, args.clean, watch))
}
