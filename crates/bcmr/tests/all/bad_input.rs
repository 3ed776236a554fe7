//! What bad input gets: a clear error and nothing lost. Each with a legitimate use beside it, because a guard that
//! breaks honest use is a fault too.
//!
//! Black box: the real program, real file systems. What needs root or a tool says so loudly and is left out.

use crate::common::*;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::process::Signal;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

fn s(path: &Path) -> &OsStr {
    path.as_os_str()
}

fn o(text: &str) -> &OsStr {
    OsStr::new(text)
}

/// A few files, directories and a link.
fn small_tree(tmp: &Tmp, name: &str) -> PathBuf {
    tmp.file(format!("{name}/a"), "content of a");
    tmp.file(format!("{name}/sub/b"), noise(1, 100_000));
    tmp.file(format!("{name}/sub/deep/c"), "");
    symlink("../a", tmp.p(name).join("sub/link")).unwrap();
    tmp.p(name)
}

// ---- the destination inside the source ----

#[test]
fn destination_inside_the_source_is_refused() {
    let tmp = Tmp::new();
    let src = small_tree(&tmp, "src");
    let before = tree(&src);
    for dst in ["src/new", "src/sub/new", "src/sub", "src/sub/deep/../new", "src/."] {
        let dst = tmp.p(dst);
        for verb in [&[o("copy"), o("-r")][..], &[o("move")]] {
            bcmr(verb).args([s(&src), s(&dst)]).run().code(8);
            assert!(differences(&before, &tree(&src), EVERYTHING).is_empty(), "{}", dst.display());
        }
    }
    // The twins: a longer name that begins alike, and out of the tree into what holds it.
    bcmr([o("copy"), o("-r"), s(&src), s(&tmp.p("src-new"))]).run().ok();
    assert_same(&src, &tmp.p("src-new"), CONTENT);
    bcmr([o("copy"), o("-rT"), s(&src.join("sub")), s(&tmp.p("sub"))]).run().ok();
    assert_same(&src.join("sub"), &tmp.p("sub"), CONTENT);
}

#[test]
fn destination_inside_the_source_through_a_symlink_is_refused() {
    let tmp = Tmp::new();
    let src = small_tree(&tmp, "src");
    symlink(src.join("sub"), tmp.p("way-in")).unwrap();
    let before = tree(&src);
    bcmr([o("copy"), o("-r"), s(&src), s(&tmp.p("way-in"))]).run().code(8);
    bcmr([o("copy"), o("-r"), s(&src), s(&tmp.p("way-in/new"))]).run().code(8);
    symlink(&src, tmp.p("alias")).unwrap();
    bcmr([o("copy"), o("-rH"), s(&tmp.p("alias")), s(&src.join("new"))]).run().code(8);
    assert!(differences(&before, &tree(&src), EVERYTHING).is_empty());
    // The twin: a link that leads elsewhere is a destination like any other.
    symlink(tmp.dir("elsewhere"), tmp.p("way-out")).unwrap();
    bcmr([o("copy"), o("-r"), s(&src), s(&tmp.p("way-out"))]).run().ok();
    assert_same(&src, &tmp.p("elsewhere/src"), CONTENT);
}

#[test]
fn destination_inside_the_source_through_a_bind_mount_ends_and_is_refused() {
    needs!(is_root(), "bind mounts need root");
    let tmp = Tmp::new();
    let src = small_tree(&tmp, "src");
    let other = tmp.dir("other");
    let inside = src.join("sub/new");
    {
        let mount = match Mount::bind(&src.join("sub"), &tmp.p("bound")) {
            Ok(mount) => mount,
            Err(why) => return skipped("bind mount", &why),
        };
        // Noticed on the way, when the copy meets what it makes: 1 if it met the stage, and that got its name.
        bcmr([o("copy"), o("-r"), s(&src), s(&mount.path().join("new"))]).run().one_of(&[1, 8]);
        assert!(!inside.join("sub/new").exists(), "copied into itself");
        assert_no_litter(tmp.path());
        if inside.exists() {
            std::fs::remove_dir_all(&inside).unwrap();
        }
        bcmr([o("copy"), o("-rT"), s(&src), s(mount.path())]).run().code(8);
        assert!(!tmp.p("src/sub/sub/sub").exists(), "copied into itself");
    }
    // The twin.
    let mount = Mount::bind(&other, &tmp.p("bound")).unwrap();
    bcmr([o("copy"), o("-r"), s(&src), s(&mount.path().join("new"))]).run().ok();
    assert_same(&src, &other.join("new"), CONTENT);
}

// ---- source and destination the same ----

#[test]
fn source_and_destination_the_same_by_path_hard_link_and_symlink() {
    let tmp = Tmp::new();
    let f = tmp.file("f", "precious");
    std::fs::hard_link(&f, tmp.p("hard")).unwrap();
    symlink("f", tmp.p("soft")).unwrap();
    tmp.dir("d");
    std::fs::hard_link(&f, tmp.p("d/f")).unwrap();
    let before = tree(tmp.path());
    for (src, dst) in [
        ("f", "f"),
        ("f", "./f"),
        ("f", "d/../f"),
        ("f", "hard"),
        ("hard", "f"),
        ("f", "soft"),
        ("soft", "f"),
        ("f", "d"),
        ("f", "."),
    ] {
        for verb in [&["copy"][..], &["copy", "-f"], &["copy", "--inplace"], &["copy", "--archive", "-H"]] {
            let ran = bcmr(verb).args([src, dst]).cwd(tmp.path()).run();
            assert_eq!(ran.code, 8, "{verb:?} {src} {dst}: {}", ran.err);
            let told = differences(&before, &tree(tmp.path()), EVERYTHING);
            assert!(told.is_empty(), "{verb:?} {src} {dst}: {told:?}");
        }
    }
    for (src, dst) in [("f", "f"), ("f", "hard"), ("soft", "f"), ("soft", "soft"), ("f", "d")] {
        let ran = bcmr(["move", src, dst]).cwd(tmp.path()).run();
        assert_eq!(ran.code, 8, "move {src} {dst}: {}", ran.err);
        assert_eq!(std::fs::read(&f).unwrap(), b"precious", "move {src} {dst}");
    }
    // Moved over a link that leads to it, a file takes the link's place.
    bcmr(["move", "f", "soft"]).cwd(tmp.path()).run().ok();
    assert_eq!(std::fs::read(tmp.p("soft")).unwrap(), b"precious");
    assert!(!f.exists());
    std::fs::rename(tmp.p("soft"), &f).unwrap();
    let dir = small_tree(&tmp, "tree");
    let before = tree(&dir);
    bcmr([o("copy"), o("-rT"), s(&dir), s(&dir)]).run().code(8);
    bcmr([o("copy"), o("-r"), s(&dir.join(".")), s(&dir)]).run().code(8);
    bcmr([o("copy"), o("-r"), s(&dir), s(tmp.path())]).run().code(8);
    assert!(differences(&before, &tree(&dir), EVERYTHING).is_empty());
    // The twin: another file of the same content.
    tmp.file("g", "precious");
    bcmr(["copy", "f", "g"]).cwd(tmp.path()).run().ok();
}

#[test]
fn source_and_destination_the_same_by_bind_mount() {
    needs!(is_root(), "bind mounts need root");
    let tmp = Tmp::new();
    let src = small_tree(&tmp, "src");
    let mount = match Mount::bind(&src, &tmp.p("bound")) {
        Ok(mount) => mount,
        Err(why) => return skipped("bind mount", &why),
    };
    let before = tree(&src);
    let bound = mount.path();
    bcmr([o("copy"), s(&src.join("a")), s(&bound.join("a"))]).run().code(8);
    bcmr([o("copy"), o("--inplace"), s(&src.join("a")), s(&bound.join("a"))]).run().code(8);
    bcmr([o("copy"), o("-rT"), s(&src), s(bound)]).run().code(8);
    bcmr([o("copy"), o("-r"), s(&src.join(".")), s(bound)]).run().code(8);
    bcmr([o("move"), s(&src.join("a")), s(&bound.join("a"))]).run().code(8);
    assert!(differences(&before, &tree(&src), EVERYTHING).is_empty());
    // The twin.
    bcmr([o("copy"), s(&src.join("a")), s(&bound.join("a2"))]).run().ok();
    assert_eq!(std::fs::read(src.join("a2")).unwrap(), b"content of a");
}

// ---- links ----

#[test]
fn dangling_links_are_copied_as_links_and_named_when_followed() {
    let tmp = Tmp::new();
    let src = small_tree(&tmp, "src");
    symlink("nowhere", src.join("dangling")).unwrap();
    bcmr([o("copy"), o("-r"), s(&src), s(&tmp.p("as-links"))]).run().ok();
    assert_same(&src, &tmp.p("as-links"), CONTENT);
    bcmr([o("copy"), o("-rL"), s(&src), s(&tmp.p("followed"))]).run().code(1).says("dangling");
    assert_eq!(std::fs::read(tmp.p("followed/sub/link")).unwrap(), b"content of a");
    assert!(std::fs::symlink_metadata(tmp.p("followed/dangling")).is_err());
    bcmr([o("copy"), s(&src.join("dangling")), s(&tmp.p("x"))]).run().code(1).says("points to nothing");
    // Never written through: the name it leads to would appear wherever the link's maker wished.
    bcmr([o("copy"), s(&src.join("a")), s(&src.join("dangling"))]).run().code(8);
    assert!(!src.join("nowhere").exists());
    bcmr([o("copy"), o("-P"), s(&src.join("dangling")), s(&tmp.p("x"))]).run().ok();
    assert_eq!(std::fs::read_link(tmp.p("x")).unwrap(), Path::new("nowhere"));
}

#[test]
fn a_move_onto_a_link_takes_its_place_and_spares_what_it_leads_to() {
    let tmp = Tmp::new();
    tmp.file("f", "new");
    tmp.file("kept", "kept");
    symlink("kept", tmp.p("link")).unwrap();
    bcmr([o("move"), s(&tmp.p("f")), s(&tmp.p("link"))]).run().ok();
    assert_eq!(std::fs::read(tmp.p("kept")).unwrap(), b"kept");
    assert_eq!(std::fs::read(tmp.p("link")).unwrap(), b"new");
    assert!(tmp.p("link").symlink_metadata().unwrap().is_file());
    // The twins: a copy writes to what the link leads to, and a link to a directory is a place to move into.
    tmp.file("g", "newer");
    symlink("kept", tmp.p("link2")).unwrap();
    bcmr([o("copy"), s(&tmp.p("g")), s(&tmp.p("link2"))]).run().ok();
    assert_eq!(std::fs::read(tmp.p("kept")).unwrap(), b"newer");
    assert!(tmp.p("link2").symlink_metadata().unwrap().is_symlink());
    symlink(tmp.dir("d"), tmp.p("way")).unwrap();
    bcmr([o("move"), s(&tmp.p("g")), s(&tmp.p("way"))]).run().ok();
    assert_eq!(std::fs::read(tmp.p("d/g")).unwrap(), b"newer");
}

#[test]
fn link_loops_are_named_and_the_rest_is_copied() {
    let tmp = Tmp::new();
    let src = small_tree(&tmp, "src");
    symlink(".", src.join("self")).unwrap();
    symlink("../..", src.join("sub/deep/up")).unwrap();
    symlink("round", src.join("round")).unwrap();
    bcmr([o("copy"), o("-rL"), s(&src), s(&tmp.p("followed"))]).run().code(1).says("circle");
    assert_eq!(std::fs::read(tmp.p("followed/a")).unwrap(), b"content of a");
    assert_eq!(std::fs::read(tmp.p("followed/sub/b")).unwrap(), noise(1, 100_000));
    assert_no_litter(tmp.path());
    bcmr([o("copy"), o("-r"), s(&src), s(&tmp.p("as-links"))]).run().ok();
    assert_same(&src, &tmp.p("as-links"), CONTENT);
    // The twin: the same directory reached twice is no loop.
    let twice = tmp.dir("twice");
    symlink(src.join("sub/deep"), twice.join("one")).unwrap();
    symlink(src.join("sub/deep"), twice.join("two")).unwrap();
    std::fs::remove_file(src.join("sub/deep/up")).unwrap();
    bcmr([o("copy"), o("-rL"), s(&twice), s(&tmp.p("twice-out"))]).run().ok();
    assert!(tmp.p("twice-out/one/c").is_file() && tmp.p("twice-out/two/c").is_file());
}

// ---- special files ----

#[test]
fn special_files_are_skipped_by_name_or_made_anew_and_never_opened() {
    let tmp = Tmp::new();
    let src = small_tree(&tmp, "src");
    mkfifo(&src.join("a-fifo"));
    mknod(&src.join("sub/a-socket"), FileType::Socket, 0o644, 0);
    if is_root() {
        mknod(&src.join("sub/a-device"), FileType::CharacterDevice, 0o600, 0x105);
    }
    // A program that opened the FIFO would hang here.
    let ran = bcmr([o("copy"), o("-r"), s(&src), s(&tmp.p("plain"))]).run().code(1);
    let ran = ran.says("a-fifo").says("a-socket").says("--archive");
    if is_root() {
        ran.says("a-device");
    }
    let mut want = tree(&src);
    want.retain(|path, _| !path.windows(3).any(|w| w == b"/a-" || w == b"a-f"));
    let told = differences(&want, &tree(&tmp.p("plain")), CONTENT);
    assert!(told.is_empty(), "{told:?}");
    bcmr([o("copy"), o("--archive"), s(&src), s(&tmp.p("archive"))]).run().ok();
    assert_same(&src, &tmp.p("archive"), EVERYTHING);
    bcmr([o("copy"), o("-r"), s(&src.join("a-fifo")), s(&tmp.p("x"))]).run().code(1);
    assert!(std::fs::symlink_metadata(tmp.p("x")).is_err());
}

#[test]
fn a_special_file_in_a_destination_directory_is_written_into_only_on_request() {
    let tmp = Tmp::new();
    let f = tmp.file("f", "for the reader");
    let dir = tmp.dir("dir");
    let fifo = dir.join("f");
    mkfifo(&fifo);
    // No process reads the FIFO: one that opened it for writing would hang.
    bcmr([o("copy"), o("-r"), s(&f), s(&dir)]).run().code(1).says("--inplace");
    assert_eq!(tree(&dir)[&b"f"[..]].kind, FileType::Fifo);
    let reader = std::thread::spawn(move || std::fs::read(fifo).unwrap());
    bcmr([o("copy"), o("--inplace"), s(&f), s(&tmp.p("dir/f"))]).run().ok();
    assert_eq!(reader.join().unwrap(), b"for the reader");
    bcmr([o("copy"), o("--inplace"), s(&f), o("/dev/null")]).run().ok();
}

// ---- what may not be read or written ----

#[test]
fn unreadable_files_and_directories_are_named_and_the_rest_is_copied() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    let src = small_tree(&tmp, "src");
    chmod(&tmp.file("src/closed", "secret"), 0o600);
    tmp.file("src/shut/inner", "secret");
    chmod(&src.join("shut"), 0o700);
    tmp.file("src/unlisted/inner", "secret");
    chmod(&src.join("unlisted"), 0o711);
    let copy = [o("copy"), o("-r"), s(&src)];
    let dst = tmp.p("dst");
    let ran = bcmr_as(NOBODY, &tmp, copy).args([&dst]).run().code(1);
    ran.says("src/closed'").says("src/shut'").says("src/unlisted'");
    assert!(!dst.join("closed").exists());
    assert_eq!(std::fs::read(dst.join("a")).unwrap(), b"content of a");
    assert_eq!(std::fs::read(dst.join("sub/b")).unwrap(), noise(1, 100_000));
    assert_no_litter(tmp.path());
    // A move leaves what it could not copy, and says so.
    let other = Tmp::beneath(Path::new("/dev/shm"));
    chmod(other.path(), 0o777);
    chmod(&src, 0o777);
    let ran = bcmr_as(NOBODY, &tmp, [o("move"), s(&src), s(&other.p("moved"))]).run();
    assert_ne!(ran.code, 0, "{}", ran.err);
    assert_eq!(std::fs::read(src.join("closed")).unwrap(), b"secret");
    assert_eq!(std::fs::read(src.join("shut/inner")).unwrap(), b"secret");
    // The twin: readable by the group alone is readable.
    let mine = tmp.file("src2/by-group", "for the group");
    rustix::fs::chown(&mine, None, Some(rustix::fs::Gid::from_raw(NOBODY))).unwrap();
    chmod(&mine, 0o040);
    bcmr_as(NOBODY, &tmp, [o("copy"), s(&mine), s(&tmp.p("got"))]).run().ok();
}

#[test]
fn a_read_only_destination_is_named_and_nothing_is_lost() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    let src = small_tree(&tmp, "src");
    let dst = tmp.dir("dst");
    tmp.file("dst/a", "old");
    let before = tree(&dst);
    bcmr_as(NOBODY, &tmp, [o("copy"), o("-r"), s(&src), s(&dst)]).run().code(1).says("Permission denied");
    bcmr_as(NOBODY, &tmp, [o("copy"), s(&src.join("a")), s(&dst)]).run().code(1).says("Permission denied");
    bcmr_as(NOBODY, &tmp, [o("copy"), o("-f"), s(&src.join("a")), s(&dst)]).run().code(1);
    assert!(differences(&before, &tree(&dst), EVERYTHING).is_empty());
    match Mount::tmpfs("size=1m", &tmp.p("ro")) {
        Ok(mount) => {
            std::fs::write(mount.path().join("a"), "old").unwrap();
            let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(mount.path()).status();
            assert!(remount.unwrap().success());
            bcmr([o("copy"), s(&src.join("a")), s(mount.path())]).run().code(1).says("Read-only file system");
            bcmr([o("move"), s(&mount.path().join("a")), s(&tmp.p("moved"))]).run().code(1);
            assert_eq!(std::fs::read(mount.path().join("a")).unwrap(), b"old");
        }
        Err(why) => skipped("read-only file system", &why),
    }
    // The twin: a read-only file in a directory of one's own is replaced, as rename(2) allows.
    chmod(&tmp.dir("own"), 0o777);
    chmod(&tmp.file("own/a", "old"), 0o444);
    bcmr_as(NOBODY, &tmp, [o("copy"), o("-f"), s(&src.join("a")), s(&tmp.p("own"))]).run().ok();
    assert_eq!(std::fs::read(tmp.p("own/a")).unwrap(), b"content of a");
}

/// A directory that takes new names and is not listed, as a drop box or a spool.
#[test]
fn a_directory_that_may_be_written_but_not_read() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    let own = |path: &Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    let closed = tmp.dir("dst/sub");
    chmod(&closed, 0o1733);
    for name in 1..=5 {
        tmp.file(format!("src/sub/{name}"), "new");
        own(&tmp.file(format!("dst/sub/{name}"), "old"));
    }
    // As many as are synced by one call.
    bcmr_as(NOBODY, &tmp, [o("copy"), o("-rT"), s(&tmp.p("src")), s(&tmp.p("dst"))]).run().ok();
    for name in 1..=5 {
        assert_eq!(std::fs::read(closed.join(name.to_string())).unwrap(), b"new");
    }
    tmp.file("big", noise(1, 9 << 20));
    let copies = ["copy --sync", "copy -C --checkpoint-size=4M", "copy --sync -C --checkpoint-size=4M -V"];
    for (n, words) in copies.into_iter().enumerate() {
        let to = closed.join(format!("copied {n}"));
        bcmr_as(NOBODY, &tmp, words.split(' ')).args([tmp.p("big"), to.clone()]).run().ok();
        assert_eq!(std::fs::metadata(&to).unwrap().len(), 9 << 20);
    }
    let list = closed.join("list");
    let files = [list.clone(), tmp.p("src/sub/1"), closed.join("listed")];
    bcmr_as(NOBODY, &tmp, ["copy", "--manifest"]).args(files).run().ok();
    assert!(list.exists());
    for (n, words) in ["move", "move --sync", "mv"].into_iter().enumerate() {
        for from in [&tmp, &Tmp::beneath(Path::new("/dev/shm"))] {
            let name = format!("moved {n} {}", from.path().starts_with("/dev/shm"));
            chmod(&from.dir("from"), 0o777);
            own(&from.file(format!("from/{name}"), "moved"));
            let files = [from.p("from").join(&name), closed.clone()];
            bcmr_as(NOBODY, &tmp, words.split(' ')).args(files).run().ok();
            assert_eq!(std::fs::read(closed.join(&name)).unwrap(), b"moved");
            assert!(!from.p("from").join(&name).exists());
        }
    }
}

/// A stage that another user's killed run left in a sticky directory stays, and takes no session with it.
#[test]
fn what_may_not_be_taken_away_hides_nothing_else() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    let dst = tmp.dir("dst");
    chmod(&dst, 0o1777);
    let stale = leftover(&dst, &"0".repeat(32), ".stage");
    std::fs::write(&stale, "another's").unwrap();
    let left = [".session", ".part"].map(|role| leftover_of(&dst, b"file", role));
    for path in &left {
        std::fs::write(path, "").unwrap();
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let src = tmp.file("file", "new");
    bcmr_as(NOBODY, &tmp, [o("copy"), s(&src), s(&dst)]).run().ok();
    let mut stays = [o("file"), stale.file_name().unwrap()];
    stays.sort();
    assert_eq!(names(&dst), stays);
}

/// Where no `/proc` is mounted, what goes by its paths elsewhere goes by handles.
#[test]
fn files_are_replaced_without_proc() {
    needs!(is_root() && has_tool("unshare"), "a namespace of one's own needs root and unshare");
    let tmp = Tmp::new();
    let note = |path: &Path| {
        rustix::fs::setxattr(path, "user.note", b"kept", rustix::fs::XattrFlags::empty()).is_ok()
    };
    for (n, words) in ["copy", "copy -p", "mv", "move --force", "cp -a"].into_iter().enumerate() {
        let (new, old) = (tmp.file(format!("{n}/new"), "new"), tmp.file(format!("{n}/old"), "old one"));
        let noted = note(&old);
        let line = format!("mount -t tmpfs none /proc && exec \"$0\" {words} \"$@\"");
        let words = [o("-m"), o("sh"), o("-c"), o(&line), o(BCMR), s(&new), s(&old)];
        let ran = Line::new(Path::new("unshare")).args(words).run().ok();
        assert_eq!(ran.err, "", "{n}");
        assert_eq!(std::fs::read(&old).unwrap(), b"new", "{n}");
        if n == 0 && noted {
            let mut value = [0; 8];
            assert_eq!(rustix::fs::getxattr(&old, "user.note", &mut value).ok(), Some(4));
        }
    }
}

/// Nor does what is never opened lack its mode there.
#[test]
fn special_files_have_their_modes_without_proc() {
    needs!(is_root() && has_tool("unshare"), "a namespace of one's own needs root and unshare");
    let tmp = Tmp::new();
    mkfifo(&tmp.dir("s").join("fifo"));
    chmod(&tmp.p("s/fifo"), 0o677);
    for (n, words) in ["copy -r --archive", "cp -a"].into_iter().enumerate() {
        let (from, to) = (tmp.p("s"), tmp.p(format!("d{n}")));
        let line = format!("umask 077 && mount -t tmpfs none /proc && exec \"$0\" {words} \"$@\"");
        let words = [o("-m"), o("sh"), o("-c"), o(&line), o(BCMR), s(&from), s(&to)];
        let ran = Line::new(Path::new("unshare")).args(words).run().ok();
        assert_eq!(ran.err, "", "{n}");
        assert_eq!(std::fs::metadata(to.join("fifo")).unwrap().mode() & 0o7777, 0o677, "{n}");
    }
}

// ---- no space ----

fn fills_up(room: &Path, tmp: &Tmp, make_room: impl FnOnce()) {
    let src = tmp.dir("src");
    for n in 0..40 {
        tmp.file(format!("src/{}/{n:02}", n % 4), noise(n, 500_000));
    }
    tmp.file("src/replaced", noise(99, 6_000_000));
    let dst = room.join("dst");
    std::fs::create_dir(&dst).unwrap();
    std::fs::write(dst.join("replaced"), "old and precious").unwrap();
    let ran = bcmr([o("copy"), o("-rT"), s(&src), s(&dst)]).run().code(6);
    let ran = ran.says("No space left on device").says("hint: ");
    assert!(!ran.err.contains("Input/output"), "{}", ran.err);
    let (want, got) = (tree(&src), tree(&dst));
    for (path, entry) in &got {
        if path == b"replaced" && entry.size == 16 {
            continue;
        }
        assert_eq!(want[path].content, entry.content, "torn: {:?}", OsStr::from_bytes(path));
    }
    assert_no_litter(room);
    let kept = std::fs::read(dst.join("replaced")).unwrap();
    assert!(kept == b"old and precious" || kept == noise(99, 6_000_000));
    make_room();
    // The twin: the same command when there is room.
    bcmr([o("copy"), o("-rT"), s(&src), s(&dst)]).run().ok();
    assert_same(&src, &dst, CONTENT);
    assert_no_litter(room);
}

#[test]
fn memory_fills_up_in_the_middle() {
    needs!(is_root(), "mounting needs root");
    let tmp = Tmp::new();
    let mount = match Mount::tmpfs("size=12m", &tmp.p("m")) {
        Ok(mount) => mount,
        Err(why) => return skipped("tmpfs", &why),
    };
    fills_up(mount.path(), &tmp, || {
        let grown = Command::new("mount").args(["-o", "remount,size=64m"]).arg(mount.path()).status();
        assert!(grown.unwrap().success());
    });
}

#[test]
fn a_disk_fills_up_in_the_middle() {
    needs!(is_root() && has_tool("mkfs.ext4"), "needs root and mkfs.ext4");
    let tmp = Tmp::new();
    let mount = match Mount::image("ext4", 64, &tmp.p("m")) {
        Ok(mount) => mount,
        Err(why) => return skipped("ext4", &why),
    };
    let ballast = mount.path().join("ballast");
    std::fs::write(&ballast, vec![1; 44 << 20]).unwrap();
    fills_up(mount.path(), &tmp, || std::fs::remove_file(&ballast).unwrap());
}

#[test]
fn a_move_onto_a_full_disk_loses_nothing() {
    needs!(is_root(), "mounting needs root");
    let tmp = Tmp::new();
    let mount = match Mount::tmpfs("size=4m", &tmp.p("m")) {
        Ok(mount) => mount,
        Err(why) => return skipped("tmpfs", &why),
    };
    for n in 0..12 {
        tmp.file(format!("src/{n}"), noise(n, 500_000));
    }
    bcmr([o("move"), s(&tmp.p("src")), s(&mount.path().join("dst"))]).run().code(6);
    for n in 0..12 {
        let (here, there) = (tmp.p(format!("src/{n}")), mount.path().join(format!("dst/{n}")));
        let copy = std::fs::read(&there).ok();
        assert!(copy.is_none() || copy == Some(noise(n, 500_000)), "torn: {n}");
        assert!(copy.is_some() || std::fs::read(&here).unwrap() == noise(n, 500_000), "lost: {n}");
    }
    // What is left is the mark by which the same command goes on once there is room.
    let left = litter(mount.path());
    assert!(matches!(left.as_slice(), [mark] if mark.as_bytes().ends_with(b".tree")), "{left:?}");
    let room = Command::new("mount").args(["-o", "remount,size=32m"]).arg(mount.path()).status();
    assert!(room.unwrap().success());
    bcmr([o("move"), s(&tmp.p("src")), s(&mount.path().join("dst"))]).run().code(0);
    for n in 0..12 {
        assert_eq!(std::fs::read(mount.path().join(format!("dst/{n}"))).unwrap(), noise(n, 500_000));
    }
    assert!(!tmp.p("src").exists());
    assert_no_litter(mount.path());
}

// ---- names and depths ----

#[test]
fn names_of_all_bytes_and_of_255_bytes() {
    let tmp = Tmp::new();
    let src = tmp.dir("src");
    let mut made: Vec<Vec<u8>> =
        [&b"caf\xe9"[..], b"new\nline", b"\x1b[2J\x07", b"-rf", b"--", b" ", b"*?[a]", b"..."]
            .map(<[u8]>::to_vec)
            .to_vec();
    made.push((1..=255).filter(|b| *b != b'/').collect());
    made.push(vec![b'n'; 255]);
    made.push([vec![0xff; 254], b"x".to_vec()].concat());
    for name in &made {
        let dir = src.join(OsStr::from_bytes(name));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join(OsStr::from_bytes(name)), name).unwrap();
        symlink(OsStr::from_bytes(&name[..name.len().min(254)]), dir.join("l")).unwrap();
    }
    bcmr([o("copy"), o("-r"), s(&src), s(&tmp.p("dst"))]).run().ok();
    assert_same(&src, &tmp.p("dst"), CONTENT);
    // Replaced one by one, by their own path, and named escaped.
    for name in &made {
        let name = OsStr::from_bytes(name);
        let (from, to) = (src.join(name).join(name), tmp.p("dst").join(name));
        bcmr([o("copy"), o("--"), s(&from), s(&to)]).run().ok();
    }
    let ran = bcmr([o("copy"), o("-rv"), s(&src), s(&tmp.p("dst"))]).run().ok();
    assert!(!ran.out.contains('\x1b') && !ran.err.contains('\x1b'), "escapes are printed raw");
    bcmr([o("move"), s(&tmp.p("dst")), s(&tmp.p("moved"))]).run().ok();
    bcmr([o("remove"), o("-r"), s(&tmp.p("moved"))]).run().ok();
    let too_long = OsString::from_vec(vec![b'n'; 256]);
    bcmr([o("copy"), s(&tmp.file("f", "")), s(&tmp.p(too_long))]).run().code(1).says("File name too long");
}

/// Makes `levels` directories of long names below `root`, with a file in the innermost; returns the names.
fn deep(root: &Path, levels: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = rustix::fs::openat(CWD, root, flags, Mode::empty()).unwrap();
    for level in 0..levels {
        let name = format!("{level:02}-{}", "d".repeat(200));
        rustix::fs::mkdirat(&here, name.as_str(), Mode::from_raw_mode(0o755)).unwrap();
        let flags_new = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&here, "file", flags_new, Mode::from_raw_mode(0o644)).unwrap();
        rustix::io::write(&file, name.as_bytes()).unwrap();
        rustix::fs::symlinkat("file", &here, "link").unwrap();
        rustix::fs::linkat(&here, "file", &here, "second", AtFlags::empty()).unwrap();
        here = rustix::fs::openat(&here, name.as_str(), flags, Mode::empty()).unwrap();
    }
}

#[test]
fn paths_deeper_than_path_max() {
    let tmp = Tmp::new();
    let src = tmp.dir("src");
    deep(&src, 45);
    for (args, exact) in [(&["copy", "-r"][..], CONTENT), (&["copy", "--archive", "-j4"], EVERYTHING)] {
        let dst = tmp.p(format!("dst{}", args.len()));
        bcmr(args).args([&src, &dst]).run().ok();
        assert_same(&src, &dst, exact);
        // Over what is there.
        bcmr(args).args([s(&src), s(&dst), o("-T")]).run().ok();
        assert_same(&src, &dst, exact);
    }
    bcmr([o("check"), o("--hash"), s(&src), s(&tmp.p("dst3")), o("-T")]).run().ok();
    bcmr([o("move"), o("--merge"), o("-T"), s(&tmp.p("dst2")), s(&tmp.p("dst3"))]).run().ok();
    assert_same(&src, &tmp.p("dst3"), CONTENT);
    bcmr([o("remove"), o("-r"), s(&tmp.p("dst3"))]).run().ok();
    assert!(!tmp.p("dst3").exists());
}

// ---- sources that change ----

/// A source for one attack, and what its copies may hold.
fn while_changing(change: impl Fn(&Path) -> Attacker, valid: impl Fn(&[u8]) -> bool) {
    let tmp = Tmp::new();
    let src = tmp.dir("src");
    let file = src.join("changing");
    tmp.file("src/still", noise(3, 300_000));
    let (mut whole, mut refused) = (0, 0);
    {
        let _attack = change(&file);
        while !file.exists() {
            std::thread::yield_now();
        }
        for_a_while(|round| {
            let extra =
                [&["-j4"][..], &["--reflink=disable", "-j1"], &["--verify"], &["--archive"]][round % 4];
            let dst = tmp.p("dst");
            let old = std::fs::read(dst.join("changing")).ok();
            let ran = bcmr([o("copy"), o("-rT")]).args(extra).args([&src, &dst]).run();
            let got = std::fs::read(dst.join("changing")).ok();
            if ran.code == 0 {
                whole += 1;
                let got = got.expect("exit 0 and the file is missing");
                assert!(valid(&got), "round {round}: exit 0 with a file that never was, {} bytes", got.len());
            } else {
                refused += 1;
                assert!(matches!(ran.code, 1 | 5), "exit {}: {}", ran.code, ran.err);
                assert!(got == old, "round {round}: exit {} and a new file: {}", ran.code, ran.err);
            }
            assert_eq!(std::fs::read(dst.join("still")).unwrap(), noise(3, 300_000));
            if round % 3 == 0 {
                std::fs::remove_dir_all(&dst).unwrap();
            }
            assert_no_litter(tmp.path());
        });
    }
    assert!(whole + refused > 0);
    // The twin: it does not change any more.
    if file.exists() {
        bcmr([o("copy"), o("-rT"), s(&src), s(&tmp.p("dst"))]).run().ok();
        assert_same(&src, &tmp.p("dst"), CONTENT);
    }
}

const BLOCK: usize = 4096;
const BLOCKS: usize = 2048;

#[test]
fn a_file_rewritten_while_it_is_copied_is_never_a_mixture() {
    let change = |path: &Path| {
        let path = path.to_owned();
        std::fs::write(&path, vec![1; BLOCK * BLOCKS]).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let mut generation = 1u8;
        Attacker::new(move || {
            generation = generation % 250 + 1;
            for n in 0..BLOCKS / 16 {
                file.write_all_at(&[generation; BLOCK * 16], (n * BLOCK * 16) as u64).unwrap();
            }
        })
    };
    // At every moment: the new generation up to some byte, the one before it from there on.
    while_changing(change, |got| {
        let old = got.last().copied().unwrap_or(0);
        let new = if old == 250 { 1 } else { old + 1 };
        let cut = got.iter().take_while(|b| **b == new).count();
        got.len() == BLOCK * BLOCKS && got[cut..].iter().all(|b| *b == old)
    });
}

#[test]
fn a_file_that_grows_while_it_is_copied_is_one_of_its_lengths() {
    let change = |path: &Path| {
        let path = path.to_owned();
        let content = noise(11, 8 << 20);
        std::fs::write(&path, &content[..1 << 20]).unwrap();
        let mut len = 1 << 20;
        Attacker::new(move || {
            if len + 65536 > content.len() {
                std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
                len = 1 << 20;
            }
            let mut file = std::fs::File::options().append(true).open(&path).unwrap();
            file.write_all(&content[len..len + 65536]).unwrap();
            len += 65536;
        })
    };
    let content = noise(11, 8 << 20);
    while_changing(change, |got| content.starts_with(got));
}

#[test]
fn a_file_that_shrinks_while_it_is_copied_is_one_of_its_lengths() {
    let change = |path: &Path| {
        let path = path.to_owned();
        let content = noise(12, 8 << 20);
        std::fs::write(&path, &content).unwrap();
        let mut len = content.len();
        Attacker::new(move || {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            if len < 200_000 {
                // Back to its length, front to back.
                file.write_all_at(&content, 0).unwrap();
                len = content.len();
            }
            len -= 100_000;
            file.set_len(len as u64).unwrap();
        })
    };
    let content = noise(12, 8 << 20);
    while_changing(change, |got| content.starts_with(got));
}

#[test]
fn a_file_that_comes_and_goes_is_whole_or_absent() {
    let change = |path: &Path| {
        let path = path.to_owned();
        let content = noise(13, 5 << 20);
        let beside = path.parent().unwrap().parent().unwrap().join("beside");
        Attacker::new(move || {
            std::fs::write(&beside, &content).unwrap();
            std::fs::rename(&beside, &path).unwrap();
            std::thread::yield_now();
            std::fs::remove_file(&path).unwrap();
        })
    };
    let tmp = Tmp::new();
    let src = tmp.dir("src");
    tmp.file("src/still", "still");
    let _attack = change(&src.join("coming"));
    let content = noise(13, 5 << 20);
    for_a_while(|round| {
        let dst = tmp.p(format!("dst{round}"));
        bcmr([o("copy"), o("-rT"), s(&src), s(&dst)]).run().one_of(&[0, 1, 5]);
        assert_eq!(std::fs::read(dst.join("still")).unwrap(), b"still");
        if let Ok(got) = std::fs::read(dst.join("coming")) {
            assert!(got == content, "torn, {} bytes", got.len());
        }
        assert_no_litter(&dst);
        std::fs::remove_dir_all(&dst).unwrap();
    });
}

// ---- large and many ----

#[test]
fn a_file_over_4_gib_with_holes() {
    let tmp = Tmp::new();
    let src = tmp.p("big");
    let file = std::fs::File::create(&src).unwrap();
    let places = [0, (1 << 32) - 3, (1 << 32) + 7_000_000, (5 << 30) - 1000];
    for (n, at) in places.into_iter().enumerate() {
        file.write_all_at(&noise(n as u64, 100_000), at).unwrap();
    }
    file.set_len((5 << 30) + 12_345_678).unwrap();
    for (name, args) in [("one", &["-j1"][..]), ("two", &["--reflink=disable", "-j4"])] {
        let dst = tmp.p(name);
        bcmr(["copy"]).args(args).args([&src, &dst]).run().ok();
        let (was, is) = (std::fs::metadata(&src).unwrap(), std::fs::metadata(&dst).unwrap());
        assert_eq!(was.len(), is.len());
        assert_eq!(was.blocks(), is.blocks(), "the same holes");
        let copy = std::fs::File::open(&dst).unwrap();
        for (n, at) in places.into_iter().enumerate() {
            let mut got = vec![0; 100_000];
            copy.read_exact_at(&mut got, at).unwrap();
            assert!(got == noise(n as u64, 100_000), "{name} at {at}");
        }
    }
}

#[test]
fn twenty_thousand_entries_in_one_directory() {
    let tmp = Tmp::new();
    let src = tmp.dir("src");
    for n in 0..20_000u32 {
        std::fs::write(src.join(format!("{n}")), if n % 50 == 0 { &b"some"[..] } else { b"" }).unwrap();
    }
    let want = tree(&src);
    bcmr([o("copy"), o("-r"), s(&src), s(&tmp.p("dst"))]).run().ok();
    assert_complete(&want, &tmp.p("dst"));
    // Over what is there, where each is staged by itself.
    bcmr([o("copy"), o("-rT"), s(&src), s(&tmp.p("dst"))]).run().ok();
    assert_complete(&want, &tmp.p("dst"));
    assert_no_litter(tmp.path());
    assert_complete(&want, &src);
    bcmr([o("remove"), o("-r"), s(&tmp.p("dst"))]).run().ok();
    assert!(!tmp.p("dst").exists());
}

#[test]
fn two_copies_into_the_same_destination_at_once() {
    let tmp = Tmp::new();
    let src = tmp.dir("src");
    for n in 0..60 {
        tmp.file(format!("src/{}/{}/{n}", n % 3, n % 5), noise(n, 3000));
    }
    tmp.file("src/large", noise(77, 5 << 20));
    std::fs::hard_link(src.join("0/0/0"), src.join("1/again")).unwrap();
    std::fs::hard_link(src.join("0/0/0"), src.join("0/again")).unwrap();
    // Each way of copying, and each with the destination there and not.
    for round in 0..if all_cases() { 30 } else { 12 } {
        let dst = tmp.p("dst");
        let (args, exact) = match round % 3 {
            0 => (&["copy", "-rT"][..], CONTENT),
            1 => (&["copy", "-rT", "-j4"][..], CONTENT),
            _ => (&["copy", "--archive", "-T"][..], Exact { links: false, times: false, ..EVERYTHING }),
        };
        if round % 2 == 0 {
            tmp.dir("dst");
        }
        let (one, two) = (bcmr(args).args([&src, &dst]).start(), bcmr(args).args([&src, &dst]).start());
        let (one, two) = (one.wait(), two.wait());
        assert_eq!((one.code, two.code), (0, 0), "round {round}: {}\n{}", one.err, two.err);
        let told = differences(&tree(&src), &tree(&dst), exact);
        assert!(told.is_empty(), "round {round}: {told:?}");
        assert_no_litter(tmp.path());
        std::fs::remove_dir_all(&dst).unwrap();
    }
}

/// Where another copy makes the same directory, what is in ours moves in there, and a first name may go between the look and the link.
#[test]
fn a_first_name_that_moves_meanwhile_is_looked_for_again() {
    needs!(has_tool("strace"), "there is no strace");
    let tmp = Tmp::new();
    let src = tmp.dir("src");
    tmp.file("src/a", "one");
    std::fs::hard_link(src.join("a"), src.join("b")).unwrap();
    // `hard_link` itself tries eight times while the first name is there.
    for (when, code) in [("1..8", 0), ("1..24", 0), ("1+", 1)] {
        let dst = tmp.p("dst");
        let inject = format!("inject=linkat:error=ENOENT:when={when}");
        let mut copy = std::process::Command::new("strace");
        copy.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=linkat", "-e", &inject, BCMR]);
        let done = copy.args(["copy", "--archive", "-T"]).args([&src, &dst]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{when}: {said}");
        if code == 0 {
            assert_same(&src, &dst, EVERYTHING);
        } else {
            assert!(said.contains("cannot make hard link"), "{said}");
        }
        assert_no_litter(tmp.path());
        std::fs::remove_dir_all(&dst).unwrap();
    }
}

// ---- interrupted ----

/// A tree that takes a while.
fn many_files(tmp: &Tmp) -> PathBuf {
    for n in 0..3000 {
        let dir = tmp.p(format!("src/{}", n % 60));
        if n < 60 {
            std::fs::create_dir_all(&dir).unwrap();
        }
        std::fs::write(dir.join(format!("{n}")), noise(n, 200)).unwrap();
    }
    tmp.p("src")
}

/// A copy that stands still behind its first `lines` lines: there are more than a pipe holds.
fn standing_still(src: &Path, dst: &Path, lines: usize) -> Running {
    let mut run = bcmr([o("copy"), o("-rTv"), s(src), s(dst)]).start();
    assert!(!run.hear(lines).is_empty());
    run
}

#[track_caller]
fn assert_only_complete(want: &Tree, dst: &Path) {
    let got = tree(dst);
    for (path, entry) in got.iter().filter(|(path, _)| !path.starts_with(b".bcmr")) {
        let same = want.get(path).is_some_and(|w| w.content == entry.content && w.size == entry.size);
        assert!(same, "torn or strange: {:?}", OsStr::from_bytes(path));
    }
}

/// As [`assert_same`], of a source that was looked at before.
#[track_caller]
fn assert_complete(want: &Tree, dst: &Path) {
    let told = differences(want, &tree(dst), CONTENT);
    assert!(told.is_empty(), "{} differs: {:?}", dst.display(), &told[..told.len().min(20)]);
}

#[test]
fn ctrl_c_leaves_complete_files_and_no_stage_and_says_how_to_go_on() {
    let tmp = Tmp::new();
    let src = many_files(&tmp);
    let want = tree(&src);
    let dst = tmp.dir("dst");
    for lines in [1, 900] {
        let mut run = standing_still(&src, &dst, lines);
        run.interrupt();
        let ran = run.wait().code(130).says("stopped").says("hint: ").says("run: ");
        // What was there before may be newer than what is to replace it.
        assert!(!ran.err.contains(" -u"), "{}", ran.err);
        assert_no_litter(tmp.path());
        assert_only_complete(&want, &dst);
        // The twin: the same command again does the rest.
        bcmr([o("copy"), o("-rT"), o("-u"), s(&src), s(&dst)]).run().ok();
        assert_complete(&want, &dst);
        std::fs::remove_dir_all(&dst).unwrap();
        tmp.dir("dst");
    }
    assert_complete(&want, &src);
}

#[test]
fn a_killed_copy_is_complete_after_the_same_command_again() {
    let tmp = Tmp::new();
    let src = many_files(&tmp);
    let want = tree(&src);
    for lines in [1, 900] {
        let dst = tmp.dir("dst");
        let run = standing_still(&src, &dst, lines);
        run.signal(Signal::KILL);
        run.wait().code(1009);
        assert_only_complete(&want, &dst);
        bcmr([o("copy"), o("-rT"), s(&src), s(&dst)]).run().ok();
        assert_complete(&want, &dst);
        assert_no_litter(tmp.path());
        std::fs::remove_dir_all(&dst).unwrap();
    }
    assert_complete(&want, &src);
}

/// Directories that appear together: none of them is there before, and a kill leaves one stage for all.
#[test]
fn a_new_tree_that_is_killed_or_stopped_has_whole_files_or_no_name() {
    let tmp = Tmp::new();
    let src = many_files(&tmp);
    for n in 0..60 {
        tmp.file(format!("src/{n}/deep/deeper/{n}"), noise(n, 300));
    }
    let want = tree(&src);
    // An ordinary run takes the first and the last: each moment, and each end.
    for (lines, kills) in sliced([(1, true), (900, true), (1, false), (900, false)], 3) {
        let dst = tmp.dir("dst");
        let new = dst.join("new");
        let mut run = standing_still(&src, &new, lines);
        if kills {
            run.signal(Signal::KILL);
            run.wait().code(1009);
        } else {
            run.interrupt();
            run.wait().code(130);
            assert_no_litter(tmp.path());
        }
        if new.exists() {
            assert_only_complete(&want, &new);
        } else if kills {
            let left: Vec<_> = std::fs::read_dir(&dst).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert!(matches!(&left[..], [one] if one.as_bytes().ends_with(b".stage")), "{left:?}");
        }
        bcmr([o("copy"), o("-rT"), s(&src), s(&new)]).run().ok();
        assert_complete(&want, &new);
        assert_no_litter(tmp.path());
        std::fs::remove_dir_all(&dst).unwrap();
    }
    assert_complete(&want, &src);
}

#[test]
fn a_killed_move_across_file_systems_loses_nothing() {
    let other = Tmp::elsewhere();
    needs!(other.is_some(), "it needs a second file system");
    let (tmp, Some(other)) = (Tmp::new(), other) else { return };
    for lines in [1, 3100] {
        let src = many_files(&tmp);
        let want = tree(&src);
        let dst = other.p("dst");
        // A line for what is copied, and another one for what is taken away.
        let mut run = bcmr([o("move"), o("-v"), s(&src), s(&dst)]).start();
        assert!(!run.hear(lines).is_empty());
        run.signal(Signal::KILL);
        run.wait().code(1009);
        let here = if src.exists() { tree(&src) } else { Tree::new() };
        let there = if dst.exists() { tree(&dst) } else { Tree::new() };
        for (path, entry) in want.iter().filter(|(_, e)| e.kind == FileType::RegularFile) {
            let whole = |side: &Tree| side.get(path).is_some_and(|e| e.content == entry.content);
            assert!(whole(&here) || whole(&there), "lost: {:?}", OsStr::from_bytes(path));
        }
        if src.exists() {
            bcmr([o("move"), s(&src), s(&dst)]).run().ok();
        }
        assert!(!src.exists());
        assert_complete(&want, &dst);
        assert_no_litter(other.path());
        std::fs::remove_dir_all(&dst).unwrap();
    }
}

/// A list of names that cannot be read is at its end, and says so once.
#[test]
fn a_list_that_cannot_be_read_ends() {
    let tmp = Tmp::new();
    tmp.file("s/f", "1");
    for flag in ["--files-from", "--files-from0"] {
        for more in ["-q", "-n"] {
            let ran = bcmr(["copy", more, flag, "s", "s", "d"]).cwd(tmp.path()).run().code(1);
            assert_eq!(ran.err.matches("Is a directory").count(), 1, "{}", ran.err);
        }
    }
}

/// A file that takes the place of a symbolic link has the mode that a new one would have.
#[test]
fn what_replaces_a_link_has_the_mode_of_a_new_file() {
    let tmp = Tmp::new();
    for mode in [0o644, 0o755, 0o444] {
        let source = tmp.file(format!("s/{mode:o}"), "1");
        chmod(&source, mode);
        std::fs::create_dir_all(tmp.p("d")).unwrap();
        std::os::unix::fs::symlink("nowhere", tmp.p("d").join(format!("{mode:o}"))).unwrap();
    }
    bcmr_after("umask 022", ["copy", "-rT", "s", "d"]).cwd(tmp.path()).run().ok();
    for want in [0o644, 0o755, 0o444] {
        assert_eq!(mode(&tmp.p("d").join(format!("{want:o}"))) & 0o7777, want);
    }
}

/// Man pages have a text for each option.
#[test]
fn man_pages_tell_of_every_option() {
    let tmp = Tmp::new();
    bcmr(["man", "."]).cwd(tmp.path()).run().ok();
    for page in names(tmp.path()) {
        let text = std::fs::read_to_string(tmp.path().join(&page)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for at in lines.windows(3).filter(|at| at[0] == ".TP" && at[1].contains("\\-\\-")) {
            assert!(!at[2].is_empty(), "{}: {}", page.display(), at[1]);
        }
    }
}

/// Whether a closed directory is empty only its removal shows, which a dry run says.
#[test]
fn a_dry_removal_of_a_closed_directory() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    for (name, file) in [("empty", None), ("full", Some("full/shut/f"))] {
        tmp.dir(format!("{name}/shut"));
        file.map(|file| tmp.file(file, "F"));
        for dir in [tmp.p(name), tmp.p(name).join("shut")] {
            std::os::unix::fs::chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        chmod(&tmp.p(name).join("shut"), 0o000);
    }
    let run = |flags: &str, name: &str| bcmr_as(NOBODY, &tmp, ["remove", flags]).args([tmp.p(name)]).run();
    for name in ["empty", "full"] {
        run("-rn", name).code(1).says("if nothing is in it, it would go");
    }
    run("-r", "empty").ok();
    let ran = run("-r", "full").code(1);
    assert!(!ran.err.contains("would"), "{}", ran.err);
    assert!(!tmp.p("empty").exists() && tmp.p("full/shut").exists());
}
