//! Moments as names of directories, and the days, weeks and months that they are in; UTC throughout.
//!
//! Must not read a clock, nor know what is called by a moment.

use std::fmt;

/// Seconds of a day.
const DAY: i64 = 86_400;
/// Bytes of a moment as it is written.
const STAMP_BYTES: usize = "2026-01-31T235959Z".len();

/// A moment, to the second; written as `2026-01-31T235959Z`, so that names are in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(i64);

impl Stamp {
    /// The first moment of the year 1, and the last of 9999: what is outside is not written.
    const FIRST: i64 = -62_135_596_800;
    const LAST: i64 = 253_402_300_799;

    /// So many seconds after the beginning of 1970; what cannot be written is the nearest that can.
    #[must_use]
    pub fn of(seconds: i64) -> Stamp {
        Stamp(seconds.clamp(Stamp::FIRST, Stamp::LAST))
    }

    /// Now, by the clock of this machine.
    #[must_use]
    pub fn at(now: std::time::SystemTime) -> Stamp {
        let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Stamp::of(i64::try_from(since.as_secs()).unwrap_or(Stamp::LAST))
    }

    /// Seconds since the beginning of 1970.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.0
    }

    /// What was written, and nothing that would be written otherwise.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Stamp> {
        if text.len() != STAMP_BYTES {
            return None;
        }
        let number = |at: std::ops::Range<usize>| -> Option<i64> {
            let digits = text.get(at)?;
            digits.iter().try_fold(0, |all, digit| {
                digit.is_ascii_digit().then_some(all * 10 + i64::from(digit.wrapping_sub(b'0')))
            })
        };
        let days = days_of(number(0..4)?, number(5..7)?, number(8..10)?);
        let seconds = number(11..13)? * 3600 + number(13..15)? * 60 + number(15..17)?;
        let stamp = Stamp::of(days * DAY + seconds);
        // Also tells of a 31st of April, an hour 24 and other signs between the numbers.
        (stamp.to_string().as_bytes() == text).then_some(stamp)
    }

    /// Which day it is in, which week (from Monday on), and which month, each counted from some beginning.
    #[must_use]
    pub fn periods(self) -> [i64; 3] {
        let day = self.0.div_euclid(DAY);
        let (year, month, _) = date_of(day);
        // The first day of 1970 was a Thursday.
        [day, (day + 3).div_euclid(7), year * 12 + month]
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.0.div_euclid(DAY));
        let second = self.0.rem_euclid(DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}{minute:02}{second:02}Z")
    }
}

/// Days of the years before `year`, from the first of the year 0 on, by the calendar's rule.
fn days_before(year: i64) -> i64 {
    let last = year - 1;
    year * 365 + last.div_euclid(4) - last.div_euclid(100) + last.div_euclid(400) + 1
}

/// Days of the year before each month.
fn month_starts(year: i64) -> [i64; 13] {
    let leap = i64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
    let mut starts = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365];
    starts.iter_mut().skip(2).for_each(|start| *start += leap);
    starts
}

/// Days from the beginning of 1970 to that day; of a month that there is not, some other day.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let starts = month_starts(year);
    let start = usize::try_from(month - 1).ok().and_then(|at| starts.get(at)).copied().unwrap_or_default();
    days_before(year) - days_before(1970) + start + day - 1
}

/// Year, month and day of a day that is so many after the first of 1970.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + days_before(1970);
    // Never too small; and by one too large at most.
    let mut year = days * 400 / 146_097 + 1;
    while days_before(year) > days {
        year -= 1;
    }
    let rest = days - days_before(year);
    let starts = month_starts(year);
    let month = starts.iter().take_while(|start| **start <= rest).count();
    let start = starts.get(month.saturating_sub(1)).copied().unwrap_or_default();
    (year, i64::try_from(month).unwrap_or(1), rest - start + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_and_read() {
        for (seconds, text) in [
            (0, "1970-01-01T000000Z"),
            (-1, "1969-12-31T235959Z"),
            (951_782_399, "2000-02-28T235959Z"),
            (951_782_400, "2000-02-29T000000Z"),
            (1_709_164_800, "2024-02-29T000000Z"),
            (1_709_251_200, "2024-03-01T000000Z"),
            (4_107_542_400, "2100-03-01T000000Z"),
            (Stamp::LAST, "9999-12-31T235959Z"),
            (Stamp::FIRST, "0001-01-01T000000Z"),
        ] {
            assert_eq!(Stamp::of(seconds).to_string(), text);
            assert_eq!(Stamp::parse(text.as_bytes()), Some(Stamp::of(seconds)), "{text}");
        }
        for text in [
            "",
            "2026-01-31T235959",
            "2026-02-30T000000Z",
            "2026-13-01T000000Z",
            "2026-00-10T000000Z",
            "2026-01-01T240000Z",
            "2026-01-01T006000Z",
            "2026-01-01 000000Z",
            "2026-01-01T00000+Z",
            "0000-01-01T000000Z",
        ] {
            assert_eq!(Stamp::parse(text.as_bytes()), None, "{text}");
        }
    }

    /// Day after day through leap years of both kinds: each is the one after the day before it.
    #[test]
    fn days_follow_one_another() {
        let mut before = Stamp::parse(b"1896-12-31T120000Z").unwrap();
        for _ in 0..366 * 420 {
            let next = Stamp::of(before.seconds() + DAY);
            assert_eq!(Stamp::parse(next.to_string().as_bytes()), Some(next), "{next}");
            assert!(next.to_string() > before.to_string(), "{next}");
            before = next;
        }
    }

    #[test]
    fn periods_begin_where_they_should() {
        let of = |text: &str| Stamp::parse(text.as_bytes()).unwrap().periods();
        // A Sunday and the Monday after it, in two months.
        let (sunday, monday) = (of("2026-05-31T235959Z"), of("2026-06-01T000000Z"));
        assert_eq!([0, 1, 2].map(|at| monday[at] - sunday[at]), [1, 1, 1]);
        // Two days of a week and month.
        let (tuesday, friday) = (of("2026-06-02T080000Z"), of("2026-06-05T070000Z"));
        assert_eq!([0, 1, 2].map(|at| friday[at] - tuesday[at]), [3, 0, 0]);
        // A year ends inside a week.
        let (thursday, friday) = (of("2026-12-31T000000Z"), of("2027-01-01T000000Z"));
        assert_eq!([0, 1, 2].map(|at| friday[at] - thursday[at]), [1, 0, 1]);
    }
}
