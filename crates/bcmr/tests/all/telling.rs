//! What is told of trouble: whose path it is, what it is about, how often, and beside what.

use super::common::remote::*;
use super::common::*;
use std::ffi::OsStr;
use std::path::Path;

/// A full disk is told of by name three times, and then counted; each event is there for programs, and for `-v`.
#[test]
fn a_full_disk_is_told_of_three_times() {
    needs!(is_root(), "mounting needs root");
    let tmp = Tmp::new();
    for n in 0..40 {
        tmp.file(format!("src/{n}"), noise(n, 100_000));
    }
    let at = tmp.dir("small");
    let _mount = match Mount::tmpfs("size=1m", &at) {
        Ok(mount) => mount,
        Err(why) => return skipped("tmpfs", &why),
    };
    let lines = |ran: &Ran| ran.err.lines().filter(|l| l.contains("No space left")).count();
    let copy = |flags: &str| {
        bcmr(["remove", "-rf"]).args([at.join("dst")]).run().ok();
        bcmr(["copy", "-r"]).args(flags.split_whitespace()).args([tmp.p("src"), at.join("dst")]).run().code(6)
    };
    let plain = copy("");
    assert_eq!(lines(&plain), 3, "{plain:?}");
    assert_eq!(plain.err.matches(" more, as there was no space").count(), 1, "{plain:?}");
    let all = copy("-v");
    assert!(lines(&all) > 20 && !all.err.contains(" more, as"), "{all:?}");
    let json = copy("--json");
    assert!(json.out.lines().filter(|l| l.contains("\"no-space\"") && l.contains("\"failed\"")).count() > 20);
}

/// A directory that may not be read is no reason to tell nothing of the others, and is told by the system's reason.
#[test]
fn du_and_ls_beside_what_may_not_be_read() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    tmp.file("d/a", noise(1, 5000));
    tmp.file("d/shut/b", "hidden");
    tmp.file("d/z/c", "seen");
    chmod(&tmp.p("d"), 0o755);
    for mode in [0o700, 0o711] {
        chmod(&tmp.p("d/shut"), mode);
        let far = Far::pipe();
        chmod(&far.home(), 0o777);
        let here = bcmr_as(NOBODY, &tmp, ["du".as_ref(), tmp.p("d").as_os_str()]);
        let there = far.lead(bcmr_as(NOBODY, &tmp, ["du"])).args([far.at(tmp.p("d"))]);
        for du in [here, there] {
            let du = du.run().code(1).says("shut': Permission denied");
            assert!(du.out.contains("2 files"), "{du:?}");
        }
        let ls = bcmr_as(NOBODY, &tmp, ["ls".as_ref(), tmp.p("d/shut").as_os_str()]).run().code(1);
        ls.says("Permission denied");
    }
}

#[test]
fn an_owner_that_is_not_kept_is_told_without_a_placeholder() {
    needs!(is_root() && has_tool("setpriv"), "acting as another user needs root and setpriv");
    let tmp = Tmp::for_others();
    tmp.file("s/a", "A");
    chmod(&tmp.p("s"), 0o755);
    chmod(&tmp.p("s/a"), 0o644);
    let ran = bcmr_as(NOBODY, &tmp, ["copy", "--archive"])
        .args([tmp.p("s"), tmp.p("d")])
        .run()
        .code(1)
        .says("entries whose owner was not kept: 2;");
    assert!(!ran.err.contains("'destination'"), "{ran:?}");
}

/// Whatever goes wrong over there: no path of that machine is shown without its host.
#[test]
fn paths_of_another_machine_have_its_host() {
    let far = Far::pipe();
    let tmp = Tmp::new();
    tmp.file("a", "A");
    tmp.file("tree/b", "B");
    std::fs::write(far.home().join("file"), "x").unwrap();
    let home = far.home();
    let here = |name: &str| tmp.p(name).into_os_string();
    let there = |name: &str| far.at(home.join(name));
    for words in [
        vec![here("a"), there("missing/x")],
        vec![here("a"), here("tree"), there("file")],
        vec!["-r".into(), here("tree"), there("file")],
        vec!["-t".into(), there("missing"), here("a")],
        vec!["-t".into(), there("file"), here("a")],
        vec![there("missing"), here("x")],
        vec![there("file/below"), here("x")],
        vec!["-r".into(), there("missing"), there("file"), here("tree")],
        vec!["-n".into(), there("missing"), here("x")],
        vec!["--files-from".into(), here("a"), there("missing"), here("x")],
        vec!["--files-from".into(), here("a"), there("file"), here("x")],
    ] {
        let ran = far.bcmr("copy").args(&words).run();
        assert_ne!(ran.code, 0, "{words:?}: {ran:?}");
        let bare = ran.err.replace(&format!("there:{}", home.display()), "");
        assert!(!bare.contains(home.to_str().unwrap()), "{words:?}: {}", ran.err);
    }
    for verb in ["ls", "stat", "du", "hash"] {
        let ran = far.bcmr(verb).args([there("missing")]).run().code(1);
        assert!(ran.err.contains(&format!("'there:{}/missing'", home.display())), "{ran:?}");
    }
}

/// `doctor` says what a copy then does: its status is whether a copy goes from bcmr to bcmr.
#[test]
fn doctor_and_copy_agree() {
    let tmp = Tmp::new();
    let file = tmp.file("a", "A");
    let empty = tmp.dir("nothing in it");
    let bin = tmp.dir("bin");
    std::os::unix::fs::symlink(BCMR, bin.join("bcmr")).unwrap();
    let path = |own: &Path| format!("{}:/usr/bin:/bin", own.display());
    // Installed aside: one that is no bcmr, one that is, and none.
    let other = "#!/bin/sh\necho 'bcmr 0.0.0: no such command' >&2\nexit 2\n";
    let own = format!("#!/bin/sh\nexec {BCMR} \"$@\"\n");
    for (name, in_path, aside, program) in [
        ("in the path", &bin, None, None),
        ("aside", &empty, Some(own.as_str()), None),
        ("aside, of another kind", &empty, Some(other), None),
        ("nowhere", &empty, None, None),
        ("named and there", &empty, None, Some(BCMR)),
        ("named and not there", &empty, Some(own.as_str()), Some("/opt/no-such/bcmr")),
    ] {
        let mut far = Far::pipe().program(Path::new(program.unwrap_or("bcmr"))).with("PATH", path(in_path));
        if program.is_none() {
            far = far.without_program();
        }
        if let Some(text) = aside {
            let at = far.home().join(".cargo/bin");
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join("bcmr"), text).unwrap();
            chmod(&at.join("bcmr"), 0o755);
        }
        let doctor = far.bcmr("doctor").args(["there"]).run().one_of(&[0, 1]);
        // What scp could not do is an error without a bcmr there, so nothing else may copy.
        let copy = Dir::Put.copy(&far, "-V", &file, &far.home().join("copied")).run();
        assert_eq!(doctor.code == 0, copy.code == 0, "{name}: {doctor:?}\n{copy:?}");
    }
}

/// Names where they are known, times as clocks here show them, and what links lead to, also of another machine.
#[test]
fn a_long_listing() {
    needs!(is_root(), "files of root are needed");
    let tmp = Tmp::new();
    let far = Far::pipe();
    for dir in [tmp.path().join("d"), far.home().join("d")] {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("a"), "A").unwrap();
        std::os::unix::fs::symlink("a\nb", dir.join("l")).unwrap();
    }
    let line = |ran: &Ran, end: &str| ran.out.lines().find(|l| l.ends_with(end)).map(str::to_owned);
    let ran = bcmr(["ls", "-l", "d"]).cwd(tmp.path()).run().ok();
    assert!(line(&ran, "  a").is_some_and(|l| l.contains(" root ")), "{ran:?}");
    assert!(ran.out.contains("  l -> a\nb"), "{ran:?}");
    let ran = far.bcmr("ls").args([OsStr::new("-l"), &far.at("d")]).run().ok();
    assert!(line(&ran, "  a").is_some_and(|l| l.contains(" 0 ")), "{ran:?}");
    assert!(ran.out.contains("  l -> a\nb"), "{ran:?}");
    for ran in [
        bcmr(["ls", "--json", "d"]).cwd(tmp.path()).run().ok(),
        far.bcmr("ls").args([OsStr::new("--json"), &far.at("d")]).run().ok(),
        far.bcmr("stat").args([OsStr::new("--json"), &far.at("d/l")]).run().ok(),
    ] {
        assert_eq!(ran.out.matches(r#""link":"a\nb""#).count(), 1, "{ran:?}");
    }
}

/// Where the directory of a name is none, it is told what cannot be done there; nothing is there that could be opened.
#[test]
fn what_cannot_be_made_is_told_as_that() {
    let tmp = Tmp::new();
    tmp.file("s/f", "F");
    for (line, told) in [
        ("copy s/f no/x", "cannot create 'no/x': No such file"),
        ("copy -C s/f no/x", "cannot create 'no/x': No such file"),
        ("copy s/f s/f/x", "cannot create 's/f/x': Not a directory"),
        ("copy -r s no/x/", "cannot create 'no/x/': No such file"),
        ("copy -n s/f no/x", "cannot create 'no/x': No such file"),
        ("copy - no/x", "cannot create 'no/x': No such file"),
        ("move s/f no/x", "cannot create 'no/x': No such file"),
        ("sync s no/x", "cannot create 'no/x': No such file"),
        ("sync s x --backup-dir no/b", "cannot create 'no/b': No such file"),
        ("copy s/f x --manifest no/m", "cannot write manifest 'no/m': No such file"),
        ("mkdir no/x", "cannot make directory 'no/x': No such file"),
        ("copy no/x y", "cannot open 'no/x': No such file"),
        ("check s no/x", "cannot open 'no/x': No such file"),
    ] {
        let ran = bcmr(line.split(' ')).cwd(tmp.path()).run();
        let ran = if line.starts_with("check") { ran.code(2) } else { ran.code(1) };
        ran.says(&format!("bcmr: {told}"));
    }
    assert_eq!(names(tmp.path()), ["s"]);
    let far = Far::pipe();
    for (verb, told) in [("copy", "cannot create"), ("check", "cannot open")] {
        let ran = far.bcmr(verb).args([tmp.p("s/f").into(), far.at(tmp.p("no/x"))]).run();
        assert!(ran.code > 0 && ran.err.contains(told), "{ran:?}");
    }
}
