//! The direct data plane against strangers, thieves and crowds (rules D1 to D6), each beside its honest twin, over real
//! sockets of the loopback interface. Must not know what is carried.

#![cfg(test)]

use super::*;
use crate::error::Code;
use crate::transport::conn::{Heard, Packet};
use crate::transport::stream::Inbox;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LONG: Duration = Duration::from_secs(60);

fn keys(secret: u8, said: &[u8]) -> Keys {
    Keys {
        secret: Secret::new([secret; 32]),
        transcript: Transcript::of(said, b"welcome", &[0; 40]),
        limits: KeyLimits::WIRE,
    }
}

/// Runs `client` against a server for `count` streams, and gives what both came to.
fn meet<T>(count: u8, client: impl FnOnce(SocketAddr) -> T) -> (io::Result<Vec<Proved>>, T) {
    let listener = Listener::bind(HERE, count).unwrap();
    let address = listener.address();
    let cancel = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server =
            scope.spawn(|| listener.accept(&keys(1, b"hello"), LONG, &|| cancel.load(Ordering::Relaxed)));
        let told = client(address);
        // A client that did not get in leaves a server that waits.
        cancel.store(true, Ordering::Relaxed);
        (server.join().unwrap(), told)
    })
}

/// As [`meet`], for clients whose streams the server must have taken.
fn meet_well<T>(count: u8, client: impl FnOnce(SocketAddr) -> T) -> (Vec<Proved>, T) {
    let listener = Listener::bind(HERE, count).unwrap();
    let address = listener.address();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept(&keys(1, b"hello"), LONG, &|| false));
        let told = client(address);
        (server.join().unwrap().unwrap(), told)
    })
}

/// What a client sends first on stream `index`.
fn opening(index: u8, keys: &Keys) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(index);
    let mut sealed = Vec::new();
    let key = direction_key(&keys.secret, index, Direction::Up, &keys.transcript);
    send_proof(&mut SealedWriter::new(&mut sealed, key, keys.limits).unwrap()).unwrap();
    out.extend_from_slice(&sealed);
    assert_eq!(out.len(), HELLO_BYTES);
    out
}

/// All that a stranger is ever told: nothing, until the connection ends one way or the other.
fn hears_nothing(mut socket: &TcpStream) -> bool {
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut room = [0; 64];
    match socket.read(&mut room) {
        Ok(n) => n == 0,
        Err(e) => e.kind() == io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn streams_meet_and_carry_both_ways() {
    let plain: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    let (server, client) = meet_well(3, |at| dial(at, 3, &keys(1, b"hello"), LONG).unwrap());
    assert_eq!(server.iter().map(|s| s.index).collect::<Vec<_>>(), [0, 1, 2]);
    std::thread::scope(|scope| {
        for mut one in server.into_iter().chain(client) {
            let plain = &plain;
            scope.spawn(move || {
                let (mut read, write) = (one.read, &mut one.write);
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        write.write_all(&plain[one.index as usize..]).unwrap();
                        write.end().unwrap();
                    });
                    let mut got = Vec::new();
                    read.read_to_end(&mut got).unwrap();
                    assert!(got == plain[one.index as usize..]);
                });
            });
        }
    });
}

#[test]
fn a_stream_cut_without_its_end_is_an_error() {
    let (mut server, client) = meet_well(1, |at| dial(at, 1, &keys(1, b"hello"), LONG).unwrap());
    let mut one = client.into_iter().next().unwrap();
    one.write.write_all(b"half of it").unwrap();
    one.write.flush().unwrap();
    let cut = server[0].cutter().unwrap();
    drop(one);
    let mut got = Vec::new();
    let e = server[0].read.read_to_end(&mut got).unwrap_err();
    assert_eq!((e.kind(), got.as_slice()), (io::ErrorKind::UnexpectedEof, &b"half of it"[..]));
    cut();
}

fn streams() -> (Stream, Stream) {
    let (server, client) = meet_well(1, |at| dial(at, 1, &keys(1, b"hello"), LONG).unwrap());
    let stream = |side: Vec<Proved>| {
        let one = side.into_iter().next().unwrap();
        let stream = one.stream("other side".into(), Timeouts::WIRE, State::ServerIdle).unwrap();
        stream.enter(State::Receives);
        stream
    };
    (stream(server), stream(client))
}

fn payload(inbox: &Inbox) -> Vec<u8> {
    match inbox.recv_timeout(LONG).unwrap() {
        Heard::Frame(frame) => frame.payload().to_vec(),
        Heard::Ended => panic!("ended"),
        Heard::Nothing => panic!("hangs"),
    }
}

#[test]
fn frames_and_files_go_over_it_and_it_ends_in_an_orderly_way() {
    let (server, client) = streams();
    let mut file = tempfile::tempfile().unwrap();
    let content: Vec<u8> = (0..700_001u32).map(|i| (i / 3) as u8).collect();
    file.write_all(&content).unwrap();
    let mut frame = Vec::new();
    bcmr_wire::frame::encode(0x35, b"small", &mut frame).unwrap();
    client.out.send(Packet::Frames(frame.clone())).unwrap();
    let mut head = (content.len() as u32 + 1).to_le_bytes().to_vec();
    head.push(0x35);
    let fault = Arc::new(OnceLock::new());
    let (file, bytes) = (Arc::new(OwnedFd::from(file)), content.len() as u64);
    client.out.send(Packet::File { head, file, at: 0, bytes, fault: Arc::clone(&fault) }).unwrap();
    server.out.send(Packet::Frames(frame)).unwrap();
    assert_eq!(payload(&server.inbox), b"small");
    assert!(payload(&server.inbox) == content);
    assert_eq!(payload(&client.inbox), b"small");
    assert!(fault.get().is_none());
    let server = std::thread::spawn(move || server.finish());
    client.finish().unwrap();
    server.join().unwrap().unwrap();
}

#[test]
fn a_stream_whose_other_side_dies_is_lost_and_not_ended() {
    let (server, client) = streams();
    drop(client);
    let lost = server.inbox.recv_timeout(LONG);
    assert!(matches!(lost, Err(ref e) if e.code == Code::Lost), "an end that nobody sealed is none");
}

// D1: every bit of what is not sealed counts.
#[test]
fn an_opening_with_any_bit_changed_gets_no_answer_and_no_stream() {
    let right = opening(0, &keys(1, b"hello"));
    let (server, ()) = meet_well(2, |at| {
        for n in 0..right.len() * 8 {
            let mut bad = right.clone();
            bad[n / 8] ^= 1 << (n % 8);
            let mut socket = TcpStream::connect(at).unwrap();
            // It may be thrown out before it has said all.
            drop(socket.write_all(&bad));
            drop(socket.shutdown(Shutdown::Write));
            assert!(hears_nothing(&socket), "bit {n}");
        }
        // The twin: it was right before.
        let mut socket = TcpStream::connect(at).unwrap();
        socket.write_all(&right).unwrap();
        let mut answer = [0; PROOF_BYTES];
        socket.read_exact(&mut answer).unwrap();
        // Who has recorded it does not get in with it a second time.
        let mut thief = TcpStream::connect(at).unwrap();
        thief.write_all(&right).unwrap();
        assert!(hears_nothing(&thief));
        let mut second = TcpStream::connect(at).unwrap();
        second.write_all(&opening(1, &keys(1, b"hello"))).unwrap();
        second.read_exact(&mut answer).unwrap();
    });
    assert_eq!(server.len(), 2);
}

#[test]
fn other_words_or_another_secret_do_not_meet() {
    let short = Duration::from_millis(200);
    for bad in [keys(1, b"hellp"), keys(2, b"hello")] {
        let (server, client) = meet(1, |at| dial(at, 1, &bad, short));
        assert!(server.is_err());
        assert!(matches!(client, Err(NotDirect::NotProved { .. })), "{client:?}");
    }
    // The counts differ: the client asks for a stream that was not offered.
    let (_, client) = meet(1, |at| dial(at, 2, &keys(1, b"hello"), short));
    assert!(matches!(client, Err(NotDirect::NotProved { .. } | NotDirect::NoAnswer { .. })), "{client:?}");
}

// D5: the server proves itself before anything is sent.
#[test]
fn a_server_that_proves_nothing_is_left_with_nothing() {
    let fakes: [fn(&mut TcpStream); 4] = [
        |socket| drop(socket.write_all(&[0; PROOF_BYTES])),
        |socket| drop(socket.write_all(b"\x18\0\0\0bcmrDP1!0123456789abcdef")),
        |_| {},
        // One byte at a time.
        |socket| {
            for _ in 0..PROOF_BYTES {
                if socket.write_all(&[24]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        },
    ];
    for (n, fake) in fakes.into_iter().enumerate() {
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let begun = Instant::now();
        let got = std::thread::scope(|scope| {
            let server = scope.spawn(move || {
                let (mut socket, _) = listener.accept().unwrap();
                drop(listener);
                fake(&mut socket);
                let mut got = Vec::new();
                // A reset is an end too.
                drop(socket.read_to_end(&mut got));
                got
            });
            let told = dial(at, 1, &keys(1, b"hello"), Duration::from_millis(400));
            // Ten times its timeout is what this server would like to have of it.
            assert!(begun.elapsed() < Duration::from_secs(4), "{n}");
            assert!(
                matches!(told, Err(NotDirect::NotProved { .. } | NotDirect::NoAnswer { .. })),
                "{n}: {told:?}"
            );
            server.join().unwrap()
        });
        assert!(got.len() <= HELLO_BYTES, "{n}: {} bytes before any proof", got.len());
    }
}

#[test]
fn a_port_where_nobody_listens_is_said_so() {
    let at = Listener::bind(HERE, 1).unwrap().address();
    let told = dial(at, 1, &keys(1, b"hello"), LONG);
    assert!(matches!(told, Err(NotDirect::NoAnswer { .. })), "{told:?}");
}

/// Sockets of this machine that wait for an answer from this port (proc(5), /proc/net/tcp: state 02).
fn connecting_to(port: u16) -> usize {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let to = format!(":{port:04X}");
    let fields = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|f| f.get(2).is_some_and(|remote| remote.ends_with(&to)) && f.get(3) == Some(&"02")).count()
}

/// A line may be long: no connection waits until another one has its answer. This server has room for one that it has not
/// taken yet, so that all others wait.
#[test]
fn connections_are_dialed_at_the_same_time() {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let at = listener.local_addr().unwrap();
    let waited = std::thread::scope(|scope| {
        let client = scope.spawn(move || dial(at, 4, &keys(1, b"hello"), LONG));
        let mut waited = 0;
        while waited < 2 && !client.is_finished() {
            waited = connecting_to(at.port());
            std::thread::yield_now();
        }
        drop(listener);
        assert!(client.join().unwrap().is_err());
        waited
    });
    assert!(waited >= 2, "{waited} at a time");
}

// D4: a crowd does not keep the real one out.
#[test]
fn the_real_client_gets_in_past_a_thousand_others() {
    let stop = AtomicBool::new(false);
    let (server, (client, crowd)) = meet_well(2, |at| {
        let mut crowd = Vec::new();
        for n in 0..1000 {
            let Ok(mut socket) = TcpStream::connect(at) else { continue };
            let said: &[u8] = match n % 5 {
                0 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                1 => b"bcmrDP1",
                2 => &[0xff; 5000],
                _ => b"",
            };
            drop(socket.write_all(said));
            // As many descriptors as one process usually has; all thousand of them: `remote_direct.rs` of the program.
            if n % 5 > 2 {
                crowd.push(socket);
            }
        }
        std::thread::scope(|scope| {
            // And they go on coming.
            scope.spawn(|| {
                let mut held = VecDeque::new();
                while !stop.load(Ordering::Relaxed) {
                    held.extend(TcpStream::connect(at));
                    held.drain(..held.len().saturating_sub(100));
                    // A thousand a second. Faster, and the kernel's own queue is what keeps people out: then it is ssh.
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let client = dial(at, 2, &keys(1, b"hello"), LONG);
            stop.store(true, Ordering::Relaxed);
            (client, crowd)
        })
    });
    assert_eq!((server.len(), client.unwrap().len()), (2, 2));
    assert!(crowd.iter().all(hears_nothing));
}

#[test]
fn the_queue_of_strangers_is_short_and_its_oldest_fall_out() {
    let listener = Listener::bind(HERE, 1).unwrap();
    let keys = keys(1, b"hello");
    let (mut pending, mut proved) = (VecDeque::new(), Vec::new());
    let mut connect = |pending: &mut VecDeque<Pending>, from: IpAddr| {
        let socket = TcpStream::connect(listener.address()).unwrap();
        let port = socket.local_addr().unwrap().port();
        let before = pending.len();
        // Loopback has one source: the others are put on afterwards.
        while !pending.iter().any(|one| one.socket.peer_addr().unwrap().port() == port) {
            assert!(readable(&[listener.socket.as_fd()], LONG).unwrap()[0]);
            listener.admit(&keys, pending, &mut proved).unwrap();
        }
        assert!(pending.len() <= before + 1);
        pending.back_mut().unwrap().from = from;
        socket
    };
    let slow = connect(&mut pending, HERE);
    let held: Vec<_> = (0..100).map(|_| connect(&mut pending, HERE)).collect();
    assert_eq!(pending.len(), PENDING_PER_SOURCE_MAX);
    assert!(hears_nothing(&slow), "the oldest of the source made room");
    let far = |n: usize| IpAddr::from([192, 0, 2, n as u8]);
    let mut crowd: Vec<_> = (1..=PENDING_MAX).map(|n| connect(&mut pending, far(n))).collect();
    assert!(pending.len() <= PENDING_MAX);
    let kept = pending.iter().filter(|one| one.from == HERE).count();
    assert!(kept < PENDING_PER_SOURCE_MAX, "the oldest of all made room");

    // It has spoken, and was not read yet: it must not fall out for a newcomer.
    let mut speaker = connect(&mut pending, HERE);
    speaker.write_all(&opening(0, &keys)).unwrap();
    assert!(readable(&[pending.back().unwrap().socket.as_fd()], LONG).unwrap()[0]);
    let mut proved = Vec::new();
    while pending.iter().any(|one| one.from == HERE) {
        crowd.push(TcpStream::connect(listener.address()).unwrap());
        readable(&[listener.socket.as_fd()], LONG).unwrap();
        listener.admit(&keys, &mut pending, &mut proved).unwrap();
        pending.back_mut().unwrap().from = far(200);
        if !proved.is_empty() {
            break;
        }
    }
    assert_eq!(proved.len(), 1, "it fell out");
    drop(held);
}

#[test]
fn who_says_nothing_is_dropped_without_a_word() {
    let (_, ()) = meet(1, |at| {
        let silent = TcpStream::connect(at).unwrap();
        let mut slow = TcpStream::connect(at).unwrap();
        slow.write_all(&opening(0, &keys(1, b"hello"))[..HELLO_BYTES - 1]).unwrap();
        assert!(hears_nothing(&silent));
        assert!(hears_nothing(&slow));
    });
    const { assert!(HELLO_BYTES <= 4096) };
}

#[test]
fn the_port_is_open_no_longer_than_it_must_be() {
    let (server, client) = meet_well(1, |at| (dial(at, 1, &keys(1, b"hello"), LONG).unwrap(), at));
    assert!(TcpStream::connect(client.1).is_err(), "all streams are there");
    drop(server);
    let (server, at) = meet(1, |at| at);
    assert_eq!(server.unwrap_err().kind(), io::ErrorKind::Interrupted);
    assert!(TcpStream::connect(at).is_err(), "the session is over");
    let listener = Listener::bind(HERE, 1).unwrap();
    let at = listener.address();
    let late = listener.accept(&keys(1, b"hello"), Duration::from_millis(1), &|| false);
    assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(TcpStream::connect(at).is_err(), "nobody came");
}

#[test]
fn listens_on_one_address_for_a_count_that_makes_sense() {
    for bad in ["0.0.0.0", "::", "224.0.0.1", "ff02::1"] {
        assert!(Listener::bind(bad.parse().unwrap(), 1).is_err(), "{bad}");
    }
    assert!(Listener::bind(HERE, 0).is_err());
    assert!(Listener::bind(HERE, STREAMS_MAX as u8 + 1).is_err());
    assert_eq!(Listener::bind(HERE, STREAMS_MAX as u8).unwrap().address().ip(), HERE);
}

// D5.
#[test]
fn the_client_goes_only_where_ssh_is() {
    let ip = |text: &&str| -> IpAddr { text.parse().unwrap() };
    let to = |named: &str, known: &[&str]| {
        let known: Vec<IpAddr> = known.iter().map(ip).collect();
        where_to(named.as_bytes(), 22, &known).map(|to| to.ip().to_string())
    };
    for (named, known, goes) in [
        ("192.0.2.7", &["192.0.2.7"][..], "192.0.2.7"),
        ("::ffff:192.0.2.7", &["192.0.2.7"], "192.0.2.7"),
        ("192.0.2.7", &["::ffff:192.0.2.7"], "192.0.2.7"),
        ("127.0.0.1", &["127.0.0.1"], "127.0.0.1"),
        ("::1", &["::1"], "::1"),
        // A name with two addresses.
        ("192.0.2.8", &["2001:db8::1", "192.0.2.8"], "192.0.2.8"),
        // Behind a translation, and sent about by a server that means ill.
        ("10.0.0.1", &["192.0.2.7"], "192.0.2.7"),
        ("127.0.0.1", &["192.0.2.7"], "192.0.2.7"),
        ("", &["192.0.2.7"], "192.0.2.7"),
        ("host.example", &["192.0.2.7", "192.0.2.8"], "192.0.2.7"),
    ] {
        assert_eq!(to(named, known).ok().as_deref(), Some(goes), "{named} {known:?}");
    }
    for named in ["192.0.2.7", "127.0.0.1", "::1", ""] {
        assert!(matches!(to(named, &[]), Err(NotDirect::Unknown)), "{named}");
    }
    for known in ["0.0.0.0", "::", "255.255.255.255", "224.0.0.1"] {
        assert!(matches!(to(known, &[known]), Err(NotDirect::NoAddress)), "{known}");
    }
    assert!(where_to(b"192.0.2.7", 0, &[ip(&"192.0.2.7")]).is_err());
    assert!(where_to(b"\xff", 1, &[ip(&"192.0.2.7")]).is_ok());
}

// D6: nothing secret is shown.
#[test]
fn no_key_is_in_what_can_be_printed() {
    let keys = keys(0xAB, b"hello");
    let shown = format!("{keys:?} {:?}", keys.secret).to_lowercase();
    assert!(!shown.contains("abab") && !shown.contains("171, 171"), "{shown}");
    let (server, client) = meet_well(1, |at| dial(at, 1, &super::tests::keys(1, b"hello"), LONG).unwrap());
    let shown = format!("{server:?} {client:?}");
    assert!(!shown.contains("1, 1, 1") && !shown.contains("0101"), "{shown}");
    let wrong = dial(client[0].read.get_ref().peer_addr().unwrap(), 1, &keys, LONG).unwrap_err();
    let shown = format!("{:?} {wrong:?}", wrong.why()).to_lowercase();
    assert!(!shown.contains("abab") && !shown.contains("171, 171"), "{shown}");
}
