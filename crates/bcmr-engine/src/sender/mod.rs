//! The half that has the files: finds them, filters them, opens them. Never knows a destination.

pub(crate) mod filter;
pub(crate) mod walk;
