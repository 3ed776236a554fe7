//! `undo`.

use crate::cli::bcmr::undo::{self, UndoArgs};
use crate::env::Env;
use crate::ui::{self, Start};

/// Runs it.
pub fn run(args: &UndoArgs, env: &Env) -> u8 {
    let (request, show) = undo::request(args, env);
    let sources = std::slice::from_ref(&args.receipt);
    let start = Start { sources, destination: None, jobs: 1, measure: None, by_scp: None };
    ui::run(&show, start, |watch| bcmr_engine::undo(&request, watch))
}
