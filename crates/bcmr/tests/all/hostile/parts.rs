//! Malicious peers about small files of which a receiver has parts, and about entries in columns.

use super::peer::*;
use crate::common::*;
use bcmr_wire::handshake::{self, Features, wide};
use bcmr_wire::message::{Codec, DirState, Message, Run, Sum, Target, Wanted, WantedPart, kind};
use bcmr_wire::{columns, contents};

const ROOT: &[&str] = &["--root", "DST"];
const PUT: &[&str] = &["copy", "-r", "tree", "host:x"];
const SIZE: usize = 100_000;

fn ours() -> Features {
    ALL.or(Features { caps: 0, wide: wide::PARTS | wide::PACKED })
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

// ---- a receiver ----

fn part(entry: u64, wanted: Wanted) -> Message<'static> {
    Message::WantsParts { batch: 1, entries: vec![WantedPart { entry, wanted }] }
}

fn whole(batch: u64) -> Message<'static> {
    Message::Wants { batch, entries: vec![0] }
}

fn chunks(bytes: u64) -> Wanted {
    Wanted::Rest(vec![Sum { bytes, sum: 7 }])
}

/// A client that puts a tree with one name in it, and is asked this of it, one thing after the other; all contents that came.
fn offered(what: &str, is_link: bool, agreed: Features, asked: &[Message<'_>]) -> (Outcome, Vec<Vec<u8>>) {
    let place = Place::new();
    if is_link {
        place.tmp.dir("tree");
        std::os::unix::fs::symlink("nowhere", place.tmp.p("tree/a")).unwrap();
    } else {
        place.tmp.file("tree/a", noise(1, SIZE));
    }
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
                Message::FilesPacked { .. } | Message::Contents { .. } => {
                    if let Message::Contents { bytes, .. } = said.message() {
                        came.push(bytes.to_vec());
                    }
                    let next = asked.next().unwrap_or(&settled);
                    w.say(next);
                    if *next == settled {
                        // What is asked of a batch that is settled.
                        for late in asked.by_ref() {
                            w.say(late);
                        }
                    }
                }
                other if w.ends(&other, [1, 1, 0, SIZE as u64, 0, 0, 0]) => return,
                _ => {}
            }
        }
    });
    (outcome, came)
}

#[test]
fn a_receiver_that_asks_for_parts() {
    let content = noise(1, SIZE);
    let (mut all, mut hashed) = (Vec::new(), Vec::new());
    contents::push_content(&mut all, &content, Some(&hash(&content)));
    contents::push_hashed(&mut hashed, SIZE as u64, &hash(&content));
    // The honest twins: it has something else after all; and what it has helps nothing.
    let (outcome, came) = offered("a hash", false, ours(), &[part(0, Wanted::Hash), whole(1)]);
    outcome.ok();
    assert!(came == [hashed, all.clone()]);
    let (outcome, came) = offered("other chunks", false, ours(), &[part(0, chunks(5000))]);
    outcome.ok();
    assert!(came == [all]);
    let settled = || Message::Wants { batch: 1, entries: Vec::new() };
    let hash_of = |entry| part(entry, Wanted::Hash);
    let table: [(&str, bool, Vec<Message<'_>>); 8] = [
        // Each is a few bytes there, and all of the file read here.
        ("a hash twice", false, vec![hash_of(0), hash_of(0)]),
        ("chunks after a hash", false, vec![hash_of(0), part(0, chunks(9))]),
        ("a hash after the content", false, vec![whole(1), hash_of(0)]),
        ("the content twice", false, vec![hash_of(0), whole(1), whole(1)]),
        ("of an entry that is none", false, vec![hash_of(1)]),
        ("of a link", true, vec![hash_of(0)]),
        (
            "of a batch that is none",
            false,
            vec![Message::WantsParts {
                batch: 9,
                entries: vec![WantedPart { entry: 0, wanted: Wanted::Hash }],
            }],
        ),
        ("of a batch that is settled", false, vec![settled(), hash_of(0)]),
    ];
    for (what, is_link, asked) in table {
        offered(what, is_link, ours(), &asked).0.failed();
    }
    let without = ALL.or(Features { caps: 0, wide: wide::PACKED });
    offered("without having agreed on it", false, without, &[hash_of(0)]).0.failed();
}

// ---- a sender ----

/// What is there.
fn there() -> Vec<u8> {
    noise(5, SIZE)
}

/// Puts a new version of `old`, of `size` bytes, and gives what `script` says each time that something is wanted of it. What
/// came of the file, and the kinds of what was asked.
fn puts(
    what: &str,
    size: usize,
    agreed: Features,
    mut script: impl FnMut(&mut Wire, usize) + Send,
) -> (Vec<u8>, Vec<u8>) {
    let place = Place::new();
    place.tmp.file("dst/old", there());
    let asked = place.besiege(what, ROOT, |w| {
        w.say(&Message::Hello(handshake::hello(agreed, [8; 32], b"peer", None)));
        w.until(kind::WELCOME);
        let target = Target::Guess;
        w.say(&Message::Put { policy: policy(0), target, path: b"old", operands: 1, items: false });
        let entry = file(b"old", size as u64);
        w.say(&operand(1, entry.clone()));
        let columns = columns::encode(&[entry]).unwrap();
        let (codec, packing) = (Codec::Raw, Codec::Raw);
        let entries = columns.as_slice();
        w.say(&Message::FilesPacked {
            batch: 1,
            dir: 1,
            inline: false,
            codec,
            packing,
            entries,
            contents: b"",
        });
        let mut asked = Vec::new();
        while let Some(said) = w.hear() {
            match said.message() {
                Message::Wants { entries, .. } if entries.is_empty() => break,
                Message::Wants { .. } | Message::WantsParts { .. } => {
                    asked.push(said.kind);
                    script(w, asked.len());
                }
                Message::Error(_) => {
                    w.say(&Message::Done);
                    return asked;
                }
                _ => {}
            }
        }
        w.say(&Message::AllSent);
        w.until(kind::SUMMARY);
        w.say(&Message::Done);
        asked
    });
    (std::fs::read(place.dst().join("old")).unwrap_or_default(), asked)
}

fn gives(w: &mut Wire, bytes: &[u8]) {
    w.say(&Message::Contents { batch: 1, codec: Codec::Raw, bytes });
}

fn patched(runs: &[Run], carried: &[u8], hash: [u8; 32]) -> Vec<u8> {
    let mut out = Vec::new();
    contents::push_patched(&mut out, runs, carried, &hash);
    out
}

fn run(bytes: usize, from: Option<usize>) -> Run {
    Run { bytes: bytes as u64, from: from.map(|from| from as u64) }
}

/// Its halves exchanged, with a word between them; and the runs that say so.
fn new_version() -> (Vec<u8>, Vec<Run>) {
    let old = there();
    let new = [&old[50_000..], b"word", &old[..49_996]].concat();
    (new, vec![run(50_000, Some(50_000)), run(4, None), run(49_996, Some(0))])
}

#[test]
fn what_a_small_file_is_made_of_is_compared() {
    const PART: u8 = kind::WANTS_PARTS;
    const WHOLE: u8 = kind::WANTS;
    let (new, runs) = new_version();
    let (landed, asked) = puts("the honest one", SIZE, ours(), |w, _| {
        gives(w, &patched(&runs, b"word", hash(&new)));
    });
    assert!(landed == new && asked == [PART]);
    let (landed, asked) =
        puts("one that does not know of it", SIZE, ALL, |w, _| gives(w, &contents(&[&new])));
    assert!(landed == new && asked == [WHOLE]);
    // Something else comes of it than it was said to be: all of it is asked for, and is right then, or is not published.
    let lies: [(&str, Vec<u8>); 6] = [
        ("another word", patched(&runs, b"work", hash(&new))),
        ("another hash", patched(&runs, b"word", [7; 32])),
        ("a hash of nothing here", {
            let mut out = Vec::new();
            contents::push_hashed(&mut out, SIZE as u64, &hash(&new));
            out
        }),
        ("from beyond its end", patched(&[run(SIZE, Some(1))], b"", hash(&new))),
        ("from far beyond", patched(&[run(1, Some(1_000_000)), run(SIZE - 1, Some(0))], b"", hash(&new))),
        (
            "shorter than it was said to be",
            patched(&[run(SIZE - 1, Some(0))], b"", hash(&there()[..SIZE - 1])),
        ),
    ];
    for (what, lie) in &lies {
        let (landed, asked) = puts(what, SIZE, ours(), |w, nth| {
            gives(w, if nth == 1 { lie.clone() } else { contents(&[&new]) }.as_slice());
        });
        assert!(landed == new && asked == [PART, WHOLE], "{what}: {asked:?}");
        let mut other = Vec::new();
        contents::push_content(&mut other, &new, Some(&[7; 32]));
        let (landed, asked) =
            puts(what, SIZE, ours(), |w, nth| gives(w, if nth == 1 { lie } else { &other }));
        assert!(landed == there() && asked == [PART, WHOLE], "{what}, and another lie: {asked:?}");
        // It was asked for its content, and for nothing else.
        let (landed, asked) = puts(what, SIZE, ours(), |w, _| gives(w, lie));
        assert!(landed == there() && asked == [PART, WHOLE], "{what}, again: {asked:?}");
    }
    // More than a small file is, and other lengths than were said, are no contents at all.
    let mut long = Vec::new();
    let half = Run { bytes: 600_000, from: Some(0) };
    contents::push_patched(&mut long, &[half, half], b"", &[7; 32]);
    for (what, lie) in
        [("longer than a small file", long), ("cut", patched(&runs, b"word", hash(&new))[..9].to_vec())]
    {
        let (landed, asked) = puts(what, SIZE, ours(), |w, _| gives(w, &lie));
        assert!(landed == there() && asked == [PART], "{what}: {asked:?}");
    }
}

/// Batches that are none, to a server; whether it says so.
fn batch_of(what: &str, packing: Codec, entries: &[u8], inline: Option<&[u8]>) -> bool {
    let place = Place::new();
    place.besiege(what, ROOT, |w| {
        w.say(&Message::Hello(handshake::hello(ours(), [8; 32], b"peer", None)));
        w.until(kind::WELCOME);
        let target = Target::Guess;
        w.say(&Message::Put { policy: policy(0), target, path: b"new", operands: 1, items: false });
        w.say(&operand(1, file(b"new", 4)));
        let contents = inline.unwrap_or_default();
        let (batch, dir, inline, codec) = (1, 1, inline.is_some(), Codec::Raw);
        w.say(&Message::FilesPacked { batch, dir, inline, codec, packing, entries, contents });
        loop {
            match w.hear().map(|said| said.kind) {
                Some(kind::WANTS | kind::WANTS_PARTS) => return false,
                Some(kind::ERROR) => {
                    w.say(&Message::Done);
                    return true;
                }
                Some(_) => {}
                None => return true,
            }
        }
    })
}

#[test]
fn columns_that_are_no_batch() {
    let good = columns::encode(&[file(b"new", 4)]).unwrap();
    let inline = contents(&[b"word"]);
    assert!(!batch_of("honest columns", Codec::Raw, &good, Some(&inline)));
    let mut name = good.clone();
    // The kind, the length of the name, and the name.
    assert_eq!(&name[1..6], b"\0\x03new");
    name[3..6].copy_from_slice(b"a/b");
    let mut dir = good.clone();
    dir[1] = 1;
    let bomb = {
        let mut out = Vec::new();
        columns::push_unpacked_length(&mut out, 512 << 10);
        out.extend_from_slice(b"\x28\xb5\x2f\xfd not so many");
        out
    };
    let patched = patched(&[run(4, Some(0))], b"", [7; 32]);
    type Row<'a> = (&'a str, Codec, &'a [u8], Option<&'a [u8]>);
    let table: [Row<'_>; 7] = [
        ("nothing", Codec::Raw, b"", None),
        ("a column short", Codec::Raw, &good[..good.len() - 1], None),
        ("a byte more", Codec::Raw, &[&good[..], b"\0"].concat(), None),
        ("a name that leads elsewhere", Codec::Raw, &name, None),
        ("a directory", Codec::Raw, &dir, None),
        ("a bomb", Codec::Zstd, &bomb, None),
        ("parts that nobody asked for", Codec::Raw, &good, Some(&patched)),
    ];
    for (what, packing, entries, inline) in table {
        assert!(batch_of(what, packing, entries, inline), "{what}");
    }
}
