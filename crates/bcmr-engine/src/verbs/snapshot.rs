//! `sync --snapshot`: dated trees below one directory, each complete or absent. What is the same as in the last one becomes a hard
//! link to that. What is around the run that fills a tree is here for every such run, from this machine and over a wire.
//!
//! Must not know how a tree is brought up to date, nor which moments stay: those are `sync` and `thin`. What is taken away is a
//! tree that is known by its inode as one that was made here.

use crate::calendar::Stamp;
use crate::disk::Dirs;
use crate::disk::sys::Sys;
use crate::error::{Code, Error, Note, Op, Reason, Result};
use crate::event::{Action, Cancel, Event, Summary, Watch};
use crate::policy::{
    CopyPolicy, Dated, DeleteMax, Durability, Mirror, SnapshotRequest, SyncRequest, Target, Thinning,
};
use crate::receiver::aside::move_whole;
use crate::receiver::{land, tree};
use crate::remove::{self, SealedDirs};
use crate::tally::Tally;
use crate::verbs::going::GoingSnapshots;
use crate::verbs::operands::{self, DestLink, Reach, Where};
use crate::verbs::sync::mounted::{Holder, Mounted};
use crate::verbs::sync::{OfSnapshot, sync_of};
use crate::verbs::thin;
use fastcopy::dir::{Dir, ListBuffer, Lock, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What holds all that is not a snapshot yet or any more, and what is known of each.
const BOOKS: &str = ".bcmr-snapshots";
/// The tree that is being made.
const UNFINISHED: &str = "unfinished";
/// What it is known by while it is made.
const UNFINISHED_BOOK: &str = "unfinished.book";
/// What a tree that is taken away is called first.
const GOING: &str = "going-";
const BOOK_HEAD: &str = "bcmr snapshot 1";

/// Makes a snapshot, and takes away what the rule of thinning says.
///
/// # Errors
/// Only when nothing could be begun. What happens to single items is told through `watch` and counted in the [`Summary`].
pub fn snapshot(request: SnapshotRequest, watch: Watch<'_>) -> Result<Summary> {
    let SnapshotRequest { sync: wanted, dated } = request;
    let source = Dir::open(&wanted.source).map_err(|e| match Code::of(&e) {
        Code::NotDirectory => {
            Error::ours(Code::NotDirectory, Op::Open, &wanted.source, Reason::SourceIsNoDirectory)
        }
        _ => Error::os(Op::OpenDirectory, &wanted.source, e),
    })?;
    let (reach, links, shelf) = (Reach::Anywhere, DestLink::Through, wanted.dest.clone());
    let holder = Holder::Here(&shelf);
    let mounted = Mounted::of(&source, holder, wanted.state.as_deref());
    if wanted.policy.dry_run {
        mounted.guard(&wanted.source)?;
        let (dest, going) = compared_with(&reach, links, &shelf, dated)?;
        let policy = everything(wanted.policy);
        let of = OfSnapshot { tree: None, going };
        return sync_of(SyncRequest { dest, policy, state: None, ..wanted }, of, watch);
    }
    mounted.guard(&wanted.source)?;
    // A run that is refused leaves nothing behind, in the source least of all.
    let info = source.info().map_err(|e| Error::os(Op::Stat, &wanted.source, e))?;
    operands::make_path(&reach, &Target::Exactly(shelf.clone()), 1, &wanted.policy)?;
    let to = operands::dest(None, &info, &operands::contents(&reach, &shelf, links)?, links)?;
    operands::nesting(&reach, &info, true, &to, &wanted.policy, &wanted.source, Op::Copy)?;
    let run = SnapshotRun::begin(&reach, links, &shelf, dated, &wanted.policy)?;
    let policy = run.policy(wanted.policy);
    let (jobs, dest) = (policy.jobs, run.shown());
    let of = OfSnapshot { tree: Some(run.place()?), going: None };
    let mut summary = sync_of(SyncRequest { dest, policy, state: None, ..wanted }, of, watch)?;
    let tally = Tally::new(watch);
    let finished = run.finish(&summary, jobs, &tally);
    if finished != SnapshotEnd::Absent
        && let Err(e) = mounted.remember(holder)
    {
        watch.front.event(Event::Warning(e));
    }
    summary.add(finished.counted(&tally));
    Ok(summary)
}

/// What is there in a new tree is what the source has, and nothing else: what an earlier attempt has left in it goes.
pub(crate) fn everything(policy: CopyPolicy) -> CopyPolicy {
    CopyPolicy { mirror: Mirror::DeleteExcluded, delete_max: DeleteMax::Entries(u64::MAX), ..policy }
}

/// What a dry run compares the source with: the last snapshot, or, where there is none, something that is not there. And what a
/// run of that moment takes away in the end.
///
/// # Errors
/// The directory that holds them cannot be opened.
pub(crate) fn compared_with(
    reach: &Reach,
    links: DestLink,
    path: &Path,
    dated: Dated,
) -> Result<(PathBuf, Option<Arc<GoingSnapshots>>)> {
    let Some(shelf) = Snapshots::there(reach, links, path)? else {
        let is_there = matches!(operands::contents(reach, path, links)?, Where::Whole(_) | Where::Into(_));
        return Ok((if is_there { path.join(dated.at.to_string()) } else { path.to_owned() }, None));
    };
    let mut all = shelf.all()?;
    let newest = all.last().copied();
    shelf.guard(newest, dated.at)?;
    all.push(dated.at);
    let going = dated.thinning.map(|rule| {
        let going = thin::going(&all, rule);
        Arc::new(GoingSnapshots { dir: shelf.dir, shown: shelf.shown, going })
    });
    Ok((path.join(newest.unwrap_or(dated.at).to_string()), going))
}

/// A snapshot that is being made: what is around the run that fills it, wherever that one's source is.
pub(crate) struct SnapshotRun {
    shelf: Snapshots,
    tree: Dir,
    newest: Option<Stamp>,
    dated: Dated,
}

/// What became of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotEnd {
    /// It has no name.
    Absent,
    /// It has its name, and what was to be taken away was tried.
    Made,
    /// It has its name, and the user stopped the run before all was taken away.
    Stopped,
}

impl SnapshotEnd {
    /// What the end of the run adds to its summary: a signal that comes too late for anything has not cut it short.
    pub(crate) fn counted(self, tally: &Tally<'_>) -> Summary {
        Summary { cancelled: self == SnapshotEnd::Stopped, ..tally.summary() }
    }
}

impl SnapshotRun {
    /// Opens the directory `path`, which holds snapshots, holds it against other runs, and makes the tree that is to be filled,
    /// unless an earlier run could not finish one.
    ///
    /// # Errors
    /// It cannot be opened or made, another run holds it, or it has a snapshot of this moment or a later one.
    pub(crate) fn begin(
        reach: &Reach,
        links: DestLink,
        path: &Path,
        dated: Dated,
        policy: &CopyPolicy,
    ) -> Result<SnapshotRun> {
        operands::make_path(reach, &Target::Exactly(path.to_owned()), 1, policy)?;
        let shelf = Snapshots::held(reach, links, path)?;
        let newest = shelf.all()?.pop();
        shelf.guard(newest, dated.at)?;
        let tree = shelf.unfinished()?;
        Ok(SnapshotRun { shelf, tree, newest, dated })
    }

    /// What the tree will be called once it is complete, and is shown as before.
    fn shown(&self) -> PathBuf {
        self.shelf.shown.join(self.dated.at.to_string())
    }

    /// The tree itself, as what the contents of a source go into.
    ///
    /// # Errors
    /// There is no handle left for it.
    pub(crate) fn place(&self) -> Result<Where> {
        let dir = self.tree.try_clone().map_err(|e| Error::os(Op::Open, self.shown(), e))?;
        Ok(Where::Whole(operands::made_place(dir, &self.shown())))
    }

    /// How it is filled: from the last one, where that has the same, and so that what is there by the end is on stable storage.
    pub(crate) fn policy(&self, policy: CopyPolicy) -> CopyPolicy {
        let last = self.newest.map(|stamp| self.shelf.shown.join(stamp.to_string()));
        let bases = last.into_iter().chain(policy.bases.iter().cloned()).collect();
        CopyPolicy { bases, durability: Durability::Medium, ..everything(policy) }
    }

    /// M8: gives the tree its name, if `filled` says that it is complete, and takes older ones away.
    pub(crate) fn finish(&self, filled: &Summary, jobs: usize, tally: &Tally<'_>) -> SnapshotEnd {
        // Attributes that a file system cannot hold, and special files, are no reason to have nothing. What a full or a failing
        // disk has cost, the same command may bring.
        let is_whole = filled.codes.iter().all(|code| matches!(code, Code::MetadataLost | Code::Special));
        if filled.cancelled || !is_whole {
            let note = Reason::SnapshotIncomplete;
            tally.warn(Error::ours(Code::Io, Op::KeepSnapshotIn, &self.shelf.shown, note));
            return SnapshotEnd::Absent;
        }
        let at = self.dated.at;
        let named = self.shelf.guard_empty(&self.tree, self.newest, at);
        if let Err(e) = named.and_then(|()| self.shelf.publish(&self.tree, at)) {
            tally.fail(e);
            return SnapshotEnd::Absent;
        }
        // It is there, whatever cannot be taken away.
        self.shelf.forget_unfinished().unwrap_or_else(|e| tally.fail(e));
        let swept = self.shelf.sweep(|e| tally.fail(e));
        swept.unwrap_or_else(|e| tally.fail(Error::os(Op::CleanUp, self.shelf.shown.join(BOOKS), e)));
        match self.dated.thinning.is_none_or(|rule| self.thin(rule, jobs, tally)) {
            true => SnapshotEnd::Made,
            false => SnapshotEnd::Stopped,
        }
    }

    /// Takes older ones away. Whether all that go were tried.
    fn thin(&self, rule: Thinning, jobs: usize, tally: &Tally<'_>) -> bool {
        let all = match self.shelf.all() {
            Ok(all) => all,
            Err(e) => {
                tally.fail(e);
                return true;
            }
        };
        for stamp in thin::going(&all, rule) {
            if tally.cancelled() {
                return false;
            }
            match self.shelf.take_away(stamp, jobs, tally) {
                Ok(true) => tally
                    .item(Action::Removed, 0, || (PathBuf::new(), self.shelf.shown.join(stamp.to_string()))),
                Ok(false) => return false,
                Err(e) => tally.fail(e),
            }
        }
        true
    }
}

/// The directory of the snapshots, held against other runs.
struct Snapshots {
    dir: Dir,
    books: Dir,
    shown: PathBuf,
}

fn named(text: &str) -> io::Result<NameBuf> {
    NameBuf::new(text.as_bytes()).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

impl Snapshots {
    /// Opens it; `None` where none was made there.
    fn there(reach: &Reach, links: DestLink, path: &Path) -> Result<Option<Snapshots>> {
        let fail = |op| move |e| Error::os(op, path, e);
        let dir = match operands::contents(reach, path, links)? {
            Where::Whole(place) | Where::Into(place) => place.dir.try_clone().map_err(fail(Op::Open))?,
            Where::Name { .. } => return Ok(None),
        };
        let books = match dir.open_dir(named(BOOKS).map_err(fail(Op::Open))?.as_name()) {
            Err(e) if Code::of(&e) == Code::NotFound => return Ok(None),
            opened => opened.map_err(fail(Op::OpenDirectory))?,
        };
        Ok(Some(Snapshots { dir, books, shown: path.to_owned() }))
    }

    /// Makes it where it is not there, opens it, and holds it against other runs.
    fn held(reach: &Reach, links: DestLink, path: &Path) -> Result<Snapshots> {
        let fail = |op| move |e| Error::os(op, path, e);
        let dir = match operands::contents(reach, path, links)? {
            Where::Whole(place) | Where::Into(place) => place.dir.try_clone().map_err(fail(Op::Open))?,
            Where::Name { dir, name, .. } => {
                land::ensure_dir(&dir.dir, name.as_name(), 0o777).map_err(fail(Op::MakeDirectory))?;
                dir.dir.open_dir(name.as_name()).map_err(fail(Op::OpenTarget))?
            }
        };
        let name = named(BOOKS).map_err(fail(Op::Open))?;
        land::ensure_dir(&dir, name.as_name(), 0o700).map_err(fail(Op::MakeDirectory))?;
        let books = dir.open_dir(name.as_name()).map_err(fail(Op::OpenDirectory))?;
        // The lock goes with the handle.
        if books.try_lock() == Lock::Busy {
            return Err(Error::ours(Code::Refused, Op::KeepSnapshotIn, path, Reason::SnapshotRuns));
        }
        let shelf = Snapshots { dir, books, shown: path.to_owned() };
        // What cannot go now is tried once more, and told, in the end: it is no reason to have no new one.
        shelf.sweep(|_| ()).map_err(fail(Op::CleanUp))?;
        Ok(shelf)
    }

    fn fail<'s>(&'s self, op: Op, what: &'s str) -> impl Fn(io::Error) -> Error + 's {
        move |e| Error::os(op, self.shown.join(what), e)
    }

    /// Names in a directory.
    fn listed(dir: &Dir) -> io::Result<Vec<NameBuf>> {
        let mut names = Vec::new();
        dir.reopen()?.list(&mut ListBuffer::new(), |entry| {
            names.push(entry.name.to_owned());
            true
        })?;
        Ok(names)
    }

    /// What a run that was killed while it took trees away has left of them goes. What cannot go is told to `stays`.
    ///
    /// # Errors
    /// It cannot be listed.
    fn sweep(&self, mut stays: impl FnMut(Error)) -> io::Result<()> {
        for name in Snapshots::listed(&self.books)? {
            let Some(going) = name.bytes().strip_prefix(GOING.as_bytes()) else { continue };
            if let Err(e) = self.sweep_one(&name, going) {
                stays(Error::os(
                    Op::CleanUp,
                    self.shown.join(BOOKS).join(crate::node::os(name.as_name())),
                    e,
                ));
            }
        }
        Ok(())
    }

    fn sweep_one(&self, name: &NameBuf, going: &[u8]) -> io::Result<()> {
        // What it was known by goes first, or would stay for ever.
        if let Some(book) = NameBuf::new(going).filter(|_| Stamp::parse(going).is_some())
            && self.dir.look(book.as_name())?.is_none()
        {
            Sys::new().remove_file(&self.books, book.as_name())?;
        }
        remove::below(&self.books, name.as_name())
    }

    /// All that were made here and are there still, the oldest first.
    ///
    /// # Errors
    /// One cannot be looked at: to go on as if it were not there would copy all anew, and miscount what stays.
    fn all(&self) -> Result<Vec<Stamp>> {
        let listed = Snapshots::listed(&self.books).map_err(self.fail(Op::ListDirectory, BOOKS))?;
        let mut all = Vec::new();
        for stamp in listed.iter().filter_map(|name| Stamp::parse(name.bytes())) {
            let text = stamp.to_string();
            if self.opened(stamp).map_err(self.fail(Op::Stat, &text))?.is_some() {
                all.push(stamp);
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    /// The tree of that moment, if it is the very one that was made here.
    fn opened(&self, stamp: Stamp) -> io::Result<Option<Dir>> {
        let name = named(&stamp.to_string())?;
        match self.dir.look(name.as_name())? {
            Some(there) if there.kind == Kind::Dir => {}
            _ => return Ok(None),
        }
        let dir = self.dir.open_dir(name.as_name())?;
        Ok(is_in_book(&self.books, name.as_name(), &dir)?.then_some(dir))
    }

    fn refuse<T>(&self, at: Stamp, why: impl Into<Note>) -> Result<T> {
        Err(Error::ours(Code::Refused, Op::KeepSnapshotIn, self.shown.join(at.to_string()), why))
    }

    /// A moment before the last one, or one that has something, gets none.
    fn guard(&self, newest: Option<Stamp>, at: Stamp) -> Result<()> {
        let fail = |e| Error::os(Op::Stat, self.shown.join(at.to_string()), e);
        let name = named(&at.to_string()).map_err(fail)?;
        if self.dir.look(name.as_name()).map_err(fail)?.is_some() {
            return self.refuse(at, Reason::SnapshotThere);
        }
        match newest {
            Some(newest) if newest >= at => self.refuse(at, Reason::NewerSnapshot.about(newest.to_string())),
            _ => Ok(()),
        }
    }

    /// M1: an empty tree does not follow one that has something.
    fn guard_empty(&self, tree: &Dir, newest: Option<Stamp>, at: Stamp) -> Result<()> {
        let Some(newest) = newest else { return Ok(()) };
        let disk = Sys::new();
        let fail = |e| Error::os(Op::ListDirectory, &self.shown, e);
        if !tree::is_empty(&disk, tree).map_err(fail)? {
            return Ok(());
        }
        let newest = self.opened(newest).map_err(fail)?;
        match newest.map_or(Ok(true), |dir| tree::is_empty(&disk, &dir)).map_err(fail)? {
            true => Ok(()),
            false => self.refuse(at, Reason::SnapshotEmpty),
        }
    }

    /// The tree that is being made, or one that an earlier run could not finish.
    fn unfinished(&self) -> Result<Dir> {
        let fail = self.fail(Op::MakeDirectory, BOOKS);
        let name = named(UNFINISHED).map_err(&fail)?;
        land::ensure_dir(&self.books, name.as_name(), 0o700).map_err(&fail)?;
        let tree = self.books.open_dir(name.as_name()).map_err(&fail)?;
        self.write_book(UNFINISHED_BOOK, &tree).map_err(fail)?;
        Ok(tree)
    }

    /// Writes down what a tree is known by. One that a killed run has left is written anew.
    fn write_book(&self, name: &str, tree: &Dir) -> io::Result<()> {
        let (name, disk) = (named(name)?, Sys::new());
        disk.remove_file(&self.books, name.as_name())?;
        let mut file = File::from(land::new_file(&self.books, name.as_name(), 0o600)?);
        file.write_all(&book(tree)?)?;
        file.sync_all()?;
        disk.sync_dir(&self.books)
    }

    /// Gives the tree its name: everything in it is on stable storage by now, and what it is known by before it has it.
    fn publish(&self, tree: &Dir, at: Stamp) -> Result<()> {
        let text = at.to_string();
        let publish = || {
            let (name, unfinished, disk) = (named(&text)?, named(UNFINISHED)?, Sys::new());
            self.write_book(&text, tree)?;
            let there = self.books.stat(unfinished.as_name())?;
            if there.id() != tree.info()?.id() {
                return Err(io::ErrorKind::NotFound.into());
            }
            move_whole(&self.books, unfinished.as_name(), &there, &self.dir, name.as_name())?;
            disk.sync_dir(&self.books)?;
            disk.sync_dir(&self.dir)
        };
        publish().map_err(self.fail(Op::PublishDirectory, &text))
    }

    /// What the tree was known by while it was made goes. The next run writes it anew.
    fn forget_unfinished(&self) -> Result<()> {
        let forget = || Sys::new().remove_file(&self.books, named(UNFINISHED_BOOK)?.as_name());
        forget().map_err(|e| Error::os(Op::CleanUp, self.shown.join(BOOKS).join(UNFINISHED_BOOK), e))
    }

    /// Takes one away: it has no name as a snapshot any more before anything of it goes. Whether all of it went: else the user
    /// has stopped it, and the next run does the rest.
    fn take_away(&self, stamp: Stamp, jobs: usize, tally: &Tally<'_>) -> Result<bool> {
        let text = stamp.to_string();
        let fail = self.fail(Op::ThinOut, &text);
        let (name, going) = (named(&text).map_err(&fail)?, named(&format!("{GOING}{text}")).map_err(&fail)?);
        let Some(dir) = self.opened(stamp).map_err(&fail)? else { return Ok(true) };
        let there = self.dir.stat(name.as_name()).map_err(&fail)?;
        if there.id() != dir.info().map_err(&fail)?.id() {
            return Ok(true);
        }
        let disk = Sys::new();
        let take = || {
            move_whole(&self.dir, name.as_name(), &there, &self.books, going.as_name())?;
            disk.sync_dir(&self.dir)?;
            disk.remove_file(&self.books, name.as_name())?;
            let how = (jobs, SealedDirs::OpenUp);
            remove::below_by(&self.books, going.as_name(), how, tally.watch.cancel)
        };
        let is_gone = take().map_err(&fail)?;
        if is_gone {
            tally.deleted.fetch_add(1, Relaxed);
        }
        Ok(is_gone)
    }
}

/// A tree that no run has finished, in the directory that holds such, with the lock that a run has on that.
pub(crate) struct UnfinishedTree {
    books: Dir,
    pub(crate) info: Info,
    /// A run is at it.
    pub(crate) is_running: bool,
}

impl UnfinishedTree {
    /// Whether a directory may be one, by its name.
    pub(crate) fn may_be(name: Name<'_>) -> bool {
        name.bytes() == UNFINISHED.as_bytes()
    }

    /// The one in `books`, if it is the very one that was made there: one in a copy of that is a directory like any other, and
    /// so is what a user has called so elsewhere.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub(crate) fn found(books: &Dir) -> io::Result<Option<UnfinishedTree>> {
        if books.whereabouts().is_ok_and(|at| at.file_name() != Some(OsStr::new(BOOKS))) {
            return Ok(None);
        }
        let books = books.reopen()?;
        let is_running = books.try_lock() != Lock::Held;
        let tree = match books.open_dir(named(UNFINISHED)?.as_name()) {
            // Finished meanwhile, or none of ours.
            Err(e) if matches!(Code::of(&e), Code::NotFound | Code::NotDirectory | Code::Link) => {
                return Ok(None);
            }
            opened => opened?,
        };
        // A link, a directory, and what cannot be read, say of nothing that it is ours.
        let is_ours = is_in_book(&books, named(UNFINISHED_BOOK)?.as_name(), &tree).unwrap_or(false);
        let info = tree.info()?;
        Ok(is_ours.then_some(UnfinishedTree { books, info, is_running }))
    }

    /// Takes it away. Whether all of it went: else the user has stopped that.
    ///
    /// # Errors
    /// The first thing that could not be removed.
    pub(crate) fn remove(&self, cancel: &Cancel) -> io::Result<bool> {
        let name = named(UNFINISHED)?;
        let is_gone = remove::below_by(&self.books, name.as_name(), (1, SealedDirs::OpenUp), cancel)?;
        if is_gone {
            Sys::new().remove_file(&self.books, named(UNFINISHED_BOOK)?.as_name())?;
        }
        Ok(is_gone)
    }
}

/// Whether `name` in `books` says of `tree` that it was made here.
fn is_in_book(books: &Dir, name: Name<'_>, tree: &Dir) -> io::Result<bool> {
    let mut said = Vec::new();
    File::from(books.open_file(name)?).take(256).read_to_end(&mut said)?;
    Ok(said == book(tree)?)
}

/// What a tree is known by: its inode, and when that came to be.
fn book(tree: &Dir) -> io::Result<Vec<u8>> {
    let (info, born) = tree.info_and_birth()?;
    Ok(format!("{BOOK_HEAD}\n{} {born}\n", info.ino).into_bytes())
}
