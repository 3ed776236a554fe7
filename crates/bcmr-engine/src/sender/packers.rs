//! What packs content, lent to the threads of a transfer. There are as many threads as streams, and more than a few of them
//! never pack at the same time; the tables of a codec take more memory than what waits on a stream.
//!
//! Must not know what is packed, nor where it goes.

use crate::codec::Packer;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// So many pack at a time: more than the threads of a few streams, and than most machines have processors to spare.
const PACKERS_MAX: usize = 8;

/// Packs, and has room for what is to be packed.
#[derive(Default)]
pub(super) struct Packing {
    pub(super) packer: Packer,
    pub(super) raw: Vec<u8>,
}

#[derive(Default)]
struct Idle {
    idle: Vec<Packing>,
    lent: usize,
}

/// All of a transfer.
#[derive(Default)]
pub(super) struct Packers {
    state: Mutex<Idle>,
    back: Condvar,
}

impl Packers {
    /// Lends one, and waits for it where as many are lent as may be. What it lends is given back before anything else is
    /// waited for.
    pub(super) fn lend(&self) -> LentPacking<'_> {
        let mut state = self.state();
        while state.lent >= PACKERS_MAX {
            state = self.back.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.lent += 1;
        LentPacking { of: self, packing: state.idle.pop().unwrap_or_default() }
    }

    fn state(&self) -> MutexGuard<'_, Idle> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Given back when it is dropped.
pub(super) struct LentPacking<'p> {
    of: &'p Packers,
    packing: Packing,
}

impl Deref for LentPacking<'_> {
    type Target = Packing;
    fn deref(&self) -> &Packing {
        &self.packing
    }
}

impl DerefMut for LentPacking<'_> {
    fn deref_mut(&mut self) -> &mut Packing {
        &mut self.packing
    }
}

impl Drop for LentPacking<'_> {
    fn drop(&mut self) {
        let mut state = self.of.state();
        state.lent -= 1;
        state.idle.push(std::mem::take(&mut self.packing));
        drop(state);
        self.of.back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_than_may_be_and_they_come_back() {
        let packers = Packers::default();
        let mut lent: Vec<_> = (0..PACKERS_MAX).map(|_| packers.lend()).collect();
        std::thread::scope(|scope| {
            let (told, news) = std::sync::mpsc::channel();
            let packers = &packers;
            scope.spawn(move || {
                let late = packers.lend();
                told.send(late.raw.len()).unwrap();
            });
            assert!(news.try_recv().is_err(), "all are lent");
            // It gets this very one, and none is made for it.
            let mut one = lent.pop().unwrap();
            one.raw.extend_from_slice(b"abc");
            drop(one);
            assert_eq!(news.recv().unwrap(), 3);
        });
        drop(lent);
        let state = packers.state();
        assert_eq!((state.lent, state.idle.len()), (0, PACKERS_MAX));
    }
}
