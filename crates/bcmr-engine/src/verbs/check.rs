//! `check`: what a copy of the same arguments would change.
//!
//! Must not change anything. What a copy of the same policy would leave alone is no difference; of what it would replace,
//! two files are alike when size and mtime are the same, and with the same size and another mtime when their contents are
//! (with [`Compare::SizeAndTime`] another mtime is a difference, with [`Compare::Hash`] contents alone count). Where mode,
//! owner, mtime, attributes and ACLs are kept they are compared too, those of directories as well. Not the time of access,
//! which reading changes, and not which names are one file.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Change, Event, Summary, Watch};
use crate::node::Node;
use crate::policy::{CheckRequest, Compare, CopyPolicy, Follow};
use crate::receiver::plan::{Proof, Verdict, decide, same, stale_by};
use crate::sender::below::{Which, each_below};
use crate::sender::filter::Filter;
use crate::sender::walk::SourceDir;
use crate::tally::Tally;
use crate::verbs::alike::{self, Alike, AlikeTree};
use crate::verbs::entry_pair::{EntryPair, Findings, Found, Lack, Visit};
use crate::verbs::operands::{self, Source};
use crate::verbs::rivals::EntryPaths;
use crate::verbs::survey::Survey;
use fastcopy::dir::{Dir, Name};
use fastcopy::meta::{Info, Kind};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

/// Compares.
///
/// # Errors
/// Only when nothing could be begun.
pub fn check(request: CheckRequest, watch: Watch<'_>) -> Result<Summary> {
    let tally = Tally::new(watch);
    let policy = request.policy.resuming();
    let target = operands::same_target(&request.sources, request.target.clone(), &policy);
    let links = operands::DestLink::Through;
    let to =
        operands::target_for(Op::Open, &operands::Reach::Anywhere, &target, request.sources.len(), links)?;
    let visit = Check {
        policy: &policy,
        compare: request.compare,
        extra: request.extra,
        alike: false,
        root: request.target.path(),
        own_name: request.target.path(),
        tally: &tally,
    };
    Survey::new(&policy, &tally, Box::new(visit))?.operands(&request.sources, &to);
    Ok(tally.summary())
}

/// How two files were compared.
enum By {
    Time,
    Content,
}

/// Tells differences.
pub(crate) struct Check<'a> {
    pub(crate) policy: &'a CopyPolicy,
    pub(crate) compare: Compare,
    pub(crate) extra: bool,
    /// Each difference says what both sides are like.
    pub(crate) alike: bool,
    /// Paths are told relative to this.
    pub(crate) root: &'a Path,
    /// What it is itself called.
    pub(crate) own_name: &'a Path,
    pub(crate) tally: &'a Tally<'a>,
}

impl Check<'_> {
    pub(crate) fn found(
        &self,
        change: Change,
        path: &Path,
        counted: TreeCount,
        why: (Reason, Option<Alike>),
    ) -> Event {
        self.tally.differences.fetch_add(1, Relaxed);
        self.difference_at(change, path, counted, why)
    }

    fn difference_at(
        &self,
        change: Change,
        path: &Path,
        (directory, files, bytes): TreeCount,
        (why, alike): (Reason, Option<Alike>),
    ) -> Event {
        let path = path.strip_prefix(self.root).unwrap_or(path);
        // The target itself differs: it is told under its own name.
        let path = if path.as_os_str().is_empty() { self.own_name } else { path }.to_owned();
        Event::Difference { change, path, directory, files, bytes, why, alike }
    }

    /// What an entry and what has its name are like, where that is wanted.
    pub(crate) fn alike(&self, source: &Info, there: Option<&Info>) -> Option<Alike> {
        self.alike.then(|| alike::of_pair(source, there))
    }

    /// Something that only the destination has, with all below it.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub(crate) fn only_there(&self, dir: &Dir, name: Name<'_>, path: &Path) -> Result<Event> {
        let tree = self.alike.then(AlikeTree::default);
        let told = |e| Error { op: Op::Count, path: path.to_owned(), ..e };
        let (counted, failed) = count(dir, name, path, tree.as_ref()).map_err(told)?;
        match failed.map(told) {
            // It goes all the same: what deletes it opens it up, and needs only names.
            Some(e) if self.policy.mirror.is_on() && tree.is_none() => self.tally.warn(e),
            Some(e) => return Err(e),
            None => {}
        }
        let alike = tree.map(|tree| tree.goes());
        Ok(self.found(Change::Extra, path, counted, (Reason::OnlyThere, alike)))
    }

    /// What differs between the two, if anything.
    fn difference(&self, at: &EntryPair<'_>, there: &Info) -> Result<Option<Reason>> {
        let (src, p) = (&at.info, &self.policy.preserve);
        let not_replaced = match decide(src, Some(there), self.policy) {
            // Left alone: because it looks the same, or whatever it is.
            Verdict::Keep => {
                if src.kind == Kind::File {
                    if same(src, there) { self.compared(&By::Time) } else { self.left() }
                }
                return self.stale(at, there);
            }
            Verdict::KeepIf(proof, _) => {
                if proof == Proof::Content {
                    self.compared(&By::Content);
                }
                let why = if proof == Proof::Target { Reason::ByTarget } else { Reason::ByContent };
                return if at.both.holds(proof)? { self.stale(at, there) } else { Ok(Some(why)) };
            }
            Verdict::Append { .. } => true,
            // Nothing becomes of it, but for what is one with its source they are not alike either.
            Verdict::Refuse(..) if src.id() == there.id() => {
                self.left();
                return Ok(None);
            }
            Verdict::Refuse(..) | Verdict::Make | Verdict::ReplaceTree => true,
            Verdict::Replace | Verdict::Ask | Verdict::Merge => false,
        };
        if src.kind != there.kind {
            return Ok(Some(Reason::ByType));
        }
        let content = match src.kind {
            Kind::File if not_replaced || self.are_told_apart(src, there) => {
                self.compared(&By::Time);
                Some(Reason::BySize)
            }
            Kind::File if self.reads(at) => {
                self.compared(&By::Content);
                let why = if src.size == there.size { Reason::ByContent } else { Reason::BySize };
                (!at.both.same_content()?).then_some(why)
            }
            Kind::File => {
                self.compared(&By::Time);
                (src.mtime != there.mtime).then_some(Reason::ByMtime)
            }
            Kind::Link => (!at.both.same_target()?).then_some(Reason::ByTarget),
            Kind::CharDevice | Kind::BlockDevice if src.rdev != there.rdev => Some(Reason::ByDevice),
            _ => None,
        };
        let why = content.or_else(|| stale_by(src, there, self.policy));
        // What costs system calls comes last.
        if why.is_some() || !p.xattr && !p.acl { Ok(why) } else { at.both.attributes(src.kind, self.policy) }
    }

    /// What `sync` would change of the attributes of something that stays. A copy changes none.
    fn stale(&self, at: &EntryPair<'_>, there: &Info) -> Result<Option<Reason>> {
        let (src, p) = (&at.info, &self.policy.preserve);
        if !self.policy.mirror.is_on() || src.kind != there.kind {
            return Ok(None);
        }
        let why = stale_by(src, there, self.policy);
        if why.is_some() || !p.xattr && !p.acl { Ok(why) } else { at.both.attributes(src.kind, self.policy) }
    }

    /// Whether two files differ by what their sizes say. L8: where all is read, a size of 0 is not believed.
    fn are_told_apart(&self, src: &Info, there: &Info) -> bool {
        src.size != there.size && !(src.size == 0 && matches!(self.compare, Compare::Hash))
    }

    /// Whether the contents of two files that a copy would replace, and that sizes do not tell apart, are to be compared.
    fn reads(&self, at: &EntryPair<'_>) -> bool {
        let Some(there) = at.there else { return false };
        match self.compare {
            Compare::SizeAndTime => false,
            Compare::ContentInDoubt => at.info.mtime != there.mtime,
            Compare::Hash => true,
        }
    }

    fn compared(&self, by: &By) {
        let count = match by {
            By::Time => &self.tally.by_time,
            By::Content => &self.tally.by_content,
        };
        count.fetch_add(1, Relaxed);
    }

    /// A file that the options leave alone, whatever it is.
    fn left(&self) {
        self.tally.kept.fetch_add(1, Relaxed);
    }

    /// Compares an entry with what is there and tells what differs.
    fn beside(&self, at: &EntryPair<'_>, there: &Info, directory: bool, bytes: u64, found: &mut Findings) {
        found.extend(match self.difference(at, there) {
            Ok(None) => None,
            Ok(Some(why)) => {
                let why = (why, self.alike(&at.info, Some(there)));
                let differs = self.found(Change::Differ, &at.dst_path(), (directory, 1, bytes), why);
                Some(Found::Told(differs))
            }
            // Ctrl-C, while it was read: it is not known whether it differs.
            Err(e) if e.code == Code::Interrupted => None,
            Err(e) => Some(Found::Failed(e)),
        });
    }

    /// Compares one entry and tells what differs. For a directory: whether to go in.
    fn compare(&self, at: &EntryPair<'_>, directory: bool, bytes: u64, found: &mut Findings) -> bool {
        if let Some(lack) = at.lack {
            if self.alike {
                let path = at.dst_path();
                lack.tree.add(path.strip_prefix(&lack.path).unwrap_or(&path), &at.info);
            }
            if directory {
                return self.policy.recursive;
            }
            lack.files.fetch_add(1, Relaxed);
            lack.bytes.fetch_add(bytes, Relaxed);
            return false;
        }
        let Some(there) = &at.there else {
            if directory && self.policy.recursive {
                return true; // told with what is in it
            }
            let why = (Reason::Missing, self.alike(&at.info, None));
            let missing = self.found(Change::Add, &at.dst_path(), (directory, 1, bytes), why);
            found.push(Found::Told(missing));
            return false;
        };
        self.beside(at, there, directory, bytes, found);
        directory && there.kind == Kind::Dir && self.policy.recursive
    }
}

impl Visit for Check<'_> {
    fn entry(&self, at: &EntryPair<'_>, found: &mut Findings) -> bool {
        let directory = at.info.kind == Kind::Dir;
        if at.info.kind.is_special() && !self.policy.specials {
            return false; // a copy would not make it either
        }
        let bytes = if at.info.kind == Kind::File { at.info.size } else { 0 };
        // What is read counts as it is read, all else at once.
        if self.wants_content(at).is_none() {
            self.tally.watch.progress.bytes_done.fetch_add(bytes, Relaxed);
        }
        let go_in = self.compare(at, directory, bytes, found);
        self.tally.done(1);
        go_in
    }

    fn wants_content(&self, at: &EntryPair<'_>) -> Option<Proof> {
        let there = at.there.filter(|t| at.info.kind == Kind::File && t.kind == Kind::File)?;
        match decide(&at.info, Some(&there), self.policy) {
            Verdict::KeepIf(Proof::Content, _) => Some(Proof::Content),
            Verdict::Replace | Verdict::Ask => {
                (!self.are_told_apart(&at.info, &there) && self.reads(at)).then_some(Proof::Content)
            }
            _ => None,
        }
    }

    fn top(&self, at: &EntryPair<'_>, found: &mut Findings) {
        if let Some(there) = &at.there {
            self.beside(at, there, true, 0, found);
        }
    }

    fn absent(&self, _: &dyn EntryPaths, _: &mut Findings) {}

    fn wants_lacks(&self) -> bool {
        true
    }

    fn lacks(&self, lack: &Lack) {
        let (files, bytes) = (lack.files.load(Relaxed), lack.bytes.load(Relaxed));
        let alike = self.alike.then(|| lack.tree.comes(lack.there.as_ref()));
        let (change, why) = match lack.there {
            None => (Change::Add, Reason::Missing),
            Some(_) => (Change::Differ, Reason::ByType),
        };
        if lack.is_named() {
            self.tally.differences.fetch_add(1, Relaxed);
        }
        let lacks = self.difference_at(change, &lack.path, (true, files, bytes), (why, alike));
        self.tally.watch.front.event(lacks);
    }

    fn excluded(&self, _: &dyn Fn() -> PathBuf, _: &mut Findings) {}

    fn extra(&self, dir: &Dir, name: Name<'_>, dst_path: PathBuf, found: &mut Findings) {
        found.push(self.only_there(dir, name, &dst_path).map_or_else(Found::Failed, Found::Told));
    }

    fn wants_extra(&self) -> bool {
        self.extra
    }
}

/// Whether an entry is a directory, and its files and bytes with all below it, which `tree` gets as well.
type TreeCount = (bool, u64, u64);

/// Counts an entry as far as it can be looked at, and says what could not be.
fn count(
    dir: &Dir,
    name: Name<'_>,
    path: &Path,
    tree: Option<&AlikeTree>,
) -> Result<(TreeCount, Option<Error>)> {
    let fail = |e| Error::os(Op::Count, path, e);
    let info = dir.stat(name).map_err(fail)?;
    let above = SourceDir::root(dir.try_clone().map_err(fail)?, Node::root(path))?;
    let source = Source::Named { dir: above, name: name.to_owned(), info, follow: false };
    let which = Which { follow: Follow::Never, filter: &Filter::all(), one_file_system: false };
    let (mut files, mut bytes, mut failed) = (0, 0, None);
    let mut keep = |e| {
        failed.get_or_insert(e);
        Ok(())
    };
    each_below(source, path, &which, &mut keep, &mut |at, info| {
        if let Some(tree) = tree {
            let at = at();
            tree.add(at.strip_prefix(path).unwrap_or(&at), info);
        }
        files += u64::from(info.kind != Kind::Dir);
        bytes += if info.kind == Kind::File { info.size } else { 0 };
        true
    })?;
    Ok(((info.kind == Kind::Dir, files, bytes), failed))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use crate::event::{Cancel, Nothing, Progress};
    use crate::policy::Target;
    use std::fs::File;
    use std::sync::atomic::AtomicBool;

    /// Compares two files of `bytes` zeros by hash and is stopped as soon as a byte counts as done, if ever.
    fn stopped(bytes: u64, stop: bool) -> (Summary, u64) {
        let tmp = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            File::create(tmp.path().join(name)).unwrap().set_len(bytes).unwrap();
        }
        let request = CheckRequest {
            sources: vec![tmp.path().join("a")],
            target: Target::Exactly(tmp.path().join("b")),
            compare: Compare::Hash,
            extra: false,
            policy: crate::receiver::plan::tests::policy(),
        };
        let (progress, cancel, ended) = (Progress::default(), Cancel::new(), AtomicBool::new(false));
        let watch = Watch { front: &Nothing, progress: &progress, cancel: &cancel, items: false };
        let summary = std::thread::scope(|scope| {
            scope.spawn(|| {
                while stop && !ended.load(Relaxed) {
                    if progress.bytes_done.load(Relaxed) > 0 {
                        return cancel.set();
                    }
                    std::thread::yield_now();
                }
            });
            let summary = check(request, watch);
            ended.store(true, Relaxed);
            summary
        });
        (summary.unwrap(), progress.bytes_done.load(Relaxed))
    }

    #[test]
    fn a_file_that_is_compared_counts_while_it_is_read_and_can_be_stopped() {
        const BYTES: u64 = 3 << 30;
        let (summary, done) = stopped(BYTES, true);
        assert!(summary.cancelled && done > 0 && done < BYTES, "{done} of {BYTES}");
        assert_eq!((summary.failed, summary.differences), (0, 0));
        // The twin: all of it is compared, and counts once.
        let (summary, done) = stopped(5_000_001, false);
        assert!(!summary.cancelled);
        assert_eq!((done, summary.failed, summary.differences), (5_000_001, 0, 0));
    }
}
