//! `serve`: what may be typed, and the request that it means with the environment and the configuration.

use super::jobs::{JobsArg, jobs};
use super::store;
use crate::env::Env;
use crate::usage::Usage;
use bcmr_engine::remote::ServeRequest;
use clap::{Args, ValueHint};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Let nothing outside DIR be read or written; without it, what the user may
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub root: Option<PathBuf>,
    /// Change nothing
    #[arg(long)]
    pub read_only: bool,
    /// Remember no blocks of what arrives
    #[arg(long)]
    pub no_store: bool,
    #[command(flatten)]
    pub jobs: JobsArg,
}

/// What `serve` arguments mean; `kept` is what the configuration lets the store keep.
pub fn request(a: &ServeArgs, kept: Option<u64>, env: &Env) -> Result<ServeRequest, Usage> {
    if env.stdin_tty || env.stdout_tty {
        return Err(Usage::new("serve speaks to another bcmr and not to a terminal")
            .or("bcmr copy FILE HOST: starts it over there by itself"));
    }
    Ok(ServeRequest {
        root: a.root.clone(),
        read_only: a.read_only,
        store: store::of_serve(kept, env)?.filter(|_| !a.no_store && !a.read_only),
        jobs: jobs(&a.jobs, env),
        umask: env.umask,
        me: env.me,
        home: env.home.clone(),
        trash: super::sync::trash(env),
        arrived_at: env.arrived_at,
        meeting: env.meeting.clone(),
    })
}
