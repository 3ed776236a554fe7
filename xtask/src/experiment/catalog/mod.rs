//! Every experiment as data: what it says, how it is repeated here, and the seed's own figures. Measures nothing.

mod checkpoint;
mod library;
mod local;
mod paper;
mod wire;

use super::record::{Claim, Rule};
use crate::bench::data::Set;
use crate::bench::remote::rows::Row;

/// One experiment.
pub struct Experiment {
    pub id: &'static str,
    pub title: &'static str,
    /// Where the seed tells of it.
    pub text: &'static str,
    pub hypothesis: &'static str,
    pub method: &'static str,
    /// What is otherwise than in the seed.
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
    /// What the seed's figures are in, where that is something else.
    pub seed_unit: Option<&'static str>,
    pub work: Work,
}

pub enum Work {
    Lines(Lines),
    /// A row of `bench remote`, with the seed's figures by lane.
    Wire {
        row: Row,
        seeds: Vec<(&'static str, f64)>,
        crowd: bool,
    },
    /// Time to the first byte of files of these sizes (MiB) that go on at three quarters, with the seed's figures for
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
    Mebibytes,
    Blocks,
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
    pub seed: Option<f64>,
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

const MIB: u64 = 1 << 20;

fn line(name: &str, line: &str, seed: f64) -> Line {
    Line { seed: Some(seed), ..ours(name, line) }
}

/// A line of which the seed has no figure.
fn ours(name: &str, line: &str) -> Line {
    Line { name: name.to_owned(), line: line.to_owned(), seed: None, needs: None }
}

fn warm(set: Set, rounds: usize, lines: Vec<Line>) -> Work {
    Work::Lines(Lines { set, cache: Cache::Warm, across: false, rounds, lines })
}

fn cold(set: Set, rounds: usize, lines: Vec<Line>) -> Work {
    Work::Lines(Lines { set, cache: Cache::Cold, across: false, rounds, lines })
}

fn part(title: impl Into<String>, unit: &'static str, work: Work) -> Part {
    Part { title: title.into(), unit, seed_unit: None, work }
}

fn claim(part: usize, says: &str, line: &str, against: &str, rule: Rule) -> Claim {
    let against = (!against.is_empty()).then(|| against.to_owned());
    Claim { says: says.to_owned(), part, line: line.to_owned(), against, rule }
}

/// `line` over `against` is what the seed has.
fn effect(part: usize, says: &str, line: &str, against: &str, seed: f64) -> Claim {
    claim(part, says, line, against, Rule::Effect { seed })
}

/// `line` over `against` is no more than what the seed has.
fn cost(part: usize, says: &str, line: &str, against: &str, seed: f64) -> Claim {
    claim(part, says, line, against, Rule::Cost { seed })
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
                    if let Work::Wire { row, seeds, .. } = &part.work {
                        for (lane, _) in seeds {
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
            assert_eq!(of("checkpoint"), [1, 2, 3, 4, 5, 6]);
            assert_eq!((of("paper").len(), of("library").len()), (8, 6));
        }
    }
}
