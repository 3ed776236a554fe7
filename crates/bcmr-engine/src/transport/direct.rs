//! The direct data plane: sealed TCP connections beside the ssh connection that authenticates them (`docs/protocol.md`,
//! section 7).
//!
//! Must not know what is carried, nor how ssh was started. A peer that has not proved that it has the secret gets nothing:
//! no byte in answer, two seconds, and a place in a short queue from which the oldest falls out.

mod tests;

use super::conn::{self, Setup, Timeouts, WriteHalf};
use super::seal::{
    KeyLimits, LENGTH_BYTES, SealedReader, SealedWriter, Secret, TAG_BYTES, Transcript, direction_key,
};
use super::stream::Stream;
use crate::error::{Note, Reason};
use bcmr_wire::dialogue::Dialogue;
use bcmr_wire::direct::{Direction, MAGIC, PROOF};
use bcmr_wire::limits::STREAMS_MAX;
use bcmr_wire::state::State;
use fastcopy::poll::readable;
use fastcopy::read_write::pread;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// What the client waits for all streams, before it goes on over ssh.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Before the client knocks again where it was not answered; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// What a connection has to prove itself.
const PROOF_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 2000 });
/// Connections that have not proved themselves, at most.
const PENDING_MAX: usize = 48;
/// Of these from one address, at most.
const PENDING_PER_SOURCE_MAX: usize = 16;
/// How often a wait looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);

const PREAMBLE_BYTES: usize = MAGIC.len() + 1;
const PROOF_BYTES: usize = LENGTH_BYTES + PROOF.len() + TAG_BYTES;
/// All that is ever read from who has proved nothing.
const HELLO_BYTES: usize = PREAMBLE_BYTES + PROOF_BYTES;

/// What seals the streams of a peer.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) secret: Secret,
    pub(crate) transcript: Transcript,
    pub(crate) limits: KeyLimits,
}

/// One connection, proved by both sides.
#[derive(Debug)]
pub(crate) struct Proved {
    /// Which of the streams it is.
    pub(crate) index: u8,
    pub(crate) read: SealedReader<TcpStream>,
    pub(crate) write: SealedWriter<TcpStream>,
}

impl Proved {
    /// The stream that frames go over; the first of them is at `idle`.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn stream(self, name: String, timeouts: Timeouts, idle: State) -> io::Result<Stream> {
        let rest = if self.index == 0 { idle } else { State::Quiet };
        let cut = Box::new(self.cutter()?);
        let stream = conn::RawStream::over(self.read, self.write, Setup { name, timeouts, cut });
        Ok(Stream::over(stream, Dialogue::resting(rest)))
    }

    /// Breaks the connection, from any thread that has the result; for a stream that hangs.
    ///
    /// # Errors
    /// No descriptor is left.
    fn cutter(&self) -> io::Result<impl Fn() + Send + Sync + 'static> {
        let socket = self.read.get_ref().try_clone()?;
        Ok(move || {
            // Already broken is as good.
            drop(socket.shutdown(Shutdown::Both));
        })
    }
}

impl Keys {
    fn of(&self, index: u8, direction: Direction) -> Secret {
        direction_key(&self.secret, index, direction, &self.transcript)
    }
    fn read(&self, index: u8, theirs: Direction, socket: &TcpStream) -> io::Result<SealedReader<TcpStream>> {
        SealedReader::new(socket.try_clone()?, self.of(index, theirs), self.limits)
    }
    fn write(&self, index: u8, ours: Direction, socket: TcpStream) -> io::Result<SealedWriter<TcpStream>> {
        SealedWriter::new(socket, self.of(index, ours), self.limits)
    }
}

impl WriteHalf for SealedWriter<TcpStream> {
    /// From the page cache into the record: sealing happens there, so the copy into a buffer of frames is saved.
    fn send_file(&mut self, file: BorrowedFd<'_>, at: &mut u64, len: usize) -> io::Result<Option<usize>> {
        let room = self.room()?;
        let n = len.min(room.len());
        let n = pread(file, *at, room.get_mut(..n).unwrap_or_default())?;
        self.filled(n);
        *at += n as u64;
        Ok(Some(n))
    }

    fn write_buffers(&mut self, buffers: &mut [Vec<u8>]) -> io::Result<()> {
        buffers.iter_mut().try_for_each(|buffer| self.write_in_place(buffer))
    }

    /// The last record, and then TCP's own end.
    fn close(&mut self) -> io::Result<()> {
        self.end()?;
        self.get_ref().shutdown(Shutdown::Write)
    }
}

/// Small frames must not wait for others. Buffers are left to the kernel: it lets them grow with the line, to more than
/// a fixed size may be (net.core.wmem_max), and stops to do so once a size was set.
fn ready(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)?;
    socket.set_nodelay(true)
}

// ---- the server ----

/// A port that listens for the streams of one peer.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    count: u8,
}

/// A connection that has proved nothing yet.
struct Pending {
    socket: TcpStream,
    from: IpAddr,
    since: Instant,
    got: [u8; HELLO_BYTES],
    have: usize,
}

enum HelloState {
    /// More is to come.
    Waits,
    Proved(Box<Proved>),
    Drop,
}

impl Listener {
    /// Listens on the address that ssh came in on, and on no other, at a port of the system's choice, for `count`
    /// streams.
    ///
    /// # Errors
    /// An address that means all or many; a count that is 0 or over [`STREAMS_MAX`]; what the system says.
    pub(crate) fn bind(address: IpAddr, count: u8) -> io::Result<Listener> {
        if address.is_unspecified() || address.is_multicast() || !(1..=STREAMS_MAX).contains(&count.into()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let socket = TcpListener::bind((address, 0))?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Listener { socket, address, count })
    }

    /// For the `Rendezvous`.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until every stream is there, then closes the port. In the order of their indices.
    ///
    /// # Errors
    /// `TimedOut` when they did not come within `time`, `Interrupted` when they were `given_up`: the ssh connection
    /// is gone, or the client goes on over it.
    /// The port is closed then too.
    pub(crate) fn accept(
        self,
        keys: &Keys,
        time: Duration,
        given_up: &dyn Fn() -> bool,
    ) -> io::Result<Vec<Proved>> {
        let end = Instant::now() + time;
        let mut pending: VecDeque<Pending> = VecDeque::with_capacity(PENDING_MAX);
        let mut proved: Vec<Proved> = Vec::new();
        while proved.len() < usize::from(self.count) {
            if given_up() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let now = Instant::now();
            if now >= end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            pending.retain(|one| now.duration_since(one.since) < PROOF_PATIENCE);
            let due = pending.front().map_or(LOOK, |one| PROOF_PATIENCE - now.duration_since(one.since));
            let wait = due.min(LOOK).min(end - now);
            let mut fds = vec![self.socket.as_fd()];
            fds.extend(pending.iter().map(|one| one.socket.as_fd()));
            let comes = readable(&fds, wait)?;
            // Those that wait go first: who has sent its proof must not fall out of the queue for newcomers.
            self.serve(keys, &mut pending, &mut proved);
            if comes.first() == Some(&true) {
                self.admit(keys, &mut pending, &mut proved)?;
            }
        }
        proved.sort_by_key(|one| one.index);
        Ok(proved)
    }

    /// Reads from all pending peers what there is.
    fn serve(&self, keys: &Keys, pending: &mut VecDeque<Pending>, proved: &mut Vec<Proved>) {
        for _ in 0..pending.len() {
            let Some(mut one) = pending.pop_front() else { return };
            match one.look(keys, self.count, proved) {
                HelloState::Waits => pending.push_back(one),
                HelloState::Proved(it) => proved.push(*it),
                HelloState::Drop => {}
            }
        }
    }

    /// Takes in who has connected: at most a queue's worth, then the others have their turn.
    fn admit(
        &self,
        keys: &Keys,
        pending: &mut VecDeque<Pending>,
        proved: &mut Vec<Proved>,
    ) -> io::Result<()> {
        for _ in 0..PENDING_MAX {
            if proved.len() == usize::from(self.count) {
                return Ok(());
            }
            let (socket, from) = match self.socket.accept() {
                Ok((socket, from)) => (socket, from.ip()),
                Err(e) => match e.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    // It was there and has gone again.
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => continue,
                    // Out of descriptors, mostly: those who wait hold some.
                    _ if pending.pop_front().is_some() => continue,
                    _ => return Err(e),
                },
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            let mut one = Pending { socket, from, since: Instant::now(), got: [0; HELLO_BYTES], have: 0 };
            match one.look(keys, self.count, proved) {
                HelloState::Proved(it) => proved.push(*it),
                HelloState::Drop => {}
                HelloState::Waits => {
                    self.make_room(keys, pending, proved, from);
                    pending.push_back(one);
                }
            }
        }
        Ok(())
    }

    /// The oldest falls out; of one source that has its share, the oldest of these. It is heard once more before, so
    /// that none falls out that has spoken already. One read for a newcomer: a crowd must not make us slow.
    fn make_room(
        &self,
        keys: &Keys,
        pending: &mut VecDeque<Pending>,
        proved: &mut Vec<Proved>,
        from: IpAddr,
    ) {
        let of_it = pending.iter().filter(|one| one.from == from).count();
        let oldest = if of_it >= PENDING_PER_SOURCE_MAX {
            pending.iter().position(|one| one.from == from)
        } else {
            (pending.len() >= PENDING_MAX).then_some(0)
        };
        if let Some(mut oldest) = oldest.and_then(|n| pending.remove(n))
            && let HelloState::Proved(it) = oldest.look(keys, self.count, proved)
        {
            proved.push(*it);
        }
    }
}

impl Pending {
    fn look(&mut self, keys: &Keys, count: u8, proved: &[Proved]) -> HelloState {
        while self.have < HELLO_BYTES {
            let Some(room) = self.got.get_mut(self.have..) else { return HelloState::Drop };
            match self.socket.read(room) {
                Ok(0) => return HelloState::Drop,
                Ok(n) => self.have += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return HelloState::Drop,
            }
        }
        // A peer that begins with something else is not waited for.
        let come = self.got.get(..self.have.min(MAGIC.len())).unwrap_or_default();
        if !MAGIC.starts_with(come) {
            return HelloState::Drop;
        }
        if self.have < HELLO_BYTES {
            return HelloState::Waits;
        }
        match self.prove(keys, count, proved) {
            Some(proved) => HelloState::Proved(Box::new(proved)),
            None => HelloState::Drop,
        }
    }

    /// Both proofs: theirs is opened, then ours is sent. Any failure is silent.
    fn prove(&self, keys: &Keys, count: u8, proved: &[Proved]) -> Option<Proved> {
        let (preamble, record) = self.got.split_at(PREAMBLE_BYTES);
        let index = *preamble.last()?;
        // A stream is given once: so no key is used on two connections.
        if index >= count || proved.iter().any(|one| one.index == index) {
            return None;
        }
        let mut read = keys.read(index, Direction::Up, &self.socket).ok()?;
        is_proof(&mut read, record).ok()?;
        ready(&self.socket).ok()?;
        let mut write = keys.write(index, Direction::Down, self.socket.try_clone().ok()?).ok()?;
        send_proof(&mut write).ok()?;
        Some(Proved { index, read, write })
    }
}

// [direct.proof]
fn send_proof(write: &mut impl Write) -> io::Result<()> {
    write.write_all(PROOF)?;
    write.flush()
}

fn is_proof(read: &mut SealedReader<TcpStream>, record: &[u8]) -> io::Result<()> {
    if read.open_apart(record)? == PROOF { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

// ---- the client ----

/// Why the data goes over ssh instead: said to the person, and no error of the copy.
#[derive(Debug)]
pub(crate) enum NotDirect {
    /// A jump host, a proxy or another program than ssh leads there.
    Unknown,
    /// What the server says or ssh is told is no address and port that one can connect to.
    NoAddress,
    /// A firewall, mostly.
    NoAnswer { address: SocketAddr },
    /// A program answers there that does not have the secret.
    NotProved { address: SocketAddr },
}

impl NotDirect {
    pub(crate) fn why(&self) -> Note {
        match self {
            NotDirect::Unknown => Reason::WayOfSshUnknown.into(),
            NotDirect::NoAddress => Reason::NoAddress.into(),
            NotDirect::NoAnswer { address } => Reason::NoAnswerAt.about(address.to_string()),
            NotDirect::NotProved { address } => Reason::AnotherAnswersAt.about(address.to_string()),
        }
    }
}

/// Where the client goes after a `Rendezvous`. D5: to the other end of the ssh connection and nowhere else, whatever the
/// server calls itself; it knows only its own side of an address translation, and must not send the client about. Of
/// several addresses that a name has, the one that the server names.
///
/// # Errors
/// [`NotDirect::Unknown`], [`NotDirect::NoAddress`].
pub(crate) fn where_to(named: &[u8], port: u16, known: &[IpAddr]) -> Result<SocketAddr, NotDirect> {
    let named = std::str::from_utf8(named).ok().and_then(|text| text.parse::<IpAddr>().ok());
    let named = named.map(|named| named.to_canonical());
    let mut known = known.iter().map(IpAddr::to_canonical).peekable();
    // [direct.where]
    let first = *known.peek().ok_or(NotDirect::Unknown)?;
    let to = known.find(|ip| Some(*ip) == named).unwrap_or(first);
    if port == 0 || to.is_unspecified() || to.is_multicast() || to == IpAddr::from([255; 4]) {
        return Err(NotDirect::NoAddress);
    }
    Ok(SocketAddr::new(to, port))
}

/// Connects `count` times and proves both sides to each other, all within `time`; [`DIAL_TIMEOUT`] in earnest.
///
/// # Errors
/// [`NotDirect::NoAnswer`], [`NotDirect::NotProved`]; connections that were made are closed again.
pub(crate) fn dial(
    address: SocketAddr,
    count: u8,
    keys: &Keys,
    time: Duration,
) -> Result<Vec<Proved>, NotDirect> {
    let end = Instant::now() + time;
    // At the same time: one round trip to connect and one for the proofs, and not as many for each.
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|index| {
                std::thread::Builder::new()
                    .name("dial".to_owned())
                    .spawn_scoped(scope, move || prove_one(address, index, keys, end))
            })
            .collect();
        let proved = threads.into_iter().zip(0..).map(|(thread, index)| match thread {
            Ok(thread) => thread.join().unwrap_or(Err(NotDirect::NotProved { address })),
            // Without a thread it takes longer.
            Err(_) => prove_one(address, index, keys, end),
        });
        // All of them, whatever becomes of the first: the scope waits for them anyway.
        proved.collect::<Vec<_>>().into_iter().collect()
    })
}

/// One connection on which both sides have proved themselves, before `end`.
fn prove_one(address: SocketAddr, index: u8, keys: &Keys, end: Instant) -> Result<Proved, NotDirect> {
    let not_proved = || NotDirect::NotProved { address };
    let mut one = dial_one(address, index, keys, end).map_err(|_| NotDirect::NoAnswer { address })?;
    let mut pause = FIRST_PAUSE;
    loop {
        match answer(&mut one, end) {
            Ok(()) => return Ok(one),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(not_proved()),
            // The server had to drop one of a crowd, and it was us. Nothing was sealed but the proof, and
            // that is the same bytes again: no nonce is used for two texts.
            Err(_) => match left(end) {
                Ok(left) => std::thread::sleep(pause.min(left)),
                Err(_) => return Err(not_proved()),
            },
        }
        pause *= 2;
        one = dial_one(address, index, keys, end).map_err(|_| not_proved())?;
    }
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Connects and sends preamble and proof.
fn dial_one(address: SocketAddr, index: u8, keys: &Keys, end: Instant) -> io::Result<Proved> {
    let mut socket = TcpStream::connect_timeout(&address, left(end)?)?;
    socket.set_nodelay(true)?;
    socket.set_write_timeout(Some(left(end)?))?;
    let mut preamble = [index; PREAMBLE_BYTES];
    preamble.split_at_mut(MAGIC.len()).0.copy_from_slice(MAGIC);
    socket.write_all(&preamble)?;
    let read = keys.read(index, Direction::Down, &socket)?;
    let mut write = keys.write(index, Direction::Up, socket)?;
    send_proof(&mut write)?;
    Ok(Proved { index, read, write })
}

/// Waits for the server's proof.
fn answer(halves: &mut Proved, end: Instant) -> io::Result<()> {
    let mut record = [0; PROOF_BYTES];
    let mut have = 0;
    let mut socket = halves.read.get_ref();
    while let Some(room) = record.get_mut(have..).filter(|room| !room.is_empty()) {
        // For each read what is left of the whole: a server that sends byte by byte gains no time.
        socket.set_read_timeout(Some(left(end)?))?;
        match socket.read(room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    ready(socket)?;
    is_proof(&mut halves.read, &record)
}
