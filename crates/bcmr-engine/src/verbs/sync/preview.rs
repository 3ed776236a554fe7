//! `sync -n`: what a run would add, replace and delete, each with its bytes.
//!
//! Must not change anything, nor know where the source is: what comes off a wire is shown to the same visitor. What would be deleted is
//! planned by the receiver's own planner, and where it goes first it is handed to what deletes it.

use crate::disk::sys::Sys;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Change, Summary, Watch};
use crate::node::Node;
use crate::policy::{Collide, Compare, CopyPolicy};
use crate::receiver::aside;
use crate::receiver::created_names::CreatedNames;
use crate::receiver::extraneous::{At, Extraneous, Going};
use crate::receiver::partly::Fate;
use crate::receiver::plan::{Proof, Verdict, decide, same};
use crate::receiver::tree;
use crate::tally::Tally;
use crate::verbs::check::Check;
use crate::verbs::entry_pair::{EntryPair, Findings, Found, Lack, Visit};
use crate::verbs::going::GoingSnapshots;
use crate::verbs::keeping;
use crate::verbs::operands::{self, Dest, Reach};
use crate::verbs::rivals::EntryPaths;
use crate::verbs::survey::Survey;
use crate::verbs::sync::ends::SyncPair;
use crate::verbs::sync::first::DeletesFirst;
use crate::verbs::sync::rules_there::RulesThere;
use fastcopy::dir::{Dir, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tells what a run would do, and of the destination itself under `own_name`; with `alike` also what both sides of each difference are like.
///
/// # Errors
/// Only when nothing could be begun.
pub(super) fn preview(
    ends: &SyncPair,
    policy: &CopyPolicy,
    (own_name, alike): (&Path, bool),
    going: Option<Arc<GoingSnapshots>>,
    watch: Watch<'_>,
) -> Result<Summary> {
    let tally = Tally::new(watch);
    let root = operands::shown(&ends.dest);
    let check = Check {
        policy,
        compare: if policy.collide == Collide::IfContentDiffers {
            Compare::Hash
        } else {
            Compare::SizeAndTime
        },
        extra: policy.mirror.deletes(),
        alike,
        root: &root,
        own_name,
        tally: &tally,
    };
    let kept = spared(ends, policy);
    let visit = Preview::new(check, kept, AtEnd::Tells(Passes::Two)).thinning(going);
    let mut survey = Survey::new(policy, &tally, Box::new(visit))?;
    survey.resolved(vec![ends.operand(policy.preserve.at_source)?]);
    survey.visit.end();
    Ok(tally.summary())
}

/// The directory that holds what is kept, if it is there by now.
pub(super) fn spared(ends: &SyncPair, policy: &CopyPolicy) -> Option<(u64, u64)> {
    match &ends.dest {
        Dest::Whole(place) => keeping::spared(policy, &Reach::Anywhere, place),
        Dest::Named { .. } => None,
    }
}

/// What becomes of what was found to go.
pub(crate) enum AtEnd<'a> {
    /// It is planned and told, and so is each difference before.
    Tells(Passes),
    /// It is deleted, and nothing is told before.
    Deletes(DeletesFirst<'a>),
}

/// How often a run goes through the source.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passes {
    /// Once: what was behind something that is out of the way in the end is still to come.
    One,
    /// Twice where something was in the way; or into a new tree, where nothing is.
    Two,
}

/// A check that hands what would be deleted to the planner.
pub(crate) struct Preview<'a> {
    check: Check<'a>,
    found: Option<Extraneous>,
    /// The directory that holds what is kept.
    kept: Option<(u64, u64)>,
    /// What files of rules leave out, where the source is on another machine.
    rules: Option<Arc<RulesThere>>,
    at_end: AtEnd<'a>,
    /// Snapshots that would go after it.
    going: Option<Arc<GoingSnapshots>>,
    /// A run that changes nothing puts nothing anywhere.
    created_names: Arc<CreatedNames>,
}

impl<'a> Preview<'a> {
    /// Nothing was shown yet. The directory `kept` stays wherever it is met.
    pub(crate) fn new(check: Check<'a>, kept: Option<(u64, u64)>, at_end: AtEnd<'a>) -> Preview<'a> {
        let found = Extraneous::of(check.policy).map(|found| found.sparing(kept));
        Preview { check, found, kept, rules: None, at_end, going: None, created_names: Arc::default() }
    }

    /// The same, of a snapshot after which some would go.
    pub(crate) fn thinning(self, going: Option<Arc<GoingSnapshots>>) -> Preview<'a> {
        Preview { going, ..self }
    }

    /// The same, where files of rules are read at the destination.
    pub(crate) fn ruled_by(self, rules: Option<Arc<RulesThere>>) -> Preview<'a> {
        let found = self.found.map(|found| found.ruled_by(rules.as_ref().map(RulesThere::below)));
        Preview { found, rules, ..self }
    }

    fn tells(&self) -> bool {
        matches!(self.at_end, AtEnd::Tells(_))
    }

    /// The directory that `path` is in.
    fn node(&self, path: &Path) -> Arc<Node> {
        let root = Node::root(self.check.root);
        let below = path.parent().and_then(|dir| dir.strip_prefix(self.check.root).ok());
        let names = below.into_iter().flat_map(Path::components);
        let names = names.filter_map(|part| NameBuf::new(part.as_os_str().as_bytes()));
        names.fold(root, |up, name| up.below(name.as_name()))
    }

    fn goes(&self, dir: &Dir, name: Name<'_>, path: &Path, going: Going) -> Result<()> {
        let fail = |e| Error::os(Op::Stat, path, e);
        let (Some(found), Some(there)) = (&self.found, dir.look(name).map_err(fail)?) else { return Ok(()) };
        let info = dir.info().map_err(fail)?;
        if !found.may_go_on(info.dev) {
            return Ok(());
        }
        let (node, id) = (self.node(path), info.id());
        let at = At { dir, node: &node, id, times: None, created_names: &self.created_names };
        found.goes(&at, name, &there, going)
    }

    /// M10, M11: while a file of rules is not yet the source's, the receiver does not know what that will keep.
    fn is_yet_to_come(&self, at: &EntryPair<'_>) -> Result<()> {
        let (Some(rules), Some((dir, name)), false) = (&self.rules, at.above, self.tells()) else {
            return Ok(());
        };
        if rules.asks(name) && !at.there.is_some_and(|there| same(&at.info, &there)) {
            let info = dir.info().map_err(|e| Error::os(Op::Stat, at.dst_path(), e))?;
            rules.lacks(name, info.id(), Reason::RulesToCome);
        }
        Ok(())
    }

    /// What stands in the way of something that is no directory, as it is told: replaced at once if it is empty, or deleted with
    /// the rest, which is told by itself, so that something is new.
    ///
    /// # Errors
    /// It is not to be replaced, or cannot be looked at.
    fn clear(&self, at: &EntryPair<'_>) -> Result<(Change, Reason)> {
        let fail = |e| Error::os(Op::ListDirectory, at.dst_path(), e);
        let replaced = (Change::Differ, Reason::ByType);
        let Some((above, name)) = at.above else { return Ok(replaced) };
        if tree::is_empty(&Sys::new(), &above.open_dir(name).map_err(fail)?).map_err(fail)? {
            return Ok(replaced);
        }
        if self.found.is_some() {
            if let Some(rules) = &self.rules {
                // M11: it comes only once that is gone.
                rules.lacks(name, above.info().map_err(fail)?.id(), Reason::RulesInTheWay);
            }
            self.goes(above, name, &at.dst_path(), Going::InTheWay)?;
            return Ok((Change::Add, Reason::Missing));
        }
        let note = Reason::FileOverDirectory;
        Err(Error::ours(Code::InTheWay, Op::Replace, at.dst_path(), note).and(&at.src_path()))
    }
}

impl Visit for Preview<'_> {
    fn entry(&self, at: &EntryPair<'_>, found: &mut Findings) -> bool {
        self.source_has_one();
        if let Err(e) = self.is_yet_to_come(at) {
            found.push(Found::Failed(e));
        }
        if at.there.is_some_and(|there| self.kept == Some(there.id())) {
            found.push(Found::Failed(aside::own_in_the_way(&at.dst_path())));
            self.check.tally.done(1);
            return false;
        }
        let is_over = at.info.kind == Kind::Dir && at.there.is_some_and(|there| there.kind != Kind::Dir);
        if is_over && self.goes_over() {
            // Told with what is in it.
            self.check.tally.done(1);
            return true;
        }
        if decide(&at.info, at.there.as_ref(), self.check.policy) != Verdict::ReplaceTree {
            // What cannot be listed is found in what is new as well.
            let goes_in = at.info.kind == Kind::Dir && self.check.policy.recursive;
            return if self.tells() { self.check.entry(at, found) } else { goes_in };
        }
        found.push(match self.clear(at) {
            Ok((change, why)) => {
                let bytes = if at.info.kind == Kind::File { at.info.size } else { 0 };
                let counted = (false, 1, bytes);
                let why = (why, self.check.alike(&at.info, at.there.as_ref()));
                Found::Told(self.check.found(change, &at.dst_path(), counted, why))
            }
            Err(e) => Found::Failed(e),
        });
        self.check.tally.done(1);
        false
    }

    fn wants_content(&self, at: &EntryPair<'_>) -> Option<Proof> {
        if self.tells() { self.check.wants_content(at) } else { None }
    }

    fn excluded(&self, src_path: &dyn Fn() -> PathBuf, found: &mut Findings) {
        self.source_has_one();
        self.check.excluded(src_path, found);
    }

    fn begins(&self, dir: &Dir, node: &Arc<Node>, source: (u64, u64)) -> Result<()> {
        let began = self.found.as_ref().map_or(Ok(()), |found| found.begin(dir, node, source));
        began.map_err(|e| Error::os(Op::Open, node.path(), e))
    }

    fn has(&self, dir: &Dir, name: Name<'_>, is_out: bool) -> Result<()> {
        let Some(rules) = self.rules.as_ref().filter(|rules| rules.asks(name)) else { return Ok(()) };
        let fail = |e| Error::os(Op::Stat, self.check.root, e);
        let id = dir.info().map_err(fail)?.id();
        if is_out {
            rules.lacks(name, id, Reason::RulesLeftOut)
        } else {
            rules.met(name, id)
        }
        Ok(())
    }

    fn source_has_one(&self) {
        self.found.iter().for_each(|found| found.source_has_one());
    }

    fn absent(&self, paths: &dyn EntryPaths, found: &mut Findings) {
        self.check.absent(paths, found);
    }

    fn top(&self, at: &EntryPair<'_>, found: &mut Findings) {
        if self.tells() {
            self.check.top(at, found);
        }
    }

    fn wants_lacks(&self) -> bool {
        self.tells() && self.check.wants_lacks()
    }

    /// M9: what comes in the place of something else is planned as what comes where nothing is.
    fn goes_over(&self) -> bool {
        self.tells() && self.check.policy.recursive
    }

    fn lacks(&self, lack: &Lack) {
        self.check.lacks(lack);
    }

    fn fate(&self, info: &Info) -> Fate {
        self.found.as_ref().map_or(Fate::Goes, |found| found.fate(info))
    }

    fn counted(&self, names: u64) {
        self.found.iter().for_each(|found| found.counted(names));
    }

    fn extra(&self, dir: &Dir, name: Name<'_>, dst_path: PathBuf, found: &mut Findings) {
        if let Err(e) = self.goes(dir, name, &dst_path, Going::OnlyThere) {
            found.push(Found::Failed(e));
        }
    }

    fn wants_extra(&self) -> bool {
        self.check.extra
    }

    fn end(self: Box<Self>) -> Option<Summary> {
        let Preview { check, found, at_end, going, .. } = *self;
        let tally = check.tally;
        let passes = match at_end {
            AtEnd::Tells(passes) => passes,
            AtEnd::Deletes(first) => return Some(first.delete(found, &check)),
        };
        let plan = found.and_then(|found| found.plan(tally));
        // After a new one that is complete.
        if tally.all_well() {
            going.iter().for_each(|going| going.tell(&check));
        }
        let plan = plan?;
        plan.each(tally, |dir, name, path| match check.only_there(dir, name, &path) {
            Ok(event) => tally.watch.front.event(event),
            Err(e) => tally.fail(e),
        });
        if passes == Passes::One && plan.clears() {
            tally.fail(Error::ours(Code::InTheWay, Op::CopyAllOf, check.root, Reason::OutOfTheWay));
        }
        None
    }
}
