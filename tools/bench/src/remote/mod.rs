//! `cargo xtask bench remote`: copies to and from another machine beside scp, rsync and tar, all through the same
//! private sshd, by turns in one run. What is measured is the programs, ssh and the line: data lies on tmpfs where a
//! row is not about a disk, since ext4 would write back in the middle of another program's turn.

mod bridge;
pub mod ceiling;
pub mod far;
pub mod pages;
pub mod probe;
pub mod record;
mod relay;
pub mod rows;
pub mod store;
mod table;

use crate::checkpoint::{SessionDir, killed_when};
use crate::data::{self, Set};
use crate::experiment::inside;
use crate::measure;
use crate::mount;
use crate::options::{self, On, Options};
use crate::programs::binary;
use crate::record::{LocalRecord, commit};
use crate::turns::{Copies, same};
use far::Far;
use record::{Bounds, Capped, LaneRecord, Remote, RemoteMemory, RemoteRowRecord, Run};
use rows::{Before, Lane, LaneKind, Line, Needs, RemoteRow, Storage, Way};
use sh::{Result, text};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const MIB: u64 = 1 << 20;
/// What a side may take, and what more for each further connection; and a server with as many streams as there may be.
const MEMORY_MIB: f64 = 64.0;
const MORE_MIB: f64 = 32.0;
const SERVING_MIB: f64 = 128.0;
/// Blocks of a session, and of what a kill leaves.
const TRIES: u32 = 5;
/// Exit status of `timeout` when it had to stop its command.
const STOPPED: i32 = 124;
/// How large a file system for the rows about disks may grow.
const IMAGE_BYTES: u64 = 64 << 30;

pub fn run(options: &Options, typed: &[&str]) -> Result {
    let mut table = table::all(options.quick);
    let chosen = |name: &str| {
        options.only.is_empty()
            || options.only.iter().any(|o| o == name || name.strip_prefix(o.as_str()).is_some_and(is_way))
    };
    let names = || table::all(false).into_iter().map(|r| r.name).chain(table::COUNTED);
    let known = |o: &str| names().any(|n| n == o || n.strip_prefix(o).is_some_and(is_way));
    if let Some(stranger) = options.only.iter().find(|o| !known(o)) {
        return Err(
            format!("no row {stranger:?}; there are: {}", names().collect::<Vec<_>>().join(" ")).into()
        );
    }
    table.retain(|row| chosen(row.name));
    let bcmr = binary(options)?;
    let mut machine = LocalRecord::of_this_machine(&options.dir, options.quick)?;
    if matches!(options.on, On::Image(_)) {
        machine.file_system += "-image";
    }
    let mut record = Remote {
        schema: 1,
        machine: machine.headline(),
        cores: machine.cores,
        ssh: format!("{}, TCP's rate by {}", ssh_version(), congestion_control()),
        rows: Vec::new(),
        memory: Vec::new(),
        store: None,
        probes: Vec::new(),
        left_out: BTreeMap::new(),
    };
    println!("{}; {}", record.machine, record.ssh);
    // A client with neither the user's configuration nor his sessions.
    let lab = RemoteLab::new(options, bcmr);
    lab.measure(&table, &chosen, &command(typed), &machine.file_system, &mut record)?;
    fs::create_dir_all(&options.out)?;
    pages::write(&record, &options.out.join("remote"))?;
    println!("\n{}", pages::summary(&record));
    match &options.write {
        Some(docs) => pages::keep(record, docs),
        None => Ok(()),
    }
}

fn is_way(end: &str) -> bool {
    matches!(end, "-put" | "-get")
}

/// What repeats it; where data and results lie is for the user to choose.
fn command(typed: &[&str]) -> String {
    options::command("remote", typed)
}

fn ssh_version() -> String {
    let out = Command::new("ssh").arg("-V").output();
    let said = out.map(|o| String::from_utf8_lossy(&o.stderr).trim().to_owned()).unwrap_or_default();
    said.split(',').next().unwrap_or_default().to_owned()
}

/// How the kernel decides how fast TCP sends: what limits the lines with losses.
fn congestion_control() -> String {
    let name = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    name.map(|name| name.trim().to_owned()).unwrap_or_default()
}

/// What rows share: lines are laid and a disk is made when the first row wants them.
pub struct RemoteLab<'a> {
    options: &'a Options,
    bcmr: PathBuf,
    lines: BTreeMap<u8, Far>,
    disk: OnceCell<mount::Loop>,
    /// What the program was seen to be able to do.
    able: BTreeMap<u8, std::result::Result<(), String>>,
}

impl<'a> RemoteLab<'a> {
    pub fn new(options: &'a Options, bcmr: PathBuf) -> RemoteLab<'a> {
        RemoteLab { options, bcmr, lines: BTreeMap::new(), disk: OnceCell::new(), able: BTreeMap::new() }
    }

    fn measure(
        mut self,
        table: &[RemoteRow],
        chosen: &dyn Fn(&str) -> bool,
        command: &str,
        file_system: &str,
        record: &mut Remote,
    ) -> Result {
        let begun = Instant::now();
        for row in table {
            if let Some(why) = self.why_not(row, begun) {
                println!("\n{}: NOT MEASURED: {why}", row.name);
                record.left_out.insert(row.name.to_owned(), why);
                continue;
            }
            println!("\n{}: {}", row.name, row.title);
            let mut made = self.row(row)?;
            made.command = format!("{command} --rows {}", row.name);
            made.file_system =
                if row.place == Storage::Disk { "ext4-image".to_owned() } else { file_system.to_owned() };
            pages::print(&made);
            println!("  (after {:.0} s)", begun.elapsed().as_secs_f64());
            record.rows.push(made);
        }
        if chosen("codec") {
            record.probes = probe::run()?;
        }
        if chosen("store") {
            match self.able(Needs::Store)? {
                Ok(()) => record.store = Some(self.capped()?),
                Err(why) => drop(record.left_out.insert("store".to_owned(), why)),
            }
        }
        if chosen("memory") {
            match self.over(begun).or_else(|| (!sh::is_root()).then(|| "an ext4 image needs root".to_owned()))
            {
                Some(why) => drop(record.left_out.insert("memory".to_owned(), why)),
                None => record.memory = self.memory()?,
            }
        }
        if chosen("serve") {
            match self.able(Needs::DirectPlane)? {
                Ok(()) => record.memory.extend(self.serving()?),
                Err(why) => drop(record.left_out.insert("serve".to_owned(), why)),
            }
        }
        for (name, why) in &record.left_out {
            println!("{name}: NOT MEASURED: {why}");
        }
        println!("(all in {:.0} s)", begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn over(&self, begun: Instant) -> Option<String> {
        let most = self.options.minutes?;
        (begun.elapsed().as_secs_f64() > most * 60.0).then(|| "the time was over".to_owned())
    }

    pub fn why_not(&self, row: &RemoteRow, begun: Instant) -> Option<String> {
        if row.place == Storage::Disk && !sh::is_root() {
            return Some("an ext4 image needs root".to_owned());
        }
        // One link at a time, and where there was one there can be another.
        let laid = self.lines.contains_key(&(row.line as u8))
            || (row.line.is_link() && self.lines.values().any(Far::has_link));
        if laid { self.over(begun) } else { far::why_not(row.line).or_else(|| self.over(begun)) }
    }

    /// The line, laid when it is wanted first.
    fn far(&mut self, line: Line) -> Result<&Far> {
        let key = line as u8;
        if !self.lines.contains_key(&key) {
            // Both kinds of slow links have the same addresses.
            self.lines.retain(|_, far| !(line.is_link() && far.has_link()));
            let dir = self.options.dir.join(format!("far{key}"));
            self.lines.insert(key, Far::start(line, &dir, &self.bcmr)?);
        }
        self.lines.get(&key).ok_or_else(|| "there is no line".into())
    }

    /// Where a row's data and copies lie.
    fn place(&self, place: Storage) -> Result<PathBuf> {
        if place == Storage::Scratch {
            return Ok(self.options.dir.clone());
        }
        if self.disk.get().is_none() {
            let below = sh::root().join("target/bench");
            fs::create_dir_all(&below)?;
            drop(self.disk.set(mount::Loop::new("ext4", IMAGE_BYTES, &below)?));
        }
        Ok(self.disk.get().ok_or("there is no disk")?.dir().to_path_buf())
    }

    pub fn row(&mut self, row: &RemoteRow) -> Result<RemoteRowRecord> {
        let dir = self.place(row.place)?;
        let (src, size) = row.set.make(&dir)?;
        data::warm(&src)?;
        let mut records = Vec::new();
        for lane in &row.lanes {
            records.push(LaneRecord {
                name: lane.name.to_owned(),
                line: lane.line.to_owned(),
                absent: self.able(lane.needs)?.err(),
                samples: Vec::new(),
                recorded_bytes: Vec::new(),
            });
        }
        let computed: Vec<Option<f64>> =
            row.lanes.iter().map(|lane| computed_s(lane.kind, &src)).collect::<Result<_>>()?;
        let quick = self.options.quick;
        let rounds = self.options.rounds.unwrap_or(if quick { 1 } else { row.rounds });
        let bcmr = self.bcmr.clone();
        let turn = Turn {
            row,
            src: &src,
            copies: Copies::below(&dir),
            far: self.far(row.line)?,
            bcmr: text(&bcmr)?,
        };
        for round in 0..rounds {
            let mut kept = Vec::new();
            for (n, (lane, made)) in row.lanes.iter().zip(&mut records).enumerate() {
                if made.absent.is_some() || round >= lane.rounds {
                    continue;
                }
                if let Some(wall_s) = computed.get(n).copied().flatten() {
                    made.samples.push(Run::computed(wall_s));
                    continue;
                }
                let (run, recorded, place) = turn.once(lane, made.samples.is_empty())?;
                kept.push(place);
                // What is known there of blocks may be where they landed.
                if row.lanes.get(n + 1).is_none_or(|next| next.before != Before::Nothing) {
                    kept.drain(..).try_for_each(|place| turn.forget(&place))?;
                }
                eprintln!("  {:10} {:.2} s", lane.name, run.wall_s);
                made.samples.push(run);
                made.recorded_bytes.extend(recorded);
            }
        }
        turn.copies.clear()?;
        let mut made = RemoteRowRecord {
            name: row.name.to_owned(),
            title: row.title.to_owned(),
            file_system: String::new(),
            commit: commit()?,
            command: String::new(),
            data: size,
            lanes: records,
            verdicts: Vec::new(),
        };
        made.verdicts = row.goals.iter().map(|goal| made.judge(goal)).collect();
        Ok(made)
    }

    /// Whether the program can do what a lane is about, tried once: an option that is taken and has no effect would
    /// otherwise be measured as if it had.
    pub fn able(&mut self, needs: Needs) -> Result<std::result::Result<(), String>> {
        if needs == Needs::Nothing {
            return Ok(Ok(()));
        }
        let key = needs as u8;
        if !self.able.contains_key(&key) {
            let found = self.tried(needs)?;
            self.able.insert(key, found);
        }
        Ok(self.able.get(&key).cloned().unwrap_or(Ok(())))
    }

    fn tried(&mut self, needs: Needs) -> Result<std::result::Result<(), String>> {
        let dir = self.options.dir.clone();
        let (src, _) = Set::One { bytes: 20 * MIB }.make(&dir)?;
        let dst = Copies::below(&dir).next()?;
        let bcmr = self.bcmr.clone();
        let far = self.far(Line::Loopback)?;
        let option = if needs == Needs::Store { "--dedup" } else { "--direct=direct" };
        let there = format!("there:{}", text(&dst)?);
        let argv = [text(&bcmr)?, "copy", "-F", text(far.config())?, option, text(&src)?, &there];
        let argv = argv.map(str::to_owned);
        let done = match needs {
            Needs::Store => sh::quiet(&argv[0], &argv[1..].iter().map(String::as_str).collect::<Vec<_>>())
                .map(|()| held(&far.store()).is_ok_and(|(bytes, _)| bytes > 0)),
            _ => far::opens_connections(&argv, far.port(), &dir),
        };
        sh::quiet("rm", &["-f", text(&dst)?])?;
        Ok(match done {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("not built yet: {option} is taken and changes nothing")),
            Err(e) => Err(format!("not built yet: {e}")),
        })
    }

    /// Three different files of 24 MiB through a store of 32 MiB.
    pub fn capped(&mut self) -> Result<Capped> {
        const CAP_MIB: u64 = 32;
        const FILE: u64 = 24 * MIB;
        let dir = self.options.dir.clone();
        let bcmr = self.bcmr.clone();
        let far = self.far(Line::Loopback)?;
        empty(&far.store())?;
        let mut made = Capped {
            commit: commit()?,
            cap_bytes: CAP_MIB * MIB,
            sent_bytes: 0,
            held: Vec::new(),
            remembered: Vec::new(),
        };
        let copies = Copies::below(&dir);
        for more in 0..3 {
            // another length is another seed; cut to the same.
            let (src, _) = Set::One { bytes: FILE + 4 * MIB * (more + 1) }.make(&dir)?;
            let cut = copies.next()?;
            sh::quiet("cp", &[text(&src)?, text(&cut)?])?;
            fs::File::options().write(true).open(&cut)?.set_len(FILE)?;
            let there = format!("there:{}", text(&copies.next()?)?);
            let cap = format!("SetEnv=BCMR_CAS_CAP_MB={CAP_MIB}");
            let config = text(far.config())?;
            sh::quiet(text(&bcmr)?, &["copy", "-F", config, "-o", &cap, "--dedup", text(&cut)?, &there])?;
            far.used_s()?;
            made.sent_bytes += FILE;
            made.held.push(held(&far.store())?);
            made.remembered.push(store::remembered(&far.store())?);
        }
        copies.clear()?;
        Ok(made)
    }

    /// Very many files, each way and over more connections; nothing is compared, and the memory of the program's own
    /// processes is looked at twenty times a second.
    fn memory(&mut self) -> Result<Vec<RemoteMemory>> {
        let files: u64 = if self.options.quick { 50_000 } else { 1_000_000 };
        let dir = self.place(Storage::Disk)?;
        let set = Set::Even { dirs: 1000, files_per_dir: files / 1000, bytes: 16 };
        let mut all = Vec::new();
        for (way, connections) in [(Way::Put, 1_u64), (Way::Get, 1), (Way::Put, 4)] {
            let most = MEMORY_MIB + MORE_MIB * (connections - 1) as f64;
            let bounds = Bounds { client: Some(most), server: Some(most) };
            all.push(self.peak(&dir, set, way, (connections, "ssh"), bounds)?);
        }
        Ok(all)
    }

    /// One process over there with as many streams as there may be.
    fn serving(&mut self) -> Result<Vec<RemoteMemory>> {
        const STREAMS: u64 = 32;
        let part = if self.options.quick { 10 } else { 1 };
        let dir = self.options.dir.clone();
        let set = Set::One { bytes: (1 << 30) / part };
        let bounds = Bounds { client: None, server: Some(SERVING_MIB) };
        let one = |way| self.peak(&dir, set, way, (STREAMS, "direct"), bounds);
        [Way::Put, Way::Get].into_iter().map(one).collect()
    }

    fn peak(
        &mut self,
        dir: &Path,
        set: Set,
        way: Way,
        (connections, plane): (u64, &str),
        bounds: Bounds,
    ) -> Result<RemoteMemory> {
        let (src, size) = set.make(dir)?;
        let copies = Copies::below(dir);
        let bcmr = self.bcmr.clone();
        let far = self.far(Line::Loopback)?;
        let dst = copies.next()?;
        let (from, to) = match way {
            Way::Put => (text(&src)?.to_owned(), format!("there:{}", text(&dst)?)),
            Way::Get => (format!("there:{}", text(&src)?), text(&dst)?.to_owned()),
        };
        let (streams, plane_of) = (connections.to_string(), format!("--direct={plane}"));
        let config = text(far.config())?;
        let argv = ["copy", "-q", "-F", config, "--parallel", &streams, &plane_of, "-r", &from, &to];
        let begun = Instant::now();
        let ((), peaks) = far::watched(&bcmr, || sh::quiet(text(&bcmr)?, &argv))?;
        let wall_s = begun.elapsed().as_secs_f64();
        far.used_s()?;
        let word = if way == Way::Put { "PUT" } else { "GET" };
        println!(
            "  {} files, {word} over {connections} ({plane}): {wall_s:.1} s, client {:.1} MiB, server {:.1} MiB in {}",
            size.files,
            peaks.client.most_kib as f64 / 1024.0,
            peaks.server.most_kib as f64 / 1024.0,
            peaks.server.processes
        );
        let what = match (plane, connections) {
            ("ssh", 1) => "1 connection".to_owned(),
            ("ssh", n) => format!("{n} connections"),
            (_, n) => format!("{n} direct streams"),
        };
        let (line, commit, files) = (format!("{word}, {what}"), commit()?, size.files);
        Ok(RemoteMemory { line, commit, files, connections, wall_s, peaks, bounds: Some(bounds) })
    }
}

/// One row while it is measured.
struct Turn<'a> {
    row: &'a RemoteRow,
    src: &'a Path,
    copies: Copies,
    far: &'a Far,
    bcmr: &'a str,
}

impl Turn<'_> {
    /// One command once, from a clean state; compared with the source when asked to. Also says where its copy lies.
    fn once(&self, lane: &Lane, compare: bool) -> Result<(Run, Option<u64>, PathBuf)> {
        if lane.before == Before::EmptyStore {
            empty(&self.far.store())?;
        }
        let (place, recorded) = match lane.before {
            Before::Killed => self.killed(lane).map(|(place, bytes)| (place, Some(bytes)))?,
            _ => (self.fresh()?, None),
        };
        let dst = place.join("copy");
        if lane.before == Before::Copied {
            sh::quiet("cp", &["-a", text(self.src)?, text(&dst)?])?;
        }
        let argv = self.argv(lane, &dst)?;
        sh::quiet("sync", &["-f", text(&self.copies.dir)?])?;
        let used_s = self.far.used_s()?;
        let (sample, status) = measure::ended(&argv, if lane.stop_s.is_some() { &[STOPPED] } else { &[] })?;
        let server_cpu_s = self.far.used_s()? - used_s;
        let stopped = status == STOPPED;
        if compare && !stopped {
            same(self.src, &dst, lane.links)?;
        }
        let run = Run {
            wall_s: sample.wall_s,
            client_cpu_s: sample.user_s + sample.sys_s,
            server_cpu_s,
            foreign_s: (sample.foreign_s - server_cpu_s).max(0.0),
            stopped,
        };
        Ok((run, recorded, place))
    }

    /// A directory of its own, so that what lies beside the copy is the copy's.
    fn fresh(&self) -> Result<PathBuf> {
        let place = self.copies.next()?;
        fs::create_dir(&place)?;
        Ok(place)
    }

    /// Removing many inodes slows ext4 down for a minute, see `Copies`; tmpfs has its memory back instead. Blocks of a large file
    /// that is left to lie need not cross again.
    fn forget(&self, place: &Path) -> Result {
        if self.row.place == Storage::Disk && self.src.is_dir() {
            return mount::forget(place);
        }
        sh::quiet("rm", &["-rf", text(place)?])
    }

    /// The same command, killed as soon as 90 % are on record, and no session left behind by it.
    fn killed(&self, lane: &Lane) -> Result<(PathBuf, u64)> {
        let whole = fs::metadata(self.src)?.len();
        for _ in 0..TRIES {
            let place = self.fresh()?;
            let argv = self.argv(lane, &place.join("copy"))?;
            let mut child =
                Command::new(&argv[0]).args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
            let session = SessionDir { dir: place.clone() };
            let killed = killed_when(&mut child, || session.recorded_bytes() >= whole / 10 * 9)?;
            self.far.used_s()?;
            if killed {
                return Ok((place, session.recorded_bytes()));
            }
            self.forget(&place)?;
        }
        Err("the copy was always faster than the kill".into())
    }

    fn argv(&self, lane: &Lane, dst: &Path) -> Result<Vec<String>> {
        let (sp, dp) = (text(self.src)?, text(dst)?);
        let there = |path: &str| format!("there:{path}");
        let (s, d) = match self.row.way {
            Way::Put => (sp.to_owned(), there(dp)),
            Way::Get => (there(sp), dp.to_owned()),
        };
        let config = text(self.far.config())?;
        let ssh = format!("ssh -F {config}");
        let fill = |word: &str| {
            let word = word.replace("{sp}", sp).replace("{dp}", dp).replace("{s}", &s).replace("{d}", &d);
            word.replace("{F}", config).replace("{e}", &ssh).replace("{a}", self.far.address())
        };
        let mut argv: Vec<String> = if lane.line.contains(['|', '\'', '&']) {
            vec!["sh".to_owned(), "-c".to_owned(), fill(lane.line)]
        } else {
            lane.line.split(' ').map(fill).collect()
        };
        if argv[0] == "bcmr" {
            self.bcmr.clone_into(&mut argv[0]);
        }
        // What measures is this binary, and starts itself.
        if let Some(helper) = HELPERS.iter().find_map(|(name, helper)| (*name == argv[0]).then_some(*helper))
        {
            argv.splice(0..1, ["/proc/self/exe".to_owned(), helper.to_owned()]);
        }
        if let Some(seconds) = lane.stop_s {
            argv.splice(0..0, ["timeout".to_owned(), seconds.to_string()]);
        }
        Ok(argv)
    }
}

/// Commands of this binary that take part like programs.
const HELPERS: [(&str, &str); 2] = [("inside", inside::HELPER), ("ceiling", ceiling::HELPER)];

/// Seconds of a lane that is not run. `None`: it is.
fn computed_s(kind: LaneKind, src: &Path) -> Result<Option<f64>> {
    Ok(match kind {
        LaneKind::Command => None,
        LaneKind::LineTime { bits_s } => Some(fs::metadata(src)?.len() as f64 * 8.0 / bits_s as f64),
        LaneKind::PackedTime { bits_s } => {
            let packed = zstd::bulk::compress(&fs::read(src)?, ZSTD_LEVEL)?;
            Some(packed.len() as f64 * 8.0 / bits_s as f64)
        }
    })
}

/// What the program `zstd` takes by itself.
const ZSTD_LEVEL: i32 = 3;

/// Takes every block out of the store.
fn empty(store: &Path) -> Result {
    sh::quiet("rm", &["-rf", text(store)?])
}

/// Bytes and number of the files below; none when there is no such directory.
fn held(store: &Path) -> Result<(u64, u64)> {
    let mut sum = (0, 0);
    if store.is_dir() {
        for entry in fs::read_dir(store)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            let (bytes, files) = if meta.is_dir() { held(&entry.path())? } else { (meta.len(), 1) };
            sum = (sum.0 + bytes, sum.1 + files);
        }
    }
    Ok(sum)
}
