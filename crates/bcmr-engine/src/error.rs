//! What can go wrong with one item, and how it is told: a code to branch on, the operation, the path, the source.
//!
//! Must not know exit codes or wording; those belong to the person's side.

pub use crate::words::{About, Note, Op, Reason};
use std::io;
use std::path::{Path, PathBuf};

/// What kind of trouble it is. Stable: the same codes travel in JSON and, later, on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Code {
    /// ENOENT: something named is not there.
    NotFound = 1,
    /// EACCES, EPERM.
    Denied = 2,
    /// Something is in the way (EEXIST, ENOTEMPTY, a directory where a file should go or the reverse).
    InTheWay = 3,
    /// A directory was named where only `-r` may go.
    IsDirectory = 4,
    /// A path component is not a directory (ENOTDIR).
    NotDirectory = 5,
    /// A symbolic link stands where none may be followed (ELOOP), or links lead in a circle.
    Link = 6,
    /// ENOSPC, EDQUOT, EFBIG.
    NoSpace = 7,
    /// EROFS.
    ReadOnly = 8,
    /// The source changed while it was read; nothing was published.
    SourceChanged = 9,
    /// What landed differs from what was read; nothing was published.
    Mismatch = 10,
    /// A guard refused: copying into itself, removing `/`, source and destination the same object.
    Refused = 11,
    /// The file system or this platform cannot do what was asked for.
    Unsupported = 12,
    /// ENAMETOOLONG.
    NameTooLong = 13,
    /// A limit of the process or machine was reached (EMFILE, ENFILE, ENOMEM).
    Limit = 14,
    /// A special file was skipped because nothing asked for it to be copied.
    Special = 15,
    /// Contents landed, but something of the metadata that was asked for did not.
    MetadataLost = 16,
    /// The request makes no sense (bad pattern, empty list).
    Usage = 17,
    /// Any other errno.
    Io = 18,
    /// The user, or the peer, asked to stop before this was done.
    Interrupted = 19,
    /// The other side said something that makes no sense, or nothing that we understand.
    Protocol = 20,
    /// The connection to the other side was lost, or never came to be.
    Lost = 21,
    /// No bcmr answers at the other side, or none of a version we can speak to; nothing was changed.
    NoPeer = 22,
    /// Nothing listens at that port there.
    ConnectionRefused = 23,
    /// No machine has that name.
    UnknownHost = 24,
    /// There is no way to that machine now.
    Unreachable = 25,
    /// Neither a key nor a password was accepted there.
    NoKey = 26,
    /// The other machine's key is not known here.
    UnknownKey = 27,
    /// The other machine's key is not the one that is known here.
    ChangedKey = 28,
}

impl Code {
    /// The code an errno belongs to.
    #[must_use]
    pub fn of(e: &io::Error) -> Code {
        match e.raw_os_error() {
            Some(libc_errno::ENOENT) => Code::NotFound,
            Some(libc_errno::EACCES | libc_errno::EPERM) => Code::Denied,
            Some(libc_errno::EEXIST | libc_errno::ENOTEMPTY | libc_errno::EISDIR) => Code::InTheWay,
            Some(libc_errno::ENOTDIR) => Code::NotDirectory,
            Some(libc_errno::ELOOP) => Code::Link,
            Some(libc_errno::ENOSPC | libc_errno::EDQUOT | libc_errno::EFBIG) => Code::NoSpace,
            Some(libc_errno::EROFS) => Code::ReadOnly,
            Some(libc_errno::EOPNOTSUPP | libc_errno::ENOSYS) => Code::Unsupported,
            Some(libc_errno::ENAMETOOLONG) => Code::NameTooLong,
            Some(libc_errno::EMFILE | libc_errno::ENFILE | libc_errno::ENOMEM) => Code::Limit,
            None if fastcopy::dir::SpecialRefused::is(e) => Code::Refused,
            // What waits for content from the other side says so when nothing more comes; no system call does.
            None if e.kind() == io::ErrorKind::ConnectionAborted => Code::Lost,
            _ => Code::Io,
        }
    }

    /// The code with this number on the wire; one of a newer version is any other error.
    #[must_use]
    pub fn of_number(number: u16) -> Code {
        const ALL: [Code; 28] = [
            Code::NotFound,
            Code::Denied,
            Code::InTheWay,
            Code::IsDirectory,
            Code::NotDirectory,
            Code::Link,
            Code::NoSpace,
            Code::ReadOnly,
            Code::SourceChanged,
            Code::Mismatch,
            Code::Refused,
            Code::Unsupported,
            Code::NameTooLong,
            Code::Limit,
            Code::Special,
            Code::MetadataLost,
            Code::Usage,
            Code::Io,
            Code::Interrupted,
            Code::Protocol,
            Code::Lost,
            Code::NoPeer,
            Code::ConnectionRefused,
            Code::UnknownHost,
            Code::Unreachable,
            Code::NoKey,
            Code::UnknownKey,
            Code::ChangedKey,
        ];
        ALL.into_iter().find(|c| u16::from(*c as u8) == number).unwrap_or(Code::Io)
    }

    /// There is no connection: it never came to be, or it was lost.
    #[must_use]
    pub fn is_of_connection(self) -> bool {
        self == Code::Lost || (self as u8) >= Code::ConnectionRefused as u8
    }

    /// The same command may do without anything being changed before.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Code::Lost
                | Code::ConnectionRefused
                | Code::Unreachable
                | Code::SourceChanged
                | Code::Interrupted
        )
    }

    /// The name used in JSON, in kebab-case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Code::NotFound => "not-found",
            Code::Denied => "denied",
            Code::InTheWay => "in-the-way",
            Code::IsDirectory => "is-directory",
            Code::NotDirectory => "not-directory",
            Code::Link => "link",
            Code::NoSpace => "no-space",
            Code::ReadOnly => "read-only",
            Code::SourceChanged => "source-changed",
            Code::Mismatch => "mismatch",
            Code::Refused => "refused",
            Code::Unsupported => "unsupported",
            Code::NameTooLong => "name-too-long",
            Code::Limit => "limit",
            Code::Special => "special",
            Code::MetadataLost => "metadata-lost",
            Code::Usage => "usage",
            Code::Io => "io",
            Code::Interrupted => "interrupted",
            Code::Protocol => "protocol",
            Code::Lost => "lost",
            Code::NoPeer => "no-peer",
            Code::ConnectionRefused => "connection-refused",
            Code::UnknownHost => "unknown-host",
            Code::Unreachable => "unreachable",
            Code::NoKey => "no-key",
            Code::UnknownKey => "unknown-key",
            Code::ChangedKey => "changed-key",
        }
    }
}

use fastcopy::errno as libc_errno;

/// One thing that went wrong with one item.
#[derive(Debug, thiserror::Error)]
#[error("{op:?} {}: {:?}", path.display(), self.why())]
pub struct Error {
    /// What kind of trouble.
    pub code: Code,
    /// What was being done.
    pub op: Op,
    /// The path it was done to.
    pub path: PathBuf,
    /// A second path where there is one (the other side of a rename or a comparison).
    pub other: Option<PathBuf>,
    /// Why, where there is no errno or where the errno alone would puzzle.
    pub note: Option<Note>,
    /// The system's own answer.
    pub source: Option<io::Error>,
}

impl Error {
    /// An error whose reason is a system call's.
    #[must_use]
    pub fn os(op: Op, path: impl Into<PathBuf>, source: io::Error) -> Error {
        Error {
            code: Code::of(&source),
            op,
            path: path.into(),
            other: None,
            note: None,
            source: Some(source),
        }
    }

    /// An error whose reason is ours.
    #[must_use]
    pub fn ours(code: Code, op: Op, path: impl Into<PathBuf>, note: impl Into<Note>) -> Error {
        Error { code, op, path: path.into(), other: None, note: Some(note.into()), source: None }
    }

    /// The same error with the second path named.
    #[must_use]
    pub fn and(mut self, other: &Path) -> Error {
        self.other = Some(other.to_owned());
        self
    }

    /// The reason alone, without operation and path, as another error or a note may speak of it.
    #[must_use]
    pub fn why(&self) -> Note {
        match (&self.note, &self.source) {
            (Some(note), Some(source)) => Reason::Because.about(note.clone()).about(source.to_string()),
            (Some(note), None) => note.clone(),
            (None, Some(source)) => source.to_string().into(),
            (None, None) => self.code.name().to_owned().into(),
        }
    }
}

/// Shorthand used all through the engine.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_waits_for_the_other_side_loses_it() {
        let of = |e: io::Error| Code::of(&e);
        assert_eq!(of(io::ErrorKind::ConnectionAborted.into()), Code::Lost);
        // What a file system in user space answers when it was aborted.
        assert_eq!(of(io::Error::from_raw_os_error(libc_errno::ECONNABORTED)), Code::Io);
    }
}
