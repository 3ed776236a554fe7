//! What happens to names that are already there. Must not know what an entry is.

use super::columns::{Columns, Holds::Everywhere, Row, Scp::Loses};
use crate::usage::Usage;
use bcmr_engine::policy::Collide;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
#[command(next_help_heading = "Names that are already there")]
pub struct CopyCollideArgs {
    /// Replace a destination that --inplace cannot open; without --inplace every one is replaced without being opened
    #[arg(hide_short_help = true, short, long)]
    pub force: bool,
    /// Ask before replacing
    #[arg(short, long, overrides_with = "no_clobber")]
    pub interactive: bool,
    /// Leave names alone that are already there
    #[arg(long, overrides_with = "interactive")]
    pub no_clobber: bool,
    #[command(flatten)]
    pub update: UpdateArg,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

impl Columns for CopyCollideArgs {
    const ROWS: &'static [Row<CopyCollideArgs>] = &[
        Row("-f", Everywhere, Loses, |a| a.force),
        Row("-i", Everywhere, Loses, |a| a.interactive),
        Row("--no-clobber", Everywhere, Loses, |a| a.no_clobber),
        Row("--update", Everywhere, Loses, |a| a.update.update.is_some()),
        Row("-n", Everywhere, Loses, |a| a.dry_run),
    ];
}

// As in mv, and unlike cp, the last of -f, -i and --no-clobber counts.
#[derive(Debug, Args)]
#[command(next_help_heading = "Names that are already there")]
pub struct MoveCollideArgs {
    /// Replace without asking (the default)
    #[arg(short, long, overrides_with_all = ["interactive", "no_clobber"])]
    pub force: bool,
    /// Ask before replacing
    #[arg(short, long, overrides_with_all = ["force", "no_clobber"])]
    pub interactive: bool,
    /// Leave names alone that are already there
    #[arg(long, overrides_with_all = ["force", "interactive"])]
    pub no_clobber: bool,
    #[command(flatten)]
    pub update: UpdateArg,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct UpdateArg {
    /// Replace only what is older than the source (-u alone), or what differs in size or time
    #[arg(
        short,
        long,
        value_name = "WHICH",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "older"
    )]
    pub update: Option<Update>,
}

/// `--update`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Update {
    Older,
    Different,
    All,
    None,
}

/// What was typed of names that are already there, beside what the configuration has as defaults.
pub(super) struct TypedCollide {
    force: bool,
    interactive: bool,
    no_clobber: bool,
    update: Option<Update>,
}

impl TypedCollide {
    pub(super) fn new(force: bool, interactive: bool, no_clobber: bool, update: &UpdateArg) -> TypedCollide {
        TypedCollide { force, interactive, no_clobber, update: update.update }
    }

    /// Where something was, defaults that say otherwise do not hold.
    pub(super) fn holds(&self, interactive: &mut bool, no_clobber: &mut bool, update: &mut UpdateArg) {
        if !(self.force || self.interactive || self.no_clobber || self.update.is_some()) {
            return;
        }
        (*interactive, *no_clobber) = (self.interactive, self.no_clobber);
        // Only older ones may still be meant by -f, and nothing is by what leaves all alone.
        if self.interactive || update.update == Some(Update::None) {
            update.update = self.update;
        }
    }
}

pub(super) fn collide(no_clobber: bool, interactive: bool, update: &UpdateArg) -> Result<Collide, Usage> {
    match (no_clobber, interactive, update.update) {
        (true, _, _) | (_, _, Some(Update::None)) => Ok(Collide::Keep),
        (_, true, None | Some(Update::All)) => Ok(Collide::Ask),
        // cp would ask about the older ones only. To take either word alone would replace something the other
        // protects, so it is refused until the engine can do both.
        (_, true, Some(_)) => Err(Usage::new("-i and --update cannot be combined")),
        (_, _, None | Some(Update::All)) => Ok(Collide::Replace),
        (_, _, Some(Update::Older)) => Ok(Collide::IfOlder),
        (_, _, Some(Update::Different)) => Ok(Collide::IfDifferent),
    }
}
