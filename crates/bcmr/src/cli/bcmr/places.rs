//! `@name` in operands: places that the configuration names. A file of such a name is `./@name`.
//!
//! Pure: words and a table in, words out. Must not know how the configuration is read.

use super::Command;
use super::operands::IsHere;
use crate::names;
use crate::usage::Usage;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Whether a word may be a place.
pub fn is_place(word: &OsStr) -> bool {
    word.as_bytes().starts_with(b"@")
}

/// Puts what places stand for into the operands of `command`, and into the words of `line` that hints repeat.
pub fn expand(
    command: &mut Command,
    places: &BTreeMap<String, String>,
    line: &mut [OsString],
    is_here: IsHere<'_>,
) -> Result<(), Usage> {
    let (paths, target): (&mut [PathBuf], Option<&mut PathBuf>) = match command {
        Command::Copy(a) => (&mut a.operands.paths, a.operands.target_directory.as_mut()),
        Command::Check(a) => (&mut a.operands.paths, a.operands.target_directory.as_mut()),
        Command::Move(a) => (&mut a.operands.paths, a.operands.target_directory.as_mut()),
        Command::Ls(a) => (&mut a.look.paths, None),
        Command::Stat(a) => (&mut a.look.paths, None),
        Command::Du(a) => (&mut a.look.paths, None),
        Command::Mkdir(a) => (&mut a.look.paths, None),
        Command::Hash(a) => (&mut a.paths, None),
        Command::Remove(a) => (&mut a.paths, None),
        Command::Sync(a) => (std::slice::from_mut(&mut a.source), Some(&mut a.dest)),
        Command::Doctor(a) | Command::Deploy(a) => {
            if let Some(full) = full(Path::new(&a.host), places) {
                // A place has a path; a host has none.
                let is_url = full.as_bytes().starts_with(b"ssh://");
                let end = full.as_bytes().iter().position(|b| *b == b':').filter(|_| !is_url);
                let host = full.as_bytes().get(..end.unwrap_or(full.len())).unwrap_or_default();
                a.host = OsString::from_vec(host.to_vec());
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    each(paths, places, line, is_here)?;
    target.map_or(Ok(()), |dir| each(std::slice::from_mut(dir), places, line, is_here))
}

fn each(
    paths: &mut [PathBuf],
    places: &BTreeMap<String, String>,
    line: &mut [OsString],
    is_here: IsHere<'_>,
) -> Result<(), Usage> {
    for path in paths.iter_mut().filter(|path| is_place(path.as_os_str())) {
        let Some(full) = full(path, places) else {
            if is_here(path) {
                continue;
            }
            let said = format!(
                "{} is no place of the configuration, and nothing here has that name",
                names::quoted(path)
            );
            return Err(Usage::new(said).or("bcmr config lists the places; a file of that name is ./@NAME"));
        };
        for word in line.iter_mut().filter(|word| word.as_os_str() == path.as_os_str()) {
            word.clone_from(&full);
        }
        *path = full.into();
    }
    Ok(())
}

/// What `@name/rest` stands for, if there is such a place.
fn full(path: &Path, places: &BTreeMap<String, String>) -> Option<OsString> {
    let bytes = path.as_os_str().as_bytes().strip_prefix(b"@")?;
    let end = bytes.iter().position(|b| *b == b'/').unwrap_or(bytes.len());
    let place = places.get(std::str::from_utf8(bytes.get(..end)?).ok()?)?;
    let rest = bytes.get(end..)?.iter().position(|b| *b != b'/').and_then(|from| bytes.get(end + from..));
    let mut full = place.clone().into_bytes();
    if let Some(rest) = rest {
        // A host alone is the home directory there, and a path behind its colon is relative to that.
        if !full.ends_with(b"/") && !full.ends_with(b":") {
            full.push(b'/');
        }
        full.extend_from_slice(rest);
    }
    Some(OsString::from_vec(full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stand_for_what_they_are() {
        let places: BTreeMap<String, String> =
            [("nas", "me@host:/srv"), ("home", "host:"), ("disk", "/mnt/disk/")]
                .map(|(a, b)| (a.into(), b.into()))
                .into();
        for (typed, want) in [
            ("@nas", Some("me@host:/srv")),
            ("@nas/a/b", Some("me@host:/srv/a/b")),
            ("@nas//a", Some("me@host:/srv/a")),
            ("@nas/", Some("me@host:/srv")),
            ("@home/x", Some("host:x")),
            ("@disk/x", Some("/mnt/disk/x")),
            ("@nass", None),
            ("./@nas", None),
            ("nas", None),
        ] {
            assert_eq!(full(Path::new(typed), &places).as_deref(), want.map(OsStr::new), "{typed}");
        }
    }

    #[test]
    fn only_operands_are_places() {
        let places: BTreeMap<String, String> = [("nas".to_owned(), "h:/srv".to_owned())].into();
        let expanded = |typed: &str, here: bool| {
            let mut line: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            let mut command = super::super::parse(&line).unwrap().command;
            expand(&mut command, &places, &mut line, &|_| here).map(|()| line.join(OsStr::new(" ")))
        };
        assert_eq!(expanded("bcmr copy -r a @nas/b", false).unwrap(), "bcmr copy -r a h:/srv/b");
        assert_eq!(expanded("bcmr copy -t @nas a", false).unwrap(), "bcmr copy -t h:/srv a");
        assert_eq!(expanded("bcmr copy -e @nas a b", false).unwrap(), "bcmr copy -e @nas a b");
        assert_eq!(expanded("bcmr copy a @types", true).unwrap(), "bcmr copy a @types");
        assert!(expanded("bcmr copy a @typo", false).is_err());
        let mut doctor = super::super::parse(["bcmr", "doctor", "@nas"]).unwrap().command;
        expand(&mut doctor, &places, &mut [], &|_| false).unwrap();
        let Command::Doctor(host) = doctor else { panic!("{doctor:?}") };
        assert_eq!(host.host, "h");
    }
}
