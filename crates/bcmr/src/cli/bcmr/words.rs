//! The words of a command line before they are understood: which of them is an option's value.
//!
//! Pure. Must not know what any option does; that stands in their definitions.

use clap::{Arg, Command};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Whether an argument has this long name.
pub fn is_long(arg: &Arg, name: &str) -> bool {
    arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|all| all.contains(&name))
}

/// Whether an argument has this letter.
pub fn is_short(arg: &Arg, letter: char) -> bool {
    arg.get_short() == Some(letter) || arg.get_all_short_aliases().is_some_and(|all| all.contains(&letter))
}

/// Whether its value is the next word, where it does not stand in the same one.
pub fn takes_next(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

/// The argument of `verb` whose value the word behind this one is.
pub fn wants_next<'c>(verb: &'c Command, word: &OsStr) -> Option<&'c Arg> {
    let text = std::str::from_utf8(word.as_bytes()).ok()?;
    if let Some(long) = text.strip_prefix("--") {
        return verb.get_arguments().find(|arg| is_long(arg, long)).filter(|arg| takes_next(arg));
    }
    let letters = text.strip_prefix('-')?;
    let mut left = letters.chars();
    while let Some(letter) = left.next() {
        let arg = verb.get_arguments().find(|arg| is_short(arg, letter))?;
        if takes_next(arg) {
            return left.as_str().is_empty().then_some(arg);
        }
    }
    None
}
