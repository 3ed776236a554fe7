//! `sync -n --plan` and `sync --apply`: what a run would do, written down with what it was planned with, and done only while that
//! holds (docs/sync.md, "A plan").
//!
//! Must not decide what is to be done, nor know where the two directories are: that is the dry run's, at both times.

use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Change, Event, Front, HearingFront, Summary, Watch};
use crate::node::last_name;
use crate::policy::SyncPlan;
use crate::tabbed::{put, taken};
use crate::tally::Tally;
use crate::verbs::alike::Alike;
use crate::verbs::manifest::WholeFile;
use fastcopy::dir::Dir;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const HEAD: &[u8] = b"bcmr sync plan 2";
/// How every plan begins, of whatever version.
const NAME: &[u8] = b"bcmr sync plan ";
/// A longer plan is not read.
const PLAN_BYTES_MAX: u64 = 2 << 30;
/// Names of a plan that is made take no more, whatever another machine tells.
const PLANNED_BYTES_MAX: usize = 512 << 20;

/// What is planned for one name: `+`, `~` or `-`, its bytes, and a hash of what both sides are like.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlannedName {
    sign: u8,
    bytes: u64,
    alike: Alike,
}

impl PlannedName {
    /// Two things that are planned for one name.
    fn and(&self, other: &PlannedName) -> PlannedName {
        // Whichever is told first.
        let (one, two) = if self.sign < other.sign { (self, other) } else { (other, self) };
        let alike = *blake3::Hasher::new().update(&one.alike).update(&two.alike).finalize().as_bytes();
        PlannedName { sign: b'~', bytes: one.bytes ^ two.bytes, alike }
    }
}

type PlannedNames = BTreeMap<PathBuf, PlannedName>;

/// Looks at what a run would do, which `look` tells, and writes it down, or compares it with what was written down. `look` tells both sides of
/// each difference, and the destination itself without a name, as every name may be one in it too; it is shown as `own_name`.
///
/// # Errors
/// Nothing could be begun, or the plan cannot be read or written.
pub fn look_with_plan(
    plan: &SyncPlan,
    own_name: &Path,
    watch: Watch<'_>,
    look: &mut dyn FnMut(Watch<'_>) -> Result<Summary>,
) -> Result<Summary> {
    match plan {
        SyncPlan::None => look(watch),
        SyncPlan::Write { file, words } => {
            let page = WholeFile::begin(file, &|first_line| first_line.starts_with(NAME))?;
            let (summary, names) = match gathered(own_name, watch, true, look) {
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
            let (summary, now) = gathered(own_name, watch, false, look)?;
            let tally = Tally::new(watch);
            for (path, why) in unlike(&planned, &now) {
                tally.fail(Error::ours(Code::Refused, Op::ApplyPlan, told_as(path, own_name), why));
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

/// The destination itself has no name in a plan.
fn told_as(path: PathBuf, own_name: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { own_name.to_owned() } else { path }
}

/// What was found so far.
struct Gathered {
    names: PlannedNames,
    /// How many bytes more it may take.
    room: usize,
    /// Why it is not all.
    lacks: Option<(Code, Reason)>,
}

impl Gathered {
    fn of_at_most(room: usize) -> Gathered {
        Gathered { names: PlannedNames::new(), room, lacks: None }
    }

    fn add(&mut self, path: &Path, (sign, bytes, alike): (u8, u64, Option<Alike>)) {
        let Some(alike) = alike else {
            self.lacks.get_or_insert((Code::Protocol, Reason::SidesNotTold));
            return;
        };
        let Some(room) = self.room.checked_sub(path.as_os_str().len() + size_of::<PlannedName>()) else {
            self.lacks.get_or_insert((Code::Limit, Reason::TooLongForPlan));
            return;
        };
        self.room = room;
        let found = PlannedName { sign, bytes, alike };
        // One name may go and come as something else.
        self.names.entry(path.to_owned()).and_modify(|there| *there = there.and(&found)).or_insert(found);
    }
}

/// What a run would do, with what both sides are like where it would.
fn gathered(
    own_name: &Path,
    watch: Watch<'_>,
    tells: bool,
    look: &mut dyn FnMut(Watch<'_>) -> Result<Summary>,
) -> Result<(Summary, PlannedNames)> {
    let found = Mutex::new(Gathered::of_at_most(PLANNED_BYTES_MAX));
    let front = HearingFront::new(watch.front, |front: &dyn Front, event| {
        let Event::Difference { change, path, directory, files, bytes, why, alike } = event else {
            return front.event(event);
        };
        let sign = match change {
            Change::Add => b'+',
            Change::Differ => b'~',
            Change::Extra => b'-',
        };
        found.lock().unwrap_or_else(PoisonError::into_inner).add(&path, (sign, bytes, alike));
        if tells {
            let path = told_as(path, own_name);
            front.event(Event::Difference { change, path, directory, files, bytes, why, alike });
        }
    });
    let summary = look(Watch { front: &front, ..watch })?;
    let Gathered { names, lacks, .. } = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    match lacks {
        Some((code, why)) => Err(Error::ours(code, Op::PlanSync, own_name, why)),
        None => Ok((summary, names)),
    }
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
    let name = last_name(file).ok_or_else(none)?;
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

    /// V7: what another machine tells takes no more than this, and what it does not tell is not planned.
    #[test]
    fn what_cannot_be_planned_whole_is_none() {
        let mut found = Gathered::of_at_most(3 * (size_of::<PlannedName>() + 4));
        let told = |found: &mut Gathered, path: &str, alike| found.add(Path::new(path), (b'+', 7, alike));
        for path in ["one", "two", "four"] {
            told(&mut found, path, Some([1; 32]));
            assert_eq!(found.lacks, None, "{path}");
        }
        told(&mut found, "five", Some([1; 32]));
        assert_eq!((found.lacks, found.names.len()), (Some((Code::Limit, Reason::TooLongForPlan)), 3));
        let mut found = Gathered::of_at_most(4096);
        told(&mut found, "x", None);
        assert_eq!(found.lacks, Some((Code::Protocol, Reason::SidesNotTold)));
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
