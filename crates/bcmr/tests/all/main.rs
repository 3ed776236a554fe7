//! Every test of the real binary, in one program: one link instead of one for each file.
//!
//! Must not hold tests itself. `cargo test -p bcmr --test all rules::` runs those of one file.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests look at the file system the ordinary way

#[macro_use]
mod common;
mod addresses;
mod alive;
mod asked_once;
mod bad_input;
mod check;
mod cli;
mod connection;
mod ctl;
mod delta;
mod engine;
mod face;
mod fake_super;
mod foretold;
mod gitignore;
mod globs;
mod gnu;
mod help;
mod hints;
mod hostile;
mod json;
mod kept;
mod manifest;
mod matrix;
mod metadata;
mod move_;
mod move_far;
mod names;
mod no_cache;
mod odd;
mod operands;
mod owners_far;
mod plan;
mod plan_down;
mod plan_far;
mod plan_kills;
mod plan_verbs_far;
mod races;
mod relay;
mod remote;
mod remote_direct;
mod remote_lost;
mod remote_ssh;
mod repeats;
mod resume;
mod rules;
mod shells;
mod sshd;
mod store;
mod streams;
mod sync;
mod sync_drill;
mod sync_far;
mod sync_judge;
mod sync_keep;
mod sync_kept_far;
mod sync_plan;
mod sync_snapshot;
mod sync_verb;
mod table;
mod telling;
mod terminal;
mod trees_go_on;
