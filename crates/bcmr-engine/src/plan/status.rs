//! How far a plan has come. Must not change anything, but for claims of dead processes.

use super::claim::{ClaimOf, ClaimsFolder};
use super::folder::PlanFolder;
use super::requests::PlanVerb;
use crate::error::Result;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How far one shard has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardStatus {
    /// Its result is there.
    Done,
    /// A process is at it.
    AtWork {
        /// Where, to show.
        who: Vec<u8>,
    },
    /// It is to be done.
    Open,
}

/// How far a plan has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStatus {
    /// The directory that is copied.
    pub source: PathBuf,
    /// What it becomes.
    pub destination: PathBuf,
    /// What becomes of it.
    pub verb: PlanVerb,
    /// The shards in order, each with its files and bytes.
    pub shards: Vec<(ShardStatus, u64, u64)>,
    /// The tree is published.
    pub is_finished: bool,
}

/// Looks how far the plan at `path` has come.
///
/// # Errors
/// It cannot be read.
pub fn status(path: &Path) -> Result<PlanStatus> {
    let folder = PlanFolder::open(path)?;
    let (header, plan) = folder.header()?;
    let claims = folder.claims()?;
    let alive = ClaimsFolder::new(&claims, path).alive()?;
    let mut shards = Vec::new();
    for (shard, totals) in (0..).zip(&header.shards) {
        let rival = alive.iter().find(|rival| rival.claimed == ClaimOf::Shard(shard));
        let how = match rival {
            _ if folder.has_result(&header, &plan, shard)? => ShardStatus::Done,
            Some(rival) => ShardStatus::AtWork { who: rival.who.clone() },
            None => ShardStatus::Open,
        };
        shards.push((how, totals.files, totals.bytes));
    }
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let (source, destination) = (path(&header.source), path(&header.destination));
    let verb = header.verb;
    Ok(PlanStatus { source, destination, verb, shards, is_finished: folder.receipt()?.is_some() })
}
