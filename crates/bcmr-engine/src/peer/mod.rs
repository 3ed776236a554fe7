//! Everything that knows messages: copies to and from another machine, questions to it, and the server that answers.
//!
//! Must not know how addresses are typed or what is told to a person.

mod asked;
mod beside;
mod client;
mod comparing;
mod connections;
mod cut_line_tests;
mod dedup;
mod deferred;
mod ending;
mod events;
mod features;
mod fetched;
mod from_wire;
mod globs;
mod incoming;
mod inspect;
mod landing;
mod machine;
mod named;
mod names;
mod owners_here;
pub(crate) mod planned;
pub(crate) mod planned_source;
mod policy_wire;
mod questions;
mod receiving;
mod relay;
mod removing;
mod reply;
mod sending;
mod server;
mod simulate_far_tests;
mod simulate_tests;
mod ssh;
pub(crate) mod taker;
mod taking;
mod talk;
pub(crate) mod telling;
mod undoing;

pub(crate) use client::with_retries;
pub use client::{get, put};
pub use globs::matching;
pub use inspect::{Finding, OnTheWay, RemoveHow, doctor, hash, list, make_directory, remove, stat, usage};
pub use relay::{RelayError, relay};
pub use server::serve;
pub use ssh::{share, share_again, ssh_said, ssh_socket, ssh_words, sudo_words, verb_words};
pub(crate) use talk::shown_path;
pub use undoing::undo;
