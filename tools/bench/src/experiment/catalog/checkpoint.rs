//! The paper's "Streaming Checkpoint Copy": experiments 1 to 6.

use crate::data::Set;
use crate::experiment::bystander;
use crate::experiment::entry::{
    Experiment, LineSpec, MIB, PartSpec, Work, alike, claim, cold, cost, effect, line, ours, part, warm,
};
use crate::verdict::Rule;

const TEXTS: [&str; 7] = [
    "Streaming Checkpoint Copy, Experiment 1",
    "Streaming Checkpoint Copy, Experiment 2",
    "Streaming Checkpoint Copy, Experiment 3",
    "Streaming Checkpoint Copy, Experiment 4",
    "Streaming Checkpoint Copy, Experiment 5",
    "Streaming Checkpoint Copy, Experiment 6",
    "Streaming Checkpoint Copy, Page Cache Management",
];

pub fn all(quick: bool) -> Vec<Experiment> {
    let rounds = if quick { 2 } else { 5 };
    // What the disk makes noisy.
    let often = if quick { 2 } else { 9 };
    let file = |mib: u64| Set::One { bytes: mib * MIB };
    let sized = |mib: u64| if quick { mib / 4 } else { mib };
    let hashing = || {
        vec![
            ours("copy", "inside loop {s} {d}"),
            ours("copy and hash", "inside hashed {s} {d}"),
            ours("copy and hash, its state kept", "inside clones {s} {d}"),
        ]
    };
    let passes = |three, two| {
        vec![
            line("three passes", "inside passes3 {s} {d}", three),
            line("two passes", "inside passes2 {s} {d}", two),
            ours("bcmr -V", "bcmr copy --reflink=disable -V {s} {d}"),
        ]
    };
    let offset = |mib, rw, cfr| {
        let lines = vec![
            line("read and write", "inside rest-rw {s} {d}", rw),
            line("copy_file_range", "inside rest-cfr {s} {d}", cfr),
        ];
        part(format!("{} MiB, from a quarter on", sized(mib)), "ms", warm(file(sized(mib)), rounds, lines))
    };
    let every = |size: &str| format!("bcmr copy --reflink=disable -C --checkpoint-size {size} {{s}} {{d}}");
    let beside = |name: &str, flags: &str| {
        let line = format!("inside bystander {{s}} {{d}} -- bcmr copy --reflink=disable {flags} {{s}} {{d}}");
        LineSpec { needs: Some("--no-cache"), ..ours(name, &line) }
    };
    let growth = |says: &str, line: &str| claim(0, says, line, "undisturbed", Rule::Growth { most: 1.5 });
    let (least, most) = if quick { (128, 256) } else { (128, 1024) };
    let first = |mode: &str, mib: u64| format!("{mode}, {mib} MiB");
    vec![
        Experiment {
            id: "checkpoint-1",
            title: "hashing while copying",
            text: TEXTS[0],
            hypothesis: "BLAKE3 is faster than storage, so that hashing what passes by costs next to no time.",
            method: "One file of 512 MiB, read and written in blocks of 4 MiB by one thread: (A) copied only, (B) each block \
                also hashed into one hash, (C) and the state of the hash kept behind each block. The source in the page \
                cache, and not.",
            differs: "The paper's sizes are lost with its plot. On Linux it says that hashing is free; on macOS with a warm \
                cache it found 8 to 56 %.",
            parts: vec![
                part(format!("{} MiB, warm", sized(512)), "s", warm(file(sized(512)), often, hashing())),
                part(format!("{} MiB, cold", sized(512)), "s", cold(file(sized(512)), often, hashing())),
                part(
                    "BLAKE3 alone, one thread, in memory",
                    "MB/s",
                    warm(
                        file(64),
                        rounds,
                        vec![line("Linux, AVX-512 in the paper", "inside blake3 {s} {d}", 5400.0)],
                    ),
                ),
            ],
            claims: vec![
                cost(1, "cold: hashed / not hashed (free)", "copy and hash", "copy", 1.0),
                cost(0, "warm: hashed / not hashed (the worst on macOS)", "copy and hash", "copy", 1.56),
                cost(
                    1,
                    "cold: with its state kept / not hashed",
                    "copy and hash, its state kept",
                    "copy",
                    1.0,
                ),
                alike(0, "warm: keeping the state / not", "copy and hash, its state kept", "copy and hash"),
            ],
            never: None,
        },
        Experiment {
            id: "checkpoint-2",
            title: "two passes instead of three",
            text: TEXTS[1],
            hypothesis: "Hashing the source while it is copied saves one whole reading of it when the copy is verified.",
            method: "Three passes: copied, then both files read and hashed. Two: hashed while copied, then the copy read \
                and hashed. Both by one thread in the measuring program, in blocks of 4 MiB; and the program's `-V` beside \
                them.",
            differs: "The last part drops the page cache first; the paper expected 25 % of all passes there and did not \
                measure it.",
            parts: vec![
                part(format!("{} MiB", sized(64)), "ms", warm(file(sized(64)), rounds, passes(171.0, 163.0))),
                part(
                    format!("{} MiB", sized(256)),
                    "ms",
                    warm(file(sized(256)), rounds, passes(654.0, 623.0)),
                ),
                part(
                    format!("{} MiB", sized(512)),
                    "ms",
                    warm(file(sized(512)), rounds, passes(1426.0, 1251.0)),
                ),
                PartSpec {
                    published_unit: Some("passes"),
                    ..part(
                        format!("{} MiB, cold", sized(512)),
                        "ms",
                        cold(file(sized(512)), rounds, passes(4.0, 3.0)),
                    )
                },
            ],
            claims: vec![
                effect(2, "two passes / three, the largest", "two passes", "three passes", 1251.0 / 1426.0),
                effect(1, "two passes / three, the middle", "two passes", "three passes", 623.0 / 654.0),
                effect(0, "two passes / three, the smallest", "two passes", "three passes", 163.0 / 171.0),
                effect(3, "two passes / three, cold", "two passes", "three passes", 0.75),
                cost(2, "`-V` of the program / three passes", "bcmr -V", "three passes", 1251.0 / 1426.0),
            ],
            never: None,
        },
        Experiment {
            id: "checkpoint-3",
            title: "one block is read before going on, and not the whole prefix",
            text: TEXTS[2],
            hypothesis: "Checking the last block takes the same time whatever was written before it; hashing all of it \
                grows with it.",
            method: "A copy with a checkpoint every 4 MiB is killed when three quarters are on record, and the same command \
                goes on: `-C` and `-C --fast` read the last recorded block, `-s` hashes source and prefix. Measured is the \
                time from execve to the first write to the unfinished file, by strace, which stops the program at writes \
                only. Each run finds the very same stage and session.",
            differs: "The paper measured the check by itself; here a program starts, which takes some milliseconds, opens \
                its session and checks whose stage it is. Sizes are those of the whole file; the paper's smallest, of 64 MB, has \
                no session here and one of 128 MiB stands in its place, without a figure of the paper.",
            parts: vec![part(
                "time to the first byte",
                "ms",
                Work::Resume {
                    sizes: if quick {
                        vec![(128, None), (256, Some((62.5, 1.8)))]
                    } else {
                        vec![
                            (128, None),
                            (256, Some((62.5, 1.8))),
                            (512, Some((122.2, 1.8))),
                            (1024, Some((240.0, 1.8))),
                        ]
                    },
                    rounds: rounds.min(3),
                },
            )],
            claims: vec![
                claim(
                    0,
                    "one block (`-C --fast`): the largest / the smallest file",
                    &first("-C --fast", most),
                    &first("-C --fast", least),
                    Rule::Growth { most: 1.5 },
                ),
                claim(
                    0,
                    "one block (`-C`): the largest / the smallest file",
                    &first("-C", most),
                    &first("-C", least),
                    Rule::Growth { most: 1.5 },
                ),
                effect(
                    0,
                    "one block / hashing all again, the largest file",
                    &first("-C --fast", most),
                    &first("-s", most),
                    if quick { 1.8 / 62.5 } else { 1.8 / 240.0 },
                ),
            ],
            never: None,
        },
        Experiment {
            id: "checkpoint-4",
            title: "how often to make a checkpoint",
            text: TEXTS[3],
            hypothesis: "There is an interval at which syncing costs little and a crash loses little: 64 MiB.",
            method: "One file of 1 GiB with a session, warm, a checkpoint every 4, 16, 64 and 256 MiB, against a copy without \
                a session, which syncs nothing, against the same with one sync at the end, and against a session with one \
                checkpoint at the end.",
            differs: "The paper's figures are its Linux ones, as overhead over none; it does not say whether its baseline \
                ended with a sync, so there are all three. A checkpoint here is a record added to a file, not the file made \
                anew; and a file system in an image has a device of its own kind below it.",
            parts: vec![PartSpec {
                published_unit: Some("ratio"),
                ..part(
                    format!("one file of {} MiB", sized(1024)),
                    "s",
                    warm(
                        file(sized(1024)),
                        rounds,
                        vec![
                            line("no sync", "bcmr copy --reflink=disable {s} {d}", 1.0),
                            ours("--sync", "bcmr copy --reflink=disable --sync --no-cache=never {s} {d}"),
                            ours("at the end", &every("1024G")),
                            line("256 MiB", &every("256M"), 1.008),
                            line("64 MiB", &every("64M"), 1.039),
                            line("16 MiB", &every("16M"), 1.125),
                            line("4 MiB", &every("4M"), 1.37),
                        ],
                    ),
                )
            }],
            claims: vec![
                cost(0, "every 64 MiB / no sync at all", "64 MiB", "no sync", 1.039),
                cost(0, "every 64 MiB / one sync at the end", "64 MiB", "--sync", 1.039),
                cost(0, "every 64 MiB / one checkpoint at the end", "64 MiB", "at the end", 1.039),
                cost(0, "every 256 MiB / at the end", "256 MiB", "at the end", 1.008),
                cost(0, "every 16 MiB / at the end", "16 MiB", "at the end", 1.125),
                cost(0, "every 4 MiB / at the end", "4 MiB", "at the end", 1.37),
            ],
            never: None,
        },
        Experiment {
            id: "checkpoint-5",
            title: "F_FULLFSYNC against fsync",
            text: TEXTS[4],
            hypothesis: "F_FULLFSYNC, which empties the cache of the drive, costs no more than fsync, which does not.",
            method: "The paper wrote files of 4 to 256 MB on macOS and ended with the one call or the other.",
            differs: "",
            parts: Vec::new(),
            claims: Vec::new(),
            never: Some(
                "F_FULLFSYNC is a call of macOS, and the difference is one of its drives: fsync on Linux always empties \
                 the cache of the drive, so there is nothing that could stand in",
            ),
        },
        Experiment {
            id: "checkpoint-6",
            title: "copy_file_range from an offset",
            text: TEXTS[5],
            hypothesis: "The call of the kernel also goes on in the middle of a file, and saves carrying the bytes through \
                the program.",
            method: "The first quarter of the copy is there; what is measured is the rest, by copy_file_range and by \
                reading and writing 4 MiB at a time, both at offsets, warm.",
            differs: "The paper does not say where its offset was.",
            parts: vec![offset(64, 52.0, 42.0), offset(256, 185.0, 171.0), offset(512, 356.0, 323.0)],
            claims: vec![
                effect(
                    0,
                    "copy_file_range / read and write, the smallest",
                    "copy_file_range",
                    "read and write",
                    42.0 / 52.0,
                ),
                effect(
                    1,
                    "copy_file_range / read and write, the middle",
                    "copy_file_range",
                    "read and write",
                    171.0 / 185.0,
                ),
                effect(
                    2,
                    "copy_file_range / read and write, the largest",
                    "copy_file_range",
                    "read and write",
                    323.0 / 356.0,
                ),
            ],
            never: None,
        },
        Experiment {
            id: "checkpoint-7",
            title: "what a copy pushes out of the page cache",
            text: TEXTS[6],
            hypothesis: "A large copy pushes out of the page cache what others use; dropping its pages behind it leaves \
                that alone.",
            method: "Somebody has read a file of 96 MiB once. Then one file of 1 GiB that is not in the page cache is copied, \
                both within 256 MiB of memory and page cache (a control group). Measured is how long the other's file \
                takes to be read again.",
            differs: "The paper has no figures for it. Its program dropped pages of the source whoever had brought them \
                there; here only those of this run.",
            parts: vec![part(
                format!("{} MiB read again", bystander::FILE_MIB),
                "ms",
                warm(
                    file(sized(1024)),
                    rounds,
                    vec![
                        ours("undisturbed", "inside bystander {s} {d} -- true"),
                        beside("--sync", "--sync"),
                        beside("--sync, kept", "--sync --no-cache=never"),
                        beside("-C", "-C"),
                        beside("-C, kept", "-C --no-cache=never"),
                        ours("cp", "inside bystander {s} {d} -- cp --reflink=never {s} {d}"),
                    ],
                ),
            )],
            claims: vec![
                growth("after `--sync` / undisturbed", "--sync"),
                growth("after `-C` / undisturbed", "-C"),
                claim(
                    0,
                    "undisturbed / after `--sync` that keeps its pages (it matters)",
                    "undisturbed",
                    "--sync, kept",
                    Rule::Limit { most: 0.5 },
                ),
                claim(0, "undisturbed / after cp", "undisturbed", "cp", Rule::Limit { most: 0.5 }),
            ],
            never: None,
        },
    ]
}
