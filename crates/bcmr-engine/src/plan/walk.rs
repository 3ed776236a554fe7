//! Everything below a source, as records to be sorted: a destination of the one walk that keeps what it is told.
//!
//! Must not know what shards are.

use super::format::Version;
use super::others::{GivenTo, OtherWalkers};
use super::requests::PlanVerb;
use super::sorter::Sorter;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Action, Summary, Watch};
use crate::node::{Node, os};
use crate::peer::planned_source::SourceThere;
use crate::peer::telling::{EntryListener, ToldAttrs};
use crate::policy::{CopyPolicy, Target};
use crate::receiver::claims::{Claimed, Claims, Meeting};
use crate::sender::filter::Filter;
use crate::sender::names::{ListedNames, Names};
use crate::sender::operand::Source;
use crate::sender::walk::SourceDir;
use crate::tally::Tally;
use crate::verbs::destination::{Destination, DirEntry, Entering};
use crate::verbs::local::{Walk, WalkDestination, WalkHold, WalkTask, WalkWorker};
use crate::verbs::operands::{Dest, Operand, Place};
use bcmr_wire::bytes::ByteReader;
use fastcopy::dir::Name;
use fastcopy::meta::{self, Info, Kind};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Entries of a directory that are looked at by one worker at a time.
const ROOM: usize = 1024;

/// What there is, in numbers.
#[derive(Debug, Default)]
pub(super) struct FoundTotals {
    pub(super) dirs: AtomicU64,
    /// Everything else.
    pub(super) names: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// Where the walk goes.
pub(super) struct Collector<'a> {
    tally: Tally<'a>,
    claims: Claims,
    /// Everything, by [`key`].
    all: &'a Sorter<'a>,
    /// Files with several names, by device and inode.
    linked: &'a Sorter<'a>,
    pub(super) found: FoundTotals,
    failed: Mutex<Option<Error>>,
    others: &'a dyn OtherWalkers,
    /// What is given to this process.
    takes: GivenTo,
    /// The device of the source.
    dev: u64,
    one_file_system: bool,
    /// What is found is to go: what is mounted below the source is not gone into, even of its own file system.
    is_removal: bool,
}

/// What sorts entries: directory after directory, each before those in it, and in each the names in order. Components cannot
/// hold a NUL, and none is empty.
pub(super) fn key(parents: &mut dyn Iterator<Item = &[u8]>, name: &[u8], out: &mut Vec<u8>) {
    out.clear();
    for part in parents {
        out.extend_from_slice(part);
        out.push(0);
    }
    out.push(0);
    out.extend_from_slice(name);
}

/// The directory and the name of a key, the directory as components that end with NUL.
pub(super) fn parts_of(key: &[u8]) -> Option<(&[u8], &[u8])> {
    if let Some(name) = key.strip_prefix(b"\0") {
        return Some((b"", name));
    }
    let at = key.windows(2).position(|pair| pair == b"\0\0")?;
    let (parent, rest) = key.split_at_checked(at + 1)?;
    Some((parent, rest.get(1..)?))
}

/// The path of the directory that a key is in.
pub(super) fn path_of(parent: &[u8]) -> Vec<u8> {
    let parts = parent.strip_suffix(b"\0").unwrap_or(parent);
    parts.iter().map(|b| if *b == 0 { b'/' } else { *b }).collect()
}

/// What sorts names of files that have several: device, inode, and the key of the name. The source's own device is 0, as each
/// machine counts devices for itself.
fn link_key(dev: u64, info: &Info, of: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&(if info.dev == dev { 0 } else { info.dev }).to_be_bytes());
    out.extend_from_slice(&info.ino.to_be_bytes());
    out.extend_from_slice(of);
}

/// The inode of such a key, and the key of the name.
pub(super) fn link_of(key: &[u8]) -> Option<(&[u8], &[u8])> {
    key.split_at_checked(16)
}

/// The version that a record says.
pub(super) fn version_of(value: &[u8]) -> Option<Version> {
    Version::take(&mut ByteReader::new(value))
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        watch: Watch<'a>,
        (all, linked): (&'a Sorter<'a>, &'a Sorter<'a>),
        (others, takes): (&'a dyn OtherWalkers, GivenTo),
        dev: u64,
        (verb, policy): (PlanVerb, &CopyPolicy),
    ) -> Collector<'a> {
        let claims = Claims::new(Meeting::Never);
        let (found, failed) = (FoundTotals::default(), Mutex::default());
        let one_file_system = policy.one_file_system;
        let is_removal = verb == PlanVerb::Remove;
        let tally = Tally::new(watch);
        Collector {
            tally,
            claims,
            all,
            linked,
            found,
            failed,
            others,
            takes,
            dev,
            one_file_system,
            is_removal,
        }
    }

    /// Walks what is given to this process of `src`, which was typed as `path`.
    ///
    /// # Errors
    /// A record could not be kept. What could not be looked at is told.
    pub(super) fn walk(
        &self,
        src: &Arc<SourceDir>,
        place: Place,
        policy: &CopyPolicy,
        filter: &Filter,
        path: &Path,
    ) -> Result<()> {
        let place = Arc::new(place);
        let spot = self.claims.operand(path, true);
        let policy = &CopyPolicy { recursive: true, ..policy.clone() };
        while let Some(given) = self.others.next() {
            let walk = Walk { to: self, policy, filter, jobs: policy.jobs, dropped: Arc::default() };
            let mut names = Vec::new();
            for name in &given {
                if name.as_os_str().is_empty() {
                    let (source, dest) = (Source::Whole(src.clone()), Dest::Whole(place.clone()));
                    walk.round(&[Operand { source, dest, path: path.to_owned(), spot }]);
                } else {
                    names.extend_from_slice(name.as_os_str().as_bytes());
                    names.push(0);
                }
            }
            let mut names = &*names;
            let mut names = ListedNames::new(&mut names, 0, path, self.tally.watch.cancel);
            walk.list(&mut names, &Target::Into(path.to_owned()), spot)?;
        }
        self.kept()
    }

    /// Walks all of a source on another machine, as a copy from there to `place` does.
    ///
    /// # Errors
    /// A record could not be kept, or the connection was lost. What could not be looked at is told and counted.
    pub(super) fn walk_there(
        &self,
        source: &SourceThere<'_>,
        place: Arc<Place>,
        policy: &CopyPolicy,
    ) -> Result<Summary> {
        let done = source.walk(place, policy, self);
        self.kept()?;
        done
    }

    /// Whether every record could be kept.
    fn kept(&self) -> Result<()> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// What could not be looked at.
    pub(super) fn tally(&self) -> &Tally<'a> {
        &self.tally
    }

    /// Leaves `name` in the directory `node` to another process.
    fn give(&self, node: &Node, name: Name<'_>, to: GivenTo) {
        let mut path: PathBuf = node.names().into_iter().map(|name| os(name.as_name())).collect();
        path.push(os(name));
        self.others.give(path, to);
    }

    /// Whether what `info` tells of is for the process that makes the plan.
    fn is_for_first(&self, info: &Info) -> bool {
        self.takes == GivenTo::Any && info.dev != self.dev
    }

    fn keep(&self, node: &Node, entries: &[(Name<'_>, Info)]) {
        let names = node.names();
        let (mut of, mut link, mut value) = (Vec::new(), Vec::new(), Vec::new());
        let kept = self.all.add(|push| {
            for (name, info) in entries {
                key(&mut names.iter().map(|n| n.bytes()), name.bytes(), &mut of);
                value.clear();
                Version::of(info).put(&mut value);
                push(&of, &value)?;
            }
            Ok(())
        });
        let several = |(_, info): &&(Name<'_>, Info)| info.kind != Kind::Dir && info.nlink > 1;
        let kept = kept.and_then(|()| {
            let mut several = entries.iter().filter(several).peekable();
            if several.peek().is_none() {
                return Ok(());
            }
            self.linked.add(|push| {
                for (name, info) in several {
                    key(&mut names.iter().map(|n| n.bytes()), name.bytes(), &mut of);
                    link_key(self.dev, info, &of, &mut link);
                    value.clear();
                    Version::of(info).put(&mut value);
                    push(&link, &value)?;
                }
                Ok(())
            })
        });
        if let Err(e) = kept {
            let e = Error::os(Op::WritePlan, node.path(), e);
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
            self.tally.cut_short();
        }
        for (_, info) in entries {
            let count = if info.kind == Kind::Dir { &self.found.dirs } else { &self.found.names };
            count.fetch_add(1, Relaxed);
            if info.kind == Kind::File {
                self.found.bytes.fetch_add(info.size, Relaxed);
                self.tally.watch.progress.bytes_done.fetch_add(info.size, Relaxed);
            }
        }
        self.tally.done(entries.len() as u64);
    }
}

impl EntryListener for Collector<'_> {
    fn top(&self, _: &Info, _: ToldAttrs<'_>) {}

    fn dir(&self, above: &Node, name: Name<'_>, info: &Info, _: ToldAttrs<'_>) -> bool {
        self.keep(above, &[(name, *info)]);
        true
    }

    fn entry(&self, above: &Node, name: Name<'_>, info: &Info) {
        self.keep(above, &[(name, *info)]);
    }
}

impl Destination<SourceDir> for Collector<'_> {
    type Buffers = ();
    type Dir = ();

    fn tally(&self) -> &Tally<'_> {
        &self.tally
    }

    fn claims(&self) -> &Claims {
        &self.claims
    }

    fn buffers(&self) {}

    fn base(&self, _: &Place) -> Result<()> {
        Ok(())
    }

    fn share(&self, (): &()) {}

    fn enter(
        &self,
        (): &mut (),
        above: &Arc<WalkTask<Self>>,
        src: &Arc<SourceDir>,
        entry: DirEntry<'_>,
        by: Entering,
    ) -> Result<Option<()>> {
        let is_mounted = self.is_removal && {
            let place = meta::Place::of(&src.dir).map_err(|e| Error::os(Op::Stat, src.node.path(), e))?;
            place.mount_root == Some(true)
        };
        // The process that listed the directory above has kept what leads to a name that was given.
        if by == Entering::List {
            return Ok((!is_mounted).then_some(()));
        }
        if self.is_for_first(&src.info) && !self.one_file_system {
            self.give(&above.src.node, entry.name, GivenTo::First);
            return Ok(None);
        }
        self.keep(&above.src.node, &[(entry.name, src.info)]);
        Ok((!is_mounted).then_some(()))
    }

    fn release(&self, (): &mut (), hold: WalkHold<Self>) {
        hold.release(|_| {});
    }
}

impl WalkDestination for Collector<'_> {
    type Finding = ();

    fn list_base(&self, _: &Target) -> Result<()> {
        Ok(())
    }

    fn claim(&self, _: &WalkTask<Self>, _: DirEntry<'_>, _: &Info) -> Result<Claimed> {
        Ok(Claimed::First)
    }

    fn room(&self, _: &WalkTask<Self>) -> usize {
        ROOM
    }

    fn entries(
        &self,
        _: &mut WalkWorker<'_, '_, Self>,
        pair: &Arc<WalkTask<Self>>,
        names: &Names,
        range: Range<usize>,
    ) {
        let mut seen = Vec::with_capacity(range.len());
        for (name, _) in range.filter_map(|index| names.get(index)) {
            if self.tally.cancelled() {
                return;
            }
            match pair.src.stat(name, false) {
                Ok(info) => seen.push((name, info)),
                Err(e) => self.tally.fail(e),
            }
        }
        // What has become a directory since it was listed was not gone into.
        seen.retain(|(name, info)| {
            if info.kind == Kind::Dir {
                let (path, note) = (pair.src.node.join(*name), Reason::KindBecame.about(info.kind.word()));
                self.tally.fail(Error::ours(Code::SourceChanged, Op::Plan, path, note));
            }
            info.kind != Kind::Dir
        });
        seen.retain(|(name, info)| {
            let goes = info.nlink > 1 && self.is_for_first(info);
            if goes {
                self.give(&pair.src.node, *name, GivenTo::First);
            }
            !goes
        });
        self.keep(&pair.src.node, &seen);
    }

    fn wanted_elsewhere(&self) -> usize {
        self.others.wanted()
    }

    fn may_go_elsewhere(&self, pair: &WalkTask<Self>) -> bool {
        pair.src.info.dev == self.dev
    }

    fn goes_elsewhere(&self, pair: &WalkTask<Self>, name: Name<'_>) {
        self.give(&pair.src.node, name, GivenTo::Any);
    }

    fn one(&self, _: &mut WalkWorker<'_, '_, Self>, pair: &Arc<WalkTask<Self>>, entry: DirEntry<'_>) {
        match pair.src.stat(entry.name, false) {
            Ok(info) => self.keep(&pair.src.node, &[(entry.name, info)]),
            Err(e) => self.tally.fail(e),
        }
    }

    fn excluded(&self, (): &mut (), path: &dyn Fn() -> PathBuf) {
        self.tally.item(Action::Excluded, 0, || (path(), PathBuf::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_before_what_is_below_them_and_in_one_piece() {
        let paths = ["a", "a/b", "a/b/c", "a/z", "a-b", "a-b/x", "b", "a/b\u{1}"];
        let mut keys: Vec<Vec<u8>> = paths
            .iter()
            .map(|path| {
                let parts: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
                let (name, parents) = parts.split_last().unwrap();
                let mut out = Vec::new();
                key(&mut parents.iter().copied(), name, &mut out);
                out
            })
            .collect();
        keys.sort();
        let shown: Vec<String> = keys
            .iter()
            .map(|key| {
                let (parent, name) = parts_of(key).unwrap();
                let parent = String::from_utf8(path_of(parent)).unwrap();
                format!("{parent}|{}", std::str::from_utf8(name).unwrap())
            })
            .collect();
        assert_eq!(shown, ["|a", "|a-b", "|b", "a|b", "a|b\u{1}", "a|z", "a/b|c", "a-b|x"]);
    }
}
