//! A malicious client that says what is to be kept, and peers that lie about what was left out or deleted.

use super::peer::*;
use crate::common::*;
use bcmr_engine::error::Code;
use bcmr_wire::handshake::{self, Features, wide};
use bcmr_wire::message::{Keeping, Message, OldThings, Target, kind};
use bcmr_wire::policy::flags;
use std::os::unix::fs::symlink;

const ROOT: &[&str] = &["--root", "DST"];

fn fenced() -> Place {
    let place = Place::new();
    place.tmp.file("dst/snaps/own", "own");
    symlink("../outside", place.dst().join("out")).unwrap();
    place
}

fn keeping<'a>() -> Keeping<'a> {
    Keeping { bases: vec![], old: OldThings::Go, at: None, stay: None }
}

fn put<'a>(flags: u64, target: Target, path: &'a [u8], operands: u64) -> Message<'a> {
    let mut policy = policy(flags);
    policy.choices[1] = 3; // same size and time
    Message::Put { policy, target, path, operands, items: false }
}

fn whole(id: u64) -> Message<'static> {
    Message::Operand { path: b"x/.", whole: true, origin: 7, dir: id, entry: dir(b"-") }
}

/// As `besiege`, but what holds snapshots may have books of them.
fn guarded<T: Send>(place: &Place, title: &str, script: impl FnOnce(&mut Wire) -> T + Send) -> T {
    let before = place.around();
    let (found, _) = place.serve(title, ROOT, script);
    assert_eq!(before, place.around(), "{title}: something outside the root has changed");
    found
}

/// V7: a receipt that a client has written, with more lines, or more bytes, than are undone for it.
#[test]
fn a_receipt_without_end() {
    let ours = Features { wide: ALL.wide | wide::UNDO, ..ALL };
    let asked = |place: &Place, what: &str| {
        let (code, _) = place.serve(what, &["--root", "DST", "--read-only"], |w| {
            w.say(&Message::Hello(handshake::hello(ours, [8; 32], b"peer", None)));
            w.until(kind::WELCOME);
            w.say(&Message::Undo { path: b"receipt", flags: 1 });
            match w.hear().unwrap().message() {
                Message::Error(trouble) => Code::of_number(trouble.code),
                other => panic!("{what}: {other:?}"),
            }
        });
        code
    };
    let head = b"bcmr receipt 1\ndestination\t7\t/d\nkept\t.\n";
    let line = [&b"-\tz\t"[..], &[b'y'; 60_000], b"\n"].concat();
    for (what, line, count, code) in [
        ("short lines", &b"-\tz\ty\n"[..], 1 << 20, Code::Limit),
        ("long lines", &line[..], 1200, Code::Limit),
        ("the twin", b"-\tz\ty\n", 100, Code::Refused),
    ] {
        let place = fenced();
        std::fs::write(place.dst().join("receipt"), [&head[..], &line.repeat(count)].concat()).unwrap();
        assert_eq!(asked(&place, what), code, "{what}");
    }
}

/// Sends one directory with one file; whether the server was content.
fn sent(w: &mut Wire) -> bool {
    w.say(&whole(1));
    w.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc"])));
    w.say(&Message::DirEnd { dir: 1, partial: false });
    w.say(&Message::AllSent);
    loop {
        let Some(said) = w.hear() else { return false };
        match said.message() {
            Message::Summary { counts, .. } => {
                w.say(&Message::Done);
                return counts[5] == 0;
            }
            Message::Error(_) => {
                w.say(&Message::Done);
                return false;
            }
            _ => {}
        }
    }
}

/// Every path of it is below the root, whichever field it stands in.
#[test]
fn what_is_kept_is_below_the_root() {
    let place = fenced();
    for path in [&b"../outside"[..], b"out", b"out/in", b"/../outside", b"snaps/../../outside", b"out/../out"]
    {
        for (what, kept, target) in [
            ("snapshots", Keeping { at: Some(7), ..keeping() }, path),
            ("bases", Keeping { bases: vec![path], ..keeping() }, &b"d"[..]),
            ("bases of snapshots", Keeping { bases: vec![path], at: Some(7), ..keeping() }, b"snaps"),
            ("old things", Keeping { old: OldThings::Below(path), ..keeping() }, b"snaps"),
            ("trash", Keeping { old: OldThings::Trashed, ..keeping() }, b"snaps"),
        ] {
            let title = format!("{what} {}", String::from_utf8_lossy(path));
            let fine = guarded(&place, &title, |w| {
                assert!(w.hello());
                w.say(&Message::Keeping(kept));
                w.say(&put(flags::RECURSIVE | flags::MIRROR, Target::Exactly, target, 1));
                sent(w)
            });
            assert!(!fine, "{title}");
        }
    }
    assert_eq!(std::fs::read(place.dst().join("snaps/own")).unwrap(), b"own");
    // The twin: one after the other, of which the second shares what is the same.
    for at in [7, 9] {
        let fine = guarded(&place, "honest", |w| {
            assert!(w.hello());
            w.say(&Message::Keeping(Keeping { at: Some(at), stay: Some([7, 4, 12]), ..keeping() }));
            w.say(&put(flags::RECURSIVE | flags::MIRROR_DELETE, Target::Exactly, b"snaps", 1));
            sent(w)
        });
        assert!(fine);
    }
    let last = place.dst().join("snaps/1970-01-01T000009Z/f");
    assert_eq!(std::fs::read(last).unwrap(), b"abc");
}

/// Said where it means nothing: the connection ends, and nothing was made.
#[test]
fn what_is_kept_is_said_of_one_put() {
    let mirror = flags::RECURSIVE | flags::MIRROR;
    let dated = || Message::Keeping(Keeping { at: Some(7), ..keeping() });
    let table: [(&str, Message<'_>); 6] = [
        ("twice", dated()),
        ("of a get", Message::Get { policy: policy(flags::RECURSIVE), paths: vec![b"snaps"], names: None }),
        ("of a copy", put(flags::RECURSIVE, Target::Exactly, b"snaps", 1)),
        ("of a guess", put(mirror, Target::Guess, b"snaps", 1)),
        ("of several", put(mirror, Target::Exactly, b"snaps", 2)),
        ("of a list", put(mirror, Target::Exactly, b"snaps", 0)),
    ];
    for (what, then) in table {
        let place = fenced();
        guarded(&place, what, |w| {
            assert!(w.hello());
            w.say(&dated());
            w.say(&then);
            let mut said = w.hear();
            while said.as_ref().is_some_and(|said| said.kind == kind::PING) {
                said = w.hear();
            }
            assert_eq!(said.map(|said| said.kind), Some(kind::ERROR), "{what}");
        });
        assert_eq!(names(&place.dst().join("snaps")), ["own"], "{what}");
    }
}

const SYNC: &[&str] = &["sync", "--delete", "--gitignore", "--retries=0", "host:x", "DST/d"];

/// Names that are said to be left out are spared and no more; of a directory that is not open nothing is said.
#[test]
fn names_that_are_said_to_be_left_out_are_spared() {
    for what in ["all of them", "another directory", "after its end"] {
        let place = Place::new();
        for name in ["d/kept", "d/gone"] {
            place.tmp.file(format!("dst/{name}"), "old");
        }
        let outcome = place.attack(what, SYNC, |w| {
            w.transfer();
            w.say(&whole(1));
            w.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc"])));
            match what {
                "another directory" => w.say(&Message::LeftOut { dir: 2, names: vec![b"gone"] }),
                "after its end" => {
                    w.say(&Message::DirEnd { dir: 1, partial: false });
                    w.say(&Message::LeftOut { dir: 1, names: vec![b"gone"] })
                }
                _ => {
                    let many = vec![&b"kept"[..]; 1024];
                    w.say(&Message::LeftOut { dir: 1, names: many.clone() });
                    w.say(&Message::LeftOut { dir: 1, names: many });
                    w.say(&Message::DirEnd { dir: 1, partial: false })
                }
            };
            w.all_sent();
        });
        if what == "all of them" {
            outcome.ok();
            assert_eq!(names(&place.dst().join("d")), ["f", "kept"]);
        } else {
            outcome.failed();
            assert!(place.dst().join("d/gone").exists(), "{what}");
        }
    }
}
