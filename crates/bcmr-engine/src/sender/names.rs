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
}

/// Where a name begins in the buffer, and what the listing said of it.
#[derive(Clone, Copy)]
struct Listed {
    at: usize,
    kind: Kind,
    ino: u64,
}

impl Names {
    pub(crate) fn push(&mut self, name: Name<'_>, kind: Kind, ino: u64) {
        self.items.push(Listed { at: self.bytes.len(), kind, ino });
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
        let Names { bytes, items } = self;
        let name = |at: usize| CStr::from_bytes_until_nul(bytes.get(at..).unwrap_or_default()).ok();
        items.sort_unstable_by_key(|item| name(item.at));
    }
    pub(crate) fn get(&self, index: usize) -> Option<(Name<'_>, Kind)> {
        let item = self.items.get(index)?;
        let name = CStr::from_bytes_until_nul(self.bytes.get(item.at..)?).ok()?;
        Some((Name::new(name)?, item.kind))
    }
    /// Some of them, for another worker.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Names {
        let mut part = Names::default();
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
