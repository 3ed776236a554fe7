//! Snapshots that a run would take away, as its dry run tells them.
//!
//! Must not decide which those are.

use crate::calendar::Stamp;
use crate::error::{Error, Op};
use crate::verbs::check::Check;
use fastcopy::dir::{Dir, NameBuf};
use std::io;
use std::path::{Path, PathBuf};

/// Snapshots in one directory.
pub(crate) struct GoingSnapshots {
    pub(crate) dir: Dir,
    /// What the directory is shown as.
    pub(crate) shown: PathBuf,
    pub(crate) going: Vec<Stamp>,
}

impl GoingSnapshots {
    /// Tells them as what goes, each by its whole path: it is not in what the source is compared with.
    pub(crate) fn tell(&self, check: &Check<'_>) {
        let check = Check { root: Path::new(""), ..*check };
        let tally = check.tally;
        for stamp in &self.going {
            let text = stamp.to_string();
            let path = self.shown.join(&text);
            let none = || Error::os(Op::ThinOut, &path, io::ErrorKind::InvalidInput.into());
            let name = NameBuf::new(text.as_bytes()).ok_or_else(none);
            match name.and_then(|name| check.only_there(&self.dir, name.as_name(), &path)) {
                Ok(event) => tally.watch.front.event(event),
                Err(e) => tally.fail(e),
            }
        }
    }
}
