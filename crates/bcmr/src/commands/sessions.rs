//! `sessions`.

use crate::args::SessionsArgs;
use crate::resolve::{self, Env};
use crate::ui::{self, Start};

/// Runs it.
pub fn run(args: &SessionsArgs, env: &Env) -> u8 {
    let show = resolve::sessions(args, env);
    let start = Start { sources: std::slice::from_ref(&args.dir), destination: None, jobs: 1, measure: None };
    ui::run(&show, start, |watch| bcmr_engine::sessions(&args.dir, args.clean, watch))
}
