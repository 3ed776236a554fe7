//! `serve`: what may be typed, and the request that it means with the environment and the configuration.

use super::jobs::{JobsArg, jobs};
use super::size::size;
use crate::config::Config;
use crate::env::Env;
use crate::names;
use crate::usage::Usage;
use bcmr_engine::remote::ServeRequest;
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};

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

/// The store of blocks remembers so many MiB where the user did not choose.
const STORE_CAP_MB: u64 = 1024;

/// What `serve` arguments mean; `kept` is what the configuration lets the store keep.
pub fn request(a: &ServeArgs, kept: Option<u64>, env: &Env) -> Result<ServeRequest, Usage> {
    if env.stdin_tty || env.stdout_tty {
        return Err(Usage::new("serve speaks to another bcmr and not to a terminal")
            .or("bcmr copy FILE HOST: starts it over there by itself"));
    }
    let cap = match &env.store_cap_mb {
        None => STORE_CAP_MB,
        Some(said) => said.to_str().and_then(|s| s.parse::<u64>().ok()).ok_or_else(|| {
            Usage::new(format!("BCMR_CAS_CAP_MB is no number of MiB: {}", names::quoted(Path::new(said))))
        })?,
    };
    let cap_bytes = cap.checked_mul(1 << 20).ok_or_else(|| Usage::new("BCMR_CAS_CAP_MB is too large"))?;
    let keep_bytes = match &env.store_keep {
        None => kept.unwrap_or(0),
        Some(said) => {
            said.to_str().and_then(|s| size(s).ok()).ok_or_else(|| no_size("BCMR_CAS_KEEP", said))?
        }
    };
    let dir = match &env.store_dir {
        Some(dir) if !dir.is_absolute() => {
            return Err(Usage::new(format!("BCMR_CAS_DIR is no absolute path: {}", names::quoted(dir))));
        }
        Some(dir) => Some(dir.clone()),
        // A user without a home directory has no store, which costs time only.
        None => env.cache_dir.as_ref().map(|cache| cache.join("cas")),
    };
    Ok(ServeRequest {
        root: a.root.clone(),
        read_only: a.read_only,
        store: dir.filter(|_| !a.no_store && !a.read_only).map(|dir| (dir, cap_bytes, keep_bytes)),
        jobs: jobs(&a.jobs, env),
        umask: env.umask,
        me: env.me,
        home: env.home.clone(),
        trash: super::sync::trash(env),
        arrived_at: env.arrived_at,
        meeting: env.meeting.clone(),
    })
}

/// How much of blocks the store may keep by the configuration.
pub fn store_keep(config: &Config) -> Result<Option<u64>, Usage> {
    let read = |said: &str| size(said).map_err(|_| no_size("store.keep in the configuration", said));
    config.store_keep().map(read).transpose()
}

fn no_size(what: &str, said: impl AsRef<Path>) -> Usage {
    Usage::new(format!("{what} is no size: {}", names::quoted(said.as_ref())))
}
