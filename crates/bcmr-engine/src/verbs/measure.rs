//! Counts what a verb is going to have to do, for a percentage and a time to go.
//!
//! Must not change anything. Runs beside the verb and only when progress is shown: a copy that takes less than a
//! second is never counted first.

use crate::error::Error;
use crate::event::{Cancel, Progress};
use crate::policy::CopyPolicy;
use crate::sender::below::{Which, each_below};
use crate::sender::filter::Filter;
use crate::verbs::operands;
use fastcopy::meta::{Info, Kind};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

/// Walks `sources` as a copy with `policy` would and counts items and bytes into `progress`, whose `scanned` it sets in
/// the end. What cannot be read is left for the verb itself to report.
pub fn measure(sources: &[PathBuf], policy: &CopyPolicy, progress: &Progress, cancel: &Cancel) {
    let Ok(filter) = Filter::new(&policy.filter) else { return };
    let which = Which { follow: policy.follow, filter: &filter, one_file_system: policy.one_file_system };
    let mut count = |_: &dyn Fn() -> std::path::PathBuf, info: &Info| {
        if !info.kind.is_special() || policy.specials {
            progress.items_found.fetch_add(1, Relaxed);
            if info.kind == Kind::File {
                progress.bytes_found.fetch_add(info.size, Relaxed);
            }
        }
        !cancel.is_set()
    };
    let mut ignored = |_: Error| Ok(());
    for path in sources {
        let Ok(source) =
            operands::source(&operands::Reach::Anywhere, path, policy.follow, policy.preserve.at_source)
        else {
            continue;
        };
        if policy.recursive || source.info().kind != Kind::Dir {
            // Nothing ends it early that is not to be told.
            let _ended = each_below(source, path, &which, &mut ignored, &mut count);
        }
        if cancel.is_set() {
            return;
        }
    }
    progress.scanned.store(true, Relaxed);
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "trees are made by path")]
mod tests {
    use super::*;
    use crate::policy::FilterSpec;
    use crate::receiver::plan::tests::policy;

    /// What a copy would go through, whatever the operand is called.
    #[test]
    fn what_the_copy_leaves_out_is_not_counted() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("d");
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        for (name, text) in
            [(".gitignore", "*.o\n"), ("a", "12345"), ("sub/b", "67"), ("c.o", ""), ("sub/d.o", "")]
        {
            std::fs::write(dir.join(name), text).unwrap();
        }
        let filter = FilterSpec { gitignore: true, ..FilterSpec::everything() };
        let policy = CopyPolicy { filter, ..policy() };
        for (operand, recursive, counted) in [
            ("d", true, (5, 11)),
            ("d/.", true, (5, 11)),
            ("d", false, (0, 0)),
            ("d/a", false, (1, 5)),
            ("no", true, (0, 0)),
        ] {
            let progress = Progress::default();
            let policy = CopyPolicy { recursive, ..policy.clone() };
            measure(&[tmp.path().join(operand)], &policy, &progress, &Cancel::new());
            let found = (progress.items_found.load(Relaxed), progress.bytes_found.load(Relaxed));
            assert_eq!(found, counted, "{operand}");
            assert!(progress.scanned.load(Relaxed));
        }
    }
}
