//! The table of the copying library: its copy against the standard library's.

use super::{Cache, Experiment, Line, Lines, MIB, Part, Work, cost, effect, line, ours, part};
use crate::bench::data::Set;
use crate::experiment::record::Claim;

const TEXT: &str = "fastcopy, Benchmark results";
const METHOD: &str = "In one process, by `fastcopy::copy` and by `std::fs::copy` in turns, the same files again and again for \
    a tenth of a second each, over the same destinations. Beside them the standard library of 2018, which is what the paper \
    compared with: read and write with a buffer of 8 KiB.";
const TODAY: &str = "The standard library has taken the library's way since 2018, as the paper itself says: on Linux it asks \
    for copy_file_range too. So the ratio to it is about 1 by now, and the old one is the comparison that was meant.";

const OLD: &str = "std of 2018";

pub fn all(quick: bool) -> Vec<Experiment> {
    let rounds = if quick { 3 } else { 11 };
    let three = |which: &str, fast: f64, std: f64| {
        vec![
            line(OLD, "inside lib-old {s} {d}", std),
            ours("std", "inside lib-std {s} {d}"),
            line("fastcopy", &format!("inside lib-{which} {{s}} {{d}}"), fast),
        ]
    };
    let on = |set, across, unit, lines: Vec<Line>| -> Vec<Part> {
        let lines = Lines { set, cache: Cache::Warm, across, rounds, lines };
        vec![part("the same files again and again", unit, Work::Lines(lines))]
    };
    let claims = |published: f64| -> Vec<Claim> {
        vec![
            if published < 0.97 {
                effect(0, "fastcopy / the standard library of 2018", "fastcopy", OLD, published)
            } else {
                cost(0, "fastcopy / the standard library of 2018", "fastcopy", OLD, published)
            },
            cost(0, "fastcopy / the standard library of today", "fastcopy", "std", 1.0),
        ]
    };
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
    vec![
        it(
            "library-1",
            "100 MB",
            "One call of the kernel is faster than reading and writing piece by piece.",
            TODAY,
            on(Set::One { bytes: 100 * MIB }, false, "ms", three("fast", 37.267_161, 47.247_206)),
            claims(37.267_161 / 47.247_206),
        ),
        it(
            "library-2",
            "10 MB",
            "One call of the kernel is faster than reading and writing piece by piece.",
            TODAY,
            on(Set::One { bytes: 10 * MIB }, false, "ms", three("fast", 3.091_479, 4.042_377)),
            claims(3.091_479 / 4.042_377),
        ),
        it(
            "library-3",
            "one small file",
            "For a small file it makes no difference.",
            TODAY,
            on(Set::One { bytes: 1 << 10 }, false, "µs", three("fast", 7.12, 7.179)),
            claims(7.12 / 7.179),
        ),
        it(
            "library-4",
            "100 small files",
            "There is a small gain with small files.",
            TODAY,
            on(small, false, "µs", three("fast", 717.79, 728.245)),
            claims(717.79 / 728.245),
        ),
        it(
            "library-5",
            "the primitive is not there",
            "Where the kernel has no copy_file_range, that is found out once and costs nothing afterwards.",
            "The paper ran a kernel without the call. Here the option that never shares blocks leaves the call out, for \
             every file.",
            on(small, false, "µs", three("without", 784.79, 783.031)),
            vec![cost(0, "fastcopy / the standard library of 2018", "fastcopy", OLD, 784.79 / 783.031)],
        ),
        it(
            "library-6",
            "100 small files from one mount to another",
            "Between file systems copy_file_range is refused for each file, which costs one call more.",
            "From tmpfs to the file system of the other experiments. That the call is refused is remembered here for each \
             pair of devices.",
            on(small, true, "ms", three("fast", 95.675_727, 83.424_127)),
            vec![cost(
                0,
                "fastcopy / the standard library of 2018",
                "fastcopy",
                OLD,
                95.675_727 / 83.424_127,
            )],
        ),
    ]
}
