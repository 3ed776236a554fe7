//! The other processes that walk the source of a plan, as one of them sees them, and what one of them has found.
//!
//! Must not know how they are reached, nor what a walk is.

use crate::error::Code;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Who walks what is given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenTo {
    /// Any process.
    Any,
    /// The one that makes the plan: each machine counts devices for itself, so names on another file system than the
    /// source's own are all told apart by one.
    First,
}

/// The other processes that walk the same source, as one of them sees them. Called by several threads.
pub trait OtherWalkers: Sync {
    /// Waits for what is to be walked next: names below the source, of which the empty one is the source itself. `None`: all
    /// is walked. Who asks is done with what it got before.
    fn next(&self) -> Option<Vec<PathBuf>>;
    /// How many directories others would take now.
    fn wanted(&self) -> usize;
    /// Leaves a name below the source to another process, which keeps what it is as well.
    fn give(&self, path: PathBuf, to: GivenTo);
    /// What the others have found. The process that makes the plan asks, once all is walked.
    fn parts(&self) -> Vec<WalkedPart>;
}

/// A file with a sorted run: the number in its name, and its bytes. No bytes: there is no file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundRun {
    /// The number in its name.
    pub number: u128,
    /// Its bytes.
    pub bytes: u64,
}

/// What one process has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkedPart {
    /// Everything.
    pub all: FoundRun,
    /// Files with several names.
    pub linked: FoundRun,
    /// Directories.
    pub dirs: u64,
    /// Everything else.
    pub names: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// What could not be looked at, which was told.
    pub failed: u64,
    /// Why it did not come to an end.
    pub ended: Option<Code>,
    /// It was stopped.
    pub cancelled: bool,
}

/// This process walks alone.
#[derive(Default)]
pub(super) struct Alone {
    begun: AtomicBool,
}

impl OtherWalkers for Alone {
    fn next(&self) -> Option<Vec<PathBuf>> {
        (!self.begun.swap(true, Relaxed)).then(|| vec![PathBuf::new()])
    }

    fn wanted(&self) -> usize {
        0
    }

    fn give(&self, _: PathBuf, _: GivenTo) {}

    fn parts(&self) -> Vec<WalkedPart> {
        Vec::new()
    }
}
