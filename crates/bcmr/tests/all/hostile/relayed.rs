//! A malicious source of a copy between two other machines: the user is at neither, and answers to the destination alone.

use super::peer::*;
use bcmr_wire::message::{DirState, Message, kind};

/// Plays both, of a copy that asks before it replaces: the source sends `x`, and then it is what `then` makes of it. Returns
/// what the destination heard, by kind.
fn relayed(what: &str, then: impl FnOnce(&mut Wire, &mut Wire) + Send) -> (Vec<u8>, Outcome) {
    let place = Place::new();
    let mut heard = Vec::new();
    let outcome = place.run(what, &["copy", "-i", "host:x", "two:y"], |source| {
        source.greet();
        let mut dest = source.another().unwrap();
        dest.greet();
        dest.asked().unwrap();
        source.asked().unwrap();
        source.say(&operand(1, file(b"x", 3)));
        assert!(dest.until(kind::OPERAND).is_some());
        then(source, &mut dest);
        while let Some(said) = dest.hear() {
            heard.push(said.kind);
            dest.ends(&said.message(), [0; 7]);
        }
    });
    (heard, outcome.fair())
}

/// It answers for the user, or says what only a client or a destination may.
#[test]
fn what_a_source_must_not_say() {
    let hostile = [
        ("an answer", Message::Answer { id: 1, yes: true }),
        ("a request", Message::Undo { path: b"receipt", flags: 0 }),
        ("what a destination says", Message::Wants { batch: 1, entries: vec![0] }),
    ];
    for (what, message) in hostile {
        let (heard, outcome) = relayed(what, |source, _| {
            source.say(&message);
        });
        outcome.failed();
        assert!(heard.is_empty(), "{what}: {heard:?}");
    }
    // The twin: what the destination asks is answered here, where nobody says yes.
    let (heard, outcome) = relayed("honest", |source, dest| {
        dest.say(&Message::Ask { id: 1, path: b"y" });
        let answer = dest.until(kind::ANSWER).unwrap();
        assert_eq!(answer.message(), Message::Answer { id: 1, yes: false });
        dest.say(&Message::DirIs { dir: 1, state: DirState::Refused });
        source.say(&Message::AllSent);
    });
    outcome.ok();
    assert_eq!(heard, [kind::ALL_SENT, kind::DONE]);
}
