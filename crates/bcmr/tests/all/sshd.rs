//! The private ssh server that the tests of remote copies use: it is there, it is private, and it goes.

use crate::common::sshd::{HOST, Sshd};
use crate::common::{BCMR, Tmp, all_cases};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

fn said(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}: {}", out.status, String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn a_private_server_has_the_program_and_a_home_and_leaves_nothing() {
    let tmp = Tmp::new();
    let sshd = Sshd::start(tmp.path(), Path::new(BCMR), &[]).unwrap();
    let found = said(&mut sshd.run("command -v bcmr; bcmr --version; cd; pwd; echo $XDG_RUNTIME_DIR"));
    let version = said(Command::new(BCMR).arg("--version"));
    let dir = std::fs::canonicalize(tmp.path()).unwrap();
    let d = dir.display();
    assert_eq!(found, format!("{d}/bin/bcmr\n{version}{d}/home\n{d}/run\n"));
    // Several at once, and bytes as they are.
    let count = if all_cases() { 8 } else { 4 };
    let many: Vec<_> =
        (0..count).map(|_| sshd.run("printf '\\000\\377'").stdout(Stdio::piped()).spawn().unwrap()).collect();
    for one in many {
        assert_eq!(one.wait_with_output().unwrap().stdout, b"\0\xff");
    }
    // A session that is cut is over for the client too.
    let mut hangs = sshd.run("exec cat").stdin(Stdio::piped()).spawn().unwrap();
    while !sshd.sessions().iter().any(|name| name == "cat") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(sshd.cut() > 0);
    assert_eq!(hangs.wait().unwrap().code(), Some(255), "{HOST}: {}", sshd.log());
    let port = sshd.port();
    drop(sshd);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}
