//! What a typed source stands for. The paths that a person typed are resolved here, following links as they expect; all
//! that follows works below the handles opened here.
//!
//! Must not know where anything goes.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::node::Node;
use crate::policy::{Follow, Privileged};
use crate::sender::walk::SourceDir;
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A source operand, resolved.
pub(crate) enum Source {
    /// A name in a directory; the name may be followed when it is a link.
    Named { dir: Arc<SourceDir>, name: NameBuf, info: Info, follow: bool },
    /// A directory as a whole (`.`, `..`, `/`, `src/.`): its contents, without a name of its own.
    Whole(Arc<SourceDir>),
}

impl Source {
    /// What it shows itself as.
    pub(crate) fn info(&self) -> Info {
        match self {
            Source::Named { info, .. } => *info,
            Source::Whole(dir) => dir.info,
        }
    }
}

/// A directory is copied with what is in it, or not at all: only a `recursive` copy takes one, be it an operand or a name of
/// a list.
///
/// # Errors
/// It is a directory, and the copy is not recursive.
pub(crate) fn takes_kind(recursive: bool, kind: Kind, op: Op, path: impl FnOnce() -> PathBuf) -> Result<()> {
    if kind == Kind::Dir && !recursive {
        return Err(Error::ours(Code::IsDirectory, op, path(), Reason::IsDirectory));
    }
    Ok(())
}

/// How a typed path ends.
pub(crate) struct Typed<'p> {
    pub(crate) parent: PathBuf,
    /// `None` for `.`, `..` and `/`.
    pub(crate) name: Option<NameBuf>,
    /// `name/`: the name must be a directory, and a link is followed.
    pub(crate) slash: bool,
    pub(crate) path: &'p Path,
}

/// Takes a typed path apart.
pub(crate) fn typed(path: &Path) -> Result<Typed<'_>> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(Error::ours(Code::NotFound, Op::Open, path, Reason::EmptyPath));
    }
    let trimmed = match bytes.iter().rposition(|b| *b != b'/') {
        Some(last) => bytes.get(..=last).unwrap_or_default(),
        None => return Ok(Typed { parent: path.to_owned(), name: None, slash: true, path }),
    };
    let start = trimmed.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    let (parent, last) = trimmed.split_at(start);
    let slash = trimmed.len() < bytes.len();
    let parent = PathBuf::from(std::ffi::OsStr::from_bytes(parent));
    if last == b"." || last == b".." {
        return Ok(Typed { parent: path.to_owned(), name: None, slash, path });
    }
    let name =
        NameBuf::new(last).ok_or_else(|| Error::ours(Code::Usage, Op::Open, path, Reason::NameWithNul))?;
    Ok(Typed { parent, name: Some(name), slash, path })
}

/// Where typed paths may lead.
pub(crate) enum Reach {
    /// Wherever the user may go.
    Anywhere,
    /// Nowhere but below this directory, which is `/` to the peer that names paths.
    Below(Dir),
}

impl Reach {
    /// Opens a directory that was typed, following links as people expect, but out of reach.
    pub(crate) fn dir(&self, path: &Path) -> io::Result<Dir> {
        let at = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let Reach::Below(root) = self else { return Dir::open(at) };
        let bytes = at.as_os_str().as_bytes();
        let start = bytes.iter().position(|b| *b != b'/').unwrap_or(bytes.len());
        let below = bytes.get(start..).unwrap_or_default();
        if below.split(|b| *b == b'/').any(|part| part == b"..") {
            return Err(io::Error::from_raw_os_error(errno::EXDEV));
        }
        let below = if below.is_empty() { b"." } else { below };
        let below = CString::new(below).map_err(|_| io::Error::from_raw_os_error(errno::EINVAL))?;
        root.open_within(&below)
    }

    /// The same with its error told.
    pub(crate) fn open(&self, path: &Path) -> Result<Dir> {
        self.dir(path).map_err(|e| {
            let outside = e.raw_os_error() == Some(errno::EXDEV);
            let e = Error::os(Op::OpenDirectory, path, e);
            if outside {
                Error { code: Code::Refused, note: Some(Reason::LeadsOutside.into()), ..e }
            } else {
                e
            }
        })
    }

    /// Whether there is more than the user's rights in the way.
    pub(crate) fn is_confined(&self) -> bool {
        matches!(self, Reach::Below(_))
    }
}

/// Resolves a source operand.
pub(crate) fn source(reach: &Reach, path: &Path, follow: Follow, privileged: Privileged) -> Result<Source> {
    let typed = typed(path)?;
    let Some(name) = typed.name else {
        return Ok(Source::Whole(SourceDir::top(reach.open(path)?, Node::root(path), privileged)?));
    };
    let dir = SourceDir::parent(
        open_parent(reach, path, &typed.parent, Op::Open)?,
        Node::root(&typed.parent),
        privileged,
    )?;
    // What the last name leads to is not to be told to a peer that may not go everywhere.
    let follow = (typed.slash || follow != Follow::Never) && !reach.is_confined();
    let info = match dir.stat(name.as_name(), follow) {
        Ok(info) => info,
        // A dangling link that is to be followed: said as what it is.
        Err(e) if follow && e.code == Code::NotFound && dir.stat(name.as_name(), false).is_ok() => {
            return Err(Error { note: Some(Reason::DanglingLink.into()), ..e });
        }
        Err(e) => return Err(e),
    };
    if typed.slash && info.kind != Kind::Dir {
        let e = std::io::Error::from_raw_os_error(errno::ENOTDIR);
        return Err(Error::os(Op::Open, path, e));
    }
    Ok(Source::Named { dir, name, info, follow })
}

/// A missing parent is told as the operand's trouble: people look for the path they typed. `op`: what is to be done with that.
pub(crate) fn open_parent(reach: &Reach, path: &Path, parent: &Path, op: Op) -> Result<Dir> {
    reach.open(parent).map_err(|e| Error { path: path.to_owned(), op, ..e })
}
