//! Which entries take part. Must not know how a pattern is matched.

use super::columns::{Columns, Holds::Everywhere, Row, Scp::Loses};
use super::order::values;
use super::size::size;
use bcmr_engine::policy::{FilterSpec, Rule};
use clap::{ArgMatches, Args};

#[derive(Debug, Args)]
#[command(next_help_heading = "What takes part")]
pub struct FilterArgs {
    /// Leave out what matches GLOB (gitignore syntax); of all -e and --include, the last that matches decides
    #[arg(short, long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Take what matches GLOB although an earlier --exclude leaves it out
    #[arg(hide_short_help = true, long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// Leave out what matches the regular expression RE, against the path below its SRC
    #[arg(hide_short_help = true, long, value_name = "RE")]
    pub exclude_regex: Vec<String>,
    /// Leave out what the .gitignore files in the source leave out
    #[arg(hide_short_help = true, long)]
    pub gitignore: bool,
    #[command(flatten)]
    pub sizes: SizeArgs,
    /// `--exclude` and `--include` in the order they were typed.
    #[arg(skip)]
    pub rules: Vec<RuleArg>,
}

impl Columns for FilterArgs {
    const ROWS: &'static [Row<FilterArgs>] = &[
        Row("--exclude", Everywhere, Loses, |a| !a.exclude.is_empty()),
        Row("--include", Everywhere, Loses, |a| !a.include.is_empty()),
        Row("--exclude-regex", Everywhere, Loses, |a| !a.exclude_regex.is_empty()),
        Row("--gitignore", Everywhere, Loses, |a| a.gitignore),
        Row("--max-size", Everywhere, Loses, |a| a.sizes.max_size.is_some()),
        Row("--min-size", Everywhere, Loses, |a| a.sizes.min_size.is_some()),
    ];
}

#[derive(Debug, Args)]
#[command(next_help_heading = "What takes part")]
pub struct SizeArgs {
    /// Leave out files of more than SIZE bytes (1M is 1 MiB); directories and links stay
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = size)]
    pub max_size: Option<u64>,
    /// Leave out files of fewer than SIZE bytes
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = size)]
    pub min_size: Option<u64>,
}

impl SizeArgs {
    /// A filter by size alone.
    pub fn filter(&self) -> FilterSpec {
        FilterSpec { max_bytes: self.max_size, min_bytes: self.min_size, ..FilterSpec::everything() }
    }
}

/// One glob, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleArg {
    Exclude(String),
    Include(String),
}

impl FilterArgs {
    /// Puts globs into the order they were typed.
    pub(super) fn order(&mut self, m: &ArgMatches) {
        let excludes = values(m, "exclude").map(|(at, glob): (usize, String)| (at, RuleArg::Exclude(glob)));
        let includes = values(m, "include").map(|(at, glob): (usize, String)| (at, RuleArg::Include(glob)));
        let mut rules: Vec<_> = excludes.chain(includes).collect();
        rules.sort_by_key(|r| r.0);
        self.rules = rules.into_iter().map(|r| r.1).collect();
    }
}

pub(super) fn filter(a: &FilterArgs) -> FilterSpec {
    let rule = |r: &RuleArg| match r {
        RuleArg::Exclude(glob) => Rule::Exclude(glob.clone()),
        RuleArg::Include(glob) => Rule::Include(glob.clone()),
    };
    FilterSpec {
        rules: a.rules.iter().map(rule).collect(),
        regexes: a.exclude_regex.clone(),
        gitignore: a.gitignore,
        ..a.sizes.filter()
    }
}
