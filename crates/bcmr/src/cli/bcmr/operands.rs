//! Sources and destination, and which machine each is on. Must not know what is done with them.

use super::columns::{
    Columns,
    Holds::Everywhere,
    Row,
    Scp::{Keeps, Loses},
};
use super::connection::{ConnectArgs, with_port};
use crate::address::{self, Operand};
use crate::names;
use crate::usage::Usage;
use bcmr_engine::policy::{Above, Target};
use bcmr_engine::remote::Address;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, ValueHint};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Takes a name as it was typed. An empty one, as a variable without a value leaves it, is the name of nothing; no command
/// that has one is begun.
#[derive(Clone, Copy, Debug)]
pub struct NamedPath;

impl TypedValueParser for NamedPath {
    type Value = PathBuf;

    fn parse_ref(&self, _: &Command, _: Option<&Arg>, word: &OsStr) -> Result<PathBuf, clap::Error> {
        if word.is_empty() {
            return Err(clap::Error::raw(ErrorKind::InvalidValue, EMPTY_NAME));
        }
        Ok(word.into())
    }
}

const EMPTY_NAME: &str = "cannot stat '': No such file or directory
hint: one of the names is empty, as a variable without a value leaves it; nothing was done
";

#[derive(Debug, Args)]
pub struct Operands {
    /// Sources, then the destination (a directory or the new name)
    #[arg(value_name = "PATH", value_parser = NamedPath, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Every PATH is a source and goes into DIR
    #[arg(short = 't', long, value_name = "DIR", value_parser = NamedPath, value_hint = ValueHint::DirPath)]
    pub target_directory: Option<PathBuf>,
    /// DST is that very name, also when it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    pub no_target_directory: bool,
}

impl Columns for Operands {
    const ROWS: &'static [Row<Operands>] = &[
        Row("-T", Everywhere, Loses, |a| a.no_target_directory),
        Row("-t", Everywhere, Keeps, |a| a.target_directory.is_some()),
    ];
}

pub(super) fn operands(o: &Operands) -> Result<(Vec<PathBuf>, Target), Usage> {
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
    let target = if o.no_target_directory { Target::Exactly(last) } else { Target::Guess(last) };
    if !target.takes(sources.len()) {
        return Err(Usage::new(format!("with -T there is one source; there are more after {first}")));
    }
    Ok((sources, target))
}

/// `--mkpath`.
pub(super) fn above(mkpath: bool) -> Above {
    if mkpath { Above::Made } else { Above::Needed }
}

/// What was typed as operands, the directory of `-t` included.
pub fn all_operands(o: &Operands) -> impl Iterator<Item = &PathBuf> {
    o.paths.iter().chain(&o.target_directory)
}

/// Where `--files-from` reads names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesFrom {
    /// `None` is standard input.
    pub file: Option<PathBuf>,
    /// What ends a name.
    pub separator: u8,
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
    /// The sources are on another one, and the destination on a third: what is sent goes through here.
    Between { from: Vec<Address>, to: Address, target: fn(PathBuf) -> Target },
}

impl Places {
    /// Whether what is copied goes to another machine.
    pub fn is_put(&self) -> bool {
        matches!(self, Places::Put { .. } | Places::Between { .. })
    }

    /// Whether the machine that it goes to sees if the destination is a directory. For several sources it must be one.
    pub fn guessed_there(&self) -> bool {
        let (sources, target) = match self {
            Places::Put { sources, target, .. } => (sources.len(), target),
            Places::Between { from, target, .. } => (from.len(), target),
            Places::Here | Places::Get { .. } => return false,
        };
        sources == 1 && matches!(target(PathBuf::new()), Target::Guess(_))
    }

    /// The other machine.
    pub fn address(&self) -> Option<&Address> {
        match self {
            Places::Here => None,
            Places::Put { to, .. } => Some(to),
            Places::Get { from, .. } | Places::Between { from, .. } => from.first(),
        }
    }
}

/// Tells which machine is which. Every operand is looked at before anything else is done.
pub fn places(o: &Operands, connect: &ConnectArgs, is_here: IsHere<'_>) -> Result<Places, Usage> {
    // What is missing is told when the request is made.
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
    let destination = parse(target.path(), is_here)?;
    let Some((first, typed)) = there.first() else {
        let Operand::There(to) = destination else { return Ok(Places::Here) };
        let to = with_port(to, connect, target.path())?;
        return Ok(Places::Put { sources: here, to, target: meant(&target) });
    };
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
    let to = match destination {
        Operand::Here(_) => None,
        Operand::There(to) => Some(with_port(to, connect, target.path())?),
    };
    let from = there.into_iter().map(|t| t.0).collect();
    Ok(match to {
        None => Places::Get { from, target },
        Some(to) => Places::Between { from, to, target: meant(&target) },
    })
}

/// How a target is meant, whatever its path is.
fn meant(target: &Target) -> fn(PathBuf) -> Target {
    match target {
        Target::Guess(_) => Target::Guess,
        Target::Into(_) => Target::Into,
        Target::Exactly(_) => Target::Exactly,
    }
}

/// Whether a name is there on this machine.
pub type IsHere<'a> = &'a dyn Fn(&Path) -> bool;

/// An operand taken apart. A name with a colon that is there on this machine is a name on this machine, whatever it would
/// be as an address; `ssh://` cannot be mistaken for one.
pub(super) fn parse(path: &Path, is_here: IsHere<'_>) -> Result<Operand, Usage> {
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

/// One operand of a command that looks, or the host of one that is about a host.
pub fn operand(path: &Path, connect: &ConnectArgs, is_here: IsHere<'_>) -> Result<Operand, Usage> {
    match parse(path, is_here)? {
        Operand::There(address) => with_port(address, connect, path).map(Operand::There),
        here => Ok(here),
    }
}
