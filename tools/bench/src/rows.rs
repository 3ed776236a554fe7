//! The table: which work, done by which tools, and what is promised of it. Measures nothing.

use crate::data::Set;

/// One line of the table.
pub struct Row {
    pub name: &'static str,
    pub title: &'static str,
    pub set: Set,
    pub verb: Verb,
    pub cache: Cache,
    pub until: Until,
    pub place: Place,
    pub tools: Vec<Tool>,
    pub goals: Vec<Goal>,
    /// Rounds, when none are asked for.
    pub rounds: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Copy,
    /// The tool takes away what lies at the destination.
    Remove,
    /// The tool compares source and destination and changes nothing.
    Compare,
}

/// Where the time of a run ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    End,
    /// With the first byte in a file beside the destination's name.
    FirstByte,
}

/// What is made at the destination before a run, outside its timing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Beforehand {
    Nothing,
    /// The directories of the source, empty.
    Dirs,
    /// A copy of the source with times and modes.
    Copy,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    Warm,
    /// Dropped before each run, which needs root.
    Cold,
}

/// Where source and destination lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the scratch directory.
    Scratch,
    /// On a fresh file system of this type in an image of so many bytes, which needs root.
    Loop { fs: &'static str, bytes: u64 },
}

/// A program under measurement. The first of a row is what the others are compared with.
#[derive(Clone)]
pub struct Tool {
    pub name: &'static str,
    /// `{s}` is the source, `{d}` the destination, `{o}` a new name on the file system of the scratch directory, where
    /// source and destination lie in an image.
    pub line: &'static str,
    pub before: Beforehand,
    /// Measured only where it is installed, and in fewer rounds.
    pub guest: bool,
}

/// What is promised.
#[derive(Clone)]
pub enum Goal {
    /// Wall time of bcmr over that of another tool.
    Wall { against: &'static str, most: f64 },
    /// CPU time (user and system), the same way.
    Cpu { against: &'static str, most: f64 },
    /// Wall time over that of the fastest of these, as far as they were there.
    Fastest { of: &'static [&'static str], most: f64 },
    /// Wall time above that of another tool.
    Above { against: &'static str, most_ms: f64 },
    /// Wall time.
    Within { most_ms: f64 },
    /// The copy takes the blocks that its source takes.
    Blocks,
}

/// The tool that the goals are about.
pub const OURS: &str = "bcmr";

const fn tool(name: &'static str, line: &'static str) -> Tool {
    Tool { name, line, before: Beforehand::Nothing, guest: false }
}
const fn guest(name: &'static str, line: &'static str) -> Tool {
    Tool { guest: true, ..tool(name, line) }
}
/// A tool that finds something at the destination.
const fn onto(before: Beforehand, name: &'static str, line: &'static str) -> Tool {
    Tool { before, ..tool(name, line) }
}
const CP: Tool = tool("cp", "cp {s} {d}");
const CP_R: Tool = tool("cp", "cp -r {s} {d}");
const BCMR: Tool = tool(OURS, "bcmr copy {s} {d}");
/// What `cargo build --release` makes, linked to the C library that is there; ours is the static one that users get.
pub const RELEASE: &str = "release";
const BCMR_RELEASE: Tool = tool(RELEASE, "release copy {s} {d}");
const BCMR_R: Tool = tool(OURS, "bcmr copy -r {s} {d}");
const RSYNC: Tool = guest("rsync", "rsync -a {s} {d}");
const RSYNC_R: Tool = guest("rsync", "rsync -a {s}/ {d}");
const XCP: Tool = guest("xcp", "xcp {s} {d}");
const XCP_R: Tool = guest("xcp", "xcp -r {s} {d}");
const CPZ: Tool = guest("cpz", "cpz {s} {d}");
const FCP: Tool = guest("fcp", "fcp {s} {d}");
const UUTILS: Tool = guest("uutils", "uutils {s} {d}");
const UUTILS_R: Tool = guest("uutils", "uutils -r {s} {d}");
/// What no copier can leave out, and nothing else.
pub const CEILING: &str = "ceiling";
const CEILING_ONE: Tool = tool(CEILING, "ceiling copy {s} {d} --buf 262144 --ladder on");
const CEILING_R: Tool =
    tool(CEILING, "ceiling copy {s} {d} --post-fstat off --ladder on --phases 16 --together on --turns on");

fn wall(most: f64) -> Goal {
    Goal::Wall { against: "cp", most }
}

/// Against the same program with plain system calls.
fn by_calls(most: f64) -> Goal {
    Goal::Wall { against: "sys", most }
}

/// The engines side by side; what is promised is of the ring, and `auto` is what people get.
fn ring() -> Vec<Tool> {
    vec![
        CP_R,
        tool("sys", "bcmr copy -r --engine=sys {s} {d}"),
        tool(OURS, "bcmr copy -r --engine=ring {s} {d}"),
        tool("auto", "bcmr copy -r {s} {d}"),
    ]
}

/// Every row. `quick` is a tenth of the data, to see that the machinery turns; its figures are not to be published.
pub fn all(quick: bool) -> Vec<Row> {
    let part = if quick { 10 } else { 1 };
    let big = Set::One { bytes: if quick { 128 << 20 } else { 1 << 30 } };
    let many = Set::Even { dirs: 100 / part, files_per_dir: 100, bytes: 64 << 10 };
    let source = Set::Source { files: 70_000 / part, dirs: 5_000 / part };
    let scattered = Set::Source { files: 7_800 / part, dirs: 1_750 / part };
    let kib = Set::Even { dirs: 500 / part, files_per_dir: 100, bytes: 1 << 10 };
    let small = Set::Even { dirs: 21, files_per_dir: 100, bytes: 4 << 10 };
    let flat = Set::Even { dirs: 1, files_per_dir: 100_000 / part, bytes: 1 << 10 };
    let tree = vec![CP_R, BCMR_R, CEILING_R, RSYNC_R, XCP_R, CPZ, FCP, UUTILS_R];
    let near = || Goal::Wall { against: CEILING, most: 1.25 };
    let close = || Goal::Wall { against: CEILING, most: 1.15 };
    let fastest = || Goal::Fastest { of: &["cpz", "xcp", "fcp", "uutils"], most: 0.95 };
    let image = 6 << 30;
    let row = |name, title, set, tools: Vec<Tool>, goals| Row {
        name,
        title,
        set,
        verb: Verb::Copy,
        cache: Cache::Warm,
        until: Until::End,
        place: Place::Scratch,
        tools,
        goals,
        rounds: 7,
    };
    let cold = |name, title, place| Row {
        cache: Cache::Cold,
        place,
        ..row(
            name,
            title,
            source,
            vec![CP_R, BCMR_R, RSYNC_R, CPZ],
            vec![wall(0.45), Goal::Wall { against: "cpz", most: 0.90 }],
        )
    };
    // A directory that exists takes files staged and renamed one by one.
    let into = |name, title, set| {
        let tools = vec![
            tool("new", "bcmr copy -r {s} {d}"),
            onto(Beforehand::Dirs, OURS, "bcmr copy -r {s}/. {d}"),
            onto(Beforehand::Dirs, "cp", "cp -r {s}/. {d}"),
        ];
        row(name, title, set, tools, vec![Goal::Wall { against: "new", most: 1.15 }])
    };
    let clone = |name, title, fs, set, goal| Row {
        place: Place::Loop { fs, bytes: image },
        tools: vec![tool("cp", "cp -r --reflink=auto {s} {d}"), BCMR_R, CPZ],
        ..row(name, title, set, vec![], vec![goal])
    };
    vec![
        row(
            "big",
            "one 1 GiB file, --reflink=disable",
            big,
            vec![
                tool("cp", "cp --reflink=never {s} {d}"),
                tool(OURS, "bcmr copy --reflink=disable {s} {d}"),
                CEILING_ONE,
                RSYNC,
                XCP,
                CPZ,
                FCP,
                UUTILS,
            ],
            vec![wall(0.50), close()],
        ),
        Row {
            rounds: 21,
            ..row(
                "mid",
                "one 32 MiB file, --reflink=disable",
                Set::One { bytes: 32 << 20 },
                vec![
                    tool("cp", "cp --reflink=never {s} {d}"),
                    tool(OURS, "bcmr copy --reflink=disable {s} {d}"),
                    CEILING_ONE,
                    RSYNC,
                ],
                vec![wall(0.75), close()],
            )
        },
        Row {
            rounds: 41,
            ..row(
                "start",
                "start-up and shut-down: one empty file",
                Set::One { bytes: 0 },
                vec![CP, BCMR, BCMR_RELEASE, RSYNC],
                vec![Goal::Above { against: "cp", most_ms: 0.5 }],
            )
        },
        Row {
            rounds: 41,
            until: Until::FirstByte,
            // Room is not reserved for so small a file: the first that is written is content.
            ..row(
                "first",
                "start to first byte: one 64 KiB file",
                Set::One { bytes: 64 << 10 },
                vec![CP, BCMR, BCMR_RELEASE],
                vec![Goal::Within { most_ms: 2.0 }],
            )
        },
        row(
            "many",
            "10,000 x 64 KiB in 100 directories",
            many,
            tree.clone(),
            vec![wall(0.55), fastest(), near()],
        ),
        Row {
            rounds: 15,
            ..row(
                "dirs",
                "7,800 files in 1,750 directories",
                scattered,
                tree.clone(),
                vec![wall(0.60), fastest(), near()],
            )
        },
        row(
            "kib",
            "50,000 x 1 KiB in 500 directories",
            kib,
            tree.clone(),
            vec![wall(0.60), fastest(), near()],
        ),
        Row {
            rounds: 15,
            ..row("small", "2,100 x 4 KiB tree", small, tree.clone(), vec![wall(0.60), fastest(), near()])
        },
        row(
            "source",
            "source tree: 70,000 files, 5,000 directories, 1 GB",
            source,
            tree.clone(),
            vec![wall(0.55), fastest(), near()],
        ),
        cold("source-cold", "source tree, cold cache", Place::Scratch),
        cold(
            "source-cold-image",
            "source tree, cold cache, ext4 in an image",
            Place::Loop { fs: "ext4", bytes: image },
        ),
        row("flat", "100,000 x 1 KiB in one directory", flat, tree, vec![wall(0.60), fastest(), near()]),
        Row {
            rounds: 15,
            ..row(
                "sparse",
                "10 GiB sparse file with 64 MiB of data",
                Set::Sparse { bytes: 10 << 30, data_bytes: 64 << 20 },
                vec![CP, BCMR],
                vec![wall(1.0), Goal::Blocks],
            )
        },
        into("into", "source tree into directories that are there", source),
        into("into-many", "10,000 x 64 KiB into directories that are there", many),
        into("into-dirs", "7,800 files in 1,750 directories, into directories that are there", scattered),
        into("into-kib", "50,000 x 1 KiB into directories that are there", kib),
        into("into-flat", "100,000 x 1 KiB into a directory that is there", flat),
        row(
            "verify",
            "one 1 GiB file with -V, against cp and then b3sum of both",
            big,
            vec![tool("cp", "cp {s} {d} && b3sum {s} {d}"), tool(OURS, "bcmr copy -V {s} {d}")],
            vec![wall(0.55)],
        ),
        row(
            "sync",
            "10,000 x 64 KiB with --sync, against cp -r and sync -f",
            many,
            vec![tool("cp", "cp -r {s} {d} && sync -f {d}"), tool(OURS, "bcmr copy -r --sync {s} {d}")],
            vec![wall(0.80)],
        ),
        Row {
            verb: Verb::Compare,
            ..row(
                "check",
                "check of the source tree by size and time, against rsync -an",
                source,
                vec![
                    onto(Beforehand::Copy, "rsync", "rsync -an {s}/ {d}/"),
                    onto(Beforehand::Copy, OURS, "bcmr check -T {s} {d}"),
                ],
                vec![Goal::Wall { against: "rsync", most: 0.30 }],
            )
        },
        Row {
            verb: Verb::Compare,
            ..row(
                "check-hash",
                "check --hash of the source tree, against diff -r",
                source,
                vec![
                    onto(Beforehand::Copy, "diff", "diff -r --no-dereference {s} {d}"),
                    onto(Beforehand::Copy, OURS, "bcmr check --hash -T {s} {d}"),
                ],
                vec![Goal::Wall { against: "diff", most: 0.50 }],
            )
        },
        Row {
            place: Place::Loop { fs: "ext4", bytes: image },
            rounds: 5,
            ..row(
                "move",
                "source tree moved to another file system, against our own copy",
                source,
                vec![
                    tool("copy", "bcmr copy --archive {s} {o}"),
                    onto(Beforehand::Copy, OURS, "bcmr move {d} {o}"),
                    onto(Beforehand::Copy, "mv", "mv {d} {o}"),
                ],
                vec![Goal::Wall { against: "copy", most: 1.2 }],
            )
        },
        row(
            "archive",
            "--archive of the source tree, against cp -a and rsync -a",
            source,
            vec![tool("cp", "cp -a {s} {d}"), tool(OURS, "bcmr copy --archive {s} {d}"), RSYNC_R],
            vec![wall(0.45), Goal::Wall { against: "rsync", most: 0.20 }],
        ),
        clone(
            "xfs-big",
            "1 GiB file on xfs with reflink",
            "xfs",
            big,
            Goal::Above { against: "cp", most_ms: 0.5 },
        ),
        clone("btrfs-big", "1 GiB file on btrfs", "btrfs", big, Goal::Above { against: "cp", most_ms: 0.5 }),
        Row {
            cache: Cache::Cold,
            rounds: 3,
            ..row(
                "direct",
                "one 4 GiB file, cold cache, --direct-io",
                Set::One { bytes: if quick { 256 << 20 } else { 4 << 30 } },
                vec![
                    tool("cp", "cp --reflink=never {s} {d}"),
                    tool(OURS, "bcmr copy --reflink=disable --direct-io {s} {d}"),
                    tool("bcmr cached", "bcmr copy --reflink=disable {s} {d}"),
                    tool("dd", "dd if={s} of={d} iflag=direct oflag=direct bs=4M status=none"),
                ],
                vec![Goal::Wall { against: "dd", most: 1.05 }],
            )
        },
        Row {
            cache: Cache::Cold,
            rounds: 5,
            ..row(
                "ring-cold",
                "source tree, cold cache, by io_uring",
                source,
                ring(),
                vec![by_calls(0.85), wall(1.0)],
            )
        },
        Row {
            rounds: 5,
            ..row(
                "ring-warm",
                "10,000 x 64 KiB, by io_uring",
                many,
                ring(),
                vec![Goal::Cpu { against: "sys", most: 1.10 }, wall(1.0)],
            )
        },
        Row {
            rounds: 5,
            ..row(
                "ring-sync",
                "2,100 x 4 KiB with --sync, by io_uring",
                small,
                vec![
                    tool("sys", "bcmr copy -r --engine=sys --sync {s} {d}"),
                    tool(OURS, "bcmr copy -r --engine=ring --sync {s} {d}"),
                ],
                vec![by_calls(0.80)],
            )
        },
        Row {
            verb: Verb::Remove,
            ..row(
                "remove",
                "remove of the source tree, against rm -rf",
                source,
                vec![
                    onto(Beforehand::Copy, "rm", "rm -rf {d}"),
                    onto(Beforehand::Copy, OURS, "bcmr remove -r -f {d}"),
                ],
                vec![Goal::Wall { against: "rm", most: 0.50 }],
            )
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_us_and_what_its_goals_name() {
        for row in all(false) {
            let has = |name: &str| row.tools.iter().any(|t| t.name == name);
            assert!(has(OURS) && row.tools[0].name != OURS, "{}", row.name);
            for goal in &row.goals {
                match goal {
                    Goal::Wall { against, .. } | Goal::Cpu { against, .. } | Goal::Above { against, .. } => {
                        assert!(has(against), "{}: {against}", row.name);
                    }
                    Goal::Fastest { of, .. } => assert!(of.iter().all(|name| has(name)), "{}", row.name),
                    Goal::Blocks => assert!(row.verb == Verb::Copy),
                    Goal::Within { .. } => {}
                }
            }
        }
    }
}
