//! How far above a source its file system begins, remembered from run to run: a source whose disk is not mounted looks like
//! an empty one, or like an older one below the mount point, and must not have the destination emptied.
//!
//! Must not hold anything else of the two, nor decide by what a device is called or numbered: those change from boot to boot.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::receiver::land;
use crate::remote::Address;
use crate::stage;
use crate::verbs::keeping::made;
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::meta::Place;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What the file begins with; the number of levels follows.
const HEAD: &[u8] = b"bcmr mounted 1\n";
/// More levels than any path has.
const LEVELS_MAX: u32 = 1 << 16;

/// Which destination a source goes to.
#[derive(Clone, Copy)]
pub(crate) enum Holder<'a> {
    /// This directory.
    Here(&'a Path),
    /// One on another machine, by what was typed.
    There(&'a Address),
}

/// What is known of one source, and where it is remembered.
pub(crate) struct Mounted {
    /// So many directories above the source its file system begins; `None` where that cannot be found out.
    levels: Option<u32>,
    /// The directory that remembers.
    state: Option<PathBuf>,
    source: Option<Vec<u8>>,
    /// What was remembered of the same two directories.
    before: Option<u32>,
}

impl Mounted {
    pub(crate) fn of(source: &Dir, dest: Holder<'_>, state: Option<&Path>) -> Mounted {
        let place = source.whereabouts().ok().map(|path| path.into_os_string().into_vec());
        let mut mounted =
            Mounted { levels: levels(source), state: state.map(Path::to_owned), source: place, before: None };
        mounted.before = mounted.name(dest).and_then(|name| {
            let dir = Dir::open(mounted.state.as_deref()?).ok()?;
            let mut text = Vec::new();
            File::from(dir.open_file(name.as_name()).ok()?).take(64).read_to_end(&mut text).ok()?;
            parse(&text)
        });
        mounted
    }

    /// What the two are remembered by: where they are, which says nothing to the reader of the directory.
    fn name(&self, dest: Holder<'_>) -> Option<NameBuf> {
        let dest = match dest {
            Holder::Here(path) => Dir::open(path).ok()?.whereabouts().ok()?.into_os_string().into_vec(),
            // A path there never begins with what no whole path has.
            Holder::There(address) => {
                let Address { user, host, port, path } = address;
                let head = format!("\0{}\0{host}\0{}\0", user.as_deref().unwrap_or(""), port.unwrap_or(0));
                [head.as_bytes(), path.as_os_str().as_bytes()].concat()
            }
        };
        let key = [self.source.as_deref()?, b"\0", &dest].concat();
        NameBuf::new(blake3::hash(&key).to_hex().as_bytes())
    }

    /// M1: refuses where the source's file system begins further up than it did.
    pub(crate) fn guard(&self, dest: &Path) -> Result<()> {
        match (self.levels, self.before) {
            (Some(now), Some(before)) if now > before => {
                Err(Error::ours(Code::Refused, Op::DeleteIn, dest, Reason::NotMountedWhereItWas))
            }
            _ => Ok(()),
        }
    }

    /// Remembers where it begins now.
    ///
    /// # Errors
    /// It cannot be written down.
    pub(crate) fn remember(&self, dest: Holder<'_>) -> Result<()> {
        let (Some(levels), Some(state)) = (self.levels, &self.state) else { return Ok(()) };
        let Some(name) = self.name(dest).filter(|_| self.before != Some(levels)) else { return Ok(()) };
        let write = || {
            let dir = made(state)?;
            // Several runs may be here at once, each with a name of its own.
            let part = stage::random().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
            let mut file = File::from(land::new_file(&dir, part.as_name(), 0o600)?);
            file.write_all(HEAD)?;
            writeln!(file, "{levels}")?;
            file.sync_data()?;
            land::give_name(&dir, part.as_name(), &dir, name.as_name(), false)
        };
        write().map_err(|e| Error::os(Op::Remember, state, e))
    }
}

/// What the file says; `None`: it is no such file.
fn parse(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text.strip_prefix(HEAD)?).ok()?.trim_end().parse().ok()
}

/// Entrance for the fuzzer: any bytes as what is remembered of a source, and as the moment that a snapshot is called by.
#[cfg(fuzzing)]
pub fn fuzz(data: &[u8]) {
    use crate::calendar::Stamp;
    let _levels = parse(data).or_else(|| parse(&[HEAD, data].concat()));
    if let Some(stamp) = Stamp::parse(data) {
        assert_eq!(stamp.to_string().as_bytes(), data, "a moment has one name");
        assert_eq!(Stamp::of(stamp.seconds()), stamp);
    }
    if let Some(seconds) = data.first_chunk() {
        let stamp = Stamp::of(i64::from_le_bytes(*seconds));
        assert!(Stamp::parse(stamp.to_string().as_bytes()).is_none_or(|again| again == stamp));
        assert!(!stamp.periods().is_empty());
    }
}

/// How many directories above `dir` its file system begins.
fn levels(dir: &Dir) -> Option<u32> {
    let mut here = dir.try_clone().ok()?;
    for level in 0..LEVELS_MAX {
        let place = Place::of(&here).ok()?;
        if place.mount_root == Some(true) {
            return Some(level);
        }
        let up = here.parent().ok()?;
        let above = Place::of(&up).ok()?;
        if above.id() == place.id() || place.mount_root.is_none() && above.dev != place.dev {
            return Some(level);
        }
        here = up;
    }
    None
}
