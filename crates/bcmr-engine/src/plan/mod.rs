//! Plans: a copy cut into shards that any machines do in any order, and one end that publishes all of it.
//!
//! Must not know who starts shards, nor on how many machines. A plan is a directory of files (docs/plan-format.md): the
//! entries of each shard, claims of processes that are at one, and results. What shards copy goes into one tree beside the
//! destination that has no name of its own yet; [`finish()`] gives it one.

mod along;
mod changed;
mod claim;
mod finish;
mod folder;
mod format;
mod from;
mod live;
mod live_there;
mod make;
mod others;
mod part;
mod places;
mod requests;
mod shard;
mod share;
mod sorter;
mod status;
mod sums;
mod take;
mod take_there;
mod there;
mod together;
mod walk;

pub use finish::finish;
#[cfg(fuzzing)]
pub use format::fuzz;
pub use make::{plan, plan_for, plan_together};
pub use others::{FoundRun, GivenTo, OtherWalkers, WalkedPart};
pub use requests::{
    FarEnd, FinishRequest, Finished, PlanMade, PlanRequest, PlanVerb, ShardChoice, ShardRequest, Shards,
};
pub use shard::{shard, shard_shared};
pub use share::{ShardShare, SplitOff};
pub use status::{PlanStatus, ShardStatus, status};
pub use there::elsewhere;
pub use together::walk_part;
