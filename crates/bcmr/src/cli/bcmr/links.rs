//! Which symbolic links are followed.

use super::columns::{
    Columns,
    Holds::Everywhere,
    Row,
    Scp::{Keeps, Loses},
};
use super::metadata::{KeepArgs, KeepStep};
use super::order::{FromPlaces, InOrder, flag};
use bcmr_engine::policy::{Follow, FollowDestination};
use clap::{ArgMatches, Args};

#[derive(Debug, Args)]
#[command(next_help_heading = "Symbolic links in the source")]
pub struct LinkArgs {
    #[command(flatten)]
    pub last: InOrder<LastLink>,
    /// Copy links as links (the default with -r)
    #[arg(hide_short_help = true, short = 'P', long, overrides_with_all = ["dereference", "follow_operands"])]
    pub no_dereference: bool,
    /// Follow all links
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "follow_operands"])]
    pub dereference: bool,
    /// Follow those named as SRC (the default without -r)
    #[arg(hide_short_help = true, short = 'H', overrides_with_all = ["dereference", "no_dereference"])]
    pub follow_operands: bool,
}

/// Where the last of them was typed.
#[derive(Clone, Copy, Debug)]
pub struct LastLink(Option<usize>);

impl FromPlaces for LastLink {
    fn from_places(m: &ArgMatches) -> LastLink {
        LastLink(
            ["no_dereference", "dereference", "follow_operands"].iter().filter_map(|id| flag(m, id)).max(),
        )
    }
}

pub(super) fn follow(links: &LinkArgs, keep: &KeepArgs, recursive: bool) -> Follow {
    let LastLink(link) = links.last.0;
    let says_so =
        |step: &KeepStep| matches!(step, KeepStep::Archive { at } if link.is_none_or(|link| link < *at));
    if keep.steps.0.iter().any(says_so) || links.no_dereference {
        Follow::Never
    } else if links.dereference {
        Follow::Always
    } else if links.follow_operands || !recursive {
        Follow::Operands
    } else {
        Follow::Never
    }
}

pub(super) fn follow_destination(asked: bool) -> FollowDestination {
    if asked { FollowDestination::Always } else { FollowDestination::UnlessReceived }
}

// Whether -H is lost depends on -r as well; `copy` has its row.
impl Columns for LinkArgs {
    const ROWS: &'static [Row<LinkArgs>] = &[
        Row("-P", Everywhere, Loses, |a| a.no_dereference),
        Row("-L", Everywhere, Keeps, |a| a.dereference),
    ];
}
