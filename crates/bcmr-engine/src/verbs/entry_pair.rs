//! An entry of the source beside what has its name at the destination, and what a run that changes nothing finds of it.
//!
//! Must not know where the two sides are, nor in which order they are looked at.

use crate::disk::seal::{self, AttributeList};
use crate::error::{Error, Op, Reason, Result};
use crate::event::{Action, Event, Summary};
use crate::node::Node;
use crate::policy::{CopyPolicy, Privileged};
use crate::receiver::partly::Fate;
use crate::receiver::plan::Proof;
use crate::tally::Tally;
use crate::verbs::alike::AlikeTree;
use crate::verbs::rivals::EntryPaths;
use fastcopy::dir::{Dir, Name};
use fastcopy::meta::{Info, Kind};
use fastcopy::xattr::Of;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// One entry of the source and what has its name at the destination.
pub(crate) struct EntryPair<'s> {
    pub(crate) info: Info,
    pub(crate) there: Option<Info>,
    /// The directory above it that the destination lacks.
    pub(crate) lack: Option<&'s Lack>,
    /// An earlier source makes a directory of this name, and this one is merged into it.
    pub(crate) merges: bool,
    /// What is there has its name in this directory.
    pub(crate) above: Option<(&'s Dir, Name<'s>)>,
    pub(crate) both: &'s dyn ContentCompare,
}

impl EntryPair<'_> {
    pub(crate) fn src_path(&self) -> PathBuf {
        self.both.src_path()
    }
    pub(crate) fn dst_path(&self) -> PathBuf {
        self.both.dst_path()
    }
}

/// What is in the two sides of one entry, read only when a visitor asks.
pub(crate) trait ContentCompare: EntryPaths {
    /// Whether two regular files have the same content.
    fn same_content(&self) -> Result<bool>;
    /// Whether two symbolic links lead to the same.
    fn same_target(&self) -> Result<bool>;
    /// Whether the destination's regular file is how the source's begins.
    fn same_beginning(&self) -> Result<bool>;
    /// What a copy of this policy would change of the destination's attributes, if anything.
    fn attributes(&self, kind: Kind, policy: &CopyPolicy) -> Result<Option<Reason>>;
}

impl dyn ContentCompare + '_ {
    /// Whether a proof holds.
    pub(crate) fn holds(&self, proof: Proof) -> Result<bool> {
        match proof {
            Proof::Content => self.same_content(),
            Proof::Target => self.same_target(),
            Proof::Beginning => self.same_beginning(),
        }
    }
}

/// A directory that the destination lacks, while what is below it is counted.
pub(crate) struct Lack {
    pub(crate) path: PathBuf,
    pub(crate) files: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Itself and what is below it.
    pub(crate) tree: AlikeTree,
    /// Something else, whose place it takes.
    pub(crate) there: Option<Info>,
    /// Its own name was met, and not only what is below it: it counts as a difference.
    is_named: AtomicBool,
}

impl Lack {
    pub(crate) fn new(path: &Path, info: &Info, there: Option<Info>) -> Arc<Lack> {
        let lack = Lack::unnamed(path, there);
        lack.tree.add(Path::new(""), info);
        lack.name();
        lack
    }

    /// One of which nothing was met but what is below it.
    pub(crate) fn unnamed(path: &Path, there: Option<Info>) -> Arc<Lack> {
        let (zero, tree, is_named) = (AtomicU64::default, AlikeTree::default(), AtomicBool::new(false));
        Arc::new(Lack { path: path.to_owned(), files: zero(), bytes: zero(), tree, there, is_named })
    }

    /// Its own name was met.
    pub(crate) fn name(&self) {
        self.is_named.store(true, Relaxed);
    }

    pub(crate) fn is_named(&self) -> bool {
        self.is_named.load(Relaxed)
    }
}

/// What was found, to be told in its turn.
pub(crate) enum Found {
    Told(Event),
    Failed(Error),
    /// All below a directory that the destination lacks was gone through before this.
    Lacks(Arc<Lack>),
    /// What becomes of it depends on what was told before it.
    Undecided(Box<Undecided>),
}

/// An entry of which something else decides: an answer, or whether another name of it came before.
pub(crate) struct Undecided {
    pub(crate) info: Info,
    pub(crate) src_path: PathBuf,
    pub(crate) dst_path: PathBuf,
    /// A person decides first.
    pub(crate) asks: bool,
}

/// What was found and is not told yet, first to last.
pub(crate) type Findings = Vec<Found>;

/// An item as [`Tally::item`] tells it, in its turn.
pub(crate) fn item(
    found: &mut Findings,
    tally: &Tally<'_>,
    (action, bytes): (Action, u64),
    paths: impl FnOnce() -> (PathBuf, PathBuf),
) {
    if tally.watch.items {
        let (src, dst) = paths();
        found.push(Found::Told(Event::Item { action, src, dst, bytes }));
    }
}

/// What is looked for in what the walk finds. Called by several workers at once.
pub(crate) trait Visit: Sync {
    /// An entry of the source. For a directory: whether to go in.
    fn entry(&self, at: &EntryPair<'_>, found: &mut Findings) -> bool;
    /// What of its content will be asked about, if anything.
    fn wants_content(&self, at: &EntryPair<'_>) -> Option<Proof>;
    /// An entry that the filter leaves out.
    fn excluded(&self, src_path: &dyn Fn() -> PathBuf, found: &mut Findings);
    /// A directory that has no entry of its own (an operand as a whole, one on the way to a listed name) has no name at
    /// the destination yet.
    fn absent(&self, paths: &dyn EntryPaths, found: &mut Findings);
    /// A directory whose contents are an operand, beside the one that they go into.
    fn top(&self, _at: &EntryPair<'_>, _found: &mut Findings) {}
    /// An entry that only the destination has.
    fn extra(&self, _dir: &Dir, _name: Name<'_>, _dst_path: PathBuf, _found: &mut Findings) {}
    /// What becomes of something below a directory that only the destination has, where the filter does not leave it out.
    fn fate(&self, _info: &Info) -> Fate {
        Fate::Goes
    }
    /// A directory of the destination that was compared has so many names. Only where [`Visit::extra`] is wanted.
    fn counted(&self, _names: u64) {}
    /// Whether [`Visit::extra`] is wanted.
    fn wants_extra(&self) -> bool {
        false
    }
    /// Whether [`Visit::lacks`] is wanted.
    fn wants_lacks(&self) -> bool {
        false
    }
    /// Whether a directory that takes the place of something else is gone through as one that the destination lacks.
    fn goes_over(&self) -> bool {
        false
    }
    /// Tells of a directory that the destination lacks; all below it was counted.
    fn lacks(&self, _lack: &Lack) {}
    /// Decides and tells, in the order of entries.
    fn decided(&self, _undecided: Undecided) {}
    /// The contents of the directory that is `source` at the source become those of `dir`.
    ///
    /// # Errors
    /// There is no handle left for it.
    fn begins(&self, _dir: &Dir, _node: &Arc<Node>, _source: (u64, u64)) -> Result<()> {
        Ok(())
    }
    /// The source has `name` in what is `dir` at the destination; whether it is left out.
    ///
    /// # Errors
    /// The directory cannot be looked at.
    fn has(&self, _dir: &Dir, _name: Name<'_>, _is_out: bool) -> Result<()> {
        Ok(())
    }
    /// The source has a name, left out or not.
    fn source_has_one(&self) {}
    /// Everything was shown. Returns what is to be told as done, where that is not what was looked at.
    fn end(self: Box<Self>) -> Option<Summary> {
        None
    }
}

/// Attributes that came along with an entry.
pub(crate) fn carried(attrs: &[(CString, Vec<u8>)]) -> AttributeList {
    attrs.iter().map(|(name, value)| (name.to_bytes().to_vec(), value.clone())).collect()
}

/// What a copy would change of the attributes of `there`, where the source has these.
pub(crate) fn change(
    there: Of<'_>,
    shown: impl Fn() -> PathBuf,
    kind: Kind,
    policy: &CopyPolicy,
    source: &AttributeList,
) -> Result<Option<Reason>> {
    let there = attributes(there, shown, kind, policy, policy.preserve.at_dest)?;
    Ok(seal::change(kind, &policy.preserve, (policy.strictness, &policy.alter), source, &there))
}

pub(crate) fn attributes(
    of: Of<'_>,
    shown: impl Fn() -> PathBuf,
    kind: Kind,
    policy: &CopyPolicy,
    side: Privileged,
) -> Result<AttributeList> {
    seal::attributes(of, kind, &policy.preserve, side)
        .map_err(|e| Error::os(Op::ReadAttributesOf, shown(), e))
}
