//! Names that the caller knows, dealt with in rounds: copied into a tree without a name that other processes fill as well,
//! brought into a directory that is there, or compared with one. What one round has opened and learnt, the next one knows.
//!
//! Must not know where the names come from, nor what becomes of their directories in the end. In a tree without a name
//! nothing is listed, so the cost of a round is that of its names, however much else there is in their directories.

use crate::blocks::Cv;
use crate::disk::sys::Sys;
use crate::error::{Error, Op, Result};
use crate::event::{Summary, Watch};
use crate::node::Node;
use crate::policy::{CopyPolicy, Target};
use crate::receiver::claims::Spot;
use crate::receiver::dest::DestDir;
use crate::receiver::held::HeldNames;
use crate::verbs::copy::Run;
use crate::verbs::local::{NamesBelow, WalkDestination, WalkDropped, WalkHold};
use crate::verbs::round_ledger::{LandedNames, PlaceInSource, RoundLedger};
use crate::verbs::survey::Survey;
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::meta::Info;
use std::path::Path;

/// What is in the tree before the first round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// None of the names, as far as is known.
    Fresh,
    /// Some of them, maybe.
    Trodden,
}

/// What came of one round.
pub(crate) struct RoundDone {
    /// What tells each directory from others, in their order, where it could be opened.
    dirs: Vec<Option<(u64, u64)>>,
    landed: LandedNames<PlaceInSource>,
    /// Owners that could not be kept, which are told in the end of all rounds.
    pub(crate) owners_lost: usize,
}

impl RoundDone {
    /// What `name` of the directory with this number was when it was read, and its hash; `None`: it has not landed, which
    /// was told.
    pub(crate) fn take(&mut self, dir: usize, name: &NameBuf) -> Option<(Info, Option<Cv>)> {
        let id = self.dirs.get(dir).copied().flatten()?;
        self.landed.remove(&(id, name.clone()))
    }
}

/// Such a copy.
pub(crate) struct Rounds<'a> {
    run: Run<'a>,
    base: WalkHold<Run<'a>>,
    dropped: WalkDropped<Run<'a>>,
}

impl<'a> Rounds<'a> {
    /// Begins one that brings names below `source` into `dest`, which is made where it is not there; `policy` is a
    /// mirror's. Directories that are made are open to this user alone, and none is sealed.
    ///
    /// # Errors
    /// One of the two cannot be opened.
    pub(crate) fn live(
        disk: &'a Sys,
        policy: &'a CopyPolicy,
        watch: Watch<'a>,
        source: &Path,
        dest: &Path,
    ) -> Result<Rounds<'a>> {
        let mut run = Run::new(disk, policy, watch, None)?;
        run.desk.hooks.round = Some(RoundLedger::default());
        let dropped = WalkDropped::<Run<'a>>::default();
        let dst = || run.list_base(&Target::Into(dest.to_owned()));
        let base = run.walk_with(dropped.clone()).base(source, dst, Spot::default())?;
        run.desk.narrow(&base.dst, &base.src.info);
        Ok(Rounds { run, base, dropped })
    }

    /// Begins one, of names below `source` into `tree`, which is shown as `shown`.
    ///
    /// # Errors
    /// One of the two cannot be opened.
    pub(crate) fn begin(
        disk: &'a Sys,
        policy: &'a CopyPolicy,
        watch: Watch<'a>,
        source: &Path,
        (tree, shown): (&Dir, &Path),
        ground: Ground,
    ) -> Result<Rounds<'a>> {
        let mut run = Run::new(disk, policy, watch, None)?;
        run.desk.hooks.round = Some(RoundLedger::default());
        let dropped = WalkDropped::<Run<'a>>::default();
        let held = match ground {
            Ground::Fresh => HeldNames::none(),
            Ground::Trodden => HeldNames::default(),
        };
        let dst = || {
            let dir = tree.try_clone().map_err(|e| Error::os(Op::Open, shown, e))?;
            DestDir::shared(disk, dir, Node::root(shown), held, policy)
        };
        let base = run.walk_with(dropped.clone()).base(source, dst, Spot::default())?;
        Ok(Rounds { run, base, dropped })
    }

    /// Copies these names.
    pub(crate) fn round(&self, dirs: Vec<NamesBelow>) -> RoundDone {
        let before = self.run.desk.owners_lost();
        let dirs = self.run.walk_with(self.dropped.clone()).named(&self.base, dirs);
        let ledger = self.run.desk.hooks.round.as_ref();
        let landed = ledger.map(RoundLedger::take);
        let owners_lost = self.run.desk.owners_lost() - before;
        RoundDone { dirs, landed: landed.unwrap_or_default(), owners_lost }
    }

    /// Says what was done in all of them.
    pub(crate) fn end(self) -> Summary {
        let Rounds { run, base, dropped: _ } = self;
        base.release(|_| {});
        run.end()
    }
}

/// Names that are compared.
pub(crate) struct ComparedRounds<'s, 'a> {
    survey: &'s Survey<'a>,
    base: WalkHold<Survey<'a>>,
    dropped: WalkDropped<Survey<'a>>,
}

impl<'s, 'a> ComparedRounds<'s, 'a> {
    /// Begins to compare names below `source` with those below `dest`.
    ///
    /// # Errors
    /// One of the two cannot be opened.
    pub(crate) fn begin(
        survey: &'s Survey<'a>,
        source: &Path,
        dest: &Path,
    ) -> Result<ComparedRounds<'s, 'a>> {
        let dropped = WalkDropped::<Survey<'a>>::default();
        let dst = || survey.round_base(&Target::Exactly(dest.to_owned()));
        let base =
            survey.walk_with(survey.policy.jobs, dropped.clone()).base(source, dst, Spot::default())?;
        Ok(ComparedRounds { survey, base, dropped })
    }

    /// Compares these names, and tells what differs.
    pub(crate) fn round(&self, dirs: Vec<NamesBelow>) {
        let walk = self.survey.walk_with(self.survey.policy.jobs, self.dropped.clone());
        let _none_is_asked_for = walk.named(&self.base, dirs);
        self.survey.end_round();
    }

    /// Compares the two that the names are below, and tells what differs.
    ///
    /// # Errors
    /// One of the two cannot be looked at.
    pub(crate) fn top(&self) -> Result<()> {
        self.survey.round_top(&*self.base.src, &self.base.dst)?;
        self.survey.end_round();
        Ok(())
    }

    /// Ends it.
    pub(crate) fn end(self) {
        self.base.release(|_| {});
    }
}
