//! The verbs of bcmr as plain functions: copy, move, remove, check.
//!
//! Two halves and a crossing: a *sender* that has the files, a *receiver* that will have them. The destination
//! decides; only `receiver::land` makes a name appear. Knows nothing of arguments, environment, terminals or exit
//! codes: what a person typed arrives as [`policy`], what happened leaves as [`event`].
#![forbid(unsafe_code)]

pub mod error;
pub mod event;
pub mod policy;
mod pool;
pub mod verbs;

pub use verbs::{check, copy, move_, remove};
