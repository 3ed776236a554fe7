//! Comparisons of names that a plan knows: a client that says their directories where they mean nothing, and a server that tells
//! what was not asked, or is too old.

use super::peer::*;
use crate::common::*;
use bcmr_engine::error::Reason;
use bcmr_wire::handshake::{self, Features, wide};
use bcmr_wire::message::{DirState, Event, Keeping, Message, OldThings, Target, kind};
use bcmr_wire::policy::flags;
use std::os::unix::fs::symlink;

const ROOT: &[&str] = &["--root", "DST", "--read-only"];
const ROUND: u64 = flags::DRY_RUN | flags::COMPARE | flags::QUICK | flags::KEEP_TIMES;
/// What such a server has.
const ABLE: Features = Features { wide: ALL.wide | wide::LISTS | wide::COMPARED | wide::ROUNDS, ..ALL };

fn put<'a>(flags: u64, operands: u64) -> Message<'a> {
    Message::Put { policy: policy(flags), target: Target::Exactly, path: b"d", operands, items: false }
}

fn hello(w: &mut Wire, ours: Features) {
    w.say(&Message::Hello(handshake::hello(ours, [8; 32], b"peer", None)));
    assert_eq!(w.hear().map(|said| said.kind), Some(kind::WELCOME));
}

fn stocked() -> Place {
    let place = Place::new();
    place.tmp.file("dst/d/sub/own", "own");
    place.tmp.file("dst/d/in the way", "a file");
    symlink("../../outside", place.dst().join("d/away")).unwrap();
    place
}

/// Said before what is no comparison of a list, or to a server that was not asked whether it knows it: refused.
#[test]
fn directories_of_a_round_are_said_of_comparisons_of_lists_alone() {
    let keeping =
        || Message::Keeping(Keeping { bases: vec![b"d"], old: OldThings::Go, at: None, stay: None });
    let get = || Message::Get { policy: policy(flags::RECURSIVE), paths: vec![b"d"], names: None };
    let deletes = ROUND | flags::DELETE_FIRST | flags::MIRROR_DELETE;
    let table: [(&str, Features, Vec<Message<'_>>); 8] = [
        ("a copy", ABLE, vec![put(flags::HASHES, 0)]),
        ("what a copy would do", ABLE, vec![put(flags::DRY_RUN, 0)]),
        ("a look that deletes", ABLE, vec![put(deletes, 0)]),
        ("operands", ABLE, vec![put(ROUND, 1)]),
        ("a get without a list", ABLE, vec![get()]),
        ("beside something else", ABLE, vec![keeping(), put(ROUND, 0)]),
        ("a tree of a plan", ABLE, vec![Message::IntoTree { plan: [7; 32], all: false }, put(ROUND, 0)]),
        ("not agreed on", Features { wide: ABLE.wide & !wide::ROUNDS, ..ABLE }, vec![put(ROUND, 0)]),
    ];
    for (what, ours, messages) in table {
        for names in [vec![&b"sub"[..]], vec![]] {
            let place = stocked();
            let before = tree(&place.dst());
            place.besiege(what, &["--root", "DST"], |w| {
                hello(w, ours);
                w.say(&Message::Names { names });
                for message in &messages {
                    w.say(message);
                }
                assert_eq!(w.hear().map(|said| said.kind), Some(kind::ERROR), "{what}");
            });
            assert_eq!(differences(&before, &tree(&place.dst()), EVERYTHING), [""; 0], "{what}");
        }
    }
}

/// Sends a directory of directories as a round; what is answered for each, and the paths that are told.
fn round(w: &mut Wire, names: Vec<&[u8]>, dirs: &[&[u8]], extra: u64) -> (Vec<DirState>, Vec<Vec<u8>>) {
    w.say(&Message::Names { names });
    w.say(&put(ROUND | extra, 0));
    w.say(&Message::Operand { path: b"x", whole: true, origin: 7, dir: 1, entry: dir(b"-") });
    for (id, name) in (2..).zip(dirs) {
        w.say(&subdir(id, 1, name));
        w.say(&Message::DirEnd { dir: id, partial: false });
    }
    w.say(&Message::DirEnd { dir: 1, partial: false });
    w.say(&Message::AllSent);
    let (mut states, mut told) = (Vec::new(), Vec::new());
    loop {
        let said = w.hear().unwrap();
        match said.message() {
            Message::DirIs { dir, state } if dir > 1 => states.push(state),
            Message::Report(Event::Difference { path, .. }) => told.push(path.to_vec()),
            Message::Error(trouble) => panic!("{trouble:?}"),
            Message::Summary { counts, .. } => {
                assert_eq!(counts[6], told.len() as u64);
                w.say(&Message::Done);
                told.sort();
                return (states, told);
            }
            _ => {}
        }
    }
}

/// The twin: what is said is compared, the rest only leads to names; and no name leads out of the root.
#[test]
fn a_round_compares_what_was_said() {
    use DirState::{Refused, There};
    let all: [&[u8]; 3] = [b"sub", b"away", b"in the way"];
    type Row<'r> = (&'r str, Vec<&'r [u8]>, u64, [DirState; 3], &'r [&'r str]);
    let table: [Row<'_>; 5] = [
        ("nothing", vec![], 0, [There; 3], &[]),
        ("one", vec![b"sub"], 0, [Refused, There, There], &["sub"]),
        ("one that leads on", vec![b"sub/"], 0, [There; 3], &["sub"]),
        ("all", all.to_vec(), 0, [Refused; 3], &["away", "in the way", "sub"]),
        (
            "others, the top itself among them",
            vec![b"..", b"../outside/", b"/", b"sub//", b"away/keep"],
            flags::EXTRA,
            [There; 3],
            &["", "sub/own"],
        ),
    ];
    for (what, names, extra, states, told) in table {
        let place = stocked();
        let before = tree(&place.dst());
        place.besiege(what, ROOT, |w| {
            hello(w, ABLE);
            let (found, paths) = round(w, names, &all, extra);
            assert_eq!(found, states, "{what}");
            let paths: Vec<_> = paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
            assert_eq!(paths, told, "{what}");
        });
        assert_eq!(differences(&before, &tree(&place.dst()), EVERYTHING), [""; 0], "{what}");
    }
}

const PLAN: &[&str] = &["plan", "--verb", "check", "DST/src", "host:x", "--out", "DST/p", "--shards", "1"];

/// Answers what is compared until all was sent, wants to know what is in each directory, and tells `events`. Returns how often
/// directories and files came.
fn compares(w: &mut Wire, events: &[Event<'_>], counts: (u64, u64)) -> (usize, usize) {
    w.greet_with(ABLE);
    compared(w, events, counts)
}

/// One comparison of a connection.
fn compared(w: &mut Wire, events: &[Event<'_>], (failed, counted): (u64, u64)) -> (usize, usize) {
    let (mut dirs, mut files) = (0, 0);
    assert_eq!(w.hear().map(|said| said.kind), Some(kind::NAMES));
    assert_eq!(w.hear().map(|said| said.kind), Some(kind::PUT));
    while let Some(said) = w.hear() {
        match said.message() {
            Message::Operand { dir, .. } | Message::Dir { id: dir, .. } => {
                dirs += usize::from(said.kind == kind::DIR);
                w.say(&Message::DirIs { dir, state: DirState::There });
            }
            Message::Files { batch, .. } | Message::FilesPacked { batch, .. } => {
                files += 1;
                w.say(&Message::Wants { batch, entries: Vec::new() });
            }
            Message::AllSent => break,
            _ => {}
        }
    }
    for event in events {
        w.say(&Message::Report(event.clone()));
    }
    w.say(&Message::Summary {
        counts: [0, 0, 0, 0, 0, failed, counted],
        codes: Vec::new(),
        cancelled: false,
    });
    w.until(kind::DONE);
    (dirs, files)
}

/// All that it has said.
fn told_by(outcome: &Outcome) -> String {
    [&*outcome.out, &outcome.err].map(String::from_utf8_lossy).concat()
}

fn planned(shards: &str) -> Place {
    let place = Place::new();
    place.tmp.file("dst/src/d/f", "x");
    let words = [&PLAN[..PLAN.len() - 1], &[shards]].concat();
    let plan = place.attack("plan", &words, |w| {
        w.greet_with(ABLE);
        assert_eq!(w.hear().map(|said| said.kind), Some(kind::STAT));
        w.say(&Message::Info(dir(b"x")));
        while w.hear().is_some() {}
    });
    plan.ok();
    place
}

/// A server that does not know it is asked for no plan, and changes nothing of one.
#[test]
fn an_older_server_compares_no_plan() {
    let older = Features { wide: ABLE.wide & !wide::ROUNDS, ..ABLE };
    let place = Place::new();
    place.tmp.file("dst/src/d/f", "x");
    let refused = |place: &Place, words: &[&str]| {
        let outcome = place.attack("older", words, |w| {
            w.greet_with(older);
            while w.hear().is_some() {}
        });
        let said = outcome.failed().said();
        assert!(said.contains("rounds"), "{said}");
    };
    refused(&place, PLAN);
    assert!(!place.dst().join("p").exists());
    let place = planned("1");
    refused(&place, &["shard", "DST/p", "0"]);
    assert!(!place.dst().join("p/results/0").exists());
}

/// What a server tells is counted as it is told, names nothing that it was not asked for, and ends.
#[test]
fn what_a_server_tells_of_a_plan_that_is_compared() {
    let told = |path, change| {
        let (directory, files, bytes, why, alike) = (false, 1, 1, Reason::OnlyThere.number(), None);
        Event::Difference { change, path, directory, files, bytes, why, alike }
    };
    // What is below a directory that is compared is another shard's.
    let place = planned("2");
    let mut came = Vec::new();
    for shard in ["0", "1"] {
        place.attack("one of two", &["shard", "DST/p", shard], |w| came.push(compares(w, &[], (0, 0)))).ok();
    }
    assert_eq!(came, [(1, 0), (1, 1)]);
    let place = planned("1");
    let failed = place.attack("not all", &["shard", "DST/p", "0"], |w| {
        compares(w, &[], (1, 0));
    });
    failed.said();
    assert!(!place.dst().join("p/results/0").exists(), "what was not compared was recorded");
    let shard = place.attack("shard", &["shard", "DST/p", "0"], |w| {
        compares(w, &[told(b"../../secret", 0), told(b"d\x1b[2J", 2)], (0, u64::MAX));
    });
    let out = told_by(&shard.ok());
    assert!(!out.contains('\u{1b}') && out.contains("1 to add"), "{out:?}");
    let paths: [&[u8]; 9] =
        [b"", b"..", b"../own", b"/etc/passwd", b"d/..", b"d/../d/f", b"d/f", b"d/own", b"own/\x1b[2J"];
    let other = [told(b"d/f", 2), told(b"lacked", 0), told(b"differs", 2)];
    let events: Vec<_> = paths.iter().map(|path| told(path, 1)).chain(other).collect();
    let end = place.attack("finish", &["finish", "DST/p"], |w| {
        w.greet_with(ABLE);
        // Of the two themselves: one difference, which is theirs whatever is said.
        compared(w, &[told(b"top extra", 1), told(b"top differs", 2), told(b"top again", 2)], (0, u64::MAX));
        compared(w, &events, (0, 3));
    });
    let out = told_by(&end);
    assert!(!out.contains("top ") && out.matches("~ ").count() == 1, "{out:?}");
    assert!(!out.contains('\u{1b}') && !out.contains("d/f\n") && out.contains("-   own "), "{out:?}");
    // The shards have told what differs.
    assert!(!out.contains("lacked") && !out.contains("differs"), "{out:?}");
    assert_eq!(end.code, 1, "{out:?}");
}
