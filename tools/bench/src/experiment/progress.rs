//! What is being done just now, on one line of the terminal. Must not know what that is.

use std::io::{IsTerminal, Write};

/// What is being done, on one line that the next takes over; for logs a line of its own.
pub fn progress(what: &str) {
    let mut err = std::io::stderr();
    let done = if err.is_terminal() {
        write!(err, "\r\x1b[K{what}").and_then(|()| err.flush())
    } else if what.is_empty() {
        Ok(())
    } else {
        writeln!(err, "  {what}")
    };
    // A closed terminal is no reason to stop.
    drop(done);
}
