//! What an experiment has found, as data. Must not know how anything is measured, judged or shown.

use crate::measure::median;
use crate::verdict::{self, Judged, Rule, Verdict};
use serde::{Deserialize, Serialize};

/// One experiment, whole: its page needs nothing else.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// 1; counted up when a reader would have to change.
    pub schema: u32,
    pub id: String,
    pub title: String,
    /// Where the paper tells of it.
    pub text: String,
    pub hypothesis: String,
    pub method: String,
    /// What is otherwise than in the paper; empty when nothing is.
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
    /// What the paper's figures are in.
    #[serde(alias = "seed_unit")]
    pub published_unit: String,
    /// What was copied and where it lay.
    pub place: String,
    /// What data that was, as the catalogue has it; empty in records of before.
    #[serde(default)]
    pub data: String,
    /// Counted and not timed: the same in every round, and so known by one.
    #[serde(default)]
    pub counted: bool,
    pub lines: Vec<LineRecord>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LineRecord {
    pub name: String,
    pub command: String,
    /// The paper's own figure.
    #[serde(alias = "seed")]
    pub published: Option<f64>,
    /// Why there are no values.
    pub absent: Option<String>,
    /// By rounds.
    pub values: Vec<f64>,
    pub cpu_s: Vec<f64>,
    /// CPU seconds of others meanwhile, the kernel's own threads among them.
    pub foreign_s: Vec<f64>,
}

/// Something the paper says, in a form that figures can answer. The first claim of a record is its headline: what the
/// hypothesis stands or falls with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    pub says: String,
    pub part: usize,
    pub line: String,
    /// The value is `line`'s over this one's in the same round; without it the value itself.
    pub against: Option<String>,
    pub rule: Rule,
}

impl LineRecord {
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
    pub fn line(&self, name: &str) -> Option<&LineRecord> {
        self.lines.iter().find(|l| l.name == name && !l.values.is_empty())
    }

    /// What the others are shown against.
    pub fn base(&self) -> Option<&LineRecord> {
        self.lines.iter().find(|l| !l.values.is_empty())
    }
}

/// By rounds: drift of the machine cancels out. Where one took part in fewer rounds, those.
pub fn paired(line: &LineRecord, against: &LineRecord) -> Vec<f64> {
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

    pub fn judge(&self, claim: &Claim) -> Judged {
        let counted = self.parts.get(claim.part).is_some_and(|part| part.counted);
        verdict::judge(claim.rule, &self.here(claim), counted)
    }

    /// That of the headline.
    pub fn verdict(&self) -> Verdict {
        self.claims.first().map_or(Verdict::NotRun, |claim| self.judge(claim).verdict)
    }

    /// How many claims have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.claims.iter().filter(|claim| self.judge(claim).verdict == verdict).count()
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

    pub fn line(name: &str, values: &[f64]) -> LineRecord {
        LineRecord {
            name: name.to_owned(),
            command: format!("{name} SRC DST"),
            published: None,
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
            text: "The paper, Experiment 7".to_owned(),
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
                published_unit: "s".to_owned(),
                place: "ext4".to_owned(),
                data: "One { bytes: 1 }".to_owned(),
                counted: false,
                lines: vec![
                    LineRecord { published: Some(1.0), ..line("cp", &[1.0, 4.0, 4.0]) },
                    LineRecord { published: Some(0.5), ..line("ours", &[0.5, 2.0, 2.12]) },
                    LineRecord { absent: Some("not there".to_owned()), ..line("xcp", &[]) },
                ],
            }],
            claims: vec![
                claim("ours", Rule::Effect { published: 0.5 }),
                claim("xcp", Rule::Effect { published: 0.5 }),
            ],
        }
    }

    #[test]
    fn rounds_are_compared_in_pairs_and_the_headline_has_the_say() {
        use Verdict::{Holds, Less, Not, NotRun, Undecided};
        let mut it = record("local-7");
        assert_eq!(it.here(&it.claims[0]), [0.5, 0.5, 0.53]);
        assert_eq!(it.judge(&it.claims[1]).verdict, NotRun);
        assert_eq!(it.verdict(), Holds);
        it.claims.push(claim("ours", Rule::Limit { most: 0.4 }));
        it.claims.push(claim("ours", Rule::Effect { published: 0.3 }));
        it.claims.push(claim("ours", Rule::Limit { most: 0.51 }));
        assert_eq!(it.verdict(), Holds, "whatever the others say");
        assert_eq!(Verdict::ALL.map(|v| it.count(v)), [1, 1, 1, 1, 1]);
        it.claims.remove(0);
        assert_eq!(it.verdict(), NotRun, "another claim does not stand in for the headline");
        let verdicts: Vec<_> = it.claims.iter().map(|c| it.judge(c).verdict).collect();
        assert_eq!(verdicts, [NotRun, Not, Less, Undecided]);
        it.parts[0].counted = true;
        assert_eq!(it.judge(&it.claims[3]).verdict, Holds, "what is counted has no spread");
        it.parts.clear();
        assert_eq!(it.verdict(), NotRun);
        assert!((record("a").disturbed().unwrap() - 0.05).abs() < 1e-9);
    }

    #[test]
    fn records_of_before_can_be_read() {
        let text = serde_json::to_string(&record("a")).unwrap();
        let before = text.replace("published_unit", "seed_unit").replace("published", "seed");
        let before = before.replace("\"counted\":false,", "");
        let text = text.replace("One { bytes: 1 }", "");
        let before = before.replace("\"data\":\"One { bytes: 1 }\",", "");
        assert_ne!(text, before);
        let read: Record = serde_json::from_str(&before).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }

    #[test]
    fn figures_keep_three_digits() {
        let shown: Vec<String> =
            [1234.4, 12.34, 1.234, 0.1234, 0.01234, 0.001_234, 0.000_012].map(figure).to_vec();
        assert_eq!(shown, ["1234", "12.3", "1.23", "0.12", "0.012", "0.0012", "1.20e-5"]);
    }
}
