//! Going on with an interrupted copy.

use super::columns::{
    Columns,
    Holds::Everywhere,
    Row,
    Scp::{Keeps, Loses},
};
use super::size::checkpoint_size;
use bcmr_engine::policy::Resume;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
#[command(next_help_heading = "Going on with an interrupted copy")]
pub struct ResumeArgs {
    /// Go on where the same command stopped; what was there is proved before it gets its name
    #[arg(short = 'C', long, conflicts_with_all = ["strict", "append"])]
    pub resume: bool,
    /// The same, but hash source and unfinished file again before anything is added
    #[arg(hide_short_help = true, short = 's', long, conflicts_with = "append")]
    pub strict: bool,
    /// Add what is missing at the end of the file that is there, once what it has is proved to be how the source begins;
    /// size believes that by its length
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
    /// With -C: only the last recorded block is checked, nothing is hashed; trusts that the rest was not touched.
    /// With another machine it also skips hashing of what is sent
    #[arg(hide_short_help = true, long, conflicts_with_all = ["verify", "strict", "append"])]
    pub fast: bool,
    /// Bytes between two checkpoints, a multiple of 4 MiB (64M is 64 MiB); smaller files have none
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = checkpoint_size, default_value = "64M")]
    pub checkpoint_size: u64,
}

impl Columns for ResumeArgs {
    const ROWS: &'static [Row<ResumeArgs>] = &[
        Row("-C", Everywhere, Loses, |a| a.resume),
        Row("-s", Everywhere, Loses, |a| a.strict),
        Row("-a", Everywhere, Loses, |a| a.append.is_some()),
        Row("--fast", Everywhere, Keeps, |a| a.fast),
        Row("--checkpoint-size", Everywhere, Keeps, |_| false),
    ];
}

/// `--append`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AppendArg {
    Hash,
    Size,
}

pub(super) fn resume(resume: bool, fast: bool, strict: bool, append: Option<AppendArg>) -> Resume {
    match (resume, fast, strict, append) {
        (true, true, ..) => Resume::Fast,
        (true, false, ..) => Resume::Proved,
        (_, _, true, _) => Resume::Strict,
        (_, _, _, Some(AppendArg::Hash)) => Resume::Append,
        (_, _, _, Some(AppendArg::Size)) => Resume::AppendSize,
        _ => Resume::Off,
    }
}
