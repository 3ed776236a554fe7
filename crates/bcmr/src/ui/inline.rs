//! The progress line: what it says, and when it may say it.
//!
//! Pure: counters and times in, text out. Must not know the terminal. Drawn by ourselves and not by a progress-bar
//! crate because the counters belong to the engine, totals grow while they are shown, and neither bytes nor percent
//! may ever step back; what would be left for a crate is one carriage return.

use crate::say;
use crate::show::Verb;
use bcmr_engine::event::Progress;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Nothing is shown of a run shorter than this.
pub const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// How often the line is drawn anew.
pub const DRAWN_EVERY: Duration = Duration::from_millis(100);
/// How often a new line or event is written where nothing can be drawn over.
pub const LINES_EVERY: Duration = Duration::from_secs(5);
/// How often a `progress` event is written.
pub const EVENTS_EVERY: Duration = Duration::from_secs(1);

/// The rate is the mean over this long: short enough to follow a slow disk, long enough to stand still.
const RATE_OVER: Duration = Duration::from_secs(8);
const SAMPLES_MAX: usize = 128;
const BAR_CELLS: usize = 20;

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub items_done: u64,
    pub bytes_done: u64,
    /// Of those, the ones that were there already.
    pub bytes_there: u64,
    pub items_found: u64,
    pub bytes_found: u64,
    pub scanned: bool,
}

impl Sample {
    /// Reads the counters. Done is read before found, so that done is not ahead of found by more than is true.
    pub fn of(p: &Progress) -> Sample {
        let scanned = p.scanned.load(Ordering::Acquire);
        // What was there is read first: it was counted as done at the same time.
        let bytes_there = p.bytes_there.load(Ordering::Relaxed);
        let (items_done, bytes_done) =
            (p.items_done.load(Ordering::Relaxed), p.bytes_done.load(Ordering::Relaxed));
        Sample {
            items_done,
            bytes_done,
            bytes_there,
            items_found: p.items_found.load(Ordering::Relaxed),
            bytes_found: p.bytes_found.load(Ordering::Relaxed),
            scanned,
        }
    }
}

/// Turns samples into lines that never step back.
pub struct ProgressLine {
    verb: Verb,
    high: Sample,
    /// A thread counts what there is to do.
    counting: bool,
    percent: u64,
    /// Units done at each time, oldest first.
    past: VecDeque<(Duration, u64)>,
}

impl ProgressLine {
    pub fn new(verb: Verb) -> ProgressLine {
        ProgressLine { verb, high: Sample::default(), counting: false, percent: 0, past: VecDeque::new() }
    }

    /// The line at `at` after the start, at most `width` columns wide, with a bar where there is room; ASCII.
    pub fn at(&mut self, now: Sample, at: Duration, width: usize) -> String {
        let mut line = self.text(now, at);
        let end = line.find('%').map(|percent| percent + 1);
        if let Some(end) = end.filter(|_| line.len() + BAR_CELLS + 3 <= width) {
            line.insert_str(end, &format!(" [{}]", bar(self.percent)));
        }
        line.truncate(width);
        line
    }

    /// The same as plain text.
    pub fn text(&mut self, now: Sample, at: Duration) -> String {
        self.take(now, at);
        let s = self.high;
        let rate = self.rate();
        let head = format!("{}  ", self.verb.doing());
        let bytes = self.by_bytes();
        let mut parts = Vec::new();
        if s.scanned {
            let left = self.total().saturating_sub(self.done());
            parts.push(format!("{:>3}%", self.percent));
            if bytes {
                parts.push(format!("{} of {}", say::size(s.bytes_done), say::size(s.bytes_found)));
            }
            parts.extend(self.rate_text(rate));
            if let Some(rate) = rate.filter(|r| *r >= 1.0)
                && left > 0
            {
                parts.push(format!("{} left", say::clock(Duration::from_secs_f64(left as f64 / rate))));
            }
            parts.push(format!("{} of {} items", s.items_done, s.items_found));
        } else {
            if bytes {
                parts.push(say::size(s.bytes_done));
            }
            parts.extend(self.rate_text(rate));
            parts.push(format!("{} items", s.items_done));
            if self.counting {
                let found = if bytes { format!(", {}", say::size(s.bytes_found)) } else { String::new() };
                parts.push(format!("scanning: {} items{found} so far", s.items_found));
            }
        }
        head + &parts.join(", ")
    }

    /// The counters as shown, which never step back.
    pub fn shown(&mut self, now: Sample, at: Duration) -> Sample {
        self.take(now, at);
        self.high
    }

    fn take(&mut self, now: Sample, at: Duration) {
        let high = &mut self.high;
        self.counting |= now.items_found > 0;
        high.items_done = high.items_done.max(now.items_done);
        high.bytes_done = high.bytes_done.max(now.bytes_done);
        high.bytes_there = high.bytes_there.max(now.bytes_there);
        // A file may have grown since it was counted: what is done was there to be found.
        high.items_found = high.items_found.max(now.items_found).max(high.items_done);
        high.bytes_found = high.bytes_found.max(now.bytes_found).max(high.bytes_done);
        high.scanned |= now.scanned;
        if high.scanned {
            let percent = u128::from(self.done()) * 100 / u128::from(self.total().max(1));
            // With all bytes there a file may still have to be proved, synced and named.
            let most = if self.high.items_done < self.high.items_found { 99 } else { 100 };
            self.percent = self.percent.max(u64::try_from(percent).unwrap_or(100).min(most));
        }
        self.past.push_back((at, self.worked()));
        while self.past.len() > 2
            && (self.past.len() > SAMPLES_MAX || self.past.get(1).is_some_and(|p| at - p.0 >= RATE_OVER))
        {
            self.past.pop_front();
        }
    }

    /// Whether bytes say how far it is; else items do. A copy moves bytes if there are any; the other verbs may have
    /// found some and yet rename, remove or compare without touching one.
    fn by_bytes(&self) -> bool {
        self.high.bytes_found > 0 && (self.verb == Verb::Copy || self.high.bytes_done > 0)
    }

    fn done(&self) -> u64 {
        if self.by_bytes() { self.high.bytes_done } else { self.high.items_done }
    }

    /// What has taken time: the rate is of this.
    fn worked(&self) -> u64 {
        if self.by_bytes() {
            self.high.bytes_done.saturating_sub(self.high.bytes_there)
        } else {
            self.high.items_done
        }
    }

    fn total(&self) -> u64 {
        if self.by_bytes() { self.high.bytes_found } else { self.high.items_found }
    }

    /// Units a second.
    fn rate(&self) -> Option<f64> {
        let (first, last) = (self.past.front()?, self.past.back()?);
        let took = last.0.saturating_sub(first.0).as_secs_f64();
        if took > 0.0 {
            return Some(last.1.saturating_sub(first.1) as f64 / took);
        }
        // The first line of all: everything so far over the time so far.
        (last.0 > Duration::ZERO).then(|| last.1 as f64 / last.0.as_secs_f64())
    }

    fn rate_text(&self, rate: Option<f64>) -> Option<String> {
        let rate = rate? as u64;
        Some(if self.by_bytes() { format!("{}/s", say::size(rate)) } else { format!("{rate} items/s") })
    }
}

fn bar(percent: u64) -> String {
    let full = usize::try_from(percent).unwrap_or(100).min(100) * BAR_CELLS / 100;
    let head = usize::from(full < BAR_CELLS);
    format!("{}{}{}", "=".repeat(full), ">".repeat(head), " ".repeat(BAR_CELLS - full - head))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn sample(items_done: u64, bytes_done: u64, items_found: u64, bytes_found: u64, scanned: bool) -> Sample {
        Sample { items_done, bytes_done, bytes_there: 0, items_found, bytes_found, scanned }
    }

    fn secs(s: f64) -> Duration {
        Duration::from_secs_f64(s)
    }

    #[test]
    fn says_scanning_while_totals_grow() {
        let mut line = ProgressLine::new(Verb::Copy);
        assert_eq!(
            line.at(sample(3, 20 * MIB, 10, 100 * MIB, false), secs(2.0), 200),
            "copying  20.0 MiB, 10.0 MiB/s, 3 items, scanning: 10 items, 100.0 MiB so far"
        );
        assert_eq!(
            line.at(sample(4, 40 * MIB, 20, 200 * MIB, true), secs(3.0), 200),
            "copying   20% [====>               ], 40.0 MiB of 200.0 MiB, 20.0 MiB/s, 0:08 left, 4 of 20 items"
        );
    }

    #[test]
    fn says_nothing_of_scanning_where_nobody_scans() {
        let mut line = ProgressLine::new(Verb::Copy);
        assert_eq!(
            line.text(sample(3, 2 * MIB, 0, 0, false), secs(2.0)),
            "copying  2.0 MiB, 1.0 MiB/s, 3 items"
        );
    }

    #[test]
    fn moves_inside_one_large_file() {
        let mut line = ProgressLine::new(Verb::Copy);
        line.at(sample(0, 100, 1, 1000, true), secs(1.0), 80);
        assert!(line.at(sample(0, 500, 1, 1000, true), secs(1.1), 80).contains(" 50%"));
    }

    #[test]
    fn bytes_that_nobody_touches_do_not_count() {
        let mut line = ProgressLine::new(Verb::Check);
        assert_eq!(
            line.text(sample(10, 0, 40, 9 * MIB, true), secs(1.0)),
            "checking   25%, 10 items/s, 0:03 left, 10 of 40 items"
        );
    }

    /// 90 of 100 MiB were there when it went on; 2 MiB a second are copied.
    #[test]
    fn the_rate_is_of_what_was_copied() {
        let mut line = ProgressLine::new(Verb::Copy);
        let at = |mib| Sample { bytes_there: 90 * MIB, ..sample(0, mib * MIB, 1, 100 * MIB, true) };
        line.text(at(90), secs(0.0));
        assert_eq!(
            line.text(at(94), secs(2.0)),
            "copying   94%, 94.0 MiB of 100.0 MiB, 2.0 MiB/s, 0:03 left, 0 of 1 items"
        );
        let mut first = ProgressLine::new(Verb::Copy);
        assert!(first.text(at(92), secs(1.0)).contains(", 2.0 MiB/s, "), "also in the first line of all");
    }

    #[test]
    fn without_bytes_items_count() {
        let mut line = ProgressLine::new(Verb::Remove);
        assert_eq!(
            line.at(sample(10, 0, 40, 0, true), secs(1.0), 60),
            "removing   25%, 10 items/s, 0:03 left, 10 of 40 items"
        );
    }

    proptest! {
        #[test]
        fn never_steps_back_and_never_overflows(
            samples in proptest::collection::vec(
                (0..2000_u64, 0..u64::MAX, 0..2000_u64, 0..u64::MAX, any::<bool>()), 1..40),
            width in 10..200_usize,
        ) {
            let mut line = ProgressLine::new(Verb::Copy);
            let (mut percent, mut shown) = (0, Sample::default());
            for (i, (a, b, c, d, e)) in samples.into_iter().enumerate() {
                let at = Duration::from_millis(100 * i as u64);
                let text = line.at(sample(a, b, c, d, e), at, width);
                prop_assert!(text.len() <= width && text.is_ascii());
                let now = line.shown(Sample::default(), at);
                prop_assert!(line.percent >= percent && line.percent <= 100);
                prop_assert!(now.bytes_done >= shown.bytes_done && now.items_done >= shown.items_done);
                prop_assert!(now.bytes_done <= now.bytes_found && now.items_done <= now.items_found);
                (percent, shown) = (line.percent, now);
            }
        }
    }
}
