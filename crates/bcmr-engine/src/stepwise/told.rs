//! What is told and asked while a run goes on, as data.
//!
//! Must not know how any of it is worded.

use crate::error::{Code, Note, Reason};
use fastcopy::meta::Kind;
use std::io;
use std::path::{Path, PathBuf};

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
    ParentNoDir,
    ParentMakeDir,
    Owner,
    SetOwner,
    Attributes,
    GetAttributes,
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
    RmMountPoint,
    RmNoParent,
    RmGuarded,
}

impl What {
    /// That a thing of this kind could not be made.
    pub(super) fn unmade(kind: Kind) -> What {
        match kind {
            Kind::Dir => What::MakeDir,
            Kind::File => What::Create,
            Kind::Link => What::BareSymbolicLink,
            Kind::Fifo => What::Fifo,
            _ => What::Special,
        }
    }
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

/// A reason that is ours, where the system gave none: what [`Trouble::why`] holds then.
#[derive(Debug, thiserror::Error)]
#[error("{0:?}")]
pub struct Noted(pub Note);

impl Noted {
    /// The system's reason; else ours.
    pub(super) fn why(source: Option<io::Error>, note: Option<Note>, code: Code) -> io::Error {
        source.unwrap_or_else(|| {
            let stopped = code == Code::Interrupted;
            let note = note.filter(|_| !stopped).unwrap_or_else(|| {
                if stopped { Reason::Interrupted.into() } else { code.name().to_owned().into() }
            });
            io::Error::other(Noted(note))
        })
    }

    /// Ours, if it is.
    #[must_use]
    pub fn of(e: &io::Error) -> Option<&Note> {
        e.get_ref()?.downcast_ref::<Noted>().map(|noted| &noted.0)
    }

    /// The user has asked to stop, and knows.
    pub(super) fn is_stop(e: &io::Error) -> bool {
        Noted::of(e).is_some_and(|note| note.reason == Reason::Interrupted)
    }
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
    /// What was there is no backup any more.
    Restored {
        backup: &'a Path,
        dst: &'a Path,
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
pub enum StepQuestion<'a> {
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
    fn ask(&mut self, ask: StepQuestion<'_>) -> bool;
    /// Changes a file that is not yet published and has this name meanwhile (`install -s`). `false`: that failed, which was
    /// told, and nothing is published.
    fn alter(&mut self, _unpublished: &Path) -> bool {
        true
    }
}
