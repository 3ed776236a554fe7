//! What a receiver believes: nothing that it can see for itself to be untrue. What was asked for arrives, is refused by
//! name, or is an error; what was left out does not come; a file is as long as it was said to be.

use super::peer::*;
use crate::common::remote::{Dir, Far};
use crate::common::*;
use bcmr_wire::message::{Codec, Entry, Kind, Message, Note, Trouble, kind};

/// Every way that something can be asked for, and the name that an error must have.
const WAYS: [(&[&str], &str); 9] = [
    (&["copy", "host:x", "DST"], "host:x"),
    (&["copy", "-r", "host:dir/x/", "DST"], "host:dir/x"),
    (&["copy", "-V", "host:x", "DST/new"], "host:x"),
    (&["copy", "-rC", "host:x", "DST"], "host:x"),
    (&["copy", "-r", "--manifest", "DST/sums", "host:x", "DST/x"], "host:x"),
    (&["copy", "-rn", "host:x", "DST"], "host:x"),
    (&["check", "host:x", "DST"], "host:x"),
    (&["check", "--hash", "host:x", "DST"], "host:x"),
    (&["copy", "-r", "host:.", "DST"], "host:"),
];

/// A server that sends nothing is no success, and the operand is named.
#[test]
fn nothing_is_no_answer() {
    for (args, name) in WAYS {
        let place = Place::new();
        let what = args.join(" ");
        let outcome = place.attack(&what, args, |w| {
            w.transfer();
            w.all_sent();
        });
        let outcome = outcome.failed();
        assert!(outcome.said().contains(name), "{what}: {}", outcome.said());
        assert!(names(&place.dst()).is_empty(), "{what}: {:?}", names(&place.dst()));
        // The twin: it says why, and that is said once.
        let place = Place::new();
        let outcome = place.attack(&what, args, |w| {
            w.transfer();
            let path = args.iter().find_map(|a| a.strip_prefix("host:")).unwrap();
            let path = format!("/home/me/{path}").into_bytes();
            let trouble = Trouble { code: 3, op: 1, path: &path, note: Note::default(), errno: 2 };
            w.say(&Message::Trouble(trouble));
            w.all_sent();
        });
        let said = outcome.failed().said();
        assert!(!said.contains("did not say why"), "{what}: {said}");
    }
    // One of three, and the others arrive.
    let place = Place::new();
    let outcome = place.attack("one of three", &["copy", "-r", "host:a", "host:b", "host:c", "DST"], |w| {
        w.transfer();
        for (id, name) in [(1, b"a"), (2, b"c")] {
            w.say(&operand(id, dir(name)));
            w.say(&Message::DirEnd { dir: id, partial: false });
        }
        w.all_sent();
    });
    let said = outcome.failed().said();
    assert!(said.contains("host:b") && !said.contains("host:a") && !said.contains("host:c"), "{said}");
    assert_eq!(names(&place.dst()), ["a", "c"]);
    // An operand that is announced, and then does not come.
    for args in [&["copy", "host:x", "DST"][..], &["check", "host:x", "DST"]] {
        let place = Place::new();
        place
            .attack("announced", args, |w| {
                w.transfer();
                w.say(&operand(1, file(b"x", 4)));
                w.all_sent();
            })
            .failed();
    }
}

/// The same of each name of a list.
#[test]
fn listed_names_come_or_are_refused() {
    let list = |lines: &str| {
        let place = Place::new();
        place.tmp.file("list", lines);
        place
    };
    let args = |verb: &'static str| -> Vec<&'static str> {
        vec![verb, "-r", "--files-from", "list", "host:base", "DST"]
    };
    let top = |w: &mut Wire| {
        w.transfer();
        w.say(&Message::Operand { path: b"base", whole: true, origin: 7, dir: 1, entry: dir(b"-") });
    };
    let ends = |w: &mut Wire| {
        w.say(&Message::DirEnd { dir: 1, partial: true });
        w.all_sent();
    };
    for verb in ["copy", "copy -n"] {
        let mut words: Vec<&str> = verb.split(' ').collect();
        words.extend(&args("copy")[1..]);
        let place = list("a\nb\n");
        let said = place
            .attack("one of two", &words, |w| {
                top(w);
                w.say(&on_offer(1, 1, vec![link(b"a", b"x")]));
                ends(w);
            })
            .failed()
            .said();
        assert!(said.contains("host:base/b") && !said.contains("host:base/a"), "{verb}: {said}");
    }
    // The twin: by name, by a directory on the way, left out by ourselves.
    let place = list("a\nd/e/f\nd/e/g\nd/h\nskip.o\nout/x\n");
    let words = [&["copy", "-e", "*.o", "-e", "out/"], &args("copy")[1..]].concat();
    let said = place
        .attack("refused", &words, |w| {
            top(w);
            for path in [&b"/home/me/base/a"[..], b"/home/me/base/d/e"] {
                w.say(&Message::Trouble(Trouble { code: 3, op: 1, path, note: Note::default(), errno: 2 }));
            }
            w.say(&subdir(2, 1, b"d"));
            w.say(&files(1, 2, vec![file(b"h", 1)], &contents(&[b"1"])));
            w.say(&Message::DirEnd { dir: 2, partial: true });
            ends(w);
        })
        .failed()
        .said();
    assert!(!said.contains("did not say why"), "{said}");
    // Of very many only the first are named.
    let lines: String = (0..5000).map(|n| format!("n{n}\n")).collect();
    let place = list(&lines);
    let said = place
        .attack("none of many", &args("copy"), |w| {
            top(w);
            ends(w);
        })
        .failed()
        .said();
    assert!(said.lines().count() < 40 && said.contains("4984 more"), "{said}");
    // And the directory that they are below.
    let place = list(&lines);
    let said = place
        .attack("no base", &args("copy"), |w| {
            w.transfer();
            w.all_sent();
        })
        .failed()
        .said();
    assert!(said.lines().count() < 5 && said.contains("host:base"), "{said}");
}

/// An item that failed is counted although the other side gives the whole run up after it.
#[test]
fn failures_before_the_end_are_counted() {
    let place = Place::new();
    let outcome = place.attack("given up", &["copy", "--json", "-r", "host:x", "DST"], |w| {
        w.transfer();
        w.say(&operand(1, dir(b"x")));
        let trouble = |code| Trouble { code, op: 1, path: b"x/f", note: Note::default(), errno: 0 };
        let [item, all] = [3, 7].map(trouble);
        w.say(&Message::Trouble(item.clone()));
        w.say(&Message::Error(all));
        w.hold();
    });
    let said = String::from_utf8(outcome.failed_or_json(true).out).unwrap();
    assert_eq!(said.matches(r#""event":"failed""#).count(), 2, "{said}");
    assert!(said.contains(r#""failed":2"#), "{said}");
    assert!(said.contains(r#""codes":["in-the-way","no-space"]"#), "{said}");
}

/// Filters hold here too: a name that was left out is a breach, whatever it is sent as.
#[test]
fn names_that_were_left_out() {
    type Send = fn(&mut Wire);
    let scripts: [(&str, Send); 5] = [
        ("file", |w| {
            w.say(&files(1, 1, vec![file(b"authorized_keys", 4)], &contents(&[b"evil"])));
        }),
        ("link", |w| {
            w.say(&files(1, 1, vec![link(b"authorized_keys", b"/etc/passwd")], b""));
        }),
        ("large file", |w| {
            w.say(&Message::Large { file: 1, dir: 1, entry: file(b"authorized_keys", 2 << 20) });
        }),
        ("directory", |w| {
            w.say(&subdir(2, 1, b"authorized_keys"));
        }),
        ("below", |w| {
            w.say(&subdir(2, 1, b"deep"));
            w.say(&files(1, 2, vec![file(b"authorized_keys", 4)], &contents(&[b"evil"])));
        }),
    ];
    let filters: [&[&str]; 4] = [
        &["-e", "authorized_keys"],
        &["--exclude-regex", "authorized_keys$"],
        &["-e", "*", "--include", "deep/", "--include", "ok"],
        &["-e", "*_keys", "--include", "other_keys"],
    ];
    for verb in [&["copy", "-r"][..], &["copy", "-rn"], &["check"]] {
        for filter in filters {
            for (what, script) in scripts {
                let place = Place::new();
                let args = [verb, filter, &["host:x", "DST"]].concat();
                let title = format!("{what} {args:?}");
                place
                    .attack(&title, &args, |w| {
                        w.transfer();
                        w.say(&operand(1, dir(b"x")));
                        script(w);
                        w.say(&Message::AllSent);
                        w.hold();
                    })
                    .failed();
                let left = tree(&place.dst());
                let bad = left.keys().any(|path| path.windows(15).any(|w| w == b"authorized_keys"));
                assert!(!bad, "{title}: {left:?}");
            }
        }
    }
    // As an operand; and the twins: what is taken after all, and an operand that is a directory.
    let rows: [(&[&str], Entry<'static>, bool); 4] = [
        (&["copy", "-e", "x", "host:x", "DST"], file(b"x", 4), false),
        (&["copy", "-e", "*", "--include", "x", "host:x", "DST"], file(b"x", 4), true),
        (&["copy", "-r", "-e", "x", "host:x", "DST"], dir(b"x"), true),
        (&["copy", "-r", "-e", "/f", "host:x", "DST"], dir(b"x"), true),
    ];
    for (args, entry, fine) in rows {
        let place = Place::new();
        let outcome = place.attack(&args.join(" "), args, |w| {
            w.transfer();
            w.say(&operand(1, entry.clone()));
            if entry.kind == Kind::Dir {
                w.say(&subdir(2, 1, b"d"));
                w.say(&files(1, 2, vec![file(b"f", 1)], &contents(&[b"1"])));
                w.say(&Message::DirEnd { dir: 2, partial: false });
                w.say(&Message::DirEnd { dir: 1, partial: false });
            } else {
                w.say(&files(1, 1, vec![entry.clone()], &contents(&[b"good"])));
            }
            w.all_sent();
        });
        if fine {
            outcome.ok()
        } else {
            outcome.failed()
        };
        assert_eq!(names(&place.dst()).is_empty(), !fine, "{args:?}");
    }
    // An operand that is left out need not come, and the sender need not say why.
    let place = Place::new();
    place
        .attack("left out", &["copy", "-e", "x", "host:x", "DST"], |w| {
            w.transfer();
            w.all_sent();
        })
        .ok();
}

/// A file is as long as it was said to be, however it comes.
#[test]
fn sizes_that_are_not_so() {
    for (said, content) in [(10, &b"abc"[..]), (0, b"abc"), (2, b"abc"), (1000, b""), (4096, b"abc")] {
        for blocks in [0, 8] {
            for on_demand in [false, true] {
                for args in [&["copy", "-r", "host:x", "DST"][..], &["copy", "-r", "--fast", "host:x", "DST"]]
                {
                    let place = Place::new();
                    let what = format!("{said} and {content:?}, {blocks} blocks, {on_demand} {args:?}");
                    let fast = args.contains(&"--fast");
                    let outcome = place.attack(&what, args, |w| {
                        w.transfer();
                        let entry = Entry { blocks, ..file(b"f", said) };
                        let hash = (!fast).then(|| *blake3::hash(content).as_bytes());
                        let mut bytes = Vec::new();
                        bcmr_wire::contents::push_content(&mut bytes, content, hash.as_ref());
                        w.say(&operand(1, dir(b"x")));
                        if on_demand {
                            w.say(&on_offer(1, 1, vec![entry]));
                            w.until(kind::WANTS);
                            w.say(&Message::Contents { batch: 1, codec: Codec::Raw, bytes: &bytes });
                        } else {
                            w.say(&files(1, 1, vec![entry], &bytes));
                        }
                        w.until(kind::WANTS);
                        w.say(&Message::DirEnd { dir: 1, partial: false });
                        w.all_sent();
                    });
                    let said = outcome.failed().said();
                    assert!(said.contains("host:x/f"), "{what}: {said}");
                    assert!(!place.dst().join("x/f").exists(), "{what}");
                }
            }
        }
    }
}

/// The twin of sizes, with our own sender: files whose size says nothing, and one that grows while it is copied.
#[test]
fn sizes_of_an_honest_sender() {
    let tmp = Tmp::new();
    let far = Far::pipe();
    for path in ["/proc/self/status", "/sys/kernel/notes", "/sys/devices/system/cpu/online"] {
        if std::fs::read(path).is_err() {
            continue;
        }
        let to = tmp.p("to");
        let ran = Dir::Get.copy(&far, "", std::path::Path::new(path), &to).run();
        assert_eq!(ran.code, 0, "{path}: {}", ran.err);
        assert!(std::fs::metadata(&to).unwrap().len() > 0, "{path}");
    }
}
