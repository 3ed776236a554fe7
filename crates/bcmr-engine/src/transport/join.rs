//! Further connections end in processes of their own; here they hand what they were given to the first one, so that all
//! streams of a peer end in one process and one transaction. Why so: docs/decisions/0004.
//!
//! Must not know ssh, nor what the streams carry but the `Ok` that greets one.

use super::conn::{self, Packet, Timeouts};
use super::frame::frames_of;
use super::stream::Stream;
use crate::error::{Code, Error, Op, Reason};
use bcmr_wire::dialogue::Dialogue;
use bcmr_wire::limits::STREAMS_MAX;
use bcmr_wire::message::{Hash, Message};
use bcmr_wire::state::State;
use fastcopy::pass::{self, RendezvousSocket};
use std::io::{Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long one connecting process may take to say who it is: it holds up the others.
const GREETING_MAX: Duration = Duration::from_secs(5);
/// What the first process answers: the stream is its own now.
const TAKEN: [u8; 1] = [1];
/// Secret and index.
const WORDS: usize = 32 + 8;

/// One stream more.
pub(crate) struct Joined {
    /// Which one, as the client counts; in range, and not taken before.
    pub(crate) index: u64,
    /// Its first frame, an `Ok`, is on its way.
    pub(crate) stream: Stream,
}

/// Where the first process waits for the others.
pub(crate) struct JoinListener {
    meeting: Arc<RendezvousSocket>,
    secret: Hash,
    joined: Receiver<Joined>,
    thread: Option<JoinHandle<()>>,
}

/// How many streams more may come where `count` are asked for, and so many are there with the first.
fn further(there: usize, count: u64) -> Result<u64, Error> {
    match STREAMS_MAX.saturating_sub(there.saturating_sub(1) as u64) {
        0 => Err(Error::ours(Code::Protocol, Op::Join, "", Reason::TooManyStreams)),
        left => Ok(count.min(left)),
    }
}

impl JoinListener {
    /// Waits, in a thread of its own, for the streams 1 to `count` of the peer called `name`, or for fewer where some beside
    /// the first are `there`. The socket is made in a
    /// fresh directory below the first of `bases` that lets us.
    ///
    /// # Errors
    /// Nowhere a socket, no randomness, no thread, or all streams are there.
    pub(crate) fn open(
        bases: &[PathBuf],
        (there, count): (usize, u64),
        name: &str,
        timeouts: Timeouts,
    ) -> Result<JoinListener, Error> {
        let told = |e| Error::os(Op::WaitForFurtherConnectionsOf, name, e);
        let count = further(there, count)?;
        let secret = fastcopy::process::secret().map_err(told)?;
        let meeting = Arc::new(RendezvousSocket::open(bases).map_err(told)?);
        // Room for all of them: the thread never waits for the taker.
        let (give, joined) = sync_channel(count as usize);
        let inside = Arc::clone(&meeting);
        let peer = name.to_owned();
        let started = std::thread::Builder::new()
            .name("join".to_owned())
            .spawn(move || let_in(&inside, &secret, count, &peer, timeouts, &give));
        match started {
            Ok(thread) => Ok(JoinListener { meeting, secret, joined, thread: Some(thread) }),
            Err(e) => {
                meeting.remove().map_err(told)?;
                Err(told(e))
            }
        }
    }

    /// What the client is to say at the door.
    pub(crate) fn secret(&self) -> &Hash {
        &self.secret
    }

    /// Where the door is.
    pub(crate) fn path(&self) -> &Path {
        self.meeting.path()
    }

    /// The next stream that has joined, within `time`.
    pub(crate) fn next(&self, time: Duration) -> Option<Joined> {
        self.joined.recv_timeout(time).ok()
    }

    /// No connection is accepted any more, and nothing is left in the file system.
    ///
    /// # Errors
    /// The socket or its directory could not be removed.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        self.stop();
        let path = self.meeting.path();
        self.meeting.remove().map_err(|e| Error::os(Op::Remove, path, e))
    }

    fn stop(&mut self) {
        self.meeting.stop();
        if let Some(thread) = self.thread.take() {
            // Had it panicked, no connection would be accepted any more, which is what is wanted now.
            drop(thread.join());
        }
    }
}

impl Drop for JoinListener {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop();
            // On an error path: an empty directory more or less is not what the user has to hear about then.
            drop(self.meeting.remove());
        }
    }
}

fn let_in(
    meeting: &RendezvousSocket,
    secret: &Hash,
    count: u64,
    name: &str,
    timeouts: Timeouts,
    give: &SyncSender<Joined>,
) {
    let mut taken = Vec::new();
    while (taken.len() as u64) < count {
        // An error here is a limit of the process: no more streams then, the others go on.
        let Ok(Some(guest)) = meeting.accept() else { return };
        let mut words = [0; WORDS];
        let Ok([read, write]) = pass::receive(&guest, &mut words, GREETING_MAX) else { continue };
        let (said, index) = words.split_at(32);
        let mut number = [0; 8];
        number.copy_from_slice(index);
        let index = u64::from_le_bytes(number);
        if !same(said, secret) || index == 0 || index > count || taken.contains(&index) {
            continue;
        }
        if (&guest).write_all(&TAKEN).is_err() {
            continue;
        }
        taken.push(index);
        // The process that passed these on lives as long as `guest` is open, and with it sshd's channel; the stream
        // holds it, and shutting it down is how a stuck one is cut.
        let cut = move || fastcopy::flow::shutdown_both(&guest);
        let stream = conn::RawStream::over_fds(read, write, format!("{name} ({index})"), timeouts, cut);
        let stream = Stream::over(stream, Dialogue::resting(State::Quiet));
        let Ok(greeting) = frames_of(&Message::Ok { hash: None }) else { continue };
        let out = stream.out.clone();
        // Before the client hears that it has joined: from then on it may count on this stream in its next request.
        if give.send(Joined { index, stream }).is_err() {
            return;
        }
        // One that is gone already is noticed by the worker that uses it.
        drop(out.send(Packet::Frames(greeting)));
    }
}

/// Compares without saying by its time how much was right; `blake3::Hash` does.
fn same(said: &[u8], secret: &Hash) -> bool {
    blake3::Hash::from_slice(said).is_ok_and(|said| said == blake3::Hash::from_bytes(*secret))
}

/// The first process has taken the descriptors; this one stays until it lets go of them.
pub(crate) struct Passed {
    host: UnixStream,
}

/// Hands this process's two descriptors to the process that gave out the token. On success the caller closes its own.
///
/// # Errors
/// The path is no meeting's, no server listens there, or the token is wrong: nothing was taken.
pub(crate) fn present_token(
    read: BorrowedFd<'_>,
    write: BorrowedFd<'_>,
    secret: &Hash,
    index: u64,
    path: &Path,
    bases: &[PathBuf],
) -> Result<Passed, Error> {
    let told = |e| Error::os(Op::Join, path, e);
    let mut host = pass::connect(path, bases).map_err(told)?;
    let mut words = [0; WORDS];
    words[..32].copy_from_slice(secret);
    words[32..].copy_from_slice(&index.to_le_bytes());
    pass::send(&host, &words, [read, write]).map_err(told)?;
    host.set_read_timeout(Some(2 * GREETING_MAX)).map_err(told)?;
    let mut answer = [0; TAKEN.len()];
    if host.read_exact(&mut answer).is_err() || answer != TAKEN {
        return Err(Error::ours(Code::Refused, Op::Join, path, Reason::UnknownToken));
    }
    Ok(Passed { host })
}

impl Passed {
    /// Waits until the first process lets go of the stream, or ends.
    pub(crate) fn stay(mut self) {
        drop(self.host.set_read_timeout(None));
        let mut nothing = [0; 1];
        // Whatever comes, an end or an error: it is over.
        drop(self.host.read(&mut nothing));
    }
}

/// The whole of it for a process that has nothing else to do: hands over, lets go, and stays.
///
/// # Errors
/// As [`present_token`]; the descriptors come back, so that the client can be told.
pub(crate) fn pass_on(
    read: OwnedFd,
    write: OwnedFd,
    secret: &Hash,
    index: u64,
    path: &Path,
    bases: &[PathBuf],
) -> Result<(), (Error, OwnedFd, OwnedFd)> {
    use std::os::fd::AsFd;
    match present_token(read.as_fd(), write.as_fd(), secret, index, path, bases) {
        Ok(passed) => {
            drop((read, write));
            passed.stay();
            Ok(())
        }
        Err(e) => Err((e, read, write)),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // tests look at the file system the ordinary way
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::transport::conn::Heard;
    use bcmr_wire::message::kind;
    use std::io::{PipeReader, PipeWriter, pipe};
    use std::os::fd::AsFd;

    const HUNG: Duration = Duration::from_secs(60);

    /// What a further process was given: its own two ends, and the client's.
    fn connection() -> ((PipeReader, PipeWriter), (PipeReader, PipeWriter)) {
        let (stdin, to_it) = pipe().unwrap();
        let (from_it, stdout) = pipe().unwrap();
        ((stdin, stdout), (from_it, to_it))
    }

    fn client((read, write): (PipeReader, PipeWriter)) -> conn::RawStream {
        conn::RawStream::over_fds(
            OwnedFd::from(read),
            OwnedFd::from(write),
            "server".into(),
            Timeouts::WIRE,
            || {},
        )
    }

    fn door(count: u64) -> (tempfile::TempDir, Vec<PathBuf>, JoinListener) {
        let tmp = tempfile::tempdir().unwrap();
        let bases = vec![tmp.path().to_owned()];
        let door = JoinListener::open(&bases, (1, count), "the client", Timeouts::WIRE).unwrap();
        (tmp, bases, door)
    }

    fn frame(heard: Result<Heard, Error>) -> (u8, Vec<u8>) {
        match heard.unwrap() {
            Heard::Frame(frame) => (frame.kind(), frame.payload().to_vec()),
            Heard::Ended => panic!("ended"),
            Heard::Nothing => panic!("hangs"),
        }
    }

    #[test]
    fn what_is_there_counts() {
        assert_eq!(further(1, 7).ok(), Some(7));
        assert_eq!(further(1, u64::MAX).ok(), Some(STREAMS_MAX));
        assert_eq!(further(3, STREAMS_MAX).ok(), Some(STREAMS_MAX - 2));
        let all = STREAMS_MAX as usize + 1;
        assert_eq!(further(all, 1).err().map(|e| e.code), Some(Code::Protocol));
    }

    #[test]
    fn further_streams_end_in_the_first_process_and_leave_nothing() {
        let (tmp, bases, door) = door(2);
        let (secret, path) = (*door.secret(), door.path().to_owned());
        // Out of order, as ssh has it.
        for index in [2, 1] {
            let ((stdin, stdout), far) = connection();
            std::thread::scope(|s| {
                // Stays until the stream ends, as the process it stands for.
                let extra = s.spawn(|| {
                    pass_on(OwnedFd::from(stdin), OwnedFd::from(stdout), &secret, index, &path, &bases)
                });
                let client = client(far);
                assert_eq!(frame(client.inbox.recv_timeout(HUNG)).0, kind::OK);
                let Joined { index: got, stream } = door.next(HUNG).unwrap();
                assert_eq!(got, index);
                stream.enter(State::ReceivesBeside);
                client.out.send(Packet::Frames(frames_of(&Message::Done).unwrap())).unwrap();
                assert_eq!(frame(stream.inbox.recv_timeout(HUNG)).0, kind::DONE);
                stream.out.send(Packet::Frames(frames_of(&Message::AllSent).unwrap())).unwrap();
                assert_eq!(frame(client.inbox.recv_timeout(HUNG)).0, kind::ALL_SENT);
                let ends = s.spawn(|| stream.finish());
                client.finish().unwrap();
                ends.join().unwrap().unwrap();
                assert!(extra.join().unwrap().is_ok());
            });
        }
        door.close().unwrap();
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
    }

    #[test]
    fn who_does_not_know_the_token_gets_nothing_and_takes_nothing() {
        let (_tmp, bases, door) = door(2);
        let path = door.path().to_owned();
        let good = *door.secret();
        let mut bad = good;
        bad[31] ^= 1;
        let join = |secret: &Hash, index| {
            let ((stdin, stdout), far) = connection();
            let passed = present_token(stdin.as_fd(), stdout.as_fd(), secret, index, &path, &bases);
            (passed, stdin, stdout, far)
        };
        for (secret, index) in [(&bad, 1), (&[0; 32], 1), (&good, 0), (&good, 3), (&good, u64::MAX)] {
            let (passed, ..) = join(secret, index);
            assert_eq!(passed.err().unwrap().code, Code::Refused, "{index}");
        }
        // The honest one is not kept out by any of them, and cannot be had twice.
        let (passed, stdin, stdout, far) = join(&good, 1);
        passed.unwrap();
        drop((stdin, stdout));
        assert_eq!(frame(client(far).inbox.recv_timeout(HUNG)).0, kind::OK);
        assert_eq!(join(&good, 1).0.err().unwrap().code, Code::Refused);
        assert_eq!(door.next(HUNG).unwrap().index, 1);
        assert!(door.next(Duration::ZERO).is_none());
    }

    #[test]
    fn a_refused_process_can_still_tell_its_client() {
        let (_tmp, bases, door) = door(1);
        let ((stdin, stdout), (from_it, _to_it)) = connection();
        let refused = pass_on(OwnedFd::from(stdin), OwnedFd::from(stdout), &[7; 32], 1, door.path(), &bases);
        let (e, _read, write) = refused.unwrap_err();
        assert_eq!(e.code, Code::Refused);
        std::fs::File::from(write).write_all(b"no").unwrap();
        let mut said = String::new();
        std::fs::File::from(OwnedFd::from(from_it)).read_to_string(&mut said).unwrap();
        assert_eq!(said, "no");
    }

    #[test]
    fn a_dropped_stream_lets_the_process_behind_it_go() {
        let (_tmp, bases, door) = door(1);
        let ((stdin, stdout), far) = connection();
        let passed =
            present_token(stdin.as_fd(), stdout.as_fd(), door.secret(), 1, door.path(), &bases).unwrap();
        drop((stdin, stdout));
        let (tell, told) = std::sync::mpsc::channel();
        let stays = std::thread::spawn(move || {
            passed.stay();
            tell.send(()).unwrap();
        });
        let joined = door.next(HUNG).unwrap();
        assert!(told.try_recv().is_err());
        // Even while the client holds its ends open and says nothing.
        drop(joined);
        told.recv_timeout(HUNG).unwrap();
        stays.join().unwrap();
        drop(far);
    }

    #[test]
    fn a_door_that_is_dropped_is_gone() {
        let (tmp, bases, door) = door(1);
        let (path, secret) = (door.path().to_owned(), *door.secret());
        drop(door);
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
        let ((stdin, stdout), _far) = connection();
        assert!(present_token(stdin.as_fd(), stdout.as_fd(), &secret, 1, &path, &bases).is_err());
    }
}
