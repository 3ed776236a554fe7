//! Counts what happened and passes it on. Must not decide anything.

use crate::error::{Code, Error};
use crate::event::{Action, Compared, Event, Question, Summary, Watch, note};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Shared by all workers of one verb.
pub(crate) struct Tally<'a> {
    pub(crate) watch: Watch<'a>,
    pub(crate) files: AtomicU64,
    pub(crate) dirs: AtomicU64,
    pub(crate) others: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) streamed: AtomicU64,
    pub(crate) kept: AtomicU64,
    pub(crate) updated: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Of those, what is not at the destination.
    pub(crate) absent: AtomicU64,
    /// Of those, what is there and lacks something that was asked for.
    pub(crate) lost: AtomicU64,
    pub(crate) differences: AtomicU64,
    /// Files that were compared by size and time, and by their contents.
    pub(crate) by_time: AtomicU64,
    pub(crate) by_content: AtomicU64,
    codes: Mutex<Vec<Code>>,
    /// Answers that hold for the whole run, by what was asked about.
    answers: Mutex<HashMap<PathBuf, bool>>,
    /// The sources ended before all of them was there.
    cut_short: AtomicBool,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(watch: Watch<'a>) -> Tally<'a> {
        let zero = AtomicU64::default;
        Tally {
            watch,
            files: zero(),
            dirs: zero(),
            others: zero(),
            bytes: zero(),
            streamed: zero(),
            kept: zero(),
            updated: zero(),
            deleted: zero(),
            failed: zero(),
            absent: zero(),
            lost: zero(),
            differences: zero(),
            by_time: zero(),
            by_content: zero(),
            codes: Mutex::new(Vec::new()),
            answers: Mutex::default(),
            cut_short: AtomicBool::new(false),
        }
    }

    /// An item failed; the rest goes on.
    pub(crate) fn fail(&self, error: Error) {
        self.failed.fetch_add(1, Relaxed);
        self.absent.fetch_add(1, Relaxed);
        self.watch.progress.items_done.fetch_add(1, Relaxed);
        self.code(error.code);
        self.watch.front.event(Event::Failed(error));
    }

    /// An item failed, and the peer tells of it.
    pub(crate) fn count(&self, error: &Error) {
        self.failed.fetch_add(1, Relaxed);
        self.absent.fetch_add(1, Relaxed);
        self.watch.progress.items_done.fetch_add(1, Relaxed);
        self.code(error.code);
    }

    /// The contents are there, but something that was asked for is not: told, and the exit code says so.
    pub(crate) fn lost(&self, error: Error) {
        self.failed.fetch_add(1, Relaxed);
        self.lost.fetch_add(1, Relaxed);
        self.code(error.code);
        self.watch.front.event(Event::Failed(error));
    }

    /// Worth knowing, no failure.
    pub(crate) fn warn(&self, error: Error) {
        self.watch.front.event(Event::Warning(error));
    }

    /// What failed in a part of the run that told of it itself.
    pub(crate) fn failed_below(&self, part: &Summary) {
        self.failed.fetch_add(part.failed, Relaxed);
        // Where more went wrong than that, it is not known how much of it is.
        if part.codes.iter().all(|code| code.is_of_metadata()) {
            self.lost.fetch_add(part.failed, Relaxed);
        }
        part.codes.iter().for_each(|code| self.code(*code));
    }

    fn code(&self, code: Code) {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        note(&mut codes, code);
    }

    /// Tells of one finished item, where that is wanted; the paths are made only then.
    pub(crate) fn item(&self, action: Action, bytes: u64, paths: impl FnOnce() -> (PathBuf, PathBuf)) {
        if self.watch.items {
            let (src, dst) = paths();
            self.watch.front.event(Event::Item { action, src, dst, bytes });
        }
    }

    pub(crate) fn done(&self, items: u64) {
        self.watch.progress.items_done.fetch_add(items, Relaxed);
    }

    pub(crate) fn ask(&self, question: Question) -> bool {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match &question {
            Question::Replace(path) => answers.get(path).copied(),
            Question::Remove(_) | Question::Descend(_) => None,
        };
        drop(answers);
        known.unwrap_or_else(|| self.watch.front.ask(question))
    }

    /// Asks whether `path` may be replaced, where the same may come to be asked once more: then the answer is known.
    pub(crate) fn ask_once(&self, path: PathBuf) -> bool {
        let yes = self.ask(Question::Replace(path.clone()));
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(path, yes);
        yes
    }

    pub(crate) fn cancelled(&self) -> bool {
        self.watch.cancel.is_set()
    }

    /// The connection is lost: it is not known how much more there is, whatever has landed.
    pub(crate) fn cut_short(&self) {
        self.cut_short.store(true, Relaxed);
    }

    /// Nothing failed, and nothing was left out for a cancel or a lost connection.
    pub(crate) fn all_well(&self) -> bool {
        self.failed.load(Relaxed) == 0 && self.all_there()
    }

    /// Nothing was left out for a cancel or a lost connection.
    pub(crate) fn all_there(&self) -> bool {
        !self.cancelled() && !self.cut_short.load(Relaxed)
    }

    /// How files were compared so far.
    pub(crate) fn compared(&self) -> Compared {
        Compared { by_time: self.by_time.load(Relaxed), by_content: self.by_content.load(Relaxed) }
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary {
            files: self.files.load(Relaxed),
            dirs: self.dirs.load(Relaxed),
            others: self.others.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            streamed: self.streamed.load(Relaxed),
            of_stream: false,
            kept: self.kept.load(Relaxed),
            updated: self.updated.load(Relaxed),
            deleted: self.deleted.load(Relaxed),
            failed: self.failed.load(Relaxed),
            differences: self.differences.load(Relaxed),
            compared: self.compared(),
            codes: self.codes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            cancelled: self.watch.cancel.is_set(),
        }
    }
}
