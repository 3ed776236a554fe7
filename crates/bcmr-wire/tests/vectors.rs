//! What bytes mean, written down by hand after docs/protocol.md: a name, a frame in hex, and the message or the refusal.
//!
//! A line here may be added, and never changed within one version of the protocol: another program may have been
//! written after it.

#![allow(clippy::unwrap_used)]

use bcmr_wire::frame;
use bcmr_wire::handshake::wide;
use bcmr_wire::limits::GET_DIGITS_MAX;
use bcmr_wire::message::*;
use bcmr_wire::{Refused, Why};

/// Frames are written as length, type and payload; blanks are for reading.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    assert!(digits.len().is_multiple_of(2), "{hex}");
    digits.chunks(2).map(byte).collect()
}

const H32: &str = "0707070707070707070707070707070707070707070707070707070707070707";
const HASH: Hash = [7; 32];

fn entry() -> Entry<'static> {
    Entry {
        kind: Kind::File,
        name: b"f",
        mode: 0o644,
        uid: 1000,
        gid: 100,
        size: 300,
        blocks: 8,
        atime: Time { sec: 1, nsec: 2 },
        mtime: Time { sec: -1, nsec: 999_999_999 },
        ctime: Time { sec: 0, nsec: 0 },
        dev: 5,
        ino: 6,
        nlink: 1,
        rdev: 0,
        link: b"",
        attrs: vec![(b"user.a", b"v"), (b"b", b"")],
    }
}
/// kind, name, mode, uid, gid, size, blocks, three times, dev, ino, nlink, rdev, link, attributes
const ENTRY: &str = "00 01 66 a403 e807 64 ac02 08 02 02 01 ff93ebdc03 00 00 05 06 01 00 00 02 06 757365722e61 01 76 01 62 00";
/// The same as a directory `d` without attributes.
const DIR: &str = "01 01 64 a403 e807 64 ac02 08 02 02 01 ff93ebdc03 00 00 05 06 01 00 00 00";

fn dir() -> Entry<'static> {
    Entry { kind: Kind::Dir, name: b"d", attrs: Vec::new(), ..entry() }
}

fn trouble() -> Trouble<'static> {
    Trouble { code: 2, op: 300, path: b"a/b", note: Note::default(), errno: 13 }
}
fn note() -> Note<'static> {
    Note { reason: 7, about: vec![(0, b"n"), (5, b"")] }
}
const TROUBLE: &str = "0200 ac02 03 612f62 00 0d";

fn policy() -> Policy<'static> {
    Policy {
        flags: 0x8001,
        choices: [2, 4, 1, 2, 2, 2, 1, 4],
        checkpoint: 64 << 20,
        rules: vec![(false, b"*.o"), (true, b"a.o")],
        regexes: vec![b"^x"],
        compress: Compress::Auto,
        numbers: vec![(0, 1 << 20), (3, 7)],
    }
}
const POLICY: &str = "0180000000000000 0204010202020104 80808020 02 00 03 2a2e6f 01 03 612e6f 01 02 5e78 03 02 00 808040 03 07";

/// Name, type, payload, meaning.
fn good() -> Vec<(&'static str, u8, String, Message<'static>)> {
    let h = H32;
    let piece =
        Piece { file: 3, at: 1 << 20, flags: 0, cv: None, codec: Codec::Raw, length: 3, bytes: b"abc" };
    vec![
        ("hello, no set", 0x01, "0100 00".into(), Message::Hello(Hello { version: 1, caps: 0, wide: None })),
        (
            "hello, wide",
            0x01,
            format!("0100 ff 3f00000000000000 {h} 04 62636d72"),
            Message::Hello(Hello {
                version: 1,
                caps: 0xff,
                wide: Some(Wide { bits: 0x3f, nonce: HASH, agent: b"bcmr", at_once: None }),
            }),
        ),
        (
            "hello that asks",
            0x01,
            format!("0100 80 0000001000000000 {h} 01 62 8001 02 3061"),
            Message::Hello(Hello {
                version: 1,
                caps: 0x80,
                wide: Some(Wide {
                    bits: wide::AT_ONCE,
                    nonce: HASH,
                    agent: b"b",
                    at_once: Some(AtOnce { most: 128, get: b"0a" }),
                }),
            }),
        ),
        (
            "welcome that serves",
            0x02,
            format!("0100 80 0000001000000000 {h} 01 62"),
            Message::Welcome(Hello {
                version: 1,
                caps: 0x80,
                wide: Some(Wide { bits: wide::AT_ONCE, nonce: HASH, agent: b"b", at_once: None }),
            }),
        ),
        ("welcome", 0x02, "0100 03".into(), Message::Welcome(Hello { version: 1, caps: 3, wide: None })),
        ("error", 0x03, TROUBLE.into(), Message::Error(trouble())),
        // What says nothing but its code reads as it always did: that is how a version is refused.
        (
            "error, bare",
            0x03,
            "6400 00 00 00 00".into(),
            Message::Error(Trouble { code: 100, op: 0, path: b"", note: Note::default(), errno: 0 }),
        ),
        (
            "error with a reason",
            0x03,
            "0200 01 00 07 02 00 01 6e 05 00 0d".into(),
            Message::Error(Trouble { op: 1, path: b"", note: note(), ..trouble() }),
        ),
        ("ok", 0x04, "00".into(), Message::Ok { hash: None }),
        ("ok, hash", 0x04, format!("01 {h}"), Message::Ok { hash: Some(HASH) }),
        ("done", 0x05, String::new(), Message::Done),
        ("ping", 0x06, "0102030405060708".into(), Message::Ping { token: 0x0807_0605_0403_0201 }),
        ("pong", 0x07, "0000000000000080".into(), Message::Pong { token: 1 << 63 }),
        ("stat", 0x10, "01 61 01".into(), Message::Stat { path: b"a", follow: true }),
        ("list, home", 0x11, "00".into(), Message::List { path: b"" }),
        ("hash", 0x12, "02 2f61".into(), Message::Hash { path: b"/a" }),
        ("mkdir", 0x13, "01 61 ed010000".into(), Message::Mkdir { path: b"a", mode: 0o755 }),
        ("usage", 0x14, "01 ff 01 00 05".into(), Message::Usage { path: b"\xff", numbers: vec![(0, 5)] }),
        ("streams", 0x15, "20".into(), Message::Streams { count: 32 }),
        ("join", 0x16, format!("{h} 01 73 01"), Message::Join { secret: HASH, path: b"s", index: 1 }),
        ("direct", 0x17, "04".into(), Message::Direct { count: 4 }),
        ("undo", 0x24, "01 61 03".into(), Message::Undo { path: b"a", flags: 3 }),
        ("remove", 0x1D, "01 61 0b".into(), Message::Remove { path: b"a", flags: 11 }),
        ("info", 0x18, ENTRY.into(), Message::Info(entry())),
        ("page", 0x19, format!("02 {ENTRY} {DIR}"), Message::Page { entries: vec![entry(), dir()] }),
        (
            "used",
            0x1A,
            "01 02 8001 ffffffffffffffffff01".into(),
            Message::Used { files: 1, dirs: 2, bytes: 128, allocated: u64::MAX, unreadable: vec![] },
        ),
        (
            "used, of what could be looked at",
            0x1A,
            format!("01 02 8001 00 02 {TROUBLE} {TROUBLE}"),
            Message::Used { files: 1, dirs: 2, bytes: 128, allocated: 0, unreadable: vec![trouble(); 2] },
        ),
        ("token", 0x1B, format!("{h} 01 73"), Message::Token { secret: HASH, path: b"s" }),
        (
            "rendezvous",
            0x1C,
            format!("03 3a3a31 5000 {h}"),
            Message::Rendezvous { address: b"::1", port: 80, secret: HASH },
        ),
        (
            "put",
            0x20,
            format!("{POLICY} 02 01 64 03 01 00"),
            Message::Put { policy: policy(), target: Target::Exactly, path: b"d", operands: 3, items: true },
        ),
        (
            "get",
            0x21,
            format!("{POLICY} 02 01 61 01 62 00 00"),
            Message::Get { policy: policy(), paths: vec![b"a", b"b"], names: None },
        ),
        (
            "get, no names",
            0x21,
            format!("{POLICY} 01 01 61 01 00"),
            Message::Get { policy: policy(), paths: vec![b"a"], names: Some(vec![]) },
        ),
        (
            "get, names",
            0x21,
            format!("{POLICY} 01 01 61 01 01 01 78"),
            Message::Get { policy: policy(), paths: vec![b"a"], names: Some(vec![b"x"]) },
        ),
        (
            "keeping, of a snapshot",
            0x23,
            "01 01 62 00 02 0e 07 04 8c01".into(),
            Message::Keeping(Keeping {
                bases: vec![b"b"],
                old: OldThings::Go,
                at: Some(7),
                stay: Some([7, 4, 140]),
            }),
        ),
        (
            "keeping, of what is replaced",
            0x23,
            "00 01 03 6f6c64 00".into(),
            Message::Keeping(Keeping { bases: vec![], old: OldThings::Below(b"old"), at: None, stay: None }),
        ),
        (
            "keeping, in the trash",
            0x23,
            "00 02 00".into(),
            Message::Keeping(Keeping { bases: vec![], old: OldThings::Trashed, at: None, stay: None }),
        ),
        (
            "tree, made",
            0x25,
            format!("01 64 {h} 00"),
            Message::Tree { path: b"d", plan: HASH, step: TreeStep::Make },
        ),
        (
            "tree, links",
            0x25,
            format!("01 64 {h} 02 01 01 61 03 62 2f 63"),
            Message::Tree { path: b"d", plan: HASH, step: TreeStep::Link(vec![(b"a", b"b/c")]) },
        ),
        (
            "tree, published",
            0x25,
            format!("01 64 {h} 03 8001"),
            Message::Tree { path: b"d", plan: HASH, step: TreeStep::Publish { ino: 128 } },
        ),
        ("into a tree", 0x26, format!("{h} 01"), Message::IntoTree { plan: HASH, all: true }),
        ("gone", 0x4E, "03 8001".into(), Message::Gone { deleted: 3, updated: 128 }),
        (
            "take away",
            0x4D,
            "02 01 01 61 07 01 03 02 05 80897a 00".into(),
            Message::TakeAway { dir: 2, names: vec![taken(b"a")] },
        ),
        ("take a directory away", 0x4D, "02 00".into(), Message::TakeAway { dir: 2, names: vec![] }),
        ("once more", 0x4D, "00 00".into(), Message::TakeAway { dir: 0, names: vec![] }),
        ("took away", 0x5F, "8001".into(), Message::TookAway { left: 128 }),
        ("left out", 0x5C, "01 02 01 61 01 62".into(), Message::LeftOut { dir: 1, names: vec![b"a", b"b"] }),
        ("names", 0x22, "02 01 61 03 62 2f 63".to_owned(), Message::Names { names: vec![b"a", b"b/c"] }),
        (
            "operand",
            0x30,
            format!("05 7372632f2e 01 0900000000000000 01 {DIR}"),
            Message::Operand { path: b"src/.", whole: true, origin: 9, dir: 1, entry: dir() },
        ),
        ("dir", 0x31, format!("02 01 {DIR}"), Message::Dir { id: 2, parent: 1, entry: dir() }),
        (
            "files",
            0x32,
            format!("01 02 00 00 01 {ENTRY}"),
            Message::Files {
                batch: 1,
                dir: 2,
                inline: false,
                codec: Codec::Raw,
                entries: vec![entry()],
                contents: b"",
            },
        ),
        (
            "files, inline",
            0x32,
            format!("01 02 01 00 01 {ENTRY} 00 02 6869"),
            Message::Files {
                batch: 1,
                dir: 2,
                inline: true,
                codec: Codec::Raw,
                entries: vec![entry()],
                contents: b"\0\x02hi",
            },
        ),
        (
            "files, packed",
            0x5A,
            "01 02 01 00 02 03 0a 0b 0c 00 02 6869".into(),
            Message::FilesPacked {
                batch: 1,
                dir: 2,
                inline: true,
                codec: Codec::Raw,
                packing: Codec::Zstd,
                entries: b"\x0a\x0b\x0c",
                contents: b"\0\x02hi",
            },
        ),
        (
            "contents, packed",
            0x33,
            "01 02 8008 aabb".into(),
            Message::Contents { batch: 1, codec: Codec::Zstd, bytes: &[0x80, 0x08, 0xaa, 0xbb] },
        ),
        ("large", 0x34, format!("01 02 {ENTRY}"), Message::Large { file: 1, dir: 2, entry: entry() }),
        ("data", 0x35, "03 808040 00 616263".into(), Message::Data(piece.clone())),
        (
            "data, end of a block",
            0x35,
            format!("03 808040 02 {h} 616263"),
            Message::Data(Piece { flags: 2, cv: Some(HASH), ..piece.clone() }),
        ),
        (
            "data, zeros",
            0x35,
            "03 808040 01 808040".into(),
            Message::Data(Piece { flags: 1, length: 1 << 20, bytes: b"", ..piece.clone() }),
        ),
        (
            "data, zeros at the end of a block, again",
            0x35,
            format!("03 808040 07 {h} 808040"),
            Message::Data(Piece { flags: 7, cv: Some(HASH), length: 1 << 20, bytes: b"", ..piece.clone() }),
        ),
        (
            "data, compressed",
            0x36,
            format!("03 808040 02 {h} 01 808040 616263"),
            Message::Data(Piece {
                flags: 2,
                cv: Some(HASH),
                codec: Codec::Lz4,
                length: 1 << 20,
                ..piece.clone()
            }),
        ),
        (
            "data, begins a frame",
            0x36,
            "03 808040 08 02 808040 616263".into(),
            Message::Data(Piece { flags: 8, codec: Codec::Zstd, length: 1 << 20, ..piece.clone() }),
        ),
        (
            "data, goes on with a frame, end of a block, again",
            0x36,
            format!("03 808040 16 {h} 02 808040 616263"),
            Message::Data(Piece {
                flags: 22,
                cv: Some(HASH),
                codec: Codec::Zstd,
                length: 1 << 20,
                ..piece.clone()
            }),
        ),
        (
            "file end",
            0x37,
            "01 01 00".into(),
            Message::FileEnd { file: 1, state: FileState::Changed, error: None },
        ),
        (
            "file end, failed",
            0x37,
            format!("01 02 0a {TROUBLE}"),
            Message::FileEnd { file: 1, state: FileState::Failed, error: Some(trouble()) },
        ),
        ("dir end", 0x38, "01 01".into(), Message::DirEnd { dir: 1, partial: true }),
        ("trouble", 0x39, TROUBLE.into(), Message::Trouble(trouble())),
        ("found", 0x3A, "01 02 00".into(), Message::Found { items: 1, bytes: 2, last: false }),
        ("answer", 0x3B, "01 00".into(), Message::Answer { id: 1, yes: false }),
        (
            "have blocks",
            0x3C,
            format!("01 02 01 {h}"),
            Message::HaveBlocks { file: 1, first: 2, hashes: vec![HASH] },
        ),
        ("proof", 0x3D, format!("01 02 01 {h}"), Message::Proof { file: 1, first: 2, tags: vec![HASH] }),
        ("values", 0x3E, format!("01 02 01 {h}"), Message::Values { file: 1, first: 2, hashes: vec![HASH] }),
        ("all sent", 0x3F, String::new(), Message::AllSent),
        ("all named", 0x50, "03 8001".into(), Message::AllNamed { dirs: 3, batches: 128 }),
        ("dir is", 0x40, "01 02".into(), Message::DirIs { dir: 1, state: DirState::Refused }),
        ("wants", 0x41, "01 02 00 8001".into(), Message::Wants { batch: 1, entries: vec![0, 128] }),
        (
            "wants parts",
            0x4C,
            "01 03 00 00 02 01 8001 02 02 05 0102030405060708 8020 0000000000000001".into(),
            Message::WantsParts {
                batch: 1,
                entries: vec![
                    WantedPart { entry: 0, wanted: Wanted::Content },
                    WantedPart { entry: 2, wanted: Wanted::Hash },
                    WantedPart {
                        entry: 128,
                        wanted: Wanted::Rest(vec![
                            Sum { bytes: 5, sum: 0x0807_0605_0403_0201 },
                            Sum { bytes: 4096, sum: 1 << 56 },
                        ]),
                    },
                ],
            },
        ),
        ("wants, settled", 0x41, "01 00".into(), Message::Wants { batch: 1, entries: vec![] }),
        (
            "resume, patches",
            0x42,
            "01 01 00 02".into(),
            Message::Resume { file: 1, wanted: true, from: 0, flags: resume::PATCHES },
        ),
        ("resume", 0x42, "01 01 00 01".into(), Message::Resume { file: 1, wanted: true, from: 0, flags: 1 }),
        ("reread", 0x43, "01 00 8001".into(), Message::Reread { file: 1, at: 0, bytes: 128 }),
        ("compute", 0x44, "01 00 02".into(), Message::Compute { file: 1, first: 0, count: 2 }),
        ("landed", 0x45, "01 02".into(), Message::Landed { items: 1, bytes: 2 }),
        (
            "report, item",
            0x46,
            "00 00 01 73 01 64 03".into(),
            Message::Report(Event::Item { action: 0, src: b"s", dst: b"d", bytes: 3 }),
        ),
        ("report, failed", 0x46, format!("01 {TROUBLE}"), Message::Report(Event::Failed(trouble()))),
        ("report, warning", 0x46, format!("02 {TROUBLE}"), Message::Report(Event::Warning(trouble()))),
        (
            "report, hashed",
            0x46,
            format!("03 01 64 {h}"),
            Message::Report(Event::Hashed { dst: b"d", hash: HASH }),
        ),
        (
            "report, resumed",
            0x46,
            "04 01 64 03 00 04".into(),
            Message::Report(Event::Resumed { dst: b"d", bytes: 3, restarted: 0, repaired: 4 }),
        ),
        (
            "report, restarted",
            0x46,
            "04 01 64 00 ac02 00".into(),
            Message::Report(Event::Resumed { dst: b"d", bytes: 0, restarted: 300, repaired: 0 }),
        ),
        (
            "report, difference",
            0x46,
            "06 02 01 64 01 03 04 ac02".into(),
            Message::Report(Event::Difference {
                change: 2,
                path: b"d",
                directory: true,
                files: 3,
                bytes: 4,
                why: 300,
                alike: None,
            }),
        ),
        (
            "report, difference of a plan",
            0x46,
            format!("0a 00 01 64 00 01 04 05 {H32}"),
            Message::Report(Event::Difference {
                change: 0,
                path: b"d",
                directory: false,
                files: 1,
                bytes: 4,
                why: 5,
                alike: Some(HASH),
            }),
        ),
        ("report, base", 0x46, "07 01 64".into(), Message::Report(Event::Base(b"d"))),
        (
            "report, compared",
            0x46,
            "08 15 8001".into(),
            Message::Report(Event::Compared { by_time: 21, by_content: 128 }),
        ),
        ("report, new target", 0x46, "09".into(), Message::Report(Event::NewTarget)),
        ("report, note", 0x46, "05 07 02 00 01 6e 05 00".into(), Message::Report(Event::Note(note()))),
        ("ask", 0x47, "01 01 61".into(), Message::Ask { id: 1, path: b"a" }),
        ("close", 0x48, "01".into(), Message::Close { file: 1 }),
        (
            "missing blocks",
            0x49,
            format!("01 02 {h} 02 ff01"),
            Message::MissingBlocks { file: 1, first: 2, nonce: HASH, bits: b"\xff\x01" },
        ),
        (
            "summary",
            0x4A,
            "01 02 03 04 05 06 07 02 02 65 01".into(),
            Message::Summary { counts: [1, 2, 3, 4, 5, 6, 7], codes: vec![2, 101], cancelled: true },
        ),
        (
            "sums",
            0x4B,
            "01 8001 02 808001 0807060504030201 01 ffffffffffffffff".into(),
            Message::Sums {
                file: 1,
                at: 128,
                chunks: vec![
                    Sum { bytes: 16 << 10, sum: 0x0102_0304_0506_0708 },
                    Sum { bytes: 1, sum: u64::MAX },
                ],
            },
        ),
        ("cancel", 0x4F, String::new(), Message::Cancel),
        ("owner", 0x5E, "00 e807 02 6d65".into(), Message::Owner { of: Owner::User, id: 1000, name: b"me" }),
        (
            "owner of a group",
            0x5E,
            "01 32 05 7374616666".into(),
            Message::Owner { of: Owner::Group, id: 50, name: b"staff" },
        ),
        ("finer", 0x58, "01 8001 808001".into(), Message::Finer { file: 1, at: 128, bytes: 16 << 10 }),
        (
            "patch",
            0x59,
            "03 808040 00 03 8001 01 02 00 01 ac02 00 6162".into(),
            Message::Patch(Patch {
                file: 3,
                at: 1 << 20,
                cv: None,
                runs: vec![
                    Run { bytes: 128, from: Some(0) },
                    Run { bytes: 2, from: None },
                    Run { bytes: 1, from: Some(299) },
                ],
                codec: Codec::Raw,
                bytes: b"ab",
            }),
        ),
        (
            "patch, packed, at the end of a block",
            0x59,
            format!("03 808040 01 {h} 02 8008 00 01 01 02 6162"),
            Message::Patch(Patch {
                file: 3,
                at: 1 << 20,
                cv: Some(HASH),
                runs: vec![Run { bytes: 1 << 10, from: None }, Run { bytes: 1, from: Some(0) }],
                codec: Codec::Zstd,
                bytes: b"ab",
            }),
        ),
        (
            "patch, nothing with it",
            0x59,
            "03 00 00 01 808040 01 00".into(),
            Message::Patch(Patch {
                file: 3,
                at: 0,
                cv: None,
                runs: vec![Run { bytes: 1 << 20, from: Some(0) }],
                codec: Codec::Raw,
                bytes: b"",
            }),
        ),
    ]
}

#[test]
fn every_vector_means_what_it_says_and_is_written_so() {
    for (name, kind, payload, meaning) in good() {
        let payload = bytes(&payload);
        assert_eq!(Message::decode(kind, &payload).as_ref(), Ok(&meaning), "{name}");
        let mut whole = Vec::new();
        frame::encode(kind, &payload, &mut whole).unwrap();
        let mut written = b"before".to_vec();
        meaning.encode(&mut written).unwrap();
        assert_eq!(&written[6..], &whole[..], "{name}");
        assert_eq!(meaning.kind(), kind, "{name}");
    }
}

#[test]
fn every_type_has_a_vector() {
    let kinds: Vec<u8> = good().iter().map(|vector| vector.1).collect();
    for kind in 0..=u8::MAX {
        assert_eq!(kinds.contains(&kind), bcmr_wire::state::name(kind).is_some(), "type {kind:#x}");
    }
}

/// Cut anywhere, a payload is short; with a byte behind it, it is too long. Only the handshake may be longer, and what
/// goes on to the end of the payload may be any length.
#[test]
fn every_cut_and_every_addition_is_noticed() {
    for (name, kind, payload, meaning) in good() {
        let payload = bytes(&payload);
        // Where the last field goes on to the end, the message is whole from here on.
        let open = match &meaning {
            Message::Files { contents, .. } | Message::FilesPacked { contents, .. } => {
                payload.len() - contents.len()
            }
            Message::Contents { .. } => 2,
            // A piece without bytes is none, so not even the whole header is enough.
            Message::Data(Piece { bytes, .. }) => {
                payload.len() - bytes.len() + usize::from(!bytes.is_empty())
            }
            // One that is packed needs a byte, and the rest is the packing's; otherwise the runs say how many there are.
            Message::Patch(patch) if patch.codec != Codec::Raw => payload.len() - patch.bytes.len() + 1,
            Message::Hello(hello) | Message::Welcome(hello) if hello.caps & 0x80 == 0 => 2,
            _ => payload.len(),
        };
        for cut in 0..open {
            // A greeting may end behind the version: then it has no capabilities.
            if cut == 2 && matches!(meaning, Message::Hello(_) | Message::Welcome(_)) {
                continue;
            }
            // Sums may come without what they lack.
            if cut == 5 && matches!(&meaning, Message::Used { unreadable, .. } if !unreadable.is_empty()) {
                continue;
            }
            let refused = Message::decode(kind, &payload[..cut]);
            assert!(refused.is_err(), "{name} cut at {cut}: {refused:?}");
        }
        let longer = [&payload[..], &[0]].concat();
        let read = Message::decode(kind, &longer);
        match meaning {
            Message::Hello(_) | Message::Welcome(_) => assert_eq!(read, Ok(meaning), "{name}"),
            Message::Files { inline: true, .. }
            | Message::FilesPacked { inline: true, .. }
            | Message::Contents { .. } => {}
            Message::Data(Piece { bytes: [_, ..], .. }) => {}
            Message::Patch(Patch { codec: Codec::Zstd, .. }) => {}
            Message::Patch(_) => {
                assert_eq!(read, Err(Refused { field: "patch.bytes", why: Why::Contradiction }), "{name}");
            }
            Message::Files { .. } => assert!(read.is_err(), "{name}"),
            Message::Used { unreadable, .. } if unreadable.is_empty() => {
                assert_eq!(read, Err(Refused { field: "used.unreadable", why: Why::Limit }), "{name}");
            }
            _ => assert_eq!(read, Err(Refused { field: "frame.rest", why: Why::Rest }), "{name}"),
        }
    }
}

#[test]
fn what_is_refused_says_which_field_and_why() {
    let h = H32;
    let long_name = format!("80 02 {}", "61".repeat(256));
    let named = |name: &str| ENTRY.replacen("01 66", name, 1);
    let table: Vec<(&str, u8, String, &str, Why)> = vec![
        ("no such type", 0x00, String::new(), "frame.state", Why::Unknown),
        ("no such type", 0x51, String::new(), "frame.state", Why::Unknown),
        ("sums of nothing", 0x4B, "01 00 00".into(), "sums.chunks", Why::Limit),
        ("a chunk of nothing", 0x4B, format!("01 00 01 00 {}", "00".repeat(8)), "sums.chunks", Why::Limit),
        (
            "a chunk that is too long",
            0x4B,
            format!("01 00 01 818010 {}", "00".repeat(8)),
            "sums.chunks",
            Why::Limit,
        ),
        ("more chunks than there are bytes", 0x4B, "01 00 8020".into(), "sums.chunks", Why::Short),
        (
            "chunks beyond every file",
            0x4B,
            format!("01 ffffffffffffffff7f 01 01 {}", "00".repeat(8)),
            "sums.at",
            Why::Limit,
        ),
        ("finer sums of nothing", 0x58, "01 00 00".into(), "finer.bytes", Why::Limit),
        ("finer sums of too much", 0x58, "01 00 818040".into(), "finer.bytes", Why::Limit),
        ("patches that nothing proves", 0x42, "01 01 00 03".into(), "resume.flags", Why::Contradiction),
        ("a patch of nothing", 0x59, "01 00 00 00 00".into(), "patch.runs", Why::Limit),
        ("a run of nothing", 0x59, "01 00 00 01 00 01 00".into(), "patch.runs", Why::Limit),
        (
            "a patch of what all comes",
            0x59,
            "01 00 00 01 01 00 00 61".into(),
            "patch.runs",
            Why::Contradiction,
        ),
        ("a patch over two pieces", 0x59, "01 01 00 01 808040 01 00".into(), "patch.runs", Why::Limit),
        (
            "a run from beyond every file",
            0x59,
            "01 00 00 01 02 ffffffffffffffff7f 00".into(),
            "patch.runs",
            Why::Limit,
        ),
        (
            "a patch with more than its runs say",
            0x59,
            "01 00 00 02 01 01 01 00 00 6161".into(),
            "patch.bytes",
            Why::Contradiction,
        ),
        ("an owner of a kind nobody knows", 0x5E, "02 01 01 61".into(), "owner.of", Why::Unknown),
        ("an owner who is nobody", 0x5E, "00 ffffffff0f 01 61".into(), "owner.id", Why::Limit),
        ("root by another name", 0x5E, "00 00 01 61".into(), "owner.id", Why::Limit),
        ("an owner without a name", 0x5E, "00 01 00".into(), "owner.name", Why::Name),
        ("an owner called like a way up", 0x5E, "01 01 02 2e2e".into(), "owner.name", Why::Name),
        ("an owner with NUL", 0x5E, "01 01 02 6100".into(), "owner.name", Why::Name),
        ("an owner with a long name", 0x5E, format!("00 01 {long_name}"), "owner.name", Why::Name),
        ("what is no number of a word", 0x03, "0200 808004 00 00 00".into(), "error.op", Why::Number),
        (
            "what is no number of a reason",
            0x03,
            "0200 00 00 808004 00 00".into(),
            "error.reason",
            Why::Number,
        ),
        ("hello without version", 0x01, "01".into(), "hello.version", Why::Short),
        ("hello without the set it announces", 0x01, "0100 80".into(), "hello.wide", Why::Short),
        (
            "an agent that speaks to terminals",
            0x01,
            format!("0100 80 0000000000000000 {h} 01 1b"),
            "hello.agent",
            Why::Byte,
        ),
        (
            "an agent too long",
            0x01,
            format!("0100 80 0000000000000000 {h} 41 {}", "61".repeat(65)),
            "hello.agent",
            Why::Limit,
        ),
        ("two hashes", 0x04, format!("02 {h} {h}"), "ok.hash", Why::Limit),
        ("ok with a byte too many", 0x04, "00 00".into(), "frame.rest", Why::Rest),
        ("a choice of two that is three", 0x10, "01 61 02".into(), "stat.follow", Why::Unknown),
        ("a path with NUL", 0x11, "01 00".into(), "list.path", Why::Byte),
        ("a path too long", 0x11, format!("818004 {}", "61".repeat((64 << 10) + 1)), "list.path", Why::Limit),
        ("a path longer than the frame", 0x11, "ffffffffffffffffff01 61".into(), "list.path", Why::Short),
        ("a length in a longer form", 0x11, "8100 61".into(), "list.path", Why::Number),
        ("a mode that is more than one", 0x13, "01 61 00100000".into(), "mkdir.mode", Why::Limit),
        ("a removal as nobody knows it", 0x1D, "01 61 10".into(), "remove.flags", Why::Unknown),
        ("no streams", 0x15, "00".into(), "streams.count", Why::Limit),
        ("too many streams", 0x15, "21".into(), "streams.count", Why::Limit),
        ("stream 0 joins", 0x16, format!("{h} 01 73 00"), "join.index", Why::Limit),
        ("an address with a blank", 0x1C, format!("03 613a20 5000 {h}"), "rendezvous.address", Why::Byte),
        ("a kind of file nobody knows", 0x18, ENTRY.replacen("00", "07", 1), "entry.kind", Why::Unknown),
        ("no name", 0x18, named("00"), "entry.name", Why::Name),
        ("name .", 0x18, named("01 2e"), "entry.name", Why::Name),
        ("name ..", 0x18, named("02 2e2e"), "entry.name", Why::Name),
        ("name with a slash", 0x18, named("03 2e2e2f"), "entry.name", Why::Name),
        ("absolute name", 0x18, named("02 2f61"), "entry.name", Why::Name),
        ("name with NUL", 0x18, named("02 6100"), "entry.name", Why::Name),
        ("name of 256", 0x18, named(&long_name), "entry.name", Why::Name),
        ("mode 010000", 0x18, ENTRY.replacen("a403", "8020", 1), "entry.mode", Why::Limit),
        ("uid -1", 0x18, ENTRY.replacen("e807", "ffffffff0f", 1), "entry.uid", Why::Limit),
        ("gid -1", 0x18, ENTRY.replacen(" 64 ", " ffffffff0f ", 1), "entry.gid", Why::Limit),
        ("uid of 33 bits", 0x18, ENTRY.replacen("e807", "8080808010", 1), "entry.uid", Why::Number),
        (
            "size of 64 bits",
            0x18,
            ENTRY.replacen("ac02", "ffffffffffffffffff01", 1),
            "entry.size",
            Why::Limit,
        ),
        (
            "a second has 10^9 nanoseconds",
            0x18,
            ENTRY.replacen("ff93ebdc03", "8094ebdc03", 1),
            "entry.mtime",
            Why::Limit,
        ),
        (
            "a file with a target",
            0x18,
            ENTRY.replacen("01 00 00 02", "01 00 01 61 02", 1),
            "entry.link",
            Why::Contradiction,
        ),
        (
            "an attribute without a name",
            0x18,
            ENTRY.replacen("01 62 00", "00 01 61", 1),
            "entry.attrs",
            Why::Name,
        ),
        (
            "more attributes than bytes",
            0x18,
            DIR.replacen("01 00 00 00", "01 00 00 ff0f", 1),
            "entry.attrs",
            Why::Short,
        ),
        ("more entries than bytes", 0x19, format!("0b {DIR} {DIR}"), "page.entries", Why::Short),
        (
            "an unknown flag of a policy",
            0x20,
            format!("{} 00 00 01 00 00", POLICY.replacen("0180000000", "0180000020", 1)),
            "policy.flags",
            Why::Unknown,
        ),
        (
            "an unknown choice",
            0x20,
            format!("{} 00 00 01 00 00", POLICY.replacen("0204", "0206", 1)),
            "policy.choices",
            Why::Unknown,
        ),
        (
            "a checkpoint inside a block",
            0x20,
            format!("{} 00 00 01 00 00", POLICY.replacen("80808020", "81808020", 1)),
            "policy.checkpoint",
            Why::Limit,
        ),
        (
            "a number twice",
            0x20,
            format!("{} 00 00 01 00 00", POLICY.replacen("03 07", "00 07", 1)),
            "policy.numbers",
            Why::Contradiction,
        ),
        ("a number twice", 0x14, "01 61 02 01 05 01 05".into(), "usage.numbers", Why::Contradiction),
        ("a target nobody knows", 0x20, format!("{POLICY} 03 00 01 00 00"), "put.target", Why::Unknown),
        ("what is unused is 0", 0x20, format!("{POLICY} 00 00 01 00 01"), "put.root", Why::Unknown),
        (
            "names that were not announced",
            0x21,
            format!("{POLICY} 01 01 61 00 01 01 78"),
            "get.names",
            Why::Contradiction,
        ),
        (
            "names below two paths",
            0x21,
            format!("{POLICY} 02 01 61 01 62 01 00"),
            "get.names",
            Why::Contradiction,
        ),
        (
            "a whole file",
            0x30,
            format!("01 61 01 0900000000000000 01 {ENTRY}"),
            "operand.whole",
            Why::Contradiction,
        ),
        ("directory 0", 0x31, format!("00 01 {DIR}"), "dir.id", Why::Limit),
        ("a directory in itself", 0x31, format!("01 01 {DIR}"), "dir.parent", Why::Contradiction),
        ("a directory that is a file", 0x31, format!("02 01 {ENTRY}"), "dir.entry", Why::Contradiction),
        ("an empty batch", 0x32, "01 02 00 00 00".into(), "files.entries", Why::Limit),
        (
            "a directory among files",
            0x32,
            format!("01 02 00 00 01 {DIR}"),
            "files.entries",
            Why::Contradiction,
        ),
        (
            "a large one among small ones",
            0x32,
            format!("01 02 00 00 01 {}", ENTRY.replacen("ac02", "808040", 1)),
            "files.entries",
            Why::Contradiction,
        ),
        (
            "contents that are not announced",
            0x32,
            format!("01 02 00 00 01 {ENTRY} 01"),
            "files.contents",
            Why::Contradiction,
        ),
        ("a bomb", 0x33, "01 01 8180800200".into(), "contents.max", Why::Limit),
        ("a codec nobody knows", 0x33, "01 03 01".into(), "contents.codec", Why::Unknown),
        ("a large directory", 0x34, format!("01 02 {DIR}"), "large.entry", Why::Contradiction),
        ("a piece of nothing", 0x35, "03 808040 00".into(), "data.length", Why::Limit),
        ("a flag nobody knows", 0x35, "03 808040 20 61".into(), "data.flags", Why::Unknown),
        ("a frame of what is not packed", 0x35, "03 808040 08 61".into(), "data.flags", Why::Contradiction),
        ("a frame of LZ4", 0x36, "03 808040 10 01 05 61".into(), "data.flags", Why::Contradiction),
        ("begins and goes on", 0x36, "03 808040 18 02 05 61".into(), "data.flags", Why::Contradiction),
        ("a piece across a boundary", 0x35, "03 ffff3f 00 6161".into(), "data.length", Why::Limit),
        ("zeros without end", 0x35, "03 00 01 ffffffffffffffffff01".into(), "data.length", Why::Limit),
        ("zeros with bytes", 0x35, "03 00 01 05 61".into(), "frame.rest", Why::Rest),
        (
            "a piece that ends beyond any file",
            0x35,
            "03 ffffffffffffffff7f 00 61".into(),
            "data.at",
            Why::Limit,
        ),
        ("a piece beyond any file", 0x35, "03 80808080808080808001 00 61".into(), "data.at", Why::Limit),
        ("compressed, as it is", 0x36, "03 00 00 00 05 61".into(), "data.codec", Why::Unknown),
        ("compressed zeros", 0x36, "03 00 01 01 05 61".into(), "data.bytes", Why::Contradiction),
        ("compressed and longer", 0x36, "03 00 00 01 01 6161".into(), "data.bytes", Why::Contradiction),
        ("a piece that unpacks to two", 0x36, "03 00 00 01 818040 61".into(), "data.length", Why::Limit),
        (
            "an error with a whole file",
            0x37,
            format!("01 00 0a {TROUBLE}"),
            "fileend.error",
            Why::Contradiction,
        ),
        ("a failure without its error", 0x37, "01 02 00".into(), "fileend.error", Why::Contradiction),
        ("an error with more in it", 0x37, format!("01 02 0b {TROUBLE} 00"), "fileend.error", Why::Rest),
        ("too many blocks at a time", 0x3C, format!("01 00 11 {}", h.repeat(17)), "have.hashes", Why::Limit),
        ("blocks beyond any file", 0x3C, format!("01 ffffffffffffffffff01 01 {h}"), "have.first", Why::Limit),
        ("wanted twice", 0x41, "01 02 03 03".into(), "wants.entries", Why::Contradiction),
        ("wanted backwards", 0x41, "01 02 03 02".into(), "wants.entries", Why::Contradiction),
        ("wanted beyond any batch", 0x41, "01 01 8020".into(), "wants.entries", Why::Limit),
        ("batch 0", 0x41, "00 00".into(), "wants.batch", Why::Limit),
        ("a flag nobody knows", 0x42, "01 01 00 04".into(), "resume.flags", Why::Unknown),
        ("nothing again", 0x43, "01 00 00".into(), "reread.bytes", Why::Limit),
        (
            "a range past the end of numbers",
            0x43,
            "01 ffffffffffffffffff01 01".into(),
            "reread.bytes",
            Why::Limit,
        ),
        ("no values", 0x44, "01 00 00".into(), "compute.count", Why::Limit),
        ("an event nobody knows", 0x46, "0b".into(), "event.kind", Why::Unknown),
        ("a change nobody knows", 0x46, "06 03 01 64 00 00 00 00".into(), "event.kind", Why::Unknown),
        ("a directory that is neither", 0x46, "06 00 01 64 02 00 00 00".into(), "event.kind", Why::Unknown),
        ("an action nobody knows", 0x46, "00 0a 00 00 00".into(), "event.kind", Why::Unknown),
        ("bits of too many blocks", 0x49, format!("01 00 {h} 03 000000"), "missing.bits", Why::Limit),
        ("a code of 17 bits", 0x4A, "00 00 00 00 00 00 00 01 808004 00".into(), "summary.codes", Why::Limit),
        (
            "more codes than there can be",
            0x4A,
            "00 00 00 00 00 00 00 8102".into(),
            "summary.codes",
            Why::Limit,
        ),
    ];
    for (name, kind, payload, field, why) in table {
        let payload = bytes(&payload);
        assert_eq!(Message::decode(kind, &payload), Err(Refused { field, why }), "{name}");
    }
}

/// A peer of an older version sends no byte of capabilities, one of a newer version sends more behind them.
#[test]
fn a_greeting_may_end_early_and_go_on_later() {
    let none = Message::Hello(Hello { version: 1, caps: 0, wide: None });
    assert_eq!(Message::decode(0x01, &bytes("0100")), Ok(none));
    let newer = Message::Hello(Hello { version: 9, caps: 1, wide: None });
    assert_eq!(Message::decode(0x01, &bytes("0900 01 ffffff")), Ok(newer));
}

/// The largest value that an attribute with a name of one byte may have.
/// With a name of one byte, as much as the attributes of one entry may come to.
static BIG: [u8; (256 << 10) - 129] = [0; (256 << 10) - 129];

#[test]
fn what_would_be_refused_is_not_written() {
    let mut out = b"before".to_vec();
    let bad = [
        Message::List { path: b"a\0" },
        Message::Streams { count: 0 },
        Message::Info(Entry { name: b"..", ..entry() }),
        Message::Data(Piece {
            file: 1,
            at: 0,
            flags: 0,
            cv: None,
            codec: Codec::Raw,
            length: 4,
            bytes: b"abc",
        }),
        Message::Hello(Hello { version: 1, caps: 0x80, wide: None }),
        // 2,000 entries that are each allowed and together more than a page.
        Message::Page { entries: vec![Entry { link: &[b'a'; 200], kind: Kind::Link, ..entry() }; 2000] },
        Message::Files {
            batch: 1,
            dir: 1,
            inline: false,
            codec: Codec::Raw,
            entries: vec![Entry { attrs: vec![(b"a", &BIG)], ..entry() }; 5],
            contents: b"",
        },
    ];
    for message in bad {
        assert!(message.encode(&mut out).is_err(), "{}", message.kind());
        assert_eq!(out, b"before", "{}", message.kind());
    }
}

fn hash_of(entry: u64) -> WantedPart {
    WantedPart { entry, wanted: Wanted::Hash }
}

fn packed(batch: u64, dir: u64, inline: bool, contents: &[u8]) -> Message<'_> {
    let (codec, packing) = (Codec::Raw, Codec::Raw);
    Message::FilesPacked { batch, dir, inline, codec, packing, entries: b"", contents }
}

/// So many entries with so many chunks of one byte, or one with so many bytes in chunks as long as they may be.
fn parts(entries: u64, bytes: u64) -> Message<'static> {
    let each = if entries > 1 { 1 } else { 256 << 10 };
    let mut chunks = vec![Sum { bytes: each, sum: 0 }; (bytes / each) as usize];
    chunks.extend((!bytes.is_multiple_of(each)).then_some(Sum { bytes: bytes % each, sum: 0 }));
    let part = |entry| WantedPart { entry, wanted: Wanted::Rest(chunks.clone()) };
    Message::WantsParts { batch: 1, entries: (0..entries).map(part).collect() }
}

/// What is written when nothing is wrong with it, else which field is refused.
fn written(message: Message<'_>) -> Result<(), &'static str> {
    let mut out = Vec::new();
    let done = message.encode(&mut out).map_err(|refused| refused.field);
    if done.is_ok() {
        assert_eq!(Message::decode(out[4], &out[5..]), Ok(message));
    }
    done
}

/// A name that may be taken away.
fn taken(name: &[u8]) -> Taken<'_> {
    let (mtime, ctime) = (Time { sec: 1, nsec: 5 }, Time { sec: 1_000_000, nsec: 0 });
    Taken { name, ino: 7, nlink: 1, size: 3, mtime, ctime }
}

#[test]
fn no_id_is_0() {
    let (zero, h) = (0, vec![HASH]);
    let table = [
        (Message::Operand { path: b"", whole: false, origin: 0, dir: zero, entry: entry() }, "operand.dir"),
        (Message::Dir { id: 1, parent: zero, entry: dir() }, "dir.parent"),
        (files(zero, 1, vec![entry()]), "files.batch"),
        (files(1, zero, vec![entry()]), "files.dir"),
        (Message::Contents { batch: zero, codec: Codec::Raw, bytes: b"" }, "contents.batch"),
        (Message::Large { file: zero, dir: 1, entry: entry() }, "large.file"),
        (Message::Large { file: 1, dir: zero, entry: entry() }, "large.dir"),
        (zeros(zero, 0, 1), "data.file"),
        (Message::FileEnd { file: zero, state: FileState::Whole, error: None }, "fileend.file"),
        (Message::DirEnd { dir: zero, partial: false }, "dirend.dir"),
        (Message::LeftOut { dir: zero, names: vec![b"a"] }, "leftout.dir"),
        (Message::TakeAway { dir: zero, names: vec![taken(b"a")] }, "takeaway.dir"),
        (Message::HaveBlocks { file: zero, first: 0, hashes: h.clone() }, "have.file"),
        (Message::Proof { file: zero, first: 0, tags: h.clone() }, "proof.file"),
        (Message::Values { file: zero, first: 0, hashes: h }, "values.file"),
        (Message::DirIs { dir: zero, state: DirState::New }, "diris.dir"),
        (Message::Wants { batch: zero, entries: vec![] }, "wants.batch"),
        (Message::WantsParts { batch: zero, entries: vec![hash_of(0)] }, "parts.batch"),
        (Message::WantsParts { batch: 1, entries: vec![] }, "parts.entries"),
        (Message::WantsParts { batch: 1, entries: vec![hash_of(1), hash_of(1)] }, "parts.entries"),
        (Message::WantsParts { batch: 1, entries: vec![hash_of(1024)] }, "parts.entries"),
        (parts(1, 0), "parts.entries"),
        (packed(zero, 1, false, b""), "packed.batch"),
        (packed(1, zero, false, b""), "packed.dir"),
        (packed(1, 1, false, b"\x01"), "packed.contents"),
        (Message::Resume { file: zero, wanted: true, from: 0, flags: 0 }, "resume.file"),
        (Message::Reread { file: zero, at: 0, bytes: 1 }, "reread.file"),
        (Message::Compute { file: zero, first: 0, count: 1 }, "compute.file"),
        (Message::Close { file: zero }, "close.file"),
        (Message::MissingBlocks { file: zero, first: 0, nonce: HASH, bits: b"" }, "missing.file"),
    ];
    for (message, field) in table {
        assert_eq!(written(message), Err(field));
    }
}

fn files(batch: u64, dir: u64, entries: Vec<Entry<'static>>) -> Message<'static> {
    Message::Files { batch, dir, inline: false, codec: Codec::Raw, entries, contents: b"" }
}

fn zeros(file: u64, at: u64, length: u64) -> Message<'static> {
    let flags = data::ZEROS;
    Message::Data(Piece { file, at, flags, cv: None, codec: Codec::Raw, length, bytes: b"" })
}

/// Every maximum with what just fits, and what is one too much.
#[test]
fn what_just_fits_fits_and_one_more_does_not() {
    let many = |counts: &[usize]| {
        let one = |count: &usize| Entry { attrs: vec![(&b"a"[..], &b""[..]); *count], ..entry() };
        files(1, 1, counts.iter().map(one).collect())
    };
    let letters = vec![b'a'; 8 << 20];
    let h = |count| vec![HASH; count];
    let with = |change: &dyn Fn(&mut Policy<'static>)| {
        let mut how = policy();
        change(&mut how);
        Message::Get { policy: how, paths: vec![], names: None }
    };
    let contents = |count| Message::Contents { batch: 1, codec: Codec::Raw, bytes: &letters[..count] };
    let kept = |change: &dyn Fn(&mut Keeping<'static>)| {
        let mut keeping = Keeping { bases: vec![], old: OldThings::Go, at: None, stay: None };
        change(&mut keeping);
        Message::Keeping(keeping)
    };
    let linked = |count| {
        let step = TreeStep::Link(vec![(b"a".as_slice(), b"b".as_slice()); count]);
        Message::Tree { path: b"d", plan: HASH, step }
    };
    let takes = |count: usize| Message::TakeAway { dir: 1, names: vec![taken(b"a"); count] };
    let left_out = |names: &[&'static [u8]]| Message::LeftOut { dir: 1, names: names.to_vec() };
    let names =
        |count| Message::Get { policy: policy(), paths: vec![b""], names: Some(vec![b"".as_slice(); count]) };
    let said = |words| Note { reason: 1, about: vec![(0, words)] };
    let of = |count| Note { reason: 1, about: vec![(1, b"".as_slice()); count] };
    let info = |change: &dyn Fn(&mut Entry<'static>)| {
        let mut one = entry();
        change(&mut one);
        Message::Info(one)
    };
    let top = i64::MAX as u64;
    let blocks = top / (4 << 20) + 1;
    let text = 64 << 10;
    let table = [
        (Message::List { path: &letters[..text] }, Message::List { path: &letters[..text + 1] }, "list.path"),
        (
            Message::Error(Trouble { path: &letters[..text], ..trouble() }),
            Message::Trouble(Trouble { path: &letters[..text + 1], ..trouble() }),
            "error.path",
        ),
        (
            Message::Error(Trouble { note: said(&letters[..text]), ..trouble() }),
            Message::Report(Event::Failed(Trouble { note: said(&letters[..text + 1]), ..trouble() })),
            "error.about",
        ),
        (Message::Report(Event::Note(of(8))), Message::Report(Event::Note(of(9))), "error.about"),
        (
            Message::Mkdir { path: b"", mode: 0o7777 },
            Message::Mkdir { path: b"", mode: 0o10000 },
            "mkdir.mode",
        ),
        (Message::Streams { count: 32 }, Message::Streams { count: 33 }, "streams.count"),
        (Message::Direct { count: 32 }, Message::Direct { count: 33 }, "direct.count"),
        (
            Message::Rendezvous { address: &letters[..64], port: 1, secret: HASH },
            Message::Rendezvous { address: &letters[..65], port: 1, secret: HASH },
            "rendezvous.address",
        ),
        (info(&|e| e.size = top), info(&|e| e.size = top + 1), "entry.size"),
        (info(&|e| e.blocks = top / 512), info(&|e| e.blocks = top / 512 + 1), "entry.blocks"),
        (info(&|e| e.atime.nsec = 999_999_999), info(&|e| e.atime.nsec = 1_000_000_000), "entry.atime"),
        (info(&|e| e.mtime.nsec = 999_999_999), info(&|e| e.mtime.nsec = 1_000_000_000), "entry.mtime"),
        (info(&|e| e.ctime.nsec = 999_999_999), info(&|e| e.ctime.nsec = 1_000_000_000), "entry.ctime"),
        (info(&|e| e.uid = u32::MAX - 1), info(&|e| e.uid = u32::MAX), "entry.uid"),
        (info(&|e| e.attrs = vec![(b"a", &BIG)]), info(&|e| e.attrs = vec![(b"ab", &BIG)]), "entry.attrs"),
        (
            with(&|p| p.rules = vec![(true, b""); 4 << 10]),
            with(&|p| p.rules = vec![(true, b""); (4 << 10) + 1]),
            "policy.rules",
        ),
        (
            with(&|p| p.regexes = vec![b""; 4 << 10]),
            with(&|p| p.regexes = vec![b""; (4 << 10) + 1]),
            "policy.regexes",
        ),
        (
            with(&|p| p.numbers = (0..32).map(|which| (which, 0)).collect()),
            with(&|p| p.numbers = (0..33).map(|which| (which, 0)).collect()),
            "policy.numbers",
        ),
        (with(&|p| p.checkpoint = (top >> 22) << 22), with(&|p| p.checkpoint = top + 1), "policy.checkpoint"),
        (
            Message::Get { policy: policy(), paths: vec![b""; 64 << 10], names: None },
            Message::Get { policy: policy(), paths: vec![b""; (64 << 10) + 1], names: None },
            "get.paths",
        ),
        (names(1 << 20), names((1 << 20) + 1), "get.names"),
        (
            Message::Names { names: vec![b""; 1 << 20] },
            Message::Names { names: vec![b""; (1 << 20) + 1] },
            "names.names",
        ),
        (kept(&|k| k.bases = vec![b""; 64]), kept(&|k| k.bases = vec![b""; 65]), "keeping.bases"),
        (kept(&|k| k.at = Some(-62_135_596_800)), kept(&|k| k.at = Some(-62_135_596_801)), "keeping.at"),
        (kept(&|k| k.at = Some(253_402_300_799)), kept(&|k| k.at = Some(253_402_300_800)), "keeping.at"),
        (
            kept(&|k| (k.at, k.stay) = (Some(0), Some([0, 0, 1]))),
            kept(&|k| (k.at, k.stay) = (Some(0), Some([0; 3]))),
            "keeping.stay",
        ),
        (
            kept(&|k| k.old = OldThings::Below(b"a")),
            kept(&|k| (k.at, k.old) = (Some(0), OldThings::Below(b"a"))),
            "keeping.old",
        ),
        (linked(4096), linked(4097), "tree.links"),
        (linked(1), linked(0), "tree.links"),
        (takes(1024), takes(1025), "takeaway.names"),
        (left_out(&[&b"a"[..]; 1024]), left_out(&[&b"a"[..]; 1025]), "leftout.names"),
        (left_out(&[b".a"]), left_out(&[]), "leftout.names"),
        (
            Message::Dir { id: 2, parent: 1, entry: dir() },
            Message::Dir { id: 2, parent: 2, entry: dir() },
            "dir.parent",
        ),
        (files(1, 1, vec![entry(); 1024]), files(1, 1, vec![entry(); 1025]), "files.entries"),
        (many(&[2032]), many(&[2033]), "entry.attrs"),
        (many(&[2032, 2032, 32]), many(&[2032, 2032, 33]), "files.entries"),
        (
            files(1, 1, vec![Entry { size: (1 << 20) - 1, ..entry() }]),
            files(1, 1, vec![Entry { size: 1 << 20, ..entry() }]),
            "files.entries",
        ),
        (contents(4 << 20), contents((4 << 20) + 1), "contents.bytes"),
        (zeros(1, 0, 1 << 20), zeros(1, 0, (1 << 20) + 1), "data.length"),
        (zeros(1, 5, (1 << 20) - 5), zeros(1, 5, (1 << 20) - 4), "data.length"),
        (zeros(1, top - 1, 1), zeros(1, top, 1), "data.at"),
        (
            Message::HaveBlocks { file: 1, first: blocks - 16, hashes: h(16) },
            Message::HaveBlocks { file: 1, first: 0, hashes: h(17) },
            "have.hashes",
        ),
        (
            Message::HaveBlocks { file: 1, first: 0, hashes: h(1) },
            Message::HaveBlocks { file: 1, first: 0, hashes: h(0) },
            "have.hashes",
        ),
        (
            Message::HaveBlocks { file: 1, first: blocks - 1, hashes: h(1) },
            Message::HaveBlocks { file: 1, first: blocks, hashes: h(1) },
            "have.first",
        ),
        (
            Message::Proof { file: 1, first: 0, tags: h(16) },
            Message::Proof { file: 1, first: 0, tags: h(17) },
            "proof.tags",
        ),
        (
            Message::Proof { file: 1, first: blocks - 1, tags: h(1) },
            Message::Proof { file: 1, first: blocks, tags: h(1) },
            "proof.first",
        ),
        (
            Message::Values { file: 1, first: 0, hashes: h(4096) },
            Message::Values { file: 1, first: 0, hashes: h(4097) },
            "values.hashes",
        ),
        (
            Message::Values { file: 1, first: blocks - 1, hashes: h(1) },
            Message::Values { file: 1, first: blocks, hashes: h(1) },
            "values.first",
        ),
        (
            Message::Wants { batch: 1, entries: (0..1024).collect() },
            Message::Wants { batch: 1, entries: (0..4097).collect() },
            "wants.entries",
        ),
        (parts(4, 2048), parts(5, 2048), "parts.entries"),
        (parts(1, 1 << 20), parts(1, (1 << 20) + 1), "parts.entries"),
        (
            Message::Resume { file: 1, wanted: true, from: top, flags: 0 },
            Message::Resume { file: 1, wanted: true, from: top + 1, flags: 0 },
            "resume.from",
        ),
        (
            Message::Reread { file: 1, at: top - 1, bytes: 1 },
            Message::Reread { file: 1, at: top, bytes: 1 },
            "reread.bytes",
        ),
        (
            Message::Compute { file: 1, first: 1, count: blocks - 1 },
            Message::Compute { file: 1, first: 1, count: blocks },
            "compute.first",
        ),
        (
            Message::MissingBlocks { file: 1, first: blocks - 1, nonce: HASH, bits: b"ab" },
            Message::MissingBlocks { file: 1, first: blocks, nonce: HASH, bits: b"ab" },
            "missing.first",
        ),
        (
            Message::Summary { counts: [0; 7], codes: vec![65_535; 256], cancelled: false },
            Message::Summary { counts: [0; 7], codes: vec![65_535; 257], cancelled: false },
            "summary.codes",
        ),
    ];
    for (fits, too_much, field) in table {
        assert_eq!(written(fits), Ok(()), "just fits: {field}");
        assert_eq!(written(too_much), Err(field), "one too much");
    }
}

/// Wherever an entry travels, its name is one that stays in its directory.
#[test]
fn every_entry_is_looked_at() {
    let up = || Entry { name: b"..", ..entry() };
    let above = || Entry { name: b"..", ..dir() };
    let table = [
        Message::Info(up()),
        Message::Page { entries: vec![entry(), up()] },
        Message::Operand { path: b"", whole: false, origin: 0, dir: 1, entry: up() },
        Message::Dir { id: 2, parent: 1, entry: above() },
        files(1, 1, vec![entry(), up()]),
        Message::Large { file: 1, dir: 1, entry: up() },
    ];
    for message in table {
        assert_eq!(written(message), Err("entry.name"));
    }
}

/// What an honest side would not write is refused when it is read, too, from the bytes alone.
#[test]
fn lists_of_entries_that_are_too_long_are_refused_when_read() {
    let one = |entry: Entry<'_>| {
        let mut out = Vec::new();
        Message::Info(entry).encode(&mut out).unwrap();
        out.split_off(5)
    };
    let letters = [b'a'; 32 << 10];
    let link = |count| one(Entry { kind: Kind::Link, link: &letters[..count], attrs: vec![], ..entry() });
    // Eight links and one that fills what is left of a page.
    let page = |bytes: usize| {
        let mut payload = vec![9];
        (0..8).for_each(|_| payload.extend(link(31 << 10)));
        let rest = bytes - payload.len() - link(1 << 10).len();
        payload.extend(link((1 << 10) + rest));
        assert_eq!(payload.len(), bytes);
        Message::decode(kind::PAGE, &payload).map(drop).map_err(|refused| refused.field)
    };
    assert_eq!(page((256 << 10) - 1), Ok(()));
    assert_eq!(page(256 << 10), Err("page.entries"));

    let batch = |entries: &[Vec<u8>]| {
        let payload = [&[1, 1, 0, 0, entries.len() as u8][..], &entries.concat()].concat();
        Message::decode(kind::FILES, &payload).map(drop).map_err(|refused| refused.field)
    };
    let big = one(Entry { attrs: vec![(b"a", &BIG)], ..entry() });
    assert_eq!(batch(&[big.clone(), big.clone()]), Ok(()));
    assert_eq!(batch(&[big.clone(), big.clone(), big]), Err("files.entries"));
}

#[test]
fn a_set_bit_and_what_it_announces_come_together() {
    let piece = |flags, cv| {
        Message::Data(Piece { file: 1, at: 0, flags, cv, codec: Codec::Raw, length: 1, bytes: b"a" })
    };
    assert_eq!(written(piece(data::ENDS_BLOCK, Some(HASH))), Ok(()));
    assert_eq!(written(piece(data::ENDS_BLOCK, None)), Err("data.cv"));
    assert_eq!(written(piece(0, Some(HASH))), Err("data.cv"));
    let framed = |flags, codec| {
        Message::Data(Piece { file: 1, at: 0, flags, cv: None, codec, length: 2, bytes: b"a" })
    };
    for flags in [data::BEGINS_FRAME, data::GOES_ON] {
        assert_eq!(written(framed(flags, Codec::Zstd)), Ok(()));
        for codec in [Codec::Lz4, Codec::Raw] {
            assert_eq!(written(framed(flags, codec)), Err("data.flags"), "{flags} {codec:?}");
        }
    }
    assert_eq!(written(framed(data::BEGINS_FRAME | data::GOES_ON, Codec::Zstd)), Err("data.flags"));
    assert_eq!(written(framed(32, Codec::Zstd)), Err("data.flags"));
    static BLANKS: [u8; 64] = [b' '; 64];
    static TILDES: [u8; 65] = [b'~'; 65];
    let hello = |caps, agent: Option<&'static [u8]>| {
        let wide = agent.map(|agent| Wide { bits: 0, nonce: HASH, agent, at_once: None });
        Message::Hello(Hello { version: 1, caps, wide })
    };
    assert_eq!(written(hello(0x80, Some(&BLANKS))), Ok(()));
    assert_eq!(written(hello(0x80, Some(&TILDES))), Err("hello.agent"));
    assert_eq!(written(hello(0x80, None)), Err("hello.caps"));
    assert_eq!(written(hello(0, Some(b"".as_slice()))), Err("hello.caps"));
    static MANY: [u8; GET_DIGITS_MAX + 1] = [b'0'; GET_DIGITS_MAX + 1];
    let asking = |bits, get: Option<&'static [u8]>| {
        let at_once = get.map(|get| AtOnce { most: 0, get });
        Hello { version: 1, caps: 0x80, wide: Some(Wide { bits, nonce: HASH, agent: b"", at_once }) }
    };
    let asks = |bits, get| written(Message::Hello(asking(bits, get)));
    assert_eq!(asks(wide::AT_ONCE, Some(&MANY[1..])), Ok(()));
    assert_eq!(asks(wide::AT_ONCE, Some(&MANY)), Err("hello.get"));
    for shell in [&b"0A"[..], b"$(", b"`0`", b"\n"] {
        assert_eq!(asks(wide::AT_ONCE, Some(shell)), Err("hello.get"));
    }
    assert_eq!(asks(wide::AT_ONCE, None), Err("hello.wide"));
    assert_eq!(asks(0, Some(b"00")), Err("hello.wide"));
    assert_eq!(written(Message::Welcome(asking(wide::AT_ONCE, None))), Ok(()));
    assert_eq!(written(Message::Welcome(asking(wide::AT_ONCE, Some(b"00")))), Err("hello.wide"));
}

#[test]
fn a_policy_answers_for_its_bits() {
    use bcmr_wire::policy::{Choice, collide, flags, follow};
    let how = policy();
    assert!(how.has(flags::RECURSIVE | flags::DEDUP) && !how.has(flags::RECURSIVE | flags::FAST));
    assert_eq!((how.choice(Choice::Follow), how.choice(Choice::Collide)), (follow::ALWAYS, collide::ASK));
}

#[test]
fn every_path_is_one() {
    let bad: &[u8] = b"a\0";
    let policy = Policy { rules: vec![], regexes: vec![], ..policy() };
    let table = [
        (Message::Stat { path: bad, follow: true }, "stat.path"),
        (Message::List { path: bad }, "list.path"),
        (Message::Hash { path: bad }, "hash.path"),
        (Message::Mkdir { path: bad, mode: 0 }, "mkdir.path"),
        (Message::Usage { path: bad, numbers: vec![] }, "usage.path"),
        (Message::Remove { path: bad, flags: 0 }, "remove.path"),
        (Message::Undo { path: bad, flags: 0 }, "undo.path"),
        (Message::Join { secret: HASH, path: bad, index: 1 }, "join.path"),
        (Message::Token { secret: HASH, path: bad }, "token.path"),
        (
            Message::Put {
                policy: policy.clone(),
                target: Target::Into,
                path: bad,
                operands: 1,
                items: true,
            },
            "put.path",
        ),
        (Message::Get { policy: policy.clone(), paths: vec![bad], names: None }, "get.paths"),
        (Message::Get { policy: policy.clone(), paths: vec![b""], names: Some(vec![bad]) }, "get.names"),
        (Message::Names { names: vec![b"a", bad] }, "names.names"),
        (Message::Tree { path: bad, plan: HASH, step: TreeStep::Find }, "tree.path"),
        (Message::Tree { path: b"d", plan: HASH, step: TreeStep::Link(vec![(b"a", bad)]) }, "tree.links"),
        (Message::Tree { path: b"d", plan: HASH, step: TreeStep::Link(vec![(bad, b"a")]) }, "tree.links"),
        (
            Message::Keeping(Keeping { bases: vec![bad], old: OldThings::Go, at: None, stay: None }),
            "keeping.bases",
        ),
        (
            Message::Keeping(Keeping { bases: vec![], old: OldThings::Below(bad), at: None, stay: None }),
            "keeping.below",
        ),
        (
            Message::Get {
                policy: Policy { rules: vec![(true, bad)], ..policy.clone() },
                paths: vec![],
                names: None,
            },
            "policy.rules",
        ),
        (
            Message::Get { policy: Policy { regexes: vec![bad], ..policy }, paths: vec![], names: None },
            "policy.regexes",
        ),
        (Message::Operand { path: bad, whole: false, origin: 0, dir: 1, entry: entry() }, "operand.path"),
        (Message::Ask { id: 1, path: bad }, "ask.path"),
        (Message::Report(Event::Item { action: 0, src: bad, dst: b"", bytes: 0 }), "event.kind"),
        (Message::Report(Event::Item { action: 0, src: b"", dst: bad, bytes: 0 }), "event.kind"),
        (Message::Report(Event::Hashed { dst: bad, hash: HASH }), "event.kind"),
        (Message::Report(Event::Base(bad)), "event.kind"),
        (
            Message::Report(Event::Difference {
                change: 0,
                path: bad,
                directory: false,
                files: 0,
                bytes: 0,
                why: 0,
                alike: None,
            }),
            "event.kind",
        ),
        (Message::Report(Event::Resumed { dst: bad, bytes: 0, restarted: 0, repaired: 0 }), "event.kind"),
        (Message::Info(Entry { kind: Kind::Link, link: bad, attrs: vec![], ..entry() }), "entry.link"),
        (Message::Info(Entry { attrs: vec![(bad, b"")], ..entry() }), "entry.attrs"),
    ];
    for (message, field) in table {
        assert_eq!(written(message), Err(field));
    }
}

/// A refusal names a field of the document; one that is misspelt would send its reader looking for nothing.
#[test]
fn refusals_name_fields_that_are_there() {
    let document = include_str!("../../../docs/protocol.md");
    let code = [
        include_str!("../src/codec.rs"),
        include_str!("../src/rules.rs"),
        include_str!("../src/contents.rs"),
        include_str!("../src/policy.rs"),
    ];
    let mut seen = 0;
    for quoted in code.iter().flat_map(|text| text.split('"').skip(1).step_by(2)) {
        let is_tag = quoted.contains('.')
            && !quoted.starts_with('.')
            && quoted.bytes().all(|b| b.is_ascii_lowercase() || b == b'.');
        if is_tag {
            assert!(document.contains(&format!("[{quoted}]")), "{quoted}");
            seen += 1;
        }
    }
    assert!(seen > 200, "only {seen}: the strings were not found");
}
