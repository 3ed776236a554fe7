//! What bytes between two bcmr mean: frames, messages, handshake, limits, error codes. `docs/protocol.md` rules; its
//! tags stand at the lines that keep them.
//!
//! Knows no descriptors, no threads, no clocks and no ssh.
#![forbid(unsafe_code)]

pub mod bytes;
pub mod code;
pub mod codec;
pub mod columns;
pub mod contents;
pub mod dialogue;
pub mod direct;
mod field;
pub mod frame;
pub mod handshake;
pub mod limits;
pub mod message;
mod packed;
pub mod policy;
mod rules;
pub mod state;
pub mod window;

pub use field::{Refused, Tag, Why};
