//! Who speaks to a person: the name in front of each line, how an error is written, and what exit codes say.
//!
//! Must not know any sentence; those are those of `say`. A program that speaks otherwise is one more constant.

use crate::names;
use crate::say::words;
use bcmr_engine::error::{Code, Op};
use std::path::Path;

/// One program as a person hears it.
#[derive(Debug)]
pub struct Voice {
    /// What stands in front of a line.
    pub program: &'static str,
    /// How an error is written.
    pub style: Style,
    /// What exit codes say.
    pub exits: Exits,
}

/// How an error is written: `PROGRAM: cannot OP NAME: REASON`.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// What was tried, as a verb.
    pub op: fn(Op) -> String,
    /// A name, between whatever marks its ends, and with nothing in it that steers a terminal.
    pub name: fn(&Path) -> String,
}

/// The exit code of each way to end.
#[derive(Clone, Copy, Debug)]
pub struct Exits {
    /// Everything was done.
    pub done: u8,
    /// Some items failed and the others were done; or nothing could be begun. For `check`: there are differences.
    pub some_failed: u8,
    /// The arguments make no sense. For `check`: any trouble.
    pub usage: u8,
    /// What landed differs from what was read.
    pub mismatch: u8,
    /// A source changed while it was read.
    pub changed: u8,
    /// No space left.
    pub no_space: u8,
    /// There is no connection to the other machine, or it was lost.
    pub connection: u8,
    /// A guard refused.
    pub refused: u8,
    /// Plus the number of the signal that stopped it.
    pub signal: u8,
}

/// This program's own.
pub static BCMR: Voice = Voice {
    program: "bcmr",
    style: Style { op: words::op, name: names::quoted },
    exits: Exits {
        done: 0,
        some_failed: 1,
        usage: 2,
        mismatch: 4,
        changed: 5,
        no_space: 6,
        connection: 7,
        refused: 8,
        signal: 128,
    },
};

impl Exits {
    /// When nothing could be begun.
    pub fn of(&self, code: Code) -> u8 {
        match code {
            Code::Usage => self.usage,
            code => self.of_codes(&[code]).unwrap_or(self.some_failed),
        }
    }

    /// When items failed with these codes: the one that says most about the data speaks for all. `None`: none says more than
    /// that something failed.
    pub fn of_codes(&self, codes: &[Code]) -> Option<u8> {
        let has = |code| codes.contains(&code);
        if has(Code::Mismatch) {
            Some(self.mismatch)
        } else if has(Code::SourceChanged) {
            Some(self.changed)
        } else if has(Code::NoSpace) || has(Code::MetadataNoSpace) {
            Some(self.no_space)
        } else if has(Code::Refused) {
            Some(self.refused)
        } else {
            codes.iter().any(|code| code.is_of_connection()).then_some(self.connection)
        }
    }
}

impl Voice {
    /// A line of this program's, without its newline.
    pub fn line(&self, text: &str) -> String {
        format!("{}: {text}", self.program)
    }
}
