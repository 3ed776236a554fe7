//! What a transfer is to bring, as it was agreed on before it began. Must not know what came of it.

use crate::error::{Code, Error, Note, Op, Reason, Result};
use crate::peer::asked::{Asked, Kinds};
use crate::peer::owners_here::OwnersHere;
use crate::receiver::claims::Meeting;
use crate::tally::Tally;
use crate::trouble::error_of;
use crate::verbs::destination::Entering;
use crate::verbs::going::GoingSnapshots;
use crate::verbs::nameless::TreeNames;
use crate::verbs::operands::{Reach, Resolved};
use bcmr_wire::message::{Entry, Kind as WireKind, Trouble};
use fastcopy::meta::{Info, Kind, Time};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What is received.
pub(crate) struct Incoming {
    /// Where to.
    pub(crate) to: Resolved,
    /// What kind each operand was said to be, in this attempt and in those before.
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) operands: u64,
    /// And which.
    pub(crate) asked: Asked,
    /// What goes before a source's path when it is shown (`host:`).
    pub(crate) source_prefix: String,
    /// This machine's number: a source with the same one may be the destination itself.
    pub(crate) origin: u64,
    /// Hashes come along.
    pub(crate) hashes: bool,
    /// Troubles of the sender are told here; its own side tells them when not.
    pub(crate) echo: bool,
    /// Streams.
    pub(crate) streams: usize,
    /// The one operand is the directory that a list of names is about: only where they are, and not copied itself.
    pub(crate) listed: bool,
    /// The target is the destination of a plan, with or without its name, and a list says so many of its names.
    pub(crate) tree: Option<TreeNames>,
    /// Where the target may lead.
    pub(crate) reach: Reach,
    /// Blocks that landed before may be used again.
    pub(crate) dedup: bool,
    /// The sender is told what went.
    pub(crate) keeping: bool,
    /// The sender makes use of what is there of a file.
    pub(crate) delta: bool,
    /// It sends parts of small files where they are asked for.
    pub(crate) parts: bool,
    /// Of a content that it has sent before it may send the hash.
    pub(crate) repeats: bool,
    /// Set where a move is to be gone through once more: not all that landed was remembered.
    pub(crate) once_more: Arc<AtomicBool>,
    /// Snapshots that would go after this one, where it is looked at.
    pub(crate) going: Option<Arc<GoingSnapshots>>,
    /// Who owns here what comes.
    pub(crate) owners: OwnersHere,
}

impl Incoming {
    /// Whether the directory that is sent becomes the target with all that the sender names of it. That of a list is mostly only
    /// where its names are.
    pub(crate) fn is_whole(&self) -> bool {
        !self.listed || self.tree == Some(TreeNames::All)
    }

    /// How a directory is entered that came below another one.
    pub(crate) fn entering(&self) -> Entering {
        match (self.tree, self.listed) {
            (Some(TreeNames::Round), _) => Entering::Round,
            (_, true) => Entering::List,
            (_, false) => Entering::Walk,
        }
    }

    /// A source's path as it is shown.
    pub(crate) fn shown(&self, path: &Path) -> PathBuf {
        let mut text = std::ffi::OsString::from(&self.source_prefix);
        text.push(path);
        text.into()
    }

    /// What the sender, whose machine has the number `origin`, knows of an entry.
    pub(crate) fn info_of(&self, entry: &Entry<'_>, origin: u64) -> Info {
        let time = |t: bcmr_wire::message::Time| Time { sec: t.sec, nsec: t.nsec };
        // A number of another machine's device must never look like one of ours.
        let far = if origin == self.origin { 0 } else { origin | 1 << 63 };
        let kind = kind_of(entry.kind);
        let (mode, uid, gid) = self.owners.owned(kind, entry.mode, (entry.uid, entry.gid));
        Info {
            kind,
            mode,
            uid,
            gid,
            dev: entry.dev ^ far,
            ino: entry.ino,
            nlink: entry.nlink,
            size: entry.size,
            blocks: entry.blocks,
            rdev: entry.rdev,
            atime: time(entry.atime),
            mtime: time(entry.mtime),
            ctime: time(entry.ctime),
        }
    }

    /// Which names sources can have in common.
    pub(crate) fn meeting(&self) -> Meeting {
        match (self.listed, self.operands) {
            (true, _) => Meeting::Listed,
            (false, 0 | 1) => Meeting::Never,
            (false, _) => Meeting::Operands,
        }
    }

    /// Where links are to be `followed`, what they lead to is sent, and no link (V12).
    pub(crate) fn no_link(&self, followed: bool, kind: WireKind) -> Result<()> {
        if followed && kind == WireKind::Link {
            return Err(refused(Reason::LinkWhereFollowed));
        }
        Ok(())
    }

    /// V11: a node that names the disk leads out of every root, whatever the modes say where root serves.
    pub(crate) fn no_device(&self, kind: Kind, shown: impl FnOnce() -> PathBuf) -> Result<()> {
        if kind.is_device() && self.reach.is_confined() {
            let note = Reason::KindAtConfinedServer.about(kind.word());
            return Err(Error::ours(Code::Refused, Op::MakeSpecialFile, shown(), note));
        }
        Ok(())
    }

    /// The sender says that it has sent everything. What was asked for and neither came nor was refused is told: an answer
    /// of nothing is no success (V13).
    pub(crate) fn tell_missing(&self, tally: &Tally<'_>) {
        if tally.cancelled() {
            return;
        }
        let missing = self.asked.missing();
        let error =
            |path: &Path, note: Note| Error::ours(Code::Protocol, Op::Receive, self.shown(path), note);
        for path in &missing.named {
            tally.fail(error(path, Reason::DidNotCome.into()));
        }
        if missing.more > 0
            && let Some(last) = missing.named.last()
        {
            let note = Reason::MoreDidNotCome.about(missing.more);
            tally.fail(error(last, note));
        }
    }

    /// A trouble of the sender: told here, unless its own side tells it.
    pub(crate) fn trouble(&self, trouble: &Trouble<'_>, tally: &Tally<'_>) {
        let error = error_of(trouble);
        self.asked.refused(&error.path);
        if self.echo && !self.asked.is_answer(error.code) {
            tally.fail(Error { path: self.shown(&error.path), ..error });
        } else {
            tally.count(&error);
        }
    }
}

/// What a peer said was not what it may say.
pub(crate) fn refused(note: impl Into<Note>) -> Error {
    Error::ours(Code::Protocol, Op::Receive, "", note)
}

pub(crate) fn kind_of(kind: WireKind) -> Kind {
    match kind {
        WireKind::File => Kind::File,
        WireKind::Dir => Kind::Dir,
        WireKind::Link => Kind::Link,
        WireKind::Fifo => Kind::Fifo,
        WireKind::Socket => Kind::Socket,
        WireKind::CharDevice => Kind::CharDevice,
        WireKind::BlockDevice => Kind::BlockDevice,
    }
}
