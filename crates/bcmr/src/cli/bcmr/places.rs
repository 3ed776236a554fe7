//! `@name` in operands: places that the configuration names. A file of such a name is `./@name`.
//!
//! Pure: words and a table in, words out. Must not know how the configuration is read.

use super::Command;
use super::operands::{IsHere, Operands};
use crate::address::{self, Operand};
use crate::names;
use crate::usage::Usage;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Whether an operand of `command` may be a place.
pub fn names_places(command: &mut Command) -> bool {
    let is_host = match command {
        Command::Doctor(a) | Command::Deploy(a) => is_place(&a.host),
        _ => false,
    };
    is_host || operands(command).into_iter().any(|path| is_place(path.as_os_str()))
}

fn is_place(word: &OsStr) -> bool {
    word.as_bytes().starts_with(b"@")
}

/// Puts what places stand for into the operands of `command`, and into the words of `line` that hints repeat.
pub fn expand(
    command: &mut Command,
    (places, home): (&BTreeMap<String, String>, Option<&Path>),
    line: &mut [OsString],
    is_here: IsHere<'_>,
) -> Result<(), Usage> {
    if let Command::Doctor(a) | Command::Deploy(a) = command {
        if let Some(full) = full(Path::new(&a.host), places, home)? {
            // A place has a path; a host has none.
            a.host = match address::parse(Path::new(&full))? {
                Operand::There(there) if !address::is_url(Path::new(&full)) => {
                    address::machine(&there).into()
                }
                _ => full,
            };
        }
        return Ok(());
    }
    for path in operands(command).into_iter().filter(|path| is_place(path.as_os_str())) {
        let Some(full) = full(path, places, home)? else {
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

/// The operands of a command that are paths, here or on another machine.
fn operands(command: &mut Command) -> Vec<&mut PathBuf> {
    match command {
        Command::Copy(a) => of(&mut a.operands),
        Command::Check(a) => of(&mut a.operands),
        Command::Move(a) => of(&mut a.operands),
        Command::Ls(a) => a.look.paths.iter_mut().collect(),
        Command::Stat(a) => a.look.paths.iter_mut().collect(),
        Command::Du(a) => a.look.paths.iter_mut().collect(),
        Command::Mkdir(a) => a.look.paths.iter_mut().collect(),
        Command::Hash(a) => a.paths.iter_mut().collect(),
        Command::Remove(a) => a.paths.iter_mut().collect(),
        Command::Sync(a) => vec![&mut a.source, &mut a.dest],
        Command::Plan(a) => {
            [&mut a.source, &mut a.destination, &mut a.out, &mut a.status].into_iter().flatten().collect()
        }
        Command::Shard(a) => vec![&mut a.plan],
        Command::Finish(a) => vec![&mut a.plan],
        Command::Sessions(a) => vec![&mut a.dir],
        Command::Undo(a) => vec![&mut a.receipt],
        Command::Doctor(_)
        | Command::Deploy(_)
        | Command::Ctl(_)
        | Command::Serve(_)
        | Command::Init(_)
        | Command::Config
        | Command::AtSource
        | Command::Schema
        | Command::Completions { .. }
        | Command::Complete { .. }
        | Command::Man { .. } => Vec::new(),
    }
}

fn of(operands: &mut Operands) -> Vec<&mut PathBuf> {
    operands.paths.iter_mut().chain(&mut operands.target_directory).collect()
}

/// What `@name/rest` stands for, if there is such a place.
///
/// # Errors
/// It is below the home directory, and `HOME` does not say which that is.
fn full(
    path: &Path,
    places: &BTreeMap<String, String>,
    home: Option<&Path>,
) -> Result<Option<OsString>, Usage> {
    let Some((place, rest)) = place(path.as_os_str().as_bytes(), places) else { return Ok(None) };
    let mut full = match place.strip_prefix('~') {
        Some(below) => {
            let home = home.ok_or_else(|| {
                let said = format!(
                    "{} is {}, and HOME does not say where that is",
                    names::quoted(path),
                    names::quoted(Path::new(place))
                );
                Usage::new(said).or("set HOME to an absolute path, or have the place begin with /")
            })?;
            [home.as_os_str().as_bytes(), below.as_bytes()].concat()
        }
        None => place.as_bytes().to_vec(),
    };
    if !rest.is_empty() {
        let name = rest.iter().position(|b| *b != b'/').unwrap_or(rest.len());
        // A host alone is the home directory there, and a path behind its colon is relative to that. A slash alone is kept as well:
        // it says that there is a directory.
        if !full.ends_with(b"/") && !full.ends_with(b":") {
            full.push(b'/');
        }
        full.extend_from_slice(rest.get(name..).unwrap_or_default());
    }
    Ok(Some(OsString::from_vec(full)))
}

/// The place that a word names, and what stands behind that.
fn place<'p, 'w>(word: &'w [u8], places: &'p BTreeMap<String, String>) -> Option<(&'p str, &'w [u8])> {
    let word = word.strip_prefix(b"@")?;
    let end = word.iter().position(|b| *b == b'/').unwrap_or(word.len());
    let place = places.get(std::str::from_utf8(word.get(..end)?).ok()?)?;
    Some((place, word.get(end..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stand_for_what_they_are() {
        let places: BTreeMap<String, String> = [
            ("nas", "me@host:/srv"),
            ("home", "host:"),
            ("disk", "/mnt/disk/"),
            ("own", "~/p"),
            ("all", "~"),
        ]
        .map(|(a, b)| (a.into(), b.into()))
        .into();
        for (typed, want) in [
            ("@nas", Some("me@host:/srv")),
            ("@nas/a/b", Some("me@host:/srv/a/b")),
            ("@nas//a", Some("me@host:/srv/a")),
            ("@nas/", Some("me@host:/srv/")),
            ("@nas//", Some("me@host:/srv/")),
            ("@home/", Some("host:")),
            ("@disk/", Some("/mnt/disk/")),
            ("@home/x", Some("host:x")),
            ("@disk/x", Some("/mnt/disk/x")),
            ("@own", Some("/home/me/p")),
            ("@own/x", Some("/home/me/p/x")),
            ("@all", Some("/home/me")),
            ("@all/x", Some("/home/me/x")),
            ("@nass", None),
            ("./@nas", None),
            ("nas", None),
        ] {
            assert_eq!(
                full(Path::new(typed), &places, Some(Path::new("/home/me"))).unwrap().as_deref(),
                want.map(OsStr::new),
                "{typed}"
            );
        }
        for (typed, is_refused) in [("@own", true), ("@all/x", true), ("@nas", false), ("@nass", false)] {
            assert_eq!(full(Path::new(typed), &places, None).is_err(), is_refused, "{typed}");
        }
    }

    #[test]
    fn a_place_names_a_host() {
        for (place, want) in [
            ("h:/srv", "h"),
            ("me@h:a", "me@h"),
            ("[::1]:a", "[::1]"),
            ("me@[::1]:a", "me@[::1]"),
            ("ssh://h:22/a", "ssh://h:22/a"),
        ] {
            let places: BTreeMap<String, String> = [("v".to_owned(), place.to_owned())].into();
            let mut doctor = super::super::parse(["bcmr", "doctor", "@v"]).unwrap().command;
            expand(&mut doctor, (&places, None), &mut [], &|_| false).unwrap();
            let Command::Doctor(host) = doctor else { panic!("{doctor:?}") };
            assert_eq!(host.host, want);
            assert!(address::parse_host(&host.host).is_ok(), "{want}");
        }
    }

    #[test]
    fn only_operands_are_places() {
        let places: BTreeMap<String, String> = [("nas".to_owned(), "h:/srv".to_owned())].into();
        let expanded = |typed: &str, here: bool| {
            let mut line: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            let mut command = super::super::parse(&line).unwrap().command;
            expand(&mut command, (&places, Some(Path::new("/home/me"))), &mut line, &|_| here)
                .map(|()| line.join(OsStr::new(" ")))
        };
        assert_eq!(expanded("bcmr copy -r a @nas/b", false).unwrap(), "bcmr copy -r a h:/srv/b");
        assert_eq!(expanded("bcmr copy -t @nas a", false).unwrap(), "bcmr copy -t h:/srv a");
        assert_eq!(expanded("bcmr copy -e @nas a b", false).unwrap(), "bcmr copy -e @nas a b");
        for (typed, want) in [
            ("plan a @nas --out p", "plan a h:/srv --out p"),
            ("plan @nas/a b --out p", "plan h:/srv/a b --out p"),
            ("plan a b --out @nas", "plan a b --out h:/srv"),
            ("shard @nas/p 0", "shard h:/srv/p 0"),
            ("finish @nas/p", "finish h:/srv/p"),
            ("sessions @nas", "sessions h:/srv"),
            ("undo @nas/receipt", "undo h:/srv/receipt"),
        ] {
            assert_eq!(
                expanded(&format!("bcmr {typed}"), false).unwrap().to_str().unwrap(),
                format!("bcmr {want}")
            );
        }
        assert!(expanded("bcmr plan a @typo --out p", false).is_err());
        assert_eq!(expanded("bcmr copy a @types", true).unwrap(), "bcmr copy a @types");
        assert!(expanded("bcmr copy a @typo", false).is_err());
        let mut doctor = super::super::parse(["bcmr", "doctor", "@nas"]).unwrap().command;
        expand(&mut doctor, (&places, Some(Path::new("/home/me"))), &mut [], &|_| false).unwrap();
        let Command::Doctor(host) = doctor else { panic!("{doctor:?}") };
        assert_eq!(host.host, "h");
    }
}
