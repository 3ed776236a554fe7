//! Records sorted by their keys in bounded memory: what does not fit is written to files without names as sorted runs, and
//! all runs are merged in the end.
//!
//! Must not know what a record means.

use crate::receiver::land;
use fastcopy::dir::Dir;
use fastcopy::sync;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::sync::{Mutex, PoisonError};

/// Bytes that one worker's records take before they become a run.
const BUFFER_BYTES: usize = 8 << 20;
/// Runs that are merged at a time; more become one first.
const FAN: usize = 128;
/// Bytes read or written at a time for each run.
const PIECE_BYTES: usize = 64 << 10;
/// Lengths of key and value before a record.
const HEAD_BYTES: usize = 8;

/// Sorts what several workers bring.
pub(super) struct Sorter<'d> {
    dir: &'d Dir,
    buffer_bytes: usize,
    /// Records that are not sorted yet: each worker takes one and puts it back.
    buffers: Mutex<Vec<SortBuffer>>,
    runs: Mutex<Vec<SortedRun>>,
}

/// Some records and where each begins.
#[derive(Default)]
struct SortBuffer {
    bytes: Vec<u8>,
    at: Vec<u32>,
}

impl SortBuffer {
    fn record(&self, at: u32) -> Option<(&[u8], &[u8])> {
        let (head, rest) = self.bytes.get(at as usize..)?.split_first_chunk::<HEAD_BYTES>()?;
        let (key, value) = lengths(head);
        let (key, rest) = rest.split_at_checked(key)?;
        Some((key, rest.get(..value)?))
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.at.push(self.bytes.len() as u32);
        self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    fn sort(&mut self) {
        let mut at = std::mem::take(&mut self.at);
        at.sort_unstable_by(|a, b| self.record(*a).cmp(&self.record(*b)));
        self.at = at;
    }
}

fn lengths(head: &[u8; HEAD_BYTES]) -> (usize, usize) {
    let number = |at: usize| {
        let bytes = head.get(at..at + 4).and_then(|b| b.try_into().ok()).unwrap_or_default();
        u32::from_le_bytes(bytes) as usize
    };
    (number(0), number(4))
}

/// A sorted run.
enum SortedRun {
    Memory(SortBuffer, usize),
    /// A file, and the bytes of it that were not read yet.
    File(BufReader<File>, u64),
}

impl SortedRun {
    /// The next record, into `record`. `false`: there is none.
    fn next(&mut self, record: &mut SortedRecord) -> io::Result<bool> {
        record.key.clear();
        record.value.clear();
        match self {
            SortedRun::Memory(buffer, next) => {
                let found = buffer.at.get(*next).and_then(|at| buffer.record(*at));
                let Some((key, value)) = found else { return Ok(false) };
                record.key.extend_from_slice(key);
                record.value.extend_from_slice(value);
                *next += 1;
                Ok(true)
            }
            SortedRun::File(_, 0) => Ok(false),
            SortedRun::File(file, left) => {
                let mut head = [0; HEAD_BYTES];
                file.read_exact(&mut head)?;
                let (key, value) = lengths(&head);
                let bytes = (HEAD_BYTES + key + value) as u64;
                // A file that another process wrote may be damaged: no more is believed than there is.
                *left = left.checked_sub(bytes).ok_or(io::ErrorKind::InvalidData)?;
                for (into, length) in [(&mut record.key, key), (&mut record.value, value)] {
                    into.resize(length, 0);
                    file.read_exact(into)?;
                }
                Ok(true)
            }
        }
    }
}

/// A record of a merge.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SortedRecord {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// The next record of a run.
struct RunHead {
    record: SortedRecord,
    run: usize,
}

impl PartialEq for RunHead {
    fn eq(&self, other: &RunHead) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for RunHead {}

impl PartialOrd for RunHead {
    fn partial_cmp(&self, other: &RunHead) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RunHead {
    /// The smallest is the greatest, as a heap gives the greatest first.
    fn cmp(&self, other: &RunHead) -> Ordering {
        let RunHead { record: mine, run } = self;
        let RunHead { record: theirs, run: other_run } = other;
        (&theirs.key, &theirs.value, other_run).cmp(&(&mine.key, &mine.value, run))
    }
}

impl<'d> Sorter<'d> {
    /// Runs that do not fit into memory go to files in `dir` that have no names.
    pub(super) fn new(dir: &'d Dir) -> Sorter<'d> {
        Sorter::with(dir, BUFFER_BYTES)
    }

    fn with(dir: &'d Dir, buffer_bytes: usize) -> Sorter<'d> {
        Sorter { dir, buffer_bytes, buffers: Mutex::default(), runs: Mutex::default() }
    }

    /// Adds what `each` pushes, which one worker does at a time with a buffer of its own.
    ///
    /// # Errors
    /// A run could not be written.
    pub(super) fn add(
        &self,
        each: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut buffer = self.take();
        let added = each(&mut |key, value| {
            buffer.push(key, value);
            if buffer.bytes.len() < self.buffer_bytes {
                return Ok(());
            }
            let full = std::mem::take(&mut buffer);
            let run = self.spill(full)?;
            self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
            Ok(())
        });
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        added
    }

    fn take(&self) -> SortBuffer {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn spill(&self, mut buffer: SortBuffer) -> io::Result<SortedRun> {
        buffer.sort();
        let mut out = BufWriter::with_capacity(PIECE_BYTES, land::scratch(self.dir, 0o600)?);
        for at in &buffer.at {
            if let Some((key, value)) = buffer.record(*at) {
                write_record(&mut out, key, value)?;
            }
        }
        readable(out)
    }

    /// Whether nothing was added.
    pub(super) fn is_empty(&self) -> bool {
        let buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.is_empty() && buffers.iter().all(|buffer| buffer.at.is_empty())
    }

    /// Adds a run of so many bytes that another process has written.
    ///
    /// # Errors
    /// Runs that were there before could not be merged: so few files are open at a time, however many processes there are.
    pub(super) fn adopt(&self, run: File, bytes: u64) -> io::Result<()> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.push(SortedRun::File(BufReader::with_capacity(PIECE_BYTES, run), bytes));
        self.fold(&mut runs)
    }

    /// Merges runs until no more are left than are merged at once.
    fn fold(&self, runs: &mut Vec<SortedRun>) -> io::Result<()> {
        while runs.len() > FAN {
            let rest = runs.split_off(FAN);
            let mut merge = Merge::of(std::mem::replace(runs, rest))?;
            let mut out = BufWriter::with_capacity(PIECE_BYTES, land::scratch(self.dir, 0o600)?);
            merge.write(&mut out)?;
            runs.push(readable(out)?);
        }
        Ok(())
    }

    /// Writes everything that was added into `out`, as one run. Returns its bytes.
    ///
    /// # Errors
    /// A run could not be written or read.
    pub(super) fn write(self, out: File) -> io::Result<u64> {
        let mut out = BufWriter::with_capacity(PIECE_BYTES, out);
        self.merged()?.write(&mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        // What another machine reads, and what could not be written is heard of here.
        sync::data(&file)?;
        Ok(file.metadata()?.len())
    }

    /// Everything that was added, in order.
    ///
    /// # Errors
    /// A run could not be written or read.
    pub(super) fn merged(self) -> io::Result<Merge> {
        let mut runs = std::mem::take(&mut *self.runs.lock().unwrap_or_else(PoisonError::into_inner));
        self.fold(&mut runs)?;
        let left = self.buffers.into_inner().unwrap_or_else(PoisonError::into_inner);
        runs.extend(left.into_iter().map(|mut buffer| {
            buffer.sort();
            SortedRun::Memory(buffer, 0)
        }));
        Merge::of(runs)
    }
}

fn write_record(out: &mut impl Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    out.write_all(&(key.len() as u32).to_le_bytes())?;
    out.write_all(&(value.len() as u32).to_le_bytes())?;
    out.write_all(key)?;
    out.write_all(value)
}

/// What was written, from its front.
fn readable(out: BufWriter<File>) -> io::Result<SortedRun> {
    let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    let bytes = file.stream_position()?;
    file.rewind()?;
    Ok(SortedRun::File(BufReader::with_capacity(PIECE_BYTES, file), bytes))
}

/// Sorted runs as one.
pub(super) struct Merge {
    runs: Vec<SortedRun>,
    heads: BinaryHeap<RunHead>,
}

impl Merge {
    fn of(mut runs: Vec<SortedRun>) -> io::Result<Merge> {
        let mut heads = BinaryHeap::new();
        for (number, run) in runs.iter_mut().enumerate() {
            let mut record = SortedRecord::default();
            if run.next(&mut record)? {
                heads.push(RunHead { record, run: number });
            }
        }
        Ok(Merge { runs, heads })
    }

    /// Writes all records.
    fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        while let Some(record) = self.next()? {
            write_record(out, &record.key, &record.value)?;
        }
        Ok(())
    }

    /// The next record.
    ///
    /// # Errors
    /// A run could not be read.
    pub(super) fn next(&mut self) -> io::Result<Option<SortedRecord>> {
        let Some(mut head) = self.heads.peek_mut() else { return Ok(None) };
        let mut following = SortedRecord::default();
        let more = match self.runs.get_mut(head.run) {
            Some(run) => run.next(&mut following)?,
            None => false,
        };
        if more {
            return Ok(Some(std::mem::replace(&mut head.record, following)));
        }
        Ok(Some(PeekMut::pop(head).record))
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sorted(records: &[(Vec<u8>, Vec<u8>)], buffer_bytes: usize, pieces: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        let sorter = Sorter::with(&dir, buffer_bytes);
        for piece in records.chunks(pieces.max(1)) {
            sorter.add(|push| piece.iter().try_for_each(|(key, value)| push(key, value))).unwrap();
        }
        let mut merge = sorter.merged().unwrap();
        let mut out = Vec::new();
        while let Some(SortedRecord { key, value }) = merge.next().unwrap() {
            out.push((key, value));
        }
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0, "no names are left");
        out
    }

    #[test]
    fn more_runs_than_are_merged_at_once() {
        let records: Vec<(Vec<u8>, Vec<u8>)> =
            (0..1000u32).map(|n| ((n * 7919 % 1000).to_be_bytes().to_vec(), vec![n as u8; 3])).collect();
        let mut want = records.clone();
        want.sort();
        // One record a run.
        assert_eq!(sorted(&records, 1, 10), want);
    }

    /// Runs of other processes, more than are merged at once, and one of which a length was changed, or the end is missing.
    #[test]
    fn what_other_processes_have_sorted_is_merged_and_not_believed() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        let written = |n: u32| {
            let sorter = Sorter::new(&dir);
            sorter.add(|push| push(&n.to_be_bytes(), b"value")).unwrap();
            let path = tmp.path().join(n.to_string());
            let bytes = sorter.write(File::create(&path).unwrap()).unwrap();
            (path, bytes)
        };
        let all = Sorter::new(&dir);
        for n in (0..FAN as u32 + 5).rev() {
            let (path, bytes) = written(n);
            all.adopt(File::open(path).unwrap(), bytes).unwrap();
            assert!(all.runs.lock().unwrap().len() <= FAN, "so many files are open");
        }
        let mut merge = all.merged().unwrap();
        let keys = std::iter::from_fn(|| merge.next().unwrap().map(|record| record.key));
        assert!(keys.eq((0..FAN as u32 + 5).map(|n| n.to_be_bytes())));
        type Damage = fn(&mut Vec<u8>);
        let damages: [(Damage, io::ErrorKind); 2] = [
            (|bytes| bytes[3] = 0x7f, io::ErrorKind::InvalidData),
            (|bytes| bytes.truncate(9), io::ErrorKind::UnexpectedEof),
        ];
        for (damage, kind) in damages {
            let (path, bytes) = written(1);
            let mut damaged = std::fs::read(&path).unwrap();
            damage(&mut damaged);
            std::fs::write(&path, damaged).unwrap();
            let sorter = Sorter::new(&dir);
            sorter.adopt(File::open(path).unwrap(), bytes).unwrap();
            assert_eq!(sorter.merged().err().map(|e| e.kind()), Some(kind));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_order_does_not_depend_on_what_fits(
            records in proptest::collection::vec((proptest::collection::vec(0u8..4, 0..5), any::<Vec<u8>>()), 0..60),
            buffer_bytes in 1usize..200,
            pieces in 1usize..9,
        ) {
            let mut want = records.clone();
            want.sort();
            prop_assert_eq!(sorted(&records, buffer_bytes, pieces), want);
        }
    }
}
