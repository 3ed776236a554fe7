//! What a row of `bench remote` is: which work, over which line, by whom, and what is promised of it. Measures nothing.

use crate::data::Set;
use crate::turns::Links;

/// One line of the table.
pub struct RemoteRow {
    /// `NAME-put` and `NAME-get` are chosen together by `NAME`.
    pub name: &'static str,
    pub title: &'static str,
    pub set: Set,
    pub way: Way,
    pub line: Line,
    pub place: Storage,
    pub lanes: Vec<Lane>,
    pub goals: Vec<LaneGoal>,
    /// Rounds, when none are asked for.
    pub rounds: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Put,
    Get,
}

/// What lies between the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Loopback,
    /// 80 Mbit/s each way, a namespace behind a veth pair with a token bucket; needs root.
    Slow,
    /// 50 ms there and back, a relay that holds everything back for half of it.
    Far,
    /// The same with 100 ms.
    Farther,
    /// The slow one, with 30 ms there and back; needs root.
    Wide,
    /// 20 Mbit/s each way, 40 ms there and back, the same bridge without losses; needs root.
    Thin,
    /// 1 Gbit/s each way, 100 ms there and back, one packet of 1,000 lost: a bridge of packets in front of a namespace;
    /// needs root.
    Long,
}

impl Line {
    /// Whether it goes through a namespace.
    pub fn is_link(self) -> bool {
        matches!(self, Line::Slow | Line::Wide | Line::Long | Line::Thin)
    }
}

/// Where source and copies lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// As the options have it; without a word tmpfs, so that the line and the programs are measured and no disk.
    Scratch,
    /// Where to sync costs what it costs: a fresh ext4 in an image; needs root.
    Disk,
}

/// A command that takes turns with others. The first of a row is what the others are shown against.
pub struct Lane {
    pub name: &'static str,
    /// Words with `{F}` the ssh configuration, `{e}` the ssh command, `{s}` and `{d}` source and destination as this
    /// program takes them, `{sp}` and `{dp}` their bare paths, `{a}` the address of the other machine. With a `|` it is for
    /// a shell.
    pub line: &'static str,
    pub kind: LaneKind,
    /// At most so many rounds.
    pub rounds: usize,
    /// Stopped after so many seconds: what is known then is that it takes longer.
    pub stop_s: Option<u32>,
    pub before: Before,
    pub needs: Needs,
    pub links: Links,
}

/// How a lane comes by its time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LaneKind {
    Command,
    /// What the line takes for the data at so many bits a second, and nothing beside: computed.
    LineTime {
        bits_s: u64,
    },
    /// The same for what `zstd -3` makes of the data in one go.
    PackedTime {
        bits_s: u64,
    },
}

/// What is done before the timing, beside a new name for the destination.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// The store of blocks over there is emptied.
    EmptyStore,
    /// It is left as the lane before has made it, and so is that lane's copy.
    Nothing,
    /// The same command is killed when 90 % have been recorded.
    Killed,
    /// A copy of the source with its modes, owners and times is there already.
    Copied,
}

/// What a program must be able to do for its lane to mean anything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    DirectPlane,
    Store,
}

/// What is promised: one lane's wall time over another's.
pub struct LaneGoal {
    pub lane: &'static str,
    pub against: &'static str,
    pub most: f64,
}

pub const OFTEN: usize = usize::MAX;

pub const fn lane(name: &'static str, line: &'static str) -> Lane {
    Lane {
        name,
        line,
        kind: LaneKind::Command,
        rounds: OFTEN,
        stop_s: None,
        before: Before::EmptyStore,
        needs: Needs::Nothing,
        links: Links::Kept,
    }
}
pub const SCP: Lane = lane("scp", "scp -F {F} -q {s} {d}");
pub const SCP_R: Lane = Lane { links: Links::Followed, ..lane("scp", "scp -F {F} -q -r {s} {d}") };
/// One connection: what it does by itself when there is much to move is a lane of its own.
pub const ONE_R: Lane = lane("bcmr", "bcmr copy -F {F} --parallel 1 -r {s} {d}");
pub const DEFAULT: Lane = lane("bcmr", "bcmr copy -F {F} {s} {d}");
pub const DIRECT: Lane =
    Lane { needs: Needs::DirectPlane, ..lane("bcmr direct", "bcmr copy -F {F} --direct=direct {s} {d}") };
