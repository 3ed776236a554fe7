//! A malicious server to a client that syncs from it, and a malicious client to a server: nothing is deleted that the
//! receiver's own policy does not allow, nor anywhere else.

use super::peer::*;
use crate::common::*;
use bcmr_wire::handshake::{Features, wide};
use bcmr_wire::message::{Message, Target, kind};
use bcmr_wire::policy::flags;

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

/// The same, with what only the client has going first.
const FIRST: &[&str] = &["sync", "--delete=before", "--retries=0", "host:x", "DST/d"];

/// In a look at whose end something goes a server can do no more: nothing lands, and what was not all named keeps all there is.
#[test]
fn a_look_that_deletes_believes_no_more() {
    for what in
        ["nothing", "partial", "cut", "trouble", "contents", "a new directory with contents", "honest"]
    {
        let place = Place::new();
        world(&place, 5);
        let outcome = place.attack(what, FIRST, |w| {
            w.transfer();
            w.say(&whole(1));
            match what {
                "nothing" => {}
                "contents" => {
                    w.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc"])));
                }
                "a new directory with contents" => {
                    w.say(&subdir(2, 1, b"new"));
                    w.say(&files(1, 2, vec![file(b"f", 3)], &contents(&[b"abc"])));
                }
                _ => {
                    w.say(&on_offer(1, 1, vec![file(b"f", 3)]));
                }
            }
            if what == "trouble" {
                let note = bcmr_wire::message::Note::default();
                let trouble = bcmr_wire::message::Trouble { code: 2, op: 1, path: b"x/g", note, errno: 13 };
                w.say(&Message::Trouble(trouble));
            }
            w.say(&Message::DirEnd { dir: 1, partial: what == "partial" });
            if what == "cut" {
                return;
            }
            w.all_sent();
            // The rest.
            if w.next_connection() {
                w.transfer();
                w.say(&whole(1));
                w.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc"])));
                w.say(&Message::DirEnd { dir: 1, partial: false });
                w.all_sent();
            }
        });
        let goes = what == "honest";
        assert_eq!(outcome.code == 0, goes || what == "partial", "{what}: {}", outcome.said());
        assert_eq!(place.dst().join("d/sub").exists(), !goes, "{what}: {}", outcome.said());
        assert_eq!(std::fs::read(place.dst().join("beside")).unwrap(), b"beside");
        assert!(!place.dst().join("d/new").exists(), "{what}");
    }
}

/// A bcmr there that does not know that something may go first is not asked, and nothing has changed by then.
#[test]
fn an_older_server_deletes_nothing_first() {
    let older = Features { wide: ALL.wide & !wide::FIRST | wide::COMPARED | wide::PLANNED, ..ALL };
    let place = Place::new();
    place.tmp.file("dst/s/f", "abc");
    let outcome = place.run("older", &["sync", "--delete=before", "--retries=0", "DST/s", "host:x"], |w| {
        w.greet_with(older);
        while let Some(said) = w.hear() {
            assert_ne!(said.kind, kind::PUT, "it is asked");
        }
    });
    let outcome = outcome.fair().failed();
    assert!(outcome.said().contains("first"), "{}", outcome.said());
    // Nor is one that holds no ACLs asked to give any back, or to hold some.
    let older = Features { wide: ALL.wide & !wide::HELD_ACLS, ..ALL };
    for [src, dst, flag] in [["host:x", "DST/d", "--fake-super=src"], ["DST/s", "host:x", "--fake-super"]] {
        let outcome = place.run("older", &["sync", flag, "--retries=0", src, dst], |w| {
            w.greet_with(older);
            while let Some(said) = w.hear() {
                assert!(![kind::PUT, kind::GET].contains(&said.kind), "it is asked");
            }
        });
        let outcome = outcome.fair().failed();
        assert!(outcome.said().contains("held-acls"), "{flag}: {}", outcome.said());
    }
}

/// A client's look that deletes, of `x`: what it says in it is up to `script`. How much the server says has failed; `None`: it has refused all of it.
fn look(
    w: &mut Wire,
    more: u64,
    target: Target,
    operands: u64,
    script: impl FnOnce(&mut Wire),
) -> Option<u64> {
    assert!(w.hello());
    let how = flags::RECURSIVE | flags::DRY_RUN | flags::COMPARE | flags::EXTRA | flags::QUICK;
    let policy = policy(how | flags::MIRROR_DELETE | flags::DELETE_FIRST | more);
    w.say(&Message::Put { policy, target, path: b"x", operands, items: false });
    script(w);
    w.say(&Message::AllSent);
    while let Some(said) = w.hear() {
        match said.message() {
            Message::Summary { counts, .. } => {
                w.say(&Message::Done);
                return Some(counts[5]);
            }
            Message::Error(_) => return None,
            _ => {}
        }
    }
    None
}

/// A client has nothing deleted that a mirror would not: not where nothing may be changed, not beside DST, and not for
/// names that are not all that there is. The twin is allowed.
#[test]
fn a_client_has_no_more_deleted_first() {
    let names_one = |w: &mut Wire| {
        w.say(&whole(1));
        w.say(&on_offer(1, 1, vec![file(b"f", 3)]));
        w.say(&Message::DirEnd { dir: 1, partial: false });
    };
    let names_none = |w: &mut Wire| {
        w.say(&whole(1));
        w.say(&Message::DirEnd { dir: 1, partial: false });
    };
    let beside = |w: &mut Wire| {
        w.say(&operand(1, dir(b"sub")));
        w.say(&Message::DirEnd { dir: 1, partial: false });
    };
    let root: &[&str] = &["--root", "DST"];
    let read_only: &[&str] = &["--root", "DST", "--read-only"];
    type Script<'a> = &'a (dyn Fn(&mut Wire) + Sync);
    type Row<'a> = (&'a str, &'a [&'a str], Target, u64, Script<'a>, bool);
    let table: [Row<'_>; 5] = [
        ("read-only", read_only, Target::Exactly, 1, &names_one, false),
        ("names of a list", root, Target::Exactly, 0, &names_one, false),
        ("an empty source", root, Target::Exactly, 1, &names_none, false),
        ("an operand of its own", root, Target::Into, 1, &beside, false),
        ("honest", root, Target::Exactly, 1, &names_one, true),
    ];
    for (what, args, target, operands, script, goes) in table {
        let place = Place::new();
        for name in ["x/sub/old", "x/f", "sub/own", "old"] {
            place.tmp.file(format!("dst/{name}"), "old");
        }
        std::os::unix::fs::symlink("../../outside", place.dst().join("x/away")).unwrap();
        let before = place.around();
        let (fine, _) = place.serve(what, args, |w| look(w, 0, target, operands, script));
        assert_eq!(before, place.around(), "{what}: something outside the root has changed");
        assert_eq!(place.dst().join("x/sub/old").exists(), !goes, "{what}");
        assert!(!goes || fine == Some(0) && names(&place.dst().join("x")) == ["f"], "{what}: {fine:?}");
        assert!(what != "read-only" || fine.is_none(), "{what}: {fine:?}");
        assert!(place.dst().join("sub/own").exists() && place.dst().join("old").exists(), "{what}");
    }
}
