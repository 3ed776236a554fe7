//! `bcmr init`: aliases for a shell; and `bcmr help letters`.
//!
//! Must not know what the programs do.

use super::gnu::Personality;
use clap::{Args, ValueEnum};
use std::ffi::OsString;

/// The shells whose aliases are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

// `bcmr init`. A `///` here would become the command's own sentence.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Which shell
    #[arg(value_enum)]
    pub shell: Shell,
    /// Put these letters in front of each name (`b`: bcp, bmv, brm, binstall), so that the old names stay what they are
    #[arg(long, value_name = "LETTERS", default_value = "", hide_default_value = true, value_parser = prefix)]
    pub prefix: String,
}

/// What may stand in a name that no shell reads anything into.
fn prefix(typed: &str) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if typed.bytes().all(plain) {
        Ok(typed.to_owned())
    } else {
        Err("letters, digits and _ are needed".into())
    }
}

/// The lines for the shell.
pub fn aliases(args: &InitArgs) -> String {
    let line = |p: Personality| {
        let (prefix, name) = (&args.prefix, p.name());
        match args.shell {
            Shell::Bash | Shell::Zsh => format!("alias {prefix}{name}='bcmr {name}'\n"),
            // `eval (...)` joins lines by spaces, where `... | source` keeps them. What fish itself knows of the name is put
            // aside: it is about another program.
            Shell::Fish => format!(
                "alias {prefix}{name} 'bcmr {name}';\ncomplete -c {prefix}{name} -e;\n\
                 complete -c {prefix}{name} -f -a '(__bcmr_complete)';\n"
            ),
        }
    };
    Personality::ALL.into_iter().map(line).collect()
}

/// Whether `bcmr help letters` was typed.
pub fn asks_for_letters(line: &[OsString]) -> bool {
    matches!(line.get(1..), Some([help, letters]) if help == "help" && letters == "letters")
}

/// Letters that mean one thing to `bcmr copy`, `move` and `remove`, and another to `bcmr cp`, `mv` and `rm`.
pub const LETTERS: &str = "\
Letters that differ between bcmr's own commands and the programs of GNU's names:

  letter  bcmr copy, move, remove                bcmr cp, mv, rm
  -a      --append: add what is missing          --archive: all attributes, recursively (there --archive)
  -C      --resume: go on where it stopped       install: leave alone what is the same
  -e      --exclude: leave out what matches      (none)
  -n      --dry-run: only say what would be      --no-clobber: replace nothing (there --no-clobber)
  -s      --strict: go on, everything proved     cp: make symbolic links
  -V      --verify: read back what landed        (none)
  -d      remove: empty directories              cp: links as links, hard links kept
  -q      --quiet                                (none)
  -b      (none)                                 --backup: keep what is replaced
  -l      (none)                                 cp: make hard links
  -S      (none)                                 --suffix of backups
  -I      (none)                                 rm: ask once

The same in both: -f -H -i -L -p -P -r -R -t -T -u -v -x. bcmr cp, mv, rm and install take GNU's options alone, and are also
what a link of that name to bcmr runs (cp, bcp, mv, bmv, rm, brm, install, binstall).
";
