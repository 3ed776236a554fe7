//! What ranks say to one another: numbers, so many in each message.
//!
//! Must not know what carries them, nor what becomes of them.

use bcmr_engine::api::{Code, Summary};

/// Numbers in a message.
pub const WORDS: usize = 8;
/// A message as it travels.
pub type Words = [u64; WORDS];

/// What a shard came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Files that landed.
    pub files: u64,
    /// Links and special files.
    pub others: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Entries that an earlier run had done.
    pub kept: u64,
    /// Items that failed.
    pub failed: u64,
    /// Which codes those had, a bit for each number.
    pub codes: u64,
    /// No rank goes on, and this is the exit code.
    pub end: Option<u8>,
}

/// What a rank says to the one that hands out shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// It is there, and has nothing to do.
    Ready,
    /// It has done with a shard.
    Did {
        /// Which.
        shard: u32,
        /// What that came to.
        outcome: Outcome,
    },
    /// Something stopped it, and all others are to stop as well.
    Stopped {
        /// The exit code.
        exit: u8,
    },
}

/// What a rank is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Do this one, after those that it was told to do before.
    Shard(u32),
    /// Leave off: record what is done.
    Stop,
    /// Everything is over.
    End {
        /// The exit code.
        exit: u8,
    },
}

impl Outcome {
    /// What the engine says of a shard.
    #[must_use]
    pub fn of(summary: &Summary) -> Outcome {
        Outcome {
            files: summary.files,
            others: summary.others,
            bytes: summary.bytes,
            kept: summary.kept,
            failed: summary.failed,
            codes: summary.codes.iter().fold(0, |bits, code| bits | bit(*code)),
            end: None,
        }
    }

    /// Its codes.
    #[must_use]
    pub fn codes(&self) -> Vec<Code> {
        Code::ALL.iter().copied().filter(|code| self.codes & bit(*code) != 0).collect()
    }

    /// Adds what another shard came to. The first end counts.
    pub fn add(&mut self, more: &Outcome) {
        self.files += more.files;
        self.others += more.others;
        self.bytes += more.bytes;
        self.kept += more.kept;
        self.failed += more.failed;
        self.codes |= more.codes;
        self.end = self.end.or(more.end);
    }
}

fn bit(code: Code) -> u64 {
    1_u64.checked_shl(u32::from(code.number())).unwrap_or(0)
}

impl Report {
    /// As it travels.
    #[must_use]
    pub fn words(&self) -> Words {
        match *self {
            Report::Ready => [0; WORDS],
            Report::Did { shard, outcome: o } => {
                // The kind, the exit code behind it (256: none), and the shard.
                let head = 1 | o.end.map_or(256, u64::from) << 8 | u64::from(shard) << 32;
                [head, o.files, o.others, o.bytes, o.kept, o.failed, o.codes, 0]
            }
            Report::Stopped { exit } => [2, u64::from(exit), 0, 0, 0, 0, 0, 0],
        }
    }

    /// What travelled; `None`: nothing that a rank of this version says.
    #[must_use]
    pub fn of(words: &Words) -> Option<Report> {
        let [head, files, others, bytes, kept, failed, codes, _] = *words;
        match head & 0xff {
            0 if head == 0 => Some(Report::Ready),
            1 => {
                let end = match head >> 8 & 0xff_ffff {
                    256 => None,
                    exit => Some(u8::try_from(exit).ok()?),
                };
                let outcome = Outcome { files, others, bytes, kept, failed, codes, end };
                Some(Report::Did { shard: u32::try_from(head >> 32).ok()?, outcome })
            }
            2 => Some(Report::Stopped { exit: u8::try_from(files).ok()? }),
            _ => None,
        }
    }
}

impl Order {
    /// As it travels.
    #[must_use]
    pub fn words(&self) -> Words {
        let (kind, value) = match *self {
            Order::Shard(shard) => (1, u64::from(shard)),
            Order::Stop => (2, 0),
            Order::End { exit } => (3, u64::from(exit)),
        };
        [kind, value, 0, 0, 0, 0, 0, 0]
    }

    /// What travelled.
    #[must_use]
    pub fn of(words: &Words) -> Option<Order> {
        match *words {
            [1, shard, ..] => u32::try_from(shard).ok().map(Order::Shard),
            [2, ..] => Some(Order::Stop),
            [3, exit, ..] => u8::try_from(exit).ok().map(|exit| Order::End { exit }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let outcome =
            Outcome { files: 1, others: 2, bytes: u64::MAX, kept: 4, failed: 5, codes: 6, end: Some(0) };
        for report in [
            Report::Ready,
            Report::Did { shard: 0, outcome: Outcome::default() },
            Report::Did { shard: u32::MAX, outcome },
            Report::Did { shard: 7, outcome: Outcome { end: Some(255), ..outcome } },
            Report::Stopped { exit: 143 },
        ] {
            assert_eq!(Report::of(&report.words()), Some(report));
        }
        for order in [Order::Shard(0), Order::Shard(u32::MAX), Order::Stop, Order::End { exit: 6 }] {
            assert_eq!(Order::of(&order.words()), Some(order));
        }
    }

    #[test]
    fn nonsense_is_none() {
        let word = |head| [head, 0, 0, 0, 0, 0, 0, 0];
        for head in [3, 0x100, 1 | 257 << 8, u64::MAX] {
            assert_eq!(Report::of(&word(head)), None, "{head}");
        }
        assert_eq!(Report::of(&[2, 256, 0, 0, 0, 0, 0, 0]), None);
        for words in [word(0), word(4), [1, 1 << 32, 0, 0, 0, 0, 0, 0], [3, 256, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(Order::of(&words), None, "{words:?}");
        }
    }

    #[test]
    fn every_code_travels() {
        let summary = Summary { codes: Code::ALL.to_vec(), ..Summary::default() };
        assert_eq!(Outcome::of(&summary).codes(), Code::ALL);
    }
}
