//! What a server remembers of the blocks that landed with it, so that they need not travel twice.
//!
//! Must not know the wire, nor who asks. A block is remembered where it landed, and nothing is written twice unless there
//! is room for blocks of the store's own, which outlive the file (docs/decisions/0005-store-by-reference.md). Everything
//! here is a hint: a block is hashed each time it is taken, and what is wrong, short, swapped or gone is *missing*, never
//! an error of the copy.

#[cfg(fuzzing)]
pub mod fuzz;
mod index;
mod shelf;
mod tests;

use crate::blocks::{BLOCK_BYTES, Cv, PIECE_BYTES, values_of};
use crate::stem::stem_of;
use blake3::hazmat::HasherExt;
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use fastcopy::process::effective_user;
use fastcopy::read_write::read_append;
use index::{Key, Likeness, PATH_BYTES_MAX, Record};
use shelf::{Blobs, Shelf, Writer};
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How long opening the store may wait for another process: it holds the lock for milliseconds, or it was stopped.
const OPEN_PATIENCE: Duration = Duration::from_secs(1);
/// How long remembering may wait, at the end of a file.
const REMEMBER_PATIENCE: Duration = Duration::from_millis(200);
/// How long a question may wait; afterwards it is answered from what is known.
const FIND_PATIENCE: Duration = Duration::from_millis(5);
/// Landed files open at a time for blocks that were found; more are missing.
const OPEN_FILES_MAX: usize = 128;
/// Blocks added while the lock is held once.
const BLOCKS_AT_ONCE: usize = 512;
/// Uses and losses that are written together.
const PENDING_SOFT_MAX: usize = 64;
/// Uses and losses kept when they cannot be written.
const PENDING_HARD_MAX: usize = 1024;

/// A block of a file: its chaining value, and where it is in the file.
///
/// The value depends on the place (BLAKE3 counts its chunks from the beginning of the file), and so does what is
/// remembered: it serves the same place of another file or of a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) cv: Cv,
    /// Offset in the file, in bytes; a multiple of [`BLOCK_BYTES`].
    pub(crate) at: u64,
    /// Bytes, 1 to [`BLOCK_BYTES`].
    pub(crate) len: u64,
}

/// Where a file came from, as the one who sent it said: which machine, and its path there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CameFrom {
    pub(crate) machine: u64,
    pub(crate) path: PathBuf,
}

/// A block that was found: its file is open, so that neither eviction nor a rename nor a removal takes it away.
#[derive(Debug)]
pub(crate) struct Pinned {
    file: Arc<OwnedFd>,
    key: Key,
    block: Block,
    held_in: HeldIn,
}

/// Which file has the bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldIn {
    /// A landed file, at the block's own offset.
    LandedFile,
    /// A file of the store that holds nothing else.
    Store,
}

/// The store, for one user and one root.
#[derive(Debug)]
pub(crate) struct Store {
    root: Dir,
    /// Where the root is, for paths that begin with it.
    root_path: Option<PathBuf>,
    cap_bytes: u64,
    /// Blocks that it has itself, and how many bytes of them it may have.
    blobs: Option<(Blobs, u64)>,
    /// Hashes of blocks are keyed with it.
    scope: [u8; 32],
    /// Bytes of blocks that were taken.
    taken_bytes: AtomicU64,
    state: Mutex<StoreState>,
}

#[derive(Debug)]
struct StoreState {
    shelf: Shelf,
    /// To be written with the next record.
    pending: Vec<Deferred>,
    /// Landed files that are open, because some block in them is pinned.
    open: HashMap<Arc<[u8]>, (Likeness, Weak<OwnedFd>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deferred {
    Used(Key),
    Forget(Key),
    Drop(Key),
}

/// Makes a directory of this user's alone, where it is not there yet: the store's, or another of its kind.
///
/// # Errors
/// As [`Store::open`] for the directory.
pub(crate) fn settle_in(path: &Path) -> io::Result<()> {
    shelf::private_dir(path).map(drop)
}

fn evict(writer: &mut Writer<'_>, enough: impl Fn(&index::View) -> bool) -> bool {
    while !enough(writer.view()) {
        let Some(key) = writer.view().oldest() else { return false };
        writer.push(&Record::Forget { key });
    }
    true
}

/// Removes the blocks that the store has itself, oldest use first, until there is `enough` room.
fn evict_kept(writer: &mut Writer<'_>, blobs: &Blobs, enough: impl Fn(&index::View) -> bool) {
    while !enough(writer.view()) {
        let Some(key) = writer.view().oldest_kept() else { return };
        // The file first: a record without one is found out, a file without one would stay for ever.
        blobs.remove(&key);
        writer.push(&Record::Drop { key });
    }
}

impl StoreState {
    /// Brings what is known and what is written together, and lets `write` add to it; `false` when that could not be
    /// done, which costs hits only.
    fn settle(&mut self, patience: Duration, cap_bytes: u64, write: impl FnOnce(&mut Writer<'_>)) -> bool {
        let pending = &self.pending;
        let done = self.shelf.update(patience, |writer| {
            for one in pending {
                match *one {
                    Deferred::Used(key) => writer.push(&Record::Used { key }),
                    Deferred::Forget(key) => writer.push(&Record::Forget { key }),
                    Deferred::Drop(key) => writer.push(&Record::Drop { key }),
                }
            }
            // Another process may have had a higher cap.
            evict(writer, |view| view.bytes() <= cap_bytes);
            write(writer);
        });
        if done.is_ok() || self.pending.len() >= PENDING_HARD_MAX {
            self.pending.clear();
        }
        done.is_ok()
    }
}

impl Store {
    /// Opens the store in `dir`, or makes it. At most `cap_bytes` of blocks are remembered, 0: no such bound.
    /// `keep_bytes` of them it may have itself, beyond the landed files that they are in; 0: none.
    /// `scope` tells roots apart; what one scope remembers, no other is told. Landed files are looked for below
    /// `root`.
    ///
    /// # Errors
    /// The directory cannot be made or belongs to another user or is open to others; its files cannot be made or
    /// locked. The caller goes on without a store and says so.
    pub(crate) fn open(
        dir: &Path,
        cap_bytes: u64,
        keep_bytes: u64,
        scope: &[u8],
        root: Dir,
    ) -> io::Result<Store> {
        let (mut shelf, secret) = Shelf::open(dir, OPEN_PATIENCE)?;
        let cap_bytes = if cap_bytes == 0 { u64::MAX } else { cap_bytes };
        // Without them the rest works as well.
        let blobs = Blobs::open(dir, keep_bytes > 0).ok().flatten();
        shelf.update(OPEN_PATIENCE, |writer| {
            evict(writer, |view| view.bytes() <= cap_bytes);
            let Some(blobs) = &blobs else { return };
            evict_kept(writer, blobs, |view| view.kept_bytes() <= keep_bytes);
            // After a power cut the index may say less than it did. One listing and no look at a file; what cannot be
            // removed now is only room that is taken.
            let view = writer.view();
            drop(blobs.sweep(|key| view.kept(key).is_some()));
        })?;
        let blobs = blobs.map(|blobs| (blobs, keep_bytes));
        let mut hasher = blake3::Hasher::new_keyed(&blake3::derive_key("bcmr 1 store scope", &secret));
        hasher.update(&effective_user().to_le_bytes());
        hasher.update(scope);
        let scope = *hasher.finalize().as_bytes();
        // Where it cannot be told, only relative paths are remembered.
        let root_path = root.whereabouts();
        let state = StoreState { shelf, pending: Vec::new(), open: HashMap::new() };
        Ok(Store {
            root,
            root_path: root_path.ok(),
            cap_bytes,
            blobs,
            scope,
            taken_bytes: AtomicU64::new(0),
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, block: &Block) -> Key {
        let mut hasher = blake3::Hasher::new_keyed(&self.scope);
        hasher.update(&block.cv);
        hasher.update(&block.len.to_le_bytes());
        *hasher.finalize().as_bytes()
    }

    /// What a block is called that the store has itself: its place is in it too, so that one that is claimed for another
    /// place is not found.
    fn kept_key(&self, block: &Block) -> Key {
        let mut hasher = blake3::Hasher::new_keyed(&self.scope);
        hasher.update(b"kept");
        hasher.update(&block.cv);
        hasher.update(&block.len.to_le_bytes());
        hasher.update(&block.at.to_le_bytes());
        *hasher.finalize().as_bytes()
    }

    /// What the file that came from a source is called. It is made of more bytes than other keys, or fewer, so that no sender can name
    /// a block that has the same one.
    fn source_key(&self, source: &CameFrom) -> Key {
        let mut hasher = blake3::Hasher::new_keyed(&self.scope);
        hasher.update(b"source");
        hasher.update(&source.machine.to_le_bytes());
        hasher.update(blake3::hash(source.path.as_os_str().as_bytes()).as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// What the file is called that came last from a source of nearly this name, on the same machine. `None`: the name says nothing.
    fn stem_key(&self, source: &CameFrom) -> Option<Key> {
        let stem = stem_of(source.path.file_name()?.as_bytes())?;
        let mut hasher = blake3::Hasher::new_keyed(&self.scope);
        hasher.update(b"stem");
        hasher.update(&source.machine.to_le_bytes());
        hasher.update(blake3::hash(&stem).as_bytes());
        Some(*hasher.finalize().as_bytes())
    }

    /// What a file from a source is called that is made of these blocks.
    fn content_key(&self, values: &[Cv]) -> Key {
        let mut hasher = blake3::Hasher::new_keyed(&self.scope);
        hasher.update(b"content");
        hasher.update(&(values.len() as u64).to_le_bytes());
        for cv in values {
            hasher.update(cv);
        }
        *hasher.finalize().as_bytes()
    }

    /// Whether all of a file that was found by its source is what landed: every byte is read and compared.
    pub(crate) fn is_what_landed(&self, file: &Arc<OwnedFd>) -> bool {
        let Some(values) = values_of(file) else { return false };
        self.landed_file(self.content_key(&values), 0).is_some_and(|landed| Arc::ptr_eq(&landed, file))
    }

    /// The file that landed last from a source, if it is still as it landed. What it contains now is not looked at.
    pub(crate) fn landed_from(&self, source: &CameFrom) -> Option<Arc<OwnedFd>> {
        self.landed_as(self.source_key(source))
    }

    /// The file that landed last from a source on the same machine whose name differs in digits and punctuation at most.
    pub(crate) fn landed_like(&self, source: &CameFrom) -> Option<Arc<OwnedFd>> {
        self.landed_as(self.stem_key(source)?)
    }

    fn landed_as(&self, key: Key) -> Option<Arc<OwnedFd>> {
        let file = self.landed_file(key, 0)?;
        self.later(&mut self.state(), Deferred::Used(key));
        Some(file)
    }

    /// Looks for a block: no bytes of it are read. What is found may still turn out to be wrong when it is taken.
    pub(crate) fn find(&self, block: &Block) -> Option<Pinned> {
        self.find_landed(block).or_else(|| self.find_kept(block))
    }

    fn find_kept(&self, block: &Block) -> Option<Pinned> {
        let (blobs, _) = self.blobs.as_ref()?;
        let key = self.kept_key(block);
        let mut state = self.state();
        if state.pending.contains(&Deferred::Drop(key)) {
            return None;
        }
        state.shelf.view().kept(&key).filter(|len| *len == block.len)?;
        match blobs.find(&key, block.len) {
            Ok(fd) => Some(Pinned { file: Arc::new(fd), key, block: *block, held_in: HeldIn::Store }),
            // C4: one that is not there whole is missing, and another may take its place.
            Err(_) => {
                blobs.remove(&key);
                self.later(&mut state, Deferred::Drop(key));
                None
            }
        }
    }

    fn find_landed(&self, block: &Block) -> Option<Pinned> {
        let key = self.key(block);
        let file = self.landed_file(key, block.at)?;
        Some(Pinned { file, key, block: *block, held_in: HeldIn::LandedFile })
    }

    /// The file that something is remembered in, and at this place of it.
    fn landed_file(&self, key: Key, block_at: u64) -> Option<Arc<OwnedFd>> {
        let mut state = self.state();
        if !state.shelf.is_fresh() {
            state.settle(FIND_PATIENCE, self.cap_bytes, |_| {});
        }
        if state.pending.contains(&Deferred::Forget(key)) {
            return None;
        }
        let (landed, at) = state.shelf.view().place(&key)?;
        let (likeness, path) = (landed.likeness, Arc::clone(&landed.path));
        // Who claims the value of one place for another would get a file that no hash fits.
        if at != block_at {
            return None;
        }
        if let Some((known, file)) = state.open.get(&path)
            && *known == likeness
            && let Some(file) = file.upgrade()
            && Info::of(&*file).is_ok_and(|now| Likeness::of(&now) == likeness)
        {
            return Some(file);
        }
        if state.open.len() >= OPEN_FILES_MAX {
            state.open.retain(|_, (_, file)| file.strong_count() > 0);
            if state.open.len() >= OPEN_FILES_MAX {
                return None;
            }
        }
        match self.open_landed(&path) {
            Ok((fd, info)) if Likeness::of(&info) == likeness => {
                let file = Arc::new(fd);
                state.open.insert(path, (likeness, Arc::downgrade(&file)));
                Some(file)
            }
            // Out of descriptors or memory: that says nothing about the block.
            Err(e)
                if [errno::EMFILE, errno::ENFILE, errno::ENOMEM]
                    .iter()
                    .any(|n| e.raw_os_error() == Some(*n)) =>
            {
                None
            }
            _ => {
                self.later(&mut state, Deferred::Forget(key));
                None
            }
        }
    }

    /// Reads a block once, and compares what was read with its chaining value and with the client's proof that it has
    /// the block: `tag` is its BLAKE3 keyed with `nonce`. `None`: the block cannot be had, or is not shown to be known.
    pub(crate) fn take(&self, pinned: &Pinned, nonce: &[u8; 32], tag: &[u8; 32]) -> Option<Vec<u8>> {
        let bytes = usize::try_from(pinned.block.len).ok()?;
        let mut value = blake3::Hasher::new();
        value.set_input_offset(pinned.block.at);
        let mut proof = blake3::Hasher::new_keyed(nonce);
        let at = if pinned.held_in == HeldIn::Store { 0 } else { pinned.block.at };
        let mut content = Vec::with_capacity(bytes);
        // Both hashes go over a piece while it is in the cache.
        while content.len() < bytes {
            let before = content.len();
            let want = PIECE_BYTES.min(bytes - before);
            if !read_append(&*pinned.file, at + before as u64, want, &mut content).is_ok_and(|n| n == want) {
                self.wrong(pinned);
                return None;
            }
            let piece = content.get(before..).unwrap_or_default();
            value.update(piece);
            proof.update(piece);
        }
        // The value first: bytes that were not asked for must not decide whether the proof holds.
        if value.finalize_non_root() != pinned.block.cv {
            self.wrong(pinned);
            return None;
        }
        // The block is right and the client has not shown that it has it: it stays, and it is not handed out. The
        // comparison of `Hash` takes the same time wherever the difference is.
        if proof.finalize() != blake3::Hash::from_bytes(*tag) {
            return None;
        }
        self.later(&mut self.state(), Deferred::Used(pinned.key));
        self.taken_bytes.fetch_add(pinned.block.len, Relaxed);
        Some(content)
    }

    /// Bytes of the blocks that were taken since the store was opened.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Relaxed)
    }

    /// Forgets a block that turned out to be wrong.
    fn wrong(&self, pinned: &Pinned) {
        let wrong = match (pinned.held_in, &self.blobs) {
            (HeldIn::Store, Some((blobs, _))) => {
                blobs.remove(&pinned.key);
                Deferred::Drop(pinned.key)
            }
            _ => Deferred::Forget(pinned.key),
        };
        self.later(&mut self.state(), wrong);
    }

    fn later(&self, state: &mut StoreState, what: Deferred) {
        state.pending.push(what);
        if state.pending.len() >= PENDING_SOFT_MAX {
            state.settle(Duration::ZERO, self.cap_bytes, |_| {});
        }
    }

    /// Remembers blocks of a file that has just landed at `path`: below the root, or absolute and without links on the
    /// way. What cannot be opened again that way, or is not a regular file of this user, is not remembered.
    pub(crate) fn remember(&self, path: &Path, blocks: &[Block], source: Option<&CameFrom>) {
        let Some(path) = self.relative(path) else { return };
        let Ok((landed, info)) = self.open_landed(&path) else { return };
        let likeness = Likeness::of(&info);
        let fits = |block: &&Block| {
            (1..=BLOCK_BYTES.min(self.cap_bytes)).contains(&block.len)
                && block.at.is_multiple_of(BLOCK_BYTES)
                && block.at.checked_add(block.len).is_some_and(|end| end <= info.size)
        };
        let whole: Vec<Cv> = blocks.iter().map(|block| block.cv).collect();
        let mut files = source.map(|source| {
            let own = [self.content_key(&whole), self.source_key(source)];
            own.into_iter().chain(self.stem_key(source))
        });
        let fitting = blocks.iter().filter(fits);
        self.keep(&landed, fitting.clone());
        let mut blocks = fitting.peekable();
        while blocks.peek().is_some() {
            let some: Vec<&Block> = blocks.by_ref().take(BLOCKS_AT_ONCE).collect();
            // As a block of one byte, so that it is found, used and evicted as they are; behind them, so that it is not the first
            // to go.
            let of_file = files.take_if(|_| blocks.peek().is_none());
            let some = some.into_iter().map(|block| (self.key(block), block.at, block.len));
            let some = some.chain(of_file.into_iter().flatten().map(|key| (key, 0, 1)));
            let written = self.state().settle(REMEMBER_PATIENCE, self.cap_bytes, |writer| {
                let file = writer.view().next_file();
                writer.push(&Record::File { likeness, path: &path });
                for (key, at, len) in some {
                    if writer.view().place(&key).is_some() {
                        writer.push(&Record::Forget { key });
                    }
                    // Room first: so the cap holds after every single record.
                    if evict(writer, |view| view.has_room(len, path.len(), self.cap_bytes)) {
                        writer.push(&Record::Block { key, file, at, len: len as u32 });
                    }
                }
            });
            if !written {
                return;
            }
        }
    }

    /// Keeps blocks of a landed file beyond its removal: each is promised in the index, copied, and then given its name. So
    /// no file is ever there that the index does not count.
    fn keep<'b>(&self, landed: &OwnedFd, blocks: impl Iterator<Item = &'b Block>) {
        let Some((blobs, keep_bytes)) = self.blobs.as_ref().filter(|(_, keep)| *keep > 0) else { return };
        let mut wanted = Vec::new();
        let promised = self.state().settle(REMEMBER_PATIENCE, self.cap_bytes, |writer| {
            for block in blocks.filter(|block| block.len <= *keep_bytes) {
                let key = self.kept_key(block);
                if writer.view().kept(&key).is_some() {
                    writer.push(&Record::Used { key });
                    if blobs.find(&key, block.len).is_ok() {
                        continue;
                    }
                } else {
                    let room = keep_bytes - block.len;
                    evict_kept(writer, blobs, |view| view.kept_bytes() <= room && !view.keeps_most());
                    writer.push(&Record::Keep { key, len: block.len as u32 });
                }
                wanted.push((key, *block));
            }
        });
        if !promised || wanted.is_empty() {
            return;
        }
        let copy = |(key, block): &(Key, Block)| match blobs.copy(key, landed, block.at, block.len) {
            // Another process is at the same block: it is that one's.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
            done => Some((*key, done.is_ok())),
        };
        let copied: Vec<(Key, bool)> = wanted.iter().filter_map(copy).collect();
        self.state().settle(REMEMBER_PATIENCE, self.cap_bytes, |writer| {
            for (key, whole) in &copied {
                // Evicted meanwhile, or not copied whole.
                if writer.view().kept(key).is_none() {
                    blobs.remove(key);
                } else if !whole || blobs.publish(key).is_err() {
                    blobs.remove(key);
                    writer.push(&Record::Drop { key: *key });
                }
            }
        });
    }

    /// Bytes of the blocks that are remembered, by this and by any other process.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        let mut state = self.state();
        if !state.shelf.is_fresh() {
            state.settle(REMEMBER_PATIENCE, self.cap_bytes, |_| {});
        }
        state.shelf.view().bytes()
    }

    /// Writes down which blocks were used and which were lost; at the end of a transfer.
    pub(crate) fn flush(&self) {
        let mut state = self.state();
        if !state.pending.is_empty() {
            state.settle(REMEMBER_PATIENCE, self.cap_bytes, |_| {});
        }
    }

    /// `path` below the root, as plain names.
    fn relative(&self, path: &Path) -> Option<Vec<u8>> {
        let path = match &self.root_path {
            Some(root) if path.is_absolute() => path.strip_prefix(root).ok()?,
            _ => path,
        };
        let mut out: Vec<u8> = Vec::new();
        for part in path.components() {
            match part {
                Component::CurDir => continue,
                Component::Normal(name) => {
                    if !out.is_empty() {
                        out.push(b'/');
                    }
                    out.extend_from_slice(name.as_bytes());
                }
                _ => return None,
            }
        }
        (!out.is_empty() && out.len() <= PATH_BYTES_MAX && !out.contains(&0)).then_some(out)
    }

    /// A landed file: below the root, through no link, without waiting, regular, ours.
    fn open_landed(&self, path: &[u8]) -> io::Result<(OwnedFd, Info)> {
        let bad = || io::Error::from(io::ErrorKind::InvalidInput);
        let (above, last) = match path.iter().rposition(|b| *b == b'/') {
            Some(slash) => {
                let (above, last) = path.split_at(slash);
                let above = CString::new(above).map_err(|_| bad())?;
                (Some(self.root.open_beneath(&above)?), last.split_at(1).1)
            }
            None => (None, path),
        };
        let last = NameBuf::new(last).ok_or_else(bad)?;
        let fd = above.as_ref().unwrap_or(&self.root).open_file(last.as_name())?;
        let info = Info::of(&fd)?;
        if info.kind != Kind::File || info.uid != effective_user() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok((fd, info))
    }
}
