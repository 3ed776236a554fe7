//! `undo`: what a receipt says was replaced or deleted gets its name again, and what was new goes. What has changed since stays,
//! and is named.
//!
//! Must not delete anything that the receipt does not know: what goes is a name below the destination's own handle, reached
//! through no link, of a thing that has the size and time that the receipt says, or of an empty directory.

use crate::disk::Dirs;
use crate::disk::seal;
use crate::disk::sys::Sys;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Summary, Watch};
use crate::held_stat::{self, HeldStat};
use crate::node;
use crate::policy::{Privileged, UndoRequest};
use crate::receiver::aside::{dir_id, info_name, move_whole, says_of};
use crate::receiver::kept::{
    self, Done, KeptLine, KeptThing, KnownBy, Owned, ReceiptHead, ReceiptSaid, WasLike,
};
use crate::receiver::land;
use crate::remove::open_up;
use crate::sender::operand::Reach;
use crate::tally::Tally;
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{self, Info, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a receipt, at most: some millions of names.
const RECEIPT_BYTES_MAX: u64 = 2 << 30;
/// The same where a client names what is read, and may have put it there (V7).
const CLIENTS_RECEIPT_BYTES_MAX: u64 = 64 << 20;
/// And lines of that: each may be short, and takes some hundred bytes once it is understood.
const CLIENTS_RECEIPT_LINES_MAX: usize = 1 << 20;

/// Bytes of what a trash says of one thing: each of a path may take three.
const INFO_BYTES_MAX: u64 = 16 << 10;
/// Bytes of a path that the kernel takes, with the NUL behind it.
const PATH_MAX: usize = 4096;

/// Undoes what a receipt says.
///
/// # Errors
/// Nothing could be begun: it is no receipt, or the destination is not the one that it is about. What happens to single names
/// is told through `watch` and counted in the [`Summary`].
pub fn undo(request: &UndoRequest, watch: Watch<'_>) -> Result<Summary> {
    undo_in(&Reach::Anywhere, request, watch)
}

/// The same of a receipt, and about a directory, that are in reach.
///
/// # Errors
/// As [`undo`]; or one of the two is not in reach.
pub(crate) fn undo_in(reach: &Reach, request: &UndoRequest, watch: Watch<'_>) -> Result<Summary> {
    let (beside, ReceiptSaid { head, lines, is_cut }) = read(reach, &request.receipt)?;
    let shown = &request.receipt;
    let (dest, dest_shown) = destination(reach, &head, (&beside, shown))?;
    // What a receipt names in a directory of its own is named from where the receipt is.
    let (store, store_shown) = match head.trash {
        true => (Dir::open(&head.store), head.store.as_path()),
        false => (beside.try_clone(), shown.parent().unwrap_or(Path::new(""))),
    };
    let store = store.map_err(|e| Error::os(Op::Open, store_shown, e))?;
    let there = dir_id(&dest).map_err(|e| Error::os(Op::Stat, &dest_shown, e))?;
    if !head.id.is(&there) {
        let error = Error::ours(Code::Refused, Op::Undo, &dest_shown, Reason::OtherDestination);
        return Err(error.and(shown));
    }
    let mut undoing = Undoing {
        tally: Tally::new(watch),
        dry_run: request.dry_run,
        dest: Reached::of(dest, &dest_shown),
        store: Reached::of(store, store_shown),
        trash: head.trash,
        privileged: head.privileged,
        was: BTreeMap::new(),
        left: BTreeSet::new(),
        deleted: lines
            .iter()
            .filter_map(|line| match &line.done {
                Done::Deleted(kept) => Some((line.path.as_path(), kept.at.as_path())),
                _ => None,
            })
            .collect(),
        opened: Vec::new(),
    };
    // What the run did after that stands nowhere, so not all of it can be undone.
    if is_cut {
        undoing.tally.fail(Error::ours(Code::Io, Op::ReadReceipt, shown, Reason::ReceiptCutOff));
    }
    for line in lines.iter().rev() {
        if undoing.tally.cancelled() {
            break;
        }
        if let Err(e) = undoing.line(line) {
            undoing.tally.fail(e);
        }
    }
    undoing.end(&lines);
    Ok(undoing.tally.summary())
}

/// The directory that a receipt is about, and what it is called by who may reach it. The receipt is in `beside`.
fn destination(
    reach: &Reach,
    head: &ReceiptHead,
    (beside, receipt): (&Dir, &Path),
) -> Result<(Dir, PathBuf)> {
    let refuse = |why| move || Error::ours(Code::Refused, Op::Undo, receipt, why);
    let outside = refuse(Reason::NotBelowRoot);
    let whole = |dir: &Dir| dir.whereabouts().map_err(|e| Error::os(Op::ReadReceipt, receipt, e));
    let Reach::Below(root) = reach else {
        let mut dest = head.dest.clone();
        if dest.is_relative() {
            dest = kept::at_end(&whole(beside)?, &dest).ok_or_else(refuse(Reason::NoReceipt))?;
        }
        let opened = Dir::open(&dest).map_err(|e| Error::os(Op::OpenTargetDirectory, &dest, e))?;
        return Ok((opened, dest));
    };
    // There is no trash.
    if head.trash {
        return Err(outside());
    }
    if head.dest.is_absolute() {
        return below_whole(reach, head, beside).ok_or_else(outside);
    }
    // What leads above the root is not even looked for, whatever is there.
    let (top, here) = (whole(root)?, whole(beside)?);
    let below = here.strip_prefix(&top).ok().and_then(|here| kept::at_end(here, &head.dest));
    let shown = Path::new("/").join(below.ok_or_else(outside)?);
    Ok((reach.open(&shown)?, shown))
}

/// Where it is below the root what a receipt names in the whole machine: older servers wrote that. No answer may depend on
/// where the root lies, so it is known by its inode, whatever names go before, on the file system that the receipt is on: what is
/// kept is beside that, and was moved there from the destination.
fn below_whole(reach: &Reach, head: &ReceiptHead, beside: &Dir) -> Option<(Dir, PathBuf)> {
    let device = beside.info().ok()?.dev;
    let is_it = |dir: &Dir| {
        dir.info().is_ok_and(|info| info.dev == device) && dir_id(dir).is_ok_and(|there| head.id.is(&there))
    };
    let mut rest = head.dest.components();
    while rest.next().is_some() {
        // The kernel takes no longer path.
        let below = rest.as_path();
        if below.as_os_str().len() < PATH_MAX
            && let Ok(dir) = reach.dir(below)
            && is_it(&dir)
        {
            return Some((dir, Path::new("/").join(below)));
        }
    }
    None
}

/// The directory that the receipt is in, and what it says.
fn read(reach: &Reach, path: &Path) -> Result<(Dir, ReceiptSaid)> {
    let fail = |e| Error::os(Op::ReadReceipt, path, e);
    let none = || Error::ours(Code::Refused, Op::ReadReceipt, path, Reason::NoReceipt);
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = node::last_name(path).ok_or_else(none)?;
    let dir = reach.open(above).map_err(|e| Error { op: Op::ReadReceipt, path: path.to_owned(), ..e })?;
    let mut text = Vec::new();
    let file = File::from(dir.open_file(name.as_name()).map_err(fail)?);
    let (bytes_max, lines_max) = match reach.is_confined() {
        true => (CLIENTS_RECEIPT_BYTES_MAX, CLIENTS_RECEIPT_LINES_MAX),
        false => (RECEIPT_BYTES_MAX, usize::MAX),
    };
    let too_large = || Error::ours(Code::Limit, Op::ReadReceipt, path, Reason::ReceiptTooLarge);
    // What it says of its size spares reading it. It may say too little.
    if Info::of(&file).map_err(fail)?.size > bytes_max {
        return Err(too_large());
    }
    file.take(bytes_max + 1).read_to_end(&mut text).map_err(fail)?;
    // A part of it would undo what was done first, and leave what was done last.
    if text.len() as u64 > bytes_max || text.iter().filter(|byte| **byte == b'\n').count() > lines_max {
        return Err(too_large());
    }
    Ok((dir, kept::parse(&text).ok_or_else(none)?))
}

/// Directories below one that is open, reached one name at a time and through no link.
struct Reached {
    root: Dir,
    shown: PathBuf,
    last: Option<(PathBuf, Dir)>,
}

impl Reached {
    fn of(root: Dir, shown: &Path) -> Reached {
        Reached { root, shown: shown.to_owned(), last: None }
    }

    /// The directory that `path` is in, and its name there.
    fn above(&mut self, path: &Path) -> Result<(Dir, NameBuf)> {
        let name = node::last_name(path);
        let fail = |e| Error::os(Op::OpenDirectory, self.shown.join(path), e);
        let name = name.ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
        let above = path.parent().unwrap_or(Path::new(""));
        if let Some((last, dir)) = &self.last
            && last == above
        {
            return Ok((dir.try_clone().map_err(fail)?, name));
        }
        let dir = below(&self.root, above).map_err(fail)?;
        self.last = Some((above.to_owned(), dir.try_clone().map_err(fail)?));
        Ok((dir, name))
    }
}

fn below(root: &Dir, path: &Path) -> io::Result<Dir> {
    let mut dir = root.try_clone()?;
    for part in path.components() {
        let name = NameBuf::new(part.as_os_str().as_bytes()).ok_or(io::ErrorKind::InvalidInput)?;
        dir = dir.open_dir(name.as_name())?;
    }
    Ok(dir)
}

/// One run of the verb.
struct Undoing<'a> {
    tally: Tally<'a>,
    dry_run: bool,
    dest: Reached,
    store: Reached,
    trash: bool,
    /// Where the destination has what only root can set.
    privileged: Privileged,
    /// What directories of the destination are to be like in the end.
    was: BTreeMap<PathBuf, WasLike>,
    /// Names that a dry run has left, and a real one would have taken away.
    left: BTreeSet<PathBuf>,
    /// What was deleted, and what it is kept as.
    deleted: BTreeMap<&'a Path, &'a Path>,
    /// Directories that were opened up to their owner, and their modes before.
    opened: Vec<(PathBuf, u32)>,
}

impl Undoing<'_> {
    fn refused(&self, path: &Path, why: Reason) -> Error {
        Error::ours(Code::Refused, Op::Undo, self.dest.shown.join(path), why)
    }

    fn line(&mut self, line: &KeptLine) -> Result<()> {
        let path = &line.path;
        match &line.done {
            Done::Stayed(was) => {
                // The first line about it says what it was like before the run, if not all then with a later one.
                let later = self.was.get(path).and_then(|later| later.owned);
                self.was.insert(path.clone(), WasLike { owned: was.owned.or(later), ..*was });
                Ok(())
            }
            Done::Made(by) => self.take_away(path, by),
            Done::Replaced(by, kept) => self.put_back(path, Some(by), kept),
            Done::Deleted(kept) => self.put_back(path, None, kept),
        }
    }

    /// Remembers the times of a directory in which a name comes or goes, and lets its owner do that.
    fn touches(&mut self, path: &Path, dir: &Dir) -> Result<()> {
        let above = path.parent().unwrap_or(Path::new(""));
        if !self.was.contains_key(above) {
            let info = dir.info().map_err(|e| Error::os(Op::Stat, self.dest.shown.join(above), e))?;
            self.was.insert(above.to_owned(), WasLike::times_of(&info));
        }
        if !self.dry_run
            && let Some(mode) = open_up(dir)
        {
            self.opened.push((above.to_owned(), mode));
        }
        Ok(())
    }

    /// What was new goes.
    fn take_away(&mut self, path: &Path, by: &KnownBy) -> Result<()> {
        let shown = self.dest.shown.join(path);
        let (dir, name) = match self.dest.above(path) {
            // What it was in is there no more.
            Err(e) if matches!(e.code, Code::NotFound | Code::NotDirectory | Code::Link) => return Ok(()),
            found => found?,
        };
        let there = dir.look(name.as_name()).map_err(|e| Error::os(Op::Stat, &shown, e))?;
        let Some(there) = there else { return Ok(()) };
        if !by.is(&there) {
            if self.is_put_back(path) {
                return Ok(());
            }
            return Err(self.refused(path, Reason::ChangedSinceRun));
        }
        self.touches(path, &dir)?;
        if !self.dry_run {
            let removed = match by.kind {
                Kind::Dir => dir.remove_dir(name.as_name()),
                _ => dir.remove_file(name.as_name()),
            };
            match removed {
                Err(e) if matches!(e.raw_os_error(), Some(errno::ENOTEMPTY | errno::EEXIST)) => {
                    return Err(self.refused(path, Reason::HoldsWhatCameLater));
                }
                other => other.map_err(|e| Error::os(Op::Delete, &shown, e))?,
            }
            self.dest.last = None;
        } else {
            if by.kind == Kind::Dir && self.holds_more(path, &dir, name.as_name())? {
                return Err(self.refused(path, Reason::HoldsWhatCameLater));
            }
            self.left.insert(path.to_owned());
        }
        self.tally.deleted.fetch_add(1, Relaxed);
        self.tally.item(Action::Removed, 0, || (PathBuf::new(), shown));
        Ok(())
    }

    /// Whether a directory has anything that a real run would not have taken away.
    fn holds_more(&self, path: &Path, above: &Dir, name: Name<'_>) -> Result<bool> {
        let fail = |e| Error::os(Op::ListDirectory, self.dest.shown.join(path), e);
        let dir = above.open_dir_readable(name).map_err(fail)?;
        let mut more = false;
        let listed = dir.list(&mut ListBuffer::new(), |entry| {
            more = !self.left.contains(&path.join(node::os(entry.name)));
            !more
        });
        listed.map_err(fail)?;
        Ok(more)
    }

    /// Whether an earlier undoing has put back what was there before the run.
    fn is_put_back(&mut self, path: &Path) -> bool {
        let Some(at) = self.deleted.get(path) else { return false };
        match self.store.above(at) {
            Ok((dir, name)) => matches!(dir.look(name.as_name()), Ok(None)),
            Err(e) => e.code == Code::NotFound,
        }
    }

    /// What is kept no more was put back before, or never lost its name; or else it is lost.
    fn is_not_kept(&mut self, path: &Path, by: Option<&KnownBy>, kept: &KeptThing) -> Result<()> {
        let shown = self.dest.shown.join(path);
        let there = match self.dest.above(path) {
            Err(e) if matches!(e.code, Code::NotFound | Code::NotDirectory | Code::Link) => None,
            found => {
                let (dir, name) = found?;
                dir.look(name.as_name()).map_err(|e| Error::os(Op::Stat, &shown, e))?
            }
        };
        let is_there = there.filter(|_| !self.left.contains(path)).is_some_and(|there| match kept.ino {
            Some(ino) => there.ino == ino,
            None => !by.is_some_and(|by| by.is(&there)),
        });
        self.forget_promise(path, kept);
        let lost = || Error::ours(Code::NotFound, Op::Undo, shown, Reason::KeptNoMore);
        if is_there { Ok(()) } else { Err(lost()) }
    }

    /// What is kept gets its name again; `by` says what has taken its place.
    fn put_back(&mut self, path: &Path, by: Option<&KnownBy>, kept: &KeptThing) -> Result<()> {
        let (shown, at) = (self.dest.shown.join(path), kept.at.as_path());
        let stat = |e| Error::os(Op::Stat, &shown, e);
        let (from, kept_as) = match self.store.above(at) {
            Err(e) if e.code == Code::NotFound => return self.is_not_kept(path, by, kept),
            found => found?,
        };
        let old = from.look(kept_as.as_name()).map_err(stat)?;
        // In a trash others may have got the name since.
        let is_it = |ino: u64| !self.trash || kept.ino.is_none_or(|own| own == ino);
        let Some(old) = old.filter(|old| is_it(old.ino)) else {
            return self.is_not_kept(path, by, kept);
        };
        let (dir, name) = self.dest.above(path)?;
        let there = dir.look(name.as_name()).map_err(stat)?.filter(|_| !self.left.contains(path));
        match (&there, by) {
            (None, None) => {}
            // The run was stopped before it replaced it: it has its first name still.
            (Some(there), Some(_)) if there.id() == old.id() => {
                if !self.dry_run {
                    from.remove_file(kept_as.as_name()).map_err(|e| Error::os(Op::Undo, &shown, e))?;
                    self.forget(&kept_as);
                }
                return Ok(());
            }
            (Some(there), Some(by)) if by.is(there) => {}
            // It lost its first name before the new one came.
            (None, Some(_)) if old.nlink == 1 && old.kind != Kind::Dir => {}
            _ => return Err(self.refused(path, Reason::ChangedSinceRun)),
        }
        self.touches(path, &dir)?;
        if !self.dry_run {
            let put = match there {
                Some(_) => land::give_name(&from, kept_as.as_name(), &dir, name.as_name(), false),
                None => move_whole(&from, kept_as.as_name(), &old, &dir, name.as_name()),
            };
            put.map_err(|e| Error::os(Op::Undo, &shown, e))?;
            self.forget(&kept_as);
            self.dest.last = None;
        }
        self.tally.files.fetch_add(1, Relaxed);
        let kept = || (self.store.shown.join(at), shown.clone());
        self.tally.item(Action::Renamed, 0, kept);
        Ok(())
    }

    /// What a trash says of `path`, which is not in it: a run that was killed has not come to moving it there.
    fn forget_promise(&mut self, path: &Path, kept: &KeptThing) {
        if !self.trash || self.dry_run {
            return;
        }
        let Some(kept_as) = node::last_name(&kept.at) else { return };
        let is_of_path = |undoing: &mut Self| {
            let (files, name) = undoing.store.above(&kept.at).ok()?;
            if files.look(name.as_name()).ok()?.is_some() {
                return None;
            }
            let whole = undoing.dest.root.whereabouts().ok()?.join(path);
            let trash = undoing.store.root.whereabouts().ok()?;
            let info = info_name(kept_as.bytes())?;
            let (dir, name) = undoing.store.above(&Path::new("info").join(node::os(info.as_name()))).ok()?;
            let (file, mut said) = (dir.open_file(name.as_name()).ok()?, Vec::new());
            File::from(file).take(INFO_BYTES_MAX).read_to_end(&mut said).ok()?;
            Some(says_of(&said, &whole, &trash))
        };
        if is_of_path(self) == Some(true) {
            self.forget(&kept_as);
        }
    }

    /// What a trash says of what it does not have any more.
    fn forget(&mut self, kept_as: &NameBuf) {
        if !self.trash {
            return;
        }
        let Some(name) = info_name(kept_as.bytes()) else { return };
        let at = Path::new("info").join(node::os(name.as_name()));
        if let Ok((dir, name)) = self.store.above(&at) {
            // It is passed over by all who read a trash.
            dir.remove_file(name.as_name()).ok();
        }
    }

    /// A directory has its owner and mode again.
    fn brought_back(&self, path: &Path) {
        self.tally.updated.fetch_add(1, Relaxed);
        self.tally.item(Action::Updated, 0, || (PathBuf::new(), self.dest.shown.join(path)));
    }

    /// Gives directories what they had, and takes away what holds nothing of what was kept any more.
    fn end(&mut self, lines: &[KeptLine]) {
        if self.dry_run {
            for (path, was) in std::mem::take(&mut self.was) {
                let dir =
                    below(&self.dest.root, &path).and_then(|dir| held_stat::dir_as(self.privileged, &dir));
                if dir.is_ok_and(|now| was.differs(&now)) {
                    self.brought_back(&path);
                }
            }
            return;
        }
        for (path, mode) in self.opened.drain(..) {
            if let Ok(dir) = below(&self.dest.root, &path) {
                let set = meta::set_mode(&dir, mode);
                set.unwrap_or_else(|e| {
                    self.tally.lost(Error::os(Op::SetModeOf, self.dest.shown.join(&path), e));
                });
            }
        }
        for (path, was) in std::mem::take(&mut self.was) {
            match below(&self.dest.root, &path).and_then(|dir| like(&dir, &was, self.privileged)) {
                Ok(true) => self.brought_back(&path),
                Ok(false) => {}
                // What a directory that is gone was like matters no more.
                Err(e) if matches!(Code::of(&e), Code::NotFound | Code::NotDirectory | Code::Link) => {}
                Err(e) => {
                    let code = Code::of_loss(&e);
                    let error = Error::os(Op::SetAttributesOf, self.dest.shown.join(&path), e);
                    self.tally.lost(Error { code, ..error });
                }
            }
        }
        if let Err(e) = Sys::new().sync_all(&self.dest.root) {
            self.tally.fail(Error::os(Op::SyncTheFileSystemOf, &self.dest.shown, e));
        }
        if !self.trash {
            let kept = lines.iter().filter_map(|line| match &line.done {
                Done::Replaced(_, kept) | Done::Deleted(kept) => kept.at.parent(),
                Done::Made(_) | Done::Stayed(_) => None,
            });
            let above: BTreeSet<&Path> = kept.flat_map(Path::ancestors).collect();
            // The deepest first; one that still holds something stays.
            for path in above.into_iter().rev().filter(|path| !path.as_os_str().is_empty()) {
                if let Ok((dir, name)) = self.store.above(path) {
                    dir.remove_dir(name.as_name()).ok();
                    self.store.last = None;
                }
            }
        }
    }
}

/// Owner before mode, which a change of owner takes bits from; times last. Whether owner or mode were others.
fn like(dir: &Dir, was: &WasLike, privileged: Privileged) -> io::Result<bool> {
    let differed = was.owned.map_or(Ok(false), |owned| owned_so(dir, &owned, privileged))?;
    meta::set_times(dir, was.atime, was.mtime)?;
    Ok(differed)
}

fn owned_so(dir: &Dir, was: &Owned, privileged: Privileged) -> io::Result<bool> {
    let now = held_stat::dir_as(privileged, dir)?;
    let differed = was.differs(&now);
    match privileged {
        Privileged::Real => {
            if (now.uid, now.gid) != (was.uid, was.gid) {
                meta::set_owner(dir, Some(was.uid), Some(was.gid))?;
            }
            if dir.info()?.mode != was.mode {
                meta::set_mode(dir, was.mode)?;
            }
        }
        Privileged::Held if !differed => {}
        Privileged::Held => {
            let (kind, mode, uid, gid) = (Kind::Dir, was.mode & 0o7777, was.uid, was.gid);
            seal::hold_again(dir, HeldStat { kind, mode, uid, gid, rdev: 0 })?;
        }
    }
    Ok(differed)
}
