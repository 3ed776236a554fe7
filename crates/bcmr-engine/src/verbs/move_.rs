//! `move`: a rename where it can be one, else copied, verified, made durable, and only then taken away.
//!
//! Must not remove anything itself but names it has just renamed from: what was copied goes through the ledger. A merge by
//! renames has a descent of its own, and not the walk of copies: it takes entries away from the very directories that it
//! lists, asks one question at a time, and removes a source directory when all in it has gone. It lists as that walk does.

use crate::disk::sys::Sys;
use crate::disk::{Attributes, Dirs, Fault};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Question, Summary, Watch};
use crate::policy::{
    Collide, CopyPolicy, Durability, Follow, Leaving, MoveRequest, Preserve, Target, Verify,
};
use crate::receiver::claims::{Claimed, Claims, Spot};
use crate::receiver::created_names::{CreatedNames, TAKEN};
use crate::receiver::dest::not_empty;
use crate::receiver::land;
use crate::receiver::plan::{Proof, Verdict, decide};
use crate::receiver::tree;
use crate::sender::filter::Filter;
use crate::sender::level::Met;
use crate::sender::walk::SourceDir;
use crate::stage::RESERVED;
use crate::tally::Tally;
use crate::verbs::copy::Run;
use crate::verbs::ledger::{Ledger, TakesHere};
use crate::verbs::operands::{self, Dest, DestLink, Operand, Place, Source};
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

/// Moves.
///
/// # Errors
/// Only when nothing could be begun; what happens to single items is told through `watch`.
pub fn move_(request: MoveRequest, watch: Watch<'_>) -> Result<Summary> {
    let proves = request.policy.verify != Verify::Off;
    let policy = moving(request.policy);
    let leaving = if request.merge { Leaving::GoesMerging } else { Leaving::Goes };
    let policy = CopyPolicy { leaving, ..policy };
    let disk = Sys::with(policy.io);
    let was_guess = matches!(request.target, Target::Guess(_));
    let target = operands::marked_target(&request.sources, request.target, policy.follow);
    operands::tell_marked(&watch, was_guess, &target);
    let count = request.sources.len();
    operands::make_path(&operands::Reach::Anywhere, &target, count, &policy)?;
    let to = operands::target(&operands::Reach::Anywhere, &target, count, DestLink::Itself)?;
    operands::tell_new(&watch, &target, &to);
    let run = Run::new(&disk, &policy, watch, Some(Ledger::new(proves)))?;
    let operands =
        operands::resolve(&request.sources, &to, &policy, Op::Move, DestLink::Itself, &run.desk.tally);
    carry(run, operands, &policy, request.merge, request.all_or_nothing)
}

/// Moves one operand whose names were looked at before. What is in it stays where it is as long as something of it could
/// not be copied.
///
/// # Errors
/// Only when nothing could be begun.
pub(crate) fn move_named(operand: Operand, policy: CopyPolicy, watch: Watch<'_>) -> Result<Summary> {
    let proves = policy.verify != Verify::Off;
    let policy = CopyPolicy { leaving: Leaving::Goes, ..moving(policy) };
    let disk = Sys::with(policy.io);
    let run = Run::new(&disk, &policy, watch, Some(Ledger::new(proves)))?;
    carry(run, vec![operand], &policy, false, true)
}

/// What a move keeps, whatever a copy would.
fn moving(policy: CopyPolicy) -> CopyPolicy {
    CopyPolicy {
        recursive: true,
        follow: Follow::Never,
        preserve: Preserve::ALL,
        specials: true,
        // What is removed at the source afterwards must have been seen to be right.
        verify: if policy.verify == Verify::Off { Verify::Cached } else { policy.verify },
        ..policy
    }
}

fn carry(
    mut run: Run<'_>,
    mut operands: Vec<Operand>,
    policy: &CopyPolicy,
    merge: bool,
    all_or_nothing: bool,
) -> Result<Summary> {
    let filter = Filter::new(&policy.filter)?;
    run.desk.claims = operands::claims(&mut operands);
    let (tally, claims) = (&run.desk.tally, &run.desk.claims);
    let mover = Mover { policy, merge, filter, tally, claims, foreseen: Mutex::default() };
    let mut far = Vec::new();
    for operand in operands {
        if tally.cancelled() {
            break;
        }
        if operands::clash(&far, &operand).is_some() && !policy.dry_run {
            // What an earlier one becomes has its name before this one meets it there: two that are copied at once into
            // one name would take each other for what a killed run left.
            run.round(&far);
            take_away(&run, std::mem::take(&mut far), all_or_nothing);
        }
        match mover.operand(&operand) {
            Ok(Moved::Here) => {}
            Ok(Moved::Far) => far.push(operand),
            Err(e) => run.desk.tally.fail(e),
        }
    }
    if !policy.dry_run {
        if !far.is_empty() {
            run.round(&far);
        }
        take_away(&run, far, all_or_nothing);
    }
    run.desk.sync_names();
    Ok(run.end())
}

/// Takes away at the source what is safe at the destination, after `operands` have been copied. With `all_or_nothing`
/// nothing of a directory goes where something could not be copied.
fn take_away(run: &Run<'_>, operands: Vec<Operand>, all_or_nothing: bool) {
    let (desk, Some(ledger)) = (&run.desk, &run.desk.hooks.ledger) else { return };
    let stays = desk.tally.cancelled() || all_or_nothing && desk.tally.failed.load(Relaxed) > 0;
    ledger.end(desk, stays, &TakesHere, |landed| {
        let has_landed = |operand: &Operand| landed.contains(&operand.info().id());
        let operands: Vec<Operand> = operands.into_iter().filter(has_landed).collect();
        desk.once_more().store(true, Relaxed);
        run.round(&operands);
        desk.once_more().store(false, Relaxed);
    });
}

/// How far an operand got by renaming alone.
enum Moved {
    /// It is where it should be, or what was to be said about it was said.
    Here,
    /// On another file system: it must be copied.
    Far,
}

struct Mover<'a> {
    policy: &'a CopyPolicy,
    merge: bool,
    filter: Filter,
    tally: &'a Tally<'a>,
    claims: &'a Claims,
    /// What operands become in a dry run, by place, where another may meet it.
    foreseen: Mutex<HashMap<u64, Foreseen>>,
}

/// What a name stands for once an earlier operand was moved.
#[derive(Clone)]
struct Foreseen {
    src: Arc<SourceDir>,
    name: NameBuf,
    /// With all that is in it; else only what else is foreseen.
    is_whole: bool,
}

/// What has a name at the destination.
struct Occupant {
    info: Info,
    /// Only in a dry run: an earlier operand becomes it.
    foreseen: Option<Foreseen>,
}

impl Occupant {
    /// What is in the directory, where that is known.
    fn dir(&self) -> Result<Option<Dir>> {
        let Some(Foreseen { src, name, is_whole: true }) = &self.foreseen else { return Ok(None) };
        let opened = src.dir.open_dir_readable(name.as_name());
        opened.map(Some).map_err(|e| Error::os(Op::OpenDirectory, src.node.join(name.as_name()), e))
    }
}

/// A pair of directories being merged by renames.
struct Frame {
    src: Arc<SourceDir>,
    /// Absent where a dry run would have made it; where it would have brought it as a whole, what was brought.
    dst: Option<Dir>,
    dst_path: PathBuf,
    /// The destination was made for it.
    made: bool,
    /// What came into it.
    created_names: Arc<CreatedNames>,
    /// Where it is among the names that operands claim, and as a path.
    spot: Spot,
    below: PathBuf,
    /// A dry run of what would be copied.
    is_far: bool,
    /// Still to do, last first.
    names: Vec<(NameBuf, Kind)>,
    /// Something stays, so the source directory stays.
    kept: bool,
}

impl Mover<'_> {
    fn operand(&self, operand: &Operand) -> Result<Moved> {
        let Source::Named { dir, name, info, .. } = &operand.source else {
            let note = Reason::PathLeadsThrough;
            return Err(Error::ours(Code::Refused, Op::Move, &operand.path, note));
        };
        let real = dir.stat(name.as_name(), false)?;
        if real.kind == Kind::Link && info.kind != Kind::Link {
            let note = Reason::SlashMeansTarget;
            return Err(Error::ours(Code::NotDirectory, Op::Move, &operand.path, note));
        }
        let Dest::Named { dir: place, name: to } = &operand.dest else {
            return Err(Error::ours(
                Code::InTheWay,
                Op::MoveTo,
                operands::dest_path(operand),
                Reason::IsDirectory,
            ));
        };
        if real.kind != Kind::Dir && dir.excludes(name.as_name(), &real, &self.filter) {
            self.tally.item(Action::Excluded, 0, || (operand.path.clone(), PathBuf::new()));
            return Ok(Moved::Here);
        }
        self.entry(dir, name.as_name(), &real, place, to.as_name(), operand)
    }

    fn entry(
        &self,
        dir: &Arc<SourceDir>,
        name: Name<'_>,
        info: &Info,
        place: &Place,
        to: Name<'_>,
        operand: &Operand,
    ) -> Result<Moved> {
        let shown = place.node.join(to);
        guard_name(&place.dir, to, &shown, &operand.path)?;
        let met = self.there(Some(&place.dir), &operand.spot, to, &shown)?;
        let there = met.as_ref().map(|met| met.info);
        let below = Path::new(crate::node::os(to));
        if info.kind != Kind::Dir
            && !self.claim(&operand.spot, dir, name, to, below, there.is_some(), &shown)?
        {
            return Ok(Moved::Here);
        }
        guard_same(dir, name, info, there.as_ref(), &operand.path, &shown)?;
        let verdict = decide(info, there.as_ref(), self.policy);
        let verdict = settled(verdict, (&dir.dir, name), Some((&place.dir, to)), &shown)?;
        guard_created(&place.created_names, verdict, there.as_ref(), Some(&place.dir), to, &shown)?;
        let only_new = match verdict {
            Verdict::Make => self.policy.collide != Collide::Replace,
            Verdict::Replace | Verdict::ReplaceTree | Verdict::KeepIf(..) | Verdict::Append { .. } => false,
            Verdict::Merge if self.merge => {
                return self.merge(dir, name, info, place, to, operand, met);
            }
            // rename(2) replaces an empty directory and refuses any other.
            Verdict::Merge => matches!(self.policy.collide, Collide::Keep),
            Verdict::Keep => return Ok(self.kept(operand.path.clone(), shown)),
            // The copy will ask; asked here as well, it would be asked twice.
            Verdict::Ask if info.dev != dev(place)? && !self.policy.dry_run => return Ok(Moved::Far),
            Verdict::Ask if self.tally.ask(Question::Replace(shown.clone())) => false,
            Verdict::Ask => return Ok(self.kept(operand.path.clone(), shown)),
            Verdict::Refuse(code, why) => {
                return Err(Error::ours(code, Op::Replace, &shown, why).and(&operand.path));
            }
        };
        if info.kind == Kind::Dir && !self.filter.is_empty() {
            // Something in it may have to stay, so it cannot go as a whole.
            return self.merge(dir, name, info, place, to, operand, met);
        }
        if self.policy.dry_run {
            if let Some(met) = met.filter(|met| verdict == Verdict::Merge && met.info.kind == Kind::Dir) {
                self.guard_rename_over(info, place, to, &met, only_new, &shown, &operand.path)?;
            }
            self.foresee(&operand.spot, to, dir, name, true);
            if info.kind == Kind::Dir {
                self.claims.brought(&operand.spot, to);
            }
            self.renamed(info, operand.path.clone(), shown);
            return Ok(Moved::Here);
        }
        match land::give_name(&dir.dir, name, &place.dir, to, only_new) {
            Ok(()) => {
                came(&place.created_names, info, &place.dir, to);
                if info.kind == Kind::Dir {
                    self.claims.brought(&operand.spot, to);
                }
                self.renamed(info, operand.path.clone(), shown.clone());
                self.sync(&dir.dir, &place.dir, &shown)?;
                Ok(Moved::Here)
            }
            Err(e) if e.raw_os_error() == Some(errno::EXDEV) => {
                if verdict == Verdict::Merge
                    && !is_open_to(&place.dir, to, info)
                        .map_err(|e| Error::os(Op::ListDirectory, &shown, e))?
                {
                    // The copy would merge, which was not asked for.
                    return Err(not_empty(&shown));
                }
                Ok(Moved::Far)
            }
            Err(e) if e.raw_os_error() == Some(errno::ENOTEMPTY) => Err(not_empty(&shown)),
            Err(e) => Err(Error::os(Op::RenameTo, &shown, e).and(&operand.path)),
        }
    }

    /// What has the name `to`, really or after what a dry run has told.
    fn there(&self, dst: Option<&Dir>, spot: &Spot, to: Name<'_>, shown: &Path) -> Result<Option<Occupant>> {
        let look = dst.map(|dst| dst.look(to)).transpose().map_err(|e| Error::os(Op::Stat, shown, e))?;
        if let Some(info) = look.flatten() {
            return Ok(Some(Occupant { info, foreseen: None }));
        }
        let foreseen = self.foreseen.lock().unwrap_or_else(PoisonError::into_inner);
        let foreseen = self.claims.place_of(spot, to).and_then(|place| foreseen.get(&place).cloned());
        let Some(foreseen) = foreseen else { return Ok(None) };
        let info = foreseen.src.stat(foreseen.name.as_name(), false)?;
        Ok(Some(Occupant { info, foreseen: Some(foreseen) }))
    }

    /// In a dry run `name` of `src` has become `to`.
    fn foresee(&self, spot: &Spot, to: Name<'_>, src: &Arc<SourceDir>, name: Name<'_>, is_whole: bool) {
        if let (true, Some(place)) = (self.policy.dry_run, self.claims.place_of(spot, to)) {
            let foreseen = Foreseen { src: src.clone(), name: name.to_owned(), is_whole };
            self.foreseen.lock().unwrap_or_else(PoisonError::into_inner).entry(place).or_insert(foreseen);
        }
    }

    /// Refuses in a dry run what the move of a directory into the place of the directory `met` would fail with.
    #[allow(clippy::too_many_arguments)] // both ends, each as what it is and as it is shown
    fn guard_rename_over(
        &self,
        info: &Info,
        place: &Place,
        to: Name<'_>,
        met: &Occupant,
        only_new: bool,
        shown: &Path,
        src: &Path,
    ) -> Result<()> {
        let fail = |e| Error::os(Op::ListDirectory, shown, e);
        let is_near = info.dev == dev(place)?;
        if is_near && only_new {
            let e = std::io::Error::from_raw_os_error(errno::EEXIST);
            return Err(Error::os(Op::RenameTo, shown, e).and(src));
        }
        let is_free = match (&met.foreseen, met.dir()?) {
            (_, Some(dir)) => tree::is_empty(&Sys::new(), &dir).map_err(fail)?,
            (Some(_), None) => false,
            (None, None) if is_near => place
                .dir
                .open_dir_readable(to)
                .and_then(|dir| tree::is_empty(&Sys::new(), &dir))
                .map_err(fail)?,
            (None, None) => is_open_to(&place.dir, to, info).map_err(fail)?,
        };
        if is_free { Ok(()) } else { Err(not_empty(shown)) }
    }

    /// Claims the name `to` for `name` of `dir`. `false`: that very source came before.
    #[allow(clippy::too_many_arguments)] // both ends, each as what it is and as it is shown
    fn claim(
        &self,
        spot: &Spot,
        dir: &SourceDir,
        name: Name<'_>,
        to: Name<'_>,
        below: &Path,
        is_there: bool,
        shown: &Path,
    ) -> Result<bool> {
        let ends = || (shown.to_owned(), below.to_owned(), dir.node.join(name));
        let claimed = self.claims.take(spot, to, (dir.info.id(), name.bytes()), || Ok(is_there), ends)?;
        Ok(claimed != Claimed::Same)
    }

    fn renamed(&self, info: &Info, src: PathBuf, dst: PathBuf) {
        let counter = match info.kind {
            Kind::File => &self.tally.files,
            Kind::Dir => &self.tally.dirs,
            _ => &self.tally.others,
        };
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.tally.done(1);
        self.tally.item(Action::Renamed, 0, || (src, dst));
    }

    fn kept(&self, src: PathBuf, dst: PathBuf) -> Moved {
        self.tally.kept.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.tally.item(Action::Kept, 0, || (src, dst));
        Moved::Here
    }

    fn sync(&self, from: &Dir, to: &Dir, shown: &Path) -> Result<()> {
        if self.policy.durability == Durability::Cache {
            return Ok(());
        }
        // The new name first: between the two a power cut may leave both names, never none.
        let synced = fastcopy::sync::all(to).and_then(|()| fastcopy::sync::all(from));
        synced.map_err(|e| Error::os(Op::SyncDirectoryOf, shown, e))
    }

    /// Merges a directory into another by renaming what is in it, one entry at a time. Goes to another file system
    /// only as a whole: where one is mounted below, what has not gone by then is left to the copy.
    #[allow(clippy::too_many_arguments)] // both ends, each as what it is and as it is shown
    fn merge(
        &self,
        dir: &Arc<SourceDir>,
        name: Name<'_>,
        info: &Info,
        place: &Place,
        to: Name<'_>,
        operand: &Operand,
        met: Option<Occupant>,
    ) -> Result<Moved> {
        // A directory that is there may be where another file system is mounted.
        let there = met.as_ref().filter(|met| met.foreseen.is_none()).map(|met| met.info.dev);
        let is_far = info.dev != there.map_or_else(|| dev(place), Ok)?;
        if is_far && !self.policy.dry_run {
            return Ok(Moved::Far);
        }
        let node = crate::node::Node::root(&operand.path);
        let src = dir.enter(name, node, false, &self.filter)?;
        let mut stack = Vec::new();
        let spot = self.claims.below(&operand.spot, to);
        let below = PathBuf::from(crate::node::os(to));
        let dst_path = place.node.join(to);
        let foreseen = met.as_ref().map_or(Ok(None), Occupant::dir)?;
        if met.is_none() {
            self.foresee(&operand.spot, to, dir, name, false);
        }
        let at = (spot, below, foreseen, is_far);
        let mut moved = Moved::Here;
        self.push(&mut stack, src, Some(&place.dir), &place.created_names, to, dst_path, at)?;
        while let Some(frame) = stack.last_mut() {
            if let Some((name, kind)) = frame.names.pop() {
                if self.tally.cancelled() {
                    frame.kept = true;
                    continue;
                }
                let (src, dst_path) =
                    (frame.src.clone(), frame.dst_path.join(crate::node::os(name.as_name())));
                let created_names = frame.created_names.clone();
                match self.merge_one(&src, name.as_name(), kind, frame, &dst_path) {
                    Ok(Step::Done) => {}
                    Ok(Step::Stays) => frame.kept = true,
                    Ok(Step::Far) => {
                        moved = Moved::Far;
                        break;
                    }
                    Ok(Step::Into(foreseen)) => {
                        let entered =
                            src.enter(name.as_name(), src.node.below(name.as_name()), false, &self.filter);
                        let dst = frame.dst.as_ref().map(Dir::try_clone).transpose();
                        let dst = dst.map_err(|e| Error::os(Op::Open, &dst_path, e));
                        let below = frame.below.join(crate::node::os(name.as_name()));
                        let spot = self.claims.below(&frame.spot, name.as_name());
                        let at = (spot, below, foreseen, frame.is_far);
                        let pushed = entered.and_then(|inner| {
                            let dst = dst?;
                            self.push(
                                &mut stack,
                                inner,
                                dst.as_ref(),
                                &created_names,
                                name.as_name(),
                                dst_path,
                                at,
                            )
                        });
                        if let Err(e) = pushed {
                            self.tally.fail(e);
                            if let Some(frame) = stack.last_mut() {
                                frame.kept = true;
                            }
                        }
                    }
                    Err(e) => {
                        frame.kept = true;
                        self.tally.fail(e);
                    }
                }
                continue;
            }
            let Some(mut done) = stack.pop() else { break };
            self.complete(&mut done);
            if done.kept {
                if let Some(up) = stack.last_mut() {
                    up.kept = true;
                }
                continue;
            }
            self.leave(&done);
        }
        stack.iter_mut().rev().for_each(|begun| self.complete(begun));
        self.sync(&dir.dir, &place.dir, &operand.path)?;
        Ok(moved)
    }

    /// Nothing more is put into the destination of a merge: only now its times stay what they are set to.
    fn complete(&self, done: &mut Frame) {
        let Some(dst) = done.dst.as_ref().filter(|_| !self.policy.dry_run) else { return };
        if done.made {
            for fault in self.seal(&done.src, dst, done.src.info.mode) {
                self.tally.lost(fault.told(|| done.src.node.path(), || done.dst_path.clone()));
            }
        }
        // R3: the names of this directory, which its neighbours' syncs know nothing of.
        if let Err(e) = self.sync(&done.src.dir, dst, &done.dst_path) {
            done.kept = true;
            self.tally.fail(e);
        }
    }

    /// The source directory of a merge is empty now.
    fn leave(&self, done: &Frame) {
        let (Some(above), Some(name)) = (&done.src.above, &done.src.name) else { return };
        if self.policy.dry_run {
            self.renamed(&done.src.info, done.src.node.path(), done.dst_path.clone());
            return;
        }
        match above.dir.remove_dir(name.as_name()) {
            Ok(()) => self.renamed(&done.src.info, done.src.node.path(), done.dst_path.clone()),
            Err(e) => self.tally.fail(Error::os(Op::RemoveDirectory, done.src.node.path(), e)),
        }
    }

    #[allow(clippy::too_many_arguments)] // both ends, and where they are
    fn push(
        &self,
        stack: &mut Vec<Frame>,
        src: Arc<SourceDir>,
        dst_dir: Option<&Dir>,
        beside: &CreatedNames,
        to: Name<'_>,
        dst_path: PathBuf,
        (spot, below, foreseen, is_far): (Spot, PathBuf, Option<Dir>, bool),
    ) -> Result<()> {
        let fail = |op: Op| {
            let path = dst_path.clone();
            move |e| Error::os(op, path, e)
        };
        let mut made = false;
        let dst = match dst_dir {
            Some(dst_dir) if !self.policy.dry_run => {
                made = land::ensure_dir(dst_dir, to, 0o700).map_err(fail(Op::MakeDirectory))?;
                let dst = dst_dir.open_dir(to).map_err(fail(Op::OpenDirectory))?;
                came(beside, &dst.info().map_err(fail(Op::Stat))?, dst_dir, to);
                if made {
                    // Sealed once more when it is complete, which tells what could not be kept. Until then it has its
                    // owner and mode for a run that is killed, as the next one merges into it and leaves it as it is.
                    let _told_later = self.seal(&src, &dst, src.info.mode | 0o700);
                }
                if self.policy.durability == Durability::Medium {
                    // Its own name first: what is renamed into it leaves a directory that is on the medium. A killed
                    // run may have made it and not have come to that.
                    fastcopy::sync::all(dst_dir).map_err(fail(Op::SyncDirectoryOf))?;
                }
                Some(dst)
            }
            Some(dst_dir) => match dst_dir.open_dir(to) {
                Ok(dst) => Some(dst),
                Err(e) if Code::of(&e) == Code::NotFound => foreseen,
                Err(e) => return Err(fail(Op::OpenDirectory)(e)),
            },
            None => foreseen,
        };
        let (mut names, mut kept) = (Vec::new(), false);
        src.list(&mut ListBuffer::new(), Follow::Never, &self.filter, |met| {
            match met {
                Met::Entry { name, kind, .. } => names.push((name.to_owned(), kind)),
                Met::Excluded(name) => {
                    kept = true;
                    self.tally.item(Action::Excluded, 0, || (src.node.join(name), PathBuf::new()));
                }
                Met::Failed(e) => {
                    kept = true;
                    self.tally.fail(e);
                }
            }
            true
        })?;
        let created_names = beside.again();
        stack.push(Frame { src, dst, dst_path, made, created_names, spot, below, is_far, names, kept });
        Ok(())
    }

    /// Gives a directory that was made what the source has of owner, times and attributes, and this mode.
    fn seal(&self, src: &Arc<SourceDir>, dst: &Dir, mode: u32) -> Vec<Fault> {
        let keep = crate::disk::Keep {
            alter: self.policy.alter,
            preserve: self.policy.preserve,
            strictness: self.policy.strictness,
            umask: self.policy.umask,
            default_acl: true,
            was_there: false,
        };
        let disk = Sys::new();
        let info = Info { mode, ..src.info };
        disk.seal_dir(&mut disk.hand(), dst, Attributes::Dir(&src.dir), &info, &keep).lost
    }

    fn merge_one(
        &self,
        src: &Arc<SourceDir>,
        name: Name<'_>,
        kind: Kind,
        frame: &Frame,
        dst_path: &Path,
    ) -> Result<Step> {
        let (dst, created_names) = (frame.dst.as_ref(), &*frame.created_names);
        let src_path = || src.node.join(name);
        let info = src.stat(name, false)?;
        if let Some(dst) = dst {
            guard_name(dst, name, dst_path, &src_path()).map_err(|e| match (frame.is_far, kind) {
                // The words of the copy, which makes directories and then what is in them.
                (true, Kind::Dir) => Error::ours(e.code, Op::CopyTo, dst_path, RESERVED),
                (true, _) => Error { op: Op::CopyTo, ..e },
                (false, _) => e,
            })?;
        }
        let met = self.there(dst, &frame.spot, name, dst_path)?;
        let there = met.as_ref().map(|met| met.info);
        let below = frame.below.join(crate::node::os(name));
        // A copy meets a directory there before it asks for whom it is.
        let is_over_dir = frame.is_far && there.is_some_and(|there| there.kind == Kind::Dir);
        if kind != Kind::Dir
            && !is_over_dir
            && !self.claim(&frame.spot, src, name, name, &below, there.is_some(), dst_path)?
        {
            return Ok(Step::Stays);
        }
        guard_same(src, name, &info, there.as_ref(), &src_path(), dst_path)?;
        let verdict = decide(&info, there.as_ref(), self.policy);
        let verdict = settled(verdict, (&src.dir, name), dst.map(|dst| (dst, name)), dst_path)?;
        guard_created(created_names, verdict, there.as_ref(), dst, name, dst_path)?;
        let only_new = match verdict {
            Verdict::Merge => return Ok(Step::Into(met.as_ref().map_or(Ok(None), Occupant::dir)?)),
            Verdict::Make if kind == Kind::Dir && !self.filter.is_empty() => {
                self.foresee(&frame.spot, name, src, name, false);
                return Ok(Step::Into(None));
            }
            Verdict::Make => self.policy.collide != Collide::Replace,
            Verdict::Replace | Verdict::ReplaceTree | Verdict::KeepIf(..) | Verdict::Append { .. } => false,
            // The copy asks about what is left to it, which may be all of this directory.
            Verdict::Ask if self.tally.ask_once(dst_path.to_owned()) => false,
            Verdict::Keep | Verdict::Ask => {
                self.kept(src_path(), dst_path.to_owned());
                return Ok(Step::Stays);
            }
            Verdict::Refuse(code, why) if frame.is_far && kind == Kind::Dir => {
                return Err(Error::ours(code, Op::MakeDirectory, dst_path, why));
            }
            Verdict::Refuse(code, why) => {
                return Err(Error::ours(code, Op::Replace, dst_path, why).and(&src_path()));
            }
        };
        let (Some(dst), false) = (dst, self.policy.dry_run) else {
            self.foresee(&frame.spot, name, src, name, true);
            if kind == Kind::Dir {
                self.claims.brought(&frame.spot, name);
            }
            self.renamed(&info, src_path(), dst_path.to_owned());
            return Ok(Step::Done);
        };
        match land::give_name(&src.dir, name, dst, name, only_new) {
            Ok(()) => {}
            // Without --merge a copy would not go into what has been made there by now.
            Err(e) if e.raw_os_error() == Some(errno::EXDEV) && self.merge => return Ok(Step::Far),
            Err(e) => return Err(Error::os(Op::RenameTo, dst_path, e).and(&src_path())),
        }
        came(created_names, &info, dst, name);
        if kind == Kind::Dir {
            self.claims.brought(&frame.spot, name);
        }
        self.renamed(&info, src_path(), dst_path.to_owned());
        Ok(Step::Done)
    }
}

enum Step {
    Done,
    Stays,
    /// Into a directory on both sides, or one that a dry run has made of this.
    Into(Option<Dir>),
    /// It is to go to another file system.
    Far,
}

/// What a verdict comes to that is to be proved. A move compares nothing but where symbolic links lead; what it would have
/// to read it does not believe to be the same.
fn settled(
    verdict: Verdict,
    (src, name): (&Dir, Name<'_>),
    dst: Option<(&Dir, Name<'_>)>,
    shown: &Path,
) -> Result<Verdict> {
    match (verdict, dst) {
        (Verdict::KeepIf(Proof::Target, _), Some((dir, to))) => {
            let alike = || Ok(src.read_link(name)? == dir.read_link(to)?);
            alike().map(|holds| verdict.settled(holds)).map_err(|e| Error::os(Op::ReadLink, shown, e))
        }
        _ => Ok(verdict.settled(false)),
    }
}

fn dev(place: &Place) -> Result<u64> {
    Ok(place.dir.info().map_err(|e| Error::os(Op::Stat, place.node.path(), e))?.dev)
}

/// Whether a copy of `info` may merge into the directory `name`: nothing is in it, or what a killed run of the same move
/// has put there.
fn is_open_to(dir: &Dir, name: Name<'_>, info: &Info) -> std::io::Result<bool> {
    let (disk, there) = (Sys::new(), dir.open_dir_readable(name)?);
    Ok(tree::is_marked(&disk, &there, info) || tree::is_empty_or_torn(&disk, &there)?)
}

/// Refuses to give something a name that a later run would take for what a killed one left.
fn guard_name(dir: &Dir, to: Name<'_>, shown: &Path, src: &Path) -> Result<()> {
    if land::is_reserved(dir, to).map_err(|e| Error::os(Op::Stat, shown, e))? {
        return Err(Error::ours(Code::Refused, Op::MoveTo, shown, RESERVED).and(src));
    }
    Ok(())
}

/// Refuses to replace, to merge into or to take for older what this run has just put there under another name: it is
/// the only copy.
fn guard_created(
    created_names: &CreatedNames,
    verdict: Verdict,
    there: Option<&Info>,
    dir: Option<&Dir>,
    to: Name<'_>,
    shown: &Path,
) -> Result<()> {
    let touches = match verdict {
        Verdict::Replace
        | Verdict::ReplaceTree
        | Verdict::Merge
        | Verdict::Ask
        | Verdict::KeepIf(..)
        | Verdict::Append { .. } => true,
        // With several names it is several places.
        Verdict::Keep => there.is_some_and(|there| there.nlink == 1),
        Verdict::Make | Verdict::Refuse(..) => false,
    };
    match (there, dir) {
        (Some(there), Some(dir)) if touches => {
            match created_names.lock().is_taken(there, to, || dir.btime(to), Sys::new().lists(dir)) {
                true => Err(Error::ours(Code::Refused, Op::Replace, shown, TAKEN)),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// `info` is in `dir` as `to` now. What another process removes at this very moment is not met.
fn came(created_names: &CreatedNames, info: &Info, dir: &Dir, to: Name<'_>) {
    if let Ok(btime) = dir.btime(to) {
        created_names.lock().add(info, to, btime);
    }
}

/// Refuses moves whose two ends are one object: renaming would do nothing, or take the only copy away.
fn guard_same(
    dir: &SourceDir,
    name: Name<'_>,
    info: &Info,
    there: Option<&Info>,
    src: &Path,
    dst: &Path,
) -> Result<()> {
    let Some(there) = there else { return Ok(()) };
    let same = info.id() == there.id()
        // A link moved over the file that it leads to: what would be left is a link to itself.
        || (info.kind == Kind::Link
            && dir.dir.stat_following(name).is_ok_and(|target| target.id() == there.id()));
    if same {
        let note = Reason::SameFile;
        return Err(Error::ours(Code::Refused, Op::Move, src, note).and(dst));
    }
    Ok(())
}
