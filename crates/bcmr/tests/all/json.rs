//! `docs/json.md` holds for the real program: every line parses, names are byte-exact, the summary has the last word.

use crate::table::*;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const CODES: [&str; 23] = [
    "not-found",
    "denied",
    "in-the-way",
    "is-directory",
    "not-directory",
    "link",
    "no-space",
    "read-only",
    "source-changed",
    "mismatch",
    "refused",
    "unsupported",
    "name-too-long",
    "limit",
    "special",
    "metadata-lost",
    "metadata-no-space",
    "metadata-io",
    "usage",
    "io",
    "protocol",
    "lost",
    "no-peer",
];
const ACTIONS: [&str; 9] = [
    "copied",
    "made-dir",
    "made-link",
    "hard-linked",
    "made-special",
    "renamed",
    "removed",
    "kept",
    "excluded",
];

/// The bytes of a name.
fn name(value: &Value) -> Vec<u8> {
    if let Some(text) = value.as_str() {
        return text.as_bytes().to_vec();
    }
    let digits = value["b64"].as_str().unwrap_or_else(|| panic!("no name: {value}"));
    assert_eq!(value.as_object().unwrap().len(), 1, "{value}");
    let bytes = unbase64(digits);
    assert!(std::str::from_utf8(&bytes).is_err(), "a name that is UTF-8 is a string: {value}");
    bytes
}

fn unbase64(text: &str) -> Vec<u8> {
    assert_eq!(text.len() % 4, 0, "not padded: {text}");
    let digit = |b: u8| match b {
        b'A'..=b'Z' => u32::from(b - b'A'),
        b'a'..=b'z' => u32::from(b - b'a') + 26,
        b'0'..=b'9' => u32::from(b - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("not base64: {text}"),
    };
    let mut out = Vec::new();
    for four in text.as_bytes().chunks(4) {
        let held = four.iter().take_while(|b| **b != b'=').count();
        let bits = four.iter().fold(0, |n, b| n << 6 | if *b == b'=' { 0 } else { digit(*b) });
        out.extend(&bits.to_be_bytes()[1..held]);
    }
    out
}

/// What holds for every run; returns its events.
#[track_caller]
fn events(done: &Done, verb: &str) -> Vec<Value> {
    let about = format!("{}\n{}\n{}", done.said, done.stdout, done.stderr);
    let all = done.json();
    let (first, last) = (all.first().expect(&about), all.last().unwrap());
    assert_eq!(first["event"], "start", "{about}");
    assert_eq!(first["verb"], verb, "{about}");
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"), "{about}");
    assert_eq!(last["event"], "summary", "{about}");
    assert_eq!(last["exit"].as_i64(), done.code.map(i64::from), "the summary's exit: {about}");
    assert_eq!(all.iter().filter(|e| e["event"] == "start" || e["event"] == "summary").count(), 2, "{about}");
    let mut failed = Vec::new();
    for (e, line) in all.iter().zip(done.out.split(|b| *b == b'\n')) {
        assert!(line.starts_with(br#"{"schema":1,"event":""#), "{about}");
        assert!(!line.iter().any(|b| *b < 0x20 || *b == 0x7f), "a control byte: {about}");
        match e["event"].as_str().unwrap() {
            "item" => {
                assert!(ACTIONS.contains(&e["action"].as_str().unwrap()), "{e}");
                assert!(e["bytes"].is_u64(), "{e}");
                assert!(e.get("src").or(e.get("dst")).is_some(), "{e}");
                for side in ["src", "dst"] {
                    assert!(e.get(side).is_none_or(|n| !name(n).is_empty()), "{e}");
                }
            }
            "failed" | "warning" => {
                let code = e["code"].as_str().unwrap();
                assert!(CODES.contains(&code), "{e}");
                assert!(e["op"].is_string() && e["reason"].is_string(), "{e}");
                name(&e["path"]);
                assert!(e.get("errno").is_none_or(Value::is_i64), "{e}");
                if e["event"] == "failed" && !failed.contains(&code) {
                    failed.push(code);
                }
            }
            "difference" => {
                assert!(["add", "extra", "differ"].contains(&e["change"].as_str().unwrap()), "{e}");
                assert!(e["directory"].is_boolean() && e["files"].is_u64() && e["bytes"].is_u64(), "{e}");
                assert!(!name(&e["path"]).starts_with(b"/"), "{e}");
            }
            "engine" => {
                for key in ["ring_files", "sys_files", "direct_files", "not_direct_files"] {
                    assert!(e[key].is_u64(), "{e}");
                }
                assert!(e.get("missing").is_none_or(Value::is_string), "{e}");
            }
            "receipt" => {
                for key in ["files", "bytes", "rate", "reused", "kept"] {
                    assert!(e[key].is_u64(), "{key}: {e}");
                }
                assert!(e["seconds"].is_number() && e["verb"] == verb, "{e}");
                assert!(e.get("verified").is_none_or(|v| v == "cache" || v == "device"), "{e}");
                for loss in e["lost"].as_array().unwrap() {
                    assert!(loss["op"].is_string() && loss["count"].as_u64() > Some(0), "{e}");
                    assert!(!name(&loss["example"]).is_empty(), "{e}");
                }
            }
            "start" | "summary" | "progress" | "note" => {}
            other => panic!("{other} is not in docs/json.md"),
        }
    }
    for key in ["files", "dirs", "others", "bytes", "kept", "failed", "differences"] {
        assert!(last[key].is_u64(), "{key}: {about}");
    }
    let codes: Vec<&str> = last["codes"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
    assert!(failed.iter().all(|code| codes.contains(code)), "{failed:?} {codes:?}: {about}");
    assert_eq!(last["failed"].as_u64() == Some(0), failed.is_empty(), "{about}");
    all
}

fn count(all: &[Value], event: &str, key: &str, value: &str) -> usize {
    all.iter().filter(|e| e["event"] == event && e[key] == value).count()
}

/// Names with every byte that a file system takes.
#[test]
fn names_are_byte_exact() {
    let dir = scratch();
    let mut names: Vec<Vec<u8>> = (1..=255_u8).filter(|b| *b != b'/').map(|b| vec![b'x', b]).collect();
    for odd in ["é", "\u{202e}rtl", "a\nb", "\"quoted\\", "\u{9b}2J", " ", "😀", "\u{2028}", "\u{feff}"] {
        names.push(odd.as_bytes().to_vec());
    }
    names.push(vec![0xff; 255]);
    std::fs::create_dir(at(&dir, "s")).unwrap();
    for n in &names {
        std::fs::write(at(&dir, "s").join(OsStr::from_bytes(n)), "").unwrap();
    }
    let all = events(&bcmr("copy -r --json s d", dir.path()).exits(0), "copy");
    let mut told: Vec<Vec<u8>> = Vec::new();
    for e in all.iter().filter(|e| e["event"] == "item" && e["action"] == "copied") {
        let (src, dst) = (name(&e["src"]), name(&e["dst"]));
        assert_eq!(src.strip_prefix(b"s/"), dst.strip_prefix(b"d/"), "{e}");
        told.push(src[2..].to_vec());
    }
    told.sort();
    names.sort();
    assert!(told == names, "{} of {} names came back", told.len(), names.len());
    // As an operand, in a difference, and in a failure.
    let odd = OsStr::from_bytes(b"s/\xff");
    std::fs::write(dir.path().join(odd), "").unwrap();
    let [copy, check, json] = ["copy", "check", "--json"].map(OsStr::new);
    let all = events(&bcmr_os(&[check, json, odd, OsStr::new("d")], dir.path()).exits(1), "check");
    assert_eq!(name(&all[0]["sources"][0]), b"s/\xff");
    assert_eq!(name(&all[1]["path"]), b"\xff");
    let gone = OsStr::from_bytes(b"gone\xfe");
    let all = events(&bcmr_os(&[copy, json, gone, OsStr::new("d")], dir.path()).exits(1), "copy");
    assert_eq!(name(&all[1]["path"]), b"gone\xfe");
}

#[test]
fn copies() {
    let dir = scratch();
    plant(dir.path(), "f s/a A\nf s/b.o B\nh s/c = s/a\nl s/l -> a\np s/p\nf d/s/a OLD\nf one ONE");
    let all = events(&bcmr("copy --archive --no-clobber -e *.o --json s d", dir.path()).exits(0), "copy");
    let action = |a| count(&all, "item", "action", a);
    assert_eq!(
        (action("excluded"), action("made-link"), action("made-special"), action("kept")),
        (1, 1, 1, 1)
    );
    let summary = all.last().unwrap();
    assert_eq!((summary["kept"].as_u64(), summary["failed"].as_u64()), (Some(1), Some(0)));

    let all = events(&bcmr("copy -n --json one d", dir.path()).exits(0), "copy");
    assert_eq!(all[0]["dry_run"], true);
    assert_eq!(count(&all, "item", "action", "copied"), 1);

    let all = events(&bcmr("copy -q --json one d", dir.path()).exits(0), "copy");
    assert_eq!(all.len(), 4, "-q leaves the items out; the engine and the receipt are told");
}

#[test]
fn failures() {
    let dir = scratch();
    plant(dir.path(), "f s/a A\np s/p\nf one ONE\nd d\nf file FILE");
    for (args, code, exit) in [
        ("copy -r s d", "special", 1),
        ("copy one none d", "not-found", 1),
        ("copy s d", "is-directory", 1),
        ("copy one one", "refused", 8),
        ("copy -r s s/in", "refused", 8),
        ("copy one s file", "not-directory", 1),
        ("copy -rT s file", "in-the-way", 1),
        ("copy --exclude-regex ( -r s d", "usage", 2),
        ("move none d", "not-found", 1),
        ("move one one", "refused", 8),
        ("remove none", "not-found", 1),
        ("remove s", "is-directory", 1),
        ("remove .", "refused", 8),
        ("check none d", "not-found", 2),
    ] {
        let verb = args.split(' ').next().unwrap();
        let done = bcmr(&format!("{args} --json"), dir.path()).exits(exit);
        let all = events(&done, verb);
        assert_eq!(count(&all, "failed", "code", code), 1, "{args}: {}", done.stdout);
        assert!(done.stderr.is_empty(), "nothing for people beside JSON: {args}: {}", done.stderr);
    }
    // What is wrong with the words themselves leaves standard output empty.
    for args in
        ["copy --json", "copy --json one", "copy --json --nonsense a b", "copy --json --files-from none s d"]
    {
        let done = bcmr(args, dir.path());
        assert!(
            done.stdout.is_empty() && !done.stderr.is_empty() && done.code != Some(0),
            "{args}: {done:?}"
        );
    }
}

#[test]
fn moves_removes_and_checks() {
    let dir = scratch();
    plant(dir.path(), "f s/a A\nf s/x.o O\nf d/s/own OWN\nf one ONE\nf two TWO");
    let all = events(&bcmr("check -e *.o --json s d", dir.path()).exits(1), "check");
    assert_eq!(all.last().unwrap()["differences"], 2);
    assert_eq!(count(&all, "difference", "change", "add"), 1);
    assert_eq!(count(&all, "difference", "change", "extra"), 1);
    assert_eq!(count(&all, "item", "action", "excluded"), 0, "check has items with -v only");

    let all = events(&bcmr("move --merge -e *.o --json s d", dir.path()).exits(0), "move");
    assert_eq!(count(&all, "item", "action", "renamed"), 1);
    assert_eq!(count(&all, "item", "action", "excluded"), 1);

    let all = events(&bcmr("remove -r --json s one", dir.path()).exits(0), "remove");
    assert_eq!(count(&all, "item", "action", "removed"), 3);
    assert!(all[0]["destination"].is_null());

    if let Some(far) = elsewhere() {
        let line = format!("move --json d {}", at(&far, "far").display());
        let all = events(&bcmr(&line, dir.path()).exits(0), "move");
        assert_eq!(count(&all, "item", "action", "copied"), 2);
        assert_eq!(count(&all, "item", "action", "removed"), 4, "{all:?}");
    }
}

/// Stopped by a signal: the lines so far are whole, and there is a summary that says so.
#[test]
fn stopped() {
    let dir = scratch();
    let tree: String = (0..3000).map(|i| format!("z s/d{}/f{i} 20\n", i % 20)).collect();
    plant(dir.path(), &tree);
    // More lines than a pipe holds: it stands still behind the first ones until the rest is read.
    for lines in [1, 20, 100] {
        std::fs::remove_dir_all(at(&dir, "d")).ok();
        let line = ["copy", "-r", "--sync", "-j1", "--json"].map(OsStr::new);
        let mut run = crate::common::bcmr(line).args(["s", "d"]).cwd(dir.path()).start();
        let heard = run.hear(lines);
        run.interrupt();
        let ran = run.wait();
        let stdout = [String::from_utf8(heard).unwrap(), ran.out].concat();
        let out = stdout.clone().into_bytes();
        let done = Done { said: "stopped".into(), code: Some(ran.code), out, stdout, stderr: ran.err };
        assert_eq!(done.code, Some(130), "{}", done.stderr);
        assert_eq!(events(&done, "copy").last().unwrap()["cancelled"], true);
    }
}
