//! `--remote-sudo` where sudo there wants a password: one question here, whose answer goes to sudo's standard input, and into no
//! argument and no environment.
//!
//! Must not know what is to be done there.

use super::deploy;
use crate::address;
use crate::env;
use bcmr_engine::error::{Code, Error, Op, Reason, Result};
use bcmr_engine::event::Cancel;
use bcmr_engine::password::Password;
use bcmr_engine::peer;
use bcmr_engine::remote::{Address, RunAs, Way};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

const TTY: &str = "/dev/tty";
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// What a shell ends with where it finds no such program.
const NOT_FOUND: i32 = 127;

/// The same way with a password that sudo there has taken. `None`: it needs none, or the user cannot be asked for one.
///
/// # Errors
/// There is no connection, or sudo took no password.
pub fn with_password(address: &Address, way: &Way, cancel: &Cancel) -> Result<Option<Way>> {
    let RunAs::Sudo(user) = &way.run_as else { return Ok(None) };
    let silent = deploy::over_ssh(address, &peer::sudo_words(address, way)?, None, cancel)?;
    if silent.status.success() || silent.status.code() == Some(NOT_FOUND) {
        return Ok(None);
    }
    let machine = address::machine(address);
    let Some(password) = ask(&format!("Password for sudo on {machine}: "), cancel)? else { return Ok(None) };
    let way = Way { run_as: RunAs::SudoWith(user.clone(), password.clone()), ..way.clone() };
    // Tried alone first: there sudo reads to the end of what it is given, and not into what follows a wrong password.
    let failed = |e| Error::os(Op::StartBcmrOn, machine.as_str(), e);
    let (reader, writer) = io::pipe().map_err(failed)?;
    password.write_to(writer).map_err(failed)?;
    let input = File::from(OwnedFd::from(reader));
    let tried = deploy::over_ssh(address, &peer::sudo_words(address, &way)?, Some(input), cancel)?;
    if tried.status.success() {
        return Ok(Some(way));
    }
    Err(Error::ours(Code::Denied, Op::StartBcmrOn, machine.as_str(), tried.last_words()))
}

/// Asks a person, as ssh does: by the program that is named for it, or on the terminal. `None`: there is neither.
fn ask(prompt: &str, cancel: &Cancel) -> Result<Option<Password>> {
    let asked = match env::askpass() {
        Some(program) => by_program(&program, prompt),
        None => on_terminal(prompt, cancel),
    };
    if cancel.is_set() {
        return Err(Error::ours(Code::Interrupted, Op::Read, TTY, Reason::Interrupted));
    }
    asked.map_err(|e| Error::os(Op::Read, TTY, e))
}

fn by_program(program: &std::ffi::OsStr, prompt: &str) -> io::Result<Option<Password>> {
    let mut child = Command::new(program).arg(prompt).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let read = child.stdout.take().map_or(Ok(None), Password::read);
    let ended = child.wait()?;
    read.map(|password| password.filter(|_| ended.success()))
}

fn on_terminal(prompt: &str, cancel: &Cancel) -> io::Result<Option<Password>> {
    let Ok(terminal) = File::options().read(true).write(true).open(TTY) else { return Ok(None) };
    let before = tcgetattr(&terminal)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    silent.local_modes.insert(LocalModes::ECHONL);
    tcsetattr(&terminal, OptionalActions::Flush, &silent)?;
    let asked = (&terminal).write_all(prompt.as_bytes());
    let read = asked.and_then(|()| Password::read(Answered { terminal: &terminal, cancel }));
    // Whatever came of it.
    tcsetattr(&terminal, OptionalActions::Flush, &before)?;
    read
}

/// What is typed, until a stop is asked for.
struct Answered<'a> {
    terminal: &'a File,
    cancel: &'a Cancel,
}

impl Read for Answered<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.cancel.is_set() {
                return Err(io::Error::other("stopped"));
            }
            let mut asked = [PollFd::new(self.terminal, PollFlags::IN)];
            match poll(&mut asked, Some(&TURN)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.terminal.read(room),
                Err(e) => return Err(e.into()),
            }
        }
    }
}
