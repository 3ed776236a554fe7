//! A server that a plan's source is on, and that does or sends something else than what was asked of it.

use super::peer::*;
use bcmr_engine::error::Code;
use bcmr_wire::handshake::{Features, wide};
use bcmr_wire::message::{Codec, Entry, Message, Piece, Trouble, data, kind};

const PLAN: &[&str] = &["plan", "host:base", "DST/x", "--out", "DST/p", "--shards", "1"];
const SHARD: &[&str] = &["shard", "DST/p", "0"];
const FINISH: &[&str] = &["finish", "DST/p"];

/// One that knows nothing of plans.
const OLDER: Features = Features { wide: ALL.wide & !wide::PLANS, ..ALL };

/// The first transfer, which is about the source itself.
fn top(w: &mut Wire) {
    w.greet_with(OLDER);
    w.asked();
    w.say(&of_list());
    w.say(&Message::DirEnd { dir: 1, partial: true });
    w.all_sent();
    w.asked();
}

fn of_list() -> Message<'static> {
    Message::Operand { path: b"base", whole: true, origin: 7, dir: 1, entry: dir(b"-") }
}

fn f() -> Entry<'static> {
    file(b"f", 3)
}

fn content(bytes: &[u8]) -> Vec<u8> {
    contents(&[bytes])
}

/// A shard's transfer: one file and its content.
fn sends(w: &mut Wire, entry: Entry<'_>, packed: &[u8]) {
    w.say(&of_list());
    w.say(&on_offer(1, 1, vec![entry]));
    w.until(kind::WANTS);
    w.say(&Message::Contents { batch: 1, codec: Codec::Raw, bytes: packed });
    w.until(kind::WANTS);
    w.say(&Message::DirEnd { dir: 1, partial: true });
    w.all_sent();
}

fn honest_plan(w: &mut Wire) {
    top(w);
    w.say(&Message::Operand { path: b"base/.", whole: true, origin: 7, dir: 1, entry: dir(b"-") });
    w.say(&on_offer(1, 1, vec![f()]));
    w.say(&Message::DirEnd { dir: 1, partial: false });
    w.all_sent();
}

fn planned() -> Place {
    let place = Place::new();
    place.run("plan", PLAN, honest_plan).ok();
    place
}

/// Of a server that says more than names there is no plan.
#[test]
fn a_plan_is_made_of_names_alone() {
    type Script = fn(&mut Wire);
    let scripts: [(&str, Script); 4] = [
        ("contents along with names", |w| {
            w.say(&files(1, 1, vec![f()], &content(b"abc")));
        }),
        ("contents that nobody wants", |w| {
            w.say(&on_offer(1, 1, vec![f()]));
            w.say(&Message::Contents { batch: 1, codec: Codec::Raw, bytes: &content(b"abc") });
        }),
        ("a piece of a large file", |w| {
            w.say(&Message::Large { file: 1, dir: 1, entry: file(b"large", 2 << 20) });
            let (at, length, bytes) = (0, 1 << 20, &b""[..]);
            let (flags, codec) = (data::ZEROS, Codec::Raw);
            w.say(&Message::Data(Piece { file: 1, at, flags, cv: None, codec, length, bytes }));
        }),
        ("an end before the end", |w| {
            w.close();
        }),
    ];
    for (name, script) in scripts {
        let place = Place::new();
        let outcome = place.attack(name, PLAN, |w| {
            top(w);
            w.say(&Message::Operand { path: b"base/.", whole: true, origin: 7, dir: 1, entry: dir(b"-") });
            script(w);
            w.hold();
        });
        outcome.failed();
        assert!(!place.dst().join("p/plan").exists(), "{name}");
    }
}

/// A shard records what was asked for, is what the plan says and has the hash that came with it; nothing else.
#[test]
fn a_shard_believes_no_more_than_it_can_compare() {
    type Script = fn(&mut Wire);
    let scripts: [(&str, Script); 5] = [
        ("another version", |w| sends(w, Entry { ino: f().ino + 1, ..f() }, &content(b"abc"))),
        ("another name", |w| {
            w.say(&of_list());
            w.say(&on_offer(1, 1, vec![file(b"g", 3)]));
            w.hold();
        }),
        ("a hash of something else", |w| {
            let mut packed = Vec::new();
            let hash = blake3::hash(b"abd");
            bcmr_wire::contents::push_content(&mut packed, b"abc", Some(hash.as_bytes()));
            sends(w, f(), &packed);
        }),
        ("nothing of it", |w| {
            w.say(&of_list());
            w.say(&Message::DirEnd { dir: 1, partial: true });
            w.all_sent();
        }),
        ("a link in its place", |w| {
            w.say(&of_list());
            w.say(&on_offer(1, 1, vec![link(b"f", b"/etc/passwd")]));
            w.until(kind::WANTS);
            w.say(&Message::DirEnd { dir: 1, partial: true });
            w.all_sent();
        }),
    ];
    for (name, script) in scripts {
        let place = planned();
        let outcome = place.run(name, SHARD, |w| {
            top(w);
            script(w);
        });
        outcome.fair().failed();
        assert!(!place.dst().join("p/results/0").exists(), "{name}: it was recorded");
        assert!(!place.dst().join("x").exists(), "{name}");
    }
}

/// The twin: an older server that does what it is asked for. In the end it is asked once more, and says something else.
#[test]
fn an_older_server_that_is_honest_is_enough() {
    let place = planned();
    place.run("shard", SHARD, |w| {
        top(w);
        sends(w, f(), &content(b"abc"));
    });
    type Script = fn(&mut Wire);
    let ends: [(&str, Script, bool); 3] = [
        (
            "a directory by now",
            |w| {
                w.say(&subdir(2, 1, b"f"));
                w.say(&Message::DirEnd { dir: 2, partial: false });
            },
            false,
        ),
        ("not there any more", |_| {}, false),
        ("as it was", |w| assert!(w.say(&on_offer(1, 1, vec![f()]))), true),
    ];
    for (name, script, is_whole) in ends {
        let outcome = place.run(name, FINISH, |w| {
            top(w);
            w.say(&of_list());
            script(w);
            w.say(&Message::DirEnd { dir: 1, partial: true });
            w.all_sent();
        });
        assert_eq!(outcome.code == 0, is_whole, "{name}: {}", outcome.said());
        assert_eq!(place.dst().join("x").exists(), is_whole, "{name}: {}", outcome.said());
    }
    assert_eq!(std::fs::read(place.dst().join("x/f")).unwrap(), b"abc");
}

/// A directory that a sync in shards has filled, and a name in it that the source did not have when it was planned.
fn synced() -> Place {
    let place = Place::new();
    let plan = [&["plan", "--verb", "sync", "--delete", "--max-delete", "9"], &PLAN[1..]].concat();
    place.run("plan", &plan, honest_plan).ok();
    place.run("shard", SHARD, |w| {
        top(w);
        sends(w, f(), &content(b"abc"));
    });
    place.tmp.file("dst/x/own", "only there");
    place
}

/// Says of the source itself what it is, once more.
fn itself(w: &mut Wire) {
    w.say(&of_list());
    w.say(&Message::DirEnd { dir: 1, partial: true });
    w.all_sent();
    w.asked();
}

/// M2: a name goes only where the source was asked for it, and has said that it is not there.
#[test]
fn a_name_goes_by_an_answer_alone() {
    type Script = fn(&mut Wire);
    let trouble =
        |code: Code| Trouble { code: code.number(), op: 1, path: b"base/own", ..Default::default() };
    let absent = Message::Trouble(trouble(Code::NotFound));
    let denied = Message::Trouble(trouble(Code::Denied));
    type Answer<'s> = &'s (dyn Fn(&mut Wire) + Sync);
    let scripts: [(&str, Answer<'_>, bool, bool); 8] = [
        ("nothing is said of it", &|w| assert!(w.say(&of_list())), false, false),
        (
            "it cannot be looked at",
            &|w| {
                w.say(&of_list());
                w.say(&denied);
            },
            false,
            false,
        ),
        (
            "of another directory",
            &|w| {
                let entry = Entry { ino: 99, ..dir(b"-") };
                w.say(&Message::Operand { path: b"base", whole: true, origin: 7, dir: 1, entry });
                w.say(&absent);
            },
            false,
            false,
        ),
        (
            "a name that was not asked for",
            &|w| {
                w.say(&of_list());
                w.say(&on_offer(1, 1, vec![file(b"g", 1)]));
            },
            false,
            false,
        ),
        ("an end before the end", &|w| w.close(), false, false),
        (
            "it is there",
            &|w| {
                w.say(&of_list());
                w.say(&on_offer(1, 1, vec![file(b"own", 1)]));
            },
            true,
            false,
        ),
        (
            "it is a directory",
            &|w| {
                w.say(&of_list());
                w.say(&subdir(2, 1, b"own"));
                w.say(&Message::DirEnd { dir: 2, partial: false });
            },
            true,
            false,
        ),
        (
            "it is not there",
            &|w| {
                w.say(&of_list());
                w.say(&absent);
            },
            true,
            true,
        ),
    ];
    let looked: Script = |w| {
        top(w);
        itself(w);
        w.say(&of_list());
        w.say(&on_offer(1, 1, vec![f()]));
        w.say(&Message::DirEnd { dir: 1, partial: true });
        w.all_sent();
        w.asked();
        itself(w);
    };
    for (name, script, ends, goes) in scripts {
        let place = synced();
        let outcome = place.run(name, FINISH, |w| {
            looked(w);
            script(w);
            w.say(&Message::DirEnd { dir: 1, partial: true });
            w.all_sent();
        });
        assert_eq!(outcome.code == 0, ends, "{name}: {}", outcome.said());
        assert_eq!(place.dst().join("x/own").exists(), !goes, "{name}: {}", outcome.said());
        assert!(place.dst().join("x/f").exists(), "{name}");
    }
}

/// The source itself, and what is never removed: the root, and the directory that the server is in.
fn guarded(w: &mut Wire, ids: &[u64]) {
    w.greet_with(OLDER);
    w.asked();
    w.say(&of_list());
    w.say(&Message::DirEnd { dir: 1, partial: true });
    w.all_sent();
    for ino in ids {
        match w.hear() {
            Some(said) if said.kind == kind::STAT => w.say(&Message::Info(Entry { ino: *ino, ..dir(b"x") })),
            _ => return,
        };
    }
    w.asked();
}

/// The source, the root, and two directories, of which the upper one is above all.
const APART: [u64; 5] = [4, 1000, 1001, 1002, 1002];

/// A plan of a removal of a directory with these in it.
fn removal(place: &Place, entries: &[Entry<'_>]) {
    let plan = ["plan", "--verb", "remove", "host:base", "--out", "DST/p", "--shards", "1"];
    let planned = place.run("plan", &plan, |w| {
        // And that it is no link to one.
        guarded(w, &[&APART[..], &[4]].concat());
        w.say(&Message::Operand { path: b"base/.", whole: true, origin: 7, dir: 1, entry: dir(b"-") });
        w.say(&on_offer(1, 1, entries.to_vec()));
        w.say(&Message::DirEnd { dir: 1, partial: false });
        w.all_sent();
    });
    planned.ok();
}

/// A server may say the end of a directory that was refused before it hears so: while it is asked what else goes. Of any other
/// directory that is an answer to nothing.
#[test]
fn the_end_of_a_refused_directory_may_come_late() {
    for (name, late, is_heard) in
        [("the refused one", 2, true), ("one that has ended", 1, false), ("one that never was", 3, false)]
    {
        let place = Place::new();
        removal(&place, &[f(), Entry { name: b"g", ino: 78, ..f() }]);
        let outcome = place.run(name, SHARD, |w| {
            guarded(w, &APART);
            w.say(&of_list());
            w.say(&on_offer(1, 1, vec![f()]));
            // What was a file is a directory now.
            w.say(&subdir(2, 1, b"g"));
            w.until(kind::DIR_IS);
            w.say(&Message::DirEnd { dir: 1, partial: true });
            w.say(&Message::AllSent);
            assert!(w.until(kind::TAKE_AWAY).is_some(), "{name}");
            w.say(&Message::LeftOut { dir: late, names: vec![b"x"] });
            w.say(&Message::DirEnd { dir: late, partial: false });
            w.say(&Message::TookAway { left: 0 });
            assert_eq!(w.until(kind::SUMMARY).is_some(), is_heard, "{name}");
            w.say(&Message::Done);
        });
        outcome.failed();
        assert!(!place.dst().join("p/results/0").exists(), "{name}");
    }
}

/// A removal has taken away what is told as it was planned, and counts what was answered; nothing else.
#[test]
fn a_removal_asks_for_what_was_planned() {
    type Script = fn(&mut Wire);
    fn offers(w: &mut Wire, entry: Entry<'_>) {
        w.say(&of_list());
        w.say(&on_offer(1, 1, vec![entry]));
        w.until(kind::WANTS);
        w.say(&Message::DirEnd { dir: 1, partial: true });
    }
    fn ends_unasked(w: &mut Wire) {
        w.say(&Message::AllSent);
        while let Some(said) = w.hear() {
            assert_ne!(said.kind, kind::TAKE_AWAY, "of what was not planned");
            if said.kind == kind::SUMMARY {
                break;
            }
        }
        w.say(&Message::Done);
    }
    let scripts: [(&str, Script, bool); 6] = [
        (
            "another version",
            |w| {
                offers(w, Entry { size: 4, ..f() });
                ends_unasked(w);
            },
            false,
        ),
        (
            "another file",
            |w| {
                offers(w, Entry { ino: 77, ..f() });
                ends_unasked(w);
            },
            false,
        ),
        (
            "an answer before the question",
            |w| {
                w.say(&of_list());
                w.say(&Message::TookAway { left: 0 });
                w.hold();
            },
            false,
        ),
        (
            "no answer",
            |w| {
                offers(w, f());
                w.say(&Message::AllSent);
                w.until(kind::TAKE_AWAY);
                w.close();
            },
            false,
        ),
        (
            "it could not",
            |w| {
                offers(w, f());
                w.say(&Message::AllSent);
                w.until(kind::TAKE_AWAY);
                let code = Code::Denied.number();
                w.say(&Message::Trouble(Trouble { code, op: 1, path: b"base/f", ..Default::default() }));
                w.say(&Message::TookAway { left: 1 });
                w.until(kind::SUMMARY);
                w.say(&Message::Done);
            },
            false,
        ),
        (
            "it is gone",
            |w| {
                offers(w, f());
                w.say(&Message::AllSent);
                let Some(said) = w.until(kind::TAKE_AWAY) else { panic!("nothing was to be taken away") };
                let Message::TakeAway { dir: 1, names } = said.message() else {
                    panic!("of another directory")
                };
                assert!(matches!(names.as_slice(), [one] if one.name == b"f" && one.ino == f().ino));
                w.say(&Message::TookAway { left: 0 });
                w.until(kind::SUMMARY);
                w.say(&Message::Done);
            },
            true,
        ),
    ];
    for (name, script, is_gone) in scripts {
        let place = Place::new();
        removal(&place, &[f()]);
        let outcome = place.run(name, SHARD, |w| {
            guarded(w, &APART);
            script(w);
        });
        assert_eq!(outcome.code == 0, is_gone, "{name}: {}", outcome.said());
        assert_eq!(place.dst().join("p/results/0").exists(), is_gone, "{name}: {}", outcome.said());
    }
    // What is never removed has no plan.
    for (ids, why) in [
        ([4, 4, 1001, 1002, 1002], "the root"),
        ([4, 1000, 4, 1002, 1002], "the directory that it is in"),
        ([4, 1000, 1001, 4, 1002], "what holds that"),
    ] {
        let place = Place::new();
        let plan = ["plan", "--verb", "remove", "host:base", "--out", "DST/p"];
        let outcome = place.run(why, &plan, |w| guarded(w, &ids));
        outcome.fair().failed();
        assert!(!place.dst().join("p").exists(), "{why}");
    }
}
