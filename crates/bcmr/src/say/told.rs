//! An error as a line: what could not be done, to what, and why.
//!
//! Must not know where the line goes, nor what to do about it.

use crate::names::text;
use crate::say::words;
use crate::voice::{Style, Voice};
use bcmr_engine::error::{Code, Error, Op};
use std::io;

/// One line, without its newline: what could not be done, to what, and why.
pub fn error(voice: &Voice, e: &Error) -> String {
    voice.line(&told(&voice.style, e))
}

/// The same for what is only worth knowing.
pub fn warning(voice: &Voice, e: &Error) -> String {
    voice.line(&format!("warning: {}", told(&voice.style, e)))
}

fn told(style: &Style, e: &Error) -> String {
    let op = (style.op)(e.op);
    let what = match (e.path.as_os_str().is_empty(), &e.other, op.strip_suffix(" to")) {
        (true, ..) => op,
        (false, None, _) => format!("{op} {}", (style.name)(&e.path)),
        // What is done to a destination names it as its path, and the source as the other.
        (false, Some(from), Some(verb)) => {
            format!("{verb} {} to {}", (style.name)(from), (style.name)(&e.path))
        }
        (false, Some(other), None) => {
            let between = match e.op {
                Op::Compare | Op::Replace => "with",
                _ => "to",
            };
            format!("{op} {} {between} {}", (style.name)(&e.path), (style.name)(other))
        }
    };
    format!("cannot {what}: {}", one_line(&reason(e)))
}

/// A reason of several lines (a pattern with its fault marked below, the last words of another program) in one, as
/// safe as any name. What another machine says may be long; no more than this is worth reading.
pub fn one_line(why: &str) -> String {
    const CHARS_MAX: usize = 2000;
    let lines: Vec<&str> = why.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = text(&lines.join(" "));
    match line.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// Why, in the system's words but without the number Rust puts behind them.
pub fn reason(e: &Error) -> String {
    match (&e.note, &e.source) {
        (Some(note), Some(source)) => format!("{}: {}", words::note(note), os_text(source)),
        (Some(note), None) => words::note(note),
        (None, Some(source)) => os_text(source),
        (None, None) => e.code.name().replace('-', " "),
    }
}

/// `Permission denied`, not `Permission denied (os error 13)`.
pub fn os_text(e: &io::Error) -> String {
    let full = e.to_string();
    match e.raw_os_error() {
        Some(number) => {
            full.strip_suffix(&format!(" (os error {number})")).map(str::to_owned).unwrap_or(full)
        }
        None => full,
    }
}

/// Whether what goes wrong with one item goes wrong with most others: the file system is what it is.
pub fn is_of_all(code: Code) -> bool {
    matches!(code, Code::NoSpace | Code::ReadOnly)
}
