//! `sync --snapshot`: dated trees below one directory, each complete or absent. What is the same as in the last one becomes a hard
//! link to that.
//!
//! Must not know how a tree is brought up to date, nor which moments stay: those are `sync` and `thin`. What is taken away is a
//! tree that is known by its inode as one that was made here.

use crate::calendar::Stamp;
use crate::disk::Dirs;
use crate::disk::sys::Sys;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Event, Summary, Watch};
use crate::policy::{CopyPolicy, DeleteMax, Mirror, SnapshotRequest, SyncRequest, Target};
use crate::receiver::aside::move_whole;
use crate::receiver::{land, tree};
use crate::remove;
use crate::tally::Tally;
use crate::verbs::operands::{self, DestLink, Reach, Where};
use crate::verbs::sync::mounted::Mounted;
use crate::verbs::sync::sync;
use crate::verbs::thin;
use fastcopy::dir::{Dir, ListBuffer, Lock, NameBuf};
use fastcopy::meta::Kind;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

/// What holds all that is not a snapshot yet or any more, and what is known of each.
const BOOKS: &str = ".bcmr-snapshots";
/// The tree that is being made.
const UNFINISHED: &str = "unfinished";
/// What a tree that is taken away is called first.
const GOING: &str = "going-";
const BOOK_HEAD: &str = "bcmr snapshot 1";

/// Where the tree is until it has its name, of snapshots in `dest`: what a run does is told below this.
#[must_use]
pub fn unfinished_snapshot(dest: &Path) -> PathBuf {
    dest.join(BOOKS).join(UNFINISHED)
}

/// Makes a snapshot, and takes away what the rule of thinning says.
///
/// # Errors
/// Only when nothing could be begun. What happens to single items is told through `watch` and counted in the [`Summary`].
pub fn snapshot(request: SnapshotRequest, watch: Watch<'_>) -> Result<Summary> {
    let SnapshotRequest { sync: wanted, at, thinning } = request;
    let source = Dir::open(&wanted.source).map_err(|e| match Code::of(&e) {
        Code::NotDirectory => {
            Error::ours(Code::NotDirectory, Op::Open, &wanted.source, Reason::SourceIsNoDirectory)
        }
        _ => Error::os(Op::OpenDirectory, &wanted.source, e),
    })?;
    let dry_run = wanted.policy.dry_run;
    operands::make_path(&Reach::Anywhere, &Target::Exactly(wanted.dest.clone()), 1, &wanted.policy)?;
    let Some(shelf) = Snapshots::open(&wanted.dest, !dry_run)? else {
        // A first one would have everything.
        return sync(wanted, watch);
    };
    let newest = shelf.all()?.pop();
    shelf.guard(&source, &wanted.source, newest, at)?;
    let mounted = Mounted::of(&source, &wanted.dest, wanted.state.as_deref());
    mounted.guard(&wanted.source)?;
    let last = newest.map(|stamp| wanted.dest.join(stamp.to_string()));
    let everything = CopyPolicy {
        // What an earlier attempt has left is brought to what the source is now.
        mirror: Mirror::DeleteExcluded,
        delete_max: DeleteMax::Entries(u64::MAX),
        ..wanted.policy
    };
    if dry_run {
        let dest = last.unwrap_or_else(|| unfinished_snapshot(&wanted.dest));
        return sync(SyncRequest { dest, policy: everything, state: None, ..wanted }, watch);
    }
    let unfinished = shelf.unfinished()?;
    let policy = CopyPolicy { bases: last.into_iter().chain(everything.bases).collect(), ..everything };
    let dest = unfinished_snapshot(&wanted.dest);
    let (jobs, shown) = (policy.jobs, wanted.dest.clone());
    let mut summary = sync(SyncRequest { dest, policy, state: None, ..wanted }, watch)?;
    // Attributes that a file system cannot hold, and special files, are no reason to have nothing.
    let is_whole = summary.codes.iter().all(|code| matches!(code, Code::MetadataLost | Code::Special));
    if summary.cancelled || !is_whole {
        let note = Reason::SnapshotIncomplete;
        watch.front.event(Event::Warning(Error::ours(Code::Io, Op::KeepSnapshotIn, &shown, note)));
        return Ok(summary);
    }
    shelf.publish(&unfinished, at)?;
    if let Err(e) = mounted.remember(&shown) {
        watch.front.event(Event::Warning(e));
    }
    if let Some(rule) = thinning {
        let tally = Tally::new(watch);
        for stamp in thin::going(&shelf.all()?, rule) {
            match shelf.take_away(stamp, jobs, &tally) {
                Ok(()) => tally.item(Action::Removed, 0, || (PathBuf::new(), shown.join(stamp.to_string()))),
                Err(e) => tally.fail(e),
            }
        }
        let thinned = tally.summary();
        summary.add(Summary { cancelled: false, ..thinned });
    }
    Ok(summary)
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
    /// Opens it, and makes it where it is not there; `None` where it is not and is not to be made.
    fn open(path: &Path, makes: bool) -> Result<Option<Snapshots>> {
        let fail = |op| move |e| Error::os(op, path, e);
        let dir = match operands::contents(&Reach::Anywhere, path, DestLink::Through)? {
            Where::Whole(place) | Where::Into(place) => place.dir.try_clone().map_err(fail(Op::Open))?,
            Where::Name { .. } if !makes => return Ok(None),
            Where::Name { dir, name, .. } => {
                land::ensure_dir(&dir.dir, name.as_name(), 0o777).map_err(fail(Op::MakeDirectory))?;
                dir.dir.open_dir(name.as_name()).map_err(fail(Op::OpenTarget))?
            }
        };
        let name = named(BOOKS).map_err(fail(Op::Open))?;
        if makes {
            land::ensure_dir(&dir, name.as_name(), 0o700).map_err(fail(Op::MakeDirectory))?;
        }
        let books = match dir.open_dir(name.as_name()) {
            Err(e) if Code::of(&e) == Code::NotFound && !makes => return Ok(None),
            opened => opened.map_err(fail(Op::OpenDirectory))?,
        };
        // The lock goes with the handle.
        if makes && books.try_lock() == Lock::Busy {
            return Err(Error::ours(Code::Refused, Op::KeepSnapshotIn, path, Reason::SnapshotRuns));
        }
        let shelf = Snapshots { dir, books, shown: path.to_owned() };
        if makes {
            shelf.sweep().map_err(fail(Op::CleanUp))?;
        }
        Ok(Some(shelf))
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

    /// What a run that was killed while it took trees away has left of them.
    fn sweep(&self) -> io::Result<()> {
        for name in Snapshots::listed(&self.books)? {
            let Some(going) = name.bytes().strip_prefix(GOING.as_bytes()) else { continue };
            // What it was known by goes first, or would stay for ever.
            if let Some(book) = NameBuf::new(going).filter(|_| Stamp::parse(going).is_some())
                && self.dir.look(book.as_name())?.is_none()
            {
                Sys::new().remove_file(&self.books, book.as_name())?;
            }
            remove::below(&self.books, name.as_name())?;
        }
        Ok(())
    }

    /// All that were made here and are there still, the oldest first.
    fn all(&self) -> Result<Vec<Stamp>> {
        let listed = Snapshots::listed(&self.books).map_err(self.fail(Op::ListDirectory, BOOKS))?;
        let mut all: Vec<Stamp> = listed.iter().filter_map(|name| Stamp::parse(name.bytes())).collect();
        all.retain(|stamp| matches!(self.opened(*stamp), Ok(Some(_))));
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
        let mut said = Vec::new();
        File::from(self.books.open_file(name.as_name())?).take(256).read_to_end(&mut said)?;
        let dir = self.dir.open_dir_readable(name.as_name())?;
        Ok((said == book(&dir)?).then_some(dir))
    }

    /// M1: a source that is empty, or a moment before the last one, makes none.
    fn guard(&self, source: &Dir, path: &Path, newest: Option<Stamp>, at: Stamp) -> Result<()> {
        let shown = self.shown.join(at.to_string());
        let refuse = |why| Err(Error::ours(Code::Refused, Op::KeepSnapshotIn, &shown, why));
        let name = named(&at.to_string()).map_err(|e| Error::os(Op::Stat, &shown, e))?;
        if self.dir.look(name.as_name()).map_err(|e| Error::os(Op::Stat, &shown, e))?.is_some() {
            return refuse(Reason::SnapshotThere);
        }
        let Some(newest) = newest else { return Ok(()) };
        if newest >= at {
            return refuse(Reason::NewerSnapshot);
        }
        let disk = Sys::new();
        let fail = |e| Error::os(Op::ListDirectory, path, e);
        if !tree::is_empty(&disk, source).map_err(fail)? {
            return Ok(());
        }
        let newest = self.opened(newest).map_err(fail)?;
        match newest.map_or(Ok(true), |dir| tree::is_empty(&disk, &dir)).map_err(fail)? {
            true => Ok(()),
            false => refuse(Reason::SourceIsEmpty),
        }
    }

    /// The tree that is being made, or one that an earlier run could not finish.
    fn unfinished(&self) -> Result<Dir> {
        let fail = self.fail(Op::MakeDirectory, BOOKS);
        let name = named(UNFINISHED).map_err(&fail)?;
        land::ensure_dir(&self.books, name.as_name(), 0o700).map_err(&fail)?;
        self.books.open_dir(name.as_name()).map_err(fail)
    }

    /// Gives the tree its name: everything in it is on stable storage by now, and what it is known by before it has it.
    fn publish(&self, tree: &Dir, at: Stamp) -> Result<()> {
        let text = at.to_string();
        let publish = || {
            let (name, unfinished, disk) = (named(&text)?, named(UNFINISHED)?, Sys::new());
            // Of a run that was killed right here.
            disk.remove_file(&self.books, name.as_name())?;
            let mut file = File::from(land::new_file(&self.books, name.as_name(), 0o600)?);
            file.write_all(&book(tree)?)?;
            file.sync_all()?;
            disk.sync_dir(&self.books)?;
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

    /// Takes one away: it has no name as a snapshot any more before anything of it goes.
    fn take_away(&self, stamp: Stamp, jobs: usize, tally: &Tally<'_>) -> Result<()> {
        let text = stamp.to_string();
        let fail = self.fail(Op::ThinOut, &text);
        let (name, going) = (named(&text).map_err(&fail)?, named(&format!("{GOING}{text}")).map_err(&fail)?);
        let Some(dir) = self.opened(stamp).map_err(&fail)? else { return Ok(()) };
        let there = self.dir.stat(name.as_name()).map_err(&fail)?;
        if there.id() != dir.info().map_err(&fail)?.id() {
            return Ok(());
        }
        let disk = Sys::new();
        let take = || {
            move_whole(&self.dir, name.as_name(), &there, &self.books, going.as_name())?;
            disk.sync_dir(&self.dir)?;
            disk.remove_file(&self.books, name.as_name())?;
            remove::below_by(&self.books, going.as_name(), jobs, tally.watch.cancel)
        };
        take().map_err(&fail)?;
        tally.deleted.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// What a tree is known by: its inode, and when that came to be.
fn book(tree: &Dir) -> io::Result<Vec<u8>> {
    let (info, born) = tree.info_and_birth()?;
    Ok(format!("{BOOK_HEAD}\n{} {born}\n", info.ino).into_bytes())
}
