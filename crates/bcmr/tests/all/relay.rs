//! Copies between two other machines, through this one: the same as a copy from one place to another on one machine.

use crate::common::remote::*;
use crate::common::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A path on one of two machines, which are this one behind pipes.
fn on(host: &str, path: &Path) -> String {
    format!("{host}:{}", path.display())
}

fn relayed(far: &Far, verb: &str, flags: &str, tmp: &Tmp, ends: (&str, &str)) -> Line {
    let line = far.bcmr(verb).args(flags.split_whitespace());
    line.args([on("one", &tmp.p(ends.0)), on("two", &tmp.p(ends.1))])
}

#[track_caller]
fn alike(tmp: &Tmp, times: bool, what: &str) {
    assert_same(&tmp.p("s"), &tmp.p("d"), Exact { times, ..EVERYTHING });
    if let Some(text) = rsync_would(&tmp.p("s"), &tmp.p("d")) {
        assert!(text.is_empty(), "{what}: rsync would: {text}");
    }
}

fn plant(tmp: &Tmp) {
    for name in ["s/a", "s/mode", "s/sub/b", "s/sub/deep/c"] {
        tmp.file(name, noise(1, 5000));
    }
    for n in 0..300 {
        tmp.file(format!("s/many/{n}"), n.to_string());
    }
    tmp.file("s/large", noise(2, 9 << 20));
    chmod(&tmp.p("s/mode"), 0o604);
    fs::hard_link(tmp.p("s/a"), tmp.p("s/sub/a")).unwrap();
    symlink("nowhere", tmp.p("s/link")).unwrap();
    mkfifo(&tmp.p("s/fifo"));
}

/// `-V` holds all of a file that was added to against the source, whichever way it comes.
#[test]
fn what_is_added_to_is_verified_on_every_way() {
    let far = Far::pipe();
    for bytes in [15_000, 4 << 20, (9 << 20) + 5] {
        for flags in ["-a", "--append=size"] {
            for is_wrong in [false, true] {
                let tmp = Tmp::new();
                let content = noise(3, bytes);
                tmp.file("s", &content);
                let mut there = content[..bytes / 3 * 2].to_vec();
                there[9] ^= u8::from(is_wrong);
                let (here, on) =
                    (|name: &str| tmp.p(name).display().to_string(), |host, name| on(host, &tmp.p(name)));
                for ends in [
                    [here("s"), on("two", "d")],
                    [on("one", "s"), here("d")],
                    [on("one", "s"), on("two", "d")],
                ] {
                    tmp.file("d", &there);
                    let about = format!("{bytes} {flags} {ends:?} wrong: {is_wrong}");
                    let ran = far.bcmr("copy").args(format!("{flags} -V").split(' ')).args(&ends).run();
                    let want = match (is_wrong, flags) {
                        (false, _) => 0,
                        (true, "-a") => 8,
                        (true, _) => 4,
                    };
                    assert_eq!(ran.code, want, "{about}: {ran:?}");
                    assert!(is_wrong || fs::read(tmp.p("d")).unwrap() == content, "{about}");
                }
            }
        }
    }
}

#[test]
fn a_mirror_of_everything_and_the_next_day() {
    for flags in ["", "--checksum --compress=lz4", "-V --bwlimit=1G"] {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        plant(&tmp);
        relayed(&far, "sync", flags, &tmp, ("s", "d")).run().ok();
        alike(&tmp, false, flags);
        for name in ["s/many/7", "s/large"] {
            fs::remove_file(tmp.p(name)).unwrap();
        }
        fs::remove_dir_all(tmp.p("s/sub/deep")).unwrap();
        chmod(&tmp.p("s/mode"), 0o600);
        tmp.file("d/only there", "x");
        let would = relayed(&far, "sync", "-n -i --delete", &tmp, ("s", "d")).run().ok().out;
        assert!(would.contains("*deleting   large") && would.contains(".f...p..... mode"), "{would}");
        relayed(&far, "sync", &format!("{flags} --delete"), &tmp, ("s", "d")).run().ok();
        alike(&tmp, false, flags);
        assert_no_litter(&tmp.p("d"));
    }
}

#[test]
fn copies_land_where_they_would_at_home() {
    for (flags, target, lands) in [
        ("--archive -T", "d", "d"),
        ("--archive", "there", "there/s"),
        ("-rpP --preserve=all -C", "new", "new"),
        ("--archive -V --sync", "new/", "new"),
    ] {
        let (far, tmp) = (Far::pipe(), Tmp::new());
        plant(&tmp);
        tmp.dir("there");
        let (flags, what) = (format!("{flags} --json"), format!("{flags} {target}"));
        let ran = relayed(&far, "copy", &flags, &tmp, ("s", target)).run();
        // A FIFO is left out with a warning without --archive.
        let ran = if flags.contains("archive") { ran.ok() } else { ran.one_of(&[0, 1]) };
        let whole = ran.out.lines().last().is_some_and(|line| line.contains("\"failed\":0"));
        assert!(whole || !flags.contains("archive"), "{what}: {}", ran.err);
        assert_eq!(fs::read(tmp.p(lands).join("large")).unwrap(), noise(2, 9 << 20), "{what}");
        assert_eq!(fs::read(tmp.p(lands).join("sub/b")).unwrap(), noise(1, 5000), "{what}");
    }
}

#[test]
fn one_file_and_several() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    for name in ["s/a", "s/b"] {
        tmp.file(name, name);
    }
    tmp.dir("d");
    relayed(&far, "copy", "", &tmp, ("s/a", "d/other")).run().ok();
    assert_eq!(fs::read_to_string(tmp.p("d/other")).unwrap(), "s/a");
    let sources = [on("one", &tmp.p("s/a")), on("one", &tmp.p("s/b"))];
    far.bcmr("copy").args(sources).args([on("two", &tmp.p("d"))]).run().ok();
    assert_eq!(names(&tmp.p("d")), ["a", "b", "other"]);
    // What is asked, is asked here.
    tmp.file("s/a", "new");
    relayed(&far, "copy", "-i", &tmp, ("s/a", "d/a")).input("n\n").run().ok();
    assert_eq!(fs::read_to_string(tmp.p("d/a")).unwrap(), "s/a");
    relayed(&far, "copy", "-i", &tmp, ("s/a", "d/a")).input("y\n").run().ok();
    assert_eq!(fs::read_to_string(tmp.p("d/a")).unwrap(), "new");
}

#[test]
fn what_fails_is_told_with_its_machine_and_nothing_hangs() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    tmp.file("s/a", "A");
    relayed(&far, "copy", "-r", &tmp, ("absent", "d")).run().code(1).says("one:");
    relayed(&far, "copy", "", &tmp, ("s", "d")).run().code(1).says("-r");
    relayed(&far, "copy", "", &tmp, ("s/a", "no/such/dir/a")).run().code(1).says("two:");
    // An earlier answer may have put a link there.
    tmp.file("kept", "kept");
    tmp.dir("in");
    for (link, target, why) in [
        ("to-file", "kept", "it is a symbolic link, and"),
        ("dangling", "nowhere", "it is a symbolic link, and"),
        ("to-dir", "in", "it is a symbolic link to a directory"),
    ] {
        symlink(target, tmp.p(link)).unwrap();
        let ran = relayed(&far, "copy", "", &tmp, ("s/a", link)).run().code(8).says("follow-destination");
        ran.says(why);
    }
    assert!(fs::read_to_string(tmp.p("kept")).unwrap() == "kept" && !tmp.p("nowhere").exists());
    assert!(names(&tmp.p("in")).is_empty());
    relayed(&far, "copy", "--follow-destination", &tmp, ("s/a", "to-file")).run().ok();
    assert_eq!(fs::read_to_string(tmp.p("kept")).unwrap(), "A");
    let far = far.serving("--read-only");
    relayed(&far, "copy", "", &tmp, ("s/a", "e")).run().code(8);
    assert!(!tmp.p("e").exists());
    for flag in ["--direct", "--parallel=2", "--manifest=m", "--files-from=l"] {
        relayed(&far, "copy", flag, &tmp, ("s", "d")).run().code(2).says("between two other machines");
    }
}

/// The bcmr on the source's machine reaches the destination as its own configuration says; what it says, and how it ends, is
/// said here.
#[test]
fn the_source_sends_by_itself() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    plant(&tmp);
    let there =
        tmp.file("there", format!("#!/bin/sh\necho met >> {}\nexec {BCMR} \"$@\"\n", tmp.p("met").display()));
    chmod(&there, 0o755);
    let ssh = format!("{}/tests/all/common/pipe-ssh", env!("CARGO_MANIFEST_DIR"));
    fs::create_dir_all(far.home().join(".config/bcmr")).unwrap();
    let config = format!("ssh = {ssh:?}\nprogram = {there:?}\n");
    fs::write(far.home().join(".config/bcmr/config.toml"), config).unwrap();
    let via = |verb: &str, flags: &str, ends: (&str, &str)| {
        relayed(&far, verb, &format!("--via-source {flags}"), &tmp, ends).run()
    };
    let told = via("sync", "-V -v", ("s", "d")).ok();
    assert!(told.out.contains("two:") && told.out.contains("sub/deep/c"), "{}", told.out);
    alike(&tmp, false, "sync");
    let events = via("copy", "--archive --json", ("s", "a b;c'd")).ok().out;
    assert!(events.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{events}");
    assert_eq!(fs::read(tmp.p("a b;c'd/large")).unwrap(), noise(2, 9 << 20));
    let met = fs::read_to_string(tmp.p("met")).unwrap();
    assert_eq!(met.lines().count(), 2, "what was sent went another way");
    via("copy", "", ("absent", "e")).code(1).says("absent");
    via("copy", "", ("s", "e")).code(1).says("-r");
    via("move", "", ("s", "m")).ok();
    assert!(!tmp.p("s").exists() && tmp.p("m/sub/deep/c").exists());
    // What cannot be, is said before anything is done.
    let globs = format!("--exclude-from={}", tmp.file("x", "*.o").display());
    for flags in [&globs, "-i", "--report=x"] {
        via("copy", flags, ("m", "n")).code(2).says("about this machine");
    }
    far.bcmr("copy")
        .args(["--via-source", "-r"])
        .args([tmp.p("m"), tmp.p("n")])
        .run()
        .code(2)
        .says("another machine");
    let line = far.bcmr("copy").args(["--via-source", "-r"]).args([tmp.p("m").into(), far.at("x")]);
    line.run().code(2).says("between two other machines");
    // One that is too old, as far as it goes.
    let old = tmp.file("old", "#!/bin/sh\necho 'unrecognized subcommand' >&2\nexit 2\n");
    chmod(&old, 0o755);
    let far = far.program(&old);
    relayed(&far, "copy", "--via-source -r", &tmp, ("m", "n")).run().code(1).says("unrecognized subcommand");
    assert!(!tmp.p("n").exists());
}

/// What a login there prints last need not end its line, and one that is killed before it begins is a lost connection.
#[test]
fn the_source_is_heard_behind_what_its_login_prints() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    tmp.file("s/a", "A");
    fs::create_dir_all(far.home().join(".config/bcmr")).unwrap();
    let config = format!("ssh = {:?}\nprogram = {BCMR:?}\n", script("pipe-ssh"));
    fs::write(far.home().join(".config/bcmr/config.toml"), config).unwrap();
    let answers = |text: &str| {
        let program = tmp.file("there", format!("#!/bin/sh\n{text}\n"));
        chmod(&program, 0o755);
        program
    };
    let via = |far: &Far, name| relayed(far, "copy", "--via-source", &tmp, ("s/a", name)).run();
    let far = far.program(&answers(&format!("printf 'one\\nwelcome> '; exec {BCMR} \"$@\"")));
    via(&far, "d").ok();
    assert_eq!(fs::read_to_string(tmp.p("d")).unwrap(), "A");
    let much = format!("head -c 65537 /dev/zero | tr '\\0' x; exec {BCMR} \"$@\"");
    for (text, code, told) in [
        (much.as_str(), 1, "--via-source"),
        ("kill -KILL $$", 7, "cannot talk to 'one'"),
        ("exit 137", 7, "cannot talk to 'one'"),
        ("exit 0", 1, "it does not know --via-source"),
    ] {
        answers(text);
        via(&far, "e").code(code).says(told);
    }
}

/// Where a shell finds no bcmr, each of the two machines gets what it lacks itself.
#[test]
fn a_bcmr_is_looked_for_on_the_machine_that_lacks_it() {
    let tmp = Tmp::new();
    tmp.file("s", "A");
    tmp.dir("bin");
    symlink(BCMR, tmp.p("bin/bcmr")).unwrap();
    let ssh = tmp.file(
        "ssh",
        format!(
            "#!/bin/sh
             while [ \"$1\" != -- ]; do shift; done
             export HOME='{top}'/$2 PATH=/usr/bin:/bin
             export XDG_RUNTIME_DIR=\"$HOME/run\" XDG_CACHE_HOME=\"$HOME/.cache\" XDG_CONFIG_HOME=\"$HOME\"
             if [ -e \"$HOME/has\" ]; then PATH='{top}/bin':$PATH; fi
             exec sh -c \"$3\"",
            top = tmp.path().display()
        ),
    );
    chmod(&ssh, 0o755);
    let far = Far::pipe().without_program().over(&ssh);
    let place = |lacking: &[&str]| {
        for host in ["one", "two"] {
            if tmp.p(host).exists() {
                fs::remove_dir_all(tmp.p(host)).unwrap();
            }
            tmp.dir(format!("{host}/run"));
            chmod(&tmp.p(host).join("run"), 0o700);
            if !lacking.contains(&host) {
                tmp.file(format!("{host}/has"), "");
            }
        }
    };
    let is_put = |host: &str| tmp.p(host).join(".cache/bcmr/bin").exists();
    for lacking in [&["one"][..], &["two"], &["one", "two"]] {
        place(lacking);
        for host in lacking {
            tmp.dir(format!("{host}/.local/bin"));
            symlink(BCMR, tmp.p(host).join(".local/bin/bcmr")).unwrap();
        }
        let ran = relayed(&far, "copy", "-v", &tmp, ("s", "d")).run().ok();
        let times = ran.err.matches("the shell there does not find bcmr").count();
        assert_eq!(times, lacking.len(), "{lacking:?}: {}", ran.err);
        fs::remove_file(tmp.p("d")).unwrap();
    }
    for host in ["one", "two"] {
        place(&[host]);
        let bare = relayed(&far, "copy", "", &tmp, ("s", "d")).run().code(1);
        assert!(bare.err.contains(&format!("'{host}'")) && bare.err.contains("--bootstrap"), "{}", bare.err);
        assert!(!tmp.p("d").exists() && !is_put("one") && !is_put("two"));
    }
    // What is typed here says nothing of how the source's machine reaches the other one.
    place(&["two"]);
    tmp.file("one/bcmr/config.toml", format!("ssh = {ssh:?}\n"));
    let ran = relayed(&far, "copy", "--via-source -V", &tmp, ("s", "d")).run().code(1);
    assert!(!ran.err.contains("--bootstrap"), "{}", ran.err);
    ran.says("hint: bcmr deploy two puts one there, if it is run on the source's machine");
    assert!(!tmp.p("d").exists() && !is_put("two"));
    place(&["one"]);
    relayed(&far, "copy", "--bootstrap", &tmp, ("s", "d")).run().ok();
    assert!(is_put("one") && !is_put("two"));
    assert_eq!(fs::read_to_string(tmp.p("d")).unwrap(), "A");
}

/// What the source cannot read is the source's, whichever side tells it; and so is what an item is copied from.
#[test]
fn what_cannot_be_read_is_named_with_the_source() {
    needs!(is_root() && has_tool("setpriv"), "becoming somebody else needs root and setpriv");
    let tmp = Tmp::for_others();
    let nobody = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
    let far = Far::pipe();
    chmod(&far.home(), 0o777);
    chmod(tmp.path(), 0o777);
    let far = far.with("FAR_RUN", &nobody).program(&tmp.p("bcmr"));
    tmp.file("s/small", "S");
    tmp.file("s/large", noise(1, 3_000_000));
    tmp.file("s/a", "A");
    for name in ["small", "large"] {
        chmod(&tmp.p("s").join(name), 0o600);
    }
    for flags in ["-rT", "-rTC"] {
        let ran = relayed(&far, "copy", &format!("{flags} -v"), &tmp, ("s", "d")).run().code(1);
        for name in ["small", "large"] {
            let named = format!("'{}': Permission denied", on("one", &tmp.p("s").join(name)));
            assert!(ran.err.contains(&named), "{flags} {name}: {}", ran.err);
        }
        let item = format!("'{}' -> '{}'", on("one", &tmp.p("s/a")), on("two", &tmp.p("d/a")));
        assert!(ran.out.contains(&item), "{flags}: {}", ran.out);
        fs::remove_dir_all(tmp.p("d")).unwrap();
    }
}

/// Of two other machines the one is named that it is about, in the error and in the hint.
#[test]
fn the_machine_that_it_is_about_is_named() {
    let tmp = Tmp::new();
    tmp.file("s/a", noise(3, 24 << 20));
    fs::create_dir(tmp.p("s/in")).unwrap();
    let pipe = script("pipe-ssh");
    let two = |name: &str, text: &str| {
        let others = format!("case \"$*\" in *' two '*) ;; *) exec '{pipe}' \"$@\";; esac");
        let ssh = tmp.file(name, format!("#!/bin/sh\n{others}\n{text}\n"));
        chmod(&ssh, 0o755);
        Far::pipe().over(&ssh)
    };
    let far = two("no-key", "echo 'Permission denied (publickey).' >&2; exit 255");
    relayed(&far, "copy", "", &tmp, ("s/a", "d")).run().code(7).says("'two'").says("ssh -v two");
    // The server is killed when some of it has come, and what is still sent to it is taken all the same.
    let pid = tmp.p("pid");
    let dies = format!(
        "exec 3<&0 4>&1 >/dev/null
         (exec 4>&-; dd bs=4096 count=250 2>/dev/null <&3; kill -KILL $(cat '{pid}'); cat <&3 >/dev/null) |
         sh -c 'echo $$ >\"$0\"; exec \"$@\"' '{pid}' '{pipe}' \"$@\" >&4 4>&- 3<&- &
         exec 4>&-
         wait",
        pid = pid.display(),
    );
    let far = two("dies", &dies);
    relayed(&far, "copy", "", &tmp, ("s/a", "d")).run().code(7).says("cannot talk to 'two'");
    let to = on("two", &tmp.p("d"));
    far.bcmr("copy")
        .args([tmp.p("s/a").into_os_string(), to.into()])
        .run()
        .code(7)
        .says("cannot talk to 'two'");
    // What the destination says of a source has the source's name.
    let far = Far::pipe();
    let nested = format!("cannot copy '{}'", on("one", &tmp.p("s")));
    relayed(&far, "copy", "-r", &tmp, ("s", "s/in")).run().code(8).says(&nested);
    let changes = format!(
        "{{ dd bs=4096 count=250 2>/dev/null; printf X | dd of='{}' conv=notrunc 2>/dev/null; cat; }} | '{pipe}' \"$@\"",
        tmp.p("s/a").display()
    );
    let far = two("changes", &changes);
    let of_source = |from: String| {
        let line = far.bcmr("copy").args([from.clone(), on("two", &tmp.p("d"))]);
        line.run().code(5).says(&format!("cannot copy '{from}': the source changed"));
    };
    of_source(tmp.p("s/a").display().to_string());
    of_source(on("one", &tmp.p("s/a")));
}
