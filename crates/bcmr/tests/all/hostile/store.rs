//! What a peer gets of a store that is not its own: a server that asks a client about blocks hears of what it sent itself, and no
//! byte goes into a file that it does not show to have; a client gets help of the last version only while that is as it landed.

use super::peer::*;
use super::server::{data, file_end, send_large, value};
use crate::common::*;
use bcmr_wire::handshake::{self, Features, caps, wide};
use bcmr_wire::message::{Codec, DirState, Hash, Message, Patch, Piece, Run, Target, data as bits, kind};
use bcmr_wire::policy::flags;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::LazyLock;

const BLOCK: usize = 4 << 20;
/// As many as a file needs that blocks are asked about for.
const BLOCKS: usize = 4;

fn ours() -> Features {
    ALL.or(Features { caps: 0, wide: wide::STORES | wide::DELTA })
}

fn block(n: usize) -> &'static [u8] {
    &all()[n * BLOCK..][..BLOCK]
}

/// The content of the file, made once.
fn all() -> &'static [u8] {
    static MADE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let blocks: Vec<_> = (0..BLOCKS).map(|n| noise(177 + n as u64, BLOCK)).collect();
        blocks.concat()
    });
    &MADE
}

fn values() -> Vec<Hash> {
    (0..BLOCKS).map(|n| value(block(n), (n * BLOCK) as u64)).collect()
}

/// Offers `x`, up to what the client says of it.
fn offers(w: &mut Wire, features: Features, size: usize) {
    w.greet_with(features);
    w.asked();
    w.say(&operand(1, file(b"x", size as u64)));
    w.say(&Message::Large { file: 1, dir: 1, entry: file(b"x", size as u64) });
    w.until(kind::RESUME);
}

/// `host` sends the file whole, to be remembered.
fn sends(place: &Place, host: &str, to: &str) {
    let from = format!("{host}:x");
    let sent = place.attack("it is sent", &["copy", &from, to], |w| {
        offers(w, ours(), BLOCKS * BLOCK);
        send_large(w, 1, all());
        w.until(kind::CLOSE);
        w.all_sent();
    });
    sent.ok();
}

/// What the client says to who claims the blocks and proves them by `tag`.
struct Claimed {
    has: Vec<bool>,
    asks_again: bool,
    landed: bool,
}

/// A server called `host` that names the blocks of a new file and sends none of them.
fn claims(place: &Place, words: &[&str], tag: fn(&Hash, &[u8]) -> Hash) -> Claimed {
    let (mut has, mut asks_again) = (Vec::new(), false);
    let to = words.last().and_then(|to| to.strip_prefix("DST/")).unwrap();
    let new = place.dst().join(to);
    let _outcome = place.attack(&words.join(" "), words, |w| {
        offers(w, ours(), BLOCKS * BLOCK);
        w.say(&Message::HaveBlocks { file: 1, first: 0, hashes: values() });
        let said = w.until(kind::MISSING_BLOCKS).expect("an answer");
        let Message::MissingBlocks { nonce, bits, .. } = said.message() else { unreachable!() };
        has = (0..BLOCKS).map(|n| bits[n / 8] >> (n % 8) & 1 == 0).collect();
        let tags: Vec<Hash> = (0..BLOCKS).filter(|n| has[*n]).map(|n| tag(&nonce, block(n))).collect();
        if !tags.is_empty() {
            w.say(&Message::Proof { file: 1, first: 0, tags });
            w.say(&file_end(1));
            while let Some(said) = w.hear() {
                match said.kind {
                    kind::REREAD => {
                        asks_again = true;
                        break;
                    }
                    kind::CLOSE => {
                        w.all_sent();
                        return;
                    }
                    _ => {}
                }
            }
        }
        w.close();
        w.hold();
    });
    let landed = fs::read(&new).is_ok_and(|bytes| bytes == all());
    assert!(landed || !new.exists(), "{words:?}: something else has landed");
    Claimed { has, asks_again, landed }
}

fn honest(nonce: &Hash, block: &[u8]) -> Hash {
    *blake3::keyed_hash(nonce, block).as_bytes()
}

/// C2, C7: a server is told of what it sent itself and of nothing else, whatever it or the user calls it; and who knows a hash
/// only has no file made of it.
#[test]
fn a_server_is_answered_from_what_it_sent_itself() {
    let place = Place::new();
    sends(&place, "host", "DST/mine");
    let to = "DST/claimed";
    let known = claims(&place, &["copy", "host:x", "DST/again"], honest);
    assert_eq!(
        (known.has, known.asks_again, known.landed),
        (vec![true; BLOCKS], false, true),
        "the honest twin"
    );
    let others = [
        &["copy", "other:x", to][..],
        &["copy", "me@host:x", to],
        &["copy", "--port=23", "host:x", to],
        &["copy", "-o", "HostName=other", "host:x", to],
        &["copy", "-J", "other", "host:x", to],
        &["copy", "--remote-sudo=root", "host:x", to],
    ];
    for words in others {
        let told = claims(&place, words, honest);
        assert_eq!(told.has, [false; BLOCKS], "{words:?}: it is not even admitted");
    }
    let forged = claims(&place, &["copy", "host:x", to], |_, _| [5; 32]);
    assert_eq!((forged.has, forged.asks_again), (vec![true; BLOCKS], true), "without a proof");
    let stale = claims(&place, &["copy", "host:x", to], |_, block| honest(&[0; 32], block));
    assert!(stale.asks_again, "a proof of another time");
    // What the user has from elsewhere is not told, however alike.
    for name in ["mine", "again"] {
        fs::remove_file(place.dst().join(name)).unwrap();
        fs::write(place.dst().join(name), all()).unwrap();
    }
    let told = claims(&place, &["copy", "host:x", to], honest);
    assert_eq!(told.has, [false; BLOCKS], "a file that it did not send");
}

/// C1: what landed is hashed again when it is taken.
#[test]
fn what_was_changed_here_is_asked_for_again() {
    let place = Place::new();
    sends(&place, "host", "DST/mine");
    change(&place.dst().join("mine"), 5);
    let told = claims(&place, &["copy", "host:x", "DST/claimed"], honest);
    assert!(told.has[0] && told.asks_again && !told.landed);
    // It shows that it knows what is there now, and has named what was there before.
    let of_now = |nonce: &Hash, of: &[u8]| {
        let mut now = of.to_vec();
        if of == block(0) {
            now[5..12].copy_from_slice(b"changed");
        }
        honest(nonce, &now)
    };
    let place = Place::new();
    sends(&place, "host", "DST/mine");
    change(&place.dst().join("mine"), 5);
    let told = claims(&place, &["copy", "host:x", "DST/claimed"], of_now);
    assert!(told.has[0] && told.asks_again && !told.landed);
}

/// C7: a server that offers another version hears sums of the last one only where all of that is what it has sent itself, and the
/// same file lands whatever it hears.
#[test]
fn sums_only_of_what_was_sent() {
    type Meanwhile = fn(&Path);
    let rows: [(&str, &str, Meanwhile, bool); 5] = [
        ("as it was sent", "host:x", |_| {}, true),
        ("changed since", "host:x", damage, false),
        ("another machine", "other:x", |_| {}, false),
        ("gone", "host:x", |p| fs::remove_file(p).unwrap(), false),
        ("its last byte", "host:x", |p| change(p, OLD as u64 - 7), false),
    ];
    for (what, from, meanwhile, tells) in sliced(rows, 2) {
        let place = Place::new();
        sends(&place, "host", "DST/mine");
        meanwhile(&place.dst().join("mine"));
        let mut told = false;
        let outcome = place.attack(what, &["copy", from, "DST/next"], |w| {
            w.greet_with(ours());
            w.asked();
            w.say(&operand(1, file(b"x", NEW as u64)));
            w.say(&Message::Large { file: 1, dir: 1, entry: file(b"x", NEW as u64) });
            loop {
                match w.hear().expect("an answer").kind {
                    kind::SUMS => told = true,
                    kind::RESUME => break,
                    _ => {}
                }
            }
            send_large(w, 1, next_version());
            w.until(kind::CLOSE);
            w.all_sent();
        });
        outcome.ok();
        assert_eq!(told, tells, "{what}");
        assert!(fs::read(place.dst().join("next")).unwrap() == next_version(), "{what}");
    }
}

/// Who was told that there is no store, or none for this copy, and asks all the same, breaks the protocol.
#[test]
fn questions_to_a_client_without_a_store() {
    let place = Place::new();
    sends(&place, "host", "DST/mine");
    let rows: [(&[&str], Features); 4] = [
        (&["copy", "host:x", "DST/claimed"], ALL),
        (&["copy", "--no-dedup", "host:x", "DST/claimed"], ours()),
        (&["copy", "--fast", "host:x", "DST/claimed"], ours()),
        (&["copy", "-n", "host:x", "DST/claimed"], ours()),
    ];
    for (words, features) in rows {
        let outcome = place.attack(&words.join(" "), words, |w| {
            offers(w, features, BLOCKS * BLOCK);
            w.say(&Message::HaveBlocks { file: 1, first: 0, hashes: values() });
            let said = w.until(kind::MISSING_BLOCKS);
            assert!(said.is_none(), "{words:?}: it is told {said:?}");
            w.close();
            w.hold();
        });
        outcome.failed();
        assert!(!place.dst().join("claimed").exists());
    }
}

/// A client that says that it lacks all is one that has nothing.
#[test]
fn answers_about_blocks_that_make_no_sense() {
    let place = Place::new();
    type Script = fn(&mut Wire);
    let scripts: [(&str, Script); 3] = [
        ("blocks behind the end", |w| {
            w.say(&Message::HaveBlocks { file: 1, first: 3, hashes: vec![[7; 32]; 2] });
        }),
        ("a proof of nothing", |w| {
            w.say(&Message::Proof { file: 1, first: 0, tags: vec![[7; 32]] });
        }),
        ("blocks of a file that is not on offer", |w| {
            w.say(&Message::HaveBlocks { file: 2, first: 0, hashes: vec![[7; 32]] });
        }),
    ];
    for (what, script) in scripts {
        let outcome = place.attack(what, &["copy", "host:x", "DST/y"], |w| {
            offers(w, ours(), BLOCKS * BLOCK);
            script(w);
            w.say(&data(1, 0, None, &[7; 1 << 20]));
            w.say(&Message::AllSent);
            w.hold();
        });
        outcome.failed();
        assert!(!place.dst().join("y").exists(), "{what}");
    }
}

// ---- a server's basis: the file that came last from where the one on offer comes from ----

/// What a client says of itself and of what it has.
struct Offer {
    machine: u64,
    path: &'static [u8],
    dedup: bool,
    size: usize,
}

const DUMP: Offer = Offer { machine: 7, path: b"dump", dedup: true, size: NEW };
const OLD: usize = BLOCKS * BLOCK;
const NEW: usize = OLD + 2;
const MIB: usize = 1 << 20;

/// The next version: two bytes in front of all.
fn next_version() -> &'static [u8] {
    static MADE: LazyLock<Vec<u8>> = LazyLock::new(|| [b"xx".as_slice(), all()].concat());
    &MADE
}

/// A client puts a file as `to`; whether the server tells sums of what it has, up to where it says what it wants.
fn puts(w: &mut Wire, to: &[u8], offer: &Offer) -> bool {
    let features = Features { caps: ALL.caps | caps::DEDUP, ..ours() };
    w.say(&Message::Hello(handshake::hello(features, [8; 32], b"peer", None)));
    w.until(kind::WELCOME).unwrap();
    let how = policy(if offer.dedup { flags::DEDUP } else { 0 });
    w.say(&Message::Put { policy: how, target: Target::Exactly, path: to, operands: 1, items: false });
    let entry = file(offer.path, offer.size as u64);
    let (origin, dir) = (offer.machine, 1);
    w.say(&Message::Operand { path: offer.path, whole: false, origin, dir, entry: entry.clone() });
    w.say(&Message::Large { file: 1, dir, entry });
    let mut sums = false;
    loop {
        let said = w.hear().expect("an answer");
        match said.kind {
            kind::SUMS => sums = true,
            kind::RESUME => return sums,
            kind::ERROR => panic!("{:?}", said.message()),
            _ => {}
        }
    }
}

/// Ends such a transfer; sends again what is asked for again, and returns which blocks that was.
fn until_landed(w: &mut Wire, bytes: &[u8]) -> Vec<usize> {
    let mut again = Vec::new();
    w.say(&file_end(1));
    loop {
        let said = w.hear().expect("it goes on");
        match said.message() {
            Message::Reread { at, bytes: count, .. } => {
                let (from, to) = (at as usize, (at + count) as usize);
                again.push(from / BLOCK);
                for start in (from..to).step_by(MIB) {
                    let end = to.min(start + MIB);
                    let cv = (end == to).then(|| value(&bytes[from..to], at));
                    let flags = bits::ASKED | if cv.is_some() { bits::ENDS_BLOCK } else { 0 };
                    let (at, part) = (start as u64, &bytes[start..end]);
                    let length = part.len() as u64;
                    w.say(&Message::Data(Piece {
                        file: 1,
                        at,
                        flags,
                        cv,
                        codec: Codec::Raw,
                        length,
                        bytes: part,
                    }));
                }
            }
            Message::Close { .. } => break,
            _ => {}
        }
    }
    w.say(&Message::AllSent);
    let said = w.until(kind::SUMMARY).unwrap();
    assert!(matches!(said.message(), Message::Summary { counts, .. } if counts[5] == 0));
    w.say(&Message::Done);
    again
}

/// The next version, each piece made of what the server has of the last one.
fn patches(w: &mut Wire) {
    let new = next_version();
    for at in (0..NEW).step_by(MIB) {
        let end = NEW.min(at + MIB);
        let block = at / BLOCK * BLOCK;
        let ends = end == NEW || end.is_multiple_of(BLOCK);
        let cv = ends.then(|| value(&new[block..end], block as u64));
        let (carried, from) = if at == 0 { (2, 0) } else { (0, at - 2) };
        let mut runs = vec![Run { bytes: (end - at - carried) as u64, from: Some(from as u64) }];
        if carried > 0 {
            runs.insert(0, Run { bytes: carried as u64, from: None });
        }
        let (at, bytes) = (at as u64, &b"xx"[..carried]);
        w.say(&Message::Patch(Patch { file: 1, at, cv, runs, codec: Codec::Raw, bytes }));
    }
}

/// A place with a file `d/monday` that came from `dump` of machine 7.
fn monday() -> Place {
    let place = Place::new();
    place.tmp.dir("dst/d");
    place.serve("monday", ROOT, |w| {
        let first = Offer { size: OLD, ..DUMP };
        assert!(!puts(w, b"d/monday", &first));
        send_large(w, 1, all());
        until_landed(w, all());
    });
    assert!(fs::read(place.dst().join("d/monday")).unwrap() == all());
    place
}

/// Writes into a file, and leaves its size and times as they were.
fn change(path: &Path, at: u64) {
    let when = fs::metadata(path).unwrap().modified().unwrap();
    let open = fs::File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&open, b"changed", at).unwrap();
    open.set_modified(when).unwrap();
}

fn damage(path: &Path) {
    change(path, 9_000_000);
}

const ROOT: &[&str] = &["--root", "DST"];

/// Whatever has become of the last version, its sums are told only while it is the very file that landed, below the root and
/// through no link; and what lands is what was sent.
#[test]
fn the_last_version_is_used_only_as_it_landed() {
    type Meanwhile = fn(&Place);
    let rows: [(&str, Meanwhile, Offer, bool); 12] = [
        ("as it landed", |_| {}, DUMP, true),
        ("damaged", |p| damage(&p.dst().join("d/monday")), DUMP, true),
        ("of another machine", |_| {}, Offer { machine: 8, ..DUMP }, false),
        ("of another path", |_| {}, Offer { path: b"dumps", ..DUMP }, false),
        ("without a store", |_| {}, Offer { dedup: false, ..DUMP }, false),
        ("as long as it", |_| {}, Offer { size: OLD, ..DUMP }, false),
        (
            "replaced",
            |p| {
                let last = p.dst().join("d/monday");
                fs::remove_file(&last).unwrap();
                fs::write(last, all()).unwrap();
            },
            DUMP,
            false,
        ),
        (
            "a link to it",
            |p| {
                let last = p.dst().join("d/monday");
                fs::rename(&last, p.dst().join("d/moved")).unwrap();
                symlink("moved", last).unwrap();
            },
            DUMP,
            false,
        ),
        (
            "a link out of the root above it",
            |p| {
                fs::rename(p.dst().join("d"), p.tmp.p("outside/d")).unwrap();
                symlink(p.tmp.p("outside/d"), p.dst().join("d")).unwrap();
            },
            DUMP,
            false,
        ),
        (
            "a FIFO",
            |p| {
                fs::remove_file(p.dst().join("d/monday")).unwrap();
                mkfifo(&p.dst().join("d/monday"));
            },
            DUMP,
            false,
        ),
        (
            "somebody else's",
            |p| {
                if is_root() {
                    std::os::unix::fs::chown(p.dst().join("d/monday"), Some(1234), None).unwrap();
                } else {
                    fs::remove_file(p.dst().join("d/monday")).unwrap();
                }
            },
            DUMP,
            false,
        ),
        ("gone", |p| fs::remove_file(p.dst().join("d/monday")).unwrap(), DUMP, false),
    ];
    // Of those that tell nothing an ordinary run tries half.
    let tried = rows.into_iter().enumerate().filter(|(n, row)| row.3 || in_slice(*n, 2));
    for (_, (what, meanwhile, offer, tells)) in tried {
        let place = monday();
        meanwhile(&place);
        let bytes = if offer.size == OLD { all() } else { next_version() };
        let (told, _) = place.serve(what, ROOT, |w| {
            let told = puts(w, b"tuesday", &offer);
            if told || all_cases() {
                send_large(w, 1, bytes);
                until_landed(w, bytes);
            } else {
                // What comes to a server that told nothing lands as any file does.
                w.close();
                w.hold();
            }
            told
        });
        assert_eq!(told, tells, "{what}");
        if told || all_cases() {
            assert!(fs::read(place.dst().join("tuesday")).unwrap() == bytes, "{what}");
        }
    }
    // What landed below one root is nothing to another, though the very same file is there by the same name.
    for root in ["dst/d", "other"] {
        let place = monday();
        let root = place.tmp.p(root);
        fs::create_dir_all(root.join("d")).unwrap();
        fs::hard_link(place.dst().join("d/monday"), root.join("d/monday")).unwrap();
        let (told, _) = place.serve("another root", &["--root", &root.display().to_string()], |w| {
            let told = puts(w, b"tuesday", &DUMP);
            w.close();
            w.hold();
            told
        });
        assert!(!told, "{root:?}");
    }
}

/// The last version changes between its sums and the pieces made of it: what is not as it was is asked for again, once, and what
/// lands is what was sent.
#[test]
fn a_last_version_that_changes_under_way() {
    type Meanwhile = fn(&Path);
    let rows: [(&str, Meanwhile, &[usize]); 5] = [
        ("nothing", |_| {}, &[]),
        ("written into", damage, &[2]),
        (
            "cut",
            |p| fs::File::options().write(true).open(p).unwrap().set_len(BLOCK as u64).unwrap(),
            &[1, 2, 3, 4],
        ),
        ("gone", |p| fs::remove_file(p).unwrap(), &[]),
        (
            "replaced",
            |p| {
                fs::write(p.with_extension("new"), noise(1, OLD)).unwrap();
                fs::rename(p.with_extension("new"), p).unwrap();
            },
            &[],
        ),
    ];
    for (what, meanwhile, again) in sliced(rows, 2) {
        let place = monday();
        let last = place.dst().join("d/monday");
        let (asked, _) = place.serve(what, ROOT, |w| {
            assert!(puts(w, b"tuesday", &DUMP), "{what}: this judges nothing");
            meanwhile(&last);
            patches(w);
            until_landed(w, next_version())
        });
        assert_eq!(asked, again, "{what}");
        assert!(fs::read(place.dst().join("tuesday")).unwrap() == next_version(), "{what}");
    }
}

/// A server asks about blocks only a client that says that it may be asked: one from before stores of downloads would end the
/// connection, and one that wants no hashes could not compare them.
#[test]
fn only_who_says_so_is_asked() {
    let rows = [
        ("with a store", wide::STORES, 0, true),
        ("from before", 0, 0, false),
        ("from before, with the store of a server", 0, flags::DEDUP, false),
        ("without hashes", wide::STORES, flags::FAST, false),
    ];
    for (what, has, how, asks) in rows {
        let place = Place::new();
        place.tmp.file("dst/big", all());
        let features = Features { caps: ALL.caps | caps::DEDUP, wide: ALL.wide | has };
        let (asked, _) = place.serve(what, ROOT, |w| {
            w.say(&Message::Hello(handshake::hello(features, [8; 32], b"peer", None)));
            w.until(kind::WELCOME).unwrap();
            w.say(&Message::Get { policy: policy(how), paths: vec![b"big"], names: None });
            let mut asked = false;
            while let Some(said) = w.hear() {
                match said.message() {
                    Message::Operand { dir, .. } => {
                        w.say(&Message::DirIs { dir, state: DirState::There });
                    }
                    Message::Large { file, .. } => {
                        let flags = u8::from(how & flags::FAST != 0);
                        w.say(&Message::Resume { file, wanted: true, from: 0, flags });
                    }
                    Message::HaveBlocks { .. } => {
                        asked = true;
                        break;
                    }
                    Message::FileEnd { .. } => break,
                    Message::Error(_) => panic!("{what}: {:?}", said.message()),
                    _ => {}
                }
            }
            w.close();
            w.hold();
            asked
        });
        assert_eq!(asked, asks, "{what}");
    }
}
