//! Source directories that were announced, without keeping them open: found again below their operand's root, without
//! following links, and only if they are still the same.
//!
//! Must not know what is sent.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::node::Node;
use crate::policy::Privileged;
use crate::recent::Recent;
use crate::sender::filter::Ignores;
use crate::sender::walk::SourceDir;
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::meta::Info;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

/// Directories kept open at a time, beside the roots of operands that are under way.
const OPEN_MAX: usize = 16;
/// Bytes of a path given to the kernel at once.
const PATH_BYTES: usize = 4000;

/// What the receiver says of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DirReply {
    /// Nothing yet.
    Unknown = 0,
    /// It was there.
    There = 1,
    /// It is new.
    New = 2,
    /// It is not wanted.
    Refused = 3,
}

/// A source directory under the number it has on the wire.
pub(crate) struct AnnouncedDir {
    pub(crate) id: u64,
    /// The operand's directory, or the one that an operand is in.
    root: Arc<Dir>,
    /// Its name below the root.
    pub(crate) node: Arc<Node>,
    /// What it must be when it is found again.
    object: (u64, u64),
    pub(crate) ignores: Option<Arc<Ignores>>,
    /// Links below it are followed.
    pub(crate) follow: bool,
    /// The sizes that its file system tells of files say nothing (procfs, sysfs).
    pub(crate) size_unreliable: bool,
    /// It stands for one operand that is no directory: nothing ends it.
    pub(crate) single: bool,
    /// It is inside a directory that was new when this one was announced.
    inside_new: bool,
    reply: AtomicU8,
    /// Batches, names and directories of it that are still to be sent before its end can be told.
    pending: AtomicUsize,
    incomplete: AtomicBool,
    /// The device of the operand, for `-x`.
    pub(crate) dev: u64,
    /// The directories above and itself, where links may lead in a circle.
    pub(crate) line: Vec<(u64, u64)>,
    /// Where it has what only root can set.
    pub(crate) privileged: Privileged,
}

/// What is fixed about an announced directory from the beginning.
pub(crate) struct AnnouncedInit {
    pub(crate) id: u64,
    pub(crate) follow: bool,
    pub(crate) single: bool,
    pub(crate) inside_new: bool,
    pub(crate) dev: u64,
    pub(crate) line: Vec<(u64, u64)>,
}

impl AnnouncedDir {
    /// Of a directory that is open; with one thing pending, which is the walk through it.
    pub(crate) fn new(root: Arc<Dir>, src: &SourceDir, init: AnnouncedInit) -> Arc<AnnouncedDir> {
        Arc::new(AnnouncedDir {
            id: init.id,
            root,
            node: src.node.clone(),
            object: src.info.id(),
            ignores: src.ignores.clone(),
            follow: init.follow,
            // Only a hint: when it cannot be had, sizes are believed, and a file that is longer counts as changed.
            size_unreliable: fastcopy::meta::is_pseudo(&src.dir).unwrap_or(false),
            single: init.single,
            inside_new: init.inside_new,
            reply: AtomicU8::new(DirReply::Unknown as u8),
            pending: AtomicUsize::new(1),
            incomplete: AtomicBool::new(false),
            dev: init.dev,
            line: init.line,
            privileged: src.privileged,
        })
    }

    pub(crate) fn root(&self) -> &Arc<Dir> {
        &self.root
    }

    pub(crate) fn reply(&self) -> DirReply {
        match self.reply.load(Ordering::Acquire) {
            1 => DirReply::There,
            2 => DirReply::New,
            3 => DirReply::Refused,
            _ => DirReply::Unknown,
        }
    }

    pub(crate) fn set_reply(&self, reply: DirReply) {
        self.reply.store(reply as u8, Ordering::Release);
    }

    /// Whether everything in it is wanted: it is new, or below something new.
    pub(crate) fn is_new(&self) -> bool {
        match self.reply() {
            DirReply::New => true,
            DirReply::Unknown => self.inside_new,
            DirReply::There | DirReply::Refused => false,
        }
    }

    /// One thing more before it is at its end.
    pub(crate) fn hold(&self) {
        self.pending.fetch_add(1, Ordering::AcqRel);
    }

    /// One thing less; `true`: that was the last one.
    pub(crate) fn release(&self) -> bool {
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether this is the directory that was announced.
    pub(crate) fn is(&self, now: &Info) -> bool {
        now.id() == self.object
    }

    /// Something in it is not sent.
    pub(crate) fn mark_incomplete(&self) {
        self.incomplete.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::Relaxed)
    }
}

/// A few directories that were used last, open.
pub(crate) struct Handles(Recent<SourceDir>);

impl Handles {
    pub(crate) fn new() -> Handles {
        Handles(Recent::of_at_most(OPEN_MAX))
    }

    /// Keeps a directory that was just opened.
    pub(crate) fn keep(&self, place: &AnnouncedDir, dir: &Arc<SourceDir>) {
        self.0.keep(place.id, dir);
    }

    /// Closes what is not in use right now: descriptors have run out.
    pub(crate) fn clear(&self) {
        self.0.clear();
    }

    /// The directory, open.
    pub(crate) fn get(&self, place: &AnnouncedDir) -> Result<Arc<SourceDir>> {
        if let Some(dir) = self.0.get(place.id) {
            return Ok(dir);
        }
        let dir = match reopen(place) {
            Err(e) if e.code == Code::Limit => {
                self.clear();
                reopen(place)?
            }
            other => other?,
        };
        self.keep(place, &dir);
        Ok(dir)
    }
}

/// Walks from the root to a place. A link or another directory may have been put there meanwhile: the first is not
/// followed, the second is told apart by device and inode.
fn reopen(place: &AnnouncedDir) -> Result<Arc<SourceDir>> {
    let fail = |e| Error::os(Op::OpenDirectory, place.node.path(), e);
    let names = place.node.names();
    let mut dir = place.root.try_clone().map_err(fail)?;
    if place.follow {
        for name in names {
            dir = dir.open_dir_following(name.as_name()).map_err(fail)?;
        }
    } else {
        for path in paths(&names) {
            dir = dir.open_beneath(&path).map_err(fail)?;
        }
    }
    let info = dir.info().map_err(fail)?;
    if info.id() != place.object {
        let note = Reason::AnotherDirectoryThere;
        return Err(Error::ours(Code::SourceChanged, Op::OpenDirectory, place.node.path(), note));
    }
    let (node, ignores, privileged) = (place.node.clone(), place.ignores.clone(), place.privileged);
    // What is sent from a directory that was gone back to is read when it is sent.
    let (name, above, is_stamped_here) = (None, None, false);
    Ok(Arc::new(SourceDir { dir, info, node, name, above, ignores, privileged, is_stamped_here }))
}

/// Relative paths, each short enough for one call, that lead down these names.
fn paths(names: &[&NameBuf]) -> Vec<CString> {
    let mut paths = Vec::new();
    let mut path: Vec<u8> = Vec::new();
    for name in names {
        if !path.is_empty() && path.len() + 1 + name.bytes().len() > PATH_BYTES {
            paths.push(std::mem::take(&mut path));
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.bytes());
    }
    if !path.is_empty() {
        paths.push(path);
    }
    // A name holds no NUL, so no path is lost here.
    paths.into_iter().filter_map(|path| CString::new(path).ok()).collect()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // attackers work by path
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn place(at: &Path, names: &[&str]) -> Arc<AnnouncedDir> {
        let root = Arc::new(Dir::open(at).unwrap());
        let mut src = SourceDir::root(
            Dir::open(&names.iter().fold(at.to_owned(), |p, n| p.join(n))).unwrap(),
            Node::root(at),
        )
        .unwrap();
        let mut node = Node::root(at);
        for name in names {
            node = node.below(NameBuf::new(name.as_bytes()).unwrap().as_name());
        }
        Arc::get_mut(&mut src).unwrap().node = node;
        let init = AnnouncedInit {
            id: 1,
            follow: false,
            single: false,
            inside_new: false,
            dev: 0,
            line: Vec::new(),
        };
        AnnouncedDir::new(root, &src, init)
    }

    #[test]
    fn a_place_is_found_again_unless_something_else_is_there() {
        let t = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(t.path().join("a/b")).unwrap();
        std::fs::create_dir_all(t.path().join("else/b")).unwrap();
        let place = place(t.path(), &["a", "b"]);
        let handles = Handles::new();
        assert_eq!(handles.get(&place).unwrap().info.id(), place.object);
        // Another directory, a link to another, a link to the same, nothing.
        std::fs::rename(t.path().join("a"), t.path().join("moved")).unwrap();
        std::fs::create_dir_all(t.path().join("a/b")).unwrap();
        assert!(handles.get(&place).is_ok(), "still open, and still the same");
        handles.clear();
        assert_eq!(handles.get(&place).err().unwrap().code, Code::SourceChanged);
        std::fs::remove_dir_all(t.path().join("a")).unwrap();
        symlink("else", t.path().join("a")).unwrap();
        assert_eq!(handles.get(&place).err().unwrap().code, Code::Link);
        std::fs::remove_file(t.path().join("a")).unwrap();
        symlink("moved", t.path().join("a")).unwrap();
        assert_eq!(handles.get(&place).err().unwrap().code, Code::Link);
        std::fs::remove_file(t.path().join("a")).unwrap();
        assert_eq!(handles.get(&place).err().unwrap().code, Code::NotFound);
        // The honest twin: back again.
        std::fs::rename(t.path().join("moved"), t.path().join("a")).unwrap();
        assert!(handles.get(&place).is_ok());
    }

    #[test]
    fn paths_longer_than_the_kernel_takes_are_walked_in_parts() {
        let t = tempfile::tempdir().unwrap();
        let long = "n".repeat(250);
        let mut dir = Dir::open(t.path()).unwrap();
        let name = NameBuf::new(long.as_bytes()).unwrap();
        for _ in 0..40 {
            dir.make_dir(name.as_name(), 0o700).unwrap();
            dir = dir.open_dir(name.as_name()).unwrap();
        }
        let mut node = Node::root(t.path());
        for _ in 0..40 {
            node = node.below(name.as_name());
        }
        let mut src = SourceDir::root(dir, node.clone()).unwrap();
        Arc::get_mut(&mut src).unwrap().node = node;
        let init = AnnouncedInit {
            id: 1,
            follow: false,
            single: false,
            inside_new: false,
            dev: 0,
            line: Vec::new(),
        };
        let place = AnnouncedDir::new(Arc::new(Dir::open(t.path()).unwrap()), &src, init);
        assert_eq!(Handles::new().get(&place).unwrap().info.id(), src.info.id());
        let names: Vec<NameBuf> = (0..100).map(|_| name.clone()).collect();
        let names: Vec<&NameBuf> = names.iter().collect();
        assert!(paths(&names).iter().all(|p| p.count_bytes() <= PATH_BYTES));
        assert_eq!(
            paths(&names).iter().map(|p| p.to_bytes().split(|b| *b == b'/').count()).sum::<usize>(),
            100
        );
    }
}
