//! `check`: what may be typed, and the request that it means. Must not know how a request is carried out.

use super::collide::{UpdateArg, collide};
use super::connection::{ConnectArgs, no_connection, reach};
use super::fake_super::{self, FakeSuperArgs};
use super::filters::{FilterArgs, by_the_source, filter};
use super::jobs::{JobsArg, jobs};
use super::links::{LinkArgs, follow, follow_destination};
use super::metadata::{KeepArgs, preserve, strictness};
use super::operands::{IsHere, Operands, Places, all_operands, operands, parse};
use super::output::{OutputArgs, show};
use super::remote::{RemoteJob, onward};
use super::resume::{AppendArg, resume};
use crate::address::Operand;
use crate::config::Config;
use crate::env::Env;
use crate::names;
use crate::show::{Again, Show, Verb};
use crate::usage::Usage;
use bcmr_engine::policy::{
    CheckRequest, Compare, CopyPolicy, DeleteWhen, FilterSpec, Landing, SyncPlan, Verify,
};
use bcmr_engine::remote::Purpose;
use clap::{Args, ValueHint};
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "Examples:
  bcmr check photos /mnt/disk            what `copy -r photos /mnt/disk` would change
  bcmr check --hash -T src backup        contents of all files are compared
  bcmr check --manifest sums backup      whether what a manifest says still holds";

#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub operands: Operands,
    /// As for copy; directories are compared with what is in them in any case
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Compare the contents of all files, and not only of those that have another modification time
    #[arg(long, conflicts_with = "quick")]
    pub hash: bool,
    /// Read no contents: a file with another modification time counts as different
    #[arg(long)]
    pub quick: bool,
    /// Prove that what FILE says (as copy --manifest or b3sum wrote it; - is standard input) holds below DIR; -e and its sisters
    /// leave names out, against their paths below DIR; where they are defaults, they do not
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub manifest: Option<PathBuf>,
    /// Tell what only the destination has (the default)
    #[arg(hide_short_help = true, long, overrides_with = "no_extra")]
    pub extra: bool,
    /// Do not tell what only the destination has
    #[arg(long, overrides_with = "extra")]
    pub no_extra: bool,
    /// Stay on the file system of each SRC
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Follow DST where it is a symbolic link also when SRC is on another machine, which may have put the link there
    #[arg(hide_short_help = true, long)]
    pub follow_destination: bool,
    #[command(flatten)]
    pub links: LinkArgs,
    #[command(flatten)]
    pub filters: FilterArgs,
    #[command(flatten)]
    pub keep: KeepArgs,
    #[command(flatten)]
    pub fake: FakeSuperArgs,
    #[command(flatten)]
    pub as_copy: AsCopyArgs,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub jobs: JobsArg,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "As the copy would be told")]
pub struct AsCopyArgs {
    /// Leave names alone that are already there
    #[arg(long)]
    pub no_clobber: bool,
    #[command(flatten)]
    pub update: UpdateArg,
    /// Write into the file that is there instead of replacing it
    #[arg(hide_short_help = true, long)]
    pub inplace: bool,
    /// Go on where the same command stopped
    #[arg(short = 'C', long, conflicts_with_all = ["strict", "append"])]
    pub resume: bool,
    /// The same, and what looks the same is read
    #[arg(hide_short_help = true, short = 's', long, conflicts_with = "append")]
    pub strict: bool,
    /// Add what is missing at the end of the file that is there; size goes by its length
    #[arg(
        hide_short_help = true,
        short = 'a',
        long,
        value_name = "PROOF",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "hash"
    )]
    pub append: Option<AppendArg>,
    /// With -C: what looks the same is read
    #[arg(short = 'V', long)]
    pub verify: bool,
}

/// What `check` arguments mean when everything is here.
pub fn request(a: &CheckArgs, env: &Env) -> Result<(CheckRequest, Show), Usage> {
    let (sources, target) = operands(&a.operands)?;
    no_connection(&a.connect, None)?;
    let (policy, purpose, show) = check_policy(a, env)?;
    let (compare, extra) = match purpose {
        Purpose::Check { compare, extra, .. } => (compare, extra),
        Purpose::Copy | Purpose::DeleteFirst => (Compare::ContentInDoubt, true),
    };
    Ok((CheckRequest { sources, target, compare, extra, policy }, show))
}

/// What `check` arguments mean when one side is on another machine.
pub fn remote(a: &CheckArgs, places: Places, config: &Config, env: &Env) -> Result<RemoteJob, Usage> {
    let (policy, purpose, show) = check_policy(a, env)?;
    if let (Some(flag), Purpose::Check { extra: true, .. }) = (by_the_source(&policy.filter), purpose) {
        let said = format!(
            "{flag} with another machine needs --no-extra: \
             which names it leaves out at the source is not known at the destination"
        );
        return Err(Usage::new(said));
    }
    let host = places.address().map(|a| a.host.clone()).unwrap_or_default();
    let onward = onward(&places, &a.connect, None, false, config)?;
    let reach = reach(&a.connect, None, false, &host, config)?;
    let (names, manifest, unkept) = (None, None, vec!["check"]);
    let (dated, state, plan) = (None, None, SyncPlan::None);
    // Nothing lands.
    let store = None;
    Ok(RemoteJob {
        places,
        names,
        policy,
        purpose,
        when: DeleteWhen::After,
        manifest,
        dated,
        plan,
        state,
        store,
        reach,
        onward,
        unkept,
        show,
    })
}

/// What decides how two sides are compared, wherever they are.
fn check_policy(a: &CheckArgs, env: &Env) -> Result<(CopyPolicy, Purpose, Show), Usage> {
    let c = &a.as_copy;
    let policy = CopyPolicy {
        // A comparison of two directories is about what is in them.
        recursive: true,
        follow: follow(&a.links, &a.keep, a.recursive || a.keep.archive),
        follow_destination: follow_destination(a.follow_destination),
        preserve: fake_super::held(&a.fake, preserve(&a.keep.steps.0)),
        strictness: strictness(&a.keep),
        specials: a.keep.archive,
        collide: collide(c.no_clobber, false, &c.update)?,
        landing: if c.inplace { Landing::InPlace } else { Landing::Atomic },
        verify: if c.verify { Verify::Cached } else { Verify::Off },
        resume: resume(c.resume, false, c.strict, c.append),
        one_file_system: a.one_file_system,
        filter: filter(&a.filters)?,
        ..CopyPolicy::cp(jobs(&a.jobs, env), env.me, env.umask)
    };
    fake_super::guard(&policy)?;
    let compare = match (a.hash, a.quick) {
        (true, _) => Compare::Hash,
        (false, true) => Compare::SizeAndTime,
        (false, false) => Compare::ContentInDoubt,
    };
    let one_worker = policy.jobs == 1;
    let show = Show { one_worker, ..show(Verb::Check, &a.output, false, Again::Same, env) };
    Ok((policy, Purpose::Check { compare, extra: !a.no_extra, alike: false }, show))
}

/// `check --manifest`: which file, below which directory, which of its names, with how many threads.
pub struct ManifestJob {
    pub file: PathBuf,
    pub dir: PathBuf,
    pub filter: FilterSpec,
    pub jobs: usize,
    pub show: Show,
}

/// What `check --manifest` means; `None` when it was not given.
pub fn manifest(a: &CheckArgs, env: &Env, is_here: IsHere<'_>) -> Option<Result<ManifestJob, Usage>> {
    let file = a.manifest.clone()?;
    for path in all_operands(&a.operands) {
        match parse(path, is_here) {
            Ok(Operand::Here(_)) => {}
            Ok(Operand::There(_)) => {
                let said = format!(
                    "{} is on another machine; bcmr check --manifest works on this one only",
                    names::quoted(path)
                );
                return Some(Err(Usage::new(said).or(
                    "run it there, or compare without --manifest; for a file on this machine put ./ before its name",
                )));
            }
            Err(usage) => return Some(Err(usage)),
        }
    }
    let ([dir], None, false) =
        (a.operands.paths.as_slice(), &a.operands.target_directory, a.operands.no_target_directory)
    else {
        return Some(Err(Usage::new("with --manifest there is one operand: the directory it speaks of")));
    };
    let filter = match filter(&a.filters) {
        Ok(filter) => filter,
        Err(usage) => return Some(Err(usage)),
    };
    if let Some(flag) = by_the_source(&filter) {
        let said = format!("{flag} is about files of a source, and with --manifest there is none");
        return Some(Err(
            Usage::new(said).or("-e, --include, --exclude-from and --exclude-regex go by names")
        ));
    }
    let show = Show { manifest: true, ..show(Verb::Check, &a.output, false, Again::Same, env) };
    Some(Ok(ManifestJob { file, dir: dir.clone(), filter, jobs: jobs(&a.jobs, env), show }))
}
