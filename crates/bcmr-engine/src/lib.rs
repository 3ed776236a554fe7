//! The verbs of bcmr as plain functions: copy, move, remove, check.
//!
//! Two halves and a crossing: a *sender* that has the files, a *receiver* that will have them. The destination
//! decides; only `receiver::land` makes a name appear. Knows nothing of arguments, environment, terminals or exit
//! codes: what a person typed arrives as [`policy`], what happened leaves as [`event`].
#![forbid(unsafe_code)]

mod accounts;
pub mod alter;
pub mod api;
mod awaited;
mod blocks;
pub mod calendar;
mod chunks;
mod codec;
pub mod control;
mod disk;
pub mod error;
pub mod event;
mod fault;
mod held_acl;
mod held_stat;
mod node;
mod ordered;
pub mod password;
pub mod peer;
pub mod plan;
pub mod policy;
mod pool;
mod pulse;
mod receiver;
mod recent;
pub mod remote;
mod remove;
mod sender;
pub mod shared;
mod stage;
mod stem;
pub mod stepwise;
mod store;
#[cfg(fuzzing)]
pub use chunks::fuzz as chunks_fuzz;
#[cfg(fuzzing)]
pub use codec::fuzz as codec_fuzz;
#[cfg(fuzzing)]
pub use held_acl::fuzz as held_fuzz;
#[cfg(fuzzing)]
pub use plan::fuzz as plan_fuzz;
#[cfg(fuzzing)]
pub use receiver::{fuzz as receiver_fuzz, receipt_fuzz};
#[cfg(fuzzing)]
pub use sender::filter::fuzz as filter_fuzz;
#[cfg(fuzzing)]
pub use store::fuzz as store_fuzz;
mod tabbed;
mod tally;
pub mod throttle;
mod transport;
#[cfg(fuzzing)]
pub use transport::seal::fuzz as seal_fuzz;
mod trouble;
pub mod verbs;
mod words;
#[cfg(fuzzing)]
pub use verbs::{manifest::fuzz as manifest_fuzz, state_fuzz, sync_plan_fuzz};

pub use fastcopy::memory;
pub use fastcopy::process::is_ignored;
pub use fastcopy::signal;
pub use verbs::{
    check, check_manifest, copy, copy_between, look_with_plan, measure, move_, planned_words, remove,
    sessions, snapshot, sync, undo,
};
