//! What the two sides of a difference are like, as a hash: two looks that come to the same one have seen the same kinds, modes and
//! owners, the same sizes and times of what is no directory, and the same names below what comes or goes as a whole.
//!
//! Must not know where the two sides are, nor what is done about a difference.

use fastcopy::meta::{Info, Kind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The hash of both sides.
pub(crate) type Alike = [u8; 32];

/// Adds what is known of one entry; of a directory neither its size nor its time, which follow from what is in it.
fn describe(info: &Info, hasher: &mut blake3::Hasher) {
    let is_dir = info.kind == Kind::Dir;
    let (size, time) = if is_dir { (0, (0, 0)) } else { (info.size, (info.mtime.sec, info.mtime.nsec)) };
    let (kind, rdev) = (info.kind.word(), info.rdev);
    let owner = format!("{:o}\0{}\0{}", info.mode, info.uid, info.gid);
    hasher.update(format!("{kind}\0{owner}\0{rdev}\0{size}\0{}.{}\0", time.0, time.1).as_bytes());
}

fn both(source: impl FnOnce(&mut blake3::Hasher), there: impl FnOnce(&mut blake3::Hasher)) -> Alike {
    let mut hasher = blake3::Hasher::new();
    source(&mut hasher);
    hasher.update(b"\0");
    there(&mut hasher);
    *hasher.finalize().as_bytes()
}

/// Of an entry, and what has its name at the destination.
pub(crate) fn of_pair(source: &Info, there: Option<&Info>) -> Alike {
    both(|hasher| describe(source, hasher), |hasher| there.iter().for_each(|there| describe(there, hasher)))
}

/// A tree that is on one side only, whose names are met in any order and by several workers.
#[derive(Default)]
pub(crate) struct AlikeTree([AtomicU64; 4]);

impl AlikeTree {
    /// It has this at `path` below its top.
    pub(crate) fn add(&self, path: &Path, info: &Info) {
        let mut hasher = blake3::Hasher::new();
        describe(info, &mut hasher);
        hasher.update(path.as_os_str().as_bytes());
        let hash = hasher.finalize();
        let (words, _) = hash.as_bytes().as_chunks();
        // No two have one path, so a sum says the same as a list in order.
        for (lane, word) in self.0.iter().zip(words) {
            lane.fetch_add(u64::from_le_bytes(*word), Relaxed);
        }
    }

    fn describe(&self, hasher: &mut blake3::Hasher) {
        for lane in &self.0 {
            hasher.update(&lane.load(Relaxed).to_le_bytes());
        }
    }

    /// The source has it, and the destination nothing, or something that is no directory.
    pub(crate) fn comes(&self, there: Option<&Info>) -> Alike {
        both(|hasher| self.describe(hasher), |hasher| there.iter().for_each(|there| describe(there, hasher)))
    }

    /// The destination has it, and nothing is at the source.
    pub(crate) fn goes(&self) -> Alike {
        both(|_| (), |hasher| self.describe(hasher))
    }
}
