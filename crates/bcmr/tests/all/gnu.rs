//! `cp`, `mv`, `rm` and `install`: what is promised beyond GNU, how the programs are called, and a slice of the lines that
//! `cargo xtask gnu` compares with Debian's own.

use super::common::*;
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
    let lines = if all_cases() { "5000" } else { "150" };
    let ran = Command::new("python3")
        .arg(judge)
        .args(["--bcmr", BCMR, "--seed", "kept", "--lines", lines])
        .output();
    needs!(ran.is_ok(), "python3 is not here");
    let ran = ran.unwrap();
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
        ("fish", "b", "alias brm 'bcmr rm'"),
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
    assert!(bcmr(["help", "letters"]).run().ok().out.contains("--no-clobber"));
}
