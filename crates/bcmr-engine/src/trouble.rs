//! Errors on their way to and from another machine. Must not know how any of it is shown: the words of another machine
//! are escaped by whoever does.

use crate::error::{Code, Error};
use bcmr_wire::message::Trouble;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes of a text that are worth sending.
const TEXT_BYTES: usize = 2000;
/// Bytes of a path that are worth sending: only shown, and a longer one is shown to nobody's use.
const PATH_BYTES: usize = 16 << 10;

/// An error in the form it has on the wire.
pub(crate) struct TroubleBuf {
    code: u16,
    op: Cow<'static, str>,
    path: Vec<u8>,
    note: String,
    errno: u32,
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

impl TroubleBuf {
    pub(crate) fn of(error: &Error) -> TroubleBuf {
        let errno = error.source.as_ref().and_then(io::Error::raw_os_error);
        let errno = errno.and_then(|e| u32::try_from(e).ok()).unwrap_or(0);
        let note = match (&error.note, &error.source) {
            (Some(note), _) => cut(note).to_owned(),
            (None, Some(source)) if errno == 0 => cut(&source.to_string()).to_owned(),
            _ => String::new(),
        };
        let op =
            if error.op.len() > TEXT_BYTES { cut(&error.op).to_owned().into() } else { error.op.clone() };
        let path = error.path.as_os_str().as_bytes().iter().copied().take(PATH_BYTES).collect();
        TroubleBuf { code: u16::from(error.code as u8), op, path, note, errno }
    }

    /// Where the other side knows what it is about.
    pub(crate) fn forget_path(&mut self) {
        self.path.clear();
    }

    pub(crate) fn trouble(&self) -> Trouble<'_> {
        Trouble {
            code: self.code,
            op: self.op.as_bytes(),
            path: &self.path,
            note: self.note.as_bytes(),
            errno: self.errno,
        }
    }
}

/// What the other side said went wrong there.
pub(crate) fn error_of(trouble: &Trouble<'_>) -> Error {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let errno = i32::try_from(trouble.errno).unwrap_or(0);
    Error {
        // Whoever says that nobody is there is there: only who could not connect may say so, as then nothing was done.
        code: Some(Code::of_number(trouble.code)).filter(|c| *c != Code::NoPeer).unwrap_or(Code::Protocol),
        op: text(trouble.op).into(),
        path: PathBuf::from(OsStr::from_bytes(trouble.path)),
        other: None,
        note: (!trouble.note.is_empty()).then(|| text(trouble.note)),
        source: (errno > 0).then(|| io::Error::from_raw_os_error(errno)),
    }
}
