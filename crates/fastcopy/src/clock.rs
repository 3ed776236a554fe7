//! What a clock on the wall shows at some moment, where this process believes to be (`TZ`, `/etc/localtime`).
//!
//! Must not know how a time is written.

use std::mem::MaybeUninit;

/// A time of the day and its date, in the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// Year.
    pub year: i64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 60: there are leap seconds.
    pub second: u8,
}

/// `localtime_r`: what clocks here show so many seconds after 1970 began; `None` for years that no calendar has.
#[must_use]
pub fn local(seconds: i64) -> Option<Local> {
    let mut broken_down = MaybeUninit::<libc::tm>::uninit();
    let seconds = libc::time_t::try_from(seconds).ok()?;
    // SAFETY: both are ours and live through the call. It reads the environment, which nothing in this process changes.
    let filled = unsafe { libc::localtime_r(&seconds, broken_down.as_mut_ptr()) };
    if filled.is_null() {
        return None;
    }
    // SAFETY: it is filled in when what comes back is not null.
    let tm = unsafe { broken_down.assume_init() };
    let small = |n: libc::c_int| u8::try_from(n).ok();
    Some(Local {
        year: i64::from(tm.tm_year) + 1900,
        month: small(tm.tm_mon + 1)?,
        day: small(tm.tm_mday)?,
        hour: small(tm.tm_hour)?,
        minute: small(tm.tm_min)?,
        second: small(tm.tm_sec)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_everywhere_are_less_than_a_day_apart() {
        // Noon: the date is the same from UTC-12 to UTC+11, and one more further east.
        let noon = local(1_795_262_400).unwrap();
        assert_eq!((noon.year, noon.month), (2026, 11));
        assert!((20..=22).contains(&noon.day) && noon.minute < 60 && noon.second == 0);
        assert!(local(i64::MAX).is_none() && local(i64::MIN).is_none());
    }
}
