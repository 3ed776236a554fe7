//! A recorded log: what reached the disks, in order. Knows no file system.

#[path = "../../blkrec/src/format.rs"]
#[allow(dead_code)] // the recorder's half of it
mod format;

use format::{DISCARD, FLUSH, HEADER, Header, MARK, WRITE};
use sh::Result;
use std::ops::Range;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The data are [`Log::data`] of the range.
    Write {
        disk: usize,
        off: u64,
        data: Range<usize>,
    },
    Flush {
        disk: usize,
    },
    Discard {
        disk: usize,
        off: u64,
        len: u64,
    },
    Mark(String),
}

pub struct Log {
    pub bytes: Vec<u8>,
    pub records: Vec<Record>,
}

impl Log {
    /// Takes a log apart. One that ends in the middle of a record is an error: the recorder writes it in full.
    pub fn parse(bytes: Vec<u8>) -> Result<Log> {
        let mut records = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let torn = || format!("the log is torn at byte {at}");
            let header = bytes.get(at..).and_then(Header::decode).ok_or_else(torn)?;
            let data = at + HEADER..at + HEADER + header.len as usize;
            let payload = bytes.get(data.clone()).ok_or_else(torn)?;
            let disk = usize::from(header.disk);
            records.push(match header.kind {
                WRITE => Record::Write { disk, off: header.off, data: data.clone() },
                FLUSH => Record::Flush { disk },
                DISCARD => {
                    let len = payload.first_chunk().ok_or_else(torn)?;
                    Record::Discard { disk, off: header.off, len: u64::from_le_bytes(*len) }
                }
                MARK => Record::Mark(String::from_utf8_lossy(payload).into_owned()),
                other => return Err(format!("the log has a record of kind {other}").into()),
            });
            at = data.end;
        }
        Ok(Log { bytes, records })
    }

    pub fn data(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    /// The position of a mark.
    pub fn mark(&self, word: &str) -> Option<usize> {
        self.records.iter().position(|r| matches!(r, Record::Mark(w) if w == word))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    fn put(bytes: &mut Vec<u8>, kind: u8, disk: u8, off: u64, payload: &[u8]) {
        bytes.extend(Header { kind, disk, len: payload.len() as u32, off }.encode());
        bytes.extend(payload);
    }

    /// A log from what a test says in short.
    pub fn log(records: &[(u8, u8, u64, &[u8])]) -> Log {
        let mut bytes = Vec::new();
        for (kind, disk, off, payload) in records {
            put(&mut bytes, *kind, *disk, *off, payload);
        }
        Log::parse(bytes).unwrap()
    }

    #[test]
    fn every_kind_comes_back() {
        let log = log(&[
            (WRITE, 1, 4096, b"abc"),
            (FLUSH, 1, 0, b""),
            (DISCARD, 0, 512, &1024_u64.to_le_bytes()),
            (MARK, 0, 0, b"PRE"),
        ]);
        assert_eq!(log.records.len(), 4);
        let Record::Write { disk: 1, off: 4096, data } = &log.records[0] else { panic!("{:?}", log.records) };
        assert_eq!(log.data(data), b"abc");
        assert_eq!(log.records[1], Record::Flush { disk: 1 });
        assert_eq!(log.records[2], Record::Discard { disk: 0, off: 512, len: 1024 });
        assert_eq!(log.mark("PRE"), Some(3));
        assert_eq!(log.mark("END"), None);
    }

    #[test]
    fn a_torn_log_is_refused() {
        let mut bytes = Vec::new();
        put(&mut bytes, WRITE, 0, 0, b"0123456789");
        for cut in 1..bytes.len() {
            assert!(Log::parse(bytes[..cut].to_vec()).is_err(), "{cut}");
        }
        put(&mut bytes, DISCARD, 0, 0, b"1234567");
        assert!(Log::parse(bytes).is_err(), "a discard without its length");
        assert!(Log::parse(vec![9; HEADER]).is_err(), "a kind that is not defined");
    }
}
