//! The verbs, on this machine. Only these and `peer`, above them, see both halves.

pub(crate) mod alike;
pub(crate) mod check;
pub(crate) mod copy;
#[cfg(test)]
mod copy_tests;
pub(crate) mod destination;
pub(crate) mod directory;
pub(crate) mod dry_run;
pub(crate) mod entry_pair;
pub(crate) mod going;
pub(crate) mod keeping;
pub(crate) mod ledger;
pub(crate) mod local;
mod local_sides;
pub mod look;
pub(crate) mod manifest;
mod measure;
mod move_;
pub(crate) mod named_dirs;
pub(crate) mod nameless;
pub(crate) mod operands;
pub(crate) mod rivals;
pub(crate) mod round_lacks;
pub(crate) mod round_ledger;
pub(crate) mod rounds;
mod sessions;
pub(crate) mod snapshot;
pub(crate) mod stream;
pub(crate) mod survey;
pub(crate) mod sync;
mod thin;
pub(crate) mod undo;
pub mod written_through;

pub use crate::remove::remove;
pub use check::check;
pub use copy::{copy, copy_between};
pub use directory::make_directory;
pub use manifest::{WholeFile, check_manifest};
pub use measure::measure;
pub use move_::move_;
pub(crate) use move_::move_named;
pub use sessions::sessions;
pub use snapshot::snapshot;
pub use sync::{look_with_plan, planned_words, sync};
#[cfg(fuzzing)]
pub use sync::{state_fuzz, sync_plan_fuzz};
pub use undo::undo;
