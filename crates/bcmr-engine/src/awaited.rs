//! A reader of what is waited for, until the user wants to stop.
//!
//! Must not know what is read.

use crate::event::Cancel;
use std::io::{self, BufRead, Read};

/// Asks a reader again that says [`io::ErrorKind::WouldBlock`], as nothing has come for a moment. Says it itself only when it
/// is cancelled.
pub(crate) struct Awaited<'r> {
    pub(crate) reader: &'r mut (dyn BufRead + Send),
    pub(crate) cancel: &'r Cancel,
}

/// Whether what was read ends because it is cancelled.
pub(crate) fn is_stop(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::WouldBlock
}

impl Read for Awaited<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let got = self.fill_buf()?.read(room)?;
        self.consume(got);
        Ok(got)
    }
}

impl BufRead for Awaited<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        loop {
            match self.reader.fill_buf() {
                Err(e) if is_stop(&e) && !self.cancel.is_set() => {}
                Err(e) => return Err(e),
                Ok([]) => return Ok(&[]),
                Ok(_) => break,
            }
        }
        // There is something, so nothing is read now.
        self.reader.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    /// Says one letter after the other, and that there is none before each; cancels instead of the last.
    struct Slow<'c>(&'static [u8], bool, &'c Cancel);

    impl Read for Slow<'_> {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            match (self.0, self.1) {
                ([], _) => Ok(0),
                (b"!", _) => {
                    self.2.set();
                    Err(io::ErrorKind::WouldBlock.into())
                }
                (_, true) => Err(io::ErrorKind::WouldBlock.into()),
                ([first, rest @ ..], false) => {
                    *room.first_mut().unwrap() = *first;
                    self.0 = rest;
                    Ok(1)
                }
            }
        }
    }

    #[test]
    fn waits_until_it_is_cancelled() {
        let cancel = Cancel::new();
        let mut line = Vec::new();
        let mut reader = BufReader::new(Slow(b"one\ntwo", false, &cancel));
        let mut awaited = Awaited { reader: &mut reader, cancel: &cancel };
        assert_eq!(awaited.read_until(b'\n', &mut line).unwrap(), 4);
        awaited.read_to_end(&mut line).unwrap();
        assert_eq!(line, b"one\ntwo");
        let mut reader = BufReader::new(Slow(b"on!", false, &cancel));
        let mut awaited = Awaited { reader: &mut reader, cancel: &cancel };
        assert!(is_stop(&awaited.read_until(b'\n', &mut line).unwrap_err()));
    }
}
