//! What is there and stays: what is believed of it, what is proved, and by whom, here and over a wire.

use crate::common::remote::{BOTH, Far};
use crate::common::{Line, Ran, Tmp, bcmr, chmod, in_slice, is_root, noise};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

const MIB: usize = 1 << 20;

/// `bcmr copy` of one pair, here and in both directions over a wire.
fn each_way(far: &Far, mut one: impl FnMut(&str, &dyn Fn(&str, &Path, &Path) -> Ran)) {
    one("here", &|flags, src, dst| bcmr(["copy"]).args(flags.split_whitespace()).args([src, dst]).run());
    for dir in BOTH {
        one(&format!("{dir:?}"), &|flags, src, dst| {
            let line: Line = dir.copy(far, flags, src, dst);
            line.run()
        });
    }
}

/// The same; an ordinary run takes one of the three, with each `turn` another one.
fn one_way(turn: usize, far: &Far, mut one: impl FnMut(&str, &dyn Fn(&str, &Path, &Path) -> Ran)) {
    let mut at = turn;
    each_way(far, |way, copy| {
        at += 1;
        if in_slice(at, 3) {
            one(way, copy);
        }
    });
}

fn set_time(path: &Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// `-C` believes size and time of what has its name; with `-V`, and with `-s`, it is read on both sides.
#[test]
fn what_goes_on_believes_and_what_proves() {
    let far = Far::pipe();
    let mut turn: usize = 0;
    for len in [5, 3 * MIB, 9 * MIB] {
        each_way(&far, |way, copy| {
            turn += 1;
            let tmp = Tmp::new();
            let good = noise(7, len);
            let src = tmp.file("s", &good);
            let dst = tmp.p("d");
            copy("-C --checkpoint-size=4M", &src, &dst).ok();
            let (mut bad, time) = (good.clone(), fs::metadata(&dst).unwrap().modified().unwrap());
            bad[len / 2] ^= 1;
            let rows = [("-C", false), ("-C -V", true), ("-s", true), ("-C -V=direct", true)];
            for (n, (flags, proves)) in rows.into_iter().enumerate() {
                // An ordinary run takes a quarter: each by some ways, and each length and way with some.
                if !in_slice(turn + n, 4) {
                    continue;
                }
                fs::write(&dst, &bad).unwrap();
                set_time(&dst, time);
                let said = copy(&format!("--json -n {flags} --checkpoint-size=4M"), &src, &dst).ok();
                let done = copy(&format!("--json {flags} --checkpoint-size=4M"), &src, &dst).ok();
                let about = format!("{way} {len} {flags}");
                assert_eq!(fs::read(&dst).unwrap() == good, proves, "{about}");
                let word = if proves { "\"copied\"" } else { "\"kept\"" };
                assert!(said.out.contains(word) && done.out.contains(word), "{about}: {said:?} {done:?}");
                if proves {
                    // The twin: what is as it should be is left alone.
                    let inode = inode(&dst);
                    copy(&format!("{flags} --checkpoint-size=4M"), &src, &dst).ok();
                    assert_eq!(inode, self::inode(&dst), "{about}: replaced by the same");
                }
            }
        });
    }
}

fn inode(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().ino()
}

/// `-a` adds only to what is the beginning of the source, whole blocks and the rest of one alike.
#[test]
fn what_is_added_to_is_proved() {
    let far = Far::pipe();
    let rows =
        [(1000, 1), (1000, 999), (3 * MIB, 2 * MIB + 5), (11 * MIB + 3, 9 * MIB + 7), (9 * MIB, 8 * MIB)];
    for (turn, (len, has)) in rows.into_iter().enumerate() {
        one_way(turn, &far, |way, copy| {
            let tmp = Tmp::new();
            let all = noise(9, len);
            let (src, dst) = (tmp.file("s", &all), tmp.p("d"));
            let wrong = [None, Some(0), Some(has / 2), Some(has - 1)];
            for (n, at) in wrong.into_iter().enumerate() {
                // An ordinary run takes some of the places, with the next row the others.
                if at.is_some() && !in_slice(turn + n, 2) {
                    continue;
                }
                let mut there = all[..has].to_vec();
                if let Some(at) = at {
                    there[at] ^= 1;
                }
                fs::write(&dst, &there).unwrap();
                let was = inode(&dst);
                let about = format!("{way}: {has} of {len}, wrong at {at:?}");
                // Over a wire a dry run looks at whole blocks of 4 MiB.
                let seen = way == "here" || len < MIB || at.is_none_or(|at| at < has / (4 * MIB) * 4 * MIB);
                if seen {
                    copy("-a -n", &src, &dst).code(if at.is_none() { 0 } else { 8 });
                    assert!(fs::read(&dst).unwrap() == there, "{about}: a dry run wrote");
                }
                let ran = copy("-a", &src, &dst).code(if at.is_none() { 0 } else { 8 });
                let now = fs::read(&dst).unwrap();
                assert_eq!(inode(&dst), was, "{about}");
                if at.is_none() {
                    assert!(now == all, "{about}");
                } else {
                    assert!(now == there, "{about}: it was written to");
                    assert!(ran.err.contains("it is not the beginning of the source"), "{about}: {ran:?}");
                }
            }
            // Nothing to add: proved as well.
            fs::write(&dst, &all).unwrap();
            copy("-a", &src, &dst).ok();
            let mut wrong = all.clone();
            wrong[len - 1] ^= 1;
            fs::write(&dst, &wrong).unwrap();
            copy("-a", &src, &dst).code(8);
            assert!(fs::read(&dst).unwrap() == wrong, "{way}: it was written to");
            // Blindly, by its length.
            fs::write(&dst, vec![b'x'; has]).unwrap();
            copy("--append=size", &src, &dst).ok();
            let now = fs::read(&dst).unwrap();
            assert!(now[..has].iter().all(|b| *b == b'x') && now[has..] == all[has..], "{way}");
        });
    }
}

/// An ACL as the kernel keeps it: a version, then tag, permissions and id of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

const NOBODY: u32 = u32::MAX;

/// Mode, owner and attributes of everything below `root`.
fn metadata(root: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut all = Vec::new();
    let mut stack = vec![root.to_owned()];
    while let Some(path) = stack.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let mut names = vec![0; 4096];
        let n = rustix::fs::llistxattr(&path, &mut names).unwrap_or(0);
        let mut attrs: Vec<String> = Vec::new();
        for name in names[..n].split(|b| *b == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; 4096];
            let n = rustix::fs::lgetxattr(&path, name, &mut value).unwrap();
            attrs.push(format!("{} {:?}", String::from_utf8_lossy(name), &value[..n]));
        }
        attrs.sort();
        let shown = path.strip_prefix(root).unwrap().display().to_string();
        all.push(format!("{shown} {:o} {}:{} {attrs:?}", meta.mode(), meta.uid(), meta.gid()));
        if meta.is_dir() {
            stack.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
    }
    all.sort();
    all
}

#[track_caller]
fn same(want: &[String], got: &[String], about: &str) {
    let lacks: Vec<_> = want.iter().filter(|line| !got.contains(line)).collect();
    let extra: Vec<_> = got.iter().filter(|line| !want.contains(line)).collect();
    assert!(lacks.is_empty() && extra.is_empty(), "{about}\nwant {lacks:#?}\ngot {extra:#?}");
}

/// What takes a file's place has of it what `cp`, which writes into it, would have left; what is new has what its
/// directory hands down.
#[test]
fn metadata_is_as_after_writing_into_it() {
    use rustix::fs::{XattrFlags, lsetxattr};
    let set = |path: &Path, name: &str, value: &[u8]| lsetxattr(path, name, value, XattrFlags::empty());
    let make = |tmp: &Tmp, defaults: bool, content: &[u8]| -> rustix::io::Result<()> {
        for name in ["s/plain", "s/acl", "s/attr", "s/private", "s/new", "s/sub/new", "s/sub/deep/new"] {
            tmp.file(name, content);
            chmod(&tmp.p(name), 0o755);
        }
        // What the source has is not wanted.
        set(&tmp.p("s/attr"), "user.source", b"not wanted")?;
        tmp.dir("d");
        for name in ["d/plain", "d/acl", "d/attr", "d/private"] {
            tmp.file(name, "old");
        }
        chmod(&tmp.p("d/private"), 0o600);
        chmod(&tmp.p("d/plain"), 0o640);
        let one = acl(&[(1, 6, NOBODY), (2, 4, 1234), (4, 0, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY)]);
        set(&tmp.p("d/acl"), "system.posix_acl_access", &one)?;
        set(&tmp.p("d/attr"), "user.own", b"stays")?;
        set(&tmp.p("d/attr"), "user.second", &[7; 30])?;
        if is_root() {
            rustix::fs::chown(tmp.p("d/private"), Some(rustix::fs::Uid::from_raw(1234)), None)?;
            set(&tmp.p("d/attr"), "trusted.own", b"stays")?;
        }
        if defaults {
            let down =
                acl(&[(1, 7, NOBODY), (2, 7, 1234), (4, 5, NOBODY), (0x10, 7, NOBODY), (0x20, 0, NOBODY)]);
            set(&tmp.p("d"), "system.posix_acl_default", &down)?;
        }
        Ok(())
    };
    let far = Far::pipe();
    // The small ones are for `cp`, to which the size is nothing, and where no file is copied.
    let (large, small) = (noise(3, 5 * MIB), noise(3, 5));
    for defaults in [false, true] {
        let judge = Tmp::new();
        if let Err(e) = make(&judge, defaults, &small) {
            return crate::common::skipped("metadata_is_as_after_writing_into_it", &e.to_string());
        }
        let (s, d) = (judge.p("s/."), judge.p("d"));
        assert!(std::process::Command::new("cp").arg("-r").args([&s, &d]).status().unwrap().success());
        let want = metadata(&judge.p("d"));
        let all = ["-r", "-r -V", "-r --sync -j4", "-r -C --checkpoint-size=4M"];
        // An ordinary run tries each of them with the default ACL or without.
        let is_tried = |n: usize| in_slice(n + usize::from(defaults), 2);
        for (n, flags) in all.into_iter().enumerate().filter(|(n, _)| is_tried(*n)) {
            one_way(n + usize::from(defaults), &far, |way, copy| {
                let tmp = Tmp::new();
                make(&tmp, defaults, &large).unwrap();
                copy(flags, &tmp.p("s/."), &tmp.p("d")).ok();
                same(&want, &metadata(&tmp.p("d")), &format!("{way} {flags}, default ACL {defaults}"));
            });
        }
        // A tree of its own, under a directory that hands down.
        let judge = Tmp::new();
        make(&judge, defaults, &small).unwrap();
        let status =
            std::process::Command::new("cp").arg("-r").args([judge.p("s"), judge.p("d/tree")]).status();
        assert!(status.unwrap().success());
        let want = metadata(&judge.p("d/tree"));
        for (n, flags) in ["-r", "-r -C --checkpoint-size=4M"].into_iter().enumerate() {
            one_way(n + usize::from(defaults), &far, |way, copy| {
                let tmp = Tmp::new();
                make(&tmp, defaults, &large).unwrap();
                copy(flags, &tmp.p("s"), &tmp.p("d/tree")).ok();
                same(
                    &want,
                    &metadata(&tmp.p("d/tree")),
                    &format!("{way} {flags}, default ACL {defaults}: new"),
                );
            });
        }
    }
    // Where the source's mode has bits that the umask takes, cp takes them from a directory below a default ACL as well.
    let judge = Tmp::new();
    make(&judge, true, &small).unwrap();
    judge.dir("s/deep");
    chmod(&judge.p("s/deep"), 0o775);
    let status = std::process::Command::new("cp").arg("-r").args([judge.p("s/deep"), judge.p("d")]).status();
    assert!(status.unwrap().success());
    let want = metadata(&judge.p("d/deep"));
    let mut turn = 0;
    for flags in ["-r", "-r -C"] {
        each_way(&far, |way, copy| {
            turn += 1;
            // An ordinary run takes a half: each way.
            if !in_slice(turn, 2) {
                return;
            }
            let tmp = Tmp::new();
            make(&tmp, true, &small).unwrap();
            tmp.dir("s/deep");
            chmod(&tmp.p("s/deep"), 0o775);
            copy(flags, &tmp.p("s/deep"), &tmp.p("d")).ok();
            same(&want, &metadata(&tmp.p("d/deep")), &format!("{way} {flags}: as cp"));
        });
    }
}

/// `-f` with `--inplace`: what cannot be opened to be written into is replaced; without `-f` it is an error and stays.
#[test]
fn force_replaces_what_cannot_be_written_into() {
    let far = Far::pipe();
    for len in [1000, 5 * MIB] {
        each_way(&far, |way, copy| {
            let tmp = Tmp::new();
            let src = tmp.file("s", noise(5, len));
            let dst = tmp.p("d");
            // By a program of its own: a child of another test may hold for a moment what this process writes to, and
            // then it cannot be run.
            assert!(std::process::Command::new("cp").arg("/bin/sleep").arg(&dst).status().unwrap().success());
            chmod(&dst, 0o755);
            // A program that runs cannot be written into, not even by root.
            let mut running = std::process::Command::new(&dst).arg("1000").spawn().unwrap();
            let was = inode(&dst);
            let ran = copy("--inplace", &src, &dst);
            let stayed = fs::read(&dst).unwrap() == fs::read("/bin/sleep").unwrap();
            let forced = copy("--inplace -f", &src, &dst);
            running.kill().unwrap();
            running.wait().unwrap();
            ran.code(1).says("Text file busy");
            assert!(stayed, "{way} {len}");
            forced.ok();
            assert!(fs::read(&dst).unwrap() == noise(5, len), "{way} {len}");
            assert_ne!(inode(&dst), was, "{way} {len}");
            assert_eq!(crate::common::mode(&dst) & 0o777, 0o755, "{way} {len}: as any file that is replaced");
            // The twin: what can be opened keeps its inode.
            let now = inode(&dst);
            copy("--inplace -f", &src, &dst).ok();
            assert_eq!(inode(&dst), now, "{way} {len}");
            assert_eq!(crate::common::litter(tmp.path()), [] as [std::ffi::OsString; 0], "{way} {len}");
        });
    }
}

/// A file that grows while it is copied: with `--allow-changing` the length that it had arrives, and that is said. It is
/// written to while the copy, which has looked at it, waits for an answer.
#[test]
fn what_grows_is_copied_as_long_as_it_was() {
    use std::io::{Read, Write};
    type Change = fn(&Path);
    let grow: Change =
        |path| fs::File::options().append(true).open(path).unwrap().write_all(b"MORE").unwrap();
    let shrink: Change = |path| {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    };
    let with = "--allow-changing";
    for len in [1000, 100_000, 9 * MIB] {
        for (flags, change, code) in [
            (&[with][..], grow, 0),
            (&[with, "-V"], grow, 0),
            (&[with, "--engine=ring"], grow, 0),
            (&[with, "--reflink=disable"], grow, 0),
            (&[with, "--inplace"], grow, 0),
            (&[with, "-p"], grow, 0),
            (&[with], shrink, 5),
            (&[], grow, 5),
        ] {
            let tmp = Tmp::new();
            let had = noise(6, len);
            let src = tmp.file("s", &had);
            tmp.file("d", "old");
            let mut child = std::process::Command::new(crate::common::BCMR)
                .args(["copy", "-i"])
                .args(flags)
                .args(["s", "d"])
                .current_dir(tmp.path())
                .stdin(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let (mut answers, mut err) = (child.stdin.take().unwrap(), child.stderr.take().unwrap());
            let (mut said, mut byte) = (Vec::new(), [0]);
            // Each time it asks; one that changed is tried once more.
            while err.read(&mut byte).unwrap() == 1 {
                said.push(byte[0]);
                if said.ends_with(b"[y/N] ") {
                    change(&src);
                    answers.write_all(b"y\n").unwrap();
                }
            }
            let said = String::from_utf8(said).unwrap();
            let about = format!("{len} {flags:?}: {said}");
            assert_eq!(child.wait().unwrap().code(), Some(code), "{about}");
            let landed = fs::read(tmp.p("d")).unwrap();
            if code == 0 {
                assert!(!said.contains("hint: "), "{about}");
                assert!(landed == had, "{about}");
                assert!(
                    said.contains("warning: ") && said.contains("as many bytes as it had at first"),
                    "{about}"
                );
            } else if !flags.contains(&"--inplace") {
                assert!(landed == b"old", "{about}");
            }
        }
    }
}
