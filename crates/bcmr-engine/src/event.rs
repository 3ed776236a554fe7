//! What the engine says while it works: rare events through [`Front`], counters as atomics in [`Progress`].
//!
//! Must not know how any of it is shown.

use crate::error::{Code, Error, Note, Reason};
pub use fastcopy::meta::Time;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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
    /// Its content was the same, and its attributes are so now.
    Updated,
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
        /// A hash of what both sides are like, where a plan is made.
        alike: Option<[u8; 32]>,
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
    /// The work is more than a moment's: its front may have left out until now what only shows, and what only stops, a
    /// longer one.
    fn goes_on(&self) {}
    /// Lends the terminal to another program that may ask something on it, or takes it back: nothing is drawn meanwhile.
    fn lend_terminal(&self, lent: bool) {
        let _nothing_is_drawn = lent;
    }
}

/// Hears events in the place of another front, to which all else goes.
pub(crate) struct HearingFront<'f, H> {
    front: &'f dyn Front,
    hear: H,
}

impl<'f, H: Fn(&dyn Front, Event) + Sync> HearingFront<'f, H> {
    /// `hear` gets each event, and the front that it stands before.
    pub(crate) fn new(front: &'f dyn Front, hear: H) -> HearingFront<'f, H> {
        HearingFront { front, hear }
    }
}

impl<H: Fn(&dyn Front, Event) + Sync> Front for HearingFront<'_, H> {
    fn event(&self, event: Event) {
        (self.hear)(self.front, event);
    }

    fn ask(&self, question: Question) -> bool {
        self.front.ask(question)
    }

    fn goes_on(&self) {
        self.front.goes_on();
    }

    fn lend_terminal(&self, lent: bool) {
        self.front.lend_terminal(lent);
    }
}

/// Hears nothing, and answers every question with no.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Front for Nothing {
    fn event(&self, _: Event) {}

    fn ask(&self, _: Question) -> bool {
        false
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
    /// What workers are at, and how long they were.
    pub work: WorkParts,
    /// How long threads waited for the other machine.
    pub waits: Waits,
    /// Which file is under way.
    pub under_way: UnderWay,
    /// Files whose blocks are shared with the source's, and their bytes.
    pub cloned_files: AtomicU64,
    /// See above.
    pub cloned_bytes: AtomicU64,
    /// Names that a filter left out; a directory counts once.
    pub excluded: AtomicU64,
    /// The files that took longest.
    pub slowest: Slowest,
    /// The hashes of what was verified.
    pub hashes: HashList,
}

/// What landing consists of, each part with its own counts.
#[derive(Debug, Default)]
pub struct WorkParts {
    /// Files are made, filled, given their attributes and named.
    pub copying: WorkPart,
    /// What landed is read back.
    pub verifying: WorkPart,
    /// What landed is brought onto stable storage.
    pub syncing: WorkPart,
}

/// One part of the work: how many workers are at it, what it came to, and how long it took all of them together.
#[derive(Debug, Default)]
pub struct WorkPart {
    workers: AtomicU64,
    nanos: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl WorkPart {
    /// A worker is at it until this is dropped.
    pub(crate) fn begin(&self) -> AtWork<'_> {
        self.workers.fetch_add(1, Ordering::Relaxed);
        AtWork { part: self, since: Instant::now() }
    }

    pub(crate) fn did(&self, files: u64, bytes: u64) {
        self.files.fetch_add(files, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Workers that are at it now.
    #[must_use]
    pub fn workers(&self) -> u64 {
        self.workers.load(Ordering::Relaxed)
    }

    /// Files that it is done for.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Bytes that it is done for.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How long it took, all workers together.
    #[must_use]
    pub fn took(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

/// A worker at one part of the work; dropped, its time is added.
pub(crate) struct AtWork<'w> {
    part: &'w WorkPart,
    since: Instant,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.part.workers.fetch_sub(1, Ordering::Relaxed);
        self.part.nanos.fetch_add(nanos(self.since.elapsed()), Ordering::Relaxed);
    }
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How long the threads of this side waited for the other side, all together; told when a connection ends.
#[derive(Debug, Default)]
pub struct Waits {
    /// Threads that send or land.
    pub threads: AtomicU64,
    /// For room in what carries the bytes.
    pub room_ns: AtomicU64,
    /// For the other side to settle what it was sent.
    pub settled_ns: AtomicU64,
    /// For the next message.
    pub frames_ns: AtomicU64,
    /// For content of a large file, while that lands.
    pub pieces_ns: AtomicU64,
}

/// The file under way, kept only once it is shown: a name for each file costs an allocation.
#[derive(Debug, Default)]
pub struct UnderWay {
    shown: AtomicBool,
    name: Mutex<PathBuf>,
}

impl UnderWay {
    /// From now on names are kept.
    pub fn show(&self) {
        self.shown.store(true, Ordering::Relaxed);
    }

    /// A worker has begun with this file.
    pub(crate) fn is(&self, name: impl FnOnce() -> PathBuf) {
        // A worker that has to wait for the lock need not be the one that is shown.
        if self.shown.load(Ordering::Relaxed)
            && let Ok(mut held) = self.name.try_lock()
        {
            *held = name();
        }
    }

    /// The file that was begun last; empty before the first.
    pub fn name(&self) -> PathBuf {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// So many of the slowest files are kept.
const SLOWEST_MAX: usize = 20;

/// A file and how long it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowFile {
    /// Where it went.
    pub path: PathBuf,
    /// Bytes of content.
    pub bytes: u64,
    /// Of files that land together, each one's share.
    pub took: Duration,
}

/// The files that took longest; kept only where they are wanted, and no more than a few.
#[derive(Debug, Default)]
pub struct Slowest {
    wanted: AtomicBool,
    held: Mutex<Vec<SlowFile>>,
}

impl Slowest {
    /// From now on they are kept.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// The time now, where they are kept.
    pub(crate) fn begin(&self) -> Option<Instant> {
        self.wanted.load(Ordering::Relaxed).then(Instant::now)
    }

    pub(crate) fn add(&self, took: Duration, bytes: u64, path: impl FnOnce() -> PathBuf) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let at = held.partition_point(|slow| slow.took >= took);
        if at < SLOWEST_MAX {
            held.truncate(SLOWEST_MAX - 1);
            held.insert(at, SlowFile { path: path(), bytes, took });
        }
    }

    /// The slowest first.
    pub fn files(&self) -> Vec<SlowFile> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Names of so many bytes at most are kept with their hashes.
const HASHED_BYTES_MAX: usize = 64 << 20;

/// The hashes of files that were verified, by name; kept only where they are wanted.
#[derive(Debug, Default)]
pub struct HashList {
    wanted: AtomicBool,
    held: Mutex<HeldHashes>,
}

#[derive(Debug, Default)]
struct HeldHashes {
    base: Option<PathBuf>,
    files: Vec<(PathBuf, [u8; 32])>,
    bytes: usize,
}

impl HashList {
    /// From now on they are kept.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Whether they are kept.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Names are relative to this.
    pub(crate) fn below(&self, base: &std::path::Path) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).base = Some(base.to_owned());
    }

    pub(crate) fn add(&self, path: impl FnOnce() -> PathBuf, hash: &[u8; 32]) {
        if !self.is_wanted() {
            return;
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let path = path();
        held.bytes += path.as_os_str().len() + hash.len();
        if held.bytes > HASHED_BYTES_MAX {
            held.files = Vec::new();
        } else {
            let below = held.base.as_ref().and_then(|base| path.strip_prefix(base).ok());
            let below = below.filter(|below| !below.as_os_str().is_empty());
            let name = below.map(std::path::Path::to_owned).or_else(|| path.file_name().map(PathBuf::from));
            held.files.push((name.unwrap_or(path), *hash));
        }
    }

    /// All of them, relative to the destination; empty where the destination is not known or they are too many.
    pub fn take(&self) -> Vec<(PathBuf, [u8; 32])> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.base.is_some() { std::mem::take(&mut held.files) } else { Vec::new() }
    }
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
    /// By their contents.
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
    /// One end was a FIFO or a device: there is nothing to compare with afterwards.
    pub of_stream: bool,
    /// Items left alone by policy.
    pub kept: u64,
    /// Items of which attributes alone were brought up to date.
    pub updated: u64,
    /// Entries of the destination deleted because the source lacks them.
    pub deleted: u64,
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

impl Summary {
    /// What was done in another part of the same run, added to this.
    pub(crate) fn add(&mut self, more: Self) {
        let Self {
            files,
            dirs,
            others,
            bytes,
            streamed,
            kept,
            updated,
            deleted,
            failed,
            differences,
            compared,
            ..
        } = more;
        self.files += files;
        self.dirs += dirs;
        self.others += others;
        self.bytes += bytes;
        self.streamed += streamed;
        self.kept += kept;
        self.updated += updated;
        self.deleted += deleted;
        self.failed += failed;
        self.differences += differences;
        self.compared.by_time += compared.by_time;
        self.compared.by_content += compared.by_content;
        self.cancelled |= more.cancelled;
        more.codes.into_iter().for_each(|code| note(&mut self.codes, code));
    }
}

/// Keeps each code once, in the order in which they came.
pub(crate) fn note(codes: &mut Vec<Code>, code: Code) {
    if !codes.contains(&code) {
        codes.push(code);
    }
}
