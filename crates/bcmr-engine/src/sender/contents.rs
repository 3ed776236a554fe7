//! The contents of small files: many in one message, each with its hash.
//!
//! Must not know whether a content was wanted or goes along unasked.

use crate::blocks::LARGE_BYTES_MIN;
use crate::codec::Effort;
use crate::error::{Code, Error, Op, Result};
use crate::sender::item::Item;
use crate::sender::place::Place;
use crate::sender::push::{Hand, Sending};
use crate::sender::walk::SourceDir;
use crate::trouble::TroubleBuf;
use bcmr_wire::limits::CONTENTS_BYTES_MAX;
use bcmr_wire::message::Codec;
use bcmr_wire::{codec, contents, frame};
use fastcopy::dir::NameBuf;
use fastcopy::meta::{Info, Kind};
use fastcopy::read_write::{read_append, read_expected};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Contents of one batch: files that have grown since they were told may not make it more.
const BATCH_BYTES_MAX: usize = CONTENTS_BYTES_MAX - (256 << 10);

/// Entries of one directory that were sent together.
pub(crate) struct Batch {
    pub(crate) id: u64,
    pub(crate) place: Arc<Place>,
    pub(crate) items: Vec<Item>,
}

/// What became of a file while it was read.
pub(super) enum Took {
    /// So many bytes were read, and it did not change.
    Whole(u64),
    /// It did.
    Changed,
}

impl Sending<'_> {
    /// Sends what is wanted of a batch.
    pub(super) fn contents(&self, hand: &mut Hand, batch: &Batch, wanted: &[usize]) -> Result<()> {
        let mut dir: Option<Arc<SourceDir>> = None;
        let mut raw = std::mem::take(&mut hand.raw);
        raw.clear();
        for item in wanted.iter().filter_map(|index| batch.items.get(*index)) {
            if self.stopped() {
                hand.raw = raw;
                return Ok(());
            }
            let mark = raw.len();
            let mut read = |raw: &mut Vec<u8>| match &dir {
                Some(dir) => self.wanted(&batch.place, dir, item, raw),
                None => self.handles.get(&batch.place).and_then(|opened| {
                    let took = self.wanted(&batch.place, &opened, item, raw);
                    dir = Some(opened);
                    took
                }),
            };
            let took = match read(&mut raw) {
                // Once more; the writer may be done.
                Ok(Took::Changed) => {
                    raw.truncate(mark);
                    read(&mut raw)
                }
                other => other,
            };
            match took {
                Ok(Took::Whole(_)) => {}
                Ok(Took::Changed) => {
                    raw.truncate(mark);
                    contents::push_changed(&mut raw);
                }
                Err(e) => {
                    raw.truncate(mark);
                    push_unreadable(&e, &mut raw);
                }
            }
        }
        self.send_contents(hand, batch, &raw)?;
        hand.raw = raw;
        Ok(())
    }

    fn send_contents(&self, hand: &mut Hand, batch: &Batch, raw: &[u8]) -> Result<()> {
        let stream = self.stream_for(hand, &batch.place);
        let mut frame = self.room(stream);
        let (codec, effort) = self.codec();
        let before = self.now_ns();
        let mut mark = codec::begin_contents(batch.id, codec, &mut frame);
        let mut pack_ns = 0;
        if codec != Codec::Raw {
            let packed = pack(hand, (codec, effort), raw, &mut frame)?;
            pack_ns = self.now_ns().saturating_sub(before);
            if !packed {
                frame.truncate(mark);
                mark = codec::begin_contents(batch.id, Codec::Raw, &mut frame);
                frame.extend_from_slice(raw);
            }
        } else {
            frame.extend_from_slice(raw);
        }
        frame::finish(&mut frame, mark).map_err(|e| unsayable(&e))?;
        self.send_content(stream, frame, raw.len(), pack_ns)
    }

    /// The stream that something of a directory may take: until the receiver has spoken about it, only the first.
    pub(super) fn stream_for(&self, hand: &Hand, place: &Place) -> usize {
        if place.fate() == crate::sender::place::Fate::Unknown { 0 } else { hand.stream }
    }

    /// Reads one that was wanted, and appends it.
    fn wanted(&self, place: &Place, dir: &SourceDir, item: &Item, raw: &mut Vec<u8>) -> Result<Took> {
        let (fd, info) = self.open_file(dir, &item.name, place.follow)?;
        let fits = raw.len() as u64 + info.size <= BATCH_BYTES_MAX as u64;
        if info.kind != Kind::File || !self.still(&item.info, &info) || !fits {
            return Ok(Took::Changed);
        }
        // The receiver takes no other size than the one that it was told.
        if !place.pseudo && info.size != item.size {
            return Ok(Took::Changed);
        }
        match self.read_content(dir, &item.name, &fd, &info, place.pseudo, raw)? {
            Took::Whole(bytes) if bytes != item.size => Ok(Took::Changed),
            took => Ok(took),
        }
    }

    /// Whether what was told of a file still describes it well enough for its content to go under that description. A
    /// file that is being written to goes on to be the same file with the same owner and permissions. Attributes do not tell when they change, so where they are kept nothing may have changed at all.
    fn still(&self, told: &Info, now: &Info) -> bool {
        let preserve = &self.push.policy.preserve;
        if preserve.acl || preserve.xattr {
            return told.same_content(now);
        }
        told.id() == now.id() && told.mode == now.mode && told.uid == now.uid && told.gid == now.gid
    }

    /// Opens a file; once more with fewer directories open, when descriptors have run out.
    pub(super) fn open_file(&self, dir: &SourceDir, name: &NameBuf, follow: bool) -> Result<(OwnedFd, Info)> {
        match dir.open_file(name.as_name(), follow) {
            Err(e) if e.code == Code::Limit => {
                self.handles.clear();
                dir.open_file(name.as_name(), follow)
            }
            other => other,
        }
    }

    /// Appends the content of an open file, once. `pseudo`: its size says nothing.
    pub(super) fn read_content(
        &self,
        dir: &SourceDir,
        name: &NameBuf,
        fd: &OwnedFd,
        info: &Info,
        pseudo: bool,
        raw: &mut Vec<u8>,
    ) -> Result<Took> {
        let fail = |op| move |e| Error::os(op, dir.node.join(name.as_name()), e);
        if pseudo {
            // Made while it is read: what one reading gives is all there is to compare with.
            let mut content = Vec::new();
            read_append(fd, 0, LARGE_BYTES_MIN as usize, &mut content).map_err(fail(Op::Read))?;
            if content.len() as u64 >= LARGE_BYTES_MIN {
                return Ok(Took::Changed);
            }
            match self.compared(&content) {
                Some(hash) => contents::push_hashed(raw, content.len() as u64, &hash),
                None => contents::push_content(raw, &content, self.hash(&content).as_ref()),
            }
            return Ok(Took::Whole(content.len() as u64));
        }
        if info.size >= LARGE_BYTES_MIN {
            return Ok(Took::Changed);
        }
        let mark = contents::begin_content(raw, info.size);
        let start = raw.len();
        // One byte more than there should be shows a file that has grown. That nothing follows where all has come needs
        // no call of its own: the file is looked at once more below.
        let got = read_expected(fd, 0, info.size as usize, raw).map_err(fail(Op::Read))?;
        if got as u64 != info.size {
            return Ok(Took::Changed);
        }
        let content = raw.get(start..).unwrap_or_default();
        if let Some(hash) = self.compared(content) {
            raw.truncate(mark);
            contents::push_hashed(raw, info.size, &hash);
        } else {
            let hash = self.hash(content);
            contents::end_content(raw, hash.as_ref());
        }
        let after = Info::of(fd).map_err(fail(Op::Stat))?;
        Ok(if info.same_content(&after) { Took::Whole(info.size) } else { Took::Changed })
    }

    /// The hash that stands for a content where nothing is copied and the whole of it is compared.
    fn compared(&self, bytes: &[u8]) -> Option<[u8; 32]> {
        // [policy.append]
        let by_hash = self.push.policy.dry_run && !self.push.policy.resume.appends();
        by_hash.then(|| *blake3::hash(bytes).as_bytes())
    }

    fn hash(&self, bytes: &[u8]) -> Option<[u8; 32]> {
        (!self.push.how.fast).then(|| *blake3::hash(bytes).as_bytes())
    }
}

/// Packs contents behind the beginning of their frame; `false`: not worth it.
pub(super) fn pack(
    hand: &mut Hand,
    (codec, effort): (Codec, Effort),
    raw: &[u8],
    frame: &mut Vec<u8>,
) -> Result<bool> {
    contents::push_unpacked_length(frame, raw.len()).map_err(|e| unsayable(&e))?;
    Ok(hand.packer.pack(codec, effort, raw, frame))
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

/// A message that its own rules do not allow: a fault of ours.
pub(super) fn unsayable(e: &dyn std::fmt::Display) -> Error {
    Error::ours(Code::Io, Op::Send, "", e.to_string())
}
