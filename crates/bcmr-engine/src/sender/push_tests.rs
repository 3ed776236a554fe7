//! Sending against a receiver that lives in the test: it keeps books, answers by a script, and breaks the rules where it
//! is told to. Streams are queues in memory, read in an order drawn by lot.

#![cfg(test)]

use crate::blocks::{BLOCK_BYTES, WIRE_PIECE_BYTES};
use crate::codec::{InFrame, Unpacker};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::Cancel;
use crate::policy::*;
use crate::pulse::Pulse;
use crate::remote::Compress;
use crate::sender::announce::{Extent, ToSend};
use crate::sender::operand::{Reach, Source, source};
use crate::sender::out::{Counted, Fed, Feed, FilePart, Out, SendObserver};
use crate::sender::push::push;
use crate::sender::sending::{How, Links, Push, Sending};
use crate::sender::walk::SourceDir;
use bcmr_wire::contents::{self, Item};
use bcmr_wire::limits::{BATCHES_OUT_MAX, DIRS_OUT_MAX, OFFERS_OUT_MAX};
use bcmr_wire::message::*;
use bcmr_wire::window::Taker;
use bcmr_wire::{frame, limits};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

// ---- the streams ----

#[derive(Default)]
struct Queues {
    lanes: Vec<VecDeque<Vec<u8>>>,
    ended: bool,
}

struct Net {
    queues: Mutex<Queues>,
    change: Condvar,
}

struct Lane<'n> {
    net: &'n Net,
    index: usize,
    /// The first frame of this type is a panic of who sends it.
    panics_at: Option<(u8, &'n AtomicBool)>,
}

impl Out for Lane<'_> {
    fn send(&self, frames: Vec<u8>) -> Result<()> {
        if let Some((kind, panicked)) = self.panics_at
            && frames.get(limits::HEADER_BYTES - 1) == Some(&kind)
        {
            panicked.store(true, Relaxed);
            panic!("planted");
        }
        let mut queues = self.net.queues.lock().unwrap();
        while queues.lanes[self.index].len() >= 4 && !queues.ended {
            queues = self.net.change.wait(queues).unwrap();
        }
        if queues.ended {
            return Err(Error::ours(Code::Io, Op::Send, "", Reason::NoStream));
        }
        queues.lanes[self.index].push_back(frames);
        self.net.change.notify_all();
        Ok(())
    }
    fn send_first(&self, frames: Vec<u8>) -> Result<()> {
        self.net.queues.lock().unwrap().lanes[self.index].push_front(frames);
        self.net.change.notify_all();
        Ok(())
    }
    fn give_up(&self) {}
    fn send_file(&self, part: FilePart) -> Result<()> {
        let mut frame = part.head;
        let mut body = vec![0; part.bytes as usize];
        let file = std::fs::File::from(part.file.try_clone().unwrap());
        if let Err(e) = file.read_exact_at(&mut body, part.at) {
            let _first = part.fault.set(e);
        }
        frame.extend_from_slice(&body);
        self.send(frame)
    }
    fn then(&self, call: Box<dyn FnOnce() + Send>) -> Result<()> {
        call();
        Ok(())
    }
    fn room(&self, _bytes: usize) -> Vec<u8> {
        Vec::new()
    }
}

struct Answers(Receiver<Vec<u8>>);

impl Feed for Answers {
    fn next(&mut self, wait: Duration, take: &mut dyn FnMut(u8, &[u8])) -> Result<Fed> {
        match self.0.recv_timeout(wait) {
            Ok(bytes) => {
                let (frame, _) = frame::decode(&bytes).unwrap().unwrap();
                take(frame.kind, frame.payload);
                Ok(Fed::Frame)
            }
            Err(RecvTimeoutError::Timeout) => Ok(Fed::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(Fed::Ended),
        }
    }
}

// ---- who is told ----

#[derive(Default)]
struct Ears {
    failed: Mutex<Vec<(Code, PathBuf)>>,
    excluded: Mutex<BTreeSet<PathBuf>>,
    found: Mutex<Vec<(u64, u64, bool)>>,
    asked: Mutex<Vec<PathBuf>>,
    there: Mutex<Vec<u64>>,
}

impl SendObserver for Ears {
    fn failed(&self, error: &Error) {
        self.failed.lock().unwrap().push((error.code, error.path.clone()));
    }
    fn excluded(&self, path: &dyn Fn() -> PathBuf) {
        self.excluded.lock().unwrap().insert(path());
    }
    fn found(&self, items: u64, bytes: u64, last: bool) {
        self.found.lock().unwrap().push((items, bytes, last));
    }
    fn landed(&self, _: u64, _: u64) {}
    fn there(&self, bytes: u64) {
        self.there.lock().unwrap().push(bytes);
    }
    fn report(&self, _: &Event<'_>) {}
    fn ask(&self, path: &Path) -> bool {
        self.asked.lock().unwrap().push(path.to_owned());
        path.ends_with("yes")
    }
}

// ---- the receiver ----

/// What the receiver says unasked after a message of the sender.
type Also = Box<dyn FnMut(&Message<'_>, &mut Peer<'_>) -> Vec<Vec<u8>> + Send>;

struct Script {
    streams: usize,
    /// Directories were there before.
    there: bool,
    /// What the sender was told about compression and hashes.
    compress: Compress,
    frames: bool,
    fast: bool,
    dedup: bool,
    /// Batches and offers are kept open as long as the window lets us.
    hold: bool,
    /// Nothing at all is let go.
    frozen: bool,
    /// Names that are refused.
    refuse: &'static [&'static str],
    /// Names whose content is not wanted.
    skip: &'static [&'static str],
    /// Where large files are wanted from.
    from: fn(u64) -> u64,
    /// Blocks (by hash) that are in the store.
    store: HashSet<[u8; 32]>,
    /// Bytes and values that come because they were asked for besides; a file is not closed before.
    asked: (u64, u64),
    /// The receiver's own answers about blocks are left to `also`.
    mute: bool,
    seed: u64,
    also: Option<Also>,
    /// Sending the first frame of this type panics, and says so.
    panics_at: Option<(u8, &'static AtomicBool)>,
}

fn plain() -> Script {
    Script {
        streams: 1,
        there: false,
        compress: Compress::None,
        frames: false,
        fast: false,
        dedup: false,
        hold: false,
        frozen: false,
        refuse: &[],
        skip: &[],
        from: |_| 0,
        store: HashSet::new(),
        asked: (0, 0),
        mute: false,
        seed: 1,
        also: None,
        panics_at: None,
    }
}

/// What arrived under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Got {
    File(Vec<u8>),
    Dir,
    Link(Vec<u8>),
    Special(Kind),
    /// Not sent: state 1 or 2.
    Changed,
    Unreadable,
    Unwanted,
}

#[derive(Clone)]
struct Known {
    name: Vec<u8>,
    kind: Kind,
    size: u64,
    link: Vec<u8>,
}

struct DirKnown {
    path: PathBuf,
    new: bool,
    ended: bool,
    refused: bool,
    single: bool,
}

struct BatchKnown {
    dir: u64,
    entries: Vec<Known>,
    wanted: Vec<usize>,
    asked: bool,
}

struct FileKnown {
    path: PathBuf,
    size: u64,
    from: u64,
    bytes: Vec<u8>,
    covered: u64,
    /// Values by block.
    cvs: BTreeMap<u64, [u8; 32]>,
    last_at: HashMap<usize, u64>,
    state: Option<FileState>,
    source: Vec<u8>,
    asked: (u64, u64),
    got: (u64, u64),
}

struct Peer<'s> {
    script: &'s mut Script,
    also: Option<Also>,
    answers: Sender<Vec<u8>>,
    dirs: HashMap<u64, DirKnown>,
    last_dir: u64,
    dirs_out: Taker,
    batches: BTreeMap<u64, BatchKnown>,
    batches_out: Taker,
    files: BTreeMap<u64, FileKnown>,
    files_out: Taker,
    tree: BTreeMap<PathBuf, Got>,
    partial: BTreeSet<PathBuf>,
    /// Paths of files that came along unasked.
    inline: BTreeSet<PathBuf>,
    troubles: Vec<(u16, PathBuf)>,
    most_batches: usize,
    most_files: usize,
    packed: usize,
    /// Pieces that went on with the frame of those before.
    parts: usize,
    /// By stream.
    unpackers: HashMap<usize, Unpacker>,
    wire_bytes: usize,
    /// Large files of which something came.
    carried: BTreeSet<PathBuf>,
    walked: bool,
    error: Option<u16>,
    proofs: usize,
    have: HashMap<(u64, u64), Vec<[u8; 32]>>,
    root: PathBuf,
    all_sent: bool,
    cancelled: bool,
    ids: BTreeMap<PathBuf, (u64, u64)>,
}

fn bytes_of(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    bytes
}

fn join(dir: &Path, name: &[u8]) -> PathBuf {
    if name == b"-" { dir.to_owned() } else { dir.join(OsStr::from_bytes(name)) }
}

impl Peer<'_> {
    fn say(&self, message: &Message<'_>) {
        // A sender that has failed already hears nothing more.
        let _gone = self.answers.send(bytes_of(message));
    }

    fn refused(&self, name: &[u8]) -> bool {
        self.script.refuse.iter().any(|r| r.as_bytes() == name)
    }

    fn skipped(&self, name: &[u8]) -> bool {
        self.script.skip.iter().any(|r| *r == "*" || r.as_bytes() == name)
    }

    fn know(&mut self, entry: &Entry<'_>) -> Known {
        Known { name: entry.name.to_vec(), kind: entry.kind, size: entry.size, link: entry.link.to_vec() }
    }

    fn dir_is(&mut self, id: u64, path: PathBuf, name: &[u8], kind: Kind) {
        assert_eq!(id, self.last_dir + 1, "directories come in order on stream 0");
        self.last_dir = id;
        self.dirs_out.take(id).unwrap();
        let refused = self.refused(name);
        let new = !self.script.there && kind == Kind::Dir;
        if kind == Kind::Dir && !refused {
            self.tree.insert(path.clone(), Got::Dir);
        }
        let single = kind != Kind::Dir;
        self.dirs.insert(id, DirKnown { path, new, ended: false, refused, single });
        self.dirs_out.settle(id).unwrap();
        let state = match (refused, new) {
            (true, _) => DirState::Refused,
            (_, true) => DirState::New,
            _ => DirState::There,
        };
        self.say(&Message::DirIs { dir: id, state });
    }

    /// Whether a directory or one above it is new: then contents may come along.
    fn may_inline(&self, dir: &Path) -> bool {
        self.dirs.values().any(|d| d.new && dir.starts_with(&d.path))
    }

    fn land(&mut self, batch: &BatchKnown, items: Vec<(usize, Got)>) {
        for (index, got) in items {
            let path = join(&self.dirs[&batch.dir].path, &batch.entries[index].name);
            if let Got::File(bytes) = &got {
                assert_eq!(bytes.len() as u64, batch.entries[index].size, "{path:?}");
            }
            self.tree.insert(path, got);
        }
    }

    fn items(&mut self, codec: Codec, bytes: &[u8], which: &[usize]) -> Vec<(usize, Got)> {
        self.packed += usize::from(codec != Codec::Raw);
        let mut out = Vec::new();
        let raw = if codec == Codec::Raw {
            bytes
        } else {
            let (length, packed) = contents::unpacked(bytes).unwrap();
            assert!(packed.len() * 100 <= length * 95, "only what is worth it");
            Unpacker::new()
                .unpack(codec, packed, length as u64, limits::CONTENTS_BYTES_MAX, &mut out)
                .unwrap();
            &out
        };
        let items: Vec<Got> = contents::items(raw, !self.script.fast, which.len())
            .map(|item| match item.unwrap() {
                Item::Content { bytes, hash } => {
                    assert_eq!(hash, (!self.script.fast).then(|| *blake3::hash(bytes).as_bytes()));
                    Got::File(bytes.to_vec())
                }
                Item::Hashed { .. } | Item::Patched { .. } => panic!("a part where a content was wanted"),
                Item::Changed => Got::Changed,
                Item::Unreadable(_) => Got::Unreadable,
            })
            .collect();
        assert_eq!(items.len(), which.len());
        which.iter().copied().zip(items).collect()
    }

    fn settle(&mut self, id: u64) {
        let batch = self.batches.remove(&id).unwrap();
        assert!(batch.wanted.is_empty());
        self.batches_out.settle(id).unwrap();
        self.say(&Message::Wants { batch: id, entries: Vec::new() });
    }

    fn ask_for_wanted(&mut self, id: u64) {
        let batch = self.batches.get_mut(&id).unwrap();
        let entries = batch.wanted.iter().map(|i| *i as u64).collect::<Vec<_>>();
        if !std::mem::replace(&mut batch.asked, true) {
            self.say(&Message::Wants { batch: id, entries });
        }
    }

    /// Lets things go on that were kept back.
    fn let_go(&mut self, all: bool) {
        if self.script.frozen {
            return;
        }
        while self.batches_out.open() >= BATCHES_OUT_MAX || all && self.script.hold {
            let Some(id) = self.batches.keys().next().copied() else { break };
            if self.batches[&id].wanted.is_empty() {
                self.settle(id);
            } else {
                self.ask_for_wanted(id);
                // Settled once it has come; keep the others waiting meanwhile.
                break;
            }
        }
        while self.files_out.open() >= OFFERS_OUT_MAX || all && self.script.hold {
            let done = self.files.iter().find(|(_, f)| f.is_whole()).map(|(id, _)| *id);
            let Some(id) = done else { break };
            self.close(id);
        }
    }

    fn close(&mut self, id: u64) {
        let file = self.files.remove(&id).unwrap();
        let got = match file.state {
            Some(FileState::Whole) => {
                file.check(!self.script.fast);
                Got::File(file.bytes)
            }
            Some(FileState::Changed) => Got::Changed,
            Some(FileState::Failed) => Got::Unreadable,
            None => Got::Unwanted,
        };
        self.tree.insert(file.path, got);
        self.files_out.settle(id).unwrap();
        self.say(&Message::Close { file: id });
    }

    fn handle(&mut self, stream: usize, message: &Message<'_>) -> bool {
        match message {
            Message::Operand { path, whole, dir, entry, origin } => {
                assert_eq!((stream, *origin), (0, 77));
                assert!(!path.is_empty() && (*whole == (entry.name == b"-")));
                let path = join(&self.root, entry.name);
                let path = if entry.kind == Kind::Dir { path } else { self.root.clone() };
                self.dir_is(*dir, path, entry.name, entry.kind);
            }
            Message::Dir { id, parent, entry } => {
                assert_eq!(stream, 0);
                let above = &self.dirs[parent];
                assert!(!above.ended && !above.single, "{:?}", above.path);
                let path = join(&above.path, entry.name);
                self.dir_is(*id, path, entry.name, entry.kind);
            }
            Message::Files { batch, dir, inline, codec, entries, contents } => {
                self.batches_out.take(*batch).unwrap();
                let known = &self.dirs[dir];
                assert!(!known.ended, "entries after the end of {:?}", known.path);
                let (at, refused, single) = (known.path.clone(), known.refused, known.single);
                assert!(!*inline || self.may_inline(&at), "{at:?} is not new");
                assert!(entries.len() <= 256 && (!single || entries.len() == 1));
                for entry in entries {
                    self.ids.insert(join(&at, entry.name), (entry.dev, entry.ino));
                }
                let entries: Vec<Known> = entries.iter().map(|e| self.know(e)).collect();
                let files: Vec<usize> =
                    (0..entries.len()).filter(|i| entries[*i].kind == Kind::File).collect();
                let mut known = BatchKnown { dir: *dir, entries, wanted: Vec::new(), asked: false };
                for entry in &known.entries {
                    let got = match entry.kind {
                        Kind::File => Got::Unwanted,
                        Kind::Link => Got::Link(entry.link.clone()),
                        other => Got::Special(other),
                    };
                    if !refused {
                        let before = self.tree.insert(join(&at, &entry.name), got);
                        assert!(before.is_none(), "{:?} twice", entry.name);
                    }
                }
                if *inline {
                    let items = self.items(*codec, contents, &files);
                    self.inline.extend(files.iter().map(|i| join(&at, &known.entries[*i].name)));
                    self.land(&known, items);
                } else if !refused {
                    known.wanted =
                        files.into_iter().filter(|i| !self.skipped(&known.entries[*i].name)).collect();
                }
                self.batches.insert(*batch, known);
                self.most_batches = self.most_batches.max(self.batches_out.open());
                if self.script.hold {
                    // What came over another stream may come after the walk's end was told.
                    self.let_go(self.walked);
                } else if self.batches[batch].wanted.is_empty() {
                    self.settle(*batch);
                } else {
                    self.ask_for_wanted(*batch);
                }
            }
            Message::Contents { batch, codec, bytes } => {
                let mut known = self.batches.remove(batch).unwrap();
                let wanted = std::mem::take(&mut known.wanted);
                let items = self.items(*codec, bytes, &wanted);
                self.land(&known, items);
                self.batches.insert(*batch, known);
                self.settle(*batch);
                self.let_go(self.walked);
            }
            Message::Large { file, dir, entry } => {
                assert_eq!(stream, 0);
                self.files_out.take(*file).unwrap();
                let at = &self.dirs[dir];
                assert!(!at.ended);
                let path = join(&at.path, entry.name);
                let from = (self.script.from)(entry.size);
                let source = std::fs::read(self.source_of(&path)).unwrap_or_default();
                let mut bytes = vec![0xEE; entry.size as usize];
                let have = from.min(source.len() as u64) as usize;
                bytes[..have].copy_from_slice(&source[..have]);
                let wanted = !self.skipped(entry.name) && !self.refused(entry.name);
                let known = FileKnown {
                    path: path.clone(),
                    size: entry.size,
                    from,
                    bytes,
                    covered: 0,
                    cvs: BTreeMap::new(),
                    last_at: HashMap::new(),
                    state: None,
                    source,
                    asked: self.script.asked,
                    got: (0, 0),
                };
                self.files.insert(*file, known);
                self.most_files = self.most_files.max(self.files_out.open());
                self.say(&Message::Resume { file: *file, wanted, from, flags: 0 });
                if !wanted {
                    self.close(*file);
                }
            }
            Message::Data(piece) => self.data(stream, piece),
            Message::FileEnd { file, state, .. } => {
                // One that was closed early ends without a reader.
                if let Some(known) = self.files.get_mut(file) {
                    known.state = Some(*state);
                    self.whole(*file);
                }
            }
            Message::DirEnd { dir, partial } => {
                assert_eq!(stream, 0);
                let known = self.dirs.get_mut(dir).unwrap();
                // One that was refused may have ended before its sender heard of it.
                assert!(!known.ended && !known.single);
                known.ended = true;
                if *partial {
                    self.partial.insert(known.path.clone());
                }
            }
            Message::Trouble(t) => {
                self.troubles.push((t.code, PathBuf::from(OsStr::from_bytes(t.path))));
            }
            Message::Found { last, .. } => {
                if *last {
                    self.walked = true;
                    self.let_go(true);
                }
            }
            Message::HaveBlocks { file, first, hashes } => {
                assert_eq!(stream, 0);
                let missing = |h: &[u8; 32]| !self.script.store.contains(h);
                let mut bits = vec![0u8; hashes.len().div_ceil(8)];
                for (k, _) in hashes.iter().enumerate().filter(|(_, h)| missing(h)) {
                    bits[k / 8] |= 1 << (k % 8);
                }
                let known = self.files.get_mut(file).unwrap();
                for (k, hash) in hashes.iter().enumerate() {
                    known.cvs.insert(first + k as u64, *hash);
                }
                self.have.insert((*file, *first), hashes.clone());
                if self.script.mute {
                    return false;
                }
                self.say(&Message::MissingBlocks { file: *file, first: *first, nonce: [9; 32], bits: &bits });
            }
            Message::Proof { file, first, tags } => {
                let hashes = &self.have[&(*file, *first)];
                let known = self.files.get_mut(file).unwrap();
                let mut tags = tags.iter();
                for (k, hash) in hashes.iter().enumerate() {
                    if !self.script.store.contains(hash) {
                        continue;
                    }
                    let start = (first + k as u64) * BLOCK_BYTES;
                    let end = (start + BLOCK_BYTES).min(known.size);
                    let block = &known.source[start as usize..end as usize];
                    assert_eq!(*tags.next().unwrap(), *blake3::keyed_hash(&[9; 32], block).as_bytes());
                    known.bytes[start as usize..end as usize].copy_from_slice(block);
                    known.covered += end - start;
                    self.proofs += 1;
                }
                assert!(tags.next().is_none());
            }
            Message::Values { file, first, hashes } => {
                let known = self.files.get_mut(file).unwrap();
                for (block, hash) in (*first..).zip(hashes) {
                    assert_eq!(*hash, cv_of(&known.source, block), "value of block {block}");
                    known.got.1 += 1;
                }
                self.whole(*file);
            }
            Message::Answer { .. } => {}
            Message::AllNamed { dirs, batches } => {
                assert!(stream == 0 && self.script.streams == 1 && self.files.is_empty());
                assert!(self.dirs.keys().all(|id| id <= dirs) && self.batches.keys().all(|id| id <= batches));
            }
            Message::AllSent => {
                assert_eq!(stream, 0);
                assert!(self.batches.is_empty(), "{:?}", self.batches.keys());
                assert!(self.files.is_empty());
                let open = self.dirs.values().find(|d| !d.ended && !d.single && !d.refused);
                assert!(open.is_none(), "{:?} has no end", open.map(|d| &d.path));
                self.all_sent = true;
                let counts = [1, 2, 3, 4, 5, 6, 7];
                self.say(&Message::Summary { counts, codes: vec![9], cancelled: false });
            }
            Message::Cancel => {
                self.cancelled = true;
                self.say(&Message::Summary { counts: [0; 7], codes: Vec::new(), cancelled: true });
            }
            Message::Error(t) => {
                self.error = Some(t.code);
                for _ in 0..self.script.streams {
                    self.say(&Message::Done);
                }
                return true;
            }
            Message::Done => return true,
            other => panic!("{other:?} is not the sender's to send"),
        }
        false
    }

    fn source_of(&self, path: &Path) -> PathBuf {
        // One tree is looked at from its top, and its paths are those of the source.
        match path.strip_prefix(&self.root) {
            Ok(below) if self.root.ends_with("dst") => self.root.with_file_name("src").join(below),
            _ => path.to_owned(),
        }
    }

    fn whole(&mut self, id: u64) {
        if self.files[&id].is_whole() && !self.script.hold {
            self.close(id);
        } else {
            self.let_go(self.walked);
        }
    }

    fn data(&mut self, stream: usize, piece: &Piece<'_>) {
        self.wire_bytes += piece.bytes.len();
        self.packed += usize::from(piece.codec != Codec::Raw);
        let fast = self.script.fast;
        let Some(known) = self.files.get_mut(&piece.file) else { return };
        self.carried.insert(known.path.clone());
        let (at, end) = (piece.at, piece.at + piece.length);
        assert!(end <= known.size && (end == known.size || end % WIRE_PIECE_BYTES == 0));
        let asked = piece.flags & data::ASKED != 0;
        assert!(asked || at == known.from || at % WIRE_PIECE_BYTES == 0);
        let mut out = Vec::new();
        if piece.flags & data::ZEROS != 0 {
            out.resize(piece.length as usize, 0);
        } else {
            let unpacker = self.unpackers.entry(stream).or_default();
            let part = InFrame::of(piece.flags);
            self.parts += usize::from(part == Some(InFrame::GoesOn));
            let (place, length) = ((piece.file, at), piece.length);
            match part {
                Some(part) => unpacker.unpack_part((part, place), piece.bytes, length, 1 << 10, &mut out),
                None => unpacker.unpack(piece.codec, piece.bytes, length, 1 << 10, &mut out),
            }
            .unwrap();
        }
        known.bytes[at as usize..end as usize].copy_from_slice(&out);
        if asked {
            known.got.0 += piece.length;
        } else {
            known.covered += piece.length;
            let last = known.last_at.insert(stream, at);
            assert!(last.is_none_or(|last| last < at), "blocks of one file rise on a stream");
        }
        let ends = end == known.size || end % BLOCK_BYTES == 0;
        if let Some(cv) = piece.cv {
            assert!(ends && !fast);
            let before = known.cvs.insert(at / BLOCK_BYTES, cv);
            assert!(before.is_none_or(|before| before == cv));
        } else {
            assert!(!ends || fast || piece.flags & data::ASKED != 0, "a block without its value");
        }
        self.whole(piece.file);
    }
}

fn cv_of(bytes: &[u8], block: u64) -> [u8; 32] {
    use blake3::hazmat::HasherExt;
    let start = block * BLOCK_BYTES;
    let end = (start + BLOCK_BYTES).min(bytes.len() as u64);
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(start);
    hasher.update(&bytes[start as usize..end as usize]);
    hasher.finalize_non_root()
}

impl FileKnown {
    fn is_whole(&self) -> bool {
        match self.state {
            Some(FileState::Whole) => self.covered >= self.size - self.from && self.got == self.asked,
            Some(_) => true,
            None => false,
        }
    }
    fn check(&self, hashed: bool) {
        assert_eq!(self.covered, self.size - self.from, "every byte once: {:?}", self.path);
        for (block, cv) in &self.cvs {
            assert_eq!(*cv, cv_of(&self.bytes, *block), "{:?} block {block}", self.path);
        }
        if hashed {
            let blocks = self.from / BLOCK_BYTES..self.size.div_ceil(BLOCK_BYTES);
            if self.from < self.size {
                assert!(blocks.clone().all(|b| self.cvs.contains_key(&b)));
            }
        }
    }
}

/// What a test looks at in the end.
struct Done {
    result: Result<Counted>,
    tree: BTreeMap<PathBuf, Got>,
    partial: BTreeSet<PathBuf>,
    inline: BTreeSet<PathBuf>,
    troubles: Vec<(u16, PathBuf)>,
    ears: Ears,
    most_batches: usize,
    most_files: usize,
    packed: usize,
    parts: usize,
    wire_bytes: usize,
    carried: BTreeSet<PathBuf>,
    error: Option<u16>,
    proofs: usize,
    all_sent: bool,
    cancelled: bool,
    ids: BTreeMap<PathBuf, (u64, u64)>,
}

fn policy() -> CopyPolicy {
    CopyPolicy { recursive: true, specials: true, ..CopyPolicy::cp(2, 0, 0o022) }
}

/// Sends `src` below `at` to a peer that calls it `dst`.
fn send(at: &Path, policy: &CopyPolicy, script: Script) -> Done {
    send_paths(&[at.join("src")], at, policy, script, None, &Cancel::new())
}

fn send_paths(
    paths: &[PathBuf],
    at: &Path,
    policy: &CopyPolicy,
    mut script: Script,
    names: Option<&[u8]>,
    cancel: &Cancel,
) -> Done {
    let net = Net {
        queues: Mutex::new(Queues { lanes: vec![VecDeque::new(); script.streams], ended: false }),
        change: Condvar::new(),
    };
    let lanes: Vec<Lane<'_>> =
        (0..script.streams).map(|index| Lane { net: &net, index, panics_at: script.panics_at }).collect();
    let outs: Vec<&dyn Out> = lanes.iter().map(|l| l as &dyn Out).collect();
    let (answers, feed) = mpsc::channel();
    let ears = Ears::default();
    let how = How {
        origin: 77,
        fast: script.fast,
        compress: script.compress,
        frames: script.frames,
        dedup: script.dedup,
        delta: false,
        packed: false,
        parts: false,
        repeats: false,
        names_left_out: true,
        links: Links::Sent,
        accounts: None,
        expects_new: false,
        compares: false,
    };
    let sending = Push { policy, how, observer: &ears, cancel, pulse: &Pulse::new(), outs: &outs };
    let also = script.also.take();
    let mut peer = Peer {
        also,
        answers,
        dirs: HashMap::new(),
        last_dir: 0,
        dirs_out: Taker::new(DIRS_OUT_MAX),
        batches: BTreeMap::new(),
        batches_out: Taker::new(BATCHES_OUT_MAX),
        files: BTreeMap::new(),
        files_out: Taker::new(OFFERS_OUT_MAX),
        tree: BTreeMap::new(),
        partial: BTreeSet::new(),
        inline: BTreeSet::new(),
        troubles: Vec::new(),
        most_batches: 0,
        most_files: 0,
        packed: 0,
        parts: 0,
        unpackers: HashMap::new(),
        wire_bytes: 0,
        carried: BTreeSet::new(),
        walked: false,
        error: None,
        proofs: 0,
        have: HashMap::new(),
        // Operands are put into it by their names.
        root: at.join("dst"),
        all_sent: false,
        cancelled: false,
        ids: BTreeMap::new(),
        script: &mut script,
    };
    if paths == [at.join("src")] && names.is_none() {
        // One tree is looked at from its top.
        peer.root = at.to_owned();
    }
    let open =
        |path: &Path| -> Result<Source> { source(&Reach::Anywhere, path, policy.follow, Privileged::Real) };
    let result = std::thread::scope(|scope| {
        let peer = &mut peer;
        let net = &net;
        scope.spawn(move || {
            struct End<'n>(&'n Net);
            impl Drop for End<'_> {
                fn drop(&mut self) {
                    self.0.queues.lock().unwrap().ended = true;
                    self.0.change.notify_all();
                }
            }
            let _end = End(net);
            let heard = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| listen(net, peer)));
            // The feed ends with the peer.
            let (none, _) = mpsc::channel();
            peer.answers = none;
            if let Err(panic) = heard {
                std::panic::resume_unwind(panic);
            }
        });
        let what = match names {
            None => ToSend::Operands { paths, open: &open },
            Some(_) => {
                let dir = fastcopy::dir::Dir::open(&paths[0]).unwrap();
                let dir = SourceDir::root(dir, crate::node::Node::root(&paths[0])).unwrap();
                let reader = Box::leak(Box::new(std::io::Cursor::new(names.unwrap().to_vec())));
                ToSend::Names { base: &paths[0], dir, reader, separator: b'\n', extent: Extent::Some }
            }
        };
        let pushed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            push(&sending, what, &mut Answers(feed))
        }));
        pushed.unwrap_or_else(|panic| {
            // Nobody will say anything more.
            net.queues.lock().unwrap().ended = true;
            net.change.notify_all();
            std::panic::resume_unwind(panic)
        })
    });
    Done {
        result,
        tree: peer.tree,
        partial: peer.partial,
        inline: peer.inline,
        troubles: peer.troubles,
        ears,
        most_batches: peer.most_batches,
        most_files: peer.most_files,
        packed: peer.packed,
        parts: peer.parts,
        wire_bytes: peer.wire_bytes,
        carried: peer.carried,
        error: peer.error,
        proofs: peer.proofs,
        all_sent: peer.all_sent,
        cancelled: peer.cancelled,
        ids: peer.ids,
    }
}

fn listen(net: &Net, peer: &mut Peer<'_>) {
    let mut lot = peer.script.seed;
    let mut ends = 0;
    loop {
        let (stream, bytes) = {
            let mut queues = net.queues.lock().unwrap();
            loop {
                let full: Vec<usize> =
                    (0..queues.lanes.len()).filter(|i| !queues.lanes[*i].is_empty()).collect();
                if !full.is_empty() {
                    lot = lot.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let stream = full[(lot >> 33) as usize % full.len()];
                    let bytes = queues.lanes[stream].pop_front().unwrap();
                    net.change.notify_all();
                    break (stream, bytes);
                }
                if queues.ended {
                    return;
                }
                queues = net.change.wait(queues).unwrap();
            }
        };
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (frame, used) = frame::decode(rest).unwrap().unwrap();
            rest = &rest[used..];
            let message = Message::decode(frame.kind, frame.payload).unwrap();
            if let Some(mut also) = peer.also.take() {
                for bytes in also(&message, peer) {
                    let _gone = peer.answers.send(bytes);
                }
                peer.also = Some(also);
            }
            if peer.handle(stream, &message) {
                ends += 1;
                if peer.error.is_some() || ends == peer.script.streams {
                    return;
                }
            }
        }
    }
}

// ---- the trees ----

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut out = vec![0; bytes];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut out);
    out
}

/// What is below a directory, as it should arrive.
fn expected(at: &Path, as_path: &Path, into: &mut BTreeMap<PathBuf, Got>) {
    into.insert(as_path.to_owned(), Got::Dir);
    for entry in std::fs::read_dir(at).unwrap() {
        let entry = entry.unwrap();
        let (path, to) = (entry.path(), as_path.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            expected(&path, &to, into);
        } else if kind.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            into.insert(to, Got::Link(target.as_os_str().as_bytes().to_vec()));
        } else if kind.is_file() {
            into.insert(to, Got::File(std::fs::read(&path).unwrap()));
        } else {
            into.insert(to, Got::Special(Kind::Fifo));
        }
    }
}

fn expect(at: &Path) -> BTreeMap<PathBuf, Got> {
    let mut tree = BTreeMap::new();
    expected(&at.join("src"), &at.join("src"), &mut tree);
    tree
}

fn same(got: &BTreeMap<PathBuf, Got>, want: &BTreeMap<PathBuf, Got>, what: &str) {
    for (path, node) in want {
        let there = got.get(path);
        assert!(there == Some(node), "{what}: {path:?} is {:?}", there.map(std::mem::discriminant));
    }
    let extra: Vec<&PathBuf> = got.keys().filter(|p| !want.contains_key(*p)).collect();
    assert!(extra.is_empty(), "{what}: {extra:?}");
}

fn rich_tree(at: &Path) {
    let src = at.join("src");
    std::fs::create_dir_all(src.join("a/b/c")).unwrap();
    std::fs::create_dir(src.join("empty")).unwrap();
    std::fs::write(src.join("nothing"), b"").unwrap();
    std::fs::write(src.join("hello"), b"hello").unwrap();
    std::fs::write(src.join(OsStr::from_bytes(b"caf\xe9 \n\x1b")), b"bytes").unwrap();
    symlink("hello", src.join("link")).unwrap();
    symlink("/nowhere/at all", src.join("a/dangling")).unwrap();
    let fifo = fastcopy::dir::NameBuf::new(b"fifo").unwrap();
    let a = fastcopy::dir::Dir::open(&src.join("a")).unwrap();
    a.make_special(fifo.as_name(), fastcopy::meta::Kind::Fifo, 0o600, 0).unwrap();
    for i in 0..600u64 {
        let bytes = if i % 3 == 0 { vec![b'x'; 3000] } else { noise(i as usize * 7, i) };
        std::fs::write(src.join(format!("a/b/f{i}")), bytes).unwrap();
    }
    std::fs::write(src.join("a/b/c/just small"), noise((1 << 10) - 1, 5)).unwrap();
    std::fs::write(src.join("a/b/c/just large"), noise(1 << 10, 6)).unwrap();
    std::fs::write(src.join("a/large"), noise((9 << 10) + 12345, 7)).unwrap();
    let mut mixed = vec![b'y'; 2 << 10];
    mixed.extend_from_slice(&vec![0; 3 << 20]);
    mixed.extend_from_slice(&noise(100, 8));
    std::fs::write(src.join("a/mixed"), mixed).unwrap();
    let sparse = std::fs::File::create(src.join("a/sparse")).unwrap();
    sparse.set_len((6 << 20) + 5).unwrap();
    sparse.write_all_at(b"island", 5 << 20).unwrap();
}

#[test]
fn a_tree_arrives_whole_whatever_the_way() {
    let t = tempfile::tempdir().unwrap();
    rich_tree(t.path());
    let want = expect(t.path());
    let mut seed = 0;
    for there in [false, true] {
        for (compress, fast, frames) in [
            (Compress::None, false, true),
            (Compress::None, true, false),
            (Compress::Zstd, false, false),
            (Compress::Zstd, false, true),
            (Compress::Zstd, true, true),
            (Compress::Lz4, true, true),
            (Compress::Auto, false, true),
        ] {
            for streams in [1, 3] {
                seed += 1;
                if !skips::in_slice(seed as usize, 3) {
                    continue;
                }
                let what =
                    format!("there {there}, {compress:?}, fast {fast}, frames {frames}, {streams} streams");
                let script = Script { there, compress, frames, fast, streams, seed, ..plain() };
                let done = send(t.path(), &policy(), script);
                let counted = done.result.unwrap();
                assert_eq!((counted.counts[6], counted.codes, done.all_sent), (7, vec![9], true), "{what}");
                same(&done.tree, &want, &what);
                assert!(done.troubles.is_empty() && done.partial.is_empty(), "{what}: {:?}", done.troubles);
                assert!(done.inline.is_empty() || !there, "{what}");
                // Whether it pays, the clock says.
                let packs = compress != Compress::None;
                let in_frames = frames && compress == Compress::Zstd;
                assert!(compress == Compress::Auto || (done.packed > 0) == packs, "{what}");
                assert!(
                    compress == Compress::Auto || (done.parts > 0) == in_frames,
                    "{what}: {}",
                    done.parts
                );
                // 6 MiB of holes and 3 MiB of zeros do not travel.
                let limit = if fast && compress == Compress::None { 5 << 20 } else { 2 << 20 };
                assert!(done.wire_bytes < limit, "{what}: {}", done.wire_bytes);
                let found = done.ears.found.lock().unwrap().last().copied().unwrap();
                assert!(found.2 && found.0 as usize == want.len(), "{what}: {found:?}");
            }
        }
    }
}

#[test]
fn windows_are_used_and_never_exceeded() {
    let t = tempfile::tempdir().unwrap();
    for d in 0..150 {
        let dir = t.path().join(format!("src/d{d}"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("f"), [d as u8]).unwrap();
    }
    for f in 0..40 {
        std::fs::write(t.path().join(format!("src/large{f}")), vec![f as u8; 1 << 10]).unwrap();
    }
    let want = expect(t.path());
    for (there, streams) in [(false, 1), (true, 1), (true, 2)] {
        let script = Script { there, streams, hold: true, ..plain() };
        let done = send(t.path(), &policy(), script);
        done.result.unwrap();
        same(&done.tree, &want, "held");
        assert_eq!(done.inline.is_empty(), there, "contents go along once it is known that all is new");
        // With one stream nothing but the window keeps the sender back.
        if streams == 1 {
            assert_eq!((done.most_batches, done.most_files), (BATCHES_OUT_MAX, OFFERS_OUT_MAX));
        }
    }
}

#[test]
fn room_for_a_batch_is_given_so_often_and_no_more() {
    let net = Net { queues: Mutex::default(), change: Condvar::new() };
    let lane = Lane { net: &net, index: 0, panics_at: None };
    let (outs, policy, ears): ([&dyn Out; 1], _, _) = ([&lane], policy(), Ears::default());
    let how = How {
        origin: 1,
        fast: false,
        compress: Compress::None,
        frames: false,
        dedup: false,
        delta: false,
        packed: false,
        parts: false,
        repeats: false,
        names_left_out: true,
        links: Links::Sent,
        accounts: None,
        expects_new: false,
        compares: false,
    };
    let push = Push {
        policy: &policy,
        how,
        observer: &ears,
        cancel: &Cancel::new(),
        pulse: &Pulse::new(),
        outs: &outs,
    };
    let sending = Sending::new(&push).unwrap();
    assert!((0..BATCHES_OUT_MAX).all(|_| sending.schedule.reserve_batch()));
    assert!(!sending.schedule.reserve_batch());
    sending.schedule.free_batch();
    assert!(sending.schedule.reserve_batch() && !sending.schedule.reserve_batch());
}

#[test]
fn one_directory_keeps_to_the_window_too() {
    let t = tempfile::tempdir().unwrap();
    let src = t.path().join("src");
    std::fs::create_dir_all(&src).unwrap();
    for f in 0..150 {
        // Two of them fill a batch.
        std::fs::File::create(src.join(format!("{f}"))).unwrap().set_len(600).unwrap();
    }
    for streams in [1, 2] {
        let script = Script { there: true, hold: true, skip: &["*"], streams, ..plain() };
        let done = send(t.path(), &policy(), script);
        done.result.unwrap();
        assert_eq!(done.tree.values().filter(|g| **g == Got::Unwanted).count(), 150);
        assert_eq!(done.most_batches, BATCHES_OUT_MAX);
    }
}

#[test]
fn what_is_filtered_is_told_and_leaves_its_directory_partial() {
    let t = tempfile::tempdir().unwrap();
    let src = t.path().join("src");
    std::fs::create_dir_all(src.join("keep")).unwrap();
    std::fs::create_dir_all(src.join("skip")).unwrap();
    std::fs::create_dir_all(src.join("sub")).unwrap();
    for name in ["keep/a.c", "keep/a.o", "skip/x", "sub/ignored", "sub/kept"] {
        std::fs::write(src.join(name), name).unwrap();
    }
    std::fs::write(src.join("sub/.gitignore"), "ignored\n").unwrap();
    let rules = vec![Rule::Exclude("*.o".into()), Rule::Exclude("skip/".into())];
    let filter = FilterSpec { rules, gitignore: true, ..FilterSpec::everything() };
    let done = send(t.path(), &CopyPolicy { filter, ..policy() }, plain());
    done.result.unwrap();
    let mut want = expect(t.path());
    for gone in ["keep/a.o", "skip/x", "skip", "sub/ignored"] {
        want.remove(&src.join(gone));
    }
    same(&done.tree, &want, "filtered");
    let paths = |names: &[&str]| names.iter().map(|n| src.join(n)).collect::<BTreeSet<_>>();
    assert_eq!(*done.ears.excluded.lock().unwrap(), paths(&["keep/a.o", "skip", "sub/ignored"]));
    assert_eq!(
        done.partial,
        paths(&["", "keep", "sub"]).into_iter().map(|p| p.components().collect()).collect()
    );
}

#[test]
fn what_cannot_be_sent_is_told_and_the_rest_goes_on() {
    let t = tempfile::tempdir().unwrap();
    let src = t.path().join("src");
    std::fs::create_dir_all(src.join("d")).unwrap();
    std::fs::write(src.join("d/f"), "f").unwrap();
    symlink("nothing", src.join("dangling")).unwrap();
    symlink(".", src.join("d/circle")).unwrap();
    let fifo = fastcopy::dir::NameBuf::new(b"fifo").unwrap();
    fastcopy::dir::Dir::open(&src)
        .unwrap()
        .make_special(fifo.as_name(), fastcopy::meta::Kind::Fifo, 0o600, 0)
        .unwrap();
    let how = CopyPolicy { specials: false, follow: Follow::Always, ..policy() };
    let paths = [src.clone(), t.path().join("absent"), src.join("d/f")];
    let done = send_paths(&paths, t.path(), &how, plain(), None, &Cancel::new());
    done.result.unwrap();
    let dst = t.path().join("dst");
    let want = [
        (dst.join("src"), Got::Dir),
        (dst.join("src/d"), Got::Dir),
        (dst.join("src/d/f"), Got::File(b"f".to_vec())),
        (dst.join("f"), Got::File(b"f".to_vec())),
    ];
    same(&done.tree, &want.into_iter().collect(), "the rest");
    let mut troubles = done.troubles.clone();
    troubles.sort();
    let codes = |c: Code| c as u16;
    assert_eq!(
        troubles,
        [
            (codes(Code::NotFound), t.path().join("absent")),
            (codes(Code::NotFound), src.join("dangling")),
            (codes(Code::Link), src.join("d/circle")),
            (codes(Code::Special), src.join("fifo")),
        ]
    );
    assert_eq!(done.ears.failed.lock().unwrap().len(), 4);
    assert_eq!(done.partial, [dst.join("src"), dst.join("src/d")].into());
    // A directory without -r.
    let done = send(t.path(), &CopyPolicy { recursive: false, ..policy() }, plain());
    done.result.unwrap();
    assert_eq!(done.troubles, [(codes(Code::IsDirectory), src.clone())]);
    // A directory as a whole has no name.
    let done = send_paths(&[src.join("d/.")], t.path(), &policy(), plain(), None, &Cancel::new());
    done.result.unwrap();
    assert_eq!(done.tree.keys().collect::<Vec<_>>(), [&dst, &dst.join("circle"), &dst.join("f")]);
}

#[test]
fn names_of_a_list_come_with_the_directories_that_lead_to_them() {
    let t = tempfile::tempdir().unwrap();
    let src = t.path().join("src");
    std::fs::create_dir_all(src.join("a/b")).unwrap();
    std::fs::create_dir_all(src.join("whole/deep")).unwrap();
    for name in ["a/b/f", "a/b/g", "a/not", "top", "whole/deep/x", "out"] {
        std::fs::write(src.join(name), name).unwrap();
    }
    let list = b"a/b/f\n./a//b/g\ntop\n\nwhole\n../x\n/abs\nabsent\n";
    let done =
        send_paths(std::slice::from_ref(&src), t.path(), &policy(), plain(), Some(list), &Cancel::new());
    done.result.unwrap();
    let dst = t.path().join("dst");
    let got: Vec<PathBuf> = done.tree.keys().map(|p| p.strip_prefix(&dst).unwrap().to_owned()).collect();
    let want = ["", "a", "a/b", "a/b/f", "a/b/g", "top", "whole", "whole/deep", "whole/deep/x"];
    assert_eq!(got, want.map(PathBuf::from));
    let codes: Vec<u16> = done.troubles.iter().map(|t| t.0).collect();
    assert_eq!(codes, [Code::Refused as u16, Code::Refused as u16, Code::NotFound as u16]);
}

#[test]
fn files_with_several_names_are_not_sent_unasked() {
    let t = tempfile::tempdir().unwrap();
    let src = t.path().join("src");
    std::fs::create_dir_all(&src).unwrap();
    std::fs::write(src.join("first"), "content").unwrap();
    std::fs::write(src.join("other"), "other").unwrap();
    std::fs::hard_link(src.join("first"), src.join("second")).unwrap();
    let links = Preserve { links: true, ..Preserve::NONE };
    let script = Script { skip: &["second"], ..plain() };
    let done = send(t.path(), &CopyPolicy { preserve: links, ..policy() }, script);
    done.result.unwrap();
    let mut want = expect(t.path());
    want.insert(src.join("second"), Got::Unwanted);
    same(&done.tree, &want, "linked");
    assert!(done.inline.is_empty() || done.inline == [src.join("other")].into());
    assert_eq!(done.ids[&src.join("first")], done.ids[&src.join("second")]);
}

/// Something done once, when a message comes that fits.
fn once(
    when: impl Fn(&Message<'_>) -> bool + Send + 'static,
    then: impl Fn(&mut Peer<'_>) -> Vec<Vec<u8>> + Send + 'static,
) -> Option<Also> {
    let mut done = false;
    Some(Box::new(move |message, peer| {
        if done || !when(message) {
            return Vec::new();
        }
        done = true;
        then(peer)
    }))
}

#[test]
fn what_changes_vanishes_or_is_swapped_is_not_mixed() {
    let t = tempfile::tempdir().unwrap();
    let src = t.path().join("src");
    std::fs::create_dir_all(&src).unwrap();
    std::fs::write(t.path().join("secret"), "secret").unwrap();
    for name in ["grown", "replaced", "vanished", "swapped", "same", "locked"] {
        std::fs::write(src.join(name), name).unwrap();
    }
    let at = src.clone();
    let also = once(
        |m| matches!(m, Message::Files { .. }),
        move |_| {
            std::fs::write(at.join("new"), "secret").unwrap();
            std::fs::rename(at.join("new"), at.join("replaced")).unwrap();
            std::fs::write(at.join("grown"), "grown and grown").unwrap();
            std::fs::remove_file(at.join("vanished")).unwrap();
            std::fs::remove_file(at.join("swapped")).unwrap();
            symlink("../secret", at.join("swapped")).unwrap();
            std::fs::set_permissions(at.join("locked"), std::fs::Permissions::from_mode(0o600)).unwrap();
            Vec::new()
        },
    );
    let done = send(t.path(), &policy(), Script { there: true, also, ..plain() });
    done.result.unwrap();
    assert_eq!(done.tree[&src.join("replaced")], Got::Changed);
    assert_eq!(
        done.tree[&src.join("grown")],
        Got::Changed,
        "the receiver takes no other size than it was told"
    );
    assert_eq!(done.tree[&src.join("vanished")], Got::Unreadable);
    assert_eq!(done.tree[&src.join("swapped")], Got::Unreadable);
    assert_eq!(done.tree[&src.join("locked")], Got::Changed, "what was closed is not sent as open");
    assert_eq!(done.tree[&src.join("same")], Got::File(b"same".to_vec()));
    assert!(!done.tree.values().any(|g| *g == Got::File(b"secret".to_vec())));
}

#[test]
fn directories_swapped_for_links_lead_nowhere() {
    let t = tempfile::tempdir().unwrap();
    let src = t.path().join("src");
    std::fs::create_dir_all(t.path().join("outside")).unwrap();
    std::fs::write(t.path().join("outside/f"), "secret").unwrap();
    for d in 0..40 {
        std::fs::create_dir_all(src.join(format!("d{d}"))).unwrap();
        std::fs::write(src.join(format!("d{d}/f")), "honest").unwrap();
    }
    let at = src.clone();
    // After everything was named, and before anything is wanted.
    let also = once(
        |m| matches!(m, Message::Found { last: true, .. }),
        move |_| {
            for d in 0..40 {
                std::fs::rename(at.join(format!("d{d}")), at.join(format!("moved{d}"))).unwrap();
                symlink("../outside", at.join(format!("d{d}"))).unwrap();
            }
            Vec::new()
        },
    );
    let done = send(t.path(), &policy(), Script { there: true, hold: true, also, ..plain() });
    done.result.unwrap();
    let files: Vec<&Got> = done.tree.iter().filter(|(p, _)| p.ends_with("f")).map(|(_, g)| g).collect();
    let honest = files.iter().filter(|g| ***g == Got::File(b"honest".to_vec())).count();
    let lost = files.iter().filter(|g| ***g == Got::Unreadable).count();
    // A few directories are still open: those are still the right ones.
    assert_eq!((files.len(), honest + lost), (40, 40));
    assert!(lost >= 20, "{lost}");
}

#[test]
fn a_large_file_that_changes_is_told_in_the_end() {
    for fast in [false, true] {
        let t = tempfile::tempdir().unwrap();
        let src = t.path().join("src");
        std::fs::create_dir_all(&src).unwrap();
        for name in ["written", "cut", "replaced", "still"] {
            std::fs::write(src.join(name), noise(24 << 10, 3)).unwrap();
        }
        let at = src.clone();
        let mut seen = HashSet::new();
        let also: Option<Also> = Some(Box::new(move |message, peer| {
            let (file, replaced) = match message {
                Message::Data(piece) => (piece.file, false),
                Message::Large { file, entry, .. } => (*file, entry.name == b"replaced"),
                _ => return Vec::new(),
            };
            if replaced {
                std::fs::write(at.join("new"), noise(24 << 10, 4)).unwrap();
                std::fs::rename(at.join("new"), at.join("replaced")).unwrap();
            }
            if matches!(message, Message::Data(_)) && seen.insert(file) {
                let path = peer.files[&file].path.clone();
                let open = std::fs::File::options().write(true).open(&path).unwrap();
                if path.ends_with("written") {
                    open.write_all_at(b"!", 0).unwrap();
                } else if path.ends_with("cut") {
                    open.set_len(5).unwrap();
                }
            }
            Vec::new()
        }));
        let done = send(t.path(), &policy(), Script { fast, also, ..plain() });
        done.result.unwrap();
        assert!(!done.carried.contains(&src.join("replaced")), "another file's bytes");
        for (name, whole) in [("written", false), ("cut", false), ("replaced", false), ("still", true)] {
            let got = &done.tree[&src.join(name)];
            assert_eq!(matches!(got, Got::File(_)), whole, "fast {fast}: {name}");
            assert!(whole || *got == Got::Changed, "fast {fast}: {name}");
        }
    }
}

#[test]
fn large_files_go_on_from_anywhere() {
    let t = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(t.path().join("src")).unwrap();
    std::fs::write(t.path().join("src/big"), noise((14 << 10) + 77, 9)).unwrap();
    let want = expect(t.path());
    let froms: [fn(u64) -> u64; 6] =
        [|_| 4 << 10, |_| 8 << 10, |_| (5 << 10) + 3, |_| 1, |size| size, |size| size - 1];
    for (k, from) in froms.into_iter().enumerate() {
        for compress in [Compress::None, Compress::Lz4] {
            for streams in [1, 2] {
                let done =
                    send(t.path(), &policy(), Script { from, streams, compress, seed: k as u64, ..plain() });
                done.result.unwrap();
                same(&done.tree, &want, &format!("from {k}"));
            }
        }
    }
}

#[test]
fn ranges_are_sent_again_and_values_told() {
    let t = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(t.path().join("src")).unwrap();
    std::fs::write(t.path().join("src/big"), noise((14 << 10) + 77, 9)).unwrap();
    let want = expect(t.path());
    let also: Option<Also> = Some(Box::new(|message, _| match message {
        // Before the file is wanted at all.
        Message::Large { file, .. } => vec![bytes_of(&Message::Compute { file: *file, first: 0, count: 4 })],
        Message::FileEnd { file, .. } => vec![
            bytes_of(&Message::Compute { file: *file, first: 3, count: 1 }),
            bytes_of(&Message::Reread { file: *file, at: 1 << 10, bytes: 6 << 10 }),
            bytes_of(&Message::Reread { file: *file, at: (14 << 10) + 76, bytes: 1 }),
        ],
        _ => Vec::new(),
    }));
    let asked = ((6 << 10) + 1, 5);
    let done = send(t.path(), &policy(), Script { asked, also, ..plain() });
    done.result.unwrap();
    same(&done.tree, &want, "again");
}

#[test]
fn blocks_that_the_store_has_are_proved_and_not_sent() {
    let t = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(t.path().join("src")).unwrap();
    let bytes = noise((90 << 10) + 77, 9);
    std::fs::write(t.path().join("src/big"), &bytes).unwrap();
    std::fs::write(t.path().join("src/less"), noise(15 << 10, 10)).unwrap();
    let want = expect(t.path());
    let blocks = (bytes.len() as u64).div_ceil(BLOCK_BYTES);
    // The last one: after groups of which nothing is there only their last blocks are asked about, and then all again.
    type Has = fn(u64) -> bool;
    let table: [(Has, usize); 5] =
        [(|_| true, 1), (|b| b % 3 == 2, 1), (|b| b % 2 == 1, 2), (|_| false, 1), (|b| b >= 12, 2)];
    for (has, streams) in table {
        let store: HashSet<[u8; 32]> = (0..blocks).filter(|b| has(*b)).map(|b| cv_of(&bytes, b)).collect();
        let had = store.len();
        let done = send(t.path(), &policy(), Script { dedup: true, store, streams, ..plain() });
        done.result.unwrap();
        same(&done.tree, &want, "deduplicated");
        assert_eq!(done.proofs, had);
        let sent = (blocks as usize - had + 4) * BLOCK_BYTES as usize;
        assert!(done.wire_bytes <= sent, "{} of {sent}", done.wire_bytes);
    }
}

#[test]
fn questions_are_passed_on() {
    let t = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(t.path().join("src")).unwrap();
    std::fs::write(t.path().join("src/f"), "f").unwrap();
    let answers: Arc<Mutex<Vec<(u64, bool)>>> = Arc::default();
    let heard = answers.clone();
    let also: Option<Also> = Some(Box::new(move |message, peer| match message {
        Message::Files { .. } => [(1u64, "no"), (2, "yes")]
            .map(|(id, path)| bytes_of(&Message::Ask { id, path: path.as_bytes() }))
            .into(),
        Message::Answer { id, yes } => {
            heard.lock().unwrap().push((*id, *yes));
            if heard.lock().unwrap().len() == 2 {
                peer.script.frozen = false;
                peer.let_go(true);
            }
            Vec::new()
        }
        _ => Vec::new(),
    }));
    let script = Script { there: true, hold: true, frozen: true, also, ..plain() };
    let done = send(t.path(), &CopyPolicy { collide: Collide::Ask, ..policy() }, script);
    done.result.unwrap();
    assert_eq!(*answers.lock().unwrap(), [(1, false), (2, true)]);
    assert_eq!(*done.ears.asked.lock().unwrap(), [PathBuf::from("no"), PathBuf::from("yes")]);
}

#[test]
fn nothing_more_is_sent_of_a_refused_directory() {
    let t = tempfile::tempdir().unwrap();
    let src = t.path().join("src");
    for d in ["good", "bad"] {
        for i in 0..40 {
            std::fs::create_dir_all(src.join(format!("{d}/{i}"))).unwrap();
            std::fs::write(src.join(format!("{d}/{i}/f")), "f").unwrap();
        }
    }
    let mut want = expect(t.path());
    want.retain(|path, _| !path.starts_with(src.join("bad")));
    let done = send(t.path(), &policy(), Script { refuse: &["bad"], ..plain() });
    done.result.unwrap();
    // What was under way when it was refused does not count; an honest receiver drops it.
    let got = done.tree.into_iter().filter(|(p, _)| !p.starts_with(src.join("bad"))).collect();
    same(&got, &want, "refused");
    // An operand that is refused as a whole.
    let done = send(t.path(), &policy(), Script { refuse: &["src"], ..plain() });
    done.result.unwrap();
    assert!(done.all_sent);
}

#[test]
fn a_receiver_that_breaks_the_rules_is_cut_off() {
    let t = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(t.path().join("src")).unwrap();
    std::fs::write(t.path().join("src/f"), "f").unwrap();
    symlink("f", t.path().join("src/l")).unwrap();
    std::fs::write(t.path().join("src/big"), noise(17 << 10, 1)).unwrap();
    type Bad = fn() -> Vec<u8>;
    let on_files: Vec<(&str, Bad)> = vec![
        ("a directory not given out", || bytes_of(&Message::DirIs { dir: 2, state: DirState::New })),
        ("a directory twice", || bytes_of(&Message::DirIs { dir: 1, state: DirState::New })),
        ("a batch not given out", || bytes_of(&Message::Wants { batch: 9, entries: vec![] })),
        ("an entry that is none", || bytes_of(&Message::Wants { batch: 1, entries: vec![7] })),
        ("both, of which one is a link", || bytes_of(&Message::Wants { batch: 1, entries: vec![0, 1] })),
        ("a file not given out", || bytes_of(&Message::Resume { file: 40, wanted: true, from: 0, flags: 0 })),
        ("the end of a file not given out", || bytes_of(&Message::Close { file: 40 })),
        ("a question nobody wants", || bytes_of(&Message::Ask { id: 1, path: b"x" })),
        ("a summary in the middle", || {
            bytes_of(&Message::Summary { counts: [0; 7], codes: vec![], cancelled: false })
        }),
        ("a sender's message", || bytes_of(&Message::AllSent)),
        ("a client's message", || bytes_of(&Message::List { path: b"/" })),
        ("the last message", || bytes_of(&Message::Done)),
        ("no message at all", || vec![2, 0, 0, 0, 0xFF, 1]),
        ("a message cut short", || vec![2, 0, 0, 0, kind::CLOSE, 0x80]),
    ];
    let on_large: Vec<(&str, Bad)> = vec![
        ("from beyond the end", || {
            bytes_of(&Message::Resume { file: 1, wanted: true, from: (17 << 10) + 1, flags: 0 })
        }),
        ("a range before it is wanted", || bytes_of(&Message::Reread { file: 1, at: 0, bytes: 1 })),
        ("blocks beyond the end", || bytes_of(&Message::Compute { file: 1, first: 4, count: 2 })),
        ("an answer to nothing", || {
            bytes_of(&Message::MissingBlocks { file: 1, first: 0, nonce: [0; 32], bits: &[1] })
        }),
    ];
    let on_data: Vec<(&str, Bad)> = vec![
        ("wanted twice", || bytes_of(&Message::Resume { file: 1, wanted: true, from: 0, flags: 0 })),
        ("a range beyond the end", || bytes_of(&Message::Reread { file: 1, at: 17 << 10, bytes: 1 })),
    ];
    let on_have: Vec<(&str, Bad)> = vec![
        ("too few bits", || {
            bytes_of(&Message::MissingBlocks { file: 1, first: 0, nonce: [0; 32], bits: &[] })
        }),
        ("too many bits", || {
            bytes_of(&Message::MissingBlocks { file: 1, first: 0, nonce: [0; 32], bits: &[0x20] })
        }),
        ("other blocks", || {
            bytes_of(&Message::MissingBlocks { file: 1, first: 1, nonce: [0; 32], bits: &[0] })
        }),
    ];
    type When = fn(&Message<'_>) -> bool;
    let table: Vec<(When, Vec<(&str, Bad)>)> = vec![
        (|m| matches!(m, Message::Files { .. }), on_files),
        (|m| matches!(m, Message::Large { .. }), on_large),
        (|m| matches!(m, Message::Data(_)), on_data),
        (|m| matches!(m, Message::HaveBlocks { .. }), on_have),
    ];
    for (when, cases) in table {
        for (what, bad) in cases {
            let dedup = matches!(what, "too few bits" | "too many bits" | "other blocks");
            let also = once(when, move |_| vec![bad()]);
            let done = send(t.path(), &policy(), Script { there: true, dedup, mute: dedup, also, ..plain() });
            assert!(done.result.is_err(), "{what}");
            assert!(done.error == Some(Code::Protocol as u16) && !done.all_sent, "{what}");
        }
    }
    // A batch that is settled and wanted afterwards; contents wanted a second time.
    let again = |nothing: bool| {
        let also = once(
            |m| matches!(m, Message::Contents { .. }),
            move |peer| {
                let file = peer.batches[&1].wanted[0] as u64;
                let entries = if nothing { Vec::new() } else { vec![file] };
                vec![bytes_of(&Message::Wants { batch: 1, entries })]
            },
        );
        send(t.path(), &policy(), Script { there: true, also, ..plain() })
    };
    assert!(again(false).result.is_err());
    assert!(again(true).result.is_err(), "settled twice");
    // The honest twin of it all.
    let done = send(t.path(), &policy(), Script { there: true, ..plain() });
    assert!(done.result.is_ok() && done.error.is_none());
}

#[test]
fn an_error_of_the_receiver_ends_it_in_its_own_words() {
    let t = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(t.path().join("src")).unwrap();
    std::fs::write(t.path().join("src/f"), "f").unwrap();
    let also = once(
        |m| matches!(m, Message::Operand { .. }),
        |_| {
            let trouble =
                Trouble { code: 7, op: Op::Write.number(), path: b"/x", note: Note::default(), errno: 28 };
            vec![bytes_of(&Message::Error(trouble))]
        },
    );
    let done = send(t.path(), &policy(), Script { hold: true, also, ..plain() });
    let e = done.result.unwrap_err();
    assert_eq!((e.code, e.op, e.source.unwrap().raw_os_error()), (Code::NoSpace, Op::Write, Some(28)));
}

/// What an earlier run has brought is told when the receiver says where it goes on, before any of the rest is sent: a rate
/// that is shown meanwhile is of the rest.
#[test]
fn what_is_there_already_is_told_at_once() {
    let tmp = tempfile::tempdir().unwrap();
    std::fs::write(tmp.path().join("src"), noise(3 * BLOCK_BYTES as usize, 1)).unwrap();
    for (resume, there) in [
        (Resume::Proved, vec![BLOCK_BYTES]),
        (Resume::Strict, vec![BLOCK_BYTES]),
        (Resume::AppendSize, vec![]),
    ] {
        let policy = CopyPolicy { resume, ..policy() };
        let done = send(tmp.path(), &policy, Script { from: |_| BLOCK_BYTES, ..plain() });
        assert!(done.result.is_ok(), "{resume:?}: {:?}", done.result.err());
        assert_eq!(*done.ears.there.lock().unwrap(), there, "{resume:?}");
    }
}

#[test]
fn a_cancel_from_either_side_ends_it_soon() {
    let t = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(t.path().join("src")).unwrap();
    for k in 0..5 {
        std::fs::write(t.path().join(format!("src/{k}")), noise(20 << 10, k)).unwrap();
    }
    let cancel: &'static Cancel = Box::leak(Box::new(Cancel::new()));
    let also = once(
        |m| matches!(m, Message::Data(_)),
        |_| {
            cancel.set();
            Vec::new()
        },
    );
    let script = Script { streams: 2, also, ..plain() };
    let done = send_paths(&[t.path().join("src")], t.path(), &policy(), script, None, cancel);
    assert!(done.result.unwrap().cancelled && done.cancelled && !done.all_sent);
    assert!(done.wire_bytes < 60 << 10, "{}", done.wire_bytes);
    // The other side.
    let also = once(
        |m| matches!(m, Message::Data(_)),
        |_| {
            let counts = [0; 7];
            vec![
                bytes_of(&Message::Cancel),
                bytes_of(&Message::Summary { counts, codes: vec![], cancelled: true }),
            ]
        },
    );
    let done = send(t.path(), &policy(), Script { also, ..plain() });
    assert!(done.result.unwrap().cancelled && !done.all_sent);
}

/// A panic of any thread that sends ends the transfer: with the panic, or with an error, and never with a wait.
#[test]
fn a_thread_that_panics_ends_it() {
    let t = Arc::new(tempfile::tempdir().unwrap());
    for n in 0..200 {
        std::fs::create_dir_all(t.path().join(format!("src/{}", n % 7))).unwrap();
        std::fs::write(t.path().join(format!("src/{}/{n}", n % 7)), "f").unwrap();
    }
    std::fs::write(t.path().join("src/big"), noise(17 << 10, 1)).unwrap();
    for kind in [
        kind::OPERAND,
        kind::DIR,
        kind::FILES,
        kind::CONTENTS,
        kind::LARGE,
        kind::DATA,
        kind::FILE_END,
        kind::DIR_END,
        kind::FOUND,
        kind::ALL_SENT,
    ] {
        let mut planted = false;
        for there in [false, true] {
            let panicked: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
            let (ended, heard) = mpsc::channel();
            let t = Arc::clone(&t);
            let sends = std::thread::spawn(move || {
                let script = Script { streams: 2, there, panics_at: Some((kind, panicked)), ..plain() };
                let went = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    send(t.path(), &policy(), script).result.is_ok()
                }));
                // The test may have given up.
                let _gone = ended.send(went.unwrap_or(false));
            });
            match heard.recv_timeout(Duration::from_secs(120)) {
                // The twin: where there is no such frame, nothing is planted.
                Ok(went) => assert_eq!(went, !panicked.load(Relaxed), "{kind:#04x} {there}"),
                Err(_) => panic!("{kind:#04x} {there}: hangs"),
            }
            sends.join().unwrap();
            planted |= panicked.load(Relaxed);
        }
        assert!(planted, "{kind:#04x} is never sent: this judges nothing");
    }
}

#[test]
fn attributes_travel_when_they_are_kept() {
    let t = tempfile::tempdir().unwrap();
    let src = t.path().join("src");
    std::fs::create_dir_all(&src).unwrap();
    std::fs::write(src.join("f"), "f").unwrap();
    let file = std::fs::File::open(src.join("f")).unwrap();
    let of = fastcopy::xattr::Of::Handle(std::os::fd::AsFd::as_fd(&file));
    if let Err(e) = fastcopy::xattr::set(of, c"user.colour", b"blue") {
        panic!("the scratch directory's file system has no attributes: {e}");
    }
    let seen: Arc<Mutex<crate::sender::item::EntryAttrs>> = Arc::default();
    for there in [false, true] {
        let heard = seen.clone();
        let also: Option<Also> = Some(Box::new(move |message, _| {
            if let Message::Files { entries, .. } = message {
                let owned = |(a, b): &(&[u8], &[u8])| (a.to_vec(), b.to_vec());
                heard.lock().unwrap().extend(entries[0].attrs.iter().map(owned));
            }
            Vec::new()
        }));
        let preserve = Preserve { xattr: true, ..Preserve::NONE };
        let done = send(t.path(), &CopyPolicy { preserve, ..policy() }, Script { there, also, ..plain() });
        done.result.unwrap();
        assert_eq!(*seen.lock().unwrap(), [(b"user.colour".to_vec(), b"blue".to_vec())]);
        seen.lock().unwrap().clear();
    }
    assert!(std::fs::metadata(&src).unwrap().is_dir() && file.metadata().unwrap().nlink() == 1);
}
