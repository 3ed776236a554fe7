//! `mv`: its options, and what they mean.
//!
//! Must not know how anything is moved.

use super::cp::UPDATES;
use super::here::{BACKUPS, BackupTyped, Here, Placed, print, stripped, version};
use super::options::{GetOpt, Table, Takes, Values, Wrong};
use bcmr_engine::policy::{Follow, Preserve};
use bcmr_engine::stepwise::{self, Onto, Over, Program, Update};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MvOption {
    Backup,
    Context,
    Debug,
    Exchange,
    Force,
    Interactive,
    NoClobber,
    NoCopy,
    StripSlashes,
    Suffix,
    Target,
    NoTarget,
    Update,
    Verbose,
    Help,
    Version,
}

pub const TABLE: Table<MvOption> = {
    use Takes::{Maybe, Nothing, Value};
    Table {
        program: "mv",
        shorts: &[
            (b'b', Nothing, MvOption::Backup),
            (b'f', Nothing, MvOption::Force),
            (b'i', Nothing, MvOption::Interactive),
            (b'n', Nothing, MvOption::NoClobber),
            (b'S', Value, MvOption::Suffix),
            (b't', Value, MvOption::Target),
            (b'T', Nothing, MvOption::NoTarget),
            (b'u', Nothing, MvOption::Update),
            (b'v', Nothing, MvOption::Verbose),
            (b'Z', Nothing, MvOption::Context),
        ],
        longs: &[
            ("backup", Maybe, MvOption::Backup),
            ("context", Nothing, MvOption::Context),
            ("debug", Nothing, MvOption::Debug),
            ("exchange", Nothing, MvOption::Exchange),
            ("force", Nothing, MvOption::Force),
            ("interactive", Nothing, MvOption::Interactive),
            ("no-clobber", Nothing, MvOption::NoClobber),
            ("no-copy", Nothing, MvOption::NoCopy),
            ("no-target-directory", Nothing, MvOption::NoTarget),
            ("strip-trailing-slashes", Nothing, MvOption::StripSlashes),
            ("suffix", Value, MvOption::Suffix),
            ("target-directory", Value, MvOption::Target),
            ("update", Maybe, MvOption::Update),
            ("verbose", Nothing, MvOption::Verbose),
            ("help", Nothing, MvOption::Help),
            ("version", Nothing, MvOption::Version),
        ],
    }
};

/// What may be typed behind an option.
pub fn values(option: MvOption) -> Values {
    match option {
        MvOption::Backup => Values::Words(Values::words(&BACKUPS)),
        MvOption::Update => Values::Words(Values::words(&UPDATES)),
        MvOption::Target => Values::Name,
        _ => Values::Free,
    }
}

const HELP: &str = "Usage: mv [OPTION]... [-T] SOURCE DEST
  or:  mv [OPTION]... SOURCE... DIRECTORY
  or:  mv [OPTION]... -t DIRECTORY SOURCE...
Renames or moves files and directories, with the options of GNU mv.

      --backup[=CONTROL], -b  keep what is replaced: none, simple, existing, numbered
      --exchange              let SOURCE and DEST change places
  -f, --force                 never ask
  -i, --interactive           ask before a name is replaced
  -n, --no-clobber            replace nothing (of -i, -f, -n the last counts)
      --no-copy               fail where it is another file system
      --strip-trailing-slashes  as if no SOURCE had slashes at its end
  -S, --suffix=SUFFIX         what simple backups end with, instead of ~
  -t, --target-directory=DIRECTORY  move all into DIRECTORY
  -T, --no-target-directory   take DEST for the very name
  -u, --update[=WHICH]        replace: all, none, none-fail, older (-u)
  -v, --verbose               tell each move
  -Z, --context               no effect: this build knows no SELinux
      --help, --version

To another file system it copies, reads back what landed, and removes a source only then.
";

/// Runs it.
pub fn run(words: impl Iterator<Item = OsString>, here: &Here<'_>) -> Result<u8, Wrong> {
    let mut words = GetOpt::new(TABLE, words, here.posixly);
    let mut o = here.plain(Program::Move);
    o.follow = Follow::Never;
    o.recursive = true;
    o.preserve = Preserve::ALL;
    let (mut placed, mut backup, mut strip) = (Placed::default(), BackupTyped::default(), false);
    while let Some((option, value)) = words.next()? {
        match option {
            MvOption::Help => return Ok(print(HELP)),
            MvOption::Version => return Ok(print(&version("mv"))),
            MvOption::Backup => backup.asks(value),
            MvOption::Context => {}
            MvOption::Exchange => o.exchange = true,
            MvOption::Force => o.over = Over::Always,
            MvOption::Interactive => o.over = Over::Ask,
            MvOption::NoClobber => o.over = Over::Never,
            MvOption::NoCopy => o.no_copy = true,
            MvOption::StripSlashes => strip = true,
            MvOption::Suffix => backup.suffix(value),
            MvOption::Target => placed.target(here, value)?,
            MvOption::NoTarget => placed.exactly = true,
            MvOption::Update => {
                o.update = match value {
                    None => Update::Older,
                    Some(word) => here.choose("--update", &word, &UPDATES)?,
                };
                if o.update == Update::None {
                    o.over = Over::Never;
                }
            }
            MvOption::Verbose | MvOption::Debug => o.verbose = true,
        }
    }
    placed.operands = words.operands;
    if o.exchange && placed.operands.len() == 2 && placed.into.is_none() {
        placed.exactly = true;
    }
    let target = match here.place(&mut placed)? {
        // The destination's go as well.
        Onto::Name(name) if strip => {
            let to = stripped(name.as_os_str());
            o.typed =
                placed.operands.first().filter(|_| !placed.exactly).map(|from| (PathBuf::from(from), name));
            Onto::Name(to)
        }
        target => target,
    };
    if backup.wanted && o.over == Over::Never {
        return Err(here.usage("options --backup and --no-clobber are mutually exclusive"));
    }
    (o.backup, o.suffix) = here.backup(&backup)?;
    let sources = placed.sources(strip);
    Ok(here.told(|teller| stepwise::move_(&sources, &target, &o, teller)))
}
