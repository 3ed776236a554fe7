//! What comes twice in one run crosses once, up and down: small files by their hash, large ones by what differs from another
//! one of the run. What lands is the source, whatever looked like what.

use crate::common::remote::*;
use crate::common::*;
use std::fs;

const MIB: usize = 1 << 20;
const EACH: usize = 20_000;
const CONTENTS: u64 = 10;

/// Brings `s` to `d`; how many bytes crossed, both ways.
#[track_caller]
fn crossed(dir: Dir, tmp: &Tmp, verb: &str, flags: &str) -> (Ran, u64) {
    let far = Far::relay().with("RELAY_LOG", tmp.p("log"));
    let line = far.bcmr(verb).args(["-v", "--compress=none"]).args(flags.split_whitespace());
    let ran = dir.ends(line, &far, &tmp.p("s"), &tmp.p("d")).run();
    // The relay says it when both ends are gone.
    assert!(within(10, || tmp.p("log").exists()), "the relay says nothing");
    let bytes = passed(&tmp.p("log")).iter().map(|(up, down)| up + down).sum();
    fs::remove_file(tmp.p("log")).unwrap();
    (ran, bytes)
}

#[track_caller]
fn landed(tmp: &Tmp, what: &str) {
    assert_same(&tmp.p("s"), &tmp.p("d"), Exact { times: false, ..EVERYTHING });
    assert_no_litter(&tmp.p("d"));
    if let Some(text) = rsync_would(&tmp.p("s"), &tmp.p("d")) {
        assert!(text.is_empty(), "{what}: rsync would: {text}");
    }
}

const FILES: u64 = 200;
/// All bytes of [`few_contents`], and those that must cross: two workers may read one content at the same time.
const ALL: u64 = FILES * EACH as u64;
const MOST: u64 = 2 * CONTENTS * EACH as u64;

/// 200 files in eight directories, of ten contents.
fn few_contents() -> Tmp {
    let tmp = Tmp::new();
    for n in 0..FILES {
        tmp.file(format!("s/{}/{n}", n % 8), noise(n % CONTENTS, EACH));
    }
    tmp
}

const SAID: &str = "had come before in this run";

#[test]
fn small_files_with_one_content_cross_once() {
    needs!(python().is_some(), "it needs python3");
    // Into what is new, where contents go along unasked, and into what is there, where they are asked for.
    for dir in BOTH {
        let ways = [("copy -rpT", false), ("sync", false), ("sync", true)];
        for (n, (verb, is_there)) in ways.into_iter().enumerate() {
            // An ordinary run tries each one way.
            if !in_slice(n + dir as usize, 2) {
                continue;
            }
            let tmp = few_contents();
            if is_there {
                (0..8).for_each(|n| drop(tmp.dir(format!("d/{n}"))));
            }
            let (verb, flags) = verb.split_once(' ').unwrap_or((verb, ""));
            let (ran, bytes) = crossed(dir, &tmp, verb, flags);
            let what = format!("{verb} {is_there} {dir:?}");
            ran.ok().says(SAID);
            landed(&tmp, &what);
            let most = MOST + FILES * 300;
            assert!(bytes <= most, "{what}: {bytes} bytes of {most}");
        }
        // Over several connections one may come before the other is there: then it is asked for.
        let tmp = few_contents();
        let (ran, bytes) = crossed(dir, &tmp, "sync", "--parallel=3");
        ran.ok();
        landed(&tmp, "parallel");
        assert!(bytes < ALL, "{dir:?}: {bytes} bytes");
        for (n, flags) in ["--whole-file", "-W --parallel=2"].into_iter().enumerate() {
            if !in_slice(n + dir as usize, 2) {
                continue;
            }
            let tmp = few_contents();
            let (ran, bytes) = crossed(dir, &tmp, "sync", flags);
            assert!(!ran.ok().err.contains(SAID), "{flags}");
            assert!(bytes > ALL, "{flags}, {dir:?}: {bytes} bytes");
            landed(&tmp, flags);
        }
    }
}

/// Many unlike files of one size cost neither a byte nor a question more than without.
#[test]
fn unlike_files_of_one_size_cost_nothing() {
    needs!(python().is_some(), "it needs python3");
    for dir in BOTH {
        let crossed_with = |flags: &str| {
            let tmp = Tmp::new();
            (0..300).for_each(|n| drop(tmp.file(format!("s/{}/{n}", n % 7), noise(n, 1024))));
            let (ran, bytes) = crossed(dir, &tmp, "sync", flags);
            assert!(!ran.ok().err.contains(SAID));
            landed(&tmp, flags);
            bytes
        };
        let (with, without) = (crossed_with(""), crossed_with("-W"));
        assert!(with < without + 2_000, "{dir:?}: {with} bytes, and {without} without");
    }
}

/// Every way of landing goes with it, and an operand by itself.
#[test]
fn however_they_land() {
    for dir in BOTH {
        let all = [
            "-rpT",
            "-rpT -V",
            "-rpT --inplace",
            "-rpT --sync",
            "-rpT -C",
            "-rpT --parallel=3",
            "-rpT --fast",
        ];
        for (n, flags) in all.into_iter().enumerate() {
            // An ordinary run tries each one way.
            if !in_slice(n + dir as usize, 2) {
                continue;
            }
            let tmp = few_contents();
            tmp.file("s/large/big.img", noise(77, 3 * MIB));
            tmp.file("s/large/big-2.img", noise(77, 3 * MIB));
            let far = Far::pipe();
            dir.copy(&far, &format!("-v {flags}"), &tmp.p("s"), &tmp.p("d")).run().ok();
            landed(&tmp, flags);
        }
    }
    let tmp = Tmp::new();
    let (a, b) = (tmp.file("a", noise(1, EACH)), tmp.file("b", noise(1, EACH)));
    tmp.dir("d");
    let far = Far::pipe();
    far.bcmr("copy").args([a.as_os_str(), b.as_os_str(), &far.at(tmp.p("d"))]).run().ok();
    assert!(["d/a", "d/b"].iter().all(|name| fs::read(tmp.p(name)).unwrap() == noise(1, EACH)));
}

/// Large files of a run that are the same, or nearly; and such as only look like it.
#[test]
fn a_large_file_is_made_of_another_one_of_the_run() {
    needs!(python().is_some(), "it needs python3");
    const MANY: usize = 6 * MIB;
    let one = noise(1, MANY);
    let mut longer = one.clone();
    longer.insert(MANY / 3, 1);
    let table: [(&str, &str, &[u8], u64); 6] = [
        ("a/big.img", "a/copy-of-it", &one, 60_000),
        ("a/big.img", "b/big.img", &longer, 100_000),
        ("a/big.img", "a/big-2.img", &longer, 100_000),
        ("a/Backup_1.tar", "z/backup 2.tar", &longer, 100_000),
        // Nothing says that these have much in common: one is sent after the other.
        ("a/one", "a/other", &longer, MANY as u64 + 60_000),
        // Of the same name and size, and with nothing in common.
        ("a/big.img", "b/big.img", &noise(2, MANY), MANY as u64 + 60_000),
    ];
    for dir in BOTH {
        for (m, verb) in ["copy -rpT", "sync"].into_iter().enumerate() {
            for (n, (first, second, content, most)) in table.iter().enumerate() {
                // An ordinary run takes a quarter: each pair one way, and some pairs by each way.
                if !in_slice(2 * dir as usize + m + n, 4) {
                    continue;
                }
                let tmp = Tmp::new();
                tmp.file(format!("s/{first}"), &one);
                tmp.file(format!("s/{second}"), content);
                let (verb, flags) = verb.split_once(' ').unwrap_or((verb, ""));
                let (ran, bytes) = crossed(dir, &tmp, verb, flags);
                let said = ran.ok().err;
                let what = format!("{verb} {first} {second} {dir:?}");
                assert_eq!(said.contains(SAID), *most < MIB as u64, "{what}: {said}");
                landed(&tmp, &what);
                assert!(bytes <= MANY as u64 + most, "{what}: {bytes} bytes");
            }
        }
        // Of one size, and unlike: the first few are looked at.
        let tmp = Tmp::new();
        (0..12).for_each(|n| drop(tmp.file(format!("s/part.{n:03}"), noise(n, MIB + 5))));
        let (ran, bytes) = crossed(dir, &tmp, "sync", "");
        assert!(!ran.ok().err.contains(SAID));
        landed(&tmp, "parts of an archive");
        assert!(bytes < 12 * (MIB as u64 + 5) + 20_000, "{dir:?}: {bytes} bytes");
    }
}

/// What is 16 MiB and longer has a store that may be asked too.
#[test]
fn beside_a_store() {
    needs!(python().is_some(), "it needs python3");
    const MANY: usize = 17 * MIB;
    for dir in BOTH {
        let tmp = Tmp::new();
        for (name, seed, bytes) in
            [("s/a/one.img", 1, MANY), ("s/b/one-2.img", 1, MANY), ("s/c/other", 2, MANY + 5)]
        {
            tmp.file(name, noise(seed, bytes));
        }
        let far = Far::relay().with("RELAY_LOG", tmp.p("log"));
        let copied = |to: &str| {
            let line = far.bcmr("copy").args(["-rTv", "--compress=none"]);
            let ran = dir.ends(line, &far, &tmp.p("s"), &tmp.p(to)).run();
            assert!(within(10, || tmp.p("log").exists()), "the relay says nothing");
            let bytes: u64 = passed(&tmp.p("log")).iter().map(|(up, down)| up + down).sum();
            fs::remove_file(tmp.p("log")).unwrap();
            assert_same(&tmp.p("s"), &tmp.p(to), Exact { times: false, ..EVERYTHING });
            (ran.ok().err, bytes)
        };
        let (said, bytes) = copied("d");
        assert!(said.contains(SAID) && bytes < 2 * MANY as u64 + 200_000, "{dir:?}: {bytes} bytes, {said}");
        // It knows all of them by now, and looks deceive it no more.
        let (said, bytes) = copied("e");
        assert!(said.contains("store of blocks") && !said.contains(SAID), "{dir:?}: {said}");
        assert!(bytes < 200_000, "{dir:?}: {bytes} bytes");
    }
}

/// The receipt says it, to a person and to a program.
#[test]
fn what_came_before_is_told() {
    for dir in BOTH {
        let tmp = few_contents();
        let far = Far::pipe();
        let out = dir.copy(&far, "-rpT --json", &tmp.p("s"), &tmp.p("d")).run().ok().out;
        let receipt = out.lines().find(|line| line.contains("\"receipt\"")).unwrap_or_default();
        let told: serde_json::Value = serde_json::from_str(receipt).unwrap();
        let number = |key: &str| told.get(key).and_then(serde_json::Value::as_u64);
        let saved = number("from_run").unwrap();
        assert!(saved >= ALL - MOST && saved <= ALL - CONTENTS * EACH as u64, "{receipt}");
        assert_eq!((number("reused"), number("from_store")), (Some(saved), None), "{receipt}");
        let line = far.bcmr("sync").args(["--stats"]);
        dir.ends(line, &far, &tmp.p("s"), &tmp.p("e")).run().ok().says("that had come before in this run");
        // Nothing came twice, and nothing is said of it.
        let tmp = Tmp::new();
        tmp.file("s/a", noise(1, EACH));
        let out = dir.copy(&far, "-rpT --json", &tmp.p("s"), &tmp.p("d")).run().ok().out;
        assert!(!out.contains("from_run"), "{out}");
    }
}

/// A store knows what landed in earlier runs under nearly the same name; what only looks like it costs little.
#[test]
fn a_later_version_under_another_name() {
    needs!(python().is_some(), "it needs python3");
    const MANY: usize = 17 * MIB;
    for dir in BOTH {
        let tmp = Tmp::new();
        let far = Far::relay().with("RELAY_LOG", tmp.p("log"));
        let copied = |name: &str, content: &[u8], flags: &str| {
            let (from, to) = (tmp.file(format!("s/{name}"), content), tmp.p(format!("landed of {name}")));
            let line = far.bcmr("copy").args(["-v", "--compress=none"]).args(flags.split_whitespace());
            let ran = dir.ends(line, &far, &from, &to).run();
            assert!(within(10, || tmp.p("log").exists()), "the relay says nothing");
            let bytes: u64 = passed(&tmp.p("log")).iter().map(|(up, down)| up + down).sum();
            fs::remove_file(tmp.p("log")).unwrap();
            assert!(fs::read(to).unwrap() == content, "{name}");
            (ran.ok().err, bytes)
        };
        let mut longer = noise(1, MANY);
        longer.insert(MANY / 2, 1);
        copied("dump-2026-01-31.img", &noise(1, MANY), "");
        let (said, bytes) = copied("dump-2026-02-01.img", &longer, "");
        assert!(said.contains("reused from what was there before"), "{said}");
        assert!(!said.contains(SAID) && bytes < 200_000, "{dir:?}: {bytes} bytes, {said}");
        // An ordinary run tries what is not to be reused one way each.
        if in_slice(dir as usize, 2) {
            let (said, bytes) = copied("dump-2026-02-02.img", &noise(2, MANY + 7), "");
            assert!(!said.contains("reused"), "{said}");
            assert!(bytes < MANY as u64 + 200_000, "{dir:?}: {bytes} bytes");
        }
        if in_slice(dir as usize + 1, 2) {
            let (said, bytes) = copied("dump-2026-02-03.img", &longer, "--no-dedup");
            assert!(!said.contains("reused") && bytes > MANY as u64, "{dir:?}: {bytes} bytes, {said}");
        }
    }
}
