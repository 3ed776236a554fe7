//! What `bench remote` has found, as data, and what came of its promises. Must not know how anything is measured or shown.

use super::far::Peaks;
use super::{probe, rows, store};
use crate::data::Size;
use crate::measure::median;
use crate::record;
use crate::verdict::Judged;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run, or several that were put together.
#[derive(Serialize, Deserialize)]
pub struct Remote {
    /// 1; counted up when a reader would have to change.
    pub schema: u32,
    pub machine: String,
    pub cores: usize,
    pub ssh: String,
    pub rows: Vec<RemoteRowRecord>,
    pub memory: Vec<RemoteMemory>,
    pub store: Option<Capped>,
    pub probes: Vec<probe::Probe>,
    /// What was not measured, and why.
    pub left_out: BTreeMap<String, String>,
}

/// One row: who took how long.
#[derive(Serialize, Deserialize)]
pub struct RemoteRowRecord {
    pub name: String,
    pub title: String,
    pub file_system: String,
    /// What was measured, with `+` when the work tree had changes.
    pub commit: String,
    pub command: String,
    pub data: Size,
    pub lanes: Vec<LaneRecord>,
    pub verdicts: Vec<Promise>,
}

#[derive(Serialize, Deserialize)]
pub struct LaneRecord {
    pub name: String,
    pub line: String,
    /// Why there are no samples.
    pub absent: Option<String>,
    pub samples: Vec<Run>,
    /// What was known of the copy when it was killed (bytes).
    pub recorded_bytes: Vec<u64>,
}

/// One run of one command.
#[derive(Clone, Serialize, Deserialize)]
pub struct Run {
    pub wall_s: f64,
    /// The command and all it has started, ssh among them.
    pub client_cpu_s: f64,
    /// Everything below sshd.
    pub server_cpu_s: f64,
    /// CPU seconds that other processes used meanwhile, the kernel's own threads among them.
    pub foreign_s: f64,
    /// It was stopped, and would have taken longer.
    pub stopped: bool,
}

impl Run {
    /// Of a lane that was not run.
    pub fn computed(wall_s: f64) -> Run {
        Run { wall_s, client_cpu_s: 0.0, server_cpu_s: 0.0, foreign_s: 0.0, stopped: false }
    }
}

/// A promise and what came of it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Promise {
    pub goal: String,
    /// `None` when it was not measured.
    pub value: Option<f64>,
    /// The value is only known to be below this: the other was stopped.
    pub below: bool,
    pub most: f64,
}

/// One copy of very many files.
#[derive(Serialize, Deserialize)]
pub struct RemoteMemory {
    pub line: String,
    pub commit: String,
    pub files: u64,
    pub connections: u64,
    pub wall_s: f64,
    pub peaks: Peaks,
    /// What was promised; absent in older records, which have a rule of their own.
    #[serde(default)]
    pub bounds: Option<Bounds>,
}

/// MiB that each side may take, where that was promised.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Bounds {
    pub client: Option<f64>,
    pub server: Option<f64>,
}

/// Three different files through a store that holds less (the paper's Experiment 15).
#[derive(Clone, Serialize, Deserialize)]
pub struct Capped {
    pub commit: String,
    pub cap_bytes: u64,
    pub sent_bytes: u64,
    /// On the disk after each: bytes and files.
    pub held: Vec<(u64, u64)>,
    /// What the store knew after each.
    #[serde(default)]
    pub remembered: Vec<store::Remembered>,
}

impl LaneRecord {
    pub fn wall(&self) -> f64 {
        median(self.samples.iter().map(|s| s.wall_s))
    }
}

impl RemoteRowRecord {
    pub fn lane(&self, name: &str) -> Option<&LaneRecord> {
        self.lanes.iter().find(|l| l.name == name && !l.samples.is_empty())
    }

    /// The median over rounds of one's value over the other's in the same round: drift of the machine cancels out.
    /// Where one took part in fewer rounds, those.
    pub fn paired(&self, lane: &str, against: &str) -> Option<f64> {
        let values = self.pairs(lane, against);
        (!values.is_empty()).then(|| median(values))
    }

    /// The same, by rounds.
    pub fn pairs(&self, lane: &str, against: &str) -> Vec<f64> {
        let (Some(ours), Some(theirs)) = (self.lane(lane), self.lane(against)) else { return Vec::new() };
        ours.samples.iter().zip(&theirs.samples).map(|(a, b)| a.wall_s / b.wall_s).collect()
    }

    /// What came of a promise, by its rounds.
    pub fn came_of(&self, verdict: &Promise) -> Judged {
        let (lane, against) = verdict.goal.split_once(" / ").unwrap_or_default();
        record::outcome(verdict.most, &self.pairs(lane, against), false)
    }

    pub fn judge(&self, goal: &rows::LaneGoal) -> Promise {
        Promise {
            goal: format!("{} / {}", goal.lane, goal.against),
            value: self.paired(goal.lane, goal.against),
            below: self.lane(goal.against).is_some_and(|l| l.samples.iter().any(|s| s.stopped)),
            most: goal.most,
        }
    }
}

impl Promise {
    /// In a word, for a table.
    pub fn word(&self) -> &'static str {
        match self.value {
            None => "not measured",
            Some(value) if value <= self.most => "met",
            Some(_) if self.below => "not decided",
            Some(_) => "**MISSED**",
        }
    }

    pub fn shown(&self) -> String {
        let sign = if self.below { "< " } else { "" };
        self.value.map_or_else(|| "-".to_owned(), |v| format!("{sign}{v:.2}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(name: &str, walls: &[f64], stopped: bool) -> LaneRecord {
        let run = |&wall_s| Run { wall_s, client_cpu_s: 1.0, server_cpu_s: 1.0, foreign_s: 0.0, stopped };
        LaneRecord {
            name: name.to_owned(),
            line: String::new(),
            absent: None,
            samples: walls.iter().map(run).collect(),
            recorded_bytes: Vec::new(),
        }
    }

    #[test]
    fn a_stopped_one_decides_only_in_our_favour() {
        let row = |ours: &[f64], stopped| RemoteRowRecord {
            name: String::new(),
            title: String::new(),
            file_system: String::new(),
            commit: String::new(),
            command: String::new(),
            data: Size::default(),
            lanes: vec![lane("scp", &[60.0], stopped), lane("bcmr", ours, false), lane("direct", &[], false)],
            verdicts: Vec::new(),
        };
        let judge = |ours: &[f64], stopped, lane| {
            row(ours, stopped).judge(&rows::LaneGoal { lane, against: "scp", most: 0.05 })
        };
        assert_eq!(judge(&[2.4, 90.0], true, "bcmr").word(), "met", "only rounds of both are compared");
        assert_eq!(judge(&[2.4], true, "bcmr").shown(), "< 0.04");
        assert_eq!(judge(&[6.0], true, "bcmr").word(), "not decided");
        assert_eq!(judge(&[6.0], false, "bcmr").word(), "**MISSED**");
        assert_eq!(judge(&[6.0], false, "direct").word(), "not measured");
    }
}
