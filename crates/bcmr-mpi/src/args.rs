//! What may be typed, and what it means. Must not know how it is carried out.

use crate::size::size;
use bcmr_engine::api::{Compare, DeleteMax, PlanVerb, Verify};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};

/// Copies, syncs, checks and removes by all ranks of an MPI job: mpirun -n 8 bcmr-mpi copy SRC DST
#[derive(Debug, Parser)]
#[command(name = "bcmr-mpi", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Copy a directory with everything in it; each rank takes the next part of the work when it has done with one
    ///
    /// A plan of the copy is written beside DST (or to --plan), so a job that was stopped goes on when the same command is
    /// given again. DST appears in the end, whole. The plan goes when the tree is published, unless --plan named it.
    Copy(CopyArgs),
    /// Bring what differs into DST, which may be there
    Sync(SyncArgs),
    /// Compare a directory with DST, and tell every difference
    Check(CheckArgs),
    /// Remove a directory with everything in it
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
pub struct PairArgs {
    /// The directory; all machines find it under this path
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// What it becomes, or is compared with
    #[arg(value_name = "DST")]
    pub destination: PathBuf,
    /// Stay on the file system of SRC
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
}

#[derive(Debug, Args)]
pub struct RanksArgs {
    /// Where the plan is, which stays with what came of it [default: DST.bcmr-plan, which goes in the end]
    #[arg(long, value_name = "PLAN")]
    pub plan: Option<PathBuf>,
    /// Cut it into N shards that cost alike [default: 32 for each rank]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub shards: Option<u32>,
    /// Work on N things at once in each rank
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: u16,
    /// Say each item that a rank has done with
    #[arg(short, long)]
    pub verbose: bool,
    /// Say nothing but what went wrong
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
}

#[derive(Debug, Args)]
pub struct CopyArgs {
    #[command(flatten)]
    pub pair: PairArgs,
    #[command(flatten)]
    pub ranks: RanksArgs,
    /// Cut files of at least twice SIZE into parts of SIZE, a power of two of at least 4M [default: what is fair, 64M to 1G]
    #[arg(long, value_name = "SIZE", value_parser = part_size)]
    pub part_size: Option<u64>,
    /// Put the tree into a DST that is there, name by name
    #[arg(long)]
    pub merge: bool,
    /// Read back what landed before it counts; direct reads from the device
    #[arg(short = 'V', long, value_name = "FROM", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "cached")]
    pub verify: Option<VerifyArg>,
}

#[derive(Debug, Args)]
pub struct SyncArgs {
    #[command(flatten)]
    pub pair: PairArgs,
    #[command(flatten)]
    pub ranks: RanksArgs,
    /// Compare contents, and not size and modification time
    #[arg(short, long)]
    pub checksum: bool,
    /// Delete what SRC does not have in the end, unless that is more than a quarter of what DST has
    #[arg(long)]
    pub delete: bool,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub pair: PairArgs,
    #[command(flatten)]
    pub ranks: RanksArgs,
    /// Compare contents of all files
    #[arg(long, conflicts_with = "quick")]
    pub hash: bool,
    /// Compare size and modification time alone
    #[arg(long)]
    pub quick: bool,
    /// Do not tell what only DST has
    #[arg(long)]
    pub no_extra: bool,
}

#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// The directory
    #[arg(value_name = "DIR")]
    pub source: PathBuf,
    #[command(flatten)]
    pub ranks: RanksArgs,
}

/// What was typed, whatever the verb.
#[derive(Debug)]
pub struct Typed {
    pub verb: PlanVerb,
    pub source: PathBuf,
    pub destination: PathBuf,
    pub one_file_system: bool,
    pub part_size: Option<u64>,
    pub merge: bool,
    pub verify: Verify,
    pub ranks: RanksArgs,
}

impl Typed {
    /// What a verb's arguments mean.
    pub fn of(verb: Verb) -> Typed {
        let plain = |verb: PlanVerb, pair: PairArgs, ranks: RanksArgs| Typed {
            verb,
            source: pair.source,
            destination: pair.destination,
            one_file_system: pair.one_file_system,
            part_size: None,
            merge: false,
            verify: Verify::Off,
            ranks,
        };
        match verb {
            Verb::Copy(a) => Typed {
                part_size: a.part_size,
                merge: a.merge,
                verify: verify(a.verify),
                ..plain(PlanVerb::Copy, a.pair, a.ranks)
            },
            Verb::Sync(a) => {
                let delete = a.delete.then_some(DeleteMax::DEFAULT);
                plain(PlanVerb::Sync { by_content: a.checksum, delete }, a.pair, a.ranks)
            }
            Verb::Check(a) => {
                let compare = match (a.hash, a.quick) {
                    (true, _) => Compare::Hash,
                    (false, true) => Compare::SizeAndTime,
                    (false, false) => Compare::ContentInDoubt,
                };
                plain(PlanVerb::Check { compare, extra: !a.no_extra }, a.pair, a.ranks)
            }
            Verb::Remove(a) => {
                let pair =
                    PairArgs { destination: a.source.clone(), source: a.source, one_file_system: true };
                plain(PlanVerb::Remove, pair, a.ranks)
            }
        }
    }

    /// Where the plan is: the same for the same command.
    pub fn plan(&self, destination: &Path) -> PathBuf {
        self.ranks.plan.clone().unwrap_or_else(|| {
            // A slash at the end is no part of the name.
            let mut name = destination.components().as_path().as_os_str().to_owned();
            name.push(".bcmr-plan");
            PathBuf::from(name)
        })
    }
}

/// What is read back.
fn verify(typed: Option<VerifyArg>) -> Verify {
    match typed {
        None => Verify::Off,
        Some(VerifyArg::Cached) => Verify::Cached,
        Some(VerifyArg::Direct) => Verify::Direct,
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum VerifyArg {
    Cached,
    Direct,
}

fn part_size(typed: &str) -> Result<u64, String> {
    match size(typed) {
        Ok(bytes) if bytes.is_power_of_two() && bytes >= 4 << 20 => Ok(bytes),
        _ => Err("a power of two of at least 4M is needed".into()),
    }
}
