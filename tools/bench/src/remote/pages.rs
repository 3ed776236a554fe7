//! The documents and the picture of `bench remote`, from its record alone. Measures nothing.

use super::record::{Bounds, LaneRecord, Remote, RemoteMemory, RemoteRowRecord, Run};
use super::table;
use crate::measure::median;
use crate::{record as local, rows, svg};
use sh::Result;
use std::fmt::Write;
use std::path::Path;

/// `DIR/benchmarks-remote.json`, which `report` gives a section of its own.
pub const STEM: &str = "benchmarks-remote";
const MIB: f64 = 1048576.0;
/// What was promised of each side before records said so, and for each further connection.
const OLDER_MIB: f64 = 64.0;
const OLDER_MORE_MIB: f64 = 32.0;

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
pub fn print(row: &RemoteRowRecord) {
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
            let found = row.came_of(v);
            all.push(GoalLine {
                work: row.title.clone(),
                goal: v.goal.clone(),
                value: if v.below { v.shown() } else { local::spread(&found) },
                most: format!("{:.2}", v.most),
                word: match () {
                    () if absent => "not built yet",
                    () if v.below => v.word(),
                    () => local::word(&found),
                },
            });
        }
    }
    for m in &record.memory {
        let older = OLDER_MIB + OLDER_MORE_MIB * (m.connections - 1) as f64;
        let bounds = m.bounds.unwrap_or(Bounds { client: Some(older), server: Some(older) });
        let sides = [("client", m.peaks.client, bounds.client), ("server", m.peaks.server, bounds.server)];
        for (side, peak, most) in sides {
            let Some(most) = most else { continue };
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
        // What lies on the disk is an index; what the cap is about stands in it.
        let most = store.remembered.iter().map(|r| r.bytes).max();
        let value = most.map_or_else(|| "-".to_owned(), |bytes| format!("{:.1}", bytes as f64 / MIB));
        all.push(GoalLine {
            work: "three files of 24 MiB through a store of 32 MiB".to_owned(),
            goal: "MiB remembered at most".to_owned(),
            value,
            most: format!("{:.0}", store.cap_bytes as f64 / MIB),
            word: match most {
                None => "not measured",
                Some(bytes) if bytes <= store.cap_bytes => "met",
                Some(_) => "**MISSED**",
            },
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

/// Puts the rows among those kept before from the same kind of machine.
pub fn keep(mut record: Remote, docs: &Path) -> Result {
    let stem = docs.join(STEM);
    if let Ok(text) = std::fs::read_to_string(stem.with_extension("json")) {
        let before: Remote = serde_json::from_str(&text)?;
        // The headline goes on with the kernel, the file system and the date.
        let machine = |r: &Remote| r.machine.split(", Linux").next().map(str::to_owned);
        if machine(&before) == machine(&record) {
            let fresh = |old: &RemoteRowRecord| record.rows.iter().any(|new| new.name == old.name);
            let old: Vec<RemoteRowRecord> = before.rows.into_iter().filter(|row| !fresh(row)).collect();
            record.rows.extend(old);
            let fresh = |old: &RemoteMemory| record.memory.iter().any(|new| new.line == old.line);
            let old: Vec<RemoteMemory> = before.memory.into_iter().filter(|m| !fresh(m)).collect();
            record.memory.extend(old);
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
    let order: Vec<&str> = table::all(false).iter().map(|r| r.name).collect();
    // A row that is not in the table any more has no command that could repeat it.
    record.rows.retain(|row| order.contains(&row.name.as_str()));
    record.rows.sort_by_key(|row| order.iter().position(|name| *name == row.name));
    std::fs::write(stem.with_extension("json"), serde_json::to_string_pretty(&record)? + "\n")?;
    Ok(())
}

/// The section of benchmarks.md.
pub fn section(record: &Remote, out: &mut String) -> Result {
    write!(
        out,
        "\n## remote\n\n{}; {}. Both ends run on this one machine and share its cores: what one side computes, the\n\
         other waits for, and what runs side by side on two machines takes turns here. Every command goes through the\n\
         same private sshd; the others with ssh's stock cipher and, as `aes`, with the one that bcmr prefers by itself.\n\
         The ceiling is a program beside the benchmark that starts its other half through ssh, and then reads, seals,\n\
         sends over TCP, opens and writes, and nothing else. Data lies on tmpfs, so that the line and the programs are\n\
         measured and no disk writes back in another program's turn; where a row is about the disk, on a fresh ext4 in\n\
         an image. 80 Mbit/s is a veth pair with a token bucket at both ends. 50 and 100 ms are a relay that holds back\n\
         every byte: TCP itself meets no delay there. 1 Gbit/s with 100 ms and loss is a bridge in user space that hands\n\
         on whole packets late, no faster than the rate, and one of 1,000 not at all, so that TCP meets all of it; the\n\
         line's time is that of the content alone, without headers and without connecting. Each command's first copy was compared with the source. CPU of the client has its ssh in it, that of\n\
         the server everything below sshd. What a paper claims of the same is repeated by\n\
         `cargo xtask experiment wire`.\n\n![ratios]({STEM}.svg)\n\n",
        record.machine, record.ssh
    )?;
    out.push_str("| workload | goal | measured | at most | |\n|---|---|---|---|---|\n");
    for g in goals(record) {
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

fn table(row: &RemoteRowRecord, cores: usize, out: &mut String) -> Result {
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
            local::spread(&local::outcome(f64::MAX, &row.pairs(&lane.name, &base), false)),
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
pub fn shown(line: &str) -> String {
    let line = line.replace("-F {F} ", "").replace("-e {e} ", "").replace("{F} {a} ", "");
    let line = line.replace("{sp}", "SRC").replace("{dp}", "DST").replace("{s}", "SRC").replace("{d}", "DST");
    format!("`{}`", line.replace('|', "\\|"))
}

/// Every command's ratio to the first of its row, with the first goal as a line.
pub fn plot(record: &Remote) -> String {
    let mut groups = Vec::new();
    for row in &record.rows {
        let mut lanes = row.lanes.iter().filter(|l| !l.samples.is_empty());
        let Some(base) = lanes.next() else { continue };
        let bars = lanes.filter_map(|lane| {
            let value = row.paired(&lane.name, &base.name)?;
            Some(svg::Bar { label: lane.name.clone(), value, ours: lane.line.starts_with(rows::OURS) })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_are_a_section_of_the_document() {
        let rows = table::all(false);
        let record = Remote {
            schema: 1,
            machine: "a, today".to_owned(),
            cores: 2,
            ssh: String::new(),
            rows: rows
                .iter()
                .map(|row| RemoteRowRecord {
                    name: row.name.to_owned(),
                    title: row.title.to_owned(),
                    file_system: "tmpfs".to_owned(),
                    commit: String::new(),
                    command: String::new(),
                    data: crate::data::Size::default(),
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
        let dir = tempfile::tempdir().unwrap();
        keep(record, dir.path()).unwrap();
        crate::documents::write(dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("benchmarks.md")).unwrap();
        assert!(text.contains("## remote") && text.contains("| `tar -C SRC -cf - . \\| ssh there"), "{text}");
    }
}
