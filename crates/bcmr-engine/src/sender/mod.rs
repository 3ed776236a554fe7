//! The half that has the files: finds them, filters them, opens them, and sends them where they have to cross. Never
//! knows a destination.

pub(crate) mod below;
pub(crate) mod chain;
pub(crate) mod contents;
pub(crate) mod filter;
pub(crate) mod item;
pub(crate) mod large;
pub(crate) mod level;
pub(crate) mod names;
pub(crate) mod offer;
pub(crate) mod operand;
pub(crate) mod out;
pub(crate) mod pace;
pub(crate) mod place;
pub(crate) mod push;
#[cfg(test)]
#[allow(clippy::disallowed_methods)] // trees are made, and swapped, by path
mod push_tests;
pub(crate) mod walk;
