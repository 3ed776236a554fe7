//! Another machine for the tests of remote copies: this very one, behind two pipes, a bad line, or true ssh.
//!
//! Must not know what is copied.

use super::sshd::{HOST, Sshd};
use super::*;

/// How one gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Two pipes.
    Pipe,
    /// Two pipes through a relay that can be slow, and dies when it is told to.
    Relay,
}

/// The other machine. What is run on it goes when this does.
pub struct Far {
    own: Tmp,
    flags: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    sshd: Option<Sshd>,
}

impl Far {
    /// Behind pipes: fast, and nothing but this program takes part.
    pub fn by(by: By) -> Far {
        let own = Tmp::new();
        let home = own.dir("home");
        std::fs::create_dir(home.join("run")).unwrap();
        chmod(&home.join("run"), 0o700);
        let ssh = match by {
            By::Pipe => script("pipe-ssh"),
            By::Relay => python_script("relay-ssh"),
        };
        let flags = vec![format!("--ssh={ssh}").into(), format!("--remote-program={BCMR}").into()];
        let env = vec![
            ("FAR_HOME".into(), home.into()),
            ("FAR_RUN".into(), "".into()),
            ("FAR_ARGS".into(), "".into()),
        ];
        Far { own, flags, env, sshd: None }
    }

    pub fn pipe() -> Far {
        Far::by(By::Pipe)
    }

    pub fn relay() -> Far {
        Far::by(By::Relay)
    }

    /// Over true ssh; `None`, said aloud, where there is no server. `extra` are lines of sshd_config.
    pub fn ssh(test: &str, program: &Path, extra: &[&str]) -> Option<Far> {
        Far::ssh_in(Tmp::new(), test, program, extra)
    }

    /// The same, with everything of it in `own`.
    pub fn ssh_in(own: Tmp, test: &str, program: &Path, extra: &[&str]) -> Option<Far> {
        // ssh's default exchanges a post-quantum key as well: processor time at each login, and nothing that is tested here.
        match Sshd::start(own.path(), program, &[&["KexAlgorithms curve25519-sha256"], extra].concat()) {
            Ok(sshd) => {
                let flags = vec!["-F".into(), sshd.config().into()];
                Some(Far { own, flags, env: Vec::new(), sshd: Some(sshd) })
            }
            Err(why) => {
                skipped(test, &why);
                None
            }
        }
    }

    /// With another configuration of ssh.
    pub fn configured(mut self, config: &Path) -> Far {
        self.flags = vec!["-F".into(), config.into()];
        self
    }

    /// With another program than ssh itself.
    pub fn over(mut self, ssh: &Path) -> Far {
        self.flags.push(format!("--ssh={}", ssh.display()).into());
        self
    }

    /// Says more to whatever stands in for ssh.
    pub fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Far {
        self.env.retain(|(n, _)| n != name);
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// What is run there, instead of the program itself.
    pub fn program(mut self, program: &Path) -> Far {
        self.flags.retain(|f| !f.as_bytes().starts_with(b"--remote-program="));
        self.flags.push(format!("--remote-program={}", program.display()).into());
        self
    }

    /// The one that the shell there finds by itself.
    pub fn without_program(mut self) -> Far {
        self.flags.retain(|f| !f.as_bytes().starts_with(b"--remote-program="));
        self
    }

    /// Further arguments of `bcmr serve`.
    pub fn serving(self, args: &str) -> Far {
        self.with("FAR_ARGS", args)
    }

    /// A program in `dir` that is `bcmr` with everything that leads there, for a shell to find.
    pub fn shim(&self, dir: &Path) {
        let flags: Vec<String> = self.flags.iter().map(|f| format!("'{}'", f.to_str().unwrap())).collect();
        let text = format!("#!/bin/sh\nverb=$1\nshift\nexec {BCMR} \"$verb\" {} \"$@\"\n", flags.join(" "));
        std::fs::write(dir.join("bcmr"), text).unwrap();
        chmod(&dir.join("bcmr"), 0o755);
    }

    pub fn sshd(&self) -> &Sshd {
        self.sshd.as_ref().unwrap()
    }

    /// The home directory there.
    pub fn home(&self) -> PathBuf {
        self.own.p("home")
    }

    /// The cache directory of who goes there.
    pub fn cache(&self) -> PathBuf {
        self.own.p("near cache")
    }

    /// A path as it is typed.
    pub fn at(&self, path: impl AsRef<OsStr>) -> OsString {
        let mut word = OsString::from(format!("{HOST}:"));
        word.push(path);
        word
    }

    /// `bcmr VERB` with everything that leads there; arguments follow.
    pub fn bcmr(&self, verb: &str) -> Line {
        // Between machines there is no choice of an engine.
        self.lead(Line::new(Path::new(BCMR)).args([verb]))
    }

    /// The same for a line that was begun elsewhere, verb included.
    pub fn lead(&self, line: Line) -> Line {
        self.around(line.args(&self.flags))
    }

    /// The same for a line that says itself what leads there.
    pub fn around(&self, mut line: Line) -> Line {
        line.0.env("XDG_CONFIG_HOME", self.own.p("no configuration"));
        line.0.env("XDG_CACHE_HOME", self.cache());
        line.0.envs(self.env.iter().map(|(n, v)| (n, v)));
        line
    }
}

/// An ssh whose connections pass a relay that counts, and cuts after `RELAY_UP` and `RELAY_DOWN` bytes.
pub fn counted_ssh(test: &str) -> Option<(Far, Tmp)> {
    if python().is_none() {
        skipped(test, "it needs python3");
        return None;
    }
    let far = Far::ssh(test, Path::new(BCMR), &[])?;
    let tmp = Tmp::new();
    let relay = python_script("relay-tcp");
    let own = std::fs::read_to_string(far.sshd().config()).unwrap();
    let config = tmp.file("config", format!("ProxyCommand {relay} %h %p\n{own}"));
    let far = far.configured(&config).with("RELAY_LOG", tmp.p("log"));
    Some((far, tmp))
}

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dir {
    Put,
    Get,
}

pub const BOTH: [Dir; 2] = [Dir::Put, Dir::Get];

impl Dir {
    /// `bcmr copy FLAGS SRC DST` in this direction; flags are split at spaces.
    pub fn copy(self, far: &Far, flags: &str, src: &Path, dst: &Path) -> Line {
        self.ends(far.bcmr("copy").args(flags.split_whitespace()), far, src, dst)
    }

    /// The two ends of a copy in this direction.
    pub fn ends(self, line: Line, far: &Far, src: &Path, dst: &Path) -> Line {
        match self {
            Dir::Put => line.args([src.as_os_str(), &far.at(dst)]),
            Dir::Get => line.args([far.at(src).as_os_str(), dst.as_os_str()]),
        }
    }
}

/// Processes that run `bcmr serve` as children of whatever, whose home is that of `far`.
pub fn servers(far: &Far) -> Vec<u32> {
    let home = [b"HOME=".as_slice(), far.home().as_os_str().as_bytes()].concat();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let words: Vec<Vec<u8>> = read("cmdline").split(|b| *b == 0).map(<[u8]>::to_vec).collect();
        let is_serve = words.get(1).is_some_and(|w| w == b"serve") && words[0].ends_with(b"bcmr");
        if is_serve && read("environ").split(|b| *b == 0).any(|v| v == home) {
            found.push(pid);
        }
    }
    found
}

/// Kills one process for good.
pub fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

/// Sends a signal to one process; already gone is fine.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _gone = rustix::process::kill_process(pid, signal);
}

/// Waits until something holds; `false` when it does not within `seconds` of a machine with nothing else to do: a busy one
/// gets ten times as long.
pub fn within(seconds: u64, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(10 * seconds);
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// What passed a relay, up and down, by connection.
pub fn passed(log: &Path) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let numbers = |line: &str| {
        let (up, down) = line.split_once(' ').unwrap();
        (up.parse().unwrap(), down.parse().unwrap())
    };
    text.lines().map(numbers).collect()
}

/// Whether a run says that its data went past ssh. That it could not has some of these words too.
pub fn went_past_ssh(said: &str) -> bool {
    said.contains("sealed, past ssh")
}

/// A copy to `dst` that is to go past ssh. A machine under load may take longer than is waited for sealed streams; one that
/// never gets there is wrong.
pub fn past_ssh(dst: &Path, mut once: impl FnMut() -> Ran) -> Ran {
    let late = |ran: &Ran| ran.code == 0 && ran.err.contains("going on over ssh");
    let mut ran = once();
    for _ in 0..2 {
        if !late(&ran) {
            break;
        }
        std::fs::remove_dir_all(dst).unwrap();
        ran = once();
    }
    assert!(!late(&ran), "{}: {}", dst.display(), ran.err);
    ran
}
