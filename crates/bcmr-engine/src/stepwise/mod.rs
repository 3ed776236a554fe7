//! Copying, moving, installing and removing as GNU's programs do it: one thing after the other, told and asked about in that
//! order, with every rule that scripts rely on.
//!
//! Must not know how anything is worded or typed. It shares with the verbs what makes files: `receiver::single` lands
//! each, by the same phases.

mod backup;
mod content;
mod copier;
mod copy;
mod far;
mod install;
mod look;
mod named;
mod new_tree;
mod options;
mod remove;
mod same;
mod spot;
mod step;
mod told;

pub use copy::{copy, move_};
pub use fastcopy::meta::Kind;
pub use fastcopy::people::{group_number, user_number};
pub use install::install_dirs;
pub use look::{backup_of, is_directory};
pub use options::{Backup, Content, Given, Onto, Options, Over, Program, Update};
pub use remove::{Prompt, RemoveOptions, remove};
pub use told::{Did, Noted, StepQuestion, Teller, Trouble, What};
