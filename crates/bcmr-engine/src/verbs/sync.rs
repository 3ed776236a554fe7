//! `sync`: the contents of one directory become those of another, and what only that one has is deleted in the end where the
//! policy says so.
//!
//! Must not know how anything is walked, landed or deleted: it is a copy with another policy, and what the destination does
//! beyond a copy is the receiver's.

mod ends;
pub(crate) mod first;
pub(crate) mod mounted;
mod planned;
pub(crate) mod preview;
pub(crate) mod rules_there;

use crate::disk::sys::Sys;
use crate::error::Result;
use crate::event::{Event, Progress, Summary, Watch};
use crate::policy::{Compare, CopyPolicy, DeleteWhen, Mirror, SyncPlan, SyncRequest};
use crate::receiver::aside::Aside;
use crate::receiver::extraneous::Extraneous;
use crate::verbs::check::Check;
use crate::verbs::copy::Run;
use crate::verbs::going::GoingSnapshots;
use crate::verbs::keeping;
use crate::verbs::operands::{self, Dest, Reach, Where};
use crate::verbs::survey::Survey;
use ends::SyncPair;
pub(crate) use ends::{guard_source, lies_in};
use first::{DeletesFirst, LookTallies, Receipt};
use mounted::{Holder, Mounted};
pub use planned::{look_with_plan, planned_words};
use preview::{AtEnd, Preview};
use std::path::Path;
use std::sync::Arc;
#[cfg(fuzzing)]
pub use {mounted::fuzz as state_fuzz, planned::fuzz as sync_plan_fuzz};

/// Makes the destination what the source is.
///
/// # Errors
/// Only when nothing could be begun: SRC is no directory, one of the two is inside the other, or SRC is not mounted where it
/// was. What happens to single items is told through `watch` and counted in the [`Summary`].
pub fn sync(request: SyncRequest, watch: Watch<'_>) -> Result<Summary> {
    sync_of(request, OfSnapshot::default(), watch)
}

/// What a snapshot adds to a run.
#[derive(Default)]
pub(crate) struct OfSnapshot {
    /// The tree that is filled, which is open already and shown as what it will be called.
    pub(crate) tree: Option<Where>,
    /// What would go then, for a dry run.
    pub(crate) going: Option<Arc<GoingSnapshots>>,
}

/// The same, for a snapshot too.
///
/// # Errors
/// As [`sync`].
pub(crate) fn sync_of(request: SyncRequest, of: OfSnapshot, watch: Watch<'_>) -> Result<Summary> {
    let policy = request.policy.clone().resuming();
    let OfSnapshot { tree, going } = of;
    let ends = SyncPair::of(&request, &policy, tree)?;
    let mounted = Mounted::of(&ends.source, Holder::Here(&request.dest), request.state.as_deref());
    if policy.mirror.deletes() {
        mounted.guard(&operands::shown(&ends.dest))?;
    }
    if policy.dry_run || request.plan != SyncPlan::None {
        match &ends.dest {
            Dest::Whole(place) => keeping::foreseen(&policy, &Reach::Anywhere, place)?,
            Dest::Named { dir, name } => keeping::foreseen_new(&policy, &Reach::Anywhere, (dir, name))?,
        }
        let dry = CopyPolicy { dry_run: true, ..policy.clone() };
        let (shown, is_planned) = (operands::shown(&ends.dest), request.plan != SyncPlan::None);
        let own_name = if is_planned { Path::new("") } else { &shown };
        let looked = look_with_plan(&request.plan, &shown, watch, &mut |watch| {
            preview::preview(&ends, &dry, (own_name, is_planned), going.clone(), watch)
        })?;
        // What has changed since is named, and then nothing is done.
        if policy.dry_run || looked.failed > 0 || looked.cancelled {
            return Ok(looked);
        }
    }
    let ends = ends.made(&policy)?;
    let aside = match &ends.dest {
        Dest::Whole(place) => keeping::aside(&policy, &Reach::Anywhere, place)?,
        // Nothing is there that could be replaced.
        Dest::Named { .. } => None,
    };
    let (first, policy) = match request.when {
        DeleteWhen::Before if policy.mirror.deletes() => {
            let first = delete_first(&ends, &policy, aside.clone(), watch)?;
            let rest = policy.after_deleting(first.differences);
            (Summary { differences: 0, ..first }, rest)
        }
        DeleteWhen::Before | DeleteWhen::After => (Summary::default(), policy),
    };
    let (mut summary, is_clear) = pass(&ends, &policy, aside.as_ref(), watch)?;
    summary.add(first);
    if is_clear {
        // What was in the way of something is gone, and all else is there by now.
        let rest = CopyPolicy { mirror: Mirror::Update, ..policy };
        // What it leaves alone is what the first pass dealt with.
        summary.add(Summary { kept: 0, ..pass(&ends, &rest, aside.as_ref(), watch)?.0 });
    }
    if summary.failed == 0
        && !summary.cancelled
        && let Err(e) = mounted.remember(Holder::Here(&request.dest))
    {
        watch.front.event(Event::Warning(e));
    }
    Ok(summary)
}

/// Goes through the whole source, tells nothing of it, and then deletes what only the destination has but what is in the way of
/// something else. Returns what was done; its differences are the entries that are in the way.
///
/// # Errors
/// Only when nothing could be begun.
fn delete_first(
    ends: &SyncPair,
    policy: &CopyPolicy,
    aside: Option<Arc<Aside>>,
    watch: Watch<'_>,
) -> Result<Summary> {
    let root = operands::shown(&ends.dest);
    let progress = Progress::default();
    let tallies = LookTallies::apart(Watch { progress: &progress, ..watch }, watch);
    let looked = &tallies.looked;
    let (compare, own_name) = (Compare::SizeAndTime, Path::new(""));
    let check = Check { policy, compare, extra: true, alike: false, root: &root, own_name, tally: looked };
    let first = DeletesFirst { told: &tallies.told, aside, receipt: Receipt::OfTheRun };
    let visit = Preview::new(check, preview::spared(ends, policy), AtEnd::Deletes(first));
    let mut survey = Survey::new(policy, looked, Box::new(visit))?;
    survey.resolved(vec![ends.operand(policy.preserve.at_source)?]);
    survey.visit.end();
    Ok(tallies.told.summary())
}

/// Copies, and deletes what only the destination has. Returns also whether something that was in the way is gone.
fn pass(
    ends: &SyncPair,
    policy: &CopyPolicy,
    aside: Option<&Arc<Aside>>,
    watch: Watch<'_>,
) -> Result<(Summary, bool)> {
    let disk = Sys::of(policy);
    let mut run = Run::new(&disk, policy, watch, None)?;
    let kept = aside.map(|aside| aside.id());
    run.desk.hooks.extraneous = Extraneous::of(policy).map(|found| found.sparing(kept));
    run.desk.hooks.aside = aside.cloned();
    let mut operands = vec![ends.operand(policy.preserve.at_source)?];
    run.desk.claims = operands::claims(&mut operands);
    run.round(&operands);
    run.desk.sync_names();
    let plan = run.desk.hooks.extraneous.take().and_then(|found| found.plan(&run.desk.tally));
    let is_clear =
        plan.is_some_and(|plan| plan.carry_out(policy, aside.map(|aside| &**aside), &run.desk.tally));
    if let Some(aside) = aside.filter(|_| !is_clear) {
        aside.finish(&run.desk.tally);
    }
    Ok((run.end(), is_clear))
}
