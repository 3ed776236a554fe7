//! The table of the copying library: its copy against the standard library's.

use crate::data::Set;
use crate::experiment::entry::{
    Cache, Experiment, LineSpec, Lines, MIB, PartSpec, Work, alike, cost, effect, line, ours, part,
};

const TEXT: &str = "fastcopy, Benchmark results";
const METHOD: &str = "In one process the same files again and again, for a tenth of a second each, the copies taken away \
    outside the timing: by the call, as the library did it; by read and write with a buffer of 8 KiB, as the standard \
    library of 2018 did, which is what the paper compared with; by the standard library of today, which has taken the \
    library's way; and by this program's own library of that name.";
const OLD: &str = "std of 2018";
const CALL: &str = "copy_file_range";
const OURS: &str = "this fastcopy";

pub fn all(quick: bool) -> Vec<Experiment> {
    let rounds = if quick { 3 } else { 11 };
    let ways = |call: &str, by_call: f64, std: f64| {
        vec![
            line(OLD, "inside lib-old {s} {d}", std),
            line(CALL, &format!("inside {call} {{s}} {{d}}"), by_call),
            ours("std", "inside lib-std {s} {d}"),
            ours(OURS, "inside lib-fast {s} {d}"),
        ]
    };
    let on = |set, across, unit, lines: Vec<LineSpec>| -> Vec<PartSpec> {
        let lines = Lines { set, cache: Cache::Warm, across, rounds, lines };
        vec![part("the same files again and again", unit, Work::Lines(lines))]
    };
    let today = || cost(0, "this program's library / the standard library of today", OURS, "std", 1.0);
    let faster =
        |published| vec![effect(0, "the call / the standard library of 2018", CALL, OLD, published), today()];
    let same = |says: &str| vec![alike(0, says, CALL, OLD), today()];
    let small = Set::Even { dirs: 1, files_per_dir: 100, bytes: 1 << 10 };
    let it = |id, title, hypothesis, differs, parts, claims| Experiment {
        id,
        title,
        text: TEXT,
        hypothesis,
        method: METHOD,
        differs,
        parts,
        claims,
        never: None,
    };
    const LARGE: &str = "One call of the kernel is faster than reading and writing piece by piece.";
    vec![
        it(
            "library-1",
            "100 MB",
            LARGE,
            "",
            on(Set::One { bytes: 100 * MIB }, false, "ms", ways("lib-call", 37.267_161, 47.247_206)),
            faster(37.267_161 / 47.247_206),
        ),
        it(
            "library-2",
            "10 MB",
            LARGE,
            "",
            on(Set::One { bytes: 10 * MIB }, false, "ms", ways("lib-call", 3.091_479, 4.042_377)),
            faster(3.091_479 / 4.042_377),
        ),
        it(
            "library-3",
            "one small file",
            "For a small file it makes no difference.",
            "",
            on(Set::One { bytes: 1 << 10 }, false, "µs", ways("lib-call", 7.12, 7.179)),
            same("the call / the standard library of 2018: no difference"),
        ),
        it(
            "library-4",
            "100 small files",
            "There is a small gain with small files.",
            "",
            on(small, false, "µs", ways("lib-call", 717.79, 728.245)),
            faster(717.79 / 728.245),
        ),
        it(
            "library-5",
            "the primitive is not there",
            "Where the kernel has no copy_file_range, that is found out once and costs nothing afterwards.",
            "The paper ran a kernel without the call. Here the call that finds it out is one that every kernel refuses.",
            on(small, false, "µs", ways("lib-refused", 784.432, 783.031)),
            same("known to be missing / the standard library of 2018: no difference"),
        ),
        it(
            "library-6",
            "100 small files from one mount to another",
            "Between file systems copy_file_range is refused for each file, which costs one call more and is negligible.",
            "From tmpfs to the file system of the other experiments. This program's library remembers for each pair of \
             devices that the call is refused.",
            on(small, true, "ms", ways("lib-call", 95.675_727, 83.424_127)),
            vec![
                cost(
                    0,
                    "refused for each file / the standard library of 2018",
                    CALL,
                    OLD,
                    95.675_727 / 83.424_127,
                ),
                cost(0, "remembered / the standard library of 2018", OURS, OLD, 1.0),
            ],
        ),
    ]
}
