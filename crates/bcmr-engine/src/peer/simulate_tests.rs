//! Both ends of a transfer in one process, the code that a client and a server run, over wires in memory. A seed decides
//! what is copied, what stands in the way, what the store has and no longer has, what changes meanwhile, and what the
//! wires do. Every one must end, and what is said to have landed must be there.
//!
//! `BCMR_SEEDS=FROM..TO` runs those seeds; `cargo xtask simulate` does that in parallel.

#![cfg(test)]
#![allow(clippy::disallowed_methods, reason = "tests look from outside")]

use super::questions::RemoteQuestions;
use super::receiving::{ReceivingEnd, receive_all, reply_on};
use super::sending::send_all;
use super::server::with_reports;
use crate::accounts::Accounts;
use crate::alter::OwnersAndModes;
use crate::blocks::{BLOCK_BYTES, DEDUP_BYTES_MIN, LARGE_BYTES_MIN, block_cv, blocks_of};
use crate::codec::Unpacker;
use crate::disk::sys::Sys;
use crate::error::{Code, Error, Result};
use crate::event::{Cancel, Event, Front, Progress, Question, Summary, Watch};
use crate::peer::asked::Asked;
use crate::peer::from_wire::handler::{Head, MessageHandler, NextMessage, ReceiverBuffers};
use crate::peer::from_wire::transfer::IncomingTransfer;
use crate::peer::incoming::Incoming;
use crate::peer::landing::{self, LocalSide};
use crate::peer::owners_here::OwnersHere;
use crate::peer::reply::Reply;
use crate::policy::*;
use crate::receiver::arriving::Load;
use crate::receiver::directories::Marks;
use crate::receiver::plan::tests::policy as base_policy;
use crate::remote::Compress;
use crate::sender::announce::ToSend;
use crate::sender::filter::Filter;
use crate::sender::out::{Counted, SendObserver};
use crate::sender::sending::{How, Links};
use crate::store::{Block, Store};
use crate::transport::conn::{Packet, Timeouts};
use crate::transport::frames_of;
use crate::transport::memory::{self, Fault, Happening, Weather, draw};
use crate::transport::stream::Stream;
use crate::transport::{Agreed, Peer};
use crate::verbs::operands::{self, DestLink, Reach, Resolved};
use bcmr_wire::handshake::Features;
use bcmr_wire::message::{self, Owner};
use bcmr_wire::state::State;
use fastcopy::dir::Dir;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsStr};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Numbers drawn from a seed.
pub(super) struct Lots(pub(super) u64);

impl Lots {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        draw(&mut self.0) % n.max(1)
    }
    /// True once in `n`.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    /// A size up to `most`: of small ones as many as of each greater magnitude, so that most cost little.
    pub(super) fn size(&mut self, most: u64) -> u64 {
        let magnitude = self.below(u64::from(most.ilog2()) + 2);
        self.below(1 << magnitude).min(most)
    }
    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// What is expected of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Luck {
    /// Nothing goes wrong on the way: both sides end with a summary.
    Fair,
    /// A wire is cut, corrupted or stalls: both sides end, with whatever error.
    Broken,
    /// One side is told to stop.
    Cancelled,
    /// The receiver's disk takes only so many bytes and names: both sides end, and no name has half a file.
    Full,
}

struct Scene {
    lots: Lots,
    root: PathBuf,
    luck: Luck,
    policy: CopyPolicy,
    happenings: Vec<Happening>,
    as_taken: AsTaken,
    /// Paths below `src` whose landing is expected to give exactly the source.
    files: BTreeSet<PathBuf>,
    /// A bit comes out wrong on a wire, maybe in a name: names have no hash of their own, as ssh and the sealed plane
    /// vouch for every byte, and neither is played here.
    flips: bool,
    /// Older versions at the destination as another program leaves them that writes to them meanwhile.
    written: BTreeMap<PathBuf, Vec<u8>>,
}

impl Scene {
    /// Nothing is there yet, and nothing goes wrong.
    fn new(lots: Lots, root: &Path, policy: CopyPolicy) -> Scene {
        Scene {
            lots,
            root: root.to_owned(),
            luck: Luck::Fair,
            policy,
            happenings: Vec::new(),
            as_taken: Vec::new(),
            files: BTreeSet::new(),
            flips: false,
            written: BTreeMap::new(),
        }
    }

    fn src(&self) -> PathBuf {
        self.root.join("src")
    }
    /// What the operand becomes.
    fn landed(&self) -> PathBuf {
        self.root.join("dst/src")
    }

    fn put(&mut self, at: &Path, bytes: &[u8]) {
        std::fs::write(self.src().join(at), bytes).unwrap();
        self.files.insert(at.to_owned());
    }

    /// A file of `size` bytes with a few that are not zero.
    fn put_large(&mut self, at: &Path, size: u64) {
        let file = std::fs::File::create(self.src().join(at)).unwrap();
        file.set_len(size).unwrap();
        for _ in 0..self.lots.below(5) {
            let word = draw(&mut self.lots.0).to_le_bytes();
            file.write_all_at(&word, self.lots.below(size - 8)).unwrap();
        }
        self.files.insert(at.to_owned());
    }

    fn fill(&mut self) {
        let dirs = ["", "a", "a/b", "c"];
        for dir in dirs {
            std::fs::create_dir_all(self.src().join(dir)).unwrap();
        }
        for n in 0..self.lots.below(30) {
            let at = Path::new(self.lots.of(&dirs)).join(format!("s{n}"));
            let bytes = vec![n as u8; self.lots.size(LARGE_BYTES_MIN - 1) as usize];
            self.put(&at, &bytes);
            if self.lots.one_in(6) {
                let other = Path::new(self.lots.of(&dirs)).join(format!("h{n}"));
                std::fs::hard_link(self.src().join(&at), self.src().join(&other)).unwrap();
                self.files.insert(other);
            }
            if self.lots.one_in(9) {
                let other = self.src().join(self.lots.of(&dirs)).join(format!("l{n}"));
                std::os::unix::fs::symlink("nowhere", other).unwrap();
            }
        }
        for n in 0..self.lots.below(4) {
            let at = Path::new(self.lots.of(&dirs)).join(format!("m{n}"));
            let size = LARGE_BYTES_MIN + self.lots.size(3 * BLOCK_BYTES);
            self.put_large(&at, size);
            if self.lots.one_in(4) {
                let other = Path::new(self.lots.of(&dirs)).join(format!("n{n}"));
                std::fs::hard_link(self.src().join(&at), self.src().join(&other)).unwrap();
                self.files.insert(other);
            }
        }
    }

    /// Nothing is expected of a file any more, under none of its names.
    fn forget(&mut self, at: &Path) {
        let src = self.src();
        let inode = |at: &Path| std::fs::metadata(src.join(at)).unwrap().ino();
        let gone = inode(at);
        self.files.retain(|other| inode(other) != gone);
    }

    /// What is at the destination before: older or newer, the same, or something else in the way.
    fn fill_destination(&mut self) {
        let landed = self.landed();
        for at in self.files.clone() {
            let there = landed.join(&at);
            if !self.lots.one_in(4) {
                continue;
            }
            std::fs::create_dir_all(there.parent().unwrap()).unwrap();
            let what = self.lots.below(5);
            match what {
                0 => {
                    std::fs::create_dir(&there).unwrap();
                    self.forget(&at);
                }
                1 => std::fs::write(&there, b"old").unwrap(),
                2 => {
                    std::fs::copy(self.src().join(&at), &there).unwrap();
                    let file = std::fs::File::options().write(true).open(&there).unwrap();
                    let length = file.metadata().unwrap().len();
                    if length > 10 {
                        file.write_all_at(b"x", self.lots.below(length)).unwrap();
                    }
                }
                3 => {
                    let half = std::fs::metadata(self.src().join(&at)).unwrap().len() / 2;
                    std::fs::copy(self.src().join(&at), &there).unwrap();
                    std::fs::File::options().write(true).open(&there).unwrap().set_len(half).unwrap();
                }
                _ => drop(std::fs::copy(self.src().join(&at), &there).unwrap()),
            }
            if (1..=3).contains(&what) {
                make_old(&there);
            }
            if self.policy.collide != Collide::Replace || self.policy.resume == Resume::Append {
                self.forget(&at);
            }
        }
        if self.lots.one_in(6) {
            std::fs::create_dir_all(&landed).unwrap();
            if std::fs::symlink_metadata(landed.join("c")).is_err() {
                std::fs::write(landed.join("c"), b"in the way").unwrap();
                self.files.retain(|at| !at.starts_with("c"));
            }
        }
    }

    /// Files of which the destination has an older version, and one more that changes while it is looked at.
    fn fill_versions(&mut self, lots: &mut Lots, is_small: bool) {
        for n in 0..lots.below(4) {
            let at = PathBuf::from(format!("v{n}"));
            let size = LARGE_BYTES_MIN + lots.size(6 * BLOCK_BYTES);
            let mut bytes = vec![0; size as usize];
            blake3::Hasher::new().update(&draw(&mut lots.0).to_le_bytes()).finalize_xof().fill(&mut bytes);
            self.put(&at, &bytes);
            for _ in 0..lots.below(6) {
                let place = lots.below(bytes.len() as u64) as usize;
                let length = lots.size(BLOCK_BYTES) as usize;
                match lots.below(4) {
                    0 => bytes[place] ^= 1,
                    1 => drop(bytes.splice(place..place, vec![n as u8; length])),
                    2 => drop(bytes.drain(place..(place + length).min(bytes.len()))),
                    _ => bytes.rotate_left(place),
                }
                bytes.resize(bytes.len().max(1), 0);
            }
            let there = self.landed().join(&at);
            std::fs::create_dir_all(self.landed()).unwrap();
            std::fs::write(&there, &bytes).unwrap();
            let file = make_old(&there);
            if self.policy.collide != Collide::Replace || self.policy.resume == Resume::Append {
                self.forget(&at);
            } else if lots.one_in(3) && !is_small {
                // Another program writes to it. What has its name by then is another file.
                let place = lots.below(bytes.len() as u64);
                let writes = b"written meanwhile";
                let end = place as usize + writes.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[place as usize..end].copy_from_slice(writes);
                self.written.insert(at, bytes);
                let change = move || drop(file.write_all_at(writes, place));
                self.happenings.push((lots.below(200), Box::new(change)));
            }
        }
    }

    /// Files that are what others are, or nearly.
    fn fill_repeats(&mut self, lots: &mut Lots) {
        let all: Vec<PathBuf> = self.files.iter().cloned().collect();
        for n in 0..lots.below(8) {
            let Some(at) = all.get(lots.below(all.len() as u64) as usize) else { return };
            let mut bytes = std::fs::read(self.src().join(at)).unwrap();
            if !bytes.is_empty() && lots.one_in(3) {
                let place = lots.below(bytes.len() as u64) as usize;
                bytes[place] ^= 1;
            }
            let other = Path::new(lots.of(&["", "a", "a/b"])).join(format!("r{n}"));
            self.put(&other, &bytes);
        }
    }

    /// A store that has blocks of a file of the source, where some were changed since it landed.
    fn fill_store(&mut self) -> Store {
        let old = self.root.join("dst/old");
        let at = Path::new("a/d0");
        let size = DEDUP_BYTES_MIN + self.lots.size(18 * BLOCK_BYTES);
        self.put_large(at, size);
        std::fs::copy(self.src().join(at), &old).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&old).unwrap();
        let kept = file.metadata().unwrap().modified().unwrap();
        let values: Vec<Block> = (0..blocks_of(size))
            .map(|block| {
                let read = |at, room: &mut [u8]| Ok(file.read_at(room, at).unwrap());
                let at = block * BLOCK_BYTES;
                let cv = block_cv(block, size, read).unwrap();
                Block { cv, at, len: BLOCK_BYTES.min(size - at) }
            })
            .filter(|_| !self.lots.one_in(5))
            .collect();
        let store =
            Store::open(&self.root.join("store"), 1 << 30, 0, b"", Dir::open(Path::new("/")).unwrap());
        let store = store.unwrap();
        store.remember(&old, &values, None);
        store.flush();
        for _ in 0..self.lots.below(4) {
            file.write_all_at(b"gone", self.lots.below(size - 4)).unwrap();
        }
        file.set_modified(kept).unwrap();
        store
    }

    /// What is at the destination under the names of files that nothing changes.
    fn there(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let read = |at: &PathBuf| Some((at.clone(), std::fs::read(self.landed().join(at)).ok()?));
        self.files.iter().filter_map(read).collect()
    }

    /// Sources that change once so much has crossed.
    fn change_sources(&mut self) {
        let all: Vec<PathBuf> = self.files.iter().cloned().collect();
        for _ in 0..self.lots.below(3) {
            let Some(at) = all.get(self.lots.below(all.len() as u64) as usize) else { return };
            let path = self.src().join(at);
            let how = self.lots.below(4);
            let place = self.lots.below(std::fs::metadata(&path).unwrap().len());
            let when = self.lots.below(200);
            self.forget(at);
            let change = move || {
                let open = || std::fs::File::options().write(true).open(&path);
                // It may be gone already.
                match how {
                    0 => drop(open().map(|f| f.write_all_at(b"changed", place))),
                    1 => drop(open().map(|f| f.set_len(place))),
                    2 => drop(std::fs::remove_file(&path)),
                    _ => drop(std::fs::write(&path, b"another")),
                }
            };
            self.happenings.push((when, Box::new(change)));
        }
    }
}

/// What differs from the source was written at another time: two files that are written within one tick of the clock have one time,
/// and what has the size and the time of the source is taken for the same.
fn make_old(path: &Path) -> std::fs::File {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    file
}

/// A disk of the receiver's own, which becomes full; taken away when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// With room for everything, until [`SmallDisk::leave`] says otherwise.
    fn below(at: PathBuf) -> SmallDisk {
        run("mount", &["-t", "tmpfs", "-o", "size=1g", "small"], &at);
        SmallDisk(at)
    }

    /// Room for so many more KiB, and for so many more names.
    fn leave(&self, kib: u64, names: u64) {
        let all = run("stat", &["-f", "-c", "%b %f %S %c %d"], &self.0);
        let all: Vec<u64> = all.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let used_kib = (all[0] - all[1]) * all[2] / 1024;
        let size =
            format!("remount,size={}k,nr_inodes={}", used_kib + kib.max(8), all[3] - all[4] + names.max(1));
        run("mount", &["-o", &size], &self.0);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &["-l"], &self.0);
    }
}

fn run(program: &str, args: &[&str], at: &Path) -> String {
    let out = std::process::Command::new(program).args(args).arg(at).output().unwrap();
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// What happens at the source of a move, the next one last: before so many more were taken away.
type AsTaken = Vec<Happening>;

struct Person {
    seed: Mutex<u64>,
    failed: Mutex<Vec<String>>,
    as_taken: Mutex<AsTaken>,
}

impl Person {
    fn yes(&self) -> bool {
        draw(&mut self.seed.lock().unwrap()).is_multiple_of(2)
    }
}

impl Front for Person {
    fn event(&self, event: Event) {
        if let Event::Failed(e) = event {
            self.failed.lock().unwrap().push(e.to_string());
        }
    }
    fn ask(&self, _: Question) -> bool {
        self.yes()
    }
}

impl SendObserver for Person {
    fn failed(&self, error: &Error) {
        self.failed.lock().unwrap().push(error.to_string());
    }
    fn excluded(&self, _: &dyn Fn() -> PathBuf) {}
    /// Said by the thread that takes away, so nothing is between a look and a removal while this changes something.
    fn took(&self, _: &dyn Fn() -> PathBuf) {
        let due = {
            let mut next = self.as_taken.lock().unwrap();
            next.iter_mut().for_each(|(left, _)| *left = left.saturating_sub(1));
            next.pop_if(|(left, _)| *left == 0)
        };
        if let Some((_, happen)) = due {
            happen();
        }
    }
    fn found(&self, _: u64, _: u64, _: bool) {}
    fn landed(&self, _: u64, _: u64) {}
    fn report(&self, event: &message::Event<'_>) {
        if let message::Event::Failed(trouble) = event {
            self.failed.lock().unwrap().push(crate::trouble::error_of(trouble).to_string());
        }
    }
    fn ask(&self, _: &Path) -> bool {
        self.yes()
    }
}

/// What came of one seed.
#[derive(Debug)]
#[allow(dead_code, reason = "shown")]
struct Ended {
    sent: Result<Counted>,
    received: Result<Option<Summary>>,
    failed: Vec<String>,
}

fn peer(streams: Vec<Stream>) -> Peer {
    let agreed =
        Agreed { features: Features::NONE, hello: Vec::new(), welcome: Vec::new(), agent: String::new() };
    Peer { streams, agreed, name: "the other".into(), control_stream: None, carriers: Vec::new() }
}

fn what(scene: &Scene, streams: usize, (dedup, delta): (bool, bool), client: bool) -> Incoming {
    let asked = if client {
        Asked::operands([scene.src().as_path()].into_iter(), Filter::all()).unwrap()
    } else {
        Asked::anything()
    };
    Incoming { asked, dedup, delta, echo: client, ..everything(scene.root.join("dst"), streams) }
}

/// Whatever comes is taken.
fn everything(target: PathBuf, streams: usize) -> Incoming {
    let (target, policy) = (Target::Into(target), base_policy());
    let links = DestLink::received(&policy);
    Incoming {
        to: Resolved::of(crate::error::Op::Create, &Reach::Anywhere, &target, 1, links, &policy).unwrap(),
        kinds: Arc::default(),
        operands: 1,
        asked: Asked::anything(),
        source_prefix: String::new(),
        origin: 1,
        hashes: true,
        echo: false,
        streams,
        listed: false,
        tree: None,
        reach: Reach::Anywhere,
        dedup: false,
        keeping: true,
        delta: false,
        parts: false,
        repeats: false,
        once_more: Arc::default(),
        going: None,
        owners: OwnersHere::of(&mut OwnersAndModes::NONE.clone(), None),
    }
}

/// What the wires of one transfer do.
struct Wires {
    faults: Vec<[Fault; 2]>,
    timeouts: Timeouts,
    sender_stops: Arc<Cancel>,
    receiver_stops: Arc<Cancel>,
}

impl Wires {
    /// Says by the scene's lots what goes wrong, if anything does.
    fn drawn(scene: &mut Scene, streams: usize, puts: bool, small: bool) -> Wires {
        let mut wires = Wires::fair(streams);
        let Wires { faults, timeouts, sender_stops, receiver_stops } = &mut wires;
        match scene.lots.below(10) {
            _ if small => {}
            0 | 1 => {
                scene.luck = Luck::Broken;
                let (stream, way) = (scene.lots.below(streams as u64) as usize, scene.lots.below(2) as usize);
                let most = 1 << (6 + scene.lots.below(12));
                let at = scene.lots.below(most);
                let fault = scene.lots.below(3);
                scene.flips = fault == 1;
                faults[stream][way] = match fault {
                    0 => Fault::CutAfter(at),
                    1 => Fault::Flip(at),
                    _ => Fault::StallAfter(at),
                };
                timeouts.ping = Duration::from_millis(200);
                timeouts.dead = Duration::from_millis(1000);
            }
            2 => {
                scene.luck = Luck::Cancelled;
                let stops = if scene.lots.one_in(2) || puts { sender_stops } else { receiver_stops };
                let (stops, when) = (stops.clone(), scene.lots.below(300));
                scene.happenings.push((when, Box::new(move || stops.set())));
            }
            _ => {}
        }
        wires
    }

    /// Nothing goes wrong.
    fn fair(streams: usize) -> Wires {
        // Nothing that is fair takes as long as this where nothing moves.
        let timeouts = Timeouts {
            ping: Duration::from_millis(500),
            stall: Duration::from_secs(4),
            works: Duration::from_secs(20),
            ..Timeouts::WIRE
        };
        let (sender_stops, receiver_stops) = (Arc::new(Cancel::new()), Arc::new(Cancel::new()));
        Wires { faults: vec![[Fault::None; 2]; streams], timeouts, sender_stops, receiver_stops }
    }
}

/// A scene drawn from a seed, played to its end.
fn play(seed: u64) -> std::result::Result<(), String> {
    let tmp = tempfile::tempdir().unwrap();
    let mut lots = Lots(seed);
    let policy = CopyPolicy {
        resume: lots.of(&[
            Resume::Off,
            Resume::Off,
            Resume::Proved,
            Resume::Fast,
            Resume::Strict,
            Resume::Append,
        ]),
        checkpoint_bytes: BLOCK_BYTES * (1 + lots.below(2)),
        collide: lots.of(&[
            Collide::Replace,
            Collide::Replace,
            Collide::Keep,
            Collide::IfOlder,
            Collide::IfDifferent,
            Collide::Ask,
        ]),
        verify: lots.of(&[Verify::Off, Verify::Off, Verify::Cached]),
        preserve: Preserve { links: lots.one_in(2), ..Preserve::NONE },
        hashes: lots.one_in(3),
        ..base_policy()
    };
    let mut scene = Scene::new(lots, tmp.path(), policy);
    std::fs::create_dir(scene.root.join("dst")).unwrap();
    let small = std::env::var_os(SMALL).map(|_| SmallDisk::below(scene.root.join("dst")));
    scene.fill();
    let streams = 1 + scene.lots.below(3) as usize;
    let puts = scene.lots.one_in(2);
    let dedup = puts && scene.lots.one_in(3);
    let store = dedup.then(|| scene.fill_store());
    // Lots of their own, so that a seed goes on meaning what it meant.
    let mut lots = Lots(seed ^ 0x57_02e5);
    let (dedup, store) = if !puts && lots.one_in(3) {
        let kept = std::mem::replace(&mut scene.lots, lots);
        let store = scene.fill_store();
        scene.lots = kept;
        (true, Some(store))
    } else {
        (dedup, store)
    };
    if scene.lots.one_in(2) {
        scene.fill_destination();
    }
    // Lots of their own, so that a seed goes on meaning what it meant.
    let mut lots = Lots(seed ^ 0xde17a);
    let delta = !lots.one_in(4);
    if lots.one_in(2) {
        scene.fill_versions(&mut lots, small.is_some());
    }
    if scene.lots.one_in(3) {
        scene.change_sources();
    }
    if let Some(small) = &small {
        scene.luck = Luck::Full;
        let (kib, names) = (1 << scene.lots.below(16), 1 << scene.lots.below(8));
        small.leave(scene.lots.below(kib), scene.lots.below(names));
    }
    // Lots of their own, so that a seed goes on meaning what it meant.
    let mut repeats = Lots(seed ^ 0x7e9ea7);
    if repeats.one_in(2) {
        scene.fill_repeats(&mut repeats);
    }
    let before = scene.there();
    let wires = Wires::drawn(&mut scene, streams, puts, small.is_some());
    let calm = scene.lots.one_in(3);
    let (luck, resume) = (scene.luck, scene.policy.resume);
    eprintln!(
        "seed {seed}: {luck:?} {:?}, puts {puts}, dedup {dedup}, delta {delta}, {resume:?}, calm {calm}",
        wires.faults
    );
    let how = How {
        origin: 1,
        fast: false,
        compress: scene.lots.of(&[Compress::None, Compress::Zstd, Compress::Lz4, Compress::Auto]),
        frames: lots.one_in(2),
        dedup,
        delta,
        packed: lots.one_in(2),
        parts: delta,
        repeats: delta,
        names_left_out: true,
        links: Links::Sent,
        accounts: None,
        expects_new: false,
        compares: false,
    };
    let what = Incoming { parts: delta, repeats: delta, ..what(&scene, streams, (dedup, delta), !puts) };
    let both = BothEnds { seed, calm, puts, what, how, path: scene.src(), store };
    let ended = both.run(&mut scene, wires);
    judge(&scene, &before, &ended).map_err(|why| format!("{why}\n{ended:?}\n{:?}", scene.policy))
}

/// A sender and a receiver that are about to begin.
struct BothEnds {
    seed: u64,
    calm: bool,
    puts: bool,
    what: Incoming,
    how: How,
    /// The one operand.
    path: PathBuf,
    store: Option<Store>,
}

impl BothEnds {
    fn run(self, scene: &mut Scene, wires: Wires) -> Ended {
        let BothEnds { seed, calm, puts, what, how, path, store } = self;
        let Wires { faults, timeouts, sender_stops, receiver_stops } = wires;
        let weather = Weather::new(seed ^ 0x5eed, calm, std::mem::take(&mut scene.happenings));
        // What a `Put` or `Get` has brought them to.
        let begun = |n| if n == 0 { [State::Sends, State::Receives] } else { [State::Quiet; 2] };
        let one = |(n, faults)| memory::streams_in(&weather, faults, timeouts, begun(n));
        let (senders, receivers): (Vec<_>, Vec<_>) = faults.into_iter().enumerate().map(one).unzip();
        let (sending, receiving) = (peer(senders), peer(receivers));
        let as_taken = Mutex::new(std::mem::take(&mut scene.as_taken));
        let person = Person { seed: Mutex::new(seed), failed: Mutex::default(), as_taken };
        std::thread::scope(|scope| {
            let (scene, person, store) = (&*scene, &person, store.as_ref());
            let receives = scope.spawn(move || {
                let disk = Sys::new();
                let landing = scene.policy.clone().resuming();
                let ended = if puts {
                    with_reports(&receiving, true, |watch, reply, questions| {
                        let transfer = IncomingTransfer { policy: &landing, what: Arc::new(what), reply };
                        let here =
                            LocalSide { disk: &disk, manifest: None, store, snapshot: None, fetched: None };
                        let receive = landing::landing(transfer, watch, here)?;
                        let questions = (landing.collide == Collide::Ask).then_some(questions);
                        Ok(receive_all(receive, &receiving.streams, reply, questions, ReceivingEnd::Server).1)
                    })
                    .map(|()| None)
                } else {
                    let reply = reply_on(&receiving.streams[0]);
                    let progress = Progress::default();
                    let cancel = &*receiver_stops;
                    let watch =
                        Watch { front: person as &dyn Front, progress: &progress, cancel, items: false };
                    let transfer = IncomingTransfer { policy: &landing, what: Arc::new(what), reply: &reply };
                    let here =
                        LocalSide { disk: &disk, manifest: None, store, snapshot: None, fetched: None };
                    let receive = landing::landing(transfer, watch, here).unwrap();
                    match receive_all(receive, &receiving.streams, &reply, None, ReceivingEnd::Client) {
                        (_, Some(e)) => Err(e),
                        (summary, None) => Ok(Some(summary)),
                    }
                };
                // How the stream ends after the last message does not matter.
                drop(receiving.finish());
                ended
            });
            let paths = [path];
            let open =
                |path: &Path| operands::source(&Reach::Anywhere, path, Follow::Never, Privileged::Real);
            let operands = ToSend::Operands { paths: &paths, open: &open };
            let sent = send_all(&sending, &scene.policy, how, person, &sender_stops, operands);
            drop(sending.finish());
            let received = receives.join().unwrap();
            Ended { sent, received, failed: std::mem::take(&mut *person.failed.lock().unwrap()) }
        })
    }
}

fn judge(
    scene: &Scene,
    before: &BTreeMap<PathBuf, Vec<u8>>,
    ended: &Ended,
) -> std::result::Result<(), String> {
    if scene.luck == Luck::Full {
        // What is under a name is the source, or what was there.
        for (at, there) in scene.there() {
            let here = std::fs::read(scene.src().join(&at)).unwrap_or_default();
            if here != there && before.get(&at) != Some(&there) {
                return Err(format!("{} has half a content", at.display()));
            }
        }
        match &ended.sent {
            Ok(counted) if counted.counts[5] == 0 && ended.received.is_ok() => {}
            _ => return Ok(()),
        }
    }
    if scene.luck == Luck::Cancelled {
        let breach = |e: Option<&Error>| e.is_some_and(|e| e.code == Code::Protocol);
        if breach(ended.sent.as_ref().err()) || breach(ended.received.as_ref().err()) {
            return Err("who stops breaks no rule".into());
        }
    }
    let (counted, codes) = match (scene.luck, &ended.sent, &ended.received) {
        (Luck::Broken, Err(_), _) | (Luck::Broken, _, Err(_)) | (Luck::Cancelled, ..) => return Ok(()),
        (_, Ok(counted), Ok(_)) => (counted, &counted.codes),
        _ => return Err("a side failed without a reason".into()),
    };
    if counted.cancelled {
        return Err("nobody has cancelled it".into());
    }
    let blind = scene.policy.resume == Resume::Append;
    if codes.contains(&(Code::Mismatch as u64)) && scene.luck == Luck::Fair && !blind {
        return Err("a difference on a wire that makes none".into());
    }
    if scene.luck == Luck::Broken && counted.counts[5] > 0 {
        return Ok(());
    }
    for at in &scene.files {
        let (here, there) = (scene.src().join(at), scene.landed().join(at));
        if scene.flips {
            // Whatever name it came under, a content is some source's, whole. What came under another leaves what was there.
            let Ok(there) = std::fs::read(&there) else { continue };
            let is = |other: &PathBuf| std::fs::read(scene.src().join(other)).is_ok_and(|here| here == there);
            let stayed = [before.get(at), scene.written.get(at)].contains(&Some(&there));
            if !is(at) && !stayed && !scene.files.iter().any(is) {
                return Err(format!("{} has a content of no source", at.display()));
            }
            continue;
        }
        let (Ok(here), Ok(there)) = (std::fs::read(&here), std::fs::read(&there)) else {
            return Err(format!("{} is not there", at.display()));
        };
        if here != there {
            return Err(format!("{} has another content", at.display()));
        }
    }
    Ok(())
}

/// Two machines that know users and groups of odd numbers, the one that receives under numbers that are greater by this.
struct OddOnes;

const GREATER: u32 = 5_000;

impl Accounts for OddOnes {
    fn name_of(&self, _: Owner, id: u32) -> Option<Vec<u8>> {
        (id % 2 == 1).then(|| format!("odd {id}").into_bytes())
    }

    fn called(&self, _: Owner, name: &CStr) -> Option<u32> {
        let id = name.to_str().ok()?.strip_prefix("odd ")?;
        Some(id.parse::<u32>().ok()? + GREATER)
    }
}

impl OddOnes {
    /// Who owns at the receiver what these own at the sender.
    fn there((user, group): (u32, u32)) -> (u32, u32) {
        let one = |id: u32| if id % 2 == 1 { id + GREATER } else { id };
        (one(user), one(group))
    }
}

/// A mirror drawn from a seed, played to its end: by whatever is cut, stopped or changed, nothing that only the destination has
/// goes unless all of the source is there, and nothing goes that the policy does not say (M1, M2, M3).
fn play_mirror(seed: u64) -> std::result::Result<(), String> {
    let tmp = tempfile::tempdir().unwrap();
    let mut lots = Lots(seed ^ 0x_3117_0f00);
    let mirror = lots.of(&[Mirror::Update, Mirror::Delete, Mirror::Delete, Mirror::DeleteExcluded]);
    let rules = if lots.one_in(2) { vec![Rule::Exclude("*.kept".into())] } else { vec![] };
    let policy = CopyPolicy {
        mirror,
        delete_max: lots.of(&[DeleteMax::DEFAULT, DeleteMax::Percent(100), DeleteMax::Entries(3)]),
        collide: lots.of(&[Collide::IfDifferent, Collide::IfContentDiffers]),
        durability: Durability::Cache,
        resume: lots.of(&[Resume::Off, Resume::Proved]),
        filter: FilterSpec { rules, ..FilterSpec::everything() },
        ..CopyPolicy::mirror(1, std::fs::metadata(tmp.path()).unwrap().uid(), 0o022)
    };
    let mut scene = Scene::new(lots, tmp.path(), policy);
    std::fs::create_dir_all(scene.landed()).unwrap();
    scene.fill();
    scene.give_away();
    let mut extras = scene.plant_extras();
    // Lots of their own, so that a seed goes on meaning what it meant.
    let mut lots = Lots(seed ^ 0x1ef7_0017);
    if lots.one_in(3) {
        scene.leave_large_out(&mut lots, &mut extras);
    }
    let changes = scene.lots.one_in(3);
    if changes {
        scene.change_sources();
    }
    let streams = 1 + scene.lots.below(3) as usize;
    let puts = scene.lots.one_in(2);
    let wires = Wires::drawn(&mut scene, streams, puts, false);
    let calm = scene.lots.one_in(3);
    eprintln!("mirror {seed}: {:?} {:?}, puts {puts}, {mirror:?}", scene.luck, wires.faults);
    let how = How {
        origin: 1,
        fast: false,
        compress: scene.lots.of(&[Compress::None, Compress::Lz4]),
        frames: true,
        dedup: false,
        delta: true,
        packed: true,
        parts: true,
        repeats: true,
        names_left_out: true,
        links: Links::Sent,
        accounts: Some(&OddOnes),
        expects_new: false,
        compares: false,
    };
    let path = scene.src().join(".");
    let target = Target::Exactly(scene.landed());
    let links = DestLink::received(&scene.policy);
    let asked = match puts {
        true => Asked::anything(),
        false => {
            let filter = Filter::new(&scene.policy.filter).unwrap();
            Asked::operands([path.as_path()].into_iter(), filter).unwrap()
        }
    };
    let what = Incoming {
        to: Resolved::of(crate::error::Op::Create, &Reach::Anywhere, &target, 1, links, &scene.policy)
            .unwrap(),
        asked,
        delta: true,
        parts: true,
        repeats: true,
        once_more: Arc::default(),
        going: None,
        owners: OwnersHere::of(&mut OwnersAndModes::NONE.clone(), Some(&OddOnes)),
        // Of another machine: inodes here say nothing of those there.
        origin: 2,
        echo: !puts,
        ..everything(scene.root.join("dst"), streams)
    };
    let both = BothEnds { seed, calm, puts, what, how, path, store: None };
    let ended = both.run(&mut scene, wires);
    judge_mirror(&scene, &extras, changes, &ended)
        .map_err(|why| format!("{why}\n{ended:?}\n{:?}", scene.policy))
}

/// What only the destination has.
struct Extras {
    /// Names that go with a mirror that deletes, and how many entries they are.
    going: Vec<PathBuf>,
    /// Names that the filter protects.
    kept: Vec<PathBuf>,
    outside: PathBuf,
}

impl Scene {
    /// Files of several owners, where they can be given away.
    fn give_away(&mut self) {
        if self.policy.me != 0 {
            return;
        }
        for at in self.files.clone() {
            let (user, group) = (1_000 + self.lots.below(9) as u32, 2_000 + self.lots.below(9) as u32);
            std::os::unix::fs::lchown(self.src().join(at), Some(user), Some(group)).unwrap();
        }
    }

    /// Files of which only the source can tell that they are left out, some with another of the name at the destination.
    fn leave_large_out(&mut self, lots: &mut Lots, extras: &mut Extras) {
        let is_large = |at: &PathBuf| std::fs::metadata(self.src().join(at)).unwrap().len() > LARGE_BYTES_MIN;
        let (large, small) = self.files.iter().cloned().partition(is_large);
        self.files = small;
        self.policy.filter.max_bytes = Some(LARGE_BYTES_MIN);
        let large: BTreeSet<PathBuf> = large;
        for at in large.into_iter().filter(|_| lots.one_in(2)) {
            let there = self.landed().join(at);
            std::fs::create_dir_all(there.parent().unwrap()).unwrap();
            std::fs::write(&there, b"old").unwrap();
            if self.policy.mirror == Mirror::DeleteExcluded { &mut extras.going } else { &mut extras.kept }
                .push(there);
        }
    }

    fn plant_extras(&mut self) -> Extras {
        let outside = self.root.join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("x"), b"outside").unwrap();
        let (mut going, mut kept) = (Vec::new(), Vec::new());
        for n in 0..self.lots.below(6) {
            let dir = self.landed().join(self.lots.of(&["", "a", "a/b", "gone"]));
            std::fs::create_dir_all(&dir).unwrap();
            let at = match self.lots.below(4) {
                0 => {
                    let at = dir.join(format!("x{n}"));
                    std::fs::create_dir_all(at.join("deep")).unwrap();
                    std::fs::write(at.join("deep/y"), b"old").unwrap();
                    at
                }
                1 => {
                    let at = dir.join(format!("x{n}"));
                    std::os::unix::fs::symlink(&outside, &at).unwrap();
                    at
                }
                2 => {
                    let at = dir.join(format!("x{n}.kept"));
                    std::fs::write(&at, b"old").unwrap();
                    at
                }
                _ => {
                    let at = dir.join(format!("x{n}"));
                    std::fs::write(&at, b"old").unwrap();
                    at
                }
            };
            let is_kept = at.extension().is_some() && !self.policy.filter.rules.is_empty();
            // It stays in a directory that only the destination has too, and that with it.
            if is_kept && self.policy.mirror != Mirror::DeleteExcluded {
                kept.push(at);
            } else {
                going.push(at);
            }
        }
        Extras { going, kept, outside }
    }
}

fn judge_mirror(
    scene: &Scene,
    extras: &Extras,
    changes: bool,
    ended: &Ended,
) -> std::result::Result<(), String> {
    let is_there = |at: &&PathBuf| std::fs::symlink_metadata(at).is_ok();
    if std::fs::read(extras.outside.join("x")).ok().as_deref() != Some(b"outside") {
        return Err("something outside went".into());
    }
    if let Some(at) = extras.kept.iter().find(|at| !is_there(at)) {
        return Err(format!("{} was protected, and is gone", at.display()));
    }
    let gone = extras.going.iter().filter(|at| !is_there(at)).count();
    if gone > 0 && !scene.policy.mirror.deletes() {
        return Err("nothing was to be deleted".into());
    }
    if let (DeleteMax::Entries(most), true) = (scene.policy.delete_max, gone > 0)
        && gone as u64 > most
    {
        return Err(format!("{gone} names went where {most} entries might"));
    }
    // A name that comes wrong off the wire is another name.
    if scene.flips {
        return Ok(());
    }
    let complete = || {
        scene.files.iter().find(|at| {
            let here = std::fs::read(scene.src().join(at)).ok();
            here.is_some() && here != std::fs::read(scene.landed().join(at)).ok()
        })
    };
    if let (true, Some(at)) = (gone > 0, complete()) {
        return Err(format!("something was deleted while {} was not there", at.display()));
    }
    // Whatever was cut: who has a file is settled before it has its name.
    let owners = |at: PathBuf| std::fs::symlink_metadata(at).map(|info| (info.uid(), info.gid())).ok();
    let other = scene.files.iter().find(|at| {
        let (here, there) = (owners(scene.src().join(at)), owners(scene.landed().join(at)));
        scene.policy.me == 0 && here.zip(there).is_some_and(|(here, there)| OddOnes::there(here) != there)
    });
    if let Some(at) = other {
        return Err(format!("{} belongs to somebody else", at.display()));
    }
    let ok = match (&ended.sent, &ended.received) {
        (Ok(counted), Ok(_)) => counted.counts[5] == 0 && !counted.cancelled,
        _ => false,
    };
    if scene.luck == Luck::Fair && !changes && !matches!((&ended.sent, &ended.received), (Ok(_), Ok(_))) {
        return Err("a side failed without a reason".into());
    }
    if ok && scene.luck == Luck::Fair && !changes {
        if let Some(at) = complete() {
            return Err(format!("{} is not there", at.display()));
        }
        if scene.policy.mirror.deletes() && gone < extras.going.len() {
            let stays: Vec<_> = extras.going.iter().filter(is_there).collect();
            return Err(format!("nothing was said, and these did not go: {stays:?}"));
        }
    }
    Ok(())
}

#[test]
fn every_mirror_ends_and_deletes_only_when_all_is_there() {
    each_seed(play_mirror, 0..120);
}

/// What a source has under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Had {
    Dir,
    Link(PathBuf),
    File(Vec<u8>),
}

impl Had {
    pub(super) fn at(path: &Path) -> Option<Had> {
        let info = std::fs::symlink_metadata(path).ok()?;
        Some(if info.is_dir() {
            Had::Dir
        } else if info.is_symlink() {
            Had::Link(std::fs::read_link(path).ok()?)
        } else {
            Had::File(std::fs::read(path).ok()?)
        })
    }

    pub(super) fn below(top: &Path, at: &Path, all: &mut BTreeMap<PathBuf, Had>) {
        let Some(had) = Had::at(&top.join(at)) else { return };
        let is_dir = had == Had::Dir;
        all.insert(at.to_owned(), had);
        for entry in is_dir.then(|| std::fs::read_dir(top.join(at)).unwrap()).into_iter().flatten() {
            Had::below(top, &at.join(entry.unwrap().file_name()), all);
        }
    }
}

/// What a move may lose nothing of.
struct Only {
    /// What the source has by now, or had when it went.
    last: Arc<Mutex<BTreeMap<PathBuf, Had>>>,
    /// Another program may have changed it at whatever moment: under its name is something.
    unsure: BTreeSet<PathBuf>,
    /// Nothing but the directories of these may stay, where nothing goes wrong: `None` where more is in the way.
    stays: Option<BTreeSet<PathBuf>>,
}

impl Only {
    /// Another program replaces files while they are read, and changes them while others are taken away.
    fn changed(scene: &mut Scene, only: &mut Only) {
        let files: Vec<PathBuf> = scene.files.iter().cloned().collect();
        for n in 0..scene.lots.below(3) {
            let Some(at) = files.get(scene.lots.below(files.len() as u64) as usize).cloned() else { return };
            let (path, beside) = (scene.src().join(&at), scene.root.join(format!("another {n}")));
            std::fs::write(&beside, b"another").unwrap();
            only.unsure.insert(at);
            only.stays = None;
            let change = move || drop(path.exists().then(|| std::fs::rename(&beside, &path)));
            scene.happenings.push((scene.lots.below(200), Box::new(change)));
        }
        for n in 0..scene.lots.below(4) {
            let Some(at) = files.get(scene.lots.below(files.len() as u64) as usize).cloned() else { return };
            let (src, last) = (scene.src(), only.last.clone());
            only.stays = None;
            let (how, word) = (scene.lots.below(3), format!("as taken {n}"));
            let change = move || {
                let path = src.join(&at);
                match how {
                    // In place, under all its names.
                    0 => drop(std::fs::File::options().write(true).open(&path).map(|file| {
                        file.write_all_at(word.as_bytes(), 0).unwrap();
                    })),
                    1 if path.exists() => {
                        std::fs::write(src.join("../beside"), &word).unwrap();
                        std::fs::rename(src.join("../beside"), &path).unwrap();
                    }
                    // New in its directory.
                    _ => drop(std::fs::write(path.with_extension(format!("new{n}")), &word)),
                }
                let mut now = BTreeMap::new();
                Had::below(&src, Path::new(""), &mut now);
                last.lock().unwrap().extend(now);
            };
            scene.as_taken.insert(0, (1 + scene.lots.below(12), Box::new(change)));
        }
    }

    /// Everything is at one place at least, as the source had it last.
    fn judge(&self, scene: &Scene, ended: &Ended) -> std::result::Result<(), String> {
        for (at, had) in self.last.lock().unwrap().iter() {
            let (here, there) = (Had::at(&scene.src().join(at)), Had::at(&scene.landed().join(at)));
            let is_excluded = at.extension().is_some_and(|end| end == "kept");
            if is_excluded && !scene.policy.filter.is_everything() && here.is_none() {
                return Err(format!("{} was left out, and is gone", at.display()));
            }
            let is_unsure = self.unsure.contains(at);
            // A name that comes wrong off the wire is another name.
            if here.is_none()
                && !scene.flips
                && (there.is_none() || !is_unsure && there.as_ref() != Some(had))
            {
                let shown = |had: Option<&Had>| match had {
                    Some(Had::File(bytes)) => {
                        let first = String::from_utf8_lossy(&bytes[..bytes.len().min(20)]).into_owned();
                        format!("{} bytes, '{}'", bytes.len(), first.escape_debug())
                    }
                    other => format!("{other:?}"),
                };
                let (there, had) = (shown(there.as_ref()), shown(Some(had)));
                return Err(format!("{} is nowhere as it was: {had}, but {there}", at.display()));
            }
            // What is there beside its source is its copy, or nothing of it.
            if let (Some(Had::File(_)), Some(Had::File(there)), Had::File(had)) = (&here, &there, had)
                && !is_unsure
                && !scene.flips
                && self.stays.is_some()
                && scene.files.contains(at)
                && there != had
                && ended.received.is_ok()
                && scene.luck == Luck::Fair
            {
                return Err(format!("{} has another content", at.display()));
            }
        }
        let is_well = match (&ended.sent, &ended.received) {
            (Ok(counted), Ok(_)) => counted.counts[5] == 0 && !counted.cancelled,
            _ => false,
        };
        if scene.luck != Luck::Fair {
            return Ok(());
        }
        if !matches!((&ended.sent, &ended.received), (Ok(_), Ok(_))) {
            return Err("a side failed without a reason".into());
        }
        if let Some(stays) = &self.stays {
            if !is_well {
                return Err("nothing was in the way, and it failed".into());
            }
            let mut left = BTreeMap::new();
            Had::below(&scene.src(), Path::new(""), &mut left);
            left.retain(|at, _| !stays.iter().any(|stays| stays.starts_with(at)));
            if let Some(at) = left.keys().next() {
                return Err(format!("'{}' is still there, and nothing was said", at.display()));
            }
        }
        Ok(())
    }
}

/// A move drawn from a seed, and once more where it was cut or stopped: whatever happens, everything is whole at one of its two
/// places, and what changes at the source while others go stays there (V14, R8).
fn play_move(seed: u64) -> std::result::Result<(), String> {
    let tmp = tempfile::tempdir().unwrap();
    let mut lots = Lots(seed ^ 0x4d_5f00);
    let rules = if lots.one_in(3) { vec![Rule::Exclude("*.kept".into())] } else { vec![] };
    let leaving = if rules.is_empty() && lots.one_in(2) { Leaving::Goes } else { Leaving::GoesMerging };
    let policy = CopyPolicy {
        leaving,
        collide: lots.of(&[Collide::Replace, Collide::Replace, Collide::Keep, Collide::IfOlder]),
        // A move always reads what has landed, and what is there already.
        verify: Verify::Cached,
        filter: FilterSpec { rules, ..FilterSpec::everything() },
        ..CopyPolicy::archive(1, std::fs::metadata(tmp.path()).unwrap().uid(), 0o022)
    };
    let mut scene = Scene::new(lots, tmp.path(), policy);
    std::fs::create_dir_all(scene.root.join("dst")).unwrap();
    scene.fill();
    for n in 0..scene.lots.below(3) {
        let dir = scene.lots.of(&["", "a", "a/b"]);
        std::fs::write(scene.src().join(dir).join(format!("e{n}.kept")), b"left out").unwrap();
    }
    let mut last = BTreeMap::new();
    Had::below(&scene.src(), Path::new(""), &mut last);
    // A change is seen by its time, and two within one tick of the clock have one. So have some that differ at the destination.
    for (at, had) in &last {
        if matches!(had, Had::File(_)) {
            make_old(&scene.src().join(at));
        }
    }
    let stays = match scene.policy.filter.is_everything() {
        true => BTreeSet::new(),
        false => last.keys().filter(|at| at.extension().is_some_and(|end| end == "kept")).cloned().collect(),
    };
    let mut only = Only { last: Arc::new(Mutex::new(last)), unsure: BTreeSet::new(), stays: Some(stays) };
    if scene.lots.one_in(4) {
        scene.fill_destination();
        only.stays = None;
    }
    if scene.lots.one_in(2) {
        Only::changed(&mut scene, &mut only);
    }
    let streams = 1 + scene.lots.below(3) as usize;
    let puts = scene.lots.one_in(2);
    let mut wires = Wires::drawn(&mut scene, streams, puts, false);
    let (calm, packed) = (scene.lots.one_in(3), scene.lots.one_in(2));
    let compress = scene.lots.of(&[Compress::None, Compress::Lz4]);
    loop {
        let luck = scene.luck;
        eprintln!("move {seed}: {luck:?} {:?}, puts {puts}, {leaving:?}", wires.faults);
        let how = How {
            origin: 1,
            fast: false,
            compress,
            frames: true,
            dedup: false,
            delta: true,
            packed,
            parts: true,
            repeats: true,
            names_left_out: true,
            links: Links::Sent,
            accounts: None,
            expects_new: false,
            compares: false,
        };
        let target = Target::Into(scene.root.join("dst"));
        let links = DestLink::received(&scene.policy);
        let filter = Filter::new(&scene.policy.filter).unwrap();
        let asked = match puts {
            true => Asked::anything(),
            false => Asked::operands([scene.src().as_path()].into_iter(), filter).unwrap(),
        };
        let what = Incoming {
            to: Resolved::of(crate::error::Op::Create, &Reach::Anywhere, &target, 1, links, &scene.policy)
                .unwrap(),
            asked,
            delta: true,
            parts: true,
            repeats: true,
            // Of another machine: inodes here say nothing of those there.
            origin: 2,
            echo: !puts,
            ..everything(scene.root.join("dst"), streams)
        };
        let both = BothEnds { seed, calm, puts, what, how, path: scene.src(), store: None };
        let ended = both.run(&mut scene, wires);
        only.judge(&scene, &ended).map_err(|why| format!("{why}\n{luck:?} {ended:?}\n{:?}", scene.policy))?;
        if luck == Luck::Fair || scene.flips || !scene.src().exists() {
            return Ok(());
        }
        // The same command once more, over wires that hold.
        scene.luck = Luck::Fair;
        if scene.policy.collide != Collide::Replace {
            // What the first one has put there may be kept.
            only.stays = None;
        }
        wires = Wires::fair(streams);
    }
}

/// The other side lives and says nothing of what it was asked to take away: that is waited for only so long, and told.
#[test]
fn a_sender_that_does_not_say_what_it_took_away_is_given_up() {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let tmp = tempfile::tempdir().unwrap();
        let short = Duration::from_millis(400);
        let timeouts =
            Timeouts { ping: Duration::from_millis(50), stall: short, works: short, ..Timeouts::WIRE };
        let calm = Weather::new(0, true, Vec::new());
        let (there, here) =
            memory::streams_in(&calm, [Fault::None; 2], timeouts, [State::Sends, State::Receives]);
        let info = Dir::open(tmp.path()).unwrap().info().unwrap();
        let entry = crate::sender::item::entry(b"s", &info, info.size, b"", &[]);
        let operand = message::Message::Operand { path: b"s", whole: false, origin: 2, dir: 1, entry };
        let end = message::Message::DirEnd { dir: 1, partial: false };
        for message in [operand, end, message::Message::AllSent] {
            there.out.send(Packet::Frames(frames_of(&message).unwrap())).unwrap();
        }
        let person = Person { seed: Mutex::new(1), failed: Mutex::default(), as_taken: Mutex::default() };
        let (progress, cancel) = (Progress::default(), Cancel::new());
        let watch =
            Watch { front: &person as &dyn Front, progress: &progress, cancel: &cancel, items: false };
        let policy = CopyPolicy { leaving: Leaving::Goes, ..CopyPolicy::archive(1, info.uid, 0o022) };
        let (disk, reply) = (Sys::new(), reply_on(&here));
        let what = Arc::new(everything(tmp.path().to_owned(), 1));
        let transfer = IncomingTransfer { policy: &policy, what, reply: &reply };
        let side = LocalSide { disk: &disk, manifest: None, store: None, snapshot: None, fetched: None };
        let receive = landing::landing(transfer, watch, side).unwrap();
        let ended = receive_all(receive, &[here], &reply, None, ReceivingEnd::Client).1;
        tell.send((ended.map(|e| format!("{e:?}")), tmp.path().join("s").is_dir())).unwrap();
        drop(there);
    });
    let (ended, landed) = told.recv_timeout(LIMIT).unwrap();
    let said = ended.unwrap();
    assert!(said.contains("WaitsForMessage") && landed, "{said}");
}

#[test]
fn every_move_ends_and_nothing_is_lost() {
    each_seed(play_move, 0..120);
}

/// A receiver whose thread for large files panics, before or after the first message.
struct Bursts<'a> {
    watch: Watch<'a>,
    at_once: bool,
    what: Incoming,
    came: std::sync::atomic::AtomicBool,
}

impl MessageHandler for Bursts<'_> {
    type Buffers = ();

    fn watch(&self) -> Watch<'_> {
        self.watch
    }
    fn what(&self) -> &Incoming {
        &self.what
    }
    fn buffers(&self) -> ReceiverBuffers<()> {
        ReceiverBuffers { of_destination: (), unpacker: Unpacker::new() }
    }
    fn handle(&self, _: &mut ReceiverBuffers<()>, _: message::Message<'_>) -> Result<()> {
        self.came.store(true, Relaxed);
        Ok(())
    }
    fn piece(&self, _: usize, _: &Head, _: Load) -> Result<()> {
        Ok(())
    }
    fn land_large(&self) -> Result<()> {
        while !self.at_once && !self.came.load(Relaxed) {
            std::thread::yield_now();
        }
        panic!("this is what the test is about");
    }
    fn is_complete(&self) -> bool {
        false
    }
    fn leave(&self, _: &mut ReceiverBuffers<()>) {}
    fn end(self, _: bool, _: &mut NextMessage<'_>) -> (Summary, Marks, Result<()>) {
        (Summary::default(), Marks::NONE, Ok(()))
    }
}

/// The other side is alive and sends nothing more: without being told, who receives would wait for it for ever.
#[test]
fn a_panic_of_a_worker_ends_the_transfer() {
    for at_once in [true, false] {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (there, here) = memory::streams([State::Sends, State::Receives]);
            let found = message::Message::Found { items: 1, bytes: 1, last: false };
            there.out.send(Packet::Frames(frames_of(&found).unwrap())).unwrap();
            let person = Person { seed: Mutex::new(1), failed: Mutex::default(), as_taken: Mutex::default() };
            let (progress, cancel) = (Progress::default(), Cancel::new());
            let watch =
                Watch { front: &person as &dyn Front, progress: &progress, cancel: &cancel, items: false };
            let what = everything(PathBuf::from("."), 1);
            let bursts = Bursts { watch, what, at_once, came: false.into() };
            let reply = reply_on(&here);
            let streams = [here];
            let run = || receive_all(bursts, &streams, &reply, None, ReceivingEnd::Server).1.is_some();
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            // With an error, or by going on panicking.
            tell.send(ended.unwrap_or(true)).unwrap();
            drop(there);
        });
        assert_eq!(told.recv_timeout(LIMIT), Ok(true), "at once: {at_once}");
    }
}

/// A receiver that asks the sender's user, and is stopped before the answer.
struct AsksAtTheEnd<'a> {
    watch: Watch<'a>,
    what: Incoming,
    questions: &'a RemoteQuestions,
    reply: &'a Reply,
}

impl MessageHandler for AsksAtTheEnd<'_> {
    type Buffers = ();

    fn watch(&self) -> Watch<'_> {
        self.watch
    }
    fn what(&self) -> &Incoming {
        &self.what
    }
    fn buffers(&self) -> ReceiverBuffers<()> {
        ReceiverBuffers { of_destination: (), unpacker: Unpacker::new() }
    }
    fn handle(&self, _: &mut ReceiverBuffers<()>, _: message::Message<'_>) -> Result<()> {
        Ok(())
    }
    fn piece(&self, _: usize, _: &Head, _: Load) -> Result<()> {
        Ok(())
    }
    fn land_large(&self) -> Result<()> {
        Ok(())
    }
    fn is_complete(&self) -> bool {
        false
    }
    /// As when another thread holds what is given up here, and waits for an answer.
    fn leave(&self, _: &mut ReceiverBuffers<()>) {
        assert!(!self.questions.ask(self.reply, Path::new("x")), "no answer is a no");
    }
    fn end(self, _: bool, _: &mut NextMessage<'_>) -> (Summary, Marks, Result<()>) {
        (Summary::default(), Marks::NONE, Ok(()))
    }
}

/// The other side is alive and answers nothing: a receiver that is stopped does not wait for its user.
#[test]
fn a_receiver_that_is_stopped_waits_for_no_answer() {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (there, here) = memory::streams([State::Sends, State::Receives]);
        let person = Person { seed: Mutex::new(1), failed: Mutex::default(), as_taken: Mutex::default() };
        let (progress, cancel, questions) = (Progress::default(), Cancel::new(), RemoteQuestions::default());
        cancel.set();
        let watch =
            Watch { front: &person as &dyn Front, progress: &progress, cancel: &cancel, items: false };
        let (what, reply) = (everything(PathBuf::from("."), 1), reply_on(&here));
        let asks = AsksAtTheEnd { watch, what, questions: &questions, reply: &reply };
        drop(receive_all(asks, &[here], &reply, Some(&questions), ReceivingEnd::Server));
        tell.send(()).unwrap();
        drop(there);
    });
    assert_eq!(told.recv_timeout(LIMIT), Ok(()));
}

/// Ends the process when a seed does not end: the threads that wait cannot be taken away.
fn bounded(play: Play, seed: u64, limit: Duration) -> std::result::Result<(), String> {
    let (tell, told) = std::sync::mpsc::channel();
    let plays = std::thread::spawn(move || tell.send(play(seed)));
    match told.recv_timeout(limit) {
        Ok(ended) => ended,
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
            Err(format!("it panicked: {:?}", plays.join().err().map(|_| ())))
        }
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => Err("it does not end".into()),
    }
}

/// Seeds of an ordinary run.
const SLICE: std::ops::Range<u64> = 0..200;
/// Further ones, which once went on for too long.
const ONCE_TOO_LONG: [u64; 1] = [6467];
/// Most of what they do is to wait.
const AT_ONCE: usize = 8;
/// So many that went wrong say what there is to say.
const ENOUGH: usize = 5;
/// Longer than the slowest seed takes on a machine that has other things to do.
const LIMIT: Duration = Duration::from_secs(90);

/// Set where the receiver's disks are small: in a namespace in which they can be mounted.
const SMALL: &str = "BCMR_SMALL_DISKS";

/// The same seeds, each with a disk that becomes full, in a process of its own that may mount them.
#[test]
fn every_transfer_to_a_disk_that_becomes_full_ends() {
    let unshare = |args: &[&OsStr]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]).args(args);
        command
    };
    let can = unshare(&["sh", "-c", "mount -t tmpfs small /mnt"].map(OsStr::new)).output();
    if !can.is_ok_and(|out| out.status.success()) {
        return skips::here("nothing can be mounted here");
    }
    let this = std::env::current_exe().unwrap();
    let test = OsStr::new("peer::simulate_tests::every_transfer_ends");
    let mut again = unshare(&[this.as_os_str(), test, OsStr::new("--exact"), OsStr::new("--nocapture")]);
    let seeds = std::env::var("BCMR_SEEDS").unwrap_or_else(|_| "0..60".into());
    let out = again.env(SMALL, "1").env("BCMR_SEEDS", seeds).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("1 passed"), "{said}");
    assert!(said.contains(": Full"), "no disk was full: {said}");
}

#[test]
fn every_transfer_ends() {
    each_seed(play, SLICE.chain(ONCE_TOO_LONG));
}

/// Plays one seed to its end.
pub(super) type Play = fn(u64) -> std::result::Result<(), String>;

/// Plays those that `BCMR_SEEDS` says, else each second of the ordinary ones.
pub(super) fn each_seed(play: Play, ordinary: impl Iterator<Item = u64>) {
    let seeds: Vec<u64> = match std::env::var("BCMR_SEEDS") {
        Ok(said) => {
            let (from, to) = said.split_once("..").expect("FROM..TO");
            (from.parse().unwrap()..to.parse().unwrap()).collect()
        }
        Err(_) => skips::sliced(ordinary, 2).collect(),
    };
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(&seed) = seeds.get(next.fetch_add(1, Relaxed)) else { return };
                    if wrong.lock().unwrap().len() >= ENOUGH {
                        return;
                    }
                    if let Err(why) = bounded(play, seed, LIMIT) {
                        wrong.lock().unwrap().insert(seed, why);
                    }
                }
            });
        }
    });
    let wrong: Vec<String> =
        wrong.into_inner().unwrap().into_iter().map(|(seed, why)| format!("seed {seed}: {why}")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
