//! What a second run of `bcmr sync` sends of files that differ from what is there, beside `rsync -a`: in bytes, which are the
//! same on a busy machine, and in seconds over a thin line. Must not know how it is found out.

pub mod record;

use crate::measure::{self, median};
use crate::options::{Options, command};
use crate::programs;
use crate::record::{LocalRecord, commit};
use crate::remote::far::{self, Far};
use crate::remote::rows::Line;
use record::{DeltaGoalRecord, DeltaRecord, DeltaRowRecord, LineTime};
use sh::{Result, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A row: its name, how the older tree and the newer one are made.
struct DeltaRow {
    name: &'static str,
    title: &'static str,
    make: fn(&Path, &Path, u64) -> Result,
    goals: &'static [DeltaGoal],
}

/// What a row is to come to.
#[derive(Clone, Copy)]
enum DeltaGoal {
    /// So many times rsync's bytes, at most.
    Bytes(f64),
    /// So many bytes.
    Most(u64),
    /// So many times what `zstd --patch-from` comes to.
    Patch(f64),
    /// So many times rsync's seconds over the line.
    Wall(f64),
    /// So many times its CPU seconds, both sides together.
    Cpu(f64),
}

const ROWS: [DeltaRow; 7] = [
    DeltaRow {
        name: "byte",
        title: "one byte put into the middle",
        make: byte,
        goals: &[DeltaGoal::Bytes(1.5), DeltaGoal::Most(300 << 10), DeltaGoal::Cpu(1.0)],
    },
    DeltaRow {
        name: "ten",
        title: "a 200th replaced, in ten places",
        make: ten,
        goals: &[DeltaGoal::Bytes(1.0)],
    },
    DeltaRow {
        name: "tar",
        title: "a tar of this repository's sources, and of those 40 commits later",
        make: tar,
        goals: &[DeltaGoal::Bytes(0.9), DeltaGoal::Patch(1.1)],
    },
    DeltaRow {
        name: "renamed",
        title: "a file renamed",
        make: renamed,
        goals: &[DeltaGoal::Most(200 << 10)],
    },
    DeltaRow {
        name: "moved",
        title: "a tree of small files moved",
        make: moved,
        goals: &[DeltaGoal::Most(3_000_000)],
    },
    DeltaRow {
        name: "pages",
        title: "pages of 4 KiB changed, 1 % of all",
        make: pages,
        goals: &[DeltaGoal::Bytes(1.3)],
    },
    DeltaRow {
        name: "nothing",
        title: "small files of which none changed",
        make: nothing,
        goals: &[DeltaGoal::Bytes(1.0), DeltaGoal::Wall(0.5)],
    },
];

/// Large files have so many bytes; with `--quick` a tenth.
const BYTES: u64 = 200 << 20;
/// A tree has so many files; the one of which nothing changed, ten times as many.
const FILES: u64 = 10_000;

/// A round over the line that takes longer is not repeated.
const REPEATED_S: f64 = 20.0;

/// `cargo xtask bench delta`.
pub fn run(options: &Options, typed: &[&str]) -> Result {
    let part = if options.quick { 10 } else { 1 };
    let bcmr = programs::binary(options)?;
    let line = match far::why_not(Line::Thin) {
        Some(why) => {
            println!("NO TIMES: {why}");
            None
        }
        None => Some(Far::start(Line::Thin, &options.dir.join("far"), &bcmr)?),
    };
    let machine = LocalRecord::of_this_machine(&options.dir, options.quick)?.headline();
    let machine = format!("{machine}; {}", programs::version("rsync", &bcmr));
    println!("{machine}");
    let mut made = DeltaRecord { schema: 1, machine, rows: Vec::new() };
    println!("{:<64} {:>12} {:>12} {:>12} {:>7}", "bytes, both ways", "rsync", "up", "down", "up/r");
    for row in ROWS.iter().filter(|row| options.only.is_empty() || options.only.contains(&row.name.into())) {
        let dir = options.dir.join(format!("delta-{}", row.name));
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let (old, new) = (dir.join("old"), dir.join("new"));
        fs::create_dir_all(&old)?;
        fs::create_dir_all(&new)?;
        (row.make)(&old, &new, part)?;
        let rsync = rsync(&dir)?;
        let (up, down) = (ours(&bcmr, &dir, true)?, ours(&bcmr, &dir, false)?);
        let title = format!("{} ({})", row.title, row.name);
        println!("{title:<64} {rsync:>12} {up:>12} {down:>12} {:>7.2}", up as f64 / rsync as f64);
        let patch = if row.name == "tar" { Some(patch_of(&dir)?) } else { None };
        if let Some(patch) = patch {
            println!(
                "    zstd -3 --long=27 --patch-from: {patch} bytes, bcmr {:.2} of it",
                up as f64 / patch as f64
            );
        }
        let times = line.as_ref().map(|far| over_the_line(far, &bcmr, &dir, options)).transpose()?;
        if let Some([theirs, our]) = &times {
            for (name, time) in [("rsync", theirs), ("bcmr", our)] {
                let LineTime { wall_s, cpu_s, rounds } = time;
                println!(
                    "    20 Mbit/s, 40 ms, up: {name:<6} {wall_s:>8.2} s, CPU of both sides {cpu_s:>6.2} s (n = {rounds})"
                );
            }
        }
        let ratio = |of: fn(&LineTime) -> f64| times.as_ref().map(|[theirs, our]| of(our) / of(theirs));
        let judged = |goal: &DeltaGoal| {
            let (of, value, most) = match *goal {
                DeltaGoal::Bytes(most) => ("of rsync's bytes", Some(up as f64 / rsync as f64), most),
                DeltaGoal::Most(most) => ("bytes", Some(up as f64), most as f64),
                DeltaGoal::Patch(most) => {
                    ("of zstd's patch", patch.map(|patch| up as f64 / patch as f64), most)
                }
                DeltaGoal::Wall(most) => ("of rsync's time", ratio(|time| time.wall_s), most),
                DeltaGoal::Cpu(most) => ("of rsync's CPU", ratio(|time| time.cpu_s), most),
            };
            DeltaGoalRecord { of: of.to_owned(), value, most }
        };
        let goals: Vec<DeltaGoalRecord> = row.goals.iter().map(judged).collect();
        for goal in &goals {
            let DeltaGoalRecord { of, most, .. } = goal;
            println!("    goal: at most {most} {of}: {} ({})", goal.verdict(), goal.came());
        }
        made.rows.push(DeltaRowRecord {
            name: row.name.to_owned(),
            title: row.title.to_owned(),
            commit: commit()?,
            command: command("delta", typed),
            rsync,
            up,
            down,
            patch,
            times,
            goals,
        });
        fs::remove_dir_all(&dir)?;
    }
    record::keep(made, &ROWS.map(|row| row.name), options)
}

/// What a patch comes to that knows the older file whole.
fn patch_of(dir: &Path) -> Result<u64> {
    let (old, new) = (dir.join("old/sources.tar"), dir.join("new/sources.tar"));
    let patch = dir.join("patch");
    let from = format!("--patch-from={}", text(&old)?);
    sh::quiet("zstd", &["-q", "-f", "-3", "--long=27", &from, text(&new)?, "-o", text(&patch)?])?;
    Ok(fs::metadata(&patch)?.len())
}

/// The same work over a thin line, in turns.
fn over_the_line(far: &Far, bcmr: &Path, dir: &Path, options: &Options) -> Result<[LineTime; 2]> {
    let rounds = options.rounds.unwrap_or(3);
    let (config, new, there) = (text(far.config())?, dir.join("new"), dir.join("there"));
    let (new, there) = (text(&new)?, text(&there)?);
    let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let shell = format!("ssh -F {config}");
    let (source, target) = (format!("{new}/"), format!("there:{there}"));
    let below = format!("{target}/");
    let commands = [
        words(&["rsync", "-a", "--delete", "--no-whole-file", "-e", &shell, &source, &below]),
        words(&[text(bcmr)?, "sync", "--delete", "--max-delete=100%", "-q", "-F", config, new, &target]),
    ];
    let mut all: [(Vec<f64>, Vec<f64>); 2] = Default::default();
    for _ in 0..rounds {
        for (argv, (walls, cpus)) in commands.iter().zip(&mut all) {
            if walls.iter().any(|wall| *wall > REPEATED_S) {
                continue;
            }
            older(dir)?;
            let before_s = far.used_s()?;
            let sample = measure::once(argv)?;
            let far_s = far.used_s()? - before_s;
            walls.push(sample.wall_s);
            cpus.push(sample.user_s + sample.sys_s + far_s);
        }
    }
    Ok(all.map(|(walls, cpus)| {
        let rounds = walls.len();
        LineTime { wall_s: median(walls), cpu_s: median(cpus), rounds }
    }))
}

/// A copy of the older tree, as the receiver has it.
fn older(dir: &Path) -> Result<PathBuf> {
    let there = dir.join("there");
    if there.exists() {
        fs::remove_dir_all(&there)?;
    }
    sh::run(Command::new("cp").args(["-a"]).arg(dir.join("old")).arg(&there))?;
    Ok(there)
}

/// What rsync says that it sent and received, with its own delta, as between two machines.
fn rsync(dir: &Path) -> Result<u64> {
    let there = older(dir)?;
    let mut command = Command::new("rsync");
    command.args(["-a", "--delete", "--no-whole-file", "--stats", "--no-human-readable"]);
    command.arg(format!("{}/", dir.join("new").display())).arg(format!("{}/", there.display()));
    let out = command.output()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let number = |what: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(what));
        line.and_then(|n| n.trim().replace(',', "").parse::<u64>().ok())
    };
    let both = number("Total bytes sent:").zip(number("Total bytes received:"));
    let (sent, received) = both.ok_or_else(|| format!("rsync does not say what it sent: {said}"))?;
    Ok(sent + received)
}

/// What passes between two bcmr over a pipe.
fn ours(bcmr: &Path, dir: &Path, up: bool) -> Result<u64> {
    let (new, there) = (dir.join("new"), older(dir)?);
    let (home, log) = (dir.join("home"), dir.join("log"));
    fs::create_dir_all(home.join("run"))?;
    fs::set_permissions(home.join("run"), fs::Permissions::from_mode(0o700))?;
    let relay = sh::root().join("crates/bcmr/tests/all/common/relay-ssh");
    let mut command = Command::new(bcmr);
    command.args(["sync", "--delete", "--max-delete=100%", "-q"]);
    command.arg(format!("--ssh={}", relay.display())).arg(format!("--remote-program={}", bcmr.display()));
    let far = |path: &Path| format!("there:{}", path.display());
    if up {
        command.arg(&new).arg(far(&there));
    } else {
        command.arg(far(&new)).arg(&there);
    }
    command.envs([("FAR_RUN", ""), ("FAR_ARGS", "")]).env("FAR_HOME", &home).env("RELAY_LOG", &log);
    sh::run(&mut command)?;
    sh::quiet("diff", &["-r", "--no-dereference", text(&new)?, text(&there)?])?;
    // The relay writes it when both ends are gone, which may be a moment later.
    for _ in 0..200 {
        if log.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let said = fs::read_to_string(&log)?;
    fs::remove_file(&log)?;
    let numbers = said.split_whitespace().map(|n| n.parse::<u64>().unwrap_or_default());
    Ok(numbers.sum())
}

fn noise(seed: u64, bytes: u64) -> Vec<u8> {
    let mut out = vec![0; bytes as usize];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut out);
    out
}

/// Writes an hour after the older version: rsync compares whole seconds, and takes the same size at the same time for the same.
fn newer(path: &Path, bytes: &[u8]) -> Result {
    fs::write(path, bytes)?;
    let hour = std::time::Duration::from_secs(3600);
    Ok(fs::File::options().write(true).open(path)?.set_modified(std::time::SystemTime::now() + hour)?)
}

fn byte(old: &Path, new: &Path, part: u64) -> Result {
    let mut bytes = noise(1, BYTES / part);
    fs::write(old.join("f"), &bytes)?;
    bytes.insert(bytes.len() / 2, 7);
    newer(&new.join("f"), &bytes)
}

fn ten(old: &Path, new: &Path, part: u64) -> Result {
    let mut bytes = noise(1, BYTES / part);
    fs::write(old.join("f"), &bytes)?;
    let (step, each) = (bytes.len() / 10, bytes.len() / 2000);
    for n in 0..10 {
        let at = n * step + step / 3;
        bytes[at..at + each].copy_from_slice(&noise(2 + n as u64, each as u64));
    }
    newer(&new.join("f"), &bytes)
}

fn tar(old: &Path, new: &Path, _: u64) -> Result {
    for (commit, dir) in [("HEAD~40", old), ("HEAD", new)] {
        let file = dir.join("sources.tar");
        let mut command = Command::new("git");
        command.arg("-C").arg(sh::root()).args(["archive", "--format=tar", commit, "-o"]).arg(file);
        sh::run(&mut command)?;
    }
    Ok(())
}

fn renamed(old: &Path, new: &Path, part: u64) -> Result {
    let (before, after) = (old.join("before"), new.join("after"));
    fs::write(&before, noise(1, BYTES / part))?;
    sh::run(Command::new("cp").arg("-a").arg(before).arg(after))
}

fn tree(at: &Path, files: u64) -> Result {
    for n in 0..files {
        let dir = at.join(format!("{:02}", n % 100));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("{n}")), noise(n, 1024 + n % 8192))?;
    }
    Ok(())
}

fn moved(old: &Path, new: &Path, part: u64) -> Result {
    tree(&old.join("before"), FILES / part)?;
    sh::run(Command::new("cp").arg("-a").arg(old.join("before")).arg(new.join("after")))
}

fn pages(old: &Path, new: &Path, part: u64) -> Result {
    let mut bytes = noise(1, BYTES / part);
    fs::write(old.join("f"), &bytes)?;
    let all = bytes.len() / 4096;
    for n in 0..all / 100 {
        let which = u64::from_le_bytes(noise(n as u64, 8).try_into().unwrap_or_default());
        let at = which as usize % all * 4096;
        bytes[at..at + 4096].copy_from_slice(&noise(1_000_000 + n as u64, 4096));
    }
    newer(&new.join("f"), &bytes)
}

fn nothing(old: &Path, new: &Path, part: u64) -> Result {
    tree(old, 10 * FILES / part)?;
    fs::remove_dir(new)?;
    sh::run(Command::new("cp").arg("-a").arg(old).arg(new))
}
