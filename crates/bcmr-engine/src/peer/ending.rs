//! The last messages of a transfer: waiting until the other side has acknowledged its end on every stream.
//!
//! Must not know how the transfer went.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::transport::conn::Heard;
use crate::transport::stream::Stream;
use bcmr_wire::message::kind;
use bcmr_wire::state::State;
use std::time::{Duration, Instant};

/// How long the other side's last message is waited for.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// After a transfer that was refused before it began: drops what still comes until the other side has answered on every
/// stream, so that the connection can be used again.
///
/// # Errors
/// It has not, within the time, or something else came.
pub(crate) fn end_refused(streams: &[Stream]) -> Result<()> {
    let ended = streams.first().map(Stream::state);
    let beside = if ended == Some(State::SendEnded) { State::SendsBeside } else { State::ReceivesBeside };
    streams.iter().skip(1).for_each(|stream| stream.enter(beside));
    let done = drain_until_done(streams)?;
    if done.iter().all(|done| *done) { Ok(()) } else { Err(unanswered(streams)) }
}

/// The other side has not acknowledged how a transfer ended.
pub(crate) fn unanswered(streams: &[Stream]) -> Error {
    let why = Reason::LastMessageUnanswered;
    let nobody = || Error::ours(Code::Lost, Op::TalkTo, "", why);
    streams.first().map_or_else(nobody, |first| first.inbox.lost(why))
}

/// Drops what still comes until the other side has said its last message, or for so long. Whether that came, stream by
/// stream.
///
/// # Errors
/// What came has no place there.
pub(super) fn drain_until_done(streams: &[Stream]) -> Result<Vec<bool>> {
    let until = Instant::now() + LAST_WORDS;
    let mut ended = Vec::new();
    for stream in streams {
        let done = loop {
            let left = until.saturating_duration_since(Instant::now());
            // Frames that are there already come out even when no time is left: a peer that sends on and on is not waited for.
            if left.is_zero() {
                break false;
            }
            match stream.inbox.recv_timeout(left) {
                Ok(Heard::Frame(frame)) if frame.kind() == kind::DONE => break true,
                Ok(Heard::Frame(_)) => {}
                Err(e) if e.code == Code::Protocol => return Err(e),
                _ => break false,
            }
        };
        ended.push(done);
    }
    Ok(ended)
}
