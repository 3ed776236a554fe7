//! The half that has the files: finds them, filters them, opens them, and sends them where they have to cross. Never
//! knows a destination.

pub(crate) mod announce;
mod asking;
pub(crate) mod below;
mod blocks;
pub(crate) mod chain;
mod classes;
mod contents;
mod delta;
mod entries;
pub(crate) mod filter;
pub(crate) mod item;
mod large;
pub(crate) mod level;
mod listen;
mod moved;
pub(crate) mod names;
mod naming;
pub(crate) mod operand;
pub(crate) mod out;
mod pace;
mod packers;
mod place;
pub(crate) mod push;
#[cfg(test)]
#[allow(clippy::disallowed_methods)] // trees are made, and swapped, by path
mod push_tests;
mod repeats;
mod schedule;
pub(crate) mod sending;
pub(crate) mod small;
mod taking;
pub(crate) mod walk;
