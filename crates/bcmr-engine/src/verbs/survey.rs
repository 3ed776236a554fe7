//! A destination that is only looked at: what `check` and `--dry-run` share.
//!
//! Must not create, write or remove; it opens directories only to list them, and files only when asked to hash them.
//! The pairs are those a copy of the same arguments would make: operands, walk, filter and plan are the copy's own.

use crate::disk::seal::{self, AttributeList};
use crate::disk::{Attributes, Fault, Side, tee};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Question, Summary, Watch};
use crate::node::{Node, os};
use crate::policy::{Collide, CopyPolicy, CopyRequest, Follow, Target};
use crate::receiver::claims::{Claimed, Claims, Meeting, Spot};
use crate::receiver::dir_task::{DirTask, Hold, Origin};
use crate::receiver::plan::{NOT_ITS_BEGINNING, Proof, Verdict, decide};
use crate::sender::filter::Filter;
use crate::sender::names::{ListedNames, Names};
use crate::sender::walk::SourceDir;
use crate::tally::Tally;
use crate::verbs::destination::{Destination, DirEntry, Entering};
use crate::verbs::local::{Walk, WalkDestination, WalkWorker};
use crate::verbs::operands::{self, DestLink, Place, Reach, Where};
use crate::verbs::rivals::{RivalName, Rivals, Turn};
use fastcopy::dir::{Dir, ListBuffer, Name};
use fastcopy::meta::{Info, Kind};
use fastcopy::xattr::Of;
use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One entry of the source and what has its name at the destination.
pub(crate) struct EntryPair<'s> {
    pub(crate) info: Info,
    pub(crate) there: Option<Info>,
    pub(crate) src_path: &'s Path,
    pub(crate) dst_path: &'s Path,
    /// The directory above it that the destination lacks.
    pub(crate) lack: Option<&'s Lack>,
    /// An earlier source makes a directory of this name, and this one is merged into it.
    pub(crate) merges: bool,
    pub(crate) both: &'s dyn ContentCompare,
}

/// What is in the two sides of one entry, read only when a visitor asks.
pub(crate) trait ContentCompare {
    /// Whether two regular files have the same content.
    fn same_content(&self) -> Result<bool>;
    /// Whether two symbolic links lead to the same.
    fn same_target(&self) -> Result<bool>;
    /// Whether the destination's regular file is how the source's begins.
    fn same_beginning(&self) -> Result<bool>;
    /// What a copy of this policy would change of the destination's attributes, if anything.
    fn attributes(&self, kind: Kind, policy: &CopyPolicy) -> Result<Option<Reason>>;
}

impl dyn ContentCompare + '_ {
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

/// Two directories, of which attributes alone are compared.
struct TwoDirs<'s> {
    source: Attributes<'s>,
    src_path: &'s Path,
    /// Absent where the destination lacks the directory above it.
    there: Option<Of<'s>>,
    dst_path: &'s Path,
}

impl ContentCompare for TwoDirs<'_> {
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
        let Some(there) = self.there else { return Ok(None) };
        let source = match &self.source {
            Attributes::Dir(dir) => attributes(Of::Handle(dir.as_fd()), self.src_path, kind, policy)?,
            Attributes::At(dir, name) => attributes(Of::At(dir, *name), self.src_path, kind, policy)?,
            Attributes::Carried(attrs) => carried(attrs),
        };
        change(there, self.dst_path, kind, policy, &source)
    }
}

/// Attributes that came along with an entry.
pub(crate) fn carried(attrs: &[(CString, Vec<u8>)]) -> AttributeList {
    attrs.iter().map(|(name, value)| (name.to_bytes().to_vec(), value.clone())).collect()
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
    fn entry(&mut self, at: &EntryPair<'_>) -> bool;
    /// What of its content will be asked about, if anything.
    fn wants_content(&self, at: &EntryPair<'_>) -> Option<Proof>;
    /// An entry that the filter leaves out.
    fn excluded(&mut self, src_path: PathBuf);
    /// A directory that has no entry of its own (an operand as a whole, one on the way to a listed name) has no name at
    /// the destination yet.
    fn absent(&mut self, src_path: PathBuf, dst_path: PathBuf);
    /// A directory whose contents are an operand, beside the one that they go into.
    fn top(&mut self, _at: &EntryPair<'_>) {}
    /// All below a directory that the destination lacks was gone through.
    fn lacks(&mut self, _lack: &Lack) {}
    /// An entry that only the destination has.
    fn extra(&mut self, dir: &Dir, name: Name<'_>, dst_path: PathBuf);
    /// Whether [`Visit::extra`] is wanted.
    fn wants_extra(&self) -> bool;
}

/// What has the place of a source directory at the destination.
pub(crate) struct SurveyedDir {
    /// Absent when it is.
    pub(crate) dir: Option<Arc<Dir>>,
    pub(crate) path: PathBuf,
    /// What the target is called.
    top: Arc<Node>,
    /// The directory at or above it that the destination lacks, and whether it is this one.
    lack: Option<(Arc<Lack>, bool)>,
    /// What only the destination has, where that is told.
    extra: Mutex<Extra>,
}

/// Names of a destination's directory that the source has not named, as hashes: many are held, and they are short.
enum Extra {
    /// The source has named nothing yet.
    All,
    Some(HashSet<[u8; 16]>),
    /// The directory cannot be listed.
    Unknown(io::Error),
}

impl SurveyedDir {
    fn new(dir: Option<Arc<Dir>>, path: PathBuf, top: Arc<Node>) -> SurveyedDir {
        SurveyedDir { dir, path, top, lack: None, extra: Mutex::new(Extra::All) }
    }

    /// The source has `name`.
    fn met(&self, name: Name<'_>) {
        let Some(dir) = &self.dir else { return };
        let mut extra = self.extra.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*extra, Extra::All) {
            *extra = names_in(dir).map_or_else(Extra::Unknown, Extra::Some);
        }
        if let Extra::Some(names) = &mut *extra {
            names.remove(&short(name));
        }
    }

    /// What has a name in it.
    pub(crate) fn look(&self, name: Name<'_>) -> Result<Option<Info>> {
        let looked = self.dir.as_ref().map_or(Ok(None), |dir| dir.look(name));
        looked.map_err(|e| Error::os(Op::Stat, self.path.join(os(name)), e))
    }
}

/// Enough of a name to know it again: the name itself behind its length, or, where it does not fit, its hash behind a
/// byte that is no such length.
fn short(name: Name<'_>) -> [u8; 16] {
    let bytes = name.bytes();
    let mut short = [0; 16];
    let (first, rest) = short.split_at_mut(1);
    if let Some(room) = rest.get_mut(..bytes.len()) {
        first.fill(bytes.len() as u8);
        room.copy_from_slice(bytes);
    } else {
        first.fill(u8::MAX);
        let hash = blake3::hash(bytes);
        rest.iter_mut().zip(hash.as_bytes()).for_each(|(to, from)| *to = *from);
    }
    short
}

/// The names in a directory, as hashes.
fn names_in(dir: &Dir) -> io::Result<HashSet<[u8; 16]>> {
    let mut names = HashSet::new();
    // A handle is listed once: it stays at its end.
    dir.reopen()?.list(&mut ListBuffer::new(), |entry| {
        names.insert(short(entry.name));
        true
    })?;
    Ok(names)
}

/// A source directory, here or on another machine, as far as what only the destination has depends on it.
pub(crate) trait Excludes: Origin {
    /// Whether the filter leaves `name` out.
    fn leaves_out(&self, name: Name<'_>, is_dir: bool, filter: &Filter) -> bool;
}

impl Excludes for SourceDir {
    fn leaves_out(&self, name: Name<'_>, is_dir: bool, filter: &Filter) -> bool {
        self.excludes(name, is_dir, filter)
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
    pub(crate) src_path: &'s Path,
    pub(crate) dst_path: &'s Path,
}

impl<'s> BothSides<'s> {
    pub(crate) fn pair(&self, merges: bool, both: &'s dyn ContentCompare) -> EntryPair<'s> {
        let BothSides { above, info, there, src_path, dst_path, .. } = *self;
        let lack = above.lack.as_ref().map(|(lack, _)| &**lack);
        EntryPair { info, there, src_path, dst_path, lack, merges, both }
    }
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

impl ContentCompare for Here<'_> {
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
    pub(crate) policy: &'a CopyPolicy,
    filter: Filter,
    pub(crate) tally: &'a Tally<'a>,
    pub(crate) rivals: Rivals,
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

    pub(crate) fn visit(&self) -> MutexGuard<'_, Box<dyn Visit + Send + 'a>> {
        self.visit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry among the names that sources become.
    pub(crate) fn rival<'s>(&self, sides: &BothSides<'s>) -> RivalName<'s> {
        let BothSides { above, spot, to, info, there, src_path, dst_path } = *sides;
        RivalName {
            spot,
            dir: above.dir.as_deref(),
            to,
            kind: info.kind,
            is_there: there.is_some(),
            is_left_out: info.kind.is_special() && !self.policy.specials,
            src_path,
            dst_path,
            top: &above.top,
        }
    }

    /// An entry that is no directory.
    fn entry(&self, pair: &SurveyDir<SourceDir>, entry: DirEntry<'_>) -> Result<()> {
        let DirEntry { name, to, kind, follow, is_claimed } = entry;
        let (src_path, dst_path) = (&*pair.src.node.join(name), &*pair.dst.path.join(os(to)));
        let info = pair.src.stat(name, follow)?;
        if info.kind != kind {
            let note = Reason::KindBecame.about(info.kind.word());
            return Err(Error::ours(Code::SourceChanged, Op::Copy, src_path, note));
        }
        let there = pair.dst.look(to)?;
        let sides = BothSides { above: &pair.dst, spot: &pair.spot, to, info, there, src_path, dst_path };
        let rival = self.rival(&sides);
        let turn = match is_claimed {
            true => self.rivals.goes(&rival)?,
            false => self.rivals.turn(&rival, info.id())?,
        };
        if turn != Turn::Came {
            let dst = pair.dst.dir.as_ref().map(|dir| (&**dir, to));
            let both = Here { src: &pair.src, name, dst, src_path, dst_path, follow, tally: self.tally };
            self.visit().entry(&sides.pair(turn == Turn::Merges, &both));
        }
        Ok(())
    }

    /// Shows a directory whose contents are an operand beside the one that they go into.
    fn top(&self, src: &impl Origin, dst: &Dir, dst_path: &Path) -> Result<()> {
        let (info, src_path) = (*src.info(), &*src.node().path());
        let there = Some(dst.info().map_err(|e| Error::os(Op::Stat, dst_path, e))?);
        let both =
            TwoDirs { source: src.attributes(), src_path, there: Some(Of::Handle(dst.as_fd())), dst_path };
        let pair = EntryPair { info, there, src_path, dst_path, lack: None, merges: false, both: &both };
        self.visit().top(&pair);
        Ok(())
    }

    /// Tells what only the destination has in a directory.
    fn extras<S: Excludes>(&self, pair: &SurveyDir<S>, dir: &Dir) -> Result<()> {
        let failed = |e| Error::os(Op::ListDirectory, &pair.dst.path, e);
        let mut left = pair.dst.extra.lock().unwrap_or_else(PoisonError::into_inner);
        let left = match std::mem::replace(&mut *left, Extra::All) {
            Extra::All => None,
            Extra::Some(names) if names.is_empty() => return Ok(()),
            Extra::Some(names) => Some(names),
            Extra::Unknown(e) => return Err(failed(e)),
        };
        let is_left = |name: Name<'_>| left.as_ref().is_none_or(|names| names.contains(&short(name)));
        let mut extra = Vec::new();
        let listed = dir.reopen().and_then(|dir| {
            dir.list(&mut ListBuffer::new(), |entry| {
                let is_dir = entry.kind == Some(Kind::Dir);
                if is_left(entry.name) && !pair.src.leaves_out(entry.name, is_dir, &self.filter) {
                    extra.push(entry.name.to_owned());
                }
                !self.tally.cancelled()
            })
        });
        listed.map_err(failed)?;
        extra.sort();
        for name in extra {
            self.visit().extra(dir, name.as_name(), pair.dst.path.join(os(name.as_name())));
        }
        Ok(())
    }

    /// A directory that things go into.
    pub(crate) fn opened(&self, place: &Place) -> Result<SurveyedDir> {
        let dir = place.dir.try_clone().map_err(|e| Error::os(Op::Open, place.node.path(), e))?;
        Ok(SurveyedDir::new(Some(Arc::new(dir)), place.node.path(), place.node.clone()))
    }
}

impl<S: Excludes> Destination<S> for Survey<'_> {
    type Buffers = ();
    type Dir = SurveyedDir;

    fn tally(&self) -> &Tally<'_> {
        self.tally
    }

    fn claims(&self) -> &Claims {
        &self.rivals.claims
    }

    fn buffers(&self) {}

    fn base(&self, place: &Place) -> Result<SurveyedDir> {
        self.opened(place)
    }

    fn share(&self, base: &SurveyedDir) -> SurveyedDir {
        SurveyedDir::new(base.dir.clone(), base.path.clone(), base.top.clone())
    }

    fn fills(&self, src: &S, base: &Place) -> Result<()> {
        self.top(src, &base.dir, &base.node.path())
    }

    fn enter(
        &self,
        (): &mut (),
        above: &Arc<SurveyDir<S>>,
        src: &Arc<S>,
        entry: DirEntry<'_>,
        by: Entering,
    ) -> Result<Option<SurveyedDir>> {
        let (to, info) = (entry.to, *src.info());
        let (src_path, dst_path) = (&*src.node().path(), &*above.dst.path.join(os(to)));
        let there = above.dst.look(to)?;
        let sides = BothSides { above: &above.dst, spot: &above.spot, to, info, there, src_path, dst_path };
        let merges = self.rivals.goes(&self.rival(&sides))? == Turn::Merges;
        let is_walked = matches!(by, Entering::Operand | Entering::Walk);
        if is_walked {
            let there = above.dst.dir.as_ref().map(|dir| Of::At(dir, to));
            let both = TwoDirs { source: src.attributes(), src_path, there, dst_path };
            if !self.visit().entry(&sides.pair(merges, &both)) {
                return Ok(None);
            }
        }
        let dir = match (&above.dst.dir, there) {
            (Some(dir), Some(there)) if there.kind == Kind::Dir => {
                // A list leads through directories that need not be listed.
                let opened = match by {
                    Entering::List | Entering::ListBase => dir.open_dir(to),
                    Entering::Operand | Entering::Whole | Entering::Walk => dir.open_dir_readable(to),
                };
                let dir = opened.map_err(|e| Error::os(Op::OpenDirectory, dst_path, e))?;
                if by == Entering::Whole {
                    self.top(&**src, &dir, dst_path)?;
                }
                Some(Arc::new(dir))
            }
            (_, Some(_)) if !is_walked => {
                let note = Reason::DirectoryOverFile;
                return Err(Error::ours(Code::InTheWay, Op::MakeDirectory, dst_path, note));
            }
            // The next name of a list may lead through it again.
            (_, None) if matches!(by, Entering::Whole | Entering::List) && !merges => {
                self.visit().absent(src_path.to_owned(), dst_path.to_owned());
                None
            }
            _ => None,
        };
        let lack = match &above.dst.lack {
            Some((lack, _)) => Some((lack.clone(), false)),
            None => there.is_none().then(|| (Lack::new(dst_path), true)),
        };
        Ok(Some(SurveyedDir { lack, ..SurveyedDir::new(dir, dst_path.to_owned(), above.dst.top.clone()) }))
    }

    fn met(&self, pair: &SurveyDir<S>, name: Name<'_>) {
        if self.wants_extra {
            pair.dst.met(name);
        }
    }

    fn listed(&self, pair: &SurveyDir<S>) {
        if let (true, Some(dir)) = (self.wants_extra, &pair.dst.dir)
            && let Err(e) = self.extras(pair, dir)
        {
            self.tally.fail(e);
        }
    }

    fn release(&self, (): &mut (), hold: Hold<S, SurveyedDir>) {
        hold.release(|pair| {
            if let Some((lack, true)) = &pair.dst.lack {
                self.visit().lacks(lack);
            }
        });
    }
}

impl WalkDestination for Survey<'_> {
    fn is_ordered(&self) -> bool {
        true
    }

    fn list_base(&self, target: &Target) -> Result<SurveyedDir> {
        let to = operands::target(&Reach::Anywhere, target, 1, DestLink::Through)?;
        let there = match to {
            Where::Into(place) | Where::Whole(place) => self.opened(&place)?,
            Where::Name { dir, name, .. } => {
                let there = dir.dir.open_dir(name.as_name()).ok();
                SurveyedDir::new(there.map(Arc::new), PathBuf::new(), dir.node.clone())
            }
        };
        Ok(SurveyedDir { path: target.path().clone(), ..there })
    }

    fn claim(&self, pair: &SurveyDir<SourceDir>, entry: DirEntry<'_>, info: &Info) -> Result<Claimed> {
        let DirEntry { name, to, .. } = entry;
        let (src_path, dst_path) = (&*pair.src.node.join(name), &*pair.dst.path.join(os(to)));
        let (above, spot, info) = (&pair.dst, &pair.spot, *info);
        let sides = BothSides { above, spot, to, info, there: None, src_path, dst_path };
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
            self.one(worker, pair, DirEntry::met(name, name, kind, follow));
        }
    }

    fn one(&self, _: &mut WalkWorker<'_, '_, Self>, pair: &Arc<SurveyDir<SourceDir>>, entry: DirEntry<'_>) {
        if let Err(e) = self.entry(pair, entry) {
            self.tally.fail(e);
        }
    }

    fn excluded(&self, path: &dyn Fn() -> PathBuf) {
        self.visit().excluded(path());
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
    fn entry(&mut self, at: &EntryPair<'_>) -> bool {
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
    fn wants_content(&self, at: &EntryPair<'_>) -> Option<Proof> {
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
