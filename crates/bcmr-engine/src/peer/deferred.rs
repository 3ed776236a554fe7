//! Frames of stream 0 that wait while the client's user is asked: answers go to whom they are for, the rest in order.
//!
//! Must not know what is done with any frame.

use super::questions::RemoteQuestions;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::pulse::{For, Pulse};
use crate::transport::conn::{FrameBuf, Heard};
use crate::transport::stream::Inbox;
use bcmr_wire::message::{Message, kind};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often flags are looked at while nothing comes.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of frames that may wait.
const DEFERRED_BYTES_MAX: usize = 64 << 20;

/// A frame, the end of the stream, or what broke it.
type Received = Result<Option<FrameBuf>>;

/// Frames in their order.
#[derive(Default)]
pub(super) struct DeferredFrames {
    queue: Mutex<Queue>,
    change: Condvar,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Received>,
    bytes: usize,
}

/// What a frame takes in memory.
fn bytes_of(frame: &FrameBuf) -> usize {
    frame.payload().len() + 64
}

impl Queue {
    fn pop(&mut self) -> Option<Result<Heard>> {
        Some(match self.frames.pop_front()? {
            Ok(Some(frame)) => {
                self.bytes = self.bytes.saturating_sub(bytes_of(&frame));
                Ok(Heard::Frame(frame))
            }
            Ok(None) => Ok(Heard::Ended),
            Err(e) => Err(e),
        })
    }
}

impl DeferredFrames {
    /// Puts a frame behind the others. `false`: there were too many, and the error of that stands there instead.
    fn put(&self, frame: Received) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.bytes += frame.as_ref().ok().and_then(|f| f.as_ref()).map_or(0, bytes_of);
        let within = queue.bytes <= DEFERRED_BYTES_MAX;
        let frame = if within {
            frame
        } else {
            Err(Error::ours(Code::Protocol, Op::Receive, "", Reason::TooMuchDuringQuestion))
        };
        queue.frames.push_back(frame);
        self.change.notify_all();
        within
    }

    /// The next one.
    pub(super) fn take(&self, pulse: &Pulse) -> Result<Heard> {
        let _waits = pulse.waits_for(For::Frame);
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.change.wait_timeout_while(queue, LOOK, |q| q.frames.is_empty());
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        queue.pop().unwrap_or(Ok(Heard::Nothing))
    }

    /// One that is there already.
    pub(super) fn waiting(&self) -> Option<Result<Heard>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// No answer comes any more, however that came about: dropping this ends the wait for one.
struct EndsQuestions<'a>(&'a RemoteQuestions);

impl Drop for EndsQuestions<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Receives stream 0 until the last frame of the transfer: answers go to `questions`, everything else waits in
/// `deferred`.
pub(super) fn forward_answers(
    inbox: &Inbox,
    deferred: &DeferredFrames,
    questions: &RemoteQuestions,
    over: &AtomicBool,
) {
    let _end = EndsQuestions(questions);
    while !over.load(Ordering::Relaxed) {
        let heard = match inbox.recv_timeout(LOOK) {
            Ok(Heard::Nothing) => continue,
            Ok(Heard::Frame(frame)) => {
                let answer = match frame.message() {
                    Ok(Message::Answer { id, yes }) => Some((id, yes)),
                    _ => None,
                };
                if let Some((id, yes)) = answer {
                    if questions.answer(id, yes) {
                        continue;
                    }
                    let note = Reason::NotSendersMessage.about("Answer");
                    deferred.put(Err(Error::ours(Code::Protocol, Op::Receive, "", note)));
                    return;
                }
                // What follows belongs to the next request.
                let last = matches!(frame.kind(), kind::ALL_SENT | kind::CANCEL);
                if !deferred.put(Ok(Some(frame))) || last {
                    return;
                }
                continue;
            }
            Ok(Heard::Ended) => Ok(None),
            Err(e) => Err(e),
        };
        deferred.put(heard);
        return;
    }
}
