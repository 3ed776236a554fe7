//! Carrying frames between two processes: streams, how one gets to the other machine, and the greeting.
//!
//! Must not know what is copied, nor what any message means but those of the greeting. Only `peer` knows it.

pub(crate) mod conn;
#[cfg(test)]
mod conn_tests;
pub(crate) mod direct;
mod fds;
mod frame;
pub(crate) mod join;
mod login;
#[cfg(test)]
pub(crate) mod memory;
pub(crate) mod seal;
pub(crate) mod share;
pub(crate) mod ssh;
pub(crate) mod stream;

use crate::error::{Code, Error, Note, Op, Reason};
use crate::event::Cancel;
use crate::remote::{Address, Way};
use crate::trouble::{TroubleBuf, error_of};
use bcmr_wire::code;
use bcmr_wire::dialogue::Dialogue;
use bcmr_wire::handshake::{self, Features, wide};
use bcmr_wire::limits::FURTHER_MS;
use bcmr_wire::message::{AtOnce, Hash, Hello, Message, Trouble, kind};
use bcmr_wire::state::State;
use conn::{FrameBuf, Heard, Packet, Timeouts};
use data_encoding::HEXLOWER;
pub(crate) use frame::frames_of;
pub(crate) use frame::payload_of;
use ssh::{Carrier, Configured, LinkLoad, Nth};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stream::Stream;

/// What this program calls itself in a greeting.
const AGENT: &[u8] = concat!("bcmr ", env!("CARGO_PKG_VERSION")).as_bytes();
/// How often a cancel is looked for while the other side has not greeted yet.
const LOOK: Duration = Duration::from_millis(100);
/// How long the end of another side is waited for that has nothing to do any more.
const LEAVE_MAX: Duration = Duration::from_millis(20);
/// How long a login may go on printing before the program that was asked for begins.
const LOGIN_MAX: Duration = Duration::from_secs(30);

/// How long an answer to the greeting may take, with all that a person types before: servers give up such a connection
/// after two minutes themselves.
const GREETING_MAX: Duration = Duration::from_secs(600);
/// The same of a connection beside the first, with its place among the others: ssh asks for nothing there.
pub(crate) const FURTHER_MAX: Duration = Duration::from_millis(FURTHER_MS);

/// The other side, with all its streams. Stream 0 carries control.
pub(crate) struct Peer {
    /// At least one.
    pub(crate) streams: Vec<Stream>,
    /// What holds for all of them.
    pub(crate) agreed: Agreed,
    /// Who it is, for people.
    pub(crate) name: String,
    /// The ssh connection, while the data goes another way: it carries nothing but the end.
    pub(crate) control_stream: Option<Stream>,
    /// The processes of ours that carry them; none where this is the server.
    pub(crate) carriers: Vec<Carrier>,
}

/// What both sides have said they can do.
#[derive(Clone, Debug)]
pub(crate) struct Agreed {
    /// What both can.
    pub(crate) features: Features,
    /// The payload of `Hello`, byte for byte: it goes into keys.
    pub(crate) hello: Vec<u8>,
    /// The payload of `Welcome`, likewise.
    pub(crate) welcome: Vec<u8>,
    /// What the other side calls itself; its text.
    pub(crate) agent: String,
}

/// What lets further connections in, as the server gave it out.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    /// Proves that it is the same client.
    pub(crate) secret: Hash,
    /// Where the first process waits.
    pub(crate) path: PathBuf,
}

impl Agreed {
    /// Whether the server answers the `Get` of the greeting.
    pub(crate) fn serves_at_once(&self) -> bool {
        self.features.has_wide(wide::AT_ONCE)
    }
}

impl Peer {
    /// What the carriers had to say since the last call: lines of ssh and of the far side, unescaped.
    pub(crate) fn notes(&self) -> Vec<Note> {
        self.carriers.iter().flat_map(Carrier::notes).collect()
    }

    /// Ends every stream in order and waits for the carriers; what they said last comes back.
    ///
    /// # Errors
    /// The first trouble; the others are ended all the same.
    pub(crate) fn finish(self) -> Result<Vec<Note>, Error> {
        let mut first = None;
        // The other side lets go of its streams only once it has seen the end of stream 0.
        for stream in self.streams.iter().chain(&self.control_stream) {
            stream.close();
        }
        // Extra streams first: their processes at the other side belong to that of stream 0.
        for stream in self.streams.into_iter().chain(self.control_stream).rev() {
            if let Err(e) = stream.finish() {
                first.get_or_insert(e);
            }
        }
        let mut said = Vec::new();
        for carrier in self.carriers {
            match carrier.finish() {
                Ok(notes) => said.extend(notes),
                Err(e) => {
                    first.get_or_insert(e);
                }
            }
        }
        match first {
            None => Ok(said),
            Some(e) => Err(e),
        }
    }

    /// The same, for one whose other side has nothing to do any more: where it is so far away that its end takes longer than
    /// [`LEAVE_MAX`] to arrive, that is waited for elsewhere, and ssh ends by itself when this program has ended before.
    ///
    /// # Errors
    /// As [`Peer::finish`], where that was waited for.
    pub(crate) fn leave(self) -> Result<Vec<Note>, Error> {
        for stream in &self.streams {
            stream.close();
        }
        let until = Instant::now() + LEAVE_MAX;
        if !self.streams.iter().any(|stream| stream.other_goes_on(until)) {
            return self.finish();
        }
        let elsewhere = std::thread::Builder::new().name("end".to_owned()).spawn(move || drop(self.finish()));
        // Without a thread it is given up, which nothing depends on.
        drop(elsewhere);
        Ok(Vec::new())
    }

    /// Gives all of them up at once.
    pub(crate) fn abort(self) {
        drop(self);
    }
}

// ---- the client's side ----

/// What a client brings to the greeting.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    /// What it can do.
    pub(crate) offered: Features,
    /// What the server must be able to do.
    pub(crate) required: Features,
    /// A `Get` that the greeting holds.
    pub(crate) at_once: Option<AtOnce<'a>>,
}

impl Terms<'_> {
    /// A greeting that asks for nothing.
    pub(crate) fn new(offered: Features, required: Features) -> Terms<'static> {
        Terms { offered, required, at_once: None }
    }
}

/// Connects, greets, and comes back with one stream. `behind`: requests that need nothing agreed and go with the greeting,
/// a round trip less; their answers are the first that the stream hears.
///
/// # Errors
/// [`Code::Refused`] for a host, user or program name that no shell must see; [`Code::NoPeer`] when no bcmr answers
/// there, or none of our version, or something else; [`Code::Unsupported`] when it does not give what is required;
/// [`Code::Protocol`] when it breaks the protocol; [`Code::Lost`] when the machine could not be reached; [`Code::Interrupted`].
pub(crate) fn connect(
    address: &Address,
    way: &Way,
    load: LinkLoad,
    terms: Terms<'_>,
    behind: &[u8],
    cancel: &Cancel,
) -> Result<Peer, Error> {
    // A session that there was no connection for: a server may allow but one, or the connection is gone by now.
    if way.socket().is_some() {
        match connect_as(Nth::Session, address, way, load, terms, behind, cancel) {
            // One that has ended by itself may be made again by another way.
            Err(e) if e.code.is_of_connection() && !cancel.is_set() => {
                if way.socket().is_some() {
                    way.unshare();
                }
            }
            other => return other,
        }
    }
    connect_as(Nth::First, address, way, load, terms, behind, cancel)
}

fn connect_as(
    nth: Nth<'_>,
    address: &Address,
    way: &Way,
    load: LinkLoad,
    terms: Terms<'_>,
    behind: &[u8],
    cancel: &Cancel,
) -> Result<Peer, Error> {
    let configured = ssh::configured_for(address, way, nth, load);
    let (stream, carrier) = ssh::start(address, way, nth, configured)?;
    let (offered, hello) = greeting(terms.offered, terms.at_once, &address.host)?;
    let until = Instant::now() + GREETING_MAX;
    let (stream, carrier, welcome) = greet(stream, carrier, hello.clone(), behind, until, cancel)?;
    let agreed = settle(offered, terms.required, hello, &welcome, &address.host)?;
    drop(welcome);
    if agreed.serves_at_once() {
        stream.was_asked(kind::GET);
    }
    Ok(Peer {
        streams: vec![stream],
        agreed,
        name: address.host.clone(),
        carriers: vec![carrier],
        control_stream: None,
    })
}

/// One connection more, which becomes stream `index` of the peer that gave out the token. Takes as long as ssh takes to
/// connect, and `within` at most. `configured` is what ssh makes of its configuration.
///
/// # Errors
/// As [`connect`]; the peer is not touched by any of them.
pub(crate) fn connect_further(
    address: &Address,
    way: &Way,
    ours: Features,
    (token, index): (&Token, u64),
    configured: Option<Configured>,
    within: Duration,
    cancel: &Cancel,
) -> Result<(Stream, Carrier), Error> {
    let until = Instant::now() + within;
    let (stream, carrier) = ssh::start(address, way, Nth::Further, configured)?;
    let (ours, hello) = greeting(ours, None, &address.host)?;
    let join = Message::Join { secret: token.secret, path: token.path.as_os_str().as_bytes(), index };
    // Both in one go: a round trip less.
    let join = frames_of(&join)?;
    let (stream, carrier, welcome) = greet(stream, carrier, hello.clone(), &join, until, cancel)?;
    settle(ours, Features::NONE, hello, &welcome, &address.host)?;
    let lost = |reason| Error::ours(Code::Lost, Op::ConnectTo, &address.host, reason);
    loop {
        match stream.inbox.recv_timeout(LOOK)? {
            Heard::Frame(frame) if frame.kind() == kind::OK => {
                stream.settle(State::Quiet);
                return Ok((stream, carrier));
            }
            Heard::Frame(frame) => return Err(unexpected(&frame, &address.host)),
            Heard::Ended => return Err(lost(Reason::DidNotJoin)),
            Heard::Nothing if cancel.is_set() => return Err(stopped(&address.host)),
            Heard::Nothing if Instant::now() > until => return Err(lost(Reason::NoAnswerYet)),
            Heard::Nothing => {}
        }
    }
}

fn stopped(host: &str) -> Error {
    Error::ours(Code::Interrupted, Op::ConnectTo, host, Reason::Interrupted)
}

/// Sends the greeting and waits for the answer.
fn greet(
    stream: Stream,
    carrier: Carrier,
    hello: Vec<u8>,
    behind: &[u8],
    until: Instant,
    cancel: &Cancel,
) -> Result<(Stream, Carrier, FrameBuf), Error> {
    let mut frames = hello;
    frames.extend_from_slice(behind);
    // When it cannot be sent, what comes back says why.
    drop(stream.out.send(Packet::Frames(frames)));
    let broken = loop {
        match stream.inbox.recv_timeout(LOOK) {
            Ok(Heard::Frame(frame)) => {
                stream.set_timeouts(Timeouts::WIRE);
                carrier.note_login();
                return Ok((stream, carrier, frame));
            }
            Ok(Heard::Nothing) if cancel.is_set() => return Err(stopped(carrier.name())),
            Ok(Heard::Nothing) if carrier.login().waits().is_some_and(|time| time > LOGIN_MAX) => {
                let text = carrier.login().text().unwrap_or_default();
                let note = Reason::LoginWithoutAnswer.about(text);
                break Error::ours(Code::Protocol, Op::ConnectTo, carrier.name(), note);
            }
            Ok(Heard::Nothing) if Instant::now() > until => {
                let note = Reason::NoAnswerYet;
                break Error::ours(Code::Lost, Op::ConnectTo, carrier.name(), note);
            }
            // The password was typed.
            Ok(Heard::Nothing) if stream.inbox.has_heard() => stream.set_timeouts(Timeouts::WIRE),
            Ok(Heard::Nothing) => {}
            Ok(Heard::Ended) => {
                break Error::ours(Code::Lost, Op::ConnectTo, carrier.name(), Reason::ClosedAtOnce);
            }
            // A message of the protocol in the wrong place does not come from a shell.
            Err(e) if e.code == Code::Protocol && !stream.inbox.is_corrupt() => return Err(e),
            Err(e) => break e,
        }
    };
    // Lets go of ssh's standard input, so that it ends.
    stream.close();
    let error = carrier.no_greeting(&broken);
    drop(stream);
    Err(error)
}

/// What a `Hello` offers, and it as a frame.
fn greeting(ours: Features, at_once: Option<AtOnce<'_>>, host: &str) -> Result<(Features, Vec<u8>), Error> {
    let nonce = fastcopy::process::secret().map_err(|e| Error::os(Op::Greet, host, e))?;
    let hello = handshake::hello(ours, nonce, AGENT, at_once);
    Ok((Features::of(&hello), frames_of(&Message::Hello(hello))?))
}

fn settle(
    ours: Features,
    required: Features,
    hello: Vec<u8>,
    answer: &FrameBuf,
    host: &str,
) -> Result<Agreed, Error> {
    // An error of another version may not be one that can be decoded here.
    if answer.kind() != kind::WELCOME {
        return Err(unexpected(answer, host));
    }
    let Message::Welcome(welcome) = answer.message()? else { return Err(unexpected(answer, host)) };
    let features = handshake::settle(ours, required, &welcome).map_err(|e| unsettled(e, host))?;
    Ok(Agreed {
        features,
        hello: payload_of(&hello),
        welcome: answer.payload().to_vec(),
        agent: agent_of(&welcome),
    })
}

fn unsettled(e: handshake::Unsettled, host: &str) -> Error {
    let code = match e {
        handshake::Unsettled::Version(_) => Code::NoPeer,
        handshake::Unsettled::NotOffered(_) => Code::Protocol,
        handshake::Unsettled::Missing(_) => Code::Unsupported,
    };
    Error::ours(code, Op::AgreeWith, host, e.to_string())
}

/// What an answer means that is not the one hoped for.
fn unexpected(answer: &FrameBuf, host: &str) -> Error {
    match answer.message() {
        Ok(Message::Error(trouble)) => peer_error(&trouble, host),
        Ok(_) => {
            let note = Reason::NoPlaceHere.about(format!("{:#04x}", answer.kind()));
            Error::ours(Code::Protocol, Op::TalkTo, host, note)
        }
        // [hello.version] The rest of it may stand as in another version.
        Err(_) if answer.kind() == kind::ERROR && handshake::refuses_version(answer.payload()) => {
            Error::ours(Code::NoPeer, Op::TalkTo, host, Reason::OtherVersion)
        }
        Err(e) => e,
    }
}

/// The other side's error as one of ours, as far as it concerns the connection.
fn peer_error(trouble: &Trouble<'_>, host: &str) -> Error {
    let code = match trouble.code {
        code::NO_COMMON_VERSION => Code::NoPeer,
        number => match Code::of_number(number) {
            same @ (Code::Refused | Code::Limit | Code::Unsupported | Code::Denied) => same,
            Code::Lost | Code::Unreachable => Code::Lost,
            _ => Code::Protocol,
        },
    };
    let note = match code {
        Code::NoPeer => Reason::OtherVersion.into(),
        _ => error_of(trouble).why(),
    };
    Error::ours(code, Op::TalkTo, host, note)
}

// ---- the server's side ----

/// Greets the program at the other end of `read` and `write`. A client of its own comes back as a peer with one stream,
/// whose inbox begins with its first request. A further connection of another process's client is handed on, and this
/// call lasts as long as that needs it; then, and when the client has gone without a request, it is `None`.
///
/// Reads not a byte more than it needs, because the descriptors may become another process's.
///
/// `begins`: whether a `Get` that came with the greeting, of files of so many bytes at most, is the first request. [hello.get]
///
/// # Errors
/// The client broke the protocol or speaks another version; it was told.
pub(crate) fn answer(
    read: OwnedFd,
    write: OwnedFd,
    ours: Features,
    begins: &dyn Fn(&Message<'_>, u64) -> bool,
    bases: &[PathBuf],
    timeouts: Timeouts,
) -> Result<Option<Peer>, Error> {
    const NAME: &str = "the client";
    let mut read = Bounded { file: File::from(read), timeouts };
    let mut write = Bounded { file: File::from(write), timeouts };
    let lost = |e| Error { code: Code::Lost, ..Error::os(Op::Answer, NAME, e) };
    let Some(hello) = conn::read_exactly(&mut read, NAME)? else { return Ok(None) };
    let mut dialogue = Dialogue::server();
    let mut at_once = get_of(&hello, begins);
    let begins = if at_once.is_some() { wide::AT_ONCE } else { 0 };
    let ours = ours.or(Features { caps: 0, wide: begins });
    let (frame, agreed) = answer_hello(&hello, &mut dialogue, ours, NAME);
    write.write_all(&frame).map_err(lost)?;
    let agreed = agreed?;
    let first = loop {
        if let Some(get) = at_once.take() {
            break get;
        }
        let Some(first) = conn::read_exactly(&mut read, NAME)? else { return Ok(None) };
        match (first.first().copied(), first.get(1..).unwrap_or_default()) {
            (Some(kind::PING), token) => {
                let Ok(token) = <[u8; 8]>::try_from(token) else {
                    return Err(Error::ours(Code::Protocol, Op::Answer, NAME, Reason::PingWithoutToken));
                };
                let pong = frames_of(&Message::Pong { token: u64::from_le_bytes(token) })?;
                write.write_all(&pong).map_err(lost)?;
            }
            (Some(kind::PONG), _) => {}
            _ => break first,
        }
    };
    let (read, write) = (OwnedFd::from(read.file), OwnedFd::from(write.file));
    if first.first() == Some(&kind::JOIN) {
        let message = Message::decode(kind::JOIN, first.get(1..).unwrap_or_default());
        let Ok(Message::Join { secret, path, index }) = message else {
            return Err(Error::ours(Code::Protocol, Op::Answer, NAME, Reason::BadJoin));
        };
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        return match join::pass_on(read, write, &secret, index, path, bases) {
            Ok(()) => Ok(None),
            Err((e, _read, write)) => {
                let told = TroubleBuf::of(&Error::ours(Code::Refused, Op::Join, "", Reason::UnknownToken));
                File::from(write).write_all(&frames_of(&Message::Error(told.trouble()))?).map_err(lost)?;
                Err(e)
            }
        };
    }
    // Nothing is known here that a cut could break: a pipe ends when the other side lets go.
    let stream = conn::RawStream::over_fds_from(first, read, write, NAME.to_owned(), timeouts, || {});
    let stream = Stream::over(stream, dialogue);
    Ok(Some(Peer {
        streams: vec![stream],
        agreed,
        name: NAME.to_owned(),
        carriers: Vec::new(),
        control_stream: None,
    }))
}

/// The `Get` of a greeting as the first frame of a stream, type byte first, where it is to be one. A request that is not
/// understood is none: the client makes it once more, and is told then.
fn get_of(first: &[u8], begins: &dyn Fn(&Message<'_>, u64) -> bool) -> Option<Vec<u8>> {
    let Ok(Message::Hello(hello)) = Message::decode(*first.first()?, first.get(1..)?) else { return None };
    let AtOnce { most, get } = hello.wide?.at_once?;
    let frame = [vec![kind::GET], HEXLOWER.decode(get).ok()?].concat();
    let message = Message::decode(kind::GET, frame.get(1..)?).ok()?;
    begins(&message, most).then_some(frame)
}

/// A descriptor before it becomes a stream's: a client that is silent, or takes nothing, is waited for no longer here than there.
struct Bounded {
    file: File,
    timeouts: Timeouts,
}

impl Bounded {
    /// Waits until `is_ready` says so, and no longer than the other side is waited for.
    fn wait(&self, is_ready: impl Fn(BorrowedFd<'_>, Duration) -> io::Result<bool>) -> io::Result<()> {
        let until = Instant::now() + self.timeouts.dead;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if is_ready(self.file.as_fd(), left)? {
                return Ok(());
            }
            // A signal ends a poll early.
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

impl Read for Bounded {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.wait(|fd, left| Ok(fastcopy::poll::readable(&[fd], left)?.contains(&true)))?;
        self.file.read(buf)
    }
}

impl Write for Bounded {
    /// What is said before the first request is short: where a pipe can be written to, all of it fits.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.wait(fastcopy::poll::writable)?;
        self.file.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// What to send back to a first frame, and what is agreed on then.
fn answer_hello(
    first: &[u8],
    dialogue: &mut Dialogue,
    ours: Features,
    name: &str,
) -> (Vec<u8>, Result<Agreed, Error>) {
    match welcome_for(first, dialogue, ours, name) {
        Ok((frame, agreed)) => (frame, Ok(agreed)),
        Err(e) => {
            let buf = TroubleBuf::of(&Error::ours(e.code, Op::Greet, "", e.why()));
            let trouble = match e.code {
                // [hello.version] Its code alone: that reads the same in every version.
                Code::NoPeer => Trouble { code: code::NO_COMMON_VERSION, ..Trouble::default() },
                _ => buf.trouble(),
            };
            (frames_of(&Message::Error(trouble)).unwrap_or_default(), Err(e))
        }
    }
}

fn welcome_for(
    first: &[u8],
    dialogue: &mut Dialogue,
    ours: Features,
    name: &str,
) -> Result<(Vec<u8>, Agreed), Error> {
    let no_hello = |note: Note| Error::ours(Code::Protocol, Op::Answer, name, note);
    let (kind, payload) = (first.first().copied().unwrap_or_default(), first.get(1..).unwrap_or_default());
    dialogue.arrives(kind).map_err(|breach| no_hello(stream::out_of_place(breach)))?;
    let hello = match Message::decode(kind::HELLO, payload) {
        Ok(Message::Hello(hello)) => hello,
        Ok(_) => return Err(no_hello(Reason::NoGreeting.into())),
        Err(e) => return Err(no_hello(Reason::BadGreeting.about(e.to_string()))),
    };
    let nonce = fastcopy::process::secret().map_err(|e| Error::os(Op::Greet, name, e))?;
    let welcome = handshake::welcome(ours, nonce, AGENT, &hello).map_err(|e| unsettled(e, name))?;
    let features = Features::of(&welcome);
    let frame = frames_of(&Message::Welcome(welcome))?;
    let agreed =
        Agreed { features, hello: payload.to_vec(), welcome: payload_of(&frame), agent: agent_of(&hello) };
    Ok((frame, agreed))
}

fn agent_of(hello: &Hello<'_>) -> String {
    hello.wide.as_ref().map(|wide| String::from_utf8_lossy(wide.agent).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::tests::plain_way;
    use bcmr_wire::handshake::caps;
    use std::ffi::OsString;
    use std::os::unix::net::UnixStream;

    const OURS: Features = Features { caps: caps::ZSTD, wide: wide::TREES | wide::JOIN };

    fn client_says(bytes: &[u8]) -> (Result<Option<Peer>, Error>, Vec<u8>) {
        let (here, there) = UnixStream::pair().unwrap();
        (&here).write_all(bytes).unwrap();
        here.shutdown(std::net::Shutdown::Write).unwrap();
        let read = OwnedFd::from(there.try_clone().unwrap());
        let answered = answer(read, OwnedFd::from(there), OURS, &|_, _| false, &[], Timeouts::WIRE);
        let mut said = Vec::new();
        match &answered {
            // A peer holds the connection open; what it has said so far is one frame.
            Ok(Some(_)) => {
                let mut header = [0; 4];
                (&here).read_exact(&mut header).unwrap();
                said.resize(4 + u32::from_le_bytes(header) as usize, 0);
                said[..4].copy_from_slice(&header);
                (&here).read_exact(&mut said[4..]).unwrap();
            }
            _ => drop((&here).read_to_end(&mut said)),
        }
        (answered, said)
    }

    fn hello(theirs: Features) -> Vec<u8> {
        greeting(theirs, None, "x").unwrap().1
    }

    fn one(frame: &[u8]) -> Message<'_> {
        let (found, used) = bcmr_wire::frame::decode(frame).unwrap().unwrap();
        assert_eq!(used, frame.len());
        Message::decode(found.kind, found.payload).unwrap()
    }

    #[test]
    fn a_client_is_greeted_and_its_first_request_is_not_lost() {
        let theirs = Features { caps: caps::ZSTD | caps::LZ4, wide: wide::TREES };
        let stat = frames_of(&Message::Stat { path: b"x", follow: true }).unwrap();
        let (peer, said) = client_says(&[hello(theirs), stat].concat());
        let peer = peer.unwrap().unwrap();
        assert_eq!(peer.agreed.features, Features { caps: caps::ZSTD, wide: wide::TREES });
        assert_eq!(peer.agreed.agent.as_bytes(), AGENT);
        assert_eq!(peer.agreed.welcome, said[5..]);
        assert!(matches!(one(&said), Message::Welcome(_)));
        let first = peer.streams[0].inbox.recv().unwrap().unwrap();
        assert_eq!(first.message().unwrap(), Message::Stat { path: b"x", follow: true });
        assert!(peer.streams[0].inbox.recv().unwrap().is_none());
    }

    fn get() -> Message<'static> {
        let policy = bcmr_wire::message::Policy {
            flags: 0,
            choices: [0; 8],
            checkpoint: 0,
            rules: Vec::new(),
            regexes: Vec::new(),
            compress: bcmr_wire::message::Compress::Auto,
            numbers: Vec::new(),
        };
        Message::Get { policy, paths: vec![b"a b"], names: None }
    }

    /// `[hello.get]`: what the server does, with a `Get` in the greeting of which it is asked whether it begins.
    #[test]
    fn a_request_in_the_greeting_is_the_first_one_where_the_server_says_so() {
        let digits = HEXLOWER.encode(&payload_of(&frames_of(&get()).unwrap()));
        let done = frames_of(&Message::Done).unwrap();
        let stat = frames_of(&Message::Stat { path: b"x", follow: true }).unwrap();
        let greeted = |digits: &str, then: &[u8], begins: &dyn Fn(&Message<'_>, u64) -> bool| {
            let at_once = Some(AtOnce { most: 7, get: digits.as_bytes() });
            let (here, there) = UnixStream::pair().unwrap();
            (&here).write_all(&greeting(OURS, at_once, "x").unwrap().1).unwrap();
            (&here).write_all(then).unwrap();
            here.shutdown(std::net::Shutdown::Write).unwrap();
            let read = OwnedFd::from(there.try_clone().unwrap());
            let peer =
                answer(read, OwnedFd::from(there), OURS, begins, &[], Timeouts::WIRE).unwrap().unwrap();
            let first = peer.streams[0].inbox.recv().unwrap().unwrap();
            let is_get = first.message().unwrap() == get();
            let is_stat = first.kind() == kind::STAT;
            assert!(is_get != is_stat);
            assert_eq!(peer.agreed.serves_at_once(), is_get);
            is_get
        };
        let yes = |message: &Message<'_>, most: u64| *message == get() && most == 7;
        assert!(greeted(&digits, &done, &yes));
        assert!(!greeted(&digits, &stat, &|_, _| false), "it is asked for again");
        for other in ["", "0", "00", &digits[2..]] {
            assert!(!greeted(other, &stat, &|_, _| true), "{other}");
        }
        let bare = client_says(&[hello(OURS), stat.clone()].concat()).0.unwrap().unwrap();
        assert!(!bare.agreed.serves_at_once());
    }

    #[test]
    fn a_client_that_says_anything_else_is_told_and_left() {
        let (gone, said) = client_says(b"");
        assert!(gone.unwrap().is_none() && said.is_empty());
        let (gone, said) = client_says(&hello(OURS));
        assert!(gone.unwrap().is_none());
        assert!(matches!(one(&said), Message::Welcome(_)));
        // Another version, no greeting, half a greeting, no frame.
        let mut other = hello(OURS);
        other[5] = 9;
        let (e, said) = client_says(&other);
        assert_eq!(e.err().unwrap().code, Code::NoPeer);
        // Nothing but its code, so that every version can read it.
        assert_eq!(said, b"\x07\0\0\0\x03\x64\0\0\0\0\0");
        let done = frames_of(&Message::Done).unwrap();
        let (e, said) = client_says(&done);
        assert_eq!(e.err().unwrap().code, Code::Protocol);
        assert!(matches!(one(&said), Message::Error(t) if t.code == Code::Protocol.number()));
        let (e, said) = client_says(&hello(OURS)[..9]);
        assert_eq!((e.err().unwrap().code, said), (Code::Lost, Vec::new()));
        let (e, said) = client_says(b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!((e.err().unwrap().code, said), (Code::Protocol, Vec::new()));
        // A token that was not given out.
        let join = Message::Join { secret: [1; 32], path: b"/run/docker.sock", index: 1 };
        let (e, said) = client_says(&[hello(OURS), frames_of(&join).unwrap()].concat());
        assert!(e.is_err());
        let welcome = said.len() - one_after(&said).len();
        assert!(matches!(one(&said[welcome..]), Message::Error(t) if t.code == Code::Refused.number()));
    }

    fn one_after(bytes: &[u8]) -> &[u8] {
        let (_, used) = bcmr_wire::frame::decode(bytes).unwrap().unwrap();
        &bytes[used..]
    }

    // ---- a shell in ssh's place: it gets ssh's arguments behind its script ----

    fn way(script: &str) -> Way {
        plain_way(["sh", "-c", script].map(OsString::from).to_vec())
    }

    fn try_connect(script: &str) -> Result<Peer, Error> {
        let address = Address { user: None, host: "there".into(), port: None, path: PathBuf::new() };
        connect(
            &address,
            &way(script),
            LinkLoad::Light,
            Terms::new(OURS, Features::NONE),
            &[],
            &Cancel::new(),
        )
    }

    #[test]
    fn what_ssh_does_instead_of_connecting_is_told_apart() {
        let table = [
            ("echo 'Permission denied (publickey).' >&2; exit 255", Code::NoKey, "Permission denied"),
            ("echo 'sh: bcmr: not found' >&2; exit 127", Code::NoPeer, "NoProgram"),
            ("exit 126", Code::NoPeer, "ProgramNotRun"),
            ("echo 'unknown subcommand' >&2; exit 2", Code::NoPeer, "unknown subcommand"),
            ("echo 'Welcome to there!'; head -c 9 >/dev/null", Code::NoPeer, "Welcome to there!"),
            ("kill -KILL $$", Code::Lost, "Closed"),
            // Sends nothing, and reads nothing.
            ("exec </dev/null; exec >/dev/null; exit 255", Code::Lost, "SshCouldNotConnect"),
        ];
        for (script, code, note) in table {
            let e = try_connect(script).err().unwrap();
            assert_eq!(e.code, code, "{script}: {e}");
            assert!(format!("{:?}", e.why()).contains(note), "{script}: {e}");
        }
    }

    #[test]
    fn a_server_of_another_version_or_without_a_guarantee_is_no_peer() {
        let tmp = tempfile::tempdir().unwrap();
        let answers = |frame: &[u8], required: Features| {
            let file = tmp.path().join("answer");
            std::fs::write(&file, frame).unwrap();
            let script = format!("cat {}; cat >/dev/null", file.display());
            let address = Address { user: None, host: "there".into(), port: None, path: PathBuf::new() };
            connect(&address, &way(&script), LinkLoad::Light, Terms::new(OURS, required), &[], &Cancel::new())
        };
        let welcome = |features| {
            frames_of(&Message::Welcome(handshake::hello(features, [1; 32], b"bcmr 9", None))).unwrap()
        };
        let good = Features { caps: caps::ZSTD, wide: wide::TREES };
        let peer = answers(&welcome(good), good).unwrap();
        assert_eq!(
            (peer.agreed.features, peer.agreed.agent.as_str(), peer.name.as_str()),
            (good, "bcmr 9", "there")
        );
        peer.finish().unwrap();
        let mut other = welcome(good);
        other[5] = 1;
        assert_eq!(answers(&other, good).err().unwrap().code, Code::NoPeer);
        let trouble = |code: u16| {
            let t = Trouble { code, ..Trouble::default() };
            frames_of(&Message::Error(t)).unwrap()
        };
        let e = answers(&trouble(code::NO_COMMON_VERSION), good).err().unwrap();
        assert!(e.code == Code::NoPeer && e.why() == Reason::OtherVersion.into(), "{e}");
        // As version 1 says it: code, and then texts.
        let old = b"\x14\0\0\0\x03\x64\0\x05greet\0\x09I speak 1\0";
        let e = answers(old, good).err().unwrap();
        assert!(e.code == Code::NoPeer && e.why() == Reason::OtherVersion.into(), "{e}");
        let lacking = answers(&welcome(Features::NONE), good).err().unwrap();
        assert_eq!(lacking.code, Code::Unsupported);
        let claims = answers(&welcome(Features { caps: caps::SYNC, wide: 0 }), Features::NONE);
        assert_eq!(claims.err().unwrap().code, Code::Protocol);
        assert_eq!(answers(&frames_of(&Message::Done).unwrap(), good).err().unwrap().code, Code::Protocol);
    }

    /// A client that stops in the middle of its greeting, or before its first request, and lets go of nothing.
    #[test]
    fn a_client_that_says_nothing_more_is_left() {
        let hello = hello(OURS);
        let timeouts = Timeouts { dead: Duration::from_millis(50), ..Timeouts::WIRE };
        for said in [&b""[..], &hello[..3], &hello[..hello.len() - 1], &hello] {
            let (here, there) = UnixStream::pair().unwrap();
            (&here).write_all(said).unwrap();
            let read = OwnedFd::from(there.try_clone().unwrap());
            let answered = answer(read, OwnedFd::from(there), OURS, &|_, _| false, &[], timeouts);
            assert_eq!(answered.err().unwrap().code, Code::Lost, "{} bytes", said.len());
            drop(here);
        }
    }

    /// What it is answered fills the pipe, and it says more and more: the client is not silent, and reads nothing.
    #[test]
    fn a_client_that_takes_no_answer_is_left() {
        let (read, mut says) = std::io::pipe().unwrap();
        let (hears, write) = std::io::pipe().unwrap();
        let ping = frames_of(&Message::Ping { token: 7 }).unwrap();
        let room = rustix::pipe::fcntl_getpipe_size(&write).unwrap();
        let client = std::thread::spawn(move || {
            // Two pipes full, and what is under way.
            says.write_all(&[hello(OURS), ping.repeat(4 * room / ping.len())].concat())
        });
        let timeouts = Timeouts { dead: Duration::from_millis(50), ..Timeouts::WIRE };
        let (told, tells) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let fds = (OwnedFd::from(read), OwnedFd::from(write));
            let answered = answer(fds.0, fds.1, OURS, &|_, _| false, &[], timeouts);
            told.send(answered.err().map(|e| e.code))
        });
        let answered = tells.recv_timeout(Duration::from_secs(60));
        assert_eq!(answered.expect("it waits without end"), Some(Code::Lost));
        assert!(client.join().unwrap().is_err(), "it has let go");
        drop(hears);
    }

    /// The line is down, and no process that holds its pipes knows: a thread is stuck in a read, one in a write.
    #[test]
    fn a_stream_that_was_given_up_is_not_waited_for() {
        let (read, held_in) = std::io::pipe().unwrap();
        let (held_out, write) = std::io::pipe().unwrap();
        let timeouts = Timeouts { dead: Duration::from_millis(50), ..Timeouts::WIRE };
        let (read, write) = (OwnedFd::from(read), OwnedFd::from(write));
        let stream = conn::RawStream::over_fds(read, write, "the client".into(), timeouts, || {});
        // More than a pipe takes.
        let sent = (0..64).try_for_each(|_| stream.out.send(Packet::Frames(vec![0; 1 << 20])));
        assert!(sent.is_err() && stream.inbox.recv().is_err());
        assert_eq!(stream.finish().err().unwrap().code, Code::Lost);
        drop((held_in, held_out));
    }

    #[test]
    fn a_cancel_does_not_wait_for_a_password() {
        let address = Address { user: None, host: "there".into(), port: None, path: PathBuf::new() };
        let cancel = Cancel::new();
        cancel.set();
        let e = connect(
            &address,
            &way("exec sleep 600"),
            LinkLoad::Light,
            Terms::new(OURS, Features::NONE),
            &[],
            &cancel,
        );
        assert_eq!(e.err().unwrap().code, Code::Interrupted);
    }

    /// A firewall may let the first connection through and drop what comes after it; one may also stop behind the greeting.
    #[test]
    fn a_further_connection_is_not_waited_for_without_end() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("welcome");
        let welcome = Message::Welcome(handshake::hello(OURS, [1; 32], b"bcmr 9", None));
        std::fs::write(&file, frames_of(&welcome).unwrap()).unwrap();
        let address = Address { user: None, host: "there".into(), port: None, path: PathBuf::new() };
        let token = Token { secret: [1; 32], path: "/nowhere".into() };
        let until_let_go = "cat >/dev/null; kill -KILL $$";
        for script in [until_let_go.to_owned(), format!("cat {}; {until_let_go}", file.display())] {
            let further = |within, cancel: &Cancel| {
                let joins = (&token, 1);
                connect_further(&address, &way(&script), OURS, joins, None, within, cancel).err().unwrap()
            };
            let e = further(Duration::ZERO, &Cancel::new());
            assert_eq!((e.code, e.why()), (Code::Lost, Reason::NoAnswerYet.into()), "{script}");
            let stopped = Cancel::new();
            stopped.set();
            assert_eq!(further(FURTHER_MAX, &stopped).code, Code::Interrupted, "{script}");
        }
    }
}
