//! The only place that writes to standard output and standard error.
//!
//! Must not know what it writes. Never panics and never raises: a reader that went away is no error, and any other
//! failure of standard output is kept for the end of the run, where it becomes a message and an exit code.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::io;

const BUFFER_BYTES: usize = 32 * 1024;

/// One of the two streams.
pub struct Sink {
    fd: BorrowedFd<'static>,
    buffer: Vec<u8>,
    /// Every line goes out at once: for a person who watches, and for what went wrong.
    eager: bool,
    closed: bool,
    error: Option<io::Error>,
}

impl Sink {
    /// Standard output; lines are gathered unless a terminal shows them.
    pub fn stdout(eager: bool) -> Sink {
        Sink { fd: rustix::stdio::stdout(), buffer: Vec::new(), eager, closed: false, error: None }
    }

    /// Standard error.
    pub fn stderr() -> Sink {
        Sink { fd: rustix::stdio::stderr(), buffer: Vec::new(), eager: true, closed: false, error: None }
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
        if !self.closed
            && let Err(e) = write_all(self.fd, &buffer)
        {
            self.closed = true;
            if e != Errno::PIPE {
                self.error = Some(e.into());
            }
        }
        self.buffer = buffer;
        self.buffer.clear();
    }

    /// What went wrong, once, after everything gathered went out.
    pub fn finish(&mut self) -> Option<io::Error> {
        self.flush();
        self.error.take()
    }
}

fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Another process shares this description and made it non-blocking: wait as a blocking one would.
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&fd, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            },
            Err(e) => return Err(e),
        }
    }
    Ok(())
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
