//! The bytes of a session file, as laid down in `docs/session-format.md`.
//!
//! Must not touch any disk and must not decide whether a session is good enough; it says what the bytes say.

use crate::blocks::{BLOCK_BYTES, Cv, blocks_of};
use bcmr_wire::bytes::ByteReader;
use fastcopy::meta::{Info, Time};

/// The header without the name.
const FIXED_BYTES: usize = 82;
const SUM_BYTES: usize = 8;
/// The largest header: names have 255 bytes at most.
pub(crate) const HEADER_BYTES_MAX: usize = FIXED_BYTES + 255 + SUM_BYTES;
const MAGIC: &[u8; 8] = b"bcmrSES1";
/// Made with `--fast`: blocks carry no hash.
pub(crate) const FAST: u32 = 1;
/// Zeros were turned into holes.
pub(crate) const ZEROS_TO_HOLES: u32 = 2;

/// Which file, as of which moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
}

impl Identity {
    pub(crate) fn of(info: &Info) -> Identity {
        Identity { dev: info.dev, ino: info.ino, size: info.size, mtime: info.mtime, ctime: info.ctime }
    }
}

/// The header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) options: u32,
    pub(crate) source: Identity,
    /// Device and inode of the stage.
    pub(crate) stage: (u64, u64),
    pub(crate) name: Vec<u8>,
}

/// A session as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) header: Header,
    /// The chaining values of the blocks recorded, from the first on.
    pub(crate) blocks: Vec<Cv>,
    /// Bytes of the file that are whole; a torn record behind them is to be cut off.
    pub(crate) bytes: u64,
    /// The checksum the next record goes on from.
    pub(crate) sum: [u8; SUM_BYTES],
}

fn sum(parts: &[&[u8]]) -> [u8; SUM_BYTES] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let mut out = [0; SUM_BYTES];
    out.copy_from_slice(hasher.finalize().as_bytes().split_at(SUM_BYTES).0);
    out
}

/// The largest session a source of `size` bytes can have, in bytes: more is not read.
pub(crate) fn bytes_max(size: u64) -> u64 {
    (FIXED_BYTES + SUM_BYTES + 256) as u64 + blocks_of(size).saturating_mul(32 + 12)
}

/// The header's bytes and the checksum the first record goes on from.
pub(crate) fn encode_header(header: &Header) -> (Vec<u8>, [u8; SUM_BYTES]) {
    let mut out = Vec::with_capacity(FIXED_BYTES + header.name.len() + SUM_BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
    out.extend_from_slice(&header.options.to_le_bytes());
    let s = &header.source;
    for number in [s.dev, s.ino, s.size] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for time in [s.mtime, s.ctime] {
        out.extend_from_slice(&time.sec.to_le_bytes());
        out.extend_from_slice(&time.nsec.to_le_bytes());
    }
    for number in [header.stage.0, header.stage.1] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&(header.name.len() as u16).to_le_bytes());
    out.extend_from_slice(&header.name);
    let sum = sum(&[&out]);
    out.extend_from_slice(&sum);
    (out, sum)
}

/// A record's bytes and the checksum the next one goes on from.
pub(crate) fn encode_record(before: [u8; SUM_BYTES], blocks: &[Cv]) -> (Vec<u8>, [u8; SUM_BYTES]) {
    let mut out = Vec::with_capacity(4 + blocks.len() * 32 + SUM_BYTES);
    out.extend_from_slice(&(blocks.len() as u32).to_le_bytes());
    for block in blocks {
        out.extend_from_slice(block);
    }
    let sum = sum(&[&before, &out]);
    out.extend_from_slice(&sum);
    (out, sum)
}

fn time(r: &mut ByteReader<'_>) -> Option<Time> {
    Some(Time { sec: r.i64()?, nsec: r.u32()? })
}

/// Reads a session; `None` when the header is not one of ours. Records end at the first that does not fit.
pub(crate) fn decode(bytes: &[u8]) -> Option<Session> {
    let mut r = ByteReader::new(bytes);
    if r.take(MAGIC.len())? != MAGIC || u64::from(r.u32()?) != BLOCK_BYTES {
        return None;
    }
    let options = r.u32()?;
    let (dev, ino, size) = (r.u64()?, r.u64()?, r.u64()?);
    let (mtime, ctime) = (time(&mut r)?, time(&mut r)?);
    let stage = (r.u64()?, r.u64()?);
    let length = usize::from(r.u16()?);
    let name = r.take(length)?.to_vec();
    let written = bytes.len() - r.rest().len();
    let mut last: [u8; SUM_BYTES] = r.array()?;
    if last != sum(&[bytes.get(..written)?]) {
        return None;
    }
    let source = Identity { dev, ino, size, mtime, ctime };
    let mut blocks = Vec::new();
    let mut whole = bytes.len() - r.rest().len();
    let most = blocks_of(size);
    while let Some((record, next)) = decode_record(&mut r, last) {
        if blocks.len() as u64 + record.len() as u64 > most {
            break;
        }
        blocks.extend(record);
        last = next;
        whole = bytes.len() - r.rest().len();
    }
    Some(Session { header: Header { options, source, stage, name }, blocks, bytes: whole as u64, sum: last })
}

fn decode_record(r: &mut ByteReader<'_>, before: [u8; SUM_BYTES]) -> Option<(Vec<Cv>, [u8; SUM_BYTES])> {
    let all = r.rest();
    let count = r.u32()? as usize;
    let body = r.take(count.checked_mul(32)?)?;
    let written = all.len() - r.rest().len();
    let stated: [u8; SUM_BYTES] = r.array()?;
    if stated != sum(&[&before, all.get(..written)?]) {
        return None;
    }
    let blocks = body.chunks_exact(32).filter_map(|c| c.try_into().ok()).collect();
    Some((blocks, stated))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        let t = |sec| Time { sec, nsec: 7 };
        let source = Identity { dev: 1, ino: 2, size: 100 * BLOCK_BYTES + 5, mtime: t(3), ctime: t(-4) };
        Header { options: 0, source, stage: (5, 6), name: b"na\xffme".to_vec() }
    }

    fn sample() -> Vec<u8> {
        let (mut bytes, sum) = encode_header(&header());
        let (one, sum) = encode_record(sum, &[[1; 32], [2; 32]]);
        let (two, _) = encode_record(sum, &[[3; 32]]);
        bytes.extend(one);
        bytes.extend(two);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = sample();
        let session = decode(&bytes).unwrap();
        assert_eq!(session.header, header());
        assert_eq!(session.blocks, [[1; 32], [2; 32], [3; 32]]);
        assert_eq!(session.bytes, bytes.len() as u64);
    }

    #[test]
    fn every_cut_and_every_flipped_bit_reads_as_a_prefix_or_as_nothing() {
        let good = sample();
        let full = decode(&good).unwrap();
        for cut in 0..good.len() {
            if let Some(s) = decode(&good[..cut]) {
                assert_eq!(s.header, full.header);
                assert!(full.blocks.starts_with(&s.blocks), "cut {cut}");
                assert!(s.bytes as usize <= cut);
            }
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Some(s) = decode(&bad) {
                assert_eq!(s.header, full.header, "bit {bit}");
                assert!(full.blocks.starts_with(&s.blocks), "bit {bit}");
                assert!(s.blocks.len() < full.blocks.len(), "bit {bit} went unnoticed");
            }
        }
    }

    proptest! {
        /// Whatever is written is read; whatever becomes of the bytes, a prefix of it or nothing.
        #[test]
        fn any_session_comes_back_or_a_prefix_of_it(
            name in proptest::collection::vec(any::<u8>(), 0..40),
            counts in proptest::collection::vec(0usize..5, 0..8),
            size in 0..20 * BLOCK_BYTES,
            at: u16,
            change in 1u8..,
            cut in 0usize..400,
        ) {
            let source = Identity { size, ..header().source };
            let head = Header { name, source, ..header() };
            let (mut bytes, mut sum) = encode_header(&head);
            let mut all = Vec::new();
            for (n, count) in counts.iter().enumerate() {
                let cvs = vec![[n as u8; 32]; *count];
                let (record, next) = encode_record(sum, &cvs);
                (bytes, sum) = ([bytes, record].concat(), next);
                all.extend(cvs);
            }
            let whole = decode(&bytes).unwrap();
            prop_assert_eq!(&whole.header, &head);
            prop_assert!(all.starts_with(&whole.blocks));
            prop_assert!(whole.blocks.len() as u64 <= blocks_of(size));
            let len = bytes.len();
            bytes[usize::from(at) % len] ^= change;
            bytes.truncate(len - cut.min(len));
            if let Some(read) = decode(&bytes) {
                prop_assert_eq!(&read.header, &head);
                prop_assert!(all.starts_with(&read.blocks));
                prop_assert!(read.bytes as usize <= bytes.len());
            }
        }

        #[test]
        fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let magic = [&MAGIC[..], &(BLOCK_BYTES as u32).to_le_bytes(), &bytes].concat();
            prop_assert!(decode(&bytes).is_none() && decode(&magic).is_none());
        }
    }

    #[test]
    fn records_cannot_change_places_or_files() {
        let (head, sum0) = encode_header(&header());
        let (one, sum1) = encode_record(sum0, &[[1; 32]]);
        let (two, _) = encode_record(sum1, &[[2; 32]]);
        let swapped = [head.clone(), two, one.clone()].concat();
        assert_eq!(decode(&swapped).unwrap().blocks.len(), 0);
        let other = Header { stage: (5, 7), ..header() };
        let foreign = [encode_header(&other).0, one].concat();
        assert_eq!(decode(&foreign).unwrap().blocks.len(), 0);
    }

    #[test]
    fn a_terabyte_takes_eight_mebibytes_and_a_gibibyte_stays_under_8e6() {
        for (size, name, most) in [(1u64 << 30, 20, 8.0e-6), (1 << 40, 255, 7.9e-6)] {
            let blocks = size.div_ceil(crate::blocks::FORMAT_BLOCK_BYTES);
            let bytes = (FIXED_BYTES + name + SUM_BYTES) as u64 + blocks * 32 + size / (64 << 20) * 12;
            assert!((bytes as f64) < size as f64 * most, "{size}: {bytes}");
            // As much is read back; the reader's limit goes by the blocks of this build.
            assert!(bytes <= bytes_max(blocks * BLOCK_BYTES));
        }
    }

    #[test]
    fn a_record_of_more_blocks_than_the_file_has_is_not_believed() {
        let small = Header { source: Identity { size: BLOCK_BYTES, ..header().source }, ..header() };
        let (mut bytes, sum) = encode_header(&small);
        bytes.extend(encode_record(sum, &[[1; 32], [2; 32]]).0);
        assert_eq!(decode(&bytes).unwrap().blocks.len(), 0);
    }
}
