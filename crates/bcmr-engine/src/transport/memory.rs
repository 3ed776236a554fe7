//! A wire in memory, for tests: two streams that hear each other, and one that misbehaves at a chosen byte.
//!
//! Must not know what is carried.

use super::conn::{Patience, Setup, Stream, WriteHalf};
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
}

/// Two streams that hear each other.
pub(crate) fn pair() -> (Stream, Stream) {
    pair_with(Fault::None, Patience::WIRE)
}

/// The same with a fault from the first to the second.
pub(crate) fn pair_with(fault: Fault, patience: Patience) -> (Stream, Stream) {
    let (there, back) = (Arc::new(Wire::new(fault)), Arc::new(Wire::new(Fault::None)));
    let stream = |read: &Arc<Wire>, write: &Arc<Wire>, name: &str| {
        let cut = {
            let (read, write) = (Arc::clone(read), Arc::clone(write));
            Box::new(move || {
                read.end();
                write.end();
            })
        };
        let setup = Setup { name: name.to_owned(), patience, cut };
        Stream::over(
            End { wire: Arc::clone(read), other: None },
            End { wire: Arc::clone(write), other: Some(Arc::clone(read)) },
            setup,
        )
    };
    (stream(&back, &there, "second"), stream(&there, &back, "first"))
}

/// The two raw ends of one direction, for tests that play the other side by hand.
pub(crate) fn raw(fault: Fault) -> (End, End) {
    let wire = Arc::new(Wire::new(fault));
    (End { wire: Arc::clone(&wire), other: None }, End { wire, other: None })
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
}

impl Read for End {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut inside = self.wire.inside.lock().unwrap();
        while inside.bytes.is_empty() && !inside.ended {
            inside = self.wire.changed.wait(inside).unwrap();
        }
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
            Fault::CutAfter(limit) => n.min(usize::try_from(limit - passed).unwrap()),
            _ => n,
        };
        inside.bytes.extend(&buf[..kept]);
        inside.passed += kept as u64;
        inside.ended |= kept < n;
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
