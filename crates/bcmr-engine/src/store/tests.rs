//! The store against crashes, other processes and attackers (rules C1 to C6), each with its honest twin. Must not know
//! the wire.

#![cfg(test)]
#![allow(clippy::disallowed_methods)] // tests look at the file system the ordinary way

use super::index::{HEADER_BYTES, SumKey, View};
use super::*;
use crate::blocks::{FORMAT_BLOCK_BYTES, blocks_of, cv_at};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

const B: u64 = BLOCK_BYTES;
const _: () = assert!(FORMAT_BLOCK_BYTES > B, "unit tests have small blocks");
const NONCE: [u8; 32] = [9; 32];

struct Ground {
    t: tempfile::TempDir,
}

fn data(seed: u64, bytes: u64) -> Vec<u8> {
    let mut out = vec![0; bytes as usize];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut out);
    out
}

fn blocks(data: &[u8]) -> Vec<Block> {
    let size = data.len() as u64;
    let block = |n: u64| {
        let (at, end) = (n * B, ((n + 1) * B).min(size));
        let part = &data[at as usize..end as usize];
        let cv = cv_at(at, |h| {
            h.update(part);
            Ok(())
        });
        Block { cv: cv.unwrap(), at, len: end - at }
    };
    (0..blocks_of(size)).map(block).collect()
}

fn part<'d>(data: &'d [u8], block: &Block) -> &'d [u8] {
    &data[block.at as usize..(block.at + block.len) as usize]
}

/// What an honest client sends for a block.
fn tag(data: &[u8], block: &Block) -> [u8; 32] {
    *blake3::keyed_hash(&NONCE, part(data, block)).as_bytes()
}

impl Ground {
    fn new() -> Ground {
        let t = tempfile::tempdir().unwrap();
        fs::create_dir(t.path().join("root")).unwrap();
        Ground { t }
    }
    fn cas(&self) -> PathBuf {
        self.t.path().join("cache/bcmr/cas")
    }
    fn root(&self) -> PathBuf {
        self.t.path().join("root")
    }
    fn open(&self, cap: u64) -> Store {
        self.try_open(cap).unwrap()
    }
    fn try_open(&self, cap: u64) -> io::Result<Store> {
        Store::open(&self.cas(), cap, 0, b"root", Dir::open(&self.root()).unwrap())
    }
    fn keeping(&self, keep: u64) -> Store {
        Store::open(&self.cas(), 0, keep, b"root", Dir::open(&self.root()).unwrap()).unwrap()
    }
    /// Files of blocks that the store has itself.
    fn kept(&self) -> Vec<PathBuf> {
        let Ok(dir) = fs::read_dir(self.cas().join("kept")) else { return Vec::new() };
        dir.map(|e| e.unwrap().path()).collect()
    }
    /// A file landed by rename, as `land` does it.
    fn land(&self, name: &str, data: &[u8]) {
        let stage = self.root().join(format!("{name}.stage"));
        fs::write(&stage, data).unwrap();
        fs::rename(&stage, self.root().join(name)).unwrap();
    }
    fn put(&self, store: &Store, name: &str, data: &[u8]) -> Vec<Block> {
        self.land(name, data);
        let blocks = blocks(data);
        store.remember(Path::new(name), &blocks, None);
        blocks
    }
}

/// Everything that an upload does with one block; what it gives is always right.
fn get(store: &Store, data: &[u8], block: &Block) -> Option<Vec<u8>> {
    let pinned = store.find(block)?;
    taken(store, &pinned, data, block)
}

fn taken(store: &Store, pinned: &Pinned, data: &[u8], block: &Block) -> Option<Vec<u8>> {
    let content = store.take(pinned, &NONCE, &tag(data, block))?;
    assert_eq!(content, part(data, block), "the store gave wrong bytes");
    Some(content)
}

/// Which of the blocks are still there, without using them.
fn there(store: &Store, blocks: &[Block]) -> Vec<bool> {
    blocks.iter().map(|b| store.find(b).is_some()).collect()
}

#[test]
fn what_landed_is_found_again() {
    let g = Ground::new();
    let store = g.open(0);
    let d = data(1, 3 * B + 100);
    let blocks = g.put(&store, "a", &d);
    assert_eq!(store.bytes(), d.len() as u64);
    for block in &blocks {
        assert!(get(&store, &d, block).is_some());
    }
    store.flush();
    // By another process, later.
    let other = g.open(0);
    assert!(blocks.iter().all(|b| get(&other, &d, b).is_some()));
    assert_eq!(other.bytes(), d.len() as u64);
}

/// The last file that came from a source is known by it, to the store of the same root and as long as it is what landed.
#[test]
fn a_file_is_known_by_where_it_came_from() {
    let g = Ground::new();
    let source = |machine, path: &str| CameFrom { machine, path: path.into() };
    let (one, other) = (source(1, "a/dump"), source(1, "b/dump"));
    let put = |store: &Store, name: &str, bytes: u64, from: &CameFrom| {
        let d = data(bytes, bytes);
        g.land(name, &d);
        store.remember(Path::new(name), &blocks(&d), Some(from));
    };
    let size =
        |store: &Store, from: &CameFrom| store.landed_from(from).map(|file| Info::of(&*file).unwrap().size);
    let store = g.open(0);
    put(&store, "first", B + 1, &one);
    put(&store, "other", B + 2, &other);
    put(&store, "second", B + 3, &one);
    let expected = |store: &Store| {
        assert_eq!((size(store, &one), size(store, &other)), (Some(B + 3), Some(B + 2)));
    };
    expected(&store);
    store.flush();
    expected(&g.open(0));
    assert_eq!(size(&store, &source(2, "a/dump")), None, "of another machine");
    assert_eq!(size(&store, &source(1, "a/dum")), None, "of another name");
    // One who names its key's ingredients as a block's value finds nothing.
    let made_of = [b"source".as_slice(), &1_u64.to_le_bytes(), blake3::hash(b"a/dump").as_bytes()].concat();
    for at in 0..=made_of.len() - 32 {
        let cv = made_of[at..at + 32].try_into().unwrap();
        assert!([1, B].iter().all(|len| store.find(&Block { cv, at: 0, len: *len }).is_none()));
    }
    let below = Dir::open(&g.root()).unwrap();
    let elsewhere = Store::open(&g.cas(), 0, 0, b"another root", below).unwrap();
    assert_eq!(size(&elsewhere, &one), None, "of another root");
    // What was written into since, or replaced, or is gone.
    fs::write(g.root().join("second"), data(9, B)).unwrap();
    fs::remove_file(g.root().join("other")).unwrap();
    assert_eq!((size(&store, &one), size(&store, &other)), (None, None));
}

/// So is the last one from a source of nearly its name, wherever that was on the same machine.
#[test]
fn a_file_is_known_by_what_its_source_is_called() {
    let g = Ground::new();
    let source = |machine, path: &str| CameFrom { machine, path: path.into() };
    let store = g.open(0);
    let size =
        |store: &Store, from: &CameFrom| store.landed_like(from).map(|file| Info::of(&*file).unwrap().size);
    for (name, bytes, from) in [
        ("first", B + 1, "a/dump-1.sql"),
        ("second", B + 2, "b/dump-2.sql"),
        ("other", B + 3, "b/dump-2.img"),
    ] {
        let d = data(bytes, bytes);
        g.land(name, &d);
        store.remember(Path::new(name), &blocks(&d), Some(&source(1, from)));
    }
    store.flush();
    for store in [store, g.open(0)] {
        assert_eq!(size(&store, &source(1, "c/Dump (3).SQL")), Some(B + 2), "the last of them");
        assert_eq!(size(&store, &source(1, "dump-0.img")), Some(B + 3));
        assert_eq!(size(&store, &source(2, "b/dump-2.sql")), None, "of another machine");
        assert_eq!(size(&store, &source(1, "b/dumper.sql")), None, "of another name");
        assert_eq!(size(&store, &source(1, "b/1")), None, "of a name that says nothing");
        assert_eq!(size(&store, &source(1, "/")), None, "of none");
    }
    // One who names its key's ingredients as a block's value finds nothing.
    let made_of = [b"stem".as_slice(), &1_u64.to_le_bytes(), blake3::hash(b"dump.sql").as_bytes()].concat();
    let store = g.open(0);
    for at in 0..=made_of.len() - 32 {
        let cv = made_of[at..at + 32].try_into().unwrap();
        assert!([1, B].iter().all(|len| store.find(&Block { cv, at: 0, len: *len }).is_none()));
    }
    fs::write(g.root().join("second"), data(9, B)).unwrap();
    assert_eq!(size(&store, &source(1, "dump-3.sql")), None, "it was written into");
}

#[test]
fn a_file_may_be_named_by_its_absolute_path_below_the_root() {
    let g = Ground::new();
    let store = g.open(0);
    fs::create_dir(g.root().join("d")).unwrap();
    let d = data(1, 2 * B);
    g.land("d/x", &d);
    let root = fs::canonicalize(g.root()).unwrap();
    store.remember(&root.join("d/x"), &blocks(&d), None);
    assert_eq!(there(&store, &blocks(&d)), [true, true]);
    // Not below the root, or not by plain names.
    fs::write(g.t.path().join("outside"), &d).unwrap();
    let other = g.open(0);
    let e = data(2, 2 * B);
    fs::write(g.t.path().join("outside"), &e).unwrap();
    for path in [g.t.path().join("outside"), "../outside".into(), "".into(), "d/../../outside".into()] {
        other.remember(&path, &blocks(&e), None);
    }
    assert_eq!(there(&other, &blocks(&e)), [false, false]);
}

// C1: what is damaged does not get into a file.
#[test]
fn a_damaged_block_is_missing_and_forgotten_and_its_neighbours_stay() {
    let g = Ground::new();
    let store = g.open(0);
    let d = data(1, 3 * B);
    let blocks = g.put(&store, "a", &d);
    // Bit rot leaves size and times alone.
    let file = File::options().write(true).open(g.root().join("a")).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(&[d[B as usize + 5] ^ 1], B + 5).unwrap();
    file.set_modified(before).unwrap();

    let pinned = store.find(&blocks[1]).unwrap();
    assert_eq!(taken(&store, &pinned, &d, &blocks[1]), None);
    assert!(store.find(&blocks[1]).is_none(), "dropped at once");
    store.flush();
    assert_eq!(there(&g.open(0), &blocks), [true, false, true], "and for good");
    assert!(get(&store, &d, &blocks[0]).is_some());
    // The client sends it again: it heals.
    g.put(&store, "b", &d);
    assert_eq!(there(&store, &blocks), [true, true, true]);
    assert!(get(&store, &d, &blocks[1]).is_some());
}

#[test]
fn a_file_that_was_cut_short_or_rewritten_is_missing() {
    let g = Ground::new();
    let store = g.open(0);
    let d = data(1, 3 * B);
    let blocks = g.put(&store, "a", &d);
    let pinned = store.find(&blocks[2]).unwrap();
    let file = File::options().write(true).open(g.root().join("a")).unwrap();
    file.set_len(2 * B + 7).unwrap();
    assert_eq!(taken(&store, &pinned, &d, &blocks[2]), None, "cut after it was found");
    assert_eq!(there(&store, &blocks), [false; 3], "another size");
    // Another file under the same name.
    g.put(&store, "a", &d);
    assert_eq!(there(&store, &blocks), [true; 3]);
    g.land("a", &data(2, 3 * B));
    drop(pinned);
    assert_eq!(there(&g.open(0), &blocks), [false; 3]);
    // Gone.
    g.put(&store, "a", &d);
    fs::remove_file(g.root().join("a")).unwrap();
    assert_eq!(there(&g.open(0), &blocks), [false; 3]);
}

#[test]
fn the_same_bytes_at_another_place_are_another_block() {
    let g = Ground::new();
    let store = g.open(0);
    let d = [vec![7; B as usize], vec![7; B as usize]].concat();
    let blocks = g.put(&store, "a", &d);
    assert_ne!(blocks[0].cv, blocks[1].cv);
    // A client that claims the value of one place for the other.
    let lie = Block { at: blocks[1].at, ..blocks[0] };
    assert!(store.find(&lie).is_none());
}

// C2: a hash is no bearer token.
#[test]
fn who_does_not_have_the_block_does_not_get_it() {
    let g = Ground::new();
    let store = g.open(0);
    let d = data(1, 2 * B);
    let blocks = g.put(&store, "secret", &d);
    let pinned = store.find(&blocks[0]).unwrap();
    let right = tag(&d, &blocks[0]);
    let mut wrong = right;
    wrong[31] ^= 1;
    let replayed = *blake3::keyed_hash(&[8; 32], part(&d, &blocks[0])).as_bytes();
    for bad in [[0; 32], blocks[0].cv, wrong, replayed, tag(&d, &blocks[1])] {
        assert_eq!(store.take(&pinned, &NONCE, &bad), None);
    }
    // Nor does a bad claim take it away from those who have it.
    assert!(store.find(&blocks[0]).is_some());
    assert_eq!(store.take(&pinned, &NONCE, &right).unwrap(), part(&d, &blocks[0]));
}

#[test]
fn another_root_or_another_key_is_told_nothing() {
    let g = Ground::new();
    let store = g.open(0);
    let d = data(1, 2 * B);
    let blocks = g.put(&store, "a", &d);
    let root = || Dir::open(&g.root()).unwrap();
    let jail = Store::open(&g.cas(), 0, 0, b"other root", root()).unwrap();
    assert_eq!(there(&jail, &blocks), [false, false]);
    assert_eq!(jail.bytes(), 2 * B, "the cap is one for all");
    let again = Store::open(&g.cas(), 0, 0, b"root", root()).unwrap();
    assert_eq!(there(&again, &blocks), [true, true]);

    let mut key = fs::read(g.cas().join("key")).unwrap();
    key[20] ^= 1;
    fs::write(g.cas().join("key"), &key).unwrap();
    let fresh = g.open(0);
    assert_eq!(there(&fresh, &blocks), [false, false]);
    assert_eq!(fresh.bytes(), 0);
    g.put(&fresh, "b", &d);
    assert_eq!(there(&fresh, &blocks), [true, true]);
}

#[test]
fn the_index_tells_no_hash() {
    let g = Ground::new();
    let store = g.open(0);
    let blocks = g.put(&store, "a", &data(1, 2 * B));
    let index = fs::read(g.cas().join("index")).unwrap();
    assert!(!index.windows(8).any(|w| blocks.iter().any(|b| b.cv.starts_with(w))));
}

// C3: no other user looks in.
#[test]
fn the_store_is_closed_to_others() {
    let g = Ground::new();
    let store = g.open(0);
    g.put(&store, "a", &data(1, 2 * B));
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    for dir in ["cache", "cache/bcmr", "cache/bcmr/cas"] {
        assert_eq!(mode(&g.t.path().join(dir)), 0o700, "{dir}");
    }
    let names: Vec<_> = fs::read_dir(g.cas()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().all(|n| mode(n) == 0o600));
    // What was there and is ours alone is used.
    drop(store);
    assert!(g.try_open(0).is_ok());

    for bad in [0o755, 0o710, 0o701, 0o777] {
        fs::set_permissions(g.cas(), fs::Permissions::from_mode(bad)).unwrap();
        assert_eq!(g.try_open(0).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{bad:o}");
    }
    fs::set_permissions(g.cas(), fs::Permissions::from_mode(0o700)).unwrap();
    // A key that others might have read is a key no more.
    let key = fs::read(g.cas().join("key")).unwrap();
    fs::set_permissions(g.cas().join("key"), fs::Permissions::from_mode(0o644)).unwrap();
    let store = g.open(0);
    assert_ne!(fs::read(g.cas().join("key")).unwrap(), key);
    assert_eq!((mode(&g.cas().join("key")), store.bytes()), (0o600, 0));
}

#[test]
fn links_and_strangers_in_the_stores_place_are_refused() {
    let g = Ground::new();
    fs::create_dir_all(g.t.path().join("cache/bcmr")).unwrap();
    fs::create_dir(g.t.path().join("elsewhere")).unwrap();
    fs::set_permissions(g.t.path().join("elsewhere"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink(g.t.path().join("elsewhere"), g.cas()).unwrap();
    assert!(g.try_open(0).is_err());
    fs::remove_file(g.cas()).unwrap();
    fs::write(g.cas(), "a file").unwrap();
    assert!(g.try_open(0).is_err());
    fs::remove_file(g.cas()).unwrap();
    assert!(g.try_open(0).is_ok());

    // Links in the files' places: never written through.
    let victim = g.t.path().join("victim");
    for name in ["key", "index", "key.new", "index.new"] {
        fs::write(&victim, "precious").unwrap();
        let link = g.cas().join(name);
        fs::remove_file(&link).ok();
        symlink(&victim, &link).unwrap();
        // With a wrong key the index is written anew too.
        fs::remove_file(g.cas().join("key")).ok();
        g.put(&g.open(0), "a", &data(1, 2 * B));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious", "{name}");
    }
    fs::remove_file(g.cas().join("lock")).unwrap();
    symlink(&victim, g.cas().join("lock")).unwrap();
    assert!(g.try_open(0).is_err());

    if effective_user() == 0 {
        fs::remove_file(g.cas().join("lock")).unwrap();
        assert!(g.try_open(0).is_ok());
        std::os::unix::fs::chown(g.cas(), Some(65534), None).unwrap();
        assert_eq!(g.try_open(0).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    } else {
        eprintln!("NOT RUN: a store of another user, which only root can make");
    }
}

/// What stands where a landed file was, and could lead elsewhere or hang us.
#[test]
fn a_landed_file_is_never_reached_through_a_link_or_a_fifo() {
    let g = Ground::new();
    let d = data(1, 2 * B);
    fs::create_dir(g.root().join("d")).unwrap();
    let outside = g.t.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let fill = |store: &Store| {
        g.land("d/x", &d);
        store.remember(Path::new("d/x"), &blocks(&d), None);
        assert_eq!(there(store, &blocks(&d)), [true, true], "the honest twin");
    };

    // The leaf becomes a link to the very same bytes.
    let store = g.open(0);
    fill(&store);
    fs::rename(g.root().join("d/x"), outside.join("x")).unwrap();
    symlink(outside.join("x"), g.root().join("d/x")).unwrap();
    assert_eq!(there(&g.open(0), &blocks(&d)), [false, false]);
    // Nor is it remembered through one.
    store.remember(Path::new("d/x"), &blocks(&d), None);
    assert_eq!(there(&g.open(0), &blocks(&d)), [false, false]);
    fs::remove_file(g.root().join("d/x")).unwrap();

    // The directory on the way becomes one.
    fill(&store);
    fs::rename(g.root().join("d"), outside.join("d")).unwrap();
    symlink(outside.join("d"), g.root().join("d")).unwrap();
    assert_eq!(there(&g.open(0), &blocks(&d)), [false, false]);
    fs::remove_file(g.root().join("d")).unwrap();
    fs::create_dir(g.root().join("d")).unwrap();

    // A FIFO without a writer.
    fill(&store);
    fs::remove_file(g.root().join("d/x")).unwrap();
    let fifo = fastcopy::dir::NameBuf::new(b"x").unwrap();
    let dir = Dir::open(&g.root().join("d")).unwrap();
    dir.make_special(fifo.as_name(), Kind::Fifo, 0o600, 0).unwrap();
    assert_eq!(there(&g.open(0), &blocks(&d)), [false, false]);
    dir.remove_file(fifo.as_name()).unwrap();

    // Another user's file.
    if effective_user() == 0 {
        fill(&store);
        std::os::unix::fs::chown(g.root().join("d/x"), Some(65534), None).unwrap();
        assert_eq!(there(&g.open(0), &blocks(&d)), [false, false]);
    } else {
        eprintln!("NOT RUN: a file of another user, which only root can make");
    }
}

// C4: what a crash leaves costs hits and nothing else.
#[test]
fn whatever_a_crash_leaves_of_the_index_heals() {
    let g = Ground::new();
    let d = data(1, 4 * B);
    let store = g.open(0);
    let blocks = g.put(&store, "a", &d);
    assert!(get(&store, &d, &blocks[0]).is_some());
    store.flush();
    drop(store);
    let whole = fs::read(g.cas().join("index")).unwrap();
    let path = g.cas().join("index");
    let sane = |what: &str| {
        let store = g.open(3 * B);
        assert!(store.bytes() <= 3 * B, "{what}");
        let found = blocks.iter().filter(|b| get(&store, &d, b).is_some()).count();
        g.put(&store, "b", &d);
        assert_eq!(there(&store, &blocks), [false, true, true, true], "{what}: not healed");
        found
    };
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let found = sane(&format!("cut at {length}"));
        assert!(length > HEADER_BYTES || found == 0);
    }
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, &bad).unwrap();
        sane(&format!("flipped at {at}"));
    }
    // A file system that gives back zeros, or another file's bytes.
    for bad in [vec![0; 5000], data(3, 5000), [&whole[..], &vec![0; 4096]].concat()] {
        fs::write(&path, &bad).unwrap();
        sane("other bytes");
    }
    // The honest twin: left alone, it is all there.
    fs::write(&path, &whole).unwrap();
    assert_eq!(sane("as it was"), 3);
}

#[test]
fn whatever_a_crash_leaves_beside_the_index_heals() {
    let g = Ground::new();
    let d = data(1, 2 * B);
    g.open(0);
    let key = fs::read(g.cas().join("key")).unwrap();
    for length in 0..key.len() {
        fs::write(g.cas().join("key"), &key[..length]).unwrap();
        fs::write(g.cas().join("key.new"), "half").unwrap();
        fs::write(g.cas().join("index.new"), "half").unwrap();
        let store = g.open(0);
        let blocks = g.put(&store, "a", &d);
        assert_eq!(there(&g.open(0), &blocks), [true, true], "{length}");
    }
    // A damaged index does not grow without end, either.
    File::options().write(true).open(g.cas().join("index")).unwrap().set_len(1 << 40).unwrap();
    let store = g.open(0);
    assert_eq!(there(&store, &blocks(&d)), [true, true]);
    assert!(fs::metadata(g.cas().join("index")).unwrap().len() < 4096);
}

#[test]
fn a_store_taken_away_under_us_is_only_a_store_less() {
    let g = Ground::new();
    let d = data(1, 2 * B);
    let store = g.open(0);
    let blocks = g.put(&store, "a", &d);
    let pinned = store.find(&blocks[0]).unwrap();
    fs::remove_dir_all(g.cas()).unwrap();
    assert!(taken(&store, &pinned, &d, &blocks[0]).is_some());
    g.put(&store, "b", &data(2, 2 * B));
    store.flush();
    assert_eq!(store.bytes(), 0);
    assert!(store.find(&blocks[1]).is_none());
    let new = g.open(0);
    g.put(&new, "c", &d);
    assert_eq!(there(&new, &blocks), [true, true]);
    // Only the lock: two that do not keep each other out must not both write.
    fs::remove_file(g.cas().join("lock")).unwrap();
    let newer = g.open(0);
    g.put(&new, "d", &data(3, 2 * B));
    assert_eq!(newer.bytes(), 2 * B);
}

/// What one process knows is never taken for the front of an index that another has written.
#[test]
fn an_index_damaged_or_replaced_under_a_process_is_read_anew() {
    let g = Ground::new();
    let store = g.open(0);
    g.put(&store, "a", &data(1, 4 * B));
    let path = g.cas().join("index");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 1], middle).unwrap();
    let other = g.open(0);
    assert!(other.bytes() < 4 * B);
    g.put(&other, "b", &data(2, B));
    assert_eq!(store.bytes(), other.bytes());

    fs::remove_file(&path).unwrap();
    let third = g.open(0);
    g.put(&third, "c", &data(3, 9 * B));
    assert_eq!((store.bytes(), third.bytes()), (9 * B, 9 * B));
    g.put(&store, "d", &data(4, B));
    assert_eq!(third.bytes(), 10 * B);
}

#[test]
fn a_holder_of_the_lock_that_sleeps_stops_nobody() {
    let g = Ground::new();
    let d = data(1, 2 * B);
    let store = g.open(0);
    let blocks = g.put(&store, "a", &d);
    let lock = File::open(g.cas().join("lock")).unwrap();
    assert_eq!(fastcopy::dir::try_lock(&lock), fastcopy::dir::Lock::Held);
    assert!(get(&store, &d, &blocks[0]).is_some());
    g.put(&store, "b", &data(2, 2 * B));
    fastcopy::dir::unlock(&lock).unwrap();
    assert_eq!(g.open(0).bytes(), 2 * B, "not remembered, no harm");
    store.flush();
    assert!(get(&store, &d, &blocks[1]).is_some());
}

// C5: what was answered is there until the end.
#[test]
fn a_pinned_block_outlives_eviction_removal_and_replacement() {
    let g = Ground::new();
    let store = g.open(2 * B);
    let d = data(1, 2 * B);
    let blocks = g.put(&store, "a", &d);
    let pinned: Vec<Pinned> = blocks.iter().map(|b| store.find(b).unwrap()).collect();
    assert!(Arc::ptr_eq(&pinned[0].file, &pinned[1].file), "one descriptor for a file");
    let other = g.open(2 * B);
    g.put(&other, "b", &data(2, 2 * B));
    g.land("a", &data(3, 2 * B));
    fs::remove_file(g.root().join("a")).unwrap();
    for (pin, block) in pinned.iter().zip(&blocks) {
        assert!(taken(&store, pin, &d, block).is_some());
    }
    assert_eq!(there(&store, &blocks), [false, false], "and nobody new is promised it");
}

#[test]
fn open_files_are_bounded_and_come_back() {
    let g = Ground::new();
    let store = g.open(0);
    let all: Vec<_> = (0..OPEN_FILES_MAX as u64 + 5)
        .map(|n| {
            let d = data(n, 100);
            (g.put(&store, &format!("f{n}"), &d)[0], d)
        })
        .collect();
    let mut pins: Vec<_> = all.iter().filter_map(|(b, _)| store.find(b)).collect();
    assert_eq!(pins.len(), OPEN_FILES_MAX);
    pins.truncate(OPEN_FILES_MAX - 5);
    assert!(all.iter().rev().take(5).all(|(b, d)| get(&store, d, b).is_some()));
}

/// The sum of what the file itself says, at this moment.
fn bytes_in(index: &Path, sums: &SumKey) -> Option<u64> {
    let bytes = fs::read(index).ok()?;
    let mut view = View::default();
    let mut most = 0;
    // After every record, not only the last: a reader may come at any time.
    let mut at = HEADER_BYTES;
    while at < bytes.len() {
        let length = 3 + usize::from(u16::from_le_bytes([*bytes.get(at + 1)?, *bytes.get(at + 2)?])) + 8;
        let Some(record) = bytes.get(at..at + length) else { break };
        if view.replay(sums, at as u64, record) == 0 {
            break;
        }
        most = most.max(view.bytes());
        at += length;
    }
    Some(most)
}

#[test]
fn a_thousand_uploads_by_four_writers_under_a_cap_of_one_block() {
    let g = Ground::new();
    let store = g.open(B);
    let key = fs::read(g.cas().join("key")).unwrap();
    let sums = blake3::derive_key("bcmr 1 store checksums", &key[8..40]);
    let (running, hits, most) = (AtomicBool::new(true), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|w| {
                let (g, hits) = (&g, &hits);
                scope.spawn(move || {
                    // A store of its own: as another process would, it excludes the others by the lock alone.
                    let store = g.open(B);
                    let look = |d: &[u8], list: &[Block]| {
                        let pins: Vec<_> = list.iter().map(|b| store.find(b)).collect();
                        std::thread::yield_now();
                        for (block, pin) in list.iter().zip(&pins) {
                            if let Some(pin) = pin {
                                // The writers never overwrite in place: what was found must be got.
                                assert!(taken(&store, pin, d, block).is_some(), "lost what was promised");
                                hits.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    };
                    for round in 0..250 {
                        let d = data(round % 3, 2 * B);
                        let list = blocks(&d);
                        // Before, when what the others put may be there; and after, when what was just put is there
                        // until the next one comes: a process that runs alone for a moment finds it.
                        look(&d, &list);
                        g.put(&store, &format!("w{w}-{}", round % 5), &d);
                        look(&d, &list);
                        assert!(store.bytes() <= B);
                    }
                    store.flush();
                })
            })
            .collect();
        let (g, running, most) = (&g, &running, &most);
        scope.spawn(move || {
            while running.load(Ordering::Relaxed) {
                if let Some(bytes) = bytes_in(&g.cas().join("index"), &sums) {
                    most.fetch_max(bytes, Ordering::Relaxed);
                }
            }
        });
        let all_well = writers.into_iter().all(|w| w.join().is_ok());
        running.store(false, Ordering::Relaxed);
        assert!(all_well);
    });
    assert_eq!(most.into_inner(), B, "over the cap, or never looked");
    assert!(hits.into_inner() > 0, "nothing was ever shared: this test shows nothing");
    assert_eq!(store.bytes(), B);
    let size = fs::metadata(g.cas().join("index")).unwrap().len();
    assert!(size < 80 << 10, "{size}: old records are thrown away");
}

// C6: sizes fit, eviction is in order and cheap.
#[test]
fn blocks_that_cannot_be_in_the_file_are_not_remembered() {
    let g = Ground::new();
    let store = g.open(0);
    let d = data(1, 2 * B);
    g.land("a", &d);
    let b = blocks(&d)[0];
    let wrong = [
        Block { len: 0, ..b },
        Block { len: B + 1, ..b },
        Block { at: 1, len: 5, ..b },
        Block { at: 2 * B, ..b },
        Block { at: u64::MAX / B * B, ..b },
        Block { at: u64::MAX, ..b },
        Block { at: u64::MAX - B, ..b },
        Block { len: u64::MAX, ..b },
    ];
    store.remember(Path::new("a"), &wrong, None);
    assert_eq!(store.bytes(), 0);
    store.remember(Path::new("a"), &[b], None);
    assert_eq!(store.bytes(), B);
}

#[test]
fn the_least_lately_used_goes_first() {
    let g = Ground::new();
    let store = g.open(3 * B);
    let d: Vec<_> = (0..5).map(|n| data(n, B)).collect();
    let b: Vec<_> = (0..3).map(|n| g.put(&store, &format!("f{n}"), &d[n])[0]).collect();
    // The first is used, by another process.
    let other = g.open(3 * B);
    assert!(get(&other, &d[0], &b[0]).is_some());
    other.flush();
    g.put(&store, "f3", &d[3]);
    assert_eq!(there(&store, &b), [true, false, true]);
    // Looking alone is no use.
    g.put(&store, "f4", &d[4]);
    assert_eq!(there(&store, &b), [true, false, false]);
    assert_eq!(store.bytes(), 3 * B);
    // The same block once more takes no further room.
    g.put(&store, "f5", &d[4]);
    assert_eq!((store.bytes(), there(&store, &b)[0]), (3 * B, true));
}

#[test]
fn a_file_larger_than_the_cap_leaves_its_end() {
    let g = Ground::new();
    let store = g.open(2 * B);
    let d = data(1, 5 * B);
    let blocks = g.put(&store, "a", &d);
    assert_eq!(there(&store, &blocks), [false, false, false, true, true]);
    assert_eq!(store.bytes(), 2 * B);
    // A smaller cap holds from the moment the store is opened, a cap below a block remembers nothing.
    assert_eq!(g.open(B).bytes(), B);
    let small = g.open(B - 1);
    assert_eq!(small.bytes(), 0);
    g.put(&small, "b", &d);
    assert_eq!(small.bytes(), 0);
}

#[test]
fn without_a_cap_the_index_is_still_bounded() {
    let g = Ground::new();
    let store = g.open(0);
    let d = data(1, 100);
    g.land("a", &d);
    let some: Vec<Block> = (0..index::BLOCKS_MAX as u64 * 3)
        .map(|n| {
            let mut cv = [0; 32];
            cv[..8].copy_from_slice(&n.to_le_bytes());
            Block { cv, at: 0, len: 1 }
        })
        .collect();
    store.remember(Path::new("a"), &some, None);
    assert_eq!(store.bytes(), index::BLOCKS_MAX as u64);
    // Long paths fill it as well.
    let long = ["d"; 1].map(|c| c.repeat(250)).join("/");
    fs::create_dir(g.root().join(&long)).unwrap();
    for n in 0..400 {
        let name = format!("{long}/f{n}");
        g.land(&name, &d);
        store.remember(Path::new(&name), &some[n..=n], None);
    }
    let size = fs::metadata(g.cas().join("index")).unwrap().len();
    assert!(size <= 2 * index::LIVE_BYTES_MAX + (64 << 10) + 1000, "{size}");
    assert!(store.find(&some[399]).is_some());
}

#[test]
fn a_store_on_a_touched_file_still_answers() {
    // Mode and ctime may change without the bytes: that must cost nothing.
    let g = Ground::new();
    let store = g.open(0);
    let d = data(1, 2 * B);
    let blocks = g.put(&store, "a", &d);
    fs::set_permissions(g.root().join("a"), fs::Permissions::from_mode(0o400)).unwrap();
    assert!(get(&g.open(0), &d, &blocks[0]).is_some());
    let file = File::open(g.root().join("a")).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 2 * B);
    // Another mtime: the index takes it for another file, which costs this block's way over the wire.
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(there(&g.open(0), &blocks), [false, false]);
}

/// Built, uploaded, removed, built again and uploaded again: what did not change is taken from the store, by any process.
/// Without `keep_bytes` it goes with the landed file.
#[test]
fn kept_blocks_outlive_their_file() {
    for (keep, want) in [(0, false), (100 * B, true)] {
        let g = Ground::new();
        let store = g.keeping(keep);
        let d = data(1, 3 * B + 100);
        let blocks = g.put(&store, "a", &d);
        fs::remove_file(g.root().join("a")).unwrap();
        let later = g.keeping(keep);
        for store in [&store, &later] {
            for block in &blocks {
                assert_eq!(get(store, &d, block).is_some(), want, "{keep}");
                // A claim for another place finds nothing, and harms nothing.
                let elsewhere = Block { at: block.at + B, ..*block };
                assert!(store.find(&elsewhere).is_none());
            }
            store.flush();
        }
        assert_eq!(g.kept().len(), if want { 4 } else { 0 });
        // C2: nothing of it for another root, and nothing without a proof.
        let root = Dir::open(&g.root()).unwrap();
        let other = Store::open(&g.cas(), 0, keep, b"other root", root).unwrap();
        assert!(blocks.iter().all(|b| other.find(b).is_none()));
        if let Some(pinned) = later.find(&blocks[0]) {
            assert_eq!(later.take(&pinned, &NONCE, &[0; 32]), None);
            assert!(get(&later, &d, &blocks[0]).is_some(), "it stays");
        }
        // C3: no other user reads it.
        for path in g.kept() {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o600);
        }
        if want {
            assert_eq!(fs::metadata(g.cas().join("kept")).unwrap().mode() & 0o777, 0o700);
            // C5: one that is pinned is there until it was taken.
            let pinned = later.find(&blocks[1]).unwrap();
            drop(g.keeping(0));
            assert!(g.kept().is_empty(), "a lower cap holds at once");
            assert!(taken(&later, &pinned, &d, &blocks[1]).is_some());
            assert!(later.find(&blocks[2]).is_none());
        }
    }
}

/// C1 and C4 for kept blocks: whatever is wrong with one, it is missing, and the next upload puts it right.
#[test]
fn kept_blocks_that_are_damaged_are_missing_and_come_back() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 6] = [
        ("a flipped bit", |path| {
            let file = File::options().read(true).write(true).open(path).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, 77).unwrap();
            file.write_all_at(&[byte[0] ^ 4], 77).unwrap();
        }),
        ("cut", |path| File::options().write(true).open(path).unwrap().set_len(5).unwrap()),
        ("empty", |path| drop(File::create(path).unwrap())),
        ("gone", |path| fs::remove_file(path).unwrap()),
        ("a link", |path| {
            fs::remove_file(path).unwrap();
            symlink("/etc/passwd", path).unwrap();
        }),
        ("open to others", |path| fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap()),
    ];
    for (what, damage) in damages {
        let g = Ground::new();
        let store = g.keeping(100 * B);
        let d = data(1, B);
        let blocks = g.put(&store, "a", &d);
        damage(&g.kept()[0]);
        fs::remove_file(g.root().join("a")).unwrap();
        assert!(get(&store, &d, &blocks[0]).is_none(), "{what}");
        store.flush();
        g.put(&store, "again", &d);
        fs::remove_file(g.root().join("again")).unwrap();
        assert!(get(&g.keeping(100 * B), &d, &blocks[0]).is_some(), "{what}: the twin");
        assert_eq!(g.kept().len(), 1, "{what}");
    }
}

/// The cap holds on the disk behind every upload, the longest unused goes first, and what is used stays.
#[test]
fn kept_blocks_have_a_cap_and_the_oldest_use_goes_first() {
    let g = Ground::new();
    let store = g.keeping(4 * B);
    let files: Vec<Vec<u8>> = (0..8).map(|n| data(n, B)).collect();
    for (n, d) in files.iter().enumerate() {
        let blocks = g.put(&store, &format!("f{n}"), d);
        fs::remove_file(g.root().join(format!("f{n}"))).unwrap();
        assert!(blocks.iter().all(|b| get(&store, d, b).is_some()));
        // The first is used again and again.
        assert!(get(&store, &files[0], &super::tests::blocks(&files[0])[0]).is_some(), "{n}");
        store.flush();
        let bytes: u64 = g.kept().iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert!(bytes <= 4 * B, "{n}: {bytes}");
    }
    let there: Vec<bool> = files.iter().map(|d| store.find(&super::tests::blocks(d)[0]).is_some()).collect();
    assert_eq!(there, [true, false, false, false, false, true, true, true]);
    // A file larger than the cap: its last blocks.
    let large = data(9, 9 * B);
    let blocks = g.put(&store, "large", &large);
    fs::remove_file(g.root().join("large")).unwrap();
    assert_eq!(blocks.iter().filter(|b| get(&store, &large, b).is_some()).count(), 4);
}

/// A kill between any two steps leaves nothing that is wrong, nothing that is not counted, and nothing for good.
#[test]
fn kept_blocks_survive_kills() {
    let g = Ground::new();
    let d = data(1, 2 * B);
    let store = g.keeping(100 * B);
    let blocks = g.put(&store, "a", &d);
    fs::remove_file(g.root().join("a")).unwrap();
    let kept = g.kept();
    // Promised and not yet copied; copied in part; copied and not yet named.
    let new = |path: &Path| path.with_extension("new");
    fs::rename(&kept[0], new(&kept[0])).unwrap();
    File::options().write(true).open(new(&kept[0])).unwrap().set_len(7).unwrap();
    fs::rename(&kept[1], new(&kept[1])).unwrap();
    let store = g.keeping(100 * B);
    assert!(blocks.iter().all(|b| get(&store, &d, b).is_none()));
    store.flush();
    assert!(g.kept().is_empty(), "what was promised and not there is taken away");
    g.put(&store, "a", &d);
    fs::remove_file(g.root().join("a")).unwrap();
    assert!(blocks.iter().all(|b| get(&store, &d, b).is_some()));
    store.flush();
    // The index is torn, or another one: blocks that it does not know any more are removed.
    let index = g.cas().join("index");
    let bytes = fs::read(&index).unwrap();
    for torn in [&bytes[..bytes.len() - 3], &bytes[..HEADER_BYTES], b"", &bytes[..bytes.len() / 2]] {
        fs::write(&index, torn).unwrap();
        let store = g.keeping(100 * B);
        let known = g.kept().len();
        assert_eq!(blocks.iter().filter(|b| get(&store, &d, b).is_some()).count(), known);
        g.put(&store, "a", &d);
        fs::remove_file(g.root().join("a")).unwrap();
        assert_eq!(blocks.iter().filter(|b| get(&store, &d, b).is_some()).count(), 2);
        assert_eq!(g.kept().len(), 2);
    }
}
