//! Reads a person's answers from standard input: one line each, `y` is yes, everything else and the end of the input
//! are no.
//!
//! Must not know what is being asked. A signal which asks to stop is an answer too (no).

use crate::input;
use bcmr_engine::event::Cancel;
use std::io::ErrorKind;

/// A longer answer is no answer.
const ANSWER_BYTES_MAX: usize = 4096;

/// Standard input, with what was read beyond the last answer.
#[derive(Debug, Default)]
pub struct Answers {
    ahead: Vec<u8>,
    ended: bool,
    /// The last answer ended with the end of the input.
    cut: bool,
}

impl Answers {
    /// Whether the last answer was a whole line.
    pub fn was_line(&self) -> bool {
        !self.cut
    }

    /// Waits for the next answer.
    pub fn next(&mut self, cancel: &Cancel) -> bool {
        self.cut = false;
        loop {
            if let Some(end) = self.ahead.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.ahead.drain(..=end).collect();
                return is_yes(&line);
            }
            if self.ended {
                self.cut = true;
                return is_yes(&std::mem::take(&mut self.ahead));
            }
            if cancel.is_set() || self.ahead.len() > ANSWER_BYTES_MAX {
                return false;
            }
            self.read();
        }
    }

    fn read(&mut self) {
        let mut block = [0_u8; 512];
        match input::read(rustix::stdio::stdin(), &mut block) {
            Ok(0) => self.ended = true,
            Ok(n) => self.ahead.extend_from_slice(block.get(..n).unwrap_or_default()),
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(_) => self.ended = true,
        }
    }
}

fn is_yes(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start().first(), Some(b'y' | b'Y'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_y_is_yes() {
        for (line, want) in
            [("y\n", true), ("Yes\n", true), (" y", true), ("n\n", false), ("", false), ("\n", false)]
        {
            assert_eq!(is_yes(line.as_bytes()), want, "{line:?}");
        }
    }

    #[test]
    fn lines_read_ahead_are_kept_for_later_questions() {
        let mut answers = Answers { ahead: b"y\nn\nyes\nyes".to_vec(), ended: true, cut: false };
        let got: Vec<bool> = (0..5).map(|_| answers.next(&Cancel::new())).collect();
        assert_eq!(got, [true, false, true, true, false]);
    }

    #[test]
    fn a_stop_is_a_no() {
        let cancel = Cancel::new();
        cancel.set();
        assert!(!Answers::default().next(&cancel));
    }
}
