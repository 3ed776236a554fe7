//! Entrance for the fuzzer: a session file of any bytes. Must not know how the fuzzer works.

use super::session::{Header, Identity, decode, encode_header, encode_record};
use crate::blocks::{BLOCK_BYTES, Cv};
use fastcopy::meta::Time;

/// The bytes as they are; then a session made from them, whose checksums fit, and the same with one byte changed and
/// cut short. What is read is what was written, or a prefix of it: a session costs time when it is wrong, never data.
pub fn session(data: &[u8]) {
    if let Some(session) = decode(data) {
        assert!(session.bytes <= data.len() as u64);
        assert!(session.blocks.len() as u64 <= session.header.source.size.div_ceil(BLOCK_BYTES));
        // Written anew it says the same.
        let (mut again, sum) = encode_header(&session.header);
        again.extend(encode_record(sum, &session.blocks).0);
        let again = decode(&again).map(|s| (s.header, s.blocks));
        assert_eq!(again, Some((session.header, session.blocks)));
    }
    let Some(([blocks, name, at, change, cut], rest)) = data.split_first_chunk::<5>() else { return };
    let (name, rest) = rest.split_at(usize::from(*name).min(rest.len()));
    let time = Time { sec: i64::from(*at) - 100, nsec: u32::from(*cut) };
    let size = u64::from(*blocks) * BLOCK_BYTES + u64::from(*cut);
    let source = Identity { dev: 1, ino: u64::from(*at), size, mtime: time, ctime: time };
    let header = Header { options: u32::from(*change & 3), source, stage: (2, 3), name: name.to_vec() };
    let (mut bytes, mut sum) = encode_header(&header);
    let mut all: Vec<Cv> = Vec::new();
    for record in rest.chunks(4) {
        let cvs: Vec<Cv> = record.iter().map(|byte| [*byte; 32]).collect();
        let (record, next) = encode_record(sum, &cvs);
        (bytes, sum) = ([bytes, record].concat(), next);
        all.extend(cvs);
    }
    let whole = decode(&bytes);
    let most = size.div_ceil(BLOCK_BYTES);
    match &whole {
        Some(whole) => {
            assert_eq!(whole.header, header);
            assert!(all.starts_with(&whole.blocks) && whole.blocks.len() as u64 <= most);
        }
        None => panic!("what was written is not read"),
    }
    let len = bytes.len();
    if let Some(byte) = bytes.get_mut(usize::from(*at) * 7 % len) {
        *byte ^= change | 1;
    }
    bytes.truncate(len - usize::from(*cut).min(len));
    if let Some(read) = decode(&bytes) {
        assert!(read.header == header && all.starts_with(&read.blocks));
        assert!(read.blocks.len() < all.len() || read.blocks.len() as u64 <= most);
    }
}
