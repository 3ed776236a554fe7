//! Connections that are lost in the middle, peers that die or refuse: the same command finishes, nothing is left over,
//! neither side waits for ever.

use crate::common::remote::*;
use crate::common::*;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// What may be sent twice after each break: a checkpoint, the blocks under way on each stream, and what lies in pipes.
const REWORK: u64 = 4 * MIB + 3 * 4 * MIB + 4 * MIB;

fn seed() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    std::env::var("BCMR_SEED").map_or(u64::from(now), |s| s.parse().unwrap())
}

/// Runs the same command over a line that breaks after a number of bytes, again and again, until it is done. Says how
/// often it broke.
fn until_done(
    dir: Dir,
    flags: &str,
    src: &Path,
    dst: &Path,
    mut breaks: impl FnMut(u64) -> Option<u64>,
) -> (u64, u64) {
    let tmp = Tmp::new();
    let log = tmp.p("log");
    let mut broken = 0;
    loop {
        let bytes = breaks(broken);
        let far = Far::relay().with("RELAY_LOG", &log);
        let far = match (bytes, dir) {
            (None, _) => far,
            (Some(n), Dir::Put) => far.with("RELAY_UP", n.to_string()),
            (Some(n), Dir::Get) => far.with("RELAY_DOWN", n.to_string()),
        };
        let ran = dir.copy(&far, flags, src, dst).run();
        let sent = |(up, down): &(u64, u64)| if dir == Dir::Put { *up } else { *down };
        if ran.code == 0 {
            return (broken, passed(&log).iter().map(sent).sum());
        }
        assert_eq!(ran.code, 7, "{dir:?} {flags}, cut after {bytes:?}: {}", ran.err);
        assert!(bytes.is_some(), "{dir:?} {flags}, not cut: {}", ran.err);
        assert!(ran.err.contains("bcmr: "), "{dir:?} {flags}: nothing was said");
        broken += 1;
        assert!(broken < 200, "{dir:?} {flags}: it comes to no end: {}", ran.err);
    }
}

/// One large file over a line that breaks at random: it goes on where it was.
#[test]
fn a_large_file_over_a_line_that_breaks() {
    let seed = seed();
    let mut random = Random(seed);
    let mut all = 0;
    for (dir, flags) in [
        (Dir::Put, "-C --checkpoint-size=4M --parallel=3"),
        (Dir::Get, "-s --checkpoint-size=4M --parallel=2"),
        (Dir::Put, "-C --fast --checkpoint-size=4M --compress=none --parallel=1"),
    ] {
        let tmp = Tmp::new();
        let size = 24 * MIB;
        let src = tmp.file("src", noise(seed, size as usize));
        let streams: u64 = flags.rsplit_once('=').unwrap().1.parse().unwrap();
        let (broken, sent) = until_done(dir, flags, &src, &tmp.p("dst"), |n| {
            // In the greeting, in the first words, or anywhere in the first third; an ordinary run lets it through then.
            (n < 4 || all_cases()).then(|| match n % 4 {
                0 => random.below(400),
                1 => random.below(MIB),
                _ => MIB + random.below(size / 2 / streams),
            })
        });
        assert!(
            fs::read(tmp.p("dst")).unwrap() == noise(seed, size as usize),
            "BCMR_SEED={seed} {dir:?} {flags}"
        );
        assert_no_litter(tmp.path());
        let most = size + broken * REWORK;
        assert!(
            sent <= most,
            "BCMR_SEED={seed} {dir:?} {flags}: {sent} bytes for {size} and {broken} breaks"
        );
        all += broken;
    }
    assert!(all >= 6, "BCMR_SEED={seed}: broken {all} times only");
}

/// A large text, whose blocks cross as one frame each: what goes on begins with a frame of its own, wherever the last one was cut.
#[test]
fn a_packed_text_over_a_line_that_breaks() {
    const SIZE: u64 = 16 * MIB;
    let seed = seed();
    let mut random = Random(seed);
    // Digits take half of a byte each, so half of it crosses.
    let mut text = Vec::new();
    for bytes in noise(seed, SIZE as usize / 2).chunks(32) {
        // By the hash's code, which is optimised in tests too.
        text.extend_from_slice(blake3::Hash::from_bytes(bytes.try_into().unwrap()).to_hex().as_bytes());
    }
    assert_eq!(text.len() as u64, SIZE);
    let (mut all, breaks) = (0, if all_cases() { 4 } else { 2 });
    for dir in BOTH {
        let flags = "-C --checkpoint-size=4M --compress=zstd --parallel=1";
        let tmp = Tmp::new();
        let src = tmp.file("src", &text);
        let (broken, sent) = until_done(dir, flags, &src, &tmp.p("dst"), |n| {
            (n < breaks).then(|| 100_000 + random.below(SIZE / 8))
        });
        assert!(fs::read(tmp.p("dst")).unwrap() == text, "BCMR_SEED={seed} {dir:?} {flags}");
        assert_no_litter(tmp.path());
        let most = broken * (100_000 + SIZE / 8) + SIZE * 6 / 10;
        assert!(sent <= most, "BCMR_SEED={seed} {dir:?} {flags}: {sent} bytes for {SIZE}, {broken} breaks");
        all += broken;
    }
    assert!(all >= 4, "BCMR_SEED={seed}: broken {all} times only");
}

/// Trees: small files, large ones, links between them.
#[test]
fn a_tree_over_a_line_that_breaks() {
    let seed = seed();
    let mut random = Random(seed);
    let (mut all, breaks) = (0, if all_cases() { 8 } else { 3 });
    for (dir, flags) in [
        (Dir::Put, "-r -C --checkpoint-size=4M --parallel=3"),
        (Dir::Get, "-r -C --archive --checkpoint-size=4M --parallel=2"),
    ] {
        let tmp = Tmp::new();
        let src = tmp.dir("src");
        for n in 0..300u64 {
            tmp.file(format!("src/d{}/f{n}", n % 7), noise(seed ^ n, (n * 100) as usize));
        }
        for (n, size) in [(1, 9 * MIB), (2, 2 * MIB), (3, 5 * MIB)] {
            tmp.file(format!("src/d{n}/large"), noise(seed ^ (n << 32), size as usize));
        }
        fs::hard_link(tmp.p("src/d1/large"), tmp.p("src/a link")).unwrap();
        fs::hard_link(tmp.p("src/d5/f5"), tmp.p("src/d0/link")).unwrap();
        fs::create_dir_all(tmp.p("src/empty/er")).unwrap();
        let (broken, _) = until_done(dir, flags, &src, &tmp.p("dst"), |n| {
            let most = if n % 3 == 0 { 100_000 } else { 8 * MIB };
            (n < breaks).then(|| random.below(most))
        });
        let exact = if flags.contains("--archive") { EVERYTHING } else { CONTENT };
        let told = differences(&tree(&src), &tree(&tmp.p("dst")), exact);
        assert!(
            told.is_empty(),
            "BCMR_SEED={seed} {dir:?} {flags}, broken {broken} times: {}",
            told[..told.len().min(20)].join("\n")
        );
        assert_no_litter(tmp.path());
        all += broken;
    }
    assert!(all >= breaks * 3 / 4, "BCMR_SEED={seed}: broken {all} times only");
}

/// Without -C nothing half is left for good: names are old or new, and the next run is as any other.
#[test]
fn without_resuming_a_break_costs_time_only() {
    let mut random = Random(seed());
    for dir in BOTH {
        for (n, flags) in ["-rT", "-rT --parallel=3", "-rT -V"].into_iter().enumerate() {
            // An ordinary run tries each one way.
            if !in_slice(n + dir as usize, 2) {
                continue;
            }
            let tmp = Tmp::new();
            for n in 0..40 {
                tmp.file(format!("src/f{n}"), noise(n, 50_000));
            }
            tmp.file("src/large", noise(99, 6 * MIB as usize));
            tmp.file("dst/large", "old");
            tmp.file("dst/f1", "old");
            let far = Far::relay();
            let cut = (random.below(7 * MIB)).to_string();
            let bad = if dir == Dir::Put { far.with("RELAY_UP", &cut) } else { far.with("RELAY_DOWN", &cut) };
            dir.copy(&bad, flags, &tmp.p("src"), &tmp.p("dst")).run().one_of(&[0, 7]);
            for name in
                names(&tmp.p("dst")).into_iter().filter(|n| !n.as_encoded_bytes().starts_with(b".bcmr"))
            {
                let now = fs::read(tmp.p("dst").join(&name)).unwrap();
                let new = fs::read(tmp.p("src").join(&name)).unwrap();
                assert!(now == new || now == b"old", "{dir:?} {flags}, cut after {cut}: {name:?} is half");
            }
            dir.copy(&Far::pipe(), flags, &tmp.p("src"), &tmp.p("dst")).run().ok();
            assert_same(&tmp.p("src"), &tmp.p("dst"), CONTENT);
            assert_no_litter(tmp.path());
        }
    }
}

/// What is not complete says so: an unfinished tree keeps its mark, and a manifest is written for a whole copy only.
#[test]
fn a_break_is_not_the_end_of_a_tree() {
    for dir in BOTH {
        let tmp = Tmp::new();
        for n in 0..200 {
            tmp.file(format!("src/f{n}"), noise(n, 20_000));
        }
        let far = Far::relay();
        let cut = MIB.to_string();
        let bad = if dir == Dir::Put { far.with("RELAY_UP", &cut) } else { far.with("RELAY_DOWN", &cut) };
        let sums = tmp.p("sums");
        let flags = match dir {
            Dir::Get => format!("-r -C --compress=none --manifest {}", sums.display()),
            Dir::Put => "-r -C --compress=none".to_owned(),
        };
        dir.copy(&bad, &flags, &tmp.p("src"), &tmp.p("dst")).run().code(7);
        // The other side may have read the request no earlier than the client gave up.
        assert!(within(60, || mark_of(&tmp.p("dst")).exists()), "{dir:?}");
        assert!(!sums.exists(), "{dir:?}");
        dir.copy(&Far::pipe(), &flags, &tmp.p("src"), &tmp.p("dst")).run().ok();
        assert_same(&tmp.p("src"), &tmp.p("dst"), CONTENT);
        assert_eq!(sums.exists(), dir == Dir::Get);
    }
}

/// The connection is made again by itself.
#[test]
fn retries_make_the_connection_again() {
    for dir in BOTH {
        let tmp = Tmp::new();
        let src = tmp.file("src", noise(5, 24 * MIB as usize));
        let log = tmp.p("log");
        let far = Far::relay().with("RELAY_LOG", &log);
        let cut = (10 * MIB).to_string();
        let far = if dir == Dir::Put { far.with("RELAY_UP", &cut) } else { far.with("RELAY_DOWN", &cut) };
        let flags = "-C --checkpoint-size=4M --compress=none --retries=9";
        dir.copy(&far, flags, &src, &tmp.p("dst")).run().ok();
        assert!(fs::read(tmp.p("dst")).unwrap() == fs::read(&src).unwrap());
        let lines = passed(&log).len();
        assert!((3..=10).contains(&lines), "{dir:?}: {lines} connections");
        assert_no_litter(tmp.path());
        // And no more often than was said.
        let log = tmp.p("log again");
        let far = Far::relay().with("RELAY_LOG", &log).with("RELAY_DOWN", "60");
        dir.copy(&far, "--retries=2", &src, &tmp.p("dst2")).run().code(7);
        assert!(passed(&log).len() <= 3, "{dir:?}: {:?}", passed(&log));
    }
}

/// What the first attempt has made of a new DST does not make the second one put its copy into it.
#[test]
fn a_second_attempt_means_the_same_destination() {
    let rows = [("-r", false), ("-r", true), ("-rT", false), ("-rC --checkpoint-size=4M", false)];
    for (n, (flags, slash)) in rows.into_iter().enumerate() {
        // An ordinary run tries each one way.
        for dir in BOTH.into_iter().filter(|dir| in_slice(n + *dir as usize, 2)) {
            let tmp = Tmp::new();
            tmp.file("src/a", "a");
            tmp.file("src/sub/big", noise(5, 14 * MIB as usize));
            let log = tmp.p("log");
            let cut = (8 * MIB).to_string();
            let far = Far::relay().with("RELAY_LOG", &log).with("RELAY_ONCE", tmp.p("once"));
            let far = far.with(if dir == Dir::Put { "RELAY_UP" } else { "RELAY_DOWN" }, &cut);
            let dst = tmp.p(if slash { "new/" } else { "new" });
            let about = format!("{flags} {dir:?} {}", dst.display());
            let flags = format!("{flags} --compress=none --retries=2");
            dir.copy(&far, &flags, &tmp.p("src"), &dst).run().ok();
            assert_eq!(passed(&log).len(), 2, "{about}");
            assert_eq!(names(&dst), ["a", "sub"], "{about}: it nests");
            assert_same(&tmp.p("src"), &dst, CONTENT);
        }
    }
}

// ---- over true ssh ----

/// What rsync finds different, or without it what we do.
fn judged(src: &Path, dst: &Path) -> String {
    let told = differences(&tree(src), &tree(dst), EVERYTHING);
    format!("{}{}", told.join("\n"), rsync_would(src, dst).unwrap_or_default())
}

/// How often one is cut before it goes on by itself.
fn cuts_of_one() -> u64 {
    if all_cases() { 13 } else { 3 }
}

/// Cuts a copy again and again, then lets it through. Returns how often it was cut.
fn cut_over_ssh(test: &str, dir: Dir, plant: impl Fn(&Tmp), most: u64, retries: bool) -> Option<u64> {
    let (far, own) = counted_ssh(test)?;
    let seed = seed();
    let mut random = Random(seed);
    let tmp = Tmp::new();
    plant(&tmp);
    let size: u64 = tree(&tmp.p("src")).values().map(|e| e.size).sum();
    let (src, dst) = (tmp.p("src"), tmp.p("dst"));
    let name = if dir == Dir::Put { "RELAY_UP" } else { "RELAY_DOWN" };
    let flags = "-r -C --archive --checkpoint-size=4M --compress=none --parallel=1";
    let (mut far, mut cuts) = (far, 0);
    // While ssh greets, in the first words, and anywhere.
    for n in 0..cuts_of_one() {
        let after = match n % 3 {
            0 => random.below(8 << 10),
            1 => random.below(MIB),
            _ => MIB + random.below(most),
        };
        far = far.with(name, after.to_string());
        let ran = dir.copy(&far, flags, &src, &dst).run().one_of(&[0, 7]);
        assert!(!dst.join("src").exists(), "BCMR_SEED={seed} {dir:?}: it nests");
        if ran.code == 0 {
            break;
        }
        assert!(ran.err.contains("bcmr: "), "nothing was said");
        cuts += 1;
    }
    if retries {
        // By itself, each time after a longer pause: so not often.
        far = far.with(name, (size / 2 + MIB).to_string());
        let log = own.p("log");
        let before = passed(&log).len() as u64;
        dir.copy(&far, &format!("{flags} --retries=9"), &src, &dst).run().ok();
        cuts += passed(&log).len() as u64 - before - 1;
    }
    far = far.with(name, (1u64 << 60).to_string());
    if !retries {
        dir.copy(&far, flags, &src, &dst).run().ok();
    }
    assert_eq!(judged(&src, &dst), "", "BCMR_SEED={seed} {dir:?}, cut {cuts} times");
    assert_no_litter(tmp.path());
    let sent = |(up, down): &(u64, u64)| if dir == Dir::Put { *up } else { *down };
    let sent: u64 = passed(&own.p("log")).iter().map(sent).sum();
    // ssh adds its greetings and a little to each packet.
    let allowed = (size + cuts * REWORK) * 103 / 100 + (cuts + 1) * (64 << 10);
    assert!(sent <= allowed, "BCMR_SEED={seed} {dir:?}: {sent} bytes for {size} and {cuts} cuts");
    Some(cuts)
}

fn plant_large(tmp: &Tmp) {
    // Cut three times only it need not be as long, and is cut by itself in its second half all the same.
    let size = if all_cases() { 40 * MIB } else { 24 * MIB };
    tmp.file("src/large", noise(11, size as usize));
}

fn plant_tree(tmp: &Tmp) {
    for n in 0..200u64 {
        tmp.file(format!("src/d{}/f{n}", n % 7), noise(n, (n * 100) as usize));
    }
    for (n, size) in [(1, 9 * MIB), (2, 6 * MIB), (3, 5 * MIB)] {
        tmp.file(format!("src/d{n}/large"), noise(n << 32, size as usize));
    }
    fs::hard_link(tmp.p("src/d1/large"), tmp.p("src/a link")).unwrap();
    fs::hard_link(tmp.p("src/d5/f5"), tmp.p("src/d0/link")).unwrap();
    std::os::unix::fs::symlink("f5", tmp.p("src/d5/to f5")).unwrap();
    fs::create_dir_all(tmp.p("src/empty/er")).unwrap();
}

/// Fifty in all, with those of the next one, where all are tried.
#[test]
fn a_large_file_over_ssh_that_is_cut() {
    let mut all = 0;
    for (dir, retries) in [(Dir::Put, true), (Dir::Get, false)] {
        let Some(cuts) =
            cut_over_ssh("a_large_file_over_ssh_that_is_cut", dir, plant_large, 6 * MIB, retries)
        else {
            return;
        };
        all += cuts;
    }
    assert!(all >= 2 * cuts_of_one() - 1, "cut {all} times only");
}

#[test]
fn a_tree_over_ssh_that_is_cut() {
    let mut all = 0;
    for (dir, retries) in [(Dir::Put, false), (Dir::Get, true)] {
        let Some(cuts) = cut_over_ssh("a_tree_over_ssh_that_is_cut", dir, plant_tree, 2 * MIB, retries)
        else {
            return;
        };
        all += cuts;
    }
    assert!(all >= 2 * cuts_of_one() - 1, "cut {all} times only");
}

// ---- one side dies ----

/// A copy that is under way, and slow: `src` is 16 MiB at 4 MiB a second.
fn under_way(dir: Dir, tmp: &Tmp, far: &Far, flags: &str) -> Running {
    let src = tmp.file("src", noise(3, 16 * MIB as usize));
    let running = dir.copy(far, &format!("--compress=none {flags}"), &src, &tmp.p("dst")).start();
    // Names alone: a look at the tree would read the source as well, each time.
    let is_stage = |name: &std::ffi::OsString| name.as_encoded_bytes().starts_with(b".bcmr");
    let begun = within(60, || {
        let mut stages = names(tmp.path()).into_iter().filter(is_stage);
        stages.any(|stage| fs::metadata(tmp.p(stage)).is_ok_and(|m| m.blocks() > 2048))
    });
    assert!(begun, "it never began");
    running
}

#[test]
fn a_killed_client_leaves_no_server() {
    let rows = [
        (Signal::KILL, "--parallel=2"),
        (Signal::KILL, "-C --checkpoint-size=4M"),
        (Signal::TERM, "--parallel=2"),
    ];
    for dir in BOTH {
        for (n, (signal, flags)) in rows.into_iter().enumerate() {
            // An ordinary run tries each one way.
            if !in_slice(n + dir as usize, 2) {
                continue;
            }
            let tmp = Tmp::new();
            let far = Far::relay().with("RELAY_RATE", "4000000");
            let running = under_way(dir, &tmp, &far, flags);
            assert!(!servers(&far).is_empty());
            running.signal(signal);
            running.wait();
            assert!(
                within(10, || servers(&far).is_empty()),
                "{dir:?} {flags} {signal:?}: {:?}",
                servers(&far)
            );
            assert!(!tmp.p("dst").exists());
            dir.copy(&Far::pipe(), &format!("--compress=none {flags}"), &tmp.p("src"), &tmp.p("dst"))
                .run()
                .ok();
            assert!(fs::read(tmp.p("dst")).unwrap() == noise(3, 16 * MIB as usize));
            assert_no_litter(tmp.path());
        }
    }
}

#[test]
fn a_killed_server_ends_the_client_with_an_error() {
    for dir in BOTH {
        let rows = ["--parallel=1", "--parallel=3", "-C --checkpoint-size=4M"];
        for (n, flags) in rows.into_iter().enumerate() {
            // An ordinary run tries each one way.
            if !in_slice(n + dir as usize, 2) {
                continue;
            }
            let tmp = Tmp::new();
            let far = Far::relay().with("RELAY_RATE", "4000000");
            let running = under_way(dir, &tmp, &far, flags);
            // The first one holds all streams.
            servers(&far).into_iter().for_each(kill);
            let ran = running.wait().code(7);
            assert!(ran.err.contains("bcmr: cannot talk to 'there': "), "{dir:?} {flags}: {}", ran.err);
            dir.copy(&Far::pipe(), flags, &tmp.p("src"), &tmp.p("dst")).run().ok();
            assert!(fs::read(tmp.p("dst")).unwrap() == noise(3, 16 * MIB as usize));
            assert_no_litter(tmp.path());
        }
    }
}

/// Of several connections one is lost: it ends, in one way or the other, and never well with less.
#[test]
fn one_of_several_connections_dies() {
    for dir in BOTH {
        let tmp = Tmp::new();
        let far = Far::relay().with("RELAY_RATE", "4000000");
        let running = under_way(dir, &tmp, &far, "--parallel=3");
        let mut all = servers(&far);
        all.sort_unstable();
        assert_eq!(all.len(), 3);
        // A later one: not that in which all streams end.
        kill(all[2]);
        let ran = running.wait();
        match ran.code {
            0 => assert!(fs::read(tmp.p("dst")).unwrap() == noise(3, 16 * MIB as usize)),
            _ => assert!(!tmp.p("dst").exists() && ran.err.contains("bcmr: cannot "), "{}", ran.err),
        }
        assert!(within(10, || servers(&far).is_empty()));
    }
}

/// Longer than a silent side is waited for (30 s), also on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A side that falls silent is given up, and the other one says so, whether the process stands still or the line is dead. The
/// same command goes on afterwards. All at once, as each waits for half a minute.
#[test]
fn who_says_nothing_is_given_up() {
    let finish = |dir: Dir, tmp: &Tmp, flags: &str| {
        dir.copy(&Far::pipe(), flags, &tmp.p("src"), &tmp.p("dst")).run().ok();
        assert!(fs::read(tmp.p("dst")).unwrap() == noise(3, 16 * MIB as usize));
        assert_no_litter(tmp.path());
    };
    let stopped = |dir: Dir, flags: &str| {
        let tmp = Tmp::new();
        let far = Far::relay().with("RELAY_RATE", "4000000");
        let running = under_way(dir, &tmp, &far, flags);
        let stopped = servers(&far);
        stopped.iter().for_each(|pid| signal(*pid, Signal::STOP));
        running.wait_most(PATIENCE).code(7).says("nothing was heard for");
        stopped.iter().for_each(|pid| signal(*pid, Signal::CONT));
        assert!(within(20, || servers(&far).is_empty()), "{dir:?}: {:?}", servers(&far));
        finish(dir, &tmp, flags);
    };
    let lost = |dir: Dir, flags: &str| {
        let tmp = Tmp::new();
        let far = Far::relay().with("RELAY_RATE", "4000000").with("RELAY_HOLE", tmp.p("hole"));
        let running = under_way(dir, &tmp, &far, flags);
        let hole = tmp.file("hole", "");
        running.wait_most(PATIENCE).code(7).says("nothing was heard for");
        assert!(within(60, || servers(&far).is_empty()), "{dir:?}: {:?}", servers(&far));
        fs::remove_file(hole).unwrap();
        finish(dir, &tmp, flags);
    };
    std::thread::scope(|scope| {
        for dir in BOTH {
            // An ordinary run tries each one way.
            if in_slice(dir as usize, 2) {
                scope.spawn(move || stopped(dir, "-C --checkpoint-size=4M"));
            }
            if in_slice(dir as usize + 1, 2) {
                scope.spawn(move || lost(dir, "--parallel=2"));
            }
        }
    });
}

// ---- one side refuses ----

/// A side that refuses while the other one is sending is heard, however much is under way.
#[test]
fn a_refusal_in_the_middle_ends_it() {
    let tmp = Tmp::new();
    let sizes = [0, 1, 100 << 10, 3 * MIB, 64 * MIB];
    for size in sizes {
        tmp.file(format!("{size}/f"), noise(size, size as usize));
    }
    tmp.file("file", "in the way");
    tmp.dir("directory");
    let read_only = Far::pipe().serving("--read-only");
    let rooted = Far::pipe().serving(&format!("--root {}", tmp.dir("root").display()));
    let plain = Far::pipe();
    for (n, size) in sizes.into_iter().enumerate() {
        for (m, flags) in ["", "--parallel=3 --compress=none"].into_iter().enumerate() {
            let src = tmp.p(format!("{size}/f"));
            let rows = [
                (&read_only, flags.to_owned(), tmp.p("new"), &[1, 7, 8][..]),
                (&rooted, flags.to_owned(), tmp.p("new"), &[1, 7, 8]),
                (&plain, flags.to_owned(), tmp.p("file/below"), &[1, 7]),
                (&plain, flags.to_owned(), tmp.p("not/there"), &[1, 7]),
                (&plain, format!("-T {flags}"), tmp.p("directory"), &[1, 7]),
                (&plain, format!("-r -t {}", plain.at(tmp.p("file")).display()), tmp.p("unused"), &[1, 7]),
            ];
            for (k, (far, flags, to, codes)) in rows.into_iter().enumerate() {
                // An ordinary run tries each with each size, with the one or with the other flags.
                if !in_slice(n + m + k, 2) {
                    continue;
                }
                let line = if flags.contains("-t ") {
                    far.bcmr("copy").args(flags.split(' ')).args([&src])
                } else {
                    Dir::Put.copy(far, &flags, &src, &to)
                };
                let ran = line.run().one_of(codes);
                assert!(ran.err.contains("bcmr: cannot "), "{}", ran.err);
            }
        }
    }
    assert_eq!(names(tmp.path()).len(), sizes.len() + 3);
    // What is allowed still is.
    Dir::Get.copy(&read_only, "", &tmp.p("3145728/f"), &tmp.p("got")).run().ok();
    let root = tmp.p("root");
    let up = rooted.bcmr("copy").args([tmp.p("3145728/f")]).args([rooted.at("f")]).run().ok();
    assert!(up.err.is_empty(), "{}", up.err);
    assert!(fs::read(root.join("f")).unwrap() == fs::read(tmp.p("got")).unwrap());
}
