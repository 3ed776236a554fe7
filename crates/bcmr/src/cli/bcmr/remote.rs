//! A copy or a comparison whose other side is on another machine. Must not know how it gets there.

use super::connection::Reach;
use super::operands::{NamesFrom, Places};
use crate::show::Show;
use bcmr_engine::policy::CopyPolicy;
use bcmr_engine::remote::Purpose;
use std::path::PathBuf;

/// `copy` to or from another machine; the request is made from it, again for each attempt.
pub struct RemoteJob {
    pub places: Places,
    pub names: Option<NamesFrom>,
    pub policy: CopyPolicy,
    pub purpose: Purpose,
    pub manifest: Option<PathBuf>,
    pub reach: Reach,
    /// How the destination is reached where that is a third machine.
    pub onward: Option<Reach>,
    /// What was asked for and would be lost without a bcmr there, as it was typed.
    pub unkept: Vec<&'static str>,
    pub show: Show,
}
