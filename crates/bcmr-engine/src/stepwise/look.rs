//! Questions about single paths that a command line raises before anything is done.
//!
//! Must not change anything.

use super::options::Options;
use super::{backup, spot};
use fastcopy::meta::Kind;
use std::io;
use std::path::Path;

/// Whether `path` is a directory, links followed; ENOTDIR when it is something else.
///
/// # Errors
/// What the kernel says.
pub fn is_directory(path: &Path) -> io::Result<()> {
    fastcopy::dir::Dir::open(path).map(|_| ())
}

/// What a file at `path` would be kept as, were it replaced.
#[must_use]
pub fn backup_of(path: &Path, options: &Options) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let spot = spot::Spot::of(path);
    if spot.look(true).ok()?.kind != Kind::File {
        return None;
    }
    let kept = backup::name_for(&spot, options, 0).ok()?.spot;
    Some(kept.shown.as_os_str().as_bytes().to_vec())
}
