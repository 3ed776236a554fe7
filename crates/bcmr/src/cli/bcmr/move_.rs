//! `move`: what may be typed, and the request that it means. Must not know how a request is carried out.

use super::collide::{MoveCollideArgs, collide};
use super::filters::{FilterArgs, filter};
use super::how::{HowArgs, durability, verify};
use super::io::{IoArgs, io, io_guard};
use super::jobs::jobs_for;
use super::operands::{Operands, above, operands};
use super::output::{OutputArgs, show};
use crate::env::Env;
use crate::show::{Again, Show, Verb};
use crate::usage::Usage;
use bcmr_engine::policy::{CopyPolicy, MoveRequest, Verify};
use clap::Args;

pub(super) const EXAMPLES: &str = "Examples:
  bcmr move draft.txt final.txt          a rename
  bcmr move photos /mnt/disk             copied, verified, made durable, and only then removed here
  bcmr move --merge inbox/ archive       what is in inbox goes into archive, beside what is there";

#[derive(Debug, Args)]
pub struct MoveArgs {
    #[command(flatten)]
    pub operands: Operands,
    /// Merge a directory into one that is already there
    #[arg(long)]
    pub merge: bool,
    /// Make directories above the destination that are not there
    #[arg(hide_short_help = true, long, conflicts_with = "dry_run")]
    pub mkpath: bool,
    #[command(flatten)]
    pub filters: FilterArgs,
    #[command(flatten)]
    pub collide: MoveCollideArgs,
    #[command(flatten)]
    pub how: HowArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub io: IoArgs,
}

/// What `move` arguments mean.
pub fn request(a: &MoveArgs, env: &Env) -> Result<(MoveRequest, Show), Usage> {
    let (sources, target) = operands(&a.operands)?;
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
        filter: filter(&a.filters),
        dry_run: a.collide.dry_run,
        io: io(&a.io),
        ..CopyPolicy::archive(jobs_for(collide, &a.how.jobs, env), env.me, env.umask)
    };
    io_guard(&policy.io, policy.resume)?;
    let again = if a.merge { Again::Same } else { Again::WithMerge };
    let verify = policy.verify;
    let (collide, report) = (policy.collide, a.how.report.clone());
    let show = Show { verify, collide, report, ..show(Verb::Move, &a.output, policy.dry_run, again, env) };
    Ok((MoveRequest { sources, target, merge: a.merge, all_or_nothing: false, policy }, show))
}
