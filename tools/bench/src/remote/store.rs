//! What the server's store remembers, read from its index by the rules of docs/store-format.md. Knows nothing of how it
//! came there, and checks no sums: it is a file of a run that has ended.

use serde::{Deserialize, Serialize};
use sh::Result;
use std::collections::HashMap;
use std::path::Path;

const HEADER_BYTES: usize = 16;
const SUM_BYTES: usize = 8;
const KEY_BYTES: usize = 32;
const FILE: u8 = 1;
const BLOCK: u8 = 2;
const FORGET: u8 = 4;

/// The blocks that count at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    pub bytes: u64,
    /// How many blocks of each file, in the order in which the files landed.
    pub blocks: Vec<u64>,
}

/// What the index in this directory says; nothing where there is none.
pub fn remembered(store: &Path) -> Result<Remembered> {
    match std::fs::read(store.join("index")) {
        Ok(bytes) => replayed(&bytes).ok_or_else(|| "the store's index cannot be read".into()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Remembered::default()),
        Err(e) => Err(e.into()),
    }
}

fn replayed(index: &[u8]) -> Option<Remembered> {
    let mut rest = index.get(HEADER_BYTES..)?;
    let mut files = 0;
    let mut blocks: HashMap<&[u8], (u32, u32)> = HashMap::new();
    while let Some((&kind, after)) = rest.split_first() {
        let length = usize::from(u16::from_le_bytes(after.get(..2)?.try_into().ok()?));
        let body = after.get(2..2 + length)?;
        rest = after.get(2 + length + SUM_BYTES..)?;
        let number = |at: usize| Some(u32::from_le_bytes(body.get(at..at + 4)?.try_into().ok()?));
        match kind {
            FILE => files += 1,
            BLOCK => {
                let found = (number(KEY_BYTES)?, number(KEY_BYTES + 12)?);
                blocks.insert(body.get(..KEY_BYTES)?, found);
            }
            FORGET => drop(blocks.remove(body.get(..KEY_BYTES)?)),
            _ => {}
        }
    }
    let mut found = Remembered { bytes: 0, blocks: vec![0; files] };
    for (file, length) in blocks.into_values() {
        found.bytes += u64::from(length);
        *found.blocks.get_mut(file as usize)? += 1;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_replayed() {
        let mut index = vec![0; HEADER_BYTES];
        let mut record = |kind: u8, body: &[u8]| {
            index.push(kind);
            index.extend_from_slice(&(body.len() as u16).to_le_bytes());
            index.extend_from_slice(body);
            index.extend_from_slice(&[0; SUM_BYTES]);
        };
        let block = |key: u8, file: u32, length: u32| {
            let numbers = [file.to_le_bytes().to_vec(), vec![0; 8], length.to_le_bytes().to_vec()];
            [vec![key; KEY_BYTES], numbers.concat()].concat()
        };
        record(FILE, b"the first");
        record(BLOCK, &block(1, 0, 4000));
        record(BLOCK, &block(2, 0, 4000));
        record(FILE, b"the second");
        record(3, &[2; KEY_BYTES]);
        record(FORGET, &[1; KEY_BYTES]);
        record(BLOCK, &block(3, 1, 500));
        // The same content landed again: the older record no longer counts.
        record(BLOCK, &block(2, 1, 4000));
        record(200, b"of a later version");
        assert_eq!(replayed(&index), Some(Remembered { bytes: 4500, blocks: vec![0, 2] }));
        index.pop();
        assert_eq!(replayed(&index), None, "cut short");
        let none = remembered(tempfile::tempdir().unwrap().path()).unwrap();
        assert_eq!(none, Remembered::default());
    }
}
