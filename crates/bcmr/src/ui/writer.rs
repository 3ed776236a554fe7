//! The only place that writes to standard output and standard error.
//!
//! Must not know what it writes. Never panics and never raises: a reader that went away is no error, and any other
//! failure of standard output is kept for the end of the run, where it becomes a message and an exit code. A reader that is slow
//! is waited for, until a signal asks to stop.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BUFFER_BYTES: usize = 32 * 1024;
/// What a pipe takes without waiting once poll(2) says that it takes something.
const AT_ONCE_BYTES: usize = rustix::pipe::PIPE_BUF;
/// How long a wait for the reader is before the stop is looked at again: a signal need not interrupt it.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// For so many turns a reader that takes nothing is waited for once the run is to stop: the last words are for one that is slow.
const LAST_TURNS: u32 = 10;

/// Set once a signal has asked to stop. What waits for a reader of ours looks at it itself, as who else would tell of the signal may
/// be waiting for the same reader.
pub type Stop = Arc<AtomicBool>;

/// One of the two streams.
pub struct Sink {
    fd: BorrowedFd<'static>,
    buffer: Vec<u8>,
    /// Every line goes out at once: for a person who watches, and for what went wrong.
    eager: bool,
    closed: bool,
    error: Option<io::Error>,
    /// `None`: a signal ends this process by itself.
    stop: Option<Stop>,
    /// It never makes a writer wait for a reader.
    is_file: bool,
    gave_up: bool,
}

impl Sink {
    /// Standard output; lines are gathered unless a terminal shows them.
    pub fn stdout(eager: bool) -> Sink {
        Sink::of(rustix::stdio::stdout(), eager)
    }

    /// Standard error.
    pub fn stderr() -> Sink {
        Sink::of(rustix::stdio::stderr(), true)
    }

    fn of(fd: BorrowedFd<'static>, eager: bool) -> Sink {
        let (buffer, closed, error) = (Vec::new(), false, None);
        Sink { fd, buffer, eager, closed, error, stop: None, is_file: false, gave_up: false }
    }

    /// Its reader is not waited for any more once `stop` is set.
    pub fn until(self, stop: &Stop) -> Sink {
        let is_file = rustix::fs::fstat(self.fd)
            .is_ok_and(|told| rustix::fs::FileType::from_raw_mode(told.st_mode).is_file());
        Sink { stop: Some(Arc::clone(stop)), is_file, ..self }
    }

    /// Whether something was lost because the run was to stop and its reader took nothing.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// A line; the newline is added.
    pub fn line(&mut self, line: &str) {
        self.bytes(line.as_bytes());
    }

    /// A line of bytes, which are a name; for readers other than a terminal. The newline is added.
    pub fn bytes(&mut self, line: &[u8]) {
        self.buffer.extend_from_slice(line);
        self.buffer.push(b'\n');
        if self.eager || self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Bytes as they are, at once.
    pub fn part(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.flush();
    }

    /// Text as it is, at once.
    pub fn raw(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
        self.flush();
    }

    /// Everything gathered goes out.
    pub fn flush(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if !self.closed {
            match self.write_all(&buffer) {
                Ok(true) => {}
                // A line that is cut must not be followed by others.
                Ok(false) => (self.closed, self.gave_up) = (true, true),
                Err(e) => {
                    self.closed = true;
                    self.error = (e != Errno::PIPE).then(|| e.into());
                }
            }
        }
        self.buffer = buffer;
        self.buffer.clear();
    }

    /// Whether all was written: else the run is to stop, and the reader takes nothing.
    fn write_all(&self, mut bytes: &[u8]) -> Result<bool, Errno> {
        while !bytes.is_empty() {
            let most = match self.stop {
                Some(_) if self.is_file => bytes.len(),
                Some(_) if !self.has_room()? => return Ok(false),
                Some(_) => piece(bytes),
                None => bytes.len(),
            };
            match rustix::io::write(self.fd, bytes.get(..most).unwrap_or(bytes)) {
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                // Another process shares this description and made it non-blocking: wait as a blocking one would.
                Err(Errno::AGAIN) => match self.has_room()? {
                    true => {}
                    false => return Ok(false),
                },
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Waits until something can be written, or fails at once; not if the run is to stop and the reader takes nothing.
    fn has_room(&self) -> Result<bool, Errno> {
        let mut last_turns = LAST_TURNS;
        loop {
            match poll(&mut [PollFd::new(&self.fd, PollFlags::OUT)], Some(&TURN)) {
                Ok(0) if self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::SeqCst)) => {
                    last_turns -= 1;
                    if last_turns == 0 {
                        return Ok(false);
                    }
                }
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(e) => return Err(e),
            }
        }
    }

    /// What went wrong, once, after everything gathered went out.
    pub fn finish(&mut self) -> Option<io::Error> {
        self.flush();
        self.error.take()
    }
}

/// How many of `bytes` are written at once where their reader may be slow: whole lines, as what another thread or process writes
/// meanwhile stands between two pieces. Only a line that is longer than that is cut.
fn piece(bytes: &[u8]) -> usize {
    let Some((most, _)) = bytes.split_at_checked(AT_ONCE_BYTES) else { return bytes.len() };
    most.iter().rposition(|byte| *byte == b'\n').map_or(AT_ONCE_BYTES, |end| end + 1)
}

/// Writes text to standard output; an error when that fails although there is a reader.
pub fn out(text: &str) -> Result<(), io::Error> {
    let mut sink = Sink::stdout(false);
    sink.raw(text);
    sink.finish().map_or(Ok(()), Err)
}

/// Writes text to standard error, as far as that can be.
pub fn err(text: &str) {
    Sink::stderr().raw(text);
}

/// Writes bytes, whole lines, to standard error, as far as that can be.
pub fn err_bytes(bytes: &[u8]) {
    Sink::stderr().part(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_with_lines() {
        let lines = |lengths: &[usize]| {
            let line = |length: &usize| [vec![b'x'; *length], vec![b'\n']].concat();
            lengths.iter().flat_map(line).collect::<Vec<u8>>()
        };
        for (lengths, want) in [
            (&[10][..], 11),
            (&[AT_ONCE_BYTES - 1], AT_ONCE_BYTES),
            (&[AT_ONCE_BYTES], AT_ONCE_BYTES),
            (&[10, AT_ONCE_BYTES], 11),
            (&[AT_ONCE_BYTES - 1, 10], AT_ONCE_BYTES),
            (&[2 * AT_ONCE_BYTES, 10], AT_ONCE_BYTES),
        ] {
            assert_eq!(piece(&lines(lengths)), want, "{lengths:?}");
        }
    }
}
