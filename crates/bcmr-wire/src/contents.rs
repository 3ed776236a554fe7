//! The contents of a batch (section 5.1): one item per regular file that carries content.
//!
//! Must not know which file an item is of, nor how contents are packed; counting both out is the caller's.

use crate::codec::{read_trouble, write_trouble};
use crate::field::{Reader, Refused, Why, must, put_bytes, put_v, refuse};
use crate::limits::{RUNS_MAX, SMALL_FILE_BYTES};
use crate::message::{Hash, Run, Trouble};
pub use crate::packed::{push_unpacked_length, unpacked};
use crate::rules;

const CONTENT: u8 = 0;
const CHANGED: u8 = 1;
const UNREADABLE: u8 = 2;
const HASHED: u8 = 3;
const PATCHED: u8 = 4;
const TAG: &str = "contents.bytes";

/// What came of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// What was read of it, and the BLAKE3 of that unless the policy is fast.
    Content {
        /// All of it.
        bytes: &'a [u8],
        /// As the sender computed it while reading.
        hash: Option<Hash>,
    },
    /// Only its hash: where two sides are compared, or where nothing else was asked for.
    Hashed {
        /// Bytes that were read.
        length: u64,
        /// Their BLAKE3.
        hash: Hash,
    },
    /// What it has beside what the receiver has told of.
    Patched {
        /// What it consists of, in order.
        runs: Vec<Run>,
        /// The runs that come along, one behind the other.
        carried: &'a [u8],
        /// The BLAKE3 of the whole.
        hash: Hash,
    },
    /// It changed while it was read.
    Changed,
    /// It could not be read.
    Unreadable(Trouble<'a>),
}

/// Appends a file's content, with its hash exactly when the transfer has hashes.
pub fn push_content(out: &mut Vec<u8>, bytes: &[u8], hash: Option<&Hash>) {
    begin_content(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
    end_content(out, hash);
}

/// Begins a content of `length` bytes, which the caller appends before it calls [`end_content`]. The returned mark is
/// where `out` ended: a caller that finds the file changed truncates to it and says [`push_changed`].
pub fn begin_content(out: &mut Vec<u8>, length: u64) -> usize {
    let mark = out.len();
    out.push(CONTENT);
    put_v(length, out);
    mark
}

/// Ends what [`begin_content`] began.
pub fn end_content(out: &mut Vec<u8>, hash: Option<&Hash>) {
    if let Some(hash) = hash {
        out.extend_from_slice(hash);
    }
}

/// Appends only the hash of a file of `length` bytes.
pub fn push_hashed(out: &mut Vec<u8>, length: u64, hash: &Hash) {
    out.push(HASHED);
    put_v(length, out);
    out.extend_from_slice(hash);
}

/// Appends what a file has beside what the receiver has told of.
pub fn push_patched(out: &mut Vec<u8>, runs: &[Run], carried: &[u8], hash: &Hash) {
    out.push(PATCHED);
    put_v(runs.len() as u64, out);
    for run in runs {
        put_v(run.bytes, out);
        put_v(run.from.map_or(0, |from| from.saturating_add(1)), out);
    }
    put_bytes(carried, out);
    out.extend_from_slice(hash);
}

/// Appends that the file changed while it was read.
pub fn push_changed(out: &mut Vec<u8>) {
    out.push(CHANGED);
}

/// Appends that the file could not be read.
pub fn push_unreadable(out: &mut Vec<u8>, trouble: &Trouble<'_>) -> Result<(), Refused> {
    rules::trouble(trouble)?;
    out.push(UNREADABLE);
    write_trouble(trouble, out);
    Ok(())
}

/// The items of contents as they are (unpacked, if they were packed): exactly `count` of them, and nothing behind.
/// After an error there is nothing more.
#[must_use]
pub fn items(bytes: &[u8], hashes: bool, count: usize) -> Items<'_> {
    Items { reader: Reader::new(bytes), hashes, left: count, exactly: true }
}

/// As [`items`], for one of several messages that together carry what was wanted: at most `count` items, and as many as
/// there are.
#[must_use]
pub fn items_up_to(bytes: &[u8], hashes: bool, count: usize) -> Items<'_> {
    Items { reader: Reader::new(bytes), hashes, left: count, exactly: false }
}

/// See [`items`].
pub struct Items<'a> {
    reader: Reader<'a>,
    hashes: bool,
    /// Items that may still come.
    left: usize,
    exactly: bool,
}

impl<'a> Items<'a> {
    fn read(&mut self) -> Result<Option<Item<'a>>, Refused> {
        let r = &mut self.reader;
        if self.left == 0 {
            r.end(TAG)?;
            return Ok(None);
        }
        if r.left() == 0 && !self.exactly {
            return Ok(None);
        }
        self.left -= 1;
        Ok(Some(match r.u8(TAG)? {
            CONTENT => Item::Content {
                bytes: r.bytes(TAG)?,
                hash: if self.hashes { Some(r.hash(TAG)?) } else { None },
            },
            HASHED => Item::Hashed { length: r.v(TAG)?, hash: r.hash(TAG)? },
            PATCHED => read_patched(r)?,
            CHANGED => Item::Changed,
            UNREADABLE => {
                let trouble = read_trouble(r)?;
                rules::trouble(&trouble)?;
                Item::Unreadable(trouble)
            }
            _ => return refuse(TAG, Why::Unknown),
        }))
    }
}

/// The runs of a small file: none without bytes, all together shorter than a large one, and as many bytes along as they say.
fn read_patched<'a>(r: &mut Reader<'a>) -> Result<Item<'a>, Refused> {
    let runs = r.list(TAG, 2, RUNS_MAX, |r| Ok(Run { bytes: r.v(TAG)?, from: r.v(TAG)?.checked_sub(1) }))?;
    let (mut all, mut along) = (0_u64, 0_u64);
    for run in &runs {
        must(run.bytes > 0 && run.bytes < SMALL_FILE_BYTES, TAG, Why::Limit)?;
        must(run.from.is_none_or(|from| from < SMALL_FILE_BYTES), TAG, Why::Limit)?;
        all += run.bytes;
        along += if run.from.is_none() { run.bytes } else { 0 };
    }
    must(all < SMALL_FILE_BYTES, TAG, Why::Limit)?;
    let carried = r.bytes(TAG)?;
    must(carried.len() as u64 == along, TAG, Why::Contradiction)?;
    Ok(Item::Patched { runs, carried, hash: r.hash(TAG)? })
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, Refused>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        if read.is_err() {
            // Nothing behind an error can be trusted to begin where it seems to.
            *self = items(&[], self.hashes, 0);
        }
        read.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CONTENTS_BYTES_MAX;
    use crate::message::Note;

    fn all(bytes: &[u8], hashes: bool, count: usize) -> Result<Vec<Item<'_>>, Why> {
        items(bytes, hashes, count).collect::<Result<_, _>>().map_err(|r| r.why)
    }

    #[test]
    fn items_come_back_in_order() {
        let trouble = Trouble { code: 2, op: 51, path: b"d/f", note: Note::default(), errno: 13 };
        for hash in [None, Some([7; 32])] {
            let mut out = Vec::new();
            push_content(&mut out, b"abc", hash.as_ref());
            push_changed(&mut out);
            push_unreadable(&mut out, &trouble).unwrap();
            push_content(&mut out, b"", hash.as_ref());
            push_hashed(&mut out, 300, &[9; 32]);
            let runs = vec![Run { bytes: 3, from: None }, Run { bytes: 5000, from: Some(0) }];
            push_patched(&mut out, &runs, b"new", &[8; 32]);
            let expected = vec![
                Item::Content { bytes: b"abc", hash },
                Item::Changed,
                Item::Unreadable(trouble.clone()),
                Item::Content { bytes: b"", hash },
                Item::Hashed { length: 300, hash: [9; 32] },
                Item::Patched { runs, carried: b"new", hash: [8; 32] },
            ];
            assert_eq!(all(&out, hash.is_some(), 6), Ok(expected.clone()));
            assert_eq!(all(&out, hash.is_some(), 5), Err(Why::Rest));
            assert_eq!(all(&out, hash.is_some(), 7), Err(Why::Short));
            let some: Result<Vec<_>, _> = items_up_to(&out, hash.is_some(), 7).collect();
            assert_eq!(some, Ok(expected));
            assert!(items_up_to(&out, hash.is_some(), 3).any(|item| item.is_err()));
        }
    }

    /// A few bytes must not become more than a small file has, nor be fewer than they say.
    #[test]
    fn runs_are_a_small_file_and_no_more() {
        let run = |bytes, from| Run { bytes, from };
        let most = SMALL_FILE_BYTES - 1;
        let table: [(&[Run], &[u8], Option<Why>); 7] = [
            (&[run(most, Some(0))], b"", None),
            (&[run(most, Some(0)), run(1, Some(0))], b"", Some(Why::Limit)),
            (&[run(u64::MAX, Some(0))], b"", Some(Why::Limit)),
            (&[run(0, Some(0))], b"", Some(Why::Limit)),
            (&[run(1, Some(SMALL_FILE_BYTES))], b"", Some(Why::Limit)),
            (&[run(3, None)], b"ab", Some(Why::Contradiction)),
            (&[run(1, None), run(1, Some(0))], b"ab", Some(Why::Contradiction)),
        ];
        for (runs, carried, why) in table {
            let mut out = Vec::new();
            push_patched(&mut out, runs, carried, &[7; 32]);
            assert_eq!(all(&out, true, 1).err(), why, "{runs:?}");
        }
    }

    #[test]
    fn a_content_found_changed_is_taken_out_again() {
        let mut out = Vec::new();
        push_changed(&mut out);
        let mark = begin_content(&mut out, 300);
        out.extend_from_slice(b"only a part");
        out.truncate(mark);
        push_changed(&mut out);
        assert_eq!(all(&out, true, 2), Ok(vec![Item::Changed, Item::Changed]));
    }

    #[test]
    fn nothing_follows_an_error() {
        let mut items = items(&[9, 1, 1], true, 3);
        assert!(items.next().is_some_and(|item| item.is_err()));
        assert!(items.next().is_none());
    }

    #[test]
    fn a_length_that_would_unpack_to_too_much_is_refused_first() {
        let mut out = Vec::new();
        assert!(push_unpacked_length(&mut out, CONTENTS_BYTES_MAX + 1).is_err());
        push_unpacked_length(&mut out, CONTENTS_BYTES_MAX).unwrap();
        out.push(7);
        assert_eq!(unpacked(&out), Ok((CONTENTS_BYTES_MAX, &[7][..])));
        out.clear();
        put_v(CONTENTS_BYTES_MAX as u64 + 1, &mut out);
        assert_eq!(unpacked(&out).map_err(|r| (r.field, r.why)), Err(("contents.max", Why::Limit)));
    }
}
