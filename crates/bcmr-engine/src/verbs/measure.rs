//! placeholder
/// m
pub fn measure() {}
