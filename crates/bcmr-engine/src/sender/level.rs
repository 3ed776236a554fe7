//! One source directory listed, for every walk of sources: which entries take part, and as what.
//!
//! Must not know where anything goes, nor where a walk goes next.

use crate::error::{Error, Op, Result};
use crate::policy::Follow;
use crate::sender::filter::{Filter, Seen};
use crate::sender::names::Names;
use crate::sender::walk::SourceDir;
use fastcopy::dir::{ListBuffer, Name, NameBuf};
use fastcopy::meta::Kind;

/// Names that are sorted before they are read.
const SORTED_NAMES: usize = 2048;

/// What a listing meets.
pub(crate) enum Met<'n> {
    /// It takes part. A symbolic link has the kind of what it points to where all links are followed.
    Entry { name: Name<'n>, kind: Kind, ino: u64 },
    /// The filter leaves it out.
    Excluded(Name<'n>),
    /// What it is could not be found out.
    Failed(Error),
}

impl SourceDir {
    /// Lists it, as far as `each` returns `true`. One more system call only for an entry whose kind the listing does not
    /// say, for a link that is followed, and for a file where its size or time decides.
    ///
    /// # Errors
    /// It cannot be listed, or not to its end.
    pub(crate) fn list(
        &self,
        buffer: &mut ListBuffer,
        follow: Follow,
        filter: &Filter,
        mut each: impl FnMut(Met<'_>) -> bool,
    ) -> Result<()> {
        let always = follow == Follow::Always;
        let looked =
            |name: Name<'_>, follow| self.stat(name, follow).map(|info| (info.kind, Seen::from(&info)));
        let listed = self.dir.list(buffer, |entry| {
            let seen = match entry.kind {
                Some(Kind::Link) | None if always => looked(entry.name, true),
                // Any kind may be held by a file.
                Some(Kind::File) if filter.asks_file() || self.privileged.is_held() => {
                    looked(entry.name, always)
                }
                Some(kind) => Ok((kind, Seen::from(kind == Kind::Dir))),
                None => looked(entry.name, false),
            };
            each(match seen {
                Err(e) => Met::Failed(e),
                Ok((_, seen)) if self.excludes(entry.name, seen, filter) => Met::Excluded(entry.name),
                Ok((kind, _)) => Met::Entry { name: entry.name, kind, ino: entry.ino },
            })
        });
        listed.map_err(|e| Error::os(Op::ListDirectory, self.node.path(), e))
    }
}

/// What a walk takes from one directory: directories for later, everything else as names in one buffer.
#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) dirs: Vec<NameBuf>,
    pub(crate) names: Names,
}

impl Entries {
    /// Adds an entry. `true`: the names are as many as are sorted at a time, and are to be dealt with now.
    pub(crate) fn add(&mut self, name: Name<'_>, kind: Kind, ino: u64) -> bool {
        if kind == Kind::Dir {
            self.dirs.push(name.to_owned());
            return false;
        }
        self.names.push(name, kind, ino);
        self.names.len() >= SORTED_NAMES
    }
}
