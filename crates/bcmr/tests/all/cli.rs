//! Runs the real binary through the transcripts in `tests/all/cli/*.txt`.
//!
//! ```text
//! # a comment
//! $ bcmr copy a          a command line for sh, in a directory of the transcript's own
//! what standard output is to hold; `[..]` stands for anything within a line
//! ! what standard error is to hold
//! ? 2                    the exit status, if it is not 0
//! ```
//!
//! `BLESS=1 cargo test -p bcmr --test all cli::` writes what came out into the transcripts where it is not what
//! they want; wildcards are then to be put in by hand.

use super::common::has_tool;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One command of a transcript with what follows it, line by line.
struct Step {
    before: String,
    command: String,
    want: Vec<String>,
}

#[test]
fn transcripts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/cli");
    let mut files: Vec<PathBuf> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).filter(|p| is_transcript(p)).collect();
    files.sort();
    assert!(!files.is_empty());
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let mut blessed = String::new();
        for step in read(&text) {
            let got = run(&step.command, scratch.path());
            let same = got.len() == step.want.len() && got.iter().zip(&step.want).all(|(g, w)| fits(g, w));
            if !same && !bless {
                let (want, got) = (step.want.join("\n"), got.join("\n"));
                let name = file.file_name().unwrap().to_string_lossy();
                wrong.push(format!("{name}: $ {}\n--- want\n{want}\n--- got\n{got}\n", step.command));
            }
            let lines = if same { step.want } else { got };
            blessed.push_str(&format!("{}$ {}\n", step.before, step.command));
            blessed.extend(lines.iter().map(|line| format!("{line}\n")));
        }
        if bless {
            fs::write(&file, blessed).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn is_transcript(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "txt")
}

/// Blank lines and comments end what a command is to print, and belong to the next one.
fn read(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut before = String::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let before = std::mem::take(&mut before);
            steps.push(Step { before, command: command.to_owned(), want: Vec::new() });
        } else if line.is_empty() || line.starts_with('#') {
            before.push_str(line);
            before.push('\n');
        } else if let Some(step) = steps.last_mut() {
            step.want.push(line.to_owned());
        }
    }
    steps
}

/// Output, then errors, then the exit status; empty lines left out.
fn run(command: &str, dir: &Path) -> Vec<String> {
    let bin = Path::new(env!("CARGO_BIN_EXE_bcmr")).parent().unwrap();
    let out = Command::new("sh")
        .args(["-c", command])
        .current_dir(dir)
        .env_clear()
        .env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display()))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let mut lines: Vec<String> = String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect();
    lines.extend(String::from_utf8_lossy(&out.stderr).lines().map(|l| format!("! {l}")));
    lines.retain(|l| !l.is_empty() && l != "! ");
    match out.status.code() {
        Some(0) => {}
        Some(code) => lines.push(format!("? {code}")),
        None => lines.push(format!("? {}", out.status)),
    }
    lines
}

/// Whether a line is what is wanted, `[..]` standing for anything.
fn fits(got: &str, want: &str) -> bool {
    let mut parts = want.split("[..]");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = got.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn wildcards() {
    assert!(
        fits("a in 0.12 s", "a in [..] s")
            && fits("a", "a")
            && fits("ab", "a[..]b")
            && fits("axbyc", "a[..]b[..]c")
    );
    for (got, want) in [("ab", "a"), ("a", "ab"), ("b", "[..]a")] {
        assert!(!fits(got, want));
    }
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let out = Command::new(env!("CARGO_BIN_EXE_bcmr")).args(["completions", shell]).output().unwrap();
        let script = String::from_utf8(out.stdout).unwrap();
        // Those of the first three ask the program itself.
        let asks = script.contains("bcmr complete --index");
        assert!(out.status.success() && (asks || script.contains("files-from0")), "{shell}");
        if has_tool(shell) && matches!(shell, "bash" | "zsh" | "fish") {
            let checked = Command::new(shell).args(["-n", "-c", &script]).output().unwrap();
            assert!(checked.status.success(), "{shell}: {checked:?}");
        }
    }
}

#[test]
fn man_pages_name_every_flag() {
    let dir = tempfile::tempdir().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_bcmr")).arg("man").arg(dir.path()).status().unwrap();
    assert!(status.success());
    for (page, flags) in [
        ("bcmr.1", &["Exit status"][..]),
        ("bcmr-copy.1", &["archive", "no\\-preserve", "files\\-from0", "reflink", "inplace", "128+n"]),
        ("bcmr-move.1", &["merge", "no\\-clobber"]),
        ("bcmr-remove.1", &["cross\\-file\\-systems"]),
        ("bcmr-check.1", &["hash", "no\\-extra"]),
    ] {
        let text = fs::read_to_string(dir.path().join(page)).unwrap();
        for flag in flags {
            assert!(text.contains(flag), "{page} lacks {flag}");
        }
    }
}

/// A copy that stands before a question, a signal, and what is left of both.
#[test]
fn signals_end_a_run_in_good_order() {
    for (signal, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("src"), "new").unwrap();
        fs::write(dir.path().join("dst"), "old").unwrap();
        let mut child = Command::new("env")
            // The process that runs the tests may ignore some signals, and then so would we.
            .args([
                "--default-signal=INT,TERM,HUP,USR1",
                env!("CARGO_BIN_EXE_bcmr"),
                "copy",
                "-i",
                "src",
                "dst",
            ])
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Kept open, since `wait` would close it, and the end of the input is an answer.
        let _open = child.stdin.take();
        let mut err = child.stderr.take().unwrap();
        let asked = read_until(&mut err, "[y/N] ");
        assert_eq!(asked, "bcmr: replace 'dst'? [y/N] ");
        let kill = |signal: &str| {
            Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status()
        };
        assert!(kill("USR1").unwrap().success());
        let status_line = read_until(&mut err, "\n");
        assert!(status_line.contains("bcmr: copying  "), "{status_line}");
        // Two at once, as timeout(1) and a terminal that closes send them: both wait until it goes on.
        for signal in ["STOP", signal, "HUP", "CONT"] {
            assert!(kill(signal).unwrap().success());
        }
        assert_eq!(child.wait().unwrap().code(), Some(status), "{signal}");
        let rest = std::io::read_to_string(&mut err).unwrap();
        assert!(rest.contains("bcmr: stopping") && rest.contains("hint: to go on, run: "), "{rest}");
        assert_eq!(fs::read_to_string(dir.path().join("dst")).unwrap(), "old");
    }
}

#[test]
fn signals_that_were_ignored_stay_so() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("src"), "new").unwrap();
    fs::write(dir.path().join("dst"), "old").unwrap();
    let mut child = Command::new("env")
        .args(["--ignore-signal=HUP", env!("CARGO_BIN_EXE_bcmr"), "copy", "-i", "src", "dst"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut err = child.stderr.take().unwrap();
    read_until(&mut err, "[y/N] ");
    assert!(Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap().success());
    child.stdin.take().unwrap().write_all(b"y\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read_to_string(dir.path().join("dst")).unwrap(), "new");
}

fn read_until(from: &mut impl Read, end: &str) -> String {
    let mut got = Vec::new();
    while !got.ends_with(end.as_bytes()) {
        let mut byte = [0];
        assert_eq!(from.read(&mut byte).unwrap(), 1, "ended after {}", String::from_utf8_lossy(&got));
        got.extend(byte);
    }
    String::from_utf8(got).unwrap()
}
