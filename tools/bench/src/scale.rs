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
/// Rounds behind a first one, which is told by itself: it uses memory, or a disk, that no copy used before.
const ROUNDS: usize = 5;
/// The same for the largest tree.
const ROUNDS_OF_LARGEST: usize = 3;
/// Files in a directory, of which each has a cost of its own.
const PER_DIR: [u64; 3] = [1, FILES_PER_DIR, 20_000];
/// Directories of the set that has one file in each, and of the one that has none.
const DIRS: u64 = 4_000;
/// Files of the sets that have more.
const FILES: u64 = 20_000;

/// One run.
#[derive(Serialize, Deserialize)]
pub struct ScaleRecord {
    /// 2; counted up when a reader would have to change.
    pub schema: u32,
    pub machine: String,
    pub commit: String,
    pub command: String,
    pub costs: Vec<Costs>,
    pub runs: Vec<ScaleRun>,
}

/// What one stage of the way costs, together with those before it where it needs them.
#[derive(Serialize, Deserialize)]
pub struct Costs {
    pub stage: String,
    pub line: String,
    /// Seconds of a run over nothing.
    pub start_s: f64,
    /// For each file of 1 KiB, by the size of its directory.
    #[serde(default)]
    pub files: Vec<FileCost>,
    /// Of schema 1, the same for all: seconds for a file among 20,000 in one directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_s: Option<f64>,
    /// Seconds for each directory.
    pub dir_s: f64,
    /// Seconds for each byte of a large file.
    pub byte_s: f64,
}

/// What a file costs in a directory of so many.
#[derive(Serialize, Deserialize)]
pub struct FileCost {
    pub per_dir: u64,
    pub seconds: f64,
}

/// A real copy beside what the costs say of it.
#[derive(Serialize, Deserialize)]
pub struct ScaleRun {
    pub files: u64,
    pub dirs: u64,
    pub rounds: usize,
    pub predicted_s: f64,
    /// The first round; absent in schema 1, where it is among the others.
    #[serde(default)]
    pub first_s: Option<f64>,
    /// The median of those behind it.
    pub wall_s: f64,
    pub peak_kib: u64,
}

impl ScaleRecord {
    /// Bytes of memory that a directory takes while it waits, from the two largest runs.
    fn memory_per_dir(&self) -> f64 {
        let [.., less, more] = &self.runs[..] else { return 0.0 };
        let kib = more.peak_kib as f64 - less.peak_kib as f64;
        kib.max(0.0) * 1024.0 / (more.dirs - less.dirs) as f64
    }
}

impl Costs {
    /// What was measured for directories of so many files.
    fn measured(&self, per_dir: u64) -> Option<f64> {
        let old = self.file_s.filter(|_| per_dir == PER_DIR[2]);
        self.files.iter().find(|cost| cost.per_dir == per_dir).map(|cost| cost.seconds).or(old)
    }

    fn of(&self, files: f64, dirs: f64, bytes: f64) -> f64 {
        self.start_s + files * self.file_s(files / dirs) + dirs * self.dir_s + bytes * self.byte_s
    }

    /// Between two sizes of directories that were measured, by the logarithm of the size.
    fn file_s(&self, per_dir: f64) -> f64 {
        let Some(last) = self.files.last() else { return self.file_s.unwrap_or_default() };
        let above = self.files.iter().position(|cost| cost.per_dir as f64 >= per_dir);
        let Some(above) = above else { return last.seconds };
        let high = &self.files[above];
        let Some(low) = above.checked_sub(1).and_then(|below| self.files.get(below)) else {
            return high.seconds;
        };
        let share = (per_dir.ln() - (low.per_dir as f64).ln())
            / ((high.per_dir as f64).ln() - (low.per_dir as f64).ln());
        low.seconds + share * (high.seconds - low.seconds)
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

/// Files in directories of so many each.
fn tree(files: u64, per_dir: u64) -> Set {
    Set::Even { dirs: files / per_dir, files_per_dir: per_dir, bytes: SMALL_BYTES }
}

pub fn run(options: &Options, typed: &[&str]) -> Result {
    let bcmr = binary(options)?;
    let far = Far::start(Line::Loopback, &options.dir.join("far"), &bcmr)?;
    let bench = Bench { options, bcmr: &bcmr, config: far.config() };
    let part = if options.quick { 10 } else { 1 };
    let (dirs, files, large) = (DIRS / part, FILES / part, (1_u64 << 30) / part);
    let mut record = ScaleRecord {
        schema: 2,
        machine: LocalRecord::of_this_machine(&options.dir, options.quick)?.headline(),
        commit: record::commit()?,
        command: command("scale", typed),
        costs: Vec::new(),
        runs: Vec::new(),
    };
    println!("{}", record.machine);
    let nothing = Set::One { bytes: 0 };
    let empty = Set::Even { dirs, files_per_dir: 0, bytes: 0 };
    let [alone, some, many] = [tree(dirs, 1), tree(files, FILES_PER_DIR), tree(files, files)];
    let one = Set::One { bytes: large };
    let (less, more, most) = (10_000 / part, 100_000 / part, 1_000_000 / part);
    let sizes = [less, more].map(|n| tree(n, FILES_PER_DIR));
    // Costs and what they are to predict are measured in the same rounds: a machine that is slower for a while is slower
    // for both.
    let every: Vec<usize> = (0..STAGES.len()).collect();
    let lines: Vec<(Set, &[usize])> = [nothing, empty, alone, some, many, one]
        .map(|set| (set, every.as_slice()))
        .into_iter()
        .chain(sizes.map(|set| (set, &[LOCAL][..])))
        .collect();
    let samples = bench.rounds(&lines, ROUNDS)?;
    let wall = |set: usize, at: usize| median(behind_first(&samples[set][at]).map(|s| s.wall_s));
    for (at, (stage, line)) in STAGES.iter().enumerate() {
        let start_s = wall(0, at);
        let above = |set: usize| wall(set, at) - start_s;
        let dir_s = above(1) / (dirs + 1) as f64;
        let file_s = |set, dirs: u64, files: u64| (above(set) - dirs as f64 * dir_s) / files as f64;
        let seconds =
            [file_s(2, dirs + 1, dirs), file_s(3, files / FILES_PER_DIR + 1, files), file_s(4, 1, files)];
        let costs = Costs {
            stage: (*stage).to_owned(),
            line: line.replace("{s}", "SRC").replace("{d}", "DST").replace("{F}", "CONFIG"),
            start_s,
            files: PER_DIR
                .iter()
                .zip(seconds)
                .map(|(&per_dir, seconds)| FileCost { per_dir, seconds })
                .collect(),
            file_s: None,
            dir_s,
            byte_s: above(5) / large as f64,
        };
        println!(
            "  {:30} start {:7.2} ms, file {:?} us, directory {:7.2} us, byte {:7.3} ns",
            costs.stage,
            costs.start_s * 1e3,
            seconds.map(|s| (s * 1e8).round() / 100.0),
            costs.dir_s * 1e6,
            costs.byte_s * 1e9
        );
        record.costs.push(costs);
    }
    let huge = bench.rounds(
        &[(tree(most, FILES_PER_DIR), &[LOCAL])],
        if options.quick { ROUNDS } else { ROUNDS_OF_LARGEST },
    )?;
    let runs = [(less, &samples[6][LOCAL]), (more, &samples[7][LOCAL]), (most, &huge[0][LOCAL])];
    for (files, samples) in runs {
        let run = of_run(&record.costs[LOCAL], files, samples);
        println!(
            "  {files:>9} files: predicted {:.2} s, took {:.2} s, {} KiB",
            run.predicted_s, run.wall_s, run.peak_kib
        );
        record.runs.push(run);
    }
    std::fs::create_dir_all(&options.out)?;
    let json = serde_json::to_string_pretty(&record)? + "\n";
    std::fs::write(options.out.join("scale.json"), &json)?;
    if let Some(docs) = &options.write {
        std::fs::write(docs.join(STEM).with_extension("json"), json)?;
    }
    Ok(())
}

fn of_run(costs: &Costs, files: u64, samples: &[Sample]) -> ScaleRun {
    let dirs = files / FILES_PER_DIR + 1;
    ScaleRun {
        files,
        dirs,
        rounds: samples.len() - 1,
        // What a KiB costs is in what its file costs.
        predicted_s: costs.of(files as f64, dirs as f64, 0.0),
        first_s: samples.first().map(|s| s.wall_s),
        wall_s: median(behind_first(samples).map(|s| s.wall_s)),
        peak_kib: samples.iter().map(|s| s.peak_kib).max().unwrap_or(0),
    }
}

/// What is behind the first round.
fn behind_first(samples: &[Sample]) -> impl Iterator<Item = &Sample> {
    samples.iter().skip(1)
}

struct Bench<'a> {
    options: &'a Options,
    bcmr: &'a Path,
    config: &'a Path,
}

impl Bench<'_> {
    /// Samples of some stages for some sets, round by round, with one round more before: by set, stage and round.
    fn rounds(&self, lines: &[(Set, &[usize])], rounds: usize) -> Result<Vec<Vec<Vec<Sample>>>> {
        let mut samples: Vec<Vec<Vec<Sample>>> =
            lines.iter().map(|_| STAGES.iter().map(|_| Vec::new()).collect()).collect();
        for round in 0..=rounds {
            for ((set, stages), samples) in lines.iter().zip(&mut samples) {
                for &at in *stages {
                    samples[at].push(self.sample(STAGES[at].1, *set, round == 0)?);
                }
            }
        }
        Ok(samples)
    }

    /// `first`: the memory that it needs is not made ready, as a user's first copy finds it.
    fn sample(&self, line: &str, set: Set, first: bool) -> Result<Sample> {
        let (src, size) = set.make(&self.options.dir)?;
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
        clear()?;
        sh::quiet("sync", &["-f", text(&self.options.dir)?])?;
        let memory = size.bytes + (size.files + size.dirs) * FILE_BYTES;
        let sample = if first { measure::once(&argv)? } else { measure::with_memory(memory, &argv)? };
        clear()?;
        Ok(sample)
    }
}

/// What a file takes in memory beside its content, bytes: the rest of a page, and what the kernel knows of it.
const FILE_BYTES: u64 = 6 << 10;

/// What a copy is extrapolated to: files, directories, bytes of each file, and what it is called.
const FAR_AWAY: [(f64, f64, f64, &str); 4] = [
    (1e6, 1e4, 1024.0, "1e6 files of 1 KiB"),
    (1e8, 1e6, 1024.0, "1e8 files of 1 KiB"),
    (1e10, 1e8, 1024.0, "1e10 files of 1 KiB"),
    (1_048_576.0, 1e4, 1_073_741_824.0, "1 PiB in files of 1 GiB"),
];

/// Of a file system with blocks of 4 KiB and inodes of 256 bytes (ext4), with what a directory keeps for a name.
const BLOCK_BYTES: f64 = 4096.0;
const INODE_BYTES: f64 = 256.0;
const NAME_BYTES: f64 = 32.0;
/// A line of a manifest: a hash in hexadecimal, two spaces and a path of this length.
const LINE_BYTES: f64 = 64.0 + 2.0 + 48.0;
/// Directories in one, of a tree that is nested.
const NESTED: f64 = 1_000.0;

/// The whole of scale.md.
pub fn document(record: &ScaleRecord) -> Result<String> {
    let mut out = String::from(
        "# Scale on paper\n\n\
         Written by `cargo xtask bench scale`, never by hand; the figures are in benchmarks-scale.json. Costs are taken\n\
         from small runs: one empty file, empty directories, files alone in theirs, a hundred in each and all in one, one\n\
         large file. Larger runs are predicted from them, and real ones stand beside. Costs hold for this file system\n\
         with everything in the page cache; a disk adds what it takes to read and write.\n",
    );
    out.push_str(if record.schema > 1 {
        "Each figure is the median of rounds behind a first one, with as much memory as it needs in use just before\n\
         (docs/limits-local.md). The first copy of a size uses memory that no copy used\n\
         before, which the machine has to find and clear; it is told by itself, and is what a single copy of many files\n\
         takes.\n\n"
    } else {
        "This run was of an older kind: it took the cost of a file from one directory of 20,000 alone, which is dearer than\n\
         many of 100, and did not tell the first copy of a size from those behind it (-).\n\n"
    });
    write!(
        out,
        "{}. `{}` at {}.\n\n## What a stage costs\n\nA file of 1 KiB in a directory of 1, of {} and of {} files.\n\n",
        record.machine, record.command, record.commit, PER_DIR[1], PER_DIR[2]
    )?;
    out.push_str("| stage | command | start, ms | file: of 1, us | of many, us | of very many, us | directory, us | byte of a large file, ns |\n|---|---|---|---|---|---|---|---|\n");
    for c in &record.costs {
        let micros = |seconds: f64| format!("{:.2}", seconds * 1e6);
        let files = PER_DIR.map(|per_dir| c.measured(per_dir).map_or("-".to_owned(), micros));
        writeln!(
            out,
            "| {} | `{}` | {:.1} | {} | {:.2} | {:.3} |",
            c.stage,
            c.line,
            c.start_s * 1e3,
            files.join(" | "),
            c.dir_s * 1e6,
            // A walk reads no byte: what is measured may be less than nothing.
            c.byte_s.max(0.0) * 1e9
        )?;
    }
    out.push_str("\n## Predicted and measured\n\n| files | directories | predicted, s | measured, s | measured / predicted | within 15 % | the first, s | peak, MiB | rounds |\n|---|---|---|---|---|---|---|---|---|\n");
    for run in &record.runs {
        let ratio = run.wall_s / run.predicted_s;
        let word = if (ratio - 1.0).abs() <= NEAR { "yes" } else { "**no**" };
        writeln!(
            out,
            "| {} | {} | {:.2} | {:.2} | {ratio:.2} | {word} | {} | {:.1} | {} |",
            run.files,
            run.dirs,
            run.predicted_s,
            run.wall_s,
            run.first_s.map_or("-".to_owned(), |first| format!("{first:.2}")),
            run.peak_kib as f64 / 1024.0,
            run.rounds
        )?;
    }
    on_paper(record, &mut out)?;
    Ok(out)
}

/// What is extrapolated, and what does not grow as the number of files does.
fn on_paper(record: &ScaleRecord, out: &mut String) -> Result {
    let memory_per_dir = record.memory_per_dir();
    write!(
        out,
        "\n## On paper\n\n\
         One machine, by the costs above, {FILES_PER_DIR} files to a directory (of the large ones, as many). Memory grows with\n\
         directories that wait to be entered, {:.0} bytes each, and not with files: flat is a tree whose directories are all in\n\
         one, nested one with at most {NESTED:.0} in each. Disk is what the copy takes on a file system with blocks of 4 KiB and\n\
         inodes of 256 bytes, and what a manifest of it takes (`--manifest`).\n\n\
         | copy | local | over ssh | memory, flat | memory, nested | disk | manifest |\n|---|---|---|---|---|---|---|\n",
        memory_per_dir
    )?;
    let last = record.runs.last().ok_or("no runs")?;
    let base = last.peak_kib as f64 * 1024.0 - last.dirs as f64 * memory_per_dir;
    let (local, wire) = (&record.costs[LOCAL], record.costs.last().ok_or("no costs")?);
    for (files, dirs, bytes, what) in FAR_AWAY {
        let body = if bytes > SMALL_BYTES as f64 { files * bytes } else { 0.0 };
        let levels = (dirs.ln() / NESTED.ln()).ceil();
        let nested = base + (levels * NESTED).min(dirs) * memory_per_dir;
        let blocks = (bytes / BLOCK_BYTES).ceil() * BLOCK_BYTES;
        let disk = files * (blocks + INODE_BYTES + NAME_BYTES) + dirs * (BLOCK_BYTES + INODE_BYTES);
        writeln!(
            out,
            "| {what} | {} | {} | {} | {} | {} | {} |",
            duration(local.of(files, dirs, body)),
            duration(wire.of(files, dirs, body)),
            amount(base + dirs * memory_per_dir),
            amount(nested),
            amount(disk),
            amount(files * LINE_BYTES),
        )?;
    }
    out.push_str(
        "\nBeside that, the session of each large file that is under way with `-C` (docs/session-format.md): 8.4 KB for 1 GiB,\n\
         8.6 GB if 1 PiB were one file. It goes when the file is complete.\n\n\
         ## What grows faster than the number of files\n\n\
         - One directory with very many names. Workers meet at its lock, so all but one wait while a name is made: the column\n  \
           of very many above, beside that of many. A file system with an index in levels (ext4) takes a level more from\n  \
           some hundred thousand names on. And what tells in the order of names (`check`, a dry run) holds all names of one\n  \
           directory of the source: 16 bytes and the name for each.\n\
         - Memory in a flat tree: directories wait with their names until they are entered, newest first. So what waits grows\n  \
           with the depth times the width, and only for a flat tree with the number of directories.\n\
         - The table of hard links: one entry for each inode with further names that were not met yet. It grows with the\n  \
           number of such inodes, and is the only thing that does; what another machine sends of it is bounded\n  \
           (docs/protocol.md).\n\
         - Names of several operands or of a list that can meet: 20 bytes for each name (S15), none for one operand.\n\
         - The first use of memory or disk: the column of the first copies. A copy larger than what is free in the page cache\n  \
           goes at the pace of the disk, not by these costs.\n\
         - A second run over what is there reads every name at both sides, so it costs the walk twice: linear, and the\n  \
           factor is that of the walk above.\n\
         - Time to hash or to go on with one file does not: a session is appended to and not written again, and blocks merge\n  \
           in a time that is linear in their number.\n",
    );
    Ok(())
}

/// Bytes in the unit that a person would take.
fn amount(bytes: f64) -> String {
    const UNITS: [(f64, &str); 5] = [(1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")];
    let unit = UNITS.iter().find(|(one, _)| bytes >= *one);
    unit.map_or_else(|| format!("{bytes:.0} B"), |(one, name)| format!("{:.1} {name}", bytes / one))
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
            files: [(1, 0.003), (100, 0.001), (10_000, 0.002)]
                .map(|(per_dir, seconds)| FileCost { per_dir, seconds })
                .into(),
            file_s: None,
            dir_s: 0.01,
            byte_s: 1e-9,
        };
        let run = |files, wall_s| ScaleRun {
            files,
            dirs: 1,
            rounds: 5,
            predicted_s: 2.0,
            first_s: Some(3.0),
            wall_s,
            peak_kib: 1024,
        };
        // Between two sizes by the logarithm, outside as at the end.
        let files =
            [0.5, 1.0, 10.0, 100.0, 1_000.0, 1e6].map(|per_dir| (costs("x").file_s(per_dir) * 1e6).round());
        assert_eq!(files, [3e3, 3e3, 2e3, 1e3, 1.5e3, 2e3]);
        let record = ScaleRecord {
            schema: 2,
            machine: "a".to_owned(),
            commit: "b".to_owned(),
            command: "c".to_owned(),
            costs: STAGES.map(|(stage, _)| costs(stage)).into(),
            runs: vec![run(10, 2.2), run(20, 2.6)],
        };
        let page = document(&record).unwrap();
        assert!(page.contains("| 10 | 1 | 2.00 | 2.20 | 1.10 | yes | 3.00 | 1.0 | 5 |"), "{page}");
        assert!(page.contains("| 20 | 1 | 2.00 | 2.60 | 1.30 | **no** | 3.00 | 1.0 | 5 |"), "{page}");
        assert!(page.contains("| 1e6 files of 1 KiB | 18.4 min |"), "{page}");
    }

    #[test]
    fn durations_are_told_as_people_do() {
        assert_eq!(duration(3.0), "3.0 s");
        assert_eq!(duration(7200.0), "2.0 h");
        assert_eq!(duration(86_400.0 * 400.0), "400.0 days");
    }
}
