//! Malicious peers in both roles, against the real program: at least 40 scripts, and beside each family its honest twin.
//!
//! What must hold whatever the other side does stands in `hostile/peer.rs` (`fair`, `attack`, `besiege`): nothing is
//! written or read outside, no end later than 10 s, memory bounded, no panic, no control bytes, nothing half-done left.

mod believed;
mod chosen;
mod client;
mod delta;
mod keeping;
mod law;
mod mirror;
mod owners;
mod parts;
mod peer;
mod planned;
mod put;
mod random;
mod relayed;
mod repeats;
mod rounds;
mod server;
mod store;
mod survey;
mod trees;
mod walls;
