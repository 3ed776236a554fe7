//! Every experiment as data: what it says, how it is repeated here, and the paper's own figures. Measures nothing.

mod checkpoint;
mod library;
mod local;
mod paper;
mod wire;

use super::record::{Claim, Record};
use crate::bench::data::Set;
use crate::bench::remote::rows::Row;
use crate::bench::remote::{papers, probe};
use crate::bench::verdict::Rule;

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
    pub parts: Vec<Part>,
    pub claims: Vec<Claim>,
    /// Why it can be run on no machine of this kind.
    pub never: Option<&'static str>,
}

pub struct Part {
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

impl Part {
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
        row: Row,
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
    pub lines: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    Warm,
    /// Dropped before each run, which needs root.
    Cold,
}

#[derive(Clone)]
pub struct Line {
    pub name: String,
    /// `{s}` and `{d}` are source and destination; a line that begins with `inside` is one of [`super::inside`].
    pub line: String,
    pub published: Option<f64>,
    /// An option that the program under measurement has to know.
    pub needs: Option<&'static str>,
}

/// Every experiment. `quick` is less data, to see that it runs; its figures are for no record.
pub fn all(quick: bool) -> Vec<Experiment> {
    let mut all = local::all(quick);
    all.extend(wire::all(quick));
    all.extend(checkpoint::all(quick));
    all.extend(paper::all(quick));
    all.extend(library::all(quick));
    all
}

/// A lane's command as a record has it.
pub fn shown(line: &str) -> String {
    papers::shown(line).trim_matches('`').replace("\\|", "|")
}

const MIB: u64 = 1 << 20;

fn line(name: &str, line: &str, published: f64) -> Line {
    Line { published: Some(published), ..ours(name, line) }
}

/// A line of which the paper has no figure.
fn ours(name: &str, line: &str) -> Line {
    Line { name: name.to_owned(), line: line.to_owned(), published: None, needs: None }
}

fn warm(set: Set, rounds: usize, lines: Vec<Line>) -> Work {
    Work::Lines(Lines { set, cache: Cache::Warm, across: false, rounds, lines })
}

fn cold(set: Set, rounds: usize, lines: Vec<Line>) -> Work {
    Work::Lines(Lines { set, cache: Cache::Cold, across: false, rounds, lines })
}

fn part(title: impl Into<String>, unit: &'static str, work: Work) -> Part {
    Part { title: title.into(), unit, published_unit: None, work }
}

fn claim(part: usize, says: &str, line: &str, against: &str, rule: Rule) -> Claim {
    let against = (!against.is_empty()).then(|| against.to_owned());
    Claim { says: says.to_owned(), part, line: line.to_owned(), against, rule }
}

/// `line` over `against` is what the paper has.
fn effect(part: usize, says: &str, line: &str, against: &str, published: f64) -> Claim {
    claim(part, says, line, against, Rule::Effect { published })
}

/// `line` and `against` are the same.
fn alike(part: usize, says: &str, line: &str, against: &str) -> Claim {
    claim(part, says, line, against, Rule::Same)
}

/// `line` over `against` is no more than what the paper has.
fn cost(part: usize, says: &str, line: &str, against: &str, published: f64) -> Claim {
    claim(part, says, line, against, Rule::Cost { published })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that a part will have.
    fn names(part: &Part) -> Vec<String> {
        match &part.work {
            Work::Lines(lines) => lines.lines.iter().map(|l| l.name.clone()).collect(),
            Work::Wire { row, .. } => row.lanes.iter().map(|l| l.name.to_owned()).collect(),
            Work::Resume { sizes, .. } => {
                let modes = ["-s", "-C", "-C --fast"];
                sizes.iter().flat_map(|(mib, _)| modes.map(|m| format!("{m}, {mib} MiB"))).collect()
            }
            // Checked by a run of `cargo xtask ci`.
            Work::Codecs(_) | Work::Store(_) => Vec::new(),
        }
    }

    #[test]
    fn words_are_taken_over_where_the_lines_are_the_same() {
        let mut record = crate::experiment::tests::record("local-7");
        let lines =
            vec![line("cp", "cp SRC DST", 1.0), ours("ours", "ours SRC DST"), ours("xcp", "xcp {s} {d}")];
        let it = |lines| Experiment {
            id: "local-7",
            title: "new",
            text: "new",
            hypothesis: "new",
            method: "new",
            differs: "new",
            parts: vec![part("new", "s", warm(Set::One { bytes: 1 }, 3, lines))],
            claims: Vec::new(),
            never: None,
        };
        let before = serde_json::to_string(&record).unwrap();
        let mut other = lines.clone();
        other[1].line.push_str(" --faster");
        assert!(!it(other).reword(&mut record), "another command");
        assert!(!it(lines[..2].to_vec()).reword(&mut record), "a line less");
        let mut larger = it(lines.clone());
        larger.parts[0].work = warm(Set::One { bytes: 2 }, 3, lines.clone());
        assert!(!larger.reword(&mut record), "other data");
        assert_eq!(serde_json::to_string(&record).unwrap(), before);
        assert!(it(lines).reword(&mut record));
        assert!(record.claims.is_empty() && record.title == "new" && record.parts[0].title == "new");
        assert_eq!(record.parts[0].lines[0].values, [1.0, 4.0, 4.0], "what was measured stays");
    }

    #[test]
    fn claims_name_lines_that_exist_and_everything_has_its_words() {
        for quick in [false, true] {
            let mut ids: Vec<&str> = Vec::new();
            for it in all(quick) {
                assert!(!ids.contains(&it.id), "{} twice", it.id);
                ids.push(it.id);
                for words in [it.title, it.text, it.hypothesis, it.method] {
                    assert!(!words.is_empty() && !words.contains('\n'), "{}", it.id);
                }
                assert_eq!(it.parts.is_empty(), it.never.is_some(), "{}", it.id);
                assert_eq!(it.claims.is_empty(), it.never.is_some(), "{}", it.id);
                for claim in &it.claims {
                    let part = it.parts.get(claim.part).expect(it.id);
                    let names = names(part);
                    for line in std::iter::once(&claim.line).chain(&claim.against) {
                        assert!(names.is_empty() || names.contains(line), "{}: {line} in {names:?}", it.id);
                    }
                }
                for part in &it.parts {
                    if let Work::Wire { row, published, .. } = &part.work {
                        for (lane, _) in published {
                            assert!(row.lanes.iter().any(|l| l.name == *lane), "{}: {lane}", it.id);
                        }
                    }
                }
            }
            let of = |group: &str| -> Vec<u32> {
                ids.iter().filter_map(|id| id.strip_prefix(group)?.strip_prefix('-')?.parse().ok()).collect()
            };
            assert_eq!(of("local"), [7, 8, 10, 13, 16]);
            assert_eq!(of("wire"), [9, 11, 12, 14, 15, 17, 18, 19, 20]);
            assert_eq!(of("checkpoint"), [1, 2, 3, 4, 5, 6, 7]);
            assert_eq!((of("paper").len(), of("library").len()), (8, 6));
        }
    }
}
