//! What `bench local` has found, as data (JSON), as a table on the terminal, and as its section of the document. Must not
//! know how anything is measured.

use crate::data::Size;
use crate::measure::{Calls, Sample, median, memory_bytes};
use crate::rows::{self, Cache, Goal, OURS, Row};
use crate::svg;
use crate::verdict::{self, Judged, Rule, Verdict};
use serde::{Deserialize, Serialize};
use sh::Result;
use std::fmt::Write;
use std::path::Path;

/// One run of the benchmark.
#[derive(Clone, Serialize, Deserialize)]
pub struct LocalRecord {
    /// 1; counted up when a reader would have to change.
    pub schema: u32,
    /// A tenth of the data: not for any record.
    pub quick: bool,
    pub date: String,
    pub kernel: String,
    pub cpu: String,
    pub cores: usize,
    pub memory_gib: u64,
    pub file_system: String,
    pub rows: Vec<RowRecord>,
}

/// One row: who took how long.
#[derive(Clone, Serialize, Deserialize)]
pub struct RowRecord {
    pub name: String,
    pub title: String,
    pub cold: bool,
    /// What was measured, with `+` when the work tree had changes.
    pub commit: String,
    pub command: String,
    pub data: Size,
    pub source_allocated_bytes: u64,
    pub tools: Vec<ToolRecord>,
    pub outcomes: Vec<Outcome>,
}

/// One tool in one row; the first is what the others are compared with.
#[derive(Clone, Serialize, Deserialize)]
pub struct ToolRecord {
    pub name: String,
    pub line: String,
    pub version: String,
    pub samples: Vec<Sample>,
    pub calls: Option<Calls>,
    pub allocated_bytes: Option<u64>,
}

/// What goals are called, before the name of whom they are against.
const WALL: &str = "wall / ";
const CPU: &str = "CPU / ";
const ABOVE: &str = "ms above ";
const WITHIN: &str = "ms";
const BLOCKS: &str = "blocks / source's";

/// A goal and what came of it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub goal: String,
    pub value: f64,
    pub most: f64,
    pub met: bool,
}

impl LocalRecord {
    pub fn of_this_machine(dir: &Path, quick: bool) -> Result<LocalRecord> {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Ok(LocalRecord {
            schema: 1,
            quick,
            date: sh::output("date", &["-u", "+%Y-%m-%d"])?,
            kernel: sh::output("uname", &["-sr"])?,
            cpu: model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default(),
            cores: std::thread::available_parallelism()?.get(),
            memory_gib: (memory_bytes("MemTotal") + (1 << 29)) >> 30,
            file_system: sh::output("stat", &["-f", "-c", "%T", &dir.to_string_lossy()])?
                .replace("ext2/ext3", "ext4"),
            rows: Vec::new(),
        })
    }

    /// The machine, in one line.
    pub fn headline(&self) -> String {
        let quick = if self.quick { "; QUICK: a tenth of the data, not for any record" } else { "" };
        format!(
            "{}, {} cores, {} GiB, {}, {}, {}{quick}",
            self.cpu, self.cores, self.memory_gib, self.kernel, self.file_system, self.date
        )
    }
}

impl ToolRecord {
    fn wall(&self) -> f64 {
        median(self.samples.iter().map(|s| s.wall_s))
    }
    fn cpu(&self) -> f64 {
        median(self.samples.iter().map(cpu))
    }
    fn peak_kib(&self) -> u64 {
        self.samples.iter().map(|s| s.peak_kib).max().unwrap_or(0)
    }
    fn range(&self) -> (f64, f64) {
        let walls = || self.samples.iter().map(|s| s.wall_s);
        (walls().fold(f64::INFINITY, f64::min), walls().fold(0.0, f64::max))
    }
}

fn cpu(sample: &Sample) -> f64 {
    sample.user_s + sample.sys_s
}

/// Our value divided by theirs in the same round, by rounds: drift of the machine cancels out.
fn pairs(ours: &ToolRecord, other: &ToolRecord, value: fn(&Sample) -> f64) -> Vec<f64> {
    ours.samples.iter().zip(&other.samples).map(|(a, b)| value(a) / value(b)).collect()
}

/// The median of those.
fn paired(ours: &ToolRecord, other: &ToolRecord, value: fn(&Sample) -> f64) -> f64 {
    median(pairs(ours, other, value))
}

/// What came of a promise, from the values of every round; `counted` ones have no spread.
pub fn outcome(most: f64, values: &[f64], counted: bool) -> Judged {
    verdict::judge(Rule::Limit { most }, values, counted)
}

/// The same in a word.
pub fn word(found: &Judged) -> &'static str {
    match found.verdict {
        Verdict::Holds => "met",
        Verdict::Less | Verdict::Not => "**missed**",
        Verdict::Undecided => "undecided",
        Verdict::NotRun => "not measured",
    }
}

/// The median of values and where it lies.
pub fn spread(found: &Judged) -> String {
    match found.interval {
        Some(interval) => format!("{:.2} ({:.2} - {:.2})", found.value, interval.least, interval.most),
        None => format!("{:.2}", found.value),
    }
}

/// What is measured, with `+` when the work tree has changes outside `docs`, where records go.
pub fn commit() -> Result<String> {
    let status = ["status", "--porcelain", "--untracked-files=no", "--", ":/", ":/!docs"];
    let changed = !sh::output("git", &status)?.is_empty();
    Ok(sh::output("git", &["rev-parse", "--short=12", "HEAD"])? + if changed { "+" } else { "" })
}

impl RowRecord {
    pub fn new(
        row: &Row,
        data: Size,
        source_allocated_bytes: u64,
        tools: Vec<ToolRecord>,
    ) -> Result<RowRecord> {
        let mut made = RowRecord {
            name: row.name.to_owned(),
            title: row.title.to_owned(),
            cold: row.cache == Cache::Cold,
            commit: commit()?,
            command: String::new(),
            data,
            source_allocated_bytes,
            tools,
            outcomes: Vec::new(),
        };
        made.outcomes = row.goals.iter().filter_map(|goal| made.judge(goal)).collect();
        Ok(made)
    }

    fn tool(&self, name: &str) -> Option<&ToolRecord> {
        self.tools.iter().find(|t| t.name == name && !t.samples.is_empty())
    }

    /// `None` when what the goal names was not there.
    fn judge(&self, goal: &Goal) -> Option<Outcome> {
        let (goal, most) = match goal {
            Goal::Wall { against, most } => (format!("{WALL}{against}"), *most),
            Goal::Cpu { against, most } => (format!("{CPU}{against}"), *most),
            Goal::Fastest { of, most } => {
                let there = of.iter().filter_map(|name| self.tool(name));
                let best = there.min_by(|a, b| a.wall().total_cmp(&b.wall()))?;
                (format!("{WALL}{}", best.name), *most)
            }
            Goal::Above { against, most_ms } => (format!("{ABOVE}{against}"), *most_ms),
            Goal::Within { most_ms } => (WITHIN.to_owned(), *most_ms),
            Goal::Blocks => (BLOCKS.to_owned(), 1.0),
        };
        let values = self.values(&goal);
        let value = median(values.iter().copied());
        (!values.is_empty()).then_some(Outcome { goal, value, most, met: value <= most })
    }

    /// What a goal is about, by rounds.
    fn values(&self, goal: &str) -> Vec<f64> {
        let values = || {
            let ours = self.tool(OURS)?;
            if goal == BLOCKS {
                return Some(vec![ours.allocated_bytes? as f64 / self.source_allocated_bytes as f64]);
            }
            if goal == WITHIN {
                return Some(ours.samples.iter().map(|s| s.wall_s * 1e3).collect());
            }
            if let Some(other) = goal.strip_prefix(WALL) {
                return Some(pairs(ours, self.tool(other)?, |s| s.wall_s));
            }
            if let Some(other) = goal.strip_prefix(CPU) {
                return Some(pairs(ours, self.tool(other)?, cpu));
            }
            let other = self.tool(goal.strip_prefix(ABOVE)?)?;
            Some(ours.samples.iter().zip(&other.samples).map(|(a, b)| (a.wall_s - b.wall_s) * 1e3).collect())
        };
        values().unwrap_or_default()
    }

    /// What came of a goal, by its rounds.
    fn came_of(&self, outcome_of: &Outcome) -> Judged {
        outcome(outcome_of.most, &self.values(&outcome_of.goal), outcome_of.goal == BLOCKS)
    }

    /// The part of the machine that others used while this row was measured; the kernel's own writing back is in it.
    fn disturbed(&self, cores: usize) -> f64 {
        let part = |s: &Sample| s.foreign_s / (s.wall_s * cores as f64);
        median(self.tools.iter().take(2).flat_map(|t| t.samples.iter().map(part)))
    }

    /// System calls per file, link and directory.
    fn calls_per_entry(&self, tool: &ToolRecord) -> Option<f64> {
        tool.calls.as_ref().map(|c| c.total as f64 / self.data.entries() as f64)
    }
}

/// One row on the terminal.
pub fn print(row: &RowRecord, cores: usize) {
    println!(
        "  {:6} {:>9} {:>19} {:>8} {:>8} {:>9} {:>7} {:>7} {:>10}",
        "", "wall s", "min-max", "CPU s", "RSS MiB", "foreign s", "ratio", "paired", "calls/item"
    );
    for tool in &row.tools {
        let base = &row.tools[0];
        let (least, most) = tool.range();
        println!(
            "  {:6} {:>9.4} {:>9.4}-{:<9.4} {:>8.3} {:>8.1} {:>9.2} {:>7.2} {:>7.2} {:>10}",
            tool.name,
            tool.wall(),
            least,
            most,
            tool.cpu(),
            tool.peak_kib() as f64 / 1024.0,
            median(tool.samples.iter().map(|s| s.foreign_s)),
            tool.wall() / base.wall(),
            paired(tool, base, |s| s.wall_s),
            row.calls_per_entry(tool).map_or_else(|| "-".to_owned(), |c| format!("{c:.1}"))
        );
    }
    for outcome in &row.outcomes {
        println!("  {}", says(row, outcome));
    }
    let disturbed = row.disturbed(cores);
    if disturbed > 0.1 {
        println!(
            "  DISTURBED: others used {:.0} % of the machine meanwhile; measure again",
            disturbed * 100.0
        );
    }
}

fn says(row: &RowRecord, outcome: &Outcome) -> String {
    let found = row.came_of(outcome);
    format!(
        "{} = {}, at most {:.2}: {}",
        outcome.goal,
        spread(&found),
        outcome.most,
        word(&found).replace('*', "")
    )
}

/// How many goals were met, and which were not.
pub fn summary(record: &LocalRecord) -> String {
    let all = || record.rows.iter().flat_map(|r| r.outcomes.iter().map(move |o| (r, o)));
    let met = |(row, o): &(&RowRecord, &Outcome)| row.came_of(o).verdict == Verdict::Holds;
    let mut text = format!("{} of {} goals met", all().filter(met).count(), all().count());
    for (row, outcome) in all().filter(|each| !met(each)) {
        let _infallible = write!(text, "\n  {}: {}", row.name, says(row, outcome));
    }
    text
}

/// `STEM.json` and `STEM.svg`.
pub fn write(record: &LocalRecord, stem: &Path) -> Result {
    std::fs::write(stem.with_extension("json"), serde_json::to_string_pretty(record)? + "\n")?;
    std::fs::write(stem.with_extension("svg"), plot(record))?;
    Ok(())
}

/// Puts the rows among those kept before from the same kind of machine.
pub fn keep(mut record: LocalRecord, docs: &Path) -> Result {
    let stem = docs.join(format!("benchmarks-{}", record.file_system));
    if let Ok(text) = std::fs::read_to_string(stem.with_extension("json")) {
        let before: LocalRecord = serde_json::from_str(&text)?;
        if (&before.cpu, before.cores, before.memory_gib) == (&record.cpu, record.cores, record.memory_gib) {
            let fresh = |old: &RowRecord| record.rows.iter().any(|new| new.name == old.name);
            let old: Vec<RowRecord> = before.rows.into_iter().filter(|row| !fresh(row)).collect();
            record.rows.extend(old);
        }
    }
    let order: Vec<&str> = rows::all(false).iter().map(|r| r.name).collect();
    record.rows.sort_by_key(|row| order.iter().position(|name| *name == row.name));
    std::fs::write(stem.with_extension("json"), serde_json::to_string_pretty(&record)? + "\n")?;
    Ok(())
}

pub fn section(record: &LocalRecord, stem: &str, text: &mut String) -> Result {
    write!(text, "\n## {}\n\n{}\n\n![ratios]({stem}.svg)\n\n", record.file_system, record.headline())?;
    text.push_str("| workload | goal | measured | at most | |\n|---|---|---|---|---|\n");
    for row in &record.rows {
        for o in &row.outcomes {
            let found = row.came_of(o);
            let (shown, word) = (spread(&found), word(&found));
            writeln!(text, "| {} | {} | {shown} | {:.2} | {word} |", row.title, o.goal, o.most)?;
        }
    }
    for row in &record.rows {
        let data = row.data;
        write!(
            text,
            "\n### {}\n\n{} files, {} directories, {} links, {:.1} MiB; others used {:.0} % of the machine \
             meanwhile. `{}` at {}.\n\n",
            row.title,
            data.files,
            data.dirs,
            data.links,
            data.bytes as f64 / 1048576.0,
            row.disturbed(record.cores) * 100.0,
            row.command,
            row.commit
        )?;
        text.push_str("| tool | wall, s | min - max | CPU, s | peak, MiB | ratio | calls | rounds |\n");
        text.push_str("|---|---|---|---|---|---|---|---|\n");
        for tool in &row.tools {
            let (least, most) = tool.range();
            writeln!(
                text,
                "| `{}` ({}) | {:.4} | {:.4} - {:.4} | {:.3} | {:.1} | {} | {} | {} |",
                tool.line,
                tool.version,
                tool.wall(),
                least,
                most,
                tool.cpu(),
                tool.peak_kib() as f64 / 1024.0,
                spread(&outcome(f64::MAX, &pairs(tool, &row.tools[0], |s| s.wall_s), false)),
                row.calls_per_entry(tool).map_or_else(String::new, |c| format!("{c:.1}")),
                tool.samples.len()
            )?;
        }
    }
    Ok(())
}

/// Every tool's ratio to the first of its row, with our goal as a line.
pub fn plot(record: &LocalRecord) -> String {
    let mut groups = Vec::new();
    for row in &record.rows {
        let Some((base, others)) = row.tools.split_first() else { continue };
        let bars = others.iter().map(|tool| svg::Bar {
            label: tool.name.clone(),
            value: paired(tool, base, |s| s.wall_s),
            ours: tool.name == OURS,
        });
        let against = format!("wall / {}", base.name);
        let goal = row.outcomes.iter().find(|o| o.goal == against).map(|o| o.most);
        groups.push(svg::Group {
            title: row.title.clone(),
            base: base.name.clone(),
            bars: bars.collect(),
            goal,
        });
    }
    svg::draw(&record.headline(), &groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, walls: &[f64]) -> ToolRecord {
        let sample = |&wall_s| Sample { wall_s, user_s: wall_s, sys_s: 0.0, peak_kib: 1, foreign_s: 0.0 };
        ToolRecord {
            name: name.to_owned(),
            line: format!("{name} SRC DST"),
            version: String::new(),
            samples: walls.iter().map(sample).collect(),
            calls: None,
            allocated_bytes: Some(10),
        }
    }
    fn row(ours: &[f64], cp: &[f64]) -> RowRecord {
        RowRecord {
            name: "many".to_owned(),
            title: "many".to_owned(),
            cold: false,
            commit: "abc".to_owned(),
            command: String::new(),
            data: Size { files: 10, dirs: 1, links: 0, bytes: 100 },
            source_allocated_bytes: 10,
            tools: vec![tool("cp", cp), tool(OURS, ours)],
            outcomes: vec![],
        }
    }

    #[test]
    fn pairs_are_compared_within_their_round() {
        // Both slow down fourfold in the last two rounds; within each round the ratio is the same.
        let row = row(&[0.5, 2.0, 2.0], &[1.0, 4.0, 4.0]);
        let met = row.judge(&Goal::Wall { against: "cp", most: 0.5 }).unwrap();
        assert!(met.met && met.value == 0.5);
        assert!(!row.judge(&Goal::Wall { against: "cp", most: 0.49 }).unwrap().met);
        assert!(row.judge(&Goal::Blocks).unwrap().met);
        assert!(row.judge(&Goal::Fastest { of: &["xcp"], most: 1.0 }).is_none(), "xcp was not there");
        assert!(row.judge(&Goal::Above { against: "cp", most_ms: 5.0 }).unwrap().met);
        assert_eq!(
            row.judge(&Goal::Within { most_ms: 1999.0 }).map(|o| (o.value, o.met)),
            Some((2000.0, false))
        );
    }

    #[test]
    fn rows_are_kept_beside_those_of_earlier_runs() {
        let dir = tempfile::tempdir().unwrap();
        let mut one = LocalRecord::of_this_machine(dir.path(), false).unwrap();
        let mut two = LocalRecord::of_this_machine(dir.path(), false).unwrap();
        one.rows.push(row(&[0.5], &[1.0]));
        two.rows.push(RowRecord { name: "big".to_owned(), title: "big".to_owned(), ..row(&[0.5], &[1.0]) });
        keep(one, dir.path()).unwrap();
        keep(two, dir.path()).unwrap();
        crate::documents::write(dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("benchmarks.md")).unwrap();
        let (big, many) = (text.find("### big").unwrap(), text.find("### many").unwrap());
        assert!(big < many, "{text}");
    }
}
