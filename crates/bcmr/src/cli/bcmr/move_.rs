//! `move`: what may be typed, and the request that it means. Must not know how a request is carried out.

use super::collide::{MoveCollideArgs, collide};
use super::columns::Columns;
use super::connection::{ConnectArgs, RemoteArgs, no_connection, reach};
use super::filters::{FilterArgs, filter};
use super::how::{HowArgs, durability, verify};
use super::io::{IoArgs, io, io_guard};
use super::jobs::jobs_for;
use super::operands::{Operands, Places, above, operands};
use super::output::{OutputArgs, show};
use super::remote::{RemoteJob, onward};
use super::store;
use crate::config::Config;
use crate::env::Env;
use crate::show::{Again, Far, Show, Verb};
use crate::usage::Usage;
use bcmr_engine::policy::{CopyPolicy, DeleteWhen, Leaving, MoveRequest, Resume, SyncPlan, Verify};
use bcmr_engine::remote::Purpose;
use clap::Args;

pub(super) const EXAMPLES: &str = "Examples:
  bcmr move draft.txt final.txt          a rename
  bcmr move photos /mnt/disk             copied, verified, made durable, and only then removed here; so to host:
  bcmr move --merge -T inbox archive     what is in inbox goes into archive, beside what is there";

#[derive(Debug, Args)]
pub struct MoveArgs {
    #[command(flatten)]
    pub operands: Operands,
    /// Merge a directory into one that is already there
    #[arg(long)]
    pub merge: bool,
    /// Make directories above the destination that are not there; not with -n
    #[arg(hide_short_help = true, long, conflicts_with = "dry_run")]
    pub mkpath: bool,
    #[command(flatten)]
    pub filters: FilterArgs,
    #[command(flatten)]
    pub collide: MoveCollideArgs,
    #[command(flatten)]
    pub how: HowArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub io: IoArgs,
}

impl MoveArgs {
    /// What is about this machine, and so not for `--via-source`.
    pub fn about_here(&self) -> Option<&'static str> {
        let here = self.filters.about_here().or_else(|| self.how.about_here());
        here.or(self.collide.interactive.then_some("-i"))
    }
}

/// What `move` arguments mean when everything is here.
pub fn request(a: &MoveArgs, env: &Env) -> Result<(MoveRequest, Show), Usage> {
    let (sources, target) = operands(&a.operands)?;
    no_connection(&a.connect, Some(&a.remote))?;
    let (policy, show) = policy(a, env)?;
    Ok((MoveRequest { sources, target, merge: a.merge, all_or_nothing: false, policy }, show))
}

/// What they mean when one side is on another machine, or both are: a copy that is verified, and synced, before the source
/// is taken away.
pub fn remote(a: &MoveArgs, places: Places, config: &Config, env: &Env) -> Result<RemoteJob, Usage> {
    if let Some((flag, hint)) = a.io.only_here() {
        return Err(Usage::new(format!("{flag} is about moves on one machine")).or(hint));
    }
    let (policy, show) = policy(a, env)?;
    let host = places.address().map(|a| a.host.clone()).unwrap_or_default();
    let onward = onward(&places, &a.connect, Some(&a.remote), false, config)?;
    let reach = reach(&a.connect, Some(&a.remote), false, &host, config)?;
    let far = if places.is_put() { Far::To(reach.way.plane) } else { Far::From(reach.way.plane) };
    // Of what a filter leaves something behind, the rest goes where a part of it may be already.
    let merges = a.merge || !policy.filter.is_everything();
    let policy = CopyPolicy {
        leaving: if merges { Leaving::GoesMerging } else { Leaving::Goes },
        // A connection is lost more easily than a disk: large files are gone on with, as by sync.
        resume: Resume::Proved,
        checkpoint_bytes: CopyPolicy::MIRROR_CHECKPOINT_BYTES,
        ..policy
    };
    let show = Show { far, guessed_there: places.guessed_there(), again: Again::Same, ..show };
    let (purpose, unkept) = (Purpose::Copy, vec!["move"]);
    let (names, manifest, dated, state, plan) = (None, None, None, None, SyncPlan::None);
    let store = store::of_downloads(config, env)?;
    Ok(RemoteJob {
        places,
        names,
        policy,
        purpose,
        when: DeleteWhen::After,
        manifest,
        dated,
        state,
        store,
        plan,
        reach,
        onward,
        unkept,
        show,
    })
}

/// What decides how something is moved, wherever its ends are.
fn policy(a: &MoveArgs, env: &Env) -> Result<(CopyPolicy, Show), Usage> {
    let collide = collide(a.collide.no_clobber, a.collide.interactive, &a.collide.update)?;
    let policy = CopyPolicy {
        // The source will be gone, so what landed is read back.
        verify: match verify(a.how.verify) {
            Verify::Off => Verify::Cached,
            said => said,
        },
        above: above(a.mkpath),
        collide,
        force: a.collide.force,
        durability: durability(&a.how),
        filter: filter(&a.filters)?,
        dry_run: a.collide.dry_run,
        io: io(&a.io),
        ..CopyPolicy::archive(jobs_for(collide, &a.how.jobs, env), env.me, env.umask)
    };
    io_guard(&policy.io, policy.resume)?;
    let again = if a.merge { Again::Same } else { Again::WithMerge };
    let verify = policy.verify;
    let (collide, report) = (policy.collide, a.how.report.clone());
    let one_worker = policy.jobs == 1;
    let show = show(Verb::Move, &a.output, policy.dry_run, again, env);
    Ok((policy, Show { one_worker, verify, collide, report, ..show }))
}
