//! Further connections end in processes of their own; here they hand what they were given to the first one, so that all
//! streams of a peer end in one process and one transaction. Why so: docs/decisions/0004.
//!
//! Must not know ssh, nor what the streams carry but the `Ok` that greets one.

use super::conn::{Packet, Patience, Stream};
use super::frames_of;
use crate::error::{Code, Error};
use bcmr_wire::limits::STREAMS_MAX;
use bcmr_wire::message::{Hash, Message};
use fastcopy::pass::{self, Meeting};
use std::io::{Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
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
    /// Its first frame, an `Ok`, is on the way already.
    pub(crate) stream: Stream,
}

/// Where the first process waits for the others.
pub(crate) struct Door {
    meeting: Arc<Meeting>,
    secret: Hash,
    joined: Receiver<Joined>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Waits, in a thread of its own, for the streams 1 to `count` of the peer called `name`. The socket is made in a
    /// fresh directory below the first of `bases` that lets us.
    ///
    /// # Errors
    /// Nowhere a socket, no randomness, no thread.
    pub(crate) fn open(
        bases: &[PathBuf],
        count: u64,
        name: &str,
        patience: Patience,
    ) -> Result<Door, Error> {
        let told = |e| Error::os("wait for further connections of", name, e);
        let secret = pass::secret().map_err(told)?;
        let meeting = Arc::new(Meeting::open(bases).map_err(told)?);
        // Room for all of them: the thread never waits for whoever takes them.
        let count = count.min(STREAMS_MAX);
        let (give, joined) = sync_channel(count as usize);
        let inside = Arc::clone(&meeting);
        let peer = name.to_owned();
        let started = std::thread::Builder::new()
            .name("join".to_owned())
            .spawn(move || let_in(&inside, &secret, count, &peer, patience, &give));
        match started {
            Ok(thread) => Ok(Door { meeting, secret, joined, thread: Some(thread) }),
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
        match self.joined.recv_timeout(time) {
            Ok(joined) => Some(joined),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Nobody is let in any more, and nothing is left in the file system.
    ///
    /// # Errors
    /// The socket or its directory could not be removed.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        self.stop();
        let path = self.meeting.path();
        self.meeting.remove().map_err(|e| Error::os("remove", path, e))
    }

    fn stop(&mut self) {
        self.meeting.stop();
        if let Some(thread) = self.thread.take() {
            // Had it panicked, nobody would be let in any more, which is what is wanted now.
            drop(thread.join());
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop();
            // On an error path: an empty directory more or less is not what the user has to hear about then.
            drop(self.meeting.remove());
        }
    }
}

fn let_in(
    meeting: &Meeting,
    secret: &Hash,
    count: u64,
    name: &str,
    patience: Patience,
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
        let stream = Stream::over_fds(read, write, format!("{name} ({index})"), patience, cut);
        let Ok(greeting) = frames_of(&Message::Ok { hash: None }) else { continue };
        if stream.out.send(Packet::Frames(greeting)).is_err() || give.send(Joined { index, stream }).is_err() {
            return;
        }
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
/// The path is no meeting's, nobody is there, or the token is wrong: nothing was taken.
pub(crate) fn introduce(
    read: BorrowedFd<'_>,
    write: BorrowedFd<'_>,
    secret: &Hash,
    index: u64,
    path: &Path,
    bases: &[PathBuf],
) -> Result<Passed, Error> {
    let told = |e| Error::os("join", path, e);
    let mut host = pass::connect(path, bases).map_err(told)?;
    let mut words = [0; WORDS];
    words[..32].copy_from_slice(secret);
    words[32..].copy_from_slice(&index.to_le_bytes());
    pass::send(&host, &words, [read, write]).map_err(told)?;
    host.set_read_timeout(Some(2 * GREETING_MAX)).map_err(told)?;
    let mut answer = [0; TAKEN.len()];
    if host.read_exact(&mut answer).is_err() || answer != TAKEN {
        return Err(Error::ours(Code::Refused, "join", path, "the first connection does not know this token"));
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
/// As [`introduce`]; the descriptors come back, so that the client can be told.
pub(crate) fn pass_on(
    read: OwnedFd,
    write: OwnedFd,
    secret: &Hash,
    index: u64,
    path: &Path,
    bases: &[PathBuf],
) -> Result<(), (Error, OwnedFd, OwnedFd)> {
    use std::os::fd::AsFd;
    match introduce(read.as_fd(), write.as_fd(), secret, index, path, bases) {
        Ok(passed) => {
            drop((read, write));
            passed.stay();
            Ok(())
        }
        Err(e) => Err((e, read, write)),
    }
}
