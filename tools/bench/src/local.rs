//! `cargo xtask bench local`: side by side with other tools, on the same data, in one interleaved run.

use crate::measure::{self, Counter, Sample};
use crate::options::{On, Options, command};
use crate::programs::{binary, ceiling, installed, release, version};
use crate::record::{self, LocalRecord, RowRecord, ToolRecord};
use crate::rows::{self, Beforehand, Cache, Place, Row, Tool, Until, Verb};
use crate::turns::{Copies, Turns, in_turns};
use crate::verdict::ROUNDS_MIN;
use crate::{data, mount};
use sh::{Result, text};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A guest that takes so many times as long in the first round as the fastest guest takes part in no other.
const FAR_BEHIND: f64 = 2.0;

pub fn run(options: &Options, typed: &[&str]) -> Result {
    let mut rows = rows::all(options.quick);
    if let Some(stranger) = options.only.iter().find(|o| !rows.iter().any(|r| r.name == **o)) {
        let names: Vec<&str> = rows.iter().map(|r| r.name).collect();
        return Err(format!("no row {stranger:?}; there are: {}", names.join(" ")).into());
    }
    if !options.only.is_empty() {
        rows.retain(|row| options.only.iter().any(|o| o == row.name));
    }
    let bcmr = binary(options)?;
    let takes_part = |name| rows.iter().any(|row| row.tools.iter().any(|tool| tool.name == name));
    if takes_part(rows::CEILING) {
        ceiling()?;
    }
    if takes_part(rows::RELEASE) {
        release()?;
    }
    let mut record = LocalRecord::of_this_machine(&options.dir, options.quick)?;
    if matches!(options.on, On::Image(_)) {
        record.file_system += "-image";
    }
    println!("{}", record.headline());
    let mut left_out = Vec::new();
    for row in &rows {
        match why_not(row, options) {
            Some(why) => left_out.push(format!("{}: NOT MEASURED: {why}", row.name)),
            None => {
                println!("\n{}: {}", row.name, row.title);
                let mut result = measured(row, options, &bcmr)?;
                result.command = command("local", typed) + " --only " + row.name;
                record::print(&result, record.cores);
                record.rows.push(result);
                if let Some(docs) = &options.write {
                    record::keep(record.clone(), docs)?;
                }
            }
        }
    }
    // An image goes with all that is in it.
    if !matches!(options.on, On::Image(_)) {
        Copies::below(&options.dir).clear()?;
    }
    std::fs::create_dir_all(&options.out)?;
    record::write(&record, &options.out.join("results"))?;
    println!("\n{}", record::summary(&record));
    for line in &left_out {
        println!("{line}");
    }
    Ok(())
}

/// Why a row cannot be measured here.
fn why_not(row: &Row, options: &Options) -> Option<String> {
    if options.on == On::Tmpfs && (row.cache == Cache::Cold || row.place != Place::Scratch) {
        return Some("has no meaning on tmpfs".to_owned());
    }
    if let Place::Loop { fs, .. } = row.place {
        if sh::which(&format!("mkfs.{fs}")).is_none() {
            return Some(format!("mkfs.{fs} is not installed"));
        }
        if !sh::is_root() {
            return Some(format!("mounting {fs} needs root"));
        }
    }
    (row.cache == Cache::Cold && !sh::is_root()).then(|| "dropping the cache needs root".to_owned())
}

fn measured(row: &Row, options: &Options, bcmr: &Path) -> Result<RowRecord> {
    let (made, size) = row.set.make(&options.dir)?;
    let tools: Vec<&Tool> = row.tools.iter().filter(|t| !t.guest || installed(t.name).is_some()).collect();
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { row.rounds });
    // Dropped, and so unmounted, at the end of this function.
    let image = match row.place {
        Place::Scratch => None,
        Place::Loop { fs, bytes } => Some(mount::Loop::new(fs, bytes, &options.dir)?),
    };
    let (src, copies) = match &image {
        None => (made, Copies::below(&options.dir)),
        Some(image) => {
            let src = image.dir().join("data");
            sh::quiet("cp", &["-a", text(&made)?, text(&src)?])?;
            (src, Copies::below(image.dir()))
        }
    };
    let keep = options.on != On::Tmpfs && row.place == Place::Scratch && size.files > 1000;
    let source_bytes = mount::allocated(&src)?;
    let room = || {
        let more = tools.len() as u64 + 1;
        if keep { copies.room_for(source_bytes * more, size.entries() * more) } else { Ok(()) }
    };
    let cold = row.cache == Cache::Cold;
    let other = options.dir.join("other");
    let other = tools.iter().any(|tool| tool.line.contains("{o}")).then_some(other.as_path());
    let bench = RowBench { row, turns: Turns { src: &src, copies: &copies, bcmr, cold, keep, other } };
    let mut samples: BTreeMap<&str, Vec<Sample>> = BTreeMap::new();
    let mut blocks = BTreeMap::new();
    let begun = Instant::now();
    let over = || options.budget_s.is_some_and(|most| begun.elapsed().as_secs_f64() > most);
    for round in 0..rounds {
        if round >= ROUNDS_MIN && over() {
            break;
        }
        room()?;
        let stays = |tool: &&Tool| !tool.guest || !far_behind(tool, &tools, &samples);
        let staying: Vec<&Tool> = tools.iter().copied().filter(stays).collect();
        for tool in in_turns(&staying, round) {
            let dst = bench.prepare(tool)?;
            let argv = bench.turns.ready(tool.line, &dst)?;
            let sample = match row.until {
                Until::End => measure::with_memory(bench.turns.memory()?, &argv)?,
                Until::FirstByte => measure::first(&argv, &copies.dir)?,
            };
            samples.entry(tool.name).or_default().push(sample);
            if row.verb == Verb::Copy && round == 0 && other.is_none() {
                blocks.insert(tool.name, mount::allocated(&dst)?);
            }
            bench.finish(&dst)?;
        }
        eprint!(".");
    }
    eprintln!();
    let mut records = Vec::new();
    room()?;
    let counter = options.strace.then(|| Counter::here(&options.dir)).flatten();
    for tool in &tools {
        let calls = match counter.filter(|_| !tool.guest) {
            Some(counter) => {
                let dst = bench.prepare(tool)?;
                let calls = counter.calls(&bench.turns.argv(tool.line, &dst)?, &options.dir)?;
                bench.finish(&dst)?;
                Some(calls)
            }
            None => None,
        };
        records.push(ToolRecord {
            name: tool.name.to_owned(),
            line: tool.line.replace("{s}", "SRC").replace("{d}", "DST").replace("{o}", "OTHER"),
            version: version(tool.line.split(' ').next().unwrap_or_default(), bcmr),
            samples: samples.remove(tool.name).unwrap_or_default(),
            calls,
            allocated_bytes: blocks.get(tool.name).copied(),
        });
    }
    RowRecord::new(row, size, source_bytes, records)
}

/// Whether the first round has shown that a guest is far from the fastest of them; the others do not change that.
fn far_behind(guest: &Tool, tools: &[&Tool], samples: &BTreeMap<&str, Vec<Sample>>) -> bool {
    let first_s = |tool: &Tool| samples.get(tool.name).and_then(|all| all.first()).map(|s| s.wall_s);
    let Some(fastest) = tools.iter().filter(|t| t.guest).filter_map(|t| first_s(t)).reduce(f64::min) else {
        return false;
    };
    first_s(guest).is_some_and(|own| own > fastest * FAR_BEHIND)
}

/// A row while it is measured.
struct RowBench<'a> {
    row: &'a Row,
    turns: Turns<'a>,
}

impl RowBench<'_> {
    /// What [`Turns::prepare`] does, and at the destination what the tool wants there.
    fn prepare(&self, tool: &Tool) -> Result<PathBuf> {
        let src = self.turns.src;
        self.turns.prepare(|dst| match tool.before {
            Beforehand::Nothing => Ok(()),
            Beforehand::Dirs => data::directories(src, dst),
            Beforehand::Copy => sh::quiet("cp", &["-a", text(src)?, text(dst)?]),
        })
    }

    fn finish(&self, dst: &Path) -> Result {
        if self.row.verb == Verb::Remove { Ok(()) } else { self.turns.finish(dst) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_left_out_by_its_first_round_and_tools_that_are_none_do_not_count() {
        let tool = |name, guest| Tool { name, line: "", before: Beforehand::Nothing, guest };
        let tools = [tool("cp", false), tool("near", true), tool("far", true), tool("new", true)];
        let tools: Vec<&Tool> = tools.iter().collect();
        let sample = |wall_s| Sample { wall_s, user_s: 0.0, sys_s: 0.0, peak_kib: 0, foreign_s: 0.0 };
        let walls: [(&str, &[f64]); 3] = [("cp", &[0.1]), ("near", &[1.0, 9.0]), ("far", &[2.1, 1.0])];
        let samples = walls.map(|(name, walls)| (name, walls.iter().copied().map(sample).collect())).into();
        let behind = tools.iter().filter(|tool| far_behind(tool, &tools, &samples));
        assert_eq!(behind.map(|tool| tool.name).collect::<Vec<_>>(), ["far"]);
        assert!(!far_behind(tools[1], &tools, &BTreeMap::new()), "before the first round");
    }
}
