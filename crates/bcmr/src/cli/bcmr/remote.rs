//! A copy or a comparison whose other side is on another machine. Must not know how it gets there.

use super::connection::{ConnectArgs, PlaneArg, Reach, RemoteArgs, reach};
use super::operands::{NamesFrom, Places};
use super::store::Store;
use crate::config::Config;
use crate::show::Show;
use crate::usage::Usage;
use bcmr_engine::policy::{CopyPolicy, Dated, DeleteWhen, SyncPlan};
use bcmr_engine::remote::Purpose;
use std::path::PathBuf;

/// `copy` to or from another machine; the request is made from it, again for each attempt.
pub struct RemoteJob {
    pub places: Places,
    pub names: Option<NamesFrom>,
    pub policy: CopyPolicy,
    pub purpose: Purpose,
    /// When what only the destination has is deleted, where it is.
    pub when: DeleteWhen,
    pub manifest: Option<PathBuf>,
    /// The destination holds snapshots, and gets this one.
    pub dated: Option<Dated>,
    /// Whether it is planned first.
    pub plan: SyncPlan,
    /// Where it is remembered how the source is mounted.
    pub state: Option<PathBuf>,
    /// The store of what came from other machines.
    pub store: Option<Store>,
    pub reach: Reach,
    /// How the destination is reached where that is a third machine.
    pub onward: Option<Reach>,
    /// What was asked for and would be lost without a bcmr there, as it was typed.
    pub unkept: Vec<&'static str>,
    pub show: Show,
}

/// How to get to the destination where that is a third machine. What cannot go through this one is refused.
pub(super) fn onward(
    places: &Places,
    c: &ConnectArgs,
    r: Option<&RemoteArgs>,
    fast: bool,
    config: &Config,
) -> Result<Option<Reach>, Usage> {
    let Places::Between { to, .. } = places else { return Ok(None) };
    let beside = r.and_then(|r| {
        let direct = (r.direct == Some(PlaneArg::Direct)).then_some("--direct");
        direct.or(r.parallel.is_some_and(|n| n > 1).then_some("--parallel"))
    });
    if let Some(flag) = beside {
        return Err(Usage::new(format!("{flag} is not for copies between two other machines"))
            .or("what they send goes through here, over one connection to each"));
    }
    reach(c, r, fast, &to.host, config).map(Some)
}
