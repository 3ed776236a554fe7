//! Errors and notes on their way to and from another machine, as numbers with what they speak of. Must not know how any
//! of it is shown: the words of another machine are escaped where it is shown.

use crate::error::{About, Code, Error, Note, Op, Reason};
use bcmr_wire::limits::ABOUT_MAX;
use bcmr_wire::message::{self, Trouble};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes of a text that are worth sending.
const TEXT_BYTES: usize = 2000;
/// Bytes of a path that are worth sending: only shown, and a longer one is of no use.
const PATH_BYTES: usize = 16 << 10;

/// An error in the form it has on the wire.
pub(crate) struct TroubleBuf {
    code: u16,
    op: u16,
    path: Vec<u8>,
    note: NoteBuf,
    errno: u32,
}

/// A note in the form it has on the wire: a reason, 0 where there is none, and what it speaks of.
#[derive(Default)]
pub(crate) struct NoteBuf {
    reason: u16,
    about: Vec<(u16, String)>,
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

impl NoteBuf {
    pub(crate) fn of(note: &Note) -> NoteBuf {
        let about = note.about.iter().take(ABOUT_MAX).map(|about| match about {
            About::Text(text) => (0, cut(text).to_owned()),
            // A reason within a reason goes with the first thing that it speaks of: no more is worth a nesting.
            About::Note(inner) => {
                let text = inner.about.iter().find_map(|about| match about {
                    About::Text(text) => Some(cut(text).to_owned()),
                    About::Note(_) => None,
                });
                (inner.reason.number(), text.unwrap_or_default())
            }
        });
        NoteBuf { reason: note.reason.number(), about: about.collect() }
    }

    pub(crate) fn note(&self) -> message::Note<'_> {
        let about = self.about.iter().map(|(reason, text)| (*reason, text.as_bytes()));
        message::Note { reason: self.reason, about: about.collect() }
    }
}

impl TroubleBuf {
    pub(crate) fn of(error: &Error) -> TroubleBuf {
        let errno = error.source.as_ref().and_then(io::Error::raw_os_error);
        let errno = errno.and_then(|e| u32::try_from(e).ok()).unwrap_or(0);
        let note = match (&error.note, &error.source) {
            (Some(note), _) => NoteBuf::of(note),
            (None, Some(source)) if errno == 0 => NoteBuf::of(&source.to_string().into()),
            _ => NoteBuf::default(),
        };
        let path = match error.op {
            // It names the other side, who is the one that reads it.
            Op::TalkTo => Vec::new(),
            _ => error.path.as_os_str().as_bytes().iter().copied().take(PATH_BYTES).collect(),
        };
        TroubleBuf { code: error.code.number(), op: error.op.number(), path, note, errno }
    }

    /// Where the other side knows what it is about.
    pub(crate) fn forget_path(&mut self) {
        self.path.clear();
    }

    pub(crate) fn trouble(&self) -> Trouble<'_> {
        Trouble { code: self.code, op: self.op, path: &self.path, note: self.note.note(), errno: self.errno }
    }
}

/// A note of another machine; `None` where it gives none.
pub(crate) fn note_of(note: &message::Note<'_>) -> Option<Note> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let about = note.about.iter().map(|(number, bytes)| match (number, bytes) {
        (0, bytes) => About::Text(text(bytes)),
        (number, []) => Reason::of_number(*number).into(),
        (number, bytes) => Reason::of_number(*number).about(text(bytes)).into(),
    });
    (note.reason != 0).then(|| Note { reason: Reason::of_number(note.reason), about: about.collect() })
}

/// What the other side said went wrong there.
pub(crate) fn error_of(trouble: &Trouble<'_>) -> Error {
    let errno = i32::try_from(trouble.errno).unwrap_or(0);
    Error {
        // A peer that says that there is no peer is there: only a client that could not connect may say so, as then nothing
        // was done.
        code: Some(Code::of_number(trouble.code)).filter(|c| *c != Code::NoPeer).unwrap_or(Code::Protocol),
        op: Op::of_number(trouble.op),
        path: PathBuf::from(OsStr::from_bytes(trouble.path)),
        other: None,
        note: note_of(&trouble.note),
        source: (errno > 0).then(|| io::Error::from_raw_os_error(errno)),
    }
}

/// A content that the sender could not read. Its receiver tells it, whose own files are read as well: so it says which it is.
pub(crate) fn unreadable(trouble: &Trouble<'_>, path: PathBuf) -> Error {
    Error { op: Op::ReadSource, path, ..error_of(trouble) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection's error names the other side, and that is the one which is told.
    #[test]
    fn who_is_told_is_not_named() {
        let e = Error::ours(Code::Protocol, Op::TalkTo, "the client", Reason::NoGreeting);
        let told = error_of(&TroubleBuf::of(&e).trouble());
        assert_eq!((told.op, told.path, told.note), (Op::TalkTo, PathBuf::new(), e.note));
    }

    #[test]
    fn what_is_said_arrives_as_it_was() {
        let stalled = Reason::Stalled.about(7_usize).about(Reason::WaitsForRoom).about(Reason::PeerWorks);
        for note in [
            Some(Reason::IsDirectory.into()),
            Some(stalled),
            Some("words".to_owned().into()),
            Some(Reason::Line.about(3_usize).about(Reason::Said.about("x"))),
            Some(Note { reason: Reason::Unknown(60_000), about: vec!["a".into(), "b".into()] }),
            None,
        ] {
            let sent = Error {
                code: Code::Denied,
                op: Op::OpenDirectory,
                path: "p".into(),
                other: None,
                note,
                source: Some(io::Error::from_raw_os_error(13)),
            };
            let buf = TroubleBuf::of(&sent);
            let came = error_of(&buf.trouble());
            assert_eq!((came.code, came.op, &came.path), (sent.code, sent.op, &sent.path));
            assert_eq!(came.note, sent.note);
            assert_eq!(came.source.and_then(|e| e.raw_os_error()), Some(13));
        }
    }

    #[test]
    fn what_only_a_newer_version_knows_is_carried() {
        let note = message::Note { reason: 60_001, about: vec![(0, b"a"), (60_002, b"b")] };
        let trouble = Trouble { code: 9000, op: 60_003, path: b"p", note, errno: 0 };
        let came = error_of(&trouble);
        assert_eq!((came.code, came.op), (Code::Io, Op::Unknown(60_003)));
        let want = Reason::Unknown(60_001).about("a").about(Reason::Unknown(60_002).about("b"));
        assert_eq!(came.note, Some(want));
    }
}
