//! Names, many of them: those of one directory, and those of a list one at a time.
//!
//! Must not look at what has a name.

use crate::awaited::{Awaited, is_stop};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::Cancel;
use fastcopy::dir::NameBuf;
use fastcopy::names::NameList;
use std::io::BufRead;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names of one directory.
#[derive(Default)]
pub(crate) struct Names {
    list: NameList,
    /// They were claimed already, because a list says them.
    pub(crate) are_claimed: bool,
}

impl Names {
    /// None yet, of those that a list says.
    pub(crate) fn claimed() -> Names {
        Names { are_claimed: true, ..Names::default() }
    }
    /// Some of them, for another worker.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Names {
        let mut part = Names { are_claimed: self.are_claimed, ..Names::default() };
        self.list.copy_to(&mut part.list, range);
        part
    }
}

impl std::ops::Deref for Names {
    type Target = NameList;
    fn deref(&self) -> &NameList {
        &self.list
    }
}

impl std::ops::DerefMut for Names {
    fn deref_mut(&mut self) -> &mut NameList {
        &mut self.list
    }
}

/// Names from a list, one at a time, each split into its components.
pub(crate) struct ListedNames<'r> {
    reader: Awaited<'r>,
    separator: u8,
    pub(crate) base: &'r Path,
    /// It was read to its end, or cannot be read any further.
    ended: bool,
}

impl<'r> ListedNames<'r> {
    /// Names below `base`, each with a separator behind it, until they end or it is cancelled.
    pub(crate) fn new(
        reader: &'r mut (dyn BufRead + Send),
        separator: u8,
        base: &'r Path,
        cancel: &'r Cancel,
    ) -> ListedNames<'r> {
        ListedNames { reader: Awaited { reader, cancel }, separator, base, ended: false }
    }
}

impl Iterator for ListedNames<'_> {
    type Item = Result<Vec<NameBuf>>;
    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let mut line = Vec::new();
            match self.reader.read_until(self.separator, &mut line) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(_) => {}
                Err(e) => {
                    self.ended = true;
                    // Half a name is none.
                    if is_stop(&e) {
                        break;
                    }
                    return Some(Err(Error::os(Op::ReadListOfNamesBelow, self.base, e)));
                }
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
        None
    }
}
