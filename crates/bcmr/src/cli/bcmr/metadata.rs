//! What of the metadata is kept. Must not know how it is kept.

use super::columns::{Columns, Holds::Everywhere, Row, Scp::Loses};
use super::order::{FromPlaces, InOrder, flag, values};
use bcmr_engine::policy::{Preserve, Strictness};
use clap::{ArgMatches, Args, ValueEnum};

#[derive(Debug, Args)]
#[command(next_help_heading = "What is kept")]
pub struct KeepArgs {
    #[command(flatten)]
    pub steps: InOrder<Vec<KeepStep>>,
    /// Keep mode with ACLs, owner and times
    #[arg(short = 'p')]
    pub plain: bool,
    /// Keep what LIST names; alone, the same as -p
    #[arg(
        hide_short_help = true,
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        num_args = 0..=1,
        require_equals = true,
        default_missing_values = ["mode", "ownership", "timestamps"]
    )]
    pub preserve: Vec<Attr>,
    /// Do not keep what LIST names
    #[arg(
        hide_short_help = true,
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        require_equals = true
    )]
    pub no_preserve: Vec<Attr>,
    /// Recursive, with everything kept, links as links, special files made anew; what cannot be kept is an error
    #[arg(long)]
    pub archive: bool,
}

impl Columns for KeepArgs {
    const ROWS: &'static [Row<KeepArgs>] = &[
        Row("--archive", Everywhere, Loses, |a| a.archive),
        Row("-p", Everywhere, Loses, |a| a.plain),
        Row("--preserve", Everywhere, Loses, |a| !a.preserve.is_empty()),
        Row("--no-preserve", Everywhere, Loses, |a| !a.no_preserve.is_empty()),
    ];
}

/// One step in saying what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepStep {
    Plain,
    Keep(Attr),
    Drop(Attr),
    /// Holds its place: `-P`, `-L` and `-H` count if they came after it.
    Archive {
        at: usize,
    },
}

/// What can be kept. The first name is cp's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attr {
    Mode,
    #[value(alias = "owner")]
    Ownership,
    #[value(alias = "times")]
    Timestamps,
    Links,
    Xattr,
    Acl,
    All,
}

/// The last word counts.
impl FromPlaces for Vec<KeepStep> {
    fn from_places(m: &ArgMatches) -> Vec<KeepStep> {
        let mut steps: Vec<(usize, KeepStep)> =
            values(m, "preserve").map(|(at, attr): (usize, Attr)| (at, KeepStep::Keep(attr))).collect();
        steps.extend(values(m, "no_preserve").map(|(at, attr): (usize, Attr)| (at, KeepStep::Drop(attr))));
        steps.extend(flag(m, "plain").map(|at| (at, KeepStep::Plain)));
        steps.extend(flag(m, "archive").map(|at| (at, KeepStep::Archive { at })));
        steps.sort_by_key(|s| s.0);
        steps.into_iter().map(|s| s.1).collect()
    }
}

pub(super) fn preserve(steps: &[KeepStep]) -> Preserve {
    let mut kept = Preserve::NONE;
    for step in steps {
        match step {
            KeepStep::Plain => {
                set(&mut kept, Attr::Mode, true);
                set(&mut kept, Attr::Ownership, true);
                set(&mut kept, Attr::Timestamps, true);
            }
            KeepStep::Keep(attr) => set(&mut kept, *attr, true),
            KeepStep::Drop(attr) => set(&mut kept, *attr, false),
            KeepStep::Archive { .. } => kept = Preserve::ALL,
        }
    }
    kept
}

fn set(kept: &mut Preserve, attr: Attr, to: bool) {
    match attr {
        // An ACL is the mode of those whom the nine bits cannot name; cp treats them as one, and so do we.
        Attr::Mode => (kept.mode, kept.acl) = (to, to),
        Attr::Ownership => kept.owner = to,
        Attr::Timestamps => kept.times = to,
        Attr::Links => kept.links = to,
        Attr::Xattr => kept.xattr = to,
        Attr::Acl => kept.acl = to,
        Attr::All => *kept = if to { Preserve::ALL } else { Preserve::NONE },
    }
}

pub(super) fn strictness(keep: &KeepArgs) -> Strictness {
    if keep.archive { Strictness::Archive } else { Strictness::LikeCp }
}
