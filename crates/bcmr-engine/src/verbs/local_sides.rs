//! Both sides of one entry on this machine, read only as far as is asked. Must not know why.

use crate::disk::compare::{self, CompareRooms};
use crate::disk::sys::read_link_as;
use crate::disk::{Attributes, Fault, Side};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::node::os;
use crate::policy::{CopyPolicy, Privileged};
use crate::receiver::dir_task::Origin;
use crate::sender::walk::SourceDir;
use crate::tally::Tally;
use crate::verbs::entry_pair::{ContentCompare, attributes, carried, change};
use crate::verbs::rivals::EntryPaths;
use fastcopy::dir::{Dir, Name};
use fastcopy::meta::{Info, Kind};
use fastcopy::xattr::Of;
use std::cell::RefCell;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Two directories, of which attributes alone are compared.
pub(crate) struct TwoDirs<'s, S> {
    pub(crate) src: &'s S,
    /// Absent where the destination lacks the directory above it.
    pub(crate) there: Option<Of<'s>>,
    /// The destination's directory, or the one that it is in and its name there.
    pub(crate) dst: (&'s Path, Option<Name<'s>>),
}

impl<S: Origin> EntryPaths for TwoDirs<'_, S> {
    fn src_path(&self) -> PathBuf {
        self.src.node().path()
    }
    fn dst_path(&self) -> PathBuf {
        self.dst.1.map_or_else(|| self.dst.0.to_owned(), |name| self.dst.0.join(os(name)))
    }
}

impl<S: Origin> ContentCompare for TwoDirs<'_, S> {
    fn same_content(&self) -> Result<bool> {
        Ok(true)
    }
    fn same_target(&self) -> Result<bool> {
        Ok(true)
    }
    fn same_beginning(&self) -> Result<bool> {
        Ok(true)
    }
    fn attributes(&self, kind: Kind, policy: &CopyPolicy) -> Result<Option<Reason>> {
        let Some(there) = self.there else { return Ok(None) };
        let shown = || self.src_path();
        let source = match self.src.attributes() {
            Attributes::Dir(dir) => {
                attributes(Of::Handle(dir.as_fd()), shown, kind, policy, policy.preserve.at_source)?
            }
            Attributes::At(dir, name) => {
                attributes(Of::At(dir, name), shown, kind, policy, policy.preserve.at_source)?
            }
            Attributes::Carried(attrs) => carried(attrs),
        };
        change(there, || self.dst_path(), kind, policy, &source)
    }
}

/// Both sides of an entry, here.
pub(crate) struct LocalSides<'s> {
    pub(crate) src: &'s Arc<SourceDir>,
    pub(crate) name: Name<'s>,
    /// The destination's directory; absent when it is not there.
    pub(crate) dst: Option<&'s Dir>,
    pub(crate) dst_dir: &'s Path,
    pub(crate) to: Name<'s>,
    pub(crate) follow: bool,
    /// Where the destination has what only root can set.
    pub(crate) privileged: Privileged,
    pub(crate) tally: &'s Tally<'s>,
    pub(crate) rooms: RefCell<&'s mut CompareRooms>,
    /// How many threads may compare one large file.
    pub(crate) threads: &'s dyn Fn() -> usize,
}

impl LocalSides<'_> {
    fn told(&self, fault: Fault) -> Error {
        fault.told(|| self.src_path(), || self.dst_path())
    }
}

impl EntryPaths for LocalSides<'_> {
    fn src_path(&self) -> PathBuf {
        self.src.node.join(self.name)
    }
    fn dst_path(&self) -> PathBuf {
        self.dst_dir.join(os(self.to))
    }
}

impl ContentCompare for LocalSides<'_> {
    fn same_content(&self) -> Result<bool> {
        let Some(dir) = self.dst else { return Ok(true) };
        let (ours, info) = self.src.open_file(self.name, self.follow)?;
        let theirs = dir.open_file(self.to).map_err(|e| Error::os(Op::Open, self.dst_path(), e))?;
        let there = Info::of(&theirs).map_err(|e| Error::os(Op::Stat, self.dst_path(), e))?;
        // A FIFO put in the file's place would give nothing for ever.
        let not_file = match (info.kind, there.kind) {
            (Kind::File, Kind::File) => None,
            (Kind::File, _) => Some(self.dst_path()),
            _ => Some(self.src_path()),
        };
        if let Some(path) = not_file {
            return Err(Error::ours(Code::SourceChanged, Op::Read, path, Reason::NoRegularFileAnyMore));
        }
        let (done, tally) = (&self.tally.watch.progress.bytes_done, self.tally);
        let go_on = |bytes: u64| {
            done.fetch_add(bytes, Ordering::Relaxed);
            !tally.cancelled()
        };
        let rooms = &mut **self.rooms.borrow_mut();
        compare::same_content(&ours, &theirs, info.size, rooms, self.threads, &go_on)
            .map_err(|f| self.told(f))
    }
    fn same_beginning(&self) -> Result<bool> {
        let Some(dir) = self.dst else { return Ok(true) };
        let (src, _) = self.src.open_file(self.name, self.follow)?;
        let failed = |e| Error::os(Op::Read, self.dst_path(), e);
        let there = dir.open_file(self.to).map_err(failed)?;
        let size = Info::of(&there).map_err(failed)?.size;
        let read = |at: u64, room: &mut [u8]| {
            fastcopy::read_write::read_full(&src, at, room).map_err(|e| Fault::os(Side::Source, Op::Read, e))
        };
        let go_on = || !self.tally.cancelled();
        compare::is_same(&there, 0, size, &read, &go_on).map_err(|f| self.told(f))
    }
    fn attributes(&self, kind: Kind, policy: &CopyPolicy) -> Result<Option<Reason>> {
        let Some(dir) = self.dst else { return Ok(None) };
        let read = |of| attributes(of, || self.src_path(), kind, policy, policy.preserve.at_source);
        // Those of a link that is followed are not copied.
        let source = match (self.follow, kind) {
            (true, Kind::File) => read(Of::Handle(self.src.open_file(self.name, true)?.0.as_fd()))?,
            (true, Kind::Dir) => {
                let opened = self.src.dir.open_dir_following(self.name);
                let opened = opened.map_err(|e| Error::os(Op::OpenDirectory, self.src_path(), e))?;
                read(Of::Handle(opened.as_fd()))?
            }
            _ => read(Of::At(&self.src.dir, self.name))?,
        };
        change(Of::At(dir, self.to), || self.dst_path(), kind, policy, &source)
    }
    fn same_target(&self) -> Result<bool> {
        let Some(dir) = self.dst else { return Ok(true) };
        let ours = self.src.read_link(self.name)?;
        let theirs = read_link_as(self.privileged, dir, self.to)
            .map_err(|e| Error::os(Op::ReadLink, self.dst_path(), e))?;
        Ok(ours == theirs)
    }
}
