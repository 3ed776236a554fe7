//! `sessions`.

use crate::args::SessionsArgs;
use crate::resolve::{self, Env, Verb};
use crate::ui::{self, Start};

/// Runs it.
pub fn run(args: &SessionsArgs, env: &Env) -> u8 {
    let show = match resolve::sessions(args, env) {
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
