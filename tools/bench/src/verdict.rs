//! How measured values become a verdict on a claim: a rule, an interval over rounds, and four words. Pure functions;
//! must not know what was measured, nor how it is shown.

use crate::measure::median;
use serde::{Deserialize, Serialize};

/// How a figure becomes a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// One thing differs from another by this ratio. What counts is how much of the effect is there, in logarithms;
    /// an effect the other way round is none.
    Effect {
        #[serde(alias = "seed")]
        published: f64,
    },
    /// Something costs this ratio and no more.
    Cost {
        #[serde(alias = "seed")]
        published: f64,
    },
    /// Two things do not differ, in either direction.
    Same,
    /// Something hardly grows.
    Growth { most: f64 },
    /// A bound that is kept or is not.
    Limit { most: f64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Holds,
    Less,
    Not,
    /// The interval contains a border between two of the above.
    Undecided,
    NotRun,
}

/// Of the published effect, for *holds* and for *holds less*.
pub const EFFECT_WHOLE: f64 = 0.9;
pub const EFFECT_PART: f64 = 0.25;
/// Times the published cost, the same; and how far two things that are the same may be apart.
pub const COST_WHOLE: f64 = 1.05;
pub const COST_PART: f64 = 1.35;
/// Times the bound of a growth, for *holds less*.
pub const GROWTH_PART: f64 = 2.0;
/// Fewer rounds have no interval that means anything.
pub const ROUNDS_MIN: usize = 3;
/// Of 100 such intervals, so many contain the true median.
pub const PERCENT: f64 = 95.0;

impl Verdict {
    pub const ALL: [Verdict; 5] =
        [Verdict::Holds, Verdict::Less, Verdict::Not, Verdict::Undecided, Verdict::NotRun];

    pub fn word(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Less => "holds less",
            Verdict::Not => "does not hold here",
            Verdict::Undecided => "undecided",
            Verdict::NotRun => "not measured",
        }
    }
}

impl Rule {
    /// What one value that is known exactly says.
    pub fn of_value(self, here: f64) -> Verdict {
        if !here.is_finite() {
            return Verdict::NotRun;
        }
        let (whole, part) = match self {
            Rule::Effect { published } => {
                let share = here.ln() / published.ln();
                (share >= EFFECT_WHOLE, share >= EFFECT_PART)
            }
            Rule::Cost { published } => (here <= published * COST_WHOLE, here <= published * COST_PART),
            Rule::Same => {
                let apart = here.ln().abs();
                (apart <= COST_WHOLE.ln(), apart <= COST_PART.ln())
            }
            Rule::Growth { most } => (here <= most, here <= most * GROWTH_PART),
            Rule::Limit { most } => (here <= most, false),
        };
        match (whole, part) {
            (true, _) => Verdict::Holds,
            (false, true) => Verdict::Less,
            (false, false) => Verdict::Not,
        }
    }

    /// Where one verdict ends and another begins.
    fn borders(self) -> Vec<f64> {
        match self {
            Rule::Effect { published } => vec![published.powf(EFFECT_WHOLE), published.powf(EFFECT_PART)],
            Rule::Cost { published } => vec![published * COST_WHOLE, published * COST_PART],
            Rule::Same => vec![1.0 / COST_PART, 1.0 / COST_WHOLE, COST_WHOLE, COST_PART],
            Rule::Growth { most } => vec![most, most * GROWTH_PART],
            Rule::Limit { most } => vec![most],
        }
    }
}

/// What rounds say of a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    pub verdict: Verdict,
    /// The median over rounds.
    pub value: f64,
    /// `None` for what is counted and not timed, and where there were too few rounds.
    pub interval: Option<Interval>,
    pub rounds: usize,
}

/// The rule on values by rounds. `counted` values are the same in every round, so one of them is all of them.
pub fn judge(rule: Rule, values: &[f64], counted: bool) -> Judged {
    let value = median(values.iter().copied());
    let interval = if counted { None } else { interval(values) };
    let verdict = match interval {
        _ if values.is_empty() || !value.is_finite() => Verdict::NotRun,
        _ if counted => rule.of_value(value),
        None => Verdict::Undecided,
        Some(interval) if rule.borders().into_iter().any(|border| interval.contains(border)) => {
            Verdict::Undecided
        }
        Some(_) => rule.of_value(value),
    };
    Judged { verdict, value, interval, rounds: values.len() }
}

/// Where the median lies with a certainty of [`PERCENT`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub least: f64,
    pub most: f64,
}

impl Interval {
    /// Inside of it, and not at its ends: values that are all alike, and lie on a border, are on one side of it.
    fn contains(self, border: f64) -> bool {
        self.least < border && border < self.most
    }
}

/// The bootstrap: of all sets of as many rounds, drawn with replacement from those that there were, what the medians of
/// most lie between is the interval. Nothing is drawn: how often each round is the median follows by counting, so a page
/// follows from its values. Of an even number of rounds the lower middle bounds below and the upper one above.
pub fn interval(values: &[f64]) -> Option<Interval> {
    let rounds = values.len();
    if rounds < ROUNDS_MIN || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let outside = (100.0 - PERCENT) / 200.0;
    let (lower, upper) = (rounds.div_ceil(2), rounds / 2 + 1);
    // The least of the rounds that so much of all sets have their middle at or below.
    let at = |middle: usize, part: f64| {
        let rank = (1..rounds).find(|&rank| at_least(middle, rounds, rank as f64 / rounds as f64) >= part);
        sorted[rank.unwrap_or(rounds) - 1]
    };
    Some(Interval { least: at(lower, outside), most: at(upper, 1.0 - outside) })
}

/// How likely at least `least` of `all` draws are of a kind that one draw is with probability `one`.
fn at_least(least: usize, all: usize, one: f64) -> f64 {
    let mut exactly = (1.0 - one).powi(all as i32);
    let mut sum = 0.0;
    for count in 0..=all {
        if count >= least {
            sum += exactly;
        }
        exactly *= (all - count) as f64 / (count + 1) as f64 * one / (1.0 - one);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Holds, Less, Not, NotRun, Undecided};
    use super::*;

    fn effect(published: f64) -> Rule {
        Rule::Effect { published }
    }
    fn cost(published: f64) -> Rule {
        Rule::Cost { published }
    }
    const GROWTH: Rule = Rule::Growth { most: 1.5 };
    const LIMIT: Rule = Rule::Limit { most: 32.0 };

    #[test]
    fn a_value_that_is_known_exactly() {
        // rule, what was found, verdict
        let table = [
            (effect(0.5), 0.5, Holds),
            (effect(0.5), 0.3, Holds),
            (effect(0.5), 0.53, Holds),
            (effect(0.5), 0.55, Less),
            (effect(0.5), 0.83, Less),
            (effect(0.5), 0.86, Not),
            (effect(0.5), 1.0, Not),
            (effect(0.5), 2.0, Not),
            // 13.75 times: half of it in logarithms is 3.7 times.
            (effect(0.0727), 0.27, Less),
            (effect(0.0727), 0.09, Holds),
            // Seven per cent are held by six and a half.
            (effect(0.934), 0.94, Holds),
            (effect(0.934), 0.96, Less),
            (effect(0.934), 0.99, Not),
            // The other way round: something is so many times as slow.
            (effect(2.0), 2.0, Holds),
            (effect(2.0), 1.3, Less),
            (effect(2.0), 1.1, Not),
            (effect(2.0), 0.5, Not),
            (cost(1.18), 0.4, Holds),
            (cost(1.18), 1.23, Holds),
            (cost(1.18), 1.25, Less),
            (cost(1.18), 1.6, Not),
            // No difference is no difference in either direction.
            (Rule::Same, 1.0, Holds),
            (Rule::Same, 1.04, Holds),
            (Rule::Same, 0.96, Holds),
            (Rule::Same, 1.2, Less),
            (Rule::Same, 0.8, Less),
            (Rule::Same, 1.4, Not),
            (Rule::Same, 0.5, Not),
            (GROWTH, 1.5, Holds),
            (GROWTH, 2.9, Less),
            (GROWTH, 3.1, Not),
            (LIMIT, 32.0, Holds),
            (LIMIT, 32.1, Not),
            (LIMIT, f64::NAN, NotRun),
        ];
        for (rule, here, verdict) in table {
            assert_eq!(rule.of_value(here), verdict, "{rule:?} and {here:?}");
            assert_eq!(judge(rule, &[here], true).verdict, verdict, "{rule:?} and {here:?}, counted");
        }
    }

    #[test]
    fn rounds_decide_only_where_no_border_lies_between_them() {
        let table: [(Rule, &[f64], Verdict); 19] = [
            (effect(0.5), &[0.50, 0.51, 0.49, 0.50, 0.52], Holds),
            // The border between *holds* and *holds less* is at 0.536.
            (effect(0.5), &[0.50, 0.56, 0.49, 0.57, 0.51], Undecided),
            (effect(0.5), &[0.56, 0.57, 0.60, 0.58, 0.59], Less),
            // And that to *does not hold* at 0.841.
            (effect(0.5), &[0.80, 0.88, 0.79, 0.90, 0.82], Undecided),
            (effect(0.5), &[0.90, 0.88, 0.95, 1.30, 0.87], Not),
            // From much better to much worse: the median alone would say that it holds.
            (effect(0.5), &[0.2, 2.0, 0.3, 1.9, 0.5], Undecided),
            (cost(1.0), &[0.9, 0.95, 1.04], Holds),
            (cost(1.0), &[0.9, 0.95, 1.2], Undecided),
            (cost(1.0), &[1.06, 1.3, 1.2], Less),
            (cost(1.0), &[1.4, 1.5, 1.45], Not),
            (Rule::Same, &[0.97, 1.0, 1.03], Holds),
            (Rule::Same, &[0.7, 1.0, 1.0, 1.0, 1.5], Undecided),
            // Faster by half in every round is a difference, however fine.
            (Rule::Same, &[0.5, 0.52, 0.55], Not),
            (Rule::Same, &[0.8, 0.9, 0.85], Less),
            (LIMIT, &[31.0, 31.5, 32.0], Holds),
            (LIMIT, &[31.0, 33.0, 31.0, 33.0, 32.5], Undecided),
            // Two rounds are no measurement, whatever they say; nor is one.
            (effect(0.5), &[0.5, 0.5], Undecided),
            (effect(0.5), &[0.5], Undecided),
            (effect(0.5), &[], NotRun),
        ];
        for (rule, values, verdict) in table {
            assert_eq!(judge(rule, values, false).verdict, verdict, "{rule:?} and {values:?}");
        }
        assert_eq!(judge(LIMIT, &[8.0], true).verdict, Holds, "what is counted is known by one round");
        assert_eq!(judge(LIMIT, &[], true).verdict, NotRun);
    }

    #[test]
    fn an_interval_is_within_its_values_and_narrows_with_rounds() {
        assert_eq!(interval(&[1.0, 2.0]), None);
        assert_eq!(interval(&[1.0, f64::INFINITY, 2.0]), None);
        let all = |n: u32| (0..n).map(|i| f64::from(i * 37 % n)).collect::<Vec<_>>();
        let Interval { least, most } = interval(&all(5)).unwrap();
        assert_eq!((least, most), (0.0, 4.0), "five rounds say no more than their range");
        let wide = interval(&all(21)).unwrap();
        assert!(wide.least > 3.0 && wide.least < 9.0 && wide.most > 11.0 && wide.most < 17.0, "{wide:?}");
        let even = interval(&all(20)).unwrap();
        assert!((even.least + even.most - 19.0).abs() < 1e-9, "as much on either side: {even:?}");
        // By hand: three draws of five are the least of five with 0.058, of eleven six with 0.0002.
        assert!((at_least(3, 5, 0.2) - 0.05792).abs() < 1e-9 && at_least(6, 11, 1.0 / 11.0) < 0.001);
        // One round that went wrong among many moves it little; it would move a mean far.
        let mut wrong = vec![1.0; 10];
        wrong.push(1000.0);
        assert_eq!(interval(&wrong), Some(Interval { least: 1.0, most: 1.0 }));
    }
}
