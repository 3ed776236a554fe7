//! A client and a server in one process, over pipes that a shell joins in the place of ssh, and that are cut where a test says.
//!
//! Must not know what is asked over them.

#![cfg(test)]
#![allow(clippy::disallowed_methods, reason = "tests look from outside")]

use super::server::serve;
use crate::error::Result;
use crate::remote::tests::plain_way;
use crate::remote::{Address, ServeRequest, Way};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Where a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutAt {
    /// After so many frames, and so many bytes of the next.
    Frames(u64, usize),
    /// Right before the first frame of this type.
    Before(u8),
}

/// Which direction of which connection ends where; the other direction ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// What the client sends, or what it hears.
    pub(crate) up: bool,
    /// The first connection has number 0.
    pub(crate) nth: u64,
    pub(crate) at: CutAt,
}

/// What came of the connections of one client.
#[derive(Debug)]
pub(crate) struct Served {
    /// The cut was reached.
    pub(crate) is_cut: bool,
    /// What each server ended with.
    pub(crate) ended: Vec<Result<()>>,
}

/// Makes two pipes, tells where they are, and is what is at the other end of them.
const JOINS: &str = "at=$(mktemp -d \"$1/XXXXXX\") && mkfifo \"$at/up\" \"$at/down\" && echo \"$at\" > \"$1/calls\" || exit 255
cat < \"$at/down\" &
exec cat > \"$at/up\"";

/// The last line of the calls.
const NO_MORE: &[u8] = b"no more\n";

/// A place on the other machine.
pub(crate) fn there(path: &Path) -> Address {
    Address { user: None, host: "there".into(), port: None, path: path.to_owned() }
}

/// A server of all that there is, as this user.
pub(crate) fn serving(home: &Path, me: u32) -> ServeRequest {
    ServeRequest {
        root: None,
        read_only: false,
        store: None,
        jobs: 1,
        umask: 0o022,
        me,
        home: home.to_owned(),
        trash: None,
        arrived_at: None,
        meeting: Vec::new(),
    }
}

fn way(pipes: &Path) -> Way {
    let words = ["sh", "-c", JOINS, "ssh"].map(OsString::from);
    plain_way(words.into_iter().chain([pipes.as_os_str().to_owned()]).collect())
}

/// Runs `client`, whose connections all lead to servers of this process; returns once all of these have ended.
pub(crate) fn over<T>(
    pipes: &Path,
    serves: &ServeRequest,
    cut: Option<Cut>,
    client: impl FnOnce(&Way) -> T,
) -> (T, Served) {
    std::fs::create_dir_all(pipes).unwrap();
    let calls = pipes.join("calls");
    let made = std::process::Command::new("mkfifo").arg(&calls).status().unwrap();
    assert!(made.success());
    // Open for both, it never ends by itself.
    let mut calls = File::options().read(true).write(true).open(&calls).unwrap();
    let heard = BufReader::new(calls.try_clone().unwrap());
    let is_cut = AtomicBool::new(false);
    let (done, ended) = std::thread::scope(|scope| {
        let is_cut = &is_cut;
        let listens = scope.spawn(move || {
            let mut all = Vec::new();
            for (nth, line) in (0..).zip(heard.split(b'\n')) {
                let line = line.unwrap();
                if NO_MORE.starts_with(&line) {
                    break;
                }
                let at = PathBuf::from(OsStr::from_bytes(&line));
                let cut = cut.filter(|cut| cut.nth == nth);
                all.push(scope.spawn(move || connection(&at, serves, cut, is_cut)));
            }
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let done = client(&way(pipes));
        calls.write_all(NO_MORE).unwrap();
        (done, listens.join().unwrap())
    });
    std::fs::remove_dir_all(pipes).unwrap();
    (done, Served { is_cut: is_cut.into_inner(), ended })
}

/// One connection, until its server has ended.
fn connection(at: &Path, serves: &ServeRequest, cut: Option<Cut>, is_cut: &AtomicBool) -> Result<()> {
    let (into, server_in) = UnixStream::pair().unwrap();
    let (out, server_out) = UnixStream::pair().unwrap();
    let both = [into.try_clone().unwrap(), out.try_clone().unwrap()];
    // Whichever of the two has an end, as far as the other is concerned.
    let close = || both.iter().for_each(|one| drop(one.shutdown(Shutdown::Both)));
    let meter = |up| FrameMeter::new(cut.filter(|cut| cut.up == up).map(|cut| cut.at));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let from = File::open(at.join("up")).unwrap();
            if pass(from, &into, meter(true)) {
                is_cut.store(true, SeqCst);
                close();
            }
            drop(into.shutdown(Shutdown::Write));
        });
        scope.spawn(|| {
            let to = File::options().write(true).open(at.join("down")).unwrap();
            if pass(&out, to, meter(false)) {
                is_cut.store(true, SeqCst);
                close();
            }
        });
        let ended = serve(serves.clone(), server_in.into(), server_out.into());
        close();
        ended
    })
}

/// Passes on what comes. Whether the wire was cut.
fn pass(mut from: impl Read, mut to: impl Write, mut meter: FrameMeter) -> bool {
    let mut room = vec![0; 64 << 10];
    loop {
        let Ok(got @ 1..) = from.read(&mut room) else { return false };
        let (passes, is_cut) = meter.takes(&room[..got]);
        let passed = to.write_all(&passes);
        if is_cut {
            return true;
        }
        if passed.is_err() {
            return false;
        }
    }
}

/// Counts frames.
struct FrameMeter {
    cut: Option<CutAt>,
    frames: u64,
    /// Bytes of the present frame that are still to pass, and whether nothing comes behind them.
    left: usize,
    is_last: bool,
    /// What is too little to say what it is.
    held: Vec<u8>,
}

impl FrameMeter {
    fn new(cut: Option<CutAt>) -> FrameMeter {
        FrameMeter { cut, frames: 0, left: 0, is_last: false, held: Vec::new() }
    }

    /// What passes of what came, and whether the wire ends behind it.
    fn takes(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        self.held.extend_from_slice(bytes);
        let mut out = Vec::new();
        loop {
            let now = self.left.min(self.held.len());
            out.extend(self.held.drain(..now));
            self.left -= now;
            if self.left == 0 && self.is_last {
                return (out, true);
            }
            let [a, b, c, d, kind, ..] = self.held[..] else { return (out, false) };
            self.left = 4 + u32::from_le_bytes([a, b, c, d]) as usize;
            match self.cut {
                Some(CutAt::Before(cut)) if cut == kind => return (out, true),
                Some(CutAt::Frames(frames, more)) if frames == self.frames => {
                    (self.left, self.is_last) = (self.left.min(more), true);
                }
                _ => {}
            }
            self.frames += 1;
        }
    }
}

#[test]
fn frames_are_cut_where_it_is_said() {
    let frame =
        |kind: u8, bytes: usize| [&(bytes as u32 + 1).to_le_bytes()[..], &[kind], &vec![7; bytes]].concat();
    let all = [frame(1, 3), frame(0x4A, 0), frame(2, 9)].concat();
    let passed = |cut, step: usize| {
        let mut meter = FrameMeter::new(Some(cut));
        let mut out = Vec::new();
        for piece in all.chunks(step) {
            let (some, is_cut) = meter.takes(piece);
            out.extend(some);
            if is_cut {
                return (out.len(), true);
            }
        }
        (out.len(), false)
    };
    for step in [1, 2, 4, 100] {
        assert_eq!(passed(CutAt::Before(0x4A), step), (8, true), "{step}");
        assert_eq!(passed(CutAt::Frames(1, 2), step), (10, true), "{step}");
        assert_eq!(passed(CutAt::Frames(2, 0), step), (13, true), "{step}");
        assert_eq!(passed(CutAt::Frames(2, 100), step), (27, true), "{step}");
        assert_eq!(passed(CutAt::Frames(9, 0), step), (27, false), "{step}");
    }
}
