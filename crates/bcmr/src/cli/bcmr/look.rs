//! `ls`, `stat`, `du`, `hash`, `mkdir`, `doctor` and `deploy`: what may be typed. What it means needs no more than the operands.

use super::connection::ConnectArgs;
use super::filters::BoundsArgs;
use super::operands::NamedPath;
use clap::{ArgAction, Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct LookArgs {
    /// A path, host:path, or ssh://host/path
    #[arg(value_name = "PATH", required = true, value_parser = NamedPath, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Say on standard error what was taken for a name on this machine although it looks like an address
    #[arg(short, long)]
    pub verbose: bool,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LsArgs {
    /// Tell mode, owner, size and time of each name too
    #[arg(short, long)]
    pub long: bool,
    /// With -l: sizes in units
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Debug, Args)]
pub struct StatArgs {
    /// Tell what a symbolic link leads to
    #[arg(short = 'L', long)]
    pub dereference: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Debug, Args)]
pub struct DuArgs {
    #[command(flatten)]
    pub bounds: BoundsArgs,
    /// Sizes in units, as they always are
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Debug, Args)]
pub struct MkdirArgs {
    /// Make directories above it that are missing, and leave one alone that is there
    #[arg(short, long)]
    pub parents: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Debug, Args)]
pub struct HostArgs {
    /// The host: `[user@]host`, or `ssh://[user@]host[:port]`
    #[arg(value_name = "HOST", value_hint = ValueHint::Hostname)]
    pub host: OsString,
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long)]
    pub json: bool,
}
