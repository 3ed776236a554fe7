//! Which frames of a shard a process does: those that it has not begun may be taken by another one meanwhile.
//!
//! Must not know what a frame is, nor who takes it.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Some frames of a shard. One process does them in their order; what it has not begun is given away by [`ShardShare::split`].
#[derive(Debug)]
pub struct ShardShare {
    /// What was not begun.
    rest: Mutex<Range<u32>>,
    from: u32,
}

/// What was taken out of a [`ShardShare`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitOff {
    /// These frames.
    Frames(Range<u32>),
    /// All were begun.
    Nothing,
    /// How many there are is known only when the shard is begun: ask again.
    NotYet,
}

/// What is to be done for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameStep {
    /// Another process does it, which comes before in the shard.
    PassOver,
    Do,
    /// It and all that follow are done by other processes.
    End,
}

impl ShardShare {
    /// These frames, by their numbers; a range may end behind the last one.
    #[must_use]
    pub fn new(frames: Range<u32>) -> ShardShare {
        ShardShare { from: frames.start, rest: Mutex::new(frames) }
    }

    /// All of a shard.
    #[must_use]
    pub fn whole() -> ShardShare {
        ShardShare::new(0..u32::MAX)
    }

    fn rest(&self) -> MutexGuard<'_, Range<u32>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes away the second half of the frames that were not begun, at least one.
    #[must_use]
    pub fn split(&self) -> SplitOff {
        let mut rest = self.rest();
        if rest.end == u32::MAX {
            return SplitOff::NotYet;
        }
        if rest.is_empty() {
            return SplitOff::Nothing;
        }
        let middle = rest.start + (rest.end - rest.start) / 2;
        let given = middle..rest.end;
        rest.end = middle;
        SplitOff::Frames(given)
    }

    /// The shard has so many frames.
    pub(super) fn counted(&self, frames: u32) {
        let mut rest = self.rest();
        rest.end = rest.end.min(frames);
    }

    /// Comes to a frame, each in its turn.
    pub(super) fn step(&self, frame: u32) -> FrameStep {
        let mut rest = self.rest();
        if frame < rest.start {
            return FrameStep::PassOver;
        }
        if frame >= rest.end {
            return FrameStep::End;
        }
        rest.start = frame + 1;
        FrameStep::Do
    }

    /// Whether other processes do some of a shard of so many frames.
    pub(super) fn is_shared(&self, frames: u32) -> bool {
        self.from > 0 || self.rest().end < frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(share: &ShardShare, frames: u32) -> Vec<u32> {
        (0..frames).filter(|n| share.step(*n) == FrameStep::Do).collect()
    }

    #[test]
    fn what_was_not_begun_is_given_away_in_halves() {
        let share = ShardShare::whole();
        assert_eq!(share.split(), SplitOff::NotYet);
        share.counted(9);
        assert!(share.step(0) == FrameStep::Do && !share.is_shared(9));
        let given = SplitOff::Frames;
        assert_eq!((share.split(), share.split()), (given(5..9), given(3..5)));
        assert_eq!((share.step(1), share.split()), (FrameStep::Do, given(2..3)));
        assert_eq!((share.split(), share.step(2)), (SplitOff::Nothing, FrameStep::End));
        assert!(share.is_shared(9));
        let other = ShardShare::new(5..9);
        other.counted(9);
        assert_eq!((other.step(0), other.step(4)), (FrameStep::PassOver, FrameStep::PassOver));
        assert_eq!(other.split(), given(7..9));
        assert_eq!(left(&other, 9), [5, 6]);
        assert_eq!(left(&ShardShare::new(0..u32::MAX), 3), [0, 1, 2]);
    }
}
