//! Which entries take part. Must not know how a pattern is matched.

use super::order::values;
use bcmr_engine::policy::{FilterSpec, Rule};
use clap::{ArgMatches, Args};

#[derive(Debug, Args)]
#[command(next_help_heading = "What takes part")]
pub struct FilterArgs {
    /// Leave out what matches GLOB (gitignore syntax); of all -e and --include, the last that matches decides
    #[arg(short, long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Take what matches GLOB although an earlier --exclude leaves it out
    #[arg(long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// Leave out what matches the regular expression RE, against the path below its SRC
    #[arg(long, value_name = "RE")]
    pub exclude_regex: Vec<String>,
    /// Leave out what the .gitignore files in the source leave out
    #[arg(long)]
    pub gitignore: bool,
    /// `--exclude` and `--include` in the order they were typed.
    #[arg(skip)]
    pub rules: Vec<RuleArg>,
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
    }
}
