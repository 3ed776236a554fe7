//! How often ssh asks for a passphrase: once for a command, whatever ways it tries; and what stays of the connection that its
//! sessions share, which is nothing.
//!
//! Must not know how it is shared: ssh's questions are counted, and processes and sockets are looked for from outside.

use super::common::remote::*;
use super::common::*;
use super::terminal::Terminal;
use std::path::{Path, PathBuf};
use std::process::Command;

const WORD: &str = "open sesame";

/// A server, a key with a passphrase, and who is asked for that.
struct Asked {
    far: Far,
    own: Tmp,
    /// Short, as paths of sockets must be.
    runtime: Tmp,
}

impl Asked {
    /// `client` are lines before those of ssh_config, `server` before those of sshd_config.
    fn new(test: &str, program: &Path, client: &str, server: &[&str]) -> Option<Asked> {
        let far = Far::ssh(test, program, server)?;
        let (own, runtime) = (Tmp::new(), Tmp::beneath(Path::new("/tmp")));
        chmod(runtime.path(), 0o700);
        let config = std::fs::read_to_string(far.sshd().config()).unwrap();
        let config = own.file("config", format!("{client}\n{}", config.replace("BatchMode yes\n", "")));
        let key = far.sshd().config().with_file_name("user");
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-a", "1", "-p", "-P", "", "-N", WORD, "-f"]).arg(&key);
        assert!(keygen.output().unwrap().status.success());
        let asks = "#!/bin/sh\necho asked: \"$(ls \"$XDG_RUNTIME_DIR\" | tr '\\n' ' ')\" >> \"$ASKED\"\necho \"$WORD\"\n";
        let asks = own.file("asks", asks);
        chmod(&asks, 0o755);
        let far = far.configured(&config).with("SSH_ASKPASS", &asks).with("SSH_ASKPASS_REQUIRE", "force");
        let far =
            far.with("ASKED", own.p("asked")).with("WORD", WORD).with("XDG_RUNTIME_DIR", runtime.path());
        Some(Asked { far, own, runtime })
    }

    /// What was there each time that something was asked, from now on again.
    fn times(&self) -> Vec<String> {
        let told = std::fs::read_to_string(self.own.p("asked")).unwrap_or_default();
        std::fs::write(self.own.p("asked"), "").unwrap();
        told.lines().map(str::to_owned).collect()
    }

    /// What lies in the runtime directory.
    fn left(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.runtime.path()).unwrap().map(|e| e.unwrap().path()).collect()
    }

    /// Processes of ssh that were told of a socket there.
    fn sharing(&self) -> Vec<u32> {
        let socket = format!("{}/bcmr-ssh-", self.runtime.path().display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&line).contains(&socket) {
                found.push(pid);
            }
        }
        found
    }
}

const NOWHERE: &str = "/nowhere/bcmr";

/// Whichever way the copy takes.
#[test]
fn once_for_a_command() {
    let test = "once_for_a_command";
    let rows = [(BCMR, ""), (BCMR, "--parallel=3"), (NOWHERE, ""), (NOWHERE, "--bootstrap -V")];
    for (m, (program, flags)) in rows.into_iter().enumerate() {
        let Some(asked) = Asked::new(test, Path::new(program), "", &[]) else { return };
        let tmp = Tmp::new();
        tmp.file("src.log", noise(1, 3 << 20));
        for (n, dir) in BOTH.into_iter().cycle().take(4).enumerate() {
            // An ordinary run goes one way by each: either program is met by both.
            if !all_cases() && n != (m + m / 2) % 2 {
                continue;
            }
            let ran = dir.copy(&asked.far, flags, &tmp.p("src.log"), &tmp.p(format!("dst {n}"))).run().ok();
            let times = asked.times();
            assert_eq!(times.len(), 1, "{program} {flags} {dir:?}: {times:?} {ran:?}");
            assert!(times[0].contains("bcmr-ssh-"), "{times:?}");
            assert_eq!(std::fs::read(tmp.p(format!("dst {n}"))).unwrap(), noise(1, 3 << 20));
            assert_eq!((asked.left(), asked.sharing()), (vec![], vec![]), "{program} {flags} {dir:?}");
        }
        // None of these flags is said here: an ordinary run asks each program once.
        if (program == BCMR && in_slice(m, 2)) || flags.contains("--bootstrap") {
            // A pattern is looked up over a connection of its own.
            let to = tmp.dir("found");
            asked.far.bcmr("copy").args([asked.far.at(tmp.p("*.log")), to.into()]).run().ok();
            assert_eq!(asked.times().len(), 1, "{program} {flags}");
            assert_eq!(std::fs::read(tmp.p("found/src.log")).unwrap(), noise(1, 3 << 20));
            asked.far.bcmr("ls").args([asked.far.at(tmp.path())]).run().ok();
            assert_eq!(asked.times().len(), 1, "{program} {flags}");
        }
        assert_eq!((asked.left(), asked.sharing()), (vec![], vec![]));
    }
}

/// A passphrase that is wrong is asked for as often as ssh asks for one, and then it is over, for the same reason as ever.
#[test]
fn a_wrong_answer_ends_it() {
    let Some(asked) = Asked::new("a_wrong_answer_ends_it", Path::new(NOWHERE), "", &[]) else { return };
    let tmp = Tmp::new();
    let mut command = Command::new("ssh");
    command.arg("-F").arg(asked.own.p("config")).args(["there", "true"]);
    let askpass = asked.own.p("asks");
    command.env("SSH_ASKPASS", askpass).env("SSH_ASKPASS_REQUIRE", "force").env("WORD", "wrong");
    command.env("ASKED", asked.own.p("asked")).env("XDG_RUNTIME_DIR", asked.runtime.path());
    assert!(!command.output().unwrap().status.success());
    let alone = asked.times().len();
    let asked = Asked { far: asked.far.with("WORD", "wrong"), ..asked };
    tmp.file("src", "content");
    for flags in ["", "--retries=2 -C"] {
        let ran = Dir::Put.copy(&asked.far, flags, &tmp.p("src"), &tmp.p("dst")).run().code(7);
        assert_eq!(asked.times().len(), alone, "{flags}: {ran:?}");
        assert!(ran.err.contains("Permission denied (publickey)"), "{ran:?}");
        assert_eq!((asked.left(), asked.sharing()), (vec![], vec![]));
    }
}

/// A user who has said how connections are shared has it so: with a connection that is there nothing is asked, and it stays; with none
/// each ssh asks.
#[test]
fn the_users_own_sharing_is_left_alone() {
    let test = "the_users_own_sharing_is_left_alone";
    let dir = Tmp::beneath(Path::new("/tmp"));
    let socket = dir.p("own");
    for (client, typed) in [
        (format!("ControlPath {}", socket.display()), ""),
        (String::new(), "-oControlPath=none"),
        (format!("ControlMaster auto\nControlPath {}\nControlPersist 600", socket.display()), ""),
    ] {
        let Some(asked) = Asked::new(test, Path::new(NOWHERE), &client, &[]) else { return };
        let tmp = Tmp::new();
        tmp.file("src", "content");
        let copy = || Dir::Put.copy(&asked.far, typed, &tmp.p("src"), &tmp.p("dst")).run().ok();
        copy();
        let times = asked.times();
        assert!(times.iter().all(|there| !there.contains("bcmr-ssh-")), "{client}: {times:?}");
        let own = |what: &str| {
            let mut ssh = Command::new("ssh");
            ssh.arg("-F").arg(asked.own.p("config")).args(["-O", what, "there"]);
            ssh.output().unwrap().status.success()
        };
        if client.contains("ControlPersist") {
            assert_eq!(times.len(), 1, "{client}");
            copy();
            assert_eq!(asked.times().len(), 0, "it is there still");
            assert!(own("check") && own("exit"), "{client}");
        } else {
            assert_eq!(times.len(), 3, "{client}: for bcmr, for its cache, and for scp");
            assert!(!socket.exists());
        }
        assert_eq!((asked.left(), asked.sharing()), (vec![], vec![]));
    }
}

/// A server that lets a connection have but one session: each ssh connects by itself then.
#[test]
fn one_session_is_enough() {
    for (n, (program, most)) in [(BCMR, 2), (NOWHERE, 4)].into_iter().enumerate() {
        let one = &["MaxSessions 1"];
        let Some(asked) = Asked::new("one_session_is_enough", Path::new(program), "", one) else { return };
        let tmp = Tmp::new();
        tmp.file("src", noise(1, 1 << 20));
        // An ordinary run goes one way by each.
        for dir in BOTH.into_iter().filter(|dir| in_slice(n + *dir as usize, 2)) {
            dir.copy(&asked.far, "", &tmp.p("src"), &tmp.p("dst")).run().ok();
            assert_eq!(std::fs::read(tmp.p("dst")).unwrap(), noise(1, 1 << 20));
            std::fs::remove_file(tmp.p("dst")).unwrap();
            let times = asked.times();
            assert_eq!(times.len(), most, "{program} {dir:?}: {times:?}");
            assert_eq!((asked.left(), asked.sharing()), (vec![], vec![]));
        }
    }
}

/// A key that may run one command, an account that has SFTP alone, and one that may run nothing: what keeps the connection is not
/// run there either, and it is kept all the same, or there is none to share.
#[test]
fn accounts_that_run_no_command() {
    let test = "accounts_that_run_no_command";
    let tmp = Tmp::new();
    tmp.file("src", "content");
    let confined = format!("ForceCommand bcmr serve --root {}", tmp.path().display());
    // Without the connection: 1 and 3. What keeps it ends at once where there is SFTP alone, before or after it is of use.
    let rows = [
        (confined.as_str(), Some(1..=1)),
        ("ForceCommand internal-sftp", Some(2..=3)),
        ("ForceCommand false", None),
    ];
    for (n, (server, times)) in rows.into_iter().enumerate() {
        let Some(asked) = Asked::new(test, Path::new(BCMR), "", &[server]) else { return };
        // An ordinary run goes one way by each.
        for dir in BOTH.into_iter().filter(|dir| in_slice(n + *dir as usize, 2)) {
            let dst = tmp.p("dst");
            let (from, to) = match (dir, server == confined) {
                // Paths are below the root.
                (Dir::Put, true) => (tmp.p("src"), "dst".into()),
                (Dir::Get, true) => ("src".into(), dst.clone()),
                _ => (tmp.p("src"), dst.clone()),
            };
            let ran = dir.copy(&asked.far, "", &from, &to).run();
            let told = asked.times();
            if let Some(times) = &times {
                assert!(ran.code == 0 && times.contains(&told.len()), "{server} {dir:?}: {told:?} {ran:?}");
                assert_eq!(std::fs::read(&dst).unwrap(), b"content");
                std::fs::remove_file(&dst).unwrap();
            } else {
                assert!(ran.code != 0 && !dst.exists(), "{ran:?}");
            }
            assert_eq!((asked.left(), asked.sharing()), (vec![], vec![]));
        }
    }
}

/// Once it is lost nothing of it is used again: each further attempt asks.
#[test]
fn each_new_connection_asks() {
    needs!(python().is_some(), "it needs python3");
    let relay = python_script("relay-tcp");
    let client = format!("ProxyCommand {relay} %h %p");
    let Some(asked) = Asked::new("each_new_connection_asks", Path::new(BCMR), &client, &[]) else { return };
    let tmp = Tmp::new();
    tmp.file("src", noise(1, 24 << 20));
    let log = asked.own.p("log");
    let far = asked.far.with("RELAY_LOG", &log).with("RELAY_UP", (15 << 20).to_string());
    let asked = Asked { far, ..asked };
    let flags = "-C --checkpoint-size=4M --retries=3 --parallel=1 --compress=none --no-dedup";
    Dir::Put.copy(&asked.far, flags, &tmp.p("src"), &tmp.p("dst")).run().ok();
    assert_eq!(std::fs::read(tmp.p("dst")).unwrap(), noise(1, 24 << 20));
    let times = asked.times().len();
    assert!(times > 1, "it was not lost");
    // The relay says it when both ends are gone.
    assert!(within(10, || passed(&log).len() == times), "{times} questions, {:?}", passed(&log));
    assert_eq!((asked.left(), asked.sharing()), (vec![], vec![]));
}

/// The same where it still stands, as far as ssh knows: that a line is dead ssh may learn much later.
#[test]
fn what_was_lost_is_not_trusted_again() {
    let test = "what_was_lost_is_not_trusted_again";
    let Some(asked) = Asked::new(test, Path::new(BCMR), "", &[]) else { return };
    let tmp = Tmp::new();
    tmp.file("src", noise(1, 1 << 20));
    let flags = "--retries=1 --bwlimit=200K --compress=none";
    let running = Dir::Put.copy(&asked.far, flags, &tmp.p("src"), &tmp.p("dst")).start();
    assert!(within(20, || !servers(&asked.far).is_empty()), "it never began");
    servers(&asked.far).into_iter().for_each(kill);
    running.wait().ok();
    assert_eq!(std::fs::read(tmp.p("dst")).unwrap(), noise(1, 1 << 20));
    assert_eq!(asked.times().len(), 2);
    assert_eq!((asked.left(), asked.sharing()), (vec![], vec![]));
}

/// Further connections are connections: what they carry does not share one.
#[test]
fn further_connections_are_their_own() {
    needs!(python().is_some(), "it needs python3");
    let relay = python_script("relay-tcp");
    let client = format!("ProxyCommand {relay} %h %p");
    let test = "further_connections_are_their_own";
    let Some(asked) = Asked::new(test, Path::new(BCMR), &client, &[]) else { return };
    let key = asked.far.sshd().config().with_file_name("user");
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-p", "-P", WORD, "-N", "", "-f"]).arg(&key);
    assert!(keygen.output().unwrap().status.success());
    let log = asked.own.p("log");
    let asked = Asked { far: asked.far.with("RELAY_LOG", &log), ..asked };
    let tmp = Tmp::new();
    tmp.file("src", noise(1, 40 << 20));
    Dir::Put.copy(&asked.far, "--parallel=3 --no-dedup", &tmp.p("src"), &tmp.p("dst")).run().ok();
    assert!(within(10, || passed(&log).len() == 3), "{:?}", passed(&log));
    assert_eq!(asked.times().len(), 0);
}

/// What holds the connection ends when its command does, however that ends; what it leaves then the next one removes.
#[test]
fn nothing_outlives_a_kill() {
    let Some(asked) = Asked::new("nothing_outlives_a_kill", Path::new(BCMR), "", &[]) else { return };
    let tmp = Tmp::new();
    tmp.file("src", noise(1, 1 << 20));
    let line = Dir::Put.copy(&asked.far, "--bwlimit=1K", &tmp.p("src"), &tmp.p("dst"));
    let running = line.start();
    assert!(within(20, || !servers(&asked.far).is_empty()), "it never began");
    assert!(!asked.sharing().is_empty());
    running.signal(rustix::process::Signal::KILL);
    running.wait().code(1009);
    assert!(within(20, || asked.sharing().is_empty()), "{:?} live on", asked.sharing());
    assert!(within(20, || !asked.far.sshd().busy()), "{}", asked.far.sshd().log());
    let is_ssh = |dir: &PathBuf| dir.to_string_lossy().contains("/bcmr-ssh-");
    assert!(asked.left().iter().filter(|dir| is_ssh(dir)).all(|dir| !dir.join("socket").exists()));
    Dir::Put.copy(&asked.far, "", &tmp.p("src"), &tmp.p("dst")).run().ok();
    assert_eq!(asked.left(), Vec::<PathBuf>::new());
}

/// Ctrl-C at the terminal is for bcmr, which stops in order over the connection that it has.
#[test]
fn an_interrupt_does_not_reach_the_connection() {
    needs!(has_tool("setsid"), "it needs setsid");
    let test = "an_interrupt_does_not_reach_the_connection";
    let Some(asked) = Asked::new(test, Path::new(BCMR), "", &[]) else { return };
    let tmp = Tmp::new();
    tmp.file("src", noise(1, 8 << 20));
    let asked = Asked { far: asked.far.with("SSH_ASKPASS_REQUIRE", "never"), ..asked };
    let flags = "--bwlimit=100K --compress=none -q";
    let line = Dir::Put.copy(&asked.far, flags, &tmp.p("src"), &tmp.p("dst"));
    let mut terminal = Terminal::start(line);
    terminal.until("Enter passphrase for key");
    terminal.type_in(&format!("{WORD}\n"));
    assert!(within(20, || !servers(&asked.far).is_empty()), "it never began");
    terminal.type_in("\x03");
    let (shown, code) = terminal.end();
    assert_eq!(code, 130, "{shown}");
    assert!(!shown.contains("connection") && !shown.contains("lost"), "{shown}");
    assert!(within(20, || !asked.far.sshd().busy()));
    assert_no_litter(tmp.path());
    assert_eq!((asked.left(), asked.sharing()), (vec![], vec![]));
}

/// Ctrl-C where ssh asks ends ssh as well, and is a stop all the same.
#[test]
fn an_interrupt_at_the_question_is_a_stop() {
    needs!(has_tool("setsid"), "it needs setsid");
    let test = "an_interrupt_at_the_question_is_a_stop";
    let Some(asked) = Asked::new(test, Path::new(BCMR), "", &[]) else { return };
    let asked = Asked { far: asked.far.with("SSH_ASKPASS_REQUIRE", "never"), ..asked };
    let tmp = Tmp::new();
    tmp.file("src", "small");
    for flags in ["", "--retries=2"] {
        let mut terminal = Terminal::start(Dir::Put.copy(&asked.far, flags, &tmp.p("src"), &tmp.p("dst")));
        terminal.until("Enter passphrase for key");
        terminal.type_in("\x03");
        let (shown, code) = terminal.end();
        assert_eq!(code, 130, "{flags}: {shown}");
        assert!(!shown.contains("cannot connect"), "{shown}");
        assert_eq!((asked.left(), asked.sharing()), (vec![], vec![]));
    }
}

/// A signal to the whole process group, as of a terminal that is closed, of timeout(1) or of a unit that is stopped, ends ssh
/// as well, and is a stop all the same.
#[test]
fn a_signal_that_ends_ssh_as_well_is_a_stop() {
    use rustix::process::{Pid, Signal, kill_process_group};
    use std::os::unix::process::CommandExt;
    let test = "a_signal_that_ends_ssh_as_well_is_a_stop";
    let Some(far) = Far::ssh(test, Path::new(BCMR), &[]) else { return };
    let tmp = Tmp::new();
    tmp.file("src", noise(1, 8 << 20));
    for (dir, flags) in [(Dir::Put, ""), (Dir::Put, "-C"), (Dir::Get, ""), (Dir::Put, "--parallel=3")] {
        for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
            let flags = format!("{flags} --bwlimit=100K --compress=none --no-dedup");
            let mut line = dir.copy(&far, flags.trim_start(), &tmp.p("src"), &tmp.p("dst"));
            line.0.process_group(0);
            let running = line.start();
            assert!(within(20, || !servers(&far).is_empty()), "it never began");
            let group = Pid::from_raw(running.pid().try_into().unwrap()).unwrap();
            kill_process_group(group, signal).unwrap();
            let ran = running.wait().code(code);
            assert!(!ran.err.contains("cannot"), "{dir:?}, {flags}: {}", ran.err);
            assert!(within(20, || !far.sshd().busy() && servers(&far).is_empty()), "{}", far.sshd().log());
        }
    }
}
