//! A wire in memory, for tests: two streams that hear each other, and one that misbehaves at a chosen byte.
//!
//! Must not know what is carried.

use super::conn::{RawStream, Setup, Timeouts, WriteHalf};
use super::stream;
use bcmr_wire::dialogue::Dialogue;
use bcmr_wire::state::State;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex};

/// Bytes that a wire holds, as a pipe would.
const CAPACITY: usize = 64 << 10;

/// What goes wrong with the bytes from the first stream to the second.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// After so many bytes both directions end.
    CutAfter(u64),
    /// The lowest bit of the byte with this number comes out wrong.
    Flip(u64),
    /// After so many bytes nothing comes out any more, and no error is told.
    StallAfter(u64),
}

/// What the wires of one simulated transfer share: a seed decides what is read at once, what is held back until others
/// have moved, and what else happens meanwhile.
pub(crate) struct Weather {
    inside: Mutex<Sky>,
    moved: Condvar,
}

/// Something that happens once so many reads were served.
pub(crate) type Happening = (u64, Box<dyn FnOnce() + Send + Sync>);

struct Sky {
    seed: u64,
    reads: u64,
    /// The next one last.
    happenings: Vec<Happening>,
    /// Nothing is held back any more.
    calm: bool,
}

impl Weather {
    pub(crate) fn new(seed: u64, calm: bool, mut happenings: Vec<Happening>) -> Arc<Weather> {
        happenings.sort_by_key(|(when, _)| std::cmp::Reverse(*when));
        Arc::new(Weather {
            inside: Mutex::new(Sky { seed, reads: 0, happenings, calm }),
            moved: Condvar::new(),
        })
    }

    /// Called before a read is served: how many bytes it may take.
    fn gust(&self, wanted: usize) -> usize {
        // How long a read may be held back that no other overtakes.
        const HOLD: std::time::Duration = std::time::Duration::from_millis(1);
        let mut sky = self.inside.lock().unwrap();
        sky.reads += 1;
        let reads = sky.reads;
        let due = sky.happenings.pop_if(|(when, _)| *when <= reads);
        self.moved.notify_all();
        if let Some((_, happen)) = due {
            drop(sky);
            happen();
            sky = self.inside.lock().unwrap();
        }
        if sky.calm {
            return wanted;
        }
        let lot = draw(&mut sky.seed);
        if lot.is_multiple_of(8) {
            let until = reads + 1 + (lot >> 8) % 8;
            drop(self.moved.wait_timeout_while(sky, HOLD, |sky| sky.reads < until).unwrap());
        }
        if lot % 16 == 1 { 1 + (lot >> 16) as usize % wanted.max(1) } else { wanted }
    }
}

/// The next number of a sequence that `seed` begins (SplitMix64).
pub(crate) fn draw(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Two streams, at what `states` say, for what knows messages.
pub(crate) fn streams_in(
    weather: &Arc<Weather>,
    faults: [Fault; 2],
    timeouts: Timeouts,
    states: [State; 2],
) -> (stream::Stream, stream::Stream) {
    let (first, second) = pair_in(weather, faults, timeouts);
    let over = |raw, state| {
        let stream = stream::Stream::over(raw, Dialogue::resting(State::Quiet));
        stream.enter(state);
        stream
    };
    (over(first, states[0]), over(second, states[1]))
}

/// The same over a wire that does nothing odd.
pub(crate) fn streams(states: [State; 2]) -> (stream::Stream, stream::Stream) {
    streams_in(&Weather::new(0, true, Vec::new()), [Fault::None; 2], Timeouts::WIRE, states)
}

/// Two raw streams that hear each other.
pub(super) fn pair() -> (RawStream, RawStream) {
    pair_with(Fault::None, Timeouts::WIRE)
}

/// The same with a fault from the first to the second.
pub(super) fn pair_with(fault: Fault, timeouts: Timeouts) -> (RawStream, RawStream) {
    pair_in(&Weather::new(0, true, Vec::new()), [fault, Fault::None], timeouts)
}

/// The same with a fault in each direction, in a weather.
pub(super) fn pair_in(
    weather: &Arc<Weather>,
    [there, back]: [Fault; 2],
    timeouts: Timeouts,
) -> (RawStream, RawStream) {
    let (there, back) = (Arc::new(Wire::new(there)), Arc::new(Wire::new(back)));
    let stream = |read: &Arc<Wire>, write: &Arc<Wire>, name: &str| {
        let cut = {
            let (read, write) = (Arc::clone(read), Arc::clone(write));
            Box::new(move || {
                read.end();
                write.end();
            })
        };
        let setup = Setup { name: name.to_owned(), timeouts, cut };
        RawStream::over(
            End { wire: Arc::clone(read), other: None, weather: Some(Arc::clone(weather)) },
            End { wire: Arc::clone(write), other: Some(Arc::clone(read)), weather: None },
            setup,
        )
    };
    (stream(&back, &there, "second"), stream(&there, &back, "first"))
}

/// The two raw ends of one direction, for tests that play the other side by hand.
pub(crate) fn raw(fault: Fault) -> (End, End) {
    let wire = Arc::new(Wire::new(fault));
    let end = |wire| End { wire, other: None, weather: None };
    (end(Arc::clone(&wire)), end(wire))
}

struct Wire {
    inside: Mutex<Inside>,
    changed: Condvar,
}

struct Inside {
    bytes: VecDeque<u8>,
    passed: u64,
    ended: bool,
    fault: Fault,
}

impl Wire {
    fn new(fault: Fault) -> Wire {
        Wire {
            inside: Mutex::new(Inside { bytes: VecDeque::new(), passed: 0, ended: false, fault }),
            changed: Condvar::new(),
        }
    }

    fn end(&self) {
        self.inside.lock().unwrap().ended = true;
        self.changed.notify_all();
    }
}

/// One end of one direction.
pub(crate) struct End {
    wire: Arc<Wire>,
    /// The other direction, which a cut ends too.
    other: Option<Arc<Wire>>,
    weather: Option<Arc<Weather>>,
}

impl Read for End {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut inside = self.wire.inside.lock().unwrap();
        while inside.bytes.is_empty() && !inside.ended {
            inside = self.wire.changed.wait(inside).unwrap();
        }
        let mut most = buf.len();
        if let Some(weather) = &self.weather {
            drop(inside);
            most = weather.gust(most);
            inside = self.wire.inside.lock().unwrap();
        }
        let buf = &mut buf[..most];
        let n = buf.len().min(inside.bytes.len());
        inside.bytes.read_exact(&mut buf[..n])?;
        drop(inside);
        self.wire.changed.notify_all();
        Ok(n)
    }
}

impl Write for End {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut inside = self.wire.inside.lock().unwrap();
        while inside.bytes.len() >= CAPACITY && !inside.ended {
            inside = self.wire.changed.wait(inside).unwrap();
        }
        if inside.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let n = buf.len().min(CAPACITY - inside.bytes.len());
        let passed = inside.passed;
        let before = inside.bytes.len();
        let kept = match inside.fault {
            Fault::CutAfter(limit) | Fault::StallAfter(limit) => {
                n.min(usize::try_from(limit.saturating_sub(passed)).unwrap())
            }
            _ => n,
        };
        inside.bytes.extend(&buf[..kept]);
        inside.passed += kept as u64;
        inside.ended |= kept < n && matches!(inside.fault, Fault::CutAfter(_));
        if let Fault::Flip(at) = inside.fault
            && (passed..passed + kept as u64).contains(&at)
        {
            let place = before + usize::try_from(at - passed).unwrap();
            inside.bytes[place] ^= 1;
        }
        let cut = inside.ended;
        drop(inside);
        self.wire.changed.notify_all();
        if cut && let Some(other) = &self.other {
            other.end();
        }
        // What was swallowed by the cut counts as sent, as it would on a real wire.
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteHalf for End {
    fn close(&mut self) -> io::Result<()> {
        self.wire.end();
        Ok(())
    }
}
