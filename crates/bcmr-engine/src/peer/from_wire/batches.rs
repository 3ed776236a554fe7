//! Batches of small files: entries that came together, which of them are wanted, and their contents as they come.
//!
//! Must not know where a directory is, nor what is done with an entry.

use crate::codec::Unpacker;
use crate::error::{Reason, Result};
use crate::peer::from_wire::destination::{Arrived, Chosen, FarHold, FarTask, Meta, WireDestination};
use crate::peer::from_wire::dirs::EntriesGoal;
use crate::peer::from_wire::transfer::{WireTransfer, Worker};
use crate::peer::incoming::refused;
use crate::peer::named::NamedInWindow;
use crate::policy::Follow;
use crate::receiver::choose::Way;
use crate::receiver::claims::Spot;
use bcmr_wire::contents::{self, Item};
use bcmr_wire::message::{Codec, Entry, Kind as WireKind, Message, Wanted, WantedPart};
use bcmr_wire::{columns, limits};
use fastcopy::dir::NameBuf;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files of one message.
pub(super) struct FilesMessage<'m> {
    pub(super) batch: u64,
    pub(super) entries: &'m [Entry<'m>],
    /// Their contents come along.
    pub(super) inline: bool,
    pub(super) codec: Codec,
    pub(super) packed: &'m [u8],
}

/// An entry of which something is wanted.
#[derive(Clone, Copy)]
struct WantedEntry<V> {
    index: usize,
    verdict: V,
    asked: AskedFor,
}

impl<V> WantedEntry<V> {
    fn new(index: usize, verdict: V) -> WantedEntry<V> {
        WantedEntry { index, verdict, asked: AskedFor::Nothing }
    }
}

/// What the sender was asked for of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AskedFor {
    Nothing,
    /// A part of it, or its hash.
    Part,
    /// Its content. Of one that came before the hash may come instead.
    Content,
    /// Its content, after something that did not help.
    Itself,
}

impl AskedFor {
    /// Whether an answer is to be made a content of with what is here; `repeats`: contents that came before need not come again.
    fn takes(self, item: &Item<'_>, repeats: bool) -> bool {
        match self {
            AskedFor::Part => matches!(item, Item::Hashed { .. } | Item::Patched { .. }),
            // [repeats.hash]
            AskedFor::Nothing | AskedFor::Content => repeats && matches!(item, Item::Hashed { .. }),
            AskedFor::Itself => false,
        }
    }
}

/// A batch with entries that wait for their content or for another name of the same file.
struct WireBatch<'a, D: WireDestination<'a>> {
    id: u64,
    slot: Arc<FarTask<D>>,
    /// Until nothing more is to be done.
    hold: Option<FarHold<D>>,
    metas: Vec<Meta>,
    /// Asked for, and not here yet. Contents say not whose they are: one answer at a time, or two could arrive over
    /// two streams in the wrong order.
    wanted: Vec<WantedEntry<D::Verdict>>,
    /// To be asked for when nothing else is.
    later: Vec<WantedEntry<D::Verdict>>,
    further: Vec<usize>,
    way: Way,
    /// Nothing more is to be done.
    settled: bool,
}

impl<'a, D: WireDestination<'a>> WireBatch<'a, D> {
    /// Which of the entries are files, in their order.
    fn files(&self) -> Vec<usize> {
        self.metas.iter().enumerate().filter(|(_, meta)| meta.is_file()).map(|(index, _)| index).collect()
    }

    /// Nothing more is to be done for it.
    fn release(&mut self, t: &WireTransfer<'a, D>, worker: &mut Worker<D>) {
        if let Some(hold) = self.hold.take() {
            t.release(worker, hold);
        }
    }

    /// Takes the entries, and the contents that came along.
    fn fill(
        &mut self,
        t: &WireTransfer<'a, D>,
        worker: &mut Worker<D>,
        (spot, operand): (&Spot, Option<&(NameBuf, PathBuf)>),
        files: &FilesMessage<'_>,
    ) -> Result<()> {
        for entry in files.entries {
            t.what.no_link(t.policy.follow == Follow::Always, entry.kind)?;
            let meta = t.meta_of(entry, operand)?;
            t.is_asked(&self.slot, &meta)?;
            if operand.is_none() {
                t.to.met(&self.slot, meta.name.as_name());
            }
            self.metas.push(meta);
        }
        // What has no content lands at once.
        let mut plain = Vec::new();
        for (index, meta) in self.metas.iter().enumerate() {
            match t.choose(&self.slot, spot, meta) {
                Chosen::Nothing => {}
                Chosen::Want(verdict) if meta.is_file() => self.wanted.push(WantedEntry::new(index, verdict)),
                Chosen::Want(verdict) => plain.push(Arrived { meta, verdict, item: None, made: None }),
                Chosen::Further => self.further.push(index),
            }
        }
        t.to.land(&mut worker.of_destination, &self.slot, self.way, &mut plain)?;
        drop(plain);
        if files.inline {
            let bytes = unpack(&mut worker.unpacker, files.codec, files.packed)?;
            let files = self.files();
            self.land(t, &mut worker.of_destination, &bytes, true, &files)?;
        } else if !files.packed.is_empty() {
            return Err(refused(Reason::ContentsNotAnnounced));
        }
        let rest = std::mem::take(&mut self.wanted);
        self.later.extend(rest);
        Ok(())
    }

    /// Contents of the entries `files`, in their order; what is not wanted of them is dropped.
    fn land(
        &mut self,
        t: &WireTransfer<'a, D>,
        buffers: &mut D::Buffers,
        bytes: &[u8],
        exactly: bool,
        files: &[usize],
    ) -> Result<()> {
        let wanted = std::mem::take(&mut self.wanted);
        let room = t.to.room(&self.slot);
        let mut items = if exactly {
            contents::items(bytes, t.what.hashes, files.len())
        } else {
            contents::items_up_to(bytes, t.what.hashes, files.len())
        };
        let repeats = D::TAKES_BYTES && t.what.repeats;
        let (mut came, mut missed) = (Vec::new(), Vec::new());
        let (mut count, mut made_bytes) = (0, 0);
        for index in files {
            let item = match items.next() {
                Some(Ok(item)) => item,
                None if !exactly => break,
                Some(Err(_)) | None => return Err(refused(Reason::ContentsDoNotFit)),
            };
            count += 1;
            let Some(meta) = self.metas.get(*index) else { continue };
            let Some(want) = wanted.iter().find(|want| want.index == *index) else { continue };
            let verdict = want.verdict;
            let mut made = None;
            if want.asked.takes(&item, repeats) {
                made = repeats.then(|| t.to.repeated(meta, verdict, &item)).flatten();
                if made.is_none() && want.asked == AskedFor::Part {
                    made = t.to.made(&self.slot, meta, verdict, &item);
                }
                let Some(bytes) = &made else {
                    missed.push((*want, meta, item));
                    continue;
                };
                made_bytes += bytes.len();
            }
            came.push(Arrived { meta, verdict, item: Some(item), made });
            if came.len() >= room || made_bytes >= limits::CONTENTS_BYTES_MAX {
                t.to.land(buffers, &self.slot, self.way, &mut came)?;
                made_bytes = 0;
            }
        }
        if items.next().is_some() {
            return Err(refused(Reason::MoreContentsThanEntries));
        }
        t.to.land(buffers, &self.slot, self.way, &mut came)?;
        let mut again = Vec::new();
        made_bytes = 0;
        for (want, meta, item) in missed {
            // What it repeats may have come in this very message. Else what is here is not what it looked like.
            let made = repeats.then(|| t.to.repeated(meta, want.verdict, &item)).flatten();
            let Some(bytes) = &made else {
                again.push(WantedEntry { asked: AskedFor::Part, ..want });
                continue;
            };
            made_bytes += bytes.len();
            came.push(Arrived { meta, verdict: want.verdict, item: Some(item), made });
            if came.len() >= room || made_bytes >= limits::CONTENTS_BYTES_MAX {
                t.to.land(buffers, &self.slot, self.way, &mut came)?;
                made_bytes = 0;
            }
        }
        t.to.land(buffers, &self.slot, self.way, &mut came)?;
        drop(came);
        // What is still to come.
        let came = files.get(..count).unwrap_or_default();
        self.wanted = wanted.into_iter().filter(|want| !came.contains(&want.index)).collect();
        self.later.append(&mut again);
        Ok(())
    }

    /// Further names whose first one has landed meanwhile are linked; one whose first could not be landed is wanted
    /// itself.
    fn resolve(&mut self, t: &WireTransfer<'a, D>, buffers: &mut D::Buffers) -> Result<()> {
        for index in std::mem::take(&mut self.further) {
            let Some(meta) = self.metas.get(index) else { continue };
            match t.to.choose_further(buffers, &self.slot, meta) {
                None | Some(Chosen::Further) => self.further.push(index),
                Some(Chosen::Nothing) => {}
                Some(Chosen::Want(verdict)) if meta.is_file() => {
                    self.later.push(WantedEntry::new(index, verdict))
                }
                Some(Chosen::Want(verdict)) => {
                    let mut came = vec![Arrived { meta, verdict, item: None, made: None }];
                    t.to.land(buffers, &self.slot, self.way, &mut came)?;
                }
            }
        }
        Ok(())
    }

    /// Asks for what is wanted now: for all of it, or for what is not here already.
    fn ask(&mut self, t: &WireTransfer<'a, D>) -> Result<()> {
        let mut chunks_left = limits::PARTS_SUMS_MAX;
        let mut entries = Vec::with_capacity(self.wanted.len());
        for want in &mut self.wanted {
            let wanted = match self.metas.get(want.index) {
                Some(meta) if want.asked == AskedFor::Nothing => {
                    t.to.part(&self.slot, meta, want.verdict, chunks_left)
                }
                _ => Wanted::Content,
            };
            if let Wanted::Rest(chunks) = &wanted {
                chunks_left = chunks_left.saturating_sub(chunks.len());
            }
            want.asked = match (&wanted, want.asked) {
                (Wanted::Content, AskedFor::Nothing) => AskedFor::Content,
                (Wanted::Content, _) => AskedFor::Itself,
                (Wanted::Hash | Wanted::Rest(_), _) => AskedFor::Part,
            };
            entries.push(WantedPart { entry: want.index as u64, wanted });
        }
        let batch = self.id;
        if entries.iter().any(|part| part.wanted != Wanted::Content) {
            return t.reply.answer(&Message::WantsParts { batch, entries });
        }
        let entries = entries.iter().map(|part| part.entry).collect();
        t.reply.answer(&Message::Wants { batch, entries })
    }
}

/// The batches of one transfer.
pub(super) struct WireBatches<'a, D: WireDestination<'a>>(Mutex<OpenBatches<'a, D>>);

struct OpenBatches<'a, D: WireDestination<'a>> {
    /// Each behind a lock of its own: several streams bring what concerns one. The one that holds it may wait for an answer
    /// of the sender's user, or for room.
    by_id: HashMap<u64, Arc<Mutex<WireBatch<'a, D>>>>,
    named: NamedInWindow,
}

impl<'a, D: WireDestination<'a>> WireBatches<'a, D> {
    pub(super) fn new() -> WireBatches<'a, D> {
        WireBatches(Mutex::new(OpenBatches { by_id: HashMap::new(), named: NamedInWindow::batches() }))
    }

    fn open(&self) -> MutexGuard<'_, OpenBatches<'a, D>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open().by_id.is_empty()
    }

    /// Whether all batches up to this one have come and are settled, and none beyond.
    pub(super) fn is_settled_up_to(&self, batch: u64) -> bool {
        self.open().named.is_settled_up_to(batch)
    }

    /// A batch has come.
    ///
    /// # Errors
    /// It is none, or may not come now.
    pub(super) fn announce(&self, files: &FilesMessage<'_>) -> Result<()> {
        self.open().named.take(files.batch)?;
        if files.entries.iter().any(|e| e.kind == WireKind::Dir) {
            return Err(refused(Reason::DirectoryAmongFiles));
        }
        if files.inline && !D::TAKES_BYTES {
            return Err(refused(Reason::ContentsNotAsked));
        }
        Ok(())
    }

    /// Nothing of a batch is wanted.
    pub(super) fn refuse(&self, t: &WireTransfer<'a, D>, id: u64) -> Result<()> {
        self.open().named.settle(id)?;
        t.reply.answer(&Message::Wants { batch: id, entries: Vec::new() })
    }

    /// Takes a batch whose entries go to `goal`.
    pub(super) fn take(
        &self,
        t: &WireTransfer<'a, D>,
        worker: &mut Worker<D>,
        goal: EntriesGoal<D::Dir>,
        files: &FilesMessage<'_>,
    ) -> Result<()> {
        let EntriesGoal { slot, spot, operand, way } = goal;
        let (wanted, later, further) = (Vec::new(), Vec::new(), Vec::new());
        let (slot, hold, metas, id) = (slot.clone(), Some(slot), Vec::new(), files.batch);
        let mut batch = WireBatch { id, slot, hold, metas, wanted, later, further, way, settled: false };
        if let Err(e) = batch.fill(t, worker, (&spot, operand.as_ref()), files) {
            // The sender has broken the protocol in the middle of a batch: its directory must not wait for it.
            batch.slot.mark_incomplete();
            batch.release(t, worker);
            return Err(e);
        }
        // Known before anything is asked: an answer may come over another stream at once.
        let batch = Arc::new(Mutex::new(batch));
        self.open().by_id.insert(id, batch.clone());
        self.go_on(t, worker, &mut t.reply.pulse.lock(&batch))?;
        self.look_again(t, worker)
    }

    /// Contents that were asked for.
    pub(super) fn contents(
        &self,
        t: &WireTransfer<'a, D>,
        worker: &mut Worker<D>,
        id: u64,
        (codec, packed): (Codec, &[u8]),
    ) -> Result<()> {
        let known = self.open().by_id.get(&id).cloned();
        let Some(known) = known else {
            return Err(refused(Reason::ContentsNotWaitedFor));
        };
        let mut batch = t.reply.pulse.lock(&known);
        if batch.wanted.is_empty() {
            return Err(refused(Reason::ContentsNotWaitedFor));
        }
        let files: Vec<usize> = batch.wanted.iter().map(|want| want.index).collect();
        let bytes = unpack(&mut worker.unpacker, codec, packed)?;
        batch.land(t, &mut worker.of_destination, &bytes, false, &files)?;
        if batch.wanted.len() == files.len() {
            return Err(refused(Reason::ContentsOfNothing));
        }
        self.go_on(t, worker, &mut batch)?;
        drop(batch);
        self.look_again(t, worker)
    }

    /// Takes a batch as far as it goes now: links what can be linked, asks for what is wanted, and is done with it when
    /// nothing is left.
    fn go_on(
        &self,
        t: &WireTransfer<'a, D>,
        worker: &mut Worker<D>,
        batch: &mut WireBatch<'a, D>,
    ) -> Result<()> {
        if batch.settled {
            return Ok(());
        }
        batch.resolve(t, &mut worker.of_destination)?;
        if !batch.wanted.is_empty() {
            return Ok(());
        }
        if !batch.later.is_empty() {
            batch.wanted = std::mem::take(&mut batch.later);
            batch.wanted.sort_unstable_by_key(|want| want.index);
            return batch.ask(t);
        }
        if !batch.further.is_empty() {
            return Ok(());
        }
        batch.settled = true;
        {
            let mut open = self.open();
            open.by_id.remove(&batch.id);
            open.named.settle(batch.id)?;
        }
        batch.release(t, worker);
        t.reply.answer(&Message::Wants { batch: batch.id, entries: Vec::new() })
    }

    /// After something has landed or was given up: batches that wait for another name of it may go on. To be called
    /// while no batch is locked.
    pub(super) fn look_again(&self, t: &WireTransfer<'a, D>, worker: &mut Worker<D>) -> Result<()> {
        if !t.policy.preserve.links {
            return Ok(());
        }
        let all: Vec<_> = self.open().by_id.values().cloned().collect();
        for batch in all {
            let mut batch = t.reply.pulse.lock(&batch);
            if !batch.further.is_empty() {
                self.go_on(t, worker, &mut batch)?;
            }
        }
        Ok(())
    }

    /// Nothing more comes.
    pub(super) fn leave(&self, t: &WireTransfer<'a, D>, worker: &mut Worker<D>) {
        let left: Vec<_> = self.open().by_id.drain().collect();
        for (_, batch) in left {
            let mut batch = t.reply.pulse.lock(&batch);
            if std::mem::replace(&mut batch.settled, true) {
                continue;
            }
            // A worker that still holds an answer to it finds that nothing is wanted.
            batch.wanted.clear();
            batch.slot.mark_incomplete();
            batch.release(t, worker);
        }
    }
}

/// Unpacks the columns of a batch's entries.
pub(super) fn unpack_columns<'p>(
    unpacker: &mut Unpacker,
    packing: Codec,
    packed: &'p [u8],
) -> Result<Cow<'p, [u8]>> {
    if packing == Codec::Raw {
        return Ok(packed.into());
    }
    let (length, rest) = columns::unpacked(packed).map_err(|_| refused(Reason::PackedWithoutLength))?;
    let mut bytes = Vec::new();
    unpacker
        .unpack(packing, rest, length as u64, limits::ENTRIES_BYTES_MAX, &mut bytes)
        .map_err(|e| refused(Reason::BadContents.about(e.to_string())))?;
    Ok(bytes.into())
}

/// Unpacks contents: as they are, or with their length in front.
fn unpack<'p>(unpacker: &mut Unpacker, codec: Codec, packed: &'p [u8]) -> Result<Cow<'p, [u8]>> {
    if codec == Codec::Raw {
        return Ok(packed.into());
    }
    let (length, rest) = contents::unpacked(packed).map_err(|_| refused(Reason::PackedWithoutLength))?;
    let mut bytes = Vec::new();
    unpacker
        .unpack(codec, rest, length as u64, limits::CONTENTS_BYTES_MAX, &mut bytes)
        .map_err(|e| refused(Reason::BadContents.about(e.to_string())))?;
    Ok(bytes.into())
}
