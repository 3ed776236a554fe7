//! Copies over true ssh: a private OpenSSH server on loopback, this program found there by its name, every way that the
//! data can take. And over lines that are thin or long.
//!
//! What every flag means is tried over pipes, in `remote.rs`; lost connections are in `remote_lost.rs`.

use crate::common::maker::{Maker, can, judge};
use crate::common::remote::*;
use crate::common::*;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const MIB: usize = 1 << 20;
const CONTENT_HASH: &str = "3fba5250be9ac259c56e7250c526bc83bacb4be825f2799d3d59e5b4878dd74e";

/// A tree of everything, with a file of several blocks in it.
fn plant(root: &Path, seed: u64) {
    Maker::new(seed, can(root.parent().unwrap(), (-2_000_000_000, 4_260_000_000), 1500), root).make(40);
    fs::create_dir_all(root.join("large")).unwrap();
    fs::write(root.join("large/random"), noise(seed, 9 * MIB + 1)).unwrap();
    fs::write(root.join("large/text"), "so it packs well\n".repeat(200_000)).unwrap();
    fs::hard_link(root.join("large/random"), root.join("another name")).unwrap();
}

fn seed() -> u64 {
    std::env::var("BCMR_SEED")
        .map_or(u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()), |s| s.parse().unwrap())
}

/// A tree goes there and comes back by each of these ways, and rsync finds nothing to do; in an ordinary run it
/// does one of the two by each.
fn there_and_back(far: &Far, ways: &[&str]) {
    let (seed, both) = (seed(), all_cases());
    let tmp = Tmp::new();
    let src = tmp.p("src");
    plant(&src, seed);
    for (n, way) in ways.iter().enumerate() {
        let (there, back) = (tmp.p(format!("there{n}")), tmp.p(format!("back{n}")));
        let flags = format!("--archive -T -v {way}");
        let steps = [(Dir::Put, &src, &there), (Dir::Get, if both { &there } else { &src }, &back)];
        for (dir, from, to) in steps.into_iter().filter(|(dir, ..)| both || n % 2 == *dir as usize) {
            let direct = way.contains("--direct=direct");
            let once = || dir.copy(far, &flags, from, to).run();
            let ran = if direct { past_ssh(to, once) } else { once() };
            assert_eq!(ran.code, 0, "BCMR_SEED={seed}, {dir:?} {way}: {}", ran.err);
            judge(seed, &format!("{dir:?} {way}"), &src, to);
            assert_eq!(went_past_ssh(&ran.err), direct, "{dir:?} {way}: {}", ran.err);
        }
        for made in [there, back].iter().filter(|made| made.exists()) {
            fs::remove_dir_all(made).unwrap();
        }
    }
    assert_no_litter(tmp.path());
}

#[test]
fn trees_by_every_way() {
    let Some(far) = Far::ssh("trees_by_every_way", Path::new(BCMR), &[]) else { return };
    there_and_back(
        &far,
        &[
            "",
            "--parallel=3",
            "--direct=direct",
            "--direct=direct --parallel=3 -V",
            "--compress=zstd",
            "--compress=lz4 --parallel=2",
            "--compress=none --fast",
            "--sync -C",
        ],
    );
}

/// What ssh is told for further connections is told to ssh, and not to what starts it.
#[test]
fn several_connections_by_a_command_that_starts_ssh() {
    let test = "several_connections_by_a_command_that_starts_ssh";
    let Some(far) = Far::ssh(test, Path::new(BCMR), &[]) else { return };
    let far = far.over(Path::new("env -u NO_SUCH_NAME ssh"));
    let tmp = Tmp::new();
    let src = tmp.file("src", noise(1, 16 * MIB));
    for dir in BOTH {
        let ran = dir.copy(&far, "--parallel=3 --compress=none", &src, &tmp.p("dst")).run().ok();
        assert!(!ran.err.contains("could not be opened"), "{dir:?}: {}", ran.err);
        fs::remove_file(tmp.p("dst")).unwrap();
    }
}

/// ssh is asked for its configuration once, with the user's and without it, however many connections there are.
#[test]
fn ssh_is_asked_for_its_configuration_once() {
    let Some(far) = Far::ssh("ssh_is_asked_for_its_configuration_once", Path::new(BCMR), &[]) else { return };
    let tmp = Tmp::new();
    let (log, src) = (tmp.p("log"), tmp.file("src", noise(1, 16 * MIB)));
    let told = format!("#!/bin/sh\necho \"$1\" >> {}\nexec ssh \"$@\"\n", log.display());
    let ssh = tmp.file("ssh", told);
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let far = far.over(&ssh);
    let ways = [("", 1), ("--parallel=3 --compress=none", 3), ("--direct=direct", 1)];
    for (dir, (flags, connections)) in BOTH.into_iter().flat_map(|dir| ways.map(|way| (dir, way))) {
        dir.copy(&far, flags, &src, &tmp.p("dst")).run().ok();
        let log = fs::read_to_string(&log).unwrap();
        let asked = log.lines().filter(|first| *first == "-G").count();
        assert!(asked <= 2 && log.lines().count() - asked >= connections, "{dir:?} {flags}: {log}");
        fs::remove_file(tmp.p("dst")).unwrap();
        fs::remove_file(tmp.p("log")).unwrap();
    }
}

/// What a first upload left there need not be sent again, not even under another name or in a tree.
#[test]
fn what_is_there_already_is_not_sent_again() {
    let test = "what_is_there_already_is_not_sent_again";
    let Some((far, own)) = counted_ssh(test) else { return };
    let tmp = Tmp::new();
    // Shorter files are not looked for.
    let bytes = if all_cases() { 20 * MIB } else { 16 * MIB };
    tmp.file("src/once", noise(3, bytes));
    let sent = || passed(&own.p("log")).iter().map(|(up, _)| *up as usize).sum::<usize>();
    let put = |flags: &str, name: &str| {
        let before = sent();
        Dir::Put.copy(&far, flags, &tmp.p("src"), &tmp.p(name)).run().ok();
        assert_same(&tmp.p("src"), &tmp.p(name), EVERYTHING);
        // The relay says it when both ends are gone.
        assert!(within(10, || sent() > before), "the relay says nothing");
        sent() - before
    };
    let first = put("--archive -T --dedup --compress=none", "first");
    assert!(first > bytes, "{first}");
    let second = put("--archive -T --dedup --compress=none", "second");
    assert!(second < bytes / 10, "{second} bytes were sent");
    let without = put("--archive -T --no-dedup --compress=none", "third");
    assert!(without > bytes, "{without}");
    // What the store refers to is changed: nothing of it may get into a file.
    for name in ["first", "second", "third"] {
        fs::write(tmp.p(name).join("once"), noise(4, bytes)).unwrap();
    }
    let again = put("--archive -T --dedup --compress=none", "fourth");
    assert!(again > bytes, "{again} bytes cannot be all of it");
}

/// What a machine has sent before it need not send again, whatever it is called there or here; by `copy` and `sync`, alone and in a
/// tree. Another host gets no help of it, though it is the same machine.
#[test]
fn what_came_before_does_not_come_again() {
    let test = "what_came_before_does_not_come_again";
    let Some((far, own)) = counted_ssh(test) else { return };
    let tmp = Tmp::new();
    // Shorter files are not looked for.
    let bytes = if all_cases() { 20 * MIB } else { 16 * MIB };
    let content = noise(3, bytes);
    tmp.file("src/once", &content);
    tmp.file("elsewhere/renamed", &content);
    let came = || passed(&own.p("log")).iter().map(|(_, down)| *down as usize).sum::<usize>();
    let get = |line: Line, from: &str, name: &str| {
        let before = came();
        Dir::Get.ends(line, &far, &tmp.p(from), &tmp.p(name)).run().ok();
        match tmp.p(from).is_dir() {
            true => assert_same(&tmp.p(from), &tmp.p(name), CONTENT),
            false => assert!(fs::read(tmp.p(name)).unwrap() == content),
        }
        // The relay says it when both ends are gone.
        assert!(within(10, || came() > before), "the relay says nothing");
        came() - before
    };
    let copy =
        |flags: &str| far.bcmr("copy").args(format!("-r -T --compress=none {flags}").split_whitespace());
    let first = get(copy("--dedup"), "src", "first");
    assert!(first > bytes, "{first}");
    let rows = [("copy", "src", "second"), ("copy", "elsewhere", "third"), ("sync", "elsewhere", "fourth")];
    for (verb, from, name) in rows {
        let line = if verb == "copy" { copy("") } else { far.bcmr("sync").args(["--compress=none"]) };
        let again = get(line, from, name);
        assert!(again < bytes / 10, "{verb} {from}: {again} bytes came");
    }
    let alone = get(far.bcmr("copy").args(["-T", "--parallel=3"]), "src/once", "alone");
    assert!(alone < bytes / 10, "{alone}");
    // To be told to go another way may be to be told to go elsewhere.
    for flags in ["--no-dedup", "-o LogLevel=ERROR"] {
        let all = get(copy(flags), "src", &format!("all{}", flags.len()));
        assert!(all > bytes, "{flags}: {all}");
    }
    // What the store refers to is changed: nothing of it may get into a file.
    for name in ["first/once", "second/once", "third/renamed", "fourth/renamed", "alone"] {
        fs::write(tmp.p(name), noise(4, bytes)).unwrap();
    }
    let again = get(copy(""), "src", "fifth");
    assert!(again > bytes, "{again} bytes cannot be all of it");
}

/// Questions about paths, over true ssh.
#[test]
fn looking() {
    let Some(far) = Far::ssh("looking", Path::new(BCMR), &[]) else { return };
    let tmp = Tmp::new();
    tmp.file("d/a", "content");
    let ask = |verb: &str, path: &str| far.bcmr(verb).args([far.at(tmp.p(path))]).run().ok().out;
    assert!(ask("ls", "d").contains('a'));
    assert!(ask("stat", "d/a").contains('7'));
    assert!(ask("du", "d").contains('7'));
    // BLAKE3 of "content", as b3sum tells it.
    assert!(ask("hash", "d/a").contains(CONTENT_HASH));
    let doctor = far.bcmr("doctor").args([far.at("")]).run();
    assert_eq!(doctor.code, 0, "{}{}", doctor.out, doctor.err);
}

/// No bcmr over there: scp copies what loses nothing, refuses the rest before anything is changed, and with --bootstrap
/// there is one.
#[test]
fn without_a_bcmr_there() {
    let test = "without_a_bcmr_there";
    let nowhere = Tmp::new();
    let Some(far) = Far::ssh(test, &nowhere.p("no such program"), &[]) else { return };
    needs!(has_tool("scp"), "it needs scp");
    let tmp = Tmp::new();
    tmp.file("src/a", "one");
    tmp.file("src/d/b", noise(5, 3 * MIB));
    let ran = Dir::Put.copy(&far, "-r", &tmp.p("src"), &tmp.p("there")).run().ok();
    assert!(ran.err.contains("scp"), "{}", ran.err);
    assert_same(&tmp.p("src"), &tmp.p("there"), CONTENT);
    Dir::Get.copy(&far, "-r", &tmp.p("there"), &tmp.p("back")).run().ok();
    assert_same(&tmp.p("src"), &tmp.p("back"), CONTENT);
    let refused = Dir::Put.copy(&far, "--archive -C", &tmp.p("src"), &tmp.p("refused")).run();
    assert_ne!(refused.code, 0, "{}", refused.err);
    assert!(refused.err.contains("--archive") && !tmp.p("refused").exists(), "{}", refused.err);
    // Others could put another program into such a cache, so none is put there: that is known before, and asking for it once
    // more is no help.
    let cache = far.home().join(".cache/bcmr");
    fs::create_dir_all(&cache).unwrap();
    chmod(&cache, 0o775);
    let open = Dir::Put.copy(&far, "--archive --bootstrap", &tmp.p("src"), &tmp.p("kept")).run().code(1);
    assert!(open.err.contains("others may write") && !open.err.contains("hint:"), "{}", open.err);
    let doctor = far.bcmr("doctor").args(["--bootstrap".into(), far.at("")]).run().code(1);
    assert!(
        doctor.out.contains("others may write") && !doctor.out.contains("put there first"),
        "{}",
        doctor.out
    );
    chmod(&cache, 0o755);
    // Put there, and used.
    Dir::Put.copy(&far, "--archive --bootstrap", &tmp.p("src"), &tmp.p("kept")).run().ok();
    assert_same(&tmp.p("src"), &tmp.p("kept"), EVERYTHING);
    // Left there, and found.
    Dir::Get.copy(&far, "--archive", &tmp.p("kept"), &tmp.p("kept back")).run().ok();
    assert_same(&tmp.p("src"), &tmp.p("kept back"), EVERYTHING);
}

/// Installed over there, where a shell without a login does not look. A list of names on standard input is still
/// whole when the second try reads it.
#[test]
fn found_where_the_shell_does_not_look() {
    let nowhere = Tmp::new();
    let test = "found_where_the_shell_does_not_look";
    let Some(far) = Far::ssh(test, &nowhere.p("no such program"), &[]) else { return };
    fs::create_dir_all(far.home().join(".local/bin")).unwrap();
    std::os::unix::fs::symlink(BCMR, far.home().join(".local/bin/bcmr")).unwrap();
    let tmp = Tmp::new();
    tmp.file("src/a", "one");
    tmp.file("src/d/b", "two");
    tmp.file("src/not", "three");
    for (n, retries) in ["", "--retries=1"].iter().enumerate() {
        let (there, back) = (tmp.p(format!("there{n}")), tmp.p(format!("back{n}")));
        // An ordinary run goes one way with each, and so fetches what is here from the beginning.
        let get_from = if all_cases() { there.clone() } else { tmp.p("src") };
        let steps = [(Dir::Put, tmp.p("src"), &there), (Dir::Get, get_from, &back)];
        for (dir, from, to) in steps.into_iter().filter(|(dir, ..)| in_slice(n + *dir as usize, 2)) {
            let line = dir.copy(&far, &format!("-v -r -T --files-from=- {retries}"), &from, to);
            let ran = line.input("a\nd/b\n").run().ok();
            assert!(ran.err.contains(".local/bin/bcmr"), "{}", ran.err);
            assert_eq!(names(to), ["a", "d"], "{dir:?} {retries}");
            assert_eq!(fs::read(to.join("d/b")).unwrap(), b"two");
        }
    }
    let doctor = far.bcmr("doctor").args([far.at("")]).run();
    assert!(doctor.code == 0 && doctor.out.contains(".local/bin/bcmr"), "{}{}", doctor.out, doctor.err);
}

/// An account that has SFTP and nothing else: what scp can do is done, the rest is refused.
#[test]
fn an_account_for_sftp_only() {
    let test = "an_account_for_sftp_only";
    let Some(far) = Far::ssh(test, Path::new(BCMR), &["ForceCommand internal-sftp"]) else { return };
    needs!(has_tool("scp"), "it needs scp");
    let tmp = Tmp::new();
    tmp.file("src/a", "one");
    let ran = Dir::Put.copy(&far, "-r --json", &tmp.p("src"), &tmp.p("there")).run().ok();
    assert!(ran.out.contains("\"carrier\":\"scp\"") && ran.out.contains("links"), "{}{}", ran.out, ran.err);
    assert_same(&tmp.p("src"), &tmp.p("there"), CONTENT);
    let refused = Dir::Put.copy(&far, "-r --sync", &tmp.p("src"), &tmp.p("refused")).run();
    assert!(refused.code != 0 && refused.err.contains("--sync"), "{}", refused.err);
    assert!(!tmp.p("refused").exists());
    let doctor = far.bcmr("doctor").args([far.at("")]).run();
    assert!(doctor.out.contains("by scp"), "{}{}", doctor.out, doctor.err);
}

/// Where the address that ssh connects to is not known, the data goes over ssh, and that is said.
#[test]
fn direct_where_it_cannot_be() {
    let far = Far::pipe().with("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22");
    let tmp = Tmp::new();
    tmp.file("a", noise(3, MIB));
    let ran = Dir::Put.copy(&far, "--direct=direct -v", &tmp.p("a"), &tmp.p("b")).run().ok();
    assert!(ran.err.contains("going on over ssh"), "{}", ran.err);
    assert_eq!(fs::read(tmp.p("b")).unwrap(), fs::read(tmp.p("a")).unwrap());
}

/// Answers take 25 ms in each direction.
#[test]
fn a_long_line() {
    needs!(python().is_some(), "it needs python3");
    let far = Far::relay().with("RELAY_DELAY_MS", "25");
    there_and_back(&far, &["", "--parallel=2 --compress=none", "-C --sync"]);
}

/// Much goes over as many connections as fill a long line.
#[test]
fn much_over_a_long_line() {
    needs!(python().is_some(), "it needs python3");
    let tmp = Tmp::new();
    let large = tmp.file("large", "");
    // A hole is sent as a length.
    fs::File::options().write(true).open(&large).unwrap().set_len(256 << 20).unwrap();
    for dir in BOTH {
        for (flags, connections) in [("", 8), ("--parallel=1", 1), ("--parallel=3", 3)] {
            let (log, dst) = (tmp.file("log", ""), tmp.p("dst"));
            let far = Far::relay().with("RELAY_DELAY_MS", "60").with("RELAY_LOG", log.to_str().unwrap());
            dir.copy(&far, flags, &large, &dst).run().ok();
            assert_eq!(fs::metadata(&dst).unwrap().len(), 256 << 20);
            let ended = || fs::read_to_string(&log).unwrap().lines().count();
            assert!(within(20, || ended() >= connections), "{dir:?} {flags}: {}", ended());
            assert_eq!(ended(), connections, "{dir:?} {flags}");
            fs::remove_file(dst).unwrap();
        }
    }
}

/// 80 Mbit/s, with the short queue of a true line: a network namespace whose loopback has a token bucket.
#[test]
fn a_thin_line() {
    needs!(is_root(), "a network namespace needs root");
    needs!(has_tool("ip") && has_tool("tc"), "it needs ip and tc (Debian: iproute2)");
    let space = match Space::new() {
        Ok(space) => space,
        Err(why) => return skipped("a_thin_line", &why),
    };
    // A thread of its own goes inside; what it starts stays there.
    let inside = std::thread::scope(|scope| {
        let go = || {
            move_into_link_name_space(space.file().as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let Some(far) = Far::ssh("a_thin_line", Path::new(BCMR), &[]) else { return };
            there_and_back(&far, &["", "--direct=direct --parallel=2 --compress=none"]);
        };
        scope.spawn(go).join()
    });
    inside.unwrap();
}

/// A network namespace, gone with this.
struct Space(String);

impl Space {
    fn new() -> Result<Space, String> {
        let space = Space(format!("bcmr-test-{}", std::process::id()));
        let name = space.0.as_str();
        let ip = |args: &[&str]| ran("ip", args);
        ip(&["netns", "add", name])?;
        // As large packets as a true line has.
        ip(&["-n", name, "link", "set", "lo", "mtu", "1500", "up"])?;
        let bucket = "qdisc add dev lo root tbf rate 80mbit burst 64kb latency 100ms";
        ran("tc", &[&["-n", name], &bucket.split(' ').collect::<Vec<_>>()[..]].concat())?;
        Ok(space)
    }

    fn file(&self) -> fs::File {
        fs::File::open(Path::new("/run/netns").join(&self.0)).unwrap()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _gone = ran("ip", &["netns", "del", &self.0]);
    }
}

fn ran(program: &str, args: &[&str]) -> Result<(), String> {
    let out = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    let said = || format!("{program}: {}", String::from_utf8_lossy(&out.stderr).trim());
    if out.status.success() { Ok(()) } else { Err(said()) }
}
