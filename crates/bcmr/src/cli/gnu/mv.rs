//! `mv`: its options, and what they mean.
//!
//! Must not know how anything is moved.

use super::cp::UPDATES;
use super::options::{Table, Takes, Words, Wrong};
use super::{BackupTyped, Here, Placed};
use bcmr_engine::policy::{Follow, Preserve};
use bcmr_engine::stepwise::{self, Over, Purpose, Update};
use std::ffi::OsString;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Opt {
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

const TABLE: Table<Opt> = {
    use Takes::{Maybe, Nothing, Value};
    Table {
        program: "mv",
        shorts: &[
            (b'b', Nothing, Opt::Backup),
            (b'f', Nothing, Opt::Force),
            (b'i', Nothing, Opt::Interactive),
            (b'n', Nothing, Opt::NoClobber),
            (b'S', Value, Opt::Suffix),
            (b't', Value, Opt::Target),
            (b'T', Nothing, Opt::NoTarget),
            (b'u', Nothing, Opt::Update),
            (b'v', Nothing, Opt::Verbose),
            (b'Z', Nothing, Opt::Context),
        ],
        longs: &[
            ("backup", Maybe, Opt::Backup),
            ("context", Nothing, Opt::Context),
            ("debug", Nothing, Opt::Debug),
            ("exchange", Nothing, Opt::Exchange),
            ("force", Nothing, Opt::Force),
            ("interactive", Nothing, Opt::Interactive),
            ("no-clobber", Nothing, Opt::NoClobber),
            ("no-copy", Nothing, Opt::NoCopy),
            ("no-target-directory", Nothing, Opt::NoTarget),
            ("strip-trailing-slashes", Nothing, Opt::StripSlashes),
            ("suffix", Value, Opt::Suffix),
            ("target-directory", Value, Opt::Target),
            ("update", Maybe, Opt::Update),
            ("verbose", Nothing, Opt::Verbose),
            ("help", Nothing, Opt::Help),
            ("version", Nothing, Opt::Version),
        ],
    }
};

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
    let mut words = Words::new(TABLE, words, here.posixly);
    let mut o = here.plain(Purpose::Move);
    o.follow = Follow::Never;
    o.recursive = true;
    o.preserve = Preserve::ALL;
    let (mut placed, mut backup, mut strip) = (Placed::default(), BackupTyped::default(), false);
    while let Some((option, value)) = words.next()? {
        match option {
            Opt::Help => return Ok(super::print(HELP)),
            Opt::Version => return Ok(super::print(&super::version("mv"))),
            Opt::Backup => backup.asks(value),
            Opt::Context => {}
            Opt::Exchange => o.exchange = true,
            Opt::Force => o.over = Over::Always,
            Opt::Interactive => o.over = Over::Ask,
            Opt::NoClobber => o.over = Over::Never,
            Opt::NoCopy => o.no_copy = true,
            Opt::StripSlashes => strip = true,
            Opt::Suffix => backup.suffix(value),
            Opt::Target => placed.target(here, value)?,
            Opt::NoTarget => placed.exactly = true,
            Opt::Update => {
                o.update = match value {
                    None => Update::Older,
                    Some(word) => here.choose("--update", &word, &UPDATES)?,
                };
            }
            Opt::Verbose | Opt::Debug => o.verbose = true,
        }
    }
    placed.operands = words.operands;
    if o.exchange && placed.operands.len() == 2 && placed.into.is_none() {
        placed.exactly = true;
    }
    let target = here.place(&mut placed)?;
    if backup.wanted && o.over == Over::Never {
        return Err(here.usage("options --backup and --no-clobber are mutually exclusive"));
    }
    (o.backup, o.suffix) = here.backup(&backup)?;
    let sources = placed.sources(strip);
    Ok(here.told(|teller| stepwise::move_(&sources, &target, &o, teller)))
}
