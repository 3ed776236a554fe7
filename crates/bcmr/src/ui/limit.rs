//! What limited a copy: decided from who waited for whom.
//!
//! Pure: times in, a verdict out. Must not know how anything was measured, nor how a verdict is worded.

use crate::env::Spent;
use crate::show::Far;
use bcmr_engine::event::Progress;
use bcmr_engine::remote::Plane;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What queues, ssh, pipes and sockets of a connection may take in before a sender waits for room, in bytes.
const SWALLOWED: u64 = 16 << 20;
/// No ssh encrypts more bytes in a nanosecond of a processor.
const ENCRYPTED_PER_NS_MAX: u64 = 10;

/// A shorter run tells nothing of what it waited for.
const TOLD_AFTER: Duration = Duration::from_millis(500);

/// What the threads of a run did with their time.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub far: Far,
    pub took: Duration,
    /// Bytes that this run copied.
    pub bytes: u64,
    /// All workers together, as are the following three.
    pub copying: Duration,
    pub verifying: Duration,
    pub syncing: Duration,
    /// What the processor did for this process.
    pub processor: Duration,
    /// Bytes that came from a disk and not from the page cache.
    pub from_disk: u64,
    /// Threads that send or land, where there is another machine.
    pub threads: u64,
    /// All threads together waited for room in what carries the bytes.
    pub room: Duration,
    /// For the other side to settle what it was sent.
    pub settled: Duration,
    /// For content of a large file, which is part of `copying`.
    pub pieces: Duration,
    /// What the processor did for the processes that carry the bytes.
    pub carriers: Duration,
}

/// What a run waited for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Reading,
    Writing,
    Processor,
    /// Reading back what landed.
    Verifying,
    /// Stable storage.
    Syncing,
    /// This side's ssh, whose processes were busy.
    Ssh,
    SshOrNetwork,
    /// Not this side's ssh, which had time.
    NetworkOrFarSsh,
    Network,
    /// What the other side does with what it is sent.
    OtherSide,
    /// The other side, or what lies between.
    OtherSideOrNetwork,
}

impl Times {
    /// As they were counted.
    pub fn of(progress: &Progress, far: Far, took: Duration, bytes: u64, spent: Spent) -> Times {
        let (work, waits) = (&progress.work, &progress.waits);
        let waited = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed));
        Times {
            far,
            took,
            bytes,
            copying: work.copying.took(),
            verifying: work.verifying.took(),
            syncing: work.syncing.took(),
            processor: spent.processor,
            from_disk: spent.from_disk,
            threads: waits.threads.load(Ordering::Relaxed),
            room: waited(&waits.room_ns),
            settled: waited(&waits.settled_ns),
            pieces: waited(&waits.pieces_ns),
            carriers: spent.children,
        }
    }
}

/// What limited it; `None` where that cannot be told.
pub fn of(t: &Times) -> Option<Limit> {
    if t.took < TOLD_AFTER {
        return None;
    }
    match t.far {
        Far::Nowhere => here(t),
        Far::To(plane) => {
            let all = t.took.saturating_mul(u32::try_from(t.threads).ok().filter(|n| *n > 0)?);
            let rest = all.saturating_sub(t.room).saturating_sub(t.settled);
            Some(if t.room >= t.settled && t.room >= rest {
                carrier(plane, t)
            } else if t.settled >= rest && t.bytes / connections(t) < SWALLOWED {
                // Nothing had to wait for room: what was slow may lie behind the queues as well as between them.
                Limit::OtherSideOrNetwork
            } else if t.settled >= rest {
                Limit::OtherSide
            } else if mostly(t.processor, t.took) {
                Limit::Processor
            } else if t.bytes / connections(t) < SWALLOWED {
                // Logging in may have taken longer than all of it.
                return None;
            } else {
                Limit::Reading
            })
        }
        Far::From(plane) => {
            // Where something lands most of the time, that is what the rest waits for.
            let landing = Times { copying: t.copying.saturating_sub(t.pieces), ..*t };
            match landing.copying + t.verifying + t.syncing >= t.took / 2 {
                // What comes over a wire is in memory when it is written.
                true => {
                    here(&landing).map(|limit| if limit == Limit::Reading { Limit::Writing } else { limit })
                }
                false if plane == Plane::Ssh && ssh(t) == Limit::Ssh => Some(Limit::Ssh),
                false if t.bytes / connections(t) < SWALLOWED => None,
                false => Some(Limit::OtherSideOrNetwork),
            }
        }
    }
}

fn here(t: &Times) -> Option<Limit> {
    let all = t.copying + t.verifying + t.syncing;
    // Where most of the time was spent on neither, nothing is known.
    if all < t.took / 2 {
        return None;
    }
    Some(if t.syncing >= all / 2 {
        Limit::Syncing
    } else if mostly(t.processor, all) {
        Limit::Processor
    } else if t.verifying >= all / 2 {
        Limit::Verifying
    } else if t.bytes > 0 && t.from_disk >= t.bytes / 2 {
        Limit::Reading
    } else {
        Limit::Writing
    })
}

fn carrier(plane: Plane, t: &Times) -> Limit {
    match plane {
        Plane::Ssh => ssh(t),
        Plane::Direct => Limit::Network,
    }
}

fn connections(t: &Times) -> u64 {
    (t.threads / 2).max(1)
}

/// Which of both is slow, where ssh carries the bytes: each connection is a process, and no two threads of it encrypt. One
/// that shares a connection that was there passes the bytes to another process, whose time is not known.
fn ssh(t: &Times) -> Limit {
    let all = t.took.saturating_mul(u32::try_from(connections(t)).unwrap_or(u32::MAX));
    let carried = t.carriers.as_nanos() >= u128::from(t.bytes / ENCRYPTED_PER_NS_MAX);
    if mostly(t.carriers, all) {
        Limit::Ssh
    } else if carried && t.carriers < all * 4 / 10 {
        Limit::NetworkOrFarSsh
    } else {
        Limit::SshOrNetwork
    }
}

fn mostly(part: Duration, of: Duration) -> bool {
    part >= of.saturating_mul(7) / 10
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn times(far: Far) -> Times {
        let none = Duration::ZERO;
        Times {
            far,
            took: S(10),
            bytes: 1000,
            copying: none,
            verifying: none,
            syncing: none,
            processor: none,
            from_disk: 0,
            threads: 2,
            room: none,
            settled: none,
            pieces: none,
            carriers: none,
        }
    }

    #[test]
    fn who_waited_for_whom() {
        let near = Times { copying: S(18), ..times(Far::Nowhere) };
        let put = times(Far::To(Plane::Ssh));
        let get = Times { bytes: 1 << 30, ..times(Far::From(Plane::Direct)) };
        for (times, want) in [
            (Times { took: Duration::from_millis(400), ..near }, None),
            (times(Far::Nowhere), None),
            (Times { from_disk: 900, processor: S(3), ..near }, Some(Limit::Reading)),
            (Times { from_disk: 100, processor: S(3), ..near }, Some(Limit::Writing)),
            (Times { from_disk: 900, processor: S(17), ..near }, Some(Limit::Processor)),
            (Times { syncing: S(30), processor: S(30), ..near }, Some(Limit::Syncing)),
            (Times { verifying: S(30), from_disk: 1000, ..near }, Some(Limit::Verifying)),
            (Times { room: S(15), carriers: S(5), ..put }, Some(Limit::SshOrNetwork)),
            (Times { room: S(15), carriers: S(8), ..put }, Some(Limit::Ssh)),
            (Times { room: S(15), carriers: S(2), ..put }, Some(Limit::NetworkOrFarSsh)),
            // Two connections, of which each has a process.
            (Times { room: S(30), carriers: S(8), threads: 4, ..put }, Some(Limit::SshOrNetwork)),
            (Times { room: S(30), carriers: S(15), threads: 4, ..put }, Some(Limit::Ssh)),
            // Another process has carried them.
            (Times { room: S(15), bytes: 100 << 30, carriers: S(1), ..put }, Some(Limit::SshOrNetwork)),
            (Times { room: S(15), ..times(Far::To(Plane::Direct)) }, Some(Limit::Network)),
            (Times { settled: S(15), room: S(1), bytes: 1 << 30, ..put }, Some(Limit::OtherSide)),
            // All of it was under way before anything had to wait.
            (Times { settled: S(15), bytes: 1 << 20, ..put }, Some(Limit::OtherSideOrNetwork)),
            (Times { settled: S(45), bytes: 60 << 20, threads: 8, ..put }, Some(Limit::OtherSideOrNetwork)),
            (Times { settled: S(3), room: S(1), bytes: 1 << 30, ..put }, Some(Limit::Reading)),
            (Times { settled: S(3), room: S(1), ..put }, None),
            (Times { processor: S(9), ..put }, Some(Limit::Processor)),
            (Times { threads: 0, ..put }, None),
            (Times { copying: S(9), pieces: S(8), ..get }, Some(Limit::OtherSideOrNetwork)),
            (Times { carriers: S(9), ..get }, Some(Limit::OtherSideOrNetwork)),
            (Times { carriers: S(9), ..times(Far::From(Plane::Ssh)) }, Some(Limit::Ssh)),
            (Times { carriers: S(6), far: Far::From(Plane::Ssh), ..get }, Some(Limit::OtherSideOrNetwork)),
            (times(Far::From(Plane::Ssh)), None),
            (Times { copying: S(9), from_disk: 1000, pieces: S(1), ..get }, Some(Limit::Writing)),
            (Times { copying: S(9), syncing: S(12), ..get }, Some(Limit::Syncing)),
        ] {
            assert_eq!(of(&times), want, "{times:?}");
        }
    }
}
