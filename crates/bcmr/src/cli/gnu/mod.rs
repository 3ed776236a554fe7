//! `cp`, `mv`, `rm` and `install` as GNU's programs of these names: which of them is meant, and what all need.
//!
//! Must not know bcmr's own arguments. What is typed becomes options of `bcmr_engine::stepwise`, and what that tells
//! becomes the lines that scripts know.

mod cp;
mod here;
mod install;
mod messages;
mod mode;
mod mv;
mod options;
mod rm;

use crate::env::Env;
use crate::ui::writer;
use here::Here;
pub use options::Values;
use options::{Table, Takes};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Personality {
    Cp,
    Mv,
    Rm,
    Install,
}

impl Personality {
    /// All of them.
    pub const ALL: [Personality; 4] =
        [Personality::Cp, Personality::Mv, Personality::Rm, Personality::Install];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Personality::Cp => "cp",
            Personality::Mv => "mv",
            Personality::Rm => "rm",
            Personality::Install => "install",
        }
    }

    /// The one that a name means: its own, or the same with a `b` in front.
    pub fn of_name(name: &OsStr) -> Option<Personality> {
        let name = Path::new(name).file_name()?.to_str()?;
        Personality::ALL.into_iter().find(|p| name == p.name() || name.strip_prefix('b') == Some(p.name()))
    }

    /// Its long options, as they may be typed.
    pub fn long_words(self) -> Vec<String> {
        match self {
            Personality::Cp => cp::TABLE.long_words(),
            Personality::Mv => mv::TABLE.long_words(),
            Personality::Rm => rm::TABLE.long_words(),
            Personality::Install => install::TABLE.long_words(),
        }
    }

    /// What may be typed behind a long option, which may be abbreviated, and whether that may be the next word.
    pub fn values(self, long: &[u8]) -> Option<(Values, bool)> {
        fn of<O: Copy + PartialEq>(
            table: Table<O>,
            long: &[u8],
            values: fn(O) -> Values,
        ) -> Option<(Values, bool)> {
            let (_, takes, option) = table.named(long).ok()?;
            (*takes != Takes::Nothing).then(|| (values(*option), *takes == Takes::Value))
        }
        match self {
            Personality::Cp => of(cp::TABLE, long, cp::values),
            Personality::Mv => of(mv::TABLE, long, mv::values),
            Personality::Rm => of(rm::TABLE, long, rm::values),
            Personality::Install => of(install::TABLE, long, install::values),
        }
    }

    /// The one whose help is asked for as that of bcmr's own commands is: `bcmr help cp`.
    pub fn of_help(line: &[OsString]) -> Option<Personality> {
        let [_, help, word] = line else { return None };
        Personality::ALL.into_iter().find(|p| help == "help" && word == p.name())
    }

    /// Which one is meant by a command line, and how many words of it say so: the program's own name, or the first word.
    pub fn of_line(line: &[OsString]) -> Option<(Personality, usize)> {
        if let Some(named) = line.first().and_then(|name| Personality::of_name(name)) {
            return Some((named, 1));
        }
        let word = line.get(1)?;
        let named = Personality::ALL.into_iter().find(|p| word == p.name())?;
        Some((named, 2))
    }
}

/// Runs one of them. Returns the exit code.
pub fn run(personality: Personality, words: &[OsString], env: &Env) -> u8 {
    let here = Here::read(env, personality.name());
    let words = words.iter().cloned();
    let done = match personality {
        Personality::Cp => cp::run(words, &here),
        Personality::Mv => mv::run(words, &here),
        Personality::Rm => rm::run(words, &here),
        Personality::Install => install::run(words, &here),
    };
    match done {
        Ok(code) => code,
        Err(wrong) => {
            writer::err_bytes(&wrong.text);
            1
        }
    }
}
