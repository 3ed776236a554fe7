//! Names, many of them: those of one directory in one buffer, and those of a list one at a time.
//!
//! Must not look at what has a name.

use crate::error::{Code, Error, Op, Reason, Result};
use fastcopy::dir::{Name, NameBuf};
use fastcopy::meta::Kind;
use std::ffi::CStr;
use std::io::BufRead;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names of one directory, one after the other in one buffer.
#[derive(Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    items: Vec<Listed>,
    /// They were claimed already, because a list says them.
    pub(crate) are_claimed: bool,
}

/// Where a name is in the buffer, and what the listing said of it. A directory may have millions: 16 bytes.
#[derive(Clone, Copy)]
struct Listed {
    ino: u64,
    /// The low and the high bits of the offset.
    at_low: u32,
    at_high: u8,
    kind: Kind,
    /// Without the final NUL.
    len: u16,
}

const _: () = assert!(size_of::<Listed>() == 16);

impl Listed {
    fn at(&self) -> usize {
        self.at_low as usize | usize::from(self.at_high) << 32
    }
    fn name<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(self.at()..self.at() + usize::from(self.len)).unwrap_or_default()
    }
}

impl Names {
    /// None yet, of those that a list says.
    pub(crate) fn claimed() -> Names {
        Names { are_claimed: true, ..Names::default() }
    }
    pub(crate) fn push(&mut self, name: Name<'_>, kind: Kind, ino: u64) {
        let at = self.bytes.len() as u64;
        let (at_low, at_high, len) = (at as u32, (at >> 32) as u8, name.bytes().len() as u16);
        self.items.push(Listed { ino, at_low, at_high, kind, len });
        self.bytes.extend_from_slice(name.c_str().to_bytes_with_nul());
    }
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
    }
    /// In the order of their inodes: on a cold disk they are then read from front to back, where a hashed directory
    /// (ext4) lists them in no order at all.
    pub(crate) fn sort(&mut self) {
        self.items.sort_unstable_by_key(|item| item.ino);
    }
    /// In the order of the names themselves.
    pub(crate) fn sort_by_name(&mut self) {
        let Names { bytes, items, .. } = self;
        items.sort_unstable_by(|a, b| a.name(bytes).cmp(b.name(bytes)));
    }
    /// Where `name` is, in names that are in their order.
    pub(crate) fn position(&self, name: Name<'_>) -> Option<usize> {
        self.items.binary_search_by(|item| item.name(&self.bytes).cmp(name.bytes())).ok()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    pub(crate) fn get(&self, index: usize) -> Option<(Name<'_>, Kind)> {
        let item = self.items.get(index)?;
        let with_nul = item.at()..=item.at() + usize::from(item.len);
        let name = CStr::from_bytes_with_nul(self.bytes.get(with_nul)?).ok()?;
        Some((Name::new(name)?, item.kind))
    }
    /// Some of them, for another worker.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Names {
        let mut part = Names { are_claimed: self.are_claimed, ..Names::default() };
        for (name, kind) in range.filter_map(|index| self.get(index)) {
            part.push(name, kind, 0);
        }
        part
    }
}

/// Names from a list, one at a time, each split into its components.
pub(crate) struct ListedNames<'r> {
    pub(crate) reader: &'r mut (dyn BufRead + Send),
    pub(crate) separator: u8,
    pub(crate) base: &'r Path,
}

impl Iterator for ListedNames<'_> {
    type Item = Result<Vec<NameBuf>>;
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut line = Vec::new();
            match self.reader.read_until(self.separator, &mut line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(e) => return Some(Err(Error::os(Op::ReadListOfNamesBelow, self.base, e))),
            }
            if line.last() == Some(&self.separator) {
                line.pop();
            }
            if self.separator == b'\n' && line.last() == Some(&b'\r') {
                line.pop();
            }
            if line.is_empty() {
                continue;
            }
            let refused = |note| {
                let path = self.base.join(std::ffi::OsStr::from_bytes(line.as_slice()));
                Some(Err(Error::ours(Code::Refused, Op::Copy, path, note)))
            };
            if line.first() == Some(&b'/') {
                return refused(Reason::ListedNameNotRelative);
            }
            let parts = line.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".");
            if parts.clone().any(|part| part == b"..") {
                return refused(Reason::ListedNameWithDotDot);
            }
            let parts: Option<Vec<NameBuf>> = parts.map(NameBuf::new).collect();
            return match parts {
                Some(parts) if !parts.is_empty() => Some(Ok(parts)),
                Some(_) => refused(Reason::ListedNameIsSource),
                None => refused(Reason::NoSuchName),
            };
        }
    }
}
