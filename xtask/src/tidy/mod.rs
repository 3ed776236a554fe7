//! `cargo xtask tidy`: the walls of the house as an ordinary check, over the files that git knows.
//!
//! `walls` is about Rust code, `ratchets` about its shape, `papers` about everything else, `rules` about what is cited. Every
//! ban names its replacement.

mod figures;
mod finding;
mod imports;
mod papers;
mod ratchets;
mod rules;
mod source;
mod walls;

use crate::{bench, typed};
use clap::Parser;
use finding::{File, Finding};
use sh::Result;
use std::path::Path;

/// The walls between the crates, and what every file must have.
#[derive(Parser)]
#[command(name = "cargo xtask tidy")]
struct Tidy {
    /// The shape of the code in numbers instead, and where they come from.
    #[arg(long, conflicts_with = "map")]
    figures: bool,
    /// What each file is for instead.
    #[arg(long)]
    map: bool,
}

/// Looks at the whole repository.
pub fn run(args: &[&str]) -> Result {
    let Some(options) = typed::parse::<Tidy>(args)? else { return Ok(()) };
    let files = load(&sh::root())?;
    if options.figures {
        figures::print(&files);
        return Ok(());
    }
    if options.map {
        papers::map(&files).for_each(|line| println!("{line}"));
        return Ok(());
    }
    walls_hold(&files)
}

fn walls_hold(files: &[File]) -> Result {
    let findings = check(files);
    for finding in &findings {
        println!("{finding}");
    }
    // Which pages follow from which records is known to the program that makes them.
    let made = bench::run(&["made"]);
    if !findings.is_empty() {
        return Err(format!("tidy: {} findings", findings.len()).into());
    }
    made?;
    println!("tidy: {} files, nothing to say", files.len());
    Ok(())
}

/// Every wall over these files.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut found = walls::check(files);
    found.extend(papers::check(files));
    found.extend(rules::check(files));
    found.extend(ratchets::check(files));
    found.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    found
}

/// Tracked files, and new ones that are not ignored; of binary files only the path, for links that lead to pictures.
fn load(root: &Path) -> Result<Vec<File>> {
    let list = sh::output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let mut files = Vec::new();
    for path in list.split_terminator('\0') {
        // A file may be gone from the work tree and still be in the index.
        let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
        let text = String::from_utf8(bytes).unwrap_or_default();
        files.push(File::new(path, text));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wall itself, as an ordinary test.
    #[test]
    fn the_repository_is_tidy() {
        let files = load(&sh::root()).expect("git lists the files");
        let findings: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }
}
