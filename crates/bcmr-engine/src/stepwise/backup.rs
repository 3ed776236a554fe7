//! What a backup is called.
//!
//! Must not make it.

use super::options::{Backup, Options};
use super::spot::{Spot, last, parent_shown};
use fastcopy::dir::{Dir, ListBuffer, NameBuf};
use fastcopy::errno;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The number of a numbered backup of `name`.
fn number_of(name: &[u8], entry: &[u8]) -> Option<u64> {
    let digits = entry.strip_prefix(name)?.strip_prefix(b".~")?.strip_suffix(b"~")?;
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) && digits.first() != Some(&b'0');
    std::str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()
}

/// The highest number of a backup of `name` there. Where a directory may not be listed none is known, as with GNU's.
fn highest(dir: &Dir, name: &[u8]) -> io::Result<u64> {
    let dir = match dir.reopen() {
        Err(e) if e.raw_os_error() == Some(errno::EACCES) => return Ok(0),
        opened => opened?,
    };
    let mut most = 0;
    dir.list(&mut ListBuffer::new(), |entry| {
        most = most.max(number_of(name, entry.name.bytes()).unwrap_or(0));
        true
    })?;
    Ok(most)
}

/// The longest name that a directory takes.
const NAME_BYTES_MAX: usize = 255;

/// A name with what its backup's ends with, and whether that is cut: where both are too long together, a `~` ends as much of
/// the name as there is room for.
fn with_ending(name: &[u8], ending: &[u8], bytes_max: usize) -> (Vec<u8>, bool) {
    if name.len() + ending.len() <= bytes_max {
        return ([name, ending].concat(), false);
    }
    let most = name.len().min(bytes_max - 1);
    ([name.get(..most).unwrap_or(name), b"~"].concat(), true)
}

/// What a backup is called.
pub(super) struct BackupName {
    pub(super) spot: Spot,
    /// Its number, if it has one: then it replaces none.
    pub(super) number: Option<u64>,
    /// Trying once more would give the same.
    pub(super) is_cut: bool,
}

/// The name that `dst` is kept under. A number is one above `taken`, which are known to be there.
pub(super) fn name_for(dst: &Spot, options: &Options, taken: u64) -> io::Result<BackupName> {
    let (folder, name) = dst.place(errno::EBUSY)?;
    let numbered = match options.backup {
        Backup::None | Backup::Simple => None,
        Backup::Numbered => Some(highest(&folder.dir, name.bytes())?),
        Backup::Existing => Some(highest(&folder.dir, name.bytes())?).filter(|most| *most > 0),
    };
    let number = numbered.map(|most| most.max(taken).saturating_add(1));
    let ending = match number {
        Some(number) => format!(".~{number}~").into_bytes(),
        None => options.suffix.clone(),
    };
    // Where GNU's looks for numbered ones it has one byte less.
    let bytes_max = NAME_BYTES_MAX - usize::from(!matches!(options.backup, Backup::None | Backup::Simple));
    let (kept, is_cut) = with_ending(name.bytes(), &ending, bytes_max);
    let kept = NameBuf::new(&kept).ok_or_else(|| io::Error::from_raw_os_error(errno::EINVAL))?;
    // What stands in front of the name is shown as it was typed.
    let parent = parent_shown(&dst.shown).as_os_str().as_bytes();
    let shown = PathBuf::from(OsStr::from_bytes(&[parent, kept.bytes()].concat()));
    Ok(BackupName { spot: dst.sibling(&kept, shown), number, is_cut })
}

/// Whether making a simple backup of `dst` would take the source's own name.
pub(super) fn takes_source(src: &Spot, dst: &Spot, options: &Options) -> bool {
    if options.backup == Backup::Numbered {
        return false;
    }
    let Ok(name) = dst.name(errno::EBUSY) else { return false };
    let (kept, _) = with_ending(name.bytes(), &options.suffix, NAME_BYTES_MAX);
    let Some(kept) = NameBuf::new(&kept) else { return false };
    if last(&src.shown) != kept.bytes() {
        return false;
    }
    let spot = dst.sibling(&kept, dst.shown.clone());
    matches!((spot.look(true), src.look(true)), (Ok(a), Ok(b)) if a.id() == b.id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (entry, want) in [
            (&b"a.~1~"[..], Some(1)),
            (b"a.~12~", Some(12)),
            (b"a.~~", None),
            (b"a.~01~", None),
            (b"a.~x~", None),
            (b"b.~1~", None),
            (b"a~", None),
        ] {
            assert_eq!(number_of(b"a", entry), want, "{entry:?}");
        }
    }
}
