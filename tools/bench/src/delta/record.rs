//! What `bench delta` keeps, and its section of benchmarks.md. Measures nothing.

use crate::options::Options;
use serde::{Deserialize, Serialize};
use sh::Result;
use std::fmt::Write;

/// `DIR/benchmarks-delta.json`.
pub const STEM: &str = "benchmarks-delta";

/// One run of the benchmark.
#[derive(Serialize, Deserialize)]
pub struct DeltaRecord {
    /// 1; counted up when a reader would have to change.
    pub schema: u32,
    pub machine: String,
    pub rows: Vec<DeltaRowRecord>,
}

/// One kind of work.
#[derive(Serialize, Deserialize)]
pub struct DeltaRowRecord {
    pub name: String,
    pub title: String,
    pub commit: String,
    pub command: String,
    /// Bytes on the line, both directions together.
    pub rsync: u64,
    pub up: u64,
    pub down: u64,
    /// Of what `zstd --patch-from` makes of it.
    pub patch: Option<u64>,
    /// rsync's time over the thin line, and ours.
    pub times: Option<[LineTime; 2]>,
    pub goals: Vec<DeltaGoalRecord>,
}

/// What one program took over the line, in seconds: the median of so many rounds.
#[derive(Serialize, Deserialize)]
pub struct LineTime {
    pub wall_s: f64,
    /// Of both sides together.
    pub cpu_s: f64,
    pub rounds: usize,
}

/// What was promised of the way up, and what it came to.
#[derive(Serialize, Deserialize)]
pub struct DeltaGoalRecord {
    /// Of what, or in what unit.
    pub of: String,
    pub value: Option<f64>,
    pub most: f64,
}

impl DeltaGoalRecord {
    pub fn verdict(&self) -> &'static str {
        match self.value {
            None => "not measured",
            Some(value) if value <= self.most => "met",
            Some(_) => "**missed**",
        }
    }

    fn number(&self, value: f64) -> String {
        if self.most >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
    }

    pub fn came(&self) -> String {
        self.value.map_or_else(|| "-".to_owned(), |value| self.number(value))
    }
}

/// Writes the record; where it is kept, rows that were not measured this time stay.
pub fn keep(mut made: DeltaRecord, order: &[&str], options: &Options) -> Result {
    std::fs::create_dir_all(&options.out)?;
    std::fs::write(options.out.join("delta.json"), serde_json::to_string_pretty(&made)? + "\n")?;
    let Some(docs) = &options.write else { return Ok(()) };
    let path = docs.join(STEM).with_extension("json");
    if let Ok(before) = std::fs::read_to_string(&path) {
        let before: DeltaRecord = serde_json::from_str(&before)?;
        let is_new = |name: &str| !made.rows.iter().any(|row| row.name == name);
        let old: Vec<DeltaRowRecord> = before.rows.into_iter().filter(|row| is_new(&row.name)).collect();
        made.rows.extend(old);
    }
    made.rows.sort_by_key(|row| order.iter().position(|name| *name == row.name));
    Ok(std::fs::write(path, serde_json::to_string_pretty(&made)? + "\n")?)
}

/// The section of benchmarks.md.
pub fn section(record: &DeltaRecord, out: &mut String) -> Result {
    write!(
        out,
        "\n## a second sync of files that differ\n\n{}. Bytes are those of both directions together, counted by a relay between two \
         bcmr, and\nby rsync itself (`--no-whole-file`, no compression). `up` is to the other machine, `down` from it. Each result was\n\
         compared with its source. Times are over 20 Mbit/s and 40 ms there and back, through ssh, in turns, up; CPU is that\n\
         of both sides together. Goals are for the way up.\n\n",
        record.machine
    )?;
    out.push_str(
        "| work | rsync, bytes | up | down | rsync, s | bcmr, s | rsync, CPU s | bcmr, CPU s | rounds |\n",
    );
    out.push_str("|---|---|---|---|---|---|---|---|---|\n");
    for row in &record.rows {
        let DeltaRowRecord { title, rsync, up, down, times, .. } = row;
        write!(out, "| {title} | {rsync} | {up} | {down} ")?;
        match times {
            Some([theirs, ours]) => writeln!(
                out,
                "| {:.2} | {:.2} | {:.2} | {:.2} | {}, {} |",
                theirs.wall_s, ours.wall_s, theirs.cpu_s, ours.cpu_s, theirs.rounds, ours.rounds
            )?,
            None => writeln!(out, "| - | - | - | - | - |")?,
        }
    }
    out.push_str("\n| work | goal | measured | at most | | |\n|---|---|---|---|---|---|\n");
    for row in &record.rows {
        for goal in &row.goals {
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | `{}` at {} |",
                row.title,
                goal.of,
                goal.came(),
                goal.most,
                goal.verdict(),
                row.command,
                row.commit
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_that_was_not_measured_is_not_met() {
        let goal = |value| DeltaGoalRecord { of: "of rsync's bytes".into(), value, most: 1.0 };
        assert_eq!(goal(None).verdict(), "not measured");
        assert_eq!(goal(Some(1.0)).verdict(), "met");
        assert_eq!(goal(Some(1.01)).verdict(), "**missed**");
    }
}
