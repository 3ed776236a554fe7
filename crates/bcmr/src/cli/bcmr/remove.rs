//! `remove`: what may be typed, and the request that it means. Must not know how a request is carried out.

use super::connection::{ConnectArgs, no_connection};
use super::jobs::{JobsArg, jobs};
use super::operands::{IsHere, NamedPath, operand};
use super::output::{OutputArgs, show};
use crate::address::Operand;
use crate::env::Env;
use crate::show::{Again, Show, Verb};
use crate::usage::Usage;
use bcmr_engine::policy::RemoveRequest;
use bcmr_engine::remote::Address;
use clap::{Args, ValueHint};
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "Examples:
  bcmr remove -r build                   a directory with what is in it
  bcmr remove -rn build                  only say what would be removed
  bcmr remove -r host:build              on another machine";

#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// What to remove
    #[arg(value_name = "PATH", required_unless_present = "force", value_parser = NamedPath, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Remove directories with what is in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Remove empty directories too
    #[arg(short, long)]
    pub dir: bool,
    /// What is not there is no error; never ask
    #[arg(short, long, overrides_with = "interactive")]
    pub force: bool,
    /// Ask before every removal
    #[arg(short, long, overrides_with = "force")]
    pub interactive: bool,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Leave other file systems below a PATH alone (on unless --cross-file-systems is given)
    #[arg(long, overrides_with = "cross_file_systems")]
    pub one_file_system: bool,
    /// Enter other file systems too
    #[arg(long, alias = "no-one-file-system", overrides_with = "one_file_system")]
    pub cross_file_systems: bool,
    #[command(flatten)]
    pub jobs: JobsArg,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Where what is to be removed is.
pub enum Named {
    Here,
    There(Vec<Address>),
}

/// Tells which machine is which.
pub fn named(a: &RemoveArgs, is_here: IsHere<'_>) -> Result<Named, Usage> {
    let mut there = Vec::new();
    for path in &a.paths {
        if let Operand::There(address) = operand(path, &a.connect, is_here)? {
            there.push(address);
        }
    }
    let flag = [(a.interactive, "-i"), (a.dry_run, "-n")].into_iter().find(|(is_asked, _)| *is_asked);
    match (there.len(), flag) {
        (0, _) => no_connection(&a.connect, None).map(|()| Named::Here),
        (n, _) if n < a.paths.len() => Err(Usage::new("some of it is on this machine and some is not")
            .or("remove it with a command for each machine; a file with a colon in its name is ./NAME")),
        (_, Some((_, flag))) => {
            Err(Usage::new(format!("{flag} is about removals on this machine"))
                .or("bcmr ls tells what is there"))
        }
        _ => Ok(Named::There(there)),
    }
}

/// What `remove` arguments mean.
pub fn request(a: &RemoveArgs, env: &Env) -> Result<(RemoveRequest, Show), Usage> {
    let request = RemoveRequest {
        paths: a.paths.clone(),
        recursive: a.recursive,
        empty_dirs: a.dir,
        force: a.force,
        ask: a.interactive,
        one_file_system: !a.cross_file_systems,
        dry_run: a.dry_run,
        jobs: jobs(&a.jobs, env),
    };
    let one_worker = request.jobs == 1;
    Ok((request, Show { one_worker, ..show(Verb::Remove, &a.output, a.dry_run, Again::Same, env) }))
}
