//! A malicious server, to a client that gets or puts.

use crate::common::*;
use crate::peer::*;
use bcmr_wire::message::{Codec, Entry, Kind, Message, kind};
use std::os::unix::fs::MetadataExt;

const GET: &[&str] = &["copy", "-r", "host:x", "DST"];

/// An honest tree `x` with a file, a link and a directory: what the twins send.
fn honest(wire: &mut Wire) {
    wire.transfer();
    wire.say(&operand(1, dir(b"x")));
    wire.say(&files(1, 1, vec![file(b"f", 3), link(b"l", b"../../outside")], &contents(&[b"abc"])));
    wire.say(&subdir(2, 1, b"sub"));
    wire.say(&files(2, 2, vec![file(b"g", 5)], &contents(&[b"defgh"])));
    wire.say(&Message::DirEnd { dir: 2, partial: false });
    wire.say(&Message::DirEnd { dir: 1, partial: false });
    wire.all_sent();
}

#[test]
fn an_honest_server_is_served() {
    let place = Place::new();
    place.attack("honest", GET, honest).ok();
    assert_eq!(std::fs::read(place.dst().join("x/f")).unwrap(), b"abc");
    assert_eq!(std::fs::read(place.dst().join("x/sub/g")).unwrap(), b"defgh");
    assert_eq!(std::fs::read_link(place.dst().join("x/l")).unwrap().to_str(), Some("../../outside"));
}

/// Names that are none, in every place where a name may stand.
#[test]
fn names_that_lead_elsewhere() {
    let long = [&[0x80, 0x02][..], &[b'n'; 256]].concat();
    let bad: [(&str, &[u8]); 8] = [
        ("dot dot", b"\x02.."),
        ("dot", b"\x01."),
        ("slash", b"\x03a/b"),
        ("up", b"\x0a../outside"),
        ("absolute", b"\x04/tmp"),
        ("empty", b"\x00"),
        ("NUL", b"\x03a\0b"),
        ("too long", &long),
    ];
    const MARK: &[u8] = b"\x07QZQZQZQ";
    const NAME: &[u8] = b"QZQZQZQ";
    for (what, name) in bad {
        for place_of in ["operand", "dir", "file", "link", "large"] {
            let place = Place::new();
            let title = format!("{what} as {place_of}");
            let outcome = place.attack(&title, GET, |wire| {
                wire.transfer();
                if place_of == "operand" {
                    let message =
                        Message::Operand { path: b"x", whole: false, origin: 7, dir: 1, entry: dir(NAME) };
                    wire.say_with(&message, MARK, name);
                    wire.hold();
                    return;
                }
                wire.say(&operand(1, dir(b"x")));
                match place_of {
                    "dir" => wire.say_with(&subdir(2, 1, NAME), MARK, name),
                    "file" => {
                        let bytes = contents(&[b"evil"]);
                        wire.say_with(&files(1, 1, vec![file(NAME, 4)], &bytes), MARK, name)
                    }
                    "link" => wire.say_with(&files(1, 1, vec![link(NAME, b"/")], b""), MARK, name),
                    _ => wire.say_with(&Message::Large { file: 1, dir: 1, entry: file(NAME, 2 << 20) }, MARK, name),
                };
                wire.say(&Message::AllSent);
                wire.hold();
            });
            outcome.failed();
        }
    }
    // The twin: names that look odd and are names.
    let place = Place::new();
    let odd: [&[u8]; 6] = [b"...", b"..a", b"a\nb", b"-rf", b"\xff\xfe", &[b'n'; 255]];
    place
        .attack("odd names", GET, |wire| {
            wire.transfer();
            wire.say(&operand(1, dir(b"x")));
            let entries = odd.iter().map(|n| file(n, 1)).collect();
            wire.say(&files(1, 1, entries, &contents(&[&b"1"[..]; 6])));
            wire.say(&Message::DirEnd { dir: 1, partial: false });
            wire.all_sent();
        })
        .ok();
    assert_eq!(names(&place.dst().join("x")).len(), 6);
}

/// V1: what comes is within what was asked.
#[test]
fn operands_that_nobody_asked_for() {
    // The destination holds things that the server would like to replace.
    let stocked = || {
        let place = Place::new();
        place.tmp.file("dst/.profile", "mine");
        place.tmp.file("dst/keep/me", "mine");
        place
    };
    let intact = |place: &Place, what: &str| {
        assert_eq!(std::fs::read(place.dst().join(".profile")).unwrap(), b"mine", "{what}");
        assert_eq!(std::fs::read(place.dst().join("keep/me")).unwrap(), b"mine", "{what}");
        let mut left = names(&place.dst());
        left.retain(|n| n != ".profile" && n != "keep" && n != "x");
        assert!(left.is_empty(), "{what}: {left:?}");
    };
    let place = stocked();
    let outcome = place.attack("another file", &["copy", "host:x", "DST"], |wire| {
        wire.transfer();
        wire.say(&Message::Operand { path: b"x", whole: false, origin: 7, dir: 1, entry: file(b".profile", 4) });
        wire.say(&files(1, 1, vec![file(b".profile", 4)], &contents(&[b"evil"])));
        wire.say(&Message::AllSent);
        wire.hold();
    });
    outcome.failed();
    intact(&place, "another file");

    let place = stocked();
    let outcome = place.attack("another entry than its operand", &["copy", "host:x", "DST"], |wire| {
        wire.transfer();
        wire.say(&operand(1, file(b"x", 4)));
        wire.say(&files(1, 1, vec![file(b".profile", 4)], &contents(&[b"evil"])));
        wire.all_sent();
    });
    drop(outcome);
    intact(&place, "another entry");

    let place = stocked();
    let outcome = place.attack("another directory", &["copy", "-r", "host:dir/x", "DST"], |wire| {
        wire.transfer();
        wire.say(&Message::Operand { path: b"dir/x", whole: false, origin: 7, dir: 1, entry: dir(b"keep") });
        wire.say(&files(1, 1, vec![file(b"me", 4)], &contents(&[b"evil"])));
        wire.say(&Message::DirEnd { dir: 1, partial: false });
        wire.say(&Message::AllSent);
        wire.hold();
    });
    outcome.failed();
    intact(&place, "another directory");

    let place = stocked();
    let outcome = place.attack("the directory itself", &["copy", "-r", "host:dir/x", "DST"], |wire| {
        wire.transfer();
        wire.say(&Message::Operand { path: b"dir/x", whole: true, origin: 7, dir: 1, entry: dir(b"-") });
        wire.say(&files(1, 1, vec![file(b".profile", 4)], &contents(&[b"evil"])));
        wire.say(&Message::DirEnd { dir: 1, partial: false });
        wire.say(&Message::AllSent);
        wire.hold();
    });
    outcome.failed();
    intact(&place, "the directory itself");

    let place = stocked();
    let outcome = place.attack("one more", &["copy", "-r", "host:x", "DST"], |wire| {
        wire.transfer();
        wire.say(&operand(1, dir(b"x")));
        wire.say(&Message::DirEnd { dir: 1, partial: false });
        wire.say(&operand(2, dir(b"keep")));
        wire.say(&files(1, 2, vec![file(b"me", 4)], &contents(&[b"evil"])));
        wire.say(&Message::AllSent);
        wire.hold();
    });
    outcome.failed();
    intact(&place, "one more");

    let place = stocked();
    let outcome = place.attack("one of two, twice", &["copy", "-r", "host:x", "host:y", "DST"], |wire| {
        wire.transfer();
        for id in [1, 2] {
            wire.say(&operand(id, dir(b"x")));
            wire.say(&Message::DirEnd { dir: id, partial: false });
        }
        wire.say(&Message::AllSent);
        wire.hold();
    });
    outcome.failed();

    // The twins: paths whose last name is meant, and such as have none.
    let asked: [(&str, Option<&[u8]>); 7] = [
        ("host:dir/x", Some(b"x")),
        ("host:dir/x/", Some(b"x")),
        ("host:/x", Some(b"x")),
        ("host:x/.", None),
        ("host:dir/..", None),
        ("host:/", None),
        ("host:.", None),
    ];
    for (path, name) in asked {
        let place = Place::new();
        place
            .attack(path, &["copy", "-r", path, "DST"], |wire| {
                wire.transfer();
                let entry = dir(name.unwrap_or(b"-"));
                let top = Message::Operand { path: b"p", whole: name.is_none(), origin: 7, dir: 1, entry };
                wire.say(&top);
                wire.say(&files(1, 1, vec![file(b"f", 1)], &contents(&[b"1"])));
                wire.say(&Message::DirEnd { dir: 1, partial: false });
                wire.all_sent();
            })
            .ok();
        let at = if name.is_some() { "x/f" } else { "f" };
        assert!(place.dst().join(at).is_file(), "{path}");
    }
    // And what could not be had is left out.
    let place = Place::new();
    let three = &["copy", "-r", "host:a", "host:b", "host:a", "DST"];
    place
        .run("left out", three, |wire| {
            wire.transfer();
            for (id, name) in [(1, b"b"), (2, b"a")] {
                wire.say(&operand(id, dir(name)));
                wire.say(&Message::DirEnd { dir: id, partial: false });
            }
            wire.all_sent();
        })
        .fair()
        .ok();
    assert_eq!(names(&place.dst()), ["a", "b"]);
}

/// A link is planted, and then something is put below it, or over it.
#[test]
fn links_that_it_planted() {
    type Send = fn(&mut Wire);
    let scripts: [(&str, Send); 9] = [
        ("directory over a link", |w| {
            w.say(&files(1, 1, vec![link(b"l", b"../../outside")], b""));
            w.say(&subdir(2, 1, b"l"));
            w.say(&files(2, 2, vec![file(b"keep", 4)], &contents(&[b"evil"])));
            w.say(&Message::DirEnd { dir: 2, partial: false });
        }),
        ("link over an open directory", |w| {
            w.say(&subdir(2, 1, b"l"));
            w.say(&files(1, 1, vec![link(b"l", b"../../outside")], b""));
            w.say(&files(2, 2, vec![file(b"keep", 4)], &contents(&[b"evil"])));
            w.say(&Message::DirEnd { dir: 2, partial: false });
        }),
        ("file over a link", |w| {
            w.say(&files(1, 1, vec![link(b"keep", b"../../outside/keep")], b""));
            w.say(&files(2, 1, vec![file(b"keep", 4)], &contents(&[b"evil"])));
        }),
        ("file over a link in one batch", |w| {
            let both = vec![link(b"keep", b"../../outside/keep"), file(b"keep", 4)];
            w.say(&files(1, 1, both, &contents(&[b"evil"])));
        }),
        ("large file over a link", |w| {
            w.say(&files(1, 1, vec![link(b"keep", b"../../outside/keep")], b""));
            w.say(&Message::Large { file: 1, dir: 1, entry: file(b"keep", 2 << 20) });
            if w.until(kind::RESUME).is_some() {
                let bytes = vec![b'e'; 1 << 20];
                let cv = [1; 32];
                for (at, cv) in [(0, None), (1 << 20, Some(cv))] {
                    w.say(&data(1, at, cv, &bytes));
                }
                w.say(&file_end(1));
            }
        }),
        ("same directory twice", |w| {
            w.say(&subdir(2, 1, b"d"));
            w.say(&subdir(3, 1, b"d"));
            w.say(&files(1, 2, vec![link(b"l", b"../../../outside")], b""));
            w.say(&files(2, 3, vec![file(b"l", 4)], &contents(&[b"evil"])));
            w.say(&Message::DirEnd { dir: 2, partial: false });
            w.say(&Message::DirEnd { dir: 3, partial: false });
        }),
        ("file, then directory", |w| {
            w.say(&files(1, 1, vec![file(b"n", 4)], &contents(&[b"file"])));
            w.say(&subdir(2, 1, b"n"));
            w.say(&files(2, 2, vec![file(b"keep", 4)], &contents(&[b"evil"])));
            w.say(&Message::DirEnd { dir: 2, partial: false });
        }),
        ("hard link to a link's target", |w| {
            let both = |n| Entry { nlink: 2, ino: 99, ..n };
            w.say(&files(1, 1, vec![both(link(b"l", b"../../outside/keep"))], b""));
            w.say(&files(2, 1, vec![both(file(b"m", 4))], &contents(&[b"evil"])));
        }),
        ("stages by their names", |w| {
            // Whatever stages are called: names of this kind are taken before.
            let names: [&[u8]; 3] = [b".bcmr.d", b".bcmr-d", b".bcmr.stage.d"];
            let links = names.iter().map(|n| link(n, b"../../outside")).collect();
            w.say(&files(1, 1, links, b""));
            w.say(&subdir(2, 1, b"d"));
            w.say(&files(2, 2, vec![file(b"keep", 4)], &contents(&[b"evil"])));
            w.say(&Message::DirEnd { dir: 2, partial: false });
        }),
    ];
    for options in [&["copy", "-r"][..], &["copy", "--archive"], &["copy", "-rC"], &["copy", "-r", "--inplace"]] {
        for there in [false, true] {
            for (what, script) in scripts {
                let place = Place::new();
                if there {
                    place.tmp.dir("dst/x");
                }
                let args = [options, &["host:x", "DST"]].concat();
                let before = place.around();
                let title = format!("{what} {options:?} {there}");
                place
                    .run(&title, &args, |wire| {
                        wire.transfer();
                        wire.say(&operand(1, dir(b"x")));
                        script(wire);
                        wire.say(&Message::DirEnd { dir: 1, partial: false });
                        wire.all_sent();
                    })
                    .fair();
                assert_eq!(before, place.around(), "{title}");
            }
        }
    }
    // The twin: a link that was there before, made by the user, is replaced as a name and not followed below.
    let place = Place::new();
    std::os::unix::fs::symlink("../outside", place.dst().join("x")).unwrap();
    place.attack("user's own link", GET, honest).failed();
}

pub fn data(file: u64, at: u64, cv: Option<[u8; 32]>, bytes: &[u8]) -> Message<'_> {
    use bcmr_wire::message::{Piece, data};
    let flags = if cv.is_some() { data::ENDS_BLOCK } else { 0 };
    Message::Data(Piece { file, at, flags, cv, codec: Codec::Raw, length: bytes.len() as u64, bytes })
}

pub fn file_end(file: u64) -> Message<'static> {
    Message::FileEnd { file, state: bcmr_wire::message::FileState::Whole, error: None }
}

/// Devices, FIFOs and sockets that nobody asked for, and bits that lend rights.
#[test]
fn special_files_and_bits() {
    for special in [Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice] {
        let place = Place::new();
        let outcome = place.attack(&format!("{special:?}"), GET, |wire| {
            wire.transfer();
            wire.say(&operand(1, dir(b"x")));
            wire.say(&files(1, 1, vec![Entry { rdev: 0x103, ..entry(special, b"s") }], b""));
            wire.say(&Message::DirEnd { dir: 1, partial: false });
            wire.all_sent();
        });
        outcome.failed();
        assert!(!place.dst().join("x/s").exists());
    }
    let lend = |options: &[&str]| {
        let place = Place::new();
        place.attack("setuid", &[options, &["host:x", "DST"]].concat(), |wire| {
            wire.transfer();
            wire.say(&operand(1, Entry { mode: 0o6777, ..dir(b"x") }));
            let lent = Entry { mode: 0o6755, ..file(b"f", 4) };
            wire.say(&files(1, 1, vec![lent], &contents(&[b"evil"])));
            wire.say(&Message::DirEnd { dir: 1, partial: false });
            wire.all_sent();
        });
        let seen = std::fs::symlink_metadata(place.dst().join("x/f")).unwrap();
        (seen.mode() & 0o6000, seen.uid())
    };
    assert_eq!(lend(&["copy", "-r"]).0, 0);
    // `-p` keeps the bits only together with the owner they were meant for.
    let (bits, uid) = lend(&["copy", "-rp"]);
    assert!(bits == 0 || uid == 1000, "{bits:o} of {uid}");
}
