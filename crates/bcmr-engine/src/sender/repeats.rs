//! Contents of small files that were sent before in the same transfer: of one that comes again its hash is enough.
//!
//! Must not know what is sent, nor whether the receiver has it still: one that has not asks for the content.

use crate::blocks::{REPEAT_BYTES_MIN, hash_key};
use bcmr_wire::limits::{REPEATS_MAX, STREAMS_MAX};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The beginning of a content's hash: enough, as a receiver that has no such file asks.
type ContentKey = u64;

/// What was sent, as far as there is room, and a bit for each stream that it went over. What goes over another one may overtake
/// it, and would have to be asked for.
pub(super) struct SentContents(Option<Mutex<HashMap<ContentKey, u64>>>);

const _: () = assert!(STREAMS_MAX < u64::BITS as u64);

/// Contents of a batch that is being made, and the stream that it is about to take. Others know of them once they are sent.
#[derive(Default)]
pub(super) struct BatchContents {
    stream: usize,
    keys: Vec<ContentKey>,
}

impl BatchContents {
    /// Nothing is in it yet.
    pub(super) fn begin(&mut self, stream: usize) {
        self.keys.clear();
        self.stream = stream;
    }
}

impl SentContents {
    /// Nothing was sent yet. Without `agreed` every content goes as it is.
    pub(super) fn new(agreed: bool) -> SentContents {
        SentContents(agreed.then(Mutex::default))
    }

    /// Whether a content of `bytes` bytes goes before this one, in the same batch or over the same stream. Else it is taken note of.
    pub(super) fn has(&self, hash: &[u8; 32], bytes: u64, batch: &mut BatchContents) -> bool {
        let Some(sent) = self.0.as_ref().filter(|_| bytes >= REPEAT_BYTES_MIN) else { return false };
        let key = hash_key(hash);
        let sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
        let went = sent.get(&key).is_some_and(|streams| streams >> batch.stream & 1 == 1);
        let goes = went || batch.keys.contains(&key);
        if !goes {
            batch.keys.push(key);
        }
        goes
    }

    /// A batch was sent over `stream`.
    pub(super) fn add(&self, batch: &mut BatchContents, stream: usize) {
        let Some(sent) = self.0.as_ref().filter(|_| !batch.keys.is_empty()) else { return };
        let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
        for key in batch.keys.drain(..) {
            if sent.len() < REPEATS_MAX || sent.contains_key(&key) {
                *sent.entry(key).or_default() |= 1 << stream;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_known_and_so_many() {
        let (sent, mut batch) = (SentContents::new(true), BatchContents::default());
        let hash = |n: u64| *blake3::hash(&n.to_le_bytes()).as_bytes();
        assert!(!sent.has(&hash(0), REPEAT_BYTES_MIN, &mut batch));
        assert!(sent.has(&hash(0), REPEAT_BYTES_MIN, &mut batch), "in the same batch");
        assert!(!sent.has(&hash(0), REPEAT_BYTES_MIN - 1, &mut batch), "what is short is sent");
        let mut other = BatchContents::default();
        assert!(!sent.has(&hash(0), REPEAT_BYTES_MIN, &mut other), "it may yet go before that");
        sent.add(&mut batch, 0);
        other.begin(0);
        assert!(sent.has(&hash(0), REPEAT_BYTES_MIN, &mut other));
        other.begin(1);
        assert!(!sent.has(&hash(0), REPEAT_BYTES_MIN, &mut other), "it may overtake that");
        sent.add(&mut other, STREAMS_MAX as usize);
        other.begin(STREAMS_MAX as usize);
        assert!(sent.has(&hash(0), REPEAT_BYTES_MIN, &mut other));
        for n in 1..=REPEATS_MAX as u64 {
            batch.begin(0);
            assert!(!sent.has(&hash(n), REPEAT_BYTES_MIN, &mut batch));
            sent.add(&mut batch, 0);
        }
        assert!(sent.has(&hash(1), REPEAT_BYTES_MIN, &mut batch), "the first ones stay");
        assert!(
            !sent.has(&hash(REPEATS_MAX as u64), REPEAT_BYTES_MIN, &mut batch),
            "there was no room for it"
        );
        let (without, mut batch) = (SentContents::new(false), BatchContents::default());
        assert!((0..2).all(|_| !without.has(&hash(0), REPEAT_BYTES_MIN, &mut batch)));
    }
}
