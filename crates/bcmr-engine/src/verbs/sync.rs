//! `sync`: the contents of one directory become those of another, and what only that one has is deleted in the end where the
//! policy says so.
//!
//! Must not know how anything is walked, landed or deleted: it is a copy with another policy, and what the destination does
//! beyond a copy is the receiver's.

mod ends;
mod mounted;
mod preview;

use crate::disk::sys::Sys;
use crate::error::Result;
use crate::event::{Event, Summary, Watch};
use crate::policy::{CopyPolicy, Mirror, SyncRequest};
use crate::receiver::extraneous::Extraneous;
use crate::verbs::copy::Run;
use crate::verbs::operands;
use ends::SyncPair;
pub(crate) use ends::guard_source;
use mounted::Mounted;

/// Makes the destination what the source is.
///
/// # Errors
/// Only when nothing could be begun: SRC is no directory, one of the two is inside the other, or SRC is not mounted where it
/// was. What happens to single items is told through `watch` and counted in the [`Summary`].
pub fn sync(request: SyncRequest, watch: Watch<'_>) -> Result<Summary> {
    let policy = request.policy.clone().resuming();
    let ends = SyncPair::of(&request, &policy)?;
    let mounted = Mounted::of(&ends.source, &request.dest, request.state.as_deref());
    if policy.mirror.deletes() {
        mounted.guard(&request.source)?;
    }
    if policy.dry_run {
        return preview::preview(&ends, &policy, watch);
    }
    let (mut summary, is_clear) = pass(&ends, &policy, watch)?;
    if is_clear {
        // What was in the way of something is gone, and all else is there by now.
        let rest = CopyPolicy { mirror: Mirror::Update, ..policy };
        // What it leaves alone is what the first pass dealt with.
        summary.add(Summary { kept: 0, ..pass(&ends, &rest, watch)?.0 });
    }
    if summary.failed == 0
        && !summary.cancelled
        && let Err(e) = mounted.remember(&request.dest)
    {
        watch.front.event(Event::Warning(e));
    }
    Ok(summary)
}

/// Copies, and deletes what only the destination has. Returns also whether something that was in the way is gone.
fn pass(ends: &SyncPair, policy: &CopyPolicy, watch: Watch<'_>) -> Result<(Summary, bool)> {
    let disk = Sys::with(policy.io);
    let mut run = Run::new(&disk, policy, watch, None)?;
    run.desk.hooks.extraneous = Extraneous::of(policy);
    let mut operands = vec![ends.operand()?];
    run.desk.claims = operands::claims(&mut operands);
    run.round(&operands);
    run.desk.sync_names();
    let plan = run.desk.hooks.extraneous.take().and_then(|found| found.plan(&run.desk.tally));
    let is_clear = plan.is_some_and(|plan| plan.carry_out(policy, &run.desk.tally));
    Ok((run.end(), is_clear))
}
