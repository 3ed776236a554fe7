//! Looking at what is on this machine without changing it: one name, a directory's names, a file's hash, a tree's
//! size.
//!
//! Must not know who asks: a person here, or another machine through a peer.

use crate::blocks::BLOCK_BYTES;
use crate::disk::tee;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::policy::{FilterSpec, Follow, Privileged};
use crate::sender::below::{self, Which};
use crate::sender::filter::Filter;
use crate::verbs::operands::{self, Reach, Source};
use bcmr_wire::limits::UNREADABLE_MAX;
use fastcopy::dir::{Dir, ListBuffer, Name};
use fastcopy::errno;
use fastcopy::meta::Info;
pub use fastcopy::meta::{Kind, Time};
pub use fastcopy::people::{group_name, user_name};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// One name on some machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The type.
    pub kind: Kind,
    /// One name, as bytes.
    pub name: Vec<u8>,
    /// Permission bits with setuid, setgid and sticky (07777).
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Last written.
    pub mtime: Time,
    /// What a symbolic link leads to; empty for everything else.
    pub link: Vec<u8>,
}

/// What is at a path and below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Everything that is no directory.
    pub files: u64,
    /// Directories, itself included when it is one.
    pub dirs: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Bytes allocated, directories included.
    pub allocated: u64,
}

impl Listing {
    /// A name, and what `dir` holds under it.
    fn of(name: &[u8], info: &Info, link: Vec<u8>) -> Listing {
        Listing {
            kind: info.kind,
            name: name.to_vec(),
            mode: info.mode,
            uid: info.uid,
            gid: info.gid,
            size: info.size,
            mtime: info.mtime,
            link,
        }
    }
}

/// What a path names; through a symbolic link with `follow`.
///
/// # Errors
/// The path cannot be looked at.
pub fn stat(path: &Path, follow: bool) -> Result<Listing> {
    stat_in(&Reach::Anywhere, path, follow).map(|(listing, _)| listing)
}

/// The names in a directory, in no order, until `each` says no. A name that goes away meanwhile is left out.
///
/// # Errors
/// [`Code::NotDirectory`] when it is none; or it, or something in it, cannot be looked at.
pub fn list(path: &Path, each: &mut dyn FnMut(Listing) -> bool) -> Result<()> {
    list_in(&Reach::Anywhere, path, each)
}

/// The BLAKE3 of a regular file, as `b3sum` computes it.
///
/// # Errors
/// It is no regular file, cannot be read, or changed while it was read.
pub fn hash(path: &Path) -> Result<[u8; 32]> {
    hash_in(&Reach::Anywhere, path, &|| true)
}

/// What is at a path and below it, as far as the filter takes it. A file with several names counts once. What cannot be
/// looked at is told to `failed` and is not in the sum.
///
/// # Errors
/// The path itself cannot be looked at.
pub fn usage(path: &Path, filter: &FilterSpec, failed: &mut dyn FnMut(Error)) -> Result<Usage> {
    let mut unreadable = Unreadable::Kept(Vec::new());
    let sum = usage_in(&Reach::Anywhere, path, filter, &mut unreadable, &|| true)?;
    unreadable.kept().into_iter().for_each(failed);
    Ok(sum)
}

/// [`stat`] of what is in reach.
///
/// # Errors
/// The path cannot be looked at.
pub(crate) fn stat_in(reach: &Reach, path: &Path, follow: bool) -> Result<(Listing, (u64, u64))> {
    let (info, link) = match operands::source(
        reach,
        path,
        if follow { Follow::Operands } else { Follow::Never },
        Privileged::Real,
    )? {
        Source::Named { dir, name, info, .. } => {
            let link =
                target_of(&dir.dir, name.as_name(), &info).map_err(|e| Error::os(Op::ReadLink, path, e))?;
            (info, link)
        }
        Source::Whole(dir) => (dir.info, Vec::new()),
    };
    let name = path.file_name().unwrap_or(path.as_os_str()).as_bytes();
    Ok((Listing::of(name, &info, link), info.id()))
}

/// What a name leads to, where it is a symbolic link.
fn target_of(dir: &Dir, name: Name<'_>, info: &Info) -> std::io::Result<Vec<u8>> {
    match info.kind {
        Kind::Link => dir.read_link(name).map(std::ffi::CString::into_bytes),
        _ => Ok(Vec::new()),
    }
}

/// The names in a directory, in no order, until `each` says no. A name that goes away meanwhile is left out.
///
/// # Errors
/// [`Code::NotDirectory`] when it is none; or it, or something in it, cannot be looked at.
pub(crate) fn list_in(reach: &Reach, path: &Path, each: &mut dyn FnMut(Listing) -> bool) -> Result<()> {
    let fail = |op| move |e| Error::os(op, path, e);
    let dir = match operands::source(reach, path, Follow::Operands, Privileged::Real)? {
        Source::Named { dir, name, info, .. } if info.kind == Kind::Dir => {
            // Where not everything is in reach, a link that has taken its place meanwhile is not followed.
            let opened = if reach.is_confined() {
                dir.dir.open_dir_readable(name.as_name())
            } else {
                dir.dir.open_dir_following(name.as_name())
            };
            opened.map_err(fail(Op::OpenDirectory))?
        }
        Source::Named { .. } => {
            return Err(Error::ours(Code::NotDirectory, Op::List, path, Reason::NoDirectory));
        }
        Source::Whole(dir) => dir.dir.reopen().map_err(fail(Op::OpenDirectory))?,
    };
    let mut failed = None;
    let look = |name: Name<'_>| {
        let info = dir.stat(name)?;
        let link = target_of(&dir, name, &info)?;
        Ok::<_, std::io::Error>(Listing::of(name.bytes(), &info, link))
    };
    dir.list(&mut ListBuffer::new(), |entry| match look(entry.name) {
        Ok(listing) => each(listing),
        Err(e) if e.raw_os_error() == Some(errno::ENOENT) => true,
        Err(e) => {
            failed = Some(Error::os(Op::Stat, path.join(std::ffi::OsStr::from_bytes(entry.name.bytes())), e));
            false
        }
    })
    .map_err(fail(Op::List))?;
    failed.map_or(Ok(()), Err)
}

/// The BLAKE3 of a regular file, as `b3sum` computes it, as long as `go_on` says so.
///
/// # Errors
/// It is no regular file, cannot be read, or changed while it was read.
pub(crate) fn hash_in(reach: &Reach, path: &Path, go_on: &dyn Fn() -> bool) -> Result<[u8; 32]> {
    let fail = |op| move |e| Error::os(op, path, e);
    let Source::Named { dir, name, info, follow } =
        operands::source(reach, path, Follow::Operands, Privileged::Real)?
    else {
        return Err(Error::ours(Code::IsDirectory, Op::Hash, path, Reason::IsDirectory));
    };
    let is_file = |info: &Info| match info.kind {
        Kind::File => Ok(()),
        Kind::Dir => Err(Error::ours(Code::IsDirectory, Op::Hash, path, Reason::IsDirectory)),
        other => {
            let note = Reason::KindNotFile.about(other.word());
            Err(Error::ours(Code::Special, Op::Hash, path, note))
        }
    };
    // Nothing special is opened, which may do something by itself; and nothing that took its place is read.
    is_file(&info)?;
    let (fd, before) = dir.open_file(name.as_name(), follow)?;
    is_file(&before)?;
    let hash = tee::hash(&fd, &|_| go_on()).map_err(|f| f.told(|| path.to_owned(), || path.to_owned()))?;
    let after = Info::of(&fd).map_err(fail(Op::Stat))?;
    if !before.same_content(&after) {
        return Err(Error::ours(Code::SourceChanged, Op::Hash, path, Reason::ChangedWhileRead));
    }
    Ok(*hash.as_bytes())
}

/// [`usage`] of what is in reach, as long as `go_on` says so.
///
/// # Errors
/// The path cannot be looked at, or something below it that is not to be kept as `unreadable`.
pub(crate) fn usage_in(
    reach: &Reach,
    path: &Path,
    filter: &FilterSpec,
    unreadable: &mut Unreadable,
    go_on: &dyn Fn() -> bool,
) -> Result<Usage> {
    let (mut sum, mut met) = (Usage::default(), HashSet::new());
    let mut stopped = false;
    each_below(reach, path, filter, unreadable, &mut |info| {
        add(&mut sum, &mut met, info);
        stopped = !go_on();
        !stopped
    })?;
    if stopped { Err(Error::ours(Code::Interrupted, Op::Count, path, Reason::Interrupted)) } else { Ok(sum) }
}

/// What a short look at sources finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Bytes of regular files.
    pub(crate) bytes: u64,
    /// Bytes of those that are sent block by block.
    pub(crate) large: u64,
    /// There is more than was looked at.
    pub(crate) more: bool,
}

/// Looks how much there is to move: at the operands, and in `deep` at what is below them, but at no more than `names`
/// names and for no longer than `patience`, since this is before the beginning. What cannot be looked at counts nothing:
/// its copy will say why.
pub(crate) fn ahead(paths: &[PathBuf], deep: bool, names: usize, patience: Duration) -> Ahead {
    let mut found = Ahead::default();
    let began = Instant::now();
    let mut left = names;
    for path in paths {
        let everything = FilterSpec::everything();
        let looked = each_below(&Reach::Anywhere, path, &everything, &mut Unreadable::Ends, &mut |info| {
            if left == 0 {
                found.more = true;
                return false;
            }
            left -= 1;
            if info.kind == Kind::File {
                found.bytes += info.size;
                found.large += if info.size >= BLOCK_BYTES { info.size } else { 0 };
            }
            found.more = began.elapsed() >= patience;
            !found.more && (deep || info.kind != Kind::Dir)
        });
        drop(looked);
        if found.more {
            break;
        }
    }
    found
}

/// What becomes of something below a path that cannot be looked at.
pub(crate) enum Unreadable {
    /// It is the end.
    Ends,
    /// It is kept, and the rest is looked at.
    Kept(Vec<Error>),
}

impl Unreadable {
    fn take(&mut self, e: Error) -> Result<()> {
        match self {
            Unreadable::Ends => Err(e),
            // So many are enough to know that the sum lacks much.
            Unreadable::Kept(kept) if kept.len() >= UNREADABLE_MAX => Ok(()),
            Unreadable::Kept(kept) => {
                kept.push(e);
                Ok(())
            }
        }
    }

    /// Why each of what was kept could not be looked at.
    pub(crate) fn kept(self) -> Vec<Error> {
        match self {
            Unreadable::Ends => Vec::new(),
            Unreadable::Kept(kept) => kept,
        }
    }
}

/// Shows what the filter takes at a path and below it, directories before what is in them, until `each` says no.
fn each_below(
    reach: &Reach,
    path: &Path,
    filter: &FilterSpec,
    unreadable: &mut Unreadable,
    each: &mut dyn FnMut(&Info) -> bool,
) -> Result<()> {
    let which = Which { follow: Follow::Operands, filter: &Filter::new(filter)?, one_file_system: false };
    let source = operands::source(reach, path, which.follow, Privileged::Real)?;
    below::each_below(source, path, &which, &mut |e| unreadable.take(e), &mut |_, info| each(info))
}

fn add(sum: &mut Usage, met: &mut HashSet<(u64, u64)>, info: &Info) {
    if info.kind != Kind::Dir && info.nlink > 1 && !met.insert(info.id()) {
        return;
    }
    sum.allocated += info.blocks * 512;
    match info.kind {
        Kind::Dir => sum.dirs += 1,
        _ => {
            sum.files += 1;
            sum.bytes += info.size;
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn one_name_and_what_is_in_a_directory() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path();
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/caf"), "12345").unwrap();
        fs::write(dir.join("d").join(std::ffi::OsStr::from_bytes(b"x\xff")), "").unwrap();
        symlink("d", dir.join("l")).unwrap();
        assert_eq!(stat(&dir.join("l"), false).unwrap().kind, Kind::Link);
        assert_eq!(stat(&dir.join("l"), true).unwrap().kind, Kind::Dir);
        let file = stat(&dir.join("d/caf"), false).unwrap();
        assert_eq!((file.kind, file.size, file.name.as_slice()), (Kind::File, 5, b"caf".as_slice()));
        let mut names = Vec::new();
        let mut take = |l: Listing| {
            names.push(l.name);
            true
        };
        list(&dir.join("l"), &mut take).unwrap();
        names.sort();
        assert_eq!(names, [b"caf".to_vec(), b"x\xff".to_vec()]);
        let mut one = 0;
        list(&dir.join("d/."), &mut |_| {
            one += 1;
            false
        })
        .unwrap();
        assert_eq!(one, 1);
        assert_eq!(list(&dir.join("d/caf"), &mut |_| true).unwrap_err().code, Code::NotDirectory);
        assert_eq!(stat(&dir.join("none"), false).unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn hashes_are_of_regular_files() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path();
        let data = vec![7; (1 << 20) + 3];
        fs::write(dir.join("f"), &data).unwrap();
        symlink("f", dir.join("l")).unwrap();
        for name in ["f", "l"] {
            assert_eq!(hash(&dir.join(name)).unwrap(), *blake3::hash(&data).as_bytes());
        }
        assert_eq!(hash(dir).unwrap_err().code, Code::IsDirectory);
        assert_eq!(hash(&dir.join(".")).unwrap_err().code, Code::IsDirectory);
        assert_eq!(hash(Path::new("/dev/null")).unwrap_err().code, Code::Special);
    }

    #[test]
    fn a_tree_is_summed_once() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("t");
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/f"), vec![1; 5000]).unwrap();
        fs::hard_link(dir.join("a/b/f"), dir.join("again")).unwrap();
        symlink("..", dir.join("a/up")).unwrap();
        let whole = |path: &Path| usage(path, &FilterSpec::everything(), &mut |e| panic!("{e}")).unwrap();
        let sum = whole(&dir);
        assert_eq!((sum.files, sum.dirs), (2, 3));
        assert_eq!(sum.bytes, 5000 + 2);
        assert!(sum.allocated >= 5000);
        let one = whole(&dir.join("again"));
        assert_eq!((one.files, one.dirs, one.bytes), (1, 0, 5000));
    }

    #[test]
    fn a_look_ahead_is_short() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("t");
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/small"), vec![1; 500]).unwrap();
        fs::File::create(dir.join("a/large")).unwrap().set_len(BLOCK_BYTES).unwrap();
        fs::write(top.path().join("f"), vec![1; 700]).unwrap();
        let paths = [dir.clone(), top.path().join("none"), top.path().join("f")];
        let all = BLOCK_BYTES + 500 + 700;
        for (deep, names, bytes, large, more) in [
            (true, 100, all, BLOCK_BYTES, false),
            (true, 6, all, BLOCK_BYTES, false),
            (true, 5, all - 700, BLOCK_BYTES, true),
            (true, 1, 0, 0, true),
            (false, 100, 700, 0, false),
        ] {
            assert_eq!(
                ahead(&paths, deep, names, Duration::from_secs(9)),
                Ahead { bytes, large, more },
                "{deep} {names}"
            );
        }
        assert!(ahead(&paths, true, 100, Duration::ZERO).more);
    }
}
