//! What a copy refuses by names alone, for a run that changes nothing: a final name that two sources become, and one that
//! is kept for what a killed run leaves.
//!
//! Must not change anything, nor decide by what is there, which is `plan::decide`'s.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::node::Node;
use crate::receiver::claims::{Claimed, Claims, Spot};
use crate::receiver::land::is_reserved;
use crate::stage::RESERVED;
use fastcopy::dir::{Dir, Name};
use fastcopy::meta::Kind;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The names that sources of one run become.
pub(crate) struct Rivals {
    pub(crate) claims: Claims,
    /// What a copy would have put where nothing is: by place, whether a directory.
    made: Mutex<HashMap<u64, bool>>,
    /// Of so many that is remembered.
    most: usize,
}

/// An entry and the name that it becomes.
pub(crate) struct RivalName<'s> {
    pub(crate) spot: &'s Spot,
    /// The destination's directory, where it is there.
    pub(crate) dir: Option<&'s Dir>,
    pub(crate) to: Name<'s>,
    pub(crate) kind: Kind,
    /// Something has the name already.
    pub(crate) is_there: bool,
    /// A copy of this policy would not make it.
    pub(crate) is_left_out: bool,
    pub(crate) paths: &'s dyn EntryPaths,
    /// What the target is called.
    pub(crate) top: &'s Node,
}

/// What the two sides of an entry are called, made only where one is shown.
pub(crate) trait EntryPaths {
    fn src_path(&self) -> PathBuf;
    fn dst_path(&self) -> PathBuf;
}

/// What becomes of an entry, as far as names decide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing: the very same source came before.
    Came,
    /// What there is to become of it.
    Goes,
    /// It is merged into a directory that an earlier source makes.
    Merges,
}

impl Rivals {
    /// No source has come yet; where a peer names the sources, `most` names are remembered.
    pub(crate) fn new(claims: Claims, most: usize) -> Rivals {
        Rivals { claims, made: Mutex::default(), most }
    }

    /// The turn of one entry; `source` tells it from other sources of its name.
    ///
    /// # Errors
    /// What a copy says when it refuses the name.
    pub(crate) fn turn(&self, entry: &RivalName<'_>, source: impl std::hash::Hash) -> Result<Turn> {
        if entry.is_left_out {
            return Ok(Turn::Goes);
        }
        if entry.kind != Kind::Dir {
            match self.claim(entry, source)? {
                Claimed::Same => return Ok(Turn::Came),
                // All of a list is one operand: named again, it is copied once.
                Claimed::Again if self.claims.is_listed() => return Ok(Turn::Came),
                _ => {}
            }
        }
        self.goes(entry)
    }

    /// The same for an entry whose name was claimed.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn goes(&self, entry: &RivalName<'_>) -> Result<Turn> {
        let RivalName { dir, to, kind, paths, .. } = *entry;
        if let Some(dir) = dir
            && is_reserved(dir, to).map_err(|e| Error::os(Op::Stat, paths.dst_path(), e))?
        {
            let reserved = Error::ours(Code::Refused, Op::CopyTo, paths.dst_path(), RESERVED);
            return Err(if kind == Kind::Dir { reserved } else { reserved.and(&paths.src_path()) });
        }
        match (self.made(entry), kind == Kind::Dir) {
            (Some(true), true) => Ok(Turn::Merges),
            (Some(true), false) => {
                Err(Error::ours(Code::InTheWay, Op::Replace, paths.dst_path(), Reason::FileOverDirectory)
                    .and(&paths.src_path()))
            }
            (Some(false), true) => {
                let note = Reason::DirectoryOverFile;
                Err(Error::ours(Code::InTheWay, Op::MakeDirectory, paths.dst_path(), note))
            }
            (Some(false) | None, _) => Ok(Turn::Goes),
        }
    }

    /// Claims the name of an entry.
    ///
    /// # Errors
    /// It is another source's.
    pub(crate) fn claim(&self, entry: &RivalName<'_>, source: impl std::hash::Hash) -> Result<Claimed> {
        let RivalName { spot, to, paths, top, .. } = *entry;
        self.claims.take(
            spot,
            to,
            source,
            || Ok(entry.is_there),
            || {
                let dst_path = paths.dst_path();
                let below = dst_path.strip_prefix(top.path()).unwrap_or(&dst_path).to_owned();
                (dst_path, below, paths.src_path())
            },
        )
    }

    /// Whether an earlier source makes a directory of the name, or something else; absent where none makes it. From now
    /// on this one does.
    fn made(&self, entry: &RivalName<'_>) -> Option<bool> {
        let place = self.claims.place_of(entry.spot, entry.to)?;
        if entry.is_there || entry.is_left_out {
            return None;
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = made.get(&place).copied();
        if earlier.is_none() && made.len() < self.most {
            made.insert(place, entry.kind == Kind::Dir);
        }
        earlier
    }
}
