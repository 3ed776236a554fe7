//! What was typed. Validates words and numbers and does nothing else.
//!
//! Must not know what any of it means, nor the environment it was typed in: that is `resolve`. Help, completions and
//! man pages are made from these definitions and from nothing else.

use clap::{ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap::{ValueHint, parser::ValueSource};
use std::ffi::OsString;
use std::path::PathBuf;

/// Exit codes as every long help and man page states them; `say::exit_code` is where they are made.
const EXIT_STATUS: &str = "Exit status:
  0    everything was done
  1    some items failed and the others were done, or nothing could be begun
  2    the arguments make no sense
  4    what landed differs from what was read; it was not published
  5    a source changed while it was read; it was not published
  6    no space left
  7    no connection to the other machine, or it was lost
  8    a guard refused (a copy into itself, removing /, source and destination the same)
  128+n  stopped by signal n (130 is Ctrl-C)";

const CHECK_STATUS: &str = "Exit status:
  0    a copy would change nothing
  1    a copy would change something
  2    trouble: something could not be compared, or the arguments make no sense
  128+n  stopped by signal n (130 is Ctrl-C)";

const SESSIONS_STATUS: &str = "Exit status:
  0    everything was listed, and removed where that was asked for; also when there is nothing
  1    something could not be read or removed
  2    the arguments make no sense
  128+n  stopped by signal n (130 is Ctrl-C)";

const COPY_EXAMPLES: &str = "Examples:
  bcmr copy -r photos /mnt/disk          photos becomes /mnt/disk/photos
  bcmr copy --archive -T photos backup   backup becomes what photos is
  bcmr copy -rn -e '*.o' src /tmp        say what would be copied
  bcmr copy -rC photos me@host:backup    to another machine; the same command goes on after a break
  bcmr copy host:/var/log/syslog .       and from one";

const LOOK_STATUS: &str = "Exit status:
  0    everything was told
  1    something could not be looked at
  2    the arguments make no sense
  7    no connection to the other machine, or it was lost";

const DOCTOR_STATUS: &str = "Exit status:
  0    a copy would go from bcmr to bcmr
  1    it would fall back, or not get there
  2    the arguments make no sense";

/// One safe, fast binary for copying, moving, removing and comparing files.
#[derive(Debug, Parser)]
#[command(
    name = "bcmr",
    version,
    about,
    // `-V` is --verify; the version has only its long name.
    disable_version_flag = true,
    args_override_self = true,
    arg_required_else_help = true,
    subcommand_required = true,
    max_term_width = 100,
    after_long_help = EXIT_STATUS
)]
pub struct Cli {
    /// Print the version
    #[arg(long, action = ArgAction::Version)]
    version: Option<bool>,
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
    /// A name the destination already has is replaced atomically: whoever reads it sees the old content or the new,
    /// never half of it.
    #[command(
        visible_alias = "cp",
        override_usage = "bcmr copy [OPTIONS] SRC DST\n       bcmr copy [OPTIONS] SRC... DIR\n       \
                          bcmr copy [OPTIONS] -t DIR SRC...\n       bcmr copy [OPTIONS] --files-from FILE BASE DIR",
        after_long_help = format!("{COPY_EXAMPLES}\n\n{EXIT_STATUS}")
    )]
    Copy(Box<CopyArgs>),
    /// Move files and directories
    ///
    /// Renames where that is possible. Elsewhere it copies everything there is to keep, reads back what landed, and
    /// only then removes what was copied.
    #[command(
        visible_alias = "mv",
        override_usage = "bcmr move [OPTIONS] SRC DST\n       bcmr move [OPTIONS] SRC... DIR\n       \
                          bcmr move [OPTIONS] -t DIR SRC...",
        after_long_help = EXIT_STATUS
    )]
    Move(MoveArgs),
    /// Remove files and directories
    #[command(
        visible_alias = "rm",
        override_usage = "bcmr remove [OPTIONS] PATH...",
        after_long_help = EXIT_STATUS
    )]
    Remove(RemoveArgs),
    /// Say what a copy would change
    ///
    /// Compares exactly the pair a `copy` of the same arguments would make. `+` would be added, `~` would be
    /// replaced, `-` only the destination has. Directories are always compared with what is in them.
    #[command(
        override_usage = "bcmr check [OPTIONS] SRC DST\n       bcmr check [OPTIONS] SRC... DIR\n       \
                          bcmr check [OPTIONS] -t DIR SRC...\n       bcmr check --manifest FILE DIR",
        after_long_help = CHECK_STATUS
    )]
    Check(CheckArgs),
    /// List what interrupted copies left, or remove it
    ///
    /// Looks below DIR for files and directories that `copy -C` or `-s` has not finished, and for what any killed copy
    /// left. The same copy command again goes on with them; without it they stay until they are removed.
    #[command(override_usage = "bcmr sessions [OPTIONS] [DIR]", after_long_help = SESSIONS_STATUS)]
    Sessions(SessionsArgs),
    /// List a directory, here or on another machine
    #[command(override_usage = "bcmr ls [OPTIONS] PATH...", after_long_help = LOOK_STATUS)]
    Ls(LsArgs),
    /// Say what a name is, here or on another machine
    #[command(override_usage = "bcmr stat [OPTIONS] PATH...", after_long_help = LOOK_STATUS)]
    Stat(StatArgs),
    /// Say how much is below a path, here or on another machine
    #[command(override_usage = "bcmr du [OPTIONS] PATH...", after_long_help = LOOK_STATUS)]
    Du(LookArgs),
    /// Print the BLAKE3 of files as b3sum does, here or on another machine
    #[command(override_usage = "bcmr hash [OPTIONS] FILE...", after_long_help = LOOK_STATUS)]
    Hash(LookArgs),
    /// Say which way a copy to or from a host would go, and why
    #[command(override_usage = "bcmr doctor [OPTIONS] HOST", after_long_help = DOCTOR_STATUS)]
    Doctor(HostArgs),
    /// Put this program into the cache of a host that lacks it
    ///
    /// It is copied over ssh into ${XDG_CACHE_HOME:-$HOME/.cache}/bcmr/bin there, under a name that holds its version and
    /// hash, where later copies of the same version find it. The host must run the same system on the same kind of
    /// processor.
    #[command(override_usage = "bcmr deploy [OPTIONS] HOST", after_long_help = LOOK_STATUS)]
    Deploy(HostArgs),
    /// Speak to a bcmr on another machine, over standard input and output
    ///
    /// The other one starts this by ssh; nobody types it. For a key that may only copy below a directory, put
    /// command="bcmr serve --root DIR",restrict before it in authorized_keys.
    #[command(override_usage = "bcmr serve [OPTIONS]")]
    Serve(ServeArgs),
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages
    #[command(hide = true)]
    Man {
        /// Directory to write every page into; without it, bcmr(1) goes to standard output
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

// -a, -s and -C belong to going on with an interrupted copy, which is why --archive has no letter.
#[derive(Debug, Args)]
pub struct CopyArgs {
    #[command(flatten)]
    pub operands: Operands,
    /// Copy directories with what is in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Read the names to copy, one a line, from FILE (- is standard input); they are below BASE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "files_from0")]
    pub files_from: Option<PathBuf>,
    /// The same, each name ended by a NUL
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files_from0: Option<PathBuf>,
    /// Stay on the file system of each SRC
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Follow DST where it is a symbolic link also when SRC is on another machine, which may have put the link there
    #[arg(long)]
    pub follow_destination: bool,
    #[command(flatten)]
    pub links: LinkArgs,
    #[command(flatten)]
    pub filters: FilterArgs,
    #[command(flatten)]
    pub keep: KeepArgs,
    #[command(flatten)]
    pub collide: CopyCollideArgs,
    #[command(flatten)]
    pub how: HowArgs,
    /// Share blocks with the source where the file system can, from 8 KiB on; alone it means always, at any length
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always",
        default_value = "auto",
        hide_default_value = true
    )]
    pub reflink: SharingArg,
    /// Keep holes (auto), make more of them from zeros (always), or write everything out (disable)
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always",
        default_value = "auto",
        hide_default_value = true
    )]
    pub sparse: SharingArg,
    /// Write into the file that is there instead of replacing it: keeps its inode, gives up atomicity
    #[arg(long)]
    pub inplace: bool,
    /// Write the BLAKE3 of every file into FILE, as b3sum does, with names relative to the destination
    ///
    /// Files that are left alone because they are the same are in it too. It appears when all was copied; `b3sum -c`
    /// in the destination and `bcmr check --manifest FILE DIR` prove it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["fast", "dry_run", "append"])]
    pub manifest: Option<PathBuf>,
    #[command(flatten)]
    pub resume: ResumeArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Going on with an interrupted copy")]
pub struct ResumeArgs {
    /// Go on where the same command stopped; what was there is proved before it gets its name
    #[arg(short = 'C', long, conflicts_with_all = ["strict", "append"])]
    pub resume: bool,
    /// The same, but hash source and unfinished file again before anything is added
    #[arg(short = 's', long, conflicts_with = "append")]
    pub strict: bool,
    /// Add what is missing at the end of the file that is there, once what it has is proved to be how the source begins;
    /// size believes that by its length
    #[arg(
        short = 'a',
        long,
        value_name = "PROOF",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "hash"
    )]
    pub append: Option<AppendArg>,
    /// With -C: only the last recorded block is checked, nothing is hashed; trusts that nobody touched the rest. To or
    /// from another machine, with and without -C: what is sent is not hashed
    #[arg(long, conflicts_with_all = ["verify", "strict", "append"])]
    pub fast: bool,
    /// Bytes between two checkpoints, a multiple of 4 MiB (64M is 64 MiB); smaller files have none
    #[arg(long, value_name = "SIZE", value_parser = checkpoint_size, default_value = "64M")]
    pub checkpoint_size: u64,
}

/// `--append`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AppendArg {
    Hash,
    Size,
}

/// A size in bytes: `K` and `KiB` are 1024, `KB` is 1000, and so on for M, G and T.
pub fn size(typed: &str) -> Result<u64, String> {
    let end = typed.find(|c: char| !c.is_ascii_digit()).unwrap_or(typed.len());
    let (digits, unit) = typed.split_at(end);
    let power = |letter: &str| match letter {
        "k" | "K" => Some(1),
        "m" | "M" => Some(2),
        "g" | "G" => Some(3),
        "t" | "T" => Some(4),
        _ => None,
    };
    let unit = match (unit, unit.strip_suffix("iB"), unit.strip_suffix('B')) {
        ("" | "B", ..) => Some(1),
        (_, Some(letter), _) => power(letter).map(|p| 1024_u64.pow(p)),
        (_, None, Some(letter)) => power(letter).map(|p| 1000_u64.pow(p)),
        (letter, None, None) => power(letter).map(|p| 1024_u64.pow(p)),
    };
    let bytes = digits.parse::<u64>().ok().zip(unit).and_then(|(n, unit)| n.checked_mul(unit));
    bytes.ok_or_else(|| {
        "a number of bytes is needed; K, M, G, T behind it are powers of 1024, KB, MB, GB, TB of 1000".into()
    })
}

/// The same, a positive multiple of 4 MiB.
fn checkpoint_size(typed: &str) -> Result<u64, String> {
    match size(typed) {
        Ok(bytes) if bytes > 0 && bytes % (4 << 20) == 0 => Ok(bytes),
        _ => Err("a positive multiple of 4M is needed".into()),
    }
}

/// The same, a positive multiple of 4 KiB and at most 64 MiB.
fn block_size(typed: &str) -> Result<usize, String> {
    match size(typed).map(usize::try_from) {
        Ok(Ok(bytes)) if bytes > 0 && bytes % (4 << 10) == 0 && bytes <= 64 << 20 => Ok(bytes),
        _ => Err("a positive multiple of 4K is needed, at most 64M".into()),
    }
}

#[derive(Debug, Args)]
pub struct MoveArgs {
    #[command(flatten)]
    pub operands: Operands,
    /// Merge a directory into one that is already there
    #[arg(long)]
    pub merge: bool,
    #[command(flatten)]
    pub filters: FilterArgs,
    #[command(flatten)]
    pub collide: MoveCollideArgs,
    #[command(flatten)]
    pub how: HowArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// What to remove
    #[arg(value_name = "PATH", required_unless_present = "force", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Remove directories with what is in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Remove empty directories too
    #[arg(short, long)]
    pub dir: bool,
    /// What is not there is no error; never ask
    #[arg(short, long, overrides_with = "interactive")]
    pub force: bool,
    /// Ask before every removal
    #[arg(short, long, overrides_with = "force")]
    pub interactive: bool,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Leave other file systems below a PATH alone (on unless --cross-file-systems is given)
    #[arg(long, overrides_with = "cross_file_systems")]
    pub one_file_system: bool,
    /// Enter other file systems too
    #[arg(long, alias = "no-one-file-system", overrides_with = "one_file_system")]
    pub cross_file_systems: bool,
    #[command(flatten)]
    pub jobs: JobsArg,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub operands: Operands,
    /// As for copy; directories are compared with what is in them in any case
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Compare the contents of all files by BLAKE3, and not only of those that have another modification time
    #[arg(long, conflicts_with = "quick")]
    pub hash: bool,
    /// Read no contents: a file with another modification time counts as different
    #[arg(long)]
    pub quick: bool,
    /// Prove that what FILE says (as copy --manifest or b3sum wrote it; - is standard input) holds below DIR
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub manifest: Option<PathBuf>,
    /// Tell what only the destination has (the default)
    #[arg(long, overrides_with = "no_extra")]
    pub extra: bool,
    /// Do not tell what only the destination has
    #[arg(long, overrides_with = "extra")]
    pub no_extra: bool,
    /// Stay on the file system of each SRC
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Follow DST where it is a symbolic link also when SRC is on another machine, which may have put the link there
    #[arg(long)]
    pub follow_destination: bool,
    #[command(flatten)]
    pub links: LinkArgs,
    #[command(flatten)]
    pub filters: FilterArgs,
    #[command(flatten)]
    pub keep: KeepArgs,
    #[command(flatten)]
    pub as_copy: AsCopyArgs,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub jobs: JobsArg,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "As the copy would be told")]
pub struct AsCopyArgs {
    /// Leave names alone that are already there
    #[arg(long)]
    pub no_clobber: bool,
    #[command(flatten)]
    pub update: UpdateArg,
    /// Write into the file that is there instead of replacing it
    #[arg(long)]
    pub inplace: bool,
    /// Go on where the same command stopped
    #[arg(short = 'C', long, conflicts_with_all = ["strict", "append"])]
    pub resume: bool,
    /// The same, and what looks the same is read
    #[arg(short = 's', long, conflicts_with = "append")]
    pub strict: bool,
    /// Add what is missing at the end of the file that is there; size goes by its length
    #[arg(
        short = 'a',
        long,
        value_name = "PROOF",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "hash"
    )]
    pub append: Option<AppendArg>,
    /// With -C: what looks the same is read
    #[arg(short = 'V', long)]
    pub verify: bool,
}

#[derive(Debug, Args)]
pub struct SessionsArgs {
    /// Where to look, and below it
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Remove what is unfinished; what a running copy is at stays
    #[arg(long)]
    pub clean: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

// How a connection is made; for every command that makes one. A `///` here would become the commands' own sentence.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connecting to another machine")]
pub struct ConnectArgs {
    /// Connect with CMD instead of ssh; it is split into words as a shell would, but no shell runs
    #[arg(long, value_name = "CMD")]
    pub ssh: Option<String>,
    /// Pass OPTION to ssh, as in ssh_config
    #[arg(short = 'o', long = "ssh-option", value_name = "OPTION")]
    pub option: Vec<OsString>,
    /// Jump over the host DEST
    #[arg(short = 'J', long, value_name = "DEST")]
    pub jump: Option<OsString>,
    /// Log in with the private key in FILE; what ssh calls -i, which asks before replacing here
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub identity: Vec<OsString>,
    /// Read FILE instead of ~/.ssh/config
    #[arg(short = 'F', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ssh_config: Option<OsString>,
    /// Connect to port N, where the address names none
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// What bcmr is called on the other machine: a word or a path, without spaces
    #[arg(long, value_name = "PATH", conflicts_with = "bootstrap")]
    pub remote_program: Option<String>,
    /// Put this program into the other machine's cache if it has none, and run it from there
    #[arg(long, overrides_with = "no_bootstrap")]
    pub bootstrap: bool,
    /// Do not, whatever the configuration says
    #[arg(long, overrides_with = "bootstrap")]
    pub no_bootstrap: bool,
    /// `-o`, `-J`, `--identity` and `-F` as ssh wants them, in the order they were typed.
    #[arg(skip)]
    pub passed: Vec<OsString>,
}

// How a copy travels.
#[derive(Debug, Args)]
#[command(next_help_heading = "Copies to and from another machine")]
pub struct RemoteArgs {
    /// Use N connections [default: by what there is to move]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub parallel: Option<u16>,
    /// Compress what is sent; auto does while the link is slower than that [default: auto]
    #[arg(long, value_name = "HOW", value_enum)]
    pub compress: Option<CompressArg>,
    /// Do not use the store of blocks on the other machine
    #[arg(long, overrides_with = "dedup")]
    pub no_dedup: bool,
    /// Use it, whatever the configuration says
    #[arg(long, overrides_with = "no_dedup")]
    pub dedup: bool,
    /// Send the data through ssh, or beside it through encrypted TCP connections (what --direct alone means)
    #[arg(
        long,
        value_name = "PLANE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "direct"
    )]
    pub direct: Option<PlaneArg>,
    /// Connect again by itself, at most N times, when the connection is lost
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub retries: Option<u32>,
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

#[derive(Debug, Args)]
pub struct LsArgs {
    /// Tell mode, owner, size and time of each name too
    #[arg(short, long)]
    pub long: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Debug, Args)]
pub struct StatArgs {
    /// Tell what a symbolic link leads to
    #[arg(short = 'L', long)]
    pub dereference: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Debug, Args)]
pub struct LookArgs {
    /// What to look at: a path, host:path, or ssh://host/path
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Say on standard error what was taken for a name on this machine although it looks like an address
    #[arg(short, long)]
    pub verbose: bool,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct HostArgs {
    /// The host: `[user@]host`, or `ssh://[user@]host[:port]`
    #[arg(value_name = "HOST", value_hint = ValueHint::Hostname)]
    pub host: OsString,
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Let nothing outside DIR be read or written; without it, what the user may
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub root: Option<PathBuf>,
    /// Change nothing
    #[arg(long)]
    pub read_only: bool,
    /// Remember no blocks of what arrives
    #[arg(long)]
    pub no_store: bool,
    #[command(flatten)]
    pub jobs: JobsArg,
}

#[derive(Debug, Args)]
pub struct Operands {
    /// Sources, then the destination: into it when it is a directory, else to that very name
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Every PATH is a source and goes into DIR
    #[arg(short = 't', long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub target_directory: Option<PathBuf>,
    /// DST is that very name, also when it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    pub no_target_directory: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Symbolic links in the source")]
pub struct LinkArgs {
    /// Copy links as links (the default with -r)
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "follow_operands"])]
    pub no_dereference: bool,
    /// Follow all links
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "follow_operands"])]
    pub dereference: bool,
    /// Follow those named as SRC (the default without -r)
    #[arg(short = 'H', overrides_with_all = ["dereference", "no_dereference"])]
    pub follow_operands: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "What takes part")]
pub struct FilterArgs {
    /// Leave out what matches GLOB (gitignore syntax); of all -e and --include, the last that matches decides
    #[arg(short, long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Take what matches GLOB although an earlier --exclude leaves it out
    #[arg(long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// Leave out what matches the regular expression RE, against the path below its SRC
    #[arg(long, value_name = "RE")]
    pub exclude_regex: Vec<String>,
    /// Leave out what the .gitignore files in the source leave out
    #[arg(long)]
    pub gitignore: bool,
    /// `--exclude` and `--include` in the order they were typed.
    #[arg(skip)]
    pub rules: Vec<RuleArg>,
}

/// One glob, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleArg {
    Exclude(String),
    Include(String),
}

#[derive(Debug, Args)]
#[command(next_help_heading = "What is kept")]
pub struct KeepArgs {
    /// Keep mode, owner and times
    #[arg(short = 'p')]
    pub plain: bool,
    /// Keep what LIST names; alone, the same as -p
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        num_args = 0..=1,
        require_equals = true,
        default_missing_values = ["mode", "ownership", "timestamps"]
    )]
    pub preserve: Vec<Attr>,
    /// Do not keep what LIST names
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', require_equals = true)]
    pub no_preserve: Vec<Attr>,
    /// Recursive, with everything kept, links as links, special files made anew; what cannot be kept is an error
    #[arg(long)]
    pub archive: bool,
    /// All of the above in the order typed, because the last word counts.
    #[arg(skip)]
    pub steps: Vec<KeepStep>,
}

/// One step in saying what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepStep {
    Plain,
    Keep(Attr),
    Drop(Attr),
    /// Holds whether `-P`, `-L` or `-H` came after it.
    Archive {
        links_said_later: bool,
    },
}

/// What can be kept. The first name is cp's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attr {
    Mode,
    #[value(alias = "owner")]
    Ownership,
    #[value(alias = "times")]
    Timestamps,
    Links,
    Xattr,
    Acl,
    All,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Names that are already there")]
pub struct CopyCollideArgs {
    /// Replace a destination that --inplace cannot open; without --inplace every one is replaced without being opened
    #[arg(short, long)]
    pub force: bool,
    /// Ask before replacing
    #[arg(short, long, overrides_with = "no_clobber")]
    pub interactive: bool,
    /// Leave names alone that are already there
    #[arg(long, overrides_with = "interactive")]
    pub no_clobber: bool,
    #[command(flatten)]
    pub update: UpdateArg,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

// As in mv, and unlike cp, the last of -f, -i and --no-clobber counts.
#[derive(Debug, Args)]
#[command(next_help_heading = "Names that are already there")]
pub struct MoveCollideArgs {
    /// Replace without asking (the default)
    #[arg(short, long, overrides_with_all = ["interactive", "no_clobber"])]
    pub force: bool,
    /// Ask before replacing
    #[arg(short, long, overrides_with_all = ["force", "no_clobber"])]
    pub interactive: bool,
    /// Leave names alone that are already there
    #[arg(long, overrides_with_all = ["force", "interactive"])]
    pub no_clobber: bool,
    #[command(flatten)]
    pub update: UpdateArg,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct UpdateArg {
    /// Replace only what is older than the source (-u alone), or what differs in size or time
    #[arg(
        short,
        long,
        value_name = "WHICH",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "older"
    )]
    pub update: Option<Update>,
}

/// `--update`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Update {
    Older,
    Different,
    All,
    None,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "How")]
pub struct HowArgs {
    #[command(flatten)]
    pub jobs: JobsArg,
    /// Read back what landed before its name appears; direct reads from the device
    #[arg(
        short = 'V',
        long,
        value_name = "FROM",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "cached"
    )]
    pub verify: Option<VerifyArg>,
    /// Exit only when everything is on the medium
    #[arg(long)]
    pub sync: bool,
    #[command(flatten)]
    pub io: IoArgs,
}

// How contents are read and written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reading and writing files on this machine")]
pub struct IoArgs {
    /// Read with plain system calls (sys), through io_uring (ring), or as the files are found (auto)
    ///
    /// auto takes the ring for batches of small files that are not in the page cache, where several reads under way save
    /// about a quarter of the time, and plain calls for everything else. Where there is no io_uring, or it is forbidden or
    /// fails, ring says so and plain calls are used. -v tells which was. A large file that -C or -s records goes by plain
    /// calls always, and so do files on FUSE.
    #[arg(long, value_name = "ENGINE", value_enum, default_value = "auto")]
    pub engine: EngineArg,
    /// Bytes of one operation of the ring, a multiple of 4K [default: 64K, with --direct-io 1M]
    ///
    /// Through the page cache 64K is most small files whole, and larger blocks fall out of the processor's cache. Past
    /// it each operation is one of the disk, and 64K took half as long again as 1M.
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    pub block_size: Option<usize>,
    /// Operations of the ring under way for one file
    ///
    /// Five keep a disk busy; sixteen were slower with --direct-io. Small files are one operation each, and many of them
    /// are under way at once whatever this says. A worker's ring takes 16M of memory at most, so with a large --block-size
    /// there are fewer.
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub queue_depth: u16,
    /// Files smaller than this never go through the ring
    ///
    /// The default keeps out what is read along with its inode.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1K")]
    pub async_threshold: u64,
    /// Reserve room for a large file (1M and more) before it is written, where that is faster, or do not
    ///
    /// Finding blocks page by page is a quarter of the time of a large copy. The length of the file is not touched.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub preallocate: PreallocateArg,
    /// Tell the kernel of all files of a batch before the first is read
    ///
    /// With --engine=sys it gives a cold cache most of what the ring does, at a system call a file. Off, because a warm
    /// cache pays for it and gains nothing.
    #[arg(long)]
    pub readahead: bool,
    /// Copy a source that changes while it is read: as many bytes as it had at first, with a warning
    ///
    /// For logs and other files that only grow. What is changed in place may be copied half old and half new. Without it a
    /// file that changes is tried once more, and is then an error.
    #[arg(long)]
    pub allow_changing: bool,
    /// Read and write large files (1M and more) past the page cache
    ///
    /// For a large file that is not in it: the copy takes a fraction of the CPU and pushes nothing else out. Off, because
    /// what is in the page cache would be read from the disk again. Files whose file system refuses, files with holes
    /// and smaller ones go the ordinary way; -v tells how many did not.
    #[arg(long)]
    pub direct_io: bool,
    /// Drop a large file's pages (16M and more) from the page cache behind the copy, so that it pushes out nothing else
    ///
    /// auto does so with -C, -s or --sync, where the copy waits for the disk anyway, for a file of which nothing is in
    /// the page cache. always does so for every large file. Dropped is what this run has written and, of the source, only
    /// what it has brought there: a source that is in use stays, and so does a file that is written into (--inplace,
    /// -a). --no-cache alone means always.
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always"
    )]
    pub no_cache: NoCacheArg,
    /// Milliseconds that one wait for the ring lasts before a look at whether to stop
    ///
    /// Waiting ends with the first operation that is done, so this costs nothing and gains nothing while the disk
    /// answers; it is how soon Ctrl-C is seen when it does not. 0 asks again and again without waiting, which takes a
    /// whole processor.
    #[arg(long, value_name = "MS", default_value = "5", value_parser = clap::value_parser!(u32).range(..=60_000))]
    pub completion_timeout: u32,
}

impl IoArgs {
    /// The first of these that is not as it is by default, as it is typed.
    pub fn first_typed(&self) -> Option<&'static str> {
        [
            (self.engine != EngineArg::Auto, "--engine"),
            (self.block_size.is_some(), "--block-size"),
            (self.queue_depth != 5, "--queue-depth"),
            (self.async_threshold != 1 << 10, "--async-threshold"),
            (self.preallocate != PreallocateArg::Auto, "--preallocate"),
            (self.readahead, "--readahead"),
            (self.direct_io, "--direct-io"),
            (self.no_cache != NoCacheArg::Auto, "--no-cache"),
            (self.completion_timeout != 5, "--completion-timeout"),
            (self.allow_changing, "--allow-changing"),
        ]
        .into_iter()
        .find_map(|(typed, flag)| typed.then_some(flag))
    }
}

/// `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    Auto,
    Sys,
    Ring,
}

/// `--no-cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NoCacheArg {
    Auto,
    Always,
    Never,
}

/// `--preallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PreallocateArg {
    Auto,
    #[value(alias = "never")]
    Disable,
}

#[derive(Debug, Args)]
pub struct JobsArg {
    /// Work on N things at once [default: number of cores, at most 8]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// `--verify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VerifyArg {
    Cached,
    Direct,
}

/// `--reflink` and `--sparse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SharingArg {
    Auto,
    Always,
    #[value(alias = "never")]
    Disable,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Name everything that is done
    #[arg(short, long, overrides_with = "quiet")]
    pub verbose: bool,
    /// Say nothing but what went wrong
    #[arg(short, long, overrides_with = "verbose")]
    pub quiet: bool,
    /// Show how far it is; auto is on a terminal, after a second
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always",
        default_value = "auto",
        hide_default_value = true
    )]
    pub progress: When,
    /// Print one JSON object a line for each event (docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// `--progress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    Auto,
    Always,
    Never,
}

/// Reads an argument vector, its first element the program's name.
pub fn parse<I>(argv: I) -> Result<Cli, clap::Error>
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    let matches = Cli::command().try_get_matches_from(argv)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    if let Some((_, m)) = matches.subcommand() {
        match &mut cli.command {
            Command::Copy(a) => {
                a.filters.order(m);
                a.keep.order(m);
                a.connect.order(m);
            }
            Command::Check(a) => {
                a.filters.order(m);
                a.keep.order(m);
                a.connect.order(m);
            }
            Command::Move(a) => a.filters.order(m),
            Command::Ls(a) => a.look.connect.order(m),
            Command::Stat(a) => a.look.connect.order(m),
            Command::Du(a) | Command::Hash(a) => a.connect.order(m),
            Command::Doctor(a) | Command::Deploy(a) => a.connect.order(m),
            Command::Remove(_)
            | Command::Sessions(_)
            | Command::Serve(_)
            | Command::Completions { .. }
            | Command::Man { .. } => {}
        }
    }
    Ok(cli)
}

/// The definitions, for completions and man pages, which build what is deferred.
pub fn command() -> clap::Command {
    Cli::command()
}

impl FilterArgs {
    fn order(&mut self, m: &ArgMatches) {
        let excludes = values(m, "exclude").map(|(at, glob): (usize, String)| (at, RuleArg::Exclude(glob)));
        let includes = values(m, "include").map(|(at, glob): (usize, String)| (at, RuleArg::Include(glob)));
        let mut rules: Vec<_> = excludes.chain(includes).collect();
        rules.sort_by_key(|r| r.0);
        self.rules = rules.into_iter().map(|r| r.1).collect();
    }
}

impl ConnectArgs {
    fn order(&mut self, m: &ArgMatches) {
        let mut passed: Vec<(usize, &str, OsString)> = Vec::new();
        for (id, flag) in [("option", "-o"), ("jump", "-J"), ("identity", "-i"), ("ssh_config", "-F")] {
            passed.extend(values(m, id).map(|(at, value)| (at, flag, value)));
        }
        passed.sort_by_key(|p| p.0);
        self.passed = passed.into_iter().flat_map(|(_, flag, value)| [flag.into(), value]).collect();
    }

    /// The first of these that was typed, as its name.
    pub fn first_typed(&self) -> Option<&'static str> {
        let typed = [
            (self.ssh.is_some(), "--ssh"),
            (!self.option.is_empty(), "-o"),
            (self.jump.is_some(), "-J"),
            (!self.identity.is_empty(), "--identity"),
            (self.ssh_config.is_some(), "-F"),
            (self.port.is_some(), "--port"),
            (self.remote_program.is_some(), "--remote-program"),
            (self.bootstrap, "--bootstrap"),
            (self.no_bootstrap, "--no-bootstrap"),
        ];
        typed.into_iter().find(|t| t.0).map(|t| t.1)
    }
}

impl RemoteArgs {
    /// The first of these that was typed, as its name.
    pub fn first_typed(&self) -> Option<&'static str> {
        let typed = [
            (self.parallel.is_some(), "--parallel"),
            (self.compress.is_some(), "--compress"),
            (self.no_dedup, "--no-dedup"),
            (self.dedup, "--dedup"),
            (self.direct.is_some(), "--direct"),
            (self.retries.is_some(), "--retries"),
        ];
        typed.into_iter().find(|t| t.0).map(|t| t.1)
    }
}

impl KeepArgs {
    fn order(&mut self, m: &ArgMatches) {
        let mut steps: Vec<(usize, KeepStep)> =
            values(m, "preserve").map(|(at, attr): (usize, Attr)| (at, KeepStep::Keep(attr))).collect();
        steps.extend(values(m, "no_preserve").map(|(at, attr): (usize, Attr)| (at, KeepStep::Drop(attr))));
        steps.extend(flag(m, "plain").map(|at| (at, KeepStep::Plain)));
        if let Some(at) = flag(m, "archive") {
            let links = ["no_dereference", "dereference", "follow_operands"];
            let links_said_later = links.iter().filter_map(|id| flag(m, id)).any(|link| link > at);
            steps.push((at, KeepStep::Archive { links_said_later }));
        }
        steps.sort_by_key(|s| s.0);
        self.steps = steps.into_iter().map(|s| s.1).collect();
    }
}

/// Each value of an argument with the place it was typed at.
fn values<T: Clone + Send + Sync + 'static>(m: &ArgMatches, id: &str) -> impl Iterator<Item = (usize, T)> {
    let places: Vec<usize> = m.indices_of(id).map(Iterator::collect).unwrap_or_default();
    let values: Vec<T> = m.get_many(id).map(|v| v.cloned().collect()).unwrap_or_default();
    places.into_iter().zip(values)
}

/// Where a flag was typed last; flags that were not typed have an index too, but another origin.
fn flag(m: &ArgMatches, id: &str) -> Option<usize> {
    (m.value_source(id) == Some(ValueSource::CommandLine)).then(|| m.index_of(id)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes() {
        for (typed, want) in [
            ("0", Some(0)),
            ("7B", Some(7)),
            ("64K", Some(65_536)),
            ("64k", Some(65_536)),
            ("64KiB", Some(65_536)),
            ("64KB", Some(64_000)),
            ("2M", Some(2 << 20)),
            ("2MB", Some(2_000_000)),
            ("1G", Some(1 << 30)),
            ("1GB", Some(1_000_000_000)),
            ("1TiB", Some(1 << 40)),
            ("1TB", Some(1_000_000_000_000)),
            ("16777216T", None),
            ("", None),
            ("K", None),
            ("-1", None),
            ("1.5M", None),
            ("1X", None),
            ("1Ki", None),
            ("1iB", None),
            ("1KBB", None),
            ("1 K", None),
        ] {
            assert_eq!(size(typed).ok(), want, "{typed:?}");
        }
    }

    #[test]
    fn order_across_exclude_and_include_is_kept() {
        let cli = parse(["bcmr", "copy", "-e", "a", "--include", "b", "s", "--exclude=c", "d"]).unwrap();
        let Command::Copy(copy) = cli.command else { panic!("{cli:?}") };
        let want = [RuleArg::Exclude("a".into()), RuleArg::Include("b".into()), RuleArg::Exclude("c".into())];
        assert_eq!(copy.filters.rules, want);
        assert_eq!(copy.operands.paths, [PathBuf::from("s"), PathBuf::from("d")]);
    }

    #[test]
    fn optional_values_never_eat_an_operand() {
        let words = ["bcmr", "copy", "--preserve", "--reflink", "-V", "--progress", "-u", "s", "d"];
        let cli = parse(words).unwrap();
        let Command::Copy(copy) = cli.command else { panic!("{cli:?}") };
        assert_eq!(copy.operands.paths.len(), 2);
        assert_eq!(copy.reflink, SharingArg::Always);
        assert_eq!(copy.how.verify, Some(VerifyArg::Cached));
        assert_eq!(copy.collide.update.update, Some(Update::Older));
        assert_eq!(copy.keep.preserve, [Attr::Mode, Attr::Ownership, Attr::Timestamps]);
    }

    #[test]
    fn what_ssh_gets_keeps_its_order() {
        let words =
            ["bcmr", "copy", "-o", "A=1", "-F", "f", "--identity", "k", "-J", "j", "-oB=2", "h:s", "d"];
        let cli = parse(words).unwrap();
        let Command::Copy(copy) = cli.command else { panic!("{cli:?}") };
        assert_eq!(copy.connect.passed, ["-o", "A=1", "-F", "f", "-i", "k", "-J", "j", "-o", "B=2"]);
        let cli = parse(["bcmr", "ls", "-J", "j", "h:"]).unwrap();
        let Command::Ls(ls) = cli.command else { panic!("{cli:?}") };
        assert_eq!(ls.look.connect.passed, ["-J", "j"]);
    }

    /// Each flag that only a connection has is known by name, so that a local copy can refuse it.
    #[test]
    fn flags_of_a_connection_are_told() {
        for (flag, name) in [
            ("--ssh=x", "--ssh"),
            ("-oX", "-o"),
            ("-Jx", "-J"),
            ("--identity=x", "--identity"),
            ("-Fx", "-F"),
            ("--port=1", "--port"),
            ("--remote-program=x", "--remote-program"),
            ("--bootstrap", "--bootstrap"),
            ("--no-bootstrap", "--no-bootstrap"),
            ("--parallel=1", "--parallel"),
            ("--compress=lz4", "--compress"),
            ("--no-dedup", "--no-dedup"),
            ("--dedup", "--dedup"),
            ("--direct", "--direct"),
            ("--retries=1", "--retries"),
        ] {
            let cli = parse(["bcmr", "copy", flag, "s", "d"]).unwrap();
            let Command::Copy(copy) = cli.command else { panic!("{cli:?}") };
            let typed = copy.connect.first_typed().or(copy.remote.first_typed());
            assert_eq!(typed, Some(name), "{flag}");
        }
        // Every flag of the two groups stands in the table above.
        let mut all = Cli::command();
        all.build();
        let copy = all.find_subcommand("copy").unwrap();
        let of =
            |heading: &str| copy.get_arguments().filter(|a| a.get_help_heading() == Some(heading)).count();
        assert_eq!(of("Connecting to another machine") + of("Copies to and from another machine"), 15);
    }

    #[test]
    fn short_flags_bundle_with_those_that_may_have_a_value() {
        let cli = parse(["bcmr", "copy", "-Vru", "s", "d"]).unwrap();
        let Command::Copy(copy) = cli.command else { panic!("{cli:?}") };
        assert!(copy.recursive && copy.how.verify.is_some() && copy.collide.update.update.is_some());
    }
}
