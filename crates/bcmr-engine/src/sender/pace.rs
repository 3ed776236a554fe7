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
/// Bytes on the wire per nanosecond. A link that takes as many, and is seen to wait for packing, is tried without packing at once: if
/// it is no faster than this, trying costs less than a second.
const FAST: f64 = 0.02;

/// What landed is reckoned with after so long: less says little of the link.
const NEWS_NS_MIN: u64 = 50_000_000;
/// What was packed at an effort says what it takes from so many bytes of content on.
const SEEN_BYTES: u64 = 2 << 20;
/// So much on its way, in time that the other side takes for it, is what a link has before it that is slower than its sender.
const AHEAD_NS: u64 = 200_000_000;
/// With less on its way the link may soon wait for the sender.
const BEHIND_NS: u64 = 100_000_000;
/// What packing may take of the processors' time, in hundredths: the rest is for reading and hashing, for ssh, and for what was
/// not foreseen.
const BUSY_MOST: u64 = 65;

/// What packing took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PackTime {
    pub(crate) effort: Effort,
    /// Nanoseconds; 0 when it was not tried.
    pub(crate) ns: u64,
    /// Of these, with a processor.
    pub(crate) worked_ns: u64,
}

/// One thing that was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Bytes of content.
    pub(crate) raw: u64,
    /// Bytes on the wire.
    pub(crate) wire: u64,
    pub(crate) packed: PackTime,
    /// Time spent waiting for the stream to have room.
    pub(crate) wait_ns: u64,
}

impl Sent {
    fn add(&mut self, more: &Sent) {
        self.raw += more.raw;
        self.wire += more.wire;
        self.packed.ns += more.packed.ns;
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
    /// Packed lately at each effort, as they stand in [`Effort::ALL`]: bytes of content, and nanoseconds of processors.
    packed: [(u64, u64); 3],
    /// Bytes of content that were sent and have not landed, as far as the other side has told.
    on_way: u64,
    /// Bytes that landed since the last time it was reckoned, and when that was; nothing before the first content.
    news: Option<(u64, u64)>,
    /// What landed lately: bytes of content, in so many nanoseconds.
    lately: (u64, u64),
    /// Bytes that will be told as landed and were there before.
    there: u64,
    /// Bytes on the wire per byte of content, while packing.
    ratio: f64,
    /// Bytes of content per nanosecond that one thread packs.
    speed: f64,
    /// Bytes of content per nanosecond that got through while everything waited for packing. Where threads, or both ends, share
    /// processors, that is less than what one thread packs times the threads.
    through: f64,
    /// Bytes per nanosecond that the link was seen to take; 0 while that is not known.
    link: f64,
    /// It was known at some time.
    met: bool,
    /// Nanoseconds that the other side takes for what is on its way.
    left_ns: f64,
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
            packed: Default::default(),
            on_way: 0,
            news: None,
            lately: (0, 0),
            there: 0,
            ratio: 1.0,
            speed: 0.0,
            through: f64::INFINITY,
            link: 0.0,
            met: false,
            left_ns: f64::INFINITY,
            same: 0,
            wire: 0,
        }
    }

    /// Whether to pack what comes next, and how hard to try.
    pub(crate) fn packs(&self) -> Option<Effort> {
        self.packing.then_some(self.effort)
    }

    /// Takes notice of what was sent.
    pub(crate) fn sent(&mut self, sent: Sent, now_ns: u64) {
        let before = now_ns.saturating_sub(sent.wait_ns.saturating_add(sent.packed.ns));
        self.news.get_or_insert((0, before));
        self.on_way = self.on_way.saturating_add(sent.raw);
        // What was prepared before the last decision and is only sent now says nothing of this one.
        if sent.raw > 0 && (sent.packed.ns > 0) != self.packing {
            self.wire += sent.wire;
            (self.window, self.began_ns) = (Sent::default(), now_ns);
            return;
        }
        self.seen(&sent);
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

    /// Remembers what packing took, and by and by forgets what it took before.
    fn seen(&mut self, sent: &Sent) {
        let at = sent.packed.effort as usize;
        let Some((raw, ns)) = self.packed.get_mut(at).filter(|_| sent.packed.ns > 0) else { return };
        (*raw, *ns) = (raw.saturating_add(sent.raw), ns.saturating_add(sent.packed.worked_ns));
        if *raw >= WINDOW_BYTES {
            self.packed = self.packed.map(|(raw, ns)| (raw / 2, ns / 2));
        }
    }

    fn decide(&mut self, window: &Sent, time_ns: u64) {
        // Half a thread always waiting: the link is what everything waits for.
        let link_bound = window.wait_ns > time_ns / 2;
        // The same of packing. Else something holds it up that packing cannot change: the source, or a receiver that is behind.
        let codec_bound = window.packed.ns > time_ns / 2;
        let (raw, wire, time) = (window.raw as f64, window.wire as f64, time_ns as f64);
        self.same += window.raw;
        self.wire += window.wire;
        let before = self.packing;
        self.met |= link_bound;
        if self.packing {
            self.ratio = wire / raw;
            self.speed = raw / window.packed.ns.max(1) as f64;
            self.through = if codec_bound && !link_bound { raw / time } else { f64::INFINITY };
            if link_bound {
                self.link = wire / time;
            } else if self.link > 0.0 && self.same >= LOOK_AGAIN {
                // What the link takes is old knowledge. It may be swallowing again after a pause, and says nothing until then.
                (self.link, self.wire, self.same) = (0.0, window.wire, 0);
            }
            // Worth it while more gets through than the bare link would take. Where the codec is what everything waits
            // for, that is known only from trying.
            let pays = self.link > 0.0 && raw / time > self.link * 1.1;
            let waits = codec_bound && self.left_ns < BEHIND_NS as f64 && wire / time >= FAST;
            let unknown =
                self.link == 0.0 && self.wire < SWALLOWED_BYTES * self.streams && (self.met || !waits);
            // Where trying harder does not pay, not to try so hard may.
            let may_pay = self.effort > Effort::Quick;
            let worth = pays || unknown || may_pay || !codec_bound;
            self.packing = self.ratio * 100.0 < SHRUNK_TO_MOST as f64 && worth;
            if !((pays || unknown) && self.packing) {
                self.effort = Effort::Quick;
            }
        } else if link_bound {
            self.link = wire / time;
            let packed = (self.speed * self.threads as f64).min(self.link / self.ratio).min(self.through);
            self.packing = packed > self.link * 1.1 || self.same >= LOOK_AGAIN;
        } else {
            self.link = 0.0;
        }
        if self.packing != before {
            self.same = 0;
        }
    }

    /// So many bytes, which are about to be told as landed, will not be sent.
    pub(crate) fn there(&mut self, bytes: u64) {
        self.there = self.there.saturating_add(bytes);
    }

    /// Takes notice that so many bytes more have landed, and tries harder or less hard. Buffers swallow what the link does not
    /// take: what has left this side says nothing of it for long, but what has come to the other does.
    pub(crate) fn landed(&mut self, bytes: u64, now_ns: u64) {
        let were_there = bytes.min(self.there);
        self.there -= were_there;
        let Some((before, since)) = self.news else { return };
        let bytes = bytes - were_there;
        self.on_way = self.on_way.saturating_sub(bytes);
        let (came, time) = (before.saturating_add(bytes), now_ns.saturating_sub(since));
        if came == 0 || time < NEWS_NS_MIN {
            self.news = Some((came, since));
            return;
        }
        self.news = Some((0, now_ns));
        // Each time half of what was known is forgotten: what lands comes by blocks.
        self.lately = (came.saturating_add(self.lately.0 / 2), time.saturating_add(self.lately.1 / 2));
        if !self.packing {
            return;
        }
        let speed = self.lately.0 as f64 / self.lately.1 as f64;
        let left_ns = self.on_way as f64 / speed;
        self.left_ns = left_ns;
        if left_ns >= AHEAD_NS as f64 {
            // One step at a time: what the next one takes is known best from this one.
            self.effort = self.hardest(speed).min(self.effort.more());
        } else if left_ns < BEHIND_NS as f64 {
            self.effort = self.effort.less();
        }
    }

    /// As hard as packs so many bytes of content per nanosecond still.
    fn hardest(&self, speed: f64) -> Effort {
        let most = (self.threads * BUSY_MOST) as f64 / 100.0;
        let fits = |effort: &Effort| self.costs(*effort).is_some_and(|ns| speed * ns <= most);
        Effort::ALL.into_iter().rev().find(fits).unwrap_or_default()
    }

    /// Nanoseconds of a processor for a byte of content: as seen lately, or as follows from what was seen of the nearest that
    /// takes less, else more.
    fn costs(&self, effort: Effort) -> Option<f64> {
        let seen = |of: &Effort| {
            let (raw, ns) = self.packed.get(*of as usize).copied().unwrap_or_default();
            let cost = effort.cost() as f64 / of.cost() as f64;
            (raw >= SEEN_BYTES).then(|| ns as f64 / raw as f64 * cost)
        };
        let less = Effort::ALL.iter().rev().filter(|of| **of <= effort);
        let more = Effort::ALL.iter().filter(|of| **of > effort);
        less.chain(more).find_map(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick(ns: u64) -> PackTime {
        PackTime { effort: Effort::Quick, ns, worked_ns: ns }
    }

    /// A world: how fast the link is and the codec per thread where it does not try hard (MB/s), what packing comes to, and how
    /// many MB buffers hold.
    struct World {
        link: f64,
        codec: f64,
        ratio: f64,
        buffers: f64,
    }

    /// What is on its way: bytes of content and bytes on the wire, of each piece.
    #[derive(Default)]
    struct Way {
        now: u64,
        pieces: std::collections::VecDeque<(u64, f64)>,
        /// Of the first of them, what has come already.
        came: f64,
        landed: u64,
        told: u64,
    }

    impl Way {
        fn wire(&self) -> f64 {
            self.pieces.iter().map(|(_, wire)| wire).sum::<f64>() - self.came
        }

        /// Time passes, in nanoseconds; what has landed is told every tenth of a second.
        fn pass(&mut self, pace: &mut Pace, world: &World, time: f64) {
            let mut left = time;
            while left > 0.0 {
                let step = left.min(10_000_000.0);
                left -= step;
                self.now += step as u64;
                self.came += step * world.link / 1000.0;
                while let Some((raw, _)) = self.pieces.front().filter(|(_, wire)| *wire <= self.came).copied()
                {
                    let (_, wire) = self.pieces.pop_front().unwrap();
                    self.came -= wire;
                    self.landed += raw;
                }
                if self.pieces.is_empty() {
                    self.came = 0.0;
                }
                if self.now >= self.told + 100_000_000 {
                    self.told = self.now;
                    pace.landed(std::mem::take(&mut self.landed), self.now);
                }
            }
        }
    }

    /// Runs `mib` MiB through and says how many of them went packed.
    fn run(pace: &mut Pace, way: &mut Way, world: &World, mib: u64) -> u64 {
        let threads = 2.0;
        let mut packed = 0;
        for _ in 0..mib {
            let raw = (1u64 << 20) as f64;
            let packs = pace.packs();
            packed += u64::from(packs.is_some());
            let wire = if packs.is_some() { raw * world.ratio } else { raw };
            let pack_ns = packs.map_or(0.0, |effort| raw / world.codec * 1000.0 * effort.cost() as f64);
            // Reading and hashing, at 2 GB/s.
            way.pass(pace, world, (raw / 2000.0 * 1000.0 + pack_ns) / threads);
            // All threads wait where the buffers are full.
            let over = (way.wire() + wire - world.buffers * 1e6).max(0.0);
            let wait = over.min(way.wire()) / world.link * 1000.0;
            way.pass(pace, world, wait);
            way.pieces.push_back((raw as u64, wire));
            let wait_ns = (wait * threads) as u64;
            pace.sent(
                Sent {
                    raw: raw as u64,
                    wire: wire as u64,
                    packed: PackTime { effort: packs.unwrap_or_default(), ..quick(pack_ns as u64) },
                    wait_ns,
                },
                way.now,
            );
        }
        packed
    }

    #[test]
    fn packs_exactly_where_it_pays() {
        let table = [
            ("a slow link", World { link: 10.0, codec: 300.0, ratio: 0.4, buffers: 2.0 }, true),
            (
                "a link as fast as the codec",
                World { link: 5000.0, codec: 300.0, ratio: 0.4, buffers: 2.0 },
                false,
            ),
            ("between", World { link: 200.0, codec: 300.0, ratio: 0.4, buffers: 2.0 }, true),
            (
                "what does not shrink, slow link",
                World { link: 10.0, codec: 800.0, ratio: 1.0, buffers: 2.0 },
                false,
            ),
            ("a slow codec", World { link: 100.0, codec: 20.0, ratio: 0.4, buffers: 2.0 }, false),
        ];
        for (what, world, pays) in table {
            let (mut pace, mut way) = (Pace::new(2, 1, 0), Way::default());
            run(&mut pace, &mut way, &world, 64);
            let packed = run(&mut pace, &mut way, &world, 256);
            // Looking again from time to time is part of it.
            assert!(if pays { packed > 220 } else { packed < 40 }, "{what}: {packed} of 256");
        }
    }

    #[test]
    fn changes_its_mind() {
        let (mut pace, mut way) = (Pace::new(2, 1, 0), Way::default());
        let noise = World { link: 10.0, codec: 800.0, ratio: 1.0, buffers: 2.0 };
        let text = World { link: 10.0, codec: 300.0, ratio: 0.3, buffers: 2.0 };
        let fast = World { link: 5000.0, codec: 300.0, ratio: 0.3, buffers: 2.0 };
        assert!(run(&mut pace, &mut way, &noise, 300) < 60);
        run(&mut pace, &mut way, &text, 140);
        assert!(run(&mut pace, &mut way, &text, 100) > 90, "text after noise");
        run(&mut pace, &mut way, &fast, 160);
        assert_eq!(run(&mut pace, &mut way, &fast, 200), 0, "the link became fast");
        run(&mut pace, &mut way, &text, 20);
        assert!(run(&mut pace, &mut way, &text, 100) > 90, "and slow again");
    }

    #[test]
    fn tries_as_hard_as_the_link_leaves_time_for() {
        let run = |pace: &mut Pace, way: &mut Way, link: f64, codec: f64| {
            run(pace, way, &World { link, codec, ratio: 0.3, buffers: 8.0 }, 400);
            pace.packs()
        };
        let (mut pace, mut way) = (Pace::new(2, 1, 0), Way::default());
        let table = [
            (10.0, 300.0, Effort::Deep, "packing is 100 times as fast"),
            (90.0, 300.0, Effort::Quick, "now it is the codec that counts"),
            (30.0, 300.0, Effort::Hard, "here some"),
            (10.0, 300.0, Effort::Deep, "again"),
            (10.0, 40.0, Effort::Quick, "a slow codec"),
        ];
        for (link, codec, effort, why) in table {
            assert_eq!(run(&mut pace, &mut way, link, codec), Some(effort), "{why}");
        }
    }

    #[test]
    fn what_lands_is_known_before_buffers_are_full() {
        let (mut pace, mut way) = (Pace::new(2, 1, 0), Way::default());
        // A link of 80 Mbit/s, with 0.8 s of it before a writer waits.
        let text = World { link: 10.0, codec: 250.0, ratio: 0.14, buffers: 8.3 };
        let mut quick = 0;
        while pace.packs() == Some(Effort::Quick) && quick < 64 {
            run(&mut pace, &mut way, &text, 1);
            quick += 1;
        }
        assert!(way.wire() < 8e6 && quick < 64, "{quick} MiB, {} bytes on their way", way.wire());
        // Nor does it go back and forth.
        for _ in 0..200 {
            run(&mut pace, &mut way, &text, 1);
            assert!(pace.packs() > Some(Effort::Quick));
        }
    }

    #[test]
    fn what_was_there_before_says_nothing_of_the_link() {
        let mut pace = Pace::new(2, 1, 0);
        pace.there(1 << 30);
        let sent = Sent { raw: 64 << 20, wire: 16 << 20, packed: quick(50_000_000), wait_ns: 150_000_000 };
        pace.sent(sent, 200_000_000);
        pace.landed((1 << 30) + (1 << 20), 200_000_000);
        assert_eq!(pace.packs(), Some(Effort::Hard), "63 MiB on their way, and 1 came in 0.2 s");
    }

    #[test]
    fn waiting_for_a_processor_is_not_packing() {
        for (worked_ns, effort) in [(200_000_000, Effort::Hard), (1_200_000_000, Effort::Quick)] {
            let mut pace = Pace::new(2, 1, 0);
            // Six threads, which had two processors.
            let packed = PackTime { worked_ns, ..quick(1_200_000_000) };
            pace.sent(Sent { raw: 64 << 20, wire: 8 << 20, packed, wait_ns: 0 }, 200_000_000);
            pace.landed(20 << 20, 200_000_000);
            assert_eq!(pace.packs(), Some(effort));
        }
    }

    #[test]
    fn a_receiver_that_tells_nothing_is_sent_nothing_packed_hard() {
        let mut pace = Pace::new(2, 1, 0);
        for n in 1..100 {
            pace.sent(
                Sent { raw: 1 << 20, wire: 1 << 18, packed: quick(1_000_000), wait_ns: 90_000_000 },
                n * 50_000_000,
            );
            assert_eq!(pace.packs(), Some(Effort::Quick));
        }
        // Nor is any word of the other side too much.
        pace.landed(u64::MAX, u64::MAX);
        pace.landed(u64::MAX, 0);
    }

    #[test]
    fn what_is_swallowed_at_first_says_nothing_of_the_link() {
        let mut pace = Pace::new(2, 1, 0);
        // Two windows of text, gone at once: into buffers, as far as can be known.
        for n in 1..=2 {
            let sent = Sent { raw: 8 << 20, wire: 2 << 20, packed: quick(25_000_000), wait_ns: 0 };
            pace.sent(sent, n * 25_000_000);
            assert!(pace.packs().is_some(), "window {n}");
        }
        // More than anything swallows: the link is fast.
        pace.sent(
            Sent { raw: 64 << 20, wire: 16 << 20, packed: quick(100_000_000), wait_ns: 0 },
            150_000_000,
        );
        assert!(pace.packs().is_none());
    }

    #[test]
    fn a_link_that_waits_for_packing_is_tried_without_it_soon() {
        let (mut pace, mut way) = (Pace::new(2, 1, 0), Way::default());
        let fast = World { link: 1000.0, codec: 100.0, ratio: 0.3, buffers: 2.0 };
        let packed = run(&mut pace, &mut way, &fast, 256);
        assert!(packed < 40, "{packed} of 256");
        // A link that is hardly faster is tried without packing once, and then packed for again.
        let (mut pace, mut way) = (Pace::new(2, 1, 0), Way::default());
        let medium = World { link: 40.0, codec: 50.0, ratio: 0.3, buffers: 2.0 };
        let packed = run(&mut pace, &mut way, &medium, 256);
        assert!(packed > 220, "{packed} of 256");
    }

    /// Two threads on processors that the other end shares pack less than twice what one does.
    #[test]
    fn what_got_through_counts_more_than_what_each_thread_packs() {
        for (raw, packs) in [(17 << 20, false), (34 << 20, true)] {
            let mut pace = Pace::new(2, 1, 0);
            let packed = PackTime { effort: Effort::Quick, ns: 104_000_000, worked_ns: 70_000_000 };
            pace.sent(Sent { raw: 1 << 20, wire: 1 << 18, packed: quick(1_000_000), wait_ns: 0 }, 10_000_000);
            pace.landed(1 << 20, 70_000_000);
            pace.sent(Sent { raw, wire: raw / 4, packed, wait_ns: 0 }, 100_000_000);
            assert_eq!(pace.packs(), None);
            let sent =
                Sent { raw: 20 << 20, wire: 20 << 20, packed: PackTime::default(), wait_ns: 65_000_000 };
            pace.sent(sent, 209_000_000);
            assert_eq!(pace.packs().is_some(), packs, "{raw}");
        }
    }

    #[test]
    fn what_was_prepared_before_a_decision_says_nothing_of_it() {
        let (mut pace, mut way) = (Pace::new(2, 1, 0), Way::default());
        let noise = World { link: 10.0, codec: 800.0, ratio: 1.0, buffers: 2.0 };
        run(&mut pace, &mut way, &noise, 64);
        // A slow link: it is tried again, and what was read before that comes first.
        let text = World { link: 10.0, codec: 300.0, ratio: 0.3, buffers: 2.0 };
        while pace.packs().is_none() {
            run(&mut pace, &mut way, &text, 1);
        }
        for _ in 0..8 {
            way.now += 100_000_000;
            pace.sent(Sent { raw: 1 << 20, wire: 1 << 20, packed: quick(0), wait_ns: 90_000_000 }, way.now);
            assert!(pace.packs().is_some());
        }
        assert!(run(&mut pace, &mut way, &text, 100) > 95);
    }

    #[test]
    fn a_slow_link_that_swallows_after_a_pause_is_still_slow() {
        let (mut pace, mut way) = (Pace::new(2, 1, 0), Way::default());
        run(&mut pace, &mut way, &World { link: 10.0, codec: 300.0, ratio: 0.15, buffers: 2.0 }, 200);
        for _ in 0..8 {
            way.now += 25_000_000;
            pace.sent(Sent { raw: 8 << 20, wire: 5 << 18, packed: quick(40_000_000), wait_ns: 0 }, way.now);
            assert!(pace.packs().is_some());
        }
    }

    #[test]
    fn a_receiver_that_is_behind_says_nothing_of_packing() {
        let (mut pace, mut way) = (Pace::new(2, 1, 0), Way::default());
        run(&mut pace, &mut way, &World { link: 10.0, codec: 300.0, ratio: 0.15, buffers: 2.0 }, 100);
        for _ in 0..3 {
            way.now += 1_000_000_000;
            pace.sent(
                Sent { raw: 8 << 20, wire: 5 << 18, packed: quick(60_000_000), wait_ns: 5_000_000 },
                way.now,
            );
            assert!(pace.packs().is_some());
        }
    }

    #[test]
    fn trying_harder_in_vain_does_not_end_packing() {
        let mut pace = Pace::new(2, 1, 0);
        // Buffers fill, so that the link seems to take 40 MB/s.
        for n in 1..=8 {
            assert_eq!(pace.packs(), Some(Effort::Quick));
            let sent = Sent { raw: 8 << 20, wire: 2 << 20, packed: quick(2_000_000), wait_ns: 48_000_000 };
            pace.sent(sent, n * 50_000_000);
        }
        pace.landed(32 << 20, 400_000_000);
        assert_eq!(pace.packs(), Some(Effort::Hard));
        // Harder is slower than that.
        pace.sent(Sent { raw: 8 << 20, wire: 2 << 20, packed: quick(500_000_000), wait_ns: 0 }, 800_000_000);
        assert_eq!(pace.packs(), Some(Effort::Quick));
        // And so is the other way: then it is not worth it.
        pace.sent(
            Sent { raw: 8 << 20, wire: 2 << 20, packed: quick(500_000_000), wait_ns: 0 },
            1_200_000_000,
        );
        assert_eq!(pace.packs(), None);
    }

    #[test]
    fn what_does_not_shrink_is_known_soon() {
        for (wire, packs) in [(1 << 20, false), (990_000, true)] {
            let mut pace = Pace::new(2, 1, 0);
            for n in 1..=2 {
                pace.sent(Sent { raw: 1 << 20, wire, packed: quick(2_500_000), wait_ns: 0 }, n * 1_000_000);
            }
            assert_eq!(pace.packs().is_some(), packs, "{wire}");
        }
    }

    #[test]
    fn a_slow_link_is_looked_at_in_time() {
        let mut pace = Pace::new(2, 1, 0);
        let second = 1_000_000_000;
        pace.sent(Sent { raw: 1 << 20, wire: 1 << 20, packed: quick(second / 500), wait_ns: second }, second);
        assert!(pace.packs().is_none(), "1 MiB a second of what does not shrink is enough to know");
    }
}
