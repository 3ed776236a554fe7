//! What a `Put` has beside its target, as it travels: earlier copies, what is replaced or deleted, snapshots.
//!
//! Must not know how any of it is carried out, nor look at a disk.

use super::talk::{is_absent, send};
use crate::calendar::Stamp;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Event, Summary, Watch};
use crate::policy::{CopyPolicy, Dated, Old, Thinning};
use crate::transport::Peer;
use bcmr_wire::handshake::{Features, wide};
use bcmr_wire::message::{Keeping, Message, OldThings};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the receiver of a `Put` is told; `None` where there is nothing to tell.
fn keeping(policy: &CopyPolicy, dated: Option<Dated>) -> Option<Keeping<'_>> {
    let bases: Vec<&[u8]> = policy.bases.iter().map(|base| base.as_os_str().as_bytes()).collect();
    let old = match &policy.old {
        Old::Goes => OldThings::Go,
        Old::Backup(path) => OldThings::Below(path.as_os_str().as_bytes()),
        Old::Trash { .. } => OldThings::Trashed,
    };
    let thinning = dated.and_then(|dated| dated.thinning);
    let stay = thinning.map(|rule| [rule.days, rule.weeks, rule.months]);
    let at = dated.map(|dated| dated.at.seconds());
    let is_plain = bases.is_empty() && old == OldThings::Go && at.is_none();
    (!is_plain).then_some(Keeping { bases, old, at, stay })
}

/// What a receiver must be able to do for it.
pub(super) fn needed(policy: &CopyPolicy, dated: Option<Dated>) -> Features {
    let wide = if keeping(policy, dated).is_some() { wide::KEEPING } else { 0 };
    Features { caps: 0, wide }.or(needed_to_delete(policy))
}

/// What both sides must be able to do where something is to be deleted and only the sender can tell what the filter leaves out.
pub(super) fn needed_to_delete(policy: &CopyPolicy) -> Features {
    let asks = policy.mirror.deletes() && (policy.filter.asks_tree() || policy.filter.asks_file());
    Features { caps: 0, wide: if asks { wide::LEFT_OUT } else { 0 } }
}

/// Tells it, right before the `Put`.
///
/// # Errors
/// It cannot be sent.
pub(super) fn tell(peer: &Peer, policy: &CopyPolicy, dated: Option<Dated>) -> Result<()> {
    keeping(policy, dated).map_or(Ok(()), |keeping| send(peer, &Message::Keeping(keeping)))
}

/// What a server was told, with its paths made its own by `path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Beside {
    pub(super) bases: Vec<PathBuf>,
    pub(super) old: BesideOld,
    pub(super) dated: Option<Dated>,
}

/// What becomes of what is replaced or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BesideOld {
    Goes,
    Below(PathBuf),
    Trashed,
}

impl Beside {
    pub(super) fn of(keeping: &Keeping<'_>, path: &dyn Fn(&[u8]) -> PathBuf) -> Beside {
        let thinning = keeping.stay.map(|[days, weeks, months]| Thinning { days, weeks, months });
        Beside {
            bases: keeping.bases.iter().map(|base| path(base)).collect(),
            old: match keeping.old {
                OldThings::Go => BesideOld::Goes,
                OldThings::Below(below) => BesideOld::Below(path(below)),
                OldThings::Trashed => BesideOld::Trashed,
            },
            dated: keeping.at.map(|at| Dated { at: Stamp::of(at), thinning }),
        }
    }

    /// The policy of a `Put` with it; `trash` is that of the server's user.
    ///
    /// # Errors
    /// There is no trash.
    pub(super) fn policy(self, policy: CopyPolicy, trash: Option<Old>) -> Result<CopyPolicy> {
        let old = match self.old {
            BesideOld::Goes => Old::Goes,
            BesideOld::Below(path) => Old::Backup(path),
            BesideOld::Trashed => {
                let none = || Error::ours(Code::Unsupported, Op::KeepOld, "", Reason::NoTrash);
                trash.ok_or_else(none)?
            }
        };
        Ok(CopyPolicy { bases: self.bases, old, ..policy })
    }
}

/// A snapshot that is asked for, in all attempts of one run.
pub(super) struct AskedSnapshot {
    dated: Option<Dated>,
    /// One attempt has asked for it where there was none.
    is_new: bool,
    /// So many have failed.
    attempts: u32,
}

impl AskedSnapshot {
    pub(super) fn of(dated: Option<Dated>) -> AskedSnapshot {
        AskedSnapshot { dated, is_new: false, attempts: 0 }
    }

    /// Whether an earlier attempt, which lost its connection, has made it; looked at before each attempt.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn is_made(&mut self, peer: &Peer, shelf: &Path, watch: Watch<'_>) -> Result<Option<Summary>> {
        let Some(dated) = self.dated else { return Ok(None) };
        let name = dated.at.to_string();
        let is_absent = is_absent(peer, &shelf.join(OsStr::new(&name)), watch.cancel)?;
        if !is_absent && self.is_new {
            watch.front.event(Event::Note(Reason::SnapshotMade.about(name)));
            return Ok(Some(Summary::default()));
        }
        self.is_new = is_absent;
        Ok(None)
    }

    /// What an attempt ended with. That another run is making a snapshot there may come of the attempt before, which the server
    /// has not given up yet: then it is as worth another attempt as that one was.
    pub(super) fn sorted(&mut self, e: Error) -> Error {
        let is_earlier =
            self.attempts > 0 && e.note.as_ref().is_some_and(|n| n.reason == Reason::SnapshotRuns);
        self.attempts += 1;
        if is_earlier { Error { code: Code::Lost, ..e } } else { e }
    }
}
