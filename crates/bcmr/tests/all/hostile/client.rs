//! A malicious client, to `serve --root`.

use super::peer::*;
use super::server::{data, file_end};
use crate::common::*;
use bcmr_wire::handshake::{self, Features, caps};
use bcmr_wire::message::{Codec, Compress, Entry, Hash, Kind, Message, Target, kind};
use bcmr_wire::policy::{Choice, flags};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

const ROOT: &[&str] = &["--root", "DST"];
const SECRET: &[u8] = b"nobody's business";

/// A root with an inside, and links that lead out of it and around in it.
fn fenced() -> Place {
    let place = Place::new();
    place.tmp.file("dst/pub/f", "public");
    place.tmp.file("dst/pub/deep/g", "also public");
    for (name, to) in [
        ("out", "../outside"),
        ("abs", "/"),
        ("up", ".."),
        ("pub/secret", "../../secret"),
        ("pub/away", "../../outside"),
        ("around", "pub"),
        ("proc", "/proc/self/root"),
    ] {
        symlink(to, place.dst().join(name)).unwrap();
    }
    place
}

/// Every way that is known to name something outside.
fn ways_out(place: &Place) -> Vec<Vec<u8>> {
    let top = place.tmp.path().display().to_string();
    let mut ways: Vec<String> = [
        "..",
        "../secret",
        "../outside",
        "../outside/keep",
        "pub/../../secret",
        "/../secret",
        "./../secret",
        "pub/deep/../../../secret",
        "out",
        "out/",
        "out/.",
        "out/keep",
        "abs/etc/passwd",
        "up/secret",
        "up/outside/keep",
        "pub/secret",
        "pub/away/keep",
        "pub/away/",
        "around/../../secret",
        "around/away/keep",
        "proc/etc/passwd",
        "/etc/passwd",
        "/proc/self/cwd",
        "//etc//passwd",
        "/dev/fd/0",
    ]
    .map(str::to_owned)
    .to_vec();
    ways.push(format!("{top}/secret"));
    ways.push(format!("abs{top}/secret"));
    ways.push(format!("up/../{}", "../".repeat(40)));
    ways.into_iter().map(String::into_bytes).collect()
}

/// Whether bytes hold anything that is outside.
fn leaks(bytes: &[u8]) -> bool {
    let holds = |what: &[u8]| bytes.windows(what.len()).any(|w| w == what);
    holds(SECRET) || holds(b"as it was") || holds(b"root:x:0") || holds(b"keep\n")
}

fn get<'a>(flags: u64, follow: u8, path: &'a [u8]) -> Message<'a> {
    let mut policy = policy(flags);
    policy.choices[Choice::Follow as usize] = follow;
    Message::Get { policy, paths: vec![path], names: None }
}

#[test]
fn questions_about_what_is_outside() {
    let place = fenced();
    let before = place.around();
    let ((), _) = place.serve("questions", ROOT, |w| {
        assert!(w.hello());
        for path in ways_out(&place) {
            let questions = [
                Message::Stat { path: &path, follow: true },
                Message::Stat { path: &path, follow: false },
                Message::List { path: &path },
                Message::Hash { path: &path },
                Message::Usage { path: &path, numbers: vec![] },
                Message::Mkdir { path: &path, mode: 0o777 },
            ];
            for question in questions {
                w.say(&question);
                loop {
                    let said = w.hear().expect("an answer");
                    let shown = String::from_utf8_lossy(&path).into_owned();
                    match said.message() {
                        // A link may be looked at: it is inside. What it leads to may not.
                        Message::Info(one) => {
                            let inside = matches!(one.kind, Kind::Link) || one.size == 6;
                            assert!(inside, "{shown}: {one:?}");
                        }
                        Message::Page { entries } => {
                            let bad = entries
                                .iter()
                                .any(|e| matches!(e.name, b"keep" | b"secret" | b"passwd" | b"etc"));
                            assert!(!bad, "{shown}: {entries:?}");
                            continue;
                        }
                        Message::Ok { hash: Some(hash) } => panic!("{shown}: {hash:?}"),
                        Message::Used { files, dirs, bytes, .. } => {
                            assert!(files + dirs == 1 && bytes < 64, "{shown}: {files} {dirs} {bytes}");
                        }
                        _ => {}
                    }
                    break;
                }
            }
        }
        // The twins.
        for (path, size) in [(&b"pub/f"[..], 6), (b"/pub/f", 6), (b"around/f", 6), (b"pub//deep/./g", 11)] {
            w.say(&Message::Stat { path, follow: true });
            let said = w.hear().unwrap();
            assert!(matches!(said.message(), Message::Info(e) if e.size == size), "{:?}", said.message());
        }
        w.say(&Message::Mkdir { path: b"pub/new", mode: 0o755 });
        assert_eq!(w.hear().unwrap().kind, kind::OK);
    });
    assert_eq!(before, place.around());
    assert!(place.dst().join("pub/new").is_dir());
}

#[test]
fn files_from_outside() {
    let place = fenced();
    for follow in [0, 1, 2] {
        for path in ways_out(&place) {
            let title = format!("get {} {follow}", String::from_utf8_lossy(&path));
            let (got, _) = place.besiege(&title, ROOT, |w| {
                w.hello();
                w.say(&get(flags::RECURSIVE | flags::GITIGNORE, follow, &path));
                w.take_all()
            });
            assert!(!leaks(&got), "{title}: {}", String::from_utf8_lossy(&got));
        }
    }
    // By a list of names, too.
    for base in [&b"."[..], b"pub", b"around"] {
        let mut names = ways_out(&place);
        names.extend([b"secret".to_vec(), b"away/keep".to_vec(), b"f".to_vec()]);
        names.retain(|n| !n.is_empty());
        let (got, _) = place.besiege("names", ROOT, |w| {
            w.hello();
            let names = names.iter().map(Vec::as_slice).collect();
            let mut policy = policy(flags::RECURSIVE);
            policy.choices[Choice::Follow as usize] = 2;
            w.say(&Message::Get { policy, paths: vec![base], names: Some(names) });
            w.take_all()
        });
        assert!(!leaks(&got), "names: {}", String::from_utf8_lossy(&got));
        assert!(base == b"." || got.windows(6).any(|w| w == b"public"), "the twin");
    }
    // The twin.
    for path in [&b"pub"[..], b"/pub/", b"pub/f", b"."] {
        let (got, _) = place.besiege("honest get", ROOT, |w| {
            w.hello();
            w.say(&get(flags::RECURSIVE, 0, path));
            w.take_all()
        });
        assert!(got.windows(6).any(|w| w == b"public"), "{}", String::from_utf8_lossy(path));
    }
}

#[test]
fn files_to_outside() {
    let place = fenced();
    for path in ways_out(&place) {
        for inplace in [0, 1] {
            for name in [&b"keep"[..], b"secret"] {
                let title = format!("put {name:?} {}", String::from_utf8_lossy(&path));
                place.besiege(&title, ROOT, |w| {
                    w.hello();
                    let mut policy = policy(flags::RECURSIVE | flags::FORCE);
                    policy.choices[Choice::Landing as usize] = inplace;
                    w.put_file(policy, &path, name, b"evil")
                });
            }
        }
    }
    // What a client plants it cannot go through either.
    let place = fenced();
    place.besiege("through its own links", ROOT, |w| {
        w.hello();
        for target in [Target::Guess, Target::Exactly, Target::Into] {
            for name in ["own", "own/", "own/keep", "out", "pub/away"] {
                w.say(&Message::Put {
                    policy: policy(flags::RECURSIVE),
                    target,
                    path: name.as_bytes(),
                    operands: 1,
                    items: true,
                });
                w.say(&operand(1, link(b"own", b"../outside")));
                w.say(&on_offer(1, 1, vec![link(b"own", b"../outside")]));
                w.say(&Message::AllSent);
                loop {
                    let Some(said) = w.hear() else { return };
                    match said.kind {
                        kind::SUMMARY => break,
                        kind::ERROR => {
                            w.say(&Message::Done);
                            return;
                        }
                        _ => {}
                    }
                }
                w.say(&Message::Done);
                w.put_file(policy(flags::RECURSIVE), b"own/keep", b"keep", b"evil");
            }
        }
    });
    // The twin.
    let place = fenced();
    let fine = place.besiege("honest put", ROOT, |w| {
        w.hello();
        w.put_file(policy(0), b"pub", b"h", b"fine") && w.put_file(policy(0), b"around/i", b"i", b"fine")
    });
    assert!(fine);
    assert_eq!(std::fs::read(place.dst().join("pub/h")).unwrap(), b"fine");
    assert_eq!(std::fs::read(place.dst().join("pub/i")).unwrap(), b"fine");
}

/// V2: a directory is swapped for a link out of the root, again and again, while everything is tried.
#[test]
fn races_at_the_root() {
    let place = fenced();
    place.tmp.file("outside/f", SECRET);
    place.tmp.file("outside/deep/g", SECRET);
    place.tmp.file("outside/large", vec![0; 100_000]);
    symlink("../outside", place.dst().join("swap")).unwrap();
    let attacker = Attacker::swapping(&place.dst(), "pub", "swap");
    let before = place.around();
    let (mut inside, mut rounds) = (0, 0);
    let until = Instant::now() + Duration::from_secs(5);
    let (least, enough) = if all_cases() { (240, 20) } else { (80, 7) };
    while rounds < least || (inside < enough && Instant::now() < until) {
        place.serve("races", ROOT, |w| {
            w.hello();
            for _ in 0..40 {
                rounds += 1;
                let paths: [&[u8]; 3] = [b"pub", b"pub/f", b"pub/deep"];
                w.say(&get(flags::RECURSIVE, 2, paths[rounds % 3]));
                let (got, _) = w.take_all();
                assert!(!leaks(&got), "{}", String::from_utf8_lossy(&got));
                inside += usize::from(got.windows(6).any(|w| w == b"public"));
                w.say(&Message::List { path: b"pub" });
                while let Some(said) = w.hear() {
                    match said.message() {
                        Message::Page { entries } => {
                            assert!(entries.iter().all(|e| e.name != b"keep"), "listed outside");
                        }
                        _ => break,
                    }
                }
                w.say(&Message::Hash { path: b"pub/f" });
                let said = w.hear().unwrap_or_else(|| panic!("gone after {rounds}"));
                if let Message::Ok { hash: Some(hash) } = said.message() {
                    assert_ne!(hash, *blake3::hash(SECRET).as_bytes(), "hashed outside");
                }
                w.say(&Message::Usage { path: b"pub", numbers: vec![] });
                let said = w.hear().unwrap();
                if let Message::Used { bytes, .. } = said.message() {
                    assert!(bytes < 50_000, "measured outside: {bytes}");
                }
                let name = format!("new{rounds}");
                w.say(&Message::Mkdir { path: format!("pub/{name}").as_bytes(), mode: 0o755 });
                w.hear().unwrap();
                let mut how = policy(flags::RECURSIVE | flags::FORCE);
                how.choices[Choice::Landing as usize] = u8::from(rounds % 2 == 0);
                if !w.put_file(how, b"pub/deep", b"g", b"also public") {
                    // A target that leads outside at that moment ends a connection: the next one goes on.
                    return;
                }
            }
        });
        assert_eq!(before, place.around(), "something outside has changed");
    }
    drop(attacker);
    assert!(inside > 0, "nothing was ever got: this tests nothing");
}

#[test]
fn a_server_that_only_lets_read() {
    let place = fenced();
    let inner = tree(&place.dst()).len();
    place.besiege("read-only", &["--root", "DST", "--read-only"], |w| {
        w.hello();
        w.say(&Message::Mkdir { path: b"pub/new", mode: 0o755 });
        assert_eq!(w.hear().unwrap().kind, kind::ERROR);
        // Reading with everything that writes beside: sessions, hashes, checkpoints.
        let mut how = policy(flags::RECURSIVE | flags::HASHES);
        for resume in 0..5 {
            how.choices[Choice::Resume as usize] = resume;
            w.say(&Message::Get { policy: how.clone(), paths: vec![b"pub"], names: None });
            let (got, _) = w.take_all();
            assert!(
                got.windows(6).any(|w| w == b"public"),
                "the twin {resume}: {}",
                String::from_utf8_lossy(&got)
            );
        }
        for resume in 0..5 {
            how.choices[Choice::Resume as usize] = resume;
            w.say(&Message::Put {
                policy: how.clone(),
                target: Target::Guess,
                path: b"pub",
                operands: 1,
                items: true,
            });
            assert_eq!(w.hear().unwrap().kind, kind::ERROR);
            w.say(&Message::Done);
        }
    });
    assert_eq!(tree(&place.dst()).len(), inner);
}

/// What breaks the protocol ends the connection; the server says so, and comes to an end itself.
#[test]
fn requests_that_are_none() {
    type Send = fn(&mut Wire);
    let scripts: [(&str, Send); 20] = [
        ("nothing", |_| ()),
        ("noise", |w| {
            w.bytes(&noise(7, 100_000));
        }),
        ("HTTP", |w| {
            w.bytes(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        }),
        ("request without a greeting", |w| {
            w.say(&Message::List { path: b"/" });
        }),
        ("version 0", |w| {
            w.raw(kind::HELLO, &[0, 0]);
        }),
        ("version 65535", |w| {
            w.raw(kind::HELLO, &[255, 255]);
        }),
        ("empty greeting", |w| {
            w.raw(kind::HELLO, b"");
        }),
        ("greeting twice", |w| {
            w.hello();
            w.hello();
        }),
        ("answers", |w| {
            w.hello();
            w.say(&Message::Ok { hash: None });
        }),
        ("entries without a transfer", |w| {
            w.hello();
            w.say(&operand(1, dir(b"x")));
        }),
        ("done without a transfer", |w| {
            w.hello();
            w.say(&Message::Done);
        }),
        ("transfer in a transfer", |w| {
            w.hello();
            let put = Message::Put {
                policy: policy(0),
                target: Target::Guess,
                path: b"pub",
                operands: 1,
                items: false,
            };
            w.say(&put);
            w.say(&put);
        }),
        ("unknown flags", |w| {
            w.hello();
            let (kind, mut payload) = changed(&get(0, 0, b"pub"), b"pub", b"pub");
            payload[2] = 0xff;
            w.raw(kind, &payload);
        }),
        ("unknown choice", |w| {
            w.hello();
            let (kind, mut payload) = changed(&get(0, 0, b"pub"), b"pub", b"pub");
            payload[8] = 77;
            w.raw(kind, &payload);
        }),
        ("transfer of nothing", |w| {
            w.hello();
            w.say(&Message::Put {
                policy: policy(0),
                target: Target::Guess,
                path: b"pub",
                operands: 0,
                items: false,
            });
        }),
        ("names for a transfer that has none", |w| {
            w.hello();
            w.say(&Message::Names { names: vec![b"pub/secret"] });
            w.say(&get(flags::RECURSIVE, 0, b"pub"));
            assert!(w.until(kind::ERROR).is_some());
        }),
        ("join without a door", |w| {
            w.say(&Message::Hello(bcmr_wire::handshake::hello(ALL, [8; 32], b"peer", None)));
            w.say(&Message::Join { secret: [0; 32], path: b"/var/run/docker.sock", index: 1 });
        }),
        ("join by a relative path", |w| {
            w.say(&Message::Hello(bcmr_wire::handshake::hello(ALL, [8; 32], b"peer", None)));
            w.say(&Message::Join { secret: [0; 32], path: b"../../run/x", index: 1 });
        }),
        ("16 MiB and a byte", |w| {
            w.hello();
            w.bytes(&((16 << 20) + 1u32).to_le_bytes());
        }),
        ("half a frame", |w| {
            w.hello();
            w.bytes(b"\xff\x00\x00\x00\x11abc");
        }),
    ];
    for (what, script) in scripts {
        let place = fenced();
        place.besiege(what, ROOT, |w| {
            script(w);
            w.close();
            w.hold();
        });
    }
}

/// A socket that is not a meeting's is never connected to, and no guess opens a door.
#[test]
fn joins_that_are_stolen() {
    let place = fenced();
    let socket = place.tmp.p("outside/sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    for path in [socket.clone(), Path::new("../outside/sock").to_owned(), place.dst().join("out/sock")] {
        use std::os::unix::ffi::OsStrExt;
        place.serve("docker.sock", ROOT, |w| {
            w.say(&Message::Hello(bcmr_wire::handshake::hello(ALL, [8; 32], b"peer", None)));
            w.say(&Message::Join { secret: [1; 32], path: path.as_os_str().as_bytes(), index: 1 });
            assert_eq!(w.until(kind::ERROR).map(|s| s.kind), Some(kind::ERROR));
            w.close();
            w.hold();
        });
    }
    assert!(listener.accept().is_err(), "somebody has knocked");
    // A real door, and a wrong word.
    place.serve("streams", ROOT, |w| {
        w.hello();
        for count in [1u64, 32, 1, 32] {
            w.say(&Message::Streams { count });
            let token = w.until(kind::TOKEN).expect("a token");
            let Message::Token { secret, path } = token.message() else { panic!() };
            let mut wrong = secret;
            wrong[0] ^= 1;
            let path = path.to_vec();
            place.serve("joins", ROOT, |other| {
                other.say(&Message::Hello(bcmr_wire::handshake::hello(ALL, [8; 32], b"peer", None)));
                other.say(&Message::Join { secret: wrong, path: &path, index: 1 });
                assert!(other.until(kind::ERROR).is_some());
            });
        }
        w.raw(kind::STREAMS, b"\xff\xff\xff\xff\x0f");
        w.hold();
    });
}

/// A list that comes in many messages is bounded as one, in names and in bytes.
#[test]
fn lists_without_end() {
    let place = fenced();
    let path = vec![b'a'; 4000];
    for (what, names) in [("short", vec![b"a".as_slice(); 1 << 18]), ("long", vec![&path; 2000])] {
        place.besiege(what, ROOT, |w| {
            w.hello();
            let (mut sent, mut bytes) = (0, Vec::new());
            Message::Names { names }.encode(&mut bytes).unwrap();
            // A gigabyte, were there no end to it; in an ordinary run the half of one.
            let most = if all_cases() { 200 } else { 67 };
            while sent < most && w.bytes(&bytes) {
                sent += 1;
            }
            // What it has not read yet is thrown away for a while, so that its word arrives; how much that is does not
            // count, memory does.
            w.polite = false;
            w.close();
            assert!(w.until(kind::ERROR).is_some(), "{what}: {sent} messages, as much as one likes");
        });
    }
}

/// Patterns that are bombs, lists without end, names by the million: bounded in time and memory.
#[test]
fn bombs_in_requests() {
    let nests = format!("{}a{}", "(".repeat(200), "{9}){9}".repeat(100));
    let bombs: [&[u8]; 6] = [
        b"(((((a{1,100}){1,100}){1,100}){1,100}){1,100})",
        b"(a*)*(a*)*(a*)*b",
        nests.as_bytes(),
        b"\\pL{1000}\\pL{1000}",
        b"(?i)\xff",
        b"[",
    ];
    let place = fenced();
    let long = "a".repeat(250);
    place.tmp.file(format!("dst/pub/{long}"), "x");
    place.besiege("regexes", ROOT, |w| {
        w.hello();
        for bomb in bombs {
            let count = (bcmr_wire::limits::REGEXES_BYTES_MAX / bomb.len()).min(50);
            let policy =
                bcmr_wire::message::Policy { regexes: vec![bomb; count], ..policy(flags::RECURSIVE) };
            w.say(&Message::Get { policy, paths: vec![b"pub"], names: None });
            if bomb == bombs[4] {
                // No text: a broken protocol, which ends the connection.
                return;
            }
            let _either = w.take_all();
        }
    });
    let globs: [&[u8]; 4] = [
        b"**/**/**/**/**/**/a*a*a*a*a*a*a*b",
        b"{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}",
        b"[a-",
        b"*?*?*?*?*?*?*?*?*b",
    ];
    place.besiege("globs", ROOT, |w| {
        w.hello();
        for glob in globs {
            let policy =
                bcmr_wire::message::Policy { rules: vec![(false, glob); 500], ..policy(flags::RECURSIVE) };
            w.say(&Message::Get { policy, paths: vec![b"pub"], names: None });
            let _either = w.take_all();
        }
    });
    place.besiege("names by the hundred thousand", ROOT, |w| {
        w.hello();
        let names = vec![&b"f"[..]; 100_000];
        w.say(&Message::Get { policy: policy(0), paths: vec![b"pub"], names: Some(names) });
        // No server listens, then one does.
        std::thread::sleep(Duration::from_millis(300));
        w.close();
        w.hold();
    });
    place.besiege("operands by the ten thousand", ROOT, |w| {
        w.hello();
        let paths = vec![&b"pub/nothing"[..]; 20_000];
        w.say(&Message::Get { policy: policy(0), paths, names: None });
        w.take_all()
    });
    place.besiege("questions without listening", ROOT, |w| {
        w.hello();
        for n in 0..20_000u64 {
            if !w.say(&Message::Stat { path: b"pub/f", follow: n % 2 == 0 }) {
                break;
            }
            if n == 200 {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    });
    place.besiege("many puts", ROOT, |w| {
        w.hello();
        for n in 0..100 {
            assert!(w.put_file(policy(0), b"pub", format!("p{n}").as_bytes(), b"fine"), "{n}");
        }
    });
}

/// A client that asks for much and takes nothing: the server waits, and does not grow; when the client goes, it ends.
#[test]
fn clients_that_stop() {
    let place = fenced();
    place.tmp.file("dst/big", noise(1, 1 << 20).repeat(24));
    let whole = names(&place.dst().join("pub")).len();
    type Send = fn(&mut Wire);
    fn begin(w: &mut Wire, compress: Compress) {
        w.hello();
        let policy = bcmr_wire::message::Policy { compress, ..policy(flags::RECURSIVE) };
        w.say(&Message::Get { policy, paths: vec![b"big"], names: None });
        while let Some(said) = w.hear() {
            match said.message() {
                Message::Operand { dir, .. } => {
                    w.say(&Message::DirIs { dir, state: bcmr_wire::message::DirState::There });
                }
                Message::Large { file, .. } => {
                    w.say(&Message::Resume { file, wanted: true, from: 0, flags: 0 });
                    return;
                }
                _ => {}
            }
        }
    }
    let scripts: [(&str, Send); 7] = [
        ("does not read", |w| {
            begin(w, Compress::None);
            std::thread::sleep(Duration::from_millis(1500));
        }),
        ("goes in the middle", |w| begin(w, Compress::Zstd)),
        ("asks again and again", |w| {
            begin(w, Compress::None);
            let mut once = Vec::new();
            Message::Reread { file: 1, at: 0, bytes: 1 << 20 }.encode(&mut once).unwrap();
            w.bytes(&once.repeat(100_000));
        }),
        ("asks for what is not there", |w| {
            begin(w, Compress::None);
            w.say(&Message::Reread { file: 1, at: 1 << 60, bytes: 1 << 20 });
            w.hold();
        }),
        ("asks for all values", |w| {
            begin(w, Compress::None);
            w.say(&Message::Compute { file: 1, first: 0, count: 1 << 40 });
            w.close();
            w.hold();
        }),
        ("says that it has more than there is", |w| {
            w.hello();
            w.say(&get(0, 0, b"big"));
            w.until(kind::LARGE);
            w.say(&Message::Resume { file: 1, wanted: true, from: 1 << 62, flags: 0 });
            w.close();
            w.hold();
        }),
        ("sends and never ends", |w| {
            w.hello();
            w.say(&Message::Put {
                policy: policy(0),
                target: Target::Guess,
                path: b"pub/n",
                operands: 1,
                items: false,
            });
            w.say(&operand(1, file(b"n", 64 << 20)));
            w.say(&Message::Large { file: 1, dir: 1, entry: file(b"n", 64 << 20) });
            w.until(kind::RESUME);
            w.say(&data(1, 0, None, &[1; 1 << 20]));
            std::thread::sleep(Duration::from_millis(300));
        }),
    ];
    for (what, script) in scripts {
        // That it ends is asserted there.
        let ((), _) = place.serve(what, ROOT, script);
        assert_eq!(names(&place.dst().join("pub")).len(), whole, "{what}");
    }
}

/// Whatever a server is at when its client goes away, it goes too: the bound is that of every test here.
#[test]
fn clients_that_go_away() {
    let place = fenced();
    let pub_dir = place.dst().join("pub");
    // Reading it takes a quarter of an hour.
    let endless = std::fs::File::create(pub_dir.join("endless")).unwrap();
    endless.set_len(1 << 40).unwrap();
    place.tmp.file("dst/big", noise(1, 1 << 20).repeat(24));
    std::fs::create_dir(pub_dir.join("many")).unwrap();
    for n in 0..3000 {
        let name = format!("many/{n:0>200}");
        std::fs::hard_link(place.dst().join("big"), pub_dir.join(name)).unwrap();
    }
    let whole = names(&pub_dir).len();
    type Send = fn(&mut Wire);
    let states: [(&str, Send); 9] = [
        ("before the greeting", |_| {}),
        ("in the greeting", |w| assert!(w.bytes(b"\x01\x00"))),
        ("idle", |w| assert!(w.hello())),
        ("reading, and what it reads is not taken", |w| {
            w.hello();
            w.say(&get(0, 0, b"big"));
            w.until(kind::LARGE);
            w.say(&Message::Resume { file: 1, wanted: true, from: 0, flags: 0 });
            w.until(kind::DATA);
        }),
        ("writing, and the rest does not come", |w| {
            w.hello();
            let policy = policy(0);
            let target = Target::Guess;
            w.say(&Message::Put { policy, target, path: b"pub/n", operands: 1, items: false });
            w.say(&operand(1, file(b"n", 64 << 20)));
            w.say(&Message::Large { file: 1, dir: 1, entry: file(b"n", 64 << 20) });
            w.until(kind::RESUME);
            w.say(&data(1, 0, None, &[1; 1 << 20]));
        }),
        ("hashing", |w| {
            w.hello();
            w.say(&Message::Hash { path: b"pub/endless" });
        }),
        ("hashing blocks", |w| {
            w.hello();
            w.say(&get(0, 0, b"pub/endless"));
            w.until(kind::LARGE);
            w.say(&Message::Compute { file: 1, first: 0, count: 1 << 18 });
        }),
        ("listing, and the list is not taken", |w| {
            w.hello();
            for _ in 0..8 {
                w.say(&Message::List { path: b"pub/many" });
            }
            w.until(kind::PAGE);
        }),
        ("counting", |w| {
            w.hello();
            w.say(&Message::Usage { path: b"pub", numbers: vec![] });
        }),
    ];
    for (what, script) in states {
        let ((), _) = place.serve(what, ROOT, script);
        assert_eq!(names(&pub_dir).len(), whole, "{what}: something is left");
    }
}

/// A client that puts lies: sizes, special files, attributes, links planted and gone through.
#[test]
fn puts_that_lie() {
    type Send = fn(&mut Wire);
    let scripts: [(&str, Send); 7] = [
        ("directory over its own link", |w| {
            w.say(&files(1, 1, vec![link(b"l", b"../../outside")], b""));
            w.say(&subdir(2, 1, b"l"));
            w.say(&files(2, 2, vec![file(b"keep", 4)], &contents(&[b"evil"])));
        }),
        ("entry through its own link", |w| {
            w.say(&files(1, 1, vec![link(b"keep", b"../../outside/keep")], b""));
            w.say(&files(2, 1, vec![file(b"keep", 4)], &contents(&[b"evil"])));
        }),
        ("huge", |w| {
            w.say(&Message::Large { file: 1, dir: 1, entry: file(b"big", 1 << 62) });
            w.say(&Message::Large { file: 2, dir: 1, entry: Entry { blocks: 0, ..file(b"holes", 1 << 62) } });
            w.until(kind::RESUME);
            w.say(&data(2, 1 << 61, None, &[1; 1 << 20]));
        }),
        ("devices", |w| {
            w.say(&on_offer(1, 1, vec![Entry { rdev: 0x103, ..entry(Kind::CharDevice, b"null") }]));
        }),
        ("wrong value", |w| {
            w.say(&Message::Large { file: 1, dir: 1, entry: file(b"big", 1 << 20) });
            w.until(kind::RESUME);
            w.say(&data(1, 0, Some([9; 32]), &[1; 1 << 20]));
            w.say(&file_end(1));
        }),
        ("bomb", |w| {
            let bytes = [&b"\x80\x80\x80\x02"[..], &[0x1f, b'a', 1, 0], &[0xff; 4096], &[0]].concat();
            w.say(&Message::Files {
                batch: 1,
                dir: 1,
                inline: true,
                codec: Codec::Lz4,
                entries: vec![file(b"f", 3)],
                contents: &bytes,
            });
        }),
        ("operand that climbs", |w| {
            w.say_with(&subdir(2, 1, b"QZQZ"), b"\x04QZQZ", b"\x02..");
        }),
    ];
    for resume in [0, 1] {
        for (what, script) in scripts {
            let place = fenced();
            let before = place.around();
            let (counts, _) = place.serve(what, ROOT, |w| {
                w.hello();
                let mut how = policy(flags::RECURSIVE);
                how.choices[Choice::Resume as usize] = resume;
                w.say(&Message::Put {
                    policy: how,
                    target: Target::Guess,
                    path: b"pub",
                    operands: 1,
                    items: false,
                });
                w.say(&operand(1, dir(b"x")));
                script(w);
                w.say(&Message::AllSent);
                let said = loop {
                    let Some(said) = w.hear() else { break None };
                    if matches!(said.kind, kind::SUMMARY | kind::ERROR) {
                        break Some(said);
                    }
                };
                w.say(&Message::Done);
                w.close();
                w.hold();
                said.map(|said| matches!(said.message(), Message::Summary { counts, .. } if counts[5] == 0))
            });
            assert_eq!(before, place.around(), "{what}");
            assert_ne!(counts, Some(true), "{what}: all is well, it says");
            for never in ["x/big", "x/f", "x/null"] {
                assert!(!place.dst().join("pub").join(never).exists(), "{what}: {never}");
            }
        }
    }
}

const BLOCK: usize = 4 << 20;
/// As many as a file needs that blocks are asked about for.
const BLOCKS: usize = 4;

/// One block of what is claimed. Made when it is needed: what this process holds counts for the programs it starts.
fn block(n: usize) -> Vec<u8> {
    noise(77 + n as u64, BLOCK)
}

/// The names of the blocks, which a client that knows a file's hashes knows.
fn values() -> Vec<Hash> {
    use blake3::hazmat::HasherExt;
    let one = |n| {
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset((n * BLOCK) as u64);
        hasher.update(&block(n)).finalize_non_root()
    };
    (0..BLOCKS).map(one).collect()
}

/// Claims the blocks for a new file in `root`, and proves them by `tag`. Returns which the server says it has, and
/// whether it asks for those all the same.
fn claim(place: &Place, what: &str, root: &str, tag: fn(&Hash, &[u8]) -> Hash) -> (Vec<bool>, bool) {
    let (found, _) = place.serve(what, &["--root", root], |w| {
        let with_store = Features { caps: ALL.caps | caps::DEDUP, ..ALL };
        w.say(&Message::Hello(handshake::hello(with_store, [8; 32], b"peer", None)));
        w.until(kind::WELCOME).unwrap();
        let (policy, size) = (policy(flags::DEDUP), (BLOCKS * BLOCK) as u64);
        w.say(&Message::Put { policy, target: Target::Guess, path: b"claimed", operands: 1, items: false });
        w.say(&operand(1, file(b"claimed", size)));
        w.until(kind::DIR_IS).unwrap();
        w.say(&Message::Large { file: 1, dir: 1, entry: file(b"claimed", size) });
        w.until(kind::RESUME).unwrap();
        w.say(&Message::HaveBlocks { file: 1, first: 0, hashes: values() });
        let said = w.until(kind::MISSING_BLOCKS).unwrap();
        let Message::MissingBlocks { nonce, bits, .. } = said.message() else { unreachable!() };
        let has: Vec<bool> = (0..BLOCKS).map(|n| bits[n / 8] >> (n % 8) & 1 == 0).collect();
        let tags: Vec<Hash> = (0..BLOCKS).filter(|n| has[*n]).map(|n| tag(&nonce, &block(n))).collect();
        let claims = !tags.is_empty();
        if claims {
            w.say(&Message::Proof { file: 1, first: 0, tags });
        }
        let asked = claims && w.until(kind::REREAD).is_some();
        w.close();
        w.hold();
        (has, asked)
    });
    assert!(!place.tmp.p(root).join("claimed").exists(), "{what}: a file nobody has sent");
    found
}

/// C2: a client that knows the hash of a block gets nothing for it, neither in the same root nor in another one.
#[test]
fn a_hash_gives_nobody_a_block() {
    let place = Place::new();
    let mut big = std::fs::File::create(place.tmp.p("big")).unwrap();
    (0..BLOCKS).for_each(|n| big.write_all(&block(n)).unwrap());
    drop(big);
    place.tmp.dir("other");
    // An honest upload, so that the store has them; it lies where the servers below look for it.
    let ssh = place.tmp.p("wire-honest");
    let far = format!(
        "while [ \"$1\" != -- ]; do shift; done; shift 2\nexport HOME='{}'\nexec sh -c \"exec $1 --root '{}'\"\n",
        place.tmp.p("outside").display(),
        place.dst().display()
    );
    std::fs::write(&ssh, far).unwrap();
    let ssh = format!("--ssh=sh '{}'", ssh.display());
    let program = format!("--remote-program={BCMR}");
    bcmr(["copy", &ssh, &program, "big", "host:mine"]).cwd(place.tmp.path()).run().ok();
    let forged = |_: &Hash, _: &[u8]| [5; 32];
    let root = place.dst().display().to_string();
    let (has, asked) = claim(&place, "without a proof", &root, forged);
    assert_eq!((has, asked), (vec![true; BLOCKS], true), "known, and to be proved");
    let stale = |_: &Hash, block: &[u8]| *blake3::keyed_hash(&[0; 32], block).as_bytes();
    let (_, asked) = claim(&place, "a proof of another time", &root, stale);
    assert!(asked);
    let other = place.tmp.p("other").display().to_string();
    let (has, _) = claim(&place, "in another root", &other, forged);
    assert_eq!(has, [false; BLOCKS], "what landed in another root is not even admitted");
}

/// V10: the kernel's wall is up before a byte of the client's is read, and without `--root` there is none.
#[test]
fn the_second_wall_is_up_before_the_first_word() {
    needs!(has_tool("strace"), "there is no strace");
    let place = Place::new();
    let trace = place.tmp.p("trace");
    let calls = |args: &[&str]| {
        let mut serve = std::process::Command::new("strace");
        serve.args(["-f", "-e", "trace=landlock_restrict_self,poll,read", "-o"]).arg(&trace);
        serve.args([BCMR, "serve"]).args(args).env("HOME", place.tmp.p("outside"));
        let (silence, voice) = std::io::pipe().unwrap();
        drop(voice);
        serve.stdin(silence).stdout(std::process::Stdio::null()).status().unwrap();
        std::fs::read_to_string(&trace).unwrap()
    };
    let dst = place.dst().display().to_string();
    let confined = calls(&["--root", &dst]);
    needs!(!confined.contains("EOPNOTSUPP") && !confined.contains("ENOSYS"), "this kernel has no Landlock");
    let wall = confined.find("landlock_restrict_self(").expect("a wall");
    assert!(confined[wall..].lines().next().unwrap().ends_with("= 0"), "{confined}");
    assert!(confined[wall..].contains("read("), "the client is read after it: {confined}");
    assert!(!calls(&[]).contains("landlock"), "what its user may, no less");
}
