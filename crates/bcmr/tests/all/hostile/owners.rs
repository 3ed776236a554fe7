//! Malicious peers about names of owners: names that were not agreed on, names that are none, and too many of them.

use super::peer::*;
use super::server::file_end;
use bcmr_wire::handshake::{self, Features, wide};
use bcmr_wire::limits::OWNERS_MAX;
use bcmr_wire::message::{Message, Owner, Target, kind};
use bcmr_wire::policy::flags;

const GET: &[&str] = &["copy", "-r", "--archive", "host:x", "DST"];

fn ours() -> Features {
    ALL.or(Features { caps: 0, wide: wide::NAMES })
}

fn named(id: u32, name: &[u8]) -> Message<'_> {
    Message::Owner { of: Owner::User, id, name }
}

/// A tree with one file, and what `tells` says of owners before it.
fn sends(w: &mut Wire, tells: impl FnOnce(&mut Wire)) {
    w.asked();
    tells(w);
    w.say(&operand(1, dir(b"x")));
    w.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc"])));
    w.say(&Message::DirEnd { dir: 1, partial: false });
    w.all_sent();
}

#[test]
fn a_server_that_tells_names() {
    let told: &[(&str, &[u8])] =
        &[("a name", b"daemon"), ("nobody's name", b"who is that"), ("noise", b"\x1b[2J\xff\n")];
    for (what, name) in told {
        let place = Place::new();
        let done = place.attack(what, GET, |w| {
            w.greet_with(ours());
            sends(w, |w| {
                w.say(&named(1000, name));
                // Another word for the same one changes nothing.
                w.say(&named(1000, b"root"));
            });
        });
        // A user who is not root may not give files away, which an archive tells.
        done.fair();
        assert_eq!(std::fs::read(place.dst().join("x/f")).unwrap(), b"abc", "{what}");
    }
    let place = Place::new();
    let silent = place.attack("names that were not agreed on", GET, |w| {
        w.greet();
        sends(w, |w| {
            w.say(&named(1000, b"daemon"));
        });
    });
    silent.failed();
    assert!(!place.dst().join("x").exists());
    let numbers: Vec<&str> = GET.iter().copied().chain(["--numeric-ids"]).collect();
    let place = Place::new();
    place
        .attack("names where numbers were asked for", &numbers, |w| {
            let hello = w.hear().unwrap();
            let Message::Hello(hello) = hello.message() else { panic!("no Hello") };
            assert!(!Features::of(&hello).has_wide(wide::NAMES), "it was offered");
            w.close();
        })
        .failed();
    let place = Place::new();
    place
        .attack("too many", GET, |w| {
            w.greet_with(ours());
            sends(w, |w| {
                let mut all = Vec::new();
                for id in 1..=OWNERS_MAX as u32 + 1 {
                    named(id, b"x").encode(&mut all).unwrap();
                }
                // The last ones may find nobody.
                w.bytes(&all);
            });
        })
        .failed();
}

/// A server that is shut in knows nobody: whom its machine knows is no affair of its clients.
#[test]
fn a_client_that_tells_names_to_a_server_with_a_root() {
    let place = Place::new();
    place.besiege("a client", &["--root", "DST"], |w| {
        w.say(&Message::Hello(handshake::hello(ours(), [8; 32], b"peer", None)));
        let welcome = w.until(kind::WELCOME).unwrap();
        let Message::Welcome(welcome) = welcome.message() else { panic!("no Welcome") };
        assert!(!Features::of(&welcome).has_wide(wide::NAMES));
        let policy = policy(flags::KEEP_OWNER);
        w.say(&Message::Put { policy, target: Target::Guess, path: b"new", operands: 1, items: false });
        w.say(&operand(1, file(b"new", 3)));
        w.say(&named(1000, b"daemon"));
        w.say(&file_end(1));
        assert!(w.until(kind::ERROR).is_some());
        w.say(&Message::Done);
    });
    assert!(!place.dst().join("new").exists());
}
