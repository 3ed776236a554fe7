//! What becomes of sources, wherever they come from: the one interface between what brings entries (the walk of this
//! machine, the wire) and what they are brought to (landing, comparing).
//!
//! Must not know how entries are found nor what is done with them.

use crate::error::Result;
use crate::receiver::claims::Claims;
use crate::receiver::dir_task::{DirTask, Hold};
use crate::tally::Tally;
use crate::verbs::operands::Place;
use fastcopy::dir::Name;
use fastcopy::meta::Kind;
use std::sync::Arc;

/// One entry of a directory and the name that it gets.
#[derive(Clone, Copy)]
pub(crate) struct DirEntry<'n> {
    pub(crate) name: Name<'n>,
    /// The same, but for an operand.
    pub(crate) to: Name<'n>,
    pub(crate) kind: Kind,
    /// A link is followed.
    pub(crate) follow: bool,
    /// Its name was claimed already, because a list says it.
    pub(crate) is_claimed: bool,
}

impl<'n> DirEntry<'n> {
    /// An entry that was listed, or is an operand.
    pub(crate) fn met(name: Name<'n>, to: Name<'n>, kind: Kind, follow: bool) -> DirEntry<'n> {
        DirEntry { name, to, kind, follow, is_claimed: false }
    }
}

/// How a source came to a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entering {
    /// It is an operand.
    Operand,
    /// It is the contents of an operand that has no name of its own.
    Whole,
    /// The names of a list are below it.
    ListBase,
    /// It was listed.
    Walk,
    /// A name of a list leads through it.
    List,
    /// It leads to names that the caller knows, in a directory that other processes may be at as well.
    Round,
}

/// What becomes of source directories, each an `S`, and of what is in them. Called by several workers at once, each with
/// its own buffers.
pub(crate) trait Destination<S>: Sync + Sized {
    /// What a worker keeps for itself.
    type Buffers;
    /// What a source directory becomes.
    type Dir: Send + Sync;

    fn tally(&self) -> &Tally<'_>;
    /// Which source each final name belongs to.
    fn claims(&self) -> &Claims;
    fn buffers(&self) -> Self::Buffers;

    /// Opens the directory that operands go into.
    ///
    /// # Errors
    /// Nothing can go into it.
    fn base(&self, place: &Place) -> Result<Self::Dir>;
    /// The directory of [`Destination::base`] once more, for sources from elsewhere.
    fn share(&self, base: &Self::Dir) -> Self::Dir;
    /// The contents of `src` become those of `base` itself.
    ///
    /// # Errors
    /// What `base` is could not be found out.
    fn fills(&self, _src: &S, _base: &Place) -> Result<()> {
        Ok(())
    }
    /// `dst`, which was there, is about to become what `src` is: nothing was put into it yet.
    fn becomes(&self, _src: &S, _dst: &Self::Dir) {}
    /// Takes `src`, which is the directory `entry` of `above`. `None`: it is not to be entered, which was told.
    ///
    /// # Errors
    /// It cannot be; it stays behind.
    fn enter(
        &self,
        buffers: &mut Self::Buffers,
        above: &Arc<DirTask<S, Self::Dir>>,
        src: &Arc<S>,
        entry: DirEntry<'_>,
        by: Entering,
    ) -> Result<Option<Self::Dir>>;
    /// So many directories were listed in `pair`, and each is entered or passed by.
    fn expect(&self, _: &DirTask<S, Self::Dir>, _dirs: usize) {}
    /// A directory that was listed in `pair`, or an operand that goes there, is not entered.
    fn passed_by(&self, _: &mut Self::Buffers, _: &Arc<DirTask<S, Self::Dir>>) {}
    /// The source has `name`, left out or not.
    fn met(&self, _: &DirTask<S, Self::Dir>, _: Name<'_>) {}
    /// The source has `name`, and the filter leaves it out.
    fn left_out(&self, pair: &DirTask<S, Self::Dir>, name: Name<'_>) {
        self.met(pair, name);
    }
    /// Everything in the source was met, each by its name.
    fn listed(&self, _: &DirTask<S, Self::Dir>) {}
    /// One of the things that had to be done in a directory is done: it may get its name by that, or be complete, and so
    /// may be those above.
    fn release(&self, buffers: &mut Self::Buffers, hold: Hold<S, Self::Dir>);
    /// What was put off to be done for several directories at once is done now.
    fn worked(&self, _: &mut Self::Buffers) {}
}
