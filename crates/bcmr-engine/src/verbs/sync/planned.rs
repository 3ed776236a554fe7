//! `sync -n --plan` and `sync --apply`: what a run would do, written down with what it was planned with, and done only while that
//! holds (docs/sync.md, "A plan").
//!
//! Must not decide what is to be done: that is the dry run's, at both times.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Change, Event, Front, Question, Summary, Watch};
use crate::policy::{CopyPolicy, SyncPlan};
use crate::tabbed::{put, taken};
use crate::tally::Tally;
use crate::verbs::manifest::WholeFile;
use crate::verbs::operands::{self, Dest};
use crate::verbs::sync::ends::SyncPair;
use crate::verbs::sync::preview;
use fastcopy::dir::{Dir, ListBuffer, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const HEAD: &[u8] = b"bcmr sync plan 1";
/// A longer plan is not read.
const PLAN_BYTES_MAX: u64 = 2 << 30;

/// What is planned for one name: `+`, `~` or `-`, its bytes, and a hash of what both sides are like.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlannedName {
    sign: u8,
    bytes: u64,
    alike: [u8; 32],
}

type PlannedNames = BTreeMap<PathBuf, PlannedName>;

/// Carries out what was planned, or writes it down.
///
/// # Errors
/// Nothing could be begun, or the plan cannot be read or written.
pub(super) fn with_plan(
    ends: &SyncPair,
    policy: &CopyPolicy,
    plan: &SyncPlan,
    watch: Watch<'_>,
) -> Result<Summary> {
    match plan {
        SyncPlan::None => preview::preview(ends, policy, &operands::shown(&ends.dest), watch),
        SyncPlan::Write { file, words } => {
            let page = WholeFile::begin(file)?;
            let (summary, names) = match gathered(ends, policy, watch, true) {
                Ok(found) => found,
                Err(e) => return page.give_up().and(Err(e)),
            };
            if summary.failed > 0 || summary.cancelled {
                // What was not looked at cannot be planned.
                return page.give_up().map(|()| summary);
            }
            page.end(&written(words, &names)).map(|()| summary)
        }
        SyncPlan::Apply(file) => {
            let planned = read(file)?.1;
            let (summary, now) = gathered(ends, policy, watch, false)?;
            let tally = Tally::new(watch);
            for (path, why) in unlike(&planned, &now) {
                tally.fail(Error::ours(Code::Refused, Op::ApplyPlan, path, why));
            }
            let mut told = tally.summary();
            told.add(Summary { differences: 0, ..summary });
            Ok(told)
        }
    }
}

/// What differs between what was planned and what would be done now.
fn unlike(planned: &PlannedNames, now: &PlannedNames) -> Vec<(PathBuf, Reason)> {
    let gone = planned.iter().filter_map(|(path, then)| match now.get(path) {
        None => Some((path.clone(), Reason::NotPlannedAnyMore)),
        Some(now) if now != then => Some((path.clone(), Reason::PlannedOtherwise)),
        Some(_) => None,
    });
    let new = now.keys().filter(|path| !planned.contains_key(*path));
    gone.chain(new.map(|path| (path.clone(), Reason::NotPlanned))).collect()
}

/// Keeps differences, and passes on what is to be told. The destination itself has no name among them, as every name may be one
/// in it too; it is told under its own.
struct Gatherer<'w> {
    front: &'w dyn Front,
    own_name: &'w Path,
    tells: bool,
    found: Mutex<Vec<(u8, PathBuf, u64)>>,
}

impl Front for Gatherer<'_> {
    fn event(&self, event: Event) {
        let Event::Difference { change, path, directory, files, bytes, why } = event else {
            return self.front.event(event);
        };
        let sign = match change {
            Change::Add => b'+',
            Change::Differ => b'~',
            Change::Extra => b'-',
        };
        self.found.lock().unwrap_or_else(PoisonError::into_inner).push((sign, path.clone(), bytes));
        if self.tells {
            let path = if path.as_os_str().is_empty() { self.own_name.to_owned() } else { path };
            self.front.event(Event::Difference { change, path, directory, files, bytes, why });
        }
    }

    fn ask(&self, question: Question) -> bool {
        self.front.ask(question)
    }

    fn goes_on(&self) {
        self.front.goes_on();
    }

    fn lend_terminal(&self, lent: bool) {
        self.front.lend_terminal(lent);
    }
}

/// What a run would do, with what both sides are like where it would.
fn gathered(
    ends: &SyncPair,
    policy: &CopyPolicy,
    watch: Watch<'_>,
    tells: bool,
) -> Result<(Summary, PlannedNames)> {
    let root = operands::shown(&ends.dest);
    let front = Gatherer { front: watch.front, own_name: &root, tells, found: Mutex::default() };
    let dry = CopyPolicy { dry_run: true, ..policy.clone() };
    let summary = preview::preview(ends, &dry, Path::new(""), Watch { front: &front, ..watch })?;
    let mut names = PlannedNames::new();
    for (sign, below, bytes) in front.found.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let fail = |e| Error::os(Op::Stat, root.join(&below), e);
        let mut hasher = blake3::Hasher::new();
        if sign != b'-' {
            describe(&ends.source, &below, sign == b'+', &mut hasher).map_err(fail)?;
        }
        hasher.update(b"\0");
        if let (Dest::Whole(place), true) = (&ends.dest, sign != b'+') {
            describe(&place.dir, &below, sign == b'-', &mut hasher).map_err(fail)?;
        }
        let alike = *hasher.finalize().as_bytes();
        // One name may go and come as something else.
        let found = PlannedName { sign, bytes, alike };
        match names.get_mut(&below) {
            Some(there) => {
                let both = blake3::Hasher::new().update(&there.alike).update(&found.alike).finalize();
                *there =
                    PlannedName { sign: b'~', bytes: there.bytes ^ found.bytes, alike: *both.as_bytes() };
            }
            None => drop(names.insert(below, found)),
        }
    }
    Ok((summary, names))
}

fn describe_one(info: &Info, path: &Path, hasher: &mut blake3::Hasher) {
    let is_dir = info.kind == Kind::Dir;
    let (size, time) = if is_dir { (0, (0, 0)) } else { (info.size, (info.mtime.sec, info.mtime.nsec)) };
    let text = format!(
        "{}\0{:o}\0{}\0{}\0{}\0{size}\0{}.{}\0",
        info.kind.word(),
        info.mode,
        info.uid,
        info.gid,
        info.rdev,
        time.0,
        time.1
    );
    hasher.update(text.as_bytes()).update(path.as_os_str().as_bytes()).update(b"\0");
}

/// Adds what is at `path` below `root` to a hash, and, where it is `deep`, all that is below that, in the order of names.
fn describe(root: &Dir, path: &Path, deep: bool, hasher: &mut blake3::Hasher) -> io::Result<()> {
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        let info = match (path.parent(), path.file_name()) {
            (Some(above), Some(name)) => {
                let name = NameBuf::new(name.as_bytes()).ok_or(io::ErrorKind::InvalidInput)?;
                reached(root, above)?.look(name.as_name())?
            }
            _ => Some(root.info()?),
        };
        let Some(info) = info else { continue };
        describe_one(&info, &path, hasher);
        if !deep || info.kind != Kind::Dir {
            continue;
        }
        let mut below = Vec::new();
        reached(root, &path)?.list(&mut ListBuffer::new(), |entry| {
            below.push(path.join(crate::node::os(entry.name)));
            true
        })?;
        below.sort_unstable();
        waiting.extend(below.into_iter().rev());
    }
    Ok(())
}

/// A directory of its own handle, reached through no link.
fn reached(root: &Dir, path: &Path) -> io::Result<Dir> {
    let mut dir = root.reopen()?;
    for part in path.components() {
        let name = NameBuf::new(part.as_os_str().as_bytes()).ok_or(io::ErrorKind::InvalidInput)?;
        dir = dir.open_dir(name.as_name())?;
    }
    Ok(dir)
}

/// A plan as a file: what was typed, and a line for each name.
fn written(words: &[OsString], names: &PlannedNames) -> Vec<u8> {
    let mut lines = vec![HEAD.to_vec(), b"typed".to_vec()];
    for word in words {
        lines.iter_mut().skip(1).for_each(|typed| put(typed, word.as_bytes()));
    }
    for (path, name) in names {
        let mut line = vec![name.sign];
        put(&mut line, name.bytes.to_string().as_bytes());
        put(&mut line, blake3::Hash::from_bytes(name.alike).to_hex().as_bytes());
        put(&mut line, path.as_os_str().as_bytes());
        lines.push(line);
    }
    lines.push(Vec::new());
    lines.join(&b'\n')
}

/// What was typed for a plan.
///
/// # Errors
/// It is no plan, or cannot be read.
pub fn planned_words(file: &Path) -> Result<Vec<OsString>> {
    read(file).map(|(words, _)| words)
}

fn read(file: &Path) -> Result<(Vec<OsString>, PlannedNames)> {
    use std::io::Read;
    let fail = |e| Error::os(Op::ReadPlanOfSync, file, e);
    let none = || Error::ours(Code::Refused, Op::ReadPlanOfSync, file, Reason::NoPlanOfSync);
    let above = file.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file.file_name().and_then(|name| NameBuf::new(name.as_bytes())).ok_or_else(none)?;
    let opened = Dir::open(above).and_then(|dir| dir.open_file_following(name.as_name())).map_err(fail)?;
    let mut text = Vec::new();
    std::fs::File::from(opened).take(PLAN_BYTES_MAX).read_to_end(&mut text).map_err(fail)?;
    parse(&text).ok_or_else(none)
}

fn parse(text: &[u8]) -> Option<(Vec<OsString>, PlannedNames)> {
    let mut lines = text.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
    if lines.next()? != HEAD {
        return None;
    }
    let mut typed = lines.next()?.split(|byte| *byte == b'\t');
    if typed.next()? != b"typed" {
        return None;
    }
    let word = |field| taken(field).map(OsString::from_vec);
    let words = typed.map(word).collect::<Option<Vec<OsString>>>()?;
    let mut names = PlannedNames::new();
    for line in lines {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
        let [[sign @ (b'+' | b'~' | b'-')], bytes, alike, path] = fields.as_slice() else { return None };
        let bytes = std::str::from_utf8(bytes).ok()?.parse().ok()?;
        let alike = *blake3::Hash::from_hex(alike).ok()?.as_bytes();
        let name = PlannedName { sign: *sign, bytes, alike };
        if names.insert(PathBuf::from(OsString::from_vec(taken(path)?)), name).is_some() {
            return None;
        }
    }
    Some((words, names))
}

/// Entrance for the fuzzer: any bytes as a plan, and what was understood says the same when it is written again.
#[cfg(fuzzing)]
pub fn fuzz(data: &[u8]) {
    let whole = [HEAD, b"\ntyped\t--delete\n", data, b"\n"].concat();
    for text in [data, &whole] {
        if let Some((words, names)) = parse(text) {
            assert_eq!(parse(&written(&words, &names)), Some((words, names)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(sign: u8, alike: u8) -> PlannedName {
        PlannedName { sign, bytes: 7, alike: [alike; 32] }
    }

    fn names(of: &[(&str, u8, u8)]) -> PlannedNames {
        of.iter().map(|(path, sign, alike)| (PathBuf::from(path), name(*sign, *alike))).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let words: Vec<OsString> = ["--delete", "a\tb", "c\\n"].map(OsString::from).to_vec();
        let all = names(&[("", b'~', 1), ("a b", b'+', 2), ("line\nend\\", b'-', 3)]);
        let text = written(&words, &all);
        assert_eq!(parse(&text), Some((words, all)));
        for len in 0..text.len() {
            // Half a plan is none, or one of whole lines.
            if let Some((_, read)) = parse(&text[..len]) {
                assert!(text[..len].ends_with(b"\n") && read.len() < 3, "{len}");
            }
        }
        for line in ["*\t1\tx\ta", "+\t1\tx\ta", "+\tx", ""] {
            assert_eq!(parse(&[&text, line.as_bytes(), b"\n"].concat()), None, "{line}");
        }
        assert_eq!(parse(&[&text[..], &text[text.len() - 80..]].concat()), None);
    }

    #[test]
    fn every_difference_is_named() {
        let planned = names(&[("gone", b'+', 1), ("same", b'-', 2), ("else", b'~', 3), ("sign", b'+', 4)]);
        let now = names(&[("same", b'-', 2), ("else", b'~', 9), ("sign", b'-', 4), ("new", b'+', 5)]);
        let want = [
            ("else", Reason::PlannedOtherwise),
            ("gone", Reason::NotPlannedAnyMore),
            ("sign", Reason::PlannedOtherwise),
            ("new", Reason::NotPlanned),
        ];
        assert_eq!(unlike(&planned, &now), want.map(|(path, why)| (PathBuf::from(path), why)));
        assert_eq!(unlike(&planned, &planned), []);
    }
}
