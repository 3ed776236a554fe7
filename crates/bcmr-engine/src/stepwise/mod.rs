//! Copying, moving and installing as GNU's programs do it: one thing after the other, told and asked about in that
//! order, with every rule that scripts rely on.
//!
//! Must not know how anything is worded or typed. It shares with the verbs what makes files: `receiver::single` lands
//! each, by the same phases.

mod backup;
mod content;
mod copy;
mod remove;
mod same;
mod spot;

pub use copy::{copy, give, install_dirs, move_, take_back};
pub use fastcopy::people::{group_number, user_number};
pub use remove::{Prompt, RemoveOptions, remove};

use crate::event::Cancel;
use crate::policy::{Follow, Preserve, Reflink, Sparse};
pub use fastcopy::meta::Kind;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `cp`.
    Copy,
    /// `mv`.
    Move,
    /// `install`.
    Install,
}

/// Where it goes.
#[derive(Clone, Debug)]
pub enum Where {
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
    pub purpose: Purpose,
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
    /// Source and destination change places (`mv --exchange`).
    pub exchange: bool,
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

/// What was to be done and was not, or what is worth a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it, and the words for them stand in `crates/bcmr`")]
pub enum What {
    Stat,
    Access,
    Omitted,
    InstallOmitted,
    FileTwice,
    DirTwice,
    SameFile,
    DirOverFile,
    FileOverDir,
    JustCreated,
    ThroughJustCreated,
    BackupDestroysNotCopied,
    BackupDestroysNotMoved,
    Backup,
    Remove,
    IntoItself,
    LinkToDir,
    HardLink,
    Move,
    Overwrite,
    Exchange,
    MoveIntoItself,
    InterDevice,
    Cycle,
    MakeDir,
    LinkOnlyHere,
    SymbolicLink,
    BareSymbolicLink,
    Fifo,
    Special,
    ReadLink,
    UnknownKind,
    Times,
    Mode,
    SetMode,
    InstallMode,
    InstallOwner,
    InstallMakeDir,
    Parents,
    Owner,
    SetOwner,
    Attributes,
    OpenForReading,
    Create,
    Dangling,
    Replaced,
    Read,
    Write,
    Copy,
    Clone,
    SetidLeftOut,
    NotReplacing,
    RmDots,
    RmIsRoot,
    RmSameAsRoot,
    RmOtherDevice,
    RmGuarded,
}

/// Something that went wrong, with the names that it is about.
#[derive(Debug)]
pub struct Trouble {
    /// What.
    pub what: What,
    /// The name.
    pub path: PathBuf,
    /// The other name, where it takes two.
    pub other: Option<PathBuf>,
    /// What the system said.
    pub why: Option<io::Error>,
}

/// Something that was done.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Did<'a> {
    Copied {
        src: &'a Path,
        dst: &'a Path,
        backup: Option<&'a Path>,
    },
    MovedByCopying {
        src: &'a Path,
        dst: &'a Path,
        backup: Option<&'a Path>,
    },
    Renamed {
        src: &'a Path,
        dst: &'a Path,
        backup: Option<&'a Path>,
    },
    Exchanged {
        src: &'a Path,
        dst: &'a Path,
    },
    Removed(&'a Path),
    RemovedDir(&'a Path),
    MadeDir(&'a Path),
    /// A directory that `install` makes.
    Installing(&'a Path),
    Skipped(&'a Path),
    /// A directory that `--parents` makes on the way.
    Parent {
        src: &'a Path,
        dst: &'a Path,
    },
}

/// A question to the user.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Ask<'a> {
    Overwrite(&'a Path),
    /// A file that may not be written; `replace`: it would be taken away.
    OverwriteUnwritable {
        path: &'a Path,
        kind: Kind,
        mode: u32,
        replace: bool,
    },
    Remove {
        path: &'a Path,
        kind: Kind,
        empty: bool,
        protected: bool,
    },
    Descend {
        path: &'a Path,
        protected: bool,
    },
}

/// The user's side: called in the order in which things happen.
pub trait Teller {
    /// Something went wrong.
    fn trouble(&mut self, trouble: Trouble);
    /// Something was done.
    fn did(&mut self, did: Did<'_>);
    /// `false` is no.
    fn ask(&mut self, ask: Ask<'_>) -> bool;
}

/// Whether `path` is a directory, links followed; ENOTDIR when it is something else.
///
/// # Errors
/// What the kernel says.
pub fn is_directory(path: &Path) -> io::Result<()> {
    fastcopy::dir::Dir::open(path).map(|_| ())
}

/// What a file at `path` would be kept as, were it replaced.
#[must_use]
pub fn backup_of(path: &Path, options: &Options) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let spot = spot::Spot::of(path);
    if spot.look(true).ok()?.kind != Kind::File {
        return None;
    }
    let (kept, _) = backup::name_for(&spot, options).ok()?;
    Some(kept.shown.as_os_str().as_bytes().to_vec())
}
