//! What bytes between two bcmr mean: frames, messages, handshake, limits, error codes.
//!
//! Knows no descriptors, no threads, no clocks and no ssh.
#![forbid(unsafe_code)]

pub mod frame;
pub mod limits;
