//! What is asked of plans, and what comes of it, as plain data.
//!
//! Must not know how any of it is carried out.

use crate::event::Summary;
use crate::policy::{Compare, CopyPolicy, DeleteMax};
use crate::remote::{Address, Way};
use std::path::PathBuf;

/// Into how many shards a plan is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shards {
    /// So many.
    Number(u32),
    /// As many as there are times so many bytes.
    OfBytes(u64),
}

/// What becomes of what a plan names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanVerb {
    /// It is copied into a tree of its own, which is published in the end.
    Copy,
    /// It is brought into a destination that is there.
    Sync {
        /// Contents are compared, and not size and time.
        by_content: bool,
        /// What only the destination has is deleted in the end, at most so much.
        delete: Option<DeleteMax>,
    },
    /// It is compared with a destination.
    Check {
        /// How files are compared.
        compare: Compare,
        /// What only the destination has is told in the end.
        extra: bool,
    },
    /// It is taken away; the destination is the source.
    Remove,
}

/// The end of a plan that is on another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarEnd {
    /// What is copied.
    Source(Address),
    /// What it becomes.
    Destination(Address),
}

impl FarEnd {
    /// Where it is.
    pub fn address(&self) -> &Address {
        match self {
            FarEnd::Source(address) | FarEnd::Destination(address) => address,
        }
    }
}

/// `plan`: a copy that is to be made in shards. All of it is copied, as with `--archive`.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// The directory that is copied, as an absolute path: every machine that does a shard finds it under this; on another
    /// machine that of `there`.
    pub source: PathBuf,
    /// What it becomes, likewise.
    pub destination: PathBuf,
    /// The end that is on another machine, if one is, and how to get there.
    pub there: Option<(FarEnd, Way)>,
    /// Where the plan is written.
    pub out: PathBuf,
    /// How it is cut.
    pub shards: Shards,
    /// Files of at least twice so many bytes are cut into parts of so many; without, what is fair.
    pub part_bytes: Option<u64>,
    /// Where it is remembered how sources of syncs were mounted: a plan that deletes is refused for one that is not mounted as it
    /// was. `None`: nowhere.
    pub state: Option<PathBuf>,
    /// What takes part (`filter`, `one_file_system`), and threads.
    pub policy: CopyPolicy,
}

/// What was planned.
#[derive(Clone, Debug)]
pub struct PlanMade {
    /// What there is to copy.
    pub summary: Summary,
    /// Into how many shards it is cut.
    pub shards: u32,
}

/// Which shards are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardChoice {
    /// This one, whether or not another process is at it.
    Number(u32),
    /// The first that no other process is at.
    Next,
    /// All that no other process is at, one after the other.
    All,
}

/// `shard`.
#[derive(Clone, Debug)]
pub struct ShardRequest {
    /// Where the plan is.
    pub plan: PathBuf,
    /// Which.
    pub which: ShardChoice,
    /// How to get to the end of the plan that is on another machine, if one is.
    pub way: Option<Way>,
    /// How content is read, written and verified, and threads; what is kept is everything.
    pub policy: CopyPolicy,
}

/// `finish`.
#[derive(Clone, Debug)]
pub struct FinishRequest {
    /// Where the plan is.
    pub plan: PathBuf,
    /// A destination that is there is merged with.
    pub merge: bool,
    /// How to get to the end of the plan that is on another machine, if one is.
    pub way: Option<Way>,
    /// Where it is remembered how sources of syncs were mounted, as in [`PlanRequest`]; a sync that ended well is remembered.
    pub state: Option<PathBuf>,
    /// The umask.
    pub policy: CopyPolicy,
}

/// What came of a plan.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What there is at the destination now, or was compared or taken away; nothing, where an earlier run had finished it.
    pub summary: Summary,
    /// A hash over every name, and every content with it; zeros for all verbs but a copy, which alone reads everything.
    pub root: [u8; 32],
}
