//! Walks a source and its destination side by side without changing anything: what `check` and `--dry-run` share.
//!
//! Must not create, write or remove; it opens directories only to list them, and files only when asked to hash them.
//! The pairs are those a copy of the same arguments would make: operands, filter and plan are the copy's own.

use crate::error::{Code, Error, Result};
use crate::event::{Action, Question, Summary, Watch};
use crate::node::{Node, os};
use crate::policy::{CopyPolicy, CopyRequest, Follow, Target};
use crate::receiver::plan::{Verdict, decide};
use crate::sender::filter::Filter;
use crate::sender::walk::{SourceDir, kind_of};
use crate::tally::Tally;
use crate::verbs::copy::{ListedNames, resolve};
use crate::verbs::operands::{self, Dest, DestLink, Operand, Source, Where};
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One entry of the source and what has its name at the destination.
pub(crate) struct At<'s> {
    pub(crate) src: &'s Arc<SourceDir>,
    pub(crate) name: Name<'s>,
    pub(crate) info: Info,
    /// The destination's directory and the entry's name there; absent when the directory itself is.
    pub(crate) dst: Option<(&'s Dir, Name<'s>)>,
    pub(crate) there: Option<Info>,
    pub(crate) src_path: PathBuf,
    pub(crate) dst_path: PathBuf,
    pub(crate) follow: bool,
}

/// What is done with what the walk finds.
pub(crate) trait Visit {
    /// An entry of the source. For a directory: whether to go in.
    fn entry(&mut self, at: &At<'_>) -> bool;
    /// An entry that the filter leaves out.
    fn excluded(&mut self, src_path: PathBuf);
    /// An operand that is a directory as a whole has no name at the destination yet.
    fn absent(&mut self, src_path: PathBuf, dst_path: PathBuf);
    /// A directory was gone through (pairs with an [`Visit::entry`] that said yes, and with [`Visit::absent`]).
    fn leave(&mut self) {}
    /// An entry that only the destination has.
    fn extra(&mut self, dir: &Dir, name: Name<'_>, dst_path: PathBuf);
    /// Whether [`Visit::extra`] is wanted.
    fn wants_extra(&self) -> bool;
}

struct Frame {
    src: Arc<SourceDir>,
    dst: Option<Dir>,
    dst_path: PathBuf,
    names: Vec<(NameBuf, Kind)>,
    dev: u64,
}

/// The walk.
pub(crate) struct Survey<'a> {
    pub(crate) policy: &'a CopyPolicy,
    pub(crate) filter: Filter,
    pub(crate) tally: &'a Tally<'a>,
}

impl Survey<'_> {
    /// Walks all operands.
    pub(crate) fn operands(&self, sources: &[PathBuf], to: &Where, visit: &mut dyn Visit) {
        for operand in resolve(sources, to, self.policy, "compare", DestLink::Through, self.tally) {
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
                let node = Node::root(&operand.path);
                let dev = info.dev;
                self.entry(visit, dir, name.as_name(), *info, dst, src_path, dst_path, *follow, node, dev)
            }
            (Source::Whole(src), Dest::Whole(place)) => {
                let dst =
                    place.dir.reopen().map_err(|e| Error::os("open directory", place.node.path(), e))?;
                let mut stack = vec![self.frame(
                    src.with_ignores(&self.filter)?,
                    Some(dst),
                    place.node.path(),
                    src.info.dev,
                    visit,
                )?];
                self.run(&mut stack, visit);
                Ok(())
            }
            (Source::Whole(src), Dest::Named { dir, name }) => {
                let dst_path = dir.node.join(name.as_name());
                let dst = match dir.dir.look(name.as_name()).map_err(|e| Error::os("stat", &dst_path, e))? {
                    None => None,
                    Some(_) => Some(
                        dir.dir
                            .open_dir_readable(name.as_name())
                            .map_err(|e| Error::os("open directory", &dst_path, e))?,
                    ),
                };
                let absent = dst.is_none();
                if absent {
                    visit.absent(src.node.path(), dst_path.clone());
                }
                let src = src.with_ignores(&self.filter)?;
                let mut stack = vec![self.frame(src.clone(), dst, dst_path, src.info.dev, visit)?];
                self.run(&mut stack, visit);
                if absent {
                    visit.leave();
                }
                Ok(())
            }
            (Source::Named { .. }, Dest::Whole(place)) => {
                Err(Error::ours(Code::InTheWay, "copy to", place.node.path(), "it is a directory"))
            }
        }
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
        node: Arc<Node>,
        dev: u64,
    ) -> Result<()> {
        let there = match dst {
            Some((dir, to)) => dir.look(to).map_err(|e| Error::os("stat", &dst_path, e))?,
            None => None,
        };
        let at = At { src, name, info, dst, there, src_path, dst_path, follow };
        if !visit.entry(&at) {
            return Ok(());
        }
        let inner = src.enter(name, node, follow, &self.filter)?;
        if self.policy.follow == Follow::Always && inner.is_own_ancestor() {
            let note = "symbolic links lead in a circle here";
            return Err(Error::ours(Code::Link, "enter", inner.node.path(), note));
        }
        let dst = match (dst, there) {
            (Some((dir, to)), Some(t)) if t.kind == Kind::Dir => {
                Some(dir.open_dir_readable(to).map_err(|e| Error::os("open directory", &at.dst_path, e))?)
            }
            _ => None,
        };
        let mut stack = vec![self.frame(inner, dst, at.dst_path, dev, visit)?];
        self.run(&mut stack, visit);
        visit.leave();
        Ok(())
    }

    /// Lists both sides of a directory. What only the destination has is told here.
    fn frame(
        &self,
        src: Arc<SourceDir>,
        dst: Option<Dir>,
        dst_path: PathBuf,
        dev: u64,
        visit: &mut dyn Visit,
    ) -> Result<Frame> {
        let mut names = Vec::new();
        let mut all = HashSet::new();
        let mut buffer = ListBuffer::new();
        let inside = !self.policy.one_file_system || src.info.dev == dev;
        if inside {
            src.dir
                .list(&mut buffer, |entry| {
                    match kind_of(&src, entry.name, entry.kind, self.policy.follow) {
                        Ok(kind) => names.push((entry.name.to_owned(), kind)),
                        Err(e) => self.tally.fail(e),
                    }
                    true
                })
                .map_err(|e| Error::os("list directory", src.node.path(), e))?;
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
            .map_err(|e| Error::os("list directory", &dst_path, e))?;
            extra.sort();
            for name in extra {
                visit.extra(dst, name.as_name(), dst_path.join(os(name.as_name())));
            }
        }
        Ok(Frame { src, dst, dst_path, names, dev })
    }

    fn run(&self, stack: &mut Vec<Frame>, visit: &mut dyn Visit) {
        let depth = stack.len();
        while let Some(frame) = stack.last_mut() {
            let Some((name, kind)) = frame.names.pop().filter(|_| !self.tally.cancelled()) else {
                stack.pop();
                if stack.len() >= depth {
                    visit.leave();
                }
                continue;
            };
            let name = name.as_name();
            let src = frame.src.clone();
            if src.excludes(name, kind == Kind::Dir, &self.filter) {
                visit.excluded(src.node.join(name));
                continue;
            }
            let always = self.policy.follow == Follow::Always;
            let step = src.stat(name, always).and_then(|info| {
                let dst_path = frame.dst_path.join(os(name));
                let dst = frame.dst.as_ref().map(|d| (d, name));
                let there = match dst {
                    Some((dir, to)) => dir.look(to).map_err(|e| Error::os("stat", &dst_path, e))?,
                    None => None,
                };
                let src_path = src.node.join(name);
                let at = At { src: &src, name, info, dst, there, src_path, dst_path, follow: always };
                if !visit.entry(&at) {
                    return Ok(None);
                }
                let inner = src.enter(name, src.node.below(name), always, &self.filter)?;
                if always && inner.is_own_ancestor() {
                    let note = "symbolic links lead in a circle here";
                    return Err(Error::ours(Code::Link, "enter", inner.node.path(), note));
                }
                let inner_dst = match (dst, there) {
                    (Some((dir, to)), Some(t)) if t.kind == Kind::Dir => Some(
                        dir.open_dir_readable(to)
                            .map_err(|e| Error::os("open directory", &at.dst_path, e))?,
                    ),
                    _ => None,
                };
                self.frame(inner, inner_dst, at.dst_path, frame.dev, visit).map(Some)
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
        &self,
        base: &Path,
        target: &Target,
        names: ListedNames<'_>,
        visit: &mut dyn Visit,
    ) -> Result<()> {
        let to = operands::target(&operands::Reach::Anywhere, target, 1)?;
        let (place, below) = match &to {
            Where::Into(place) | Where::Whole(place) => (place, None),
            Where::Name { dir, name, .. } => (dir, Some(name)),
        };
        let dir = Dir::open(base).map_err(|e| Error::os("open directory", base, e))?;
        let root = SourceDir::root(dir, Node::root(base))?.with_ignores(&self.filter)?;
        let mut told = HashSet::new();
        for parts in names {
            let one = parts.and_then(|parts| {
                let mut src = root.clone();
                let mut dst = match below {
                    None => Some(place.dir.try_clone().map_err(|e| Error::os("open", place.node.path(), e))?),
                    Some(name) => place.dir.open_dir(name.as_name()).ok(),
                };
                let Some((last, dirs)) = parts.split_last() else { return Ok(()) };
                let mut dst_path = target.path().clone();
                for part in dirs {
                    let part = part.as_name();
                    if src.excludes(part, true, &self.filter) {
                        visit.excluded(src.node.join(part));
                        return Ok(());
                    }
                    src = src.enter(part, src.node.below(part), false, &self.filter)?;
                    dst = dst.and_then(|d| d.open_dir(part).ok());
                    dst_path.push(os(part));
                    // The next name may lead through it again.
                    if dst.is_none() && told.insert(src.info.id()) {
                        visit.absent(src.node.path(), dst_path.clone());
                    }
                }
                let last = last.as_name();
                let always = self.policy.follow == Follow::Always;
                let info = src.stat(last, always)?;
                if src.excludes(last, info.kind == Kind::Dir, &self.filter) {
                    visit.excluded(src.node.join(last));
                    return Ok(());
                }
                let (src_path, node) = (src.node.join(last), src.node.below(last));
                dst_path.push(os(last));
                let to = dst.as_ref().map(|d| (d, last));
                self.entry(visit, &src, last, info, to, src_path, dst_path, always, node, info.dev)
            });
            if let Err(e) = one {
                self.tally.fail(e);
            }
        }
        Ok(())
    }
}

/// `copy --dry-run`: says what would be done.
pub(crate) fn dry_run(request: CopyRequest, watch: Watch<'_>) -> Result<Summary> {
    let tally = Tally::new(watch);
    let survey =
        Survey { policy: &request.policy, filter: Filter::new(&request.policy.filter)?, tally: &tally };
    let mut visit = DryRun { policy: &request.policy, tally: &tally, linked: HashSet::new() };
    match request.names {
        None => {
            let to = operands::target(&operands::Reach::Anywhere, &request.target, request.sources.len())?;
            survey.operands(&request.sources, &to, &mut visit);
        }
        Some(mut list) => {
            let [base] = request.sources.as_slice() else {
                let note = "a list of names needs exactly one source directory";
                return Err(Error::ours(Code::Usage, "copy", request.target.path(), note));
            };
            let names = ListedNames { reader: &mut *list.reader, separator: list.separator, base };
            survey.list(base, &request.target, names, &mut visit)?;
        }
    }
    drop(survey);
    Ok(tally.summary())
}

struct DryRun<'a> {
    policy: &'a CopyPolicy,
    tally: &'a Tally<'a>,
    /// Inodes with several names of which one was met.
    linked: HashSet<(u64, u64)>,
}

impl Visit for DryRun<'_> {
    fn entry(&mut self, at: &At<'_>) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        let paths = || (at.src_path.clone(), at.dst_path.clone());
        if at.info.kind.is_special() && !self.policy.specials {
            let note = format!("it is a {}", at.info.kind.word());
            self.tally.fail(Error::ours(Code::Special, "copy", at.src_path.clone(), note));
            return false;
        }
        let keep = match decide(&at.info, at.there.as_ref(), self.policy) {
            Verdict::Make | Verdict::Replace => false,
            Verdict::Merge => return self.policy.recursive,
            Verdict::Keep => true,
            Verdict::Ask => !self.tally.ask(Question::Replace(at.dst_path.clone())),
            Verdict::Refuse(code, why) => {
                self.tally.fail(Error::ours(code, "replace", at.dst_path.clone(), why).and(&at.src_path));
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
