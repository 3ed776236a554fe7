//! `ctl`: what may be typed. Must not know how a run is found or told.

use super::size::rate;
use crate::usage::Usage;
use bcmr_engine::control::Command;
use clap::{Args, ValueEnum};

pub(super) const EXAMPLES: &str = "Examples:
  bcmr ctl                               what runs with other machines are at
  bcmr ctl limit 500K                    the one run goes at 500 KiB a second from now on
  bcmr ctl pause --pid 4711              that run sends and receives nothing until it is resumed";

#[derive(Debug, Args)]
pub struct CtlArgs {
    /// What the run is told
    #[arg(value_name = "WHAT", value_enum, default_value = "status")]
    pub what: What,
    /// With limit: bytes a second (1M is 1 MiB), or none
    #[arg(value_name = "RATE", value_parser = rate_or_none, required_if_eq("what", "limit"))]
    pub rate: Option<Rate>,
    /// The process, where there are several
    #[arg(long, value_name = "N")]
    pub pid: Option<u32>,
    /// Say it as JSON, an object a line (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// A rate as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(Option<u64>);

/// What a run is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    Status,
    Pause,
    Resume,
    Limit,
}

fn rate_or_none(typed: &str) -> Result<Rate, String> {
    if typed == "none" { Ok(Rate(None)) } else { rate(typed).map(|rate| Rate(Some(rate))) }
}

/// What `ctl` arguments mean.
pub fn request(a: &CtlArgs) -> Result<Command, Usage> {
    match (a.what, a.rate) {
        (What::Limit, rate) => Ok(Command::Limit(rate.and_then(|rate| rate.0))),
        (_, Some(_)) => Err(Usage::new("only limit takes a rate")),
        (What::Status, None) => Ok(Command::Status),
        (What::Pause, None) => Ok(Command::Pause),
        (What::Resume, None) => Ok(Command::Resume),
    }
}
