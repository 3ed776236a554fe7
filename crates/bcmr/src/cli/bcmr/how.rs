//! Threads, verification and durability of a copy or a move.

use super::columns::{
    Columns,
    Holds::Everywhere,
    Row,
    Scp::{Keeps, Loses},
};
use super::jobs::JobsArg;
use bcmr_engine::policy::{Durability, Verify};
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(next_help_heading = "How")]
pub struct HowArgs {
    #[command(flatten)]
    pub jobs: JobsArg,
    /// Read back what landed before its name appears; direct reads from the device
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
    /// Exit only when everything is on stable storage
    #[arg(long)]
    pub sync: bool,
    /// Write a page on the run into FILE: what was done, the rate over time, sizes and types, slowest files, errors
    ///
    /// FILE may be new, empty or an older page; any other file stays, and nothing is done.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with = "dry_run"
    )]
    pub report: Option<PathBuf>,
}

impl Columns for HowArgs {
    const ROWS: &'static [Row<HowArgs>] = &[
        Row("-V", Everywhere, Loses, |a| a.verify.is_some()),
        Row("--sync", Everywhere, Loses, |a| a.sync),
        Row("--report", Everywhere, Loses, |a| a.report.is_some()),
        Row("--jobs", Everywhere, Keeps, |a| a.jobs.jobs.is_some()),
    ];
}

impl HowArgs {
    /// What is written on this machine.
    pub(super) fn about_here(&self) -> Option<&'static str> {
        self.report.is_some().then_some("--report")
    }
}

/// `--verify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VerifyArg {
    Cached,
    Direct,
}

pub(super) fn verify(arg: Option<VerifyArg>) -> Verify {
    match arg {
        None => Verify::Off,
        Some(VerifyArg::Cached) => Verify::Cached,
        Some(VerifyArg::Direct) => Verify::Direct,
    }
}

pub(super) fn durability(how: &HowArgs) -> Durability {
    if how.sync { Durability::Medium } else { Durability::Cache }
}
