//! `cargo xtask bench checkpoint`: what verifying, checkpoints and going on after a kill cost, beside what the paper of
//! the design says of it. Knows the names and the layout of stage and session (docs/session-format.md) and nothing
//! else of the program.

pub mod pages;
pub mod record;

use crate::data::{self, Set};
use crate::measure::{self, median};
use crate::options::{Options, command};
use crate::programs::{binary, installed};
use crate::record::{LocalRecord, commit};
use crate::turns::{Copies, Links, Turns, same};
use record::{Checkpoints, Killed, Resumed, STEM, Table, Thrice, TimedLine, Written};
use sh::{Result, text};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4 * MIB;
const ROUNDS: usize = 3;
/// A killed copy may have finished before it was killed: then again.
const TRIES: u32 = 5;

/// Where it is done, by what, and how often.
pub struct CheckpointBench<'a> {
    options: &'a Options,
    copies: Copies,
    bcmr: String,
    rounds: usize,
}

pub fn run(options: &Options, typed: &[&str]) -> Result {
    if sh::which("strace").is_none() {
        return Err("strace is not installed; it tells when the first byte was written".into());
    }
    let bench = CheckpointBench::new(options, &binary(options)?, options.rounds.unwrap_or(ROUNDS))?;
    let machine = LocalRecord::of_this_machine(&options.dir, options.quick)?.headline();
    println!("{machine}");
    let large = if options.quick { 512 * MIB } else { options.gib * 1024 * MIB };
    let (large_src, _) = Set::One { bytes: large }.make(&options.dir)?;
    let mut record = Checkpoints {
        schema: 1,
        machine,
        commit: commit()?,
        command: command("checkpoint", typed),
        tables: Vec::new(),
        killed: Vec::new(),
        thrice: None,
        resumed: Vec::new(),
        overhead: None,
        left_out: Vec::new(),
    };
    let middle = if options.quick { large } else { 1024 * MIB };
    let (middle_src, _) = Set::One { bytes: middle }.make(&options.dir)?;
    let small = Set::Even { dirs: 21, files_per_dir: 100, bytes: 4096 };
    let (tree, _) = small.make(&options.dir)?;
    let sizes: [u64; 3] = if options.quick { [128, 256, 512] } else { [256, 1024, 4096] };
    let going_on = sizes.map(|mib| (format!("going on with {mib} MiB"), Step::Resumed(mib * MIB)));
    let [small_file, middle_file, large_file] = going_on;
    let parts = [
        ("sync".to_owned(), Step::Table(sync(), &tree)),
        ("verify".to_owned(), Step::Table(verify(middle), &middle_src)),
        ("killed".to_owned(), Step::Killed),
        small_file,
        middle_file,
        ("intervals".to_owned(), Step::Table(intervals(large), &large_src)),
        large_file,
    ];
    let begun = Instant::now();
    for (name, part) in parts {
        if options.minutes.is_some_and(|most| begun.elapsed().as_secs_f64() > most * 60.0) {
            record.left_out.push(format!("{name}: the time was over"));
            continue;
        }
        match part {
            Step::Table(table, _) if table.name == "verify" && installed("b3sum").is_none() => {
                record.left_out.push(format!("{name}: `cargo install b3sum --root target/tools` first"));
            }
            Step::Table(table, src) => record.tables.push(bench.table(table, src)?),
            Step::Killed => {
                record.overhead = Some(bench.overhead(&large_src, large)?);
                for _ in 0..bench.rounds {
                    record.killed.push(bench.killed(&large_src, large)?);
                }
                record.thrice = Some(bench.thrice(&large_src, large)?);
            }
            Step::Resumed(bytes) => {
                let (src, _) = Set::One { bytes }.make(&options.dir)?;
                record.resumed.extend(bench.resumed(&src, bytes, 90)?);
            }
        }
        println!("({name} done after {:.0} s)", begun.elapsed().as_secs_f64());
    }
    bench.copies.clear()?;
    fs::create_dir_all(&options.out)?;
    pages::write(&record, &options.out.join(STEM))?;
    println!("{}", pages::document(&record, STEM)?);
    if let Some(docs) = &options.write {
        let text = serde_json::to_string_pretty(&record)? + "\n";
        fs::write(docs.join(STEM).with_extension("json"), text)?;
    }
    Ok(())
}

/// What is measured one after the other, the dearest last.
enum Step<'a> {
    Table(Table, &'a Path),
    Killed,
    Resumed(u64),
}

fn line(line: &str, most: Option<f64>, published: Option<f64>) -> TimedLine {
    TimedLine { line: line.to_owned(), most, published, samples: Vec::new() }
}

fn intervals(large: u64) -> Table {
    let none = |size: &str| format!("bcmr copy -C --checkpoint-size {size} {{s}} {{d}}");
    Table {
        name: "intervals".to_owned(),
        title: format!(
            "One file of {} MiB: checkpoints against none (the paper's Experiment 4)",
            large / MIB
        ),
        lines: vec![
            line("bcmr copy {s} {d}", None, None),
            // What the disk takes for the same bytes: a session's name appears with its content on the medium.
            line("cp {s} {d} && sync {d}", None, None),
            line("bcmr copy --sync {s} {d}", None, None),
            line(&none("1024G"), None, None),
            line(&none("256M"), None, Some(1.008)),
            line(&none("64M"), Some(1.35), Some(1.039)),
            line(&none("16M"), None, Some(1.125)),
            line(&none("4M"), None, Some(1.37)),
        ],
    }
}

fn verify(large: u64) -> Table {
    Table {
        name: "verify".to_owned(),
        title: format!(
            "One file of {} MiB: verified while copying, against hashing afterwards (Experiment 2)",
            large / MIB
        ),
        lines: vec![
            line("cp {s} {d} && b3sum {s} {d}", None, None),
            // 512 MB: 1426 ms in three passes, 1251 ms in two.
            line("bcmr copy -V {s} {d}", Some(0.65), Some(1251.0 / 1426.0)),
        ],
    }
}

fn sync() -> Table {
    Table {
        name: "sync".to_owned(),
        title: "2,100 x 4 KiB: on the medium before exit 0".to_owned(),
        lines: vec![
            line("cp -r {s} {d} && sync", None, None),
            line("bcmr copy -r --sync {s} {d}", Some(1.3), None),
        ],
    }
}

impl<'a> CheckpointBench<'a> {
    pub fn new(options: &'a Options, bcmr: &Path, rounds: usize) -> Result<CheckpointBench<'a>> {
        let copies = Copies::below(&options.dir);
        Ok(CheckpointBench { options, copies, bcmr: text(bcmr)?.to_owned(), rounds })
    }

    /// Every line once a round, by turns.
    fn table(&self, mut table: Table, src: &Path) -> Result<Table> {
        let keep = src.is_dir();
        let bcmr = Path::new(&self.bcmr);
        let turns = Turns { src, copies: &self.copies, bcmr, cold: false, keep, other: None };
        for _ in 0..self.rounds {
            for line in &mut table.lines {
                let dst = turns.prepare(|_| Ok(()))?;
                line.samples.push(measure::with_memory(turns.memory()?, &turns.ready(&line.line, &dst)?)?);
                turns.finish(&dst)?;
            }
        }
        println!("{}", pages::table(&table)?);
        Ok(table)
    }

    /// Outside the timing: the source in the page cache, nothing left to be written back.
    fn settle(&self, src: &Path) -> Result {
        data::warm(src)?;
        sh::quiet("sync", &["-f", text(&self.copies.dir)?])
    }

    fn copy(&self, flags: &[&str], src: &Path, dst: &Path) -> Result<Vec<String>> {
        let mut argv = vec![self.bcmr.clone(), "copy".to_owned()];
        argv.extend(flags.iter().map(|f| (*f).to_owned()));
        argv.extend([text(src)?.to_owned(), text(dst)?.to_owned()]);
        Ok(argv)
    }

    /// What a whole copy with a session writes.
    fn overhead(&self, src: &Path, bytes: u64) -> Result<Written> {
        let dst = self.copies.next()?;
        let trace = self.traced(&self.copy(&["-C"], src, &dst)?)?;
        fs::remove_file(&dst)?;
        Ok(Written { file_bytes: bytes, ..trace.written })
    }

    fn killed(&self, src: &Path, bytes: u64) -> Result<Killed> {
        let enough = |place: &SessionDir| place.stage_bytes() >= bytes / 10 * 9;
        let (dst, left) = self.stopped(&["-C"], src, enough)?;
        let trace = self.traced(&self.copy(&["-C"], src, &dst)?)?;
        same(src, &dst, Links::Kept)?;
        fs::remove_dir_all(left.place.dir)?;
        let rewritten_bytes = trace.written.stage_bytes;
        println!(
            "killed with {} of {} MiB in the stage, {} recorded: the same command wrote {}",
            left.stage_bytes / MIB,
            bytes / MIB,
            left.recorded_bytes / MIB,
            rewritten_bytes / MIB
        );
        Ok(Killed {
            bytes,
            stage_bytes: left.stage_bytes,
            recorded_bytes: left.recorded_bytes,
            rewritten_bytes,
        })
    }

    /// Killed three times on the way, at a quarter, a half and three quarters, and finished by the same command.
    fn thrice(&self, src: &Path, bytes: u64) -> Result<Thrice> {
        'again: for _ in 0..TRIES {
            let place = SessionDir { dir: self.copies.next()? };
            fs::create_dir(&place.dir)?;
            let dst = place.dir.join("file");
            self.settle(src)?;
            let argv = self.copy(&["-C"], src, &dst)?;
            let (mut written_bytes, mut from) = (0, 0);
            for quarter in 1..4 {
                let mut child = Command::new(&argv[0])
                    .args(&argv[1..])
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()?;
                if !killed_when(&mut child, || place.stage_bytes() >= bytes / 4 * quarter)? {
                    fs::remove_dir_all(&place.dir)?;
                    continue 'again;
                }
                // Segments are written from front to back: the stage's length is what has been written.
                written_bytes += place.stage_bytes() - from;
                from = place.recorded_bytes();
            }
            written_bytes += self.traced(&argv)?.written.stage_bytes;
            same(src, &dst, Links::Kept)?;
            fs::remove_dir_all(&place.dir)?;
            println!("killed three times: {} MiB written of {}", written_bytes / MIB, bytes / MIB);
            return Ok(Thrice { bytes, written_bytes });
        }
        Err("the copy was always faster than the kill".into())
    }

    /// Every mode once a round, by turns, each on a stage and a session as the kill left them: afterwards the very
    /// same inode is cut back to what was recorded, gets its stage's name again, and the kept session beside it.
    pub fn resumed(&self, src: &Path, bytes: u64, percent: u64) -> Result<Vec<Resumed>> {
        // A record per block, so that so much can be had of a small file also.
        let fine = ["--checkpoint-size", "4M"];
        let enough = |place: &SessionDir| place.recorded_bytes() >= bytes / 100 * percent;
        let proved = self.stopped(&[&["-C"], &fine[..]].concat(), src, enough)?;
        // Its session is of another kind: only the last block of a segment has a hash.
        let fast = self.stopped(&[&["-C", "--fast"], &fine[..]].concat(), src, enough)?;
        let modes: [(&str, &[&str], _); 3] =
            [("-C", &["-C"], &proved), ("-C --fast", &["-C", "--fast"], &fast), ("-s", &["-s"], &proved)];
        let none = |mode: &str| Resumed {
            bytes,
            mode: mode.to_owned(),
            recorded_bytes: vec![],
            first_byte_s: vec![],
            whole_s: vec![],
        };
        let mut all: Vec<Resumed> = modes.iter().map(|(mode, ..)| none(mode)).collect();
        for round in 0..self.rounds {
            for ((mode, flags, (dst, left)), result) in modes.iter().zip(&mut all) {
                if round > 0 || *mode == "-s" {
                    left.restore(dst)?;
                }
                self.settle(src)?;
                let trace = self.traced(&self.copy(flags, src, dst)?)?;
                let first = trace.first_byte_s.ok_or(format!("{mode}: wrote nothing"))?;
                if trace.written.stage_bytes != bytes - left.recorded_bytes {
                    return Err(format!("{mode} did not go on where it stopped: {:?}", trace.written).into());
                }
                result.recorded_bytes.push(left.recorded_bytes);
                result.first_byte_s.push(first);
                result.whole_s.push(trace.whole_s);
            }
        }
        for (dst, left) in [proved, fast] {
            same(src, &dst, Links::Kept)?;
            fs::remove_dir_all(left.place.dir)?;
        }
        for r in &all {
            println!(
                "{} MiB {:10} first byte {:.1} ms, whole {:.0} ms",
                bytes / MIB,
                r.mode,
                median(r.first_byte_s.iter().copied()) * 1e3,
                median(r.whole_s.iter().copied()) * 1e3
            );
        }
        Ok(all)
    }

    /// Starts a copy and kills it as soon as there is enough.
    fn stopped(
        &self,
        flags: &[&str],
        src: &Path,
        enough: impl Fn(&SessionDir) -> bool,
    ) -> Result<(PathBuf, Left)> {
        for _ in 0..TRIES {
            let place = SessionDir { dir: self.copies.next()? };
            fs::create_dir(&place.dir)?;
            let dst = place.dir.join("file");
            self.settle(src)?;
            let argv = self.copy(flags, src, &dst)?;
            let mut child =
                Command::new(&argv[0]).args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
            if killed_when(&mut child, || enough(&place))? {
                let left = Left::found(place)?;
                if left.recorded_bytes < fs::metadata(src)?.len() {
                    return Ok((dst, left));
                }
                // Everything was on record already: there is nothing to go on with.
                fs::remove_dir_all(&left.place.dir)?;
                continue;
            }
            fs::remove_dir_all(&place.dir)?;
        }
        Err("the copy was always faster than the kill".into())
    }

    /// Runs it once under strace, which stops it at writes only.
    fn traced(&self, argv: &[String]) -> Result<Trace> {
        let log = self.options.dir.join("strace.txt");
        let calls = "trace=execve,pwrite64,write,copy_file_range,sendfile";
        let out = Command::new("strace")
            .args(["-f", "--seccomp-bpf", "-ttt", "-y", "-s", "0", "--signal=none", "-e", calls, "-o"])
            .arg(&log)
            .arg("--")
            .args(argv)
            .stdin(Stdio::null())
            .output()?;
        if !out.status.success() {
            return Err(format!("{}: {}", argv.join(" "), String::from_utf8_lossy(&out.stderr)).into());
        }
        parse(&fs::read_to_string(&log)?)
    }
}

/// Kills the child when there is enough; `false` when it had finished before.
pub fn killed_when(child: &mut Child, enough: impl Fn() -> bool) -> Result<bool> {
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(false) } else { Err(format!("the copy: {status}").into()) };
        }
        if enough() {
            child.kill()?;
            return Ok(!child.wait()?.success());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The directory in which one copy is made.
pub struct SessionDir {
    pub dir: PathBuf,
}

impl SessionDir {
    fn ending(&self, ending: &str) -> Option<PathBuf> {
        let all = fs::read_dir(&self.dir).ok()?;
        all.filter_map(|e| Some(e.ok()?.path())).find(|p| p.to_string_lossy().ends_with(ending))
    }

    fn stage_bytes(&self) -> u64 {
        self.ending(".part").and_then(|p| fs::metadata(p).ok()).map_or(0, |m| m.len())
    }

    pub fn recorded_bytes(&self) -> u64 {
        let session = self.ending(".session").and_then(|p| fs::read(p).ok()).unwrap_or_default();
        recorded_blocks(&session) * BLOCK_BYTES
    }
}

/// Blocks in the whole records of a session.
fn recorded_blocks(session: &[u8]) -> u64 {
    let number = |at: usize, bytes: usize| {
        let field = session.get(at..at + bytes)?;
        Some(field.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b)))
    };
    let Some(name_bytes) = number(80, 2) else { return 0 };
    let mut at = 82 + name_bytes + 8;
    let mut blocks = 0;
    while let Some(count) = number(at, 4) {
        at += 4 + 32 * count + 8;
        if at > session.len() {
            break;
        }
        blocks += count as u64;
    }
    blocks
}

/// What a kill left.
struct Left {
    place: SessionDir,
    stage: PathBuf,
    stage_bytes: u64,
    session: PathBuf,
    session_text: Vec<u8>,
    recorded_bytes: u64,
}

impl Left {
    fn found(place: SessionDir) -> Result<Left> {
        let stage = place.ending(".part").ok_or("the kill left no stage")?;
        let session = place.ending(".session").ok_or("the kill left no session")?;
        let (stage_bytes, recorded_bytes) = (place.stage_bytes(), place.recorded_bytes());
        let session_text = fs::read(&session)?;
        Ok(Left { place, stage, stage_bytes, session, session_text, recorded_bytes })
    }

    /// As it was at the kill, but for what was not recorded. A session binds its stage's inode, so that is kept.
    fn restore(&self, dst: &Path) -> Result {
        if !dst.exists() {
            return Ok(());
        }
        fs::rename(dst, &self.stage)?;
        fs::set_permissions(&self.stage, Permissions::from_mode(0o600))?;
        fs::File::options().write(true).open(&self.stage)?.set_len(self.recorded_bytes)?;
        fs::write(&self.session, &self.session_text)?;
        Ok(fs::set_permissions(&self.session, Permissions::from_mode(0o600))?)
    }
}

/// What strace saw.
#[derive(Debug)]
struct Trace {
    written: Written,
    first_byte_s: Option<f64>,
    whole_s: f64,
}

/// Lines of `PID SECONDS call(...) = BYTES`, also in two parts.
fn parse(log: &str) -> Result<Trace> {
    let mut begun = None;
    let mut trace = Trace { written: Written::default(), first_byte_s: None, whole_s: 0.0 };
    let mut unfinished = std::collections::BTreeMap::new();
    for line in log.lines() {
        let mut words = line.split_whitespace();
        let (Some(pid), Some(when)) = (words.next(), words.next()) else { continue };
        let when: f64 = when.parse().map_err(|e| format!("strace: {line}: {e}"))?;
        let since = when - *begun.get_or_insert(when);
        trace.whole_s = since;
        let (stage, session) = if line.contains("resumed>") {
            unfinished.remove(pid).unwrap_or_default()
        } else {
            let call =
                line.contains("write") || line.contains("copy_file_range") || line.contains("sendfile");
            (call && line.contains(".part>"), call && line.contains(".session>"))
        };
        if stage {
            trace.first_byte_s.get_or_insert(since);
        }
        if line.ends_with("<unfinished ...>") {
            unfinished.insert(pid, (stage, session));
        } else if let Some((_, result)) = line.rsplit_once(" = ") {
            let bytes = result.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            trace.written.stage_bytes += if stage { bytes } else { 0 };
            trace.written.session_bytes += if session { bytes } else { 0 };
        }
    }
    Ok(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_in_one_and_in_two_parts_are_added_up() {
        let log = "7 100.5 execve(\"bcmr\", ...) = 0\n\
            8 100.75 pwrite64(5</d/.bcmr-1.part>, \"\"..., 100, 0 <unfinished ...>\n\
            9 100.8 pwrite64(6</d/.bcmr-1.session>, \"\"..., 44, 9) = 44\n\
            8 101.0 <... pwrite64 resumed>) = 60\n\
            7 101.1 copy_file_range(3</s>, [0], 5</d/.bcmr-1.part>, [60], 40, 0) = 40\n\
            7 101.2 copy_file_range(3</s>, [0], 5</d/.bcmr-1.part>, [60], 40, 0) = -1 EXDEV (x)\n\
            7 101.5 +++ exited with 0 +++\n";
        let trace = parse(log).unwrap();
        assert_eq!((trace.written.stage_bytes, trace.written.session_bytes), (100, 44));
        assert_eq!((trace.first_byte_s, trace.whole_s), (Some(0.25), 1.0));
    }

    #[test]
    fn a_torn_record_does_not_count() {
        let mut session = vec![0; 80];
        session.extend([1, 0, b'x']);
        session.extend([0; 8]);
        assert_eq!(recorded_blocks(&session), 0);
        session.extend([2, 0, 0, 0]);
        session.extend([0; 71]);
        assert_eq!(recorded_blocks(&session), 0);
        session.push(0);
        assert_eq!(recorded_blocks(&session), 2);
    }
}
