//! Why there is no connection: a code and an exit status of its own for each reason, one line of words, and a hint.

use super::common::remote::*;
use super::common::*;
use bcmr_wire::handshake::{self, Features};
use bcmr_wire::message::{Message, kind};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The one `failed` event of a run with `--json`, and its summary's exit.
fn failed(ran: &Ran) -> (serde_json::Value, i64) {
    let lines: Vec<serde_json::Value> = ran.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let failed: Vec<_> = lines.iter().filter(|l| l["event"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{ran:?}");
    (failed[0].clone(), lines.last().unwrap()["exit"].as_i64().unwrap())
}

#[track_caller]
fn assert_told(line: impl Fn() -> Line, code: &str, retryable: bool) {
    let plain = line().run().code(7);
    let words: Vec<&str> = plain.err.lines().collect();
    assert!(words.iter().any(|l| l.starts_with("hint: ")), "{plain:?}");
    assert!(words.iter().all(|l| l.len() < 400), "{plain:?}");
    let ran = line().args(["--json"]).run().code(7);
    let (event, exit) = failed(&ran);
    assert_eq!(
        (event["code"].as_str(), event["retryable"].as_bool()),
        (Some(code), Some(retryable)),
        "{ran:?}"
    );
    assert!(event["hint"].as_str().is_some_and(|h| !h.is_empty()), "{ran:?}");
    assert_eq!(exit, 7);
}

/// ssh's own words, whatever the system would say here.
#[test]
fn each_reason_has_its_code() {
    let tmp = Tmp::new();
    tmp.file("a", "A");
    for (said, code, retryable) in [
        ("ssh: connect to host h port 22: Connection refused", "connection-refused", true),
        ("ssh: Could not resolve hostname h: Name or service not known", "unknown-host", false),
        ("ssh: Could not resolve hostname h: Temporary failure in name resolution", "unreachable", true),
        ("ssh: connect to host h port 22: Connection timed out", "unreachable", true),
        ("me@h: Permission denied (publickey).", "no-key", false),
        ("Host key verification failed.", "unknown-key", false),
        ("Connection closed by 127.0.0.1 port 22", "lost", true),
    ] {
        let ssh = tmp.file("ssh", format!("#!/bin/sh\necho '{said}' >&2\nexit 255\n"));
        chmod(&ssh, 0o755);
        let ssh = format!("--ssh={}", ssh.display());
        for line in [["copy", "a", "h:"], ["copy", "h:a", "b"], ["ls", "--", "h:"], ["hash", "--", "h:x"]] {
            let words =
                || bcmr([line[0], &ssh]).args(line[1..].iter().filter(|w| **w != "--")).cwd(tmp.path());
            assert_told(words, code, retryable);
        }
        bcmr(["check", &ssh, "a", "h:"]).cwd(tmp.path()).run().code(2);
        let doctor = bcmr(["doctor", &ssh, "--json", "h"]).cwd(tmp.path()).run().code(1);
        let events = doctor.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let found: Vec<_> =
            events.filter(|event| event["event"] == "finding" && event["code"] == code).collect();
        assert!(!found.is_empty() && found.iter().all(|event| event["ok"] == false), "{doctor:?}");
    }
}

/// The same by ssh itself.
#[test]
fn what_ssh_itself_says() {
    let Some(far) = Far::ssh("what_ssh_itself_says", Path::new(BCMR), &[]) else { return };
    let tmp = Tmp::new();
    tmp.file("a", "A");
    let config = std::fs::read_to_string(far.sshd().config()).unwrap();
    let known = far.sshd().config().with_file_name("known_hosts");
    let keys = far.sshd().config().with_file_name("authorized_keys");
    let copy = |config: &str| {
        let file = tmp.file("config", config);
        let (a, to) = (tmp.p("a"), far.at(""));
        move || bcmr(["copy", "-F"]).args([file.as_os_str(), a.as_os_str(), &to])
    };
    copy(&config)().run().ok();
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = format!("Port {}", far.sshd().port());
    assert_told(copy(&config.replace(&port, &format!("Port {unused}"))), "connection-refused", true);
    assert_told(copy(&config.replace("127.0.0.1", "no-such-host.invalid")), "unknown-host", false);
    let right = std::fs::read_to_string(&known).unwrap();
    std::fs::write(&known, "").unwrap();
    assert_told(copy(&config), "unknown-key", false);
    // Another key of the same kind.
    let user = std::fs::read_to_string(far.sshd().config().with_file_name("user.pub")).unwrap();
    std::fs::write(&known, format!("* {user}")).unwrap();
    assert_told(copy(&config), "changed-key", false);
    let told = copy(&config)().run().code(7).says("its key is not the one that is recorded").says("SHA256:");
    assert!(!told.err.contains('@') && told.err.contains("known_hosts:1"), "{told:?}");
    std::fs::write(&known, right).unwrap();
    let held = std::fs::read_to_string(&keys).unwrap();
    std::fs::write(&keys, "").unwrap();
    assert_told(copy(&config), "no-key", false);
    std::fs::write(&keys, held).unwrap();
    copy(&config)().run().ok();
}

/// A login that prints text is no obstacle, and `-v` tells what was passed over.
#[test]
fn what_a_login_prints_is_passed_over() {
    let tmp = Tmp::new();
    tmp.file("src/a", noise(1, 3 << 20));
    let run =
        tmp.file("noisy", "#!/bin/sh\nprintf 'Welcome to \\033[1mfar\\033[0m!\\nno tty\\n'\nexec \"$@\"\n");
    chmod(&run, 0o755);
    let far = Far::pipe().with("FAR_RUN", &run);
    for (n, direction) in BOTH.into_iter().enumerate() {
        for flags in ["-r", "-r --parallel=3 --archive"] {
            let dst = tmp.p(format!("dst {n} {}", flags.len()));
            let quiet = direction.copy(&far, flags, &tmp.p("src"), &dst).run().ok();
            assert!(!quiet.err.contains("Welcome"), "{quiet:?}");
            assert_eq!(std::fs::read(dst.join("a")).unwrap(), noise(1, 3 << 20));
        }
        let dst = tmp.p(format!("told {n}"));
        direction.copy(&far, "-rv", &tmp.p("src"), &dst).run().ok().says("passed over: Welcome to");
    }
    far.bcmr("ls").args([far.at("")]).run().ok();
}

/// A user who names the program wants that one: nothing else is run, looked for or put there.
#[test]
fn a_program_that_is_not_there_is_an_error() {
    let tmp = Tmp::new();
    let file = tmp.file("a", "A");
    for program in ["/opt/no-such/bcmr", "bcmrr"] {
        let far = Far::pipe()
            .program(Path::new(program))
            .with("PATH", format!("{}:/usr/bin:/bin", tmp.path().display()));
        // Were scp run, it would say so.
        let scp = tmp.file("scp", "#!/bin/sh\ntouch \"$0.ran\"\n");
        chmod(&scp, 0o755);
        let ran = Dir::Put.copy(&far, "", &file, &far.home().join("copied")).run().code(1);
        let ran = ran.says(&format!("there is no {program} there")).says("--remote-program");
        assert!(!ran.err.contains("scp"), "{ran:?}");
        assert!(!tmp.p("scp.ran").exists() && !far.home().join("copied").exists());
    }
}

/// Why the bcmr there is not used is told as it was found, where scp copies instead and where scp would lose something.
#[test]
fn why_there_is_no_bcmr_to_use_is_told() {
    let mut welcome = Vec::new();
    Message::Welcome(handshake::hello(Features::NONE, [1; 32], b"bcmr 9", None))
        .encode(&mut welcome)
        .unwrap();
    welcome[5] = 1;
    let tmp = Tmp::new();
    let file = tmp.file("a", "A");
    tmp.file("welcome", welcome);
    let version = format!("#!/bin/sh\ncat {}; cat > /dev/null\n", tmp.p("welcome").display());
    let noise = "#!/bin/sh\necho 'Welcome to far!'; head -c 9 > /dev/null\n";
    for (n, (program, why)) in [
        (None, "there is no bcmr there"),
        (Some(version.as_str()), "the other side speaks version 1, this one 2"),
        (Some(noise), "what answers there is no bcmr, or the shell there prints something: "),
    ]
    .into_iter()
    .enumerate()
    {
        let path = tmp.dir(format!("path{n}"));
        let put = |name: &str, body: &str| chmod(&tmp.file(format!("path{n}/{name}"), body), 0o755);
        put("scp", "#!/bin/sh\ntouch \"$0.ran\"\n");
        if let Some(body) = program {
            put("bcmr", body);
        }
        let far = Far::pipe().without_program().with("PATH", format!("{}:/usr/bin:/bin", path.display()));
        let told = format!("cannot use bcmr on 'there': {why}");
        let to = far.home().join("copied");
        let refused = Dir::Put.copy(&far, "--sync", &file, &to).run().code(1);
        refused.says(&told).says("; scp could copy instead, but cannot do --sync");
        assert!(!path.join("scp.ran").exists() && !to.exists());
        let ran =
            Dir::Put.copy(&far, "", &file, &to).run().ok().says(&told).says("; scp copies instead, and");
        assert!(path.join("scp.ran").exists() && !ran.err.contains("there is none"), "{ran:?}");
    }
}

/// What a client sends over the first connection of a download, by the kind of each message.
fn sent_in_a_download(flags: &str, source: &Path) -> Vec<u8> {
    let tmp = Tmp::new();
    let logs = tmp.dir("logs");
    let run = tmp.file("listening", format!("#!/bin/sh\ntee {}/$$ | \"$@\"\n", logs.display()));
    chmod(&run, 0o755);
    let dst = tmp.p("dst");
    Dir::Get.copy(&Far::pipe().with("FAR_RUN", &run), flags, source, &dst).run().ok();
    assert_eq!(dst.exists(), !flags.ends_with('n'));
    let logs =
        std::fs::read_dir(&logs).unwrap().map(|log| kinds_in(&std::fs::read(log.unwrap().path()).unwrap()));
    logs.into_iter().find(|kinds| !kinds.contains(&kind::JOIN)).unwrap()
}

fn kinds_in(mut sent: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let Some((frame, bytes)) = bcmr_wire::frame::decode(sent).unwrap() {
        if !matches!(frame.kind, kind::PING | kind::PONG) {
            kinds.push(frame.kind);
        }
        sent = &sent[bytes..];
    }
    kinds
}

/// [hello.get] Over a long line each answer that is waited for is told by the clock.
#[test]
fn a_download_is_asked_for_in_the_greeting() {
    let tmp = Tmp::new();
    tmp.file("src/$(touch a); `b`/a", "A");
    for flags in ["-r", "-rC", "-rV --sync", "--archive", "-r --parallel=1", "-r --fast", "-rn"] {
        let kinds = sent_in_a_download(flags, &tmp.p("src"));
        assert_eq!(kinds[0], kind::HELLO);
        assert!(!kinds.contains(&kind::GET) && !kinds.contains(&kind::STAT), "{flags}: {kinds:?}");
    }
    // What is worth a second connection is asked about first, and what may have several is asked for behind them.
    let large = tmp.file("large", "");
    std::fs::File::options().write(true).open(&large).unwrap().set_len(256 << 20).unwrap();
    let kinds = sent_in_a_download("", &large);
    assert_eq!(kinds[..2], [kind::HELLO, kind::STAT], "{kinds:?}");
    assert!(kinds.contains(&kind::GET), "{kinds:?}");
    let kinds = sent_in_a_download("--parallel=1", &large);
    assert!(!kinds.contains(&kind::GET), "{kinds:?}");
    let kinds = sent_in_a_download("-r --parallel=2", &tmp.p("src"));
    assert!(kinds.contains(&kind::GET), "{kinds:?}");
    // One that is too long to stand in a greeting.
    let many: String = (0..400).map(|n| format!(" --exclude=a{n:020}")).collect();
    let kinds = sent_in_a_download(&format!("-r{many}"), &tmp.p("src"));
    assert!(kinds.contains(&kind::GET), "{kinds:?}");
}

/// A server whose end is long in coming: once its program has ended, it waits for a line from the FIFO `fifo`, and then makes
/// `ended`.
fn late(tmp: &Tmp) -> Far {
    let (fifo, ended) = (tmp.p("fifo"), tmp.p("ended"));
    mkfifo(&fifo);
    let script = format!("#!/bin/sh\n\"$@\"\nread x < {}\n: > {}\n", fifo.display(), ended.display());
    let run = tmp.file("late", script);
    chmod(&run, 0o755);
    Far::pipe().with("FAR_RUN", &run)
}

/// Waits until it waits there, and gives what it waits for.
fn until_late(tmp: &Tmp) -> std::fs::File {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match std::fs::File::options()
            .write(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open(tmp.p("fifo"))
        {
            Ok(file) => return file,
            Err(e) => assert!(Instant::now() < until, "{e}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One that has sent everything: a client that has all of it goes.
#[test]
fn a_download_does_not_wait_for_the_servers_end() {
    let tmp = Tmp::new();
    tmp.file("src/a", "A");
    let dst = tmp.p("dst");
    Dir::Get.copy(&late(&tmp), "-r", &tmp.p("src"), &dst).run().ok();
    assert_eq!(std::fs::read(dst.join("a")).unwrap(), b"A");
    // It is still there: whoever waited would have ended it.
    let held = until_late(&tmp);
    (&held).write_all(b"\n").unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !tmp.p("ended").exists() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One that still has something to do when everything has been sent: marks of an unfinished tree, or a source, to take away.
#[test]
fn an_upload_and_a_move_wait_for_the_servers_end() {
    for (verb, dir) in [("copy -r", Dir::Put), ("move", Dir::Get), ("move", Dir::Put)] {
        let tmp = Tmp::new();
        tmp.file("src/a", "A");
        let far = late(&tmp);
        let mut words = verb.split(' ');
        let line = far.bcmr(words.next().unwrap()).args(words);
        let mut client = dir.ends(line, &far, &tmp.p("src"), &tmp.p("dst")).start();
        let held = until_late(&tmp);
        // A client that does not wait goes after 20 ms.
        std::thread::sleep(Duration::from_millis(300));
        assert!(!client.is_over(), "{verb} {dir:?}");
        (&held).write_all(b"\n").unwrap();
        client.wait().ok();
        assert!(tmp.p("ended").exists(), "{verb} {dir:?}");
        assert_eq!(std::fs::read(tmp.p("dst/a")).unwrap(), b"A");
    }
}
