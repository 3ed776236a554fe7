//! The documents and the picture of `bench remote`, from its record alone. Measures nothing.

use super::{LaneRecord, Remote, RowRecord, Run};
use crate::bench::measure::median;
use crate::bench::{report, rows as local, svg};
use crate::sh::Result;
use std::fmt::Write;
use std::path::Path;

/// `DIR/benchmarks-remote.json`, which `report` gives a section of its own.
pub const STEM: &str = "benchmarks-remote";
const EXPERIMENTS: &str = "experiments/wire.md";
const MIB: f64 = 1048576.0;
const MEMORY_MIB: f64 = 64.0;
const MORE_MIB: f64 = 32.0;

impl LaneRecord {
    fn cpu(&self, of: fn(&Run) -> f64) -> f64 {
        median(self.samples.iter().map(of))
    }

    fn seconds(&self) -> String {
        let stopped = self.samples.iter().any(|s| s.stopped);
        format!("{}{:.2}", if stopped { "> " } else { "" }, self.wall())
    }
}

/// One row on the terminal.
pub fn print(row: &RowRecord) {
    let base = row.lanes.iter().find(|l| !l.samples.is_empty());
    println!("  {:12} {:>9} {:>8} {:>8} {:>9} {:>7}", "", "wall s", "client", "server", "foreign s", "ratio");
    for lane in &row.lanes {
        if let Some(why) = &lane.absent {
            println!("  {:12} {why}", lane.name);
            continue;
        }
        let ratio = base.and_then(|b| row.paired(&lane.name, &b.name)).unwrap_or(f64::NAN);
        println!(
            "  {:12} {:>9} {:>8.2} {:>8.2} {:>9.2} {ratio:>7.2}",
            lane.name,
            lane.seconds(),
            lane.cpu(|s| s.client_cpu_s),
            lane.cpu(|s| s.server_cpu_s),
            lane.cpu(|s| s.foreign_s),
        );
    }
    for v in &row.verdicts {
        println!("  {} = {}, at most {:.2}: {}", v.goal, v.shown(), v.most, v.word().replace('*', ""));
    }
}

/// How many goals were met, and which were not.
pub fn summary(record: &Remote) -> String {
    let all = goals(record);
    let met = all.iter().filter(|g| g.word == "met").count();
    let mut text = format!("{met} of {} goals met", all.len());
    for goal in all.iter().filter(|g| g.word != "met") {
        let word = goal.word.replace('*', "");
        let _infallible =
            write!(text, "\n  {}: {} = {}, at most {}: {word}", goal.work, goal.goal, goal.value, goal.most);
    }
    text
}

/// One line of the table of goals.
struct GoalLine {
    work: String,
    goal: String,
    value: String,
    most: String,
    word: &'static str,
}

fn goals(record: &Remote) -> Vec<GoalLine> {
    let mut all = Vec::new();
    for row in &record.rows {
        for v in &row.verdicts {
            let absent = row.lanes.iter().any(|l| l.absent.is_some() && v.goal.starts_with(&l.name));
            all.push(GoalLine {
                work: row.title.clone(),
                goal: v.goal.clone(),
                value: v.shown(),
                most: format!("{:.2}", v.most),
                word: if absent { "not built yet" } else { v.word() },
            });
        }
    }
    for m in &record.memory {
        let most = MEMORY_MIB + MORE_MIB * (m.connections - 1) as f64;
        for (side, peak) in [("client", m.peaks.client), ("server", m.peaks.server)] {
            // Further connections have processes of their own over there; what they take counts.
            let kib = if side == "server" { peak.sum_kib } else { peak.most_kib };
            let mib = kib as f64 / 1024.0;
            all.push(GoalLine {
                work: format!("{} files, {}", m.files, m.line),
                goal: format!("MiB of the {side}"),
                value: format!("{mib:.1}"),
                most: format!("{most:.0}"),
                word: if mib <= most { "met" } else { "**MISSED**" },
            });
        }
    }
    if let Some(store) = &record.store {
        let most = store.held.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0);
        all.push(GoalLine {
            work: "three files of 24 MiB through a store of 32 MiB".to_owned(),
            goal: "MiB held at most".to_owned(),
            value: format!("{:.1}", most as f64 / MIB),
            most: format!("{:.0}", store.cap_bytes as f64 / MIB),
            word: if most <= store.cap_bytes { "met" } else { "**MISSED**" },
        });
    }
    all
}

/// `STEM.json` and `STEM.svg`.
pub fn write(record: &Remote, stem: &Path) -> Result {
    std::fs::write(stem.with_extension("json"), serde_json::to_string_pretty(record)? + "\n")?;
    std::fs::write(stem.with_extension("svg"), plot(record))?;
    Ok(())
}

/// Puts the rows among those kept before from the same machine, and writes the documents anew.
pub fn keep(mut record: Remote, docs: &Path) -> Result {
    let stem = docs.join(STEM);
    if let Ok(text) = std::fs::read_to_string(stem.with_extension("json")) {
        let before: Remote = serde_json::from_str(&text)?;
        // The headline ends with the date.
        let machine = |r: &Remote| r.machine.rsplit_once(", ").map(|(m, _)| m.to_owned());
        if machine(&before) == machine(&record) {
            let fresh = |old: &RowRecord| record.rows.iter().any(|new| new.name == old.name);
            let old: Vec<RowRecord> = before.rows.into_iter().filter(|row| !fresh(row)).collect();
            record.rows.extend(old);
            if record.memory.is_empty() {
                record.memory = before.memory;
            }
            if record.probes.is_empty() {
                record.probes = before.probes;
            }
            record.store = record.store.or(before.store);
            for (name, why) in before.left_out {
                record.left_out.entry(name).or_insert(why);
            }
            let measured: Vec<String> = record.rows.iter().map(|r| r.name.clone()).collect();
            record.left_out.retain(|name, _| !measured.contains(name));
        }
    }
    let order: Vec<&str> = super::rows::all(false).iter().map(|r| r.name).collect();
    record.rows.sort_by_key(|row| order.iter().position(|name| *name == row.name));
    write(&record, &stem)?;
    std::fs::create_dir_all(docs.join("experiments"))?;
    std::fs::write(docs.join(EXPERIMENTS), experiments(&record)?)?;
    report::document(docs)
}

/// The section of benchmarks.md.
pub fn section(text: &str, out: &mut String) -> Result {
    let record: Remote = serde_json::from_str(text)?;
    write!(
        out,
        "\n## remote\n\n{}; {}. Every command goes through the same private sshd; the others with ssh's stock\n\
         cipher, bcmr with the one it prefers by itself. Data lies on tmpfs, so that the line and the programs are\n\
         measured and no disk writes back in somebody else's turn; where a row is about the disk, on a fresh ext4 in\n\
         an image. 80 Mbit/s is a veth pair with a token bucket at both ends, 50 ms a relay that holds back every\n\
         byte. Each command's first copy was compared with the source. CPU of the client has its ssh in it, that of\n\
         the server everything below sshd. What the seed of the design says of the same stands in\n\
         [the experiments](experiments/wire.md).\n\n![ratios]({STEM}.svg)\n\n",
        record.machine, record.ssh
    )?;
    out.push_str("| workload | goal | measured | at most | |\n|---|---|---|---|---|\n");
    for g in goals(&record) {
        writeln!(out, "| {} | {} | {} | {} | {} |", g.work, g.goal, g.value, g.most, g.word)?;
    }
    if !record.left_out.is_empty() {
        out.push_str("\nNot measured:\n\n");
        for (name, why) in &record.left_out {
            writeln!(out, "- {name}: {why}")?;
        }
    }
    for row in &record.rows {
        table(row, record.cores, out)?;
    }
    if !record.memory.is_empty() {
        out.push_str(
            "\n### memory\n\nPeak resident memory (VmHWM) of the program's own processes, looked at 20 times a second.\n\n\
             | files | copy | s | client, MiB | server, MiB | processes there, and together |\n|---|---|---|---|---|---|\n",
        );
        for m in &record.memory {
            let mib = |kib: u64| kib as f64 / 1024.0;
            writeln!(
                out,
                "| {} | {} | {:.1} | {:.1} | {:.1} | {}, {:.1} MiB |",
                m.files,
                m.line,
                m.wall_s,
                mib(m.peaks.client.most_kib),
                mib(m.peaks.server.most_kib),
                m.peaks.server.processes,
                mib(m.peaks.server.sum_kib)
            )?;
        }
    }
    Ok(())
}

fn table(row: &RowRecord, cores: usize, out: &mut String) -> Result {
    let measured = || row.lanes.iter().filter(|l| !l.samples.is_empty());
    let disturbed =
        median(measured().flat_map(|l| l.samples.iter().map(|s| s.foreign_s / (s.wall_s * cores as f64))));
    write!(
        out,
        "\n### {}\n\n{} files, {:.1} MiB, on {}; others used {:.0} % of the machine meanwhile. `{}` at {}.\n\n\
         | command | wall, s | min - max | CPU client + server, s | ratio | rounds |\n|---|---|---|---|---|---|\n",
        row.title,
        row.data.files,
        row.data.bytes as f64 / MIB,
        row.file_system,
        disturbed * 100.0,
        row.command,
        row.commit
    )?;
    let base = measured().next().map(|l| l.name.clone()).unwrap_or_default();
    for lane in &row.lanes {
        let line = shown(&lane.line);
        if let Some(why) = &lane.absent {
            writeln!(out, "| {line} | {why} | | | | |")?;
            continue;
        }
        let walls = || lane.samples.iter().map(|s| s.wall_s);
        writeln!(
            out,
            "| {line} | {} | {:.2} - {:.2} | {:.2} + {:.2} | {} | {} |",
            lane.seconds(),
            walls().fold(f64::INFINITY, f64::min),
            walls().fold(0.0, f64::max),
            lane.cpu(|s| s.client_cpu_s),
            lane.cpu(|s| s.server_cpu_s),
            row.paired(&lane.name, &base).map_or_else(String::new, |r| format!("{r:.2}")),
            lane.samples.len()
        )?;
    }
    for lane in row.lanes.iter().filter(|l| !l.recorded_bytes.is_empty()) {
        let part = |b: &u64| *b as f64 / row.data.bytes as f64 * 100.0;
        let parts: Vec<String> = lane.recorded_bytes.iter().map(|b| format!("{:.0} %", part(b))).collect();
        writeln!(out, "\nRecorded when it was killed: {}.", parts.join(", "))?;
    }
    Ok(())
}

/// A command as one would type it, safe inside a table.
fn shown(line: &str) -> String {
    let line = line.replace("-F {F} ", "").replace("-e {e} ", "");
    let line = line.replace("{sp}", "SRC").replace("{dp}", "DST").replace("{s}", "SRC").replace("{d}", "DST");
    format!("`{}`", line.replace('|', "\\|"))
}

/// Every command's ratio to the first of its row, with the first goal as a line.
fn plot(record: &Remote) -> String {
    let mut groups = Vec::new();
    for row in &record.rows {
        let mut lanes = row.lanes.iter().filter(|l| !l.samples.is_empty());
        let Some(base) = lanes.next() else { continue };
        let bars = lanes.filter_map(|lane| {
            let value = row.paired(&lane.name, &base.name)?;
            Some(svg::Bar { label: lane.name.clone(), value, ours: lane.line.starts_with(local::OURS) })
        });
        let against = format!("/ {}", base.name);
        let goal = row.verdicts.iter().find(|v| v.goal.ends_with(&against)).map(|v| v.most);
        groups.push(svg::Group {
            title: row.title.clone(),
            base: base.name.clone(),
            bars: bars.collect(),
            goal,
        });
    }
    svg::draw(&record.machine, &groups)
}

// ---- the experiments of the seed ----

/// A figure of the seed and ours.
struct Beside<'a> {
    what: &'a str,
    seed_s: Option<f64>,
    /// Against which line of the same table the seed has its ratio.
    seed_ratio: Option<f64>,
    row: &'a str,
    lane: &'a str,
    against: &'a str,
}

const fn beside<'a>(
    what: &'a str,
    (seed_s, seed_ratio): (Option<f64>, Option<f64>),
    row: &'a str,
    lane: &'a str,
    against: &'a str,
) -> Beside<'a> {
    Beside { what, seed_s, seed_ratio, row, lane, against }
}

fn experiments(record: &Remote) -> Result<String> {
    let mut out = format!(
        "# Experiments: the wire\n\n\
         Written by `cargo xtask bench remote --write docs`, never by hand, from {STEM}.json beside\n\
         [the benchmarks](../benchmarks.md). The seed's own figures stand beside ours; its machines were others (a Xeon\n\
         and a Mac, links over the internet), so seconds say little and ratios within one experiment more.\n\n\
         {}; {}.\n",
        record.machine, record.ssh
    );
    codecs(record, &mut out)?;
    let s = |seconds: f64, ratio: f64| (Some(seconds), Some(ratio));
    part(
        record,
        &mut out,
        "Experiment 11: the same file again",
        "64 MiB of noise, over 80 Mbit/s here and about the same there. The seed's second run still took two thirds of \
         the first.",
        &[
            beside("first, the store empty", s(18.96, 1.0), "again-put", "store on", "store on"),
            beside("again", s(12.93, 12.93 / 18.96), "again-put", "again", "store on"),
            beside("first, no store", (None, None), "again-put", "store off", "store on"),
            beside("scp", (None, None), "again-put", "scp", "store on"),
        ],
    )?;
    part(
        record,
        &mut out,
        "Experiment 12: compression over a link",
        "64 MiB of source text; the seed's figures are those of its host-L (about 10 MB/s).",
        &[
            beside("none", s(18.18, 1.0), "text-put", "bcmr none", "bcmr none"),
            beside("LZ4", s(10.22, 10.22 / 18.18), "text-put", "bcmr lz4", "bcmr none"),
            beside("Zstd", s(3.25, 3.25 / 18.18), "text-put", "bcmr zstd", "bcmr none"),
            beside("auto", (None, None), "text-put", "bcmr", "bcmr none"),
            beside("scp", (None, None), "text-put", "scp", "bcmr none"),
        ],
    )?;
    part(
        record,
        &mut out,
        "Experiment 14: `--fast`",
        "1 GiB GET over loopback, no compression. In the seed `--fast` was the slower one.",
        &[
            beside("default", s(4.43, 1.0), "fast-get", "default", "default"),
            beside("`--fast`", s(5.69, 5.69 / 4.43), "fast-get", "fast", "default"),
            beside("default, one connection", (None, None), "fast-get", "default 1", "default"),
            beside("`--fast`, one connection", (None, None), "fast-get", "fast 1", "default"),
        ],
    )?;
    store(record, &mut out)?;
    part(
        record,
        &mut out,
        "Experiment 17: onto the medium",
        "10,000 x 64 KiB. The seed synced every file and then none; here `--sync` is a promise for the tree, kept in \
         batches.",
        &[
            beside("default", s(6.35, 1.0), "sync-get", "bcmr", "bcmr"),
            beside("`--sync`", s(15.46, 15.46 / 6.35), "sync-get", "sync", "bcmr"),
            beside("default, PUT", (None, None), "sync-put", "bcmr", "bcmr"),
            beside("`--sync`, PUT", (None, None), "sync-put", "sync", "bcmr"),
        ],
    )?;
    part(
        record,
        &mut out,
        "Experiment 18: one connection kept full",
        "Against scp in the same row. 100,000 x 1 KiB is ours alone.",
        &[
            beside("10,000 x 64 KiB, GET", s(3.58, 1.18), "many-get", "bcmr", "scp"),
            beside("10,000 x 64 KiB, PUT", s(3.67, 1.18), "many-put", "bcmr", "scp"),
            beside("1 GiB GET, default", s(5.05, 2.09), "big-get", "bcmr", "scp"),
            beside("1 GiB GET, one connection", (None, None), "big-get", "bcmr 1", "scp"),
            beside("100,000 x 1 KiB, GET", (None, None), "small-get", "bcmr", "scp"),
            beside("100,000 x 1 KiB, PUT", (None, None), "small-put", "bcmr", "scp"),
            beside("2,000 x 4 KiB at 50 ms, GET", (None, None), "far-get", "bcmr", "scp"),
        ],
    )?;
    part(
        record,
        &mut out,
        "Experiment 19: several connections",
        "10,000 x 64 KiB, GET, against one connection. The seed had many cores under a load of 93; here there are as \
         many as the first line says, and both sides of the copy share them.",
        &[
            beside("1", s(67.3, 1.0), "streams-get", "bcmr 1", "bcmr 1"),
            beside("2", s(40.8, 1.0 / 1.65), "streams-get", "bcmr 2", "bcmr 1"),
            beside("4", s(23.7, 1.0 / 2.84), "streams-get", "bcmr 4", "bcmr 1"),
            beside("8", s(14.7, 1.0 / 4.58), "streams-get", "bcmr 8", "bcmr 1"),
            beside("scp", s(19.4, 19.4 / 67.3), "streams-get", "scp", "bcmr 1"),
        ],
    )?;
    part(
        record,
        &mut out,
        "Experiment 20: the direct plane",
        "1 GiB GET, against scp; the seed's seconds follow from its MiB/s over a LAN, ours are over loopback.",
        &[
            beside("scp", s(1024.0 / 9.4, 1.0), "big-get", "scp", "scp"),
            beside("over ssh", s(1024.0 / 8.7, 9.4 / 8.7), "big-get", "bcmr 1", "scp"),
            beside("direct", s(1024.0 / 26.7, 9.4 / 26.7), "big-get", "bcmr direct", "scp"),
            beside("over ssh, 4 connections", s(1024.0 / 8.4, 9.4 / 8.4), "big-get", "bcmr 4", "scp"),
        ],
    )?;
    Ok(out)
}

fn part(record: &Remote, out: &mut String, title: &str, why: &str, lines: &[Beside]) -> Result {
    write!(
        out,
        "\n## {title}\n\n{why}\n\n| | seed, s | seed, ratio | here, s | here, ratio | |\n|---|---|---|---|---|---|\n"
    )?;
    let number = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.2}"));
    for line in lines {
        let row = record.rows.iter().find(|r| r.name == line.row);
        let lane = row.and_then(|r| r.lane(line.lane));
        let absent = row.and_then(|r| r.lanes.iter().find(|l| l.name == line.lane)?.absent.clone());
        let ours = row.and_then(|r| r.paired(line.lane, line.against));
        let word = match (line.seed_ratio, ours, absent) {
            (_, None, Some(_)) => "not built yet",
            (_, None, None) => "not measured",
            (Some(seed), Some(ours), _) if line.lane != line.against => {
                if ours <= seed {
                    "better or the same"
                } else {
                    "worse"
                }
            }
            _ => "",
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {word} |",
            line.what,
            number(line.seed_s),
            number(line.seed_ratio),
            lane.map_or_else(|| "-".to_owned(), LaneRecord::seconds),
            number(ours)
        )?;
    }
    Ok(())
}

/// Content, codec, ratio, and MB/s of packing and unpacking in the seed.
const SEED_CODECS: [(&str, &str, f64, f64, f64); 10] = [
    ("random", "LZ4", 1.004, 3578.2, 17330.5),
    ("random", "Zstd-1", 1.000, 4769.9, 33692.0),
    ("random", "Zstd-3", 1.000, 4655.3, 33635.0),
    ("random", "Zstd-9", 1.000, 2442.8, 31432.3),
    ("text", "LZ4", 0.390, 472.8, 1526.7),
    ("text", "Zstd-1", 0.210, 301.2, 871.9),
    ("text", "Zstd-3", 0.198, 320.5, 1012.1),
    ("text", "Zstd-9", 0.180, 47.2, 1130.9),
    ("mixed", "LZ4", 0.697, 863.4, 2875.6),
    ("mixed", "Zstd-3", 0.599, 457.2, 1971.9),
];

fn codecs(record: &Remote, out: &mut String) -> Result {
    out.push_str(
        "\n## Experiment 9: the codecs\n\nOne block of 4 MiB, packed and unpacked by one thread, MB of content a second. \
         The text is made, and so that\nit packs about as the seed's did; mixed is noise and text by turns, 64 KiB each.\n\n\
         | content | codec | seed: ratio | pack | unpack | here: ratio | pack | unpack |\n|---|---|---|---|---|---|---|---|\n",
    );
    for p in &record.probes {
        let seed = SEED_CODECS.iter().find(|s| (s.0, s.1) == (p.content.as_str(), p.codec.as_str()));
        let seed = seed.map_or_else(
            || "- | - | -".to_owned(),
            |(_, _, ratio, pack, unpack)| format!("{ratio:.3} | {pack:.0} | {unpack:.0}"),
        );
        writeln!(
            out,
            "| {} | {} | {seed} | {:.3} | {:.0} | {:.0} |",
            p.content, p.codec, p.ratio, p.pack_mb_s, p.unpack_mb_s
        )?;
    }
    if record.probes.is_empty() {
        out.push_str("\nNot measured.\n");
    }
    Ok(())
}

fn store(record: &Remote, out: &mut String) -> Result {
    out.push_str("\n## Experiment 15: the store stays under its cap\n\n");
    let Some(store) = &record.store else {
        let why = record.left_out.get("store").map_or("not measured", String::as_str);
        writeln!(out, "Three files of 24 MiB through a store of 32 MiB: {why}.")?;
        return Ok(());
    };
    out.push_str("Three files of 24 MiB through a store of 32 MiB.\n\n| | seed | here |\n|---|---|---|\n");
    let mib = |bytes: u64| bytes as f64 / MIB;
    writeln!(out, "| sent, MiB | 72 | {:.0} |", mib(store.sent_bytes))?;
    let last = store.held.last().copied().unwrap_or_default();
    writeln!(out, "| held after the third, MiB | 32 | {:.1} |", mib(last.0))?;
    writeln!(out, "| blocks then | 8 | {} |", last.1)?;
    let most = store.held.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0);
    writeln!(out, "| held at most after any, MiB | - | {:.1} |", mib(most))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_names_rows_and_lanes_that_exist() {
        let rows = super::super::rows::all(false);
        let record = Remote {
            schema: 1,
            machine: "a, today".to_owned(),
            cores: 2,
            ssh: String::new(),
            rows: rows
                .iter()
                .map(|row| RowRecord {
                    name: row.name.to_owned(),
                    title: row.title.to_owned(),
                    file_system: "tmpfs".to_owned(),
                    commit: String::new(),
                    command: String::new(),
                    data: crate::bench::data::Size::default(),
                    lanes: row
                        .lanes
                        .iter()
                        .map(|lane| LaneRecord {
                            name: lane.name.to_owned(),
                            line: lane.line.to_owned(),
                            absent: None,
                            samples: vec![Run {
                                wall_s: 2.0,
                                client_cpu_s: 1.0,
                                server_cpu_s: 1.0,
                                foreign_s: 0.0,
                                stopped: false,
                            }],
                            recorded_bytes: Vec::new(),
                        })
                        .collect(),
                    verdicts: Vec::new(),
                })
                .collect(),
            memory: Vec::new(),
            store: None,
            probes: Vec::new(),
            left_out: std::collections::BTreeMap::new(),
        };
        let text = experiments(&record).unwrap();
        // The codecs and the store were left out; every other line has its figures.
        assert_eq!(text.matches("not measured").count(), 1, "{text}");
        assert!(text.contains("| `--fast` | 5.69 | 1.28 | 2.00 | 1.00 | better or the same |"), "{text}");
        let dir = tempfile::tempdir().unwrap();
        keep(record, dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("benchmarks.md")).unwrap();
        assert!(text.contains("## remote") && text.contains("| `tar -C SRC -cf - . \\| ssh there"), "{text}");
    }
}
