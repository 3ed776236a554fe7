//! Ends a copy whose destination is on another machine: the same steps as here, each asked of the bcmr there over one
//! connection. A sync to there, by one more sync; and a comparison with there, by what the bcmr there says.
//!
//! Must not look at the tree: what is to be known of it is what the other side says, and that it has lacked nothing.

use super::super::along::{Along, along};
use super::super::format::{Digest, LandedEntry, PlannedAs, PlannedEntry, ShardCounts, Version};
use super::super::live_there;
use super::super::requests::Finished;
use super::super::sums::TreeSums;
use super::super::there;
use super::{AS_WHOLE, PlanEnd, Sum, shown};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::Summary;
use crate::peer::planned::TreeThere;
use crate::peer::put;
use crate::policy::{Compare, CopyPolicy, DeleteMax, DeleteWhen, Mirror, Preserve, Target};
use crate::remote::{Address, Purpose, PutRequest};
use crate::tally::Tally;
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::meta::Kind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

impl PlanEnd<'_> {
    /// Ends the tree of all shards on another machine, and gives it its name there.
    pub(super) fn publish_there(self, to: &Address) -> Result<Finished> {
        if self.request.merge {
            return Err(self.error(Code::Usage, &self.dst_path, Reason::PlanMergesHere));
        }
        let policy = &self.request.policy;
        let plan = (self.folder, self.header);
        let tree = there::reach(plan, (to, self.request.way.as_ref()), policy, self.tally.watch)?;
        let done = self.settled_there(&tree);
        let lost = match &done {
            Ok((_, lost)) => tree.end(Ok(lost.clone())),
            Err(_) => tree.end(Ok(Summary::default())),
        };
        let (sum, _) = done?;
        let lost = lost?;
        self.tally.failed_below(&lost);
        self.folder.write_receipt(self.receipt(&sum).as_bytes())?;
        super::tell_lost(&self.tally, self.header, self.lost(&sum));
        let Sum { counts: ShardCounts { files, others, bytes, .. }, dirs, further, root } = sum;
        let others = others + further;
        let mut summary = self.tally.summary();
        let told = Summary { failed: 0, codes: Vec::new(), ..lost };
        summary.add(Summary { files: 0, dirs: 0, others: 0, bytes: 0, kept: 0, updated: 0, ..told });
        Ok(Finished { summary: Summary { files, dirs, others, bytes, ..summary }, root })
    }

    /// Ends a sync to another machine: what shards could not make, what directories are like and what only the destination has
    /// are those of one sync there, which finds that the rest is as it should be.
    pub(super) fn bring_there(
        self,
        to: &Address,
        by_content: bool,
        delete: Option<DeleteMax>,
    ) -> Result<Finished> {
        let src = Dir::open(&self.src_path).map_err(|e| Error::os(Op::OpenDirectory, &self.src_path, e))?;
        super::the_planned_source(&src, self.header)?;
        let way = there::the_way(self.folder, self.request.way.as_ref())?.clone();
        let mirror = if delete.is_some() { Mirror::Delete } else { Mirror::Update };
        let policy = CopyPolicy {
            recursive: true,
            preserve: Preserve::ALL,
            mirror,
            delete_max: delete.unwrap_or(DeleteMax::DEFAULT),
            ..there::bringing(&self.request.policy, by_content)
        };
        let request = PutRequest {
            sources: vec![self.src_path.clone()],
            names: None,
            to: to.clone(),
            target: Target::Exactly,
            purpose: Purpose::Copy,
            when: DeleteWhen::After,
            manifest: None,
            dated: None,
            state: self.request.state.clone(),
            way,
            policy,
        };
        let done = put(request, self.tally.watch)?;
        self.tally.failed_below(&done);
        self.tally.deleted.fetch_add(done.deleted, Relaxed);
        let (counts, dirs) = self.counted()?;
        self.ended(&Sum { root: Digest::default(), counts, dirs, further: 0 })
    }

    /// Ends a comparison with another machine.
    pub(super) fn compare_there(self, to: &Address, compare: Compare, extra: bool) -> Result<Finished> {
        let way = there::the_way(self.folder, self.request.way.as_ref())?;
        let policy = &self.request.policy;
        live_there::end(self.parts(), (to, way), policy, (compare, extra), &self.tally)?;
        self.compared()
    }

    /// What the tree comes to, once it has its name; and what the other side told of its end.
    fn settled_there(&self, tree: &TreeThere<'_>) -> Result<(Sum, Summary)> {
        let plan = (self.folder, self.header, self.plan);
        let note = self.folder.finishing()?;
        let known = note.as_deref().and_then(|note| note.strip_prefix(AS_WHOLE));
        let known = known.and_then(|ino| std::str::from_utf8(ino).ok()?.parse::<u64>().ok());
        let (ino, lost, is_new) = match (tree.find(), known) {
            (Ok(found), _) => {
                self.way_there(Some(tree), true)?;
                tree.all_linked()?;
                let policy = &self.request.policy;
                let lost = there::settle(tree, &self.src_path, plan, policy, self.tally.watch)?;
                (found.ino, lost, true)
            }
            // It has its name, or an earlier run was stopped before it could say so: the other side knows.
            (Err(e), Some(ino)) if e.code == Code::NotFound => (ino, Summary::default(), false),
            (Err(e), _) => return Err(e),
        };
        let sum = self.way_there(None, is_new)?;
        self.folder.note_finishing(&[AS_WHOLE, ino.to_string().as_bytes()].concat())?;
        tree.publish(ino)?;
        Ok((sum, lost))
    }

    /// Goes through everything that the plan names at the source: once for further names, and once for what it comes to.
    fn way_there(&self, links: Option<&TreeThere<'_>>, proves: bool) -> Result<Sum> {
        let src = Dir::open(&self.src_path).map_err(|e| Error::os(Op::OpenDirectory, &self.src_path, e))?;
        super::the_planned_source(&src, self.header)?;
        let sums = TreeSums::begin(self.folder, &self.dst_path, links.is_none())?;
        let mut looking = SourceWay {
            tally: &self.tally,
            src_path: &self.src_path,
            dst_path: &self.dst_path,
            links,
            proves,
            sums,
            dirs: 0,
            further: 0,
        };
        let top = SourceLevel { src, version: self.header.top };
        let gone = along((self.folder, self.header, self.plan), top, &mut looking);
        let SourceWay { sums, dirs, further, .. } = looking;
        let root = sums.end(gone.is_ok())?;
        Ok(Sum { root, counts: gone?, dirs, further })
    }
}

/// A directory of the source on the way.
struct SourceLevel {
    src: Dir,
    version: Version,
}

/// A way through the source, as the plan names it.
struct SourceWay<'w> {
    tally: &'w Tally<'w>,
    src_path: &'w Path,
    dst_path: &'w Path,
    /// Further names are made in this.
    links: Option<&'w TreeThere<'w>>,
    /// The tree was ended just now: what is something else since would have been put into it.
    proves: bool,
    sums: TreeSums,
    dirs: u64,
    further: u64,
}

impl SourceWay<'_> {
    fn source(&self, path: &[u8], name: Option<&NameBuf>) -> PathBuf {
        shown(self.src_path, path, name.map(NameBuf::as_name))
    }
}

impl Along for SourceWay<'_> {
    type Level = SourceLevel;

    fn is_stopped(&self) -> bool {
        self.tally.cancelled()
    }

    fn enter(
        &mut self,
        above: &mut SourceLevel,
        path: &[u8],
        name: &NameBuf,
        version: &Version,
    ) -> Result<SourceLevel> {
        let src = above.src.open_dir(name.as_name());
        let src = src.map_err(|e| Error::os(Op::OpenDirectory, self.source(path, None), e))?;
        Ok(SourceLevel { src, version: *version })
    }

    fn entry(
        &mut self,
        at: &mut SourceLevel,
        path: &[u8],
        entry: &PlannedEntry,
        landed: LandedEntry,
    ) -> Result<()> {
        let name = entry.name.as_name();
        let shown = shown(self.src_path, path, Some(name));
        let look = || at.src.look(name).map_err(|e| Error::os(Op::Stat, &shown, e));
        let changed = || Error::ours(Code::SourceChanged, Op::FinishPlan, &shown, Reason::ChangedSincePlan);
        if let Some(tree) = self.links {
            let PlannedAs::Linked { of, first } = &entry.what else { return Ok(()) };
            if look()?.is_none_or(|now| !of.is(&now)) {
                return Err(changed());
            }
            let further = super::shown(Path::new(""), path, Some(name));
            return tree.link(first, further.as_os_str().as_bytes());
        }
        self.sums.entry(entry.version().kind, path, name);
        match (&entry.what, landed) {
            (PlannedAs::Whole(_), LandedEntry::File(hash)) => {
                let there = || super::shown(self.dst_path, path, Some(name));
                self.sums.file((path, name), &hash, self.tally, there);
            }
            (PlannedAs::Whole(of), _) if of.kind == Kind::Link => {
                if look()?.is_none_or(|now| !of.is(&now)) {
                    return Err(changed());
                }
                let target = at.src.read_link(name).map_err(|e| Error::os(Op::ReadLink, &shown, e))?;
                self.sums.target(target.as_bytes());
            }
            (PlannedAs::Whole(_), _) => {}
            (PlannedAs::Directory(_), _) => self.dirs += 1,
            (PlannedAs::Linked { first, .. }, _) => {
                self.further += 1;
                self.sums.first(first);
            }
            (PlannedAs::Part { .. }, _) => {
                let damaged = Reason::PlanDamaged;
                return Err(Error::ours(Code::Io, Op::FinishPlan, self.src_path, damaged));
            }
        }
        // What became something else since would have taken the place of what the shards have brought.
        match look()? {
            Some(now) if now.kind == entry.version().kind => Ok(()),
            _ if !self.proves => Ok(()),
            _ => Err(changed()),
        }
    }

    fn leave(&mut self, level: SourceLevel, path: &[u8], _: Option<&mut SourceLevel>) -> Result<()> {
        let from = self.source(path, None);
        if self.links.is_none() {
            let info = level.src.info().map_err(|e| Error::os(Op::Stat, &from, e))?;
            if !level.version.is(&info) {
                let note = Reason::ChangedSincePlan;
                self.tally.warn(Error::ours(Code::SourceChanged, Op::Copy, from, note));
            }
        }
        Ok(())
    }
}
