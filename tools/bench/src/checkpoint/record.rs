//! What `bench checkpoint` has found, as data. Must not know how anything is measured or shown.

use crate::measure::Sample;
use serde::{Deserialize, Serialize};

/// `DIR/checkpoint.json`.
pub const STEM: &str = "checkpoint";

/// One run of the benchmark.
#[derive(Serialize, Deserialize)]
pub struct Checkpoints {
    /// 1; counted up when a reader would have to change.
    pub schema: u32,
    pub machine: String,
    pub commit: String,
    pub command: String,
    pub tables: Vec<Table>,
    pub killed: Vec<Killed>,
    pub thrice: Option<Thrice>,
    pub resumed: Vec<Resumed>,
    /// Bytes written to stage and session by one whole `-C` copy.
    pub overhead: Option<Written>,
    /// What was not measured, and why.
    pub left_out: Vec<String>,
}

/// Lines that took turns; the first is what the others are compared with.
#[derive(Serialize, Deserialize)]
pub struct Table {
    pub name: String,
    pub title: String,
    pub lines: Vec<TimedLine>,
}

#[derive(Serialize, Deserialize)]
pub struct TimedLine {
    pub line: String,
    /// At most so many times the first line's wall time.
    pub most: Option<f64>,
    /// What the paper says of the same ratio.
    #[serde(alias = "seed")]
    pub published: Option<f64>,
    pub samples: Vec<Sample>,
}

/// A `-C` copy killed at about 90 %, and what the same command then wrote.
#[derive(Serialize, Deserialize)]
pub struct Killed {
    pub bytes: u64,
    /// Length of the stage when it was killed.
    pub stage_bytes: u64,
    pub recorded_bytes: u64,
    pub rewritten_bytes: u64,
}

/// A copy that was killed three times.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Thrice {
    pub bytes: u64,
    /// Of all four runs together.
    pub written_bytes: u64,
}

/// Going on with one 90 % complete file, so many times.
#[derive(Serialize, Deserialize)]
pub struct Resumed {
    pub bytes: u64,
    pub mode: String,
    pub recorded_bytes: Vec<u64>,
    /// From the start of the program to its first write to the stage.
    pub first_byte_s: Vec<f64>,
    pub whole_s: Vec<f64>,
}

/// What one run wrote, by the sum of what its calls returned.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Written {
    pub file_bytes: u64,
    pub stage_bytes: u64,
    pub session_bytes: u64,
}
