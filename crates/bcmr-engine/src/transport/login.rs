//! What a login prints before the program that was asked for begins (start-up files of a shell may print anything):
//! passed over, up to the first frame that a server sends.
//!
//! Must not know who prints it, nor what the greeting says.

use bcmr_wire::limits::{FRAME_BYTES_MAX, HEADER_BYTES};
use bcmr_wire::message::kind::{ERROR, WELCOME};
use std::io::{self, IoSliceMut, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// More text than this before a greeting belongs to another program.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// So much of it is kept, for people.
const KEPT_BYTES: usize = 200;
const READ_BYTES: usize = 4 << 10;

/// What is known of the text, on both sides of the stream's reader.
#[derive(Default)]
pub(crate) struct Login(Mutex<Printed>);

#[derive(Default)]
struct Printed {
    text: Vec<u8>,
    since: Option<Instant>,
    greeted: bool,
}

impl Login {
    fn printed(&self) -> MutexGuard<'_, Printed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long text has been there with no greeting behind it.
    pub(crate) fn waits(&self) -> Option<Duration> {
        let printed = self.printed();
        printed.since.filter(|_| !printed.greeted).map(|since| since.elapsed())
    }

    /// The beginning of the text; `None` when there was none.
    pub(crate) fn text(&self) -> Option<String> {
        let printed = self.printed();
        let text = String::from_utf8_lossy(&printed.text).trim().to_owned();
        printed.since.map(|_| text)
    }
}

/// Reads what a login's program sends, without what the login has printed before.
pub(super) struct PastLogin<R> {
    read: R,
    login: Arc<Login>,
    /// Read and not given on yet.
    held: Vec<u8>,
    /// So much of it cannot be the beginning of a greeting.
    looked: usize,
    found: bool,
}

/// What the bytes that have come are.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// A frame begins here.
    Frame(usize),
    /// All of it is text up to here, where it has to be looked at again.
    Text(usize),
    /// Neither text nor a greeting: the reader of frames will say what is wrong with it.
    Neither,
}

/// Looks for a server's first frame from `from` on. In its length two bytes are NUL, which no text holds. A connection that
/// begins with a frame begins with any, and the reader of frames judges it.
fn look(bytes: &[u8], from: usize) -> Look {
    for at in from..bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some([a, b, c, d, kind]) = rest.first_chunk::<HEADER_BYTES>() else { return Look::Text(at) };
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let fits = (1..=FRAME_BYTES_MAX).contains(&length) && *kind != 0;
        let greets = (*c, *d) == (0, 0) && matches!(*kind, WELCOME | ERROR);
        if fits && (greets || at == 0) {
            return Look::Frame(at);
        }
        let is_text = *a >= b' ' || matches!(*a, 7..=13 | 27);
        if !is_text {
            return Look::Neither;
        }
    }
    Look::Text(bytes.len())
}

impl<R: Read> PastLogin<R> {
    pub(super) fn new(read: R, login: Arc<Login>) -> PastLogin<R> {
        PastLogin { read, login, held: Vec::new(), looked: 0, found: false }
    }

    /// Reads up to the first frame, or to what is certainly none.
    fn find(&mut self) -> io::Result<()> {
        let mut room = [0; READ_BYTES];
        while !self.found {
            let got = self.read.read(&mut room)?;
            self.held.extend_from_slice(room.get(..got).unwrap_or_default());
            match look(&self.held, self.looked) {
                Look::Frame(at) => {
                    self.print(at);
                    self.held.drain(..at);
                    self.login.printed().greeted = true;
                    self.found = true;
                }
                Look::Text(at) if got > 0 && self.held.len() <= TEXT_BYTES_MAX => {
                    self.looked = at;
                    self.print(at);
                }
                Look::Text(_) | Look::Neither => self.found = true,
            }
        }
        Ok(())
    }

    fn print(&self, bytes: usize) {
        if bytes > 0 {
            let mut printed = self.login.printed();
            printed.since.get_or_insert_with(Instant::now);
            printed.text = self.held.get(..bytes.min(KEPT_BYTES)).unwrap_or_default().to_vec();
        }
    }

    fn give(&mut self, buf: &mut [u8]) -> usize {
        let n = self.held.len().min(buf.len());
        for (to, byte) in buf.iter_mut().zip(self.held.drain(..n)) {
            *to = byte;
        }
        n
    }
}

impl<R: Read> Read for PastLogin<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buf)])
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.find()?;
        if self.held.is_empty() {
            return self.read.read_vectored(bufs);
        }
        let first = bufs.iter_mut().find(|buf| !buf.is_empty());
        Ok(first.map_or(0, |buf| self.give(buf)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Comes in pieces of any size.
    struct Pieces(Vec<u8>, usize);

    impl Read for Pieces {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(buf.len());
            for (to, byte) in buf.iter_mut().zip(self.0.drain(..n)) {
                *to = byte;
            }
            Ok(n)
        }
    }

    fn past(bytes: &[u8], piece: usize) -> (Vec<u8>, Option<String>) {
        let login = Arc::new(Login::default());
        let mut out = Vec::new();
        PastLogin::new(Pieces(bytes.to_vec(), piece), Arc::clone(&login)).read_to_end(&mut out).unwrap();
        (out, login.text())
    }

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let mut out = Vec::new();
        bcmr_wire::frame::encode(kind, &vec![1; payload], &mut out).unwrap();
        out
    }

    #[test]
    fn text_is_passed_over_and_frames_are_not() {
        let greeting = frame(WELCOME, 60);
        for text in
            ["", "\n", "Hi", "Hi\n", "Last login: never\r\n\x1b[1mHello\x1b[0m\n", "gr\u{fc}\u{df}e\n"]
        {
            for (answer, piece) in [(WELCOME, 1), (WELCOME, 7), (ERROR, 1000)] {
                let wire = [frame(answer, 60), frame(0x30, 9000)].concat();
                let (out, told) = past(&[text.as_bytes(), &wire].concat(), piece);
                assert_eq!(out, wire, "{text:?} {piece}");
                assert_eq!(told, (!text.is_empty()).then(|| text.trim().to_owned()));
            }
        }
        // What is no text, or has no greeting behind it, comes out as it is.
        for odd in
            [&b"\x02\x01\x00noise"[..], b"text alone", b"x", b"text\x00\x00\x00\x00\x00more", &frame(0x18, 5)]
        {
            assert_eq!(past(odd, 3).0, odd);
        }
        let endless = [vec![b'y'; TEXT_BYTES_MAX + READ_BYTES], greeting].concat();
        assert!(past(&endless, 1000).0 == endless, "so much text is none of a login");
    }

    proptest! {
        /// Whatever comes first: all of it comes out, or only text was left out before a frame.
        #[test]
        fn nothing_else_is_lost(bytes in proptest::collection::vec(any::<u8>(), 0..200), piece in 1..40_usize) {
            let (out, _) = past(&bytes, piece);
            prop_assert!(bytes.ends_with(&out));
            let left_out = &bytes[..bytes.len() - out.len()];
            prop_assert!(!left_out.contains(&0));
        }
    }
}
