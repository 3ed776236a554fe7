//! What a typed name stands for: one with a colon that is there on this machine, a host without a path, the root of a
//! file system whose destination is mounted below it.

use super::common::remote::*;
use super::common::*;
use std::path::Path;

/// A name with a colon that is there is a name; every command takes it, and `-v` says so where it could be an address.
#[test]
fn a_name_with_a_colon_is_a_name() {
    let tmp = Tmp::new();
    let log = "2026-01-01T12:30:00.log";
    let begin = || {
        tmp.file(log, "line\n");
        tmp.file("h:d/inner", "inner\n");
    };
    for verb in ["du", "ls", "hash", "stat"] {
        begin();
        let quiet = bcmr([verb, log]).cwd(tmp.path()).run().ok();
        assert!(quiet.out.contains(log) && quiet.err.is_empty(), "{verb}: {quiet:?}");
        bcmr([verb, "-v", log]).cwd(tmp.path()).run().ok().says("is there on this machine");
    }
    let told =
        bcmr(["copy", "-v", log, "copied"]).cwd(tmp.path()).run().ok().says("is there on this machine");
    assert!(told.err.contains(log), "{told:?}");
    assert_eq!(std::fs::read(tmp.p("copied")).unwrap(), b"line\n");
    bcmr(["copy", "-r", "h:d", "copy of h"]).cwd(tmp.path()).run().ok();
    assert!(tmp.p("copy of h/inner").exists());
    bcmr(["copy", "-v", "copied", "h:d"]).cwd(tmp.path()).run().ok().says("'h:d' is there on this machine");
    assert!(tmp.p("h:d/copied").exists());
    bcmr(["check", "h:d", "h:d"]).cwd(tmp.path()).run().code(2);
    bcmr(["check", log, "copied"]).cwd(tmp.path()).run().one_of(&[0, 1]);
    // A name with a colon may be new, too.
    bcmr(["move", log, "./new:name"]).cwd(tmp.path()).run().ok();
    bcmr(["move", "new:name", "./h:d"]).cwd(tmp.path()).run().ok();
    assert!(tmp.p("h:d/new:name").exists());
    bcmr(["sessions", "h:d"]).cwd(tmp.path()).run().ok();
    bcmr(["remove", "-r", "h:d"]).cwd(tmp.path()).run().ok();
    assert!(!tmp.p("h:d").exists());
    bcmr(["remove", "./no:such"]).cwd(tmp.path()).run().code(1).says("No such file");
    // With nothing of that name here it is an address, as ever: no server listens there.
    let far = bcmr(["copy", "--ssh=false", "h:d", "x"]).cwd(tmp.path()).run();
    assert!(far.code != 0 && !far.err.contains("No such file"), "{far:?}");
}

/// `host:` and `host:~` are the home directory, and what is in it is copied.
#[test]
fn a_host_alone_is_its_home_directory() {
    let far = Far::pipe();
    std::fs::create_dir(far.home().join("sub")).unwrap();
    std::fs::write(far.home().join("sub/a"), "A").unwrap();
    let tmp = Tmp::new();
    for (n, typed) in ["", ".", "~", "~/"].into_iter().enumerate() {
        let into = tmp.dir(format!("into {n}"));
        far.bcmr("copy").args(["-r", "-e", "run"]).args([&far.at(typed), into.as_os_str()]).run().ok();
        assert_eq!(std::fs::read(into.join("sub/a")).unwrap(), b"A", "{typed:?}");
        far.bcmr("copy")
            .args(["-rT", "-e", "run"])
            .args([&far.at(typed), tmp.p(format!("as {n}")).as_os_str()])
            .run()
            .ok();
        assert_eq!(std::fs::read(tmp.p(format!("as {n}/sub/a"))).unwrap(), b"A", "{typed:?}");
        for verb in ["ls", "du", "stat"] {
            far.bcmr(verb).args([far.at(typed)]).run().ok();
        }
    }
}

/// With `-x` nothing is read from the file system of the destination, so it may be mounted below the source.
#[test]
fn a_disk_mounted_below_the_source() {
    needs!(is_root(), "mounting needs root");
    let tmp = Tmp::new();
    tmp.file("top/a", "A");
    tmp.file("top/sub/b", "B");
    let at = tmp.dir("top/mnt/disk");
    let mount = match Mount::tmpfs("size=8m", &at) {
        Ok(mount) => mount,
        Err(why) => return skipped("tmpfs", &why),
    };
    let (top, to) = (tmp.p("top"), at.join("backup"));
    bcmr(["copy", "-r", "-T"]).args([&top, &to]).run().code(8).says("is inside it");
    bcmr(["copy", "-rx", "-T"]).args([&top, &to]).run().ok();
    let mut found = names(&to);
    found.sort();
    assert_eq!(found, ["a", "mnt", "sub"]);
    // The mount point is there, and nothing of what is mounted on it.
    assert_eq!(names(&to.join("mnt/disk")), [""; 0]);
    bcmr(["check", "-rx", "-T"]).args([&top, &to]).run().ok();
    let far = Far::pipe();
    for dir in BOTH {
        let again = at.join(format!("{dir:?}"));
        dir.copy(&far, "-rx -T", &top, &again).run().ok();
        assert_eq!(std::fs::read(again.join("sub/b")).unwrap(), b"B");
    }
    drop(mount);
    // The same directory under two names of one file system is not another file system.
    let bound = tmp.dir("top/mnt/bound");
    match Mount::bind(Path::new(&tmp.p("top/sub")), &bound) {
        Ok(_mount) => {
            bcmr(["copy", "-rx", "-T"]).args([&top, &bound.join("x")]).run().code(8);
        }
        Err(why) => skipped("bind mount", &why),
    }
}

#[test]
fn other_schemes_are_no_hosts() {
    for (typed, hint) in [
        ("scp://host/x", "ssh://host/x"),
        ("sftp://me@host/x", "ssh://me@host/x"),
        ("rsync://host/module", "host:path"),
        ("s3://bucket/key", "host:path"),
        ("file:///x", "its path is enough"),
    ] {
        for line in [["copy", typed, "here"], ["copy", "here", typed], ["ls", "--", typed]] {
            bcmr(line).run().code(2).says("is not known here").says(hint);
        }
    }
}

/// `host:` means the root of a server that is confined to one, wherever it stands.
#[test]
fn no_path_is_the_root_of_a_confined_server() {
    let tmp = Tmp::new();
    let (file, root) = (tmp.file("s/f", "content"), tmp.dir("root"));
    let far = Far::pipe().serving(&format!("--root {}", root.display()));
    far.bcmr("copy").args([file.as_os_str(), &far.at("")]).run().ok();
    assert_eq!(std::fs::read(root.join("f")).unwrap(), b"content");
    far.bcmr("copy").args(["-r".as_ref(), tmp.p("s").as_os_str(), &far.at("")]).run().ok();
    assert_eq!(std::fs::read(root.join("s/f")).unwrap(), b"content");
    for verb in ["ls", "du"] {
        far.bcmr(verb).args([far.at("")]).run().ok();
    }
    far.bcmr("copy").args(["-rT".as_ref(), far.at("").as_os_str(), tmp.p("back").as_os_str()]).run().ok();
    assert_eq!(std::fs::read(tmp.p("back/s/f")).unwrap(), b"content");
}
