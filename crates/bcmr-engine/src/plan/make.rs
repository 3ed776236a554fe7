//! Makes a plan: walks the source, sorts what it finds, and cuts it into shards that cost alike.
//!
//! Must not copy anything. The same tree and request give the same bytes of every shard, which follow from the sorted entries
//! alone; and of the plan itself but for its number and the name of its tree, which no two plans share.

use super::folder::{EntriesFile, PlanFolder};
use super::format::{
    Digest, EntriesFrame, PlanHeader, PlanHost, PlannedAs, PlannedEntry, SHARDS_MAX, ShardTotals, Version,
};
use super::from::{top_of, walking};
use super::others::{Alone, GivenTo, OtherWalkers};
use super::places::{Spot, spot};
use super::requests::{FarEnd, PlanMade, PlanRequest, PlanVerb, Shards};
use super::sorter::{Merge, SortedRecord, Sorter};
use super::there::{bringing, filling};
use super::together::adopt;
use super::walk::{Collector, link_of, parts_of, path_of, version_of};
use super::{take, take_there};
use crate::blocks::FORMAT_BLOCK_BYTES;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Summary, Watch};
use crate::node::Node;
use crate::peer::planned::TreeThere;
use crate::peer::planned_source::{SourceThere, taking};
use crate::policy::{Collide, CopyPolicy};
use crate::remote::Purpose;
use crate::remove;
use crate::sender::filter::Filter;
use crate::sender::walk::SourceDir;
use crate::verbs::nameless::NamelessTree;
use crate::verbs::operands::{self, Dest, Place, Reach};
use crate::verbs::sync;
use crate::verbs::sync::mounted::{Holder, Mounted};
use fastcopy::dir::{Dir, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What a small file costs, in what a byte costs: of the figures in docs/scale.md.
const FILE_COST: u64 = 22_800;
/// What a directory costs.
const DIRECTORY_COST: u64 = 15_300;
/// A part of a file is no smaller, unless the user says so.
const PART_BYTES_MIN: u64 = 64 << 20;
/// A part of a file is no larger: what a kill costs.
const PART_BYTES_MAX: u64 = 1 << 30;

fn failed(path: &Path) -> impl Fn(io::Error) -> Error {
    move |e| Error::os(Op::WritePlan, path, e)
}

/// Makes a plan of a copy, or of a sync where the policy is a mirror's.
///
/// # Errors
/// It could not be made; what could not be looked at is told through `watch`, and then there is none.
pub fn plan(request: &PlanRequest, watch: Watch<'_>) -> Result<PlanMade> {
    let CopyPolicy { mirror, collide, delete_max, .. } = request.policy;
    let verb = match mirror.is_on() {
        false => PlanVerb::Copy,
        true => PlanVerb::Sync {
            by_content: collide == Collide::IfContentDiffers,
            delete: mirror.deletes().then_some(delete_max),
        },
    };
    plan_for(request, verb, watch)
}

/// Makes a plan of this verb.
///
/// # Errors
/// As [`plan`].
pub fn plan_for(request: &PlanRequest, verb: PlanVerb, watch: Watch<'_>) -> Result<PlanMade> {
    plan_together(request, verb, &Alone::default(), watch)
}

/// The same, where other processes walk the source as well, each by [`walk_part`](super::walk_part) with the same request. The
/// plan is the one that this process alone would make.
///
/// # Errors
/// As [`plan`].
pub fn plan_together(
    request: &PlanRequest,
    verb: PlanVerb,
    others: &dyn OtherWalkers,
    watch: Watch<'_>,
) -> Result<PlanMade> {
    let source = &request.source;
    let policy = &request.policy;
    refuse_what_means_nothing(request, verb)?;
    let filter = Filter::new(&policy.filter)?;
    let out = spot(&request.out, Op::WritePlan)?;
    let from = from(request, verb, &filter, &out, watch)?;
    let to = ends(request, verb, (&from, &filter), &out, watch)?;
    let folder = PlanFolder::make(&out.place.dir, out.name.as_name(), &request.out)?;
    let fail = failed(&request.out);
    let (all, linked) = (Sorter::new(&folder.dir), Sorter::new(&folder.dir));
    let (summary, dirs, names, mut bytes) = {
        let dev = from.info().dev;
        let collector = Collector::new(watch, (&all, &linked), (others, GivenTo::First), dev, (verb, policy));
        let mut summary = match &from {
            PlanSource::Here(src) => {
                let place = Place {
                    dir: out.place.dir.try_clone().map_err(&fail)?,
                    node: out.place.node.clone(),
                    created_names: Arc::default(),
                    made_first: false,
                };
                collector.walk(src, place, policy, &filter, source)?;
                Summary::default()
            }
            PlanSource::There(source, _) => {
                collector.walk_there(source, out.place.clone(), &walking(policy))?
            }
        };
        let found = &collector.found;
        summary.add(collector.tally().summary());
        summary.add(adopt(&others.parts(), (&all, &linked), &folder, found, request)?);
        let (dirs, names, bytes) =
            (found.dirs.load(Relaxed), found.names.load(Relaxed), found.bytes.load(Relaxed));
        (summary, dirs, names, bytes)
    };
    if summary.failed > 0 || summary.cancelled {
        if !summary.cancelled {
            return Err(Error::ours(Code::Io, Op::Plan, source, Reason::NotListedWhole));
        }
        return Ok(PlanMade { summary, shards: 0 });
    }
    let later = Sorter::new(&folder.dir);
    let twice = further_names(&mut linked.merged().map_err(&fail)?, &later).map_err(&fail)?;
    bytes = bytes.saturating_sub(twice);
    // What takes names away reads nothing.
    let content = if verb == PlanVerb::Remove { 0 } else { bytes };
    let cost = names
        .saturating_mul(FILE_COST)
        .saturating_add(dirs.saturating_mul(DIRECTORY_COST))
        .saturating_add(content);
    let count = match request.shards {
        Shards::Number(count) => count.clamp(1, SHARDS_MAX),
        Shards::OfBytes(most) => {
            u32::try_from(bytes.div_ceil(most.max(1))).unwrap_or(u32::MAX).clamp(1, SHARDS_MAX)
        }
    };
    let in_parts = verb == PlanVerb::Copy && request.there.is_none();
    let part_bytes = if in_parts { part_bytes(request.part_bytes, bytes, count) } else { 0 };
    let mut cutter = Cutter::new(&folder.dir, verb, (count, cost), part_bytes);
    let (mut all, mut later) = (all.merged().map_err(&fail)?, later.merged().map_err(&fail)?);
    cutter.everything(&mut all, &mut later, &request.out, watch)?;
    if watch.cancel.is_set() {
        return Ok(PlanMade { summary: Summary { cancelled: true, ..Summary::default() }, shards: 0 });
    }
    let Cutter { totals, summary, .. } = cutter;
    let mut header = PlanHeader {
        source: source.as_os_str().as_bytes().to_vec(),
        destination: request.destination.as_os_str().as_bytes().to_vec(),
        stage: to.name().clone(),
        top: Version::of(from.info()),
        part_bytes,
        shards: totals,
        verb,
        host: None,
        source_host: None,
        number: Some(folder.number()?),
    };
    match &request.there {
        Some((FarEnd::Source(address), _)) => header.source_host = Some(PlanHost::of(address)),
        Some((FarEnd::Destination(address), _)) => header.host = Some(PlanHost::of(address)),
        None => {}
    }
    from.end()?;
    if verb == PlanVerb::Copy {
        // The number is on stable storage by now: the plan that is made again after a kill finds this tree.
        header.stage = to.make_stage(&header.identity())?;
    } else {
        to.end()?;
    }
    folder.write_header(&header)?;
    Ok(PlanMade { summary, shards: count })
}

/// Paths here are absolute. What is removed has no destination on another machine.
fn refuse_what_means_nothing(request: &PlanRequest, verb: PlanVerb) -> Result<()> {
    let PlanRequest { source, destination, there, .. } = request;
    let here: &[_] = match there {
        None => &[source, destination],
        // What is removed is both.
        Some((FarEnd::Source(_), _)) if verb == PlanVerb::Remove => &[],
        Some((FarEnd::Source(_), _)) => &[destination],
        Some((FarEnd::Destination(_), _)) => &[source],
    };
    if let Some(path) = here.iter().find(|path| !path.is_absolute()) {
        return Err(Error::ours(Code::Usage, Op::Plan, path, Reason::NoSuchName));
    }
    if verb == PlanVerb::Remove && matches!(there, Some((FarEnd::Destination(_), _))) {
        return Err(Error::ours(Code::Usage, Op::Plan, source, Reason::OnlyCopiesBetweenMachines));
    }
    Ok(())
}

/// Where the source is.
enum PlanSource<'w> {
    Here(Arc<SourceDir>),
    There(Box<SourceThere<'w>>, Info),
}

impl PlanSource<'_> {
    /// The source itself.
    fn info(&self) -> &Info {
        match self {
            PlanSource::Here(src) => &src.info,
            PlanSource::There(_, info) => info,
        }
    }

    fn end(self) -> Result<()> {
        match self {
            PlanSource::Here(_) => Ok(()),
            PlanSource::There(source, _) => source.end(Ok(Summary::default())).map(drop),
        }
    }
}

/// Opens the source, or reaches it.
fn from<'w>(
    request: &'w PlanRequest,
    verb: PlanVerb,
    filter: &Filter,
    out: &Spot,
    watch: Watch<'w>,
) -> Result<PlanSource<'w>> {
    let PlanRequest { source, policy, there, .. } = request;
    if let Some((FarEnd::Source(address), way)) = there {
        let policy = walking(policy);
        let asks = if verb == PlanVerb::Remove { taking(&policy) } else { policy.clone() };
        let there = SourceThere::reach((address, way), &asks, watch)?;
        let top = top_of(&there, out.place.clone(), &policy, (Op::Plan, Reason::NotListedWhole))?;
        return Ok(PlanSource::There(Box::new(there), top.info));
    }
    let dir = Dir::open(source).map_err(|e| Error::os(Op::OpenDirectory, source, e))?;
    Ok(PlanSource::Here(SourceDir::root(dir, Node::root(source))?.with_ignores(filter)?))
}

/// Where the destination is.
enum PlanEnds<'w> {
    Here(Spot),
    There(Box<TreeThere<'w>>, NameBuf),
    /// What is removed, on another machine.
    Nowhere(NameBuf),
}

impl PlanEnds<'_> {
    fn name(&self) -> &NameBuf {
        match self {
            PlanEnds::Here(Spot { name, .. }) | PlanEnds::There(_, name) | PlanEnds::Nowhere(name) => name,
        }
    }

    fn end(self) -> Result<()> {
        match self {
            PlanEnds::Here(_) | PlanEnds::Nowhere(_) => Ok(()),
            PlanEnds::There(tree, _) => tree.end(Ok(Summary::default())).map(drop),
        }
    }

    /// Makes the tree that shards of the copy with this identity fill. Returns what it is called.
    fn make_stage(self, identity: &Digest) -> Result<NameBuf> {
        match self {
            PlanEnds::Here(Spot { place, name }) => {
                let tree = NamelessTree::beside(place, name, identity)?;
                tree.make()?;
                Ok(tree.name)
            }
            PlanEnds::There(tree, _) => {
                let tree = tree.of(*identity);
                let made = tree.make()?;
                tree.end(Ok(Summary::default()))?;
                Ok(made.name)
            }
            PlanEnds::Nowhere(name) => Ok(name),
        }
    }
}

/// The place of the destination, after what must not be between it, the source and the plan was looked for.
fn ends<'w>(
    request: &'w PlanRequest,
    verb: PlanVerb,
    (from, filter): (&PlanSource<'_>, &Filter),
    out: &Spot,
    watch: Watch<'w>,
) -> Result<PlanEnds<'w>> {
    let PlanRequest { source, destination, policy, .. } = request;
    match (verb, from) {
        (PlanVerb::Remove, PlanSource::Here(src)) => remove::guard(&src.dir, source)?,
        (PlanVerb::Remove, PlanSource::There(there, _)) => take_there::guard(there)?,
        _ => {}
    }
    let apart = |spot: &Spot| {
        let dest = Dest::Named { dir: spot.place.clone(), name: spot.name.clone() };
        operands::nesting(&Reach::Anywhere, from.info(), true, &dest, policy, source, Op::Plan)
    };
    apart(out).map_err(|e| match &e.note {
        Some(note) if note.reason == Reason::DestinationInside => {
            let note = Reason::PlanInSource.about(request.out.as_path());
            Error { note: Some(note), ..e }
        }
        _ => e,
    })?;
    let nowhere =
        || NameBuf::new(b"-").ok_or_else(|| failed(destination)(io::ErrorKind::InvalidInput.into()));
    if let Some((FarEnd::Destination(address), way)) = &request.there {
        // What cannot be reached is told before the walk.
        let tree = match verb {
            PlanVerb::Sync { by_content, delete } => {
                if let (Some(_), PlanSource::Here(src)) = (delete, from) {
                    let mounted = Mounted::of(&src.dir, Holder::There(address), request.state.as_deref());
                    mounted.guard(&address.path)?;
                }
                // The end goes through all of the source.
                if !filter.is_empty() || policy.one_file_system {
                    return Err(Error::ours(Code::Usage, Op::Plan, source, Reason::PlanSyncsThereUnfiltered));
                }
                TreeThere::reach_named((address, way), &bringing(policy, by_content), watch)?
            }
            PlanVerb::Check { compare, .. } => {
                let purpose = Purpose::Check { compare, extra: false, alike: false };
                let tree = TreeThere::reach_compared((address, way), (&filling(policy), purpose), watch)?;
                tree.is_directory_if_there()?;
                tree
            }
            _ => TreeThere::reach((address, way), Digest::default(), &filling(policy), watch)?,
        };
        return Ok(PlanEnds::There(Box::new(tree), nowhere()?));
    }
    if let (PlanVerb::Remove, PlanSource::There(there, _)) = (verb, from) {
        take_there::is_itself_a_directory(there)?;
        return Ok(PlanEnds::Nowhere(nowhere()?));
    }
    let to = spot(destination, Op::CopyTo)?;
    if verb == PlanVerb::Remove {
        // The source was opened through a link: what that leads to is not what was named.
        let itself = to.place.dir.stat(to.name.as_name()).map_err(|e| Error::os(Op::Stat, source, e))?;
        return match itself.kind {
            Kind::Dir => Ok(PlanEnds::Here(to)),
            _ => Err(take::no_directory(source)),
        };
    }
    if let PlanVerb::Sync { delete: Some(_), .. } = verb {
        // The end asks the source for each name that is to go, and not the filter.
        if !filter.is_empty() {
            return Err(Error::ours(Code::Usage, Op::Plan, source, Reason::PlanDeletesUnfiltered));
        }
        guard_deleting(request, from, (out, &to))?;
    }
    if !matches!(verb, PlanVerb::Check { .. }) {
        apart(&to)?;
    }
    let there = match verb {
        PlanVerb::Copy => to.place.dir.look(to.name.as_name()),
        _ => Dir::open(destination).and_then(|dir| dir.info()).map(Some),
    };
    match there {
        Ok(Some(info)) if info.id() == from.info().id() => {
            Err(Error::ours(Code::Refused, Op::Plan, source, Reason::SameDirectory))
        }
        Err(e) if Code::of(&e) != Code::NotFound => Err(Error::os(Op::Stat, destination, e)),
        _ => Ok(PlanEnds::Here(to)),
    }
}

/// M1: refuses a plan that deletes for a source that is not mounted as it was or in the destination; and one that would be deleted
/// itself.
fn guard_deleting(request: &PlanRequest, from: &PlanSource<'_>, (out, to): (&Spot, &Spot)) -> Result<()> {
    let PlanRequest { source, destination, out: plan, state, .. } = request;
    let dest = match Dir::open(destination) {
        Ok(dest) => Some(dest),
        Err(e) if Code::of(&e) == Code::NotFound => None,
        Err(e) => return Err(Error::os(Op::OpenDirectory, destination, e)),
    };
    if let (Some(dest), PlanSource::Here(src)) = (&dest, from) {
        sync::guard_source(&src.dir, dest, (destination, source))?;
        Mounted::of(&src.dir, Holder::Here(destination), state.as_deref()).guard(destination)?;
    }
    let is_in_dest = || -> io::Result<bool> {
        let Some(dest) = &dest else {
            let same_place = out.place.dir.info()?.id() == to.place.dir.info()?.id();
            return Ok(same_place && out.name == to.name);
        };
        let itself = out.place.dir.look(out.name.as_name())?.map(|info| info.id());
        Ok(itself == Some(dest.info()?.id()) || sync::lies_in(&out.place.dir, dest)?)
    };
    match is_in_dest().map_err(|e| Error::os(Op::Stat, plan, e))? {
        true => Err(Error::ours(Code::Refused, Op::WritePlan, plan, Reason::PlanInDestination)),
        false => Ok(()),
    }
}

/// Bytes of a part of a large file; 0 where none is cut.
fn part_bytes(wanted: Option<u64>, bytes: u64, shards: u32) -> u64 {
    let fair = bytes / u64::from(shards.max(1)) / 2;
    match wanted {
        Some(wanted) => wanted.max(FORMAT_BLOCK_BYTES).next_power_of_two(),
        None if shards == 1 => 0,
        None => fair.next_power_of_two().clamp(PART_BYTES_MIN, PART_BYTES_MAX),
    }
}

/// Adds to `later` each name of a file but its first one, with the path of that. Returns the bytes that the walk has counted
/// for such names.
fn further_names(linked: &mut Merge, later: &Sorter<'_>) -> io::Result<u64> {
    let (mut inode, mut first) = (Vec::new(), Vec::new());
    let mut twice = 0u64;
    while let Some(SortedRecord { key, value }) = linked.next()? {
        let Some((of, key)) = link_of(&key) else { continue };
        if inode == of {
            twice = twice.saturating_add(version_of(&value).map_or(0, |v| v.size));
            later.add(|push| push(key, &first))?;
        } else {
            inode = of.to_vec();
            first = whole_path(key);
        }
    }
    Ok(twice)
}

fn whole_path(key: &[u8]) -> Vec<u8> {
    let Some((parent, name)) = parts_of(key) else { return Vec::new() };
    let mut path = path_of(parent);
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Cuts sorted entries into shards.
struct Cutter<'d> {
    dir: &'d Dir,
    verb: PlanVerb,
    count: u32,
    /// Of everything.
    cost: u64,
    part_bytes: u64,
    /// Of what was cut so far.
    spent: u64,
    file: Option<EntriesFile<'d>>,
    frame: EntriesFrame,
    totals: Vec<ShardTotals>,
    summary: Summary,
}

impl<'d> Cutter<'d> {
    fn new(dir: &'d Dir, verb: PlanVerb, (count, cost): (u32, u64), part_bytes: u64) -> Cutter<'d> {
        let (file, frame) = (None, EntriesFrame::default());
        let (totals, summary) = (Vec::new(), Summary::default());
        Cutter { dir, verb, count, cost, part_bytes, spent: 0, file, frame, totals, summary }
    }

    /// Cuts all of it; `later` has the further names of files, in the same order.
    fn everything(&mut self, all: &mut Merge, later: &mut Merge, out: &Path, watch: Watch<'_>) -> Result<()> {
        let fail = failed(out);
        let mut further = later.next().map_err(&fail)?;
        while let Some(SortedRecord { key, value }) = all.next().map_err(&fail)? {
            if watch.cancel.is_set() {
                return Ok(());
            }
            let (Some((parent, name)), Some(of)) = (parts_of(&key), version_of(&value)) else { continue };
            let Some(name) = NameBuf::new(name) else { continue };
            let path = path_of(parent);
            let is_further = further.as_ref().is_some_and(|f| f.key == key);
            if is_further {
                let first = further.take().map(|f| f.value).unwrap_or_default();
                further = later.next().map_err(&fail)?;
                self.add(&path, PlannedEntry { name, what: PlannedAs::Linked { of, first } })
                    .map_err(&fail)?;
                self.summary.others += 1;
                continue;
            }
            match of.kind {
                Kind::Dir => self.summary.dirs += 1,
                Kind::File => self.summary.files += 1,
                _ => self.summary.others += 1,
            }
            let in_parts = self.part_bytes > 0 && of.kind == Kind::File && of.size / 2 >= self.part_bytes;
            if !in_parts {
                let what = if of.kind == Kind::Dir { PlannedAs::Directory(of) } else { PlannedAs::Whole(of) };
                self.add(&path, PlannedEntry { name, what }).map_err(&fail)?;
                continue;
            }
            let mut at = 0;
            while at < of.size {
                let bytes = self.part_bytes.min(of.size - at);
                let what = PlannedAs::Part { of, at, bytes };
                self.add(&path, PlannedEntry { name: name.clone(), what }).map_err(&fail)?;
                at += bytes;
            }
        }
        while self.totals.len() < self.count as usize {
            self.end_shard().map_err(&fail)?;
        }
        Ok(())
    }

    fn add(&mut self, path: &[u8], entry: PlannedEntry) -> io::Result<()> {
        // The shard that the middle of the entry falls into.
        let own = match &entry.what {
            PlannedAs::Directory(_) => DIRECTORY_COST,
            _ if self.verb == PlanVerb::Remove => FILE_COST,
            _ => FILE_COST.saturating_add(entry.bytes()),
        };
        let middle = u128::from(self.spent) + u128::from(own / 2);
        let shard = middle * u128::from(self.count) / u128::from(self.cost.max(1));
        let shard = usize::try_from(shard).unwrap_or(usize::MAX).min(self.count as usize - 1);
        while self.totals.len() < shard {
            self.end_shard()?;
        }
        self.spent = self.spent.saturating_add(own);
        let full = self.frame.add(path, &entry);
        let file = self.file()?;
        file.totals.entries += 1;
        file.totals.files += u64::from(entry.counts());
        file.totals.bytes += entry.bytes();
        self.summary.bytes += entry.bytes();
        if full { self.end_frame() } else { Ok(()) }
    }

    fn file(&mut self) -> io::Result<&mut EntriesFile<'d>> {
        let file = match self.file.take() {
            Some(file) => file,
            None => EntriesFile::begin(self.dir, self.totals.len() as u32)?,
        };
        Ok(self.file.insert(file))
    }

    fn end_frame(&mut self) -> io::Result<()> {
        match self.frame.take() {
            Some(payload) => self.file()?.frame(&payload),
            None => Ok(()),
        }
    }

    fn end_shard(&mut self) -> io::Result<()> {
        self.end_frame()?;
        self.file()?;
        if let Some(file) = self.file.take() {
            self.totals.push(file.end()?);
        }
        Ok(())
    }
}
