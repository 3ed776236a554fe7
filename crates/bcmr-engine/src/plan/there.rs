//! The destination of a plan on another machine: how its tree is filled and ended, and the names of a plan as lists.
//!
//! Must not know messages. Each shard has a connection of its own, and so has the end.

use super::along::{Along, along};
use super::folder::PlanFolder;
use super::format::{Digest, LandedEntry, PlanHeader, PlannedAs, PlannedDir, PlannedEntry, Version};
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Cancel, Summary, Watch};
use crate::peer::planned::{LandedHashes, TreeThere};
use crate::policy::{
    Collide, CopyPolicy, DeleteMax, Durability, FilterSpec, Follow, Mirror, Preserve, Resume, Verify,
};
use crate::remote::{Address, Way};
use crate::sender::announce::Extent;
use fastcopy::dir::NameBuf;
use std::io::{self, BufRead, Cursor, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The destination of the plan at `path`, if it is on another machine.
///
/// # Errors
/// The plan cannot be read.
pub fn destination(path: &Path) -> Result<Option<Address>> {
    let (header, _) = PlanFolder::open(path)?.header()?;
    Ok(header.there())
}

/// How a tree over there is filled.
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
    let none = || Error::ours(Code::Usage, Op::ReadPlan, &folder.path, Reason::PlanWithoutWay);
    TreeThere::reach((to, way.ok_or_else(none)?), header.identity(), &filling(policy), watch)
}

/// The path of a name of `dir`.
fn path_of(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, name].join(&b'/') }
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
    let (mut names, mut count) = (Vec::new(), 0);
    for dir in dirs {
        for entry in dir.entries.iter().filter(|entry| matches!(entry.what, PlannedAs::Whole(_))) {
            names.extend(path_of(&dir.path, entry.name.bytes()));
            names.push(0);
            count += 1;
        }
    }
    if count == 0 {
        return Ok((Summary::default(), LandedHashes::new()));
    }
    tree.put(source, (&mut Cursor::new(names), count), Extent::Some, &filling(policy))
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
    let (give, take) = sync_channel(PIECES);
    let (walked, sent) = std::thread::scope(|scope| {
        let walk = move || {
            let mut naming = PlanNames { give, room: Vec::new(), cancel: watch.cancel };
            along(plan, NamedLevel::default(), &mut naming).and_then(|_| naming.hand_over())
        };
        let walks = std::thread::Builder::new().spawn_scoped(scope, walk);
        let mut reader = NamesReader { take, piece: Cursor::new(Vec::new()) };
        let sent = tree.put(source, (&mut reader, 0), Extent::All, &ending(policy));
        drop(reader);
        let gone = || Error::ours(Code::Io, Op::ReadPlan, &folder.path, Reason::ThreadStopped);
        let walked = walks.map_err(|e| Error::os(Op::ReadPlan, &folder.path, e));
        (walked.and_then(|thread| thread.join().unwrap_or_else(|_| Err(gone()))), sent)
    });
    // What the sender could not do is why it took no more names.
    let (summary, _) = sent?;
    walked?;
    let lost_only = summary.codes.iter().all(|code| *code == Code::MetadataLost);
    if summary.cancelled || !lost_only || summary.files + summary.others > 0 {
        let code = if summary.cancelled { Code::Interrupted } else { Code::SourceChanged };
        let why = if summary.cancelled { Reason::Interrupted } else { Reason::TreeLacksSome };
        return Err(Error::ours(code, Op::FinishPlan, &folder.path, why));
    }
    Ok(summary)
}

/// Names every entry of a plan; a directory only where nothing in it is named.
struct PlanNames<'w> {
    give: SyncSender<Vec<u8>>,
    room: Vec<u8>,
    cancel: &'w Cancel,
}

/// A directory on the way.
#[derive(Default)]
struct NamedLevel {
    has_some: bool,
}

impl PlanNames<'_> {
    fn name(&mut self, path: &[u8]) -> Result<()> {
        self.room.extend_from_slice(path);
        self.room.push(0);
        if self.room.len() >= PIECE_BYTES { self.hand_over() } else { Ok(()) }
    }

    fn hand_over(&mut self) -> Result<()> {
        let ended = |_| Error::ours(Code::Interrupted, Op::ReadPlan, "", Reason::Interrupted);
        self.give.send(std::mem::take(&mut self.room)).map_err(ended)
    }
}

impl Along for PlanNames<'_> {
    type Level = NamedLevel;

    fn is_stopped(&self) -> bool {
        self.cancel.is_set()
    }

    fn enter(&mut self, _: &mut NamedLevel, _: &[u8], _: &NameBuf, _: &Version) -> Result<NamedLevel> {
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
            _ => self.name(&path_of(path, entry.name.bytes())),
        }
    }

    fn leave(&mut self, level: NamedLevel, path: &[u8], above: Option<&mut NamedLevel>) -> Result<()> {
        // The top is named by its place.
        if level.has_some || above.is_none() { Ok(()) } else { self.name(path) }
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
