//! Files of which the receiver has an older version: what differs crosses, up and down, and what lands is the source.

use crate::common::remote::*;
use crate::common::*;
use std::fs;
use std::path::Path;

const MIB: usize = 1 << 20;
const MANY: usize = 6 * MIB;

/// A byte in the middle, small pages all over, both ends: what an older version differs by.
fn versions() -> Vec<(&'static str, Vec<u8>, usize)> {
    let old = noise(1, MANY);
    let with = |change: fn(&mut Vec<u8>)| {
        let mut new = old.clone();
        change(&mut new);
        new
    };
    vec![
        ("a byte put in", with(|new| new.insert(MANY / 3, 1)), 60_000),
        (
            "pages",
            with(|new| (5_000..MANY - 5_000).step_by(MANY / 20).for_each(|at| new[at..at + 4096].fill(9))),
            300_000,
        ),
        ("longer", with(|new| new.extend(noise(2, 100_000))), 180_000),
        ("shorter, from the front", with(|new| drop(new.drain(..1_000_001))), 60_000),
        ("its halves exchanged", with(|new| new.rotate_left(MANY / 2)), 120_000),
        ("a part of it twice", with(|new| new.extend_from_within(1_000_000..3_000_000)), 120_000),
    ]
}

/// Brings `s/f` to `d/f`, where an older version is; how many bytes crossed, both ways.
fn crossed(dir: Dir, tmp: &Tmp, flags: &str) -> (Ran, u64) {
    let far = Far::relay().with("RELAY_LOG", tmp.p("log"));
    let line = far.bcmr("sync").args(["-v"]).args(flags.split_whitespace());
    let ran = dir.ends(line, &far, &tmp.p("s"), &tmp.p("d")).run();
    // The relay says it when both ends are gone.
    assert!(within(10, || tmp.p("log").exists()), "the relay says nothing");
    let bytes = passed(&tmp.p("log")).iter().map(|(up, down)| up + down).sum();
    fs::remove_file(tmp.p("log")).unwrap();
    (ran, bytes)
}

fn stocked(new: &[u8]) -> Tmp {
    let tmp = Tmp::new();
    tmp.file("s/f", new);
    aged(&tmp.file("d/f", noise(1, MANY)), 1);
    tmp
}

/// Written so many days ago: what is written within one tick of the clock has one time.
fn aged(path: &Path, days: u64) {
    let when = std::time::SystemTime::now() - std::time::Duration::from_secs(days * 86_400);
    fs::File::options().write(true).open(path).unwrap().set_modified(when).unwrap();
}

#[track_caller]
fn alike(tmp: &Tmp, what: &str) {
    assert_same(&tmp.p("s"), &tmp.p("d"), Exact { times: false, ..EVERYTHING });
    if let Some(text) = rsync_would(&tmp.p("s"), &tmp.p("d")) {
        assert!(text.is_empty(), "{what}: rsync would: {text}");
    }
    assert_no_litter(&tmp.p("d"));
}

#[test]
fn only_what_differs_crosses() {
    needs!(python().is_some(), "it needs python3");
    let all = versions();
    for dir in BOTH {
        // An ordinary run tries each one way.
        let is_tried = |n: usize| in_slice(n + dir as usize, 2);
        for (_, (what, new, most)) in all.iter().enumerate().filter(|(n, _)| is_tried(*n)) {
            let tmp = stocked(new);
            let (ran, bytes) = crossed(dir, &tmp, "--compress=none");
            ran.ok().says("reused");
            alike(&tmp, what);
            assert!(bytes <= *most as u64, "{what}, {dir:?}: {bytes} bytes of {most}");
        }
        let (_, new, _) = &all[0];
        let tmp = stocked(new);
        let far = Far::pipe();
        let ran = dir.ends(far.bcmr("sync").args(["--json"]), &far, &tmp.p("s"), &tmp.p("d")).run();
        let out = ran.ok().out;
        let receipt = out.lines().find(|line| line.contains("\"receipt\"")).unwrap_or_default();
        let told: serde_json::Value = serde_json::from_str(receipt).unwrap();
        let reused = told["reused"].as_u64().unwrap();
        assert!(reused > MANY as u64 - 60_000 && reused <= MANY as u64, "{dir:?}: {receipt}");
        // Nothing of it is used where that was said, nor where nothing is compared in the end.
        let whole = ["-W --compress=none", "--whole-file --compress=none --parallel=2"];
        for (_, flags) in whole.into_iter().enumerate().filter(|(n, _)| is_tried(*n)) {
            let tmp = stocked(new);
            let (ran, bytes) = crossed(dir, &tmp, flags);
            assert!(
                !ran.ok().err.contains("reused") && bytes > MANY as u64,
                "{flags}, {dir:?}: {bytes} bytes"
            );
            alike(&tmp, flags);
        }
    }
}

/// Every other way of landing goes with it.
#[test]
fn however_it_lands() {
    needs!(python().is_some(), "it needs python3");
    let (_, new, _) = versions().remove(1);
    for dir in BOTH {
        // An ordinary run tries each one way.
        let is_tried = |n: usize| in_slice(n + dir as usize, 2);
        let all = [
            "--checksum",
            "--parallel=3",
            "--compress=zstd",
            "--compress=lz4",
            "-V",
            "--sparse=always",
            "--preserve=all",
        ];
        for (_, flags) in all.into_iter().enumerate().filter(|(n, _)| is_tried(*n)) {
            let tmp = stocked(&new);
            let far = Far::pipe();
            let verb =
                if flags == "--sparse=always" || flags == "--preserve=all" { "copy -rT" } else { "sync" };
            let words = format!("{verb} {flags}");
            let (verb, flags) = words.split_once(' ').unwrap();
            let line = far.bcmr(verb).args(flags.split_whitespace());
            dir.ends(line, &far, &tmp.p("s"), &tmp.p("d")).run().ok();
            assert!(fs::read(tmp.p("d/f")).unwrap() == new, "{words}, {dir:?}");
            assert_no_litter(&tmp.p("d"));
        }
        // What is written into is no basis of itself; neither is what is only added to.
        let without = ["-rT --inplace", "-rT --fast", "-rT -C --fast"];
        for (_, flags) in without.into_iter().enumerate().filter(|(n, _)| is_tried(*n)) {
            let tmp = stocked(&new);
            let far = Far::pipe();
            let ran = dir.copy(&far, flags, &tmp.p("s"), &tmp.p("d")).run();
            assert!(!ran.ok().err.contains("reused"), "{flags}, {dir:?}");
            assert!(fs::read(tmp.p("d/f")).unwrap() == new, "{flags}, {dir:?}");
        }
    }
}

/// A run that was killed goes on where it stopped, and what is still to come is compared with what is there as before.
#[test]
fn what_was_interrupted_goes_on_with_what_is_there() {
    needs!(python().is_some(), "it needs python3");
    let mib = if all_cases() { 40 } else { 26 };
    let old = noise(1, mib * MIB);
    let mut new = old.clone();
    // A third or a half is new, so that there is something to cross.
    new[10 * MIB..24 * MIB].copy_from_slice(&noise(7, 14 * MIB));
    for dir in BOTH {
        let tmp = Tmp::new();
        tmp.file("s/f", &new);
        aged(&tmp.file("d/f", &old), 1);
        let cut = if dir == Dir::Put { "RELAY_UP" } else { "RELAY_DOWN" };
        let far = Far::relay().with(cut, (9 * MIB).to_string()).with("RELAY_ONCE", tmp.p("once"));
        let flags = "-rT -C --compress=none --checkpoint-size=4M --retries=1";
        dir.copy(&far, flags, &tmp.p("s"), &tmp.p("d")).run().ok();
        assert!(Path::exists(&tmp.p("once")), "nothing was cut");
        assert!(fs::read(tmp.p("d/f")).unwrap() == new, "{dir:?}");
        assert_no_litter(&tmp.p("d"));
    }
}

/// What was renamed, or moved to a directory that is new, is known by its size and time; one that only looks like another is not
/// taken for it.
#[test]
fn what_was_moved_is_found() {
    needs!(python().is_some(), "it needs python3");
    for dir in BOTH {
        let tmp = Tmp::new();
        // The first two are of one time too.
        for (name, days) in [("s/before", 3), ("s/sub/deep/other", 3), ("s/alike", 1)] {
            aged(&tmp.file(name, noise(name.len() as u64, MANY)), days);
        }
        let when = fs::metadata(tmp.p("s/before")).unwrap().modified().unwrap();
        fs::File::options().write(true).open(tmp.p("s/sub/deep/other")).unwrap().set_modified(when).unwrap();
        let (ran, _) = crossed(dir, &tmp, "--compress=none");
        ran.ok();
        fs::rename(tmp.p("s/before"), tmp.p("s/after")).unwrap();
        fs::create_dir_all(tmp.p("s/new/place")).unwrap();
        fs::rename(tmp.p("s/sub/deep/other"), tmp.p("s/new/place/other")).unwrap();
        let (ran, bytes) = crossed(dir, &tmp, "--compress=none --delete");
        ran.ok().says("reused");
        alike(&tmp, &format!("{dir:?}"));
        assert!(bytes < 100_000, "{dir:?}: {bytes} bytes");
        // Of the same size and time, and with nothing in common.
        let when = fs::metadata(tmp.p("s/alike")).unwrap().modified().unwrap();
        tmp.file("s/liar", noise(99, MANY));
        fs::File::options().write(true).open(tmp.p("s/liar")).unwrap().set_modified(when).unwrap();
        let (ran, _) = crossed(dir, &tmp, "--compress=none --delete");
        ran.ok();
        alike(&tmp, &format!("{dir:?}, a liar"));
    }
}

/// Small files: so many bytes cross at most, and nothing of them where that was said.
#[track_caller]
fn small_ones_cross(tmp: &Tmp, dir: Dir, what: &str, flags: &str, most: u64) {
    let (ran, bytes) = crossed(dir, tmp, &format!("--compress=none {flags}"));
    let said = ran.ok().err;
    assert_eq!(said.contains("reused"), flags != "--checksum", "{what}: {said}");
    alike(tmp, what);
    assert!(bytes <= most, "{what}, {dir:?}: {bytes} bytes of {most}");
}

/// Files below 1 MiB that were changed, touched, moved, or are in doubt: of each only what is not there crosses.
#[test]
fn of_small_files_what_is_not_there_crosses() {
    needs!(python().is_some(), "it needs python3");
    const FILES: u64 = 40;
    const EACH: usize = 100_000;
    let name = |n: u64| format!("before/{}/{n}", n % 4);
    let stock = || {
        let tmp = Tmp::new();
        for n in 0..FILES {
            aged(&tmp.file(format!("s/{}", name(n)), noise(n, EACH)), 30 - n % 5);
        }
        let copied = std::process::Command::new("cp").arg("-a").arg(tmp.p("s")).arg(tmp.p("d")).status();
        assert!(copied.unwrap().success());
        tmp
    };
    for dir in BOTH {
        // An ordinary run tries each one way.
        let is_tried = |n: usize| in_slice(n + dir as usize, 2);
        if is_tried(0) {
            let tmp = stock();
            std::fs::rename(tmp.p("s/before"), tmp.p("s/after")).unwrap();
            small_ones_cross(&tmp, dir, "moved", "--delete", 20_000);
        }
        if is_tried(1) {
            let tmp = stock();
            (0..FILES).for_each(|n| aged(&tmp.p(format!("s/{}", name(n))), 2));
            small_ones_cross(&tmp, dir, "touched", "", 60_000);
        }
        if is_tried(2) {
            let tmp = stock();
            for n in 0..FILES {
                let mut new = noise(n, EACH);
                new.splice(EACH / 2..EACH / 2 + 1, [1, 2, 3]);
                aged(&tmp.file(format!("s/{}", name(n)), new), 2);
            }
            small_ones_cross(&tmp, dir, "changed", "", 400_000);
        }
        if is_tried(3) {
            let tmp = stock();
            small_ones_cross(&tmp, dir, "in doubt", "--checksum", 20_000);
        }
        if is_tried(4) {
            // Of the size and time of another, and with nothing in common: what is there is not taken for it.
            let tmp = stock();
            let when = fs::metadata(tmp.p("s/before/0/0")).unwrap().modified().unwrap();
            tmp.file("s/new/liar", noise(99, EACH));
            fs::File::options().write(true).open(tmp.p("s/new/liar")).unwrap().set_modified(when).unwrap();
            let (ran, bytes) = crossed(dir, &tmp, "--compress=none --delete");
            assert!(!ran.ok().err.contains("reused") && bytes > EACH as u64, "{dir:?}: {bytes} bytes");
            alike(&tmp, "a liar");
        }
        if is_tried(5) {
            let tmp = stock();
            fs::rename(tmp.p("s/before"), tmp.p("s/after")).unwrap();
            let (ran, bytes) = crossed(dir, &tmp, "--compress=none --delete --whole-file");
            assert!(
                !ran.ok().err.contains("reused") && bytes > FILES * EACH as u64,
                "{dir:?}: {bytes} bytes"
            );
            alike(&tmp, "whole files");
        }
    }
}
