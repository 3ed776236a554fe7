//! `--fake-super`: what only root can set is held in an attribute where a user without rights keeps a copy, and is given back from
//! there, near and far. Root plants and judges; rsync judges too where it is there.

use crate::common::remote::*;
use crate::common::*;
use rustix::fs::{FileType, XattrFlags, lgetxattr, lsetxattr, makedev};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

const HELD: &str = "user.rsync.%stat";

fn give(path: &Path, uid: u32, gid: u32, bits: u32) {
    lchown(path, Some(uid), Some(gid)).unwrap();
    chmod(path, bits);
}

fn set(path: &Path, attr: &str, value: &[u8]) {
    lsetxattr(path, attr, value, XattrFlags::empty()).unwrap();
}

fn get(path: &Path, attr: &str) -> Option<String> {
    let mut value = [0; 256];
    let length = lgetxattr(path, attr, &mut value[..]).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).into_owned())
}

/// Something of each kind, with what only root can give.
fn plant(tmp: &Tmp) {
    let file = |name: &str, uid, gid, bits| give(&tmp.file(format!("s/{name}"), name), uid, gid, bits);
    file("plain", 0, 0, 0o644);
    file("users", 1234, 5678, 0o640);
    file("setuid", 1234, 5678, 0o6755);
    file("setuid in its group", 1234, 0, 0o4755);
    file("closed", NOBODY, NOBODY, 0);
    file("sub/deep/read only", 7, 8, 0o444);
    give(&tmp.file("s/large", noise(1, 5 << 20)), 77, 88, 0o4711);
    for n in 0..40 {
        file(&format!("many/{n}"), n, n + 1, 0o600 + n);
    }
    fs::hard_link(tmp.p("s/setuid"), tmp.p("s/sub/setuid too")).unwrap();
    mkfifo(&tmp.p("s/fifo"));
    give(&tmp.p("s/fifo"), 5, 6, 0o620);
    fs::hard_link(tmp.p("s/fifo"), tmp.p("s/fifo too")).unwrap();
    mknod(&tmp.p("s/char"), FileType::CharacterDevice, 0o666, makedev(1, 3));
    mknod(&tmp.p("s/block"), FileType::BlockDevice, 0o660, makedev(259, 70_000));
    chmod(&tmp.p("s/block"), 0o660);
    drop(UnixListener::bind(tmp.p("s/socket")).unwrap());
    symlink("sub/deep", tmp.p("s/link")).unwrap();
    lchown(tmp.p("s/link"), Some(12), Some(34)).unwrap();
    set(&tmp.p("s/plain"), "user.colour", b"blue");
    set(&tmp.p("s/plain"), "trusted.hue", b"deep");
    set(&tmp.p("s/users"), "security.capability", b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    for (dir, uid, gid, bits) in [("many", 3, 4, 0o1777), ("sub/deep", 0, 0, 0o555), ("sub", 9, 10, 0o2750)] {
        give(&tmp.p("s").join(dir), uid, gid, bits);
    }
    give(&tmp.p("s"), 11, 12, 0o711);
}

#[track_caller]
fn given_back(tmp: &Tmp, to: &str, what: &str) {
    let mut trees = [tree(&tmp.p("s")), tree(&tmp.p(to))];
    for tree in &mut trees {
        tree.values_mut().for_each(|entry| entry.atime = (0, 0));
    }
    let told = differences(&trees[0], &trees[1], EVERYTHING);
    assert!(told.is_empty(), "{what}:\n{}", told.join("\n"));
    if let Some(text) = rsync_would(&tmp.p("s"), &tmp.p(to)) {
        assert!(text.is_empty(), "{what}: rsync would: {text}");
    }
}

/// Nothing below has more than its owner may give, and all is there.
#[track_caller]
fn is_harmless(root: &Path, owner: u32, what: &str) {
    for (path, entry) in tree(root) {
        let shown = format!("{what}: {}", String::from_utf8_lossy(&path));
        assert!(matches!(entry.kind, FileType::RegularFile | FileType::Directory), "{shown}: {entry:?}");
        assert_eq!((entry.owner, entry.mode & 0o7000), ((owner, owner), 0), "{shown}: {entry:?}");
    }
}

/// How one gets from one place to another, and as whom.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Near,
    /// The destination, or the source, is on another machine, and its user there has no rights.
    Far(Dir),
    /// Both are, and it goes through here.
    Between,
}

fn line(way: Way, verb: &str, flags: &str, tmp: &Tmp, ends: (&str, &str)) -> Ran {
    let nobody = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
    let (src, dst) = (tmp.p(ends.0), tmp.p(ends.1));
    let words = flags.split_whitespace();
    let mut line = match way {
        Way::Near => bcmr([verb]).args(words).args([&src, &dst]),
        Way::Far(dir) => {
            let far = Far::pipe();
            chmod(&far.home(), 0o777);
            let far = far.with("FAR_RUN", &nobody).program(&tmp.p("bcmr"));
            let mut line = dir.ends(far.bcmr(verb).args(words), &far, &src, &dst);
            line.0.env("XDG_STATE_HOME", tmp.p("state"));
            return line.run();
        }
        Way::Between => {
            let far = Far::pipe();
            let on = |host: &str, path: &PathBuf| format!("{host}:{}", path.display());
            return far.bcmr(verb).args(words).args([on("one", &src), on("two", &dst)]).run();
        }
    };
    line.0.env("XDG_STATE_HOME", tmp.p("state")).env("XDG_DATA_HOME", tmp.p("data"));
    line.run()
}

#[test]
fn nothing_is_lost_near_and_far() {
    needs!(
        is_root() && has_tool("setpriv"),
        "giving owners and acting as another user need root and setpriv"
    );
    let ways =
        [(Way::Near, Way::Near), (Way::Far(Dir::Put), Way::Far(Dir::Get)), (Way::Between, Way::Between)];
    for (n, (up, down)) in ways.into_iter().enumerate() {
        let verbs = [("sync", ""), ("sync", "--checksum"), ("copy", "--archive -T")];
        for (m, (verb, flags)) in verbs.into_iter().enumerate() {
            // An ordinary run takes a third: each way, and each verb.
            if !in_slice(n + m + 2, 3) {
                continue;
            }
            let tmp = Tmp::for_others();
            plant(&tmp);
            let what = format!("{up:?} {verb} {flags}");
            let owner = if up == Way::Far(Dir::Put) { NOBODY } else { 0 };
            line(up, verb, &format!("{flags} --fake-super"), &tmp, ("s", "held")).ok();
            is_harmless(&tmp.p("held"), owner, &what);
            let held = |name: &str| get(&tmp.p("held").join(name), HELD);
            assert_eq!(held("setuid").as_deref(), Some("106755 0,0 1234:5678"), "{what}");
            assert_eq!(held("block").as_deref(), Some("60660 259,70000 0:0"), "{what}");
            assert_eq!(held("link").as_deref(), Some("120777 0,0 12:34"), "{what}");
            assert_eq!(held("many").as_deref(), Some("41777 0,0 3:4"), "{what}");
            assert_eq!(held("plain").is_some(), owner != 0, "{what}: only what is not so already");
            assert_eq!(mode(&tmp.p("held/users")), 0o600, "{what}: its group is another one");
            assert_eq!(mode(&tmp.p("held/many")), 0o755, "{what}");
            let ino = |name: &str| fs::metadata(tmp.p("held").join(name)).unwrap().ino();
            assert_eq!(ino("setuid"), ino("sub/setuid too"), "{what}");
            // Nothing is left to do, and nothing differs.
            if verb == "sync" {
                let again = line(up, verb, &format!("{flags} -i --fake-super"), &tmp, ("s", "held")).ok();
                assert_eq!(again.out, "", "{what}");
                let told =
                    line(up, verb, &format!("{flags} -n --delete --fake-super"), &tmp, ("s", "held")).ok();
                assert!(told.out.starts_with("no differences"), "{what}: {}", told.out);
            }
            if up != Way::Between {
                line(up, "check", "--archive -T --fake-super", &tmp, ("s", "held")).ok();
                line(up, "check", "--archive -T", &tmp, ("s", "held")).code(1);
            }
            // A held tree to another one, and both back to what they are meant to be.
            line(Way::Near, "sync", "--fake-super=both", &tmp, ("held", "held too")).ok();
            is_harmless(&tmp.p("held too"), 0, &what);
            for from in ["held", "held too"] {
                let to = format!("back of {from}");
                let down = if from == "held" { down } else { Way::Near };
                line(down, verb, &format!("{flags} --fake-super=src"), &tmp, (from, &to)).ok();
                given_back(&tmp, &to, &format!("{what} {from}"));
                let told = line(down, "sync", "-n --delete --fake-super=src", &tmp, (from, &to)).ok();
                assert!(told.out.starts_with("no differences"), "{what} {from}: {}", told.out);
            }
        }
    }
}

/// A server that is confined to a root holds and gives back, devices too, which it makes none of.
#[test]
fn behind_a_wall() {
    needs!(is_root(), "giving owners needs root");
    let tmp = Tmp::new();
    plant(&tmp);
    tmp.dir("root");
    let far = || Far::pipe().serving(&format!("--root {}", tmp.p("root").display()));
    let run = |flags: &str, dir: Dir, src: &Path, dst: &Path| {
        let far = far();
        dir.ends(far.bcmr("sync").args(flags.split_whitespace()), &far, src, dst).run()
    };
    run("--fake-super", Dir::Put, &tmp.p("s"), Path::new("/held")).ok();
    is_harmless(&tmp.p("root/held"), 0, "behind a wall");
    assert_eq!(run("-i --fake-super", Dir::Put, &tmp.p("s"), Path::new("/held")).ok().out, "");
    run("--fake-super=src", Dir::Get, Path::new("/held"), &tmp.p("back")).ok();
    given_back(&tmp, "back", "from behind a wall");
}

/// What changed at the source, in attributes alone or in kind, is brought up to date, and no more; what it lacks goes.
#[test]
fn the_next_day() {
    needs!(
        is_root() && has_tool("setpriv"),
        "giving owners and acting as another user need root and setpriv"
    );
    for way in [Way::Near, Way::Far(Dir::Put)] {
        let tmp = Tmp::for_others();
        plant(&tmp);
        line(way, "sync", "--fake-super", &tmp, ("s", "held")).ok();
        let inode = |name: &str| fs::metadata(tmp.p("held").join(name)).unwrap().ino();
        let large = inode("large");
        give(&tmp.p("s/large"), 78, 89, 0o2755);
        lchown(tmp.p("s/link"), Some(13), Some(35)).unwrap();
        chmod(&tmp.p("s/char"), 0o600);
        fs::remove_file(tmp.p("s/fifo too")).unwrap();
        fs::remove_file(tmp.p("s/block")).unwrap();
        tmp.file("s/block", "a file now");
        fs::remove_file(tmp.p("s/plain")).unwrap();
        mkfifo(&tmp.p("s/plain"));
        fs::remove_file(tmp.p("s/socket")).unwrap();
        symlink("elsewhere", tmp.p("s/socket")).unwrap();
        let told = line(way, "sync", "-n -i --delete --fake-super", &tmp, ("s", "held")).ok().out;
        assert!(told.contains("*deleting   fifo too"), "{way:?}: {told}");
        for unchanged in ["users", "closed", "many/7", "fifo\n", "setuid"] {
            assert!(!told.contains(&format!(" {unchanged}")), "{way:?} {unchanged}: {told}");
        }
        line(way, "sync", "--delete --max-delete=100% --fake-super", &tmp, ("s", "held")).ok();
        assert_eq!(inode("large"), large, "{way:?}: attributes alone");
        let again = line(way, "sync", "-n --delete --fake-super", &tmp, ("s", "held")).ok().out;
        assert!(again.starts_with("no differences"), "{way:?}: {again}");
        line(Way::Near, "sync", "--fake-super=src", &tmp, ("held", "back")).ok();
        given_back(&tmp, "back", &format!("{way:?}"));
        // Whose owner is other than at the source is so in the attribute.
        line(way, "sync", "--fake-super --chown 7:8 --chmod F640,D750", &tmp, ("s", "other")).ok();
        assert_eq!(get(&tmp.p("other/large"), HELD).as_deref(), Some("100640 0,0 7:8"), "{way:?}");
        let again =
            line(way, "sync", "-i --fake-super --chown 7:8 --chmod F640,D750", &tmp, ("s", "other")).ok();
        assert_eq!(again.out, "", "{way:?}");
    }
}

/// A user without any rights keeps a copy here, snapshots as well.
#[test]
fn without_root() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    give(&tmp.file("s/roots", "x"), 0, 0, 0o4755);
    give(&tmp.file("s/own", "x"), NOBODY, NOBODY, 0o400);
    mkfifo(&tmp.p("s/fifo"));
    symlink("own", tmp.p("s/link")).unwrap();
    let run = |flags: &str, dst: &str| {
        let words = ["sync"].into_iter().chain(flags.split_whitespace()).map(Into::into);
        let words: Vec<std::ffi::OsString> = words.chain([tmp.p("s").into(), tmp.p(dst).into()]).collect();
        let mut line = bcmr_as(NOBODY, &tmp, words);
        line.0.env("XDG_STATE_HOME", tmp.p("state"));
        line.run()
    };
    run("--fake-super", "held").ok();
    is_harmless(&tmp.p("held"), NOBODY, "without root");
    assert_eq!(run("-i --fake-super", "held").ok().out, "");
    line(Way::Near, "sync", "--fake-super=src", &tmp, ("held", "back")).ok();
    given_back(&tmp, "back", "without root");
    run("--fake-super --snapshot --at 2026-01-01", "snaps").ok();
    run("--fake-super --snapshot --at 2026-01-02", "snaps").ok();
    let ino = |day: &str, name: &str| {
        fs::metadata(tmp.p(format!("snaps/2026-01-0{day}T000000Z/{name}"))).unwrap().ino()
    };
    for name in ["roots", "own"] {
        assert_eq!(ino("1", name), ino("2", name), "{name}");
    }
    line(Way::Near, "sync", "--fake-super=src", &tmp, ("snaps/2026-01-02T000000Z", "back too")).ok();
    given_back(&tmp, "back too", "a snapshot");
}

fn rsync(args: &[&str], src: &Path, dst: &Path) -> String {
    let slash = |p: &Path| p.join("");
    let run = std::process::Command::new("rsync").args(args).args([slash(src), slash(dst)]).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8_lossy(&run.stdout).into_owned()
}

#[test]
fn rsync_reads_and_writes_the_same() {
    needs!(is_root() && has_tool("rsync"), "it needs root and rsync");
    let tmp = Tmp::new();
    plant(&tmp);
    // Of what has no content rsync keeps whole seconds.
    let mut touch = std::process::Command::new("find");
    touch.arg(tmp.p("s")).args(["-depth", "-exec", "touch", "-h", "-d", "@1700000000", "{}", "+"]);
    assert!(touch.status().unwrap().success());
    let (s, ours, theirs) = (tmp.p("s"), tmp.p("ours"), tmp.p("theirs"));
    line(Way::Near, "sync", "--fake-super", &tmp, ("s", "ours")).ok();
    rsync(&["-aHX", "-M--fake-super"], &s, &theirs);
    // Each finds nothing to do in what the other has written.
    assert_eq!(rsync(&["-aHXni", "--delete", "-M--fake-super"], &s, &ours), "");
    let told = line(Way::Near, "sync", "-n --delete --fake-super", &tmp, ("s", "theirs")).ok().out;
    assert!(told.starts_with("no differences"), "{told}");
    // Each gives back what the other has written.
    rsync(&["-aHX", "--fake-super", "-M--super"], &ours, &tmp.p("ours by rsync"));
    given_back(&tmp, "ours by rsync", "rsync gives back");
    line(Way::Near, "sync", "--fake-super=src", &tmp, ("theirs", "theirs by bcmr")).ok();
    given_back(&tmp, "theirs by bcmr", "bcmr gives back");
}

/// What another program wrote into the attribute is believed to the letter or not at all.
#[test]
fn attributes_that_are_none() {
    needs!(is_root() && has_tool("setpriv"), "giving owners needs root");
    for way in [Way::Near, Way::Far(Dir::Get)] {
        for (value, kind) in [
            ("100644 0,0 0:4294967295", "f"),
            ("", "f"),
            ("100644 0,0 0:0 and more", "f"),
            ("40755 0,0 0:0", "f"),
            ("100644 0,0 0:0", "d"),
            ("20644 1,3", "d"),
        ] {
            let tmp = Tmp::for_others();
            let (bad, shown) = match kind {
                "f" => (tmp.file("held/bad", "x"), "/bad'"),
                _ => (tmp.dir("held/bad"), "/bad'"),
            };
            tmp.file("held/good", "x");
            tmp.file("back/only there", "x");
            set(&bad, HELD, value.as_bytes());
            let ran =
                line(way, "sync", "--delete --max-delete=100% --fake-super=src", &tmp, ("held", "back"));
            let ran = ran.one_of(&[1, 8]).says("is not one of --fake-super").says(shown);
            assert!(
                tmp.p("back/good").exists() && !tmp.p("back/bad").exists(),
                "{way:?} {value}: {}",
                ran.err
            );
            assert!(tmp.p("back/only there").exists(), "{way:?}: what could not be read deletes nothing");
            // The twin: without the option it is an attribute like any other.
            line(way, "sync", "", &tmp, ("held", "plain")).ok();
            assert_eq!(get(&tmp.p("plain/bad"), HELD).as_deref(), Some(value), "{way:?}");
        }
    }
}

/// What a user put on a file does not become root's by way of a copy, and what is at the destination is made right.
#[test]
fn attributes_are_not_planted() {
    needs!(is_root() && has_tool("setpriv"), "giving owners needs root");
    for way in [Way::Near, Way::Far(Dir::Put)] {
        let tmp = Tmp::for_others();
        for name in ["a", "b", "dir/c"] {
            give(&tmp.file(format!("s/{name}"), name), NOBODY, NOBODY, 0o644);
            set(&tmp.p("s").join(name), HELD, b"104755 0,0 0:0");
            set(&tmp.p("s").join(name), "user.rsync.security.capability", b"all of them");
            set(&tmp.p("s").join(name), "user.rsync.%aacl", b"anything");
            set(&tmp.p("s").join(name), "user.own", b"stays");
        }
        line(way, "sync", "--fake-super", &tmp, ("s", "held")).ok();
        let of = |name: &str, attr: &str| get(&tmp.p("held").join(name), attr);
        let held = (way == Way::Near).then(|| format!("100644 0,0 {NOBODY}:{NOBODY}"));
        for name in ["a", "b", "dir/c"] {
            assert_eq!(of(name, HELD), held, "{way:?} {name}");
            assert_eq!(of(name, "user.rsync.security.capability"), None, "{way:?} {name}");
            assert_eq!(of(name, "user.rsync.%aacl"), None, "{way:?} {name}");
            assert_eq!(of(name, "user.own").as_deref(), Some("stays"), "{way:?} {name}");
        }
        // Another program has spoilt, or forged, what the destination has.
        set(&tmp.p("held/a"), HELD, b"no such thing");
        set(&tmp.p("held/b"), HELD, b"104755 0,0 0:0");
        set(&tmp.p("held/dir"), HELD, b"104755 0,0 0:0");
        set(&tmp.p("held/dir/c"), "user.rsync.security.capability", b"all of them");
        let told = line(way, "sync", "-n --fake-super", &tmp, ("s", "held")).ok().out;
        assert!(["a", "b", "c"].iter().all(|name| told.contains(name)), "{way:?}: {told}");
        line(way, "sync", "--fake-super", &tmp, ("s", "held")).ok();
        for name in ["a", "b", "dir/c"] {
            assert_eq!(of(name, HELD), held, "{way:?} {name}");
            assert_eq!(of(name, "user.rsync.security.capability"), None, "{way:?} {name}");
        }
        let told = line(way, "sync", "-n --fake-super", &tmp, ("s", "held")).ok().out;
        assert!(told.starts_with("no differences"), "{way:?}: {told}");
    }
}

#[test]
fn where_nothing_can_be_held() {
    needs!(is_root(), "mounting needs root");
    let tmp = Tmp::new();
    for n in 0..5 {
        give(&tmp.file(format!("s/{n}"), "x"), 5, 6, 0o644);
    }
    let ramfs = ["-t", "ramfs", "bcmr-test"].map(OsStr::new);
    let mount = match Mount::new(&ramfs, &tmp.p("m")) {
        Ok(mount) => mount,
        Err(why) => return skipped("where_nothing_can_be_held", &why),
    };
    let ran = line(Way::Near, "sync", "--fake-super", &tmp, ("s", "m/held")).code(1);
    let told = "5 entries lack their owner, mode or kind: the file system has no user attributes";
    assert_eq!(ran.err.matches("lack their owner").count(), 1, "once: {}", ran.err);
    ran.says(told);
    assert_eq!(names(&mount.path().join("held")).len(), 5);
}

/// An ACL, of `path`, as setfacl takes it.
fn set_acl(path: &Path, words: &[&str]) {
    let set = std::process::Command::new("setfacl").args(words).arg(path).status().unwrap();
    assert!(set.success(), "{words:?} {}", path.display());
}

const AACL: &str = "user.rsync.%aacl";
const DACL: &str = "user.rsync.%dacl";
const ACL: &str = "system.posix_acl_access";

fn bytes_of(path: &Path, attr: &str) -> Option<Vec<u8>> {
    let mut value = [0; 1024];
    let length = lgetxattr(path, attr, &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

/// ACLs of each kind that there is.
fn plant_acls(tmp: &Tmp) {
    let file = |name: &str, bits: u32, words: &[&str]| {
        give(&tmp.file(format!("s/{name}"), name), 0, 0, bits);
        set_acl(&tmp.p("s").join(name), words);
    };
    file("user", 0o644, &["-m", "u:77:rw"]);
    file("user and group", 0o4755, &["-m", "u:77:rw,u:3000000000:x,g:88:r,g:3:wx,m::r"]);
    file("mask", 0o644, &["-m", "m::r"]);
    file("kept out", 0o644, &["-m", "u:77:-"]);
    file("group kept out", 0o644, &["-m", "g:88:-"]);
    give(&tmp.p("s/user"), 1234, 5678, 0o664);
    give(&tmp.file("s/large", noise(9, 3 << 20)), 0, 0, 0o640);
    set_acl(&tmp.p("s/large"), &["-m", "g:88:r"]);
    mkfifo(&tmp.p("s/fifo"));
    set_acl(&tmp.p("s/fifo"), &["-m", "u:9:rw"]);
    tmp.file("s/dir/in it", "x");
    set_acl(&tmp.p("s/dir"), &["-m", "u:77:rwx,d:u:99:r,d:g:100:rx,d:m::-"]);
    chmod(&tmp.p("s/dir"), 0o2775);
    tmp.file("s/inherits/in it", "x");
    set_acl(&tmp.p("s/inherits"), &["-d", "-m", "o::-"]);
    tmp.file("s/none", "x");
}

/// ACLs are held and given back on every way, compared, brought up to date, and whom they keep out is kept out of what holds them.
#[test]
fn acls_are_held_near_and_far() {
    needs!(is_root() && has_tool("setfacl") && has_tool("setpriv"), "it needs root, setfacl and setpriv");
    let ways =
        [(Way::Near, Way::Near), (Way::Far(Dir::Put), Way::Far(Dir::Get)), (Way::Between, Way::Between)];
    for (n, (up, down)) in ways.into_iter().enumerate() {
        for (m, (verb, flags)) in [("sync", ""), ("copy", "--archive -T")].into_iter().enumerate() {
            // An ordinary run takes a half: each way, and each verb.
            if !in_slice(n + m + 1, 2) {
                continue;
            }
            let tmp = Tmp::for_others();
            plant_acls(&tmp);
            let what = format!("{up:?} {verb} {flags}");
            line(up, verb, &format!("{flags} --fake-super"), &tmp, ("s", "held")).ok();
            for (path, _) in tree(&tmp.p("held")) {
                let path = tmp.p("held").join(OsStr::from_bytes(&path));
                assert_eq!(bytes_of(&path, ACL), None, "{what}: {}", path.display());
            }
            let has = |name: &str, attr: &str| get(&tmp.p("held").join(name), attr).is_some();
            assert!(has("user", AACL) && has("fifo", AACL) && has("dir", AACL), "{what}");
            assert!(has("dir", DACL) && has("inherits", DACL) && !has("inherits", AACL), "{what}");
            assert!(!has("none", AACL) && !has("none", DACL), "{what}");
            // 77 would be one of the others, or of the group; 88 one of the others.
            assert_eq!(mode(&tmp.p("held/kept out")), 0o600, "{what}");
            assert_eq!(mode(&tmp.p("held/group kept out")) & 0o007, 0, "{what}");
            line(down, verb, &format!("{flags} --fake-super=src"), &tmp, ("held", "back")).ok();
            given_back(&tmp, "back", &what);
            if verb != "sync" {
                continue;
            }
            let again = line(up, verb, "-i --fake-super", &tmp, ("s", "held")).ok();
            assert_eq!(again.out, "", "{what}");
            // A day later.
            set_acl(&tmp.p("s/user"), &["-b"]);
            set_acl(&tmp.p("s/none"), &["-m", "u:5:r"]);
            set_acl(&tmp.p("s/dir"), &["-k"]);
            set_acl(&tmp.p("s/mask"), &["-m", "u:6:r"]);
            let told = line(up, verb, "-n --fake-super", &tmp, ("s", "held")).ok().out;
            for name in ["user", "none", "dir", "mask"] {
                assert!(told.contains(&format!("~ {name}")), "{what} {name}: {told}");
            }
            line(up, verb, "--fake-super", &tmp, ("s", "held")).ok();
            let told = line(up, verb, "-n --fake-super", &tmp, ("s", "held")).ok().out;
            assert!(told.starts_with("no differences"), "{what}: {told}");
            line(down, verb, "--fake-super=src", &tmp, ("held", "back")).ok();
            given_back(&tmp, "back", &what);
            // What holds some to what holds the same.
            line(Way::Near, verb, "--fake-super=both", &tmp, ("held", "held too")).ok();
            for name in ["none", "mask", "fifo", "dir", "inherits"] {
                for attr in [AACL, DACL] {
                    let [one, two] = ["held", "held too"].map(|at| bytes_of(&tmp.p(at).join(name), attr));
                    assert_eq!(one, two, "{what}: {name} {attr}");
                }
            }
        }
    }
}

/// rsync finds nothing to do in what holds ACLs, and gives them back; and so does bcmr in what rsync has written.
#[test]
fn rsync_holds_acls_in_the_same_form() {
    needs!(is_root() && has_tool("rsync") && has_tool("setfacl"), "it needs root, rsync and setfacl");
    let tmp = Tmp::new();
    plant_acls(&tmp);
    let mut touch = std::process::Command::new("find");
    touch.arg(tmp.p("s")).args(["-depth", "-exec", "touch", "-h", "-d", "@1700000000", "{}", "+"]);
    assert!(touch.status().unwrap().success());
    let (s, ours, theirs) = (tmp.p("s"), tmp.p("ours"), tmp.p("theirs"));
    line(Way::Near, "sync", "--fake-super", &tmp, ("s", "ours")).ok();
    rsync(&["-aHAX", "-M--fake-super"], &s, &theirs);
    for (path, _) in tree(&theirs) {
        let path = OsStr::from_bytes(&path);
        for attr in [AACL, DACL] {
            assert_eq!(
                bytes_of(&ours.join(path), attr),
                bytes_of(&theirs.join(path), attr),
                "{path:?} {attr}"
            );
        }
    }
    assert_eq!(rsync(&["-aHAXni", "--delete", "-M--fake-super"], &s, &ours), "");
    let told = line(Way::Near, "sync", "-n --delete --fake-super", &tmp, ("s", "theirs")).ok().out;
    assert!(told.starts_with("no differences"), "{told}");
    rsync(&["-aHAX", "--fake-super", "-M--super"], &ours, &tmp.p("ours by rsync"));
    given_back(&tmp, "ours by rsync", "rsync gives back");
    line(Way::Near, "sync", "--fake-super=src", &tmp, ("theirs", "theirs by bcmr")).ok();
    given_back(&tmp, "theirs by bcmr", "bcmr gives back");
}

/// What another program wrote is an ACL to the letter, or the entry is not copied; at DST it is a difference, and is made right.
#[test]
fn acls_that_are_none() {
    needs!(is_root() && has_tool("setpriv") && has_tool("setfacl"), "it needs root, setpriv and setfacl");
    let none: &[u8] = &[0x80, 0, 0, 0, 9, 0, 0, 0, 4, 0, 0, 0, 0x80, 0, 0, 0];
    for way in [Way::Near, Way::Far(Dir::Get)] {
        for (name, attr) in [("bad", AACL), ("dir", AACL), ("dir", DACL)] {
            let tmp = Tmp::for_others();
            tmp.file("held/bad", "x");
            tmp.file("held/dir/in it", "x");
            tmp.file("held/good", "x");
            tmp.file("back/only there", "x");
            set(&tmp.p("held").join(name), attr, none);
            let ran =
                line(way, "sync", "--delete --max-delete=100% --fake-super=src", &tmp, ("held", "back"));
            let ran = ran.one_of(&[1, 8]).says("is not one of --fake-super");
            assert!(
                tmp.p("back/good").exists() && !tmp.p("back").join(name).exists(),
                "{way:?}: {}",
                ran.err
            );
            assert!(tmp.p("back/only there").exists(), "{way:?}: what could not be read deletes nothing");
        }
    }
    for way in [Way::Near, Way::Far(Dir::Put)] {
        let tmp = Tmp::for_others();
        for name in ["s/f", "s/g"] {
            tmp.file(name, name);
        }
        set_acl(&tmp.p("s/f"), &["-m", "u:77:r"]);
        line(way, "sync", "--fake-super", &tmp, ("s", "held")).ok();
        let was = bytes_of(&tmp.p("held/f"), AACL);
        set(&tmp.p("held/f"), AACL, none);
        set(&tmp.p("held/g"), AACL, none);
        let told = line(way, "sync", "-n --fake-super", &tmp, ("s", "held")).ok().out;
        assert!(told.contains("~ f") && told.contains("~ g"), "{way:?}: {told}");
        line(way, "sync", "--fake-super", &tmp, ("s", "held")).ok();
        assert_eq!(
            (bytes_of(&tmp.p("held/f"), AACL), bytes_of(&tmp.p("held/g"), AACL)),
            (was, None),
            "{way:?}"
        );
    }
}

/// Paths, and what each of them holds.
type HeldBy = Vec<(Vec<u8>, Option<String>)>;

/// What holds, and what it holds: everything that an undoing is to give back.
fn held_tree(tmp: &Tmp) -> (Tree, HeldBy) {
    let mut found = tree(&tmp.p("held"));
    found.values_mut().for_each(|entry| entry.atime = (0, 0));
    let of = |path: &Vec<u8>| get(&tmp.p("held").join(OsStr::from_bytes(path)), HELD);
    let held = found.keys().map(|path| (path.clone(), of(path))).collect();
    (found, held)
}

/// With what is replaced and deleted kept, undoing gives back all that was held, devices and owners of directories too.
#[test]
fn what_was_held_is_kept_and_undone() {
    needs!(
        is_root() && has_tool("setpriv"),
        "giving owners and acting as another user need root and setpriv"
    );
    let rows = [
        (Way::Near, "--backup-dir=OLD"),
        (Way::Near, "--trash"),
        (Way::Far(Dir::Put), "--backup-dir=OLD"),
        (Way::Far(Dir::Get), "--backup-dir=OLD"),
        (Way::Between, "--backup-dir=OLD"),
    ];
    // An ordinary run leaves out the first: the second is near too, and the others have the directory.
    for (way, old) in rows.into_iter().skip(usize::from(!all_cases())) {
        let tmp = Tmp::for_others();
        plant(&tmp);
        let what = format!("{way:?} {old}");
        let old = old.replace("OLD", &tmp.p("old").display().to_string());
        let flags = format!("--delete --max-delete=100% --fake-super {old}");
        let sync = |flags: &str| match way {
            // Who may read all of it is root.
            Way::Far(Dir::Get) => {
                let far = Far::pipe();
                let line = far.bcmr("sync").args(flags.split_whitespace());
                Dir::Get.ends(line, &far, &tmp.p("s"), &tmp.p("held")).run()
            }
            _ => line(way, "sync", flags, &tmp, ("s", "held")),
        };
        sync("--fake-super").ok();
        let was = held_tree(&tmp);
        // Each kind gives way to another one, directories have another owner and mode, and something is new.
        give(&tmp.p("s/large"), 78, 89, 0o2755);
        lchown(tmp.p("s/link"), Some(13), Some(35)).unwrap();
        give(&tmp.p("s/sub"), 1, 2, 0o3770);
        give(&tmp.p("s/many"), 0, 0, 0o700);
        give(&tmp.p("s"), 0, 0, 0o1755);
        for gone in ["fifo too", "block", "plain", "socket", "users"] {
            fs::remove_file(tmp.p("s").join(gone)).unwrap();
        }
        tmp.file("s/block", "a file now");
        mkfifo(&tmp.p("s/plain"));
        symlink("elsewhere", tmp.p("s/socket")).unwrap();
        give(&tmp.file("s/users/in it", "x"), 3, 4, 0o6711);
        mknod(&tmp.p("s/new"), FileType::CharacterDevice, 0o600, makedev(1, 5));
        fs::remove_dir_all(tmp.p("s/sub/deep")).unwrap();
        sync(&flags).ok();
        assert_ne!(held_tree(&tmp).1, was.1, "{what}");
        line(Way::Near, "sync", "--fake-super=src", &tmp, ("held", "back")).ok();
        given_back(&tmp, "back", &what);
        // Nothing is left to do, so there is nothing to keep either.
        let receipts = if old.starts_with("--trash") { tmp.p("state/bcmr/undo") } else { tmp.p("old") };
        sync(&flags).ok();
        let runs = names(&receipts);
        assert_eq!(runs.len(), 1, "{what}: {runs:?}");
        let receipt = receipts.join(&runs[0]).join("receipt");
        // What has changed since stays.
        tmp.file("held/large", "another one");
        bcmr(["undo"]).args([&receipt]).run().code(8).says("held/large");
        fs::remove_file(tmp.p("held/large")).unwrap();
        bcmr(["undo"]).args([&receipt]).run().ok();
        let now = held_tree(&tmp);
        assert_eq!(now.1, was.1, "{what}");
        let told = differences(&was.0, &now.0, EVERYTHING);
        assert!(told.is_empty(), "{what}:\n{}", told.join("\n"));
    }
}

#[test]
fn what_does_not_go_with_it() {
    let tmp = Tmp::new();
    tmp.file("s/f", "x");
    for (verb, flags, says) in
        [("copy", "-r", "they are not kept"), ("copy", "-p --no-preserve=ownership -r", "they are not kept")]
    {
        line(Way::Near, verb, &format!("{flags} --fake-super"), &tmp, ("s", "d")).code(2).says(says);
    }
    line(Way::Near, "copy", "--archive -L --fake-super=src", &tmp, ("s", "d")).code(2).says("-L");
    assert!(!tmp.p("d").exists());
}
