//! Other programs, run to their end: ssh for one command, scp for a copy.
//!
//! Must not know what they are run for. Programs get an argument vector, never a line for a shell; what they say is
//! kept up to a bound and told by the caller that ran them, escaped.

use bcmr_engine::event::Cancel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};

/// More than this of what a program says is not kept.
const SAID_BYTES_MAX: usize = 64 << 10;
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// How a program ended.
#[derive(Debug)]
pub struct Answer {
    pub status: ExitStatus,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
}

impl Answer {
    /// What it said last, for people; not yet escaped.
    pub fn last_words(&self) -> String {
        let err = String::from_utf8_lossy(&self.err);
        let words = err.trim();
        if words.is_empty() { self.status.to_string() } else { words.to_owned() }
    }
}

/// Runs a program to its end, or kills it when a stop is asked for. `input` is its standard input, else there is none.
///
/// # Errors
/// It cannot be started or waited for.
pub fn run(words: &[OsString], input: Option<File>, cancel: &Cancel) -> io::Result<Answer> {
    let (program, arguments) =
        words.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program"))?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(input.map_or_else(Stdio::null, Stdio::from))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let listened = listen(&mut child, cancel);
    if listened.is_err() {
        // It is gone already when this fails.
        child.kill().ok();
    }
    let status = child.wait()?;
    let (out, err) = listened?;
    Ok(Answer { status, out, err })
}

/// Both streams at once until the program ends. Not until the streams do: what ssh leaves behind to share a connection
/// keeps them open for as long as it likes.
fn listen(child: &mut Child, cancel: &Cancel) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut streams = [
        (child.stdout.take().map(OwnedFd::from), Vec::new()),
        (child.stderr.take().map(OwnedFd::from), Vec::new()),
    ];
    let mut stopped = false;
    loop {
        if cancel.is_set() && !std::mem::replace(&mut stopped, true) {
            child.kill()?;
        }
        let ended = child.try_wait()?.is_some();
        let more = take(&mut streams, if ended { Timespec { tv_sec: 0, tv_nsec: 0 } } else { TURN })?;
        if ended && !more {
            let [(_, out), (_, err)] = streams;
            return Ok((out, err));
        }
    }
}

/// Takes what has come. Says whether anything had.
fn take(streams: &mut [(Option<OwnedFd>, Vec<u8>); 2], wait: Timespec) -> io::Result<bool> {
    let open: Vec<&OwnedFd> = streams.iter().filter_map(|s| s.0.as_ref()).collect();
    let mut asked: Vec<PollFd<'_>> =
        open.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
    match poll(&mut asked, Some(&wait)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    let ready: Vec<bool> = asked.iter().map(|fd| !fd.revents().is_empty()).collect();
    let mut ready = ready.into_iter();
    let mut any = false;
    for (stream, kept) in streams {
        let Some(fd) = stream else { continue };
        if ready.next() != Some(true) {
            continue;
        }
        let mut block = [0_u8; 8192];
        match rustix::io::read(&*fd, &mut block) {
            Ok(0) => *stream = None,
            Ok(n) => {
                any = true;
                let room = SAID_BYTES_MAX.saturating_sub(kept.len());
                kept.extend_from_slice(block.get(..n.min(room)).unwrap_or_default());
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => *stream = None,
        }
    }
    Ok(any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn sh(script: &str, cancel: &Cancel) -> Answer {
        run(&["sh".into(), "-c".into(), script.into()], None, cancel).unwrap()
    }

    #[test]
    fn both_streams_and_the_status() {
        let answer = sh("echo out; echo err >&2; exit 3", &Cancel::new());
        assert_eq!(
            (answer.out.as_slice(), answer.err.as_slice()),
            (b"out\n".as_slice(), b"err\n".as_slice())
        );
        assert_eq!((answer.status.code(), answer.last_words()), (Some(3), "err".to_owned()));
        assert_eq!(sh("exit 4", &Cancel::new()).last_words(), "exit status: 4");
        assert!(run(&["/nowhere/at all".into()], None, &Cancel::new()).is_err());
    }

    #[test]
    fn a_flood_is_bounded_and_drained() {
        let answer = sh("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2", &Cancel::new());
        assert_eq!((answer.out.len(), answer.err.len()), (SAID_BYTES_MAX, SAID_BYTES_MAX));
    }

    #[test]
    fn input_is_a_file() {
        let file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut &file, b"abc").unwrap();
        io::Seek::rewind(&mut &file).unwrap();
        let answer = run(&["cat".into()], Some(file), &Cancel::new()).unwrap();
        assert_eq!(answer.out, b"abc");
    }

    #[test]
    fn nobody_who_stays_behind_is_waited_for() {
        let began = Instant::now();
        let answer = sh("sleep 3000 & echo $!", &Cancel::new());
        assert!(began.elapsed() < Duration::from_secs(1000));
        let pid = String::from_utf8(answer.out).unwrap();
        assert!(Command::new("kill").arg(pid.trim()).status().unwrap().success());
    }

    #[test]
    fn a_stop_kills() {
        let cancel = Cancel::new();
        cancel.set();
        let began = Instant::now();
        let answer = run(&["sleep".into(), "3000".into()], None, &cancel).unwrap();
        assert!(!answer.status.success() && began.elapsed() < Duration::from_secs(1000));
    }
}
