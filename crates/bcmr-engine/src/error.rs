//! What can go wrong with one item, and how it is told: a code to branch on, the operation, the path, the source.
//!
//! Must not know exit codes or wording; those belong to the person's side.

pub use crate::words::{About, Note, Op, Reason};
use std::io;
use std::path::{Path, PathBuf};

/// Defines [`Code`] from its one list: what it is, its number, and its name in JSON.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $number:literal $name:literal;)*) => {
        /// What kind of trouble it is. Numbers and names are stable: the same codes travel in JSON and on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Code {
            $($(#[$doc])* $code = $number,)*
        }

        impl Code {
            /// Every code, by number.
            pub const ALL: &[Code] = &[$(Code::$code,)*];

            /// The name used in JSON, in kebab-case.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Code::$code => $name,)*
                }
            }
        }
    };
}

// docs/json.md has the same list for people, with the exit status of each; a test of `say` compares the two.
codes! {
    /// ENOENT: something named is not there.
    NotFound = 1 "not-found";
    /// EACCES, EPERM.
    Denied = 2 "denied";
    /// Something is in the way (EEXIST, ENOTEMPTY, a directory where a file should go or the reverse).
    InTheWay = 3 "in-the-way";
    /// A directory was named where only `-r` may go.
    IsDirectory = 4 "is-directory";
    /// A path component is not a directory (ENOTDIR).
    NotDirectory = 5 "not-directory";
    /// A symbolic link stands where none may be followed (ELOOP), or links lead in a circle.
    Link = 6 "link";
    /// ENOSPC, EDQUOT, EFBIG.
    NoSpace = 7 "no-space";
    /// EROFS.
    ReadOnly = 8 "read-only";
    /// The source changed while it was read; nothing was published.
    SourceChanged = 9 "source-changed";
    /// What landed differs from what was read; nothing was published.
    Mismatch = 10 "mismatch";
    /// A guard refused: copying into itself, removing `/`, source and destination the same object.
    Refused = 11 "refused";
    /// The file system or this platform cannot do what was asked for.
    Unsupported = 12 "unsupported";
    /// ENAMETOOLONG.
    NameTooLong = 13 "name-too-long";
    /// A limit of the process or machine was reached (EMFILE, ENFILE, ENOMEM).
    Limit = 14 "limit";
    /// A special file was skipped because nothing asked for it to be copied.
    Special = 15 "special";
    /// Contents landed, but something of the metadata that was asked for did not.
    MetadataLost = 16 "metadata-lost";
    /// The request makes no sense (bad pattern, empty list).
    Usage = 17 "usage";
    /// Any other errno.
    Io = 18 "io";
    /// The user, or the peer, asked to stop before this was done.
    Interrupted = 19 "interrupted";
    /// The other side said something that makes no sense, or nothing that we understand.
    Protocol = 20 "protocol";
    /// The connection to the other side was lost, or never came to be.
    Lost = 21 "lost";
    /// No bcmr answers at the other side, or none of a version we can speak to; nothing was changed.
    NoPeer = 22 "no-peer";
    /// Nothing listens at that port there.
    ConnectionRefused = 23 "connection-refused";
    /// No machine has that name.
    UnknownHost = 24 "unknown-host";
    /// There is no way to that machine now.
    Unreachable = 25 "unreachable";
    /// Neither a key nor a password was accepted there.
    NoKey = 26 "no-key";
    /// The other machine's key is not known here.
    UnknownKey = 27 "unknown-key";
    /// The other machine's key is not the one that is known here.
    ChangedKey = 28 "changed-key";
    /// The same as [`MetadataLost`](Code::MetadataLost), because the disk is full.
    MetadataNoSpace = 29 "metadata-no-space";
    /// The same, because a disk failed to read or write it.
    MetadataIo = 30 "metadata-io";
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

    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        u16::from(self as u8)
    }

    /// The code with this number on the wire; one of a newer version is any other error.
    #[must_use]
    pub fn of_number(number: u16) -> Code {
        let number = bcmr_wire::code::renumbered(number);
        Code::ALL.iter().copied().find(|code| code.number() == number).unwrap_or(Code::Io)
    }

    /// The code of metadata that could not be kept for this.
    pub(crate) fn of_loss(e: &io::Error) -> Code {
        match Code::of(e) {
            Code::NoSpace => Code::MetadataNoSpace,
            _ if e.raw_os_error() == Some(libc_errno::EIO) => Code::MetadataIo,
            _ => Code::MetadataLost,
        }
    }

    /// The contents landed, and some of the metadata did not.
    #[must_use]
    pub fn is_of_metadata(self) -> bool {
        matches!(self, Code::MetadataLost | Code::MetadataNoSpace | Code::MetadataIo)
    }

    /// There is no connection: it never came to be, or it was lost.
    #[must_use]
    pub fn is_of_connection(self) -> bool {
        self == Code::Lost || (Code::ConnectionRefused as u8..=Code::ChangedKey as u8).contains(&(self as u8))
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
    /// An error whose reason is a system call's. One of ours that came where a system call's was expected is that one: it says
    /// itself what was being done.
    #[must_use]
    pub fn os(op: Op, path: impl Into<PathBuf>, source: io::Error) -> Error {
        Error::carried(source).unwrap_or_else(|source| Error {
            code: Code::of(&source),
            op,
            path: path.into(),
            other: None,
            note: None,
            source: Some(source),
        })
    }

    /// The error of ours that `source` is, if it is one.
    ///
    /// # Errors
    /// It is a system call's.
    pub(crate) fn carried(source: io::Error) -> std::result::Result<Error, io::Error> {
        source.downcast::<Error>()
    }

    /// An error whose reason is ours.
    #[must_use]
    pub fn ours(code: Code, op: Op, path: impl Into<PathBuf>, note: impl Into<Note>) -> Error {
        Error { code, op, path: path.into(), other: None, note: Some(note.into()), source: None }
    }

    /// Whether this is why.
    pub(crate) fn is_noted(&self, reason: Reason) -> bool {
        self.note.as_ref().is_some_and(|note| note.reason == reason)
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
    use crate::fault::{Fault, Side};

    #[test]
    fn numbers_stay_and_names_are_plain() {
        let numbers: Vec<u16> = Code::ALL.iter().map(|code| code.number()).collect();
        assert_eq!(numbers, (1..=30).collect::<Vec<_>>());
        for code in Code::ALL {
            assert_eq!(Code::of_number(code.number()), *code);
            assert!(code.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", code.name());
        }
        for stranger in [0, 31, 99, 107, u16::MAX] {
            assert_eq!(Code::of_number(stranger), Code::Io, "{stranger}");
        }
        let earlier = [101, 102, 103, 104, 105, 106].map(Code::of_number);
        let now = [Code::Protocol, Code::Lost, Code::Limit, Code::Unsupported, Code::Unreachable, Code::Io];
        assert_eq!(earlier, now, "as the greeting of earlier builds numbered them");
    }

    /// Its words are for developers: it must not be the reason of another one.
    #[test]
    fn an_error_that_is_one_already_is_passed_on() {
        let lost = || Error::ours(Code::Lost, Op::TalkTo, "far", Reason::ClosedByPeer);
        let told = Error::os(Op::SendToTheOtherSide, "", io::Error::other(lost()));
        assert_eq!(
            (told.code, told.op, told.note, told.source.is_some()),
            (Code::Lost, Op::TalkTo, lost().note, false)
        );
        let fault =
            Fault::os(Side::Dest, Op::Write, io::Error::other(lost())).told(PathBuf::new, PathBuf::new);
        assert_eq!((fault.op, fault.note, fault.source.is_some()), (Op::TalkTo, lost().note, false));
        // The twin: a system call's stays what it is.
        let e = Error::os(Op::Write, "f", io::Error::from_raw_os_error(libc_errno::ENOSPC));
        assert_eq!((e.code, e.op, e.source.is_some()), (Code::NoSpace, Op::Write, true));
    }

    #[test]
    fn only_what_waits_for_the_other_side_loses_it() {
        let of = |e: io::Error| Code::of(&e);
        assert_eq!(of(io::ErrorKind::ConnectionAborted.into()), Code::Lost);
        // What a file system in user space answers when it was aborted.
        assert_eq!(of(io::Error::from_raw_os_error(libc_errno::ECONNABORTED)), Code::Io);
    }
}
