//! Large files on offer: what the receiver has answered and asked about each, and which step comes next. Pure: no
//! descriptor is read here and nothing is sent.
//!
//! Must not know what the receiver has of a file already: it says where to begin, its store which blocks it has.

use crate::blocks::{BLOCK_BYTES, Cv, DEDUP_BYTES_MIN};
use crate::chunks::{ChunkIndex, ChunkSum, Span};
use crate::error::{Code, Error, Note, Op, Reason};
use crate::sender::asking::{FoundInStore, StoreQuestions, StoreStep};
use crate::sender::delta::{BlockLook, Delta, Looked, Refine};
use crate::sender::item::Item;
use crate::sender::place::AnnouncedDir;
use bcmr_wire::limits::{OFFERS_OUT_MAX, SUMS_KEPT_MAX, VALUES_MAX};
use bcmr_wire::message::Hash;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

/// Ranges of one file that may wait to be sent again: more than any receiver needs that asks for blocks.
const REREADS_WAITING: usize = 4096;
/// Requests for chaining values of one file that may wait.
const COMPUTES_WAITING: usize = 64;
/// Blocks whose values are sent in one message: some time's work, so that others get their turn.
const VALUES_AT_ONCE: u64 = 64;

const _: () = assert!(VALUES_AT_ONCE as usize <= VALUES_MAX);
const _: () = assert!(OFFERS_OUT_MAX * REREADS_WAITING <= 1 << 20);

/// The receiver has broken the rules: its message ends the transfer.
pub(super) struct Breach(pub(super) Error);

/// Why a message of the receiver breaks the rules.
pub(super) fn breach(note: impl Into<Note>) -> Breach {
    Breach(Error::ours(Code::Protocol, Op::TalkTo, "", note))
}

/// Whether a message of the receiver kept the rules.
pub(super) type Obeyed<T = ()> = std::result::Result<T, Breach>;

/// Large files from their offer until the receiver has closed them.
#[derive(Default)]
pub(super) struct LargeFiles {
    files: BTreeMap<u64, Large>,
    /// Those that are wanted, in the order in which the receiver said so: it reads them in that order, and lets a stream
    /// wait that brings something of a later one.
    wanted: VecDeque<u64>,
    last_id: u64,
}

/// One large file.
pub(super) struct Large {
    place: Arc<AnnouncedDir>,
    item: Arc<Item>,
    step: LargeStep,
    handle: Handle,
    /// The receiver has said whether it wants it.
    answered: bool,
    /// With chaining values.
    hashed: bool,
    /// Where the next block begins, or the first part of one.
    next: u64,
    /// Threads at work on it.
    at_work: usize,
    /// It is not whole, and whether that was sent.
    failed: Option<(FileFailed, bool)>,
    /// What went wrong while the kernel sent it.
    fault: Arc<OnceLock<io::Error>>,
    computes: VecDeque<Range<u64>>,
    /// Values are sent in order, so by one thread at a time.
    computing: bool,
    rereads: VecDeque<Range<u64>>,
    dedup: Option<StoreQuestions>,
    /// Chunks that the receiver has told of, until it answers.
    sums: ChunkIndex,
    delta: Option<Delta>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LargeStep {
    Offered,
    Sending,
    /// All pieces were sent, and that.
    Ended,
}

enum Handle {
    Closed,
    Opening,
    Open(Arc<OwnedFd>),
}

/// Why a large file is not whole.
#[derive(Clone)]
pub(super) enum FileFailed {
    Changed,
    Error(Arc<Error>),
}

/// The next thing to do for a large file.
pub(super) enum LargeJob {
    Open {
        file: u64,
    },
    Values {
        file: u64,
        first: u64,
        count: u64,
    },
    Prove {
        file: u64,
        found: FoundInStore,
    },
    Have {
        file: u64,
        first: u64,
        count: u64,
    },
    /// Which parts of a block the receiver has.
    Look {
        file: u64,
        look: Box<BlockLook>,
    },
    Refine {
        file: u64,
        refine: Box<Refine>,
    },
    Finish {
        file: u64,
    },
    Block(BlockPart),
}

/// A part of one block to send.
pub(super) struct BlockPart {
    pub(super) file: u64,
    pub(super) fd: Arc<OwnedFd>,
    pub(super) range: Range<u64>,
    pub(super) size: u64,
    /// Holes are looked for.
    pub(super) sparse: bool,
    pub(super) hashed: bool,
    /// Its chaining value, where it is known.
    pub(super) cv: Option<Cv>,
    /// Which parts of the block the receiver has, where it was asked.
    pub(super) spans: Option<Arc<[Span]>>,
    /// The receiver asked for it again.
    pub(super) asked: bool,
    /// What went wrong while the kernel sent the file.
    pub(super) fault: Arc<OnceLock<io::Error>>,
}

/// What is open of a file, and where it is.
pub(super) struct OpenLarge {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) item: Arc<Item>,
    pub(super) place: Arc<AnnouncedDir>,
}

/// What ending a file depends on.
pub(super) struct Finishing {
    pub(super) fd: Option<Arc<OwnedFd>>,
    pub(super) failed: Option<FileFailed>,
    pub(super) fault: Arc<OnceLock<io::Error>>,
    pub(super) item: Arc<Item>,
    pub(super) place: Arc<AnnouncedDir>,
}

/// The receiver's answer to an offer.
pub(super) struct OfferAnswer {
    pub(super) file: u64,
    pub(super) wanted: bool,
    pub(super) from: u64,
    /// With chaining values.
    pub(super) hashed: bool,
    /// Its store may be asked.
    pub(super) dedup: bool,
    /// What it has told of need not be sent.
    pub(super) patches: bool,
}

/// The end of the block that `at` is in.
pub(super) fn block_end(at: u64, size: u64) -> u64 {
    (at - at % BLOCK_BYTES).saturating_add(BLOCK_BYTES).min(size)
}

impl LargeFiles {
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Puts a file on offer, under the next number.
    pub(super) fn offer(&mut self, place: Arc<AnnouncedDir>, item: Item) -> (u64, Arc<Item>) {
        self.last_id += 1;
        let item = Arc::new(item);
        self.files.insert(self.last_id, Large::new(place, item.clone()));
        (self.last_id, item)
    }

    /// A file that the receiver speaks about.
    pub(super) fn known(&mut self, file: u64) -> Obeyed<&mut Large> {
        self.files.get_mut(&file).ok_or_else(|| breach(Reason::FileNotOnOffer.about(file)))
    }

    /// A file, if the receiver has not closed it meanwhile.
    pub(super) fn get(&mut self, file: u64) -> Option<&mut Large> {
        self.files.get_mut(&file)
    }

    /// The receiver has settled a file.
    pub(super) fn close(&mut self, file: u64) -> Obeyed {
        self.known(file)?;
        self.files.remove(&file);
        Ok(())
    }

    /// The receiver says whether it wants a file, and from where.
    pub(super) fn resume(&mut self, resume: &OfferAnswer) -> Obeyed {
        let file = resume.file;
        let large = self.known(file)?;
        if large.answered {
            return Err(breach(Reason::AnsweredBefore.about(file)));
        }
        if resume.from > large.size() {
            return Err(breach(Reason::FromBeyondEnd.about(file)));
        }
        large.answered = true;
        if !resume.wanted {
            // Nothing may be asked about it any more; it stays in the window until it is closed.
            large.step = LargeStep::Ended;
            large.handle = Handle::Closed;
            return Ok(());
        }
        large.hashed = resume.hashed;
        large.next = resume.from;
        let aligned = resume.from.is_multiple_of(BLOCK_BYTES);
        let sums = std::mem::take(&mut large.sums);
        if resume.patches {
            if !large.hashed || !aligned {
                return Err(breach(Reason::SumsNotAsked));
            }
            large.delta = Some(Delta::new(sums, large.size(), resume.from));
        } else if resume.dedup && large.hashed && large.size() >= DEDUP_BYTES_MIN && aligned {
            large.dedup = Some(StoreQuestions::about(resume.from / BLOCK_BYTES..large.blocks()));
        }
        // It may have been found changed while values were computed; then it has ended already.
        if large.step == LargeStep::Offered && large.failed.is_none() {
            large.step = LargeStep::Sending;
            self.wanted.push_back(file);
        }
        Ok(())
    }

    /// The receiver tells of chunks that it has: of all there are before it answers, and then of what it was asked about.
    pub(super) fn sums(&mut self, file: u64, at: u64, chunks: &[ChunkSum]) -> Obeyed {
        let kept: usize = self.files.values().map(Large::sums_kept).sum();
        let large = self.known(file)?;
        if let Some(delta) = &mut large.delta {
            return delta.answer(at, chunks).map_err(|_| breach(Reason::SumsOutOfOrder));
        }
        if large.answered {
            return Err(breach(Reason::SumsNotAsked));
        }
        if at != large.sums.end() {
            return Err(breach(Reason::SumsOutOfOrder));
        }
        if kept + chunks.len() > SUMS_KEPT_MAX {
            return Err(breach(Reason::TooManySums));
        }
        large.sums.extend(chunks);
        Ok(())
    }

    /// What the receiver has asked about large files, and what they need before anything else.
    pub(super) fn pick_asked(&mut self) -> Option<LargeJob> {
        self.files.iter_mut().find_map(|(file, large)| large.pick_asked(*file))
    }

    /// The next thing to do for large files: for the one whose turn it is. Nothing of the next one is sent before the end
    /// of this one was sent.
    pub(super) fn pick(&mut self) -> Option<LargeJob> {
        if let Some(job) = self.pick_asked() {
            return Some(job);
        }
        while let Some(file) = self.wanted.front().copied() {
            match self.files.get_mut(&file) {
                Some(large) if large.step != LargeStep::Ended || large.at_work > 0 => {
                    return large.pick(file);
                }
                _ => {
                    self.wanted.pop_front();
                }
            }
        }
        None
    }
}

impl Large {
    fn new(place: Arc<AnnouncedDir>, item: Arc<Item>) -> Large {
        Large {
            place,
            item,
            step: LargeStep::Offered,
            handle: Handle::Closed,
            answered: false,
            hashed: true,
            next: 0,
            at_work: 0,
            failed: None,
            fault: Arc::new(OnceLock::new()),
            computes: VecDeque::new(),
            computing: false,
            rereads: VecDeque::new(),
            dedup: None,
            sums: ChunkIndex::from(0),
            delta: None,
        }
    }

    fn sums_kept(&self) -> usize {
        self.sums.len() + self.delta.as_ref().map_or(0, Delta::sums)
    }

    fn size(&self) -> u64 {
        self.item.size
    }

    fn blocks(&self) -> u64 {
        self.size().div_ceil(BLOCK_BYTES)
    }

    // ---- what the receiver asks ----

    /// The receiver wants a range again.
    pub(super) fn reread(&mut self, at: u64, bytes: u64) -> Obeyed {
        let end = at.checked_add(bytes).filter(|end| bytes > 0 && *end <= self.size());
        let Some(end) = end else { return Err(breach(Reason::RangeBeyondEnd)) };
        let wanted =
            self.answered && (self.step != LargeStep::Ended || !matches!(self.handle, Handle::Closed));
        if !wanted && self.failed.is_none() || self.rereads.len() >= REREADS_WAITING {
            return Err(breach(Reason::RangeNotSent));
        }
        self.rereads.push_back(at..end);
        Ok(())
    }

    /// The receiver wants chaining values.
    pub(super) fn compute(&mut self, first: u64, count: u64) -> Obeyed {
        let end = first.checked_add(count).filter(|end| count > 0 && *end <= self.blocks());
        let Some(end) = end else { return Err(breach(Reason::BlocksBeyondEnd)) };
        if self.computes.len() >= COMPUTES_WAITING {
            return Err(breach(Reason::TooManyValues));
        }
        self.computes.push_back(first..end);
        Ok(())
    }

    /// The receiver says which blocks it lacks.
    pub(super) fn missing(&mut self, first: u64, nonce: &Hash, bits: &[u8]) -> Obeyed {
        let dedup = self.dedup.as_mut().ok_or_else(|| breach(Reason::AnswerAboutNoBlocks))?;
        dedup.answer(first, nonce, bits).map_err(breach)
    }

    // ---- what comes next ----

    fn pick_asked(&mut self, file: u64) -> Option<LargeJob> {
        if let Some((_, sent)) = &mut self.failed {
            if !*sent && self.at_work == 0 {
                *sent = true;
                self.step = LargeStep::Ended;
                self.at_work += 1;
                return Some(LargeJob::Finish { file });
            }
            return None;
        }
        let fd = match &self.handle {
            Handle::Open(fd) => fd.clone(),
            Handle::Closed if self.step == LargeStep::Sending || !self.computes.is_empty() => {
                self.handle = Handle::Opening;
                self.at_work += 1;
                return Some(LargeJob::Open { file });
            }
            _ => return None,
        };
        if !self.computing
            && let Some(blocks) = self.computes.front_mut()
        {
            let first = blocks.start;
            let count = (blocks.end - first).min(VALUES_AT_ONCE);
            blocks.start += count;
            if blocks.is_empty() {
                self.computes.pop_front();
            }
            self.computing = true;
            self.at_work += 1;
            return Some(LargeJob::Values { file, first, count });
        }
        if let Some(found) = self.dedup.as_mut().and_then(StoreQuestions::take_found) {
            self.at_work += 1;
            return Some(LargeJob::Prove { file, found });
        }
        let size = self.size();
        let range = self.rereads.front_mut()?;
        let part = range.start..block_end(range.start, size).min(range.end);
        range.start = part.end;
        if range.is_empty() {
            self.rereads.pop_front();
        }
        self.at_work += 1;
        Some(LargeJob::Block(BlockPart { asked: true, ..self.part(file, part, fd) }))
    }

    /// The next thing to do for the file whose turn it is.
    fn pick(&mut self, file: u64) -> Option<LargeJob> {
        if self.step != LargeStep::Sending || self.failed.is_some() {
            return None;
        }
        let Handle::Open(fd) = &self.handle else { return None };
        let fd = fd.clone();
        let size = self.size();
        if let Some(delta) = &mut self.delta {
            if let Some((block, spans)) = delta.take_known() {
                self.at_work += 1;
                let start = block * BLOCK_BYTES;
                let part = self.part(file, start..block_end(start, size), fd);
                return Some(LargeJob::Block(BlockPart { spans: Some(spans), ..part }));
            }
            if let Some(refine) = delta.take_refine() {
                self.at_work += 1;
                return Some(LargeJob::Refine { file, refine: Box::new(refine) });
            }
            if let Some(look) = delta.take_look() {
                self.at_work += 1;
                return Some(LargeJob::Look { file, look: Box::new(look) });
            }
        }
        let all = match &mut self.dedup {
            _ if self.delta.is_some() => self.delta.as_ref().is_some_and(Delta::is_done),
            Some(dedup) => {
                if let Some(step) = dedup.take_step() {
                    self.at_work += 1;
                    return Some(match step {
                        StoreStep::Ask { first, count } => LargeJob::Have { file, first, count },
                        StoreStep::Send { block, cv } => {
                            let start = block * BLOCK_BYTES;
                            let part = self.part(file, start..block_end(start, size), fd);
                            LargeJob::Block(BlockPart { cv, ..part })
                        }
                    });
                }
                dedup.is_done()
            }
            None if self.next < size => {
                let range = self.next..block_end(self.next, size);
                self.next = range.end;
                self.at_work += 1;
                return Some(LargeJob::Block(self.part(file, range, fd)));
            }
            None => true,
        };
        if !all || self.at_work > 0 {
            return None;
        }
        self.step = LargeStep::Ended;
        self.at_work += 1;
        Some(LargeJob::Finish { file })
    }

    fn part(&self, file: u64, range: Range<u64>, fd: Arc<OwnedFd>) -> BlockPart {
        BlockPart {
            file,
            fd,
            range,
            size: self.size(),
            sparse: self.item.info.blocks.saturating_mul(512) < self.size(),
            hashed: self.hashed,
            cv: None,
            spans: None,
            asked: false,
            fault: self.fault.clone(),
        }
    }

    // ---- what the workers do ----

    /// What was offered, and where it is.
    pub(super) fn offered(&self) -> (Arc<Item>, Arc<AnnouncedDir>) {
        (self.item.clone(), self.place.clone())
    }

    /// A worker has opened it, or not.
    pub(super) fn opened(&mut self, fd: Option<OwnedFd>) {
        self.handle = fd.map_or(Handle::Closed, |fd| Handle::Open(Arc::new(fd)));
    }

    /// What is open of it.
    pub(super) fn open(&self) -> Option<OpenLarge> {
        let Handle::Open(fd) = &self.handle else { return None };
        Some(OpenLarge { fd: fd.clone(), item: self.item.clone(), place: self.place.clone() })
    }

    /// What its end depends on.
    pub(super) fn finishing(&self) -> Finishing {
        Finishing {
            fd: self.open().map(|open| open.fd),
            failed: self.failed.as_ref().map(|(failed, _)| failed.clone()),
            fault: self.fault.clone(),
            item: self.item.clone(),
            place: self.place.clone(),
        }
    }

    /// Its end was sent.
    pub(super) fn finished(&mut self, failed: Option<FileFailed>) {
        self.at_work -= 1;
        if let Some(failed) = failed {
            self.failed = Some((failed, true));
        }
    }

    /// A worker is done with something of it; `failed`: it is not whole.
    pub(super) fn done(&mut self, failed: Option<FileFailed>) {
        self.at_work -= 1;
        if let Some(failed) = failed.filter(|_| self.failed.is_none()) {
            self.failed = Some((failed, false));
        }
    }

    /// Values that the receiver asked for were sent.
    pub(super) fn values_sent(&mut self) {
        self.computing = false;
    }

    /// The store is about to be asked about blocks from `first` on, which have these values.
    pub(super) fn asking(&mut self, first: u64, values: Vec<Cv>) {
        if let Some(dedup) = &mut self.dedup {
            dedup.asking(first, values);
        }
    }

    /// A block was looked at. Returns the parts of the basis that are to be asked about.
    pub(super) fn looked(&mut self, looked: Looked) -> Vec<Range<u64>> {
        self.delta.as_mut().map_or_else(Vec::new, |delta| delta.looked(looked))
    }

    /// The same again, with finer sums.
    pub(super) fn refined(&mut self, block: u64, spans: Vec<Span>) {
        if let Some(delta) = &mut self.delta {
            delta.refined(block, spans);
        }
    }

    /// No worker hashes for a question to the store any more.
    pub(super) fn store_asked(&mut self) {
        if let Some(dedup) = &mut self.dedup {
            dedup.asked();
        }
    }

    /// What the store has was proved.
    pub(super) fn proved(&mut self) {
        if let Some(dedup) = &mut self.dedup {
            dedup.proved();
        }
    }
}
