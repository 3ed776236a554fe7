//! What was typed after `cargo xtask bench`, as data. Must not know what is measured.

use sh::Result;
use std::path::PathBuf;

/// Help of `cargo xtask bench`.
pub const USAGE: &str = "\
cargo xtask bench local [OPTION]   copy and remove beside cp, rm, rsync -a and, where installed, xcp, cpz, fcp
cargo xtask bench memory [OPTION]  peak memory at 1,000,000 files
cargo xtask bench scale [OPTION]   what a file, a directory and a byte cost, and whether larger copies take what follows
cargo xtask bench many [OPTION]    copies by ranks of MPI and by shards beside one of as many threads, and fpsync;
                                   --only files, large, entries, killed
cargo xtask bench checkpoint [OPTION]
                                   verifying, checkpoints, going on after a kill, against the design's figures
cargo xtask bench remote [OPTION]  copies to and from another machine beside scp, rsync -a and tar | ssh tar
cargo xtask bench delta [OPTION]   what a second sync sends of files that differ, and how long it takes, beside rsync -a
cargo xtask bench all [OPTION]     everything above, on every file system, one after the other: takes over three hours, and
                                   needs root; what is measured is kept with --write as soon as it is there
cargo xtask bench guests           installs the copiers that are no Debian packages into target/tools, by `cargo install`
cargo xtask bench report DIR       writes every page and picture of benchmarks in DIR again, from the JSON files there

  --dir DIR     where data and copies lie ($BCMR_BENCH_DIR, else target/bench)
  --on FS       instead on tmpfs, or on a fresh ext4, xfs or btrfs in an image below DIR (needs root); a fresh
                file system is the better judge where others work on the same disk
  --tmpfs       the same as --on tmpfs
  --only NAME   only this row; may be given again
  --rows A,B    the same for several; of `bench remote` also without -put and -get, for both
  --rounds N    rounds per row; a guest, such as rsync, that is more than twice as slow as the fastest guest in the first
                round is left out of the others
  --budget S    local: begin no fourth round of a row after so many seconds
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
    pub budget_s: Option<f64>,
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

pub fn parse(args: &[&str]) -> Result<Options> {
    let root = sh::root();
    let kept = std::env::var_os("BCMR_BENCH_DIR").map_or_else(|| root.join("target/bench"), PathBuf::from);
    let mut options = Options {
        dir: kept,
        on: On::Whatever,
        only: Vec::new(),
        rounds: None,
        budget_s: None,
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
            "--budget" => options.budget_s = Some(value()?.parse()?),
            "--gib" => options.gib = value()?.parse()?,
            "--minutes" => options.minutes = Some(value()?.parse()?),
            "--quick" => options.quick = true,
            "--bcmr" => options.bcmr = Some(existing(option, value()?)?),
            "--no-strace" => options.strace = false,
            "--out" => options.out = std::path::absolute(value()?)?,
            "--write" => options.write = Some(directory(option, value()?)?),
            _ => return Err(format!("no such option: {option}\n{USAGE}").into()),
        }
    }
    if options.quick && options.write.is_some() {
        return Err("--quick is for no record; leave out --write".into());
    }
    Ok(if options.on == On::Tmpfs { options.on_tmpfs() } else { options })
}

/// What has to be there before anything is measured.
fn existing(option: &str, path: &str) -> Result<PathBuf> {
    Ok(std::fs::canonicalize(path).map_err(|e| format!("{option} {path}: {e}"))?)
}

fn directory(option: &str, path: &str) -> Result<PathBuf> {
    let found = existing(option, path)?;
    if found.is_dir() { Ok(found) } else { Err(format!("{option} {path}: not a directory").into()) }
}

impl Options {
    pub fn on_tmpfs(self) -> Options {
        Options { on: On::Tmpfs, dir: PathBuf::from("/dev/shm/bcmr-bench"), ..self }
    }
}

/// What repeats it; where the data lies and where results go is for the user to choose.
pub fn command(what: &str, typed: &[&str]) -> String {
    let mut words = vec!["cargo xtask bench", what];
    let mut rest = typed.iter();
    while let Some(word) = rest.next() {
        match *word {
            "--tmpfs" | "--quick" => words.push(word),
            "--rounds" | "--budget" | "--on" | "--gib" | "--minutes" => {
                words.extend([word, rest.next().copied().unwrap_or_default()])
            }
            _ => {}
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_told_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let (here, absent) = (sh::text(dir.path()).unwrap(), dir.path().join("absent"));
        let (file, absent) = (sh::text(&file).unwrap(), sh::text(&absent).unwrap());
        let refused = |option, path| parse(&[option, path]).err().map(|e| e.to_string());
        let not_there = |option| Some(format!("{option} {absent}: No such file or directory (os error 2)"));
        assert_eq!(refused("--write", absent), not_there("--write"));
        assert_eq!(refused("--bcmr", absent), not_there("--bcmr"));
        assert_eq!(refused("--write", file), Some(format!("--write {file}: not a directory")));
        assert_eq!((refused("--write", here), refused("--bcmr", file)), (None, None));
    }
}
