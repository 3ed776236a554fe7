//! `cargo xtask bench memory`: nothing may hold the whole tree, so a million files must fit in little memory.

use crate::data::Set;
use crate::measure;
use crate::options::{Options, command};
use crate::programs::binary;
use crate::record::{self, LocalRecord};
use serde::{Deserialize, Serialize};
use sh::Result;
use std::fmt::Write;

/// What any verb may take.
const MOST_MIB: f64 = 48.0;
/// `DIR/benchmarks-memory.json`.
pub const STEM: &str = "benchmarks-memory";

/// One run.
#[derive(Serialize, Deserialize)]
pub struct MemoryRecord {
    /// 1; counted up when a reader would have to change.
    pub schema: u32,
    pub machine: String,
    pub commit: String,
    pub command: String,
    pub shapes: Vec<Shape>,
}

/// One tree, and what the verbs took for it.
#[derive(Serialize, Deserialize)]
pub struct Shape {
    pub files: u64,
    pub shape: String,
    pub lines: Vec<MemoryLine>,
}

#[derive(Serialize, Deserialize)]
pub struct MemoryLine {
    pub line: String,
    /// Promised of this program only.
    pub ours: bool,
    pub peak_kib: u64,
    pub wall_s: f64,
}

impl MemoryLine {
    fn peak_mib(&self) -> f64 {
        self.peak_kib as f64 / 1024.0
    }
    fn word(&self) -> &'static str {
        match self.ours {
            false => "",
            true if self.peak_mib() <= MOST_MIB => "met",
            true => "**missed**",
        }
    }
}

pub fn run(options: &Options, typed: &[&str]) -> Result {
    let files = if options.quick { 100_000 } else { 1_000_000 };
    let bcmr = binary(options)?.to_string_lossy().into_owned();
    let shapes = [
        ("1,000 directories", Set::Even { dirs: 1000, files_per_dir: files / 1000, bytes: 16 }),
        ("one directory", Set::Even { dirs: 1, files_per_dir: files, bytes: 16 }),
    ];
    let mut record = MemoryRecord {
        schema: 1,
        machine: LocalRecord::of_this_machine(&options.dir, options.quick)?.headline(),
        commit: record::commit()?,
        command: command("memory", typed),
        shapes: Vec::new(),
    };
    for (shape, set) in shapes {
        let (src, size) = set.make(&options.dir)?;
        let (copy, base) = (options.dir.join("copy"), options.dir.join("copy.cp"));
        sh::quiet("rm", &["-rf", &copy.to_string_lossy(), &base.to_string_lossy()])?;
        println!("{} files in {shape}:", size.files);
        let lines = [
            "cp -r SRC BASE",
            "rm -rf BASE",
            "bcmr copy -r SRC DST",
            "bcmr copy --archive -T SRC DST",
            "bcmr check -r -T SRC DST",
            "bcmr remove -r -f DST",
        ];
        let mut made = Shape { files: size.files, shape: shape.to_owned(), lines: Vec::new() };
        for line in lines {
            let fill = |word: &str| match word {
                "bcmr" => bcmr.clone(),
                "SRC" => src.to_string_lossy().into_owned(),
                "DST" => copy.to_string_lossy().into_owned(),
                "BASE" => base.to_string_lossy().into_owned(),
                word => word.to_owned(),
            };
            let argv: Vec<String> = line.split(' ').map(fill).collect();
            let sample = measure::once(&argv)?;
            let (ours, wall_s) = (line.starts_with("bcmr"), sample.wall_s);
            let made_of = MemoryLine { line: line.to_owned(), ours, peak_kib: sample.peak_kib, wall_s };
            println!("  {line:32} {:>8.1} MiB {wall_s:>8.2} s  {}", made_of.peak_mib(), made_of.word());
            made.lines.push(made_of);
        }
        record.shapes.push(made);
    }
    std::fs::create_dir_all(&options.out)?;
    let text = serde_json::to_string_pretty(&record)? + "\n";
    std::fs::write(options.out.join("memory.json"), &text)?;
    if let Some(docs) = &options.write {
        std::fs::write(docs.join(STEM).with_extension("json"), text)?;
    }
    let over = record.shapes.iter().flat_map(|s| &s.lines).filter(|l| l.word() == "**missed**").count();
    if over == 0 { Ok(()) } else { Err(format!("{over} runs took more than {MOST_MIB} MiB").into()) }
}

/// The section of benchmarks.md.
pub fn section(record: &MemoryRecord, out: &mut String) -> Result {
    write!(
        out,
        "\n## memory\n\n{}. `{}` at {}. Peak resident memory of one run each; of this program at most {MOST_MIB:.0} MiB,\n\
         however many files there are.\n",
        record.machine, record.command, record.commit
    )?;
    for shape in &record.shapes {
        write!(
            out,
            "\n### {} files in {}\n\n| command | peak, MiB | wall, s | |\n|---|---|---|---|\n",
            shape.files, shape.shape
        )?;
        for line in &shape.lines {
            let (peak, word) = (line.peak_mib(), line.word());
            writeln!(out, "| `{}` | {peak:.1} | {:.1} | {word} |", line.line, line.wall_s)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_too_much_is_told_of_ours_alone() {
        let line = |line: &str, mib: u64| MemoryLine {
            line: line.to_owned(),
            ours: line.starts_with("bcmr"),
            peak_kib: mib << 10,
            wall_s: 1.0,
        };
        let lines = vec![line("cp -r SRC BASE", 300), line("bcmr copy", 48), line("bcmr check", 49)];
        let record = MemoryRecord {
            schema: 1,
            machine: "a".to_owned(),
            commit: "b".to_owned(),
            command: "c".to_owned(),
            shapes: vec![Shape { files: 7, shape: "one directory".to_owned(), lines }],
        };
        let mut out = String::new();
        section(&record, &mut out).unwrap();
        assert!(out.contains("| `cp -r SRC BASE` | 300.0 | 1.0 |  |"), "{out}");
        assert!(out.contains("| `bcmr copy` | 48.0 | 1.0 | met |"), "{out}");
        assert!(out.contains("| `bcmr check` | 49.0 | 1.0 | **missed** |"), "{out}");
    }
}
