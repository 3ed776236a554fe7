//! `undo`: what may be typed, and the request that it means. Must not know how a request is carried out.

use super::connection::{ConnectArgs, no_connection};
use super::operands::{IsHere, NamedPath, operand};
use super::output::{OutputArgs, show};
use crate::address::Operand;
use crate::env::Env;
use crate::show::{Again, Show, Verb};
use crate::usage::Usage;
use bcmr_engine::policy::UndoRequest;
use bcmr_engine::remote::Address;
use clap::{Args, ValueHint};
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "Examples:
  bcmr sync --delete --backup-dir old src dst    keeps what it replaces and deletes, and says where its receipt is
  bcmr undo old/2026-01-31T120000Z/receipt       puts that back, and takes away what was new
  bcmr undo host:old/2026-01-31T120000Z/receipt  the same on another machine";

#[derive(Debug, Args)]
pub struct UndoArgs {
    /// What a sync with --backup-dir or --trash has told in the end
    #[arg(value_name = "RECEIPT", value_parser = NamedPath, value_hint = ValueHint::FilePath)]
    pub receipt: PathBuf,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The receipt on another machine, where it is on one.
pub fn there(a: &UndoArgs, is_here: IsHere<'_>) -> Result<Option<Address>, Usage> {
    match operand(&a.receipt, &a.connect, is_here)? {
        Operand::There(address) => Ok(Some(address)),
        Operand::Here(_) => no_connection(&a.connect, None).map(|()| None),
    }
}

/// What `undo` arguments mean.
pub fn request(a: &UndoArgs, env: &Env) -> (UndoRequest, Show) {
    let request = UndoRequest { receipt: a.receipt.clone(), dry_run: a.dry_run };
    (request, show(Verb::Undo, &a.output, a.dry_run, Again::Same, env))
}
