//! Whether a connection gets anywhere: what the threads of this side wait for, what has moved, and what the other side
//! says of itself in its Pings. Two sides that only tell each other that they are there would do so for ever.
//!
//! Must not know what carries the bytes, nor what any message means.

use crate::error::{Note, Reason};
use crate::event::nanos;
use crate::throttle::Throttle;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// What a thread waits for that only the other side can bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum For {
    /// The next message.
    Frame = 1,
    /// Room to send.
    Room = 2,
    /// What was sent to be settled.
    Settled = 3,
    /// Whether a large file was whole.
    Word = 4,
    /// Values of blocks.
    Values = 5,
    /// Content of a large file.
    Piece = 6,
    /// What a person says, who is at the other side.
    Answer = 7,
}

impl For {
    const ALL: [For; 7] =
        [For::Frame, For::Room, For::Settled, For::Word, For::Values, For::Piece, For::Answer];

    fn text(self) -> Reason {
        match self {
            For::Frame => Reason::WaitsForMessage,
            For::Room => Reason::WaitsForRoom,
            For::Settled => Reason::WaitsForSettling,
            For::Word => Reason::WaitsForWord,
            For::Values => Reason::WaitsForValues,
            For::Piece => Reason::WaitsForContent,
            For::Answer => Reason::WaitsForPerson,
        }
    }
}

/// What a side is at, as it stands in a Ping: at work, asking a person, or one of [`For`].
const WORKS: u8 = 0;
const ASKS: u8 = 127;
/// A token that says something. Those of a version that says nothing count nanoseconds and come nowhere near.
const TELLS: u64 = 1 << 63;
/// Bits of what has moved.
const MOVED: u64 = (1 << 56) - 1;
/// So many bytes of a message that is not whole yet count as one step: more than Pings bring in the time that is
/// waited, as they may stand for content where a length came wrong; less than the slowest honest line brings.
const STEP_BYTES: u64 = 4096;

/// How long nothing may move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// While both sides wait.
    pub(crate) stall: Duration,
    /// While the other side says that it works, or says nothing.
    pub(crate) works: Duration,
    /// What counts at most between two looks: a process that was stopped was not waiting.
    pub(crate) tick: Duration,
}

/// One side of a connection, with all its streams.
#[derive(Debug)]
pub(crate) struct Pulse {
    steps: AtomicU64,
    bytes: AtomicU64,
    /// Threads that do something of their own, and not wait for the other side.
    at_work: AtomicI64,
    asking: AtomicI64,
    waiting: [AtomicI64; For::ALL.len()],
    /// For how long threads have waited, all together, in nanoseconds.
    waited: [AtomicU64; For::ALL.len()],
    /// The file and block that was waited for last.
    piece: [AtomicU64; 2],
    calm: Mutex<Calm>,
    /// How fast bytes may go; no limit where there is none.
    throttle: OnceLock<Arc<Throttle>>,
}

#[derive(Debug, Default)]
struct Calm {
    /// What the other side is at, and what it says has moved there.
    theirs: Option<(u8, u64)>,
    moved: u64,
    /// Something is new since the last look.
    stirred: bool,
    looked: Option<Instant>,
    /// How long nothing has moved, while the other side waited, worked or said nothing, and asked a person.
    waiting: Duration,
    working: Duration,
    asking: Duration,
}

/// Until it is dropped, a thread more is at work, or one less.
pub(crate) struct Shift<'p> {
    pulse: Option<&'p Pulse>,
    back: i64,
    what: Option<(For, Instant)>,
}

impl Shift<'_> {
    /// For what has no pulse.
    pub(crate) const NONE: Shift<'static> = Shift { pulse: None, back: 0, what: None };
}

impl Drop for Shift<'_> {
    fn drop(&mut self) {
        let Some(pulse) = self.pulse else { return };
        pulse.at_work.fetch_add(self.back, Relaxed);
        let Some((what, since)) = self.what else { return };
        if let (Some(waits), Some(waited)) = (pulse.waits(what), pulse.waited.get(what as usize - 1)) {
            waits.fetch_sub(1, Relaxed);
            waited.fetch_add(nanos(since.elapsed()), Relaxed);
        }
    }
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse::new()
    }
}

impl Pulse {
    /// With one thread at work: the one whose connection it is.
    pub(crate) fn new() -> Pulse {
        let none = || AtomicI64::new(0);
        Pulse {
            steps: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            at_work: AtomicI64::new(1),
            asking: none(),
            waiting: std::array::from_fn(|_| none()),
            waited: [const { AtomicU64::new(0) }; For::ALL.len()],
            piece: [const { AtomicU64::new(0) }; 2],
            calm: Mutex::default(),
            throttle: OnceLock::new(),
        }
    }

    /// From now on the bytes of the connection go as fast as this lets them.
    pub(crate) fn goes_by(&self, throttle: &Arc<Throttle>) {
        self.throttle.get_or_init(|| Arc::clone(throttle));
    }

    /// What limits the connection just now.
    pub(crate) fn throttle(&self) -> Option<&Throttle> {
        self.throttle.get().map(Arc::as_ref).filter(|throttle| throttle.is_in_force())
    }

    fn waits(&self, what: For) -> Option<&AtomicI64> {
        self.waiting.get(what as usize - 1)
    }

    fn shift(&self, by: i64, what: Option<For>) -> Shift<'_> {
        self.at_work.fetch_add(by, Relaxed);
        if let Some(waits) = what.and_then(|what| self.waits(what)) {
            waits.fetch_add(1, Relaxed);
        }
        Shift { pulse: Some(self), back: -by, what: what.map(|what| (what, Instant::now())) }
    }

    /// For how long threads have waited for this, all together, in nanoseconds.
    pub(crate) fn waited_ns(&self, what: For) -> u64 {
        self.waited.get(what as usize - 1).map_or(0, |waited| waited.load(Relaxed))
    }

    /// One thread more is at work.
    pub(crate) fn works(&self) -> Shift<'_> {
        self.shift(1, None)
    }

    /// A thread that is at work waits for the other side.
    pub(crate) fn waits_for(&self, what: For) -> Shift<'_> {
        self.shift(-1, Some(what))
    }

    /// A thread that is at work only waits for others of this side.
    pub(crate) fn stands_by(&self) -> Shift<'_> {
        self.shift(-1, None)
    }

    /// Locks what another thread of this side may hold while it waits for the other side: this thread only waits for that
    /// one meanwhile.
    pub(crate) fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
        match mutex.try_lock() {
            Ok(guard) => guard,
            // A thread that panicked stops the transfer; what it left serves only to be given up.
            Err(TryLockError::Poisoned(left)) => left.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let _others = self.stands_by();
                mutex.lock().unwrap_or_else(PoisonError::into_inner)
            }
        }
    }

    /// As [`Pulse::waits_for`] content, and which.
    pub(crate) fn waits_for_block(&self, what: For, file: u64, block: u64) -> Shift<'_> {
        for (place, number) in self.piece.iter().zip([file, block]) {
            place.store(number, Relaxed);
        }
        self.waits_for(what)
    }

    /// Asks a person, however long that takes.
    pub(crate) fn asks<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.asking.fetch_add(1, Relaxed);
        let said = ask();
        self.asking.fetch_sub(1, Relaxed);
        said
    }

    /// A message came or went, or something was done with one.
    pub(crate) fn step(&self) {
        self.steps.fetch_add(1, Relaxed);
    }

    /// Bytes came, of whatever.
    pub(crate) fn came(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn moved(&self) -> u64 {
        self.steps.load(Relaxed).wrapping_add(self.bytes.load(Relaxed) / STEP_BYTES) & MOVED
    }

    /// What this side is at.
    fn is_at(&self) -> u8 {
        // A person wants it to be slow, or to wait.
        let is_held_back = self.throttle().is_some_and(|throttle| throttle.held_back().is_some());
        if is_held_back || self.asking.load(Relaxed) > 0 {
            return ASKS;
        }
        if self.at_work.load(Relaxed) > 0 {
            return WORKS;
        }
        let waits = |what: &&For| self.waits(**what).is_some_and(|n| n.load(Relaxed) > 0);
        For::ALL.iter().rev().find(waits).copied().unwrap_or(For::Frame) as u8
    }

    /// The token of a Ping.
    pub(crate) fn tells(&self) -> u64 {
        TELLS | u64::from(self.is_at()) << 56 | self.moved()
    }

    /// What the token of a Ping says.
    pub(crate) fn hears(&self, token: u64) {
        if token & TELLS == 0 {
            return;
        }
        let said = ((token >> 56 & 127) as u8, token & MOVED);
        let mut calm = self.calm.lock().unwrap_or_else(PoisonError::into_inner);
        // Only what moved is news: a thread that looks at flags between two waits is at work for that moment.
        calm.stirred |= calm.theirs.is_none_or(|(_, before)| before != said.1);
        calm.theirs = Some(said);
    }

    /// Why the connection is given up, when nothing has moved for too long. To be called now and then.
    pub(crate) fn judge(&self, now: Instant, limits: Limits) -> Option<Note> {
        let (at, moved) = (self.is_at(), self.moved());
        let mut calm = self.calm.lock().unwrap_or_else(PoisonError::into_inner);
        let calm = &mut *calm;
        let passed = calm.looked.map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
        calm.looked = Some(now);
        if at == ASKS || moved != calm.moved || calm.stirred {
            (calm.waiting, calm.working, calm.asking) = Default::default();
            (calm.moved, calm.stirred) = (moved, false);
            return None;
        }
        // While this side works no time counts. What has counted stays: two of its waits have such a moment between them.
        if at == WORKS {
            return None;
        }
        let (quiet, limit) = match calm.theirs {
            // A person may sleep over it, and not for ever.
            Some((ASKS, _)) => (&mut calm.asking, limits.works.saturating_mul(24)),
            // [ping.works]
            Some((WORKS, _)) | None => (&mut calm.working, limits.works),
            // [ping.stall]
            Some(_) => (&mut calm.waiting, limits.stall),
        };
        *quiet = quiet.saturating_add(passed.min(limits.tick));
        if *quiet < limit {
            return None;
        }
        let theirs: Note = match calm.theirs {
            None => Reason::PeerSaysNothing.into(),
            Some((WORKS, _)) => Reason::PeerWorks.into(),
            Some((ASKS, _)) => Reason::PeerAsksPerson.into(),
            Some((code, _)) => Reason::PeerWaits.about(text_of(code)),
        };
        let seconds = (calm.waiting + calm.working + calm.asking).as_secs();
        Some(Reason::Stalled.about(seconds).about(self.ours(at)).about(theirs))
    }

    fn ours(&self, at: u8) -> Note {
        let [file, block] = [0, 1].map(|n| self.piece.get(n).map_or(0, |n: &AtomicU64| n.load(Relaxed)));
        let text = text_of(at);
        if at == For::Piece as u8 || at == For::Values as u8 {
            return Reason::WaitsAtBlock.about(text).about(file).about(block);
        }
        text.into()
    }
}

fn text_of(code: u8) -> Reason {
    For::ALL.iter().find(|what| **what as u8 == code).map_or(Reason::WaitsForSomething, |what| what.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const LIMITS: Limits = Limits {
        stall: Duration::from_secs(120),
        works: Duration::from_secs(3600),
        tick: Duration::from_secs(20),
    };

    /// Looks every ten seconds, while `stirs` does what it does, and says after how many it is given up.
    fn given_up(pulse: &Pulse, looks: u64, mut stirs: impl FnMut(u64)) -> Option<(u64, Note)> {
        let began = Instant::now();
        (0..looks).find_map(|look| {
            stirs(look);
            pulse.judge(began + Duration::from_secs(10 * look), LIMITS).map(|why| (10 * look, why))
        })
    }

    #[test]
    fn two_sides_that_wait_for_each_other_part() {
        let (one, other) = (Pulse::new(), Pulse::new());
        let (_a, _b) = (one.waits_for_block(For::Piece, 3, 7), other.waits_for(For::Settled));
        let (after, why) = given_up(&one, 100, |_| one.hears(other.tells())).unwrap();
        assert!((120..150).contains(&after), "{after}");
        let ours = Reason::WaitsAtBlock.about(Reason::WaitsForContent).about(3_u64).about(7_u64);
        let theirs = Reason::PeerWaits.about(Reason::WaitsForSettling);
        assert_eq!(why, Reason::Stalled.about(120_u64).about(ours).about(theirs));
    }

    #[test]
    fn who_moves_works_or_asks_is_waited_for() {
        let (one, other) = (Pulse::new(), Pulse::new());
        let waits = one.waits_for(For::Frame);
        // It works: as long as fsync takes, and not for ever.
        let (after, why) = given_up(&one, 1000, |_| one.hears(other.tells())).unwrap();
        assert!(
            (3600..3700).contains(&after) && why.about.ends_with(&[Reason::PeerWorks.into()]),
            "{after} {why:?}"
        );
        // Something moves there, or here.
        let there = other.waits_for(For::Frame);
        assert_eq!(
            given_up(&one, 1000, |look| if look.is_multiple_of(9) {
                other.step();
                one.hears(other.tells())
            }),
            None
        );
        assert_eq!(
            given_up(&one, 1000, |look| if look.is_multiple_of(9) {
                one.step()
            }),
            None
        );
        // The slowest line of all: 4 kB a minute.
        assert_eq!(given_up(&one, 1000, |_| one.came(STEP_BYTES / 6)), None);
        // Pings that stand for content do not count as anything.
        assert!(given_up(&one, 100, |_| one.came(26)).is_some());
        // This side works itself.
        drop(waits);
        assert_eq!(given_up(&one, 10_000, |_| ()), None);
        drop(there);
        let _waits = one.waits_for(For::Answer);
        other.asks(|| one.hears(other.tells()));
        assert_eq!(given_up(&one, 8000, |_| ()), None, "a night");
    }

    /// A thread that waits looks at flags now and then, and is at work for that moment: on a loaded machine a Ping, or a
    /// look, often meets it there.
    #[test]
    fn moments_between_two_waits_are_no_progress() {
        let (one, other) = (Pulse::new(), Pulse::new());
        let ours = one.waits_for(For::Frame);
        let there = |look: u64| {
            let _waits = (!look.is_multiple_of(3)).then(|| other.waits_for(For::Settled));
            one.hears(other.tells());
        };
        let (after, why) = given_up(&one, 1000, there).unwrap();
        assert!((120..300).contains(&after), "{after}");
        assert_eq!(why.reason, Reason::Stalled);
        drop(ours);
        // The same on this side.
        let (one, other) = (Pulse::new(), Pulse::new());
        let (_there, mut ours) = (other.waits_for(For::Settled), None);
        let given_up = given_up(&one, 1000, |look| {
            drop(ours.take());
            ours = (!look.is_multiple_of(3)).then(|| one.waits_for(For::Frame));
            one.hears(other.tells());
        });
        let (after, _) = given_up.unwrap();
        assert!((120..300).contains(&after), "{after}");
    }

    /// The twin: time in which the other side worked, or asked a person, is not held against a wait that follows.
    #[test]
    fn a_wait_after_long_work_has_its_whole_time() {
        let (one, other) = (Pulse::new(), Pulse::new());
        let _ours = one.waits_for(For::Frame);
        let mut there = None;
        let given_up = given_up(&one, 1000, |look| {
            if look == 300 {
                there = Some(other.waits_for(For::Settled));
            }
            one.hears(other.tells());
        });
        let (after, _) = given_up.unwrap();
        assert!((3100..3150).contains(&after), "{after}");
    }

    /// A thread holds what it was asked to look after while it waits for a person over there, and another one wants it:
    /// this side waits, and says so.
    #[test]
    fn a_lock_that_is_held_during_a_wait_is_no_work() {
        let (pulse, mutex, began) = (Pulse::new(), Mutex::new(()), AtomicBool::new(false));
        let held = mutex.lock().unwrap();
        let _asks = pulse.waits_for(For::Answer);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _works = pulse.works();
                began.store(true, Relaxed);
                drop(pulse.lock(&mutex));
            });
            // From its beginning on it is at work, until it waits for the lock.
            let until = Instant::now() + Duration::from_secs(20);
            while (!began.load(Relaxed) || pulse.is_at() == WORKS) && Instant::now() < until {
                std::thread::yield_now();
            }
            assert_eq!(pulse.is_at(), For::Answer as u8);
            drop(held);
        });
    }

    /// A version that says nothing of itself, or a peer that does not want to.
    #[test]
    fn who_says_nothing_is_waited_for_longer() {
        let one = Pulse::new();
        let _waits = one.waits_for(For::Frame);
        let (after, _) = given_up(&one, 1000, |look| one.hears(look * 1_000_000_000)).unwrap();
        assert!((3600..3700).contains(&after), "{after}");
    }

    #[test]
    fn a_process_that_was_stopped_was_not_waiting() {
        let (one, other) = (Pulse::new(), Pulse::new());
        let (_a, _b) = (one.waits_for(For::Frame), other.waits_for(For::Frame));
        one.hears(other.tells());
        let began = Instant::now();
        assert_eq!(one.judge(began, LIMITS), None);
        assert_eq!(one.judge(began + Duration::from_secs(5), LIMITS), None);
        assert_eq!(one.judge(began + Duration::from_secs(5000), LIMITS), None);
    }
}
