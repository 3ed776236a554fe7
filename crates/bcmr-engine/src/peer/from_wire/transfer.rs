//! One transfer that arrives: what all of its entries have in common.
//!
//! Must not know which of them have come.

use crate::error::{Error, Reason, Result};
use crate::node::Node;
use crate::peer::from_wire::destination::{
    CarriedAttrs, Chosen, Far, FarHold, FarTask, Meta, WireDestination,
};
use crate::peer::from_wire::handler::ReceiverBuffers;
use crate::peer::incoming::{Incoming, refused};
use crate::peer::reply::Reply;
use crate::policy::CopyPolicy;
use crate::receiver::claims::Spot;
use crate::receiver::dir_task::{Dropped, PairedDirs};
use crate::tally::Tally;
use crate::verbs::destination::Destination;
use bcmr_wire::message::Entry;
use fastcopy::dir::NameBuf;
use fastcopy::meta::Info;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a transfer is about, and where answers go.
pub(crate) struct IncomingTransfer<'a> {
    pub(crate) policy: &'a CopyPolicy,
    pub(crate) what: Arc<Incoming>,
    pub(crate) reply: &'a Reply,
}

/// What a thread keeps for itself when it brings entries to `D`.
pub(super) type Worker<D> = ReceiverBuffers<<D as Destination<Far>>::Buffers>;

/// What comes off the wire and `D`, to which it is brought.
pub(super) struct WireTransfer<'a, D: WireDestination<'a>> {
    pub(super) to: D,
    pub(super) policy: &'a CopyPolicy,
    pub(super) what: Arc<Incoming>,
    pub(super) reply: &'a Reply,
    /// The sender's number, once it has said it.
    sender_origin: AtomicU64,
    /// What is still to be released, because an error led past it.
    pub(super) dropped: Arc<Dropped<Far, D::Dir>>,
}

impl<'a, D: WireDestination<'a>> WireTransfer<'a, D> {
    /// Nothing has come yet.
    pub(super) fn new(transfer: IncomingTransfer<'a>, to: D) -> WireTransfer<'a, D> {
        let IncomingTransfer { policy, what, reply } = transfer;
        WireTransfer { to, policy, what, reply, sender_origin: AtomicU64::new(0), dropped: Arc::default() }
    }

    pub(super) fn tally(&self) -> &Tally<'_> {
        self.to.tally()
    }

    pub(super) fn failed(&self, slot: &FarTask<D>, e: Error) {
        slot.mark_incomplete();
        self.tally().fail(e);
    }

    pub(super) fn release(&self, worker: &mut Worker<D>, hold: FarHold<D>) {
        self.to.release(&mut worker.of_destination, hold);
    }

    /// Releases what nothing more comes of: it stays incomplete.
    pub(super) fn give_up(&self, worker: &mut Worker<D>, hold: FarHold<D>) {
        hold.mark_incomplete();
        self.release(worker, hold);
    }

    /// The sender has said its number; one for a whole transfer.
    pub(super) fn set_sender_origin(&self, origin: u64) {
        self.sender_origin.store(origin, Ordering::Relaxed);
    }

    /// What the sender knows of an entry.
    pub(super) fn info_of(&self, entry: &Entry<'_>) -> Info {
        self.what.info_of(entry, self.sender_origin.load(Ordering::Relaxed))
    }

    /// A directory at the sender.
    pub(super) fn far(&self, id: u64, entry: &Entry<'_>, node: Arc<Node>) -> Result<Far> {
        Ok(Far { id, info: self.info_of(entry), attrs: self.attrs_of(entry)?, node })
    }

    fn attrs_of(&self, entry: &Entry<'_>) -> Result<CarriedAttrs> {
        // They are not kept: then they are not even held.
        if !self.policy.preserve.xattr && !self.policy.preserve.acl {
            return Ok(CarriedAttrs::new());
        }
        let one = |(name, value): &(&[u8], &[u8])| {
            let name = CString::new(*name).map_err(|_| refused(Reason::BadAttributeName))?;
            let value = self.what.owners.attribute(&name, value.to_vec());
            Ok((name, value))
        };
        entry.attrs.iter().map(one).collect()
    }

    pub(super) fn meta_of(&self, entry: &Entry<'_>, operand: Option<&(NameBuf, PathBuf)>) -> Result<Meta> {
        let name = NameBuf::new(entry.name).ok_or_else(|| refused(Reason::BadName))?;
        let link = CString::new(entry.link).map_err(|_| refused(Reason::BadLinkTarget))?;
        let info = self.info_of(entry);
        let (to, shown) = operand.cloned().map_or_else(|| (name.clone(), None), |(to, p)| (to, Some(p)));
        let machine = self.sender_origin.load(Ordering::Relaxed);
        Ok(Meta { name, to, info, attrs: self.attrs_of(entry)?, link, machine, shown })
    }

    /// V1, for names of a list.
    pub(super) fn is_asked(&self, slot: &FarTask<D>, meta: &Meta) -> Result<()> {
        if self.what.asked.takes(&slot.src.node, &meta.name, &meta.info) {
            return Ok(());
        }
        Err(refused(Reason::NameNotAsked))
    }

    pub(super) fn pair(src: Arc<Far>, dst: D::Dir, ours: bool, spot: Spot) -> PairedDirs<Far, D::Dir> {
        PairedDirs { dev: src.info.dev, src, dst, ours, spot }
    }

    /// What becomes of an entry.
    pub(super) fn choose(&self, slot: &Arc<FarTask<D>>, spot: &Spot, meta: &Meta) -> Chosen<D::Verdict> {
        // Where it is held, what lands is an empty file.
        if self.policy.specials
            && !self.policy.preserve.at_dest.is_held()
            && let Err(e) =
                self.what.no_device(meta.info.kind, || self.to.shown(&slot.dst, meta.to.as_name()))
        {
            self.failed(slot, e);
            return Chosen::Nothing;
        }
        self.to.choose(slot, spot, meta)
    }
}
