//! The entries of a batch, column by column: what all have in common costs next to nothing once it is packed.
//!
//! Says the same as the rows of `Files`, field for field. Numbers stand as differences to the entry before, as neighbours
//! resemble each other. Must not know how columns are packed, nor what holds of an entry (`rules`).

use crate::codec::KINDS;
use crate::field::{Reader, Refused, Why, must, put_bytes, put_i, put_v, refuse};
use crate::limits::{ATTR_BYTES, ENTRIES_BYTES_MAX, ENTRIES_MAX};
use crate::message::{Entry, Time};
use crate::rules;

pub use crate::packed::unpacked_columns as unpacked;

const TAG: &str = "packed.entries";
/// Bytes that an entry takes at least: one in each column.
const ENTRY_BYTES_MIN: usize = 20;
/// What a file system gives room in, as units of 512 bytes: a file without holes has the whole ones of them.
const ALLOCATED: u64 = 8;

/// The entries of a batch in columns.
///
/// # Errors
/// They are no batch, or are too long.
pub fn encode(entries: &[Entry<'_>]) -> Result<Vec<u8>, Refused> {
    rules::batch_entries(entries)?;
    let mut out = Vec::new();
    put_v(entries.len() as u64, &mut out);
    entries.iter().for_each(|entry| out.push(entry.kind as u8));
    for entry in entries {
        // A name is at most 255 bytes long.
        out.push(u8::try_from(entry.name.len()).or(refuse(TAG, Why::Name))?);
    }
    entries.iter().for_each(|entry| out.extend_from_slice(entry.name));
    entries.iter().for_each(|entry| put_bytes(entry.link, &mut out));
    column(entries, &mut out, |entry| entry.mode.into());
    column(entries, &mut out, |entry| entry.uid.into());
    column(entries, &mut out, |entry| entry.gid.into());
    entries.iter().for_each(|entry| put_v(entry.size, &mut out));
    entries.iter().for_each(|entry| put_i(difference(entry.blocks, allocated(entry.size)), &mut out));
    column(entries, &mut out, |entry| entry.mtime.sec as u64);
    column(entries, &mut out, |entry| entry.mtime.nsec.into());
    // Of what was never read this is the column of mtime again, which packs to next to nothing.
    column(entries, &mut out, |entry| entry.atime.sec as u64);
    column(entries, &mut out, |entry| entry.atime.nsec.into());
    column(entries, &mut out, |entry| entry.ctime.sec as u64);
    column(entries, &mut out, |entry| entry.ctime.nsec.into());
    column(entries, &mut out, |entry| entry.dev);
    column(entries, &mut out, |entry| entry.ino);
    column(entries, &mut out, |entry| entry.nlink);
    column(entries, &mut out, |entry| entry.rdev);
    entries.iter().for_each(|entry| put_v(entry.attrs.len() as u64, &mut out));
    for (name, value) in entries.iter().flat_map(|entry| &entry.attrs) {
        put_bytes(name, &mut out);
        put_bytes(value, &mut out);
    }
    must(out.len() <= ENTRIES_BYTES_MAX, TAG, Why::Limit)?;
    Ok(out)
}

/// The entries that columns say. Every bound, name and choice in them has been checked.
///
/// # Errors
/// They say no batch.
pub fn decode(columns: &[u8]) -> Result<Vec<Entry<'_>>, Refused> {
    must(columns.len() <= ENTRIES_BYTES_MAX, TAG, Why::Limit)?;
    let mut r = Reader::new(columns);
    let r = &mut r;
    let count = r.v(TAG)?;
    must((1..=ENTRIES_MAX as u64).contains(&count), TAG, Why::Limit)?;
    // [count]
    must(count <= (r.left() / ENTRY_BYTES_MIN) as u64, TAG, Why::Short)?;
    let mut entries: Vec<Entry<'_>> = Vec::with_capacity(count as usize);
    for _ in 0..count {
        entries.push(Entry { kind: r.choice(TAG, &KINDS)?, ..nothing() });
    }
    let lengths = r.take(count as usize, TAG)?;
    for (entry, length) in entries.iter_mut().zip(lengths) {
        entry.name = r.take(usize::from(*length), TAG)?;
    }
    each(&mut entries, r, |entry, r| set(&mut entry.link, r.bytes(TAG)))?;
    rising(&mut entries, r, |entry, number| narrow(&mut entry.mode, number))?;
    rising(&mut entries, r, |entry, number| narrow(&mut entry.uid, number))?;
    rising(&mut entries, r, |entry, number| narrow(&mut entry.gid, number))?;
    each(&mut entries, r, |entry, r| set(&mut entry.size, r.v(TAG)))?;
    each(&mut entries, r, |entry, r| {
        let blocks = allocated(entry.size).wrapping_add(r.i(TAG)? as u64);
        set(&mut entry.blocks, Ok(blocks))
    })?;
    rising(&mut entries, r, |entry, number| set(&mut entry.mtime.sec, Ok(number as i64)))?;
    rising(&mut entries, r, |entry, number| narrow(&mut entry.mtime.nsec, number))?;
    rising(&mut entries, r, |entry, number| set(&mut entry.atime.sec, Ok(number as i64)))?;
    rising(&mut entries, r, |entry, number| narrow(&mut entry.atime.nsec, number))?;
    rising(&mut entries, r, |entry, number| set(&mut entry.ctime.sec, Ok(number as i64)))?;
    rising(&mut entries, r, |entry, number| narrow(&mut entry.ctime.nsec, number))?;
    rising(&mut entries, r, |entry, number| set(&mut entry.dev, Ok(number)))?;
    rising(&mut entries, r, |entry, number| set(&mut entry.ino, Ok(number)))?;
    rising(&mut entries, r, |entry, number| set(&mut entry.nlink, Ok(number)))?;
    rising(&mut entries, r, |entry, number| set(&mut entry.rdev, Ok(number)))?;
    attributes(&mut entries, r)?;
    r.end(TAG)?;
    rules::batch_entries(&entries)?;
    Ok(entries)
}

/// Appends how long columns are; what they were packed to follows.
pub fn push_unpacked_length(out: &mut Vec<u8>, length: usize) {
    put_v(length as u64, out);
}

/// Attributes come last: how many each has, and then all of them.
fn attributes<'a>(entries: &mut [Entry<'a>], r: &mut Reader<'a>) -> Result<(), Refused> {
    let mut counts = Vec::with_capacity(entries.len());
    let mut all = 0_u64;
    for _ in 0..entries.len() {
        let count = r.v(TAG)?;
        all = all.saturating_add(count);
        must(all <= (ENTRIES_BYTES_MAX / ATTR_BYTES) as u64, TAG, Why::Limit)?;
        counts.push(count);
    }
    for (entry, count) in entries.iter_mut().zip(counts) {
        for _ in 0..count {
            entry.attrs.push((r.bytes(TAG)?, r.bytes(TAG)?));
        }
    }
    Ok(())
}

fn allocated(size: u64) -> u64 {
    size.div_ceil(512 * ALLOCATED).wrapping_mul(ALLOCATED)
}

fn difference(number: u64, before: u64) -> i64 {
    number.wrapping_sub(before) as i64
}

/// A number of each, as the difference to the one before.
fn column(entries: &[Entry<'_>], out: &mut Vec<u8>, number: impl Fn(&Entry<'_>) -> u64) {
    let mut before = 0;
    for entry in entries {
        let number = number(entry);
        put_i(difference(number, before), out);
        before = number;
    }
}

/// Reads what [`column()`] wrote.
fn rising<'a>(
    entries: &mut [Entry<'a>],
    r: &mut Reader<'a>,
    mut take: impl FnMut(&mut Entry<'a>, u64) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let mut before = 0_u64;
    each(entries, r, |entry, r| {
        before = before.wrapping_add(r.i(TAG)? as u64);
        take(entry, before)
    })
}

fn each<'a>(
    entries: &mut [Entry<'a>],
    r: &mut Reader<'a>,
    mut take: impl FnMut(&mut Entry<'a>, &mut Reader<'a>) -> Result<(), Refused>,
) -> Result<(), Refused> {
    entries.iter_mut().try_for_each(|entry| take(entry, r))
}

fn set<T>(field: &mut T, value: Result<T, Refused>) -> Result<(), Refused> {
    *field = value?;
    Ok(())
}

fn narrow(field: &mut u32, number: u64) -> Result<(), Refused> {
    set(field, u32::try_from(number).or(refuse(TAG, Why::Number)))
}

fn nothing<'a>() -> Entry<'a> {
    let time = Time::default();
    Entry {
        kind: crate::message::Kind::File,
        name: b"",
        mode: 0,
        uid: 0,
        gid: 0,
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        dev: 0,
        ino: 0,
        nlink: 0,
        rdev: 0,
        link: b"",
        attrs: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Kind;

    fn entry(name: &[u8]) -> Entry<'_> {
        Entry { name, nlink: 1, ..nothing() }
    }

    #[test]
    fn the_ends_of_every_number_come_back() {
        let time = |sec, nsec| Time { sec, nsec };
        let far = Entry {
            kind: Kind::Link,
            mode: 0o7777,
            uid: u32::MAX - 1,
            gid: u32::MAX - 1,
            size: i64::MAX as u64,
            blocks: 0,
            atime: time(i64::MAX, 0),
            mtime: time(i64::MIN, 999_999_999),
            ctime: time(-1, 1),
            dev: u64::MAX,
            ino: u64::MAX,
            nlink: u64::MAX,
            rdev: u64::MAX,
            link: b"to",
            attrs: vec![(b"user.a", b""), (b"user.b", b"v")],
            ..entry(b"far")
        };
        let near = Entry { blocks: i64::MAX as u64 / 512, attrs: vec![(b"user.c", b"w")], ..entry(b"n") };
        let all = [far.clone(), near.clone(), far, near];
        let columns = encode(&all).unwrap();
        assert_eq!(decode(&columns).as_deref(), Ok(&all[..]));
        for cut in 0..columns.len() {
            assert!(decode(&columns[..cut]).is_err(), "cut at {cut}");
        }
        assert!(decode(&[&columns[..], &[0]].concat()).is_err());
    }

    /// What is the same, or goes on as before, is bytes of zero: they pack to nothing.
    #[test]
    fn what_is_alike_is_zero() {
        let size = 5000;
        let names: Vec<Vec<u8>> = (0..100).map(|n| format!("{n:03}").into_bytes()).collect();
        let one = |name| Entry { size, blocks: allocated(size), ..entry(name) };
        let all: Vec<Entry<'_>> = names.iter().map(|name| one(name)).collect();
        let columns = encode(&all).unwrap();
        let other = columns.iter().filter(|byte| **byte != 0).count();
        // The count, a length and three digits of a name, two bytes of a size; the first number of names.
        assert_eq!(other, 1 + 100 * (1 + 3 + 2) + 1);
        assert!(columns.len() - other > 1400);
    }

    #[test]
    fn a_batch_is_neither_empty_nor_endless() {
        let why = |columns: &[u8]| decode(columns).map(drop).map_err(|r| (r.field, r.why));
        assert_eq!(why(&[0]), Err((TAG, Why::Limit)));
        assert_eq!(why(&[0x81, 8]), Err((TAG, Why::Limit)), "1025 entries");
        assert_eq!(why(&[0x80, 8]), Err((TAG, Why::Short)), "room is made for what can follow");
        assert_eq!(why(&vec![1; ENTRIES_BYTES_MAX + 1]), Err((TAG, Why::Limit)));
        let mut many = encode(&[entry(b"a")]).unwrap();
        *many.last_mut().unwrap() = 0xff;
        many.extend_from_slice(&[0xff, 0xff, 0x7f]);
        assert_eq!(why(&many), Err((TAG, Why::Limit)), "attributes");
        assert!(encode(&[]).is_err() && encode(&[entry(b"..")]).is_err());
        assert_eq!(encode(&[entry(b"a")]).unwrap().len(), 1 + ENTRY_BYTES_MIN);
        let mut names = Vec::new();
        push_unpacked_length(&mut names, ENTRIES_BYTES_MAX + 1);
        assert!(unpacked(&names).is_err());
    }
}
