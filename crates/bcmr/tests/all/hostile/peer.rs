//! The other side, played by a test: frames by hand, against the real program.
//!
//! Must not know any attack. Where an encoder would refuse a value, [`Wire::say_with`] changes the bytes afterwards.

use crate::common::{BCMR, Tmp, litter, names, tree};
use bcmr_wire::frame;
use bcmr_wire::handshake::{self, Features, caps, wide};
use bcmr_wire::message::{Codec, Compress, Entry, Kind, Message, Policy, Target, Time, kind};
use bcmr_wire::policy::flags;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// A program that has waited so long in all, together with what it started and with the side that is played, hangs.
pub const HUNG: Duration = Duration::from_secs(10);
/// A program that has worked so long runs in circles: nothing here takes an honest machine a quarter of it.
const WORKED_MAX: Duration = Duration::from_secs(120);
/// However busy the machine is.
const WALL_MAX: Duration = Duration::from_secs(900);
/// How often a program is looked at whether it waits.
const LOOK: Duration = Duration::from_millis(50);
/// How often the memory of a program is read; the kernel no longer tells it when the program has ended.
const MEMORY_LOOK: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 12_000_000 };
/// Memory beyond that of an honest run, in KiB (V7).
pub const GROWTH_KIB: u64 = 64 << 10;
/// Connections that one run may make.
const CONNECTIONS_MAX: usize = 3;
/// Address space that a bomb may blow up before the kernel says no, in KiB: the machine must survive a failed test.
const SPACE_KIB: u64 = 6 << 20;

/// Everything that the protocol knows.
pub const ALL: Features = Features {
    caps: caps::LZ4 | caps::ZSTD | caps::FAST | caps::SYNC,
    wide: wide::TREES
        | wide::JOIN
        | wide::ATTRIBUTES
        | wide::RESUME
        | wide::VERIFY
        | wide::HOLES
        | wide::SURVEY
        | wide::HASHED
        | wide::KEEPING
        | wide::LEFT_OUT
        | wide::PLANS
        | wide::TAKES
        | wide::HELD
        | wide::FIRST
        | wide::HELD_ACLS,
};

// ---- messages ----

/// An entry without anything special.
pub fn entry(kind: Kind, name: &[u8]) -> Entry<'_> {
    let time = Time { sec: 1_600_000_000, nsec: 5 };
    Entry {
        kind,
        name,
        mode: if kind == Kind::Dir { 0o755 } else { 0o644 },
        uid: 1000,
        gid: 1000,
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        dev: 3,
        ino: 4,
        nlink: 1,
        rdev: 0,
        link: b"",
        attrs: Vec::new(),
    }
}

pub fn dir(name: &[u8]) -> Entry<'_> {
    entry(Kind::Dir, name)
}

pub fn file(name: &[u8], size: u64) -> Entry<'_> {
    Entry { size, blocks: size.div_ceil(512), ..entry(Kind::File, name) }
}

pub fn link<'a>(name: &'a [u8], to: &'a [u8]) -> Entry<'a> {
    Entry { link: to, mode: 0o777, ..entry(Kind::Link, name) }
}

pub fn operand<'a>(id: u64, entry: Entry<'a>) -> Message<'a> {
    Message::Operand { path: entry.name, whole: false, origin: 7, dir: id, entry }
}

pub fn subdir(id: u64, parent: u64, name: &[u8]) -> Message<'_> {
    Message::Dir { id, parent, entry: dir(name) }
}

/// Contents of a batch, each with its true hash.
pub fn contents(of: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for bytes in of {
        bcmr_wire::contents::push_content(&mut out, bytes, Some(blake3::hash(bytes).as_bytes()));
    }
    out
}

/// A batch with its contents.
pub fn files<'a>(batch: u64, dir: u64, entries: Vec<Entry<'a>>, packed: &'a [u8]) -> Message<'a> {
    Message::Files { batch, dir, inline: true, codec: Codec::Raw, entries, contents: packed }
}

/// A batch whose contents are to be asked for.
pub fn on_offer<'a>(batch: u64, dir: u64, entries: Vec<Entry<'a>>) -> Message<'a> {
    Message::Files { batch, dir, inline: false, codec: Codec::Raw, entries, contents: b"" }
}

pub fn policy(flags: u64) -> Policy<'static> {
    Policy {
        flags,
        choices: [0; 8],
        checkpoint: 64 << 20,
        rules: Vec::new(),
        regexes: Vec::new(),
        compress: Compress::None,
        numbers: Vec::new(),
    }
}

// ---- the wire ----

/// One message that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub kind: u8,
    pub payload: Vec<u8>,
}

impl Said {
    pub fn message(&self) -> Message<'_> {
        Message::decode(self.kind, &self.payload)
            .unwrap_or_else(|e| panic!("the honest side said {self:?}: {e}"))
    }
}

/// A stream to the program under test.
pub struct Wire {
    read: File,
    write: Option<File>,
    held: Vec<u8>,
    /// The program has ended, or is about to be killed: nothing is waited for any more.
    over: Arc<AtomicBool>,
    /// An error that ends a transfer is answered as it should be, so that the other side does not wait.
    pub polite: bool,
    /// Where the program's connections come in, and which of them this one is.
    ways: Option<PathBuf>,
    nth: usize,
}

impl Wire {
    /// Sends bytes as they are. `false`: the other side takes no more.
    pub fn bytes(&mut self, bytes: &[u8]) -> bool {
        self.write.as_mut().is_some_and(|w| w.write_all(bytes).is_ok())
    }

    /// A frame with any payload.
    pub fn raw(&mut self, kind: u8, payload: &[u8]) -> bool {
        let mut out = Vec::new();
        frame::encode(kind, payload, &mut out).unwrap();
        self.bytes(&out)
    }

    pub fn say(&mut self, message: &Message<'_>) -> bool {
        let mut out = Vec::new();
        message.encode(&mut out).unwrap();
        self.bytes(&out)
    }

    /// A message with `old` replaced by `new` in its payload.
    pub fn say_with(&mut self, message: &Message<'_>, old: &[u8], new: &[u8]) -> bool {
        let (kind, payload) = changed(message, old, new);
        self.raw(kind, &payload)
    }

    /// The next frame; Pings are answered. `None` at the end.
    pub fn hear(&mut self) -> Option<Said> {
        loop {
            if let Ok(Some((found, used))) = frame::decode(&self.held) {
                let said = Said { kind: found.kind, payload: found.payload.to_vec() };
                self.held.drain(..used);
                if said.kind == kind::PING {
                    self.raw(kind::PONG, &said.payload);
                    continue;
                }
                if said.kind == kind::ERROR && self.polite {
                    self.say(&Message::Done);
                }
                return Some(said);
            }
            let mut some = [0; 1 << 16];
            match self.wait_for_bytes().then(|| self.read.read(&mut some)) {
                Some(Ok(n)) if n > 0 => self.held.extend_from_slice(&some[..n]),
                _ => return None,
            }
        }
    }

    /// Waits for bytes or the end. `false`: the program is gone.
    fn wait_for_bytes(&self) -> bool {
        loop {
            let mut fds = [PollFd::new(&self.read, PollFlags::IN)];
            let tick = rustix::time::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            match poll(&mut fds, Some(&tick)) {
                Ok(n) if n > 0 => return true,
                _ if self.over.load(Ordering::Relaxed) => return false,
                _ => {}
            }
        }
    }

    /// Says `count` frames, numbered from 1, and hears an answer to each before the next.
    pub fn through(&mut self, count: u64, frame: impl Fn(u64) -> Vec<u8>) {
        for n in 1..=count {
            assert!(self.bytes(&frame(n)), "frame {n}: nobody takes it");
            let said = self.hear();
            assert!(said.as_ref().is_some_and(|s| s.kind != kind::ERROR), "frame {n}: {said:?}");
        }
    }

    /// Everything up to a message of this kind, which is returned; `None` when it never comes.
    pub fn until(&mut self, kind: u8) -> Option<Said> {
        loop {
            let said = self.hear()?;
            if said.kind == kind {
                return Some(said);
            }
        }
    }

    /// Nothing more is sent.
    pub fn close(&mut self) {
        self.write = None;
    }

    /// Says no more and listens until the other side goes.
    pub fn hold(&mut self) {
        while self.hear().is_some() {}
    }

    /// The program's next connection, beside this one. `None`: it makes none.
    pub fn another(&mut self) -> Option<Wire> {
        let (up, down) = ways(self.ways.as_ref()?, self.nth + 1);
        let mut wire = Wire::on(&up, self.over.clone());
        if !wire.wait_for_bytes() {
            return None;
        }
        rustix::fs::fcntl_setfl(&wire.read, OFlags::empty()).unwrap();
        wire.write = File::options().write(true).open(&down).ok();
        wire.ways = self.ways.clone();
        wire.nth = self.nth + 1;
        self.nth += 1;
        Some(wire)
    }

    /// Ends this connection and waits for the next. `false`: there is none.
    pub fn next_connection(&mut self) -> bool {
        self.close();
        self.hold();
        let Some(next) = self.another() else { return false };
        *self = next;
        true
    }

    /// What comes through a named pipe.
    fn on(up: &Path, over: Arc<AtomicBool>) -> Wire {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let read = File::from(rustix::fs::open(up, flags, Mode::empty()).unwrap());
        Wire { read, write: None, held: Vec::new(), over, polite: true, ways: None, nth: 0 }
    }

    // ---- as a server ----

    /// Greets with everything the client offered.
    pub fn greet(&mut self) -> bool {
        self.greet_with(ALL)
    }

    pub fn greet_with(&mut self, ours: Features) -> bool {
        let Some(hello) = self.hear() else { return false };
        let Message::Hello(hello) = hello.message() else { panic!("no Hello came") };
        let welcome = handshake::welcome(ours, [9; 32], b"peer", &hello).unwrap();
        self.say(&Message::Welcome(welcome))
    }

    /// Greets and answers what is asked before a transfer; returns what starts it.
    pub fn transfer(&mut self) -> Option<Said> {
        self.greet();
        self.asked()
    }

    /// Answers what is asked before a transfer; returns what starts it.
    pub fn asked(&mut self) -> Option<Said> {
        loop {
            let said = self.hear()?;
            match said.kind {
                kind::STAT => self.say(&Message::Info(file(b"x", 1))),
                kind::GET | kind::PUT => return Some(said),
                other => panic!("request {other:#04x}"),
            };
        }
    }

    /// Ends a transfer as an honest sender: everything was sent.
    pub fn all_sent(&mut self) {
        self.say(&Message::AllSent);
        self.until(kind::SUMMARY);
        self.say(&Message::Done);
    }

    /// Ends a transfer as an honest receiver, of which these are the counts: whether what it hears now is the end.
    pub fn ends(&mut self, heard: &Message<'_>, counts: [u64; 7]) -> bool {
        match heard {
            Message::AllSent => {
                self.say(&Message::Summary { counts, codes: Vec::new(), cancelled: false });
                false
            }
            Message::Error(_) => {
                self.say(&Message::Done);
                true
            }
            other => matches!(other, Message::Done),
        }
    }

    // ---- as a client ----

    /// Greets with these features, and begins to put one directory `tree`, whose number is 1, into the root.
    pub fn put_tree(&mut self, ours: Features) {
        self.say(&Message::Hello(handshake::hello(ours, [8; 32], b"peer", None)));
        self.until(kind::WELCOME);
        let (policy, target) = (policy(flags::RECURSIVE), Target::Into);
        self.say(&Message::Put { policy, target, path: b".", operands: 1, items: false });
        self.say(&operand(1, dir(b"tree")));
    }

    pub fn hello(&mut self) -> bool {
        self.say(&Message::Hello(handshake::hello(ALL, [8; 32], b"peer", None)));
        self.hear().is_some_and(|said| said.kind == kind::WELCOME)
    }

    /// Receives like an honest client that has nothing and wants everything. Returns the bytes of all contents, and
    /// whether the server came to its end without an error.
    pub fn take_all(&mut self) -> (Vec<u8>, bool) {
        let (mut all, mut well) = (Vec::new(), true);
        while let Some(said) = self.hear() {
            match said.message() {
                Message::Operand { dir, .. } | Message::Dir { id: dir, .. } => {
                    self.say(&Message::DirIs { dir, state: bcmr_wire::message::DirState::New });
                }
                Message::Files { batch, inline, entries, contents, .. } => {
                    all.extend_from_slice(contents);
                    for one in &entries {
                        all.extend_from_slice(one.name);
                        all.push(b'\n');
                        all.extend_from_slice(one.link);
                    }
                    let files = |e: &(usize, &Entry<'_>)| e.1.kind == Kind::File;
                    let wanted: Vec<u64> =
                        entries.iter().enumerate().filter(files).map(|(i, _)| i as u64).collect();
                    if !inline && !wanted.is_empty() {
                        self.say(&Message::Wants { batch, entries: wanted });
                    } else {
                        self.say(&Message::Wants { batch, entries: Vec::new() });
                    }
                }
                Message::Contents { batch, bytes, .. } => {
                    all.extend_from_slice(bytes);
                    self.say(&Message::Wants { batch, entries: Vec::new() });
                }
                Message::Large { file, .. } => {
                    self.say(&Message::Resume { file, wanted: true, from: 0, flags: 0 });
                }
                Message::Data(piece) => all.extend_from_slice(piece.bytes),
                Message::FileEnd { file, .. } => {
                    self.say(&Message::Close { file });
                }
                Message::Trouble(_) => well = false,
                Message::Error(_) => {
                    self.say(&Message::Done);
                    return (all, false);
                }
                Message::AllSent => {
                    self.say(&Message::Summary { counts: [0; 7], codes: Vec::new(), cancelled: false });
                    self.until(kind::DONE);
                    return (all, well);
                }
                _ => {}
            }
        }
        (all, false)
    }

    /// Sends one small file as a client that puts. Returns whether the server says that all is well.
    pub fn put_file(&mut self, policy: Policy<'_>, path: &[u8], name: &[u8], bytes: &[u8]) -> bool {
        use bcmr_wire::message::Target;
        self.say(&Message::Put { policy, target: Target::Guess, path, operands: 1, items: false });
        self.say(&operand(1, file(name, bytes.len() as u64)));
        loop {
            let Some(said) = self.hear() else { return false };
            match said.message() {
                Message::DirIs { state: bcmr_wire::message::DirState::Refused, .. } => break,
                Message::DirIs { .. } => {
                    self.say(&on_offer(1, 1, vec![file(name, bytes.len() as u64)]));
                }
                Message::Wants { entries, .. } if entries.is_empty() => break,
                Message::Wants { .. } => {
                    let bytes = contents(&[bytes]);
                    self.say(&Message::Contents { batch: 1, codec: Codec::Raw, bytes: &bytes });
                }
                Message::Error(_) => {
                    self.say(&Message::Done);
                    return false;
                }
                _ => {}
            }
        }
        self.say(&Message::AllSent);
        loop {
            let Some(said) = self.hear() else { return false };
            match said.message() {
                Message::Summary { counts, .. } => {
                    self.say(&Message::Done);
                    return counts[5] == 0;
                }
                Message::Error(_) => {
                    self.say(&Message::Done);
                    return false;
                }
                _ => {}
            }
        }
    }
}

/// A message's kind and payload, with `old` replaced by `new` wherever it stands.
pub fn changed(message: &Message<'_>, old: &[u8], new: &[u8]) -> (u8, Vec<u8>) {
    let mut out = Vec::new();
    message.encode(&mut out).unwrap();
    let rest = &out[5..];
    let mut payload = Vec::new();
    let (mut at, mut found) = (0, false);
    while at < rest.len() {
        if rest[at..].starts_with(old) {
            payload.extend_from_slice(new);
            at += old.len();
            found = true;
        } else {
            payload.push(rest[at]);
            at += 1;
        }
    }
    assert!(found, "{old:?} is not in the message");
    (out[4], payload)
}

// ---- the program under test ----

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    pub name: String,
    /// 1000 plus the signal that killed it.
    pub code: i32,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    /// How long it has waited in all its threads, and what it started and the played side did so too: work that a busy
    /// machine makes long, on either side, is not in it.
    pub waited: Duration,
    /// Its largest resident memory.
    pub kib: u64,
    hung: bool,
}

impl Outcome {
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.err).into_owned()
    }

    /// What must hold whatever the other side does.
    #[track_caller]
    pub fn fair(self) -> Outcome {
        let said = self.said();
        assert!(!self.hung, "{}: hangs; said {said}", self.name);
        assert!(self.code < 1000, "{}: killed by signal {}: {said}", self.name, self.code - 1000);
        assert!(!said.contains("panicked") && self.code != 101, "{}: {said}", self.name);
        assert!(!said.contains("overflow"), "{}: {said}", self.name);
        let raw = |b: &u8| (*b < 32 && *b != b'\n') || *b == 127;
        assert!(!self.err.iter().any(raw), "{}: control bytes in {said:?}", self.name);
        let steers =
            |c: char| matches!(c, '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        assert!(!said.contains(steers), "{}: {said:?}", self.name);
        let most = baseline_kib() + GROWTH_KIB;
        assert!(self.kib <= most, "{}: {} KiB of memory, {most} are allowed", self.name, self.kib);
        self
    }

    #[track_caller]
    pub fn ok(self) -> Outcome {
        assert_eq!(self.code, 0, "{}: {}", self.name, self.said());
        self
    }

    /// As [`Outcome::failed`], where what is said is on standard output.
    #[track_caller]
    pub fn failed_or_json(self, json: bool) -> Outcome {
        assert_ne!(self.code, 0, "{}: exit 0", self.name);
        if json { self } else { self.failed() }
    }

    /// It was no success, and says so.
    #[track_caller]
    pub fn failed(self) -> Outcome {
        assert_ne!(self.code, 0, "{}: exit 0; {}", self.name, self.said());
        assert!(!self.err.is_empty(), "{}: says nothing", self.name);
        self
    }
}

/// What an honest run takes, measured once.
fn baseline_kib() -> u64 {
    static KIB: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *KIB.get_or_init(|| {
        let place = Place::new();
        let outcome = place.run("baseline", &["copy", "-r", "host:x", "DST"], |wire| {
            wire.transfer();
            wire.say(&operand(1, dir(b"x")));
            wire.say(&files(1, 1, vec![file(b"f", 3)], &contents(&[b"abc"])));
            wire.say(&Message::DirEnd { dir: 1, partial: false });
            wire.all_sent();
        });
        assert_eq!(outcome.code, 0, "{}", outcome.said());
        outcome.kib
    })
}

/// A place with a destination, and around it what must never change.
pub struct Place {
    pub tmp: Tmp,
}

impl Place {
    pub fn new() -> Place {
        let tmp = Tmp::new();
        tmp.file("secret", "nobody's business");
        tmp.file("outside/keep", "as it was");
        // The home of a server that has run before: its store is not what the attack is about.
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(tmp.p("outside/.cache/bcmr/cas"))
            .unwrap();
        tmp.dir("dst");
        Place { tmp }
    }

    pub fn dst(&self) -> PathBuf {
        self.tmp.p("dst")
    }

    /// Everything that is not the destination, and what it is.
    pub fn around(&self) -> Vec<(OsString, Vec<u8>, u64, u32)> {
        let mut found = Vec::new();
        for name in names(self.tmp.path()) {
            if name == "dst" || name.to_string_lossy().starts_with("wire") {
                continue;
            }
            let path = self.tmp.p(&name);
            if path.is_dir() {
                found.extend(tree(&path).into_iter().map(|(p, e)| (name.clone(), p, e.content, e.mode)));
            } else {
                let content = std::fs::read(&path).unwrap();
                found.push((name, content, 0, crate::common::mode(&path)));
            }
        }
        found
    }

    /// Runs the program as a client whose server is `script`. `DST` among the arguments is the destination.
    pub fn run(&self, name: &str, args: &[&str], script: impl FnOnce(&mut Wire) + Send) -> Outcome {
        self.run_with(name, args, |_| (), script)
    }

    /// The same, with a look at the child once it runs.
    pub fn run_with(
        &self,
        name: &str,
        args: &[&str],
        started: impl FnOnce(&Child),
        script: impl FnOnce(&mut Wire) + Send,
    ) -> Outcome {
        let wire = tempfile::Builder::new().prefix("wire").tempdir_in(self.tmp.path()).unwrap();
        for nth in 0..CONNECTIONS_MAX {
            let (up, down) = ways(wire.path(), nth);
            crate::common::mkfifo(&up);
            crate::common::mkfifo(&down);
        }
        // Each connection has pipes of its own. What comes is passed on by two processes, so that each pipe ends by itself.
        let ssh = format!(
            "cd '{}' && set -C; n=0; until true > $n; do n=$((n+1)); done 2>/dev/null; cat down$n 2>/dev/null & exec cat >> up$n",
            wire.path().display()
        );
        let mut words: Vec<OsString> = Vec::new();
        for arg in args {
            words.push(match arg.strip_prefix("DST") {
                Some(rest) => format!("{}{rest}", self.dst().display()).into(),
                None => OsString::from(arg),
            });
        }
        // The same words in each run, so that they mean the same machine. A shell reads it: what is run must be closed for
        // writing everywhere, and a child of another test may hold it open.
        let ssh = self.tmp.file("wire ssh", ssh);
        let ssh: OsString = format!("sh '{}'", ssh.display()).into();
        words.splice(1..1, [OsStr::new("--ssh").to_owned(), ssh, "--remote-program".into(), "peer".into()]);
        let over = Arc::new(AtomicBool::new(false));
        let mut command = limited(&words);
        command
            .stdin(Stdio::null())
            .current_dir(self.tmp.path())
            .env("XDG_CACHE_HOME", self.tmp.p("wire cache"));
        let (up, down) = ways(wire.path(), 0);
        let mut wire_of = Wire::on(&up, Arc::clone(&over));
        wire_of.ways = Some(wire.path().to_owned());
        let child = command.spawn().unwrap();
        started(&child);
        let script_thread = AtomicI32::new(0);
        std::thread::scope(|scope| {
            let script_thread = &script_thread;
            let server = scope.spawn(move || {
                script_thread.store(rustix::thread::gettid().as_raw_pid(), Ordering::Relaxed);
                let mut wire = wire_of;
                if !wire.wait_for_bytes() {
                    return; // no host was called
                }
                rustix::fs::fcntl_setfl(&wire.read, OFlags::empty()).unwrap();
                wire.write = File::options().write(true).open(&down).ok();
                script(&mut wire);
                wire.close();
                wire.hold();
            });
            let outcome = watch(name, child, &over, script_thread, HUNG);
            if let Err(e) = server.join() {
                eprintln!("the script of {name} has failed; the program said {}", outcome.said());
                std::panic::resume_unwind(e);
            }
            outcome
        })
    }

    /// Runs the attack and asserts what holds for all: nothing outside has changed, and nothing half-done is left.
    #[track_caller]
    pub fn attack(&self, name: &str, args: &[&str], script: impl FnOnce(&mut Wire) + Send) -> Outcome {
        let before = self.around();
        let outcome = self.run(name, args, script).fair();
        assert_eq!(before, self.around(), "{name}: something outside the destination has changed");
        let left = litter(&self.dst());
        assert!(left.is_empty(), "{name}: {left:?} is left");
        outcome
    }

    /// Runs `serve` with a client that is `script`, which returns what it found out.
    pub fn serve<T: Send>(
        &self,
        name: &str,
        args: &[&str],
        script: impl FnOnce(&mut Wire) -> T + Send,
    ) -> (T, Outcome) {
        let words: Vec<OsString> = std::iter::once(&"serve")
            .chain(args)
            .map(|arg| if *arg == "DST" { self.dst().into() } else { OsString::from(arg) })
            .collect();
        let mut command = limited(&words);
        command.stdin(Stdio::piped()).env("HOME", self.tmp.p("outside"));
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let over = Arc::new(AtomicBool::new(false));
        let (read, write) = (std::os::fd::OwnedFd::from(stdout), std::os::fd::OwnedFd::from(stdin));
        let mut wire = Wire {
            read: read.into(),
            write: Some(write.into()),
            held: Vec::new(),
            over: Arc::clone(&over),
            polite: false,
            ways: None,
            nth: 0,
        };
        let script_thread = AtomicI32::new(0);
        std::thread::scope(|scope| {
            let script_thread = &script_thread;
            let client = scope.spawn(move || {
                script_thread.store(rustix::thread::gettid().as_raw_pid(), Ordering::Relaxed);
                let found = script(&mut wire);
                drop(wire);
                found
            });
            let outcome = watch(name, child, &over, script_thread, 2 * HUNG);
            match client.join() {
                Ok(found) => (found, outcome.fair()),
                Err(e) => {
                    eprintln!("the script of {name} has failed; the program said {}", outcome.said());
                    std::panic::resume_unwind(e);
                }
            }
        })
    }

    /// The same, asserting that nothing outside has changed.
    #[track_caller]
    pub fn besiege<T: Send>(
        &self,
        name: &str,
        args: &[&str],
        script: impl FnOnce(&mut Wire) -> T + Send,
    ) -> T {
        let before = self.around();
        let (found, _) = self.serve(name, args, script);
        assert_eq!(before, self.around(), "{name}: something outside the root has changed");
        let left = litter(&self.dst());
        assert!(left.is_empty(), "{name}: {left:?} is left");
        found
    }
}

/// The two pipes of a connection: what the program says, and what it hears.
fn ways(wire: &Path, nth: usize) -> (PathBuf, PathBuf) {
    (wire.join(format!("up{nth}")), wire.join(format!("down{nth}")))
}

/// The program with a limit to its address space, so that a bomb hits it and not the machine.
fn limited(words: &[OsString]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {SPACE_KIB}; exec \"$0\" \"$@\"");
    command.arg("-c").arg(script).arg(BCMR).args(words);
    command.env_remove("BCMR_SEED").env("LC_ALL", "C").process_group(0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the end and watches the memory. `script_thread` is the thread that plays the other side, once it runs.
fn watch(
    name: &str,
    mut child: Child,
    over: &AtomicBool,
    script_thread: &AtomicI32,
    patience: Duration,
) -> Outcome {
    fn drain(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            if let Some(pipe) = pipe {
                let _cut = pipe.take(64 << 20).read_to_end(&mut all);
            }
            all
        })
    }
    let (out, err) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let (began, mut kib, mut hung) = (Instant::now(), 0, false);
    let (mut waited, mut looked) = (Duration::ZERO, began);
    let pid = rustix::process::Pid::from_child(&child);
    let running = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let ended = loop {
        kib = kib.max(high_water(&status));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if looked.elapsed() > LOOK {
            let script = format!("/proc/self/task/{}", script_thread.load(Ordering::Relaxed));
            if sleeps(Path::new(&script)) && all_sleep(child.id()) {
                // A look that comes late was kept from running, as the program may have been.
                waited += looked.elapsed().min(2 * LOOK);
            }
            let too_long = waited > patience || began.elapsed() > WALL_MAX || worked(child.id()) > WORKED_MAX;
            if too_long && !hung {
                hung = true;
                let _gone = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            }
            looked = Instant::now();
        }
        let _ended = poll(&mut [PollFd::new(&running, PollFlags::IN)], Some(&MEMORY_LOOK));
    };
    over.store(true, Ordering::Relaxed);
    // Whatever it has left behind is killed with it: a pipe that stays open would never end.
    let _gone = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    let code = ended.code().unwrap_or_else(|| 1000 + ended.signal().unwrap_or(0));
    let (out, err) = (out.join().unwrap(), err.join().unwrap());
    Outcome { name: name.to_owned(), code, out, err, waited, kib, hung }
}

/// Whether all threads of a process and all that it has started sleep: none works, is about to, or waits for a disk.
fn all_sleep(pid: u32) -> bool {
    let is_number = |e: &std::fs::DirEntry| e.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let below = |dir: &str| {
        std::fs::read_dir(dir).into_iter().flatten().flatten().filter(is_number).map(|e| e.path())
    };
    // What it has started is in its group; the third field is the group's number.
    let is_of_it = |of: &PathBuf| fields(of).split(' ').nth(2).is_some_and(|n| n == pid.to_string());
    below(&format!("/proc/{pid}/task")).all(|task| sleeps(&task))
        && below("/proc").filter(is_of_it).all(|p| sleeps(&p))
}

/// Whether a thread sleeps, or is no more; `task` is its directory in /proc.
fn sleeps(task: &Path) -> bool {
    !matches!(fields(task).as_bytes().first(), Some(b'R' | b'D'))
}

/// What the processor has done for a process, in all its threads.
fn worked(pid: u32) -> Duration {
    let fields = fields(&PathBuf::from(format!("/proc/{pid}")));
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum::<u64>();
    // A hundred a second, on every Linux that tells a process's time.
    Duration::from_millis(ticks * 10)
}

/// What /proc tells of a thread or process behind its name: the state first. Empty when it is gone.
fn fields(of: &Path) -> String {
    let stat = std::fs::read_to_string(of.join("stat")).unwrap_or_default();
    // The name may hold anything but ends with the last parenthesis.
    stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()).unwrap_or_default()
}

fn high_water(status: &Path) -> u64 {
    let text = std::fs::read_to_string(status).unwrap_or_default();
    // For a moment after it was started, a child still stands in our memory, under our name.
    if !["Name:\tsh\n", "Name:\tbcmr\n"].iter().any(|name| text.starts_with(name)) {
        return 0;
    }
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}
