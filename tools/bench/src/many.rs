//! `cargo xtask bench many`: a copy by several processes beside one of as many threads, and beside fpsync; and what a rank that
//! is killed in the middle costs. Must not know how processes share the work.

use crate::data::Set;
use crate::measure::{self, Sample, median};
use crate::options::Options;
use crate::programs::{binary, installed};
use crate::record::LocalRecord;
use sh::{Result, text};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Rounds behind a first one, which is not counted.
const ROUNDS: usize = 5;
/// What mpirun asks of root, and of more ranks than cores.
const MPIRUN: &str = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -n 2";

/// A command line for a shell, with `{s}` the source, `{d}` the copy, `{b}` bcmr, `{m}` mpirun and bcmr-mpi, and what it is
/// compared with.
struct ManyLine {
    name: &'static str,
    line: &'static str,
    /// Wall time at most, in that of another one.
    goal: Option<(f64, &'static str)>,
}

const ONE: &str = "bcmr copy -r -a -j 2";
const RANKS: &str = "2 ranks";
const LINES: [ManyLine; 4] = [
    ManyLine { name: ONE, line: "exec {b} copy -q -r -a -j 2 -T {s} {d}", goal: None },
    ManyLine { name: RANKS, line: "exec {m} copy -q {s} {d}", goal: Some((1.15, ONE)) },
    ManyLine {
        name: "64 shards, 2 at a time",
        line: "{b} plan -q {s} {d} --out {d}.plan --shards 64 -j 2 && seq 0 63 | xargs -P 2 -n 1 {b} shard -q -j 1 {d}.plan && {b} finish -q {d}.plan",
        goal: Some((1.15, ONE)),
    },
    ManyLine { name: FPSYNC, line: "exec fpsync -n 2 {s}/ {d}/", goal: None },
];
const FPSYNC: &str = "fpsync -n 2";

pub fn run(options: &Options) -> Result {
    let bench =
        ManyBench { options, bcmr: binary(options)?, ranks: sh::root().join("target/mpi/release/bcmr-mpi") };
    if !bench.ranks.is_file() {
        return Err("build bcmr-mpi first: cargo xtask mpi --release".into());
    }
    let (files, bytes) = if options.quick { (7_000, 1 << 28) } else { (70_000, 4 << 30) };
    let sets = [
        ("files", Set::Source { files, dirs: files / 10 }),
        ("large file", Set::Even { dirs: 1, files_per_dir: 1, bytes }),
    ];
    let rounds = options.rounds.unwrap_or(if options.quick { 2 } else { ROUNDS });
    println!("{}", LocalRecord::of_this_machine(&options.dir, options.quick)?.headline());
    for (name, set) in sets {
        println!("{name}: {set:?}, {rounds} rounds behind a first one, taken in turns");
        bench.row(set, rounds)?;
    }
    bench.killed(sets[0].1)?;
    bench.killed(sets[1].1)
}

struct ManyBench<'a> {
    options: &'a Options,
    bcmr: PathBuf,
    ranks: PathBuf,
}

impl ManyBench<'_> {
    fn shell(&self, line: &str, src: &Path, dst: &Path) -> Result<Vec<String>> {
        let ranks = format!("{MPIRUN} {}", text(&self.ranks)?);
        let line = line.replace("{m}", &ranks).replace("{b}", text(&self.bcmr)?);
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

    fn row(&self, set: Set, rounds: usize) -> Result {
        let (src, _) = set.make(&self.options.dir)?;
        let mut samples: Vec<Vec<Sample>> = LINES.iter().map(|_| Vec::new()).collect();
        let there = |line: &ManyLine| line.name != FPSYNC || installed("fpsync").is_some();
        for round in 0..=rounds {
            for (line, samples) in LINES.iter().zip(&mut samples).filter(|(line, _)| there(line)) {
                let dst = self.clear()?;
                let sample = measure::once(&self.shell(line.line, &src, &dst)?)?;
                if round > 0 {
                    samples.push(sample);
                }
            }
        }
        self.clear()?;
        let wall = |name: &str| {
            let at = LINES.iter().position(|line| line.name == name).unwrap_or(0);
            median(samples[at].iter().map(|s| s.wall_s))
        };
        for (line, samples) in LINES.iter().zip(&samples).filter(|(line, _)| there(line)) {
            let of = |value: fn(&Sample) -> f64| median(samples.iter().map(value));
            let goal = line.goal.map_or(String::new(), |(most, other)| {
                let ratio = wall(line.name) / wall(other);
                format!(", {ratio:.2} of {other} ({})", if ratio <= most { "met" } else { "missed" })
            });
            println!(
                "  {:24} {:7.3} s, CPU {:6.2} s, others' CPU {:5.2} s{goal}",
                line.name,
                of(|s| s.wall_s),
                of(|s| s.user_s + s.sys_s),
                of(|s| s.foreign_s)
            );
        }
        let ratio = wall(RANKS) / wall(FPSYNC);
        println!("  {RANKS}: {ratio:.2} of {FPSYNC} ({})", if ratio <= 0.5 { "met" } else { "missed" });
        Ok(())
    }

    /// Two ranks, of which one is killed when half of the shards are done; then the same command again.
    fn killed(&self, set: Set) -> Result {
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
        let (copied, all) = (number("files, ")?, size.bytes);
        let again = (before + copied).saturating_sub(all);
        println!(
            "killed at half of {set:?}: {before} bytes before, {copied} after, of {all}: {:.1} % again",
            again as f64 * 100.0 / all as f64
        );
        self.clear().map(drop)
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
