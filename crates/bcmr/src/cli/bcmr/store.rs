//! Stores of blocks, as the environment and the configuration have them: where each is, and how much it may remember and keep.
//!
//! Must not know what is done with one.

use super::size::size;
use crate::config::Config;
use crate::env::Env;
use crate::names;
use crate::usage::Usage;
use std::path::{Path, PathBuf};

/// A store of blocks remembers so many MiB where the user did not choose.
const STORE_CAP_MB: u64 = 1024;

/// Where a store is, the bytes that it may remember (0: any number), and those that it may keep.
pub type Store = (PathBuf, u64, u64);

/// The store of `serve`; `kept` is what the configuration lets it keep.
pub fn of_serve(kept: Option<u64>, env: &Env) -> Result<Option<Store>, Usage> {
    store(None, kept, env)
}

/// The store of what comes from other machines. It is apart from the other one, which those have a hand in who upload to here.
pub fn of_downloads(config: &Config, env: &Env) -> Result<Option<Store>, Usage> {
    store(Some("fetched"), config.store_keep(), env)
}

fn store(below: Option<&str>, kept: Option<u64>, env: &Env) -> Result<Option<Store>, Usage> {
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
    let dir = match (&env.store_dir, below) {
        (Some(dir), _) if !dir.is_absolute() => {
            return Err(Usage::new(format!("BCMR_CAS_DIR is no absolute path: {}", names::quoted(dir))));
        }
        (Some(dir), None) => Some(dir.clone()),
        (Some(dir), Some(below)) => Some(dir.join(below)),
        // A user without a home directory has no store, which costs time only.
        (None, below) => env.cache_dir.as_ref().map(|cache| cache.join(below.unwrap_or("cas"))),
    };
    Ok(dir.map(|dir| (dir, cap_bytes, keep_bytes)))
}

fn no_size(what: &str, said: impl AsRef<Path>) -> Usage {
    Usage::new(format!("{what} is no size: {}", names::quoted(said.as_ref())))
}
