//! Walks a source and its destination side by side without changing anything: what `check` and `--dry-run` share.
//!
//! Must not create, write or remove; it opens directories only to list them, and files only when asked to hash them.
//! The pairs are those a copy of the same arguments would make: operands, filter and plan are the copy's own.

use crate::disk::seal::{self, AttributeList};
use crate::disk::{Fault, Side, tee};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Question, Summary, Watch};
use crate::node::{Node, os};
use crate::policy::{Collide, CopyPolicy, CopyRequest, Follow, Target};
use crate::receiver::claims::{Claimed, Claims, Meeting, Spot};
use crate::receiver::plan::{NOT_ITS_BEGINNING, Proof, Verdict, decide};
use crate::sender::chain::Chain;
use crate::sender::filter::Filter;
use crate::sender::level::Met;
use crate::sender::names::ListedNames;
use crate::sender::walk::SourceDir;
use crate::tally::Tally;
use crate::verbs::copy::resolve;
use crate::verbs::operands::{self, Dest, DestLink, Operand, Source, Where};
use crate::verbs::rivals::{self, Rivals, Turn};
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use fastcopy::xattr::Of;
use std::cell::Cell;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

struct Frame {
    src: Arc<SourceDir>,
    dst: Option<Dir>,
    dst_path: PathBuf,
    /// Still to do, last first, and whether the filter leaves one out.
    names: Vec<(NameBuf, bool)>,
    dev: u64,
    /// The directory at or above it that the destination lacks, and whether it is this one.
    lack: Option<(Arc<Lack>, bool)>,
    spot: Spot,
    /// What the target is called.
    top: Arc<Node>,
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

/// What tells `name` of a source directory from others.
fn source<'n>(dir: &SourceDir, name: Name<'n>) -> ((u64, u64), &'n [u8]) {
    (dir.info.id(), name.bytes())
}

/// Where an operand, or a name of a list, is.
struct WhereItIs {
    spot: Spot,
    /// What the target is called.
    top: Arc<Node>,
    /// What it is itself called at the source.
    node: Arc<Node>,
    dev: u64,
    /// Its name was claimed already.
    is_claimed: bool,
}

/// BLAKE3 of a whole file; `observe` is told of bytes read and says whether to go on.
pub(crate) fn hash(fd: &OwnedFd, path: &Path, observe: &dyn Fn(u64) -> bool) -> Result<blake3::Hash> {
    // A FIFO put in the file's place would give nothing for ever.
    if Info::of(fd).map_err(|e| Error::os(Op::Stat, path, e))?.kind != Kind::File {
        return Err(Error::ours(Code::SourceChanged, Op::Read, path, Reason::NoRegularFileAnyMore));
    }
    tee::hash(fd, observe).map_err(|fault| fault.told(|| path.to_owned(), || path.to_owned()))
}

/// The walk.
pub(crate) struct Survey<'a> {
    pub(crate) policy: &'a CopyPolicy,
    filter: Filter,
    tally: &'a Tally<'a>,
    rivals: Rivals,
}

impl<'a> Survey<'a> {
    /// Nothing was walked yet.
    ///
    /// # Errors
    /// A pattern that is none.
    pub(crate) fn new(policy: &'a CopyPolicy, tally: &'a Tally<'a>) -> Result<Survey<'a>> {
        let rivals = Rivals::new(Claims::new(Meeting::Never), usize::MAX);
        Ok(Survey { policy, filter: Filter::new(&policy.filter)?, tally, rivals })
    }

    /// Walks all operands.
    pub(crate) fn operands(&mut self, sources: &[PathBuf], to: &Where, visit: &mut dyn Visit) {
        let mut operands = resolve(sources, to, self.policy, Op::Copy, DestLink::Through, self.tally);
        self.rivals = Rivals::new(operands::claims(&mut operands), usize::MAX);
        for operand in operands {
            if let Err(e) = self.operand(&operand, visit) {
                self.tally.fail(e);
            }
        }
    }

    fn operand(&self, operand: &Operand, visit: &mut dyn Visit) -> Result<()> {
        match (&operand.source, &operand.dest) {
            (Source::Named { dir, name, info, follow }, Dest::Named { dir: place, name: to }) => {
                if info.kind != Kind::Dir && dir.excludes(name.as_name(), false, &self.filter) {
                    visit.excluded(operand.path.clone());
                    return Ok(());
                }
                let (dst_path, src_path) = (place.node.join(to.as_name()), operand.path.clone());
                let dst = Some((&place.dir, to.as_name()));
                let at = WhereItIs {
                    spot: operand.spot,
                    top: place.node.clone(),
                    node: Node::root(&operand.path),
                    dev: info.dev,
                    is_claimed: false,
                };
                self.entry(visit, dir, name.as_name(), *info, dst, src_path, dst_path, *follow, at)
            }
            (Source::Whole(src), Dest::Whole(place)) => {
                let dst =
                    place.dir.reopen().map_err(|e| Error::os(Op::OpenDirectory, place.node.path(), e))?;
                self.top(src, &dst, &place.node.path(), visit)?;
                let mut stack = vec![self.frame(
                    src.with_ignores(&self.filter)?,
                    Some(dst),
                    place.node.path(),
                    src.info.dev,
                    None,
                    (operand.spot, place.node.clone()),
                    visit,
                )?];
                self.run(&mut stack, visit);
                Ok(())
            }
            (Source::Whole(src), Dest::Named { dir, name }) => {
                let dst_path = dir.node.join(name.as_name());
                let dst = match dir.dir.look(name.as_name()).map_err(|e| Error::os(Op::Stat, &dst_path, e))? {
                    None => None,
                    Some(_) => Some(
                        dir.dir
                            .open_dir_readable(name.as_name())
                            .map_err(|e| Error::os(Op::OpenDirectory, &dst_path, e))?,
                    ),
                };
                match &dst {
                    Some(dst) => self.top(src, dst, &dst_path, visit)?,
                    None if self.rivals.makes_dir(&operand.spot, name.as_name()) => {
                        visit.absent(src.node.path(), dst_path.clone());
                    }
                    None => {}
                }
                let lack = dst.is_none().then(|| (Lack::new(&dst_path), true));
                let src = src.with_ignores(&self.filter)?;
                let below = (self.rivals.claims.below(&operand.spot, name.as_name()), dir.node.clone());
                let dev = src.info.dev;
                let mut stack = vec![self.frame(src.clone(), dst, dst_path, dev, lack, below, visit)?];
                self.run(&mut stack, visit);
                Ok(())
            }
            (Source::Named { .. }, Dest::Whole(place)) => {
                Err(Error::ours(Code::InTheWay, Op::CopyTo, place.node.path(), Reason::IsDirectory))
            }
        }
    }

    /// Both sides of an operand that is the contents of a directory.
    fn top(&self, src: &SourceDir, dst: &Dir, shown: &Path, visit: &mut dyn Visit) -> Result<()> {
        let src_path = &*src.node.path();
        let there = Some(dst.info().map_err(|e| Error::os(Op::Stat, shown, e))?);
        let attrs = attributes(Of::Handle(src.dir.as_fd()), src_path, Kind::Dir, self.policy)?;
        let (both, info) = (Tops { attrs, dst, shown }, src.info);
        let at = At { info, there, src_path, dst_path: shown, lack: None, merges: false, both: &both };
        visit.top(&at);
        Ok(())
    }

    /// One entry, and all below it.
    #[allow(clippy::too_many_arguments)] // the two sides of one entry
    fn entry(
        &self,
        visit: &mut dyn Visit,
        src: &Arc<SourceDir>,
        name: Name<'_>,
        info: Info,
        dst: Option<(&Dir, Name<'_>)>,
        src_path: PathBuf,
        dst_path: PathBuf,
        follow: bool,
        place: WhereItIs,
    ) -> Result<()> {
        let WhereItIs { spot, top, node, dev, is_claimed } = place;
        let there = match dst {
            Some((dir, to)) => dir.look(to).map_err(|e| Error::os(Op::Stat, &dst_path, e))?,
            None => None,
        };
        let (s, d) = (&*src_path, &*dst_path);
        let to = dst.map_or(name, |(_, to)| to);
        let entry = self.rival((&spot, &top), dst.map(|(dir, _)| dir), to, &info, there.as_ref(), (s, d));
        let turn = if is_claimed {
            self.rivals.goes(&entry)?
        } else {
            self.rivals.turn(&entry, source(src, name))?
        };
        if turn == Turn::Came {
            return Ok(());
        }
        let both = Here { src, name, dst, src_path: s, dst_path: d, follow, tally: self.tally };
        let (src_path, dst_path_ref) = (&*src_path, &*dst_path);
        let merges = turn == Turn::Merges;
        let at = At { info, there, src_path, dst_path: dst_path_ref, lack: None, merges, both: &both };
        if !visit.entry(&at) {
            return Ok(());
        }
        let below = self.rivals.claims.below(&spot, to);
        let below = if is_claimed { self.rivals.claims.another(&below) } else { below };
        let lack = there.is_none().then(|| (Lack::new(&dst_path), true));
        let inner = src.enter(name, node, follow, &self.filter)?;
        if self.policy.follow == Follow::Always && inner.is_own_ancestor() {
            let note = Reason::LinkLoop;
            return Err(Error::ours(Code::Link, Op::Enter, inner.node.path(), note));
        }
        let dst = match (dst, there) {
            (Some((dir, to)), Some(t)) if t.kind == Kind::Dir => {
                Some(dir.open_dir_readable(to).map_err(|e| Error::os(Op::OpenDirectory, &dst_path, e))?)
            }
            _ => None,
        };
        let mut stack = vec![self.frame(inner, dst, dst_path, dev, lack, (below, top), visit)?];
        self.run(&mut stack, visit);
        Ok(())
    }

    /// An entry among the names that sources become.
    fn rival<'s>(
        &self,
        (spot, top): (&'s Spot, &'s Node),
        dir: Option<&'s Dir>,
        to: Name<'s>,
        info: &Info,
        there: Option<&Info>,
        (src_path, dst_path): (&'s Path, &'s Path),
    ) -> rivals::RivalName<'s> {
        let is_left_out = info.kind.is_special() && !self.policy.specials;
        let (kind, is_there) = (info.kind, there.is_some());
        rivals::RivalName { spot, dir, to, kind, is_there, is_left_out, src_path, dst_path, top }
    }

    /// Lists both sides of a directory. What only the destination has is told here.
    #[allow(clippy::too_many_arguments)] // the two sides of one directory
    fn frame(
        &self,
        src: Arc<SourceDir>,
        dst: Option<Dir>,
        dst_path: PathBuf,
        dev: u64,
        lack: Option<(Arc<Lack>, bool)>,
        (spot, top): (Spot, Arc<Node>),
        visit: &mut dyn Visit,
    ) -> Result<Frame> {
        let mut names = Vec::new();
        let mut all = HashSet::new();
        let mut buffer = ListBuffer::new();
        let inside = !self.policy.one_file_system || src.info.dev == dev;
        if inside {
            src.list(&mut buffer, self.policy.follow, &self.filter, |met| {
                match met {
                    Met::Entry { name, .. } => names.push((name.to_owned(), false)),
                    Met::Excluded(name) => names.push((name.to_owned(), true)),
                    Met::Failed(e) => self.tally.fail(e),
                }
                true
            })?;
        }
        // Last first, as they are popped; sorted, so that two runs say the same.
        names.sort_by(|a, b| b.0.cmp(&a.0));
        if let (Some(dst), true, true) = (&dst, visit.wants_extra(), inside) {
            all.extend(names.iter().map(|(n, _)| n.clone()));
            let mut extra = Vec::new();
            dst.list(&mut buffer, |entry| {
                if !all.contains(&entry.name.to_owned())
                    && !src.excludes(entry.name, entry.kind == Some(Kind::Dir), &self.filter)
                {
                    extra.push(entry.name.to_owned());
                }
                true
            })
            .map_err(|e| Error::os(Op::ListDirectory, &dst_path, e))?;
            extra.sort();
            for name in extra {
                visit.extra(dst, name.as_name(), dst_path.join(os(name.as_name())));
            }
        }
        Ok(Frame { src, dst, dst_path, names, dev, lack, spot, top })
    }

    fn run(&self, stack: &mut Vec<Frame>, visit: &mut dyn Visit) {
        while let Some(frame) = stack.last_mut() {
            let Some((name, out)) = frame.names.pop().filter(|_| !self.tally.cancelled()) else {
                if let Some((lack, true)) = stack.pop().and_then(|frame| frame.lack) {
                    visit.lacks(&lack);
                }
                continue;
            };
            let name = name.as_name();
            let src = frame.src.clone();
            if out {
                visit.excluded(src.node.join(name));
                continue;
            }
            let always = self.policy.follow == Follow::Always;
            let step = src.stat(name, always).and_then(|info| {
                let dst_path = frame.dst_path.join(os(name));
                let dst = frame.dst.as_ref().map(|d| (d, name));
                let there = match dst {
                    Some((dir, to)) => dir.look(to).map_err(|e| Error::os(Op::Stat, &dst_path, e))?,
                    None => None,
                };
                let src_path = src.node.join(name);
                let (s, d) = (&*src_path, &*dst_path);
                let (spot, top) = (frame.spot, frame.top.clone());
                let entry =
                    self.rival((&spot, &top), frame.dst.as_ref(), name, &info, there.as_ref(), (s, d));
                let turn = self.rivals.turn(&entry, source(&src, name))?;
                if turn == Turn::Came {
                    return Ok(None);
                }
                let both = Here {
                    src: &src,
                    name,
                    dst,
                    src_path: s,
                    dst_path: d,
                    follow: always,
                    tally: self.tally,
                };
                let lack = frame.lack.as_ref().map(|(lack, _)| &**lack);
                let merges = turn == Turn::Merges;
                let at = At { info, there, src_path: s, dst_path: d, lack, merges, both: &both };
                if !visit.entry(&at) {
                    return Ok(None);
                }
                let lack = match (&frame.lack, there) {
                    (Some((lack, _)), _) => Some((lack.clone(), false)),
                    (None, None) => Some((Lack::new(&dst_path), true)),
                    (None, Some(_)) => None,
                };
                let inner = src.enter(name, src.node.below(name), always, &self.filter)?;
                if always && inner.is_own_ancestor() {
                    let note = Reason::LinkLoop;
                    return Err(Error::ours(Code::Link, Op::Enter, inner.node.path(), note));
                }
                let inner_dst = match (dst, there) {
                    (Some((dir, to)), Some(t)) if t.kind == Kind::Dir => Some(
                        dir.open_dir_readable(to).map_err(|e| Error::os(Op::OpenDirectory, &dst_path, e))?,
                    ),
                    _ => None,
                };
                let below = (self.rivals.claims.below(&spot, name), top);
                self.frame(inner, inner_dst, dst_path, frame.dev, lack, below, visit).map(Some)
            });
            match step {
                Ok(Some(inner)) => stack.push(inner),
                Ok(None) => {}
                Err(e) => self.tally.fail(e),
            }
        }
    }

    /// Walks names from a list.
    pub(crate) fn list(
        &mut self,
        base: &Path,
        target: &Target,
        names: ListedNames<'_>,
        visit: &mut dyn Visit,
    ) -> Result<()> {
        let to = operands::target(&operands::Reach::Anywhere, target, 1, DestLink::Through)?;
        let (place, below) = match &to {
            Where::Into(place) | Where::Whole(place) => (place, None),
            Where::Name { dir, name, .. } => (dir, Some(name)),
        };
        let dir = Dir::open(base).map_err(|e| Error::os(Op::OpenDirectory, base, e))?;
        let src = SourceDir::root(dir, Node::root(base))?.with_ignores(&self.filter)?;
        let dst = match below {
            None => Some(place.dir.try_clone().map_err(|e| Error::os(Op::Open, place.node.path(), e))?),
            Some(name) => place.dir.open_dir(name.as_name()).ok(),
        };
        self.rivals = Rivals::new(Claims::new(Meeting::Listed), usize::MAX);
        let spot = self.rivals.claims.operand(base, true);
        let mut chain = Chain::new(ListedDir { src, dst, dst_path: target.path().clone(), spot });
        for parts in names {
            let one = parts.and_then(|parts| {
                let Some((last, dirs)) = parts.split_last() else { return Ok(()) };
                let reached: Result<bool> = chain.go(dirs, &mut drop, |above: &mut ListedDir, part| {
                    if above.src.excludes(part, true, &self.filter) {
                        visit.excluded(above.src.node.join(part));
                        return Ok(None);
                    }
                    let src = above.src.enter(part, above.src.node.below(part), false, &self.filter)?;
                    let dst = above.dst.as_ref().and_then(|dst| dst.open_dir(part).ok());
                    let dst_path = above.dst_path.join(os(part));
                    // The next name may lead through it again.
                    if dst.is_none() && self.rivals.makes_dir(&above.spot, part) {
                        visit.absent(src.node.path(), dst_path.clone());
                    }
                    let spot = self.rivals.claims.below(&above.spot, part);
                    Ok(Some(ListedDir { src, dst, dst_path, spot }))
                });
                if !reached? {
                    return Ok(());
                }
                let ListedDir { src, dst, dst_path, spot } = &*chain.last();
                let spot = *spot;
                let last = last.as_name();
                let always = self.policy.follow == Follow::Always;
                let info = src.stat(last, always)?;
                if src.excludes(last, info.kind == Kind::Dir, &self.filter) {
                    visit.excluded(src.node.join(last));
                    return Ok(());
                }
                let (src_path, node) = (src.node.join(last), src.node.below(last));
                if info.kind == Kind::Dir && !self.policy.recursive {
                    return Err(Error::ours(Code::IsDirectory, Op::Copy, src_path, Reason::IsDirectory));
                }
                let dst_path = dst_path.join(os(last));
                // Listed again, maybe spelled otherwise: it is copied once.
                let paths = (&*src_path, &*dst_path);
                let entry = self.rival((&spot, &place.node), dst.as_ref(), last, &info, None, paths);
                if self.rivals.claim(&entry, source(src, last))? != Claimed::First {
                    return Ok(());
                }
                let to = dst.as_ref().map(|d| (d, last));
                let at = WhereItIs { spot, top: place.node.clone(), node, dev: info.dev, is_claimed: true };
                self.entry(visit, src, last, info, to, src_path, dst_path, always, at)
            });
            if let Err(e) = one {
                self.tally.fail(e);
            }
        }
        Ok(())
    }
}

/// A directory that names of a list lead through, on both sides.
struct ListedDir {
    src: Arc<SourceDir>,
    /// Absent when it is.
    dst: Option<Dir>,
    dst_path: PathBuf,
    spot: Spot,
}

/// `copy --dry-run`: says what would be done.
pub(crate) fn dry_run(request: CopyRequest, watch: Watch<'_>) -> Result<Summary> {
    let tally = Tally::new(watch);
    let mut survey = Survey::new(&request.policy, &tally)?;
    let mut visit = DryRun::new(&request.policy, &tally);
    match request.names {
        None => {
            let target = operands::same_target(&request.sources, request.target, &request.policy);
            let count = request.sources.len();
            let to = operands::target(&operands::Reach::Anywhere, &target, count, DestLink::Through)?;
            survey.operands(&request.sources, &to, &mut visit);
        }
        Some(mut list) => {
            let [base] = request.sources.as_slice() else {
                let note = Reason::OneSourceDirectory;
                return Err(Error::ours(Code::Usage, Op::Copy, request.target.path(), note));
            };
            let names = ListedNames { reader: &mut *list.reader, separator: list.separator, base };
            survey.list(base, &request.target, names, &mut visit)?;
        }
    }
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
