//! What has become of names of a plan that a shard could not deal with: while one is gone at the source or is of another kind, the
//! plan is of what was there before, and no further run of the shard would help.
//!
//! Must not deal with any of them. It looks after the fact, so what it finds only adds to what was told of the failure itself.

use super::format::{PlannedDir, PlannedEntry};
use super::from;
use super::places::{below, is_other};
use super::there::path_of;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::peer::planned_source::SourceThere;
use crate::policy::CopyPolicy;
use crate::tally::Tally;
use crate::verbs::operands::Place;
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::meta::Kind;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// A name of a plan that was not dealt with.
pub(super) struct LeftName {
    dir: Vec<u8>,
    name: NameBuf,
    kind: Kind,
}

impl LeftName {
    pub(super) fn of(dir: &PlannedDir, entry: &PlannedEntry) -> LeftName {
        LeftName { dir: dir.path.clone(), name: entry.name.clone(), kind: entry.version().kind }
    }

    /// Everything in these directories.
    pub(super) fn all(dirs: &[PlannedDir]) -> Vec<LeftName> {
        let of = |dir: &PlannedDir| -> Vec<LeftName> {
            dir.entries.iter().map(|entry| LeftName::of(dir, entry)).collect()
        };
        dirs.iter().flat_map(of).collect()
    }

    /// The directories themselves.
    pub(super) fn above(dirs: &[PlannedDir]) -> Vec<LeftName> {
        let of = |dir: &PlannedDir| {
            let at = dir.path.iter().rposition(|b| *b == b'/');
            let (above, name) = match at.and_then(|at| dir.path.split_at_checked(at)) {
                Some((above, name)) => (above.to_vec(), name.strip_prefix(b"/").unwrap_or(name)),
                None => (Vec::new(), &*dir.path),
            };
            NameBuf::new(name).map(|name| LeftName { dir: above, name, kind: Kind::Dir })
        };
        dirs.iter().filter_map(of).collect()
    }

    fn path(&self) -> Vec<u8> {
        path_of(&self.dir, self.name.bytes())
    }
}

/// The source, where names are looked for.
pub(super) enum LookedIn<'s> {
    Here(&'s Dir),
    There(&'s SourceThere<'s>, &'s Arc<Place>, &'s CopyPolicy),
}

/// Which changes are told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tells {
    All,
    /// What is of another kind was told.
    Gone,
    /// What is gone is what was to be.
    OtherKinds,
}

/// Tells which of these names are gone at the source, or of another kind. Whether none is. `shown`: the source.
///
/// # Errors
/// The connection was lost.
pub(super) fn tell(
    source: &LookedIn<'_>,
    shown: &Path,
    names: &[LeftName],
    tells: Tells,
    tally: &Tally<'_>,
) -> Result<bool> {
    let op = if tells == Tells::OtherKinds { Op::Remove } else { Op::Copy };
    let mut all_same = true;
    let mut tell = |left: &LeftName, now: Option<Kind>| {
        let (is_told, why) = match now {
            None => (tells != Tells::OtherKinds, Reason::ChangedSincePlan.into()),
            Some(now) if now == left.kind => return,
            Some(now) => (tells != Tells::Gone, Reason::KindBecame.about(now.word())),
        };
        all_same = false;
        if is_told {
            let path = shown.join(OsStr::from_bytes(&left.path()));
            tally.fail(Error::ours(Code::SourceChanged, op, path, why));
        }
    };
    match source {
        LookedIn::Here(top) => {
            for names in names.chunk_by(|one, next| one.dir == next.dir) {
                let dir = names.first().map(|first| below(top, &first.dir));
                for left in names {
                    let now = match &dir {
                        Some(Ok(dir)) => dir.look(left.name.as_name()).map(|now| now.map(|now| now.kind)),
                        Some(Err(e)) if is_other(e) => Ok(None),
                        // What cannot be looked at may be what it was.
                        Some(Err(_)) | None => continue,
                    };
                    if let Ok(now) = now {
                        tell(left, now);
                    }
                }
            }
        }
        LookedIn::There(source, place, policy) => {
            let leads = leading(names);
            let mut asked: Vec<Vec<u8>> = names.iter().map(LeftName::path).collect();
            // A directory that is asked for is not gone into: what leads to other names is told on the way to them.
            asked.retain(|path| !leads.contains(&**path));
            if asked.is_empty() {
                return Ok(true);
            }
            let (found, is_whole) = from::seek_some(source, &asked, place, &from::walking(policy))?;
            for left in names {
                let path = left.path();
                match found.kind(&path).or_else(|| found.dir(&path).map(|dir| dir.kind)) {
                    // Of what is not there the other side may have said that it cannot be looked at.
                    None if !is_whole => {}
                    now => tell(left, now),
                }
            }
        }
    }
    Ok(all_same)
}

/// The directories that these names are in, and those above them.
fn leading(names: &[LeftName]) -> HashSet<&[u8]> {
    let mut leads = HashSet::new();
    for left in names {
        let mut path = &*left.dir;
        while !path.is_empty() && leads.insert(path) {
            let at = path.iter().rposition(|b| *b == b'/');
            path = at.and_then(|at| path.get(..at)).unwrap_or_default();
        }
    }
    leads
}
