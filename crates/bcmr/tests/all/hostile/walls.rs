//! What a server behind `--root` never does for a client: say anything of what is outside, make a device, open one.

use super::peer::*;
use crate::common::remote::Far;
use crate::common::*;
use bcmr_engine::error::Reason;
use bcmr_wire::message::{Codec, DirState, Entry, Event, Kind, Message, Policy, Target, kind};
use bcmr_wire::policy::{Choice, flags};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;

const ROOT: &[&str] = &["--root", "DST"];

// ---- what is outside ----

/// Links of a client's that lead, or would lead, to what may or may not be outside.
fn links(place: &Place) -> Vec<(String, String)> {
    let top = place.tmp.path().display().to_string();
    let pairs = [
        ("rel", "../maybe".to_owned()),
        ("rel slash", "../maybe/".to_owned()),
        ("below", "../maybe/x".to_owned()),
        ("abs", format!("{top}/maybe")),
        ("abs below", format!("{top}/maybe/x")),
        ("round", "pub/../../maybe".to_owned()),
        ("by proc", format!("/proc/self/root{top}/maybe")),
        ("by cwd", "/proc/self/cwd/maybe".to_owned()),
        ("twice", "rel/x".to_owned()),
        ("home", "../outside/.cache".to_owned()),
    ];
    pairs.map(|(name, to)| (name.to_owned(), to)).to_vec()
}

/// Every path that a client may try with those.
fn paths(place: &Place) -> Vec<Vec<u8>> {
    let top = place.tmp.path().display().to_string();
    let mut all: Vec<String> = Vec::new();
    for (name, _) in links(place) {
        all.extend(["", "/", "/.", "/x", "/x/", "/..", "/../maybe"].map(|end| format!("{name}{end}")));
    }
    // An ordinary run takes a third: of each link some ends, and some links with each end.
    let mut all: Vec<String> = sliced(all, 3).collect();
    all.extend(
        ["../maybe", "../maybe/", "..", "/..", "pub/../../maybe", "pub/../../maybe/x"].map(String::from),
    );
    all.extend([format!("{top}/maybe"), format!("{top}/maybe/x/")]);
    all.into_iter().map(String::into_bytes).collect()
}

/// A root as it is for every run, at the same place.
fn rebuild(place: &Place) {
    let dst = place.dst();
    for name in names(&dst) {
        let path = dst.join(name);
        let gone = if fs::symlink_metadata(&path).unwrap().is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        gone.unwrap();
    }
    place.tmp.file("dst/pub/f", "public");
    let mut all = vec![dst.clone(), dst.join("pub"), dst.join("pub/f")];
    for (name, to) in links(place) {
        symlink(to, dst.join(&name)).unwrap();
        all.push(dst.join(name));
    }
    for one in all {
        // Reading counts as access once, which an answer tells: it is in the future already.
        use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT};
        let last_access = Timespec { tv_sec: 4_000_000_000, tv_nsec: 0 };
        let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access, last_modification };
        rustix::fs::utimensat(CWD, &one, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// A name, and what makes the thing.
type Outside = (&'static str, fn(&Path));

/// What may be outside.
const OUTSIDE: [Outside; 5] = [
    ("nothing", |_| ()),
    ("a file", |at| fs::write(at, "there").unwrap()),
    ("a directory", |at| fs::create_dir(at).unwrap()),
    ("a directory with x", |at| {
        fs::create_dir(at).unwrap();
        fs::write(at.join("x"), "there").unwrap();
    }),
    ("a link", |at| symlink("secret", at).unwrap()),
];

/// Everything that is said until `last` answers are there.
fn answer(w: &mut Wire, ends: &[u8]) -> Vec<Said> {
    let mut all = Vec::new();
    while let Some(said) = w.hear() {
        let over = ends.contains(&said.kind);
        all.push(said);
        if over {
            break;
        }
    }
    all
}

/// The answers to a transfer to there. The entry is offered, and its content given, as an honest client does it.
fn put(w: &mut Wire, policy: &Policy<'_>, target: Target, path: &[u8], entry: Entry<'_>) -> Vec<Said> {
    let put = Message::Put { policy: policy.clone(), target, path, operands: 1, items: true };
    w.say(&put);
    w.say(&Message::Operand {
        path: entry.name,
        whole: false,
        origin: origin(),
        dir: 1,
        entry: entry.clone(),
    });
    let is_dir = entry.kind == Kind::Dir;
    let mut all = Vec::new();
    loop {
        let Some(said) = w.hear() else { return all };
        all.push(said.clone());
        match said.message() {
            Message::DirIs { state, .. } => {
                if state != DirState::Refused && is_dir {
                    w.say(&Message::DirEnd { dir: 1, partial: false });
                } else if state != DirState::Refused {
                    w.say(&on_offer(1, 1, vec![entry.clone()]));
                    continue;
                }
                w.say(&Message::AllSent);
            }
            Message::Wants { entries, .. } if entries.is_empty() => {
                w.say(&Message::AllSent);
            }
            Message::Wants { .. } => {
                let bytes = contents(&[b"evil"]);
                w.say(&Message::Contents { batch: 1, codec: Codec::Raw, bytes: &bytes });
            }
            Message::Error(_) | Message::Summary { .. } => {
                w.say(&Message::Done);
                return all;
            }
            _ => {}
        }
    }
}

/// The number of this machine, as a server here knows it: with it a client may claim inodes of this machine.
fn origin() -> u64 {
    static ORIGIN: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *ORIGIN.get_or_init(|| {
        let place = Place::new();
        place.tmp.file("dst/f", "x");
        let (origin, _) = place.serve("which machine", ROOT, |w| {
            w.hello();
            w.say(&Message::Get { policy: policy(0), paths: vec![b"f"], names: None });
            let said = w.until(kind::OPERAND).unwrap();
            let Message::Operand { origin, .. } = said.message() else { unreachable!() };
            origin
        });
        origin
    })
}

type Answers = Vec<(String, Vec<Said>)>;

/// Asks everything that only looks. Of the ways to get, an ordinary run takes a quarter: for the next path, and
/// for the other `turn`, other ones.
fn ask_all(place: &Place, w: &mut Wire, turn: usize) -> Answers {
    let mut all = Vec::new();
    for (n, path) in paths(place).into_iter().enumerate() {
        let mut way = n + 2 * turn;
        let shown = String::from_utf8_lossy(&path).into_owned();
        let questions = [
            Message::Stat { path: &path, follow: true },
            Message::Stat { path: &path, follow: false },
            Message::List { path: &path },
            Message::Hash { path: &path },
            Message::Usage { path: &path, numbers: vec![] },
        ];
        for question in questions {
            w.say(&question);
            let ends = [kind::INFO, kind::DONE, kind::OK, kind::USED, kind::ERROR];
            all.push((format!("{question:?}"), answer(w, &ends)));
        }
        for follow in [0, 2] {
            for how in [flags::RECURSIVE, flags::RECURSIVE | flags::GITIGNORE | flags::KEEP_XATTR] {
                let mut policy = policy(how);
                policy.choices[Choice::Follow as usize] = follow;
                let name: &[u8] = path.strip_prefix(b"/").unwrap_or(&path);
                for names in [None, Some(vec![name])] {
                    way += 1;
                    if !in_slice(way, 4) {
                        continue;
                    }
                    let title = format!("get {shown} {follow} {how} {}", names.is_some());
                    let paths = vec![if names.is_some() { &b"."[..] } else { &path }];
                    w.say(&Message::Get { policy: policy.clone(), paths, names });
                    all.push((title, taken(w)));
                }
            }
        }
    }
    all
}

/// What a client that has nothing and wants everything is sent.
fn taken(w: &mut Wire) -> Vec<Said> {
    let mut all = Vec::new();
    while let Some(said) = w.hear() {
        all.push(said.clone());
        match said.message() {
            Message::Operand { dir, .. } | Message::Dir { id: dir, .. } => {
                // Of a new one contents may come along with names or not, as it happens.
                w.say(&Message::DirIs { dir, state: DirState::There });
            }
            Message::Files { batch, .. } => {
                w.say(&Message::Wants { batch, entries: Vec::new() });
            }
            Message::AllSent => {
                w.say(&Message::Summary { counts: [0; 7], codes: Vec::new(), cancelled: false });
            }
            Message::Error(_) => {
                w.say(&Message::Done);
                return all;
            }
            Message::Done => return all,
            _ => {}
        }
    }
    all
}

/// Asks everything that would change something, with targets and entries of every kind. A client that is refused has
/// said too much by then for its connection to go on, so each has one of its own.
fn put_all(place: &Place) -> Answers {
    let asks = [
        (file(b"n", 4), flags::RECURSIVE | flags::HASHES),
        (dir(b"n"), flags::RECURSIVE | flags::HASHES),
        (link(b"n", b"../maybe"), flags::RECURSIVE | flags::HASHES),
        (file(b"n", 4), flags::RECURSIVE | flags::DRY_RUN),
        (dir(b"n"), flags::RECURSIVE | flags::DRY_RUN | flags::COMPARE | flags::EXTRA),
    ];
    let mut all = Vec::new();
    let paths =
        ["rel", "rel/", "rel/x", "abs", "abs/", "abs/x", "below", "below/", "../maybe", "pub/../../maybe/"];
    for (n, path) in paths.into_iter().enumerate() {
        for (way, (target, (entry, how))) in [Target::Guess, Target::Exactly, Target::Into]
            .into_iter()
            .flat_map(|target| asks.iter().map(move |ask| (target, ask)))
            .enumerate()
        {
            // An ordinary run takes a third: of each path each target and each ask, and each target with each ask.
            if !in_slice(n + way / asks.len() + way % asks.len(), 3) {
                continue;
            }
            let title = format!("put {path} {target:?} {:?} {how:#x}", entry.kind);
            let mut policy = policy(*how);
            policy.choices[Choice::Landing as usize] = u8::from(how & flags::HASHES != 0);
            rebuild(place);
            let (said, _) = place.serve(&title, ROOT, |w| {
                w.hello();
                put(w, &policy, target, path.as_bytes(), entry.clone())
            });
            all.push((title, said));
        }
        rebuild(place);
        let (said, _) = place.serve("mkdir", ROOT, |w| {
            w.hello();
            w.say(&Message::Mkdir { path: path.as_bytes(), mode: 0o755 });
            w.hear().into_iter().collect()
        });
        all.push((format!("mkdir {path}"), said));
    }
    all
}

#[track_caller]
fn same_answers(what: &str, first: &Answers, now: &Answers) {
    assert_eq!(first.len(), now.len());
    // Threads send side by side: what is said counts, and not its order, nor how often it was counted on the way.
    let all = |said: &[Said]| {
        let on_the_way = |s: &Said| matches!(s.message(), Message::Found { last: false, .. });
        // What is inside was made anew, and has other inodes by that.
        let shown = |said: &Said| match said.message() {
            Message::Info(entry) => format!("{:?}", Message::Info(Entry { dev: 0, ino: 0, ..entry })),
            message => format!("{message:?}"),
        };
        let mut all: Vec<String> = said.iter().filter(|s| !on_the_way(s)).map(shown).collect();
        all.sort();
        all
    };
    for ((title, was), (_, is)) in first.iter().zip(now) {
        assert_eq!(all(was), all(is), "{title}: what is outside ({what}) changes the answer");
    }
}

/// An answer about what is outside is one and the same, whatever is there: for each question, and each way out.
#[test]
fn what_is_outside_changes_no_answer() {
    let place = Place::new();
    rebuild(&place);
    let maybe = place.tmp.p("maybe");
    let mut first: Option<[Answers; 3]> = None;
    for (what, make) in OUTSIDE {
        make(&maybe);
        let (asked, _) = place.serve("questions", ROOT, |w| {
            w.hello();
            ask_all(&place, w, 0)
        });
        let (read_only, _) = place.serve("read-only", &["--root", "DST", "--read-only"], |w| {
            w.hello();
            ask_all(&place, w, 1)
        });
        let now = [asked, read_only];
        match &first {
            None => first = Some([now[0].clone(), now[1].clone(), Vec::new()]),
            Some(first) => {
                same_answers(what, &first[0], &now[0]);
                same_answers(what, &first[1], &now[1]);
            }
        }
        let _gone = fs::remove_file(&maybe).or_else(|_| fs::remove_dir_all(&maybe));
    }
    // Inside it does change them.
    place.serve("inside", ROOT, |w| {
        w.hello();
        w.say(&Message::Stat { path: b"pub/f", follow: false });
        assert_eq!(w.hear().unwrap().kind, kind::INFO);
        w.say(&Message::Stat { path: b"pub/g", follow: false });
        assert_eq!(w.hear().unwrap().kind, kind::ERROR);
    });
}

/// The same of what would be put there.
#[test]
fn what_is_outside_changes_no_landing() {
    let place = Place::new();
    let maybe = place.tmp.p("maybe");
    origin();
    let mut first: Option<Answers> = None;
    for (what, make) in [OUTSIDE[0], OUTSIDE[1], OUTSIDE[3]] {
        make(&maybe);
        let before = fs::symlink_metadata(&maybe).ok().map(|m| (m.mode(), m.mtime_nsec()));
        let now = put_all(&place);
        assert_eq!(before, fs::symlink_metadata(&maybe).ok().map(|m| (m.mode(), m.mtime_nsec())), "{what}");
        match &first {
            None => first = Some(now),
            Some(first) => same_answers(what, first, &now),
        }
        let _gone = fs::remove_file(&maybe).or_else(|_| fs::remove_dir_all(&maybe));
    }
}

/// A client that claims the inode of a directory above the root learns nothing; one in the root is the twin: what would
/// be copied into itself is refused.
#[test]
fn inodes_above_the_root_are_not_told() {
    let place = Place::new();
    rebuild(&place);
    let claims = |of: &Path| {
        let meta = fs::metadata(of).unwrap();
        (meta.dev(), meta.ino())
    };
    origin();
    let ask = |w: &mut Wire, (dev, ino): (u64, u64), how: u64| {
        let entry = Entry { dev, ino, ..dir(b"n") };
        let all = put(w, &policy(flags::RECURSIVE | how), Target::Into, b"pub", entry);
        fs::remove_dir(place.dst().join("pub/n")).ok();
        all
    };
    for how in [0, flags::DRY_RUN, flags::DRY_RUN | flags::COMPARE] {
        place.serve("inodes", ROOT, |w| {
            w.hello();
            let nobodys = ask(w, (claims(&place.dst()).0, 1 << 50), how);
            let mut above = place.dst().canonicalize().unwrap();
            while above.pop() {
                assert_eq!(ask(w, claims(&above), how), nobodys, "{} {how:#x}", above.display());
            }
            let into_itself = ask(w, claims(&place.dst().join("pub")), how);
            assert_ne!(into_itself, nobodys, "the twin {how:#x}");
            assert_ne!(ask(w, claims(&place.dst()), how), nobodys, "the root is in the root {how:#x}");
        });
    }
}

/// `-L` and `-H` of a client are not passed over in silence: what was to be followed is refused by name, and everything
/// else is copied. With `-P` links arrive as links.
#[test]
fn links_that_were_to_be_followed_are_refused_by_name() {
    let here = Tmp::new();
    here.file("root/tree/f", "public");
    symlink("f", here.p("root/tree/inside")).unwrap();
    symlink("/etc/hostname", here.p("root/tree/out")).unwrap();
    let far = Far::pipe().serving(&format!("--root {}", here.p("root").display()));
    let copy = |flags: &str, from: &str, to: &str| {
        let words = flags.split_whitespace().map(std::ffi::OsString::from);
        far.bcmr("copy").args(words).args([far.at(from), here.p(to).into()]).run()
    };
    for (flags, from) in [
        ("-rL", "tree"),
        ("-L", "tree/inside"),
        ("-H", "tree/inside"),
        ("-rH", "tree/inside"),
        ("", "tree/out"),
    ] {
        let ran = copy(flags, from, "gone").code(8);
        assert!(ran.err.contains("none; -P copies it as a link"), "{flags} {from}: {}", ran.err);
        assert!(fs::symlink_metadata(here.p("gone/inside")).is_err(), "{flags} {from}");
        assert_eq!(flags == "-rL", fs::read(here.p("gone/f")).is_ok(), "{flags} {from}: the rest");
        let _gone = fs::remove_dir_all(here.p("gone"));
    }
    for (flags, from) in
        [("-rP", "tree"), ("-r", "tree"), ("--archive", "tree"), ("-P", "tree/inside"), ("-rH", "tree")]
    {
        copy(flags, from, "there").ok();
        let link = if from == "tree" { "there/inside" } else { "there" };
        assert_eq!(fs::read_link(here.p(link)).unwrap(), Path::new("f"), "{flags} {from}");
        let there = here.p("there");
        fs::remove_dir_all(&there).or_else(|_| fs::remove_file(&there)).unwrap();
    }
}

// ---- special files ----

const EVERYTHING: u64 = flags::RECURSIVE
    | flags::SPECIALS
    | flags::STRICT
    | flags::KEEP_MODE
    | flags::KEEP_OWNER
    | flags::KEEP_TIMES;

/// What a client hears of failed entries, and whether all was well.
fn failures(said: &[Said]) -> Vec<String> {
    let mut found = Vec::new();
    for one in said {
        if let Message::Report(Event::Failed(t)) = one.message() {
            found.push(format!("{} {:?}", String::from_utf8_lossy(t.path), Reason::of_number(t.note.reason)));
        }
    }
    found
}

/// V11: even where root serves, and whether the target or the list says so, a client makes no device.
#[test]
fn a_client_makes_no_device_behind_a_wall() {
    needs!(is_root(), "only root makes devices");
    let node = |kind| Entry { rdev: 0x103, mode: 0o666, ..entry(kind, b"node") };
    for kind in [Kind::CharDevice, Kind::BlockDevice] {
        for landing in [0, 1] {
            let place = Place::new();
            rebuild(&place);
            let (said, _) = place.serve("devices", ROOT, |w| {
                w.hello();
                let mut policy = policy(EVERYTHING);
                policy.choices[Choice::Landing as usize] = landing;
                put(w, &policy, Target::Into, b"pub", node(kind))
            });
            let failed = failures(&said);
            assert!(
                failed.iter().any(|f| f.contains("pub/node") && f.contains("KindAtConfinedServer")),
                "{failed:?}"
            );
            assert!(fs::symlink_metadata(place.dst().join("pub/node")).is_err(), "{kind:?}");
            // The twins: a FIFO in the root, and the device where nothing is confined.
            let (said, _) = place.serve("a FIFO", ROOT, |w| {
                w.hello();
                put(w, &policy(EVERYTHING), Target::Into, b"pub", entry(Kind::Fifo, b"fifo"))
            });
            assert!(failures(&said).is_empty(), "{:?}", failures(&said));
            assert!(fs::symlink_metadata(place.dst().join("pub/fifo")).unwrap().file_type().is_fifo());
            let free = place.dst().join("pub");
            let (said, _) = place.serve("unconfined", &[], |w| {
                w.hello();
                put(w, &policy(EVERYTHING), Target::Into, free.as_os_str().as_bytes(), node(kind))
            });
            assert!(failures(&said).is_empty(), "{:?}", failures(&said));
            assert_eq!(fs::symlink_metadata(free.join("node")).unwrap().rdev(), 0x103);
        }
    }
}

/// A device that is held is an empty file, behind a wall as well; and no client says what is held but by the entry itself.
#[test]
fn what_is_held_is_what_the_entry_says() {
    let place = Place::new();
    rebuild(&place);
    let attrs: Vec<(&[u8], &[u8])> = vec![
        (b"user.own", b"stays"),
        (b"user.rsync.%stat", b"104755 0,0 0:0"),
        (b"user.rsync.security.capability", b"all of them"),
    ];
    let node = Entry { rdev: 0x103, mode: 0o666, uid: 7, gid: 8, attrs, ..entry(Kind::CharDevice, b"node") };
    let (said, _) = place.serve("a device that is held", ROOT, |w| {
        w.hello();
        put(w, &policy(EVERYTHING | flags::KEEP_XATTR | flags::HELD_AT_DEST), Target::Into, b"pub", node)
    });
    assert!(failures(&said).is_empty(), "{:?}", failures(&said));
    let path = place.dst().join("pub/node");
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    let get = |attr: &str| {
        let mut value = [0; 64];
        rustix::fs::lgetxattr(&path, attr, &mut value[..]).ok().map(|n| value[..n].to_vec())
    };
    assert_eq!(get("user.rsync.%stat").as_deref(), Some(&b"20666 1,3 7:8"[..]));
    assert_eq!(get("user.own").as_deref(), Some(&b"stays"[..]));
    assert_eq!(get("user.rsync.security.capability"), None);
}

/// V11: what is special and is there already is neither written into nor read.
#[test]
fn nothing_special_is_opened_behind_a_wall() {
    let place = Place::new();
    rebuild(&place);
    let fifo = place.dst().join("pub/fifo");
    mkfifo(&fifo);
    // A reader has it open, so that opening it to write would succeed.
    let mut ear = fs::File::options().read(true).custom_flags(0o4000).open(&fifo).unwrap();
    let mut specials = vec!["fifo"];
    if is_root() {
        mknod(&place.dst().join("pub/null"), rustix::fs::FileType::CharacterDevice, 0o666, 0x103);
        specials.push("null");
    }
    place.serve("special files", ROOT, |w| {
        w.hello();
        for name in &specials {
            let path = format!("pub/{name}");
            for resume in 0..5 {
                let mut how = policy(flags::RECURSIVE);
                how.choices[Choice::Landing as usize] = 1;
                how.choices[Choice::Resume as usize] = resume;
                let said = put(w, &how, Target::Exactly, path.as_bytes(), file(name.as_bytes(), 4));
                assert!(!failures(&said).is_empty(), "{path}, resume {resume}: {said:?}");
            }
            w.say(&Message::Hash { path: path.as_bytes() });
            assert_eq!(w.hear().unwrap().kind, kind::ERROR, "{path}");
        }
    });
    let mut heard = Vec::new();
    // Nothing to read and no writer is an end; a writer would have left something.
    ear.read_to_end(&mut heard).ok();
    assert!(heard.is_empty(), "{heard:?}");
}

// ---- memory ----

/// Patterns as large as they may be, of the kinds that cost most: memory stays bounded, with --read-only too. What is
/// larger is refused before any of it is compiled.
#[test]
fn patterns_as_large_as_they_may_be() {
    use bcmr_wire::limits::{REGEXES_BYTES_MAX, RULE_BYTES_MAX, RULES_BYTES_MAX, RULES_MAX};
    let place = Place::new();
    rebuild(&place);
    let fill = |unit: &str, most: usize| unit.repeat(most / unit.len()).into_bytes();
    let regexes = ["a", "(a|b)", "[a-z]", "\\pL", ".*x", "a{1,9}", "(?i)k", "((", "a|", "\\b\\w"];
    let globs = ["a", "*", "?", "[a-z]", "{a,b}", "**/", "*a?b", "\\*"];
    let mut rows: Vec<(String, Policy<'_>)> = Vec::new();
    let all: Vec<(bool, String, Vec<u8>)> = regexes
        .iter()
        .map(|unit| (true, format!("regex {unit}"), fill(unit, REGEXES_BYTES_MAX)))
        .chain(globs.iter().map(|unit| (false, format!("glob {unit}"), fill(unit, RULES_BYTES_MAX))))
        .collect();
    for (is_regex, title, text) in &all {
        let whole = policy(flags::RECURSIVE);
        // As few long ones, and as many short ones.
        for chunk in [RULE_BYTES_MAX, 512, 16] {
            let parts: Vec<&[u8]> = text.chunks(chunk).take(RULES_MAX).collect();
            let policy = if *is_regex {
                Policy { regexes: parts, ..whole.clone() }
            } else {
                Policy { rules: parts.into_iter().map(|glob| (false, glob)).collect(), ..whole.clone() }
            };
            rows.push((format!("{title} by {chunk}"), policy));
        }
    }
    for (turn, args) in [ROOT, &["--root", "DST", "--read-only"]].into_iter().enumerate() {
        for (n, (title, policy)) in rows.iter().enumerate() {
            // An ordinary run takes each pattern in one of the three lengths, and to one of the two servers.
            if !in_slice(turn + n / 3, 2) || !in_slice(turn + n / 3 + n % 3, 3) {
                continue;
            }
            place.serve(title, args, |w| {
                w.hello();
                w.say(&Message::Get { policy: policy.clone(), paths: vec![b"pub"], names: None });
                let _either = w.take_all();
            });
        }
    }
}

/// One more byte, pattern or operand than there may be is refused as a whole.
#[test]
fn lists_that_are_longer_than_they_may_be() {
    use bcmr_wire::limits::{
        PUT_OPERANDS_MAX, REGEXES_BYTES_MAX, RULE_BYTES_MAX, RULES_BYTES_MAX, RULES_MAX,
    };
    let long = &*Vec::leak(vec![b'a'; RULE_BYTES_MAX + 1]);
    let most = &long[1..];
    let with = |policy: Policy<'static>| Message::Get { policy, paths: vec![b"pub"], names: None };
    let put = |operands| Message::Put {
        policy: policy(0),
        target: Target::Into,
        path: b"pub",
        operands,
        items: false,
    };
    let encodes = |message: Message<'_>| message.encode(&mut Vec::new()).is_ok();
    let regexes = |regexes| encodes(with(Policy { regexes, ..policy(0) }));
    let rules = |rules: Vec<&'static [u8]>| {
        let rules = rules.into_iter().map(|glob| (true, glob)).collect();
        encodes(with(Policy { rules, ..policy(0) }))
    };
    assert!(!regexes(vec![long]) && regexes(vec![most; REGEXES_BYTES_MAX / RULE_BYTES_MAX]));
    assert!(!regexes([vec![most; REGEXES_BYTES_MAX / RULE_BYTES_MAX], vec![b"a"]].concat()));
    assert!(!rules(vec![long]) && rules(vec![most; RULES_BYTES_MAX / RULE_BYTES_MAX]));
    assert!(!rules([vec![most; RULES_BYTES_MAX / RULE_BYTES_MAX], vec![b"a"]].concat()));
    assert!(!encodes(with(Policy { rules: vec![(true, b"a"); RULES_MAX + 1], ..policy(0) })));
    assert!(!encodes(put(PUT_OPERANDS_MAX + 1)) && encodes(put(PUT_OPERANDS_MAX)));
}

/// Operands, each with a name of its own, of which none ever comes.
fn operands_that_never_come(w: &mut Wire, count: u64) {
    let operands = bcmr_wire::limits::PUT_OPERANDS_MAX;
    let how = policy(flags::DRY_RUN | flags::RECURSIVE);
    w.say(&Message::Put { policy: how, target: Target::Into, path: b"pub", operands, items: false });
    // Some at one go: what is answered to them fits into a pipe.
    for first in (1..=count).step_by(100) {
        let mut out = Vec::new();
        for n in first..first + 100 {
            let name = format!("{n:0>200}");
            let entry = file(name.as_bytes(), 4);
            let path = name.as_bytes();
            Message::Operand { path, whole: false, origin: 1, dir: n, entry }.encode(&mut out).unwrap();
        }
        assert!(w.bytes(&out), "from operand {first}: nobody takes it");
        for n in first..first + 100 {
            let said = w.hear();
            assert!(said.as_ref().is_some_and(|s| s.kind != kind::ERROR), "operand {n}: {said:?}");
        }
    }
}

/// Files that are said to have several names, of each of which only one comes.
fn names_that_never_come(w: &mut Wire, count: u64) {
    let how = policy(flags::RECURSIVE | flags::KEEP_LINKS);
    w.say(&Message::Put { policy: how, target: Target::Into, path: b"pub", operands: 1, items: false });
    w.say(&operand(1, dir(b"x")));
    w.until(kind::DIR_IS).unwrap();
    let packed = contents(&[&b""[..]; 100]);
    w.through(count / 100, |n| {
        let names: Vec<String> = (0..100).map(|k| format!("{}", n * 100 + k)).collect();
        let entries = (0u64..)
            .zip(&names)
            .map(|(k, name)| Entry { ino: n * 100 + k, nlink: 1000, ..file(name.as_bytes(), 0) })
            .collect();
        let mut out = Vec::new();
        files(n, 1, entries, &packed).encode(&mut out).unwrap();
        out
    });
}

/// Operands as many as there may be, each with a name of its own, and files with several names that never come: what the
/// receiver remembers of each is small.
#[test]
fn operands_and_names_that_never_come() {
    let place = Place::new();
    rebuild(&place);
    place.serve("operands", ROOT, |w| {
        w.hello();
        operands_that_never_come(w, 20_000);
    });
    place.serve("links", ROOT, |w| {
        w.hello();
        names_that_never_come(w, 20_000);
    });
}
