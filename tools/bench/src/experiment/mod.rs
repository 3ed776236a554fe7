//! `cargo xtask experiment`: every experiment of the papers, repeated on the machine at hand, each with a
//! page of its own. Must not know how anything is measured, nor what a page looks like.

mod bystander;
mod catalog;
mod entry;
pub mod inside;
mod lab;
mod list;
pub mod pages;
mod plot;
mod progress;
pub mod record;

use crate::options::{self, IMAGE_BYTES, On, Options};
use crate::programs::binary;
use crate::record::{self as rows, commit};
use crate::{mount, turns};
use entry::{Experiment, Work};
use lab::{Lab, elsewhere};
use progress::progress;
use record::Record;
use sh::{Result, release_dir};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const USAGE: &str = "\
cargo xtask experiment LIST|all [OPTION]  repeats experiments and writes a page for each, an index, and index.html
cargo xtask experiment report DIR         makes pages and index in DIR again, from the JSON files there
cargo xtask experiment reword DIR         takes words and claims of today into the JSON files there, where what was
                                          measured is what is measured today; says which have to be measured again
cargo xtask experiment --list             what there is

  LIST          ids (local-7), groups (local wire checkpoint paper library), numbers and ranges of the papers (9, 1-6)
  --quick       less data and fewer rounds, all within five minutes: to see that it runs, not for any record
  --minutes N   begin nothing more after so long, and say what was left out
  --rounds N    instead of what each experiment wants
  --out DIR     where JSON and pages go (docs/experiments; with --quick target/experiments)
  --on FS       ext4, xfs or btrfs, fresh in an image for each experiment (needs root; without a word ext4), tmpfs, or
                `here` for whatever lies below --dir
  --dir DIR     where images, data and copies lie ($BCMR_BENCH_DIR, else target/bench)
  --bcmr PATH   the binary under measurement; without it both the program and this tool are built with --release";

/// What was typed.
struct Asked<'a> {
    words: Vec<&'a str>,
    options: Options,
    out: PathBuf,
}

pub fn run(args: &[&str]) -> Result {
    match args {
        [.., "--help" | "-h"] | [] => {
            println!("{USAGE}");
            Ok(())
        }
        ["--list"] => {
            for it in catalog::all(false) {
                println!("{:13} {} ({})", it.id, it.title, it.text);
            }
            Ok(())
        }
        ["report", dir] => pages::write(&sh::root().join(dir)),
        ["reword", dir] => reword(&sh::root().join(dir)),
        args => {
            let asked = parse(args)?;
            if cfg!(debug_assertions) && asked.options.bcmr.is_none() {
                return optimised(args);
            }
            measured(&asked)
        }
    }
}

/// Data, codecs, relays and loops of an unoptimised build would be measured as well: the same again in an optimised one.
fn optimised(args: &[&str]) -> Result {
    sh::run(sh::cargo().args(["build", "--release", "--locked", "-p", "bcmr", "-p", "bench"]))?;
    let mut again = Command::new(release_dir().join("bench"));
    let status = again.arg("experiment").args(args).status()?;
    if status.success() { Ok(()) } else { Err(format!("the optimised build: {status}").into()) }
}

fn parse<'a>(args: &[&'a str]) -> Result<Asked<'a>> {
    let root = sh::root();
    let (mut words, mut passed, mut out, mut on) = (Vec::new(), Vec::new(), None, None);
    let mut rest = args.iter().copied();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{word} needs a value"));
        match word {
            "--out" => out = Some(std::path::absolute(value()?)?),
            "--on" => on = Some(value()?),
            "--quick" => passed.push(word),
            "--minutes" | "--rounds" | "--dir" | "--bcmr" => passed.extend([word, value()?]),
            _ if word.starts_with('-') => return Err(format!("no such option: {word}\n{USAGE}").into()),
            _ => words.push(word),
        }
    }
    // Images are made for each experiment: here it is only kept which.
    let mut options = options::parse(&passed)?;
    // Beside what `bench` keeps: its images have the same names.
    options.dir = options.dir.join("experiment");
    options.on = match on {
        None if sh::is_root() => On::Image("ext4".to_owned()),
        None | Some("here") => On::Whatever,
        Some("tmpfs") => On::Tmpfs,
        Some(fs @ ("ext4" | "xfs" | "btrfs")) => On::Image(fs.to_owned()),
        Some(fs) => return Err(format!("--on {fs}: there are ext4, xfs, btrfs, tmpfs and here").into()),
    };
    let out = out.unwrap_or_else(|| root.join(if options.quick { "target/experiments" } else { RECORD }));
    if options.quick && out == root.join(RECORD) {
        return Err(format!("--quick is for no record: not into {RECORD}").into());
    }
    Ok(Asked { words, options, out })
}

/// Where the figures lie that count.
pub const RECORD: &str = "docs/experiments";

fn measured(asked: &Asked) -> Result {
    let options = &asked.options;
    let all = catalog::all(options.quick);
    let ids: Vec<&str> = all.iter().map(|it| it.id).collect();
    let chosen = list::chosen(&asked.words, &ids)?;
    let bcmr = binary(options)?;
    std::fs::create_dir_all(&asked.out)?;
    std::fs::create_dir_all(&options.dir)?;
    let wire = Options { dir: elsewhere().join("wire"), on: On::Tmpfs, ..options.clone() };
    let mut lab = Lab::new(options, &wire, &bcmr)?;
    lab.words_are_known(&all)?;
    let begun = Instant::now();
    let (mut left_out, mut failed) = (Vec::new(), Vec::new());
    for (n, id) in chosen.iter().enumerate() {
        let Some(it) = all.iter().find(|it| it.id == *id) else { continue };
        let since_s = begun.elapsed().as_secs_f64();
        if let Some(most) = options.minutes.filter(|most| since_s > most * 60.0) {
            left_out.push(*id);
            // What an earlier run has found stays.
            if !asked.out.join(format!("{id}.json")).exists() {
                let mut record = blank(it, asked)?;
                record.not_run = Some(format!("left out, as the {most} minutes were over"));
                keep(&record, &asked.out)?;
            }
            continue;
        }
        println!("[{}/{}] {id}: {} ({since_s:.0} s so far)", n + 1, chosen.len(), it.title);
        let mut record = blank(it, asked)?;
        let started = Instant::now();
        if let Err(problem) = carried_out(it, asked, &mut lab, &mut record) {
            // What was measured before it stays on the page.
            record.not_run = Some(format!("stopped: {problem}"));
            failed.push(format!("{id}: {problem}"));
        }
        record.took_s = started.elapsed().as_secs_f64();
        progress("");
        for claim in &record.claims {
            let found = record.judge(claim);
            println!(
                "  {}: published {}, here {}: {}",
                claim.says,
                pages::published(claim.rule),
                pages::measured(&found),
                found.verdict.word()
            );
        }
        println!("  {}, {:.0} s", record.verdict().word(), record.took_s);
        keep(&record, &asked.out)?;
    }
    drop(lab);
    if elsewhere().exists() {
        std::fs::remove_dir_all(elsewhere())?;
    }
    println!("all in {:.0} s; {}", begun.elapsed().as_secs_f64(), asked.out.join("index.html").display());
    if !left_out.is_empty() {
        println!("LEFT OUT, the time was over: {}", left_out.join(" "));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

/// Words and claims are not measured: a change of them need not cost a new measurement.
fn reword(dir: &Path) -> Result {
    let all = catalog::all(false);
    for mut record in pages::load(dir)? {
        match all.iter().find(|it| it.id == record.id) {
            Some(it) if it.reword(&mut record) => keep(&record, dir)?,
            Some(_) => println!("{}: something else is measured today: measure it again", record.id),
            None => println!("{}: there is no such experiment any more", record.id),
        }
    }
    Ok(())
}

/// The record, and every page anew.
fn keep(record: &Record, out: &Path) -> Result {
    let text = serde_json::to_string_pretty(record)? + "\n";
    std::fs::write(out.join(format!("{}.json", record.id)), text)?;
    pages::write(out)
}

/// Its words, and nothing measured yet.
fn blank(it: &Experiment, asked: &Asked) -> Result<Record> {
    let options = &asked.options;
    let mut machine = rows::LocalRecord::of_this_machine(&options.dir, false)?;
    machine.file_system = on(&options.on, &machine.file_system);
    let mut command = format!("cargo xtask experiment {}", it.id);
    if options.quick {
        command.push_str(" --quick");
    }
    if let Some(rounds) = options.rounds {
        command.push_str(&format!(" --rounds {rounds}"));
    }
    Ok(Record {
        schema: 1,
        id: it.id.to_owned(),
        title: it.title.to_owned(),
        text: it.text.to_owned(),
        hypothesis: it.hypothesis.to_owned(),
        method: it.method.to_owned(),
        differs: it.differs.to_owned(),
        machine: machine.headline(),
        cores: machine.cores,
        commit: commit()?,
        command,
        quick: options.quick,
        took_s: 0.0,
        not_run: it.never.map(str::to_owned),
        parts: Vec::new(),
        claims: it.claims.clone(),
    })
}

/// The file system of local data, in words.
fn on(on: &On, here: &str) -> String {
    match on {
        On::Whatever => here.to_owned(),
        On::Tmpfs => "tmpfs".to_owned(),
        On::Image(fs) => format!("{fs} in an image"),
    }
}

fn carried_out(it: &Experiment, asked: &Asked, lab: &mut Lab, record: &mut Record) -> Result {
    let options = &asked.options;
    let here = rows::LocalRecord::of_this_machine(&options.dir, false)?.file_system;
    let on = on(&options.on, &here);
    let local = it.parts.iter().any(|p| matches!(p.work, Work::Lines(_) | Work::Resume { .. }));
    // Dropped, and so unmounted and removed with everything in it, at the end of this function.
    let image = match &options.on {
        On::Image(fs) if local => Some(mount::Loop::new(fs, IMAGE_BYTES, &options.dir)?),
        _ => None,
    };
    let dir = match (&image, &options.on) {
        (Some(image), _) => image.dir().to_path_buf(),
        (None, On::Tmpfs) => elsewhere().join("local"),
        (None, _) => options.dir.clone(),
    };
    for part in &it.parts {
        progress(&part.title);
        record.parts.push(lab.part(part, &dir, &on)?);
    }
    if image.is_none() && local {
        turns::Copies::below(&dir).clear()?;
    }
    Ok(())
}
