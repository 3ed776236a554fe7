//! `--fake-super`: which side of a copy has what only root can set in an attribute. Must not know what that looks like.

use super::columns::{Columns, Holds::Everywhere, Row, Scp::Loses};
use crate::usage::Usage;
use bcmr_engine::policy::{CopyPolicy, Follow, Preserve, Privileged};
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
#[command(next_help_heading = "What only root can set")]
pub struct FakeSuperArgs {
    /// Owner, mode and kind are held in an attribute of ordinary files, as by rsync: at DST, where SIDE is not said
    ///
    /// With --fake-super (dst), who is not root loses nothing: what only root could set of a file at DST is written into an
    /// attribute of it (user.rsync.%stat), devices, FIFOs, sockets and links are files that hold what they are. With src, those
    /// attributes are taken for what the files of SRC are.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "SIDE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "dst"
    )]
    pub fake_super: Option<Side>,
}

impl Columns for FakeSuperArgs {
    const ROWS: &'static [Row<FakeSuperArgs>] =
        &[Row("--fake-super", Everywhere, Loses, |a| a.fake_super.is_some())];
}

/// Whose files have the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// DST gets them
    Dst,
    /// SRC has them
    Src,
    /// SRC has them and DST gets them
    Both,
}

/// What is kept, and where it is.
pub(super) fn held(a: &FakeSuperArgs, kept: Preserve) -> Preserve {
    let (at_source, at_dest) = match a.fake_super {
        None => (Privileged::Real, Privileged::Real),
        Some(Side::Dst) => (Privileged::Real, Privileged::Held),
        Some(Side::Src) => (Privileged::Held, Privileged::Real),
        Some(Side::Both) => (Privileged::Held, Privileged::Held),
    };
    Preserve { at_source, at_dest, ..kept }
}

/// Refuses what would not hold with it.
pub(super) fn guard(policy: &CopyPolicy) -> Result<(), Usage> {
    let kept = &policy.preserve;
    if !kept.at_source.is_held() && !kept.at_dest.is_held() {
        return Ok(());
    }
    if !kept.mode || !kept.owner {
        let said = "--fake-super is about modes and owners, and they are not kept";
        return Err(Usage::new(said).or("--archive keeps all, -p modes, owners and times"));
    }
    if kept.at_source.is_held() && policy.follow == Follow::Always {
        return Err(Usage::new("-L cannot be combined with --fake-super=src: its links are files"));
    }
    Ok(())
}
