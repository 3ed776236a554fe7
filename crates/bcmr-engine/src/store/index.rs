//! The bytes of the store's index, as laid down in `docs/store-format.md`, and what follows from them.
//!
//! Must not touch any disk, take any lock, or know what a block is good for. What follows from an index is what
//! replaying its records gives, in every process alike; nothing here depends on the bytes being friendly.

use crate::blocks::BLOCK_BYTES;
use bcmr_wire::bytes::ByteReader;
use fastcopy::meta::{Info, Time};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"bcmrCAS1";
const SUM_BYTES: usize = 8;
/// Before the first record.
pub(crate) const HEADER_BYTES: usize = MAGIC.len() + SUM_BYTES;
/// A record without its body: kind, length, checksum.
const AROUND_BYTES: usize = 1 + 2 + SUM_BYTES;
/// PATH_MAX: nothing longer can be opened again in one call.
pub(crate) const PATH_BYTES_MAX: usize = 4095;
const FILE_BYTES: usize = 8 + 8 + 8 + 4;
const BLOCK_BODY_BYTES: usize = 32 + 4 + 8 + 4;
/// The longest record there can be.
pub(crate) const RECORD_BYTES_MAX: usize = AROUND_BYTES + FILE_BYTES + PATH_BYTES_MAX;
/// Blocks remembered at most, whatever the cap says: 256 GiB of them, some 10 MiB of memory.
pub(crate) const BLOCKS_MAX: usize = if cfg!(test) { 256 } else { 1 << 16 };
/// Bytes of records that still count, at most: the other bound on memory, as paths may be long.
pub(crate) const LIVE_BYTES_MAX: u64 = if cfg!(test) { 64 << 10 } else { 8 << 20 };
/// Bytes of records that no longer count, beyond as many as still do, before the index is written anew.
const SLACK_BYTES: u64 = 64 << 10;
/// A longer index is not read any further.
pub(crate) const LOG_BYTES_MAX: u64 =
    2 * (LIVE_BYTES_MAX + BLOCKS_MAX as u64 * KEEP_RECORD_BYTES) + (1 << 20);

const _: () = assert!(FILE_BYTES + PATH_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(LIVE_BYTES_MAX > 2 * RECORD_BYTES_MAX as u64);
const _: () = assert!(LOG_BYTES_MAX > 2 * LIVE_BYTES_MAX + SLACK_BYTES + HEADER_BYTES as u64);
const _: () = assert!(BLOCK_BYTES <= u32::MAX as u64);

/// What a block is known by: a hash with the scope's key, so that it tells nothing outside.
pub(crate) type Key = [u8; 32];
/// The key of the checksums.
pub(crate) type SumKey = [u8; 32];

/// Which file, as of when it was remembered: a cheap look that saves most wrong answers. The proof is the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Likeness {
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) mtime: Time,
}

impl Likeness {
    pub(crate) fn of(info: &Info) -> Likeness {
        Likeness { ino: info.ino, size: info.size, mtime: info.mtime }
    }
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// A landed file; its number is the count of such records before it.
    File { likeness: Likeness, path: &'a [u8] },
    /// A block and where it lies.
    Block { key: Key, file: u32, at: u64, len: u32 },
    /// A block was taken.
    Used { key: Key },
    /// A block is no longer remembered.
    Forget { key: Key },
    /// The store has, or is about to have, bytes of its own for a block.
    Keep { key: Key, len: u32 },
    /// It has none any more.
    Drop { key: Key },
}

fn checksum(sums: &SumKey, at: u64, bytes: &[u8]) -> [u8; SUM_BYTES] {
    let mut hasher = blake3::Hasher::new_keyed(sums);
    // With its place, so that a record moved or repeated by a damaged file system is none.
    hasher.update(&at.to_le_bytes());
    hasher.update(bytes);
    let mut out = [0; SUM_BYTES];
    out.copy_from_slice(hasher.finalize().as_bytes().split_at(SUM_BYTES).0);
    out
}

/// An index without a record.
pub(crate) fn header(sums: &SumKey) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&checksum(sums, 0, MAGIC));
    out
}

/// Appends a record whose first byte will stand at `base + out.len()` of the file.
fn encode(sums: &SumKey, base: u64, record: &Record<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    let kind = match record {
        Record::File { .. } => 1u8,
        Record::Block { .. } => 2,
        Record::Used { .. } => 3,
        Record::Forget { .. } => 4,
        Record::Keep { .. } => 5,
        Record::Drop { .. } => 6,
    };
    out.extend_from_slice(&[kind, 0, 0]);
    match record {
        Record::File { likeness, path } => {
            out.extend_from_slice(&likeness.ino.to_le_bytes());
            out.extend_from_slice(&likeness.size.to_le_bytes());
            out.extend_from_slice(&likeness.mtime.sec.to_le_bytes());
            out.extend_from_slice(&likeness.mtime.nsec.to_le_bytes());
            out.extend_from_slice(path.get(..path.len().min(PATH_BYTES_MAX)).unwrap_or_default());
        }
        Record::Block { key, file, at, len } => {
            out.extend_from_slice(key);
            out.extend_from_slice(&file.to_le_bytes());
            out.extend_from_slice(&at.to_le_bytes());
            out.extend_from_slice(&len.to_le_bytes());
        }
        Record::Used { key } | Record::Forget { key } | Record::Drop { key } => out.extend_from_slice(key),
        Record::Keep { key, len } => {
            out.extend_from_slice(key);
            out.extend_from_slice(&len.to_le_bytes());
        }
    }
    let body = (out.len() - start - 3) as u16;
    if let Some(field) = out.get_mut(start + 1..start + 3) {
        field.copy_from_slice(&body.to_le_bytes());
    }
    let sum = checksum(sums, base + start as u64, out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum);
}

/// A record of any kind and body, with a checksum that fits.
#[cfg(fuzzing)]
pub(crate) fn sealed(sums: &SumKey, kind: u8, body: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.push(kind);
    out.extend_from_slice(&(body.len() as u16).to_le_bytes());
    out.extend_from_slice(body);
    let sum = checksum(sums, start as u64, out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum);
}

/// The first record of `bytes`, which begin at `base` of the file, and its length; `None` when it is not whole and
/// right.
fn decode<'b>(sums: &SumKey, base: u64, bytes: &'b [u8]) -> Option<(Record<'b>, usize)> {
    let mut r = ByteReader::new(bytes);
    let kind = r.u8()?;
    let length = usize::from(r.u16()?);
    let body = r.take(length)?;
    let sum: [u8; SUM_BYTES] = r.array()?;
    if sum != checksum(sums, base, bytes.get(..3 + length)?) {
        return None;
    }
    let mut r = ByteReader::new(body);
    let record = match kind {
        1 => {
            let (ino, size) = (r.u64()?, r.u64()?);
            let mtime = Time { sec: r.i64()?, nsec: r.u32()? };
            let path = r.take_rest();
            if path.is_empty() || path.len() > PATH_BYTES_MAX || path.contains(&0) {
                return None;
            }
            Record::File { likeness: Likeness { ino, size, mtime }, path }
        }
        2 => Record::Block { key: r.array()?, file: r.u32()?, at: r.u64()?, len: r.u32()? },
        3 => Record::Used { key: r.array()? },
        4 => Record::Forget { key: r.array()? },
        5 => Record::Keep { key: r.array()?, len: r.u32()? },
        6 => Record::Drop { key: r.array()? },
        _ => return None,
    };
    r.rest().is_empty().then_some((record, AROUND_BYTES + length))
}

/// A landed file that blocks are remembered in.
#[derive(Clone, Debug)]
pub(crate) struct LandedFile {
    pub(crate) likeness: Likeness,
    /// Below the root of the scope that remembered it.
    pub(crate) path: Arc<[u8]>,
    blocks: u32,
}

impl LandedFile {
    fn record_bytes(&self) -> u64 {
        (AROUND_BYTES + FILE_BYTES + self.path.len()) as u64
    }
}

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockPlace {
    file: u32,
    at: u64,
    len: u32,
    /// The tick of its last use.
    used: u64,
}

const BLOCK_RECORD_BYTES: u64 = (AROUND_BYTES + BLOCK_BODY_BYTES) as u64;

const KEEP_RECORD_BYTES: u64 = (AROUND_BYTES + 32 + 4) as u64;

/// Keys in the order of their last use, oldest first. Only the latest use of a key counts; the others are passed over
/// when they come up, and thrown out when they are most of the list: O(1) for each use.
#[derive(Debug, Default)]
struct OwnBlocks {
    blocks: HashMap<Key, (u32, u64)>,
    order: VecDeque<(u64, Key)>,
    tick: u64,
    bytes: u64,
}

impl OwnBlocks {
    fn use_now(&mut self, key: Key) {
        self.tick += 1;
        let Some((_, used)) = self.blocks.get_mut(&key) else { return };
        *used = self.tick;
        self.order.push_back((self.tick, key));
        if self.order.len() > 2 * self.blocks.len() + 64 {
            let blocks = &self.blocks;
            self.order.retain(|(used, key)| blocks.get(key).is_some_and(|(_, at)| at == used));
        }
    }

    fn drop(&mut self, key: &Key) {
        if let Some((len, _)) = self.blocks.remove(key) {
            self.bytes -= u64::from(len);
        }
    }

    fn keep(&mut self, key: Key, len: u32) {
        if len == 0 || u64::from(len) > BLOCK_BYTES {
            return;
        }
        self.drop(&key);
        if self.blocks.len() >= BLOCKS_MAX
            && let Some(oldest) = self.oldest()
        {
            self.drop(&oldest);
        }
        self.blocks.insert(key, (len, 0));
        self.bytes += u64::from(len);
        self.use_now(key);
    }

    fn oldest(&mut self) -> Option<Key> {
        while let Some((used, key)) = self.order.front() {
            if self.blocks.get(key).is_some_and(|(_, at)| at == used) {
                return Some(*key);
            }
            self.order.pop_front();
        }
        None
    }

    fn in_order(&self) -> impl Iterator<Item = (Key, u32)> {
        self.order.iter().filter_map(|(used, key)| {
            self.blocks.get(key).filter(|(_, at)| at == used).map(|(len, _)| (*key, *len))
        })
    }
}

/// What the records say, so far as they were read.
#[derive(Debug, Default)]
pub(crate) struct View {
    kept: OwnBlocks,
    blocks: HashMap<Key, BlockPlace>,
    files: HashMap<u32, LandedFile>,
    /// Uses, oldest first. Only the latest use of a block counts; the others are passed over when they come up.
    order: VecDeque<(u64, Key)>,
    tick: u64,
    /// The number of the next file.
    next_file: u32,
    bytes: u64,
    live_bytes: u64,
}

impl View {
    /// Bytes of the blocks that are remembered.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where a block lies: the file, and the offset in it.
    pub(crate) fn place(&self, key: &Key) -> Option<(&LandedFile, u64)> {
        let place = self.blocks.get(key)?;
        Some((self.files.get(&place.file)?, place.at))
    }

    /// Bytes of the blocks that the store has itself.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept.bytes
    }

    /// The length of a block that the store has itself.
    pub(crate) fn kept(&self, key: &Key) -> Option<u64> {
        self.kept.blocks.get(key).map(|(len, _)| u64::from(*len))
    }

    /// Whether it has as many as it may, whatever their length.
    pub(crate) fn keeps_most(&self) -> bool {
        self.kept.blocks.len() >= BLOCKS_MAX
    }

    /// Of those the one whose last use is the longest ago.
    pub(crate) fn oldest_kept(&mut self) -> Option<Key> {
        self.kept.oldest()
    }

    /// The number that the next `File` record will have.
    pub(crate) fn next_file(&self) -> u32 {
        self.next_file
    }

    /// The block whose last use is the longest ago.
    pub(crate) fn oldest(&mut self) -> Option<Key> {
        while let Some((used, key)) = self.order.front() {
            if self.blocks.get(key).is_some_and(|place| place.used == *used) {
                return Some(*key);
            }
            self.order.pop_front();
        }
        None
    }

    /// Whether one more block of `len` bytes, in a file with a path of `path_bytes`, has room.
    pub(crate) fn has_room(&self, len: u64, path_bytes: usize, cap_bytes: u64) -> bool {
        let records = BLOCK_RECORD_BYTES + (AROUND_BYTES + FILE_BYTES + path_bytes) as u64;
        self.bytes.saturating_add(len) <= cap_bytes && self.live_bytes + records <= LIVE_BYTES_MAX
    }

    /// Whether an index of `log_bytes` holds so much that does not count any more that it should be written anew.
    /// At least as much was appended since the last time as is written now: so a record costs O(1).
    pub(crate) fn is_stale(&self, log_bytes: u64) -> bool {
        let kept_bytes = self.kept.blocks.len() as u64 * KEEP_RECORD_BYTES;
        log_bytes > 2 * (self.live_bytes + kept_bytes) + SLACK_BYTES
    }

    fn use_now(&mut self, key: Key) {
        self.tick += 1;
        if let Some(place) = self.blocks.get_mut(&key) {
            place.used = self.tick;
            self.order.push_back((self.tick, key));
        }
        // Uses that no longer count are thrown out when they are most of the list: O(1) for each use.
        if self.order.len() > 2 * self.blocks.len() + 64 {
            let blocks = &self.blocks;
            self.order.retain(|(used, key)| blocks.get(key).is_some_and(|place| place.used == *used));
        }
    }

    fn forget(&mut self, key: &Key) {
        let Some(place) = self.blocks.remove(key) else { return };
        self.bytes -= u64::from(place.len);
        self.live_bytes -= BLOCK_RECORD_BYTES;
        if let Some(file) = self.files.get_mut(&place.file) {
            file.blocks -= 1;
            // The last file stays: a writer that adds its blocks under a small cap evicts some of them on the way.
            if file.blocks == 0 && place.file + 1 != self.next_file {
                self.drop_file(place.file);
            }
        }
    }

    fn drop_file(&mut self, number: u32) {
        if let Some(file) = self.files.remove(&number) {
            self.live_bytes -= file.record_bytes();
        }
    }

    fn apply(&mut self, record: &Record<'_>) {
        match *record {
            Record::File { likeness, path } => {
                // A file without blocks is only of use while it is the last one: its blocks come next.
                if let Some(last) = self.next_file.checked_sub(1)
                    && self.files.get(&last).is_some_and(|file| file.blocks == 0)
                {
                    self.drop_file(last);
                }
                let file = LandedFile { likeness, path: path.into(), blocks: 0 };
                self.live_bytes += file.record_bytes();
                self.files.insert(self.next_file, file);
                self.next_file += 1;
            }
            Record::Block { key, file, at, len } => {
                if len == 0 || u64::from(len) > BLOCK_BYTES || !self.files.contains_key(&file) {
                    return;
                }
                // The file may be the one that held the block before and nothing else: count the new one first.
                if let Some(landed) = self.files.get_mut(&file) {
                    landed.blocks += 1;
                }
                self.forget(&key);
                // Here and not in the writers, so that it holds whichever program wrote the index.
                if self.blocks.len() >= BLOCKS_MAX
                    && let Some(oldest) = self.oldest()
                {
                    self.forget(&oldest);
                }
                self.blocks.insert(key, BlockPlace { file, at, len, used: 0 });
                self.bytes += u64::from(len);
                self.live_bytes += BLOCK_RECORD_BYTES;
                self.use_now(key);
            }
            Record::Used { key } => {
                self.use_now(key);
                self.kept.use_now(key);
            }
            Record::Forget { key } => self.forget(&key),
            Record::Keep { key, len } => self.kept.keep(key, len),
            Record::Drop { key } => self.kept.drop(&key),
        }
    }

    /// Whether `bytes` begin with the header of an index with these checksums.
    pub(crate) fn is_header(sums: &SumKey, bytes: &[u8]) -> bool {
        bytes == header(sums)
    }

    /// Applies the records of `bytes`, which begin at `base` of the file, up to the first that is not whole and right;
    /// gives the bytes that were understood.
    pub(crate) fn replay(&mut self, sums: &SumKey, base: u64, bytes: &[u8]) -> usize {
        let mut done = 0;
        while let Some((record, length)) =
            bytes.get(done..).and_then(|rest| decode(sums, base + done as u64, rest))
        {
            self.apply(&record);
            done += length;
        }
        done
    }

    /// Writes a record behind `out`, whose first byte will stand at `base` of the file, and applies it.
    pub(crate) fn push(&mut self, sums: &SumKey, base: u64, record: &Record<'_>, out: &mut Vec<u8>) {
        encode(sums, base, record, out);
        self.apply(record);
    }

    /// A new index that says the same: header, and what counts in the order of last use.
    pub(crate) fn compact(&self, sums: &SumKey) -> Vec<u8> {
        let mut out = header(sums);
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        for (used, key) in &self.order {
            let Some(place) = self.blocks.get(key).filter(|place| place.used == *used) else { continue };
            let Some(file) = self.files.get(&place.file) else { continue };
            let next = numbers.len() as u32;
            let number = *numbers.entry(place.file).or_insert(next);
            if number == next {
                encode(sums, 0, &Record::File { likeness: file.likeness, path: &file.path }, &mut out);
            }
            let block = Record::Block { key: *key, file: number, at: place.at, len: place.len };
            encode(sums, 0, &block, &mut out);
        }
        for (key, len) in self.kept.in_order() {
            encode(sums, 0, &Record::Keep { key, len }, &mut out);
        }
        out
    }

    /// What is remembered, oldest use first, for comparing.
    #[cfg(test)]
    pub(crate) fn told(&self) -> Vec<(Key, Likeness, Vec<u8>, u64, u32)> {
        let live = self.order.iter().filter_map(|(used, key)| {
            let place = self.blocks.get(key).filter(|place| place.used == *used)?;
            let file = self.files.get(&place.file)?;
            Some((*key, file.likeness, file.path.to_vec(), place.at, place.len))
        });
        live.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SUMS: SumKey = [7; 32];

    fn likeness(ino: u64) -> Likeness {
        Likeness { ino, size: 1 << 20, mtime: Time { sec: -5, nsec: 999_999_999 } }
    }

    fn key(n: u8) -> Key {
        [n; 32]
    }

    /// What a writer might do, as numbers.
    #[derive(Clone, Debug)]
    enum Step {
        File(u8),
        Block(u8, u8, u16),
        Used(u8),
        Forget(u8),
        Keep(u8, u16),
        Drop(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<u8>().prop_map(Step::File),
            (0u8..20, any::<u8>(), 0u16..5000).prop_map(|(k, f, l)| Step::Block(k, f, l)),
            (0u8..20).prop_map(Step::Used),
            (0u8..20).prop_map(Step::Forget),
            (0u8..20, 0u16..5000).prop_map(|(k, l)| Step::Keep(k, l)),
            (0u8..20).prop_map(Step::Drop),
        ]
    }

    fn run(steps: &[Step]) -> (View, Vec<u8>) {
        let mut view = View::default();
        let mut log = header(&SUMS);
        for step in steps {
            let path = match step {
                Step::File(n) => vec![b'a' + n % 26; 1 + usize::from(*n)],
                _ => Vec::new(),
            };
            let record = match *step {
                Step::File(n) => Record::File { likeness: likeness(n.into()), path: &path },
                Step::Block(k, f, l) => {
                    let file = view.next_file().wrapping_sub(1 + u32::from(f % 3));
                    Record::Block { key: key(k), file, at: u64::from(f) << 12, len: l.into() }
                }
                Step::Used(k) => Record::Used { key: key(k) },
                Step::Forget(k) => Record::Forget { key: key(k) },
                Step::Keep(k, l) => Record::Keep { key: key(k), len: l.into() },
                Step::Drop(k) => Record::Drop { key: key(k) },
            };
            view.push(&SUMS, 0, &record, &mut log);
        }
        (view, log)
    }

    fn replayed(log: &[u8]) -> (View, usize) {
        let mut view = View::default();
        let done = view.replay(&SUMS, HEADER_BYTES as u64, &log[HEADER_BYTES..]);
        (view, done + HEADER_BYTES)
    }

    /// The sums kept by hand are what counting gives.
    fn counted(view: &View) {
        assert_eq!(view.bytes, view.blocks.values().map(|p| u64::from(p.len)).sum::<u64>());
        let files: u64 = view.files.values().map(LandedFile::record_bytes).sum();
        assert_eq!(view.live_bytes, files + view.blocks.len() as u64 * BLOCK_RECORD_BYTES);
        for (number, file) in &view.files {
            let blocks = view.blocks.values().filter(|p| p.file == *number).count();
            assert_eq!(file.blocks as usize, blocks);
            assert!(blocks > 0 || *number + 1 == view.next_file, "a file nobody needs");
        }
        assert!(view.blocks.values().all(|p| view.files.contains_key(&p.file)));
        assert!(view.order.len() <= 2 * view.blocks.len() + 65);
        assert_eq!(view.kept.bytes, view.kept.blocks.values().map(|(len, _)| u64::from(*len)).sum::<u64>());
        assert!(view.kept.order.len() <= 2 * view.kept.blocks.len() + 65);
        assert_eq!(view.kept.in_order().count(), view.kept.blocks.len());
    }

    proptest! {
        #[test]
        fn replaying_says_what_the_writer_knew(steps in prop::collection::vec(step(), 0..200), cut in any::<prop::sample::Index>()) {
            let (view, log) = run(&steps);
            counted(&view);
            let (again, done) = replayed(&log);
            prop_assert_eq!(done, log.len());
            prop_assert_eq!(view.told(), again.told());
            counted(&again);

            // In two pieces, as another process would read it.
            let cut = HEADER_BYTES + cut.index(log.len() - HEADER_BYTES + 1);
            let mut parts = View::default();
            let first = HEADER_BYTES + parts.replay(&SUMS, HEADER_BYTES as u64, &log[HEADER_BYTES..cut]);
            let rest = parts.replay(&SUMS, first as u64, &log[first..]);
            prop_assert_eq!(first + rest, log.len());
            prop_assert_eq!(parts.told(), again.told());
        }

        #[test]
        fn a_new_index_says_the_same(steps in prop::collection::vec(step(), 0..200)) {
            let (view, log) = run(&steps);
            let new = view.compact(&SUMS);
            prop_assert!(new.len() <= log.len());
            let most = view.live_bytes + view.kept.blocks.len() as u64 * KEEP_RECORD_BYTES;
            prop_assert!(new.len() as u64 <= HEADER_BYTES as u64 + most);
            let (again, done) = replayed(&new);
            prop_assert_eq!(done, new.len());
            prop_assert_eq!(view.told(), again.told());
            prop_assert!(view.kept.in_order().eq(again.kept.in_order()));
            prop_assert_eq!(view.bytes, again.bytes);
            counted(&again);
        }

        #[test]
        fn records_nobody_wrote_are_taken_or_left(
            bodies in prop::collection::vec((0u8..8, prop::collection::vec(any::<u8>(), 0..90)), 0..40)
        ) {
            let mut log = header(&SUMS);
            for (kind, body) in &bodies {
                let start = log.len();
                log.push(*kind);
                log.extend_from_slice(&(body.len() as u16).to_le_bytes());
                log.extend_from_slice(body);
                let sum = checksum(&SUMS, start as u64, &log[start..]);
                log.extend_from_slice(&sum);
            }
            counted(&replayed(&log).0);
        }
    }

    fn some_log() -> (Vec<u8>, Vec<usize>) {
        let mut view = View::default();
        let mut log = header(&SUMS);
        let mut ends = vec![log.len()];
        for n in 0..6 {
            let mut add = |record| {
                view.push(&SUMS, 0, &record, &mut log);
                ends.push(log.len());
            };
            add(Record::File { likeness: likeness(n), path: b"some/where" });
            add(Record::Block { key: key(n as u8), file: n as u32, at: n << 22, len: 4096 });
            add(Record::Used { key: key(0) });
        }
        view.push(&SUMS, 0, &Record::Forget { key: key(2) }, &mut log);
        ends.push(log.len());
        (log, ends)
    }

    #[test]
    fn every_flipped_bit_and_every_cut_gives_a_prefix() {
        let (log, ends) = some_log();
        let before = |at: usize| *ends.iter().rfind(|end| **end <= at).unwrap();
        for at in HEADER_BYTES..log.len() {
            for bit in 0..8 {
                let mut bad = log.clone();
                bad[at] ^= 1 << bit;
                let (view, done) = replayed(&bad);
                assert_eq!(done, before(at), "byte {at} bit {bit}");
                assert_eq!(view.told(), replayed(&log[..done]).0.told());
            }
            let (_, done) = replayed(&log[..at]);
            assert_eq!(done, before(at));
        }
        for at in 0..HEADER_BYTES {
            let mut bad = log[..HEADER_BYTES].to_vec();
            bad[at] ^= 1;
            assert!(!View::is_header(&SUMS, &bad));
        }
        assert!(View::is_header(&SUMS, &log[..HEADER_BYTES]));
        assert!(!View::is_header(&[8; 32], &log[..HEADER_BYTES]), "another key");
    }

    #[test]
    fn a_record_at_another_place_is_none() {
        let (log, ends) = some_log();
        let mut moved = log[..ends[1]].to_vec();
        moved.extend_from_slice(&log[ends[2]..ends[3]]);
        assert_eq!(replayed(&moved).1, ends[1]);
    }

    #[test]
    fn memory_is_bounded_whoever_wrote_the_index() {
        let mut view = View::default();
        let mut log = Vec::new();
        view.push(&SUMS, 0, &Record::File { likeness: likeness(1), path: b"f" }, &mut log);
        for n in 0..BLOCKS_MAX as u32 * 3 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&n.to_le_bytes());
            view.push(&SUMS, 0, &Record::Block { key, file: 0, at: 0, len: 1 }, &mut log);
        }
        assert_eq!(view.blocks.len(), BLOCKS_MAX);
        for n in 0..1000 {
            view.push(&SUMS, 0, &Record::File { likeness: likeness(n), path: b"empty" }, &mut log);
        }
        assert_eq!(view.files.len(), 2);
        for _ in 0..10_000 {
            view.push(&SUMS, 0, &Record::Used { key: key(0) }, &mut log);
        }
        counted(&view);
    }
}
