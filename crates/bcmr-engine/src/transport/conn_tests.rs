//! A stream over every kind of wire: what goes in comes out, whatever breaks is told, and nothing grows without bound.
//!
//! Must not know any message but Ping and Pong.

use super::conn::{
    FrameBuf, Heard, Packet, RawInbox, RawStream, Setup, Timeouts, WriteHalf, read_exactly, two_read_ahead,
};
use super::memory::{self, Fault, pair, pair_with};
use crate::error::{Code, Error, Reason};
use crate::throttle::Throttle;
use proptest::prelude::*;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// Longer than any test takes: who waits that long hangs.
const HUNG: Duration = Duration::from_secs(60);

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    bcmr_wire::frame::encode(kind, payload, &mut out).unwrap();
    out
}

fn next(inbox: &RawInbox) -> FrameBuf {
    match inbox.recv_timeout(HUNG).unwrap() {
        Heard::Frame(frame) => frame,
        Heard::Ended => panic!("ended"),
        Heard::Nothing => panic!("hangs"),
    }
}

fn end(inbox: &RawInbox) -> Result<(), Error> {
    match inbox.recv_timeout(HUNG)? {
        Heard::Ended => Ok(()),
        Heard::Frame(frame) => panic!("{frame:?}"),
        Heard::Nothing => panic!("hangs"),
    }
}

fn pipes() -> (RawStream, RawStream) {
    let (a_read, b_write) = io::pipe().unwrap();
    let (b_read, a_write) = io::pipe().unwrap();
    let over = |read: io::PipeReader, write: io::PipeWriter| {
        RawStream::over_fds(OwnedFd::from(read), OwnedFd::from(write), "pipe".into(), Timeouts::WIRE, || {})
    };
    (over(a_read, a_write), over(b_read, b_write))
}

fn sockets() -> (RawStream, RawStream) {
    let (a, b) = UnixStream::pair().unwrap();
    let over = |s: UnixStream| {
        let (read, write) = (s.try_clone().unwrap(), s);
        RawStream::over_fds(OwnedFd::from(read), OwnedFd::from(write), "socket".into(), Timeouts::WIRE, || {})
    };
    (over(a), over(b))
}

type Pair = fn() -> (RawStream, RawStream);
const WIRES: [(&str, Pair); 3] = [("memory", pair), ("pipes", pipes), ("sockets", sockets)];

fn finish_both(a: RawStream, b: RawStream) {
    std::thread::scope(|s| {
        let a = s.spawn(|| a.finish());
        b.finish().unwrap();
        a.join().unwrap().unwrap();
    });
}

/// Bytes that tell their place.
fn pattern(length: usize, salt: usize) -> Vec<u8> {
    // A prime length: no power of two hides a shift.
    let unit: Vec<u8> = (0..4093usize).map(|n| (n * 31 + (n >> 8) + salt) as u8).collect();
    let mut all = unit.repeat(length / unit.len() + 1);
    all.truncate(length);
    all
}

#[test]
fn what_goes_in_comes_out_in_order_both_ways() {
    let sizes = [0, 1, 3, 4, 5, 4090, 8191, 8192, 8193, 70_000, MIB - 1, MIB, 3 * MIB + 7, 16 * MIB - 1, 2];
    for (name, wire) in WIRES {
        let (a, b) = wire();
        std::thread::scope(|s| {
            for stream in [&a, &b] {
                s.spawn(|| {
                    for (n, size) in sizes.into_iter().enumerate() {
                        let mut room = stream.out.room(0);
                        assert!(room.is_empty());
                        room.extend_from_slice(&frame(0x30 + n as u8, &pattern(size, n)));
                        // Two frames in one packet now and then.
                        if n % 3 == 0 {
                            room.extend_from_slice(&frame(0x60, b"behind"));
                        }
                        stream.out.send(Packet::Frames(room)).unwrap();
                    }
                });
                s.spawn(|| {
                    for (n, size) in sizes.into_iter().enumerate() {
                        let got = next(&stream.inbox);
                        assert_eq!(got.kind(), 0x30 + n as u8, "{name}");
                        assert!(got.payload() == pattern(size, n), "{name}: {size} bytes");
                        if n % 3 == 0 {
                            let got = next(&stream.inbox);
                            assert_eq!((got.kind(), got.payload()), (0x60, &b"behind"[..]), "{name}");
                        }
                    }
                });
            }
        });
        finish_both(a, b);
    }
}

#[test]
fn files_go_out_behind_their_heads() {
    let content = pattern(3 * MIB, 1);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&content).unwrap();
    let file = Arc::new(OwnedFd::from(file));
    for (name, wire) in WIRES {
        let (a, b) = wire();
        let fault = Arc::new(OnceLock::new());
        let seen = Arc::new(AtomicBool::new(false));
        let cases = [(0, 10), (5, MIB), (MIB, 2 * MIB), (7, 0)];
        std::thread::scope(|s| {
            s.spawn(|| {
                for (at, bytes) in cases {
                    let mut head = frame(0x35, b"head");
                    head[..4].copy_from_slice(&u32::to_le_bytes(5 + bytes as u32));
                    let file = Arc::clone(&file);
                    let fault = Arc::clone(&fault);
                    let packet = Packet::File { head, file, at: at as u64, bytes: bytes as u64, fault };
                    a.out.send(packet).unwrap();
                }
                let seen = Arc::clone(&seen);
                let then = move || {
                    seen.store(true, Ordering::Relaxed);
                    frame(0x37, b"all")
                };
                a.out.send(Packet::Then(Box::new(then))).unwrap();
            });
            for (at, bytes) in cases {
                let got = next(&b.inbox);
                assert_eq!(&got.payload()[..4], b"head", "{name}");
                assert!(got.payload()[4..] == content[at..at + bytes], "{name}: {bytes} bytes at {at}");
            }
            assert_eq!(next(&b.inbox).payload(), b"all", "{name}");
        });
        assert!(seen.load(Ordering::Relaxed) && fault.get().is_none());
        finish_both(a, b);
    }
}

#[test]
fn a_file_that_ends_early_or_cannot_be_read_keeps_the_frame_whole_and_says_so() {
    let mut short = tempfile::NamedTempFile::new().unwrap();
    short.write_all(b"only this").unwrap();
    let directory = File::open("/").unwrap();
    for (name, wire) in WIRES {
        for (file, kept) in [(File::open(short.path()).unwrap(), 4), (directory.try_clone().unwrap(), 0)] {
            let (a, b) = wire();
            let fault = Arc::new(OnceLock::new());
            let mut head = frame(0x35, b"");
            head[..4].copy_from_slice(&301u32.to_le_bytes());
            let packet = Packet::File {
                head,
                file: Arc::new(OwnedFd::from(file)),
                at: 5,
                bytes: 300,
                fault: Arc::clone(&fault),
            };
            a.out.send(packet).unwrap();
            a.out.send(Packet::Frames(frame(0x40, b"next"))).unwrap();
            let mut expected = b"this"[..kept].to_vec();
            expected.resize(300, 0);
            assert_eq!(next(&b.inbox).payload(), expected, "{name}");
            assert_eq!(next(&b.inbox).payload(), b"next", "{name}: the stream keeps its footing");
            assert!(fault.get().is_some(), "{name}");
            finish_both(a, b);
        }
    }
}

/// Of many streams each holds what it must: no thread takes anything, and the other side sends on and on.
#[test]
fn one_stream_of_many_lets_one_frame_wait() {
    let large = || frame(0x35, &vec![7; MIB]);
    let (a, b) = pair();
    a.belongs_to(&a, 32);
    b.belongs_to(&b, 32);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..6).try_for_each(|_| a.out.send(Packet::Frames(large()))));
        for taken in 0..6 {
            assert!(b.inbox.waits(HUNG), "frame {taken}");
            let (waiting, spare) = b.held();
            assert!(waiting <= MIB + 1 && spare <= 3 * (MIB + (64 << 10)), "{waiting} {spare}");
            assert_eq!(next(&b.inbox).payload().len(), MIB);
        }
    });
    let (waiting, spare) = b.held();
    assert!(waiting == 0 && spare <= 3 * (MIB + (64 << 10)), "{spare}");
    finish_both(a, b);
}

#[test]
fn a_wire_cut_at_any_byte_gives_whole_frames_and_then_the_truth() {
    let frames = [frame(0x30, b"first"), frame(0x31, b""), frame(0x32, b"the third one")];
    let bounds: Vec<u64> = frames
        .iter()
        .scan(0, |end, f| {
            *end += f.len() as u64;
            Some(*end)
        })
        .collect();
    let total = *bounds.last().unwrap();
    for cut in 0..total {
        let (a, b) = pair_with(Fault::CutAfter(cut), Timeouts::WIRE);
        for frame in &frames {
            // Once the cut was noticed, sending fails; before, it cannot be known.
            if a.out.send(Packet::Frames(frame.clone())).is_err() {
                break;
            }
        }
        let whole = bounds.iter().filter(|end| **end <= cut).count();
        for n in 0..whole {
            assert_eq!(next(&b.inbox).kind(), 0x30 + n as u8, "cut at {cut}");
        }
        match end(&b.inbox) {
            Ok(()) => assert!(cut == 0 || bounds.contains(&cut), "cut at {cut} is no orderly end"),
            Err(e) => {
                assert!(cut != 0 && !bounds.contains(&cut), "cut at {cut}: {e}");
                assert_eq!(e.code, Code::Lost, "cut at {cut}");
            }
        }
        // A sender that goes on is told in the end.
        let refused = loop {
            if let Err(gone) = a.out.send(Packet::Frames(frame(0x33, b"more"))) {
                break Error::from(gone);
            }
        };
        assert_eq!(refused.code, Code::Lost);
        a.abort();
        b.abort();
    }
}

#[test]
fn what_is_no_frame_ends_the_stream_from_its_header_alone() {
    let cases: [(&[u8], Code); 5] = [
        (&[0, 0, 0, 0], Code::Protocol),
        (&[1, 0, 0, 1, 0x30], Code::Protocol),
        (&[0xff; 8], Code::Protocol),
        (b"Last login: today", Code::Protocol),
        // A length that is allowed, and an end instead of the frame.
        (&[0, 0, 0, 1, 0x30, 1, 2, 3], Code::Lost),
    ];
    for (bytes, code) in cases {
        let (read, mut write) = memory::raw(Fault::None);
        let (_unread, out) = memory::raw(Fault::None);
        let setup = Setup { name: "x".into(), timeouts: Timeouts::WIRE, cut: Box::new(|| {}) };
        let stream = RawStream::over(read, out, setup);
        write.write_all(bytes).unwrap();
        if code == Code::Lost {
            write.close().unwrap();
        }
        let e = end(&stream.inbox).unwrap_err();
        assert_eq!(e.code, code, "{bytes:x?}");
        if bytes.starts_with(b"Last") {
            assert!(format!("{:?}", e.why()).contains("Last login"), "{e}");
        }
    }
}

/// Says how much room it was ever given, and has nothing.
struct Gauge(Arc<AtomicUsize>, &'static [u8]);

impl Read for Gauge {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.fetch_max(buf.len(), Ordering::Relaxed);
        self.1.read(buf)
    }
}

#[test]
fn a_length_alone_buys_no_memory() {
    let most = Arc::new(AtomicUsize::new(0));
    let e = read_exactly(&mut Gauge(Arc::clone(&most), &[0, 0, 0, 1, 0x30, 7]), "x").unwrap_err();
    assert_eq!(e.code, Code::Lost);
    assert!(most.load(Ordering::Relaxed) <= MIB + (64 << 10));
}

#[test]
fn reading_exactly_leaves_the_next_byte_alone() {
    let bytes = [frame(0x30, b"one"), frame(0x31, b""), b"rest".to_vec()].concat();
    let mut from = &bytes[..];
    assert_eq!(read_exactly(&mut from, "x").unwrap().unwrap(), b"\x30one");
    assert_eq!(read_exactly(&mut from, "x").unwrap().unwrap(), b"\x31");
    assert_eq!(from, b"rest");
    assert!(read_exactly(&mut &b""[..], "x").unwrap().is_none());
}

#[test]
fn a_reader_that_does_not_read_stops_the_sender_and_not_the_machine() {
    for (name, wire) in WIRES {
        let (a, b) = wire();
        let sent = AtomicUsize::new(0);
        const FRAMES: usize = 40;
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..FRAMES {
                    let mut room = a.out.room(MIB);
                    room.extend_from_slice(&frame(0x35, &pattern(MIB, 0)));
                    a.out.send(Packet::Frames(room)).unwrap();
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
            // Neither side takes anything until both queues are full: then it stands still.
            while a.out.queued() < 2 || b.held().0 < 2 * MIB {
                std::thread::yield_now();
            }
            // Two or three at each side, one in each thread's hands, and what the wire itself holds.
            assert!(sent.load(Ordering::Relaxed) <= 10, "{name}: {sent:?}");
            for _ in 0..FRAMES {
                let (queued, spare) = b.held();
                assert!(queued <= 3 * MIB + 64 && spare <= 8 * MIB, "{name}: {queued} {spare}");
                assert_eq!(next(&b.inbox).payload().len(), MIB);
            }
        });
        finish_both(a, b);
    }
}

#[test]
fn buffers_are_used_again() {
    let (a, b) = pair();
    a.out.send(Packet::Frames(frame(0x35, &[0; 300_000]))).unwrap();
    let first = next(&b.inbox);
    let at = first.payload().as_ptr();
    drop(first);
    while a.out.queued() > 0 {
        std::thread::yield_now();
    }
    let mut room = a.out.room(300_000);
    assert!(room.is_empty() && room.capacity() >= 300_000);
    // A small frame leaves the large buffer alone, a large one takes it.
    room.extend_from_slice(&frame(0x36, b"small"));
    room.extend_from_slice(&frame(0x35, &[1; 290_000]));
    a.out.send(Packet::Frames(room)).unwrap();
    let small = next(&b.inbox);
    let large = next(&b.inbox);
    assert_eq!((small.payload(), large.payload()), (&b"small"[..], &[1; 290_000][..]));
    assert_eq!(large.payload().as_ptr(), at);
    drop((small, large));
    finish_both(a, b);
}

/// What one stream of a connection held is there for the next, and of what nothing holds only so much is kept.
#[test]
fn streams_of_a_connection_share_their_buffers() {
    let pairs: Vec<_> = (0..32).map(|_| pair()).collect();
    for (a, b) in &pairs {
        a.belongs_to(&pairs[0].0, 32);
        b.belongs_to(&pairs[0].1, 32);
    }
    let large = || Packet::Frames(frame(0x35, &vec![7; MIB]));
    let mut buffers = HashSet::new();
    for (a, b) in &pairs {
        a.out.send(large()).unwrap();
        buffers.insert(next(&b.inbox).payload().as_ptr());
    }
    assert_eq!(buffers.len(), 1, "one after the other they all received into the same buffer");
    // All at the same time: each holds one.
    pairs.iter().for_each(|(a, _)| a.out.send(large()).unwrap());
    let held: Vec<_> = pairs.iter().map(|(_, b)| next(&b.inbox)).collect();
    drop(held);
    let kept = pairs[0].1.held().1;
    assert!((8 * MIB..=16 * MIB).contains(&kept), "{kept}");
    for (a, b) in pairs {
        finish_both(a, b);
    }
}

/// Memory that held a secret is used again only wiped; with a payload of another type, to show that the test sees one.
#[test]
fn no_spare_buffer_holds_a_secret() {
    use bcmr_wire::message::kind::{DATA, JOIN, RENDEZVOUS, TOKEN};
    let secret: Vec<u8> = (100..132).collect();
    for (kind, stays) in [(TOKEN, false), (RENDEZVOUS, false), (JOIN, false), (DATA, true)] {
        for (name, wire) in WIRES {
            let (a, b) = wire();
            // Between two others, in one buffer.
            let mut frames = frame(DATA, b"before");
            frames.extend_from_slice(&frame(kind, &secret));
            frames.extend_from_slice(&frame(DATA, b"behind"));
            a.out.send(Packet::Frames(frames)).unwrap();
            let received: Vec<FrameBuf> = (0..3).map(|_| next(&b.inbox)).collect();
            assert_eq!(received[1].payload(), secret);
            drop(received);
            while a.out.queued() > 0 {
                std::thread::yield_now();
            }
            assert!(a.spares_hold(b"behind") && b.spares_hold(b"behind"), "{name}");
            let held = (a.spares_hold(&secret), b.spares_hold(&secret));
            assert_eq!(held, (stays, stays), "{name}: type {kind:#04x} when sent and when received");
            finish_both(a, b);
        }
    }
}

/// A small frame comes with the bytes of another call, and is wiped from there too.
#[test]
fn what_is_read_ahead_holds_no_secret_behind_it() {
    let secret: Vec<u8> = (100..132).collect();
    let mut bytes = frame(bcmr_wire::message::kind::TOKEN, &secret);
    bytes.extend_from_slice(&frame(0x35, b"behind"));
    let (first, second, ahead) = two_read_ahead(&bytes);
    assert_eq!((&first[1..], &second[1..]), (&secret[..], &b"behind"[..]));
    assert!(ahead.windows(6).any(|w| w == b"behind") && !ahead.windows(32).any(|w| w == secret));
}

// ---- silence ----

const SOON: Timeouts =
    Timeouts { ping: Duration::from_millis(1), dead: Duration::from_millis(200), ..Timeouts::WIRE };

fn lonely(timeouts: Timeouts) -> (RawStream, memory::End, memory::End, Arc<AtomicBool>) {
    let (read, to_it) = memory::raw(Fault::None);
    let (from_it, write) = memory::raw(Fault::None);
    let cut = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&cut);
    let setup =
        Setup { name: "x".into(), timeouts, cut: Box::new(move || told.store(true, Ordering::Relaxed)) };
    (RawStream::over(read, write, setup), to_it, from_it, cut)
}

#[test]
fn who_says_nothing_is_asked_and_then_given_up() {
    let (stream, _to_it, mut from_it, cut) = lonely(SOON);
    let e = stream.inbox.recv().unwrap_err();
    assert_eq!(e.code, Code::Lost);
    assert!(e.why().reason == Reason::Silence, "{e}");
    // By whichever thread noticed first, and maybe a moment later.
    let end = Instant::now() + HUNG;
    while !cut.load(Ordering::Relaxed) {
        assert!(Instant::now() < end, "the wire is cut, so that nobody hangs on it");
        std::thread::yield_now();
    }
    let gone = stream.out.send(Packet::Frames(frame(0x30, b""))).unwrap_err();
    assert_eq!(Error::from(gone).code, Code::Lost);
    let asked = read_exactly(&mut from_it, "x").unwrap().unwrap();
    assert_eq!((asked[0], asked.len()), (0x06, 9));
}

#[test]
fn a_sender_that_is_stuck_notices_too() {
    let (stream, _to_it, _from_it, _cut) = lonely(SOON);
    let refused = loop {
        // There is no reader: the queue fills, and then the silence ends the wait.
        if let Err(gone) = stream.out.send(Packet::Frames(frame(0x35, &[0; 100_000]))) {
            break Error::from(gone);
        }
    };
    assert_eq!(refused.code, Code::Lost);
}

/// The other side has ended its byte stream and takes nothing any more.
#[test]
fn a_sender_that_is_stuck_behind_the_end_notices_too() {
    let (stream, mut to_it, _from_it, _cut) = lonely(SOON);
    to_it.close().unwrap();
    assert!(matches!(stream.inbox.recv_timeout(HUNG), Ok(Heard::Ended)));
    let refused = loop {
        if let Err(gone) = stream.out.send(Packet::Frames(frame(0x35, &[0; 100_000]))) {
            break Error::from(gone);
        }
    };
    assert_eq!(refused.code, Code::Lost);
}

/// By a limit that a sent piece has used up for days: the other side's last words and its end are heard as soon as nothing
/// can be said to it any more.
#[test]
fn who_is_held_back_hears_that_the_other_side_is_gone() {
    let (stream, mut to_it, mut from_it, _cut) =
        lonely(Timeouts { ping: Duration::from_millis(1), ..Timeouts::WIRE });
    stream.pulse().goes_by(&Arc::new(Throttle::new(Some(1))));
    stream.out.send(Packet::Frames(frame(0x35, &[0; MIB]))).unwrap();
    while read_exactly(&mut from_it, "x").unwrap().unwrap()[0] != 0x35 {}
    to_it.write_all(&frame(0x36, b"why")).unwrap();
    for mut end in [to_it, from_it] {
        end.close().unwrap();
    }
    assert_eq!(next(&stream.inbox).payload(), b"why");
    assert!(!matches!(stream.inbox.recv_timeout(HUNG), Ok(Heard::Nothing)), "hangs");
}

#[test]
fn who_answers_is_alive_and_pings_are_not_handed_up() {
    let patient = Timeouts { ping: Duration::from_millis(1), dead: HUNG, ..Timeouts::WIRE };
    let (stream, mut to_it, mut from_it, _cut) = lonely(patient);
    for _ in 0..3 {
        let asked = read_exactly(&mut from_it, "x").unwrap().unwrap();
        assert_eq!(asked[0], 0x06);
        to_it.write_all(&frame(0x07, &asked[1..])).unwrap();
    }
    to_it.write_all(&frame(0x30, b"at last")).unwrap();
    assert_eq!(next(&stream.inbox).payload(), b"at last");
}

#[test]
fn a_ping_is_answered_and_a_flood_of_them_once() {
    let (stream, mut to_it, mut from_it, _cut) = lonely(Timeouts::WIRE);
    to_it.write_all(&frame(0x06, &7u64.to_le_bytes())).unwrap();
    assert_eq!(
        read_exactly(&mut from_it, "x").unwrap().unwrap(),
        [&[0x07][..], &7u64.to_le_bytes()].concat()
    );
    // 100,000 of them while the answers are not read: they wait in one place, and the wire holds the others.
    for n in 0..100_000u64 {
        to_it.write_all(&frame(0x06, &n.to_le_bytes())).unwrap();
    }
    to_it.write_all(&frame(0x30, b"")).unwrap();
    assert_eq!(next(&stream.inbox).kind(), 0x30);
    assert_eq!(stream.out.queued(), 0);
    // One of the wrong size is no ping.
    to_it.write_all(&frame(0x06, b"short")).unwrap();
    assert_eq!(end(&stream.inbox).unwrap_err().code, Code::Protocol);
}

#[test]
fn who_is_not_listened_to_is_not_given_up() {
    let (stream, mut to_it, _from_it, _cut) = lonely(SOON);
    let filled = std::thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..64 {
                if to_it.write_all(&frame(0x35, &[0; 100_000])).is_err() {
                    return;
                }
            }
        });
        while stream.held().0 < 2 * MIB {
            std::thread::yield_now();
        }
        // Much longer than the timeout, were it counted.
        std::thread::sleep(3 * SOON.dead);
        let filled = stream.life_left();
        stream.set_timeouts(Timeouts::WIRE);
        for _ in 0..64 {
            next(&stream.inbox);
        }
        filled
    });
    assert_eq!(filled, SOON.dead);
}

#[test]
fn a_ping_is_due_after_silence_either_way() {
    let ten = Timeouts { ping: Duration::from_secs(10), dead: Duration::from_secs(30), ..Timeouts::WIRE };
    let s = |n: u64| n * 1_000_000_000;
    // now, heard, sent, asked; seconds until due.
    let table = [
        (0, 0, 0, 0, 10),
        (9, 9, 9, 0, 10),
        (12, 12, 5, 0, 3),
        (12, 5, 12, 0, 3),
        (30, 0, 30, 0, 0),
        (30, 30, 0, 0, 0),
        (31, 0, 30, 30, 9),
        (5, 7, 7, 0, 10),
    ];
    for (now, heard, sent, asked, due) in table {
        assert_eq!(
            ten.due(s(now), s(heard), s(sent), s(asked)),
            Duration::from_secs(due),
            "{now} {heard} {sent} {asked}"
        );
    }
}

// ---- ends ----

#[test]
fn finishing_sends_what_is_queued_and_waits_for_the_other_side() {
    for (name, wire) in WIRES {
        let (a, b) = wire();
        for _ in 0..50 {
            a.out.send(Packet::Frames(frame(0x35, &[7; 50_000]))).unwrap();
        }
        let out = a.out.clone();
        std::thread::scope(|s| {
            let finished = s.spawn(|| a.finish());
            for _ in 0..50 {
                assert_eq!(next(&b.inbox).payload().len(), 50_000, "{name}");
            }
            end(&b.inbox).unwrap();
            // The other way still carries; what comes now is dropped, and neither side keeps the other waiting.
            for _ in 0..50 {
                b.out.send(Packet::Frames(frame(0x35, &[7; 100_000]))).unwrap();
            }
            b.finish().unwrap();
            finished.join().unwrap().unwrap();
        });
        assert!(
            out.send(Packet::Frames(frame(0x30, b""))).is_err(),
            "{name}: nothing goes out after the end"
        );
    }
}

#[test]
fn finishing_says_when_something_was_not_written_or_the_other_side_broke_off() {
    let (a, b) = pair_with(Fault::CutAfter(20), Timeouts::WIRE);
    a.out.send(Packet::Frames(frame(0x35, &[7; 50_000]))).unwrap();
    a.out.send(Packet::Frames(frame(0x35, &[7; 50_000]))).unwrap();
    assert_eq!(a.finish().unwrap_err().code, Code::Lost);
    drop(b);
    // The other side stops in the middle of a frame.
    let (stream, mut to_it, mut from_it, _cut) = lonely(Timeouts::WIRE);
    to_it.write_all(&frame(0x30, b"half")[..6]).unwrap();
    to_it.close().unwrap();
    assert_eq!(stream.finish().unwrap_err().code, Code::Lost);
    let mut rest = Vec::new();
    from_it.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
}

#[test]
fn finishing_does_not_wait_for_ever() {
    let timeouts = Timeouts { ping: HUNG, dead: Duration::from_millis(20), ..Timeouts::WIRE };
    let (stream, _to_it, _from_it, cut) = lonely(timeouts);
    assert_eq!(stream.finish().unwrap_err().code, Code::Lost);
    assert!(cut.load(Ordering::Relaxed));
}

#[test]
fn giving_up_brings_back_whoever_waits() {
    for (name, wire) in WIRES {
        let (a, b) = wire();
        let out = a.out.clone();
        let (tell, told) = mpsc::channel();
        std::thread::scope(|s| {
            s.spawn(move || {
                while out.send(Packet::Frames(frame(0x35, &[0; 200_000]))).is_ok() {}
                tell.send(()).unwrap();
            });
            while a.out.queued() < 2 {
                std::thread::yield_now();
            }
            a.abort();
            told.recv_timeout(HUNG).expect(name);
        });
        b.abort();
    }
}

#[test]
fn dropping_is_giving_up() {
    let (a, b) = sockets();
    drop(a);
    // Depending on where it was cut.
    if let Ok(heard) = b.inbox.recv_timeout(HUNG) {
        assert!(matches!(heard, Heard::Ended));
    }
}

/// Writes at most so many bytes at a time, and only of the first piece now and then.
struct Dribble(Vec<u8>, usize);

impl Write for Dribble {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.1 % 5 == 4 {
            self.1 += 1;
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.1 += 1;
        let n = buf.len().min(1 + self.1 % 7);
        self.0.extend_from_slice(&buf[..n]);
        Ok(n)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let all: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
        self.write(&all)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads as many bytes at a time as it is told.
struct Sips(Vec<u8>, Vec<usize>);

impl Read for Sips {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = self.1.pop().unwrap_or(3).max(1);
        let n = most.min(buf.len()).min(self.0.len());
        buf[..n].copy_from_slice(&self.0[..n]);
        self.0.drain(..n);
        Ok(n)
    }
}

struct Null;

impl Write for Null {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(buf.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteHalf for Null {
    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn short_writes_and_interrupts_lose_nothing() {
    let pieces = [pattern(10, 0), Vec::new(), pattern(100, 1), pattern(1, 2), Vec::new()];
    let mut out = Dribble(Vec::new(), 0);
    super::conn::write_gathered(&mut out, &pieces).unwrap();
    assert_eq!(out.0, pieces.concat());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However the bytes are cut up on their way, and wherever they stop: whole frames, in order, and then the truth.
    #[test]
    fn frames_survive_any_sips(
        sizes in proptest::collection::vec(0..20_000usize, 0..12),
        sips in proptest::collection::vec(1..30_000usize, 0..60),
        stop in any::<proptest::sample::Index>(),
    ) {
        let frames: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(n, s)| frame(0x30, &pattern(*s, n))).collect();
        let bytes = frames.concat();
        let stop = stop.index(bytes.len() + 1);
        let mut whole = 0;
        let mut end_at = 0;
        for f in &frames {
            if end_at + f.len() > stop { break; }
            end_at += f.len();
            whole += 1;
        }
        let setup = Setup { name: "x".into(), timeouts: Timeouts::WIRE, cut: Box::new(|| {}) };
        let stream = RawStream::over(Sips(bytes[..stop].to_vec(), sips), Null, setup);
        for f in &frames[..whole] {
            prop_assert!(next(&stream.inbox).payload() == &f[5..]);
        }
        prop_assert_eq!(end(&stream.inbox).is_ok(), end_at == stop);
    }

    /// A flipped bit changes content, or ends the stream with an error; it never hangs or takes memory.
    #[test]
    fn a_flipped_bit_never_hangs(at in 0..200u64) {
        let (a, b) = pair_with(Fault::Flip(at), Timeouts::WIRE);
        for _ in 0..20 {
            a.out.send(Packet::Frames(frame(0x30, b"hello"))).unwrap();
        }
        a.close();
        let mut frames = 0;
        loop {
            match b.inbox.recv_timeout(HUNG) {
                Ok(Heard::Frame(_)) => frames += 1,
                Ok(Heard::Nothing) => prop_assert!(false, "hangs"),
                Ok(Heard::Ended) => break,
                Err(e) => {
                    prop_assert!(matches!(e.code, Code::Lost | Code::Protocol));
                    break;
                }
            }
        }
        prop_assert!(frames <= 20);
    }
}

#[test]
fn the_descriptor_halves_close_what_they_write_to() {
    let (read, write) = io::pipe().unwrap();
    let (nothing, _keep) = io::pipe().unwrap();
    let stream =
        RawStream::over_fds(OwnedFd::from(nothing), OwnedFd::from(write), "p".into(), Timeouts::WIRE, || {});
    stream.out.send(Packet::Frames(frame(0x30, b"x"))).unwrap();
    stream.close();
    let mut all = Vec::new();
    File::from(OwnedFd::from(read)).read_to_end(&mut all).unwrap();
    assert_eq!(all, frame(0x30, b"x"));
    let _fd = stream.inbox.recv_timeout(Duration::ZERO);
    assert!(_keep.as_fd().try_clone_to_owned().is_ok());
}
