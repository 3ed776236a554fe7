//! Events on a wire: what a receiving server reports to its client, and what the client makes of it.
//!
//! Must not know who shows them, nor how they are worded.

use super::questions::RemoteQuestions;
use super::talk::blamed_on;
use crate::error::{Code, Error, Note, Op, Reason, Result};
use crate::event::{Action, Change, Compared, Event, Front, Question, Summary, Watch, note};
use crate::peer::reply::Reply;
use crate::sender::out::{Counted, SendObserver};
use crate::trouble::{NoteBuf, TroubleBuf, error_of, note_of};
use crate::verbs::manifest::Manifest;
use bcmr_wire::limits::PATH_BYTES_MAX;
use bcmr_wire::message::{Event as WireEvent, Message, Trouble};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// More than can be counted.
const COUNT_MAX: u64 = 1 << 60;

/// Reports to the user of a client that sends.
pub(crate) struct ClientObserver<'a> {
    pub(crate) watch: Watch<'a>,
    /// What goes before a path of the other side when it is shown.
    pub(crate) prefix: String,
    /// What the target itself is told as.
    pub(crate) own_name: PathBuf,
    /// The same as the prefix, of a path of the source.
    pub(crate) source_prefix: String,
    /// Where hashes go.
    pub(crate) manifest: Option<Manifest>,
    /// Each hash is told, and not only kept.
    pub(crate) tells_hashes: bool,
    /// Hashes that it lacks, because their paths could not be sent or written.
    pub(crate) unwritten: AtomicU64,
    /// Differences were asked for; where they were not, none is reported.
    pub(crate) compares: bool,
    /// It is a look of which nothing is told: the run itself meets again what failed.
    pub(crate) untold: bool,
    /// How the other side compared.
    pub(crate) compared: Mutex<Compared>,
    /// A move is to be gone through once more.
    pub(crate) once_more: Arc<AtomicBool>,
}

impl ClientObserver<'_> {
    /// Ends the manifest: it gets its name when everything that it speaks of landed.
    pub(crate) fn finish_manifest(self, result: Result<Summary>) -> Result<Summary> {
        let compared = self.compared.into_inner().unwrap_or_else(PoisonError::into_inner);
        let result = result.map(|summary| Summary { compared, ..summary });
        let Some(manifest) = self.manifest else { return result };
        let mut summary = match result {
            Ok(summary) => summary,
            Err(e) => {
                // What went wrong first is what is told.
                let _taken_away = manifest.end(false).is_ok();
                return Err(e);
            }
        };
        let unwritten = self.unwritten.into_inner();
        // What was lost of metadata is there all the same.
        let there = summary.codes.iter().all(|code| code.is_of_metadata());
        let complete = there && !summary.cancelled;
        if unwritten > 0 {
            summary.failed += unwritten;
            note(&mut summary.codes, Code::Unsupported);
        }
        let path = manifest.path().to_owned();
        match manifest.end(complete) {
            Err(e) => {
                summary.failed += 1;
                note(&mut summary.codes, e.code);
                self.watch.front.event(Event::Failed(e));
            }
            Ok(()) if complete => {}
            Ok(()) => {
                let why = Reason::OnlyCompleteCopy;
                self.watch.front.event(Event::Warning(Error::ours(
                    Code::Refused,
                    Op::WriteManifest,
                    path,
                    why,
                )));
            }
        }
        Ok(summary)
    }

    fn there(&self, path: &[u8]) -> PathBuf {
        behind(&self.prefix, path)
    }

    /// An item without a source has no path.
    fn at_source(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { PathBuf::new() } else { behind(&self.source_prefix, path) }
    }

    fn trouble(&self, trouble: &Trouble<'_>) -> Error {
        let e = error_of(trouble);
        let prefix = if is_of_source(&e) { &self.source_prefix } else { &self.prefix };
        blamed_on(prefix, e)
    }
}

fn behind(prefix: &str, path: &[u8]) -> PathBuf {
    let mut text = std::ffi::OsString::from(prefix);
    text.push(OsStr::from_bytes(path));
    text.into()
}

/// Whether a receiver names what it speaks of as the source does: what a move cannot take away, what could not be read or
/// changed meanwhile, and a directory that its own copy would be in. All else has a name at the destination.
fn is_of_source(e: &Error) -> bool {
    let nested = |note: &Note| matches!(note.reason, Reason::DestinationInside | Reason::SameDirectory);
    // What is received has no path where it is about the connection.
    let sent = e.op == Op::Receive && !e.path.as_os_str().is_empty();
    sent || matches!(e.op, Op::RemoveSource | Op::ReadSource)
        || e.code == Code::SourceChanged
        || e.note.as_ref().is_some_and(nested)
}

fn copy_of(e: &Error) -> Error {
    Error {
        code: e.code,
        op: e.op,
        path: e.path.clone(),
        other: e.other.clone(),
        note: e.note.clone(),
        source: e.source.as_ref().map(|s| match s.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::other(s.to_string()),
        }),
    }
}

impl SendObserver for ClientObserver<'_> {
    fn took(&self, path: &dyn Fn() -> PathBuf) {
        if self.watch.items {
            let (src, dst) = (PathBuf::new(), path());
            self.watch.front.event(Event::Item { action: Action::Removed, src, dst, bytes: 0 });
        }
    }
    fn once_more(&self) {
        self.once_more.store(true, Ordering::Relaxed);
    }
    fn failed(&self, error: &Error) {
        if !self.untold {
            self.watch.front.event(Event::Failed(copy_of(error)));
        }
    }
    fn excluded(&self, path: &dyn Fn() -> PathBuf) {
        if self.untold {
            return;
        }
        self.watch.progress.excluded.fetch_add(1, Ordering::Relaxed);
        if self.watch.items {
            let (src, dst) = (path(), PathBuf::new());
            self.watch.front.event(Event::Item { action: Action::Excluded, src, dst, bytes: 0 });
        }
    }
    fn sends(&self, path: &dyn Fn() -> PathBuf) {
        self.watch.progress.under_way.is(path);
    }
    fn found(&self, _: u64, _: u64, _: bool) {
        // The user interface has measured the sources already.
    }
    fn peer_error(&self, trouble: &Trouble<'_>) -> Error {
        self.trouble(trouble)
    }
    fn landed(&self, items: u64, bytes: u64) {
        self.watch.progress.items_done.fetch_add(items, Ordering::Relaxed);
        self.watch.progress.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }
    fn there(&self, bytes: u64) {
        self.watch.progress.bytes_there.fetch_add(bytes, Ordering::Relaxed);
    }
    fn report(&self, event: &WireEvent<'_>) {
        self.watch.front.event(match event {
            WireEvent::Item { action, src, dst, bytes } => Event::Item {
                action: ACTIONS.get(usize::from(*action)).copied().unwrap_or(Action::Copied),
                src: self.at_source(src),
                dst: self.there(dst),
                bytes: *bytes,
            },
            WireEvent::Failed(trouble) => Event::Failed(self.trouble(trouble)),
            WireEvent::Warning(trouble) => Event::Warning(self.trouble(trouble)),
            // [event.nameless]
            WireEvent::Hashed { dst: b"", .. } => {
                self.unwritten.fetch_add(1, Ordering::Relaxed);
                return;
            }
            WireEvent::Hashed { dst, hash } => {
                if let Some(manifest) = &self.manifest
                    && let Err(e) = manifest.add_told(Path::new(OsStr::from_bytes(dst)), hash)
                {
                    self.unwritten.fetch_add(1, Ordering::Relaxed);
                    self.failed(&Error { path: self.there(dst), ..e });
                }
                self.watch.progress.hashes.add(|| PathBuf::from(OsStr::from_bytes(dst)), hash);
                if !self.tells_hashes {
                    return;
                }
                Event::Hashed { dst: self.there(dst), hash: *hash }
            }
            WireEvent::Base(path) => {
                self.watch.progress.hashes.below(Path::new(OsStr::from_bytes(path)));
                if let Some(manifest) = &self.manifest {
                    manifest.below(PathBuf::from(OsStr::from_bytes(path)));
                }
                return;
            }
            WireEvent::Compared { by_time, by_content } => {
                let (by_time, by_content) = ((*by_time).min(COUNT_MAX), (*by_content).min(COUNT_MAX));
                *self.compared.lock().unwrap_or_else(PoisonError::into_inner) =
                    Compared { by_time, by_content };
                return;
            }
            WireEvent::NewTarget => Event::NewTarget,
            WireEvent::Difference { .. } if !self.compares || self.untold => return,
            WireEvent::Difference { change, path, directory, files, bytes, why, alike } => {
                Event::Difference {
                    change: CHANGES.get(usize::from(*change)).copied().unwrap_or(Change::Differ),
                    path: match path {
                        [] => self.own_name.clone(),
                        path => PathBuf::from(OsStr::from_bytes(path)),
                    },
                    directory: *directory,
                    files: *files,
                    bytes: *bytes,
                    why: Reason::of_number(*why),
                    alike: *alike,
                }
            }
            WireEvent::Resumed { dst, bytes, restarted: 0, repaired } => {
                Event::Resumed { dst: self.there(dst), bytes: *bytes, restarted: None, repaired: *repaired }
            }
            WireEvent::Resumed { dst, restarted, .. } => {
                let dst = self.there(dst);
                Event::Note(Reason::StartsOver.about(dst.as_path()).about(Reason::of_number(*restarted)))
            }
            WireEvent::Note(note) => match note_of(note) {
                // The receipt is there.
                Some(note) if note.reason == Reason::OldKept => {
                    let there = Reason::OldKeptThere.about(self.prefix.trim_end_matches(':'));
                    Event::Note(note.about.into_iter().fold(there, Note::about))
                }
                Some(note) => Event::Note(note),
                None => return,
            },
        });
    }
    fn ask(&self, path: &Path) -> bool {
        self.watch.front.ask(Question::Replace(self.there(path.as_os_str().as_bytes())))
    }
}

const ACTIONS: [Action; 10] = [
    Action::Copied,
    Action::MadeDir,
    Action::MadeLink,
    Action::HardLinked,
    Action::MadeSpecial,
    Action::Renamed,
    Action::Removed,
    Action::Kept,
    Action::Excluded,
    Action::Updated,
];

const CHANGES: [Change; bcmr_wire::policy::CHANGES as usize] = [Change::Add, Change::Extra, Change::Differ];

/// A server that sends reports to its client alone, and the sender does that itself.
pub(crate) struct NoObserver;

impl SendObserver for NoObserver {
    fn failed(&self, _: &Error) {}
    fn excluded(&self, _: &dyn Fn() -> PathBuf) {}
    fn found(&self, _: u64, _: u64, _: bool) {}
    fn landed(&self, _: u64, _: u64) {}
    fn report(&self, _: &WireEvent<'_>) {}
    fn ask(&self, _: &Path) -> bool {
        false
    }
}

/// What the other side counted.
pub(crate) fn summary_of(counted: &Counted) -> Summary {
    // Their word, and sums are made of it: no count of real things comes near to this.
    let [files, dirs, others, bytes, kept, failed, differences] = counted.counts.map(|n| n.min(COUNT_MAX));
    let mut codes: Vec<Code> = Vec::new();
    for number in &counted.codes {
        let code = Code::of_number(u16::try_from(*number).unwrap_or(0));
        note(&mut codes, code);
    }
    let (cancelled, compared) = (counted.cancelled, Compared::default());
    let (deleted, updated) = (counted.gone.0.min(COUNT_MAX), counted.gone.1.min(COUNT_MAX));
    Summary {
        files,
        dirs,
        others,
        bytes,
        kept,
        failed,
        differences,
        deleted,
        updated,
        compared,
        codes,
        cancelled,
        ..Summary::default()
    }
}

/// A server that receives reports everything to its client.
pub(crate) struct ReportingFront<'a> {
    pub(crate) reply: &'a Reply,
    pub(crate) questions: &'a RemoteQuestions,
    /// The client has Compared.
    pub(crate) newer: bool,
}

impl Front for ReportingFront<'_> {
    fn event(&self, event: Event) {
        // What cannot be said any more is no news to a client that is gone.
        let _told = match &event {
            Event::Item { action, src, dst, bytes } => {
                let action = ACTIONS.iter().position(|a| a == action).unwrap_or(0) as u8;
                let (src, dst) = (src.as_os_str().as_bytes(), dst.as_os_str().as_bytes());
                self.report(WireEvent::Item { action, src, dst, bytes: *bytes })
            }
            Event::Failed(e) => self.report(WireEvent::Failed(TroubleBuf::of(e).trouble())),
            Event::Warning(e) => self.report(WireEvent::Warning(TroubleBuf::of(e).trouble())),
            Event::Hashed { dst, hash } => {
                let path = dst.as_os_str().as_bytes();
                let fits = path.len() <= PATH_BYTES_MAX;
                if !fits {
                    let note = Reason::PathTooLongForHashes;
                    let e = Error::ours(Code::NameTooLong, Op::WriteManifest, dst, note);
                    self.report(WireEvent::Failed(TroubleBuf::of(&e).trouble()));
                }
                // [event.nameless]
                self.report(WireEvent::Hashed { dst: if fits { path } else { b"" }, hash: *hash })
            }
            Event::Resumed { dst, bytes, restarted, repaired } => self.report(WireEvent::Resumed {
                dst: dst.as_os_str().as_bytes(),
                bytes: *bytes,
                restarted: restarted.map_or(0, Reason::number),
                repaired: *repaired,
            }),
            Event::Note(note) => self.report(WireEvent::Note(NoteBuf::of(note).note())),
            Event::NewTarget => !self.newer || self.report(WireEvent::NewTarget),
            Event::Difference { change, path, directory, files, bytes, why, alike } => {
                let change = CHANGES.iter().position(|c| c == change).unwrap_or(0) as u8;
                let (path, why) = (path.as_os_str().as_bytes(), why.number());
                let (directory, files, bytes, alike) = (*directory, *files, *bytes, *alike);
                self.report(WireEvent::Difference { change, path, directory, files, bytes, why, alike })
            }
            // What lands here comes off the wire and goes by plain calls: there is nothing to tell.
            Event::Unfinished(_) | Event::Engine(_) => true,
        };
    }
    fn ask(&self, question: Question) -> bool {
        match question {
            Question::Replace(path) | Question::Remove(path) | Question::Descend(path) => {
                self.questions.ask(self.reply, &path)
            }
        }
    }
}

impl ReportingFront<'_> {
    fn report(&self, event: WireEvent<'_>) -> bool {
        self.reply.send(&Message::Report(event)).is_ok()
    }
}
