//! Source directories and what is in them. One listing per directory, one open and one fstat per file.
//!
//! Must not know where anything goes.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::held_stat;
use crate::node::Node;
use crate::policy::Privileged;
use crate::sender::filter::{self, Filter, Ignores, Seen};
use crate::sender::small::{Opened, SmallFiles};
use fastcopy::dir::{Dir, Name, NameBuf};
use fastcopy::meta::{Info, Kind};
use fastcopy::still::stamps_by_our_clock;
use fastcopy::xattr::Of;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// A source directory, open.
pub(crate) struct SourceDir {
    pub(crate) dir: Dir,
    pub(crate) info: Info,
    pub(crate) node: Arc<Node>,
    /// Its name in the directory above; an operand that is a directory as a whole has none.
    pub(crate) name: Option<NameBuf>,
    pub(crate) above: Option<Arc<SourceDir>>,
    pub(crate) ignores: Option<Arc<Ignores>>,
    /// Where it and what is in it has what only root can set.
    pub(crate) privileged: Privileged,
    /// Changes on its file system are stamped with this machine's clock.
    pub(crate) is_stamped_here: bool,
}

impl SourceDir {
    /// The operand's directory itself, or the directory an operand's name is in.
    pub(crate) fn root(dir: Dir, node: Arc<Node>) -> Result<Arc<SourceDir>> {
        SourceDir::parent(dir, node, Privileged::Real)
    }

    /// The operand's directory itself, as what it is meant to be.
    pub(crate) fn top(dir: Dir, node: Arc<Node>, privileged: Privileged) -> Result<Arc<SourceDir>> {
        let info = dir.info().map_err(|e| Error::os(Op::Stat, node.path(), e))?;
        let info = meant(privileged, Of::Handle(dir.as_fd()), info, || node.path())?;
        Ok(SourceDir::uppermost(dir, info, node, privileged))
    }

    /// The directory an operand's name is in, which takes no part itself.
    pub(crate) fn parent(dir: Dir, node: Arc<Node>, privileged: Privileged) -> Result<Arc<SourceDir>> {
        let info = dir.info().map_err(|e| Error::os(Op::Stat, node.path(), e))?;
        Ok(SourceDir::uppermost(dir, info, node, privileged))
    }

    fn uppermost(dir: Dir, info: Info, node: Arc<Node>, privileged: Privileged) -> Arc<SourceDir> {
        let is_stamped_here = stamps_by_our_clock(&dir);
        let (name, above, ignores) = (None, None, None);
        Arc::new(SourceDir { dir, info, node, name, above, ignores, privileged, is_stamped_here })
    }

    /// The same for an operand that is a directory as a whole, whose own files of rules reign in it.
    pub(crate) fn with_ignores(self: &Arc<Self>, filter: &Filter) -> Result<Arc<SourceDir>> {
        if !filter.asks_tree() {
            return Ok(self.clone());
        }
        let ignores = filter.rules_in((&self.dir, &|| self.node.path()), 0, None)?;
        let dir = self.dir.try_clone().map_err(|e| Error::os(Op::Open, self.node.path(), e))?;
        let (node, name, above) = (self.node.clone(), self.name.clone(), self.above.clone());
        let (privileged, is_stamped_here) = (self.privileged, self.is_stamped_here);
        Ok(Arc::new(SourceDir {
            dir,
            info: self.info,
            node,
            name,
            above,
            ignores,
            privileged,
            is_stamped_here,
        }))
    }

    /// A directory below this one, known as `node` (an operand is a root of its own, all else lies below one). A link
    /// in its place is followed only where everything is.
    pub(crate) fn enter(
        self: &Arc<Self>,
        name: Name<'_>,
        node: Arc<Node>,
        follow: bool,
        filter: &Filter,
    ) -> Result<Arc<SourceDir>> {
        let fail = |op: Op| move |e| Error::os(op, self.node.join(name), e);
        let dir = if follow {
            self.dir.open_dir_following(name).map_err(fail(Op::OpenDirectory))?
        } else {
            self.dir.open_dir_readable(name).map_err(fail(Op::OpenDirectory))?
        };
        let info = dir.info().map_err(fail(Op::Stat))?;
        let info = meant(self.privileged, Of::Handle(dir.as_fd()), info, || node.path())?;
        let mut ignores = self.ignores.clone();
        if filter.asks_tree() {
            ignores = filter.rules_in((&dir, &|| node.path()), node.names().len(), ignores.as_ref())?;
        }
        let is_same_device = info.dev == self.info.dev;
        let is_stamped_here = if is_same_device { self.is_stamped_here } else { stamps_by_our_clock(&dir) };
        Ok(Arc::new(SourceDir {
            dir,
            info,
            node,
            name: Some(name.to_owned()),
            above: Some(self.clone()),
            ignores,
            privileged: self.privileged,
            is_stamped_here,
        }))
    }

    /// Whether going in here again would go in circles: only possible where links are followed.
    pub(crate) fn is_own_ancestor(&self) -> bool {
        let mut at = self.above.as_ref();
        while let Some(up) = at {
            if up.info.id() == self.info.id() {
                return true;
            }
            at = up.above.as_ref();
        }
        false
    }

    /// The path below `self`, relative to the operand, for the filter: rules are about what is inside.
    fn relative(&self, below: &[&[u8]]) -> PathBuf {
        filter::relative(self.node.names().iter().map(|n| n.bytes()).chain(below.iter().copied()))
    }

    /// Whether the filter leaves `name` out, by what was seen of it: its [`Info`], or whether it is a directory, where its
    /// size is to decide nothing.
    pub(crate) fn excludes(&self, name: Name<'_>, seen: impl Into<Seen>, filter: &Filter) -> bool {
        self.excludes_below(&[name.bytes()], seen, filter)
    }

    /// The same of what these names lead to from here, by the rules that reign here.
    pub(crate) fn excludes_below(&self, below: &[&[u8]], seen: impl Into<Seen>, filter: &Filter) -> bool {
        !filter.is_empty() && filter.excludes(&self.relative(below), seen, self.ignores.as_ref())
    }

    /// What tells `name` in it from other sources.
    pub(crate) fn source<'n>(&self, name: Name<'n>) -> ((u64, u64), &'n [u8]) {
        (self.info.id(), name.bytes())
    }

    /// Opens a file to read and says what was got; one open, one fstat. Opening blocks on nothing, and what is not
    /// a regular file after all comes back as what it is.
    pub(crate) fn open_file(&self, name: Name<'_>, follow: bool) -> Result<(OwnedFd, Info)> {
        let fd = self.open(name, follow)?;
        let info = self.info_of(name, &fd)?;
        Ok((fd, info))
    }

    /// The same; what is small is read whole, if `small` has room for it.
    pub(crate) fn open_small<'b>(
        &self,
        name: Name<'_>,
        follow: bool,
        small: &mut SmallFiles<'b>,
    ) -> Result<(Opened<'b>, Info)> {
        let fd = self.open(name, follow)?;
        let before = if small.looks_before() { Some(self.info_of(name, &fd)?) } else { None };
        let read = small.read(&fd);
        let info = match before {
            Some(before) if read.is_none() => before,
            Some(before) => Info { atime: before.atime, ..self.info_of(name, &fd)? },
            None => self.info_of(name, &fd)?,
        };
        Ok((small.whole(fd, read, &info), info))
    }

    fn open(&self, name: Name<'_>, follow: bool) -> Result<OwnedFd> {
        let fd = if follow { self.dir.open_file_following(name) } else { self.dir.open_file(name) };
        fd.map_err(|e| Error::os(Op::Open, self.node.join(name), e))
    }

    fn info_of(&self, name: Name<'_>, fd: &OwnedFd) -> Result<Info> {
        let info = Info::of(fd).map_err(|e| Error::os(Op::Stat, self.node.join(name), e))?;
        meant(self.privileged, Of::Handle(fd.as_fd()), info, || self.node.join(name))
    }

    /// What a name is, through a link where `follow` says so.
    pub(crate) fn stat(&self, name: Name<'_>, follow: bool) -> Result<Info> {
        let got = if follow { self.dir.stat_following(name) } else { self.dir.stat(name) };
        let info = got.map_err(|e| Error::os(Op::Stat, self.node.join(name), e))?;
        // What a link leads to is nothing that such a copy follows.
        meant(self.privileged, Of::At(&self.dir, name), info, || self.node.join(name))
    }

    /// Where a symbolic link leads.
    pub(crate) fn read_link(&self, name: Name<'_>) -> Result<CString> {
        let target = match self.privileged {
            Privileged::Real => self.dir.read_link(name),
            Privileged::Held => held_stat::read_link(&self.dir, name),
        };
        target.map_err(|e| Error::os(Op::ReadLink, self.node.join(name), e))
    }
}

/// What something is meant to be that is really `info`.
fn meant(privileged: Privileged, of: Of<'_>, info: Info, shown: impl Fn() -> PathBuf) -> Result<Info> {
    if privileged == Privileged::Real {
        return Ok(info);
    }
    let fail = |e| Error::os(Op::ReadAttributesOf, shown(), e);
    let none = |why| Error::ours(Code::Unsupported, Op::ReadAttributesOf, shown(), why);
    let meant = held_stat::meant(of, info).map_err(fail)?.ok_or_else(|| none(Reason::HeldUnreadable))?;
    let holds = matches!(info.kind, Kind::File | Kind::Dir);
    match holds.then(|| held_stat::acls_are_readable(of, &meant)).transpose().map_err(fail)? {
        Some(false) => Err(none(Reason::HeldAclUnreadable)),
        Some(true) | None => Ok(meant),
    }
}
