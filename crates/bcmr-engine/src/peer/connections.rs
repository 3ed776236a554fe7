//! The connections of a client beside the first: further ones over ssh, or sealed ones past it.
//!
//! Must not know what is sent over them.

use super::features::offered;
use super::talk::{await_answer, error_there, send};
use crate::alter::OwnersBy;
use crate::error::{Code, Error, Note, Op, Reason, Result};
use crate::event::{Event, Watch};
use crate::remote::{Address, Plane, Way};
use crate::transport::conn::Timeouts;
use crate::transport::direct::{DIAL_TIMEOUT, Keys, NotDirect, dial, where_to};
use crate::transport::seal::{KeyLimits, Secret, Transcript};
use crate::transport::ssh::{self, Carrier, LinkLoad, Nth};
use crate::transport::{self, Peer, Token};
use crate::trouble::error_of;
use bcmr_wire::handshake::{caps, wide};
use bcmr_wire::message::Message;
use bcmr_wire::state::State;
use std::ffi::OsStr;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// From this much in large files on (bytes) a second connection is worth its 0.2 s of connecting. Small ones are bound by
/// their number: 10,000 x 64 KiB took 1.3 times as long over two on the two cores this was measured on.
const SECOND_STREAM_BYTES: u64 = 256 << 20;

/// Each of two connections keeps two processors busy with its cipher, one at each end. Where both ends are on a machine of
/// fewer than four, one gigabyte took 1.25 times as long over two connections.
const SECOND_STREAM_PROCESSORS: usize = 4;

/// The most without `--parallel`: as it is installed, sshd refuses some of more than ten logins at a time (sshd_config(5),
/// MaxStartups).
const STREAMS_BY_DEFAULT_MAX: usize = 8;

/// There is one connection for each of these in a round trip, which fills 1 Gbit/s. A connection carries some 1.5 MB in a
/// round trip, whatever its length: ssh and Linux (tcp(7), tcp_wmem) bound what is under way. 1 GiB over 1 Gbit/s and 100 ms took
/// 91 s over one connection, and 47, 27 and 17 s over two, four and eight.
const TRIP_OF_A_STREAM: Duration = Duration::from_millis(12);

/// So many bytes in large files, and no more, go over the first connection alone. `None`: there are others in any case.
pub(super) fn bytes_over_one(way: &Way) -> Option<u64> {
    match way.parallel {
        _ if way.plane == Plane::Direct => None,
        None => Some(SECOND_STREAM_BYTES - 1),
        Some(0 | 1) => Some(u64::MAX),
        Some(_) => None,
    }
}

/// Opens the connections beside the first: as many as were asked for, or one where `bytes` make it worth while.
pub(super) fn open_further(
    peer: &mut Peer,
    address: &Address,
    way: &Way,
    bytes: u64,
    watch: Watch<'_>,
) -> Result<()> {
    let opened = open_beside(peer, address, way, bytes, watch);
    // All streams of a transfer go by the pulse of the first.
    if let Some(first) = peer.streams.first() {
        first.pulse().goes_by(&way.throttle);
    }
    opened
}

fn open_beside(peer: &mut Peer, address: &Address, way: &Way, bytes: u64, watch: Watch<'_>) -> Result<()> {
    if way.plane == Plane::Direct {
        match switch_to_direct(peer, address, way, watch) {
            Ok(()) => return Ok(()),
            Err(e) if matches!(e.code, Code::Interrupted | Code::Lost | Code::Protocol) => return Err(e),
            // Said, and then over ssh.
            Err(e) => watch.front.event(Event::Warning(e)),
        }
    }
    let processors = || {
        let shared = ssh::leads_to(address, way, peer.carriers.first()).into_iter().any(is_here);
        shared.then(|| std::thread::available_parallelism().map_or(1, usize::from))
    };
    let by_default = || if a_second_pays(bytes, processors) { STREAMS_BY_DEFAULT_MAX } else { 1 };
    let wanted = way.parallel.unwrap_or_else(by_default).min(bcmr_wire::limits::STREAMS_MAX as usize);
    if wanted < 2 || !peer.agreed.features.has_wide(wide::JOIN) {
        return Ok(());
    }
    let asked = Instant::now();
    send(peer, &Message::Streams { count: wanted as u64 - 1 })?;
    let frame = await_answer(peer, watch.cancel)?;
    // The server takes fewer than it was asked for as well.
    let wanted = if way.parallel.is_some() { wanted } else { wanted.min(streams_over(asked.elapsed(), 2)) };
    let token = match frame.message()? {
        Message::Token { secret, path } => Token { secret, path: PathBuf::from(OsStr::from_bytes(path)) },
        // Without them it works as well, only slower.
        Message::Error(trouble) => {
            watch.front.event(Event::Warning(error_there(address, &trouble)));
            return Ok(());
        }
        _ => return Err(Error::ours(Code::Protocol, Op::TalkTo, &address.host, Reason::NoToken)),
    };
    drop(frame);
    let features = offered(way, OwnersBy::Name);
    let configured = peer.carriers.first().and_then(Carrier::configured).cloned();
    let configured = configured.or_else(|| ssh::configured_for(address, way, Nth::Further, LinkLoad::Heavy));
    watch.front.lend_terminal(true);
    let opened: Vec<Result<_>> = std::thread::scope(|scope| {
        let one = |index: usize| {
            let (token, configured) = (&token, configured.clone());
            std::thread::Builder::new().spawn_scoped(scope, move || {
                let token = (token, index as u64);
                let within = transport::FURTHER_MAX;
                transport::connect_further(address, way, features, token, configured, within, watch.cancel)
            })
        };
        let threads: Vec<_> = (1..wanted).map(one).collect();
        let join = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, Result<_>>>| {
            let failed = |e| Error::os(Op::StartAThreadToConnectTo, &address.host, e);
            let gone = || Error::ours(Code::Io, Op::ConnectTo, &address.host, Reason::ThreadStopped);
            thread.map_err(failed)?.join().unwrap_or_else(|_| Err(gone()))
        };
        threads.into_iter().map(join).collect()
    });
    watch.front.lend_terminal(false);
    let mut failed = Vec::new();
    for one in opened {
        match one {
            Ok((stream, carrier)) => {
                peer.streams.push(stream);
                peer.carriers.push(carrier);
            }
            Err(e) if e.code == Code::Interrupted => return Err(e),
            Err(e) => failed.push(e),
        }
    }
    // They ask for no password, so it may be that there is but one connection: all works as well, only slower.
    if let Some(first) = failed.first() {
        let note = Reason::FewerConnections.about(failed.len()).about(wanted - 1).about(first.why());
        if way.parallel.is_some() {
            let warning = Error::ours(first.code, Op::OpenAllConnectionsTo, &address.host, note);
            watch.front.event(Event::Warning(warning));
        } else {
            watch.front.event(Event::Note(note));
        }
    }
    Ok(())
}

/// Whether `bytes` of large files are worth a second connection where nothing is said; `shared` is how many processors both
/// ends have between them if they are on one machine.
fn a_second_pays(bytes: u64, shared: impl FnOnce() -> Option<usize>) -> bool {
    bytes >= SECOND_STREAM_BYTES && shared().is_none_or(|n| n >= SECOND_STREAM_PROCESSORS)
}

/// How many connections carry much over a line on which an answer takes so long, and `least` over a short one.
fn streams_over(trip: Duration, least: usize) -> usize {
    let trips = trip.as_nanos() / TRIP_OF_A_STREAM.as_nanos();
    usize::try_from(trips).unwrap_or(usize::MAX).clamp(least, STREAMS_BY_DEFAULT_MAX)
}

/// Whether an address is one of this machine: a socket can be bound to it.
fn is_here(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Takes the data off ssh: sealed TCP connections instead, as many as `--parallel` says, else by the distance.
///
/// # Errors
/// [`Code::Unsupported`] and the like when that cannot be: the streams over ssh are as they were.
fn switch_to_direct(peer: &mut Peer, address: &Address, way: &Way, watch: Watch<'_>) -> Result<()> {
    let not = |note: Note| Error::ours(Code::Unsupported, Op::SendPastSshTo, &address.host, note);
    if !peer.agreed.features.has_cap(caps::DIRECT) || !peer.agreed.features.has_cap(caps::AEAD) {
        return Err(not(Reason::DirectNotOffered.into()));
    }
    let at_most = |count: usize| count.clamp(1, bcmr_wire::limits::STREAMS_MAX as usize) as u8;
    let mut count = at_most(way.parallel.unwrap_or(1));
    // D6: keys must not end in a core dump.
    fastcopy::process::never_dump().map_err(|e| not(Reason::OverSsh.about(e.to_string())))?;
    let asked = Instant::now();
    send(peer, &Message::Direct { count: count.into() })?;
    let mut frame = await_answer(peer, watch.cancel)?;
    let by_distance = at_most(streams_over(asked.elapsed(), 1));
    if way.parallel.is_none() && by_distance > count && matches!(frame.message()?, Message::Rendezvous { .. })
    {
        // Only an answer tells how far the server is, and a server waits for as many as it was asked for. So it is asked
        // again, with which it drops its first offer (section 7 of docs/protocol.md).
        count = by_distance;
        send(peer, &Message::Direct { count: count.into() })?;
        frame = await_answer(peer, watch.cancel)?;
    }
    let (named, port, secret) = match frame.message()? {
        Message::Rendezvous { address, port, secret } => (address.to_vec(), port, Secret::new(secret)),
        Message::Error(trouble) => {
            return Err(not(Reason::OverSsh.about(error_of(&trouble).why())));
        }
        _ => return Err(Error::ours(Code::Protocol, Op::TalkTo, &address.host, Reason::NoRendezvous)),
    };
    let transcript = Transcript::of(&peer.agreed.hello, &peer.agreed.welcome, frame.payload());
    drop(frame);
    let keys = Keys { secret, transcript, limits: KeyLimits::WIRE };
    let failed = |e: NotDirect| not(Reason::OverSsh.about(e.why()));
    let to = where_to(&named, port, &ssh::leads_to(address, way, peer.carriers.first())).map_err(failed)?;
    let proved = dial(to, count, &keys, DIAL_TIMEOUT).map_err(failed)?;
    let mut streams = Vec::new();
    for one in proved {
        let stream = one.stream(peer.name.clone(), Timeouts::WIRE, State::ClientIdle);
        streams.push(stream.map_err(|e| Error::os(Op::TalkTo, &address.host, e))?);
    }
    let control_stream = peer.streams.swap_remove(0);
    control_stream.settle(State::Quiet);
    peer.control_stream = Some(control_stream);
    peer.streams = streams;
    watch.front.event(Event::Note(Reason::PastSsh.about(to.to_string())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{SECOND_STREAM_BYTES, a_second_pays, is_here, streams_over};
    use std::time::Duration;

    /// A second connection is for much data, and for processors that it can have.
    #[test]
    fn a_second_connection_has_to_pay() {
        let much = SECOND_STREAM_BYTES;
        for (bytes, shared, pays) in [
            (much, None, true),
            (much - 1, None, false),
            (much, Some(2), false),
            (much, Some(3), false),
            (much, Some(4), true),
            (much - 1, Some(64), false),
        ] {
            assert_eq!(a_second_pays(bytes, || shared), pays, "{bytes} bytes, {shared:?}");
        }
        assert!(!a_second_pays(0, || unreachable!("ssh is not asked for little")));
    }

    #[test]
    fn the_farther_the_more_connections() {
        let milliseconds = [(0, 2), (1, 2), (24, 2), (36, 3), (50, 4), (100, 8), (300, 8), (100_000, 8)];
        for (trip_ms, streams) in milliseconds {
            assert_eq!(streams_over(Duration::from_millis(trip_ms), 2), streams, "{trip_ms} ms");
        }
        assert_eq!(streams_over(Duration::from_millis(1), 1), 1);
    }

    #[test]
    fn an_address_of_this_machine_is_known() {
        assert!(is_here([127, 0, 0, 1].into()));
        // TEST-NET-1 of RFC 5737: no machine has it.
        assert!(!is_here([192, 0, 2, 1].into()));
    }
}
