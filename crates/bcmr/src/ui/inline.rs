//! The progress line: what it says, and when it may say it.
//!
//! Pure: counters, times and a width in, text out. Must not know the terminal, nor how a line gets there (`bar` draws it).
//! Neither bytes nor percent may ever step back, and a time left is told only while it means something.

use crate::say;
use crate::show::{Phase, Verb};
use bcmr_engine::event::Progress;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

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
pub const BAR_CELLS: usize = 20;
/// A name is shown in no less than this.
const NAME_COLUMNS_MIN: usize = 16;
/// Where one half of what the rate is of went so many times as fast as the other, no time left is told.
const UNSTEADY: f64 = 4.0;

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
    /// Workers that read back what landed, and what they have read.
    pub verifying: u64,
    pub bytes_verified: u64,
    /// Workers that bring files onto stable storage, and how many are there.
    pub syncing: u64,
    pub files_synced: u64,
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
            verifying: p.work.verifying.workers(),
            bytes_verified: p.work.verifying.bytes(),
            syncing: p.work.syncing.workers(),
            files_synced: p.work.syncing.files(),
        }
    }
}

/// One line, around its bar.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub before: String,
    /// Columns of the bar; 0 where there is no room for one.
    pub cells: usize,
    pub after: String,
    /// How much of the bar is full, once that is known.
    pub percent: Option<u64>,
}

impl Layout {
    pub fn columns(&self) -> usize {
        self.before.width() + self.cells + self.after.width()
    }
}

/// A part of a line, and how soon it is left out where room is short: the highest goes first.
struct Part {
    text: String,
    rank: u8,
}

fn part(rank: u8, text: String) -> Part {
    Part { text, rank }
}

/// Turns samples into lines that never step back.
pub struct ProgressLine {
    verb: Verb,
    high: Sample,
    phase: Phase,
    /// A thread counts what there is to do.
    counting: bool,
    percent: u64,
    /// Units done at each time, oldest first.
    past: VecDeque<(Duration, u64)>,
}

impl ProgressLine {
    pub fn new(verb: Verb) -> ProgressLine {
        let (high, phase) = (Sample::default(), Phase::default());
        ProgressLine { verb, high, phase, counting: false, percent: 0, past: VecDeque::new() }
    }

    /// The line at `at` after the start, at most `width` columns wide, with a bar and the end of `name`, escaped by the
    /// caller, where there is room. Without a name it is ASCII.
    pub fn at(&mut self, now: Sample, at: Duration, name: &str, width: usize) -> Layout {
        self.take(now, at);
        let (head, mut parts) = self.parts();
        let text = |parts: &[Part]| {
            let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
            format!("{head}{}", texts.join(", "))
        };
        while text(&parts).len() > width && parts.len() > 1 {
            let last = parts.iter().map(|part| part.rank).max();
            let Some(index) = parts.iter().rposition(|part| Some(part.rank) == last) else { break };
            parts.remove(index);
        }
        let mut line = text(&parts);
        line.truncate(width);
        let percent = self.high.scanned.then_some(self.percent);
        let end = line.find('%').map(|percent| percent + 1);
        let mut layout = match end.filter(|_| line.len() + BAR_CELLS + 3 <= width) {
            Some(end) => {
                let (before, after) = line.split_at(end);
                Layout {
                    before: format!("{before} ["),
                    cells: BAR_CELLS,
                    after: format!("]{after}"),
                    percent,
                }
            }
            None => Layout { before: line, percent, ..Layout::default() },
        };
        if let Some(room) = width.checked_sub(layout.columns() + 2).filter(|room| *room >= NAME_COLUMNS_MIN)
            && !name.is_empty()
        {
            let end = if layout.cells == 0 { &mut layout.before } else { &mut layout.after };
            end.push_str("  ");
            end.push_str(&last_columns(name, room));
        }
        layout
    }

    /// The same as plain text.
    pub fn text(&mut self, now: Sample, at: Duration) -> String {
        self.take(now, at);
        let (head, parts) = self.parts();
        let texts: Vec<String> = parts.into_iter().map(|part| part.text).collect();
        head + &texts.join(", ")
    }

    /// The counters as shown, which never step back.
    pub fn shown(&mut self, now: Sample, at: Duration) -> Sample {
        self.take(now, at);
        self.high
    }

    /// What the run is at.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    fn parts(&self) -> (String, Vec<Part>) {
        let s = self.high;
        let rate = self.rate();
        let doing = match self.phase {
            Phase::Working => self.verb.doing(),
            Phase::Verifying => "verifying",
            Phase::Syncing => "syncing",
        };
        let bytes = self.by_bytes();
        let mut parts = Vec::new();
        let items = |n| say::counted(n, "item", "items");
        let rate_text = || self.rate_text(rate).filter(|_| self.phase == Phase::Working);
        if s.scanned {
            parts.push(part(0, format!("{:>3}%", self.percent)));
            if bytes {
                let of = format!("{} of {}", say::size(s.bytes_done), say::size(s.bytes_found));
                parts.push(part(3, of));
            }
            parts.extend(rate_text().map(|text| part(1, text)));
            parts.extend(self.left(rate).map(|left| part(2, format!("{} left", say::clock(left)))));
            parts.push(part(6, format!("{} of {}", s.items_done, items(s.items_found))));
        } else {
            if bytes {
                parts.push(part(0, say::size(s.bytes_done)));
            }
            parts.extend(rate_text().map(|text| part(1, text)));
            parts.push(part(3, items(s.items_done)));
            if self.counting {
                let found = if bytes { format!(", {}", say::size(s.bytes_found)) } else { String::new() };
                parts.push(part(4, format!("scanning: {}{found} so far", items(s.items_found))));
            }
        }
        // In the phase that they are of they are what counts.
        let rank = |phase| if self.phase == phase { 1 } else { 5 };
        if s.bytes_verified > 0 {
            let verified = format!("{} verified", say::size(s.bytes_verified));
            parts.push(part(rank(Phase::Verifying), verified));
        }
        if s.files_synced > 0 {
            let files = if s.files_synced == 1 { "file" } else { "files" };
            parts.push(part(rank(Phase::Syncing), format!("{} {files} synced", s.files_synced)));
        }
        (format!("{doing}  "), parts)
    }

    fn take(&mut self, now: Sample, at: Duration) {
        let high = &mut self.high;
        let moves = now.bytes_done > high.bytes_done || now.items_done > high.items_done;
        self.phase = match (moves, now.verifying > 0, now.syncing > 0) {
            (false, true, _) => Phase::Verifying,
            (false, false, true) => Phase::Syncing,
            _ => Phase::Working,
        };
        self.counting |= now.items_found > 0;
        high.items_done = high.items_done.max(now.items_done);
        high.bytes_done = high.bytes_done.max(now.bytes_done);
        high.bytes_there = high.bytes_there.max(now.bytes_there);
        // A file may have grown since it was counted: what is done was there to be found.
        high.items_found = high.items_found.max(now.items_found).max(high.items_done);
        high.bytes_found = high.bytes_found.max(now.bytes_found).max(high.bytes_done);
        high.bytes_verified = high.bytes_verified.max(now.bytes_verified);
        high.files_synced = high.files_synced.max(now.files_synced);
        // What is a stream is not counted, and so may be all there is.
        high.scanned |= now.scanned && now.items_found > 0;
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

    /// How long the rest takes, where that can be told: bytes are what takes time just now, and go on as they did.
    fn left(&self, rate: Option<f64>) -> Option<Duration> {
        let left = self.total().saturating_sub(self.done());
        let rate = rate.filter(|rate| *rate >= 1.0)?;
        let tells = left > 0 && self.phase == Phase::Working && self.is_steady();
        tells.then(|| Duration::from_secs_f64(left as f64 / rate))
    }

    /// Whether the older and the newer half of what the rate is of went about as fast.
    fn is_steady(&self) -> bool {
        let (Some(first), Some(last)) = (self.past.front(), self.past.back()) else { return false };
        let middle = first.0 + last.0.saturating_sub(first.0) / 2;
        let Some(turn) = self.past.iter().find(|sample| sample.0 >= middle) else { return true };
        let speed = |from: &(Duration, u64), to: &(Duration, u64)| {
            let took = to.0.saturating_sub(from.0).as_secs_f64();
            (took > 0.0).then(|| to.1.saturating_sub(from.1) as f64 / took)
        };
        match (speed(first, turn), speed(turn, last)) {
            (Some(older), Some(newer)) => older.max(newer) <= older.min(newer) * UNSTEADY,
            _ => true,
        }
    }

    fn rate_text(&self, rate: Option<f64>) -> Option<String> {
        let rate = rate? as u64;
        Some(if self.by_bytes() { format!("{}/s", say::size(rate)) } else { format!("{rate} items/s") })
    }
}

/// The end of a text, in at most so many columns.
fn last_columns(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut room = columns.saturating_sub(3);
    let tail: Vec<char> = text
        .chars()
        .rev()
        .take_while(|c| {
            let fits = c.width().unwrap_or(0) <= room;
            room = room.saturating_sub(c.width().unwrap_or(0));
            fits
        })
        .collect();
    format!("...{}", tail.into_iter().rev().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn sample(items_done: u64, bytes_done: u64, items_found: u64, bytes_found: u64, scanned: bool) -> Sample {
        Sample { items_done, bytes_done, items_found, bytes_found, scanned, ..Sample::default() }
    }

    /// As it stands on a terminal.
    fn drawn(layout: &Layout) -> String {
        format!("{}{}{}", layout.before, "#".repeat(layout.cells), layout.after)
    }

    fn secs(s: f64) -> Duration {
        Duration::from_secs_f64(s)
    }

    #[test]
    fn says_scanning_while_totals_grow() {
        let mut line = ProgressLine::new(Verb::Copy);
        assert_eq!(
            drawn(&line.at(sample(3, 20 * MIB, 10, 100 * MIB, false), secs(2.0), "", 200)),
            "copying  20.0 MiB, 10.0 MiB/s, 3 items, scanning: 10 items, 100.0 MiB so far"
        );
        assert_eq!(
            drawn(&line.at(sample(4, 40 * MIB, 20, 200 * MIB, true), secs(3.0), "", 200)),
            "copying   20% [####################], 40.0 MiB of 200.0 MiB, 20.0 MiB/s, 0:08 left, 4 of 20 items"
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
        line.at(sample(0, 100, 1, 1000, true), secs(1.0), "", 80);
        let layout = line.at(sample(0, 500, 1, 1000, true), secs(1.1), "", 80);
        assert!(layout.before.contains(" 50%") && layout.percent == Some(50), "{layout:?}");
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
            "copying   94%, 94.0 MiB of 100.0 MiB, 2.0 MiB/s, 0:03 left, 0 of 1 item"
        );
        let mut first = ProgressLine::new(Verb::Copy);
        assert!(first.text(at(92), secs(1.0)).contains(", 2.0 MiB/s, "), "also in the first line of all");
    }

    #[test]
    fn without_bytes_items_count() {
        let mut line = ProgressLine::new(Verb::Remove);
        assert_eq!(
            drawn(&line.at(sample(10, 0, 40, 0, true), secs(1.0), "", 60)),
            "removing   25%, 10 items/s, 0:03 left, 10 of 40 items"
        );
    }

    /// Room goes to what says most: never half a word.
    #[test]
    fn narrow_terminals_have_whole_parts() {
        for (width, want) in [
            (
                200,
                "copying   20% [####################], 40.0 MiB of 200.0 MiB, 20.0 MiB/s, 0:08 left, 4 of 20 items  /photos/2026/11/a.jpg",
            ),
            (80, "copying   20%, 40.0 MiB of 200.0 MiB, 20.0 MiB/s, 0:08 left, 4 of 20 items"),
            (60, "copying   20%, 40.0 MiB of 200.0 MiB, 20.0 MiB/s, 0:08 left"),
            (40, "copying   20%, 20.0 MiB/s, 0:08 left"),
            (26, "copying   20%, 20.0 MiB/s"),
            (13, "copying   20%"),
        ] {
            let mut line = ProgressLine::new(Verb::Copy);
            line.at(sample(3, 20 * MIB, 10, 100 * MIB, false), secs(2.0), "", width);
            let name = "/photos/2026/11/a.jpg";
            let layout = line.at(sample(4, 40 * MIB, 20, 200 * MIB, true), secs(3.0), name, width);
            assert_eq!(drawn(&layout), want, "{width}");
        }
        assert_eq!(last_columns("/a/very/long/name", 10), "...ng/name");
        assert_eq!(last_columns("/\u{732b}\u{732b}\u{732b}\u{732b}", 8), "...\u{732b}\u{732b}");
    }

    /// What is read back and synced is counted by itself, and named while nothing else moves.
    #[test]
    fn phases_are_counted_each() {
        let mut line = ProgressLine::new(Verb::Copy);
        let at = |bytes: u64| sample(0, bytes * MIB, 1, 100 * MIB, true);
        line.text(at(50), secs(1.0));
        line.text(at(100), secs(2.0));
        let reads = Sample { verifying: 1, bytes_verified: 30 * MIB, ..at(100) };
        assert_eq!(
            line.text(reads, secs(3.0)),
            "verifying   99%, 100.0 MiB of 100.0 MiB, 0 of 1 item, 30.0 MiB verified"
        );
        let syncs = Sample { syncing: 1, files_synced: 2, bytes_verified: 100 * MIB, ..at(100) };
        assert!(line.text(syncs, secs(4.0)).starts_with("syncing   99%"));
        assert_eq!(line.phase(), Phase::Syncing);
        // While bytes move it is a copy, whatever other workers do.
        let mut line = ProgressLine::new(Verb::Copy);
        line.text(at(10), secs(1.0));
        assert!(line.text(Sample { verifying: 1, ..at(20) }, secs(2.0)).starts_with("copying"));
    }

    /// Ten times as fast as before: nothing is known of the rest.
    #[test]
    fn no_time_is_told_that_is_not_known() {
        let mut line = ProgressLine::new(Verb::Copy);
        let at = |mib| sample(0, mib * MIB, 1, 1000 * MIB, true);
        for second in 0..4 {
            line.text(at(second), secs(second as f64));
        }
        assert!(line.text(at(4), secs(4.0)).contains("16:36 left"));
        for second in 5..7 {
            line.text(at(4 + (second - 4) * 100), secs(second as f64));
        }
        assert!(!line.text(at(304), secs(7.0)).contains("left"));
    }

    proptest! {
        #[test]
        fn never_steps_back_and_never_overflows(
            samples in proptest::collection::vec(
                (0..2000_u64, 0..u64::MAX, 0..2000_u64, 0..u64::MAX, any::<bool>()), 1..40),
            width in 10..300_usize,
            name in "[a-z/ \u{e9}\u{732b}]{0,60}",
        ) {
            let mut line = ProgressLine::new(Verb::Copy);
            let (mut percent, mut shown) = (0, Sample::default());
            for (i, (a, b, c, d, e)) in samples.into_iter().enumerate() {
                let at = Duration::from_millis(100 * i as u64);
                let layout = line.at(sample(a, b, c, d, e), at, &name, width);
                prop_assert!(layout.columns() <= width, "{layout:?}");
                let now = line.shown(Sample::default(), at);
                prop_assert!(line.percent >= percent && line.percent <= 100);
                prop_assert!(now.bytes_done >= shown.bytes_done && now.items_done >= shown.items_done);
                prop_assert!(now.bytes_done <= now.bytes_found && now.items_done <= now.items_found);
                (percent, shown) = (line.percent, now);
            }
        }
    }
}
