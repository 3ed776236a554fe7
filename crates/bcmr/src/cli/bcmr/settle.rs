//! What files on this machine say is put into what was typed, before it means anything: globs of `--exclude-from`, times of
//! `--newer` and `--older`, and numbers of owners that were named.
//!
//! Must not read a file: that is given.

use super::Command;
use super::filters::{Files, unreadable};
use crate::usage::Usage;
use std::path::Path;

/// Puts it into the arguments of `command`.
pub fn settle(command: &mut Command, files: &Files<'_>) -> Result<(), Usage> {
    let accounts = |file: &str| {
        let file = Path::new(file);
        (files.read)(file).map_err(|e| unreadable("names of owners", file, &e))
    };
    match command {
        Command::Copy(a) => {
            a.owners.settle(&accounts)?;
            a.filters.settle(files)
        }
        Command::Sync(a) => {
            a.owners.settle(&accounts)?;
            a.filters.settle(files)
        }
        Command::Check(a) => a.filters.settle(files),
        Command::Move(a) => a.filters.settle(files),
        Command::Plan(a) => a.filters.settle(files),
        Command::Du(a) => a.bounds.settle(files),
        _ => Ok(()),
    }
}
