//! Metadata, proved by an independent judge: after `copy --archive` of random trees, rsync finds nothing to do.
//!
//! `BCMR_SEED=n` repeats one tree, `BCMR_TREES=n` sets how many are tried (6, or 30 where all is tried). What rsync does
//! not look at (holes, access to attributes of special files) is compared by the tests' own eyes.

use crate::common::maker::{Can, Maker, can, judge};
use crate::common::remote::{Dir, Far};
use crate::common::*;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Random trees on the file system of `place`.
fn trees(place: &Path, can: Can, count: u64) {
    let chosen = std::env::var("BCMR_SEED").ok().map(|s| s.parse::<u64>().expect("BCMR_SEED is a number"));
    let count = std::env::var("BCMR_TREES").map_or(count, |s| s.parse().expect("BCMR_TREES is a number"));
    let start = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    for n in 0..if chosen.is_some() { 1 } else { count } {
        let seed = chosen.unwrap_or(u64::from(start) + n);
        let here = Tmp::beneath(place);
        let src = here.p("src");
        let mut maker = Maker::new(seed, can, &src);
        // Half of the trees then change and are copied again, so that the copy meets what is there.
        maker.make(40);
        let copy = |src: &Path, dst: &Path, jobs: &str| {
            let args = [OsStr::new("copy"), OsStr::new("--archive"), OsStr::new("-j"), OsStr::new(jobs)];
            let ran = bcmr(args).args([src.join("."), dst.to_owned()]).run();
            assert_eq!(ran.code, 0, "BCMR_SEED={seed}, -j{jobs}: {}", ran.err);
        };
        let (one, four) = (here.p("one"), here.p("four"));
        copy(&src, &one, "1");
        judge(seed, "new, -j1", &src, &one);
        copy(&src, &four, "4");
        judge(seed, "new, -j4", &src, &four);
        if n % 2 == 0 || chosen.is_some() {
            maker.age();
            copy(&src, &one, "1");
            judge(seed, "over an older one, -j1", &src, &one);
            copy(&src, &four, "4");
            judge(seed, "over an older one, -j4", &src, &four);
        }
        if !is_root() {
            for dir in maker.dirs.iter().rev() {
                chmod(dir, 0o700);
            }
        }
    }
}

const UNTIL_2446: (i64, i64) = (i32::MIN as i64, 15_032_385_535);

/// Runs a test on a new file system, where there can be one.
fn on_image(test: &str, kind: &str, mib: u64, run: impl FnOnce(&Path)) {
    if !is_root() || !has_tool(&format!("mkfs.{kind}")) {
        return skipped(test, &format!("needs root and mkfs.{kind}"));
    }
    let tmp = Tmp::new();
    match Mount::image(kind, mib, &tmp.p("m")) {
        Ok(mount) => run(mount.path()),
        Err(why) => skipped(test, &why),
    }
}

#[test]
fn rsync_finds_nothing_to_do_where_the_tests_are() {
    if !has_tool("rsync") {
        skipped("rsync as the judge", "rsync is not installed");
    }
    let tmp = Tmp::new();
    // 1903 to 2105: what every disk file system of today holds.
    let count = if all_cases() { 30 } else { 6 };
    trees(tmp.path(), can(tmp.path(), (-2_000_000_000, 4_260_000_000), 1500), count);
}

#[test]
fn rsync_finds_nothing_to_do_on_ext4() {
    on_image("ext4", "ext4", 256, |place| trees(place, can(place, UNTIL_2446, 1500), 6));
}

#[test]
fn rsync_finds_nothing_to_do_on_xfs() {
    on_image("xfs", "xfs", 320, |place| trees(place, can(place, UNTIL_2446, 40_000), 6));
}

#[test]
fn rsync_finds_nothing_to_do_on_btrfs() {
    let times = (-60_000_000_000, 60_000_000_000);
    let count = if all_cases() { 6 } else { 3 };
    on_image("btrfs", "btrfs", 320, |place| trees(place, can(place, times, 8000), count));
}

#[test]
fn rsync_finds_nothing_to_do_in_memory() {
    needs!(is_root(), "mounting needs root");
    let tmp = Tmp::new();
    match Mount::tmpfs("size=256m", &tmp.p("m")) {
        Ok(mount) => trees(mount.path(), can(mount.path(), (-60_000_000_000, 60_000_000_000), 8000), 6),
        Err(why) => skipped("tmpfs", &why),
    }
}

/// ext4 keeps attributes in one block: those that a directory has must go before those that it is to have find room.
#[test]
fn attributes_that_fill_a_block_take_the_place_of_others() {
    use rustix::fs::{XattrFlags, lsetxattr};
    on_image("attributes_that_fill_a_block_take_the_place_of_others", "ext4", 64, |place| {
        let (src, dst) = (place.join("src"), place.join("dst"));
        let fill = |dir: &Path, name: &str| {
            std::fs::create_dir(dir).unwrap();
            let fits = |bytes: &usize| lsetxattr(dir, name, &vec![b'x'; *bytes], XattrFlags::empty()).is_ok();
            (1..=60).rev().map(|n| n * 64).find(fits).expect("no attribute fits")
        };
        assert_eq!(fill(&src, "user.new"), fill(&dst, "user.old"));
        let args = [OsStr::new("copy"), OsStr::new("--archive"), OsStr::new("-T")];
        bcmr(args).args([&src, &dst]).run().ok();
        judge(0, "over a full one", &src, &dst);
    });
}

/// XFS lists an ACL a second time, among the attributes of root. Those are neither copied nor removed: the one would give back
/// what was revoked, the other takes the ACL.
#[test]
fn an_acl_goes_to_xfs_and_back() {
    let test = "an_acl_goes_to_xfs_and_back";
    needs!(
        ["setfacl", "getfacl", "getfattr"].iter().all(|tool| has_tool(tool)),
        "needs setfacl and getfattr"
    );
    let ran = |line: &str, at: &Path| {
        let ran = std::process::Command::new("sh").current_dir(at).args(["-ec", line]).output().unwrap();
        assert!(ran.status.success(), "{line}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    let between = |e: &Path, x: &Path| {
        let tell = |at: &Path| ran("getfacl -cnpR .", at);
        let go = |verb: &str, from: PathBuf, to: PathBuf| {
            bcmr(verb.split(' ')).args([&from, &to]).run().ok();
        };
        ran("mkdir -p s/d; echo a >s/d/f; setfacl -m u:9:rwx -dm u:9:rwx s s/d; setfacl -m u:9:rw s/d/f", e);
        let whole = tell(&e.join("s"));
        assert_eq!(whole.matches("user:9:rw").count(), 5, "{whole}");
        for verb in ["copy --archive", "sync"] {
            go(verb, e.join("s"), x.join("d"));
            assert_eq!(tell(&x.join("d")), whole, "{verb}");
            go("check --archive -T", e.join("s"), x.join("d"));
            go(verb, x.join("d"), e.join("back"));
            assert_eq!(tell(&e.join("back")), whole, "{verb}");
            // What XFS shows of them gives none back once they are revoked.
            ran("setfacl -Rb back", e);
            let none = tell(&e.join("back"));
            go(verb, e.join("back"), x.join("none"));
            assert_eq!(tell(&x.join("none")), none, "{verb}");
            go("check --archive -T", e.join("back"), x.join("none"));
            ran("rm -r back", e);
            ran("rm -r d none", x);
        }
        // ACLs alone are brought up to date: given, and revoked.
        go("sync", e.join("s"), x.join("d"));
        ran("setfacl -m u:8:r s/d s/d/f", e);
        go("sync", e.join("s"), x.join("d"));
        let more = tell(&e.join("s"));
        assert!(more != whole && tell(&x.join("d")) == more, "{more}");
        go("sync", x.join("d"), e.join("back"));
        ran("setfacl -Rb s", e);
        let none = tell(&e.join("s"));
        for (from, to) in [(e.join("s"), e.join("back")), (e.join("back"), x.join("d"))] {
            go("sync", from, to.clone());
            assert_eq!(tell(&to), none);
        }
        ran("setfacl -m u:9:rwx -dm u:9:rwx s", e);
        let moved = tell(&e.join("s"));
        go("move", e.join("s"), x.join("moved"));
        assert_eq!(tell(&x.join("moved")), moved);
    };
    on_image(test, "ext4", 64, |e| on_image(test, "xfs", 320, |x| between(e, x)));
}

/// A sync that finds nothing to do writes nothing, to no directory either: it may be one that cannot be written.
#[test]
fn what_has_its_attributes_is_not_given_them_again() {
    use rustix::fs::{XattrFlags, lsetxattr};
    let test = "what_has_its_attributes_is_not_given_them_again";
    needs!(has_tool("setfacl"), "needs setfacl");
    on_image(test, "ext4", 64, |place| {
        let (src, dst, bound) = (place.join("s"), place.join("d"), place.join("bound"));
        for dir in ["attribute", "acl", "held"] {
            std::fs::create_dir_all(src.join(dir)).unwrap();
        }
        lsetxattr(src.join("attribute"), "user.a", b"1", XattrFlags::empty()).unwrap();
        let acl = ["-m", "u:9:rwx", "-dm", "u:9:rwx"];
        let given = std::process::Command::new("setfacl").args(acl).arg(src.join("acl")).status().unwrap();
        assert!(given.success());
        std::os::unix::fs::chown(src.join("held"), Some(7), Some(8)).unwrap();
        for verb in ["sync", "sync --fake-super"] {
            let sync = |to: &Path| bcmr(verb.split(' ')).args([&src, to]).run();
            sync(&dst).ok();
            let mount = Mount::bind(&dst, &bound).unwrap();
            let closed = ["-o", "remount,ro,bind"].map(OsStr::new);
            let closed = std::process::Command::new("mount").args(closed).arg(&bound).status().unwrap();
            assert!(closed.success());
            sync(&bound).ok();
            // The twin: what differs is written, or told.
            lsetxattr(src.join("attribute"), "user.a", verb.as_bytes(), XattrFlags::empty()).unwrap();
            sync(&bound).code(1).says("Read-only file system");
            drop(mount);
            sync(&dst).ok();
            std::fs::remove_dir_all(&dst).unwrap();
        }
    });
}

/// Some file systems (fuse-overlayfs) take capabilities away with chmod, so they are given after it.
#[test]
fn a_capability_comes_after_the_mode() {
    use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
    needs!(is_root() && has_tool("strace"), "needs root and strace");
    // VFS_CAP_REVISION_2, effective; CAP_NET_RAW.
    let value = [&0x0200_0001u32.to_le_bytes()[..], &(1u32 << 13).to_le_bytes(), &[0; 12]].concat();
    let tmp = Tmp::new();
    let (src, dst, log) = (tmp.file("src", "x"), tmp.p("dst"), tmp.p("log"));
    if lsetxattr(&src, "security.capability", &value, XattrFlags::empty()).is_err() {
        return skipped("a_capability_comes_after_the_mode", "no capabilities on files here");
    }
    // A file that waits for its owner is born with another mode than it gets.
    std::os::unix::fs::chown(&src, Some(7), Some(8)).unwrap();
    lsetxattr(&src, "security.capability", &value, XattrFlags::empty()).unwrap();
    chmod(&src, 0o755);
    let calls = "trace=chmod,fchmod,fchmodat,fsetxattr,setxattr,lsetxattr";
    let line = ["-f", "-qq", "-e", "signal=none", "-e", calls, "-o"];
    Line::new(Path::new("strace"))
        .args(line)
        .args([log.as_os_str()])
        .args([BCMR, "copy", "--archive"])
        .args([&src, &dst])
        .run()
        .ok();
    let log = std::fs::read_to_string(log).unwrap();
    let told =
        |what: &str| log.lines().enumerate().filter(|(_, line)| line.contains(what)).map(|(n, _)| n).last();
    assert!(told("security.capability") > told("chmod") && told("chmod").is_some(), "{log}");
    let mut got = vec![0; 100];
    let bytes = lgetxattr(&dst, "security.capability", &mut got).unwrap();
    assert_eq!(got[..bytes], value);
}

/// On xfs many new files are made elsewhere than in the directories that they get their names in. They have what they would
/// have inherited there: group, ACL and quota project; a mount in the way is none.
#[test]
fn what_is_made_elsewhere_on_xfs_inherits_what_cp_has_it_inherit() {
    let test = "what_is_made_elsewhere_on_xfs_inherits_what_cp_has_it_inherit";
    if !["setfacl", "chattr", "lsattr"].iter().all(|tool| has_tool(tool)) {
        return skipped(test, "needs setfacl, chattr and lsattr");
    }
    on_image(test, "xfs", 320, |place| {
        let sh = |at: &Path, line: &str| {
            let ran = std::process::Command::new("sh").current_dir(at).args(["-ec", line]).output().unwrap();
            assert!(ran.status.success(), "{line}: {ran:?}");
            String::from_utf8(ran.stdout).unwrap()
        };
        let dirs = "plain group acl project again";
        for dir in dirs.split(' ') {
            std::fs::create_dir_all(place.join("src").join(dir)).unwrap();
            (0..300).for_each(|n| std::fs::write(place.join(format!("src/{dir}/{n}")), "x").unwrap());
        }
        let prepare = "chgrp 7 group; chmod g+s group; setfacl -d -m u:9:rw acl; chattr +P -p 5 project";
        for name in ["ours", "theirs", "mounted"] {
            std::fs::create_dir(place.join(name)).unwrap();
            sh(&place.join(name), &format!("mkdir {dirs}; {prepare}"));
        }
        let copy = |jobs: &str, to: &str| {
            let args = ["copy", "-r", "-j", jobs];
            bcmr(args).args([&place.join("src/."), &place.join(to)]).run().ok();
        };
        copy("1", "ours");
        sh(place, "cp -r src/. theirs");
        let made = |at: &Path| sh(at, "getfacl -cn */*; lsattr -pd */*; stat -c '%n %g %a %s' */*");
        let (made, by_cp) = (made(&place.join("ours")), made(&place.join("theirs")));
        let differ: Vec<_> =
            made.lines().zip(by_cp.lines()).filter(|(ours, theirs)| ours != theirs).collect();
        assert!(differ.is_empty() && made.lines().count() == by_cp.lines().count(), "{differ:?}");
        assert!(["user:9:rw-", "    5 ", " 7 644 1"].iter().all(|what| made.contains(what)), "{made}");
        std::fs::create_dir(place.join("elsewhere")).unwrap();
        let bound = place.join("mounted/again");
        let _mount = Mount::bind(&place.join("elsewhere"), &bound).unwrap();
        copy("4", "mounted");
        assert_eq!(names(&bound).len(), 300);
    });
}

/// The directory that files are made in elsewhere has a stage's name for a moment; a run that is killed then leaves it to the
/// next one.
#[test]
fn a_kill_leaves_a_directory_for_files_on_xfs_to_the_next_run() {
    let test = "a_kill_leaves_a_directory_for_files_on_xfs_to_the_next_run";
    needs!(has_tool("strace"), "strace kills at a system call");
    on_image(test, "xfs", 320, |place| {
        let (src, dst) = (place.join("src"), place.join("dst"));
        [&src, &dst].iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        (0..300).for_each(|n| std::fs::write(src.join(n.to_string()), "x").unwrap());
        let words = ["copy", "-r", "-j", "1"];
        let ends = [&src.join("."), &dst];
        bcmr_killed_at(1, "unlinkat").args(words).args(ends).run().code(1009);
        assert_eq!(litter(&dst).len(), 1, "it was about to lose its name");
        bcmr(words).args(ends).run().ok();
        assert_no_litter(&dst);
        assert_eq!(names(&dst).len(), 300);
    });
}

/// A file system that reserves room behind a file that grows must not find that room where holes are.
#[test]
fn holes_stay_holes_on_xfs() {
    use crate::common::remote::{Dir, Far};
    use std::os::unix::fs::{FileExt, MetadataExt};
    on_image("holes_stay_holes_on_xfs", "xfs", 320, |place| {
        let src = place.join("src");
        let comb = std::fs::File::create(&src).unwrap();
        comb.set_len(6 << 20).unwrap();
        for n in 0..32 {
            comb.write_all_at(&noise(n, 4096), n * (64 << 10)).unwrap();
        }
        comb.sync_all().unwrap();
        let blocks = |path: &Path| std::fs::metadata(path).unwrap().blocks();
        for flags in ["--archive", "--archive -V", "--archive -V --sync"] {
            for way in [None, Some(Dir::Put), Some(Dir::Get)] {
                let dst = place.join("dst");
                match way {
                    Some(dir) => dir.copy(&Far::pipe(), flags, &src, &dst).run().ok(),
                    None => bcmr(["copy"]).args(flags.split(' ')).args([&src, &dst]).run().ok(),
                };
                assert_eq!(std::fs::read(&src).unwrap(), std::fs::read(&dst).unwrap(), "{flags} {way:?}");
                let (had, has) = (blocks(&src), blocks(&dst));
                assert!(has <= 2 * had, "{flags} {way:?}: {had} sectors became {has}");
                std::fs::remove_file(&dst).unwrap();
            }
        }
    });
}

/// Reading changes when a file was read last (where it was written since: relatime); a copy is to have what was before.
/// L6, R7: the kernel says nothing where it sets the nearest time that a file system can hold.
#[test]
fn l6_times_that_a_file_system_cannot_hold_are_told() {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    use std::os::unix::fs::MetadataExt;
    let (year_1800, year_3000) = (-5_364_662_400, 32_503_680_000);
    on_image("times out of range", "ext4", 16, |disk| {
        let tmp = Tmp::new();
        let memory = Mount::tmpfs("size=1m", &tmp.dir("memory")).unwrap();
        tmp.file("memory/s/d/f", "content");
        std::os::unix::fs::symlink("f", tmp.p("memory/s/d/l")).unwrap();
        let set = |name: &str, tv_sec| {
            let at = Timespec { tv_sec, tv_nsec: 0 };
            let times = Timestamps { last_access: at, last_modification: at };
            utimensat(CWD, tmp.p("memory/s").join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        };
        let make = || [("d/l", year_3000), ("d/f", year_1800), ("d", year_3000)].map(|(n, t)| set(n, t));
        make();
        let line = |words: &str| bcmr(words.split(' ')).args([disk.join("o")]).cwd(&tmp.p("memory"));
        let away = || std::fs::remove_dir_all(disk.join("o")).unwrap();
        let told = |ran: &Ran| ["o/d'", "o/d/f'", "o/d/l'"].map(|name| ran.err.contains(name));
        for (words, code) in [("copy --archive -T s", 1), ("sync s", 1), ("copy -pr -T s", 0)] {
            let ran = line(words).run().code(code).says("cannot hold them");
            assert_eq!(told(&ran), [true; 3], "{words}: {}", ran.err);
            assert_eq!(std::fs::read(disk.join("o/d/f")).unwrap(), b"content");
            away();
            make();
        }
        for way in [Dir::Put, Dir::Get] {
            let ran =
                way.copy(&Far::pipe(), "--archive -T", &tmp.p("memory/s"), &disk.join("o")).run().code(1);
            assert!(ran.err.contains("cannot hold them"), "{}", ran.err);
            away();
            make();
        }
        // GNU's do not look, and a file is replaced by a rename all the same.
        for words in ["cp -aT s", "cp -aTv s", "cp -aT s"] {
            let ran = line(words).run().ok();
            assert_eq!(ran.err, "", "{words}");
        }
        away();
        bcmr(["cp", "-a", "s", "s2"]).cwd(memory.path()).run().ok();
        let ran = line("mv s").run().ok();
        assert_eq!((ran.err.as_str(), tmp.p("memory/s").exists()), ("", false));
        away();
        // What is not possible there is told, and the source goes.
        std::fs::rename(tmp.p("memory/s2"), tmp.p("memory/s")).unwrap();
        make();
        let ran = line("move -T s").run().code(1).says("cannot hold them");
        assert_eq!((told(&ran), tmp.p("memory/s").exists()), ([true; 3], false), "{}", ran.err);
        away();
        // The twins: what is held is no loss, here and there.
        tmp.file("memory/s/d/f", "content");
        set("d/f", 5_000_000_000);
        set("d", i32::MIN.into());
        line("copy --archive -T s").run().ok();
        set("d/f", year_1800);
        bcmr(["copy", "--archive", "-T", "s", "again"]).cwd(memory.path()).run().ok();
        let second = |path: PathBuf| std::fs::metadata(path).unwrap().mtime();
        assert_eq!((second(disk.join("o/d/f")), second(disk.join("o/d"))), (5_000_000_000, i32::MIN.into()));
        assert_eq!(second(tmp.p("memory/again/d/f")), year_1800);
    });
}

#[test]
fn the_time_of_the_last_access_is_the_one_before_the_copy() {
    use crate::common::remote::{Dir, Far};
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    use std::os::unix::fs::MetadataExt;
    let tmp = Tmp::new();
    let (read, written) = (1_000_000_000, 1_100_000_000);
    let at = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
    let times = Timestamps { last_access: at(read), last_modification: at(written) };
    let names = ["empty", "large", "link", "few/small", "few/small-too", "few", "."];
    let ways = [("here", None), ("up", Some(Dir::Put)), ("down", Some(Dir::Get))];
    for (way, _) in ways {
        tmp.file(format!("{way}/empty"), "");
        // By themselves: files behind one that is empty or large may be read in another way.
        tmp.file(format!("{way}/few/small"), "small");
        tmp.file(format!("{way}/few/small-too"), "small");
        tmp.file(format!("{way}/large"), vec![7; 3 << 20]);
        std::os::unix::fs::symlink("large", tmp.p(format!("{way}/link"))).unwrap();
        for name in names {
            utimensat(CWD, tmp.p(way).join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    }
    // What changed within these seconds would be looked at in another way.
    std::thread::sleep(std::time::Duration::from_millis(2200));
    for (way, far) in ways {
        let (src, dst) = (tmp.p(way), tmp.p(format!("{way}-copied")));
        match far {
            Some(dir) => dir.copy(&Far::pipe(), "--archive", &src, &dst).run().ok(),
            None => bcmr(["copy", "--archive"]).args([&src, &dst]).run().ok(),
        };
        // Towards another machine a directory is listed before it is sent: what there is to do is counted.
        for name in names.into_iter().filter(|name| far.is_none() || ![".", "few"].contains(name)) {
            let info = std::fs::symlink_metadata(dst.join(name)).unwrap();
            assert_eq!((info.atime(), info.mtime()), (read, written), "{way}/{name}");
        }
    }
}

/// What could not be given its mode or attributes does not look like its source to the same command, which gives them.
#[test]
fn what_was_lost_once_is_given_by_the_same_command() {
    needs!(has_tool("strace"), "there is no strace");
    for call in ["fchmod", "fsetxattr"] {
        let tmp = Tmp::new();
        chmod(&tmp.file("s/f", "content"), 0o755);
        rustix::fs::lsetxattr(tmp.p("s/f"), "user.of", b"source", rustix::fs::XattrFlags::empty()).unwrap();
        tmp.dir("d");
        let words = ["copy", "--archive", "-C", "-T", "s", "d"];
        let ran = bcmr_failing_at("1+", call, "EDQUOT").args(words).cwd(tmp.path()).run();
        ran.code(6).says("d/f");
        bcmr(words).cwd(tmp.path()).run().ok();
        assert_same(&tmp.p("s"), &tmp.p("d"), EVERYTHING);
    }
}

/// Going on needs the times of files. A directory that is there and another user's keeps what it has, as without -C, unless its
/// times were asked for.
#[test]
fn a_directory_of_another_user_is_copied_into() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    tmp.file("s/sub/f", "F");
    let far = Far::pipe();
    chmod(&far.home(), 0o777);
    let nobody = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
    let far = far.with("FAR_RUN", &nobody).program(&tmp.p("bcmr"));
    for (n, (flags, code)) in
        [("-rT", 0), ("-rTC", 0), ("-rTC --preserve=timestamps", 1)].into_iter().enumerate()
    {
        let (near, there) = (tmp.dir(format!("d{n}")), tmp.dir(format!("e{n}")));
        for dst in [&near, &there] {
            chmod(dst, 0o777);
        }
        let ran = bcmr_as(NOBODY, &tmp, ["copy"]).args(flags.split(' ')).args([&tmp.p("s"), &near]).run();
        ran.code(code);
        let sent = Dir::Put.copy(&far, flags, &tmp.p("s"), &there).run().code(code);
        assert_eq!(sent.err.contains("cannot set times"), code == 1, "{flags}: {}", sent.err);
        for dst in [near, there] {
            let of = |path: PathBuf| std::fs::metadata(path).unwrap().modified().unwrap();
            assert_eq!(std::fs::read(dst.join("sub/f")).unwrap(), b"F");
            if flags.contains('C') {
                assert_eq!(of(dst.join("sub/f")), of(tmp.p("s/sub/f")), "{flags}");
                assert_eq!(of(dst.join("sub")), of(tmp.p("s/sub")), "{flags}");
            }
        }
    }
}

/// Only root gives files away. A foreign owner that a copy happens not to keep is nothing to tell, as with cp; one that was asked
/// for is, and what then is hinted at is no option that changes nothing.
#[test]
fn an_owner_that_was_asked_for_and_not_given_is_an_error() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    tmp.file("s/f", "F");
    let nobody = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
    let far = Far::pipe();
    chmod(&far.home(), 0o777);
    let far = far.with("FAR_RUN", &nobody).program(&tmp.p("bcmr"));
    for (n, (flags, code)) in [
        ("-rp", 0),
        ("-rp --numeric-ids", 0),
        (&format!("-r --chown {NOBODY}:{NOBODY}"), 0),
        ("-rp --usermap 5:6", 0),
        ("-r --chown 7", 1),
        ("-rp --chown :8", 1),
        ("-r --groupmap *:8", 1),
        ("-r --usermap 5:6,0:7", 1),
        ("--archive --chown 7", 1),
    ]
    .into_iter()
    .enumerate()
    {
        let dst = tmp.p(format!("d{n}"));
        let here = bcmr_as(NOBODY, &tmp, ["copy"]).args(flags.split(' ')).args([&tmp.p("s"), &dst]).run();
        let there = Dir::Put.copy(&far, flags, &tmp.p("s"), &dst.with_extension("far")).run();
        for ran in [here, there] {
            let ran = ran.code(code);
            assert_eq!(ran.err.contains("only root may give files away"), code == 1, "{flags}: {}", ran.err);
            assert_eq!(ran.err.contains("leave out what says"), code == 1, "{flags}: {}", ran.err);
            assert!(!ran.err.contains("--no-preserve"), "{flags}: {}", ran.err);
        }
        assert_eq!(names(&dst), ["f"]);
    }
}

/// Where only attributes did not fit on a full disk the exit code says that it is full, as for contents.
#[test]
fn attributes_that_do_not_fit_are_told_as_a_full_disk() {
    needs!(has_tool("strace"), "there is no strace");
    for verb in [&["copy", "--archive", "-T"][..], &["sync"]] {
        for (error, code) in [("ENOSPC", 6), ("EDQUOT", 6), ("EIO", 1), ("EINVAL", 1)] {
            let tmp = Tmp::new();
            tmp.file("s/a", "content");
            let line = bcmr_failing_at("1+", "utimensat", error).args(verb).args(["s", "d"]).cwd(tmp.path());
            let ran = line.run().code(code);
            assert!(ran.err.contains("times"), "{verb:?} {error}: {ran:?}");
            assert_eq!(std::fs::read_to_string(tmp.p("d/a")).unwrap(), "content", "{verb:?} {error}");
        }
    }
}
