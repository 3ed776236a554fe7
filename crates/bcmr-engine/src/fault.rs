//! What went wrong in a phase, before it has a path. Must not know which phase.

use crate::error::{Code, Error, Note, Op, Reason};
use fastcopy::errno;
use std::io;
use std::path::PathBuf;

/// Which of the two paths of a job an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Dest,
}

/// What went wrong in a phase, without a path: the path is made only when it is told.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) side: Side,
    pub(crate) op: Op,
    pub(crate) code: Code,
    pub(crate) note: Option<Reason>,
    pub(crate) source: Option<io::Error>,
}

impl Fault {
    pub(crate) fn os(side: Side, op: Op, e: io::Error) -> Fault {
        Fault { side, op, code: Code::of(&e), note: None, source: Some(e) }
    }
    pub(crate) fn ours(side: Side, op: Op, code: Code, note: Reason) -> Fault {
        Fault { side, op, code, note: Some(note), source: None }
    }
    /// The run was stopped.
    pub(crate) fn interrupted() -> Fault {
        Fault::ours(Side::Dest, Op::Copy, Code::Interrupted, Reason::Interrupted)
    }
    /// What was read is no version that the source ever had.
    pub(crate) fn changed() -> Fault {
        Fault::ours(Side::Source, Op::Copy, Code::SourceChanged, Reason::SourceChangedWhileRead)
    }
    /// What crossed a wire is not what was sent.
    pub(crate) fn mismatch() -> Fault {
        Fault::ours(Side::Source, Op::Receive, Code::Mismatch, Reason::NotWhatWasSent)
    }
    /// Whether the same may go well another time: what is not allowed, or not possible there, will not.
    pub(crate) fn may_pass(&self) -> bool {
        let lasts = |code| matches!(code, Code::Denied | Code::Unsupported);
        self.source.as_ref().is_some_and(|e| !lasts(Code::of(e)))
    }
    /// Whether a new name was not given because it is taken.
    pub(crate) fn is_taken(&self) -> bool {
        let named = matches!(self.op, Op::Create | Op::RenameIntoPlace);
        named && self.source.as_ref().is_some_and(|e| e.raw_os_error() == Some(errno::EEXIST))
    }
    pub(crate) fn told(self, src: impl FnOnce() -> PathBuf, dst: impl FnOnce() -> PathBuf) -> Error {
        let source = match self.source.map(Error::carried).transpose() {
            Ok(Some(carried)) => return carried,
            Ok(None) => None,
            Err(source) => Some(source),
        };
        let path = if self.side == Side::Source { src() } else { dst() };
        let note = self.note.map(Note::from);
        Error { code: self.code, op: self.op, path, other: None, note, source }
    }
}
