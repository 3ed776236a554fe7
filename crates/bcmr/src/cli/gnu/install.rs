//! `install`: its options, and what they mean.
//!
//! Must not know how anything is copied.

use super::here::{BACKUPS, BackupTyped, Here, Placed, print, version, warn};
use super::mode::{self, Mode};
use super::options::{GetOpt, Table, Takes, Values, Wrong};
use bcmr_engine::policy::Preserve;
use bcmr_engine::stepwise::{self, Given, Onto, Options, Program};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum InstallOption {
    Backup,
    Ignored,
    Compare,
    Context,
    Debug,
    Directories,
    Leading,
    Group,
    Mode,
    Owner,
    Times,
    Strip,
    StripProgram,
    Suffix,
    Target,
    NoTarget,
    Verbose,
    PreserveContext,
    Z,
    Help,
    Version,
}

pub const TABLE: Table<InstallOption> = {
    use Takes::{Maybe, Nothing, Value};
    Table {
        program: "install",
        shorts: &[
            (b'b', Nothing, InstallOption::Backup),
            (b'c', Nothing, InstallOption::Ignored),
            (b'C', Nothing, InstallOption::Compare),
            (b's', Nothing, InstallOption::Strip),
            (b'D', Nothing, InstallOption::Leading),
            (b'd', Nothing, InstallOption::Directories),
            (b'g', Value, InstallOption::Group),
            (b'm', Value, InstallOption::Mode),
            (b'o', Value, InstallOption::Owner),
            (b'p', Nothing, InstallOption::Times),
            (b'S', Value, InstallOption::Suffix),
            (b't', Value, InstallOption::Target),
            (b'T', Nothing, InstallOption::NoTarget),
            (b'v', Nothing, InstallOption::Verbose),
            (b'Z', Nothing, InstallOption::Z),
        ],
        longs: &[
            ("backup", Maybe, InstallOption::Backup),
            ("compare", Nothing, InstallOption::Compare),
            ("context", Maybe, InstallOption::Context),
            ("debug", Nothing, InstallOption::Debug),
            ("directory", Nothing, InstallOption::Directories),
            ("group", Value, InstallOption::Group),
            ("mode", Value, InstallOption::Mode),
            ("no-target-directory", Nothing, InstallOption::NoTarget),
            ("owner", Value, InstallOption::Owner),
            ("preserve-timestamps", Nothing, InstallOption::Times),
            ("preserve-context", Nothing, InstallOption::PreserveContext),
            ("strip", Nothing, InstallOption::Strip),
            ("strip-program", Value, InstallOption::StripProgram),
            ("suffix", Value, InstallOption::Suffix),
            ("target-directory", Value, InstallOption::Target),
            ("verbose", Nothing, InstallOption::Verbose),
            ("help", Nothing, InstallOption::Help),
            ("version", Nothing, InstallOption::Version),
        ],
    }
};

/// What may be typed behind an option.
pub fn values(option: InstallOption) -> Values {
    match option {
        InstallOption::Backup => Values::Words(Values::words(&BACKUPS)),
        InstallOption::Target | InstallOption::StripProgram => Values::Name,
        _ => Values::Free,
    }
}

const HELP: &str = "Usage: install [OPTION]... [-T] SOURCE DEST
  or:  install [OPTION]... SOURCE... DIRECTORY
  or:  install [OPTION]... -t DIRECTORY SOURCE...
  or:  install [OPTION]... -d DIRECTORY...
Copies files and gives them mode and owner, with the options of GNU install.

      --backup[=CONTROL], -b  keep what is replaced: none, simple, existing, numbered
  -c                          no effect
  -C, --compare               leave alone what is the same already
  -d, --directory             make directories, with all that lead to them
  -D                          make the directories that lead to DEST, or DIRECTORY of -t
  -g, --group=GROUP           group of what is made
  -m, --mode=MODE             its mode, instead of rwxr-xr-x
  -o, --owner=OWNER           its owner
  -p, --preserve-timestamps   the times of SOURCE
  -s, --strip                 run strip on it
      --strip-program=PROGRAM  run this instead
  -S, --suffix=SUFFIX         what simple backups end with, instead of ~
  -t, --target-directory=DIRECTORY  copy all into DIRECTORY
  -T, --no-target-directory   take DEST for the very name
  -v, --verbose               tell each directory and file
      --preserve-context, -Z, --context[=CTX]  no effect: this build knows no SELinux
      --help, --version
";

#[derive(Default)]
struct InstallLine {
    placed: Placed,
    backup: BackupTyped,
    compare: bool,
    directories: bool,
    group: Option<OsString>,
    mode: Option<OsString>,
    owner: Option<OsString>,
    times: bool,
    strip: bool,
    program: Option<OsString>,
    verbose: bool,
    preserve_context: bool,
}

/// Runs it.
pub fn run(words: impl Iterator<Item = OsString>, here: &Here<'_>) -> Result<u8, Wrong> {
    let mut words = GetOpt::new(TABLE, words, here.posixly);
    let mut typed = InstallLine::default();
    while let Some((option, value)) = words.next()? {
        match option {
            InstallOption::Help => return Ok(print(HELP)),
            InstallOption::Version => return Ok(print(&version("install"))),
            InstallOption::Backup => typed.backup.asks(value),
            InstallOption::Ignored | InstallOption::Z | InstallOption::Debug => {}
            InstallOption::Compare => typed.compare = true,
            InstallOption::Context => {
                if value.is_some() {
                    warn(here, "warning: ignoring --context; it requires an SELinux-enabled kernel");
                }
            }
            InstallOption::Directories => typed.directories = true,
            InstallOption::Leading => typed.placed.makes = true,
            InstallOption::Group => typed.group = value,
            InstallOption::Mode => typed.mode = value,
            InstallOption::Owner => typed.owner = value,
            InstallOption::Times => typed.times = true,
            InstallOption::Strip => typed.strip = true,
            InstallOption::StripProgram => typed.program = value,
            InstallOption::Suffix => typed.backup.suffix(value),
            InstallOption::Target => typed.placed.target(here, value)?,
            InstallOption::NoTarget => typed.placed.exactly = true,
            InstallOption::Verbose => typed.verbose = true,
            InstallOption::PreserveContext => {
                let line = "WARNING: ignoring --preserve-context; this kernel is not SELinux-enabled";
                warn(here, line);
                typed.preserve_context = true;
            }
        }
    }
    typed.placed.operands = words.operands;
    for_directories(&typed)?;
    let mut o = here.plain(Program::Install);
    // Modes are given and not left to the umask, also those of the directories on the way.
    o.umask = here.env.without_umask();
    (o.backup, o.suffix) = here.backup(&typed.backup)?;
    o.verbose = typed.verbose;
    o.unlink_first = true;
    if typed.directories {
        let paths = typed.placed.sources(false);
        if paths.is_empty() {
            return Err(here.usage("missing file operand"));
        }
        if let Some(third) = typed.placed.operands.get(2).filter(|_| typed.placed.exactly) {
            return Err(here.usage([b"extra operand ", &here.quoted(third)[..]].concat()));
        }
        let given = check(&mut typed, here)?;
        return Ok(here.told(|teller| stepwise::install_dirs(&paths, true, Some(&given), &o, teller)));
    }
    let into = typed.placed.into.clone();
    typed.placed.accesses = true;
    let target = here.place(&mut typed.placed)?;
    let given = check(&mut typed, here)?;
    o.given = Some(given);
    o.preserve =
        Preserve { times: typed.times, owner: given.uid.is_some() || given.gid.is_some(), ..Preserve::NONE };
    let sources = typed.placed.sources(false);
    let leading = match (&target, into) {
        _ if !typed.placed.makes => None,
        (_, Some(dir)) => Some((PathBuf::from(dir), true)),
        (Onto::Name(name), None) => Some((name.clone(), false)),
        _ => None,
    };
    let strip = typed.strip.then(|| typed.program.clone().unwrap_or_else(|| "strip".into()));
    o.alters = strip.is_some();
    Ok(here.told_stripping(strip, |teller| {
        if let Some((path, last_too)) = leading
            && !stepwise::install_dirs(&[path], last_too, None, &Options { given: None, ..o.clone() }, teller)
        {
            return false;
        }
        stepwise::copy(&sources, &target, &o, teller)
    }))
}

/// What does not go with `-d`.
fn for_directories(typed: &InstallLine) -> Result<(), Wrong> {
    if typed.directories {
        if typed.strip {
            return Err(Wrong::line(
                "install",
                "the strip option may not be used when installing a directory",
            ));
        }
        if typed.placed.into.is_some() {
            let line = "target directory not allowed when installing a directory";
            return Err(Wrong::line("install", line));
        }
    }
    Ok(())
}

/// Who gets it and what it may do.
fn check(typed: &mut InstallLine, here: &Here<'_>) -> Result<Given, Wrong> {
    let mut mode = Mode::exactly(0o755);
    if let Some(text) = &typed.mode {
        let parsed = text.to_str().and_then(|text| mode::parse(text, typed.directories));
        let Some(parsed) = parsed else { return Err(invalid("mode", text, here)) };
        mode = parsed;
    }
    if typed.compare && typed.times {
        let line = "options --compare (-C) and --preserve-timestamps are mutually exclusive";
        return Err(here.usage(line));
    }
    if typed.compare && typed.strip {
        return Err(here.usage("options --compare (-C) and --strip are mutually exclusive"));
    }
    if typed.program.is_some() && !typed.strip {
        warn(here, "WARNING: ignoring --strip-program option as -s option was not specified");
    }
    if typed.compare && mode.bits & 0o7000 != 0 {
        let line = "the --compare (-C) option is ignored when you specify a mode with non-permission bits";
        warn(here, line);
        typed.compare = false;
    }
    let number = |what: &str, named: &Option<OsString>, of: fn(&std::ffi::CStr) -> Option<u32>| {
        let Some(word) = named else { return Ok(None) };
        let known = CString::new(word.as_bytes()).ok().and_then(|word| of(&word));
        let digits = || word.to_str().and_then(|word| word.parse::<u32>().ok());
        known.or_else(digits).map(Some).ok_or_else(|| invalid(what, word, here))
    };
    let uid = number("user", &typed.owner, bcmr_engine::stepwise::user_number)?;
    let gid = number("group", &typed.group, bcmr_engine::stepwise::group_number)?;
    Ok(Given { mode: mode.bits, said: mode.said, uid, gid, compare: typed.compare })
}

fn invalid(what: &str, word: &OsStr, here: &Here<'_>) -> Wrong {
    let word = super::messages::locale_quoted(here.locale, word.as_bytes());
    Wrong::line("install", [b"invalid ", what.as_bytes(), b" ", &word[..]].concat())
}
