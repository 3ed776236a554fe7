//! Which symbolic links are followed.

use super::columns::{
    Columns,
    Holds::Everywhere,
    Row,
    Scp::{Keeps, Loses},
};
use super::metadata::{KeepArgs, KeepStep};
use bcmr_engine::policy::{Follow, FollowDestination};
use clap::Args;

#[derive(Debug, Args)]
#[command(next_help_heading = "Symbolic links in the source")]
pub struct LinkArgs {
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

pub(super) fn follow(links: &LinkArgs, keep: &KeepArgs, recursive: bool) -> Follow {
    let archive_last = keep.steps.contains(&KeepStep::Archive { links_said_later: false });
    if archive_last || links.no_dereference {
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
