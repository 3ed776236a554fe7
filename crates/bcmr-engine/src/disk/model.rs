//! A disk in memory that keeps apart what is cached and what is on stable storage. For tests alone.
//!
//! Must not know what is proved on it. It promises no more than the sync calls do: what was not synced may be on the
//! medium or not, in any order, torn at sectors, a name before its content and a length before its bytes. A rename is
//! atomic, and an inode is there with its first name; nothing else is.

use super::{
    Attributes, Body, Bytes, Dirs, Fault, Files, Fill, Job, Keep, Phases, Placement, SealedDir, Side,
};
use crate::error::{Code, Op as Tried, Reason};
use crate::policy::{Changing, Durability, Reflink, Sparse, Verify};
use fastcopy::dir::{Lock, Name, NameBuf};
use fastcopy::errno;
use fastcopy::heritage::Heritage;
use fastcopy::meta::{Info, Kind, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that reach stable storage together.
const SECTOR_BYTES: u64 = 512;
/// Bytes of one write while a batch is filled.
const WRITE_BYTES: usize = 1 << 10;
/// Up to so many un-synced operations every subset is looked at.
const EXHAUSTIVE_OPS: usize = 4;
/// The device number.
pub(crate) const DEV: u64 = 77;
/// Who owns everything.
pub(crate) const ME: u32 = 7;
/// When names of a directory change: every moment is this one.
const NOW: Time = Time { sec: 1 << 40, nsec: 0 };
/// How a test fills files that it wants nothing special of.
pub(crate) const PLAIN: Fill<'static> = Fill {
    reflink: Reflink::Never,
    sparse: Sparse::Never,
    verify: Verify::Off,
    hash: false,
    durability: Durability::Cache,
    threads: 1,
    changing: Changing::Refused,
    dev: DEV,
    observe: &|_| true,
    waits: &|| true,
    work: None,
};

/// An inode for good; its number may be given to another once it is gone.
pub(crate) type Id = u64;
/// The directory everything is below.
pub(crate) const ROOT: Id = 1;

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) mtime: Time,
    pub(crate) data: Arc<Vec<u8>>,
    pub(crate) names: BTreeMap<Vec<u8>, Id>,
}

/// Everything a disk holds, also what no name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) nodes: BTreeMap<Id, Node>,
}

/// One change that a sync makes durable.
#[derive(Clone, Debug)]
enum Op {
    Write {
        id: Id,
        at: u64,
        bytes: Vec<u8>,
    },
    Length {
        id: Id,
        bytes: u64,
    },
    Meta {
        id: Id,
        mode: u32,
        mtime: Time,
    },
    /// All or nothing: names of directories and what they lead to from now on.
    Names(Vec<(Id, Vec<u8>, Option<Id>)>),
}

impl Op {
    /// The file it changes.
    fn file(&self) -> Option<Id> {
        match self {
            Op::Write { id, .. } | Op::Length { id, .. } | Op::Meta { id, .. } => Some(*id),
            Op::Names(_) => None,
        }
    }
    /// Whether it changes a file's contents, and no more than this range and the length.
    fn is_within(&self, from: u64, to: u64) -> bool {
        match self {
            Op::Write { at, bytes, .. } => *at >= from && *at + bytes.len() as u64 <= to,
            Op::Length { .. } => true,
            Op::Meta { .. } | Op::Names(_) => false,
        }
    }
    fn is_in(&self, dir: Id) -> bool {
        matches!(self, Op::Names(names) if names.iter().any(|(d, ..)| *d == dir))
    }
}

impl Image {
    fn empty() -> Image {
        let mut image = Image { nodes: BTreeMap::new() };
        image.nodes.insert(ROOT, Node::new(1, Kind::Dir, 0o700));
        image
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Write { id, at, bytes } => {
                let data = self.data(*id);
                let at = *at as usize;
                if data.len() < at {
                    data.resize(at, 0);
                }
                let (over, behind) = bytes.split_at(bytes.len().min(data.len() - at));
                data[at..at + over.len()].copy_from_slice(over);
                data.extend_from_slice(behind);
            }
            Op::Length { id, bytes } => self.data(*id).resize(*bytes as usize, 0),
            Op::Meta { id, mode, mtime } => {
                let node = self.nodes.get_mut(id).unwrap();
                (node.mode, node.mtime) = (*mode, *mtime);
            }
            Op::Names(names) => {
                for (dir, name, id) in names {
                    let dir = self.nodes.get_mut(dir).unwrap();
                    match id {
                        Some(id) => dir.names.insert(name.clone(), *id),
                        None => dir.names.remove(name),
                    };
                    dir.mtime = NOW;
                }
            }
        }
    }

    fn data(&mut self, id: Id) -> &mut Vec<u8> {
        Arc::make_mut(&mut self.nodes.get_mut(&id).unwrap().data)
    }

    /// What is at the end of `path`.
    pub(crate) fn at(&self, path: &[&[u8]]) -> Option<&Node> {
        self.id_at(path).and_then(|id| self.nodes.get(&id))
    }

    pub(crate) fn id_at(&self, path: &[&[u8]]) -> Option<Id> {
        path.iter().try_fold(ROOT, |id, name| self.nodes.get(&id)?.names.get(*name).copied())
    }

    /// What fstat says.
    pub(crate) fn info(&self, id: Id) -> Info {
        let node = &self.nodes[&id];
        let names = self.nodes.values().flat_map(|n| n.names.values());
        let size = node.data.len() as u64;
        Info {
            kind: node.kind,
            mode: node.mode,
            uid: ME,
            gid: ME,
            dev: DEV,
            ino: node.number,
            nlink: names.filter(|i| **i == id).count() as u64,
            size,
            blocks: size.div_ceil(512),
            rdev: 0,
            atime: node.mtime,
            mtime: node.mtime,
            ctime: node.mtime,
        }
    }

    /// Inodes that names lead to.
    pub(crate) fn reachable(&self) -> BTreeSet<Id> {
        let mut found = BTreeSet::from([ROOT]);
        let mut todo = vec![ROOT];
        while let Some(id) = todo.pop() {
            for below in self.nodes[&id].names.values() {
                if found.insert(*below) {
                    todo.push(*below);
                }
            }
        }
        found
    }

    /// All names anywhere.
    pub(crate) fn all_names(&self) -> BTreeSet<Vec<u8>> {
        self.reachable().iter().flat_map(|id| self.nodes[id].names.keys().cloned()).collect()
    }

    /// Whether such a state can be: no number is given twice.
    fn is_possible(&self) -> bool {
        let mut numbers = BTreeSet::new();
        self.reachable().iter().all(|id| numbers.insert(self.nodes[id].number))
    }
}

impl Node {
    fn new(number: u64, kind: Kind, mode: u32) -> Node {
        let mtime = Time { sec: 1, nsec: 0 };
        Node { number, kind, mode, mtime, data: Arc::default(), names: BTreeMap::new() }
    }
}

/// Which sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Contents of one file.
    Data,
    /// Contents of one file from here to there.
    Range(u64, u64),
    /// Contents and metadata of one file.
    File,
    /// The same, of a job.
    Job,
    /// A directory's names.
    Dir,
    /// Everything.
    All,
}

/// A sync that is asked for, as a planted fault sees it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) what: What,
    /// What the file is called.
    pub(crate) name: Vec<u8>,
    /// Names that were made or moved since the last sync of their directory.
    pub(crate) new_names: Vec<Vec<u8>>,
}

/// Which syncs a lying disk says yes to without doing anything.
pub(crate) type Lie = fn(&Asked) -> bool;

/// When and how it goes wrong; steps count from 1.
#[derive(Clone, Copy, Default)]
pub(crate) struct Trouble {
    /// From this call on the power is gone.
    pub(crate) cut_at: Option<u64>,
    /// This call fails.
    pub(crate) fail_at: Option<(u64, i32)>,
    pub(crate) lie: Option<Lie>,
}

#[derive(Clone)]
struct State {
    cached: Image,
    durable: Image,
    pending: Vec<Op>,
    next: Id,
    /// Handles that are open on an inode.
    open: HashMap<Id, u32>,
    /// Who has the lock of an inode.
    locks: HashMap<Id, u64>,
    handles: u64,
    step: u64,
    trouble: Trouble,
    nature: Nature,
    failed: Option<&'static str>,
    lied: u64,
}

/// What a file system is like.
#[derive(Clone, Copy, Default)]
pub(crate) struct Nature {
    /// It takes names that differ in the case of letters for one.
    pub(crate) folds: bool,
    /// A file shows another number under each spelling of its name, as with many a FUSE file system.
    pub(crate) renumbers: bool,
    /// It knows no rename that leaves alone what is there (EINVAL), and no links to make one of.
    pub(crate) only_plain_renames: bool,
    /// It keeps neither inode numbers nor births from mount to mount.
    pub(crate) forgets: bool,
    /// It has no files without names.
    pub(crate) names_all: bool,
    /// Those who make such files in one directory wait for each other.
    pub(crate) unnamed_wait: bool,
    /// Nothing is read past the page cache.
    pub(crate) only_cached: bool,
}

/// The disk.
pub(crate) struct Model(Arc<Mutex<State>>);

/// An open file or directory.
pub(crate) struct Handle {
    disk: Arc<Mutex<State>>,
    id: Id,
    key: u64,
    /// What its number shows besides.
    alias: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut s = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if s.locks.get(&self.id) == Some(&self.key) {
            s.locks.remove(&self.id);
        }
        if let Some(n) = s.open.get_mut(&self.id) {
            *n -= 1;
        }
    }
}

/// A small generator (splitmix64): a state is found again by its seed.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn os(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl State {
    fn new(image: Image) -> State {
        let next = image.nodes.keys().max().unwrap() + 1;
        State {
            cached: image.clone(),
            durable: image,
            pending: Vec::new(),
            next,
            open: HashMap::new(),
            locks: HashMap::new(),
            handles: 0,
            step: 0,
            trouble: Trouble::default(),
            nature: Nature::default(),
            failed: None,
            lied: 0,
        }
    }

    fn names(&self, dir: Id) -> io::Result<&BTreeMap<Vec<u8>, Id>> {
        self.cached.nodes.get(&dir).map(|n| &n.names).ok_or_else(|| os(errno::ENOENT))
    }

    fn find(&self, dir: Id, name: Name<'_>) -> io::Result<Id> {
        self.names(dir)?.get(&self.key(dir, name)).copied().ok_or_else(|| os(errno::ENOENT))
    }

    /// The name that is stored, where one that is the same is.
    fn key(&self, dir: Id, name: Name<'_>) -> Vec<u8> {
        let mut stored = self.names(dir).into_iter().flat_map(BTreeMap::keys);
        let same = stored.find(|n| self.nature.folds && n.eq_ignore_ascii_case(name.bytes()));
        same.cloned().unwrap_or_else(|| name.bytes().to_vec())
    }

    /// What the number of a file shows besides, by this name.
    fn alias(&self, dir: Id, name: Name<'_>) -> u64 {
        u64::from(self.nature.renumbers && self.key(dir, name) != name.bytes()) << 40
    }

    fn change(&mut self, op: Op) {
        self.cached.apply(&op);
        self.pending.push(op);
    }

    fn info(&self, id: Id) -> Info {
        self.cached.info(id)
    }

    /// The lowest number that nothing has: as eagerly given again as by ext4.
    fn number(&self) -> u64 {
        let mut used: BTreeSet<u64> =
            self.cached.reachable().iter().map(|id| self.cached.nodes[id].number).collect();
        used.extend(self.open.iter().filter(|(_, n)| **n > 0).map(|(id, _)| self.cached.nodes[id].number));
        (1..).find(|n| !used.contains(n)).unwrap()
    }

    fn make(&mut self, dir: Id, name: Name<'_>, kind: Kind, mode: u32) -> io::Result<Id> {
        if self.find(dir, name).is_ok() {
            return Err(os(errno::EEXIST));
        }
        let id = self.born(kind, mode);
        self.change(Op::Names(vec![(dir, name.bytes().to_vec(), Some(id))]));
        Ok(id)
    }

    /// An inode without a name.
    fn born(&mut self, kind: Kind, mode: u32) -> Id {
        let (id, node) = (self.next, Node::new(self.number(), kind, mode));
        self.next += 1;
        self.cached.nodes.insert(id, node.clone());
        self.durable.nodes.insert(id, node);
        id
    }

    /// Makes durable what `which` picks.
    fn flush(&mut self, which: impl Fn(&Op) -> bool) {
        let pending = std::mem::take(&mut self.pending);
        for op in pending {
            if which(&op) {
                self.durable.apply(&op);
            } else {
                self.pending.push(op);
            }
        }
    }

    fn asked(&self, what: What, id: Id) -> Asked {
        let mut names = self.cached.nodes.values().flat_map(|n| n.names.iter());
        let name = names.find(|(_, i)| **i == id).map(|(n, _)| n.clone()).unwrap_or_default();
        let mut new_names = Vec::new();
        for op in &self.pending {
            if let Op::Names(names) = op {
                new_names.extend(names.iter().filter(|(.., id)| id.is_some()).map(|(_, n, _)| n.clone()));
            }
        }
        Asked { what, name, new_names }
    }
}

impl Model {
    pub(crate) fn new() -> Model {
        Model::boot(Image::empty())
    }

    /// The machine comes up again: what no name leads to is gone, and so are locks.
    pub(crate) fn boot(mut image: Image) -> Model {
        let reachable = image.reachable();
        image.nodes.retain(|id, _| reachable.contains(id));
        Model(Arc::new(Mutex::new(State::new(image))))
    }

    /// The program was killed, the machine goes on: un-synced is still un-synced.
    pub(crate) fn killed(&self) -> Model {
        let mut s = self.state().clone();
        (s.locks, s.open, s.step, s.trouble) = (HashMap::new(), HashMap::new(), 0, Trouble::default());
        (s.failed, s.lied) = (None, 0);
        Model(Arc::new(Mutex::new(s)))
    }

    pub(crate) fn trouble(&self, trouble: Trouble) {
        self.state().trouble = trouble;
    }

    pub(crate) fn nature(&self, nature: Nature) {
        self.state().nature = nature;
    }

    pub(crate) fn steps(&self) -> u64 {
        self.state().step
    }

    /// Which call failed.
    pub(crate) fn failed(&self) -> Option<&'static str> {
        self.state().failed
    }

    /// How many syncs were answered without being done.
    pub(crate) fn lied(&self) -> u64 {
        self.state().lied
    }

    /// What programs see.
    pub(crate) fn cached(&self) -> Image {
        self.state().cached.clone()
    }

    pub(crate) fn root(&self) -> Handle {
        self.handle(ROOT)
    }

    /// A file that has been there for long.
    pub(crate) fn old_file(&self, dir: &Handle, name: &[u8], bytes: &[u8]) {
        let mut s = self.state();
        let name = NameBuf::new(name).unwrap();
        let id = s.make(dir.id, name.as_name(), Kind::File, 0o644).unwrap();
        s.change(Op::Write { id, at: 0, bytes: bytes.to_vec() });
        s.flush(|_| true);
    }

    /// The medium lost what it had: a byte of a file is another one.
    pub(crate) fn rot(&self, path: &[&[u8]], at: usize) {
        let mut s = self.state();
        let id = s.cached.id_at(path).unwrap();
        s.cached.data(id)[at] ^= 0x40;
        s.durable.data(id)[at] ^= 0x40;
    }

    /// States that a power cut may leave now.
    pub(crate) fn after_power_cut(&self, rng: &mut Rng, samples: u64) -> Vec<Image> {
        let s = self.state();
        let ops = &s.pending;
        let mut states = Vec::new();
        let add = |pick: &mut dyn FnMut(usize, &Op) -> Option<Op>| {
            let mut image = s.durable.clone();
            for (n, op) in ops.iter().enumerate() {
                if let Some(op) = pick(n, op) {
                    image.apply(&op);
                }
            }
            image
        };
        if ops.len() <= EXHAUSTIVE_OPS {
            for set in 0..1usize << ops.len() {
                states.push(add(&mut |n, op| (set >> n & 1 == 1).then(|| op.clone())));
            }
        } else {
            states.push(add(&mut |_, _| None));
            states.push(add(&mut |_, op| Some(op.clone())));
            states.push(add(&mut |_, op| op.file().is_none().then(|| op.clone())));
            states.push(add(&mut |_, op| op.file().is_some().then(|| op.clone())));
        }
        for _ in 0..if ops.is_empty() { 0 } else { samples } {
            let of_eight = 1 + rng.below(7);
            let mut image = add(&mut |_, op| (rng.below(8) < of_eight).then(|| torn(op, rng)));
            let touched: BTreeSet<Id> = ops.iter().filter_map(Op::file).collect();
            for id in touched {
                // A length is on stable storage by itself, before or after the bytes.
                let lengths = [s.durable.nodes[&id].data.len(), s.cached.nodes[&id].data.len()];
                if rng.below(4) == 0 {
                    image.data(id).resize(lengths[rng.below(2) as usize], 0);
                }
            }
            states.push(image);
        }
        states.retain(Image::is_possible);
        states
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, id: Id) -> Handle {
        let mut s = self.state();
        s.handles += 1;
        *s.open.entry(id).or_insert(0) += 1;
        Handle { disk: self.0.clone(), id, key: s.handles, alias: 0 }
    }

    /// Every call comes by here first.
    fn step(&self, call: &'static str) -> io::Result<MutexGuard<'_, State>> {
        self.step_or(call, |_| {})
    }

    /// `loss`: what the one failure destroys besides.
    fn step_or(
        &self,
        call: &'static str,
        loss: impl FnOnce(&mut State),
    ) -> io::Result<MutexGuard<'_, State>> {
        let mut s = self.state();
        s.step += 1;
        let step = s.step;
        if s.trouble.cut_at.is_some_and(|at| step >= at) {
            return Err(os(errno::EIO));
        }
        match s.trouble.fail_at {
            Some((at, code)) if at == step => {
                s.failed = Some(call);
                loss(&mut s);
                Err(os(code))
            }
            _ => Ok(s),
        }
    }

    fn sync(&self, call: &'static str, what: What, id: Id) -> io::Result<()> {
        let of_it = |op: &Op| match what {
            Data => op.file() == Some(id) && !matches!(op, Op::Meta { .. }),
            Range(from, to) => op.file() == Some(id) && op.is_within(from, to),
            File | Job => op.file() == Some(id),
            // fsync(2) brings the metadata of a directory as well.
            Dir => op.is_in(id) || op.file() == Some(id),
            All => true,
        };
        use What::{All, Data, Dir, File, Job, Range};
        // The kernel tells once and takes the pages for clean: what is lost now no later sync brings.
        let loss = |s: &mut State| s.pending.retain(|op| op.file().is_none() || !of_it(op));
        let mut s = self.step_or(call, loss)?;
        if s.trouble.lie.is_some_and(|lie| lie(&s.asked(what, id))) {
            s.lied += 1;
        } else {
            s.flush(of_it);
        }
        Ok(())
    }

    fn rename(&self, from: Id, name: Name<'_>, to: Id, new: Name<'_>, only_new: bool) -> io::Result<()> {
        let mut s = self.step("rename")?;
        let id = s.find(from, name)?;
        if only_new && s.nature.only_plain_renames {
            return Err(os(errno::EINVAL));
        }
        if only_new && s.find(to, new).is_ok() {
            return Err(os(errno::EEXIST));
        }
        let (old, new) = (s.key(from, name), s.key(to, new));
        s.change(Op::Names(vec![(from, old, None), (to, new, Some(id))]));
        Ok(())
    }

    fn unlink(&self, dir: Id, name: Name<'_>, kind: Kind) -> io::Result<()> {
        let mut s = self.step("unlink")?;
        let id = s.find(dir, name)?;
        let node = &s.cached.nodes[&id];
        match (kind == Kind::Dir, node.kind == Kind::Dir) {
            (true, false) => return Err(os(errno::ENOTDIR)),
            (false, true) => return Err(os(errno::EISDIR)),
            (true, true) if !node.names.is_empty() => return Err(os(errno::ENOTEMPTY)),
            _ => {}
        }
        let name = s.key(dir, name);
        s.change(Op::Names(vec![(dir, name, None)]));
        Ok(())
    }

    fn list(&self, dir: Id) -> io::Result<Vec<(NameBuf, Id)>> {
        let s = self.step("list")?;
        Ok(s.names(dir)?.iter().map(|(n, id)| (NameBuf::new(n).unwrap(), *id)).collect())
    }

    fn tree(&self, dir: Id, name: Name<'_>) -> io::Result<()> {
        match self.unlink(dir, name, Kind::File) {
            Err(e) if e.raw_os_error() == Some(errno::EISDIR) => {}
            Err(e) if e.raw_os_error() == Some(errno::ENOENT) => return Ok(()),
            other => return other,
        }
        let here = self.state().find(dir, name)?;
        for (inner, _) in self.list(here)? {
            self.tree(here, inner.as_name())?;
        }
        self.unlink(dir, name, Kind::Dir)
    }

    fn merge(&self, from: Id, to: Id, only_new: bool) -> io::Result<()> {
        let mut merged = Ok(());
        for (name, id) in self.list(from)? {
            let name = name.as_name();
            match self.rename(from, name, to, name, true) {
                Err(e) if e.raw_os_error() == Some(errno::EEXIST) => {
                    let there = self.state().find(to, name)?;
                    if self.state().info(id).kind == Kind::Dir {
                        self.merge(id, there, only_new)?;
                        self.unlink(from, name, Kind::Dir)?;
                    } else if only_new {
                        merged = Err(e);
                    } else {
                        self.sync("sync all", What::All, from)?;
                        self.rename(from, name, to, name, false)?;
                    }
                }
                other => other?,
            }
        }
        merged
    }

    fn stage_one(&self, dir: &Handle, apart: Option<&Handle>, job: &mut Job<'_, Model>) -> Result<(), Fault> {
        if let Body::HardLink(from, name) = &job.body {
            let mut s = self.step("link").map_err(dest(Tried::Link))?;
            let id = s.find(from.id, *name).map_err(dest(Tried::Link))?;
            s.change(Op::Names(vec![(dir.id, job.name_now().bytes().to_vec(), Some(id))]));
            drop(s);
            job.staged = true;
            return Ok(());
        }
        if matches!(job.place, Placement::There) || !matches!(job.body, Body::File(_)) {
            return Err(Fault::ours(Side::Dest, Tried::Create, Code::Unsupported, Reason::NotOnThisDisk));
        }
        let made = match job.place {
            Placement::Unnamed => self.unnamed_file(apart.unwrap_or(dir), 0o600),
            _ => self.create_file(dir, job.name_now(), 0o600),
        };
        job.file = Some(made.map_err(dest(Tried::Create))?);
        job.staged = true;
        Ok(())
    }

    /// The first name of a file that had none.
    fn name_file(&self, dir: Id, file: Id, name: Name<'_>) -> io::Result<()> {
        let mut s = self.step("link")?;
        if s.find(dir, name).is_ok() {
            return Err(os(errno::EEXIST));
        }
        s.change(Op::Names(vec![(dir, name.bytes().to_vec(), Some(file))]));
        Ok(())
    }

    fn fill_one(&self, job: &mut Job<'_, Model>, how: &Fill<'_>) -> Result<(), Fault> {
        let (Body::File(src), Some(file)) = (&job.body, &job.file) else { return Ok(()) };
        let mut hasher = blake3::Hasher::new();
        let mut room = [0; WRITE_BYTES];
        loop {
            let n = Bytes::read_at(src, job.bytes, &mut room)
                .map_err(|e| Fault::os(Side::Source, Tried::Read, e))?;
            if n == 0 {
                break;
            }
            hasher.update(&room[..n]);
            self.write_at(file, job.bytes, &room[..n]).map_err(dest(Tried::Write))?;
            job.bytes += n as u64;
        }
        job.hash = how.hash.then(|| hasher.finalize());
        Ok(())
    }

    fn verify_one(&self, job: &Job<'_, Model>) -> Result<(), Fault> {
        let (Some(file), Some(hash)) = (&job.file, &job.hash) else { return Ok(()) };
        let mut room = vec![0; job.bytes as usize + 1];
        let n = self.read_at(file, 0, &mut room).map_err(dest(Tried::ReadBack))?;
        if blake3::hash(&room[..n]) == *hash {
            return Ok(());
        }
        Err(Fault::ours(Side::Dest, Tried::Verify, Code::Mismatch, Reason::NotWhatWasRead))
    }
}

fn dest(op: Tried) -> impl Fn(io::Error) -> Fault {
    move |e| Fault::os(Side::Dest, op, e)
}

/// Mostly the same; sometimes only some sectors of a write.
fn torn(op: &Op, rng: &mut Rng) -> Op {
    let Op::Write { id, at, bytes } = op else { return op.clone() };
    if rng.below(4) != 0 {
        return op.clone();
    }
    // One stretch of whole sectors: a head, a tail or something in between.
    let (first, last) = (at / SECTOR_BYTES, (at + bytes.len() as u64).div_ceil(SECTOR_BYTES));
    let from = first + rng.below(last - first + 1);
    let to = from + rng.below(last - from + 1);
    let start = (from * SECTOR_BYTES).clamp(*at, at + bytes.len() as u64);
    let end = (to * SECTOR_BYTES).clamp(start, at + bytes.len() as u64);
    Op::Write { id: *id, at: start, bytes: bytes[(start - at) as usize..(end - at) as usize].to_vec() }
}

fn each(jobs: &mut [Job<'_, Model>], does: impl Fn(&mut Job<'_, Model>) -> Result<(), Fault>) {
    for job in jobs.iter_mut().filter(|j| j.fault.is_none()) {
        if let Err(fault) = does(job) {
            job.fault = Some(fault);
        }
    }
}

impl Dirs for Model {
    /// Attributes are no part of the model.
    fn attributes_differ(
        &self,
        _: &Handle,
        _: Name<'_>,
        _: Attributes<'_>,
        _: Kind,
        _: &Keep,
    ) -> io::Result<Option<crate::error::Reason>> {
        Ok(None)
    }

    fn dir_meant(&self, _: &Handle, info: Info) -> io::Result<Info> {
        Ok(info)
    }

    type Dir = Handle;
    type Hand = ();

    fn hand(&self) {}

    fn look(&self, dir: &Handle, name: Name<'_>) -> io::Result<Option<Info>> {
        let s = self.step("look")?;
        s.names(dir.id)?;
        let alias = s.alias(dir.id, name);
        Ok(s.find(dir.id, name).ok().map(|id| s.info(id)).map(|info| Info { ino: info.ino | alias, ..info }))
    }

    fn btime(&self, dir: &Handle, name: Name<'_>) -> io::Result<u64> {
        // Each comes after all others.
        self.step("look")?.find(dir.id, name)
    }

    fn own_birth(&self, dir: &Handle) -> io::Result<u64> {
        self.step("stat directory").map(|_| dir.id)
    }

    fn keeps_identities(&self, _: &Handle) -> io::Result<bool> {
        self.step("stat file system").map(|s| !s.nature.forgets && !s.nature.renumbers)
    }

    fn spells(&self, dir: &Handle, name: Name<'_>) -> io::Result<bool> {
        Ok(self.list(dir.id)?.iter().any(|(n, _)| n.as_name() == name))
    }

    fn info(&self, dir: &Handle) -> io::Result<Info> {
        let info = self.step("stat directory")?.info(dir.id);
        Ok(Info { ino: info.ino | dir.alias, ..info })
    }

    fn open_dir(&self, dir: &Handle, name: Name<'_>) -> io::Result<Handle> {
        let id = self.step("open directory")?.find(dir.id, name)?;
        if self.state().info(id).kind != Kind::Dir {
            return Err(os(errno::ENOTDIR));
        }
        let alias = self.state().alias(dir.id, name);
        let mut handle = self.handle(id);
        handle.alias = alias;
        Ok(handle)
    }

    fn make_dir(&self, dir: &Handle, name: Name<'_>, mode: u32) -> io::Result<()> {
        self.step("make directory")?.make(dir.id, name, Kind::Dir, mode).map(|_| ())
    }

    fn set_mode(&self, dir: &Handle, mode: u32) -> io::Result<()> {
        let mut s = self.step("set mode")?;
        let mtime = s.info(dir.id).mtime;
        s.change(Op::Meta { id: dir.id, mode, mtime });
        Ok(())
    }

    fn set_times(&self, dir: &Handle, _: Time, modified: Time) -> io::Result<()> {
        let mut s = self.step("set times")?;
        let mode = s.info(dir.id).mode;
        s.change(Op::Meta { id: dir.id, mode, mtime: modified });
        Ok(())
    }

    fn lock(&self, dir: &Handle) -> Lock {
        self.lock_file(dir)
    }

    fn has_default_acl(&self, _: &Handle) -> bool {
        false
    }

    fn read_link(&self, _: &Handle, _: Name<'_>) -> io::Result<CString> {
        Err(os(errno::EINVAL)) // it holds no links
    }

    fn remove_dir(&self, dir: &Handle, name: Name<'_>) -> io::Result<()> {
        self.unlink(dir.id, name, Kind::Dir)
    }

    fn find(&self, dir: &Handle, most: usize, wanted: &dyn Fn(Name<'_>) -> bool) -> io::Result<Vec<NameBuf>> {
        let names = self.list(dir.id)?.into_iter().map(|(name, _)| name).take(most);
        Ok(names.filter(|n| wanted(n.as_name())).collect())
    }

    fn publish_dir(&self, dir: &Handle, stage: Name<'_>, name: Name<'_>) -> io::Result<()> {
        self.rename(dir.id, stage, dir.id, name, true)
    }

    fn seal_dir(&self, (): &mut (), dir: &Handle, _: Attributes<'_>, info: &Info, _: &Keep) -> SealedDir {
        let lost = match self.step("seal directory") {
            Ok(mut s) => {
                s.change(Op::Meta { id: dir.id, mode: info.mode, mtime: info.mtime });
                Vec::new()
            }
            Err(e) => vec![Fault::os(Side::Dest, Tried::SetModeOf, e)],
        };
        SealedDir { lost, set_attributes: false }
    }

    fn remove_tree(&self, dir: &Handle, name: Name<'_>) -> io::Result<()> {
        self.tree(dir.id, name)
    }

    fn merge_into(&self, from: &Handle, to: &Handle, only_new: bool) -> io::Result<()> {
        self.merge(from.id, to.id, only_new)
    }

    fn sync_dir(&self, dir: &Handle) -> io::Result<()> {
        Model::sync(self, "sync directory", What::Dir, dir.id)
    }

    fn sync_all(&self, dir: &Handle) -> io::Result<()> {
        Model::sync(self, "sync all", What::All, dir.id)
    }

    fn remove_file(&self, dir: &Handle, name: Name<'_>) -> io::Result<()> {
        match self.unlink(dir.id, name, Kind::File) {
            Err(e) if e.raw_os_error() == Some(errno::ENOENT) => Ok(()),
            other => other,
        }
    }
}

impl Files for Model {
    type File = Handle;

    fn create_file(&self, dir: &Handle, name: Name<'_>, mode: u32) -> io::Result<Handle> {
        let id = self.step("create")?.make(dir.id, name, Kind::File, mode)?;
        Ok(self.handle(id))
    }

    fn unnamed_files_wait(&self, _: &Handle) -> bool {
        self.state().nature.unnamed_wait
    }

    fn heritage(&self, _: &Handle) -> Option<Heritage> {
        Some(Heritage::default())
    }

    fn unnamed_file(&self, _: &Handle, mode: u32) -> io::Result<Handle> {
        let mut s = self.step("create")?;
        if s.nature.names_all {
            return Err(os(errno::EOPNOTSUPP));
        }
        let id = s.born(Kind::File, mode);
        drop(s);
        Ok(self.handle(id))
    }

    fn open_file(&self, dir: &Handle, name: Name<'_>) -> io::Result<Option<Handle>> {
        let id = self.step("open")?.find(dir.id, name);
        match id {
            Ok(id) => Ok(Some(self.handle(id))),
            Err(e) if e.raw_os_error() == Some(errno::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn open_to_read(&self, dir: &Handle, name: Name<'_>) -> io::Result<Handle> {
        self.open_file(dir, name)?.ok_or_else(|| os(errno::ENOENT))
    }

    fn file_info(&self, file: &Handle) -> io::Result<Info> {
        Ok(self.step("stat")?.info(file.id))
    }

    fn file_identity(&self, file: &Handle) -> io::Result<(Info, u64)> {
        Ok((self.step("stat")?.info(file.id), file.id))
    }

    fn lock_file(&self, file: &Handle) -> Lock {
        let mut s = self.state();
        match *s.locks.entry(file.id).or_insert(file.key) == file.key {
            true => Lock::Held,
            false => Lock::Busy,
        }
    }

    fn read_at(&self, file: &Handle, at: u64, room: &mut [u8]) -> io::Result<usize> {
        let s = self.step("read")?;
        let data = s.cached.nodes[&file.id].data.get(at as usize..).unwrap_or_default();
        let n = room.len().min(data.len());
        room[..n].copy_from_slice(&data[..n]);
        Ok(n)
    }

    fn direct(&self, file: &Handle) -> io::Result<Handle> {
        if self.state().nature.only_cached {
            return Err(os(errno::EINVAL));
        }
        Ok(self.handle(file.id))
    }

    fn read_direct(&self, file: &Handle, at: u64, room: &mut [u8]) -> io::Result<usize> {
        self.read_at(file, at, room)
    }

    fn write_at(&self, file: &Handle, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.step("write")?.change(Op::Write { id: file.id, at, bytes: bytes.to_vec() });
        Ok(())
    }

    fn copy_range(&self, from: &OwnedFd, to: &Handle, at: u64, bytes: u64) -> Result<u64, Fault> {
        let mut room = vec![0; bytes as usize];
        let n = Bytes::read_at(from, at, &mut room).map_err(|e| Fault::os(Side::Source, Tried::Read, e))?;
        for (i, piece) in room[..n].chunks(WRITE_BYTES).enumerate() {
            let at = at + (i * WRITE_BYTES) as u64;
            self.write_at(to, at, piece).map_err(|e| Fault::os(Side::Dest, Tried::CopyTo, e))?;
        }
        Ok(n as u64)
    }

    fn set_len(&self, file: &Handle, bytes: u64) -> io::Result<()> {
        self.step("set length")?.change(Op::Length { id: file.id, bytes });
        Ok(())
    }

    fn reserve(&self, _: &Handle, _: u64) -> io::Result<()> {
        match self.step("reserve") {
            Err(e) if Code::of(&e) == Code::NoSpace => Err(e),
            _ => Ok(()),
        }
    }

    fn sync_data(&self, file: &Handle) -> io::Result<()> {
        Model::sync(self, "sync data", What::Data, file.id)
    }

    fn sync_named(&self, dir: &Handle, name: Name<'_>) -> io::Result<()> {
        self.sync_file(&self.open_to_read(dir, name)?)
    }

    fn sync_range(&self, file: &Handle, at: u64, bytes: u64) -> io::Result<()> {
        Model::sync(self, "sync range", What::Range(at, at + bytes), file.id)
    }

    fn sync_file(&self, file: &Handle) -> io::Result<()> {
        Model::sync(self, "sync file", What::File, file.id)
    }

    /// It makes nothing durable, and what it fails to write out is lost: a sync need not tell it again.
    fn write_behind(&self, file: &Handle, _: u64, _: u64) -> io::Result<()> {
        self.step_or("sync behind", |s| s.pending.retain(|op| op.file() != Some(file.id))).map(drop)
    }

    fn forget(&self, _: &Handle, _: u64, _: u64) {}
}

impl Phases for Model {
    fn stage(
        &self,
        dir: &Handle,
        apart: Option<&Handle>,
        jobs: &mut [Job<'_, Model>],
        _: &Keep,
        _: &dyn Fn() -> bool,
    ) {
        each(jobs, |job| self.stage_one(dir, apart, job));
    }

    fn fill(&self, (): &mut (), jobs: &mut [Job<'_, Model>], how: &Fill<'_>) {
        each(jobs, |job| self.fill_one(job, how));
    }

    fn verify(&self, (): &mut (), jobs: &mut [Job<'_, Model>], how: &Fill<'_>) {
        if how.verify != Verify::Off {
            each(jobs, |job| self.verify_one(job));
        }
    }

    fn seal(&self, (): &mut (), _: &Handle, jobs: &mut [Job<'_, Model>], _: &Keep) {
        each(jobs, |job| {
            let Some(file) = &job.file else { return Ok(()) };
            let mut s = self.step("seal").map_err(dest(Tried::SetModeOf))?;
            s.change(Op::Meta { id: file.id, mode: job.info.mode, mtime: job.info.mtime });
            Ok(())
        });
    }

    fn sync(&self, jobs: &mut [Job<'_, Model>]) {
        each(jobs, |job| match &job.file {
            Some(file) => Model::sync(self, "sync job", What::Job, file.id).map_err(dest(Tried::Sync)),
            None => Ok(()),
        });
    }

    fn commit(&self, dir: &Handle, jobs: &mut [Job<'_, Model>]) {
        each(jobs, |job| {
            let file = job.file.take();
            let stage = match (&job.place, file) {
                (Placement::Stage(stage), _) => stage,
                (Placement::Unnamed, Some(file)) => {
                    self.name_file(dir.id, file.id, job.name).map_err(dest(Tried::RenameIntoPlace))?;
                    return Ok(());
                }
                _ => return Ok(()),
            };
            self.rename(dir.id, stage.as_name(), dir.id, job.name, job.only_new)
                .map_err(dest(Tried::RenameIntoPlace))?;
            job.staged = false;
            Ok(())
        });
    }

    fn discard(&self, dir: &Handle, job: &mut Job<'_, Model>) -> io::Result<()> {
        job.file = None;
        if job.staged && !matches!(job.place, Placement::Unnamed) {
            self.remove_file(dir, job.name_now())?;
            job.staged = false;
        }
        Ok(())
    }
}
