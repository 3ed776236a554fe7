//! The destination of a plan on another machine: how its tree is filled and ended, and the names of a plan as lists.
//!
//! Must not know messages. Each shard has a connection of its own, and so has the end.

use super::along::{Along, along};
use super::folder::PlanFolder;
use super::format::{Digest, LandedEntry, PlanHeader, PlannedAs, PlannedDir, PlannedEntry, Version};
use super::requests::FarEnd;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Cancel, Summary, Watch};
use crate::peer::planned::{LandedHashes, TreeThere};
use crate::policy::{
    Collide, CopyPolicy, DeleteMax, Durability, FilterSpec, Follow, Mirror, Preserve, Resume, Verify,
};
use crate::remote::{Address, Purpose, Way};
use crate::sender::announce::Extent;
use crate::verbs::named_dirs::NamedDirs;
use fastcopy::dir::NameBuf;
use std::io::{self, BufRead, Cursor, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};

/// The end of the plan at `path` that is on another machine.
///
/// # Errors
/// The plan cannot be read.
pub fn elsewhere(path: &Path) -> Result<Option<FarEnd>> {
    let (header, _) = PlanFolder::open(path)?.header()?;
    Ok(header.far())
}

/// How a tree without a name is filled.
pub(super) fn filling(asked: &CopyPolicy) -> CopyPolicy {
    CopyPolicy {
        recursive: false,
        follow: Follow::Never,
        // Further names are made in the end, when all first ones are there.
        preserve: Preserve { links: false, ..Preserve::ALL },
        // Nothing that an earlier run has left is believed, unless it was recorded.
        collide: Collide::Replace,
        mirror: Mirror::Off,
        durability: Durability::Cache,
        resume: Resume::Off,
        hashes: true,
        filter: FilterSpec::everything(),
        dry_run: false,
        ..asked.clone()
    }
}

/// How a destination over there is brought up to date that has its name: what a summary tells is on stable storage (R2), as no
/// other program syncs it there.
pub(super) fn bringing(asked: &CopyPolicy, by_content: bool) -> CopyPolicy {
    CopyPolicy {
        collide: if by_content { Collide::IfContentDiffers } else { Collide::IfDifferent },
        mirror: Mirror::Update,
        durability: Durability::Medium,
        hashes: false,
        ..filling(asked)
    }
}

/// How it is ended: what is there stays as it is, directories get what their sources have, and nothing else may be there.
fn ending(asked: &CopyPolicy) -> CopyPolicy {
    CopyPolicy {
        recursive: true,
        collide: Collide::Keep,
        mirror: Mirror::DeleteExcluded,
        delete_max: DeleteMax::Entries(0),
        hashes: false,
        verify: Verify::Off,
        ..filling(asked)
    }
}

/// Connects to the tree of a plan whose destination is `to`.
///
/// # Errors
/// There is no connection, or the request does not say how to get there.
pub(super) fn reach<'w>(
    (folder, header): (&PlanFolder, &PlanHeader),
    (to, way): (&Address, Option<&'w Way>),
    policy: &CopyPolicy,
    watch: Watch<'w>,
) -> Result<TreeThere<'w>> {
    TreeThere::reach((to, the_way(folder, way)?), header.identity(), &filling(policy), watch)
}

/// How to get to the other machine of a plan.
pub(super) fn the_way<'w>(folder: &PlanFolder, way: Option<&'w Way>) -> Result<&'w Way> {
    way.ok_or_else(|| Error::ours(Code::Usage, Op::ReadPlan, &folder.path, Reason::PlanWithoutWay))
}

/// The path of a name of `dir`.
pub(super) fn path_of(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, name].join(&b'/') }
}

/// The paths of what of these directories is copied whole.
pub(super) fn whole_of(dirs: &[PlannedDir]) -> Vec<Vec<u8>> {
    let whole = |entry: &&PlannedEntry| matches!(entry.what, PlannedAs::Whole(_));
    let paths = |dir: &PlannedDir| -> Vec<Vec<u8>> {
        let entries = dir.entries.iter().filter(whole);
        entries.map(|entry| path_of(&dir.path, entry.name.bytes())).collect()
    };
    dirs.iter().flat_map(paths).collect()
}

/// Brings what of these directories is copied whole into the tree. Returns what was done, and the hashes of what landed.
///
/// # Errors
/// The connection was lost.
pub(super) fn fill(
    tree: &TreeThere<'_>,
    source: &Path,
    dirs: &[PlannedDir],
    policy: &CopyPolicy,
) -> Result<(Summary, LandedHashes)> {
    let names = whole_of(dirs);
    if names.is_empty() {
        return Ok((Summary::default(), LandedHashes::new()));
    }
    tree.put(source, (&mut Cursor::new(names.join(&0)), names.len()), Extent::Some, &filling(policy))
}

/// Brings what of these directories is copied whole into a destination that has its name.
///
/// # Errors
/// The connection was lost.
pub(super) fn bring(
    tree: &TreeThere<'_>,
    source: &Path,
    dirs: &[PlannedDir],
    policy: &CopyPolicy,
) -> Result<Summary> {
    let names = whole_of(dirs);
    if names.is_empty() {
        return Ok(Summary::default());
    }
    tree.bring(source, &mut Cursor::new(names.join(&0)), policy)
}

/// Has the other machine compare these names with what it has; of directories those that `dirs` says. What differs is told.
///
/// # Errors
/// The connection was lost.
pub(super) fn compare(
    tree: &TreeThere<'_>,
    source: &Path,
    (names, dirs): (&[Vec<u8>], &NamedDirs),
    policy: (&CopyPolicy, Purpose),
) -> Result<Summary> {
    if names.is_empty() {
        return Ok(Summary::default());
    }
    tree.compare(source, (&mut Cursor::new(names.join(&0)), dirs), Extent::Alone, policy)
}

/// The hash of a name in a directory of a plan, once.
pub(super) fn hash_of(landed: &mut LandedHashes, dir: &PlannedDir, name: &NameBuf) -> Option<Digest> {
    landed.remove(&path_of(&dir.path, name.bytes()))
}

/// Pieces of a list of names that wait to be sent.
const PIECES: usize = 8;
/// Bytes of one.
const PIECE_BYTES: usize = 64 << 10;

/// Ends the tree: every name of the plan is there, no other is, and directories are what their sources are. Nothing has its
/// name by that.
///
/// # Errors
/// Something lacks, or something else is there: nothing was changed that another plan would need.
pub(super) fn settle(
    tree: &TreeThere<'_>,
    source: &Path,
    plan: (&PlanFolder, &PlanHeader, &Digest),
    policy: &CopyPolicy,
    watch: Watch<'_>,
) -> Result<Summary> {
    let folder = plan.0;
    let (summary, _) = with_all_names(plan, watch.cancel, &|_, _| Ok(()), |names| {
        tree.put(source, (names, 0), Extent::All, &ending(policy))
    })?;
    let lost_only = summary.codes.iter().all(|code| code.is_of_metadata());
    if summary.cancelled || !lost_only || summary.files + summary.others > 0 {
        let code = if summary.cancelled { Code::Interrupted } else { Code::SourceChanged };
        let why = if summary.cancelled { Reason::Interrupted } else { Reason::TreeLacksSome };
        return Err(Error::ours(code, Op::FinishPlan, &folder.path, why));
    }
    Ok(summary)
}

/// Sends every name of a plan by `send`, which reads them as they are found. Of each directory that is gone into `enters` is
/// told first.
///
/// # Errors
/// Those of `send` and of `enters`, or the plan or a result cannot be read.
pub(super) fn with_all_names<T>(
    plan: (&PlanFolder, &PlanHeader, &Digest),
    cancel: &Cancel,
    enters: &EntersDir<'_>,
    send: impl FnOnce(&mut (dyn BufRead + Send)) -> Result<T>,
) -> Result<T> {
    let folder = plan.0;
    let (give, take) = sync_channel(PIECES);
    let (walked, sent) = std::thread::scope(|scope| {
        let walk = move || {
            let ended = |_| Error::ours(Code::Interrupted, Op::ReadPlan, "", Reason::Interrupted);
            let mut room = Vec::new();
            let name = |name: &[u8], _: NameOf| {
                room.extend_from_slice(name);
                room.push(0);
                if room.len() < PIECE_BYTES {
                    return Ok(());
                }
                give.send(std::mem::take(&mut room)).map_err(ended)
            };
            along(plan, NamedLevel::default(), &mut PlanNames { name, enters, cancel })?;
            give.send(room).map_err(ended)
        };
        let walks = std::thread::Builder::new().spawn_scoped(scope, walk);
        let mut reader = NamesReader { take, piece: Cursor::new(Vec::new()) };
        let sent = send(&mut reader);
        drop(reader);
        let gone = || Error::ours(Code::Io, Op::ReadPlan, &folder.path, Reason::ThreadStopped);
        let walked = walks.map_err(|e| Error::os(Op::ReadPlan, &folder.path, e));
        (walked.and_then(|thread| thread.join().unwrap_or_else(|_| Err(gone()))), sent)
    });
    // What the sender could not do is why it took no more names.
    let sent = sent?;
    walked?;
    Ok(sent)
}

/// Is told of a directory of a plan before what is in it.
pub(super) type EntersDir<'e> = dyn Fn(&[u8], &Version) -> Result<()> + Sync + 'e;

/// Which kind of name is named: of a directory all of whose names are left out, or of anything else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NameOf {
    EmptyDir,
    Entry,
}

/// Names every entry of a plan to `name`; a directory only where nothing in it is named.
///
/// # Errors
/// The plan or a result cannot be read, or those of `name`.
pub(super) fn all_names(
    plan: (&PlanFolder, &PlanHeader, &Digest),
    cancel: &Cancel,
    name: impl FnMut(&[u8], NameOf) -> Result<()>,
) -> Result<()> {
    let enters: &EntersDir<'_> = &|_, _| Ok(());
    along(plan, NamedLevel::default(), &mut PlanNames { name, enters, cancel }).map(drop)
}

/// Names entries on the way.
struct PlanNames<'w, F> {
    name: F,
    enters: &'w EntersDir<'w>,
    cancel: &'w Cancel,
}

/// A directory on the way.
#[derive(Default)]
struct NamedLevel {
    has_some: bool,
}

impl<F: FnMut(&[u8], NameOf) -> Result<()>> Along for PlanNames<'_, F> {
    type Level = NamedLevel;

    fn is_stopped(&self) -> bool {
        self.cancel.is_set()
    }

    fn enter(
        &mut self,
        _: &mut NamedLevel,
        path: &[u8],
        _: &NameBuf,
        version: &Version,
    ) -> Result<NamedLevel> {
        (self.enters)(path, version)?;
        Ok(NamedLevel::default())
    }

    fn entry(
        &mut self,
        at: &mut NamedLevel,
        path: &[u8],
        entry: &PlannedEntry,
        _: LandedEntry,
    ) -> Result<()> {
        at.has_some = true;
        match entry.what {
            PlannedAs::Directory(_) => Ok(()),
            _ => (self.name)(&path_of(path, entry.name.bytes()), NameOf::Entry),
        }
    }

    fn leave(&mut self, level: NamedLevel, path: &[u8], above: Option<&mut NamedLevel>) -> Result<()> {
        // The top is named by its place.
        if level.has_some || above.is_none() { Ok(()) } else { (self.name)(path, NameOf::EmptyDir) }
    }
}

/// What another thread names.
struct NamesReader {
    take: Receiver<Vec<u8>>,
    piece: Cursor<Vec<u8>>,
}

impl Read for NamesReader {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.fill_buf()?;
        self.piece.read(room)
    }
}

impl BufRead for NamesReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.piece.fill_buf()?.is_empty() {
            match self.take.recv() {
                Ok(piece) => self.piece = Cursor::new(piece),
                Err(_) => break,
            }
        }
        self.piece.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.piece.consume(bytes);
    }
}
