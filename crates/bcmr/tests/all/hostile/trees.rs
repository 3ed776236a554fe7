//! A malicious client that speaks of trees of plans, and a server that answers what was not asked.

use super::peer::*;
use crate::common::*;
use bcmr_wire::message::{Message, Target, TreeStep, kind};
use bcmr_wire::policy::flags;
use std::os::unix::fs::symlink;

const ROOT: &[&str] = &["--root", "DST"];
const PLAN: [u8; 32] = [7; 32];

fn tree_of<'a>(path: &'a [u8], step: TreeStep<'a>) -> Message<'a> {
    Message::Tree { path, plan: PLAN, step }
}

fn put<'a>(target: Target, path: &'a [u8], operands: u64) -> Message<'a> {
    Message::Put { policy: policy(flags::HASHES), target, path, operands, items: false }
}

/// What is answered: the inode of a tree.
fn found(w: &mut Wire) -> Option<u64> {
    match w.hear()?.message() {
        Message::Info(entry) => Some(entry.ino),
        _ => None,
    }
}

/// As `besiege`; a tree that was begun may be left.
fn guarded<T: Send>(place: &Place, title: &str, script: impl FnOnce(&mut Wire) -> T + Send) -> T {
    let before = place.around();
    let (found, _) = place.serve(title, ROOT, script);
    assert_eq!(before, place.around(), "{title}: something outside the root has changed");
    found
}

/// Sends one file into the tree of `path`; whether the server was content.
fn filled(w: &mut Wire, path: &[u8]) -> bool {
    w.say(&Message::IntoTree { plan: PLAN, all: false });
    w.say(&put(Target::Exactly, path, 0));
    w.say(&Message::Operand { path: b"x", whole: true, origin: 7, dir: 1, entry: dir(b"-") });
    w.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc"])));
    w.say(&Message::DirEnd { dir: 1, partial: true });
    w.say(&Message::AllSent);
    loop {
        let Some(said) = w.hear() else { return false };
        match said.message() {
            Message::Summary { counts, .. } => {
                w.say(&Message::Done);
                return counts[5] == 0 && counts[0] == 1;
            }
            Message::Error(_) => {
                w.say(&Message::Done);
                return false;
            }
            _ => {}
        }
    }
}

fn fenced() -> Place {
    let place = Place::new();
    place.tmp.file("dst/own", "own");
    place.tmp.dir("dst/in");
    symlink("../outside", place.dst().join("out")).unwrap();
    place
}

/// Trees, names in them and what they become are below the root, and no tree takes the place of what is there.
#[test]
fn trees_are_below_the_root() {
    let place = fenced();
    for path in [&b"../outside/d"[..], b"out/d", b"/../outside/d", b"in/../../outside/d", b"..", b"in/.."] {
        let title = String::from_utf8_lossy(path).into_owned();
        let made = guarded(&place, &title, |w| {
            assert!(w.hello());
            w.say(&tree_of(path, TreeStep::Make));
            found(w).is_some() || filled(w, path)
        });
        assert!(!made, "{title}");
    }
    for (first, name) in [
        (&b"f"[..], &b"../f"[..]),
        (b"f", b"/f"),
        (b"f", b"a/../../f"),
        (b"f", b""),
        (b"../own", b"mine"),
        (b"l/keep", b"mine"),
        (b"f", b"l/f"),
    ] {
        let title = format!("link {}", String::from_utf8_lossy(name));
        let linked = guarded(&place, &title, |w| {
            assert!(w.hello());
            w.say(&tree_of(b"d", TreeStep::Make));
            assert!(found(w).is_some() && filled(w, b"d"));
            let tree = names(&place.dst()).into_iter().find(|name| name.to_string_lossy().ends_with(".plan"));
            let link = place.dst().join(tree.unwrap()).join("l");
            if link.symlink_metadata().is_err() {
                symlink("../../outside", &link).unwrap();
            }
            w.say(&tree_of(b"d", TreeStep::Link(vec![(first, name)])));
            found(w).is_some()
        });
        assert!(!linked, "{title}");
    }
    assert_eq!(std::fs::read(place.dst().join("own")).unwrap(), b"own");
}

/// Said where it means nothing, or of what is not there: refused, and nothing is made.
#[test]
fn a_tree_is_put_into_and_published_as_it_was_made() {
    let get = || Message::Get { policy: policy(flags::RECURSIVE), paths: vec![b"own"], names: None };
    let table: [(&str, Message<'_>); 4] = [
        ("twice", Message::IntoTree { plan: PLAN, all: true }),
        ("of a get", get()),
        ("of operands", put(Target::Exactly, b"d", 1)),
        ("of a guess", put(Target::Guess, b"d", 0)),
    ];
    for (what, then) in table {
        let place = fenced();
        guarded(&place, what, |w| {
            assert!(w.hello());
            w.say(&Message::IntoTree { plan: PLAN, all: false });
            w.say(&then);
            assert_eq!(w.hear().map(|said| said.kind), Some(kind::ERROR), "{what}");
        });
        assert_eq!(names(&place.dst()), ["in", "out", "own"], "{what}");
    }
    let place = fenced();
    guarded(&place, "no tree", |w| {
        assert!(w.hello());
        for step in [TreeStep::Find, TreeStep::Publish { ino: 7 }, TreeStep::Link(vec![(b"a", b"b")])] {
            w.say(&tree_of(b"d", step));
            assert_eq!(found(w), None);
        }
        assert!(!filled(w, b"d"));
    });
    assert_eq!(names(&place.dst()), ["in", "out", "own"]);
    guarded(&place, "another inode, a name that is there, and the honest twin", |w| {
        assert!(w.hello());
        for path in [&b"d"[..], b"own"] {
            w.say(&tree_of(path, TreeStep::Make));
            let ino = found(w).unwrap();
            w.say(&tree_of(path, TreeStep::Publish { ino: ino + 1 }));
            assert_eq!(found(w), None);
            assert!(path == b"d" && filled(w, path) || path == b"own");
            w.say(&tree_of(path, TreeStep::Publish { ino }));
            assert_eq!(found(w), (path == b"d").then_some(ino));
        }
    });
    assert_eq!(std::fs::read(place.dst().join("own")).unwrap(), b"own");
    assert_eq!(std::fs::read(place.dst().join("d/f")).unwrap(), b"abc");
}

/// A plan is not written by the word of a server that answers something else.
#[test]
fn what_a_server_says_of_a_tree_is_looked_at() {
    for (what, answer) in [
        ("another answer", Message::Ok { hash: None }),
        ("an error", Message::Error(bcmr_wire::message::Trouble::default())),
    ] {
        let place = Place::new();
        place.tmp.file("dst/src/f", "x");
        let words = ["plan", "DST/src", "host:x", "--out", "DST/plan"];
        let outcome = place.attack(what, &words, |w| {
            w.greet();
            let said = w.hear();
            assert_eq!(said.map(|said| said.kind), Some(kind::TREE), "{what}");
            w.say(&answer);
            while w.hear().is_some() {}
        });
        outcome.failed();
        assert!(!place.dst().join("plan/plan").exists(), "{what}");
    }
}
