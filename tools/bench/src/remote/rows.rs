//! The table of `bench remote`: which work, over which line, by whom, and what is promised of it. Measures nothing.

use crate::data::Set;

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
    /// The slow one, with 30 ms there and back; needs root.
    Wide,
}

impl Line {
    /// Whether it goes through a namespace.
    pub fn is_link(self) -> bool {
        matches!(self, Line::Slow | Line::Wide)
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
    /// program takes them, `{sp}` and `{dp}` their bare paths. With a `|` it is for a shell.
    pub line: &'static str,
    /// At most so many rounds.
    pub rounds: usize,
    /// Stopped after so many seconds: what is known then is that it takes longer.
    pub stop_s: Option<u32>,
    pub before: Before,
    pub needs: Needs,
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
/// What promises nothing on speed itself is measured so many times.
const GUEST: usize = 2;

pub const fn lane(name: &'static str, line: &'static str) -> Lane {
    Lane { name, line, rounds: OFTEN, stop_s: None, before: Before::EmptyStore, needs: Needs::Nothing }
}
pub const SCP: Lane = lane("scp", "scp -F {F} -q {s} {d}");
pub const SCP_R: Lane = lane("scp", "scp -F {F} -q -r {s} {d}");
const RSYNC: Lane = Lane { rounds: GUEST, ..lane("rsync", "rsync -a -e {e} {s} {d}") };
const RSYNC_R: Lane = lane("rsync", "rsync -a -e {e} {s}/ {d}");
const TAR_PUT: Lane = lane("tar", "tar -C {sp} -cf - . | ssh -F {F} there 'mkdir {dp} && tar -C {dp} -xf -'");
const TAR_GET: Lane = lane("tar", "mkdir {dp} && ssh -F {F} there 'tar -C {sp} -cf - .' | tar -C {dp} -xf -");
/// What the fastest cipher takes by itself: who goes through one ssh cannot be faster.
const SSH_PUT: Lane = lane("ssh", "cat {sp} | ssh -F {F} -c aes128-gcm@openssh.com there 'cat > {dp}'");
const SSH_GET: Lane = lane("ssh", "ssh -F {F} -c aes128-gcm@openssh.com there 'cat {sp}' | cat > {dp}");
/// One connection: what it does by itself when there is much to move is a lane of its own.
pub const ONE_R: Lane = lane("bcmr", "bcmr copy -F {F} --parallel 1 -r {s} {d}");
pub const DEFAULT: Lane = lane("bcmr", "bcmr copy -F {F} {s} {d}");
pub const DIRECT: Lane =
    Lane { needs: Needs::DirectPlane, ..lane("bcmr direct", "bcmr copy -F {F} --direct=direct {s} {d}") };

fn goal(lane: &'static str, against: &'static str, most: f64) -> LaneGoal {
    LaneGoal { lane, against, most }
}

/// Every timed row. `quick` is a tenth of the data, to see that the machinery turns; its figures are not to be published.
pub fn all(quick: bool) -> Vec<RemoteRow> {
    let part = if quick { 10 } else { 1 };
    let big = Set::One { bytes: (1 << 30) / part };
    let mid = Set::One { bytes: (64 << 20) / part.min(2) };
    let many = Set::Even { dirs: 100 / part, files_per_dir: 100, bytes: 64 << 10 };
    let small = Set::Even { dirs: 100 / part, files_per_dir: 1000, bytes: 1 << 10 };
    let few = Set::Even { dirs: 20 / part, files_per_dir: 100, bytes: 4 << 10 };
    let text = Set::Text { bytes: (64 << 20) / part };
    let row = |name, title, set, way, lanes: Vec<Lane>, goals| RemoteRow {
        name,
        title,
        set,
        way,
        line: Line::Loopback,
        place: Storage::Scratch,
        lanes,
        goals,
        rounds: 3,
    };
    let many_goals = || vec![goal("bcmr", "scp", 0.35), goal("bcmr", "rsync", 0.75)];
    let many_lanes = |tar| vec![SCP_R, RSYNC_R, tar, ONE_R];
    // scp is so far away here that once is enough to know.
    let small_lanes = |tar| {
        vec![Lane { rounds: 1, stop_s: Some(120), ..SCP_R }, Lane { rounds: GUEST, ..RSYNC_R }, tar, ONE_R]
    };
    let small_goals = || vec![goal("bcmr", "scp", 0.12), goal("bcmr", "tar", 1.0)];
    let big_lanes = |ssh| {
        vec![
            SCP,
            RSYNC,
            ssh,
            DEFAULT,
            lane("bcmr 1", "bcmr copy -F {F} --parallel 1 {s} {d}"),
            lane("bcmr 4", "bcmr copy -F {F} --parallel 4 {s} {d}"),
            DIRECT,
        ]
    };
    let big_goals =
        || vec![goal("bcmr", "scp", 0.75), goal("bcmr 4", "scp", 0.50), goal("bcmr direct", "scp", 0.20)];
    let far_lanes = |tar| {
        vec![
            // Minutes; and a minute is enough to know that the goal is met, when it is.
            Lane { rounds: 1, stop_s: Some(60), ..SCP_R },
            Lane { rounds: GUEST, ..RSYNC_R },
            tar,
            lane("bcmr", "bcmr copy -F {F} -r {s} {d}"),
        ]
    };
    let far_goals = || vec![goal("bcmr", "scp", 0.05), goal("bcmr", "tar", 1.2)];
    let store_lanes = |scp: Option<Lane>| {
        let mut lanes: Vec<Lane> = scp.into_iter().collect();
        lanes.extend([
            lane("store off", "bcmr copy -F {F} --no-dedup {s} {d}"),
            Lane { needs: Needs::Store, ..lane("store on", "bcmr copy -F {F} --dedup {s} {d}") },
            Lane {
                needs: Needs::Store,
                before: Before::Nothing,
                ..lane("again", "bcmr copy -F {F} --dedup {s} {d}")
            },
        ]);
        lanes
    };
    let on_disk = |row: RemoteRow| RemoteRow { place: Storage::Disk, ..row };
    let resume_lanes = || {
        vec![
            lane("whole", "bcmr copy -F {F} -C {s} {d}"),
            Lane { before: Before::Killed, ..lane("going on", "bcmr copy -F {F} -C {s} {d}") },
        ]
    };
    let resume_goals = || vec![goal("going on", "whole", 0.20)];
    vec![
        row("many-put", "10,000 x 64 KiB, PUT", many, Way::Put, many_lanes(TAR_PUT), many_goals()),
        row("many-get", "10,000 x 64 KiB, GET", many, Way::Get, many_lanes(TAR_GET), many_goals()),
        row("small-put", "100,000 x 1 KiB, PUT", small, Way::Put, small_lanes(TAR_PUT), small_goals()),
        row("small-get", "100,000 x 1 KiB, GET", small, Way::Get, small_lanes(TAR_GET), small_goals()),
        row("big-put", "one 1 GiB random file, PUT", big, Way::Put, big_lanes(SSH_PUT), big_goals()),
        row("big-get", "one 1 GiB random file, GET", big, Way::Get, big_lanes(SSH_GET), big_goals()),
        RemoteRow {
            line: Line::Slow,
            rounds: 2,
            ..row(
                "text-put",
                "64 MiB of source text over 80 Mbit/s, PUT",
                text,
                Way::Put,
                vec![
                    SCP,
                    DEFAULT,
                    lane("bcmr none", "bcmr copy -F {F} --compress=none {s} {d}"),
                    lane("bcmr lz4", "bcmr copy -F {F} --compress=lz4 {s} {d}"),
                    lane("bcmr zstd", "bcmr copy -F {F} --compress=zstd {s} {d}"),
                ],
                vec![goal("bcmr", "scp", 0.22)],
            )
        },
        RemoteRow {
            line: Line::Slow,
            rounds: 2,
            ..row(
                "text-get",
                "64 MiB of source text over 80 Mbit/s, GET",
                text,
                Way::Get,
                vec![SCP, DEFAULT],
                vec![goal("bcmr", "scp", 0.22)],
            )
        },
        RemoteRow {
            line: Line::Slow,
            rounds: 2,
            ..row(
                "again-put",
                "the same 64 MiB random file again over 80 Mbit/s",
                mid,
                Way::Put,
                store_lanes(Some(SCP)),
                vec![goal("again", "scp", 0.10), goal("store on", "store off", 1.10)],
            )
        },
        row(
            "store-put",
            "the store on and off, 1 GiB on loopback",
            big,
            Way::Put,
            store_lanes(None),
            vec![goal("store on", "store off", 1.10)],
        ),
        RemoteRow {
            line: Line::Far,
            rounds: 2,
            ..row(
                "far-put",
                "2,000 x 4 KiB with 50 ms there and back, PUT",
                few,
                Way::Put,
                far_lanes(TAR_PUT),
                far_goals(),
            )
        },
        RemoteRow {
            line: Line::Far,
            rounds: 2,
            ..row(
                "far-get",
                "2,000 x 4 KiB with 50 ms there and back, GET",
                few,
                Way::Get,
                far_lanes(TAR_GET),
                far_goals(),
            )
        },
        row(
            "fast-get",
            "--fast against default, 1 GiB GET, no compression",
            big,
            Way::Get,
            vec![
                lane("default", "bcmr copy -F {F} --compress=none {s} {d}"),
                lane("fast", "bcmr copy -F {F} --compress=none --fast {s} {d}"),
                lane("default 1", "bcmr copy -F {F} --parallel 1 --compress=none {s} {d}"),
                lane("fast 1", "bcmr copy -F {F} --parallel 1 --compress=none --fast {s} {d}"),
            ],
            vec![goal("fast", "default", 0.90), goal("fast 1", "default 1", 0.90)],
        ),
        on_disk(row(
            "sync-put",
            "--sync on 10,000 x 64 KiB, PUT",
            many,
            Way::Put,
            vec![ONE_R, lane("sync", "bcmr copy -F {F} --parallel 1 -r --sync {s} {d}")],
            vec![goal("sync", "bcmr", 1.5)],
        )),
        on_disk(row(
            "sync-get",
            "--sync on 10,000 x 64 KiB, GET",
            many,
            Way::Get,
            vec![ONE_R, lane("sync", "bcmr copy -F {F} --parallel 1 -r --sync {s} {d}")],
            vec![goal("sync", "bcmr", 1.5)],
        )),
        on_disk(RemoteRow {
            rounds: 2,
            ..row(
                "resume-put",
                "going on at 90 % of 1 GiB, PUT",
                big,
                Way::Put,
                resume_lanes(),
                resume_goals(),
            )
        }),
        on_disk(RemoteRow {
            rounds: 2,
            ..row(
                "resume-get",
                "going on at 90 % of 1 GiB, GET",
                big,
                Way::Get,
                resume_lanes(),
                resume_goals(),
            )
        }),
        RemoteRow {
            rounds: 2,
            ..row(
                "streams-get",
                "10,000 x 64 KiB over 1, 2, 4 and 8 connections",
                many,
                Way::Get,
                vec![
                    SCP_R,
                    lane("bcmr 1", "bcmr copy -F {F} --parallel 1 -r {s} {d}"),
                    lane("bcmr 2", "bcmr copy -F {F} --parallel 2 -r {s} {d}"),
                    lane("bcmr 4", "bcmr copy -F {F} --parallel 4 -r {s} {d}"),
                    lane("bcmr 8", "bcmr copy -F {F} --parallel 8 -r {s} {d}"),
                    Lane {
                        needs: Needs::DirectPlane,
                        ..lane("bcmr direct", "bcmr copy -F {F} --direct=direct -r {s} {d}")
                    },
                ],
                vec![],
            )
        },
    ]
}

/// Beside the timed rows: what is only counted.
pub const COUNTED: [&str; 3] = ["memory", "store", "codec"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_name_lanes_and_a_store_that_is_used_again_was_filled() {
        for row in all(false) {
            for goal in &row.goals {
                for name in [goal.lane, goal.against] {
                    assert!(row.lanes.iter().any(|l| l.name == name), "{}: {name}", row.name);
                }
            }
            let mut names: Vec<_> = row.lanes.iter().map(|l| l.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), row.lanes.len(), "{}", row.name);
            for (before, lane) in row.lanes.iter().zip(row.lanes.iter().skip(1)) {
                assert!(lane.before != Before::Nothing || before.needs == Needs::Store, "{}", row.name);
            }
            assert!(row.name.ends_with(if row.way == Way::Put { "-put" } else { "-get" }), "{}", row.name);
        }
    }
}
