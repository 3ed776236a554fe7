//! What `install` does beside copying: directories with all that lead to them.
//!
//! Must not know how content is copied.

use super::copier::Copier;
use super::options::{Given, Options};
use super::spot::{Spot, last, trimmed};
use super::told::{Did, Teller, What};
use fastcopy::errno;
use fastcopy::meta::Kind;
use fastcopy::stack::StackRoom;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Makes directories with all that lead to them, and gives the last of each what was asked for (`install -d`, `-D`).
/// `last_too`: the last name is a directory as well; else those in front of it.
pub fn install_dirs(
    paths: &[PathBuf],
    last_too: bool,
    given: Option<&Given>,
    options: &Options,
    teller: &mut dyn Teller,
) -> bool {
    let mut copier = Copier::new(options, teller, paths.len(), StackRoom::here());
    let mut fine = true;
    for path in paths {
        fine &= copier.make_dirs(path, last_too, given);
    }
    fine
}

impl Copier<'_> {
    fn make_dirs(&mut self, path: &Path, last_too: bool, given: Option<&Given>) -> bool {
        let bytes = path.as_os_str().as_bytes();
        let make = if given.is_some() { What::InstallMakeDir } else { What::MakeDir };
        if bytes.is_empty() {
            return !last_too || self.fail(make, path, io::Error::from_raw_os_error(errno::ENOENT));
        }
        let all = trimmed(path);
        let end = if last_too { all.len() } else { all.len() - last(path).len() };
        let ends = (0..=end).filter(|at| *at == end || all.get(*at) == Some(&b'/'));
        for at in ends.collect::<Vec<_>>() {
            let part = all.get(..at).unwrap_or_default();
            let shown = Path::new(std::ffi::OsStr::from_bytes(part));
            let name = last(shown);
            let is_last = last_too && at == end;
            let dots = matches!(name, b"." | b"..");
            if name.is_empty() || (dots && !is_last) || part.last() == Some(&b'/') {
                continue;
            }
            let spot = Spot::of(shown);
            match spot.look(true) {
                Ok(info) if info.kind == Kind::Dir => {
                    if is_last && let Some(given) = given {
                        return self.give_dir(&spot, path, given);
                    }
                    // What lies below must be reached.
                    if let Err(e) = spot.open_dir(true).and_then(|dir| dir.parent()) {
                        return self.fail(make, shown, e);
                    }
                    continue;
                }
                Ok(_) => {
                    let number = if is_last { errno::EEXIST } else { errno::ENOTDIR };
                    let shown = if is_last { path } else { shown };
                    return self.fail(make, shown, io::Error::from_raw_os_error(number));
                }
                Err(_) => {}
            }
            let made = spot.place(errno::EEXIST).and_then(|(folder, name)| {
                // Others reach it once it is what it is to be.
                let mode = given.filter(|_| is_last).map_or(0o755, |given| given.mode & 0o700);
                self.single.new_dir(folder, name, mode, self.options.umask)
            });
            match made {
                Ok(()) if self.options.verbose => {
                    self.teller.did(Did::Installing(if is_last { path } else { shown }))
                }
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(errno::EEXIST) => {}
                Err(e) => {
                    // What cannot be made may have been there, and then it is its mode that could not be set.
                    let missing = e.raw_os_error() == Some(errno::ENOENT);
                    return match (spot.look(true), given) {
                        (Err(l), Some(given)) if is_last && !missing => {
                            let owned = given.uid.is_some() || given.gid.is_some();
                            self.fail(if owned { What::InstallOwner } else { What::InstallMode }, shown, l)
                        }
                        _ => self.fail(make, shown, e),
                    };
                }
            }
            if let Some(given) = given.filter(|_| is_last) {
                return self.give_dir(&spot, path, given);
            }
        }
        true
    }

    fn give_dir(&mut self, spot: &Spot, path: &Path, given: &Given) -> bool {
        use fastcopy::meta;
        let set = || -> Result<(), (What, io::Error)> {
            let with_owner = given.uid.is_some() || given.gid.is_some();
            let what = if with_owner { What::InstallOwner } else { What::InstallMode };
            let dir = spot.open_dir(true).map_err(|e| (what, e))?;
            let now = dir.info().map_err(|e| (What::InstallMode, e))?;
            let is = |wanted: Option<u32>, it_is: u32| wanted.is_none_or(|wanted| wanted == it_is);
            let owned = is(given.uid, now.uid) && is(given.gid, now.gid);
            let mode = given.mode & given.said | now.mode & 0o7777 & !given.said;
            if owned && now.mode & 0o7777 == mode {
                return Ok(());
            }
            if !owned {
                meta::set_owner(&dir, given.uid, given.gid).map_err(|e| (What::InstallOwner, e))?;
            }
            meta::set_mode(&dir, mode).map_err(|e| (What::InstallMode, e))
        };
        match set() {
            Ok(()) => true,
            Err((what, e)) => self.fail(what, path, e),
        }
    }
}
