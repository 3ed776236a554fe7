//! The contents of small files: many in one message, each with its hash.
//!
//! Must not know whether a content was wanted or goes along unasked.

use crate::blocks::LARGE_BYTES_MIN;
use crate::chunks::{ChunkIndex, Chunking, MatchPlace, find};
use crate::codec::Effort;
use crate::error::{Code, Error, Op, Result};
use crate::sender::item::Item;
use crate::sender::pace::PackTime;
use crate::sender::place::{AnnouncedDir, DirReply};
use crate::sender::repeats::BatchContents;
use crate::sender::schedule::{SentBatch, WantedOf};
use crate::sender::sending::{PreparedFrame, Sending, WorkerBuffers, not_encoded, timed};
use crate::sender::walk::SourceDir;
use crate::trouble::TroubleBuf;
use bcmr_wire::limits::{CONTENTS_BYTES_MAX, RUNS_MAX};
use bcmr_wire::message::{Codec, Run};
use bcmr_wire::{codec, contents, frame};
use fastcopy::dir::NameBuf;
use fastcopy::meta::{Info, Kind};
use fastcopy::read_write::{read_append, read_expected};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Contents of one batch: files that have grown since they were announced may not make it more.
const BATCH_BYTES_MAX: usize = CONTENTS_BYTES_MAX - (256 << 10);

/// What became of a file while it was read.
pub(super) enum ReadOutcome {
    /// So many bytes were read, and it did not change.
    Whole(u64),
    /// The same; but as this content was sent before, only its hash was appended.
    Repeated,
    /// It did.
    Changed,
}

/// How a file is read.
pub(super) struct Manner<'m> {
    /// How much of it is sent.
    pub(super) of: &'m WantedOf,
    /// What one reading gives is all there is.
    pub(super) size_unreliable: bool,
}

/// Reads small files of one transfer and sends what is wanted of them.
pub(super) struct ContentSender<'s, 'a>(pub(super) &'s Sending<'a>);

impl ContentSender<'_, '_> {
    /// Sends what is wanted of a batch.
    pub(super) fn send(
        &self,
        buffers: &mut WorkerBuffers,
        batch: &SentBatch,
        wanted: &[(usize, WantedOf)],
    ) -> Result<()> {
        let mut dir: Option<Arc<SourceDir>> = None;
        let mut raw = std::mem::take(&mut buffers.raw);
        raw.clear();
        buffers.contents.begin(stream_for(buffers, &batch.place));
        for (index, of) in wanted {
            let Some(item) = batch.items.get(*index) else { continue };
            if self.0.stopped() {
                buffers.raw = raw;
                return Ok(());
            }
            let mark = raw.len();
            let own = &mut buffers.contents;
            let mut read = |raw: &mut Vec<u8>| match &dir {
                Some(dir) => self.wanted(&batch.place, dir, (item, of), own, raw),
                None => self.0.handles.get(&batch.place).and_then(|opened| {
                    let outcome = self.wanted(&batch.place, &opened, (item, of), own, raw);
                    dir = Some(opened);
                    outcome
                }),
            };
            let outcome = match read(&mut raw) {
                // Once more; the writer may be done.
                Ok(ReadOutcome::Changed) => {
                    raw.truncate(mark);
                    read(&mut raw)
                }
                other => other,
            };
            match outcome {
                Ok(ReadOutcome::Whole(_)) => {}
                Ok(ReadOutcome::Repeated) => self.0.schedule.gave_hash(batch.id, *index),
                Ok(ReadOutcome::Changed) => {
                    raw.truncate(mark);
                    contents::push_changed(&mut raw);
                }
                Err(e) => {
                    raw.truncate(mark);
                    push_unreadable(&e, &mut raw);
                }
            }
        }
        self.send_raw(buffers, batch, &raw)?;
        buffers.raw = raw;
        Ok(())
    }

    fn send_raw(&self, buffers: &mut WorkerBuffers, batch: &SentBatch, raw: &[u8]) -> Result<()> {
        let stream = stream_for(buffers, &batch.place);
        let mut frame = self.0.room(stream, raw.len());
        let (codec, effort) = self.0.codec();
        let mut mark = codec::begin_contents(batch.id, codec, &mut frame);
        let mut took = PackTime::default();
        if codec != Codec::Raw {
            let is_packed;
            (is_packed, took) = pack(self.0, (codec, effort), raw, &mut frame)?;
            if !is_packed {
                frame.truncate(mark);
                mark = codec::begin_contents(batch.id, Codec::Raw, &mut frame);
                frame.extend_from_slice(raw);
            }
        } else {
            frame.extend_from_slice(raw);
        }
        frame::finish(&mut frame, mark).map_err(|e| not_encoded(&e))?;
        self.0.send_prepared(stream, PreparedFrame::Frame { frame, raw: raw.len(), packed: took })?;
        self.0.sent_contents.add(&mut buffers.contents, stream);
        Ok(())
    }

    /// Reads one that was wanted, and appends it.
    fn wanted(
        &self,
        place: &AnnouncedDir,
        dir: &SourceDir,
        (item, of): (&Item, &WantedOf),
        batch: &mut BatchContents,
        raw: &mut Vec<u8>,
    ) -> Result<ReadOutcome> {
        let (fd, info) = self.open(dir, &item.name, place.follow)?;
        let fits = raw.len() as u64 + info.size <= BATCH_BYTES_MAX as u64;
        if info.kind != Kind::File || !self.is_still(&item.info, &info) || !fits {
            return Ok(ReadOutcome::Changed);
        }
        // The receiver takes no other size than the announced one.
        if !place.size_unreliable && info.size != item.size {
            return Ok(ReadOutcome::Changed);
        }
        let size_unreliable = place.size_unreliable;
        match self.read(dir, &item.name, (&fd, &info), &Manner { of, size_unreliable }, batch, raw)? {
            ReadOutcome::Whole(bytes) if bytes != item.size => Ok(ReadOutcome::Changed),
            outcome => Ok(outcome),
        }
    }

    /// Whether what was announced of a file still describes it well enough for its content to go under that description. A
    /// file that is being written to goes on to be the same file with the same owner and permissions. Attributes do not
    /// show when they change, so where they are kept nothing may have changed at all.
    fn is_still(&self, announced: &Info, now: &Info) -> bool {
        let preserve = &self.0.push.policy.preserve;
        if preserve.acl || preserve.xattr {
            return announced.same_content(now);
        }
        announced.id() == now.id()
            && announced.mode == now.mode
            && announced.uid == now.uid
            && announced.gid == now.gid
    }

    /// Opens a file; once more with fewer directories open, when descriptors have run out.
    pub(super) fn open(&self, dir: &SourceDir, name: &NameBuf, follow: bool) -> Result<(OwnedFd, Info)> {
        self.0.push.observer.sends(&|| dir.node.join(name.as_name()));
        match dir.open_file(name.as_name(), follow) {
            Err(e) if e.code == Code::Limit => {
                self.0.handles.clear();
                dir.open_file(name.as_name(), follow)
            }
            other => other,
        }
    }

    /// Appends the content of an open file, once.
    pub(super) fn read(
        &self,
        dir: &SourceDir,
        name: &NameBuf,
        (fd, info): (&OwnedFd, &Info),
        manner: &Manner<'_>,
        batch: &mut BatchContents,
        raw: &mut Vec<u8>,
    ) -> Result<ReadOutcome> {
        let fail = |op| move |e| Error::os(op, dir.node.join(name.as_name()), e);
        if manner.size_unreliable {
            // Made while it is read: what one reading gives is all there is to compare with.
            let mut content = Vec::new();
            read_append(fd, 0, LARGE_BYTES_MIN as usize, &mut content).map_err(fail(Op::Read))?;
            if content.len() as u64 >= LARGE_BYTES_MIN {
                return Ok(ReadOutcome::Changed);
            }
            match self.compared(&content) {
                Some(hash) => contents::push_hashed(raw, content.len() as u64, &hash),
                None => contents::push_content(raw, &content, self.hash(&content).as_ref()),
            }
            return Ok(ReadOutcome::Whole(content.len() as u64));
        }
        if info.size >= LARGE_BYTES_MIN {
            return Ok(ReadOutcome::Changed);
        }
        let mark = contents::begin_content(raw, info.size);
        let start = raw.len();
        // One byte more than there should be shows a file that has grown. That nothing follows where all has come needs
        // no call of its own: the file is looked at once more below.
        let got = read_expected(fd, 0, info.size as usize, raw).map_err(fail(Op::Read))?;
        if got as u64 != info.size {
            return Ok(ReadOutcome::Changed);
        }
        let content = raw.get(start..).unwrap_or_default();
        let mut as_it_is = None;
        if let Some(hash) = self.compared(content) {
            raw.truncate(mark);
            contents::push_hashed(raw, info.size, &hash);
        } else {
            let hash = self.hash(content);
            let patch = match manner.of {
                WantedOf::Rest(index) => rest(index, content),
                WantedOf::Content | WantedOf::Itself | WantedOf::Hash => None,
            };
            match (manner.of, patch, hash) {
                (WantedOf::Hash, _, Some(hash)) => {
                    raw.truncate(mark);
                    contents::push_hashed(raw, info.size, &hash);
                }
                (_, Some((runs, carried)), Some(hash)) => {
                    raw.truncate(mark);
                    contents::push_patched(raw, &runs, &carried, &hash);
                }
                _ => {
                    contents::end_content(raw, hash.as_ref());
                    as_it_is = hash;
                }
            }
        }
        let after = Info::of(fd).map_err(fail(Op::Stat))?;
        if !info.same_content(&after) {
            return Ok(ReadOutcome::Changed);
        }
        if let Some(hash) = as_it_is
            && self.0.sent_contents.has(&hash, info.size, batch)
            && !matches!(manner.of, WantedOf::Itself)
        {
            raw.truncate(mark);
            contents::push_hashed(raw, info.size, &hash);
            return Ok(ReadOutcome::Repeated);
        }
        Ok(ReadOutcome::Whole(info.size))
    }

    /// The hash that stands for a content where nothing is copied and the whole of it is compared.
    fn compared(&self, bytes: &[u8]) -> Option<[u8; 32]> {
        let policy = self.0.push.policy;
        // [policy.append]
        let by_hash = policy.dry_run && !policy.resume.appends();
        by_hash.then(|| *blake3::hash(bytes).as_bytes())
    }

    fn hash(&self, bytes: &[u8]) -> Option<[u8; 32]> {
        (!self.0.push.how.fast).then(|| *blake3::hash(bytes).as_bytes())
    }
}

/// What a content has beside chunks that the receiver has: its runs, and those that must come along. `None`: it has none of
/// them, or so many runs that it is better sent whole.
fn rest(index: &ChunkIndex, content: &[u8]) -> Option<(Vec<Run>, Vec<u8>)> {
    let spans = find(index, Chunking::FINE, &mut MatchPlace::at(0), content, content.len() as u64);
    let is_worth = spans.iter().any(|span| span.from.is_some()) && spans.len() <= RUNS_MAX;
    let mut carried = Vec::new();
    for span in spans.iter().filter(|span| span.from.is_none()) {
        let start = usize::try_from(span.at).ok()?;
        carried.extend_from_slice(content.get(start..start + usize::try_from(span.bytes).ok()?)?);
    }
    let runs = spans.iter().map(|span| Run { bytes: span.bytes, from: span.from }).collect();
    is_worth.then_some((runs, carried))
}

/// The stream that something of a directory may take: until the receiver has answered it, only the first.
pub(super) fn stream_for(buffers: &WorkerBuffers, place: &AnnouncedDir) -> usize {
    if place.reply() == DirReply::Unknown { 0 } else { buffers.stream }
}

/// Packs contents behind the beginning of their frame; `false`: not worth it. Says how long it took.
pub(super) fn pack(
    sending: &Sending<'_>,
    (codec, effort): (Codec, Effort),
    raw: &[u8],
    frame: &mut Vec<u8>,
) -> Result<(bool, PackTime)> {
    contents::push_unpacked_length(frame, raw.len()).map_err(|e| not_encoded(&e))?;
    let mut lent = sending.packers.pieces.lend();
    Ok(timed(effort, || lent.packer.pack(codec, effort, raw, frame)))
}

/// Appends why a file could not be read.
pub(super) fn push_unreadable(error: &Error, raw: &mut Vec<u8>) {
    // The receiver knows which file it is, and 256 long paths would not fit.
    let mut trouble = TroubleBuf::of(error);
    trouble.forget_path();
    if contents::push_unreadable(raw, &trouble.trouble()).is_err() {
        // It is made to fit; that it failed is what matters.
        contents::push_changed(raw);
    }
}
