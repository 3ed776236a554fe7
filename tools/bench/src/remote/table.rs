//! The rows of `bench remote`, with what is promised of each. Measures nothing.

use super::rows::{
    Before, DEFAULT, DIRECT, Lane, LaneGoal, LaneKind, Line, Needs, ONE_R, RemoteRow, SCP, SCP_R, Storage,
    Way, lane,
};
use crate::data::Set;

/// Beside the timed rows: what is only counted.
pub const COUNTED: [&str; 4] = ["memory", "serve", "store", "codec"];

/// What promises nothing on speed itself is measured so many times.
const GUEST: usize = 2;
/// What the slow line carries in a second, and the long one.
const SLOW_BITS: u64 = 80_000_000;
const LONG_BITS: u64 = 1_000_000_000;

const RSYNC: Lane = Lane { rounds: GUEST, ..lane("rsync", "rsync -a -e {e} {s} {d}") };
const RSYNC_R: Lane = lane("rsync", "rsync -a -e {e} {s}/ {d}");
/// With the cipher that bcmr prefers by itself; without it what ssh prefers.
const SCP_AES: Lane = lane("scp aes", "scp -F {F} -c aes128-gcm@openssh.com -q {s} {d}");
const SCP_AES_R: Lane = lane("scp aes", "scp -F {F} -c aes128-gcm@openssh.com -q -r {s} {d}");
const TAR_PUT: Lane = lane("tar", "tar -C {sp} -cf - . | ssh -F {F} there 'mkdir {dp} && tar -C {dp} -xf -'");
const TAR_GET: Lane = lane("tar", "mkdir {dp} && ssh -F {F} there 'tar -C {sp} -cf - .' | tar -C {dp} -xf -");
const TAR_AES_PUT: Lane = lane(
    "tar aes",
    "tar -C {sp} -cf - . | ssh -F {F} -c aes128-gcm@openssh.com there 'mkdir {dp} && tar -C {dp} -xf -'",
);
const TAR_AES_GET: Lane = lane(
    "tar aes",
    "mkdir {dp} && ssh -F {F} -c aes128-gcm@openssh.com there 'tar -C {sp} -cf - .' | tar -C {dp} -xf -",
);
/// What the fastest cipher takes by itself: what goes through one ssh cannot be faster.
const SSH_PUT: Lane = lane("ssh", "cat {sp} | ssh -F {F} -c aes128-gcm@openssh.com there 'cat > {dp}'");
const SSH_GET: Lane = lane("ssh", "ssh -F {F} -c aes128-gcm@openssh.com there 'cat {sp}' | cat > {dp}");
const DEFAULT_R: Lane = lane("bcmr", "bcmr copy -F {F} -r {s} {d}");
/// Nothing but the unavoidable: see `ceiling.rs`.
const CEILING_PUT: Lane = lane("ceiling", "ceiling put {F} {a} 2 {sp} {dp}");
const CEILING_GET: Lane = lane("ceiling", "ceiling get {F} {a} 2 {sp} {dp}");

fn goal(lane: &'static str, against: &'static str, most: f64) -> LaneGoal {
    LaneGoal { lane, against, most }
}

fn row(
    (name, title): (&'static str, &'static str),
    set: Set,
    way: Way,
    lanes: Vec<Lane>,
    goals: Vec<LaneGoal>,
) -> RemoteRow {
    let (line, place) = (Line::Loopback, Storage::Scratch);
    RemoteRow { name, title, set, way, line, place, lanes, goals, rounds: 3 }
}

/// One for the way there, and one for the way back.
fn of_way<T>(way: Way, put: T, get: T) -> T {
    if way == Way::Put { put } else { get }
}

/// How large the data are.
#[derive(Clone, Copy)]
struct Sets {
    part: u64,
}

impl Sets {
    fn big(self) -> Set {
        Set::One { bytes: (1 << 30) / self.part }
    }
    fn mid(self) -> Set {
        Set::One { bytes: (64 << 20) / self.part.min(2) }
    }
    fn many(self) -> Set {
        Set::Even { dirs: 100 / self.part, files_per_dir: 100, bytes: 64 << 10 }
    }
    fn kib(self) -> Set {
        Set::Even { dirs: 500 / self.part, files_per_dir: 100, bytes: 1 << 10 }
    }
    fn source(self) -> Set {
        Set::Source { files: 70_000 / self.part, dirs: 5_000 / self.part }
    }
    fn few(self) -> Set {
        Set::Even { dirs: 20 / self.part, files_per_dir: 100, bytes: 4 << 10 }
    }
    fn settled(self) -> Set {
        Set::Even { dirs: 1000 / self.part, files_per_dir: 100, bytes: 1 << 10 }
    }
    fn text(self) -> Set {
        Set::Text { bytes: (256 << 20) / self.part }
    }
}

/// Every timed row. `quick` is a tenth of the data, to see that the machinery turns; its figures are not to be published.
pub fn all(quick: bool) -> Vec<RemoteRow> {
    let sets = Sets { part: if quick { 10 } else { 1 } };
    let mut rows = Vec::new();
    for way in [Way::Put, Way::Get] {
        rows.extend([many(sets, way), kib(sets, way), source(sets, way), big(sets, way)]);
    }
    for way in [Way::Put, Way::Get] {
        rows.extend([
            far(sets, way),
            farther(sets, way),
            long(sets, way),
            text(sets, way),
            settled(sets, way),
        ]);
    }
    rows.extend(stored(sets));
    rows.push(without_hashes(sets));
    for way in [Way::Put, Way::Get] {
        rows.extend([synced(sets, way), resumed(sets, way)]);
    }
    rows.push(connections(sets));
    if quick {
        // To see that it works, no copier has to come to its end.
        let lanes = rows.iter_mut().flat_map(|row| &mut row.lanes);
        lanes.filter(|lane| lane.stop_s.is_some()).for_each(|lane| lane.stop_s = Some(3));
    }
    rows
}

fn many(sets: Sets, way: Way) -> RemoteRow {
    let named = of_way(way, ("many-put", "10,000 x 64 KiB, PUT"), ("many-get", "10,000 x 64 KiB, GET"));
    let lanes = vec![SCP_R, SCP_AES_R, RSYNC_R, of_way(way, TAR_AES_PUT, TAR_AES_GET), ONE_R];
    row(named, sets.many(), way, lanes, vec![goal("bcmr", "scp", 0.35), goal("bcmr", "rsync", 0.75)])
}

fn kib(sets: Sets, way: Way) -> RemoteRow {
    let named = of_way(way, ("kib-put", "50,000 x 1 KiB, PUT"), ("kib-get", "50,000 x 1 KiB, GET"));
    row(named, sets.kib(), way, tree_lanes(way), tree_goals())
}

fn source(sets: Sets, way: Way) -> RemoteRow {
    let named = of_way(
        way,
        ("source-put", "source tree: 70,000 files, 5,000 directories, 1 GB, PUT"),
        ("source-get", "source tree: 70,000 files, 5,000 directories, 1 GB, GET"),
    );
    row(named, sets.source(), way, tree_lanes(way), tree_goals())
}

fn tree_lanes(way: Way) -> Vec<Lane> {
    vec![
        // It is so far away here that once is enough to know.
        Lane { rounds: 1, stop_s: Some(60), ..SCP_R },
        Lane { rounds: GUEST, ..RSYNC_R },
        of_way(way, TAR_PUT, TAR_GET),
        of_way(way, TAR_AES_PUT, TAR_AES_GET),
        DEFAULT_R,
    ]
}

fn tree_goals() -> Vec<LaneGoal> {
    vec![goal("bcmr", "tar aes", 0.80)]
}

fn big(sets: Sets, way: Way) -> RemoteRow {
    let named =
        of_way(way, ("big-put", "one 1 GiB random file, PUT"), ("big-get", "one 1 GiB random file, GET"));
    let lanes = vec![
        SCP,
        SCP_AES,
        RSYNC,
        of_way(way, SSH_PUT, SSH_GET),
        DEFAULT,
        lane("bcmr 1", "bcmr copy -F {F} --parallel 1 {s} {d}"),
        DIRECT,
        of_way(way, CEILING_PUT, CEILING_GET),
    ];
    let goals = vec![
        goal("bcmr", "ssh", 1.03),
        goal("bcmr direct", "ceiling", 1.25),
        goal("bcmr direct", "scp", 0.30),
    ];
    row(named, sets.big(), way, lanes, goals)
}

fn far(sets: Sets, way: Way) -> RemoteRow {
    let named = of_way(
        way,
        ("far-put", "2,000 x 4 KiB with 50 ms there and back, PUT"),
        ("far-get", "2,000 x 4 KiB with 50 ms there and back, GET"),
    );
    RemoteRow { line: Line::Far, ..row(named, sets.few(), way, far_lanes(way), far_goals()) }
}

fn farther(sets: Sets, way: Way) -> RemoteRow {
    let named = of_way(
        way,
        ("farther-put", "2,000 x 4 KiB with 100 ms there and back, PUT"),
        ("farther-get", "2,000 x 4 KiB with 100 ms there and back, GET"),
    );
    RemoteRow { line: Line::Farther, ..row(named, sets.few(), way, far_lanes(way), far_goals()) }
}

fn far_lanes(way: Way) -> Vec<Lane> {
    vec![
        // Minutes; and half a minute is enough to know that it is far behind.
        Lane { rounds: 1, stop_s: Some(30), ..SCP_R },
        Lane { rounds: GUEST, ..RSYNC_R },
        of_way(way, TAR_AES_PUT, TAR_AES_GET),
        DEFAULT_R,
    ]
}

fn far_goals() -> Vec<LaneGoal> {
    vec![goal("bcmr", "tar aes", 1.0)]
}

fn long(sets: Sets, way: Way) -> RemoteRow {
    let named = of_way(
        way,
        ("long-put", "1 GiB over 1 Gbit/s, 100 ms, 0.1 % lost, PUT"),
        ("long-get", "1 GiB over 1 Gbit/s, 100 ms, 0.1 % lost, GET"),
    );
    let direct = Lane {
        needs: Needs::DirectPlane,
        ..lane("bcmr direct 8", "bcmr copy -F {F} --direct=direct --parallel 8 {s} {d}")
    };
    let ceiling = of_way(way, "ceiling put {F} {a} 8 {sp} {dp}", "ceiling get {F} {a} 8 {sp} {dp}");
    let lanes = vec![
        Lane { kind: LaneKind::LineTime { bits_s: LONG_BITS }, ..lane("line", "1 GiB at 1 Gbit/s") },
        lane("ceiling", ceiling),
        Lane { rounds: 1, stop_s: Some(60), ..SCP_AES },
        direct,
        lane("bcmr", "bcmr copy -F {F} {s} {d}"),
    ];
    // 0.95 of what the line carries.
    let goals = vec![goal("bcmr direct 8", "line", 1.0 / 0.95)];
    RemoteRow { line: Line::Long, ..row(named, sets.big(), way, lanes, goals) }
}

fn text(sets: Sets, way: Way) -> RemoteRow {
    let named = of_way(
        way,
        ("text-put", "256 MiB of source text over 80 Mbit/s, PUT"),
        ("text-get", "256 MiB of source text over 80 Mbit/s, GET"),
    );
    let packed = Lane {
        kind: LaneKind::PackedTime { bits_s: SLOW_BITS },
        ..lane("zstd on the line", "what `zstd -3` leaves at 80 Mbit/s")
    };
    let mut lanes = vec![Lane { rounds: 1, ..SCP }, packed, DEFAULT];
    if way == Way::Put {
        lanes.extend([
            Lane { rounds: 1, ..lane("bcmr none", "bcmr copy -F {F} --compress=none {s} {d}") },
            lane("bcmr lz4", "bcmr copy -F {F} --compress=lz4 {s} {d}"),
            lane("bcmr zstd", "bcmr copy -F {F} --compress=zstd {s} {d}"),
        ]);
    }
    let goals = vec![goal("bcmr", "zstd on the line", 1.05)];
    RemoteRow { line: Line::Slow, ..row(named, sets.text(), way, lanes, goals) }
}

fn settled(sets: Sets, way: Way) -> RemoteRow {
    let named = of_way(
        way,
        ("settled-put", "100,000 x 1 KiB that are there already, with 50 ms there and back, PUT"),
        ("settled-get", "100,000 x 1 KiB that are there already, with 50 ms there and back, GET"),
    );
    let again = Lane { before: Before::Copied, ..RSYNC_R };
    let ours = lane("bcmr", "bcmr copy -F {F} -r -p -T --update=different {s} {d}");
    let lanes = vec![again, Lane { before: Before::Copied, ..ours }];
    RemoteRow { line: Line::Far, ..row(named, sets.settled(), way, lanes, vec![goal("bcmr", "rsync", 0.5)]) }
}

fn stored(sets: Sets) -> Vec<RemoteRow> {
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
    vec![
        RemoteRow {
            line: Line::Slow,
            rounds: 2,
            ..row(
                ("again-put", "the same 64 MiB random file again over 80 Mbit/s"),
                sets.mid(),
                Way::Put,
                store_lanes(Some(SCP)),
                vec![goal("again", "scp", 0.10), goal("store on", "store off", 1.10)],
            )
        },
        row(
            ("store-put", "the store on and off, 1 GiB on loopback"),
            sets.big(),
            Way::Put,
            store_lanes(None),
            vec![goal("store on", "store off", 1.10)],
        ),
    ]
}

fn without_hashes(sets: Sets) -> RemoteRow {
    row(
        ("fast-get", "--fast against default, 1 GiB GET, no compression"),
        sets.big(),
        Way::Get,
        vec![
            lane("default", "bcmr copy -F {F} --compress=none {s} {d}"),
            lane("fast", "bcmr copy -F {F} --compress=none --fast {s} {d}"),
            lane("default 1", "bcmr copy -F {F} --parallel 1 --compress=none {s} {d}"),
            lane("fast 1", "bcmr copy -F {F} --parallel 1 --compress=none --fast {s} {d}"),
        ],
        vec![goal("fast", "default", 0.90), goal("fast 1", "default 1", 0.90)],
    )
}

fn synced(sets: Sets, way: Way) -> RemoteRow {
    let named = of_way(
        way,
        ("sync-put", "--sync on 10,000 x 64 KiB, PUT"),
        ("sync-get", "--sync on 10,000 x 64 KiB, GET"),
    );
    let lanes = vec![ONE_R, lane("sync", "bcmr copy -F {F} --parallel 1 -r --sync {s} {d}")];
    let made = row(named, sets.many(), way, lanes, vec![goal("sync", "bcmr", 1.5)]);
    RemoteRow { place: Storage::Disk, ..made }
}

fn resumed(sets: Sets, way: Way) -> RemoteRow {
    let named = of_way(
        way,
        ("resume-put", "going on at 90 % of 1 GiB, PUT"),
        ("resume-get", "going on at 90 % of 1 GiB, GET"),
    );
    let lanes = vec![
        lane("whole", "bcmr copy -F {F} -C {s} {d}"),
        Lane { before: Before::Killed, ..lane("going on", "bcmr copy -F {F} -C {s} {d}") },
    ];
    let made = row(named, sets.big(), way, lanes, vec![goal("going on", "whole", 0.20)]);
    RemoteRow { place: Storage::Disk, rounds: 2, ..made }
}

fn connections(sets: Sets) -> RemoteRow {
    let direct = Lane {
        needs: Needs::DirectPlane,
        ..lane("bcmr direct", "bcmr copy -F {F} --direct=direct -r {s} {d}")
    };
    let lanes = vec![
        SCP_R,
        lane("bcmr 1", "bcmr copy -F {F} --parallel 1 -r {s} {d}"),
        lane("bcmr 2", "bcmr copy -F {F} --parallel 2 -r {s} {d}"),
        lane("bcmr 4", "bcmr copy -F {F} --parallel 4 -r {s} {d}"),
        lane("bcmr 8", "bcmr copy -F {F} --parallel 8 -r {s} {d}"),
        direct,
    ];
    let named = ("streams-get", "10,000 x 64 KiB over 1, 2, 4 and 8 connections");
    RemoteRow { rounds: 2, ..row(named, sets.many(), Way::Get, lanes, Vec::new()) }
}

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
