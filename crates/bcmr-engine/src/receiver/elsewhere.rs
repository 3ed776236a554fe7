//! Files that the destination has under another name: what was renamed or moved at the source is known by its size and its
//! modification time, to the nanosecond.
//!
//! Must not know what is done with one. That two files look alike is no proof that they are: what is made of one is compared.

use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::meta::{Info, Kind, Time};
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

/// Names that are looked at, at most: half a second's work, once for a run, and some 100 bytes each.
const LOOKED_AT_MAX: usize = 1 << 17;
/// Files of one size and time that are told apart by their names.
const ALIKE_MAX: usize = 64;
/// So many of them are looked into where one must have a certain content.
const TRIED_MAX: usize = 4;
/// Names from the top down to a file, at most.
const DEPTH_MAX: usize = 64;

/// What a file is known by.
type Looks = (u64, i64, u32);

fn looks(size: u64, mtime: Time) -> Looks {
    (size, mtime.sec, mtime.nsec)
}

/// The files below one directory, looked at when one is first asked for.
pub(crate) struct Elsewhere {
    top: Dir,
    /// Shorter ones are none.
    least: u64,
    found: OnceLock<HashMap<Looks, Vec<CString>>>,
}

impl Elsewhere {
    /// Nothing is looked at yet.
    pub(crate) fn below(top: Dir, least: u64) -> Elsewhere {
        Elsewhere { top, least, found: OnceLock::new() }
    }

    fn found(&self) -> &HashMap<Looks, Vec<CString>> {
        self.found.get_or_init(|| look_through(&self.top, self.least, LOOKED_AT_MAX))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.found().is_empty()
    }

    /// Whether one looks as `info` does.
    pub(crate) fn knows(&self, info: &Info) -> bool {
        self.found().contains_key(&looks(info.size, info.mtime))
    }

    /// A file that looks as `info` does, the one of the same name before others; what cannot be read is none.
    pub(crate) fn like(&self, info: &Info, named: Name<'_>) -> Option<OwnedFd> {
        self.alike(info, named).next()
    }

    /// The first few of them, those of the same name before others.
    pub(crate) fn alike(&self, info: &Info, named: Name<'_>) -> impl Iterator<Item = OwnedFd> {
        let alike = self.found().get(&looks(info.size, info.mtime)).map(Vec::as_slice).unwrap_or_default();
        let is_same = move |path: &&CString| apart(path.to_bytes()).1 == named.bytes();
        let others = alike.iter().filter(move |path| !is_same(path));
        let first = alike.iter().filter(is_same).chain(others).take(TRIED_MAX);
        first.filter_map(|path| {
            let (above, name) = apart(path.to_bytes());
            let above = below(&self.top, above).ok()?;
            above.open_file(NameBuf::new(name)?.as_name()).ok()
        })
    }
}

/// The directory of a path, empty for the top, and the last name.
fn apart(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default()),
        None => (b"", path),
    }
}

fn below(top: &Dir, path: &[u8]) -> io::Result<Dir> {
    if path.is_empty() { top.reopen() } else { top.open_beneath(&CString::new(path)?) }
}

/// Directory by directory, the newest first; no link is followed and no other file system entered. What cannot be listed has
/// nothing.
fn look_through(top: &Dir, least: u64, most: usize) -> HashMap<Looks, Vec<CString>> {
    let (mut found, mut buffer, mut left) = (HashMap::new(), ListBuffer::new(), most);
    let Ok(home) = top.info() else { return found };
    let mut waiting = vec![Vec::new()];
    while left > 0
        && let Some(path) = waiting.pop()
    {
        let Ok(dir) = below(top, &path) else { continue };
        if !dir.info().is_ok_and(|info| info.dev == home.dev) {
            continue;
        }
        let deep = path.iter().filter(|byte| **byte == b'/').count();
        let at = |name: Name<'_>| {
            let between: &[u8] = if path.is_empty() { b"" } else { b"/" };
            [path.as_slice(), between, name.bytes()].concat()
        };
        let mut names = Vec::new();
        let _listed = dir
            .list(&mut buffer, |met| {
                left = left.saturating_sub(1);
                match met.kind {
                    Some(Kind::Dir) if deep < DEPTH_MAX => waiting.push(at(met.name)),
                    Some(Kind::File) => names.push(met.name.to_owned()),
                    _ => {}
                }
                left > 0
            })
            .is_ok();
        for name in names {
            if let Ok(info) = dir.stat(name.as_name())
                && info.kind == Kind::File
                && info.size >= least
                && let Ok(path) = CString::new(at(name.as_name()))
            {
                let alike: &mut Vec<CString> = found.entry(looks(info.size, info.mtime)).or_default();
                if alike.len() < ALIKE_MAX {
                    alike.push(path);
                }
            }
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use crate::chunks::DELTA_BYTES_MIN;
    use std::io::Read;
    use std::path::Path;

    #[test]
    fn a_file_is_found_by_how_it_looks() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path();
        let put = |name: &str, bytes: &[u8]| {
            std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
            std::fs::write(dir.join(name), bytes).unwrap();
            Info::of(OwnedFd::from(std::fs::File::open(dir.join(name)).unwrap())).unwrap()
        };
        let many = vec![7; 2 * DELTA_BYTES_MIN as usize];
        let top = put("top", &many);
        let deep = put("a/b/c/deep", &many[1..]);
        let small = put("a/small", &many[..3]);
        std::os::unix::fs::symlink("top", dir.join("link")).unwrap();
        let elsewhere = Elsewhere::below(Dir::open(Path::new(dir)).unwrap(), DELTA_BYTES_MIN);
        let length = |info: &Info| {
            let mut bytes = Vec::new();
            let file = elsewhere.like(info, NameBuf::new(b"deep").unwrap().as_name())?;
            std::fs::File::from(file).read_to_end(&mut bytes).unwrap();
            Some(bytes.len() as u64)
        };
        assert_eq!((length(&top), length(&deep)), (Some(top.size), Some(deep.size)));
        assert_eq!(length(&small), None, "what is short is sent");
        let later = Time { nsec: top.mtime.nsec ^ 1, ..top.mtime };
        assert_eq!(length(&Info { mtime: later, ..top }), None);
        assert_eq!(length(&Info { size: top.size + 1, ..top }), None);
        // It is gone, or became something else, since it was looked at.
        std::fs::remove_file(dir.join("a/b/c/deep")).unwrap();
        assert_eq!(length(&deep), None);
    }

    #[test]
    fn so_many_names_are_looked_at() {
        let tmp = tempfile::tempdir().unwrap();
        for n in 0..20 {
            let file = std::fs::File::create(tmp.path().join(n.to_string())).unwrap();
            file.set_len(DELTA_BYTES_MIN + n).unwrap();
        }
        let top = Dir::open(tmp.path()).unwrap();
        assert_eq!((look_through(&top, 1, 7).len(), look_through(&top, 1, 100).len()), (7, 20));
    }
}
