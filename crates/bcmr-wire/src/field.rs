//! How one field stands in a payload: numbers, byte strings, lists, and what is wrong with one that does not.
//!
//! Must not know any message. Nothing here allocates before the count was compared with the bytes that are left.

use crate::bytes::ByteReader;
use crate::limits::NUMBER_BYTES_MAX;
use std::fmt;

/// A field as `docs/protocol.md` tags it, without the brackets.
pub type Tag = &'static str;

/// Why bytes are no message, or a message cannot become bytes. The connection ends; there is nothing to repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Where it was noticed.
    pub field: Tag,
    /// What is wrong there.
    pub why: Why,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The payload ends inside it, or has no room for as many elements as it announces.
    Short,
    /// Bytes are left over behind the last field.
    Rest,
    /// A number that is not in its shortest form, or does not fit its type.
    Number,
    /// A type, choice or flag that has no meaning.
    Unknown,
    /// Over (or under) what `crate::limits` allows.
    Limit,
    /// No name: empty, too long, `.`, `..`, or with NUL or `/`.
    Name,
    /// A NUL where none may be, or a byte that is not printable where only such may be.
    Byte,
    /// Contradicts another field of the same message.
    Contradiction,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            Why::Short => "ends too early",
            Why::Rest => "is followed by bytes that belong to nothing",
            Why::Number => "is no number of its kind in its shortest form",
            Why::Unknown => "is not known",
            Why::Limit => "is out of bounds",
            Why::Name => "is no file name",
            Why::Byte => "holds a byte that may not be there",
            Why::Contradiction => "contradicts another field",
        };
        write!(f, "{} {why}", self.field)
    }
}

impl std::error::Error for Refused {}

/// A refusal as a result.
pub(crate) fn refuse<T>(field: Tag, why: Why) -> Result<T, Refused> {
    Err(Refused { field, why })
}

/// Refuses unless `good`.
pub(crate) fn must(good: bool, field: Tag, why: Why) -> Result<(), Refused> {
    if good { Ok(()) } else { refuse(field, why) }
}

/// A payload from its front to its end.
pub(crate) struct Reader<'a> {
    bytes: ByteReader<'a>,
}

/// What was read of a field, if it was there.
fn there<T>(read: Option<T>, field: Tag) -> Result<T, Refused> {
    read.ok_or(Refused { field, why: Why::Short })
}

impl<'a> Reader<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Reader<'a> {
        Reader { bytes: ByteReader::new(payload) }
    }

    /// Bytes not read yet.
    pub(crate) fn left(&self) -> usize {
        self.bytes.rest().len()
    }

    pub(crate) fn take(&mut self, count: usize, tag: Tag) -> Result<&'a [u8], Refused> {
        there(self.bytes.take(count), tag)
    }

    pub(crate) fn u8(&mut self, tag: Tag) -> Result<u8, Refused> {
        there(self.bytes.u8(), tag)
    }

    pub(crate) fn u16(&mut self, tag: Tag) -> Result<u16, Refused> {
        there(self.bytes.u16(), tag)
    }

    pub(crate) fn u32(&mut self, tag: Tag) -> Result<u32, Refused> {
        there(self.bytes.u32(), tag)
    }

    pub(crate) fn u64(&mut self, tag: Tag) -> Result<u64, Refused> {
        there(self.bytes.u64(), tag)
    }

    pub(crate) fn hash(&mut self, tag: Tag) -> Result<[u8; 32], Refused> {
        there(self.bytes.array(), tag)
    }

    /// 0 or 1.
    pub(crate) fn bool(&mut self, tag: Tag) -> Result<bool, Refused> {
        self.choice(tag, &[false, true])
    }

    /// The element of `all` that a byte counts out.
    pub(crate) fn choice<T: Copy>(&mut self, tag: Tag, all: &[T]) -> Result<T, Refused> {
        let index = self.u8(tag)?;
        all.get(usize::from(index)).copied().ok_or(Refused { field: tag, why: Why::Unknown })
    }

    /// Unsigned LEB128 in its shortest form.
    pub(crate) fn v(&mut self, tag: Tag) -> Result<u64, Refused> {
        let mut number = 0_u64;
        for place in 0..NUMBER_BYTES_MAX {
            let byte = self.u8(tag)?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for the 64th bit only.
            if place == NUMBER_BYTES_MAX - 1 && byte > 1 {
                return refuse(tag, Why::Number);
            }
            number |= bits << (7 * place);
            if byte & 0x80 == 0 {
                // A last byte without bits says nothing that the one before could not have said.
                return if byte == 0 && place > 0 { refuse(tag, Why::Number) } else { Ok(number) };
            }
        }
        refuse(tag, Why::Number)
    }

    /// As [`Reader::v`], at most 32 bits.
    pub(crate) fn v16(&mut self, tag: Tag) -> Result<u16, Refused> {
        u16::try_from(self.v(tag)?).or(refuse(tag, Why::Number))
    }

    pub(crate) fn v32(&mut self, tag: Tag) -> Result<u32, Refused> {
        u32::try_from(self.v(tag)?).or(refuse(tag, Why::Number))
    }

    /// Zigzag.
    pub(crate) fn i(&mut self, tag: Tag) -> Result<i64, Refused> {
        let number = self.v(tag)?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(crate) fn bytes(&mut self, tag: Tag) -> Result<&'a [u8], Refused> {
        let count = self.v(tag)?;
        let Ok(count) = usize::try_from(count) else { return refuse(tag, Why::Short) };
        self.take(count, tag)
    }

    /// Everything up to the end of the payload.
    pub(crate) fn all(&mut self) -> &'a [u8] {
        self.bytes.take_rest()
    }

    /// At most `max` elements of at least `least` bytes each.
    pub(crate) fn list<T>(
        &mut self,
        tag: Tag,
        least: usize,
        max: usize,
        mut one: impl FnMut(&mut Self) -> Result<T, Refused>,
    ) -> Result<Vec<T>, Refused> {
        let count = self.v(tag)?;
        must(count <= max as u64, tag, Why::Limit)?;
        let count = count as usize;
        // [count] What is announced must at least be able to follow; only then is room made for it.
        must(count <= self.left() / least.max(1), tag, Why::Short)?;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(one(self)?);
        }
        Ok(list)
    }

    /// Nothing may be left.
    pub(crate) fn end(&self, tag: Tag) -> Result<(), Refused> {
        must(self.left() == 0, tag, Why::Rest)
    }
}

/// Unsigned LEB128.
pub(crate) fn put_v(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Zigzag.
pub(crate) fn put_i(number: i64, out: &mut Vec<u8>) {
    put_v((number << 1 ^ number >> 63) as u64, out);
}

/// Length and bytes.
pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_v(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v(bytes: &[u8]) -> Result<u64, Why> {
        Reader::new(bytes).v("t.t").map_err(|r| r.why)
    }

    #[test]
    fn numbers_have_one_form() {
        let table: [(&[u8], Result<u64, Why>); 10] = [
            (&[0], Ok(0)),
            (&[0x7f], Ok(127)),
            (&[0x80, 1], Ok(128)),
            (&[0x80, 0], Err(Why::Number)),
            (&[0xff, 0x80, 0], Err(Why::Number)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Ok(u64::MAX)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], Err(Why::Number)),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1], Err(Why::Number)),
            (&[0x80], Err(Why::Short)),
            (&[], Err(Why::Short)),
        ];
        for (bytes, expected) in table {
            assert_eq!(v(bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn a_count_is_compared_with_what_is_left_before_room_is_made() {
        let list = |bytes: &[u8], least, max| {
            Reader::new(bytes).list("t.t", least, max, |r| r.u8("t.t")).map_err(|r| r.why)
        };
        assert_eq!(list(&[2, 7, 9], 1, 2), Ok(vec![7, 9]));
        assert_eq!(list(&[2, 7, 9], 1, 1), Err(Why::Limit));
        assert_eq!(list(&[3, 7, 9], 1, 9), Err(Why::Short));
        assert_eq!(list(&[2, 7, 9], 2, 9), Err(Why::Short));
        // 2^60 elements: had room been made first, this test would not come back.
        assert_eq!(
            list(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10], 1, usize::MAX),
            Err(Why::Short)
        );
    }

    proptest! {
        #[test]
        fn numbers_come_back(number: u64, signed: i64) {
            let mut out = Vec::new();
            put_v(number, &mut out);
            put_i(signed, &mut out);
            let mut r = Reader::new(&out);
            prop_assert_eq!((r.v("t.t"), r.i("t.t"), r.left()), (Ok(number), Ok(signed), 0));
        }

        /// Two spellings of one number would be two messages for one meaning.
        #[test]
        fn what_is_read_is_what_would_be_written(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let mut r = Reader::new(&bytes);
            if let Ok(number) = r.v("t.t") {
                let mut out = Vec::new();
                put_v(number, &mut out);
                prop_assert_eq!(&out[..], &bytes[..bytes.len() - r.left()]);
            }
        }
    }
}
