//! A destination that is only looked at: what `check` and `--dry-run` share.
//!
//! Must not create, write or remove; it opens directories only to list them, and files only when asked to hash them.
//! The pairs are those a copy of the same arguments would make: operands, walk, filter and plan are the copy's own.

use crate::disk::seal::{self, AttributeList};
use crate::disk::{Fault, Side, tee};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Question, Summary, Watch};
use crate::node::{Node, os};
use crate::policy::{Collide, CopyPolicy, CopyRequest, Follow, Target};
use crate::receiver::claims::{Claimed, Claims, Meeting};
use crate::receiver::dir_task::DirTask;
use crate::receiver::plan::{NOT_ITS_BEGINNING, Proof, Verdict, decide};
use crate::sender::filter::Filter;
use crate::sender::names::{ListedNames, Names};
use crate::sender::walk::SourceDir;
use crate::tally::Tally;
use crate::verbs::local::{Destination, Entering, Walk, WalkEntry, WalkHold, WalkWorker};
use crate::verbs::operands::{self, DestLink, Place, Reach, Where};
use crate::verbs::rivals::{RivalName, Rivals, Turn};
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use fastcopy::xattr::Of;
use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One entry of the source and what has its name at the destination.
pub(crate) struct At<'s> {
    pub(crate) info: Info,
    pub(crate) there: Option<Info>,
    pub(crate) src_path: &'s Path,
    pub(crate) dst_path: &'s Path,
    /// The directory above it that the destination lacks.
    pub(crate) lack: Option<&'s Lack>,
    /// An earlier source makes a directory of this name, and this one is merged into it.
    pub(crate) merges: bool,
    pub(crate) both: &'s dyn Both,
}

/// What is in the two sides of one entry, read only when a visitor asks.
pub(crate) trait Both {
    /// Whether two regular files have the same content.
    fn same_content(&self) -> Result<bool>;
    /// Whether two symbolic links lead to the same.
    fn same_target(&self) -> Result<bool>;
    /// Whether the destination's regular file is how the source's begins.
    fn same_beginning(&self) -> Result<bool>;
    /// What a copy of this policy would change of the destination's attributes, if anything.
    fn attributes(&self, kind: Kind, policy: &CopyPolicy) -> Result<Option<Reason>>;
}

impl dyn Both + '_ {
    /// Whether a proof holds.
    pub(crate) fn holds(&self, proof: Proof) -> Result<bool> {
        match proof {
            Proof::Content => self.same_content(),
            Proof::Target => self.same_target(),
            Proof::Beginning => self.same_beginning(),
        }
    }
}

/// A directory that the destination lacks, while what is below it is counted.
pub(crate) struct Lack {
    pub(crate) path: PathBuf,
    pub(crate) files: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Lack {
    pub(crate) fn new(path: &Path) -> Arc<Lack> {
        let zero = AtomicU64::default;
        Arc::new(Lack { path: path.to_owned(), files: zero(), bytes: zero() })
    }
}

/// A directory whose contents are an operand, and the directory that they go into.
pub(crate) struct Tops<'s> {
    /// The attributes of the source.
    pub(crate) attrs: AttributeList,
    pub(crate) dst: &'s Dir,
    pub(crate) shown: &'s Path,
}

impl Both for Tops<'_> {
    fn same_content(&self) -> Result<bool> {
        Ok(true)
    }
    fn same_target(&self) -> Result<bool> {
        Ok(true)
    }
    fn same_beginning(&self) -> Result<bool> {
        Ok(true)
    }
    fn attributes(&self, kind: Kind, policy: &CopyPolicy) -> Result<Option<Reason>> {
        change(Of::Handle(self.dst.as_fd()), self.shown, kind, policy, &self.attrs)
    }
}

/// What a copy would change of the attributes of `there`, where the source has these.
pub(crate) fn change(
    there: Of<'_>,
    shown: &Path,
    kind: Kind,
    policy: &CopyPolicy,
    source: &AttributeList,
) -> Result<Option<Reason>> {
    let there = attributes(there, shown, kind, policy)?;
    Ok(seal::change(kind, &policy.preserve, policy.strictness, source, &there))
}

fn attributes(of: Of<'_>, shown: &Path, kind: Kind, policy: &CopyPolicy) -> Result<AttributeList> {
    seal::attributes(of, kind, &policy.preserve).map_err(|e| Error::os(Op::ReadAttributesOf, shown, e))
}

/// What is done with what the walk finds.
pub(crate) trait Visit {
    /// An entry of the source. For a directory: whether to go in.
    fn entry(&mut self, at: &At<'_>) -> bool;
    /// What of its content will be asked about, if anything.
    fn wants_content(&self, at: &At<'_>) -> Option<Proof>;
    /// An entry that the filter leaves out.
    fn excluded(&mut self, src_path: PathBuf);
    /// A directory that has no entry of its own (an operand as a whole, one on the way to a listed name) has no name at
    /// the destination yet.
    fn absent(&mut self, src_path: PathBuf, dst_path: PathBuf);
    /// A directory whose contents are an operand, beside the one that they go into.
    fn top(&mut self, _at: &At<'_>) {}
    /// All below a directory that the destination lacks was gone through.
    fn lacks(&mut self, _lack: &Lack) {}
    /// An entry that only the destination has.
    fn extra(&mut self, dir: &Dir, name: Name<'_>, dst_path: PathBuf);
    /// Whether [`Visit::extra`] is wanted.
    fn wants_extra(&self) -> bool;
}

/// What has the place of a source directory at the destination.
pub(crate) struct There {
    /// Absent when it is.
    dir: Option<Arc<Dir>>,
    path: PathBuf,
    /// What the target is called.
    top: Arc<Node>,
    /// The directory at or above it that the destination lacks, and whether it is this one.
    lack: Option<(Arc<Lack>, bool)>,
    /// Names that the source has, where those that only the destination has are told.
    met: Mutex<HashSet<NameBuf>>,
}

impl There {
    fn new(dir: Option<Arc<Dir>>, path: PathBuf, top: Arc<Node>) -> There {
        There { dir, path, top, lack: None, met: Mutex::default() }
    }

    fn met(&self) -> MutexGuard<'_, HashSet<NameBuf>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has a name in it.
    fn look(&self, name: Name<'_>) -> Result<Option<Info>> {
        let looked = self.dir.as_ref().map_or(Ok(None), |dir| dir.look(name));
        looked.map_err(|e| Error::os(Op::Stat, self.path.join(os(name)), e))
    }
}

type SurveyDir = DirTask<SourceDir, There>;

/// An entry of a directory, as it is at the source and at the destination.
struct BothSides<'s> {
    above: &'s SurveyDir,
    entry: WalkEntry<'s>,
    info: Info,
    there: Option<Info>,
    src_path: &'s Path,
    dst_path: &'s Path,
}

/// Both sides of an entry, here.
struct Here<'s> {
    src: &'s Arc<SourceDir>,
    name: Name<'s>,
    /// The destination's directory and the entry's name there; absent when the directory itself is.
    dst: Option<(&'s Dir, Name<'s>)>,
    src_path: &'s Path,
    dst_path: &'s Path,
    follow: bool,
    tally: &'s Tally<'s>,
}

impl Both for Here<'_> {
    fn same_content(&self) -> Result<bool> {
        let Some((dir, to)) = self.dst else { return Ok(true) };
        let (ours, _) = self.src.open_file(self.name, self.follow)?;
        let theirs = dir.open_file(to).map_err(|e| Error::os(Op::Open, self.dst_path, e))?;
        // Both sides are read: a file is done when two times its size is.
        let read = Cell::new(0u64);
        let observe = |bytes: u64| {
            let before = read.replace(read.get() + bytes);
            self.tally.watch.progress.bytes_done.fetch_add(read.get() / 2 - before / 2, Ordering::Relaxed);
            !self.tally.cancelled()
        };
        Ok(hash(&ours, self.src_path, &observe)? == hash(&theirs, self.dst_path, &observe)?)
    }
    fn same_beginning(&self) -> Result<bool> {
        let Some((dir, to)) = self.dst else { return Ok(true) };
        let (src, _) = self.src.open_file(self.name, self.follow)?;
        let told = |f: Fault| f.told(|| self.src_path.to_owned(), || self.dst_path.to_owned());
        let failed = |e| Error::os(Op::Read, self.dst_path, e);
        let there = dir.open_file(to).map_err(failed)?;
        let size = Info::of(&there).map_err(failed)?.size;
        let read = |at: u64, room: &mut [u8]| {
            fastcopy::read_write::read_full(&src, at, room).map_err(|e| Fault::os(Side::Source, Op::Read, e))
        };
        tee::is_same(&there, 0, size, &read, &|| !self.tally.cancelled()).map_err(told)
    }
    fn attributes(&self, kind: Kind, policy: &CopyPolicy) -> Result<Option<Reason>> {
        let Some((dir, to)) = self.dst else { return Ok(None) };
        let read = |of| attributes(of, self.src_path, kind, policy);
        // Those of a link that is followed are not copied.
        let source = match (self.follow, kind) {
            (true, Kind::File) => read(Of::Handle(self.src.open_file(self.name, true)?.0.as_fd()))?,
            (true, Kind::Dir) => {
                let opened = self.src.dir.open_dir_following(self.name);
                read(Of::Handle(opened.map_err(|e| Error::os(Op::OpenDirectory, self.src_path, e))?.as_fd()))?
            }
            _ => read(Of::At(&self.src.dir, self.name))?,
        };
        change(Of::At(dir, to), self.dst_path, kind, policy, &source)
    }
    fn same_target(&self) -> Result<bool> {
        let Some((dir, to)) = self.dst else { return Ok(true) };
        let ours =
            self.src.dir.read_link(self.name).map_err(|e| Error::os(Op::ReadLink, self.src_path, e))?;
        let theirs = dir.read_link(to).map_err(|e| Error::os(Op::ReadLink, self.dst_path, e))?;
        Ok(ours == theirs)
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

/// A destination that nothing is done to: what the walk finds is shown beside what is there.
pub(crate) struct Survey<'a> {
    policy: &'a CopyPolicy,
    filter: Filter,
    tally: &'a Tally<'a>,
    rivals: Rivals,
    wants_extra: bool,
    visit: Mutex<Box<dyn Visit + Send + 'a>>,
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
            wants_extra: visit.wants_extra(),
            visit: Mutex::new(visit),
        })
    }

    /// One worker: what is found is shown in the order of names, so that two runs say the same.
    fn walk(&self) -> Walk<'_, Self> {
        Walk { to: self, policy: self.policy, filter: &self.filter, jobs: 1, dropped: Arc::default() }
    }

    /// Walks all operands.
    pub(crate) fn operands(&mut self, sources: &[PathBuf], to: &Where) {
        let mut operands =
            operands::resolve(sources, to, self.policy, Op::Copy, DestLink::Through, self.tally);
        self.rivals = Rivals::new(operands::claims(&mut operands), usize::MAX);
        self.walk().operands(operands);
    }

    /// Walks names from a list.
    fn list(&mut self, names: &mut ListedNames<'_>, target: &Target) -> Result<()> {
        self.rivals = Rivals::new(Claims::new(Meeting::Listed), usize::MAX);
        let spot = self.rivals.claims.operand(names.base, true);
        self.walk().list(names, target, spot)
    }

    fn visit(&self) -> MutexGuard<'_, Box<dyn Visit + Send + 'a>> {
        self.visit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry among the names that sources become.
    fn rival<'s>(&self, sides: &BothSides<'s>) -> RivalName<'s> {
        let BothSides { above, entry, info, there, src_path, dst_path } = *sides;
        RivalName {
            spot: &above.spot,
            dir: above.dst.dir.as_deref(),
            to: entry.to,
            kind: info.kind,
            is_there: there.is_some(),
            is_left_out: info.kind.is_special() && !self.policy.specials,
            src_path,
            dst_path,
            top: &above.dst.top,
        }
    }

    /// Shows an entry. For a directory: whether to go in.
    fn show(&self, sides: &BothSides<'_>, merges: bool) -> bool {
        let BothSides { above, entry, info, there, src_path, dst_path } = *sides;
        let WalkEntry { name, to, follow, .. } = entry;
        let dst = above.dst.dir.as_ref().map(|dir| (&**dir, to));
        let both = Here { src: &above.src, name, dst, src_path, dst_path, follow, tally: self.tally };
        let lack = above.dst.lack.as_ref().map(|(lack, _)| &**lack);
        self.visit().entry(&At { info, there, src_path, dst_path, lack, merges, both: &both })
    }

    /// An entry that is no directory.
    fn entry(&self, pair: &SurveyDir, entry: WalkEntry<'_>) -> Result<()> {
        let WalkEntry { name, to, kind, follow, is_claimed } = entry;
        let (src_path, dst_path) = (&*pair.src.node.join(name), &*pair.dst.path.join(os(to)));
        let info = pair.src.stat(name, follow)?;
        if info.kind != kind {
            let note = Reason::KindBecame.about(info.kind.word());
            return Err(Error::ours(Code::SourceChanged, Op::Copy, src_path, note));
        }
        let sides = BothSides { above: pair, entry, info, there: pair.dst.look(to)?, src_path, dst_path };
        let rival = self.rival(&sides);
        let turn = match is_claimed {
            true => self.rivals.goes(&rival)?,
            false => self.rivals.turn(&rival, info.id())?,
        };
        if turn != Turn::Came {
            self.show(&sides, turn == Turn::Merges);
        }
        Ok(())
    }

    /// Shows a directory whose contents are an operand beside the one that they go into.
    fn top(&self, src: &SourceDir, dst: &Dir, shown: &Path) -> Result<()> {
        let src_path = &*src.node.path();
        let there = Some(dst.info().map_err(|e| Error::os(Op::Stat, shown, e))?);
        let attrs = attributes(Of::Handle(src.dir.as_fd()), src_path, Kind::Dir, self.policy)?;
        let (both, info) = (Tops { attrs, dst, shown }, src.info);
        let at = At { info, there, src_path, dst_path: shown, lack: None, merges: false, both: &both };
        self.visit().top(&at);
        Ok(())
    }

    /// Tells what only the destination has in a directory.
    fn extras(&self, pair: &SurveyDir, dir: &Dir) -> Result<()> {
        let met = std::mem::take(&mut *pair.dst.met());
        let mut extra = Vec::new();
        // A handle is listed once: it stays at its end.
        let listed = dir.reopen().and_then(|dir| {
            dir.list(&mut ListBuffer::new(), |entry| {
                let name = entry.name.to_owned();
                let is_dir = entry.kind == Some(Kind::Dir);
                if !met.contains(&name) && !pair.src.excludes(entry.name, is_dir, &self.filter) {
                    extra.push(name);
                }
                true
            })
        });
        listed.map_err(|e| Error::os(Op::ListDirectory, &pair.dst.path, e))?;
        extra.sort();
        for name in extra {
            self.visit().extra(dir, name.as_name(), pair.dst.path.join(os(name.as_name())));
        }
        Ok(())
    }
}

impl Destination for Survey<'_> {
    type Buffers = ();
    type Dir = There;

    fn tally(&self) -> &Tally<'_> {
        self.tally
    }

    fn claims(&self) -> &Claims {
        &self.rivals.claims
    }

    fn claim(&self, pair: &SurveyDir, entry: WalkEntry<'_>, info: &Info) -> Result<Claimed> {
        let WalkEntry { name, to, .. } = entry;
        let (src_path, dst_path) = (&*pair.src.node.join(name), &*pair.dst.path.join(os(to)));
        let sides = BothSides { above: pair, entry, info: *info, there: None, src_path, dst_path };
        self.rivals.claim(&self.rival(&sides), info.id())
    }

    fn buffers(&self) {}

    fn is_ordered(&self) -> bool {
        true
    }

    fn base(&self, place: &Place) -> Result<There> {
        let dir = place.dir.try_clone().map_err(|e| Error::os(Op::Open, place.node.path(), e))?;
        Ok(There::new(Some(Arc::new(dir)), place.node.path(), place.node.clone()))
    }

    fn list_base(&self, target: &Target) -> Result<There> {
        let (dir, top) = match operands::target(&Reach::Anywhere, target, 1, DestLink::Through)? {
            Where::Into(place) | Where::Whole(place) => {
                let dir = place.dir.try_clone().map_err(|e| Error::os(Op::Open, place.node.path(), e))?;
                (Some(dir), place.node.clone())
            }
            Where::Name { dir, name, .. } => (dir.dir.open_dir(name.as_name()).ok(), dir.node.clone()),
        };
        Ok(There::new(dir.map(Arc::new), target.path().clone(), top))
    }

    fn share(&self, base: &There) -> There {
        There::new(base.dir.clone(), base.path.clone(), base.top.clone())
    }

    fn enter(
        &self,
        (): &mut (),
        above: &Arc<SurveyDir>,
        src: &Arc<SourceDir>,
        entry: WalkEntry<'_>,
        by: Entering,
    ) -> Result<Option<There>> {
        let to = entry.to;
        let (src_path, dst_path) = (&*src.node.path(), &*above.dst.path.join(os(to)));
        let there = above.dst.look(to)?;
        let sides = BothSides { above, entry, info: src.info, there, src_path, dst_path };
        let merges = self.rivals.goes(&self.rival(&sides))? == Turn::Merges;
        let opened = |dir: &Arc<Dir>| {
            // A list leads through directories that need not be listed.
            let opened = if by == Entering::List { dir.open_dir(to) } else { dir.open_dir_readable(to) };
            opened.map(Arc::new).map_err(|e| Error::os(Op::OpenDirectory, dst_path, e))
        };
        let dir = above.dst.dir.as_ref().filter(|_| there.is_some_and(|there| there.kind == Kind::Dir));
        let dir = match (by, dir) {
            (Entering::Operand | Entering::Walk, dir) => {
                if !self.show(&sides, merges) {
                    return Ok(None);
                }
                dir.map(opened).transpose()?
            }
            (Entering::Whole | Entering::List, Some(dir)) => {
                let dir = opened(dir)?;
                if by == Entering::Whole {
                    self.top(src, &dir, dst_path)?;
                }
                Some(dir)
            }
            (Entering::Whole | Entering::List, None) if there.is_some() => {
                let note = Reason::DirectoryOverFile;
                return Err(Error::ours(Code::InTheWay, Op::MakeDirectory, dst_path, note));
            }
            (Entering::Whole | Entering::List, None) => {
                // The next name may lead through it again.
                if !merges {
                    self.visit().absent(src_path.to_owned(), dst_path.to_owned());
                }
                None
            }
        };
        let lack = match &above.dst.lack {
            Some((lack, _)) => Some((lack.clone(), false)),
            None => there.is_none().then(|| (Lack::new(dst_path), true)),
        };
        Ok(Some(There { lack, ..There::new(dir, dst_path.to_owned(), above.dst.top.clone()) }))
    }

    fn fills(&self, src: &SourceDir, base: &Place) -> Result<()> {
        self.top(src, &base.dir, &base.node.path())
    }

    fn room(&self, _: &SurveyDir) -> usize {
        0
    }

    fn entries(
        &self,
        worker: &mut WalkWorker<'_, '_, Self>,
        pair: &Arc<SurveyDir>,
        names: &Names,
        range: Range<usize>,
    ) {
        let follow = self.policy.follow == Follow::Always;
        for (name, kind) in range.filter_map(|index| names.get(index)) {
            if self.tally.cancelled() {
                return;
            }
            self.one(worker, pair, WalkEntry::met(name, name, kind, follow));
        }
    }

    fn one(&self, _: &mut WalkWorker<'_, '_, Self>, pair: &Arc<SurveyDir>, entry: WalkEntry<'_>) {
        if let Err(e) = self.entry(pair, entry) {
            self.tally.fail(e);
        }
    }

    fn excluded(&self, path: &dyn Fn() -> PathBuf) {
        self.visit().excluded(path());
    }

    fn met(&self, pair: &SurveyDir, name: Name<'_>) {
        if self.wants_extra && pair.dst.dir.is_some() {
            pair.dst.met().insert(name.to_owned());
        }
    }

    fn listed(&self, pair: &SurveyDir) {
        if let (true, Some(dir)) = (self.wants_extra, &pair.dst.dir)
            && let Err(e) = self.extras(pair, dir)
        {
            self.tally.fail(e);
        }
    }

    fn release(&self, (): &mut (), hold: WalkHold<Self>) {
        hold.release(|pair| {
            if let Some((lack, true)) = &pair.dst.lack {
                self.visit().lacks(lack);
            }
        });
    }
}

/// `copy --dry-run`: says what would be done.
pub(crate) fn dry_run(request: CopyRequest, watch: Watch<'_>) -> Result<Summary> {
    let tally = Tally::new(watch);
    let policy = &request.policy;
    let mut survey = Survey::new(policy, &tally, Box::new(DryRun::new(policy, &tally)))?;
    match request.names {
        None => {
            let target = operands::same_target(&request.sources, request.target, policy);
            let count = request.sources.len();
            let to = operands::target(&operands::Reach::Anywhere, &target, count, DestLink::Through)?;
            survey.operands(&request.sources, &to);
        }
        Some(mut list) => {
            let [base] = request.sources.as_slice() else {
                let note = Reason::OneSourceDirectory;
                return Err(Error::ours(Code::Usage, Op::Copy, request.target.path(), note));
            };
            let mut names = ListedNames { reader: &mut *list.reader, separator: list.separator, base };
            survey.list(&mut names, &request.target)?;
        }
    }
    drop(survey);
    Ok(tally.summary())
}

/// Tells what a copy would do.
pub(crate) struct DryRun<'a> {
    policy: &'a CopyPolicy,
    tally: &'a Tally<'a>,
    /// Inodes with several names of which one was met.
    linked: HashSet<(u64, u64)>,
}

impl<'a> DryRun<'a> {
    pub(crate) fn new(policy: &'a CopyPolicy, tally: &'a Tally<'a>) -> DryRun<'a> {
        DryRun { policy, tally, linked: HashSet::new() }
    }
}

impl Visit for DryRun<'_> {
    fn entry(&mut self, at: &At<'_>) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        let paths = || (at.src_path.to_owned(), at.dst_path.to_owned());
        if at.info.kind.is_special() && !self.policy.specials {
            let note = Reason::KindIs.about(at.info.kind.word());
            self.tally.fail(Error::ours(Code::Special, Op::Copy, at.src_path, note));
            return false;
        }
        let verdict = decide(&at.info, at.there.as_ref(), self.policy);
        let holds = match (verdict, self.policy.collide) {
            (Verdict::KeepIf(proof, _), _) => at.both.holds(proof),
            (Verdict::Append { proved: true }, collide) if collide != Collide::Ask => {
                at.both.holds(Proof::Beginning)
            }
            _ => Ok(true),
        };
        let verdict = match (verdict, holds) {
            (_, Err(e)) => {
                self.tally.fail(e);
                return false;
            }
            (Verdict::Append { .. }, Ok(false)) => Verdict::Refuse(Code::Refused, NOT_ITS_BEGINNING),
            (verdict, Ok(holds)) => verdict.settled(holds),
        };
        let asks = self.policy.collide == Collide::Ask;
        let keep = match verdict {
            Verdict::Make | Verdict::Replace | Verdict::KeepIf(..) => false,
            Verdict::Append { .. } if !asks => false,
            Verdict::Merge => return self.policy.recursive,
            Verdict::Keep => true,
            Verdict::Ask | Verdict::Append { .. } => {
                !self.tally.ask(Question::Replace(at.dst_path.to_owned()))
            }
            Verdict::Refuse(code, why) if at.info.kind == Kind::Dir => {
                self.tally.fail(Error::ours(code, Op::MakeDirectory, at.dst_path, why));
                return false;
            }
            Verdict::Refuse(code, why) => {
                let adds = self.policy.resume.appends() && at.there.is_some_and(|t| t.kind == at.info.kind);
                self.tally.fail(if adds {
                    Error::ours(code, Op::AppendTo, at.dst_path, why)
                } else {
                    Error::ours(code, Op::Replace, at.dst_path, why).and(at.src_path)
                });
                return false;
            }
        };
        if keep {
            self.tally.kept.fetch_add(1, Relaxed);
            self.tally.item(Action::Kept, 0, paths);
            return false;
        }
        let several = self.policy.preserve.links && at.info.kind != Kind::Dir && at.info.nlink > 1;
        if several && !self.linked.insert(at.info.id()) {
            self.tally.others.fetch_add(1, Relaxed);
            self.tally.item(Action::HardLinked, 0, paths);
            return false;
        }
        match at.info.kind {
            Kind::Dir if at.merges => return self.policy.recursive,
            Kind::Dir => {
                self.tally.dirs.fetch_add(1, Relaxed);
                self.tally.item(Action::MadeDir, 0, paths);
                return self.policy.recursive;
            }
            Kind::File => {
                self.tally.files.fetch_add(1, Relaxed);
                self.tally.bytes.fetch_add(at.info.size, Relaxed);
                self.tally.item(Action::Copied, at.info.size, paths);
            }
            Kind::Link => {
                self.tally.others.fetch_add(1, Relaxed);
                self.tally.item(Action::MadeLink, 0, paths);
            }
            _ => {
                self.tally.others.fetch_add(1, Relaxed);
                self.tally.item(Action::MadeSpecial, 0, paths);
            }
        }
        false
    }
    fn wants_content(&self, at: &At<'_>) -> Option<Proof> {
        match decide(&at.info, at.there.as_ref(), self.policy) {
            Verdict::KeepIf(Proof::Content, _) => Some(Proof::Content),
            Verdict::Append { proved: true } => Some(Proof::Beginning),
            _ => None,
        }
    }
    fn excluded(&mut self, src_path: PathBuf) {
        self.tally.item(Action::Excluded, 0, || (src_path, PathBuf::new()));
    }
    fn absent(&mut self, src_path: PathBuf, dst_path: PathBuf) {
        self.tally.dirs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.tally.item(Action::MadeDir, 0, || (src_path, dst_path));
    }
    fn extra(&mut self, _dir: &Dir, _name: Name<'_>, _dst_path: PathBuf) {}
    fn wants_extra(&self) -> bool {
        false
    }
}
