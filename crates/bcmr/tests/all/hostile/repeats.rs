//! Malicious peers about contents that came before in the same transfer, of which the hash is enough.

use super::peer::*;
use crate::common::*;
use bcmr_wire::contents;
use bcmr_wire::handshake::{Features, caps, wide};
use bcmr_wire::message::{Codec, DirState, Message, Wanted, WantedPart, kind};
use std::slice::from_ref;

const ROOT: &[&str] = &["--root", "DST"];
const PUT: &[&str] = &["copy", "-r", "tree", "host:x"];
const SIZE: usize = 50_000;

/// What one from before knows, and packs nothing.
fn old() -> Features {
    Features { caps: caps::FAST | caps::SYNC, ..ALL }
}

fn ours() -> Features {
    old().or(Features { caps: 0, wide: wide::PARTS | wide::REPEATS })
}

fn content() -> Vec<u8> {
    noise(1, SIZE)
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

fn hashed(length: u64, hash: [u8; 32]) -> Vec<u8> {
    let mut out = Vec::new();
    contents::push_hashed(&mut out, length, &hash);
    out
}

// ---- a receiver ----

/// A client that puts two files of one content, and is asked this of them, one thing after the other; all contents that came.
fn offered(what: &str, agreed: Features, asked: &[Message<'_>]) -> (Outcome, Vec<Vec<u8>>) {
    let place = Place::new();
    place.tmp.file("tree/a", content());
    place.tmp.file("tree/b", content());
    let settled = Message::Wants { batch: 1, entries: Vec::new() };
    let mut came = Vec::new();
    let outcome = place.attack(what, PUT, |w| {
        w.greet_with(agreed);
        w.asked();
        let mut asked = asked.iter();
        while let Some(said) = w.hear() {
            match said.message() {
                Message::Operand { dir, .. } | Message::Dir { id: dir, .. } => {
                    w.say(&Message::DirIs { dir, state: DirState::There });
                }
                Message::Files { contents: bytes, .. } | Message::Contents { bytes, .. } => {
                    if !bytes.is_empty() {
                        came.push(bytes.to_vec());
                    }
                    w.say(asked.next().unwrap_or(&settled));
                }
                other if w.ends(&other, [2, 1, 0, 2 * SIZE as u64, 0, 0, 0]) => return,
                _ => {}
            }
        }
    });
    (outcome, came)
}

#[test]
fn a_receiver_that_asks_for_what_it_has() {
    let both = || Message::Wants { batch: 1, entries: vec![0, 1] };
    let one = |entry| Message::Wants { batch: 1, entries: vec![entry] };
    let part = |entry| {
        let entries = vec![WantedPart { entry, wanted: Wanted::Hash }];
        Message::WantsParts { batch: 1, entries }
    };
    let (whole, twice) = (contents(&[&content()]), contents(&[&content(), &content()]));
    let by_hash = [whole.clone(), hashed(SIZE as u64, hash(&content()))].concat();
    // The honest ones: one to which the hash is enough, one that asks for the content after all, and one from before.
    let (outcome, came) = offered("it has it", ours(), &[both()]);
    outcome.ok();
    assert!(came == [by_hash.clone()]);
    let (outcome, came) = offered("it has it not", ours(), &[both(), one(1)]);
    outcome.ok();
    assert!(came == [by_hash.clone(), whole.clone()]);
    let (outcome, came) = offered("an old one", old(), &[both()]);
    outcome.ok();
    assert!(came == [twice]);
    // Each is a few bytes there, and all of the file read here.
    let table: [(&str, Vec<Message<'_>>); 5] = [
        ("the content twice", vec![both(), one(1), one(1)]),
        ("of one that it was given, twice", vec![both(), one(0)]),
        ("a hash after the hash", vec![both(), part(1)]),
        ("a hash after the content", vec![both(), one(1), part(1)]),
        ("both again", vec![both(), both()]),
    ];
    for (what, asked) in table {
        offered(what, ours(), &asked).0.failed();
    }
}

// ---- a sender ----

/// A client that puts `a` and, once that has landed, gives `answers` for `b`, one after the other; what came of `b`, and
/// what was asked for it. In between, `meanwhile` happens at the destination.
fn puts(
    what: &str,
    agreed: Features,
    meanwhile: impl Fn(&Place) + Send + Sync,
    answers: &[Vec<u8>],
) -> (Option<Vec<u8>>, usize) {
    let place = Place::new();
    place.tmp.dir("dst/tree");
    let asked = place.besiege(what, ROOT, |w| {
        w.put_tree(agreed);
        w.say(&on_offer(1, 1, vec![file(b"a", SIZE as u64)]));
        w.until(kind::WANTS);
        let codec = Codec::Raw;
        w.say(&Message::Contents { batch: 1, codec, bytes: &contents(&[&content()]) });
        w.until(kind::WANTS);
        meanwhile(&place);
        w.say(&on_offer(2, 1, vec![file(b"b", SIZE as u64)]));
        w.say(&Message::DirEnd { dir: 1, partial: false });
        let (mut answers, mut asked) = (answers.iter(), 0);
        while let Some(said) = w.hear() {
            match said.message() {
                Message::Wants { entries, .. } if entries.is_empty() => break,
                Message::Wants { .. } => {
                    asked += 1;
                    let Some(bytes) = answers.next() else { break };
                    w.say(&Message::Contents { batch: 2, codec, bytes });
                }
                Message::Error(_) => {
                    w.say(&Message::Done);
                    return asked;
                }
                _ => {}
            }
        }
        w.all_sent();
        asked
    });
    (std::fs::read(place.dst().join("tree/b")).ok(), asked)
}

/// A wrong candidate never gives a wrong file.
#[test]
fn what_came_before_is_compared() {
    let (known, whole) = (hashed(SIZE as u64, hash(&content())), contents(&[&content()]));
    let same = || Some(content());
    let nothing = |_: &Place| {};
    assert!(puts("the honest one", ours(), nothing, from_ref(&known)) == (same(), 1));
    assert!(puts("one that sends all", ours(), nothing, from_ref(&whole)) == (same(), 1));
    type Change = fn(&Place);
    let changes: [(&str, Change); 6] = [
        ("written to", |place| std::fs::write(place.dst().join("tree/a"), noise(2, SIZE)).unwrap()),
        ("one byte of it", |place| {
            let path = place.dst().join("tree/a");
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[SIZE / 2] ^= 1;
            std::fs::write(path, bytes).unwrap();
        }),
        ("longer", |place| {
            std::fs::write(place.dst().join("tree/a"), [content(), vec![1]].concat()).unwrap()
        }),
        ("gone", |place| std::fs::remove_file(place.dst().join("tree/a")).unwrap()),
        ("a FIFO", |place| {
            std::fs::remove_file(place.dst().join("tree/a")).unwrap();
            mkfifo(&place.dst().join("tree/a"));
        }),
        ("a link to the same", |place| {
            std::fs::rename(place.dst().join("tree/a"), place.dst().join("elsewhere")).unwrap();
            std::os::unix::fs::symlink("../elsewhere", place.dst().join("tree/a")).unwrap();
        }),
    ];
    for (what, change) in changes {
        let (landed, asked) = puts(what, ours(), change, &[known.clone(), whole.clone()]);
        assert!(landed == same() && asked == 2, "{what}: asked {asked} times");
    }
    // A hash of what has not come in this transfer gets nothing of what is there, and of the wrong length neither.
    let there = |place: &Place| drop(std::fs::write(place.dst().join("secret"), noise(9, SIZE)));
    for (what, lie) in [
        ("a hash of what is there otherwise", hashed(SIZE as u64, hash(&noise(9, SIZE)))),
        ("another length", hashed(SIZE as u64 - 1, hash(&content()))),
        ("a length without end", hashed(u64::MAX, hash(&content()))),
    ] {
        let (landed, asked) = puts(what, ours(), there, &[lie.clone(), whole.clone()]);
        assert!(landed == same() && asked == 2, "{what}: asked {asked} times");
        // It was asked for the content then, and for nothing else.
        assert!(puts(what, ours(), there, &[lie.clone(), lie]) == (None, 2), "{what}, again");
    }
    let gone = |place: &Place| std::fs::remove_file(place.dst().join("tree/a")).unwrap();
    assert!(puts("a hash for the content", ours(), gone, &[known.clone(), known.clone()]) == (None, 2));
    assert!(puts("without having agreed on it", old(), nothing, &[known]) == (None, 1));
}

/// What goes along with a batch may repeat what is in it, and what comes as a hash of nothing is asked for.
#[test]
fn hashes_that_go_along() {
    let place = Place::new();
    let asked = place.besiege("inline", ROOT, |w| {
        w.put_tree(ours());
        w.until(kind::DIR_IS);
        let entries = [b"a", b"b", b"c"].map(|name| file(name, SIZE as u64)).to_vec();
        let unknown = hashed(SIZE as u64, hash(&noise(3, SIZE)));
        let known = hashed(SIZE as u64, hash(&content()));
        let along = [known, contents(&[&content()]), unknown].concat();
        w.say(&files(1, 1, entries, &along));
        w.say(&Message::DirEnd { dir: 1, partial: false });
        let mut asked = Vec::new();
        while let Some(said) = w.hear() {
            match said.message() {
                Message::Wants { entries, .. } if entries.is_empty() => break,
                Message::Wants { entries, .. } => {
                    asked.push(entries);
                    let bytes = contents(&[&noise(3, SIZE)]);
                    w.say(&Message::Contents { batch: 1, codec: Codec::Raw, bytes: &bytes });
                }
                Message::Error(e) => panic!("{e:?}"),
                _ => {}
            }
        }
        w.all_sent();
        asked
    });
    assert_eq!(asked, [[2]]);
    for (name, bytes) in [("a", content()), ("b", content()), ("c", noise(3, SIZE))] {
        assert!(std::fs::read(place.dst().join("tree").join(name)).unwrap() == bytes, "{name}");
    }
}
