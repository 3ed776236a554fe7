//! What the engine says while it works: rare events through [`Front`], counters as atomics in [`Progress`].
//!
//! Must not know how any of it is shown.

use crate::error::{Code, Error, Note, Reason};
pub use fastcopy::meta::Time;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What was done with one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A file's content was copied, or would be.
    Copied,
    /// A directory was made.
    MadeDir,
    /// A symbolic link was made.
    MadeLink,
    /// A hard link to an item copied before was made.
    HardLinked,
    /// A FIFO, socket or device was made.
    MadeSpecial,
    /// Renamed without copying.
    Renamed,
    /// Removed.
    Removed,
    /// Left alone because the policy says so.
    Kept,
    /// Left alone because a filter says so.
    Excluded,
}

/// What `check` found for one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The destination lacks it (`+`).
    Add,
    /// The destination has it and the source does not (`-`).
    Extra,
    /// Both have it and they differ (`~`).
    Differ,
}

/// What is unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A large file with a session: the same command goes on with it.
    File,
    /// A directory that an interrupted run made: the same command goes on in it.
    Tree,
    /// What a killed run was filling, without a session: the same command makes it anew.
    Stage,
}

/// One thing that an interrupted run left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// What it is.
    pub what: What,
    /// The name that it is to have; where that is not known, the one it has now.
    pub path: PathBuf,
    /// Bytes recorded as being on the medium.
    pub recorded: u64,
    /// Bytes of the whole, where they are known.
    pub size: u64,
    /// When something was last recorded.
    pub last: Time,
    /// A copy is at it right now.
    pub running: bool,
    /// It was removed.
    pub removed: bool,
}

pub use fastcopy::ring::Unavailable;

/// How the contents of a run's files were read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// The user asked for a ring, or for direct I/O, and did not leave the choice to the engine.
    pub asked: bool,
    /// Files filled through a ring.
    pub ring_files: u64,
    /// Files filled by plain calls.
    pub sys_files: u64,
    /// Of `ring_files`, those that went past the page cache.
    pub direct_files: u64,
    /// Files that were to go past the page cache, and their file system would not.
    pub not_direct_files: u64,
    /// Why there was no ring, where one was tried.
    pub missing: Option<Unavailable>,
}

/// One thing worth telling. Rare: per item only when [`Watch::items`] asks for it.
#[derive(Debug)]
pub enum Event {
    /// An item was finished.
    Item {
        /// What was done.
        action: Action,
        /// Where it came from; empty for `remove`.
        src: PathBuf,
        /// Where it went; for `remove`, what was removed.
        dst: PathBuf,
        /// Bytes of content.
        bytes: u64,
    },
    /// `check`: a difference. Directories that are wholly on one side come as one event.
    Difference {
        /// Which side has it.
        change: Change,
        /// Relative to the target.
        path: PathBuf,
        /// A directory (with all below it, for `Add` and `Extra`).
        directory: bool,
        /// Files below it, itself when it is one.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// Why they differ.
        why: Reason,
    },
    /// A file landed and this is its BLAKE3; only when [`crate::policy::CopyPolicy::hashes`] asks for it.
    Hashed {
        /// Where it went.
        dst: PathBuf,
        /// The hash, as `b3sum` computes it.
        hash: [u8; 32],
    },
    /// A file went on where an interrupted run stopped, or could not.
    Resumed {
        /// Where it goes.
        dst: PathBuf,
        /// Bytes that were there already.
        bytes: u64,
        /// Why it starts over although there was something to go on from.
        restarted: Option<Reason>,
        /// Blocks of the unfinished file that were found damaged and copied again.
        repaired: u64,
    },
    /// `sessions`: something unfinished was found, and removed where that was asked for.
    Unfinished(Unfinished),
    /// An item failed; the others go on.
    Failed(Error),
    /// An item was done, but something is worth knowing (a special file skipped, an owner not kept).
    Warning(Error),
    /// Which way contents went, once at the end of a copy on this machine.
    Engine(Engine),
    /// Something about the whole run (how it was carried out, what was picked).
    Note(Note),
    /// The destination as it was typed is a name that no directory has yet: once one has it, the same words mean another
    /// place. Told before anything is made.
    NewTarget,
}

/// A question that only a person can answer.
#[derive(Debug)]
pub enum Question {
    /// Replace this destination?
    Replace(PathBuf),
    /// Remove this?
    Remove(PathBuf),
    /// Go into this directory to remove what is in it?
    Descend(PathBuf),
}

/// The person's side as the engine sees it. Called from worker threads, one call at a time per thread.
pub trait Front: Sync {
    /// Tells.
    fn event(&self, event: Event);
    /// Asks; `false` is no.
    fn ask(&self, question: Question) -> bool;
    /// Lends the terminal to another program that may ask something on it, or takes it back: nothing is drawn meanwhile.
    fn lend_terminal(&self, lent: bool) {
        let _nothing_is_drawn = lent;
    }
}

/// A flag that says stop. Set by a signal, read between items and between blocks of a large file.
#[derive(Debug)]
pub struct Cancel(AtomicBool);

impl Cancel {
    /// Not cancelled.
    #[must_use]
    pub const fn new() -> Cancel {
        Cancel(AtomicBool::new(false))
    }
    /// Asks every worker to stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    /// Whether to stop.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Cancel {
    fn default() -> Self {
        Cancel::new()
    }
}

/// Counters that only grow; read by the code that draws.
#[derive(Debug, Default)]
pub struct Progress {
    /// Items finished: files, links, directories, specials, removals.
    pub items_done: AtomicU64,
    /// Bytes of content that have been moved or were there already (a clone counts whole).
    pub bytes_done: AtomicU64,
    /// Of those, bytes that were there already: they take no time, so they have no part in a rate.
    pub bytes_there: AtomicU64,
    /// Items found so far; a lower bound until `scanned`.
    pub items_found: AtomicU64,
    /// Bytes found so far; a lower bound until `scanned`.
    pub bytes_found: AtomicU64,
    /// The totals above are final.
    pub scanned: AtomicBool,
}

impl Progress {
    /// Content that was there already counts as done.
    pub(crate) fn was_there(&self, bytes: u64) {
        self.bytes_there.fetch_add(bytes, Ordering::Relaxed);
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// How a verb is watched.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Where events go.
    pub front: &'a dyn Front,
    /// Where bytes and items are counted.
    pub progress: &'a Progress,
    /// Says stop.
    pub cancel: &'a Cancel,
    /// [`Event::Item`] is wanted for every item; costs a path per item.
    pub items: bool,
}

/// How many files of both sides were compared, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// By size and modification time; nothing of them was read.
    pub by_time: u64,
    /// By the hashes of their contents.
    pub by_content: u64,
}

/// What a verb did. The exit code is made from this alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Regular files landed or removed.
    pub files: u64,
    /// Directories made or removed.
    pub dirs: u64,
    /// Symbolic links, hard links and special files made or removed.
    pub others: u64,
    /// Bytes of content landed.
    pub bytes: u64,
    /// Of those, bytes of streams, which cannot be read back.
    pub streamed: u64,
    /// Items left alone by policy.
    pub kept: u64,
    /// Items that failed.
    pub failed: u64,
    /// `check`: differences found.
    pub differences: u64,
    /// `check`: how files were compared.
    pub compared: Compared,
    /// Which codes the failures had, each once.
    pub codes: Vec<Code>,
    /// Stopped before all was done.
    pub cancelled: bool,
}
