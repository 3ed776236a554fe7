//! How another machine is reached and how a copy travels there: what was typed, then what the configuration says, then the
//! defaults. Must not know what is copied.

use super::columns::{
    Columns,
    Holds::There,
    Row,
    Scp::{Keeps, Loses, LosesIf},
};
use super::order::{FromPlaces, InOrder, values as values_of};
use super::size::rate;
use crate::address;
use crate::config::{CompressWord, Config, PlaneWord};
use crate::names;
use crate::usage::Usage;
use crate::values;
use bcmr_engine::remote::{Address, Compress, Plane, RunAs, Way};
use bcmr_engine::throttle::Throttle;
use clap::{ArgMatches, Args, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

// How a connection is made; for every command that makes one. A `///` here would become the commands' own sentence.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connecting to another machine")]
pub struct ConnectArgs {
    #[command(flatten)]
    pub passed: InOrder<Passed>,
    /// Connect with CMD instead of ssh; it is split into words as a shell would, but no shell runs
    #[arg(hide_short_help = true, long, value_name = "CMD")]
    pub ssh: Option<String>,
    /// Pass OPTION to ssh, as in ssh_config
    #[arg(hide_short_help = true, short = 'o', long = "ssh-option", value_name = "OPTION")]
    pub option: Vec<OsString>,
    /// Jump over the host DEST
    #[arg(hide_short_help = true, short = 'J', long, value_name = "DEST")]
    pub jump: Option<OsString>,
    /// Log in with the private key in FILE; what ssh calls -i, which asks before replacing here
    #[arg(hide_short_help = true, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub identity: Vec<OsString>,
    /// Read FILE instead of ~/.ssh/config
    #[arg(hide_short_help = true, short = 'F', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ssh_config: Option<OsString>,
    /// Connect to port N, where the address names none
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// What bcmr is called on the other machine: a word or a path, without spaces
    #[arg(hide_short_help = true, long, value_name = "PATH", conflicts_with = "bootstrap")]
    pub remote_program: Option<String>,
    /// Run it there as USER by sudo; a password that it needs is asked for once, as ssh asks [default: root]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "USER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "root",
        conflicts_with = "bootstrap"
    )]
    pub remote_sudo: Option<String>,
    /// Put this program into the other machine's cache if it has none, and run it from there
    #[arg(hide_short_help = true, long, overrides_with = "no_bootstrap")]
    pub bootstrap: bool,
    /// Do not, whatever the configuration says
    #[arg(hide_short_help = true, long, overrides_with = "bootstrap")]
    pub no_bootstrap: bool,
    /// Of connections nothing was typed: what there is comes from the configuration.
    #[arg(skip)]
    pub by_default: bool,
}

// How a copy travels.
#[derive(Debug, Args)]
#[command(next_help_heading = "Copies to and from another machine")]
pub struct RemoteArgs {
    /// Use N connections [default: by what there is to move, and how far]
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = clap::value_parser!(u16).range(values::PARALLEL))]
    pub parallel: Option<u16>,
    /// Compress what is sent; auto does while the link is slower than that [default: auto]
    #[arg(hide_short_help = true, long, value_name = "HOW", value_enum)]
    pub compress: Option<CompressArg>,
    /// Do not use the store of blocks at the destination
    #[arg(hide_short_help = true, long, overrides_with = "dedup")]
    pub no_dedup: bool,
    /// Use it, whatever the configuration says
    #[arg(hide_short_help = true, long, overrides_with = "no_dedup")]
    pub dedup: bool,
    /// Send files whole, also where the receiver has an older version of them
    #[arg(hide_short_help = true, short = 'W', long)]
    pub whole_file: bool,
    /// Send the data through ssh, or beside it through encrypted TCP connections (what --direct alone means)
    #[arg(
        hide_short_help = true,
        long,
        value_name = "PLANE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "direct"
    )]
    pub direct: Option<PlaneArg>,
    /// Connect again by itself, at most N times, when the connection is lost
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = clap::value_parser!(u32).range(values::RETRIES))]
    pub retries: Option<u32>,
    /// Between two other machines: have the bcmr on the source's machine send, which reaches the other one by itself
    #[arg(hide_short_help = true, long)]
    pub via_source: bool,
    /// Send and receive at most RATE bytes a second, both together (1M is 1 MiB); bcmr ctl changes it meanwhile
    #[arg(hide_short_help = true, long, value_name = "RATE", value_parser = rate)]
    pub bwlimit: Option<u64>,
}

/// `--compress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompressArg {
    Auto,
    Zstd,
    Lz4,
    None,
}

/// `--direct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlaneArg {
    Ssh,
    Direct,
}

impl ConnectArgs {
    /// What is said where nothing is typed.
    pub fn none() -> ConnectArgs {
        ConnectArgs {
            ssh: None,
            option: Vec::new(),
            jump: None,
            identity: Vec::new(),
            ssh_config: None,
            port: None,
            remote_program: None,
            remote_sudo: None,
            bootstrap: false,
            no_bootstrap: false,
            passed: InOrder::default(),
            by_default: false,
        }
    }
}

/// `-o`, `-J`, `--identity` and `-F` as ssh wants them, in the order they were typed.
#[derive(Debug, Default)]
pub struct Passed(pub Vec<OsString>);

impl FromPlaces for Passed {
    fn from_places(m: &ArgMatches) -> Passed {
        let mut passed: Vec<(usize, &str, OsString)> = Vec::new();
        for (id, flag) in [("option", "-o"), ("jump", "-J"), ("identity", "-i"), ("ssh_config", "-F")] {
            passed.extend(values_of(m, id).map(|(at, value)| (at, flag, value)));
        }
        passed.sort_by_key(|p| p.0);
        Passed(passed.into_iter().flat_map(|(_, flag, value)| [flag.into(), value]).collect())
    }
}

impl Columns for ConnectArgs {
    const ROWS: &'static [Row<ConnectArgs>] = &[
        Row("--ssh", There, Keeps, |a| a.ssh.is_some()),
        Row("-o", There, Keeps, |a| !a.option.is_empty()),
        Row("-J", There, Keeps, |a| a.jump.is_some()),
        Row("--identity", There, Keeps, |a| !a.identity.is_empty()),
        Row("-F", There, Keeps, |a| a.ssh_config.is_some()),
        Row("--port", There, Keeps, |a| a.port.is_some()),
        Row("--remote-program", There, Keeps, |a| a.remote_program.is_some()),
        Row("--remote-sudo", There, LosesIf(|a| a.remote_sudo.is_some()), |a| a.remote_sudo.is_some()),
        Row("--bootstrap", There, Keeps, |a| a.bootstrap),
        Row("--no-bootstrap", There, Keeps, |a| a.no_bootstrap),
    ];
}

impl Columns for RemoteArgs {
    const ROWS: &'static [Row<RemoteArgs>] = &[
        Row("--parallel", There, Keeps, |a| a.parallel.is_some()),
        Row("--compress", There, Keeps, |a| a.compress.is_some()),
        Row("--no-dedup", There, Keeps, |a| a.no_dedup),
        Row("--dedup", There, Keeps, |a| a.dedup),
        Row("--whole-file", There, Keeps, |a| a.whole_file),
        Row("--direct", There, LosesIf(|a| a.direct == Some(PlaneArg::Direct)), |a| a.direct.is_some()),
        Row("--retries", There, LosesIf(|a| a.retries.is_some_and(|n| n > 0)), |a| a.retries.is_some()),
        Row("--bwlimit", There, Loses, |a| a.bwlimit.is_some()),
        Row("--via-source", There, Loses, |a| a.via_source),
    ];
}

/// Flags of a connection, where there is none.
pub fn no_connection(connect: &ConnectArgs, remote: Option<&RemoteArgs>) -> Result<(), Usage> {
    match connect.only_there().or_else(|| remote?.only_there()).filter(|_| !connect.by_default) {
        Some(flag) => Err(Usage::new(format!("{flag} has a meaning only with another machine"))
            .or("an operand on another machine is written host:path")),
        None => Ok(()),
    }
}

/// `--port` is for addresses that name none.
pub(super) fn with_port(mut address: Address, connect: &ConnectArgs, typed: &Path) -> Result<Address, Usage> {
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

/// The host of a command that is about a host.
pub fn host(typed: &std::ffi::OsStr, connect: &ConnectArgs) -> Result<Address, Usage> {
    with_port(address::parse_host(typed)?, connect, Path::new(typed))
}

/// How to get to a machine, and what may be done there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    pub way: Way,
    /// This program may be put there.
    pub bootstrap: bool,
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
        (Some(line), _) => values::command(line).map_err(|why| Usage::new(format!("--ssh {why}")))?,
        (None, Some(words)) => words,
        (None, None) => vec!["ssh".into()],
    };
    let ssh = ssh.into_iter().map(OsString::from).collect();
    let program = c.remote_program.clone().or(file.program).unwrap_or_else(|| "bcmr".into());
    if !values::is_program(&program) {
        let said = format!("{} cannot be what bcmr is called there", names::quoted(Path::new(&program)));
        return Err(Usage::new(said).or(values::PROGRAM));
    }
    let parallel = r.and_then(|r| r.parallel).or(file.parallel);
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
        // Who names the program, or another user, does not want another one.
        _ => file.bootstrap.unwrap_or(false) && c.remote_program.is_none() && c.remote_sudo.is_none(),
    };
    let way = Way {
        ssh,
        options: c.passed.0.0.clone(),
        program,
        run_as: c.remote_sudo.clone().map_or(RunAs::Login, RunAs::Sudo),
        parallel: parallel.map(usize::from),
        plane,
        compress,
        fast,
        dedup,
        throttle: Arc::new(Throttle::new(r.and_then(|r| r.bwlimit))),
        whole_file: r.is_some_and(|r| r.whole_file),
        retries: r.and_then(|r| r.retries).or(file.retries).unwrap_or(0),
        shared: None,
    };
    Ok(Reach { way, bootstrap })
}
