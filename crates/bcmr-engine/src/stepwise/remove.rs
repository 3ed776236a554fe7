//! Removing as GNU's `rm` does it: in the order of each directory, depth first, with its questions.
//!
//! Must not know how anything is worded. Everything below an operand goes by handle and single name, through no link.

use super::spot::{Spot, join, last, names_in};
use super::told::{Did, StepQuestion, Teller, Trouble, What};
use crate::event::Cancel;
use crate::receiver::single::Folder;
use crate::remove::{SealedDirs, below_by};
use fastcopy::dir::{Dir, ListBuffer};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use fastcopy::stack::{self, StackRoom};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// When it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Never.
    Never,
    /// About what may not be written, at a terminal.
    Protected,
    /// Always.
    Always,
}

/// Everything that decides how it is done.
#[derive(Clone, Debug)]
pub struct RemoveOptions {
    /// Directories with what is in them.
    pub recursive: bool,
    /// Empty directories without that.
    pub empty_dirs: bool,
    /// What is not there is no failure.
    pub ignore_missing: bool,
    /// When it is asked.
    pub prompt: Prompt,
    /// Directories on other file systems than their operand stay.
    pub one_file_system: bool,
    /// `/` stays.
    pub preserve_root: bool,
    /// So does every operand that is on another file system than the directory it is in.
    pub preserve_all: bool,
    /// Standard input is a terminal.
    pub stdin_tty: bool,
    /// All that is done is told.
    pub verbose: bool,
    /// The effective user.
    pub me: u32,
    /// Threads, where nothing is asked and told.
    pub threads: usize,
    /// Says stop.
    pub cancel: Arc<Cancel>,
}

struct Remover<'a> {
    options: &'a RemoveOptions,
    teller: &'a mut dyn Teller,
    root: Option<(u64, u64)>,
    failed: bool,
    /// How deep it may go.
    room: StackRoom,
}

/// What became of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    Yes,
    /// The user said no to a directory.
    Declined,
    /// The user said no to something else, or to a directory after what was in it.
    DeclinedFile,
    Failed,
}

/// Removes. Whether all was done that was not declined.
pub fn remove(paths: &[PathBuf], options: &RemoveOptions, teller: &mut (dyn Teller + Send)) -> bool {
    let mut run = |room| remove_all(paths, options, teller, room);
    // Only what goes down into directories needs more than there is.
    if options.recursive { stack::deep(run) } else { run(StackRoom::here()) }
}

fn remove_all(paths: &[PathBuf], options: &RemoveOptions, teller: &mut dyn Teller, room: StackRoom) -> bool {
    let root = Dir::open(Path::new("/")).and_then(|dir| dir.info()).ok().map(|info| info.id());
    let mut remover = Remover { options, teller, root, failed: false, room };
    for path in paths {
        if options.cancel.is_set() {
            return false;
        }
        remover.operand(path);
    }
    !remover.failed && !options.cancel.is_set()
}

impl Remover<'_> {
    fn fail(&mut self, what: What, path: &Path, why: Option<io::Error>) -> Removal {
        self.failed = true;
        self.teller.trouble(Trouble { what, path: path.to_owned(), other: None, why });
        Removal::Failed
    }

    fn not_removed(&mut self, path: &Path, e: io::Error) -> Removal {
        let missing = matches!(e.raw_os_error(), Some(errno::ENOENT | errno::ENOTDIR));
        if self.options.ignore_missing && missing {
            Removal::Yes
        } else {
            self.fail(What::Remove, path, Some(e))
        }
    }

    /// What cannot be asked about stays; that of the directory above is asked all the same.
    fn unseen(&mut self, path: &Path, e: io::Error) -> Removal {
        self.fail(What::Remove, path, Some(e));
        Removal::DeclinedFile
    }

    fn operand(&mut self, path: &Path) -> Removal {
        let path = &with_one_slash(path);
        let o = self.options;
        let spot = Spot::of(path);
        let info = match spot.look(false) {
            Ok(info) => info,
            Err(e) if o.prompt == Prompt::Always => return self.unseen(path, e),
            Err(e) => return self.not_removed(path, unlinked_with_slash(&spot).unwrap_or(e)),
        };
        if info.kind != Kind::Dir {
            return self.entry(&spot, &info, None);
        }
        let goes = o.recursive || (o.empty_dirs && is_empty(&spot).unwrap_or(false));
        if !goes {
            let number = if o.empty_dirs { errno::ENOTEMPTY } else { errno::EISDIR };
            return self.fail(What::Remove, path, Some(io::Error::from_raw_os_error(number)));
        }
        if matches!(last(path), b"." | b"..") {
            return self.fail(What::RmDots, path, None);
        }
        if o.preserve_root && self.root == Some(info.id()) {
            let is_root = path == Path::new("/");
            return self.fail(if is_root { What::RmIsRoot } else { What::RmSameAsRoot }, path, None);
        }
        if o.preserve_all {
            let parent = spot.open_dir(true).and_then(|dir| dir.parent()).and_then(|above| above.info());
            match parent {
                Ok(above) if above.dev == info.dev => {}
                Ok(_) => return self.fail(What::RmMountPoint, path, None),
                Err(_) => {
                    let (path, other) = (path.to_owned(), Some(join(path, b"..")));
                    self.failed = true;
                    self.teller.trouble(Trouble { what: What::RmNoParent, path, other, why: None });
                    return Removal::Failed;
                }
            }
        }
        // A slash leads through a link, which is not what would be removed in the end.
        if spot.has_slash()
            && let Ok((folder, name)) = spot.place(errno::EBUSY)
            && folder.dir.stat(name).is_ok_and(|own| own.kind == Kind::Link)
        {
            return self.fail(What::Remove, path, Some(io::Error::from_raw_os_error(errno::ENOTDIR)));
        }
        self.all_at_once(&spot);
        match spot.look(false) {
            Err(e) if e.raw_os_error() == Some(errno::ENOENT) => Removal::Yes,
            _ => self.entry(&spot, &info, Some(info.dev)),
        }
    }

    /// Takes a directory away in parallel, where nothing is asked or told on the way. What stays is gone through after that,
    /// one thing after the other, and told in that order.
    fn all_at_once(&self, spot: &Spot) {
        let o = self.options;
        let asks = match o.prompt {
            Prompt::Never => false,
            Prompt::Protected => o.stdin_tty && o.me != 0,
            Prompt::Always => true,
        };
        if !(asks || o.verbose || o.one_file_system)
            && o.recursive
            && let Ok((folder, name)) = spot.place(errno::EBUSY)
        {
            let _all_gone = below_by(&folder.dir, name, (o.threads, SealedDirs::Stay), &o.cancel).is_ok();
        }
    }

    /// Whether something may not be written, where that is asked about.
    ///
    /// # Errors
    /// It cannot be removed either.
    fn is_protected(&self, spot: &Spot, info: &Info) -> io::Result<bool> {
        let o = self.options;
        if o.ignore_missing
            || !(o.prompt == Prompt::Always || o.stdin_tty)
            || info.kind == Kind::Link
            || o.me == 0
        {
            return Ok(false);
        }
        match spot.place(errno::EBUSY).and_then(|(folder, name)| folder.dir.check_write(name)) {
            Ok(()) => Ok(false),
            Err(e) if e.raw_os_error() == Some(errno::EACCES) => Ok(true),
            Err(e) => Err(e),
        }
    }

    fn entry(&mut self, spot: &Spot, info: &Info, device: Option<u64>) -> Removal {
        let o = self.options;
        if !self.room.is_left() {
            return self.not_removed(&spot.shown, io::Error::from_raw_os_error(errno::ENAMETOOLONG));
        }
        if info.kind != Kind::Dir {
            return match self.asked(spot, info, false) {
                Ok(true) => self.unlink(spot, info),
                Ok(false) => Removal::DeclinedFile,
                Err(e) => self.unseen(&spot.shown, e),
            };
        }
        if o.one_file_system && device.is_some_and(|device| device != info.dev) {
            return self.fail(What::RmOtherDevice, &spot.shown, None);
        }
        let opened = spot.open_dir(false).and_then(|dir| Ok((names_in(&dir)?, dir)));
        let (names, dir) = match opened {
            Ok(opened) => opened,
            Err(e) => return self.unreadable(spot, info, e),
        };
        if !names.is_empty() {
            match self.descends(spot, info) {
                Ok(true) => {}
                Ok(false) => return Removal::Declined,
                Err(e) => return self.not_removed(&spot.shown, e),
            }
        }
        let folder = Arc::new(Folder::new(dir));
        let mut gone = Removal::Yes;
        let empty = names.is_empty();
        for (name, _) in names {
            if o.cancel.is_set() {
                return Removal::Failed;
            }
            let below = Spot::child(&folder, name.as_name(), join(&spot.shown, name.bytes()));
            let outcome = match below.look(false) {
                Ok(info) => self.entry(&below, &info, device),
                Err(e) if e.raw_os_error() == Some(errno::ENOENT) => Removal::Yes,
                Err(e) if o.prompt == Prompt::Always => self.unseen(&below.shown, e),
                Err(e) => self.not_removed(&below.shown, e),
            };
            gone = match (gone, outcome) {
                (Removal::Failed, _) | (_, Removal::Failed) => Removal::Failed,
                (Removal::Declined, _) | (_, Removal::Declined) => Removal::Declined,
                // Its directory is asked about all the same.
                (Removal::Yes, Removal::DeclinedFile | Removal::Yes) => Removal::Yes,
                (other, Removal::DeclinedFile | Removal::Yes) => other,
            };
        }
        drop(folder);
        if gone != Removal::Yes {
            return gone;
        }
        match self.asked(spot, info, empty) {
            Ok(true) => self.rmdir(spot, None),
            // Only what is declined before anything in it was tried speaks for the directories above.
            Ok(false) if empty => Removal::Declined,
            Ok(false) => Removal::DeclinedFile,
            Err(e) => self.unseen(&spot.shown, e),
        }
    }

    /// Asks whether to remove, where that is to be asked.
    fn asked(&mut self, spot: &Spot, info: &Info, empty: bool) -> io::Result<bool> {
        if self.options.prompt == Prompt::Never {
            return Ok(true);
        }
        let protected = self.is_protected(spot, info)?;
        if !protected && self.options.prompt != Prompt::Always {
            return Ok(true);
        }
        let empty = empty || (info.kind == Kind::File && info.size == 0);
        Ok(self.teller.ask(StepQuestion::Remove { path: &spot.shown, kind: info.kind, empty, protected }))
    }

    fn descends(&mut self, spot: &Spot, info: &Info) -> io::Result<bool> {
        if self.options.prompt == Prompt::Never {
            return Ok(true);
        }
        let protected = self.is_protected(spot, info)?;
        if !protected && self.options.prompt != Prompt::Always {
            return Ok(true);
        }
        Ok(self.teller.ask(StepQuestion::Descend { path: &spot.shown, protected }))
    }

    /// A directory that cannot be read may still be empty.
    fn unreadable(&mut self, spot: &Spot, info: &Info, e: io::Error) -> Removal {
        let goes = match self.descends(spot, info) {
            Ok(true) => self.asked(spot, info, false),
            Ok(false) => return Removal::Declined,
            Err(e) => Err(e),
        };
        match goes {
            Ok(true) => self.rmdir(spot, Some(e)),
            Ok(false) => Removal::DeclinedFile,
            Err(e) => self.not_removed(&spot.shown, e),
        }
    }

    fn unlink(&mut self, spot: &Spot, _: &Info) -> Removal {
        match spot.place(errno::EISDIR).and_then(|(folder, name)| folder.dir.remove_file(name)) {
            Ok(()) => {
                if self.options.verbose {
                    self.teller.did(Did::Removed(&spot.shown));
                }
                Removal::Yes
            }
            Err(e) => self.not_removed(&spot.shown, e),
        }
    }

    /// `why`: the directory could not be read.
    fn rmdir(&mut self, spot: &Spot, why: Option<io::Error>) -> Removal {
        match spot.place(errno::EBUSY).and_then(|(folder, name)| folder.dir.remove_dir(name)) {
            Ok(()) => {
                if self.options.verbose {
                    self.teller.did(Did::RemovedDir(&spot.shown));
                }
                Removal::Yes
            }
            Err(e) => {
                let full = matches!(e.raw_os_error(), Some(errno::ENOTEMPTY | errno::EEXIST));
                let e = why.filter(|_| full).unwrap_or(e);
                self.not_removed(&spot.shown, e)
            }
        }
    }
}

/// Of several slashes at its end a path keeps one; two of them are another root in POSIX, and stay.
fn with_one_slash(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    let slashes = bytes.len() - end;
    if slashes < 2 || bytes == b"//" {
        return path.to_owned();
    }
    PathBuf::from(OsStr::from_bytes(bytes.get(..=end).unwrap_or(bytes)))
}

/// What taking away says of a name with a slash behind it that is there and is no directory.
fn unlinked_with_slash(spot: &Spot) -> Option<io::Error> {
    let (folder, name) = spot.place(errno::EBUSY).ok().filter(|_| spot.has_slash())?;
    folder.dir.look(name).ok()??;
    let read_only = folder.dir.check_write_here().is_err_and(|e| e.raw_os_error() == Some(errno::EROFS));
    Some(io::Error::from_raw_os_error(if read_only { errno::EROFS } else { errno::ENOTDIR }))
}

fn is_empty(spot: &Spot) -> io::Result<bool> {
    let mut empty = true;
    spot.open_dir(false)?.list(&mut ListBuffer::new(), |_| {
        empty = false;
        false
    })?;
    Ok(empty)
}
