//! Which snapshots go: by their moments alone.
//!
//! Must not touch any disk, nor read a clock.

use crate::calendar::Stamp;
use crate::policy::Thinning;

/// Which of `all` go. The newest of each of the last so many days, weeks and months that have one stays, and the newest of all.
pub(crate) fn going(all: &[Stamp], rule: Thinning) -> Vec<Stamp> {
    let mut newest_first = all.to_vec();
    newest_first.sort_unstable();
    newest_first.dedup();
    newest_first.reverse();
    let mut stays: Vec<Stamp> = newest_first.first().copied().into_iter().collect();
    for (period, most) in [rule.days, rule.weeks, rule.months].into_iter().enumerate() {
        let mut last = None;
        let mut left = most;
        for stamp in &newest_first {
            let at = stamp.periods().get(period).copied();
            if at == last {
                continue;
            }
            if left == 0 {
                break;
            }
            (last, left) = (at, left - 1);
            stays.push(*stamp);
        }
    }
    newest_first.retain(|stamp| !stays.contains(stamp));
    newest_first.reverse();
    newest_first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(text: &str) -> Stamp {
        Stamp::parse(text.as_bytes()).unwrap()
    }

    const fn rule(days: u32, weeks: u32, months: u32) -> Thinning {
        Thinning { days, weeks, months }
    }

    #[test]
    fn by_a_table() {
        // Of May 2026; the 25th is a Monday.
        let may = |day: &str| stamp(&format!("2026-05-{day}Z"));
        for (all, of, want) in [
            (&[][..], rule(0, 0, 0), &[][..]),
            (&["25T100000"], rule(0, 0, 0), &[]),
            (&["24T100000", "25T100000"], rule(0, 0, 0), &["24T100000"]),
            // Of one day its last stays.
            (
                &["24T080000", "24T100000", "25T080000", "25T100000"],
                rule(2, 0, 0),
                &["24T080000", "25T080000"],
            ),
            // Days without one do not count.
            (&["01T080000", "10T080000", "20T080000", "25T080000"], rule(3, 0, 0), &["01T080000"]),
            // A Sunday and the Monday after it are two weeks.
            (&["23T080000", "24T080000", "25T080000"], rule(0, 2, 0), &["23T080000"]),
            (&["18T080000", "24T080000", "25T080000"], rule(1, 2, 0), &["18T080000"]),
            // What one rule keeps, another need not.
            (&["11T080000", "17T080000", "18T080000", "25T080000"], rule(1, 3, 1), &["11T080000"]),
        ] {
            let all: Vec<Stamp> = all.iter().map(|day| may(day)).collect();
            let want: Vec<Stamp> = want.iter().map(|day| may(day)).collect();
            assert_eq!(going(&all, of), want, "{all:?} {of:?}");
        }
    }

    /// One a day for two years, thinned out each day: seven days, then weeks, then months stay, and it is the same whatever the
    /// order in which they are told.
    #[test]
    fn day_after_day() {
        let (first, rule) = (stamp("2024-01-01T030000Z").seconds(), rule(7, 4, 12));
        let mut all = Vec::new();
        for day in 0..731 {
            all.push(Stamp::of(first + day * 86_400));
            let gone = going(&all, rule);
            let mut turned = all.clone();
            turned.reverse();
            assert_eq!(going(&turned, rule), gone);
            all.retain(|stamp| !gone.contains(stamp));
            assert!(all.contains(&Stamp::of(first + day * 86_400)), "the newest stays");
            // Once thinned out, no more goes.
            assert_eq!(going(&all, rule), []);
            assert!(all.len() <= 7 + 4 + 12, "{}", all.len());
        }
        let last: Vec<String> = all.iter().rev().take(8).map(Stamp::to_string).collect();
        assert_eq!(last[0], "2025-12-31T030000Z");
        assert_eq!(last[6], "2025-12-25T030000Z");
        // The Sunday before those seven days.
        assert_eq!(last[7], "2025-12-21T030000Z");
        assert_eq!(all.len(), 20, "{all:?}");
    }
}
