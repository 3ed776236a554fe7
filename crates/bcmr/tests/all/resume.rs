//! Going on where a killed run stopped, as a person meets it: the real binary, killed, damaged and run again.
//!
//! Which test owns which rule. The rules are the ways in which copiers that checkpoint were seen to lose data; "engine"
//! and "fastcopy" name unit tests there.
//!
//! | rule | what must hold | owner |
//! |---|---|---|
//! | S1 | length is never evidence of content | `kills_*`, `a_stage_full_of_zeros_is_not_data` |
//! | S2 | what was recorded is proved, not only its tail | `a_damaged_block_is_found`, `kills_*` |
//! | S3 | a source is known by device, inode, size, mtime and ctime in ns | `a_source_edited_behind_our_back_starts_over`; engine `any_doubt_starts_over` |
//! | S4 | a source that changes while it is read is never published as a mixture | `a_source_that_changes_while_it_is_read` |
//! | S5 | only a completed sync counts | `syncs_come_in_the_documented_order` |
//! | S6 | exit 0 comes after the name is synced | `syncs_come_in_the_documented_order` |
//! | S7 | a failed sync is not tried again; stage and session go | `a_failed_sync_throws_the_stage_away` |
//! | S8 | what a cached re-read proves is said; `-V=direct` asks the medium | `verifying_a_resumed_file`, docs/durability.md |
//! | S10 | a session is a hint: torn, flipped or foreign it costs time only | `a_session_cut_anywhere`, `a_session_flipped_anywhere`, `foreign_*` |
//! | S11 | no litter after a completed run | `kills_*` and every other test, by `Place::done` |
//! | S12 | a final name is absent, old or new | `kills_*` (looked at after every kill) |
//! | S13 | each mode says what it checks | `fast_says_what_it_assumes`, `append_rules` |

use crate::common::remote::{kill, signal, within};
use crate::common::{HUNG, free, places};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const BIN: &str = env!("CARGO_BIN_EXE_bcmr");
const MIB: usize = 1 << 20;
const BLOCK: usize = 4 * MIB;
/// Every test's first words: small checkpoints, so that small files have sessions.
const COPY: [&str; 3] = ["copy", "--checkpoint-size", "4M"];

/// A few random words; the seed is printed, so that a failure can be had again with `BCMR_SEED`.
struct Dice(u64);

impl Dice {
    fn new() -> Dice {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let seed = std::env::var("BCMR_SEED").ok().and_then(|s| s.parse().ok());
        let seed = seed.unwrap_or(now.as_nanos() as u64 | 1);
        println!("BCMR_SEED={seed}");
        Dice(seed)
    }
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut out);
    out
}

/// Puts something into a place.
type Plant = fn(&Place);

/// A directory of its own with a source file and a destination directory.
struct Place {
    dir: tempfile::TempDir,
    data: Vec<u8>,
}

impl Place {
    fn new(len: usize) -> Place {
        Place::within(&std::env::temp_dir(), len)
    }

    fn within(base: &Path, len: usize) -> Place {
        let dir = tempfile::tempdir_in(base).unwrap();
        let data = bytes(len as u64, len);
        fs::write(dir.path().join("src"), &data).unwrap();
        fs::create_dir(dir.path().join("out")).unwrap();
        // Past the tick of the clock that stamps files, as it would be for a person.
        std::thread::sleep(Duration::from_millis(25));
        Place { dir, data }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BIN);
        command.args(words).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// `copy` with `flags` of `src` into `out`.
    fn copy(&self, flags: &[&str]) -> Output {
        self.run(&[&COPY[..], flags, &["src", "out/"]].concat())
    }

    fn run(&self, words: &[&str]) -> Output {
        finish(self.command(words))
    }

    /// The same, stopped at the first write behind `bytes` of any file by the limit on file sizes: a known place.
    fn stopped(&self, flags: &[&str], bytes: usize) {
        let words = [&COPY[..], flags, &["src", "out/"]].concat();
        let out = Command::new("bash")
            .args(["-c", &format!("ulimit -c 0 -f {}; exec \"$0\" \"$@\"", bytes / 1024), BIN])
            .args(&words)
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(6), "{}", text(&out));
    }

    fn part(&self) -> PathBuf {
        self.out_file(".part")
    }

    fn session(&self) -> PathBuf {
        self.out_file(".session")
    }

    fn out_file(&self, suffix: &str) -> PathBuf {
        crate::common::leftover_of(&self.at("out"), b"src", suffix)
    }

    /// Bytes that `sessions` says need not be copied again.
    fn recorded(&self) -> u64 {
        let out = self.run(&["sessions", "--json", "out"]);
        let line = events(&out, "unfinished").pop().unwrap_or_else(|| panic!("nothing: {}", text(&out)));
        line["recorded"].as_u64().unwrap()
    }

    /// A finished copy: exit 0, every byte right, nothing of ours left (S11).
    fn done(&self, out: &Output) {
        assert_eq!(out.status.code(), Some(0), "{}", text(out));
        let got = fs::read(self.at("out/src")).unwrap();
        // Sought only when there is one: byte by byte this takes an unoptimised test a tenth of a second.
        let wrong = || got.iter().zip(&self.data).position(|(a, b)| a != b);
        assert!(got == self.data, "{} of {} bytes, wrong at {:?}", got.len(), self.data.len(), wrong());
        assert_eq!(litter(&self.at("out")), [] as [PathBuf; 0], "{}", text(out));
    }
}

/// Everything of ours below `dir`.
fn litter(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().as_encoded_bytes().starts_with(b".bcmr-") {
            found.push(path);
        } else if path.is_dir() && !path.is_symlink() {
            found.extend(litter(&path));
        }
    }
    found
}

/// Runs to its end; what hangs is killed and fails.
fn finish(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |from: &mut dyn Read| {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        all
    };
    std::thread::scope(|scope| {
        let out = scope.spawn(move || read(&mut out));
        let err = scope.spawn(move || read(&mut err));
        let until = Instant::now() + HUNG;
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > until => {
                    child.kill().unwrap();
                    panic!("it hangs");
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
    })
}

fn text(out: &Output) -> String {
    let of = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    format!("{}\n{}{}", out.status, of(&out.stdout), of(&out.stderr))
}

fn says(out: &Output, what: &str) {
    assert!(text(out).contains(what), "'{what}' is missing: {}", text(out));
}

fn events(out: &Output, name: &str) -> Vec<serde_json::Value> {
    let lines = String::from_utf8(out.stdout.clone()).unwrap();
    let all = lines.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
    all.filter(|v| v["event"] == name).collect()
}

fn have(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        loud(&format!("{program} is not installed"));
    }
    found
}

fn loud(why: &str) {
    crate::common::skipped(std::thread::current().name().unwrap_or_default(), why);
}

// ---- kill -9 ----

/// Kills the command at random moments until it got through by itself, and looks after every kill.
fn kill_until_done(place: &Place, words: &[&str], most: u32, look: impl Fn()) -> Output {
    let mut dice = Dice::new();
    let began = Instant::now();
    let mut span = 300_000;
    for kill in 0..most {
        let mut child = place.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(dice.below(span)));
        let ended = child.try_wait().unwrap();
        child.kill().ok();
        child.wait().unwrap();
        look();
        if ended.is_some() {
            println!("through after {kill} kills and {:?}", began.elapsed());
            // Too slow with the knife: the next rounds are shorter, from the start again.
            span = (span / 2).max(2000);
        }
    }
    place.run(words)
}

fn kills(flags: &[&str]) {
    let place = Place::new(40 * MIB);
    let words = [&COPY[..], flags, &["src", "out/"]].concat();
    for round in 0..if crate::common::all_cases() { 3 } else { 1 } {
        let out = kill_until_done(&place, &words, 8, || {
            // S12, S1: a program that looks at the name finds all of it or nothing.
            if let Ok(got) = fs::read(place.at("out/src")) {
                assert!(got == place.data, "a half file under its name in round {round}");
            }
        });
        place.done(&out);
        fs::remove_file(place.at("out/src")).unwrap();
    }
}

#[test]
fn kills_with_proof() {
    kills(&["-C"]);
}

#[test]
fn kills_with_strictness() {
    kills(&["-s"]);
}

#[test]
fn kills_with_fast() {
    kills(&["-C", "--fast"]);
}

fn plant_tree(root: &Path) {
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::write(root.join("big"), bytes(1, 18 * MIB)).unwrap();
    fs::write(root.join("sub/bigger"), bytes(2, 22 * MIB + 77)).unwrap();
    for i in 0..60 {
        fs::write(root.join(format!("sub/deep/{i}")), bytes(i, 1000 * i as usize)).unwrap();
    }
    symlink("deep", root.join("sub/link")).unwrap();
}

fn same_tree(a: &Path, b: &Path) {
    let out = Command::new("diff").arg("-r").arg("--no-dereference").args([a, b]).output().unwrap();
    assert!(out.status.success(), "{}", text(&out));
}

fn kills_tree(flags: &[&str]) {
    let place = Place::new(0);
    plant_tree(&place.at("tree"));
    // Once the mark is gone all is there, whether or not the run came to say so; a directory without it is never half
    // a tree.
    let complete = || {
        let there = place.at("copy").exists() && !crate::common::mark_of(&place.at("copy")).exists();
        if there {
            same_tree(&place.at("tree"), &place.at("copy"));
        }
        there
    };
    for _ in 0..2 {
        let words = [&COPY[..], flags, &["-r", "tree", "copy"]].concat();
        let mut dice = Dice::new();
        // Only until it is complete: from then on the same command means copy/tree, as with cp.
        for _ in 0..12 {
            let mut child = place.command(&words).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(dice.below(150_000)));
            // The kill may come too late to hinder it.
            child.kill().ok();
            let ended = child.wait().unwrap();
            assert!(!place.at("copy/tree").exists(), "it nests");
            assert!(complete() || !ended.success(), "done, with the mark in it");
            if complete() {
                break;
            }
        }
        if !complete() {
            let out = place.run(&words);
            assert_eq!(out.status.code(), Some(0), "{}", text(&out));
        }
        assert!(!place.at("copy/tree").exists(), "it nests");
        assert!(complete());
        assert_eq!(litter(&place.at("copy")), [] as [PathBuf; 0]);
        assert_eq!(litter(place.dir.path()), [] as [PathBuf; 0]);
        fs::remove_dir_all(place.at("copy")).unwrap();
    }
}

#[test]
fn kills_of_a_tree_with_proof() {
    kills_tree(&["-C"]);
}

#[test]
fn kills_of_a_tree_with_strictness() {
    kills_tree(&["-s"]);
}

#[test]
fn a_finished_tree_is_a_directory_like_any_other() {
    // The twin of what the mark of an unfinished tree is for: without it, a directory is gone into.
    let place = Place::new(0);
    plant_tree(&place.at("tree"));
    let words = [&COPY[..], &["-C", "-r", "tree", "copy"]].concat();
    for to in ["copy", "copy/tree"] {
        let out = place.run(&words);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out));
        assert!(place.at(to).join("sub/bigger").exists());
    }
    fs::remove_dir_all(place.at("copy/tree")).unwrap();
    same_tree(&place.at("tree"), &place.at("copy"));
}

#[test]
fn kept_files_are_not_read_again() {
    let place = Place::new(0);
    plant_tree(&place.at("tree"));
    let words = [&COPY[..], &["-C", "-r", "-T", "tree", "copy"]].concat();
    assert_eq!(place.run(&words).status.code(), Some(0));
    let again = place.run(&[&words[..], &["--json"]].concat());
    let summary = events(&again, "summary").pop().unwrap();
    assert_eq!((summary["bytes"].as_u64(), summary["exit"].as_u64()), (Some(0), Some(0)), "{summary}");
    assert!(summary["kept"].as_u64().unwrap() >= 62, "{summary}");
}

// ---- how much is written ----

#[test]
fn only_what_is_missing_is_written() {
    if !have("strace") {
        return;
    }
    for flags in [&["-C"][..], &["-s"], &["-C", "--fast"]] {
        let place = Place::new(60 * MIB + 123);
        place.stopped(flags, 45 * MIB);
        let recorded = place.recorded();
        assert!(recorded >= 28 * MIB as u64, "{flags:?}: only {recorded} recorded");
        let out = Command::new("strace")
            .args(["-f", "-qq", "-o", "trace", "-e", "trace=pwrite64,write,copy_file_range,sendfile,splice"])
            .arg(BIN)
            .args([&COPY[..], flags, &["src", "out/"]].concat())
            .current_dir(place.dir.path())
            .output()
            .unwrap();
        place.done(&out);
        says(&out, "went on at");
        let trace = fs::read_to_string(place.at("trace")).unwrap();
        let written: u64 = trace
            .lines()
            .filter_map(|l| l.rsplit_once(" = ")?.1.split(' ').next()?.parse::<u64>().ok())
            .sum();
        let missing = place.data.len() as u64 - recorded;
        assert!(written <= missing + 2 * BLOCK as u64, "{flags:?}: {written} for {missing}");
    }
}

#[test]
fn what_is_unfinished_is_private() {
    let place = Place::new(20 * MIB);
    place.stopped(&["-C"], 10 * MIB);
    assert!(!place.at("out/src").exists());
    for file in [place.part(), place.session()] {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600, "{file:?}");
    }
}

#[test]
fn modes_are_those_of_any_copy() {
    let place = Place::new(10 * MIB);
    for (mode, flags, want) in [
        (0o644, &["-C"][..], 0o644),
        (0o666, &["-C"], 0o644),
        (0o755, &["-s"], 0o755),
        (0o400, &["-C"], 0o400),
        (0o666, &["-C", "-p"], 0o666),
        (0o640, &["-C", "--fast"], 0o640),
    ] {
        fs::set_permissions(place.at("src"), fs::Permissions::from_mode(mode)).unwrap();
        let words = [&COPY[..], flags, &["src", "out/"]].concat();
        let out = Command::new("sh")
            .args(["-c", "umask 022; exec \"$0\" \"$@\"", BIN])
            .args(words)
            .current_dir(place.dir.path())
            .output()
            .unwrap();
        place.done(&out);
        let got = fs::metadata(place.at("out/src")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(got, want, "{mode:o} {flags:?}");
        fs::remove_file(place.at("out/src")).unwrap();
    }
    // A file that is replaced keeps its mode, as when cp writes into it.
    fs::write(place.at("out/src"), "old").unwrap();
    fs::set_permissions(place.at("out/src"), fs::Permissions::from_mode(0o604)).unwrap();
    place.done(&place.copy(&["-C"]));
    assert_eq!(fs::metadata(place.at("out/src")).unwrap().permissions().mode() & 0o7777, 0o604);
}

// ---- damage ----

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x20], at).unwrap();
}

#[test]
fn a_damaged_block_is_found() {
    for at in [5u64, BLOCK as u64 + 17, 3 * BLOCK as u64 - 1] {
        let place = Place::new(30 * MIB);
        place.stopped(&["-C"], 24 * MIB);
        flip(&place.part(), at);
        let out = place.copy(&["-C"]);
        place.done(&out);
        says(&out, "1 damaged block was copied again");

        let place = Place::new(30 * MIB);
        place.stopped(&["-s"], 24 * MIB);
        flip(&place.part(), at);
        let out = place.copy(&["-s"]);
        place.done(&out);
        says(&out, "a recorded block does not fit");
    }
}

#[test]
fn a_damaged_last_block_is_found_in_constant_time() {
    for flags in [&["-C"][..], &["-s"], &["-C", "--fast"]] {
        let place = Place::new(30 * MIB);
        place.stopped(flags, 24 * MIB);
        flip(&place.part(), place.recorded() - 1);
        let out = place.copy(flags);
        place.done(&out);
        says(&out, "does not fit");
    }
}

#[test]
fn fast_says_what_it_assumes() {
    let place = Place::new(30 * MIB);
    place.stopped(&["-C", "--fast"], 24 * MIB);
    flip(&place.part(), 5);
    let out = place.copy(&["-C", "--fast"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    says(&out, "only the last recorded block");
    let got = fs::read(place.at("out/src")).unwrap();
    assert!(got[5] != place.data[5] && got[6..] == place.data[6..], "this is what --fast trusts");
    // A user who doubts that types -s, which trusts no size and no time.
    let out = place.copy(&["-s"]);
    place.done(&out);
    // The twin: a run that goes on from nothing assumes nothing.
    fs::remove_file(place.at("out/src")).unwrap();
    let out = place.copy(&["-C", "--fast"]);
    place.done(&out);
    assert!(!text(&out).contains("last recorded"), "{}", text(&out));
}

#[test]
fn a_stage_full_of_zeros_is_not_data() {
    for flags in [&["-C"][..], &["-s"]] {
        let place = Place::new(30 * MIB);
        place.stopped(flags, 24 * MIB);
        let stage = File::options().write(true).open(place.part()).unwrap();
        stage.set_len(0).unwrap();
        stage.set_len(place.data.len() as u64).unwrap();
        place.done(&place.copy(flags));
    }
}

#[test]
fn a_source_edited_behind_our_back_starts_over() {
    for flags in [&["-C"][..], &["-s"], &["-C", "--fast"]] {
        let mut place = Place::new(30 * MIB);
        place.stopped(flags, 24 * MIB);
        let before = fs::metadata(place.at("src")).unwrap();
        place.data[7] ^= 1;
        fs::write(place.at("src"), &place.data).unwrap();
        let source = File::options().write(true).open(place.at("src")).unwrap();
        source.set_times(fs::FileTimes::new().set_modified(before.modified().unwrap())).unwrap();
        drop(source);
        let after = fs::metadata(place.at("src")).unwrap();
        assert_eq!((before.mtime_nsec(), before.len()), (after.mtime_nsec(), after.len()));
        let out = place.copy(flags);
        place.done(&out);
        says(&out, "started over: the source has changed since");
    }
}

#[test]
fn a_source_that_changes_while_it_is_read() {
    let place = Place::new(40 * MIB);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let out = std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(place.at("src")).unwrap();
            let mut n = 0u64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                n += 1;
                file.write_all_at(&n.to_le_bytes(), n * 4096 % (40 * MIB as u64)).unwrap();
            }
        });
        let out = place.copy(&["-C"]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        out
    });
    assert_eq!(out.status.code(), Some(5), "{}", text(&out));
    assert!(!place.at("out/src").exists() && litter(&place.at("out")).is_empty(), "{}", text(&out));
}

// ---- sessions that are not what they should be ----

/// A session as docs/session-format.md has it, made without the code that is tested.
fn session_bytes(place: &Place, options: u32, records: &[&[usize]]) -> Vec<u8> {
    use blake3::hazmat::HasherExt;
    let (src, stage) = (fs::metadata(place.at("src")).unwrap(), fs::metadata(place.part()).unwrap());
    let mut out = b"bcmrSES1".to_vec();
    out.extend((BLOCK as u32).to_le_bytes());
    out.extend(options.to_le_bytes());
    for n in [src.dev(), src.ino(), src.len()] {
        out.extend(n.to_le_bytes());
    }
    for (sec, nsec) in [(src.mtime(), src.mtime_nsec()), (src.ctime(), src.ctime_nsec())] {
        out.extend(sec.to_le_bytes());
        out.extend((nsec as u32).to_le_bytes());
    }
    out.extend(stage.dev().to_le_bytes());
    out.extend(stage.ino().to_le_bytes());
    out.extend(3u16.to_le_bytes());
    out.extend(b"src");
    let mut sum = blake3::hash(&out).as_bytes()[..8].to_vec();
    out.extend(&sum);
    for record in records {
        let mut bytes = (record.len() as u32).to_le_bytes().to_vec();
        for block in *record {
            let mut hasher = blake3::Hasher::new();
            hasher.set_input_offset((block * BLOCK) as u64);
            let end = ((block + 1) * BLOCK).min(place.data.len());
            hasher.update(&place.data[block * BLOCK..end]);
            bytes.extend(hasher.finalize_non_root());
        }
        sum = blake3::hash(&[&sum[..], &bytes].concat()).as_bytes()[..8].to_vec();
        out.extend(bytes);
        out.extend(&sum);
    }
    out
}

const HEADER: usize = 82 + 3 + 8;
const RECORD: usize = 4 + 32 + 8;

/// Three and a bit blocks, of which two are recorded; behind them something that is not the source's.
fn half_done(place: &Place) -> Vec<u8> {
    fs::remove_file(place.at("out/src")).ok();
    fs::remove_file(place.part()).ok();
    let mut stage = place.data[..2 * BLOCK].to_vec();
    stage.extend([0xee; 1000]);
    fs::write(place.part(), stage).unwrap();
    fs::set_permissions(place.part(), fs::Permissions::from_mode(0o600)).unwrap();
    session_bytes(place, 0, &[&[0], &[1]])
}

/// Where a run of `-C` with that session says it went on.
fn went_on(place: &Place, session: &[u8]) -> u64 {
    fs::write(place.session(), session).unwrap();
    let out = place.copy(&["-C", "--json"]);
    place.done(&out);
    events(&out, "resumed").pop().map_or(0, |e| e["bytes"].as_u64().unwrap())
}

fn small() -> Place {
    Place::within(places().0, 3 * BLOCK + 100)
}

#[test]
fn the_format_is_the_documented_one() {
    let place = small();
    let session = half_done(&place);
    assert_eq!(session.len(), HEADER + 2 * RECORD);
    assert_eq!(went_on(&place, &session), 2 * BLOCK as u64);
    // And what it writes itself is what the test would write.
    let place = Place::new(3 * BLOCK + 100);
    place.stopped(&["-C"], 12 * MIB);
    let written = fs::read(place.session()).unwrap();
    let blocks = (place.recorded() / BLOCK as u64) as usize;
    let records: Vec<Vec<usize>> = (0..blocks).map(|b| vec![b]).collect();
    let records: Vec<&[usize]> = records.iter().map(Vec::as_slice).collect();
    assert_eq!(written, session_bytes(&place, 0, &records));
}

#[test]
fn a_session_cut_anywhere() {
    let place = small();
    // Every edge of header and records with its neighbours, and a sample between; the unit tests do every one.
    let edges = [0, HEADER, HEADER + 4, HEADER + RECORD, HEADER + RECORD + 36, HEADER + 2 * RECORD];
    let near = |at: usize| edges.iter().any(|e| e.abs_diff(at) <= 1);
    let step = if crate::common::all_cases() { 13 } else { 37 };
    for cut in (0..=HEADER + 2 * RECORD).filter(|at| near(*at) || at % step == 0) {
        let session = half_done(&place);
        let want = match cut {
            _ if cut >= HEADER + 2 * RECORD => 2 * BLOCK,
            _ if cut >= HEADER + RECORD => BLOCK,
            _ => 0,
        };
        assert_eq!(went_on(&place, &session[..cut]), want as u64, "cut at {cut}");
    }
}

#[test]
fn a_session_flipped_anywhere() {
    let place = small();
    let mut dice = Dice::new();
    let step = if crate::common::all_cases() { 5 } else { 11 };
    for at in (dice.below(step) as usize..HEADER + 2 * RECORD).step_by(step as usize) {
        let mut session = half_done(&place);
        session[at] ^= 1 << dice.below(8);
        let want = match at {
            _ if at >= HEADER + RECORD => BLOCK,
            _ => 0,
        };
        assert_eq!(went_on(&place, &session), want as u64, "flipped at {at}");
    }
}

#[test]
fn a_session_with_something_behind_it() {
    let place = small();
    let session = half_done(&place);
    let long = [&session[..], &[0x5a; 100_000]].concat();
    assert_eq!(went_on(&place, &long), 2 * BLOCK as u64);
}

#[test]
fn a_session_made_with_other_options_starts_over() {
    let place = small();
    half_done(&place);
    fs::write(place.session(), session_bytes(&place, 1, &[&[0], &[1]])).unwrap();
    let out = place.copy(&["-C"]);
    place.done(&out);
    says(&out, "started over: the session was made with other options");
}

#[test]
fn records_that_lie_are_found() {
    // A session that fits in every checksum, of a stage that never had those bytes: in the middle, at the end.
    for (at, flags) in [(10, "-C"), (2 * BLOCK - 1, "-C"), (10, "-s")] {
        let place = small();
        let session = half_done(&place);
        fs::write(place.session(), session).unwrap();
        flip(&place.part(), at as u64);
        place.done(&place.copy(&[flags]));
    }
}

#[test]
fn foreign_stages_are_never_touched() {
    let plant: [(&str, Plant); 5] = [
        ("link", |p| symlink("../precious", p.part()).unwrap()),
        ("dangling link", |p| symlink("../new", p.part()).unwrap()),
        ("hard link", |p| fs::hard_link(p.at("precious"), p.part()).unwrap()),
        ("fifo", |p| {
            assert!(Command::new("mkfifo").arg(p.part()).status().unwrap().success());
        }),
        ("directory", |p| fs::create_dir(p.part()).unwrap()),
    ];
    for (what, plant) in plant {
        for flags in [&["-C"][..], &["-s"], &["-C", "--fast"]] {
            let place = small();
            let precious = bytes(99, 2 * BLOCK);
            fs::write(place.at("precious"), &precious).unwrap();
            plant(&place);
            if place.part().exists() {
                // With a session that names just this inode.
                let options = u32::from(flags.len() > 1);
                fs::write(place.session(), session_bytes(&place, options, &[&[0], &[1]])).unwrap();
            }
            let out = place.copy(flags);
            place.done(&out);
            assert!(fs::read(place.at("precious")).unwrap() == precious, "{what} was followed");
            assert!(!place.at("new").exists(), "{what} was followed");
        }
    }
}

#[test]
fn foreign_sessions_are_never_touched() {
    let plant: [(&str, Plant); 5] = [
        ("link", |p| symlink("../precious", p.session()).unwrap()),
        ("dangling link", |p| symlink("../new", p.session()).unwrap()),
        ("hard link", |p| fs::hard_link(p.at("precious"), p.session()).unwrap()),
        ("fifo", |p| {
            assert!(Command::new("mkfifo").arg(p.session()).status().unwrap().success());
        }),
        ("directory", |p| fs::create_dir(p.session()).unwrap()),
    ];
    for (what, plant) in plant {
        let place = small();
        let session = half_done(&place);
        fs::write(place.at("precious"), &session).unwrap();
        plant(&place);
        let out = place.copy(&["-C"]);
        place.done(&out);
        assert!(fs::read(place.at("precious")).unwrap() == session, "{what} was written to");
        assert!(!place.at("new").exists(), "{what} was followed");
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        loud("only root can do this");
    }
    root
}

#[test]
fn foreign_owners_are_not_gone_on_with() {
    if !is_root() {
        return;
    }
    for whose in ["part", "session"] {
        let place = small();
        let session = half_done(&place);
        fs::write(place.session(), session).unwrap();
        let file = if whose == "part" { place.part() } else { place.session() };
        std::os::unix::fs::chown(&file, Some(1234), Some(1234)).unwrap();
        let out = place.copy(&["-C", "--json"]);
        place.done(&out);
        assert_eq!(events(&out, "resumed").pop().map_or(0, |e| e["bytes"].as_u64().unwrap()), 0, "{whose}");
        assert_eq!(fs::metadata(place.at("out/src")).unwrap().uid(), 0, "{whose}");
    }
}

// ---- two at once ----

#[test]
fn a_second_copy_is_told() {
    let place = small();
    let session = half_done(&place);
    fs::write(place.session(), &session).unwrap();
    let held = File::open(place.session()).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let out = place.copy(&["-C"]);
    assert_eq!(out.status.code(), Some(8), "{}", text(&out));
    says(&out, "another copy to this name is under way");
    assert_eq!(fs::read(place.session()).unwrap(), session);
    assert!(!place.at("out/src").exists());
    let out = place.run(&["sessions", "--clean", "out"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    says(&out, "running");
    assert!(place.session().exists() && place.part().exists());
    drop(held);
    place.done(&place.copy(&["-C"]));
}

#[test]
fn copies_at_once_never_mix() {
    let place = Place::new(24 * MIB);
    let other = bytes(77, 24 * MIB);
    fs::create_dir(place.at("other")).unwrap();
    fs::write(place.at("other/src"), &other).unwrap();
    for _ in 0..4 {
        let words = |from| [&COPY[..], &["-C", from, "out/"]].concat();
        let (a, b) = (place.command(&words("src")), place.command(&words("other/src")));
        let (a, b) = std::thread::scope(|scope| {
            let a = scope.spawn(|| finish(a));
            let b = scope.spawn(|| finish(b));
            (a.join().unwrap(), b.join().unwrap())
        });
        for out in [&a, &b] {
            assert!(matches!(out.status.code(), Some(0 | 8)), "{}", text(out));
        }
        assert!(a.status.success() || b.status.success(), "{}{}", text(&a), text(&b));
        let got = fs::read(place.at("out/src")).unwrap();
        assert!(got == place.data || got == other, "a mixture");
        assert_eq!(litter(&place.at("out")), [] as [PathBuf; 0]);
        fs::remove_file(place.at("out/src")).unwrap();
    }
}

// ---- no room ----

struct Mount(PathBuf);

impl Mount {
    /// A file system of its own. Not a tmpfs: that one counts what is reserved as written.
    fn ext4(place: &Place, mib: u64) -> Option<Mount> {
        if !is_root() {
            return None;
        }
        let (image, at) = (place.at("image"), place.at("disk"));
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        fs::create_dir(&at).unwrap();
        let ran = |c: &mut Command| c.output().is_ok_and(|o| o.status.success());
        let done = ran(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image))
            && ran(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at));
        if !done {
            loud("no file system can be made and mounted");
        }
        done.then_some(Mount(at))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

#[test]
fn no_room_and_then_room() {
    let place = Place::new(0);
    let Some(mount) = Mount::ext4(&place, 80) else { return };
    let source = bytes(5, 32 * MIB);
    fs::write(place.at("src"), &source).unwrap();
    for (n, flags) in [&["-C"][..], &["-s"], &["-C", "--fast"]].into_iter().enumerate() {
        for (m, leave) in [0, 1, 5, 9, 14, 17, 25].into_iter().enumerate() {
            // An ordinary run tries each room with one of the three.
            if !crate::common::in_slice(n + m, 3) {
                continue;
            }
            let inner = Place::within(&mount.0, 0);
            let out_dir = inner.at("out");
            let words = [&COPY[..], flags, &["src", out_dir.to_str().unwrap()]].concat();
            // Stopped half way, then another program takes the room.
            let mut stopped = Command::new("bash");
            stopped.args(["-c", "ulimit -c 0 -f 16384; exec \"$0\" \"$@\"", BIN]).args(&words);
            finish({
                stopped.current_dir(place.dir.path());
                stopped
            });
            // What the first run had reserved is given back, as when a cleaner trims it; else nothing could fail.
            let part = fs::read_dir(&out_dir).unwrap().map(|e| e.unwrap().path());
            let part = part.into_iter().find(|p| p.extension().is_some_and(|e| e == "part")).unwrap();
            let part = File::options().write(true).open(part).unwrap();
            let len = part.metadata().unwrap().len();
            part.set_len(len - 1).unwrap();
            part.set_len(len).unwrap();
            drop(part);
            let taken = free(&out_dir).unwrap().saturating_sub(leave * MIB as u64);
            let heavy = File::create(inner.at("ballast")).unwrap();
            rustix::fs::fallocate(&heavy, rustix::fs::FallocateFlags::empty(), 0, taken.max(1)).ok();
            let out = place.run(&words);
            if leave == 0 {
                assert_eq!(out.status.code(), Some(6), "{flags:?}: {}", text(&out));
            }
            let full = out.status.code() == Some(6);
            assert!(full || out.status.success(), "{flags:?} {leave}: {}", text(&out));
            if full {
                assert!(!out_dir.join("src").exists());
                says(&out, "make room");
            }
            // Cut and not only removed: a child of another test may have inherited the file and not called exec yet.
            heavy.set_len(0).unwrap();
            fs::remove_file(inner.at("ballast")).unwrap();
            // The room is given back by what the journal does once a commit is told of. The next commit begins after that.
            for name in ["one commit", "the next"] {
                let mark = File::create(inner.at(name)).unwrap();
                mark.sync_all().unwrap();
            }
            let free = free(&out_dir).unwrap();
            let out = place.run(&words);
            assert_eq!(
                out.status.code(),
                Some(0),
                "{flags:?} {leave}, {free} bytes were free: {}",
                text(&out)
            );
            if full {
                says(&out, "went on at");
            }
            assert!(fs::read(out_dir.join("src")).unwrap() == source, "{flags:?} {leave}");
            assert_eq!(litter(&out_dir), [] as [PathBuf; 0]);
        }
    }
}

/// What does not fit takes nothing from what does, and leaves nothing when nothing was begun: the second size is less than is
/// free and more than may be taken, which only taking it tells.
#[test]
fn what_does_not_fit_takes_no_room() {
    let place = Place::new(0);
    let Some(mount) = Mount::ext4(&place, 40) else { return };
    let out = mount.0.join("out");
    fs::create_dir(&out).unwrap();
    let mid = bytes(7, 10 * MIB);
    fs::write(place.at("mid"), &mid).unwrap();
    let unused = || rustix::fs::statvfs(&out).map(|fs| fs.f_bfree * fs.f_frsize).unwrap() as usize;
    for (size, flags) in [(Some(60 * MIB), "-C"), (None, "-C"), (None, "-s")] {
        fs::write(place.at("big"), bytes(8, size.unwrap_or_else(|| unused() - (64 << 10)))).unwrap();
        let words = [&COPY[..], &["-j1", flags, "big", "mid", out.to_str().unwrap()]].concat();
        let done = place.run(&words);
        assert_eq!(done.status.code(), Some(6), "{size:?} {flags}: {}", text(&done));
        assert!(fs::read(out.join("mid")).unwrap() == mid, "{size:?} {flags}");
        assert_eq!(litter(&out), [] as [PathBuf; 0], "{size:?} {flags}");
        fs::remove_file(out.join("mid")).unwrap();
        rustix::fs::syncfs(File::open(&out).unwrap()).unwrap();
    }
    // From another machine room is taken as content comes: what was written stays to be gone on with, and no more.
    let far = crate::common::remote::Far::pipe();
    fs::write(place.at("big"), bytes(8, unused() - (64 << 10))).unwrap();
    let flags = "-C -j1 --checkpoint-size=16M";
    crate::common::remote::Dir::Put.copy(&far, flags, &place.at("big"), &out).run().code(6);
    let part = fs::metadata(crate::common::leftover_of(&out, b"big", ".part")).unwrap();
    assert!(part.blocks() * 512 <= part.len() + (64 << 10), "{} of {}", part.blocks() * 512, part.len());
}

// ---- what the kernel is asked for ----

/// Runs under strace with a fault and returns what came of it.
fn traced(place: &Place, extra: &[&str], flags: &[&str]) -> (Output, String) {
    let out = Command::new("strace")
        .args(["-f", "-qq", "-y", "-o", "trace"])
        .args(extra)
        .arg(BIN)
        .args([&COPY[..], flags, &["src", "out/"]].concat())
        .current_dir(place.dir.path())
        .output()
        .unwrap();
    (out, fs::read_to_string(place.at("trace")).unwrap())
}

#[test]
fn syncs_come_in_the_documented_order() {
    if !have("strace") {
        return;
    }
    let place = small();
    let calls = "trace=fsync,fdatasync,syncfs,pwrite64,rename,renameat,renameat2,unlink,unlinkat,ftruncate";
    let (out, trace) = traced(&place, &["-e", calls], &["-C", "-j1"]);
    place.done(&out);
    // What happened, in order: W a block to the stage, s its fdatasync, r a record, t the session's; S fsync of the
    // stage, H of the session, D of the directory, R the rename, U the session's end.
    let mut seen = String::new();
    for line in trace.lines() {
        let call = line.split_once(char::is_whitespace).map_or("", |l| l.1.trim_start());
        // On a loaded machine a call may be split in two lines; its beginning counts.
        if call.starts_with("<...") || line.contains("exited") {
            continue;
        }
        let (name, args) = call.split_once('(').unwrap_or((call, ""));
        let (part, session) = (args.contains(".part"), args.contains(".session"));
        let step = match (name, part, session) {
            ("pwrite64", true, _) => 'W',
            ("pwrite64", _, true) => 'r',
            ("fdatasync", true, _) => 's',
            ("fdatasync", _, true) => 't',
            ("fsync", true, _) => 'S',
            ("fsync", _, true) => 'H',
            ("fsync", ..) => 'D',
            ("rename" | "renameat" | "renameat2", true, _) => 'R',
            ("unlink" | "unlinkat", _, true) => 'U',
            _ => continue,
        };
        if !(step == 'W' && seen.ends_with('W')) {
            seen.push(step);
        }
    }
    // R4: stage, session and their names are on the medium before the first record. Each record comes after the sync
    // of what it claims. R2: the stage is synced whole, then named, then the name synced (R3), then the session goes.
    let find = |what: &str| seen.find(what).unwrap_or_else(|| panic!("no {what} in {seen}"));
    assert!(find("S") < find("H") && find("H") < find("D"), "{seen}");
    let first_record = seen[find("D")..].find('r').map(|at| at + find("D")).unwrap();
    assert!(first_record > find("s"), "{seen}");
    let claims = seen.replace('W', "");
    assert_eq!(claims.matches("srt").count(), 4, "{seen}");
    assert!(claims.ends_with("SRDU"), "{seen}");
}

#[test]
fn a_failed_sync_throws_the_stage_away() {
    if !have("strace") {
        return;
    }
    for (call, whens) in [("fdatasync", [1, 3, 5]), ("fsync", [1, 2, 3])] {
        for when in whens {
            let place = small();
            let inject = format!("inject={call}:error=EIO:when={when}");
            let (out, trace) =
                traced(&place, &["-e", &format!("trace={call}"), "-e", &inject], &["-C", "-j1"]);
            let code = out.status.code();
            assert!(code != Some(0), "{call} {when}: {}", text(&out));
            // R5: nothing that the failure may have lost is believed later.
            assert!(!place.session().exists() && !place.part().exists(), "{call} {when}: {}", text(&out));
            let failed = trace.lines().find(|l| l.contains("INJECTED")).unwrap();
            let fd = failed.split_once('(').unwrap().1.split_once('<').unwrap().0;
            let after = trace.lines().skip_while(|l| !l.contains("INJECTED")).skip(1);
            let again = after.filter(|l| l.contains(&format!("({fd}<")) && l.contains(".part")).count();
            assert_eq!(again, 0, "tried again: {trace}");
            // And without the fault all is well, from the start.
            place.done(&place.copy(&["-C"]));
        }
    }
}

#[test]
fn a_name_that_nobody_synced_is_synced_by_the_next_run() {
    if !have("strace") {
        return;
    }
    let place = small();
    // Killed between the rename and the directory's fsync; the calls before it are stage, session, directory, stage.
    let kill = ["-e", "trace=fsync", "-e", "inject=fsync:signal=KILL:when=5"];
    let (_, trace) = traced(&place, &kill, &["-C", "-j1"]);
    assert!(place.at("out/src").exists() && place.session().exists() && !place.part().exists(), "{trace}");
    let (out, trace) = traced(&place, &["-e", "trace=fsync,unlinkat"], &["-C", "-j1"]);
    place.done(&out);
    let of = |what: &str| trace.lines().position(|l| l.contains(what)).unwrap_or_else(|| panic!("{trace}"));
    assert!(of("/out>)") < of(".session"), "{trace}");
}

// ---- other ways ----

#[test]
fn verifying_a_resumed_file() {
    for verify in ["-V", "-V=direct"] {
        let place = Place::new(30 * MIB + 1);
        place.stopped(&["-C"], 20 * MIB);
        place.done(&place.copy(&["-C", verify]));
    }
}

#[test]
fn holes_stay_holes() {
    let mut place = Place::new(0);
    let len = 48 * MIB;
    let file = File::create(place.at("src")).unwrap();
    file.set_len(len as u64).unwrap();
    file.write_all_at(&bytes(3, 100_000), 20 * MIB as u64).unwrap();
    drop(file);
    place.data = fs::read(place.at("src")).unwrap();
    for flags in [&["-C"][..], &["-C", "-V"], &["-C", "--fast"], &["-s"], &["-V"]] {
        place.done(&place.copy(flags));
        let blocks = fs::metadata(place.at("out/src")).unwrap().blocks();
        assert!(blocks * 512 < 4 * MIB as u64, "{flags:?}: {blocks}");
        fs::remove_file(place.at("out/src")).unwrap();
    }
    // Stopped in the middle: file length and record agree, also where the file ends in a hole.
    place.stopped(&["-C"], 18 * MIB);
    place.done(&place.copy(&["-C"]));
    fs::remove_file(place.at("out/src")).unwrap();
    place.stopped(&["-C", "--fast"], 21 * MIB);
    place.done(&place.copy(&["-C", "--fast"]));
    // Zeros that the source has written become holes where that is asked for.
    fs::write(place.at("src"), &place.data).unwrap();
    for flags in [&["-C", "--sparse=always"][..], &["-C", "--fast", "--sparse=always"]] {
        place.done(&place.copy(flags));
        let blocks = fs::metadata(place.at("out/src")).unwrap().blocks();
        assert!(blocks * 512 < 4 * MIB as u64, "{flags:?}: {blocks}");
        fs::remove_file(place.at("out/src")).unwrap();
    }
}

#[test]
fn append_rules() {
    let place = Place::new(10 * MIB + 9);
    let out_file = place.at("out/src");
    // Absent, shorter, equal.
    place.done(&place.copy(&["-a"]));
    for len in [0, 1, 5 * MIB, 10 * MIB + 8, 10 * MIB + 9] {
        File::options().write(true).open(&out_file).unwrap().set_len(len as u64).unwrap();
        let before = fs::metadata(&out_file).unwrap();
        let out = place.copy(&["-a"]);
        place.done(&out);
        let after = fs::metadata(&out_file).unwrap();
        assert_eq!(before.ino(), after.ino(), "it appends to what is there");
        if len == place.data.len() {
            assert_eq!((before.mtime(), before.mtime_nsec()), (after.mtime(), after.mtime_nsec()));
        }
    }
    // Longer: refused and left alone.
    File::options().write(true).open(&out_file).unwrap().set_len(10 * MIB as u64 + 10).unwrap();
    let out = place.copy(&["-a"]);
    assert_eq!(out.status.code(), Some(8), "{}", text(&out));
    says(&out, "it is longer than the source");
    assert_eq!(fs::metadata(&out_file).unwrap().len(), 10 * MIB as u64 + 10);
    // What is there is proved to be the beginning: one other byte, wherever it is, and nothing is added.
    for (len, odd) in
        [(100, 0), (100, 99), (5 * MIB, 4 * MIB - 1), (5 * MIB, 5 * MIB - 1), (10 * MIB + 9, 7 * MIB)]
    {
        let mut wrong = place.data[..len].to_vec();
        wrong[odd] ^= 1;
        fs::write(&out_file, &wrong).unwrap();
        for flags in [&["-a"][..], &["-a", "-V"], &["-a", "--json"], &["-a", "-n"]] {
            let out = place.copy(flags);
            assert_eq!(out.status.code(), Some(8), "{len} {odd} {flags:?}: {}", text(&out));
            assert!(text(&out).contains("it is not the beginning of the source"), "{}", text(&out));
            assert!(fs::read(&out_file).unwrap() == wrong, "{len} {odd} {flags:?}: it was written to");
        }
    }
    // By size it is not looked at, as the help says.
    fs::write(&out_file, vec![b'x'; 100]).unwrap();
    let out = place.copy(&["--append=size"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    let got = fs::read(&out_file).unwrap();
    assert!(got[..100] == [b'x'; 100] && got[100..] == place.data[100..]);
}

#[test]
fn append_with_verify() {
    let place = Place::new(10 * MIB + 9);
    fs::write(place.at("out/src"), &place.data[..3 * MIB]).unwrap();
    place.done(&place.copy(&["-a", "-V"]));
    // Nothing to add, nothing to verify.
    place.done(&place.copy(&["-a", "-V"]));
    // With -V the beginning is looked at after all.
    fs::write(place.at("out/src"), vec![b'x'; 100]).unwrap();
    let out = place.copy(&["--append=size", "-V"]);
    assert_eq!(out.status.code(), Some(4), "{}", text(&out));
    says(&out, "what was there may not be how the source begins; -a proves that");
}

#[test]
fn in_place_with_verify() {
    let place = Place::new(5 * MIB);
    for old in [&b""[..], b"short", &bytes(9, 6 * MIB)] {
        fs::write(place.at("out/src"), old).unwrap();
        place.done(&place.copy(&["--inplace", "-V"]));
    }
}

#[test]
fn sessions_lists_and_cleans() {
    let place = Place::new(30 * MIB);
    let out = place.run(&["sessions"]);
    assert!(out.status.success() && out.stdout.is_empty() && out.stderr.is_empty(), "{}", text(&out));
    place.stopped(&["-C"], 20 * MIB);
    fs::create_dir(place.at("deep")).unwrap();
    fs::rename(place.at("out"), place.at("deep/out")).unwrap();
    let out = place.run(&["sessions"]);
    assert!(out.status.success(), "{}", text(&out));
    says(&out, "'./deep/out/src'");
    says(&out, "of".to_uppercase().as_str());
    says(&out, "30.0 MiB");
    says(&out, "stopped");
    let out = place.run(&["sessions", "--clean", "--json", "deep"]);
    let line = events(&out, "unfinished").pop().unwrap();
    assert_eq!(line["path"], "deep/out/src");
    assert_eq!((line["removed"].as_bool(), line["size"].as_u64()), (Some(true), Some(30 * MIB as u64)));
    assert_eq!(litter(&place.at("deep")), [] as [PathBuf; 0]);
    let out = place.run(&["sessions", "nowhere"]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out));
    // What is none of ours stays, whatever it is called.
    for name in ["deep/.bcmr-mine", "deep/x.session", "deep/.bcmrc"] {
        fs::write(place.at(name), "mine").unwrap();
    }
    symlink("x.session", crate::common::leftover(&place.at("deep"), &"0".repeat(32), ".session")).unwrap();
    // What belongs to another directory as well, a directory included.
    for suffix in [".part", ".session", ".stage", ".manifest", ".tree"] {
        let name = crate::common::leftover(&place.at("out2"), &"1".repeat(32), suffix);
        fs::create_dir_all(place.at("out2")).unwrap();
        fs::write(place.at("deep").join(name.file_name().unwrap()), "mine").unwrap();
    }
    place.run(&["sessions", "--clean"]);
    assert_eq!(fs::read_dir(place.at("deep")).unwrap().count(), 10);
}

#[test]
fn a_damaged_session_is_cleaned_too() {
    let place = Place::new(20 * MIB);
    place.stopped(&["-C"], 12 * MIB);
    flip(&place.session(), 3);
    let orphan = crate::common::leftover(&place.at("out"), &"0123456789abcdef".repeat(2), ".part");
    fs::write(orphan, "orphan").unwrap();
    let out = place.run(&["sessions", "--clean"]);
    assert!(out.status.success(), "{}", text(&out));
    assert_eq!(litter(&place.at("out")), [] as [PathBuf; 0]);
}

#[test]
fn totals_are_found_beside_a_long_run() {
    if !have("strace") {
        return;
    }
    let place = Place::new(20 * MIB);
    fs::create_dir(place.at("tree")).unwrap();
    fs::rename(place.at("src"), place.at("tree/big")).unwrap();
    for i in 0..20 {
        fs::write(place.at(&format!("tree/{i}")), bytes(i, 1000)).unwrap();
    }
    let total = 20 * MIB as u64 + 20 * 1000;
    // Some of it is there already, and counts as done.
    fs::create_dir(place.at("copy")).unwrap();
    let some = place.run(&["copy", "-p", "tree/3", "tree/4", "copy"]);
    assert!(some.status.success(), "{}", text(&some));
    let out = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e"])
        .arg("inject=fdatasync:delay_enter=300000")
        .arg(BIN)
        .args([&COPY[..], &["-C", "-r", "-T", "--json", "--progress=always", "tree", "copy"]].concat())
        .current_dir(place.dir.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", text(&out));
    let seen = events(&out, "progress");
    let of = |e: &serde_json::Value, field: &str| e[field].as_u64().unwrap();
    assert!(seen.iter().any(|e| e["scanned"] == true), "{}", text(&out));
    let mut before = [0; 4];
    for event in &seen {
        let now = ["items_done", "bytes_done", "items_found", "bytes_found"].map(|f| of(event, f));
        assert!(now.iter().zip(before).all(|(n, b)| *n >= b), "it went back: {}", text(&out));
        assert!(now[1] <= now[3] && now[0] <= now[2], "{event}");
        if event["scanned"] == true {
            assert_eq!((now[3], now[2]), (total, 22), "{event}");
        }
        before = now;
    }
}

/// The file whose fdatasync(2) a process is in.
fn syncs(pid: u32) -> Option<PathBuf> {
    let number = if cfg!(target_arch = "x86_64") { 75 } else { 83 };
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let fd = call.strip_prefix(&format!("{number} 0x"))?.split(' ').next()?;
    let fd = u32::from_str_radix(fd, 16).ok()?;
    fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()
}

#[test]
fn an_interrupt_says_that_the_same_command_goes_on() {
    if !have("strace") {
        return;
    }
    let place = Place::new(20 * MIB);
    // Held at its fifth fdatasync, behind two records, until strace is killed: as a grandchild, so that the copy is our own
    // child, and longer than any machine takes to get there.
    let mut child = Command::new("strace")
        .args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e"])
        .args(["inject=fdatasync:delay_enter=600000000:when=5", BIN])
        .args([&COPY[..], &["-C", "-j1", "src", "out/"]].concat())
        .current_dir(place.dir.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    // Of the stage, once both records are there: that is the fifth.
    let is_held = || {
        fs::metadata(place.session()).is_ok_and(|m| m.len() >= (HEADER + 2 * RECORD) as u64)
            && syncs(pid).is_some_and(|file| file.extension().is_some_and(|e| e == "part"))
    };
    assert!(within(30, is_held), "it never comes to what it is held at");
    signal(pid, rustix::process::Signal::INT);
    // It says so first: from then on the one that is held knows that it is to stop.
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    err.read_line(&mut said).unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let tracer = status.lines().find_map(|l| l.strip_prefix("TracerPid:")).unwrap().trim().parse().unwrap();
    assert!(tracer > 0, "it is not held any more; it said {said}");
    kill(tracer);
    err.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    for words in ["stopping; what is recorded stays", "hint: to go on where it stopped, run: "] {
        assert!(said.contains(words), "'{words}' is missing: {said}");
    }
    assert!(place.session().exists() && !place.at("out/src").exists());
    let out = place.copy(&["-C"]);
    place.done(&out);
    says(&out, "went on at");
}
