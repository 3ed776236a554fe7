//! A destination that is only looked at: what `check` and `--dry-run` share.
//!
//! Must not create, write or remove; it opens directories only to list them, and files only when asked to hash them.
//! The pairs are those a copy of the same arguments would make: operands, walk, filter and plan are the copy's own.

use crate::disk::compare::CompareRooms;
use crate::disk::sys::look_as;
use crate::disk::tee;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::held_stat;
use crate::node::{Node, os};
use crate::policy::{CopyPolicy, Follow, Mirror, Privileged, Target};
use crate::receiver::claims::{Claimed, Claims, Meeting, Spot};
use crate::receiver::dir_task::{DirTask, Hold, Origin};
use crate::receiver::land;
use crate::receiver::partly::{self, Fate, Portion};
use crate::sender::filter::Filter;
use crate::sender::names::{ListedNames, Names};
use crate::sender::walk::SourceDir;
use crate::stage;
use crate::tally::Tally;
use crate::verbs::destination::{Destination, DirEntry, Entering};
use crate::verbs::entry_pair::{ContentCompare, EntryPair, Findings, Found, Lack, Visit};
use crate::verbs::local::{Walk, WalkDestination, WalkDropped, WalkWorker};
use crate::verbs::local_sides::{LocalSides, TwoDirs};
use crate::verbs::named_dirs::NamedDirs;
use crate::verbs::operands::{self, DestLink, Operand, Place, Reach, Where};
use crate::verbs::rivals::{EntryPaths, RivalName, Rivals, Turn};
use crate::verbs::round_lacks::RoundLacks;
use fastcopy::dir::{Dir, ListBuffer, Listed, Name};
use fastcopy::meta::{Info, Kind};
use fastcopy::xattr::Of;
use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What has the place of a source directory at the destination.
pub(crate) struct SurveyedDir {
    /// Absent when it is.
    pub(crate) dir: Option<Arc<Dir>>,
    pub(crate) path: PathBuf,
    /// What the target is called.
    top: Arc<Node>,
    /// The directory at or above it that the destination lacks, and whether it is this one.
    lack: Option<(Arc<Lack>, bool)>,
    /// The handle was opened for this directory alone, and may be listed itself; another must be opened once more.
    is_own: bool,
    /// Of a source whose names come one by one: what the destination has, since the first came.
    there: Mutex<Option<io::Result<ThereListed>>>,
    /// Where it has what only root can set.
    pub(crate) privileged: Privileged,
}

/// Names of a destination's directory, in their order.
struct ThereListed {
    names: Names,
    /// Of each whether the source has it too.
    met: Vec<bool>,
}

impl SurveyedDir {
    fn new(dir: Option<Arc<Dir>>, path: PathBuf, top: Arc<Node>, privileged: Privileged) -> SurveyedDir {
        SurveyedDir { dir, path, top, lack: None, is_own: false, there: Mutex::new(None), privileged }
    }

    /// Lists it. Once, where the handle is its own.
    fn list(&self, buffer: &mut ListBuffer, each: impl FnMut(Listed<'_>) -> bool) -> io::Result<()> {
        match &self.dir {
            None => Ok(()),
            Some(dir) if self.is_own => dir.list(buffer, each),
            Some(dir) => dir.reopen()?.list(buffer, each),
        }
    }

    /// What it has.
    fn there(&self) -> MutexGuard<'_, Option<io::Result<ThereListed>>> {
        let mut there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        if there.is_none() {
            let mut names = Names::default();
            let listed = self.list(&mut ListBuffer::new(), |entry| {
                names.push(entry.name, entry.kind.unwrap_or(Kind::File), 0);
                true
            });
            names.sort_by_name();
            let met = vec![false; names.len()];
            *there = Some(listed.map(|()| ThereListed { names, met }));
        }
        there
    }

    /// The source has `name`.
    fn met(&self, name: Name<'_>) {
        if let Some(Ok(ThereListed { names, met })) = &mut *self.there()
            && let Some(met) = names.position(name).and_then(|at| met.get_mut(at))
        {
            *met = true;
        }
    }

    /// What has a name in it.
    pub(crate) fn look(&self, name: Name<'_>) -> Result<Option<Info>> {
        let looked = self.dir.as_ref().map_or(Ok(None), |dir| look_as(self.privileged, dir, name));
        looked.map_err(|e| Error::os(Op::Stat, self.path.join(os(name)), e))
    }
}

/// A source directory, here or on another machine, as far as what only the destination has depends on it.
pub(crate) trait Excludes: Origin {
    /// Whether the filter leaves out what these names lead to from here.
    fn leaves_out(&self, below: &[&[u8]], is_dir: bool, filter: &Filter) -> bool;
}

impl Excludes for SourceDir {
    fn leaves_out(&self, below: &[&[u8]], is_dir: bool, filter: &Filter) -> bool {
        self.excludes_below(below, is_dir, filter)
    }
}

type SurveyDir<S> = DirTask<S, SurveyedDir>;

/// An entry, as it is at the source and at the destination.
#[derive(Clone, Copy)]
pub(crate) struct BothSides<'s> {
    /// What the directory that it is in would become.
    pub(crate) above: &'s SurveyedDir,
    pub(crate) spot: &'s Spot,
    pub(crate) to: Name<'s>,
    pub(crate) info: Info,
    pub(crate) there: Option<Info>,
    pub(crate) paths: &'s dyn EntryPaths,
}

impl<'s> BothSides<'s> {
    pub(crate) fn pair(&self, merges: bool, both: &'s dyn ContentCompare) -> EntryPair<'s> {
        let BothSides { above, info, there, .. } = *self;
        let lack = above.lack.as_ref().map(|(lack, _)| &**lack);
        let above = above.dir.as_deref().map(|dir| (dir, self.to));
        EntryPair { info, there, lack, merges, above, both }
    }
}

/// BLAKE3 of a whole file; `observe` is told of bytes read and says whether to go on.
pub(crate) fn hash(fd: &OwnedFd, path: &Path, observe: &dyn Fn(u64) -> bool) -> Result<blake3::Hash> {
    // A FIFO put in the file's place would give nothing for ever.
    if Info::of(fd).map_err(|e| Error::os(Op::Stat, path, e))?.kind != Kind::File {
        return Err(Error::ours(Code::SourceChanged, Op::Read, path, Reason::NoRegularFileAnyMore));
    }
    tee::hash(fd, observe).map_err(|fault| fault.told(|| path.to_owned(), || path.to_owned()))
}

/// What a worker has for itself.
pub(crate) struct SurveyBuffers {
    pub(crate) found: Findings,
    /// What was found waits for its turn; else it is told at once.
    waits: bool,
    list: ListBuffer,
    rooms: CompareRooms,
}

/// So much is found in the middle of a task before it is passed on.
const FOUND_MAX: usize = 256;

/// A destination that nothing is done to: what the walk finds is shown beside what is there.
pub(crate) struct Survey<'a> {
    pub(crate) policy: &'a CopyPolicy,
    filter: Filter,
    pub(crate) tally: &'a Tally<'a>,
    pub(crate) rivals: Rivals,
    /// In a round with another machine: which directories are compared, and which lead to names.
    pub(crate) named: Option<NamedDirs>,
    /// In rounds of known names: what the destination lacks.
    pub(crate) lacks: Option<RoundLacks>,
    pub(crate) visit: Box<dyn Visit + Send + 'a>,
}

impl<'a> Survey<'a> {
    /// Nothing was walked yet.
    ///
    /// # Errors
    /// A pattern that is none.
    pub(crate) fn new(
        policy: &'a CopyPolicy,
        tally: &'a Tally<'a>,
        visit: Box<dyn Visit + Send + 'a>,
    ) -> Result<Survey<'a>> {
        Ok(Survey {
            policy,
            filter: Filter::new(&policy.filter)?,
            tally,
            rivals: Rivals::new(Claims::new(Meeting::Never), usize::MAX),
            named: None,
            lacks: None,
            visit,
        })
    }

    fn walk(&self, jobs: usize) -> Walk<'_, Self> {
        self.walk_with(jobs, Arc::default())
    }

    /// A walk that goes on from another one, whose holds it drops.
    pub(crate) fn walk_with(&self, jobs: usize, dropped: WalkDropped<Self>) -> Walk<'_, Self> {
        Walk { to: self, policy: self.policy, filter: &self.filter, jobs, dropped }
    }

    /// Walks all operands.
    pub(crate) fn operands(&mut self, sources: &[PathBuf], to: &Where) {
        self.resolved(operands::resolve(sources, to, self.policy, Op::Copy, DestLink::Through, self.tally));
    }

    /// Walks operands that were resolved.
    pub(crate) fn resolved(&mut self, mut operands: Vec<Operand>) {
        self.rivals = Rivals::new(operands::claims(&mut operands), usize::MAX);
        self.walk(self.policy.jobs).operands(operands);
    }

    /// Walks names from a list. Several of them may lead to one entry, and the first of those has it: so with one worker.
    pub(crate) fn list(&mut self, names: &mut ListedNames<'_>, target: &Target) -> Result<()> {
        self.rivals = Rivals::new(Claims::new(Meeting::Listed), usize::MAX);
        let spot = self.rivals.claims.operand(names.base, true);
        self.walk(1).list(names, target, spot)
    }

    fn buffers_that(&self, waits: bool) -> SurveyBuffers {
        SurveyBuffers { found: Vec::new(), waits, list: ListBuffer::new(), rooms: CompareRooms::default() }
    }

    /// Tells what was found, unless it waits for its turn.
    pub(crate) fn settle(&self, buffers: &mut SurveyBuffers) {
        if !buffers.waits {
            buffers.found.drain(..).for_each(|found| self.tell_found(found));
        }
    }

    /// Shows an entry and tells at once what was found.
    pub(crate) fn show(&self, at: &EntryPair<'_>) {
        let mut found = Vec::new();
        self.visit.entry(at, &mut found);
        found.into_iter().for_each(|found| self.tell_found(found));
    }

    fn tell_found(&self, found: Found) {
        match found {
            Found::Told(event) => self.tally.watch.front.event(event),
            Found::Failed(e) => self.tally.fail(e),
            Found::Lacks(lack) => self.visit.lacks(&lack),
            Found::Undecided(undecided) => self.visit.decided(*undecided),
        }
    }

    /// Shows an entry beside what is there. For a directory: whether to go in. In a round what is in one that is lacking comes by
    /// itself, and that is told in the end.
    fn meet(&self, at: &EntryPair<'_>, found: &mut Findings) -> bool {
        let is_lacking = at.info.kind == Kind::Dir && at.there.is_none() && at.lack.is_none();
        match &self.lacks {
            Some(lacks) if is_lacking => {
                lacks.of(&at.dst_path(), None).name();
                self.tally.done(1);
                true
            }
            _ => self.visit.entry(at, found),
        }
    }

    /// A round is over.
    pub(crate) fn end_round(&self) {
        self.lacks.iter().flat_map(RoundLacks::end).for_each(|lack| self.visit.lacks(&lack));
    }

    /// An entry among the names that sources become.
    pub(crate) fn rival<'s>(&self, sides: &BothSides<'s>) -> RivalName<'s> {
        let BothSides { above, spot, to, info, there, paths } = *sides;
        RivalName {
            spot,
            dir: above.dir.as_deref(),
            to,
            kind: info.kind,
            is_there: there.is_some(),
            is_left_out: info.kind.is_special() && !self.policy.specials,
            paths,
            top: &above.top,
        }
    }

    /// An entry that is no directory.
    fn entry(
        &self,
        buffers: &mut SurveyBuffers,
        threads: &dyn Fn() -> usize,
        pair: &SurveyDir<SourceDir>,
        entry: DirEntry<'_>,
    ) -> Result<()> {
        let DirEntry { name, to, kind, follow, is_claimed } = entry;
        let info = pair.src.stat(name, follow)?;
        if info.kind != kind {
            let note = Reason::KindBecame.about(info.kind.word());
            return Err(Error::ours(Code::SourceChanged, Op::Copy, pair.src.node.join(name), note));
        }
        let there = pair.dst.look(to)?;
        let (src, dst, dst_dir) = (&pair.src, pair.dst.dir.as_deref(), &*pair.dst.path);
        let (tally, rooms) = (self.tally, RefCell::new(&mut buffers.rooms));
        let privileged = pair.dst.privileged;
        let both = LocalSides { src, name, dst, dst_dir, to, follow, privileged, tally, rooms, threads };
        let sides = BothSides { above: &pair.dst, spot: &pair.spot, to, info, there, paths: &both };
        let rival = self.rival(&sides);
        let turn = match is_claimed {
            true => self.rivals.goes(&rival)?,
            false => self.rivals.turn(&rival, info.id())?,
        };
        if turn != Turn::Came {
            self.meet(&sides.pair(turn == Turn::Merges, &both), &mut buffers.found);
        }
        Ok(())
    }

    /// Shows a directory whose contents are an operand beside the one that they go into.
    fn top(&self, src: &impl Origin, dst: &Dir, dst_path: &Path, found: &mut Findings) -> Result<()> {
        let real = dst.info().map_err(|e| Error::os(Op::Stat, dst_path, e))?;
        let there = match self.policy.preserve.at_dest {
            Privileged::Real => real,
            Privileged::Held => held_stat::meant_or_stale(Of::Handle(dst.as_fd()), real)
                .map_err(|e| Error::os(Op::ReadAttributesOf, dst_path, e))?,
        };
        let there = Some(there);
        let both = TwoDirs { src, there: Some(Of::Handle(dst.as_fd())), dst: (dst_path, None) };
        let pair =
            EntryPair { info: *src.info(), there, lack: None, merges: false, above: None, both: &both };
        self.visit.top(&pair, found);
        Ok(())
    }

    /// Whether a name that only the destination has is told: not where the filter would leave it out of the source.
    fn is_extra<S: Excludes>(&self, pair: &SurveyDir<S>, name: Name<'_>, kind: Option<Kind>) -> bool {
        self.policy.mirror == Mirror::DeleteExcluded
            || !pair.src.leaves_out(&[name.bytes()], kind == Some(Kind::Dir), &self.filter)
    }

    /// M5: whether an unfinished copy needs it to go on. The end of a plan that compares does not tell it either.
    fn is_unfinished(&self, dir: &Dir, name: Name<'_>) -> bool {
        (self.policy.mirror.is_on() || self.named.is_some())
            && (stage::is_random(name) || land::is_reserved(dir, name).is_ok_and(|is_ours| is_ours))
    }

    /// The source has a name.
    fn has<S>(&self, pair: &SurveyDir<S>, name: Name<'_>, is_out: bool) {
        let told = pair.dst.dir.as_ref().map_or(Ok(()), |dir| self.visit.has(dir, name, is_out));
        told.unwrap_or_else(|e| self.tally.fail(e));
    }

    /// Names that only the destination has in a directory all of whose names came.
    fn not_met<S: Excludes>(&self, pair: &SurveyDir<S>) -> Result<Names> {
        let mut extra = Names::default();
        let there = pair.dst.there().take();
        let Some(there) = there.transpose().map_err(|e| unlisted(pair, e))? else { return Ok(extra) };
        self.visit.counted(there.names.len() as u64);
        for (at, _) in there.met.iter().enumerate().filter(|(_, met)| !**met) {
            if let Some((name, kind)) = there.names.get(at)
                && self.is_extra(pair, name, Some(kind))
            {
                extra.push(name, kind, 0);
            }
        }
        Ok(extra)
    }

    /// Tells some of what only the destination has in a directory.
    fn tell_extras<S: Excludes>(
        &self,
        buffers: &mut SurveyBuffers,
        pair: &SurveyDir<S>,
        names: &Names,
        range: Range<usize>,
    ) {
        let Some(dir) = &pair.dst.dir else { return };
        for (name, _) in range.filter_map(|at| names.get(at)) {
            if self.tally.cancelled() {
                return;
            }
            if self.is_unfinished(dir, name) {
                continue;
            }
            let path = pair.dst.path.join(os(name));
            match self.some_stays(buffers, pair, (dir, name), &path) {
                Ok(false) => self.visit.extra(dir, name, path, &mut buffers.found),
                Ok(true) => {}
                Err(e) => buffers.found.push(Found::Failed(Error::os(Op::ListDirectory, path, e))),
            }
            self.settle(buffers);
        }
    }

    /// Whether something stays in a directory that only the destination has; then the rest is told.
    fn some_stays<S: Excludes>(
        &self,
        buffers: &mut SurveyBuffers,
        pair: &SurveyDir<S>,
        (dir, name): (&Dir, Name<'_>),
        path: &Path,
    ) -> io::Result<bool> {
        let asks = !self.filter.is_empty() && self.policy.mirror != Mirror::DeleteExcluded;
        if !asks || !dir.look(name)?.is_some_and(|info| info.kind == Kind::Dir) {
            return Ok(false);
        }
        let fate = |below: &[&[u8]], info: &Info| {
            let is_out = pair.src.leaves_out(below, info.kind == Kind::Dir, &self.filter);
            if is_out { Fate::Stays } else { self.visit.fate(info) }
        };
        let above = path.parent().unwrap_or(path);
        let portion = partly::goes(dir, name, &fate, |part| {
            self.visit.counted(part.all);
            let at = part.below.iter().fold(above.to_owned(), |at, name| at.join(os(name.as_name())));
            for name in part.goes {
                let name = name.as_name();
                self.visit.extra(part.dir, name, at.join(os(name)), &mut buffers.found);
            }
            Ok(())
        })?;
        Ok(portion == Portion::Part)
    }

    /// In a round: what is lacking where `there` has the place of a directory.
    fn lack_of_round(&self, path: &Path, there: Option<Info>) -> Option<Arc<Lack>> {
        match there {
            Some(there) if there.kind == Kind::Dir => None,
            there => self.lacks.as_ref().map(|lacks| lacks.of(path, there)),
        }
    }

    /// The directory that rounds of names are compared with, which may be lacking, or be something else.
    pub(crate) fn round_base(&self, target: &Target) -> Result<SurveyedDir> {
        let path = target.path();
        let (dir, name) = match operands::target(&Reach::Anywhere, target, 1, DestLink::Through)? {
            Where::Into(place) | Where::Whole(place) => return self.opened(&place),
            Where::Name { dir, name, .. } => (dir, name),
        };
        let fail = |op: Op| move |e| Error::os(op, path, e);
        let there = dir.dir.look(name.as_name()).map_err(fail(Op::Stat))?;
        let lack = self.lack_of_round(path, there);
        let opened = match lack {
            None => Some(dir.dir.open_dir(name.as_name()).map_err(fail(Op::OpenDirectory))?),
            Some(_) => None,
        };
        let (opened, privileged) = (opened.map(Arc::new), self.policy.preserve.at_dest);
        let base = SurveyedDir::new(opened, path.to_owned(), dir.node.clone(), privileged);
        Ok(SurveyedDir { lack: lack.map(|lack| (lack, false)), ..base })
    }

    /// Compares that directory itself with the one that names are below at the source.
    pub(crate) fn round_top(&self, src: &impl Origin, base: &SurveyedDir) -> Result<()> {
        let mut buffers = self.buffers_that(false);
        match (&base.dir, &base.lack) {
            (Some(dir), _) => self.top(src, dir, &base.path, &mut buffers.found)?,
            (None, Some((lack, _))) => lack.name(),
            (None, None) => {}
        }
        self.settle(&mut buffers);
        Ok(())
    }

    /// A directory that things go into.
    pub(crate) fn opened(&self, place: &Place) -> Result<SurveyedDir> {
        let dir = place.dir.try_clone().map_err(|e| Error::os(Op::Open, place.node.path(), e))?;
        Ok(SurveyedDir::new(
            Some(Arc::new(dir)),
            place.node.path(),
            place.node.clone(),
            self.policy.preserve.at_dest,
        ))
    }
}

fn unlisted<S>(pair: &SurveyDir<S>, e: io::Error) -> Error {
    Error::os(Op::ListDirectory, &pair.dst.path, e)
}

impl<S: Excludes> Destination<S> for Survey<'_> {
    type Buffers = SurveyBuffers;
    type Dir = SurveyedDir;

    fn tally(&self) -> &Tally<'_> {
        self.tally
    }

    fn claims(&self) -> &Claims {
        &self.rivals.claims
    }

    fn buffers(&self) -> SurveyBuffers {
        self.buffers_that(false)
    }

    fn base(&self, place: &Place) -> Result<SurveyedDir> {
        self.opened(place)
    }

    fn share(&self, base: &SurveyedDir) -> SurveyedDir {
        SurveyedDir::new(base.dir.clone(), base.path.clone(), base.top.clone(), base.privileged)
    }

    fn fills(&self, src: &S, base: &Place) -> Result<()> {
        self.visit.begins(&base.dir, &base.node, src.info().id())?;
        let mut buffers = self.buffers_that(false);
        self.top(src, &base.dir, &base.node.path(), &mut buffers.found)?;
        self.settle(&mut buffers);
        Ok(())
    }

    fn enter(
        &self,
        buffers: &mut SurveyBuffers,
        above: &Arc<SurveyDir<S>>,
        src: &Arc<S>,
        entry: DirEntry<'_>,
        by: Entering,
    ) -> Result<Option<SurveyedDir>> {
        let (to, info) = (entry.to, *src.info());
        let there = above.dst.look(to)?;
        let of = above.dst.dir.as_ref().map(|dir| Of::At(dir, to));
        let both = TwoDirs { src: &**src, there: of, dst: (&above.dst.path, Some(to)) };
        let sides = BothSides { above: &above.dst, spot: &above.spot, to, info, there, paths: &both };
        let merges = self.rivals.goes(&self.rival(&sides))? == Turn::Merges;
        let named = self.named.as_ref().map(|named| (named, src.node().below_root(None)));
        if let Some((named, path)) = &named
            && !named.is_known(path)
        {
            let (shown, note) = (src.node().path(), Reason::KindBecame.about(info.kind.word()));
            return Err(Error::ours(Code::SourceChanged, Op::Compare, shown, note));
        }
        let is_walked = match &named {
            Some((named, path)) => named.is_compared(path),
            None => matches!(by, Entering::Operand | Entering::Walk),
        };
        let mut goes_in = true;
        if is_walked {
            goes_in = self.meet(&sides.pair(merges, &both), &mut buffers.found);
            self.settle(buffers);
        }
        // What is below it is asked for by name, whatever it is beside.
        if let Some((named, path)) = &named {
            goes_in = named.leads_on(path);
        }
        if !goes_in {
            return Ok(None);
        }
        let dst_path = both.dst_path();
        let dir = match (&above.dst.dir, there) {
            (Some(dir), Some(there)) if there.kind == Kind::Dir => {
                // A list leads through directories that need not be listed.
                let opened = match by {
                    Entering::List | Entering::ListBase | Entering::Round => dir.open_dir(to),
                    Entering::Operand | Entering::Whole | Entering::Walk => dir.open_dir_readable(to),
                };
                let dir = opened.map_err(|e| Error::os(Op::OpenDirectory, &dst_path, e))?;
                if by == Entering::Whole {
                    self.top(&**src, &dir, &dst_path, &mut buffers.found)?;
                    self.settle(buffers);
                }
                Some(dir)
            }
            // What stands in the way of a directory is told with that directory's own name.
            (_, Some(_)) if self.lacks.is_some() => None,
            (_, Some(_)) if !is_walked => {
                let note = Reason::DirectoryOverFile;
                return Err(Error::ours(Code::InTheWay, Op::MakeDirectory, dst_path, note));
            }
            // The next name of a list may lead through it again.
            (_, None) if matches!(by, Entering::Whole | Entering::List | Entering::Round) && !merges => {
                self.visit.absent(&both, &mut buffers.found);
                self.settle(buffers);
                None
            }
            _ => None,
        };
        let lack = match &above.dst.lack {
            Some((lack, _)) => Some((lack.clone(), false)),
            None if self.lacks.is_some() => self.lack_of_round(&dst_path, there).map(|lack| (lack, false)),
            None => {
                let is_over = |there: &Info| is_walked && there.kind != Kind::Dir && self.visit.goes_over();
                let lacks = there.as_ref().is_none_or(is_over);
                lacks.then(|| (Lack::new(&dst_path, &info, there), true))
            }
        };
        let entered =
            SurveyedDir::new(dir.map(Arc::new), dst_path, above.dst.top.clone(), above.dst.privileged);
        Ok(Some(SurveyedDir { lack, is_own: true, ..entered }))
    }

    fn met(&self, pair: &SurveyDir<S>, name: Name<'_>) {
        self.has(pair, name, false);
        self.visit.source_has_one();
        if self.visit.wants_extra() {
            pair.dst.met(name);
        }
    }

    fn left_out(&self, pair: &SurveyDir<S>, name: Name<'_>) {
        self.has(pair, name, true);
        match self.policy.mirror {
            Mirror::DeleteExcluded => self.visit.source_has_one(),
            _ => self.met(pair, name),
        }
    }

    fn listed(&self, pair: &SurveyDir<S>) {
        match if self.visit.wants_extra() { self.not_met(pair) } else { Ok(Names::default()) } {
            Ok(extra) => self.tell_extras(&mut self.buffers_that(false), pair, &extra, 0..extra.len()),
            Err(e) => self.tally.fail(e),
        }
    }

    fn release(&self, buffers: &mut SurveyBuffers, hold: Hold<S, SurveyedDir>) {
        hold.release(|pair| {
            // What waits for its turn is told by a task of its own ([`WalkDestination::close`]).
            if let (Some((lack, true)), false) = (&pair.dst.lack, buffers.waits) {
                self.visit.lacks(lack);
            }
        });
    }
}

impl WalkDestination for Survey<'_> {
    type Finding = Found;

    fn is_ordered(&self) -> bool {
        true
    }

    fn ordered_buffers(&self) -> SurveyBuffers {
        self.buffers_that(true)
    }

    fn findings(buffers: &mut SurveyBuffers) -> Findings {
        std::mem::take(&mut buffers.found)
    }

    fn is_full(buffers: &SurveyBuffers) -> bool {
        buffers.found.len() >= FOUND_MAX
    }

    fn tell(&self, found: Found) {
        self.tell_found(found);
    }

    fn failed(&self, buffers: &mut SurveyBuffers, e: Error) {
        buffers.found.push(Found::Failed(e));
        self.settle(buffers);
    }

    fn wants_extras(&self) -> bool {
        self.visit.wants_extra()
    }

    fn only_there(
        &self,
        buffers: &mut SurveyBuffers,
        pair: &SurveyDir<SourceDir>,
        has: &dyn Fn(Name<'_>) -> bool,
    ) -> Result<Names> {
        let (mut extra, mut all) = (Names::default(), 0);
        let listed = pair.dst.list(&mut buffers.list, |entry| {
            all += 1;
            if !has(entry.name) && self.is_extra(pair, entry.name, entry.kind) {
                extra.push(entry.name, entry.kind.unwrap_or(Kind::File), 0);
            }
            !self.tally.cancelled()
        });
        listed.map_err(|e| unlisted(pair, e))?;
        self.visit.counted(all);
        extra.sort_by_name();
        Ok(extra)
    }

    fn extras(
        &self,
        buffers: &mut SurveyBuffers,
        pair: &SurveyDir<SourceDir>,
        names: &Names,
        range: Range<usize>,
    ) {
        self.tell_extras(buffers, pair, names, range);
    }

    fn closes(&self, pair: &SurveyDir<SourceDir>) -> bool {
        self.visit.wants_lacks() && matches!(pair.dst.lack, Some((_, true)))
    }

    fn close(&self, buffers: &mut SurveyBuffers, pair: &SurveyDir<SourceDir>) {
        if let Some((lack, true)) = &pair.dst.lack {
            buffers.found.push(Found::Lacks(lack.clone()));
        }
    }

    fn list_base(&self, target: &Target) -> Result<SurveyedDir> {
        let to = operands::target_for(Op::Open, &Reach::Anywhere, target, 1, DestLink::Through)?;
        let there = match to {
            Where::Into(place) | Where::Whole(place) => self.opened(&place)?,
            Where::Name { dir, name, .. } => {
                let there = dir.dir.open_dir(name.as_name()).ok();
                SurveyedDir::new(
                    there.map(Arc::new),
                    PathBuf::new(),
                    dir.node.clone(),
                    self.policy.preserve.at_dest,
                )
            }
        };
        Ok(SurveyedDir { path: target.path().clone(), ..there })
    }

    fn claim(&self, pair: &SurveyDir<SourceDir>, entry: DirEntry<'_>, info: &Info) -> Result<Claimed> {
        let DirEntry { name, to, follow, .. } = entry;
        let (mut rooms, src, info) = (CompareRooms::default(), &pair.src, *info);
        let (dst_dir, tally, rooms) = (&*pair.dst.path, self.tally, RefCell::new(&mut rooms));
        let both = LocalSides {
            src,
            name,
            dst: None,
            dst_dir,
            to,
            follow,
            privileged: Privileged::Real,
            tally,
            rooms,
            threads: &|| 1,
        };
        let (above, spot) = (&pair.dst, &pair.spot);
        let sides = BothSides { above, spot, to, info, there: None, paths: &both };
        self.rivals.claim(&self.rival(&sides), info.id())
    }

    fn room(&self, _: &SurveyDir<SourceDir>) -> usize {
        0
    }

    fn entries(
        &self,
        worker: &mut WalkWorker<'_, '_, Self>,
        pair: &Arc<SurveyDir<SourceDir>>,
        names: &Names,
        range: Range<usize>,
    ) {
        let follow = self.policy.follow == Follow::Always;
        for (name, kind) in range.filter_map(|index| names.get(index)) {
            if self.tally.cancelled() {
                return;
            }
            let is_claimed = names.are_claimed;
            self.one(worker, pair, DirEntry { is_claimed, ..DirEntry::met(name, name, kind, follow) });
        }
    }

    fn one(
        &self,
        worker: &mut WalkWorker<'_, '_, Self>,
        pair: &Arc<SurveyDir<SourceDir>>,
        entry: DirEntry<'_>,
    ) {
        let (buffers, hungry) = worker.parts();
        let threads = || if hungry() { self.policy.jobs } else { 1 };
        if let Err(e) = self.entry(buffers, &threads, pair, entry) {
            buffers.found.push(Found::Failed(e));
        }
    }

    fn excluded(&self, buffers: &mut SurveyBuffers, path: &dyn Fn() -> PathBuf) {
        self.visit.excluded(path, &mut buffers.found);
        self.settle(buffers);
    }
}
