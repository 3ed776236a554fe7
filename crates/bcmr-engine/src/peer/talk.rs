//! One message at a time: a request, its answer, and how the other machine's paths are shown.
//!
//! Must not know what is asked.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::Cancel;
use crate::remote::Address;
use crate::transport::conn::{FrameBuf, Heard, Packet};
use crate::transport::stream::Stream;
use crate::transport::{self, Peer};
use crate::trouble::error_of;
use bcmr_wire::message::{Entry, Message, Trouble};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a cancel is looked for while an answer is waited for.
const LOOK: Duration = Duration::from_millis(100);

/// A connection that has lost its streams.
pub(super) fn no_stream(address: &Address) -> Error {
    Error::ours(Code::Lost, Op::TalkTo, &address.host, Reason::NoStream)
}

/// What goes before a path of the other machine when it is shown.
pub(super) fn prefix(address: &Address) -> String {
    match &address.user {
        Some(user) => format!("{user}@{}:", address.host),
        None => format!("{}:", address.host),
    }
}

/// A path of the other machine as it is shown.
pub(crate) fn shown_path(address: &Address, path: &Path) -> PathBuf {
    let mut shown = OsString::from(prefix(address));
    shown.push(path);
    shown.into()
}

/// What the other machine says went wrong there, with its path as it is shown.
pub(super) fn error_there(address: &Address, trouble: &Trouble<'_>) -> Error {
    blamed_on(&prefix(address), error_of(trouble))
}

/// The same, of the one whose paths have this `prefix`. What has no path is about the whole of it.
pub(super) fn blamed_on(prefix: &str, e: Error) -> Error {
    let mut path = OsString::from(prefix);
    if e.path.as_os_str().is_empty() {
        path = prefix.strip_suffix(':').unwrap_or(prefix).into();
    }
    path.push(&e.path);
    Error { path: path.into(), ..e }
}

/// Sends one message on the first stream.
pub(super) fn send(peer: &Peer, message: &Message<'_>) -> Result<()> {
    send_frames(peer, transport::frames_of(message)?)
}

/// Whole frames, or none.
pub(super) fn send_frames(peer: &Peer, frames: Vec<u8>) -> Result<()> {
    if frames.is_empty() {
        return Ok(());
    }
    let Some(stream) = peer.streams.first() else {
        return Err(Error::ours(Code::Lost, Op::TalkTo, &peer.name, Reason::NoStream));
    };
    stream.out.send(Packet::Frames(frames)).map_err(Error::from)
}

/// Whether nothing has this name over there.
pub(super) fn is_absent(peer: &Peer, path: &Path, cancel: &Cancel) -> Result<bool> {
    send(peer, &Message::Stat { path: path.as_os_str().as_bytes(), follow: true })?;
    let frame = await_answer(peer, cancel)?;
    // What else may be wrong with it is told when it is the target.
    Ok(matches!(frame.message()?, Message::Error(trouble) if error_of(&trouble).code == Code::NotFound))
}

/// Asks about something below `address`, and gives what the answer says of it to `take`.
///
/// # Errors
/// There is no answer, or it is an error, with the path as it is shown; or those of `take`.
pub(super) fn ask_info<T>(
    peer: &Peer,
    address: &Address,
    question: &Message<'_>,
    cancel: &Cancel,
    take: impl FnOnce(&Entry<'_>) -> Result<T>,
) -> Result<T> {
    send(peer, question)?;
    let frame = await_answer(peer, cancel)?;
    match frame.message()? {
        Message::Info(entry) => take(&entry),
        Message::Error(trouble) => Err(error_there(address, &trouble)),
        _ => Err(unexpected(address)),
    }
}

/// An answer that is none to what was asked.
pub(super) fn unexpected(address: &Address) -> Error {
    Error::ours(Code::Protocol, Op::TalkTo, &address.host, Reason::AnswerToAnother)
}

/// Waits for the answer to a request, unless the user stops it.
pub(super) fn await_answer(peer: &Peer, cancel: &Cancel) -> Result<FrameBuf> {
    let lost = || Error::ours(Code::Lost, Op::TalkTo, &peer.name, Reason::ConnectionClosed);
    let Some(stream) = peer.streams.first() else { return Err(lost()) };
    loop {
        match stream.inbox.recv_timeout(LOOK)? {
            Heard::Frame(frame) => return Ok(frame),
            Heard::Ended => return Err(lost()),
            Heard::Nothing if cancel.is_set() => {
                return Err(Error::ours(Code::Interrupted, Op::TalkTo, &peer.name, Reason::Interrupted));
            }
            Heard::Nothing => {}
        }
    }
}

/// Questions about paths over there: what goes behind the greeting, and what only once it is answered. Before that the peer
/// is not known to be a bcmr: an account's own command may be a shell that reads what comes, and only in a plain path
/// is there nothing for it to do.
pub(super) fn split_by_greeting(paths: &[Address], questions: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    const LONGEST: usize = 4096;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || !b.is_ascii() || b"._-+/@:,".contains(b);
    let goes_early = |address: &Address| {
        let path = address.path.as_os_str().as_bytes();
        path.len() <= LONGEST && path.iter().all(plain)
    };
    if paths.iter().all(goes_early) { (questions, Vec::new()) } else { (Vec::new(), questions) }
}

/// One stream's way out, for a server's answers.
pub(super) fn answer(stream: &Stream, message: &Message<'_>) -> Result<()> {
    stream.out.send(Packet::Frames(transport::frames_of(message)?)).map_err(Error::from)
}
