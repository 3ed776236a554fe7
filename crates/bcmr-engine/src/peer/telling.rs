//! A destination that only tells which entries come: a source on another machine, looked at.
//!
//! Must not make anything, nor want the content of any file.

use crate::error::Result;
use crate::event::Summary;
use crate::node::Node;
use crate::peer::from_wire::destination::{Chosen, Far, Meta, WireDestination};
use crate::peer::from_wire::handler::NextMessage;
use crate::receiver::claims::{Claims, Meeting, Spot};
use crate::receiver::dir_task::{DirTask, Dropped, Hold, PairedDirs};
use crate::receiver::directories::Marks;
use crate::tally::Tally;
use crate::verbs::destination::{Destination, DirEntry, Entering};
use crate::verbs::operands::Place;
use fastcopy::dir::Name;
use fastcopy::meta::Info;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;

/// Attributes as they came.
pub(crate) type ToldAttrs<'e> = &'e [(CString, Vec<u8>)];

/// Is told of entries, by several threads at once.
pub(crate) trait EntryListener: Sync {
    /// The directory itself that was asked for.
    fn top(&self, info: &Info, attrs: ToldAttrs<'_>);
    /// A directory in `above`. Whether to go into it.
    fn dir(&self, above: &Node, name: Name<'_>, info: &Info, attrs: ToldAttrs<'_>) -> bool;
    /// Anything else in `above`.
    fn entry(&self, above: &Node, name: Name<'_>, info: &Info);
}

/// Tells `to` what comes.
pub(crate) struct EntryTeller<'a> {
    pub(super) tally: Tally<'a>,
    claims: Claims,
    to: &'a dyn EntryListener,
}

impl<'a> EntryTeller<'a> {
    pub(super) fn new(tally: Tally<'a>, to: &'a dyn EntryListener) -> EntryTeller<'a> {
        EntryTeller { tally, claims: Claims::new(Meeting::Never), to }
    }
}

impl Destination<Far> for EntryTeller<'_> {
    type Buffers = ();
    type Dir = ();

    fn tally(&self) -> &Tally<'_> {
        &self.tally
    }

    fn claims(&self) -> &Claims {
        &self.claims
    }

    fn buffers(&self) {}

    fn base(&self, _: &Place) -> Result<()> {
        Ok(())
    }

    fn share(&self, (): &()) {}

    fn enter(
        &self,
        (): &mut (),
        above: &Arc<DirTask<Far, ()>>,
        src: &Arc<Far>,
        entry: DirEntry<'_>,
        _: Entering,
    ) -> Result<Option<()>> {
        Ok(self.to.dir(&above.src.node, entry.name, &src.info, &src.attrs).then_some(()))
    }

    fn release(&self, (): &mut (), hold: Hold<Far, ()>) {
        hold.release(|_| {});
    }
}

impl WireDestination<'_> for EntryTeller<'_> {
    type Verdict = ();

    const TAKES_BYTES: bool = false;

    fn list_base(&self, _: &Far, _: &Place) -> Result<()> {
        Ok(())
    }

    fn top(&self, pair: PairedDirs<Far, ()>, dropped: &Arc<Dropped<Far, ()>>) -> Hold<Far, ()> {
        self.to.top(&pair.src.info, &pair.src.attrs);
        DirTask::top(pair, dropped)
    }

    fn shown(&self, (): &(), to: Name<'_>) -> PathBuf {
        crate::node::os(to).into()
    }

    fn choose(&self, pair: &Arc<DirTask<Far, ()>>, _: &Spot, meta: &Meta) -> Chosen<()> {
        self.to.entry(&pair.src.node, meta.name.as_name(), &meta.info);
        self.tally.done(1);
        Chosen::Nothing
    }

    fn end(self, _: Option<&mut NextMessage<'_>>) -> (Summary, Marks, Result<()>) {
        (self.tally.summary(), Marks::NONE, Ok(()))
    }
}
