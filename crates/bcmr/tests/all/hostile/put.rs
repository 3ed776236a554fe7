//! A malicious server, to a client that puts.

use super::peer::*;
use super::server::in_words;
use crate::common::*;
use bcmr_engine::error::{Code, Op, Reason};
use bcmr_wire::message::{DirState, Event, Message, Note, Taken, Time, Trouble, kind};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

const PUT: &[&str] = &["copy", "-r", "tree", "host:x"];

/// A place with a tree to put: small files, a large one, a directory.
fn stocked() -> Place {
    let place = Place::new();
    place.tmp.file("tree/a", "content of a");
    place.tmp.file("tree/sub/b", "content of b");
    place.tmp.file("tree/big", noise(1, 1 << 20).repeat(9));
    place
}

/// The receiver's part as it should be, until a message for which `change` says what to do instead. `false`: it was the
/// last.
fn receive(w: &mut Wire, mut change: impl FnMut(&mut Wire, &Message<'_>) -> Option<bool>) {
    w.transfer();
    while let Some(said) = w.hear() {
        let message = said.message();
        match change(w, &message) {
            Some(true) => continue,
            Some(false) => break,
            None => {}
        }
        match message {
            Message::Operand { dir, .. } | Message::Dir { id: dir, .. } => {
                w.say(&Message::DirIs { dir, state: DirState::New });
            }
            Message::Files { batch, inline, entries, .. } if !inline => {
                let entries: Vec<u64> = (0..entries.len() as u64).collect();
                w.say(&Message::Wants { batch, entries });
            }
            Message::Files { batch, .. } | Message::Contents { batch, .. } => {
                w.say(&Message::Wants { batch, entries: Vec::new() });
            }
            Message::Large { file, .. } => {
                w.say(&Message::Resume { file, wanted: true, from: 0, flags: 0 });
            }
            Message::FileEnd { file, .. } => {
                w.say(&Message::Close { file });
            }
            Message::AllSent => {
                w.say(&Message::Summary {
                    counts: [3, 2, 0, 9 << 20, 0, 0, 0],
                    codes: Vec::new(),
                    cancelled: false,
                });
            }
            Message::Done => break,
            _ => {}
        }
    }
}

#[test]
fn an_honest_receiver_is_sent_everything() {
    let place = stocked();
    let mut bytes = 0;
    place
        .attack("honest", PUT, |w| {
            receive(w, |_, message| {
                if let Message::Data(piece) = message {
                    bytes += piece.length;
                }
                None
            });
        })
        .ok();
    assert_eq!(bytes, 9 << 20);
}

/// To a name that is not there content comes before anything is answered. Once all that was named is settled the receiver may
/// end: it need not be told that all was sent.
#[test]
fn content_for_a_new_name_comes_unasked_and_an_end_that_is_known_needs_no_word() {
    let place = Place::new();
    place.tmp.file("tree/a", "content of a");
    place.tmp.file("tree/sub/b", "content of b");
    for (absent, name) in [(true, "nothing is there"), (false, "a file is there")] {
        let outcome = place.attack(name, PUT, |w| {
            w.greet();
            let not_found =
                Trouble { code: bcmr_engine::error::Code::NotFound.number(), ..Trouble::default() };
            loop {
                match w.hear().unwrap().kind {
                    kind::STAT if absent => w.say(&Message::Error(not_found.clone())),
                    kind::STAT => w.say(&Message::Info(file(b"x", 1))),
                    _ => break,
                };
            }
            let (mut dirs, mut batches, mut ended, mut all) = (Vec::new(), Vec::new(), 0, None);
            // Whether content that was asked for is still to come.
            let (mut answered, mut is_owed) = (false, false);
            while is_owed || all != Some((ended, batches.len() as u64)) || ended != dirs.len() as u64 {
                let said = w.hear().unwrap();
                match said.message() {
                    Message::Operand { dir, .. } | Message::Dir { id: dir, .. } => dirs.push(dir),
                    Message::Files { batch, inline, .. } if !answered => {
                        assert_eq!(inline, absent, "{name}");
                        answered = true;
                        for dir in &dirs {
                            w.say(&Message::DirIs { dir: *dir, state: DirState::New });
                        }
                        batches.push(batch);
                        let entries = if inline { Vec::new() } else { vec![0] };
                        is_owed = !inline;
                        w.say(&Message::Wants { batch, entries });
                        continue;
                    }
                    Message::Files { batch, .. } => {
                        batches.push(batch);
                        w.say(&Message::Wants { batch, entries: Vec::new() });
                    }
                    Message::Contents { batch, .. } => {
                        is_owed = false;
                        w.say(&Message::Wants { batch, entries: Vec::new() });
                    }
                    Message::DirEnd { .. } => ended += 1,
                    Message::AllNamed { dirs, batches } => all = Some((dirs, batches)),
                    Message::AllSent => panic!("{name}: it may be said only once this is settled"),
                    _ => {}
                }
                if answered && matches!(said.message(), Message::Dir { .. }) {
                    let dir = *dirs.last().unwrap();
                    w.say(&Message::DirIs { dir, state: DirState::New });
                }
            }
            let counts = [2, 2, 0, 24, 0, 0, 0];
            w.say(&Message::Summary { counts, codes: Vec::new(), cancelled: false });
            assert!(w.until(kind::DONE).is_some());
        });
        outcome.ok();
    }
}

/// What breaks the rules is said of the machine, and of no path on it.
#[test]
fn who_broke_the_rules_is_named() {
    for op in [None, Some(Op::Receive), Some(Op::TalkTo)] {
        let outcome = stocked().attack("who", PUT, |w| {
            w.transfer();
            w.until(kind::OPERAND);
            match op {
                // A batch that was not offered.
                None => w.say(&Message::Wants { batch: 77, entries: vec![0] }),
                Some(op) => w.say(&Message::Error(Trouble {
                    code: Code::Protocol.number(),
                    op: op.number(),
                    note: Note { reason: Reason::NotSendersMessage.number(), about: vec![(0, b"Answer")] },
                    ..Trouble::default()
                })),
            };
            w.hold();
        });
        let said = outcome.failed().said();
        assert!(said.contains("'host'") && !said.contains("'host:"), "{op:?}: {said}");
    }
}

/// A receiver that says it has stopped answers nothing more, and is not waited for.
#[test]
fn a_stop_is_believed_before_the_end() {
    let place = stocked();
    let outcome = place.attack("stopped", PUT, |w| {
        w.transfer();
        w.say(&Message::Summary { counts: [0; 7], codes: Vec::new(), cancelled: true });
        let _until_it_ends = w.until(kind::DONE);
        while w.hear().is_some() {}
    });
    outcome.failed();
}

/// Answers to what was never asked: an error, and no success.
#[test]
fn answers_to_nothing() {
    type Send = fn(&mut Wire) -> bool;
    let scripts: [(&str, Send); 17] = [
        ("summary too early", |w| {
            w.say(&Message::Summary { counts: [3, 2, 0, 9, 0, 0, 0], codes: vec![], cancelled: false })
        }),
        ("wants of no batch", |w| w.say(&Message::Wants { batch: 99, entries: vec![0] })),
        ("a directory that was not asked about", |w| {
            w.say(&Message::DirIs { dir: 99, state: DirState::New })
        }),
        ("a file that is not on offer", |w| {
            w.say(&Message::Resume { file: 99, wanted: true, from: 0, flags: 0 })
        }),
        ("close of nothing", |w| w.say(&Message::Close { file: 99 })),
        ("again of nothing", |w| w.say(&Message::Reread { file: 99, at: 0, bytes: 1 })),
        ("values of nothing", |w| w.say(&Message::Compute { file: 99, first: 0, count: 1 })),
        ("blocks of nothing", |w| {
            w.say(&Message::MissingBlocks { file: 99, first: 0, nonce: [0; 32], bits: &[1] })
        }),
        ("a question", |w| w.say(&Message::Ask { id: 1, path: b"/etc/passwd" })),
        ("entries", |w| w.say(&operand(1, dir(b"x")))),
        ("everything was sent", |w| w.say(&Message::AllSent)),
        ("a request", |w| w.say(&Message::Stat { path: b"secret", follow: true })),
        ("a get", |w| w.say(&Message::Get { policy: policy(0), paths: vec![b"secret"], names: None })),
        ("a greeting", |w| w.say(&Message::Hello(bcmr_wire::handshake::hello(ALL, [1; 32], b"x", None)))),
        ("done", |w| w.say(&Message::Done)),
        ("noise", |w| w.bytes(&noise(3, 5000))),
        ("an error", |w| {
            let words = Trouble { code: 3, op: 1, path: b"p", note: in_words(b"no"), errno: 0 };
            w.say(&Message::Error(words))
        }),
    ];
    for (what, script) in scripts {
        let place = stocked();
        let mut leaked = false;
        let outcome = place.attack(what, PUT, |w| {
            let mut said = false;
            receive(w, |w, message| {
                if matches!(message, Message::Operand { .. }) && !said {
                    said = true;
                    script(w);
                }
                if let Message::Error(_) = message {
                    return Some(false);
                }
                leaked |= matches!(message, Message::Files { contents, .. } if contents.windows(6).any(|w| w == b"nobody"));
                None
            });
        });
        outcome.failed();
        assert!(!leaked, "{what}");
    }
}

/// Says the same 20,000 times, at one go.
fn again_and_again(w: &mut Wire, message: &Message<'_>) -> bool {
    let mut once = Vec::new();
    message.encode(&mut once).unwrap();
    w.bytes(&once.repeat(20_000))
}

/// What is asked about what is on offer, but cannot be.
#[test]
fn answers_that_are_too_much() {
    type Send = fn(&mut Wire, u64) -> bool;
    let scripts: [(&str, Send); 7] = [
        ("from beyond the end", |w, file| {
            w.say(&Message::Resume { file, wanted: true, from: 1 << 40, flags: 0 })
        }),
        ("wanted twice", |w, file| {
            let again = Message::Resume { file, wanted: true, from: 0, flags: 0 };
            w.say(&again) && w.say(&again)
        }),
        ("again from beyond the end", |w, file| {
            w.say(&Message::Resume { file, wanted: true, from: 0, flags: 0 })
                && w.say(&Message::Reread { file, at: 1 << 40, bytes: 1 << 20 })
        }),
        ("again by the gigabyte", |w, file| {
            w.say(&Message::Resume { file, wanted: true, from: 0, flags: 0 });
            again_and_again(w, &Message::Reread { file, at: 0, bytes: 9 << 20 })
        }),
        ("values of a million blocks", |w, file| w.say(&Message::Compute { file, first: 0, count: 1 << 20 })),
        ("values again and again", |w, file| {
            again_and_again(w, &Message::Compute { file, first: 0, count: 3 })
        }),
        ("blocks that nobody has offered", |w, file| {
            w.say(&Message::MissingBlocks { file, first: 1 << 30, nonce: [0; 32], bits: &[0xff, 0xff] })
        }),
    ];
    for (what, script) in scripts {
        let place = stocked();
        let outcome = place.attack(what, PUT, |w| {
            let mut said = false;
            receive(w, |w, message| match message {
                Message::Large { file, .. } if !said => {
                    said = true;
                    script(w, *file);
                    Some(true)
                }
                Message::Error(_) => Some(false),
                _ => None,
            });
        });
        outcome.failed();
    }
    // Contents of a batch: an entry that there is not, one twice.
    for entries in [vec![4000], vec![0, 1, 2, 3, 4, 5]] {
        let place = stocked();
        let outcome = place.attack("entries that are not there", PUT, |w| {
            receive(w, |w, message| match message {
                Message::Operand { dir, .. } => {
                    w.say(&Message::DirIs { dir: *dir, state: DirState::There });
                    Some(true)
                }
                Message::Files { batch, inline: false, .. } => {
                    w.say(&Message::Wants {
                        batch: *batch,
                        entries: entries.iter().map(|e| e % 1024).collect(),
                    });
                    Some(true)
                }
                Message::Error(_) => Some(false),
                _ => None,
            });
        });
        outcome.failed();
    }
}

/// V5: it refuses at any time, listening or not; and the client comes to its end within 5 s. What counts is how long it
/// waits, for on a busy machine the rest takes as long as it takes; the wall clock has its own limit, `HUNG`.
#[test]
fn refusals_at_any_time() {
    // How many pieces of a large file come first; with the last all of them do.
    let rows = [
        (0, 0),
        (1 << 10, 0),
        (100 << 10, 0),
        (3 << 20, 0),
        (3 << 20, usize::MAX),
        (12 << 20, 8),
        (12 << 20, usize::MAX),
        (64 << 20, 1),
    ];
    for (n, (bytes, pieces)) in rows.into_iter().enumerate() {
        let place = Place::new();
        let some = noise(2, bytes.min(1 << 20));
        place.tmp.file("tree/f", some.repeat(bytes.div_ceil(1 << 20)));
        for listens in [true, false] {
            // An ordinary run tries each with one that listens or one that does not.
            if !in_slice(n + usize::from(listens), 2) {
                continue;
            }
            let name = format!("{bytes} bytes, {pieces} pieces, {listens}");
            let outcome = place.attack(&name, PUT, |w| {
                w.transfer();
                if pieces > 0 {
                    w.say(&Message::DirIs { dir: 1, state: DirState::New });
                    if w.until(kind::LARGE).is_some() {
                        w.say(&Message::Resume { file: 1, wanted: true, from: 0, flags: 0 });
                        let mut come = 0;
                        while come < pieces && w.hear().is_some_and(|said| said.kind != kind::FILE_END) {
                            come += 1;
                        }
                        assert!(come > 0, "{name}");
                    }
                }
                let words =
                    Trouble { code: 3, op: 1, path: b"x", note: in_words(b"it leads outside"), errno: 0 };
                w.say(&Message::Error(words));
                if listens {
                    w.until(kind::DONE);
                } else {
                    std::thread::sleep(Duration::from_secs(1));
                }
            });
            let outcome = outcome.failed();
            assert!(outcome.waited < Duration::from_secs(5), "{name}: {outcome:?}");
        }
    }
}

/// What it counts and tells is only its word: the status says what it says, and no number breaks anything.
#[test]
fn counts_and_tales() {
    let end = |counts: [u64; 7], codes: Vec<u64>, cancelled: bool| {
        let place = stocked();
        let args = ["copy", "-rv", "--progress=always", "tree", "host:x"];
        let outcome = place.run("counts", &args, |w| {
            receive(w, |w, message| {
                if !matches!(message, Message::AllSent) {
                    return None;
                }
                let evil = b"\x1b]0;owned\x07\n\x9b2J";
                let words =
                    || Trouble { code: 9999, op: 9999, path: evil, note: in_words(evil), errno: u32::MAX };
                for event in [
                    Event::Item { action: 0, src: evil, dst: evil, bytes: u64::MAX },
                    Event::Hashed { dst: evil, hash: [0; 32] },
                    Event::Resumed { dst: evil, bytes: u64::MAX, restarted: 9999, repaired: u64::MAX },
                    Event::Resumed { dst: evil, bytes: u64::MAX, restarted: 0, repaired: u64::MAX },
                    Event::Note(in_words(evil)),
                    Event::Note(Note { reason: 9999, about: vec![(9998, evil)] }),
                    Event::Warning(words()),
                    Event::Failed(words()),
                ] {
                    w.say(&Message::Report(event));
                    w.say(&Message::Landed { items: u64::MAX, bytes: u64::MAX - 5 });
                }
                w.say(&Message::Summary { counts, codes: codes.clone(), cancelled });
                w.until(kind::DONE);
                Some(false)
            });
        });
        let told = [&outcome.out[..], &outcome.err[..]].concat();
        let raw = |b: &u8| *b == 7 || *b == 0x9b;
        assert!(!told.iter().any(raw), "{:?}", String::from_utf8_lossy(&told));
        assert!(!told.windows(4).any(|w| w == b"\x1b]0;"));
        assert!(!outcome.said().contains("panicked"), "{}", outcome.said());
        assert!(outcome.code < 1000 && outcome.code != 101);
        outcome.code
    };
    assert_ne!(end([u64::MAX; 7], vec![65535, 0, 1, 255], false), 0);
    assert_ne!(end([0, 0, 0, 0, 0, 1, 0], vec![], false), 0);
    assert_ne!(end([0; 7], vec![], true), 0);
    let _whatever = end([u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX, 0, u64::MAX], vec![], false);
}

/// On a terminal nothing of the other side's steers it either.
#[test]
fn words_on_a_terminal() {
    crate::needs!(has_tool("script"), "there is no script(1)");
    let place = stocked();
    let wire = place.tmp.dir("wire-tty");
    let (evil, shown) = ("\u{1b}]0;owned\u{7}\u{1b}[2Jevil", place.tmp.p("wire-tty/shown"));
    // What ssh says goes the same way as what a server says.
    let ssh = wire.join("ssh");
    std::fs::write(&ssh, format!("printf '%s\\n' '{evil}' >&2; exit 255\n")).unwrap();
    let command = format!(
        "{BCMR} copy -r --ssh 'sh {}' --remote-program peer {} host:x; {BCMR} ls --ssh 'sh {}' --remote-program peer host:x",
        ssh.display(),
        place.tmp.p("tree").display(),
        ssh.display()
    );
    let mut line = Line::new(std::path::Path::new("script")).args(["-qec", &command]).args([&shown]);
    line.0.stdout(std::process::Stdio::null());
    let _status = line.run();
    let told = std::fs::read(&shown).unwrap();
    assert!(told.windows(4).any(|w| w == b"evil"), "{}", String::from_utf8_lossy(&told));
    for bad in [&b"\x1b]0;"[..], b"\x1b[2J", b"\x07"] {
        assert!(!told.windows(bad.len()).any(|w| w == bad), "{:?}", String::from_utf8_lossy(&told));
    }
}

/// L1, L3: what is no host is not handed to any program.
#[test]
fn hosts_that_are_options() {
    for host in ["-oProxyCommand=x", "-lroot@h", "h\nx", "h;x", "$(x)", "h h", "`x`", "h|x", "-"] {
        let place = stocked();
        let mut called = false;
        let there = format!("{host}:x");
        let outcome = place.attack(host, &["copy", "-r", "--", "tree", &there], |w| {
            called = w.hear().is_some();
        });
        // As a name of a file here it may be fine; but no host is called.
        assert!(!called, "{host}");
        drop(outcome);
    }
    // The twin: a host of one letter is a host.
    let place = stocked();
    let mut called = false;
    place.attack("h", &["copy", "-r", "tree", "h:x"], |w| called = w.greet()).failed();
    assert!(called && !place.tmp.p("h:x").exists());
}

/// A receiver of a move may have taken away what was sent to it, as it was sent, and nothing else.
#[test]
fn only_what_was_sent_is_taken_away() {
    type Change = fn(&mut Taken<'_>);
    let table: [(&str, bool, Change, u64); 8] = [
        ("honest", true, |_| {}, 1),
        ("another size", false, |one| one.size += 1, 1),
        ("another time", false, |one| one.mtime.nsec ^= 1, 1),
        ("another change", false, |one| one.ctime.sec -= 1, 1),
        ("another file", false, |one| one.ino += 1, 1),
        ("what was left out", false, |one| one.name = b"out.o", 1),
        ("a name that leads elsewhere", false, |one| one.name = b"sub", 1),
        ("a directory of nobody", false, |_| {}, 77),
    ];
    for (what, goes, change, dir) in table {
        let place = stocked();
        let out = place.tmp.file("tree/out.o", "content of a");
        fs_times_of(&place.tmp.p("tree/a"), &out);
        let mut left = None;
        let words = ["move", "-e", "*.o", "tree", "host:x"];
        place.run(what, &words, |w| {
            let mut seen = None;
            receive(w, |w, message| match message {
                Message::Files { dir: 1, entries, .. } => {
                    let a = entries.iter().find(|entry| entry.name == b"a").unwrap();
                    seen = Some((a.ino, a.nlink, a.size, a.mtime, a.ctime));
                    None
                }
                Message::AllSent => {
                    let (ino, nlink, size, mtime, ctime) = seen.unwrap();
                    let mut one = Taken { name: b"a", ino, nlink, size, mtime, ctime };
                    change(&mut one);
                    if one.name == b"out.o" {
                        one = taken(b"out.o", &out);
                    }
                    w.say(&Message::TakeAway { dir, names: vec![one] });
                    let mut said = w.hear();
                    while said.as_ref().is_some_and(|said| {
                        matches!(
                            said.message(),
                            Message::Trouble(_) | Message::Found { .. } | Message::Ping { .. }
                        )
                    }) {
                        said = w.hear();
                    }
                    if let Some(Message::TookAway { left: n }) = said.as_ref().map(Said::message) {
                        left = Some(n);
                    }
                    None
                }
                _ => None,
            });
        });
        let answer = match (goes, dir) {
            (true, _) => Some(0),
            (_, 1) => Some(1),
            _ => None,
        };
        assert_eq!((left, place.tmp.p("tree/a").exists()), (answer, !goes), "{what}");
        assert!(
            out.exists() && place.tmp.p("tree/sub/b").exists() && place.tmp.p("tree/big").exists(),
            "{what}"
        );
    }
    // Where nothing was to be moved, nothing goes.
    let place = stocked();
    place.attack("of a copy", PUT, |w| {
        receive(w, |w, message| {
            if *message == Message::AllSent {
                w.say(&Message::TakeAway { dir: 1, names: Vec::new() });
            }
            None
        });
    });
    assert!(place.tmp.p("tree/a").exists());
}

/// What lies beside an operand was not sent, even where the receiver knows it well; and what would only be moved is not moved.
#[test]
fn what_was_not_sent_is_not_taken_away() {
    for (what, words) in [
        ("beside the operand", &["move", "tree/a", "host:x"][..]),
        ("of a dry run", &["move", "-n", "tree", "host:x"]),
    ] {
        let place = stocked();
        let beside = place.tmp.file("tree/beside", "of others");
        let mut said = false;
        let outcome = place.run(what, words, |w| {
            receive(w, |w, message| {
                let Message::Files { dir, .. } = *message else { return None };
                if !std::mem::replace(&mut said, true) {
                    let one = taken(b"beside", &beside);
                    w.say(&Message::TakeAway { dir, names: vec![one] });
                }
                None
            });
        });
        outcome.fair().failed();
        assert!(said && beside.exists() && place.tmp.p("tree/a").exists(), "{what}");
    }
}

/// What is at `path`, as one who knows it well would name it.
fn taken<'n>(name: &'n [u8], path: &std::path::Path) -> Taken<'n> {
    let info = std::fs::metadata(path).unwrap();
    let time = |sec, nsec: i64| Time { sec, nsec: nsec.try_into().unwrap() };
    Taken {
        name,
        ino: info.ino(),
        nlink: info.nlink(),
        size: info.len(),
        mtime: time(info.mtime(), info.mtime_nsec()),
        ctime: time(info.ctime(), info.ctime_nsec()),
    }
}

/// A directory that has got the place of one that was sent stays, and so does one with something in it.
#[test]
fn only_the_directory_that_was_sent_is_taken_away() {
    for is_another in [true, false] {
        let place = stocked();
        let sub = place.tmp.p("tree/sub");
        let (mut id, mut left) = (0, None);
        let outcome = place.run("a directory", &["move", "tree", "host:x"], |w| {
            receive(w, |w, message| match *message {
                Message::Dir { id: sub, .. } => {
                    id = sub;
                    None
                }
                Message::AllSent => {
                    if is_another {
                        std::fs::rename(&sub, place.tmp.p("old")).unwrap();
                        std::fs::create_dir(&sub).unwrap();
                    }
                    w.say(&Message::TakeAway { dir: id, names: Vec::new() });
                    let answer = w.until(kind::TOOK_AWAY).unwrap();
                    let Message::TookAway { left: n } = answer.message() else { panic!("no answer") };
                    left = Some(n);
                    None
                }
                _ => None,
            });
        });
        assert!(outcome.said().contains("tree/sub"), "{is_another}: {}", outcome.said());
        assert!(left == Some(1) && sub.is_dir(), "{is_another}: {left:?}");
    }
}

/// One file gets the times of another.
fn fs_times_of(of: &std::path::Path, to: &std::path::Path) {
    let mtime = std::fs::metadata(of).unwrap().modified().unwrap();
    let times = std::fs::FileTimes::new().set_modified(mtime);
    std::fs::File::options().write(true).open(to).unwrap().set_times(times).unwrap();
}
