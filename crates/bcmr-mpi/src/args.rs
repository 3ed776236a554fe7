//! What may be typed, and what it means. Must not know how it is carried out.

use crate::size::size;
use bcmr_engine::api::Verify;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};

/// Copies by all ranks of an MPI job: mpirun -n 8 bcmr-mpi copy SRC DST
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
    /// Not yet: a plan is a copy
    Sync(Rest),
    /// Not yet: a plan is a copy
    Check(Rest),
    /// Not yet: a plan is a copy
    Remove(Rest),
}

#[derive(Debug, Args)]
pub struct Rest {
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub rest: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CopyArgs {
    /// The directory to copy; all machines find it under this path
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// What it becomes
    #[arg(value_name = "DST")]
    pub destination: PathBuf,
    /// Where the plan is, which stays with its receipt and manifest [default: DST.bcmr-plan, which goes in the end]
    #[arg(long, value_name = "PLAN")]
    pub plan: Option<PathBuf>,
    /// Cut it into N shards that cost alike [default: 32 for each rank]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub shards: Option<u32>,
    /// Cut files of at least twice SIZE into parts of SIZE, a power of two of at least 4M [default: what is fair, 64M to 1G]
    #[arg(long, value_name = "SIZE", value_parser = part_size)]
    pub part_size: Option<u64>,
    /// Put the tree into a DST that is there, name by name
    #[arg(long)]
    pub merge: bool,
    /// Stay on the file system of SRC
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Work on N things at once in each rank
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: u16,
    /// Read back what landed before it counts; direct reads from the device
    #[arg(short = 'V', long, value_name = "FROM", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "cached")]
    pub verify: Option<VerifyArg>,
    /// Say each item that a rank has done with
    #[arg(short, long)]
    pub verbose: bool,
    /// Say nothing but what went wrong
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum VerifyArg {
    Cached,
    Direct,
}

impl CopyArgs {
    /// What is read back.
    pub fn verify(&self) -> Verify {
        match self.verify {
            None => Verify::Off,
            Some(VerifyArg::Cached) => Verify::Cached,
            Some(VerifyArg::Direct) => Verify::Direct,
        }
    }

    /// Where the plan is: the same for the same command.
    pub fn plan(&self, destination: &Path) -> PathBuf {
        self.plan.clone().unwrap_or_else(|| {
            // A slash at the end is no part of the name.
            let mut name = destination.components().as_path().as_os_str().to_owned();
            name.push(".bcmr-plan");
            PathBuf::from(name)
        })
    }
}

fn part_size(typed: &str) -> Result<u64, String> {
    match size(typed) {
        Ok(bytes) if bytes.is_power_of_two() && bytes >= 4 << 20 => Ok(bytes),
        _ => Err("a power of two of at least 4M is needed".into()),
    }
}
