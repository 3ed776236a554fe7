//! A malicious server to a client that syncs from it, and a malicious client to a server: nothing is deleted that the
//! receiver's own policy does not allow, nor anywhere else.

use super::peer::*;
use crate::common::*;
use bcmr_wire::message::Message;

/// Without another attempt, which an attacker would answer alike.
const SYNC: &[&str] = &["sync", "--delete", "--retries=0", "host:x", "DST/d"];

/// The contents of a directory as an operand without a name of its own.
fn whole(id: u64) -> Message<'static> {
    Message::Operand { path: b"x/.", whole: true, origin: 7, dir: id, entry: dir(b"-") }
}

fn world(place: &Place, old: usize) {
    let dst = place.dst();
    std::fs::create_dir_all(dst.join("d/sub")).unwrap();
    for n in 0..old {
        std::fs::write(dst.join(format!("d/sub/{n}")), "old").unwrap();
    }
    std::fs::write(dst.join("beside"), "beside").unwrap();
}

/// One that says that it has named everything and has named nothing, or hardly anything.
#[test]
fn a_server_that_names_nothing_empties_nothing() {
    for (what, old, named) in [("nothing", 5, false), ("next to nothing", 300, true)] {
        let place = Place::new();
        world(&place, old);
        let outcome = place.attack(what, SYNC, |w| {
            w.transfer();
            w.say(&whole(1));
            if named {
                w.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc"])));
            }
            w.say(&Message::DirEnd { dir: 1, partial: false });
            w.all_sent();
        });
        outcome.failed();
        assert_eq!(names(&place.dst().join("d/sub")).len(), old, "{what}");
        assert_eq!(std::fs::read(place.dst().join("beside")).unwrap(), b"beside");
    }
}

/// One that says of a directory that not all of it came, that breaks off, or that tells of a trouble.
#[test]
fn what_is_not_whole_deletes_nothing() {
    for what in ["partial", "cut", "no end", "trouble"] {
        let place = Place::new();
        world(&place, 5);
        let _outcome = place.attack(what, SYNC, |w| {
            w.transfer();
            w.say(&whole(1));
            w.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc"])));
            if what == "trouble" {
                let note = bcmr_wire::message::Note::default();
                w.say(&Message::Trouble(bcmr_wire::message::Trouble {
                    code: 2,
                    op: 1,
                    path: b"x/g",
                    note,
                    errno: 13,
                }));
            }
            if what != "no end" {
                w.say(&Message::DirEnd { dir: 1, partial: what == "partial" });
            }
            if what != "cut" {
                w.all_sent();
            }
        });
        assert_eq!(names(&place.dst().join("d/sub")).len(), 5, "{what}");
    }
}

/// Without --delete no server makes a client delete; the twin with it does.
#[test]
fn nothing_is_deleted_that_the_policy_does_not_say() {
    for (flags, goes) in [(&["sync", "host:x", "DST/d"][..], false), (SYNC, true)] {
        let place = Place::new();
        world(&place, 5);
        let outcome = place.attack("a plain tree", flags, |w| {
            w.transfer();
            w.say(&whole(1));
            w.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc"])));
            w.say(&Message::DirEnd { dir: 1, partial: false });
            w.all_sent();
        });
        outcome.ok();
        assert_eq!(place.dst().join("d/sub").exists(), !goes);
        assert_eq!(names(&place.dst()), ["beside", "d"]);
    }
}
