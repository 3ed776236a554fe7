//! The document and the picture of `bench checkpoint`, from its record alone. Measures nothing.

use super::record::{Checkpoints, Resumed, Table, TimedLine};
use crate::measure::{Sample, median};
use crate::verdict::{self, Judged, Rule};
use crate::{record as rows, svg};
use sh::Result;
use std::fmt::Write;
use std::path::Path;

const MIB: f64 = 1048576.0;
/// What a rerun may write beside what was missing.
const REWORK_MIB: f64 = 64.0;
/// The largest file's first byte may take so many times the smallest one's.
const CONSTANT: f64 = 1.5;
const SESSION: f64 = 8e-6;
/// Experiment 3 of the paper, 768 MB on Linux: rehashing the prefix against reading one block.
const PUBLISHED_SPEEDUP: f64 = 131.0;

/// `STEM.json` and `STEM.svg`.
pub fn write(record: &Checkpoints, stem: &Path) -> Result {
    std::fs::write(stem.with_extension("json"), serde_json::to_string_pretty(record)? + "\n")?;
    std::fs::write(stem.with_extension("svg"), plot(record))?;
    Ok(())
}

pub fn document(record: &Checkpoints, stem: &str) -> Result<String> {
    let mut out = format!(
        "# Benchmarks: verifying, checkpoints, going on\n\n\
         Written by `cargo xtask bench checkpoint`, never by hand; the samples are in {stem}.json beside this. Lines\n\
         take turns within each round; a ratio is the median over rounds of a line's time divided by the first\n\
         line's in the same round, and in brackets where that median lies with a certainty of 95 %. The source is in the page cache and everything is written back before each run.\n\
         As much memory as the copy needs was in use just before: a virtual machine gives free memory back to its host, and\n\
         who needs it next would wait for each page.\n\
         `foreign` is the CPU time that others used meanwhile, of all cores: what the figures are worth.\n\n\
         {}. `{}` at {}.\n\n![ratios]({stem}.svg)\n\n",
        record.machine, record.command, record.commit
    );
    out.push_str("| goal | measured | at most | |\n|---|---|---|---|\n");
    for (goal, found, most) in goals(record) {
        writeln!(out, "| {goal} | {} | {} | {} |", shown(&found), short(most), rows::word(&found))?;
    }
    out.push_str(
        "\nAgainst the figures of the paper Streaming Checkpoint Copy (Xeon Gold 6238R, NVMe, ext4), judged as\n\
         docs/experiments/index.md says; in brackets is the interval of 95 % over rounds.\n\n\
         | figure | paper | here | |\n|---|---|---|---|\n",
    );
    for (figure, published, here, word) in published(record) {
        writeln!(out, "| {figure} | {published} | {here} | {word} |")?;
    }
    for t in &record.tables {
        write!(out, "\n{}", table(t)?)?;
    }
    out.push_str(
        "\n## Killed at 90 %\n\nSIGKILL when the stage of a `-C` copy has 90 % of its length; the same command again, \
         its writes to\nthe stage summed up from strace, and the result compared with `cmp`. Sizes in MiB.\n\n\
         | file | stage at the kill | recorded | missing | written again | beyond what was missing |\n\
         |---|---|---|---|---|---|\n",
    );
    for k in &record.killed {
        let mib = |bytes: u64| bytes as f64 / MIB;
        let missing = k.bytes - k.stage_bytes;
        writeln!(
            out,
            "| {} | {:.1} | {} | {:.1} | {:.1} | {:.1} |",
            mib(k.bytes),
            mib(k.stage_bytes),
            mib(k.recorded_bytes),
            mib(missing),
            mib(k.rewritten_bytes),
            k.rewritten_bytes as f64 / MIB - mib(missing)
        )?;
    }
    if let Some(t) = record.thrice {
        writeln!(
            out,
            "\nKilled at a quarter, a half and three quarters of {:.0} MiB and finished by the same command: {:.0} MiB \
             written in\nall, {:.3} times the file.",
            t.bytes as f64 / MIB,
            t.written_bytes as f64 / MIB,
            t.written_bytes as f64 / t.bytes as f64
        )?;
    }
    resumed(record, &mut out)?;
    if let Some(o) = record.overhead {
        write!(
            out,
            "\n## Session\n\nA whole `-C` copy of {:.0} MiB wrote {} bytes to its session, {:.2e} of the file, and \
             {:.0} MiB to its\nstage.\n",
            o.file_bytes as f64 / MIB,
            o.session_bytes,
            o.session_bytes as f64 / o.file_bytes as f64,
            o.stage_bytes as f64 / MIB
        )?;
    }
    out.push_str(
        "\n## Not measured\n\nExperiment 5 needs macOS. `cargo xtask experiment` has the others one by one, 1 (hashing alone) and 6\n\
         (`copy_file_range` at an offset) included.\n",
    );
    for what in &record.left_out {
        writeln!(out, "- {what}")?;
    }
    Ok(out)
}

fn resumed(record: &Checkpoints, out: &mut String) -> Result {
    out.push_str(
        "\n## Going on with a 90 % complete file (Experiment 3)\n\nMade by a `-C --checkpoint-size 4M` copy (with \
         `--fast` for `--fast`) killed when 90 % were recorded. For each\nrun the same stage is cut back to what was \
         recorded and the kept session is put beside it. First byte: from\n`execve` to the first write to the stage, \
         by strace, which stops the program at writes only; so both times\nare with strace. Prefix and source are in \
         the page cache. Times in ms: median (min - max).\n\n\
         | file, MiB | mode | recorded, MiB | first byte | whole run | rounds |\n|---|---|---|---|---|---|\n",
    );
    for r in &record.resumed {
        writeln!(
            out,
            "| {:.0} | `{}` | {:.0} | {} | {} | {} |",
            r.bytes as f64 / MIB,
            r.mode,
            r.recorded_bytes.first().copied().unwrap_or(0) as f64 / MIB,
            spread(&r.first_byte_s, 1e3, 1),
            spread(&r.whole_s, 1e3, 0),
            r.whole_s.len()
        )?;
    }
    Ok(())
}

fn spread(values: &[f64], times: f64, digits: usize) -> String {
    let values = || values.iter().map(|v| v * times);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    format!("{:.digits$} ({least:.digits$} - {most:.digits$})", median(values()))
}

/// One table with its title.
pub fn table(table: &Table) -> Result<String> {
    let mut out = format!("## {}\n\n", table.title);
    out.push_str("| line | wall, s | min - max | CPU, s | foreign, s | ratio | rounds |\n");
    out.push_str("|---|---|---|---|---|---|---|\n");
    for line in &table.lines {
        let walls = || line.samples.iter().map(|s| s.wall_s);
        let middle = |value: fn(&Sample) -> f64| median(line.samples.iter().map(value));
        writeln!(
            out,
            "| `{}` | {:.3} | {:.3} - {:.3} | {:.3} | {:.2} | {:.2} | {} |",
            line.line.replace("{s}", "SRC").replace("{d}", "DST"),
            middle(|s| s.wall_s),
            walls().fold(f64::INFINITY, f64::min),
            walls().fold(0.0, f64::max),
            middle(|s| s.user_s + s.sys_s),
            middle(|s| s.foreign_s),
            ratio(line, &table.lines[0]),
            line.samples.len()
        )?;
    }
    Ok(out)
}

/// By rounds.
fn ratios(line: &TimedLine, base: &TimedLine) -> Vec<f64> {
    line.samples.iter().zip(&base.samples).map(|(a, b)| a.wall_s / b.wall_s).collect()
}

fn ratio(line: &TimedLine, base: &TimedLine) -> f64 {
    median(ratios(line, base))
}

fn shown(found: &Judged) -> String {
    match found.interval {
        Some(_) => rows::spread(found),
        None => short(found.value),
    }
}

fn short(value: f64) -> String {
    if value < 0.01 { format!("{value:.2e}") } else { format!("{value:.2}") }
}

/// The command without its operands.
fn bare(line: &str) -> String {
    line.replace(" {s}", "").replace(" {d}", "")
}

/// Goal, what came of it, and its bound.
fn goals(record: &Checkpoints) -> Vec<(String, Judged, f64)> {
    let mut goals = Vec::new();
    let mut goal = |goal: String, values: &[f64], counted, most| {
        goals.push((goal, rows::outcome(most, values, counted), most));
    };
    for table in &record.tables {
        for line in &table.lines {
            if let Some(most) = line.most {
                let base = bare(&table.lines[0].line);
                goal(
                    format!("`{}` / `{base}`", bare(&line.line)),
                    &ratios(line, &table.lines[0]),
                    false,
                    most,
                );
            }
        }
    }
    let rework = record.killed.iter().map(|k| {
        let missing = k.bytes - k.stage_bytes;
        (k.rewritten_bytes as f64 - missing as f64) / MIB
    });
    if let Some(worst) = rework.reduce(f64::max) {
        let name = "MiB written again after a kill at 90 %, the worst round".to_owned();
        goal(name, &[worst], true, REWORK_MIB);
    }
    for mode in ["-C", "-C --fast"] {
        let growth = growth(record, mode);
        if !growth.is_empty() {
            goal(format!("first byte with `{mode}`, {}", sizes(record)), &growth, false, CONSTANT);
        }
    }
    if let Some(o) = record.overhead {
        let part = o.session_bytes as f64 / o.file_bytes as f64;
        goal("session / file".to_owned(), &[part], true, SESSION);
    }
    goals
}

fn first(r: &Resumed) -> f64 {
    median(r.first_byte_s.iter().copied())
}

fn of<'r>(record: &'r Checkpoints, mode: &str) -> Vec<&'r Resumed> {
    let mut all: Vec<&Resumed> = record.resumed.iter().filter(|r| r.mode == mode).collect();
    all.sort_by_key(|r| r.bytes);
    all
}

/// The largest and the smallest file that was gone on with.
fn sizes(record: &Checkpoints) -> String {
    let all = || record.resumed.iter().map(|r| r.bytes >> 20);
    format!("{} MiB / {} MiB", all().max().unwrap_or(0), all().min().unwrap_or(0))
}

/// The largest file's first byte over the smallest one's, by rounds.
fn growth(record: &Checkpoints, mode: &str) -> Vec<f64> {
    let all = of(record, mode);
    let ends = all.last().zip(all.first());
    ends.map_or_else(Vec::new, |(last, first)| by_rounds(&last.first_byte_s, &first.first_byte_s))
}

fn by_rounds(values: &[f64], against: &[f64]) -> Vec<f64> {
    values.iter().zip(against).map(|(a, b)| a / b).collect()
}

/// Figure, the paper's word, ours, the verdict.
fn published(record: &Checkpoints) -> Vec<(String, String, String, &'static str)> {
    let mut rows = Vec::new();
    let mut row = |figure: String, paper: String, rule: Rule, values: &[f64]| {
        let found = verdict::judge(rule, values, false);
        rows.push((figure, paper, shown(&found), found.verdict.word()));
    };
    for table in &record.tables {
        // The paper does not say whether its copy without checkpoints ended with a sync: against both.
        let bases = if table.name == "intervals" { &table.lines[..2] } else { &table.lines[..1] };
        let pairs = bases.iter().flat_map(|base| table.lines.iter().map(move |line| (base, line)));
        for (base, line) in pairs {
            let Some(published) = line.published else { continue };
            let name = format!("`{}` / `{}`", bare(&line.line), bare(&base.line));
            row(name, format!("{published:.3}"), Rule::Cost { published }, &ratios(line, base));
        }
    }
    let grown = growth(record, "-C");
    if !grown.is_empty() {
        let name = format!("one block is read before going on: the time does not grow, {}", sizes(record));
        row(name, "1.6 ms to 1.8 ms, 48 to 768 MB".to_owned(), Rule::Growth { most: CONSTANT }, &grown);
    }
    let (proved, strict) = (of(record, "-C"), of(record, "-s"));
    for (proved, strict) in proved.iter().zip(&strict) {
        let mib = proved.bytes as f64 / MIB;
        let name = format!("first byte, rehash (`-s`) / one block (`-C`), {mib:.0} MiB");
        let times = by_rounds(&strict.first_byte_s, &proved.first_byte_s);
        row(name, "131 (768 MB)".to_owned(), Rule::Effect { published: PUBLISHED_SPEEDUP }, &times);
    }
    rows
}

pub fn plot(record: &Checkpoints) -> String {
    let mut groups = Vec::new();
    for table in &record.tables {
        let bars = table.lines.iter().skip(1).map(|line| svg::Bar {
            label: label(&line.line),
            value: ratio(line, &table.lines[0]),
            ours: line.most.is_some(),
        });
        groups.push(svg::Group {
            title: table.title.clone(),
            base: bare(&table.lines[0].line),
            bars: bars.collect(),
            goal: table.lines.iter().find_map(|l| l.most),
        });
    }
    for mode in ["-C", "-C --fast", "-s"] {
        let all = of(record, mode);
        let Some((smallest, larger)) = all.split_first() else { continue };
        let bars = larger.iter().map(|r| svg::Bar {
            label: format!("{:.0} MiB", r.bytes as f64 / MIB),
            value: first(r) / first(smallest),
            ours: mode != "-s",
        });
        groups.push(svg::Group {
            title: format!("time to the first byte of a resume, {mode}"),
            base: format!("{:.0} MiB, {:.1} ms", smallest.bytes as f64 / MIB, first(smallest) * 1e3),
            bars: bars.collect(),
            goal: (mode != "-s").then_some(CONSTANT),
        });
    }
    svg::draw(&record.machine, &groups)
}

/// What tells a line from its neighbours.
fn label(line: &str) -> String {
    match line.split_once("--checkpoint-size ") {
        Some((_, rest)) if rest.starts_with("1024G") => "at end".to_owned(),
        Some((_, rest)) => rest.split(' ').next().unwrap_or_default().to_owned(),
        None => bare(line).replace("bcmr copy ", ""),
    }
}
