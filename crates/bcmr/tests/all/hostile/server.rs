//! A malicious server, to a client that gets or puts.

use super::peer::*;
use crate::common::*;
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

/// What is to become something new is said with the request; and what was counted as all there is, and is settled, needs no
/// word of the sender to end.
#[test]
fn a_download_to_a_new_name_says_so_and_ends_once_all_is_settled() {
    let place = Place::new();
    for there in [false, true] {
        if there {
            place.tmp.file("dst/x/before", "");
        }
        place
            .attack("new", GET, |wire| {
                let get = wire.transfer().unwrap();
                let Message::Get { policy, .. } = get.message() else { panic!("no Get") };
                assert_eq!(policy.has(bcmr_wire::policy::flags::TARGET_ABSENT), !there);
                wire.say(&operand(1, dir(b"x")));
                wire.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"all"])));
                // More than has come is not settled.
                wire.say(&Message::AllNamed { dirs: 1, batches: 2 });
                wire.say(&files(2, 1, vec![file(b"g", 3)], &contents(&[b"two"])));
                assert!(wire.until(kind::WANTS).is_some() && wire.until(kind::WANTS).is_some());
                wire.say(&Message::DirEnd { dir: 1, partial: false });
                assert!(wire.until(kind::SUMMARY).is_some());
                wire.say(&Message::Done);
            })
            .ok();
        assert_eq!(std::fs::read_to_string(place.dst().join("x/g")).unwrap(), "two");
        std::fs::remove_dir_all(place.dst().join("x")).unwrap();
    }
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
                    _ => wire.say_with(
                        &Message::Large { file: 1, dir: 1, entry: file(NAME, 2 << 20) },
                        MARK,
                        name,
                    ),
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
        wire.say(&Message::Operand {
            path: b"x",
            whole: false,
            origin: 7,
            dir: 1,
            entry: file(b".profile", 4),
        });
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
            wire.say(&refusal(b"/home/me/a"));
            wire.all_sent();
        })
        .fair()
        .failed();
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
    for options in
        [&["copy", "-r"][..], &["copy", "--archive"], &["copy", "-rC"], &["copy", "-r", "--inplace"]]
    {
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

/// The words of another program.
pub fn in_words(text: &[u8]) -> bcmr_wire::message::Note<'_> {
    let reason = bcmr_engine::error::Reason::Said.number();
    bcmr_wire::message::Note { reason, about: vec![(0, text)] }
}

/// Something that was asked for cannot be had.
pub fn refusal(path: &[u8]) -> Message<'_> {
    Message::Trouble(bcmr_wire::message::Trouble { code: 3, op: 1, path, errno: 2, ..Default::default() })
}

pub fn file_end(file: u64) -> Message<'static> {
    Message::FileEnd { file, state: bcmr_wire::message::FileState::Whole, error: None }
}

/// Devices, FIFOs and sockets that were not asked for, and bits that lend rights.
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

/// What comes does not fit what was said before, or to what may come now: an error, and nothing of it is published.
#[test]
fn messages_out_of_place() {
    use bcmr_wire::message::{Piece, data as bits};
    type Send = fn(&mut Wire);
    const MIB: u64 = 1 << 20;
    fn large(w: &mut Wire, blocks: u64) -> Vec<u8> {
        w.say(&Message::Large { file: 1, dir: 1, entry: file(b"big", blocks * MIB) });
        w.until(kind::RESUME);
        vec![b'e'; 1 << 20]
    }
    fn raw_piece(bytes: &[u8]) -> Piece<'_> {
        let length = bytes.len() as u64;
        Piece { file: 1, at: 0, flags: 0, cv: None, codec: Codec::Raw, length, bytes }
    }
    let scripts: [(&str, Send); 39] = [
        ("entries for a directory not given", |w| {
            w.say(&files(1, 9, vec![file(b"f", 3)], &contents(&[b"abc"])));
        }),
        ("directory in none", |w| {
            w.say(&subdir(12, 9, b"d"));
        }),
        ("directory id twice", |w| {
            w.say(&subdir(2, 1, b"d"));
            w.say(&subdir(2, 1, b"e"));
        }),
        ("directory in an ended one", |w| {
            w.say(&subdir(2, 1, b"d"));
            w.say(&Message::DirEnd { dir: 2, partial: false });
            w.say(&subdir(3, 2, b"e"));
        }),
        ("directory below a file", |w| {
            w.say(&Message::Large { file: 1, dir: 1, entry: file(b"big", 2 * MIB) });
            w.say(&subdir(9, 5, b"e"));
        }),
        ("end of a directory twice", |w| {
            w.say(&subdir(2, 1, b"d"));
            w.say(&Message::DirEnd { dir: 2, partial: false });
            w.say(&Message::DirEnd { dir: 2, partial: false });
        }),
        ("batch twice", |w| {
            let bytes = contents(&[b"abc"]);
            w.say(&files(1, 1, vec![file(b"f", 3)], &bytes));
            w.say(&files(1, 1, vec![file(b"g", 3)], &bytes));
        }),
        ("batch far ahead", |w| {
            w.say(&files(u64::MAX, 1, vec![file(b"f", 3)], &contents(&[b"abc"])));
        }),
        ("contents of nothing", |w| {
            w.say(&Message::Contents { batch: 1, codec: Codec::Raw, bytes: b"" });
        }),
        ("more contents than entries", |w| {
            w.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc", b"def"])));
        }),
        ("fewer contents than entries", |w| {
            w.say(&files(1, 1, vec![file(b"f", 3), file(b"g", 3)], &contents(&[b"abc"])));
        }),
        ("contents cut short", |w| {
            let bytes = contents(&[b"abc"]);
            w.say(&files(1, 1, vec![file(b"f", 3)], &bytes[..bytes.len() - 1]));
        }),
        ("content longer than it says", |w| {
            w.say(&files(1, 1, vec![file(b"f", 10)], &contents(&[&vec![b'e'; 1 << 20]])));
        }),
        ("content shorter than it says", |w| {
            w.say(&files(1, 1, vec![file(b"f", 1000)], &contents(&[b"abc"])));
        }),
        ("wrong hash", |w| {
            let mut bytes = contents(&[b"abc"]);
            *bytes.last_mut().unwrap() ^= 1;
            w.say(&files(1, 1, vec![file(b"f", 3)], &bytes));
        }),
        ("bomb of LZ4", |w| {
            let bytes = [&b"\x80\x80\x80\x02"[..], &[0x1f, b'a', 1, 0], &[0xff; 4096], &[0]].concat();
            w.say(&Message::Files {
                batch: 1,
                dir: 1,
                inline: true,
                codec: Codec::Lz4,
                entries: vec![file(b"f", 3)],
                contents: &bytes,
            });
        }),
        ("bomb of zstd", |w| {
            // A frame that announces 2^62 bytes.
            let head = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0x40];
            let bytes = [&b"\x80\x80\x80\x02"[..], &head, &[3, 0, 0x40, b'a']].concat();
            w.say(&Message::Files {
                batch: 1,
                dir: 1,
                inline: true,
                codec: Codec::Zstd,
                entries: vec![file(b"f", 3)],
                contents: &bytes,
            });
        }),
        ("contents that announce gigabytes", |w| {
            let bytes = [&b"\xff\xff\xff\xff\x7f"[..], &[7; 64]].concat();
            let mut whole = Vec::new();
            files(1, 1, vec![file(b"f", 3)], b"").encode(&mut whole).unwrap();
            let mut payload = whole[5..].to_vec();
            payload[3] = 2;
            payload.extend_from_slice(&bytes);
            w.raw(kind::FILES, &payload);
        }),
        ("data of a file not offered", |w| {
            w.say(&data(5, 0, None, &[1; 1 << 20]));
            w.say(&file_end(5));
        }),
        ("data before it is wanted", |w| {
            w.say(&Message::Large { file: 3, dir: 1, entry: file(b"big", 2 * MIB) });
            w.say(&Message::Large { file: 3, dir: 1, entry: file(b"big2", 2 * MIB) });
        }),
        ("data twice", |w| {
            let b = large(w, 8);
            w.say(&data(1, 0, None, &b));
            w.say(&data(1, 0, None, &b));
        }),
        ("data backwards", |w| {
            let b = large(w, 8);
            w.say(&data(1, 2 * MIB, None, &b));
            w.say(&data(1, MIB, None, &b));
        }),
        ("data beyond the end", |w| {
            let b = large(w, 2);
            w.say(&data(1, 2 * MIB, None, &b));
        }),
        ("data that overlaps", |w| {
            let b = large(w, 8);
            w.say(&data(1, 0, None, &b[..500]));
        }),
        ("data at an odd place", |w| {
            let b = large(w, 8);
            w.say(&data(1, 5, None, &b[..100]));
        }),
        ("data again that nobody asked for", |w| {
            let b = large(w, 8);
            w.say(&Message::Data(Piece { flags: bits::ASKED, ..raw_piece(&b) }));
        }),
        ("data that goes on with no frame", |w| {
            large(w, 2);
            w.say(&framed(1, 0, bits::GOES_ON));
        }),
        ("data that goes on with the frame of another place", |w| {
            large(w, 2);
            w.say(&framed(1, 0, bits::BEGINS_FRAME));
            w.say(&framed(1, 0, bits::GOES_ON));
        }),
        ("a frame that is none", |w| {
            let b = large(w, 2);
            let packed = Piece { codec: Codec::Zstd, bytes: &b[..9], ..raw_piece(&b) };
            w.say(&Message::Data(Piece { flags: bits::BEGINS_FRAME, ..packed }));
        }),
        ("wrong value of a block", |w| {
            let b = large(w, 2);
            w.say(&data(1, 0, None, &b));
            w.say(&data(1, MIB, Some([7; 32]), &b));
            w.say(&file_end(1));
            w.say(&Message::DirEnd { dir: 1, partial: false });
        }),
        ("block without its value", |w| {
            let b = large(w, 2);
            w.say(&data(1, 0, None, &b));
            w.say(&data(1, MIB, None, &b));
        }),
        ("values not asked for", |w| {
            large(w, 8);
            w.say(&Message::Values { file: 1, first: 0, hashes: vec![[1; 32]; 2] });
        }),
        ("end of a file early", |w| {
            let b = large(w, 8);
            w.say(&data(1, 0, None, &b));
            w.say(&file_end(1));
            w.say(&Message::DirEnd { dir: 1, partial: false });
        }),
        ("everything sent too early", |w| {
            large(w, 8);
        }),
        ("summary from the wrong side", |w| {
            w.say(&Message::Summary { counts: [0; 7], codes: Vec::new(), cancelled: false });
        }),
        ("wants from the wrong side", |w| {
            w.say(&Message::Wants { batch: 1, entries: vec![0] });
        }),
        ("greeting again", |w| {
            w.say(&Message::Hello(bcmr_wire::handshake::hello(ALL, [1; 32], b"x", None)));
        }),
        ("request from the server", |w| {
            w.say(&Message::Stat { path: b"/etc/passwd", follow: true });
        }),
        ("dedup that was not agreed on", |w| {
            large(w, 16);
            w.say(&Message::HaveBlocks { file: 1, first: 0, hashes: vec![[0; 32]; 4] });
        }),
    ];
    for (what, script) in scripts {
        let place = Place::new();
        let outcome = place.attack(what, GET, |wire| {
            wire.transfer();
            wire.say(&operand(1, dir(b"x")));
            script(wire);
            wire.say(&Message::AllSent);
            wire.hold();
        });
        outcome.failed();
        for never in ["f", "g", "big"] {
            let seen = std::fs::read(place.dst().join("x").join(never)).ok();
            // What was whole before the rule was broken may stay.
            let before = what.starts_with("batch") || what.starts_with("more contents");
            let whole = before && seen.as_deref() == Some(b"abc");
            assert!(seen.is_none() || whole, "{what}: {never} was published");
        }
    }
}

/// The twins of the above: large files in pieces, zeros, packed contents.
#[test]
fn large_files_of_an_honest_server() {
    use bcmr_wire::message::{Piece, data as bits};
    let bytes = noise(3, (5 << 20) + 77);
    let mib = |byte| vec![byte; 1 << 20];
    let mixed = [mib(0), mib(b'e'), mib(b'e'), mib(0)].concat();
    for options in
        [&["copy", "-r"][..], &["copy", "-rC"], &["copy", "-r", "--inplace"], &["copy", "-r", "--sync"]]
    {
        let place = Place::new();
        let args = [options, &["host:x", "DST"]].concat();
        place
            .attack(&format!("{options:?}"), &args, |w| {
                w.transfer();
                w.say(&operand(1, dir(b"x")));
                w.say(&Message::Large { file: 1, dir: 1, entry: file(b"big", bytes.len() as u64) });
                w.until(kind::RESUME);
                send_large(w, 1, &bytes);
                w.say(&Message::Large { file: 2, dir: 1, entry: file(b"mixed", 4 << 20) });
                // The first one may be settled before the second one is wanted, or after.
                let mut closed = 0;
                while let Some(said) = w.hear().filter(|said| said.kind != kind::RESUME) {
                    closed += usize::from(said.kind == kind::CLOSE);
                }
                for n in [0, 3] {
                    let mut piece = Piece {
                        file: 2,
                        at: n << 20,
                        flags: bits::ZEROS,
                        cv: None,
                        codec: Codec::Raw,
                        length: 1 << 20,
                        bytes: b"",
                    };
                    if n == 3 {
                        w.say(&framed(2, 1 << 20, bits::BEGINS_FRAME));
                        w.say(&framed(2, 2 << 20, bits::GOES_ON));
                        piece.flags |= bits::ENDS_BLOCK;
                        piece.cv = Some(value(&mixed, 0));
                    }
                    w.say(&Message::Data(piece));
                }
                w.say(&file_end(2));
                w.say(&Message::DirEnd { dir: 1, partial: false });
                for _ in closed..2 {
                    w.until(kind::CLOSE);
                }
                w.all_sent();
            })
            .ok();
        assert_eq!(std::fs::read(place.dst().join("x/big")).unwrap(), bytes);
        assert!(std::fs::read(place.dst().join("x/mixed")).unwrap() == mixed);
    }
}

/// 1 MiB of `e` as part of a Zstandard frame: its header, where it begins one (RFC 8878: no checksum, no size, a window of
/// 2 MiB), and eight blocks of 128 KiB, each one byte again and again, none the last.
fn framed(file: u64, at: u64, flag: u8) -> Message<'static> {
    use bcmr_wire::message::{Piece, data as bits};
    const FRAME: &[u8; 38] = b"\x28\xb5\x2f\xfd\x00\x58\
        \x02\x00\x10e\x02\x00\x10e\x02\x00\x10e\x02\x00\x10e\x02\x00\x10e\x02\x00\x10e\x02\x00\x10e\x02\x00\x10e";
    let bytes = if flag == bits::GOES_ON { &FRAME[6..] } else { &FRAME[..] };
    Message::Data(Piece { file, at, flags: flag, cv: None, codec: Codec::Zstd, length: 1 << 20, bytes })
}

/// The chaining value of a block that begins at `at`.
pub fn value(block: &[u8], at: u64) -> [u8; 32] {
    use blake3::hazmat::HasherExt;
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(at);
    hasher.update(block).finalize_non_root()
}

pub fn send_large(w: &mut Wire, id: u64, bytes: &[u8]) {
    for (n, piece) in bytes.chunks(1 << 20).enumerate() {
        let at = (n as u64) << 20;
        let next = at + piece.len() as u64;
        let ends = next == bytes.len() as u64 || next.is_multiple_of(4 << 20);
        let start = at - at % (4 << 20);
        let cv = ends.then(|| value(&bytes[start as usize..next as usize], start));
        w.say(&data(id, at, cv, piece));
    }
    w.say(&file_end(id));
}

/// Sizes that are lies: neither memory nor the disk is taken for what was only said.
#[test]
fn sizes_that_are_lies() {
    let at = Tmp::new();
    let free = || free(at.path()).unwrap();
    let sizes = [i64::MAX as u64, 1 << 62, 1 << 45, 20 << 30];
    let all_options = [&["copy", "-r"][..], &["copy", "-rC"], &["copy", "-r", "--sparse=disable"]];
    for (o, options) in all_options.into_iter().enumerate() {
        for (s, size) in sizes.into_iter().enumerate() {
            for holes in [false, true] {
                // An ordinary run tries each size with each of the options, with holes or without.
                if !in_slice(o + s + usize::from(holes), 2) {
                    continue;
                }
                let place = Place::new();
                let args = [options, &["host:x", "DST"]].concat();
                let (before, mut during) = (free(), u64::MAX);
                let title = format!("{size} bytes, holes {holes}, {options:?}");
                let outcome = place.run(&title, &args, |w| {
                    w.transfer();
                    w.say(&operand(1, dir(b"x")));
                    let blocks = if holes { 0 } else { size.div_ceil(512).min(i64::MAX as u64 / 512) };
                    w.say(&Message::Large { file: 1, dir: 1, entry: Entry { blocks, ..file(b"big", size) } });
                    if w.until(kind::RESUME).is_some() {
                        // One piece far behind, which waits for all that never comes, and one at the beginning.
                        w.say(&data(1, 0, None, &[1; 1 << 20]));
                        let last = (size - 1) & !((1 << 20) - 1);
                        let far = last.min(1 << 61) & !((4 << 20) - 1);
                        w.say(&data(1, far, None, &[2; 1 << 20]));
                        std::thread::sleep(std::time::Duration::from_millis(100));
                        during = free();
                    }
                    w.close();
                    w.hold();
                });
                outcome.fair().failed();
                assert!(!place.dst().join("x/big").exists(), "{title}");
                assert!(
                    before.saturating_sub(during) < 2 << 30 || during == u64::MAX,
                    "{title}: {before} {during}"
                );
            }
        }
    }
}

/// Floods: more of everything than may be.
#[test]
fn floods() {
    type Send = fn(&mut Wire) -> bool;
    let scripts: [(&str, Send); 7] = [
        ("batches that wait", |w| {
            let names: Vec<Vec<u8>> = (0..1024).map(|n| format!("f{n}").into_bytes()).collect();
            for batch in 1..100 {
                let entries = names.iter().map(|n| file(n, 5)).collect();
                if !w.say(&on_offer(batch, 1, entries)) {
                    return false;
                }
            }
            true
        }),
        ("batches with attributes", |w| {
            let value = vec![b'v'; 200 << 10];
            for batch in 1..100 {
                let name = format!("f{batch}");
                let one = Entry { attrs: vec![(b"user.x", &value)], ..file(name.as_bytes(), 5) };
                let two = Entry { name: b"other", ..one.clone() };
                if !w.say(&on_offer(batch, 1, vec![one, two])) {
                    return false;
                }
            }
            true
        }),
        ("directories without end, deep", |w| {
            for id in 2..1_500 {
                if !w.say(&subdir(id, id - 1, b"d")) {
                    return false;
                }
                w.say(&Message::DirEnd { dir: id - 1, partial: false });
            }
            true
        }),
        ("directories without end, wide", |w| {
            for id in 2..1_500 {
                let name = format!("d{id}");
                if !w.say(&subdir(id, 1, name.as_bytes())) {
                    return false;
                }
            }
            true
        }),
        ("offers without end", |w| {
            for id in 1..5_000 {
                let name = format!("big{id}");
                if !w.say(&Message::Large { file: id, dir: 1, entry: file(name.as_bytes(), 2 << 20) }) {
                    return false;
                }
            }
            true
        }),
        ("frames of the largest size", |w| {
            let payload = vec![0x80; (16 << 20) - 1];
            for _ in 0..8 {
                if !w.raw(kind::FILES, &payload) {
                    return false;
                }
            }
            true
        }),
        ("found and pings", |w| {
            let mut all = Vec::new();
            for n in 0..60_000u64 {
                let found = Message::Found { items: u64::MAX - n, bytes: u64::MAX, last: n == 0 };
                found.encode(&mut all).unwrap();
                if n % 8 == 0 {
                    Message::Ping { token: n }.encode(&mut all).unwrap();
                }
            }
            w.bytes(&all)
        }),
    ];
    for (what, script) in scripts {
        let place = Place::new();
        let before = place.around();
        let outcome = place.run(what, GET, |w| {
            w.transfer();
            w.say(&operand(1, dir(b"x")));
            // A server that floods does not listen; but this thread has to, or the flood would stand still.
            script(w);
            w.close();
            w.hold();
        });
        assert_eq!(before, place.around(), "{what}");
        outcome.fair().failed();
    }
}

/// Frames that are none.
#[test]
fn broken_frames() {
    let long = ((16 << 20) + 1u32).to_le_bytes();
    let scripts: [(&str, Vec<u8>); 7] = [
        ("one byte too long", [&long[..], b"\x32abc"].concat()),
        ("as long as can be", b"\xff\xff\xff\xff\x32".to_vec()),
        ("empty", vec![0; 4]),
        ("unknown type", b"\x01\0\0\0\xee".to_vec()),
        ("counts", b"\x0b\0\0\0\x32\x01\x01\x00\x00\xff\xff\xff\xff\x0f\x00".to_vec()),
        ("cut short", b"\xff\0\0\0\x32\x01".to_vec()),
        ("noise", noise(5, 100_000)),
    ];
    for (what, bytes) in scripts {
        let place = Place::new();
        let outcome = place.attack(what, GET, |w| {
            w.transfer();
            w.say(&operand(1, dir(b"x")));
            w.bytes(&bytes);
            w.close();
            w.hold();
        });
        outcome.failed();
    }
}

/// Numbers and attributes at their extremes: kept, cut, or refused, and never a way to more than was asked for.
#[test]
fn extremes_of_metadata() {
    use bcmr_wire::message::Time;
    let times = [i64::MIN, -1, 0, i64::MAX];
    for options in
        [&["copy", "-r"][..], &["copy", "-rp"], &["copy", "--archive"], &["copy", "-rC"], &["copy", "-ru"]]
    {
        for sec in times {
            let place = Place::new();
            let args = [options, &["-v", "host:x", "DST"]].concat();
            let before = place.around();
            let title = format!("{sec} {options:?}");
            let outcome = place.run(&title, &args, |w| {
                w.transfer();
                w.say(&operand(1, dir(b"x")));
                let time = Time { sec, nsec: 999_999_999 };
                let uid = u32::MAX - 1;
                let odd = |e| Entry {
                    atime: time,
                    mtime: time,
                    ctime: time,
                    uid,
                    gid: uid,
                    dev: u64::MAX,
                    ino: u64::MAX,
                    nlink: u64::MAX,
                    rdev: u64::MAX,
                    ..e
                };
                let huge = vec![7; 100 << 10];
                let attrs: Vec<(&[u8], &[u8])> = vec![
                    (b"user.ok", b"1"),
                    (b"security.capability", b"\x01\0\0\x02\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0"),
                    (b"trusted.x", b"1"),
                    (b"system.posix_acl_access", b"\x02\0\0\0junk"),
                    (b"nonsense", b"1"),
                    (b"user.huge", &huge),
                ];
                let one = Entry { attrs, ..odd(file(b"f", 3)) };
                w.say(&files(
                    1,
                    1,
                    vec![one, odd(link(b"l", b"to")), odd(entry(Kind::Fifo, b"p"))],
                    &contents(&[b"abc"]),
                ));
                w.say(&Message::Large { file: 1, dir: 1, entry: odd(file(b"big", 2 << 20)) });
                w.say(&Message::DirEnd { dir: 1, partial: false });
                if w.until(kind::RESUME).is_some() {
                    send_large(w, 1, &vec![1; 2 << 20]);
                    w.until(kind::CLOSE);
                }
                w.all_sent();
            });
            outcome.fair();
            assert_eq!(before, place.around(), "{title}");
            if options == ["copy", "-r"] {
                let f = place.dst().join("x/f");
                assert_eq!(std::fs::read(&f).unwrap(), b"abc");
                let mut room = [0; 1024];
                assert_eq!(
                    rustix::fs::llistxattr(&f, &mut room[..]),
                    Ok(0),
                    "attributes that nobody asked for"
                );
            }
        }
    }
}

/// Text of the other side never reaches a terminal, nor a log, with a control byte in it (V8).
#[test]
fn words_that_steer_a_terminal() {
    use bcmr_wire::message::Trouble;
    let evil = b"\x1b]0;owned\x07\x1b[2J\r\nhint: all is well\x9b31m\xc2\x9b31m\xe2\x80\xae\xe2\x81\xa6\x7f"
        .to_vec();
    let long = evil.repeat(1200);
    let code = 1;
    fn trouble<'a>(code: u16, text: &'a [u8]) -> Trouble<'a> {
        Trouble { code, op: 9999, path: text, note: in_words(text), errno: 0 }
    }
    for json in [false, true] {
        for when in ["greeting", "request", "transfer", "trouble", "agent", "stderr", "names"] {
            for text in [&evil, &long] {
                let place = Place::new();
                let flags: &[&str] = if json { &["--json"] } else { &["-v"] };
                let args = [&["copy", "-r"], flags, &["host:x", "DST"]].concat();
                let outcome = place.attack(&format!("{when} {json}"), &args, |w| {
                    if when == "greeting" {
                        w.hear();
                        w.say(&Message::Error(trouble(code, text)));
                        return;
                    }
                    w.greet();
                    if when == "request" {
                        w.hear();
                        w.say(&Message::Error(trouble(code, text)));
                        w.until(kind::GET);
                        w.say(&Message::Error(trouble(code, text)));
                        return;
                    }
                    while w.hear().is_some_and(|s| s.kind != kind::GET) {
                        w.say(&Message::Info(file(b"x", 1)));
                    }
                    match when {
                        "transfer" => w.say(&Message::Error(trouble(code, text))),
                        "trouble" => {
                            w.say(&Message::Trouble(trouble(code, text)));
                            w.all_sent();
                            true
                        }
                        "names" => {
                            let name = &evil[..evil.len().min(255)];
                            w.say(&Message::Operand {
                                path: text,
                                whole: false,
                                origin: 7,
                                dir: 1,
                                entry: dir(b"x"),
                            });
                            w.say(&files(1, 1, vec![file(name, 3)], &contents(&[b"abc"])));
                            w.say(&Message::DirEnd { dir: 1, partial: false });
                            w.all_sent();
                            true
                        }
                        _ => true,
                    };
                });
                let raw = |b: &u8| (*b < 32 && *b != b'\n') || *b == 127;
                assert!(
                    json || !outcome.said().contains("\nhint: all is well"),
                    "{when}: {}",
                    outcome.said()
                );
                if json {
                    assert!(
                        !outcome.out.iter().any(raw),
                        "{when}: {:?}",
                        String::from_utf8_lossy(&outcome.out)
                    );
                }
                if when != "names" {
                    outcome.failed_or_json(json);
                }
            }
        }
    }
}

/// Everything that may stand in the place of a greeting.
#[test]
fn greetings_that_are_none() {
    use bcmr_wire::handshake;
    let welcome = |w: &mut Wire, change: &dyn Fn(&mut Vec<u8>)| {
        let hello = w.hear().unwrap();
        let Message::Hello(hello) = hello.message() else { panic!("no Hello") };
        let welcome = Message::Welcome(handshake::welcome(ALL, [9; 32], b"peer", &hello).unwrap());
        let mut out = Vec::new();
        welcome.encode(&mut out).unwrap();
        let mut payload = out[5..].to_vec();
        change(&mut payload);
        w.raw(kind::WELCOME, &payload);
    };
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 8] = [
        ("version 0", |p| p[0] = 0),
        ("version 65535", |p| p[..2].fill(0xff)),
        ("dedup and direct were not offered", |p| p[2] |= 0x64),
        ("unknown wide bit", |p| p[9] |= 0x40),
        ("no trees", |p| p[3] &= !1),
        ("no wide set", |p| {
            p.truncate(3);
            p[2] &= 0x7f;
        }),
        ("cut", |p| p.truncate(9)),
        ("nothing", |p| p.clear()),
    ];
    for (what, change) in changes {
        let place = Place::new();
        let outcome = place.attack(what, GET, |w| welcome(w, &change));
        outcome.failed();
        assert!(names(&place.dst()).is_empty(), "{what}");
    }
    let others: [(&str, &[u8]); 5] = [
        ("a shell", b"Welcome to Debian!\r\nlast login: never\r\n"),
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        ("zeros", &[0; 4096]),
        ("ones", &[0xff; 4096]),
        ("done", b"\x01\0\0\0\x05"),
    ];
    for (what, bytes) in others {
        let place = Place::new();
        let outcome = place.attack(what, GET, |w| {
            w.hear();
            w.bytes(bytes);
        });
        outcome.failed();
    }
    // A guarantee that is asked for and lacking is an error (D1), and every flipped bit fails or changes nothing.
    for (flag, feature) in [("--sync", 0x10), ("-V", 0), ("-C", 0)] {
        let place = Place::new();
        let args = ["copy", "-r", flag, "SRC", "host:x"];
        std::fs::write(place.tmp.p("SRC"), "content").unwrap();
        let outcome = place.attack(flag, &args, |w| {
            welcome(w, &|p: &mut Vec<u8>| {
                p[2] &= !feature;
                if feature == 0 {
                    p[3] &= if flag == "-V" { !0x10 } else { !8 };
                }
            });
            w.hold();
        });
        outcome.failed();
    }
}

#[test]
fn every_bit_of_the_welcome() {
    use bcmr_wire::handshake;
    /// Behind version and capabilities.
    const AT_ONCE: usize = (2 + 1) * 8 + handshake::wide::AT_ONCE.trailing_zeros() as usize;
    const FRAMES: usize = AT_ONCE + 1;
    // Version, capabilities and the wider set; the nonce may be anything, and the name is only shown.
    let works = |bit: usize| {
        let place = Place::new();
        let outcome = place.attack(
            &format!("bit {bit}"),
            &["copy", "-r", "--sync", "--parallel=1", "host:x", "DST"],
            |w| {
                let Some(hello) = w.hear() else { return };
                let Message::Hello(hello) = hello.message() else { panic!("no Hello") };
                let mut out = Vec::new();
                Message::Welcome(handshake::welcome(ALL, [9; 32], b"peer", &hello).unwrap())
                    .encode(&mut out)
                    .unwrap();
                let mut payload = out[5..].to_vec();
                payload[bit / 8] ^= 1 << (bit % 8);
                w.raw(kind::WELCOME, &payload);
                // Whose `Welcome` says that it serves the `Get` of the greeting hears of no other.
                if bit == AT_ONCE || w.until(kind::GET).is_some() {
                    w.say(&operand(1, dir(b"x")));
                    w.say(&Message::DirEnd { dir: 1, partial: false });
                    w.all_sent();
                }
            },
        );
        outcome.code == 0
    };
    let mut fine = Vec::new();
    for bit in 0..(2 + 1 + 8 + 2) * 8 {
        // An ordinary run tries each bit that may fall away, and some of the others.
        let step = match bit {
            16..=FRAMES => 1,
            0..16 => 2,
            88.. => 8,
            _ => 3,
        };
        if in_slice(bit, step) && works(bit) {
            fine.push(bit);
        }
    }
    // What this copy does without may fall away or not (LZ4, Zstd, Dedup, Fast, Sync; Join to Frames, of which it
    // needs none), the nonce is not looked at. All else is refused: a version, a bit that was not offered, a set that lacks trees.
    let may = |bit: &usize| matches!(bit, 16..=20 | 25..=FRAMES | 88..);
    assert!(fine.iter().all(may), "{fine:?}");
    assert!(fine.contains(&88), "the twin: {fine:?}");
}

/// Sends on and on until nobody takes it. Where that takes seconds, an ordinary run sends little in the middle:
/// what counts is that more is always there at first, and when the client has waited long enough.
fn goes_on_and_on(w: &mut Wire) {
    use std::time::{Duration, Instant};
    let (began, all) = (Instant::now(), all_cases());
    while w.say(&Message::Found { items: 1, bytes: 1, last: false }) {
        if !all && (500..4_000).contains(&began.elapsed().as_millis()) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A server that comes late, drips, or never ends.
#[test]
fn slow_ones() {
    use std::time::Duration;
    // The twin: byte by byte, and it works.
    let place = Place::new();
    place
        .attack("drip", GET, |w| {
            w.transfer();
            let mut bytes = Vec::new();
            operand(1, dir(b"x")).encode(&mut bytes).unwrap();
            files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc"])).encode(&mut bytes).unwrap();
            Message::DirEnd { dir: 1, partial: false }.encode(&mut bytes).unwrap();
            for byte in &bytes {
                w.bytes(&[*byte]);
                std::thread::sleep(Duration::from_millis(2));
            }
            w.all_sent();
        })
        .ok();
    assert_eq!(std::fs::read(place.dst().join("x/f")).unwrap(), b"abc");
    // It breaks a rule, and does not hear that it did: it goes on sending.
    let place = Place::new();
    place
        .attack("deaf", GET, |w| {
            w.transfer();
            w.polite = false;
            w.say(&operand(1, dir(b"x")));
            w.say(&Message::Wants { batch: 1, entries: vec![] });
            goes_on_and_on(w);
        })
        .failed();
    // It ends well, and then goes on sending, or keeps the connection.
    let place = Place::new();
    place
        .attack("after the end", GET, |w| {
            w.transfer();
            w.say(&operand(1, dir(b"x")));
            w.say(&Message::DirEnd { dir: 1, partial: false });
            w.say(&Message::AllSent);
            goes_on_and_on(w);
        })
        .ok();
    let place = Place::new();
    place
        .attack("never hangs up", GET, |w| {
            w.transfer();
            w.say(&operand(1, dir(b"x")));
            w.say(&Message::DirEnd { dir: 1, partial: false });
            w.all_sent();
            w.hold();
        })
        .ok();
    // It ends the work for no reason: that is no success.
    let place = Place::new();
    place
        .attack("cancels", GET, |w| {
            w.transfer();
            w.say(&operand(1, dir(b"x")));
            w.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc"])));
            w.say(&Message::Cancel);
            w.until(kind::SUMMARY);
            w.say(&Message::Done);
        })
        .failed();
}

/// A server that has said nothing at all since it greeted, one that goes on and on, and one that brings what the client
/// cannot read yet: a user who has had enough can stop.
#[test]
fn silent_ones() {
    type Send = fn(&mut Wire);
    const KNOT: Send = |w| {
        w.asked();
        w.say(&operand(1, dir(b"x")));
        for id in 1..=8u64 {
            let name = format!("big{id}");
            w.say(&Message::Large { file: id, dir: 1, entry: file(name.as_bytes(), 64 << 20) });
        }
        let bytes = vec![5; 1 << 20];
        let _full = (1..=8).rev().any(|id| {
            (0..64u64).any(|n| !w.say(&data(id, n << 20, (n % 4 == 3).then_some([0; 32]), &bytes)))
        });
    };
    let scripts: [(&str, &[&str], Send); 4] = [
        ("asks for a copy", GET, |w| w.hold()),
        ("waits for entries", GET, |w| {
            w.asked();
            w.say(&operand(1, dir(b"x")));
            w.hold();
        }),
        ("looks at names", &["ls", "host:x"], |w| w.hold()),
        ("pieces nobody reads", GET, KNOT),
    ];
    for (what, args, script) in scripts {
        let place = Place::new();
        // Before it has greeted it may be anywhere, in its ssh as well.
        let greeted = std::sync::Arc::new(std::sync::Barrier::new(2));
        let met = greeted.clone();
        let outcome = place.run_with(
            what,
            args,
            move |child| {
                let pid = rustix::process::Pid::from_child(child);
                std::thread::spawn(move || {
                    met.wait();
                    // Long enough, mostly, for what it says to pile up; whenever it comes, it must be heard.
                    std::thread::sleep(std::time::Duration::from_millis(700));
                    let _gone = rustix::process::kill_process(pid, rustix::process::Signal::INT);
                });
            },
            |w| {
                w.greet();
                greeted.wait();
                script(w);
            },
        );
        let outcome = if args == GET { outcome.fair() } else { outcome };
        // What looks has no handler.
        assert_eq!(outcome.code, if args == GET { 130 } else { 1002 }, "{what}: {outcome:?}");
        assert!(litter(&place.dst()).is_empty(), "{what}");
    }
}

/// Answers to single questions: numbers and names at their extremes, the wrong answer, pages without end.
#[test]
fn answers_to_questions() {
    type Send = fn(&mut Wire) -> bool;
    let evil: &[u8] = b"\x1b]0;owned\x07\n\xc2\x9b2J";
    let scripts: [(&str, &[&str], Send); 10] = [
        ("du", &["du", "host:x"], |w| {
            let all = u64::MAX;
            let unreadable = vec![];
            w.say(&Message::Used { files: all, dirs: all, bytes: all, allocated: all, unreadable })
        }),
        ("stat", &["stat", "host:x"], |w| {
            let time = bcmr_wire::message::Time { sec: i64::MIN, nsec: 0 };
            w.say(&Message::Info(Entry {
                mtime: time,
                size: i64::MAX as u64,
                uid: u32::MAX - 1,
                mode: 0o7777,
                ..file(b"x", 1)
            }))
        }),
        ("stat --json", &["stat", "--json", "host:x"], |w| {
            let time = bcmr_wire::message::Time { sec: i64::MAX, nsec: 999_999_999 };
            w.say(&Message::Info(Entry { mtime: time, size: i64::MAX as u64, ..file(b"x", 1) }))
        }),
        ("hash without one", &["hash", "host:x"], |w| w.say(&Message::Ok { hash: None })),
        ("another answer", &["stat", "host:x"], |w| w.say(&Message::Done)),
        ("a transfer", &["ls", "host:x"], |w| w.say(&operand(1, dir(b"x")))),
        ("names", &["ls", "--json", "host:x"], |w| {
            let evil: &[u8] = b"\x1b]0;owned\x07\n\xc2\x9b2J";
            w.say(&Message::Page { entries: vec![file(evil, 1), link(b"l", b"x")] }) && w.say(&Message::Done)
        }),
        ("pages without end", &["ls", "-l", "host:x"], |w| {
            let names: Vec<Vec<u8>> = (0..500).map(|n| format!("{n:0200}").into_bytes()).collect();
            let mut page = Vec::new();
            Message::Page { entries: names.iter().map(|n| file(n, 1)).collect() }.encode(&mut page).unwrap();
            (0..400).all(|_| w.bytes(&page))
        }),
        ("pages of long links", &["ls", "-l", "host:x"], |w| {
            let to = vec![b'l'; 60_000];
            let mut page = Vec::new();
            Message::Page { entries: vec![link(b"l", &to); 4] }.encode(&mut page).unwrap();
            (0..1500).all(|_| w.bytes(&page))
        }),
        ("doctor", &["doctor", "host"], |_| true),
    ];
    for (what, args, script) in scripts {
        let place = Place::new();
        let outcome = place.attack(what, args, |w| {
            w.greet();
            while w.hear().is_some() {
                if !script(w) {
                    break;
                }
                if what.starts_with("pages") {
                    break;
                }
            }
        });
        assert!(!outcome.out.contains(&7) || !args.contains(&"--json"), "{what}");
        if what.starts_with("pages") || matches!(what, "hash without one" | "another answer" | "a transfer") {
            outcome.failed();
        }
    }
    let place = Place::new();
    place
        .attack("error", &["ls", "host:x"], |w| {
            w.greet();
            w.hear();
            let words =
                bcmr_wire::message::Trouble { code: 3, op: 1, path: evil, note: in_words(evil), errno: 2 };
            w.say(&Message::Error(words));
        })
        .failed();
}

/// V1 for a list of names: what is not on it does not come in by it.
#[test]
fn names_that_are_not_on_the_list() {
    type Send = fn(&mut Wire);
    let scripts: [(&str, Send, bool); 6] = [
        (
            "listed",
            |w| {
                w.say(&files(1, 1, vec![file(b"a", 1)], &contents(&[b"1"])));
                w.say(&subdir(2, 1, b"d"));
                w.say(&files(2, 2, vec![file(b"b", 1)], &contents(&[b"1"])));
                w.say(&Message::DirEnd { dir: 2, partial: false });
            },
            true,
        ),
        (
            "below what is listed",
            |w| {
                w.say(&subdir(2, 1, b"all"));
                w.say(&subdir(3, 2, b"deep"));
                w.say(&files(1, 3, vec![file(b"any", 1)], &contents(&[b"1"])));
                w.say(&Message::DirEnd { dir: 3, partial: false });
                w.say(&Message::DirEnd { dir: 2, partial: false });
            },
            true,
        ),
        (
            "another file",
            |w| {
                w.say(&files(1, 1, vec![file(b".profile", 1)], &contents(&[b"1"])));
            },
            false,
        ),
        (
            "beside what is listed",
            |w| {
                w.say(&subdir(2, 1, b"d"));
                w.say(&files(2, 2, vec![file(b"c", 1)], &contents(&[b"1"])));
            },
            false,
        ),
        (
            "a file in a directory's place",
            |w| {
                w.say(&files(1, 1, vec![link(b"d", b"/")], b""));
            },
            false,
        ),
        (
            "another large file",
            |w| {
                w.say(&Message::Large { file: 1, dir: 1, entry: file(b"z", 2 << 20) });
            },
            false,
        ),
    ];
    for (what, script, fine) in scripts {
        let place = Place::new();
        place.tmp.file("list", "a\n./d//b\nall/\n../up\n");
        let args = &["copy", "-r", "--files-from", "list", "host:base", "DST"];
        let outcome = place.attack(what, args, |w| {
            w.transfer();
            w.say(&Message::Operand { path: b"base", whole: true, origin: 7, dir: 1, entry: dir(b"-") });
            script(w);
            if fine {
                for name in [&b"/home/me/base/a"[..], b"/home/me/base/d", b"/home/me/base/all"] {
                    w.say(&refusal(name));
                }
                w.say(&Message::DirEnd { dir: 1, partial: true });
            }
            w.say(&Message::AllSent);
            if fine && w.until(kind::SUMMARY).is_some() {
                w.say(&Message::Done);
            }
        });
        let said = outcome.failed().said();
        if fine {
            assert!(!said.contains("did not say why") && !names(&place.dst()).is_empty(), "{what}: {said}");
        } else {
            let got = names(&place.dst());
            assert!(!got.iter().any(|n| n == ".profile" || n == "z"), "{what}: {got:?}");
            assert!(!place.dst().join("d/c").exists() && !place.dst().join("d").is_symlink(), "{what}");
        }
    }
}

/// A sender of a move answers what it was asked to take away, once each, and nothing else.
#[test]
fn answers_that_nobody_asked_for_end_a_move() {
    const MOVE: &[&str] = &["move", "host:x", "DST"];
    for (what, before, answers, ends_well) in
        [("honest", 0, 1, true), ("before anything", 1, 1, false), ("instead of the first", 0, 0, false)]
    {
        let place = Place::new();
        let mut asked = Vec::new();
        let outcome = place.run(what, MOVE, |wire| {
            wire.transfer();
            for _ in 0..before {
                wire.say(&Message::TookAway { left: 0 });
            }
            wire.say(&operand(1, dir(b"x")));
            wire.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc"])));
            wire.say(&Message::DirEnd { dir: 1, partial: false });
            wire.say(&Message::AllSent);
            while let Some(said) = wire.hear() {
                match said.message() {
                    Message::TakeAway { dir, names } => {
                        asked.push((dir, names.len()));
                        let answer = Message::TookAway { left: 0 };
                        // What is no answer, in its place.
                        wire.say(if answers == 1 {
                            &answer
                        } else {
                            &Message::DirEnd { dir: 1, partial: false }
                        });
                    }
                    Message::Summary { .. } => {
                        wire.say(&Message::Done);
                    }
                    Message::Error(_) => {
                        wire.say(&Message::Done);
                        break;
                    }
                    _ => {}
                }
            }
        });
        let outcome = outcome.fair();
        if ends_well {
            outcome.ok();
            assert_eq!(asked, [(1, 1), (1, 0)], "{what}");
        } else {
            outcome.failed();
        }
    }
}
