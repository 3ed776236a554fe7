//! The command that proves a copy: a check of the same operands with everything of the typed command that decides what is
//! copied, and without what does not.
//!
//! Pure: words in, words out. Must not know what any option does; that an option of `copy` is one of `check` too is looked
//! up in their definitions.

use super::words::{is_long, is_short, takes_next};
use clap::{Arg, Command};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Options of both that say how the copy was to be told, or how it goes on, and nothing of what it comes to. With `-u` and
/// `--no-clobber` a check would leave unread whatever is there, which now is the copy.
const OF_THE_RUN: &[&str] = &[
    "verbose",
    "quiet",
    "progress",
    "progress_in",
    "json",
    "jobs",
    "resume",
    "strict",
    "append",
    "verify",
    "bootstrap",
    "no_bootstrap",
    "manifest",
    "no_clobber",
    "update",
];
/// Options of `copy` that bring directories, in which there may be more than the copy: that is no fault of it.
const OF_TREES: &[&str] = &["recursive", "archive"];
/// Options of `copy` that give others than the source has of what `--archive` compares.
const OF_OTHERS: &[&str] = &["chown", "chmod", "usermap", "groupmap"];
/// Options of `copy` without which the operands mean something else.
const OF_THE_OPERANDS: &[&str] = &["files_from", "files_from0", "dry_run", "append"];

/// The words of the check that proves the copy of `line`; `None` where there is none.
pub fn command(line: &[OsString]) -> Option<Vec<OsString>> {
    let mut all = super::command();
    all.build();
    let (copy, check) = (all.find_subcommand("copy")?, all.find_subcommand("check")?);
    let mut words = line.iter();
    let mut out = vec![words.next()?.clone()];
    if words.next()? != "copy" {
        return None;
    }
    out.extend(["check".into(), "--hash".into()]);
    let mut operands_only = false;
    let mut typed = Vec::new();
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        if bytes == b"-" && !operands_only {
            return None;
        }
        if operands_only || !bytes.starts_with(b"-") {
            out.push(word.clone());
        } else if bytes == b"--" {
            operands_only = true;
            out.push(word.clone());
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            let end = long.iter().position(|b| *b == b'=').unwrap_or(long.len());
            let name = std::str::from_utf8(long.get(..end)?).ok()?;
            let arg = copy.get_arguments().find(|arg| is_long(arg, name))?;
            let value = if end == long.len() && takes_next(arg) { words.next() } else { None };
            typed.push(arg.get_id().as_str());
            if keeps(arg, check)? {
                out.push(word.clone());
                out.extend(value.cloned());
            }
        } else {
            let letters = std::str::from_utf8(bytes.get(1..)?).ok()?;
            for (at, letter) in letters.char_indices() {
                let arg = copy.get_arguments().find(|arg| is_short(arg, letter))?;
                let rest = letters.get(at + letter.len_utf8()..)?;
                let has_value = arg.get_action().takes_values() && (takes_next(arg) || rest.starts_with('='));
                let value = match (has_value, rest) {
                    (false, _) => None,
                    (true, "") => Some(words.next()?.clone()),
                    (true, rest) => Some(OsString::from(rest)),
                };
                typed.push(arg.get_id().as_str());
                if keeps(arg, check)? {
                    let mut option = OsString::from(format!("-{letter}"));
                    option.push(value.as_deref().unwrap_or(OsStr::new("")));
                    out.push(option);
                }
                if has_value {
                    break;
                }
            }
        }
    }
    let has = |ids: &[&str]| typed.iter().any(|id| ids.contains(id));
    if has(&["archive"]) && has(OF_OTHERS) {
        return None;
    }
    if has(OF_TREES) {
        out.insert(3, "--no-extra".into());
    }
    super::parse(&out).ok().map(|_| out)
}

/// Whether the check wants it too; `None`: without it there is no check of the same.
fn keeps(arg: &Arg, check: &Command) -> Option<bool> {
    let id = arg.get_id().as_str();
    if OF_THE_OPERANDS.contains(&id) {
        return None;
    }
    let known = check.get_arguments().any(|other| other.get_id() == arg.get_id());
    Some(known && !OF_THE_RUN.contains(&id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_what_is_copied_stays() {
        for (typed, want) in [
            ("bcmr copy -r s d", Some("bcmr check --hash --no-extra -r s d")),
            ("bcmr copy -rVvj4 s d", Some("bcmr check --hash --no-extra -r s d")),
            ("bcmr copy -rCe *.o s d", Some("bcmr check --hash --no-extra -r -e*.o s d")),
            (
                "bcmr copy --archive --exclude=x --sync s -t d",
                Some("bcmr check --hash --no-extra --archive --exclude=x s -td"),
            ),
            ("bcmr copy --exclude x --jobs 3 -u s d", Some("bcmr check --hash --exclude x s d")),
            ("bcmr copy -r --no-clobber --update=none s d", Some("bcmr check --hash --no-extra -r s d")),
            ("bcmr copy --report r.html --manifest m s d", Some("bcmr check --hash s d")),
            ("bcmr copy -V=direct s host:d -J jump", Some("bcmr check --hash s host:d -Jjump")),
            ("bcmr copy -- -r d", Some("bcmr check --hash -- -r d")),
            ("bcmr copy --files-from l s d", None),
            ("bcmr copy -rn s d", None),
            ("bcmr copy --archive --chown 1:1 s d", None),
            ("bcmr copy -r --chmod 600 s d", Some("bcmr check --hash --no-extra -r s d")),
            ("bcmr copy - d", None),
            ("bcmr move s d", None),
        ] {
            let line: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            let got = command(&line).map(|words| words.join(OsStr::new(" ")));
            assert_eq!(got.as_deref(), want.map(OsStr::new), "{typed}");
        }
    }
}
