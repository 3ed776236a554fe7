//! Carries out the parts of an experiment with what `bench` has: its data, its turns, its lines to another machine.
//! Must not know what is claimed of the figures.

use super::entry::{self, Cache, CodecFigure, Experiment, Lines, StoreFigure, Work};
use super::progress::progress;
use super::record::{LineRecord, Part};
use super::{bystander, inside};
use crate::checkpoint;
use crate::data::{self, Set, Size};
use crate::measure::{self, Sample};
use crate::options::Options;
use crate::programs::installed;
use crate::remote;
use crate::remote::probe::{self, Probe};
use crate::remote::record::Capped;
use crate::remote::rows::{self, Needs, RemoteRow};
use crate::turns::{Copies, Links, Turns, same};
use sh::Result;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Of a file that goes on, as in the paper.
const RESUMED_PERCENT: u64 = 75;
const MIB: f64 = 1048576.0;

/// What parts share.
pub struct Lab<'a> {
    options: &'a Options,
    bcmr: PathBuf,
    /// What the program says of its options.
    help: String,
    wire: remote::RemoteLab<'a>,
    probes: Option<Vec<Probe>>,
    capped: Option<std::result::Result<Capped, String>>,
}

impl<'a> Lab<'a> {
    /// `wire` says where data for the other machine lies.
    pub fn new(options: &'a Options, wire: &'a Options, bcmr: &Path) -> Result<Lab<'a>> {
        let help = sh::output(&bcmr.to_string_lossy(), &["copy", "--help"])?;
        let wire = remote::RemoteLab::new(wire, bcmr.to_path_buf());
        Ok(Lab { options, bcmr: bcmr.to_path_buf(), help, wire, probes: None, capped: None })
    }

    /// That the program takes the words of every line of ours, before an hour is spent on finding out.
    pub fn words_are_known(&self, all: &[Experiment]) -> Result {
        for (it, part) in all.iter().flat_map(|it| it.parts.iter().map(move |part| (it, part))) {
            let lines: Vec<&str> = match &part.work {
                Work::Lines(work) => {
                    work.lines.iter().filter(|l| self.missing(l).is_none()).map(|l| l.line.as_str()).collect()
                }
                Work::Wire { row, .. } => row.lanes.iter().map(|lane| lane.line).collect(),
                Work::Resume { .. } | Work::Codecs(_) | Work::Store(_) => Vec::new(),
            };
            for line in lines {
                let Some(words) = line.strip_prefix("bcmr ") else { continue };
                let words = words.split(' ').map(|word| if word.starts_with('{') { "file" } else { word });
                // What it is asked for last is done only when all before it made sense.
                let asked = Command::new(&self.bcmr).args(words).arg("--help").output()?;
                if !asked.status.success() {
                    let why = String::from_utf8_lossy(&asked.stderr).into_owned();
                    return Err(format!("{}: {line}: {why}", it.id).into());
                }
            }
        }
        Ok(())
    }

    /// One part, its local data and copies below `dir`.
    pub fn part(&mut self, part: &entry::PartSpec, dir: &Path, on: &str) -> Result<Part> {
        let (place, lines) = match &part.work {
            Work::Lines(lines) => self.lines(lines, part.unit, dir, on)?,
            Work::Wire { row, published, crowd } => self.wire(row, published, *crowd)?,
            Work::Resume { sizes, rounds } => (on.to_owned(), self.resume(sizes, *rounds, dir)?),
            Work::Codecs(figure) => (String::new(), self.codecs(*figure)?),
            Work::Store(figure) => ("over loopback".to_owned(), self.store(*figure)?),
        };
        let published_unit = part.published_unit.unwrap_or(part.unit).to_owned();
        Ok(Part {
            title: part.title.clone(),
            unit: part.unit.to_owned(),
            published_unit,
            place,
            data: part.data(),
            counted: part.counted(),
            lines,
        })
    }

    fn lines(&self, work: &Lines, unit: &str, dir: &Path, on: &str) -> Result<(String, Vec<LineRecord>)> {
        let cold = work.cache == Cache::Cold;
        let mut made: Vec<LineRecord> = work
            .lines
            .iter()
            .map(|l| LineRecord { absent: self.missing(l), ..line(&l.name, &l.line, l.published) })
            .collect();
        if cold && !sh::is_root() {
            for line in &mut made {
                line.absent = Some("dropping the page cache needs root".to_owned());
            }
            return Ok((on.to_owned(), made));
        }
        let elsewhere = elsewhere().join("across");
        let (src, size) = work.set.make(if work.across { &elsewhere } else { dir })?;
        data::warm(&src)?;
        let copies = Copies::below(dir);
        let turns = Turns {
            src: &src,
            copies: &copies,
            bcmr: &self.bcmr,
            cold,
            keep: src.is_dir() && on != "tmpfs",
            other: None,
        };
        let rounds = self.options.rounds.unwrap_or(work.rounds);
        for round in 0..rounds {
            progress(&format!("round {} of {rounds}", round + 1));
            for (what, made) in work.lines.iter().zip(&mut made) {
                if made.absent.is_some() {
                    continue;
                }
                let dst = turns.prepare(|_| Ok(()))?;
                let sample = self.once(&turns, &what.line, &dst)?;
                let ours = what.line.starts_with("bcmr") || what.line.starts_with("inside");
                if round == 0 && ours && dst.exists() {
                    same(&src, &dst, Links::Kept)?;
                }
                turns.finish(&dst)?;
                made.values.push(match (&sample, unit) {
                    (Measured::Number(n), "s") | (Measured::Number(n), "MB/s") => *n,
                    (Measured::Number(n), "ms") => n * 1e3,
                    (Measured::Number(n), _) => n * 1e6,
                    (Measured::Run(run), "s") => run.wall_s,
                    (Measured::Run(run), _) => run.wall_s * 1e3,
                });
                if let Measured::Run(run) = sample {
                    made.cpu_s.push(run.user_s + run.sys_s);
                    made.foreign_s.push(run.foreign_s);
                }
            }
        }
        if work.across {
            std::fs::remove_dir_all(&elsewhere)?;
        }
        let from = if work.across { ", from tmpfs" } else { "" };
        Ok((format!("{} on {on}{from}", held(size)), made))
    }

    fn once(&self, turns: &Turns, line: &str, dst: &Path) -> Result<Measured> {
        let Some(words) = line.strip_prefix("inside ") else {
            return Ok(Measured::Run(measure::with_memory(turns.memory()?, &turns.ready(line, dst)?)?));
        };
        measure::fetch_memory(turns.memory()?);
        let mut argv = vec![inside::HELPER.to_owned()];
        argv.extend(turns.ready(words, dst)?);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        Ok(Measured::Number(sh::output("/proc/self/exe", &argv)?.parse()?))
    }

    /// Why a line cannot be measured.
    fn missing(&self, line: &entry::LineSpec) -> Option<String> {
        if let Some(option) = line.needs.filter(|o| !self.help.contains(o)) {
            return Some(format!("not run: this binary has no {option}"));
        }
        if line.line.starts_with("inside bystander") {
            return bystander::why_not();
        }
        let program = line.line.split(' ').next().unwrap_or_default();
        let ours = matches!(program, "bcmr" | "inside");
        (!ours && installed(program).is_none()).then(|| format!("{program} is not installed"))
    }

    fn wire(
        &mut self,
        row: &RemoteRow,
        published: &[(&str, f64)],
        crowd: bool,
    ) -> Result<(String, Vec<LineRecord>)> {
        let published = |name: &str| published.iter().find(|s| s.0 == name).map(|s| s.1);
        if let Some(why) = self.wire.why_not(row, Instant::now()) {
            let lines = row.lanes.iter().map(|lane| LineRecord {
                absent: Some(why.clone()),
                ..line(lane.name, &entry::shown(lane.line), published(lane.name))
            });
            return Ok((String::new(), lines.collect()));
        }
        let made = if crowd { crowded(|| self.wire.row(row))? } else { self.wire.row(row)? };
        let lines = made.lanes.iter().map(|lane| LineRecord {
            absent: lane.absent.clone(),
            values: lane.samples.iter().map(|s| s.wall_s).collect(),
            cpu_s: lane.samples.iter().map(|s| s.client_cpu_s + s.server_cpu_s).collect(),
            foreign_s: lane.samples.iter().map(|s| s.foreign_s).collect(),
            ..line(&lane.name, &entry::shown(&lane.line), published(&lane.name))
        });
        let disk = if row.place == rows::Storage::Disk { "ext4 in an image" } else { "tmpfs" };
        Ok((format!("{} on {disk}", held(made.data)), lines.collect()))
    }

    fn resume(
        &self,
        sizes: &[(u64, Option<(f64, f64)>)],
        rounds: usize,
        dir: &Path,
    ) -> Result<Vec<LineRecord>> {
        let options = Options { dir: dir.to_path_buf(), ..self.options.clone() };
        let bench =
            checkpoint::CheckpointBench::new(&options, &self.bcmr, self.options.rounds.unwrap_or(rounds))?;
        let modes = ["-s", "-C", "-C --fast"];
        let mut lines = Vec::new();
        for (mib, published) in sizes {
            progress(&format!("{mib} MiB"));
            let absent = sh::which("strace").is_none().then(|| "strace is not installed".to_owned());
            let bytes = mib << 20;
            let found = if absent.is_none() {
                let (src, _) = Set::One { bytes }.make(dir)?;
                bench.resumed(&src, bytes, RESUMED_PERCENT)?
            } else {
                Vec::new()
            };
            for mode in modes {
                let published = match mode {
                    "-s" => published.map(|s| s.0),
                    "-C --fast" => published.map(|s| s.1),
                    _ => None,
                };
                let values = found.iter().filter(|r| r.mode == mode).flat_map(|r| &r.first_byte_s);
                lines.push(LineRecord {
                    absent: absent.clone(),
                    values: values.map(|s| s * 1e3).collect(),
                    ..line(&format!("{mode}, {mib} MiB"), &format!("bcmr copy {mode} {{s}} {{d}}"), published)
                });
            }
        }
        Ok(lines)
    }

    fn codecs(&mut self, figure: CodecFigure) -> Result<Vec<LineRecord>> {
        let probes = match self.probes.take() {
            Some(probes) => probes,
            None => probe::run()?,
        };
        let lines = probes.iter().map(|p| {
            let published =
                probe::PUBLISHED.iter().find(|s| (s.0, s.1) == (p.content.as_str(), p.codec.as_str()));
            let (here, published) = match figure {
                CodecFigure::Ratio => (vec![p.ratio], published.map(|s| s.2)),
                CodecFigure::Pack => (p.pack_mb_s.clone(), published.map(|s| s.3)),
                CodecFigure::Unpack => (p.unpack_mb_s.clone(), published.map(|s| s.4)),
            };
            LineRecord { values: here, ..line(&format!("{}, {}", p.content, p.codec), "", published) }
        });
        let lines = lines.collect();
        self.probes = Some(probes);
        Ok(lines)
    }

    fn store(&mut self, figure: StoreFigure) -> Result<Vec<LineRecord>> {
        if self.capped.is_none() {
            self.capped = Some(match self.wire.able(Needs::Store)? {
                Ok(()) => Ok(self.wire.capped()?),
                Err(why) => Err(why),
            });
        }
        let found = match &self.capped {
            Some(Ok(found)) => Ok(found),
            Some(Err(why)) => Err(why.clone()),
            None => Err(String::new()),
        };
        let one = |name: &str, published, value: &dyn Fn(&Capped) -> f64| LineRecord {
            absent: found.as_ref().err().cloned(),
            values: found.as_ref().map(|c| vec![value(c)]).unwrap_or_default(),
            ..line(name, "", published)
        };
        let mib = |c: &Capped, n: usize| c.remembered.get(n).map_or(f64::NAN, |r| r.bytes as f64 / MIB);
        let blocks = |c: &Capped, n: usize| {
            c.remembered.last().and_then(|r| r.blocks.get(n)).map_or(f64::NAN, |blocks| *blocks as f64)
        };
        Ok(match figure {
            StoreFigure::Remembered => vec![
                one("sent in all", Some(72.0), &|c| c.sent_bytes as f64 / MIB),
                one("the cap", Some(32.0), &|c| c.cap_bytes as f64 / MIB),
                one("after the first", None, &|c| mib(c, 0)),
                one("after the second", None, &|c| mib(c, 1)),
                one("after the third", Some(32.0), &|c| mib(c, 2)),
                one("at most", None, &|c| (0..c.held.len()).map(|n| mib(c, n)).fold(0.0, f64::max)),
            ],
            StoreFigure::Blocks => vec![
                one("of a file", None, &|_| 6.0),
                one("in all", Some(8.0), &|c| (0..3).map(|n| blocks(c, n)).sum()),
                one("of the first", None, &|c| blocks(c, 0)),
                one("of the second", None, &|c| blocks(c, 1)),
                one("of the third", None, &|c| blocks(c, 2)),
            ],
            StoreFigure::Disk => {
                vec![one("after the third", Some(32.0), &|c| {
                    c.held.last().map_or(f64::NAN, |h| h.0 as f64 / MIB)
                })]
            }
        })
    }
}

enum Measured {
    Run(Sample),
    /// What the program itself has measured.
    Number(f64),
}

fn line(name: &str, command: &str, published: Option<f64>) -> LineRecord {
    let command = command.replace("{s}", "SRC").replace("{d}", "DST");
    LineRecord {
        name: name.to_owned(),
        command,
        published,
        absent: None,
        values: Vec::new(),
        cpu_s: Vec::new(),
        foreign_s: Vec::new(),
    }
}

/// What a set holds, in words.
fn held(size: Size) -> String {
    let mut words = format!("{} file{}", size.files, if size.files == 1 { "" } else { "s" });
    if size.dirs > 0 {
        words.push_str(&format!(" in {} director{}", size.dirs, if size.dirs == 1 { "y" } else { "ies" }));
    }
    if size.links > 0 {
        words.push_str(&format!(", {} links", size.links));
    }
    format!("{words}, {} MiB", super::record::figure(size.bytes as f64 / MIB))
}

/// Does something while twice as many threads as there are cores only use them.
fn crowded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let over = AtomicBool::new(false);
    let threads = 2 * std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let done = work();
        over.store(true, Ordering::Relaxed);
        done
    })
}

/// A file system in memory, for what is not about a disk.
pub fn elsewhere() -> PathBuf {
    Path::new("/dev/shm").join(format!("bcmr-experiment-{}", std::process::id()))
}
