//! A month of backups as a person keeps them: a mirror whose changes can be undone, and dated snapshots, with the accidents that a
//! month has. In the end every snapshot is what the source was.

use crate::common::remote::*;
use crate::common::*;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const DAYS: u64 = 30;

/// The person's machine.
struct Drill {
    tmp: Tmp,
    /// A file system of its own where there may be one, with little room.
    disk: PathBuf,
    random: Random,
    /// Where the backups are another machine's, or what is backed up is.
    far: Option<(Far, Dir)>,
}

impl Drill {
    fn bcmr(&self, words: &[&str]) -> Ran {
        let mut line = bcmr(words).cwd(self.tmp.path());
        line.0.env("XDG_STATE_HOME", self.tmp.p("state"));
        line.run()
    }

    fn at(day: u64) -> String {
        format!("2026-06-{day:02}T030000Z")
    }

    /// `bcmr sync` of what is backed up, with `strace` before the program that is to be killed.
    fn sync(&self, words: &[&str], to: &str, strace: &[String]) -> Ran {
        let (from, to) = (self.tmp.p("s"), self.disk.join(to));
        let mut line = match (&self.far, strace) {
            (None, []) => bcmr(["sync"]).args(words).args([from, to]),
            (None, strace) => Line::new(Path::new(&strace[0]))
                .args(&strace[1..])
                .args([BCMR, "sync"])
                .args(words)
                .args([from, to]),
            (Some((far, dir)), strace) => {
                let receiver = if *dir == Dir::Put { strace } else { &[] };
                let first = if *dir == Dir::Get { strace } else { &[] };
                let program: Vec<OsString> = first.iter().map(OsString::from).chain([BCMR.into()]).collect();
                let line =
                    Line::new(Path::new(&program[0])).args(&program[1..]).args(["sync", "--bwlimit=200M"]);
                let line = far.lead(line.args(words)).args(["--retries=0"]);
                let mut line = dir.ends(line, far, &from, &to);
                line.0.env("FAR_RUN", receiver.join(" "));
                line
            }
        }
        .cwd(self.tmp.path());
        line.0.env("XDG_STATE_HOME", self.tmp.p("state"));
        line.run()
    }

    fn mirror(&self, strace: &[String]) -> Ran {
        let kept = self.p("kept");
        self.sync(&["--delete", "--max-delete=60%", "--backup-dir", &kept], "mirror", strace)
    }

    fn snapshot(&self, day: u64, strace: &[String]) -> Ran {
        self.sync(&["--snapshot", "--at", &Drill::at(day)], "snaps", strace)
    }

    /// What a person types every day: both at once.
    fn backup(&self, day: u64) -> [Ran; 2] {
        let mut mirror = self.mirror(&[]);
        // Between machines what was behind something in the way comes with the same command once more.
        if self.far.is_some() && mirror.err.contains("still to come") {
            mirror = self.mirror(&[]);
        }
        [mirror, self.snapshot(day, &[])]
    }

    fn p(&self, name: &str) -> String {
        self.disk.join(name).display().to_string()
    }

    /// What a day's work does to files.
    fn work(&mut self, day: u64) {
        let random = &mut self.random;
        let dir =
            |random: &mut Random| format!("s/{}", random.of(&["a", "b", "a/deep", "mail", "a/deep/er"]));
        for n in 0..4 {
            let name = format!("{}/{day}-{n}", dir(random));
            let len = random.below(3000) as usize;
            self.tmp.file(&name, noise(day * 10 + n, len));
        }
        let all: Vec<PathBuf> = files(&self.tmp.p("s"));
        for n in 0..6 {
            let path = random.of(&all);
            if !path.exists() {
                continue;
            }
            match n {
                0 => fs::write(path, noise(day, 500 + day as usize)).unwrap(),
                1 => fs::remove_file(path).unwrap(),
                2 => fs::rename(path, path.with_extension(format!("moved-{day}"))).unwrap(),
                3 => chmod(path, if day.is_multiple_of(2) { 0o600 } else { 0o644 }),
                4 => fs::hard_link(path, path.with_extension(format!("link-{day}"))).unwrap(),
                _ => symlink(format!("day-{day}"), path.with_extension(format!("sym-{day}"))).unwrap(),
            }
        }
        if day.is_multiple_of(6) {
            // A directory becomes a file, or the other way round.
            let odd = self.tmp.p("s/odd");
            if odd.is_dir() {
                fs::remove_dir_all(&odd).unwrap();
                fs::write(&odd, "a file").unwrap();
            } else {
                fs::remove_file(&odd).ok();
                self.tmp.file("s/odd/in/it", "a directory");
            }
        }
    }

    /// Whether what there is of a day is looked at: an ordinary run takes some days, others with each of the three.
    fn looks_at(&self, day: u64) -> bool {
        let (step, turn) = match self.far {
            _ if all_cases() => (1, 0),
            None => (3, 0),
            Some((_, Dir::Put)) => (5, 1),
            Some((_, Dir::Get)) => (5, 2),
        };
        (day + turn).is_multiple_of(step)
    }

    /// Remembers what the source was on a day, by itself.
    fn remember(&self, day: u64) {
        fs::create_dir_all(self.tmp.p("was")).unwrap();
        let was = format!("was/{day}");
        self.bcmr(&["copy", "-r", "--archive", "-T", "s", &was]).ok();
    }
}

/// Regular files below a directory, in order.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = tree(root)
        .into_iter()
        .filter(|(_, entry)| entry.kind.is_file())
        .map(|(path, _)| root.join(String::from_utf8(path).unwrap()))
        .collect();
    found.sort();
    found
}

/// The last run of those that kept something: of several in one second each one further has the next number.
fn last_run(kept: &Path) -> OsString {
    let in_order = |name: &OsString| {
        let name = name.to_str().unwrap();
        let (at, further) = name.split_once("Z.").unwrap_or((name.trim_end_matches('Z'), "0"));
        (at.to_owned(), further.parse::<u32>().unwrap())
    };
    names(kept).into_iter().max_by_key(in_order).unwrap()
}

#[track_caller]
fn alike(was: &Path, now: &Path, what: &str) {
    let mut trees = [tree(was), tree(now)];
    for tree in &mut trees {
        tree.values_mut().for_each(|entry| entry.atime = (0, 0));
    }
    let told = differences(&trees[0], &trees[1], EVERYTHING);
    assert!(told.is_empty(), "{what}:\n{}", told.join("\n"));
    if let Some(text) = rsync_would(was, now) {
        assert!(text.is_empty(), "{what}: rsync would: {text}");
    }
}

/// Kills both commands in their middle, at a call that gives a name.
fn killed(drill: &Drill, day: u64, at: u64) {
    let calls = "renameat2,renameat,rename,linkat";
    let inject = format!("inject={calls}:signal=SIGKILL:when={at}");
    let trace = format!("trace={calls}");
    let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject].map(str::to_owned);
    for ran in [drill.mirror(&strace), drill.snapshot(day, &strace)] {
        // A client whose server is gone has lost its connection.
        let is_lost = ran.code != 0 && matches!(drill.far, Some((_, Dir::Put)));
        assert!(is_lost || [137, 1009].contains(&ran.code), "not killed: {} {}", ran.code, ran.err);
    }
}

#[test]
fn a_month_of_backups() {
    a_month(None);
}

#[test]
fn a_month_of_backups_to_another_machine() {
    a_month(Some((Far::pipe(), Dir::Put)));
}

#[test]
fn a_month_of_backups_of_another_machine() {
    a_month(Some((Far::pipe(), Dir::Get)));
}

fn a_month(far: Option<(Far, Dir)>) {
    let tmp = Tmp::new();
    let disk = tmp.dir("disk");
    let mut drill = Drill { tmp, disk, random: Random(26), far };
    // Taken away before the directory that it is in.
    let mount = if is_root() { Mount::tmpfs("size=12m", &drill.disk).ok() } else { None };
    if mount.is_none() {
        skipped("a_month_of_backups", "no disk becomes full: there are no mounts");
    }
    drill.tmp.dir("s");
    for day in 1..=DAYS {
        drill.work(day);
        match day {
            7 if has_tool("strace") => killed(&drill, day, 3),
            12 if mount.is_some() => {
                // The disk is full: a large file is to come, and does not. Nothing that was there is lost by that.
                drill.tmp.file("s/film", noise(12, 16 << 20));
                for ran in drill.backup(day) {
                    ran.code(6);
                }
                alike(
                    &drill.tmp.p("was/11"),
                    &drill.disk.join("snaps").join(Drill::at(11)),
                    "the day before",
                );
                fs::remove_file(drill.tmp.p("s/film")).unwrap();
            }
            17 => {
                // The source's disk is not mounted.
                fs::rename(drill.tmp.p("s"), drill.tmp.p("s.away")).unwrap();
                drill.tmp.dir("s");
                for ran in drill.backup(day) {
                    ran.code(8).says("the source is empty");
                }
                let mut trees = [tree(&drill.tmp.p("was/16")), tree(&drill.disk.join("mirror"))];
                for tree in &mut trees {
                    // The directory itself has the time of the one that it was compared with.
                    tree.remove(&b""[..]);
                }
                let told = differences(&trees[0], &trees[1], Exact { times: false, ..EVERYTHING });
                assert!(told.is_empty(), "nothing was mounted: {told:?}");
                fs::remove_dir(drill.tmp.p("s")).unwrap();
                fs::rename(drill.tmp.p("s.away"), drill.tmp.p("s")).unwrap();
            }
            21 => {
                // Half of everything is deleted by mistake, and that is synced.
                let away = files(&drill.tmp.p("s")).into_iter().step_by(2);
                away.for_each(|path| fs::remove_file(path).unwrap());
                let [mirror, _] = drill.backup(day);
                mirror.ok();
                let kept = drill.disk.join("kept");
                let last = kept.join(last_run(&kept)).join("receipt").display().to_string();
                drill.bcmr(&["undo", &last]).ok();
                alike(&drill.tmp.p("was/20"), &drill.disk.join("mirror"), "what was undone");
                // The person takes back what was lost, and goes on.
                let mirror = drill.p("mirror");
                drill.bcmr(&["sync", "--delete", "--max-delete=100%", &mirror, "s"]).ok();
                alike(&drill.tmp.p("was/20"), &drill.tmp.p("s"), "what was taken back");
                fs::remove_dir_all(drill.disk.join("snaps").join(Drill::at(day))).unwrap();
            }
            25 => {
                // A directory is lost, and is found in the snapshot of the day before.
                fs::remove_dir_all(drill.tmp.p("s/a")).unwrap();
                let old = drill.disk.join("snaps").join(Drill::at(24)).join("a").display().to_string();
                drill.bcmr(&["copy", "-r", "--archive", "-T", &old, "s/a"]).ok();
            }
            _ => {}
        }
        // Accidents look back at these four.
        if drill.looks_at(day) || [11, 14, 16, 20].contains(&day) {
            drill.remember(day);
        }
        for ran in drill.backup(day) {
            ran.ok();
        }
        if drill.looks_at(day) {
            alike(&drill.tmp.p("s"), &drill.disk.join("mirror"), &format!("mirror of day {day}"));
        }
    }
    for day in (1..=DAYS).filter(|day| drill.looks_at(*day)) {
        let (was, snapshot) =
            (drill.tmp.p(format!("was/{day}")), drill.disk.join("snaps").join(Drill::at(day)));
        alike(&was, &snapshot, &format!("snapshot of day {day}"));
    }
    // Each day's run of the mirror has its receipt.
    assert!(names(&drill.disk.join("kept")).len() >= 29);
    // A rule for the rest: what stays is what it was.
    let at = "2026-07-01T030000Z";
    drill.sync(&["--snapshot", "--keep", "7d,4w,12m", "--at", at], "snaps", &[]).ok();
    let left: Vec<String> = names(&drill.disk.join("snaps"))
        .into_iter()
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    let days = ["06-14", "06-21", "06-25", "06-26", "06-27", "06-28", "06-29", "06-30", "07-01"];
    assert_eq!(left, days.map(|day| format!("2026-{day}T030000Z")));
    alike(&drill.tmp.p("was/14"), &drill.disk.join("snaps").join(&left[0]), "a Sunday");
}
