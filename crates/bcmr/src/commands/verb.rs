//! What every verb needs before and after its run: names looked for, files of names opened, usage errors told.
//!
//! Must not know which verb it is for, but by name.

use crate::cli::bcmr::Command;
use crate::cli::bcmr::filters::Files;
use crate::cli::bcmr::operands::{NamesFrom, mistakable};
use crate::cli::bcmr::settle;
use crate::env;
use crate::input::Input;
use crate::say;
use crate::show::Verb;
use crate::ui::{Measure, writer};
use crate::usage::Usage;
use crate::voice::BCMR;
use bcmr_engine::event::{Event, Watch};
use bcmr_engine::policy::{CopyPolicy, NameList};
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Whether something is there under a name. Where that cannot be seen, nothing there could be opened either.
pub fn is_here(path: &Path) -> bool {
    bcmr_engine::verbs::look::stat(path, false).is_ok()
}

/// Puts what files on this machine say into what was typed.
pub fn settle(command: &mut Command, now: i64) -> Result<(), Usage> {
    settle::settle(command, &Files { read: &read, modified: &modified, zone: &env::zone, now })
}

/// Tells which names were taken for ones of this machine although they look like addresses.
pub fn tell_mistakable<'p>(paths: impl IntoIterator<Item = &'p PathBuf>, watch: Watch<'_>) {
    for path in mistakable(paths, &is_here) {
        watch.front.event(Event::Note(say::is_here(path).into()));
    }
}

/// A file of globs is read as far as this (bytes): more than any request may have.
const GLOBS_BYTES_MAX: u64 = 4 << 20;

/// What a file of globs holds.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(File::open(file)?, GLOBS_BYTES_MAX), &mut text)?;
    Ok(text)
}

/// When a file was modified, through a link to it.
fn modified(file: &Path) -> io::Result<(i64, u32)> {
    let told = rustix::fs::stat(file)?;
    Ok((told.st_mtime, u32::try_from(told.st_mtime_nsec).unwrap_or_default()))
}

/// Says what makes no sense in what was typed, and returns its exit code.
pub fn usage(verb: Verb, u: &Usage) -> u8 {
    writer::err(&say::usage(&BCMR, verb, u));
    BCMR.exits.usage
}

/// Prints text that was asked for.
pub fn print(text: &str) -> u8 {
    match writer::out(text) {
        Ok(()) => BCMR.exits.done,
        Err(e) => {
            writer::err(&format!("{}\n", say::output_error(&BCMR, &e)));
            BCMR.exits.some_failed
        }
    }
}

/// Says what went wrong where nothing is shown of the run, and returns its exit code.
pub fn failed(e: &bcmr_engine::error::Error) -> u8 {
    writer::err(&format!("{}\n", say::error(&BCMR, e)));
    BCMR.exits.some_failed
}

/// Says that a file that the verb itself needs could not be used, and returns its exit code.
pub fn file_failed(op: &str, path: &Path, e: &std::io::Error) -> u8 {
    writer::err(&format!("{}\n", say::file_error(&BCMR, op, path, e)));
    BCMR.exits.some_failed
}

/// Counts what a verb with this policy has to do.
pub fn measure(sources: &[PathBuf], policy: &CopyPolicy) -> Measure {
    let (sources, policy) = (sources.to_vec(), policy.clone());
    Box::new(move |progress, stop| bcmr_engine::measure(&sources, &policy, progress, stop))
}

/// Opens the list of names; standard input is read from where it stands.
pub fn open(from: &NamesFrom) -> io::Result<NameList> {
    let reader = match &from.file {
        Some(file) => Input::new(File::open(file)?),
        None => Input::new(io::stdin().as_fd().try_clone_to_owned()?),
    };
    Ok(NameList { reader: Box::new(BufReader::new(reader)), separator: from.separator })
}
