//! Removing as GNU's `rm` does it: in the order of each directory, depth first, with its questions.
//!
//! Must not know how anything is worded. Everything below an operand goes by handle and single name, through no link.

use super::spot::{Spot, join, last, names_in};
use super::told::{Did, StepQuestion, Teller, Trouble, What};
use crate::event::Cancel;
use crate::receiver::single::Folder;
use fastcopy::dir::{Dir, ListBuffer};
use fastcopy::errno;
use fastcopy::meta::{Info, Kind};
use std::io;
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
    /// Says stop.
    pub cancel: Arc<Cancel>,
}

struct Remover<'a> {
    options: &'a RemoveOptions,
    teller: &'a mut dyn Teller,
    root: Option<(u64, u64)>,
}

/// What became of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    Yes,
    /// The user said no to a directory.
    Declined,
    /// The user said no to something else.
    DeclinedFile,
    Failed,
}

/// Removes. Whether all was done that was not declined.
pub fn remove(paths: &[PathBuf], options: &RemoveOptions, teller: &mut dyn Teller) -> bool {
    let root = Dir::open(Path::new("/")).and_then(|dir| dir.info()).ok().map(|info| info.id());
    let mut remover = Remover { options, teller, root };
    let mut fine = true;
    for path in paths {
        if options.cancel.is_set() {
            return false;
        }
        fine &= remover.operand(path) != Removal::Failed;
    }
    fine
}

impl Remover<'_> {
    fn fail(&mut self, what: What, path: &Path, why: Option<io::Error>) -> Removal {
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

    fn operand(&mut self, path: &Path) -> Removal {
        let spot = Spot::of(path);
        let info = match spot.look(false) {
            Ok(info) => info,
            Err(e) => return self.not_removed(path, e),
        };
        if info.kind != Kind::Dir {
            return self.entry(&spot, &info, None);
        }
        let o = self.options;
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
        if o.preserve_all
            && let Ok(above) = spot.folder().and_then(|folder| folder.dir.info())
            && above.dev != info.dev
        {
            return self.fail(What::RmOtherDevice, path, None);
        }
        // A slash leads through a link, which is not what would be removed in the end.
        if spot.has_slash()
            && let Ok((folder, name)) = spot.place(errno::EBUSY)
            && folder.dir.stat(name).is_ok_and(|own| own.kind == Kind::Link)
        {
            return self.fail(What::Remove, path, Some(io::Error::from_raw_os_error(errno::ENOTDIR)));
        }
        self.entry(&spot, &info, Some(info.dev))
    }

    /// Whether something may not be written, where that is asked about.
    fn is_protected(&self, spot: &Spot, info: &Info) -> bool {
        let o = self.options;
        !o.ignore_missing
            && (o.prompt == Prompt::Always || o.stdin_tty)
            && info.kind != Kind::Link
            && o.me != 0
            && !spot.place(errno::EBUSY).is_ok_and(|(folder, name)| folder.dir.may_write(name))
    }

    fn entry(&mut self, spot: &Spot, info: &Info, device: Option<u64>) -> Removal {
        let o = self.options;
        if info.kind != Kind::Dir {
            return match self.asked(spot, info, false) {
                true => self.unlink(spot, info),
                false => Removal::DeclinedFile,
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
        if !names.is_empty() && !self.descends(spot, info) {
            return Removal::Declined;
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
        if !self.asked(spot, info, empty) {
            return Removal::Declined;
        }
        self.rmdir(spot, None)
    }

    /// Asks whether to remove, where that is to be asked.
    fn asked(&mut self, spot: &Spot, info: &Info, empty: bool) -> bool {
        if self.options.prompt == Prompt::Never {
            return true;
        }
        let protected = self.is_protected(spot, info);
        if !protected && self.options.prompt != Prompt::Always {
            return true;
        }
        let empty = empty || (info.kind == Kind::File && info.size == 0);
        self.teller.ask(StepQuestion::Remove { path: &spot.shown, kind: info.kind, empty, protected })
    }

    fn descends(&mut self, spot: &Spot, info: &Info) -> bool {
        if self.options.prompt == Prompt::Never {
            return true;
        }
        let protected = self.is_protected(spot, info);
        if !protected && self.options.prompt != Prompt::Always {
            return true;
        }
        self.teller.ask(StepQuestion::Descend { path: &spot.shown, protected })
    }

    /// A directory that cannot be read may still be empty.
    fn unreadable(&mut self, spot: &Spot, info: &Info, e: io::Error) -> Removal {
        if !self.descends(spot, info) || !self.asked(spot, info, false) {
            return Removal::Declined;
        }
        self.rmdir(spot, Some(e))
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

fn is_empty(spot: &Spot) -> io::Result<bool> {
    let mut empty = true;
    spot.open_dir(false)?.list(&mut ListBuffer::new(), |_| {
        empty = false;
        false
    })?;
    Ok(empty)
}
