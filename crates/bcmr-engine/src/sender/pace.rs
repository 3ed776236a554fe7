//! `--compress=auto`: whether packing pays, from what the link and the codec were seen to do.
//!
//! Must not look at a clock, nor at content: it is told what happened, and answers.

use crate::codec::Effort;

/// Bytes of content after which is looked again, while packing.
const WINDOW_BYTES: u64 = 8 << 20;
/// But not sooner: a writer may have waited since before, and a socket lets go of what it holds by parts, so that less says
/// little of the link.
const WINDOW_NS_MIN: u64 = 100_000_000;
/// A slow link is looked at after so long, if there was anything to see.
const WINDOW_NS: u64 = 1_000_000_000;
const WINDOW_BYTES_MIN: u64 = 512 << 10;
/// Less is enough to know that content does not shrink: trying costs more than anything else that is done with it.
const TRIED_BYTES: u64 = 2 << 20;
/// Bytes on the wire of a hundred of content from which on packing is not worth it.
const SHRUNK_TO_MOST: u64 = 95;
/// After so many bytes of content without packing it is tried again: other files may shrink where those before did not.
const LOOK_AGAIN: u64 = 128 << 20;
/// What the queue of a stream, ssh, pipes and sockets may swallow before a writer waits: a link says nothing of itself
/// until then. Seen: 8.3 MB in front of a link of 80 Mbit/s.
const SWALLOWED_BYTES: u64 = 16 << 20;

/// How hard to try is decided after so long: a writer waits for a tenth of a second at a time, until a socket has room for a
/// third of its buffer again, so less says little of the link.
const EFFORT_NS: u64 = 400_000_000;
/// What packing may take of the processors' time, in hundredths, where it is to begin to try harder: the rest is for reading and
/// hashing, for ssh, and for what was not foreseen.
const BUSY_THEN: u64 = 60;
/// The same where it tries so hard already.
const BUSY_STILL: u64 = 75;

/// One thing that was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Bytes of content.
    pub(crate) raw: u64,
    /// Bytes on the wire.
    pub(crate) wire: u64,
    /// Time spent packing; 0 when it was not tried.
    pub(crate) pack_ns: u64,
    /// Time spent waiting for the stream to have room.
    pub(crate) wait_ns: u64,
}

impl Sent {
    fn add(&mut self, more: &Sent) {
        self.raw += more.raw;
        self.wire += more.wire;
        self.pack_ns += more.pack_ns;
        self.wait_ns += more.wait_ns;
    }
}

/// What is known and decided so far.
#[derive(Debug)]
pub(crate) struct Pace {
    threads: u64,
    streams: u64,
    packing: bool,
    effort: Effort,
    window: Sent,
    began_ns: u64,
    /// Since it was last decided how hard to try: what was sent, and in how many nanoseconds.
    lately: (Sent, u64),
    /// Bytes on the wire per byte of content, while packing.
    ratio: f64,
    /// Bytes of content per nanosecond that one thread packs.
    speed: f64,
    /// Bytes per nanosecond that the link was seen to take; 0 while that is not known.
    link: f64,
    /// Bytes of content since it was last decided otherwise.
    same: u64,
    /// Bytes on the wire since nothing was known of the link.
    wire: u64,
}

impl Pace {
    /// Begins by packing. `threads` work at a time, no more than there are processors, for so many `streams`; `now_ns` is any
    /// clock's.
    pub(crate) fn new(threads: usize, streams: usize, now_ns: u64) -> Pace {
        Pace {
            threads: threads.max(1) as u64,
            streams: streams.max(1) as u64,
            packing: true,
            effort: Effort::Quick,
            window: Sent::default(),
            began_ns: now_ns,
            lately: Default::default(),
            ratio: 1.0,
            speed: 0.0,
            link: 0.0,
            same: 0,
            wire: 0,
        }
    }

    /// Whether to pack what comes next, and how hard to try.
    pub(crate) fn packs(&self) -> Option<Effort> {
        self.packing.then_some(self.effort)
    }

    /// Takes notice.
    pub(crate) fn sent(&mut self, sent: Sent, now_ns: u64) {
        // What was prepared before the last decision and is only sent now says nothing of this one.
        if sent.raw > 0 && (sent.pack_ns > 0) != self.packing {
            self.wire += sent.wire;
            (self.window, self.began_ns) = (Sent::default(), now_ns);
            return;
        }
        self.window.add(&sent);
        let time = now_ns.saturating_sub(self.began_ns);
        // Without packing, a slow link carries little in the same time.
        let bytes = if self.packing { WINDOW_BYTES } else { TRIED_BYTES };
        let enough = time >= WINDOW_NS_MIN
            && (self.window.raw >= bytes || (time >= WINDOW_NS && self.window.raw >= WINDOW_BYTES_MIN));
        let in_vain = self.packing
            && self.window.raw >= TRIED_BYTES
            && self.window.wire * 100 >= self.window.raw * SHRUNK_TO_MOST;
        if !(enough || in_vain) || time == 0 {
            return;
        }
        let window = std::mem::take(&mut self.window);
        self.began_ns = now_ns;
        self.decide(&window, time);
    }

    fn decide(&mut self, window: &Sent, time_ns: u64) {
        // Half a thread always waiting: the link is what everything waits for.
        let link_bound = window.wait_ns > time_ns / 2;
        // The same of packing. Else something holds it up that packing cannot change: the source, or a receiver that is behind.
        let codec_bound = window.pack_ns > time_ns / 2;
        let (raw, wire, time) = (window.raw as f64, window.wire as f64, time_ns as f64);
        self.same += window.raw;
        self.wire += window.wire;
        let before = self.packing;
        if self.packing {
            self.ratio = wire / raw;
            self.speed = raw / window.pack_ns.max(1) as f64;
            if link_bound {
                self.link = wire / time;
            } else if self.link > 0.0 && self.same >= LOOK_AGAIN {
                // What the link takes is old knowledge. It may be swallowing again after a pause, and says nothing until then.
                (self.link, self.wire, self.same) = (0.0, window.wire, 0);
            }
            // Worth it while more gets through than the bare link would take. Where the codec is what everything waits
            // for, that is known only from trying.
            let pays = self.link > 0.0 && raw / time > self.link * 1.1;
            let unknown = self.link == 0.0 && self.wire < SWALLOWED_BYTES * self.streams;
            // Where trying harder does not pay, not to try so hard may.
            let may_pay = self.effort > Effort::Quick;
            let worth = pays || unknown || may_pay || !codec_bound;
            self.packing = self.ratio * 100.0 < SHRUNK_TO_MOST as f64 && worth;
            if (pays || unknown) && self.packing {
                self.try_harder(window, time_ns);
            } else {
                (self.effort, self.lately) = (Effort::Quick, Default::default());
            }
        } else if link_bound {
            self.link = wire / time;
            let packed = (self.speed * self.threads as f64).min(self.link / self.ratio);
            self.packing = packed > self.link * 1.1 || self.same >= LOOK_AGAIN;
        } else {
            self.link = 0.0;
        }
        if self.packing != before {
            self.same = 0;
        }
    }

    /// How hard to try: as hard as still has everything wait for the link.
    fn try_harder(&mut self, window: &Sent, time_ns: u64) {
        self.lately.0.add(window);
        self.lately.1 += time_ns;
        if self.lately.1 < EFFORT_NS {
            return;
        }
        let (lately, lately_ns) = std::mem::take(&mut self.lately);
        if lately.wait_ns <= lately_ns / 2 {
            self.effort = Effort::Quick;
            return;
        }
        // Threads also wait for each other, so what they do not pack in they may pack in.
        let fits = |effort: &Effort| {
            let packing = lately.pack_ns / self.effort.cost() * effort.cost();
            let most = if *effort > self.effort { BUSY_THEN } else { BUSY_STILL };
            packing <= lately_ns * self.threads / 100 * most
        };
        self.effort = Effort::ALL.into_iter().rev().find(fits).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A world: how fast the link is and the codec per thread where it does not try hard (MB/s), and what packing comes to.
    struct World {
        link: f64,
        codec: f64,
        ratio: f64,
    }

    /// Runs `mib` MiB through and says how many of them went packed.
    fn run(pace: &mut Pace, now: &mut u64, world: &World, mib: u64) -> u64 {
        let threads = 2.0;
        let mut packed = 0;
        for _ in 0..mib {
            let raw = (1u64 << 20) as f64;
            let packs = pace.packs();
            packed += u64::from(packs.is_some());
            let wire = if packs.is_some() { raw * world.ratio } else { raw };
            let link_ns = wire / world.link * 1000.0;
            let pack_ns = packs.map_or(0.0, |effort| raw / world.codec * 1000.0 * effort.cost() as f64);
            // Reading and hashing, at 2 GB/s.
            let cpu_ns = raw / 2000.0 * 1000.0 + pack_ns;
            let time = link_ns.max(cpu_ns / threads);
            // What the threads do not work, they wait.
            let wait_ns = (threads * time - cpu_ns).max(0.0) * if link_ns >= time { 1.0 } else { 0.0 };
            *now += time as u64;
            let sent =
                Sent { raw: 1 << 20, wire: wire as u64, pack_ns: pack_ns as u64, wait_ns: wait_ns as u64 };
            pace.sent(sent, *now);
        }
        packed
    }

    #[test]
    fn packs_exactly_where_it_pays() {
        let table = [
            ("a slow link", World { link: 10.0, codec: 300.0, ratio: 0.4 }, true),
            ("a link as fast as the codec", World { link: 5000.0, codec: 300.0, ratio: 0.4 }, false),
            ("between", World { link: 200.0, codec: 300.0, ratio: 0.4 }, true),
            ("what does not shrink, slow link", World { link: 10.0, codec: 800.0, ratio: 1.0 }, false),
            ("a slow codec", World { link: 100.0, codec: 20.0, ratio: 0.4 }, false),
        ];
        for (what, world, pays) in table {
            let (mut pace, mut now) = (Pace::new(2, 1, 0), 0);
            run(&mut pace, &mut now, &world, 64);
            let packed = run(&mut pace, &mut now, &world, 256);
            // Looking again from time to time is part of it.
            assert!(if pays { packed > 220 } else { packed < 40 }, "{what}: {packed} of 256");
        }
    }

    #[test]
    fn changes_its_mind() {
        let (mut pace, mut now) = (Pace::new(2, 1, 0), 0);
        let noise = World { link: 10.0, codec: 800.0, ratio: 1.0 };
        let text = World { link: 10.0, codec: 300.0, ratio: 0.3 };
        let fast = World { link: 5000.0, codec: 300.0, ratio: 0.3 };
        assert!(run(&mut pace, &mut now, &noise, 300) < 60);
        run(&mut pace, &mut now, &text, 140);
        assert!(run(&mut pace, &mut now, &text, 100) > 90, "text after noise");
        run(&mut pace, &mut now, &fast, 160);
        assert_eq!(run(&mut pace, &mut now, &fast, 200), 0, "the link became fast");
        run(&mut pace, &mut now, &text, 20);
        assert!(run(&mut pace, &mut now, &text, 100) > 90, "and slow again");
    }

    #[test]
    fn tries_harder_while_nothing_else_is_to_be_done() {
        let run = |pace: &mut Pace, now: &mut u64, link: f64, codec: f64| {
            run(pace, now, &World { link, codec, ratio: 0.3 }, 160);
            pace.packs()
        };
        let (mut pace, mut now) = (Pace::new(2, 1, 0), 0);
        let table = [
            (10.0, 300.0, Effort::Deep, "packing is 100 times as fast"),
            (40.0, 300.0, Effort::Quick, "now it is the codec that counts"),
            (25.0, 300.0, Effort::Hard, "here some"),
            (10.0, 300.0, Effort::Deep, "again"),
            (10.0, 60.0, Effort::Quick, "a slow codec"),
        ];
        for (link, codec, effort, why) in table {
            assert_eq!(run(&mut pace, &mut now, link, codec), Some(effort), "{why}");
        }
    }

    #[test]
    fn a_link_that_takes_and_waits_by_turns_does_not_change_how_hard_it_tries() {
        let mut pace = Pace::new(2, 1, 0);
        let (mut now, mut efforts) = (0, Vec::new());
        for n in 0..64 {
            // Every third window goes into buffers, and the two behind it wait for them.
            let pack_ns = 20_000_000 * pace.packs().unwrap().cost();
            let (time, wait_ns) =
                if n % 3 == 0 { (pack_ns / 2, 0) } else { (150_000_000, 300_000_000 - pack_ns) };
            now += time;
            pace.sent(Sent { raw: 8 << 20, wire: 1 << 20, pack_ns, wait_ns }, now);
            efforts.push(pace.packs().unwrap());
        }
        efforts.dedup();
        assert_eq!(efforts, [Effort::Quick, Effort::Deep]);
    }

    #[test]
    fn what_is_swallowed_at_first_says_nothing_of_the_link() {
        let mut pace = Pace::new(2, 1, 0);
        // Two windows of text, gone at once: into buffers, as far as can be known.
        for n in 1..=2 {
            let sent = Sent { raw: 8 << 20, wire: 2 << 20, pack_ns: 25_000_000, wait_ns: 0 };
            pace.sent(sent, n * 25_000_000);
            assert!(pace.packs().is_some(), "window {n}");
        }
        // More than anything swallows: the link is fast.
        pace.sent(Sent { raw: 64 << 20, wire: 16 << 20, pack_ns: 100_000_000, wait_ns: 0 }, 150_000_000);
        assert!(pace.packs().is_none());
    }

    #[test]
    fn what_was_prepared_before_a_decision_says_nothing_of_it() {
        let (mut pace, mut now) = (Pace::new(2, 1, 0), 0);
        let noise = World { link: 10.0, codec: 800.0, ratio: 1.0 };
        run(&mut pace, &mut now, &noise, 64);
        // A slow link: it is tried again, and what was read before that comes first.
        let text = World { link: 10.0, codec: 300.0, ratio: 0.3 };
        while pace.packs().is_none() {
            run(&mut pace, &mut now, &text, 1);
        }
        for _ in 0..8 {
            now += 100_000_000;
            pace.sent(Sent { raw: 1 << 20, wire: 1 << 20, pack_ns: 0, wait_ns: 90_000_000 }, now);
            assert!(pace.packs().is_some());
        }
        assert!(run(&mut pace, &mut now, &text, 100) > 95);
    }

    #[test]
    fn a_slow_link_that_swallows_after_a_pause_is_still_slow() {
        let (mut pace, mut now) = (Pace::new(2, 1, 0), 0);
        run(&mut pace, &mut now, &World { link: 10.0, codec: 300.0, ratio: 0.15 }, 200);
        for _ in 0..8 {
            now += 25_000_000;
            pace.sent(Sent { raw: 8 << 20, wire: 5 << 18, pack_ns: 40_000_000, wait_ns: 0 }, now);
            assert!(pace.packs().is_some());
        }
    }

    #[test]
    fn a_receiver_that_is_behind_says_nothing_of_packing() {
        let (mut pace, mut now) = (Pace::new(2, 1, 0), 0);
        run(&mut pace, &mut now, &World { link: 10.0, codec: 300.0, ratio: 0.15 }, 100);
        for _ in 0..3 {
            now += 1_000_000_000;
            pace.sent(Sent { raw: 8 << 20, wire: 5 << 18, pack_ns: 60_000_000, wait_ns: 5_000_000 }, now);
            assert!(pace.packs().is_some());
        }
    }

    #[test]
    fn trying_harder_in_vain_does_not_end_packing() {
        let mut pace = Pace::new(2, 1, 0);
        // Buffers fill, so that the link seems to take 40 MB/s.
        for n in 1..=8 {
            assert_eq!(pace.packs(), Some(Effort::Quick));
            pace.sent(
                Sent { raw: 8 << 20, wire: 2 << 20, pack_ns: 2_000_000, wait_ns: 90_000_000 },
                n * 50_000_000,
            );
        }
        assert_eq!(pace.packs(), Some(Effort::Deep));
        // Harder is slower than that.
        pace.sent(Sent { raw: 8 << 20, wire: 2 << 20, pack_ns: 500_000_000, wait_ns: 0 }, 650_000_000);
        assert_eq!(pace.packs(), Some(Effort::Quick));
        // And so is the other way: then it is not worth it.
        pace.sent(Sent { raw: 8 << 20, wire: 2 << 20, pack_ns: 500_000_000, wait_ns: 0 }, 900_000_000);
        assert_eq!(pace.packs(), None);
    }

    #[test]
    fn what_does_not_shrink_is_known_soon() {
        for (wire, packs) in [(1 << 20, false), (990_000, true)] {
            let mut pace = Pace::new(2, 1, 0);
            for n in 1..=2 {
                pace.sent(Sent { raw: 1 << 20, wire, pack_ns: 2_500_000, wait_ns: 0 }, n * 1_000_000);
            }
            assert_eq!(pace.packs().is_some(), packs, "{wire}");
        }
    }

    #[test]
    fn a_slow_link_is_looked_at_in_time() {
        let mut pace = Pace::new(2, 1, 0);
        let second = 1_000_000_000;
        pace.sent(Sent { raw: 1 << 20, wire: 1 << 20, pack_ns: second / 500, wait_ns: second }, second);
        assert!(pace.packs().is_none(), "1 MiB a second of what does not shrink is enough to know");
    }
}
