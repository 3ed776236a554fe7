//! The half that will have the files: looks, plans, lands. Only [`land`] makes a name appear. Never knows how the
//! source was found.

pub(crate) mod apart;
pub(crate) mod arriving;
pub(crate) mod aside;
pub(crate) mod basis;
pub(crate) mod choose;
pub(crate) mod claims;
#[cfg(test)]
mod crash_tests;
pub(crate) mod created_names;
#[cfg(test)]
mod created_names_tests;
pub(crate) mod dest;
pub(crate) mod devices;
pub(crate) mod dir_task;
pub(crate) mod directories;
pub(crate) mod elsewhere;
pub(crate) mod extraneous;
#[cfg(fuzzing)]
pub mod fuzz;
#[cfg(fuzzing)]
pub use kept::fuzz as receipt_fuzz;
pub(crate) mod held;
pub(crate) mod kept;
pub(crate) mod land;
pub(crate) mod lander;
pub(crate) mod links;
pub(crate) mod losses;
#[cfg(test)]
mod names_tests;
pub(crate) mod partly;
pub(crate) mod plan;
pub(crate) mod recorder;
pub(crate) mod resumable;
pub(crate) mod resume;
pub(crate) mod run_files;
pub(crate) mod session;
pub(crate) mod single;
pub(crate) mod subtree;
pub(crate) mod tree;
#[cfg(test)]
mod tree_crash_tests;
pub(crate) mod unmet;
