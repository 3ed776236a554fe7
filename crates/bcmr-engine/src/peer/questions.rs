//! Questions that a receiving server asks the user of its client.
//!
//! Must not know how the user is asked.

use crate::peer::from_wire::Reply;
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
    answers: Mutex<HashMap<u64, bool>>,
    /// No answer comes any more.
    over: AtomicBool,
    change: Condvar,
}

impl RemoteQuestions {
    /// The answer to the question `id` has come.
    pub(super) fn answer(&self, id: u64, yes: bool) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(id, yes);
        self.change.notify_all();
    }

    /// No answer comes any more.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.change.notify_all();
    }

    /// Asks whether `path` is to be replaced and waits for the answer; no answer is a no.
    pub(super) fn ask(&self, reply: &Reply, path: &Path) -> bool {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        if reply.send(&Message::Ask { id, path: path.as_os_str().as_bytes() }).is_err() {
            return false;
        }
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(yes) = answers.remove(&id) {
                return yes;
            }
            if self.over.load(Ordering::Relaxed) {
                return false;
            }
            let waits = reply.pulse.waits_for(For::Answer);
            let waited = self.change.wait_timeout(answers, LOOK);
            drop(waits);
            answers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
