//! The protocol's state machine, from outside: whatever a stream is at, each message that the table forbids then ends the
//! connection with an error that names it, and changes nothing. What the table allows is what all other tests do.
//!
//! Must not know what the engine looks at: the messages are sound, so that only their place is wrong.

use super::peer::*;
use crate::common::in_slice;
use bcmr_wire::handshake::{self, Features, caps, wide};
use bcmr_wire::message::{
    Codec, Event, FileState, Keeping, Message, Note, OldThings, Owner, Patch, Piece, Run, Sum, Target,
    TreeStep, Trouble, Wanted, WantedPart, kind,
};
use bcmr_wire::policy::flags;
use bcmr_wire::state::{Answer, State, name};
use std::collections::BTreeMap;

/// What `serve` and all verbs exit with when the other side broke the protocol.
const PROTOCOL: i32 = 1;

/// One sound message of each type, and bytes that are no type.
fn messages() -> BTreeMap<u8, Vec<u8>> {
    const PIECE: Piece<'_> =
        Piece { file: 1, at: 0, flags: 0, cv: None, codec: Codec::Raw, length: 3, bytes: b"abc" };
    let content = contents(&[b"evil"]);
    let columns = bcmr_wire::columns::encode(&[file(b"made", 4)]).unwrap();
    let all = [
        Message::Hello(handshake::hello(ALL, [8; 32], b"peer", None)),
        Message::Welcome(handshake::hello(ALL, [8; 32], b"peer", None)),
        Message::Error(trouble()),
        Message::Ok { hash: None },
        Message::Done,
        Message::Ping { token: 1 },
        Message::Pong { token: 1 },
        Message::Stat { path: b"pub", follow: true },
        Message::List { path: b"pub" },
        Message::Hash { path: b"pub/f" },
        Message::Mkdir { path: b"pub/made", mode: 0o755 },
        Message::Usage { path: b"pub", numbers: vec![] },
        Message::Remove { path: b"pub/absent", flags: 0 },
        Message::Undo { path: b"pub/absent", flags: 0 },
        Message::Streams { count: 1 },
        Message::Join { secret: [7; 32], path: b"/nowhere/bcmr", index: 1 },
        Message::Direct { count: 1 },
        Message::Info(file(b"x", 1)),
        Message::Page { entries: vec![file(b"x", 1)] },
        Message::Used { files: 1, dirs: 1, bytes: 1, allocated: 1, unreadable: vec![] },
        Message::Token { secret: [7; 32], path: b"/nowhere/bcmr" },
        Message::Rendezvous { address: b"127.0.0.1", port: 9, secret: [7; 32] },
        put(b"pub/made"),
        get(b"pub"),
        Message::Names { names: vec![b"f"] },
        Message::Keeping(Keeping { bases: vec![b"pub"], old: OldThings::Go, at: None, stay: None }),
        Message::Tree { path: b"pub/made", plan: [7; 32], step: TreeStep::Find },
        Message::IntoTree { plan: [7; 32], all: false },
        operand(1, dir(b"x")),
        subdir(2, 1, b"made"),
        files(1, 1, vec![file(b"made", 4)], &content),
        Message::Contents { batch: 1, codec: Codec::Raw, bytes: &content },
        Message::Large { file: 1, dir: 1, entry: file(b"made", 2 << 20) },
        Message::Data(PIECE),
        Message::Data(Piece { codec: Codec::Lz4, length: 300, ..PIECE }),
        Message::FileEnd { file: 1, state: FileState::Whole, error: None },
        Message::DirEnd { dir: 1, partial: false },
        Message::Trouble(trouble()),
        Message::Found { items: 1, bytes: 1, last: false },
        Message::Answer { id: 1, yes: true },
        Message::HaveBlocks { file: 1, first: 0, hashes: vec![[7; 32]] },
        Message::Proof { file: 1, first: 0, tags: vec![[7; 32]] },
        Message::Values { file: 1, first: 0, hashes: vec![[7; 32]] },
        Message::AllSent,
        Message::AllNamed { dirs: 1, batches: 1 },
        Message::DirIs { dir: 1, state: bcmr_wire::message::DirState::There },
        Message::Wants { batch: 1, entries: Vec::new() },
        Message::Resume { file: 1, wanted: true, from: 0, flags: 0 },
        Message::Reread { file: 1, at: 0, bytes: 1 << 20 },
        Message::Compute { file: 1, first: 0, count: 1 },
        Message::Landed { items: 1, bytes: 1 },
        Message::Report(Event::Note(Note::default())),
        Message::Ask { id: 1, path: b"x" },
        Message::Close { file: 1 },
        Message::MissingBlocks { file: 1, first: 0, nonce: [7; 32], bits: b"\x01" },
        Message::Summary { counts: [0; 7], codes: Vec::new(), cancelled: false },
        Message::Gone { deleted: 1, updated: 1 },
        Message::LeftOut { dir: 1, names: vec![b"x"] },
        Message::TakeAway { dir: 1, names: Vec::new() },
        Message::TookAway { left: 0 },
        Message::Cancel,
        Message::Sums { file: 1, at: 0, chunks: vec![Sum { bytes: 1, sum: 7 }] },
        Message::WantsParts {
            batch: 1,
            entries: vec![WantedPart { entry: 0, wanted: Wanted::Rest(vec![Sum { bytes: 1, sum: 7 }]) }],
        },
        Message::FilesPacked {
            batch: 1,
            dir: 1,
            inline: true,
            codec: Codec::Raw,
            packing: Codec::Raw,
            entries: &columns,
            contents: &content,
        },
        Message::Finer { file: 1, at: 0, bytes: 1 },
        Message::Patch(Patch {
            file: 1,
            at: 0,
            cv: None,
            runs: vec![Run { bytes: 1, from: Some(0) }],
            codec: Codec::Raw,
            bytes: b"",
        }),
        Message::Owner { of: Owner::User, id: 1000, name: b"daemon" },
    ];
    let framed = all.iter().map(|message| {
        let mut frame = Vec::new();
        message.encode(&mut frame).unwrap();
        (message.kind(), frame)
    });
    // No types: the last number, and each that comes right behind some that are.
    let is_type = |kind: &u8| name(*kind).is_some();
    let none = (0..=u8::MAX).filter(|kind| !is_type(kind) && kind.checked_sub(1).is_none_or(|k| is_type(&k)));
    let none = none.chain([u8::MAX]).map(|kind| (kind, vec![1, 0, 0, 0, kind]));
    let found: BTreeMap<u8, Vec<u8>> = framed.chain(none).collect();
    for kind in 0..=u8::MAX {
        assert!(name(kind).is_none() || found.contains_key(&kind), "no message of type {kind:#04x}");
    }
    found
}

fn trouble() -> Trouble<'static> {
    Trouble { code: 3, op: 1, path: b"x", note: Note::default(), errno: 2 }
}

fn put(path: &[u8]) -> Message<'_> {
    let policy = policy(flags::RECURSIVE);
    Message::Put { policy, target: Target::Guess, path, operands: 1, items: false }
}

fn get(path: &[u8]) -> Message<'_> {
    Message::Get { policy: policy(flags::RECURSIVE), paths: vec![path], names: None }
}

/// What the honest side says of a message that came in a state.
fn breach(kind: u8, state: State) -> String {
    let at = match state {
        State::ServerNew => "waiting for a greeting",
        State::ServerGreeted => "waiting for the first request",
        State::ClientNew => "waiting for the answer to the greeting",
        State::ServerIdle => "waiting for a request",
        State::Waits(Answer::Info) => "waiting for what Stat found",
        State::Waits(Answer::Pages) => "waiting for pages of a directory",
        State::Waits(Answer::Ok) => "waiting for Ok",
        State::Waits(Answer::Used) => "waiting for what Usage counted",
        State::Waits(Answer::Undone) => "waiting for what Undo tells",
        State::Waits(Answer::Token) => "waiting for a token",
        State::Waits(Answer::Rendezvous) => "waiting for a rendezvous",
        State::Sends => "sending",
        State::Receives => "receiving",
        State::SendsBeside => "sending over a further stream",
        State::ReceivesBeside => "receiving over a further stream",
        State::SendEnded => "after an error of the sender, before Done",
        State::ReceiveEnded => "after the last message of the receiver, before Done",
        State::ClientIdle | State::PeerEnded | State::Quiet => panic!("nothing is read in {state:?}"),
    };
    format!("message {} has no place here: {at}", shown(kind))
}

fn shown(kind: u8) -> String {
    name(kind).map_or(format!("{kind:#04x}"), |name| format!("{name} ({kind:#04x})"))
}

/// A path below the root, its mode, its time of modification, and a hash of what it holds.
type Entry = (Vec<u8>, u32, (i64, u64), u64);

/// What is in the root, but for when it was looked at.
fn inside(place: &Place) -> Vec<Entry> {
    let found = crate::common::tree(&place.dst());
    found.into_iter().map(|(path, e)| (path, e.mode, e.mtime, e.content)).collect()
}

// ---- the server ----

/// A server with something in its root, brought to `state` on the stream that `script` gets, for each forbidden message.
fn server_at(state: State, options: &[&str], reach: impl Fn(&mut Wire) + Sync) {
    let place = Place::new();
    place.tmp.file("dst/pub/f", "public");
    // What an operand becomes is there already.
    place.tmp.dir("dst/pub/x");
    let (around, inside) = (place.around(), inside(&place));
    let args = [&["--root", "DST"][..], options].concat();
    for (kind, frame) in messages() {
        if state.allows(kind) {
            continue;
        }
        let title = format!("{} in {state:?}", name(kind).unwrap_or("?"));
        let ((), outcome) = place.serve(&title, &args, |w| {
            reach(w);
            w.polite = true;
            w.bytes(&frame);
            // Where the transfer has ended, the last word was said.
            let told = state.has_ended() || w.until(kind::ERROR).is_some_and(|said| said.tells_of(kind));
            assert!(told, "{title}: the client is not told");
            w.hold();
        });
        assert_eq!(outcome.code, PROTOCOL, "{title}: {}", outcome.said());
        assert!(outcome.said().contains(&breach(kind, state)), "{title}: {}", outcome.said());
    }
    assert_eq!(around, place.around(), "{state:?}: something outside the root has changed");
    assert_eq!(inside, self::inside(&place), "{state:?}: something in the root has changed");
}

impl Said {
    /// Whether this is an error that speaks of a message of this type.
    fn tells_of(&self, kind: u8) -> bool {
        let shown = shown(kind);
        let speaks = |t: &Trouble<'_>| t.note.about.iter().any(|(_, text)| *text == shown.as_bytes());
        matches!(self.message(), Message::Error(t) if speaks(&t))
    }
}

#[test]
fn a_server_without_a_transfer_takes_only_requests() {
    server_at(State::ServerNew, &[], |_| ());
    server_at(State::ServerGreeted, &[], |w| assert!(w.hello()));
    server_at(State::ServerIdle, &[], |w| {
        assert!(w.hello());
        w.say(&Message::Stat { path: b"pub", follow: true });
        assert_eq!(w.hear().map(|said| said.kind), Some(kind::INFO));
    });
}

#[test]
fn a_server_in_a_transfer_takes_only_what_the_other_half_sends() {
    server_at(State::Receives, &[], |w| {
        assert!(w.hello());
        w.say(&put(b"pub"));
        w.say(&operand(1, dir(b"x")));
        assert!(w.until(kind::DIR_IS).is_some());
    });
    server_at(State::Sends, &[], |w| {
        assert!(w.hello());
        w.say(&get(b"pub"));
        assert!(w.until(kind::OPERAND).is_some());
    });
}

/// A transfer that was refused: only what was under way then is dropped.
#[test]
fn a_server_that_has_refused_a_transfer_waits_for_the_last_message() {
    server_at(State::ReceiveEnded, &["--read-only"], |w| {
        assert!(w.hello());
        w.say(&put(b"pub"));
        assert!(w.until(kind::ERROR).is_some());
    });
    server_at(State::SendEnded, &[], |w| {
        assert!(w.hello());
        let policy = policy(flags::RECURSIVE);
        w.say(&Message::Get { policy, paths: vec![b"nowhere"], names: Some(vec![b"f"]) });
        assert!(w.until(kind::ERROR).is_some());
    });
    // The twin: behind it the connection serves again.
    let place = Place::new();
    place.tmp.file("dst/pub/f", "public");
    let ((), outcome) = place.serve("refused, and again", &["--root", "DST", "--read-only"], |w| {
        assert!(w.hello());
        // Says `Done` itself, behind what was under way.
        for _ in 0..3 {
            w.say(&put(b"pub"));
            w.say(&operand(1, dir(b"x")));
            assert!(w.until(kind::ERROR).is_some());
            w.say(&Message::AllSent);
            w.say(&Message::Done);
            w.say(&Message::Stat { path: b"pub/f", follow: true });
            assert_eq!(w.hear().map(|said| said.kind), Some(kind::INFO));
        }
        w.say(&get(b"pub"));
        let (got, well) = w.take_all();
        assert!(well && got.windows(6).any(|w| w == b"public"));
    });
    outcome.ok();
}

/// What is tried where each message takes several programs: an ordinary run tries one in some, in each state others.
fn some_messages(state: State) -> impl Iterator<Item = (u8, Vec<u8>)> {
    let forbidden = messages().into_iter().filter(move |(kind, _)| !state.allows(*kind));
    let of_state = usize::from(state == State::SendsBeside);
    let is_tried = move |n: usize| in_slice(n + of_state * 12, 24);
    forbidden.enumerate().filter(move |(n, _)| is_tried(*n)).map(|(_, message)| message)
}

/// As [`server_at`], for a further stream of a transfer that `start` begins.
fn server_beside(state: State, start: impl Fn(&mut Wire) + Sync) {
    let place = Place::new();
    place.tmp.file("dst/pub/f", "public");
    place.tmp.dir("dst/pub/x");
    let inside = inside(&place);
    for (kind, frame) in some_messages(state) {
        let title = format!("{} in {state:?}", name(kind).unwrap_or("?"));
        let ((), outcome) = place.serve(&title, &["--root", "DST"], |w| {
            assert!(w.hello());
            w.say(&Message::Streams { count: 1 });
            let token = w.until(kind::TOKEN).expect("a token");
            let Message::Token { secret, path } = token.message() else { panic!() };
            place.serve("further", &["--root", "DST"], |other| {
                assert!(other.hello());
                other.say(&Message::Join { secret, path, index: 1 });
                assert_eq!(other.hear().map(|said| said.kind), Some(kind::OK));
                start(w);
                w.polite = true;
                other.bytes(&frame);
                let told = w.until(kind::ERROR).is_some_and(|said| said.tells_of(kind));
                assert!(told, "{title}: the client is not told");
                w.close();
                w.hold();
                other.close();
                other.hold();
            });
        });
        assert_eq!(outcome.code, PROTOCOL, "{title}: {}", outcome.said());
    }
    assert_eq!(inside, self::inside(&place), "{state:?}: something in the root has changed");
}

#[test]
fn further_streams_of_a_server_take_only_content() {
    server_beside(State::ReceivesBeside, |w| {
        w.say(&put(b"pub"));
        w.say(&operand(1, dir(b"x")));
        assert!(w.until(kind::DIR_IS).is_some());
    });
    server_beside(State::SendsBeside, |w| {
        w.say(&get(b"pub"));
        assert!(w.until(kind::OPERAND).is_some());
    });
}

// ---- the client ----

/// A client that was started with `args`, brought to `state` on the stream that `reach` gives back (`None`: the first), for
/// each forbidden message.
fn client_at(state: State, args: &[&str], reach: impl Fn(&mut Wire) -> Option<Wire> + Sync) {
    let place = Place::new();
    place.tmp.file("src/f", "mine");
    place.tmp.file("src/g", "mine");
    // Of those that are no answer an ordinary run tries a sixth, other ones for each question; with these
    // remainders each is tried with one that it is no answer to. In a transfer it tries all that belong to the
    // other direction, and of the rest half here and half there.
    let is_tried = |kind: u8| match state {
        State::Waits(answer) => in_slice(usize::from(kind) + answer as usize + 3, 6),
        State::ClientNew => in_slice(usize::from(kind), 3),
        State::Receives => State::Sends.allows(kind) || in_slice(usize::from(kind), 2),
        State::Sends => State::Receives.allows(kind) || in_slice(usize::from(kind) + 1, 2),
        _ => true,
    };
    // Further streams take several programs for each message.
    let tried: Vec<_> = match state {
        State::ReceivesBeside | State::SendsBeside => some_messages(state).collect(),
        _ => messages().into_iter().filter(|(kind, _)| !state.allows(*kind) && is_tried(*kind)).collect(),
    };
    for (kind, frame) in tried {
        let title = format!("{} in {state:?}", name(kind).unwrap_or("?"));
        let outcome = place.attack(&title, args, |w| {
            let mut other = reach(w);
            w.polite = true;
            other.as_mut().unwrap_or(w).bytes(&frame);
            w.hold();
            if let Some(other) = &mut other {
                other.close();
                other.hold();
            }
        });
        let said = outcome.failed().said();
        assert!(said.contains(&breach(kind, state)), "{title}: {said}");
        assert!(crate::common::names(&place.dst()).iter().all(|name| name == "x"), "{title}");
        assert!(!place.dst().join("x/made").exists(), "{title}");
    }
}

#[test]
fn a_client_takes_the_answer_to_its_question_and_no_other() {
    client_at(State::ClientNew, &["stat", "host:x"], |w| {
        w.until(kind::HELLO);
        None
    });
    let asked = |kind| {
        move |w: &mut Wire| {
            w.greet();
            assert!(w.until(kind).is_some());
            None
        }
    };
    client_at(State::Waits(Answer::Info), &["stat", "host:x"], asked(kind::STAT));
    client_at(State::Waits(Answer::Pages), &["ls", "host:x"], asked(kind::LIST));
    client_at(State::Waits(Answer::Ok), &["hash", "host:x"], asked(kind::HASH));
    client_at(State::Waits(Answer::Used), &["du", "host:x"], asked(kind::USAGE));
    client_at(State::Waits(Answer::Undone), &["undo", "host:x"], |w| {
        w.greet_with(Features { wide: ALL.wide | wide::UNDO, ..ALL });
        assert!(w.until(kind::UNDO).is_some());
        None
    });
    let two = &["copy", "-r", "--parallel", "2", "host:x", "DST"];
    client_at(State::Waits(Answer::Token), two, asked(kind::STREAMS));
    client_at(State::Waits(Answer::Rendezvous), &["copy", "-r", "--direct", "host:x", "DST"], |w| {
        w.greet_with(Features { caps: ALL.caps | caps::DIRECT | caps::AEAD, ..ALL });
        assert!(w.until(kind::STAT).is_some());
        w.say(&Message::Info(file(b"x", 1)));
        assert!(w.until(kind::DIRECT).is_some());
        None
    });
}

/// Brings up the second stream of a client that asks for one.
fn further(w: &mut Wire) -> Wire {
    w.greet();
    assert!(w.until(kind::STREAMS).is_some());
    w.say(&Message::Token { secret: [5; 32], path: b"/nowhere/bcmr" });
    let mut other = w.another().expect("a further connection");
    other.greet();
    assert!(other.until(kind::JOIN).is_some());
    other.say(&Message::Ok { hash: None });
    other
}

#[test]
fn a_client_in_a_transfer_takes_only_what_the_other_half_sends() {
    client_at(State::Receives, &["copy", "-r", "host:x", "DST"], |w| {
        w.transfer();
        w.say(&operand(1, dir(b"x")));
        w.until(kind::DIR_IS);
        None
    });
    client_at(State::Sends, &["copy", "-r", "src", "host:x"], |w| {
        w.transfer();
        assert!(w.until(kind::OPERAND).is_some());
        None
    });
}

#[test]
fn further_streams_of_a_client_take_only_content() {
    client_at(State::ReceivesBeside, &["copy", "-r", "--parallel", "2", "host:x", "DST"], |w| {
        let other = further(w);
        assert!(w.until(kind::GET).is_some());
        w.say(&operand(1, dir(b"x")));
        w.until(kind::DIR_IS);
        Some(other)
    });
    client_at(State::SendsBeside, &["copy", "-r", "--parallel", "2", "src", "host:x"], |w| {
        let other = further(w);
        assert!(w.until(kind::OPERAND).is_some());
        Some(other)
    });
}

/// Everything has come and was counted: what comes then in the place of the last message changes nothing any more.
#[test]
fn what_comes_behind_the_summary_changes_nothing() {
    for (kind, frame) in messages() {
        if State::ReceiveEnded.allows(kind) {
            continue;
        }
        let place = Place::new();
        let outcome = place.attack(name(kind).unwrap_or("?"), &["copy", "-r", "host:x", "DST"], |w| {
            w.transfer();
            w.say(&operand(1, dir(b"x")));
            w.say(&Message::DirEnd { dir: 1, partial: false });
            w.say(&Message::AllSent);
            assert!(w.until(kind::SUMMARY).is_some());
            w.bytes(&frame);
        });
        outcome.ok();
        assert!(crate::common::names(&place.dst().join("x")).is_empty());
    }
}
