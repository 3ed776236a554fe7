//! Names of one directory, many of them, one after the other in one buffer. Must not look at what has a name.

use crate::dir::{Name, unchecked};
use crate::info::Kind;
use std::ops::Range;

/// What a listing said of one directory's entries, 16 bytes for each beside its name: a directory may have millions.
#[derive(Debug, Default)]
pub struct NameList {
    bytes: Vec<u8>,
    items: Vec<Item>,
}

/// Where a name is in the buffer, and what the listing said of it. Made by [`NameList::push`] alone, for what it puts there.
#[derive(Clone, Copy, Debug)]
struct Item {
    ino: u64,
    /// The low and the high bits of the offset.
    at_low: u32,
    at_high: u8,
    kind: Kind,
    /// Without the final NUL.
    len: u16,
}

const _: () = assert!(size_of::<Item>() == 16);

impl Item {
    fn at(&self) -> usize {
        self.at_low as usize | usize::from(self.at_high) << 32
    }
    fn name<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(self.at()..self.at() + usize::from(self.len)).unwrap_or_default()
    }
}

impl NameList {
    /// Adds one behind all others. The longest that a file system has (255 bytes, as characters up to 1020) fits.
    #[allow(clippy::cast_possible_truncation)]
    pub fn push(&mut self, name: Name<'_>, kind: Kind, ino: u64) {
        let with_nul = name.c_str().to_bytes_with_nul();
        let Ok(len) = u16::try_from(with_nul.len() - 1) else { return };
        let at = self.bytes.len() as u64;
        self.items.push(Item { ino, at_low: at as u32, at_high: (at >> 32) as u8, kind, len });
        self.bytes.extend_from_slice(with_nul);
    }
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    /// Forgets all of them, and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
    }
    /// In the order of their inodes: on a cold disk they are then read from front to back, where a hashed directory
    /// (ext4) lists them in no order at all.
    pub fn sort_by_ino(&mut self) {
        self.items.sort_unstable_by_key(|item| item.ino);
    }
    /// In the order of the names themselves.
    pub fn sort_by_name(&mut self) {
        let NameList { bytes, items } = self;
        items.sort_unstable_by(|a, b| a.name(bytes).cmp(b.name(bytes)));
    }
    /// Where `name` is, in names that are in their order.
    #[must_use]
    pub fn position(&self, name: Name<'_>) -> Option<usize> {
        self.items.binary_search_by(|item| item.name(&self.bytes).cmp(name.bytes())).ok()
    }
    /// One of them, and its kind.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(Name<'_>, Kind)> {
        let item = self.items.get(index)?;
        let with_nul = self.bytes.get(item.at()..=item.at() + usize::from(item.len))?;
        // SAFETY: an item is where `push` has put the bytes of a `Name`, its NUL behind them, and bytes are never changed
        // where an item is: `clear` forgets both.
        Some((unsafe { unchecked(with_nul) }, item.kind))
    }
    /// Copies some of them behind those of `to`.
    pub fn copy_to(&self, to: &mut NameList, range: Range<usize>) {
        for (name, kind) in range.filter_map(|index| self.get(index)) {
            to.push(name, kind, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::NameBuf;

    #[test]
    fn what_is_pushed_is_there_in_every_order() {
        let mut list = NameList::default();
        let texts = [&b"b"[..], b"a longer name", b"\xff", &[b'x'; 1020]];
        let names: Vec<NameBuf> = texts.iter().map(|text| NameBuf::new(text).unwrap()).collect();
        for round in 0..2 {
            for (ino, name) in names.iter().enumerate() {
                list.push(name.as_name(), Kind::File, 9 - ino as u64);
            }
            let all = |list: &NameList| -> Vec<Vec<u8>> {
                (0..list.len()).map(|at| list.get(at).unwrap().0.bytes().to_vec()).collect()
            };
            assert_eq!(all(&list), texts, "{round}");
            list.sort_by_ino();
            assert_eq!(all(&list), texts.iter().rev().copied().collect::<Vec<_>>());
            let mut part = NameList::default();
            list.copy_to(&mut part, 1..9);
            assert_eq!((part.len(), part.get(0).unwrap().0), (3, names[2].as_name()));
            list.sort_by_name();
            assert_eq!(list.position(names[0].as_name()), Some(1));
            assert_eq!(list.get(4), None);
            list.clear();
            assert!(list.is_empty() && list.get(0).is_none());
        }
    }
}
