//! A message as one frame, and what is wrong with one that cannot be read. Must not know what carries frames.

use crate::error::{Code, Error, Note, Op, Reason};
use bcmr_wire::message::Message;

/// A message as one frame.
pub(crate) fn frames_of(message: &Message<'_>) -> Result<Vec<u8>, Error> {
    let mut frame = Vec::new();
    match message.encode(&mut frame) {
        Ok(()) => Ok(frame),
        Err(e) => Err(Error::ours(Code::Protocol, Op::Encode, "", bad_message(message.kind(), &e))),
    }
}

/// What stands behind the header of a single frame.
pub(crate) fn payload_of(frame: &[u8]) -> Vec<u8> {
    frame.get(bcmr_wire::limits::HEADER_BYTES..).unwrap_or_default().to_vec()
}

/// Why a message is none, or cannot be one.
pub(crate) fn bad_message(kind: u8, e: &bcmr_wire::Refused) -> Note {
    Reason::BadMessage.about(format!("{kind:#04x}")).about(e.to_string())
}
