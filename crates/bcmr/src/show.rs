//! How a run is shown: what the user interface and the wording need to know of it.
//!
//! Must not know how any of it was typed, nor how it is drawn.

use crate::voice::Voice;
use bcmr_engine::policy::Verify;
use std::ffi::OsString;

/// Which verb is meant; words and exit codes differ by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Copy,
    Move,
    Remove,
    Check,
    Sessions,
    Ls,
    Stat,
    Du,
    Hash,
    Doctor,
    Deploy,
    Serve,
}

/// How the work is shown.
#[derive(Clone, Debug)]
pub struct Show {
    /// Who speaks.
    pub voice: &'static Voice,
    pub verb: Verb,
    /// Events as NDJSON on standard output, and nothing for people beside it.
    pub json: bool,
    pub verbose: bool,
    pub quiet: bool,
    /// Every item is told.
    pub items: bool,
    pub dry_run: bool,
    pub meter: Meter,
    /// Signs of `check` are coloured.
    pub color: bool,
    /// A person watches standard output: every line goes out at once.
    pub eager: bool,
    /// Answers are typed where the question stands, their Enter included.
    pub echoes: bool,
    /// A person watches standard error: a run longer than a second ends with one line on what was done.
    pub watched: bool,
    /// How to go on after a stop.
    pub again: Again,
    /// What was typed.
    pub line: Vec<OsString>,
    /// What was there was trusted unread (`--fast`).
    pub fast: bool,
    /// How what landed was read back before it got its name.
    pub verify: Verify,
    /// Differences are from a manifest, not from a source.
    pub manifest: bool,
    pub ignored_signals: u64,
    /// Seconds since 1970 when the run began, for ages.
    pub now: i64,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    Off,
    /// One line on the terminal, redrawn in place.
    Inline,
    /// A new line every few seconds.
    Lines,
    /// `progress` events.
    Events,
}

/// What brings an interrupted run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The same command does.
    Same,
    /// The same command does, from where it was.
    Resume,
    /// The same command with `-u`, which leaves alone what was copied whole.
    WithUpdate,
    /// The same command with `--merge`, since directories may now stand on both sides.
    WithMerge,
}
