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

fn highest(dir: &Dir, name: &[u8]) -> io::Result<u64> {
    let mut most = 0;
    dir.reopen()?.list(&mut ListBuffer::new(), |entry| {
        most = most.max(number_of(name, entry.name.bytes()).unwrap_or(0));
        true
    })?;
    Ok(most)
}

/// The name that `dst` is kept under, and whether it is a numbered one.
pub(super) fn name_for(dst: &Spot, options: &Options) -> io::Result<(Spot, bool)> {
    let (folder, name) = dst.place(errno::EBUSY)?;
    let numbered = match options.backup {
        Backup::None | Backup::Simple => None,
        Backup::Numbered => Some(highest(&folder.dir, name.bytes())?),
        Backup::Existing => Some(highest(&folder.dir, name.bytes())?).filter(|most| *most > 0),
    };
    let ending = match numbered {
        Some(most) => format!(".~{}~", most.saturating_add(1)).into_bytes(),
        None => options.suffix.clone(),
    };
    let kept = NameBuf::new(&[name.bytes(), &ending].concat())
        .ok_or_else(|| io::Error::from_raw_os_error(errno::EINVAL))?;
    // What stands in front of the name is shown as it was typed.
    let parent = parent_shown(&dst.shown).as_os_str().as_bytes();
    let shown = PathBuf::from(OsStr::from_bytes(&[parent, kept.bytes()].concat()));
    Ok((dst.sibling(&kept, shown), numbered.is_some()))
}

/// Whether making a simple backup of `dst` would take the source's own name.
pub(super) fn takes_source(src: &Spot, dst: &Spot, options: &Options) -> bool {
    if options.backup == Backup::Numbered {
        return false;
    }
    let Ok(name) = dst.name(errno::EBUSY) else { return false };
    let Some(kept) = NameBuf::new(&[name.bytes(), &options.suffix].concat()) else { return false };
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
