//! Takes names away, in parallel, by directory handle: the verb `remove`, and [`below`] for what this program made.
//!
//! Must not know how anything is copied. Every removal is `unlinkat` of one name below an open handle, and every
//! handle below an operand was opened by one name with O_NOFOLLOW (or by `..` and then proved to be the directory it
//! must be): whatever is put in a directory's place meanwhile, nothing outside the operand can be reached.
//!
//! The unit of work is a directory. A worker lists it, removes the files while listing, and leaves the names of its
//! subdirectories as one task; the worker that finishes the last thing in a directory removes it from its parent. Nothing
//! recurses, and handles of directories that wait for their children are given up when they get many, the oldest
//! first: a parent is found again by its child's `..`, or by walking down from the operand, and is recognised by
//! (device, inode).

mod guard;

use crate::error::{Code, Error, Op, Reason};
use crate::event::{Action, Cancel, Event, Front, Progress, Question, Summary, Watch, note};
use crate::policy::RemoveRequest;
use crate::pool::{Hands, Pool};
use crate::recent::Recent;
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{self, Kind, Place};
use guard::{Operand, Protected};
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Handles kept open for directories that wait for their children. Ordinary trees stay far below.
const HANDLES_MAX: usize = 128;
/// Handles kept once the process has run out of descriptors; none at all when that does not help.
const HANDLES_FEW: usize = 2;
/// Names of files that one worker leaves to another.
const BATCH_NAMES_MAX: usize = 256;
/// How many names are removed between two looks at whether a worker is out of work.
const NAMES_PER_LOOK: u64 = 32;
/// How often one directory is listed again because it was not empty at the end.
const ROUNDS_MAX: u32 = 16;
/// How often, a millisecond apart, a worker that runs alone waits for others to give a descriptor back.
const DESCRIPTOR_WAITS_MAX: u32 = 500;
/// Longer operands are walked component by component.
const PATH_BYTES_MAX: usize = 4095;

/// Removes. `Err` only when nothing could be begun; everything later is counted in the [`Summary`].
///
/// An operand that is `/`, `.`, `..`, the root directory, the current directory or an ancestor of it under any name is
/// refused, and so is a mount point unless `one_file_system` is off. A symbolic link is removed itself, never what it
/// points to. One bad entry never stops the rest; a directory in which something had to stay is left, and that is
/// no further error.
pub fn remove(request: RemoveRequest, watch: Watch<'_>) -> Result<Summary, Error> {
    if request.paths.is_empty() && !request.force {
        return Err(Error::ours(Code::Usage, Op::Remove, "", Reason::NothingNamed));
    }
    // A person is asked in the order in which things are found, one question at a time.
    let ask = request.ask && !request.dry_run;
    let pool = Pool::new(if ask { 1 } else { request.jobs });
    for path in request.paths.iter().rev() {
        pool.push(RemoveTask::Operand(path.clone()));
    }
    let summary = run(&pool, &request, (ask, SealedDirs::Stay), watch, Protected::find()?);
    watch.progress.scanned.store(true, Ordering::Relaxed);
    Ok(summary)
}

/// What becomes of directories that are sealed so that even their owner may not take names out of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SealedDirs {
    /// They stay, with what is in them, as with rm.
    Stay,
    /// They are opened up to their owner.
    OpenUp,
}

/// Takes the name `name` in `dir` away, with everything below it, and nothing beyond its file system. No person is asked,
/// and none is told: what is removed was made by this program, which may have sealed it too.
///
/// # Errors
/// The first thing that could not be removed.
pub(crate) fn below(dir: &Dir, name: Name<'_>) -> io::Result<()> {
    below_by(dir, name, (1, SealedDirs::OpenUp), &Cancel::new()).map(drop)
}

/// The same by so many threads, until it is cancelled. Whether it was not.
///
/// # Errors
/// As [`below`].
pub(crate) fn below_by(
    dir: &Dir,
    name: Name<'_>,
    (jobs, sealed): (usize, SealedDirs),
    cancel: &Cancel,
) -> io::Result<bool> {
    match dir.remove_file(name) {
        Err(e) if is(&e, &[errno::EISDIR, errno::EPERM]) => {}
        Err(e) if is(&e, &[errno::ENOENT]) => return Ok(true),
        other => return other.map(|()| true),
    }
    let (first, progress) = (First::default(), Progress::default());
    let watch = Watch { front: &first, progress: &progress, cancel, items: false };
    let shown = PathBuf::from(crate::node::os(name));
    let done = tree(dir, name, shown, (jobs, false, sealed), watch, Protected::default())?;
    let first = first.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    first.map_or(Ok(!done.cancelled), Err)
}

/// Refuses a directory that is never removed: the root, the current directory and what holds it, and a mount point.
///
/// # Errors
/// It is one of those, or that cannot be found out.
pub(crate) fn guard(dir: &Dir, shown: &Path) -> Result<(), Error> {
    let place = Place::of(dir).map_err(|e| Error::os(Op::Stat, shown, e))?;
    let why = Protected::find()?.reason(place.id());
    match why.or_else(|| (place.mount_root == Some(true)).then_some(MOUNT_POINT)) {
        Some(why) => Err(Error::ours(Code::Refused, Op::Remove, shown, why)),
        None => Ok(()),
    }
}

/// Why a directory found in one of the device `above` is not removed, nor anything in it, if so.
pub(crate) fn beyond(place: &Place, above: u64) -> Option<Reason> {
    match place.mount_root {
        Some(true) => Some(MOUNT_POINT),
        _ => (place.dev != above).then_some(Reason::OtherFileSystem),
    }
}

/// The directory that `names` lead to from `top`, opened one name at a time and through no link. `Err` inside: something is
/// mounted on the way, or begins there.
pub(crate) fn reach<'n>(
    top: &Dir,
    names: impl Iterator<Item = Name<'n>>,
) -> io::Result<std::result::Result<Dir, Reason>> {
    let device = Place::of(top)?.dev;
    let mut dir = top.try_clone()?;
    for name in names {
        dir = dir.open_dir(name)?;
        if let Some(why) = beyond(&Place::of(&dir)?, device) {
            return Ok(Err(why));
        }
    }
    Ok(Ok(dir))
}

/// How [`named`] works.
#[derive(Clone, Copy)]
pub(crate) struct NamedRemoval {
    /// Only say what would go.
    pub(crate) dry_run: bool,
    pub(crate) jobs: usize,
    /// Directories that stay wherever they are met: what a run reads, and what it keeps.
    pub(crate) stays: [Option<(u64, u64)>; 2],
}

/// Takes the directory `name` in `dir` away, with everything below it, and nothing beyond its file system, as [`remove`]
/// does: neither the current directory nor what holds it. Sealed directories are opened up. What goes is told as below `shown`.
///
/// # Errors
/// Nothing could be begun.
pub(crate) fn named(
    dir: &Dir,
    name: Name<'_>,
    shown: PathBuf,
    how: NamedRemoval,
    watch: Watch<'_>,
) -> Result<Summary, Error> {
    let mut protected = Protected::find()?;
    for (id, why) in how.stays.into_iter().zip([Reason::HoldsSource, Reason::HoldsKept]) {
        if let Some(id) = id {
            protected = protected.with(id, why);
        }
    }
    let path = shown.clone();
    tree(dir, name, shown, (how.jobs, how.dry_run, SealedDirs::OpenUp), watch, protected)
        .map_err(|e| Error::os(Op::Open, path, e))
}

/// Takes one tree away.
fn tree(
    dir: &Dir,
    name: Name<'_>,
    shown: PathBuf,
    (jobs, dry_run, sealed): (usize, bool, SealedDirs),
    watch: Watch<'_>,
    protected: Protected,
) -> io::Result<Summary> {
    let base = Arc::new(Base { dir: Arc::new(dir.try_clone()?), shown });
    let pool = Pool::new(jobs);
    pool.push(RemoveTask::Name(base, name.to_owned()));
    let request = RemoveRequest {
        paths: Vec::new(),
        recursive: true,
        empty_dirs: true,
        force: true,
        ask: false,
        one_file_system: true,
        dry_run,
        jobs,
    };
    Ok(run(&pool, &request, (false, sealed), watch, protected))
}

/// Makes it possible to list a directory that was sealed so that even its owner may not, and to take names out of it. Returns
/// the mode that it is to have again.
pub(crate) fn open_up(dir: &Dir) -> Option<u32> {
    let mode = dir.info().ok()?.mode;
    let lacks = mode & 0o700 != 0o700 && (dir.check_write_here().is_err() || dir.reopen().is_err());
    (lacks && meta::set_mode(dir, mode | 0o700).is_ok()).then_some(mode)
}

/// Keeps the first failure and tells nothing.
#[derive(Default)]
struct First(Mutex<Option<io::Error>>);

impl Front for First {
    fn event(&self, event: Event) {
        if let Event::Failed(e) = event {
            let refused = io::Error::from_raw_os_error(errno::EBUSY);
            lock(&self.0).get_or_insert(e.source.unwrap_or(refused));
        }
    }
    fn ask(&self, _: Question) -> bool {
        true
    }
}

fn run(
    pool: &Pool<RemoveTask>,
    request: &RemoveRequest,
    (ask, sealed): (bool, SealedDirs),
    watch: Watch<'_>,
    protected: Protected,
) -> Summary {
    let run = RemoveRun {
        request,
        ask,
        sealed,
        watch,
        protected,
        handles: Recent::of_at_most(HANDLES_MAX),
        numbers: AtomicU64::new(0),
        narrow: AtomicBool::new(false),
        alone: Mutex::new(()),
        tally: RemoveTally::default(),
    };
    pool.run(
        || RemoveWorker { run: &run, buffer: None, counts: Counts::default(), base: None, turn: None },
        |hands, worker, task| worker.step(hands, task),
    );
    run.tally.summary()
}

/// What a worker takes from the pool.
enum RemoveTask {
    /// A path as it was given.
    Operand(PathBuf),
    /// A name in a directory that is open.
    Name(Arc<Base>, NameBuf),
    /// Subdirectories of one directory: the first is done, the rest put back for the other workers.
    Dirs(Arc<DirNode>, PendingNames),
    /// Files of one directory.
    Files(Arc<DirNode>, PendingNames),
    /// A directory that was not empty in the end.
    Again(Arc<DirNode>),
}

/// Names in one allocation, each after a byte that says what it is and before a NUL.
#[derive(Default)]
struct PendingNames {
    bytes: Vec<u8>,
    at: usize,
    left: usize,
}

impl PendingNames {
    fn push(&mut self, name: Name<'_>, kind: Kind) {
        self.bytes.push(if kind == Kind::File { b'f' } else { b'o' });
        self.bytes.extend_from_slice(name.c_str().to_bytes_with_nul());
        self.left += 1;
    }

    /// The next name, and whether it was a regular file.
    fn next(&mut self) -> Option<(Name<'_>, bool)> {
        let (kind, rest) = self.bytes.get(self.at..)?.split_first()?;
        let name = CStr::from_bytes_until_nul(rest).ok()?;
        self.at += name.to_bytes_with_nul().len() + 1;
        self.left -= 1;
        Some((Name::new(name)?, *kind == b'f'))
    }
}

/// The directory in which an operand stands.
struct Base {
    dir: Arc<Dir>,
    /// The operand as it was given.
    shown: PathBuf,
}

/// What stands above a directory.
#[derive(Clone)]
enum Up {
    Base(Arc<Base>),
    Node(Arc<DirNode>),
}

/// A directory below which work is going on.
struct DirNode {
    /// `None` only while being dropped.
    up: Option<Up>,
    name: NameBuf,
    id: (u64, u64),
    /// The listing, subdirectories and batches of files that are not finished. Who brings it to 0 owns the end.
    pending: AtomicUsize,
    /// Something in it has to stay, so it stays too.
    incomplete: AtomicBool,
    /// How often it was listed again.
    rounds: AtomicU32,
    /// Under which its open handle is kept, while it is.
    number: u64,
    /// The mode that it has again if it stays, where it was opened up.
    was: Option<u32>,
}

impl DirNode {
    fn path(&self) -> PathBuf {
        let mut names = Vec::new();
        let mut here = self;
        let base = loop {
            match &here.up {
                Some(Up::Node(up)) => {
                    names.push(here.name.bytes());
                    here = up;
                }
                Some(Up::Base(base)) => break base.shown.as_os_str(),
                None => break OsStr::new(""),
            }
        };
        let mut bytes = base.as_bytes().to_vec();
        for name in names.into_iter().rev() {
            add_name(&mut bytes, name);
        }
        PathBuf::from(std::ffi::OsString::from_vec(bytes))
    }

    fn child_path(&self, name: &[u8]) -> PathBuf {
        let mut bytes = self.path().into_os_string().into_vec();
        add_name(&mut bytes, name);
        PathBuf::from(std::ffi::OsString::from_vec(bytes))
    }

    fn mark_incomplete(&self) {
        self.incomplete.store(true, Ordering::Release);
    }
}

/// By hand, as the chain of parents may be longer than any stack.
impl Drop for DirNode {
    fn drop(&mut self) {
        let mut up = self.up.take();
        while let Some(Up::Node(node)) = up {
            up = Arc::into_inner(node).and_then(|mut node| node.up.take());
        }
    }
}

fn add_name(path: &mut Vec<u8>, name: &[u8]) {
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

impl Up {
    /// The path of `name` in it.
    fn child_path(&self, name: &[u8]) -> PathBuf {
        match self {
            Up::Base(base) => base.shown.clone(),
            Up::Node(node) => node.child_path(name),
        }
    }

    /// Something in it has to stay.
    fn mark_incomplete(&self) {
        if let Up::Node(node) = self {
            node.mark_incomplete();
        }
    }
}

/// What all workers share.
struct RemoveRun<'r> {
    request: &'r RemoveRequest,
    ask: bool,
    sealed: SealedDirs,
    watch: Watch<'r>,
    protected: Protected,
    /// Of directories that wait for their children.
    handles: Recent<Dir>,
    numbers: AtomicU64,
    /// The process ran out of descriptors: one task at a time from here on.
    narrow: AtomicBool,
    alone: Mutex<()>,
    tally: RemoveTally,
}

/// What was done, in all.
#[derive(Default)]
struct RemoveTally {
    files: AtomicU64,
    dirs: AtomicU64,
    others: AtomicU64,
    kept: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicBool,
    codes: Mutex<Vec<Code>>,
}

impl RemoveTally {
    fn summary(self) -> Summary {
        Summary {
            files: self.files.into_inner(),
            dirs: self.dirs.into_inner(),
            others: self.others.into_inner(),
            kept: self.kept.into_inner(),
            failed: self.failed.into_inner(),
            codes: self.codes.into_inner().unwrap_or_else(PoisonError::into_inner),
            cancelled: self.cancelled.into_inner(),
            ..Summary::default()
        }
    }
}

/// What one worker did since it last told.
#[derive(Default)]
struct Counts {
    found: u64,
    files: u64,
    dirs: u64,
    others: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is(e: &io::Error, numbers: &[i32]) -> bool {
    e.raw_os_error().is_some_and(|n| numbers.contains(&n))
}

impl RemoveRun<'_> {
    fn fail(&self, error: Error) {
        self.tally.failed.fetch_add(1, Ordering::Relaxed);
        let mut codes = lock(&self.tally.codes);
        note(&mut codes, error.code);
        drop(codes);
        self.watch.front.event(Event::Failed(error));
    }

    /// Whether to stop; says so in the summary as well, because who asks has something left to do.
    fn cancelled(&self) -> bool {
        let cancelled = self.watch.cancel.is_set();
        if cancelled {
            self.tally.cancelled.store(true, Ordering::Relaxed);
        }
        cancelled
    }

    /// `false` is no, and that is counted.
    fn asked(&self, question: Question) -> bool {
        let yes = self.watch.front.ask(question);
        if !yes {
            self.tally.kept.fetch_add(1, Ordering::Relaxed);
        }
        yes
    }

    fn opens_up(&self) -> bool {
        self.sealed == SealedDirs::OpenUp && !self.request.dry_run
    }

    /// Opens up what may be removed, where this run does that; `unreadable` is why it could not be opened for listing.
    ///
    /// # Errors
    /// It cannot be listed.
    fn unseal(&self, dir: Dir, unreadable: Option<io::Error>) -> io::Result<(Dir, Option<u32>)> {
        let was = if self.opens_up() { open_up(&dir) } else { None };
        match unreadable {
            None => Ok((dir, was)),
            Some(_) if was.is_some() => Ok((dir.reopen()?, was)),
            Some(e) => Err(e),
        }
    }

    /// An open handle of `node`: the one that is kept, or else by `below`'s `..`, or else down from the nearest
    /// directory above that has one. However it is found, it is the very directory that was listed, or an error.
    fn reach(&self, node: &Arc<DirNode>, below: Option<&Dir>) -> io::Result<Arc<Dir>> {
        if let Some(dir) = self.handles.get(node.number) {
            return Ok(dir);
        }
        if let Some(below) = below {
            match below.parent() {
                Ok(dir) if dir.info()?.id() == node.id => {
                    let dir = Arc::new(dir);
                    self.handles.keep(node.number, &dir);
                    return Ok(dir);
                }
                Err(e) if is(&e, &[errno::EMFILE, errno::ENFILE]) => return Err(e),
                // Moved away, or `..` may not be searched: the way down is another one.
                Ok(_) | Err(_) => {}
            }
        }
        let mut way = vec![node];
        let mut top = node;
        let mut here = loop {
            match &top.up {
                Some(Up::Node(up)) => {
                    if let Some(dir) = self.handles.get(up.number) {
                        break dir;
                    }
                    way.push(up);
                    top = up;
                }
                Some(Up::Base(base)) => break base.dir.clone(),
                None => return Err(io::Error::from_raw_os_error(errno::ESTALE)),
            }
        };
        for step in way.into_iter().rev() {
            let next = here.open_dir(step.name.as_name())?;
            if next.info()?.id() != step.id {
                return Err(io::Error::from_raw_os_error(errno::ESTALE));
            }
            here = Arc::new(next);
        }
        self.handles.keep(node.number, &here);
        Ok(here)
    }

    fn reach_up(&self, up: &Up, below: Option<&Dir>) -> io::Result<Arc<Dir>> {
        match up {
            Up::Base(base) => Ok(base.dir.clone()),
            Up::Node(node) => self.reach(node, below),
        }
    }
}

/// What one thread keeps for itself.
struct RemoveWorker<'r> {
    run: &'r RemoveRun<'r>,
    /// Taken while a directory is listed; made for the first.
    buffer: Option<ListBuffer>,
    counts: Counts,
    /// The directory of the last operand: the next one often stands in the same.
    base: Option<(Vec<u8>, Arc<Dir>)>,
    /// Held while no other task may run.
    turn: Option<MutexGuard<'r, ()>>,
}

/// How an attempt to remove a file went.
enum Unlinked {
    Done,
    Stays,
    IsDirectory,
}

impl<'r> RemoveWorker<'r> {
    fn step(&mut self, hands: &Hands<'_, RemoveTask>, task: RemoveTask) {
        if self.run.narrow.load(Ordering::Relaxed) {
            self.turn = Some(lock(&self.run.alone));
        }
        match task {
            RemoveTask::Operand(path) => {
                if !self.run.cancelled() {
                    self.operand(hands, path);
                }
            }
            RemoveTask::Name(base, name) => self.name(hands, base, name, false),
            RemoveTask::Dirs(node, names) => self.subdirectory(hands, node, names),
            RemoveTask::Files(node, names) => self.files(hands, node, names),
            RemoveTask::Again(node) => self.again(hands, node),
        }
        self.tell();
        self.turn = None;
    }

    /// Adds what was counted to what all see.
    fn tell(&mut self) {
        let Counts { found, files, dirs, others } = std::mem::take(&mut self.counts);
        let (progress, tally) = (self.run.watch.progress, &self.run.tally);
        progress.items_found.fetch_add(found, Ordering::Relaxed);
        progress.items_done.fetch_add(files + dirs + others, Ordering::Relaxed);
        tally.files.fetch_add(files, Ordering::Relaxed);
        tally.dirs.fetch_add(dirs, Ordering::Relaxed);
        tally.others.fetch_add(others, Ordering::Relaxed);
    }

    /// Tries `call` again, with fewer handles kept and finally with no other task running, while the process is out
    /// of descriptors. `call` must hold none of its own between two attempts.
    fn patiently<T>(&mut self, mut call: impl FnMut(&RemoveRun<'r>) -> io::Result<T>) -> io::Result<T> {
        let mut waits = 0;
        loop {
            match call(self.run) {
                Err(e) if is(&e, &[errno::EMFILE, errno::ENFILE]) && waits < DESCRIPTOR_WAITS_MAX => {
                    self.run.narrow.store(true, Ordering::Relaxed);
                    self.run.handles.limit(if waits < HANDLES_FEW as u32 { HANDLES_FEW } else { 0 });
                    self.base = None;
                    if self.turn.is_none() {
                        self.turn = Some(lock(&self.run.alone));
                    } else if waits > 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    waits += 1;
                }
                other => return other,
            }
        }
    }

    // ---- operands

    fn operand(&mut self, hands: &Hands<'_, RemoveTask>, path: PathBuf) {
        self.counts.found += 1;
        let run = self.run;
        let split = Operand::split(path.as_os_str().as_bytes());
        let refusal = match split.name {
            b"" if split.slash => Some(Reason::IsRoot),
            b"." | b".." => Some(Reason::IsDots),
            _ => None,
        };
        if let Some(why) = refusal {
            return run.fail(Error::ours(Code::Refused, Op::Remove, &path, why));
        }
        let Some(name) = NameBuf::new(split.name) else {
            // Empty, or with a NUL inside, which no argument has.
            return self.missing(&path, io::Error::from_raw_os_error(errno::ENOENT));
        };
        match self.base_dir(split.parent) {
            Ok(dir) => {
                let slash = split.slash;
                self.name(hands, Arc::new(Base { dir, shown: path.clone() }), name, slash);
            }
            Err(e) => self.missing(&path, e),
        }
    }

    /// An operand that is not there, which `-f` allows, or cannot be removed.
    fn missing(&self, path: &Path, e: io::Error) {
        if !(self.run.request.force && is(&e, &[errno::ENOENT, errno::ENOTDIR])) {
            self.run.fail(Error::os(Op::Remove, path, e));
        }
    }

    /// One name in a directory that is open. `slash`: only a directory will do.
    fn name(&mut self, hands: &Hands<'_, RemoveTask>, base: Arc<Base>, name: NameBuf, slash: bool) {
        let run = self.run;
        let info = match base.dir.stat(name.as_name()) {
            Ok(info) => info,
            Err(e) => return self.missing(&base.shown, e),
        };
        if info.kind == Kind::Dir {
            return self.directory_operand(hands, base, name);
        }
        let (dir, path) = (&base.dir, &base.shown);
        if slash {
            // A slash asks for what the link points to, and that is not what is removed here.
            let not_a_directory = io::Error::from_raw_os_error(errno::ENOTDIR);
            if info.kind != Kind::Link {
                return self.missing(path, not_a_directory);
            }
            let target = dir.open_dir_following(name.as_name()).and_then(|d| d.info());
            return match target.ok().and_then(|t| run.protected.reason(t.id())) {
                Some(why) => run.fail(Error::ours(Code::Refused, Op::Remove, path, why)),
                None => run.fail(Error::os(Op::Remove, path, not_a_directory)),
            };
        }
        if run.ask && !run.asked(Question::Remove(path.clone())) {
            return;
        }
        if !run.request.dry_run
            && let Err(e) = dir.remove_file(name.as_name())
        {
            return self.missing(path, e);
        }
        self.removed(info.kind == Kind::File, || path.clone());
    }

    /// The directory an operand stands in, with links followed as the person who typed it expects.
    fn base_dir(&mut self, path: &[u8]) -> io::Result<Arc<Dir>> {
        if let Some((last, dir)) = &self.base
            && last == path
        {
            return Ok(dir.clone());
        }
        let dir = Arc::new(self.patiently(|_| open_long(path))?);
        self.base = Some((path.to_vec(), dir.clone()));
        Ok(dir)
    }

    fn directory_operand(&mut self, hands: &Hands<'_, RemoveTask>, base: Arc<Base>, name: NameBuf) {
        let run = self.run;
        let request = run.request;
        let opened = self.patiently(|_| {
            let (dir, unreadable) = open_any(&base.dir, name.as_name())?;
            let place = Place::of(&dir)?;
            Ok((dir, unreadable, place))
        });
        let (dir, unreadable, place) = match opened {
            Ok(opened) => opened,
            Err(e) if request.force && is(&e, &[errno::ENOENT]) => return,
            Err(e) => return run.fail(Error::os(Op::Open, &base.shown, e)),
        };
        if let Some(why) = run.protected.reason(place.id()) {
            return run.fail(Error::ours(Code::Refused, Op::Remove, &base.shown, why));
        }
        if request.one_file_system {
            let mounted = match place.mount_root {
                Some(mounted) => Ok(mounted),
                None => base.dir.info().map(|above| above.dev != place.dev),
            };
            match mounted {
                Ok(false) => {}
                Ok(true) => {
                    return run.fail(Error::ours(Code::Refused, Op::Remove, &base.shown, MOUNT_POINT));
                }
                Err(e) => return run.fail(Error::os(Op::Stat, &base.shown, e)),
            }
        }
        if request.recursive {
            return match run.unseal(dir, unreadable) {
                Ok(opened) => self.directory(hands, Up::Base(base), name, opened, place.id()),
                Err(e) => {
                    if let Some(error) = self.not_entered(&Up::Base(base), name.as_name(), e) {
                        run.fail(error);
                    }
                }
            };
        }
        if !request.empty_dirs {
            return run.fail(Error::ours(Code::IsDirectory, Op::Remove, &base.shown, Reason::IsDirectory));
        }
        if run.ask && !run.asked(Question::Remove(base.shown.clone())) {
            return;
        }
        let outcome = if request.dry_run { self.is_empty(&dir) } else { base.dir.remove_dir(name.as_name()) };
        match outcome {
            Ok(()) => self.removed_dir(|| base.shown.clone()),
            Err(e) if request.force && is(&e, &[errno::ENOENT]) => {}
            Err(e) => run.fail(Error::os(Op::Remove, &base.shown, e)),
        }
    }

    /// What `rmdir` would say.
    fn is_empty(&mut self, dir: &Dir) -> io::Result<()> {
        let mut empty = true;
        dir.list(self.buffer.get_or_insert_default(), |_| {
            empty = false;
            false
        })?;
        if empty { Ok(()) } else { Err(io::Error::from_raw_os_error(errno::ENOTEMPTY)) }
    }

    // ---- directories

    /// One of `names`; the others are put back first, for workers that are free.
    fn subdirectory(&mut self, hands: &Hands<'_, RemoveTask>, node: Arc<DirNode>, mut names: PendingNames) {
        if self.run.cancelled() {
            node.mark_incomplete();
            // All but one at once, and the last by the usual way.
            node.pending.fetch_sub(names.left.saturating_sub(1), Ordering::AcqRel);
            return self.finish(hands, node, None);
        }
        let Some(name) = names.next().map(|(name, _)| name.to_owned()) else { return };
        if names.left > 0 {
            hands.push(RemoveTask::Dirs(node.clone(), names));
        }
        self.enter(hands, node, name);
    }

    /// Opens one subdirectory, looks whether it may be entered, and works through it.
    fn enter(&mut self, hands: &Hands<'_, RemoveTask>, parent: Arc<DirNode>, name: NameBuf) {
        let run = self.run;
        let opened = self.patiently(|run| {
            let above = run.reach(&parent, None)?;
            let (dir, unreadable) = match run.opens_up() {
                true => open_any(&above, name.as_name())?,
                false => (above.open_dir_readable(name.as_name())?, None),
            };
            let place = Place::of(&dir)?;
            Ok((dir, unreadable, place))
        });
        let error = match opened {
            Ok((dir, unreadable, place)) => {
                let refusal = match run.protected.reason(place.id()) {
                    Some(why) => Some(why),
                    None if !run.request.one_file_system => None,
                    None => beyond(&place, parent.id.0),
                };
                match refusal {
                    None => match run.unseal(dir, unreadable) {
                        Ok(dir) => return self.directory(hands, Up::Node(parent), name, dir, place.id()),
                        Err(e) => self.not_entered(&Up::Node(parent.clone()), name.as_name(), e),
                    },
                    Some(why) => {
                        Some(Error::ours(Code::Refused, Op::Remove, parent.child_path(name.bytes()), why))
                    }
                }
            }
            Err(e) => self.not_entered(&Up::Node(parent.clone()), name.as_name(), e),
        };
        if let Some(error) = error {
            run.fail(error);
            parent.mark_incomplete();
        }
        self.finish(hands, parent, None);
    }

    /// A directory that could not be opened may be gone, may be empty (then no permission to read it is needed), or
    /// may have been exchanged for something that is no directory.
    fn not_entered(&mut self, parent: &Up, name: Name<'_>, opening: io::Error) -> Option<Error> {
        let run = self.run;
        let path = || parent.child_path(name.bytes());
        let exchanged = is(&opening, &[errno::ENOTDIR, errno::ELOOP]);
        if is(&opening, &[errno::ENOENT]) {
            return None;
        }
        let is_closed = is(&opening, &[errno::EACCES]);
        if run.request.dry_run && is_closed {
            let note = Some(Reason::ClosedMayBeEmpty.into());
            return Some(Error { note, ..Error::os(Op::Open, path(), opening) });
        }
        if run.request.dry_run || !(exchanged || is_closed) {
            return Some(Error::os(Op::Open, path(), opening));
        }
        if run.ask && !run.asked(Question::Remove(path())) {
            parent.mark_incomplete();
            return None;
        }
        let removal = self.patiently(|run| {
            let dir = run.reach_up(parent, None)?;
            if exchanged { dir.remove_file(name) } else { dir.remove_dir(name) }
        });
        match removal {
            Ok(()) if exchanged => self.removed(false, path),
            Ok(()) => self.removed_dir(path),
            Err(e) if is(&e, &[errno::ENOENT]) => {}
            Err(_) => return Some(Error::os(Op::Open, path(), opening)),
        }
        None
    }

    /// Works through an open directory that may be removed with what is in it, and had another mode if it was opened up.
    fn directory(
        &mut self,
        hands: &Hands<'_, RemoveTask>,
        up: Up,
        name: NameBuf,
        (dir, was): (Dir, Option<u32>),
        id: (u64, u64),
    ) {
        let node = Arc::new(DirNode {
            up: Some(up),
            name,
            id,
            pending: AtomicUsize::new(1),
            incomplete: AtomicBool::new(false),
            rounds: AtomicU32::new(0),
            number: self.run.numbers.fetch_add(1, Ordering::Relaxed),
            was,
        });
        self.list(hands, &node, Arc::new(dir));
    }

    /// Removes the files while listing, leaves the subdirectories as a task, and finishes what is finished.
    fn list(&mut self, hands: &Hands<'_, RemoveTask>, node: &Arc<DirNode>, dir: Arc<Dir>) {
        let run = self.run;
        let mut buffer = self.buffer.take().unwrap_or_default();
        let mut dirs = PendingNames::default();
        let mut batch: Option<PendingNames> = None;
        let mut seen = 0u64;
        let listed = dir.list(&mut buffer, |entry| {
            if run.cancelled() {
                node.mark_incomplete();
                return false;
            }
            if seen == 0 && run.ask && !run.asked(Question::Descend(node.path())) {
                node.mark_incomplete();
                return false;
            }
            seen += 1;
            if seen.is_multiple_of(NAMES_PER_LOOK) && batch.is_none() && hands.hungry() {
                run.handles.keep(node.number, &dir);
                if dirs.left > 0 {
                    leave(hands, node, RemoveTask::Dirs, std::mem::take(&mut dirs));
                } else {
                    batch = Some(PendingNames::default());
                }
                self.tell();
            }
            self.counts.found += 1;
            let kind = match entry.kind {
                Some(kind) => kind,
                None => match dir.stat(entry.name) {
                    Ok(info) => info.kind,
                    Err(e) if is(&e, &[errno::ENOENT]) => return true,
                    Err(e) => {
                        run.fail(Error::os(Op::Stat, node.child_path(entry.name.bytes()), e));
                        node.mark_incomplete();
                        return true;
                    }
                },
            };
            if kind == Kind::Dir {
                dirs.push(entry.name, kind);
            } else if let Some(names) = &mut batch {
                names.push(entry.name, kind);
                if names.left == BATCH_NAMES_MAX
                    && let Some(names) = batch.take()
                {
                    leave(hands, node, RemoveTask::Files, names);
                }
            } else if let Unlinked::IsDirectory = self.unlink(node, &dir, entry.name, kind == Kind::File) {
                dirs.push(entry.name, Kind::Dir);
            }
            true
        });
        self.buffer = Some(buffer);
        match listed {
            Ok(()) => {}
            // Another process removed it meanwhile: there is nothing left to list.
            Err(e) if is(&e, &[errno::ENOENT]) => {}
            Err(e) => {
                run.fail(Error::os(Op::List, node.path(), e));
                node.mark_incomplete();
            }
        }
        if dirs.left > 0 {
            run.handles.keep(node.number, &dir);
            leave(hands, node, RemoveTask::Dirs, dirs);
        }
        match batch {
            Some(names) => {
                drop(dir);
                self.files(hands, node.clone(), names);
            }
            None => self.finish(hands, node.clone(), Some(dir)),
        }
    }

    /// Once more through a directory that was not empty in the end.
    fn again(&mut self, hands: &Hands<'_, RemoveTask>, node: Arc<DirNode>) {
        match self.patiently(|run| run.reach(&node, None)?.reopen()) {
            Ok(dir) => self.list(hands, &node, Arc::new(dir)),
            Err(e) => {
                if !is(&e, &[errno::ENOENT]) {
                    self.run.fail(Error::os(Op::Open, node.path(), e));
                }
                node.mark_incomplete();
                self.finish(hands, node, None);
            }
        }
    }

    /// Ends one thing in `node`: when it was the last, removes the directory, and so on upward. `dir` is a handle of
    /// `node`, by which its parent can be found.
    fn finish(&mut self, hands: &Hands<'_, RemoveTask>, mut node: Arc<DirNode>, mut dir: Option<Arc<Dir>>) {
        loop {
            if node.pending.fetch_sub(1, Ordering::AcqRel) != 1 {
                return;
            }
            let own = self.run.handles.take(node.number).or(dir.take());
            let mut incomplete = node.incomplete.load(Ordering::Acquire);
            if !incomplete {
                match self.remove_directory(hands, &node, own) {
                    Removed::Gone => {}
                    Removed::Stays => incomplete = true,
                    Removed::Later => return,
                }
            }
            if incomplete {
                self.close_again(&node);
            }
            let Some(Up::Node(up)) = node.up.clone() else { return };
            if incomplete {
                up.mark_incomplete();
            }
            node = up;
        }
    }

    /// A directory that stays is as it was.
    fn close_again(&mut self, node: &Arc<DirNode>) {
        let Some(mode) = node.was else { return };
        if let Err(e) = self.patiently(|run| meta::set_mode(&*run.reach(node, None)?, mode)) {
            self.run.fail(Error::os(Op::SetModeOf, node.path(), e));
        }
    }

    fn remove_directory(
        &mut self,
        hands: &Hands<'_, RemoveTask>,
        node: &Arc<DirNode>,
        mut own: Option<Arc<Dir>>,
    ) -> Removed {
        let run = self.run;
        let Some(up) = &node.up else { return Removed::Stays };
        if run.cancelled() || run.ask && !run.asked(Question::Remove(node.path())) {
            return Removed::Stays;
        }
        if run.request.dry_run {
            self.removed_dir(|| node.path());
            return Removed::Gone;
        }
        let outcome = self.patiently(|run| {
            // The handle is used for one attempt only: when descriptors are short, it must not be held while waiting.
            let above = run.reach_up(up, own.take().as_deref())?;
            above.remove_dir(node.name.as_name())
        });
        match outcome {
            Ok(()) => {
                self.removed_dir(|| node.path());
                Removed::Gone
            }
            Err(e) if is(&e, &[errno::ENOENT]) => Removed::Gone,
            Err(e)
                if is(&e, &[errno::ENOTEMPTY, errno::EEXIST])
                    && !run.ask
                    && node.rounds.fetch_add(1, Ordering::Relaxed) < ROUNDS_MAX =>
            {
                // Entries came, or the listing passed some over.
                node.pending.store(1, Ordering::Release);
                hands.push(RemoveTask::Again(node.clone()));
                Removed::Later
            }
            Err(e) => {
                run.fail(Error::os(Op::Remove, node.path(), e));
                Removed::Stays
            }
        }
    }

    // ---- files

    /// A batch that was left by the worker that lists the directory.
    fn files(&mut self, hands: &Hands<'_, RemoveTask>, node: Arc<DirNode>, mut names: PendingNames) {
        let run = self.run;
        let mut dirs = PendingNames::default();
        match self.patiently(|run| run.reach(&node, None)) {
            Ok(dir) => {
                while let Some((name, file)) = names.next() {
                    if run.cancelled() {
                        node.mark_incomplete();
                        break;
                    }
                    if let Unlinked::IsDirectory = self.unlink(&node, &dir, name, file) {
                        dirs.push(name, Kind::Dir);
                    }
                }
            }
            Err(e) => {
                run.fail(Error::os(Op::Open, node.path(), e));
                node.mark_incomplete();
            }
        }
        if dirs.left > 0 {
            leave(hands, &node, RemoveTask::Dirs, dirs);
        }
        self.finish(hands, node, None);
    }

    /// Removes one name that is no directory, as far as is known.
    fn unlink(&mut self, node: &DirNode, dir: &Dir, name: Name<'_>, file: bool) -> Unlinked {
        let run = self.run;
        if run.ask && !run.asked(Question::Remove(node.child_path(name.bytes()))) {
            node.mark_incomplete();
            return Unlinked::Stays;
        }
        if !run.request.dry_run
            && let Err(e) = dir.remove_file(name)
        {
            if is(&e, &[errno::ENOENT]) {
                return Unlinked::Done;
            }
            if is(&e, &[errno::EISDIR]) {
                return Unlinked::IsDirectory;
            }
            run.fail(Error::os(Op::Remove, node.child_path(name.bytes()), e));
            node.mark_incomplete();
            return Unlinked::Stays;
        }
        self.removed(file, || node.child_path(name.bytes()));
        Unlinked::Done
    }

    fn removed(&mut self, file: bool, path: impl Fn() -> PathBuf) {
        *(if file { &mut self.counts.files } else { &mut self.counts.others }) += 1;
        self.item(path);
    }

    fn removed_dir(&mut self, path: impl Fn() -> PathBuf) {
        self.counts.dirs += 1;
        self.item(path);
    }

    fn item(&self, path: impl Fn() -> PathBuf) {
        if self.run.watch.items {
            let event = Event::Item { action: Action::Removed, src: PathBuf::new(), dst: path(), bytes: 0 };
            self.run.watch.front.event(event);
        }
    }
}

const MOUNT_POINT: Reason = Reason::IsMountPoint;

/// What became of a directory at its end.
enum Removed {
    Gone,
    Stays,
    /// It goes through the pool once more.
    Later,
}

/// Leaves work for others in `node`.
fn leave(
    hands: &Hands<'_, RemoveTask>,
    node: &Arc<DirNode>,
    task: impl FnOnce(Arc<DirNode>, PendingNames) -> RemoveTask,
    names: PendingNames,
) {
    let task = task(node.clone(), names);
    // One for every subdirectory, as each is finished by itself; one for a batch of files.
    let count = if let RemoveTask::Dirs(_, names) = &task { names.left } else { 1 };
    node.pending.fetch_add(count, Ordering::AcqRel);
    hands.push(task);
}

/// Opens a directory, also one that may not be listed, and says why it may not: that is enough to know what it is.
fn open_any(above: &Dir, name: Name<'_>) -> io::Result<(Dir, Option<io::Error>)> {
    match above.open_dir_readable(name) {
        Ok(dir) => Ok((dir, None)),
        Err(e) if is(&e, &[errno::EACCES]) => Ok((above.open_dir(name)?, Some(e))),
        Err(e) => Err(e),
    }
}

/// Opens a directory by a path of any length.
fn open_long(path: &[u8]) -> io::Result<Dir> {
    if path.len() <= PATH_BYTES_MAX {
        return Dir::open(Path::new(OsStr::from_bytes(path)));
    }
    let mut here = Dir::open(Path::new(if path.first() == Some(&b'/') { "/" } else { "." }))?;
    for part in path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".") {
        here = match NameBuf::new(part) {
            Some(name) => here.open_dir_following(name.as_name())?,
            None if part == b".." => here.parent()?,
            None => return Err(io::Error::from_raw_os_error(errno::ENOENT)),
        };
    }
    Ok(here)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "trees are made by path")]
mod tests {
    use super::*;

    /// A stage may be as deep as any source is, and a link in it leads to what is not ours.
    #[test]
    fn what_is_below_a_name_goes_however_deep_and_nothing_else() {
        let tmp = tempfile::tempdir().unwrap();
        let top = Dir::open(tmp.path()).unwrap();
        let name = |text: &str| NameBuf::new(text.as_bytes()).unwrap();
        std::fs::write(tmp.path().join("kept"), "kept").unwrap();
        std::fs::create_dir(tmp.path().join("other")).unwrap();
        std::fs::write(tmp.path().join("other/kept"), "kept").unwrap();
        top.make_dir(name("stage").as_name(), 0o700).unwrap();
        let mut here = top.open_dir(name("stage").as_name()).unwrap();
        here.make_link(c"../other", name("link").as_name()).unwrap();
        for _ in 0..1000 {
            drop(here.create_file(name("file").as_name(), 0o600).unwrap());
            here.make_dir(name("d").as_name(), 0o700).unwrap();
            here = here.open_dir(name("d").as_name()).unwrap();
        }
        drop(here);
        for stage in ["stage", "stage", "absent"] {
            below(&top, name(stage).as_name()).unwrap();
            assert_eq!(std::fs::read(tmp.path().join("other/kept")).unwrap(), b"kept");
        }
        below(&top, name("other").as_name()).unwrap();
        let mut left = std::fs::read_dir(tmp.path()).unwrap();
        assert_eq!(left.next().unwrap().unwrap().file_name(), "kept");
        assert!(left.next().is_none());
    }
}
