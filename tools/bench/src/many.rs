//! `cargo xtask bench many`: copies by ranks of MPI and by shards beside one of as many threads, and beside fpsync; what a plan and
//! its end cost of a million entries; and what a rank that is killed in the middle costs. Must not know how processes share
//! the work.

use crate::data::Set;
use crate::measure::{self, Sample, median};
use crate::options::{Options, command};
use crate::programs::{binary, installed};
use crate::record::{self, LocalRecord};
use serde::{Deserialize, Serialize};
use sh::{Result, text};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Rounds behind a first one, which is not counted.
const ROUNDS: usize = 5;
/// What mpirun asks of root, and of more ranks than cores.
const MPIRUN: &str = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -n 2";
/// `DIR/benchmarks-many.json`.
pub const STEM: &str = "benchmarks-many";

/// What a line may take at most.
#[derive(Clone, Copy)]
enum Most {
    /// Of another line's wall time.
    Wall(f64, &'static str),
    /// Of its CPU time.
    Cpu(f64, &'static str),
    /// Resident memory, in MiB.
    Mib(f64),
}

/// A command line for a shell, with `{s}` the source, `{d}` the copy, `{b}` bcmr, `{w}` this program, `{m}` mpirun and bcmr-mpi.
struct ManyLine {
    name: &'static str,
    line: &'static str,
    /// The destination is taken away before it.
    clears: bool,
    goals: &'static [Most],
}

const ONE: &str = "copy --archive -j 2";
const HASHED: &str = "copy --archive --manifest -j 2";
const RANKS: &str = "2 ranks";
const FPSYNC: &str = "fpsync -n 2";
const WALK: &str = "bare walk, 2 threads";
use Most::{Cpu, Mib, Wall};

const COPIES: [ManyLine; 6] = [
    ManyLine { name: ONE, line: "exec {b} copy -q --archive -j 2 -T {s} {d}", clears: true, goals: &[] },
    ManyLine {
        name: HASHED,
        line: "exec {b} copy -q --archive -j 2 --manifest {d}.b3 -T {s} {d}",
        clears: true,
        goals: &[],
    },
    ManyLine {
        name: RANKS,
        line: "exec {m} copy -q {s} {d}",
        clears: true,
        goals: &[Wall(1.15, ONE), Wall(1.15, HASHED), Cpu(1.15, HASHED), Wall(0.5, FPSYNC)],
    },
    ManyLine {
        name: "64 shards, one after the other",
        line: "{b} plan -q {s} {d} --out {d}.plan --shards 64 -j 2 && seq 0 63 | xargs -n 1 {b} shard -q -j 2 {d}.plan && {b} finish -q {d}.plan",
        clears: true,
        goals: &[Wall(1.15, ONE), Wall(1.15, HASHED), Cpu(1.15, ONE), Cpu(1.15, HASHED)],
    },
    ManyLine {
        name: "64 shards, by one program",
        line: "{b} plan -q {s} {d} --out {d}.plan --shards 64 -j 2 && {b} shard -q -j 2 {d}.plan --all && {b} finish -q {d}.plan",
        clears: true,
        goals: &[Wall(1.15, ONE), Wall(1.15, HASHED), Cpu(1.15, HASHED)],
    },
    ManyLine { name: FPSYNC, line: "exec fpsync -n 2 {s}/ {d}/", clears: true, goals: &[] },
];
const MILLION: [ManyLine; 6] = [
    ManyLine { name: ONE, line: "exec {b} copy -q --archive -j 2 -T {s} {d}", clears: true, goals: &[] },
    ManyLine {
        name: HASHED,
        line: "exec {b} copy -q --archive -j 2 --manifest {d}.b3 -T {s} {d}",
        clears: true,
        goals: &[],
    },
    ManyLine { name: WALK, line: "exec {w} __walk {s}", clears: true, goals: &[] },
    ManyLine {
        name: "plan",
        line: "exec {b} plan -q {s} {d} --out {d}.plan --shards 64 -j 2",
        clears: false,
        goals: &[Wall(1.5, WALK), Cpu(1.5, WALK), Mib(128.0)],
    },
    ManyLine {
        name: "64 shards",
        line: "exec {b} shard -q -j 2 {d}.plan --all",
        clears: false,
        goals: &[Wall(1.15, HASHED), Cpu(1.15, HASHED), Mib(128.0)],
    },
    ManyLine {
        name: "finish",
        line: "exec {b} finish -q {d}.plan",
        clears: false,
        goals: &[Wall(0.1, ONE), Cpu(0.1, ONE), Cpu(0.1, HASHED), Mib(128.0)],
    },
];

/// One run of the benchmark.
#[derive(Serialize, Deserialize)]
pub struct ManyRecord {
    /// 1; counted up when a reader would have to change.
    pub schema: u32,
    pub machine: String,
    pub tables: Vec<ManyTable>,
    pub killed: Vec<KilledRank>,
}

/// Lines that took turns.
#[derive(Serialize, Deserialize)]
pub struct ManyTable {
    pub name: String,
    pub title: String,
    pub commit: String,
    pub command: String,
    pub lines: Vec<TimedBy>,
    pub goals: Vec<ManyGoal>,
}

#[derive(Serialize, Deserialize)]
pub struct TimedBy {
    pub name: String,
    pub samples: Vec<Sample>,
}

/// What was promised of a line, and what it was in each round.
#[derive(Serialize, Deserialize)]
pub struct ManyGoal {
    pub line: String,
    pub of: String,
    pub most: f64,
    pub values: Vec<f64>,
}

/// A copy by two ranks, of which one was killed at half of the shards.
#[derive(Serialize, Deserialize)]
pub struct KilledRank {
    pub title: String,
    pub commit: String,
    pub before_bytes: u64,
    pub after_bytes: u64,
    pub all_bytes: u64,
}

impl KilledRank {
    fn again(&self) -> f64 {
        let again = (self.before_bytes + self.after_bytes).saturating_sub(self.all_bytes);
        again as f64 * 100.0 / self.all_bytes as f64
    }
}

pub fn run(options: &Options, typed: &[&str]) -> Result {
    let bench =
        ManyBench { options, bcmr: binary(options)?, ranks: sh::root().join("target/mpi/release/bcmr-mpi") };
    if !bench.ranks.is_file() {
        return Err("build bcmr-mpi first: cargo xtask mpi --release".into());
    }
    let (files, bytes) = if options.quick { (7_000, 1 << 28) } else { (70_000, 4 << 30) };
    let many = if options.quick { 100_000 } else { 1_000_000 };
    let trees = Set::Source { files, dirs: files / 10 };
    let large = Set::Even { dirs: 1, files_per_dir: 1, bytes };
    let million = Set::Even { dirs: 1000, files_per_dir: many / 1000, bytes: 16 };
    let sets: [(_, _, _, &[ManyLine]); 3] = [
        ("files", format!("{files} files in {} directories", files / 10), trees, &COPIES),
        ("large", format!("one file of {} MiB", bytes >> 20), large, &COPIES),
        ("entries", format!("{many} files of 16 bytes in 1,000 directories"), million, &MILLION),
    ];
    let rounds = options.rounds.unwrap_or(if options.quick { 2 } else { ROUNDS });
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let machine = LocalRecord::of_this_machine(&options.dir, options.quick)?.headline();
    println!("{machine}");
    let mut made = ManyRecord { schema: 1, machine, tables: Vec::new(), killed: Vec::new() };
    for (name, title, set, lines) in sets {
        if wanted(name) {
            println!("{title}, {rounds} rounds behind a first one, taken in turns");
            let (lines, goals) = bench.row(set, lines, rounds)?;
            let (name, commit, command) = (name.to_owned(), record::commit()?, command("many", typed));
            made.tables.push(ManyTable { name, title, commit, command, lines, goals });
            print!("{}", table(made.tables.last().ok_or("no table")?)?);
        }
    }
    for (title, set) in [("the files", trees), ("the large file", large)] {
        if wanted("killed") {
            let killed = bench.killed(title, set)?;
            println!("killed at half of {title}: {:.1} % again", killed.again());
            made.killed.push(killed);
        }
    }
    keep(made, options)
}

/// Writes the record; where it is kept, what was not measured this time stays.
fn keep(mut made: ManyRecord, options: &Options) -> Result {
    std::fs::create_dir_all(&options.out)?;
    std::fs::write(options.out.join("many.json"), serde_json::to_string_pretty(&made)? + "\n")?;
    let Some(docs) = &options.write else { return Ok(()) };
    let path = docs.join(STEM).with_extension("json");
    if let Ok(before) = std::fs::read_to_string(&path) {
        let before: ManyRecord = serde_json::from_str(&before)?;
        let is_new = |name: &str| !made.tables.iter().any(|table| table.name == name);
        let old: Vec<ManyTable> = before.tables.into_iter().filter(|table| is_new(&table.name)).collect();
        made.tables.extend(old);
        if made.killed.is_empty() {
            made.killed = before.killed;
        }
    }
    made.tables
        .sort_by_key(|table| ["files", "large", "entries"].iter().position(|name| *name == table.name));
    Ok(std::fs::write(path, serde_json::to_string_pretty(&made)? + "\n")?)
}

/// The section of benchmarks.md.
pub fn section(record: &ManyRecord, out: &mut String) -> Result {
    write!(
        out,
        "\n## plans, shards and ranks\n\n{}. Lines take turns; the CPU time is that of all processes. Shards and ranks hash\n\
         every file, as `--manifest` does. `others` is the CPU time that other programs used meanwhile: where it is much, wall\n\
         times say little.\n",
        record.machine
    )?;
    for made in &record.tables {
        write!(out, "\n### {}\n\n`{}` at {}.\n\n{}", made.title, made.command, made.commit, table(made)?)?;
    }
    if !record.killed.is_empty() {
        out.push_str(
            "\n### one of two ranks killed when half of the shards are done, and the same command again\n\n",
        );
        out.push_str("| copied | before, MiB | after, MiB | again | |\n|---|---|---|---|---|\n");
    }
    for killed in &record.killed {
        let KilledRank { title, commit, before_bytes, after_bytes, .. } = killed;
        let (before, after, again) = (before_bytes >> 20, after_bytes >> 20, killed.again());
        let word = if again <= 5.0 { "met" } else { "**missed**" };
        writeln!(out, "| {title} ({commit}) | {before} | {after} | {again:.1} %, at most 5 % | {word} |")?;
    }
    Ok(())
}

/// One table and what came of its goals.
fn table(made: &ManyTable) -> Result<String> {
    let mut out = String::from("| | wall, s | CPU, s | peak, MiB | others, s |\n|---|---|---|---|---|\n");
    for line in &made.lines {
        let of = |value: fn(&Sample) -> f64| median(line.samples.iter().map(value));
        let peak = line.samples.iter().map(|s| s.peak_kib).max().unwrap_or(0) as f64 / 1024.0;
        let (wall, cpu, others) = (of(|s| s.wall_s), of(cpu), of(|s| s.foreign_s));
        writeln!(out, "| {} | {wall:.2} | {cpu:.2} | {peak:.0} | {others:.2} |", line.name)?;
    }
    out.push_str("\n| | goal | measured | at most | |\n|---|---|---|---|---|\n");
    for goal in &made.goals {
        let found = record::outcome(goal.most, &goal.values, false);
        let (ManyGoal { line, of, most, .. }, word) = (goal, record::word(&found));
        writeln!(out, "| {line} | {of} | {} | {most} | {word} |", record::spread(&found))?;
    }
    Ok(out)
}

fn cpu(sample: &Sample) -> f64 {
    sample.user_s + sample.sys_s
}

struct ManyBench<'a> {
    options: &'a Options,
    bcmr: PathBuf,
    ranks: PathBuf,
}

impl ManyBench<'_> {
    fn shell(&self, line: &str, src: &Path, dst: &Path) -> Result<Vec<String>> {
        let ranks = format!("{MPIRUN} {}", text(&self.ranks)?);
        let own = std::env::current_exe()?;
        let line = line.replace("{m}", &ranks).replace("{b}", text(&self.bcmr)?).replace("{w}", text(&own)?);
        let line = line.replace("{s}", text(src)?).replace("{d}", text(dst)?);
        Ok(vec!["sh".into(), "-c".into(), line])
    }

    /// A destination that is not there, and nothing left to be written back.
    fn clear(&self) -> Result<PathBuf> {
        let dir = self.options.dir.join("many");
        sh::quiet("rm", &["-rf", text(&dir)?])?;
        std::fs::create_dir_all(&dir)?;
        sh::quiet("sync", &["-f", text(&dir)?])?;
        Ok(dir.join("copy"))
    }

    fn row(&self, set: Set, lines: &[ManyLine], rounds: usize) -> Result<(Vec<TimedBy>, Vec<ManyGoal>)> {
        let (src, _) = set.make(&self.options.dir)?;
        let there = |line: &&ManyLine| line.name != FPSYNC || installed("fpsync").is_some();
        let lines: Vec<&ManyLine> = lines.iter().filter(there).collect();
        let timed = |line: &&ManyLine| TimedBy { name: line.name.to_owned(), samples: Vec::new() };
        let mut made: Vec<TimedBy> = lines.iter().map(timed).collect();
        let dst = self.options.dir.join("many/copy");
        for round in 0..=rounds {
            for (line, timed) in lines.iter().zip(&mut made) {
                if line.clears {
                    self.clear()?;
                }
                let sample = measure::once(&self.shell(line.line, &src, &dst)?)?;
                if round > 0 {
                    timed.samples.push(sample);
                }
            }
        }
        self.clear()?;
        let samples = |name: &str| made.iter().find(|line| line.name == name).map(|line| &line.samples);
        let mut goals = Vec::new();
        for line in lines {
            for goal in line.goals {
                let (of, most, other) = match *goal {
                    Wall(most, other) => (format!("wall / {other}"), most, Some(other)),
                    Cpu(most, other) => (format!("CPU / {other}"), most, Some(other)),
                    Mib(most) => ("peak, MiB".to_owned(), most, None),
                };
                let Some(ours) = samples(line.name) else { continue };
                let values = match (goal, other.map(samples)) {
                    (_, Some(None)) => continue,
                    (Cpu(..), Some(Some(theirs))) => {
                        ours.iter().zip(theirs).map(|(a, b)| cpu(a) / cpu(b)).collect()
                    }
                    (_, Some(Some(theirs))) => {
                        ours.iter().zip(theirs).map(|(a, b)| a.wall_s / b.wall_s).collect()
                    }
                    (_, None) => ours.iter().map(|s| s.peak_kib as f64 / 1024.0).collect(),
                };
                goals.push(ManyGoal { line: line.name.to_owned(), of, most, values });
            }
        }
        Ok((made, goals))
    }

    /// Two ranks, of which one is killed when half of the shards are done; then the same command again.
    fn killed(&self, title: &str, set: Set) -> Result<KilledRank> {
        let (src, size) = set.make(&self.options.dir)?;
        let dst = self.clear()?;
        let argv = self.shell("exec {m} copy {s} {d}", &src, &dst)?;
        let mut job = Command::new(&argv[0]);
        let mut job =
            job.args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let plan = format!("{}.bcmr-plan", text(&dst)?);
        self.until_half(&plan, &mut job)?;
        let ranks = sh::output("pgrep", &["-P", &job.id().to_string(), "bcmr-mpi"])?;
        let last = ranks.lines().last().ok_or("there is no rank")?;
        sh::quiet("kill", &["-KILL", last])?;
        job.wait()?;
        let before = on_disk(&self.options.dir.join("many"), &plan)?;
        let said = sh::output("sh", &["-c", &argv[2]])?;
        let number = |before: &str| -> Result<u64> {
            let rest =
                said.split_once("copied ").and_then(|(_, rest)| rest.split_once(before)).ok_or("no count")?.1;
            Ok(rest.trim().split(' ').next().unwrap_or_default().parse()?)
        };
        let (after_bytes, all_bytes) = (number("files, ")?, size.bytes);
        self.clear()?;
        let (title, commit) = (title.to_owned(), record::commit()?);
        Ok(KilledRank { title, commit, before_bytes: before, after_bytes, all_bytes })
    }

    fn until_half(&self, plan: &str, job: &mut Child) -> Result {
        loop {
            if let Some(ended) = job.try_wait()? {
                return Err(format!("the job ended before half of it was done: {ended}").into());
            }
            let said = Command::new(&self.bcmr).args(["plan", "--status", plan]).output()?;
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            if said.lines().filter(|line| line.ends_with(" done")).count() >= 32 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }
}

/// Bytes of content below `dir` but in the plan; of files with holes, what is there.
fn on_disk(dir: &Path, plan: &str) -> Result<u64> {
    let said =
        sh::output("find", &[text(dir)?, "-path", plan, "-prune", "-o", "-type", "f", "-printf", "%s %b\n"])?;
    let bytes = said.lines().filter_map(|line| {
        let (size, blocks) = line.split_once(' ')?;
        Some(size.parse::<u64>().ok()?.min(blocks.parse::<u64>().ok()? * 512))
    });
    Ok(bytes.sum())
}
