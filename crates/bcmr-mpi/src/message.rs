//! What ranks say to one another: numbers, so many in each message.
//!
//! Must not know what carries them, nor what becomes of them.

use bcmr_engine::api::{Code, FoundRun, GivenTo, Summary, WalkedPart};

/// Numbers in a message.
pub const WORDS: usize = 64;
/// A message as it travels.
pub type Words = [u64; WORDS];
/// Numbers before the bytes of a path.
const PIECE_HEAD_WORDS: usize = 4;
/// Bytes of a path in one message.
const PIECE_BYTES: usize = (WORDS - PIECE_HEAD_WORDS) * 8;

/// Some bytes of a path, which may be longer than a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    bytes: [u8; PIECE_BYTES],
    length: usize,
    /// The path ends with it.
    ends: bool,
}

impl Piece {
    /// A path in pieces; the empty one has a piece as well.
    pub fn of(path: &[u8]) -> impl Iterator<Item = Piece> {
        let count = path.len().div_ceil(PIECE_BYTES).max(1);
        (0..count).map(move |n| {
            let all = path.get(n * PIECE_BYTES..).unwrap_or_default();
            let mut bytes = [0; PIECE_BYTES];
            let length = all.len().min(PIECE_BYTES);
            bytes.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
            Piece { bytes, length, ends: n + 1 == count }
        })
    }

    /// Adds it to what came of a path before, which is the path when it is whole.
    pub fn add(&self, path: &mut Vec<u8>) -> Option<Vec<u8>> {
        path.extend_from_slice(self.bytes.get(..self.length).unwrap_or_default());
        self.ends.then(|| std::mem::take(path))
    }

    fn put(&self, kind: u64, more: u64) -> Words {
        let mut words = message(&[kind, more, self.length as u64, self.ends.into()]);
        let bytes = self.bytes.chunks_exact(8).filter_map(|bytes| bytes.try_into().ok());
        let room = words.iter_mut().skip(PIECE_HEAD_WORDS);
        room.zip(bytes).for_each(|(to, bytes)| *to = u64::from_le_bytes(bytes));
        words
    }

    fn take(words: &Words) -> Option<Piece> {
        let [_, _, length, ends, rest @ ..] = words;
        let length = usize::try_from(*length).ok().filter(|length| *length <= PIECE_BYTES)?;
        let mut bytes = [0; PIECE_BYTES];
        let room = bytes.chunks_exact_mut(8);
        room.zip(rest).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        let ends = flag(*ends)?;
        Some(Piece { bytes, length, ends })
    }
}

/// A message with these numbers in front.
fn message(front: &[u64]) -> Words {
    let mut words = [0; WORDS];
    words.iter_mut().zip(front).for_each(|(to, from)| *to = *from);
    words
}

fn flag(word: u64) -> Option<bool> {
    match word {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

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

/// Frames of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Which shard.
    pub shard: u32,
    /// The first of them.
    pub from: u32,
    /// The one behind the last; it may be behind the shard's last.
    pub to: u32,
}

impl Frames {
    /// All of a shard.
    #[must_use]
    pub fn all(shard: u32) -> Frames {
        Frames { shard, from: 0, to: u32::MAX }
    }

    fn words(self) -> [u64; 3] {
        [self.shard, self.from, self.to].map(u64::from)
    }

    fn of(shard: u64, from: u64, to: u64) -> Option<Frames> {
        let number = |word: u64| u32::try_from(word).ok();
        let (shard, from, to) = (number(shard)?, number(from)?, number(to)?);
        Some(Frames { shard, from, to }).filter(|_| from < to)
    }
}

/// What a rank says to the one that hands out shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "it is as large as a message, which it becomes at once")]
pub enum Report {
    /// It is there, and has nothing to do.
    Ready,
    /// It has done with frames of a shard.
    Did {
        /// Which.
        shard: u32,
        /// What that came to.
        outcome: Outcome,
    },
    /// It has given up frames that it had not begun, as it was asked; `None`: it had begun all.
    Left(Option<Frames>),
    /// Something stopped it, and all others are to stop as well.
    Stopped {
        /// The exit code.
        exit: u8,
    },
    /// Of the path of a directory that another rank may walk.
    Gave(GivenTo, Piece),
    /// It has walked what it got.
    Walked,
    /// What it has found in all.
    Found(WalkedPart),
}

/// What a rank is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "it is as large as a message, which it becomes at once")]
pub enum Order {
    /// Do these, after those that it was told to do before.
    Shard(Frames),
    /// Give up some that it has not begun.
    Split,
    /// Of the path of a directory that is to be walked.
    Dir(Piece),
    /// Walk those.
    Walk,
    /// Give away so many directories, if as many wait.
    Give(u32),
    /// All is walked: write down what was found.
    Gather,
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
            Report::Ready => message(&[]),
            Report::Did { shard, outcome: o } => {
                let end = o.end.map_or(NONE, u64::from);
                message(&[1, end, shard.into(), o.files, o.others, o.bytes, o.kept, o.failed, o.codes])
            }
            Report::Stopped { exit } => message(&[2, exit.into()]),
            Report::Left(frames) => match frames.map(Frames::words) {
                Some([shard, from, to]) => message(&[6, shard, from, to]),
                None => message(&[6]),
            },
            Report::Gave(to, piece) => piece.put(3, (to == GivenTo::First).into()),
            Report::Walked => message(&[4]),
            Report::Found(part) => {
                let WalkedPart { all, linked, dirs, names, bytes, failed, ended, cancelled } = part;
                let ended = ended.map_or(NONE, |code| code.number().into());
                let [a, b] =
                    [all, linked].map(|run| [(run.number >> 64) as u64, run.number as u64, run.bytes]);
                let counts = [dirs, names, bytes, failed, cancelled.into()];
                message(&[&[5, ended][..], &a, &b, &counts].concat())
            }
        }
    }

    /// What travelled; `None`: nothing that a rank of this version says.
    #[must_use]
    pub fn of(words: &Words) -> Option<Report> {
        match *words {
            [0, 0, ..] => Some(Report::Ready),
            [1, end, shard, files, others, bytes, kept, failed, codes, ..] => {
                let end = match end {
                    NONE => None,
                    exit => Some(u8::try_from(exit).ok()?),
                };
                let outcome = Outcome { files, others, bytes, kept, failed, codes, end };
                Some(Report::Did { shard: u32::try_from(shard).ok()?, outcome })
            }
            [2, exit, ..] => Some(Report::Stopped { exit: u8::try_from(exit).ok()? }),
            [3, to, ..] => {
                let to = if flag(to)? { GivenTo::First } else { GivenTo::Any };
                Some(Report::Gave(to, Piece::take(words)?))
            }
            [4, 0, ..] => Some(Report::Walked),
            [6, 0, 0, 0, ..] => Some(Report::Left(None)),
            [6, shard, from, to, ..] => Some(Report::Left(Some(Frames::of(shard, from, to)?))),
            [5, ended, a, b, all, c, d, linked, dirs, names, bytes, failed, cancelled, ..] => {
                let run = |high: u64, low: u64, bytes| FoundRun {
                    number: u128::from(high) << 64 | u128::from(low),
                    bytes,
                };
                let ended = match ended {
                    NONE => None,
                    number => Some(*Code::ALL.iter().find(|code| u64::from(code.number()) == number)?),
                };
                let (all, linked) = (run(a, b, all), run(c, d, linked));
                let cancelled = flag(cancelled)?;
                let part = WalkedPart { all, linked, dirs, names, bytes, failed, ended, cancelled };
                Some(Report::Found(part))
            }
            _ => None,
        }
    }
}

impl Order {
    /// As it travels.
    #[must_use]
    pub fn words(&self) -> Words {
        match *self {
            Order::Shard(frames) => {
                let [shard, from, to] = frames.words();
                message(&[1, shard, from, to])
            }
            Order::Split => message(&[8]),
            Order::Stop => message(&[2]),
            Order::End { exit } => message(&[3, exit.into()]),
            Order::Dir(piece) => piece.put(4, 0),
            Order::Walk => message(&[5]),
            Order::Give(count) => message(&[6, count.into()]),
            Order::Gather => message(&[7]),
        }
    }

    /// What travelled.
    #[must_use]
    pub fn of(words: &Words) -> Option<Order> {
        match *words {
            [1, shard, from, to, ..] => Frames::of(shard, from, to).map(Order::Shard),
            [8, ..] => Some(Order::Split),
            [2, ..] => Some(Order::Stop),
            [3, exit, ..] => u8::try_from(exit).ok().map(|exit| Order::End { exit }),
            [4, ..] => Piece::take(words).map(Order::Dir),
            [5, ..] => Some(Order::Walk),
            [6, count, ..] => u32::try_from(count).ok().map(Order::Give),
            [7, ..] => Some(Order::Gather),
            _ => None,
        }
    }
}

/// In the place of a number that there is none of.
const NONE: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let outcome =
            Outcome { files: 1, others: 2, bytes: u64::MAX, kept: 4, failed: 5, codes: 6, end: Some(0) };
        let run = |number| FoundRun { number, bytes: 7 };
        let part = WalkedPart {
            all: run(u128::MAX - 5),
            linked: run(1 << 70 | 3),
            dirs: 1,
            names: 2,
            bytes: 3,
            failed: 4,
            ended: Some(Code::ALL[1]),
            cancelled: true,
        };
        for report in [
            Report::Ready,
            Report::Did { shard: 0, outcome: Outcome::default() },
            Report::Did { shard: u32::MAX, outcome },
            Report::Did { shard: 7, outcome: Outcome { end: Some(255), ..outcome } },
            Report::Stopped { exit: 143 },
            Report::Left(None),
            Report::Left(Some(Frames::all(0))),
            Report::Left(Some(Frames { shard: 3, from: 2, to: 9 })),
            Report::Walked,
            Report::Found(WalkedPart::default()),
            Report::Found(part),
        ] {
            assert_eq!(Report::of(&report.words()), Some(report));
        }
        for order in [
            Order::Shard(Frames::all(0)),
            Order::Shard(Frames { shard: u32::MAX, from: 7, to: 8 }),
            Order::Split,
            Order::Stop,
            Order::End { exit: 6 },
            Order::Walk,
            Order::Give(7),
            Order::Gather,
        ] {
            assert_eq!(Order::of(&order.words()), Some(order));
        }
    }

    /// However long it is, and the pieces of two one behind the other.
    #[test]
    fn a_path_travels_in_pieces() {
        let mut came = Vec::new();
        for bytes in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 10_000] {
            let path: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8 + 1).collect();
            let mut whole = None;
            for (n, piece) in Piece::of(&path).enumerate() {
                assert!(whole.is_none() && n <= bytes / PIECE_BYTES);
                let (report, order) = (Report::Gave(GivenTo::First, piece), Order::Dir(piece));
                assert_eq!(Report::of(&report.words()), Some(report));
                assert_eq!(Order::of(&order.words()), Some(order));
                whole = piece.add(&mut came);
            }
            assert_eq!((whole.as_ref(), came.len()), (Some(&path), 0), "{bytes}");
        }
    }

    #[test]
    fn nonsense_is_none() {
        let nonsense: [&[u64]; 10] = [
            &[6, 1, 2, 2],
            &[0, 1],
            &[1, 256],
            &[1, NONE, 1 << 32],
            &[2, 256],
            &[3, 2],
            &[3, 0, PIECE_BYTES as u64 + 1],
            &[3, 0, 1, 2],
            &[5, 0xffff],
            &[u64::MAX],
        ];
        for front in nonsense {
            assert_eq!(Report::of(&message(front)), None, "{front:?}");
        }
        let nonsense: [&[u64]; 6] =
            [&[0], &[9], &[1, 1 << 32, 0, 1], &[3, 256], &[4, 0, PIECE_BYTES as u64 + 1], &[6, 1 << 32]];
        for front in nonsense {
            assert_eq!(Order::of(&message(front)), None, "{front:?}");
        }
    }

    #[test]
    fn every_code_travels() {
        let summary = Summary { codes: Code::ALL.to_vec(), ..Summary::default() };
        assert_eq!(Outcome::of(&summary).codes(), Code::ALL);
    }
}
