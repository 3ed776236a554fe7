//! A run that listens to its user meanwhile: a socket in a directory that no other user enters, one question and one answer to
//! a connection.
//!
//! Must not know what is run, nor word anything.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::Progress;
use crate::throttle::Throttle;
use fastcopy::pass::{self, RendezvousSocket};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A line is no longer than this (bytes).
const LINE_BYTES_MAX: u64 = 256;
/// How long the other end may take to say one.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the kernel says of a socket that no process listens on.
const GONE: [ErrorKind; 4] =
    [ErrorKind::NotFound, ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];

/// What a run is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Nothing; it says what it is at, as it does after each of the others.
    Status,
    /// Nothing may go from now on.
    Pause,
    /// Something may.
    Resume,
    /// At most so many bytes a second.
    Limit(Option<u64>),
}

impl Command {
    fn line(self) -> String {
        match self {
            Command::Status => "status\n".into(),
            Command::Pause => "pause\n".into(),
            Command::Resume => "resume\n".into(),
            Command::Limit(rate) => format!("limit {}\n", rate.unwrap_or(0)),
        }
    }

    fn of(line: &str) -> Option<Command> {
        Some(match line.strip_suffix('\n')?.split_once(' ') {
            Some(("limit", rate)) => Command::Limit(Some(rate.parse().ok()?).filter(|rate| *rate > 0)),
            Some(_) => return None,
            None => match line.trim_end() {
                "status" => Command::Status,
                "pause" => Command::Pause,
                "resume" => Command::Resume,
                _ => return None,
            },
        })
    }

    fn carry_out(self, throttle: &Throttle) {
        match self {
            Command::Status => {}
            Command::Pause => throttle.pause(true),
            Command::Resume => throttle.pause(false),
            Command::Limit(rate) => throttle.limit(rate),
        }
    }
}

/// What a run is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Bytes a second that it may send and receive.
    pub limit: Option<u64>,
    /// Nothing may go.
    pub paused: bool,
    /// As in [`Progress`].
    pub items_done: u64,
    /// As in [`Progress`].
    pub bytes_done: u64,
    /// As in [`Progress`].
    pub items_found: u64,
    /// As in [`Progress`].
    pub bytes_found: u64,
}

impl Status {
    fn now(throttle: &Throttle, progress: &Progress) -> Status {
        let (limit, paused) = throttle.is_at();
        let [items_done, bytes_done, items_found, bytes_found] =
            [&progress.items_done, &progress.bytes_done, &progress.items_found, &progress.bytes_found]
                .map(|count| count.load(Ordering::Relaxed));
        Status { limit, paused, items_done, bytes_done, items_found, bytes_found }
    }

    fn line(&self) -> String {
        let Status { limit, paused, items_done, bytes_done, items_found, bytes_found } = *self;
        let (limit, paused) = (limit.unwrap_or(0), u64::from(paused));
        format!("at {limit} {paused} {items_done} {bytes_done} {items_found} {bytes_found}\n")
    }

    fn of(line: &str) -> Option<Status> {
        let words = line.strip_prefix("at ")?.strip_suffix('\n')?.split(' ');
        let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let [limit, paused, items_done, bytes_done, items_found, bytes_found] = *numbers.as_slice() else {
            return None;
        };
        let limit = Some(limit).filter(|limit| *limit > 0);
        Some(Status { limit, paused: paused > 0, items_done, bytes_done, items_found, bytes_found })
    }
}

/// Runs `work` and hears commands meanwhile, in the first of `bases` that lets us. Where none does, `deaf` is told why.
pub fn hearing<T>(
    bases: &[PathBuf],
    throttle: &Throttle,
    progress: &Progress,
    deaf: impl FnOnce(Error),
    work: impl FnOnce() -> T,
) -> T {
    let socket = match RendezvousSocket::for_commands(bases) {
        Ok(socket) => socket,
        Err(e) => {
            deaf(Error::os(Op::HearCommands, bases.first().cloned().unwrap_or_default(), e));
            return work();
        }
    };
    let done = std::thread::scope(|scope| {
        /// Ends the listening thread, also by a panic: the scope would wait for it for ever.
        struct Stop<'s>(&'s RendezvousSocket);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        let _stop = Stop(&socket);
        let listens = || {
            while let Ok(Some(guest)) = socket.accept() {
                // Who says nothing that makes sense hears nothing.
                drop(answer(&guest, throttle, progress));
            }
        };
        match std::thread::Builder::new().name("ctl".into()).spawn_scoped(scope, listens) {
            Ok(_listens) => {}
            Err(e) => deaf(Error::os(Op::HearCommands, socket.path(), e)),
        }
        work()
    });
    // An empty directory more or less is nothing that the run has failed in; the next one sweeps it.
    drop(socket.remove());
    done
}

fn answer(guest: &UnixStream, throttle: &Throttle, progress: &Progress) -> std::io::Result<()> {
    let line = read_line(guest)?;
    if let Some(command) = Command::of(&line) {
        command.carry_out(throttle);
        let mut out = guest;
        out.write_all(Status::now(throttle, progress).line().as_bytes())?;
    }
    Ok(())
}

fn read_line(from: &UnixStream) -> std::io::Result<String> {
    from.set_read_timeout(Some(PATIENCE))?;
    from.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(from.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    Ok(line)
}

/// Runs of this user that can be told something: process and socket.
#[must_use]
pub fn runs(bases: &[PathBuf]) -> Vec<(u32, PathBuf)> {
    pass::commanded(bases)
}

/// Tells a run something, and hears what it is at then.
///
/// # Errors
/// [`Code::NotFound`] where it has ended since it was found; it is another user's, or says nothing sensible.
pub fn tell(socket: &Path, bases: &[PathBuf], command: Command) -> Result<Status> {
    let nothing = |code| Error::ours(code, Op::Command, socket, Reason::NothingCame);
    let said = pass::connect_to_command(socket, bases).and_then(|mut host| {
        host.write_all(command.line().as_bytes())?;
        read_line(&host)
    });
    match said {
        Ok(line) if line.is_empty() => Err(nothing(Code::NotFound)),
        Ok(line) => Status::of(&line).ok_or_else(|| nothing(Code::Protocol)),
        Err(e) => {
            let has_ended = GONE.contains(&e.kind());
            let error = Error::os(Op::Command, socket, e);
            Err(if has_ended { Error { code: Code::NotFound, ..error } } else { error })
        }
    }
}

/// Entrance for the fuzzer: any text as what a run is told and as what it says, each the same when it is said again.
#[cfg(fuzzing)]
pub fn fuzz(text: &str) {
    for line in [text, &format!("{text}\n"), &format!("limit {text}\n"), &format!("at {text}\n")] {
        if let Some(command) = Command::of(line) {
            assert_eq!(Command::of(&command.line()), Some(command));
        }
        if let Some(status) = Status::of(line) {
            assert_eq!(Status::of(&status.line()), Some(status));
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;

    #[test]
    fn lines_there_and_back_and_no_others() {
        for command in
            [Command::Status, Command::Pause, Command::Resume, Command::Limit(None), Command::Limit(Some(5))]
        {
            assert_eq!(Command::of(&command.line()), Some(command));
        }
        for line in
            ["", "\n", "pause", "pause now\n", "limit\n", "limit -1\n", "limit 1 2\n", "stop\n", "limit x\n"]
        {
            assert_eq!(Command::of(line), None, "{line:?}");
        }
        let status = Status {
            limit: Some(7),
            paused: true,
            items_done: 1,
            bytes_done: 2,
            items_found: 3,
            bytes_found: 4,
        };
        for status in [status, Status::default()] {
            assert_eq!(Status::of(&status.line()), Some(status));
        }
        assert!(
            ["at 1 2 3 4 5\n", "at 1 2 3 4 5 6", "at 1 2 3 4 5 6 7\n", ""]
                .iter()
                .all(|l| Status::of(l).is_none())
        );
    }

    /// From the run's side and the user's; nothing is left afterwards, and what says nothing sensible changes nothing.
    #[test]
    fn a_run_hears_what_it_is_told() {
        let tmp = tempfile::tempdir().unwrap();
        let bases = [tmp.path().to_owned()];
        let (throttle, progress) = (Throttle::new(None), Progress::default());
        progress.bytes_done.store(9, Ordering::Relaxed);
        let (told, socket) = hearing(
            &bases,
            &throttle,
            &progress,
            |e| panic!("{e}"),
            || {
                let [(pid, socket)] = <[_; 1]>::try_from(runs(&bases)).unwrap();
                assert_eq!(pid, std::process::id());
                let mode = std::os::unix::fs::PermissionsExt::mode(
                    &std::fs::metadata(&socket).unwrap().permissions(),
                );
                assert_eq!(mode & 0o777, 0o600);
                let mut guest = pass::connect_to_command(&socket, &bases).unwrap();
                guest.write_all(b"stop everything\n").unwrap();
                assert_eq!(guest.read(&mut [0; 9]).unwrap(), 0);
                let paused = tell(&socket, &bases, Command::Pause).unwrap();
                assert_eq!((paused.paused, paused.limit, paused.bytes_done), (true, None, 9));
                tell(&socket, &bases, Command::Limit(Some(5))).unwrap();
                (tell(&socket, &bases, Command::Resume).unwrap(), socket)
            },
        );
        assert_eq!((told.paused, told.limit, throttle.is_at()), (false, Some(5), (Some(5), false)));
        assert!(runs(&bases).is_empty());
        // Found just before its end.
        assert_eq!(tell(&socket, &bases, Command::Status).unwrap_err().code, Code::NotFound);
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
        let mut deaf = 0;
        hearing(&[tmp.path().join("absent")], &throttle, &progress, |_| deaf += 1, || ());
        assert_eq!(deaf, 1);
    }
}
