//! What handles messages of a transfer, as the threads that take them off the streams see it.
//!
//! Must not know which messages there are, nor what becomes of them.

use crate::chunks::Span;
use crate::codec::{InFrame, Unpacker};
use crate::error::{Reason, Result};
use crate::event::{Summary, Watch};
use crate::peer::incoming::{Incoming, refused};
use crate::receiver::arriving::Load;
use crate::receiver::directories::Marks;
use bcmr_wire::limits;
use bcmr_wire::message::{Codec, Message, Patch, Piece, Run, data};

/// What a piece says of itself.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub(crate) file: u64,
    pub(crate) at: u64,
    pub(crate) flags: u8,
    pub(crate) cv: Option<[u8; 32]>,
    pub(crate) length: u64,
}

/// Takes a piece out of its frame: what it says of itself, and its bytes unpacked. `Err(start)`: they are in the
/// frame as they are, from `start` of its payload on.
pub(crate) fn unload(
    unpacker: &mut Unpacker,
    piece: &Piece<'_>,
    payload: &[u8],
) -> Result<(Head, std::result::Result<Load, usize>)> {
    let Piece { file, at, flags, cv, length, .. } = *piece;
    let head = Head { file, at, flags, cv, length };
    if flags & data::ZEROS != 0 {
        return Ok((head, Ok(Load::Zeros)));
    }
    if piece.codec == Codec::Raw {
        if piece.bytes.len() as u64 != length {
            return Err(refused(Reason::PieceOfOtherLength));
        }
        return Ok((head, Err(payload.len() - piece.bytes.len())));
    }
    let (mut bytes, most) = (Vec::new(), limits::PIECE_BYTES_MAX as usize);
    let unpacked = match InFrame::of(flags) {
        Some(part) => unpacker.unpack_part((part, (file, at)), piece.bytes, length, most, &mut bytes),
        None => unpacker.unpack(piece.codec, piece.bytes, length, most, &mut bytes),
    };
    unpacked.map_err(|e| refused(Reason::BadPiece.about(e.to_string())))?;
    Ok((head, Ok(Load::Bytes { buffer: Box::new(bytes), start: 0 })))
}

/// The same for a patch.
pub(crate) fn unload_patch(unpacker: &mut Unpacker, patch: &Patch<'_>) -> Result<(Head, Load)> {
    let (length, most) = (patch.length(), limits::PIECE_BYTES_MAX as usize);
    let mut carried = Vec::new();
    unpacker
        .unpack(patch.codec, patch.bytes, patch.carried(), most, &mut carried)
        .map_err(|e| refused(Reason::BadPiece.about(e.to_string())))?;
    let mut at = patch.at;
    let span = |run: &Run| {
        let span = Span { at, bytes: run.bytes, from: run.from };
        at += run.bytes;
        span
    };
    let spans = patch.runs.iter().map(span).collect();
    let flags = if patch.cv.is_some() { data::ENDS_BLOCK } else { 0 };
    let head = Head { file: patch.file, at: patch.at, flags, cv: patch.cv, length };
    Ok((head, Load::Patch { spans, carried }))
}

/// Gives what the sender says next to a function, if it says something within a moment.
pub(crate) type NextMessage<'n> = dyn FnMut(&mut dyn FnMut(Message<'_>) -> Result<()>) -> Result<()> + 'n;

/// What each thread that receives keeps for itself.
pub(crate) struct ReceiverBuffers<B> {
    pub(crate) of_destination: B,
    pub(crate) unpacker: Unpacker,
}

/// Handles what comes off the streams.
pub(crate) trait MessageHandler: Sync + Sized {
    /// What the destination keeps for each thread.
    type Buffers;
    /// Where it is told, and what may stop it.
    fn watch(&self) -> Watch<'_>;
    /// What was asked for.
    fn what(&self) -> &Incoming;
    /// What a thread that handles messages needs.
    fn buffers(&self) -> ReceiverBuffers<Self::Buffers>;
    /// One message, but no [`Message::Data`].
    ///
    /// # Errors
    /// When the sender broke the protocol, or cannot be answered: the transfer is over. What happens to single items is
    /// told to the watch.
    fn handle(&self, worker: &mut ReceiverBuffers<Self::Buffers>, message: Message<'_>) -> Result<()>;
    /// A piece of a large file.
    ///
    /// # Errors
    /// As [`MessageHandler::handle`].
    fn piece(&self, stream: usize, head: &Head, load: Load) -> Result<()>;
    /// Settles large files, one after the other, until the sender has sent everything. Runs in a thread of its own.
    ///
    /// # Errors
    /// As [`MessageHandler::handle`].
    fn land_large(&self) -> Result<()>;
    /// Whether the sender has said that it is done.
    fn is_complete(&self) -> bool;
    /// The transfer has failed: called at once, from any thread, so that none goes on waiting for what does not come.
    fn lose(&self) {}
    /// Nothing more comes, for whatever reason.
    fn leave(&self, worker: &mut ReceiverBuffers<Self::Buffers>);
    /// After [`MessageHandler::leave`] and the end of [`MessageHandler::land_large`]: says what was done, and gives the
    /// marks that are to be cleared once that was heard. `cut_short` when the connection was lost: not all that was to be
    /// done was. `next` is what the sender still says; what breaks the transfer then comes back too.
    fn end(self, cut_short: bool, next: &mut NextMessage<'_>) -> (Summary, Marks, Result<()>);
}
