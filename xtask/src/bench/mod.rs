//! `cargo xtask bench`: side by side with other tools, on the same data, in one interleaved run.

pub mod checkpoint;
pub mod data;
pub mod measure;
mod memory;
pub mod mount;
mod papers;
pub mod remote;
pub mod report;
mod rows;
pub mod svg;
pub mod turns;
pub mod verdict;

use crate::sh::{self, Result};
use measure::Sample;
use report::{Record, RowRecord, ToolRecord};
use rows::{Cache, OURS, Place, Row, Tool, Verb};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use turns::{Copies, Turns};

const USAGE: &str = "\
cargo xtask bench local [OPTION]   copy and remove beside cp, rm, rsync -a and, where installed, xcp, cpz, fcp
cargo xtask bench memory [OPTION]  peak memory at 1,000,000 files
cargo xtask bench checkpoint [OPTION]
                                   verifying, checkpoints, going on after a kill, against the design's figures
cargo xtask bench remote [OPTION]  copies to and from another machine beside scp, rsync -a and tar | ssh tar
cargo xtask bench guests           installs the copiers that are no Debian packages into target/tools, by `cargo install`
cargo xtask bench report DIR       writes every page and picture of benchmarks in DIR again, from the JSON files there

  --dir DIR     where data and copies lie ($BCMR_BENCH_DIR, else target/bench)
  --on FS       instead on tmpfs, or on a fresh ext4, xfs or btrfs in an image below DIR (needs root); a fresh
                file system is the better judge where others work on the same disk
  --tmpfs       the same as --on tmpfs
  --only NAME   only this row; may be given again
  --rows A,B    the same for several; of `bench remote` also without -put and -get, for both
  --rounds N    rounds per row (guests such as rsync take part in the first three)
  --gib N       checkpoint: size of the large file (1)
  --minutes N   checkpoint, remote: begin nothing more after so long, and say what was left out
  --quick       a tenth of the data and three rounds: to see that it runs, not for any record
  --bcmr PATH   the binary under measurement, instead of building one
  --no-strace   do not count system calls
  --out DIR     where results.json and results.svg go (target/bench-results)
  --write DIR   also keep the result as DIR/benchmarks-FS.{json,svg} and write DIR/benchmarks.md from all of them";

/// What was typed.
#[derive(Clone)]
pub struct Options {
    pub dir: PathBuf,
    pub on: On,
    pub only: Vec<String>,
    pub rounds: Option<usize>,
    pub quick: bool,
    pub gib: u64,
    pub minutes: Option<f64>,
    pub bcmr: Option<PathBuf>,
    pub strace: bool,
    pub out: PathBuf,
    pub write: Option<PathBuf>,
}

/// Which file system lies below the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    Whatever,
    Tmpfs,
    Image(String),
}

/// How large an image for the whole table may grow.
pub const IMAGE_BYTES: u64 = 64 << 30;

/// Guests are measured in so many rounds.
const GUEST_ROUNDS: usize = 3;

pub fn run(args: &[&str]) -> Result {
    match args {
        ["local", rest @ ..] if !rest.contains(&"--help") => on(parse(rest)?, |options| local(options, rest)),
        ["checkpoint", rest @ ..] if !rest.contains(&"--help") => {
            on(parse(rest)?, |options| checkpoint::run(options, rest))
        }
        ["remote", rest @ ..] if !rest.contains(&"--help") => {
            let mut options = parse(rest)?;
            if options.on == On::Whatever {
                options = options.on_tmpfs();
            }
            on(options, |options| remote::run(options, rest))
        }
        ["memory", rest @ ..] if !rest.contains(&"--help") => {
            on(parse(rest)?, |options| memory::run(options, rest))
        }
        ["guests"] => guests(),
        ["report", dir] => report::document(&sh::root().join(dir)),
        [.., "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(format!("usage:\n{USAGE}").into()),
    }
}

/// Lays the file system that was asked for below the work, and takes it away afterwards.
fn on(mut options: Options, work: impl FnOnce(&Options) -> Result) -> Result {
    std::fs::create_dir_all(&options.dir)?;
    match options.on.clone() {
        On::Whatever => work(&options),
        On::Tmpfs => {
            let done = work(&options);
            std::fs::remove_dir_all(&options.dir)?;
            done
        }
        On::Image(fs) => {
            let image = mount::Loop::new(&fs, IMAGE_BYTES, &options.dir)?;
            options.dir = image.dir().to_path_buf();
            work(&options)
        }
    }
}

pub fn parse(args: &[&str]) -> Result<Options> {
    let root = sh::root();
    let kept = std::env::var_os("BCMR_BENCH_DIR").map_or_else(|| root.join("target/bench"), PathBuf::from);
    let mut options = Options {
        dir: kept,
        on: On::Whatever,
        only: Vec::new(),
        rounds: None,
        quick: false,
        gib: 1,
        minutes: None,
        bcmr: None,
        strace: true,
        out: root.join("target/bench-results"),
        write: None,
    };
    let mut rest = args.iter();
    while let Some(&option) = rest.next() {
        let mut value = || rest.next().copied().ok_or(format!("{option} needs a value"));
        match option {
            "--dir" => options.dir = std::path::absolute(value()?)?,
            "--tmpfs" => options.on = On::Tmpfs,
            "--on" => match value()? {
                "tmpfs" => options.on = On::Tmpfs,
                fs @ ("ext4" | "xfs" | "btrfs") => options.on = On::Image(fs.to_owned()),
                fs => return Err(format!("--on {fs}: there are tmpfs, ext4, xfs, btrfs").into()),
            },
            "--only" => options.only.push(value()?.to_owned()),
            "--rows" => options.only.extend(value()?.split(',').map(str::to_owned)),
            "--rounds" => options.rounds = Some(value()?.parse()?),
            "--gib" => options.gib = value()?.parse()?,
            "--minutes" => options.minutes = Some(value()?.parse()?),
            "--quick" => options.quick = true,
            "--bcmr" => options.bcmr = Some(std::fs::canonicalize(value()?)?),
            "--no-strace" => options.strace = false,
            "--out" => options.out = std::path::absolute(value()?)?,
            "--write" => options.write = Some(std::path::absolute(value()?)?),
            _ => return Err(format!("no such option: {option}\n{USAGE}").into()),
        }
    }
    if options.quick && options.write.is_some() {
        return Err("--quick is for no record; leave out --write".into());
    }
    Ok(if options.on == On::Tmpfs { options.on_tmpfs() } else { options })
}

impl Options {
    pub fn on_tmpfs(self) -> Options {
        Options { on: On::Tmpfs, dir: PathBuf::from("/dev/shm/bcmr-bench"), ..self }
    }
}

/// The release binary, built now unless one was given.
pub fn binary(options: &Options) -> Result<PathBuf> {
    if let Some(path) = &options.bcmr {
        return Ok(path.clone());
    }
    if !options.quick {
        return crate::dist::build();
    }
    sh::run(sh::cargo().args(["build", "--release", "--locked", "-p", "bcmr"]))?;
    Ok(release_dir().join("bcmr"))
}

/// Where `cargo build --release` puts its binaries.
pub fn release_dir() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| sh::root().join("target"), PathBuf::from);
    target.join("release")
}

fn local(options: &Options, typed: &[&str]) -> Result {
    let mut rows = rows::all(options.quick);
    if let Some(stranger) = options.only.iter().find(|o| !rows.iter().any(|r| r.name == **o)) {
        let names: Vec<&str> = rows.iter().map(|r| r.name).collect();
        return Err(format!("no row {stranger:?}; there are: {}", names.join(" ")).into());
    }
    if !options.only.is_empty() {
        rows.retain(|row| options.only.iter().any(|o| o == row.name));
    }
    let bcmr = binary(options)?;
    let mut record = Record::of_this_machine(&options.dir, options.quick)?;
    if matches!(options.on, On::Image(_)) {
        record.file_system += "-image";
    }
    println!("{}", record.headline());
    let mut left_out = Vec::new();
    for row in &rows {
        match why_not(row, options) {
            Some(why) => left_out.push(format!("{}: NOT MEASURED: {why}", row.name)),
            None => {
                println!("\n{}: {}", row.name, row.title);
                let mut result = measured(row, options, &bcmr)?;
                result.command = command("local", typed) + " --only " + row.name;
                report::print(&result, record.cores);
                record.rows.push(result);
            }
        }
    }
    Copies::below(&options.dir).clear()?;
    std::fs::create_dir_all(&options.out)?;
    report::write(&record, &options.out.join("results"))?;
    println!("\n{}", report::summary(&record));
    for line in &left_out {
        println!("{line}");
    }
    if let Some(docs) = &options.write {
        report::keep(record, docs)?;
    }
    Ok(())
}

/// What repeats it; where the data lies and where results go is left to whoever repeats it.
fn command(what: &str, typed: &[&str]) -> String {
    let mut words = vec!["cargo xtask bench", what];
    let mut rest = typed.iter();
    while let Some(word) = rest.next() {
        match *word {
            "--tmpfs" | "--quick" => words.push(word),
            "--rounds" | "--on" | "--gib" | "--minutes" => {
                words.extend([word, rest.next().copied().unwrap_or_default()])
            }
            _ => {}
        }
    }
    words.join(" ")
}

/// Why a row cannot be measured here.
fn why_not(row: &Row, options: &Options) -> Option<String> {
    if options.on == On::Tmpfs && (row.cache == Cache::Cold || row.place != Place::Scratch) {
        return Some("has no meaning on tmpfs".to_owned());
    }
    if let Place::Loop { fs, .. } = row.place {
        if sh::which(&format!("mkfs.{fs}")).is_none() {
            return Some(format!("mkfs.{fs} is not installed"));
        }
        if !sh::is_root() {
            return Some(format!("mounting {fs} needs root"));
        }
    }
    (row.cache == Cache::Cold && !sh::is_root()).then(|| "dropping the cache needs root".to_owned())
}

fn measured(row: &Row, options: &Options, bcmr: &Path) -> Result<RowRecord> {
    let (made, size) = row.set.make(&options.dir)?;
    let tools: Vec<&Tool> = row.tools.iter().filter(|t| !t.guest || installed(t.name).is_some()).collect();
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { row.rounds });
    // Dropped, and so unmounted, at the end of this function.
    let image = match row.place {
        Place::Scratch => None,
        Place::Loop { fs, bytes } => Some(mount::Loop::new(fs, bytes, &options.dir)?),
    };
    let (src, copies) = match &image {
        None => (made, Copies::below(&options.dir)),
        Some(image) => {
            let src = image.dir().join("data");
            sh::quiet("cp", &["-a", text(&made)?, text(&src)?])?;
            (src, Copies::below(image.dir()))
        }
    };
    let keep = options.on != On::Tmpfs && row.place == Place::Scratch && size.files > 1000;
    if keep {
        copies.room_for(mount::allocated(&src)? * (rounds * tools.len() + 2) as u64)?;
    }
    let cold = row.cache == Cache::Cold;
    let bench = Bench { row, turns: Turns { src: &src, copies: &copies, bcmr, cold, keep } };
    data::warm(&src)?;
    let mut samples: BTreeMap<&str, Vec<Sample>> = BTreeMap::new();
    let mut blocks = BTreeMap::new();
    for round in 0..rounds {
        for tool in &tools {
            if tool.guest && round >= GUEST_ROUNDS {
                continue;
            }
            let dst = bench.prepare()?;
            samples.entry(tool.name).or_default().push(measure::once(&bench.turns.argv(tool.line, &dst)?)?);
            if row.verb == Verb::Copy {
                if round == 0 {
                    blocks.insert(tool.name, mount::allocated(&dst)?);
                }
                bench.turns.finish(&dst)?;
            }
        }
        eprint!(".");
    }
    eprintln!();
    let mut records = Vec::new();
    for tool in &tools {
        let counted = options.strace && (!tool.guest) && sh::which("strace").is_some();
        let calls = if counted {
            let dst = bench.prepare()?;
            let calls = measure::calls(&bench.turns.argv(tool.line, &dst)?, &options.dir)?;
            if row.verb == Verb::Copy {
                bench.turns.finish(&dst)?;
            }
            Some(calls)
        } else {
            None
        };
        records.push(ToolRecord {
            name: tool.name.to_owned(),
            line: tool.line.replace("{s}", "SRC").replace("{d}", "DST"),
            version: version(tool.line.split(' ').next().unwrap_or_default(), bcmr),
            samples: samples.remove(tool.name).unwrap_or_default(),
            calls,
            allocated_bytes: blocks.get(tool.name).copied(),
        });
    }
    let source_bytes = mount::allocated(&src)?;
    RowRecord::new(row, size, source_bytes, records)
}

/// A row while it is measured.
struct Bench<'a> {
    row: &'a Row,
    turns: Turns<'a>,
}

impl Bench<'_> {
    /// What [`Turns::prepare`] does, and for a removal a fresh copy at the name.
    fn prepare(&self) -> Result<PathBuf> {
        let copy = |dst: &Path| sh::quiet("cp", &["-a", text(self.turns.src)?, text(dst)?]);
        self.turns.prepare(|dst| if self.row.verb == Verb::Remove { copy(dst) } else { Ok(()) })
    }
}

/// What is to be measured beside, and the versions that were current when that was last looked at.
const GUESTS: [(&str, &str); 4] = [("cpz", "3.2.1"), ("xcp", "0.24.9"), ("fcp", "0.2.2"), ("b3sum", "1.8.7")];

fn guests() -> Result {
    for (name, version) in GUESTS {
        let root = sh::root().join("target/tools");
        let version = format!("{name}@{version}");
        sh::run(sh::cargo().args(["install", "--locked", "--root", text(&root)?, &version]))?;
    }
    Ok(())
}

/// In PATH, or installed by `cargo install --root target/tools`.
pub fn installed(program: &str) -> Option<PathBuf> {
    let ours = sh::root().join("target/tools/bin").join(program);
    ours.is_file().then_some(ours).or_else(|| sh::which(program))
}

/// The first line of `--version`.
fn version(name: &str, bcmr: &Path) -> String {
    let program = if name == OURS { Some(bcmr.to_path_buf()) } else { installed(name) };
    let said =
        program.and_then(|p| sh::output(&p.to_string_lossy(), &["--version"]).ok()).unwrap_or_default();
    numbered(said.lines().next().unwrap_or_default())
}

/// The words of a line up to the first that has a number in it.
fn numbered(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let last =
        words.iter().position(|w| w.contains(|c: char| c.is_ascii_digit())).map_or(words.len(), |n| n + 1);
    words[..last].join(" ")
}

/// A path as an argument; scratch paths are ours and so are text.
pub fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()).into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_version_is_told_with_its_number() {
        for (said, told) in [
            ("rsync  version 3.4.1  protocol version 32", "rsync version 3.4.1"),
            ("cp (GNU coreutils) 9.7", "cp (GNU coreutils) 9.7"),
            ("xcp 0.24.9", "xcp 0.24.9"),
            ("a thing", "a thing"),
        ] {
            assert_eq!(super::numbered(said), told);
        }
    }
}
