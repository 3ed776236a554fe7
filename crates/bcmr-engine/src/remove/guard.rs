//! What is never removed: the root directory, the current directory and whatever holds it. Decided by the identity
//! of open handles, so that no spelling, symbolic link or bind mount of them gets through.
//!
//! Must not know what is removed, nor how.

use crate::error::{Error, Op, Reason};
use fastcopy::dir::Dir;
use fastcopy::errno;
use std::path::Path;

/// How far to climb in search of the root.
const LEVELS_MAX: usize = 1 << 16;

/// The identities that are safe from removal, with the reason for each.
#[derive(Debug, Default)]
pub(super) struct Protected(Vec<((u64, u64), Reason)>);

impl Protected {
    /// Climbs from the current directory to the root. Where that may not be looked at (a current directory that was
    /// removed, or may not be searched) there is nothing to protect: a process that cannot get there cannot empty it. Any
    /// other trouble is an error, as a guard that could not be set up must not be taken for one that saw nothing.
    pub(super) fn find() -> Result<Protected, Error> {
        let root_path = Path::new("/");
        let failed = |e| Error::os(Op::Open, root_path, e);
        let root = Dir::open(root_path).and_then(|d| d.info()).map_err(failed)?.id();
        let mut ids = vec![(root, Reason::IsRoot)];
        let mut next = Dir::open(Path::new(".")).or_else(|_| Dir::open(Path::new("/proc/self/cwd")));
        let mut reason = Reason::IsCurrentDirectory;
        let mut below = None;
        // Bounded, as another process may be moving directories about meanwhile.
        for _ in 0..LEVELS_MAX {
            let (here, id) = match next.and_then(|here| here.info().map(|info| (here, info.id()))) {
                Ok(found) => found,
                Err(e) if matches!(e.raw_os_error(), Some(errno::ENOENT | errno::EACCES | errno::ESTALE)) => {
                    break;
                }
                Err(e) => return Err(Error::os(Op::Open, ".", e)),
            };
            // At the root, `..` is the root again. The root's identity alone is no proof of being there: the root
            // may be mounted a second time on the way.
            if below == Some(root) && id == root {
                break;
            }
            ids.push((id, reason));
            reason = Reason::HoldsCurrentDirectory;
            below = Some(id);
            next = here.parent();
        }
        Ok(Protected(ids))
    }

    /// One more, with its reason.
    pub(super) fn with(mut self, id: (u64, u64), why: Reason) -> Protected {
        self.0.push((id, why));
        self
    }

    /// Why this directory is not removed, if so.
    pub(super) fn reason(&self, id: (u64, u64)) -> Option<Reason> {
        self.0.iter().find(|(guarded, _)| *guarded == id).map(|(_, why)| *why)
    }
}

/// An operand taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Operand<'a> {
    /// What to open first: everything before the last component; `.` when there is nothing.
    pub(super) parent: &'a [u8],
    /// The last component, without slashes after it. Empty for the root directory and for the empty operand.
    pub(super) name: &'a [u8],
    /// Slashes followed it: only a directory will do.
    pub(super) slash: bool,
}

impl Operand<'_> {
    /// Splits at the last slash that has something after it.
    pub(super) fn split(bytes: &[u8]) -> Operand<'_> {
        let end = bytes.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
        let (trimmed, rest) = bytes.split_at(end);
        let start = trimmed.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        let (parent, name) = trimmed.split_at(start);
        Operand { parent: if parent.is_empty() { b"." } else { parent }, name, slash: !rest.is_empty() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_split_at_the_last_real_slash() {
        let table: [(&str, &str, &str, bool); 9] = [
            ("a", ".", "a", false),
            ("a/", ".", "a", true),
            ("a/b", "a/", "b", false),
            ("/a//", "/", "a", true),
            ("/", ".", "", true),
            ("//", ".", "", true),
            ("", ".", "", false),
            ("a/..", "a/", "..", false),
            ("./", ".", ".", true),
        ];
        for (whole, parent, name, slash) in table {
            let expected = Operand { parent: parent.as_bytes(), name: name.as_bytes(), slash };
            assert_eq!(Operand::split(whole.as_bytes()), expected, "{whole:?}");
        }
    }

    #[test]
    fn root_and_the_way_to_the_current_directory_are_protected_and_others_are_not() {
        let protected = Protected::find().unwrap();
        for path in ["/", ".", "..", "/proc/self/cwd"] {
            let id = Dir::open(Path::new(path)).unwrap().info().unwrap().id();
            assert!(protected.reason(id).is_some(), "{path}");
        }
        let other = tempfile::tempdir().unwrap();
        let id = Dir::open(other.path()).unwrap().info().unwrap().id();
        assert_eq!(protected.reason(id), None);
    }
}
