//! Malicious peers in both roles, against the real program: at least 40 scripts, and beside each family its honest twin.
//!
//! What must hold whatever the other side does stands in `hostile/peer.rs` (`fair`, `attack`, `besiege`): nothing is
//! written or read outside, no end later than 10 s, memory bounded, no panic, no control bytes, nothing half-done left.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests look at the file system the ordinary way

#[path = "hostile/client.rs"]
mod client;
mod common;
#[path = "hostile/peer.rs"]
mod peer;
#[path = "hostile/put.rs"]
mod put;
#[path = "hostile/random.rs"]
mod random;
#[path = "hostile/server.rs"]
mod server;
#[path = "hostile/survey.rs"]
mod survey;
