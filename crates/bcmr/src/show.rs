//! How a run is shown: what the user interface and the wording need to know of it.
//!
//! Must not know how any of it was typed, nor how it is drawn.

use crate::voice::Voice;
use bcmr_engine::policy::{Collide, Verify};
use bcmr_engine::remote::Plane;
use std::ffi::OsString;
use std::path::PathBuf;

/// Which verb is meant; words and exit codes differ by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Copy,
    Move,
    Remove,
    Check,
    Sync,
    Undo,
    Sessions,
    Ctl,
    Ls,
    Stat,
    Du,
    Hash,
    Mkdir,
    Doctor,
    Deploy,
    Serve,
    Plan,
    Shard,
    Finish,
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
    /// The bar of progress is coloured.
    pub bar_color: bool,
    /// What else shows progress.
    pub signs: Signs,
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
    /// The same for a proof: with the defaults in it that the configuration has.
    pub proved_line: Vec<OsString>,
    /// It does what was written down earlier (`sync --apply`), with the options of then.
    pub from_plan: bool,
    /// Who things belong to at the destination was said (`--chown` and its like), so that owners are kept whatever else is.
    pub owners_said: bool,
    /// One worker does all of it, and fewer there cannot be.
    pub one_worker: bool,
    /// What was there was trusted unread (`--fast`).
    pub fast: bool,
    /// How what landed was read back before it got its name.
    pub verify: Verify,
    /// What becomes of names that are already there, for telling why some were left alone.
    pub collide: Collide,
    /// Where the other machine is, if there is one.
    pub far: Far,
    /// What was typed was typed on another machine (`--via-source`), which says nothing of how this one connects.
    pub at_source: bool,
    /// Whether the destination is a directory is seen on the other machine, which tells when it is new.
    pub guessed_there: bool,
    /// The command that proves what the typed one did, where there is one.
    pub proof: fn(&[OsString]) -> Option<Vec<OsString>>,
    /// Changes are told with rsync's letters, with names below this directory.
    pub itemized: Option<PathBuf>,
    /// What was done is told in the end, whatever else is.
    pub stats: bool,
    /// A page on the run is written into this file.
    pub report: Option<PathBuf>,
    /// Differences are from a manifest, not from a source.
    pub manifest: bool,
    pub ignored_signals: u64,
    /// Seconds since 1970 when the run began, for ages.
    pub now: i64,
}

/// What the run is at, as far as one word can say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// What the verb itself does.
    #[default]
    Working,
    /// Nothing is copied just now, and what landed is read back.
    Verifying,
    /// Nothing is copied just now, and what landed is brought onto stable storage.
    Syncing,
}

/// Where the other machine is in a copy, and what carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Far {
    /// There is none.
    Nowhere,
    /// The copy goes there.
    To(Plane),
    /// The copy comes from there.
    From(Plane),
}

/// Whether the destination is new: what was typed means another place once it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTarget {
    Yes,
    No,
    /// The other machine has not been heard.
    Untold,
}

/// What a terminal can show of progress beside a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signs {
    /// In the taskbar or on the tab.
    pub taskbar: bool,
    /// In the title of the window.
    pub title: bool,
    /// Whether lines are broken anew when the terminal becomes narrower.
    pub reflows: bool,
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
    /// The same command does; what it writes into under its name is there in part.
    InPlace,
    /// The same command does, from where it was.
    Resume,
    /// The same command with `-u`, which leaves alone what was copied whole.
    WithUpdate,
    /// The same command with `--merge`, since directories may now stand on both sides.
    WithMerge,
}
