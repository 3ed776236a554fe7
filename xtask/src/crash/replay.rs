//! Rebuilds crash states of a recording, mounts each, has it judged, and keeps count.

use crate::crash::fs::Fs;
use crate::crash::image::Image;
use crate::crash::judge::{self, Fault, Kind};
use crate::crash::log::Log;
use crate::crash::record::{Bench, Cell, Recording};
use crate::crash::state::{Cursor, Mode, Rng, cuts};
use crate::crash::sys::{self, Loop, Stop};
use crate::crash::workload::{self, Entry, From, Rerun};
use sh::Result;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Positions looked at in the first pass over the log, which is finished however late it is: one anywhere, and the
/// end, where everything that exit 0 claims must be there.
const FIRST_CUTS: usize = 2;
/// Positions looked at in every other pass.
const CUTS: usize = 16;
/// Of the states after which the same commands may be run again, so many times one is.
const RERUN_EVERY: u64 = 5;
/// Told in full for each cell.
const EXAMPLES_MAX: usize = 3;

/// One crash state; with the recording it gives the same disks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub cut: usize,
    pub mode: Mode,
    pub salt: u64,
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.cut, self.mode.word(), self.salt)
    }
}

impl Point {
    pub fn parse(text: &str) -> Option<Point> {
        let mut parts = text.split(':');
        let cut = parts.next()?.parse().ok()?;
        let word = parts.next()?;
        let mode = Mode::ALL.into_iter().find(|m| m.word() == word)?;
        let salt = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Point { cut, mode, salt })
    }
}

#[derive(Clone, Copy, Default)]
pub struct Count {
    pub states: u64,
    /// With a broken promise.
    pub failing: u64,
    pub unmountable: u64,
}

/// What came of one cell.
#[derive(Default)]
pub struct Stats {
    pub modes: BTreeMap<Mode, Count>,
    /// States with this wrong, whether promised or not.
    pub kinds: BTreeMap<Kind, u64>,
    pub reruns: u64,
    /// States after the last command's exit 0.
    pub after_exit: u64,
    pub examples: Vec<(Point, Vec<Fault>)>,
    /// One of each kind that nothing was promised about.
    pub counted: BTreeMap<Kind, (Point, String)>,
}

/// The disks that crash states are put on.
pub struct Stand<'a> {
    cell: &'a Cell,
    bench: &'a Bench,
    recording: &'a Recording,
    entries: Vec<Entry>,
    disks: Vec<(Fs, PathBuf, Loop)>,
}

/// What a state turned out to be.
pub enum Seen {
    Unmountable(String),
    Judged { faults: Vec<Fault>, rerun: bool },
}

impl<'a> Stand<'a> {
    pub fn new(cell: &'a Cell, bench: &'a Bench, recording: &'a Recording) -> Result<Stand<'a>> {
        let mut disks = Vec::new();
        for (n, (fs, base)) in cell.disks().into_iter().zip(&recording.bases).enumerate() {
            let path = bench.dir.join(format!("state{n}"));
            base.store(&File::create(&path)?)?;
            let device = Loop::new(&path, false)?;
            disks.push((fs, path, device));
        }
        Ok(Stand { cell, bench, recording, entries: cell.entries(), disks })
    }

    /// Takes the disks away again.
    pub fn end(self) -> Result {
        for (fs, path, device) in self.disks {
            fs.forget(&device.device)?;
            drop(device);
            std::fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Puts one state on the disks, mounts it and looks.
    pub fn look(&self, cursor: &Cursor<'_>, point: Point) -> Result<Seen> {
        let mut rng = Rng::new(point.salt);
        for (n, (_, _, device)) in self.disks.iter().enumerate() {
            // A source keeps what it removed as long as it can be believed: the worst for a move is that it does not,
            // while the destination loses its cache.
            let mode = if n == 1 && !point.salt.is_multiple_of(4) { Mode::Prefix } else { point.mode };
            cursor.state(n, mode, &mut rng).store(&device.open_alone()?)?;
        }
        let mut mounts = Vec::new();
        for ((fs, _, device), at) in self.disks.iter().zip(&self.bench.place.disks) {
            match fs.mount_after(&device.device, at) {
                Ok(mount) => mounts.push(mount),
                Err(e) => return Ok(Seen::Unmountable(format!("{}: {e}", fs.name()))),
            }
        }
        let Cell { workload, .. } = self.cell;
        let place = &self.bench.place;
        let done = self.recording.done_at(point.cut);
        let mut faults = judge::judge(workload, &self.entries, place, &done);
        let rerun = match workload.rerun {
            Rerun::Never => false,
            Rerun::Some => point.salt.is_multiple_of(RERUN_EVERY),
            Rerun::All => true,
        };
        if rerun {
            self.rerun(&mut faults)?;
        }
        for mount in mounts.into_iter().rev() {
            mount.end()?;
        }
        Ok(Seen::Judged { faults, rerun })
    }

    /// Does the same again on what the power cut left.
    fn rerun(&self, faults: &mut Vec<Fault>) -> Result {
        let Cell { workload, .. } = self.cell;
        let place = &self.bench.place;
        for line in workload.again.unwrap_or(workload.commands)(place) {
            let ended = sys::command(&line, &self.bench.dir)?;
            if ended.code != Some(0) {
                let path = line.last().map(|w| w.to_string_lossy().into_owned()).unwrap_or_default();
                let detail = format!("exit {:?}: {}", ended.code, ended.said);
                faults.push(Fault { kind: Kind::RerunExit, path, detail });
            }
        }
        faults.extend(judge::judge_rerun(workload, &self.entries, place));
        Ok(())
    }
}

/// Looks at crash states until `until`, or until `enough` says so.
pub fn replay(
    cell: &Cell,
    bench: &Bench,
    recording: &Recording,
    until: Instant,
    stop: &Stop,
    enough: &dyn Fn(&Stats) -> bool,
) -> Result<Stats> {
    let mut stats = Stats::default();
    let stand = Stand::new(cell, bench, recording)?;
    let mut start = Cursor::new(&recording.log, &recording.bases);
    start.advance(recording.pre + 1);
    let mut rng = Rng::new(cell.seed);
    let last = recording.done.last().copied().unwrap_or(recording.end);
    'passes: for pass in 0.. {
        let mut cursor = start.clone();
        let number = if pass == 0 { FIRST_CUTS } else { CUTS };
        for cut in cuts(&recording.log, recording.pre + 1, recording.end + 1, number, &mut rng) {
            cursor.advance(cut);
            for mode in Mode::ALL {
                stop.check()?;
                let point = Point { cut, mode, salt: rng.next() >> 32 };
                let seen = stand.look(&cursor, point)?;
                stats.after_exit += u64::from(cut > last);
                note(&mut stats, cell, point, seen);
                if (pass > 0 && Instant::now() >= until) || enough(&stats) {
                    break 'passes;
                }
            }
        }
    }
    stand.end()?;
    Ok(stats)
}

fn note(stats: &mut Stats, cell: &Cell, point: Point, seen: Seen) {
    let count = stats.modes.entry(point.mode).or_default();
    count.states += 1;
    let (faults, rerun) = match seen {
        Seen::Unmountable(why) => {
            if count.unmountable == 0 {
                eprintln!("crash: {} at {point}: cannot be mounted: {why}", cell.name());
            }
            count.unmountable += 1;
            return;
        }
        Seen::Judged { faults, rerun } => (faults, rerun),
    };
    stats.reruns += u64::from(rerun);
    for fault in faults.iter().filter(|f| !f.kind.is_promised(cell.workload)) {
        stats.counted.entry(fault.kind).or_insert_with(|| (point, fault.to_string()));
    }
    let mut kinds: Vec<Kind> = faults.iter().map(|f| f.kind).collect();
    kinds.sort();
    kinds.dedup();
    for kind in &kinds {
        *stats.kinds.entry(*kind).or_default() += 1;
    }
    if kinds.iter().any(|kind| kind.is_promised(cell.workload)) {
        count.failing += 1;
        if stats.examples.len() < EXAMPLES_MAX {
            stats.examples.push((point, faults));
        }
    }
}

/// Keeps a recording in a directory, to look at one of its states again.
pub fn keep(recording: &Recording, dir: &Path) -> Result {
    std::fs::create_dir_all(dir)?;
    std::fs::write(dir.join("log"), &recording.log.bytes)?;
    for (n, base) in recording.bases.iter().enumerate() {
        base.store(
            &File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(dir.join(format!("disk{n}")))?,
        )?;
    }
    Ok(())
}

/// Looks at one state of a kept recording again. Sources are made anew where they survive the power cut.
pub fn again(cell: &Cell, bench: &Bench, dir: &Path, point: Point) -> Result<Seen> {
    let log = Log::parse(std::fs::read(dir.join("log"))?)?;
    let mut bases = Vec::new();
    for n in 0..cell.disks().len() {
        bases.push(Image::load(&File::open(dir.join(format!("disk{n}")))?)?);
    }
    if cell.workload.from == From::Host {
        workload::prepare_sources(cell.workload, &cell.entries(), &bench.place)?;
    }
    let recording = Recording::new(log, bases, (cell.workload.commands)(&bench.place).len())?;
    let stand = Stand::new(cell, bench, &recording)?;
    let mut cursor = Cursor::new(&recording.log, &recording.bases);
    cursor.advance(point.cut);
    let seen = stand.look(&cursor, point)?;
    stand.end()?;
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_typed_as_it_is_shown() {
        for mode in Mode::ALL {
            let point = Point { cut: 12, mode, salt: 77 };
            assert_eq!(Point::parse(&point.to_string()), Some(point));
        }
        assert_eq!(Point::parse("12:subset"), None);
        assert_eq!(Point::parse("12:other:1"), None);
    }
}
