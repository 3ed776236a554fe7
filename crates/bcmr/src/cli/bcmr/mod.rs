//! This program's own command line: one file for each verb, with what may be typed beside the request that it means, and one
//! for each group of options that verbs share. Help, completions and man pages are made from these definitions.
//!
//! Must not know how a request is carried out, nor read the environment: that is given.

pub mod check;
mod collide;
mod columns;
pub mod connection;
pub mod copy;
pub mod ctl;
pub mod defaults;
mod fake_super;
pub mod filters;
pub mod foreign;
mod how;
mod io;
mod jobs;
mod links;
pub mod look;
mod metadata;
pub mod move_;
pub mod operands;
mod order;
mod output;
mod owners;
pub mod places;
pub mod plan;
pub mod proof;
pub mod remote;
pub mod remove;
mod resume;
pub mod serve;
pub mod sessions;
pub mod settle;
pub mod size;
pub mod store;
pub mod sync;
#[cfg(test)]
mod tests;
pub mod undo;
pub mod via_source;
mod when;
pub mod words;

use check::CheckArgs;
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use copy::{CopyArgs, EXAMPLES, SHORT_EXAMPLES};
use ctl::CtlArgs;
use look::{DuArgs, HostArgs, LookArgs, LsArgs, MkdirArgs, StatArgs};
use move_::MoveArgs;
use plan::{FinishArgs, PlanArgs, ShardArgs};
use remove::RemoveArgs;
use serve::ServeArgs;
use sessions::SessionsArgs;
use std::ffi::OsString;
use std::path::PathBuf;
use sync::SyncArgs;
use undo::UndoArgs;

/// Exit codes as every long help and man page states them; `say::exit_code` makes them.
const EXIT_STATUS: &str = "Exit status:
  0    everything was done
  1    some items failed and the others were done, or nothing could be begun
  2    the arguments make no sense
  4    what landed differs from what was read; it was not published
  5    a source changed while it was read; it was not published
  6    no space left
  7    no connection to the other machine, or it was lost
  8    a guard refused (a copy into itself, removing /, source and destination the same)
  12   no memory left; the same command goes on
  128+n  stopped by signal n (130 is Ctrl-C)";

/// What is no command of this program's own, or not for every day.
const ALSO: &str = "Also:
  cp, mv, rm, install  GNU's programs of these names; bcmr help cp has the options
  help letters         Letters that mean one thing to copy and another to cp
  man DIR              Write the man pages of bcmr and its own commands";

const CHECK_STATUS: &str = "Exit status:
  0    a copy would change nothing
  1    a copy would change something
  2    trouble: something could not be compared, or the arguments make no sense
  12   no memory left
  128+n  stopped by signal n (130 is Ctrl-C)";

const SESSIONS_STATUS: &str = "Exit status:
  0    everything was listed, and removed where that was asked for; also when there is nothing
  1    something could not be read or removed
  2    the arguments make no sense
  12   no memory left
  128+n  stopped by signal n (130 is Ctrl-C)";

const CTL_STATUS: &str = "Exit status:
  0    what was asked for was told; also where nothing runs and that was asked
  1    no run could be told, or one of several could not
  2    the arguments make no sense
  12   no memory left";

const LOOK_STATUS: &str = "Exit status:
  0    everything was told
  1    something could not be looked at
  2    the arguments make no sense
  7    no connection to the other machine, or it was lost
  12   no memory left";

const MKDIR_STATUS: &str = "Exit status:
  0    every directory was made
  1    one could not be made, also where no space was left or a guard refused
  2    the arguments make no sense
  7    no connection to the other machine, or it was lost
  12   no memory left";

const DOCTOR_STATUS: &str = "Exit status:
  0    a copy would go from bcmr to bcmr
  1    it would fall back, or not get there
  2    the arguments make no sense
  12   no memory left";

const DEPLOY_STATUS: &str = "Exit status:
  0    this program is there, put there now or before
  1    it is not, for another reason than the connection
  2    the arguments make no sense
  7    no connection to the other machine, or it was lost
  12   no memory left";

/// One safe, fast binary for copying, moving, removing and comparing files.
#[derive(Debug, Parser)]
#[command(
    name = "bcmr",
    version,
    about,
    // `-V` is --verify behind a verb.
    disable_version_flag = true,
    args_override_self = true,
    arg_required_else_help = true,
    subcommand_required = true,
    max_term_width = 100,
    after_help = ALSO,
    after_long_help = format!("{ALSO}\n\n{EXIT_STATUS}")
)]
pub struct Cli {
    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
    /// Leave out what the configuration has as defaults
    #[arg(long, global = true, hide_short_help = true)]
    pub no_defaults: bool,
    /// With --version: its commit, target and features too
    #[arg(short, long, requires = "version")]
    verbose: bool,
    #[command(subcommand)]
    pub command: Command,
}

// Only the arguments of the command that was typed are built: the others would be a good part of a short run's time.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
#[allow(clippy::large_enum_variant)] // there is one of them, for the whole run
pub enum Command {
    /// Copy files and directories
    ///
    /// A name that the destination already has is replaced atomically: a reader sees the old content or the new,
    /// never half of it.
    #[command(
        override_usage = "bcmr copy [OPTIONS] SRC DST\n       bcmr copy [OPTIONS] SRC... DIR\n       \
                          bcmr copy [OPTIONS] -t DIR SRC...\n       bcmr copy [OPTIONS] --files-from FILE BASE DIR",
        after_help = SHORT_EXAMPLES,
        after_long_help = format!("{EXAMPLES}\n\n{EXIT_STATUS}")
    )]
    Copy(Box<CopyArgs>),
    /// Move files and directories
    ///
    /// Renames where that is possible. Elsewhere it copies everything there is to keep, reads back what landed, and
    /// only then removes what was copied.
    #[command(
        override_usage = "bcmr move [OPTIONS] SRC DST\n       bcmr move [OPTIONS] SRC... DIR\n       \
                          bcmr move [OPTIONS] -t DIR SRC...",
        after_help = move_::EXAMPLES,
        after_long_help = format!("{}\n\n{EXIT_STATUS}", move_::EXAMPLES)
    )]
    Move(MoveArgs),
    /// Remove files and directories
    #[command(
        override_usage = "bcmr remove [OPTIONS] PATH...",
        after_help = remove::EXAMPLES,
        after_long_help = format!("{}\n\n{EXIT_STATUS}", remove::EXAMPLES)
    )]
    Remove(RemoveArgs),
    /// Say what a copy would change
    ///
    /// Compares exactly the pair a `copy` of the same arguments would make. `+` would be added, `~` would be
    /// replaced, `-` only the destination has. Directories are always compared with what is in them.
    #[command(
        override_usage = "bcmr check [OPTIONS] SRC DST\n       bcmr check [OPTIONS] SRC... DIR\n       \
                          bcmr check [OPTIONS] -t DIR SRC...\n       bcmr check --manifest FILE DIR",
        after_help = check::EXAMPLES,
        after_long_help = format!("{}\n\n{CHECK_STATUS}", check::EXAMPLES)
    )]
    Check(CheckArgs),
    /// Make one directory what another one is
    ///
    /// The contents of SRC become those of DST, whatever slashes are typed: everything below, with all attributes. What has
    /// the same size and modification time is left alone, and large files that a killed run had begun are gone on with.
    /// Nothing is deleted unless --delete says so. It goes one way; unison and Syncthing do both.
    #[command(
        override_usage = "bcmr sync [OPTIONS] SRC DST",
        after_help = sync::EXAMPLES,
        after_long_help = format!("{}\n\n{EXIT_STATUS}", sync::EXAMPLES)
    )]
    Sync(Box<SyncArgs>),
    /// Undo what a sync has done
    ///
    /// Puts back what a `sync` with --backup-dir or --trash has replaced or deleted, and takes away what it has made. What has
    /// changed since stays as it is, and is named.
    #[command(
        override_usage = "bcmr undo [OPTIONS] RECEIPT",
        after_help = undo::EXAMPLES,
        after_long_help = format!("{}\n\n{EXIT_STATUS}", undo::EXAMPLES)
    )]
    Undo(UndoArgs),
    /// Cut a copy into shards that any machines do
    ///
    /// Writes a plan: a directory of files that says which entries each shard has. Shards copy into one tree beside DST,
    /// which `bcmr finish` publishes. SRC, DST and the plan are on file systems that all machines see under the same paths.
    #[command(
        override_usage = "bcmr plan [OPTIONS] SRC DST --out PLAN\n       bcmr plan --status PLAN",
        after_help = plan::PLAN_EXAMPLES,
        after_long_help = format!("{}\n\n{EXIT_STATUS}", plan::PLAN_EXAMPLES)
    )]
    Plan(Box<PlanArgs>),
    /// Do a shard of a plan
    ///
    /// The same command goes on where a killed one stopped, and may be run twice or in two places at once. Everything is kept,
    /// as with `copy --archive`.
    #[command(
        override_usage = "bcmr shard [OPTIONS] PLAN K\n       bcmr shard [OPTIONS] PLAN --next\n       bcmr shard [OPTIONS] PLAN --all",
        after_long_help = EXIT_STATUS
    )]
    Shard(Box<ShardArgs>),
    /// Publish what the shards of a plan have copied
    ///
    /// While a shard is missing nothing is changed, and the shards to do again are named. What was published stands in
    /// PLAN/receipt, with a hash over everything, and the BLAKE3 of each file in PLAN/manifest.
    #[command(override_usage = "bcmr finish [OPTIONS] PLAN", after_long_help = EXIT_STATUS)]
    Finish(Box<FinishArgs>),
    /// List what interrupted copies left, or remove it
    ///
    /// Looks below DIR for files and directories that `copy -C` or `-s` has not finished, and for what any killed copy
    /// left. The same copy command again goes on with them; without it they stay until they are removed.
    #[command(override_usage = "bcmr sessions [OPTIONS] [DIR]", after_long_help = SESSIONS_STATUS)]
    Sessions(SessionsArgs),
    /// Slow down, pause or ask a run that goes to or from another machine
    ///
    /// Of this user, on this machine. A run that is paused sends and receives nothing, keeps its connection for a day, and goes
    /// on when it is resumed.
    #[command(
        override_usage = "bcmr ctl [OPTIONS] [status|pause|resume]\n       bcmr ctl [OPTIONS] limit RATE",
        after_help = ctl::EXAMPLES,
        after_long_help = format!("{}\n\n{CTL_STATUS}", ctl::EXAMPLES)
    )]
    Ctl(CtlArgs),
    /// List a directory, here or on another machine
    #[command(override_usage = "bcmr ls [OPTIONS] PATH...", after_long_help = LOOK_STATUS, disable_help_flag = true)]
    Ls(LsArgs),
    /// Say what a name is, here or on another machine
    #[command(override_usage = "bcmr stat [OPTIONS] PATH...", after_long_help = LOOK_STATUS)]
    Stat(StatArgs),
    /// Say how much is below a path, here or on another machine
    #[command(override_usage = "bcmr du [OPTIONS] PATH...", after_long_help = LOOK_STATUS, disable_help_flag = true)]
    Du(DuArgs),
    /// Print the BLAKE3 of files as b3sum does, here or on another machine
    #[command(override_usage = "bcmr hash [OPTIONS] FILE...", after_long_help = LOOK_STATUS)]
    Hash(LookArgs),
    /// Make directories, here or on another machine
    #[command(override_usage = "bcmr mkdir [OPTIONS] PATH...", after_long_help = MKDIR_STATUS)]
    Mkdir(MkdirArgs),
    /// Say which way a copy to or from a host would go, and why
    #[command(override_usage = "bcmr doctor [OPTIONS] HOST", after_long_help = DOCTOR_STATUS)]
    Doctor(HostArgs),
    /// Put this program into the cache of a host that lacks it
    ///
    /// It is copied over ssh into ${XDG_CACHE_HOME:-$HOME/.cache}/bcmr/bin there, under a name that holds its version and
    /// hash, where later copies of the same version find it. The host must run the same system on the same kind of
    /// processor.
    #[command(override_usage = "bcmr deploy [OPTIONS] HOST", after_long_help = DEPLOY_STATUS)]
    Deploy(HostArgs),
    /// Speak to a bcmr on another machine, over standard input and output
    ///
    /// The other bcmr starts this by ssh; it is not meant to be typed. For a key that may only copy below a directory, put
    /// command="bcmr serve --root DIR",restrict before it in authorized_keys.
    #[command(override_usage = "bcmr serve [OPTIONS]")]
    Serve(ServeArgs),
    /// Print shell aliases for cp, mv, rm and install
    ///
    /// For a shell's start file: eval "$(bcmr init bash)", the same with zsh, and bcmr init fish | source. The aliases take
    /// GNU's options with GNU's meanings; \cp and command cp still run the system's. Completions come along: of bcmr, of
    /// these aliases, and of those for bcmr that were there before.
    #[command(override_usage = "bcmr init [OPTIONS] SHELL")]
    Init(crate::cli::init::InitArgs),
    /// Print the JSON Schema of events
    #[command(override_usage = "bcmr schema")]
    Schema,
    /// Print what the configuration says: places, and defaults of verbs
    #[command(override_usage = "bcmr config")]
    Config,
    /// Print completions for a shell
    ///
    /// For a shell's start file: eval "$(bcmr completions bash)", the same with zsh, and bcmr completions fish | source.
    /// Hosts of ssh and places of the configuration are completed, and names on another machine while a connection to it
    /// is shared (ControlMaster in ssh_config).
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Do what another machine's bcmr was told with --via-source; it says it on standard input
    #[command(hide = true)]
    AtSource,
    /// Print what completes a word, one candidate a line
    #[command(hide = true)]
    Complete {
        /// Which of WORDS, from 0
        #[arg(long)]
        index: usize,
        /// The command line, the program's name first
        #[arg(last = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Write the man pages
    #[command(hide = true)]
    Man {
        /// Directory to write the page of each command into; without it, bcmr(1) goes to standard output
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

impl Command {
    /// Whether a plan says with which options it is done.
    pub fn is_planned(&self) -> bool {
        matches!(self, Command::Sync(a) if a.apply.is_some())
    }
}

/// Reads an argument vector, its first element the program's name.
pub fn parse<I>(argv: I) -> Result<Cli, clap::Error>
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    let line: Vec<OsString> = argv.into_iter().map(Into::into).collect();
    match parse_copy(&line) {
        Some(command) => Ok(Cli { version: None, no_defaults: false, verbose: false, command }),
        None => parse_any(line),
    }
}

/// By all definitions.
fn parse_any(line: Vec<OsString>) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches_mut(&mut Cli::command().try_get_matches_from(line)?)
}

/// The verb that is typed most, by its own definitions alone: building what says all about the others takes as long as a
/// copy of a small file. `None`: it is not that, or anything else but a copy was typed; the whole of it says what.
fn parse_copy(line: &[OsString]) -> Option<Command> {
    let [_, verb, typed @ ..] = line else { return None };
    if verb != "copy" {
        return None;
    }
    let definitions = CopyArgs::augment_args(clap::Command::new("copy").no_binary_name(true));
    let mut definitions = definitions.args_override_self(true);
    let mut matches = definitions.try_get_matches_from_mut(typed).ok()?;
    let copy = CopyArgs::from_arg_matches_mut(&mut matches).ok()?;
    // Given back piece by piece they would take a tenth of a short run's time; the process gives them back at its end.
    std::mem::forget((definitions, matches));
    Some(Command::Copy(Box::new(copy)))
}

/// The definitions, for completions and man pages, which build what is deferred.
pub fn command() -> clap::Command {
    Cli::command()
}
