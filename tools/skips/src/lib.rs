//! What tests leave out: one that cannot run on this machine says so where it is read, and of a large table an ordinary run
//! tries a slice. Must not know any test.

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

/// Whether tests that have more cases than an ordinary run has time for try all of them (`cargo xtask ci --deep`).
pub fn all_cases() -> bool {
    std::env::var_os("BCMR_ALL").is_some()
}

/// Whether the `n`th case of a table is tried: one in `step`, or all of them where [`all_cases`] says so.
pub fn in_slice(n: usize, step: usize) -> bool {
    all_cases() || n.is_multiple_of(step)
}

/// The first of a table's cases, and each `step`th behind it, as [`in_slice`].
pub fn sliced<T>(cases: impl IntoIterator<Item = T>, step: usize) -> impl Iterator<Item = T> {
    cases.into_iter().step_by(if all_cases() { 1 } else { step })
}
