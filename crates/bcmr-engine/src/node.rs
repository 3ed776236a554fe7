//! Where something is, for people and for finding it again: a chain of names up to a root that was typed.
//!
//! Must not be used to open anything by its whole path: paths made here are shown, or walked one name at a time
//! below a handle.

use fastcopy::dir::{Name, NameBuf};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One directory on the way, or the root of it all.
#[derive(Debug)]
pub(crate) enum Node {
    /// What was typed.
    Root(PathBuf),
    /// A name below another node.
    Below(Arc<Node>, NameBuf),
}

/// A name as part of a path to show.
pub(crate) fn os(name: Name<'_>) -> &OsStr {
    OsStr::from_bytes(name.bytes())
}

/// The name that a path ends with; `None` for one that ends with `..`, and for `/`.
pub(crate) fn last_name(path: &Path) -> Option<NameBuf> {
    NameBuf::new(path.file_name()?.as_bytes())
}

impl Node {
    pub(crate) fn root(path: &Path) -> Arc<Node> {
        Arc::new(Node::Root(path.to_owned()))
    }

    pub(crate) fn below(self: &Arc<Node>, name: Name<'_>) -> Arc<Node> {
        Arc::new(Node::Below(self.clone(), name.to_owned()))
    }

    /// The whole path, for showing.
    pub(crate) fn path(&self) -> PathBuf {
        let mut names = Vec::new();
        let mut at = self;
        let mut path = loop {
            match at {
                Node::Root(path) => break path.clone(),
                Node::Below(up, name) => {
                    names.push(name);
                    at = up;
                }
            }
        };
        for name in names.iter().rev() {
            path.push(OsStr::from_bytes(name.bytes()));
        }
        path
    }

    /// The path of `name` in this directory, for showing.
    pub(crate) fn join(&self, name: Name<'_>) -> PathBuf {
        let mut path = self.path();
        path.push(os(name));
        path
    }

    /// The path below the root, of `name` in this where there is one.
    pub(crate) fn below_root(&self, name: Option<Name<'_>>) -> Vec<u8> {
        let names = self.names();
        let parts = names.iter().map(|n| n.bytes()).chain(name.iter().map(|name| name.bytes()));
        parts.collect::<Vec<&[u8]>>().join(&b'/')
    }

    /// The names below the root, outermost first.
    pub(crate) fn names(&self) -> Vec<&NameBuf> {
        let mut names = Vec::new();
        let mut at = self;
        while let Node::Below(up, name) = at {
            names.push(name);
            at = up;
        }
        names.reverse();
        names
    }
}

impl Drop for Node {
    /// A chain as long as a deep tree must not be dropped by recursion. Mostly what is above stays, and nothing is to be done.
    fn drop(&mut self) {
        let Node::Below(up, _) = self else { return };
        if Arc::get_mut(up).is_none() {
            return;
        }
        let mut next = std::mem::replace(up, Arc::new(Node::Root(PathBuf::new())));
        while let Some(Node::Below(up, _)) = Arc::get_mut(&mut next) {
            let above = std::mem::replace(up, Arc::new(Node::Root(PathBuf::new())));
            next = above;
        }
    }
}
