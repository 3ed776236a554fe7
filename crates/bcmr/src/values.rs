//! Values that may be typed as well as configured: which there are. Must not know what they are for, or who says them.

use std::ops::RangeInclusive;

/// How many connections there may be.
pub const PARALLEL: RangeInclusive<i64> = 1..=64;
/// How often a lost connection may be made again.
pub const RETRIES: RangeInclusive<i64> = 0..=1000;

/// A command as a shell would split it.
///
/// # Errors
/// What is wrong with it, to stand behind what it is called.
pub fn command(line: &str) -> Result<Vec<String>, &'static str> {
    names_one(shlex::split(line).ok_or("has a quote that is not closed")?)
}

/// A command as words.
///
/// # Errors
/// As [`command`].
pub fn names_one(words: Vec<String>) -> Result<Vec<String>, &'static str> {
    match words.first() {
        Some(program) if !program.is_empty() => Ok(words),
        _ => Err("names no command"),
    }
}

/// What a program on another machine may be called: it is the one word that a shell over there reads.
pub const PROGRAM: &str =
    "a word or a path of letters, digits and . _ + - /; a relative path is below the home directory there";

/// Whether it may be called so.
pub fn is_program(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '/' | '+' | '-');
    !name.is_empty() && !name.starts_with('-') && name.chars().all(plain)
}
