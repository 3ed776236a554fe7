//! A move never loses anything: whatever goes wrong, each file is whole at its source or at its destination.

use crate::common::{Mount, all_cases, in_slice, sliced};
use crate::table::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;

const EVERY_KIND: &str = "
    f s/a A
    h s/b = s/a
    f s/empty
    z s/big 5000000
    z s/sub/small 3000
    o s/sub/sparse
    h s/sub/c = s/a
    d s/void
    l s/l -> a
    l s/dang -> nowhere
    p s/sub/p
    s s/sub/sock
    f s/sub/deep/er/x X
";

/// Both ends are one object: the move is refused and nothing is gone.
#[test]
fn one_object() {
    const TREE: &str = "
        f one ONE
        h two = one
        l l -> one
        l ll -> l
        l loop -> loop
        d dir/in
        f dir/in/x X
        l ld -> dir
        f sub/one SUB
        l sub/up -> ../one";
    for (args, code) in [
        ("one one", 8),
        ("one ./one", 8),
        ("one .", 8),
        ("one dir/../one", 8),
        ("one two", 8),
        ("two one", 8),
        ("l one", 8),
        ("l l", 8),
        ("ll l", 0),
        ("loop loop", 8),
        ("dir dir", 8),
        ("dir dir/in", 8),
        ("dir dir/in/new", 8),
        ("dir ld", 8),
        ("ld/ dir", 8),
        ("--merge dir .", 8),
        ("--merge dir ld/in", 8),
        ("--merge -T dir dir", 8),
        ("-f one two", 8),
        ("--no-clobber one two", 8),
        ("-T ld dir", 8),
        (". dir", 8),
        ("dir/.. sub", 8),
        ("/ dir", 8),
        ("sub/up one", 8),
    ] {
        let dir = scratch();
        plant(dir.path(), TREE);
        let before = look(dir.path());
        let done = bcmr(&format!("move {args}"), dir.path()).exits(code);
        if args != "ll l" {
            assert_same(&before, &look(dir.path()), &done.said);
        }
        // Whatever happened, no content is gone.
        let now = look(dir.path());
        for text in ["ONE", "SUB", "X"] {
            assert!(
                now.values().any(|v| v.starts_with(&format!("file {text:?}"))),
                "{text} gone: {}",
                done.said
            );
        }
    }
}

/// The same through a bind mount, where paths, devices and names all differ or not, and only inodes tell.
#[test]
fn one_object_through_a_bind_mount() {
    let dir = scratch();
    plant(dir.path(), "f s/one ONE\nd m");
    if !command("mount", &["--bind", "s", "m"], dir.path()).output().is_ok_and(|o| o.status.success()) {
        return crate::common::skipped("one_object_through_a_bind_mount", "mounting needs root");
    }
    let runs = ["move s/one m/one", "move s/one m", "move m/one s", "copy s/one m/one", "copy -r s/. m"]
        .map(|args| (args, bcmr(args, dir.path()), fs::read(at(&dir, "s/one")).ok()));
    assert!(command("umount", &["m"], dir.path()).status().unwrap().success());
    for (args, done, content) in runs {
        assert_eq!(content.as_deref(), Some(&b"ONE"[..]), "{args}");
        assert_eq!(done.code, Some(8), "{args}: {}", done.stderr);
    }
}

/// A tree of every kind crosses unchanged, and nothing of it stays.
#[test]
fn every_kind_across() {
    let Some(far) = elsewhere() else { return };
    let (here, twin) = (scratch(), scratch());
    for dir in [&here, &twin] {
        plant(dir.path(), EVERY_KIND);
        set_mtime(&at(dir, "s/sub"), 1_000_000);
    }
    // The judge sees times too, so the twin is a copy of what will be moved, not another planting.
    fs::remove_dir_all(at(&twin, "s")).unwrap();
    let kept = command("cp", &["-a", "s", at(&twin, "s").to_str().unwrap()], here.path()).status();
    assert!(kept.unwrap().success());
    let before = look(&at(&here, "s"));
    bcmr(&format!("move s {}", at(&far, "d").display()), here.path()).exits(0);
    assert_same(&before, &look(&at(&far, "d")), "moved");
    assert!(fs::symlink_metadata(at(&here, "s")).is_err(), "the source is still there");
    if have("rsync") {
        let (s, d) = (at(&twin, "s/").display().to_string(), at(&far, "d/").display().to_string());
        // No -X: user attributes of the test's file systems may differ; acls and owners are in -a and -A.
        let done =
            finish(command("rsync", &["-aHAni", "--checksum", "--delete", &s, &d], here.path()), "").exits(0);
        assert_eq!(done.stdout, "", "rsync sees a difference");
    }
}

/// What is excluded, kept, or fails stays at the source, with the directories that lead to it.
#[test]
fn what_does_not_arrive_stays() {
    const TREE: &str =
        "f s/a A\nf s/x.o O\nf s/sub/b B\nf s/sub/y.o Y\nf s/gone/c C\nf s/type/d/x X\nf s/old SRC";
    let Some(far) = elsewhere() else { return };
    for (n, is_far) in [(0, false), (1, true)] {
        let here = scratch();
        plant(here.path(), TREE);
        let top = if is_far { at(&far, &n.to_string()) } else { at(&here, "far") };
        plant(&top, "f d/old DST\nf d/type/d FILE\nf d/own OWN");
        let done =
            bcmr(&format!("move --merge --no-clobber -e *.o -T s {}", top.join("d").display()), here.path());
        let about = format!("far {is_far}: {}", done.stderr);
        assert_ne!(done.code, Some(0), "{about}");
        let want = |text: &str| {
            let dir = scratch();
            plant(dir.path(), text);
            look(&at(&dir, "w"))
        };
        assert_same(
            &want("f w/x.o O\nf w/sub/y.o Y\nf w/type/d/x X\nf w/old SRC"),
            &look(&at(&here, "s")),
            &format!("{about} source"),
        );
        assert_same(
            &want("f w/a A\nf w/sub/b B\nf w/gone/c C\nf w/old DST\nf w/type/d FILE\nf w/own OWN"),
            &look(&top.join("d")),
            &format!("{about} destination"),
        );
    }
}

/// Without --merge a directory that holds something is not moved into, near or far.
#[test]
fn merging_is_asked_for() {
    let Some(far) = elsewhere() else { return };
    let here = scratch();
    plant(here.path(), "f s/a A\nf d/s/b B");
    plant(far.path(), "f s/b B");
    for to in ["d".to_owned(), far.path().display().to_string()] {
        let before = (look(here.path()), look(far.path()));
        let done = bcmr(&format!("move s {to}"), here.path()).exits(1);
        assert!(done.stderr.contains("not empty"), "{}", done.stderr);
        assert!(done.stderr.contains("--merge"), "no hint: {}", done.stderr);
        assert_same(&before.0, &look(here.path()), &to);
        assert_same(&before.1, &look(far.path()), &to);
    }
}

/// A destination that cannot be written to: everything stays.
#[test]
fn a_full_destination_keeps_the_source() {
    let dir = scratch();
    plant(dir.path(), "d m\nz s/a 300000\nz s/b 300000\nz s/sub/c 600000\nf s/small x");
    let mounted = command("mount", &["-t", "tmpfs", "-o", "size=512k", "none", "m"], dir.path()).output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        return crate::common::skipped("a_full_destination_keeps_the_source", "mounting needs root");
    }
    let before = files(&at(&dir, "s"));
    let done = bcmr("move s m", dir.path());
    let (src, dst) = (files(&at(&dir, "s")), files(&at(&dir, "m")));
    assert!(command("umount", &["m"], dir.path()).status().unwrap().success());
    assert_eq!(done.code, Some(6), "{}", done.stderr);
    whole_somewhere(
        &before,
        &src,
        &dst.into_iter().map(|(k, v)| (k.replacen("s/", "", 1), v)).collect(),
        "full",
    );
}

/// A directory in the destination, or one below it, may be where another file system is mounted: what cannot be renamed into it is
/// copied, and the source goes all the same.
#[test]
fn a_merge_into_what_is_mounted() {
    for (typed, mounted) in [
        ("move --merge s d", "d/s"),
        ("move --merge s d", "d/s/sub"),
        ("move --merge s d", "d/s/sub/deep"),
        ("move --merge -T s m", "m"),
    ] {
        let dir = scratch();
        plant(dir.path(), "f s/a A\nf s/sub/b B\nf s/sub/deep/c C\nf s/z/f Z\nd d");
        let mount = match Mount::tmpfs("mode=755", &at(&dir, mounted)) {
            Ok(mount) => mount,
            Err(why) => return crate::common::skipped("a_merge_into_what_is_mounted", &why),
        };
        plant(dir.path(), &format!("f {mounted}/own OWN"));
        let before = files(&at(&dir, "s"));
        let dry = bcmr(&typed.replace("--merge", "--merge -n"), dir.path());
        assert_eq!(dry.code, Some(0), "{typed}: {}", dry.stderr);
        assert_eq!(files(&at(&dir, "s")), before, "{typed}");
        let done = bcmr(typed, dir.path());
        assert_eq!(done.code, Some(0), "{typed} {mounted}: {}", done.stderr);
        assert!(!at(&dir, "s").exists(), "{typed} {mounted}");
        let mut after = files(&at(&dir, if mounted == "m" { "m" } else { "d/s" }));
        let own = after.keys().find(|name| name.ends_with("own")).cloned().unwrap();
        assert_eq!(after.remove(&own), Some(b"OWN".to_vec()));
        assert_eq!(after, before, "{typed} {mounted}");
        drop(mount);
    }
}

/// Where a part of a merge is to be copied, what was asked by then is not asked again.
#[test]
fn a_merge_into_what_is_mounted_asks_once() {
    for (there, answer, questions) in [("f d/s/sub/f OLD", "y\n", 7), ("", "n\n", 6)] {
        let dir = scratch();
        plant(dir.path(), "f s/sub/f F\nd d/s/sub");
        for n in 0..6 {
            plant(dir.path(), &format!("f s/{n} NEW\nf d/s/{n} OLD"));
        }
        let mount = match Mount::tmpfs("mode=755", &at(&dir, "d/s/sub")) {
            Ok(mount) => mount,
            Err(why) => return crate::common::skipped("a_merge_into_what_is_mounted_asks_once", &why),
        };
        plant(dir.path(), there);
        let line = crate::table::command(BCMR, &crate::table::words("move --merge -i s d"), dir.path());
        let done = crate::table::finish(line, &answer.repeat(20));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert_eq!(done.stderr.matches("[y/N]").count(), questions, "{}", done.stderr);
        assert_eq!(fs::read(at(&dir, "d/s/sub/f")).unwrap(), b"F");
        assert_eq!(at(&dir, "s/1").exists(), answer == "n\n");
        drop(mount);
    }
}

/// [`elsewhere`] for very many files, which take a disk most of such a test's time: in an ordinary run in memory, where there
/// may be mounts.
fn elsewhere_for_many() -> Option<(TempDir, Option<Mount>)> {
    if !all_cases() {
        let far = scratch();
        if let Ok(mount) = Mount::tmpfs("mode=755", far.path()) {
            return Some((far, Some(mount)));
        }
    }
    elsewhere().map(|far| (far, None))
}

/// Names and contents of all regular files; stages of killed runs are none.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for name in look(root).keys() {
        let name = String::from_utf8(name.clone()).unwrap();
        let path = root.join(&name);
        if fs::symlink_metadata(&path).unwrap().is_file() && !name.contains(".stage") {
            all.insert(name, fs::read(path).unwrap());
        }
    }
    all
}

fn whole_somewhere(
    before: &BTreeMap<String, Vec<u8>>,
    src: &BTreeMap<String, Vec<u8>>,
    dst: &BTreeMap<String, Vec<u8>>,
    about: &str,
) {
    for (name, content) in before {
        assert!(
            src.get(name) == Some(content) || dst.get(name) == Some(content),
            "{about}: {name} is whole on neither side"
        );
        assert!(dst.get(name).is_none_or(|c| c == content), "{about}: {name} is torn at the destination");
        assert!(src.get(name).is_none_or(|c| c == content), "{about}: {name} is torn at the source");
    }
}

/// What is at `top` and below it, with modes and times; the mark of a move is none of it.
fn everything(top: &Path) -> Tree {
    use std::os::unix::ffi::OsStrExt;
    let mut all = look(top);
    all.retain(|name, _| !name.ends_with(b".tree"));
    all.insert(Vec::new(), "dir".to_owned());
    for (name, said) in &mut all {
        let meta = fs::symlink_metadata(top.join(std::ffi::OsStr::from_bytes(name))).unwrap();
        said.push_str(&format!(" {:o} {}.{:09}", meta.mode() & 0o7777, meta.mtime(), meta.mtime_nsec()));
    }
    all
}

/// Killed or stopped at each call that changes anything: every file is whole on one side, and the same command ends it.
/// Unless all are tried, at every fifth, the first one another for each; and each call with some of the lines.
#[test]
fn interrupted_across() {
    let Some(far) = elsewhere() else { return };
    if !have("strace") {
        return;
    }
    let here = scratch();
    plant(
        here.path(),
        "d t@1000\nd t/d@2000\nd t/d/e@3000\nd t/void@4000\nz t/big 5000000\nz t/d/f 9000\nh t/d/e/f = t/d/f\nz t/d/e/g 1
        f t/h H\nh t/d/too = t/h\nl t/d/l -> f",
    );
    let (before, whole) = (files(&at(&here, "t")), everything(&at(&here, "t")));
    let d = |name| at(&far, name).display().to_string();
    let (mut moments, mut first) = (0, 0);
    let lines = [
        (vec!["s".into(), d("d")], false),
        (vec!["s".into(), d("")], false),
        (vec!["-T".into(), "s".into(), d("s")], true),
    ];
    let calls = [
        ("mkdirat,mkdir", "KILL"),
        ("renameat,renameat2,rename", "KILL"),
        ("unlinkat,unlink,rmdir", "KILL"),
        ("fsync,fdatasync,syncfs", "KILL"),
        ("utimensat,fchmod", "KILL"),
        ("renameat,renameat2,rename", "INT"),
        ("unlinkat,unlink,rmdir", "INT"),
    ];
    for (n, (line, is_there)) in lines.into_iter().enumerate() {
        for (m, (call, signal)) in calls.into_iter().enumerate() {
            if !in_slice(n + m, 2) {
                continue;
            }
            first = if all_cases() { 1 } else { first % 5 + 1 };
            for when in sliced(first.., 5) {
                for left in ["d", "s"] {
                    fs::remove_dir_all(at(&far, left)).ok();
                }
                if is_there {
                    fs::create_dir(at(&far, "s")).unwrap();
                }
                let cp = command("cp", &["-a", "-T", "t", "s"], here.path()).status().unwrap();
                assert!(cp.success());
                let inject = format!("inject={call}:signal={signal}:when={when}");
                let mut args = vec!["-f", "-qq", "-o", "/dev/null", "-e", &inject, BCMR, "move", "-j1"];
                args.extend(line.iter().map(String::as_str));
                let status = command("strace", &args, here.path()).stderr(Stdio::null()).status().unwrap();
                let about = format!("{line:?} {call} {signal} {when}, {status:?}");
                let dst = if line[1] == d("d") { at(&far, "d") } else { at(&far, "s") };
                let marked = |file: &String| file.starts_with(".bcmr-") && file.ends_with(".tree");
                let there_now = || {
                    let mut all = if dst.exists() { files(&dst) } else { BTreeMap::new() };
                    all.retain(|name, _| !marked(name));
                    all
                };
                let left = at(&here, "s").exists();
                let here_now = if left { files(&at(&here, "s")) } else { BTreeMap::new() };
                whole_somewhere(&before, &here_now, &there_now(), &about);
                if left {
                    let again = line.iter().fold(String::from("move"), |all, word| format!("{all} {word}"));
                    bcmr(&again, here.path()).exits(0);
                }
                assert!(!at(&here, "s").exists(), "{about}: the rerun left something at the source");
                assert!(there_now() == before, "{about}: the rerun did not end it: {:?}", files(&dst).keys());
                let (mut whole, mut all) = (whole.clone(), everything(&dst));
                if !left {
                    // The time of the topmost directory is set back when its mark is gone, and nothing is at the source then.
                    let top = [whole.remove(&Vec::new()), all.remove(&Vec::new())];
                    assert!(top.iter().all(Option::is_some));
                }
                assert_same(&whole, &all, &about);
                let litter = |name: &Vec<u8>| name.windows(6).any(|w| w == b".bcmr-");
                let litter: Vec<_> = look(far.path()).into_keys().filter(litter).collect();
                // Killed after the last of the source went, only the mark may be left.
                assert!(litter.is_empty() || !left && litter.len() == 1, "{about}: {litter:?}");
                if status.code() == Some(0) {
                    break;
                }
                moments += 1;
                assert!(when < 200, "{about}: it never ends");
            }
        }
    }
    assert!(moments > if all_cases() { 40 } else { 6 }, "{moments} moments");
}

/// A mark that was not written to its end is none, and the empty directory in which it lies is empty.
#[test]
fn killed_while_it_marks_an_empty_directory() {
    let Some(far) = elsewhere() else { return };
    if !have("strace") {
        return;
    }
    for call in ["fchmod", "pwrite64", "fdatasync"] {
        let here = scratch();
        plant(here.path(), "d s\nz s/f 9000");
        let before = files(&at(&here, "s"));
        let dst = at(&far, call);
        fs::create_dir(&dst).unwrap();
        let line = format!("-T s {}", dst.display());
        let inject = format!("inject={call}:signal=KILL:when=1");
        let mut args = vec!["-f", "-qq", "-o", "/dev/null", "-e", &inject, BCMR, "move", "-j1"];
        args.extend(line.split(' '));
        let status = command("strace", &args, here.path()).stderr(Stdio::null()).status().unwrap();
        assert_ne!(status.code(), Some(0), "{call}");
        assert_eq!(look(&dst).len(), 1, "{call}: its mark and nothing else");
        bcmr(&format!("move -n {line}"), here.path()).exits(0);
        bcmr(&format!("move {line}"), here.path()).exits(0);
        assert!(!at(&here, "s").exists(), "{call}");
        assert!(files(&dst) == before, "{call}: {:?}", files(&dst).keys());
    }
}

/// Moves `s` to `dst` and is killed when it is about to remove the `nth` name, or not at all. Whether it was killed.
fn killed_at_removal(here: &Path, dst: &Path, nth: usize) -> bool {
    let inject = format!("inject=unlinkat:signal=KILL:when={nth}");
    let dst = dst.display().to_string();
    let args = ["-f", "-qq", "-o", "/dev/null", "-e", "trace=unlinkat", "-e", &inject, BCMR];
    let args: Vec<&str> = args.into_iter().chain(["move", "-j1", "s", &dst]).collect();
    let status = command("strace", &args, here).stderr(Stdio::null()).status().unwrap();
    status.code() != Some(0)
}

/// What changed at the source, or at the destination, after a move was killed that had begun to take sources away, stays
/// where it is and is told; all else goes, and what is new arrives.
#[test]
fn what_changed_after_the_kill_stays() {
    let Some(far) = elsewhere() else { return };
    if !have("strace") {
        return;
    }
    let here = scratch();
    let tree = "d s@1000\nd s/d@2000\nf s/d/a A\nf s/d/b B\nf s/d/c C\nf s/d/e E\nl s/d/l -> a\nl s/d/m -> a\nl s/d/n -> a";
    let mut dst = at(&far, "d");
    // Killed when one name of the source is gone, whatever else was removed before.
    for nth in 1.. {
        plant(here.path(), tree);
        // Without what an earlier one has left.
        dst = at(&far, &format!("{nth}/d"));
        fs::create_dir(at(&far, &nth.to_string())).unwrap();
        assert!(killed_at_removal(here.path(), &dst, nth), "never between two removals of the source");
        if look(&at(&here, "s/d")).len() == 6 {
            break;
        }
        fs::remove_dir_all(at(&here, "s")).unwrap();
    }
    let names = |is_link: bool| -> Vec<String> {
        let left =
            look(&at(&here, "s/d")).into_iter().filter(|(_, said)| said.starts_with("link") == is_link);
        left.map(|(name, _)| String::from_utf8(name).unwrap()).collect()
    };
    let (files, links) = (names(false), names(true));
    let (mut want_here, mut want_there) = (Tree::new(), look(&dst));
    want_there.retain(|name, _| !name.ends_with(b".tree"));
    // At the source, its time set back; at the destination; a link; and a new name.
    let (ours, theirs, link) =
        (format!("d/{}", files[0]), format!("d/{}", files[1]), format!("d/{}", links[0]));
    let path = at(&here, &format!("s/{ours}"));
    let was = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "X").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(was).unwrap();
    fs::write(dst.join(&theirs), "Y").unwrap();
    fs::remove_file(at(&here, &format!("s/{link}"))).unwrap();
    plant(here.path(), &format!("l s/{link} -> b\nf s/d/new NEW"));
    for name in ["d", &ours, &theirs, &link] {
        want_here.insert(name.into(), look(&at(&here, "s"))[name.as_bytes()].clone());
    }
    want_there.insert(theirs.clone().into(), "file \"Y\"".into());
    want_there.insert("d/new".into(), "file \"NEW\"".into());
    let done = bcmr(&format!("move s {}", dst.display()), here.path()).exits(5);
    for name in [&ours, &theirs, &link] {
        assert!(done.stderr.contains(&format!("'s/{name}'")), "{name}: {}", done.stderr);
    }
    assert_same(&want_here, &look(&at(&here, "s")), &done.stderr);
    let mut there = look(&dst);
    there.retain(|name, _| !name.ends_with(b".tree"));
    assert_same(&want_there, &there, &done.stderr);
    let of = |name: &str| fs::metadata(dst.join(name)).unwrap().mtime();
    assert_eq!((of(""), of("d")), (1000, 2000), "times of directories");
}

/// More than is remembered of what has landed: it is gone through once more, with the same care, stopped or not.
#[test]
fn a_large_directory_is_taken_away_as_a_small_one() {
    let Some((far, _mount)) = elsewhere_for_many() else { return };
    if !have("strace") {
        return;
    }
    let here = scratch();
    let mut tree = String::from("d t@1000\nd t/d@2000\nd t/e@3000\nf t/d/first F\nl t/l -> d\np t/p\n");
    for n in 0..4200 {
        tree.push_str(&format!("f t/{}/{n} {n}\n", ["d", "e"][n % 2]));
    }
    tree.push_str("h t/e/last = t/d/first\nh t/top = t/d/first");
    plant(here.path(), &tree);
    let whole = everything(&at(&here, "t"));
    // Removals fail from some moment on, which leaves what a kill at that moment leaves, and is traced faster.
    for (n, nth) in [4150, 9000].into_iter().enumerate() {
        let cp = command("cp", &["-a", "-T", "t", "s"], here.path()).status().unwrap();
        assert!(cp.success());
        let dst = at(&far, &n.to_string());
        let inject = format!("inject=unlinkat:error=EIO:when={nth}+");
        let trace = ["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=unlinkat", "-e", &inject];
        let to = dst.display().to_string();
        let args = [&trace[..], &[BCMR, "move", "-qj1", "s", &to]].concat();
        let status = command("strace", &args, here.path()).stderr(Stdio::null()).status().unwrap();
        let stopped = nth < 4200;
        assert_eq!(status.code(), Some(i32::from(stopped)), "{nth}");
        if stopped {
            bcmr(&format!("move s {}", dst.display()), here.path()).exits(0);
        }
        assert!(!at(&here, "s").exists(), "{nth}: something is left");
        assert_same(&whole, &everything(&dst), &format!("stopped at removal {nth}"));
        assert!(look(&dst).keys().all(|name| !name.ends_with(b".tree")), "{nth}: the mark is left");
        fs::remove_dir_all(&dst).unwrap();
    }
}

/// A large directory of which something fails, or is left out: all else goes.
#[test]
fn what_a_large_directory_leaves_behind() {
    let Some((far, _mount)) = elsewhere_for_many() else { return };
    let here = scratch();
    let mut tree = String::from("f s/d/x.o O\nf s/e/y.o Y\n");
    for n in 0..4200 {
        tree.push_str(&format!("f s/d/{n} {n}\n"));
    }
    plant(here.path(), &tree);
    let dst = at(&far, "d");
    let done = bcmr(&format!("move -v -e *.o s {}", dst.display()), here.path()).exits(0);
    let left: Vec<_> =
        look(&at(&here, "s")).into_keys().map(|name| String::from_utf8(name).unwrap()).collect();
    assert_eq!(left, ["d", "d/x.o", "e", "e/y.o"], "{}", done.stderr);
    assert_eq!(look(&dst).len(), 4202, "{}", done.stderr);
    let said = format!("{}{}", done.stdout, done.stderr);
    assert_eq!(said.matches("x.o").count(), 1, "told twice: {said}");
}

/// A source that is written to while it is moved is not taken away.
#[test]
fn a_source_changed_meanwhile_stays() {
    let Some(far) = elsewhere() else { return };
    if !have("strace") {
        return;
    }
    let here = scratch();
    plant(here.path(), "z s/f 100000\nf s/other OTHER");
    // Held where the copy is on its way to the medium and nothing is removed yet.
    let dst = at(&far, "d").display().to_string();
    let args =
        ["-f", "-qq", "-o", "/dev/null", "-e", "inject=syncfs:delay_enter=1500000", BCMR, "move", "s", &dst];
    let mut child =
        command("strace", &args, here.path()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // Until both have their names at the destination; no longer than the delay.
    for _ in 0..1000 {
        if far.path().join("d/f").exists() && far.path().join("d/other").exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    use std::io::Write;
    fs::OpenOptions::new().append(true).open(at(&here, "s/f")).unwrap().write_all(b"more").unwrap();
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut stderr).unwrap();
    let code = child.wait().unwrap().code();
    assert_eq!(code, Some(5), "{stderr}");
    assert_eq!(fs::metadata(at(&here, "s/f")).unwrap().len(), 100_004, "what was written is gone");
    assert!(!at(&here, "s/other").exists(), "what did not change goes: {stderr}");
    assert_eq!(fs::metadata(far.path().join("d/f")).unwrap().len(), 100_000);
}

/// Runs under strace, which makes the first of `calls` last long when it is done, and writes NEW to `name` as soon as
/// `when` holds.
fn written_meanwhile(calls: &str, args: &str, cwd: &Path, name: &Path, when: impl Fn() -> bool) -> Done {
    let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:delay_exit=1500000:when=1"));
    let mut words = vec!["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject, BCMR];
    words.extend(args.split_whitespace());
    let traced = command("strace", &words, cwd);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| finish(traced, ""));
        while !when() && !run.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        fs::write(name, "NEW").unwrap();
        run.join().unwrap()
    })
}

/// A file of several names is written to when one of them is done: what was written arrives under the others, and is
/// not taken away with them for the sake of a copy that was made before.
#[test]
fn a_second_name_written_to_after_the_first_was_done_is_not_lost() {
    let Some((far, _mount)) = elsewhere_for_many() else { return };
    if !have("strace") {
        return;
    }
    for verb in ["move", "copy --archive"] {
        let here = scratch();
        plant(here.path(), "f a OLD\nh late/b = a\nh late/c = a\nd many");
        let dst = at(&far, &verb.replace(' ', ""));
        fs::create_dir(&dst).unwrap();
        let merge = if verb == "move" { "--merge" } else { "" };
        let args = format!("{verb} {merge} -j1 a many late {}", dst.display());
        let written = at(&here, "late/b");
        let done = if verb == "move" {
            // More than waits for one sync, in a directory that is merged into one that is there: the first name is gone
            // before the others are looked at.
            plant(&dst, "f many/own OWN");
            for n in 0..4100 {
                fs::write(at(&here, &format!("many/{n}")), "").unwrap();
            }
            let first = at(&here, "a");
            written_meanwhile("unlinkat", &args, here.path(), &written, || !first.exists())
        } else {
            let first = dst.join("a");
            written_meanwhile("/^rename", &args, here.path(), &written, || first.exists())
        };
        let done = done.exits(0);
        let of = |name: &str| fs::read_to_string(dst.join(name)).unwrap();
        assert_eq!(of("a"), "OLD", "{verb}: not written in the middle: {}", done.stderr);
        assert_eq!(
            (of("late/b"), of("late/c")),
            ("NEW".into(), "NEW".into()),
            "{verb}: what was written is gone"
        );
        let ino = |name: &str| fs::metadata(dst.join(name)).unwrap().ino();
        assert_eq!(ino("late/b"), ino("late/c"), "{verb}: names of one content were torn apart");
        assert_eq!(at(&here, "late").exists(), verb != "move", "{verb}: {}", done.stderr);
    }
}

/// Names of one file stay names of one file, also when the first ones are gone from the source before the last is met.
#[test]
fn the_last_name_of_a_file_is_still_a_name_of_it() {
    let Some((far, _mount)) = elsewhere_for_many() else { return };
    let here = scratch();
    let mut tree = String::from("f a A\nf alone X\n");
    for n in 0..4100 {
        tree.push_str(&format!("f many/{n} x\n"));
    }
    tree.push_str("h more/b = a\nh most/c = a\n");
    plant(here.path(), &tree);
    // Merged into a directory that is there, sources go from time to time.
    plant(far.path(), "f many/own OWN\nf two/many/own OWN");
    bcmr(&format!("move --merge -j1 a alone many more most {}", far.path().display()), here.path()).exits(0);
    let ino = |name: &str| fs::metadata(at(&far, name)).unwrap().ino();
    assert_eq!((ino("a"), ino("a")), (ino("more/b"), ino("most/c")));
    assert_eq!(fs::metadata(at(&far, "a")).unwrap().nlink(), 3);
    assert_eq!(fs::metadata(at(&far, "alone")).unwrap().nlink(), 1);
    assert!(look(here.path()).is_empty());
    // The twin with two names, of which one is left.
    let tree = tree.replace("h more/b = a", "d more");
    plant(here.path(), &tree);
    let dst = at(&far, "two");
    bcmr(&format!("move --merge -j1 a alone many more most {}", dst.display()), here.path()).exits(0);
    let ino = |name: &str| fs::metadata(dst.join(name)).unwrap().ino();
    assert_eq!(ino("a"), ino("most/c"));
}

/// What a sync that failed has lost is not known: whatever a later one says, nothing leaves its source any more for a
/// copy on that file system. It is told, and once.
#[test]
fn after_a_failed_sync_every_source_stays() {
    let (Some(far), Some((far_for_many, _mount))) = (elsewhere(), elsewhere_for_many()) else { return };
    if !have("strace") {
        return;
    }
    // More than waits for one sync, so that there is a second one, which succeeds.
    let mut many = String::new();
    for n in 0..4200 {
        many.push_str(&format!("f s/{n} x\n"));
    }
    // What is replaced is synced before it has the name, all at once from a few on.
    let replaced: String = (0..6).map(|n| format!("f s/{n} new\n")).collect();
    let few = "f s/a A\nf s/b B\n";
    for (n, (what, tree, there, args, fault)) in [
        ("the ledger's own sync", many.as_str(), "f s/own OWN", "s", "syncfs:error=EIO:when=1"),
        (
            "the sync before a mark says that all has landed",
            many.as_str(),
            "d s",
            "s",
            "syncfs:error=EIO:when=1",
        ),
        ("the sync of that mark", few, "d s", "s", "fsync:error=EIO:when=2"),
        (
            "the sync of replaced files",
            &format!("f first F\n{replaced}"),
            &replaced,
            "first s",
            "syncfs:error=EIO:when=1",
        ),
        ("the sync of a directory", few, "f s/own OWN", "--sync s", "fsync:error=EIO:when=3"),
    ]
    .into_iter()
    .enumerate()
    {
        let here = scratch();
        plant(here.path(), tree);
        let dst = at(if tree == many { &far_for_many } else { &far }, &n.to_string());
        fs::create_dir(&dst).unwrap();
        plant(&dst, there);
        let before = files(here.path());
        let (trace, inject) =
            (format!("trace={}", fault.split(':').next().unwrap()), format!("inject={fault}"));
        let mut words = vec!["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let line = format!("{BCMR} move -j1 --merge {args} {}", dst.display());
        words.extend(line.split(' '));
        let done = finish(command("strace", &words, here.path()), "").exits(1);
        assert!(files(here.path()) == before, "{what}: not all is at the source: {}", done.stderr);
        assert_eq!(done.stderr.matches("kept at the source").count(), 1, "{what}: {}", done.stderr);
    }
}

/// Runs under strace, which has `which` calls of `call` fail.
fn failing(call: &str, which: &str, line: &str, cwd: &Path) -> Done {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error=EIO:when={which}"));
    let mut words = vec!["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject, BCMR];
    words.extend(line.split(' '));
    finish(command("strace", &words, cwd), "")
}

/// What could not be given its mode or its time for a reason that may pass stays at the source: the same command gives
/// it both.
#[test]
fn what_could_not_be_sealed_stays() {
    let Some(far) = elsewhere() else { return };
    if !have("strace") {
        return;
    }
    for (n, call) in ["fchmod", "utimensat"].into_iter().enumerate() {
        let here = scratch();
        plant(here.path(), "f s/a A\nz s/b 100000\nd s/t@2000\nf s/t/c C\nz s/t/e 70000");
        for name in ["a", "b", "t/c", "t/e"] {
            let mode = fs::Permissions::from_mode(0o604);
            let path = at(&here, &format!("s/{name}"));
            fs::set_permissions(&path, mode).unwrap();
            fs::File::open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        // The two tops are no part of the move.
        let inside = |top: &Path| -> Tree {
            everything(top).into_iter().filter(|(name, _)| !name.is_empty()).collect()
        };
        let whole = inside(&at(&here, "s"));
        let dst = at(&far, &n.to_string());
        fs::create_dir(&dst).unwrap();
        plant(&dst, "f a OLD");
        let line = format!("move -f s/a s/b s/t {}", dst.display());
        let done = failing(call, "1+", &line, here.path()).exits(1);
        assert_same(&whole, &inside(&at(&here, "s")), &done.stderr);
        assert!(done.stderr.contains("kept at the source"), "{call}: {}", done.stderr);
        bcmr(&line, here.path()).exits(0);
        assert!(look(&at(&here, "s")).is_empty(), "{call}: not all has gone");
        assert_same(&whole, &inside(&dst), call);
    }
}

/// So do its other names.
#[test]
fn no_name_goes_of_a_file_that_could_not_be_sealed() {
    let Some(far) = elsewhere() else { return };
    if !have("strace") {
        return;
    }
    let here = scratch();
    plant(here.path(), "f a A\nh b = a");
    fs::set_permissions(at(&here, "a"), fs::Permissions::from_mode(0o644)).unwrap();
    let line = format!("move -f -j1 a b {}", far.path().display());
    let done = failing("fchmod", "1", &line, here.path()).exits(1);
    assert!(at(&here, "a").exists() && at(&here, "b").exists(), "{}", done.stderr);
    bcmr(&line, here.path()).exits(0);
    assert!(look(here.path()).is_empty());
    for name in ["a", "b"] {
        let there = fs::metadata(far.path().join(name)).unwrap();
        assert_eq!((there.permissions().mode() & 0o7777, there.nlink()), (0o644, 2), "{name}");
    }
}

/// So does a directory, where it is merged into one that was there.
#[test]
fn a_directory_that_could_not_be_sealed_stays() {
    let Some(far) = elsewhere() else { return };
    if !have("strace") {
        return;
    }
    let here = scratch();
    plant(here.path(), "d s/t/void\nf s/t/c C");
    fs::set_permissions(at(&here, "s/t/void"), fs::Permissions::from_mode(0o750)).unwrap();
    plant(far.path(), "f t/own OWN");
    let line = format!("move -j1 --merge s/t {}", far.path().display());
    let done = failing("fchmod", "1+", &line, here.path()).exits(1);
    assert!(at(&here, "s/t/void").is_dir(), "{}", done.stderr);
    bcmr(&line, here.path()).exits(0);
    assert!(!at(&here, "s/t").exists());
    let mode = fs::metadata(far.path().join("t/void")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o750);
    assert_eq!(look(&far.path().join("t")).len(), 3);
}

/// `--merge` on one file system: entries are renamed (same inode), emptied directories go, all others stay.
#[test]
fn merge_renames() {
    let dir = scratch();
    plant(dir.path(), "f s/a NEW\nf s/sub/b B\nd s/sub/void\nl s/l -> a\nf d/a OLD\nf d/sub/c C\np s/p");
    let ino = |name: &str| fs::symlink_metadata(at(&dir, name)).unwrap().ino();
    let (a, b) = (ino("s/a"), ino("s/sub/b"));
    bcmr("move --merge -T s d", dir.path()).exits(0);
    let want = scratch();
    plant(want.path(), "f d/a NEW\nf d/sub/b B\nd d/sub/void\nl d/l -> a\nf d/sub/c C\np d/p");
    assert_same(&look(want.path()), &look(dir.path()), "merged");
    assert_eq!((a, b), (ino("d/a"), ino("d/sub/b")), "copied where a rename would do");
}

/// A directory that a merge had to make is sealed when everything is in it: its times are the source's.
#[test]
fn a_merge_keeps_the_times_of_directories_it_makes() {
    for args in ["-e *.o -T s d", "--merge -e *.o s d"] {
        let dir = scratch();
        let top = if args.starts_with("--merge") { "d/s" } else { "d" };
        plant(
            dir.path(),
            "d s@1000\nd s/sub@2000\nd s/sub/deep@3000\nf s/a A\nf s/sub/x.o O\nf s/sub/deep/b B",
        );
        if top == "d/s" {
            plant(dir.path(), "f d/s/there T");
            set_mtime(&at(&dir, "s"), 1000);
        }
        fs::set_permissions(at(&dir, "s/sub"), std::os::unix::fs::PermissionsExt::from_mode(0o551)).unwrap();
        bcmr(&format!("move {args}"), dir.path()).exits(0);
        let of = |name: &str| fs::metadata(at(&dir, &format!("{top}{name}"))).unwrap();
        assert_eq!((of("/sub").mtime(), of("/sub/deep").mtime()), (2000, 3000), "{args}");
        assert_eq!(of("/sub").mode() & 0o7777, 0o551, "{args}");
        if top == "d" {
            assert_eq!(of("").mtime(), 1000, "{args}");
        }
        assert_eq!(fs::read_to_string(at(&dir, &format!("{top}/sub/deep/b"))).unwrap(), "B");
        assert!(at(&dir, "s/sub/x.o").exists(), "{args}: what is excluded stays");
    }
}

/// `--sync`: the names of every directory that a merge renames in are made durable, the new ones before the old ones go.
#[test]
fn a_merge_syncs_every_directory_it_renames_in() {
    if !have("strace") {
        return;
    }
    let dir = scratch();
    plant(dir.path(), "f s/a A\nf s/sub/b B\nf s/sub/deep/c C\nf d/sub/deep/x X");
    let log = at(&dir, "log");
    let line = format!(
        "-f -qq -y -e signal=none -e trace=fsync -o {} {BCMR} move --merge --sync -T s d",
        log.display()
    );
    finish(command("strace", &words(&line), dir.path()), "").exits(0);
    let log = fs::read_to_string(log).unwrap();
    let last = |name: &str| {
        let said = format!("<{}>)", fs::canonicalize(dir.path()).unwrap().join(name).display());
        log.rfind(&said).unwrap_or_else(|| panic!("{name} was not synced: {log}"))
    };
    for name in ["", "/sub", "/sub/deep"] {
        assert!(last(&format!("d{name}")) < last(&format!("s{name}")), "{name}: {log}");
    }
}

/// Two directories of one name across: what a rename would do with the second, and never a file gone.
#[test]
fn two_of_one_name_across() {
    let Some((far, _mount)) = elsewhere_for_many() else { return };
    let mut tree = String::new();
    for i in 0..200 {
        tree.push_str(&format!("z a/d/f{i} {}\nz b/d/g{i} {}\n", 1 + i * 37 % 9000, 1 + i * 31 % 9000));
    }
    tree.push_str("z a/d/sub/big 5000000\nz b/d/sub/huge 6000000\n");
    for (n, merge) in (0..if all_cases() { 6 } else { 2 }).map(|n| (n, n % 2 == 1)) {
        let here = scratch();
        plant(here.path(), &tree);
        let dst = at(&far, &format!("to{n}"));
        fs::create_dir(&dst).unwrap();
        let (a, b) = (files(&at(&here, "a/d")), files(&at(&here, "b/d")));
        let flags = if merge { "--merge " } else { "" };
        let done = bcmr(&format!("move -j4 {flags}a/d b/d {}", dst.display()), here.path());
        let about = format!("{flags}{n}: {}", done.stderr);
        let mut want = a.clone();
        if merge {
            want.extend(b);
            assert!(!at(&here, "b/d").exists(), "{about}");
        } else {
            assert!(files(&at(&here, "b/d")) == b, "{about}: the second is not what it was");
            assert!(done.stderr.contains("not empty") && done.stderr.contains("--merge"), "{about}");
        }
        assert_eq!(done.code, Some(i32::from(!merge)), "{about}");
        assert!(files(&dst.join("d")) == want, "{about}: not all arrived");
        assert!(!at(&here, "a/d").exists(), "{about}");
        let names = fs::read_dir(&dst).unwrap().count();
        assert_eq!(names, 1, "{about}: something is left");
    }
}
