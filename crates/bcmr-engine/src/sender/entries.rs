//! Entries in batches: names are looked at, and sent with their contents where these go along unasked.
//!
//! Must not know what is wanted; only that what is in a new directory is.

use crate::blocks::LARGE_BYTES_MIN;
use crate::codec::Effort;
use crate::error::{Code, Error, Op, Reason, Result};
use crate::policy::moment;
use crate::sender::contents::{ContentSender, Manner, ReadOutcome, pack, push_unreadable, stream_for};
use crate::sender::item::{self, EntryAttrs, Item};
use crate::sender::names::Names;
use crate::sender::pace::PackTime;
use crate::sender::place::{AnnouncedDir, DirReply};
use crate::sender::schedule::{BATCH_ENTRIES, NamesTask, SentBatch, WantedOf};
use crate::sender::sending::{Links, PreparedFrame, Sending, WorkerBuffers, not_encoded};
use crate::sender::walk::SourceDir;
use bcmr_wire::limits::ENTRIES_MAX;
use bcmr_wire::message::{Codec, Entry, Message};
use bcmr_wire::{codec, columns, contents, frame};
use fastcopy::dir::Name;
use fastcopy::meta::{Info, Kind};
use fastcopy::read_write::pread;
use fastcopy::xattr::Of;
use std::iter;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

/// Contents of one batch, bytes; the file that goes over it is the last.
const BATCH_BYTES: u64 = LARGE_BYTES_MIN;
/// What entries of one batch take beside their contents.
const BATCH_ENTRY_BYTES: usize = 96 << 10;

const _: () = assert!(BATCH_ENTRIES <= ENTRIES_MAX);

/// What came of looking at one name.
pub(super) enum Examined {
    /// An entry; when contents go along, its content was appended.
    Item(Item),
    /// The same; but only the hash was appended, as that content was sent before.
    Repeated(Item),
    /// A large file.
    Large(Item),
    /// Another name of a file that has several: to be sent without its content.
    Linked,
    /// Nothing to send.
    Nothing,
}

/// Looks at names of one transfer and sends what they are.
pub(super) struct EntrySender<'s, 'a>(pub(super) &'s Sending<'a>);

impl EntrySender<'_, '_> {
    /// Looks at names and sends what they are in batches. Room for the first batch was reserved.
    pub(super) fn names(&self, buffers: &mut WorkerBuffers, task: NamesTask) -> Result<()> {
        let NamesTask { place, names, plain } = task;
        let mut room = true;
        let mut index = 0;
        let mut linked = Names::default();
        let dir = if place.reply() == DirReply::Refused { None } else { Some(self.0.handles.get(&place)) };
        match dir {
            None => {}
            Some(Err(e)) => self.0.fail(Some(&place), e)?,
            Some(Ok(dir)) => {
                while index < names.len() && !self.0.stopped() {
                    if !room && !self.0.schedule.reserve_batch() {
                        // The window is full: the rest waits for its turn, and others answer what is asked meanwhile.
                        let rest = names.part(index..names.len());
                        self.0.schedule.hand_back(NamesTask { place: place.clone(), names: rest, plain });
                        return self.hand_linked(&place, linked);
                    }
                    let inline = !plain && (place.is_new() || self.only_at_once(&place));
                    let how = EntryLook { place: &place, dir: &dir, inline };
                    room = !self.one_batch(buffers, &how, &names, &mut index, &mut linked)?;
                }
            }
        }
        if room {
            self.0.schedule.free_batch();
        }
        self.hand_linked(&place, linked)?;
        self.0.schedule.release(&place);
        Ok(())
    }

    /// Files with several names go without contents, in batches of their own.
    fn hand_linked(&self, place: &Arc<AnnouncedDir>, linked: Names) -> Result<()> {
        if !linked.is_empty() {
            place.hold();
            self.0.schedule.hand_back(NamesTask { place: place.clone(), names: linked, plain: true });
        }
        Ok(())
    }

    /// Looks at names from `index` on until a batch is full, and sends it. `false`: there was nothing to send.
    fn one_batch(
        &self,
        buffers: &mut WorkerBuffers,
        how: &EntryLook<'_>,
        names: &Names,
        index: &mut usize,
        linked: &mut Names,
    ) -> Result<bool> {
        let mut raw = std::mem::take(&mut buffers.raw);
        raw.clear();
        buffers.contents.begin(stream_for(buffers, how.place));
        let mut items: Vec<Item> = Vec::new();
        let mut repeated = Vec::new();
        let (mut content_bytes, mut entry_bytes) = (0, 0);
        while let Some((name, kind)) = names.get(*index) {
            let full = items.len() >= BATCH_ENTRIES
                || content_bytes >= BATCH_BYTES
                || entry_bytes >= BATCH_ENTRY_BYTES;
            if full || self.0.stopped() {
                break;
            }
            *index += 1;
            let examined = self.look(buffers, how, name, kind, &mut raw);
            if let Ok(Examined::Repeated(_)) = examined {
                repeated.push(items.len());
            }
            match examined {
                Ok(Examined::Item(item) | Examined::Repeated(item)) => {
                    content_bytes += if item.is_file() { item.size } else { 0 };
                    entry_bytes += item.bytes();
                    items.push(item);
                }
                Ok(Examined::Large(item)) => self.0.schedule.hand_large(how.place, item),
                Ok(Examined::Linked) => linked.push(name, kind, 0),
                Ok(Examined::Nothing) => {}
                Err(e) => self.0.fail(Some(how.place), e)?,
            }
        }
        let any = !items.is_empty();
        if any {
            let along = how.inline.then_some(InlineContents { raw: &raw, repeated: &repeated });
            self.send_batch(buffers, how.place, items, along)?;
        }
        buffers.raw = raw;
        Ok(any)
    }

    /// Looks at one name. With contents, its content is appended to `raw`.
    pub(super) fn look(
        &self,
        buffers: &mut WorkerBuffers,
        how: &EntryLook<'_>,
        name: Name<'_>,
        kind: Kind,
        raw: &mut Vec<u8>,
    ) -> Result<Examined> {
        let (place, dir) = (how.place, how.dir);
        let item = match kind {
            Kind::File if how.inline => return self.look_inside(buffers, how, name, raw),
            Kind::File => self.look_at(buffers, place, dir, name)?,
            Kind::Dir => return Ok(Examined::Nothing),
            Kind::Link if self.0.push.how.links == Links::Refused => {
                return Err(Error::ours(Code::Refused, Op::Follow, dir.node.join(name), Links::NOTE));
            }
            Kind::Link => {
                let info = same_kind(dir, name, kind, dir.stat(name, false)?)?;
                let link = dir.read_link(name)?.into_bytes();
                let attrs = self.attributes(buffers, dir, name, kind, None)?;
                Item { name: name.to_owned(), info, size: info.size, link, attrs }
            }
            _ => {
                if !self.0.push.policy.specials && !self.0.push.how.compares {
                    let note = Reason::KindIs.about(kind.word());
                    return Err(Error::ours(Code::Special, Op::Copy, dir.node.join(name), note));
                }
                let info = same_kind(dir, name, kind, dir.stat(name, place.follow)?)?;
                let attrs = self.attributes(buffers, dir, name, kind, None)?;
                Item { name: name.to_owned(), info, size: 0, link: Vec::new(), attrs }
            }
        };
        if let Some(note) = item::not_encodable(name.bytes(), &item.info, item.size) {
            return Err(Error::ours(Code::Unsupported, Op::Send, dir.node.join(name), note));
        }
        if self.is_out_as_file(place, dir, &item) {
            return Ok(Examined::Nothing);
        }
        self.count(&item);
        Ok(if item.is_file() && item.size >= LARGE_BYTES_MIN {
            Examined::Large(item)
        } else {
            Examined::Item(item)
        })
    }

    /// Whether files are to be sent with what one reading of them gave: whose size says nothing has another one each time.
    pub(super) fn only_at_once(&self, place: &AnnouncedDir) -> bool {
        place.size_unreliable && !self.0.push.policy.dry_run && !self.0.push.policy.preserve.links
    }

    /// Whether the one operand, a file, goes with its content before the receiver asks: not where it may be a further name
    /// of another.
    pub(super) fn unasked_alone(&self) -> bool {
        self.0.push.how.expects_new && !self.0.push.policy.preserve.links
    }

    /// Whether the filter leaves a file out by the size and time that the receiver would be told, which may be others than
    /// the listing saw.
    fn is_out_as_file(&self, place: &AnnouncedDir, src: &SourceDir, item: &Item) -> bool {
        let out = item.is_file()
            && self.0.filter.excludes_file(item.size, moment(item.info.mtime.sec, item.info.mtime.nsec));
        if out {
            self.0.left_out(Some(place), src, item.name.as_name());
        }
        out
    }

    fn count(&self, item: &Item) {
        self.0.count_found(if item.is_file() { item.size } else { 0 });
    }

    /// What a regular file is, without its content.
    fn look_at(
        &self,
        buffers: &mut WorkerBuffers,
        place: &AnnouncedDir,
        dir: &Arc<SourceDir>,
        name: Name<'_>,
    ) -> Result<Item> {
        let preserve = &self.0.push.policy.preserve;
        let owned = name.to_owned();
        if !place.size_unreliable && !preserve.xattr && !preserve.acl {
            let info = same_kind(dir, name, Kind::File, dir.stat(name, place.follow)?)?;
            return Ok(Item { name: owned, info, size: info.size, link: Vec::new(), attrs: Vec::new() });
        }
        // Attributes are those of the very file that the rest describes.
        let (fd, info) = ContentSender(self.0).open(dir, &owned, place.follow)?;
        let info = same_kind(dir, name, Kind::File, info)?;
        let attrs = self.attributes(buffers, dir, name, Kind::File, Some(&fd))?;
        let size = if place.size_unreliable { self.learn(dir, name, &fd)? } else { info.size };
        Ok(Item { name: owned, info, size, link: Vec::new(), attrs })
    }

    /// A regular file with its content, which is read at once.
    fn look_inside(
        &self,
        buffers: &mut WorkerBuffers,
        how: &EntryLook<'_>,
        name: Name<'_>,
        raw: &mut Vec<u8>,
    ) -> Result<Examined> {
        let (place, dir) = (how.place, how.dir);
        let owned = name.to_owned();
        let mut again = true;
        loop {
            let (fd, info) = ContentSender(self.0).open(dir, &owned, place.follow)?;
            let info = same_kind(dir, name, Kind::File, info)?;
            if self.0.push.policy.preserve.links && info.nlink > 1 {
                return Ok(Examined::Linked);
            }
            let attrs = self.attributes(buffers, dir, name, Kind::File, Some(&fd))?;
            let mut item = Item { name: owned.clone(), info, size: info.size, link: Vec::new(), attrs };
            if let Some(note) = item::not_encodable(name.bytes(), &item.info, item.size) {
                return Err(Error::ours(Code::Unsupported, Op::Send, dir.node.join(name), note));
            }
            if !place.size_unreliable && self.is_out_as_file(place, dir, &item) {
                return Ok(Examined::Nothing);
            }
            if info.size >= LARGE_BYTES_MIN && !place.size_unreliable {
                self.count(&item);
                return Ok(Examined::Large(item));
            }
            let mark = raw.len();
            let manner = Manner { of: &WantedOf::Content, size_unreliable: place.size_unreliable };
            match ContentSender(self.0).read(dir, &owned, (&fd, &info), &manner, &mut buffers.contents, raw) {
                Ok(ReadOutcome::Whole(size)) => item.size = size,
                Ok(ReadOutcome::Repeated) => {
                    self.count(&item);
                    return Ok(Examined::Repeated(item));
                }
                Ok(ReadOutcome::Changed) if place.size_unreliable => {
                    raw.truncate(mark);
                    item.size = self.learn(dir, name, &fd)?;
                    if self.is_out_as_file(place, dir, &item) {
                        return Ok(Examined::Nothing);
                    }
                    self.count(&item);
                    return Ok(Examined::Large(item));
                }
                // Once more; the writer may be done.
                Ok(ReadOutcome::Changed) if again => {
                    raw.truncate(mark);
                    again = false;
                    continue;
                }
                Ok(ReadOutcome::Changed) => {
                    raw.truncate(mark);
                    contents::push_changed(raw);
                }
                Err(e) => {
                    raw.truncate(mark);
                    push_unreadable(&e, raw);
                }
            }
            // What is in a file whose size says nothing is known now.
            if place.size_unreliable && self.is_out_as_file(place, dir, &item) {
                raw.truncate(mark);
                return Ok(Examined::Nothing);
            }
            self.count(&item);
            return Ok(Examined::Item(item));
        }
    }

    fn attributes(
        &self,
        buffers: &mut WorkerBuffers,
        dir: &SourceDir,
        name: Name<'_>,
        kind: Kind,
        fd: Option<&OwnedFd>,
    ) -> Result<EntryAttrs> {
        let of = match fd {
            Some(fd) => Of::Handle(fd.as_fd()),
            None => Of::At(&dir.dir, name),
        };
        let attrs = item::attributes(of, kind, &self.0.push.policy.preserve, &mut buffers.attrs);
        let attrs = attrs.map_err(|e| Error::os(Op::ReadAttributesOf, dir.node.join(name), e))?;
        attrs.ok_or_else(|| attributes_too_large(dir.node.join(name)))
    }

    /// How long a file is whose size says nothing: as long as it reads.
    fn learn(&self, dir: &SourceDir, name: Name<'_>, fd: &OwnedFd) -> Result<u64> {
        let mut room = vec![0; 64 << 10];
        let mut at = 0;
        loop {
            match pread(fd, at, &mut room).map_err(|e| Error::os(Op::Read, dir.node.join(name), e))? {
                0 => return Ok(at),
                n => at += n as u64,
            }
            if self.0.stopped() {
                return Err(Error::ours(
                    Code::Interrupted,
                    Op::Read,
                    dir.node.join(name),
                    Reason::Interrupted,
                ));
            }
        }
    }

    /// Sends entries of one directory, with or without contents; room for the batch was reserved.
    pub(super) fn send_batch(
        &self,
        buffers: &mut WorkerBuffers,
        place: &Arc<AnnouncedDir>,
        items: Vec<Item>,
        along: Option<InlineContents<'_>>,
    ) -> Result<()> {
        let stream = stream_for(buffers, place);
        self.0.tell_owners(stream, items.iter().map(|item| (&item.info, &item.attrs)))?;
        let repeated = along.as_ref().map_or(&[][..], |along| along.repeated);
        let (batch, turn) = self.0.schedule.batch(place, items, stream, repeated);
        let made = self.batch_frame(stream, &batch, along.map(|along| along.raw));
        let (made, held) = match made {
            Ok(frame) => (Ok(()), vec![frame]),
            Err(e) => (Err(e), Vec::new()),
        };
        self.0.end_turn(stream, turn, held).and(made)?;
        self.0.sent_contents.add(&mut buffers.contents, stream);
        Ok(())
    }

    fn batch_frame(&self, stream: usize, batch: &SentBatch, along: Option<&[u8]>) -> Result<PreparedFrame> {
        let (inline, raw) = (along.is_some(), along.unwrap_or_default());
        let entries: Vec<_> = batch.items.iter().map(Item::entry).collect();
        let mut frame = self.0.room(stream, raw.len());
        let dir = batch.place.id;
        if !inline && !self.0.push.how.packed {
            let (batch, contents, codec) = (batch.id, &[], Codec::Raw);
            let message = Message::Files { batch, dir, inline, codec, entries, contents };
            message.encode(&mut frame).map_err(|e| not_encoded(&e))?;
            return Ok(PreparedFrame::Frame { frame, raw: 0, packed: PackTime::default() });
        }
        let columns = self.0.push.how.packed.then(|| self.columns(&entries)).transpose()?;
        let begin = |codec, frame: &mut Vec<u8>| {
            let begun = match &columns {
                Some((packing, entries)) => {
                    let (batch, packing) = (batch.id, *packing);
                    let head = codec::PackedHead { batch, dir, inline, packing, entries };
                    codec::begin_files_packed(&head, codec, frame)
                }
                None => codec::begin_files(batch.id, dir, codec, &entries, frame),
            };
            begun.map_err(|e| not_encoded(&e))
        };
        let (codec, effort) = if raw.is_empty() { (Codec::Raw, Effort::Quick) } else { self.0.codec() };
        let mut mark = begin(codec, &mut frame)?;
        let mut took = PackTime::default();
        let mut plain = codec == Codec::Raw;
        if !plain {
            let is_packed;
            (is_packed, took) = pack(self.0, (codec, effort), raw, &mut frame)?;
            plain = !is_packed;
            if plain {
                frame.truncate(mark);
                mark = begin(Codec::Raw, &mut frame)?;
            }
        }
        if plain {
            frame.extend_from_slice(raw);
        }
        frame::finish(&mut frame, mark).map_err(|e| not_encoded(&e))?;
        Ok(PreparedFrame::Frame { frame, raw: raw.len(), packed: took })
    }

    /// Entries in columns, packed where that is worth it.
    fn columns(&self, entries: &[Entry<'_>]) -> Result<(Codec, Vec<u8>)> {
        let plain = columns::encode(entries).map_err(|e| not_encoded(&e))?;
        let codec = self.0.entries_codec();
        let mut packed = Vec::new();
        columns::push_unpacked_length(&mut packed, plain.len());
        let is_packed = codec != Codec::Raw
            && self.0.packers.pieces.lend().packer.pack(codec, Effort::Quick, &plain, &mut packed);
        Ok(if is_packed { (codec, packed) } else { (Codec::Raw, plain) })
    }

    /// Offers a large file. The receiver says where it wants it from.
    pub(super) fn offer(&self, place: &Arc<AnnouncedDir>, item: Item) -> Result<()> {
        let _in_order = self.0.offers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((file, item)) = self.0.schedule.offer(place, item) else { return Ok(()) };
        self.0.tell_owners(0, iter::once((&item.info, &item.attrs)))?;
        self.0.send(&Message::Large { file, dir: place.id, entry: item.entry() })
    }
}

/// What goes along with the entries of a batch.
pub(super) struct InlineContents<'r> {
    /// Their contents.
    pub(super) raw: &'r [u8],
    /// Of which of them it is only the hash.
    pub(super) repeated: &'r [usize],
}

/// How names of one directory are looked at.
pub(super) struct EntryLook<'t> {
    pub(super) place: &'t Arc<AnnouncedDir>,
    pub(super) dir: &'t Arc<SourceDir>,
    /// With contents.
    pub(super) inline: bool,
}

/// Between listing and looking something else may have been put there; nothing of it is read.
fn same_kind(dir: &SourceDir, name: Name<'_>, kind: Kind, info: Info) -> Result<Info> {
    if info.kind == kind {
        return Ok(info);
    }
    let note = Reason::KindBecame.about(info.kind.word());
    Err(Error::ours(Code::SourceChanged, Op::Copy, dir.node.join(name), note))
}

pub(super) fn attributes_too_large(path: PathBuf) -> Error {
    Error::ours(Code::Limit, Op::Send, path, Reason::AttributesTooLarge)
}
