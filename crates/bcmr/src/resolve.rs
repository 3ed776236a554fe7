//! What was typed, made into what is meant: requests for the engine and how to show its work.
//!
//! [`Env::read`] is the only reader of the process's surroundings (environment variables, umask, cores, terminals,
//! signals that are ignored), so everything else here is pure and tested as a table. Must not know how a request is
//! carried out nor how anything is worded.

use crate::address::{self, Operand};
use crate::args::{
    AppendArg, Attr, CheckArgs, CompressArg, ConnectArgs, CopyArgs, EngineArg, FilterArgs, HowArgs, IoArgs,
    JobsArg, KeepArgs, KeepStep, LinkArgs, MoveArgs, NoCacheArg, Operands, OutputArgs, PlaneArg,
    PreallocateArg, RemoteArgs, RemoveArgs, RuleArg, ServeArgs, SessionsArgs, SharingArg, Update, UpdateArg,
    VerifyArg, When,
};
use crate::config::{CompressWord, Config, PlaneWord, Words};
use crate::names;
pub use crate::usage::Usage;
use crate::voice::{self, Voice};
use bcmr_engine::policy::{
    Changing, CheckRequest, Collide, Compare, CopyPolicy, CopyRequest, DropCache, Durability, FilterSpec,
    Follow, FollowDestination, Io, Landing, MoveRequest, Pick, Preserve, Reflink, RemoveRequest, Resume,
    Rule, Sparse, Strictness, Target, Verify,
};
use bcmr_engine::remote::{Address, Compress, Plane, Purpose, ServeRequest, Way};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Worker threads unless `-j` says otherwise: more than this has not paid on any machine measured.
const JOBS_DEFAULT_MAX: usize = 8;

/// The store of blocks remembers so many MiB where the user did not choose.
const STORE_CAP_MB: u64 = 1024;

/// As many connections as a configuration may ask for; the command line has the same.
const PARALLEL_MAX: u16 = 64;

/// The process's surroundings, read once and while there is one thread.
#[derive(Clone, Debug)]
pub struct Env {
    /// What was typed, the program's own name included.
    pub line: Vec<OsString>,
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
    /// Signals that were ignored when we were started (bit n-1 is signal n), as `nohup` and shells do.
    pub ignored_signals: u64,
    /// Seconds since 1970.
    pub now: i64,
    /// `HOME`; where that says nothing, the directory we were started in, which is where sshd puts people.
    pub home: PathBuf,
    /// `bcmr/config.toml` in `XDG_CONFIG_HOME`, or in `~/.config`.
    pub config_file: Option<PathBuf>,
    /// `bcmr` in `XDG_CACHE_HOME`, or in `~/.cache`.
    pub cache_dir: Option<PathBuf>,
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
    /// Reads it all. The umask can only be read by setting it, so no other thread may run yet.
    pub fn read() -> Env {
        let mask = rustix::process::umask(rustix::fs::Mode::empty());
        rustix::process::umask(mask);
        // The XDG base directory specification has relative paths ignored.
        let absolute = |name| said(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let home = absolute("HOME");
        let place = |name, below| absolute(name).or_else(|| Some(home.as_ref()?.join(below)));
        Env {
            line: std::env::args_os().collect(),
            umask: mask.bits() & 0o777,
            me: rustix::process::geteuid().as_raw(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            stdin_tty: std::io::stdin().is_terminal(),
            stdout_tty: std::io::stdout().is_terminal(),
            stderr_tty: std::io::stderr().is_terminal(),
            dumb: std::env::var_os("TERM").is_none_or(|t| t.is_empty() || t == "dumb"),
            no_color: std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()),
            ignored_signals: ignored_signals(),
            now: now(),
            home: home.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_else(|| "/".into()),
            config_file: place("XDG_CONFIG_HOME", ".config").map(|dir| dir.join("bcmr/config.toml")),
            cache_dir: place("XDG_CACHE_HOME", ".cache").map(|dir| dir.join("bcmr")),
            arrived_at: said("SSH_CONNECTION")
                .and_then(|words| words.to_str()?.split(' ').nth(2)?.parse().ok()),
            meeting: [absolute("XDG_RUNTIME_DIR"), absolute("TMPDIR"), Some("/tmp".into())]
                .into_iter()
                .flatten()
                .collect(),
            store_dir: said("BCMR_CAS_DIR").map(PathBuf::from),
            store_cap_mb: said("BCMR_CAS_CAP_MB"),
            store_keep: said("BCMR_CAS_KEEP"),
        }
    }
}

/// A variable that is set and not empty.
fn said(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|v| !v.is_empty())
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// `SigIgn` of /proc/self/status. Where there is no such file nothing counts as ignored.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap_or_default();
    u64::from_str_radix(line.trim(), 16).unwrap_or(0)
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

/// As many as a copy into a directory that exists has open at a time, with some workers.
const DESCRIPTORS: u64 = 4096;

/// Which verb is meant; words and exit codes differ by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Copy,
    Move,
    Remove,
    Check,
    Sessions,
    Ls,
    Stat,
    Du,
    Hash,
    Doctor,
    Deploy,
    Serve,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    Off,
    /// One line on the terminal, redrawn in place.
    Inline,
    /// A new line every few seconds.
    Lines,
    /// `progress` events.
    Events,
}

/// How the work is shown.
#[derive(Clone, Debug)]
pub struct Show {
    /// Who speaks.
    pub voice: &'static Voice,
    pub verb: Verb,
    /// Events as NDJSON on standard output, and nothing for people beside it.
    pub json: bool,
    pub verbose: bool,
    pub quiet: bool,
    /// Every item is told.
    pub items: bool,
    pub dry_run: bool,
    pub meter: Meter,
    /// Signs of `check` are coloured.
    pub color: bool,
    /// A person watches standard output: every line goes out at once.
    pub eager: bool,
    /// Answers are typed where the question stands, their Enter included.
    pub echoes: bool,
    /// A person watches standard error: a run longer than a second ends with one line on what was done.
    pub watched: bool,
    /// How to go on after a stop.
    pub again: Again,
    /// What was typed.
    pub line: Vec<OsString>,
    /// What was there was trusted unread (`--fast`).
    pub fast: bool,
    /// Differences are from a manifest, not from a source.
    pub manifest: bool,
    pub ignored_signals: u64,
    /// Seconds since 1970 when the run began, for ages.
    pub now: i64,
}

/// What brings an interrupted run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The same command does.
    Same,
    /// The same command does, from where it was.
    Resume,
    /// The same command with `-u`, which leaves alone what was copied whole.
    WithUpdate,
    /// The same command with `--merge`, since directories may now stand on both sides.
    WithMerge,
}

/// Where `--files-from` reads names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesFrom {
    /// `None` is standard input.
    pub file: Option<PathBuf>,
    /// What ends a name.
    pub separator: u8,
}

/// `copy`: the request lacks only its opened list of names.
pub struct CopyJob {
    pub request: CopyRequest,
    pub names: Option<NamesFrom>,
    pub show: Show,
}

/// Where the operands of a copy are.
#[derive(Debug)]
pub enum Places {
    /// All on this machine.
    Here,
    /// The destination is on another one.
    Put { sources: Vec<PathBuf>, to: Address, target: fn(PathBuf) -> Target },
    /// The sources are on another one.
    Get { from: Vec<Address>, target: Target },
}

impl Places {
    /// The other machine.
    pub fn address(&self) -> Option<&Address> {
        match self {
            Places::Here => None,
            Places::Put { to, .. } => Some(to),
            Places::Get { from, .. } => from.first(),
        }
    }
}

/// Whether a name is there on this machine.
pub type IsHere<'a> = &'a dyn Fn(&Path) -> bool;

/// An operand taken apart. A name with a colon that is there on this machine is a name on this machine, whatever it would
/// be as an address; `ssh://` cannot be mistaken for one.
fn parse(path: &Path, is_here: IsHere<'_>) -> Result<Operand, Usage> {
    match address::parse(path) {
        Ok(Operand::Here(path)) => Ok(Operand::Here(path)),
        _ if !address::is_url(path) && is_here(path) => Ok(Operand::Here(path.to_owned())),
        other => other,
    }
}

/// Those of `paths` that would be addresses, or none at all, were they not there on this machine.
pub fn mistakable<'p>(paths: impl IntoIterator<Item = &'p PathBuf>, is_here: IsHere<'_>) -> Vec<&'p Path> {
    let is_one = |path: &&PathBuf| {
        !matches!(address::parse(path), Ok(Operand::Here(_)))
            && matches!(parse(path, is_here), Ok(Operand::Here(_)))
    };
    paths.into_iter().filter(is_one).map(PathBuf::as_path).collect()
}

/// Tells which machine is which. Every operand is looked at before anything else is done.
pub fn places(o: &Operands, connect: &ConnectArgs, is_here: IsHere<'_>) -> Result<Places, Usage> {
    // Nothing to take apart: whoever resolves the copy says what is missing.
    let Ok((sources, target)) = operands(o) else {
        for path in all_operands(o) {
            parse(path, is_here)?;
        }
        return Ok(Places::Here);
    };
    let mut here = Vec::new();
    let mut there = Vec::new();
    for source in sources {
        match parse(&source, is_here)? {
            Operand::Here(path) => here.push(path),
            Operand::There(address) => there.push((with_port(address, connect, &source)?, source)),
        }
    }
    match (parse(target.path(), is_here)?, there.first()) {
        (Operand::Here(_), None) => Ok(Places::Here),
        (Operand::There(to), None) => {
            let to = with_port(to, connect, target.path())?;
            let target = match target {
                Target::Guess(_) => Target::Guess as fn(PathBuf) -> Target,
                Target::Into(_) => Target::Into,
                Target::Exactly(_) => Target::Exactly,
            };
            Ok(Places::Put { sources: here, to, target })
        }
        (Operand::There(_), Some(_)) => Err(Usage::new("source and destination are both on another machine")
            .or(
                "copy to this machine first, or run bcmr on one of the two: ssh HOST bcmr copy SRC OTHER:DST",
            )),
        (Operand::Here(_), Some((first, typed))) => {
            if let Some(path) = here.first() {
                let said = format!(
                    "{} is on this machine and {} is not; all sources must be in one place",
                    names::quoted(path),
                    names::quoted(typed)
                );
                return Err(Usage::new(said).or("copy them with a command for each machine"));
            }
            if let Some((_, other)) = there.iter().find(|(a, _)| !address::same_machine(a, first)) {
                let said = format!(
                    "{} and {} are not on one machine, with one user and port",
                    names::quoted(typed),
                    names::quoted(other)
                );
                return Err(Usage::new(said).or("copy them with a command for each machine"));
            }
            Ok(Places::Get { from: there.into_iter().map(|t| t.0).collect(), target })
        }
    }
}

/// `--port` is for addresses that name none.
fn with_port(mut address: Address, connect: &ConnectArgs, typed: &Path) -> Result<Address, Usage> {
    match (address.port, connect.port) {
        (Some(named), Some(port)) if named != port => {
            Err(Usage::new(format!("{} names another port than --port {port}", names::quoted(typed))))
        }
        (named, port) => {
            address.port = named.or(port);
            Ok(address)
        }
    }
}

/// One operand of a command that looks, or the host of one that is about a host.
pub fn operand(path: &Path, connect: &ConnectArgs, is_here: IsHere<'_>) -> Result<Operand, Usage> {
    match parse(path, is_here)? {
        Operand::There(address) => with_port(address, connect, path).map(Operand::There),
        here => Ok(here),
    }
}

/// The host of a command that is about a host.
pub fn host(typed: &std::ffi::OsStr, connect: &ConnectArgs) -> Result<Address, Usage> {
    with_port(address::parse_host(typed)?, connect, Path::new(typed))
}

/// Flags of a connection, where there is none.
pub fn no_connection(connect: &ConnectArgs, remote: Option<&RemoteArgs>) -> Result<(), Usage> {
    match connect.first_typed().or_else(|| remote?.first_typed()) {
        Some(flag) => Err(Usage::new(format!("{flag} has a meaning only with another machine"))
            .or("an operand on another machine is written host:path")),
        None => Ok(()),
    }
}

/// What `copy` arguments mean when everything is here.
pub fn copy(a: &CopyArgs, env: &Env) -> Result<CopyJob, Usage> {
    let (sources, target) = operands(&a.operands)?;
    let names = names_of(a, sources.len())?;
    no_connection(&a.connect, Some(&a.remote))?;
    if a.resume.fast && !a.resume.resume {
        return Err(Usage::new("--fast goes with -C, or with a copy to or from another machine"));
    }
    let (policy, show) = copy_policy(a, env)?;
    io_guard(&policy.io, policy.resume)?;
    let manifest = a.manifest.clone();
    Ok(CopyJob { request: CopyRequest { sources, names: None, target, manifest, policy }, names, show })
}

/// `copy` to or from another machine; the request is made from it, again for each attempt.
pub struct RemoteJob {
    pub places: Places,
    pub names: Option<NamesFrom>,
    pub policy: CopyPolicy,
    pub purpose: Purpose,
    pub manifest: Option<PathBuf>,
    pub reach: Reach,
    /// What was asked for and would be lost without a bcmr there, as it was typed.
    pub unkept: Vec<&'static str>,
    pub show: Show,
}

/// How to get to a machine, and what may be done there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    pub way: Way,
    /// This program may be put there.
    pub bootstrap: bool,
}

/// What `copy` arguments mean when one side is on another machine.
pub fn remote_copy(a: &CopyArgs, places: Places, config: &Config, env: &Env) -> Result<RemoteJob, Usage> {
    let count = match &places {
        Places::Here => 0,
        Places::Put { sources, .. } => sources.len(),
        Places::Get { from, .. } => from.len(),
    };
    let names = names_of(a, count)?;
    // What has no meaning here is refused: a flag that is silently left out promises something that is not kept.
    if a.reflink == SharingArg::Always {
        return Err(Usage::new("--reflink=always cannot hold: two machines share no blocks"));
    }
    if let Some(flag) = a.how.io.first_typed() {
        return Err(Usage::new(format!("{flag} is about copies on one machine"))
            .or("what goes over a wire is read and written by plain calls, as fast as the wire is"));
    }
    let (policy, show) = copy_policy(a, env)?;
    let host = places.address().map(|a| a.host.clone()).unwrap_or_default();
    let reach = reach(&a.connect, Some(&a.remote), a.resume.fast, &host, config)?;
    let unkept = unkept_without_peer(a, &policy, &places);
    let (purpose, manifest) = (Purpose::Copy, a.manifest.clone());
    Ok(RemoteJob { places, names, policy, purpose, manifest, reach, unkept, show })
}

/// What `check` arguments mean when one side is on another machine.
pub fn remote_check(a: &CheckArgs, places: Places, config: &Config, env: &Env) -> Result<RemoteJob, Usage> {
    let (policy, purpose, show) = check_policy(a, env)?;
    if let (true, Purpose::Check { extra: true, .. }) = (policy.filter.gitignore, purpose) {
        let said = "--gitignore with another machine needs --no-extra: \
             what the ignore files say of names that only the destination has is not known over there";
        return Err(Usage::new(said));
    }
    let host = places.address().map(|a| a.host.clone()).unwrap_or_default();
    let reach = reach(&a.connect, None, false, &host, config)?;
    let (names, manifest, unkept) = (None, None, vec!["check"]);
    Ok(RemoteJob { places, names, policy, purpose, manifest, reach, unkept, show })
}

/// How to get to `host`: what was typed, then what the configuration says of it, then what we think best.
pub fn reach(
    c: &ConnectArgs,
    r: Option<&RemoteArgs>,
    fast: bool,
    host: &str,
    config: &Config,
) -> Result<Reach, Usage> {
    let file = config.of(host);
    let ssh = match (&c.ssh, file.ssh) {
        (Some(line), _) => words(line, "--ssh")?,
        (None, Some(Words::Line(line))) => words(&line, "ssh in the configuration")?,
        (None, Some(Words::List(list))) if list.first().is_none_or(String::is_empty) => {
            return Err(Usage::new("ssh in the configuration names no command"));
        }
        (None, Some(Words::List(list))) => list.into_iter().map(OsString::from).collect(),
        (None, None) => vec!["ssh".into()],
    };
    let program = c.remote_program.clone().or(file.program).unwrap_or_else(|| "bcmr".into());
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '/' | '+' | '-');
    if program.is_empty() || program.starts_with('-') || !program.chars().all(plain) {
        // It is the one word that a shell over there reads.
        let said = format!("{} cannot be what bcmr is called there", names::quoted(Path::new(&program)));
        return Err(Usage::new(said)
            .or("a word or a path of letters, digits and . _ + - /; a relative path is below the home directory there"));
    }
    let parallel = r.and_then(|r| r.parallel).or(file.parallel);
    if parallel.is_some_and(|n| n == 0 || n > PARALLEL_MAX) {
        return Err(Usage::new(format!("parallel in the configuration is not in 1..={PARALLEL_MAX}")));
    }
    let compress = match (r.and_then(|r| r.compress), file.compress) {
        (Some(CompressArg::Zstd), _) | (None, Some(CompressWord::Zstd)) => Compress::Zstd,
        (Some(CompressArg::Lz4), _) | (None, Some(CompressWord::Lz4)) => Compress::Lz4,
        (Some(CompressArg::None), _) | (None, Some(CompressWord::None)) => Compress::None,
        (Some(CompressArg::Auto), _) | (None, Some(CompressWord::Auto) | None) => Compress::Auto,
    };
    let plane = match (r.and_then(|r| r.direct), file.direct) {
        (Some(PlaneArg::Direct), _) | (None, Some(PlaneWord::Direct)) => Plane::Direct,
        (Some(PlaneArg::Ssh), _) | (None, Some(PlaneWord::Ssh) | None) => Plane::Ssh,
    };
    let dedup = match r.map(|r| (r.dedup, r.no_dedup)) {
        Some((true, _)) => true,
        Some((_, true)) => false,
        _ => file.dedup.unwrap_or(true),
    };
    let bootstrap = match (c.bootstrap, c.no_bootstrap) {
        (true, _) => true,
        (_, true) => false,
        // Who names the program does not want another one.
        _ => file.bootstrap.unwrap_or(false) && c.remote_program.is_none(),
    };
    let way = Way {
        ssh,
        options: c.passed.clone(),
        program,
        parallel: parallel.map(usize::from),
        plane,
        compress,
        fast,
        dedup,
        retries: r.and_then(|r| r.retries).or(file.retries).unwrap_or(0),
    };
    Ok(Reach { way, bootstrap })
}

fn words(line: &str, whose: &str) -> Result<Vec<OsString>, Usage> {
    match shlex::split(line) {
        Some(words) if words.first().is_some_and(|w| !w.is_empty()) => {
            Ok(words.into_iter().map(OsString::from).collect())
        }
        Some(_) => Err(Usage::new(format!("{whose} names no command"))),
        None => Err(Usage::new(format!("{whose} has a quote that is not closed"))),
    }
}

/// What a copy by scp could not keep of what was asked for (D7). Whoever asked for it gets an error and not less.
fn unkept_without_peer(a: &CopyArgs, policy: &CopyPolicy, places: &Places) -> Vec<&'static str> {
    let into_name = match places {
        Places::Get { target, .. } => matches!(target, Target::Exactly(_)),
        _ => a.operands.no_target_directory,
    };
    let kept = a.keep.plain || !a.keep.preserve.is_empty() || !a.keep.no_preserve.is_empty();
    [
        (policy.verify != Verify::Off, "-V"),
        (a.resume.resume, "-C"),
        (a.resume.strict, "-s"),
        (a.resume.append.is_some(), "-a"),
        (a.how.sync, "--sync"),
        (a.keep.archive, "--archive"),
        (kept && !a.keep.archive, "--preserve"),
        (policy.force, "-f"),
        (a.collide.interactive, "-i"),
        (a.collide.no_clobber, "--no-clobber"),
        (a.collide.update.update.is_some(), "--update"),
        (policy.dry_run, "-n"),
        (!policy.filter.rules.is_empty(), "--exclude"),
        (!policy.filter.regexes.is_empty(), "--exclude-regex"),
        (policy.filter.gitignore, "--gitignore"),
        (a.files_from.is_some() || a.files_from0.is_some(), "--files-from"),
        (a.one_file_system, "-x"),
        (a.links.no_dereference, "-P"),
        (a.links.follow_operands && policy.recursive, "-H"),
        (a.sparse == SharingArg::Always, "--sparse"),
        (a.manifest.is_some(), "--manifest"),
        (a.remote.direct == Some(PlaneArg::Direct), "--direct"),
        (a.remote.retries.is_some_and(|n| n > 0), "--retries"),
        (into_name, "-T"),
    ]
    .into_iter()
    .filter_map(|(asked, flag)| asked.then_some(flag))
    .collect()
}

/// How much of blocks the store may keep by the configuration.
pub fn store_keep(config: &Config) -> Result<Option<u64>, Usage> {
    let size =
        |said: &str| crate::args::size(said).map_err(|_| no_size("store.keep in the configuration", said));
    config.store_keep().map(size).transpose()
}

fn no_size(what: &str, said: impl AsRef<Path>) -> Usage {
    Usage::new(format!("{what} is no size: {}", names::quoted(said.as_ref())))
}

/// What `serve` arguments mean; `kept` is what the configuration lets the store keep.
pub fn serve(a: &ServeArgs, kept: Option<u64>, env: &Env) -> Result<ServeRequest, Usage> {
    if env.stdin_tty || env.stdout_tty {
        return Err(Usage::new("serve speaks to another bcmr and not to a terminal")
            .or("bcmr copy FILE HOST: starts it over there by itself"));
    }
    let cap = match &env.store_cap_mb {
        None => STORE_CAP_MB,
        Some(said) => said.to_str().and_then(|s| s.parse::<u64>().ok()).ok_or_else(|| {
            Usage::new(format!("BCMR_CAS_CAP_MB is no number of MiB: {}", names::quoted(Path::new(said))))
        })?,
    };
    let cap_bytes = cap.checked_mul(1 << 20).ok_or_else(|| Usage::new("BCMR_CAS_CAP_MB is too large"))?;
    let keep_bytes = match &env.store_keep {
        None => kept.unwrap_or(0),
        Some(said) => said
            .to_str()
            .and_then(|s| crate::args::size(s).ok())
            .ok_or_else(|| no_size("BCMR_CAS_KEEP", said))?,
    };
    let dir = match &env.store_dir {
        Some(dir) if !dir.is_absolute() => {
            return Err(Usage::new(format!("BCMR_CAS_DIR is no absolute path: {}", names::quoted(dir))));
        }
        Some(dir) => Some(dir.clone()),
        // Nobody's home: no store, and that costs time only.
        None => env.cache_dir.as_ref().map(|cache| cache.join("cas")),
    };
    Ok(ServeRequest {
        root: a.root.clone(),
        read_only: a.read_only,
        store: dir.filter(|_| !a.no_store && !a.read_only).map(|dir| (dir, cap_bytes, keep_bytes)),
        jobs: jobs(&a.jobs, env),
        umask: env.umask,
        me: env.me,
        home: env.home.clone(),
        arrived_at: env.arrived_at,
        meeting: env.meeting.clone(),
    })
}

/// What decides how a copy is carried out, wherever its ends are.
fn copy_policy(a: &CopyArgs, env: &Env) -> Result<(CopyPolicy, Show), Usage> {
    let collide = collide(a.collide.no_clobber, a.collide.interactive, &a.collide.update)?;
    let recursive = a.recursive || a.keep.archive;
    if a.collide.force && a.resume.append.is_some() {
        return Err(Usage::new("-f and -a (--append) cannot be combined: what is added to is proved first")
            .or("what cp means by -a is --archive"));
    }
    let policy = CopyPolicy {
        recursive,
        follow: follow(&a.links, &a.keep, recursive),
        follow_destination: follow_destination(a.follow_destination),
        preserve: preserve(&a.keep.steps),
        strictness: strictness(&a.keep),
        specials: a.keep.archive,
        collide,
        force: a.collide.force,
        landing: if a.inplace { Landing::InPlace } else { Landing::Atomic },
        reflink: reflink(a.reflink),
        sparse: sparse(a.sparse),
        verify: verify(a.how.verify),
        durability: durability(&a.how),
        resume: resume(a.resume.resume, a.resume.fast, a.resume.strict, a.resume.append),
        checkpoint_bytes: a.resume.checkpoint_size,
        hashes: a.manifest.is_some(),
        one_file_system: a.one_file_system,
        filter: filter(&a.filters),
        dry_run: a.collide.dry_run,
        io: io(&a.how.io),
        jobs: jobs_for(collide, &a.how.jobs, env),
        me: env.me,
        umask: env.umask,
    };
    // What is half written in place has a new time too, so `-u` would take it for done.
    let again = match (policy.landing, collide) {
        _ if policy.resume.has_sessions() => Again::Resume,
        (Landing::Atomic, Collide::Replace) if policy.resume == Resume::Off => Again::WithUpdate,
        _ => Again::Same,
    };
    let fast = policy.resume == Resume::Fast;
    let show = Show { fast, ..show(Verb::Copy, &a.output, policy.dry_run, again, env) };
    Ok((policy, show))
}

fn names_of(a: &CopyArgs, sources: usize) -> Result<Option<NamesFrom>, Usage> {
    let names = names_from(a)?;
    if names.is_some() && sources != 1 {
        let say = "with --files-from there is exactly one source: the directory that the names are below";
        return Err(Usage::new(say));
    }
    if a.collide.interactive && names.as_ref().is_some_and(|n| n.file.is_none()) {
        return Err(Usage::new("-i cannot read answers where --files-from reads names"));
    }
    Ok(names)
}

/// What `move` arguments mean.
pub fn move_(a: &MoveArgs, env: &Env) -> Result<(MoveRequest, Show), Usage> {
    let (sources, target) = operands(&a.operands)?;
    let collide = collide(a.collide.no_clobber, a.collide.interactive, &a.collide.update)?;
    let policy = CopyPolicy {
        // The source will be gone, so what landed is read back.
        verify: match verify(a.how.verify) {
            Verify::Off => Verify::Cached,
            said => said,
        },
        collide,
        force: a.collide.force,
        durability: durability(&a.how),
        filter: filter(&a.filters),
        dry_run: a.collide.dry_run,
        io: io(&a.how.io),
        ..CopyPolicy::archive(jobs_for(collide, &a.how.jobs, env), env.me, env.umask)
    };
    io_guard(&policy.io, policy.resume)?;
    let again = if a.merge { Again::Same } else { Again::WithMerge };
    let show = show(Verb::Move, &a.output, policy.dry_run, again, env);
    Ok((MoveRequest { sources, target, merge: a.merge, policy }, show))
}

/// What `remove` arguments mean.
pub fn remove(a: &RemoveArgs, env: &Env) -> Result<(RemoveRequest, Show), Usage> {
    let request = RemoveRequest {
        paths: a.paths.clone(),
        recursive: a.recursive,
        empty_dirs: a.dir,
        force: a.force,
        ask: a.interactive,
        one_file_system: !a.cross_file_systems,
        dry_run: a.dry_run,
        jobs: jobs(&a.jobs, env),
    };
    Ok((request, show(Verb::Remove, &a.output, a.dry_run, Again::Same, env)))
}

/// What `check` arguments mean when everything is here.
pub fn check(a: &CheckArgs, env: &Env) -> Result<(CheckRequest, Show), Usage> {
    let (sources, target) = operands(&a.operands)?;
    no_connection(&a.connect, None)?;
    let (policy, purpose, show) = check_policy(a, env)?;
    let (compare, extra) = match purpose {
        Purpose::Check { compare, extra } => (compare, extra),
        Purpose::Copy => (Compare::ContentInDoubt, true),
    };
    Ok((CheckRequest { sources, target, compare, extra, policy }, show))
}

/// What decides how two sides are compared, wherever they are.
fn check_policy(a: &CheckArgs, env: &Env) -> Result<(CopyPolicy, Purpose, Show), Usage> {
    let c = &a.as_copy;
    let policy = CopyPolicy {
        // Nobody who compares two directories wants to hear that they are directories.
        recursive: true,
        follow: follow(&a.links, &a.keep, a.recursive || a.keep.archive),
        follow_destination: follow_destination(a.follow_destination),
        preserve: preserve(&a.keep.steps),
        strictness: strictness(&a.keep),
        specials: a.keep.archive,
        collide: collide(c.no_clobber, false, &c.update)?,
        landing: if c.inplace { Landing::InPlace } else { Landing::Atomic },
        verify: if c.verify { Verify::Cached } else { Verify::Off },
        resume: resume(c.resume, false, c.strict, c.append),
        one_file_system: a.one_file_system,
        filter: filter(&a.filters),
        ..CopyPolicy::cp(jobs(&a.jobs, env), env.me, env.umask)
    };
    let compare = match (a.hash, a.quick) {
        (true, _) => Compare::Hash,
        (false, true) => Compare::SizeAndTime,
        (false, false) => Compare::ContentInDoubt,
    };
    let show = show(Verb::Check, &a.output, false, Again::Same, env);
    Ok((policy, Purpose::Check { compare, extra: !a.no_extra }, show))
}

/// What was typed as operands, the directory of `-t` included.
pub fn all_operands(o: &Operands) -> impl Iterator<Item = &PathBuf> {
    o.paths.iter().chain(&o.target_directory)
}

/// `check --manifest`: which file, below which directory, with how many threads.
pub struct ManifestJob {
    pub file: PathBuf,
    pub dir: PathBuf,
    pub jobs: usize,
    pub show: Show,
}

/// What `check --manifest` means; `None` when it was not given.
pub fn check_manifest(a: &CheckArgs, env: &Env, is_here: IsHere<'_>) -> Option<Result<ManifestJob, Usage>> {
    let file = a.manifest.clone()?;
    for path in all_operands(&a.operands) {
        match parse(path, is_here) {
            Ok(Operand::Here(_)) => {}
            Ok(Operand::There(_)) => {
                let said = format!(
                    "{} is on another machine; bcmr check --manifest works on this one only",
                    names::quoted(path)
                );
                return Some(Err(Usage::new(said).or(
                    "run it there, or compare without --manifest; for a file on this machine put ./ before its name",
                )));
            }
            Err(usage) => return Some(Err(usage)),
        }
    }
    let ([dir], None, false) =
        (a.operands.paths.as_slice(), &a.operands.target_directory, a.operands.no_target_directory)
    else {
        return Some(Err(Usage::new("with --manifest there is one operand: the directory it speaks of")));
    };
    let show = Show { manifest: true, ..show(Verb::Check, &a.output, false, Again::Same, env) };
    Some(Ok(ManifestJob { file, dir: dir.clone(), jobs: jobs(&a.jobs, env), show }))
}

/// What `sessions` arguments mean.
pub fn sessions(a: &SessionsArgs, env: &Env) -> Result<Show, Usage> {
    Ok(Show { now: env.now, ..show(Verb::Sessions, &a.output, false, Again::Same, env) })
}

fn resume(resume: bool, fast: bool, strict: bool, append: Option<AppendArg>) -> Resume {
    match (resume, fast, strict, append) {
        (true, true, ..) => Resume::Fast,
        (true, false, ..) => Resume::Proved,
        (_, _, true, _) => Resume::Strict,
        (_, _, _, Some(AppendArg::Hash)) => Resume::Append,
        (_, _, _, Some(AppendArg::Size)) => Resume::AppendSize,
        _ => Resume::Off,
    }
}

fn operands(o: &Operands) -> Result<(Vec<PathBuf>, Target), Usage> {
    let mut sources = o.paths.clone();
    let Some(first) = o.paths.first().map(|p| names::quoted(p)) else {
        return Err(Usage::new("no source given"));
    };
    if let Some(dir) = &o.target_directory {
        return Ok((sources, Target::Into(dir.clone())));
    }
    let Some(last) = sources.pop().filter(|_| !sources.is_empty()) else {
        return Err(Usage::new(format!("no destination given after {first}")));
    };
    match (o.no_target_directory, sources.len()) {
        (false, _) => Ok((sources, Target::Guess(last))),
        (true, 1) => Ok((sources, Target::Exactly(last))),
        (true, _) => Err(Usage::new(format!("with -T there is one source; there are more after {first}"))),
    }
}

fn names_from(a: &CopyArgs) -> Result<Option<NamesFrom>, Usage> {
    let (file, separator) = match (&a.files_from, &a.files_from0) {
        (Some(file), None) => (file, b'\n'),
        (None, Some(file)) => (file, 0),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(Usage::new("--files-from and --files-from0 exclude each other")),
    };
    let file = (file.as_os_str() != "-").then(|| file.clone());
    Ok(Some(NamesFrom { file, separator }))
}

fn collide(no_clobber: bool, interactive: bool, update: &UpdateArg) -> Result<Collide, Usage> {
    match (no_clobber, interactive, update.update) {
        (true, _, _) | (_, _, Some(Update::None)) => Ok(Collide::Keep),
        (_, true, None | Some(Update::All)) => Ok(Collide::Ask),
        // cp would ask about the older ones only. To take either word alone would replace something the other
        // protects, so it is refused until the engine can do both.
        (_, true, Some(_)) => Err(Usage::new("-i and --update cannot be combined")),
        (_, _, None | Some(Update::All)) => Ok(Collide::Replace),
        (_, _, Some(Update::Older)) => Ok(Collide::IfOlder),
        (_, _, Some(Update::Different)) => Ok(Collide::IfDifferent),
    }
}

fn follow(links: &LinkArgs, keep: &KeepArgs, recursive: bool) -> Follow {
    let archive_last = keep.steps.contains(&KeepStep::Archive { links_said_later: false });
    if archive_last || links.no_dereference {
        Follow::Never
    } else if links.dereference {
        Follow::Always
    } else if links.follow_operands || !recursive {
        Follow::Operands
    } else {
        Follow::Never
    }
}

fn follow_destination(asked: bool) -> FollowDestination {
    if asked { FollowDestination::Always } else { FollowDestination::UnlessReceived }
}

fn preserve(steps: &[KeepStep]) -> Preserve {
    let mut kept = Preserve::NONE;
    for step in steps {
        match step {
            KeepStep::Plain => {
                set(&mut kept, Attr::Mode, true);
                set(&mut kept, Attr::Ownership, true);
                set(&mut kept, Attr::Timestamps, true);
            }
            KeepStep::Keep(attr) => set(&mut kept, *attr, true),
            KeepStep::Drop(attr) => set(&mut kept, *attr, false),
            KeepStep::Archive { .. } => kept = Preserve::ALL,
        }
    }
    kept
}

fn set(kept: &mut Preserve, attr: Attr, to: bool) {
    match attr {
        // An ACL is the mode of those whom the nine bits cannot name; cp treats them as one, and so do we.
        Attr::Mode => (kept.mode, kept.acl) = (to, to),
        Attr::Ownership => kept.owner = to,
        Attr::Timestamps => kept.times = to,
        Attr::Links => kept.links = to,
        Attr::Xattr => kept.xattr = to,
        Attr::Acl => kept.acl = to,
        Attr::All => *kept = if to { Preserve::ALL } else { Preserve::NONE },
    }
}

fn strictness(keep: &KeepArgs) -> Strictness {
    if keep.archive { Strictness::Archive } else { Strictness::LikeCp }
}

fn reflink(arg: SharingArg) -> Reflink {
    match arg {
        SharingArg::Auto => Reflink::Auto,
        SharingArg::Always => Reflink::Always,
        SharingArg::Disable => Reflink::Never,
    }
}

fn sparse(arg: SharingArg) -> Sparse {
    match arg {
        SharingArg::Auto => Sparse::Auto,
        SharingArg::Always => Sparse::Always,
        SharingArg::Disable => Sparse::Never,
    }
}

fn verify(arg: Option<VerifyArg>) -> Verify {
    match arg {
        None => Verify::Off,
        Some(VerifyArg::Cached) => Verify::Cached,
        Some(VerifyArg::Direct) => Verify::Direct,
    }
}

fn io(a: &IoArgs) -> Io {
    Io {
        pick: match a.engine {
            EngineArg::Auto => Pick::Auto,
            EngineArg::Sys => Pick::Sys,
            EngineArg::Ring => Pick::Ring,
        },
        block_bytes: a.block_size,
        queue_depth: a.queue_depth.into(),
        async_min_bytes: a.async_threshold,
        preallocate: a.preallocate == PreallocateArg::Auto,
        readahead: a.readahead,
        direct: a.direct_io,
        cache: match a.no_cache {
            NoCacheArg::Auto => DropCache::Auto,
            NoCacheArg::Always => DropCache::Always,
            NoCacheArg::Never => DropCache::Never,
        },
        wait: std::time::Duration::from_millis(a.completion_timeout.into()),
        changing: if a.allow_changing { Changing::Allowed } else { Changing::Refused },
    }
}

/// What cannot go together with how contents are to be read and written.
fn io_guard(io: &Io, resume: Resume) -> Result<(), Usage> {
    // A session is bound to one version of its source, and a proof is of one.
    if io.changing == Changing::Allowed && resume != Resume::Off {
        return Err(Usage::new("--allow-changing does not go with -C, -s or -a"));
    }
    if io.direct && io.cache == DropCache::Always {
        return Err(Usage::new(
            "--direct-io goes past the page cache, and --no-cache is for what goes through it",
        ));
    }
    if io.direct && io.pick == Pick::Sys {
        return Err(Usage::new("--direct-io goes through the ring, and --engine=sys forbids it"));
    }
    // A file with a session is filled block by block, each hashed and recorded in its turn; one that is appended to has
    // a beginning that is not ours.
    if io.direct && resume != Resume::Off {
        return Err(Usage::new("--direct-io does not go with -C, -s or -a")
            .or("without them an interrupted copy begins again with the file it was at"));
    }
    Ok(())
}

fn durability(how: &HowArgs) -> Durability {
    if how.sync { Durability::Medium } else { Durability::Cache }
}

fn filter(a: &FilterArgs) -> FilterSpec {
    let rule = |r: &RuleArg| match r {
        RuleArg::Exclude(glob) => Rule::Exclude(glob.clone()),
        RuleArg::Include(glob) => Rule::Include(glob.clone()),
    };
    FilterSpec {
        rules: a.rules.iter().map(rule).collect(),
        regexes: a.exclude_regex.clone(),
        gitignore: a.gitignore,
    }
}

fn jobs(arg: &JobsArg, env: &Env) -> usize {
    arg.jobs.map_or_else(|| env.cores.clamp(1, JOBS_DEFAULT_MAX), usize::from)
}

/// Questions come in the order of what was typed, so that answers can be written down before: one worker asks.
fn jobs_for(collide: Collide, arg: &JobsArg, env: &Env) -> usize {
    if collide == Collide::Ask { 1 } else { jobs(arg, env) }
}

fn show(verb: Verb, out: &OutputArgs, dry_run: bool, again: Again, env: &Env) -> Show {
    let inline = env.stderr_tty && !env.dumb;
    let meter = match out.progress {
        When::Never => Meter::Off,
        When::Auto if out.quiet => Meter::Off,
        When::Auto | When::Always if out.json => Meter::Events,
        When::Auto | When::Always if inline => Meter::Inline,
        When::Auto => Meter::Off,
        When::Always => Meter::Lines,
    };
    Show {
        voice: &voice::BCMR,
        verb,
        json: out.json,
        verbose: out.verbose,
        quiet: out.quiet,
        // `check` has its differences to tell; what is the same is told to those who ask.
        items: !out.quiet && (out.verbose || dry_run || (out.json && verb != Verb::Check)),
        dry_run,
        meter,
        color: env.stdout_tty && !env.dumb && !env.no_color,
        eager: env.stdout_tty,
        echoes: env.stdin_tty && env.stderr_tty,
        watched: env.stderr_tty,
        again,
        line: env.line.clone(),
        fast: false,
        manifest: false,
        ignored_signals: env.ignored_signals,
        now: env.now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Command;

    fn parse(line: Vec<String>) -> Result<crate::args::Cli, clap::Error> {
        crate::args::parse(line)
    }

    const NOTHING_HERE: IsHere<'_> = &|_| false;

    fn env() -> Env {
        Env {
            line: Vec::new(),
            me: 0,
            umask: 0o027,
            cores: 16,
            stdin_tty: false,
            stdout_tty: false,
            stderr_tty: true,
            dumb: false,
            no_color: false,
            ignored_signals: 0,
            now: 0,
            home: "/home/me".into(),
            config_file: None,
            cache_dir: Some("/home/me/.cache/bcmr".into()),
            arrived_at: None,
            meeting: Vec::new(),
            store_dir: None,
            store_cap_mb: None,
            store_keep: None,
        }
    }

    fn typed(line: &str) -> Vec<String> {
        std::iter::once("bcmr").chain(line.split_whitespace()).map(str::to_owned).collect()
    }

    fn try_copy(line: &str) -> Result<CopyJob, Usage> {
        match parse(typed(line)).unwrap().command {
            Command::Copy(a) => copy(&a, &env()),
            other => panic!("{other:?}"),
        }
    }

    fn policy(flags: &str) -> CopyPolicy {
        try_copy(&format!("copy {flags} src dst")).unwrap_or_else(|u| panic!("{flags}: {u:?}")).request.policy
    }

    fn try_move(line: &str) -> (MoveRequest, Show) {
        match parse(typed(line)).unwrap().command {
            Command::Move(a) => move_(&a, &env()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn remove_of(line: &str) -> RemoveRequest {
        match parse(typed(line)).unwrap().command {
            Command::Remove(a) => remove(&a, &env()).unwrap().0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bare_copy_is_cp() {
        let p = policy("");
        assert!(!p.recursive && !p.specials && !p.force && !p.one_file_system && !p.dry_run);
        assert_eq!(
            (p.follow, p.preserve, p.strictness),
            (Follow::Operands, Preserve::NONE, Strictness::LikeCp)
        );
        assert_eq!((p.collide, p.landing), (Collide::Replace, Landing::Atomic));
        assert_eq!((p.reflink, p.sparse, p.verify), (Reflink::Auto, Sparse::Auto, Verify::Off));
        assert_eq!((p.durability, p.jobs, p.umask), (Durability::Cache, 8, 0o027));
    }

    #[test]
    fn targets() {
        for (line, sources, want) in [
            ("copy a b", 1, "Guess(\"b\")"),
            ("copy a b c", 2, "Guess(\"c\")"),
            ("copy -t d a b", 2, "Into(\"d\")"),
            ("copy a -td", 1, "Into(\"d\")"),
            ("copy -T a b", 1, "Exactly(\"b\")"),
            ("cp a b/", 1, "Guess(\"b/\")"),
            ("copy -- -a -b", 1, "Guess(\"-b\")"),
        ] {
            let job = try_copy(line).unwrap_or_else(|u| panic!("{line}: {u:?}"));
            assert_eq!(format!("{:?}", job.request.target), want, "{line}");
            assert_eq!(job.request.sources.len(), sources, "{line}");
        }
    }

    #[test]
    fn refused_arguments() {
        for (line, say) in [
            ("copy", "no source given"),
            ("copy -t d", "no source given"),
            ("copy a", "no destination given after 'a'"),
            ("copy -T a b c", "with -T there is one source; there are more after 'a'"),
            ("copy -i -u a b", "-i and --update cannot be combined"),
            ("copy --files-from l a b c", "with --files-from there is exactly one source"),
            ("copy -i --files-from - a b", "-i cannot read answers"),
        ] {
            let usage = try_copy(line).err().unwrap_or_else(|| panic!("{line} was taken"));
            assert!(usage.said.starts_with(say), "{line}: {}", usage.said);
        }
    }

    #[test]
    fn links() {
        for (flags, want) in [
            ("", Follow::Operands),
            ("-r", Follow::Never),
            ("-R", Follow::Never),
            ("-rL", Follow::Always),
            ("-rH", Follow::Operands),
            ("-P", Follow::Never),
            ("-L -P", Follow::Never),
            ("-P -L", Follow::Always),
            ("-P -H -L -H", Follow::Operands),
            ("--archive", Follow::Never),
            ("-L --archive", Follow::Never),
            ("--archive -L", Follow::Always),
        ] {
            assert_eq!(policy(flags).follow, want, "{flags}");
        }
    }

    #[test]
    fn keeping() {
        let none = Preserve::NONE;
        for (flags, want) in [
            ("-p", Preserve::CP),
            ("--preserve", Preserve::CP),
            ("--preserve=mode", Preserve { mode: true, acl: true, ..none }),
            ("--preserve=owner,times", Preserve { owner: true, times: true, ..none }),
            ("--preserve=links --preserve=xattr", Preserve { links: true, xattr: true, ..none }),
            ("--preserve=all", Preserve::ALL),
            ("--archive", Preserve::ALL),
            ("--archive --no-preserve=ownership", Preserve { owner: false, ..Preserve::ALL }),
            ("--no-preserve=ownership --archive", Preserve::ALL),
            ("-p --no-preserve=all --preserve=acl", Preserve { acl: true, ..none }),
            ("--no-preserve=mode -p", Preserve::CP),
        ] {
            assert_eq!(policy(flags).preserve, want, "{flags}");
        }
        let archive = policy("--archive");
        assert!(archive.recursive && archive.specials);
        assert_eq!(archive.strictness, Strictness::Archive);
    }

    #[test]
    fn names_already_there() {
        for (flags, want) in [
            ("-i", Collide::Ask),
            ("--no-clobber", Collide::Keep),
            ("-i --no-clobber", Collide::Keep),
            ("--no-clobber -i", Collide::Ask),
            ("-f", Collide::Replace),
            ("-i -f", Collide::Ask),
            ("-u", Collide::IfOlder),
            ("--update", Collide::IfOlder),
            ("--update=older", Collide::IfOlder),
            ("--update=none", Collide::Keep),
            ("--update=none -i", Collide::Keep),
            ("--update=all", Collide::Replace),
            ("--update=all -i", Collide::Ask),
            ("--update=different", Collide::IfDifferent),
            ("-u --update=all", Collide::Replace),
            ("-u --no-clobber", Collide::Keep),
        ] {
            assert_eq!(policy(flags).collide, want, "{flags}");
        }
        assert!(policy("-i -f").force);
    }

    #[test]
    fn the_way_of_copying() {
        for (flags, want) in [
            ("--reflink", Reflink::Always),
            ("--reflink=auto", Reflink::Auto),
            ("--reflink=disable", Reflink::Never),
            ("--reflink=never", Reflink::Never),
            ("--reflink --reflink=auto", Reflink::Auto),
        ] {
            assert_eq!(policy(flags).reflink, want, "{flags}");
        }
        assert_eq!(policy("--sparse=always").sparse, Sparse::Always);
        assert_eq!(policy("--sparse=never").sparse, Sparse::Never);
        assert_eq!(policy("-V").verify, Verify::Cached);
        assert_eq!(policy("-V=direct").verify, Verify::Direct);
        assert_eq!(policy("--verify=direct -V").verify, Verify::Cached);
        assert_eq!(policy("--sync").durability, Durability::Medium);
        assert_eq!(policy("--inplace").landing, Landing::InPlace);
        assert_eq!(policy("-j3").jobs, 3);
        assert!(policy("-x").one_file_system && policy("-n").dry_run);
    }

    #[test]
    fn filters_keep_their_order() {
        let f = policy("--include b -e a --exclude-regex ^x --exclude c --gitignore").filter;
        let want = [Rule::Include("b".into()), Rule::Exclude("a".into()), Rule::Exclude("c".into())];
        assert_eq!(
            (f.rules.as_slice(), f.regexes.as_slice()),
            (want.as_slice(), ["^x".to_owned()].as_slice())
        );
        assert!(f.gitignore);
    }

    #[test]
    fn lists_of_names() {
        let names =
            |flags: &str| try_copy(&format!("copy {flags} a b")).unwrap_or_else(|u| panic!("{u:?}")).names;
        assert_eq!(names(""), None);
        assert_eq!(names("--files-from l"), Some(NamesFrom { file: Some("l".into()), separator: b'\n' }));
        assert_eq!(names("--files-from0 -"), Some(NamesFrom { file: None, separator: 0 }));
    }

    fn try_remote(line: &str, config: &str) -> Result<RemoteJob, Usage> {
        let config = crate::config::parse(config, Path::new("c")).unwrap();
        match parse(typed(line)).unwrap().command {
            Command::Copy(a) => {
                let places = places(&a.operands, &a.connect, NOTHING_HERE)?;
                assert!(places.address().is_some(), "{line} is local");
                remote_copy(&a, places, &config, &env())
            }
            other => panic!("{other:?}"),
        }
    }

    fn way(flags: &str, config: &str) -> Reach {
        let job = try_remote(&format!("copy {flags} src h:dst"), config);
        job.unwrap_or_else(|u| panic!("{flags} {config}: {u:?}")).reach
    }

    #[test]
    fn which_machine() {
        let of = |line: &str| match parse(typed(line)).unwrap().command {
            Command::Copy(a) => places(&a.operands, &a.connect, NOTHING_HERE),
            other => panic!("{other:?}"),
        };
        for line in ["copy a b", "copy ./a:b c", "copy -t d a", "copy a", "copy", "copy -T a /x:y"] {
            assert!(matches!(of(line), Ok(Places::Here)), "{line}");
        }
        for (line, count, want) in [
            ("copy a h:b", 1, "Guess(\"b\")"),
            ("copy a b c me@h:", 3, "Guess(\"\")"),
            ("copy -t h:d a", 1, "Into(\"d\")"),
            ("copy -T a h:/d", 1, "Exactly(\"/d\")"),
        ] {
            let Ok(Places::Put { sources, to, target }) = of(line) else { panic!("{line}: {:?}", of(line)) };
            assert_eq!((sources.len(), format!("{:?}", target(to.path))), (count, want.to_owned()), "{line}");
        }
        for (line, count, want) in [
            ("copy h:a b", 1, "Guess(\"b\")"),
            ("copy h:a h:b ssh://h/c .", 3, "Guess(\".\")"),
            ("copy -t d h:a h:b", 2, "Into(\"d\")"),
            ("copy -T [::1]:a b", 1, "Exactly(\"b\")"),
        ] {
            let Ok(Places::Get { from, target }) = of(line) else { panic!("{line}: {:?}", of(line)) };
            assert_eq!((from.len(), format!("{target:?}")), (count, want.to_owned()), "{line}");
        }
        for (line, say) in [
            ("copy h:a h:b", "source and destination are both on another machine"),
            ("copy h:a ssh://g/b", "source and destination are both on another machine"),
            ("copy a h:b h:c", "source and destination are both on another machine"),
            ("copy a h:b c", "'a' is on this machine and 'h:b' is not"),
            ("copy h:a g:b c", "'h:a' and 'g:b' are not on one machine"),
            ("copy h:a me@h:b c", "'h:a' and 'me@h:b' are not on one machine"),
            ("copy h:a ssh://h:22/b c", "'h:a' and 'ssh://h:22/b' are not on one machine"),
            ("copy -t h:d g:a", "source and destination are both on another machine"),
            ("copy --port 23 ssh://h:22/a c", "'ssh://h:22/a' names another port than --port 23"),
            ("copy a :b", "':b' is no address"),
            ("copy :b", "':b' is no address"),
            ("copy -- -oProxyCommand=x:b", "'-oProxyCommand=x:b' is no address"),
            ("copy --target-directory=-h:b x", "'-h:b' is no address"),
        ] {
            let said = of(line).err().unwrap_or_else(|| panic!("{line} was taken")).said;
            assert!(said.starts_with(say), "{line}: {said}");
        }
        let port = |line: &str| of(line).unwrap().address().and_then(|a| a.port);
        assert_eq!(port("copy --port 23 h:a c"), Some(23));
        assert_eq!(port("copy --port 23 a ssh://h:23/c"), Some(23));
        assert_eq!(port("copy a h:c"), None);
    }

    #[test]
    fn the_way_there() {
        let plain = way("", "");
        assert_eq!(
            (plain.way.ssh.as_slice(), plain.way.program.as_str()),
            ([OsString::from("ssh")].as_slice(), "bcmr")
        );
        assert_eq!(
            (plain.way.parallel, plain.way.plane, plain.way.compress),
            (None, Plane::Ssh, Compress::Auto)
        );
        assert!(plain.way.dedup && !plain.way.fast && !plain.bootstrap && plain.way.retries == 0);
        assert!(plain.way.options.is_empty());
        let all = "ssh = 'ssh -4 \"a b\"'\nparallel = 3\ncompress = 'lz4'\ndirect = 'direct'\ndedup = false\n\
                   retries = 5\nbootstrap = true\nprogram = 'opt/bcmr'\n";
        let said = way("", all);
        assert_eq!(said.way.ssh, ["ssh", "-4", "a b"]);
        assert_eq!(
            (said.way.parallel, said.way.plane, said.way.compress),
            (Some(3), Plane::Direct, Compress::Lz4)
        );
        assert!(!said.way.dedup && said.bootstrap && said.way.retries == 5 && said.way.program == "opt/bcmr");
        let typed = "--ssh=x --parallel=2 --compress=zstd --direct=ssh --dedup --retries=0 --no-bootstrap --fast -oA=1";
        let typed = way(typed, all);
        assert_eq!((typed.way.ssh.len(), typed.way.parallel, typed.way.plane), (1, Some(2), Plane::Ssh));
        assert_eq!((typed.way.compress, typed.way.retries), (Compress::Zstd, 0));
        assert!(typed.way.dedup && !typed.bootstrap && typed.way.fast);
        assert_eq!(typed.way.options, ["-o", "A=1"]);
        assert!(way("--bootstrap", "").bootstrap && way("--no-bootstrap --bootstrap", "").bootstrap);
        assert!(!way("--remote-program=x", "bootstrap = true").bootstrap);
        assert!(!way("--no-dedup", "").way.dedup && !way("--dedup --no-dedup", "").way.dedup);
        assert_eq!(way("--direct", "").way.plane, Plane::Direct);
        assert_eq!(way("--compress=none", "compress = 'zstd'").way.compress, Compress::None);
        assert_eq!(way("", "parallel = 2\n[host.h]\nparallel = 7\n").way.parallel, Some(7));
    }

    #[test]
    fn what_a_remote_copy_refuses() {
        for (line, config, say) in [
            ("copy --reflink=always a h:b", "", "--reflink=always cannot hold"),
            ("copy --reflink h:a b", "", "--reflink=always cannot hold"),
            ("copy --files-from l h:a h:b c", "", "with --files-from there is exactly one source"),
            ("copy --ssh= a h:b", "", "--ssh names no command"),
            ("copy --ssh=\" a h:b", "", "--ssh has a quote that is not closed"),
            ("copy a h:b", "ssh = ''", "ssh in the configuration names no command"),
            ("copy a h:b", "ssh = []", "ssh in the configuration names no command"),
            ("copy a h:b", "parallel = 0", "parallel in the configuration is not in 1..=64"),
            ("copy a h:b", "parallel = 65", "parallel in the configuration is not in 1..=64"),
            ("copy --remote-program=a;b a h:b", "", "'a;b' cannot be what bcmr is called there"),
            ("copy --remote-program=-x a h:b", "", "'-x' cannot be what bcmr is called there"),
            ("copy --remote-program=~/x a h:b", "", "'~/x' cannot be what bcmr is called there"),
            ("copy a h:b", "program = 'a b'", "'a b' cannot be what bcmr is called there"),
        ] {
            let usage = try_remote(line, config).err().unwrap_or_else(|| panic!("{line} was taken"));
            assert!(usage.said.starts_with(say), "{line}: {}", usage.said);
        }
        for line in ["copy --manifest m h:a b", "copy --files-from l h:a c", "copy --reflink=disable a h:b"] {
            try_remote(line, "").unwrap_or_else(|u| panic!("{line}: {u:?}"));
        }
    }

    #[test]
    fn what_a_local_copy_refuses() {
        for (line, say) in [
            ("copy --parallel 2 a b", "--parallel has a meaning only with another machine"),
            ("copy -o X=1 a b", "-o has a meaning only with another machine"),
            ("copy --bootstrap a b", "--bootstrap has a meaning only with another machine"),
            ("copy --fast a b", "--fast goes with -C"),
        ] {
            let usage = try_copy(line).err().unwrap_or_else(|| panic!("{line} was taken"));
            assert!(usage.said.starts_with(say), "{line}: {}", usage.said);
        }
        assert_eq!(policy("-C --fast").resume, Resume::Fast);
    }

    /// D7: what scp would lose of what was asked for.
    #[test]
    fn what_is_lost_without_a_peer() {
        for (flags, want) in [
            ("", &[][..]),
            ("-r", &[]),
            ("-rL", &[]),
            ("-q --compress=zstd --parallel=2 --no-dedup", &[]),
            ("--fast --inplace --sparse=never -j3", &[]),
            ("-V", &["-V"]),
            ("-V=direct", &["-V"]),
            ("-C", &["-C"]),
            ("-s", &["-s"]),
            ("-a", &["-a"]),
            ("--sync", &["--sync"]),
            ("--archive", &["--archive"]),
            ("-p", &["--preserve"]),
            ("--preserve=links", &["--preserve"]),
            ("-f", &["-f"]),
            ("-i", &["-i"]),
            ("--no-clobber", &["--no-clobber"]),
            ("-u", &["--update"]),
            ("-n", &["-n"]),
            ("-e x", &["--exclude"]),
            ("--exclude-regex x", &["--exclude-regex"]),
            ("--gitignore", &["--gitignore"]),
            ("--files-from l", &["--files-from"]),
            ("-x", &["-x"]),
            ("-rP", &["-P"]),
            ("-rH", &["-H"]),
            ("-H", &[]),
            ("--sparse=always", &["--sparse"]),
            ("--direct", &["--direct"]),
            ("--retries=2", &["--retries"]),
            ("-T", &["-T"]),
            ("-CV --sync", &["-V", "-C", "--sync"]),
        ] {
            let job =
                try_remote(&format!("copy {flags} a h:b"), "").unwrap_or_else(|u| panic!("{flags}: {u:?}"));
            assert_eq!(job.unkept, want, "{flags}");
        }
        assert_eq!(try_remote("copy -T h:a b", "").unwrap_or_else(|u| panic!("{u:?}")).unkept, ["-T"]);
    }

    /// Every verb against every kind of name with a colon, there on this machine or not.
    #[test]
    fn names_with_colons() {
        const HERE: IsHere<'_> = &|_| true;
        #[derive(Debug, PartialEq)]
        enum Taken {
            Here,
            There,
            Refused,
        }
        use Taken::{Here, Refused, There};
        let of = |line: &str, is_here: IsHere<'_>| {
            let operands = |o: &Operands, c: &ConnectArgs| match places(o, c, is_here) {
                Ok(Places::Here) => Here,
                Ok(_) => There,
                Err(_) => Refused,
            };
            let looked = |a: &crate::args::LookArgs| match operand(&a.paths[0], &a.connect, is_here) {
                Ok(Operand::Here(path)) if path == a.paths[0] => Here,
                Ok(Operand::There(_)) => There,
                other => panic!("{other:?}"),
            };
            let fine = |fine: bool| if fine { Here } else { Refused };
            match parse(typed(line)).unwrap().command {
                Command::Copy(a) => operands(&a.operands, &a.connect),
                Command::Check(a) if a.manifest.is_some() => {
                    fine(check_manifest(&a, &env(), is_here).unwrap().is_ok())
                }
                Command::Check(a) => operands(&a.operands, &a.connect),
                Command::Move(a) => {
                    fine(move_(&a, &env()).is_ok_and(|(r, _)| r.sources == a.operands.paths[..1]))
                }
                Command::Remove(a) => fine(remove(&a, &env()).is_ok_and(|(r, _)| r.paths == a.paths)),
                Command::Sessions(a) => fine(sessions(&a, &env()).is_ok()),
                Command::Ls(a) => looked(&a.look),
                Command::Stat(a) => looked(&a.look),
                Command::Du(a) | Command::Hash(a) => looked(&a),
                other => panic!("{other:?}"),
            }
        };
        const STAY: [&str; 5] =
            ["move NAME b", "move a NAME", "remove NAME", "sessions NAME", "remove -f a NAME"];
        const GO: [&str; 8] = [
            "copy NAME b",
            "copy a NAME",
            "copy -t NAME a",
            "check NAME b",
            "ls NAME",
            "stat NAME",
            "du NAME",
            "hash NAME",
        ];
        // As an address it leads there, or it is none at all.
        for (name, absent) in [("2026-01-01T12:30:00.log", There), ("h:", There), ("me@h:x", There)] {
            for line in STAY {
                let line = line.replace("NAME", name);
                assert_eq!((of(&line, HERE), of(&line, NOTHING_HERE)), (Here, Here), "{line}");
            }
            for line in GO {
                let line = line.replace("NAME", name);
                assert_eq!((of(&line, HERE), of(&line, NOTHING_HERE)), (Here, There), "{line}, {absent:?}");
            }
        }
        for name in [":x", "a*b:y", "::1", "h:~root", "s3://x"] {
            for line in STAY {
                assert_eq!(of(&line.replace("NAME", name), NOTHING_HERE), Here, "{line} {name}");
            }
            for line in ["copy NAME b", "copy a NAME", "check NAME b"] {
                assert_eq!(of(&line.replace("NAME", name), NOTHING_HERE), Refused, "{line} {name}");
                let want = if name.contains("//") { Refused } else { Here };
                assert_eq!(of(&line.replace("NAME", name), HERE), want, "{line} {name}");
            }
        }
        // What says of itself that it is an address is one.
        for line in GO {
            assert_eq!(of(&line.replace("NAME", "ssh://h/x"), HERE), There, "{line}");
        }
        assert_eq!(of("check --manifest m h:b", NOTHING_HERE), Refused);
        assert_eq!(of("check --manifest m h:b", HERE), Here);
        let paths = ["a", "./b:c", "h:x", ":y", "ssh://h/x"].map(PathBuf::from);
        assert_eq!(mistakable(&paths, HERE), [Path::new("h:x"), Path::new(":y")]);
        assert!(mistakable(&paths, NOTHING_HERE).is_empty());
    }

    #[test]
    fn serving() {
        let with = |line: &str, config: &str, env: &Env| match parse(typed(line)).unwrap().command {
            Command::Serve(a) => {
                let config = crate::config::parse(config, Path::new("c"))?;
                serve(&a, store_keep(&config)?, env)
            }
            other => panic!("{other:?}"),
        };
        let of = |line: &str, env: &Env| with(line, "", env);
        let env = Env { stderr_tty: false, ..env() };
        let request = of("serve", &env).unwrap();
        assert_eq!(request.store, Some(("/home/me/.cache/bcmr/cas".into(), 1024 << 20, 0)));
        assert_eq!((request.root, request.read_only, request.home), (None, false, "/home/me".into()));
        let own = Env {
            store_dir: Some("/s".into()),
            store_cap_mb: Some("0".into()),
            store_keep: Some("2G".into()),
            ..env.clone()
        };
        let request = of("serve --root /r -j2", &own).unwrap();
        assert_eq!(
            (request.store, request.root, request.jobs),
            (Some(("/s".into(), 0, 2 << 30)), Some("/r".into()), 2)
        );
        for (said, config, keep) in [(None, "3G", 3 << 30), (Some("1M"), "3G", 1 << 20), (Some("0"), "3G", 0)]
        {
            let env = Env { store_keep: said.map(Into::into), ..env.clone() };
            let request = with("serve", &format!("store.keep = '{config}'"), &env).unwrap();
            assert_eq!(request.store.unwrap().2, keep, "{said:?}");
        }
        let said = with("serve", "store.keep = 'much'", &env).unwrap_err().said;
        assert_eq!(said, "store.keep in the configuration is no size: 'much'");
        assert_eq!(of("serve --no-store", &own).unwrap().store, None);
        assert_eq!(of("serve --read-only", &own).unwrap().store, None);
        assert_eq!(of("serve", &Env { cache_dir: None, ..env.clone() }).unwrap().store, None);
        for cap in ["x", "-1", "1.5", "99999999999999999999", "18446744073709551615"] {
            assert!(of("serve", &Env { store_cap_mb: Some(cap.into()), ..env.clone() }).is_err(), "{cap}");
        }
        assert!(of("serve", &Env { store_dir: Some("s".into()), ..env.clone() }).is_err());
        assert!(of("serve", &Env { stdout_tty: true, ..env.clone() }).is_err());
        assert!(of("serve", &Env { stdin_tty: true, ..env }).is_err());
    }

    #[test]
    fn a_move_loses_nothing() {
        let (request, show) = try_move("mv a b");
        let p = request.policy;
        assert!(p.recursive && p.specials && !request.merge);
        assert_eq!((p.preserve, p.follow, p.verify), (Preserve::ALL, Follow::Never, Verify::Cached));
        assert_eq!(show.again, Again::WithMerge);
        assert_eq!(try_move("move -V=direct a b").0.policy.verify, Verify::Direct);
        for (flags, want) in [
            ("-i -f", Collide::Replace),
            ("-f -i", Collide::Ask),
            ("-i --no-clobber", Collide::Keep),
            ("--no-clobber -f", Collide::Replace),
            ("-u", Collide::IfOlder),
        ] {
            assert_eq!(try_move(&format!("move {flags} a b")).0.policy.collide, want, "{flags}");
        }
        assert!(try_move("move -n a b").0.policy.dry_run);
    }

    #[test]
    fn removing() {
        let r = remove_of("rm a");
        assert!(!r.recursive && !r.force && !r.ask && r.one_file_system && !r.empty_dirs);
        let r = remove_of("remove -fi a");
        assert!(r.ask && !r.force);
        let r = remove_of("remove -rif --cross-file-systems a");
        assert!(r.force && !r.ask && r.recursive && !r.one_file_system);
        assert!(!remove_of("remove --one-file-system --no-one-file-system a").one_file_system);
        assert!(remove_of("remove --cross-file-systems --one-file-system a").one_file_system);
        assert!(remove_of("remove -f").paths.is_empty());
    }

    #[test]
    fn checking() {
        let of = |line: &str| match parse(typed(line)).unwrap().command {
            Command::Check(a) => check(&a, &env()).unwrap().0,
            other => panic!("{other:?}"),
        };
        let c = of("check a b");
        assert!(c.extra && c.policy.recursive);
        assert_eq!((c.compare, c.policy.follow), (Compare::ContentInDoubt, Follow::Operands));
        assert_eq!(of("check --quick a b").compare, Compare::SizeAndTime);
        let c = of("check -u -a --inplace a b").policy;
        assert_eq!((c.collide, c.resume, c.landing), (Collide::IfOlder, Resume::Append, Landing::InPlace));
        assert_eq!(of("check -r a b").policy.follow, Follow::Never);
        let c = of("check --hash --no-extra -e x a b");
        assert_eq!((c.compare, c.extra, c.policy.filter.rules.len()), (Compare::Hash, false, 1));
    }

    #[test]
    fn showing() {
        let of = |flags: &str, env: &Env| match parse(typed(&format!("copy {flags} a b"))).unwrap().command {
            Command::Copy(a) => copy(&a, env).unwrap_or_else(|u| panic!("{u:?}")).show,
            other => panic!("{other:?}"),
        };
        let tty = env();
        let pipe = Env { stderr_tty: false, ..env() };
        let dumb = Env { dumb: true, ..env() };
        for (flags, env, want) in [
            ("", &tty, Meter::Inline),
            ("", &pipe, Meter::Off),
            ("", &dumb, Meter::Off),
            ("-q", &tty, Meter::Off),
            ("--progress=never", &tty, Meter::Off),
            ("--progress", &pipe, Meter::Lines),
            ("--progress", &dumb, Meter::Lines),
            ("--json", &pipe, Meter::Events),
            ("--json -q", &tty, Meter::Off),
        ] {
            assert_eq!(of(flags, env).meter, want, "{flags}");
        }
        for (flags, items) in [("", false), ("-v", true), ("-n", true), ("-nq", false), ("--json", true)] {
            assert_eq!(of(flags, &pipe).items, items, "{flags}");
        }
        let last = of("-v -q", &pipe);
        assert!(last.quiet && !last.verbose);
        assert_eq!(of("", &tty).again, Again::WithUpdate);
        assert_eq!(of("-u", &tty).again, Again::Same);
        assert_eq!(of("--inplace", &tty).again, Again::Same);
    }
}
