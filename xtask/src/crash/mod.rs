//! `cargo xtask crash`: real file systems, real power cuts. What bcmr writes is recorded block by block, and every state
//! that a power cut could have left is mounted and judged.
//!
//! `record` runs a workload on recorded disks, `state` rebuilds disks from the log, `replay` mounts them, `judge` says
//! what is wrong. Needs root, /dev/fuse and loop devices.

mod fs;
mod image;
mod judge;
mod log;
mod record;
mod replay;
mod state;
mod sys;
mod workload;

use crate::typed;
use clap::Parser;
use fs::Fs;
use judge::Kind;
use record::{Bench, Cell};
use replay::{Count, Point, Seen, Stats};
use sh::Result;
use state::Mode;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use sys::{Scratch, Stop};
use workload::{PLANTED, WORKLOADS, Workload};

/// Power cuts on real file systems, every state judged; needs root, /dev/fuse and loop devices.
#[derive(Parser)]
#[command(name = "cargo xtask crash")]
struct Options {
    /// How long; fractions are taken. However short, each cell gets a first look.
    #[arg(long = "minutes", value_name = "N", default_value = "1", value_parser = minutes)]
    time: Duration,
    /// File systems: ext4, xfs, btrfs (the default), ext4-writeback.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = file_system, default_value = "ext4,xfs,btrfs")]
    fs: Vec<Fs>,
    /// Workloads; `--list` names them.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = workload)]
    only: Vec<String>,
    /// File contents, cuts and what is left of the writes; told at the start when it is not given.
    #[arg(long, value_name = "N", default_value_t = seed_of_now())]
    seed: u64,
    /// The binary under test, instead of building one.
    #[arg(long, value_name = "PATH", value_parser = there)]
    bcmr: Option<PathBuf>,
    /// Builds nothing: the recorder is beside this program.
    #[arg(long, hide = true, requires = "bcmr")]
    built: bool,
    /// Names the workloads.
    #[arg(long)]
    list: bool,
    /// Runs faulty tools instead, each of which must be caught.
    #[arg(long = "prove-judge")]
    prove: bool,
    /// Looks again at one state of a recording that was kept because it broke a promise; with --state, and what was said of
    /// --fs, --only and --seed.
    #[arg(long, value_name = "DIR", requires = "state", value_parser = absolute)]
    again: Option<PathBuf>,
    /// That state: CUT:MODE:SALT.
    #[arg(long, value_name = "STATE", value_parser = point)]
    state: Option<Point>,
}

fn minutes(text: &str) -> std::result::Result<Duration, String> {
    let minutes = text.parse::<f64>().map_err(|e| e.to_string())?;
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|e| e.to_string())
}

fn file_system(name: &str) -> std::result::Result<Fs, String> {
    Fs::parse(name).ok_or_else(|| format!("no file system {name:?} here"))
}

fn workload(name: &str) -> std::result::Result<String, String> {
    let known = WORKLOADS.iter().chain(&PLANTED).any(|w| w.name == name);
    if known { Ok(name.to_owned()) } else { Err(format!("no workload {name:?}; --list names them")) }
}

fn there(path: &str) -> std::result::Result<PathBuf, String> {
    std::fs::canonicalize(path).map_err(|e| e.to_string())
}

fn absolute(path: &str) -> std::result::Result<PathBuf, String> {
    std::path::absolute(path).map_err(|e| e.to_string())
}

fn point(text: &str) -> std::result::Result<Point, String> {
    Point::parse(text).ok_or_else(|| "STATE is CUT:MODE:SALT".to_owned())
}

fn seed_of_now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs() % 1_000_000)
}

/// The file systems that are tried unless others are named.
pub const FS: [Fs; 3] = [Fs::Ext4, Fs::Xfs, Fs::Btrfs];
/// Room for images and logs, in bytes.
const SCRATCH_BYTES: u64 = 3 << 30;

/// What a run needs beside its cells.
struct Tools {
    bcmr: PathBuf,
    blkrec: PathBuf,
    scratch: Scratch,
    stop: Stop,
}

pub fn run(args: &[&str]) -> Result {
    let Some(options) = typed::parse::<Options>(args)? else { return Ok(()) };
    if options.list {
        for workload in WORKLOADS.iter().chain(&PLANTED) {
            println!("{:18} {}", workload.name, workload.what);
        }
        return Ok(());
    }
    if let Some(why) = missing(&options.fs) {
        println!("SKIPPED: power cuts: {why}");
        return Ok(());
    }
    let tools = tools(&options)?;
    if let Some(dir) = &options.again {
        return again(&options, &tools, dir);
    }
    if options.prove { prove(&options, &tools) } else { campaign(&options, &tools) }
}

/// Why it cannot be run here.
pub fn missing(fs: &[Fs]) -> Option<String> {
    if !sh::is_root() {
        return Some("it mounts file systems: run it as root".to_owned());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if let Err(e) = std::fs::File::options().read(true).write(true).open(device) {
            return Some(format!("{device}: {e}"));
        }
    }
    let needed = fs.iter().map(|fs| fs.mkfs()).chain(["losetup", "mkfs.ext4", "btrfs"].map(str::to_owned));
    let gone: Vec<String> = needed.filter(|program| sh::which(program).is_none()).collect();
    (!gone.is_empty()).then(|| format!("not installed: {}", gone.join(" ")))
}

/// Builds what is needed, beside this program.
fn tools(options: &Options) -> Result<Tools> {
    let built = std::env::current_exe()?;
    let built = built.parent().ok_or("this program is nowhere")?;
    if !options.built {
        let mut build = sh::cargo();
        build.args(["build", "--quiet", "--locked", "--package", "blkrec"]);
        if options.bcmr.is_none() {
            build.args(["--package", "bcmr"]);
        }
        if built.ends_with("release") {
            build.arg("--release");
        }
        sh::run(&mut build)?;
    }
    let scratch = Scratch::new(
        &format!("bcmr-crash.{}", std::process::id()),
        SCRATCH_BYTES,
        &sh::root().join("target"),
    )?;
    Ok(Tools {
        bcmr: options.bcmr.clone().unwrap_or_else(|| built.join("bcmr")),
        blkrec: built.join("blkrec"),
        scratch,
        stop: Stop::on_signals()?,
    })
}

/// What became of one cell.
type Outcome = (Cell, std::result::Result<Stats, String>);

/// Gives every cell its share of the time, on all cores.
fn campaign(options: &Options, tools: &Tools) -> Result {
    let wanted = |w: &&Workload| options.only.is_empty() || options.only.iter().any(|n| n == w.name);
    let (known, unknown): (Vec<_>, Vec<_>) =
        WORKLOADS.iter().filter(wanted).partition(|w| workload::is_known(w, &tools.bcmr));
    for workload in unknown {
        println!("NOT TRIED: {}: this bcmr has no such option yet", workload.name);
    }
    // File systems alternate: two workers seldom wait for the same one.
    let mut cells: Vec<Cell> = Vec::new();
    for workload in known {
        cells.extend(options.fs.iter().map(|fs| Cell { workload, fs: *fs, seed: options.seed }));
    }
    println!(
        "crash: seed {}, {:.0} s, {} cells, {}",
        options.seed,
        options.time.as_secs_f64(),
        cells.len(),
        tools.bcmr.display()
    );
    let begun = Instant::now();
    let until = begun + options.time;
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min(cells.len().max(1));
    let queue = Mutex::new(cells.into_iter().rev().collect::<Vec<_>>());
    let outcomes: Mutex<Vec<Outcome>> = Mutex::new(Vec::new());
    let mut panicked = false;
    let work = |n: usize| {
        loop {
            let (cell, left) = {
                let Ok(mut queue) = queue.lock() else { return };
                let left = queue.len();
                let Some(cell) = queue.pop() else { return };
                (cell, left)
            };
            let rest = until.saturating_duration_since(Instant::now());
            let rounds = left.div_ceil(workers);
            let share = rest / u32::try_from(rounds).unwrap_or(u32::MAX).max(1);
            let outcome = one(&cell, tools, n, Instant::now() + share, &|_| false, true);
            let outcome = outcome.map_err(|e| e.to_string());
            if let Ok(mut outcomes) = outcomes.lock() {
                outcomes.push((cell, outcome));
            }
        }
    };
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|n| scope.spawn(move || work(n))).collect();
        panicked = threads.into_iter().map(|t| t.join()).filter(std::result::Result::is_err).count() > 0;
    });
    let outcomes = outcomes.into_inner().map_err(|_| "a worker panicked")?;
    if panicked {
        return Err("a worker panicked".into());
    }
    tools.stop.check()?;
    report(&outcomes, begun.elapsed())
}

/// Records one cell and looks at its states.
fn one(
    cell: &Cell,
    tools: &Tools,
    worker: usize,
    until: Instant,
    enough: &dyn Fn(&Stats) -> bool,
    keep: bool,
) -> Result<Stats> {
    tools.stop.check()?;
    let dir = tools.scratch.dir.join(format!("w{worker}"));
    let bench = Bench::new(&dir, &tools.bcmr)?;
    let recording = record::record(cell, &bench, &tools.blkrec, &tools.stop)?;
    let stats = replay::replay(cell, &bench, &recording, until, &tools.stop, enough)?;
    if keep && !stats.examples.is_empty() {
        replay::keep(&recording, &kept(cell))?;
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(stats)
}

/// Where the recording of a cell that broke a promise is kept.
fn kept(cell: &Cell) -> PathBuf {
    sh::root().join("target/crash").join(cell.name())
}

fn report(outcomes: &[Outcome], took: Duration) -> Result {
    println!(
        "\n{:<15} {:<17} {:>8} {:>8} {:>8} {:>8} {:>9} {:>7}",
        "fs", "workload", "mode", "states", "failing", "no mount", "after exit", "reruns"
    );
    let mut total = Count::default();
    let mut wrong = Vec::new();
    for (cell, outcome) in outcomes {
        let (fs, workload) = (cell.fs.name(), cell.workload);
        let stats = match outcome {
            Ok(stats) => stats,
            Err(e) => {
                println!("{fs:<15} {:<17} FAILED: {e}", workload.name);
                wrong.push(format!("{}: {e}", cell.name()));
                continue;
            }
        };
        for (mode, count) in &stats.modes {
            println!(
                "{fs:<15} {:<17} {:>8} {:>8} {:>8} {:>8} {:>10} {:>7}",
                workload.name,
                mode.word(),
                count.states,
                count.failing,
                count.unmountable,
                if *mode == Mode::Prefix { stats.after_exit.to_string() } else { String::new() },
                if *mode == Mode::Prefix { stats.reruns.to_string() } else { String::new() },
            );
            total.states += count.states;
            total.failing += count.failing;
            total.unmountable += count.unmountable;
        }
        let counted = |promised: bool| -> Vec<String> {
            let kinds = stats.kinds.iter().filter(|(kind, _)| kind.is_promised(workload) == promised);
            kinds.map(|(kind, n)| format!("{} in {n}", kind.word())).collect()
        };
        let (broken, seen) = (counted(true), counted(false));
        if !seen.is_empty() {
            println!("    no promise, only counted: {}", seen.join(", "));
            for (point, fault) in stats.counted.values() {
                println!("        {point} {fault}");
            }
        }
        let (all, lame) =
            stats.modes.values().fold((0, 0), |sum, c| (sum.0 + c.states, sum.1 + c.unmountable));
        if all == lame {
            wrong.push(format!("{}: no state could be mounted, so nothing was judged", cell.name()));
        }
        if !broken.is_empty() {
            println!("    BROKEN: {}", broken.join(", "));
            wrong.push(format!("{}: {}", cell.name(), broken.join(", ")));
            for (point, faults) in &stats.examples {
                println!("    state {point}");
                for fault in faults.iter().filter(|f| f.kind.is_promised(workload)).take(3) {
                    println!("        {fault}");
                }
            }
            if let Some((point, _)) = stats.examples.first() {
                println!(
                    "    again: cargo xtask crash --again {} --state {point} --fs {fs} --only {} --seed {}",
                    kept(cell).strip_prefix(sh::root()).unwrap_or(Path::new("?")).display(),
                    workload.name,
                    cell.seed
                );
            }
        }
    }
    let per_minute = total.states as f64 / took.as_secs_f64() * 60.0;
    println!(
        "\ncrash: {} crash states in {:.0} s ({per_minute:.0} a minute), {} with a broken promise, {} not mountable",
        total.states,
        took.as_secs_f64(),
        total.failing,
        total.unmountable
    );
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n       ").into()) }
}

/// Every faulty tool must be caught, on each file system, at what it is faulty in.
fn prove(options: &Options, tools: &Tools) -> Result {
    let mut missed = Vec::new();
    for workload in &PLANTED {
        for fs in &options.fs {
            let cell = Cell { workload, fs: *fs, seed: options.seed };
            let expected: &[Kind] = match workload.name {
                "planted-cp" => &[Kind::NewTorn, Kind::NewEmpty, Kind::NotDurable],
                "planted-rename" => &[Kind::NotDurable],
                "planted-mv" => &[Kind::Lost],
                _ => &[Kind::RerunWrong],
            };
            let caught = |stats: &Stats| expected.iter().any(|kind| stats.kinds.contains_key(kind));
            let until = Instant::now() + Duration::from_secs(20);
            let stats = one(&cell, tools, 0, until, &caught, false)?;
            let states: u64 = stats.modes.values().map(|c| c.states).sum();
            let found: BTreeMap<&str, u64> = stats.kinds.iter().map(|(k, n)| (k.word(), *n)).collect();
            println!("{:<15} {:<15} {states:>4} states: {found:?}", fs.name(), workload.name);
            if !caught(&stats) {
                missed.push(cell.name());
            }
        }
    }
    if missed.is_empty() {
        println!("crash: every faulty tool was caught");
        return Ok(());
    }
    Err(format!("not caught: {}", missed.join(" ")).into())
}

fn again(options: &Options, tools: &Tools, dir: &Path) -> Result {
    let (Some(point), [fs], [name]) = (options.state, &options.fs[..], &options.only[..]) else {
        return Err("--again needs --state, one --fs, one --only and --seed".into());
    };
    let named = WORKLOADS.iter().chain(&PLANTED).find(|w| w.name == *name);
    let cell = Cell { workload: named.ok_or("no such workload")?, fs: *fs, seed: options.seed };
    let bench = Bench::new(&tools.scratch.dir.join("w0"), &tools.bcmr)?;
    match replay::again(&cell, &bench, dir, point)? {
        Seen::Unmountable(why) => println!("cannot be mounted: {why}"),
        Seen::Judged { faults, .. } => {
            for fault in &faults {
                let word = if fault.kind.is_promised(cell.workload) { "BROKEN" } else { "counted" };
                println!("{word}: {fault}");
            }
            println!("{} things to say", faults.len());
        }
    }
    Ok(())
}
