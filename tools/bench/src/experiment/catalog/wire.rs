//! The paper's "Wire Protocol & Remote Transfers": experiments 9, 11, 12, 14, 15, 17, 18, 19 and 20.

use crate::data::Set;
use crate::experiment::entry::{
    CodecFigure, Experiment, PartSpec, StoreFigure, Work, alike, claim, cost, effect, part,
};
use crate::remote::rows::{
    Before, DIRECT, Lane, Line, Needs, ONE_R, RemoteRow, SCP, SCP_R, Storage, Way, lane,
};
use crate::verdict::Rule;

/// A row with the paper's figures.
fn wire(title: &str, row: RemoteRow, published: &[(&'static str, f64)]) -> PartSpec {
    part(title, "s", Work::Wire { row, published: published.to_vec(), crowd: false })
}

/// The same with more busy threads than there are cores.
fn crowded(title: &str, row: RemoteRow, published: &[(&'static str, f64)]) -> PartSpec {
    part(title, "s", Work::Wire { row, published: published.to_vec(), crowd: true })
}

fn row(name: &'static str, set: Set, way: Way, line: Line, lanes: Vec<Lane>, rounds: usize) -> RemoteRow {
    RemoteRow { name, title: name, set, way, line, place: Storage::Scratch, lanes, goals: Vec::new(), rounds }
}

const fn store(name: &'static str, before: Before) -> Lane {
    Lane { needs: Needs::Store, before, ..lane(name, "bcmr copy -F {F} --compress=none --dedup {s} {d}") }
}

const fn direct(name: &'static str, line: &'static str) -> Lane {
    Lane { needs: Needs::DirectPlane, ..lane(name, line) }
}

pub fn all(quick: bool) -> Vec<Experiment> {
    let rounds = if quick { 1 } else { 3 };
    let part_of = if quick { 10 } else { 1 };
    let few = if quick { 1 } else { 3 };
    let gib = Set::One { bytes: (1 << 30) / part_of };
    // Large enough for the store.
    let noise = Set::One { bytes: (64 << 20) / part_of.min(2) };
    let text = Set::Text { bytes: (64 << 20) / part_of };
    let many = Set::Even { dirs: 100 / part_of, files_per_dir: 100, bytes: 64 << 10 };
    let fewer = Set::Even { dirs: 30 / part_of, files_per_dir: 100, bytes: 64 << 10 };
    let tiny = Set::Even { dirs: 20 / part_of, files_per_dir: 100, bytes: 4 << 10 };
    let tiny_files = 2000 / part_of;
    let fast_lanes = || {
        vec![
            lane("default", "bcmr copy -F {F} --compress=none {s} {d}"),
            lane("--fast", "bcmr copy -F {F} --compress=none --fast {s} {d}"),
        ]
    };
    let fast_one = |lanes: Vec<Lane>| {
        let one = [
            lane("default, one connection", "bcmr copy -F {F} --parallel 1 --compress=none {s} {d}"),
            lane("--fast, one connection", "bcmr copy -F {F} --parallel 1 --compress=none --fast {s} {d}"),
        ];
        lanes.into_iter().chain(one).collect::<Vec<_>>()
    };
    let streams = || {
        vec![
            lane("1", "bcmr copy -F {F} --parallel 1 -r {s} {d}"),
            lane("2", "bcmr copy -F {F} --parallel 2 -r {s} {d}"),
            lane("4", "bcmr copy -F {F} --parallel 4 -r {s} {d}"),
            lane("8", "bcmr copy -F {F} --parallel 8 -r {s} {d}"),
            SCP_R,
        ]
    };
    let streams_published = [("1", 67.3), ("2", 40.8), ("4", 23.7), ("8", 14.7), ("scp", 19.4)];
    // 1 GiB at so many MiB/s.
    let at = |mib_s: f64| 1024.0 / mib_s;
    vec![
        Experiment {
            id: "wire-9",
            title: "codecs for what is sent",
            text: "Wire Protocol & Remote Transfers, Experiment 9",
            hypothesis: "Packing pays whenever the network is slower than the codec: Zstd at level 3 for text, nothing for \
                what is random, and level 9 never.",
            method: "One block of 4 MiB packed and unpacked ten times by one thread, after a first time that does not \
                count; random bytes, text, and both by turns in pieces of 64 KiB. Ratio is what is left of 1; speeds in MB \
                of content a second. Then random bytes over loopback, with `--compress=zstd` and without.",
            differs: "The text is real and another than the paper's, which it does not name: Rust sources of the locked \
                dependencies of this program, one after the other in the order of their names. The paper's part B is a \
                test of the encoder on one block; here a whole transfer stands in for it.",
            parts: vec![
                part("ratio", "of 1", Work::Codecs(CodecFigure::Ratio)),
                part("packing", "MB/s", Work::Codecs(CodecFigure::Pack)),
                part("unpacking", "MB/s", Work::Codecs(CodecFigure::Unpack)),
                wire(
                    "random bytes over loopback",
                    row(
                        "noise-put",
                        gib,
                        Way::Put,
                        Line::Loopback,
                        vec![
                            lane("none", "bcmr copy -F {F} --compress=none {s} {d}"),
                            lane("zstd", "bcmr copy -F {F} --compress=zstd {s} {d}"),
                            lane("lz4", "bcmr copy -F {F} --compress=lz4 {s} {d}"),
                        ],
                        rounds,
                    ),
                    &[],
                ),
            ],
            claims: vec![
                effect(0, "text: what Zstd-3 leaves", "text, Zstd-3", "", 0.198),
                effect(0, "text: Zstd-3 / LZ4", "text, Zstd-3", "text, LZ4", 0.198 / 0.390),
                cost(0, "random: what Zstd-3 leaves", "random, Zstd-3", "", 1.0),
                effect(
                    1,
                    "text: speed of packing, Zstd-9 / Zstd-3",
                    "text, Zstd-9",
                    "text, Zstd-3",
                    47.2 / 320.5,
                ),
                cost(3, "random bytes sent: zstd / none (skipped by itself)", "zstd", "none", 1.0),
            ],
            never: None,
        },
        Experiment {
            id: "wire-11",
            title: "the same file again",
            text: "Wire Protocol & Remote Transfers, Experiment 11",
            hypothesis: "A receiver that remembers blocks need not be sent them a second time.",
            method: "64 MiB of random bytes sent twice, not packed: with an empty store, and again under another name.",
            differs: "The link is a stand-in: 80 Mbit/s (10 MB/s) by token buckets around a network namespace, and a relay \
                that holds every byte back, 30 ms there and back. The paper went over the internet.",
            parts: vec![wire(
                "64 MiB of random bytes, 80 Mbit/s and 30 ms",
                row(
                    "again-put",
                    noise,
                    Way::Put,
                    Line::Wide,
                    vec![
                        store("first", Before::EmptyStore),
                        store("again", Before::Nothing),
                        lane("no store", "bcmr copy -F {F} --compress=none --no-dedup {s} {d}"),
                        SCP,
                    ],
                    few,
                ),
                &[("first", 18.96), ("again", 12.93)],
            )],
            claims: vec![
                effect(0, "again / the first time", "again", "first", 12.93 / 18.96),
                cost(0, "the first time / without a store", "first", "no store", 1.0),
            ],
            never: None,
        },
        Experiment {
            id: "wire-12",
            title: "packing what is sent, over links",
            text: "Wire Protocol & Remote Transfers, Experiment 12",
            hypothesis: "Over a real link Zstd-3 wins, and LZ4 wins over nothing.",
            method: "64 MiB of source text over one link, with each codec.",
            differs: "The paper had three peers: two over the internet at about 10 MB/s, one on a LAN. The link here is a \
                stand-in: a network namespace behind a veth pair with a token bucket of 80 Mbit/s (10 MB/s) at both ends; \
                all three of the paper's ratios are compared with it. Its seconds are those of its host-L. The text is Rust \
                sources.",
            parts: vec![wire(
                "64 MiB of source text, 80 Mbit/s",
                row(
                    "text-put",
                    text,
                    Way::Put,
                    Line::Slow,
                    vec![
                        lane("none", "bcmr copy -F {F} --compress=none {s} {d}"),
                        lane("lz4", "bcmr copy -F {F} --compress=lz4 {s} {d}"),
                        lane("zstd", "bcmr copy -F {F} --compress=zstd {s} {d}"),
                        lane("auto", "bcmr copy -F {F} {s} {d}"),
                        SCP,
                    ],
                    few,
                ),
                &[("none", 18.18), ("lz4", 10.22), ("zstd", 3.25)],
            )],
            claims: vec![
                effect(0, "Zstd / none, host-L over the internet", "zstd", "none", 3.25 / 18.18),
                effect(0, "Zstd / none, host-M over the internet", "zstd", "none", 3.28 / 8.14),
                effect(0, "Zstd / none, host-N on a LAN", "zstd", "none", 1.82 / 9.58),
                effect(0, "LZ4 / none, host-L", "lz4", "none", 10.22 / 18.18),
            ],
            never: None,
        },
        Experiment {
            id: "wire-14",
            title: "`--fast`: nothing hashed on the way",
            text: "Wire Protocol & Remote Transfers, Experiment 14",
            hypothesis: "Not hashing at the server is a small win over a slow link and a larger one where the link is fast.",
            method: "A random file fetched with `--fast` and without, not packed: 1 GiB over loopback, 64 MiB over a slow \
                link.",
            differs: "The paper fetched 1 GiB over the slow link too, where seconds only grow with it. On loopback it first \
                found `--fast` 1.28 times slower, and 1.55 times faster after it had been mended: that is what is compared. \
                The slow link is a stand-in: 80 Mbit/s by token buckets around a network namespace.",
            parts: vec![
                wire(
                    "1 GiB over loopback",
                    row("fast-get", gib, Way::Get, Line::Loopback, fast_one(fast_lanes()), rounds),
                    &[("default", 4.43), ("--fast", 4.43 / 1.55)],
                ),
                wire(
                    "64 MiB over 80 Mbit/s",
                    row("fast-slow-get", noise, Way::Get, Line::Slow, fast_lanes(), few),
                    &[("default", 157.79 / 16.0), ("--fast", 147.35 / 16.0)],
                ),
            ],
            claims: vec![
                effect(0, "loopback: `--fast` / default", "--fast", "default", 1.0 / 1.55),
                effect(
                    0,
                    "loopback: the same over one connection",
                    "--fast, one connection",
                    "default, one connection",
                    1.0 / 1.55,
                ),
                cost(1, "slow link: `--fast` / default", "--fast", "default", 147.35 / 157.79),
            ],
            never: None,
        },
        Experiment {
            id: "wire-15",
            title: "the store stays under its cap",
            text: "Wire Protocol & Remote Transfers, Experiment 15",
            hypothesis: "Throwing out what was not used for longest keeps the store at its cap.",
            method: "Three different files of 24 MiB (six blocks each) sent to a server whose store may hold 32 MiB; what it \
                remembers is read from its index after each.",
            differs: "The paper's store held the blocks themselves; this one remembers where they landed, so its cap is one \
                on what it remembers, and an index is all that it takes of the disk.",
            parts: vec![
                part("what the store remembers", "MiB", Work::Store(StoreFigure::Remembered)),
                part(
                    "blocks that it remembers after the third file",
                    "blocks",
                    Work::Store(StoreFigure::Blocks),
                ),
                part("what it takes of the disk", "MiB", Work::Store(StoreFigure::Disk)),
            ],
            claims: vec![
                claim(0, "MiB remembered after any file", "at most", "", Rule::Limit { most: 32.0 }),
                alike(0, "after the third file / the cap: it is full", "after the third", "the cap"),
                claim(1, "blocks remembered after the third file", "in all", "", Rule::Limit { most: 8.0 }),
                claim(
                    1,
                    "blocks of the first file, used longest ago",
                    "of the first",
                    "",
                    Rule::Limit { most: 0.0 },
                ),
                alike(1, "blocks of the third file / its six: used last", "of the third", "of a file"),
            ],
            never: None,
        },
        Experiment {
            id: "wire-17",
            title: "a promise for each file, over the wire",
            text: "Wire Protocol & Remote Transfers, Experiment 17",
            hypothesis: "Syncing each file that arrives takes most of the time of many files; gated on `--sync`, the default \
                comes within about twice of scp.",
            method: "3,000 files of 64 KiB fetched over one connection, on a fresh ext4 in an image, where a sync costs what \
                it costs. What the old program did is done by scp and then `sync` of every name, one after the other. Then \
                one file of 1 GiB, with and without a promise.",
            differs: "10,000 files in the paper. Its old program is not here; scp with a sync for each name stands in for \
                it. The program's `--sync` promises the same, in batches. For the one file, what the old program did by \
                itself is what `--sync` does.",
            parts: vec![
                wire(
                    "3,000 x 64 KiB, ext4",
                    RemoteRow {
                        place: Storage::Disk,
                        ..row(
                            "sync-get",
                            fewer,
                            Way::Get,
                            Line::Loopback,
                            vec![
                                SCP_R,
                                ONE_R,
                                lane("bcmr --sync", "bcmr copy -F {F} --parallel 1 -r --sync {s} {d}"),
                                lane(
                                    "each by itself",
                                    "scp -F {F} -q -r {s} {d} && find {dp} -exec sync {} +",
                                ),
                            ],
                            few,
                        )
                    },
                    &[("scp", 3.11), ("bcmr", 6.35), ("bcmr --sync", 15.46), ("each by itself", 24.75)],
                ),
                wire(
                    "one file of 1 GiB, ext4",
                    RemoteRow {
                        place: Storage::Disk,
                        ..row(
                            "sync-one-get",
                            gib,
                            Way::Get,
                            Line::Loopback,
                            vec![
                                lane("default", "bcmr copy -F {F} --parallel 1 --compress=none {s} {d}"),
                                lane(
                                    "--sync",
                                    "bcmr copy -F {F} --parallel 1 --compress=none --sync {s} {d}",
                                ),
                                lane(
                                    "--fast",
                                    "bcmr copy -F {F} --parallel 1 --compress=none --fast {s} {d}",
                                ),
                                lane(
                                    "--fast --sync",
                                    "bcmr copy -F {F} --parallel 1 --compress=none --fast --sync {s} {d}",
                                ),
                            ],
                            few,
                        )
                    },
                    &[("default", 5.13), ("--sync", 8.27), ("--fast", 4.85), ("--fast --sync", 5.35)],
                ),
            ],
            claims: vec![
                effect(
                    0,
                    "no promise / a promise for each file by itself",
                    "bcmr",
                    "each by itself",
                    6.35 / 24.75,
                ),
                cost(0, "default / scp", "bcmr", "scp", 2.04),
                cost(0, "`--sync` / default", "bcmr --sync", "bcmr", 15.46 / 6.35),
                effect(1, "1 GiB: default / `--sync`", "default", "--sync", 5.13 / 8.27),
                effect(1, "1 GiB: `--fast` / `--fast --sync`", "--fast", "--fast --sync", 4.85 / 5.35),
            ],
            never: None,
        },
        Experiment {
            id: "wire-18",
            title: "requests under way at once",
            text: "Wire Protocol & Remote Transfers, Experiment 18",
            hypothesis: "A client that waits for each answer loses a round trip for every file; one that does not comes \
                within 18 % of scp.",
            method: "10,000 files of 64 KiB each way over one connection, and one file of 1 GiB, against scp. Then 2,000 \
                files of 4 KiB with 50 ms there and back: one request at a time would need at least 100 s.",
            differs: "This program never waited for each answer, so the form before the change is not here. 50 ms are a \
                relay that holds every byte back. Data lies on tmpfs.",
            parts: vec![
                wire(
                    "10,000 x 64 KiB, GET",
                    row("many-get", many, Way::Get, Line::Loopback, vec![SCP_R, ONE_R], rounds),
                    &[("scp", 3.02), ("bcmr", 3.58)],
                ),
                wire(
                    "10,000 x 64 KiB, PUT",
                    row("many-put", many, Way::Put, Line::Loopback, vec![SCP_R, ONE_R], rounds),
                    &[("scp", 3.10), ("bcmr", 3.67)],
                ),
                wire(
                    "1 GiB, GET",
                    row(
                        "big-get",
                        gib,
                        Way::Get,
                        Line::Loopback,
                        vec![
                            SCP,
                            lane("bcmr", "bcmr copy -F {F} --parallel 1 {s} {d}"),
                            lane("bcmr --fast", "bcmr copy -F {F} --parallel 1 --fast {s} {d}"),
                        ],
                        rounds,
                    ),
                    &[("scp", 2.41), ("bcmr", 5.05), ("bcmr --fast", 4.61)],
                ),
                wire(
                    "2,000 x 4 KiB, 50 ms there and back, GET",
                    row("far-get", tiny, Way::Get, Line::Far, vec![ONE_R], few),
                    &[],
                ),
            ],
            claims: vec![
                cost(0, "GET: default / scp", "bcmr", "scp", 1.18),
                cost(1, "PUT: default / scp", "bcmr", "scp", 1.18),
                cost(2, "1 GiB: default / scp", "bcmr", "scp", 2.09),
                cost(2, "1 GiB: `--fast` / scp", "bcmr --fast", "scp", 1.91),
                claim(
                    3,
                    "s at 50 ms: less than a round trip for each file",
                    "bcmr",
                    "",
                    Rule::Limit { most: tiny_files as f64 * 0.05 },
                ),
            ],
            never: None,
        },
        Experiment {
            id: "wire-19",
            title: "several connections",
            text: "Wire Protocol & Remote Transfers, Experiment 19",
            hypothesis: "One ssh connection is one stream of one cipher, which one core does; several connections are nearly \
                as many times faster, and pass scp.",
            method: "10,000 files of 64 KiB fetched over 1, 2, 4 and 8 connections; and 3,000 of them while twice as many \
                threads as there are cores do nothing but use them.",
            differs: "The paper ran on a machine of many cores with a load of 93. Here both sides share the few cores that \
                stand below, and the load is a stand-in of as many busy threads.",
            parts: vec![
                crowded(
                    "3,000 x 64 KiB, all cores busy",
                    row("crowd-get", fewer, Way::Get, Line::Loopback, streams(), few),
                    &streams_published,
                ),
                wire(
                    "10,000 x 64 KiB, no load",
                    row("streams-get", many, Way::Get, Line::Loopback, streams(), few),
                    &[],
                ),
            ],
            claims: vec![
                effect(0, "under load: 8 connections / 1", "8", "1", 14.7 / 67.3),
                effect(0, "under load: 4 connections / 1", "4", "1", 23.7 / 67.3),
                effect(0, "under load: 2 connections / 1", "2", "1", 40.8 / 67.3),
                effect(0, "under load: 8 connections / scp", "8", "scp", 14.7 / 19.4),
            ],
            never: None,
        },
        Experiment {
            id: "wire-20",
            title: "data beside ssh",
            text: "Wire Protocol & Remote Transfers, Experiment 20",
            hypothesis: "Sent over a TCP connection of its own, sealed, one large file is not bound to the speed of ssh.",
            method: "1 GiB of random bytes fetched, not packed and not hashed: by scp, through ssh, and by the direct plane, \
                over one and over four connections. The ceiling is one plain TCP stream of the file, read on one side and \
                thrown away on the other, as iperf3 does.",
            differs: "The paper went over a LAN that carries 41 MiB/s, with wireless links that varied, and took the best of \
                three. Here it is loopback, which no link bounds: ssh and the cores do. Its seconds follow from its MiB/s.",
            parts: vec![wire(
                "1 GiB, GET",
                row(
                    "direct-get",
                    gib,
                    Way::Get,
                    Line::Loopback,
                    vec![
                        SCP,
                        lane("ssh", "bcmr copy -F {F} --parallel 1 --compress=none --fast {s} {d}"),
                        direct(
                            "direct",
                            "bcmr copy -F {F} --direct=direct --parallel 1 --compress=none --fast {s} {d}",
                        ),
                        lane("ssh, 4", "bcmr copy -F {F} --parallel 4 --compress=none --fast {s} {d}"),
                        direct(
                            "direct, 4",
                            "bcmr copy -F {F} --direct=direct --parallel 4 --compress=none --fast {s} {d}",
                        ),
                        Lane { name: "direct, by itself", ..DIRECT },
                        lane("raw TCP", "inside tcp {sp} {dp}"),
                    ],
                    rounds,
                ),
                &[
                    ("scp", at(9.4)),
                    ("ssh", at(8.7)),
                    ("direct", at(26.7)),
                    ("ssh, 4", at(8.4)),
                    ("direct, 4", at(27.8)),
                    ("raw TCP", at(41.0)),
                ],
            )],
            claims: vec![
                effect(0, "direct / scp", "direct", "scp", 9.4 / 26.7),
                effect(0, "direct / ssh", "direct", "ssh", 8.7 / 26.7),
                cost(0, "ssh / scp", "ssh", "scp", 9.4 / 8.7),
                effect(0, "direct over four connections / scp", "direct, 4", "scp", 9.4 / 27.8),
                cost(0, "direct / one raw TCP stream", "direct", "raw TCP", 41.0 / 26.7),
                cost(0, "ssh / one raw TCP stream", "ssh", "raw TCP", 41.0 / 8.7),
            ],
            never: None,
        },
    ]
}
