//! The process's surroundings: environment variables, umask, cores, terminals, ignored signals, and its limits.
//!
//! [`Env::read`] is their only reader, so everything else is a function of what it is given and is tested as a table. Must not
//! know what is done with any of it.

use jiff::tz::TimeZone;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

/// The process's surroundings, read once and while there is one thread.
#[derive(Clone, Debug)]
pub struct Env {
    /// What was typed, the program's own name included.
    pub line: Vec<OsString>,
    /// What the configuration puts behind the verb, before the rest of the line.
    pub defaults: Vec<OsString>,
    /// The configuration has defaults of what a run may be proved by.
    pub has_defaults_of_proof: bool,
    /// The file mode creation mask.
    pub umask: u32,
    /// The effective user.
    pub me: u32,
    /// Cores this process may use.
    pub cores: usize,
    /// Standard input is a terminal.
    pub stdin_tty: bool,
    /// Standard output is a terminal.
    pub stdout_tty: bool,
    /// Standard error is a terminal.
    pub stderr_tty: bool,
    /// `TERM` names a terminal that cannot move its cursor, or none at all.
    pub dumb: bool,
    /// `NO_COLOR` is set and not empty.
    pub no_color: bool,
    /// The terminal is known to show progress that it is told of (OSC 9;4).
    pub taskbar: bool,
    /// The terminal breaks lines anew when it becomes narrower, as most do.
    pub reflows: bool,
    /// The line was typed on another machine, whose bcmr has it done here (`--via-source`).
    pub at_source: bool,
    /// Signals of ours that were ignored when we were started (bit n-1 is signal n), as `nohup` and shells do.
    pub ignored_signals: u64,
    /// Seconds since 1970.
    pub now: i64,
    /// `HOME`; where that says nothing, the directory we were started in, which is where sshd puts people.
    pub home: PathBuf,
    /// `HOME` alone, where that is an absolute path.
    pub own_home: Option<PathBuf>,
    /// `bcmr/config.toml` in `XDG_CONFIG_HOME`, or in `~/.config`.
    pub config_file: Option<PathBuf>,
    /// `bcmr` in `XDG_CACHE_HOME`, or in `~/.cache`.
    pub cache_dir: Option<PathBuf>,
    /// `bcmr` in `XDG_STATE_HOME`, or in `~/.local/state`.
    pub state_dir: Option<PathBuf>,
    /// `Trash` in `XDG_DATA_HOME`, or in `~/.local/share`.
    pub trash_dir: Option<PathBuf>,
    /// The third word of `SSH_CONNECTION`: the address that ssh came in on.
    pub arrived_at: Option<std::net::IpAddr>,
    /// Where sockets may be made: `XDG_RUNTIME_DIR`, then `TMPDIR`, then `/tmp`.
    pub meeting: Vec<PathBuf>,
    /// `BCMR_CAS_DIR`: where the store of blocks is.
    pub store_dir: Option<PathBuf>,
    /// `BCMR_CAS_CAP_MB`: how much it may remember, as it stands there.
    pub store_cap_mb: Option<OsString>,
    /// `BCMR_CAS_KEEP`: how much of blocks it may keep beyond the removal of what landed, as it stands there.
    pub store_keep: Option<OsString>,
}

impl Env {
    /// The line with the defaults of its verb in it.
    pub fn whole_line(&self) -> Vec<OsString> {
        let (verb, rest) = self.line.split_at_checked(2).unwrap_or((&self.line, &[]));
        verb.iter().chain(&self.defaults).chain(rest).cloned().collect()
    }

    /// The same for a proof: neither these defaults nor those of what proves it count once more.
    pub fn line_to_prove(&self) -> Vec<OsString> {
        let mut line = self.whole_line();
        if (!self.defaults.is_empty() || self.has_defaults_of_proof) && line.len() > 2 {
            line.insert(2, "--no-defaults".into());
        }
        line
    }

    /// Lets new things have every bit that they are made with. The mask that holds from now on.
    pub fn without_umask(&self) -> u32 {
        rustix::process::umask(rustix::fs::Mode::empty());
        0
    }

    /// Reads it all. The umask can only be read by setting it, so no other thread may run yet.
    pub fn read() -> Env {
        let mask = rustix::process::umask(rustix::fs::Mode::empty());
        rustix::process::umask(mask);
        let home = absolute("HOME");
        let place = |name, below| absolute(name).or_else(|| Some(home.as_ref()?.join(below)));
        Env {
            line: std::env::args_os().collect(),
            defaults: Vec::new(),
            has_defaults_of_proof: false,
            umask: mask.bits() & 0o777,
            me: rustix::process::geteuid().as_raw(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            stdin_tty: std::io::stdin().is_terminal(),
            stdout_tty: std::io::stdout().is_terminal(),
            stderr_tty: std::io::stderr().is_terminal(),
            dumb: std::env::var_os("TERM").is_none_or(|t| t.is_empty() || t == "dumb"),
            no_color: std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()),
            taskbar: said("WT_SESSION").is_some()
                || said("ConEmuANSI").is_some_and(|on| on == "ON")
                || said("TERM_PROGRAM").is_some_and(|it| it == "WezTerm" || it == "ghostty")
                || said("VTE_VERSION")
                    .and_then(|it| it.to_str()?.parse().ok())
                    .is_some_and(|it: u32| it >= 8000),
            reflows: said("XTERM_VERSION").is_none() && said("TERM").is_none_or(|it| it != "linux"),
            at_source: false,
            ignored_signals: ignored_signals(),
            now: now(),
            home: home.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_else(|| "/".into()),
            own_home: home.clone(),
            config_file: place("XDG_CONFIG_HOME", ".config").map(|dir| dir.join("bcmr/config.toml")),
            cache_dir: place("XDG_CACHE_HOME", ".cache").map(|dir| dir.join("bcmr")),
            state_dir: place("XDG_STATE_HOME", ".local/state").map(|dir| dir.join("bcmr")),
            trash_dir: place("XDG_DATA_HOME", ".local/share").map(|dir| dir.join("Trash")),
            arrived_at: said("SSH_CONNECTION")
                .and_then(|words| words.to_str()?.split(' ').nth(2)?.parse().ok()),
            meeting: meeting(),
            store_dir: said("BCMR_CAS_DIR").map(PathBuf::from),
            store_cap_mb: said("BCMR_CAS_CAP_MB"),
            store_keep: said("BCMR_CAS_KEEP"),
        }
    }
}

/// The program that asks for passwords, where ssh would ask by it too: where it is told to, or where there is a desktop and no
/// terminal.
pub fn askpass() -> Option<OsString> {
    let program = said("SSH_ASKPASS")?;
    let required = said("SSH_ASKPASS_REQUIRE");
    let is = |word: &str| required.as_deref().is_some_and(|it| it == word);
    let desktop = said("DISPLAY").or_else(|| said("WAYLAND_DISPLAY")).is_some();
    let wanted = !is("never") && (is("force") || is("prefer") || desktop && !has_terminal());
    wanted.then_some(program)
}

/// Whether ssh could ask a person for something.
pub fn can_ask() -> bool {
    askpass().is_some() || has_terminal()
}

fn has_terminal() -> bool {
    std::fs::File::options().read(true).write(true).open("/dev/tty").is_ok()
}

/// Where sockets may be made, as in [`Env::meeting`].
pub fn meeting() -> Vec<PathBuf> {
    [absolute("XDG_RUNTIME_DIR"), absolute("TMPDIR"), Some("/tmp".into())].into_iter().flatten().collect()
}

/// The time zone of this machine. It is UTC where nothing says which, and `None` where `TZ` says one that is not known.
pub fn zone() -> Option<TimeZone> {
    let is_said = || said("TZ").is_some();
    TimeZone::try_system().ok().or_else(|| (!is_said()).then_some(TimeZone::UTC))
}

/// The directory that this was started in, for paths that are to mean the same elsewhere.
///
/// # Errors
/// It is gone, or may not be looked for.
pub fn started_in() -> std::io::Result<PathBuf> {
    std::env::current_dir()
}

/// What only the programs with GNU's names look at.
#[derive(Clone, Debug)]
pub struct Gnu {
    /// `POSIXLY_CORRECT` is set.
    pub posixly: bool,
    /// `VERSION_CONTROL`.
    pub version_control: Option<OsString>,
    /// `SIMPLE_BACKUP_SUFFIX`, unless it is empty.
    pub backup_suffix: Option<OsString>,
    /// Names are read as UTF-8, by the name of the locale.
    pub utf8: bool,
}

impl Gnu {
    /// Reads it.
    pub fn read() -> Gnu {
        let locale = said("LC_ALL").or_else(|| said("LC_CTYPE")).or_else(|| said("LANG"));
        let utf8 = locale.is_some_and(|name| {
            let name = name.to_string_lossy().to_ascii_lowercase();
            name.ends_with("utf-8") || name.ends_with("utf8")
        });
        Gnu {
            posixly: std::env::var_os("POSIXLY_CORRECT").is_some(),
            version_control: std::env::var_os("VERSION_CONTROL"),
            backup_suffix: said("SIMPLE_BACKUP_SUFFIX"),
            utf8,
        }
    }
}

/// The XDG base directory specification has relative paths ignored.
fn absolute(name: &str) -> Option<PathBuf> {
    said(name).map(PathBuf::from).filter(|dir| dir.is_absolute())
}

/// A variable that is set and not empty.
fn said(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|v| !v.is_empty())
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Of those that this program would catch.
fn ignored_signals() -> u64 {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
    let ignored = [SIGHUP, SIGINT, SIGTERM, SIGUSR1].into_iter().filter(|s| bcmr_engine::is_ignored(*s));
    ignored.fold(0, |all, signal| all | 1 << (signal - 1))
}

/// Raises the soft limit of open files to the hard one. Workers hold directories open; where raising fails the soft
/// limit still serves, only sooner exhausted, and the engine says so then.
pub fn raise_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // A limit on the size of files would kill (SIGXFSZ); with a handler in its place the write fails with EFBIG, and
    // what was begun is cleaned up. Where no handler can be set, it kills as before.
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, over).ok();
    let now = getrlimit(Resource::Nofile);
    if now.current != now.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum }).ok();
    }
    // The kernel's table of descriptors doubles when it is full, and in a process with threads each doubling waits until
    // no thread reads the old one, for milliseconds. A larger one from the start takes as long as opening a file.
    let most = now.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    if let Ok(last) = i32::try_from(most.saturating_sub(1)) {
        rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), last).ok();
    }
}

/// What this process has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Time of processors.
    pub processor: std::time::Duration,
    /// The same of children that have ended; 0 where the system does not say.
    pub children: std::time::Duration,
    /// Bytes that came from disks and not from the page cache; 0 where the system does not say.
    pub from_disk: u64,
}

/// Reads it.
pub fn spent() -> Spent {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let processor = std::time::Duration::try_from(now).unwrap_or_default();
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let from_disk = io.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.trim().parse().ok());
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let children = child_ticks(&stat).unwrap_or(0).saturating_mul(NANOS_PER_TICK);
    let children = std::time::Duration::from_nanos(children);
    Spent { processor, children, from_disk: from_disk.unwrap_or(0) }
}

/// Linux tells times in hundredths of a second (proc(5), USER_HZ).
const NANOS_PER_TICK: u64 = 10_000_000;

/// What ended children took, for themselves and for calls, in a line of `/proc/PID/stat`. The program's name stands in it
/// in parentheses, and may have any in it.
fn child_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(13);
    let mut field = || fields.next()?.parse::<u64>().ok();
    Some(field()?.saturating_add(field()?))
}

/// As many as a copy into a directory that exists has open at a time, with some workers.
const DESCRIPTORS: u64 = 4096;

/// What this program was built from and for.
pub struct Build {
    pub version: &'static str,
    /// Set by the build of a release.
    pub commit: Option<&'static str>,
    pub arch: &'static str,
    pub os: &'static str,
    /// What this build has.
    pub features: Vec<&'static str>,
}

impl Build {
    /// This program's.
    pub fn this() -> Build {
        let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
        let of_linux = ["io_uring", "landlock"].into_iter().filter(|_| os == "linux");
        let linked = cfg!(target_feature = "crt-static").then_some("static");
        let features = of_linux.chain(["direct", "zstd", "lz4"]).chain(linked).collect();
        Build { version: env!("CARGO_PKG_VERSION"), commit: option_env!("BCMR_COMMIT"), arch, os, features }
    }
}

#[cfg(test)]
mod tests {
    use super::child_ticks;

    #[test]
    fn the_time_of_children() {
        let line = |name: &str, end: &str| format!("7475 ({name}) R 1 2 3 0 -1 4194304 102 0 0 0 5 6 {end}");
        for (stat, want) in [
            (line("bcmr", "70 8 20 0 1 0"), Some(78)),
            (line("a) R 1 (b", "1 2 20 0"), Some(3)),
            (line("bcmr", "70"), None),
            (line("bcmr", "x 8"), None),
            (String::new(), None),
        ] {
            assert_eq!(child_ticks(&stat), want, "{stat}");
        }
    }
}
