//! What goes of a directory in which something stays.
//!
//! Must not know why something stays, nor how what goes is taken away.

use crate::disk::Dirs;
use crate::disk::sys::Sys;
use crate::error::Result;
use crate::node::Node;
use fastcopy::dir::{Dir, Name, NameBuf};
use fastcopy::meta::{Info, Kind, Place};
use std::io;

/// Whether the filter leaves an entry out, by the names that lead to it from where the directory is, and whether it is a
/// directory.
pub(crate) type SparedBelow<'a> = dyn Fn(&[&[u8]], bool) -> bool + 'a;

/// What files of rules leave out below a directory of the destination, which its names lead to from the one that is given. `None`
/// where that is not known, which was told.
pub(crate) type RulesBelow = dyn Fn(&Dir, &Node) -> Result<Option<Box<SparedBelow<'static>>>> + Send + Sync;

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
    all: u64,
    /// Names that were not looked at yet.
    left: Vec<NameBuf>,
    goes: Vec<NameBuf>,
    /// Something in it stays.
    stays: bool,
}

impl EnteredDir {
    fn of(above: &Dir, name: Name<'_>) -> io::Result<EnteredDir> {
        let dir = above.open_dir(name)?;
        let left = Sys::new().find(&dir, usize::MAX, &|_| true)?;
        let (name, all) = (name.to_owned(), left.len() as u64);
        // Nothing goes where something else is mounted.
        let is_mounted = Place::of(&dir)?.mount_root == Some(true);
        let left = if is_mounted { Vec::new() } else { left };
        Ok(EnteredDir { name, dir, all, left, goes: Vec::new(), stays: is_mounted })
    }
}

/// Whether all of the directory `name` in `dir` goes. Where some of it `stays`, the rest is handed to `each`.
///
/// # Errors
/// A directory cannot be opened or listed, or `each` failed.
pub(crate) fn goes_whole(
    dir: &Dir,
    name: Name<'_>,
    stays: &dyn Fn(&[&[u8]], &Info) -> bool,
    mut each: impl FnMut(Part<'_>) -> io::Result<()>,
) -> io::Result<bool> {
    let mut entered = vec![EnteredDir::of(dir, name)?];
    loop {
        let Some(last) = entered.last_mut() else { return Ok(true) };
        if let Some(entry) = last.left.pop() {
            let Some(info) = last.dir.look(entry.as_name())? else { continue };
            let is_dir = info.kind == Kind::Dir;
            let way = entered.iter().map(|last| last.name.bytes()).chain([entry.bytes()]);
            let is_left = stays(&way.collect::<Vec<_>>(), &info);
            let Some(last) = entered.last_mut() else { return Ok(true) };
            if is_left {
                last.stays = true;
            } else if is_dir {
                let below = EnteredDir::of(&last.dir, entry.as_name())?;
                entered.push(below);
            } else {
                last.goes.push(entry);
            }
            continue;
        }
        let Some(done) = entered.pop() else { return Ok(true) };
        if done.stays {
            let below: Vec<&NameBuf> = entered.iter().map(|last| &last.name).chain([&done.name]).collect();
            each(Part { dir: &done.dir, below: &below, goes: &done.goes, all: done.all })?;
        }
        match entered.last_mut() {
            Some(above) if done.stays => above.stays = true,
            Some(above) => above.goes.push(done.name),
            None => return Ok(!done.stays),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use std::fs;

    /// The parts that go of a tree with these files, as paths; all of them where nothing stays.
    fn parts(files: &[&str], stays: &str) -> (bool, Vec<String>) {
        let tmp = tempfile::tempdir().unwrap();
        for file in files {
            fs::create_dir_all(tmp.path().join(file).parent().unwrap()).unwrap();
            fs::write(tmp.path().join(file), "").unwrap();
        }
        fs::create_dir_all(tmp.path().join("d/empty")).unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        let d = NameBuf::new(b"d").unwrap();
        let mut found = Vec::new();
        let whole = goes_whole(
            &dir,
            d.as_name(),
            &|way, info| {
                let slash = if info.kind == Kind::Dir { "/" } else { "" };
                let path = String::from_utf8(way.join(&b'/')).unwrap() + slash;
                path.ends_with(stays)
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
        (whole, found)
    }

    #[test]
    fn what_stays_keeps_what_leads_to_it() {
        let files = ["d/a.c", "d/x/b.o", "d/x/c.c", "d/x/y/d.c", "d/z/e.c"];
        assert_eq!(parts(&files, ".no"), (true, vec![]));
        assert_eq!(
            parts(&files, "b.o"),
            (false, ["d/a.c", "d/empty", "d/x/c.c", "d/x/y", "d/z"].map(str::to_owned).to_vec())
        );
        assert_eq!(
            parts(&files, "x/y/"),
            (false, ["d/a.c", "d/empty", "d/x/b.o", "d/x/c.c", "d/z"].map(str::to_owned).to_vec())
        );
        assert_eq!(parts(&["d/a.o"], ".o"), (false, vec!["d/empty".to_owned()]));
    }
}
