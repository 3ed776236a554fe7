//! Copying, moving and installing, one thing after the other: what becomes of each, in the order in which it is told.
//!
//! Must not know how content is copied (`content`), nor how a file gets its name (`receiver::single`).

use super::backup;
use super::content;
use super::copier::{Copier, StepEnd, fault_error};
use super::far;
use super::new_tree;
use super::options::{Backup, Content, Onto, Options, Over, Program, Update};
use super::same::{self, Same};
use super::spot::{Spot, join, last, names_in, trimmed};
use super::step::{Ancestors, CopyStep};
use super::told::{Did, StepQuestion, Teller, What};
use crate::disk::{Attributes, Body, Fault, Job, Keep, Side};
use crate::error::Op;
use crate::policy::{Follow, Preserve};
use crate::receiver::single::{Folder, LandedOne};
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{self, Info, Kind};
use fastcopy::stack::{self, StackRoom};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Copies. Whether all was done.
pub fn copy(sources: &[PathBuf], target: &Onto, options: &Options, teller: &mut (dyn Teller + Send)) -> bool {
    let mut run = |room| Copier::new(options, teller, sources.len(), room).run(sources, target);
    // Only what goes down into directories needs more than there is.
    if options.recursive && options.purpose == Program::Copy {
        stack::deep(run)
    } else {
        run(StackRoom::here())
    }
}

/// Moves. Whether all was done.
pub fn move_(
    sources: &[PathBuf],
    target: &Onto,
    options: &Options,
    teller: &mut (dyn Teller + Send),
) -> bool {
    copy(sources, target, options, teller)
}

impl Copier<'_> {
    fn run(&mut self, sources: &[PathBuf], target: &Onto) -> bool {
        // It is opened once: what becomes of its name meanwhile leads nowhere else.
        let into = match target {
            Onto::Into(dir) => Dir::open(dir).ok().map(|dir| Arc::new(Folder::new(dir))),
            Onto::Name(_) | Onto::Below(_) => None,
        };
        let mut fine = true;
        for source in sources {
            if self.options.cancel.is_set() {
                return false;
            }
            let to = match target {
                Onto::Name(name) => name.clone(),
                // `..` of a source is not made in the target: its content goes there.
                Onto::Into(dir) if last(source) == b".." && self.options.purpose == Program::Copy => {
                    join(dir, b".")
                }
                Onto::Into(dir) => join(dir, last(source)),
                Onto::Below(dir) => join(dir, trimmed(source)),
            };
            fine &= match target {
                Onto::Below(dir) => self.below(source, dir, &to),
                _ => {
                    let dst = match (&into, NameBuf::new(last(source))) {
                        (Some(into), Some(name)) => Spot::child(into, name.as_name(), to),
                        _ => Spot::of(&to),
                    };
                    self.operand_at(&Spot::of(source), &dst)
                }
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
        self.below_made = false;
        if self.options.purpose == Program::Move {
            return self.moved(src, dst);
        }
        !self.item(src, dst, None, true, 0).is_failed()
    }

    /// One thing, and for a directory all below it.
    pub(super) fn item(
        &mut self,
        src: &Spot,
        dst: &Spot,
        up: Option<&Ancestors<'_>>,
        operand: bool,
        device: u64,
    ) -> StepEnd {
        if let Some(done) = self.too_deep(src) {
            return done;
        }
        let follow = self.follows(operand);
        let info = match src.look(follow) {
            Ok(info) => info,
            Err(e) => return StepEnd::of(self.fail(What::Stat, &src.shown, e)),
        };
        let is_dir = info.kind == Kind::Dir;
        if is_dir && !self.options.recursive {
            let install = self.options.purpose == Program::Install;
            return self.refuse(if install { What::InstallOmitted } else { What::Omitted }, &src.shown);
        }
        if operand && !is_dir && self.options.backup == Backup::None {
            let seen = (src.key(), info.id());
            if self.sources.as_mut().is_some_and(|sources| !sources.insert(seen)) {
                self.refuse(What::FileTwice, &src.shown);
                return StepEnd::Fine;
            }
        }
        let device = if operand { info.dev } else { device };
        let mut pair = CopyStep {
            src,
            dst,
            info,
            there: None,
            follow,
            operand,
            leads: false,
            up,
            device,
            replace: false,
            backup: None,
            once_more: false,
        };
        if let Ok(there) = dst.look(false)
            && content::is_installed(self, &file_of(&pair), &there)
        {
            return StepEnd::InPlace;
        }
        if let Err(done) = self.look_at_destination(&mut pair) {
            return done;
        }
        if operand
            && self.options.purpose != Program::Move
            && self.options.backup == Backup::None
            && let Ok(there) = dst.look(false)
            && there.kind == Kind::Link
            && self.was_created(dst, &there)
        {
            return StepEnd::of(self.fail_two(What::ThroughJustCreated, &dst.shown, &src.shown, None));
        }
        if self.options.verbose && !is_dir && self.options.purpose != Program::Move {
            let backup = pair.backup.as_ref().map(|spot| spot.shown.as_path());
            self.teller.did(Did::Copied { src: &src.shown, dst: &dst.shown, backup });
        }
        let is_move = self.options.purpose == Program::Move;
        let done = self.carry_out(&mut pair);
        let has_failed = done.is_failed();
        // A file whose source could not be removed behind it is there all the same.
        let is_left =
            |now: &Info| is_move && !is_dir && pair.there.is_none_or(|there| there.id() != now.id());
        if operand
            && let Some(created) = self.created.as_mut()
            && let Ok(now) = dst.look(false)
            && (!has_failed || is_left(&now))
        {
            created.insert((dst.key(), now.id()));
        }
        if has_failed {
            self.undo_backup(&pair);
            // Further names of it do not become links to what is not there.
            let id = pair.info.id();
            if !is_dir && self.copied.get(&id) == Some(&dst.shown) {
                self.copied.remove(&id);
            }
        }
        done
    }

    /// Does what was decided. Where another process has taken the name meanwhile it is decided once more, as if the name had
    /// been there from the beginning.
    fn carry_out(&mut self, pair: &mut CopyStep<'_>) -> StepEnd {
        let done = match self.earlier(pair) {
            Ok(earlier) if self.options.purpose == Program::Move => self.moving(pair, earlier.as_deref()),
            Ok(Some(earlier)) => StepEnd::of(self.link_to(pair, &earlier)),
            Err(done) => done,
            Ok(None) => self.make(pair),
        };
        if done != StepEnd::Taken {
            return done;
        }
        pair.once_more = true;
        if let Err(done) = self.look_at_destination(pair) {
            // Nothing of it landed.
            self.copied.remove(&pair.info.id());
            return done;
        }
        if self.options.purpose == Program::Move { self.moving(pair, None) } else { self.make(pair) }
    }

    /// What becomes of something that could not be made: it is told, unless it is that its name was free a moment ago.
    fn unmade(pair: &CopyStep<'_>, e: io::Error, tell: impl FnOnce(io::Error) -> bool) -> StepEnd {
        if pair.may_be_taken() && e.raw_os_error() == Some(errno::EEXIST) {
            StepEnd::Taken
        } else {
            StepEnd::of(tell(e))
        }
    }

    /// Where the stack ends: what is deeper is an error, as a path that is too long is one for GNU's.
    pub(super) fn too_deep(&mut self, src: &Spot) -> Option<StepEnd> {
        if self.room.is_left() {
            return None;
        }
        let e = io::Error::from_raw_os_error(errno::ENAMETOOLONG);
        Some(StepEnd::of(self.fail(What::Stat, &src.shown, e)))
    }

    fn was_created(&self, dst: &Spot, there: &Info) -> bool {
        self.created.as_ref().is_some_and(|created| created.contains(&(dst.key(), there.id())))
    }

    /// Whether the destination is looked at as the link that it may be.
    fn looks_at_link(&self, info: &Info) -> bool {
        let o = self.options;
        let kind = info.kind;
        (kind != Kind::File && (!self.as_regular() || matches!(kind, Kind::Dir | Kind::Link)))
            || o.purpose == Program::Move
            || matches!(o.content, Content::HardLink | Content::SymbolicLink)
            || o.backup != Backup::None
            || o.unlink_first
    }

    /// What is at the destination, and whether it may be replaced. `Err`: that is all for this one.
    fn look_at_destination(&mut self, pair: &mut CopyStep<'_>) -> Result<(), StepEnd> {
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
                Some(errno::ELOOP) if self.options.force && !as_link => match dst.look(false) {
                    Ok(there) => there,
                    Err(e) => return Err(StepEnd::of(self.fail(What::Stat, &dst.shown, e))),
                },
                _ => return Err(StepEnd::of(self.fail(What::Stat, &dst.shown, e))),
            },
        };
        pair.there = Some(there);
        let stays = self.options.over == Over::Never;
        if stays && (self.options.purpose == Program::Move || pair.info.kind != Kind::Dir) {
            return Err(StepEnd::InPlace);
        }
        // What replaces nothing does no harm to itself.
        let same = if stays { Same::Fine } else { same::check(src, dst, &pair.info, &there, self.options) };
        match same {
            Same::Fine => {}
            Same::Nothing => {
                // It is asked about all the same.
                self.may_replace(pair, &there)?;
                return Err(StepEnd::InPlace);
            }
            Same::Refused => {
                return Err(StepEnd::of(self.fail_two(What::SameFile, &src.shown, &dst.shown, None)));
            }
        }
        let (from_dir, to_dir) = (pair.info.kind == Kind::Dir, there.kind == Kind::Dir);
        self.may_replace(pair, &there)?;
        let with_backup = self.options.purpose == Program::Move && self.options.backup != Backup::None;
        if !from_dir {
            if to_dir && !with_backup {
                return Err(self.refuse(What::FileOverDir, &dst.shown));
            }
            if pair.operand && self.options.backup != Backup::Numbered && self.was_created(dst, &there) {
                return Err(StepEnd::of(self.fail_two(What::JustCreated, &dst.shown, &src.shown, None)));
            }
        }
        if !to_dir && from_dir && !with_backup {
            return Err(StepEnd::of(self.fail_two(What::DirOverFile, &dst.shown, &src.shown, None)));
        }
        self.clear_the_name(pair, &there)
    }

    /// `-u`, `-n`, `-i`, and what `mv` asks at a terminal.
    fn may_replace(&mut self, pair: &CopyStep<'_>, there: &Info) -> Result<(), StepEnd> {
        let is_dir = pair.info.kind == Kind::Dir;
        if !is_dir {
            match self.options.update {
                Update::All => {}
                Update::Older if there.mtime < pair.info.mtime => {}
                Update::Older => return Err(self.name_of_earlier(pair, there)),
                Update::None => return Err(StepEnd::InPlace),
                Update::NoneFail => return Err(self.refuse(What::NotReplacing, &pair.dst.shown)),
            }
        }
        let asks = match (self.options.over, self.options.purpose) {
            (Over::Never, Program::Move) => return Err(StepEnd::InPlace),
            (Over::Never, _) if !is_dir => return Err(StepEnd::InPlace),
            (Over::Ask, Program::Move) => true,
            (Over::Ask, _) => !is_dir,
            (Over::Unsaid, Program::Move) => self.options.stdin_tty && !self.is_writable(pair.dst, there),
            _ => false,
        };
        if asks && !self.asked(pair.dst, there) {
            return Err(StepEnd::InPlace);
        }
        Ok(())
    }

    /// What is not older stays; but where the source is another name of what landed before, and what is there has the content
    /// of that, it becomes another name too.
    fn name_of_earlier(&mut self, pair: &CopyStep<'_>, there: &Info) -> StepEnd {
        if self.options.purpose == Program::Move || there.kind != Kind::File {
            return StepEnd::InPlace;
        }
        match self.earlier(pair) {
            Ok(Some(earlier)) if content::is_same(self, &Spot::of(&earlier), pair.dst, there.size) => {
                StepEnd::of(self.link_to(pair, &earlier))
            }
            Ok(earlier) => {
                // Further names are none of what is newer and something else.
                if earlier.is_none() && !content::is_same(self, pair.src, pair.dst, there.size) {
                    self.copied.remove(&pair.info.id());
                }
                StepEnd::InPlace
            }
            Err(done) => done,
        }
    }

    fn is_writable(&self, dst: &Spot, there: &Info) -> bool {
        there.kind == Kind::Link
            || self.options.me == 0
            || match dst.place(errno::EBUSY) {
                Ok((folder, name)) => folder.dir.check_write(name).is_ok(),
                // A dot.
                Err(_) => dst.folder().is_ok_and(|folder| folder.dir.check_write_here().is_ok()),
            }
    }

    fn asked(&mut self, dst: &Spot, there: &Info) -> bool {
        let path = dst.shown.as_path();
        if self.is_writable(dst, there) {
            return self.teller.ask(StepQuestion::Overwrite(path));
        }
        let o = self.options;
        let replace = o.purpose == Program::Move || o.unlink_first || o.force;
        self.teller.ask(StepQuestion::OverwriteUnwritable {
            path,
            kind: there.kind,
            mode: there.mode,
            replace,
        })
    }

    /// Keeps what is there under another name, or decides that it goes.
    fn clear_the_name(&mut self, pair: &mut CopyStep<'_>, there: &Info) -> Result<(), StepEnd> {
        let o = self.options;
        let (src, dst) = (pair.src, pair.dst);
        let dots = matches!(last(&src.shown), b"." | b"..");
        if o.backup != Backup::None && !dots && (o.purpose == Program::Move || there.kind != Kind::Dir) {
            if backup::takes_source(src, dst, o) {
                let is_move = o.purpose == Program::Move;
                let what = if is_move { What::BackupDestroysNotMoved } else { What::BackupDestroysNotCopied };
                return Err(StepEnd::of(self.fail_two(what, &dst.shown, &src.shown, None)));
            }
            match self.back_up(pair, there) {
                Ok(kept) => {
                    pair.replace = matches!(kept, Some((_, Original::Stays)));
                    // Of a move that goes wrong it is not what has landed.
                    pair.there = pair.there.filter(|_| pair.replace && o.purpose == Program::Move);
                    pair.backup = kept.map(|(spot, _)| spot);
                }
                Err(e) => return Err(StepEnd::of(self.fail(What::Backup, &dst.shown, e))),
            }
        } else if there.kind != Kind::Dir
            && o.purpose != Program::Move
            && (o.unlink_first
                || (o.content != Content::AttributesOnly
                    && ((o.preserve.links && there.nlink > 1)
                        || (o.follow == Follow::Never && pair.info.kind != Kind::File))))
        {
            // It goes by the rename that brings the new one, so that the name is never free.
            pair.replace = true;
            pair.there = None;
            if let Ok((folder, _)) = dst.place(errno::EBUSY)
                && let Err(e) = folder.dir.check_write_here().and_then(|()| self.check_sticky(folder, there))
            {
                return Err(StepEnd::of(self.fail(What::Remove, &dst.shown, e)));
            }
            if o.verbose {
                self.teller.did(Did::Removed(&dst.shown));
            }
        }
        Ok(())
    }

    /// In a sticky directory a name goes only with its owner's leave, or the directory's; where names stay, none does.
    fn check_sticky(&self, folder: &Folder, there: &Info) -> io::Result<()> {
        if folder.flags().keep_names() {
            return Err(io::Error::from_raw_os_error(errno::EPERM));
        }
        let above = folder.dir.info()?;
        let free = above.mode & 0o1000 == 0 || [0, above.uid, there.uid].contains(&self.options.me);
        if free { Ok(()) } else { Err(io::Error::from_raw_os_error(errno::EPERM)) }
    }

    /// The new name of what was there, and whether it has its old one still; `None` when it has gone meanwhile.
    fn back_up(&mut self, pair: &CopyStep<'_>, there: &Info) -> io::Result<Option<(Spot, Original)>> {
        let dst = pair.dst;
        if dst.is_link_with_slash() {
            return Err(io::Error::from_raw_os_error(errno::ENOTDIR));
        }
        let mut taken = 0;
        loop {
            let name = backup::name_for(dst, self.options, taken)?;
            let backup::BackupName { spot: kept, number, is_cut } = name;
            let only_new = number.is_some();
            let (from, to) = (dst.place(errno::EBUSY)?, kept.place(errno::EBUSY)?);
            // Where there are no links the rename must do.
            if self.may_stay(pair, there) && self.single.second_name(from, to, only_new).is_ok() {
                return Ok(Some((kept, Original::Stays)));
            }
            match self.single.give_name(from, to, only_new) {
                Ok(()) => return Ok(Some((kept, Original::Renamed))),
                Err(e) if e.raw_os_error() == Some(errno::ENOENT) => return Ok(None),
                // Where the directory may not be listed, this is how it is known.
                Err(e) if only_new && !is_cut && e.raw_os_error() == Some(errno::EEXIST) => {
                    taken = number.unwrap_or(taken);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether what is backed up may keep its name until the new thing takes that by a rename.
    fn may_stay(&self, pair: &CopyStep<'_>, there: &Info) -> bool {
        let Ok((folder, _)) = pair.dst.place(errno::EBUSY) else { return false };
        // rename(2) of one name over another of the same file does nothing, and what comes from another file system is for
        // a verb that knows no backups.
        let moved_over = || {
            let of_files = there.kind == Kind::File && pair.info.kind == Kind::File;
            let is_near = folder.dir.info().is_ok_and(|above| above.dev == pair.info.dev);
            of_files && is_near && there.id() != pair.info.id()
        };
        there.kind != Kind::Dir
            && (self.options.purpose != Program::Move || moved_over())
            && self.check_sticky(folder, there).is_ok()
    }

    fn undo_backup(&mut self, pair: &CopyStep<'_>) {
        let Some(kept) = &pair.backup else { return };
        let (Ok(from), Ok(to)) = (kept.place(errno::EBUSY), pair.dst.place(errno::EBUSY)) else { return };
        let undone = match pair.dst.look(false) {
            Ok(now) if kept.look(false).is_ok_and(|old| old.id() == now.id()) => self.single.unlink(from),
            // What landed stays, also where something of it could not be kept.
            Ok(_) => return,
            Err(_) => self.single.give_name(from, to, true),
        };
        match undone {
            Ok(()) if self.options.verbose => {
                self.teller.did(Did::Restored { backup: &kept.shown, dst: &pair.dst.shown });
            }
            Ok(()) => {}
            Err(e) => {
                let dst = pair.dst.shown.clone();
                self.fail(What::Backup, &dst, e);
            }
        }
    }

    /// Where the same source landed before. `Err`: that is all for this one.
    fn earlier(&mut self, pair: &CopyStep<'_>) -> Result<Option<PathBuf>, StepEnd> {
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
            // A link to the directory above is another place, although it leads there.
            let by_link = o.follow != Follow::Always && pair.src.is_below_a_link();
            if !by_link && pair.src.is_same_name(&before) {
                let (src, dst) = self.top.clone();
                self.fail_two(What::IntoItself, &src, &dst, None);
                return Err(StepEnd::IntoItself);
            }
            if pair.dst.is_same_name(&before) {
                let src = self.top.0.clone();
                self.refuse(What::DirTwice, &src);
                return Err(StepEnd::Fine);
            }
            if o.follow == Follow::Always || (pair.operand && o.follow == Follow::Operands) {
                return Ok(None);
            }
            return Err(StepEnd::of(self.fail_two(What::LinkToDir, &pair.dst.shown, &earlier, None)));
        }
        let many = pair.info.nlink > 1
            || o.follow == Follow::Always
            || (pair.operand && o.follow == Follow::Operands);
        // A move has taken the other names away, so that the last one is alone.
        if o.preserve.links && o.content != Content::HardLink && (many || o.purpose == Program::Move) {
            if let Some(earlier) = self.copied.get(&id) {
                return Ok(Some(earlier.clone()));
            }
            if many {
                self.copied.insert(id, pair.dst.shown.clone());
            }
        }
        Ok(None)
    }

    fn link_to(&mut self, pair: &CopyStep<'_>, earlier: &Path) -> bool {
        let from = Spot::of(earlier);
        self.second_name(pair, &from, true)
            .map_or_else(|e| self.fail_two(What::HardLink, &pair.dst.shown, earlier, Some(e)), |()| true)
    }

    /// A second name for what `from` is.
    fn second_name(&mut self, pair: &CopyStep<'_>, from: &Spot, replace: bool) -> io::Result<()> {
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
        let place = folder.place(false).map_err(fault_error)?;
        let mut job = Job::new(name, place, info, there, body, attributes);
        job.only_new = !(replace || pair.replace);
        let keep = self.keep_for(folder);
        self.single
            .land(folder, job, &keep, None, None, None)
            .fault
            .map_or(Ok(()), |fault| Err(fault_error(fault)))
    }

    // ---- moving

    fn moved(&mut self, src: &Spot, dst: &Spot) -> bool {
        if self.options.exchange {
            return self.change_places(src, dst);
        }
        // The kernel says that a name is taken before it says that a slash behind another one is wrong.
        if self.options.over == Over::Never
            && let (Ok((from, from_name)), Ok((to, to_name))) =
                (src.place(errno::EBUSY), dst.place(errno::EBUSY))
            && let (Ok(own), Ok(Some(_))) = (from.dir.stat(from_name), to.dir.look(to_name))
            && to.dir.info().is_ok_and(|above| above.dev == own.dev)
        {
            return true;
        }
        if self.is_wrong_as_typed(src, dst) {
            let e = io::Error::from_raw_os_error(errno::ENOTDIR);
            return self.fail_two(What::Move, &src.shown, &dst.shown, Some(e));
        }
        // Most are moved by one call, to a name that is free.
        if self.options.backup == Backup::None
            && !src.has_slash()
            && !dst.has_slash()
            && self.created.is_none()
            && let (Ok(from), Ok(to)) = (src.place(errno::EBUSY), dst.place(errno::EBUSY))
            && self.single.give_name(from, to, true).is_ok()
        {
            if self.options.verbose {
                self.teller.did(Did::Renamed { src: &src.shown, dst: &dst.shown, backup: None });
            }
            return true;
        }
        !self.item(src, dst, None, true, 0).is_failed()
    }

    /// Whether names that were typed with slashes ask for a directory where there is none. They are tried with them where
    /// the new name is free, and else without.
    fn is_wrong_as_typed(&self, src: &Spot, dst: &Spot) -> bool {
        let Some((from, to)) = &self.options.typed else { return false };
        let with_slash = Spot::of(from).has_slash() || Spot::of(to).has_slash();
        let is_free = dst.look(false).is_err_and(|e| e.raw_os_error() == Some(errno::ENOENT));
        let here = dst.folder().and_then(|folder| folder.dir.info());
        with_slash
            && is_free
            && matches!((src.look(false), here), (Ok(own), Ok(here)) if own.kind != Kind::Dir && own.dev == here.dev)
    }

    fn change_places(&mut self, src: &Spot, dst: &Spot) -> bool {
        let places = src.place(errno::EBUSY).and_then(|from| Ok((from, dst.place(errno::EBUSY)?)));
        match places.and_then(|(from, to)| self.single.swap_names(from, to)) {
            Ok(()) => {
                if self.options.verbose {
                    self.teller.did(Did::Exchanged { src: &src.shown, dst: &dst.shown });
                }
                true
            }
            Err(e) => self.fail_two(What::Exchange, &src.shown, &dst.shown, Some(e)),
        }
    }

    /// What `mv` does once nothing speaks against it. `earlier`: another name of the same file was moved there.
    fn moving(&mut self, pair: &CopyStep<'_>, earlier: Option<&Path>) -> StepEnd {
        let (src, dst) = (pair.src, pair.dst);
        let backup = pair.backup.as_ref().map(|spot| spot.shown.as_path());
        // The directory that got another name may be one that the source is in: then its name leads nowhere.
        if backup.is_some() && !Spot::of(&src.shown).look(false).is_ok_and(|own| own.id() == pair.info.id()) {
            let e = io::Error::from_raw_os_error(errno::ENOENT);
            return StepEnd::of(self.fail_two(What::Move, &src.shown, &dst.shown, Some(e)));
        }
        // A slash behind a link means what it leads to, and a link is not renamed by that.
        let from = src.place(errno::EBUSY).and_then(|(folder, name)| {
            if !src.is_link_with_slash() {
                return Ok((folder, name));
            }
            let is_far = dst.folder()?.dir.info()?.dev != folder.dir.info()?.dev;
            Err(io::Error::from_raw_os_error(if is_far { errno::EXDEV } else { errno::ENOTDIR }))
        });
        let to = dst.place(errno::EBUSY).and_then(|place| {
            // A slash asks for a directory.
            let wrong = dst.has_slash() && pair.info.kind != Kind::Dir;
            if wrong { Err(io::Error::from_raw_os_error(errno::ENOTDIR)) } else { Ok(place) }
        });
        // The kernel finds both directories before it minds that a last name is none.
        let from = match (from, &to) {
            (Err(e), Err(other)) if e.raw_os_error() == Some(errno::EBUSY) => {
                Err(io::Error::from_raw_os_error(other.raw_os_error().unwrap_or(errno::EBUSY)))
            }
            (from, _) => from,
        };
        // Nothing but a directory can be made under such a name elsewhere either, and there it would have to be made.
        let read_only = dst.place(errno::EBUSY).and_then(|(folder, _)| folder.dir.check_write_here());
        let read_only = read_only.is_err_and(|e| e.raw_os_error() == Some(errno::EROFS));
        if dst.has_slash()
            && !read_only
            && pair.info.kind != Kind::Dir
            && dst.folder().and_then(|folder| folder.dir.info()).is_ok_and(|into| into.dev != pair.info.dev)
        {
            let what = What::unmade(pair.info.kind);
            let why = if pair.info.kind == Kind::File { errno::ENOTDIR } else { errno::ENOENT };
            if self.options.verbose {
                self.teller.did(Did::MovedByCopying { src: &src.shown, dst: &dst.shown, backup });
            }
            return StepEnd::of(self.fail(what, &dst.shown, io::Error::from_raw_os_error(why)));
        }
        let to = if read_only { dst.place(errno::EBUSY) } else { to };
        let renamed = from.and_then(|from| self.single.give_name(from, to?, false));
        let Err(e) = renamed else {
            if self.options.verbose {
                self.teller.did(Did::Renamed { src: &src.shown, dst: &dst.shown, backup });
            }
            return StepEnd::InPlace;
        };
        // It may be tried again by another operand, but not to go into itself.
        if !matches!(e.raw_os_error(), Some(errno::EXDEV | errno::EINVAL)) {
            self.copied.remove(&pair.info.id());
        }
        match e.raw_os_error() {
            Some(errno::EINVAL) => {
                StepEnd::of(self.fail_two(What::MoveIntoItself, &src.shown, &dst.shown, None))
            }
            Some(errno::EXDEV) if !self.options.no_copy => {
                if earlier.is_some_and(|earlier| self.moved_before(pair, earlier)) {
                    return StepEnd::InPlace;
                }
                self.move_far(pair)
            }
            _ => StepEnd::of(self.fail_two(What::Move, &src.shown, &dst.shown, Some(e))),
        }
    }

    /// A further name of a file that was copied to another file system becomes one there. `false`: it has to be copied.
    fn moved_before(&mut self, pair: &CopyStep<'_>, earlier: &Path) -> bool {
        let from = Spot::of(earlier);
        // What has changed since is another content, and the number may be another file's by now: it is read.
        let is_copy = pair.info.kind == Kind::File && content::is_same(self, pair.src, &from, pair.info.size);
        if !is_copy || self.second_name(pair, &from, true).is_err() {
            return false;
        }
        let removed = pair.src.place(errno::EBUSY).and_then(|(folder, name)| folder.dir.remove_file(name));
        match removed {
            Ok(()) if self.options.verbose => self.teller.did(Did::Removed(&pair.src.shown)),
            Ok(()) => {}
            Err(e) => {
                self.fail(What::Remove, &pair.src.shown, e);
            }
        }
        true
    }

    /// To another file system: copied, proved and then taken away, by the verb that does so.
    fn move_far(&mut self, pair: &CopyStep<'_>) -> StepEnd {
        let (src, dst) = (pair.src, pair.dst);
        let is_dir = pair.info.kind == Kind::Dir;
        if let Err(done) = self.make_way(pair) {
            // Named once more it is tried once more.
            self.copied.remove(&pair.info.id());
            return done;
        }
        let backup = pair.backup.as_ref().map(|spot| spot.shown.as_path());
        if self.options.verbose && !is_dir {
            self.teller.did(Did::MovedByCopying { src: &src.shown, dst: &dst.shown, backup });
        }
        let only_new = !is_dir && pair.may_be_taken() && !self.options.replaces();
        far::far((src, dst, &pair.info), only_new, self.options, self.teller)
    }

    /// Takes away what is at a name on another file system. `Err`: that is all for this one.
    fn make_way(&mut self, pair: &CopyStep<'_>) -> Result<(), StepEnd> {
        let (src, dst) = (pair.src, pair.dst);
        let is_dir = pair.info.kind == Kind::Dir;
        // What is there is replaced by a rename, which must be allowed as taking it away would have to be. Where nothing may
        // be written at all, taking away what is not there fails too.
        if let Ok((folder, _)) = dst.place(errno::EBUSY)
            && let Err(e) = folder.dir.check_write_here()
        {
            let in_the_way = pair.there.is_some() && !is_dir;
            if in_the_way || e.raw_os_error() == Some(errno::EROFS) {
                return Err(StepEnd::of(self.fail_two(What::InterDevice, &src.shown, &dst.shown, Some(e))));
            }
            if pair.there.is_none() {
                let what = What::unmade(pair.info.kind);
                if self.options.verbose && !is_dir {
                    let backup = pair.backup.as_ref().map(|spot| spot.shown.as_path());
                    self.teller.did(Did::MovedByCopying { src: &src.shown, dst: &dst.shown, backup });
                }
                return Err(StepEnd::of(self.fail(what, &dst.shown, e)));
            }
        }
        // By such a name GNU's takes away what is in the directory, and then not the directory: nothing is moved.
        if src.is_link_with_slash() {
            let not_empty = pair.there.is_some()
                && dst.open_dir(false).and_then(|dir| names_in(&dir)).is_ok_and(|names| !names.is_empty());
            return Err(StepEnd::of(if not_empty {
                let e = io::Error::from_raw_os_error(errno::ENOTEMPTY);
                self.fail_two(What::InterDevice, &src.shown, &dst.shown, Some(e))
            } else {
                self.fail(What::Remove, &src.shown, io::Error::from_raw_os_error(errno::ENOTDIR))
            }));
        }
        // A directory does not merge with what is there: that must be an empty one, and goes. So does a FIFO, a socket or a
        // device: the verb would not replace it, as what is copied there may be meant to go into it.
        if let Some(there) = pair.there.filter(|there| is_dir || there.kind.is_special()) {
            let removed = dst.place(errno::EBUSY).and_then(|(folder, name)| {
                if there.kind == Kind::Dir {
                    folder.dir.remove_dir(name)
                } else {
                    folder.dir.remove_file(name)
                }
            });
            if let Err(e) = removed
                && e.raw_os_error() != Some(errno::ENOENT)
            {
                return Err(StepEnd::of(self.fail_two(What::InterDevice, &src.shown, &dst.shown, Some(e))));
            }
        }
        Ok(())
    }

    // ---- making

    /// Makes what the source is. Whether all was done.
    fn make(&mut self, pair: &mut CopyStep<'_>) -> StepEnd {
        if pair.info.kind == Kind::Dir {
            return self.directory(pair);
        }
        self.make_file(pair)
    }

    fn make_file(&mut self, pair: &CopyStep<'_>) -> StepEnd {
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

    fn content(&mut self, pair: &CopyStep<'_>) -> StepEnd {
        match content::copy(self, &file_of(pair)) {
            content::FileEnd::Done(fine) => StepEnd::of(fine),
            content::FileEnd::Taken => StepEnd::Taken,
        }
    }

    /// `-l`.
    fn linked(&mut self, pair: &CopyStep<'_>) -> StepEnd {
        let replace = self.options.force || self.options.over == Over::Ask;
        // A link that is followed: the name that it leads to.
        let from = if pair.follow { pair.src.at_end_of_links() } else { Ok(pair.src.clone()) };
        match from.and_then(|from| self.second_name(pair, &from, replace)) {
            Ok(()) => StepEnd::Fine,
            Err(e) => Self::unmade(pair, e, |e| {
                self.fail_two(What::HardLink, &pair.dst.shown, &pair.src.shown, Some(e))
            }),
        }
    }

    /// `-s`.
    fn link_from(&mut self, pair: &CopyStep<'_>) -> StepEnd {
        let target = pair.src.shown.as_os_str().as_bytes();
        if target.first() != Some(&b'/') {
            let here = Spot::of(Path::new("x"));
            let id = |spot: &Spot| spot.folder().and_then(|f| f.dir.info()).map(|info| info.id()).ok();
            if id(pair.dst).is_some_and(|dst| Some(dst) != id(&here)) {
                return self.refuse(What::LinkOnlyHere, &pair.dst.shown);
            }
        }
        let made = CString::new(target)
            .map_err(io::Error::from)
            .and_then(|target| self.place_link(pair, target, self.options.force || pair.replace));
        match made {
            Ok(landed) => self.tell_lost(pair, landed),
            Err(e) => Self::unmade(pair, e, |e| {
                self.fail_two(What::SymbolicLink, &pair.dst.shown, &pair.src.shown, Some(e))
            }),
        }
    }

    fn symbolic_link(&mut self, pair: &CopyStep<'_>) -> StepEnd {
        let read = pair.src.place(errno::EINVAL).and_then(|(folder, name)| folder.dir.read_link(name));
        let target = match read {
            Ok(target) => target,
            Err(e) => return StepEnd::of(self.fail(What::ReadLink, &pair.src.shown, e)),
        };
        match self.place_link(pair, target, self.options.force || pair.replace) {
            Ok(landed) => self.tell_lost(pair, landed),
            Err(e) => Self::unmade(pair, e, |e| self.fail(What::BareSymbolicLink, &pair.dst.shown, e)),
        }
    }

    fn place_link(&mut self, pair: &CopyStep<'_>, target: CString, replace: bool) -> io::Result<LandedOne> {
        let info = Info { kind: Kind::Link, ..pair.info };
        self.place_small(pair, Body::Link(target), info, replace)
    }

    /// Something without content, under its name.
    fn place_small(
        &mut self,
        pair: &CopyStep<'_>,
        body: Body<'_, crate::disk::sys::Sys>,
        info: Info,
        replace: bool,
    ) -> io::Result<LandedOne> {
        let (folder, name) = pair.dst.new_place(errno::ENOENT)?;
        if !replace && folder.dir.look(name)?.is_some() {
            return Err(io::Error::from_raw_os_error(errno::EEXIST));
        }
        let (src_folder, src_name) = pair.src.place(errno::EINVAL)?;
        let attributes = Attributes::At(&src_folder.dir, src_name);
        let place = folder.place(false).map_err(fault_error)?;
        let mut job = Job::new(name, place, info, None, body, attributes);
        job.only_new = !replace;
        let mut keep = self.keep_for(folder);
        if self.options.content == Content::SymbolicLink {
            // It is no copy of what it leads to: it has that one's times with GNU's, and not its owner.
            keep.preserve = Preserve { times: keep.preserve.times, ..Preserve::NONE };
        } else if info.kind != Kind::Link {
            (job.info, keep.preserve) = self.final_mode(&info, &keep);
        }
        let mut landed = self.single.land(folder, job, &keep, None, None, None);
        match landed.fault.take() {
            Some(fault) => Err(fault_error(fault)),
            None => Ok(landed),
        }
    }

    fn special(&mut self, pair: &CopyStep<'_>) -> StepEnd {
        let what = What::unmade(pair.info.kind);
        match self.place_small(pair, Body::Special, pair.info, pair.replace) {
            Ok(landed) => self.tell_lost(pair, landed),
            Err(e) => Self::unmade(pair, e, |e| self.fail(what, &pair.dst.shown, e)),
        }
    }

    fn tell_lost(&mut self, pair: &CopyStep<'_>, landed: LandedOne) -> StepEnd {
        StepEnd::of(self.tell_lost_of(&pair.src.shown, &pair.dst.shown, landed.lost))
    }

    // ---- directories

    fn directory(&mut self, pair: &CopyStep<'_>) -> StepEnd {
        let (src, dst) = (pair.src, pair.dst);
        if pair.up.is_some_and(|up| up.has(pair.info.id())) {
            return self.refuse(What::Cycle, &src.shown);
        }
        if pair.operand && self.sources.is_some() {
            self.remember_above(src, pair.follow);
        }
        if let Some(done) = new_tree::copy(self, pair) {
            return done;
        }
        let made = pair.there.is_none_or(|there| there.kind != Kind::Dir);
        let keep = |folder: &Folder, copier: &Self| {
            let keep = copier.keep_for(folder);
            Keep { was_there: !made, ..keep }
        };
        if made && let Err(e) = self.make_one(pair, &keep) {
            // Named once more it is tried once more.
            if pair.operand {
                self.copied.remove(&pair.info.id());
            }
            return Self::unmade(pair, e, |e| self.fail(What::MakeDir, &dst.shown, e));
        }
        let into = match dst.open_dir(self.options.keep_dir_links) {
            Ok(dir) => Arc::new(Folder::new(dir)),
            Err(e) => return StepEnd::of(self.fail(What::MakeDir, &dst.shown, e)),
        };
        if made {
            if !self.below_made {
                self.below_made = true;
                if let Ok(info) = into.dir.info() {
                    self.copied.insert(info.id(), dst.shown.clone());
                }
            }
            if self.options.verbose {
                self.teller.did(Did::Copied { src: &src.shown, dst: &dst.shown, backup: None });
            }
        }
        if self.options.one_file_system && !pair.operand && pair.info.dev != pair.device {
            return StepEnd::of(self.seal_dir(pair, None, &into, &keep));
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
                return StepEnd::Failed;
            }
        };
        let up = Ancestors { id: pair.info.id(), above: pair.up };
        let mut all = StepEnd::Fine;
        let below_made = self.below_made;
        for name in names {
            self.below_made = below_made;
            if self.options.cancel.is_set() {
                all = StepEnd::Failed;
                break;
            }
            let src = Spot::child(&from, name.as_name(), join(&src.shown, name.bytes()));
            let dst = Spot::child(&into, name.as_name(), join(&dst.shown, name.bytes()));
            match self.item(&src, &dst, Some(&up), false, pair.device) {
                StepEnd::IntoItself => {
                    all = StepEnd::IntoItself;
                    break;
                }
                StepEnd::Failed | StepEnd::Taken => all = StepEnd::Failed,
                StepEnd::Fine | StepEnd::InPlace => {}
            }
        }
        let sealed = self.seal_dir(pair, Some(&from), &into, &keep);
        if all == StepEnd::Fine { StepEnd::of(sealed) } else { all }
    }

    fn make_one(&mut self, pair: &CopyStep<'_>, keep: &dyn Fn(&Folder, &Self) -> Keep) -> io::Result<()> {
        let (folder, name) = pair.dst.place(errno::EEXIST)?;
        let (info, preserve) = self.final_mode(&pair.info, &keep(folder, self));
        let keep = Keep { preserve, ..keep(folder, self) };
        self.single.new_dir(folder, name, keep.born_as(info.mode), keep.umask)
    }

    fn seal_dir(
        &mut self,
        pair: &CopyStep<'_>,
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
        let mut info = info;
        // What a directory above hands down stays, also where the mode is the source's: but not where that has bits of this
        // kind itself, which are then all that it has of them, if it gets its owner.
        let o = self.options;
        let is_owned = !o.preserve.owner || o.me == 0 || info.uid == o.me;
        let own_bits = o.preserve.mode && info.mode & 0o7000 != 0 && is_owned;
        let handed_down =
            !keep.was_there && !own_bits && into.dir.info().is_ok_and(|made| made.mode & 0o2000 != 0);
        if handed_down {
            info.mode |= 0o2000;
        }
        if keep.was_there && keep.preserve == Preserve::NONE {
            return true;
        }
        let bare =
            (self.options.plain_mode && !keep.was_there && !pair.leads).then_some(info.mode & !keep.umask);
        let mut lost = self.single.seal_dir(&into.dir, attributes, &info, &keep, bare);
        // Without its owner it was given none of these bits.
        if handed_down
            && !is_owned
            && let Ok(now) = into.dir.info()
            && now.mode & 0o2000 == 0
            && let Err(e) = meta::set_mode(&into.dir, now.mode | 0o2000)
        {
            lost.push(Fault::os(Side::Dest, Op::SetModeOf, e));
        }
        self.tell_lost_of(&pair.src.shown, &pair.dst.shown, lost)
    }

    /// Seals a directory that this run made.
    pub(super) fn seal_made(&mut self, pair: &CopyStep<'_>, from: &Arc<Folder>, into: &Arc<Folder>) -> bool {
        let keep = |folder: &Folder, copier: &Self| copier.keep_for(folder);
        self.seal_dir(pair, Some(from), into, &keep)
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
        // Where all of them are there, none gets anything.
        let last = ends.last().and_then(|end| inner.get(..*end)).unwrap_or_default();
        let are_there = Spot::of(&join(target, last)).look(true).is_ok_and(|there| there.kind == Kind::Dir);
        for end in ends {
            let below = inner.get(..end).unwrap_or_default();
            let src_path =
                Path::new(std::ffi::OsStr::from_bytes(source_bytes.get(..offset + end).unwrap_or_default()));
            let dst_path = join(target, below);
            let (src, dst) = (Spot::of(src_path), Spot::of(&dst_path));
            let there = dst.look(true);
            if there.as_ref().is_ok_and(|there| there.kind != Kind::Dir) {
                self.refuse(What::ParentNoDir, &dst_path);
                return false;
            }
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
            match there {
                Ok(_) if are_there => {}
                Ok(_) => made.push((src, dst, info, true)),
                Err(_) => {
                    let pair = CopyStep::on_the_way(&src, &dst, info, true);
                    let keep = |folder: &Folder, copier: &Self| copier.keep_for(folder);
                    if let Err(e) = self.make_one(&pair, &keep) {
                        self.fail(What::ParentMakeDir, &dst_path, e);
                        return false;
                    }
                    if self.options.verbose {
                        self.teller.did(Did::Parent { src: src_path, dst: &dst_path });
                    }
                    made.push((src, dst, info, false));
                }
            }
        }
        let mut fine = self.operand(source, to);
        // What was there already gets what is kept of the source, too.
        for (src, dst, info, was_there) in made {
            let Ok(dir) = dst.open_dir(was_there) else { continue };
            let into = Arc::new(Folder::new(dir));
            let pair = CopyStep::on_the_way(&src, &dst, info, true);
            let keep = |folder: &Folder, copier: &Self| Keep { was_there, ..copier.keep_for(folder) };
            fine &= self.seal_dir(&pair, None, &into, &keep);
        }
        fine
    }
}

/// What has become of the name of something that was backed up.
enum Original {
    /// It has it until something else takes it.
    Stays,
    Renamed,
}

fn file_of<'p>(pair: &CopyStep<'p>) -> content::File<'p> {
    let CopyStep { src, dst, info, there, follow, replace, .. } = *pair;
    content::File { src, dst, info, there, follow, replace, may_be_taken: pair.may_be_taken() }
}

/// The names in a directory, in the order of their inodes.
fn list(dir: &Dir) -> io::Result<Vec<NameBuf>> {
    let mut names = names_in(dir)?;
    names.sort_by_key(|(_, ino)| *ino);
    Ok(names.into_iter().map(|(name, _)| name).collect())
}
