//! `plan`, `shard` and `finish`: what may be typed, and the requests that they mean.
//!
//! Must not know how a request is carried out.

use super::connection::{ConnectArgs, PlaneArg, Reach, RemoteArgs, no_connection, reach};
use super::filters::{FilterArgs, filter};
use super::how::{VerifyArg, verify};
use super::jobs::{JobsArg, jobs};
use super::operands::{IsHere, NamedPath, operand, parse};
use super::output::{OutputArgs, show};
use super::size::{shard_size, size};
use super::sync::{delete_max, state};
use crate::address::Operand;
use crate::config::Config;
use crate::env::Env;
use crate::show::{Again, Show, Verb};
use crate::usage::Usage;
use bcmr_engine::plan::{FarEnd, FinishRequest, PlanRequest, PlanVerb, ShardChoice, ShardRequest, Shards};
use bcmr_engine::policy::{Compare, CopyPolicy, DeleteMax, Io};
use bcmr_engine::remote::Address;
use clap::{ArgMatches, Args, FromArgMatches, ValueEnum, ValueHint};
use std::path::{Path, PathBuf};

pub(super) const PLAN_EXAMPLES: &str = "Examples:
  bcmr plan /data/src /data/dst --out p --shards 64   cut a copy into 64 shards
  bcmr shard p 0                                      do the first of them, on any machine
  bcmr shard p --all                                  do all that no other process is at
  bcmr plan --status p                                how far it is
  bcmr finish p                                       publish the tree
  bcmr plan /data/src host:dst --out p                a copy to another machine, each shard over a connection of its own
  bcmr plan host:src /data/dst --out p                a copy from there
  bcmr plan --verb sync --delete src dst --out p      bring dst up to date, in shards; one of the two may be host:...
  bcmr plan --verb check src host:dst --out p         compare the two, in shards
  bcmr plan --verb remove old --out p                 remove a tree, in shards";

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The directory to copy
    #[arg(value_name = "SRC", required_unless_present = "status", value_parser = NamedPath, value_hint = ValueHint::DirPath)]
    pub source: Option<PathBuf>,
    /// What it becomes, or is compared with; all machines find both under these paths, but for one of the two that is host:path
    #[arg(value_name = "DST", required_if_eq_any = [("verb", "copy"), ("verb", "sync"), ("verb", "check")], value_parser = NamedPath, value_hint = ValueHint::AnyPath)]
    pub destination: Option<PathBuf>,
    /// What becomes of SRC
    #[arg(long, value_name = "VERB", value_enum, default_value = "copy")]
    pub verb: PlannedVerb,
    #[command(flatten)]
    pub sync: PlannedSync,
    #[command(flatten)]
    pub check: PlannedCheck,
    /// Write the plan into the new directory PLAN
    #[arg(short, long, value_name = "PLAN", required_unless_present = "status", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Cut it into N shards that cost alike
    #[arg(long, value_name = "N", conflicts_with = "shard_size", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub shards: u32,
    /// Cut it into shards of about SIZE bytes
    #[arg(long, value_name = "SIZE", value_parser = shard_size)]
    pub shard_size: Option<u64>,
    /// Cut files of at least twice SIZE into parts of SIZE, a power of two of at least 4M [default: what is fair, 64M to 1G]
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = part_size)]
    pub part_size: Option<u64>,
    /// Write scripts into DIR that have Slurm do it: an array job of the shards, and a job behind it that publishes the tree
    ///
    /// `sh DIR/submit` submits both, with its own arguments as options of sbatch. Given again, it does what is missing.
    #[arg(long, value_name = "DIR", conflicts_with = "status", value_hint = ValueHint::DirPath)]
    pub slurm: Option<PathBuf>,
    /// Stay on the file system of SRC
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Say how far the plan PLAN has come, and do nothing
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["source", "destination", "out"], value_hint = ValueHint::DirPath)]
    pub status: Option<PathBuf>,
    #[command(flatten)]
    pub filters: FilterArgs,
    #[command(flatten)]
    pub jobs: JobsArg,
    #[command(flatten)]
    pub connect: PlanConnect,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What becomes of what a plan names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlannedVerb {
    /// It is copied, and DST appears at once in the end
    Copy,
    /// It is brought into DST, which may be there
    Sync,
    /// It is compared with DST
    Check,
    /// It is removed
    Remove,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "With --verb sync")]
pub struct PlannedSync {
    /// Compare contents, and not size and modification time
    #[arg(hide_short_help = true, long)]
    pub checksum: bool,
    /// Delete what SRC does not have in the end
    #[arg(hide_short_help = true, long)]
    pub delete: bool,
    /// Delete nothing if more than N entries would go, or more than P percent of over 100
    #[arg(hide_short_help = true, long, value_name = "N|P%", value_parser = delete_max, requires = "delete")]
    pub max_delete: Option<DeleteMax>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "With --verb check")]
pub struct PlannedCheck {
    /// Compare contents of all files
    #[arg(hide_short_help = true, long, conflicts_with = "quick")]
    pub hash: bool,
    /// Compare size and modification time alone
    #[arg(hide_short_help = true, long)]
    pub quick: bool,
    /// Do not tell what only DST has
    #[arg(hide_short_help = true, long)]
    pub no_extra: bool,
}

/// The verb that arguments mean, and an option that means nothing with it.
fn planned_verb(a: &PlanArgs) -> Result<PlanVerb, Usage> {
    let PlannedSync { checksum, delete, max_delete } = a.sync;
    let PlannedCheck { hash, quick, no_extra } = a.check;
    let typed = [
        (PlannedVerb::Sync, "--checksum", checksum),
        (PlannedVerb::Sync, "--delete", delete),
        (PlannedVerb::Check, "--hash", hash),
        (PlannedVerb::Check, "--quick", quick),
        (PlannedVerb::Check, "--no-extra", no_extra),
        (PlannedVerb::Copy, "--part-size", a.part_size.is_some()),
    ];
    if let Some((_, flag, _)) = typed.into_iter().find(|(verb, _, is_there)| *is_there && *verb != a.verb) {
        return Err(Usage::new(format!("{flag} means nothing with this --verb")));
    }
    Ok(match a.verb {
        PlannedVerb::Copy => PlanVerb::Copy,
        PlannedVerb::Sync => {
            let delete = delete.then_some(max_delete.unwrap_or(DeleteMax::DEFAULT));
            PlanVerb::Sync { by_content: checksum, delete }
        }
        PlannedVerb::Check => {
            let compare = match (hash, quick) {
                (true, _) => Compare::Hash,
                (false, true) => Compare::SizeAndTime,
                (false, false) => Compare::ContentInDoubt,
            };
            PlanVerb::Check { compare, extra: !no_extra }
        }
        PlannedVerb::Remove => PlanVerb::Remove,
    })
}

#[derive(Debug, Args)]
pub struct ShardArgs {
    /// The plan, as `bcmr plan` made it
    #[arg(value_name = "PLAN", value_hint = ValueHint::DirPath)]
    pub plan: PathBuf,
    /// Which shard, counted from 0
    #[arg(value_name = "K", required_unless_present_any = ["next", "all"])]
    pub shard: Option<u32>,
    /// Do the next shard that no other process is at
    #[arg(long, conflicts_with_all = ["shard", "all"])]
    pub next: bool,
    /// Do one shard after the other until none is left that no other process is at
    #[arg(long, conflicts_with = "shard")]
    pub all: bool,
    #[command(flatten)]
    pub jobs: JobsArg,
    /// Read back what landed before it counts; direct reads from the device
    #[arg(
        short = 'V',
        long,
        value_name = "FROM",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "cached"
    )]
    pub verify: Option<VerifyArg>,
    #[command(flatten)]
    pub remote: RemoteArgs,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct FinishArgs {
    /// The plan, as `bcmr plan` made it
    #[arg(value_name = "PLAN", value_hint = ValueHint::DirPath)]
    pub plan: PathBuf,
    /// Put the tree into the destination that is there, name by name
    #[arg(long)]
    pub merge: bool,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How a connection is made, beside a `-o` that means something else.
#[derive(Debug)]
pub struct PlanConnect(pub ConnectArgs);

impl FromArgMatches for PlanConnect {
    fn from_arg_matches(m: &ArgMatches) -> Result<PlanConnect, clap::Error> {
        ConnectArgs::from_arg_matches(m).map(PlanConnect)
    }

    fn update_from_arg_matches(&mut self, m: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(m)
    }
}

impl Args for PlanConnect {
    fn augment_args(command: clap::Command) -> clap::Command {
        ConnectArgs::augment_args(command).mut_arg("option", |option| option.short(None))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        PlanConnect::augment_args(command)
    }
}

/// A power of two of at least 4 MiB.
fn part_size(typed: &str) -> Result<u64, String> {
    match size(typed) {
        Ok(bytes) if bytes.is_power_of_two() && bytes >= 4 << 20 => Ok(bytes),
        _ => Err("a power of two of at least 4M is needed".into()),
    }
}

/// A path that means the same wherever a shard is started.
fn absolute(path: Option<&PathBuf>, from: &Path, is_here: IsHere<'_>) -> Result<PathBuf, Usage> {
    let path = path.map_or(Path::new(""), PathBuf::as_path);
    match parse(path, is_here)? {
        Operand::Here(path) if path.as_os_str().is_empty() => Err(Usage::new("a path is empty")),
        // A `.` names nothing, nor does a slash at the end; what `..` leads to, only the file system knows.
        Operand::Here(path) => Ok(from.join(path).components().collect()),
        Operand::There(_) => {
            let say = "a plan is written where every machine that does a shard sees it";
            Err(Usage::new(say).or("for a name with a colon put ./ before it"))
        }
    }
}

/// Where the scripts for Slurm go.
pub fn slurm(a: &PlanArgs, from: &Path, is_here: IsHere<'_>) -> Result<Option<PathBuf>, Usage> {
    a.slurm.as_ref().map(|dir| absolute(Some(dir), from, is_here)).transpose()
}

fn policy(jobs: usize, env: &Env) -> CopyPolicy {
    CopyPolicy { io: Io::AUTO, ..CopyPolicy::archive(jobs, env.me, env.umask) }
}

/// The end of a plan that is on another machine, if one is.
fn there(a: &PlanArgs, is_here: IsHere<'_>) -> Result<Option<FarEnd>, Usage> {
    let far = |typed: &Option<PathBuf>| -> Result<Option<Address>, Usage> {
        let Some(typed) = typed else { return Ok(None) };
        match operand(typed, &a.connect.0, is_here)? {
            Operand::There(address) => Ok(Some(address)),
            Operand::Here(_) => Ok(None),
        }
    };
    if a.verb == PlannedVerb::Remove && a.destination.is_some() {
        return Err(Usage::new("what is removed has no destination"));
    }
    let end = match (far(&a.source)?, far(&a.destination)?) {
        (Some(_), Some(_)) => {
            let usage = Usage::new("only one of SRC and DST may be on another machine");
            return Err(match a.verb {
                PlannedVerb::Copy | PlannedVerb::Sync => {
                    usage.or("bcmr copy and bcmr sync go between two, without a plan")
                }
                PlannedVerb::Check | PlannedVerb::Remove => usage,
            });
        }
        (Some(from), None) => Some(FarEnd::Source(from)),
        (None, to) => to.map(FarEnd::Destination),
    };
    if end.is_none() {
        no_connection(&a.connect.0, None)?;
    } else if a.part_size.is_some() {
        return Err(Usage::new("--part-size is about a copy whose ends every machine sees"));
    }
    Ok(end)
}

/// How to get to the end of a plan on the machine of `to`.
pub fn reached(
    connect: &ConnectArgs,
    remote: Option<&RemoteArgs>,
    to: &Address,
    config: &Config,
) -> Result<Reach, Usage> {
    let beside = remote.and_then(|r| {
        let direct = (r.direct == Some(PlaneArg::Direct)).then_some("--direct");
        direct.or(r.parallel.is_some_and(|n| n > 1).then_some("--parallel"))
    });
    if let Some(flag) = beside {
        return Err(Usage::new(format!("{flag} is not for shards: each has one connection"))
            .or("more shards at a time take more connections"));
    }
    if remote.is_some_and(|r| r.via_source) {
        return Err(Usage::new("--via-source is for copies between two other machines"));
    }
    reach(connect, remote, false, &to.host, config)
}

/// What `plan` arguments mean, without `--status`, typed in the directory `from`.
pub fn plan(
    a: &PlanArgs,
    from: &Path,
    is_here: IsHere<'_>,
    env: &Env,
) -> Result<(PlanRequest, Option<FarEnd>, PlanVerb, Show), Usage> {
    let verb = planned_verb(a)?;
    let there = there(a, is_here)?;
    let source = match &there {
        Some(FarEnd::Source(from)) => from.path.clone(),
        _ => absolute(a.source.as_ref(), from, is_here)?,
    };
    let destination = match (verb, &a.destination) {
        (PlanVerb::Remove, _) => source.clone(),
        (_, destination) => match &there {
            Some(FarEnd::Destination(to)) => to.path.clone(),
            _ => absolute(destination.as_ref(), from, is_here)?,
        },
    };
    let out = absolute(a.out.as_ref(), from, is_here)?;
    let shards = a.shard_size.map_or(Shards::Number(a.shards), Shards::OfBytes);
    // As `remove` does, which leaves other file systems alone.
    let one_file_system = a.one_file_system || verb == PlanVerb::Remove;
    let filter = filter(&a.filters)?;
    let policy = CopyPolicy { one_file_system, filter, ..policy(jobs(&a.jobs, env), env) };
    let part_bytes = a.part_size;
    let state = state(env);
    let request = PlanRequest { source, destination, there: None, out, shards, part_bytes, state, policy };
    Ok((request, there, verb, show(Verb::Plan, &a.output, false, Again::Same, env)))
}

/// What `shard` arguments mean.
pub fn shard(a: &ShardArgs, env: &Env) -> (ShardRequest, Show) {
    let which = match a.shard {
        Some(shard) => ShardChoice::Number(shard),
        None if a.all => ShardChoice::All,
        None => ShardChoice::Next,
    };
    let verify = verify(a.verify);
    let policy = CopyPolicy { verify, ..policy(jobs(&a.jobs, env), env) };
    let show = Show { verify, ..show(Verb::Shard, &a.output, false, Again::Same, env) };
    (ShardRequest { plan: a.plan.clone(), which, way: None, policy }, show)
}

/// What `finish` arguments mean.
pub fn finish(a: &FinishArgs, env: &Env) -> (FinishRequest, Show) {
    let (plan, merge, state, policy) = (a.plan.clone(), a.merge, state(env), policy(1, env));
    let request = FinishRequest { plan, merge, way: None, state, policy };
    (request, show(Verb::Finish, &a.output, false, Again::Same, env))
}
