//! What a tree comes to: the hash over all of it, and the list of hashes of its files.
//!
//! Must not know where the tree is, nor who says what is in it.

use super::folder::{MANIFEST, PlanFolder};
use super::format::{Digest, kind_byte};
use crate::error::Result;
use crate::tally::Tally;
use crate::verbs::manifest::Manifest;
use fastcopy::dir::Name;
use fastcopy::meta::Kind;
use std::path::{Path, PathBuf};

/// Both, as far as they have come. Entries come in the order of the plan.
pub(super) struct TreeSums {
    root: blake3::Hasher,
    manifest: Option<Manifest>,
    /// Room for what goes into them.
    room: Vec<u8>,
}

impl TreeSums {
    /// Begins both, of what becomes `dst`; without a list where none is wanted.
    ///
    /// # Errors
    /// The list cannot be written.
    pub(super) fn begin(folder: &PlanFolder, dst: &Path, listed: bool) -> Result<TreeSums> {
        let begin = || Manifest::begin(&folder.path.join(MANIFEST), Some(dst.to_owned()));
        let manifest = if listed { Some(begin()?) } else { None };
        Ok(TreeSums { root: blake3::Hasher::new(), manifest, room: Vec::new() })
    }

    /// The next entry.
    pub(super) fn entry(&mut self, kind: Kind, path: &[u8], name: Name<'_>) {
        self.room.clear();
        self.room.push(kind_byte(kind));
        self.room.extend_from_slice(&((path.len() + 1 + name.bytes().len()) as u32).to_le_bytes());
        for part in [path, b"/", name.bytes()] {
            self.room.extend_from_slice(part);
        }
        self.root.update(&self.room);
    }

    /// It is a further name of this one.
    pub(super) fn first(&mut self, first: &[u8]) {
        self.root.update(first);
    }

    /// It is a symbolic link that says so.
    pub(super) fn target(&mut self, target: &[u8]) {
        self.root.update(&(target.len() as u32).to_le_bytes());
        self.root.update(target);
    }

    /// It is a file with this hash, and shown as `shown`.
    pub(super) fn file(
        &mut self,
        (path, name): (&[u8], Name<'_>),
        hash: &Digest,
        tally: &Tally<'_>,
        shown: impl Fn() -> PathBuf,
    ) {
        self.root.update(hash);
        let Some(manifest) = &self.manifest else { return };
        self.room.clear();
        if !path.is_empty() {
            self.room.extend_from_slice(path);
            self.room.push(b'/');
        }
        self.room.extend_from_slice(name.bytes());
        if let Err(e) = manifest.add_below(&self.room, hash, shown) {
            tally.lost(e);
        }
    }

    /// The hash; the list gets its name where all is `well`.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn end(self, well: bool) -> Result<Digest> {
        self.manifest.map_or(Ok(()), |manifest| manifest.end(well))?;
        Ok(*self.root.finalize().as_bytes())
    }
}
