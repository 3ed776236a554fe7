//! What is asked of a run, as plain data.
//!
//! Must not know how it was typed, nor how it is carried out.

use crate::event::Cancel;
use crate::policy::{Follow, Preserve, Reflink, Sparse};
use std::path::PathBuf;
use std::sync::Arc;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `cp`.
    Copy,
    /// `mv`.
    Move,
    /// `install`.
    Install,
}

/// Where it goes.
#[derive(Clone, Debug)]
pub enum Onto {
    /// To this very name.
    Name(PathBuf),
    /// Into this directory, each under its last name.
    Into(PathBuf),
    /// Into this directory, each under its whole path (`--parents`).
    Below(PathBuf),
}

/// How a name that is replaced is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backup {
    /// Not at all.
    None,
    /// Under the name with the suffix.
    Simple,
    /// Numbered if there are numbered ones, else simple.
    Existing,
    /// Under the next number.
    Numbered,
}

/// What happens where a name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Nothing was said: replaced, and `mv` asks at a terminal about what may not be written.
    Unsaid,
    /// Replaced, never asked.
    Always,
    /// Asked.
    Ask,
    /// Left alone.
    Never,
}

/// `--update`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// All are replaced.
    All,
    /// Only what is older than its source.
    Older,
    /// None is replaced.
    None,
    /// None is replaced, and that is a failure.
    NoneFail,
}

/// What of a file is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// All of it.
    Copied,
    /// No bytes, only attributes.
    AttributesOnly,
    /// A further name is given to it instead.
    HardLink,
    /// A symbolic link to it is made instead.
    SymbolicLink,
}

/// Owner and mode that `install` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Mode.
    pub mode: u32,
    /// Which of its bits are said: a directory that is there, or that has some from the one above, keeps the others.
    pub said: u32,
    /// User, where one was named.
    pub uid: Option<u32>,
    /// Group, where one was named.
    pub gid: Option<u32>,
    /// Files that have it all already are left alone (`-C`).
    pub compare: bool,
}

/// Everything that decides how it is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is done.
    pub purpose: Program,
    /// Directories are copied with what is in them.
    pub recursive: bool,
    /// Content of FIFOs and devices is read, also below directories.
    pub copy_contents: bool,
    /// Links in sources that are followed.
    pub follow: Follow,
    /// What is kept.
    pub preserve: Preserve,
    /// `--no-preserve=mode`: what is new has the mode that any new thing has.
    pub plain_mode: bool,
    /// Extended attributes that cannot be kept are an error.
    pub require_xattr: bool,
    /// `-a`: extended attributes that may not be read are no error. What they belong to may not be read either, which is told.
    pub archive: bool,
    /// What `install` gives.
    pub given: Option<Given>,
    /// How what is replaced is kept.
    pub backup: Backup,
    /// What simple backups end with.
    pub suffix: Vec<u8>,
    /// Names that are taken.
    pub over: Over,
    /// Names that are taken, by age.
    pub update: Update,
    /// What is there is removed before (`--remove-destination`).
    pub unlink_first: bool,
    /// What cannot be opened is removed (`-f`).
    pub force: bool,
    /// What is copied.
    pub content: Content,
    /// Directories on other file systems are not entered.
    pub one_file_system: bool,
    /// Cloning.
    pub reflink: Reflink,
    /// Holes.
    pub sparse: Sparse,
    /// A link at the destination that leads nowhere is written through (`POSIXLY_CORRECT`).
    pub through_dangling: bool,
    /// A link to a directory at the destination is followed where a directory is copied.
    pub keep_dir_links: bool,
    /// Nothing is copied to another file system (`mv --no-copy`).
    pub no_copy: bool,
    /// The names as they were typed, where slashes were taken away from them (`mv --strip-trailing-slashes`).
    pub typed: Option<(PathBuf, PathBuf)>,
    /// Source and destination change places (`mv --exchange`).
    pub exchange: bool,
    /// Each file is changed by [`super::Teller::alter`] before it is published.
    pub alters: bool,
    /// All that is done is told.
    pub verbose: bool,
    /// Standard input is a terminal.
    pub stdin_tty: bool,
    /// The effective user.
    pub me: u32,
    /// The effective group.
    pub group: u32,
    /// The process's umask.
    pub umask: u32,
    /// Threads for one large file.
    pub threads: usize,
    /// Says stop.
    pub cancel: Arc<Cancel>,
}

impl Options {
    /// Whether what is there is replaced whatever it is, unasked, and not kept.
    pub(super) fn replaces(&self) -> bool {
        let Options { over, update, backup, .. } = self;
        matches!(over, Over::Unsaid | Over::Always) && *update == Update::All && *backup == Backup::None
    }
}
