//! From a log to the disks that a power cut could have left. Knows no file system.

use crate::crash::image::Image;
use crate::crash::log::{Log, Record};
use std::collections::BTreeSet;

/// What is left of the writes that no flush has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// All of them, in order.
    Prefix,
    /// None: the disk's cache was lost.
    Durable,
    /// Some, in no order, the last of them torn at a sector.
    Subset,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::Prefix, Mode::Durable, Mode::Subset];

    pub fn word(self) -> &'static str {
        match self {
            Mode::Prefix => "prefix",
            Mode::Durable => "durable",
            Mode::Subset => "subset",
        }
    }
}

const SECTOR: usize = 512;

/// Random numbers that a seed gives again (splitmix64).
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`, which is not zero.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// The disks at one position of the log, moving forward. At position n, records 0 to n-1 have happened.
#[derive(Clone)]
pub struct Cursor<'a> {
    log: &'a Log,
    at: usize,
    disks: Vec<Cache>,
}

#[derive(Clone)]
struct Cache {
    /// With everything that was sent.
    sent: Image,
    /// With what a flush has confirmed.
    flushed: Image,
    /// Positions of what was sent since.
    volatile: Vec<usize>,
}

impl<'a> Cursor<'a> {
    pub fn new(log: &'a Log, bases: &[Image]) -> Cursor<'a> {
        let cache = |base: &Image| Cache { sent: base.clone(), flushed: base.clone(), volatile: Vec::new() };
        Cursor { log, at: 0, disks: bases.iter().map(cache).collect() }
    }

    /// Moves on to a position; never back.
    pub fn advance(&mut self, to: usize) {
        while self.at < to {
            let Some(record) = self.log.records.get(self.at) else { return };
            match record {
                Record::Write { disk, .. } | Record::Discard { disk, .. } => {
                    if let Some(cache) = self.disks.get_mut(*disk) {
                        apply(self.log, record, &mut cache.sent, usize::MAX);
                        cache.volatile.push(self.at);
                    }
                }
                Record::Flush { disk } => {
                    if let Some(cache) = self.disks.get_mut(*disk) {
                        for at in cache.volatile.drain(..) {
                            apply(self.log, &self.log.records[at], &mut cache.flushed, usize::MAX);
                        }
                    }
                }
                Record::Mark(_) => {}
            }
            self.at += 1;
        }
    }

    /// One disk as a power cut at this position leaves it.
    pub fn state(&self, disk: usize, mode: Mode, rng: &mut Rng) -> Image {
        let cache = &self.disks[disk];
        match mode {
            Mode::Prefix => cache.sent.clone(),
            Mode::Durable => cache.flushed.clone(),
            Mode::Subset => {
                let mut image = cache.flushed.clone();
                // Sometimes nearly nothing, sometimes nearly all.
                let of_ten = [1, 5, 9][rng.below(3)];
                let kept: Vec<usize> =
                    cache.volatile.iter().copied().filter(|_| rng.below(10) < of_ten).collect();
                for (n, at) in kept.iter().enumerate() {
                    let whole = n + 1 < kept.len();
                    let record = &self.log.records[*at];
                    let sectors = match record {
                        Record::Write { data, .. } if !whole => rng.below(data.len() / SECTOR + 1),
                        _ => usize::MAX,
                    };
                    apply(self.log, record, &mut image, sectors);
                }
                image
            }
        }
    }
}

/// Carries out one record, a write only for so many sectors.
fn apply(log: &Log, record: &Record, image: &mut Image, sectors: usize) {
    match record {
        Record::Write { off, data, .. } => {
            let data = log.data(data);
            let len = sectors.saturating_mul(SECTOR).min(data.len());
            image.write(*off, &data[..len]);
        }
        Record::Discard { off, len, .. } => image.discard(*off, *len),
        Record::Flush { .. } | Record::Mark(_) => {}
    }
}

/// Positions to cut at, in order, between `from` and `to` (both may be cut at): half of them anywhere, half beside a
/// flush or a mark, where things are decided; and always the last one.
pub fn cuts(log: &Log, from: usize, to: usize, number: usize, rng: &mut Rng) -> Vec<usize> {
    let turns: Vec<usize> = (from..to)
        .filter(|at| matches!(log.records.get(*at), Some(Record::Flush { .. } | Record::Mark(_))))
        .collect();
    let mut chosen = BTreeSet::from([to]);
    for n in 1..number {
        let at = if n % 2 == 0 || turns.is_empty() {
            from + rng.below(to - from + 1)
        } else {
            (turns[rng.below(turns.len())] + rng.below(4)).saturating_sub(1)
        };
        chosen.insert(at.clamp(from, to));
    }
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::image::PAGE;
    use crate::crash::log::tests::log;

    const W: u8 = 1;
    const F: u8 = 2;
    const M: u8 = 4;

    fn first(image: &Image, at: usize) -> u8 {
        image.bytes()[at * SECTOR]
    }

    #[test]
    fn a_flush_makes_durable_what_was_sent_to_its_own_disk() {
        let log = log(&[
            (W, 0, 0, &[1; SECTOR]),
            (W, 1, 0, &[2; SECTOR]),
            (F, 0, 0, b""),
            (W, 0, SECTOR as u64, &[3; SECTOR]),
        ]);
        let base = Image::empty(PAGE as u64);
        let mut cursor = Cursor::new(&log, &[base.clone(), base]);
        let mut rng = Rng::new(1);
        cursor.advance(2);
        assert_eq!(first(&cursor.state(0, Mode::Prefix, &mut rng), 0), 1);
        assert_eq!(first(&cursor.state(0, Mode::Durable, &mut rng), 0), 0);
        cursor.advance(4);
        let durable = cursor.state(0, Mode::Durable, &mut rng);
        assert_eq!((first(&durable, 0), first(&durable, 1)), (1, 0));
        let sent = cursor.state(0, Mode::Prefix, &mut rng);
        assert_eq!((first(&sent, 0), first(&sent, 1)), (1, 3));
        assert_eq!(first(&cursor.state(1, Mode::Durable, &mut rng), 0), 0, "the other disk had no flush");
    }

    #[test]
    fn a_subset_takes_each_write_whole_but_the_last() {
        // Two writes of two sectors each after a flush.
        let log = log(&[
            (W, 0, 0, &[9; 4 * SECTOR]),
            (F, 0, 0, b""),
            (W, 0, 0, &[1; 2 * SECTOR]),
            (W, 0, 2 * SECTOR as u64, &[2; 2 * SECTOR]),
        ]);
        let mut cursor = Cursor::new(&log, &[Image::empty(PAGE as u64)]);
        cursor.advance(4);
        let mut seen = BTreeSet::new();
        for seed in 0..400 {
            let image = cursor.state(0, Mode::Subset, &mut Rng::new(seed));
            seen.insert([first(&image, 0), first(&image, 1), first(&image, 2), first(&image, 3)]);
        }
        // With the second write kept, even none of its sectors, the first is whole or absent.
        let may = [
            [9, 9, 9, 9],
            [1, 9, 9, 9],
            [1, 1, 9, 9],
            [9, 9, 2, 9],
            [9, 9, 2, 2],
            [1, 1, 2, 9],
            [1, 1, 2, 2],
        ];
        assert_eq!(seen, BTreeSet::from(may));
    }

    #[test]
    fn a_seed_gives_the_same_state_again() {
        let writes: Vec<[u8; SECTOR]> = (0..8).map(|n| [n; SECTOR]).collect();
        let records: Vec<(u8, u8, u64, &[u8])> =
            writes.iter().zip(0..).map(|(w, n)| (W, 0, n * SECTOR as u64, &w[..])).collect();
        let log = log(&records);
        let mut cursor = Cursor::new(&log, &[Image::empty(PAGE as u64)]);
        cursor.advance(8);
        let state = |seed| cursor.state(0, Mode::Subset, &mut Rng::new(seed)).bytes();
        assert_eq!(state(5), state(5));
        assert!((0..9).any(|seed| state(seed) != state(seed + 1)));
    }

    #[test]
    fn cuts_stay_in_their_range_and_have_the_end() {
        let log = log(&[(M, 0, 0, b"PRE"), (W, 0, 0, &[1; 512]), (F, 0, 0, b""), (M, 0, 0, b"END")]);
        for seed in 0..50 {
            let cuts = cuts(&log, 1, 3, 6, &mut Rng::new(seed));
            assert!(cuts.iter().all(|c| (1..=3).contains(c)) && cuts.last() == Some(&3), "{cuts:?}");
        }
    }
}
