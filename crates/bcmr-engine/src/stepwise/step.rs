//! One source with its destination, as far as they were looked at.
//!
//! Must not know what is done about them.

use super::copier::Id;
use super::spot::Spot;
use fastcopy::meta::Info;

/// The directories above, in the source.
pub(super) struct Ancestors<'u> {
    pub(super) id: Id,
    pub(super) above: Option<&'u Ancestors<'u>>,
}

impl Ancestors<'_> {
    pub(super) fn has(&self, id: Id) -> bool {
        std::iter::successors(Some(self), |at| at.above).any(|at| at.id == id)
    }
}

/// One source and its destination, as far as they were looked at.
pub(super) struct CopyStep<'p> {
    pub(super) src: &'p Spot,
    pub(super) dst: &'p Spot,
    /// The source.
    pub(super) info: Info,
    /// What is there.
    pub(super) there: Option<Info>,
    /// The source's link is followed.
    pub(super) follow: bool,
    pub(super) operand: bool,
    /// It is on the way to an operand (`--parents`).
    pub(super) leads: bool,
    pub(super) up: Option<&'p Ancestors<'p>>,
    /// The device of the operand.
    pub(super) device: u64,
    /// What is there goes when the new thing comes.
    pub(super) replace: bool,
    pub(super) backup: Option<Spot>,
    /// Its name was taken meanwhile, and it is tried for the last time.
    pub(super) once_more: bool,
}

impl<'p> CopyStep<'p> {
    /// Whether a name that is taken after all is looked at once more: what was there at first was not kept as a backup, whose
    /// name nothing else may get.
    pub(super) fn may_be_taken(&self) -> bool {
        self.there.is_none() && !self.replace && self.backup.is_none() && !self.once_more
    }

    /// A directory on the way to something; with `follow` to an operand, and a link may lead to it.
    pub(super) fn on_the_way(src: &'p Spot, dst: &'p Spot, info: Info, follow: bool) -> CopyStep<'p> {
        CopyStep {
            src,
            dst,
            info,
            there: None,
            follow,
            operand: false,
            leads: follow,
            up: None,
            device: 0,
            replace: false,
            backup: None,
            once_more: false,
        }
    }
}
