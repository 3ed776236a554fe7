//! What a copy costs another program: how long a file that was in the page cache takes to be read
//! again afterwards. Must not know what is copied, nor by what.

use sh::Result;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What both have for their memory and their page cache.
pub const MEMORY_MIB: u64 = 256;
/// What the other has read.
pub const FILE_MIB: u64 = 96;

/// A group of processes with a bound on memory and page cache, taken away with this value.
struct Cgroup {
    dir: PathBuf,
    parent: PathBuf,
}

/// Where such groups are made, and what their bound is called.
fn hierarchy() -> Option<(&'static Path, &'static str)> {
    let (old, new) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
    if old.join("memory.limit_in_bytes").exists() {
        return Some((old, "memory.limit_in_bytes"));
    }
    let controllers = fs::read_to_string(new.join("cgroup.subtree_control")).ok()?;
    controllers.split_whitespace().any(|c| c == "memory").then_some((new, "memory.max"))
}

/// Why it cannot be measured here.
pub fn why_not() -> Option<String> {
    if !sh::is_root() {
        return Some("a bound on the page cache needs root".to_owned());
    }
    hierarchy().is_none().then(|| "there are no control groups for memory".to_owned())
}

impl Cgroup {
    /// This process, and what it starts, in a new one.
    fn enter() -> Result<Cgroup> {
        let (parent, bound) = hierarchy().ok_or("there are no control groups for memory")?;
        let id = std::process::id();
        let group = Cgroup { dir: parent.join(format!("bcmr-bystander-{id}")), parent: parent.to_path_buf() };
        fs::create_dir(&group.dir)?;
        fs::write(group.dir.join(bound), (MEMORY_MIB << 20).to_string())?;
        fs::write(group.dir.join("cgroup.procs"), id.to_string())?;
        Ok(group)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        drop(fs::write(self.parent.join("cgroup.procs"), std::process::id().to_string()));
        drop(fs::remove_dir(&self.dir));
    }
}

/// Seconds that the other's file takes after the command, with the source not in the page cache before it.
pub fn measured(src: &Path, dst: &Path, command: &[&str]) -> Result<f64> {
    let file = dst.with_extension("bystander");
    let mut made = File::create_new(&file)?;
    for n in 0..FILE_MIB {
        made.write_all(&vec![n as u8; 1 << 20])?;
    }
    made.sync_all()?;
    fastcopy::page_cache::forget(&made, 0, 0);
    fastcopy::page_cache::forget(File::open(src)?, 0, 0);
    let figure = read_again(&file, command);
    fs::remove_file(&file)?;
    figure
}

fn read_again(file: &Path, command: &[&str]) -> Result<f64> {
    let _group = Cgroup::enter()?;
    // Brought into the page cache from within the group, whose bound it counts against.
    read(file)?;
    let (program, args) = command.split_first().ok_or("no command")?;
    sh::quiet(program, args)?;
    let begun = Instant::now();
    read(file)?;
    Ok(begun.elapsed().as_secs_f64())
}

fn read(file: &Path) -> Result {
    let mut file = File::open(file)?;
    let mut block = vec![0; 1 << 20];
    while file.read(&mut block)? > 0 {}
    Ok(())
}
