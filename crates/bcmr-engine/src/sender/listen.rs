//! What the receiver sends back: handled until its last message.
//!
//! Must not know what the workers do.

use crate::error::{Code, Error, Op, Reason};
use crate::pulse::For;
use crate::sender::large::{Breach, breach};
use crate::sender::out::{Counted, Fed, Feed};
use crate::sender::schedule::StopReason;
use crate::sender::sending::Sending;
use crate::sender::taking::take_away;
use bcmr_wire::message::Message;
use std::cell::Cell;
use std::time::Duration;

/// How often the cancel flag is looked at while nothing comes.
const LOOK: Duration = Duration::from_millis(100);

/// Receives for one transfer.
pub(super) struct AnswerListener<'s, 'a>(pub(super) &'s Sending<'a>);

/// Whether more is to come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    Yes,
    /// That was the last message.
    No,
}

impl From<Breach> for StopReason {
    fn from(Breach(e): Breach) -> StopReason {
        StopReason::Broken(e)
    }
}

impl AnswerListener<'_, '_> {
    /// Handles messages until the last, or until the transfer is over.
    pub(super) fn listen(&self, feed: &mut dyn Feed) {
        let (schedule, gone) = (&self.0.schedule, Cell::default());
        while !schedule.is_done() {
            let mut handled = Ok(More::Yes);
            let waits = self.0.push.pulse.waits_for(For::Frame);
            let fed = feed.next(LOOK, &mut |kind, payload| {
                handled = self.handle(kind, payload, &gone);
            });
            drop(waits);
            match (fed, handled) {
                (Ok(Fed::Frame), Ok(More::Yes)) => {}
                (Ok(Fed::Frame), Ok(More::No)) => break,
                (Ok(Fed::Frame), Err(reason)) => {
                    let last = matches!(reason, StopReason::Refused(_)) && schedule.is_running();
                    schedule.stop(reason);
                    if last {
                        break;
                    }
                }
                (Ok(Fed::Nothing), _) => {
                    if self.0.push.cancel.is_set() {
                        schedule.stop(StopReason::Cancelled);
                    }
                }
                (Ok(Fed::Ended), _) => {
                    let note = Reason::ClosedByPeer;
                    schedule.stop(StopReason::Lost(Error::ours(Code::Lost, Op::Send, "", note)));
                    break;
                }
                (Err(e), _) => {
                    schedule.stop(StopReason::Lost(e));
                    break;
                }
            }
        }
        schedule.end_input();
    }

    /// Handles one message.
    fn handle(&self, kind: u8, payload: &[u8], gone: &Cell<(u64, u64)>) -> Result<More, StopReason> {
        let decoded = Message::decode(kind, payload);
        let message = decoded.map_err(|e| breach(e.to_string()))?;
        let (schedule, observer) = (&self.0.schedule, self.0.push.observer);
        match &message {
            Message::Landed { items, bytes } => {
                self.0.landed(*bytes);
                observer.landed(*items, *bytes);
            }
            Message::Gone { deleted, updated } => gone.set((*deleted, *updated)),
            Message::Report(event) => observer.report(event),
            Message::Error(trouble) => {
                schedule.peer_failed();
                return Err(StopReason::Refused(observer.peer_error(trouble)));
            }
            Message::Done => {
                let all = schedule.peer_done(self.0.push.outs.len())?;
                return Ok(if all { More::No } else { More::Yes });
            }
            Message::Cancel => schedule.stop(StopReason::PeerCancelled),
            Message::Summary { counts, codes, cancelled } => {
                let (counts, codes, cancelled) = (*counts, codes.clone(), *cancelled);
                let counted = Counted { counts, codes, cancelled, gone: gone.get() };
                schedule.summary(counted)?;
                return Ok(More::No);
            }
            Message::TakeAway { dir, names } => {
                take_away(self.0, *dir, names)?.map_err(StopReason::Lost)?;
            }
            other => {
                schedule.apply(other)?;
                if let Message::Resume { wanted: true, from, .. } = other
                    && self.0.push.policy.resume.has_sessions()
                {
                    self.0.there(*from);
                    observer.there(*from);
                }
            }
        }
        Ok(More::Yes)
    }
}
