//! `cargo xtask tidy`: the walls of the house as an ordinary check, over the files that git knows.
//!
//! `walls` is about Rust code, `papers` about everything else, `rules` about what is cited. Every ban names its replacement.

mod papers;
mod rules;
mod source;
mod walls;

use crate::bench;
use sh::Result;
use std::path::Path;

/// A tracked text file; the path is relative to the root.
pub struct File {
    pub path: String,
    pub text: String,
}

/// One thing that is wrong, and what to do instead.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    /// Counted from 1; 0 is the file as a whole.
    pub line: usize,
    pub wall: &'static str,
    pub text: String,
}

impl Finding {
    fn new(path: &str, line: usize, wall: &'static str, text: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, wall, text: text.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.path, self.line, self.wall, self.text)
    }
}

/// Looks at the whole repository.
pub fn run() -> Result {
    let files = load(&sh::root())?;
    let findings = check(&files);
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
    found.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    found
}

/// Tracked files, and new ones that are not ignored; binary files are left out.
fn load(root: &Path) -> Result<Vec<File>> {
    let list = sh::output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let mut files = Vec::new();
    for path in list.split_terminator('\0') {
        // A file may be gone from the work tree and still be in the index.
        let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

/// For the tests of the walls: what is found in files given as (path, text).
#[cfg(test)]
fn planted(check: fn(&[File]) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<File> = files
        .iter()
        .map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() })
        .collect();
    check(&files).into_iter().map(|f| format!("{}:{} {}", f.path, f.line, f.wall)).collect()
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
