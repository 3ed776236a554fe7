//! What the files of a plan say: the plan itself, the entries of a shard, and what became of them (docs/plan-format.md).
//!
//! Must not touch any disk, nor panic or allocate much whatever the bytes are. Every file is a chain of frames: each has
//! its length and a BLAKE3 of the frame before it and its own bytes, so a byte that changed, a frame that is missing and one
//! that belongs elsewhere are all noticed before anything of them is believed.

use super::requests::{FarEnd, PlanVerb};
use crate::blocks::FORMAT_BLOCK_BYTES;
use crate::error::Reason;
use crate::policy::{Compare, DeleteMax};
use crate::remote::Address;
use bcmr_wire::bytes::ByteReader;
use fastcopy::dir::NameBuf;
use fastcopy::meta::{Info, Kind, Time};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// `[plan.version]`
const VERSION: u16 = 1;
/// What a file of each kind begins its chain with: one of another kind or version is noticed with its first frame.
const OF_PLAN: &[u8] = b"bcmr plan 1";
const OF_ENTRIES: &[u8] = b"bcmr plan entries 1";
const OF_RESULT: &[u8] = b"bcmr plan result 1";

/// Bytes of a frame, at most. A writer ends a frame long before.
pub(super) const FRAME_BYTES_MAX: usize = 8 << 20;
/// From this many bytes on a frame of entries is ended.
const FRAME_BYTES: usize = 256 << 10;
/// Entries of one frame, at most: what is copied before its result is recorded.
const FRAME_ENTRIES: u32 = 4096;
/// Content that the entries of one frame have, at most, unless one entry alone has more: what a kill costs.
const FRAME_CONTENT_BYTES: u64 = 1 << 30;
/// Shards of a plan, at most.
pub(super) const SHARDS_MAX: u32 = 1 << 20;
const _: () = assert!(FRAME_BYTES + 4 * 4096 + 4096 < FRAME_BYTES_MAX);

/// A BLAKE3.
pub(super) type Digest = [u8; 32];

/// What no other plan has.
pub(super) type PlanNumber = [u8; 16];

/// Why bytes of a plan are not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damage(pub(super) Reason);

const DAMAGED: Damage = Damage(Reason::PlanDamaged);

// ---- frames ----

/// The hash of a frame: of the one before it and of its bytes.
fn chained(before: &Digest, payload: &[u8]) -> Digest {
    *blake3::Hasher::new().update(before).update(payload).finalize().as_bytes()
}

/// Which kind of file a chain of frames is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    Plan,
    Entries { shard: u32 },
    Result { shard: u32 },
}

impl FrameKind {
    fn start(self) -> Digest {
        let (what, shard) = match self {
            FrameKind::Plan => (OF_PLAN, 0),
            FrameKind::Entries { shard } => (OF_ENTRIES, shard),
            FrameKind::Result { shard } => (OF_RESULT, shard),
        };
        chained(blake3::hash(what).as_bytes(), &shard.to_le_bytes())
    }
}

/// Makes frames, one after the other.
pub(super) struct FrameWriter {
    last: Digest,
}

/// Bytes before a frame's own: its length and its hash.
pub(super) const FRAME_HEAD_BYTES: usize = 4 + 32;

impl FrameWriter {
    pub(super) fn new(chain: FrameKind) -> FrameWriter {
        FrameWriter { last: chain.start() }
    }

    /// Appends a frame with this payload to `out`.
    pub(super) fn frame(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        self.last = chained(&self.last, payload);
        out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.last);
        out.extend_from_slice(payload);
    }

    /// The hash of the last frame, which stands for all of them.
    pub(super) fn digest(&self) -> Digest {
        self.last
    }
}

/// Takes frames apart, one after the other.
pub(super) struct FrameChain {
    last: Digest,
}

impl FrameChain {
    pub(super) fn new(chain: FrameKind) -> FrameChain {
        FrameChain { last: chain.start() }
    }

    /// How long the payload is that this head announces.
    pub(super) fn length(head: &[u8; FRAME_HEAD_BYTES]) -> Result<usize, Damage> {
        let length = ByteReader::new(head).u32().unwrap_or(u32::MAX) as usize;
        if length <= FRAME_BYTES_MAX { Ok(length) } else { Err(DAMAGED) }
    }

    /// Whether the payload is the next frame's.
    pub(super) fn take(&mut self, head: &[u8; FRAME_HEAD_BYTES], payload: &[u8]) -> Result<(), Damage> {
        let hash = chained(&self.last, payload);
        if head.get(4..) != Some(&hash) {
            return Err(DAMAGED);
        }
        self.last = hash;
        Ok(())
    }

    /// The hash of the last frame.
    pub(super) fn digest(&self) -> Digest {
        self.last
    }
}

// ---- fields ----

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_bytes<'b>(from: &mut ByteReader<'b>) -> Option<&'b [u8]> {
    let length = from.u32()?;
    from.take(length as usize)
}

fn put_time(out: &mut Vec<u8>, time: Time) {
    out.extend_from_slice(&time.sec.to_le_bytes());
    out.extend_from_slice(&time.nsec.to_le_bytes());
}

fn take_time(from: &mut ByteReader<'_>) -> Option<Time> {
    let (sec, nsec) = (from.i64()?, from.u32()?);
    (nsec < 1_000_000_000).then_some(Time { sec, nsec })
}

/// What tells a version of a source from every other one, on any machine that sees it: all but the device's number, which
/// each machine counts for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) kind: Kind,
    pub(super) ino: u64,
    pub(super) size: u64,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
}

const KINDS: [Kind; 7] =
    [Kind::File, Kind::Dir, Kind::Link, Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice];

impl Version {
    pub(super) fn of(info: &Info) -> Version {
        let Info { kind, ino, size, mtime, ctime, .. } = *info;
        Version { kind, ino, size, mtime, ctime }
    }

    /// Whether what `info` tells of has not changed since.
    pub(super) fn is(&self, info: &Info) -> bool {
        *self == Version::of(info)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(kind_byte(self.kind));
        out.extend_from_slice(&self.ino.to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        put_time(out, self.mtime);
        put_time(out, self.ctime);
    }

    pub(super) fn take(from: &mut ByteReader<'_>) -> Option<Version> {
        let kind = kind_of(from.u8()?)?;
        let (ino, size) = (from.u64()?, from.u64()?);
        let (mtime, ctime) = (take_time(from)?, take_time(from)?);
        Some(Version { kind, ino, size, mtime, ctime })
    }
}

/// The number of a kind in a plan.
pub(super) fn kind_byte(kind: Kind) -> u8 {
    KINDS.iter().position(|k| *k == kind).unwrap_or(KINDS.len()) as u8
}

/// The kind with this number.
pub(super) fn kind_of(byte: u8) -> Option<Kind> {
    KINDS.get(usize::from(byte)).copied()
}

/// A path below the top, as components with `/` between them; the top itself is empty.
fn is_path(path: &[u8]) -> bool {
    path.is_empty() || path.split(|b| *b == b'/').all(|part| NameBuf::new(part).is_some())
}

// ---- the plan ----

/// One shard, as the plan knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ShardTotals {
    /// The hash of its last frame of entries.
    pub(super) digest: Digest,
    pub(super) frames: u32,
    /// Everything in it.
    pub(super) entries: u64,
    /// Files, those in parts counted with their first part.
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// A plan, but for its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlanHeader {
    /// The directory that is copied, as an absolute path; with `source_host` it may be below the home directory there.
    pub(super) source: Vec<u8>,
    /// What it becomes.
    pub(super) destination: Vec<u8>,
    /// What the tree is called until it is finished, in the destination's directory.
    pub(super) stage: NameBuf,
    /// The source directory itself.
    pub(super) top: Version,
    /// Bytes of a part of a large file; 0 where no file is in parts.
    pub(super) part_bytes: u64,
    pub(super) shards: Vec<ShardTotals>,
    /// What becomes of all that.
    pub(super) verb: PlanVerb,
    /// The machine of the destination, if that is another one.
    pub(super) host: Option<PlanHost>,
    /// The machine of the source, if that is another one.
    pub(super) source_host: Option<PlanHost>,
    /// Two plans of one tree fill two trees. Plans of earlier versions have none.
    pub(super) number: Option<PlanNumber>,
}

/// Another machine, as it was typed: nothing of how to get there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlanHost {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

/// Bytes of a user or of a host.
const HOST_BYTES_MAX: usize = 255;

impl PlanHost {
    pub(super) fn of(address: &Address) -> PlanHost {
        let Address { user, host, port, .. } = address.clone();
        PlanHost { user, host, port }
    }

    fn address(&self, path: &[u8]) -> Address {
        let PlanHost { user, host, port } = self.clone();
        Address { user, host, port, path: PathBuf::from(OsStr::from_bytes(path)) }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = self.port.unwrap_or(0).to_le_bytes().to_vec();
        put_bytes(&mut out, self.user.as_deref().unwrap_or_default().as_bytes());
        put_bytes(&mut out, self.host.as_bytes());
        out
    }

    /// The machine that bytes are. L1: nothing in them is an option to ssh, nor obeyed by a shell.
    fn read(bytes: &[u8]) -> Option<PlanHost> {
        let mut from = ByteReader::new(bytes);
        let port = u16::from_le_bytes(from.array()?);
        let mut word = |signs: &str| {
            let text = std::str::from_utf8(take_bytes(&mut from)?).ok()?;
            let is_good = |c: char| c.is_alphanumeric() || signs.contains(c);
            let fits = text.len() <= HOST_BYTES_MAX && !text.starts_with('-');
            (fits && text.chars().all(is_good)).then(|| text.to_owned())
        };
        let (user, host) = (word("._-+@")?, word("._-:%")?);
        let fits = from.rest().is_empty() && !host.is_empty();
        let (user, port) = (Some(user).filter(|user| !user.is_empty()), Some(port).filter(|port| *port != 0));
        fits.then_some(PlanHost { user, host, port })
    }
}

/// What a verb is called in a plan.
mod verb {
    pub(super) const SYNC: u8 = 1;
    pub(super) const CHECK: u8 = 2;
    pub(super) const REMOVE: u8 = 3;
    /// How much may be deleted.
    pub(super) const NOTHING: u8 = 0;
    pub(super) const ENTRIES: u8 = 1;
    pub(super) const PERCENT: u8 = 2;
}

/// Ways to compare, by their numbers in a plan.
const COMPARES: [Compare; 3] = [Compare::SizeAndTime, Compare::ContentInDoubt, Compare::Hash];

/// A verb as bytes; a copy is what a plan is about that does not say otherwise.
fn verb_bytes(verb: PlanVerb) -> Option<Vec<u8>> {
    let bytes = |kind: u8, flag: u8, (which, most): (u8, u64)| {
        Some([&[kind, flag, which][..], &most.to_le_bytes()].concat())
    };
    let nothing = (verb::NOTHING, 0);
    match verb {
        PlanVerb::Copy => None,
        PlanVerb::Sync { by_content, delete } => {
            let most = match delete {
                None => nothing,
                Some(DeleteMax::Entries(most)) => (verb::ENTRIES, most),
                Some(DeleteMax::Percent(most)) => (verb::PERCENT, most),
            };
            bytes(verb::SYNC, by_content.into(), most)
        }
        PlanVerb::Check { compare, extra } => {
            let number = COMPARES.iter().position(|c| *c == compare).unwrap_or_default();
            bytes(verb::CHECK, extra.into(), (number as u8, 0))
        }
        PlanVerb::Remove => bytes(verb::REMOVE, 0, nothing),
    }
}

/// The verb that bytes are.
fn verb_of(bytes: &[u8]) -> Option<PlanVerb> {
    let mut from = ByteReader::new(bytes);
    let (kind, flag, which, most) = (from.u8()?, from.u8()?, from.u8()?, from.u64()?);
    if !from.rest().is_empty() || flag > 1 {
        return None;
    }
    let verb = match kind {
        verb::SYNC => {
            let delete = match which {
                verb::NOTHING => None,
                verb::ENTRIES => Some(DeleteMax::Entries(most)),
                verb::PERCENT => Some(DeleteMax::Percent(most)),
                _ => return None,
            };
            PlanVerb::Sync { by_content: flag == 1, delete }
        }
        verb::CHECK => PlanVerb::Check { compare: *COMPARES.get(usize::from(which))?, extra: flag == 1 },
        verb::REMOVE => PlanVerb::Remove,
        _ => return None,
    };
    Some(verb)
}

/// The fields of a plan: a reader refuses one below 128 that it does not know and passes over others.
mod tag {
    pub(super) const VERSION: u8 = 1;
    pub(super) const SOURCE: u8 = 2;
    pub(super) const DESTINATION: u8 = 3;
    pub(super) const STAGE: u8 = 4;
    pub(super) const TOP: u8 = 5;
    pub(super) const PART_BYTES: u8 = 6;
    pub(super) const SHARDS: u8 = 7;
    pub(super) const VERB: u8 = 8;
    pub(super) const HOST: u8 = 9;
    pub(super) const SOURCE_HOST: u8 = 10;
    pub(super) const NUMBER: u8 = 11;
    /// One more than the last.
    pub(super) const END: usize = 12;
}

/// From this tag on a field that is not known is passed over.
const OPTIONAL_FROM: u8 = 128;

impl PlanHeader {
    /// The destination, if it is on another machine.
    pub(super) fn there(&self) -> Option<Address> {
        self.host.as_ref().map(|host| host.address(&self.destination))
    }

    /// The source, if it is on another machine.
    pub(super) fn from(&self) -> Option<Address> {
        self.source_host.as_ref().map(|host| host.address(&self.source))
    }

    /// The end that is on another machine.
    pub(super) fn far(&self) -> Option<FarEnd> {
        self.from().map(FarEnd::Source).or_else(|| self.there().map(FarEnd::Destination))
    }

    /// What the stage's name is made from: everything that makes this plan another one.
    pub(super) fn identity(&self) -> Digest {
        let nowhere = NameBuf::new(b"-").unwrap_or_else(|| self.stage.clone());
        *blake3::hash(&PlanHeader { stage: nowhere, ..self.clone() }.payload()).as_bytes()
    }

    fn payload(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut field = |tag: u8, bytes: &[u8]| {
            out.push(tag);
            put_bytes(&mut out, bytes);
        };
        field(tag::VERSION, &VERSION.to_le_bytes()); // [plan.version]
        field(tag::SOURCE, &self.source); // [plan.source]
        field(tag::DESTINATION, &self.destination); // [plan.destination]
        field(tag::STAGE, self.stage.bytes()); // [plan.stage]
        let mut top = Vec::new();
        self.top.put(&mut top);
        field(tag::TOP, &top); // [plan.top]
        field(tag::PART_BYTES, &self.part_bytes.to_le_bytes()); // [plan.part-bytes]
        let mut shards = Vec::new();
        for ShardTotals { digest, frames, entries, files, bytes } in &self.shards {
            shards.extend_from_slice(digest);
            shards.extend_from_slice(&frames.to_le_bytes());
            for number in [entries, files, bytes] {
                shards.extend_from_slice(&number.to_le_bytes());
            }
        }
        field(tag::SHARDS, &shards); // [plan.shards]
        if let Some(verb) = verb_bytes(self.verb) {
            field(tag::VERB, &verb); // [plan.verb]
        }
        if let Some(host) = &self.host {
            field(tag::HOST, &host.bytes()); // [plan.host]
        }
        if let Some(host) = &self.source_host {
            field(tag::SOURCE_HOST, &host.bytes()); // [plan.source-host]
        }
        if let Some(number) = &self.number {
            field(tag::NUMBER, number); // [plan.number]
        }
        out
    }

    /// The whole file, and the hash that stands for it.
    pub(super) fn encode(&self) -> (Vec<u8>, Digest) {
        let (mut writer, mut out) = (FrameWriter::new(FrameKind::Plan), Vec::new());
        // A plan of very many shards takes several frames.
        for piece in self.payload().chunks(FRAME_BYTES_MAX / 2) {
            writer.frame(piece, &mut out);
        }
        (out, writer.digest())
    }

    /// The plan that a whole file is, and the hash that stands for it.
    pub(super) fn decode(file: &[u8]) -> Result<(PlanHeader, Digest), Damage> {
        let (mut chain, mut payload) = (FrameChain::new(FrameKind::Plan), Vec::new());
        let mut rest = ByteReader::new(file);
        while !rest.rest().is_empty() {
            let head: [u8; FRAME_HEAD_BYTES] = rest.array().ok_or(DAMAGED)?;
            let piece = rest.take(FrameChain::length(&head)?).ok_or(DAMAGED)?;
            chain.take(&head, piece)?;
            payload.extend_from_slice(piece);
        }
        let header = PlanHeader::fields(&payload)?;
        Ok((header, chain.digest()))
    }

    fn fields(payload: &[u8]) -> Result<PlanHeader, Damage> {
        let mut from = ByteReader::new(payload);
        let mut known: [Option<&[u8]>; tag::END] = [None; tag::END];
        while let Some(tag) = from.u8() {
            let bytes = take_bytes(&mut from).ok_or(DAMAGED)?;
            match known.get_mut(usize::from(tag)) {
                Some(place) if tag > 0 => {
                    if place.replace(bytes).is_some() {
                        return Err(DAMAGED);
                    }
                }
                _ if tag >= OPTIONAL_FROM => {}
                _ => return Err(Damage(Reason::PlanOfOtherVersion)),
            }
        }
        let field = |tag: u8| known.get(usize::from(tag)).copied().flatten().ok_or(DAMAGED);
        if field(tag::VERSION)? != VERSION.to_le_bytes() {
            return Err(Damage(Reason::PlanOfOtherVersion));
        }
        let top = Version::take(&mut ByteReader::new(field(tag::TOP)?)).ok_or(DAMAGED)?;
        let part_bytes = ByteReader::new(field(tag::PART_BYTES)?).u64().ok_or(DAMAGED)?;
        let mut shards = Vec::new();
        let mut rest = ByteReader::new(field(tag::SHARDS)?);
        while !rest.rest().is_empty() {
            let mut shard = || -> Option<ShardTotals> {
                let (digest, frames) = (rest.array()?, rest.u32()?);
                let (entries, files, bytes) = (rest.u64()?, rest.u64()?, rest.u64()?);
                Some(ShardTotals { digest, frames, entries, files, bytes })
            };
            shards.push(shard().ok_or(DAMAGED)?);
        }
        let verb = match field(tag::VERB) {
            Ok(bytes) => verb_of(bytes).ok_or(Damage(Reason::PlanOfOtherVersion))?,
            Err(_) => PlanVerb::Copy,
        };
        let machine = |tag: u8| match field(tag) {
            Ok(bytes) => PlanHost::read(bytes).ok_or(DAMAGED).map(Some),
            Err(_) => Ok(None),
        };
        let (host, source_host) = (machine(tag::HOST)?, machine(tag::SOURCE_HOST)?);
        let number = match field(tag::NUMBER) {
            Ok(bytes) => Some(bytes.try_into().map_err(|_| DAMAGED)?),
            Err(_) => None,
        };
        let is_absolute = |path: &[u8]| path.first() == Some(&b'/') && !path.contains(&0);
        let (source, destination) = (field(tag::SOURCE)?.to_vec(), field(tag::DESTINATION)?.to_vec());
        let stage = NameBuf::new(field(tag::STAGE)?).ok_or(DAMAGED)?;
        let parts = part_bytes == 0 || part_bytes.is_power_of_two() && part_bytes >= FORMAT_BLOCK_BYTES;
        let count = shards.len();
        let many = count == 0 || count > SHARDS_MAX as usize;
        // Parts are put together in a tree without a name.
        let is_copy = verb == PlanVerb::Copy;
        let fits = match (&host, &source_host) {
            (None, None) => is_copy || part_bytes == 0,
            (Some(_), None) => verb != PlanVerb::Remove && part_bytes == 0,
            (None, Some(_)) => part_bytes == 0,
            (Some(_), Some(_)) => false,
        };
        // There it may be below the home directory.
        let is_place =
            |path: &[u8], host: &Option<PlanHost>| is_absolute(path) || host.is_some() && !path.contains(&0);
        // What is removed is both.
        let host_there = if verb == PlanVerb::Remove { &source_host } else { &host };
        let are_places = is_place(&source, &source_host) && is_place(&destination, host_there);
        if !are_places || !parts || many || !fits {
            return Err(DAMAGED);
        }
        Ok(PlanHeader {
            source,
            destination,
            stage,
            top,
            part_bytes,
            shards,
            verb,
            host,
            source_host,
            number,
        })
    }
}

// ---- entries ----

/// What is to be done for an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlannedAs {
    /// It is copied whole.
    Whole(Version),
    /// `bytes` from `at` on of a large file are.
    Part { of: Version, at: u64, bytes: u64 },
    /// It is a directory, which is made where something goes into it, and in the end.
    Directory(Version),
    /// It is a further name of the file whose first name this is, below the top; made in the end.
    Linked { of: Version, first: Vec<u8> },
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedEntry {
    pub(super) name: NameBuf,
    pub(super) what: PlannedAs,
}

impl PlannedEntry {
    /// Content that is copied for it.
    pub(super) fn bytes(&self) -> u64 {
        match &self.what {
            PlannedAs::Whole(v) if v.kind == Kind::File => v.size,
            PlannedAs::Part { bytes, .. } => *bytes,
            _ => 0,
        }
    }

    /// Whether a file is counted for it: each once.
    pub(super) fn counts(&self) -> bool {
        match &self.what {
            PlannedAs::Whole(v) => v.kind == Kind::File,
            PlannedAs::Part { at, .. } => *at == 0,
            _ => false,
        }
    }

    /// The version of the source that it is of.
    pub(super) fn version(&self) -> &Version {
        match &self.what {
            PlannedAs::Whole(v) | PlannedAs::Directory(v) => v,
            PlannedAs::Part { of, .. } | PlannedAs::Linked { of, .. } => of,
        }
    }
}

/// Some entries of one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedDir {
    /// Its path below the top.
    pub(super) path: Vec<u8>,
    pub(super) entries: Vec<PlannedEntry>,
}

/// What a record of a frame is: the directory of those that follow, or an entry.
mod record {
    pub(super) const DIRECTORY: u8 = 1;
    pub(super) const WHOLE: u8 = 2;
    pub(super) const PART: u8 = 3;
    pub(super) const SUBDIRECTORY: u8 = 4;
    pub(super) const LINKED: u8 = 5;
}

/// Makes frames of entries.
#[derive(Default)]
pub(super) struct EntriesFrame {
    payload: Vec<u8>,
    path: Option<Vec<u8>>,
    entries: u32,
    content: u64,
}

impl EntriesFrame {
    /// Adds an entry of the directory `path`. `true`: the frame is full.
    pub(super) fn add(&mut self, path: &[u8], entry: &PlannedEntry) -> bool {
        let out = &mut self.payload;
        if self.path.as_deref() != Some(path) {
            out.push(record::DIRECTORY); // [entries.directory]
            put_bytes(out, path);
            self.path = Some(path.to_vec());
        }
        match &entry.what {
            PlannedAs::Whole(version) => {
                out.push(record::WHOLE); // [entries.whole]
                put_bytes(out, entry.name.bytes());
                version.put(out);
            }
            PlannedAs::Part { of, at, bytes } => {
                out.push(record::PART); // [entries.part]
                put_bytes(out, entry.name.bytes());
                of.put(out);
                out.extend_from_slice(&at.to_le_bytes());
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            PlannedAs::Directory(version) => {
                out.push(record::SUBDIRECTORY); // [entries.subdirectory]
                put_bytes(out, entry.name.bytes());
                version.put(out);
            }
            PlannedAs::Linked { of, first } => {
                out.push(record::LINKED); // [entries.linked]
                put_bytes(out, entry.name.bytes());
                of.put(out);
                put_bytes(out, first);
            }
        }
        self.entries += 1;
        self.content = self.content.saturating_add(entry.bytes());
        self.entries >= FRAME_ENTRIES
            || self.payload.len() >= FRAME_BYTES
            || self.content >= FRAME_CONTENT_BYTES
    }

    /// The payload, if there is anything in it. The frame is empty afterwards.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let full = std::mem::take(self);
        (full.entries > 0).then_some(full.payload)
    }
}

/// The entries of a frame.
pub(super) fn entries_of(payload: &[u8]) -> Result<Vec<PlannedDir>, Damage> {
    let mut from = ByteReader::new(payload);
    let mut dirs: Vec<PlannedDir> = Vec::new();
    while let Some(kind) = from.u8() {
        let name = take_bytes(&mut from).ok_or(DAMAGED)?;
        if kind == record::DIRECTORY {
            if !is_path(name) {
                return Err(DAMAGED);
            }
            dirs.push(PlannedDir { path: name.to_vec(), entries: Vec::new() });
            continue;
        }
        let name = NameBuf::new(name).ok_or(DAMAGED)?;
        let of = Version::take(&mut from).ok_or(DAMAGED)?;
        let what = match kind {
            record::WHOLE if of.kind != Kind::Dir => PlannedAs::Whole(of),
            record::SUBDIRECTORY if of.kind == Kind::Dir => PlannedAs::Directory(of),
            record::PART if of.kind == Kind::File => {
                let (at, bytes) = (from.u64().ok_or(DAMAGED)?, from.u64().ok_or(DAMAGED)?);
                let end = at.checked_add(bytes).ok_or(DAMAGED)?;
                if bytes == 0 || end > of.size || !at.is_multiple_of(FORMAT_BLOCK_BYTES) {
                    return Err(DAMAGED);
                }
                PlannedAs::Part { of, at, bytes }
            }
            record::LINKED if of.kind != Kind::Dir => {
                let first = take_bytes(&mut from).ok_or(DAMAGED)?;
                if first.is_empty() || !is_path(first) {
                    return Err(DAMAGED);
                }
                PlannedAs::Linked { of, first: first.to_vec() }
            }
            _ => return Err(DAMAGED),
        };
        dirs.last_mut().ok_or(DAMAGED)?.entries.push(PlannedEntry { name, what });
    }
    if dirs.iter().any(|dir| dir.entries.is_empty()) { Err(DAMAGED) } else { Ok(dirs) }
}

// ---- results ----

/// What became of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LandedEntry {
    /// A file: its BLAKE3.
    File(Digest),
    /// A part of one: its chaining value.
    Part(Digest),
    /// It has no content.
    Other,
    /// It is made in the end, or taken away then.
    Later,
    /// It was brought there, compared or taken away.
    Done,
}

mod outcome {
    pub(super) const FILE: u8 = 1;
    pub(super) const PART: u8 = 2;
    pub(super) const OTHER: u8 = 3;
    pub(super) const LATER: u8 = 4;
    pub(super) const DONE: u8 = 5;
    /// The first frame of a result.
    pub(super) const BEGIN: u8 = 16;
    /// The last one.
    pub(super) const END: u8 = 17;
    /// One frame of entries.
    pub(super) const FRAME: u8 = 18;
}

/// What was done beside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ShardCounts {
    pub(super) files: u64,
    pub(super) others: u64,
    pub(super) bytes: u64,
    /// Attributes that could not be kept; differences that were found.
    pub(super) lost: u64,
}

impl ShardCounts {
    pub(super) fn add(&mut self, more: &ShardCounts) {
        self.files += more.files;
        self.others += more.others;
        self.bytes += more.bytes;
        self.lost += more.lost;
    }
}

/// What a frame of a result says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResultFrame {
    /// Of which plan it is.
    Begin { plan: Digest },
    /// What became of a frame of entries.
    Entries { index: u32, counts: ShardCounts, landed: Vec<LandedEntry> },
    /// Nothing follows.
    End,
}

impl ResultFrame {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            ResultFrame::Begin { plan } => {
                out.push(outcome::BEGIN); // [result.begin]
                out.extend_from_slice(plan);
            }
            ResultFrame::Entries { index, counts, landed } => {
                out.push(outcome::FRAME); // [result.frame]
                out.extend_from_slice(&index.to_le_bytes());
                for number in [counts.files, counts.others, counts.bytes, counts.lost] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                for one in landed {
                    match one {
                        LandedEntry::File(hash) => {
                            out.push(outcome::FILE); // [result.file]
                            out.extend_from_slice(hash);
                        }
                        LandedEntry::Part(value) => {
                            out.push(outcome::PART); // [result.part]
                            out.extend_from_slice(value);
                        }
                        LandedEntry::Other => out.push(outcome::OTHER), // [result.other]
                        LandedEntry::Later => out.push(outcome::LATER), // [result.later]
                        LandedEntry::Done => out.push(outcome::DONE),   // [result.done]
                    }
                }
            }
            ResultFrame::End => out.push(outcome::END), // [result.end]
        }
        out
    }

    pub(super) fn decode(payload: &[u8]) -> Result<ResultFrame, Damage> {
        let mut from = ByteReader::new(payload);
        let frame = match from.u8() {
            Some(outcome::BEGIN) => ResultFrame::Begin { plan: from.array().ok_or(DAMAGED)? },
            Some(outcome::END) => ResultFrame::End,
            Some(outcome::FRAME) => {
                let index = from.u32().ok_or(DAMAGED)?;
                let mut numbers = [0; 4];
                for number in &mut numbers {
                    *number = from.u64().ok_or(DAMAGED)?;
                }
                let [files, others, bytes, lost] = numbers;
                let mut landed = Vec::new();
                while let Some(kind) = from.u8() {
                    landed.push(match kind {
                        outcome::FILE => LandedEntry::File(from.array().ok_or(DAMAGED)?),
                        outcome::PART => LandedEntry::Part(from.array().ok_or(DAMAGED)?),
                        outcome::OTHER => LandedEntry::Other,
                        outcome::LATER => LandedEntry::Later,
                        outcome::DONE => LandedEntry::Done,
                        _ => return Err(DAMAGED),
                    });
                }
                ResultFrame::Entries { index, counts: ShardCounts { files, others, bytes, lost }, landed }
            }
            _ => return Err(DAMAGED),
        };
        if from.rest().is_empty() { Ok(frame) } else { Err(DAMAGED) }
    }
}

/// Whether `landed` is what became of `entry` by this verb.
pub(super) fn fits(verb: PlanVerb, entry: &PlannedEntry, landed: LandedEntry) -> bool {
    match &entry.what {
        PlannedAs::Whole(_) if verb != PlanVerb::Copy => landed == LandedEntry::Done,
        PlannedAs::Linked { .. } if verb == PlanVerb::Remove => landed == LandedEntry::Done,
        PlannedAs::Whole(version) if version.kind == Kind::File => matches!(landed, LandedEntry::File(_)),
        PlannedAs::Whole(_) => landed == LandedEntry::Other,
        PlannedAs::Part { .. } => matches!(landed, LandedEntry::Part(_)),
        PlannedAs::Directory(_) | PlannedAs::Linked { .. } => landed == LandedEntry::Later,
    }
}

/// Whether that is what became of all entries of a frame.
pub(super) fn all_fit(verb: PlanVerb, dirs: &[PlannedDir], landed: &[LandedEntry]) -> bool {
    let mut each = landed.iter();
    let does = |entry| each.next().is_some_and(|landed| fits(verb, entry, *landed));
    dirs.iter().flat_map(|dir| &dir.entries).all(does) && each.next().is_none()
}

/// Entrance for the fuzzer: any bytes as each kind of file, and what was understood says the same when it is written again.
#[cfg(fuzzing)]
pub fn fuzz(data: &[u8]) {
    if let Ok(header) = PlanHeader::fields(data) {
        let (file, digest) = header.encode();
        assert!(PlanHeader::decode(&file).is_ok_and(|(again, of)| again == header && of == digest));
    }
    let whole = PlanHeader::decode(data);
    assert!(whole.is_err() || data.len() > FRAME_HEAD_BYTES);
    if let Ok(dirs) = entries_of(data) {
        let mut frame = EntriesFrame::default();
        for dir in &dirs {
            for entry in &dir.entries {
                let _full = frame.add(&dir.path, entry);
            }
        }
        let again = frame.take().map(|payload| entries_of(&payload));
        // Two records of one directory that follow each other are one when they are written.
        let count = |dirs: &[PlannedDir]| dirs.iter().map(|dir| dir.entries.len()).sum::<usize>();
        let same = again.is_none_or(|again| again.is_ok_and(|again| count(&again) == count(&dirs)));
        assert!(same);
    }
    if let Ok(frame) = ResultFrame::decode(data) {
        assert_eq!(ResultFrame::decode(&frame.encode()), Ok(frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(kind: Kind, size: u64) -> Version {
        let time = Time { sec: -3, nsec: 7 };
        Version { kind, ino: 9, size, mtime: time, ctime: Time { sec: 4, nsec: 999_999_999 } }
    }

    fn name(bytes: &[u8]) -> NameBuf {
        NameBuf::new(bytes).unwrap()
    }

    fn header() -> PlanHeader {
        PlanHeader {
            source: b"/a".to_vec(),
            destination: b"/b\xff".to_vec(),
            stage: name(b".bcmr-x"),
            top: version(Kind::Dir, 0),
            part_bytes: 64 << 20,
            shards: vec![
                ShardTotals { digest: [1; 32], frames: 2, entries: 3, files: 4, bytes: 5 },
                ShardTotals::default(),
            ],
            verb: PlanVerb::Copy,
            host: None,
            source_host: None,
            number: Some([5; 16]),
        }
    }

    /// What shards fill is one plan's alone. A plan of an earlier version keeps the identity that it had.
    #[test]
    fn each_plan_is_another_one() {
        let of = |number| PlanHeader { number, ..header() };
        for number in [None, Some([5; 16]), Some([6; 16])] {
            let (file, digest) = of(number).encode();
            assert_eq!(PlanHeader::decode(&file), Ok((of(number), digest)));
        }
        assert_ne!(of(Some([5; 16])).identity(), of(Some([6; 16])).identity());
        assert_ne!(of(Some([5; 16])).identity(), of(None).identity());
        let earlier = blake3::hash(&PlanHeader { stage: name(b"-"), ..of(None) }.payload());
        assert_eq!(of(None).identity(), *earlier.as_bytes());
        let mut long = of(None).payload();
        long.push(tag::NUMBER);
        put_bytes(&mut long, &[5; 17]);
        assert_eq!(PlanHeader::fields(&long), Err(DAMAGED));
    }

    #[test]
    fn a_plan_says_what_becomes_of_what_it_names() {
        let sync = |by_content, delete| PlanVerb::Sync { by_content, delete };
        let check = |compare, extra| PlanVerb::Check { compare, extra };
        for verb in [
            sync(false, None),
            sync(true, Some(DeleteMax::Entries(u64::MAX))),
            sync(false, Some(DeleteMax::Percent(25))),
            check(Compare::SizeAndTime, false),
            check(Compare::Hash, true),
            PlanVerb::Remove,
        ] {
            let header = PlanHeader { verb, part_bytes: 0, ..header() };
            let (file, digest) = header.encode();
            assert_eq!(PlanHeader::decode(&file), Ok((header.clone(), digest)));
            // Parts are for copies alone.
            assert!(PlanHeader::decode(&PlanHeader { part_bytes: 64 << 20, ..header }.encode().0).is_err());
        }
        for bad in [
            &[1, 0, 0][..],
            &[4; 11],
            &[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[1; 12],
            &[2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(verb_of(bad), None, "{bad:?}");
        }
    }

    /// L1: what a plan says of a machine is no option to ssh, and nothing that a shell obeys.
    #[test]
    fn a_machine_in_a_plan_is_a_word() {
        let of = |user: Option<&str>, host: &str| {
            let host = PlanHost { user: user.map(str::to_owned), host: host.to_owned(), port: Some(22) };
            let header =
                PlanHeader { host: Some(host), part_bytes: 0, destination: b"d".to_vec(), ..header() };
            assert_eq!(header.there().map(|there| there.path), Some("d".into()));
            PlanHeader::decode(&header.encode().0).map(|(read, _)| assert!(read == header))
        };
        for (user, host) in [(None, "h"), (Some("me@domain"), "a.b-c_d"), (Some("m+e"), "fe80::1%eth0")] {
            assert_eq!(of(user, host), Ok(()), "{host}");
        }
        let long = "h".repeat(256);
        for host in ["", "-oProxyCommand=x", "a b", "a;b", "$a", "a/b", "a\nb", "h,i", &long] {
            assert!(of(None, host).is_err() && (host.is_empty() || of(Some(host), "h").is_err()), "{host}");
        }
    }

    /// One end of a copy may be on another machine, and its path is as that machine means it.
    #[test]
    fn one_end_of_a_plan_may_be_elsewhere() {
        let machine = || Some(PlanHost { user: None, host: "h".into(), port: None });
        let read = |header: &PlanHeader| PlanHeader::decode(&header.encode().0).map(|(read, _)| read);
        let from = PlanHeader { source_host: machine(), source: b"s".to_vec(), part_bytes: 0, ..header() };
        assert_eq!(read(&from), Ok(from.clone()));
        assert!(matches!(from.far(), Some(FarEnd::Source(at)) if *at.path == *std::path::Path::new("s")));
        let compare = crate::policy::Compare::Hash;
        for verb in [
            PlanVerb::Sync { by_content: false, delete: None },
            PlanVerb::Check { compare, extra: true },
            PlanVerb::Remove,
        ] {
            let of = PlanHeader { verb, ..from.clone() };
            assert_eq!(read(&of), Ok(of.clone()), "{verb:?}");
            let to = PlanHeader { verb, host: machine(), part_bytes: 0, ..header() };
            let goes_there = verb != PlanVerb::Remove;
            assert_eq!(read(&to), if goes_there { Ok(to.clone()) } else { Err(DAMAGED) }, "{verb:?}");
        }
        let to = PlanHeader { host: machine(), part_bytes: 0, ..header() };
        assert!(matches!(read(&to).unwrap().far(), Some(FarEnd::Destination(_))));
        for bad in [
            PlanHeader { host: machine(), ..from.clone() },
            PlanHeader { part_bytes: 64 << 20, ..from.clone() },
            PlanHeader { source_host: None, ..from.clone() },
            PlanHeader { destination: b"d".to_vec(), ..from.clone() },
            PlanHeader { source: b"s\0".to_vec(), ..from },
            PlanHeader { verb: PlanVerb::Remove, ..to },
        ] {
            assert_eq!(read(&bad), Err(DAMAGED), "{bad:?}");
        }
    }

    /// A plan of a newer version: what may be passed over is, and the rest is refused with a word on why.
    #[test]
    fn a_plan_of_another_version_is_told_from_a_damaged_one() {
        let with = |tag: u8| {
            let mut payload = header().payload();
            payload.push(tag);
            put_bytes(&mut payload, b"later");
            let (mut writer, mut file) = (FrameWriter::new(FrameKind::Plan), Vec::new());
            writer.frame(&payload, &mut file);
            PlanHeader::decode(&file).map(|(header, _)| header)
        };
        assert_eq!(with(OPTIONAL_FROM), Ok(header()));
        for tag in [0, 12, OPTIONAL_FROM - 1] {
            assert_eq!(with(tag), Err(Damage(Reason::PlanOfOtherVersion)), "{tag}");
        }
    }

    #[test]
    fn a_result_fits_its_entry_and_verb() {
        let entry = |what| PlannedEntry { name: name(b"n"), what };
        let file = entry(PlannedAs::Whole(version(Kind::File, 3)));
        let link = entry(PlannedAs::Whole(version(Kind::Link, 3)));
        let dir = entry(PlannedAs::Directory(version(Kind::Dir, 0)));
        let further = entry(PlannedAs::Linked { of: version(Kind::File, 3), first: b"a".to_vec() });
        let part = entry(PlannedAs::Part { of: version(Kind::File, 9), at: 0, bytes: 9 });
        let (hash, value) = (LandedEntry::File([1; 32]), LandedEntry::Part([2; 32]));
        let all = [hash, value, LandedEntry::Other, LandedEntry::Later, LandedEntry::Done];
        for (verb, entry, good) in [
            (PlanVerb::Copy, &file, hash),
            (PlanVerb::Copy, &link, LandedEntry::Other),
            (PlanVerb::Copy, &dir, LandedEntry::Later),
            (PlanVerb::Copy, &further, LandedEntry::Later),
            (PlanVerb::Copy, &part, value),
            (PlanVerb::Remove, &file, LandedEntry::Done),
            (PlanVerb::Remove, &further, LandedEntry::Done),
            (PlanVerb::Remove, &dir, LandedEntry::Later),
            (PlanVerb::Sync { by_content: true, delete: None }, &file, LandedEntry::Done),
            (PlanVerb::Sync { by_content: true, delete: None }, &further, LandedEntry::Later),
        ] {
            for landed in all {
                assert_eq!(fits(verb, entry, landed), landed == good, "{verb:?} {entry:?} {landed:?}");
            }
        }
    }

    fn entries() -> Vec<PlannedDir> {
        let entry = |n: &[u8], what| PlannedEntry { name: name(n), what };
        let big = version(Kind::File, 5 * FORMAT_BLOCK_BYTES);
        vec![
            PlannedDir {
                path: Vec::new(),
                entries: vec![
                    entry(b"a", PlannedAs::Whole(version(Kind::File, 3))),
                    entry(b"d", PlannedAs::Directory(version(Kind::Dir, 0))),
                    entry(b"l", PlannedAs::Whole(version(Kind::Link, 2))),
                ],
            },
            PlannedDir {
                path: b"d/e\n".to_vec(),
                entries: vec![
                    entry(b"big", PlannedAs::Part { of: big, at: FORMAT_BLOCK_BYTES, bytes: 7 }),
                    entry(b"z", PlannedAs::Linked { of: version(Kind::File, 3), first: b"a".to_vec() }),
                ],
            },
        ]
    }

    fn framed(dirs: &[PlannedDir]) -> Vec<u8> {
        let mut frame = EntriesFrame::default();
        for dir in dirs {
            for entry in &dir.entries {
                assert!(!frame.add(&dir.path, entry));
            }
        }
        frame.take().unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let (file, digest) = header().encode();
        assert_eq!(PlanHeader::decode(&file), Ok((header(), digest)));
        assert_eq!(entries_of(&framed(&entries())), Ok(entries()));
        let counts = ShardCounts { files: 1, others: 2, bytes: 3, lost: 4 };
        let landed = vec![
            LandedEntry::File([3; 32]),
            LandedEntry::Other,
            LandedEntry::Later,
            LandedEntry::Part([4; 32]),
            LandedEntry::Done,
        ];
        for frame in [
            ResultFrame::Begin { plan: [7; 32] },
            ResultFrame::Entries { index: 5, counts, landed },
            ResultFrame::End,
        ] {
            assert_eq!(ResultFrame::decode(&frame.encode()), Ok(frame));
        }
    }

    /// Every byte of a plan that is another one is noticed, and so is every byte that is missing at its end.
    #[test]
    fn a_plan_with_any_byte_changed_is_refused() {
        let (file, _) = header().encode();
        for at in 0..file.len() {
            let mut bad = file.clone();
            bad[at] ^= 0x20;
            assert!(PlanHeader::decode(&bad).is_err(), "byte {at}");
            assert!(PlanHeader::decode(&file[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_frame_of_elsewhere_is_refused() {
        let (mut writer, mut out) = (FrameWriter::new(FrameKind::Entries { shard: 3 }), Vec::new());
        writer.frame(b"one", &mut out);
        let read = |chain| {
            let mut rest = ByteReader::new(&out);
            let head = rest.array().unwrap();
            FrameChain::new(chain).take(&head, rest.rest())
        };
        assert_eq!(read(FrameKind::Entries { shard: 3 }), Ok(()));
        for other in [FrameKind::Entries { shard: 4 }, FrameKind::Result { shard: 3 }, FrameKind::Plan] {
            assert!(read(other).is_err(), "{other:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let good = entries();
        let with = |what| {
            let mut dirs = good.clone();
            dirs[0].entries[0].what = what;
            entries_of(&framed(&dirs))
        };
        let big = version(Kind::File, 2 * FORMAT_BLOCK_BYTES);
        assert!(with(PlannedAs::Part { of: big, at: 0, bytes: 2 * FORMAT_BLOCK_BYTES }).is_ok());
        for bad in [
            PlannedAs::Whole(version(Kind::Dir, 0)),
            PlannedAs::Directory(version(Kind::File, 0)),
            PlannedAs::Part { of: big, at: 0, bytes: 0 },
            PlannedAs::Part { of: big, at: 5, bytes: 1 },
            PlannedAs::Part { of: big, at: FORMAT_BLOCK_BYTES, bytes: FORMAT_BLOCK_BYTES + 1 },
            PlannedAs::Part { of: version(Kind::Link, 1), at: 0, bytes: 1 },
            PlannedAs::Linked { of: big, first: b"../x".to_vec() },
            PlannedAs::Linked { of: big, first: b"/x".to_vec() },
            PlannedAs::Linked { of: big, first: Vec::new() },
        ] {
            assert!(with(bad.clone()).is_err(), "{bad:?}");
        }
        for path in [&b"/a"[..], b"a/", b"a//b", b"..", b"a/./b"] {
            let mut dirs = good.clone();
            dirs[1].path = path.to_vec();
            assert!(entries_of(&framed(&dirs)).is_err(), "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn nonsense_is_refused_and_never_a_panic(bytes: Vec<u8>) {
            prop_assert!(PlanHeader::decode(&bytes).is_err());
            let _dirs = entries_of(&bytes);
            if let Ok(frame) = ResultFrame::decode(&bytes) {
                prop_assert_eq!(frame.encode(), bytes);
            }
        }
    }
}
