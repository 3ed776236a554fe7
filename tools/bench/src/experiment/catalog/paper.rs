//! The paper "Asynchronous I/O for cp -r": its sweeps, with the program's ring in the place of Linux AIO.

use crate::data::Set;
use crate::experiment::entry::{
    Experiment, LineSpec, MIB, Work, alike, cold, cost, effect, line, ours, part, warm,
};
use crate::experiment::record::Claim;

const NEEDS: &str = "--engine";
/// The paper's defaults, spelled out.
const PAPER: [(&str, &str); 5] = [
    ("--block-size", "64K"),
    ("--queue-depth", "5"),
    ("--async-threshold", "1K"),
    ("--completion-timeout", "5"),
    ("--preallocate", "disable"),
];
const LARGE_TEXT: &str = "Asynchronous I/O for cp -r, 5.1.1 and 5.2.1";
const TREE_TEXT: &str = "Asynchronous I/O for cp -r, 5.1.2 and 5.2.2";
const LARGE: &str = "One file of 880 MiB. Cold: everything is written back and the page cache dropped before each run. The \
    paper's defaults are given as options; the program's own stand in lines of their own.";
const TREE: &str = "A tree of 8,000 files like a kernel's source (sizes log-normal around 4 KiB, links, directories of any \
    depth). Cold: everything is written back and the page cache dropped before each run. The paper's defaults are given as \
    options; the program's own stand in lines of their own.";
const DIFFERS: &str = "Linux AIO has its successor in io_uring, which the program uses. The paper's figures are those of its \
    ThinkPad with an SSD, on which it saw the largest differences; ten trials each.";
const DIFFERS_TREE: &str = "Linux AIO has its successor in io_uring, which the program uses. The paper's figures are those of \
    its ThinkPad with an SSD; it copied Linux 4.4, which is about seven times as large, and left out links and attributes.";

/// The ring with the paper's options, but for those in `others` and with what stands in `flags`.
fn ring(name: &str, others: &[(&str, &str)], flags: &str, published: f64) -> LineSpec {
    let mut words = format!("bcmr copy -r --reflink=disable --engine=ring{flags}");
    for (option, value) in PAPER {
        let other = others.iter().find(|(other, _)| *other == option);
        words.push_str(&format!(" {option} {}", other.map_or(value, |(_, value)| *value)));
    }
    LineSpec { needs: Some(NEEDS), ..line(name, &format!("{words} {{s}} {{d}}"), published) }
}

fn defaults(published: f64) -> LineSpec {
    ring("paper's defaults", &[], "", published)
}

fn cp(published: f64) -> LineSpec {
    line("cp", "cp -r --reflink=never {s} {d}", published)
}

fn engine(name: &str) -> LineSpec {
    let words = format!("bcmr copy -r --reflink=disable --engine={name} {{s}} {{d}}");
    LineSpec { needs: Some(NEEDS), ..ours(name, &words) }
}

const BASE: &str = "paper's defaults";

fn differs(says: &str, line: &str, published: f64) -> Claim {
    effect(0, says, line, BASE, published)
}

fn without_figures(lines: Vec<LineSpec>) -> Vec<LineSpec> {
    lines.into_iter().map(|l| LineSpec { published: None, ..l }).collect()
}

pub fn all(quick: bool) -> Vec<Experiment> {
    // As in the paper.
    let rounds = if quick { 1 } else { 10 };
    let file = Set::One { bytes: if quick { 64 } else { 880 } * MIB };
    let tree =
        if quick { Set::Source { files: 2000, dirs: 150 } } else { Set::Source { files: 8000, dirs: 560 } };
    let large = |cp_s: f64, default_s: f64, prepared_s: f64| {
        vec![
            cp(cp_s),
            defaults(default_s),
            ring("preallocated, read ahead", &[("--preallocate", "auto")], " --readahead", prepared_s),
            engine("auto"),
        ]
    };
    let whole = |cp_s: f64, default_s: f64| vec![cp(cp_s), defaults(default_s), engine("auto")];
    let sweep = |what: &str, work: Work| vec![part(format!("{what}, cold"), "s", work)];
    let one_large = |id, title, hypothesis, parts, claims| Experiment {
        id,
        title,
        text: LARGE_TEXT,
        hypothesis,
        method: LARGE,
        differs: DIFFERS,
        parts,
        claims,
        never: None,
    };
    let one_tree = |id, title, hypothesis, parts, claims| Experiment {
        text: TREE_TEXT,
        method: TREE,
        differs: DIFFERS_TREE,
        ..one_large(id, title, hypothesis, parts, claims)
    };
    let block = |size: &str, published| ring(size, &[("--block-size", size)], "", published);
    let wait =
        |ms: &str, published| ring(&format!("{ms} ms"), &[("--completion-timeout", ms)], "", published);
    let threshold = |size: &str, published| ring(size, &[("--async-threshold", size)], "", published);
    let depth = |n: &str, published| ring(n, &[("--queue-depth", n)], "", published);
    let no_difference = |says: &str, line: &str| alike(0, says, line, BASE);
    vec![
        one_large(
            "paper-1",
            "one large file",
            "Asynchronous requests let the kernel order the work, so that a copy with them comes near cp or passes it; \
             preallocating and reading ahead close most of the gap.",
            vec![
                part("cold", "s", cold(file, rounds, large(3.5, 9.0, 3.75))),
                part("warm (the paper's server)", "s", warm(file, rounds, large(1.49, 0.9, 0.82))),
            ],
            vec![
                cost(0, "cold: the paper's defaults / cp (its goal)", BASE, "cp", 1.5),
                effect(
                    0,
                    "cold: preallocated and read ahead / not",
                    "preallocated, read ahead",
                    BASE,
                    3.75 / 9.0,
                ),
                effect(1, "warm: the paper's defaults / cp", BASE, "cp", 0.9 / 1.49),
                cost(0, "cold: `--engine=auto` / cp", "auto", "cp", 1.0),
                cost(1, "warm: `--engine=auto` / cp", "auto", "cp", 1.0),
            ],
        ),
        one_large(
            "paper-2",
            "larger blocks for one large file",
            "Larger blocks mean fewer calls: faster up to 256 KiB, and slower again beyond.",
            sweep(
                "block size",
                cold(
                    file,
                    rounds,
                    vec![defaults(9.0), block("128K", 5.64), block("256K", 3.55), block("512K", 4.35)],
                ),
            ),
            vec![
                differs("256 KiB / 64 KiB", "256K", 3.55 / 9.0),
                differs("128 KiB / 64 KiB", "128K", 5.64 / 9.0),
                effect(0, "512 KiB / 256 KiB", "512K", "256K", 4.35 / 3.55),
            ],
        ),
        one_large(
            "paper-3",
            "the completion timeout, one large file",
            "How long to wait for completions does not matter: what the paper concludes. Its laptop seemed to show a \
             difference, which it takes for noise.",
            sweep(
                "completion timeout",
                cold(file, rounds, vec![defaults(9.0), wait("10", 3.81), wait("1", 3.23), wait("0", 3.26)]),
            ),
            vec![
                no_difference("10 ms / 5 ms: no difference", "10 ms"),
                no_difference("1 ms / 5 ms: no difference", "1 ms"),
                no_difference("0 ms / 5 ms: no difference", "0 ms"),
                differs("10 ms / 5 ms, as on the laptop", "10 ms", 3.81 / 9.0),
            ],
        ),
        one_tree(
            "paper-4",
            "a source tree",
            "Asynchronous requests come within one and a half times of cp on a tree of mostly small files.",
            vec![
                part("cold", "s", cold(tree, rounds, whole(12.75, 15.05))),
                part(
                    "warm (not in the paper)",
                    "s",
                    warm(tree, rounds, without_figures(whole(12.75, 15.05))),
                ),
            ],
            vec![
                cost(0, "cold: the paper's defaults / cp", BASE, "cp", 15.05 / 12.75),
                cost(1, "warm: the paper's defaults / cp (its goal)", BASE, "cp", 1.5),
                cost(0, "cold: `--engine=auto` / cp", "auto", "cp", 1.0),
                cost(1, "warm: `--engine=auto` / cp", "auto", "cp", 1.0),
            ],
        ),
        one_tree(
            "paper-5",
            "from which size on files are copied asynchronously",
            "Small files are faster without: a higher threshold helps a tree.",
            sweep(
                "threshold",
                cold(tree, rounds, vec![defaults(15.05), threshold("4K", 13.69), threshold("8K", 13.69)]),
            ),
            vec![
                differs("4 KiB / 1 KiB", "4K", 13.69 / 15.05),
                differs("8 KiB / 1 KiB", "8K", 13.69 / 15.05),
            ],
        ),
        one_tree(
            "paper-6",
            "smaller blocks for a source tree",
            "Buffers that most files do not fill cost time: smaller blocks are a little faster.",
            sweep(
                "block size",
                cold(tree, rounds, vec![defaults(15.05), block("32K", 14.37), block("16K", 14.37)]),
            ),
            vec![
                differs("32 KiB / 64 KiB", "32K", 14.37 / 15.05),
                differs("16 KiB / 64 KiB", "16K", 14.37 / 15.05),
            ],
        ),
        one_tree(
            "paper-7",
            "the queue's depth on a source tree",
            "More requests per file would mean fewer calls; in fact each needs its buffer, and it becomes slower.",
            sweep(
                "queue depth",
                cold(tree, rounds, vec![defaults(15.05), depth("16", 17.54), depth("32", 17.23)]),
            ),
            vec![differs("16 / 5", "16", 17.54 / 15.05), differs("32 / 5", "32", 17.23 / 15.05)],
        ),
        one_tree(
            "paper-8",
            "the completion timeout on a source tree",
            "How long to wait for completions does not matter on a tree: the kernel nearly always has some ready.",
            sweep(
                "completion timeout",
                cold(
                    tree,
                    rounds,
                    vec![defaults(15.05), wait("10", 14.52), wait("1", 14.13), wait("0", 14.46)],
                ),
            ),
            vec![
                no_difference("10 ms / 5 ms: no difference", "10 ms"),
                no_difference("1 ms / 5 ms: no difference", "1 ms"),
                no_difference("0 ms / 5 ms: no difference", "0 ms"),
            ],
        ),
    ]
}
