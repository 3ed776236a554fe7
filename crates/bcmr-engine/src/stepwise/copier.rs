//! One run of copying, moving or installing: what it remembers, and how it tells.
//!
//! Must not know in which order things are done.

use super::options::{Options, Program};
use super::spot::Spot;
use super::told::{Noted, Teller, Trouble, What};
use crate::alter::OwnersAndModes;
use crate::disk::{Fault, Keep, Side};
use crate::error::{Note, Op, Reason};
use crate::policy::{Changing, Follow, Io, Preserve, Strictness};
use crate::receiver::single::{Folder, Single};
use fastcopy::dir::NameBuf;
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use fastcopy::stack::StackRoom;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

/// Which object it is.
pub(super) type Id = (u64, u64);
/// A name in a directory, and what had it.
pub(super) type NamedThing = (Option<(Id, Option<NameBuf>)>, Id);

/// A run: what is asked of it, the user who is told, and what it remembers.
pub(super) struct Copier<'a> {
    pub(super) options: &'a Options,
    pub(super) teller: &'a mut dyn Teller,
    pub(super) single: Single,
    /// What landed where, of what may come again.
    pub(super) copied: HashMap<Id, PathBuf>,
    /// Sources and destinations of this command line, where there are several.
    pub(super) sources: Option<HashSet<NamedThing>>,
    pub(super) created: Option<HashSet<NamedThing>>,
    /// Directories above those that were operands, where there are several.
    pub(super) above: HashSet<Id>,
    /// The operand that is being copied, as it was typed, and where it goes.
    pub(super) top: (PathBuf, PathBuf),
    /// Whether what is copied now is below a directory that was made for it: that one alone is remembered, lest it be copied
    /// into itself.
    pub(super) below_made: bool,
    /// How deep it may go.
    pub(super) room: StackRoom,
}

/// What became of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepEnd {
    /// All of it was done.
    Fine,
    /// By a rename, or it stays: nothing is left to be removed.
    InPlace,
    /// Something failed.
    Failed,
    /// It would have been copied into itself: what is above goes no further.
    IntoItself,
    /// Another process has taken the name meanwhile: nothing was done or told.
    Taken,
}

impl StepEnd {
    pub(super) fn is_failed(self) -> bool {
        matches!(self, StepEnd::Failed | StepEnd::IntoItself | StepEnd::Taken)
    }

    pub(super) fn of(fine: bool) -> StepEnd {
        if fine { StepEnd::Fine } else { StepEnd::Failed }
    }
}

impl<'a> Copier<'a> {
    pub(super) fn new(
        options: &'a Options,
        teller: &'a mut dyn Teller,
        count: usize,
        room: StackRoom,
    ) -> Copier<'a> {
        let io = Io { changing: Changing::AsRead, ..Io::PLAIN };
        Copier {
            options,
            teller,
            single: Single::new(io),
            copied: HashMap::new(),
            sources: (count > 1 && options.purpose == Program::Copy).then(HashSet::new),
            created: (count > 1).then(HashSet::new),
            above: HashSet::new(),
            top: (PathBuf::new(), PathBuf::new()),
            below_made: false,
            room,
        }
    }

    /// Tells it, unless it is that the run was stopped.
    pub(super) fn fail(&mut self, what: What, path: &Path, why: io::Error) -> bool {
        if Noted::is_stop(&why) {
            return false;
        }
        let path = path.to_owned();
        self.teller.trouble(Trouble { what, path, other: None, why: Some(why) });
        false
    }

    pub(super) fn fail_two(&mut self, what: What, path: &Path, other: &Path, why: Option<io::Error>) -> bool {
        if why.as_ref().is_some_and(Noted::is_stop) {
            return false;
        }
        let (path, other) = (path.to_owned(), Some(other.to_owned()));
        self.teller.trouble(Trouble { what, path, other, why });
        false
    }

    pub(super) fn refuse(&mut self, what: What, path: &Path) -> StepEnd {
        self.teller.trouble(Trouble { what, path: path.to_owned(), other: None, why: None });
        StepEnd::Failed
    }

    pub(super) fn follows(&self, operand: bool) -> bool {
        match self.options.follow {
            Follow::Never => false,
            Follow::Operands => operand,
            Follow::Always => true,
        }
    }

    /// Remembers what an operand's directory is in: what is copied with all that is in it may come to it again.
    pub(super) fn remember_above(&mut self, src: &Spot, follow: bool) {
        let parent = src.open_dir(follow).and_then(|dir| dir.parent());
        let Ok(mut here) = parent.or_else(|_| src.folder()?.dir.try_clone()) else { return };
        // What is above a directory that is known is known too.
        while let Ok(info) = here.info()
            && self.above.insert(info.id())
            && let Ok(up) = here.parent()
        {
            here = up;
        }
    }

    /// Whether what is no file, directory or link is read as if it were a file.
    pub(super) fn as_regular(&self) -> bool {
        !self.options.recursive || self.options.copy_contents
    }

    /// What is kept, for sealing.
    pub(super) fn keep_for(&self, folder: &Folder) -> Keep {
        let o = self.options;
        let strictness = if o.given.is_some() { Strictness::Archive } else { Strictness::LikeCp };
        Keep {
            alter: OwnersAndModes::NONE,
            preserve: o.preserve,
            strictness,
            umask: o.umask,
            default_acl: folder.has_default_acl(),
            was_there: false,
        }
    }

    /// The mode that a new thing is to have, as one that is given: sealing sets it after its owner.
    pub(super) fn final_mode(&self, info: &Info, keep: &Keep) -> (Info, Preserve) {
        let mut preserve = keep.preserve;
        let mut info = *info;
        // A directory is made with its sticky bit, whatever is kept.
        let sticky = if info.kind == Kind::Dir { info.mode & 0o1000 } else { 0 };
        if self.options.plain_mode {
            info.mode = match info.kind {
                Kind::Dir => 0o777 | sticky,
                Kind::Socket => 0o777,
                _ => 0o666,
            };
        }
        if !preserve.mode && preserve.owner {
            info.mode &= (0o777 | sticky) & !keep.umask;
            preserve.mode = true;
        }
        (info, preserve)
    }

    /// Tells what was not kept; whether that is no failure.
    pub(super) fn tell_lost_of(&mut self, src: &Path, dst: &Path, lost: Vec<Fault>) -> bool {
        let install = self.options.purpose == Program::Install;
        let mut fine = true;
        // GNU's keeps them in this order, and cp goes no further where one cannot be.
        let mut lost = lost;
        lost.sort_by_key(|fault| match fault.op {
            Op::SetTimesOf => 0,
            Op::SetOwnerOf => 1,
            Op::SetAclOf | Op::SetModeOf => 3,
            _ => 2,
        });
        for fault in lost {
            if !fine && !install {
                break;
            }
            if fault.note == Some(Reason::SetidLeftOut) {
                // Where the owner was to be kept and could not be, GNU says nothing either.
                if !self.options.preserve.owner {
                    self.refuse(What::SetidLeftOut, dst);
                }
                continue;
            }
            let attributes =
                matches!(fault.op, Op::SetAttributesOf | Op::ReadAttributesOf | Op::RemoveAttributesOf);
            let is_let_go = match fault.source.as_ref().and_then(io::Error::raw_os_error) {
                Some(errno::EOPNOTSUPP | errno::EPERM) => true,
                Some(errno::EACCES) => self.options.archive && fault.op == Op::ReadAttributesOf,
                _ => false,
            };
            // They are larger than they may be there.
            let fits = fault.note != Some(Reason::AttributesDoNotFit);
            let best_effort = attributes && !self.options.require_xattr;
            if best_effort && (is_let_go || !fits && self.options.archive) {
                continue;
            }
            let what = match fault.op {
                Op::SetTimesOf => What::Times,
                Op::SetModeOf if install => What::SetMode,
                Op::SetAclOf | Op::SetModeOf => What::Mode,
                Op::SetOwnerOf if install => What::SetOwner,
                Op::SetOwnerOf => What::Owner,
                Op::RemoveUnfinished => What::Remove,
                Op::ReadAttributesOf => What::GetAttributes,
                _ => What::Attributes,
            };
            let path = if fault.side == Side::Source { src } else { dst };
            let told = self.fail(what, path, fault_error(fault));
            fine = told || best_effort && !fits;
        }
        fine
    }
}

/// Why a job did not land, as the system says it; where it says nothing, as we do.
pub(super) fn fault_error(fault: Fault) -> io::Error {
    Noted::why(fault.source, fault.note.map(Note::from), fault.code)
}
