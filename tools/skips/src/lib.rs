//! A test that cannot run on this machine says so where it is read. Must not know any test.

use std::io::Write as _;

/// Names the file in which `cargo xtask ci` wants skipped tests written down; it says them again at its end.
pub const LIST: &str = "BCMR_SKIPS";

/// Says that this test, which the thread is named after, was skipped. See [`skipped`].
///
/// # Panics
/// As [`skipped`] does.
pub fn here(why: &str) {
    skipped(std::thread::current().name().unwrap_or("a test"), why);
}

/// Says loudly that something was not tested, and why: standard error itself, as what `eprintln!` says in a test that
/// passes is never shown. Also into the file that [`LIST`] names.
///
/// # Panics
/// If that file cannot be written to: then a skipped test would look like one that passed.
pub fn skipped(test: &str, why: &str) {
    let line = format!("SKIPPED: {test}: {why}\n");
    let _told = std::io::stderr().write_all(line.as_bytes());
    if let Some(list) = std::env::var_os(LIST) {
        let written = std::fs::File::options()
            .append(true)
            .open(&list)
            .and_then(|mut list| list.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{}: {written:?}", list.display());
    }
}
