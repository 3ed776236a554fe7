//! `--via-source`: the bcmr on the source's machine does it, and what it says is said here; and its part over there.
//!
//! Must not know what is done. Nothing that was typed reaches a shell: it goes to the other bcmr's standard input. What comes
//! back is told line by line, with nothing in it that steers a terminal.

use crate::address;
use crate::cli::bcmr::via_source::{GREETING, TOLD_BYTES_MAX, as_there, heard};
use crate::cli::bcmr::{Cli, parse};
use crate::env::Env;
use crate::names;
use crate::say;
use crate::ui::writer::{self, Sink};
use crate::usage::Usage;
use crate::voice::BCMR;
use bcmr_engine::error::{Code, Error, Op, Reason, Result};
use bcmr_engine::peer::{ssh_said, verb_words};
use bcmr_engine::remote::{Address, Way};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a login may print before bcmr begins (bytes).
const LOGIN_BYTES_MAX: usize = 64 << 10;
/// One line of what is said there, and what is kept of what was said before it began.
const LINE_BYTES_MAX: u64 = 1 << 20;
const HELD_LINES_MAX: usize = 100;
/// What ssh itself exits with, and a shell from here on where a signal has ended what it ran.
const EXIT_SSH: i32 = 255;
const EXIT_SIGNAL: i32 = 129;

/// Lines of standard error: held until bcmr has begun there, as they may say why it does not.
#[derive(Default)]
struct Said {
    has_begun: bool,
    held: Vec<String>,
}

impl Said {
    fn line(&mut self, line: String) {
        if self.has_begun {
            writer::err(&format!("{line}\n"));
        } else if self.held.len() < HELD_LINES_MAX {
            self.held.push(line);
        }
    }
    fn begin(&mut self) {
        self.has_begun = true;
        std::mem::take(&mut self.held).into_iter().for_each(|line| self.line(line));
    }
}

/// Has it done there, and returns the exit code.
///
/// # Errors
/// [`Code::NoPeer`] where no bcmr there knows how.
pub fn attempt(address: &Address, way: &Way, told: &[u8]) -> Result<u8> {
    let words = verb_words(address, way, "at-source")?;
    let machine = address::machine(address);
    let fail = |e| Error::os(Op::StartBcmrOn, &machine, e);
    let Some((program, arguments)) = words.split_first() else {
        return Err(fail(io::ErrorKind::InvalidInput.into()));
    };
    let pipes = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = pipes.map_err(fail)?;
    let (Some(mut input), Some(out), Some(err)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(fail(io::ErrorKind::BrokenPipe.into()));
    };
    // One that is not there reads nothing, and says so otherwise.
    let _sent =
        input.write_all(&(told.len() as u64).to_le_bytes()).and_then(|()| input.write_all(told)).is_ok();
    let said = Mutex::new(Said::default());
    let has_begun = std::thread::scope(|scope| {
        scope.spawn(|| lines(err, |line| locked(&said).line(names::text(&String::from_utf8_lossy(line)))));
        pass_on(out, &said)
    });
    let status = child.wait().map_err(fail)?;
    // It ends when this does: until here, and no sooner.
    drop(input);
    let held = std::mem::take(&mut locked(&said).held).join("\n");
    match (has_begun, status.code()) {
        (false, Some(EXIT_SSH)) => {
            let (code, note) = ssh_said(&held);
            Err(Error::ours(code, Op::ConnectTo, machine, note))
        }
        // One that was killed before it began says nothing of what it knows.
        (_, None) | (true, Some(EXIT_SSH)) | (false, Some(EXIT_SIGNAL..)) => {
            Err(Error::ours(Code::Lost, Op::TalkTo, machine, Reason::PeerLeft))
        }
        (false, Some(_)) => {
            let why = if held.is_empty() { "it does not know --via-source".to_owned() } else { held };
            Err(Error::ours(Code::NoPeer, Op::UseBcmrOn, machine, why))
        }
        (true, Some(code)) => Ok(u8::try_from(code).unwrap_or(BCMR.exits.some_failed)),
    }
}

fn locked(said: &Mutex<Said>) -> MutexGuard<'_, Said> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes standard output on, once bcmr has begun there. Whether it has.
fn pass_on(out: impl Read, said: &Mutex<Said>) -> bool {
    let (mut has_begun, mut login) = (false, 0);
    let mut sink = Sink::stdout(true);
    lines(out, |line| {
        if has_begun {
            sink.line(&names::text(&String::from_utf8_lossy(line)));
            return;
        }
        // What a login prints last need not end its line.
        let printed = line.strip_suffix(GREETING);
        login += printed.unwrap_or(line).len();
        if printed.is_some() && login <= LOGIN_BYTES_MAX {
            has_begun = true;
            locked(said).begin();
        }
    });
    sink.flush();
    has_begun
}

/// Each line, without its end; one that is too long comes in pieces.
fn lines(from: impl Read, mut take: impl FnMut(&[u8])) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => take(line.strip_suffix(b"\n").unwrap_or(&line)),
        }
    }
}

/// `at-source`: what the other machine's bcmr was told, to be run with this line. From here on the run stops when that one goes.
///
/// # Errors
/// The exit code.
pub fn at_source(env: &Env) -> std::result::Result<(crate::cli::bcmr::Command, Env), u8> {
    let usage = |said: &str| {
        writer::err(&say::usage_of(&BCMR, &Usage::new(said)));
        BCMR.exits.usage
    };
    let Some((words, operands)) = read() else {
        return Err(usage(
            "at-source is started by the bcmr of another machine, which says what is to be done",
        ));
    };
    let line: Vec<OsString> = std::iter::once("bcmr".into()).chain(words).collect();
    let Ok(Cli { mut command, .. }) = parse(line.iter().cloned()) else {
        return Err(usage("this bcmr does not know an option that the other one was called with"));
    };
    if as_there(&mut command, operands).is_none() {
        return Err(usage("nothing that can be done at the source was asked for"));
    }
    writer::out(&format!("{}\n", String::from_utf8_lossy(GREETING))).ok();
    std::thread::spawn(stop_with_the_other);
    Ok((command, Env { line, at_source: true, ..env.clone() }))
}

fn read() -> Option<(Vec<OsString>, Vec<OsString>)> {
    let (mut input, mut length) = (io::stdin().lock(), [0; 8]);
    input.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    let mut told = Vec::new();
    let read = input.by_ref().take(length.min(TOLD_BYTES_MAX)).read_to_end(&mut told).ok()?;
    (read as u64 == length).then(|| heard(&told))?
}

/// Standard input ends with the other one, whatever became of it: what is under way stops as with Ctrl-C.
fn stop_with_the_other() {
    let mut some = [0; 64];
    while matches!(io::stdin().read(&mut some), Ok(n) if n > 0) {}
    let _told =
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT).is_ok();
}
