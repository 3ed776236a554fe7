//! One transfer at its sender: what was agreed on, the schedule, the streams, and the directories that are open.
//!
//! Must not know how the tree is walked, nor how a file is read.

use crate::accounts::Accounts;
use crate::codec::Effort;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::event::{Cancel, nanos};
use crate::policy::{Collide, CopyPolicy};
use crate::pulse::Pulse;
use crate::remote::Compress;
use crate::sender::filter::Filter;
use crate::sender::item::EntryAttrs;
use crate::sender::moved::MovedDirs;
use crate::sender::naming::OwnerNames;
use crate::sender::out::{FilePart, Out, SendObserver};
use crate::sender::pace::{Pace, PackTime, Sent};
use crate::sender::packers::Packers;
use crate::sender::place::{AnnouncedDir, Handles};
use crate::sender::repeats::{BatchContents, SentContents};
use crate::sender::schedule::{MessageRules, Schedule, StopReason};
use crate::sender::walk::SourceDir;
use crate::trouble::TroubleBuf;
use bcmr_wire::message::{Codec, Message};
use fastcopy::clock::thread_time;
use fastcopy::dir::Name;
use fastcopy::meta::Info;
use fastcopy::xattr::XattrBuffer;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// How it is sent.
pub(crate) struct How {
    /// Tells this machine apart from others.
    pub(crate) origin: u64,
    /// Without hashes.
    pub(crate) fast: bool,
    /// Packing; only what both sides have.
    pub(crate) compress: Compress,
    /// Pieces that follow one another are packed as one frame; only when both sides know how.
    pub(crate) frames: bool,
    /// The receiver's store may be asked; only when both sides have it.
    pub(crate) dedup: bool,
    /// The receiver may tell of what it has of a file; only when both sides know how.
    pub(crate) delta: bool,
    /// Entries of batches go in columns, packed; only when both sides know how.
    pub(crate) packed: bool,
    /// The receiver may ask for parts of small files; only when both sides know how.
    pub(crate) parts: bool,
    /// Of a content that was sent before its hash is enough; only when both sides know how.
    pub(crate) repeats: bool,
    /// The receiver is told what only the sender can tell to be left out; only when both sides know how.
    pub(crate) names_left_out: bool,
    /// The two sides are compared: the side that compares says itself what a copy would not make.
    pub(crate) compares: bool,
    /// Whether symbolic links that are not followed are sent.
    pub(crate) links: Links,
    /// Where the names of owners are looked up; only when both sides know what to do with them.
    pub(crate) accounts: Option<&'static dyn Accounts>,
    /// Nothing had the name that the one operand will get: all in it will be wanted, unless something is there by then.
    pub(crate) expects_new: bool,
}

/// What becomes of symbolic links that are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// They are sent as what they are.
    Sent,
    /// Each is refused by name: they were to be followed, and nothing is followed here.
    Refused,
}

impl Links {
    /// Why a link is refused.
    pub(crate) const NOTE: Reason = Reason::LinkAtConfinedServer;
}

/// Everything that sending needs.
pub(crate) struct Push<'a> {
    pub(crate) policy: &'a CopyPolicy,
    pub(crate) how: How,
    pub(crate) observer: &'a dyn SendObserver,
    pub(crate) cancel: &'a Cancel,
    pub(crate) pulse: &'a Pulse,
    /// Stream 0 first, and at least that one.
    pub(crate) outs: &'a [&'a dyn Out],
}

/// What a thread keeps for itself.
#[derive(Default)]
pub(super) struct WorkerBuffers {
    pub(super) attrs: XattrBuffer,
    /// Content before it is packed.
    pub(super) raw: Vec<u8>,
    /// What of it may come again.
    pub(super) contents: BatchContents,
    /// The stream it sends on, where it may choose.
    pub(super) stream: usize,
}

/// Something on its way to a stream.
pub(super) enum PreparedFrame {
    Frame { frame: Vec<u8>, raw: usize, packed: PackTime },
    Part(FilePart),
}

/// One transfer, shared by all its threads.
pub(super) struct Sending<'a> {
    pub(super) push: &'a Push<'a>,
    pub(super) filter: Filter,
    pub(super) schedule: Schedule<'a>,
    pub(super) handles: Handles,
    /// What a move may have to take away.
    pub(super) moved: MovedDirs,
    pace: Option<Mutex<Pace>>,
    pub(super) packers: Packers,
    pub(super) sent_contents: SentContents,
    owners: OwnerNames,
    /// Offers go out in the order of their numbers.
    pub(super) offers: Mutex<()>,
    began: Instant,
    found_items: AtomicU64,
    found_bytes: AtomicU64,
    /// A name that the filter leaves out was met.
    has_left_out: AtomicBool,
}

impl<'a> Sending<'a> {
    pub(super) fn new(push: &'a Push<'a>) -> Result<Sending<'a>> {
        let streams = push.outs.len();
        let pace = || {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            Mutex::new(Pace::new(threads(streams).min(processors), streams, 0))
        };
        let asks = push.policy.collide == Collide::Ask;
        let How { fast, dedup, delta, parts, .. } = push.how;
        let agreed = MessageRules { asks, hashed: !fast, dedup, delta, parts };
        Ok(Sending {
            push,
            filter: Filter::new(&push.policy.filter)?,
            schedule: Schedule::new(streams, push.pulse, agreed),
            handles: Handles::new(),
            moved: MovedDirs::default(),
            pace: (push.how.compress == Compress::Auto).then(pace),
            packers: Packers::default(),
            sent_contents: SentContents::new(push.how.repeats && !push.how.fast),
            owners: OwnerNames::new(push.how.accounts, &push.policy.preserve, streams),
            offers: Mutex::new(()),
            began: Instant::now(),
            found_items: AtomicU64::new(0),
            found_bytes: AtomicU64::new(0),
            has_left_out: AtomicBool::new(false),
        })
    }

    /// Whether no new work is to be taken up.
    pub(super) fn stopped(&self) -> bool {
        if self.push.cancel.is_set() {
            self.schedule.stop(StopReason::Cancelled);
            return true;
        }
        !self.schedule.is_running()
    }

    /// An item failed here; the others go on.
    pub(super) fn fail(&self, place: Option<&AnnouncedDir>, error: Error) -> Result<()> {
        if let Some(place) = place {
            place.mark_incomplete();
        }
        self.push.observer.failed(&error);
        self.send(&Message::Trouble(TroubleBuf::of(&error).trouble()))
    }

    /// Tells that the filter leaves a name out.
    pub(super) fn left_out(&self, place: Option<&AnnouncedDir>, src: &SourceDir, name: Name<'_>) {
        // A dry run, a comparison and a mirror leave out the same on the other side. What only this side can tell to be left
        // out (by its size or time, by rules in its tree, as what it is) is named; without that the listing is incomplete, and
        // nothing is deleted for it (M2).
        let (policy, is_mirror) = (self.push.policy, self.push.policy.mirror.is_on());
        let by_name = !policy.filter.asks_tree() && !policy.filter.asks_file();
        let names_it = self.push.how.names_left_out;
        let is_named = |place: &AnnouncedDir| {
            let names = vec![name.bytes()];
            names_it && self.send(&Message::LeftOut { dir: place.id, names }).is_ok()
        };
        match place {
            None => {}
            Some(place) if is_mirror && by_name => {
                // M1: a source of which all is left out is not empty. One name says so.
                let is_first = names_it && policy.mirror.deletes() && !self.has_left_out.swap(true, Relaxed);
                if (is_first || self.is_out_as_its_kind(src, name)) && !is_named(place) {
                    place.mark_incomplete();
                }
            }
            // What is compared counts as had if the source has something of its name.
            Some(place) if policy.dry_run && !is_mirror => {
                let _told = by_name && self.is_out_as_its_kind(src, name) && is_named(place);
            }
            Some(place) => {
                let is_known = is_mirror && is_named(place) || policy.dry_run;
                if !is_known {
                    place.mark_incomplete();
                }
            }
        }
        self.push.observer.excluded(&|| src.node.join(name));
    }

    /// Whether a name is left out only as what it is, a directory or something else, so that the other side may not leave out what
    /// has the name there.
    fn is_out_as_its_kind(&self, src: &SourceDir, name: Name<'_>) -> bool {
        src.excludes(name, true, &self.filter) != src.excludes(name, false, &self.filter)
    }

    /// One thing more was met, with so many bytes of content.
    pub(super) fn count_found(&self, bytes: u64) {
        self.found_items.fetch_add(1, Relaxed);
        self.found_bytes.fetch_add(bytes, Relaxed);
    }

    /// Sends what was met so far.
    pub(super) fn send_found(&self, last: bool) -> Result<()> {
        let (items, bytes) = (self.found_items.load(Relaxed), self.found_bytes.load(Relaxed));
        self.push.observer.found(items, bytes, last);
        self.send(&Message::Found { items, bytes, last })
    }

    // ---- streams ----

    /// One message on a stream. That it cannot be encoded is a fault of this program, and the end.
    pub(super) fn send_on(&self, stream: usize, message: &Message<'_>) -> Result<()> {
        let mut frame = self.room(stream, 0);
        message.encode(&mut frame).map_err(|e| not_encoded(&e))?;
        self.send_frames(stream, frame)
    }

    /// Tells on a stream who owns entries that are about to be sent there.
    pub(super) fn tell_owners<'e>(
        &self,
        stream: usize,
        entries: impl Iterator<Item = (&'e Info, &'e EntryAttrs)>,
    ) -> Result<()> {
        self.owners.tell(stream, entries, |name| self.send_on(stream, name))
    }

    /// On stream 0, where order matters.
    pub(super) fn send(&self, message: &Message<'_>) -> Result<()> {
        self.send_on(0, message)
    }

    pub(super) fn out(&self, stream: usize) -> Result<&'a dyn Out> {
        let out = self.push.outs.get(stream).or(self.push.outs.first()).copied();
        out.ok_or_else(|| Error::ours(Code::Io, Op::Send, "", Reason::NoStream))
    }

    pub(super) fn room(&self, stream: usize, bytes: usize) -> Vec<u8> {
        self.out(stream).map(|out| out.room(bytes)).unwrap_or_default()
    }

    fn send_frames(&self, stream: usize, frames: Vec<u8>) -> Result<()> {
        self.out(stream)?.send(frames)
    }

    /// Sends what was prepared, and takes notice of what it cost.
    pub(super) fn send_prepared(&self, stream: usize, prepared: PreparedFrame) -> Result<()> {
        match prepared {
            PreparedFrame::Frame { frame, raw, packed } => {
                let (raw, wire) = (raw as u64, frame.len() as u64);
                let sample = Sent { raw, wire, packed, wait_ns: 0 };
                self.paced(sample, || self.send_frames(stream, frame))
            }
            PreparedFrame::Part(part) => {
                let sample = Sent { raw: part.bytes, wire: part.bytes, ..Sent::default() };
                self.paced(sample, || self.out(stream)?.send_file(part))
            }
        }
    }

    fn paced(&self, sample: Sent, send: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.pace.is_none() {
            return send();
        }
        let before = self.now_ns();
        let sent = send();
        let now = self.now_ns();
        let sample = Sent { wait_ns: now.saturating_sub(before), ..sample };
        self.with_pace(|pace| pace.sent(sample, now));
        sent
    }

    /// The other side tells what has landed there.
    pub(super) fn landed(&self, bytes: u64) {
        let now = self.now_ns();
        self.with_pace(|pace| pace.landed(bytes, now));
    }

    /// So much of what it will tell was there before.
    pub(super) fn there(&self, bytes: u64) {
        self.with_pace(|pace| pace.there(bytes));
    }

    fn with_pace(&self, tell: impl FnOnce(&mut Pace)) {
        if let Some(pace) = &self.pace {
            tell(&mut pace.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Waits for a turn, sends what was kept back, and lets the next one begin.
    pub(super) fn end_turn(&self, stream: usize, turn: u64, held: Vec<PreparedFrame>) -> Result<()> {
        if !self.schedule.await_turn(stream, turn) {
            return Ok(());
        }
        let sent = held.into_iter().try_for_each(|prepared| self.send_prepared(stream, prepared));
        self.schedule.end_turn(stream);
        sent
    }

    fn now_ns(&self) -> u64 {
        nanos(self.began.elapsed())
    }

    /// How entries are packed: they are few bytes beside content, and worth it over any link.
    pub(super) fn entries_codec(&self) -> Codec {
        match self.push.how.compress {
            Compress::None => Codec::Raw,
            Compress::Lz4 => Codec::Lz4,
            Compress::Zstd | Compress::Auto => Codec::Zstd,
        }
    }

    /// How content is packed right now.
    pub(super) fn codec(&self) -> (Codec, Effort) {
        let now = |pace: &Mutex<Pace>| pace.lock().unwrap_or_else(PoisonError::into_inner).packs();
        match self.push.how.compress {
            Compress::Lz4 => (Codec::Lz4, Effort::Quick),
            Compress::Zstd => (Codec::Zstd, Effort::Quick),
            Compress::None => (Codec::Raw, Effort::Quick),
            Compress::Auto => match self.pace.as_ref().and_then(now) {
                Some(effort) => (Codec::Zstd, effort),
                None => (Codec::Raw, Effort::Quick),
            },
        }
    }
}

/// Packs, and says how long that took.
pub(super) fn timed<T>(effort: Effort, pack: impl FnOnce() -> T) -> (T, PackTime) {
    let (began, before) = (Instant::now(), thread_time());
    let packed = pack();
    let (time, worked) = (began.elapsed(), thread_time().saturating_sub(before));
    // 0 would be that it was not tried.
    (packed, PackTime { effort, ns: nanos(time).max(1), worked_ns: nanos(worked) })
}

/// Streams up to which two threads work for each: while one waits for the stream, the other reads and hashes.
const STREAMS_OF_TWO: usize = 3;

/// How many threads work for so many streams. Each may hold a block that waits for its turn; over many streams there is
/// always one that has time.
pub(super) fn threads(streams: usize) -> usize {
    if streams <= STREAMS_OF_TWO { streams * 2 } else { streams + 1 }
}

/// A message that its own rules do not allow: a fault of this program.
pub(super) fn not_encoded(e: &dyn std::fmt::Display) -> Error {
    Error::ours(Code::Io, Op::Send, "", e.to_string())
}
