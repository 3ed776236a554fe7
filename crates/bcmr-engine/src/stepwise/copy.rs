//! Copying, moving and installing, one thing after the other: what becomes of each, in the order in which it is told.
//!
//! Must not know how content is copied (`content`), nor how a file gets its name (`receiver::single`).

use super::backup;
use super::same::{self, Same};
use super::spot::{Spot, join, last};
use super::{Ask, Backup, Content, Did, Options, Over, Purpose, Teller, Trouble, Update, What, Where};
use crate::disk::{Attributes, Body, Fault, Job, Keep, Side};
use crate::error::{Op, Reason};
use crate::policy::{Follow, Io, Strictness};
use crate::receiver::single::{Folder, Landed, Single};
use fastcopy::dir::{Dir, ListBuffer, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which object it is.
type Id = (u64, u64);
/// A name in a directory, and what had it.
type Seen = (Option<(Id, Option<NameBuf>)>, Id);

/// Where a source goes, as it is shown, and whether nothing can be there yet.
pub(super) struct Copier<'a> {
    pub(super) options: &'a Options,
    pub(super) teller: &'a mut dyn Teller,
    pub(super) single: Single,
    /// What landed where, of what may come again.
    copied: HashMap<Id, PathBuf>,
    /// Sources and destinations of this command line, where there are several.
    sources: Option<HashSet<Seen>>,
    created: Option<HashSet<Seen>>,
    /// The operand that is being copied, as it was typed, and where it goes.
    top: (PathBuf, PathBuf),
    /// The first directory that was made for it.
    first_dir: bool,
}

/// The directories above, in the source.
struct Up<'u> {
    id: Id,
    above: Option<&'u Up<'u>>,
}

impl Up<'_> {
    fn has(&self, id: Id) -> bool {
        self.id == id || self.above.is_some_and(|up| up.has(id))
    }
}

/// What became of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// All of it was done.
    Fine,
    /// By a rename, or it stays: nothing is left to be removed.
    InPlace,
    /// Something failed.
    Failed,
    /// It would have been copied into itself: what is above goes no further.
    IntoItself,
}

impl Done {
    fn is_failed(self) -> bool {
        matches!(self, Done::Failed | Done::IntoItself)
    }

    fn of(fine: bool) -> Done {
        if fine { Done::Fine } else { Done::Failed }
    }
}

/// One source and its destination, as far as they were looked at.
struct Pair<'p> {
    src: &'p Spot,
    dst: &'p Spot,
    /// The source.
    info: Info,
    /// What is there.
    there: Option<Info>,
    /// The source's link is followed.
    follow: bool,
    operand: bool,
    up: Option<&'p Up<'p>>,
    /// The device of the operand.
    device: u64,
    /// What is there goes when the new thing comes.
    replace: bool,
    backup: Option<Spot>,
}

/// Copies. Whether all was done.
pub fn copy(sources: &[PathBuf], target: &Where, options: &Options, teller: &mut dyn Teller) -> bool {
    Copier::new(options, teller, sources.len()).run(sources, target)
}

/// Moves. Whether all was done.
pub fn move_(sources: &[PathBuf], target: &Where, options: &Options, teller: &mut dyn Teller) -> bool {
    copy(sources, target, options, teller)
}

/// Makes directories with all that lead to them, and gives the last of each what was asked for (`install -d`, `-D`).
/// `last_too`: the last name is a directory as well; else those in front of it.
pub fn install_dirs(
    paths: &[PathBuf],
    last_too: bool,
    given: Option<&super::Given>,
    options: &Options,
    teller: &mut dyn Teller,
) -> bool {
    let mut copier = Copier::new(options, teller, paths.len());
    paths.iter().fold(true, |fine, path| copier.make_dirs(path, last_too, given) && fine)
}

/// Gives a file what `install` was asked for, once it was stripped.
pub fn give(path: &Path, given: &super::Given, times_of: Option<&Path>, teller: &mut dyn Teller) -> bool {
    let spot = Spot::of(path);
    let set = || -> io::Result<()> {
        let file = spot.open_file(false)?;
        if given.uid.is_some() || given.gid.is_some() {
            fastcopy::meta::set_owner(&file, given.uid, given.gid)?;
        }
        fastcopy::meta::set_mode(&file, given.mode)?;
        if let Some(source) = times_of {
            let info = Spot::of(source).look(true)?;
            fastcopy::meta::set_times(&file, info.atime, info.mtime)?;
        }
        Ok(())
    };
    match set() {
        Ok(()) => true,
        Err(e) => {
            let path = path.to_owned();
            teller.trouble(Trouble { what: What::SetMode, path, other: None, why: Some(e) });
            false
        }
    }
}

/// Takes a file away again that could not be finished.
pub fn take_back(path: &Path) {
    if let Ok((folder, name)) = Spot::of(path).place(errno::EISDIR) {
        folder.dir.remove_file(name).ok();
    }
}

impl<'a> Copier<'a> {
    fn new(options: &'a Options, teller: &'a mut dyn Teller, count: usize) -> Copier<'a> {
        let io = Io { changing: crate::policy::Changing::Allowed, ..Io::PLAIN };
        Copier {
            options,
            teller,
            single: Single::new(io),
            copied: HashMap::new(),
            sources: (count > 1 && options.purpose != Purpose::Install).then(HashSet::new),
            created: (count > 1).then(HashSet::new),
            top: (PathBuf::new(), PathBuf::new()),
            first_dir: false,
        }
    }

    fn run(&mut self, sources: &[PathBuf], target: &Where) -> bool {
        let mut fine = true;
        for source in sources {
            if self.options.cancel.is_set() {
                return false;
            }
            let to = match target {
                Where::Name(name) => name.clone(),
                // `..` of a source is not made in the target: its content goes there.
                Where::Into(dir) if last(source) == b".." && self.options.purpose == Purpose::Copy => {
                    join(dir, b".")
                }
                Where::Into(dir) => join(dir, last(source)),
                Where::Below(dir) => join(dir, trimmed(source)),
            };
            fine &= match target {
                Where::Below(dir) => self.below(source, dir, &to),
                _ => self.operand(source, &to),
            };
        }
        fine
    }

    fn operand(&mut self, source: &Path, to: &Path) -> bool {
        let (src, dst) = (Spot::of(source), Spot::of(to));
        self.operand_at(&src, &dst)
    }

    fn operand_at(&mut self, src: &Spot, dst: &Spot) -> bool {
        self.top = (src.shown.clone(), dst.shown.clone());
        self.first_dir = false;
        if self.options.purpose == Purpose::Move {
            return self.moved(src, dst);
        }
        !self.item(src, dst, None, true, 0).is_failed()
    }

    pub(super) fn fail(&mut self, what: What, path: &Path, why: io::Error) -> bool {
        let path = path.to_owned();
        self.teller.trouble(Trouble { what, path, other: None, why: Some(why) });
        false
    }

    pub(super) fn fail_two(&mut self, what: What, path: &Path, other: &Path, why: Option<io::Error>) -> bool {
        let (path, other) = (path.to_owned(), Some(other.to_owned()));
        self.teller.trouble(Trouble { what, path, other, why });
        false
    }

    fn refuse(&mut self, what: What, path: &Path) -> Done {
        self.teller.trouble(Trouble { what, path: path.to_owned(), other: None, why: None });
        Done::Failed
    }

    fn follows(&self, operand: bool) -> bool {
        match self.options.follow {
            Follow::Never => false,
            Follow::Operands => operand,
            Follow::Always => true,
        }
    }

    /// Whether what is no file, directory or link is read as if it were a file.
    fn as_regular(&self) -> bool {
        !self.options.recursive || self.options.copy_contents
    }

    /// One thing, and for a directory all below it.
    fn item(&mut self, src: &Spot, dst: &Spot, up: Option<&Up<'_>>, operand: bool, device: u64) -> Done {
        let follow = self.follows(operand);
        let info = match src.look(follow) {
            Ok(info) => info,
            Err(e) => return Done::of(self.fail(What::Stat, &src.shown, e)),
        };
        let is_dir = info.kind == Kind::Dir;
        if is_dir && !self.options.recursive {
            let install = self.options.purpose == Purpose::Install;
            return self.refuse(if install { What::InstallOmitted } else { What::Omitted }, &src.shown);
        }
        if operand && !is_dir && self.options.backup == Backup::None {
            let seen = (src.key(), info.id());
            if self.sources.as_mut().is_some_and(|sources| !sources.insert(seen)) {
                self.refuse(What::FileTwice, &src.shown);
                return Done::Fine;
            }
        }
        let device = if operand { info.dev } else { device };
        let mut pair =
            Pair { src, dst, info, there: None, follow, operand, up, device, replace: false, backup: None };
        if let Ok(there) = dst.look(false)
            && super::content::is_installed(self, &file_of(&pair), &there)
        {
            return Done::InPlace;
        }
        if let Err(done) = self.look_at_destination(&mut pair) {
            return done;
        }
        if operand
            && self.options.purpose != Purpose::Move
            && self.options.backup == Backup::None
            && let Ok(there) = dst.look(false)
            && there.kind == Kind::Link
            && self.was_created(dst, &there)
        {
            return Done::of(self.fail_two(What::ThroughJustCreated, &dst.shown, &src.shown, None));
        }
        if self.options.verbose && !is_dir && self.options.purpose != Purpose::Move {
            let backup = pair.backup.as_ref().map(|spot| spot.shown.as_path());
            self.teller.did(Did::Copied { src: &src.shown, dst: &dst.shown, backup });
        }
        let done = match self.earlier(&pair) {
            Ok(Some(earlier)) => Done::of(self.link_to(&pair, &earlier)),
            Err(done) => done,
            Ok(None) if self.options.purpose == Purpose::Move => self.moving(&mut pair),
            Ok(None) => self.make(&mut pair),
        };
        if matches!(done, Done::Failed | Done::IntoItself) {
            self.undo_backup(&pair);
        } else if operand
            && let Some(created) = self.created.as_mut()
            && let Ok(now) = dst.look(false)
        {
            created.insert((dst.key(), now.id()));
        }
        done
    }

    fn was_created(&self, dst: &Spot, there: &Info) -> bool {
        self.created.as_ref().is_some_and(|created| created.contains(&(dst.key(), there.id())))
    }

    /// Whether the destination is looked at as the link that it may be.
    fn looks_at_link(&self, info: &Info) -> bool {
        let o = self.options;
        let kind = info.kind;
        (kind != Kind::File && (!self.as_regular() || matches!(kind, Kind::Dir | Kind::Link)))
            || o.purpose == Purpose::Move
            || matches!(o.content, Content::HardLink | Content::SymbolicLink)
            || o.backup != Backup::None
            || o.unlink_first
    }

    /// What is at the destination, and whether it may be replaced. `Err`: that is all for this one.
    fn look_at_destination(&mut self, pair: &mut Pair<'_>) -> Result<(), Done> {
        let (src, dst) = (pair.src, pair.dst);
        let mut as_link = self.looks_at_link(&pair.info);
        if as_link
            && self.options.keep_dir_links
            && pair.info.kind == Kind::Dir
            && dst.look(true).is_ok_and(|i| i.kind == Kind::Dir)
        {
            as_link = false;
        }
        let there = match dst.look(!as_link) {
            Ok(there) => there,
            Err(e) => match e.raw_os_error() {
                Some(errno::ENOENT) => return Ok(()),
                Some(errno::ENOTDIR)
                    if self.options.purpose == Purpose::Move && self.options.over == Over::Never =>
                {
                    return Err(Done::InPlace);
                }
                Some(errno::ELOOP) if self.options.force && !as_link => match dst.look(false) {
                    Ok(there) => there,
                    Err(e) => return Err(Done::of(self.fail(What::Stat, &dst.shown, e))),
                },
                _ => return Err(Done::of(self.fail(What::Stat, &dst.shown, e))),
            },
        };
        pair.there = Some(there);
        match same::check(src, dst, &pair.info, &there, self.options) {
            Same::Fine => {}
            Same::Nothing => return Err(Done::InPlace),
            Same::Refused => {
                return Err(Done::of(self.fail_two(What::SameFile, &src.shown, &dst.shown, None)));
            }
        }
        let (from_dir, to_dir) = (pair.info.kind == Kind::Dir, there.kind == Kind::Dir);
        self.may_replace(pair, &there)?;
        let with_backup = self.options.purpose == Purpose::Move && self.options.backup != Backup::None;
        if !from_dir {
            if to_dir && !with_backup {
                return Err(self.refuse(What::FileOverDir, &dst.shown));
            }
            if pair.operand && self.options.backup != Backup::Numbered && self.was_created(dst, &there) {
                return Err(Done::of(self.fail_two(What::JustCreated, &dst.shown, &src.shown, None)));
            }
        }
        if !to_dir && from_dir && !with_backup {
            return Err(Done::of(self.fail_two(What::DirOverFile, &dst.shown, &src.shown, None)));
        }
        self.clear_the_name(pair, &there)
    }

    /// `-u`, `-n`, `-i`, and what `mv` asks at a terminal.
    fn may_replace(&mut self, pair: &Pair<'_>, there: &Info) -> Result<(), Done> {
        let is_dir = pair.info.kind == Kind::Dir;
        if !is_dir {
            match self.options.update {
                Update::All => {}
                Update::Older if there.mtime < pair.info.mtime => {}
                Update::Older | Update::None => return Err(Done::InPlace),
                Update::NoneFail => return Err(self.refuse(What::NotReplacing, &pair.dst.shown)),
            }
        }
        let asks = match (self.options.over, self.options.purpose) {
            (Over::Never, Purpose::Move) => return Err(Done::InPlace),
            (Over::Never, _) if !is_dir => return Err(Done::InPlace),
            (Over::Ask, Purpose::Move) => true,
            (Over::Ask, _) => !is_dir,
            (Over::Unsaid, Purpose::Move) => self.options.stdin_tty && !self.is_writable(pair.dst, there),
            _ => false,
        };
        if asks && !self.asked(pair.dst, there) {
            return Err(Done::InPlace);
        }
        Ok(())
    }

    fn is_writable(&self, dst: &Spot, there: &Info) -> bool {
        there.kind == Kind::Link
            || self.options.me == 0
            || dst.place(errno::EBUSY).is_ok_and(|(folder, name)| folder.dir.may_write(name))
    }

    fn asked(&mut self, dst: &Spot, there: &Info) -> bool {
        let path = dst.shown.as_path();
        if self.is_writable(dst, there) {
            return self.teller.ask(Ask::Overwrite(path));
        }
        let o = self.options;
        let replace = o.purpose == Purpose::Move || o.unlink_first || o.force;
        self.teller.ask(Ask::OverwriteUnwritable { path, kind: there.kind, mode: there.mode, replace })
    }

    /// Keeps what is there under another name, or decides that it goes.
    fn clear_the_name(&mut self, pair: &mut Pair<'_>, there: &Info) -> Result<(), Done> {
        let o = self.options;
        let (src, dst) = (pair.src, pair.dst);
        let dots = matches!(last(&src.shown), b"." | b"..");
        if o.backup != Backup::None && !dots && (o.purpose == Purpose::Move || there.kind != Kind::Dir) {
            if backup::takes_source(src, dst, o) {
                let is_move = o.purpose == Purpose::Move;
                let what = if is_move { What::BackupDestroysNotMoved } else { What::BackupDestroysNotCopied };
                return Err(Done::of(self.fail_two(what, &dst.shown, &src.shown, None)));
            }
            match self.back_up(dst) {
                Ok(kept) => {
                    pair.backup = kept;
                    pair.there = None;
                }
                Err(e) => return Err(Done::of(self.fail(What::Backup, &dst.shown, e))),
            }
        } else if there.kind != Kind::Dir
            && o.purpose != Purpose::Move
            && (o.unlink_first
                || (o.content != Content::AttributesOnly
                    && ((o.preserve.links && there.nlink > 1)
                        || (o.follow == Follow::Never && pair.info.kind != Kind::File))))
        {
            // It goes by the rename that brings the new one, so that the name is never free.
            pair.replace = true;
            pair.there = None;
            if let Ok((folder, _)) = dst.place(errno::EBUSY)
                && !folder.dir.may_write_here()
            {
                let e = io::Error::from_raw_os_error(errno::EACCES);
                return Err(Done::of(self.fail(What::Remove, &dst.shown, e)));
            }
            if o.verbose {
                self.teller.did(Did::Removed(&dst.shown));
            }
        }
        Ok(())
    }

    /// The new name of what was there; `None` when it has gone meanwhile.
    fn back_up(&mut self, dst: &Spot) -> io::Result<Option<Spot>> {
        loop {
            let (kept, numbered) = backup::name_for(dst, self.options)?;
            let renamed = self.single.rename(dst.place(errno::EBUSY)?, kept.place(errno::EBUSY)?, numbered);
            match renamed {
                Ok(()) => return Ok(Some(kept)),
                Err(e) if e.raw_os_error() == Some(errno::ENOENT) => return Ok(None),
                Err(e) if numbered && e.raw_os_error() == Some(errno::EEXIST) => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn undo_backup(&mut self, pair: &Pair<'_>) {
        let Some(kept) = &pair.backup else { return };
        let (Ok(from), Ok(to)) = (kept.place(errno::EBUSY), pair.dst.place(errno::EBUSY)) else { return };
        if let Err(e) = self.single.rename(from, to, true) {
            let dst = pair.dst.shown.clone();
            self.fail(What::Backup, &dst, e);
        }
    }

    /// Where the same source landed before. `Err`: that is all for this one.
    fn earlier(&mut self, pair: &Pair<'_>) -> Result<Option<PathBuf>, Done> {
        let o = self.options;
        let id = pair.info.id();
        if pair.info.kind == Kind::Dir {
            if !o.recursive {
                return Ok(None);
            }
            let earlier = if pair.operand {
                self.copied.insert(id, pair.dst.shown.clone())
            } else {
                self.copied.get(&id).cloned()
            };
            let Some(earlier) = earlier else { return Ok(None) };
            let before = Spot::of(&earlier);
            if pair.operand {
                self.copied.insert(id, earlier.clone());
            }
            if pair.src.is_same_name(&before) {
                let (src, dst) = self.top.clone();
                self.fail_two(What::IntoItself, &src, &dst, None);
                return Err(Done::IntoItself);
            }
            if pair.dst.is_same_name(&before) {
                self.refuse(What::DirTwice, &pair.src.shown);
                return Err(Done::Fine);
            }
            if o.follow == Follow::Always || (pair.operand && o.follow == Follow::Operands) {
                return Ok(None);
            }
            return Err(Done::of(self.fail_two(What::LinkToDir, &pair.dst.shown, &earlier, None)));
        }
        let many = pair.info.nlink > 1
            || o.follow == Follow::Always
            || (pair.operand && o.follow == Follow::Operands);
        if o.preserve.links && o.content != Content::HardLink && many {
            if let Some(earlier) = self.copied.get(&id) {
                return Ok(Some(earlier.clone()));
            }
            self.copied.insert(id, pair.dst.shown.clone());
        }
        Ok(None)
    }

    fn link_to(&mut self, pair: &Pair<'_>, earlier: &Path) -> bool {
        let from = Spot::of(earlier);
        self.hard_link(pair, &from, true)
            .map_or_else(|e| self.fail_two(What::HardLink, &pair.dst.shown, earlier, Some(e)), |()| true)
    }

    /// A second name for what `from` is.
    fn hard_link(&mut self, pair: &Pair<'_>, from: &Spot, replace: bool) -> io::Result<()> {
        let (from_folder, from_name) = from.place(errno::EPERM)?;
        let (folder, name) = pair.dst.new_place(errno::ENOENT)?;
        let there = folder.dir.look(name)?;
        let info = from_folder.dir.stat(from_name)?;
        if there.is_some_and(|there| there.id() == info.id()) {
            return Ok(());
        }
        if there.is_some() && !(replace || pair.replace) {
            return Err(io::Error::from_raw_os_error(errno::EEXIST));
        }
        let body = Body::HardLink(&from_folder.dir, from_name);
        let attributes = Attributes::At(&from_folder.dir, from_name);
        let place = folder.stage().map_err(fault_error)?;
        let mut job = Job::new(name, place, info, None, body, attributes);
        job.only_new = !(replace || pair.replace);
        let keep = self.keep_for(folder);
        self.single.land(folder, job, &keep, None, None).fault.map_or(Ok(()), |fault| Err(fault_error(fault)))
    }

    /// What is kept, for sealing.
    pub(super) fn keep_for(&self, folder: &Folder) -> Keep {
        let o = self.options;
        let strictness = if o.given.is_some() { Strictness::Archive } else { Strictness::LikeCp };
        Keep {
            preserve: o.preserve,
            strictness,
            umask: o.umask,
            default_acl: folder.has_default_acl(),
            was_there: false,
        }
    }

    // ---- moving

    fn moved(&mut self, src: &Spot, dst: &Spot) -> bool {
        if self.options.exchange {
            return self.exchange(src, dst);
        }
        // Most are moved by one call, to a name that is free.
        if self.options.backup == Backup::None
            && !src.has_slash()
            && !dst.has_slash()
            && self.sources.is_none()
            && let (Ok(from), Ok(to)) = (src.place(errno::EBUSY), dst.place(errno::EBUSY))
            && self.single.rename(from, to, true).is_ok()
        {
            if self.options.verbose {
                self.teller.did(Did::Renamed { src: &src.shown, dst: &dst.shown, backup: None });
            }
            return true;
        }
        !self.item(src, dst, None, true, 0).is_failed()
    }

    fn exchange(&mut self, src: &Spot, dst: &Spot) -> bool {
        let places = src.place(errno::EBUSY).and_then(|from| Ok((from, dst.place(errno::EBUSY)?)));
        match places.and_then(|(from, to)| self.single.exchange(from, to)) {
            Ok(()) => {
                if self.options.verbose {
                    self.teller.did(Did::Exchanged { src: &src.shown, dst: &dst.shown });
                }
                true
            }
            Err(e) => self.fail_two(What::Exchange, &src.shown, &dst.shown, Some(e)),
        }
    }

    /// What `mv` does once nothing speaks against it.
    fn moving(&mut self, pair: &mut Pair<'_>) -> Done {
        let (src, dst) = (pair.src, pair.dst);
        let backup = pair.backup.as_ref().map(|spot| spot.shown.as_path());
        let from = src.place(errno::EBUSY);
        let to = dst.place(errno::EBUSY).and_then(|place| {
            // A slash asks for a directory.
            let wrong = dst.has_slash() && pair.info.kind != Kind::Dir;
            if wrong { Err(io::Error::from_raw_os_error(errno::ENOTDIR)) } else { Ok(place) }
        });
        let renamed = from.and_then(|from| self.single.rename(from, to?, false));
        let Err(e) = renamed else {
            if self.options.verbose {
                self.teller.did(Did::Renamed { src: &src.shown, dst: &dst.shown, backup });
            }
            return Done::InPlace;
        };
        match e.raw_os_error() {
            Some(errno::EINVAL) => {
                Done::of(self.fail_two(What::MoveIntoItself, &src.shown, &dst.shown, None))
            }
            Some(errno::EXDEV) if !self.options.no_copy => self.move_far(pair),
            _ => Done::of(self.fail_two(What::Move, &src.shown, &dst.shown, Some(e))),
        }
    }

    /// To another file system: copied, proved and then taken away, by the verb that does so.
    fn move_far(&mut self, pair: &Pair<'_>) -> Done {
        let (src, dst) = (pair.src, pair.dst);
        let is_dir = pair.info.kind == Kind::Dir;
        // What is there is replaced by a rename, which must be allowed as taking it away would have to be.
        if !is_dir
            && pair.there.is_some()
            && let Ok((folder, _)) = dst.place(errno::EBUSY)
            && !folder.dir.may_write_here()
        {
            let e = io::Error::from_raw_os_error(errno::EACCES);
            return Done::of(self.fail_two(What::InterDevice, &src.shown, &dst.shown, Some(e)));
        }
        // A directory does not merge with what is there: that must be an empty one, and goes.
        if is_dir && pair.there.is_some() {
            let removed = dst.place(errno::EBUSY).and_then(|(folder, name)| folder.dir.remove_dir(name));
            if let Err(e) = removed
                && e.raw_os_error() != Some(errno::ENOENT)
            {
                return Done::of(self.fail_two(What::InterDevice, &src.shown, &dst.shown, Some(e)));
            }
        }
        let backup = pair.backup.as_ref().map(|spot| spot.shown.as_path());
        if self.options.verbose && !is_dir {
            self.teller.did(Did::MovedByCopying { src: &src.shown, dst: &dst.shown, backup });
        }
        if super::remove::far(src, dst, is_dir, self.options, self.teller) {
            Done::InPlace
        } else {
            Done::Failed
        }
    }

    // ---- making

    /// Makes what the source is. Whether all was done.
    fn make(&mut self, pair: &mut Pair<'_>) -> Done {
        if pair.info.kind == Kind::Dir {
            return self.directory(pair);
        }
        Done::of(self.make_file(pair))
    }

    fn make_file(&mut self, pair: &Pair<'_>) -> bool {
        let kind = pair.info.kind;
        match self.options.content {
            Content::SymbolicLink => return self.link_from(pair),
            Content::HardLink => return self.linked(pair),
            Content::Copied | Content::AttributesOnly => {}
        }
        match kind {
            Kind::Link => self.symbolic_link(pair),
            Kind::File => self.content(pair),
            _ if self.as_regular() => self.content(pair),
            _ => self.special(pair),
        }
    }

    fn content(&mut self, pair: &Pair<'_>) -> bool {
        super::content::copy(self, &file_of(pair))
    }

    /// `-l`.
    fn linked(&mut self, pair: &Pair<'_>) -> bool {
        let replace = self.options.force || self.options.over == Over::Ask;
        // A link that is followed: the name that it leads to.
        let mut from = pair.src.clone();
        if pair.follow {
            for _ in 0..40 {
                match from.look(false) {
                    Ok(info) if info.kind == Kind::Link => match from.target() {
                        Ok(next) => from = next,
                        Err(_) => break,
                    },
                    _ => break,
                }
            }
        }
        match self.hard_link(pair, &from, replace) {
            Ok(()) => true,
            Err(e) => self.fail_two(What::HardLink, &pair.dst.shown, &pair.src.shown, Some(e)),
        }
    }

    /// `-s`.
    fn link_from(&mut self, pair: &Pair<'_>) -> bool {
        let target = pair.src.shown.as_os_str().as_bytes();
        if target.first() != Some(&b'/') {
            let here = Spot::of(Path::new("x"));
            let id = |spot: &Spot| spot.folder().and_then(|f| f.dir.info()).map(|info| info.id()).ok();
            if id(pair.dst).is_some_and(|dst| Some(dst) != id(&here)) {
                self.refuse(What::LinkOnlyHere, &pair.dst.shown);
                return false;
            }
        }
        let made = CString::new(target)
            .map_err(io::Error::from)
            .and_then(|target| self.place_link(pair, target, self.options.force || pair.replace));
        match made {
            Ok(_) => true,
            Err(e) => self.fail_two(What::SymbolicLink, &pair.dst.shown, &pair.src.shown, Some(e)),
        }
    }

    fn symbolic_link(&mut self, pair: &Pair<'_>) -> bool {
        let read = pair.src.place(errno::EINVAL).and_then(|(folder, name)| folder.dir.read_link(name));
        let target = match read {
            Ok(target) => target,
            Err(e) => return self.fail(What::ReadLink, &pair.src.shown, e),
        };
        match self.place_link(pair, target, self.options.force || pair.replace) {
            Ok(landed) => self.tell_lost(pair, landed),
            Err(e) => self.fail(What::BareSymbolicLink, &pair.dst.shown, e),
        }
    }

    fn place_link(&mut self, pair: &Pair<'_>, target: CString, replace: bool) -> io::Result<Landed> {
        let info = Info { kind: Kind::Link, ..pair.info };
        self.place_small(pair, Body::Link(target), info, replace)
    }

    /// Something without content, under its name.
    fn place_small(
        &mut self,
        pair: &Pair<'_>,
        body: Body<'_, crate::disk::sys::Sys>,
        info: Info,
        replace: bool,
    ) -> io::Result<Landed> {
        let (folder, name) = pair.dst.new_place(errno::ENOENT)?;
        if !replace && folder.dir.look(name)?.is_some() {
            return Err(io::Error::from_raw_os_error(errno::EEXIST));
        }
        let (src_folder, src_name) = pair.src.place(errno::EINVAL)?;
        let attributes = Attributes::At(&src_folder.dir, src_name);
        let mut job = Job::new(name, folder.stage().map_err(fault_error)?, info, None, body, attributes);
        job.only_new = !replace;
        let mut keep = self.keep_for(folder);
        if self.options.content == Content::SymbolicLink {
            keep.preserve = crate::policy::Preserve::NONE;
        } else if info.kind != Kind::Link {
            (job.info, keep.preserve) = self.final_mode(&info, &keep);
        }
        let mut landed = self.single.land(folder, job, &keep, None, None);
        match landed.fault.take() {
            Some(fault) => Err(fault_error(fault)),
            None => Ok(landed),
        }
    }

    /// The mode that a new thing is to have, as one that is given: sealing sets it after its owner.
    pub(super) fn final_mode(&self, info: &Info, keep: &Keep) -> (Info, crate::policy::Preserve) {
        let mut preserve = keep.preserve;
        let mut info = *info;
        if self.options.plain_mode {
            info.mode = if info.kind == Kind::Dir { 0o777 } else { 0o666 };
        }
        if !preserve.mode && preserve.owner {
            info.mode &= 0o777 & !keep.umask;
            preserve.mode = true;
        }
        (info, preserve)
    }

    fn special(&mut self, pair: &Pair<'_>) -> bool {
        let what = if pair.info.kind == Kind::Fifo { What::Fifo } else { What::Special };
        match self.place_small(pair, Body::Special, pair.info, pair.replace) {
            Ok(landed) => self.tell_lost(pair, landed),
            Err(e) => self.fail(what, &pair.dst.shown, e),
        }
    }

    fn tell_lost(&mut self, pair: &Pair<'_>, landed: Landed) -> bool {
        self.tell_lost_of(&pair.src.shown, &pair.dst.shown, landed.lost)
    }

    /// Tells what was not kept; whether that is no failure.
    pub(super) fn tell_lost_of(&mut self, src: &Path, dst: &Path, lost: Vec<Fault>) -> bool {
        let install = self.options.purpose == Purpose::Install;
        let mut fine = true;
        for fault in lost {
            if fault.note == Some(Reason::SetidLeftOut) {
                // Where the owner was to be kept and could not be, GNU says nothing either.
                if !self.options.preserve.owner {
                    self.refuse(What::SetidLeftOut, dst);
                }
                continue;
            }
            let attributes =
                matches!(fault.op, Op::SetAttributesOf | Op::ReadAttributesOf | Op::RemoveAttributesOf);
            let unsupported = fault
                .source
                .as_ref()
                .is_some_and(|e| matches!(e.raw_os_error(), Some(errno::EOPNOTSUPP | errno::EPERM)));
            if attributes && unsupported && !self.options.require_xattr {
                continue;
            }
            let what = match fault.op {
                Op::SetTimesOf => What::Times,
                Op::SetModeOf if install => What::SetMode,
                Op::SetModeOf => What::Mode,
                Op::SetOwnerOf if install => What::SetOwner,
                Op::SetOwnerOf => What::Owner,
                Op::RemoveUnfinished => What::Remove,
                _ => What::Attributes,
            };
            let path = if fault.side == Side::Source { src } else { dst };
            fine = self.fail(what, path, fault_error(fault));
        }
        fine
    }

    // ---- directories

    fn directory(&mut self, pair: &Pair<'_>) -> Done {
        let (src, dst) = (pair.src, pair.dst);
        if pair.up.is_some_and(|up| up.has(pair.info.id())) {
            return self.refuse(What::Cycle, &src.shown);
        }
        let made = pair.there.is_none_or(|there| there.kind != Kind::Dir);
        let keep = |folder: &Folder, copier: &Self| {
            let keep = copier.keep_for(folder);
            Keep { was_there: !made, ..keep }
        };
        if made && let Err(e) = self.make_one(pair, &keep) {
            return Done::of(self.fail(What::MakeDir, &dst.shown, e));
        }
        let into = match dst.open_dir(self.options.keep_dir_links) {
            Ok(dir) => Arc::new(Folder::new(dir)),
            Err(e) => return Done::of(self.fail(What::MakeDir, &dst.shown, e)),
        };
        if made {
            if !self.first_dir {
                self.first_dir = true;
                if let Ok(info) = into.dir.info() {
                    self.copied.insert(info.id(), dst.shown.clone());
                }
            }
            if self.options.verbose {
                self.teller.did(Did::Copied { src: &src.shown, dst: &dst.shown, backup: None });
            }
        }
        if self.options.one_file_system && !pair.operand && pair.info.dev != pair.device {
            return Done::of(self.seal_dir(pair, None, &into, &keep));
        }
        let opened = src.open_dir(pair.follow).and_then(|dir| {
            let names = list(&dir)?;
            Ok((Arc::new(Folder::new(dir)), names))
        });
        let (from, names) = match opened {
            Ok(opened) => opened,
            Err(e) => {
                self.fail(What::Access, &src.shown, e);
                self.seal_dir(pair, None, &into, &keep);
                return Done::Failed;
            }
        };
        let up = Up { id: pair.info.id(), above: pair.up };
        let mut all = Done::Fine;
        for name in names {
            if self.options.cancel.is_set() {
                all = Done::Failed;
                break;
            }
            let src = Spot::child(&from, name.as_name(), join(&src.shown, name.bytes()));
            let dst = Spot::child(&into, name.as_name(), join(&dst.shown, name.bytes()));
            match self.item(&src, &dst, Some(&up), false, pair.device) {
                Done::IntoItself => {
                    all = Done::IntoItself;
                    break;
                }
                Done::Failed => all = Done::Failed,
                Done::Fine | Done::InPlace => {}
            }
        }
        let sealed = self.seal_dir(pair, Some(&from), &into, &keep);
        if all == Done::Fine { Done::of(sealed) } else { all }
    }

    fn make_one(&mut self, pair: &Pair<'_>, keep: &dyn Fn(&Folder, &Self) -> Keep) -> io::Result<()> {
        let (folder, name) = pair.dst.place(errno::EEXIST)?;
        let (info, preserve) = self.final_mode(&pair.info, &keep(folder, self));
        let keep = Keep { preserve, ..keep(folder, self) };
        self.single.make_dir(folder, name, keep.born_as(info.mode))
    }

    fn seal_dir(
        &mut self,
        pair: &Pair<'_>,
        from: Option<&Arc<Folder>>,
        into: &Arc<Folder>,
        keep: &dyn Fn(&Folder, &Self) -> Keep,
    ) -> bool {
        // What cannot be read still has attributes, by its name.
        let place = pair.src.place(errno::EINVAL);
        let attributes = match (from, &place) {
            (Some(from), _) => Attributes::Dir(&from.dir),
            (None, Ok((folder, name))) => Attributes::At(&folder.dir, *name),
            (None, Err(_)) => Attributes::Dir(&into.dir),
        };
        let keep = keep(into, self);
        let (info, preserve) = self.final_mode(&pair.info, &keep);
        let keep = Keep { preserve: if keep.was_there { keep.preserve } else { preserve }, ..keep };
        if keep.was_there && keep.preserve == crate::policy::Preserve::NONE {
            return true;
        }
        let bare = (self.options.plain_mode && !keep.was_there).then_some(info.mode & !keep.umask);
        let lost = self.single.seal_dir(&into.dir, attributes, &info, &keep, bare);
        self.tell_lost_of(&pair.src.shown, &pair.dst.shown, lost)
    }

    // ---- --parents

    /// `--parents`: the directories in front of the source's last name are made below the target as they are.
    fn below(&mut self, source: &Path, target: &Path, to: &Path) -> bool {
        let source_bytes = trimmed(source);
        let inner = source_bytes.iter().position(|b| *b != b'/').and_then(|at| source_bytes.get(at..));
        let inner = inner.unwrap_or_default();
        let ends: Vec<usize> = inner
            .iter()
            .enumerate()
            .filter(|(at, b)| **b == b'/' && inner.get(at + 1) != Some(&b'/'))
            .map(|(at, _)| at)
            .collect();
        let offset = source_bytes.len() - inner.len();
        let mut made = Vec::new();
        for end in ends {
            let below = inner.get(..end).unwrap_or_default();
            let src_path =
                Path::new(std::ffi::OsStr::from_bytes(source_bytes.get(..offset + end).unwrap_or_default()));
            let dst_path = join(target, below);
            let (src, dst) = (Spot::of(src_path), Spot::of(&dst_path));
            let info = match src.look(true) {
                Ok(info) => info,
                Err(e) => {
                    self.fail(What::Parents, src_path, e);
                    return false;
                }
            };
            if info.kind != Kind::Dir {
                let e = io::Error::from_raw_os_error(errno::ENOTDIR);
                self.fail(What::Parents, src_path, e);
                return false;
            }
            match dst.look(true) {
                Ok(there) if there.kind == Kind::Dir => {}
                Ok(_) => {
                    let e = io::Error::from_raw_os_error(errno::ENOTDIR);
                    self.fail(What::MakeDir, &dst_path, e);
                    return false;
                }
                Err(_) => {
                    let pair = Pair {
                        src: &src,
                        dst: &dst,
                        info,
                        there: None,
                        follow: true,
                        operand: false,
                        up: None,
                        device: 0,
                        replace: false,
                        backup: None,
                    };
                    let keep = |folder: &Folder, copier: &Self| copier.keep_for(folder);
                    if let Err(e) = self.make_one(&pair, &keep) {
                        self.fail(What::MakeDir, &dst_path, e);
                        return false;
                    }
                    if self.options.verbose {
                        self.teller.did(Did::Parent { src: src_path, dst: &dst_path });
                    }
                    made.push((src, dst, info));
                }
            }
        }
        let mut fine = self.operand(source, to);
        for (src, dst, info) in made {
            let Ok(dir) = dst.open_dir(false) else { continue };
            let into = Arc::new(Folder::new(dir));
            let pair = Pair {
                src: &src,
                dst: &dst,
                info,
                there: None,
                follow: true,
                operand: false,
                up: None,
                device: 0,
                replace: false,
                backup: None,
            };
            let keep = |folder: &Folder, copier: &Self| copier.keep_for(folder);
            fine &= self.seal_dir(&pair, None, &into, &keep);
        }
        fine
    }

    // ---- install -d, -D

    fn make_dirs(&mut self, path: &Path, last_too: bool, given: Option<&super::Given>) -> bool {
        let bytes = path.as_os_str().as_bytes();
        let make = if given.is_some() { What::InstallMakeDir } else { What::MakeDir };
        if bytes.is_empty() {
            return !last_too || self.fail(make, path, io::Error::from_raw_os_error(errno::ENOENT));
        }
        let all = trimmed(path);
        let end = if last_too { all.len() } else { all.len() - last(path).len() };
        let ends = (0..=end).filter(|at| *at == end || all.get(*at) == Some(&b'/'));
        for at in ends.collect::<Vec<_>>() {
            let part = all.get(..at).unwrap_or_default();
            let shown = Path::new(std::ffi::OsStr::from_bytes(part));
            let name = last(shown);
            let is_last = last_too && at == end;
            let dots = matches!(name, b"." | b"..");
            if name.is_empty() || (dots && !is_last) || part.last() == Some(&b'/') {
                continue;
            }
            let spot = Spot::of(shown);
            match spot.look(true) {
                Ok(info) if info.kind == Kind::Dir => {
                    if is_last && let Some(given) = given {
                        return self.give_dir(&spot, path, given);
                    }
                    continue;
                }
                Ok(_) => {
                    let number = if is_last { errno::EEXIST } else { errno::ENOTDIR };
                    let shown = if is_last { path } else { shown };
                    return self.fail(make, shown, io::Error::from_raw_os_error(number));
                }
                Err(_) => {}
            }
            let made = spot.place(errno::EEXIST).and_then(|(folder, name)| {
                // Others reach it once it is what it is to be.
                let mode = given.filter(|_| is_last).map_or(0o755, |given| given.mode & 0o700);
                self.single.make_dir(folder, name, mode)
            });
            match made {
                Ok(()) if self.options.verbose => self.teller.did(Did::Installing(shown)),
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(errno::EEXIST) => {}
                Err(e) => {
                    // What cannot be made may have been there, and then it is its mode that could not be set.
                    let missing = e.raw_os_error() == Some(errno::ENOENT);
                    return match spot.look(true) {
                        Err(l) if is_last && !missing && given.is_some() => {
                            self.fail(What::InstallMode, shown, l)
                        }
                        _ => self.fail(make, shown, e),
                    };
                }
            }
            match given.filter(|_| is_last) {
                Some(given) => return self.give_dir(&spot, path, given),
                // Whatever the umask, others may pass.
                None => {
                    if let Ok(dir) = spot.open_dir(true)
                        && let Err(e) = fastcopy::meta::set_mode(&dir, 0o755)
                    {
                        return self.fail(What::InstallMode, shown, e);
                    }
                }
            }
        }
        true
    }

    fn give_dir(&mut self, spot: &Spot, path: &Path, given: &super::Given) -> bool {
        use fastcopy::meta;
        // One that may not be read has no handle for these, but a name.
        let by_name = |e: &io::Error| e.raw_os_error() == Some(errno::EBADF);
        let set = || -> Result<(), (What, io::Error)> {
            let dir = spot.open_dir(true).map_err(|e| (What::InstallMode, e))?;
            if given.uid.is_some() || given.gid.is_some() {
                let owned = match meta::set_owner(&dir, given.uid, given.gid) {
                    Err(e) if by_name(&e) => spot.place(errno::EBADF).and_then(|(folder, name)| {
                        meta::set_owner_at(&folder.dir, name, given.uid, given.gid)
                    }),
                    other => other,
                };
                owned.map_err(|e| (What::InstallOwner, e))?;
            }
            let moded = match meta::set_mode(&dir, given.mode) {
                Err(e) if by_name(&e) => spot
                    .place(errno::EBADF)
                    .and_then(|(folder, name)| meta::set_mode_at(&folder.dir, name, given.mode)),
                other => other,
            };
            moded.map_err(|e| (What::InstallMode, e))
        };
        match set() {
            Ok(()) => true,
            Err((what, e)) => self.fail(what, path, e),
        }
    }
}

fn file_of<'p>(pair: &Pair<'p>) -> super::content::File<'p> {
    let Pair { src, dst, info, there, follow, replace, .. } = *pair;
    super::content::File { src, dst, info, there, follow, replace }
}

/// A path without slashes behind it.
fn trimmed(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|b| *b != b'/').map_or(usize::from(!bytes.is_empty()), |at| at + 1);
    bytes.get(..end).unwrap_or_default()
}

/// The names in a directory, in the order of their inodes.
fn list(dir: &Dir) -> io::Result<Vec<NameBuf>> {
    let mut names = Vec::new();
    dir.list(&mut ListBuffer::new(), |entry| {
        names.push((entry.ino, entry.name.to_owned()));
        true
    })?;
    names.sort_by_key(|(ino, _)| *ino);
    Ok(names.into_iter().map(|(_, name)| name).collect())
}

/// Why a job did not land, as the system says it.
pub(super) fn fault_error(fault: Fault) -> io::Error {
    fault.source.unwrap_or_else(|| io::Error::from_raw_os_error(errno::EIO))
}
