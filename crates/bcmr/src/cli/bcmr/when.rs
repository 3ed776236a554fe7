//! Moments as they are typed: a date, an age, seconds since 1970, or a file whose time is meant. Must not know what is asked
//! of a moment, nor look at any file or clock, nor which time zone this machine is in: that is given.

use jiff::Span;
use jiff::civil::{DateTime, Time};
use jiff::fmt::temporal::Pieces;
use jiff::tz::TimeZone;
use std::path::PathBuf;

const NANOS: u32 = 1_000_000_000;

/// A moment as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Seconds since 1970, and nanoseconds.
    At(i64, u32),
    /// What calendar and clock show in this machine's time zone.
    Shown(DateTime),
    /// So many seconds before now.
    Ago(u64),
    /// Moment this file was modified.
    Of(PathBuf),
}

/// Reads a moment.
pub fn when(typed: &str) -> Result<Moment, String> {
    if typed.is_empty() {
        return Err("a time or the name of a file is needed".into());
    }
    if let Some(secs) = typed.strip_prefix('@') {
        let at = seconds(secs).map(|(secs, nanos)| Moment::At(secs, nanos));
        return at.ok_or_else(|| "a number of seconds is needed behind @".into());
    }
    if let Some(secs) = age(typed) {
        return Ok(Moment::Ago(secs));
    }
    // What jiff reads beyond this is left to names of files.
    let is_date = typed.get(..10).is_some_and(|day| day.bytes().all(|b| b.is_ascii_digit() || b == b'-'));
    let pieces = if is_date { Pieces::parse(typed).ok() } else { None };
    let read = pieces.filter(|said| said.time_zone_annotation().is_none()).and_then(|said| {
        let civil = said.date().to_datetime(said.time().unwrap_or(Time::midnight()));
        match said.to_numeric_offset() {
            None => Some(Moment::Shown(civil)),
            Some(offset) => {
                shown_in(civil, TimeZone::fixed(offset)).map(|(secs, nanos)| Moment::At(secs, nanos))
            }
        }
    });
    Ok(read.unwrap_or_else(|| Moment::Of(typed.into())))
}

/// Seconds since 1970, and nanoseconds, of what a calendar and a clock show; `None`: there is no such time.
pub(super) fn shown_in(civil: DateTime, zone: TimeZone) -> Option<(i64, u32)> {
    let counted = |civil: DateTime| {
        let at = civil.to_zoned(zone.clone()).ok()?.timestamp();
        // Counted from the second before, as a file's time is.
        let (secs, nanos) = (at.as_second(), at.subsec_nanosecond());
        let secs = if nanos < 0 { secs - 1 } else { secs };
        Some((secs, u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or_default()))
    };
    // The last days of 9999 are behind the end of what is counted; clocks go in the week before it as they go then.
    counted(civil).or_else(|| {
        let (secs, nanos) = counted(civil.checked_sub(Span::new().days(7)).ok()?)?;
        Some((secs + 7 * 86_400, nanos))
    })
}

/// `1700000000`, `-1.5`: counted from the second before, as a file's time is.
fn seconds(typed: &str) -> Option<(i64, u32)> {
    let (whole, part) = typed.split_once('.').unwrap_or((typed, "0"));
    let secs: i64 = whole.parse().ok()?;
    if !(1..=9).contains(&part.len()) || !part.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match format!("{part:0<9}").parse().ok()? {
        nanos @ 1.. if whole.starts_with('-') => Some((secs.checked_sub(1)?, NANOS - nanos)),
        nanos => Some((secs, nanos)),
    }
}

/// A moment so that [`when`] reads the same.
pub(super) fn typed((secs, nanos): (i64, u32)) -> String {
    match nanos {
        0 => format!("@{secs}"),
        _ if secs < 0 => format!("@-{}.{:09}", (secs + 1).unsigned_abs(), NANOS - nanos),
        _ => format!("@{secs}.{nanos:09}"),
    }
}

/// `90s`, `5m`, `12h`, `7d`, `2w` in seconds.
fn age(typed: &str) -> Option<u64> {
    let unit = match typed.bytes().last()? {
        b's' => 1,
        b'm' => 60,
        b'h' => 3600,
        b'd' => 86_400,
        b'w' => 7 * 86_400,
        _ => return None,
    };
    let digits = typed.get(..typed.len() - 1).filter(|d| d.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        for (typed, want) in [
            ("@0", Some(Moment::At(0, 0))),
            ("@-5", Some(Moment::At(-5, 0))),
            ("@1.5", Some(Moment::At(1, 500_000_000))),
            ("@-1.000000001", Some(Moment::At(-2, 999_999_999))),
            ("@-0.25", Some(Moment::At(-1, 750_000_000))),
            ("@x", None),
            ("@1.", None),
            ("@1.0000000001", None),
            ("@1.-5", None),
            ("", None),
            ("7d", Some(Moment::Ago(604_800))),
            ("90s", Some(Moment::Ago(90))),
            ("2w", Some(Moment::Ago(1_209_600))),
            ("1970-01-02", Some(Moment::At(86_400, 0))),
            ("1970-01-01T00:01", Some(Moment::At(60, 0))),
            ("1970-01-01 00:00:01.5", Some(Moment::At(1, 500_000_000))),
            ("1969-12-31T23:59:59.5", Some(Moment::At(-1, 500_000_000))),
            ("9999-12-31", Some(Moment::At(253_402_214_400, 0))),
            ("9999-12-31T23:59:59", Some(Moment::At(253_402_300_799, 0))),
            ("0001-01-01", Some(Moment::At(-62_135_596_800, 0))),
            ("1970-01-01T01:00Z", Some(Moment::At(3600, 0))),
            ("1970-01-01T01:00:00z", Some(Moment::At(3600, 0))),
            ("1970-01-01T02:00:00+01:00", Some(Moment::At(3600, 0))),
            ("1970-01-01T00:00-01:00", Some(Moment::At(3600, 0))),
            ("9999-12-31T23:59:59-10:00", Some(Moment::At(253_402_336_799, 0))),
            ("1970-01-01T00:00[Europe/Rome]", Some(Moment::Of("1970-01-01T00:00[Europe/Rome]".into()))),
            ("2026-01-31T25:00", Some(Moment::Of("2026-01-31T25:00".into()))),
            ("1.5d", Some(Moment::Of("1.5d".into()))),
            ("d", Some(Moment::Of("d".into()))),
            ("./7d", Some(Moment::Of("./7d".into()))),
            ("7", Some(Moment::Of("7".into()))),
            ("1970-13-01", Some(Moment::Of("1970-13-01".into()))),
            ("99999999999999999999d", Some(Moment::Of("99999999999999999999d".into()))),
        ] {
            let got = when(typed).ok().map(|moment| match moment {
                Moment::Shown(civil) => {
                    let (secs, nanos) = shown_in(civil, TimeZone::UTC).unwrap();
                    Moment::At(secs, nanos)
                }
                other => other,
            });
            assert_eq!(got, want, "{typed:?}");
        }
        for at in [(0, 0), (0, 1), (-1, 1), (-1, 0), (i64::MIN, 7), (i64::MAX, 999_999_999)] {
            assert_eq!(when(&typed(at)), Ok(Moment::At(at.0, at.1)));
        }
    }
}
