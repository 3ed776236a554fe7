//! What goes of a directory in which something stays.
//!
//! Must not know why something stays, nor how what goes is taken away.

use crate::disk::Dirs;
use crate::disk::sys::Sys;
use crate::error::{Reason, Result};
use crate::node::Node;
use crate::remove;
use fastcopy::dir::{Dir, Name, NameBuf};
use fastcopy::meta::{Info, Kind, Place};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Whether the filter leaves an entry out, by the names that lead to it from where the directory is, and whether it is a
/// directory.
pub(crate) type SparedBelow<'a> = dyn Fn(&[&[u8]], bool) -> bool + 'a;

/// What files of rules leave out below a directory of the destination, which its names lead to from the one that is given. `None`
/// where that is not known, which was told.
pub(crate) type RulesBelow = dyn Fn(&Dir, &Node) -> Result<Option<Box<SparedBelow<'static>>>> + Send + Sync;

/// What becomes of something in a directory that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Goes,
    /// It stays, and so does what leads to it. The rest goes.
    Stays,
    /// Nothing goes of the directory that it is in, and this is why.
    Bars(Reason),
}

/// What becomes of something in a directory, by the names that lead to it from where that is.
pub(crate) type FateOf<'a> = dyn Fn(&[&[u8]], &Info) -> Fate + 'a;

/// How much of a directory goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Portion {
    Whole,
    /// Something in it stays, or all of it.
    Part,
    /// Nothing.
    Barred(Bar),
}

/// What bars a directory from going.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    /// Where it is, from where the directory is.
    pub(crate) path: PathBuf,
    pub(crate) why: Reason,
}

impl Bar {
    fn at<'n>(way: impl IntoIterator<Item = &'n [u8]>, why: Reason) -> Portion {
        Portion::Barred(Bar { path: way.into_iter().map(OsStr::from_bytes).collect(), why })
    }
}

/// What goes in one directory, where something in it stays.
pub(crate) struct Part<'a> {
    pub(crate) dir: &'a Dir,
    /// The names that lead to it.
    pub(crate) below: &'a [&'a NameBuf],
    pub(crate) goes: &'a [NameBuf],
    /// How many names there are in it.
    pub(crate) all: u64,
}

/// A directory on the way down.
struct EnteredDir {
    name: NameBuf,
    dir: Dir,
    device: u64,
    all: u64,
    /// Names that were not looked at yet.
    left: Vec<NameBuf>,
    goes: Vec<NameBuf>,
    /// Something in it stays.
    stays: bool,
}

impl EnteredDir {
    /// `Err` inside: it is on another file system than what it is in, or mounted there.
    fn of(
        (above, device): (&Dir, u64),
        name: Name<'_>,
    ) -> io::Result<std::result::Result<EnteredDir, Reason>> {
        let dir = above.open_dir(name)?;
        if let Some(why) = remove::beyond(&Place::of(&dir)?, device) {
            return Ok(Err(why));
        }
        let left = Sys::new().find(&dir, usize::MAX, &|_| true)?;
        let (name, all) = (name.to_owned(), left.len() as u64);
        Ok(Ok(EnteredDir { name, dir, device, all, left, goes: Vec::new(), stays: false }))
    }
}

/// How much goes of the directory `name` in `dir`. Where it is a part, that is handed to `each`.
///
/// # Errors
/// A directory cannot be opened or listed, or `each` failed.
pub(crate) fn goes(
    dir: &Dir,
    name: Name<'_>,
    fate: &FateOf<'_>,
    each: impl FnMut(Part<'_>) -> io::Result<()>,
) -> io::Result<Portion> {
    match portion(dir, name, fate)? {
        // What bars it may be met last.
        Portion::Part => walk(dir, name, fate, each),
        other => Ok(other),
    }
}

/// How much goes of the directory `name` in `dir`.
///
/// # Errors
/// A directory cannot be opened or listed.
pub(crate) fn portion(dir: &Dir, name: Name<'_>, fate: &FateOf<'_>) -> io::Result<Portion> {
    walk(dir, name, fate, |_| Ok(()))
}

fn walk(
    dir: &Dir,
    name: Name<'_>,
    fate: &FateOf<'_>,
    mut each: impl FnMut(Part<'_>) -> io::Result<()>,
) -> io::Result<Portion> {
    match dir.look(name)?.map(|info| fate(&[name.bytes()], &info)) {
        Some(Fate::Stays) => return Ok(Portion::Part),
        Some(Fate::Bars(why)) => return Ok(Bar::at([name.bytes()], why)),
        Some(Fate::Goes) | None => {}
    }
    let mut entered = match EnteredDir::of((dir, Place::of(dir)?.dev), name)? {
        Ok(top) => vec![top],
        Err(why) => return Ok(Bar::at([name.bytes()], why)),
    };
    loop {
        if let Some(entry) = entered.last_mut().and_then(|last| last.left.pop()) {
            let Some(last) = entered.last() else { return Ok(Portion::Whole) };
            let Some(info) = last.dir.look(entry.as_name())? else { continue };
            let names = entered.iter().map(|last| last.name.bytes()).chain([entry.bytes()]);
            let way: Vec<&[u8]> = names.collect();
            let fate = fate(&way, &info);
            let below = match fate {
                Fate::Bars(why) => return Ok(Bar::at(way, why)),
                Fate::Goes if info.kind == Kind::Dir => {
                    match EnteredDir::of((&last.dir, last.device), entry.as_name())? {
                        Ok(below) => Some(below),
                        Err(why) => return Ok(Bar::at(way, why)),
                    }
                }
                Fate::Goes | Fate::Stays => None,
            };
            let Some(last) = entered.last_mut() else { return Ok(Portion::Whole) };
            match below {
                Some(below) => entered.push(below),
                None if fate == Fate::Stays => last.stays = true,
                None => last.goes.push(entry),
            }
            continue;
        }
        let Some(done) = entered.pop() else { return Ok(Portion::Whole) };
        if done.stays {
            let below: Vec<&NameBuf> = entered.iter().map(|last| &last.name).chain([&done.name]).collect();
            each(Part { dir: &done.dir, below: &below, goes: &done.goes, all: done.all })?;
        }
        match entered.last_mut() {
            Some(above) if done.stays => above.stays = true,
            Some(above) => above.goes.push(done.name),
            None if done.stays => return Ok(Portion::Part),
            None => return Ok(Portion::Whole),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use std::fs;

    /// How much goes of a tree with these files, where what ends so stays or bars it; and the parts, as paths.
    fn parts(files: &[&str], stays: &str, bars: &str) -> (Portion, Vec<String>) {
        let tmp = tempfile::tempdir().unwrap();
        for file in files {
            fs::create_dir_all(tmp.path().join(file).parent().unwrap()).unwrap();
            fs::write(tmp.path().join(file), "").unwrap();
        }
        fs::create_dir_all(tmp.path().join("d/empty")).unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        let d = NameBuf::new(b"d").unwrap();
        let mut found = Vec::new();
        let portion = goes(
            &dir,
            d.as_name(),
            &|way, info| {
                let slash = if info.kind == Kind::Dir { "/" } else { "" };
                let path = String::from_utf8(way.join(&b'/')).unwrap() + slash;
                match path {
                    path if path.ends_with(stays) => Fate::Stays,
                    path if path.ends_with(bars) => Fate::Bars(Reason::HoldsSource),
                    _ => Fate::Goes,
                }
            },
            |part| {
                let below = part.below.iter().map(|n| n.bytes()).collect::<Vec<_>>().join(&b'/');
                let below = String::from_utf8(below).unwrap();
                assert_eq!(
                    part.dir.info().unwrap().ino,
                    std::os::unix::fs::MetadataExt::ino(&fs::metadata(tmp.path().join(&below)).unwrap())
                );
                found.extend(
                    part.goes.iter().map(|n| format!("{below}/{}", String::from_utf8_lossy(n.bytes()))),
                );
                Ok(())
            },
        )
        .unwrap();
        found.sort();
        (portion, found)
    }

    #[test]
    fn what_stays_keeps_what_leads_to_it() {
        let files = ["d/a.c", "d/x/b.o", "d/x/c.c", "d/x/y/d.c", "d/z/e.c"];
        let parts = |files: &[&str], stays| parts(files, stays, ".no");
        assert_eq!(parts(&files, ".no"), (Portion::Whole, vec![]));
        assert_eq!(
            parts(&files, "b.o"),
            (Portion::Part, ["d/a.c", "d/empty", "d/x/c.c", "d/x/y", "d/z"].map(str::to_owned).to_vec())
        );
        assert_eq!(
            parts(&files, "x/y/"),
            (Portion::Part, ["d/a.c", "d/empty", "d/x/b.o", "d/x/c.c", "d/z"].map(str::to_owned).to_vec())
        );
        assert_eq!(parts(&["d/a.o"], ".o"), (Portion::Part, vec!["d/empty".to_owned()]));
        // The directory itself is asked about as well.
        assert_eq!(parts(&files, "d/"), (Portion::Part, vec![]));
    }

    /// Wherever it is met, before or after something that stays.
    #[test]
    fn what_bars_a_directory_keeps_all_of_it() {
        let files = ["d/a/1.o", "d/a/2", "d/m/bar", "d/z/1.o", "d/z/2"];
        for bars in ["d/m/bar", "d/m/", "d/"] {
            let bar = Bar { path: bars.into(), why: Reason::HoldsSource };
            assert_eq!(parts(&files, ".o", bars), (Portion::Barred(bar), vec![]), "{bars}");
        }
        // What stays is not looked into.
        assert_eq!(parts(&files, "m/", "bar").0, Portion::Part);
    }
}
