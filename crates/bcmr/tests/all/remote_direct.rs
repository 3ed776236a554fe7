//! The direct data plane with an attacker in the middle: true client, true server, true ssh between them, and on the way
//! past it a relay that changes, leaves out, repeats, cuts or keeps what is sent (rules D1 to D4), or looks for the key
//! (D6).
//!
//! What holds whatever is done stands once, in `Case::run`: success means the right bytes; else each file is the new
//! one, the old one or none, and words say why; neither side hangs, and no process stays.

use crate::common::middle::{Deed, Middle, Part, Plan, through};
use crate::common::remote::*;
use crate::common::*;
use bcmr_wire::direct::Direction::{Down, Up};
use rustix::process::Signal;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MIB: usize = 1 << 20;
/// What a file of the destination held before.
const OLD: &[u8] = b"as it was before";
const SMALL: u64 = 12;
/// Cases at a time: most of them wait.
const WORKERS: usize = 4;

/// Where a deed leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// All goes past ssh.
    Whole,
    /// The data goes over ssh, and that is said.
    OverSsh,
    /// It ends with an error.
    Fails,
    /// Any of these: it depends on what was under way just then.
    Any,
}
use Then::{Any, Fails, OverSsh, Whole};

#[derive(Clone, Copy)]
struct Case {
    dir: Dir,
    streams: usize,
    plan: Plan,
    flags: &'static str,
    then: Then,
}

/// A tree to copy: a file of three blocks, and small ones.
fn planted() -> Tmp {
    let tmp = Tmp::new();
    tmp.file("src/large", noise(1, 9 * MIB + 3));
    for n in 0..SMALL {
        tmp.file(format!("src/small/{n}"), noise(n, 3000));
    }
    tmp
}

fn files(root: &Path) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let names = (0..SMALL).map(|n| format!("small/{n}")).chain(["large".into()]);
    names.map(move |name| (PathBuf::from(&name), root.join(&name)))
}

impl Case {
    /// Copies with the deed done to it, to where nothing is or where old files are, and judges what came of it.
    fn run(self, n: usize, far: &Far, tmp: &Tmp) -> Ran {
        match self.then {
            Whole => past_ssh(&tmp.p(format!("dst{n}")), || self.once(n, far, tmp)),
            _ => self.once(n, far, tmp),
        }
    }

    fn once(self, n: usize, far: &Far, tmp: &Tmp) -> Ran {
        let name = format!("{n}: {:?} {} streams {:?} {}", self.dir, self.streams, self.plan, self.flags);
        let dst = tmp.p(format!("dst{n}"));
        let old = n % 2 == 1;
        if old {
            for (_, file) in files(&dst) {
                tmp.file(file, OLD);
            }
        }
        let middle = Middle::new(self.plan);
        let flags = format!(
            "-r -T -v --compress=none --no-dedup --direct=direct --parallel={} {}",
            self.streams, self.flags
        );
        let ran = middle.lead(self.dir.copy(far, &flags, &tmp.p("src"), &dst)).run();
        let said = ran.err.as_str();
        let cells = (self.then, ran.code == 0, said.contains("going on over ssh"), went_past_ssh(said));
        // A client that has received all goes, and the server's end may come when nobody is there any more.
        let unheard = (self.dir, self.streams, self.plan.direction) == (Dir::Get, 1, Down)
            && TO_THE_END.contains(&self.plan.deed);
        let need_not = self.plan.deed == Deed::Nothing || self.then == Any || unheard;
        assert!(need_not || middle.done() > 0, "{name}: not done");
        match self.then {
            Whole => assert!(ran.code == 0, "{name}: {}", ran.err),
            OverSsh => {
                assert!(ran.code == 0 && said.contains("going on over ssh"), "{name}: {cells:?} {said}")
            }
            Fails => assert!(ran.code != 0, "{name}: {said}"),
            Any => {}
        }
        if ran.code == 0 {
            assert_same(&tmp.p("src"), &dst, CONTENT);
        } else {
            let why = ["sealed record was changed", "sealed connection broke off", "closed", "reset", "pipe"];
            assert!(said.contains("cannot ") && why.iter().any(|w| said.contains(w)), "{name}: {said}");
            for (file, there) in files(&dst) {
                match std::fs::read(&there) {
                    Ok(got) => {
                        let new = std::fs::read(tmp.p("src").join(&file)).unwrap();
                        assert!(got == new || (old && got == OLD), "{name}: {}", there.display());
                    }
                    Err(e) => assert!(!old, "{name}: {}: {e}", there.display()),
                }
            }
        }
        if let (Whole, Deed::Nothing, false) = (self.then, self.plan.deed, said.contains("going on over ssh"))
        {
            let (up, down) = middle.passed();
            let carried = if self.dir == Dir::Put { up } else { down };
            assert!(carried > 9 * MIB as u64, "{name}: nobody was in the middle: {up} {down}");
        }
        ran
    }
}

/// All of them; then nothing of the program is left on either side.
fn all(test: &str, cases: &[Case]) {
    let Some(far) = Far::ssh(test, Path::new(BCMR), &[]) else { return };
    let (far, tmp) = (through(far), planted());
    let next = Mutex::new(cases.iter().enumerate());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let Some((n, case)) = next.lock().unwrap().next() else { return };
                    case.run(n, &far, &tmp);
                }
            });
        }
    });
    assert!(within(20, || !far.sshd().busy()), "{:?} stay", far.sshd().sessions());
    for n in 0..cases.len() {
        let dst = tmp.p(format!("dst{n}"));
        assert!(!dst.exists() || litter(&dst).is_empty(), "{n}: {:?}", litter(&dst));
    }
    assert_no_litter(tmp.path());
}

/// An ordinary run tries every second one: the first and so on, or, where `turn` is odd, the others.
fn halved(cases: Vec<Case>, turn: usize) -> Vec<Case> {
    let tried = cases.into_iter().enumerate().filter(|(n, _)| in_slice(n + turn, 2));
    tried.map(|(_, case)| case).collect()
}

fn once(direction: bcmr_wire::direct::Direction, stream: u8, deed: Deed) -> Plan {
    Plan { direction, stream, deed, always: false }
}

/// The deeds to a direction that carries the data: it breaks off, wherever that is.
const TO_DATA: [Deed; 14] = [
    Deed::Flip(1, Part::Length),
    Deed::Flip(1, Part::Text),
    Deed::Flip(1, Part::Tag),
    Deed::Flip(2, Part::Text),
    Deed::Flip(40, Part::Text),
    Deed::Drop(1),
    Deed::Drop(30),
    Deed::Twice(0),
    Deed::Twice(2),
    Deed::Swap(3),
    Deed::Replay(20),
    Deed::Cut(1),
    Deed::Cut(50),
    Deed::CutWithin(4),
];
/// The same to the direction that carries the answers. What is left out here is missed when the next word comes, and
/// that may be a Ping.
const TO_ANSWERS: [Deed; 8] = [
    Deed::Flip(1, Part::Length),
    Deed::Flip(1, Part::Text),
    Deed::Flip(1, Part::Tag),
    Deed::Drop(1),
    Deed::Twice(0),
    Deed::Replay(2),
    Deed::Cut(1),
    Deed::CutWithin(1),
];
/// After the last word was said nothing can be lost any more.
const TO_THE_END: [Deed; 4] = [Deed::CutEnd, Deed::DropEnd, Deed::FlipEnd, Deed::BehindEnd];

/// Both ways, over one stream.
fn one_stream(dir: Dir) -> Vec<Case> {
    let case = |plan, then| Case { dir, streams: 1, plan, flags: "", then };
    let (data, answers) = if dir == Dir::Put { (Up, Down) } else { (Down, Up) };
    let mut cases = vec![case(Plan::NOTHING, Whole); 2];
    cases.extend(TO_DATA.map(|deed| case(once(data, 0, deed), Fails)));
    cases.extend(TO_ANSWERS.map(|deed| case(once(answers, 0, deed), Fails)));
    cases.extend(TO_THE_END.map(|deed| case(once(data, 0, deed), Whole)));
    cases.extend(TO_THE_END.map(|deed| case(once(answers, 0, deed), Whole)));
    halved(cases, dir as usize)
}

#[test]
fn whatever_is_done_to_a_put() {
    all("whatever_is_done_to_a_put", &one_stream(Dir::Put));
}

#[test]
fn whatever_is_done_to_a_get() {
    all("whatever_is_done_to_a_get", &one_stream(Dir::Get));
}

/// Of several streams one is enough; which of them carries what is a matter of luck.
#[test]
fn whatever_is_done_to_one_stream_of_several() {
    let mut all_of_them = Vec::new();
    for dir in BOTH {
        let case = |plan, then| Case { dir, streams: 3, plan, flags: "", then };
        let data = if dir == Dir::Put { Up } else { Down };
        all_of_them.extend(halved(vec![case(Plan::NOTHING, Whole); 2], dir as usize));
        let deeds = [
            Deed::Flip(1, Part::Text),
            Deed::Flip(3, Part::Tag),
            Deed::Drop(2),
            Deed::Twice(5),
            Deed::Cut(2),
            Deed::CutWithin(9),
        ];
        for (n, deed) in deeds.into_iter().enumerate() {
            // An ordinary run tries each one way, with one of the streams.
            let tried = [1_u8, 2].into_iter().filter(|s| in_slice(n + dir as usize + 2 * usize::from(*s), 4));
            all_of_them.extend(tried.map(|stream| case(once(data, stream, deed), Any)));
        }
        let mut cases = Vec::new();
        cases.extend(TO_THE_END.map(|deed| case(once(data, 2, deed), Whole)));
        cases.push(case(once(data, 0, Deed::Twice(1)), Fails));
        all_of_them.extend(halved(cases, dir as usize));
    }
    all("whatever_is_done_to_one_stream_of_several", &all_of_them);
}

/// Before both have proved themselves, all can still go over ssh: with the bytes of a side that was kept out, of one that
/// was told nothing, or of one that takes the other for a third.
#[test]
fn who_is_kept_from_proving_himself_goes_on_over_ssh() {
    let mut all_of_them = Vec::new();
    for (dir, streams) in [(Dir::Put, 1), (Dir::Get, 1), (Dir::Put, 3), (Dir::Get, 3)] {
        let mut cases = Vec::new();
        let case = |plan, then| Case { dir, streams, plan, flags: "", then };
        let always = |direction, deed| Plan { always: true, ..once(direction, 0, deed) };
        // The server drops it, and it knocks again.
        cases.push(case(once(Up, 0, Deed::FlipPreamble(3)), Whole));
        cases.push(case(once(Up, 0, Deed::FlipPreamble(7)), Whole));
        cases.push(case(once(Up, 0, Deed::Flip(0, Part::Text)), Whole));
        cases.push(case(once(Up, 0, Deed::Cut(0)), Whole));
        // The server has seen a proof, and its own was lost.
        cases.push(case(once(Down, 0, Deed::Flip(0, Part::Length)), OverSsh));
        cases.push(case(once(Down, 0, Deed::Flip(0, Part::Tag)), OverSsh));
        cases.push(case(once(Down, 0, Deed::Cut(0)), OverSsh));
        if streams == 1 {
            cases.push(case(once(Down, 0, Deed::Drop(0)), OverSsh));
            cases.push(case(always(Up, Deed::Flip(0, Part::Tag)), OverSsh));
            cases.push(case(always(Up, Deed::Silent), OverSsh));
        }
        // What is done is the same for each number of streams: an ordinary run tries each one way, and the seven
        // that are there for both numbers with one of them.
        let tried = cases.into_iter().enumerate().filter(|(n, _)| {
            let turn = n + dir as usize;
            if *n < 7 { in_slice(turn + streams / 3 * 2, 4) } else { in_slice(turn, 2) }
        });
        all_of_them.extend(tried.map(|(_, case)| case));
    }
    all("who_is_kept_from_proving_himself_goes_on_over_ssh", &all_of_them);
}

/// It connects again where that was asked for, and goes past ssh again.
#[test]
fn again_after_a_deed() {
    let mut cases = Vec::new();
    for dir in BOTH {
        let (data, answers) = if dir == Dir::Put { (Up, Down) } else { (Down, Up) };
        let plans = [
            (once(data, 0, Deed::Flip(30, Part::Text)), 1),
            (once(answers, 0, Deed::Cut(1)), 1),
            (once(data, 0, Deed::CutWithin(1)), 3),
        ];
        for (n, (plan, streams)) in plans.into_iter().enumerate() {
            for (m, flags) in ["--retries=1", "--retries=1 -C"].into_iter().enumerate() {
                // An ordinary run tries each one way, with the one or with the other.
                if in_slice(n + 2 * m + dir as usize, 4) {
                    cases.push(Case { dir, streams, plan, flags, then: Whole });
                }
            }
        }
    }
    all("again_after_a_deed", &cases);
}

/// Nothing comes any more and the connection does not end: it is given up when the protocol says so, after 30 s.
#[test]
fn a_line_that_falls_silent() {
    let Some(far) = Far::ssh("a_line_that_falls_silent", Path::new(BCMR), &[]) else { return };
    let (far, tmp) = (through(far), planted());
    let runs: Vec<_> = [(Dir::Put, Up), (Dir::Put, Down), (Dir::Get, Up), (Dir::Get, Down)]
        .into_iter()
        .map(|(dir, direction)| {
            let middle = Middle::new(once(direction, 0, Deed::Hold(2)));
            let dst = tmp.p(format!("{dir:?} {direction:?}"));
            let flags = "-r -T --no-dedup --compress=none --direct=direct";
            let run = middle.lead(dir.copy(&far, flags, &tmp.p("src"), &dst)).start();
            (run, dst, middle)
        })
        .collect();
    for (run, dst, middle) in runs {
        let ran = run.wait_most(Duration::from_secs(120));
        assert!(ran.code != 0 && ran.err.contains("cannot "), "{}: {}", dst.display(), ran.err);
        assert_eq!(middle.done(), 1);
        for (file, there) in files(&dst) {
            let whole = || std::fs::read(&there).unwrap() == std::fs::read(tmp.p("src").join(file)).unwrap();
            assert!(!there.exists() || whole(), "{}", there.display());
        }
    }
    assert!(within(60, || !far.sshd().busy()), "{:?} stay", far.sshd().sessions());
    assert_no_litter(tmp.path());
}

/// Strangers that connect first, and hold what they get.
const CROWD: usize = 1000;

/// Raises the limit of open files for a crowd and what else this process has open. `false`: one may not.
fn room_for_a_crowd() -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let (wanted, limit) = (2 * CROWD as u64, getrlimit(Resource::Nofile));
    if limit.current.is_some_and(|now| now < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        return setrlimit(Resource::Nofile, raised).is_ok();
    }
    true
}

/// The crowd connects to `port`, says this or that, and stays.
fn come_first(port: u16, crowd: &mut Vec<TcpStream>) {
    for n in 0..CROWD {
        if n % 50 == 0 {
            // Faster, and the kernel's own queue is full: a stranger would wait a second to knock again.
            std::thread::sleep(Duration::from_millis(5));
        }
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        let said: &[u8] = match n % 5 {
            0 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            1 => b"bcmrDP1",
            2 => b"bcmrDP1\0\x18\0\0\0 and this is not the proof",
            _ => b"",
        };
        // A stranger that was thrown out holds its end all the same.
        drop(socket.write_all(said));
        crowd.push(socket);
    }
}

/// D4: the real client gets in past a thousand others, which have connected before it and stay.
#[test]
fn strangers_who_are_there_first() {
    needs!(room_for_a_crowd(), "the hard limit of open files is too low for a thousand strangers");
    let Some(far) = Far::ssh("strangers_who_are_there_first", Path::new(BCMR), &[]) else { return };
    let (far, tmp) = (through(far), planted());
    for dir in BOTH {
        // An ordinary run goes one way with each.
        for streams in [1_usize, 3].into_iter().filter(|streams| in_slice(dir as usize + streams / 3, 2)) {
            let dst = tmp.p(format!("{dir:?}{streams}"));
            let flags = format!("-r -T -v --no-dedup --compress=none --direct=direct --parallel={streams}");
            let ran = past_ssh(&dst, || {
                let held = Arc::new(Mutex::new(Vec::new()));
                let crowd = Arc::clone(&held);
                let early = move |port| come_first(port, &mut crowd.lock().unwrap());
                let middle = Middle::with(Plan::NOTHING, Box::new(early));
                let ran = middle.lead(dir.copy(&far, &flags, &tmp.p("src"), &dst)).run().ok();
                // Once the server has waited as long as it waits, nobody can knock any more.
                let late = ran.err.contains("going on over ssh");
                assert!(
                    late || held.lock().unwrap().len() == CROWD,
                    "some could not even knock: {}",
                    ran.err
                );
                ran
            });
            assert!(went_past_ssh(&ran.err), "{}", ran.err);
            assert_same(&tmp.p("src"), &dst, CONTENT);
        }
    }
    assert!(within(20, || !far.sshd().busy()), "{:?} stay", far.sshd().sessions());
}

/// Where an answer takes long, the client asks once more, for as many connections as fill a long line.
#[test]
fn the_farther_the_more_connections() {
    let Some(far) = Far::ssh("the_farther_the_more_connections", Path::new(BCMR), &[]) else { return };
    let (far, tmp) = (through(far), planted());
    for dir in BOTH {
        for (flags, asked, streams) in [("", 2, 8), ("--parallel=1", 1, 1), ("--parallel=3", 1, 3)] {
            let late = |_| std::thread::sleep(Duration::from_millis(120));
            let middle = Middle::with(Plan::NOTHING, Box::new(late));
            let dst = tmp.p(format!("{dir:?}{flags}"));
            let flags = format!("-r -T -v --no-dedup --compress=none --direct=direct {flags}");
            let ran = middle.lead(dir.copy(&far, &flags, &tmp.p("src"), &dst)).run().ok();
            assert!(went_past_ssh(&ran.err), "{dir:?} {flags}: {}", ran.err);
            assert_eq!((middle.secrets().len(), middle.met()), (asked, streams), "{dir:?} {flags}");
            assert_same(&tmp.p("src"), &dst, CONTENT);
        }
    }
}

// ---- D6: the secret ----

/// How 32 bytes may be written down.
fn forms(secret: &[u8; 32]) -> Vec<Vec<u8>> {
    let hex: String = secret.iter().map(|b| format!("{b:02x}")).collect();
    let list = format!("{secret:?}");
    let numbers = list.trim_matches(['[', ']']).as_bytes().to_vec();
    let mut forms = vec![secret.to_vec(), hex.to_uppercase().into_bytes(), hex.into_bytes(), numbers];
    // Base 64 wherever it begins in a longer text: only the digits that are made of the secret alone.
    for before in 0..3 {
        for last in [b"+/", b"-_"] {
            let letters: Vec<u8> = (b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').chain(*last).collect();
            let bit = |n: usize| (secret[n / 8 - before] >> (7 - n % 8)) & 1;
            let digits = (8 * before).div_ceil(6)..8 * (before + 32) / 6;
            let digit = |at: usize| (6 * at..6 * at + 6).fold(0, |sum, n| sum * 2 + usize::from(bit(n)));
            forms.push(digits.map(|at| letters[digit(at)]).collect());
        }
    }
    forms
}

fn holds(text: &[u8], forms: &[Vec<u8>]) -> bool {
    forms.iter().any(|form| text.windows(form.len()).any(|w| w == form.as_slice()))
}

/// Processes in whose words or environment the secret is, as far as one may look.
fn who_shows(forms: &[Vec<u8>]) -> Vec<u32> {
    let shows = |pid: &u32| {
        let of = |what: &str| std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        holds(&of("cmdline"), forms) || holds(&of("environ"), forms)
    };
    processes().filter(shows).collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A shell as the user that client and server run as: not root, for root may read everything.
fn their_user(script: &str) -> Line {
    let line = if is_root() {
        let (uid, gid) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
        Line::new(Path::new("setpriv")).args([&uid, &gid, "--clear-groups"]).args(["sh"])
    } else {
        Line::new(Path::new("sh"))
    };
    line.args(["-c", script])
}

/// Client and server as one user who is not root, for the sake of what that user may see.
struct Unprivileged {
    far: Far,
    tmp: Tmp,
    ssh: Tmp,
}

impl Unprivileged {
    fn new(test: &str) -> Option<Unprivileged> {
        let (tmp, ssh) = (Tmp::for_others(), Tmp::for_others());
        let bcmr = tmp.p("bcmr");
        let program = if is_root() {
            let who = format!("--reuid={NOBODY} --regid={NOBODY} --clear-groups");
            let script = format!("#!/bin/sh\nexec setpriv {who} {} \"$@\"\n", bcmr.display());
            let program = ssh.file("program", script);
            chmod(&program, 0o755);
            program
        } else {
            bcmr
        };
        let far = Far::ssh_in(Tmp::for_others(), test, &program, &[])?;
        let config = far.sshd().config();
        let mut text = std::fs::read_to_string(&config).unwrap();
        if is_root() {
            // A key of another user may be open to all.
            chmod(&config.with_file_name("user"), 0o644);
            text.insert_str(0, "User root\n");
        }
        let stand_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/common/middle/ssh");
        std::fs::copy(stand_in, ssh.p("ssh")).unwrap();
        let far = far.configured(&ssh.file("config", text)).over(&ssh.p("ssh"));
        tmp.file("src/large", noise(1, 9 * MIB + 3));
        Some(Unprivileged { far, tmp, ssh })
    }

    /// A copy that stands still in the middle, sealed streams and all.
    fn held(&self, dir: Dir, dst: &str) -> (Running, Middle) {
        let data = if dir == Dir::Put { Up } else { Down };
        let middle = Middle::new(once(data, 0, Deed::Hold(6)));
        let bcmr = self.tmp.p("bcmr");
        let script = format!("ulimit -c $(ulimit -H -c); exec {} \"$0\" \"$@\"", bcmr.display());
        let line = self.far.lead(their_user(&script).args(["copy"])).cwd(self.tmp.path());
        let flags = ["-r", "-T", "-vv", "--json", "--no-dedup", "--compress=none", "--direct=direct"];
        let run = dir.ends(line.args(flags), &self.far, &self.tmp.p("src"), &self.tmp.p(dst));
        let mut run = middle.lead(run).start();
        let there = within(15, || middle.done() > 0 || run.is_over());
        if !there || run.is_over() {
            middle.release();
            panic!("nothing went past ssh: {:?}", run.wait());
        }
        (run, middle)
    }

    /// The processes that have the secret.
    fn servers(&self) -> Vec<u32> {
        let serve = [self.tmp.p("bcmr").as_os_str().as_encoded_bytes(), b"\0serve\0"].concat();
        processes()
            .filter(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c == serve))
            .collect()
    }
}

#[test]
fn the_secret_is_nowhere_to_be_read() {
    let test = "the_secret_is_nowhere_to_be_read";
    needs!(!is_root() || has_tool("setpriv"), "acting as another user needs setpriv");
    let Some(they) = Unprivileged::new(test) else { return };
    for dir in BOTH {
        let (run, middle) = they.held(dir, &format!("{dir:?}"));
        let secrets = middle.secrets();
        // On a loaded machine the first attempt may have taken too long.
        let secret = secrets.last().expect("a secret");
        let forms = forms(secret);
        assert_eq!(who_shows(&forms), [0; 0]);
        // The twin: a program that shows it is found, in whichever form; an ordinary run shows each one way.
        let shown = forms.iter().skip(1).enumerate().filter(|(n, _)| in_slice(n + dir as usize, 2));
        for (_, form) in shown {
            use std::os::unix::ffi::OsStrExt;
            let mut shows = Line::new(Path::new("sleep")).args(["60"]);
            shows.0.env("KEY", std::ffi::OsStr::from_bytes(form));
            let shows = shows.start();
            assert!(within(10, || who_shows(&forms) == [shows.pid()]), "{}", String::from_utf8_lossy(form));
            shows.signal(Signal::KILL);
            shows.wait();
        }
        let servers = they.servers();
        assert_eq!(servers.len(), 1);
        for pid in [run.pid(), servers[0]] {
            for what in ["environ", "mem", "maps", "auxv", "fd"] {
                let path = format!("/proc/{pid}/{what}");
                assert_eq!(std::fs::metadata(&path).unwrap().uid(), 0, "{path} is its user's");
                let looks = if what == "fd" { format!("ls {path}") } else { format!(": < {path}") };
                let looked = their_user(&looks).run();
                assert_ne!(looked.code, 0, "{path} can be read");
            }
        }
        // The twin: of a process that has no secret its user may see all that.
        let open = their_user("exec sleep 60").start();
        let may = format!(": < /proc/{0}/environ && ls /proc/{0}/fd", open.pid());
        assert!(within(10, || their_user(&may).run().code == 0));
        open.signal(Signal::KILL);
        open.wait();
        middle.release();
        let ran = run.wait().ok();
        assert!(went_past_ssh(&ran.err) || went_past_ssh(&ran.out), "{}{}", ran.out, ran.err);
        assert_same(&they.tmp.p("src"), &they.tmp.p(format!("{dir:?}")), CONTENT);
        let log = they.far.sshd().log();
        for text in [&ran.out, &ran.err, &log] {
            assert!(!holds(text.as_bytes(), &forms), "{text}");
        }
    }
}

/// A core dump would hold the keys: there is none, where another program leaves one.
#[test]
fn no_core_dump_holds_the_keys() {
    let test = "no_core_dump_holds_the_keys";
    needs!(!is_root() || has_tool("setpriv"), "acting as another user needs setpriv");
    let Some(they) = Unprivileged::new(test) else { return };
    let other = their_user("ulimit -c $(ulimit -H -c); exec sleep 60").cwd(they.ssh.path()).start();
    let comm = format!("/proc/{}/comm", other.pid());
    assert!(within(10, || std::fs::read(&comm).is_ok_and(|name| name == b"sleep\n")));
    other.signal(Signal::ABORT);
    let dumped = other.wait().core;
    needs!(dumped, "no program leaves a core dump here");
    for dir in BOTH {
        let (run, middle) = they.held(dir, &format!("{dir:?}"));
        run.signal(Signal::ABORT);
        middle.release();
        let ran = run.wait();
        assert!(ran.code > 1000 && !ran.core, "{}: {}", ran.code, ran.err);
        assert!(within(20, || they.servers().is_empty()), "the server stays");
    }
}
