//! `cargo xtask bench scale`: what an entry and a byte cost on each stage of the way, what larger copies should take by
//! these costs, and what real ones took. Must not know what `bench local` compares.

use crate::data::Set;
use crate::measure::{self, Sample, median};
use crate::options::{Options, command};
use crate::programs::binary;
use crate::record::{self, LocalRecord};
use crate::remote::far::Far;
use crate::remote::rows::Line;
use serde::{Deserialize, Serialize};
use sh::{Result, text};
use std::fmt::Write;
use std::path::Path;

/// `DIR/benchmarks-scale.json`.
pub const STEM: &str = "benchmarks-scale";
/// How far a real run may be from what was predicted.
const NEAR: f64 = 0.15;
/// Of the trees that predictions are about.
const FILES_PER_DIR: u64 = 100;
const SMALL_BYTES: u64 = 1 << 10;
const ROUNDS: usize = 5;
/// Larger trees run once.
const ONCE_FROM: u64 = 1_000_000;

/// One run.
#[derive(Serialize, Deserialize)]
pub struct ScaleRecord {
    /// 1; counted up when a reader would have to change.
    pub schema: u32,
    pub machine: String,
    pub commit: String,
    pub command: String,
    pub costs: Vec<Costs>,
    pub runs: Vec<ScaleRun>,
    /// Bytes of memory that a further file takes, from the two largest runs.
    pub memory_per_file: f64,
}

/// What one stage of the way costs, together with those before it where it needs them.
#[derive(Serialize, Deserialize)]
pub struct Costs {
    pub stage: String,
    pub line: String,
    /// Seconds of a run over nothing.
    pub start_s: f64,
    /// Seconds for each file of 1 KiB.
    pub file_s: f64,
    /// Seconds for each directory.
    pub dir_s: f64,
    /// Seconds for each byte of a large file.
    pub byte_s: f64,
}

/// A real copy beside what the costs say of it.
#[derive(Serialize, Deserialize)]
pub struct ScaleRun {
    pub files: u64,
    pub dirs: u64,
    pub rounds: usize,
    pub predicted_s: f64,
    pub wall_s: f64,
    pub peak_kib: u64,
}

impl Costs {
    fn of(&self, files: f64, dirs: f64, bytes: f64) -> f64 {
        self.start_s + files * self.file_s + dirs * self.dir_s + bytes * self.byte_s
    }
}

/// Stages, with `{s}` the source, `{d}` the copy, `{F}` the configuration of the far machine.
const STAGES: [(&str, &str); 4] = [
    ("walk", "bcmr du {s}"),
    ("walk and plan", "bcmr copy -r -n -T {s} {d}"),
    ("walk, plan and land", "bcmr copy -r -T {s} {d}"),
    ("the same over ssh on loopback", "bcmr copy -F {F} -r -T {s} box:{d}"),
];
/// The one that real copies are compared with.
const LOCAL: usize = 2;

pub fn run(options: &Options, typed: &[&str]) -> Result {
    let bcmr = binary(options)?;
    let far = Far::start(Line::Loopback, &options.dir.join("far"), &bcmr)?;
    let bench = Bench { options, bcmr: &bcmr, config: far.config() };
    let part = if options.quick { 10 } else { 1 };
    let nothing = Set::One { bytes: 0 };
    let flat = Set::Even { dirs: 1, files_per_dir: 20_000 / part, bytes: SMALL_BYTES };
    let deep = Set::Even { dirs: 4_000 / part, files_per_dir: 1, bytes: SMALL_BYTES };
    let large = 1_u64 << 30;
    let mut record = ScaleRecord {
        schema: 1,
        machine: LocalRecord::of_this_machine(&options.dir, options.quick)?.headline(),
        commit: record::commit()?,
        command: command("scale", typed),
        costs: Vec::new(),
        runs: Vec::new(),
        memory_per_file: 0.0,
    };
    println!("{}", record.machine);
    let one = Set::One { bytes: large / part };
    let samples = [nothing, flat, deep, one].map(|set| bench.stages(set));
    let [start, flat_s, deep_s, one_s] = samples;
    let (start, flat_s, deep_s, one_s) = (start?, flat_s?, deep_s?, one_s?);
    for (at, (stage, line)) in STAGES.iter().enumerate() {
        let start_s = start[at];
        // Two equations: so many files in one directory, and one file in each of so many.
        let (files, dirs) = ((20_000 / part) as f64, (4_000 / part) as f64);
        let (f, d) = (flat_s[at] - start_s, deep_s[at] - start_s);
        let file_s = (f - d / dirs) / (files - 1.0);
        let costs = Costs {
            stage: (*stage).to_owned(),
            line: line.replace("{s}", "SRC").replace("{d}", "DST").replace("{F}", "CONFIG"),
            start_s,
            file_s,
            dir_s: (d - dirs * file_s) / (dirs + 1.0),
            byte_s: (one_s[at] - start_s) / (large / part) as f64,
        };
        println!(
            "  {:30} start {:7.2} ms, file {:7.2} us, directory {:7.2} us, byte {:7.3} ns",
            costs.stage,
            costs.start_s * 1e3,
            costs.file_s * 1e6,
            costs.dir_s * 1e6,
            costs.byte_s * 1e9
        );
        record.costs.push(costs);
    }
    for files in [10_000, 100_000, 1_000_000].map(|n| n / part) {
        let dirs = files / FILES_PER_DIR;
        let set = Set::Even { dirs, files_per_dir: FILES_PER_DIR, bytes: SMALL_BYTES };
        let rounds = if files >= ONCE_FROM { 1 } else { ROUNDS };
        let samples = bench.samples(STAGES[LOCAL].1, set, rounds)?;
        let run = ScaleRun {
            files,
            dirs: dirs + 1,
            rounds,
            // What a KiB costs is in what its file costs.
            predicted_s: record.costs[LOCAL].of(files as f64, dirs as f64 + 1.0, 0.0),
            wall_s: median(samples.iter().map(|s| s.wall_s)),
            peak_kib: samples.iter().map(|s| s.peak_kib).max().unwrap_or(0),
        };
        println!(
            "  {files:>9} files: predicted {:.2} s, took {:.2} s, {} KiB",
            run.predicted_s, run.wall_s, run.peak_kib
        );
        record.runs.push(run);
    }
    if let [.., less, more] = &record.runs[..] {
        let kib = more.peak_kib as f64 - less.peak_kib as f64;
        record.memory_per_file = kib.max(0.0) * 1024.0 / (more.files - less.files) as f64;
    }
    std::fs::create_dir_all(&options.out)?;
    let json = serde_json::to_string_pretty(&record)? + "\n";
    std::fs::write(options.out.join("scale.json"), &json)?;
    if let Some(docs) = &options.write {
        std::fs::write(docs.join(STEM).with_extension("json"), json)?;
    }
    Ok(())
}

struct Bench<'a> {
    options: &'a Options,
    bcmr: &'a Path,
    config: &'a Path,
}

impl Bench<'_> {
    /// Seconds of each stage for one set: the median of rounds.
    fn stages(&self, set: Set) -> Result<Vec<f64>> {
        STAGES
            .iter()
            .map(|(_, line)| Ok(median(self.samples(line, set, ROUNDS)?.iter().map(|s| s.wall_s))))
            .collect()
    }

    fn samples(&self, line: &str, set: Set, rounds: usize) -> Result<Vec<Sample>> {
        let (src, _) = set.make(&self.options.dir)?;
        let copy = self.options.dir.join("copy");
        let clear = || sh::quiet("rm", &["-rf", text(&copy)?]);
        let fill = |word: &str| -> Result<String> {
            Ok(match word {
                "bcmr" => text(self.bcmr)?.to_owned(),
                "{F}" => text(self.config)?.to_owned(),
                word => word.replace("{s}", text(&src)?).replace("{d}", text(&copy)?),
            })
        };
        let argv: Vec<String> = line.split(' ').map(fill).collect::<Result<_>>()?;
        let samples = (0..rounds).map(|_| {
            clear()?;
            sh::quiet("sync", &["-f", text(&self.options.dir)?])?;
            measure::once(&argv)
        });
        let samples = samples.collect();
        clear()?;
        samples
    }
}

/// What a copy is extrapolated to: files, directories, bytes of each file, and what it is called.
const FAR_AWAY: [(f64, f64, f64, &str); 4] = [
    (1e6, 1e4, 1024.0, "1e6 files of 1 KiB"),
    (1e8, 1e6, 1024.0, "1e8 files of 1 KiB"),
    (1e10, 1e8, 1024.0, "1e10 files of 1 KiB"),
    (1_048_576.0, 1e4, 1_073_741_824.0, "1 PiB in files of 1 GiB"),
];

/// The whole of scale.md.
pub fn document(record: &ScaleRecord) -> Result<String> {
    let mut out = String::from(
        "# Scale on paper\n\n\
         Written by `cargo xtask bench scale`, never by hand; the figures are in benchmarks-scale.json. Costs are taken\n\
         from small runs: one empty file, many files in one directory, one file in each of many directories, one large\n\
         file. Larger runs are predicted from them, and real ones stand beside. Costs hold for this file system with\n\
         everything in the page cache; a disk adds what it takes to read and write.\n\n",
    );
    write!(
        out,
        "{}. `{}` at {}.\n\n## What a stage costs\n\n",
        record.machine, record.command, record.commit
    )?;
    out.push_str("| stage | command | start, ms | file of 1 KiB, us | directory, us | byte of a large file, ns |\n|---|---|---|---|---|---|\n");
    for c in &record.costs {
        writeln!(
            out,
            "| {} | `{}` | {:.1} | {:.2} | {:.2} | {:.3} |",
            c.stage,
            c.line,
            c.start_s * 1e3,
            c.file_s * 1e6,
            c.dir_s * 1e6,
            c.byte_s * 1e9
        )?;
    }
    out.push_str("\n## Predicted and measured\n\n| files | directories | predicted, s | measured, s | measured / predicted | within 15 % | peak, MiB | rounds |\n|---|---|---|---|---|---|---|---|\n");
    for run in &record.runs {
        let ratio = run.wall_s / run.predicted_s;
        let word = if (ratio - 1.0).abs() <= NEAR { "yes" } else { "**no**" };
        writeln!(
            out,
            "| {} | {} | {:.2} | {:.2} | {ratio:.2} | {word} | {:.1} | {} |",
            run.files,
            run.dirs,
            run.predicted_s,
            run.wall_s,
            run.peak_kib as f64 / 1024.0,
            run.rounds
        )?;
    }
    out.push_str("\n## On paper\n\nOne machine, by the costs above. Memory is the largest run's, and for each further file what the two largest\nruns differ by.\n\n| copy | local | over ssh | memory |\n|---|---|---|---|\n");
    let last = record.runs.last().ok_or("no runs")?;
    let (local, wire) = (&record.costs[LOCAL], record.costs.last().ok_or("no costs")?);
    for (files, dirs, bytes, what) in FAR_AWAY {
        let body = if bytes > SMALL_BYTES as f64 { files * bytes } else { 0.0 };
        let memory =
            last.peak_kib as f64 * 1024.0 + (files - last.files as f64).max(0.0) * record.memory_per_file;
        writeln!(
            out,
            "| {what} | {} | {} | {:.0} MiB |",
            duration(local.of(files, dirs, body)),
            duration(wire.of(files, dirs, body)),
            memory / 1_048_576.0
        )?;
    }
    out.push_str(
        "\nDisk: what the copies take, and beside it the session of each large file that is under way with `-C`\n\
         (docs/session-format.md), which goes when the file is complete.\n\n\
         ## What grows faster than the number of files\n\n\
         - The table of hard links: one entry for each inode with further names that were not met yet. What\n  \
           another machine sends of it is bounded (docs/protocol.md).\n\
         - One directory with very many names: a file system with an index in levels (ext4) takes a level more, and two\n  \
           workers meet at one directory's lock. So the same number of files in one directory costs more than in many.\n\
         - A second run over what is there reads every name at both sides, so it costs the walk twice.\n\
         - Nothing else holds the tree: directories that are not listed yet wait, newest first, so what waits grows with\n  \
           depth times width and not with the number of files.\n",
    );
    Ok(out)
}

/// Seconds in the unit that a person would take.
fn duration(seconds: f64) -> String {
    const UNITS: [(f64, &str); 4] =
        [(86_400.0 * 365.0, "years"), (86_400.0, "days"), (3_600.0, "h"), (60.0, "min")];
    let unit = UNITS.iter().find(|(one, _)| seconds >= 2.0 * one);
    unit.map_or_else(|| format!("{seconds:.1} s"), |(one, name)| format!("{:.1} {name}", seconds / one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_which_predictions_were_right() {
        let costs = |stage: &str| Costs {
            stage: stage.to_owned(),
            line: "bcmr".to_owned(),
            start_s: 1.0,
            file_s: 0.001,
            dir_s: 0.01,
            byte_s: 1e-9,
        };
        let run =
            |files, wall_s| ScaleRun { files, dirs: 1, rounds: 5, predicted_s: 2.0, wall_s, peak_kib: 1024 };
        let record = ScaleRecord {
            schema: 1,
            machine: "a".to_owned(),
            commit: "b".to_owned(),
            command: "c".to_owned(),
            costs: STAGES.map(|(stage, _)| costs(stage)).into(),
            runs: vec![run(10, 2.2), run(20, 2.6)],
            memory_per_file: 0.0,
        };
        let page = document(&record).unwrap();
        assert!(page.contains("| 10 | 1 | 2.00 | 2.20 | 1.10 | yes | 1.0 | 5 |"), "{page}");
        assert!(page.contains("| 20 | 1 | 2.00 | 2.60 | 1.30 | **no** | 1.0 | 5 |"), "{page}");
        assert!(page.contains("| 1e6 files of 1 KiB | 18.4 min |"), "{page}");
    }

    #[test]
    fn durations_are_told_as_people_do() {
        assert_eq!(duration(3.0), "3.0 s");
        assert_eq!(duration(7200.0), "2.0 h");
        assert_eq!(duration(86_400.0 * 400.0), "400.0 days");
    }
}
