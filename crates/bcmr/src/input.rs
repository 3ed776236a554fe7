//! Input that may be long in coming: a signal that asks to stop is to be heard meanwhile, and not stuck behind a read that never
//! returns.
//!
//! Must not know what is read.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Reads what there is; `WouldBlock` where nothing has come for a moment.
pub fn read(from: impl AsFd, room: &mut [u8]) -> io::Result<usize> {
    match poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&TURN)) {
        Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
        Ok(_) => Ok(rustix::io::read(from, room)?),
        Err(e) => Err(e.into()),
    }
}

/// A reader of it. Its first end is its end, also at a terminal, where more may be typed behind it.
#[derive(Debug)]
pub struct Input {
    from: OwnedFd,
    ended: bool,
}

impl Input {
    /// Reads from where the descriptor stands.
    pub fn new(from: impl Into<OwnedFd>) -> Input {
        Input { from: from.into(), ended: false }
    }
}

impl Read for Input {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let got = read(&self.from, room)?;
        self.ended = got == 0 && !room.is_empty();
        Ok(got)
    }
}
