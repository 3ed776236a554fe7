//! What the way over scp and the installation of a far bcmr need to know of ssh.
//!
//! Must not know messages.

use crate::error::{Code, Note, Reason, Result};
use crate::event::Cancel;
use crate::remote::{Address, Way};
use crate::transport;
use crate::transport::ssh::HeldBy;
use std::path::PathBuf;
use std::sync::Arc;

/// The same way over one connection of ssh, which is made now: whatever asks a person asks here and not again. Its socket lies in
/// a private directory below one of `bases`. The way itself where ssh or its configuration is not for that.
///
/// # Errors
/// A host or user that is refused; there is no connection; a stop was asked for.
pub fn share(address: &Address, way: &Way, bases: &[PathBuf], cancel: &Cancel) -> Result<Way> {
    let shared = match &way.shared {
        Some(shared) => Some(Arc::clone(shared)),
        None => transport::share::begin(address, way, HeldBy::Command, bases, cancel)?.map(Arc::new),
    };
    Ok(Way { shared, ..way.clone() })
}

/// Makes the connection anew that the way shared, where it has ended by itself: an account that runs no commands does not keep one
/// open by a command, but it may by SFTP.
///
/// # Errors
/// As [`share`].
pub fn share_again(address: &Address, way: &Way, bases: &[PathBuf], cancel: &Cancel) -> Result<()> {
    let Some(shared) = way.shared.as_ref().filter(|shared| shared.has_ended()) else { return Ok(()) };
    if let Some(new) = transport::share::begin(address, way, HeldBy::Sftp, bases, cancel)? {
        shared.renew(&new);
    }
    Ok(())
}

/// Where another program that runs ssh finds the connection that the way shares, while there is one.
#[must_use]
pub fn ssh_socket(way: &Way) -> Option<PathBuf> {
    way.socket()
}

/// ssh's own words for running `command` there, which a shell reads: it must be the caller's from beginning to end.
///
/// # Errors
/// A host or user that is refused.
pub fn ssh_words(address: &Address, way: &Way, command: &str) -> Result<Vec<std::ffi::OsString>> {
    transport::ssh::words(address, way, command)
}

/// ssh's own words for trying whether sudo there runs anything, as the way says.
///
/// # Errors
/// A host or user that is refused.
pub fn sudo_words(address: &Address, way: &Way) -> Result<Vec<std::ffi::OsString>> {
    transport::ssh::sudo_words(address, way)
}

/// ssh's own words for running the bcmr there with this one verb, which has no arguments.
///
/// # Errors
/// A host, user or program that is refused.
pub fn verb_words(address: &Address, way: &Way, verb: &'static str) -> Result<Vec<std::ffi::OsString>> {
    transport::ssh::verb_words(address, way, verb)
}

/// What ssh's standard error means where it could not connect: the code, and the words in short.
#[must_use]
pub fn ssh_said(said: &str) -> (Code, Note) {
    let lines: Vec<String> =
        said.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect();
    let code = transport::ssh::judge_words(&lines).unwrap_or(Code::Lost);
    (code, transport::ssh::in_short(code, &lines).unwrap_or(Reason::SshCouldNotConnect.into()))
}
