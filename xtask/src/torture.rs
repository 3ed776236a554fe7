//! `cargo xtask torture`: faults from outside, judged by programs that know nothing of how we copy.
//!
//! The judges lie in `xtask/torture`, in Python and C, so that nothing of ours can make them wrong in our favour.

use sh::Result;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const JUDGES: [(&str, &str); 6] = [
    ("inject", "every fault at every file-system call: torn names, lost data, exit codes that lie, litter"),
    ("race", "a name exchanged for a hostile link or FIFO before every call: escapes and hangs"),
    ("perm", "is anything open to others, or setuid for the wrong owner, at any call"),
    ("space", "no room, no inodes, no quota, at every size"),
    ("kill", "kill -9 at random moments, and the same command again"),
    ("tree", "every attribute of nasty trees, on and between file systems"),
];

/// Exit codes of a judge, as `lab.py` gives them. Python itself ends with 1 when the judge is at fault.
const FOUND: i32 = 3;
/// It could not run; it did not pass.
const NOT_RUN: i32 = 77;
/// How many findings an error names; all of them are printed.
const NAMED: usize = 3;

pub fn run(args: &[&str]) -> Result {
    judge_all(args).map(drop)
}

/// Runs judges as `run` does; returns those that could not run here.
pub fn judge_all(args: &[&str]) -> Result<Vec<&'static str>> {
    let mut wanted = Vec::new();
    let mut passed_on: Vec<String> = Vec::new();
    let mut bcmr = None;
    let mut rest = args.iter().copied();
    while let Some(arg) = rest.next() {
        match arg {
            "--help" | "-h" => {
                usage();
                return Ok(Vec::new());
            }
            "--bcmr" => bcmr = Some(std::fs::canonicalize(rest.next().ok_or("--bcmr needs a path")?)?),
            // The judges' own options, each with its value.
            "--quick" => passed_on.push(arg.to_owned()),
            option if option.starts_with("--") => {
                passed_on.push(format!("{option}={}", rest.next().ok_or(format!("{option} needs a value"))?));
            }
            name if JUDGES.iter().any(|judge| judge.0 == name) => wanted.push(name),
            name => return Err(format!("no judge {name:?}; cargo xtask torture --help").into()),
        }
    }
    let tools = build()?;
    let bcmr = match bcmr {
        Some(path) => path,
        None => {
            sh::run(sh::cargo().args(["build", "--release", "--locked", "-p", "bcmr"]))?;
            sh::release_dir().join("bcmr")
        }
    };
    let mut summary = Vec::new();
    let mut findings = Vec::new();
    for (name, _) in JUDGES.iter().filter(|judge| wanted.is_empty() || wanted.contains(&judge.0)) {
        println!("\n=== {name}");
        let begun = Instant::now();
        let code = judge(name, &tools, &bcmr, &passed_on, &mut findings)?;
        let word = match code {
            Some(0) => "nothing found".to_owned(),
            Some(NOT_RUN) => "NOT RUN".to_owned(),
            Some(FOUND) => "VIOLATIONS, see above".to_owned(),
            code => format!("BROKEN JUDGE, exit {code:?}"),
        };
        summary.push((name, code, format!("{name:8} {:>7.1} s  {word}", begun.elapsed().as_secs_f64())));
    }
    println!("\n=== summary");
    for (_, _, line) in &summary {
        println!("{line}");
    }
    let bad = summary.iter().filter(|(_, code, _)| !matches!(code, Some(0 | NOT_RUN))).count();
    if bad > 0 {
        findings.truncate(NAMED);
        let what =
            if findings.is_empty() { "nothing found, but broken".to_owned() } else { findings.join("; ") };
        return Err(format!("{bad} of {} judges did not pass: {what}", summary.len()).into());
    }
    Ok(summary.iter().filter(|(_, code, _)| *code == Some(NOT_RUN)).map(|(name, ..)| **name).collect())
}

fn usage() {
    println!(
        "cargo xtask torture [JUDGE...] [--quick] [--bcmr PATH] [--tool NAME] [--show N] [OPTION VALUE]...\n"
    );
    for (name, about) in JUDGES {
        println!("  {name:8} {about}");
    }
    println!(
        "\nAll judges without a name. --quick takes a sample. --tool cp (or mv, rm, rsync) judges the judge: it must\n\
         find what is known of them. Other options go to the judge as they are: --scenario, --how, --runs, --trees,\n\
         --seed, --spin SECONDS (an attacker in a loop). Needs root, ptrace and x86-64, and says so where it has not."
    );
}

/// Its exit code. What it finds is printed as it comes, and kept in `findings`.
fn judge(
    name: &str,
    tools: &Path,
    bcmr: &Path,
    more: &[String],
    findings: &mut Vec<String>,
) -> Result<Option<i32>> {
    let mut judge = Command::new("python3")
        .arg(sh::root().join("xtask/torture").join(format!("{name}.py")))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg("--tools")
        .arg(tools)
        .arg("--bcmr")
        .arg(bcmr)
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("python3: {e}"))?;
    let mut scenario = String::new();
    for line in judge.stdout.take().into_iter().flat_map(|out| BufReader::new(out).split(b'\n')) {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        match line.strip_prefix("    ") {
            Some(finding) => findings.push(format!("{scenario}: {finding}")),
            None => scenario = scenario_of(&line).unwrap_or(name).to_owned(),
        }
    }
    Ok(judge.wait()?.code())
}

/// The scenario that a judge's line of JSON is about.
fn scenario_of(line: &str) -> Option<&str> {
    line.split_once("\"scenario\": \"")?.1.split('"').next()
}

/// Compiles the two C programs into the target directory.
fn build() -> Result<PathBuf> {
    let out = sh::root().join("target/torture");
    std::fs::create_dir_all(&out)?;
    for name in ["ptfault", "xchg"] {
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-Wall", "-Wextra", "-o"]).arg(out.join(name));
        sh::run(cc.arg(sh::root().join("xtask/torture").join(format!("{name}.c"))))?;
    }
    Ok(out)
}
