//! Every name that a peer chooses, and what becomes of what it has chosen: never anything outside the destination, in no
//! attempt and no later run.
//!
//! | name | who chooses | what must hold | test |
//! |---|---|---|---|
//! | operand, entry, directory, large file | server | is one name, was asked for | `server::names_that_lead_elsewhere`, `operands_that_nobody_asked_for` |
//! | target of a link in a tree | server | is made and never gone through | `server::links_that_it_planted` |
//! | target of a link under DST's own name | server | is not followed later | `what_was_put_under_the_final_name_is_never_followed` |
//! | kind of an operand | server | stays what it was | `an_operand_stays_what_it_was` |
//! | a link where links are followed | server | is a breach | `a_link_where_links_are_followed` |
//! | hard-linked files, by device and inode | server | are those of this run | `server::links_that_it_planted`, `inodes_of_ours` |
//! | listed names | server | are on the list | `server::names_that_are_not_on_the_list` |
//! | excluded names | server | do not come | `believed::names_that_were_left_out` |
//! | names of a manifest's lines | server | are below the target | `lines_of_a_manifest` |
//! | address of the direct plane | server | only chooses among ssh's own | `transport::direct::tests`, `put::` |
//! | path of a further connection | server | goes back to it and nowhere else | `further_connections_are_named_to_the_server_alone` |
//! | operands, target, requests | client | are below the root | `client::` |
//! | path to join | client | is a meeting's | `client::joins_that_are_stolen` |
//! | blocks claimed | client | are proved | `client::a_hash_gives_nobody_a_block` |
//! | blocks claimed | server | are of what it sent, and proved | `store::a_server_is_answered_from_what_it_sent_itself` |
//! | machine and path that a file came from | client | give what a `Get` gives | `store::the_last_version_is_used_only_as_it_landed` |
//! | the same | server | give what it sent | `store::sums_only_of_what_was_sent` |

use super::peer::*;
use crate::common::*;
use bcmr_wire::message::{DirState, Entry, Event, Kind, Message, kind};
use std::os::unix::fs::symlink;

/// What a server answers to one connection. It goes at the end without a word: a client that may connect again does.
fn answers(wire: &mut Wire, entry: Entry<'_>, whole: bool) {
    wire.transfer();
    let id = 1;
    let name = if whole { b"-" } else { entry.name };
    let named = Entry { name, ..entry.clone() };
    wire.say(&Message::Operand { path: entry.name, whole, origin: 7, dir: id, entry: named.clone() });
    match entry.kind {
        Kind::Dir => {
            wire.say(&files(1, id, vec![file(b"keep", 4)], &contents(&[b"evil"])));
            wire.say(&Message::DirEnd { dir: id, partial: false });
        }
        Kind::File => {
            wire.say(&files(1, id, vec![named], &contents(&[b"evil"])));
        }
        _ => {
            wire.say(&files(1, id, vec![named], b""));
        }
    }
    wire.until(kind::WANTS);
}

fn ends(wire: &mut Wire) {
    wire.all_sent();
}

/// First a link out under the very name that was asked for, then something to be written through it: by the same command
/// again, or within one that connects again.
#[test]
fn what_was_put_under_the_final_name_is_never_followed() {
    let file_of = |_: &str| file(b"x", 4);
    let dir_of = |_: &str| dir(b"x");
    type Second = fn(&str) -> Entry<'static>;
    let rows: [(&str, &[u8], Second, &[&str]); 9] = [
        ("file, by the name", b"../outside/keep", file_of, &["copy", "-r", "host:x", "DST/x"]),
        ("file, by another name", b"../outside/keep", file_of, &["copy", "-r", "host:x", "DST/y"]),
        ("file, kept links", b"../outside/keep", file_of, &["copy", "-rP", "host:x", "DST/x"]),
        ("file, in place", b"../outside/keep", file_of, &["copy", "-r", "--inplace", "host:x", "DST/x"]),
        ("file, with sessions", b"../outside/keep", file_of, &["copy", "-rC", "host:x", "DST/x"]),
        ("file, exactly", b"../outside/keep", file_of, &["copy", "-rT", "host:x", "DST/x"]),
        ("file, nothing there yet", b"../outside/new", file_of, &["copy", "-r", "host:x", "DST/x"]),
        ("directory", b"../outside", dir_of, &["copy", "-r", "host:x", "DST/x"]),
        ("directory, exactly", b"../outside", dir_of, &["copy", "--archive", "-T", "host:x", "DST/x"]),
    ];
    for (what, to, second, args) in rows {
        // Two runs.
        let place = Place::new();
        let at = place.dst().join(if args.last() == Some(&"DST/y") { "y" } else { "x" });
        place.attack(what, args, |w| {
            answers(w, link(b"x", to), false);
            ends(w);
        });
        assert!(at.is_symlink(), "{what}: a link that was asked for arrives as one");
        place.attack(&format!("{what}, then"), args, |w| {
            answers(w, second(""), false);
            ends(w);
        });
        // One run.
        let place = Place::new();
        let args = [&args[..1], &["--retries", "1"], &args[1..]].concat();
        place
            .attack(&format!("{what}, again"), &args, |w| {
                answers(w, link(b"x", to), false);
                if w.next_connection() {
                    answers(w, second(""), false);
                    ends(w);
                }
            })
            .failed();
    }
    // With a list of names DST is a directory of ours, whatever was made of it before.
    for again in [false, true] {
        let place = Place::new();
        place.tmp.file("list", "keep\n");
        place.attack("link", &["copy", "-r", "host:x", "DST/x"], |w| {
            answers(w, link(b"x", b"../outside"), false);
            ends(w);
        });
        let args: &[&str] = &["copy", "--files-from", "list", "host:x", "DST/x"];
        let args = if again { [&args[..1], &["--retries", "1"], &args[1..]].concat() } else { args.to_vec() };
        place
            .attack("list", &args, |w| {
                answers(w, dir(b"x"), true);
                ends(w);
            })
            .failed();
    }
}

/// The twins: what people type goes where they mean it.
#[test]
fn links_of_the_users_own() {
    let answers_file = |w: &mut Wire| {
        answers(w, file(b"x", 4), false);
        ends(w);
    };
    let answers_dir = |w: &mut Wire| {
        answers(w, dir(b"x"), false);
        ends(w);
    };
    // A name: the link is replaced, and written through only where the user says so.
    let place = Place::new();
    place.tmp.file("dst/other", "mine");
    symlink("other", place.dst().join("x")).unwrap();
    place.attack("name", &["copy", "host:x", "DST/x"], answers_file).ok();
    assert!(!place.dst().join("x").is_symlink());
    assert_eq!(std::fs::read(place.dst().join("x")).unwrap(), b"evil");
    assert_eq!(std::fs::read(place.dst().join("other")).unwrap(), b"mine");
    let place = Place::new();
    place.tmp.file("dst/other", "mine");
    symlink("other", place.dst().join("x")).unwrap();
    let args = &["copy", "--follow-destination", "host:x", "DST/x"];
    place.attack("name, followed", args, answers_file).ok();
    assert!(place.dst().join("x").is_symlink());
    assert_eq!(std::fs::read(place.dst().join("other")).unwrap(), b"evil");
    // A directory behind a link: by a slash, by -t, or by saying so; else it is refused, and told why.
    let rows: [(&[&str], bool); 5] = [
        (&["copy", "-r", "host:x", "DST/away"], false),
        (&["copy", "-r", "host:x", "DST/away/"], true),
        (&["copy", "-r", "-t", "DST/away", "host:x"], true),
        (&["copy", "-r", "--follow-destination", "host:x", "DST/away"], true),
        (&["copy", "-r", "host:x", "DST/away/."], true),
    ];
    for (args, goes) in rows {
        let place = Place::new();
        place.tmp.dir("dst/real");
        symlink("real", place.dst().join("away")).unwrap();
        let outcome = place.attack(&args.join(" "), args, answers_dir);
        let there = place.dst().join("real/x/keep").is_file();
        assert_eq!(there, goes, "{args:?}");
        if goes {
            outcome.ok();
        } else {
            let outcome = outcome.failed();
            assert!(outcome.said().contains("--follow-destination"), "{}", outcome.said());
        }
    }
    // And `check` and `-n` say what the copy does.
    for (verb, followed) in [(&["check"][..], false), (&["check", "--follow-destination"], true)] {
        let place = Place::new();
        place.tmp.file("dst/other", "evil");
        symlink("other", place.dst().join("x")).unwrap();
        let args = [verb, &["host:x", "DST/x"]].concat();
        let outcome = place.attack(&args.join(" "), &args, |w| {
            w.transfer();
            w.say(&operand(1, file(b"x", 4)));
            w.say(&on_offer(1, 1, vec![file(b"x", 4)]));
            // A check that compares contents wants their hash.
            if let Some(said) = w.until(kind::WANTS)
                && let Message::Wants { entries, .. } = said.message()
                && !entries.is_empty()
            {
                let mut bytes = Vec::new();
                bcmr_wire::contents::push_hashed(&mut bytes, 4, blake3::hash(b"evil").as_bytes());
                let codec = bcmr_wire::message::Codec::Raw;
                w.say(&Message::Contents { batch: 1, codec, bytes: &bytes });
            }
            ends(w);
        });
        let said = String::from_utf8_lossy(&outcome.out).into_owned() + &outcome.said();
        assert_eq!(said.contains("  type"), !followed, "{args:?}: {said}");
    }
}

/// What an operand was said to be, it is in every attempt of a run.
#[test]
fn an_operand_stays_what_it_was() {
    let kinds: [(&str, Entry<'static>); 3] =
        [("file", file(b"x", 4)), ("directory", dir(b"x")), ("link", link(b"x", b"../outside/keep"))];
    for (first, one) in &kinds {
        for (then, other) in &kinds {
            let place = Place::new();
            let what = format!("{first}, then {then}");
            let outcome = place.attack(&what, &["copy", "--retries", "1", "-r", "host:x", "DST"], |w| {
                answers(w, one.clone(), false);
                if w.next_connection() {
                    answers(w, other.clone(), false);
                    ends(w);
                }
            });
            if first == then {
                outcome.ok()
            } else {
                outcome.failed()
            };
        }
    }
}

/// Where links are followed, what they lead to is sent: a link is a breach, and nothing of it is made.
#[test]
fn a_link_where_links_are_followed() {
    for args in
        [&["copy", "host:x", "DST"][..], &["copy", "-rH", "host:x", "DST"], &["check", "-H", "host:x", "DST"]]
    {
        let place = Place::new();
        place
            .attack(&args.join(" "), args, |w| {
                answers(w, link(b"x", b"../outside/keep"), false);
                ends(w);
            })
            .failed();
        assert!(names(&place.dst()).is_empty(), "{args:?}");
    }
    for (flag, breach) in [("-L", true), ("-H", false), ("-P", false)] {
        let place = Place::new();
        let outcome = place.attack(flag, &["copy", "-r", flag, "host:x", "DST"], |w| {
            w.transfer();
            w.say(&operand(1, dir(b"x")));
            w.say(&files(1, 1, vec![link(b"l", b"../outside/keep")], b""));
            w.say(&Message::DirEnd { dir: 1, partial: false });
            ends(w);
        });
        assert_eq!(place.dst().join("x/l").is_symlink(), !breach, "{flag}");
        if breach {
            outcome.failed()
        } else {
            outcome.ok()
        };
    }
}

/// A file that claims to be one of ours, by its device and its number: it is only what it says of itself.
#[test]
fn inodes_of_ours() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new();
    let ours = std::fs::metadata(place.tmp.p("outside/keep")).unwrap();
    for origin in [0, 7, u64::MAX] {
        place.attack("ours", &["copy", "--archive", "host:x", "DST"], |w| {
            w.transfer();
            let claimed =
                |n: &'static [u8]| Entry { dev: ours.dev(), ino: ours.ino(), nlink: 3, ..file(n, 4) };
            w.say(&Message::Operand { path: b"x", whole: false, origin, dir: 1, entry: dir(b"x") });
            w.say(&on_offer(1, 1, vec![claimed(b"a"), claimed(b"b")]));
            while let Some(said) = w.until(kind::WANTS) {
                let Message::Wants { entries, .. } = said.message() else { panic!("no wants") };
                if entries.is_empty() {
                    break;
                }
                let bytes = contents(&vec![&b"evil"[..]; entries.len()]);
                let codec = bcmr_wire::message::Codec::Raw;
                w.say(&Message::Contents { batch: 1, codec, bytes: &bytes });
            }
            w.say(&Message::DirEnd { dir: 1, partial: false });
            ends(w);
        });
        assert_eq!(std::fs::metadata(place.tmp.p("outside/keep")).unwrap().nlink(), 1);
    }
}

/// A server's words about what landed over there become lines of a manifest only for what is below the target.
#[test]
fn lines_of_a_manifest() {
    let hash = *blake3::hash(b"abc").as_bytes();
    let rows: [(&[u8], bool); 7] = [
        (b"/home/me/far/f", true),
        (b"/home/me/far/sub/f", true),
        (b"/home/me/far/../../../../etc/passwd", false),
        (b"/etc/passwd", false),
        (b"../outside/keep", false),
        (b"outside/keep", false),
        (b"/home/me/farther/f", false),
    ];
    for (path, fine) in rows {
        let place = Place::new();
        place.tmp.file("src/f", "abc");
        let args = &["copy", "-rT", "--manifest", "DST/sums", "src", "host:far"];
        let what = String::from_utf8_lossy(path).into_owned();
        let outcome = place.attack(&what, args, |w| {
            w.transfer();
            w.say(&Message::Report(Event::Base(b"/home/me/far")));
            while let Some(said) = w.hear() {
                match said.message() {
                    Message::Operand { dir, .. } => {
                        w.say(&Message::DirIs { dir, state: DirState::New });
                    }
                    Message::Files { batch, .. } => {
                        w.say(&Message::Report(Event::Hashed { dst: path, hash }));
                        w.say(&Message::Wants { batch, entries: Vec::new() });
                    }
                    Message::AllSent => {
                        let counts = [1, 0, 0, 3, 0, 0, 0];
                        w.say(&Message::Summary { counts, codes: Vec::new(), cancelled: false });
                    }
                    Message::Done => break,
                    _ => {}
                }
            }
        });
        let sums = std::fs::read_to_string(place.dst().join("sums")).unwrap_or_default();
        assert_eq!(!sums.is_empty(), fine, "{what}: {sums}");
        assert!(!sums.contains("..") && !sums.contains("passwd") && !sums.contains("keep"), "{sums}");
        if fine {
            outcome.ok()
        } else {
            outcome.failed()
        };
    }
}

/// Where further connections meet is the server's to say, and only the server is told.
#[test]
fn further_connections_are_named_to_the_server_alone() {
    let place = Place::new();
    let path = place.tmp.p("outside/sock").display().to_string().into_bytes();
    let listener = std::os::unix::net::UnixListener::bind(place.tmp.p("outside/sock")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let args = &["copy", "-r", "--parallel", "2", "host:x", "DST"];
    let outcome = place.attack("token", args, |w| {
        w.greet();
        let mut others = Vec::new();
        while let Some(said) = w.hear() {
            match said.kind {
                kind::STREAMS => {
                    w.say(&Message::Token { secret: [5; 32], path: &path });
                    let mut other = w.another().expect("a further connection");
                    other.greet();
                    let joins = other.hear().expect("a word");
                    assert_eq!(joins.message(), Message::Join { secret: [5; 32], path: &path, index: 1 });
                    other.say(&Message::Ok { hash: None });
                    others.push(other);
                    true
                }
                kind::GET => {
                    w.say(&operand(1, dir(b"x")));
                    w.say(&Message::DirEnd { dir: 1, partial: false });
                    ends(w);
                    true
                }
                _ => true,
            };
        }
    });
    outcome.ok();
    assert!(listener.accept().is_err(), "the client has connected to a path that the server named");
}
