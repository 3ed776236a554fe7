//! The source of a plan on another machine: reached, walked for the plan, and looked at once more in the end.
//!
//! Must not know messages, nor how the tree is filled. Each shard has a connection of its own, and so has the end.

use super::folder::PlanFolder;
use super::format::{Digest, PlanHeader};
use super::requests::PlanVerb;
use super::sorter::{Merge, SortedRecord, Sorter};
use super::there::{NameOf, all_names, filling, the_way};
use super::walk::key;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Summary, Watch};
use crate::node::Node;
use crate::peer::planned_source::{SourceThere, taking};
use crate::peer::telling::{EntryListener, ToldAttrs};
use crate::policy::{CopyPolicy, Preserve};
use crate::remote::{Address, Way};
use crate::verbs::operands::Place;
use bcmr_wire::bytes::ByteReader;
use fastcopy::dir::Name;
use fastcopy::meta::{Info, Kind, Time};
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names that are looked at in one transfer.
pub(super) const NAMES_MAX: usize = 1 << 16;
/// Bytes of them.
pub(super) const NAMES_BYTES_MAX: usize = 4 << 20;

/// A directory of the source: what it is, and its attributes.
pub(super) struct FarDir {
    pub(super) info: Info,
    pub(super) attrs: Vec<(CString, Vec<u8>)>,
}

/// How a source over there is walked for a plan: nothing but what entries are is asked for.
pub(super) fn walking(asked: &CopyPolicy) -> CopyPolicy {
    let preserve = Preserve { xattr: false, acl: false, ..Preserve::ALL };
    CopyPolicy { preserve, filter: asked.filter.clone(), ..filling(asked) }
}

/// Connects to the source of a plan of this verb, which is `from`.
///
/// # Errors
/// There is no connection, or the request does not say how to get there.
pub(super) fn reach<'w>(
    (folder, verb): (&PlanFolder, PlanVerb),
    (from, way): (&Address, Option<&'w Way>),
    policy: &CopyPolicy,
    watch: Watch<'w>,
) -> Result<SourceThere<'w>> {
    let policy = filling(policy);
    let policy = if verb == PlanVerb::Remove { taking(&policy) } else { policy };
    SourceThere::reach((from, the_way(folder, way)?), &policy, watch)
}

/// What the source itself is now.
///
/// # Errors
/// It cannot be looked at.
pub(super) fn top_of(
    source: &SourceThere<'_>,
    place: Arc<Place>,
    policy: &CopyPolicy,
    (op, why): (Op, Reason),
) -> Result<FarDir> {
    let top = OnlyTop::default();
    let done = source.look_at(&[], place, policy, &top)?;
    // What the other side said of it was told.
    let code = done.codes.first().copied().unwrap_or(Code::NotFound);
    let gone = || Error::ours(code, op, source.shown(b""), why);
    top.0.into_inner().unwrap_or_else(PoisonError::into_inner).ok_or_else(gone)
}

/// M1: the source is the very directory that was planned, and not what is there while it is not mounted.
///
/// # Errors
/// It is another one, or cannot be looked at.
pub(super) fn the_planned_source(
    source: &SourceThere<'_>,
    place: Arc<Place>,
    policy: &CopyPolicy,
    header: &PlanHeader,
) -> Result<()> {
    the_planned_top(source, place, policy, header).map(drop)
}

/// What that directory is now.
///
/// # Errors
/// As [`the_planned_source`].
pub(super) fn the_planned_top(
    source: &SourceThere<'_>,
    place: Arc<Place>,
    policy: &CopyPolicy,
    header: &PlanHeader,
) -> Result<FarDir> {
    let top = top_of(source, place, policy, (Op::OpenDirectory, Reason::DidNotCome))?;
    is_planned(source, &top, header)?;
    Ok(top)
}

fn is_planned(source: &SourceThere<'_>, top: &FarDir, header: &PlanHeader) -> Result<()> {
    match top.info.ino == header.top.ino {
        true => Ok(()),
        false => {
            let shown = source.shown(b"");
            Err(Error::ours(Code::Refused, Op::OpenDirectory, shown, Reason::SourceIsAnother))
        }
    }
}

#[derive(Default)]
struct OnlyTop(Mutex<Option<FarDir>>);

impl EntryListener for OnlyTop {
    fn top(&self, info: &Info, attrs: ToldAttrs<'_>) {
        let top = FarDir { info: *info, attrs: attrs.to_vec() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(top);
    }

    fn dir(&self, _: &Node, _: Name<'_>, _: &Info, _: ToldAttrs<'_>) -> bool {
        false
    }

    fn entry(&self, _: &Node, _: Name<'_>, _: &Info) {}
}

/// Which of some names the source has, and the directories that lead to them.
#[derive(Default)]
pub(super) struct SoughtNames {
    top: Option<Info>,
    dirs: HashMap<Vec<u8>, Info>,
    names: HashMap<Vec<u8>, Kind>,
}

impl SoughtNames {
    /// The directory with this path, where some of the names are in it.
    pub(super) fn dir(&self, path: &[u8]) -> Option<&Info> {
        if path.is_empty() { self.top.as_ref() } else { self.dirs.get(path) }
    }

    /// Whether the source has it.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.names.contains_key(path)
    }

    /// What it is there, if the source has it.
    pub(super) fn kind(&self, path: &[u8]) -> Option<Kind> {
        self.names.get(path).copied()
    }
}

/// Asks the source which of these names it has.
///
/// # Errors
/// The connection was lost, or it could not be said of one of them.
pub(super) fn seek(
    source: &SourceThere<'_>,
    names: &[Vec<u8>],
    place: &Arc<Place>,
    policy: &CopyPolicy,
) -> Result<SoughtNames> {
    let (found, done) = sought(source, names, place, policy)?;
    let failed = |code| Err(Error::ours(code, Op::FinishPlan, source.shown(b""), Reason::NotListedWhole));
    if done.cancelled {
        return failed(Code::Interrupted);
    }
    match done.codes.iter().find(|code| **code != Code::NotFound) {
        Some(code) => failed(*code),
        None => Ok(found),
    }
}

/// The same, and whether it could be said of all of them: what stands in the way of a name as no directory says that it is not
/// there.
///
/// # Errors
/// The connection was lost.
pub(super) fn seek_some(
    source: &SourceThere<'_>,
    names: &[Vec<u8>],
    place: &Arc<Place>,
    policy: &CopyPolicy,
) -> Result<(SoughtNames, bool)> {
    let (found, done) = sought(source, names, place, policy)?;
    let is_answer = |code: &Code| matches!(code, Code::NotFound | Code::NotDirectory);
    Ok((found, !done.cancelled && done.codes.iter().all(is_answer)))
}

fn sought(
    source: &SourceThere<'_>,
    names: &[Vec<u8>],
    place: &Arc<Place>,
    policy: &CopyPolicy,
) -> Result<(SoughtNames, Summary)> {
    let asked = names.iter().map(Vec::as_slice).collect();
    let seeker = Seeker { asked, found: Mutex::default() };
    let done = source.seek(names, place.clone(), policy, &seeker)?;
    Ok((seeker.found.into_inner().unwrap_or_else(PoisonError::into_inner), done))
}

/// Remembers what is told.
struct Seeker<'n> {
    asked: HashSet<&'n [u8]>,
    found: Mutex<SoughtNames>,
}

impl Seeker<'_> {
    fn found(&self) -> MutexGuard<'_, SoughtNames> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EntryListener for Seeker<'_> {
    fn top(&self, info: &Info, _: ToldAttrs<'_>) {
        self.found().top = Some(*info);
    }

    fn dir(&self, above: &Node, name: Name<'_>, info: &Info, _: ToldAttrs<'_>) -> bool {
        let path = above.below_root(Some(name));
        let is_asked = self.asked.contains(path.as_slice());
        if is_asked {
            self.found().names.insert(path, info.kind);
        } else {
            self.found().dirs.insert(path, *info);
        }
        !is_asked
    }

    fn entry(&self, above: &Node, name: Name<'_>, info: &Info) {
        self.found().names.insert(above.below_root(Some(name)), info.kind);
    }
}

/// Everything that a plan names, as it is at the source now, in the order of the plan.
pub(super) struct SeenSource {
    shown: PathBuf,
    records: Merge,
    /// The record that was not asked for yet.
    next: Option<SortedRecord>,
    key: Vec<u8>,
}

/// Looks at the source itself and at everything that a plan names.
///
/// # Errors
/// The connection was lost, or the source is another one.
pub(super) fn look(
    source: &SourceThere<'_>,
    plan: (&PlanFolder, &PlanHeader, &Digest),
    place: &Arc<Place>,
    policy: &CopyPolicy,
    watch: Watch<'_>,
) -> Result<(FarDir, SeenSource)> {
    let (folder, header, _) = plan;
    let policy = filling(policy);
    let top = top_of(source, place.clone(), &policy, (Op::FinishPlan, Reason::DidNotCome))?;
    is_planned(source, &top, header)?;
    let fail = |e| Error::os(Op::WritePlan, &folder.path, e);
    let keeper =
        Keeper { records: Sorter::new(&folder.dir), empty: Mutex::default(), failed: Mutex::default() };
    let (mut names, mut bytes) = (Vec::new(), 0);
    let ask = |names: &mut Vec<Vec<u8>>| -> Result<()> {
        let all = std::mem::take(names);
        if all.is_empty() {
            return Ok(());
        }
        let done = source.look_at(&all, place.clone(), &policy, &keeper);
        if let Some(e) = keeper.failed().take() {
            return Err(fail(e));
        }
        keeper.empty().clear();
        // What could not be looked at was told; if it is of the plan, it is missed by its name.
        match done?.cancelled {
            false => Ok(()),
            true => Err(Error::ours(Code::Interrupted, Op::FinishPlan, &folder.path, Reason::Interrupted)),
        }
    };
    all_names(plan, watch.cancel, |name, of| {
        if of == NameOf::EmptyDir {
            keeper.empty().insert(name.to_vec());
        }
        bytes += name.len();
        names.push(name.to_vec());
        if names.len() < NAMES_MAX && bytes < NAMES_BYTES_MAX {
            return Ok(());
        }
        bytes = 0;
        ask(&mut names)
    })?;
    ask(&mut names)?;
    let mut records = keeper.records.merged().map_err(fail)?;
    let next = records.next().map_err(fail)?;
    Ok((top, SeenSource { shown: folder.path.clone(), records, next, key: Vec::new() }))
}

impl SeenSource {
    /// What `name` in the directory with this path is. Names are asked for in the order of the plan.
    ///
    /// # Errors
    /// What was kept cannot be read.
    pub(super) fn find(&mut self, path: &[u8], name: Name<'_>) -> Result<Option<FarDir>> {
        let parents = path.split(|b| *b == b'/').filter(|part| !part.is_empty());
        key(&mut parents.into_iter(), name.bytes(), &mut self.key);
        // A directory that leads to names of several transfers was told in each.
        while self.next.as_ref().is_some_and(|next| next.key < self.key) {
            self.next = self.records.next().map_err(|e| Error::os(Op::ReadPlan, &self.shown, e))?;
        }
        let found = self.next.as_ref().filter(|next| next.key == self.key);
        Ok(found.and_then(|next| take_dir(&mut ByteReader::new(&next.value))))
    }
}

/// Keeps what is told, sorted.
struct Keeper<'d> {
    records: Sorter<'d>,
    /// Directories that are named themselves: nothing in them is of the plan.
    empty: Mutex<HashSet<Vec<u8>>>,
    failed: Mutex<Option<io::Error>>,
}

impl Keeper<'_> {
    fn empty(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.empty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, Option<io::Error>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, above: &Node, name: Name<'_>, info: &Info, attrs: ToldAttrs<'_>) {
        let (mut of, mut value) = (Vec::new(), Vec::new());
        key(&mut above.names().iter().map(|n| n.bytes()), name.bytes(), &mut of);
        put_dir(info, attrs, &mut value);
        if let Err(e) = self.records.add(|push| push(&of, &value)) {
            self.failed().get_or_insert(e);
        }
    }
}

impl EntryListener for Keeper<'_> {
    fn top(&self, _: &Info, _: ToldAttrs<'_>) {}

    fn dir(&self, above: &Node, name: Name<'_>, info: &Info, attrs: ToldAttrs<'_>) -> bool {
        self.keep(above, name, info, attrs);
        !self.empty().contains(&above.below_root(Some(name)))
    }

    fn entry(&self, above: &Node, name: Name<'_>, info: &Info) {
        self.keep(above, name, info, &[]);
    }
}

/// What is kept of an entry; read by the same process.
fn put_dir(info: &Info, attrs: ToldAttrs<'_>, out: &mut Vec<u8>) {
    let Info { kind, mode, uid, gid, dev, ino, nlink, size, blocks, rdev, atime, mtime, ctime } = *info;
    out.push(super::format::kind_byte(kind));
    for number in [mode, uid, gid] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [dev, ino, nlink, size, blocks, rdev] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for Time { sec, nsec } in [atime, mtime, ctime] {
        out.extend_from_slice(&sec.to_le_bytes());
        out.extend_from_slice(&nsec.to_le_bytes());
    }
    for (name, value) in attrs {
        for part in [name.to_bytes(), value] {
            out.extend_from_slice(&(part.len() as u32).to_le_bytes());
            out.extend_from_slice(part);
        }
    }
}

fn take_dir(from: &mut ByteReader<'_>) -> Option<FarDir> {
    let kind: Kind = super::format::kind_of(from.u8()?)?;
    let (mode, uid, gid) = (from.u32()?, from.u32()?, from.u32()?);
    let (dev, ino, nlink) = (from.u64()?, from.u64()?, from.u64()?);
    let (size, blocks, rdev) = (from.u64()?, from.u64()?, from.u64()?);
    let mut time = || Some(Time { sec: from.i64()?, nsec: from.u32()? });
    let (atime, mtime, ctime) = (time()?, time()?, time()?);
    let info = Info { kind, mode, uid, gid, dev, ino, nlink, size, blocks, rdev, atime, mtime, ctime };
    let mut attrs = Vec::new();
    while !from.rest().is_empty() {
        let mut part = || {
            let length = from.u32()?;
            from.take(length as usize)
        };
        let (name, value) = (part()?, part()?);
        attrs.push((CString::new(name).ok()?, value.to_vec()));
    }
    Some(FarDir { info, attrs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_an_entry_is_read_again() {
        let time = |sec, nsec| Time { sec, nsec };
        let info = Info {
            kind: Kind::Dir,
            mode: 0o1750,
            uid: 1,
            gid: 2,
            dev: 3,
            ino: 4,
            nlink: 5,
            size: 6,
            blocks: 7,
            rdev: 8,
            atime: time(-9, 10),
            mtime: time(11, 12),
            ctime: time(13, 14),
        };
        let attrs = vec![(c"user.a".to_owned(), b"\0 1".to_vec()), (c"user.b".to_owned(), Vec::new())];
        let mut bytes = Vec::new();
        put_dir(&info, &attrs, &mut bytes);
        let read = take_dir(&mut ByteReader::new(&bytes)).unwrap();
        assert_eq!((format!("{:?}", read.info), read.attrs), (format!("{info:?}"), attrs));
        for cut in 0..bytes.len() {
            let short = take_dir(&mut ByteReader::new(&bytes[..cut]));
            assert!(short.is_none_or(|short| short.attrs.len() < 2), "{cut}");
        }
    }
}
