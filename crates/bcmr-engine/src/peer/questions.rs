//! Questions that a receiving server asks the user of its client.
//!
//! Must not know how the user is asked.

use crate::peer::reply::Reply;
use crate::pulse::For;
use bcmr_wire::message::Message;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often flags are looked at while no answer comes.
const LOOK: Duration = Duration::from_millis(100);

/// Questions that the client's user answers.
#[derive(Default)]
pub(crate) struct RemoteQuestions {
    next: AtomicU64,
    /// Questions that wait, with what was answered: no more than the threads that ask.
    waiting: Mutex<HashMap<u64, Option<bool>>>,
    /// No answer comes any more.
    over: AtomicBool,
    change: Condvar,
}

impl RemoteQuestions {
    /// The answer to the question `id` has come. `false`: no question waits for it, and the one that does would wait for
    /// ever.
    pub(super) fn answer(&self, id: u64, yes: bool) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slot @ None) = waiting.get_mut(&id) else { return false };
        *slot = Some(yes);
        drop(waiting);
        self.change.notify_all();
        true
    }

    /// No answer comes any more.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.change.notify_all();
    }

    /// Asks whether `path` is to be replaced and waits for the answer; no answer is a no.
    pub(super) fn ask(&self, reply: &Reply, path: &Path) -> bool {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, None);
        let sent = reply.send(&Message::Ask { id, path: path.as_os_str().as_bytes() }).is_ok();
        let _waits = reply.pulse.waits_for(For::Answer);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let answer = waiting.get(&id).copied().flatten();
            if answer.is_some() || !sent || self.over.load(Ordering::Relaxed) {
                waiting.remove(&id);
                return answer.unwrap_or(false);
            }
            let waited = self.change.wait_timeout(waiting, LOOK);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_a_question_that_waits() {
        let questions = RemoteQuestions::default();
        assert!(!questions.answer(1, true), "nothing was asked");
        questions.waiting.lock().unwrap().insert(1, None);
        assert!(!questions.answer(2, true), "another was asked");
        assert!(questions.answer(1, true) && !questions.answer(1, false), "once");
    }
}
