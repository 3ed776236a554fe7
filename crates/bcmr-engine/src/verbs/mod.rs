//! The verbs. Only these see both halves.

mod asked;
mod check;
mod copy;
mod incoming;
mod ledger;
pub mod look;
pub(crate) mod manifest;
mod measure;
mod move_;
mod named;
mod operands;
mod policy_wire;
mod receive;
pub mod remote;
mod rivals;
mod serve;
mod sessions;
mod simulate_tests;
mod stream;
mod survey;
mod survey_wire;
mod wire;

pub use crate::remove::remove;
pub use check::check;
pub use copy::copy;
pub use manifest::check_manifest;
pub use measure::measure;
pub use move_::move_;
pub use sessions::sessions;
