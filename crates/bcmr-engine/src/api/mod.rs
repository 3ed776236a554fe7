//! The engine as other programs see it: every verb with its request, and what is told of it, in one place. The names here
//! stand in `crates/bcmr-engine/api.txt`, and a test compares; one that goes away breaks programs of other people.
//!
//! Must not know arguments, environment, terminals or exit codes, and does nothing itself but make the first value of a
//! policy.
//!
//! ```no_run
//! use bcmr_engine::api::{self, Cancel, CopyPolicy, CopyRequest, Nothing, Progress, Target, Watch};
//!
//! let (progress, cancel) = (Progress::default(), Cancel::new());
//! let watch = Watch { front: &Nothing, progress: &progress, cancel: &cancel, items: false };
//! let request = CopyRequest {
//!     sources: vec!["photos".into()],
//!     names: None,
//!     target: Target::Exactly("/mnt/disk/photos".into()),
//!     manifest: None,
//!     policy: CopyPolicy::archive(4, 1000, 0o022),
//! };
//! let summary = api::copy(request, watch)?;
//! println!("{} files", summary.files);
//! # Ok::<(), api::Error>(())
//! ```

pub use crate::error::{About, Code, Error, Note, Op, Reason, Result};
pub use crate::event::{
    Action, Cancel, Change, Compared, Event, Front, Nothing, Progress, Question, Summary, Time, Unfinished,
    Watch, What,
};
pub use crate::plan::{
    FarEnd, FinishRequest, Finished, FoundRun, GivenTo, OtherWalkers, PlanMade, PlanRequest, PlanStatus,
    PlanVerb, ShardChoice, ShardRequest, ShardShare, ShardStatus, Shards, SplitOff, WalkedPart, finish, plan,
    plan_for, plan_together, shard, shard_shared, status, walk_part,
};
pub use crate::policy::{
    CheckRequest, Collide, Compare, CopyPolicy, CopyRequest, DeleteMax, DeleteWhen, Durability, FilterSpec,
    Follow, FollowDestination, Io, Landing, Leaving, ManifestRequest, Mirror, MoveRequest, NameList,
    Preserve, Reflink, RemoveRequest, Resume, Rule, Sparse, Strictness, SyncPlan, SyncRequest, Target,
    Verify,
};
pub use crate::verbs::look::hash;
pub use crate::{check, check_manifest, copy, measure, move_, remove, sessions, sync};

#[cfg(test)]
mod tests {
    /// Every name that this file makes public, in order.
    fn names(text: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for piece in text.split("\npub ").skip(1) {
            let statement = piece.split(';').next().unwrap_or_default();
            let list = statement.split_once('{').map(|(_, list)| list.trim_end_matches('}'));
            match (list, statement.rsplit([':', ' ']).next()) {
                (Some(list), _) => names.extend(list.split(',').map(|name| name.trim().to_owned())),
                (None, name) => names.extend(name.map(str::to_owned)),
            }
        }
        names.retain(|name| !name.is_empty());
        names.sort();
        names
    }

    #[test]
    fn the_public_names_are_the_golden_ones() {
        let text = include_str!("mod.rs");
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        let golden: Vec<&str> = include_str!("../../api.txt").lines().collect();
        assert_eq!(names(text), golden, "api.txt has one public name a line, sorted");
    }
}
