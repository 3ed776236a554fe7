//! Moves to, from and between other machines: nothing goes before it is over there for good, and what was killed goes on.

use crate::common::remote::*;
use crate::common::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

/// Where the source is, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Put,
    Get,
    Between,
}

const WAYS: [Way; 3] = [Way::Put, Way::Get, Way::Between];

fn on(host: &str, path: &Path) -> String {
    format!("{host}:{}", path.display())
}

/// The two operands, as they are typed.
fn ends(way: Way, src: &Path, dst: &Path) -> [String; 2] {
    let here = |path: &Path| path.display().to_string();
    match way {
        Way::Put => [here(src), on("two", dst)],
        Way::Get => [on("one", src), here(dst)],
        Way::Between => [on("one", src), on("two", dst)],
    }
}

fn moves(far: &Far, way: Way, flags: &str, tmp: &Tmp, (src, dst): (&str, &str)) -> Line {
    let line = far.bcmr("move").args(flags.split_whitespace());
    line.args(ends(way, &tmp.p(src), &tmp.p(dst)))
}

fn plant(tmp: &Tmp) {
    tmp.file("s/a", noise(1, 5000));
    tmp.file("s/large", noise(2, 3 << 20));
    tmp.file("s/sub/deep/c", "c");
    tmp.file("s/empty", "");
    tmp.dir("s/void");
    chmod(&tmp.p("s/a"), 0o604);
    fs::hard_link(tmp.p("s/a"), tmp.p("s/sub/a")).unwrap();
    symlink("nowhere", tmp.p("s/link")).unwrap();
    mkfifo(&tmp.p("s/sub/fifo"));
    for dir in ["s/sub/deep", "s/sub", "s/void", "s"] {
        let old =
            fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_500_000_000));
        fs::File::open(tmp.p(dir)).unwrap().set_times(old).unwrap();
    }
    let twin = Line::new(Path::new("cp")).args(["-a", "s", "as it was"]).cwd(tmp.path());
    twin.run().ok();
}

#[track_caller]
fn arrived(tmp: &Tmp, at: &str, about: &str) {
    assert!(!tmp.p("s").exists(), "{about}: something is left at the source");
    assert_same(&tmp.p("as it was"), &tmp.p(at), EVERYTHING);
    assert_no_litter(&tmp.p(at));
}

/// With all it is, into a new name, into a directory, and over an empty one; with the options of a way and of a move.
#[test]
fn everything_goes_and_is_there() {
    for (n, (flags, target, lands)) in [
        ("", "d", "d"),
        ("--sync --compress=lz4", "there", "there/s"),
        ("-V=direct -T", "there", "there"),
        ("--mkpath", "new/above/d", "new/above/d"),
        ("--bwlimit=1G -j1 --retries=1", "d/", "d"),
    ]
    .into_iter()
    .enumerate()
    {
        let ways = if all_cases() { &WAYS[..] } else { &WAYS[n % 3..][..1] };
        for way in ways {
            let (far, tmp) = (Far::pipe(), Tmp::new());
            plant(&tmp);
            tmp.dir("there");
            moves(&far, *way, flags, &tmp, ("s", target)).run().ok();
            arrived(&tmp, lands, &format!("{way:?} {flags}"));
        }
    }
}

/// A move gives a name: what a link at the destination leads to stays as it is, whichever machine it is on.
#[test]
fn a_link_at_the_destination_is_replaced() {
    for way in WAYS {
        for (to, flags) in [("elsewhere", ""), ("elsewhere", "-T"), ("nowhere", ""), ("elsewhere", "-f")] {
            let (far, tmp) = (Far::pipe(), Tmp::new());
            tmp.file("s", "new");
            tmp.file("elsewhere", "old");
            symlink(to, tmp.p("d")).unwrap();
            moves(&far, way, flags, &tmp, ("s", "d")).run().ok();
            let about = format!("{way:?} {to} {flags}");
            assert!(!tmp.p("s").exists() && !tmp.p("nowhere").exists(), "{about}");
            assert!(fs::symlink_metadata(tmp.p("d")).unwrap().is_file(), "{about}");
            assert_eq!(fs::read(tmp.p("d")).unwrap(), b"new", "{about}");
            assert_eq!(fs::read(tmp.p("elsewhere")).unwrap(), b"old", "{about}");
        }
    }
}

/// A large directory is more than is remembered at once; one file after the other needs no directory.
#[test]
fn many_go_as_few_do() {
    for way in if all_cases() { &WAYS[..] } else { &[Way::Between] } {
        let way = *way;
        let (far, tmp) = (Far::pipe(), Tmp::new());
        for n in 0..4200 {
            tmp.file(format!("s/{}/{n}", n % 3), n.to_string());
        }
        fs::hard_link(tmp.p("s/0/0"), tmp.p("s/1/too")).unwrap();
        let ran = moves(&far, way, "--json", &tmp, ("s", "d")).run().ok();
        assert!(!tmp.p("s").exists(), "{way:?}: {}", ran.err);
        assert_eq!(tree(&tmp.p("d")).len(), 4205, "{way:?}");
        assert_no_litter(&tmp.p("d"));
        let last = ran.out.lines().last().unwrap_or_default();
        assert!(last.contains("\"files\":4200") || last.contains("\"files\":4201"), "{way:?}: {last}");
        let (one, two) = (tmp.p("d/0/1"), tmp.file("d/e", "E"));
        fs::rename(one, tmp.p("d/f")).ok();
        let [_, to] = ends(way, &two, &tmp.dir("into"));
        let from = ["d/e", "d/0/0"].map(|name| ends(way, &tmp.p(name), Path::new(""))[0].clone());
        far.bcmr("move").args(from).args([to]).run().ok();
        assert_eq!(names(&tmp.p("into")), ["0", "e"], "{way:?}");
        assert!(!two.exists() && !tmp.p("d/0/0").exists() && tmp.p("d/1/too").exists(), "{way:?}");
    }
}

/// What is left out, what is kept, and what may not be, stays where it is.
#[test]
fn what_does_not_arrive_stays() {
    let table: &[(&str, &str, i32, &str, &str)] = &[
        // Flags, target, exit code, what is said, what is left at the source.
        ("--exclude=*.o", "d", 0, "", "x.o"),
        ("--max-size=3", "d", 0, "", "long"),
        ("--no-clobber --merge", "full", 0, "", "a"),
        ("--update=older --merge", "full", 0, "", "a"),
        ("", "full", 1, "--merge", "a long x.o"),
        ("-n", "d", 0, "would have moved", "a long x.o"),
        ("--io", "d", 2, "", "a long x.o"),
        ("--engine=ring", "d", 2, "moves on one machine", "a long x.o"),
        ("", "s", 8, "same file", "a long x.o"),
        ("", "no/such/d", 1, "no/such", "a long x.o"),
    ];
    for (n, (flags, target, code, said, left)) in table.iter().enumerate() {
        let ways = if all_cases() { &WAYS[..] } else { &WAYS[n % 3..][..1] };
        for way in ways {
            let (far, tmp) = (Far::pipe(), Tmp::new());
            for (name, content) in [("s/a", "A"), ("s/long", "long"), ("s/x.o", "O")] {
                tmp.file(name, content);
            }
            tmp.file("full/a", "theirs, and newer");
            let target = if *target == "s" { ("s", "s") } else { ("s", *target) };
            let flags =
                if target.1 == "full" || target.1 == "s" { format!("{flags} -T") } else { flags.to_string() };
            let ran = moves(&far, *way, &flags, &tmp, target).run();
            let about = format!("{way:?} {flags} {target:?}: {} {}", ran.code, ran.err);
            assert!(ran.code == *code && ran.err.contains(said), "{about}");
            let there = tree(&tmp.p("s")).into_keys().map(|name| String::from_utf8(name).unwrap());
            let there: Vec<_> = there.filter(|name| !name.is_empty()).collect();
            assert_eq!(there.join(" "), *left, "{about}");
            assert_eq!(fs::read_to_string(tmp.p("full/a")).unwrap(), "theirs, and newer", "{about}");
        }
    }
}

/// What only looks like one name of a file is not taken for its other names, which would go without ever having arrived.
#[test]
fn what_only_looks_the_same_is_no_copy_of_further_names() {
    for (way, update) in [(Way::Put, "older"), (Way::Get, "different"), (Way::Between, "older")] {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        tmp.file("s/first", "mine");
        fs::hard_link(tmp.p("s/first"), tmp.p("s/further")).unwrap();
        tmp.file("d/first", "else");
        for name in ["s/first", "d/first"] {
            let old =
                fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_500_000_000));
            fs::File::options().write(true).open(tmp.p(name)).unwrap().set_times(old).unwrap();
        }
        // One after the other: in this order they are met.
        let [first, to] = ends(way, &tmp.p("s/first"), &tmp.p("d"));
        let [further, _] = ends(way, &tmp.p("s/further"), &tmp.p("d"));
        let update_said = format!("--update={update}");
        far.bcmr("move").args(["-j1", &update_said, &first, &further, &to]).run().ok();
        let read = |name: &str| fs::read_to_string(tmp.p(name)).unwrap();
        assert_eq!((read("s/first"), read("d/first")), ("mine".into(), "else".into()), "{way:?} {update}");
        assert_eq!(read("d/further"), "mine", "{way:?} {update}");
        assert!(!tmp.p("s/further").exists(), "{way:?} {update}");
    }
}

/// Names and contents of the regular files below a directory that may not be there.
fn contents(top: &Path) -> Vec<(Vec<u8>, u64)> {
    let all = if top.exists() { tree(top) } else { Tree::new() };
    let files = all.into_iter().filter(|(_, entry)| entry.kind == rustix::fs::FileType::RegularFile);
    files.map(|(name, entry)| (name, entry.content)).collect()
}

/// Moves `s` to `d`, and one of the two programs is killed at its `nth` call of `calls`.
fn killed(far: Far, (way, here): (Way, bool), (nth, calls): (usize, &str), tmp: &Tmp) -> Ran {
    let ends = ends(way, &tmp.p("s"), &tmp.p("d"));
    if here {
        let mut line = far.lead(bcmr_killed_at(nth, calls).args(["move", "--parallel=1"])).args(ends);
        // Nobody else's leftovers there.
        line.0.env("XDG_RUNTIME_DIR", far.home().join("run"));
        let ran = line.run();
        assert!(within(10, || servers(&far).is_empty()), "a server stays");
        return ran;
    }
    let strace =
        format!("strace -f -qq -o /dev/null -e trace={calls} -e inject={calls}:signal=SIGKILL:when={nth}");
    let far = far.with("FAR_RUN", strace);
    // Further connections have a socket of their own to remove.
    let ran = far.bcmr("move").args(["--parallel=1"]).args(ends).run();
    assert!(within(10, || servers(&far).is_empty()), "a server stays");
    ran
}

/// Whichever side is killed at whatever call: every file is whole on one of them, and the same command ends it.
#[test]
fn killed_at_any_call_nothing_is_lost_and_the_same_command_goes_on() {
    if !has_tool("strace") {
        return skipped("moves that are killed", "no strace");
    }
    const RENAMES: &str = "renameat,renameat2";
    let rows = [
        (Way::Put, true, "unlinkat", 4),
        (Way::Put, false, RENAMES, 9),
        (Way::Get, false, "unlinkat", 4),
        (Way::Put, false, "syncfs", 9),
        (Way::Get, true, RENAMES, 9),
        (Way::Between, false, "unlinkat", 6),
        (Way::Between, false, "syncfs", 9),
    ];
    // An ordinary run takes each second one: each way, each side and all calls are among them.
    for (way, here, calls, step) in sliced(rows, 2) {
        until_not_killed(40, step, |nth| {
            let (far, tmp) = (Far::pipe(), Tmp::new());
            plant(&tmp);
            let ran = killed(far, (way, here), (nth, calls), &tmp);
            let about = format!("{way:?} {here} {calls} {nth}: {}", ran.err);
            let (src, dst) = (contents(&tmp.p("s")), contents(&tmp.p("d")));
            for file in contents(&tmp.p("as it was")) {
                assert!(src.contains(&file) || dst.contains(&file), "{about}: {file:?} is nowhere");
            }
            // Killed when nothing was left at the source, only the mark may be left.
            if tmp.p("s").exists() {
                moves(&Far::pipe(), way, "", &tmp, ("s", "d")).run().ok();
                arrived(&tmp, "d", &about);
            }
            ran
        });
    }
}

/// Where the other machine cannot say that it has something for good, nothing goes.
#[test]
fn what_cannot_be_synced_over_there_stays() {
    if !has_tool("strace") {
        return skipped("moves that cannot be synced", "no strace");
    }
    // The directory that the source becomes is new, or has something in it.
    for full in [false, true] {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        plant(&tmp);
        if full {
            tmp.file("d/own", "own");
        }
        let strace = "strace -f -qq -o /dev/null -e trace=syncfs -e inject=syncfs:error=EIO";
        let ran = moves(&far.with("FAR_RUN", strace), Way::Put, "-T --merge", &tmp, ("s", "d")).run();
        assert_ne!(ran.code, 0, "{}", ran.err);
        assert_same(&tmp.p("as it was"), &tmp.p("s"), CONTENT);
    }
}

/// What could not be given its mode or its time over there, for a reason that may pass, stays; the same command ends the
/// move. A directory, and a file by itself.
#[test]
fn what_cannot_be_sealed_over_there_stays() {
    if !has_tool("strace") {
        return skipped("moves that cannot be sealed", "no strace");
    }
    for (call, (src, dst)) in
        [("fchmod", ("s", "d")), ("utimensat", ("s", "d")), ("utimensat", ("s/large", "into"))]
    {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        plant(&tmp);
        tmp.dir("into");
        let strace = format!("strace -f -qq -o /dev/null -e trace={call} -e inject={call}:error=EIO");
        let ran = moves(&far.with("FAR_RUN", strace), Way::Put, "", &tmp, (src, dst)).run();
        assert_eq!(ran.code, 1, "{call} {src}: {}", ran.err);
        assert_same(&tmp.p("as it was"), &tmp.p("s"), EVERYTHING);
        moves(&Far::pipe(), Way::Put, "", &tmp, (src, dst)).run().ok();
        if dst == "d" {
            arrived(&tmp, dst, call);
        } else {
            assert!(!tmp.p(src).exists(), "{call}: it is left at the source");
            let time = |at: &str| fs::metadata(tmp.p(at)).unwrap().modified().unwrap();
            assert_eq!(time("into/large"), time("as it was/large"));
        }
    }
}

/// Whatever call fails on the other machine, be it the source's or the destination's: everything is at one of the two places as
/// it was, and the same command brings what stayed.
#[test]
fn whatever_call_fails_nothing_is_lost() {
    if !has_tool("strace") {
        return skipped("moves where calls fail", "no strace");
    }
    let odd = ["new\nline", "-dash", "co:lon", " ", "*", "back\\slash", "é"];
    let rows = [
        (Way::Get, "openat,openat2", "EACCES"),
        (Way::Get, "getdents64", "EIO"),
        (Way::Get, "read,pread64,preadv", "EIO"),
        (Way::Get, "unlinkat", "EBUSY"),
        (Way::Put, "openat,openat2", "EMFILE"),
        (Way::Put, "linkat,symlinkat,mknodat,mkdirat", "EPERM"),
        (Way::Put, "renameat,renameat2", "EIO"),
        (Way::Put, "write,pwrite64,copy_file_range", "ENOSPC"),
        (Way::Put, "fsync,fdatasync,syncfs", "EIO"),
        (Way::Put, "utimensat,fchmod,fchown", "EPERM"),
    ];
    for (n, (way, calls, error)) in rows.into_iter().enumerate() {
        // An ordinary run tries one place for each.
        let some = &[1, 2, 4][n % 3..][..1];
        for nth in if all_cases() { &[1, 2, 3, 5, 8, 13, 21, 34, 55][..] } else { some } {
            let (far, tmp) = (Far::pipe(), Tmp::new());
            plant(&tmp);
            for name in odd {
                tmp.file(format!("s/odd/{name}/{name}"), name);
            }
            // Copied by itself, what is odd has times of its own.
            fs::remove_dir_all(tmp.p("as it was")).unwrap();
            Line::new(Path::new("cp")).args(["-a", "s", "as it was"]).cwd(tmp.path()).run().ok();
            // A machine that cannot read which one it is, is another one to the next command: what it opens before it greets is
            // left alone. Where libraries are looked for is not counted.
            let first = if (way, error) == (Way::Put, "EMFILE") { nth + 20 } else { *nth };
            let inject = format!("inject={calls}:error={error}:when={first}+9");
            let plain = "env -u LD_LIBRARY_PATH strace -f -qq -o /dev/null";
            let mut strace = format!("{plain} -e trace={calls} -e {inject}");
            if way == Way::Get {
                // For the same reason, only below the source.
                let named = tree(&tmp.p("s")).into_keys().filter_map(|name| String::from_utf8(name).ok());
                for name in
                    named.filter(|name| !name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '/'))
                {
                    strace.push_str(&format!(" -P {}", tmp.p("s").join(name).display()));
                }
            }
            let ran = moves(&far.with("FAR_RUN", strace), way, "-j1", &tmp, ("s", "d")).run();
            let about = format!("{way:?} {calls} {nth}: {} {}", ran.code, ran.err);
            let all = |name: &str| {
                let top = tmp.p(name);
                let found = if top.exists() { tree(&top) } else { Tree::new() };
                let seen = found.into_iter().map(|(name, entry)| (name, (entry.kind, entry.content)));
                seen.collect::<std::collections::BTreeMap<_, _>>()
            };
            let (src, dst) = (all("s"), all("d"));
            for (name, was) in all("as it was") {
                let is_at = |there: &std::collections::BTreeMap<_, _>| there.get(&name) == Some(&was);
                assert!(is_at(&src) || is_at(&dst), "{about}: {} is nowhere", name.escape_ascii());
            }
            if ran.code == 0 {
                assert!(src.is_empty(), "{about}: something stayed, and nothing was said");
            }
            if !src.is_empty() {
                moves(&Far::pipe(), way, "", &tmp, ("s", "d")).run().ok();
            }
            assert!(!tmp.p("s").exists(), "{about}: something is left at the source");
            // What could not be kept of a file that arrived is told.
            let is_told = calls.contains("utimensat") || ran.err.contains("cannot set ");
            let attributes_failed = is_told && ran.code != 0;
            let exact = if attributes_failed { CONTENT } else { EVERYTHING };
            assert_same(&tmp.p("as it was"), &tmp.p("d"), exact);
            assert_no_litter(&tmp.p("d"));
        }
    }
}

/// What changes between its landing and its removal stays, here and there, in the run that was killed and in the next.
#[test]
fn what_has_changed_since_stays() {
    if !has_tool("strace") {
        return skipped("moves that are killed", "no strace");
    }
    for (way, here) in [(Way::Put, true), (Way::Get, false)] {
        // The first removals may be those of sockets that others have left.
        let landed = (1..9).find_map(|nth| {
            let (far, tmp) = (Far::pipe(), Tmp::new());
            plant(&tmp);
            assert_ne!(killed(far, (way, here), (nth, "unlinkat"), &tmp).code, 0, "{way:?}");
            let mut there = contents(&tmp.p("d"));
            there.retain(|(name, _)| !name.ends_with(b".tree"));
            (there == contents(&tmp.p("as it was"))).then_some(tmp)
        });
        let tmp = landed.unwrap_or_else(|| panic!("{way:?}: nothing has landed"));
        assert!(tmp.p("s/sub/deep/c").exists(), "{way:?}");
        tmp.file("s/sub/deep/c", "C");
        tmp.file("s/sub/new", "new");
        moves(&Far::pipe(), way, "", &tmp, ("s", "d"))
            .run()
            .code(5)
            .says(&format!("'{}", ends(way, &tmp.p("s/sub/deep/c"), Path::new(""))[0]));
        let left = tree(&tmp.p("s")).into_keys().map(|name| String::from_utf8(name).unwrap());
        assert_eq!(left.collect::<Vec<_>>().join(" "), " sub sub/deep sub/deep/c", "{way:?}");
        let there = |name: &str| fs::read_to_string(tmp.p("d").join(name)).unwrap();
        assert_eq!((there("sub/deep/c"), there("sub/new")), ("c".to_owned(), "new".to_owned()), "{way:?}");
        // The command goes on meaning the same, as something is still there.
        moves(&Far::pipe(), way, "", &tmp, ("s", "d")).run().code(5);
        assert!(!tmp.p("d/s").exists() && tmp.p("s/sub/deep/c").exists(), "{way:?}");
    }
}

/// A server that only reads gives nothing away, and what is behind a root can be moved from there.
#[test]
fn a_server_that_only_reads_gives_nothing_away() {
    let tmp = Tmp::new();
    plant(&tmp);
    let root = tmp.path().display().to_string();
    let from = |far: Far| far.bcmr("move").args(["one:s".to_owned(), tmp.p("d").display().to_string()]).run();
    from(Far::pipe().serving(&format!("--root {root} --read-only"))).code(8);
    assert_same(&tmp.p("as it was"), &tmp.p("s"), CONTENT);
    from(Far::pipe().serving(&format!("--root {root}"))).ok();
    arrived(&tmp, "d", "from a root");
}

/// What a move that was cut has brought of a large file is not sent again: alone, in a directory that is new, in one that something is
/// merged into, and between two others. The source stays until all of it is there.
#[test]
fn a_large_file_that_was_cut_is_gone_on_with() {
    const MIB: usize = 1 << 20;
    // Each third one is of another way and to another kind of place.
    let rows = [
        (Way::Get, "s/large", "there/large", ""),
        (Way::Put, "s/large", "there/large", ""),
        (Way::Get, "s", "new", ""),
        (Way::Put, "s", "there", "-T --merge -V=direct"),
        (Way::Put, "s", "new", ""),
        (Way::Get, "s", "there", "-T --merge"),
        (Way::Between, "s", "new", ""),
    ];
    let large = noise(7, 72 * MIB);
    for (way, src, dst, flags) in sliced(rows, 3) {
        let tmp = Tmp::new();
        tmp.file("s/large", &large);
        tmp.file("s/sub/small", "small");
        tmp.file("there/own", "own");
        let about = format!("{way:?} {src} {flags}");
        let flags = format!("--compress=none {flags}");
        let log = tmp.p("log");
        let bad = Far::relay().with("RELAY_LOG", &log);
        // Between two others both are behind the same kind of line.
        let cut = (60 * MIB).to_string();
        let bad = if way == Way::Get { bad.with("RELAY_DOWN", &cut) } else { bad.with("RELAY_UP", &cut) };
        let ran = moves(&bad, way, &flags, &tmp, (src, dst)).run();
        assert_eq!(ran.code, 7, "{about}: {}", ran.err);
        assert!(fs::read(tmp.p("s/large")).unwrap() == large, "{about}: the source stays until all is there");
        fs::remove_file(&log).ok();
        let good = Far::relay().with("RELAY_LOG", &log);
        moves(&good, way, &flags, &tmp, (src, dst)).run().ok();
        let at = if dst.ends_with("large") { tmp.p(dst) } else { tmp.p(dst).join("large") };
        assert!(fs::read(&at).unwrap() == large, "{about}");
        assert!(!tmp.p(src).exists(), "{about}: something is left at the source");
        let sent: u64 = passed(&log).iter().map(|(up, down)| (*up).max(*down)).max().unwrap_or(0);
        assert!(sent < 50 * MIB as u64, "{about}: {sent} bytes were sent of what was there");
        assert_no_litter(at.parent().unwrap());
    }
}
