//! A place that was named: the directory it is in, as a handle, and its name there.
//!
//! Must not know what is done with it.

use crate::receiver::single::Folder;
use fastcopy::dir::{Dir, ListBuffer, Name, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Links that lead to one another, at most: so many the kernel follows.
const LINKS_MAX: usize = 40;

/// A place.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// The directory, or why it cannot be reached.
    at: Result<Arc<Folder>, i32>,
    /// `None`: that directory itself (`.`, `..`, `/`).
    name: Option<NameBuf>,
    /// A slash stands behind the name: only a directory will do.
    slash: bool,
    /// As it is shown.
    pub(super) shown: PathBuf,
}

fn os(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// The last name of a path, without slashes behind it.
pub(super) fn last(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    let trimmed = bytes.get(..end).unwrap_or_default();
    let start = trimmed.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    trimmed.get(start..).unwrap_or_default()
}

/// What stands in front of the last name.
pub(super) fn parent_shown(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let name = last(path);
    let end = bytes.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    Path::new(std::ffi::OsStr::from_bytes(bytes.get(..end - name.len()).unwrap_or_default()))
}

/// A path without slashes behind it.
pub(super) fn trimmed(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|b| *b != b'/').map_or(usize::from(!bytes.is_empty()), |at| at + 1);
    bytes.get(..end).unwrap_or_default()
}

/// A name below a path; of several slashes at its end one is left.
pub(super) fn join(path: &Path, name: &[u8]) -> PathBuf {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    if !trimmed(path).is_empty() {
        bytes.truncate(trimmed(path).len());
    }
    if !bytes.is_empty() && bytes.last() != Some(&b'/') {
        bytes.push(b'/');
    }
    let name = name.iter().position(|b| *b != b'/').and_then(|at| name.get(at..)).unwrap_or_default();
    bytes.extend_from_slice(name);
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

impl Spot {
    /// What the user named.
    pub(super) fn of(path: &Path) -> Spot {
        let bytes = path.as_os_str().as_bytes();
        let end = bytes.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
        let (trimmed, slashes) = bytes.split_at(end);
        let name = last(path);
        let (parent, name) = match NameBuf::new(name) {
            Some(buf) => (trimmed.get(..trimmed.len() - name.len()).unwrap_or_default(), Some(buf)),
            None => (bytes, None),
        };
        let parent = if parent.is_empty() && name.is_some() { b"." } else { parent };
        let at = Dir::open(Path::new(OsStr::from_bytes(parent)))
            .map(|dir| Arc::new(Folder::new(dir)))
            .map_err(|e| e.raw_os_error().unwrap_or(errno::EIO));
        Spot { at, name, slash: !slashes.is_empty(), shown: path.to_owned() }
    }

    /// A name in a directory that is open.
    pub(super) fn child(dir: &Arc<Folder>, name: Name<'_>, shown: PathBuf) -> Spot {
        Spot { at: Ok(dir.clone()), name: Some(name.to_owned()), slash: false, shown }
    }

    /// The name beside it.
    pub(super) fn sibling(&self, name: &NameBuf, shown: PathBuf) -> Spot {
        Spot { at: self.at.clone(), name: Some(name.clone()), slash: false, shown }
    }

    pub(super) fn folder(&self) -> io::Result<&Arc<Folder>> {
        self.at.as_ref().map_err(|number| os(*number))
    }

    /// Its name; `otherwise` is the error for what has none.
    pub(super) fn name(&self, otherwise: i32) -> io::Result<Name<'_>> {
        self.name.as_ref().map(NameBuf::as_name).ok_or_else(|| os(otherwise))
    }

    /// Both.
    pub(super) fn place(&self, otherwise: i32) -> io::Result<(&Folder, Name<'_>)> {
        Ok((self.folder()?, self.name(otherwise)?))
    }

    /// The same, for a new name of something that is no directory: a slash behind it is `otherwise`. Of a name that nothing
    /// can be made under the kernel says first that it is taken.
    pub(super) fn new_place(&self, otherwise: i32) -> io::Result<(&Folder, Name<'_>)> {
        let place = self.place(errno::EEXIST)?;
        if !self.slash {
            return Ok(place);
        }
        let is_taken = otherwise == errno::ENOENT && place.0.dir.look(place.1)?.is_some();
        Err(os(if is_taken { errno::EEXIST } else { otherwise }))
    }

    pub(super) fn has_slash(&self) -> bool {
        self.slash
    }

    /// Whether a slash stands behind the name of a link.
    pub(super) fn is_link_with_slash(&self) -> bool {
        let own = self.place(errno::EBUSY).and_then(|(folder, name)| folder.dir.stat(name));
        self.slash && own.is_ok_and(|own| own.kind == Kind::Link)
    }

    /// What is there.
    pub(super) fn look(&self, follow: bool) -> io::Result<Info> {
        let folder = self.folder()?;
        let Some(name) = self.name.as_ref().map(NameBuf::as_name) else { return folder.dir.info() };
        if !(follow || self.slash) {
            return folder.dir.stat(name);
        }
        let info = folder.dir.stat_following(name)?;
        if self.slash && info.kind != Kind::Dir { Err(os(errno::ENOTDIR)) } else { Ok(info) }
    }

    /// The file, to read.
    pub(super) fn open_file(&self, follow: bool) -> io::Result<OwnedFd> {
        let (folder, name) = self.place(errno::EISDIR)?;
        if follow { folder.dir.open_file_following(name) } else { folder.dir.open_file(name) }
    }

    /// What is there, to write into, through a link.
    pub(super) fn open_to_write(&self) -> io::Result<OwnedFd> {
        let (folder, name) = self.place(errno::EISDIR)?;
        folder.dir.open_existing_following(name)
    }

    /// The directory, to list or to work in.
    pub(super) fn open_dir(&self, follow: bool) -> io::Result<Dir> {
        let folder = self.folder()?;
        match self.name.as_ref().map(NameBuf::as_name) {
            // Enough to work in, where it may not be read.
            None => match folder.dir.reopen() {
                Err(e) if e.raw_os_error() == Some(errno::EACCES) => folder.dir.try_clone(),
                opened => opened,
            },
            Some(name) if follow || self.slash => folder.dir.open_dir_following(name),
            Some(name) => folder.dir.open_dir(name),
        }
    }

    /// Whether two places are one name in one directory.
    pub(super) fn is_same_name(&self, other: &Spot) -> bool {
        if self.name.is_none() || other.name.is_none() {
            // Dots are names of the directory that stands before them.
            let before = |spot: &Spot| {
                let parent = parent_shown(&spot.shown);
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                Dir::open(parent).and_then(|dir| dir.info()).map(|info| info.id())
            };
            return last(&self.shown) == last(&other.shown)
                && matches!((before(self), before(other)), (Ok(a), Ok(b)) if a == b);
        }
        let id = |spot: &Spot| spot.folder().and_then(|folder| folder.dir.info()).map(|info| info.id());
        self.name == other.name && matches!((id(self), id(other)), (Ok(a), Ok(b)) if a == b)
    }

    /// Whether the directory that it is in is shown as a link that leads there.
    pub(super) fn is_below_a_link(&self) -> bool {
        let parent = parent_shown(&self.shown);
        let parent = Path::new(OsStr::from_bytes(trimmed(parent)));
        !parent.as_os_str().is_empty() && Spot::of(parent).look(false).is_ok_and(|own| own.kind == Kind::Link)
    }

    /// Where the link there leads, as a place; a chain of links up to its first step.
    pub(super) fn target(&self) -> io::Result<Spot> {
        let (folder, name) = self.place(errno::EINVAL)?;
        let target = folder.dir.read_link(name)?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            return Ok(Spot::of(target));
        }
        let bytes = self.shown.as_os_str().as_bytes();
        let end = bytes.len() - bytes.iter().rev().take_while(|b| **b == b'/').count() - name.bytes().len();
        let parent = Path::new(OsStr::from_bytes(bytes.get(..end).unwrap_or_default()));
        Ok(Spot::of(&join(parent, target.as_os_str().as_bytes())))
    }

    /// What is no link: this, or where the links from here lead.
    pub(super) fn at_end_of_links(&self) -> io::Result<Spot> {
        let mut at = self.clone();
        for _ in 0..LINKS_MAX {
            if at.look(false)?.kind != Kind::Link {
                return Ok(at);
            }
            at = at.target()?;
        }
        Err(io::Error::from_raw_os_error(errno::ELOOP))
    }

    /// Whether a link there leads to that very name.
    pub(super) fn leads_to(&self, other: &Spot) -> bool {
        self.target().is_ok_and(|target| target.is_same_name(other))
    }

    /// What tells it from other places: its directory and its name there.
    pub(super) fn key(&self) -> Option<((u64, u64), Option<NameBuf>)> {
        let folder = self.folder().ok()?;
        Some((folder.dir.info().ok()?.id(), self.name.clone()))
    }
}

/// The names in a directory with their inodes, in its own order.
pub(super) fn names_in(dir: &Dir) -> io::Result<Vec<(NameBuf, u64)>> {
    let mut names = Vec::new();
    let listed = dir.list(&mut ListBuffer::new(), |entry| {
        names.push((entry.name.to_owned(), entry.ino));
        true
    });
    match listed {
        // It was removed, and was empty by then: readdir(3) takes that for its end.
        Err(e) if e.raw_os_error() == Some(errno::ENOENT) => Ok(names),
        listed => listed.map(|()| names),
    }
}
