//! The paper's "Local Multi-File Performance": experiments 7, 8, 10, 13 and 16.

use crate::data::Set;
use crate::experiment::entry::{Experiment, MIB, cost, effect, line, part, warm};

pub fn all(quick: bool) -> Vec<Experiment> {
    let few = if quick { 2 } else { 5 };
    let part_of = if quick { 10 } else { 1 };
    let small = Set::Even { dirs: 21, files_per_dir: 100, bytes: 4 << 10 };
    let many = Set::Even { dirs: 100 / part_of, files_per_dir: 100, bytes: 64 << 10 };
    let gib = |mib: u64| Set::One { bytes: if quick { mib / 8 } else { mib } * MIB };
    let jobs = |n: u32, published| {
        line(&format!("-j {n}"), &format!("bcmr copy -r --reflink=disable -j {n} {{s}} {{d}}"), published)
    };
    vec![
        Experiment {
            id: "local-7",
            title: "what a promise for each file costs",
            text: "Local Multi-File Performance, Experiment 7",
            hypothesis: "Syncing every file and its directory by itself is free for one large file and takes nearly all \
                of the time for thousands of small ones.",
            method: "2,100 files of 4 KiB in 21 directories, the source in the page cache, each copy under a new name. \
                What the old program did for each file is done by cp and then `sync` of every file and directory, one \
                after the other.",
            differs: "The paper ran macOS with F_FULLFSYNC, about 4 ms a call. Its old program is not here; cp with a sync \
                for each name stands in for it. The program's own `--sync` promises the same, in batches.",
            parts: vec![part(
                "2,100 x 4 KiB",
                "s",
                warm(
                    small,
                    few,
                    vec![
                        line("cp", "cp -R {s} {d}", 1.00),
                        line("rsync", "rsync -a {s}/ {d}", 0.75),
                        line("bcmr", "bcmr copy -r {s} {d}", 0.72),
                        line("bcmr --sync", "bcmr copy -r --sync {s} {d}", 9.90),
                        line("each by itself", "cp -R {s} {d} && find {d} -exec sync {} +", 9.90),
                    ],
                ),
            )],
            claims: vec![
                effect(
                    0,
                    "no promise / a promise for each file by itself",
                    "bcmr",
                    "each by itself",
                    0.72 / 9.90,
                ),
                cost(0, "default / cp", "bcmr", "cp", 0.72),
                cost(0, "default / rsync", "bcmr", "rsync", 0.72 / 0.75),
                cost(0, "`--sync` / default", "bcmr --sync", "bcmr", 9.90 / 0.72),
            ],
            never: None,
        },
        Experiment {
            id: "local-8",
            title: "several files at once",
            text: "Local Multi-File Performance, Experiment 8",
            hypothesis: "One file after the other leaves the queue of the device idle; more at once are faster, up to the \
                number of cores.",
            method: "10,000 files of 64 KiB in 100 directories, warm, `--jobs` from 1 to 32, without sharing blocks.",
            differs: "The paper's machine had eight cores; this one has as many as stand below, and more jobs than cores \
                bought little there either.",
            parts: vec![part(
                "10,000 x 64 KiB",
                "s",
                warm(
                    many,
                    few,
                    vec![
                        jobs(1, 6.52),
                        jobs(2, 5.23),
                        jobs(4, 5.05),
                        jobs(8, 4.16),
                        jobs(16, 4.39),
                        jobs(32, 3.91),
                    ],
                ),
            )],
            claims: vec![
                effect(0, "eight at once / one", "-j 8", "-j 1", 4.16 / 6.52),
                effect(0, "two at once / one", "-j 2", "-j 1", 5.23 / 6.52),
                cost(0, "32 at once / eight", "-j 32", "-j 8", 3.91 / 4.16),
            ],
            never: None,
        },
        Experiment {
            id: "local-10",
            title: "a hash that nobody reads",
            text: "Local Multi-File Performance, Experiment 10",
            hypothesis: "Hashing the whole source while copying is pure cost when nothing verifies it.",
            method: "One file of 32 MiB, warm, without sharing blocks: copied only, and with `-V`, which hashes what is \
                read and reads back what landed.",
            differs: "A copy without `-V`, `-C`, `-s` or `-a` hashes nothing here, where the paper's fast form still hashed \
                blocks; and `-V` here reads the copy again, so it does more.",
            parts: vec![part(
                "one file of 32 MiB",
                "ms",
                warm(
                    Set::One { bytes: 32 * MIB },
                    3 * few,
                    vec![
                        line("cp", "cp --reflink=never {s} {d}", 18.0),
                        line("bcmr", "bcmr copy --reflink=disable {s} {d}", 205.0),
                        line("bcmr -V", "bcmr copy --reflink=disable -V {s} {d}", 285.0),
                    ],
                ),
            )],
            claims: vec![
                effect(0, "no hash of the source / with it", "bcmr", "bcmr -V", 205.0 / 285.0),
                cost(0, "no hash / cp", "bcmr", "cp", 205.0 / 18.0),
                cost(0, "`-V` / cp", "bcmr -V", "cp", 285.0 / 18.0),
            ],
            never: None,
        },
        Experiment {
            id: "local-13",
            title: "one thread for the whole loop",
            text: "Local Multi-File Performance, Experiment 13",
            hypothesis: "When every read and every write is handed to another thread and waited for, handing over takes \
                most of the time.",
            method: "One file of 2 GiB, warm, blocks of 4 MiB. The two loops are in the measuring program: one thread that \
                reads and writes, and one that hands each call to a pool of two and waits. Then the program itself.",
            differs: "This program never had an asynchronous runtime, so there is no form before the change; a loop that \
                hands over every call stands in for it.",
            parts: vec![part(
                "one file of 2 GiB",
                "s",
                warm(
                    gib(2048),
                    few,
                    vec![
                        line("cp", "cp --reflink=never {s} {d}", 2.17),
                        line("call by call", "inside handed {s} {d}", 12.34),
                        line("one loop", "inside loop {s} {d}", 5.38),
                        line("bcmr", "bcmr copy --reflink=disable {s} {d}", 5.38),
                    ],
                ),
            )],
            claims: vec![
                effect(0, "one loop / handed over call by call", "one loop", "call by call", 5.38 / 12.34),
                cost(0, "the program / cp", "bcmr", "cp", 5.38 / 2.17),
            ],
            never: None,
        },
        Experiment {
            id: "local-16",
            title: "sessions, hashes and checkpoints only when asked for",
            text: "Local Multi-File Performance, Experiment 16",
            hypothesis: "A copy that nobody wants to resume must not pay for a session; without it the gap to cp nearly \
                closes.",
            method: "One file of 1 GiB, warm, without sharing blocks: plain, with a session (`-C`), verified (`-V`).",
            differs: "The paper ran macOS and APFS.",
            parts: vec![part(
                "one file of 1 GiB",
                "s",
                warm(
                    gib(1024),
                    few,
                    vec![
                        line("cp", "cp --reflink=never {s} {d}", 1.14),
                        line("bcmr", "bcmr copy --reflink=disable {s} {d}", 1.89),
                        line("bcmr -C", "bcmr copy --reflink=disable -C {s} {d}", 4.46),
                        line("bcmr -V", "bcmr copy --reflink=disable -V {s} {d}", 4.69),
                    ],
                ),
            )],
            claims: vec![
                effect(0, "no session / a session", "bcmr", "bcmr -C", 1.89 / 4.46),
                effect(0, "nothing verified / verified", "bcmr", "bcmr -V", 1.89 / 4.69),
                cost(0, "default / cp", "bcmr", "cp", 1.65),
                cost(0, "`-C` / cp", "bcmr -C", "cp", 3.91),
                cost(0, "`-V` / cp", "bcmr -V", "cp", 4.12),
            ],
            never: None,
        },
    ]
}
