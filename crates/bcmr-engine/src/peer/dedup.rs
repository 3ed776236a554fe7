//! Blocks of large files on their way that the store has: found when the sender names them, taken once it has proved that it
//! has them too, and remembered when they have landed.
//!
//! Must not know what a block is used for.

use crate::blocks::{BLOCK_BYTES, DEDUP_BYTES_MIN, blocks_of};
use crate::error::{Error, Op, Reason, Result};
use crate::event::Event;
use crate::peer::from_wire::destination::Far;
use crate::peer::incoming::refused;
use crate::peer::reply::Reply;
use crate::receiver::arriving::{Arriving, BlockCache};
use crate::receiver::dir_task::Slot;
use crate::stem::is_about_as_long;
use crate::store::{Block, CameFrom, Pinned, Store};
use crate::tally::Tally;
use bcmr_wire::limits;
use bcmr_wire::message::Message;
use fastcopy::dir::NameBuf;
use fastcopy::meta::Info;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Blocks that are kept for the store until the end: as many as it remembers at most.
const REMEMBERED_BLOCKS_MAX: usize = limits::DEDUP_BLOCKS_MAX as usize;

/// A block that the store has, and the sender's proof that it has it too.
type FoundBlock = (Pinned, Option<[u8; 32]>);

/// Blocks of one file that the store has.
struct FileBlocks<'a> {
    store: &'a Store,
    /// How many the file has.
    blocks: u64,
    nonce: [u8; 32],
    found: Mutex<HashMap<u64, FoundBlock>>,
}

impl FileBlocks<'_> {
    fn found(&self) -> MutexGuard<'_, HashMap<u64, FoundBlock>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockCache for Arc<FileBlocks<'_>> {
    fn block(&self, block: u64, bytes: u64) -> Option<Vec<u8>> {
        let (pinned, tag) = self.found().remove(&block)?;
        let content = self.store.take(&pinned, &self.nonce, &tag?)?;
        (content.len() as u64 == bytes).then_some(content)
    }
}

/// A large file that landed, with the values of its blocks.
struct Remembered {
    slot: Arc<Slot<Far>>,
    name: NameBuf,
    size: u64,
    values: Vec<[u8; 32]>,
    source: CameFrom,
}

/// The store's part in one transfer.
pub(crate) struct StoredBlocks<'a> {
    store: Option<&'a Store>,
    /// The sender was asked to name its blocks.
    is_asked: bool,
    /// Blocks come with their hashes.
    hashes: bool,
    reply: &'a Reply,
    /// For files on their way.
    at_hand: Mutex<HashMap<u64, Arc<FileBlocks<'a>>>>,
    /// Large files that landed: the store is told once they have their names.
    landed: Mutex<Vec<Remembered>>,
}

impl<'a> StoredBlocks<'a> {
    pub(crate) fn new(
        store: Option<&'a Store>,
        is_asked: bool,
        hashes: bool,
        reply: &'a Reply,
    ) -> StoredBlocks<'a> {
        StoredBlocks { store, is_asked, hashes, reply, at_hand: Mutex::default(), landed: Mutex::default() }
    }

    /// Whether blocks of a file so long are looked for.
    pub(crate) fn is_worth(size: u64) -> bool {
        size >= DEDUP_BYTES_MIN
    }

    fn at_hand(&self) -> MutexGuard<'_, HashMap<u64, Arc<FileBlocks<'a>>>> {
        self.at_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A large file is on offer.
    ///
    /// # Errors
    /// This machine gives no random bytes.
    pub(crate) fn prepare(&self, arriving: Arriving<'a>) -> Result<Arriving<'a>> {
        let (file, size) = (arriving.file, arriving.info.size);
        // What the sender does not hash it does not name either. Of more blocks than the store remembers at most, none is
        // looked for: each that is named takes memory until its file is settled.
        let blocks = blocks_of(size);
        let Some(store) = self.worth_asking(size) else { return Ok(arriving) };
        let mut at_hand = self.at_hand();
        let named: u64 = at_hand.values().map(|at_hand| at_hand.blocks).sum();
        if named.saturating_add(blocks) > limits::DEDUP_BLOCKS_MAX {
            return Ok(arriving);
        }
        let cache = Arc::new(FileBlocks { store, blocks, nonce: nonce()?, found: Mutex::default() });
        at_hand.insert(file, cache.clone());
        Ok(arriving.with_store(Box::new(cache)))
    }

    /// The file that landed last from the source of one that is on offer, where that was of another size: then what they have in
    /// common lies at other places, and no block is the same. Where it was of the same size, blocks are asked about.
    ///
    /// A client's sender may not ask for the file: it is told of one only if all of it is what that sender has sent.
    pub(crate) fn earlier(&self, source: &CameFrom, size: u64, is_client: bool) -> Option<OwnedFd> {
        let store = self.worth_asking(size)?;
        let file = store.landed_from(source)?;
        Info::of(&*file).ok().filter(|info| info.size != size)?;
        told_to(store, file, is_client)
    }

    /// The same of the file that landed last from a source of nearly that name, where the two are about as long.
    pub(crate) fn like(&self, source: &CameFrom, size: u64, is_client: bool) -> Option<OwnedFd> {
        let store = self.worth_asking(size)?;
        let file = store.landed_like(source)?;
        Info::of(&*file).ok().filter(|info| info.size != size && is_about_as_long(info.size, size))?;
        told_to(store, file, is_client)
    }

    /// Whether there is one to be looked at.
    pub(crate) fn knows_like(&self, source: &CameFrom, size: u64) -> bool {
        self.worth_asking(size).is_some_and(|store| store.landed_like(source).is_some())
    }

    /// Whether something has landed from the source of a file of `size` bytes before: its blocks are better asked about.
    pub(crate) fn knows(&self, source: &CameFrom, size: u64) -> bool {
        self.worth_asking(size).is_some_and(|store| store.landed_from(source).is_some())
    }

    /// The store, where it is asked about files so long.
    fn worth_asking(&self, size: u64) -> Option<&'a Store> {
        self.store.filter(|_| self.is_asked && self.hashes && StoredBlocks::is_worth(size))
    }

    /// Says which of the blocks that the sender has are at hand.
    ///
    /// # Errors
    /// The sender was not asked for them, or it cannot be answered.
    pub(crate) fn have_blocks(&self, arriving: &Arriving<'_>, first: u64, values: &[[u8; 32]]) -> Result<()> {
        let (file, size) = (arriving.file, arriving.info.size);
        let end = first.saturating_add(values.len() as u64);
        if end > blocks_of(size) {
            return Err(refused(Reason::BlocksBehindEnd));
        }
        let cache = self.at_hand().get(&file).cloned();
        let Some(cache) = cache else {
            if !self.is_asked {
                return Err(refused(Reason::BlocksNotAsked));
            }
            // Nothing is looked for, as without a store, and nothing kept of what was named: all of it is to cross.
            let bits: Vec<u8> = values.chunks(8).map(|some| u8::MAX >> (8 - some.len())).collect();
            return self.reply.answer(&Message::MissingBlocks { file, first, nonce: nonce()?, bits: &bits });
        };
        let mut bits = vec![0u8; values.len().div_ceil(8)];
        let mut missing = Vec::with_capacity(values.len());
        {
            let mut found = cache.found();
            for (k, cv) in values.iter().enumerate() {
                let at = (first + k as u64) * BLOCK_BYTES;
                let block = Block { cv: *cv, at, len: BLOCK_BYTES.min(size - at) };
                let pinned = cache.store.find(&block);
                missing.push(pinned.is_none());
                match pinned {
                    Some(pinned) => {
                        found.insert(first + k as u64, (pinned, None));
                    }
                    None => {
                        if let Some(byte) = bits.get_mut(k / 8) {
                            *byte |= 1 << (k % 8);
                        }
                    }
                }
            }
        }
        // Those at hand are decided once the sender has proved that it has them.
        for (k, (missing, cv)) in missing.iter().zip(values).enumerate() {
            if *missing {
                arriving.decide(first + k as u64, &[false], &[*cv]);
            } else {
                arriving.announce(first + k as u64, *cv);
            }
        }
        self.reply.answer(&Message::MissingBlocks { file, first, nonce: cache.nonce, bits: &bits })
    }

    /// The sender's proof that it has the blocks from `first` on that are at hand, in their order.
    ///
    /// # Errors
    /// It proves what was not asked for.
    pub(crate) fn proof(&self, arriving: &Arriving<'_>, first: u64, tags: &[[u8; 32]]) -> Result<()> {
        let cache = self.at_hand().get(&arriving.file).cloned();
        let cache = cache.ok_or_else(|| refused(Reason::ProofOfNothing))?;
        let mut proved = Vec::new();
        {
            let mut found = cache.found();
            let last = first.saturating_add(limits::HAVE_BLOCKS_MAX as u64);
            let mut waiting: Vec<u64> = found
                .iter()
                .filter(|(b, (_, tag))| (first..last).contains(*b) && tag.is_none())
                .map(|(b, _)| *b)
                .collect();
            waiting.sort_unstable();
            if waiting.len() < tags.len() {
                return Err(refused(Reason::MoreProofsThanBlocks));
            }
            for (block, tag) in waiting.into_iter().zip(tags) {
                if let Some((_, slot)) = found.get_mut(&block) {
                    *slot = Some(*tag);
                    proved.push(block);
                }
            }
        }
        for block in proved {
            arriving.at_hand(block);
        }
        Ok(())
    }

    /// A large file has landed as `name` in `slot`: keeps what the store is to be told in the end.
    pub(crate) fn landed(
        &self,
        slot: &Arc<Slot<Far>>,
        name: &NameBuf,
        source: CameFrom,
        arriving: &Arriving<'_>,
    ) {
        let size = arriving.info.size;
        if self.store.is_none() || !StoredBlocks::is_worth(size) {
            return;
        }
        let Some(values) = arriving.all_values() else { return };
        let mut landed = self.landed.lock().unwrap_or_else(PoisonError::into_inner);
        // No more than the store would keep: the last ones count.
        let kept: usize = landed.iter().map(|r| r.values.len()).sum();
        if kept + values.len() > REMEMBERED_BLOCKS_MAX {
            landed.clear();
        }
        landed.push(Remembered { slot: slot.clone(), name: name.clone(), size, values, source });
    }

    /// Nothing more is to be done for a large file.
    pub(crate) fn settled(&self, file: u64) {
        self.at_hand().remove(&file);
    }

    /// Tells the store where blocks have landed, now that they have their names.
    pub(crate) fn tell_store(self, tally: &Tally<'_>) {
        let Some(store) = self.store else { return };
        for Remembered { slot, name, size, values, source } in
            self.landed.into_inner().unwrap_or_else(PoisonError::into_inner)
        {
            let Ok(mut path) = slot.dst.dir.whereabouts() else { continue };
            path.push(OsStr::from_bytes(name.bytes()));
            let block = |(k, cv): (usize, &[u8; 32])| {
                let at = k as u64 * BLOCK_BYTES;
                Block { cv: *cv, at, len: BLOCK_BYTES.min(size - at) }
            };
            let blocks: Vec<Block> = values.iter().enumerate().map(block).collect();
            store.remember(&path, &blocks, Some(&source));
        }
        store.flush();
        if let bytes @ 1.. = store.taken_bytes() {
            let note = Reason::FromStore.about(bytes);
            tally.watch.front.event(Event::Note(note));
        }
    }
}

/// A file of which a sender may be told: who is a client tells only of what that sender has sent.
fn told_to(store: &Store, file: Arc<OwnedFd>, is_client: bool) -> Option<OwnedFd> {
    let may = !is_client || store.is_what_landed(&file);
    may.then(|| file.try_clone().ok()).flatten()
}

/// What the sender's proofs for one file are keyed with.
fn nonce() -> Result<[u8; 32]> {
    let mut nonce = [0; 32];
    fastcopy::process::random(&mut nonce).map_err(|e| Error::os(Op::MakeANonce, "", e))?;
    Ok(nonce)
}
