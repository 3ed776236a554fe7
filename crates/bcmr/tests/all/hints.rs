//! A hint is a whole command: each is taken off the screen, run by a shell, and judged by what it left.

use crate::common::remote::Far;
use crate::common::{
    BCMR, CONTENT, Mount, Tmp, assert_same, bcmr, bcmr_after, in_slice, is_root, mkfifo, names, noise,
    skipped,
};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The commands that standard error hints at.
fn commands(err: &str) -> Vec<String> {
    let hints = err.lines().filter_map(|line| line.strip_prefix("hint: "));
    hints.filter_map(|hint| hint.split_once("run: ")).map(|(_, command)| command.to_owned()).collect()
}

/// Runs the one hint there is, as a user would who copies the line.
#[track_caller]
fn follow(err: &str, cwd: &Path, env: &[(&str, &str)]) {
    let [command] = &commands(err)[..] else { panic!("no one command to run: {err}") };
    let mut shell = Command::new("bash");
    shell.args(["-c", command]).current_dir(cwd).envs(env.iter().copied());
    let out = shell.output().unwrap();
    assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
}

/// More names than fit into a pipe from which no process reads, so that a run that names them all is stopped in the middle.
fn many(root: &Path) {
    for dir in 0..4 {
        std::fs::create_dir_all(root.join(format!("dir {dir}/deep"))).unwrap();
        for n in 0..120 {
            let name =
                format!("dir {dir}/deep/a file's name that is long enough to fill a pipe in a while {n:060}");
            std::fs::write(root.join(name), format!("{dir} {n}")).unwrap();
        }
    }
}

/// Starts a run with `-v`, waits until it has told of one thing, stops it and returns what it said in the end. Until the
/// signal is out nothing more is read, so it cannot have come to its end.
fn interrupted(args: &[&str], cwd: &Path) -> String {
    let mut child = Command::new(BCMR)
        .args(args)
        .current_dir(cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::with_capacity(64, child.stdout.take().unwrap());
    out.read_until(b'\n', &mut Vec::new()).unwrap();
    crate::common::remote::signal(child.id(), rustix::process::Signal::INT);
    let mut err = child.stderr.take().unwrap();
    let mut said = Vec::new();
    let mut byte = [0];
    // Its first words are that it stops: from then on nothing new is begun.
    while !said.ends_with(b"exits at once\n") {
        assert_eq!(err.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    out.read_to_end(&mut Vec::new()).unwrap();
    err.read_to_end(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{}", String::from_utf8_lossy(&said));
    String::from_utf8(said).unwrap()
}

/// What was stopped goes on into the very directory that it had begun, whatever was there before.
#[test]
fn after_a_stop() {
    let all = [&["-r"][..], &["-rC"], &["-rp"], &["-r", "--inplace"], &["-r", "--archive"]];
    for (n, flags) in all.into_iter().enumerate() {
        let places = [("new", false), ("a new one", false), ("it's", true)];
        // An ordinary run tries each with one place.
        for (_, (dst, there)) in places.into_iter().enumerate().filter(|(m, _)| in_slice(n + m, 3)) {
            let tmp = Tmp::new();
            many(&tmp.p("many"));
            if there {
                tmp.dir(dst);
            }
            let args = [&["copy", "-v"], flags, &["many", dst]].concat();
            let err = interrupted(&args, tmp.path());
            let to = if there { tmp.p(dst).join("many") } else { tmp.p(dst) };
            let landed = if to.exists() { crate::common::tree(&to).len() } else { 0 };
            assert!(landed < crate::common::tree(&tmp.p("many")).len(), "{args:?}: it was not stopped");
            follow(&err, tmp.path(), &[]);
            assert_same(&tmp.p("many"), &to, CONTENT);
            let want = if there { vec!["many".into()] } else { names(&tmp.p("many")) };
            assert_eq!(names(&tmp.p(dst)), want, "{args:?}: {err}");
        }
    }
}

/// The same for a move to another file system, and nothing is left behind.
#[test]
fn after_a_move_that_was_stopped() {
    let Some(far) = Tmp::elsewhere() else {
        return skipped("after_a_move_that_was_stopped", "one file system");
    };
    for there in [false, true] {
        let tmp = Tmp::new();
        many(&tmp.p("many"));
        many(&tmp.p("same"));
        let dst = far.path().join(format!("to {there}"));
        if there {
            std::fs::create_dir(&dst).unwrap();
        }
        let err = interrupted(&["move", "-v", "many", dst.to_str().unwrap()], tmp.path());
        follow(&err, tmp.path(), &[]);
        let to = if there { dst.join("many") } else { dst.clone() };
        assert_same(&tmp.p("same"), &to, CONTENT);
        assert!(!tmp.p("many").exists(), "{err}");
        assert_eq!(names(&dst).len(), if there { 1 } else { 4 });
    }
}

/// A line that breaks, in both directions: the hint makes of it what was asked for.
#[test]
fn after_a_lost_connection() {
    for (put, there) in [(true, false), (true, true), (false, false), (false, true)] {
        let tmp = Tmp::new();
        many(&tmp.p("many"));
        if there {
            tmp.dir("new");
        }
        let cut = if put { "RELAY_UP" } else { "RELAY_DOWN" };
        let far = Far::relay().with(cut, "60000");
        let line = far.bcmr("copy").args(["-r", "--compress=none", "--parallel=1"]).cwd(tmp.path());
        let (src, dst) = (tmp.p("many"), tmp.p("new"));
        let line = if put {
            line.args([src.as_os_str(), &far.at(&dst)])
        } else {
            line.args([&far.at(&src), dst.as_os_str()])
        };
        let ran = line.run();
        // A busy receiver may have come to nothing of what was sent when the line breaks.
        assert_eq!(ran.code, 7, "{put} {there}: {ran:?}");
        // Whether it was new is the other side's to tell, and it may not have been heard: then no command is hinted at.
        if put && commands(&ran.err).is_empty() {
            assert!(ran.err.contains("and with -T, if the destination was new"), "{ran:?}");
            continue;
        }
        let home = far.home();
        let env = [("FAR_HOME", home.to_str().unwrap()), ("FAR_RUN", ""), ("FAR_ARGS", "")];
        follow(&ran.err, tmp.path(), &env);
        let to = if there { dst.join("many") } else { dst.clone() };
        assert_same(&src, &to, CONTENT);
        assert_eq!(names(&dst).len(), if there { 1 } else { 4 }, "{put} {there}: {}", ran.err);
    }
}

/// What the sending side fails at is known before the other one has told whether the destination is new: the hint waits for
/// that, and its command means the same tree.
#[test]
fn after_an_upload_that_was_not_whole() {
    for (there, json) in [(false, false), (true, false), (false, true)] {
        let tmp = Tmp::new();
        tmp.file("s/sub/f", "F");
        mkfifo(&tmp.p("s/p"));
        if there {
            tmp.dir("new");
        }
        let far = Far::pipe();
        let line = far.bcmr("copy").args(["-r"]).args(json.then_some("--json")).cwd(tmp.path());
        let ran = line.args([OsStr::new("s"), &far.at(tmp.p("new"))]).run().code(1);
        let home = far.home();
        let env = [("FAR_HOME", home.to_str().unwrap()), ("FAR_RUN", ""), ("FAR_ARGS", "")];
        if json {
            // What is told at once may be told before it is known.
            let is_brief =
                ran.out.contains("the same command with --archive; and with -T, if the destination was new");
            assert!(is_brief || ran.out.contains(" -T\""), "{}", ran.out);
            continue;
        }
        follow(&ran.err, tmp.path(), &env);
        let to = if there { tmp.p("new/s") } else { tmp.p("new") };
        assert_same(&tmp.p("s"), &to, CONTENT);
        assert_eq!(names(&tmp.p("new")).len(), if there { 1 } else { 2 }, "{}", ran.err);
    }
}

/// What writes into a file under its name goes on by the same command, as `-a` does not go with `-C`.
#[test]
fn after_a_lost_connection_in_place() {
    for flags in [&["-a"][..], &["--append=size"], &["--inplace"]] {
        let tmp = Tmp::new();
        let (src, dst) = (tmp.file("src", noise(1, 3 << 20)), tmp.file("dst", noise(1, 1000)));
        let copy = |far: Far| {
            let line = far.bcmr("copy").args(flags).args(["--whole-file", "--compress=none", "--no-dedup"]);
            line.args([src.as_os_str(), &far.at(&dst)]).cwd(tmp.path()).run()
        };
        let lost = copy(Far::relay().with("RELAY_UP", "1000000")).code(7);
        lost.says("hint: to go on, run the same command again");
        copy(Far::relay()).ok();
        assert!(std::fs::read(&src).unwrap() == std::fs::read(&dst).unwrap(), "{flags:?}");
    }
}

/// In `--json` a hint has the same whole command, of each verb that hints at one.
#[test]
fn in_json() {
    let rows: [(&[&str], &[&str]); 4] = [
        (&["copy", "--json", "s", "a new one"], &["a new one/sub"]),
        (&["copy", "--json", "-r", "fifo", "d"], &["d/p"]),
        (&["move", "--json", "s", "full"], &["full/s/sub"]),
        (&["remove", "--json", "full"], &[]),
    ];
    for (args, after) in rows {
        let tmp = Tmp::new();
        tmp.file("s/sub/f", "F");
        tmp.file("full/s/own", "OWN");
        tmp.dir("fifo");
        mkfifo(&tmp.p("fifo/p"));
        let ran = bcmr(args).cwd(tmp.path()).run().code(1);
        let events = ran.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let hints: Vec<String> =
            events.filter_map(|event| Some(format!("hint: {}", event["hint"].as_str()?))).collect();
        assert_eq!(hints.len(), 1, "{args:?}: {}", ran.out);
        follow(&hints[0], tmp.path(), &[]);
        for name in after {
            assert!(tmp.p(name).symlink_metadata().is_ok(), "{args:?}: no {name}");
        }
        assert!(!after.is_empty() || !tmp.p("full").exists(), "{args:?}");
    }
}

/// What only looks hints at what it can do: no option that it does not have.
#[test]
fn of_verbs_that_look() {
    let tmp = Tmp::new();
    tmp.file("f", "F");
    for args in [&["check", "f", "."][..], &["hash", "f", "."], &["ls", "."], &["du", "."]] {
        let limited = format!("ulimit -n 5; exec {BCMR} {}", args.join(" "));
        let out = Command::new("bash").args(["-c", &limited]).current_dir(tmp.path()).output().unwrap();
        let err = String::from_utf8(out.stderr).unwrap();
        for command in commands(&err) {
            let tried = Command::new("bash").args(["-c", &command]).current_dir(tmp.path()).output().unwrap();
            let tried = String::from_utf8(tried.stderr).unwrap();
            assert!(!tried.contains("unexpected argument"), "{args:?}: {command}: {tried}");
        }
    }
}

/// Where descriptors run out: fewer workers may do with them, and one alone needs a higher limit.
#[test]
fn of_descriptors_with_one_worker_and_with_several() {
    let tmp = Tmp::new();
    tmp.dir(format!("deep/{}", ["d"; 60].join("/")));
    for (jobs, words, commands_told) in [
        ("-j2", "raise the limit (ulimit -n), or run", 1),
        ("-j1", "raise the limit (ulimit -n)", 0),
        ("--jobs=1", "raise the limit (ulimit -n)", 0),
    ] {
        let line = bcmr_after("ulimit -n 16", ["copy", "--archive", jobs, "deep", "o"]).cwd(tmp.path());
        let ran = line.run().code(1).says(words);
        assert_eq!(commands(&ran.err).len(), commands_told, "{jobs}: {}", ran.err);
    }
}

/// Hints after a refusal: the same line with what it lacks.
#[test]
fn after_a_refusal() {
    let make = || {
        let tmp = Tmp::new();
        tmp.file("s/sub/f", "F");
        tmp.file("s/g", "G");
        tmp
    };
    // A directory without -r.
    for there in [false, true] {
        let tmp = make();
        if there {
            tmp.dir("d");
        }
        let ran = bcmr(["copy", "s", "d"]).cwd(tmp.path()).run().code(1);
        follow(&ran.err, tmp.path(), &[]);
        assert_same(&tmp.p("s"), &if there { tmp.p("d/s") } else { tmp.p("d") }, CONTENT);
        let ran = bcmr(["remove", "d"]).cwd(tmp.path()).run().code(1);
        follow(&ran.err, tmp.path(), &[]);
        assert!(!tmp.p("d").exists());
    }
    // A special file without --archive, when everything else is there already.
    let tmp = make();
    mkfifo(&tmp.p("s/p"));
    let ran = bcmr(["copy", "-r", "s", "d"]).cwd(tmp.path()).run().code(1);
    assert!(tmp.p("d/sub/f").exists());
    follow(&ran.err, tmp.path(), &[]);
    assert_same(&tmp.p("s"), &tmp.p("d"), CONTENT);
    // Links are followed and owners are not kept, if that was typed.
    let tmp = make();
    mkfifo(&tmp.p("s/p"));
    std::os::unix::fs::symlink("g", tmp.p("s/link")).unwrap();
    if is_root() {
        std::os::unix::fs::chown(tmp.p("s/g"), Some(7), Some(8)).unwrap();
    }
    let ran = bcmr(["copy", "-rL", "--no-preserve=ownership", "s", "d"]).cwd(tmp.path()).run().code(1);
    follow(&ran.err, tmp.path(), &[]);
    for name in ["d/link", "d/g"] {
        let there = tmp.p(name).symlink_metadata().unwrap();
        assert!(there.is_file(), "{name}: {}", ran.err);
        assert_eq!(there.uid(), rustix::process::geteuid().as_raw(), "{name}: {}", ran.err);
    }
    assert!(tmp.p("d/p").exists(), "{}", ran.err);
    // A directory in the way of a move.
    let tmp = make();
    tmp.file("d/s/own", "OWN");
    let ran = bcmr(["move", "s", "d"]).cwd(tmp.path()).run().code(1);
    follow(&ran.err, tmp.path(), &[]);
    assert!(!tmp.p("s").exists() && tmp.p("d/s/own").exists() && tmp.p("d/s/sub/f").exists());
}

/// A full disk, and room after it.
#[test]
fn after_a_full_disk() {
    if !is_root() {
        return skipped("after_a_full_disk", "mounting needs root");
    }
    for flags in [&["-r"][..], &["-rC", "--checkpoint-size=4M"]] {
        let tmp = Tmp::new();
        for n in 0..8 {
            tmp.file(format!("many/{n}"), crate::common::noise(n, 5 << 20));
        }
        let mount = match Mount::tmpfs("size=24m", &tmp.p("m")) {
            Ok(mount) => mount,
            Err(why) => return skipped("after_a_full_disk", &why),
        };
        let ran = bcmr(["copy", "-j1"]).args(flags).args(["many", "m/new"]).cwd(tmp.path()).run().code(6);
        assert!(tmp.p("m/new").exists(), "{flags:?}: {ran:?}");
        assert!(
            Command::new("mount")
                .args(["-o", "remount,size=100m"])
                .arg(mount.path())
                .status()
                .unwrap()
                .success()
        );
        follow(&ran.err, tmp.path(), &[]);
        assert_same(&tmp.p("many"), &tmp.p("m/new"), CONTENT);
        assert_eq!(names(&tmp.p("m/new")).len(), 8);
    }
}

/// A finished copy says what brings it up to date, as the same words would then mean a place inside.
#[test]
fn after_a_copy_that_is_done() {
    let tmp = Tmp::new();
    tmp.file("s/f", "F");
    let ran = bcmr(["copy", "-rCv", "s", "d"]).cwd(tmp.path()).run().ok();
    tmp.file("s/more", "MORE");
    follow(&ran.err, tmp.path(), &[]);
    assert_same(&tmp.p("s"), &tmp.p("d"), CONTENT);
    // Into what was there before, the same command is the same.
    let ran = bcmr(["copy", "-rCv", "s", "d"]).cwd(tmp.path()).run().ok();
    assert_eq!(commands(&ran.err), [] as [String; 0]);
    assert_same(&tmp.p("s"), &tmp.p("d/s"), CONTENT);
}
