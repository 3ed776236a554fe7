//! Makes a directory that was named, for a user here or on another machine.
//!
//! Must not know who asks, nor what will be in it.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::policy::Target;
use crate::receiver::land::ensure_dir;
use crate::verbs::operands::{self, DestLink, Reach, Where};
use std::path::Path;

/// Makes one directory; with `parents` those above it that are missing too, and one that is there is none that is in the way.
///
/// # Errors
/// It cannot be made, or something has its name.
pub fn make_directory(path: &Path, parents: bool) -> Result<()> {
    if parents {
        operands::make_missing(&Reach::Anywhere, path, path.to_owned(), false)?;
        return Reach::Anywhere.open(path).map(drop);
    }
    directory(&Reach::Anywhere, path, 0o777)
}

/// Makes one directory that was named.
pub(crate) fn directory(reach: &Reach, path: &Path, mode: u32) -> Result<()> {
    match operands::target_for(
        Op::MakeDirectory,
        reach,
        &Target::Exactly(path.to_owned()),
        1,
        DestLink::Itself,
    )? {
        Where::Name { dir, name, .. } => {
            let made = ensure_dir(&dir.dir, name.as_name(), mode & 0o777)
                .map_err(|e| Error::os(Op::MakeDirectory, path, e))?;
            if made {
                Ok(())
            } else {
                Err(Error::ours(Code::InTheWay, Op::MakeDirectory, path, Reason::AlreadyThere))
            }
        }
        Where::Into(_) | Where::Whole(_) => {
            Err(Error::ours(Code::InTheWay, Op::MakeDirectory, path, Reason::AlreadyThere))
        }
    }
}
