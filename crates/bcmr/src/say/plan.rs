//! What is said of plans. Must not know where it goes.

use super::{counted, size};
use crate::names::{shell_word, text as shown};
use bcmr_engine::plan::{PlanMade, PlanStatus, ShardStatus};
use std::fmt::Write;
use std::path::Path;

/// What there is to do, and how.
pub fn planned(out: &Path, made: &PlanMade) -> String {
    let s = &made.summary;
    let last = made.shards.saturating_sub(1);
    let plan = shell_word(out.as_os_str());
    format!(
        "{}: {}, {}, {}, {}\ndo each (0 to {last}) with: bcmr shard {plan} K\nthen: bcmr finish {plan}\n",
        counted(made.shards.into(), "shard", "shards"),
        counted(s.files, "file", "files"),
        counted(s.dirs, "directory", "directories"),
        counted(s.others, "other", "others"),
        size(s.bytes),
    )
}

/// The hash over everything.
pub fn finished(root: &[u8; 32]) -> String {
    let mut text = String::from("root ");
    for byte in root {
        // Writing to a string does not fail.
        let _written = write!(text, "{byte:02x}");
    }
    text.push('\n');
    text
}

/// How far a plan is: one line for each shard, and their sum.
pub fn status(status: &PlanStatus) -> String {
    let mut text = String::new();
    let (mut done, mut at_work) = (0, 0);
    for (number, (shard, files, bytes)) in status.shards.iter().enumerate() {
        let how = match shard {
            ShardStatus::Done => {
                done += 1;
                "done".to_owned()
            }
            ShardStatus::AtWork { who } => {
                at_work += 1;
                format!("at work: {}", shown(&String::from_utf8_lossy(who)))
            }
            ShardStatus::Open => "open".to_owned(),
        };
        let _written = writeln!(text, "{number:>6}  {files:>10} files  {:>10}  {how}", size(*bytes));
    }
    let all = status.shards.len();
    let end = if status.is_finished { "; the plan is finished" } else { "" };
    let _written = writeln!(text, "{done} of {all} shards are done, {at_work} at work{end}");
    text
}
