//! Malicious peers about what a receiver has of a file: sums of chunks, questions about them, pieces made of them.

use super::peer::*;
use super::server::file_end;
use crate::common::*;
use bcmr_wire::handshake::{self, Features, wide};
use bcmr_wire::message::{Codec, DirState, Message, Patch, Piece, Run, Sum, Target, kind, resume};
use blake3::hazmat::HasherExt;

const ROOT: &[&str] = &["--root", "DST"];
const PUT: &[&str] = &["copy", "-r", "tree", "host:x"];
const SIZE: u64 = 1 << 20;

fn ours() -> Features {
    ALL.or(Features { caps: 0, wide: wide::DELTA })
}

fn sum(bytes: u64) -> Sum {
    Sum { bytes, sum: 7 }
}

fn value(block: &[u8]) -> [u8; 32] {
    blake3::Hasher::new().update(block).finalize_non_root()
}

// ---- a receiver ----

/// A client that puts a tree with one large file, up to where the file is on offer; `answer` says what comes then.
fn offered(what: &str, mut answer: impl FnMut(&mut Wire, u64) -> bool + Send) -> Outcome {
    let place = Place::new();
    place.tmp.file("tree/big", noise(1, 9 << 20));
    place.attack(what, PUT, |w| {
        w.greet_with(ours());
        w.asked();
        while let Some(said) = w.hear() {
            match said.message() {
                Message::Operand { dir, .. } | Message::Dir { id: dir, .. } => {
                    w.say(&Message::DirIs { dir, state: DirState::There });
                }
                Message::Large { file, .. } if !answer(w, file) => {
                    w.close();
                    w.hold();
                    return;
                }
                Message::Large { .. } => {}
                Message::FileEnd { file, .. } => {
                    w.say(&Message::Close { file });
                }
                Message::AllSent => {
                    let counts = [1, 1, 0, 9 << 20, 0, 0, 0];
                    w.say(&Message::Summary { counts, codes: Vec::new(), cancelled: false });
                }
                Message::Finer { .. } => {
                    // Whatever was asked, it is answered with something else.
                    w.say(&Message::Sums { file: 1, at: 3, chunks: vec![sum(5)] });
                }
                Message::Error(_) => {
                    w.say(&Message::Done);
                    return;
                }
                Message::Done => return,
                _ => {}
            }
        }
    })
}

fn wanted(w: &mut Wire, file: u64, flags: u8) -> bool {
    w.say(&Message::Resume { file, wanted: true, from: 0, flags })
}

#[test]
fn sums_that_are_none() {
    // The honest twin, which has nothing of it; and one that says that it has what it has not: that is its own loss.
    offered("nothing is there", |w, file| wanted(w, file, 0)).ok();
    offered("sums of nothing that is here", |w, file| {
        w.say(&Message::Sums { file, at: 0, chunks: vec![sum(256 << 10); 36] });
        wanted(w, file, resume::PATCHES)
    })
    .failed();
    type Send = fn(&mut Wire, u64) -> bool;
    let scripts: [(&str, Send); 6] = [
        ("sums of a file that nobody offers", |w, _| {
            w.say(&Message::Sums { file: 40, at: 0, chunks: vec![sum(1)] });
            false
        }),
        ("sums that begin in the middle", |w, file| {
            w.say(&Message::Sums { file, at: 1, chunks: vec![sum(1)] });
            false
        }),
        ("sums with a gap between them", |w, file| {
            w.say(&Message::Sums { file, at: 0, chunks: vec![sum(1)] });
            w.say(&Message::Sums { file, at: 2, chunks: vec![sum(1)] });
            false
        }),
        ("sums for a file that was answered without", |w, file| {
            wanted(w, file, 0);
            w.say(&Message::Sums { file, at: 0, chunks: vec![sum(1)] });
            false
        }),
        ("an answer to a question that was not asked", |w, file| {
            w.say(&Message::Sums { file, at: 0, chunks: vec![sum(1)] });
            // All of one block is long, and nothing is asked about what is new altogether.
            wanted(w, file, resume::PATCHES);
            w.say(&Message::Sums { file, at: 0, chunks: vec![sum(1)] });
            false
        }),
        ("more sums than are kept", |w, file| {
            let chunks = vec![sum(1); 4096];
            for n in 0..200 {
                if !w.say(&Message::Sums { file, at: n * 4096, chunks: chunks.clone() }) {
                    break;
                }
            }
            false
        }),
    ];
    for (what, script) in scripts {
        offered(what, script).failed();
    }
}

// ---- a sender ----

/// What is there, as a client may have seen it.
fn there() -> Vec<u8> {
    noise(5, SIZE as usize)
}

/// A client that puts another version of `old` (or of what is not there) and is asked for it; then `script`. What came of the
/// file, and whether sums came.
fn puts(
    what: &str,
    name: &'static [u8],
    size: u64,
    script: impl FnOnce(&mut Wire) + Send,
) -> (Vec<u8>, bool) {
    let place = Place::new();
    place.tmp.file("dst/old", there());
    let sums = place.besiege(what, ROOT, |w| {
        w.say(&Message::Hello(handshake::hello(ours(), [8; 32], b"peer", None)));
        w.until(kind::WELCOME);
        let target = Target::Guess;
        w.say(&Message::Put { policy: policy(0), target, path: name, operands: 1, items: false });
        w.say(&operand(1, file(name, size)));
        w.say(&Message::Large { file: 1, dir: 1, entry: file(name, size) });
        let mut sums = false;
        while let Some(said) = w.hear() {
            match said.kind {
                kind::SUMS => sums = true,
                kind::RESUME => break,
                _ => {}
            }
        }
        script(w);
        sums
    });
    (std::fs::read(place.dst().join(std::str::from_utf8(name).unwrap())).unwrap_or_default(), sums)
}

fn patch(at: u64, cv: Option<[u8; 32]>, runs: Vec<Run>, bytes: &[u8]) -> Message<'_> {
    Message::Patch(Patch { file: 1, at, cv, runs, codec: Codec::Raw, bytes })
}

fn run(bytes: u64, from: Option<u64>) -> Run {
    Run { bytes, from }
}

/// Ends as one who has sent all, giving what is asked for again as `again` says.
fn ends(w: &mut Wire, again: Option<&[u8]>) {
    w.say(&file_end(1));
    while let Some(said) = w.hear() {
        match said.message() {
            Message::Reread { at, bytes, .. } => {
                let Some(again) = again else { return };
                use bcmr_wire::message::data;
                let part = &again[at as usize..(at + bytes) as usize];
                let flags = data::ASKED | data::ENDS_BLOCK;
                let (file, cv, codec) = (1, Some(value(again)), Codec::Raw);
                w.say(&Message::Data(Piece { file, at, flags, cv, codec, length: bytes, bytes: part }));
            }
            Message::Close { .. } => break,
            Message::Error(_) => {
                w.say(&Message::Done);
                return;
            }
            _ => {}
        }
    }
    w.say(&Message::AllSent);
    w.until(kind::SUMMARY);
    w.say(&Message::Done);
}

/// Its halves exchanged, with a word between them.
fn new_version() -> Vec<u8> {
    let old = there();
    [&old[500_000..], b"word", &old[..499_996]].concat()
}

#[test]
fn what_is_made_of_what_is_there_is_compared() {
    let new = new_version();
    let size = new.len() as u64;
    let first = SIZE - 500_000;
    let honest = || vec![run(first, Some(500_000)), run(4, None), run(size - first - 4, Some(0))];
    let (landed, sums) = puts("the honest one", b"old", size, |w| {
        w.say(&patch(0, Some(value(&new)), honest(), b"word"));
        ends(w, None);
    });
    assert!(sums && landed == new);
    // It comes out as something else than it was said to be: it is asked for again, and is right then, or is not published.
    let lie = || vec![run(first, Some(499_999)), run(4, None), run(size - first - 4, Some(0))];
    let (landed, _) = puts("a lie, and then the truth", b"old", size, |w| {
        w.say(&patch(0, Some(value(&new)), lie(), b"word"));
        ends(w, Some(&new));
    });
    assert!(landed == new);
    let (landed, _) = puts("a lie, and another", b"old", size, |w| {
        w.say(&patch(0, Some(value(&new)), lie(), b"word"));
        ends(w, Some(&vec![7; size as usize]));
    });
    assert!(landed == there());
}

#[test]
fn pieces_of_what_is_not_there() {
    type Row<'a> = (&'a str, &'static [u8], Vec<Run>, &'a [u8]);
    let table: [Row<'_>; 4] = [
        ("of a file that is new", b"new", vec![run(SIZE, Some(0))], b""),
        ("from beyond its end", b"old", vec![run(SIZE, Some(1))], b""),
        ("from far beyond", b"old", vec![run(1, Some(1 << 60)), run(SIZE - 1, Some(0))], b""),
        ("more than the piece", b"old", vec![run(SIZE - 1, Some(0))], b""),
    ];
    for (what, name, runs, bytes) in sliced(table, 2) {
        let is_new = name == b"new";
        let (landed, sums) = puts(what, name, SIZE, |w| {
            w.say(&patch(0, Some([7; 32]), runs, bytes));
            ends(w, None);
        });
        assert_eq!(sums, !is_new, "{what}");
        assert!(landed == if is_new { Vec::new() } else { there() }, "{what}");
    }
    // A few bytes that say that they are many.
    let packed = Patch {
        file: 1,
        at: 0,
        cv: Some([7; 32]),
        runs: vec![run(SIZE - 1, None), run(1, Some(0))],
        codec: Codec::Zstd,
        bytes: b"not so many",
    };
    let (landed, _) = puts("a bomb", b"old", SIZE, |w| {
        w.say(&Message::Patch(packed));
        ends(w, None);
    });
    assert!(landed == there());
}

#[test]
fn questions_about_what_is_there() {
    let (landed, _) = puts("an honest question", b"old", SIZE, |w| {
        w.say(&Message::Finer { file: 1, at: SIZE - 5_000, bytes: 5_000 });
        let said = w.until(kind::SUMS).unwrap();
        let Message::Sums { at, chunks, .. } = said.message() else { panic!("{said:?}") };
        assert_eq!((at, chunks.iter().map(|c| c.bytes).sum::<u64>()), (SIZE - 5_000, 5_000));
        w.say(&patch(0, Some(value(&there())), vec![run(SIZE, Some(0))], b""));
        ends(w, None);
    });
    assert!(landed == there());
    let table: [(&str, &'static [u8], u64, u64, u64); 4] = [
        ("of a file that is new", b"new", 0, 1, 1),
        ("about its end and a byte", b"old", SIZE - 4_999, 5_000, 1),
        ("about what is far beyond", b"old", 1 << 60, 1, 1),
        // Each is a few bytes here, and all of the file read and hashed there.
        ("again and again", b"old", 0, SIZE, 1_000),
    ];
    for (what, name, at, bytes, times) in table {
        let mut told = false;
        puts(what, name, SIZE, |w| {
            for _ in 0..times {
                if !w.say(&Message::Finer { file: 1, at, bytes }) {
                    break;
                }
            }
            told = w.until(kind::ERROR).is_some();
            w.say(&Message::Done);
        });
        assert!(told, "{what}");
    }
}

/// A client that has not agreed on it is asked for whole files, and may not send parts.
#[test]
fn one_who_does_not_know_of_it() {
    let place = Place::new();
    place.tmp.file("dst/old", there());
    place.besiege("an old client", ROOT, |w| {
        w.hello();
        let target = Target::Guess;
        w.say(&Message::Put { policy: policy(0), target, path: b"old", operands: 1, items: false });
        w.say(&operand(1, file(b"old", SIZE)));
        w.say(&Message::Large { file: 1, dir: 1, entry: file(b"old", SIZE) });
        let mut flags = None;
        while let Some(said) = w.hear() {
            match said.message() {
                Message::Sums { .. } => panic!("it cannot read this"),
                Message::Resume { flags: said, .. } => {
                    flags = Some(said);
                    break;
                }
                _ => {}
            }
        }
        assert_eq!(flags, Some(0));
        w.say(&patch(0, Some(value(&there())), vec![run(SIZE, Some(0))], b""));
        assert!(w.until(kind::ERROR).is_some());
        w.say(&Message::Done);
    });
}
