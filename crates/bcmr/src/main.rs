//! Parse, resolve, run, exit.
fn main() {}
