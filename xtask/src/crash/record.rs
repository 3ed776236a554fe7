//! Runs a workload on recorded disks. Knows nothing of what the log is good for.

use crate::crash::fs::Fs;
use crate::crash::image::Image;
use crate::crash::log::Log;
use crate::crash::state::Rng;
use crate::crash::sys::{self, Loop, Recorder, Stop};
use crate::crash::workload::{self, Entry, From, NEIGHBOUR, Place, Workload};
use sh::Result;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One workload on one file system.
#[derive(Clone, Copy)]
pub struct Cell {
    pub workload: &'static Workload,
    pub fs: Fs,
    pub seed: u64,
}

impl Cell {
    /// The file systems of its disks.
    pub fn disks(&self) -> Vec<Fs> {
        let mut disks = vec![self.fs];
        if self.workload.from == From::Far {
            disks.push(Fs::Ext4Dirsync);
        }
        disks
    }

    pub fn entries(&self) -> Vec<Entry> {
        (self.workload.entries)(&mut Rng::new(self.seed))
    }

    pub fn name(&self) -> String {
        format!("{}-{}-{}", self.fs.name(), self.workload.name, self.seed)
    }
}

/// What a run left: the disks before it, and everything that was written to them.
pub struct Recording {
    pub bases: Vec<Image>,
    pub log: Log,
    /// From here on the power may go.
    pub pre: usize,
    pub end: usize,
    /// The position of each command's exit 0.
    pub done: Vec<usize>,
}

impl Recording {
    pub fn new(log: Log, bases: Vec<Image>, commands: usize) -> Result<Recording> {
        let at = |word: &str| log.mark(word).ok_or_else(|| format!("the log has no mark {word}"));
        let (pre, end) = (at("PRE")?, at("END")?);
        let done: std::result::Result<_, String> = (0..commands).map(|n| at(&format!("DONE:{n}"))).collect();
        Ok(Recording { pre, end, done: done?, bases, log })
    }

    /// Which commands had ended when the power went at this position.
    pub fn done_at(&self, cut: usize) -> Vec<bool> {
        self.done.iter().map(|at| *at < cut).collect()
    }
}

/// Directories of one worker.
pub struct Bench {
    pub dir: PathBuf,
    pub place: Place,
}

impl Bench {
    /// Empty directories below `dir`.
    pub fn new(dir: &Path, bcmr: &Path) -> Result<Bench> {
        let place = Place {
            disks: [dir.join("m0"), dir.join("m1")],
            host: dir.join("host"),
            bcmr: bcmr.to_path_buf(),
        };
        for sub in [&place.disks[0], &place.disks[1], &place.host, &dir.join("fuse")] {
            std::fs::create_dir_all(sub)?;
        }
        Ok(Bench { dir: dir.to_path_buf(), place })
    }
}

/// Runs it.
pub fn record(cell: &Cell, bench: &Bench, blkrec: &Path, stop: &Stop) -> Result<Recording> {
    let Bench { dir, place } = bench;
    let mut images = Vec::new();
    let mut bases = Vec::new();
    for (n, fs) in cell.disks().into_iter().enumerate() {
        let image = dir.join(format!("live{n}"));
        fs.make(&image, fs.disk_bytes_min() + (cell.workload.extra_mib << 20))?;
        bases.push(Image::load(&File::open(&image)?)?);
        images.push(image);
    }
    stop.check()?;
    let log = dir.join("log");
    let ran = run(cell, bench, blkrec, &log, &images);
    for image in &images {
        std::fs::remove_file(image)?;
    }
    let commands = ran?;
    let bytes = std::fs::read(&log)?;
    std::fs::remove_file(&log)?;
    for sub in &place.disks {
        // What is still there was never mounted over.
        std::fs::remove_dir(sub)?;
        std::fs::create_dir(sub)?;
    }
    Recording::new(Log::parse(bytes)?, bases, commands)
}

/// Returns the number of commands.
fn run(cell: &Cell, bench: &Bench, blkrec: &Path, log: &Path, images: &[PathBuf]) -> Result<usize> {
    let Bench { dir, place } = bench;
    let Cell { workload, .. } = cell;
    let recorder = Recorder::new(blkrec, &dir.join("fuse"), log, images)?;
    // Undone in the opposite order: mounts, loop devices, recorder.
    let mut loops = Vec::new();
    let mut mounts = Vec::new();
    for (n, (fs, at)) in cell.disks().into_iter().zip(&place.disks).enumerate() {
        let device = Loop::new(&recorder.disk(n), true)?;
        mounts.push(fs.mount_live(&device.device, at).map_err(|e| format!("mount {}: {e}", fs.name()))?);
        loops.push((fs, device));
    }
    let ran = {
        let entries = cell.entries();
        workload::prepare_sources(workload, &entries, place)?;
        workload::prepare_olds(&entries, place)?;
        std::fs::write(place.disks[0].join(NEIGHBOUR), b"")?;
        for disk in place.disks.iter().take(images.len()) {
            rustix::fs::syncfs(File::open(disk)?)?;
        }
        recorder.mark("PRE")?;
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let neighbour = workload.neighbour.then(|| scope.spawn(|| neighbour(place, &ended)));
            let ran = commands(cell, bench, &recorder);
            if workload.neighbour {
                // What was not synced finds its way to the disk by and by.
                std::thread::sleep(Duration::from_millis(60));
            }
            ended.store(true, Ordering::Relaxed);
            let beside = neighbour.map_or(Ok(Ok(())), |n| n.join()).map_err(|_| "the neighbour panicked")?;
            beside.map_err(|e| format!("the neighbour: {e}"))?;
            ran
        })
    };
    if workload.neighbour {
        rustix::fs::syncfs(File::open(&place.disks[0])?)?;
    }
    recorder.mark("END")?;
    for mount in mounts.into_iter().rev() {
        mount.end()?;
    }
    for (fs, device) in &loops {
        fs.forget(&device.device)?;
    }
    drop(loops);
    recorder.end()?;
    ran
}

fn commands(cell: &Cell, bench: &Bench, recorder: &Recorder) -> Result<usize> {
    let commands = (cell.workload.commands)(&bench.place);
    for (n, line) in commands.iter().enumerate() {
        let ended = sys::command(line, &bench.dir)?;
        if ended.code != Some(0) {
            let shown: Vec<_> = line.iter().map(|w| w.to_string_lossy()).collect();
            return Err(format!("{}: exit {:?}: {}", shown.join(" "), ended.code, ended.said).into());
        }
        recorder.mark(&format!("DONE:{n}"))?;
    }
    Ok(commands.len())
}

/// Makes its own file durable again and again.
fn neighbour(place: &Place, ended: &AtomicBool) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = File::options().append(true).open(place.disks[0].join(NEIGHBOUR))?;
    while !ended.load(Ordering::Relaxed) {
        file.write_all(&[b'.'; 64])?;
        file.sync_all()?;
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
