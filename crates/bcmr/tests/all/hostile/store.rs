//! A malicious server that asks a client which blocks it has: what it sent itself, and nothing else, and no byte of it goes into
//! a file unless the server shows that it has it too.

use super::peer::*;
use super::server::{data, file_end, send_large, value};
use crate::common::*;
use bcmr_wire::handshake::{Features, wide};
use bcmr_wire::message::{Hash, Message, kind};
use std::fs;

const BLOCK: usize = 4 << 20;
/// As many as a file needs that blocks are asked about for.
const BLOCKS: usize = 4;

fn ours() -> Features {
    ALL.or(Features { caps: 0, wide: wide::STORES | wide::DELTA })
}

fn block(n: usize) -> Vec<u8> {
    noise(177 + n as u64, BLOCK)
}

fn all() -> Vec<u8> {
    (0..BLOCKS).flat_map(block).collect()
}

fn values() -> Vec<Hash> {
    (0..BLOCKS).map(|n| value(&block(n), (n * BLOCK) as u64)).collect()
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
        send_large(w, 1, &all());
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
        let tags: Vec<Hash> = (0..BLOCKS).filter(|n| has[*n]).map(|n| tag(&nonce, &block(n))).collect();
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
    let mine = place.dst().join("mine");
    let when = fs::metadata(&mine).unwrap().modified().unwrap();
    let open = fs::File::options().write(true).open(&mine).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&open, b"changed", 5).unwrap();
    open.set_modified(when).unwrap();
    let told = claims(&place, &["copy", "host:x", "DST/claimed"], honest);
    assert!(told.has[0] && told.asks_again && !told.landed);
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
    let scripts: [(&str, fn(&mut Wire)); 3] = [
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
