//! A peer that is asked what a copy would do, and does or sends something else.

use super::peer::*;
use crate::common::*;
use bcmr_engine::error::Reason;
use bcmr_wire::handshake::{Features, wide};
use bcmr_wire::message::{Codec, DirState, Event, Message, Piece, Target, kind};
use bcmr_wire::policy::flags;

const SURVEYS: [&[&str]; 4] = [
    &["copy", "-rn", "host:x", "DST"],
    &["copy", "-rnv", "--archive", "-C", "host:x", "DST"],
    &["check", "host:x", "DST"],
    &["check", "--hash", "host:x", "DST"],
];

fn stocked() -> Place {
    let place = Place::new();
    place.tmp.file("dst/x/f", "abc");
    place.tmp.file("dst/x/large", vec![0; 2 << 20]);
    place.tmp.file("tree/f", "abc");
    place.tmp.file("tree/large", vec![0; 2 << 20]);
    place
}

fn seen(place: &Place) -> Vec<(Vec<u8>, u64, u32)> {
    tree(&place.dst()).into_iter().map(|(path, e)| (path, e.content, e.mode)).collect()
}

fn zeros(file: u64) -> Message<'static> {
    let flags = bcmr_wire::message::data::ZEROS;
    Message::Data(Piece { file, at: 0, flags, cv: None, codec: Codec::Raw, length: 1 << 20, bytes: b"" })
}

fn large(id: u64) -> Message<'static> {
    Message::Large { file: id, dir: 1, entry: file(b"large", 2 << 20) }
}

/// A server that brings more than names: nothing of it is taken, and nothing here is changed.
#[test]
fn servers_that_send_what_was_only_to_be_named() {
    type Script = fn(&mut Wire);
    let scripts: [(&str, Script); 8] = [
        ("contents along with names", |w| {
            w.say(&files(1, 1, vec![file(b"new", 4)], &contents(&[b"evil"])));
        }),
        ("contents over what is there", |w| {
            w.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"bad"])));
        }),
        ("contents that nobody wants", |w| {
            w.say(&on_offer(1, 1, vec![file(b"new", 4)]));
            w.say(&Message::Contents { batch: 1, codec: Codec::Raw, bytes: &contents(&[b"evil"]) });
        }),
        ("contents twice", |w| {
            w.say(&on_offer(1, 1, vec![file(b"f", 3)]));
            for _ in 0..2 {
                w.say(&Message::Contents { batch: 1, codec: Codec::Raw, bytes: &contents(&[b"abc"]) });
            }
        }),
        ("a piece of a large file", |w| {
            w.say(&large(1));
            w.say(&zeros(1));
        }),
        ("values that nobody wants", |w| {
            w.say(&Message::Large { file: 1, dir: 1, entry: file(b"new", 2 << 20) });
            w.say(&Message::Values { file: 1, first: 0, hashes: vec![[0; 32]; 4096] });
            w.say(&Message::Values { file: 2, first: 0, hashes: vec![[0; 32]] });
        }),
        ("blocks for a store", |w| {
            w.say(&large(1));
            w.say(&Message::HaveBlocks { file: 1, first: 0, hashes: vec![[0; 32]] });
        }),
        ("an end before everything is settled", |w| {
            w.say(&on_offer(1, 1, vec![file(b"f", 3)]));
            w.say(&Message::AllSent);
        }),
    ];
    for args in SURVEYS {
        for (name, script) in scripts {
            let place = stocked();
            let before = seen(&place);
            let outcome = place.attack(&format!("{name} to {args:?}"), args, |w| {
                w.transfer();
                w.say(&operand(1, dir(b"x")));
                script(w);
                w.hold();
            });
            outcome.failed();
            assert_eq!(before, seen(&place), "{name} to {args:?}");
        }
        // The twin: names only, and hashes where they are wanted.
        let place = stocked();
        let before = seen(&place);
        let outcome = place.attack("honest", args, |w| {
            w.transfer();
            w.say(&operand(1, dir(b"x")));
            w.say(&on_offer(1, 1, vec![file(b"f", 3), file(b"new", 9), link(b"l", b"/")]));
            loop {
                let Some(said) = w.hear() else { return };
                let Message::Wants { entries, .. } = said.message() else { continue };
                if entries.is_empty() {
                    break;
                }
                assert_eq!(entries, [0], "only what can be the same is hashed");
                let mut hashed = Vec::new();
                bcmr_wire::contents::push_hashed(&mut hashed, 3, blake3::hash(b"abc").as_bytes());
                w.say(&Message::Contents { batch: 1, codec: Codec::Raw, bytes: &hashed });
            }
            w.say(&Message::DirEnd { dir: 1, partial: false });
            w.all_sent();
        });
        assert!(matches!(outcome.code, 0 | 1), "{args:?}: {} {}", outcome.code, outcome.said());
        assert_eq!(before, seen(&place), "{args:?}");
    }
}

/// A hash where a content was wanted is no content.
#[test]
fn a_copy_takes_no_hash_for_a_content() {
    let place = Place::new();
    let outcome = place.attack("hash for content", &["copy", "-r", "host:x", "DST"], |w| {
        w.transfer();
        w.say(&operand(1, dir(b"x")));
        let mut hashed = Vec::new();
        bcmr_wire::contents::push_hashed(&mut hashed, 3, blake3::hash(b"abc").as_bytes());
        w.say(&files(1, 1, vec![file(b"f", 3)], &hashed));
        w.hold();
    });
    outcome.failed();
    assert!(!place.dst().join("x/f").exists());
}

/// D1: what a peer cannot do is an error before anything is asked of it, and never a copy instead.
#[test]
fn a_peer_that_cannot_say_what_it_would_do_is_not_asked() {
    let without = |bit: u64| Features { wide: ALL.wide & !bit, ..ALL };
    let rows: [(&[&str], u64, &str); 8] = [
        (&["copy", "-rn", "host:x", "DST"], wide::SURVEY, "survey"),
        (&["copy", "-rn", "tree", "host:x"], wide::SURVEY, "survey"),
        (&["check", "tree", "host:x"], wide::SURVEY, "survey"),
        (&["check", "--hash", "host:x", "DST"], wide::SURVEY, "survey"),
        (&["copy", "-r", "--manifest", "hashes", "tree", "host:x"], wide::HASHED, "hashed"),
        (&["sync", "-n", "--delete", "tree", "host:x"], wide::PLANNED, "planned"),
        (&["sync", "-n", "--plan", "hashes", "tree", "host:x"], wide::PLANNED, "planned"),
        (&["undo", "host:x"], wide::UNDO, "undo"),
    ];
    for (args, bit, word) in rows {
        let place = stocked();
        let outcome = place.attack(&format!("{args:?}"), args, |w| {
            w.greet_with(without(bit));
            while let Some(said) = w.hear() {
                assert!(
                    !matches!(said.kind, kind::GET | kind::PUT | kind::STAT | kind::UNDO),
                    "{:#04x}",
                    said.kind
                );
            }
        });
        let outcome = outcome.failed();
        assert!(outcome.said().contains(word), "{args:?}: {}", outcome.said());
        assert!(!place.tmp.p("hashes").exists());
    }
}

/// A server that says this of what it was shown, and settles everything.
fn say(w: &mut Wire, features: Features, events: &[Event<'_>]) {
    w.greet_with(features);
    w.asked();
    while let Some(said) = w.hear() {
        match said.message() {
            Message::Operand { dir, .. } => {
                for event in events {
                    w.say(&Message::Report(event.clone()));
                }
                w.say(&Message::DirIs { dir, state: DirState::There });
            }
            Message::Dir { id: dir, .. } => {
                w.say(&Message::DirIs { dir, state: DirState::There });
            }
            Message::Files { batch, .. } => {
                w.say(&Message::Wants { batch, entries: Vec::new() });
            }
            Message::Large { file, .. } => {
                w.say(&Message::Resume { file, wanted: false, from: 0, flags: 0 });
                w.say(&Message::Close { file });
            }
            Message::AllSent => {
                let counts = [0, 0, 0, 0, 0, 0, 3];
                w.say(&Message::Summary { counts, codes: Vec::new(), cancelled: false });
            }
            Message::Done => return,
            _ => {}
        }
    }
}

const EVIL: &[u8] = b"a\x1b[31m\x9b2J\xe2\x80\xae\n../../b";

/// What a server says that it found is shown, and steers nothing.
#[test]
fn differences_and_hashes_are_only_words() {
    let evil = EVIL;
    let difference = |path, why| Event::Difference {
        change: 2,
        path,
        directory: false,
        files: 1,
        bytes: 1,
        why,
        alike: None,
    };
    let events = [
        difference(evil, 9999),
        difference(b"/", Reason::BySize.number()),
        difference(b"", Reason::ByMtime.number()),
        Event::Base(evil),
        Event::Item { action: 0, src: evil, dst: evil, bytes: u64::MAX },
    ];
    for args in [
        &["check", "tree", "host:x"][..],
        &["check", "--json", "tree", "host:x"],
        &["copy", "-rnv", "tree", "host:x"],
    ] {
        let place = stocked();
        let outcome = place.attack(&format!("{args:?}"), args, |w| say(w, ALL, &events));
        let out = String::from_utf8_lossy(&outcome.out).into_owned();
        assert!(!out.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{args:?}: {out:?}");
    }
    // A list of hashes holds lines and nothing else, whatever a name holds; no line leads anywhere that
    // `check --manifest` would go.
    let place = stocked();
    let hash = [7; 32];
    let events = [
        Event::Base(b"/base"),
        Event::Base(b"/other"),
        Event::Hashed { dst: b"/base/a\nb", hash },
        Event::Hashed { dst: b"/base/../../secret", hash },
        Event::Hashed { dst: b"/etc/passwd", hash },
        Event::Hashed { dst: b"/base/\xff", hash },
    ];
    let args = ["copy", "-r", "--manifest", "dst/hashes", "tree", "host:x"];
    place.attack("hashes", &args, |w| say(w, ALL, &events)).failed();
    let text = std::fs::read_to_string(place.dst().join("hashes")).unwrap_or_default();
    assert!(
        text.lines().all(|l| l.trim_start_matches('\\').split_once("  ").is_some_and(|(h, _)| h.len() == 64))
    );
    let check = bcmr(["check", "--manifest"]).args([place.dst().join("hashes"), place.dst()]).run();
    assert!(check.code != 0 && !check.out.contains("secret'"), "{check:?}");
}

/// A plan is made of names and hashes; whatever a server tells, it has one line for each name, and what was not told whole is none.
#[test]
fn plans_of_what_a_server_tells() {
    let able = ALL.or(Features { caps: 0, wide: wide::COMPARED | wide::PLANNED });
    let args = ["sync", "-n", "--delete", "--plan", "dst/plan", "tree", "host:x"];
    let told = |path, change, alike| {
        let (directory, files, bytes, why) = (false, 1, 1, Reason::OnlyThere.number());
        Event::Difference { change, path, directory, files, bytes, why, alike }
    };
    let place = stocked();
    let events = [told(b"f", 1, Some([1; 32])), told(b"large", 1, None)];
    let outcome = place.attack("half a plan", &args, |w| say(w, able, &events));
    assert!(outcome.failed().said().contains("not told of everything"));
    assert!(!place.dst().join("plan").exists());
    // The twin. A line that forges another one is a name.
    let forged = b"x\n-\t1\t0\t../../secret";
    let events = [told(EVIL, 0, Some([1; 32])), told(forged, 1, Some([2; 32])), told(b"", 2, Some([3; 32]))];
    let outcome = place.attack("a plan", &args, |w| say(w, able, &events));
    let out = String::from_utf8_lossy(&outcome.out).into_owned();
    assert!(!out.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{out:?}");
    let plan = std::fs::read(place.dst().join("plan")).unwrap();
    assert_eq!(plan.split(|byte| *byte == b'\n').count(), 2 + events.len() + 1);
}

/// A client that was told it may look, and sends something to land.
#[test]
fn clients_that_bring_something_to_a_survey() {
    let put = |w: &mut Wire, how: u64| {
        w.hello();
        let policy = policy(flags::RECURSIVE | flags::DRY_RUN | how);
        w.say(&Message::Put { policy, target: Target::Exactly, path: b"x", operands: 1, items: true });
        w.say(&operand(1, dir(b"x")));
    };
    type Script = fn(&mut Wire);
    let scripts: [(&str, Script); 4] = [
        ("contents along with names", |w| {
            w.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"bad"])));
        }),
        ("a piece", |w| {
            w.say(&large(1));
            w.say(&zeros(1));
        }),
        ("a directory in none", |w| {
            w.say(&subdir(2, 1, b"sub"));
            w.say(&Message::DirEnd { dir: 2, partial: false });
            w.say(&subdir(3, 2, b"sub"));
        }),
        ("names that are there a second time", |w| {
            w.say(&on_offer(1, 1, vec![file(b"f", 3)]));
            w.say(&on_offer(1, 1, vec![file(b"f", 3)]));
        }),
    ];
    for root in [&["--root", "DST"][..], &["--root", "DST", "--read-only"]] {
        let plan = flags::COMPARE | flags::EXTRA | flags::QUICK | flags::MIRROR_DELETE | flags::ALIKE;
        for how in [0, flags::COMPARE, flags::COMPARE | flags::EXTRA | flags::HASHES, plan] {
            for (name, script) in scripts {
                let place = stocked();
                let before = seen(&place);
                place.besiege(name, root, |w| {
                    put(w, how);
                    script(w);
                    w.until(kind::ERROR);
                    w.close();
                    w.hold();
                });
                assert_eq!(before, seen(&place), "{name} {how:#x}");
            }
            // The twin, whom a read-only server answers too; links are not followed out of the root.
            let place = stocked();
            std::os::unix::fs::symlink("../../outside", place.dst().join("x/away")).unwrap();
            let before = seen(&place);
            place.besiege("honest", root, |w| {
                put(w, how);
                w.say(&subdir(2, 1, b"away"));
                w.say(&Message::DirEnd { dir: 2, partial: false });
                w.say(&Message::DirEnd { dir: 1, partial: false });
                w.say(&Message::AllSent);
                let mut told = Vec::new();
                while let Some(said) = w.hear() {
                    if said.kind == kind::REPORT {
                        told.extend_from_slice(&said.payload);
                    }
                    assert_ne!(said.kind, kind::ERROR, "{said:?}");
                    if said.kind == kind::SUMMARY {
                        w.say(&Message::Done);
                        break;
                    }
                }
                assert!(!told.windows(4).any(|w| w == b"keep"), "what is outside was listed");
            });
            assert_eq!(before, seen(&place));
        }
    }
}
