//! `sessions`: what may be typed, and how it is shown.

use super::operands::NamedPath;
use super::output::{OutputArgs, show};
use crate::env::Env;
use crate::show::{Again, Show, Verb};
use crate::usage::Usage;
use clap::{Args, ValueHint};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct SessionsArgs {
    /// Where to look, and below it
    #[arg(value_name = "DIR", default_value = ".", value_parser = NamedPath, value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Remove what is unfinished; what a running copy is at stays
    #[arg(long)]
    pub clean: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What `sessions` arguments mean.
pub fn shown(a: &SessionsArgs, env: &Env) -> Result<Show, Usage> {
    Ok(Show { now: env.now, ..show(Verb::Sessions, &a.output, false, Again::Same, env) })
}
