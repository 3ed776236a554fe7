//! Pages and pictures of benchmarks, from their JSON files and from nothing else. Measures nothing.

use crate::record::{self, LocalRecord};
use crate::{checkpoint, delta, many, memory, remote, scale};
use sh::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// Whether a JSON file of this name is a record of benchmarks.
pub fn is_record(name: &str) -> bool {
    name.strip_suffix(".json")
        .is_some_and(|stem| stem.starts_with("benchmarks-") || stem == checkpoint::record::STEM)
}

/// Writes everything that follows from the records in `docs`.
pub fn write(docs: &Path) -> Result {
    let mut kept = BTreeMap::new();
    for entry in std::fs::read_dir(docs)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if is_record(&name) {
            kept.insert(name.clone(), std::fs::read_to_string(docs.join(name))?);
        }
    }
    for (name, text) in files(&kept)? {
        std::fs::write(docs.join(&name), text)?;
        println!("wrote {}", docs.join(name).display());
    }
    Ok(())
}

/// Name and text of every page and picture that follows from records, by their names and texts; and from nothing else,
/// so that the same JSON always gives the same pages.
pub fn files(kept: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
    let mut made = BTreeMap::new();
    let mut text = String::from(HEAD);
    for (name, json) in kept {
        let stem = name.strip_suffix(".json").unwrap_or(name);
        let read = |e: serde_json::Error| format!("{name}: {e}");
        if stem == checkpoint::record::STEM {
            let record = serde_json::from_str(json).map_err(read)?;
            made.insert("benchmarks-checkpoint.md".to_owned(), checkpoint::pages::document(&record, stem)?);
            made.insert(format!("{stem}.svg"), checkpoint::pages::plot(&record));
        } else if stem == memory::STEM {
            memory::section(&serde_json::from_str(json).map_err(read)?, &mut text)?;
        } else if stem == many::STEM {
            many::section(&serde_json::from_str(json).map_err(read)?, &mut text)?;
        } else if stem == delta::record::STEM {
            delta::record::section(&serde_json::from_str(json).map_err(read)?, &mut text)?;
        } else if stem == scale::STEM {
            made.insert("scale.md".to_owned(), scale::document(&serde_json::from_str(json).map_err(read)?)?);
        } else if stem == remote::pages::STEM {
            let record = serde_json::from_str(json).map_err(read)?;
            remote::pages::section(&record, &mut text)?;
            made.insert(format!("{stem}.svg"), remote::pages::plot(&record));
        } else {
            let record: LocalRecord = serde_json::from_str(json).map_err(read)?;
            record::section(&record, stem, &mut text)?;
            made.insert(format!("{stem}.svg"), record::plot(&record));
        }
    }
    made.insert("benchmarks.md".to_owned(), text);
    Ok(made)
}

const HEAD: &str = "# Benchmarks\n\n\
    Written by `cargo xtask bench`, never by hand; the samples are in the JSON files beside this one. Tools take\n\
    turns within each round; from 4b0c499d on they do so in another order in each round of local copies. The destination\n\
    is removed and everything is written back outside the timing, and source and program are read into the page\n\
    cache just before each run where nothing else is said. A ratio is the median over rounds of one tool's time divided by the first tool's in the same round; below\n\
    1 is faster. In brackets is where that median lies with a certainty of 95 % (a bootstrap over rounds); a goal\n\
    whose bound is inside, or that had fewer than three rounds, is undecided. A guest that took more than twice as long as\n\
    the fastest guest in the first round took part in no other. `calls` are system calls per file, link\n\
    and directory, counted in a separate run. A commit with `+` had changes on top. As much memory as the copy needs\n\
    was in use just before: a virtual machine gives free memory back to its host, and who needs it next would wait\n\
    for each page.\n";
