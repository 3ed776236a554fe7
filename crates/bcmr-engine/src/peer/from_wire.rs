//! The wire as a source: the one receiver of the protocol, over any destination.
//!
//! The same code in `bcmr serve` (PUT) and in the client (GET); `docs/protocol.md`, section 5, rules. Hands each message to
//! the part of the transfer whose it is: operands, directories, batches of small files, large files. Must not know how
//! bytes travel (frames are handed in, answers go out through [`Reply`]), nor what becomes of an entry.
//!
//! Bounds: the sender keeps to the windows of the protocol and is cut off when it does not; a batch holds the names
//! and attributes of its entries, a large file what [`arriving`] lets wait.
//!
//! [`arriving`]: crate::receiver::arriving
//! [`Reply`]: crate::peer::reply::Reply

mod batches;
pub(super) mod destination;
mod dirs;
pub(super) mod handler;
mod large;
mod operands;
pub(super) mod transfer;

use crate::codec::Unpacker;
use crate::error::{Reason, Result};
use crate::event::{Compared, Summary, Watch};
use crate::peer::from_wire::batches::{FilesMessage, WireBatches, unpack_columns};
use crate::peer::from_wire::destination::WireDestination;
use crate::peer::from_wire::dirs::{EntriesGoal, WireDirs};
use crate::peer::from_wire::handler::{Head, MessageHandler, NextMessage, ReceiverBuffers};
use crate::peer::from_wire::large::WireLargeFiles;
use crate::peer::from_wire::operands::{OperandMessage, WireOperands};
use crate::peer::from_wire::transfer::{IncomingTransfer, WireTransfer, Worker};
use crate::peer::incoming::{Incoming, refused};
use crate::receiver::arriving::Load;
use crate::receiver::directories::Marks;
use crate::tally::Tally;
use bcmr_wire::columns;
use bcmr_wire::message::{self, Entry, Message};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// One transfer, at the receiver.
pub(crate) struct FromWire<'a, D: WireDestination<'a>> {
    transfer: WireTransfer<'a, D>,
    dirs: WireDirs<D>,
    operands: WireOperands<D>,
    batches: WireBatches<'a, D>,
    large: WireLargeFiles<'a, D>,
    all_sent: AtomicBool,
    /// How many directories and batches there are, once the sender has said it.
    all_named: Mutex<Option<(u64, u64)>>,
    /// The sender is told how files were compared.
    tells_how: bool,
}

impl<'a, D: WireDestination<'a>> FromWire<'a, D> {
    /// Nothing has come yet.
    pub(crate) fn new(transfer: IncomingTransfer<'a>, watch: Watch<'a>, to: D) -> FromWire<'a, D> {
        let large = WireLargeFiles::new(watch.cancel, transfer.what.streams, transfer.reply);
        let transfer = WireTransfer::new(transfer, to);
        let (dirs, operands, batches) = (WireDirs::new(), WireOperands::new(), WireBatches::new());
        let (all_sent, all_named) = (AtomicBool::new(false), Mutex::default());
        FromWire { transfer, dirs, operands, batches, large, all_sent, all_named, tells_how: false }
    }

    /// The same, telling the sender how files were compared.
    pub(crate) fn telling(self, tells_how: bool) -> FromWire<'a, D> {
        FromWire { tells_how, ..self }
    }

    /// What names of a manifest are relative to.
    pub(crate) fn base(&self) -> Result<PathBuf> {
        self.transfer.what.to.base()
    }

    /// Where entries of `dir` go: a directory, or the name of one operand; `None`: it was refused.
    fn goal(&self, dir: u64, entries: &[Entry<'_>], small: bool) -> Result<Option<EntriesGoal<D::Dir>>> {
        if let Some(goal) = self.dirs.goal(dir, small) {
            return Ok(Some(goal));
        }
        if let Some(goal) = self.operands.goal(dir, entries)? {
            return Ok(Some(goal));
        }
        self.dirs.was_refused(dir, Reason::EntriesOfClosed).map(|()| None)
    }

    fn files(&self, worker: &mut Worker<D>, dir: u64, files: &FilesMessage<'_>) -> Result<()> {
        self.batches.announce(files)?;
        match self.goal(dir, files.entries, true)? {
            Some(goal) => self.batches.take(&self.transfer, worker, goal, files),
            None => self.batches.refuse(&self.transfer, files.batch),
        }
    }

    fn large(&self, worker: &mut Worker<D>, file: u64, dir: u64, entry: &Entry<'_>) -> Result<()> {
        self.large.announce(file, entry)?;
        let Some(goal) = self.goal(dir, std::slice::from_ref(entry), false)? else {
            return self.large.refuse(&self.transfer, file);
        };
        self.large.take(&self.transfer, worker, file, goal, entry)?;
        self.batches.look_again(&self.transfer, worker)
    }

    /// The sender says it is done: every batch is settled and every file closed, or it lies.
    fn all_sent(&self) -> Result<()> {
        let done = self.operands.have_come()
            && self.batches.is_empty()
            && self.large.is_empty()
            && self.dirs.is_empty();
        let tally = self.transfer.tally();
        if !done && !tally.cancelled() {
            return Err(refused(Reason::EndBeforeSettled));
        }
        self.transfer.what.tell_missing(tally);
        self.all_sent.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the transfer where the sender has named all and nothing of it is open any more: a round trip before it says so
    /// itself. Only over one stream, where what settles something was sent before this looks.
    fn end_where_settled(&self, worker: &mut Worker<D>) -> Result<()> {
        let named = *self.all_named.lock().unwrap_or_else(PoisonError::into_inner);
        // [allnamed.end]
        let Some((dirs, batches)) = named.filter(|_| self.transfer.what.streams == 1) else { return Ok(()) };
        let settled = !self.is_complete()
            && self.dirs.has_named(dirs)
            && self.batches.is_settled_up_to(batches)
            && self.dirs.is_empty()
            && self.operands.have_come()
            && self.large.is_empty();
        if settled {
            self.all_sent()?;
            self.leave(worker);
        }
        Ok(())
    }

    /// One message, but no piece of a large file.
    fn message(&self, worker: &mut Worker<D>, message: Message<'_>) -> Result<()> {
        let t = &self.transfer;
        match message {
            Message::Operand { path, whole, origin, dir, entry } => {
                let message = OperandMessage { id: dir, path, whole, origin, entry: &entry };
                self.operands.operand(t, &self.dirs, worker, &message)
            }
            Message::Dir { id, parent, entry } => self.dirs.dir(t, worker, (id, parent), &entry),
            Message::Files { batch, dir, inline, codec, entries, contents } => {
                let files = FilesMessage { batch, entries: &entries, inline, codec, packed: contents };
                self.files(worker, dir, &files)
            }
            Message::FilesPacked { batch, dir, inline, codec, packing, entries, contents } => {
                let list = unpack_columns(&mut worker.unpacker, packing, entries)?;
                let entries =
                    columns::decode(&list).map_err(|e| refused(Reason::BadContents.about(e.to_string())))?;
                let files = FilesMessage { batch, entries: &entries, inline, codec, packed: contents };
                self.files(worker, dir, &files)
            }
            Message::Contents { batch, codec, bytes } => {
                self.batches.contents(t, worker, batch, (codec, bytes))
            }
            Message::Large { file, dir, entry } => self.large(worker, file, dir, &entry),
            Message::FileEnd { file, state, error } => self.large.end_of(file, state, error.as_ref()),
            Message::HaveBlocks { file, first, hashes } if D::TAKES_BYTES => {
                let Some(arriving) = self.large.arriving(file)? else { return Ok(()) };
                t.to.have_blocks(&arriving, first, &hashes)
            }
            Message::Proof { file, first, tags } if D::TAKES_BYTES => {
                let Some(arriving) = self.large.arriving(file)? else { return Ok(()) };
                t.to.proof(&arriving, first, &tags)
            }
            Message::Finer { file, at, bytes } if D::TAKES_BYTES => {
                let Some(arriving) = self.large.arriving(file)? else { return Ok(()) };
                arriving.finer(at, bytes)
            }
            Message::Values { file, first, hashes } => {
                let Some(arriving) = self.large.arriving(file)? else { return Ok(()) };
                arriving.values(first, &hashes)
            }
            Message::LeftOut { dir, names } => self.dirs.left_out(t, dir, &names),
            Message::DirEnd { dir, partial } => self.dirs.end(t, worker, dir, partial),
            Message::Owner { of, id, name } => t.what.owners.name(of, id, name),
            Message::Trouble(trouble) => {
                t.what.trouble(&trouble, t.tally());
                Ok(())
            }
            Message::Found { items, bytes, last } => {
                found(t.tally(), items, bytes, last);
                Ok(())
            }
            Message::TookAway { left } => t.to.took_away(left),
            Message::AllNamed { dirs, batches } => {
                *self.all_named.lock().unwrap_or_else(PoisonError::into_inner) = Some((dirs, batches));
                Ok(())
            }
            Message::AllSent => {
                self.all_sent()?;
                self.leave(worker);
                Ok(())
            }
            Message::Cancel => {
                t.tally().watch.cancel.set();
                Ok(())
            }
            other => {
                let name = bcmr_wire::state::name(other.kind()).unwrap_or("?");
                Err(refused(Reason::NotSendersMessage.about(name)))
            }
        }
    }

    /// Whether nothing new is to be taken up.
    fn is_over(&self) -> bool {
        self.transfer.tally().cancelled() || self.large.has_ended() && !self.is_complete()
    }
}

impl<'a, D: WireDestination<'a>> MessageHandler for FromWire<'a, D> {
    type Buffers = D::Buffers;

    fn watch(&self) -> Watch<'_> {
        self.transfer.tally().watch
    }

    fn what(&self) -> &Incoming {
        &self.transfer.what
    }

    fn buffers(&self) -> Worker<D> {
        ReceiverBuffers { of_destination: self.transfer.to.buffers(), unpacker: Unpacker::new() }
    }

    fn handle(&self, worker: &mut Worker<D>, message: Message<'_>) -> Result<()> {
        self.message(worker, message)?;
        self.end_where_settled(worker)
    }

    fn piece(&self, stream: usize, head: &Head, load: Load) -> Result<()> {
        if !D::TAKES_BYTES {
            return Err(refused(Reason::PieceBeforeWanted));
        }
        self.large.piece(stream, head, load)
    }

    fn land_large(&self) -> Result<()> {
        let mut worker = self.buffers();
        while let Some(offer) = self.large.next() {
            self.large.land(&self.transfer, &mut worker, offer, self.is_over())?;
            self.batches.look_again(&self.transfer, &mut worker)?;
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.all_sent.load(Ordering::Relaxed)
    }

    fn lose(&self) {
        self.large.lose();
    }

    /// What is whole keeps or gets its name, all else is taken back.
    fn leave(&self, worker: &mut Worker<D>) {
        self.large.leave();
        self.batches.leave(&self.transfer, worker);
        self.dirs.leave(&self.transfer, worker);
        self.operands.leave(&self.transfer, worker);
    }

    fn end(self, cut_short: bool, next: &mut NextMessage<'_>) -> (Summary, Marks, Result<()>) {
        let FromWire { transfer, dirs, operands, batches, large, tells_how, .. } = self;
        if cut_short {
            transfer.tally().cut_short();
        }
        let mut buffers = transfer.to.buffers();
        operands.end(&transfer, &mut buffers);
        // Those that a lost connection left: what is in their directories is complete or was taken back.
        drop((batches, large));
        let named = dirs.into_named();
        while let Some(hold) = transfer.dropped.take() {
            transfer.to.release(&mut buffers, hold);
        }
        if tells_how {
            let Compared { by_time, by_content } = transfer.tally().compared();
            // A client that is gone is noticed by the thread that reads.
            let how = Message::Report(message::Event::Compared { by_time, by_content });
            let _told = transfer.reply.send(&how).is_ok();
        }
        // Nothing waits for the end of a directory that was refused, so that it may come now.
        let mut next = |act: &mut dyn FnMut(Message<'_>) -> Result<()>| {
            next(&mut |message| match message {
                Message::DirEnd { dir, .. } | Message::LeftOut { dir, .. } => {
                    named.was_refused(dir, Reason::EndOfClosed)
                }
                other => act(other),
            })
        };
        transfer.to.end((!cut_short).then_some(&mut next))
    }
}

/// The sender has met more.
fn found(tally: &Tally<'_>, items: u64, bytes: u64, last: bool) {
    let progress = tally.watch.progress;
    progress.items_found.fetch_max(items, Ordering::Relaxed);
    progress.bytes_found.fetch_max(bytes, Ordering::Relaxed);
    if last {
        progress.scanned.store(true, Ordering::Relaxed);
    }
}
