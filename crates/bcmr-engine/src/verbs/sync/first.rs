//! What only the destination has, deleted before anything arrives (`--delete=before`): a look at both sides of which nothing is told, and
//! at its end what was found goes, but what is in the way of something else.
//!
//! Must not know where the source is, nor decide what goes: that is the receiver's planner's.

use crate::error::{Code, Error, Op, Reason};
use crate::event::{Nothing, Summary, Watch};
use crate::receiver::aside::Aside;
use crate::receiver::extraneous::Extraneous;
use crate::tally::Tally;
use crate::verbs::check::Check;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What is counted of a look, and of what is done at its end.
pub(crate) struct LookTallies<'a> {
    pub(crate) looked: Tally<'a>,
    pub(crate) told: Tally<'a>,
}

impl<'a> LookTallies<'a> {
    /// Of a look that is all there is.
    pub(crate) fn as_one(watch: Watch<'a>) -> LookTallies<'a> {
        LookTallies { looked: Tally::new(watch), told: Tally::new(watch) }
    }

    /// Of one that nothing is told of: the run itself meets again what failed.
    pub(crate) fn apart(looks: Watch<'a>, does: Watch<'a>) -> LookTallies<'a> {
        let untold = Watch { front: &Nothing, items: false, ..looks };
        LookTallies { looked: Tally::new(untold), told: Tally::new(does) }
    }
}

/// Deletes what only the destination has before anything arrives (M10).
pub(crate) struct DeletesFirst<'a> {
    /// What is told of it.
    pub(crate) told: &'a Tally<'a>,
    /// What goes is kept here.
    pub(crate) aside: Option<Arc<Aside>>,
    pub(crate) receipt: Receipt,
}

/// What the receipt of what is kept is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receipt {
    /// The rest of the run as well.
    OfTheRun,
    /// What goes first alone.
    OfThis,
}

impl DeletesFirst<'_> {
    /// Deletes what `look` has found.
    pub(super) fn delete(self, found: Option<Extraneous>, look: &Check<'_>) -> Summary {
        let told = self.told;
        // M2: what failed is told by the run itself, which meets it again.
        told.absent.fetch_add(look.tally.absent.load(Relaxed), Relaxed);
        if !look.tally.all_there() {
            told.cut_short();
        }
        let plan = found.and_then(|found| found.plan(told));
        let left = plan.map_or(0, |mut plan| {
            let left = plan.leave_what_is_in_the_way();
            plan.carry_out(look.policy, self.aside.as_deref(), told);
            left
        });
        told.differences.store(left, Relaxed);
        // It may have passed when the run meets it again: that nothing, or not all, was deleted is told here.
        if look.tally.failed.load(Relaxed) > 0 && told.failed.load(Relaxed) == 0 && told.all_there() {
            told.fail(Error::ours(Code::Refused, Op::DeleteIn, look.root, Reason::NotAllIsThere));
        }
        if self.receipt == Receipt::OfThis {
            self.aside.iter().for_each(|aside| aside.finish(told));
        }
        told.summary()
    }
}
