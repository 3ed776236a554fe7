//! An experiment as data, and the words that the catalog is written in. Measures nothing.

use super::record::{Claim, Record};
use crate::data::Set;
use crate::remote::rows::RemoteRow;
use crate::remote::{pages, probe};
pub use crate::rows::Cache;
use crate::verdict::Rule;

/// One experiment.
pub struct Experiment {
    pub id: &'static str,
    pub title: &'static str,
    /// Where the paper tells of it.
    pub text: &'static str,
    pub hypothesis: &'static str,
    pub method: &'static str,
    /// What is otherwise than in the paper.
    pub differs: &'static str,
    pub parts: Vec<PartSpec>,
    pub claims: Vec<Claim>,
    /// Why it can be run on no machine of this kind.
    pub never: Option<&'static str>,
}

pub struct PartSpec {
    pub title: String,
    /// `s`, `ms` or `µs`; whatever else is taken as it comes.
    pub unit: &'static str,
    /// What the paper's figures are in, where that is something else.
    pub published_unit: Option<&'static str>,
    pub work: Work,
}

impl Experiment {
    /// Puts these words and claims into a record of the same lines; `false`, and nothing is changed, where it is of others.
    pub fn reword(&self, record: &mut Record) -> bool {
        let alike = self.parts.len() == record.parts.len()
            && self.parts.iter().zip(&record.parts).all(|(part, found)| part.measures_as(found));
        if !alike {
            return false;
        }
        for (part, found) in self.parts.iter().zip(&mut record.parts) {
            found.title.clone_from(&part.title);
            found.counted = part.counted();
        }
        record.title = self.title.to_owned();
        record.text = self.text.to_owned();
        record.hypothesis = self.hypothesis.to_owned();
        record.method = self.method.to_owned();
        record.differs = self.differs.to_owned();
        record.claims.clone_from(&self.claims);
        if let Some(why) = self.never {
            record.not_run = Some(why.to_owned());
        }
        true
    }
}

impl PartSpec {
    /// Whether a record's part is of these very lines.
    fn measures_as(&self, found: &super::record::Part) -> bool {
        let same = |mine: Vec<(&str, String)>| {
            let shown = |line: &str| line.replace("{s}", "SRC").replace("{d}", "DST");
            mine.len() == found.lines.len()
                && mine.iter().zip(&found.lines).all(|((name, line), there)| {
                    *name == there.name && (line.is_empty() || shown(line) == there.command)
                })
        };
        let named = match &self.work {
            Work::Lines(work) => work.lines.iter().map(|l| (l.name.as_str(), l.line.clone())).collect(),
            Work::Wire { row, .. } => row.lanes.iter().map(|l| (l.name, shown(l.line))).collect(),
            // Whose lines follow from the measuring program.
            Work::Resume { .. } | Work::Codecs(_) | Work::Store(_) => {
                return self.unit == found.unit && self.data() == found.data;
            }
        };
        self.unit == found.unit && self.data() == found.data && same(named)
    }

    /// What is copied, packed or sent, in words that change with it.
    pub fn data(&self) -> String {
        match &self.work {
            Work::Lines(work) => format!("{:?}", work.set),
            Work::Wire { row, .. } => format!("{:?}", row.set),
            Work::Resume { sizes, .. } => format!("{:?} MiB", sizes.iter().map(|s| s.0).collect::<Vec<_>>()),
            Work::Codecs(_) => format!("noise and sources, {} times", probe::TIMES),
            Work::Store(_) => "three files of 24 MiB".to_owned(),
        }
    }

    /// Its values are counted and not timed.
    pub fn counted(&self) -> bool {
        matches!(self.work, Work::Codecs(CodecFigure::Ratio) | Work::Store(_))
    }
}

pub enum Work {
    Lines(Lines),
    /// A row of `bench remote`, with the paper's figures by lane.
    Wire {
        row: RemoteRow,
        published: Vec<(&'static str, f64)>,
        crowd: bool,
    },
    /// Time to the first byte of files of these sizes (MiB) that go on at three quarters, with the paper's figures for
    /// hashing again and for one block.
    Resume {
        sizes: Vec<(u64, Option<(f64, f64)>)>,
        rounds: usize,
    },
    Codecs(CodecFigure),
    Store(StoreFigure),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CodecFigure {
    Ratio,
    Pack,
    Unpack,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StoreFigure {
    Remembered,
    Blocks,
    Disk,
}

/// Commands that take turns over one set of data.
pub struct Lines {
    pub set: Set,
    pub cache: Cache,
    /// The source lies on another file system than the copies.
    pub across: bool,
    pub rounds: usize,
    pub lines: Vec<LineSpec>,
}

#[derive(Clone)]
pub struct LineSpec {
    pub name: String,
    /// `{s}` and `{d}` are source and destination; a line that begins with `inside` is one of [`super::inside`].
    pub line: String,
    pub published: Option<f64>,
    /// An option that the program under measurement has to know.
    pub needs: Option<&'static str>,
}

/// A lane's command as a record has it.
pub fn shown(line: &str) -> String {
    pages::shown(line).trim_matches('`').replace("\\|", "|")
}

pub const MIB: u64 = 1 << 20;

pub fn line(name: &str, line: &str, published: f64) -> LineSpec {
    LineSpec { published: Some(published), ..ours(name, line) }
}

/// A line of which the paper has no figure.
pub fn ours(name: &str, line: &str) -> LineSpec {
    LineSpec { name: name.to_owned(), line: line.to_owned(), published: None, needs: None }
}

pub fn warm(set: Set, rounds: usize, lines: Vec<LineSpec>) -> Work {
    Work::Lines(Lines { set, cache: Cache::Warm, across: false, rounds, lines })
}

pub fn cold(set: Set, rounds: usize, lines: Vec<LineSpec>) -> Work {
    Work::Lines(Lines { set, cache: Cache::Cold, across: false, rounds, lines })
}

pub fn part(title: impl Into<String>, unit: &'static str, work: Work) -> PartSpec {
    PartSpec { title: title.into(), unit, published_unit: None, work }
}

pub fn claim(part: usize, says: &str, line: &str, against: &str, rule: Rule) -> Claim {
    let against = (!against.is_empty()).then(|| against.to_owned());
    Claim { says: says.to_owned(), part, line: line.to_owned(), against, rule }
}

/// `line` over `against` is what the paper has.
pub fn effect(part: usize, says: &str, line: &str, against: &str, published: f64) -> Claim {
    claim(part, says, line, against, Rule::Effect { published })
}

/// `line` and `against` are the same.
pub fn alike(part: usize, says: &str, line: &str, against: &str) -> Claim {
    claim(part, says, line, against, Rule::Same)
}

/// `line` over `against` is no more than what the paper has.
pub fn cost(part: usize, says: &str, line: &str, against: &str, published: f64) -> Claim {
    claim(part, says, line, against, Rule::Cost { published })
}
