//! What packs content, lent to the threads of a transfer. There are as many threads as streams, and more than a few of them
//! never pack at the same time; the tables of a codec take more memory than what waits on a stream.
//!
//! Must not know what is packed, nor where it goes.

use crate::codec::{Effort, FramePacker, Packer};
use bcmr_wire::message::{Codec, data};
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// So many pack at a time: more than the threads of a few streams, and than most machines have processors to spare.
const PACKERS_MAX: usize = 8;
/// So many blocks are packed as one frame at a time: those of up to two streams. Each takes as much memory as several pieces,
/// and over many streams there is less to win.
const FRAME_PACKERS_MAX: usize = 4;

/// Packs, and has room for what is to be packed.
#[derive(Default)]
pub(super) struct Packing {
    pub(super) packer: Packer,
    pub(super) raw: Vec<u8>,
}

/// Packs the pieces of one block, and has room for one of them.
#[derive(Default)]
pub(super) struct FramePacking {
    pub(super) packer: FramePacker,
    pub(super) raw: Vec<u8>,
}

/// All of a transfer.
pub(super) struct Packers {
    pub(super) pieces: Lending<Packing>,
    pub(super) frames: Lending<FramePacking>,
}

impl Default for Packers {
    fn default() -> Packers {
        Packers { pieces: Lending::new(PACKERS_MAX), frames: Lending::new(FRAME_PACKERS_MAX) }
    }
}

impl Packers {
    /// Lends what packs the next piece of a block: what those before it were packed with, in `frame`, or what begins a frame of
    /// several, where the other side takes them (`frames`) and there is one; else what packs one piece.
    pub(super) fn lend_for<'l, 'p>(
        &'p self,
        codec: Codec,
        frames: bool,
        frame: &'l mut Option<Loan<'p, FramePacking>>,
    ) -> PieceLoan<'l, 'p> {
        if codec != Codec::Zstd || !frames {
            return PieceLoan::Piece(self.pieces.lend());
        }
        if frame.is_none() {
            *frame = self.frames.lend_idle();
            if let Some(new) = frame {
                new.packer.begin();
            }
        }
        match frame {
            Some(packing) => PieceLoan::OfFrame(packing),
            None => PieceLoan::Piece(self.pieces.lend()),
        }
    }
}

/// What one piece is packed with.
pub(super) enum PieceLoan<'l, 'p> {
    Piece(Loan<'p, Packing>),
    OfFrame(&'l mut FramePacking),
}

impl PieceLoan<'_, '_> {
    /// What is to be packed.
    pub(super) fn raw(&mut self) -> &mut Vec<u8> {
        match self {
            PieceLoan::Piece(packing) => &mut packing.raw,
            PieceLoan::OfFrame(packing) => &mut packing.raw,
        }
    }

    /// What the piece at this place says of its frame.
    pub(super) fn flag(&self, at: u64) -> u8 {
        match self {
            PieceLoan::Piece(_) => 0,
            PieceLoan::OfFrame(packing) if packing.packer.goes_on(at) => data::GOES_ON,
            PieceLoan::OfFrame(_) => data::BEGINS_FRAME,
        }
    }

    /// Packs what lies at this place, see [`crate::codec::Packer::pack`].
    pub(super) fn pack(&mut self, codec: Codec, effort: Effort, at: u64, out: &mut Vec<u8>) -> bool {
        match self {
            PieceLoan::Piece(packing) => {
                let Packing { packer, raw } = &mut **packing;
                packer.pack(codec, effort, raw, out)
            }
            PieceLoan::OfFrame(FramePacking { packer, raw }) => packer.pack(effort, at, raw, out),
        }
    }
}

/// So many of something, made as they are needed.
pub(super) struct Lending<T> {
    most: usize,
    state: Mutex<Lent<T>>,
    back: Condvar,
}

struct Lent<T> {
    idle: Vec<T>,
    lent: usize,
}

impl<T: Default> Lending<T> {
    fn new(most: usize) -> Lending<T> {
        Lending { most, state: Mutex::new(Lent { idle: Vec::new(), lent: 0 }), back: Condvar::new() }
    }

    /// Lends one, and waits for it where as many are lent as may be. What it lends is given back before anything else is
    /// waited for.
    pub(super) fn lend(&self) -> Loan<'_, T> {
        let mut state = self.state();
        while state.lent >= self.most {
            state = self.back.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.hand_out(&mut state)
    }

    /// The same, but nothing where as many are lent as may be. Where all borrow so, no thread waits for another's loan, and it may
    /// be kept while something else is waited for.
    pub(super) fn lend_idle(&self) -> Option<Loan<'_, T>> {
        let mut state = self.state();
        (state.lent < self.most).then(|| self.hand_out(&mut state))
    }

    fn hand_out(&self, state: &mut Lent<T>) -> Loan<'_, T> {
        state.lent += 1;
        Loan { of: self, what: state.idle.pop().unwrap_or_default() }
    }

    fn state(&self) -> MutexGuard<'_, Lent<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Given back when it is dropped.
pub(super) struct Loan<'p, T: Default> {
    of: &'p Lending<T>,
    what: T,
}

impl<T: Default> Deref for Loan<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.what
    }
}

impl<T: Default> DerefMut for Loan<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.what
    }
}

impl<T: Default> Drop for Loan<'_, T> {
    fn drop(&mut self) {
        let mut state = self.of.state();
        state.lent -= 1;
        state.idle.push(std::mem::take(&mut self.what));
        drop(state);
        self.of.back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_than_may_be_and_they_come_back() {
        let lending = Lending::<Packing>::new(PACKERS_MAX);
        let mut lent: Vec<_> = (0..PACKERS_MAX).map(|_| lending.lend()).collect();
        assert!(lending.lend_idle().is_none());
        std::thread::scope(|scope| {
            let (told, news) = std::sync::mpsc::channel();
            let lending = &lending;
            scope.spawn(move || {
                let late = lending.lend();
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
        let state = lending.state();
        assert_eq!((state.lent, state.idle.len()), (0, PACKERS_MAX));
        drop(state);
        assert!(lending.lend_idle().is_some());
    }
}
