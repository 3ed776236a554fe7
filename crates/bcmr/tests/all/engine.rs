//! `--engine` and its knobs: whichever way contents are read and written, the same tree lands, or the same trouble is
//! told; and a way that is not there is said so.

use crate::common::remote::{Dir, Far};
use crate::common::{Mount, NOBODY, Tmp, in_slice};
use crate::table::{BCMR, Done, at, bcmr, command, finish, have, noise, plant, scratch, words};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Every size where something else happens: the threshold, a page, a block, several blocks, direct I/O, with and without
/// a rest; and what no ring takes.
const TREE: &str = "
    z s/n0 0
    z s/n1 1
    z s/n1023 1023
    z s/n1024 1024
    z s/n4095 4095
    z s/n4096 4096
    z s/n4097 4097
    z s/n65535 65535
    z s/n65536 65536
    z s/n65537 65537
    z s/n400000 400000
    z s/sub/n1048575 1048575
    z s/sub/n1048576 1048576
    z s/sub/n1048577 1048577
    z s/sub/n5000001 5000001
    o s/sub/hole
    l s/sub/link -> ../n1
    h s/sub/second = s/n4096
    p s/sub/fifo
    d s/empty
";

/// Each flag alone, and what might disturb another.
const FLAGS: [&str; 19] = [
    "--engine=sys",
    "--engine=auto",
    "--engine=ring",
    "--engine=ring -j1",
    "--engine=ring --block-size=4K",
    "--engine=ring --block-size=1M --queue-depth=1",
    "--engine=ring --queue-depth=64",
    "--engine=ring --async-threshold=1M",
    "--engine=ring --async-threshold=0 --completion-timeout=1",
    "--engine=ring --completion-timeout=0",
    "--engine=ring --preallocate=disable",
    "--engine=ring --readahead",
    "--engine=sys --readahead --preallocate=disable",
    "--engine=ring --sync -V",
    "--engine=ring --sparse=disable",
    "--direct-io",
    "--direct-io -V=direct --sync",
    "--direct-io --block-size=8K --queue-depth=3",
    "--engine=ring --direct-io --preallocate=disable -V",
];

/// Takes the contents of a directory's files out of the page cache; `false` where that has no meaning.
fn chilled(dir: &Path) -> bool {
    if rustix::fs::statfs(dir).unwrap().f_type == 0x0102_1994 {
        return false;
    }
    for entry in fs::read_dir(dir).unwrap() {
        let file = fs::File::open(entry.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    true
}

/// What is not in the page cache is read by the ring without being asked for, what is there is not, and both are told.
#[test]
fn auto_picks_as_the_files_are_found() {
    // In memory everything would be there already.
    let t = crate::common::Tmp::on_disk();
    for n in 0..40 {
        plant(t.path(), &format!("z s/n{n} {}", 20_000 + n));
    }
    let was = crate::table::look(&t.p("s"));
    for (cold, flags) in [(true, ""), (true, "--engine=sys"), (false, "")] {
        needs!(!cold || chilled(&t.p("s")), "on tmpfs everything is in memory");
        let done = bcmr(&format!("copy -r --reflink=disable -v --json {flags} s d"), t.path()).exits(0);
        crate::table::assert_same(&was, &crate::table::look(&t.p("d")), flags);
        fs::remove_dir_all(t.p("d")).unwrap();
        match engine(&done) {
            None => assert_eq!(flags, "--engine=sys", "there is nothing to choose"),
            Some(said) if said["missing"].is_null() => {
                assert_eq!(count(&said, "ring_files") > 20, cold, "{said}");
                assert_eq!(count(&said, "ring_files") + count(&said, "sys_files"), 40, "{said}");
            }
            Some(_) => {}
        }
    }
    assert!(chilled(&t.p("s")));
    let done = bcmr("copy -r --reflink=disable -v s d", t.path()).exits(0);
    assert!(
        done.stderr.contains("engine ring for") || done.stderr.contains("engine sys for"),
        "{}",
        done.stderr
    );
}

/// How contents went, from the `engine` event.
fn engine(done: &Done) -> Option<serde_json::Value> {
    done.json().into_iter().find(|line| line["event"] == "engine")
}

fn count(engine: &serde_json::Value, field: &str) -> u64 {
    engine[field].as_u64().unwrap()
}

/// Copies the tree with every row of flags whose number is tried, and has another program compare.
fn every_flag(dir: &Path, reflink: &str, is_tried: impl Fn(usize) -> bool) {
    plant(dir, TREE);
    for (_, flags) in FLAGS.into_iter().enumerate().filter(|(n, _)| is_tried(*n)) {
        let done = bcmr(&format!("copy --archive --json --reflink={reflink} {flags} -T s d"), dir).exits(0);
        let about = format!("{flags}, {} (reflink {reflink})", dir.display());
        let said = engine(&done);
        if flags.contains("--engine=sys") {
            assert!(said.is_none(), "{about}: {said:?}");
        } else {
            let said = said.unwrap_or_else(|| panic!("{about}: no event"));
            assert_eq!(count(&said, "ring_files") + count(&said, "sys_files"), 16, "{about}: {said}");
            if said["missing"].is_null() && reflink == "disable" && !flags.contains("auto") {
                // A flag that bcmr ignores would give the same tree.
                let ring = match flags {
                    _ if flags.contains("threshold=1M") => 3,
                    _ if flags.contains("threshold=0") => 14,
                    _ if flags.contains("--engine=ring") => 12,
                    _ => 3,
                };
                // A file that a file system compresses or keeps in its inode is left to plain calls.
                assert!((ring - 3..=ring).contains(&count(&said, "ring_files")), "{about}: {said}");
                let direct = if flags.contains("--direct-io") { 3 } else { 0 };
                let either = count(&said, "direct_files") + count(&said, "not_direct_files");
                assert_eq!(either, direct, "{about}: {said}");
            }
        }
        let rsync = Command::new("rsync")
            .args(["-aHAXn", "--checksum", "--delete", "--itemize-changes", "s/", "d/"])
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(rsync.status.success(), "{about}: {}", String::from_utf8_lossy(&rsync.stderr));
        assert_eq!(String::from_utf8_lossy(&rsync.stdout), "", "{about}");
        fs::remove_dir_all(dir.join("d")).unwrap();
    }
}

#[test]
fn every_flag_lands_the_same_tree() {
    needs!(crate::common::has_tool("rsync"), "there is no rsync");
    let t = scratch();
    every_flag(t.path(), "disable", |_| true);
}

#[test]
fn every_flag_on_every_file_system() {
    needs!(crate::common::is_root(), "mounting needs root");
    needs!(crate::common::has_tool("rsync"), "there is no rsync");
    let tmp = Tmp::new();
    let kinds = [("ext4", 128), ("xfs", 512), ("btrfs", 512), ("tmpfs", 128)];
    for (turn, (kind, mib)) in kinds.into_iter().enumerate() {
        let at = tmp.p(kind);
        let mount = match kind {
            "tmpfs" => Mount::tmpfs("size=128m", &at),
            _ => Mount::image(kind, mib, &at),
        };
        let mount = match mount {
            Ok(mount) => mount,
            Err(why) => {
                crate::common::skipped(kind, &why);
                continue;
            }
        };
        let dir = mount.path().join("t");
        fs::create_dir(&dir).unwrap();
        // An ordinary run takes a sixth: on each some, and each on some.
        every_flag(&dir, "disable", |n| in_slice(turn + n, 6));
        fs::remove_dir_all(&dir).unwrap();
        fs::create_dir(&dir).unwrap();
        every_flag(&dir, "auto", |n| in_slice(turn + n + 3, 6));
    }
}

/// What is in the page cache is left to plain calls, and the event says so.
#[test]
fn auto_leaves_a_warm_cache_alone() {
    let t = scratch();
    plant(t.path(), "z s/a 5000\nz s/b 5000\nz s/c 70000");
    for name in ["a", "b", "c"] {
        fs::read(t.path().join("s").join(name)).unwrap();
    }
    let done = bcmr("copy -r --json s d", t.path()).exits(0);
    let said = engine(&done).unwrap();
    assert_eq!((count(&said, "ring_files"), count(&said, "sys_files")), (0, 3), "{said}");
    let done = bcmr("copy -rv s e", t.path()).exits(0);
    assert!(done.stderr.contains("engine sys for 3 files"), "{}", done.stderr);
}

/// With these calls failing as a kernel or a sandbox would have it.
fn tampered(inject: &str, args: &str, cwd: &Path) -> Done {
    let mut strace = vec!["-f", "-qq", "-o", "/dev/null", "-e", "trace=/io_uring", "-e", inject, BCMR];
    strace.extend(args.split_whitespace());
    finish(crate::table::command("strace", &strace, cwd), "")
}

#[test]
fn without_a_ring_it_is_said_once_and_copied_all_the_same() {
    needs!(crate::common::has_tool("strace"), "there is no strace");
    let t = scratch();
    plant(t.path(), "z s/a 5000\nz s/b 70000\nz s/c/d 5000001");
    for (inject, word, text) in [
        ("inject=io_uring_setup:error=ENOSYS", "missing", "no io_uring"),
        ("inject=io_uring_setup:error=EPERM", "forbidden", "forbidden"),
        ("inject=io_uring_setup:error=EMFILE", "refused", "Too many open files"),
        ("inject=io_uring_register:error=EINVAL", "too-old", "too old"),
    ] {
        for flags in ["--engine=ring", "--direct-io --engine=ring"] {
            let args = format!("copy -r --reflink=disable {flags} s d");
            let done = tampered(inject, &args, t.path()).exits(0);
            assert_eq!(done.stderr.matches(text).count(), 1, "{inject}: {}", done.stderr);
            crate::table::assert_same(
                &crate::table::look(&at(&t, "s")),
                &crate::table::look(&at(&t, "d")),
                inject,
            );
            fs::remove_dir_all(at(&t, "d")).unwrap();
            let done = tampered(inject, &format!("{args} --json"), t.path()).exits(0);
            let said = engine(&done).unwrap();
            assert_eq!((said["missing"].as_str(), count(&said, "ring_files")), (Some(word), 0), "{said}");
            fs::remove_dir_all(at(&t, "d")).unwrap();
        }
        // A user who did not ask for it is not told.
        let done = tampered(inject, "copy -r s d", t.path()).exits(0);
        assert_eq!(done.stderr, "", "{inject}");
        fs::remove_dir_all(at(&t, "d")).unwrap();
    }
}

/// A ring that stumbles goes on; one that breaks is left, and plain calls do the rest. What was being written past the
/// cache then is an error, as it may still be written. Several batches, so that none is given what another had asked for.
#[test]
fn a_ring_that_fails_lands_nothing_wrong() {
    needs!(crate::common::has_tool("strace"), "there is no strace");
    let t = scratch();
    plant(t.path(), "z s/a 5000\nz s/b 70000\nz s/c 400000\nz s/d 2000001");
    for n in 0..80 {
        plant(t.path(), &format!("z s/n{n} {}", 5000 + n));
    }
    let was = crate::table::look(&at(&t, "s"));
    let ways = ["--engine=ring", "--engine=ring --direct-io", "--engine=ring -V"];
    for (row, flags) in ways.into_iter().enumerate() {
        let args = format!("copy -r --reflink=disable {flags} s d");
        let stumbles = [
            "inject=io_uring_enter:error=EINTR:when=1+2",
            "inject=io_uring_enter:error=EAGAIN:when=1+2",
            "inject=io_uring_enter:error=EBUSY:when=1+3",
        ];
        // An ordinary run tries each with one row of flags, and what follows with one or two.
        for (_, inject) in stumbles.into_iter().enumerate().filter(|(n, _)| in_slice(row + n, 3)) {
            tampered(inject, &args, t.path()).exits(0);
            crate::table::assert_same(&was, &crate::table::look(&at(&t, "d")), &format!("{flags}, {inject}"));
            fs::remove_dir_all(at(&t, "d")).unwrap();
        }
        // For good, and once.
        let breaks = ["1+", "2+", "3+", "1", "2", "3", "5"];
        for (_, when) in breaks.into_iter().enumerate().filter(|(n, _)| in_slice(row + n, 2)) {
            let inject = format!("inject=io_uring_enter:error=ENOMEM:when={when}");
            let done = tampered(&inject, &args, t.path());
            let got = crate::table::look(t.path());
            for (name, said) in got.iter().filter(|(name, _)| name.starts_with(b"d/")) {
                let of_source = &was[name.get(2..).unwrap()];
                assert_eq!(said, of_source, "{flags}, {inject}: {}", String::from_utf8_lossy(name));
            }
            let whole = at(&t, "d").exists() && crate::table::look(&at(&t, "d")) == was;
            assert_eq!(done.code, Some(i32::from(!whole)), "{flags}, {inject}: {}", done.stderr);
            assert!(whole || flags.contains("direct"), "{flags}, {inject}: {}", done.stderr);
            assert!(!got.keys().any(|name| name.ends_with(b".stage")), "{flags}, {inject}: {got:?}");
            drop(fs::remove_dir_all(at(&t, "d")));
        }
    }
}

#[test]
fn a_ring_that_fails_names_what_could_not_be_written() {
    needs!(crate::common::has_tool("strace"), "there is no strace");
    let t = scratch();
    plant(t.path(), "z src 3146000");
    let inject = "inject=io_uring_enter:error=EIO:when=2+";
    let done = tampered(inject, "copy --reflink=disable --direct-io src dst", t.path()).exits(1);
    assert!(done.stderr.contains("cannot write 'dst'"), "{}", done.stderr);
}

#[test]
fn no_room_is_the_same_trouble_by_every_engine() {
    needs!(crate::common::is_root(), "mounting needs root");
    let (t, tmp) = (scratch(), Tmp::new());
    plant(t.path(), "z s/a 300000\nz s/b 300000\nz s/c 300000\nz s/d 300000\nz s/big 3000000");
    let small = match Mount::tmpfs("size=1m", &tmp.p("small")) {
        Ok(mount) => mount,
        Err(why) => return crate::common::skipped("no_room", &why),
    };
    for flags in [
        "--engine=sys",
        "--engine=ring",
        "--direct-io",
        "--engine=ring -V",
        "--engine=ring --preallocate=disable",
    ] {
        let dst = small.path().join("d");
        let done = bcmr(&format!("copy -r --reflink=disable {flags} s {}", dst.display()), t.path());
        assert_eq!(done.code, Some(6), "{flags}: {}", done.stderr);
        for entry in fs::read_dir(&dst).unwrap().map(|e| e.unwrap().path()) {
            let name = entry.file_name().unwrap().to_str().unwrap().to_owned();
            assert!(fs::read(&entry).unwrap() == noise(&format!("s/{name}"), 300_000), "{flags}: {name}");
        }
        fs::remove_dir_all(&dst).unwrap();
    }
}

/// What fits because it is compressed is written so whichever way it comes: no room is reserved for it, and none is missed.
#[test]
fn what_is_compressed_takes_no_room_in_advance() {
    const NAME: &str = "what_is_compressed_takes_no_room_in_advance";
    needs!(crate::common::is_root() && have("mkfs.btrfs"), "needs root and mkfs.btrfs");
    let tmp = Tmp::new();
    let mount = match Mount::image("btrfs", 128, &tmp.p("m")) {
        Ok(mount) => mount,
        Err(why) => return crate::common::skipped(NAME, &why),
    };
    let mut compress = command("mount", &["-o", "remount,compress=zstd"], tmp.path());
    assert!(compress.arg(mount.path()).status().unwrap().success());
    let text = "what is written again and again\n".repeat(3 << 20);
    assert!(crate::common::free(mount.path()).unwrap() < text.len() as u64);
    let (from, to) = (tmp.file("text", &text), tmp.p("m/text"));
    let far = Far::pipe();
    let near = ["-C", "-s", "--engine=ring", "--direct-io", "-V"];
    for (is_far, flags) in near.map(|flags| (false, flags)).into_iter().chain([(true, ""), (true, "-C")]) {
        let line = if is_far {
            Dir::Put.copy(&far, flags, &from, &to)
        } else {
            crate::common::bcmr(["copy", "--reflink=disable", flags]).args([&from, &to])
        };
        line.run().ok();
        assert!(fs::read(&to).unwrap() == text.as_bytes(), "{flags}, far: {is_far}");
        fs::remove_file(&to).unwrap();
        // What went gives its room back with the next commit.
        rustix::fs::syncfs(fs::File::open(mount.path()).unwrap()).unwrap();
    }
}

/// xfs takes room behind the end of a file that grows by writing, and what it took stays in the hole that follows.
#[test]
fn what_is_written_around_holes_leaves_them_empty() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    const NAME: &str = "what_is_written_around_holes_leaves_them_empty";
    needs!(crate::common::is_root() && have("mkfs.xfs"), "needs root and mkfs.xfs");
    let tmp = Tmp::new();
    let mount = match Mount::image("xfs", 512, &tmp.p("m")) {
        Ok(mount) => mount,
        Err(why) => return crate::common::skipped(NAME, &why),
    };
    let from = fs::File::create(mount.path().join("from")).unwrap();
    for mib in 0..64 {
        from.write_all_at(b"x", mib << 20).unwrap();
    }
    let blocks = |name: &str| {
        let file = fs::File::open(mount.path().join(name)).unwrap();
        file.sync_all().unwrap();
        file.metadata().unwrap().blocks()
    };
    for flags in ["", "--sparse=always", "-V", "-C"] {
        bcmr(&format!("copy --reflink=disable {flags} from to"), mount.path()).exits(0);
        assert!(blocks("to") <= 64 * 8 + 128, "{flags}: {}", blocks("to"));
        fs::remove_file(mount.path().join("to")).unwrap();
    }
}

/// The ring's options say what it is asked for: as many operations as there are blocks, as many of one file at once as the
/// depth, and none for what is smaller than the threshold.
#[test]
fn what_the_ring_is_asked_for() {
    const NAME: &str = "what_the_ring_is_asked_for";
    const MIB: usize = 8;
    if !have("strace") {
        return crate::common::skipped(NAME, "strace");
    }
    let dir = scratch();
    fs::write(at(&dir, "f"), noise("f", MIB << 20)).unwrap();
    if engine(&bcmr("copy --json --engine=ring --reflink=disable f g", dir.path()).exits(0))
        .is_none_or(|engine| count(&engine, "ring_files") == 0)
    {
        return crate::common::skipped(NAME, "no ring here");
    }
    // Through the cache each block is one read by the ring.
    for (flags, operations, at_once) in [
        ("--block-size=4K", MIB << 8, 5),
        ("--block-size=1M", MIB, 5),
        ("--queue-depth=1", MIB << 4, 1),
        ("--queue-depth=16", MIB << 4, 16),
        ("--async-threshold=8M", MIB << 4, 5),
        ("--async-threshold=9M", 0, 0),
    ] {
        let _gone = fs::remove_file(at(&dir, "g"));
        let line = format!(
            "-f -qq -e signal=none -e trace=io_uring_enter -o trace {BCMR} \
             copy -j1 --engine=ring --reflink=disable {flags} f g"
        );
        finish(command("strace", &words(&line), dir.path()), "").exits(0);
        assert!(fs::read(at(&dir, "g")).unwrap() == noise("f", MIB << 20), "{flags}");
        let trace = fs::read_to_string(at(&dir, "trace")).unwrap();
        let asked = trace.lines().filter_map(|call| call.split_once("io_uring_enter(")?.1.split(", ").nth(1));
        let asked: Vec<usize> = asked.map(|n| n.parse().unwrap()).collect();
        assert_eq!(asked.iter().sum::<usize>(), operations, "{flags}: {trace}");
        assert_eq!(asked.into_iter().max().unwrap_or(0), at_once, "{flags}");
    }
}

/// Locked memory is for direct I/O to be faster, not for it to work.
#[test]
fn a_user_without_locked_memory_copies_direct() {
    needs!(crate::common::is_root(), "acting as another user needs root");
    let tmp = Tmp::for_others();
    fs::write(tmp.p("big"), noise("big", 3_000_001)).unwrap();
    let line = format!(
        "ulimit -l 0; exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups ./bcmr copy --reflink=disable \
         --direct-io --json big out"
    );
    let done = finish(crate::table::command("sh", &["-c", &line], tmp.path()), "").exits(0);
    assert!(fs::read(tmp.p("out")).unwrap() == noise("big", 3_000_001));
    let said = engine(&done).unwrap();
    if said["missing"].is_null() {
        assert_eq!(count(&said, "direct_files") + count(&said, "not_direct_files"), 1, "{said}");
    }
}

/// A ring has threads of the kernel for what would wait. Where a user may have no more of them, plain calls copy, and the reason
/// is told.
#[test]
fn a_user_at_the_limit_of_processes_copies_by_plain_calls() {
    needs!(crate::common::is_root(), "acting as another user needs root");
    let tmp = Tmp::for_others();
    for flags in ["--direct-io", "--direct-io --engine=ring", "--direct-io -V"] {
        // What is not on the disk yet is waited for.
        fs::write(tmp.p("big"), noise("big", 8_000_001)).unwrap();
        let _gone = fs::remove_file(tmp.p("out"));
        let line = format!(
            "ulimit -u 1; exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups ./bcmr copy -j1 --reflink=disable \
             {flags} --json big out"
        );
        let done = finish(crate::table::command("bash", &["-c", &line], tmp.path()), "").exits(0);
        assert!(fs::read(tmp.p("out")).unwrap() == noise("big", 8_000_001), "{flags}");
        let said = engine(&done).unwrap();
        assert_eq!(count(&said, "ring_files") + count(&said, "sys_files"), 1, "{flags}: {said}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let t = scratch();
    plant(t.path(), "f f x");
    for (flags, says) in [
        ("--engine=fast", "engine"),
        ("--block-size=3K --engine=ring", "multiple of 4K"),
        ("--block-size=128M", "at most 64M"),
        ("--queue-depth=0", "queue-depth"),
        ("--async-threshold=much", "number of bytes"),
        ("--completion-timeout=60001", "completion-timeout"),
        ("--direct-io --engine=sys", "--engine=sys forbids"),
        ("--direct-io -C", "does not go with -C"),
        ("--direct-io -a", "does not go with -C"),
        ("--direct-io --no-cache", "goes past the page cache"),
        ("--no-cache=some", "--no-cache"),
    ] {
        let done = bcmr(&format!("copy {flags} f g"), t.path()).exits(2);
        assert!(done.stderr.contains(says), "{flags}: {}", done.stderr);
    }
    for flag in [
        "--engine=ring",
        "--direct-io",
        "--readahead",
        "--block-size=8K",
        "--preallocate=disable",
        "--no-cache",
    ] {
        for operands in ["f host:g", "host:g f"] {
            let done = bcmr(&format!("copy {flag} {operands}"), t.path()).exits(2);
            assert!(done.stderr.contains("on one machine"), "{flag}: {}", done.stderr);
        }
    }
}
