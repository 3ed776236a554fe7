//! Counts what a verb is going to have to do, for a percentage and a time to go.
//!
//! Must not change anything. Runs beside the verb and only when progress is shown: a copy that takes less than a
//! second is never counted first.

use crate::event::{Cancel, Progress};
use crate::policy::{CopyPolicy, Follow};
use crate::sender::filter::Filter;
use crate::sender::walk::{SourceDir, kind_of};
use crate::verbs::operands::{self, Source};
use fastcopy::dir::{ListBuffer, NameBuf};
use fastcopy::meta::{Info, Kind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Walks `sources` as a copy with `policy` would and counts items and bytes into `progress`, whose `scanned` it sets in
/// the end. What cannot be read is left for the verb itself to report.
pub fn measure(sources: &[PathBuf], policy: &CopyPolicy, progress: &Progress, cancel: &Cancel) {
    let Ok(filter) = Filter::new(&policy.filter) else { return };
    let count = |info: &Info| {
        progress.items_found.fetch_add(1, Relaxed);
        if info.kind == Kind::File {
            progress.bytes_found.fetch_add(info.size, Relaxed);
        }
    };
    let mut stack: Vec<Arc<SourceDir>> = Vec::new();
    for path in sources {
        match operands::source(&operands::Reach::Anywhere, path, policy.follow) {
            Ok(Source::Named { dir, name, info, follow }) if info.kind == Kind::Dir => {
                let node = crate::node::Node::root(path);
                if let (true, Ok(inner)) =
                    (policy.recursive, dir.enter(name.as_name(), node, follow, &filter))
                {
                    count(&info);
                    stack.push(inner);
                }
            }
            Ok(Source::Named { info, .. }) => count(&info),
            Ok(Source::Whole(dir)) => stack.push(dir),
            Err(_) => {}
        }
    }
    let always = policy.follow == Follow::Always;
    let mut buffer = ListBuffer::new();
    while let Some(here) = stack.pop() {
        let mut names: Vec<(NameBuf, Kind)> = Vec::new();
        let listed = here.dir.reopen().and_then(|dir| {
            dir.list(&mut buffer, |entry| {
                if let Ok(kind) = kind_of(&here, entry.name, entry.kind, policy.follow) {
                    names.push((entry.name.to_owned(), kind));
                }
                !cancel.is_set()
            })
        });
        if listed.is_err() {
            continue;
        }
        for (name, kind) in names {
            if cancel.is_set() {
                return;
            }
            let name = name.as_name();
            if here.excludes(name, kind == Kind::Dir, &filter) {
                continue;
            }
            let Ok(info) = here.stat(name, always) else { continue };
            if info.kind.is_special() && !policy.specials {
                continue;
            }
            count(&info);
            if info.kind == Kind::Dir
                && (!policy.one_file_system || info.dev == here.info.dev)
                && let Ok(inner) = here.enter(name, here.node.below(name), always, &filter)
                && !(always && inner.is_own_ancestor())
            {
                stack.push(inner);
            }
        }
    }
    progress.scanned.store(true, Relaxed);
}
