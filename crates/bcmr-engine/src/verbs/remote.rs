//! The verbs that another machine takes part in.
//!
//! Must not know how addresses are typed or what is told to a person.

use crate::error::{Code, Error, Result};
use crate::event::{Summary, Watch};
use crate::remote::{Address, GetRequest, PutRequest, ServeRequest, Way};
use fastcopy::meta::Time;
use std::os::fd::OwnedFd;

pub use fastcopy::meta::Kind;

/// One name on some machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The type.
    pub kind: Kind,
    /// One name, as bytes.
    pub name: Vec<u8>,
    /// Permission bits with setuid, setgid and sticky (07777).
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Last written.
    pub mtime: Time,
}

/// What is at a path and below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Everything that is no directory.
    pub files: u64,
    /// Directories, itself included when it is one.
    pub dirs: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Bytes allocated, directories included.
    pub allocated: u64,
}

/// One thing that was looked at on the way to another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What a copy needs of it is there.
    pub ok: bool,
    /// What was looked at, in a word or two.
    pub what: String,
    /// What was found; may hold text of the other machine.
    pub detail: String,
}

/// Copies to another machine.
///
/// # Errors
/// [`Code::NoPeer`] when no bcmr answers there; then nothing was changed. Else as `copy`, [`Code::Protocol`] and
/// [`Code::Lost`].
pub fn put(request: PutRequest, _watch: Watch<'_>) -> Result<Summary> {
    Err(unsupported(&request.to))
}

/// Copies from another machine.
///
/// # Errors
/// As [`put`].
pub fn get(request: GetRequest, _watch: Watch<'_>) -> Result<Summary> {
    match request.from.first() {
        Some(from) => Err(unsupported(from)),
        None => Err(Error::ours(Code::Usage, "copy", "", "no source given")),
    }
}

/// Serves one peer on a pair of pipes until it goes.
///
/// # Errors
/// The peer broke the protocol, or the root cannot be opened.
pub fn serve(request: ServeRequest, _input: OwnedFd, _output: OwnedFd) -> Result<()> {
    Err(Error::ours(Code::Unsupported, "serve", request.root.unwrap_or_default(), "not yet"))
}

/// What an address names; through a symbolic link with `follow`.
///
/// # Errors
/// As [`put`], or the path cannot be looked at.
pub fn stat(address: &Address, _way: &Way, _follow: bool) -> Result<Listing> {
    Err(unsupported(address))
}

/// The names in a directory, in no order, until `each` says no.
///
/// # Errors
/// As [`stat`]; [`Code::NotDirectory`] when it is none.
pub fn list(address: &Address, _way: &Way, _each: &mut dyn FnMut(Listing) -> bool) -> Result<()> {
    Err(unsupported(address))
}

/// The BLAKE3 of a regular file, computed there.
///
/// # Errors
/// As [`stat`].
pub fn hash(address: &Address, _way: &Way) -> Result<[u8; 32]> {
    Err(unsupported(address))
}

/// What is at an address and below it.
///
/// # Errors
/// As [`stat`].
pub fn usage(address: &Address, _way: &Way) -> Result<Usage> {
    Err(unsupported(address))
}

/// What stands on the way to a machine. When every finding is `ok`, a copy goes from bcmr to bcmr.
#[must_use]
pub fn doctor(_address: &Address, _way: &Way) -> Vec<Finding> {
    let detail = "not looked at yet".to_owned();
    vec![Finding { ok: false, what: "bcmr".into(), detail }]
}

fn unsupported(address: &Address) -> Error {
    Error::ours(Code::Unsupported, "connect to", address.host.as_str(), "not yet")
}
