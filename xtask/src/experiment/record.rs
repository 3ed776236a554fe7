//! What an experiment has found, as data, and the rule that makes a verdict of it. Must not know how anything is
//! measured or shown.

use crate::bench::measure::median;
use serde::{Deserialize, Serialize};

/// One experiment, whole: its page needs nothing else.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// 1; counted up when a reader would have to change.
    pub schema: u32,
    pub id: String,
    pub title: String,
    /// Where the seed tells of it.
    pub text: String,
    pub hypothesis: String,
    pub method: String,
    /// What is otherwise than in the seed; empty when nothing is.
    pub differs: String,
    pub machine: String,
    pub cores: usize,
    pub commit: String,
    pub command: String,
    /// Less data and fewer rounds: not for any record.
    pub quick: bool,
    pub took_s: f64,
    /// Why there is nothing below.
    pub not_run: Option<String>,
    pub parts: Vec<Part>,
    pub claims: Vec<Claim>,
}

/// Lines that took turns; the first that was there is what the others are shown against.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    pub title: String,
    pub unit: String,
    /// What the seed's figures are in.
    pub seed_unit: String,
    /// What was copied and where it lay.
    pub place: String,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    pub name: String,
    pub command: String,
    /// The seed's own figure.
    pub seed: Option<f64>,
    /// Why there are no values.
    pub absent: Option<String>,
    /// By rounds.
    pub values: Vec<f64>,
    pub cpu_s: Vec<f64>,
    /// CPU seconds of others meanwhile, the kernel's own threads among them.
    pub foreign_s: Vec<f64>,
}

/// Something the seed says, in a form that figures can answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    pub says: String,
    pub part: usize,
    pub line: String,
    /// The value is `line`'s over this one's in the same round; without it the value itself.
    pub against: Option<String>,
    pub rule: Rule,
}

/// How a figure becomes a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// One thing differs from another by this ratio. What counts is how much of the effect is there, in logarithms.
    Effect { seed: f64 },
    /// Something costs this ratio and no more.
    Cost { seed: f64 },
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
    NotRun,
}

/// Of the seed's effect, for *holds* and for *holds less*.
pub const EFFECT_WHOLE: f64 = 0.9;
pub const EFFECT_PART: f64 = 0.25;
/// Times the seed's cost, the same.
pub const COST_WHOLE: f64 = 1.05;
pub const COST_PART: f64 = 1.35;
/// Times the bound of a growth, for *holds less*.
pub const GROWTH_PART: f64 = 2.0;

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Less => "holds less",
            Verdict::Not => "does not hold here",
            Verdict::NotRun => "not run",
        }
    }
}

impl Rule {
    pub fn judge(self, here: Option<f64>) -> Verdict {
        let Some(here) = here.filter(|h| h.is_finite()) else { return Verdict::NotRun };
        let (whole, part) = match self {
            Rule::Effect { seed } => {
                let share = here.ln() / seed.ln();
                (share >= EFFECT_WHOLE, share >= EFFECT_PART)
            }
            Rule::Cost { seed } => (here <= seed * COST_WHOLE, here <= seed * COST_PART),
            Rule::Growth { most } => (here <= most, here <= most * GROWTH_PART),
            Rule::Limit { most } => (here <= most, false),
        };
        match (whole, part) {
            (true, _) => Verdict::Holds,
            (false, true) => Verdict::Less,
            (false, false) => Verdict::Not,
        }
    }

    /// The figure that the seed has, or the bound, in words.
    pub fn shown(self) -> String {
        match self {
            Rule::Effect { seed } => figure(seed),
            Rule::Cost { seed } => format!("{} at most", figure(seed)),
            Rule::Growth { most } | Rule::Limit { most } => format!("{} at most", figure(most)),
        }
    }
}

impl Line {
    pub fn median(&self) -> f64 {
        median(self.values.iter().copied())
    }
    pub fn range(&self) -> (f64, f64) {
        range(&self.values)
    }
}

/// The least and the most.
pub fn range(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

impl Part {
    /// The line of this name, when it was measured.
    pub fn line(&self, name: &str) -> Option<&Line> {
        self.lines.iter().find(|l| l.name == name && !l.values.is_empty())
    }

    /// What the others are shown against.
    pub fn base(&self) -> Option<&Line> {
        self.lines.iter().find(|l| !l.values.is_empty())
    }
}

/// By rounds: drift of the machine cancels out. Where one took part in fewer rounds, those.
pub fn paired(line: &Line, against: &Line) -> Vec<f64> {
    line.values.iter().zip(&against.values).map(|(a, b)| a / b).collect()
}

impl Record {
    /// What answers a claim, by rounds; empty when it was not measured.
    pub fn here(&self, claim: &Claim) -> Vec<f64> {
        let answer = || {
            let part = self.parts.get(claim.part)?;
            let line = part.line(&claim.line)?;
            match &claim.against {
                None => Some(line.values.clone()),
                Some(other) => Some(paired(line, part.line(other)?)),
            }
        };
        answer().unwrap_or_default()
    }

    pub fn judge(&self, claim: &Claim) -> Verdict {
        let here = self.here(claim);
        claim.rule.judge((!here.is_empty()).then(|| median(here)))
    }

    /// One word for the whole: what all claims that could be judged agree on, else that it holds less.
    pub fn verdict(&self) -> Verdict {
        let judged = || self.claims.iter().map(|c| self.judge(c)).filter(|v| *v != Verdict::NotRun);
        let Some(first) = judged().next() else { return Verdict::NotRun };
        if judged().all(|v| v == first) { first } else { Verdict::Less }
    }

    /// The part of the machine that others used, in the middle; `None` when no line knows.
    pub fn disturbed(&self) -> Option<f64> {
        let lines = self.parts.iter().filter(|p| p.unit == "s").flat_map(|p| &p.lines);
        let parts: Vec<f64> = lines
            .flat_map(|l| l.foreign_s.iter().zip(&l.values).map(|(f, v)| f / (v * self.cores as f64)))
            .collect();
        (!parts.is_empty()).then(|| median(parts))
    }
}

/// Three digits that say something.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let digits = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 0.1 => 2,
        v if v >= 0.01 => 3,
        v if v >= 0.001 => 4,
        _ => return format!("{value:.2e}"),
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
pub mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        use Verdict::{Holds, Less, Not, NotRun};
        let effect = |seed| Rule::Effect { seed };
        let cost = |seed| Rule::Cost { seed };
        let growth = Rule::Growth { most: 1.5 };
        let limit = Rule::Limit { most: 32.0 };
        // rule, what was found, verdict
        let table = [
            (effect(0.5), Some(0.5), Holds),
            (effect(0.5), Some(0.3), Holds),
            (effect(0.5), Some(0.53), Holds),
            (effect(0.5), Some(0.55), Less),
            (effect(0.5), Some(0.83), Less),
            (effect(0.5), Some(0.86), Not),
            (effect(0.5), Some(1.0), Not),
            (effect(0.5), Some(2.0), Not),
            // 13.75 times: half of it in logarithms is 3.7 times.
            (effect(0.0727), Some(0.27), Less),
            (effect(0.0727), Some(0.09), Holds),
            // Seven per cent are held by six and a half.
            (effect(0.934), Some(0.94), Holds),
            (effect(0.934), Some(0.96), Less),
            (effect(0.934), Some(0.99), Not),
            // The other way round: something is so many times as slow.
            (effect(2.0), Some(2.0), Holds),
            (effect(2.0), Some(1.3), Less),
            (effect(2.0), Some(1.1), Not),
            (effect(2.0), Some(0.5), Not),
            (cost(1.18), Some(0.4), Holds),
            (cost(1.18), Some(1.23), Holds),
            (cost(1.18), Some(1.25), Less),
            (cost(1.18), Some(1.6), Not),
            (growth, Some(1.5), Holds),
            (growth, Some(2.9), Less),
            (growth, Some(3.1), Not),
            (limit, Some(32.0), Holds),
            (limit, Some(32.1), Not),
            (limit, None, NotRun),
            (limit, Some(f64::NAN), NotRun),
        ];
        for (rule, here, verdict) in table {
            assert_eq!(rule.judge(here), verdict, "{rule:?} and {here:?}");
        }
    }

    pub fn line(name: &str, values: &[f64]) -> Line {
        Line {
            name: name.to_owned(),
            command: format!("{name} SRC DST"),
            seed: None,
            absent: None,
            values: values.to_vec(),
            cpu_s: Vec::new(),
            foreign_s: values.iter().map(|v| v / 10.0).collect(),
        }
    }

    fn claim(line: &str, rule: Rule) -> Claim {
        let against = Some("cp".to_owned());
        Claim { says: "so".to_owned(), part: 0, line: line.to_owned(), against, rule }
    }

    /// A record with nothing left out.
    pub fn record(id: &str) -> Record {
        Record {
            schema: 1,
            id: id.to_owned(),
            title: "Files <by> the many".to_owned(),
            text: "The seed, Experiment 7".to_owned(),
            hypothesis: "It is so & so.".to_owned(),
            method: "By turns.".to_owned(),
            differs: "A relay | a link.".to_owned(),
            machine: "A machine".to_owned(),
            cores: 2,
            commit: "abc".to_owned(),
            command: format!("cargo xtask experiment {id}"),
            quick: false,
            took_s: 3.0,
            not_run: None,
            parts: vec![Part {
                title: "2,100 x 4 KiB".to_owned(),
                unit: "s".to_owned(),
                seed_unit: "s".to_owned(),
                place: "ext4".to_owned(),
                lines: vec![
                    Line { seed: Some(1.0), ..line("cp", &[1.0, 4.0, 4.0]) },
                    Line { seed: Some(0.5), ..line("ours", &[0.5, 2.0, 2.2]) },
                    Line { absent: Some("not there".to_owned()), ..line("xcp", &[]) },
                ],
            }],
            claims: vec![claim("ours", Rule::Effect { seed: 0.5 }), claim("xcp", Rule::Effect { seed: 0.5 })],
        }
    }

    #[test]
    fn rounds_are_compared_in_pairs_and_what_is_absent_has_no_say() {
        let mut it = record("local-7");
        assert_eq!(it.here(&it.claims[0]), [0.5, 0.5, 0.55]);
        assert_eq!(it.judge(&it.claims[1]), Verdict::NotRun);
        assert_eq!(it.verdict(), Verdict::Holds);
        it.claims.push(claim("ours", Rule::Limit { most: 0.4 }));
        assert_eq!(it.verdict(), Verdict::Less, "one holds and one does not");
        it.claims.remove(0);
        assert_eq!(it.verdict(), Verdict::Not);
        it.parts.clear();
        assert_eq!(it.verdict(), Verdict::NotRun);
        assert!((record("a").disturbed().unwrap() - 0.05).abs() < 1e-9);
    }

    #[test]
    fn figures_keep_three_digits() {
        let shown: Vec<String> =
            [1234.4, 12.34, 1.234, 0.1234, 0.01234, 0.001_234, 0.000_012].map(figure).to_vec();
        assert_eq!(shown, ["1234", "12.3", "1.23", "0.12", "0.012", "0.0012", "1.20e-5"]);
    }
}
