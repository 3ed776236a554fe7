//! Bytes taken off the front of a slice: what fields of the wire, session files and the store's index are read with.
//!
//! Must not know what the bytes mean, nor panic whatever they are.

/// A slice from its front to its end. Everything is `None` where there are not so many bytes; then nothing was taken.
#[derive(Clone, Debug)]
pub struct ByteReader<'b> {
    rest: &'b [u8],
}

impl<'b> ByteReader<'b> {
    /// Nothing was taken yet.
    #[must_use]
    pub fn new(bytes: &'b [u8]) -> ByteReader<'b> {
        ByteReader { rest: bytes }
    }

    /// What was not taken yet.
    #[must_use]
    pub fn rest(&self) -> &'b [u8] {
        self.rest
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// Everything up to the end.
    pub fn take_rest(&mut self) -> &'b [u8] {
        std::mem::take(&mut self.rest)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Two bytes, little endian, as all that follow.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_taken() {
        let mut bytes = ByteReader::new(&[1, 2, 0, 3, 0, 0, 0, 9, 9]);
        assert_eq!((bytes.u8(), bytes.u16(), bytes.u32(), bytes.u64()), (Some(1), Some(2), Some(3), None));
        assert_eq!((bytes.take(3), bytes.rest()), (None, &[9, 9][..]));
        assert_eq!((bytes.take(1), bytes.i64(), bytes.take_rest()), (Some(&[9][..]), None, &[9][..]));
        assert_eq!((bytes.u8(), bytes.take(0), bytes.take(usize::MAX)), (None, Some(&[][..]), None));
    }
}
