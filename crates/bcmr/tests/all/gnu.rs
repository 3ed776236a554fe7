//! `cp`, `mv`, `rm` and `install`: what is promised beyond GNU, how the programs are called, and a slice of the lines that
//! `cargo xtask gnu` compares with Debian's own.

use super::common::*;
use super::terminal::Terminal;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

fn gnu<const N: usize>(tmp: &Tmp, words: [&str; N]) -> Line {
    bcmr(words).cwd(tmp.path())
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A slice of a kept seed; `cargo xtask gnu --lines N --seed S` runs as many as are wanted.
#[test]
fn lines_do_what_they_do_with_the_systems_programs() {
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/gnu/twins.py");
    let lines = if all_cases() { "5000" } else { "20" };
    needs!(python().is_some(), "it needs python3");
    let mut ran = Command::new(python().unwrap());
    let ran = ran.arg(judge).args(["--bcmr", BCMR, "--seed", "kept", "--lines", lines]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    needs!(ran.status.code() != Some(77), "it wants root and coreutils 9.1");
    assert_eq!(ran.status.code(), Some(0), "{out}{err}");
}

#[test]
fn a_file_is_replaced_by_a_rename_where_nobody_can_tell_and_else_written_into() {
    let tmp = Tmp::new();
    tmp.file("new", "new content");
    let of = |name: &str| std::fs::metadata(tmp.p(name)).unwrap();
    let plain = of_inode(&tmp.file("plain", "old"));
    let linked = of_inode(&tmp.file("linked", "old"));
    std::fs::hard_link(tmp.p("linked"), tmp.p("other")).unwrap();
    let led_to = of_inode(&tmp.file("led_to", "old"));
    std::os::unix::fs::symlink("led_to", tmp.p("link")).unwrap();
    chmod(&tmp.p("plain"), 0o640);
    // Open all the time: what was there is what is read.
    let open = std::fs::File::open(tmp.p("plain")).unwrap();
    for name in ["plain", "linked", "link"] {
        gnu(&tmp, ["cp", "new", name]).run().ok();
        assert_eq!(read(&tmp.p(name)), "new content", "{name}");
    }
    assert_ne!(of("plain").ino(), plain, "replaced");
    assert_eq!(of("plain").mode() & 0o7777, 0o640, "with the mode that it had");
    assert_eq!(std::io::read_to_string(&open).unwrap(), "old");
    assert_eq!((of("linked").ino(), read(&tmp.p("other")).as_str()), (linked, "new content"), "written into");
    assert_eq!(of("led_to").ino(), led_to, "written into, through the link");
    assert!(std::fs::symlink_metadata(tmp.p("link")).unwrap().is_symlink());
    assert_no_litter(tmp.path());
}

fn of_inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

/// What cannot be read whole leaves nothing, and what was there stays.
#[test]
fn a_copy_that_fails_leaves_the_old_file() {
    let tmp = Tmp::new();
    let mount = tmp.dir("small");
    needs!(is_root(), "only root mounts");
    let mount = Mount::tmpfs("size=256k", &mount).unwrap();
    tmp.file("small/there", "old");
    tmp.file("big", noise(1, 1 << 20));
    gnu(&tmp, ["cp", "big", "small/there"])
        .run()
        .code(1)
        .says("cp: error writing 'small/there': No space left on device");
    assert_eq!(read(&tmp.p("small/there")), "old");
    gnu(&tmp, ["cp", "big", "small/new"]).run().code(1);
    assert_eq!(names(mount.path()), ["there"]);
}

/// EINVAL says that a name cannot be given so where it comes of giving it, and there alone.
#[test]
fn an_error_of_the_content_is_none_of_the_name() {
    needs!(has_tool("strace"), "there is no strace");
    for (call, words) in [
        ("pread64", "cp d/f new"),
        ("pread64", "cp -r d new"),
        ("pread64", "install d/f new"),
        ("pwrite64", "cp -p d/f new"),
        ("ftruncate", "cp --sparse=always d/f new"),
        ("ioctl", "cp --reflink=always d/f new"),
    ] {
        let tmp = Tmp::new();
        tmp.file("d/f", [noise(1, 5000), vec![0; 8000], noise(2, 1000)].concat());
        // What loads the program reads as well.
        let source = ["-P".into(), tmp.p("d/f")];
        let only = if call == "pread64" { &source[..] } else { &[] };
        let inject = format!("inject={call}:error=EINVAL");
        let line = Line::new(Path::new("strace")).args(["-f", "-qq", "-o", "/dev/null", "-e", &inject]);
        let line = line.args(only).args([BCMR]).args(words.split(' ')).cwd(tmp.path());
        let ran = line.run().code(1).says("Invalid argument");
        assert!(!tmp.p("new").is_file() && !tmp.p("new/f").exists(), "{call} {words}: {ran:?}");
        assert_no_litter(tmp.path());
    }
}

/// As with GNU's: `-a` keeps what it can, and a move is one whatever of this is lost.
#[test]
fn attributes_that_are_too_large_for_ext4_keep_nothing_from_being_copied_or_moved() {
    needs!(is_root() && has_tool("mkfs.ext4"), "needs root and mkfs.ext4");
    let tmp = Tmp::new();
    let memory = Mount::tmpfs("size=8m", &tmp.dir("memory")).unwrap();
    let disk = match Mount::image("ext4", 16, &tmp.dir("disk")) {
        Ok(disk) => disk,
        Err(why) => return skipped("ext4", &why),
    };
    for path in [tmp.file("memory/f", "F"), tmp.dir("memory/d"), tmp.file("memory/d/f", "F")] {
        for n in 0..30 {
            let name = format!("user.of{n}");
            if rustix::fs::setxattr(&path, name, &[1; 1000], rustix::fs::XattrFlags::empty()).is_err() {
                return skipped("attributes", "memory holds none");
            }
        }
    }
    const TOLD: &str = "larger than the file system";
    for what in ["f", "d"] {
        for (flags, code, tells) in
            [("-a", 0, false), ("-r --preserve=all", 0, true), ("-r --preserve=xattr", 1, true)]
        {
            // The second time over what is there.
            for _ in 0..2 {
                let line = gnu(&tmp, ["cp", "-T"]).args(flags.split(' '));
                let ran = line.args([format!("memory/{what}"), "disk/o".to_owned()]).run().code(code);
                assert_eq!(ran.err.contains(TOLD), tells, "{what} {flags}: {}", ran.err);
            }
            let made = tmp.p(if what == "f" { "disk/o" } else { "disk/o/f" });
            assert_eq!(read(&made), "F", "{what} {flags}");
            gnu(&tmp, ["rm", "-r", "disk/o"]).run().ok();
        }
        gnu(&tmp, ["mv", &format!("memory/{what}"), "disk/o"]).run().ok().says(TOLD);
        assert!(!memory.path().join(what).exists(), "{what}");
        gnu(&tmp, ["rm", "-r", "disk/o"]).run().ok();
    }
    drop(disk);
}

#[test]
fn a_move_to_another_file_system_takes_away_what_landed() {
    let tmp = Tmp::new();
    needs!(is_root(), "only root mounts");
    let mount = Mount::tmpfs("size=8m", &tmp.dir("far")).unwrap();
    tmp.dir("d/sub");
    tmp.file("d/sub/f", "content");
    std::os::unix::fs::symlink("f", tmp.p("d/sub/l")).unwrap();
    let before = tree(&tmp.p("d"));
    gnu(&tmp, ["mv", "d", "far"]).run().ok();
    assert!(!tmp.p("d").exists());
    assert_eq!(differences(&before, &tree(&mount.path().join("d")), EVERYTHING), Vec::<String>::new());
    // There is something in the way: nothing is lost.
    tmp.dir("e");
    tmp.file("e/own", "own");
    tmp.dir("far/e");
    tmp.file("far/e/theirs", "theirs");
    gnu(&tmp, ["mv", "e", "far"])
        .run()
        .code(1)
        .says("mv: inter-device move failed: 'e' to 'far/e'; unable to remove target: Directory not empty");
    assert_eq!((read(&tmp.p("e/own")).as_str(), read(&tmp.p("far/e/theirs")).as_str()), ("own", "theirs"));
}

#[test]
fn streams_are_read_as_files_are() {
    let tmp = Tmp::new();
    gnu(&tmp, ["cp", "/dev/stdin", "from_stdin"]).input("typed").run().ok();
    assert_eq!(read(&tmp.p("from_stdin")), "typed");
    gnu(&tmp, ["cp", "/dev/null", "empty"]).run().ok();
    assert_eq!(read(&tmp.p("empty")), "");
    gnu(&tmp, ["cp", "from_stdin", "/dev/null"]).run().ok();
    let ran = gnu(&tmp, ["cp", "from_stdin", "/dev/stdout"]).run().ok();
    assert_eq!(ran.out, "typed");
    gnu(&tmp, ["cp", "/proc/self/status", "status"]).run().ok();
    assert!(read(&tmp.p("status")).starts_with("Name:"));
}

#[test]
fn each_program_answers_to_its_names() {
    let tmp = Tmp::new();
    tmp.file("f", "content");
    for name in ["cp", "bcp"] {
        std::os::unix::fs::symlink(BCMR, tmp.p(name)).unwrap();
        Line::new(&tmp.p(name)).args(["f", &format!("by_{name}")]).cwd(tmp.path()).run().ok();
        assert_eq!(read(&tmp.p(format!("by_{name}"))), "content");
    }
    gnu(&tmp, ["mv", "-v", "f", "g"]).run().ok();
    gnu(&tmp, ["install", "-m600", "g", "h"]).run().ok();
    assert_eq!(mode(&tmp.p("h")), 0o600);
    gnu(&tmp, ["rm", "g", "h"]).run().ok();
    assert!(!tmp.p("g").exists() && !tmp.p("h").exists());
    gnu(&tmp, ["rm", "-q"]).run().code(1).says("Try 'rm --help' for more information.");
}

#[test]
fn aliases_are_lines_that_the_shell_takes() {
    for (shell, prefix, line) in [
        ("bash", "", "alias cp='bcmr cp'"),
        ("zsh", "b", "alias bmv='bcmr mv'"),
        ("fish", "b", "alias brm 'bcmr rm';"),
    ] {
        let said = bcmr(["init", shell, "--prefix", prefix]).run().ok().out;
        assert!(said.lines().any(|l| l == line), "{said}");
    }
    bcmr(["init", "bash", "--prefix", "x;y"]).run().code(2);
    let tmp = Tmp::new();
    tmp.file("f", "content");
    let script = format!(
        "shopt -s expand_aliases\nPATH={}:$PATH\neval \"$(bcmr init bash)\"\ncp -v f g\n",
        Path::new(BCMR).parent().unwrap().display()
    );
    let ran = Command::new("bash").arg("-c").arg(script).current_dir(tmp.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "'f' -> 'g'\n", "{ran:?}");
    for program in ["cp", "mv", "rm", "install"] {
        let help = bcmr(["help", program]).run().ok().out;
        assert!(help.starts_with(&format!("Usage: {program} ")), "{help}");
        assert!(bcmr(["help"]).run().ok().out.contains("cp, mv, rm, install"));
    }
    assert!(bcmr(["help", "letters"]).run().ok().out.contains("--no-clobber"));
}

/// A plain tree to a new name goes another way than one of which each step is told: what comes of it is the same, also
/// where something of it cannot be read or kept.
#[test]
fn a_new_tree_is_the_same_however_it_is_copied() {
    needs!(is_root(), "only root becomes another user");
    let tmp = Tmp::for_others();
    let make = |name: &str| {
        for n in 0..40 {
            tmp.file(format!("{name}/d{}/f{n}", n % 3), format!("content {n}"));
        }
        tmp.dir(format!("{name}/empty"));
        tmp.file(format!("{name}/closed/f"), "x");
        tmp.file(format!("{name}/secret"), "x");
        tmp.file(format!("{name}/still/deep/secret"), "x");
        tmp.file(format!("{name}/still/deep/open"), "open");
        std::fs::hard_link(tmp.p(format!("{name}/d1/f1")), tmp.p(format!("{name}/d2/again"))).unwrap();
        std::fs::hard_link(tmp.p(format!("{name}/secret")), tmp.p(format!("{name}/d2/secret"))).unwrap();
        std::os::unix::fs::symlink("nowhere", tmp.p(format!("{name}/link"))).unwrap();
        mkfifo(&tmp.p(format!("{name}/pipe")));
        let own = Command::new("chown").args(["-hR", "65534:65534"]).arg(tmp.p(name)).status().unwrap();
        assert!(own.success());
        chmod(&tmp.p(format!("{name}/d1/f4")), 0o4750);
        chmod(&tmp.p(format!("{name}/secret")), 0);
        chmod(&tmp.p(format!("{name}/still/deep/secret")), 0);
        chmod(&tmp.p(format!("{name}/still/deep")), 0o555);
        chmod(&tmp.p(format!("{name}/closed")), 0);
    };
    make("t");
    for (n, options) in ["-r", "-a", "-dR", "-rp", "-r --sparse=always"].into_iter().enumerate() {
        for (by, id) in [("root", 0), ("user", 65534)] {
            let [plain, told] = [format!("{by}-plain-{n}"), format!("{by}-told-{n}")];
            let run = |to: &str, more: &[&str]| {
                let words = ["cp"].into_iter().chain(options.split(' ')).chain(more.iter().copied());
                bcmr_as(id, &tmp, words.chain(["t", to])).cwd(tmp.path()).run()
            };
            let (one, other) = (run(&plain, &[]), run(&told, &["-v"]));
            let err = |ran: &Ran, to: &str| ran.err.replace(to, "TO");
            assert_eq!(err(&one, &plain), err(&other, &told), "{options} as {by}");
            assert_eq!(one.code, other.code, "{options} as {by}");
            assert_eq!((one.code == 0), id == 0, "{options} as {by}: {}", one.err);
            let kept = options == "-a";
            let exact = Exact {
                mode: true,
                owner: kept,
                times: kept || options == "-rp",
                xattrs: kept,
                links: kept || options == "-dR",
            };
            let differ = differences(&tree(&tmp.p(&told)), &tree(&tmp.p(&plain)), exact);
            assert_eq!(differ, Vec::<String>::new(), "{options} as {by}");
        }
    }
    assert_no_litter(tmp.path());
    // What goes goes whole, and what cannot go is told once, in its order.
    for (name, by, id) in [("one", "user", 65534), ("two", "root", 0)] {
        make(name);
        let before = names(&tmp.p(name)).len();
        let ran = bcmr_as(id, &tmp, ["rm", "-rf", name]).cwd(tmp.path()).run();
        assert_eq!(tmp.p(name).exists(), id != 0, "{by}: {before} {}", ran.err);
        if id != 0 {
            let mut said: Vec<&str> = ran.err.lines().collect();
            said.sort_unstable();
            let want = [
                "'one/closed': Permission denied",
                "'one/still/deep/open': Permission denied",
                "'one/still/deep/secret': Permission denied",
            ];
            assert_eq!(said, want.map(|what| format!("rm: cannot remove {what}")));
            assert_eq!(names(&tmp.p("one")), ["closed", "still"]);
        }
    }
}

/// `strip` works on what nobody sees yet; where it fails, what was there stays.
#[test]
fn install_strips_before_it_publishes() {
    let tmp = Tmp::new();
    tmp.file("program", "with symbols");
    let strip = tmp.file("strip.sh", "#!/bin/sh\n[ -e dest ] && echo seen >> log || echo unseen >> log\nprintf stripped > \"$1.new\" && mv \"$1.new\" \"$1\"\n");
    chmod(&strip, 0o755);
    let program = format!("--strip-program={}", strip.display());
    gnu(&tmp, ["install", "-s", &program, "-m", "751", "-p", "program", "dest"]).run().ok();
    assert_eq!((read(&tmp.p("dest")).as_str(), mode(&tmp.p("dest"))), ("stripped", 0o751));
    assert_eq!(read(&tmp.p("log")), "unseen\n");
    let times = |name: &str| std::fs::metadata(tmp.p(name)).unwrap().modified().unwrap();
    assert_eq!(times("dest"), times("program"));
    for program in ["--strip-program=false", "--strip-program=/nonexistent"] {
        gnu(&tmp, ["install", "-s", program, "program", "dest"])
            .run()
            .code(1)
            .says("install: strip process terminated abnormally");
        assert_eq!(read(&tmp.p("dest")), "stripped", "{program}");
        gnu(&tmp, ["install", "-s", program, "program", "other"]).run().code(1);
        assert!(!tmp.p("other").exists(), "{program}");
    }
    assert_no_litter(tmp.path());
}

/// Options that came after the programs that judge the others.
#[test]
fn newer_options_do_what_they_say() {
    let tmp = Tmp::new();
    tmp.file("a", "a");
    tmp.file("d/b", "b");
    let ran = gnu(&tmp, ["mv", "-v", "--exchange", "a", "d"]).run().ok();
    assert_eq!(ran.out, "exchanged 'a' <-> 'd'\n");
    assert_eq!((read(&tmp.p("d")).as_str(), read(&tmp.p("a/b")).as_str()), ("a", "b"));
    gnu(&tmp, ["mv", "--exchange", "d", "none"])
        .run()
        .code(1)
        .says("mv: cannot exchange 'd' and 'none': No such file or directory");
    assert_eq!(read(&tmp.p("d")), "a");

    tmp.file("old", "old");
    tmp.file("new", "new");
    gnu(&tmp, ["cp", "--update=none-fail", "new", "old"]).run().code(1).says("cp: not replacing 'old'");
    gnu(&tmp, ["mv", "--update=none-fail", "new", "old"]).run().code(1).says("mv: not replacing 'old'");
    gnu(&tmp, ["cp", "--update=none", "new", "old"]).run().ok();
    assert_eq!((read(&tmp.p("old")).as_str(), read(&tmp.p("new")).as_str()), ("old", "new"));
    gnu(&tmp, ["cp", "--update=none-fail", "new", "newer"]).run().ok();
    gnu(&tmp, ["cp", "--update=all", "new", "old"]).run().ok();
    assert_eq!(read(&tmp.p("old")), "new");

    tmp.file("tree/sub/f", "f");
    tmp.dir("real");
    tmp.dir("into/tree");
    std::os::unix::fs::symlink("../../real", tmp.p("into/tree/sub")).unwrap();
    gnu(&tmp, ["cp", "-r", "tree", "into"])
        .run()
        .code(1)
        .says("cp: cannot overwrite non-directory 'into/tree/sub' with directory 'tree/sub'");
    assert_eq!(names(&tmp.p("real")).len(), 0);
    gnu(&tmp, ["cp", "-r", "--keep-directory-symlink", "tree", "into"]).run().ok();
    assert_eq!(read(&tmp.p("real/f")), "f");
    assert!(std::fs::symlink_metadata(tmp.p("into/tree/sub")).unwrap().is_symlink());

    needs!(is_root(), "only root mounts");
    let _far = Mount::tmpfs("size=1m", &tmp.dir("far")).unwrap();
    gnu(&tmp, ["mv", "--no-copy", "old", "far"])
        .run()
        .code(1)
        .says("mv: cannot move 'old' to 'far/old': Invalid cross-device link");
    assert_eq!((read(&tmp.p("old")).as_str(), names(&tmp.p("far")).len()), ("new", 0));
    gnu(&tmp, ["mv", "--no-copy", "old", "older"]).run().ok();
    gnu(&tmp, ["rm", "-r", "--preserve-root=all", "far"]).run().code(1).says(
        "rm: skipping 'far', since it's on a different device\nrm: and --preserve-root=all is in effect\n",
    );
}

/// What is asked at a terminal, where nothing was said about asking.
#[test]
fn a_terminal_is_asked_about_what_may_not_be_written() {
    needs!(has_tool("setsid") && is_root(), "it needs setsid, and root to become another user");
    let tmp = Tmp::for_others();
    let user = |words: &[&str]| Terminal::start(bcmr_as(65534, &tmp, words.iter().copied()).cwd(tmp.path()));
    let there = |name: &str| tmp.p(name).exists();
    for name in ["mine", "theirs", "kept", "many1", "many2", "many3", "many4"] {
        tmp.file(name, name);
        chmod(&tmp.p(name), 0o444);
    }
    tmp.file("dir/empty", "");
    let own = Command::new("chown").args(["-R", "65534:65534"]).arg(tmp.p("dir")).status().unwrap();
    assert!(own.success());
    chmod(&tmp.p("dir/empty"), 0o400);
    chmod(tmp.path(), 0o777);
    std::fs::copy(tmp.p("mine"), tmp.p("new")).unwrap();

    let mut asked = user(&["mv", "new", "theirs"]);
    asked.until("mv: replace 'theirs', overriding mode 0444 (r--r--r--)? ");
    asked.type_in("n\n");
    assert_eq!(asked.end().1, 0);
    assert!(there("new"));
    let mut asked = user(&["mv", "new", "theirs"]);
    asked.until("overriding mode 0444 (r--r--r--)? ");
    asked.type_in("y\n");
    assert_eq!((asked.end().1, there("new"), read(&tmp.p("theirs")).as_str()), (0, false, "mine"));

    let mut asked = user(&["rm", "kept"]);
    asked.until("rm: remove write-protected regular file 'kept'? ");
    asked.type_in("\n");
    assert_eq!((asked.end().1, there("kept")), (0, true));
    let mut asked = user(&["rm", "-I", "many1", "many2", "many3", "many4"]);
    asked.until("rm: remove 4 arguments? ");
    asked.type_in("y\n");
    asked.until("rm: remove write-protected regular file 'many1'? ");
    asked.type_in("y\ny\ny\nn\n");
    assert_eq!((asked.end().1, there("many1"), there("many4")), (0, false, true));
    let mut asked = user(&["rm", "-r", "dir"]);
    asked.until("rm: remove write-protected regular empty file 'dir/empty'? ");
    asked.type_in("yes\n");
    assert_eq!((asked.end().1, there("dir")), (0, false));
    // -f asks about nothing.
    assert_eq!((user(&["rm", "-rf", "kept"]).end(), there("kept")), ((String::new(), 0), false));
    // Nor does what is no terminal.
    bcmr_as(65534, &tmp, ["rm", "theirs"]).cwd(tmp.path()).run().ok();
    assert!(!there("theirs"));
}

#[test]
fn every_name_of_a_file_is_moved() {
    let tmp = Tmp::new();
    needs!(is_root(), "only root mounts");
    let _far = Mount::tmpfs("size=1m", &tmp.dir("far")).unwrap();
    tmp.dir("d");
    tmp.file("a", "content");
    std::fs::hard_link(tmp.p("a"), tmp.p("b")).unwrap();
    gnu(&tmp, ["mv", "a", "b", "d"]).run().ok();
    assert_eq!((names(&tmp.p("d")).len(), tmp.p("a").exists(), tmp.p("b").exists()), (2, false, false));
    let ran = gnu(&tmp, ["mv", "-v", "d/a", "d/b", "far"]).run().ok();
    assert_eq!(ran.out, "copied 'd/a' -> 'far/a'\nremoved 'd/a'\nremoved 'd/b'\n");
    assert_eq!(names(&tmp.p("d")).len(), 0);
    assert_eq!(of_inode(&tmp.p("far/a")), of_inode(&tmp.p("far/b")));
    assert_eq!(read(&tmp.p("far/b")), "content");
}

/// Where something of a directory cannot be copied to another file system, all of it stays, and no mark of ours.
#[test]
fn a_directory_is_moved_whole_or_stays() {
    needs!(is_root(), "only root mounts, and becomes another user");
    let tmp = Tmp::for_others();
    let far = Mount::tmpfs("size=1m,mode=1777", &tmp.dir("far")).unwrap();
    tmp.file("t/open", "open");
    tmp.file("t/sub/secret", "secret");
    let own = Command::new("chown").args(["-R", "65534:65534"]).arg(tmp.p("t")).status().unwrap();
    assert!(own.success());
    chmod(&tmp.p("t/sub/secret"), 0);
    bcmr_as(65534, &tmp, ["mv", "t", "far"])
        .cwd(tmp.path())
        .run()
        .code(1)
        .says("mv: cannot open 't/sub/secret' for reading: Permission denied\n");
    assert_eq!((read(&tmp.p("t/open")).as_str(), read(&tmp.p("far/t/open")).as_str()), ("open", "open"));
    assert_no_litter(far.path());
    // Its honest twin.
    chmod(&tmp.p("t/sub/secret"), 0o600);
    std::fs::remove_dir_all(tmp.p("far/t")).unwrap();
    bcmr_as(65534, &tmp, ["mv", "t", "far"]).cwd(tmp.path()).run().ok();
    assert!(!tmp.p("t").exists());
    assert_eq!(read(&tmp.p("far/t/sub/secret")), "secret");
}

/// A umask that takes from the user what a directory needs while it is filled.
#[test]
fn directories_are_filled_whatever_the_umask_takes() {
    needs!(is_root(), "only root becomes another user");
    let tmp = Tmp::for_others();
    tmp.file("t/sub/f", "f");
    for (verb, to) in [("cp", "plain"), ("copy", "verb")] {
        let line = format!(
            "umask 0177; exec setpriv --reuid=65534 --regid=65534 --clear-groups ./bcmr {verb} -r t {to}"
        );
        let ran = Command::new("sh").args(["-c", &line]).current_dir(tmp.path()).output().unwrap();
        assert!(ran.status.success(), "{verb}: {ran:?}");
        assert_eq!((mode(&tmp.p(to)), mode(&tmp.p(to).join("sub"))), (0o600, 0o600), "{verb}");
        assert_eq!(read(&tmp.p(to).join("sub/f")), "f", "{verb}");
    }
}

/// What is seldom met, and where each answer is one that could as well be another.
#[test]
fn seldom_lines_end_as_with_the_systems_programs() {
    for (script, want) in [
        // Bits of the source are all that a copy has of their kind; without -p it is made with the sticky one.
        (
            "mkdir -m 2775 g; mkdir -m 1777 s; $b cp -a s g/a; $b cp -r --no-preserve=mode s g/r; stat -c %a g/a g/r",
            "1777\n3755\n",
        ),
        ("mkdir -m 2775 g; mkdir p; $b cp -a p g/a; stat -c %a g/a", "2755\n"),
        // Setuid and setgid of a directory go only where five digits say so.
        (
            "mkdir -m 6755 g; $b install -d -m 755 g; stat -c %a g; $b install -d -m 00755 g; stat -c %a g",
            "6755\n755\n",
        ),
        (
            "mkdir -m 2775 g; touch f; umask 077; $b install -D -m 600 f g/a/f; stat -c %a g/a g/a/f",
            "2755\n600\n",
        ),
        (
            "$b install -d -m u=rwx,g=rxs d; stat -c %a d; $b install -d -m g=rx d; stat -c %a d",
            "2750\n2750\n",
        ),
        // Names are tried as they were typed, where the new one is free.
        ("touch f; $b mv --strip-trailing-slashes f n/", "mv: cannot move 'f' to 'n': Not a directory\n"),
        ("touch f g; $b mv --strip-trailing-slashes f/ g && ls", "g\n"),
        // That a name is taken is known before what is wrong with a slash behind another one.
        ("touch f g; $b mv -n f/ g && ls", "f\ng\n"),
        ("touch f; $b mv -n f/ g", "mv: cannot stat 'f/': Not a directory\n"),
        ("touch -d 2001-02-03 f; $b cp -sp f l; stat -c %y l | cut -c 1-10", "2001-02-03\n"),
        (
            "mkdir d; $b rm ./d//; $b rm -rv d//",
            "rm: cannot remove './d/': Is a directory\nremoved directory 'd/'\n",
        ),
        (
            "mkdir e; ln -s e l; $b cp -a l/ -t e",
            "cp: will not create hard link 'e/l/l' to directory 'e/l'\n",
        ),
        ("mkdir e; $b cp -a e/ -t e", "cp: cannot copy a directory, 'e/', into itself, 'e/e'\n"),
        // Two names of one link.
        (
            "ln -s t a; ln a b; $b cp -d a b && $b cp -d --remove-destination a b && ls; $b mv a b; $b cp -bd a b; ls",
            "a\nb\nmv: 'a' and 'b' are the same file\na\nb\nb~\n",
        ),
        ("touch f; ln f g; echo y | $b cp -il f g", "cp: overwrite 'g'? "),
        // A device that is read has no part in what the directory hands down.
        (
            "mkdir d; setfacl -d -m u:1:rwx d; $b cp --preserve=mode /dev/null d; getfacl -cp d/null | grep -c :.*:.*:",
            "0\n",
        ),
        // What is not older stays; as a further name of what landed before only where it has the content of that.
        (
            "mkdir s t; echo x >s/f; ln s/f s/g; ln s/f s/h; ln s/f s/i; cp -r s t; touch -d '1 day' t/s/*; touch -d 2001-02-03 t/s/i
             echo new >t/s/h; $b cp -au s t; stat -c %h t/s/*; cat t/s/h",
            "3\n3\n1\n3\nnew\n",
        ),
        // What is newer and another content is no first name.
        (
            "mkdir s t; echo x >s/f; ln s/f s/g; cp -r s t; touch -d 2001-02-03 t/s/g; echo new >t/s/f; touch -d '1 day' t/s/f
             $b cp -au s t; stat -c %h t/s/*; cat t/s/*",
            "1\n1\nnew\nx\n",
        ),
        // What is installed already is what a file without special bits says, and not what a link leads to.
        (
            "touch f g; chmod 4755 f; chmod 755 g; $b install -Cv f g; chmod 755 f; chmod 2755 g; $b install -Cvm 2755 f g
             $b install -Cv f g; $b install -Cv f g; ln -s f l; $b install -Cv l g",
            "removed 'g'\n'f' -> 'g'\n\
             install: the --compare (-C) option is ignored when you specify a mode with non-permission bits\n\
             removed 'g'\n'f' -> 'g'\nremoved 'g'\n'f' -> 'g'\nremoved 'g'\n'l' -> 'g'\n",
        ),
        (
            "touch f; ln -s f l; mkdir d; $b install -C -- l l d; $b install -C -t no f; $b install -t f l",
            "install: will not overwrite just-created 'd/l' with 'l'\n\
             install: failed to access 'no': No such file or directory\n\
             install: failed to access 'f': Not a directory\n",
        ),
        // A socket without the mode of its source is what bind makes.
        (
            "mkdir d; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"d/s\")'; chmod 600 d/s
             $b cp -r --no-preserve=mode d e; $b cp -a d g; stat -c %a e/s g/s",
            "755\n600\n",
        ),
        // A directory that was removed is an empty one.
        (
            "echo x >f; mkdir d; cd d; rmdir ../d; $b cp -r . ../e && ls ../e; $b cp ../f g; $b cp -v -r . ../h",
            "cp: cannot create regular file 'g': No such file or directory\n'.' -> '../h'\n",
        ),
        ("touch f g h i; echo n | $b rm ---presume-input-tty -I f g h i; ls | wc -l", "rm: remove 4 arguments? 4\n"),
    ] {
        let tmp = Tmp::new();
        let script = format!("b={BCMR}; umask 022; exec 2>&1; {script}");
        let out = Command::new("sh").args(["-c", &script]).current_dir(tmp.path()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), want, "{script}");
    }
}

/// Without an owner and a group, what is installed has those of the process; what has others is not the same.
#[test]
fn what_is_installed_and_belongs_to_others_is_installed_again() {
    needs!(is_root(), "only root gives files away");
    let tmp = Tmp::new();
    tmp.file("f", "content");
    for (given, again) in [("--owner=1", true), ("--group=1", true), ("--mode=755", false)] {
        gnu(&tmp, ["install", "-C", given, "f", "g"]).run().ok();
        let ran = gnu(&tmp, ["install", "-Cv", "f", "g"]).run().ok();
        assert_eq!(ran.out.contains("'f' -> 'g'"), again, "{given}: {}", ran.out);
        assert_eq!(gnu(&tmp, ["install", "-Cv", "f", "g"]).run().ok().out, "", "{given}");
    }
}

/// A FIFO or a socket is no file that could be replaced, and goes as an empty directory does.
#[test]
fn a_file_is_moved_over_a_fifo_of_another_file_system() {
    let tmp = Tmp::new();
    needs!(is_root(), "only root mounts");
    let mount = Mount::tmpfs("size=1m", &tmp.dir("far")).unwrap();
    tmp.file("f", "content");
    mkfifo(&mount.path().join("p"));
    let ran = gnu(&tmp, ["mv", "-v", "f", "far/p"]).run().ok();
    assert_eq!(ran.out, "copied 'f' -> 'far/p'\nremoved 'f'\n");
    assert_eq!((read(&tmp.p("far/p")).as_str(), names(tmp.path())), ("content", vec!["far".into()]));
    // Nothing of a file stays that another one is moved over.
    let old = tmp.file("old", "old");
    rustix::fs::setxattr(&old, c"user.note", b"kept", rustix::fs::XattrFlags::empty()).unwrap();
    gnu(&tmp, ["mv", "far/p", "old"]).run().ok();
    assert_eq!(read(&old), "content");
    assert_eq!(rustix::fs::listxattr(&old, &mut [0_u8; 64]).unwrap(), 0);
}

/// What cannot be made elsewhere is told as what it is.
#[test]
fn what_may_not_be_moved_there_is_called_by_its_kind() {
    needs!(is_root(), "only root mounts and becomes another user");
    let tmp = Tmp::for_others();
    chmod(tmp.path(), 0o777);
    let _far = Mount::tmpfs("size=1m,mode=755", &tmp.dir("far")).unwrap();
    tmp.file("file", "content");
    tmp.dir("dir");
    std::os::unix::fs::symlink("nowhere", tmp.p("link")).unwrap();
    mkfifo(&tmp.p("fifo"));
    for (name, kind) in
        [("file", "regular file"), ("dir", "directory"), ("link", "symbolic link"), ("fifo", "fifo")]
    {
        std::os::unix::fs::lchown(tmp.p(name), Some(65534), Some(65534)).unwrap();
        let ran = bcmr_as(65534, &tmp, ["mv", name, "far"]).cwd(tmp.path()).run().code(1);
        assert_eq!(ran.err, format!("mv: cannot create {kind} 'far/{name}': Permission denied\n"));
        assert!(tmp.p(name).symlink_metadata().is_ok(), "{name}");
    }
}

/// A directory that may not be read gives no attributes either: `-a` says that once.
#[test]
fn attributes_that_may_not_be_read_are_told_as_that() {
    needs!(is_root(), "only root becomes another user");
    let tmp = Tmp::for_others();
    chmod(tmp.path(), 0o777);
    chmod(&tmp.dir("closed"), 0o700);
    rustix::fs::setxattr(tmp.p("closed"), c"user.note", b"kept", rustix::fs::XattrFlags::empty()).unwrap();
    let first = "cp: cannot access 'closed': Permission denied\n";
    let second = "cp: getting attributes of 'closed': Permission denied\n";
    for (options, is_told) in [
        (&["-a"][..], false),
        (&["-r", "--preserve=all"], true),
        (&["-r", "--preserve=xattr"], true),
        (&["-a", "--preserve=xattr"], true),
    ] {
        let line = bcmr_as(65534, &tmp, ["cp"]).args(options).args(["closed", "new"]).cwd(tmp.path());
        let told = if is_told { second } else { "" };
        assert_eq!(line.run().code(1).err, format!("{first}{told}"), "{options:?}");
        std::fs::remove_dir(tmp.p("new")).unwrap();
    }
}

/// A chain of `levels` directories, by handles: its path is longer than any call takes.
fn chain(top: &Path, levels: usize) {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    std::fs::create_dir(top).unwrap();
    let mut at: rustix::fd::OwnedFd = std::fs::File::open(top).unwrap().into();
    for _ in 0..levels {
        mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = openat(&at, "d", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    }
}

/// However deep a tree is, the stack is not what ends: neither where it is small, nor where descriptors run out.
#[test]
fn no_tree_is_too_deep_for_the_stack() {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    needs!(most.is_none_or(|most| most > 11_000), "it wants two descriptors a level");
    let tmp = Tmp::new();
    chain(&tmp.p("a"), 5000);
    let run = |limit: &str, words: [&str; 4]| {
        let words = words.into_iter().filter(|word| !word.is_empty());
        bcmr_after(limit, words).cwd(tmp.path()).run()
    };
    for option in ["-rv", "-av", "-r"] {
        let told = if option == "-r" { 0 } else { 5001 };
        assert_eq!(
            run("ulimit -s 1024", ["cp", option, "a", "b"]).ok().out.lines().count(),
            told,
            "{option}"
        );
        assert_eq!(run("ulimit -s 1024", ["rm", "-rv", "b", ""]).ok().out.lines().count(), 5001, "{option}");
    }
    let few = "ulimit -s 1024; ulimit -n 500";
    run(few, ["cp", "-rv", "a", "b"]).code(1).says(": Too many open files\n");
    run(few, ["cp", "-r", "a", "c"]).one_of(&[0, 1]);
    run(few, ["rm", "-rv", "b", ""]).one_of(&[0, 1]);
    run("ulimit -v 600000", ["rm", "-rv", "a", ""]).ok();
}

/// What can only be given together with an owner, who cannot be given, is left out, and that is no failure.
#[test]
fn setuid_without_its_owner_is_left_out_without_a_word() {
    needs!(is_root(), "only root gives files away, mounts and becomes another user");
    let tmp = Tmp::for_others();
    let _far = Mount::tmpfs("size=1m,mode=1777", &tmp.dir("far")).unwrap();
    for top in ["t", "u"] {
        chmod(&tmp.dir(top), 0o777);
        std::os::unix::fs::chown(tmp.p(top), Some(65534), Some(65534)).unwrap();
        for (name, bits) in [("setuid", 0o4755), ("setgid", 0o2755)] {
            chmod(&tmp.file(format!("{top}/{name}"), name), bits);
        }
    }
    for (words, to) in [
        (["cp", "-a", "t", "archive"], "archive"),
        (["cp", "-rp", "t", "kept"], "kept"),
        (["cp", "-av", "t", "told"], "told"),
        (["mv", "-f", "t", "far"], "far/t"),
        (["mv", "-f", "u/setuid", "far"], "far"),
    ] {
        let ran = bcmr_as(65534, &tmp, words).cwd(tmp.path()).run().ok();
        assert_eq!((ran.err.as_str(), mode(&tmp.p(to).join("setuid"))), ("", 0o755), "{words:?}");
    }
    assert!(!tmp.p("t").exists() && !tmp.p("u/setuid").exists());
    // Without the owner being asked for it is worth a word.
    let ran = bcmr_as(65534, &tmp, ["cp", "--preserve=mode", "u/setgid", "bare"]).cwd(tmp.path()).run().ok();
    assert!(ran.err.contains("does not keep setuid or setgid"), "{}", ran.err);
}

/// Who stops a copy knows that it was stopped.
#[test]
fn a_copy_that_is_stopped_says_nothing() {
    let tmp = Tmp::new();
    std::fs::File::create(tmp.p("big")).unwrap().set_len(1 << 40).unwrap();
    let mut running = gnu(&tmp, ["cp", "--sparse=never", "big", "o"]).start();
    while names(tmp.path()).len() < 2 && !running.is_over() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    running.signal(rustix::process::Signal::INT);
    let ran = running.wait().code(1002);
    assert_eq!((ran.err.as_str(), names(tmp.path())), ("", vec!["big".into()]));
}

/// What is read as a stream is written once, and has its name when all of it is there.
#[test]
fn a_stream_takes_the_room_of_one_file() {
    needs!(is_root(), "only root mounts");
    let tmp = Tmp::new();
    let small = Mount::tmpfs("size=1m", &tmp.dir("small")).unwrap();
    let content = noise(7, 700 << 10);
    tmp.file("content", &content);
    let run = |size: &str, name: &str, more: &str| {
        let line = format!("head -c {size} content | {BCMR} cp {more} -p /dev/stdin small/{name}");
        Command::new("sh").args(["-c", &line]).current_dir(tmp.path()).output().unwrap()
    };
    let ran = run("700K", "fits", "");
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(std::fs::read(small.path().join("fits")).unwrap(), content);
    let ran = run("600K", "too_large", "");
    assert_eq!(
        String::from_utf8_lossy(&ran.stderr),
        "cp: error writing 'small/too_large': No space left on device\n"
    );
    assert_eq!(names(small.path()), ["fits"]);
    // Killed while it waits for more, it leaves nothing.
    mkfifo(&tmp.p("fifo"));
    let held = std::fs::OpenOptions::new().read(true).write(true).open(tmp.p("fifo")).unwrap();
    std::io::Write::write_all(&mut &held, b"more").unwrap();
    let running = gnu(&tmp, ["cp", "fifo", "small/killed"]).start();
    let unread = || rustix::io::ioctl_fionread(&held).unwrap();
    while unread() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    running.signal(rustix::process::Signal::KILL);
    running.wait().code(1009);
    assert_eq!(names(small.path()), ["fits"]);
    // Holes come where they are asked for, also at the end.
    let holes = [&vec![0; 300 << 10][..], b"middle", &vec![0; 2 << 20]].concat();
    tmp.file("content", &holes);
    let ran = run("9M", "holes", "--sparse=always");
    assert!(ran.status.success(), "{ran:?}");
    assert!(std::fs::read(small.path().join("holes")).unwrap() == holes);
}

/// Nothing happens to a file before there is something to take the place of what it has.
#[test]
fn a_file_is_not_emptied_for_a_stream_that_says_nothing() {
    let tmp = Tmp::for_others();
    chmod(tmp.path(), 0o777);
    mkfifo(&tmp.p("fifo"));
    chmod(&tmp.p("fifo"), 0o666);
    tmp.file("linked", "old");
    std::fs::hard_link(tmp.p("linked"), tmp.p("other")).unwrap();
    chmod(&tmp.file("unwritable", "old"), 0o444);
    chmod(&tmp.file("plain", "old"), 0o666);
    let has_fifo_open = |pid: u32| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        open.into_iter().any(|fd| std::fs::read_link(fd.path()).is_ok_and(|path| path == tmp.p("fifo")))
    };
    for (user, options, name) in [
        (None, &["cp"][..], "plain"),
        (None, &["cp", "-p"], "plain"),
        (None, &["cp"], "linked"),
        (None, &["cp", "-r", "--copy-contents"], "plain"),
        (Some(65534), &["cp", "-f"], "unwritable"),
    ] {
        if user.is_some() && !is_root() {
            continue;
        }
        let args = options.iter().copied().chain(["fifo", name]);
        let line = user.map_or_else(|| bcmr(args.clone()), |id| bcmr_as(id, &tmp, args.clone()));
        let mut running = line.cwd(tmp.path()).start();
        while !has_fifo_open(running.pid()) && !running.is_over() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        running.signal(rustix::process::Signal::INT);
        assert_eq!(running.wait().code(1002).err, "", "{options:?}");
        assert_eq!(read(&tmp.p(name)), "old", "{options:?} {name}");
    }
    let running = gnu(&tmp, ["cp", "fifo", "plain"]).start();
    std::fs::write(tmp.p("fifo"), "new content").unwrap();
    running.wait().ok();
    assert_eq!(read(&tmp.p("plain")), "new content");
}

/// Where anybody may put things and only its owner may look, things are put.
#[test]
fn a_directory_that_may_not_be_read_takes_what_is_brought() {
    needs!(is_root(), "only root becomes another user");
    let tmp = Tmp::for_others();
    chmod(tmp.path(), 0o777);
    tmp.file("s/f", "content");
    for dot in ["s", "s/f"] {
        std::os::unix::fs::chown(tmp.p(dot), Some(65534), Some(65534)).unwrap();
    }
    for (at, words) in [
        &["cp", "-r", "s/.", "drop"][..],
        &["cp", "-a", "s/.", "drop"],
        &["cp", "-rl", "s/.", "drop"],
        &["cp", "-rn", "s/.", "drop/"],
        &["cp", "-rT", "s", "drop"],
        &["cp", "-r", "s/.", "drop/."],
    ]
    .into_iter()
    .enumerate()
    {
        let drop = tmp.dir("drop");
        chmod(&drop, 0o1733);
        let ran = bcmr_as(65534, &tmp, words).cwd(tmp.path()).run();
        // Only what is kept of the directory itself may be refused, as it is another user's.
        assert_eq!(ran.code, i32::from(at == 1), "{words:?} {ran:?}");
        assert!(!ran.err.contains("create"), "{words:?} {ran:?}");
        assert_eq!(read(&drop.join("f")), "content", "{words:?}");
        std::fs::remove_dir_all(&drop).unwrap();
    }
    // So is what is kept there of what they replace. Of numbered ones none is known: they are counted up to one that is free.
    for (control, kept) in [("existing", "f~"), ("numbered", "f.~1~"), ("numbered", "f.~2~")] {
        for (program, old) in [("cp", "first"), ("install", "second"), ("mv", "third")] {
            let drop = tmp.dir("drop");
            chmod(&drop, 0o1733);
            for (name, content) in [("drop/f", old), ("f", "new")] {
                tmp.file(name, content);
                std::os::unix::fs::chown(tmp.p(name), Some(65534), Some(65534)).unwrap();
            }
            if kept == "f.~2~" {
                tmp.file("drop/f.~1~", "kept before");
            }
            let backup = format!("--backup={control}");
            bcmr_as(65534, &tmp, [program, &backup, "-T", "f", "drop/f"]).cwd(tmp.path()).run().ok();
            assert_eq!(
                (read(&drop.join("f")).as_str(), read(&drop.join(kept)).as_str()),
                ("new", old),
                "{program} {kept}"
            );
            if kept == "f.~2~" {
                assert_eq!(read(&drop.join("f.~1~")), "kept before", "{program}");
            }
            std::fs::remove_dir_all(&drop).unwrap();
        }
    }
    // It stays one that cannot be listed.
    chmod(&tmp.dir("drop"), 0o1733);
    let ran = bcmr_as(65534, &tmp, ["cp", "-r", "drop/.", "o"]).cwd(tmp.path()).run().code(1);
    assert_eq!(ran.err, "cp: cannot access 'drop/.': Permission denied\n");
}

/// In a log that takes both, an error stands where it happened.
#[test]
fn an_error_stands_behind_what_was_done_before() {
    let tmp = Tmp::new();
    for name in ["a", "b", "d/"] {
        if name.ends_with('/') { drop(tmp.dir(name)) } else { drop(tmp.file(name, name)) }
    }
    for (words, log) in [
        ("cp -v a nope b d", "'a' -> 'd/a'\ncp: cannot stat 'nope': {gone}\n'b' -> 'd/b'\n"),
        (
            "install -v a nope b d",
            "removed 'd/a'\n'a' -> 'd/a'\ninstall: cannot stat 'nope': {gone}\nremoved 'd/b'\n'b' -> 'd/b'\n",
        ),
        ("rm -v d/a nope d/b", "removed 'd/a'\nrm: cannot remove 'nope': {gone}\nremoved 'd/b'\n"),
        ("mv -v a nope b d", "renamed 'a' -> 'd/a'\nmv: cannot stat 'nope': {gone}\nrenamed 'b' -> 'd/b'\n"),
    ] {
        let line = format!("{BCMR} {words} >log 2>&1");
        Command::new("sh").args(["-c", &line]).env("LC_ALL", "C").current_dir(tmp.path()).status().unwrap();
        assert_eq!(read(&tmp.p("log")), log.replace("{gone}", "No such file or directory"));
    }
}

/// Runs a line, and takes a name as soon as the run has made something in `dir`.
fn taken_meanwhile(line: Line, dir: &Path, take: &dyn Fn()) -> Ran {
    let before = names(dir).len();
    let mut running = line.start();
    while names(dir).len() == before && !running.is_over() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    take();
    running.wait()
}

/// Gives a file a time of long ago.
fn made_old(file: &Path) {
    std::fs::File::open(file).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
}

/// A name that another process takes while a file is copied to it counts as if it had been there from the beginning.
#[test]
fn a_name_that_is_taken_meanwhile_was_there_from_the_beginning() {
    let tmp = Tmp::new();
    std::fs::File::create(tmp.p("big")).unwrap().set_len(256 << 20).unwrap();
    for (options, answer, replaced) in [
        (&["-v"][..], "", true),
        (&["-n"], "", false),
        (&["--update=none"], "", false),
        (&["-u"], "", false),
        (&["-i"], "n\n", false),
        (&["-i"], "y\n", true),
        (&["--remove-destination"], "", true),
    ] {
        let line = gnu(&tmp, ["cp", "--sparse=never", "--reflink=never", "big", "o"]).args(options);
        let ran = taken_meanwhile(line.input(answer), tmp.path(), &|| drop(tmp.file("o", "theirs"))).ok();
        assert_eq!(ran.err, if options == ["-i"] { "cp: overwrite 'o'? " } else { "" }, "{options:?}");
        assert_eq!(std::fs::metadata(tmp.p("o")).unwrap().len() > 6, replaced, "{options:?}");
        std::fs::remove_file(tmp.p("o")).unwrap();
        assert_eq!(names(tmp.path()), ["big"], "{options:?}");
    }
}

/// So it is with what `mv` brings to another file system; and where that is a directory, it does not take the place of one.
#[test]
fn a_name_that_is_taken_while_mv_copies_was_there_from_the_beginning() {
    needs!(has_tool("strace"), "there is no strace");
    let tmp = Tmp::new();
    let Some(other) = Tmp::elsewhere() else {
        return skips::here("there is no other file system");
    };
    let mv = |call: &str, args: &[&str], answer: &str, take: &dyn Fn()| {
        let line = bcmr_slow_at(call).args(["mv"]).args(args).cwd(tmp.path());
        taken_meanwhile(line.input(answer), other.path(), take)
    };
    let to = other.p("o");
    let to = to.to_str().unwrap();
    for (option, answer, replaced) in [
        ("-n", "", false),
        ("--update=none", "", false),
        ("-u", "", false),
        ("-i", "n\n", false),
        ("-i", "y\n", true),
        ("-b", "", true),
        ("-f", "", true),
    ] {
        let source = tmp.file("f", "ours");
        made_old(&source);
        let take = || drop(other.file("o", "theirs"));
        mv("pwrite64,write", &[option, "f", to], answer, &take).one_of(&[0]);
        let want = if replaced { "ours" } else { "theirs" };
        assert_eq!(std::fs::read_to_string(to).unwrap(), want, "{option}");
        assert_eq!(source.exists(), !replaced, "{option}");
        let all = if option == "-b" { &["o", "o~"][..] } else { &["o"] };
        assert_eq!(names(other.path()), all, "{option}");
        for name in names(other.path()) {
            std::fs::remove_file(other.p(name)).unwrap();
        }
    }
    for line in ["mv", "mv -n", "mv -T"] {
        tmp.file("d/f", "ours");
        let take = || drop(other.file("o/f", "theirs"));
        let args = line.split(' ').skip(1).chain(["d", to]).collect::<Vec<_>>();
        let ran = mv("mkdirat", &args, "", &take).code(1);
        assert!(ran.err.contains("Directory not empty"), "{line}: {ran:?}");
        assert_eq!(std::fs::read_to_string(other.p("o/f")).unwrap(), "theirs", "{line}");
        assert_eq!(std::fs::read_to_string(tmp.p("d/f")).unwrap(), "ours", "{line}");
        assert_eq!(names(other.path()), ["o"], "{line}");
        std::fs::remove_dir_all(to).unwrap();
    }
}

/// So it is with what is in a directory that another process makes while a tree is copied to it.
#[test]
fn a_directory_that_is_taken_meanwhile_was_there_from_the_beginning() {
    needs!(has_tool("strace"), "there is no strace");
    for (option, answer, replaced) in
        [("-n", "", false), ("-u", "", false), ("-i", "n\n", false), ("-b", "", true), ("-f", "", true)]
    {
        let tmp = Tmp::new();
        made_old(&tmp.file("s/f", "ours"));
        let into = tmp.dir("d");
        let line = bcmr_slow_at("mkdirat").args(["cp", "-r", option, "s", "d/n"]).cwd(tmp.path());
        taken_meanwhile(line.input(answer), &into, &|| drop(tmp.file("d/n/f", "theirs"))).ok();
        assert_eq!(read(&tmp.p("d/n/f")), if replaced { "ours" } else { "theirs" }, "{option}");
        if option == "-b" {
            assert_eq!(read(&tmp.p("d/n/f~")), "theirs");
        }
        assert_no_litter(tmp.path());
    }
}

/// So it is with directories and all that is in them, however many copy them.
#[test]
fn several_copy_one_tree_to_one_place() {
    let tmp = Tmp::new();
    for dir in 0..10 {
        for file in 0..10 {
            tmp.file(format!("d/{dir}/{file}"), noise(file, 20_000));
        }
        std::os::unix::fs::symlink("0", tmp.p(format!("d/{dir}/link"))).unwrap();
    }
    for option in ["-r", "-rv", "-a", "-av"] {
        for round in 0..3 {
            let to = format!("n{option}{round}");
            tmp.dir(&to);
            let all: Vec<Running> =
                (0..4).map(|_| gnu(&tmp, ["cp", option, "d", to.as_str()]).start()).collect();
            for running in all {
                assert_eq!(running.wait().ok().err, "", "{option}");
            }
            assert_same(&tmp.p("d"), &tmp.p(&to).join("d"), CONTENT);
        }
    }
    assert_no_litter(tmp.path());
}

/// What a file has of flags that a new one in its directory would not have stays: it is written into.
#[test]
fn a_file_with_flags_of_its_own_keeps_them() {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    needs!(is_root(), "only root mounts");
    let tmp = Tmp::new();
    let mount = match Mount::image("ext4", 16, &tmp.dir("disk")) {
        Ok(mount) => mount,
        Err(e) => return skips::here(&format!("no ext4: {e}")),
    };
    tmp.file("new", "new");
    for (of_dir, of_file, replaced) in [
        (IFlags::empty(), IFlags::empty(), true),
        (IFlags::empty(), IFlags::NOATIME, false),
        (IFlags::empty(), IFlags::SYNC | IFlags::NODUMP, false),
        (IFlags::NOATIME, IFlags::NOATIME, true),
        (IFlags::NOATIME, IFlags::empty(), false),
    ] {
        let dir = tmp.dir("disk/dir");
        let file = tmp.file("disk/dir/file", "old");
        let flags = |path: &Path| ioctl_getflags(std::fs::File::open(path).unwrap()).unwrap();
        let kept = flags(&file) - IFlags::NOATIME;
        let set = |path: &Path, own: IFlags| {
            ioctl_setflags(std::fs::File::open(path).unwrap(), kept | own).unwrap();
        };
        set(&file, of_file);
        let of_dirs = flags(&dir) | of_dir;
        ioctl_setflags(std::fs::File::open(&dir).unwrap(), of_dirs).unwrap();
        let before = (of_inode(&file), flags(&file));
        gnu(&tmp, ["cp", "new", "disk/dir/file"]).run().ok();
        assert_eq!((read(&file).as_str(), flags(&file)), ("new", before.1), "{of_dir:?} {of_file:?}");
        assert_eq!(of_inode(&file) != before.0, replaced, "{of_dir:?} {of_file:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
    assert_no_litter(mount.path());
}

/// Where no name can be taken away again nothing but final names is made.
#[test]
fn what_comes_into_a_directory_where_names_stay_leaves_no_other() {
    needs!(is_root() && has_tool("chattr"), "only root mounts; it needs chattr");
    let tmp = Tmp::new();
    let mount = match Mount::image("ext4", 16, &tmp.dir("disk")) {
        Ok(mount) => mount,
        Err(e) => return skips::here(&format!("no ext4: {e}")),
    };
    tmp.file("f", "content");
    tmp.file("t/g", "content");
    std::os::unix::fs::symlink("f", tmp.p("l")).unwrap();
    mkfifo(&tmp.p("t/p"));
    let log = tmp.dir("disk/log");
    tmp.file("disk/first", "first");
    tmp.file("disk/log/there", "old");
    assert!(Command::new("chattr").arg("+a").arg(&log).status().unwrap().success());
    gnu(&tmp, ["cp", "f", "disk/log"]).run().ok();
    gnu(&tmp, ["cp", "f", "disk/log/there"]).run().ok();
    gnu(&tmp, ["cp", "-d", "l", "disk/log"]).run().ok();
    let there = tmp.p("f");
    gnu(&tmp, ["cp", "-s", there.to_str().unwrap(), "disk/log/s"]).run().ok();
    gnu(&tmp, ["cp", "-l", "disk/first", "disk/log"]).run().ok();
    gnu(&tmp, ["cp", "-a", "t", "disk/log"]).run().ok();
    gnu(&tmp, ["cp", "/dev/stdin", "disk/log/stream"]).input("typed").run().ok();
    gnu(&tmp, ["install", "-m600", "f", "disk/log/installed"]).run().ok();
    gnu(&tmp, ["cp", "--remove-destination", "f", "disk/log/there"])
        .run()
        .code(1)
        .says("cp: cannot remove 'disk/log/there': Operation not permitted");
    assert_eq!(names(&log), ["f", "first", "installed", "l", "s", "stream", "t", "there"]);
    assert_eq!(names(&log.join("t")), ["g", "p"]);
    for name in ["f", "there", "s", "t/g", "installed"] {
        assert_eq!(read(&log.join(name)), "content", "{name}");
    }
    assert_eq!((read(&log.join("stream")).as_str(), mode(&log.join("installed"))), ("typed", 0o600));
    // What comes from another file system.
    for name in ["mf", "mt/x/y", "mt/z"] {
        tmp.file(name, "moved");
    }
    std::os::unix::fs::symlink("f", tmp.p("ml")).unwrap();
    for name in ["mf", "mt", "ml"] {
        gnu(&tmp, ["mv", name, "disk/log"]).run().ok();
    }
    tmp.file("mf", "once more");
    gnu(&tmp, ["mv", "mf", "disk/log"]).run().code(1).says(": Operation not permitted\n");
    assert_eq!((read(&tmp.p("mf")).as_str(), read(&log.join("mt/x/y")).as_str()), ("once more", "moved"));
    gnu(&tmp, ["cp", "-r", "t", "disk/log/more"]).run().ok();
    tmp.file("v/w", "by the verb");
    bcmr(["copy", "-r", "v", "v/w", "disk/log"]).cwd(tmp.path()).run().ok();
    let all =
        ["f", "first", "installed", "l", "mf", "ml", "more", "mt", "s", "stream", "t", "there", "v", "w"];
    assert_eq!(names(&log), all);
    assert!(Command::new("chattr").arg("-a").arg(&log).status().unwrap().success());
    drop(mount);
}

/// Whatever a umask takes or a default ACL does not give, the user works in what is being made.
#[test]
fn directories_are_made_whatever_their_owner_may_not_do() {
    needs!(is_root() && has_tool("setfacl"), "only root mounts and becomes another user; it needs setfacl");
    let tmp = Tmp::for_others();
    let far = Mount::tmpfs("size=1m,mode=1777", &tmp.dir("far")).unwrap();
    chmod(&tmp.dir("from"), 0o777);
    let user = |line: &str| {
        let line = format!("exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c '{line}'");
        let ran = Command::new("sh").args(["-c", &line]).current_dir(tmp.path()).output().unwrap();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{line}: {ran:?}");
    };
    for umask in ["222", "277", "377", "477", "577", "777", "177"] {
        user("mkdir -p from/t/sub; echo f >from/t/sub/f");
        user(&format!("umask {umask}; ./bcmr mv from/t far"));
        assert_eq!((mode(&tmp.p("far/t/sub")), tmp.p("from/t").exists()), (0o755, false), "{umask}");
        assert_eq!((read(&tmp.p("far/t/sub/f")).as_str(), names(far.path())), ("f\n", vec!["t".into()]));
        std::fs::remove_dir_all(tmp.p("far/t")).unwrap();
    }
    user("mkdir -p from/t/sub; echo f >from/t/sub/f");
    chmod(&tmp.dir("acl"), 0o777);
    let acl = Command::new("setfacl").args(["-d", "-m", "u::rw,g::rx,o::rx"]).arg(tmp.p("acl")).status();
    needs!(acl.unwrap().success(), "no ACLs here");
    for option in ["-r", "-rv"] {
        user(&format!("./bcmr cp {option} from/t acl/n{option} >/dev/null"));
        let to = tmp.p(format!("acl/n{option}"));
        assert_eq!((mode(&to), mode(&to.join("sub"))), (0o655, 0o655), "{option}");
        assert_eq!(read(&to.join("sub/f")), "f\n");
    }
}

/// The name of a backup has room for as much of the old one as a directory takes.
#[test]
fn backups_of_long_names_are_cut() {
    let tmp = Tmp::new();
    tmp.file("new", "new");
    for (length, option, kept) in [
        (255, "--backup=simple", format!("{}~", "n".repeat(254))),
        (255, "--backup=numbered", format!("{}~", "n".repeat(253))),
        (253, "--backup=numbered", format!("{}~", "n".repeat(253))),
        (251, "--backup=numbered", format!("{}~", "n".repeat(251))),
        (250, "--backup=numbered", format!("{}.~1~", "n".repeat(250))),
        (254, "--backup=simple", format!("{}~", "n".repeat(254))),
    ] {
        let name = "n".repeat(length);
        tmp.file(&name, "old");
        gnu(&tmp, ["cp", option, "new", &name]).run().ok();
        assert_eq!((read(&tmp.p(&name)).as_str(), read(&tmp.p(&kept)).as_str()), ("new", "old"), "{length}");
        if option == "--backup=numbered" && length > 250 {
            gnu(&tmp, ["cp", option, "new", &name]).run().code(1).says(": File exists\n");
        }
        std::fs::remove_file(tmp.p(&name)).unwrap();
        std::fs::remove_file(tmp.p(&kept)).unwrap();
    }
}

/// A link that is made to a file is no copy of it: it belongs to who makes it.
#[test]
fn a_link_that_is_made_belongs_to_its_maker() {
    needs!(is_root(), "only root gives files away");
    let tmp = Tmp::new();
    let file = tmp.file("f", "f");
    std::os::unix::fs::chown(&file, Some(1), Some(1)).unwrap();
    std::os::unix::fs::symlink("f", tmp.p("l")).unwrap();
    std::os::unix::fs::lchown(tmp.p("l"), Some(1), Some(1)).unwrap();
    gnu(&tmp, ["cp", "-as", file.to_str().unwrap(), "made"]).run().ok();
    gnu(&tmp, ["cp", "-a", "l", "copied"]).run().ok();
    let owner = |name: &str| std::fs::symlink_metadata(tmp.p(name)).unwrap().uid();
    assert_eq!((owner("made"), owner("copied")), (0, 1));
}

/// Whichever call fails on the way to a new tree: exit 0 means that all of it is there, and names of one file are names of one
/// file.
#[test]
fn a_new_tree_is_whole_whatever_call_fails() {
    needs!(has_tool("strace"), "there is no strace");
    let tmp = Tmp::new();
    tmp.file("s/h1", "content");
    tmp.file("s/other", "other");
    tmp.dir("s/d");
    std::fs::hard_link(tmp.p("s/h1"), tmp.p("s/d/h2")).unwrap();
    std::fs::hard_link(tmp.p("s/h1"), tmp.p("s/d/h3")).unwrap();
    let exact = Exact { links: true, ..CONTENT };
    let mut failed = 0;
    for (call, error) in [("getdents64", "EIO"), ("linkat", "EIO"), ("openat", "EMFILE")] {
        for which in ["1", "2", "3", "4", "5", "6", "7", "8", "2+", "3+", "4+"] {
            let to = format!("{call}-{which}");
            let ran = bcmr_failing_at(which, call, error).args(["cp", "-a", "s", &to]).cwd(tmp.path()).run();
            let ran = ran.one_of(&[0, 1, 127]);
            failed += i32::from(ran.code != 0);
            if ran.code == 0 {
                assert_same(&tmp.p("s"), &tmp.p(&to), exact);
            } else {
                assert_ne!(ran.err, "", "{to}");
            }
        }
    }
    assert!(failed > 0, "nothing has failed");
    // The directory itself cannot be listed, at any time.
    bcmr_failing_at("3+", "getdents64", "EIO")
        .args(["cp", "-r", "s", "unlisted"])
        .cwd(tmp.path())
        .run()
        .code(1)
        .says("cp: cannot access 's': Input/output error\n");
}

/// Where descriptors run out the old content stays, whichever call does not get one.
#[test]
fn a_file_is_not_emptied_for_want_of_descriptors() {
    let tmp = Tmp::new();
    tmp.file("s/a", "new content");
    let old = "precious";
    let (mut kept, mut copied) = (0, 0);
    for words in [&["cp", "s/a", "d/a"][..], &["cp", "-p", "s/a", "d/a"], &["cp", "-rT", "s", "d"]] {
        for other in [false, true] {
            for most in 4..24 {
                tmp.file("d/a", old);
                if other {
                    // It is written into.
                    std::fs::hard_link(tmp.p("d/a"), tmp.p("other")).unwrap();
                }
                let ran = bcmr_after(&format!("ulimit -n {most}"), words).cwd(tmp.path()).run();
                let now = read(&tmp.p("d/a"));
                let want = if ran.code == 0 { "new content" } else { old };
                assert_eq!(now, want, "{words:?} with {most} descriptors: {}", ran.err);
                *(if ran.code == 0 { &mut copied } else { &mut kept }) += 1;
                std::fs::remove_dir_all(tmp.p("d")).unwrap();
                if other {
                    std::fs::remove_file(tmp.p("other")).unwrap();
                }
            }
        }
    }
    assert!(kept > 0 && copied > 0, "{kept} {copied}: this judges nothing");
    needs!(has_tool("strace"), "there is no strace");
    // A disk that fails is no reason to write into what is there.
    for (call, error) in [("renameat2", "EIO"), ("renameat", "EIO"), ("fchmod", "EIO"), ("fsync", "EIO")] {
        tmp.file("d/a", old);
        let line = bcmr_failing_at("1+", call, error).args(["cp", "-p", "s/a", "d/a"]);
        let ran = line.cwd(tmp.path()).run().one_of(&[0, 1]);
        assert_eq!(read(&tmp.p("d/a")), if ran.code == 0 { "new content" } else { old }, "{call}");
    }
    assert_no_litter(tmp.path());
}

/// The old content keeps its name until the new one takes it, whatever a backup is called and whatever had that name.
#[test]
fn what_is_backed_up_has_its_name_until_it_is_replaced() {
    needs!(has_tool("strace"), "there is no strace");
    let calls = "renameat,renameat2,linkat,unlinkat";
    for (words, backup) in [
        (&["cp", "-b", "new", "f"][..], "f~"),
        (&["cp", "--backup=numbered", "new", "f"], "f.~1~"),
        (&["cp", "-b", "-l", "new", "f"], "f~"),
        (&["install", "-b", "new", "f"], "f~"),
        (&["mv", "-b", "new", "f"], "f~"),
    ] {
        for older in [false, true] {
            until_not_killed(12, 1, |nth| {
                let tmp = Tmp::new();
                tmp.file("new", "new");
                tmp.file("f", "old");
                if older {
                    tmp.file("f~", "older");
                }
                let line = bcmr_killed_at(nth, calls).args(words).cwd(tmp.path());
                let ran = line.run().one_of(&[0, 137, 1009]);
                let now = read(&tmp.p("f"));
                assert!(["old", "new"].contains(&now.as_str()), "{words:?} {nth}");
                if now == "new" {
                    assert_eq!(read(&tmp.p(backup)), "old", "{words:?} {nth}");
                }
                if ran.code != 0 {
                    // The same once more ends it, and nothing is left.
                    tmp.file("new", "new");
                    gnu(&tmp, ["cp", "-b", "new", "f"]).run().ok();
                    assert_eq!(read(&tmp.p("f")), "new", "{words:?} {nth}");
                }
                assert_no_litter(tmp.path());
                ran
            });
        }
    }
    // What could not be replaced has one name, as before.
    let tmp = Tmp::new();
    needs!(is_root(), "only root mounts");
    let _small = Mount::tmpfs("size=256k", &tmp.dir("small")).unwrap();
    tmp.file("small/f", "old");
    tmp.file("big", noise(1, 1 << 20));
    let ran = gnu(&tmp, ["cp", "-bv", "big", "small/f"]).run().code(1);
    assert_eq!(ran.out, "'big' -> 'small/f' (backup: 'small/f~')\n'small/f~' -> 'small/f' (unbackup)\n");
    assert_eq!((read(&tmp.p("small/f")).as_str(), names(&tmp.p("small"))), ("old", vec!["f".into()]));
}

/// What a killed run left goes with the next thing that lands in that directory, and nothing else.
#[test]
fn what_a_killed_run_left_goes_with_the_next() {
    needs!(has_tool("strace"), "there is no strace");
    let tmp = Tmp::new();
    tmp.file("a", "content");
    tmp.file("d/there", "old");
    tmp.file("d/sub/f", "f");
    let lookalike = ".bcmr-r-0123456789abcdef0123456789abcdef.stage";
    tmp.file(Path::new("d").join(lookalike), "work under way");
    let all = names(&tmp.p("d"));
    for words in [&["cp", "a", "d/there"][..], &["cp", "a", "d/new"], &["install", "a", "d/new"]] {
        let calls = "renameat,renameat2,linkat";
        bcmr_killed_at(1, calls).args(words).cwd(tmp.path()).run().one_of(&[137, 1009]);
        assert_eq!(names(&tmp.p("d")).len(), all.len() + 1, "{words:?}: it leaves nothing to be swept");
        // Another process may be at it: who has the lock says so.
        let held = std::fs::File::open(tmp.p("d")).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        gnu(&tmp, ["cp", "a", "d/there"]).run().ok();
        assert_eq!(names(&tmp.p("d")).len(), all.len() + 1, "{words:?}");
        drop(held);
        gnu(&tmp, ["cp", "a", "d/there"]).run().ok();
        assert_eq!(names(&tmp.p("d")), all, "{words:?}");
    }
}

/// What of a file cannot be kept on another file system is told by its name. A file whose copy lacks what it can never have there
/// goes all the same, and stays where the same may go well another time.
#[test]
fn what_a_move_could_not_keep_is_told_by_its_name() {
    needs!(is_root() && has_tool("strace"), "only root mounts, and there must be strace");
    let tmp = Tmp::new();
    let _far = Mount::tmpfs("size=1m", &tmp.dir("far")).unwrap();
    for (call, what) in [
        ("fchmod", "mv: preserving permissions for 'far/f': "),
        ("utimensat", "mv: preserving times for 'far/f': "),
        ("fchown", "mv: failed to preserve ownership for 'far/f': "),
    ] {
        for (error, why, goes) in [
            ("EPERM", "Operation not permitted\n", true),
            ("EOPNOTSUPP", "Operation not supported\n", true),
            ("EIO", "Input/output error\n", false),
        ] {
            // That files cannot be given away is what every user meets.
            if call == "fchown" && error != "EIO" {
                continue;
            }
            let file = tmp.file("f", "content");
            chmod(&file, 0o640);
            std::os::unix::fs::chown(&file, Some(1), Some(1)).unwrap();
            let line = bcmr_failing_at("1+", call, error).args(["mv", "f", "far"]).cwd(tmp.path());
            let ran = line.run().code(i32::from(!goes));
            assert_eq!(ran.err, format!("{what}{why}"), "{call} {error}");
            assert_eq!((read(&tmp.p("far/f")).as_str(), file.exists()), ("content", !goes), "{call} {error}");
            std::fs::remove_file(tmp.p("far/f")).unwrap();
        }
    }
    // In a tree too, and what is moved is not told to have been at the destination.
    tmp.dir("t/empty");
    let mut failed = 0;
    for which in ["1", "2", "3", "4", "1+", "2+"] {
        for call in ["fchmod", "utimensat"] {
            tmp.dir("t/empty");
            chmod(&tmp.p("t/empty"), 0o750);
            let line = bcmr_failing_at(which, call, "EIO").args(["mv", "-T", "t", "far/u"]).cwd(tmp.path());
            let ran = line.run().one_of(&[0, 1]);
            failed += ran.code;
            let is_true =
                |line: &str| line.starts_with("mv: preserving ") || line.starts_with("mv: cannot move 't");
            assert!(ran.err.lines().all(is_true), "{call} {which}: {}", ran.err);
            if call == "utimensat" && which == "1+" {
                let first = "mv: preserving times for 'far/u/empty': Input/output error\nmv: preserving times for 'far/u': ";
                assert!(ran.err.starts_with(first), "{}", ran.err);
            }
            assert!(tmp.p("t/empty").exists() || tmp.p("far/u/empty").exists(), "{call} {which}");
            if tmp.p("far/u").exists() {
                std::fs::remove_dir_all(tmp.p("far/u")).unwrap();
            }
        }
    }
    assert!(failed > 0, "nothing has failed");
}

/// What a killed `mv` of a directory leaves is ended by `bcmr move`.
#[test]
fn a_killed_move_of_a_directory_is_ended_by_the_verb() {
    needs!(is_root() && has_tool("strace"), "only root mounts, and there must be strace");
    let tmp = Tmp::new();
    let far = Mount::tmpfs("size=1m", &tmp.dir("far")).unwrap();
    tmp.file("t/f", "f");
    tmp.file("t/g", "g");
    for nth in [2, 1] {
        bcmr_killed_at(nth, "unlinkat").args(["mv", "t", "far"]).cwd(tmp.path()).run().one_of(&[137, 1009]);
        gnu(&tmp, ["mv", "t", "far"]).run().code(1).says("unable to remove target: Directory not empty\n");
        bcmr(["move", "t", "far"]).cwd(tmp.path()).run().ok();
        assert!(!tmp.p("t").exists());
        assert_eq!((read(&tmp.p("far/t/f")).as_str(), read(&tmp.p("far/t/g")).as_str()), ("f", "g"));
        assert_no_litter(far.path());
        bcmr(["move", "far/t", "."]).cwd(tmp.path()).run().ok();
    }
}

/// An ACL that the file system there cannot have is told, as GNU's programs do: cp fails by it, and mv goes on.
#[test]
fn an_acl_that_is_not_possible_is_told() {
    needs!(is_root() && has_tool("setfacl"), "needs root and setfacl");
    let tmp = Tmp::new();
    let mount = match Mount::new(&["-t", "ramfs", "ramfs"].map(std::ffi::OsStr::new), &tmp.p("m")) {
        Ok(mount) => mount,
        Err(why) => return skipped("an_acl_that_is_not_possible_is_told", &why),
    };
    let plain = tmp.file("plain", "x");
    rustix::fs::lsetxattr(&plain, "user.a", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    for name in ["f", "d/f"] {
        tmp.file(name, "x");
    }
    let setfacl = ["-Rm", "u:9:rw", "f", "d"];
    let given = Command::new("setfacl").args(setfacl).current_dir(tmp.path()).status().unwrap();
    assert!(given.success());
    let says = |name: &str| format!("preserving permissions for 'm/{name}': Operation not supported");
    for words in [
        ["cp", "-p", "f", "m/p"],
        ["cp", "-a", "f", "m/a"],
        ["cp", "-a", "d", "m/d"],
        ["cp", "-p", "f", "m/p"],
    ] {
        gnu(&tmp, words).run().code(1).says(&says(&words[3][2..]));
    }
    gnu(&tmp, ["mv", "f", "m/moved"]).run().ok().says(&says("moved"));
    gnu(&tmp, ["mv", "d", "m/dir"]).run().ok().says(&says("dir"));
    assert!(!tmp.p("f").exists() && !tmp.p("d").exists());
    assert!(mount.path().join("moved").exists() && mount.path().join("dir/f").exists());
    // The twin: other attributes may be lost, and so may an ACL that nobody asked for.
    gnu(&tmp, ["cp", "-a", "plain", "m/plain"]).run().ok();
    tmp.file("g", "x");
    gnu(&tmp, ["cp", "g", "m/g"]).run().ok();
}

/// `-l` with links that are followed gives a name to what they lead to. Where a link cannot be read, it gets no name itself.
#[test]
fn a_link_that_cannot_be_read_is_not_linked_to() {
    needs!(has_tool("strace"), "there is no strace");
    let tmp = Tmp::new();
    tmp.file("s/a", "content");
    std::os::unix::fs::symlink("a", tmp.p("s/link")).unwrap();
    let line = |line: Line, to: &str| line.args(["cp", "-rlL", "s", to]).cwd(tmp.path()).run();
    let ran = line(bcmr_failing_at("1+", "readlinkat", "EIO"), "d").code(1);
    ran.says("cannot create hard link 'd/link' to 's/link': Input/output error");
    assert_eq!(names(&tmp.p("d")), ["a"]);
    // Or cannot be looked at, whichever call it is.
    for nth in 1..60 {
        let to = format!("d{nth}");
        let ran = line(bcmr_failing_at(&nth.to_string(), "newfstatat", "EIO"), &to);
        let made = std::fs::symlink_metadata(tmp.p(&to).join("link"));
        assert!(made.is_ok() || ran.code != 0, "call {nth}: {ran:?}");
        assert!(made.is_err() || !made.unwrap().is_symlink(), "call {nth}: {ran:?}");
    }
    line(bcmr::<&str>([]), "whole").ok();
    assert_eq!(of_inode(&tmp.p("whole/link")), of_inode(&tmp.p("s/a")));
}
