//! Owners and modes that are to be other than at the source. Must not know how they are set, nor read a file: which names
//! there are is given.

use super::columns::{Columns, Holds::Everywhere, Row, Scp::Loses};
use super::filters::unsettled;
use crate::cli::symbolic;
use crate::usage::Usage;
use bcmr_engine::alter::{ANYBODY, MAPPED_MAX, ModeChange, OwnerMap, OwnersAndModes, OwnersBy};
use bcmr_engine::policy::Preserve;
use clap::Args;

#[derive(Debug, Args)]
#[command(next_help_heading = "Owners and modes that are other than at the source")]
pub struct OwnerArgs {
    /// Everything belongs to USER, GROUP or both, as numbers or names of this machine; owner and group are kept otherwise
    #[arg(
        hide_short_help = true,
        long,
        value_name = "USER:GROUP",
        value_parser = chown,
        conflicts_with_all = ["usermap", "groupmap"]
    )]
    pub chown: Option<(Option<Who>, Option<Who>)>,
    /// Modes are kept and changed by this: as chmod takes it, with D or F before what is for directories or the rest alone
    #[arg(hide_short_help = true, long, value_name = "MODE", value_parser = modes)]
    pub chmod: Option<(ModeChange, ModeChange)>,
    /// What belongs to FROM will belong to TO: numbers or names of this machine, * is any; at most 8, the first that fits counts
    #[arg(hide_short_help = true, long, value_name = "FROM:TO", value_delimiter = ',', value_parser = pair)]
    pub usermap: Vec<(Who, Who)>,
    /// The same for groups
    #[arg(hide_short_help = true, long, value_name = "FROM:TO", value_delimiter = ',', value_parser = pair)]
    pub groupmap: Vec<(Who, Who)>,
    /// Owners go to and from another machine as numbers, and not by their names
    #[arg(hide_short_help = true, long)]
    pub numeric_ids: bool,
    /// What all of it comes to, once names were looked up.
    #[arg(skip)]
    pub maps: Option<(OwnerMap, OwnerMap)>,
}

impl Columns for OwnerArgs {
    const ROWS: &'static [Row<OwnerArgs>] = &[
        Row("--chown", Everywhere, Loses, |a| a.chown.is_some()),
        Row("--chmod", Everywhere, Loses, |a| a.chmod.is_some()),
        Row("--usermap", Everywhere, Loses, |a| !a.usermap.is_empty()),
        Row("--groupmap", Everywhere, Loses, |a| !a.groupmap.is_empty()),
        Row("--numeric-ids", Everywhere, Loses, |a| a.numeric_ids),
    ];
}

/// A user or a group as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    Any,
    Number(u32),
    Named(String),
}

fn who(typed: &str) -> Result<Who, String> {
    match typed {
        "" => Err("a name or a number is missing".into()),
        "*" => Ok(Who::Any),
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => {
            // To the kernel the highest number means "as it is".
            let number = digits.parse().ok().filter(|number| *number != u32::MAX);
            number.map(Who::Number).ok_or_else(|| "no owner has so high a number".into())
        }
        name => Ok(Who::Named(name.to_owned())),
    }
}

fn one(typed: &str) -> Result<Who, String> {
    match who(typed)? {
        Who::Any => Err("* is no owner that something could get".into()),
        one => Ok(one),
    }
}

fn chown(typed: &str) -> Result<(Option<Who>, Option<Who>), String> {
    let (user, group) = typed.split_once(':').unwrap_or((typed, ""));
    let some = |typed: &str| (!typed.is_empty()).then(|| one(typed)).transpose();
    match (some(user)?, some(group)?) {
        (None, None) => Err("a user, :GROUP or USER:GROUP is needed".into()),
        both => Ok(both),
    }
}

fn pair(typed: &str) -> Result<(Who, Who), String> {
    let (from, to) = typed.split_once(':').ok_or("FROM:TO is needed")?;
    Ok((who(from)?, one(to)?))
}

/// `D755,F644`, `go-w`, `u=rwX,go=rX`: what it makes of modes, first of what is no directory.
fn modes(typed: &str) -> Result<(ModeChange, ModeChange), String> {
    let (mut files, mut dirs) = (ModeChange::NONE, ModeChange::NONE);
    for clause in typed.split(',') {
        let bad = || format!("{clause} is no mode: u, g, o, a, then + - or =, then r w x X s t; or digits");
        let (for_files, for_dirs, rest) = match clause.split_at_checked(1) {
            Some(("D", rest)) => (false, true, rest),
            Some(("F", rest)) => (true, false, rest),
            _ => (true, true, clause),
        };
        for (change, wanted, is_dir) in [(&mut files, for_files, false), (&mut dirs, for_dirs, true)] {
            if wanted {
                *change = then(*change, rest, is_dir).ok_or_else(bad)?;
            }
        }
    }
    Ok((files, dirs))
}

/// A clause after what came before it.
fn then(before: ModeChange, clause: &str, is_dir: bool) -> Option<ModeChange> {
    if let Some(set) = symbolic::octal(clause) {
        return Some(ModeChange { stay: 0, set, set_if_executable: 0 });
    }
    let start = clause.find(['+', '-', '='])?;
    let (letters, rest) = clause.split_at(start);
    let whom = symbolic::whom(letters)?;
    let (op, letters) = rest.split_at_checked(1)?;
    let (mut bits, mut executable) = (0, 0);
    for letter in letters.chars() {
        match letter {
            'X' if is_dir => bits |= 0o111,
            'X' => executable |= 0o111,
            other => bits |= symbolic::permission(other)?,
        }
    }
    let (bits, executable) = (bits & whom, executable & whom);
    let ModeChange { stay, set, set_if_executable } = before;
    Some(match op {
        "+" => ModeChange { stay, set: set | bits, set_if_executable: set_if_executable | executable },
        "-" => {
            let left = !(bits | executable);
            ModeChange { stay: stay & left, set: set & left, set_if_executable: set_if_executable & left }
        }
        _ => ModeChange {
            stay: stay & !whom,
            set: set & !whom | bits,
            set_if_executable: set_if_executable & !whom | executable,
        },
    })
}

impl OwnerArgs {
    /// Looks names up in what the two files of accounts hold, which are read only where there is a name.
    pub(super) fn settle(&mut self, read: &dyn Fn(&str) -> Result<Vec<u8>, Usage>) -> Result<(), Usage> {
        let (mut users, mut groups) = (self.usermap.clone(), self.groupmap.clone());
        if let Some((user, group)) = self.chown.clone() {
            users = user.into_iter().map(|user| (Who::Any, user)).collect();
            groups = group.into_iter().map(|group| (Who::Any, group)).collect();
        }
        let users = map(&users, "--usermap", "user", &|| read("/etc/passwd"))?;
        let groups = map(&groups, "--groupmap", "group", &|| read("/etc/group"))?;
        self.maps = Some((users, groups));
        Ok(())
    }
}

fn map(
    pairs: &[(Who, Who)],
    flag: &str,
    what: &str,
    read: &dyn Fn() -> Result<Vec<u8>, Usage>,
) -> Result<OwnerMap, Usage> {
    let mut map = [None; MAPPED_MAX];
    if pairs.len() > map.len() {
        return Err(Usage::new(format!("{flag} takes {MAPPED_MAX} pairs at most")));
    }
    let number = |who: &Who| match who {
        Who::Any => Ok(ANYBODY),
        Who::Number(number) => Ok(*number),
        Who::Named(name) => numbered(&read()?, name).ok_or_else(|| {
            Usage::new(format!("no {what} of this machine is called {}", crate::names::text(name)))
        }),
    };
    for (place, (from, to)) in map.iter_mut().zip(pairs) {
        *place = Some((number(from)?, number(to)?));
    }
    Ok(map)
}

/// The third field of the line that begins with a name.
fn numbered(accounts: &[u8], name: &str) -> Option<u32> {
    let accounts = String::from_utf8_lossy(accounts);
    let mut fields = accounts.lines().map(|line| line.split(':'));
    let mut found = fields.find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    found.nth(1)?.parse().ok().filter(|number| *number != u32::MAX)
}

/// What is other than at the source.
///
/// # Errors
/// Owners were named, and not looked up.
pub(super) fn alter(a: &OwnerArgs) -> Result<OwnersAndModes, Usage> {
    let (files, dirs) = a.chmod.unwrap_or((ModeChange::NONE, ModeChange::NONE));
    let (users, groups) = match a.maps {
        Some(maps) => maps,
        None if !names_owners(a) => (OwnersAndModes::NONE.users, OwnersAndModes::NONE.groups),
        None => return Err(unsettled("--chown, --usermap or --groupmap")),
    };
    let known_by = if a.numeric_ids { OwnersBy::Number } else { OwnersBy::Name };
    Ok(OwnersAndModes { files, dirs, users, groups, known_by })
}

fn names_owners(a: &OwnerArgs) -> bool {
    a.chown.is_some() || !a.usermap.is_empty() || !a.groupmap.is_empty()
}

/// What is to be other is kept as far as it is not.
pub(super) fn preserved(a: &OwnerArgs, kept: Preserve) -> Preserve {
    Preserve { mode: kept.mode || a.chmod.is_some(), owner: kept.owner || are_said(a), ..kept }
}

/// Whether something is said of owners.
pub(super) fn are_said(a: &OwnerArgs) -> bool {
    names_owners(a) || a.numeric_ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_as_chmod_takes_them() {
        for (typed, mode, file, dir) in [
            ("644", 0o755, 0o644, 0o644),
            ("D755,F644", 0o700, 0o644, 0o755),
            ("go-w", 0o666, 0o644, 0o644),
            ("u=rwX,go=rX", 0o600, 0o644, 0o755),
            ("u=rwX,go=rX", 0o700, 0o755, 0o755),
            ("a+X", 0o640, 0o640, 0o751),
            ("F-x,D+s", 0o755, 0o644, 0o6755),
            ("ug+s,+t", 0o755, 0o7755, 0o7755),
            ("u-s", 0o6755, 0o2755, 0o2755),
            ("g=,o=", 0o777, 0o700, 0o700),
            ("=r", 0o7777, 0o444, 0o444),
        ] {
            let (files, dirs) = modes(typed).unwrap();
            assert_eq!((files.of(mode), dirs.of(mode)), (file, dir), "{typed} of {mode:o}: {files:?}");
        }
        for typed in ["", "9", "77777", "u", "u*x", "z+x", "+q", "644,", "D"] {
            assert!(modes(typed).is_err(), "{typed}");
        }
    }

    #[test]
    fn owners_by_number_and_name() {
        let accounts = |file: &str| match file {
            "/etc/passwd" => {
                Ok(b"root:x:0:0::/:/bin/sh\nme:x:1000:100::/:\nbad:x:4294967295:1::/:\n".to_vec())
            }
            _ => Ok(b"staff:x:50:me\n".to_vec()),
        };
        let settled = |line: &str| {
            let argv = ["bcmr", "copy"].into_iter().chain(line.split(' ')).chain(["a", "b"]);
            let super::super::Command::Copy(mut a) =
                super::super::parse(argv).map_err(|e| e.to_string())?.command
            else {
                panic!("{line}")
            };
            a.owners.settle(&accounts).map_err(|u| u.said)?;
            let alter = alter(&a.owners).map_err(|u| u.said)?;
            let pairs = |map: OwnerMap| map.into_iter().flatten().collect::<Vec<_>>();
            Ok::<_, String>((pairs(alter.users), pairs(alter.groups)))
        };
        for (line, users, groups) in [
            ("--chown me:staff", vec![(ANYBODY, 1000)], vec![(ANYBODY, 50)]),
            ("--chown 7", vec![(ANYBODY, 7)], vec![]),
            ("--chown :staff", vec![], vec![(ANYBODY, 50)]),
            ("--usermap me:5,*:root", vec![(1000, 5), (ANYBODY, 0)], vec![]),
            ("--groupmap 1:staff --groupmap 2:3", vec![], vec![(1, 50), (2, 3)]),
        ] {
            assert_eq!(settled(line), Ok((users, groups)), "{line}");
        }
        for line in [
            "--chown nobody-such",
            "--chown bad",
            "--chown :",
            "--chown *",
            "--chown 4294967295",
            "--usermap 1",
            "--usermap 1:*",
            "--usermap :1",
            "--chown 1 --usermap 1:2",
            "--usermap 1:1,2:1,3:1,4:1,5:1,6:1,7:1,8:1,9:1",
        ] {
            assert!(settled(line).is_err(), "{line}");
        }
    }
}
